package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/plugin"
)

const (
	// Grace is how long a guest may go on after its context has ended; then its
	// process is killed.
	Grace = 2 * time.Second
	// baseMemory is what a process costs besides its guests and its module, in
	// bytes: the memory budget is charged for it while the process lives. See
	// docs/performance.md.
	baseMemory = 24 << 20
	// idleTime is how long a process without guests is kept. It is longer than
	// the time between two fires of a job that runs every minute.
	idleTime = 90 * time.Second
	// startTime bounds the start of a process, in which a module on trial may take
	// abi.InitializeTimeout; compileTime is added if it compiles the module itself.
	startTime   = 15 * time.Second
	compileTime = 3 * time.Minute
)

// Options are what New needs.
type Options struct {
	// Runtime reads and stores the modules, and has the memory budget. It is
	// closed after the Workers.
	Runtime *plugin.Runtime
	// Command makes the command, not started yet, of a program that calls
	// [Serve] and ends. Its streams, environment and directory are set by this
	// package.
	Command func(job string) *exec.Cmd
	// Logger takes what an operator should know; nil drops it.
	Logger *slog.Logger

	// For tests, instead of the constants of those names, unless 0.
	idle, grace time.Duration
}

// Stats count the processes of a host.
type Stats struct {
	Running int   // now
	Started int64 // since the beginning
	Killed  int64 // because of what their guests did
}

// Workers starts the worker processes of a host. It is safe for concurrent use.
type Workers struct {
	o      Options
	log    *slog.Logger
	starts chan func() // for the goroutine that starts processes
	// functions of the capabilities, by module.name
	functions map[string]*abi.Import
	ended     chan struct{}
	joined    sync.WaitGroup // that goroutine, those that wait for processes, and timers

	mu       sync.Mutex
	closed   bool
	stats    Stats
	children map[*child]struct{}
	warned   map[string]bool // what the sandbox lacks
	idle     []*executor     // that have an idle process, the longest idle first
}

// New makes Workers. The caller ends them with Close.
func New(o Options) *Workers {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.idle == 0 {
		o.idle = idleTime
	}
	if o.grace == 0 {
		o.grace = Grace
	}
	w := &Workers{o: o, log: o.Logger, starts: make(chan func()), ended: make(chan struct{}), children: map[*child]struct{}{}, warned: map[string]bool{},
		functions: map[string]*abi.Import{}}
	for _, f := range slices.Concat(abi.CapabilityImports(), abi.DirectoryFunctions()) {
		w.functions[f.Module+"."+f.Name] = &f
	}
	w.joined.Go(w.starter)
	o.Runtime.OnShortage(w.relieve)
	return w
}

// rests notes that the executor's process is idle, wakes that it is not. The
// executor's lock is held.
func (w *Workers) rests(x *executor) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.idle = append(w.idle, x)
}

func (w *Workers) wakes(x *executor) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.idle = slices.DeleteFunc(w.idle, func(y *executor) bool { return y == x })
}

// relieve ends idle processes while workers wait for memory.
func (w *Workers) relieve() {
	for w.o.Runtime.Memory().Waiting > 0 && w.endIdle() {
	}
}

// endIdle ends the process that has been idle for longest. It reports false if
// there is none.
func (w *Workers) endIdle() bool {
	w.mu.Lock()
	idle := slices.Clone(w.idle)
	w.mu.Unlock()
	for _, x := range idle {
		select {
		case x.lock <- struct{}{}:
		default:
			continue // it is waking up
		}
		if x.idle != nil {
			x.keep()
			x.drop()
			<-x.lock
			return true
		}
		<-x.lock
	}
	return false
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
	for _, c := range left {
		c.end()
		<-c.dead
	}
	close(w.ended)
	w.joined.Wait()
}

// Stats counts the processes.
func (w *Workers) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats
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

// Module is a module whose guests run in worker processes. It is safe for
// concurrent use.
type Module struct {
	w *Workers
	m *plugin.Module

	mu    sync.Mutex
	tried map[uint32]bool // by memory limit in pages
}

// Module binds a module to the worker processes. It is the caller's to close it.
func (w *Workers) Module(m *plugin.Module) *Module {
	return &Module{w: w, m: m, tried: map[uint32]bool{}}
}

// Try makes an instance on trial in a process of its own, with the default memory
// limit, unless the module begins with more. The error is a [*plugin.LoadError] if
// the module is to blame.
func (m *Module) Try(ctx context.Context) error {
	pages, triable := m.m.TrialPages()
	if !triable {
		return nil
	}
	return m.try(ctx, pages)
}

func (m *Module) try(ctx context.Context, pages uint32) error {
	m.mu.Lock()
	tried := m.tried[pages]
	m.mu.Unlock()
	if tried {
		return nil
	}
	if err := m.w.o.Runtime.Possible(baseMemory); err != nil {
		return fmt.Errorf("its worker process: %w", err)
	}
	base, err := m.w.o.Runtime.Admit(ctx, trialJob, baseMemory)
	if err != nil {
		return err
	}
	defer base.Close()
	c, err := m.launch(ctx, trialJob, start{Trial: true, Pages: pages}, 1)
	if err != nil {
		return err
	}
	c.end()
	<-c.dead
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tried[pages] = true
	return nil
}

