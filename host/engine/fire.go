package engine

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine/run"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/schedule/due"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// runner begins the items of a job, and completes what has ended.
type runner struct {
	itemSet
	limits   limits
	rates    rates
	trigger  waiting
	killing  killing
	chain    chain
	offsets  offsets
	sweeping sweeping
	quietAt  time.Time // when the next item may begin that waits for Java hosts; see awaitQuiet
}

// tick handles the clock: the instants up to now are due. Several at once are
// coalesced into the newest one, unless each runs for itself.
func (rn *runner) tick(now moment) {
	for _, skip := range rn.calendar.TakeExcluded(now.wall) {
		if _, held := rn.items.begunUntil(); held {
			rn.reportSkip(skip)
		}
	}
	if !rn.calendar.Due(now.wall) || rn.rests(now) {
		return
	}
	if wait := rn.host.untilCame(now, rn.calendar.Next); wait > 0 && !rn.member.View.Enabled { // it may be enabled before that, by the registry's clock
		rn.again(now, now.Add(wait))
		return
	}
	begun, held := rn.items.begunUntil()
	at, skip := rn.calendar.Take(now.wall, begun, held)
	if !rn.dues.policies().Queues() {
		rn.reportSkip(skip)
		skip = nil
	}
	if rn.member.View.JavaLed() && !rn.member.View.Halted() && !slices.ContainsFunc(slices.Collect(maps.Values(rn.items)), func(it *item) bool { return it.owned }) {
		// A Java leader may have divided between two snapshots, and a begin
		// that would find out does not come.
		rn.member.Share = coordination.Share{}
		rn.calendar.Parked = at
		rn.readShare(now)
		return
	}
	if !rn.knowsShare() {
		rn.park(at) // resumed when the share has been read
		return
	}
	rn.fire(now, at, skip, skip != nil)
}

// skipCauses are the causes of events by those of the calendar.
var skipCauses = map[due.Cause]event.SkipCause{due.Later: event.SkipSuperseded, due.Disabled: event.SkipDisabled, due.Missed: event.SkipNoOwner,
	due.TooOld: event.SkipTooOld, due.Busy: event.SkipOverlap, due.Full: event.SkipQueueFull, due.Excluded: event.SkipExcluded}

// refuses says why no scheduled instant begins here; zero if one may.
func (rn *runner) refuses() (cause event.SkipCause, why reason.Reason) {
	if why := rn.pausedBy(); !why.IsZero() {
		return event.SkipPaused, why
	}
	if !rn.member.View.Enabled {
		return event.SkipDisabled, reason.New(reason.ServerDisabled)
	}
	if why = cmp.Or(rn.javaRefuses(), rn.leaderRefuses()); !why.IsZero() {
		return event.SkipRefused, why
	}
	if rn.module.exec == nil && !rn.member.View.Halted() {
		return event.SkipNoModule, reason.New(reason.NoModule, rn.module.err)
	}
	return "", reason.Reason{}
}

