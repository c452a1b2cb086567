package alert

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/config/timetable"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/schedule"
	"github.com/wasmjob/wasmjob/internal/labels"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

const (
	// checkAgain is the interval of repeated checks while a problem continues, and leastBetween the least time
	// between two checks of a job.
	checkAgain   = 15 * time.Second
	leastBetween = 2 * time.Second
	// lookBack is how far back a host that has just taken over a job checks instants whose deadline has passed.
	lookBack = 10 * time.Minute
	// longestBack is how far back it searches for the instant of a standing alert.
	longestBack = 2 * 366 * 24 * time.Hour
	// UsualRuns is how many of the latest runs [Usual] takes into account, and leastUsual how many it needs.
	UsualRuns  = 25
	leastUsual = 5
	// goneFor is how long an alert about a gone host stands.
	goneFor = 24 * time.Hour
	// longestReason bounds why something is wrong, in the text of an alert, in bytes.
	longestReason = 500
)

// Change is an alert that begins, or is over.
type Change struct {
	Alert
	// Local: it is about this host's own session or history, and is not kept in the registry.
	Local bool
}

// Check asks for the registry's state of a job, for a rule: whether items have begun for an instant, or when
// they last succeeded.
type Check struct {
	Job     string
	Rule    Rule
	Instant time.Time // for StartWithin
	// From is the first item to look at, of jobs with very many.
	From int
}

// Found is the answer to a Check.
type Found struct {
	// Exists: the job is in the registry. Enabled: one of its servers is enabled. Java: a Java host takes part,
	// whose runs are in no record.
	Exists, Enabled, Java bool
	// EnabledSince is since when an enabled server has been enabled, the earliest of several; zero if one may
	// always have been. ConfiguredAt is when the configuration was last written.
	EnabledSince, ConfiguredAt time.Time
	// Hosts are how many hosts have the job.
	Hosts int
	// Settings are those in the registry.
	Settings event.Settings
	// Items are those that were looked at; More is where to go on, 0 if they are all.
	Items []FoundItem
	More  int
}

// FoundItem is what the registry has of an item.
type FoundItem struct {
	Item     int
	Record   tree.Record
	Disabled bool
	// EnabledSince is when it was last enabled, or created; zero if the job's items have not been divided.
	EnabledSince time.Time
}

// Judge decides what is wrong, from the events of one host and the registry's state. It is for one goroutine.
type Judge struct {
	file   *File
	server string
	host   string // the instance id of the term; empty: there is none
	jobs   map[string]*job
	// active are the alerts in the registry, mine those of them that this judge has begun, local those that are
	// not in the registry.
	active map[string]bool
	mine   map[string]Alert
	local  map[string]bool
	// refusals are the alerts about files that are refused now, by subject. The host reports a refused file
	// once per process, and it stays refused over sessions.
	refusals map[string]Alert
	timers   timers
	out      []Change
	checks   []Check
	// replan are jobs whose items another host has found not to have begun.
	replan []string
	behind event.Behind
}

// job is what the judge knows of a job.
type job struct {
	name     string
	settings event.Settings
	labels   labels.Set // of the settings
	schedule *timetable.Timetable
	zone     *time.Location
	rules    Rules
	// here: this host has the job; ours: it checks the job for all hosts; orphan: no host has the job, and this
	// one checks it.
	here, ours, orphan bool
	since              time.Time // when it began to look
	known              time.Time // since when it follows changes of the settings
	from               time.Time // when the cron changed: earlier instants are not checked
	running            map[int]*running
	reasons            map[int]string // why the newest attempts of items failed
	usual              []time.Duration
	// nextStart is the instant whose begin is checked next, at startAt; succeedAt is when successes are
	// checked. Zero: never.
	nextStart, startAt, succeedAt time.Time
	checked                       time.Time
	longAt                        time.Time // when the next run takes too long
	// idleJava is a Java host that has items and runs none, as last reported at idleAt.
	idleJava string
	idleAt   time.Time
}

// running is an item that runs on this host.
type running struct {
	since   time.Time
	runID   string
	instant time.Time // of its fire, as trigger is
	trigger int64
	longAt  time.Time // when it takes too long; zero: never, or reported already
}

// NewJudge returns a judge for the host at an address.
func NewJudge(f *File, server string) *Judge {
	return &Judge{file: f, server: server, jobs: make(map[string]*job), active: make(map[string]bool), mine: make(map[string]Alert), local: make(map[string]bool), refusals: make(map[string]Alert)}
}

