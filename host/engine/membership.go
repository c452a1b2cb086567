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
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/config/timetable"
	"github.com/wasmjob/wasmjob/host/engine/admission/arrivals"
	"github.com/wasmjob/wasmjob/host/engine/changes"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/schedule"
	"github.com/wasmjob/wasmjob/internal/text/reason"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// join registers this host for the job. It reports false if it has not.
func (j *job) join(now moment) bool {
	before := j.module.err
	j.turn.Rest(j.work.Done(), func() { j.module.err = check(j.wanted) })
	if j.module.err != nil {
		j.settled.Store(true)
		if before == nil || before.Error() != j.module.err.Error() {
			j.Emit(event.Event{Kind: event.JobError}.Why(reason.Of(j.module.err)))
		}
		return false
	}
	if !j.term.arrivals.Enter(j, arrivals.Claim{Due: firstDue(j.wanted.Definition, now)}) {
		return false
	}
	defer j.term.arrivals.Leave(j)
	j.registered = true // perhaps
	if zone, err := schedule.Zone(j.wanted.Definition.TimeZone); err == nil {
		j.cron.zone = zone // published to the others
	}
	var wait time.Duration
	joining := coordination.Joining{
		Definition: j.wanted.Definition, Former: j.host.former(j.name), JobClass: j.wanted.JobClass,
		Detail: j.detail(), Accept: j.host.cfg.Ceilings.Check, CheckRecord: j.term.registry.CheckRecord, Applied: &j.joining.applied, Wait: &wait, Waited: j.joining.waited,
		Said: j.says(now), Recorded: func(r registry.Center) registry.Center { return changelog.By(r, j.member.Layout) },
	}
	err := j.member.Join(j.work, joining)
	if err == nil && wait > 0 {
		j.joining.waited += wait
		j.refusal.retryAt = time.Now().Add(wait) // another writes this host's name down
		return false
	}
	applied := j.joining.applied
	j.joining.applied, j.joining.waited = coordination.Applied{}, 0
	var out *coordination.StayOut
	if errors.As(err, &out) {
		j.keepOut(now, out)
		return false
	}
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
	j.brought(applied)
	err = j.watch.control.open(j.work, j.member.Registry, coordination.Control(j.member.Layout, j.member.Self)...)
	if err != nil {
		j.joining.err = err
		j.failed(now, "watching the job", err)
		return false
	}
	j.member.View, j.seen = coordination.View{Layout: j.member.Layout, Self: j.member.Self, Accept: j.host.cfg.Ceilings.Check}, false
	j.announce = false
	j.member.Share, j.member.Runs, j.member.RunsVersion = coordination.Share{}, tree.Runs{}, 0
	j.joined, j.pace.looked = true, true
	j.sweeping.janitor, j.sweeping.at = false, time.Time{}
	j.Emit(event.Event{Kind: event.JobAdded, Source: sourceOf(j.wanted.Definition), Digest: j.wanted.Module.Digest(), Reason: joinWords(applied.Changed), Edit: changes.ByFile(applied, j.wanted.File, j.host.cfg.ServerIP)})
	return true
}

// sourceOf is the Source of an event about a job with a schedule, or none.
func sourceOf(c jobconfig.Configuration) abi.Source {
	if !timetable.Has(c) {
		return abi.SourceTrigger
	}
	return ""
}

