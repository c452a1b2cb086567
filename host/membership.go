package host

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/run"
	"github.com/wasmjob/wasmjob/host/schedule"
)

// join registers this host for the job. It reports false if it has not.
func (j *job) join(now moment) bool {
	if j.module.err = check(j.wanted); j.module.err != nil {
		j.settled.Store(true)
		return false
	}
	if !j.term.arrivals.enter(j, firstDue(j.wanted.Definition, now)) {
		return false
	}
	defer j.term.arrivals.leave(j)
	j.registered = true // perhaps
	j.base.Store(0)     // Join reads it
	if zone, err := schedule.Zone(j.wanted.Definition.TimeZone); err == nil {
		j.cron.zone = zone // published to the others
	}
	var wait time.Duration
	joining := coordination.Joining{
		Definition: j.wanted.Definition, Former: j.host.former(j.name), JobClass: j.wanted.JobClass,
		Detail: j.detail(), Accept: j.accept, Applied: &j.joining.applied, Wait: &wait, Waited: j.joining.waited,
	}
	err := j.member.Join(j.work, joining)
	if err == nil && wait > 0 {
		j.joining.waited += wait
		j.refusal.retryAt = time.Now().Add(wait) // another writes this host's name down
		return false
	}
	applied := j.joining.applied
	j.joining.applied, j.joining.waited = coordination.Applied{}, 0
	if refused(err) {
		j.refuse(now, err)
		return false
	}
	j.joining.err = err
	if err != nil {
		j.settled.Store(true)
		j.failed(now, "joining the job", err)
		return false
	}
	j.base.Store(applied.Base)
	j.brought(applied)
	ctx, cancel := context.WithCancel(j.work)
	j.watch.end = cancel
	j.watch.control, err = j.term.registry.Watch(ctx, coordination.Control(j.member.Layout, j.member.Self)...)
	if err != nil {
		cancel()
		j.watch.end, j.joining.err = nil, err
		j.failed(now, "watching the job", err)
		return false
	}
	j.member.View, j.seen = coordination.View{Layout: j.member.Layout, Self: j.member.Self, Accept: j.accept}, false
	j.announce = false
	j.member.Share, j.member.Runs, j.member.RunsVersion = coordination.Share{}, coordination.Runs{}, 0
	j.joined, j.pace.looked = true, true
	j.janitor, j.sweepAt = false, time.Time{}
	j.Emit(event.Event{Kind: event.JobAdded, Source: sourceOf(j.wanted.Definition.Cron), Digest: j.wanted.Module.Digest(), Reason: joinWords(applied.Changed)})
	return true
}

// sourceOf is the Source of an event about a job with a cron, or none.
func sourceOf(cron string) abi.Source {
	if cron == "" {
		return abi.SourceTrigger
	}
	return ""
}

// firstDue is when the job would fire next by its definition here; zero if that says
// nothing of it.
func firstDue(d jobconfig.Configuration, now moment) time.Time {
	zone, err := schedule.Zone(d.TimeZone)
	if err != nil {
		return time.Time{}
	}
	s, err := schedule.Parse(d.Cron, zone)
	if err != nil {
		return time.Time{}
	}
	return s.Next(now.wall)
}

// brought takes note of what became of the definition.
func (j *job) brought(applied coordination.Applied) {
	j.host.setFormer(j.name, j.wanted.Definition.YAML())
	j.joining.outdated = ""
	fields, file := zap.String("fields", joinWords(applied.Kept)), zap.String("file", j.wanted.File)
	switch {
	case applied.Superseded:
		j.joining.outdated = "the definition file is out of date: it was applied before and replaced by a newer one since, and is not applied again; it differs in " +
			joinWords(applied.Kept) + "; copy the newer file to this host, or see docs/definitions.md, File and registry"
		j.log.Warn("the definition file is out of date: it was applied before and replaced by a newer one since; the registry's configuration stays in force", fields, file)
	case len(applied.Kept) > 0:
		j.log.Warn("the registry's configuration differs from the definition file and stays in force; overwrite: true would change it", fields, file)
	}
}

// check tries whether the module fits the definition: a host registers for a
// job only while it has a loadable module for it.
func check(wanted Job) error {
	exec, err := wanted.Module.Executor(wanted.Definition)
	if err != nil {
		return err
	}
	exec.Release()
	return nil
}

