package catalog

import (
	"bytes"
	"context"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/builtin"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

const (
	// keepIdle is how many compiled modules that no job needs are kept all
	// the same until the next rescan but one, so that going back to the
	// version before costs nothing and a host that is a moment behind does
	// not find its module closed.
	keepIdle = 2
	// maxWait is how many debounce times a look is put off at most by events
	// that keep coming.
	maxWait = 10
	// maxBackoff is the longest time between two attempts to compile what
	// failed for a reason that may pass.
	maxBackoff = time.Hour
)

// run is one call of Run. All of it belongs to the goroutine of that call.
type run struct {
	*Catalog
	apply func([]engine.Job, []engine.Refusal)

	state    state
	plan     plan
	applied  bool
	outcomes map[string]outcome
	failures map[string]failure   // by digest
	idle     map[string]time.Time // digests of outcomes not needed, since when

	watcher *fsnotify.Watcher // nil if events cannot be had
	events  chan fsnotify.Event
	faults  chan error
	watched fs.FileInfo     // what the watch of the directory is on
	folders map[string]bool // that are watched

	tasks   map[string]task // by digest
	results chan result
	updates chan grants.Update // of the grants
	working sync.WaitGroup     // joins the tasks, and who watches the grants

	compiles chan string // digests of tasks that begin to compile

	// slowAt is when a task will have compiled for long; zero if that was announced,
	// or if none compiles.
	slowAt    time.Time
	announced bool            // for the modules that wait to be compiled now
	shown     map[string]bool // digests of the tasks at that time

	// due is when to look because of events, first when the first of them
	// came, rest when a file may be at rest, rescanAt when to read everything.
	due, first, rest, rescanAt time.Time
	left                       map[string]bool // files that the last look had no time to read
	warned                     bool            // of the grants
	began                      time.Time
	pastFile, saved            string
	saveAt                     time.Time // when to save the past; zero: nothing has changed
}

// judgeTime is how long jobs with calendars are judged before what was decided takes effect. The others are judged
// after the next look, which comes at once.
const judgeTime = time.Second

// tryTime is how long a task tries jobs before others have their turn.
const tryTime = time.Second

// maxTasks bounds the modules that are compiled or tried at once. The runtime
// has lanes of its own; more may wait in them.
const maxTasks = 8

// task is work on a module, in a goroutine of its own.
type task struct {
	giveUp    context.CancelFunc
	began     time.Time
	compiling bool // its compiled code was not kept
	groups    []string
	urgency   int
}

// failure remembers how often compiling failed for a reason that may pass.
type failure struct {
	times int
	retry time.Time
}

// result is what a task gives back.
type result struct {
	want
	outcome outcome
	// gone says that the file is not the wanted version any more; cancelled
	// that the work was given up; passing that a failure may go away.
	gone, cancelled, passing bool
	took                     time.Duration
	isCompiled               bool // its compiled code was not kept
}

func newRun(c *Catalog, apply func([]engine.Job, []engine.Refusal)) *run {
	name := pastFile(c.cache, c.dir)
	before, err := readPast(name)
	if err != nil {
		c.log.Warn("what was in force before this start is not known", zap.Error(err))
	}
	return &run{
		Catalog: c, apply: apply, began: time.Now(), pastFile: name,
		state:    state{dir: c.dir, ceilings: c.ceilings, placement: c.placement, grants: c.grants, mounts: c.mounts, past: before},
		outcomes: make(map[string]outcome), failures: make(map[string]failure),
		idle:  make(map[string]time.Time),
		tasks: make(map[string]task), results: make(chan result, maxTasks), compiles: make(chan string), updates: make(chan grants.Update),
	}
}

func (r *run) run(ctx context.Context) error {
	// There is room for the results of all tasks, so none blocks.
	defer func() {
		for _, t := range r.tasks {
			t.giveUp()
		}
		r.working.Wait()
		close(r.results)
		for res := range r.results {
			if c := res.outcome.compiled; c != nil && r.outcomes[res.digest].compiled == nil {
				c.close()
			}
		}
		for _, o := range r.outcomes {
			if o.compiled != nil {
				o.compiled.close()
			}
		}
	}()

	if w, err := fsnotify.NewWatcher(); err != nil {
		r.log.Warn("no file events: changes are noticed by the timer only", zap.Duration("every", r.rescan), zap.Error(err))
	} else {
		r.watcher, r.events, r.faults = w, w.Events, w.Errors
		defer w.Close() // joins the watcher's goroutine; nothing is lost if it fails
		if err := w.Add(filepath.Dir(r.dir)); err != nil {
			r.log.Debug("parent of the plugins directory is not watched", zap.Error(err))
		}
	}

	r.watchGrants(ctx)
	r.look(ctx, true)
	wake := time.NewTimer(0)
	defer wake.Stop()
	for {
		if !r.saveAt.IsZero() && !time.Now().Before(r.saveAt) {
			r.save()
		}
		due := earlier(earlier(r.due, r.rest), r.rescanAt)
		wake.Reset(time.Until(earlier(earlier(due, r.slowAt), r.saveAt)))
		select {
		case <-ctx.Done():
			r.save()
			return nil
		case e, ok := <-r.events:
			if !ok {
				r.events = nil
			} else if e.Name == r.dir || strings.HasPrefix(e.Name, r.dir+string(filepath.Separator)) {
				r.changed()
			}
		case err, ok := <-r.faults:
			if !ok {
				r.faults = nil
			} else {
				r.log.Warn("file events were lost", zap.Error(err))
				r.changed()
			}
		case u := <-r.updates:
			r.regrant(ctx, u)
		case digest := <-r.compiles:
			r.compiling(digest)
		case res := <-r.results:
			r.finished(ctx, res)
		case now := <-wake.C:
			if !r.slowAt.IsZero() && !now.Before(r.slowAt) {
				r.announce()
			}
			if !now.Before(due) {
				r.look(ctx, !now.Before(r.rescanAt))
			}
		}
	}
}

// changed puts the next look off until it has been quiet for a while, but not
// for ever.
func (r *run) changed() {
	now := time.Now()
	if r.first.IsZero() {
		r.first = now
	}
	r.due = earlier(now.Add(r.debounce), r.first.Add(maxWait*r.debounce))
}

// look looks at the directory, reads what is to be read, and acts on it. What it has no time for is left to the next one,
// which comes at once.
func (r *run) look(ctx context.Context, all bool) {
	now, began := time.Now(), r.now()
	r.due, r.first = time.Time{}, time.Time{}
	if all {
		r.rescanAt = now.Add(r.rescan)
		for digest, f := range r.failures {
			if o, ok := r.outcomes[digest]; ok && !now.Before(f.retry) {
				o.again = true
				r.outcomes[digest] = o
			}
		}
		for digest, since := range r.idle {
			if now.Sub(since) >= r.rescan {
				r.drop(digest)
			}
		}
	}
	r.watch()
	found := lookFor(r.dir, mostFiles, r.state.known(), nil)
	r.watchFolders(found.folders)
	next, read, rest := r.state.look(found, now, r.debounce, all || len(r.left) > 0)
	if len(r.left) > 0 {
		// Files that were not read again yet come before those that were.
		read = slices.DeleteFunc(read, func(name string) bool { return !r.left[name] && !next.files[name].read.none() })
	}
	next.order(read)
	reading := newReading(r.dir, next.files, r.parse)
	r.left = make(map[string]bool)
	for i, name := range read {
		if ctx.Err() != nil {
			return
		}
		if i > 0 && r.now().Sub(began) >= lookTime {
			for _, name := range read[i:] {
				r.left[name] = true
			}
			r.due = now
			break
		}
		r.wait(ctx)
		reading.read(name)
	}
	next, again := next.read(reading.contents, time.Now(), r.debounce)
	r.state, r.rest = next, earlier(rest, again)
	for name, f := range next.files {
		if next.stale(name, f) {
			r.due = now // read with the new defaults
			break
		}
	}
	r.checkSignatures()
	r.act(ctx)
	if !r.warned && len(r.left) == 0 {
		r.warned = true
		r.warnOfGrants()
	}
}

// watch sees to it that the watch is on the directory that has the name now:
// it may have been deleted and made again, or be a symbolic link that was
// turned. That is done before the look, so that nothing falls in between.
func (r *run) watch() {
	if r.watcher == nil {
		return
	}
	info, err := os.Stat(r.dir)
	if err != nil {
		r.watched = nil // the look will say so
		return
	}
	if r.watched != nil && os.SameFile(r.watched, info) {
		return
	}
	// An error means that there was no such watch any more.
	_ = r.watcher.Remove(r.dir)
	if err := r.watcher.Add(r.dir); err != nil {
		r.watched = nil
		r.log.Warn("directory is not watched: changes are noticed by the timer only", zap.String("dir", r.dir), zap.Error(err))
		return
	}
	r.watched = info
}

// watchFolders watches the folders of the directory. One that is new is looked at once more: something may have been
// put into it before it was watched.
func (r *run) watchFolders(list []string) {
	if r.watcher == nil || list == nil {
		return
	}
	now := make(map[string]bool, len(list))
	for _, folder := range list[1:] {
		// Again also if it is watched: it may have been deleted and made again.
		if err := r.watcher.Add(filepath.Join(r.dir, filepath.FromSlash(folder))); err != nil {
			r.log.Debug("folder is not watched: changes are noticed by the timer only", zap.String("folder", folder), zap.Error(err))
			continue
		}
		if now[folder] = true; !r.folders[folder] {
			r.changed()
		}
	}
	for folder := range r.folders {
		if !now[folder] {
			// An error means that there was no such watch any more.
			_ = r.watcher.Remove(filepath.Join(r.dir, filepath.FromSlash(folder)))
		}
	}
	r.folders = now
}

// act decides, applies what changed, lets go of modules that are not needed,
// and has the next one compiled.
func (r *run) act(ctx context.Context) {
	r.recall()
	before, began := r.plan, r.now()
	r.state.spent = func() bool { return r.now().Sub(began) >= judgeTime }
	r.state, r.plan = r.state.decide(r.outcomes, time.Now())
	if !r.applied || !slices.Equal(before.jobs, r.plan.jobs) || !slices.EqualFunc(before.refused, r.plan.refused, sameRefusal) {
		r.logChanges(before)
		jobs := make([]engine.Job, len(r.plan.jobs))
		modules := make(map[string]engine.Module, len(jobs))
		for i, b := range r.plan.jobs {
			jobs[i] = b.job
			modules[b.doc.Configuration.JobName] = b.job.Module
		}
		r.mu.Lock()
		r.modules = modules
		r.mu.Unlock()
		refused := slices.Clone(r.plan.refused)
		for i := range refused {
			refused[i].Reasons = slices.Clone(refused[i].Reasons)
		}
		r.apply(jobs, refused)
		r.applied = true
	}
	if r.plan.more {
		r.due = time.Now()
	}
	r.sweep()
	r.next(ctx)
	r.publish()
	if r.saveAt.IsZero() {
		r.saveAt = time.Now().Add(saveTime)
	}
}

func sameRefusal(a, b engine.Refusal) bool {
	return a.File == b.File && a.Kept == b.Kept && slices.Equal(a.Reasons, b.Reasons)
}

// logChanges logs how the plan differs from the one before.
func (r *run) logChanges(before plan) {
	old := make(map[string]*binding)
	for _, b := range before.jobs {
		old[b.doc.Configuration.JobName] = b
	}
	for _, b := range r.plan.jobs {
		name := b.doc.Configuration.JobName
		fields := []zap.Field{zap.String("job", name), zap.String("file", b.job.File), zap.String("module", b.job.ModuleFile), zap.String("digest", b.digest)}
		switch o := old[name]; {
		case o == nil:
			r.log.Info("job is defined", fields...)
			r.noteCron(b)
		case o != b && o.digest != b.digest:
			r.log.Info("job has another module", fields...)
		case o != b:
			r.log.Info("job has another definition", fields...)
			if o.doc.Configuration.Cron != b.doc.Configuration.Cron {
				r.noteCron(b)
			}
		}
		delete(old, name)
	}
	for _, name := range slices.Sorted(maps.Keys(old)) {
		r.log.Info("job is not defined any more", zap.String("job", name), zap.String("file", old[name].job.File))
	}
	refused := make(map[string]engine.Refusal)
	for _, f := range before.refused {
		refused[f.File] = f
	}
	var waiting []string
	for _, f := range r.plan.refused {
		o, ok := refused[f.File]
		news := !ok || !sameRefusal(o, f)
		if news && !r.progress.Settled && waitsForModule(f, r.plan.complaints[f.File]) {
			waiting = append(waiting, f.File)
		} else if news {
			text := "file is refused"
			if f.Kept {
				text = "file is refused, an earlier version stays in force"
			}
			r.log.Warn(text, zap.String("file", f.File), zap.Strings("reasons", f.Reasons))
		}
		delete(refused, f.File)
	}
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		r.log.Info("file is not refused any more", zap.String("file", name))
	}
	if len(waiting) > 0 {
		r.notices.Info("definitions wait for their modules, which are not there yet", zap.String("files", words.Some(waiting, ", ")))
	}
}

