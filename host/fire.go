package host

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/ceiling"
	"github.com/wasmjob/wasmjob/host/due"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/run"
)

// tick handles the clock: the instants up to now are due. Several at once are
// coalesced into the newest one.
func (j *job) tick(now moment) {
	if !j.calendar.Due(now.wall) || now.Before(j.refusal.retryAt) {
		return
	}
	begun, held := j.begunUntil()
	at, skip := j.calendar.Take(now.wall, begun, held)
	j.reportSkip(skip)
	if j.member.View.JavaLed() && !j.member.View.Halted() && !slices.ContainsFunc(slices.Collect(maps.Values(j.items)), func(it *item) bool { return it.owned }) {
		// A Java leader may have divided between two snapshots, and a begin
		// that would find out does not come.
		j.member.Share = coordination.Share{}
		j.calendar.Parked = at
		j.readShare(now)
		return
	}
	if !j.knowsShare() {
		j.park(at) // resumed when the share has been read
		return
	}
	j.fire(now, at)
}

// skipCauses are the causes of events by those of the calendar.
var skipCauses = map[due.Cause]event.SkipCause{due.Later: event.SkipLater, due.Disabled: event.SkipDisabled, due.Missed: event.SkipMissed}

// reportSkip reports scheduled instants for which no fire comes; nil is none.
func (j *job) reportSkip(s *due.Skip) {
	if s != nil {
		j.skipFires(coordination.Fire{Instant: s.First.UnixMilli(), Source: string(abi.SourceSchedule)}, s.Through, skipCauses[s.Cause], s.Reason)
	}
}

// begunUntil is the earliest instant that an item of this host was begun for last,
// or after which it was first divided: of what came due up to it, this host owes
// nothing. What came due before it was given an item, it makes up for when it is;
// held is whether it has one.
func (j *job) begunUntil() (earliest time.Time, held bool) {
	for _, it := range j.items {
		if !it.owned {
			continue
		}
		if begun := time.UnixMilli(it.state.Record.Instant); !held || begun.Before(earliest) {
			earliest, held = begun, true
		}
	}
	return earliest, held
}

// park keeps an instant until the items have been divided.
func (j *job) park(at time.Time) {
	begun, held := j.begunUntil()
	j.reportSkip(j.calendar.Park(at, begun, held))
}

// fire begins the items of a scheduled instant that are idle and notes a
// misfire for those that still run.
func (j *job) fire(now moment, at time.Time) {
	id := coordination.Fire{Instant: at.UnixMilli(), Source: string(abi.SourceSchedule)}
	switch {
	case !j.member.View.Enabled:
		j.skipFire(id, event.SkipDisabled, "this server is disabled for the job")
		return
	case j.javaRefuses() != "":
		j.skipFire(id, event.SkipRefused, j.javaRefuses())
		return
	case j.leaderRefuses() != "":
		j.skipFire(id, event.SkipRefused, j.leaderRefuses())
		return
	case j.member.View.Halted():
		j.park(at)
		return
	case j.module.exec == nil:
		j.skipFire(id, event.SkipRefused, fmt.Sprintf("no module: %v", j.module.err))
		return
	}
	var idle []*item
	var busy, absent coordination.Items
	for _, it := range j.sorted(func(it *item) bool { return it.owned }) {
		switch {
		case j.beyond(it):
			it.passed, j.passed = true, true
		case it.run == nil:
			j.supersede(it, id)
			it.due = nil
			idle = append(idle, it)
		case it.state.Record.Accepts(id) == nil:
			j.misfire(it, id)
			absent = append(absent, it.number)
			if j.member.View.Config.Misfire && !it.state.Misfire && !j.overload.savesMarks(j.member.View.Mixed()) {
				it.state.Misfire = true
				busy = append(busy, it.number)
			}
		case aheadOf(it.state.Record, id): // what runs was begun by a clock that is ahead
			j.skipItem(it, id, event.SkipElsewhere, string(coordination.RefusedPast))
		}
	}
	if len(busy) > 0 {
		if err := coordination.MarkMisfire(j.work, j.member.Registry, j.member.Layout, busy); err != nil {
			j.log.Warn("marking misfires", zap.Error(err))
		}
	}
	j.begin(now, id, idle, absent, false)
}

