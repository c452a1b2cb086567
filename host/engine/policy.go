package engine

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/admin/changelog"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/schedule/due"
	"github.com/wasmjob/wasmjob/internal/text/reason"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// What becomes of instants that cannot begin when they come, by the job's policies: docs/schedules.md
// describes them.
//
// The instants that an item owes wait in its [due.Owed]. Where each of them runs for itself, begins and
// completions write them into the item's record, so that its next owner runs the others.

// policies are those of the job, with what this host keeps of instants that wait.
type policies struct {
	due.Policies
	// shared is set if QueueMax is this item's part of what the group may owe here, and less than the job allows.
	shared bool
	// named is the overlap that the job's policy names; empty if misfire says it.
	named jobconfig.Overlap
}

func (d *dues) policies() policies {
	x := policies{Policies: due.PoliciesOf(d.job.member.View.Config, *d.guest), named: d.guest.Overlap}
	x.QueueMax, x.shared = d.mayOwe(d.guest.QueueMax)
	return x
}

// divides reports whether what came while an item ran and what came while it had no host are to be told apart.
func (x policies) divides() bool {
	drops, misses := x.Overlap == jobconfig.OverlapSkip, x.CatchUp == jobconfig.CatchUpNone
	return x.Queues() || drops != misses
}

// queueFull says why no more instants of an item wait.
func (x policies) queueFull() reason.Reason { return due.QueueFull(x.QueueMax, x.shared) }

// dropsOverlap says why an instant that comes while the item runs, as runs says, is dropped.
func (x policies) dropsOverlap(runs reason.Reason) reason.Reason {
	if x.named == "" {
		return reason.New(reason.AndMisfireOff, runs)
	}
	return reason.New(reason.AndOverlap, runs, x.named)
}

// defaultMostOwed is how many instants the items of one group owe at most on a host: each of them takes memory here, and in
// the record of its item.
const defaultMostOwed = 1_000_000

// mayOwe is how many instants an item may owe at most, of those that the job allows; shared says that this is its part of
// what the group may owe, and less.
func (d *dues) mayOwe(allowed int) (most int, shared bool) {
	most = max(cmp.Or(d.job.host.cfg.mostOwed, defaultMostOwed)/max(d.wanted.groupItems, d.job.counts().Total, 1), 1)
	return min(most, allowed), most < allowed
}

// arrive takes an instant for an idle item. It reports whether the item begins for it; else the item runs for it after those
// that it owes already, or there are too many of these.
func (d *dues) arrive(it *item, id tree.Fire) (begins bool) {
	policies := d.policies()
	fate, gone := policies.Arrive(&it.Owed, id, false)
	d.reports.allSuperseded(it, gone, id)
	switch fate {
	case due.Begins:
		return true
	case due.Crowded:
		d.reports.skip(it, id, event.SkipQueueFull, policies.queueFull())
	default:
		id.Source = string(abi.SourceMisfire)
		d.reports.skip(it, id, event.SkipLater, reason.New(reason.EarlierFirst))
	}
	return false
}

// stopFor stops a run as the job's overlap says, because an instant has come for which the item is to run.
func (rn *runner) stopFor(now moment, it *item, id tree.Fire) {
	policies := rn.dues.policies()
	stops, byForce := policies.Stops()
	if !stops {
		return
	}
	why := reason.New(reason.InstantCame, id.ID(), policies.Overlap)
	first, unclaimed := it.run.StopFor(why, now.Time, byForce)
	if first {
		rn.log.Info("a run is stopped for the next one", zap.Int("item", it.number), zap.String("run", it.run.RunID()), zap.Stringer("reason", why))
	}
	if unclaimed {
		ended, _ := it.run.KilledBefore()
		rn.ends.hear(ended)
	}
}

// dropLate takes out items that would start later after the instant than the job allows, by the registry's clock: no host that has
// an item after this one, whatever its own clock, begins it in time. While it is not certain on which side of the bound
// the registry's clock is, items wait.
func (d *dues) dropLate(now moment, id tree.Fire, items []*item) []*item {
	host := d.job.host
	late, certain, behind := d.startsLate(now, id)
	if late && !certain && len(items) > 0 {
		if _, err := coordination.RegistryTime(d.job.work, d.job.member.Registry, d.job.member.Layout); err != nil {
			d.job.log.Warn("reading the registry's clock", zap.Error(err)) // the items wait
		}
		now = host.now()
		late, certain, behind = d.startsLate(now, id)
	}
	if !late {
		return items
	}
	var inTime []*item
	for _, it := range items {
		if r := it.state.Record; r.Again != 0 && r.HandedBack() == id.Instant { // it has started in time
			inTime = append(inTime, it)
			continue
		}
		if !certain {
			d.owe(it, id)
			d.job.again(now, now.Add(d.guest.StartWithin-behind+2*time.Millisecond))
			continue
		}
		it.Answered(id)
		d.reports.skip(it, id, event.SkipLate, reason.New(reason.StartsLate, words.Duration(behind.Truncate(time.Second)), words.Duration(d.guest.StartWithin)))
		it.dropped = latest(it.dropped, id.Time())
	}
	return inTime
}

