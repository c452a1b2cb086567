package host

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/host/schedule"
)

// join registers this host for the job. It reports false if it has not.
func (j *job) join(now moment) bool {
	var applied coordination.Applied
	if j.execErr = j.check(); j.execErr != nil {
		j.settled.Store(true)
		return false
	}
	j.registered = true // perhaps
	if zone, err := schedule.Zone(j.wanted.Definition.TimeZone); err == nil {
		j.zone = zone // the others are told
	}
	err := j.perform(coordination.Join(coordination.Joining{
		Layout: j.layout, Self: j.self, Definition: j.wanted.Definition, JobClass: j.wanted.JobClass,
		Detail: j.detail(), Applied: &applied,
	}))
	j.joinErr = err
	if err != nil {
		j.settled.Store(true)
		j.failed(now, "joining the job", err)
		return false
	}
	ctx, cancel := context.WithCancel(j.work)
	j.unwatch = cancel
	j.snapshots, err = j.term.registry.Watch(ctx, coordination.Control(j.layout, j.self)...)
	if err != nil {
		cancel()
		j.unwatch, j.joinErr = nil, err
		j.failed(now, "watching the job", err)
		return false
	}
	j.view, j.seen = coordination.View{Layout: j.layout, Self: j.self}, false
	j.announce = false
	j.share, j.runs, j.runsVersion = coordination.Share{}, coordination.Runs{}, 0
	j.joined, j.looked = true, true
	j.foreman, j.sweepAt = false, time.Time{}
	j.emit(Event{Kind: EventJobAdded, Digest: j.wanted.Module.Digest(), Reason: joinWords(applied.Changed)})
	if len(applied.Kept) > 0 {
		j.log.Warn("the registry's configuration differs from the definition file and stays in force; overwrite: true would change it",
			zap.String("fields", joinWords(applied.Kept)), zap.String("file", j.wanted.File))
	}
	return true
}

// check tries whether the module fits the definition: a host registers for a
// job only while it has a loadable module for it.
func (j *job) check() error {
	exec, err := j.wanted.Module.Executor(j.wanted.Definition)
	if err != nil {
		return err
	}
	exec.Release()
	return nil
}

// see takes a snapshot of the control nodes.
func (j *job) see(s coordination.Snapshot) {
	before := j.view
	j.view = coordination.ParseView(s, j.layout, j.self, before)
	newest := int64(0)
	for _, n := range s {
		newest = max(newest, n.Mzxid)
	}
	// One that waited in the channel while the step was taken does not show it.
	j.looked, j.seen = j.looked || newest >= j.waits, true
	j.seeJava(j.host.now(), before)
	for _, it := range j.items {
		it.held = false
	}
	v := j.view
	if v.ConfigErr != nil && (before.ConfigErr == nil || before.ConfigErr.Error() != v.ConfigErr.Error()) {
		j.log.Error("configuration in the registry refused; the last good one stays in force", zap.Error(v.ConfigErr))
		j.emit(Event{Kind: EventJobError, Reason: v.ConfigErr.Error()})
	}
	if v.Leader != before.Leader && v.Leading() {
		j.emit(Event{Kind: EventElected})
	}
}

// look draws the conclusions that end the job here. It reports false if the
// loop has nothing more to do for now.
func (j *job) look(now moment) bool {
	switch {
	case !j.view.Exists:
		j.quit(JobRemoved, "removed from the registry; restart the host or change its definition to bring it back")
		return false
	case !j.view.Joined() && j.departed(now):
		j.unwatchAll()
		j.rejoin(now)
		j.againAt = now.Add(againPause)
		return false
	case !j.view.Joined():
		j.stopped(now)
		return false
	}
	j.settled.Store(true)
	return true
}

// departed reports whether this host has lately tried to leave, and stayed
// after all: that it is not in the job's list is no operator's doing then.
func (j *job) departed(now moment) bool {
	return !j.departedAt.IsZero() && now.Sub(j.departedAt) < longestSleep
}

// stopped: an operator deleted our instance node while the session lives.
func (j *job) stopped(now moment) {
	if j.running() > 0 {
		return // they finish first; complete comes back here
	}
	if now.Before(j.retryAt) {
		return
	}
	if err := j.perform(coordination.Leave(j.view, nil)); err != nil {
		j.failed(now, "leaving the job", err)
		return
	}
	j.registered = false
	j.emit(Event{Kind: EventJobStopped, Reason: "its instance was removed by an operator"})
	j.quit(JobStopped, "stopped by an operator; restart the host or change its definition to run it again")
}