// see takes a snapshot of the control nodes.
func (j *job) see(s registry.Snapshot) {
	before := j.member.View
	s = s.Raise(j.base.Load())
	j.member.Observe(s)
	newest := int64(0)
	for _, n := range s {
		newest = max(newest, n.Mzxid)
	}
	// One that waited in the channel while the step was taken does not show it.
	j.pace.looked, j.seen = j.pace.looked || newest >= j.pace.waitsFor, true
	j.seeJava(j.host.now(), before)
	for _, it := range j.items {
		it.held = false
	}
	v := j.member.View
	if v.ConfigErr != nil && (before.ConfigErr == nil || before.ConfigErr.Error() != v.ConfigErr.Error()) {
		j.log.Error("configuration in the registry refused; the last good one stays in force", zap.Error(v.ConfigErr))
		j.Emit(event.Event{Kind: event.JobError, Reason: v.ConfigErr.Error()})
	}
	if v.Leader != before.Leader && v.Leading() {
		j.Emit(event.Event{Kind: event.Elected})
	}
}

// look draws the conclusions that end the job here. It reports false if the
// loop has nothing more to do for now.
func (j *job) look(now moment) bool {
	switch {
	case !j.member.View.Exists:
		j.quit(JobRemoved, "removed from the registry; 'wasmjob start "+j.name+"' brings it back")
		j.clearAway(now)
		return false
	case !j.member.View.Joined() && j.exit.tried(now):
		j.unwatchAll()
		j.rejoin(now)
		j.againAt = now.Add(againPause)
		return false
	case !j.member.View.Joined():
		j.stopped(now)
		return false
	case j.declines():
		j.decline(now)
		return false
	}
	if j.exit.stopped { // it is in the list again
		j.stay()
	}
	j.settled.Store(true)
	return true
}

// tried reports whether this host has lately tried to leave, and stayed
// after all: that it is not in the job's list is no operator's doing then.
func (e *exit) tried(now moment) bool {
	return !e.triedAt.IsZero() && now.Sub(e.triedAt) < longestSleep
}

// stopSettle is how long a host whose instance is gone waits for the job to go, too:
// ElasticJob's console removes a job node by node.
const stopSettle = time.Second

// stopped: an operator deleted our instance node while the session lives. What
// runs gets the drain timeout, and what does not end by itself is unfinished, as
// when the host drains.
func (j *job) stopped(now moment) {
	if !j.exit.stopped {
		j.exit.stopped, j.exit.stopAt = true, now.Add(stopSettle)
		j.windDown()
	}
	j.watchExtra(now)
	if _, over := j.press(now); !over || now.Before(j.refusal.retryAt) {
		return
	}
	if now.Before(j.exit.stopAt) {
		j.againAt = j.exit.stopAt
		return
	}
	unfinished := j.unfinished()
	if len(unfinished) > 0 {
		j.flushOffsets(now) // whoever goes on begins there
	}
	if err := j.member.Leave(j.work, unfinished); err != nil {
		j.failed(now, "leaving the job", err)
		return
	}
	j.registered = false
	const why = "its instance was removed by an operator"
	j.giveUp(unfinished, why)
	j.Emit(event.Event{Kind: event.JobStopped, Reason: why, Items: unfinished})
	j.quit(JobStopped, "stopped by an operator; 'wasmjob start "+j.name+"' runs it again")
}

// quit stops looking after the job until its definition changes, or an operator
// starts it again.
func (j *job) quit(state JobState, why string) {
	j.exit.left, j.exit.state = why, state
	j.calendar.Next = time.Time{}
	j.settled.Store(true)
	j.unwatchAll()
	j.dropTrigger(event.SkipDisabled, why)
	j.Emit(event.Event{Kind: event.JobRemoved, Reason: why})
	for n, it := range j.items {
		if it.run == nil {
			delete(j.items, n)
		} else {
			it.owned, it.due = false, nil
			it.run.Cancel(abi.CancelStop)
		}
	}
	for f := range j.fires {
		f.ReturnQueued()
	}
}

// clearAway removes what is left of this host in a job that was removed, once
// nothing of it runs here any more. Until then it must not look dead: another
// host may bring the job back. It reports true when nothing is left.
func (j *job) clearAway(now moment) bool {
	if j.running() > 0 {
		j.press(now)
		return false
	}
	switch {
	case j.registered && now.Before(j.refusal.retryAt):
		return false
	case j.registered:
		if err := j.member.Leave(j.work, nil); err != nil {
			j.failed(now, "leaving the job", err)
			return false
		}
		j.registered = false
	}
	return true
}