// waitsForModule reports whether a definition is refused only because modules are
// missing: at the start of a host they may still be being built.
func waitsForModule(f engine.Refusal, all complaints) bool {
	return !f.Kept && !slices.ContainsFunc(all.Kept(), func(c complaint) bool { return !c.missing })
}

// noteCron says how a cron of five fields is read.
func (r *run) noteCron(b *binding) {
	if text := b.doc.Understood(time.Now()); text != "" {
		r.notices.Info(text, zap.String("job", b.doc.Configuration.JobName))
	}
}

// sweep forgets outcomes that the plan does not need; of the compiled ones,
// the newest few stay for a while.
func (r *run) sweep() {
	now := time.Now()
	for digest, o := range r.outcomes {
		_, busy := r.tasks[digest]
		switch _, known := r.idle[digest]; {
		case r.plan.needed[digest] || busy:
			delete(r.idle, digest)
		case o.compiled == nil:
			r.drop(digest)
		case !known:
			r.idle[digest] = now
		}
	}
	for len(r.idle) > keepIdle {
		oldest := ""
		for digest, since := range r.idle {
			if oldest == "" || since.Before(r.idle[oldest]) {
				oldest = digest
			}
		}
		r.drop(oldest)
	}
}

// drop forgets an outcome and closes its module.
func (r *run) drop(digest string) {
	if o := r.outcomes[digest]; o.compiled != nil {
		o.compiled.close()
	}
	delete(r.outcomes, digest)
	delete(r.failures, digest)
	delete(r.idle, digest)
}