// startsLate reports whether a fire may start later after its instant than the job allows, and whether it does for certain; behind is
// how much later it starts at least.
func (d *dues) startsLate(now moment, id tree.Fire) (late, certain bool, behind time.Duration) {
	low, high := d.job.host.registryBounds(now)
	start, policies := id.Time().Add(d.calendar.Delay(id.Time())), d.policies()
	behind = low.Sub(start)
	return policies.Late(id, high.Sub(start)), policies.Late(id, behind), behind
}

// dropDone takes out items that have run as often as the job allows, and has the job paused.
func (rn *runner) dropDone(id tree.Fire, items []*item) []*item {
	most, policies := rn.guest.MaxRuns, rn.dues.policies()
	return slices.DeleteFunc(items, func(it *item) bool {
		if !policies.Done(id, it.state.Record.Runs) {
			return false
		}
		why := reason.New(reason.HasRun, reason.Count(most))
		it.Answered(id)
		rn.reports.skip(it, id, event.SkipPaused, pausedReason(jobconfig.PropMaxRuns, why))
		it.dropped = latest(it.dropped, id.Time())
		rn.pausing.want(jobconfig.PropMaxRuns, why.String())
		return true
	})
}

// pausedReason says why a job is paused. by is the property of the policy.
func pausedReason(by string, why reason.Reason) reason.Reason {
	return reason.New(reason.Paused, strings.TrimPrefix(by, jobconfig.PropPrefix), why)
}

// pausing is that a policy has the whole job paused.
type pausing struct {
	job  *access
	word tree.Word // why; By is empty if no policy does
}

// want has the job paused by a policy, if it is not to be already.
func (p *pausing) want(by, why string) {
	if p.word.By == "" {
		p.word = tree.Word{By: strings.TrimPrefix(by, jobconfig.PropPrefix), Why: why}
	}
}

// act disables the whole job, once for all hosts, if a policy demands it: an operator enables it again.
func (p *pausing) act(now moment) {
	j := p.job
	said := p.word
	if said.By == "" || j.rests(now) {
		return
	}
	p.word = tree.Word{}
	if !j.member.View.Enabled { // another host was first
		return
	}
	said.Since = now.wall.UnixMilli()
	record := changelog.Record{Time: now.wall, Job: j.name, Who: said.By, From: event.FromRegistry, What: operation.Disable.String(), Why: said.Why}
	center := changelog.Leaving(j.member.Registry, j.member.Layout, func() changelog.Record { return record })
	changed, err := operate.SetServers(j.work, center, j.member.Layout, said, false)
	switch {
	case errors.Is(err, tree.ErrRemoved):
	case err != nil:
		if !j.setback(now, "pausing the job", err) {
			p.word = said
		}
	case changed:
		why := pausedReason(said.By, reason.Read(said.Why))
		j.log.Warn("job paused", zap.Stringer("reason", why))
		j.Emit(event.Event{Kind: event.JobPaused}.Why(why))
	}
}

// pausedBy says which policy of the job has paused it, and why; zero if none has, or that is not known.
func (set *itemSet) pausedBy() reason.Reason {
	word := set.pause.word
	policies := []string{jobconfig.PropMaxRuns, jobconfig.PropPauseAfterFailures}
	if set.member.View.Enabled || !slices.Contains(policies, jobconfig.PropPrefix+word.By) {
		return reason.Reason{}
	}
	return pausedReason(word.By, reason.Read(word.Why))
}

// owing is an item's record with the instants that the item owes besides a fire, as the next write of
// it has them.
func (d *dues) owing(it *item, besides tree.Fire, r tree.Record) tree.Record {
	if !d.policies().Queues() && it.Len() <= 1 {
		return r.Owes(nil, 0)
	}
	var instants []int64
	for _, f := range it.Waiting() {
		if f.Trigger == 0 && f.ID() != besides.ID() {
			instants = append(instants, f.Instant)
		}
	}
	return r.Owes(instants, it.accounted)
}

