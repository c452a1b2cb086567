package verify

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// How long what is over is remembered, by the clock of the events: for runs to
// be compared with others of their item, and for completions.
const (
	runMemory        = 10 * time.Minute
	completionMemory = time.Hour
	// mostFires bounds a job's fires that wait for a verdict.
	mostFires = 10_000
	// mostPending bounds an item's runs without a reported end.
	mostPending = 16
	// waking is how long a process that was halted takes at most, when it goes
	// on, to find out that its session is over and to say so.
	waking = 2 * time.Second
)

// Checker takes events one by one. It is not safe for concurrent use. What it
// keeps is bounded by the jobs, their items and what happens within an hour.
type Checker struct {
	o         Options
	now       time.Time // the newest time that was seen
	sources   map[string]*source
	instances map[string]*instance
	jobs      map[string]*job
	kept      map[Invariant]map[Class]int
	followers map[string]map[*job]bool // the jobs that come after one
	limited   map[string]map[*job]bool // the jobs of which items have waited under a limit or a rate
	report    Report
}

// source is a file, or a file with its older one: one host after the other.
type source struct{ process *process }

// process is one process of a host.
type process struct {
	last   mark // the last event that it wrote
	over   bool
	killed bool // it is over and has not said so
	whole  bool // its first line is known
	lives  map[*instance]bool
	jobs   map[*job]bool
	// trusted: its session is live, as far as it said. yielded: it was so long
	// in doubt that what ran was cancelled.
	trusted, yielded bool
	// owed are jobs that it had when its session was lost, and of which it has
	// said nothing since, with the line that reported the loss. While it has a
	// session they count among its jobs.
	owed map[*job]mark
	// wrongClock is set once the host has reported that its clock is too far from the registry's.
	wrongClock bool
	// awake are times of events, one of each eighth of waking: the newest that
	// is older than waking, and what came since.
	awake []time.Time
}

// instance is one term of a session.
type instance struct {
	process *process
	lost    bool // its session was, and it has said so
	end     mark // when it said so
	// quiet is since when its process had written nothing when it came to say
	// so, but for what may be written while it wakes; yielded is of the process.
	quiet   time.Time
	yielded bool
}

// run is one begin of an item: one fence on one instance.
type run struct {
	id       string
	instance *instance
	fence    int64
	started  mark // the first attempt
	ended    mark // of the newest attempt; none while one is under way
	done     mark // the completion, if it took effect
	skipped  mark // the host's word that it gave the run up
	again    *run // completed the item for the same fire before this one started
	from, to int64
	hasTo    bool
}

type item struct {
	number int
	runs   []*run // not yet retired, in the order of their start
	// last is the retired run with the greatest fence.
	last      *run
	completed map[string]*run
	pending   []pending
}

// pending is a run whose host died before it reported the end: the next host to begin the item may report it.
type pending struct {
	fire    fireID
	finding Finding
	over    mark // the line that found the run open, and began another
	since   time.Time
}

type job struct {
	name        string
	items       map[int]*item
	active      map[*process]time.Time // since when a process has the job
	activeSince time.Time
	fires       map[fireID]*fire
	order       []*fire // as they came up, the oldest first
	spans       []span
	totals      []total   // of its divisions, the oldest first
	changed     time.Time // of the definition or the schedule
	divided     time.Time // when items last came to be: they owe nothing of before
	judgedAt    time.Time
	lastFire    mark      // the newest fire that was begun or skipped
	quietFrom   time.Time // from here on it has not fired
	// trustedFrom is the time from which some host with a live session has had the job.
	trustedFrom time.Time
	gap         mark // from here on a host did not keep all events of the job
	shares      map[*process][]share
	java        bool      // Java hosts take part
	unscheduled bool      // it has no cron: it fires when it is triggered
	after       []string  // the jobs that it comes after
	configured  time.Time // when that was said last, or the job was changed or removed
	promises    map[int]*promise
	backfill    *backfill // the newest that goes on; nil if none is known
	demandedAt  time.Time // when it was looked at last what is owed
	// begunAt is the newest instant that a host began, skippedAt the newest that a
	// host with no items skipped for good.
	begunAt, skippedAt time.Time
	// disabledAt is the newest instant that a host skipped with all its items, since the job is disabled or paused there.
	disabledAt time.Time
	// resumedAt is when a host began an instant after hosts had skipped some so, or because they owned nothing.
	resumedAt time.Time
	report    JobReport
}