// next begins tasks, and gives up what is not wanted any more.
func (r *run) next(ctx context.Context) {
	for digest, t := range r.tasks {
		if !slices.ContainsFunc(r.plan.compile, func(w want) bool { return w.digest == digest }) {
			t.giveUp()
		}
	}
	if len(r.plan.compile) == 0 {
		r.announced = false
		return
	}
	for _, w := range r.plan.compile {
		if _, busy := r.tasks[w.digest]; busy {
			continue
		}
		if ctx.Err() != nil || len(r.tasks) == maxTasks {
			return
		}
		if !r.mayBegin(w) {
			continue
		}
		r.begin(ctx, w)
	}
}

// begin starts a task.
func (r *run) begin(ctx context.Context, w want) {
	c := r.outcomes[w.digest].compiled
	sub, giveUp := context.WithCancel(ctx)
	r.tasks[w.digest] = task{giveUp: giveUp, began: time.Now(), groups: w.groups, urgency: w.urgency}
	r.working.Go(func() {
		compiled := false
		res := r.do(sub, w, c, func() {
			compiled = true
			select {
			case r.compiles <- w.digest:
			case <-sub.Done():
			}
		})
		res.isCompiled = compiled
		r.results <- res
	})
}

// compiling takes note that a task begins to compile.
func (r *run) compiling(digest string) {
	t, ok := r.tasks[digest]
	if !ok {
		return
	}
	t.compiling = true
	r.tasks[digest] = t
	if !r.announced && r.slowAt.IsZero() {
		r.slowAt = time.Now().Add(slow)
	}
}

