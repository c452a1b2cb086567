package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/robfig/cron/v3"
	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/admin/changelog"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/config/timetable"
	"github.com/wasmjob/wasmjob/host/engine/admission/arrivals"
	"github.com/wasmjob/wasmjob/host/engine/changes"
	"github.com/wasmjob/wasmjob/host/engine/run"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/schedule"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

const (
	// commitTimeout bounds every exchange with the registry.
	commitTimeout = 10 * time.Second
	// retryPause is how long a job waits after the registry refused.
	retryPause = time.Second
	// troubleShown is how long the status shows a refusal after the last.
	troubleShown = 15 * time.Second
	// listenerShown is how long the status shows that hosts did not come to a listener.
	listenerShown = 5 * time.Minute
	// lookAgain is how long a step that changed the registry waits for the
	// snapshot that shows it.
	lookAgain = time.Second
	// longestSleep bounds the timer.
	longestSleep = time.Minute
	// completionWindow is how long a first completed item waits for others.
	completionWindow = 50 * time.Millisecond
	// completionInterval is how soon after a completion the next is written,
	// while other items go on.
	completionInterval = 100 * time.Millisecond
	// againPause is how long a begin waits that met another state of the
	// registry than it knew.
	againPause = 100 * time.Millisecond
	// tallyInterval is how often this host publishes how many items succeeded
	// and failed here.
	tallyInterval = 5 * time.Minute
	// offsetInterval is how often staged offsets become durable.
	offsetInterval = time.Second
)

// job is one job on this host for one term: its loop. It is made of layers, each of
// which uses those below it and none above:
//
//	job      joins and leaves, coordinates with other hosts, follows the definition
//	runner   begins items, and completes what has ended
//	itemSet  the items that this host owns or runs, and what is due for them
//	place    what the job is by its configuration, and whether this host is in it
//	access   this host's membership, and what the registry refused
//	shared   what other goroutines use as well
//
// All fields but those of shared belong to the goroutine in run; nothing else touches
// them.
type job struct {
	runner

	changed    bool // the definition or the module is not what was last applied
	configured configured
	settings   settings
	edits      changes.Seen
	wasEnabled bool
	watch      watch
	pace       pace
	election   queue // in ElasticJob's latches
	takers     queue
	sightings  sightings
	recovery   recovery
	ongoing    waits
	backfill   backfill
	timers     timers
}

// watch is the watches of a job. extra is a second one, of what stands in the way for a
// while.
type watch struct {
	control  feed
	extra    feed
	extraFor []registry.Query
	// outside is what this host watches while it stays out of the job, seen what that
	// has shown last.
	outside feed
	seen    registry.Snapshot
	marks   marks
}

// settings are what a job goes by, as they are reported.
type settings struct {
	inForce, reported event.Settings
	objects           bool // as last reported: something is refused beside them
}

// report takes note that the settings are reported, with or without an objection; news is false if they were already.
func (s *settings) report(objects bool) (now event.Settings, news bool) {
	news = s.inForce != s.reported || s.objects != objects
	s.reported, s.objects = s.inForce, objects
	return s.inForce, news
}

// configured is what schedule and executor were last made from.
type configured struct {
	config int64
	digest string
}