// Use takes other rules.
func (j *Judge) Use(f *File, now time.Time) {
	j.file = f
	for _, jb := range j.jobs {
		jb.rules = j.rulesOf(jb)
		j.plan(jb, now)
		for _, r := range jb.running {
			j.timeRun(jb, r)
		}
	}
	session := Alert{Rule: Session, Subject: j.server}
	if !f.wants(&session) {
		j.resolve(session, now, switchedOff)
	}
	for _, a := range j.mine {
		if !j.wants(a) {
			j.resolve(a, now, switchedOff)
		}
	}
	for _, a := range j.refusals {
		j.refuse(a)
	}
}

// switchedOff is why an alert of a disabled rule is over.
const switchedOff = "the rule was switched off"

// rulesOf returns the rules of a job. An error handler that sends messages implies a rule.
func (j *Judge) rulesOf(jb *job) Rules {
	r := j.file.For(jb.name, jb.labels)
	if j.file.Handlers[strings.ToUpper(jb.settings.ErrorHandler)] != "" {
		r.Failures = 1
	}
	return r
}

// wants reports whether the rule of an alert is on, for the labels that its job has now.
func (j *Judge) wants(a Alert) bool {
	if jb := j.jobs[a.Job]; jb != nil {
		a.Labels = jb.labels
	}
	return j.file.wants(&a)
}

// oneLine is a reason as it stands in the text of an alert.
func oneLine(reason string) string { return words.ClipTo(words.OneLine(reason), longestReason) }

// Known sets which alerts are in the registry, or about to be.
func (j *Judge) Known(active map[string]bool) {
	for _, jb := range j.jobs {
		if id := jb.late(); jb.watched() && active[id] && !j.active[id] {
			j.replan = append(j.replan, jb.name)
		}
	}
	j.active = active
	for id := range j.mine {
		if !active[id] { // another host has ended it
			delete(j.mine, id)
		}
	}
}

// Take returns the changes and checks since the last call.
func (j *Judge) Take() ([]Change, []Check) {
	out, checks := j.out, j.checks
	j.out, j.checks = nil, nil
	return out, checks
}

// fire begins an alert, unless it is known. An alert about this host waits for a session.
func (j *Judge) fire(a Alert, local bool) {
	a = a.named()
	if a.OfHost && !local && j.host == "" {
		return
	}
	if a.Host == "" {
		a.Host = j.host
	}
	if jb := j.jobs[a.Job]; jb != nil {
		a.Labels = jb.labels
	}
	if local {
		if !j.local[a.ID] {
			j.local[a.ID] = true
			j.out = append(j.out, Change{a, true})
		}
		return
	}
	// An alert about a host may be left from its previous session.
	if _, mine := j.mine[a.ID]; mine || (j.active[a.ID] && !a.OfHost) {
		return
	}
	j.mine[a.ID], j.active[a.ID] = a, true
	j.out = append(j.out, Change{a, false})
}

// resolve ends an alert, if there is one.
func (j *Judge) resolve(a Alert, at time.Time, why string) {
	if len(j.active)+len(j.local) == 0 {
		return
	}
	a = a.named()
	if mine := j.mine[a.ID]; mine.OfHost {
		if a.Host != "" && a.Host != mine.Host { // of the host's life before this one
			return
		}
		a.Host, a.OfHost = mine.Host, true
	}
	a.Resolved, a.Why = at, why
	if j.local[a.ID] {
		delete(j.local, a.ID)
		j.out = append(j.out, Change{a, true})
	}
	if j.active[a.ID] {
		delete(j.active, a.ID)
		delete(j.mine, a.ID)
		j.out = append(j.out, Change{a, false})
	}
}

// See handles an event of this host. It ignores events that no rule in the table needs.
func (j *Judge) See(e event.Event) {
	if !Hears(e.Kind) {
		return
	}
	switch e.Kind {
	case event.RegistryBehind:
		j.registry(e)
	case event.Session:
		j.registry(e)
		j.session(e)
	case event.Refused, event.Accepted:
		j.fileEvent(e)
	}
	if e.Job == "" {
		return
	}
	jb := j.of(e)
	if ofRun := e.Item != nil || e.Kind == event.FireEnded; ofRun && !jb.here {
		return // of a run that ends after its host has left the job
	}
	switch e.Kind {
	case event.ItemStarted, event.ItemEnded, event.ItemCompleted, event.ItemSkipped, event.ItemHeld, event.ItemReleased:
		if e.Item != nil {
			j.item(jb, *e.Item, e)
		}
	case event.JobError:
		if e.Wait == event.WaitListener && e.Other != "" && jb.rules.Refused {
			jb.idleJava, jb.idleAt = e.Other, e.Time
			j.fire(jb.idle(e), false)
		}
		if e.Wait == "" && jb.rules.Refused {
			j.fire(Alert{Rule: Refused, Job: e.Job, Subject: j.server, OfHost: true, Since: e.Time,
				Text: fmt.Sprintf("host %s cannot run %s as it is: %s", j.server, e.Job, oneLine(e.Reason))}, false)
		}
	case event.FireEnded:
		j.fireEnded(jb, e)
	case event.JobConfigured:
		j.configured(jb, e)
	case event.Janitor:
		j.care(jb, e.Reason == "", jb.orphan, e.Time)
	case event.JobRemoved, event.JobStopped:
		j.left(jb, e)
	}
}

