package engine

import (
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/schedule/due"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// dues finds what is due for the items of this host, what they have missed, and what they owe of it. By the job's
// policies (policy.go) it postpones or drops instants. It begins no items.
type dues struct {
	job      *access
	items    *items
	calendar *due.Calendar
	reports  itemReports
	guest    *jobconfig.Guest
	wanted   *Job
	refuses  func() bool // whether nothing begins under the configuration, or under the leader
	passed   bool        // an item's passed is set
}

// owe records that an item must run for a fire later. Of several owed instants the newest replaces the others, unless the
// policy runs each.
func (d *dues) owe(it *item, id tree.Fire) {
	if gone, by := due.PoliciesOf(d.job.member.View.Config, *d.guest).Owe(&it.Owed, id); gone != nil {
		d.reports.superseded(it, *gone, by)
	}
}

// owesRound records that an item must run in a trigger round, unless it runs or owes something.
func (d *dues) owesRound(now moment, it *item, round int64, args tree.TriggerArgs) {
	id := args.Fire(round, now.wall.UnixMilli(), string(abi.SourceTrigger))
	switch {
	case !d.job.member.View.Enabled || d.job.beyond(it):
	case id.HasArgs():
		it.Ask(id)
	case it.run == nil && it.Due == nil:
		it.Due = &id
	}
}

// moves reports whether an item stayed on this host only because it ran, and is now moving to another host, which will
// find what is due. If the item does not move after all, or the other host could be too late for the catch-up window,
// moves returns false, and the item begins here.
func (d *dues) moves(now moment, it *item) bool {
	policies := d.policies()
	if policies.Each(*it.Next()) { // its record says that it is owed
		return d.job.member.Share.Pending.Contains(it.number)
	}
	return d.job.member.Share.Pending.Contains(it.number) && policies.CatchUp != jobconfig.CatchUpNone && it.Next().Trigger == 0 &&
		now.wall.Sub(it.Next().Time()) < d.guest.CatchUpWindow/2
}

// makeUp finds what came due for items while they had no owner or were disabled; this host has just been given them, or
// they were just enabled. What the registry refuses to show now, makeUp finds later.
func (d *dues) makeUp(now moment, gained []int) {
	if d.calendar.Schedule == nil || !d.job.member.View.Enabled || d.refuses() {
		return
	}
	slices.Sort(gained)
	var candidates []*item
	var missed tree.Items
	came := make(map[int64]bool) // items mostly were begun last at the same instant
	for _, n := range gained {
		it := d.items.get(n)
		if it == nil || it.state.Record.Instant == 0 {
			continue
		}
		if it.Due != nil {
			if it.Due.Trigger == 0 && !it.switched.seen.IsZero() { // misfires, perhaps of the time before
				missed, candidates = append(missed, n), append(candidates, it)
			}
			continue
		}
		if it.passed = d.job.beyond(it); it.passed {
			d.passed = true
			continue
		}
		begun := it.answered()
		missing, known := came[begun.UnixMilli()]
		if !known {
			missing = !d.calendar.First(now.wall, begun).IsZero()
			came[begun.UnixMilli()] = missing
		}
		missing = missing || it.state.Record.Owed != ""
		if missing && !it.state.Disabled {
			missed = append(missed, n)
		}
		if missing || it.state.Record.HandedBack() != 0 {
			candidates = append(candidates, it)
		}
	}
	if len(missed) > 0 {
		if err := d.readEnabled(missed); err != nil {
			d.job.failed(now, "reading when items were resumed", err)
			for _, it := range candidates {
				it.passed, d.passed = true, true
			}
			return
		}
	}
	found := make(map[[3]int64]owes)
	for _, it := range candidates {
		switch {
		case it.Due != nil:
			d.dropWaiting(it, it.WaitingBefore(it.switched.notBefore), event.SkipDisabled, reason.New(reason.WasDisabled))
		case it.state.Disabled:
			d.cover(now, it)
		case d.policies().divides() || it.state.Record.Owed != "":
			d.account(now.wall, it)
		default:
			d.makeUpFor(now, it, found)
		}
	}
}

// makeUpBefore finds what came due for items before an instant that is about to begin. It returns false if that is not
// known yet.
func (d *dues) makeUpBefore(now moment, at time.Time, items []int) (known bool) {
	next := d.calendar.Next
	d.calendar.Next = at
	d.makeUp(now, items)
	d.calendar.Next = next
	return !d.job.rests(now)
}

// owes is what items owe that last began, and were last enabled, at the same times.
type owes struct {
	at   time.Time
	skip *due.Skip
}

// makeUpFor finds what an item owes. found caches the results of other items.
func (d *dues) makeUpFor(now moment, it *item, found map[[3]int64]owes) {
	begun, back := it.answered(), it.state.Record.HandedBack()
	calendar := *d.calendar
	calendar.NotBefore = latest(calendar.NotBefore, it.switched.notBefore)
	key := [3]int64{begun.UnixMilli(), back, calendar.NotBefore.UnixMilli()}
	o, known := found[key]
	if !known {
		var handedBack time.Time
		if back != 0 {
			handedBack = time.UnixMilli(back)
		}
		o.at, o.skip = calendar.CatchUp(now.wall, begun, handedBack, d.policies().CatchUp == jobconfig.CatchUpLatest)
		found[key] = o
	}
	if skip := o.skip; skip != nil {
		why := skip.Reason
		if skip.Cause == due.Disabled && it.switched.notBefore.After(d.calendar.NotBefore) {
			why = reason.New(reason.WasDisabled)
		}
		first, through := skip.First, skip.Through
		if !first.After(it.switched.reported) { // up to then it is reported
			first = d.calendar.After(it.switched.reported)
		}
		if !first.IsZero() && !first.After(latest(through, skip.First)) {
			id := tree.Fire{Instant: first.UnixMilli(), Source: string(abi.SourceCatchUp)}
			d.reports.skipUpTo(it, id, through, skipCauses[skip.Cause], why)
		}
	}
	if !o.at.IsZero() {
		it.Due = &tree.Fire{Instant: o.at.UnixMilli(), Source: string(abi.SourceCatchUp)}
	}
}

// makeUpPassed finds what came due for items that are below the total count again: this host was given them before it
// read that the count is larger.
func (d *dues) makeUpPassed(now moment) {
	if !d.passed || !d.job.knowsShare() || d.job.rests(now) {
		return
	}
	d.passed = false
	var passed []int
	for n, it := range d.items.of {
		switch {
		case it.passed && d.job.beyond(it):
			d.passed = true
		case it.passed:
			if it.passed = false; it.owned { // if it runs, it has its turn afterwards
				passed = append(passed, n)
			}
		}
	}
	if len(passed) > 0 {
		d.makeUp(now, passed)
	}
}

// cover reports the skipped instants of a disabled item, up to now, that were not reported yet.
func (d *dues) cover(now moment, it *item) {
	since := latest(it.answered(), it.switched.reported)
	first, newest := d.calendar.First(now.wall, since), d.calendar.Newest(now.wall, since)
	if until := it.state.Said.Until; until != 0 && newest.UnixMilli() >= until {
		newest = time.UnixMilli(until - 1) // what is due from then on runs when it is enabled
	}
	if _, came := d.job.host.registryBounds(now); newest.After(came) {
		came = latest(came, first.Add(-time.Millisecond))
		for at := d.calendar.After(came); !at.IsZero() && !at.After(newest); at = d.calendar.After(at) {
			d.itemDisabled(it, tree.Fire{Instant: at.UnixMilli(), Source: string(abi.SourceCatchUp)})
		}
		newest = came
	}
	if first.IsZero() || first.After(newest) {
		return
	}
	d.reports.skipUpTo(it, tree.Fire{Instant: first.UnixMilli(), Source: string(abi.SourceSchedule)}, newest, event.SkipDisabled, coordination.RefusedDisabled.Reason())
	it.switched.reported = newest
}

// readEnabled finds the time up to which items owe nothing.
func (d *dues) readEnabled(items tree.Items) error {
	all, of, err := coordination.ReadEnabled(d.job.work, d.job.member.Registry, d.job.member.Layout, items)
	if err != nil {
		return err
	}
	for _, n := range items {
		s := &d.items.get(n).switched
		own := time.UnixMilli(of[n])
		switch {
		case !s.ended.IsZero():
			own = s.ended
		case !s.seen.IsZero() && own.Before(s.since): // by another program, which does not set the item
			own = s.seen
		}
		s.notBefore = latest(s.notBefore, latest(own, time.UnixMilli(all)))
		s.since, s.seen, s.ended = time.Time{}, time.Time{}, time.Time{}
	}
	return nil
}

// dropWaiting reports that an item does not run for the scheduled instants that it owes, or for the oldest of them.
func (d *dues) dropWaiting(it *item, waiting []tree.Fire, cause event.SkipCause, why reason.Reason) {
	if len(waiting) == 0 {
		return
	}
	var through time.Time
	if n := len(waiting); n > 1 {
		through = waiting[n-1].Time()
	}
	d.reports.skipUpTo(it, waiting[0], through, cause, why)
	for _, f := range waiting {
		it.Answered(f)
	}
}

// reportGone reports the instants of an item that is above the lowered total count, if they came due before the count was
// lowered. No other host gets the item.
func (d *dues) reportGone(it *item, counts tree.Counts) {
	if !it.owned || counts.Since == 0 || it.number < counts.Total || it.number >= counts.Former || d.calendar.Schedule == nil {
		return
	}
	first, since := d.calendar.After(latest(time.UnixMilli(it.state.Record.Instant), it.switched.reported)), time.UnixMilli(counts.Since)
	if first.IsZero() || first.After(since) {
		return
	}
	d.reports.skipUpTo(it, tree.Fire{Instant: first.UnixMilli(), Source: string(abi.SourceSchedule)}, since, event.SkipDisabled,
		reason.New(reason.CountLowered, counts.Total))
}

// reportUnmet reports the fires of the jobs before after which the job does not run, for items that this host was given,
// since each item's last begin; whether the item's former host has reported them is unknown. It reports consecutive fires
// in one event.
func (d *dues) reportUnmet(items []*item, unmet []due.Unmet) {
	for _, it := range items {
		var group []due.Unmet
		report := func() {
			if n := len(group); n > 0 {
				id, through := group[0].Fire, time.Time{}
				if id.Source = string(abi.SourceSchedule); n > 1 {
					through = group[n-1].Fire.Time()
				}
				d.reports.skipUpTo(it, id, through, causeOf(group[0]), group[0].Reason)
			}
			group = nil
		}
		since, apart := it.answered(), false
		for _, u := range unmet {
			apart = apart || u.Apart
			at := u.Fire.Time()
			news := at.After(since) || u.Passed.After(time.UnixMilli(it.state.Record.Begun))
			if u.Fire.Trigger != 0 || !news || it.state.Record.Instant == 0 || d.job.beyond(it) {
				continue
			}
			if n := len(group); n > 0 {
				last := group[n-1]
				runs := d.calendar.After(last.Fire.Time())
				if between := !runs.IsZero() && runs.Before(at); between || apart || last.Late != u.Late || last.Reason.String() != u.Reason.String() {
					report()
				}
			}
			group, apart = append(group, u), false
		}
		report()
	}
}

// notOwed records that an item came from Java hosts: the instants before belong to them, whether they ran the item or
// not.
func (d *dues) notOwed(it *item, before time.Time) {
	if since := it.state.Record.Instant; since != 0 && d.calendar.Schedule != nil {
		if first := d.calendar.After(time.UnixMilli(since)); !first.IsZero() && !first.After(before) {
			d.reports.skipUpTo(it, tree.Fire{Instant: first.UnixMilli(), Source: "schedule"}, before,
				event.SkipElsewhere, reason.New(reason.PerhapsJava))
		}
	}
	it.state.Record.Instant = max(it.state.Record.Instant, before.UnixMilli())
}

// itemDisabled reports that an item does not begin for a fire because it is disabled. An instant at which the item's
// pause has ended is due when the item is enabled. So is an instant that has not yet come by the registry's clock, which
// decides whether the item was disabled when it came.
func (d *dues) itemDisabled(it *item, id tree.Fire) {
	it.disable()
	if until := it.state.Said.Until; until != 0 && id.Trigger == 0 && id.Instant >= until {
		d.owe(it, id)
		return
	}
	now := d.job.host.now()
	if wait := d.job.host.untilCame(now, id.Time()); wait > 0 && id.Trigger == 0 {
		d.owe(it, id)
		d.job.again(now, now.Add(wait))
		return
	}
	it.Answered(id)
	d.reports.skip(it, id, event.SkipDisabled, coordination.RefusedDisabled.Reason())
	if id.Trigger == 0 {
		it.switched.reported = latest(it.switched.reported, id.Time())
	}
}

// postpone separates the items whose guests asked not to run before a time that has not come. They owe the fire, and are
// returned as waiting.
func (d *dues) postpone(now moment, id tree.Fire, items []*item) (rest []*item, waiting tree.Items) {
	at := d.job.host.registryTime(now).UnixMilli()
	if !slices.ContainsFunc(items, func(it *item) bool { return it.state.Record.NotBefore(at) != 0 }) {
		return items, nil
	}
	for _, it := range items {
		r := it.state.Record
		if r.NotBefore(at) == 0 {
			rest = append(rest, it)
			continue
		}
		d.owe(it, id)
		waiting = append(waiting, it.number)
		if it.postponedFor != id.ID() && r.HandedBack() != id.Instant {
			it.postponedFor = id.ID()
			d.reports.skip(it, id, event.SkipLater, laterReason(r))
		}
	}
	return rest, waiting
}

// parameter returns the job parameter of a fire. A parameter that no longer fits the declared arguments, because these
// were changed after another host began the fire, stays as it was given.
func (d *dues) parameter(id tree.Fire) string {
	text, _ := d.checkedParameter(id)
	return text
}

// checkedParameter returns the job parameter of a fire, and an error if it does not fit the arguments that the job
// declares.
func (d *dues) checkedParameter(id tree.Fire) (string, error) {
	c := d.job.member.View.Config
	var given *string
	if id.WithParam {
		given = &id.Param
	} else if id.Trigger == 0 || id.Given {
		if parameter, own := d.calendar.Parameter(id.Time()); own {
			given = &parameter
		}
	}
	text, err := d.guest.Parameter(c, given)
	if err == nil {
		return text, nil
	}
	if given != nil {
		return *given, err
	}
	return c.JobParameter, err
}

// unfit returns the error if a fire's job parameter does not fit the arguments that the job declares.
func (d *dues) unfit(id tree.Fire) error {
	_, err := d.checkedParameter(id)
	return err
}