// New returns a checker without events.
func New(o Options) *Checker {
	switch {
	case o.Skew == 0:
		o.Skew = DefaultSkew
	case o.Skew < 0:
		o.Skew = 0
	}
	if o.Settle <= 0 {
		o.Settle = DefaultSettle
	}
	if o.MaxFindings <= 0 {
		o.MaxFindings = DefaultMaxFindings
	}
	return &Checker{o: o, sources: make(map[string]*source), instances: make(map[string]*instance), jobs: make(map[string]*job), followers: make(map[string]map[*job]bool),
		kept: make(map[Invariant]map[Class]int), report: Report{Checked: make(map[Invariant]int64)}}
}

// Add takes the next event. Events of one host must come in its order, those
// of different hosts about in the order of their times. at names the line;
// at.File distinguishes hosts.
func (c *Checker) Add(e event.Event, at Place) { c.add(e, at, at.File) }

// add is Add for a host whose events stand in several files.
func (c *Checker) add(e event.Event, at Place, source string) {
	c.report.Events++
	if e.Time.After(c.now) {
		c.now = e.Time
	}
	if !e.Time.IsZero() && (c.report.From.IsZero() || e.Time.Before(c.report.From)) {
		c.report.From = e.Time
	}
	m := markOf(&e, at)
	p := c.process(source, e.Kind == event.HostStarted)
	before := p.last
	p.last = m
	p.wrote(e.Time)
	p.wrongClock = p.wrongClock || e.Kind == event.Clock
	if e.Kind == event.HostStopped {
		p.over = true
		c.leave(p)
		clear(p.owed)
		return
	}
	var in *instance
	if ofTerm := e.Job != "" || (e.Kind == event.Session && e.Wait == ""); ofTerm && e.Host != "" {
		in = c.instance(e.Host, p)
	}
	if e.Kind == event.Session && in != nil {
		c.session(p, e.Reason, m, before)
		return
	}
	if e.Kind == event.HistoryLost {
		for j := range p.jobs {
			if j.gap.kind == "" {
				j.gap = m
			}
		}
		return
	}
	if e.Job == "" || in == nil {
		return
	}
	j := c.job(e.Job, p, m)
	switch e.Kind {
	case event.OverQuota:
		if e.Ceiling == ceiling.HistoryBytes && j.gap.kind == "" {
			j.gap = m
		}
	case event.FireStarted, event.FireSkipped:
		c.fire(j, in.process, &e, m)
	case event.ItemStarted, event.ItemEnded, event.ItemCompleted, event.ItemSkipped, event.ItemHeld:
		if e.Item != nil && *e.Item >= 0 {
			c.item(j, in, &e, m)
		}
	default:
		c.jobEvent(j, p, &e, m)
	}
	c.judge(j, c.now, false)
	c.demand(j, c.now)
}