// fire begins the items of a scheduled instant that are idle and notes a
// misfire for those that still run. behind is set if instants before it may not have been taken one by one;
// skip are those, if it is known which and they were not reported.
func (rn *runner) fire(now moment, at time.Time, skip *due.Skip, behind bool) {
	id := tree.Fire{Instant: at.UnixMilli(), Source: string(abi.SourceSchedule)}
	if !rn.member.View.Enabled && rn.pause.endsBy(at) {
		rn.park(at) // it runs, as soon as the server is enabled
		return
	}
	if cause, why := rn.refuses(); !why.IsZero() {
		rn.reportSkip(skip)
		rn.skipFire(id, cause, why)
		return
	}
	if rn.member.View.Halted() || rn.unsharded() {
		rn.park(at)
		return
	}
	rn.skipUnread(id)
	if behind && rn.dues.accountAll(now.wall) {
		return // followUp begins them
	}
	var idle []*item
	var busy, absent tree.Items
	queues := rn.dues.policies().Queues()
	for _, it := range rn.items.sorted(func(it *item) bool { return it.owned }) {
		if rn.beyond(it) {
			it.passed, rn.dues.passed = true, true
			continue
		}
		if queues {
			it.accounted = max(it.accounted, id.Instant)
		}
		switch {
		case rn.dues.dropAnswered(it, id):
		case it.run == nil && rn.dues.arrive(it, id):
			idle = append(idle, it)
		case it.run == nil:
			absent = append(absent, it.number)
		case it.state.Record.Accepts(id) == nil:
			rn.misfire(it, id)
			rn.stopFor(now, it, id)
			absent = append(absent, it.number)
			if rn.member.View.Config.Misfire && !it.state.Misfire && !rn.ends.overload.savesMarks(rn.member.View.Mixed()) {
				it.state.Misfire = true
				busy = append(busy, it.number)
			}
		case aheadOf(it.state.Record, id): // what runs was begun by a clock that is ahead
			rn.reports.skip(it, id, event.SkipElsewhere, coordination.RefusedPast.Reason())
		}
	}
	if len(busy) > 0 {
		if err := coordination.MarkMisfire(rn.work, rn.member.Registry, rn.member.Layout, busy); err != nil {
			rn.log.Warn("marking misfires", zap.Error(err))
		}
	}
	rn.begin(now, id, idle, absent, false)
}

// followUp begins what is owed: items that missed an instant, and a trigger.
func (rn *runner) followUp(now moment) {
	if rn.rests(now) || !rn.knowsShare() || rn.module.exec == nil {
		return
	}
	if !rn.member.View.Enabled {
		rn.trigger.consumeDisabled(now)
		return
	}
	tried := make(map[int]string) // what of an item was to begin last
	for byFire := rn.owedNow(now, tried); len(byFire) > 0; byFire = rn.owedNow(now, tried) {
		for id, items := range byFire {
			if rn.rests(now) || !rn.knowsShare() {
				return
			}
			rn.begin(now, id, items, nil, false)
			if rn.mail.called() {
				return // in the next pass, which is at once
			}
		}
	}
	// A trigger waits until it is certain whose items are whose, also while the job waits for its turn to be sharded.
	if v := rn.member.View; !v.Necessary && !v.Processing && rn.knowsShare() && !rn.unsharded() {
		rn.trigger.beginRound(now)
	}
}

// owedNow are the fires that idle items owe and that may begin now, but for those that were tried.
func (rn *runner) owedNow(now moment, tried map[int]string) map[tree.Fire][]*item {
	byFire := make(map[tree.Fire][]*item)
	permitted, paced := rn.limits.mayBegin(), rn.rates.mayBegin(now)
	for _, it := range rn.items.sorted(func(it *item) bool {
		return it.owned && it.run == nil && it.Next() != nil && !it.held && permitted(it) && paced(it) && !rn.denials.waits(now, it.number)
	}) {
		if id := it.Next(); tried[it.number] != id.ID() && !rn.dues.moves(now, it) {
			tried[it.number] = id.ID()
			byFire[*id] = append(byFire[*id], it)
		}
	}
	return byFire
}