// of returns the job of an event. The job is kept from the first event that shows that this host has it, until
// it leaves.
func (j *Judge) of(e event.Event) *job {
	jb := j.jobs[e.Job]
	if jb == nil {
		jb = newJob(e.Job)
		jb.rules = j.rulesOf(jb)
	}
	if e.Kind == event.JobConfigured || e.Kind == event.FireStarted || (e.Kind == event.Janitor && e.Reason == "") {
		jb.here = true
		j.jobs[e.Job] = jb
	}
	return jb
}

func newJob(name string) *job {
	return &job{name: name, running: make(map[int]*running)}
}

// forget forgets a job that this host neither has nor checks.
func (j *Judge) forget(jb *job) {
	if !jb.here && !jb.orphan {
		delete(j.jobs, jb.name)
	}
}

// configured updates a job's settings.
func (j *Judge) configured(jb *job, e event.Event) {
	if e.Settings == nil {
		return
	}
	if e.Reason == "" {
		j.resolve(Alert{Rule: Refused, Job: e.Job, Subject: j.server}, e.Time, "the host goes by the job's configuration again")
	}
	j.set(jb, *e.Settings, e.Time)
	j.plan(jb, e.Time)
}

// set takes over settings, and the rules that follow from them.
func (j *Judge) set(jb *job, s event.Settings, now time.Time) {
	before := jb.settings
	if before == (event.Settings{}) {
		jb.known = now
	} else if before.Cron != s.Cron || before.TimeZone != s.TimeZone || before.Terms != s.Terms {
		jb.from = now
		j.resolve(Alert{Rule: StartWithin, Job: jb.name}, now, "the job goes by another cron or time zone")
	}
	jb.settings, jb.schedule = s, nil
	jb.labels, _ = labels.Parse(s.Labels) // a host has written them
	jb.rules = j.rulesOf(jb)
	if before.Labels != s.Labels {
		j.relabelled(jb, now)
	}
	zone, name := time.Local, ""
	if s.TimeZone != time.Local.String() {
		var err error
		if zone, err = schedule.Zone(s.TimeZone); err != nil {
			zone = time.UTC
		}
		name = zone.String()
	}
	jb.zone = zone
	jb.schedule, _ = timetable.FromTerms("", jb.name, s.Cron, name, s.Terms) // nil with a problem
}

// relabelled ends the alerts of a job whose rules are off for its other labels, and looks after its runs by those that are on.
func (j *Judge) relabelled(jb *job, now time.Time) {
	for _, a := range j.mine {
		if a.Job == jb.name && !j.wants(a) {
			j.resolve(a, now, switchedOff)
		}
	}
	for _, r := range jb.running {
		j.timeRun(jb, r)
	}
}

// left forgets a job that this host has left.
func (j *Judge) left(jb *job, e event.Event) {
	j.resolve(Alert{Rule: Refused, Job: jb.name, Subject: j.server}, e.Time, "the host has left the job")
	for n := range jb.running {
		j.ended(jb, n, e.Time, "the host has left the job")
	}
	j.care(jb, false, jb.orphan, e.Time)
	jb.here = false
	j.forget(jb)
}

// session takes what becomes of this host's session.
func (j *Judge) session(e event.Event) {
	a := Alert{Rule: Session, Subject: j.server, OfHost: true, Since: e.Time, Host: e.Host}
	switch {
	case e.Wait != "":
		a.Text = fmt.Sprintf("host %s has no session with the registry: %s", j.server, oneLine(e.Reason))
	case e.Reason == event.SessionLive:
		j.resolve(a, e.Time, "the session is live")
		j.live(e.Host)
		return
	case e.Reason == event.SessionSuspect || e.Reason == event.SessionYield:
		a.Text = fmt.Sprintf("the session of host %s with the registry is in doubt: the registry does not answer, and nothing begins there", j.server)
	case e.Reason == event.SessionLost:
		a.Text = fmt.Sprintf("host %s has lost its session with the registry: everything was stopped there, and it starts a new one", j.server)
		j.lost(e.Time)
		j.host = ""
	default:
		return
	}
	if j.file.Hosts.Session {
		j.fire(a, true)
	}
}

// registry takes that the registry has gone back, or that a session has found nothing of that. The
// host says so itself: it may not be able to write to the registry.
func (j *Judge) registry(e event.Event) {
	a := Alert{Rule: Registry, Subject: j.server, OfHost: true, Since: e.Time, Host: e.Host}
	behind, changed := j.behind.See(e)
	switch {
	case e.Kind == event.RegistryBehind && j.file.Hosts.Registry:
		a.Text = fmt.Sprintf("host %s has found: %s", j.server, oneLine(e.Reason))
		j.fire(a, true)
	case changed && !behind:
		j.resolve(a, e.Time, "the host has another session, which finds nothing of that")
	}
}

