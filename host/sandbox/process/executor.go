package process

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
	"github.com/wasmjob/wasmjob/internal/slots"
)

// executor implements abi.Executor.
type executor struct {
	m        *Module
	w        *Workers
	settings plugin.Settings
	needs    plugin.Needs
	home     *group         // in which its guests run, unless it is suspected
	account  *slots.Account // of processes of its own

	plugin.Uses
	expected atomic.Int64 // the most that a guest has needed, in bytes
	metrics  plugin.MetricNames

	// Guarded by Workers.mu.
	next    time.Time // when the next worker is wanted; zero is not known
	retryAt time.Time // after a failure: when its module may be loaded ahead again
}

func (x *executor) Digest() string { return x.m.m.Digest() }

// Type is SIMPLE, DATAFLOW or SCRIPT: what the job runs the module as.
func (x *executor) Type() string { return x.needs.Type }

// About is the module's size in bytes, and what it imports from.
func (x *executor) About() (size int, imports []string) { return x.m.m.Info().About() }

func (x *executor) HasListener(export string) bool {
	return x.m.m.HasListener(x.needs.Type, export)
}

// Release removes the module from its process with the last use. If no other job is in the process, Release
// ends it and waits for that.
func (x *executor) Release() {
	if !x.End() {
		return
	}
	w := x.w
	w.mu.Lock()
	delete(w.executors, x)
	w.mu.Unlock()
	for _, g := range w.groupsOf(x) {
		g.remove(x)
	}
	w.unref(x.home)
	x.account.Close()
	x.m.m.Release()
}

// groupsOf returns the groups whose processes may have the executor.
func (w *Workers) groupsOf(x *executor) []*group {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := []*group{x.home}
	if g := w.groups[keyOf(aloneKey(x.settings.JobName), readableOf(x.settings.Mounts))]; g != nil && g != x.home {
		list = append(list, g)
	}
	return list
}

// Expect implements abi.Executor.
func (x *executor) Expect(next time.Time) {
	x.w.mu.Lock()
	x.next = next
	x.w.mu.Unlock()
	x.w.nudge()
}

var errReleased = errors.New("the executor was released")

// NewWorker waits until there is memory for a guest, and for a process if there is none, and starts the
// process, so that this does not count against an item's time. If it cannot be started, the first invocation
// reports why.
func (x *executor) NewWorker(ctx context.Context) (abi.Worker, error) {
	if !x.Retain() {
		return nil, errReleased
	}
	w := &worker{x: x, lock: make(chan struct{}, 1)}
	if w.failed = w.join(ctx); w.group == nil || (w.failed != nil && ctx.Err() != nil) {
		w.leave()
		x.Release()
		return nil, cmp.Or(ctx.Err(), w.failed)
	}
	return w, nil
}

// worker implements abi.Worker. Its invocations run one after the other in its guest, and may be passed to it
// before the previous one has ended.
type worker struct {
	x *executor

	lock chan struct{} // holds one token: the right to the fields below
	gone bool
	// group is where the worker has entered; nil: nowhere.
	group   *group
	process *child // that knows of the guest
	guest   int64  // its name there
	failed  error  // why there is none, until an invocation has said so

	under atomic.Int64 // invocations that are with the process
	begun atomic.Int64 // all of them

	mu      sync.Mutex
	at      *child // whose guest has the account; nil: none
	account *plugin.Account
	granted int64 // bytes that the process' limits have for the guest
	heap    int64 // likewise, of Go's heap
}

// join finds a process for the guest, and another one if that ends meanwhile. Afterwards the worker has entered
// a group, unless there was no memory.
func (w *worker) join(ctx context.Context) error {
	for again := false; ; again = true {
		if err := w.enter(ctx); err != nil {
			return err
		}
		err := w.move(ctx)
		if err == nil || again || !errors.As(err, new(*deadError)) || ctx.Err() != nil {
			return err
		}
		w.leave()
	}
}

// enter begins the worker's use of a group. The lock is held, or no other goroutine has the worker.
func (w *worker) enter(ctx context.Context) error {
	x := w.x
	g := x.place()
	account, err := g.enter(ctx, x, max(x.needs.Least, x.expected.Load()))
	if err != nil {
		x.w.unref(g)
		return err
	}
	w.mu.Lock()
	w.account = account
	w.mu.Unlock()
	w.group = g
	return nil
}

// leave ends what enter and move began.
func (w *worker) leave() {
	g := w.group
	if g == nil {
		return
	}
	w.mu.Lock()
	n := w.account.Bytes()
	w.account.Close()
	granted, heap := w.granted, w.heap
	w.granted, w.heap, w.at = 0, 0, nil
	w.mu.Unlock()
	for most := w.x.expected.Load(); n > most && !w.x.expected.CompareAndSwap(most, n); most = w.x.expected.Load() {
	}
	if w.process != nil {
		w.process.limits.add(-granted, -heap, -filesOf(w.x.settings.Mounts))
	}
	w.process, w.group = nil, nil
	g.leave(w.x)
	w.x.w.unref(g)
}