// begin commits the begin of items and starts the guests of those that could.
// It reports whether a trigger was consumed. absent are other items of this
// host that are due and do not begin.
func (rn *runner) begin(now moment, id tree.Fire, items []*item, absent tree.Items, trigger bool) bool {
	defer rn.hurry()()
	items = rn.dropDisabled(id, rn.dropDenied(now, id, rn.dues.dropLate(now, id, rn.dropDone(id, rn.fit(id, items)))))
	items, waiting := rn.awaitQuiet(now, id, items, trigger)
	absent = slices.Concat(absent, waiting)
	if len(items) == 0 && !trigger {
		return false
	}
	cause, why := event.SkipRefused, rn.leaderRefuses()
	if why.IsZero() && id.Trigger == 0 {
		why = rn.javaRefuses()
	}
	if why.IsZero() {
		cause, why = event.SkipClock, rn.clock.drift()
	}
	if !why.IsZero() {
		for _, it := range items {
			it.Answered(id)
			rn.reports.skip(it, id, cause, why)
		}
		return false
	}
	items, postponed := rn.dues.postpone(now, id, items)
	items, waiting = rn.limits.admit(now, id, items)
	waiting = slices.Concat(postponed, waiting)
	items, turns, paced := rn.rates.pace(now, id, items)
	waiting = slices.Concat(waiting, paced)
	absent = slices.Concat(absent, waiting)
	if trigger && (len(waiting) > 0 || len(turns) > 0) { // it is kept until they have begun, so that they run elsewhere if this host dies
		rn.trigger.merged(id)
		rn.trigger.began, trigger = id.Trigger, false
	}
	if len(items) == 0 && !trigger {
		return false
	}
	states := make(map[int]coordination.ItemState, len(items))
	for _, it := range items {
		state := it.state
		state.Record = rn.dues.owing(it, id, state.Record)
		states[it.number] = state
		rn.worked()
	}
	latest, ahead := rn.host.instants()
	keep := trigger && rn.trigger.began != id.Trigger && rn.dues.policies().Overlap != jobconfig.OverlapSkip
	out, err := rn.member.Begin(rn.work, coordination.Beginning{Fire: id, Items: states, ConsumeTrigger: trigger, KeepTrigger: keep, Now: now.wall, Latest: latest, Ahead: ahead, Permits: rn.limits.permits(items), Turns: turns, Count: rn.guest.MaxRuns > 0})
	rn.denials.note(now, "", out.Denied, rn.log)
	if err == nil && len(out.Adopted) > 0 {
		rn.takeOver(now, "", reason.Reason{}, out.Adopted)
	}
	if err != nil || (out.Items == nil && out.Stale) {
		for _, it := range items { // nothing began; the instant stays due, and a trigger is kept
			if !trigger {
				rn.dues.owe(it, id)
			}
		}
		if err != nil {
			rn.failed(now, "beginning the items of "+id.ID(), err)
			return false
		}
		rn.foundStale(now)
		return false
	}
	if out.Kept { // until those have begun that another host runs
		rn.trigger.merged(id)
		rn.trigger.began, trigger = id.Trigger, false
	}
	for _, it := range items {
		if out.Denied[it.number] != nil {
			rn.deny(it, id)
			absent = append(absent, it.number)
			continue
		}
		why, refused := out.Refused[it.number]
		if !refused {
			continue
		}
		rn.refused(now, it, id, why, out, trigger)
		if why == coordination.RefusedRunning || why == coordination.RefusedFailover {
			absent = append(absent, it.number)
		}
	}
	for n, state := range out.Items {
		rn.items[n].quietAt = now.Time
		rn.denials.end(n)
		rn.lost(n, states[n].Record)
		rn.reports.repaired(n, id, states[n].Record, state.Record)
	}
	if len(out.Items) > 0 {
		rn.start(now, id, "", reason.Reason{}, out.Items, states, absent)
	}
	rn.trigger.look = rn.trigger.look || id.Trigger != 0
	if out.Stale {
		rn.foundStale(now)
	}
	return trigger
}

// refused takes note that an item did not begin, and reports why.
func (rn *runner) refused(now moment, it *item, id tree.Fire, why coordination.Refusal, out coordination.Begun, trigger bool) {
	switch why {
	case coordination.RefusedDisabled:
		it.state.Said = out.Disabled[it.number]
		rn.dues.itemDisabled(it, id)
	case coordination.RefusedHeld:
		it.Answered(id)
		record := out.Held[it.number]
		if slices.Contains(out.Holds, it.number) {
			rn.heldBack(it.number, it.state.Record.Fire(), it.state.Record.Owner, record)
		}
		it.state.Record = record
		rn.reports.skip(it, id, event.SkipHeld, record.HeldBack(rn.name, it.number))
	case coordination.RefusedChanged:
		it.Answered(id)
		rn.reports.skip(it, id, event.SkipDisabled, why.Reason())
	case coordination.RefusedPast:
		it.Answered(id)
		if !trigger {
			rn.reports.skip(it, id, event.SkipElsewhere, why.Reason())
		}
	case coordination.RefusedRunning, coordination.RefusedFailover:
		if !rn.member.View.Config.Misfire {
			it.Answered(id)
		}
		rn.misfire(it, id)
		it.held, it.quietAt = true, time.Time{}
		rn.sweeping.at = soonest(rn.sweeping.at, now.Add(lookAgain))
	case coordination.RefusedAgain:
		it.quietAt = time.Time{}
		rn.dues.owe(it, id)
	case coordination.RefusedStale:
		rn.dues.owe(it, id)
	case coordination.RefusedPermit:
		rn.limits.drop(it.number)
		rn.dues.owe(it, id)
		rn.againAt = now.Add(againPause)
	case coordination.RefusedRate: // the key's node is read again, at once
		rn.dues.owe(it, id)
		rn.rates.contended(it)
	case coordination.RefusedAhead: // it is due when the registry's clock has come to it
		rn.dues.owe(it, id)
		latest, _ := rn.host.instants()
		rn.againAt = now.Add(min(id.Time().Sub(time.UnixMilli(latest)), longestSleep))
	}
}