// jobEvent handles an event of a job on a host, and of its items' owners.
func (c *Checker) jobEvent(j *job, p *process, e *event.Event, m mark) {
	switch e.Kind {
	case event.JobAdded:
		j.enter(p, m.time)
		delete(p.owed, j)
		j.unscheduled = e.Source == abi.SourceTrigger
	case event.Assigned:
		j.assign(p, e.Time, e.Items)
	case event.JobRemoved, event.JobStopped:
		if e.Because.Has(reason.JobRemoved) {
			c.removed(j, c.now.Add(1))
		}
		c.drop(j, p)
		delete(p.owed, j)
	case event.Sharded:
		// Perhaps the job was removed while no host was there to say so. Who
		// shards was there since it joined. What came after is the new job's,
		// also if the host shards twice because an answer was lost.
		if joined, ok := j.active[p]; ok && e.Because.Has(reason.NeverSharded) {
			c.removed(j, joined)
			j.divided = e.Time
		}
		c.shared(j, e)
	case event.JobConfigured:
		c.follow(j, e)
	case event.BackfillGiven:
		c.given(j, e, m)
	case event.BackfillEnded:
		c.ended(j, e)
	case event.JobChanged:
		j.changed = e.Time
		if scheduled := e.Source != abi.SourceTrigger; scheduled && j.unscheduled {
			c.quiet(j, e.Time) // counts from here on
			j.quietFrom, j.unscheduled = e.Time, false
		} else {
			j.unscheduled = !scheduled
		}
	}
}

// End says that the host that wrote the file writes no more.
func (c *Checker) End(file string) {
	if s := c.sources[file]; s != nil && s.process != nil {
		c.end(s.process)
	}
}

// Finish ends all files and returns the report. The checker must not be used
// afterwards.
func (c *Checker) Finish() *Report {
	for _, name := range slices.Sorted(maps.Keys(c.sources)) {
		c.end(c.sources[name].process)
	}
	for _, name := range slices.Sorted(maps.Keys(c.jobs)) {
		j := c.jobs[name]
		for _, n := range slices.Sorted(maps.Keys(j.items)) {
			it := j.items[n]
			c.retire(j, it, true)
			for _, p := range it.pending {
				c.unproven(p)
			}
		}
		c.report.Jobs = append(c.report.Jobs, j.report)
	}
	c.report.Instances = len(c.instances)
	c.report.To = c.now
	return &c.report
}

func (c *Checker) process(file string, fresh bool) *process {
	s := c.sources[file]
	if s == nil {
		s = &source{}
		c.sources[file] = s
	}
	if s.process == nil || fresh || s.process.over {
		if s.process != nil {
			c.end(s.process)
		}
		s.process = &process{lives: make(map[*instance]bool), jobs: make(map[*job]bool), owed: make(map[*job]mark), trusted: true, whole: fresh}
		c.report.Hosts++
	}
	return s.process
}

// end notes that a process writes no more. If it has not said so it was killed.
func (c *Checker) end(p *process) {
	if p.over {
		return
	}
	p.over, p.killed = true, true
	c.leave(p)
	clear(p.owed)
}

// wrote notes that the process was awake.
func (p *process) wrote(at time.Time) {
	const step = waking / 8
	n := len(p.awake)
	switch {
	case n > 0 && at.Before(p.awake[n-1]): // its clock was set back
		return
	case n > 0 && at.Truncate(step).Equal(p.awake[n-1].Truncate(step)):
		p.awake[n-1] = at
	default:
		p.awake = append(p.awake, at)
	}
	old := 0
	for old+1 < len(p.awake) && p.awake[old+1].Before(at.Add(-waking)) {
		old++
	}
	p.awake = slices.Delete(p.awake, 0, old)
}

// quietSince is since when the process had written nothing when it began to
// wake up for its last event. Zero is for ever.
func (p *process) quietSince() time.Time {
	if len(p.awake) > 0 && p.awake[0].Before(p.last.time.Add(-waking)) {
		return p.awake[0]
	}
	return time.Time{}
}

// session takes what a process says of its session. before is the line before.
func (c *Checker) session(p *process, state string, m, before mark) {
	switch state {
	case event.SessionLive:
		c.trust(p, m)
	case event.SessionSuspect:
		c.doubt(p, m.time)
	case event.SessionYield:
		c.doubt(p, m.time)
		p.yielded = true
	case event.SessionLost:
		// Without doubt before, it was not awake since the line before.
		c.doubt(p, before.time)
		for other := range p.lives { // the names of a term begin alike
			other.lost, other.end, other.quiet, other.yielded = true, m, p.quietSince(), p.yielded
		}
		clear(p.lives)
		for j := range p.jobs {
			if _, already := p.owed[j]; !already {
				p.owed[j] = m
			}
		}
		c.leave(p)
	}
}