// beyond reports whether an item is left over from a larger total count.
func (j *job) beyond(it *item) bool {
	total := j.member.View.Config.ShardingTotalCount
	return total > 0 && it.number >= total
}

// fewer says why an item that is beyond the total count does not run.
func (j *job) fewer() string {
	return fmt.Sprintf("the sharding total count is %d now", j.member.View.Config.ShardingTotalCount)
}

// owe notes that an item has a fire to make up for. Of several, the newest
// stands for all.
func (j *job) owe(it *item, id coordination.Fire) {
	j.supersede(it, id)
	it.due = &id
}

// answered notes that a fire is no longer due: it has begun, or a reason why not
// is told. Another that the item owes stays due: a trigger that is refused stands
// for no instant.
func (it *item) answered(id coordination.Fire) {
	if it.due != nil && it.due.ID() == id.ID() {
		it.due = nil
	}
}

// supersede reports a due fire that is coalesced into a newer one. A
// misfire has been reported already.
func (j *job) supersede(it *item, id coordination.Fire) {
	if it.due != nil && it.due.ID() != id.ID() && it.due.Source != string(abi.SourceMisfire) {
		e := j.skipped(it.number, *it.due, event.SkipLater, "a newer fire is due, "+id.ID()+": it stands for this one")
		e.Owed = id.Trigger == 0
		j.Emit(e)
	}
}

// misfire notes that an item could not begin because it still runs.
func (j *job) misfire(it *item, id coordination.Fire) {
	cause, reason, runs := event.SkipBusy, "the item is marked as running elsewhere", false
	if it.run != nil {
		reason, runs = it.run.Busy(time.Now())
	}
	if j.member.View.Config.Misfire {
		cause, reason = event.SkipLater, reason+"; it runs again right after"
		id.Source = string(abi.SourceMisfire)
		j.owe(it, id)
	} else {
		reason += "; misfire is off"
	}
	e := j.skipped(it.number, id, cause, reason)
	e.Runs = runs
	j.Emit(e)
}

// makeUp finds what was due for items that this host has just been given,
// while they had no owner.
func (j *job) makeUp(now time.Time, gained []int) {
	if j.calendar.Schedule == nil || !j.member.View.Enabled || j.javaRefuses() != "" || j.leaderRefuses() != "" {
		return
	}
	slices.Sort(gained)
	type owed struct {
		at   time.Time
		skip *due.Skip
	}
	found := make(map[[2]int64]owed) // items mostly were begun last at the same instant
	for _, n := range gained {
		it := j.items[n]
		if it == nil || it.due != nil || it.state.Record.Instant == 0 {
			continue
		}
		if it.passed = j.beyond(it); it.passed {
			j.passed = true
			continue
		}
		begun, back := it.state.Record.Instant, it.state.Record.HandedBack()
		o, known := found[[2]int64{begun, back}]
		if !known {
			var handedBack time.Time
			if back != 0 {
				handedBack = time.UnixMilli(back)
			}
			o.at, o.skip = j.calendar.CatchUp(now, time.UnixMilli(begun), handedBack, j.member.View.Config.Misfire)
			found[[2]int64{begun, back}] = o
		}
		if o.skip != nil {
			id := coordination.Fire{Instant: o.skip.First.UnixMilli(), Source: string(abi.SourceCatchUp)}
			j.skipItems(it, id, o.skip.Through, skipCauses[o.skip.Cause], o.skip.Reason)
		}
		if !o.at.IsZero() {
			it.due = &coordination.Fire{Instant: o.at.UnixMilli(), Source: string(abi.SourceCatchUp)}
		}
	}
}

// makeUpPassed finds what was due for items that are not beyond the total count
// any more: this host was given them before it heard that there are more.
func (j *job) makeUpPassed(now time.Time) {
	if !j.passed || !j.knowsShare() {
		return
	}
	j.passed = false
	var passed []int
	for n, it := range j.items {
		switch {
		case it.passed && j.beyond(it):
			j.passed = true
		case it.passed:
			if it.passed = false; it.owned && it.run == nil {
				passed = append(passed, n)
			}
		}
	}
	if len(passed) > 0 {
		j.makeUp(now, passed)
	}
}