// quit stops looking after the job until its definition changes.
func (j *job) quit(state JobState, why string) {
	j.left, j.leftState = why, state
	j.settled.Store(true)
	j.unwatchAll()
	j.dropTrigger(why)
	j.emit(Event{Kind: EventJobRemoved, Reason: why})
	for n, it := range j.items {
		if it.run == nil {
			delete(j.items, n)
		} else {
			it.owned, it.due = false, nil
			it.run.cancel(abi.CancelStop)
		}
	}
}

// clearAway removes what is left of this host in a job that was removed, once
// nothing of it runs here any more. Until then it must not look dead: another
// host may bring the job back. It reports true when nothing is left.
func (j *job) clearAway(now moment) bool {
	switch {
	case j.running() > 0 || j.registered && now.Before(j.retryAt):
		return false
	case j.registered:
		if err := j.perform(coordination.Leave(j.view, nil)); err != nil {
			j.failed(now, "leaving the job", err)
			return false
		}
		j.registered = false
	}
	return true
}

// softGrace is how long before a hard stop guests are told of it.
func softGrace(limit time.Duration) time.Duration { return min(5*time.Second, limit/5) }

// withdraw finishes what runs and leaves the job. It reports true when the
// host has left.
func (j *job) withdraw(now moment) bool {
	limit := j.host.cfg.DrainTimeout
	if !j.drainSaid {
		j.drainSaid = true
		for _, it := range j.items {
			if it.run != nil {
				it.run.yield()
			}
		}
		for f := range j.fires {
			f.returnQueued()
		}
	}
	if j.draining && j.drainUntil.IsZero() {
		j.drainUntil = now.Add(limit)
	}
	if !j.drainTold && j.joined && j.left == "" && j.running() > 0 && !now.Before(j.retryAt) {
		// What does not run goes to others at once, and somebody else divides.
		err := j.perform(coordination.Drain(j.view, j.detail()))
		if err == nil && j.view.Leading() {
			err = j.perform(coordination.Resign(j.view))
		}
		if err != nil {
			j.failed(now, "announcing that this host leaves", err)
		}
		j.drainTold = err == nil
	}
	soft := j.draining && !now.Before(j.drainUntil.Add(-softGrace(limit)))
	hard := j.draining && !now.Before(j.drainUntil)
	if soft {
		for _, it := range j.items {
			if it.run != nil {
				it.run.cancel(abi.CancelStop)
			}
		}
	}
	if hard && j.guests.Err() == nil {
		if n := j.running(); n > 0 {
			j.log.Warn("the drain timeout is over: stopping guests", zap.Int("items", n))
		}
		j.kill(errDrainOver)
	}
	// A guest that was stopped by force counts as unfinished, like one whose
	// host crashed; complete leaves those in place. So does at last one whose
	// completion the registry keeps refusing.
	refused := hard && now.Before(j.retryAt)
	for _, it := range j.items {
		if e, ended := j.ended[it.number]; it.run != nil && !(ended && (e.unfinished || refused)) {
			return false
		}
	}
	if !j.fired() {
		return false
	}
	var unfinished coordination.Items
	for n := range j.ended {
		unfinished = append(unfinished, n)
	}
	slices.Sort(unfinished)
	if j.registered {
		if now.Before(j.retryAt) && !refused {
			return false
		}
		if len(unfinished) > 0 {
			j.flushOffsets(now) // whoever goes on begins there
		}
		j.departedAt = now.Time
		view := j.view
		view.Layout, view.Self = j.layout, j.self
		err := j.settleDoubt(now)
		if err == nil {
			err = j.perform(coordination.Leave(view, unfinished))
		}
		if err != nil && !errors.Is(err, coordination.ErrSessionLost) {
			if hard {
				j.log.Error("leaving the job; the session's end will do it", zap.Error(err))
			} else {
				j.failed(now, "leaving the job", err)
				return false
			}
		}
	}
	why := j.leaving
	if j.draining {
		why = "the host is stopping"
	}
	j.dropTrigger(why + " before the job was idle")
	for _, it := range j.sorted(func(it *item) bool { return it.due != nil && it.run == nil }) {
		j.skipItem(it, *it.due, why+"; whoever has the item next makes up for it if misfire is on")
	}
	for _, n := range unfinished {
		run := j.ended[n].run
		j.emit(Event{Kind: EventItemSkipped, Item: &n, Instant: run.fire.id.Time(), Trigger: run.fire.id.Trigger, Source: run.fire.source,
			RunID: run.runID(), Fence: run.fence, Digest: run.fire.exec.Digest(), Outcome: abi.OutcomeCancelled,
			Reason: why + "; the run is unfinished: it goes on elsewhere or after a restart if failover is on"})
	}
	j.emit(Event{Kind: EventJobRemoved, Reason: why, Items: unfinished})
	return true
}