func newJob(t *term, wanted Job, self tree.JobInstance) *job {
	name := wanted.Definition.JobName
	j := &job{pace: newPace(), wasEnabled: true}
	j.term, j.host, j.name, j.log = t, t.host, name, t.host.log.With(zap.String("job", name))
	j.done, j.quotas = make(chan struct{}), newQuotas(t.host.cfg.Ceilings, name)
	j.guests.ended = make(chan struct{})
	j.turn = t.host.turns.Worker(wanted.Group)
	j.member = coordination.Member{Layout: tree.NewLayout(t.host.cfg.Namespace, name), Self: self}
	j.wanted, j.cron.zone = wanted, time.Local
	j.items, j.fires, j.ends.of = make(map[int]*item), make(map[*run.Fire]bool), make(map[int]run.Ended)
	cfg := &t.host.cfg
	share := cfg.Ceilings.Of(name, ceiling.Share).Slots(cfg.MaxConcurrency)
	j.identity.Store(&self.ID)
	j.reports = itemReports{&j.shared}
	j.dues = dues{job: &j.access, items: j.items, calendar: &j.calendar, reports: j.reports, guest: &j.guest, wanted: &j.wanted,
		refuses: func() bool { return !j.javaRefuses().IsZero() || !j.leaderRefuses().IsZero() }}
	admission := &admission{job: &j.access, guest: &j.guest, items: j.items, reports: j.reports, owe: j.dues.owe, parameter: j.dues.parameter, stillWaits: j.stillWaits}
	j.limits = limits{admission: admission, most: j.concurrency, guests: &j.guests}
	j.rates = rates{admission: admission}
	j.ongoing = waits{drainTimeout: cfg.DrainTimeout, each: j.eachWait, describe: j.waitsFor, until: j.waitsUntil, expired: j.Expired}
	j.clock, j.pause, j.pausing = clockCheck{job: &j.access}, pause{job: &j.access}, pausing{job: &j.access}
	j.killing = killing{job: &j.access, items: j.items, fires: j.fires, ends: &j.ends, denials: &j.denials, goesOn: j.goesOn}
	j.offsets = offsets{job: &j.access, items: j.items, denials: &j.denials}
	j.sweeping = sweeping{job: &j.access, items: j.items}
	j.repairs = repairs{job: &j.access, detail: j.detail}
	j.recovery = newRecovery(recoveryDeps{
		job: &j.access, denials: &j.denials, limits: &j.limits, runs: j.items.runs, from: j.recoverFrom,
		full: func() bool { return j.running() >= j.concurrency() }, hasModule: func() bool { return j.module.exec != nil },
	})
	j.trigger = waiting{job: &j.access, items: j.items, reports: j.reports, begin: j.begin, skip: j.skipFire, unfit: j.dues.unfit}
	j.chain = chain{job: &j.access, turn: chainTurn{
		enter: func() bool { return t.follows.Enter(j, arrivals.Claim{}) },
		leave: func() { t.follows.Leave(j) },
	}}
	j.known = &run.Job{
		Owner: owner{&j.shared}, Name: name, Layout: j.member.Layout, Log: j.log,
		Account: t.host.slots.Account(j.turn.Group, share), Slots: share,
		HostInfo: cfg.HostInfo, OnLog: cfg.OnLog, WholeLog: cfg.WholeLog, OnMetric: cfg.OnMetric, OnCall: cfg.OnCall, Traceparent: cfg.Traceparent,
	}
	j.member.Registry = counted{t.registry, &j.shared, &j.pace.wrote, true}
	j.election.Line, j.takers.Line = &j.member.Election, &j.member.Takeover
	j.timers = j.newTimers()
	j.mail.wake = make(chan struct{}, 1)
	j.mail.last = &JobStatus{Name: name, State: JobJoining, File: wanted.File, Module: wanted.ModuleFile, Instances: []string{}, Items: []ItemStatus{}}
	return j
}