// followUp begins what is owed: items that missed an instant, and a trigger.
func (j *job) followUp(now moment) {
	if now.Before(j.refusal.retryAt) || !j.knowsShare() || j.module.exec == nil {
		return
	}
	if !j.member.View.Enabled {
		// A trigger is consumed, as by ElasticJob: none of its items runs, now
		// or when the server is enabled again. As long as it has items they
		// are about to move, and owe the round that is not consumed here.
		// That takes a leader, and there is none if all servers are disabled.
		if slices.Contains(j.member.View.Division.Members, j.member.Self.ID) && !j.member.View.JavaLed() && j.member.View.Trigger != 0 {
			if j.trigger.waits != j.member.View.Trigger {
				j.trigger.waits, j.trigger.until = j.member.View.Trigger, now.Add(dividedSoon)
			}
			if now.Before(j.trigger.until) {
				j.againAt = j.trigger.until
				return
			}
		}
		if id, ok := j.triggered(now); ok && j.consume(now, id, nil) {
			j.skipFire(id, event.SkipDisabled, "this server is disabled for the job")
		}
		return
	}
	byFire := make(map[coordination.Fire][]*item)
	for _, it := range j.sorted(func(it *item) bool { return it.owned && it.run == nil && it.due != nil && !it.held }) {
		if !j.moves(now, it) {
			byFire[*it.due] = append(byFire[*it.due], it)
		}
	}
	for id, items := range byFire {
		if now.Before(j.refusal.retryAt) || !j.knowsShare() {
			return
		}
		j.begin(now, id, items, nil, false)
	}
	// A trigger waits until it is certain whose items are whose.
	if !j.member.View.Necessary && !j.member.View.Processing && j.knowsShare() {
		j.beginRound(now)
	}
}

// moves reports whether an item that stayed here only because it ran is on its
// way to another host, which will find what is due. If that may be too late
// for the catch-up window, or the item goes nowhere, it is begun here.
func (j *job) moves(now moment, it *item) bool {
	return j.member.Share.Pending.Contains(it.number) && j.member.View.Config.Misfire && it.due.Trigger == 0 &&
		now.wall.Sub(it.due.Time()) < j.guest.CatchUpWindow/2
}

// begin commits the begin of items and starts the guests of those that could.
// It reports whether a trigger was consumed. absent are other items of this
// host that are due and do not begin.
func (j *job) begin(now moment, id coordination.Fire, items []*item, absent coordination.Items, trigger bool) bool {
	items = j.dropDisabled(id, j.fit(id, items))
	if len(items) == 0 && !trigger {
		return false
	}
	reason := j.leaderRefuses()
	if reason == "" {
		reason = j.clockDrift()
	}
	if reason != "" {
		for _, it := range items {
			it.answered(id)
			j.skipItem(it, id, event.SkipRefused, reason)
		}
		return false
	}
	states := make(map[int]coordination.ItemState, len(items))
	for _, it := range items {
		states[it.number] = it.state
	}
	latest, ahead := j.host.instants()
	out, err := j.member.Begin(j.work, coordination.Beginning{Fire: id, Items: states, ConsumeTrigger: trigger, Now: now.wall, Latest: latest, Ahead: ahead})
	if err == nil && len(out.Adopted) > 0 {
		j.takeOver(now, "", out.Adopted)
	}
	if err != nil || (out.Items == nil && out.Stale) {
		for _, it := range items { // nothing began; the instant stays due, and a trigger is kept
			if !trigger {
				j.owe(it, id)
			}
		}
		if err != nil {
			j.failed(now, "beginning the items of "+id.ID(), err)
			return false
		}
		j.foundStale(now)
		return false
	}
	for _, it := range items {
		why, refused := out.Refused[it.number]
		if !refused {
			continue
		}
		j.refused(now, it, id, why, out, trigger)
		if why == coordination.RefusedRunning || why == coordination.RefusedFailover {
			absent = append(absent, it.number)
		}
	}
	for n, state := range out.Items {
		j.lost(n, states[n].Record)
		j.repaired(n, id, states[n].Record, state.Record)
	}
	if len(out.Items) > 0 {
		j.start(now, id, out.Items, states, absent)
	}
	if out.Stale {
		j.foundStale(now)
	}
	return trigger
}