// takeOver starts items that a crashed host had begun.
func (rn *runner) takeOver(now moment, dead string, stopped reason.Reason, claims []coordination.Claim) {
	byFire := make(map[tree.Fire]map[int]coordination.ItemState)
	for _, c := range claims {
		if byFire[c.Fire] == nil {
			byFire[c.Fire] = make(map[int]coordination.ItemState)
		}
		byFire[c.Fire][c.Item] = c.State
	}
	for id, states := range byFire {
		for n := range states {
			if rn.items[n] == nil {
				rn.items[n] = &item{number: n}
			}
		}
		id.Source = string(abi.SourceFailover)
		what := "taking over from a host that died"
		if dead == "" {
			what = "running what a commit of unknown outcome had begun"
		} else if !stopped.IsZero() {
			what = "taking over from a host that left the job"
		}
		rn.log.Warn(what, zap.String("host", dead), zap.String("fire", id.ID()), zap.Int("items", len(states)))
		rn.start(now, id, dead, stopped, states, nil, nil)
	}
}

// start hands begun items to guests. before has what was known of them when
// they were begun; nil if they were taken over, from the host dead if that is not
// empty. stopped says that it was stopped, empty if it died.
func (rn *runner) start(now moment, id tree.Fire, dead string, stopped reason.Reason, states, before map[int]coordination.ItemState, absent tree.Items) {
	begun := run.Begun{Self: rn.member.Self, ID: id, Config: rn.member.View.Config, Guest: rn.guest, Exec: rn.module.exec, Absent: absent,
		At: now.Time, Next: rn.calendar.Next, Delay: rn.calendar.Delay(id.Time()), Workers: min(len(states), rn.concurrency()), Places: rn.most(rn.guest)}
	if rn.limits.limited() { // each item stands in the line for slots by itself: else one that begins later, with a worker of its own, would come first
		begun.Workers, begun.Places = len(states), rn.concurrency()
	}
	total := rn.counts().TotalOf(id, slices.Max(slices.Collect(maps.Keys(states))))
	if !rn.member.View.Division.Java { // Java hosts go by the configuration
		begun.Config.ShardingTotalCount = total
	}
	begun.Exec.Retain()
	begun.Announces = len(begun.Config.JobListenerTypes) > 0 && rn.member.View.Mixed()
	begun.Config.JobParameter = rn.dues.parameter(id)
	if id.Trigger == 0 && rn.calendar.Schedule != nil {
		begun.Next = rn.calendar.After(id.Time())
	}
	if rn.lastFire != nil {
		begun.Previous = rn.lastFire.Instant
	}
	f := run.New(rn.known, begun, states, before)
	for _, e := range f.Runs {
		it := rn.items[e.Item]
		it.Answered(id) // what else is due comes when this has ended
		it.Began(id)
		it.state, it.run = states[e.Item], e
		it.unpace()
		rn.live++
	}
	rn.fires[f] = true
	rn.Emit(event.Event{Kind: event.FireStarted, Instant: id.Time(), Trigger: id.Trigger, Source: f.Source(), Items: f.Items(), Other: dead,
		Args: run.Args(id), Total: id.Total(total), Next: nextAfter(&rn.calendar, id), Digest: f.Exec.Digest(), Lag: rn.lag(now.wall, id)}.Why(stopped))
	guests := rn.guests.ctx
	rn.guests.running.Go(func() { f.Run(guests) })
}