// account decides what an item owes of the instants that came since they were last looked at, and that were
// not taken one by one: it was just given to this host, or the host did not get round to them.
func (d *dues) account(now time.Time, it *item) {
	r, policies := it.state.Record, d.policies()
	misfire := tree.Fire{Source: string(abi.SourceMisfire)}
	catchUp := tree.Fire{Source: string(abi.SourceCatchUp)}
	put := func(f tree.Fire, at int64) {
		f.Instant = at
		d.owe(it, f)
	}
	known := misfire
	if !policies.Each(misfire) {
		known = catchUp
	}
	begun := max(it.answered().UnixMilli(), it.accounted)
	notBefore := it.switched.notBefore.UnixMilli() // what came before is not owed
	if it.accounted == 0 {                         // else the record's are known, and may be answered
		if back := r.HandedBack(); back > begun {
			put(known, back)
			begun = back
		}
		for _, at := range r.OwedInstants() {
			put(known, at)
		}
		begun = max(begun, r.OwedTo)
		d.dropWaiting(it, it.WaitingBefore(it.switched.notBefore), event.SkipDisabled, reason.New(reason.WasDisabled))
	}
	if first := d.calendar.First(now, latest(time.UnixMilli(begun), it.switched.reported)); !first.IsZero() && first.UnixMilli() < notBefore {
		d.reports.skipUpTo(it, tree.Fire{Instant: first.UnixMilli(), Source: catchUp.Source}, time.UnixMilli(notBefore-1), event.SkipDisabled, reason.New(reason.WasDisabled))
	}
	begun = max(begun, notBefore-1)

	limits := due.Limits{Busy: time.UnixMilli(r.Ended), Waiting: it.Len()}
	if r.Open() || it.run != nil {
		limits.Busy = now
	}
	switch policies.Overlap {
	case jobconfig.OverlapQueueAll:
		limits.QueueMax, limits.Shared = policies.QueueMax, policies.shared
	case jobconfig.OverlapSkip:
	default:
		limits.QueueMax, limits.Newest = limits.Waiting+1, true
	}
	if policies.CatchUp == jobconfig.CatchUpAll {
		limits.CatchUpMax, _ = d.mayOwe(d.guest.CatchUpMax)
	}
	next, since := d.calendar.Next, time.Time{}
	if policies.Each(misfire) {
		since = d.waitsSince(now, r, begun)
	}
	if !since.IsZero() {
		d.calendar.Next = since
	}
	queued, missed, skips, through := d.calendar.Each(now, time.UnixMilli(begun), limits)
	for _, at := range queued {
		put(known, at.UnixMilli())
		d.reports.waits(it, known, at)
	}
	for _, at := range missed {
		put(catchUp, at.UnixMilli())
	}
	if limits.CatchUpMax == 0 {
		at, skip := d.calendar.CatchUp(now, through, time.Time{}, policies.CatchUp == jobconfig.CatchUpLatest)
		if skip != nil {
			skips = append(skips, skip)
		}
		if !at.IsZero() {
			put(catchUp, at.UnixMilli())
		}
	}
	if d.calendar.Next = next; !since.IsZero() {
		limits.Busy, limits.Waiting, limits.CatchUpMax = now, it.Len(), 0
		waiting, _, full, _ := d.calendar.Each(now, since.Add(-time.Millisecond), limits)
		for _, at := range waiting {
			put(misfire, at.UnixMilli())
			d.reports.waits(it, misfire, at)
		}
		skips = append(skips, full...)
	}
	for _, s := range skips {
		d.reports.skipUpTo(it, tree.Fire{Instant: s.First.UnixMilli(), Source: string(abi.SourceCatchUp)}, s.Through, skipCauses[s.Cause], s.Reason)
	}
	it.accounted = max(begun, it.accounted)
	if at := d.calendar.Newest(now, time.UnixMilli(begun)); !at.IsZero() {
		it.accounted = at.UnixMilli()
	}
	d.job.worked()
}

// dropAnswered drops an idle item from an instant for which it was dropped before, by another host or by this one before
// its clock was set back; it reports whether it does. The record says until when the item ran, and up to
// which instant all were taken.
func (d *dues) dropAnswered(it *item, id tree.Fire) bool {
	r := it.state.Record
	if it.run != nil || r.Open() || r.Accepts(id) != nil {
		return false
	}
	switch policies := d.policies(); {
	case policies.Overlap == jobconfig.OverlapSkip && time.UnixMilli(r.Ended).After(id.Time().Add(d.calendar.Delay(id.Time()))): // which came that much later
		d.reports.skip(it, id, event.SkipOverlap, policies.dropsOverlap(reason.New(reason.RanWhenItCame)))
	case policies.Queues() && r.OwedTo >= id.Instant && !it.Has(id):
		d.reports.skip(it, id, event.SkipElsewhere, reason.New(reason.TakenBefore))
	default:
		return false
	}
	return true
}

// waitsSince is from when on instants of an item with a record waited, and were not missed; begun is the instant up to
// which all is accounted for. An item has been its host's since, if that lives: this one has not come to them, or the
// items were being sharded. Of an item that never began the newest instant waits. It is zero if none waits.
func (d *dues) waitsSince(now time.Time, r tree.Record, begun int64) time.Time {
	switch newest := d.calendar.Newest(now, time.UnixMilli(begun)); {
	case slices.Contains(d.job.member.View.Instances, r.Owner):
		return time.UnixMilli(begun + 1)
	case r.Owner == "" && now.Add(-d.calendar.Ahead).Sub(newest) <= d.calendar.Window:
		return newest
	}
	return time.Time{}
}

// accountAll decides what the items of this host owe of instants that were not taken one by one. It reports
// false if the instants of the job stand for each other.
func (d *dues) accountAll(now time.Time) bool {
	if !d.policies().Queues() {
		return false
	}
	for _, it := range d.items.sorted(func(it *item) bool { return it.owned && it.state.Record.Instant != 0 && !d.job.beyond(it) }) {
		d.account(now, it)
	}
	return true
}