// live takes the session that the host has. What a former one had to say of the host
// ends with that one, and is said again.
func (j *Judge) live(host string) {
	if j.host != host {
		maps.DeleteFunc(j.mine, func(_ string, a Alert) bool { return a.OfHost })
	}
	j.host = host
	for _, a := range j.refusals {
		j.refuse(a)
	}
}

// lost forgets what this host has of its jobs: it joins them again, or another has them.
func (j *Judge) lost(at time.Time) {
	for _, jb := range j.jobs {
		for n := range jb.running {
			j.ended(jb, n, at, "its host has lost its session")
		}
		j.care(jb, false, false, at)
		j.forget(jb)
	}
}

// fileEvent takes that a file is refused, or is not any more.
func (j *Judge) fileEvent(e event.Event) {
	a := Alert{Rule: Refused, Subject: j.server + " " + e.File, OfHost: true, Since: e.Time}
	if named := slices.IndexFunc(e.Jobs, func(job string) bool { return job != "" }); named >= 0 {
		a.Job = e.Jobs[named]
	}
	before, known := j.refusals[a.Subject]
	if e.Kind == event.Accepted {
		a.Job = before.Job // the reason may have named a job
		delete(j.refusals, a.Subject)
		j.resolve(a, e.Time, "the file is not refused any more")
		return
	}
	if known && before.Job != a.Job {
		j.resolve(before, e.Time, "the file is refused for another reason")
	}
	a.Text = fmt.Sprintf("host %s refuses %s: %s", j.server, e.File, oneLine(e.Reason))
	j.refusals[a.Subject] = a
	j.refuse(a)
}

// refuse begins the alert of a file that is refused, if one is wanted.
func (j *Judge) refuse(a Alert) {
	if j.wants(a) {
		j.fire(a, false)
	}
}

// item takes what becomes of an item.
func (j *Judge) item(jb *job, n int, e event.Event) {
	of := func(r Rule) Alert { return Alert{Rule: r, Job: jb.name, Item: &n} }
	switch e.Kind {
	case event.ItemStarted:
		j.started(jb, n, e)
	case event.ItemEnded:
		jb.attempted(n, e)
	case event.ItemCompleted:
		j.ended(jb, n, e.Time, runEnded)
		j.completed(jb, n, e)
	case event.ItemReleased:
		j.resolve(of(Held), e.Time, "the item was released")
	case event.ItemHeld:
		if jb.rules.Held {
			a := of(Held)
			a.Since, a.Text = e.Time, fmt.Sprintf("item %d of %s is held back: %s", n, jb.name, oneLine(e.Reason))
			j.fire(a, false)
		}
	case event.ItemSkipped:
		if e.Outcome != "" {
			j.ended(jb, n, e.Time, runEnded)
		}
		if e.Cause == event.SkipLost && jb.rules.Lost {
			a := of(Lost)
			a.Since, a.Text = e.Time, fmt.Sprintf("the run of item %d of %s for %s is lost: %s", n, jb.name, jb.at(e.Instant), oneLine(e.Reason))
			j.fire(a, false)
		}
	}
}

// started takes the begin of an attempt. Only the first is the begin of the run.
func (j *Judge) started(jb *job, n int, e event.Event) {
	long := Alert{Rule: LongerThan, Job: jb.name, Item: &n}
	if _, mine := j.mine[long.named().ID]; !mine {
		j.resolve(long, e.Time, "another host runs the item now")
	}
	j.resolve(Alert{Rule: Held, Job: jb.name, Item: &n}, e.Time, "the item runs again")
	if r := jb.running[n]; r != nil && r.runID == e.RunID {
		return
	}
	r := &running{since: e.Time, runID: e.RunID, instant: e.Instant, trigger: e.Trigger}
	jb.running[n] = r
	j.timeRun(jb, r)
}

// timeRun sets when a run takes too long.
func (j *Judge) timeRun(jb *job, r *running) {
	limit := jb.longest()
	r.longAt = time.Time{}
	if limit == 0 {
		return
	}
	r.longAt = r.since.Add(limit)
	j.lookAtRuns(jb, r.longAt)
}

// lookAtRuns has the runs of a job looked at, once for all that are due until then.
func (j *Judge) lookAtRuns(jb *job, at time.Time) {
	if jb.longAt.IsZero() || at.Before(jb.longAt) {
		jb.longAt = at
		j.timers.add(timer{at, jb.name})
	}
}