// run is the job's loop. It returns when the host has left the job, or when
// work is done. Everything it started is joined then.
func (j *job) run(work context.Context) {
	defer close(j.done)
	j.work = work
	j.guests.admit(work)
	defer j.end()
	defer j.term.arrivals.Leave(j)
	defer j.term.steps.Leave(j)
	defer j.term.follows.Leave(j)
	alarm := newAlarm()
	defer alarm.Stop()
	defer j.turn.Give()
	// wakeAt is when there is something to do, whatever the mail says. wall is the wall clock when the loop woke last.
	var wakeAt, wall time.Time
	for {
		j.turn.Give()
		news := true // something besides ends of runs
		select {
		case <-work.Done():
			return
		case s, ok := <-j.watch.control.snapshots:
			if !ok {
				j.watch.control.snapshots = nil // the session is over; work ends next
				continue
			}
			j.see(s)
		case s, ok := <-j.watch.extra.snapshots:
			if !ok {
				j.watch.extra.snapshots = nil
				continue
			}
			j.seeExtra(j.host.now(), s)
		case s, ok := <-j.watch.outside.snapshots:
			if !ok {
				j.watch.outside.snapshots = nil
				continue
			}
			j.watch.seen = s
		case s, ok := <-j.watch.marks.feed.snapshots:
			if !ok {
				j.watch.marks.feed.snapshots = nil
				continue
			}
			j.seeMarks(j.host.now(), s)
		case s, ok := <-j.chain.feed.snapshots:
			if !ok {
				j.chain.feed.snapshots = nil
				continue
			}
			j.chain.observe(s)
		case s, ok := <-j.backfill.feed.snapshots:
			if !ok {
				j.backfill.feed.snapshots = nil
				continue
			}
			for _, e := range j.backfill.see(j.host.now(), j.member.Layout, s, j.member.View.Config.ShardingTotalCount) {
				j.Emit(e)
			}
		case <-j.mail.wake:
			news = false
		case <-alarm.due:
		}
		j.turn.Hurry = j.hurries()
		j.turn.Take(work.Done())
		j.turn.Hurry = false
		news = j.read() || news
		now := j.host.now()
		if now.wall.Before(wall.Add(-clockStep)) { // what is reckoned of the registry's wavers
			// An item that another host began by a clock that is right must not wait until
			// this clock is where it was. What was begun already is refused by its record.
			j.calendar.SetBack(now.wall)
		}
		wall = now.wall
		// While many items run, each end of one is not looked at by itself.
		if window := j.ends.windowEnd(); !news && len(j.ends.of) < j.live && now.Before(wakeAt) && now.Before(window) {
			j.answer()
			if window.Before(wakeAt) {
				wakeAt = window
			}
			alarm.set(wakeAt)
			continue
		}
		over := j.advance(now)
		left := over || j.exit.leaves() || !j.exit.left.IsZero() || j.exit.stopped
		j.rates.returnPlaces(now, left)
		j.limits.returnUnneeded(now, left)
		if over {
			return
		}
		j.recordOutside(now)
		j.ongoing.watch(now)
		j.answer()
		j.expect(now)
		wakeAt = now.Add(j.timers.sleep(now, !j.exit.leaves() && j.exit.left.IsZero() && j.joined && j.seen))
		alarm.set(wakeAt)
	}
}

// alarm wakes a loop at a time. A time that is over is no timer: two loops of one bubble that read expired timers at once end
// Go 1.26's race detector with a segmentation violation.
type alarm struct {
	*time.Timer
	due, over <-chan time.Time // over is ready
}

// newAlarm is due at once.
func newAlarm() *alarm {
	over := make(chan time.Time)
	close(over)
	a := &alarm{time.NewTimer(time.Hour), over, over}
	a.Stop()
	return a
}

func (a *alarm) set(at time.Time) {
	a.Stop()
	a.due = a.over
	if d := time.Until(at); d > 0 {
		a.Reset(d)
		a.due = a.C
	}
}

// hurries reports whether the loop wakes to begin or to end runs.
func (j *job) hurries() bool {
	j.mail.mu.Lock()
	ended := len(j.mail.ended) > 0
	j.mail.mu.Unlock()
	return ended || j.chain.goes || j.chain.news || (j.joined && j.calendar.Due(j.host.clock()))
}

// end stops guests and joins them.
func (j *job) end() {
	cause := context.Cause(j.work)
	if cause == nil {
		cause = errDrainOver
	}
	for _, it := range j.items {
		if it.run != nil && errors.Is(cause, errSessionLost) {
			it.run.Cancel(abi.CancelLost)
		}
	}
	cut := j.items.sorted(func(it *item) bool { return it.run != nil })
	if errors.Is(cause, errKilled) && len(cut) > 0 {
		var items tree.Items
		for _, it := range cut {
			items = append(items, it.number)
		}
		j.log.Warn("stopped at once: what was running counts as unfinished", zap.Stringer("items", items))
	}
	if j.work.Err() != nil {
		j.trigger.drop(event.SkipMissed, reason.New(reason.BeforeIdle, reason.New(reason.SessionEnded)))
	}
	j.guests.stop(cause)
	j.limits.unwatch()
	j.guests.running.Wait()
	close(j.guests.ended)
	j.known.Account.Close()
	if errors.Is(cause, errSessionLost) {
		j.mail.mu.Lock()
		j.mail.last = j.withoutSession()
		j.mail.mu.Unlock()
	}
	j.quotas.flush(j.Emit)
	for f := range j.fires {
		f.Exec.Release()
	}
	j.unwatchAll()
	j.watch.leaveOutside()
	j.host.cfg.OnNext(j.name, time.Time{})
	if j.module.exec != nil {
		j.module.exec.Release()
	}
	j.answer()
}

