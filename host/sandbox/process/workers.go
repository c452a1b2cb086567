package process

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
)

const (
	// Grace is how long a guest may continue after its time is up, before its process is killed. A stopped one
	// has half of it.
	Grace = 2 * time.Second
	// baseMemory is what a process costs besides guests and modules, in bytes: the memory budget is charged for
	// it while the process lives. See docs/measurements.md.
	baseMemory = 24 << 20
	// idleTime is how long a process without guests is kept. It is longer than
	// the time between two fires of a job that runs every minute.
	idleTime = 90 * time.Second
	// startTime bounds the start of a process, and the loading of a module, whose trial may take
	// abi.InitializeTimeout; compileTime is added if the process compiles the module itself.
	startTime   = 15 * time.Second
	compileTime = 3 * time.Minute
)

// Options are what New needs.
type Options struct {
	// Runtime reads and stores the modules, and has the memory budget. It is
	// closed after the Workers.
	Runtime *plugin.Runtime
	// Command returns the command, not started, of a program that calls [Serve] and ends. The label describes
	// for people what it runs. This package sets its streams, environment and directory.
	Command func(label string) *exec.Cmd
	// Items is how many items run at once on this host; 0 is 8 for each processor. Twice as many dedicated
	// processes may run, or fewer if the host may have few tasks.
	Items int
	// Logger takes what an operator should know; nil drops it.
	Logger *slog.Logger

	// For tests: replace idleTime, Grace, startTime and tasksLimit, unless 0; and a report about the sandbox.
	idle, grace, patience time.Duration
	tasks                 int
	sandbox               func(string)
}

// Stats count the processes of a host.
type Stats struct {
	Running int   // now
	Started int64 // since the beginning
	Killed  int64 // because of what their guests did
	// Ended counts those that ended by themselves, by [Causes].
	Ended map[Cause]int64
}

// Cause says why a process ended that this host did not end.
type Cause string

// The causes.
const (
	// CauseKilled: another program, or the kernel, has killed it.
	CauseKilled Cause = "killed"
	// CauseMemory: the kernel refused it memory.
	CauseMemory Cause = "memory"
	// CauseCrashed: anything else, such as a mistake in the engine.
	CauseCrashed Cause = "crashed"
)

// Causes are all causes.
func Causes() []Cause { return []Cause{CauseKilled, CauseMemory, CauseCrashed} }

// Workers starts the worker processes of a host. It is safe for concurrent use.
type Workers struct {
	o      Options
	log    *slog.Logger
	starts chan func() // for the goroutine that starts processes
	// functions of the capabilities, by module.name
	functions map[string]*abi.Import
	ended     chan struct{}
	joined    sync.WaitGroup // of that goroutine, keep, and those that wait for processes
	changed   chan struct{}  // for keep: look again
	endKeep   context.CancelFunc
	ids       atomic.Int64 // of executors, guests and runs
	places    places       // of processes of one job
	wanted    atomic.Int64 // how many wait for a place

	mu        sync.Mutex
	closed    bool
	stats     Stats
	children  map[*child]struct{}
	warned    map[string]bool // what the sandbox lacks
	groups    map[string]*group
	executors map[*executor]struct{}
	suspects  map[suspect]*suspicion
	trials    *group // in which modules are tried
}

// New makes Workers. The caller ends them with Close.
func New(o Options) *Workers {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.idle = cmp.Or(o.idle, idleTime)
	o.grace = cmp.Or(o.grace, Grace)
	o.patience = cmp.Or(o.patience, startTime)
	w := &Workers{o: o, log: o.Logger, starts: make(chan func()), ended: make(chan struct{}), changed: make(chan struct{}, 1),
		children: map[*child]struct{}{}, warned: map[string]bool{}, groups: map[string]*group{}, executors: map[*executor]struct{}{},
		stats: Stats{Ended: map[Cause]int64{}}, suspects: map[suspect]*suspicion{}, functions: map[string]*abi.Import{}}
	for _, f := range slices.Concat(abi.CapabilityImports(), abi.DirectoryFunctions()) {
		w.functions[f.Module+"."+f.Name] = &f
	}
	w.places = newPlaces(o.Items, cmp.Or(o.tasks, tasksLimit()))
	w.trials = w.group("trials", "modules on trial", nil)
	w.joined.Go(w.starter)
	var ctx context.Context
	ctx, w.endKeep = context.WithCancel(context.Background())
	w.joined.Go(func() { w.keep(ctx) })
	o.Runtime.OnShortage(w.relieve)
	return w
}

// nudge has keep look again.
func (w *Workers) nudge() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// group returns the group with the key, whose guests directly read the directories. The caller has a reference,
// and ends it with unref.
func (w *Workers) group(key, label string, mounts []plugin.Mount) *group {
	readable := readableOf(mounts)
	key = keyOf(key, readable)
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.groups[key]
	if g == nil {
		g = &group{w: w, key: key, label: label, readable: readable, alone: strings.HasPrefix(key, alonePrefix), modules: map[string]*resident{}}
		w.groups[key] = g
	}
	g.refs++
	return g
}