// doubt notes that from now on nothing is asked of a process: it cannot know
// whether its items are its own.
func (c *Checker) doubt(p *process, now time.Time) {
	if !p.trusted {
		return
	}
	for _, j := range p.sorted() {
		if !j.trustedBut(p) {
			c.quiet(j, now)
		}
	}
	p.trusted = false
}

// trust notes that a process has a live session. The jobs that it had when the
// one before was lost are wanted of it, until it says otherwise.
func (c *Checker) trust(p *process, m mark) {
	p.yielded = false
	if p.trusted {
		return
	}
	for j := range p.owed {
		if !p.jobs[j] {
			j.enter(p, m.time)
		}
	}
	for j := range p.jobs {
		if !j.trustedBut(p) {
			j.quietFrom, j.trustedFrom = m.time, m.time
		}
	}
	p.trusted = true
}

// sorted are the jobs of a process by name, so that findings come in one order.
func (p *process) sorted() []*job {
	return slices.SortedFunc(maps.Keys(p.jobs), func(a, b *job) int { return strings.Compare(a.name, b.name) })
}

// trustedBut reports whether another process that has the job has a live session.
func (j *job) trustedBut(p *process) bool {
	for other := range j.active {
		if other != p && other.trusted {
			return true
		}
	}
	return false
}

// leave takes a process out of all jobs.
func (c *Checker) leave(p *process) {
	for _, j := range p.sorted() {
		c.drop(j, p)
	}
}

func (c *Checker) drop(j *job, p *process) {
	if _, has := j.active[p]; has && !j.trustedBut(p) {
		c.quiet(j, p.last.time)
	}
	delete(p.jobs, j)
	delete(j.active, p)
	if !p.killed && len(j.shares[p]) > 0 {
		j.assign(p, p.last.time, nil)
	}
	if len(j.active) == 0 && !j.activeSince.IsZero() {
		c.judge(j, p.last.time, true)
		j.activeSince = time.Time{}
	}
}

func (c *Checker) instance(id string, p *process) *instance {
	in := c.instances[id]
	if in == nil {
		in = &instance{process: p}
		c.instances[id] = in
		p.lives[in] = true
	}
	return in
}

func (c *Checker) job(name string, p *process, m mark) *job {
	j := c.jobs[name]
	if j == nil {
		j = &job{name: name, items: make(map[int]*item), active: make(map[*process]time.Time), fires: make(map[fireID]*fire),
			promises: make(map[int]*promise), shares: make(map[*process][]share), java: slices.Contains(c.o.Java, name), report: JobReport{Job: name}}
		c.jobs[name] = j
	}
	switch m.kind {
	case event.Assigned, event.FireStarted, event.FireSkipped, event.ItemStarted:
		if len(j.active) == 0 { // the beginning of the file is gone: who speaks of a job has it
			j.enter(p, m.time)
		}
		if p.jobs[j] {
			delete(p.owed, j)
		}
	}
	return j
}

// enter notes that a process has a job.
func (j *job) enter(p *process, now time.Time) {
	if _, has := j.active[p]; !has && !j.trustedBut(p) {
		j.quietFrom, j.trustedFrom = now, now
	}
	if _, owed := p.owed[j]; len(j.active) == 0 || (len(j.active) == 1 && owed && p.jobs[j]) {
		j.activeSince = now
	}
	j.active[p], p.jobs[j] = now, true
}