// finished takes what a task brings.
func (r *run) finished(ctx context.Context, res result) {
	r.tasks[res.digest].giveUp()
	delete(r.tasks, res.digest)
	if len(r.compilingNow()) == 0 {
		r.slowAt = time.Time{}
	}
	r.compiledIn(res)
	switch old := r.outcomes[res.digest]; {
	case res.cancelled:
	case res.gone:
		// The next look will find what is there instead.
		r.state = r.state.forget(res.file)
		r.changed()
	default:
		o := res.outcome
		if o.compiled != nil && old.trials != nil {
			trials := maps.Clone(old.trials)
			maps.Copy(trials, o.trials)
			o.trials = trials
		}
		r.outcomes[res.digest] = o
		if res.passing {
			f := r.failures[res.digest]
			f.times++
			f.retry = time.Now().Add(min(r.rescan<<min(f.times-1, 20), maxBackoff))
			r.failures[res.digest] = f
		} else {
			delete(r.failures, res.digest)
		}
		if o.compiled != nil && old.compiled == nil {
			r.log.Info("module is ready", zap.String("module", res.file), zap.String("digest", res.digest), zap.Duration("took", res.took))
		}
	}
	r.act(ctx)
}

// do compiles a module, unless c is it, and tries jobs on it. It runs in a task.
func (c *Catalog) do(ctx context.Context, w want, m compiled, compiles func()) (res result) {
	began, start := time.Now(), c.now()
	res.want = w
	defer func() { res.took = time.Since(began) }()
	if m == nil {
		wasm, ok := c.fetch(w)
		if !ok {
			res.gone = true
			return res
		}
		var err error
		if m, err = c.load.load(ctx, w.file, wasm, w.apart, w.due, compiles); err != nil {
			res.cancelled = ctx.Err() != nil
			res.outcome.problems, res.passing = reasons(err), passing(err)
			res.outcome.unjudged = unjudged(err)
			return res
		}
	}
	res.outcome.compiled = m
	res.outcome.trials = make(map[string]trial)
	for i, d := range w.try {
		if i > 0 && c.now().Sub(start) > tryTime {
			break // the others have their turn again
		}
		job := d.doc.Configuration.JobName
		t := trial{doc: d.doc, granted: d.granted.key}
		if err := fit(m.bind(job, d.granted), d.doc.Configuration); err != nil {
			t.problem, res.passing = words.Reason(err.Error()), true
		}
		res.outcome.trials[job] = t
	}
	return res
}

// fetch reads the wanted version of a module.
func (c *Catalog) fetch(w want) ([]byte, bool) {
	if module, ok := builtin.Module(w.file); ok {
		return module, true
	}
	root, err := os.OpenRoot(c.dir)
	if err != nil {
		return nil, false
	}
	defer root.Close() // read only: nothing is lost if that fails
	e, ok := lookAtFile(root, w.file)
	if !ok || e.problem != "" {
		return nil, false
	}
	var wasm bytes.Buffer
	wasm.Grow(int(min(e.stamp.size, abi.MaxModuleSize)))
	read := digestFile(c.dir, w.file, e.stamp, abi.MaxModuleSize, &wasm)
	return wasm.Bytes(), read.digest == w.digest
}