// adopt runs what a commit had begun whose answer was lost, and what cannot be
// handed back. A host that leaves owes it instead.
func (j *job) adopt(now moment, claims []coordination.Claim) {
	if j.leaving == "" && !j.draining && j.exec != nil {
		j.takeOver(now, "", claims)
	}
}

// resolve settles a doubt that nothing else has settled: what was asked for is
// not asked for again if the item was disabled since, say, or if a list of runs
// that was to be taken over is gone because it was.
func (j *job) resolve(now moment) {
	if now.Before(j.retryAt) {
		return // it has gone wrong just now
	}
	if err := j.settleDoubt(now); err != nil {
		j.failed(now, "looking for begins that were not heard of", err)
	}
}

// settleDoubt deals with what was begun by a commit whose answer was lost, and
// was not asked for again since: a scheduled instant is handed back, and is due
// again, other runs are adopted.
func (j *job) settleDoubt(now moment) error {
	if !j.doubt {
		return nil
	}
	var out coordination.Completed
	err := j.perform(coordination.Complete(coordination.Completing{Layout: j.layout, Self: j.self, Config: j.view.Config,
		Runs: j.runs, RunsVersion: j.runsVersion, Now: now.wall, Wake: &j.view,
		// An item that stayed because it was begun here can move.
		AskForSharding: j.leaving == "" && !j.draining && !j.view.Necessary && j.view.Leader != "" && !j.view.JavaLed()}, &out))
	if err == nil {
		j.runs, j.runsVersion, j.doubt = out.Runs, out.RunsVersion, false
		j.adopt(now, out.Adopted)
	}
	return err
}

// fired reports whether the goroutines of all fires have ended.
func (j *job) fired() bool {
	for f := range j.fires {
		if !f.guestsDone {
			return false
		}
		j.closeFire(f)
	}
	return true
}

func joinWords(words []string) string { return strings.Join(words, ", ") }

// coordinate takes at most one step of the common business: election, the
// flag, division, the own share, crashed hosts. After a step that wrote
// something it waits for the snapshot that shows it.
func (j *job) coordinate(now moment) {
	if j.view.Enabled && !j.wasEnabled {
		j.notBefore = now.wall // what was due while it was disabled is not made up for
		for _, it := range j.sorted(func(it *item) bool { return it.run == nil && it.due != nil && it.due.Trigger == 0 }) {
			j.skipItem(it, *it.due, "this server was disabled for the job")
			it.due = nil
		}
	}
	j.wasEnabled = j.view.Enabled
	switch {
	case j.looked:
		j.lookPause = lookAgain
	case now.Before(j.lookedAt.Add(j.lookPause)):
		j.readShare(now)
		return
	default: // a registry that is so slow is not to be asked the same again and again
		j.lookPause = min(2*j.lookPause, commitTimeout)
	}
	if !j.view.FlagSeen.IsZero() {
		j.view.FlagSeen = now.instant(j.flagSeen) // the clock may have been set since
	}
	v := j.view
	if j.announce {
		if err := j.perform(coordination.Announce(v, j.detail())); err != nil {
			j.failed(now, "announcing what this host runs", err)
			return
		}
		j.announce = false
	}
	var sharded coordination.Sharded
	if m, ok := v.Reconcile(now.wall, j.share, &sharded, &j.election.Line); ok && j.mayStep(now) {
		j.looked, j.lookedAt, j.wrote = false, now.Time, 0
		if err := j.perform(m); err != nil {
			j.failed(now, "coordination", err)
			j.wrote = 0
		}
		j.waits, j.lookedAt = j.wrote, time.Now()
		if sharded.Commits > 0 {
			j.emit(Event{Kind: EventSharded, Total: sharded.Division.Total, Reason: why(v)})
		}
	}
	if slices.Contains(v.Division.Draining, v.Self.ID) && !v.Necessary && !now.Before(j.retryAt) {
		// The items were divided while it wanted to leave, and it stays; or a
		// hand has written that it leaves.
		err := j.perform(coordination.Announce(v, j.detail()))
		if err == nil {
			err = j.perform(coordination.AskForSharding(v))
		}
		if err != nil {
			j.failed(now, "asking for a share", err)
		}
		j.looked, j.lookedAt = false, now.Time
	}
	if !now.Before(j.retryAt) {
		j.readShare(now)
		j.recoverCrashed(now)
		j.sweep(now)
	}
}