// longest is how long a run may take; 0: any time.
func (jb *job) longest() time.Duration {
	limit := jb.rules.LongerThan
	if k := jb.rules.LongerThanUsual; k > 0 && len(jb.usual) >= leastUsual {
		if usual := time.Duration(k * float64(Usual(jb.usual))); limit == 0 || usual < limit {
			limit = max(usual, time.Second)
		}
	}
	return limit
}

// Usual is how long runs usually take, by the latest that were OK: their median; 0 if there are fewer than five.
func Usual(took []time.Duration) time.Duration {
	if len(took) < leastUsual {
		return 0
	}
	return slices.Sorted(slices.Values(took))[len(took)/2]
}

// attempted notes the duration of a successful newest attempt, or why it failed.
func (jb *job) attempted(n int, e event.Event) {
	delete(jb.reasons, n)
	switch {
	case e.Outcome == abi.OutcomeOK:
		took := e.Duration
		if r := jb.running[n]; r != nil && r.runID == e.RunID {
			took = e.Time.Sub(r.since)
		}
		jb.took(took)
	case e.Reason != "":
		if jb.reasons == nil {
			jb.reasons = make(map[int]string)
		}
		jb.reasons[n] = oneLine(e.Reason)
	}
}

// took notes how long a run took that was OK.
func (jb *job) took(d time.Duration) {
	if jb.usual = append(jb.usual, d); len(jb.usual) > UsualRuns {
		jb.usual = slices.Delete(jb.usual, 0, 1)
	}
}

// runEnded is why an alert about a run that takes long is over.
const runEnded = "the run has ended"

// fireEnded handles the end of a fire on a host: the fire's alerts about long runs there are over.
func (j *Judge) fireEnded(jb *job, e event.Event) {
	if jb.idleJava != "" && e.Instant.After(jb.idleAt) { // the fire had no alert about it
		j.resolve(jb.idle(e), e.Time, "the Java host has come to a fire, or has no items any more")
		jb.idleJava = ""
	}
	for _, n := range e.Items {
		if r := jb.running[n]; r != nil && r.instant.Equal(e.Instant) && r.trigger == e.Trigger {
			j.ended(jb, n, e.Time, runEnded)
		}
	}
}

// idle returns the alert about a Java host that has items of the job and runs none.
func (jb *job) idle(e event.Event) Alert {
	return Alert{Rule: Refused, Job: jb.name, Subject: jb.idleJava, Since: e.Time, Text: fmt.Sprintf("Java host %s has items of %s and runs none of them: %s", jb.idleJava, jb.name, oneLine(e.Reason))}
}

// ended takes the end of a run on this host.
func (j *Judge) ended(jb *job, n int, at time.Time, why string) {
	delete(jb.running, n)
	j.resolve(Alert{Rule: LongerThan, Job: jb.name, Item: &n}, at, why)
}

// completed takes how a run ended.
func (j *Judge) completed(jb *job, n int, e event.Event) {
	a := Alert{Rule: Failures, Job: jb.name, Item: &n}
	if e.Outcome == abi.OutcomeOK {
		j.resolve(a, e.Time, "the item has succeeded")
		j.resolve(Alert{Rule: Lost, Job: jb.name, Item: &n}, e.Time, "a newer run of the item has succeeded")
		if jb.watched() && len(j.active) > 0 && j.active[(Alert{Rule: SucceedEvery, Job: jb.name}).named().ID] {
			j.again(jb, SucceedEvery, e.Time.Add(leastBetween))
		}
		return
	}
	reason := cmp.Or(jb.reasons[n], oneLine(e.Reason))
	delete(jb.reasons, n)
	limit := jb.rules.Failures
	if limit == 0 || e.Count < int64(limit) || e.Outcome == abi.OutcomeCancelled {
		return
	}
	a.Route = j.file.Handlers[strings.ToUpper(jb.settings.ErrorHandler)]
	a.Since = e.Time
	a.Text = fmt.Sprintf("item %d of %s failed, the run for %s: %s", n, jb.name, jb.at(e.Instant), e.Outcome)
	if e.Count > 1 {
		a.Text = fmt.Sprintf("item %d of %s failed %d times in a row, the last run for %s: %s", n, jb.name, e.Count, jb.at(e.Instant), e.Outcome)
	}
	if reason != "" {
		a.Text += " (" + reason + ")"
	}
	j.fire(a, false)
}

// at is a time for people, in the job's zone.
func (jb *job) at(t time.Time) string {
	zone := jb.zone
	if zone == nil {
		zone = time.UTC
	}
	return t.In(zone).Format("2006-01-02 15:04:05 MST")
}

// watched reports whether this host checks what the job fails to do.
func (jb *job) watched() bool { return jb.ours || jb.orphan }