// refused takes note that an item did not begin, and reports why.
func (j *job) refused(now moment, it *item, id coordination.Fire, why coordination.Refusal, out coordination.Begun, trigger bool) {
	switch why {
	case coordination.RefusedDisabled:
		it.answered(id)
		it.state.Disabled = true
		j.skipItem(it, id, event.SkipDisabled, string(why))
	case coordination.RefusedHeld:
		it.answered(id)
		record := out.Held[it.number]
		if slices.Contains(out.Holds, it.number) {
			j.heldBack(it.number, fireOf(it.state.Record), record)
		}
		it.state.Record = record
		j.skipItem(it, id, event.SkipHeld, record.HeldBack(j.name, it.number))
	case coordination.RefusedPast:
		it.answered(id)
		if !trigger {
			j.skipItem(it, id, event.SkipElsewhere, string(why))
		}
	case coordination.RefusedRunning, coordination.RefusedFailover:
		if !j.member.View.Config.Misfire {
			it.answered(id)
		}
		j.misfire(it, id)
		it.held = true
		j.sweepAt = soonest(j.sweepAt, now.Add(lookAgain))
	case coordination.RefusedStale:
		j.owe(it, id)
	case coordination.RefusedAhead: // it is due when the registry's clock has come to it
		j.owe(it, id)
		latest, _ := j.host.instants()
		j.againAt = now.Add(min(id.Time().Sub(time.UnixMilli(latest)), longestSleep))
	}
}

// lost reports a run that was open when this host began the item again, and
// that is in no list of runs any more: its host died, failover is off, and
// that is not recorded yet. Of what is in a list, the host that takes it off
// reports it.
func (j *job) lost(n int, r coordination.Record) {
	if !r.Open() || r.Owner == j.member.Self.ID || slices.Contains(j.member.View.Members, r.Owner) {
		return
	}
	id := fireOf(r)
	j.skipRun(n, id, coordination.OutcomeLost, event.SkipLost, "its host "+r.Owner+" died while it ran, and failover is off")
}

// repaired reports that an item was begun though its record named a later instant:
// one that was ahead of all clocks.
func (j *job) repaired(n int, id coordination.Fire, before, after coordination.Record) {
	by := time.UnixMilli(before.Instant).Sub(time.UnixMilli(after.Instant))
	if by <= 0 {
		return
	}
	reason := fmt.Sprintf("the item's record named %s, which is ahead of the registry's clock and of this host's: a clock was wrong, or the record was edited; the item runs by the clocks again",
		time.UnixMilli(before.Instant).UTC().Format(time.RFC3339))
	j.log.Error("item repaired", zap.Int("item", n), zap.String("reason", reason))
	j.Emit(event.Event{Kind: event.ItemRepaired, Item: &n, Instant: id.Time(), Source: abi.Source(id.Source), RunID: coordination.RunID(j.name, id, n),
		Drift: by, Reason: reason})
}

// fireOf is the fire that a record's newest run was of. A takeover leaves open
// whether it was of a trigger.
func fireOf(r coordination.Record) coordination.Fire {
	id := coordination.Fire{Instant: r.Instant, Source: r.Source}
	if r.Source == string(abi.SourceTrigger) {
		id.Trigger = r.Trigger
	}
	return id
}

// heldBack reports a run whose host was one too many to die with it: nothing of
// the item begins until an operator releases it.
func (j *job) heldBack(n int, id coordination.Fire, r coordination.Record) {
	reason := r.HeldBack(j.name, n)
	j.log.Error("item held back", zap.Int("item", n), zap.String("reason", reason))
	j.Emit(event.Event{Kind: event.ItemHeld, Item: &n, Instant: id.Time(), Trigger: id.Trigger, Source: abi.Source(id.Source),
		RunID: coordination.RunID(j.name, id, n), Outcome: coordination.OutcomeHeld, Cause: event.SkipHeld, Reason: reason})
	if it := j.items[n]; it != nil && it.run == nil {
		it.state.Record, it.state.RecordVersion = r, -2 // the next begin reads it
	}
}