func (c *Checker) find(f Finding) {
	if j := c.jobs[f.Job]; j != nil && j.gap.kind != "" && f.Class == Violated {
		f.Class = Unproven
		f.Text += "; but the history has not all events of the job"
		f.Lines = append(f.Lines, j.gap.line())
	}
	if c.o.Strict {
		f.Class = Violated
	}
	switch f.Class {
	case Violated:
		c.report.Violations++
		if j := c.jobs[f.Job]; j != nil {
			j.report.Violations++
		}
	case Unproven:
		c.report.Unproven++
	case Fenced:
		c.report.Fenced++
	}
	if c.kept[f.Invariant] == nil {
		c.kept[f.Invariant] = make(map[Class]int)
	}
	if c.kept[f.Invariant][f.Class]++; c.kept[f.Invariant][f.Class] <= c.o.MaxFindings {
		c.report.Findings = append(c.report.Findings, f)
	}
}

// item takes an event of one item.
func (c *Checker) item(j *job, in *instance, e *event.Event, m mark) {
	n := *e.Item
	it := j.items[n]
	if it == nil {
		it = &item{number: n, completed: make(map[string]*run)}
		j.items[n] = it
		j.report.Items = max(j.report.Items, n+1)
	}
	f := c.fireOf(j, e, m)
	if f != nil && len(it.pending) > 0 { // there is word of it after all
		it.pending = slices.DeleteFunc(it.pending, func(p pending) bool { return p.fire == f.id })
	}
	switch e.Kind {
	case event.ItemStarted:
		c.itemStarted(j, it, in, f, e, m)
	case event.ItemEnded:
		if r := it.run(in, e.Fence); r != nil {
			r.ended = m
		}
		if e.Outcome != abi.OutcomeCancelled {
			f.note(n, itemFinished, m)
		}
	case event.ItemCompleted:
		c.itemCompleted(j, it, in, f, e, m)
	case event.ItemHeld: // the run is closed, and no other host repeats it
		j.report.Skipped++
		delete(j.promises, n) // until an operator releases the item
		f.note(n, itemExcused, m)
	case event.ItemSkipped:
		c.itemSkipped(j, it, in, f, e, m)
	}
	c.retire(j, it, false)
}

// itemStarted takes a run in.
func (c *Checker) itemStarted(j *job, it *item, in *instance, f *fire, e *event.Event, m mark) {
	r := it.run(in, e.Fence)
	if r == nil {
		r = &run{id: e.RunID, instance: in, fence: e.Fence, started: m, from: e.OffsetWrites}
		c.begun(it, r)
		if last := it.last; last != nil && last.fence >= r.fence && (last.instance != in || last.id != r.id || last.fence != r.fence) {
			c.fences(j, it, last, r)
		}
		it.runs = append(it.runs, r)
		j.report.Runs++
		if e.Source != abi.SourceFailover { // it was judged where it was begun first
			c.runsAnyway(j, f, it.number, m)
		}
	}
	r.ended = mark{}
	f.note(it.number, itemBegun, m)
	j.settled(it.number, e.Trigger, e.Instant)
	if e.Previous != nil {
		j.previous(it, e.Previous, m)
	}
}

// itemCompleted closes a run that took effect.
func (c *Checker) itemCompleted(j *job, it *item, in *instance, f *fire, e *event.Event, m mark) {
	j.report.Completed++
	r := it.run(in, e.Fence)
	if r == nil { // its beginning is in a file that is gone
		r = &run{id: e.RunID, instance: in, fence: e.Fence, started: m, ended: m, from: e.OffsetWrites}
		it.runs = append(it.runs, r)
	}
	r.to, r.hasTo = e.OffsetWrites, true
	c.completed(j, it, r, m)
	f.note(it.number, itemFinished, m)
	c.completedOf(j, f, it.number, m)
	if e.Beside != "" {
		c.beside(j, it, r, e.Beside, m)
	}
}