// read empties the mailbox into the loop's own fields. It reports whether
// there was more in it than ends of runs, and questions for the status.
func (j *job) read() (news bool) {
	j.mail.mu.Lock()
	update, ended, over, lines := j.mail.update, j.mail.ended, j.mail.over, j.mail.limits
	if !j.mail.leave.IsZero() || update != nil {
		j.exit.leaving = j.mail.leave
	}
	news = update != nil || len(over) > 0 || len(j.mail.limits) > 0 || j.mail.offsets || j.mail.beyond || j.mail.refused || !j.mail.leave.IsZero() || j.mail.drain
	j.exit.draining = j.exit.draining || j.mail.drain
	j.refusal.conflict, j.mail.refused = j.refusal.conflict || j.mail.refused, false
	j.mail.update, j.mail.ended, j.mail.over, j.mail.limits, j.mail.rests = nil, nil, nil, nil, false
	j.mail.mu.Unlock()
	if update != nil {
		before := j.wanted
		j.wanted = *update
		if !same(before, j.wanted) {
			j.changed = true
		}
		if j.exit.begun && !j.exit.draining {
			j.stay()
		}
	}
	for _, e := range ended {
		j.ends.hear(e)
	}
	for _, f := range over {
		f.GuestsDone = true
	}
	for _, n := range lines {
		n.line.hear(n.node, j.guest.Concurrency.Max)
	}
	return news
}

// advance does everything that can be done now. It reports true when the host
// has left the job.
func (j *job) advance(now moment) (over bool) {
	if j.pace.waits { // unless it waits on, its turn is another's
		defer func() {
			if !j.pace.waits {
				j.term.steps.Leave(j)
			}
		}()
	}
	j.pace.waits = false
	if j.joined && j.seen && j.exit.left.IsZero() && j.member.View.Exists && j.member.View.Joined() {
		j.repairs.repair(now)
	}
	j.complete(now)
	j.killing.end(now)
	j.quotas.report(now, j.mail.takeBeyond(), j.Emit)
	if j.exit.leaves() {
		j.term.arrivals.Leave(j)
		j.term.follows.Leave(j)
		return j.withdraw(now)
	}
	if !j.exit.left.IsZero() && !j.out(now) {
		j.term.arrivals.Leave(j)
		j.term.follows.Leave(j)
		return false
	}
	if j.changed {
		j.definitionChanged(now)
	}
	if !j.exit.left.IsZero() || j.rests(now) {
		return false
	}
	if !j.joined && !j.join(now) {
		return false
	}
	if !j.seen {
		return false // no snapshot yet
	}
	if !j.look(now) {
		return false
	}
	if j.term.registry.Trusted() && j.clock.read(now) {
		now = j.host.now()
	}
	j.calendar.Ahead = j.host.ahead(now)
	j.configure(now)
	if !j.term.registry.Trusted() {
		return false
	}
	j.limits.readChanged(now)
	j.clock.watch(j.guest.CatchUpWindow)
	j.followChain(now)
	if doing, err := j.backfill.follow(j.work, now, backfillDeps{j.member.Registry, j.member.Layout, &j.member.View, j.log, j.refusal.retryAt}); err != nil {
		j.failed(now, doing, err)
	}
	j.reportSettings()
	if j.noteGoing() {
		defer j.hurry()()
	}
	business := j.member.Reconcile(now.wall) != coordination.ActionNone || j.recovery.due(now)
	if business && j.knowsShare() && j.member.View.Enabled == j.wasEnabled { // what is due begins before that
		j.dues.makeUpPassed(now)
		j.tick(now)
	}
	j.coordinate(now)
	j.endPauses(now)
	j.dues.makeUpPassed(now)
	j.tick(now)
	j.followUp(now)
	j.trigger.advanceQueue(now)
	j.pausing.act(now)
	j.watchMarks(now)
	j.resolve(now)
	j.offsets.save(now)
	j.announce = (!j.rests(now) && j.tally.publish(now)) || j.announce
	j.watchExtra(now)
	if edit, err := j.edits.Look(j.work, j.member.Registry, j.member.Layout, j.member.View.IsJanitor()); err != nil {
		j.failed(now, "looking who changed the configuration", err)
	} else if edit != nil {
		j.Emit(event.Event{Kind: event.JobChanged, Source: sourceOf(j.member.View.Config), Reason: "the configuration, in the registry", Edit: edit})
	}
	return false
}