// lag is how much later than its instant a fire began, or, after other jobs, than these had ended; a trigger has none.
func (rn *runner) lag(now time.Time, id tree.Fire) time.Duration {
	if id.Trigger != 0 {
		return 0
	}
	lag := now.Sub(id.Time())
	if len(rn.chain.after) > 0 {
		lag -= rn.calendar.Delay(id.Time())
	}
	return max(lag, 0)
}

// readShare reads what this host owns if the division has changed.
func (rn *runner) readShare(now moment) {
	if rn.rests(now) || (rn.knowsShare() && !rn.mayRead(now)) {
		return
	}
	if rn.stale.reread {
		rn.rereadShare(now)
		return
	}
	known := make(map[int]coordination.ItemState)
	for n, it := range rn.items {
		if it.owned || it.run != nil {
			known[n] = it.state
		}
	}
	rn.takeShare(now, known)
}

// rereadShare reads every item that does not run here again. If that goes on and on,
// the host looks for external edits to repair, asks for a division, and tries less
// often.
func (rn *runner) rereadShare(now moment) {
	rn.stale.reread = false
	if rn.stale.often() && rn.stale.count%4 == 0 && !rn.member.View.Necessary && rn.member.View.Leader != "" {
		if err := rn.member.AskForSharding(rn.work); err != nil {
			rn.failed(now, "asking for a resharding", err)
			return
		}
	}
	known := make(map[int]coordination.ItemState)
	for n, it := range rn.items {
		if it.run != nil {
			known[n] = it.state
		}
	}
	rn.takeShare(now, known)
}

// takeShare reads the share, and draws the conclusions: items come and go, and what
// was due for those that have come is found.
func (rn *runner) takeShare(now moment, known map[int]coordination.ItemState) {
	former := rn.member.Share
	read, err := rn.member.ReadShare(rn.work, known)
	if err != nil {
		rn.failed(now, "reading the share", err)
		return
	}
	if !read {
		return
	}
	share := rn.member.Share
	gone := rn.letGo(share)
	gained := rn.gain(share)
	rn.noteUnread(now, former, share)
	for _, n := range share.Pending {
		if it := rn.items[n]; it != nil && it.run != nil {
			it.run.Move()
		}
	}
	if share.Edited(former) && !rn.member.View.Necessary && rn.member.View.Leader != "" {
		if err := rn.member.AskForSharding(rn.work); err != nil {
			rn.failed(now, "asking for a resharding", err)
		}
	}
	if again := len(former.Denied) > 0 && len(gained) == 0 && gone == 0; !again && (len(share.Items) > 0 || gone > 0) {
		rn.Emit(event.Event{Kind: event.Assigned, Items: slices.Sorted(maps.Keys(share.Items))})
	}
	if len(rn.chain.found) > 0 {
		var items []*item
		for _, n := range gained {
			items = append(items, rn.items[n])
		}
		rn.dues.reportUnmet(items, rn.chain.found)
	}
	rn.findDue(now, share, gained)
}

// findDue finds what is due for the items that this host has gained, and for those
// that stay after all: instants that were missed, the one that is parked, and trigger
// rounds.
func (rn *runner) findDue(now moment, share coordination.Share, gained []int) {
	before := now.wall
	if rn.javaParks && !rn.calendar.Parked.IsZero() { // each item of that instant runs on the host that has it now
		before = rn.calendar.Parked.Add(-time.Millisecond)
	}
	for _, n := range gained {
		if share.Foreign.Contains(n) {
			rn.dues.notOwed(rn.items[n], before)
		}
	}
	news := slices.Concat(gained, handedBack(rn.items, share, gained))
	rn.unpark(now, news)
	for _, n := range news {
		it := rn.items[n]
		if round, args := it.state.Record.HandedBackTrigger(); round != 0 {
			rn.dues.owesRound(now, it, round, args)
		}
	}
	if rn.member.View.Trigger != 0 && rn.trigger.consumed < share.Round {
		return // this host's own trigger is for them as well
	}
	for _, n := range share.Owing {
		if it := rn.items[n]; it != nil && it.owned {
			rn.dues.owesRound(now, it, share.Round, share.Args)
		}
	}
}