// beside reports a run beside which a Java host, which writes no history, has run the item.
func (c *Checker) beside(j *job, it *item, r *run, other string, m mark) {
	c.report.Checked[OneOwner]++
	finding := Finding{Invariant: OneOwner, Class: Violated, Job: j.name, Item: it.number, RunID: r.id, Lines: linesOf(r.started, m),
		Text: "the item's running mark was that of " + other + " when the run ended: both ran the item at once"}
	if other == event.BesideUnknown {
		finding.Class, finding.Text = Unproven, "the item's running mark was gone when the run ended: a Java host ran the item at the same time, or somebody deleted the mark"
	}
	c.find(finding)
}

// itemSkipped takes in why an item did not run, or that a run was given up.
func (c *Checker) itemSkipped(j *job, it *item, in *instance, f *fire, e *event.Event, m mark) {
	j.report.Skipped++
	if e.Fence != 0 { // a run was given up: what becomes of the item others report
		if r := it.run(in, e.Fence); r != nil {
			r.skipped = m
		}
		f.note(it.number, itemBegun, m)
		return
	}
	f.note(it.number, itemExcused, m)
	// Which instants found the queue full follows from the item's run. Of an item that waits under a limit the next host decides anew.
	final := forGood(e) && (e.Cause != event.SkipQueueFull || (j.underWay(it.number) && !c.underLimit(j)))
	if f != nil && final && e.Through.IsZero() {
		if f.answered == nil {
			f.answered = make(map[int]mark)
		}
		f.answered[it.number] = m
	}
	if e.Runs {
		c.stillRuns(j, it, in, m)
	}
	if e.Owed {
		j.owe(it.number, e, m)
		c.waitsUnder(j, it.number, e)
	} else {
		j.settled(it.number, e.Trigger, later(e.Instant, e.Through))
	}
	if !e.Through.IsZero() {
		c.span(j, []int{it.number}, e.Instant, e.Through, m, final)
	}
}

// run is the run of the fence on the instance; nil if there is none.
func (it *item) run(in *instance, fence int64) *run {
	for _, r := range slices.Backward(it.runs) {
		if r.instance == in && r.fence == fence {
			return r
		}
	}
	return nil
}

// begun compares a run that starts with completions. What that means is judged
// when the run is over: a host that was halted starts what it had begun before
// somebody else completed the item, and learns only then that its session is
// over.
func (c *Checker) begun(it *item, r *run) {
	c.report.Checked[OnceCompleted]++
	if before := it.completed[r.id]; before != nil && r.id != "" && before != r {
		r.again = before
	}
}

// repeated reports a run whose item had been completed for the fire.
func (c *Checker) repeated(j *job, it *item, r *run) {
	if r.again == nil {
		return
	}
	class := Violated
	if r.fence < r.again.fence && c.halted(r, r.again) {
		class = Fenced
	}
	c.find(Finding{Invariant: OnceCompleted, Class: class, Job: j.name, Item: it.number, RunID: r.id,
		Text:  fmt.Sprintf("the item was completed for this fire under fence %d, and ran again under fence %d", r.again.fence, r.fence),
		Lines: linesOf(r.again.done, r.started)})
}

func (c *Checker) completed(j *job, it *item, r *run, m mark) {
	before := it.completed[r.id]
	switch {
	case before != nil:
		c.find(Finding{Invariant: OnceCompleted, Class: Violated, Job: j.name, Item: it.number, RunID: r.id,
			Text: "the item was completed twice for one fire", Lines: linesOf(before.done, m)})
	default:
		for _, other := range it.runs { // by a clock that is ahead, its line came first
			if other != r && other.id == r.id && other.fence > r.fence {
				c.find(Finding{Invariant: OnceCompleted, Class: Violated, Job: j.name, Item: it.number, RunID: r.id,
					Text:  fmt.Sprintf("the item was completed for this fire under fence %d, and ran again under fence %d", r.fence, other.fence),
					Lines: linesOf(m, other.started)})
			}
		}
	}
	r.done = m
	if r.id != "" {
		it.completed[r.id] = r
	}
	if len(it.completed) > 256 {
		maps.DeleteFunc(it.completed, func(_ string, r *run) bool { return c.now.Sub(r.done.time) > completionMemory })
	}
}