// mayStep says whether the next step of the common business may be taken. One
// that follows many others has to wait.
func (j *job) mayStep(now moment) bool {
	if now.Before(j.stepAt) {
		return false
	}
	if j.steps.AllowN(now.Time, 1) {
		return true
	}
	j.stepAt = now.Add(stepInterval)
	if !now.Before(j.steppedOften.Add(longestSleep)) {
		j.steppedOften = now.Time
		j.log.Warn("the hosts of the job are not coming to rest: its items are divided, or its leader is elected, again and again; slowing down",
			zap.String("because", why(j.view)), zap.Duration("step every", stepInterval))
	}
	return false
}

// readShare reads what this host owns if the division has changed.
func (j *job) readShare(now moment) {
	if j.share.Current(j.view) || now.Before(j.retryAt) {
		return
	}
	known := make(map[int]coordination.ItemState)
	for n, it := range j.items {
		if it.owned || it.run != nil {
			known[n] = it.state
		}
	}
	j.takeShare(now, known)
}

// rereadShare reads every item that does not run here again, after a begin that
// found the registry to be otherwise. If that goes on and on, nobody is on the way
// to change anything: the host looks for what a hand has spoilt, asks for a
// division, and tries less often.
func (j *job) rereadShare(now moment) {
	if now.Sub(j.staleAt) > longestSleep {
		j.stale = 0
	}
	j.staleAt = now.Time
	if j.stale++; j.stale > 3 {
		j.againAt = now.Add(min(againPause<<min(j.stale, 10), commitTimeout))
		j.mending.refused = true
		if j.stale%4 == 0 && !j.view.Necessary && j.view.Leader != "" {
			if err := j.perform(coordination.AskForSharding(j.view)); err != nil {
				j.failed(now, "asking for a division", err)
				return
			}
		}
	}
	known := make(map[int]coordination.ItemState)
	for n, it := range j.items {
		if it.run != nil {
			known[n] = it.state
		}
	}
	j.takeShare(now, known)
}

func (j *job) takeShare(now moment, known map[int]coordination.ItemState) {
	var share coordination.Share
	if err := j.perform(coordination.ReadShare(j.view, known, &share)); err != nil {
		j.failed(now, "reading the share", err)
		return
	}
	if share.Items == nil {
		return
	}
	edited := share.Edited(j.share)
	j.share = share
	var gained, gone, all []int
	for n, it := range j.items {
		if _, mine := share.Items[n]; !mine {
			if it.owned {
				gone = append(gone, n)
			}
			if it.due != nil && aheadOf(it.state.Record, *it.due) { // it would not
				j.skipItem(it, *it.due, string(coordination.RefusedPast))
			}
			it.owned, it.due = false, nil // whoever has it now finds what is due
			if it.run == nil {
				delete(j.items, n)
			}
		}
	}
	for n, state := range share.Items {
		all = append(all, n)
		it := j.items[n]
		if it == nil {
			it = &item{number: n}
			j.items[n] = it
		}
		if it.run == nil {
			it.state = state
		}
		if !it.owned {
			it.owned = true
			gained = append(gained, n)
		}
	}
	for _, n := range share.Pending {
		if it := j.items[n]; it != nil && it.run != nil {
			it.run.yield()
		}
	}
	if edited && !j.view.Necessary && j.view.Leader != "" {
		if err := j.perform(coordination.AskForSharding(j.view)); err != nil {
			j.failed(now, "asking for a division", err)
		}
	}
	if len(all) > 0 || len(gone) > 0 {
		j.emit(Event{Kind: EventAssigned, Items: sortedInts(all)})
	}
	for _, n := range gained {
		if share.Foreign.Contains(n) {
			before := now.wall
			if !j.parked.IsZero() { // Java hosts wait for the division, and then run the instant
				before = later(j.parked.Add(-time.Millisecond), now.wall)
			}
			j.notOwed(j.items[n], before)
		}
	}
	if len(gained) > 0 && j.parked.IsZero() {
		j.makeUp(now.wall, gained)
	} else if !j.parked.IsZero() {
		at := j.parked
		j.parked = time.Time{}
		j.fire(now, at)
		j.makeUp(now.wall, gained)
	}
	if j.view.Trigger != 0 && j.trigger.consumed < share.Round {
		return // this host's own trigger is for them as well
	}
	for _, n := range share.Owing {
		if it := j.items[n]; j.view.Enabled && it.owned && it.run == nil && it.due == nil && !j.beyond(it) {
			it.due = &coordination.Fire{Instant: now.wall.UnixMilli(), Trigger: share.Round, Source: string(abi.SourceTrigger)}
		}
	}
}