// readableOf returns the directories that guests read directly.
func readableOf(mounts []plugin.Mount) []string {
	var readable []string
	for _, m := range mounts {
		if !m.Write { // otherwise the host does the operations
			readable = append(readable, m.Host)
		}
	}
	slices.Sort(readable)
	return slices.Compact(readable)
}

// keyOf is the key of a group whose guests read the directories.
func keyOf(key string, readable []string) string {
	return strings.Join(append([]string{key}, readable...), "\x00")
}

// unref ends a reference to a group, which ends with the last one, and its process too.
func (w *Workers) unref(g *group) {
	w.mu.Lock()
	g.refs--
	last := g.refs == 0
	if last {
		delete(w.groups, g.key)
	}
	w.mu.Unlock()
	if !last {
		return
	}
	g.mu.Lock()
	c := g.drop()
	g.mu.Unlock()
	if c != nil {
		<-c.dead
	}
}

// list is all groups.
func (w *Workers) list() []*group {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := make([]*group, 0, len(w.groups))
	for _, g := range w.groups {
		list = append(list, g)
	}
	return list
}

// relieve has modules leave and ends idle processes while workers wait for memory, and an idle
// process while others wait for its place.
func (w *Workers) relieve() {
	for w.o.Runtime.Memory().Waiting > 0 && (w.evictIdle() || w.endIdle(false)) {
	}
	if w.wanted.Load() > 0 { // who came to wait has ended those that were idle then
		w.endIdle(true)
	}
}

// evictIdle has the module leave that has been idle for longest. It reports false if
// there is none.
func (w *Workers) evictIdle() bool {
	var oldest *place
	var used time.Time
	for _, g := range w.list() {
		g.mu.Lock()
		for digest, m := range g.modules {
			if m.users == 0 && g.users > 0 && (oldest == nil || m.used.Before(used)) {
				oldest, used = &place{g: g, digest: digest}, m.used
			}
		}
		g.mu.Unlock()
	}
	return oldest != nil && oldest.g.evict(oldest.digest)
}

// endIdle ends the process that has been idle for longest, of those of one job if alone is
// set. It reports false if there is none.
func (w *Workers) endIdle(alone bool) bool {
	list := w.list()
	slices.SortFunc(list, func(a, b *group) int { return a.idleSince().Compare(b.idleSince()) })
	for _, g := range list {
		g.mu.Lock()
		var c *child
		idle := (g.alone || !alone) && g.users == 0 && g.base != nil && g.starting == nil
		if idle {
			c = g.drop()
		}
		g.mu.Unlock()
		if c != nil {
			<-c.dead
		}
		if idle {
			return true
		}
	}
	return false
}

func (g *group) idleSince() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.since
}

// starter starts all processes. The kernel ends a process with the thread that has
// started it, so that thread is this goroutine's until Close.
func (w *Workers) starter() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		select {
		case f := <-w.starts:
			f()
		case <-w.ended:
			return
		}
	}
}

var errClosed = errors.New("the worker processes are closed")

// Close kills the processes that are left, and waits for them and for all
// goroutines. Call it when the executors have been released.
func (w *Workers) Close() {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return
	}
	w.closed = true
	var left []*child
	for c := range w.children {
		left = append(left, c)
	}
	w.mu.Unlock()
	w.endKeep()
	for _, c := range left {
		c.end()
		<-c.dead
	}
	w.unref(w.trials)
	close(w.ended)
	w.joined.Wait()
}

// Stats counts the processes.
func (w *Workers) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stats
	s.Ended = maps.Clone(s.Ended)
	return s
}

// lacks logs, once, what the sandbox of processes lacks.
func (w *Workers) lacks(parts []string) {
	w.mu.Lock()
	parts = slices.DeleteFunc(slices.Clone(parts), func(p string) bool { return w.warned[p] })
	for _, p := range parts {
		w.warned[p] = true
	}
	w.mu.Unlock()
	if len(parts) > 0 {
		w.log.Warn("worker processes are restricted less than they could be: this system lacks "+strings.Join(parts, ", "), "lacks", parts)
	}
}

// scarce reports whether a process could not be started for want of files,
// processes or memory, which an idle one has.
func scarce(err error) bool {
	return slices.ContainsFunc([]error{syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM}, func(e error) bool { return errors.Is(err, e) })
}

// Limits of a process.
const (
	// baseData is what the process itself may have of data, in bytes: the heap of
	// Go comes in pieces of 64 MiB, and idle memories and stacks wait for the
	// collector.
	baseData = 512 << 20
	// guestHeap is what a guest may have of Go's heap besides what it was admitted with, in
	// bytes: its native stacks, until it is asked what they take.
	guestHeap = abi.MaxStack
	// trialHeap is what a guest on trial may have of it: it is not asked.
	trialHeap = 3 * abi.MaxStack
	// compileData is for a process that compiles the modules itself.
	compileData = 1 << 30
	// baseFiles are the files of a process without mounts, mountFiles those that
	// a guest with mounts may have open.
	baseFiles  = 64
	mountFiles = 256
)

// filesOf is how many files a guest with the mounts may have open.
func filesOf(mounts []plugin.Mount) int64 {
	if len(mounts) == 0 {
		return 0
	}
	return int64(len(mounts) + mountFiles)
}