// until is the last time at which the guest is known to have been alive, and
// the line that shows it.
func (r *run) until() mark {
	switch {
	case r.ended.kind != "":
		return r.ended
	case r.done.kind != "":
		return r.done
	case r.skipped.kind != "":
		return r.skipped
	case r.instance.lost:
		return r.instance.end
	}
	return r.instance.process.last
}

// over reports whether the guest is known to be gone.
func (r *run) over() bool {
	return r.ended.kind != "" || r.done.kind != "" || r.skipped.kind != "" || r.instance.lost || r.instance.process.over
}

// retire compares runs that are over with all others of the item, and forgets
// them. all is set at the end.
func (c *Checker) retire(j *job, it *item, all bool) {
	var kept []*run
	for k, r := range it.runs {
		if !all && (!r.over() || c.now.Sub(r.until().time) <= runMemory+c.o.Skew) {
			kept = append(kept, r)
			continue
		}
		c.repeated(j, it, r)
		for _, other := range kept {
			c.compare(j, it, other, r)
		}
		for _, other := range it.runs[k+1:] {
			c.compare(j, it, r, other)
		}
		if it.last == nil || it.last.fence < r.fence {
			it.last = r
		}
	}
	it.runs = kept
}

// previous takes what the record says of the item's run before m, by another
// instance.
func (j *job) previous(it *item, was *event.PreviousRun, m mark) {
	id := idOf(was.Instant, was.Trigger)
	open := was.Outcome == ""
	if f := j.fires[id]; f != nil {
		switch had := f.fates[it.number]; {
		case open && had.fate == itemBegun:
			had.over = m
			f.fates[it.number] = had
		case was.Outcome == tree.OutcomeLost, was.Outcome == tree.OutcomeHeld:
			f.note(it.number, itemExcused, m)
		case !open && had.fate < itemFinished:
			f.note(it.number, itemFinished, m)
		}
	}
	if i := slices.IndexFunc(it.pending, func(p pending) bool { return p.fire == id }); i >= 0 {
		if open {
			it.pending[i].over = m
		} else {
			it.pending = slices.Delete(it.pending, i, i+1)
		}
	}
}

// unproven reports a run of which no line says anything.
func (c *Checker) unproven(p pending) {
	if p.over.kind != "" && c.now.Sub(p.over.time) > c.o.Settle {
		p.finding.Class = Violated
		p.finding.Text += openText
		p.finding.Lines = append(p.finding.Lines, p.over.line())
	}
	c.find(p.finding)
}

const openText = ", its run was open when the item was begun for another fire, and no record says that it was given up"

// skewOf is by how much the clocks of two runs may differ.
func (c *Checker) skewOf(a, b *run) time.Duration {
	if serverOf(a.started.host) == serverOf(b.started.host) {
		return 0 // one clock
	}
	return c.o.Skew
}

// halted reports whether the host of a former owner slept from before the item
// was begun by the next one until shortly before it found its session over, or
// stopped, and completed nothing. Who has yielded knew before that its session
// might end, and had to stop its guests in time.
func (c *Checker) halted(former, next *run) bool {
	in := former.instance
	quiet := in.quiet
	switch {
	case former.done.kind != "" || in == next.instance:
		return false
	case in.lost && in.yielded:
		return false
	case in.lost:
	case in.process.over && !in.process.killed:
		quiet = in.process.quietSince()
	default:
		return false
	}
	return !quiet.After(next.started.time.Add(c.skewOf(former, next)))
}