// windDown hands back what has not begun, and asks streaming loops to end.
func (j *job) windDown() {
	for _, it := range j.items {
		if it.run != nil {
			it.run.Yield()
		}
	}
	for f := range j.fires {
		f.ReturnQueued()
	}
}

// logDrain says which items the host waits for before it ends.
func (j *job) logDrain() {
	var items coordination.Items
	for _, it := range j.sorted(func(it *item) bool { return it.run != nil }) {
		items = append(items, it.number)
	}
	if len(items) > 0 {
		j.log.Info("draining: waiting for items to end", zap.Stringer("items", items))
	}
}

// press ends what runs here within the drain timeout: guests are asked shortly
// before that is over, and then stopped by force. over is set when all of it has
// ended, or counts as unfinished: a guest that was stopped by force, and at last
// one whose completion the registry keeps refusing. hard is set from the end of
// the timeout on.
func (j *job) press(now moment) (hard, over bool) {
	limit := j.host.cfg.DrainTimeout
	if j.exit.until.IsZero() {
		j.exit.until = now.Add(limit)
	}
	hard = !now.Before(j.exit.until)
	if !now.Before(j.exit.until.Add(-run.SoftGrace(limit))) {
		for _, it := range j.items {
			if it.run != nil {
				it.run.Cancel(abi.CancelStop)
			}
		}
	}
	if hard && j.guests.Err() == nil {
		if n := j.running(); n > 0 {
			j.log.Warn("the drain timeout is over: stopping guests", zap.Int("items", n))
		}
		j.kill(errDrainOver)
	}
	refused := hard && now.Before(j.refusal.retryAt)
	for _, it := range j.items {
		if e, ended := j.ended[it.number]; it.run != nil && !(ended && (e.Unfinished || refused)) {
			return hard, false
		}
	}
	return hard, j.fired()
}

// unfinished are the runs that have ended and are not completed.
func (j *job) unfinished() coordination.Items {
	return slices.Sorted(maps.Keys(j.ended))
}

// giveUp reports runs that are left unfinished, and forgets them.
func (j *job) giveUp(items coordination.Items, why string) {
	for _, n := range items {
		run := j.ended[n].Run
		j.Emit(event.Event{Kind: event.ItemSkipped, Item: &n, Instant: run.Fire().ID.Time(), Trigger: run.Fire().ID.Trigger, Source: run.Fire().Source(),
			RunID: run.RunID(), Fence: run.Fence, Digest: run.Fire().Exec.Digest(), Outcome: abi.OutcomeCancelled,
			Cause: event.SkipUnfinished, Reason: why + "; the run is unfinished: it goes on elsewhere or after a restart if failover is on"})
		delete(j.ended, n)
		j.live--
		if it := j.items[n]; it != nil {
			it.run = nil
		}
	}
}

// withdraw finishes what runs and leaves the job. It reports true when the
// host has left.
func (j *job) withdraw(now moment) bool {
	if !j.exit.begun {
		j.exit.begun = true
		j.windDown()
		if j.exit.draining {
			j.logDrain()
		}
	}
	if !j.exit.announced && j.joined && j.exit.left == "" && j.running() > 0 && !now.Before(j.refusal.retryAt) {
		// What does not run goes to others at once, and somebody else divides.
		err := j.member.Drain(j.work, j.detail())
		if err == nil && j.member.View.Leading() {
			err = j.member.Resign(j.work)
		}
		if err != nil {
			j.failed(now, "announcing that this host leaves", err)
		}
		j.exit.announced = err == nil
	}
	if j.seen && j.member.View.Exists && j.exit.left == "" {
		j.watchExtra(now)
	}
	hard, over := j.press(now)
	if !over {
		return false
	}
	refused := hard && now.Before(j.refusal.retryAt)
	unfinished := j.unfinished()
	if j.registered {
		if now.Before(j.refusal.retryAt) && !refused {
			return false
		}
		if len(unfinished) > 0 {
			j.flushOffsets(now) // whoever goes on begins there
		}
		j.exit.triedAt = now.Time
		err := j.settleDoubt(now)
		if err == nil {
			err = j.member.Leave(j.work, unfinished)
		}
		if err != nil && !errors.Is(err, registry.ErrSessionLost) {
			if hard {
				j.log.Error("leaving the job; the session's end will do it", zap.Error(err))
			} else {
				j.failed(now, "leaving the job", err)
				return false
			}
		}
	}
	why := j.exit.leaving
	if j.exit.draining {
		why = "the host is stopping"
	}
	j.dropTrigger(event.SkipElsewhere, why+" before the job was idle")
	for _, it := range j.sorted(func(it *item) bool { return it.due != nil && it.run == nil }) {
		cause := event.SkipLater
		if it.due.Trigger != 0 {
			cause = event.SkipElsewhere
		}
		j.skipItem(it, *it.due, cause, why+"; the next owner of the item makes up for it if misfire is on")
	}
	j.giveUp(unfinished, why)
	j.flushQuotas()
	j.Emit(event.Event{Kind: event.JobRemoved, Reason: why, Items: unfinished})
	return true
}