// recordOutside has changes recorded that other programs made in the registry. Nothing waits for it.
func (j *job) recordOutside(now moment) {
	err := j.outside.Record(j.work, j.member.Registry, j.member.Layout, now.Time, j.trigger.seen, j.trigger.round)
	if err != nil && j.work.Err() == nil {
		j.log.Warn("recording what another program changed; trying again", zap.Error(err))
	}
}

// expect reports the next fire here, until shortly before which the module may leave memory.
func (j *job) expect(now moment) {
	var next, instant time.Time
	if !j.calendar.Next.IsZero() && j.member.View.Enabled && len(j.items) > 0 {
		instant = j.calendar.DueAt()
		next = now.Add(instant.Sub(now.wall))
	}
	j.host.cfg.OnNext(j.name, instant)
	// The wall clock is set right by some milliseconds all the time.
	if j.module.exec == nil || (j.module.informed && next.Sub(j.module.expected).Abs() < clockStep) {
		return
	}
	j.module.exec.Expect(next)
	j.module.informed, j.module.expected = true, next
}

func later(a, b time.Time) time.Time {
	if a.IsZero() || a.After(b) {
		return a
	}
	return b
}

// latest is the later of two times; zero is before any other.
func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// soonest is the earlier of two times; zero is at no time, and counts for nothing.
func soonest(a, b time.Time) time.Time {
	if b.IsZero() || (!a.IsZero() && a.Before(b)) {
		return a
	}
	return b
}

// same reports whether two jobs are defined alike and run the same module.
func same(a, b Job) bool {
	return a.Module.Digest() == b.Module.Digest() && a.Module.Granted() == b.Module.Granted() && a.JobClass == b.JobClass && a.ModuleFile == b.ModuleFile &&
		maps.Equal(a.Inherited, b.Inherited) && bytes.Equal(a.Definition.YAML(), b.Definition.YAML())
}

// stay takes a leaving back: the definition is there again, or the host's
// instance.
func (j *job) stay() {
	j.exit.begun, j.exit.announced, j.exit.stopped = false, false, false
	if !j.joined || !j.exit.left.IsZero() {
		return
	}
	j.exit.until = time.Time{}
	j.guests.readmit(j.work)
	j.announce = true // and coordinate has the items divided again
	// What was handed back, or was due, is this host's to make up for.
	var idle []int
	for _, it := range j.items.sorted(func(it *item) bool { return it.owned && it.run == nil }) {
		idle = append(idle, it.number)
	}
	j.dues.makeUp(j.host.now(), idle)
}

// heardSoon is the latest that a host hears of a write, while its clock and the registry's are right.
const heardSoon = 30 * time.Second

// changesAt is when the schedule of the configuration takes effect.
func changesAt(now moment, v *coordination.View) time.Time {
	at := v.ScheduleSince()
	if at.Before(now.wall.Add(-heardSoon)) || at.After(now.wall.Add(heardSoon)) { // a clock is wrong
		return now.wall
	}
	return at
}

// definitionChanged takes over what Apply brought.
func (j *job) definitionChanged(now moment) {
	if !j.exit.left.IsZero() {
		return // what is wanted says whether it comes back; see stayOut
	}
	if j.exit.stopped || (j.joined && j.rests(now)) {
		return // an operator stops the job here: the change is applied when the host comes back
	}
	j.changed = false
	if !j.joined {
		j.joining.err, j.refusal.retryAt = nil, time.Time{}
		return
	}
	applied, err := coordination.ApplyDefinition(j.work, changelog.By(j.member.Registry, j.member.Layout), j.member.Layout, j.wanted.Definition, j.host.former(j.name), j.host.cfg.Ceilings.Check, j.says(now))
	if err == nil {
		j.brought(applied)
		j.joining.err = nil
	}
	switch {
	case errors.Is(err, tree.ErrRemoved):
	case transient(err):
		j.changed = true
		j.failed(now, "applying the definition", err)
	case err != nil:
		j.joining.err = err
		j.log.Error("definition not applied", zap.String("file", j.wanted.File), zap.Error(err))
	case len(applied.Changed) > 0:
		j.Emit(event.Event{Kind: event.JobChanged, Source: sourceOf(j.member.View.Config), Reason: "definition: " + joinWords(applied.Changed), Edit: changes.ByFile(applied, j.wanted.File, j.host.cfg.ServerIP)})
	}
}