// unpark finds what was due for items, and begins the instant that is parked.
func (rn *runner) unpark(now moment, news []int) {
	at := rn.calendar.Parked
	rn.calendar.Parked = time.Time{}
	switch {
	case at.IsZero():
		rn.dues.makeUp(now, news)
	case rn.dues.policies().Queues(): // the fire accounts for what came before it
		rn.fire(now, at, nil, true)
		rn.dues.makeUp(now, news)
	case !rn.dues.makeUpBefore(now, at, news):
		rn.calendar.Next = at // it comes due again, when what was before it is found
	default:
		rn.fire(now, at, nil, true)
	}
}

// handedBack are the idle items whose run was handed back because they were to move,
// and that stay after all; not those gained.
func handedBack(items map[int]*item, share coordination.Share, gained []int) (stay []int) {
	for n, it := range items {
		r := it.state.Record
		round, _ := r.HandedBackTrigger()
		if it.owned && it.run == nil && it.Next() == nil && (r.HandedBack() != 0 || round != 0) && // of a million, few
			!share.Pending.Contains(n) && !slices.Contains(gained, n) {
			stay = append(stay, n)
		}
	}
	return slices.Sorted(slices.Values(stay))
}

// recoverFrom takes over what one dead host has left, or a part of very much. drawn is set if permits were drawn for
// that just now.
func (rn *runner) recoverFrom(now moment, r coordination.Recovery, drawn bool) (out coordination.Recovered, err error) {
	dead := r.Dead
	if rn.limits.limited() {
		r.Permit = rn.limits.permitFor
	}
	out, err = rn.member.Recover(rn.work, r)
	by := cmp.Or(dead, "Java")
	rn.denials.settle(by, out.Denied)
	rn.denials.note(now, by, out.Denied, rn.log)
	if out.Gone {
		rn.term.gone(dead)
	}
	ended, stopped := reason.HostDied, reason.Reason{}
	if out.Stopped {
		ended, stopped = reason.HostLeft, reason.New(reason.HostLeftRunning, dead)
	}
	for _, lost := range out.Lost {
		why := reason.FailoverOff
		if lost.State.Record.Owner != dead {
			why = reason.BegunAnew
		}
		rn.reports.endRun(lost.Item, lost.Fire, dead, tree.OutcomeLost, event.SkipLost, reason.New(ended, dead, reason.New(why)))
	}
	for _, h := range out.Held {
		rn.heldBack(h.Item, h.Fire, dead, h.State.Record)
	}
	for _, k := range out.Killed {
		rn.reports.endRun(k.Item, k.Fire, dead, abi.OutcomeCancelled, event.SkipDisabled, reason.Read(k.State.Record.Reason))
	}
	for _, e := range out.Elsewhere {
		rn.reports.endRun(e.Item, e.Fire, dead, tree.OutcomeElsewhere, event.SkipElsewhere, reason.New(ended, dead, reason.New(reason.JavaRanAgain)))
	}
	if err == nil {
		rn.takeOver(now, dead, stopped, out.Claimed)
	}
	if err == nil && len(rn.limits.crashed) > 0 && !drawn && rn.limits.drawForCrashed(now) {
		return rn.recoverFrom(now, r, true)
	}
	return out, err
}

// stillWaits reports whether an item that waits for a permit is still to begin when it has one.
func (rn *runner) stillWaits(now moment, it *item) bool {
	return it.owned && it.run == nil && it.Next() != nil && !it.held && !it.state.Disabled && rn.member.View.Enabled && !rn.denials.waits(now, it.number) && !rn.dues.moves(now, it)
}