// reread takes over an item's state as the registry has it, and reports a release.
func (j *job) reread(it *item, state coordination.ItemState) {
	if it.state.Record.Held != 0 && state.Record.Held == 0 && state.Record.Outcome == coordination.OutcomeHeld {
		j.log.Info("item released", zap.Int("item", it.number))
		j.Emit(event.Event{Kind: event.ItemReleased, Item: &it.number, Reason: "an operator released it"})
	}
	it.state = state
}

// fit takes out items that cannot begin any more: they run, since a begin before this
// one was found to have taken effect, or the total count was lowered.
func (j *job) fit(id coordination.Fire, items []*item) []*item {
	return slices.DeleteFunc(items, func(it *item) bool {
		if it.run != nil {
			return true
		}
		if !j.beyond(it) {
			return false
		}
		it.answered(id)
		j.skipItem(it, id, event.SkipDisabled, j.fewer())
		return true
	})
}

func soonest(a, b time.Time) time.Time {
	if !a.IsZero() && a.Before(b) {
		return a
	}
	return b
}

// dropDisabled takes out items that were found disabled before and still are. It
// reads those too whose records were found ahead of the instant, by a clock that
// was wrong, and an operator may have deleted them since; and those that are held
// back, which an operator may have released.
func (j *job) dropDisabled(id coordination.Fire, items []*item) []*item {
	var doubt coordination.Items
	for _, it := range items {
		if it.state.Disabled || aheadOf(it.state.Record, id) || it.state.Record.Held != 0 {
			doubt = append(doubt, it.number)
		}
	}
	if len(doubt) == 0 {
		return items
	}
	states, err := coordination.ReadItems(j.work, j.member.Registry, j.member.Layout, doubt)
	if err != nil {
		return items // the begin finds out
	}
	var rest []*item
	for _, it := range items {
		if s, asked := states[it.number]; asked {
			if it.state.Disabled = s.Disabled; aheadOf(it.state.Record, id) || it.state.Record.Held != 0 {
				j.reread(it, s)
			}
			if s.Disabled {
				it.answered(id)
				j.skipItem(it, id, event.SkipDisabled, string(coordination.RefusedDisabled))
				continue
			}
		}
		rest = append(rest, it)
	}
	return rest
}

// aheadOf reports whether a record names an instant after that of a scheduled fire.
func aheadOf(r coordination.Record, id coordination.Fire) bool {
	return id.Trigger == 0 && r.Instant > id.Instant
}

// clockDrift compares this host's clock with the registry's, if the job wants
// that. Empty means that it may run.
func (j *job) clockDrift() string {
	limit := j.member.View.Config.MaxTimeDiffSeconds
	if limit < 0 {
		return ""
	}
	if _, err := coordination.RegistryTime(j.work, j.member.Registry, j.member.Layout); err != nil { // the answer to every commit is noted
		return fmt.Sprintf("the registry's clock cannot be read, and maxTimeDiffSeconds is %d: %v", limit, err)
	}
	if d, known := j.host.registry.drift(j.host.machine()); known && d.certain().Abs() > time.Duration(limit)*time.Second {
		return fmt.Sprintf("this host's clock is %s from the registry's; maxTimeDiffSeconds is %d", d.middle().Abs().Round(time.Millisecond), limit)
	}
	return ""
}

// takeOver starts items that a crashed host had begun.
func (j *job) takeOver(now moment, dead string, claims []coordination.Claim) {
	byFire := make(map[coordination.Fire]map[int]coordination.ItemState)
	for _, c := range claims {
		if byFire[c.Fire] == nil {
			byFire[c.Fire] = make(map[int]coordination.ItemState)
		}
		byFire[c.Fire][c.Item] = c.State
	}
	for id, states := range byFire {
		for n := range states {
			if j.items[n] == nil {
				j.items[n] = &item{number: n}
			}
		}
		id.Source = string(abi.SourceFailover)
		if dead == "" {
			j.log.Warn("running what a commit of unknown outcome had begun", zap.String("fire", id.ID()), zap.Int("items", len(states)))
		} else {
			j.log.Warn("taking over from a host that died", zap.String("host", dead), zap.String("fire", id.ID()), zap.Int("items", len(states)))
		}
		j.start(now, id, states, nil, nil)
	}
}