// compare holds two runs of an item against each other. a started first.
func (c *Checker) compare(j *job, it *item, a, b *run) {
	skew := c.skewOf(a, b)
	former, latter := a, b // by fence
	if b.fence < a.fence {
		former, latter = b, a
	}
	class := Violated
	if c.halted(former, latter) {
		class = Fenced
	}
	if a.instance != b.instance {
		c.report.Checked[OneOwner]++
		from := a.started.time
		if b.started.time.After(from) {
			from = b.started.time
		}
		last := a.until()
		if u := b.until(); u.time.Before(last.time) {
			last = u
		}
		if d := last.time.Sub(from); d > skew {
			c.find(Finding{Invariant: OneOwner, Class: class, Job: j.name, Item: it.number, RunID: b.id,
				Text:  fmt.Sprintf("guests of the item were alive on two hosts at once for at least %s", d-skew),
				Lines: linesOf(a.started, a.until(), b.started, b.until())})
		}
	}
	c.report.Checked[FencesGrow]++
	switch {
	case a.fence == b.fence:
		c.fences(j, it, a, b)
	case b.fence < a.fence && (a.instance == b.instance || b.started.time.Sub(a.started.time) > skew):
		c.fences(j, it, a, b)
	}
	if former.hasTo {
		c.report.Checked[OffsetsForward]++
		if former.to > latter.from {
			c.find(Finding{Invariant: OffsetsForward, Class: Violated, Job: j.name, Item: it.number, RunID: former.id,
				Text: fmt.Sprintf("the run under fence %d left the offset written %d times, and the one under fence %d began where it was written %d times",
					former.fence, former.to, latter.fence, latter.from),
				Lines: linesOf(former.done, latter.started)})
		}
	} else if former.from > latter.from {
		c.find(Finding{Invariant: OffsetsForward, Class: Violated, Job: j.name, Item: it.number, RunID: latter.id,
			Text:  fmt.Sprintf("the offset was written %d times when fence %d began, and %d times when fence %d did", former.from, former.fence, latter.from, latter.fence),
			Lines: linesOf(former.started, latter.started)})
	}
}

// fences reports a fence that is not greater than one before it.
func (c *Checker) fences(j *job, it *item, a, b *run) {
	class := Violated
	if b.fence < a.fence && c.halted(b, a) {
		class = Fenced // it was begun before, and started late by a host that was halted
	}
	c.find(Finding{Invariant: FencesGrow, Class: class, Job: j.name, Item: it.number, RunID: b.id,
		Text: fmt.Sprintf("a run under fence %d started after one under fence %d", b.fence, a.fence), Lines: linesOf(a.started, b.started)})
}

// removed forgets what was due before an instant of a job that was removed from
// the registry, and where its offsets were: they may be gone with it.
func (c *Checker) removed(j *job, before time.Time) {
	for _, it := range j.items {
		var old, since []*run
		for _, r := range it.runs {
			if r.started.time.Before(before) {
				old = append(old, r)
			} else {
				since = append(since, r)
			}
		}
		it.pending = slices.DeleteFunc(it.pending, func(p pending) bool { return p.finding.Lines[0].Time.Before(before) })
		it.runs = old
		c.retire(j, it, true)
		it.runs = since
		if it.last != nil && it.last.started.time.Before(before) {
			it.last = nil
		}
	}
	var kept []*fire
	for _, f := range j.order {
		first := f.seen
		if first.kind == "" {
			first = f.expected
		}
		if first.time.Before(before) {
			delete(j.fires, f.id)
		} else {
			kept = append(kept, f)
		}
	}
	j.order = kept
	if j.backfill != nil && j.backfill.mark.time.Before(before) {
		j.backfill = nil
	}
	maps.DeleteFunc(j.promises, func(_ int, p *promise) bool { return p.mark.time.Before(before) })
	j.spans = slices.DeleteFunc(j.spans, func(s span) bool { return s.mark.time.Before(before) })
}

func serverOf(instance string) string {
	server, _, _ := strings.Cut(instance, "@-@")
	return server
}