// recoverCrashed takes over from hosts that died, or notes what is lost.
func (j *job) recoverCrashed(now moment) {
	crashed := j.view.Crashed()
	if len(j.view.FailoverItems) > 0 {
		crashed = append(crashed, "") // whatever Java hosts have marked
	}
	if len(crashed) == 0 && !j.takers.Standing {
		j.recoverAt, j.recoverPause, j.recovers = time.Time{}, recoverPause, 0
		return
	}
	if j.recoverAt.IsZero() && j.mixed() {
		j.recoverAt = now.Add(javaGrace)
	}
	if leads := j.view.Leading(); leads != j.led {
		if j.led = leads; leads && j.recovers > 0 {
			j.recoverAt = now.Time // what only a leader writes down
		}
	}
	if now.Before(j.recoverAt) {
		return
	}
	again := j.recovers > 0
	if len(crashed) == 0 {
		crashed = append(crashed, "") // and leaves the latch
	}
	if j.exec == nil {
		return
	}
	if j.running() >= j.concurrency() {
		return // whoever is idle takes more
	}
	// A share is taken whole, as the items of a fire are: they queue for the
	// workers.
	limit := math.MaxInt
	var busy coordination.Items
	for _, it := range j.sorted(func(it *item) bool { return it.run != nil }) {
		busy = append(busy, it.number)
	}
	for _, dead := range crashed {
		var out coordination.Recovered
		err := j.perform(coordination.Recover(coordination.Recovery{
			View: j.view, Dead: dead, All: again, Limit: limit, Busy: busy, Line: &j.takers.Line, Runs: j.runs, RunsVersion: j.runsVersion, Now: now.wall,
		}, &out))
		for _, lost := range out.Lost {
			why := "failover is off"
			if lost.State.Record.Owner != dead {
				why = "it has been begun anew since"
			}
			j.emit(Event{Kind: EventItemSkipped, Item: &lost.Item, Instant: lost.Fire.Time(), Trigger: lost.Fire.Trigger, Source: abi.Source(lost.Fire.Source),
				RunID: coordination.RunID(j.name, lost.Fire, lost.Item), Outcome: coordination.OutcomeLost,
				Reason: "its host " + dead + " died while it ran, and " + why})
		}
		for _, e := range out.Elsewhere {
			j.emit(Event{Kind: EventItemSkipped, Item: &e.Item, Instant: e.Fire.Time(), Trigger: e.Fire.Trigger, Source: abi.Source(e.Fire.Source),
				RunID: coordination.RunID(j.name, e.Fire, e.Item), Outcome: coordination.OutcomeElsewhere,
				Reason: "its host " + dead + " died while it ran, and a Java host has run it again"})
		}
		if err != nil {
			j.doubt = true
			j.failed(now, "recovering items of "+dead, err)
			return
		}
		if out.Commits > 0 {
			j.runs, j.runsVersion, j.doubt = out.Runs, out.RunsVersion, false
		}
		j.takeOver(now, dead, out.Claimed)
	}
	// What is left is another host's share, or disabled: look again later.
	j.recovers++
	j.recoverAt = now.Add(j.recoverPause)
	j.recoverPause = min(2*j.recoverPause, longestRecoverPause)
}

// sweep removes marks that belong to nobody: the foreman does at the slow
// reconcile interval, and when it has become that; any host does that a mark
// stands in the way of.
func (j *job) sweep(now moment) {
	if foreman := j.view.Foreman(); foreman != j.foreman {
		j.foreman = foreman
		if foreman && j.sweepAt.IsZero() {
			j.sweepAt = now.Time
		}
	}
	if j.sweepAt.IsZero() || now.Before(j.sweepAt) {
		return
	}
	var swept []string
	err := j.perform(coordination.Sweep(j.view, now.wall, &swept))
	j.sweepAt = time.Time{}
	if minutes := j.view.Config.ReconcileIntervalMinutes; minutes > 0 && j.foreman {
		j.sweepAt = now.Add(time.Duration(minutes) * time.Minute)
	}
	if err != nil {
		j.failed(now, "sweeping stale marks", err)
		j.sweepAt = j.retryAt
	}
	for _, path := range swept {
		j.log.Warn("removed a mark that belonged to nobody", zap.String("node", path))
	}
	if len(swept) > 0 {
		for _, it := range j.items {
			it.held = false // it may have been held by one of them
		}
	}
}

// why tells what made the leader divide the items.
func why(v coordination.View) string {
	if reason := v.DivisionStale(); reason != "" {
		return reason
	}
	return "asked for by the flag"
}