// trialJob stands for the job in the memory account while a module is tried.
const trialJob = "trial"

// Executor configures the module for a job that runs at most so many guests at
// once, and tries it in a process if that was not done yet. All that is wrong with
// the settings is in one [*plugin.LoadError]. The caller owns one use of the
// result, to be ended with Release.
func (m *Module) Executor(ctx context.Context, s plugin.Settings, concurrency int) (abi.Executor, error) {
	if _, err := m.m.Needs(s); err != nil {
		return nil, err
	}
	if err := m.store(ctx, false); err != nil {
		return nil, err
	}
	needs, err := m.m.Needs(s) // with what the code takes
	if err != nil {
		return nil, err
	}
	if err := m.w.o.Runtime.Possible(baseMemory + needs.Code + needs.Least); err != nil {
		return nil, m.m.Refused(fmt.Errorf("%w, its worker process included", err))
	}
	if !m.m.Retain() {
		return nil, errClosed
	}
	if err := m.try(ctx, needs.Pages); err != nil {
		m.m.Release()
		return nil, err
	}
	x := &executor{m: m, w: m.w, settings: s, needs: needs, concurrency: max(concurrency, 1), lock: make(chan struct{}, 1)}
	x.Begin()
	return x, nil
}

// store has the module compiled, unless worker processes do so themselves.
func (m *Module) store(ctx context.Context, anew bool) error {
	dir, err := m.w.o.Runtime.StoreDir()
	if err != nil || dir == "" {
		return err
	}
	return m.m.Store(ctx, anew)
}

// launch starts a process and waits until it is ready. What it needs compiled is
// compiled first. The error is a [*plugin.LoadError] if the module is to blame.
func (m *Module) launch(ctx context.Context, job string, q start, concurrency int) (*child, error) {
	var err error
	if q.Module, err = m.m.Pack(); err != nil {
		return nil, err
	}
	q.Module.Tried = !q.Trial
	dir, err := m.w.o.Runtime.StoreDir()
	if err != nil {
		return nil, err
	}
	q.Dir, q.Compile = dir, dir == ""
	q.Data = dataLimit(q.Pages, concurrency)
	if q.Compile {
		q.Data += compileData + 64*uint64(len(q.Module.Wasm))
	}
	q.Files = fileLimit(len(q.Settings.Mounts), concurrency)
	if err := m.store(ctx, false); err != nil {
		return nil, err
	}
	for stored := false; ; stored = true {
		c, r, err := m.attempt(ctx, job, &q)
		switch {
		case ctx.Err() != nil:
			err = ctx.Err()
		case errors.As(err, new(*hostError)):
		case err != nil:
			err = m.m.Refused(err)
		case r.Problem != "":
			err = m.m.Refused(errors.New(r.Problem))
		case r.Failure != "":
			err = fmt.Errorf("worker process: %s", r.Failure)
		case r.NotStored && stored:
			err = fmt.Errorf("worker process: it finds no compiled code in %s, where the host left it", q.Dir)
		case r.NotStored:
			err = m.store(ctx, true)
		default:
			return c, nil
		}
		if c != nil {
			c.end()
			<-c.dead
		}
		if err != nil {
			return nil, err
		}
	}
}

// attempt starts a process and waits until it has answered, for a limited time.
func (m *Module) attempt(ctx context.Context, job string, q *start) (*child, ready, error) {
	limit := startTime
	if q.Compile {
		limit += compileTime
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := m.w.start(ctx, job, q)
	for err != nil && scarce(err) && m.w.endIdle() {
		c, err = m.w.start(ctx, job, q)
	}
	if err != nil {
		return nil, ready{}, &hostError{err}
	}
	r, err := c.ready(ctx)
	if err != nil && ctx.Err() != nil {
		err = &hostError{fmt.Errorf("its worker process was not ready within %s, and was killed", limit)}
	}
	return c, r, err
}

// hostError is a failure that the module is not to blame for.
type hostError struct{ error }

func (e *hostError) Unwrap() error { return e.error }

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
	// guestData is what a guest may have besides its linear memory: a native
	// stack is copied when it grows.
	guestData = 3 * abi.MaxStack
	// compileData and 64 bytes for each of the module are for a process that
	// compiles the module itself.
	compileData = 256 << 20
	// baseFiles are the files of a process without mounts, mountFiles those that
	// a guest with mounts may have open.
	baseFiles  = 64
	mountFiles = 256
)

// dataLimit is for guests with so many pages each. A job's listeners run in
// instances of their own beside its items.
func dataLimit(pages uint32, concurrency int) uint64 {
	return baseData + uint64(concurrency+1)*(uint64(pages)<<16+guestData)
}

func fileLimit(mounts, concurrency int) uint64 {
	if mounts == 0 {
		return baseFiles
	}
	return baseFiles + uint64(concurrency+1)*uint64(mounts+mountFiles)
}