// adopt runs what a commit had begun whose answer was lost, and what cannot be
// handed back. A host that leaves owes it instead.
func (j *job) adopt(now moment, claims []coordination.Claim) {
	if j.exit.leaving == "" && !j.exit.draining && j.module.exec != nil {
		j.takeOver(now, "", claims)
	}
}

// resolve settles a doubt that nothing else has settled: what was asked for is
// not asked for again if the item was disabled since, say, or if a list of runs
// that was to be taken over is gone because it was.
func (j *job) resolve(now moment) {
	if now.Before(j.refusal.retryAt) {
		return // it has gone wrong just now
	}
	if err := j.settleDoubt(now); err != nil {
		j.failed(now, "resolving commits of unknown outcome", err)
	}
}

// settleDoubt deals with what was begun by a commit whose answer was lost, and
// was not asked for again since: a scheduled instant is handed back, and is due
// again, other runs are adopted.
func (j *job) settleDoubt(now moment) error {
	adopted, err := j.member.Resolve(j.work, now.wall, j.exit.leaving == "" && !j.exit.draining)
	if len(adopted) > 0 {
		j.adopt(now, adopted)
	}
	return err
}

// fired reports whether the goroutines of all fires have ended.
func (j *job) fired() bool {
	for f := range j.fires {
		if !f.GuestsDone {
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
	if j.member.View.Enabled && !j.wasEnabled {
		j.calendar.NotBefore = now.wall // what was due while it was disabled has no catch-up
		for _, it := range j.sorted(func(it *item) bool { return it.run == nil && it.due != nil && it.due.Trigger == 0 }) {
			j.skipItem(it, *it.due, event.SkipDisabled, "this server was disabled for the job")
			it.due = nil
		}
	}
	j.wasEnabled = j.member.View.Enabled
	switch {
	case j.pace.looked:
		j.pace.pause = lookAgain
	case now.Before(j.pace.lookedAt.Add(j.pace.pause)):
		j.readShare(now)
		return
	default: // a registry that is so slow is not to be asked the same again and again
		j.pace.pause = min(2*j.pace.pause, commitTimeout)
	}
	if !j.member.View.FlagSeen.IsZero() {
		j.member.View.FlagSeen = now.instant(j.flagSeen) // the clock may have been set since
	}
	if !j.member.View.DeferredSeen.IsZero() {
		j.member.View.DeferredSeen = now.instant(j.deferredSeen)
	}
	j.member.View.Clock = j.host.registry.time(now.Time)
	v := j.member.View
	if j.announce {
		if err := j.member.Announce(j.work, j.detail()); err != nil {
			j.failed(now, "announcing what this host runs", err)
			return
		}
		j.announce = false
	}
	if action := j.member.Reconcile(now.wall); action != coordination.ActionNone && j.mayStep(now) {
		j.pace.looked, j.pace.lookedAt, j.pace.wrote = false, now.Time, 0
		sharded, err := j.member.Act(j.work, action, now.wall)
		if err != nil {
			j.failed(now, "coordination", err)
			j.pace.wrote = 0
		}
		j.pace.waitsFor, j.pace.lookedAt = j.pace.wrote, time.Now()
		if sharded.Commits > 0 {
			j.Emit(event.Event{Kind: event.Sharded, Total: sharded.Division.Total, Reason: why(v)})
		}
	}
	if slices.Contains(v.Division.Draining, v.Self.ID) && !v.Necessary && !now.Before(j.refusal.retryAt) {
		// The items were divided while it wanted to leave, and it stays; or a
		// hand has written that it leaves.
		err := j.member.Announce(j.work, j.detail())
		if err == nil {
			err = j.member.AskForSharding(j.work)
		}
		if err != nil {
			j.failed(now, "asking for a share", err)
		}
		j.pace.looked, j.pace.lookedAt = false, now.Time
	}
	if !now.Before(j.refusal.retryAt) {
		j.readShare(now)
		j.recoverCrashed(now)
		j.sweep(now)
	}
}

// mayStep says whether the next step of the common business may be taken. One
// that follows many others has to wait.
func (j *job) mayStep(now moment) bool {
	if now.Before(j.pace.stepAt) {
		return false
	}
	if j.pace.steps.AllowN(now.Time, 1) {
		return true
	}
	j.pace.stepAt = now.Add(stepInterval)
	if !now.Before(j.pace.reportedAt.Add(longestSleep)) {
		j.pace.reportedAt = now.Time
		j.log.Warn("the hosts of the job are not coming to rest: its items are divided, or its leader is elected, again and again; slowing down",
			zap.String("because", why(j.member.View)), zap.Duration("step every", stepInterval))
	}
	return false
}

// readShare reads what this host owns if the division has changed.
func (j *job) readShare(now moment) {
	if j.knowsShare() || now.Before(j.refusal.retryAt) {
		return
	}
	if j.stale.reread {
		j.rereadShare(now)
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

// staleShare is what a begin found out that met another state of the registry than
// this host knew.
type staleShare struct {
	reread bool      // the share is to be read again, before anything begins
	atOnce bool      // in a pass of the loop that follows this one at once
	count  int       // such begins in a row
	at     time.Time // the last of them
}

// knowsShare reports whether what this host knows of its share is what was divided.
func (j *job) knowsShare() bool { return !j.stale.reread && j.member.Share.Current(j.member.View) }

// foundStale has the share read again in a later pass of the loop, after a begin that
// found the registry to be otherwise: at once, but for several of them in a row.
func (j *job) foundStale(now moment) {
	s := &j.stale
	since := now.Sub(s.at)
	if since > longestSleep {
		s.count = 0
	}
	s.reread, s.at = true, now.Time
	s.count++
	j.againAt = now.Add(againPause)
	if s.often() {
		j.againAt = now.Add(min(againPause<<min(s.count, 10), commitTimeout))
		j.repairs.refused = true
	}
	s.atOnce = since > againPause && !s.often()
}

// often reports whether so many begins in a row found the registry to be otherwise that
// no host seems to be on the way to change anything.
func (s *staleShare) often() bool { return s.count > 3 }

// rereadShare reads every item that does not run here again. If that goes on and on,
// the host looks for external edits to repair, asks for a division, and tries less
// often.
func (j *job) rereadShare(now moment) {
	j.stale.reread = false
	if j.stale.often() && j.stale.count%4 == 0 && !j.member.View.Necessary && j.member.View.Leader != "" {
		if err := j.member.AskForSharding(j.work); err != nil {
			j.failed(now, "asking for a division", err)
			return
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

// takeShare reads the share, and draws the conclusions: items come and go, and what
// was due for those that have come is found.
func (j *job) takeShare(now moment, known map[int]coordination.ItemState) {
	former := j.member.Share
	read, err := j.member.ReadShare(j.work, known)
	if err != nil {
		j.failed(now, "reading the share", err)
		return
	}
	if !read {
		return
	}
	share := j.member.Share
	gone := j.letGo(share)
	gained := j.gain(share)
	for _, n := range share.Pending {
		if it := j.items[n]; it != nil && it.run != nil {
			it.run.Move()
		}
	}
	if share.Edited(former) && !j.member.View.Necessary && j.member.View.Leader != "" {
		if err := j.member.AskForSharding(j.work); err != nil {
			j.failed(now, "asking for a division", err)
		}
	}
	if len(share.Items) > 0 || gone > 0 {
		j.Emit(event.Event{Kind: event.Assigned, Items: slices.Sorted(maps.Keys(share.Items))})
	}
	j.findDue(now, share, gained)
}

// letGo forgets the items that are not in the share any more; what runs goes on. It
// returns how many this host has lost.
func (j *job) letGo(share coordination.Share) (lost int) {
	for n, it := range j.items {
		if _, mine := share.Items[n]; mine {
			continue
		}
		if it.owned {
			lost++
		}
		if it.due != nil && aheadOf(it.state.Record, *it.due) { // it would not
			j.skipItem(it, *it.due, event.SkipElsewhere, string(coordination.RefusedPast))
		}
		it.owned, it.due = false, nil // its owner now finds what is due
		if it.run == nil {
			delete(j.items, n)
		}
	}
	return lost
}

// gain takes over the states of the share's items, and returns those that this host
// did not own before.
func (j *job) gain(share coordination.Share) (gained []int) {
	for n, state := range share.Items {
		it := j.items[n]
		if it == nil {
			it = &item{number: n}
			j.items[n] = it
		}
		if it.run == nil {
			j.reread(it, state)
		}
		if !it.owned {
			it.owned = true
			gained = append(gained, n)
		}
	}
	return gained
}

// findDue finds what is due for the items that this host has gained, and for those
// that stay after all: instants that were missed, the one that is parked, and trigger
// rounds.
func (j *job) findDue(now moment, share coordination.Share, gained []int) {
	for _, n := range gained {
		if share.Foreign.Contains(n) {
			before := now.wall
			if !j.calendar.Parked.IsZero() { // Java hosts wait for the division, and then run the instant
				before = later(j.calendar.Parked.Add(-time.Millisecond), now.wall)
			}
			j.notOwed(j.items[n], before)
		}
	}
	stays := handedBack(j.items, share, gained)
	if at := j.calendar.Parked; !at.IsZero() {
		j.calendar.Parked = time.Time{}
		j.fire(now, at)
		j.makeUp(now.wall, gained)
	} else if len(gained)+len(stays) > 0 {
		j.makeUp(now.wall, slices.Concat(gained, stays))
	}
	for _, n := range slices.Concat(gained, stays) {
		it := j.items[n]
		if round := it.state.Record.HandedBackTrigger(); round != 0 {
			j.owesRound(now, it, round)
		}
	}
	if j.member.View.Trigger != 0 && j.trigger.consumed < share.Round {
		return // this host's own trigger is for them as well
	}
	for _, n := range share.Owing {
		if it := j.items[n]; it != nil && it.owned {
			j.owesRound(now, it, share.Round)
		}
	}
}

// owesRound notes that an item is to run in a trigger round, unless it runs or owes
// something.
func (j *job) owesRound(now moment, it *item, round int64) {
	if j.member.View.Enabled && it.run == nil && it.due == nil && !j.beyond(it) {
		it.due = &coordination.Fire{Instant: now.wall.UnixMilli(), Trigger: round, Source: string(abi.SourceTrigger)}
	}
}

// handedBack are the idle items whose run was handed back because they were to move,
// and that stay after all; not those gained.
func handedBack(items map[int]*item, share coordination.Share, gained []int) (stay []int) {
	for n, it := range items {
		r := it.state.Record
		if it.owned && it.run == nil && it.due == nil && !share.Pending.Contains(n) && !slices.Contains(gained, n) &&
			(r.HandedBack() != 0 || r.HandedBackTrigger() != 0) {
			stay = append(stay, n)
		}
	}
	return sortedInts(stay)
}

// recoverCrashed takes over from hosts that died, or notes what is lost.
func (j *job) recoverCrashed(now moment) {
	r := &j.recovery
	dead := j.member.View.Crashed()
	marked := len(j.member.View.FailoverItems) > 0 // by Java hosts
	if len(dead) == 0 && !marked && !j.takers.Standing {
		*r = recovery{pause: recoverPause, led: r.led}
		return
	}
	if r.at.IsZero() && j.member.View.Mixed() {
		r.at = now.Add(javaGrace)
	}
	if r.at.IsZero() && len(dead) > fewCrashed && !j.member.View.IsJanitor() {
		r.at = now.Add(recoverPause)
	}
	waits := now.Before(r.at)
	leads := j.member.View.Leading()
	looks := leads && !r.led && (r.attempts > 0 || !r.yieldUntil.IsZero()) // for what only a leader writes down
	r.led = leads
	if waits && !looks {
		return
	}
	again := r.attempts > 0
	if len(dead) > 1 {
		var err error
		if dead, err = j.member.Bury(j.work, dead, again || j.member.View.IsJanitor()); err != nil {
			j.failed(now, "looking for what crashed hosts have left", err)
			return
		}
	}
	if marked || len(dead) == 0 {
		dead = append(dead, "") // whatever Java hosts have marked; and it leaves the latch
	}

	// A share is taken whole, as the items of a fire are: they queue for the
	// workers. A host without a free one lets the others go first, once. What is
	// lost is written down at once, by any.
	if !waits && j.running() >= j.concurrency() && r.yieldUntil.IsZero() {
		r.yieldUntil = now.Add(2 * r.pause) // the others look again after one
	}
	yields := now.Before(r.yieldUntil)
	limit := math.MaxInt
	if waits || yields || j.module.exec == nil {
		limit = 0
	}
	var busy coordination.Items
	for _, it := range j.sorted(func(it *item) bool { return it.run != nil }) {
		busy = append(busy, it.number)
	}
	for _, id := range dead {
		if !j.recoverFrom(now, coordination.Recovery{Dead: id, All: again, Limit: limit, Busy: busy, Now: now.wall}) {
			return
		}
	}

	// What is left is another host's share, or disabled: look again later.
	if waits {
		return
	}
	if yields {
		r.at = r.yieldUntil
		return
	}
	r.attempts++
	r.at = now.Add(r.pause)
	r.pause = min(2*r.pause, longestRecoverPause)
}

// recoverFrom takes over what one dead host has left. It reports false after an error.
func (j *job) recoverFrom(now moment, r coordination.Recovery) bool {
	dead := r.Dead
	out, err := j.member.Recover(j.work, r)
	for _, lost := range out.Lost {
		why := "failover is off"
		if lost.State.Record.Owner != dead {
			why = "it has been begun anew since"
		}
		j.skipRun(lost.Item, lost.Fire, coordination.OutcomeLost, event.SkipLost, "its host "+dead+" died while it ran, and "+why)
	}
	for _, h := range out.Held {
		j.heldBack(h.Item, h.Fire, h.State.Record)
	}
	for _, k := range out.Killed {
		j.skipRun(k.Item, k.Fire, abi.OutcomeCancelled, event.SkipDisabled, k.State.Record.Reason)
	}
	for _, e := range out.Elsewhere {
		j.skipRun(e.Item, e.Fire, coordination.OutcomeElsewhere, event.SkipElsewhere, "its host "+dead+" died while it ran, and a Java host has run it again")
	}
	if err != nil {
		j.failed(now, "recovering items of "+dead, err)
		return false
	}
	j.takeOver(now, dead, out.Claimed)
	return true
}

// sweep removes unowned marks: the janitor does at the slow
// reconcile interval, and when it has become that; any host does that a mark
// stands in the way of.
func (j *job) sweep(now moment) {
	if janitor := j.member.View.IsJanitor(); janitor != j.janitor {
		j.janitor = janitor
		if janitor && j.sweepAt.IsZero() {
			j.sweepAt = now.Time
		}
	}
	if j.sweepAt.IsZero() || now.Before(j.sweepAt) {
		return
	}
	var retired []string
	swept, err := j.member.Sweep(j.work, now.wall)
	if keep := j.host.cfg.KeepServers; err == nil && j.janitor && keep > 0 {
		at := j.member.View.Clock // the registry's
		if at.IsZero() {
			at = now.wall
		}
		retired, err = j.member.RetireServers(j.work, at, keep)
	}
	j.sweepAt = time.Time{}
	if minutes := j.member.View.Config.ReconcileIntervalMinutes; minutes > 0 && j.janitor {
		j.sweepAt = now.Add(time.Duration(minutes) * time.Minute)
	}
	if swept.JavaLives {
		j.sweepAt = soonest(j.sweepAt, now.Add(longestRecoverPause))
	}
	if err != nil {
		j.failed(now, "sweeping stale marks", err)
		j.sweepAt = j.refusal.retryAt
	}
	if len(retired) > 0 {
		j.log.Info("removed servers that had no instance of the job any more", zap.Int("servers", len(retired)), zap.Duration("for", j.host.cfg.KeepServers))
	}
	for _, path := range swept.Nodes {
		j.log.Warn("removed an unowned mark", zap.String("node", path))
	}
	if len(swept.Nodes) > 0 {
		for _, it := range j.items {
			it.held = false // it may have been held by one of them
		}
	}
}

// why says what made the leader divide the items.
func why(v coordination.View) string {
	if reason := v.DivisionStale(); reason != "" {
		return reason
	}
	return "asked for by the flag"
}