// firstDue is when the job would fire next by its definition here; zero if that says
// nothing of it.
func firstDue(d jobconfig.Configuration, now moment) time.Time {
	table, _ := timetable.New(d, "") // when the job starts after its instant does not matter
	if table == nil {
		return time.Time{}
	}
	return table.Next(now.wall)
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
	s = s.Raise(j.term.registry.Base())
	j.member.Observe(s)
	j.outside.See(s, j.member.Layout, j.member.Self)
	newest := int64(0)
	var unread registry.Node
	for _, n := range s {
		newest = max(newest, n.Mzxid)
		if n.Unread != nil && (unread.Path == "" || n.Path < unread.Path) {
			unread = n
		}
	}
	j.seeUnread(unread.Unread)
	// One that waited in the channel while the step was taken does not show it.
	j.pace.looked, j.seen = j.pace.looked || newest >= j.pace.waitsFor, true
	j.seeJava(j.host.now(), before)
	for _, it := range j.items {
		it.held = false
	}
	v := j.member.View
	if v.ConfigErr != nil && (before.ConfigErr == nil || before.ConfigErr.Error() != v.ConfigErr.Error()) {
		j.log.Error("configuration in the registry refused; the last good one stays in force", zap.Error(v.ConfigErr))
		j.Emit(event.Event{Kind: event.JobError}.Why(reason.Of(v.ConfigErr)))
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
		j.trigger.look = true // what is queued is dropped
		j.trigger.advanceQueue(now)
		j.quit(JobRemoved, removedText(j.name))
		j.out(now)
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
	if _, over := j.press(now); !over || j.rests(now) {
		return
	}
	if now.Before(j.exit.stopAt) {
		j.againAt = j.exit.stopAt
		return
	}
	j.limits.returnAll()
	if !j.limits.returnUnneeded(now, true) {
		return
	}
	if err := j.member.NoteStop(j.work, now.wall); err != nil {
		j.failed(now, "writing down that this host is stopped", err)
		return
	}
	unfinished := j.ends.items()
	if len(unfinished) > 0 {
		j.offsets.flush(now) // the host that goes on begins there
	}
	if err := j.member.Leave(j.work); err != nil {
		j.failed(now, "leaving the job", err)
		return
	}
	j.registered, j.exit.noted = false, true
	why := reason.New(reason.InstanceRemoved)
	j.handOver(why)
	j.giveUp(unfinished, why)
	j.Emit(event.Event{Kind: event.JobStopped, Items: unfinished}.Why(why))
	j.outside.Stopped()
	j.quit(JobStopped, stoppedText(j.name))
	j.out(now)
}

func removedText(job string) reason.Reason {
	return reason.New(reason.JobRemoved, words.Command("job restore", job))
}

func stoppedText(job string) reason.Reason {
	return reason.New(reason.StoppedByOperator, words.Command("job start", job))
}

// says is what this host says by its definition.
func (j *job) says(now moment) tree.Word {
	return tree.Word{By: tree.ByFile + j.wanted.File + " on host " + j.host.cfg.ServerIP, Since: now.wall.UnixMilli()}
}

// keepOut stays out of a job that this host has not joined: somebody wants it so.
func (j *job) keepOut(now moment, out *coordination.StayOut) {
	j.joining.err, j.exit.noted, j.exit.said = nil, true, out.Said
	if out.Again {
		// A host of the version before, which does not know what is wanted, has made it again.
		err := operate.Remove(j.work, changelog.By(j.member.Registry, j.member.Layout), j.member.Layout, out.Said, false)
		if err != nil && !errors.Is(err, tree.ErrRemoved) {
			j.failed(now, "removing the job again, which a host of an earlier version has brought back", err)
			return
		}
		j.log.Warn("the job was removed, and a host of an earlier version has brought it back; removed it again")
	}
	switch {
	case !j.exit.left.IsZero():
		return
	case out.Removed:
		j.trigger.look = true // what is queued is dropped
		j.trigger.advanceQueue(now)
		j.quit(JobRemoved, removedText(j.name))
	default:
		j.quit(JobStopped, stoppedText(j.name))
	}
	j.out(now)
}

// out does what a host has to do that is out of a job. It reports true if it may come back.
func (j *job) out(now moment) (back bool) { return j.clearAway(now) && j.stayOut(now) }

// stayOut watches, once nothing of this host is left in a job that it is out of, whether
// it is still to stay out. It reports false while it is. Nothing of it is remembered: what
// is wanted stands in the registry.
func (j *job) stayOut(now moment) (back bool) {
	if j.rests(now) {
		return false
	}
	if !j.exit.noted {
		if err := j.member.NoteRemoval(j.work, j.host.former(j.name), now.wall); err != nil {
			j.failed(now, "writing down that the job was removed", err)
			return false
		}
		j.exit.noted = true
	}
	if j.watch.outside.snapshots == nil {
		j.watch.leaveOutside()
		if err := j.watch.outside.open(j.work, j.term.registry, coordination.Outside(j.member.Layout)...); err != nil {
			j.failed(now, "watching whether the job is wanted here", err)
		}
		return false
	}
	if j.watch.seen == nil {
		return false
	}
	if l := j.member.Layout; !j.watch.seen.Data(l.Wanted()).Exists && !j.watch.seen.Data(l.Config()).Exists {
		// Another program has deleted our nodes, too, after this was written down.
		j.exit.noted, j.watch.seen = false, nil
		return j.stayOut(now)
	}
	err := coordination.StaysOut(j.watch.seen, j.member.Layout, j.member.Self.ID, j.wanted.Definition.YAML())
	var out *coordination.StayOut
	if errors.As(err, &out) {
		j.exit.said = out.Said
		if out.Again {
			j.watch.seen = nil // the next snapshot shows that it is done
			j.keepOut(now, out)
		} else {
			j.exit.left, j.exit.state = stoppedText(j.name), JobStopped
			if out.Removed {
				j.exit.left, j.exit.state = removedText(j.name), JobRemoved
			}
		}
		return false
	}
	j.changed = false
	j.rejoin(now)
	return true
}

// leaveOutside ends that watch.
func (w *watch) leaveOutside() {
	w.outside.close()
	w.seen = nil
}

// quit stops looking after the job while somebody wants it so; see stayOut.
func (j *job) quit(state JobState, why reason.Reason) {
	j.exit.left, j.exit.state = why, state
	j.term.chains.forget(j.name)
	j.calendar.Next = time.Time{}
	j.settled.Store(true)
	if state == JobRemoved { // of one that is stopped here, other hosts have it
		for _, e := range j.backfill.abandon() {
			j.Emit(e)
		}
		j.dropOwed(why)
	}
	j.unwatchAll()
	j.trigger.drop(event.SkipDisabled, why)
	j.Emit(event.Event{Kind: event.JobRemoved}.Why(why))
	j.changed = false // a definition is applied when the host comes back
	for n, it := range j.items {
		if it.run == nil {
			delete(j.items, n)
		} else {
			it.owned = false
			it.Drop()
			it.run.Cancel(abi.CancelStop)
		}
	}
	for f := range j.fires {
		f.ReturnQueued()
	}
}

// dropOwed reports what items of this host still owe, and forgets it: the job is over here. The trigger that this host keeps is reported as
// a whole.
func (j *job) dropOwed(why reason.Reason) {
	kept := int64(0)
	if j.member.View.Trigger != 0 {
		kept = j.trigger.round
	}
	for _, it := range j.items.sorted(func(it *item) bool { return it.owned }) {
		waiting := slices.DeleteFunc(it.Waiting(), func(f tree.Fire) bool { return f.Trigger != 0 && f.Trigger == kept })
		j.dues.dropWaiting(it, waiting, event.SkipDisabled, why)
		for _, asked := range it.Asks() {
			if asked.Trigger != kept {
				j.reports.skip(it, asked, event.SkipDisabled, why)
			}
		}
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
	case j.registered && j.rests(now):
		return false
	case j.registered:
		if err := j.member.Leave(j.work); err != nil {
			j.failed(now, "leaving the job", err)
			return false
		}
		j.registered = false
	}
	return true
}

// withdraw finishes what runs and leaves the job. It reports true when the
// host has left.
func (j *job) withdraw(now moment) bool {
	if !j.exit.begun {
		j.exit.begun = true
		j.windDown()
		if j.exit.draining {
			j.items.logDrain(j.log)
		}
	}
	if !j.exit.announced && j.joined && j.exit.left.IsZero() && j.running() > 0 && !j.rests(now) {
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
	if j.seen && j.member.View.Exists && j.exit.left.IsZero() {
		j.watchExtra(now)
	}
	hard, over := j.press(now)
	if !over {
		return false
	}
	refused := hard && j.rests(now)
	unfinished := j.ends.items()
	j.limits.returnAll()
	if !j.limits.returnUnneeded(now, true) && !hard {
		return false
	}
	if j.registered {
		if j.rests(now) && !refused {
			return false
		}
		if len(unfinished) > 0 {
			j.offsets.flush(now) // the host that goes on begins there
		}
		j.exit.triedAt = now.Time
		err := j.settleDoubt(now)
		if err == nil {
			err = j.member.Leave(j.work)
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
		why = reason.New(reason.HostStops)
	}
	j.handOver(why)
	j.giveUp(unfinished, why)
	j.quotas.flush(j.Emit)
	j.Emit(event.Event{Kind: event.JobRemoved, Items: unfinished}.Why(why))
	return true
}

// handOver reports what this host owes in the job and leaves to others. Rounds of triggers end with the last host that an operator stops.
func (j *job) handOver(why reason.Reason) {
	round, whyRound := event.SkipElsewhere, reason.New(reason.NextOwner, why)
	if j.exit.stopped && len(j.member.View.Instances) == 0 {
		round, whyRound = event.SkipDisabled, why
	}
	j.trigger.drop(round, reason.New(reason.BeforeIdle, why))
	for _, it := range j.items.sorted(func(*item) bool { return true }) {
		owed := it.Asks()
		if it.Due != nil {
			owed = append(owed, *it.Due)
		}
		for _, owes := range owed {
			if owes.Trigger != 0 {
				j.reports.skip(it, owes, round, whyRound)
			} else {
				j.reports.skip(it, owes, event.SkipLater, reason.New(reason.NextOwner, why))
			}
		}
	}
}

func joinWords(words []string) string { return strings.Join(words, ", ") }

// coordinate takes at most one step of the common business: election, the
// flag, division, the own share, crashed hosts. After a step that wrote
// something it waits for the snapshot that shows it.
func (j *job) coordinate(now moment) {
	if j.member.View.Enabled && !j.wasEnabled {
		j.enabled(now)
	}
	if !j.member.View.Enabled && j.wasEnabled { // as in ElasticJob, where the resharding ends the loop
		for _, it := range j.items {
			if it.run != nil {
				it.run.Move()
			}
		}
	}
	j.wasEnabled = j.member.View.Enabled
	if !j.pace.mayDecide(now) {
		j.readShare(now)
		return
	}
	j.sightings.date(&j.member.View, now)
	j.member.View.Clock = j.host.registry.time(now.Time)
	v := j.member.View
	if j.announce {
		if err := j.member.Announce(j.work, j.detail()); err != nil {
			j.failed(now, "announcing what this host runs", err)
			return
		}
		j.announce = false
	}
	action := j.member.Reconcile(now.wall)
	if action != coordination.ActionNone || j.recovery.due(now) || j.sweeping.due(now) {
		// While very many jobs have to, this one waits in line, and its loop is free to begin what is due.
		claim := j.claim()
		if claim.Urgent {
			defer j.hurry()()
		}
		j.pace.waits = !j.term.steps.Enter(j, claim)
		defer func() {
			if !j.pace.waits {
				j.term.steps.Leave(j)
			}
		}()
	}
	if action != coordination.ActionNone && !j.pace.waits && j.pace.mayStep(now, j.logRestless) {
		j.pace.looked, j.pace.lookedAt, j.pace.wrote = false, now.Time, 0
		sharded, err := j.member.Act(j.work, action, now.wall)
		if err != nil {
			j.setback(now, "coordination", err)
			j.pace.wrote = 0
		}
		j.pace.waitsFor, j.pace.lookedAt = j.pace.wrote, time.Now()
		if sharded.Commits > 0 {
			j.Emit(event.Event{Kind: event.Sharded, Total: sharded.Division.Total}.Why(why(v)))
		}
	}
	if slices.Contains(v.Division.Draining, v.Self.ID) && !v.Necessary && !j.rests(now) {
		// The items were divided while it wanted to leave, and it stays; or an
		// external edit says that it leaves.
		err := j.member.Announce(j.work, j.detail())
		if err == nil {
			err = j.member.AskForSharding(j.work)
		}
		if err != nil {
			j.failed(now, "asking for a share", err)
		}
		j.pace.looked, j.pace.lookedAt = false, now.Time
	}
	if !j.rests(now) {
		j.readShare(now)
	}
	if !j.rests(now) && !j.pace.waits {
		j.recovery.takeFromCrashed(now)
		j.sweeping.sweep(now, j.limits.limited() || j.rates.rated())
	}
}

// claim says when the job is to take its step: before jobs that nothing waits for, if a fire of it goes on or waits, or one of a job
// that it comes after.
func (j *job) claim() arrivals.Claim {
	for _, it := range j.items {
		if it.owned && it.run == nil && it.Next() != nil {
			return arrivals.Claim{Urgent: true}
		}
	}
	links, soon := j.term.chains.ahead(j.name)
	return arrivals.Claim{Urgent: soon, Ahead: links}
}

// logRestless says in the log that there are too many steps.
func (j *job) logRestless() {
	j.log.Warn("the hosts of the job are not coming to rest: its items are sharded, or its leader is elected, again and again; slowing down",
		zap.Stringer("because", why(j.member.View)), zap.Duration("step every", stepInterval))
}

// why says what made the leader divide the items.
func why(v coordination.View) reason.Reason {
	return cmp.Or(v.DivisionStale(), reason.New(reason.FlagSet))
}

// decline leaves the job once what runs has ended, and tries to join again
// later.
func (j *job) decline(now moment) {
	if j.running() > 0 || j.rests(now) {
		return
	}
	why := j.member.View.ConfigErr
	if err := j.member.Leave(j.work); err != nil {
		j.failed(now, "leaving the job", err)
		return
	}
	beyond := reason.New(reason.BeyondCeilings)
	j.trigger.drop(event.SkipRefused, beyond)
	j.unwatchAll()
	clear(j.items)
	j.Emit(event.Event{Kind: event.JobRemoved}.Why(beyond))
	j.rejoin(now)
	j.refuse(now, why)
}

// unwatchAll ends the watches of the job.
func (j *job) unwatchAll() {
	j.watch.control.close()
	j.endExtra()
	j.watch.endMarks()
	j.chain.unwatch()
	j.backfill.stop()
}