// Orphans sets which jobs no host has: this host checks them, because it is the keeper. settings are theirs.
func (j *Judge) Orphans(settings map[string]event.Settings, now time.Time) {
	for name, s := range settings {
		jb := j.jobs[name]
		if jb == nil {
			jb = newJob(name)
			j.jobs[name] = jb
		}
		if jb.settings != s || jb.zone == nil {
			j.set(jb, s, now)
		}
		j.care(jb, jb.ours, true, now)
	}
	for name, jb := range j.jobs {
		if _, still := settings[name]; jb.orphan && !still {
			j.care(jb, jb.ours, false, now)
			j.forget(jb)
		}
	}
}

// care sets whether this host checks the job.
func (j *Judge) care(jb *job, ours, orphan bool, now time.Time) {
	before := jb.watched()
	jb.ours, jb.orphan = ours, orphan
	if jb.watched() == before {
		return
	}
	if jb.watched() {
		jb.since = now
	}
	j.plan(jb, now)
}

// plan schedules the checks of what the job fails to do.
func (j *Judge) plan(jb *job, now time.Time) {
	jb.nextStart, jb.startAt, jb.succeedAt = time.Time{}, time.Time{}, time.Time{}
	if !jb.watched() {
		return
	}
	if jb.rules.StartWithin > 0 && jb.schedule != nil {
		d := jb.startWithin()
		// Instants whose deadline has just passed may not have been checked, and a standing alert is about the
		// newest one, however old.
		back := lookBack
		due := func(at time.Time) bool { return !at.IsZero() && !at.Add(d).After(now) }
		for j.active[jb.late()] && back < longestBack && !due(jb.schedule.Next(now.Add(-d-back))) {
			back *= 2
		}
		jb.nextStart = jb.schedule.Next(later(now.Add(-d-back), jb.from))
		for next := jb.nextStart; due(next); next = jb.schedule.Next(next) {
			jb.nextStart = next
		}
		j.armStart(jb, now)
	}
	if jb.rules.SucceedEvery > 0 {
		j.again(jb, SucceedEvery, now.Add(leastBetween))
	}
}

// startWithin is how long after its instant an item may begin, including the job's jitter.
func (jb *job) startWithin() time.Duration {
	if jb.schedule == nil {
		return jb.rules.StartWithin
	}
	return jb.rules.StartWithin + jb.schedule.Jitter()
}

// late is the id of the alert about items that have not begun.
func (jb *job) late() string { return Alert{Rule: StartWithin, Job: jb.name}.named().ID }

// armStart sets when the next begin is checked.
func (j *Judge) armStart(jb *job, now time.Time) {
	if jb.nextStart.IsZero() {
		jb.startAt = time.Time{}
		return
	}
	j.again(jb, StartWithin, later(jb.nextStart.Add(jb.startWithin()), now))
}

// again sets when a rule is checked next.
func (j *Judge) again(jb *job, r Rule, at time.Time) {
	at = later(at, jb.checked.Add(leastBetween))
	if r == StartWithin {
		jb.startAt = at
	} else {
		jb.succeedAt = at
	}
	j.timers.add(timer{at, jb.name})
}

// Next is when Tick has something to do; zero for never.
func (j *Judge) Next() time.Time { return j.timers.next() }

// Tick does what is due.
func (j *Judge) Tick(now time.Time) {
	for _, name := range j.replan {
		if jb := j.jobs[name]; jb != nil {
			j.plan(jb, now)
		}
	}
	j.replan = nil
	for {
		t, due := j.timers.due(now)
		if !due {
			return
		}
		jb := j.jobs[t.job]
		if jb == nil {
			continue
		}
		if isDue(jb.longAt, now) {
			j.tooLong(jb, now)
		}
		if isDue(jb.startAt, now) && jb.watched() {
			jb.startAt, jb.checked = time.Time{}, now
			j.checks = append(j.checks, Check{Job: jb.name, Rule: StartWithin, Instant: jb.nextStart})
		}
		if isDue(jb.succeedAt, now) && jb.watched() {
			jb.succeedAt, jb.checked = time.Time{}, now
			j.checks = append(j.checks, Check{Job: jb.name, Rule: SucceedEvery})
		}
	}
}

func isDue(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }

// tooLong begins the alerts of the runs that take too long.
func (j *Judge) tooLong(jb *job, now time.Time) {
	jb.longAt = time.Time{}
	for n, r := range jb.running {
		if r.longAt.IsZero() {
			continue
		}
		if now.Before(r.longAt) {
			j.lookAtRuns(jb, r.longAt)
			continue
		}
		limit := r.longAt.Sub(r.since)
		r.longAt = time.Time{}
		what := "longer than " + words.Duration(limit)
		if jb.rules.LongerThan != limit {
			what = fmt.Sprintf("more than %g times as long as usual (%s)", jb.rules.LongerThanUsual, words.Short(Usual(jb.usual)))
		}
		j.fire(Alert{Rule: LongerThan, Job: jb.name, Item: &n, OfHost: true, Since: now,
			Text: fmt.Sprintf("item %d of %s runs %s on host %s, since %s", n, jb.name, what, j.server, jb.at(r.since))}, false)
	}
}