// transient reports whether the same may work later: the registry could not,
// or did not answer in time.
func transient(err error) bool {
	return slices.ContainsFunc([]error{registry.ErrUnavailable, registry.ErrSuspect, registry.ErrUnknown, registry.ErrConflict,
		registry.ErrSessionLost, registry.ErrClosed, context.DeadlineExceeded, context.Canceled}, func(t error) bool { return errors.Is(err, t) })
}

// rejoin makes the job one that this host is to join again, under an instance
// id that was not used before. What was due while it was away is not owed.
func (j *job) rejoin(now moment) {
	j.watch.leaveOutside()
	j.exit.said = tree.Word{}
	j.exit.left, j.exit.state, j.exit.noted, j.joined, j.registered, j.exit.triedAt = reason.Reason{}, "", false, false, false, time.Time{}
	j.exit.stopped, j.exit.until = false, time.Time{}
	j.joining.applied, j.joining.waited = coordination.Applied{}, 0
	j.guests.readmit(j.work)
	j.seen, j.member.View = false, coordination.View{Config: j.member.View.Config}
	j.member.Self = j.term.again(j.name)
	id := j.member.Self.ID
	j.identity.Store(&id)
	j.calendar.Next, j.calendar.Parked, j.calendar.NotBefore = time.Time{}, time.Time{}, now.wall
	j.pause.forget()
	j.cron.madeFor, j.configured, j.settings.reported, j.edits = nil, configured{}, event.Settings{}, changes.Seen{}
	j.election.reset()
	j.takers.reset()
	j.denials = denials{} // the items may be others now
	j.chain.reset()
}

// shareDays has the configuration in the registry share the days of its calendars with the definition, if they are the same: jobs with
// the same calendars then have one copy of them.
func (j *job) shareDays() {
	own := j.wanted.Definition.Props[jobconfig.PropCalendarDays]
	if c := j.member.View.Config; own != "" && c.Props[jobconfig.PropCalendarDays] == own {
		j.member.View.Config = timetable.WithDays(c, own)
	}
}

// terms are those of the job's configuration. They are made once for each that configure has seen.
func (j *job) terms(c jobconfig.Configuration) string {
	if j.cron.madeFor != nil && j.configured.config == j.member.View.ConfigChange() {
		return j.cron.madeFor.terms
	}
	return c.Terms()
}