// concurrency is how many items of this job may run at once on this host.
// ElasticJob's default is two per processor.
func (j *job) concurrency() int {
	n := j.guest.MaxConcurrency
	if n <= 0 {
		n = 2 * runtime.GOMAXPROCS(0)
	}
	return min(n, j.most(j.guest))
}

// most is how many items of this job may run at once on this host, in all its
// fires.
func (j *job) most(g jobconfig.Guest) int {
	n := int(j.host.cfg.Ceilings.Of(j.name, ceiling.MaxConcurrency).Cap(int64(g.MaxConcurrency)))
	if n <= 0 {
		return j.known.Slots
	}
	return min(n, j.known.Slots)
}

// start hands begun items to guests. before has what was known of them when
// they were begun; nil if they were taken over.
func (j *job) start(now moment, id coordination.Fire, states, before map[int]coordination.ItemState, absent coordination.Items) {
	begun := run.Begun{Self: j.member.Self, ID: id, Config: j.member.View.Config, Guest: j.guest, Exec: j.module.exec, States: states, Before: before, Absent: absent,
		At: now.Time, Next: j.calendar.Next, Workers: min(len(states), j.concurrency()), Places: j.most(j.guest)}
	begun.Exec.Retain()
	begun.Announces = len(begun.Config.JobListenerTypes) > 0 && j.member.View.Mixed()
	if id.Trigger == 0 && j.calendar.Schedule != nil {
		begun.Next = j.calendar.After(id.Time())
	}
	if j.lastFire != nil {
		begun.Previous = j.lastFire.Instant
	}
	f := run.New(j.known, begun)
	for _, e := range f.Runs {
		it := j.items[e.Item]
		it.answered(id) // what else is due comes when this has ended
		it.state, it.run = states[e.Item], e
		j.live++
	}
	j.fires[f] = true
	j.Emit(event.Event{Kind: event.FireStarted, Instant: id.Time(), Trigger: id.Trigger, Source: f.Source(), Items: f.Items(),
		Total: j.total(), Next: nextAfter(&j.calendar, id), Digest: f.Exec.Digest(), Lag: lag(now.wall, id)})
	guests := j.guests
	j.wg.Go(func() { f.Run(guests) })
}

// lag is how late a scheduled fire began.
func lag(now time.Time, id coordination.Fire) time.Duration {
	if id.Trigger != 0 || id.Source != string(abi.SourceSchedule) {
		return 0
	}
	return max(now.Sub(id.Time()), 0)
}

// closeFire ends a fire whose goroutines have ended and whose completions are
// all settled, or will never be.
func (j *job) closeFire(f *run.Fire) {
	delete(j.fires, f)
	f.Exec.Release()
	j.measure(f)
	outcome := abi.OutcomeOK
	switch {
	case f.Failures > 0:
		outcome = abi.OutcomeFail
	case f.Cut > 0 || f.Open > 0:
		outcome = abi.OutcomeCancelled
	}
	items := f.Items()
	duration := time.Since(f.At)
	status := &FireStatus{Instant: f.ID.Time(), Source: f.Source(), Items: items, Outcome: outcome, Duration: duration}
	j.lastFire = status
	j.Emit(event.Event{Kind: event.FireEnded, Instant: status.Instant, Trigger: f.ID.Trigger, Source: f.Source(), Items: items,
		Digest: f.Exec.Digest(), Outcome: outcome, Duration: duration})
}

// total is how many items the job has for certain: those that the last division
// made and the configuration still wants.
func (j *job) total() int {
	return min(j.member.View.Config.ShardingTotalCount, j.member.View.Division.Total)
}

// nextAfter is the scheduled instant after a scheduled fire's.
func nextAfter(c *due.Calendar, id coordination.Fire) time.Time {
	if id.Source != string(abi.SourceSchedule) {
		return time.Time{}
	}
	return c.After(id.Time())
}

func sortedInts(s []int) []int { slices.Sort(s); return s }

func sortedStrings(s []string) []string { return slices.Sorted(slices.Values(s)) }