// move finds a process for the guest. The lock is held, as in enter.
func (w *worker) move(ctx context.Context) error {
	c, err := w.group.open(ctx, w.x)
	if err != nil {
		return err
	}
	w.process, w.guest = c, w.x.w.ids.Add(1)
	w.mu.Lock()
	w.granted, w.heap, w.at = w.account.Bytes(), guestHeap, c
	granted, heap := w.granted, w.heap
	w.mu.Unlock()
	c.limits.add(granted, heap, filesOf(w.x.settings.Mounts))
	return nil
}

// errGone answers a guest that asks for memory when its process has ended.
var errGone = errors.New("its worker process has ended")

// cover raises the guest's memory to a total of bytes; stacks is the part for native stacks.
func (w *worker) cover(c *child, bytes, stacks int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at != c {
		return errGone
	}
	before := w.account.Bytes()
	if err := w.account.Cover(bytes); err != nil {
		return err
	}
	more, heap := w.account.Bytes()-before, max(guestHeap+stacks-w.heap, 0)
	w.granted += more
	w.heap += heap
	if more > 0 || heap > 0 {
		c.limits.add(more, heap, 0)
	}
	return nil
}

// current returns the process that has the guest, or a new one if that has ended.
func (w *worker) current(ctx context.Context) (c *child, guest int64, err error) {
	select {
	case w.lock <- struct{}{}:
		defer func() { <-w.lock }()
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	if w.gone {
		return nil, 0, errors.New("the worker is closed")
	}
	if err := w.failed; err != nil {
		w.failed = nil
		return nil, 0, err
	}
	if w.process != nil && w.process.alive() {
		return w.process, w.guest, nil
	}
	if w.process != nil {
		select { // by then the suspects are known
		case <-w.process.dead:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
	w.leave() // its guest has ended: a waiter must not hold memory
	if err := w.join(ctx); err != nil {
		return nil, 0, err
	}
	return w.process, w.guest, nil
}

// Depth implements abi.Pipelined.
func (w *worker) Depth() int {
	if w.x.needs.Type == wasm.TypeSimple {
		return Depth
	}
	return 1
}

// Close ends the guest in its process, and its use of the executor.
func (w *worker) Close() error {
	w.lock <- struct{}{}
	defer func() { <-w.lock }()
	if w.gone {
		return nil
	}
	w.gone = true
	if c := w.process; c != nil && c.alive() {
		_ = c.out.send(kindClose, closed{Guest: w.guest}) // if it has ended, so has the guest
	}
	w.leave()
	w.x.Release()
	return nil
}

// Execute implements abi.Worker.
func (w *worker) Execute(ctx context.Context, inv *abi.Invocation) abi.Result {
	op := abi.ExportExecute
	switch w.x.needs.Type {
	case wasm.TypeDataflow:
		op = abi.ExportFetch
	case wasm.TypeScript:
		op = abi.ExportStart
	}
	return w.invoke(ctx, op, "", inv)
}

// Listen implements abi.Worker.
func (w *worker) Listen(ctx context.Context, export string, inv *abi.Invocation) abi.Result {
	if !w.x.HasListener(export) {
		return failed(abi.OutcomeError, plugin.KindHost, export, "the module has no such listener")
	}
	return w.invoke(ctx, export, export, inv)
}

func failed(outcome abi.Outcome, kind plugin.Kind, op, text string) abi.Result {
	err := &plugin.Error{Kind: kind, Op: op, Err: errors.New(text)}
	return abi.Result{Outcome: outcome, Message: err.Error(), Err: err}
}

// ended is the result of an invocation whose context has ended.
func ended(ctx context.Context, op, timeout, stopped string) abi.Result {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return failed(abi.OutcomeTimeout, plugin.KindTimeout, op, timeout)
	}
	return failed(abi.OutcomeCancelled, plugin.KindCancelled, op, stopped)
}

func (w *worker) invoke(ctx context.Context, op, export string, inv *abi.Invocation) abi.Result {
	if inv == nil || inv.Host == nil {
		return failed(abi.OutcomeError, plugin.KindHost, op, "the invocation has no host")
	}
	if ctx.Err() != nil {
		return ended(ctx, op, "the time was up", "stopped")
	}
	c, guest, err := w.current(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return ended(ctx, op, "the time was up before its worker process was ready", "stopped")
		}
		return failed(abi.OutcomeError, plugin.KindHost, op, err.Error())
	}
	v := &invocation{w: w, c: c, id: w.x.w.ids.Add(1), guest: guest, op: op, listener: export != "", inv: inv, lines: newLineLimit(),
		inbox: make(chan message, inboxSize), over: make(chan struct{})}
	return v.run(ctx, export)
}