// Checked handles the answer to a check. With err there is none: the check is repeated.
func (j *Judge) Checked(c Check, f Found, err error, now time.Time) {
	jb := j.jobs[c.Job]
	if jb == nil || !jb.watched() {
		return
	}
	a := Alert{Rule: c.Rule, Job: c.Job}
	switch {
	case !j.wants(a):
		j.resolve(a, now, switchedOff)
		return
	case c.Rule == StartWithin && !c.Instant.After(jb.from): // it was planned again meanwhile
		return
	case err != nil:
		j.again(jb, c.Rule, now.Add(leastBetween))
		return
	case !f.Exists, !f.Enabled, f.Java:
		why := "the job was removed"
		if f.Exists {
			why = "the job is paused"
		}
		if f.Java {
			why = "a host of ElasticJob's is in the job, whose runs are not known"
		}
		j.resolve(a, now, why)
		j.next(jb, c, now)
		return
	case c.Rule == StartWithin && f.EnabledSince.After(c.Instant):
		j.resolve(a, now, "the job was paused at the instant, or since")
		j.next(jb, c, now)
		return
	case c.Rule == StartWithin && f.ConfiguredAt.After(c.Instant) && jb.known.After(c.Instant) && !j.active[jb.late()]:
		// The instant may not be one of the cron that was in force then.
		j.next(jb, c, now)
		return
	}
	if jb.orphan && f.Hosts > 0 && !jb.ours { // a host has it again
		j.care(jb, false, false, now)
		j.forget(jb)
		return
	}
	if jb.orphan && jb.settings != f.Settings {
		j.set(jb, f.Settings, now)
		j.plan(jb, now)
		return
	}
	if c.Rule == StartWithin {
		j.checkedStart(jb, c, f, a, now)
	} else {
		j.checkedSuccess(jb, c, f, a, now)
	}
}

// next goes on to the next check of the rule.
func (j *Judge) next(jb *job, c Check, now time.Time) {
	if c.Rule == SucceedEvery {
		j.again(jb, SucceedEvery, now.Add(min(jb.rules.SucceedEvery, time.Hour)))
		return
	}
	if jb.schedule == nil {
		return
	}
	d := jb.startWithin()
	jb.nextStart = jb.schedule.Next(c.Instant)
	for next := jb.nextStart; !next.IsZero() && !next.Add(d).After(now); next = jb.schedule.Next(next) {
		jb.nextStart = next // of several only the newest
	}
	j.armStart(jb, now)
}

// checkedStart judges whether the items have begun for an instant.
func (j *Judge) checkedStart(jb *job, c Check, f Found, a Alert, now time.Time) {
	var missing tree.Items
	open := 0
	for _, it := range f.Items {
		if jb.owes(it, c.Instant, later(jb.since, f.ConfiguredAt)) {
			missing = append(missing, it.Item)
			if it.Record.Open() {
				open++
			}
		}
	}
	if len(missing) == 0 && f.More > 0 {
		j.checks = append(j.checks, Check{Job: c.Job, Rule: c.Rule, Instant: c.Instant, From: f.More})
		return
	}
	if len(missing) == 0 {
		j.resolve(a, now, "all items have begun")
		j.next(jb, c, now)
		return
	}
	a.Since = now
	a.Text = fmt.Sprintf("%s of %s not begun: due at %s, wanted within %s", itemsOf(missing), jb.name+plural(missing, " has", " have"), jb.at(c.Instant), words.Duration(jb.rules.StartWithin))
	switch {
	case f.Hosts == 0:
		a.Text += "; no host has the job"
	case open == len(missing):
		a.Text += "; earlier runs are not over"
	}
	j.fire(a, false)
	// The same again, or the newest instant whose deadline has passed by then.
	j.again(jb, StartWithin, now.Add(checkAgain))
	d := jb.startWithin()
	if jb.schedule == nil {
		return
	}
	for next := jb.schedule.Next(c.Instant); !next.IsZero() && !next.Add(d).After(now.Add(checkAgain)); next = jb.schedule.Next(next) {
		jb.nextStart = next
	}
}

// owes reports whether an item should have begun for an instant and has not. An item without a record counts
// from a time on.
func (jb *job) owes(it FoundItem, instant, from time.Time) bool {
	if it.Disabled || it.EnabledSince.After(instant) {
		return false
	}
	// Without a record it has just come to be.
	begun := it.Record.Instant >= instant.UnixMilli()
	return !begun && (it.Record != tree.Record{} || instant.After(from))
}