// configure makes schedule and executor fit the configuration in force.
func (j *job) configure(now moment) {
	from := configured{j.member.View.ConfigChange(), j.wanted.Module.Digest() + j.wanted.Module.Granted()}
	if from == j.configured {
		return
	}
	if j.joining.outdated != "" { // it may have been gone back to
		j.changed = true
		j.definitionChanged(now)
	}
	j.shareDays()
	c := j.member.View.Config
	key := cronSource{c.Cron, c.TimeZone, c.Terms()}
	terms := key.terms
	j.edits.Note(c, from.config)
	j.configured = from
	j.cron.lookForJava(c)
	if before := j.cron.madeFor; before == nil || key != *before {
		changed := before != nil
		j.cron.madeFor = &key
		table, problems := timetable.New(c, j.host.cfg.Namespace)
		var s cron.Schedule
		if table != nil {
			s = table
		}
		err := timetable.Of(problems)
		j.cron.err = err
		if err != nil {
			j.log.Error("schedule refused; the last good one stays in force", zap.Error(err))
			j.Emit(event.Event{Kind: event.JobError}.Why(reason.Of(err)))
		} else {
			j.cron.zone, _ = schedule.Zone(c.TimeZone) // the timetable has it
			j.cron.text, j.cron.terms = c.Cron, terms
			after := timetable.After(c)
			if j.chain.set(after) && len(after) > 0 {
				j.calendar.Schedule, j.calendar.Next = nil, time.Time{}
			}
			switch {
			case len(after) > 0: // its instants are those of other jobs
				if changed {
					j.Emit(event.Event{Kind: event.JobChanged, Source: sourceOf(c), Reason: "schedule: " + timetable.Describe(c.Cron, terms)})
				}
			case !changed:
				j.calendar.Schedule = s
				j.calendar.Arm(now.wall)
			default:
				j.calendar.Change(s, changesAt(now, &j.member.View))
				j.Emit(event.Event{Kind: event.JobChanged, Source: sourceOf(c), Reason: fmt.Sprintf("schedule: %q %s%s", timetable.Describe(c.Cron, terms), j.cron.zone, also(terms))})
			}
		}
	}
	guest, err := c.Guest()
	if err != nil {
		j.module.err = err
		return
	}
	defer j.rates.changed()
	defer j.limits.changed()
	j.known.Account.Prioritize(guest.Priority)
	j.guest, j.calendar.Window, j.calendar.Off = guest, guest.CatchUpWindow, reason.NoOwnerMisfireOff
	if guest.CatchUp == jobconfig.CatchUpNone {
		j.calendar.Off = reason.NoOwnerCatchUpNone
	}
	if why := j.host.cfg.HandlerProblem(c.JobErrorHandlerType); why != "" && j.settings.inForce.ErrorHandler != c.JobErrorHandlerType {
		j.log.Warn("the job's error handler sends nothing", zap.String("handler", c.JobErrorHandlerType), zap.String("reason", why))
	}
	j.settings.inForce = event.Settings{Cron: j.cron.text, TimeZone: j.cron.zone.String(), Terms: j.cron.terms, Labels: guest.Labels.String(), Items: c.ShardingTotalCount,
		Misfire: c.Misfire, Failover: c.Failover && c.MonitorExecution, CatchUp: j.guest.CatchUpWindow, ErrorHandler: c.JobErrorHandlerType}
	guest.When, guest.Labels = jobconfig.When{}, nil // no guest goes by them
	execFor := j.wanted.Module.Digest() + fmt.Sprint(guest, c.JobName) + j.wanted.Module.Granted()
	if execFor == j.module.madeFor {
		return
	}
	var exec abi.Executor
	j.turn.Rest(j.work.Done(), func() { exec, err = j.wanted.Module.Executor(c) })
	changed := j.module.madeFor != ""
	j.module.madeFor, j.module.err = execFor, err
	if err != nil {
		j.log.Error("module refused for this job", zap.String("module", j.wanted.ModuleFile), zap.Error(err))
		j.Emit(event.Event{Kind: event.JobError}.Why(reason.Of(err)))
		return
	}
	before := ""
	if j.module.exec != nil {
		before = j.module.exec.Digest()
		j.module.exec.Release()
	}
	j.module.exec, j.module.informed = exec, false
	if changed && before != exec.Digest() {
		j.log.Info("module changed", zap.String("from", before[:min(len(before), 12)]), zap.String("to", exec.Digest()[:min(len(exec.Digest()), 12)]))
		j.Emit(event.Event{Kind: event.JobChanged, Source: sourceOf(c), Digest: exec.Digest(), Reason: "module"})
		j.announce = true
	}
}

// also names what else a schedule goes by.
func also(terms string) string {
	names := timetable.Also(terms)
	if len(names) == 0 {
		return ""
	}
	return ", with " + joinWords(names)
}

// reportSettings reports what the job goes by if that is news, and when something is refused, or is not any more.
func (j *job) reportSettings() {
	if e, ok := j.denials.unreported(); ok {
		j.Emit(e)
	}
	err := errors.Join(j.member.View.ConfigErr, j.cron.err, j.chain.err, j.module.err, j.clock.late, j.denials.reason(), j.unread)
	s, news := j.settings.report(err != nil)
	if !news {
		return
	}
	j.Emit(event.Event{Kind: event.JobConfigured, Source: sourceOf(j.member.View.Config), Settings: &s}.Why(reason.Of(err)))
}

// complete writes the ends of runs, in groups: at once when nothing runs any
// more, else a short time after the first.
func (j *job) complete(now moment) {
	j.keepOwn()
	pending := 0
	for n, e := range j.ends.of {
		if !e.Unfinished && !j.denials.waits(now, n) {
			pending++
		}
	}
	due := pending > 0 && !j.rests(now) && j.term.registry.Trusted() &&
		(len(j.ends.of) >= j.running() || !now.Before(j.ends.windowEnd()))
	if due {
		j.commitEnded(now)
	}
	for f := range j.fires {
		if f.Open == 0 && f.GuestsDone {
			j.closeFire(f)
		}
	}
	if j.exit.state == "" && j.seen && j.member.View.Exists && !j.member.View.Joined() && j.running() == 0 && !j.exit.leaves() && j.exit.left.IsZero() && !j.exit.tried(now) {
		j.stopped(now)
	}
}