// checkedSuccess judges when the items have succeeded last.
func (j *Judge) checkedSuccess(jb *job, c Check, f Found, a Alert, now time.Time) {
	d := jb.rules.SucceedEvery
	var missing tree.Items
	oldest := now
	for _, it := range f.Items {
		if it.Disabled {
			continue
		}
		last := jb.since
		if ok := it.Record.LastOK(); ok != 0 {
			last = time.UnixMilli(ok)
		} else if it.Record.Begun == 0 && it.Record.Instant != 0 { // it came to be then
			last = time.UnixMilli(it.Record.Instant)
		}
		if now.Sub(last) >= d {
			missing = append(missing, it.Item)
		}
		if last.Before(oldest) {
			oldest = last
		}
	}
	if len(missing) == 0 && f.More > 0 {
		j.checks = append(j.checks, Check{Job: c.Job, Rule: c.Rule, From: f.More})
		return
	}
	if len(missing) == 0 {
		j.resolve(a, now, "all items have succeeded lately")
		j.again(jb, SucceedEvery, later(oldest.Add(d), now.Add(leastBetween)))
		return
	}
	a.Since = now
	a.Text = fmt.Sprintf("%s of %s not succeeded for %s: since %s", itemsOf(missing), jb.name+plural(missing, " has", " have"), words.Duration(d), jb.at(oldest))
	j.fire(a, false)
	j.again(jb, SucceedEvery, now.Add(checkAgain))
}

func itemsOf(items tree.Items) string {
	if len(items) == 1 {
		return "item " + items.String()
	}
	text := items.String()
	if len(text) > 60 {
		text = text[:60] + "…"
	}
	return "items " + text
}

func plural(items tree.Items, one, several string) string {
	if len(items) == 1 {
		return one
	}
	return several
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// History updates the state of this host's history; empty means no problem.
func (j *Judge) History(problem string, since, now time.Time) {
	a := Alert{Rule: History, Subject: j.server, OfHost: true, Since: now, Host: j.host}
	if problem == "" {
		j.resolve(a, now, "the history is written again")
		return
	}
	if j.file.Hosts.History {
		a.Text = fmt.Sprintf("host %s cannot write its history since %s: %s", j.server, since.UTC().Format(time.RFC3339), oneLine(problem))
		j.fire(a, false)
	}
}

// Cluster is what the keeper of the alerts knows of all hosts.
type Cluster struct {
	// Hosts began to evaluate alerts and did not stop in good order; Alive have a session.
	Hosts, Alive []string
}

// Gone are the hosts that are gone.
func (c *Cluster) Gone() []string {
	var gone []string
	for _, id := range c.Hosts {
		if !slices.Contains(c.Alive, id) {
			gone = append(gone, id)
		}
	}
	return gone
}

// Keep judges the hosts; only the keeper calls it. Alerts about gone hosts are over, and so are alerts that
// gone hosts found by rules that are off; living hosts end theirs themselves. alerts are those in the registry.
func (j *Judge) Keep(c Cluster, alerts []Alert, now time.Time) {
	back := make(map[string]bool)
	for _, id := range c.Alive {
		back[tree.ServerOf(id)] = true
	}
	for _, id := range c.Gone() {
		if server := tree.ServerOf(id); j.file.Hosts.Gone && !back[server] {
			j.fire(Alert{Rule: HostGone, Subject: server, Host: id, Since: now,
				Text: fmt.Sprintf("host %s is gone: its session with the registry has ended, and it had not stopped in good order (%s)", server, id)}, false)
		}
	}
	for i := range alerts {
		switch a := &alerts[i]; {
		case !a.Firing():
		case a.Rule == HostGone && back[a.Subject]:
			j.resolve(*a, now, "a host is at that address again")
		case a.Rule == HostGone && now.Sub(a.Since) > goneFor:
			j.resolve(*a, now, "it is gone for a day, and is not looked for any more")
		case a.OfHost && !slices.Contains(c.Alive, a.Host):
			j.resolve(*a, now, "its host is gone")
		case !j.wants(*a) && !slices.Contains(c.Alive, a.Host):
			j.resolve(*a, now, switchedOff)
		}
	}
}

// Jobs sets how many items jobs have, 0 for removed ones; only the keeper calls it. Alerts about other items
// are over. alerts are those in the registry.
func (j *Judge) Jobs(items map[string]int, alerts []Alert, now time.Time) {
	for i := range alerts {
		a := &alerts[i]
		most, known := items[a.Job]
		switch {
		case !a.Firing(), !known, a.OfHost:
		case most == 0:
			j.resolve(*a, now, "the job was removed")
		case a.Item != nil && *a.Item >= most:
			j.resolve(*a, now, fmt.Sprintf("the job has %s now", words.Count(most, "item")))
		}
	}
}
