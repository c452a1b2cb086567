package plugin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// instance is one instantiated module and the state of the invocation that
// runs in it. One goroutine at a time uses it; imports find it through the
// context and run on that goroutine.
type instance struct {
	x *executor
	// account pays for memory and stack.
	account *account
	mod     api.Module
	mem     api.Memory
	// linear is what is behind mem; nil before, and if the module has none.
	linear *linearMemory
	// entry holds the entry points, in the order of instantiate's arguments. They are looked up once, because
	// each gets a stack of its own.
	entry [2]api.Function

	result [1]uint64     // reused for each call
	at     api.Function  // of the call at hand
	stack  reflect.Value // its native stack; see nativeStack
	grown  int64         // bytes that it had when it was last looked at
	passed *callContext  // what wazero got last

	out, err output
	mounts   []*mount
	open     int   // files of all mounts; see maxOpenFiles
	held     int64 // bytes that the host keeps for them

	// Of the invocation.
	phase     abi.Phase       // decides what the guest may call
	ctx       context.Context // of the call at hand
	inv       *abi.Invocation
	host      abi.Host
	outside   abi.Call // reused for each call of a capability
	committed []byte   // the newest offset that the host has taken, or the last committed
	has       bool
	staged    []byte
	isStaged  bool
	message   string // of set_error
	retryAt   int64  // of retry_at, Unix milliseconds; 0: it was not called
	pauseKey  bool
	// reads and readBytes count what it has read of the mounts.
	reads, readBytes int64
	lines            logLimit
}

// callContext is the context that wazero sees. Its only value is the instance, so that finding it is fast, and
// nothing in a caller's context reaches wazero.
type callContext struct {
	context.Context
	in *instance
}

type instanceKey struct{}

func (c *callContext) Value(key any) any {
	if key == (instanceKey{}) {
		return c.in
	}
	return nil
}

// current finds the instance whose guest is calling.
func current(ctx context.Context) *instance {
	if c, ok := ctx.(*callContext); ok {
		return c.in
	}
	in, _ := ctx.Value(instanceKey{}).(*instance)
	return in
}

// pass returns the context for a call. wazero's watcher may read it after the call has returned, so it is never
// changed; but it is reused while the caller's context has the same Done channel.
func (in *instance) pass(ctx context.Context) *callContext {
	if in.passed == nil || in.passed.Done() != ctx.Done() {
		in.passed = &callContext{ctx, in}
	}
	return in.passed
}

// begin sets up an invocation.
func (in *instance) begin(ctx context.Context, inv *abi.Invocation, p abi.Phase) {
	in.phase = p
	in.ctx = ctx
	in.inv = inv
	in.host = inv.Host
	in.account.host, _ = inv.Host.(MemoryHost)
	in.committed, in.has = inv.Offset, inv.HasOffset
	in.staged, in.isStaged = nil, false
	in.message, in.retryAt, in.pauseKey = "", 0, false
	in.reads, in.readBytes = 0, 0
	in.lines = logLimit{whole: inv.WholeLog, bytes: abi.MaxLogBytes}
	in.err.tail = in.err.tail[:0]
}

// end logs the remaining output and lines, and the number of dropped ones.
func (in *instance) end() {
	in.out.flush()
	in.err.flush()
	in.lines.flush(in.host)
	in.lines.report(in.host)
}

// finish ends an invocation, and completes its result.
func (in *instance) finish(r *abi.Result) {
	in.end()
	r.Memory, r.DroppedLines = int64(in.mem.Size()), int64(in.lines.dropped)
	r.Reads, r.ReadBytes = in.reads, in.readBytes
}

// instantiate makes an instance, runs its initialisation and looks up at most two entry points. On failure
// nothing remains, and the outcome says whose fault it was.
func (x *executor) instantiate(ctx context.Context, e *engine, a *account, inv *abi.Invocation, config wazero.ModuleConfig, entries ...string) (*instance, abi.Outcome, *Error) {
	in := &instance{x: x, account: a}
	a.reset()
	in.out = output{in: in, level: abi.LevelInfo}
	in.err = output{in: in, level: abi.LevelError, keep: true}
	config = config.
		WithStdout(&in.out).
		WithStderr(&in.err).
		WithNanosleep(in.sleep).
		WithRandSource(randomness{in}) // wazero's own is the same in each instance
	if err := in.openMounts(); err != nil {
		return nil, abi.OutcomeError, &Error{Kind: KindHost, Op: "mount", Err: err}
	}
	config = config.WithFSConfig(in.files())

	begun, cancel := context.WithTimeout(ctx, x.r.initialize)
	defer cancel()
	in.begin(begun, inv, abi.PhaseInit)
	op := "instantiate"
	err := guard(func() error {
		var err error
		c := experimental.WithMemoryAllocator(in.pass(begun), experimental.MemoryAllocatorFunc(in.allocate))
		in.mod, err = e.rt.InstantiateModule(c, e.compiled, config)
		if err != nil {
			in.mod = nil
			return err
		}
		in.mem = in.mod.Memory()
		for i, name := range entries {
			in.entry[i] = in.mod.ExportedFunction(name)
		}
		if start := in.mod.ExportedFunction(wasm.ExportStartSection); start != nil {
			if _, err := in.call(begun, start); err != nil {
				return err
			}
		}
		if init := in.mod.ExportedFunction(abi.ExportInitialize); init != nil {
			op = abi.ExportInitialize
			_, err := in.call(begun, init)
			return err
		}
		return nil
	})
	in.end()
	if err == nil && begun.Err() == nil {
		return in, abi.OutcomeOK, nil
	}
	outcome, failed := in.failed(ctx, begun, op, err, fmt.Sprintf("ran longer than %s", x.r.initialize))
	in.close()
	return nil, outcome, failed
}

// allocate makes the instance's memory, of which there is at most one. It enforces the job's limit itself, so
// that a refusal is known.
func (in *instance) allocate(_, limit uint64) experimental.LinearMemory {
	in.linear = in.x.r.memories.take(min(limit, uint64(in.x.pages)*wasm.PageSize), in.account)
	return in.linear
}

// call runs an entry point.
func (in *instance) call(ctx context.Context, f api.Function) (result int32, err error) {
	in.ctx, in.at, in.stack = ctx, f, nativeStack(f)
	in.grown = sizeOf(in.stack)
	defer func() {
		if p := recover(); p != nil {
			err = &enginePanic{p}
		}
	}()
	err = f.CallWithStack(in.pass(ctx), in.result[:])
	return api.DecodeI32(in.result[0]), err
}

// failed classifies a call that did not end well. ctx is the invocation's,
// inner the call's own, which may have a deadline of its own.
func (in *instance) failed(ctx, inner context.Context, op string, err error, late string) (abi.Outcome, *Error) {
	if ctx.Err() == nil && inner.Err() != nil {
		return abi.OutcomeTimeout, &Error{Kind: KindTimeout, Op: op, Err: errors.New(late), Stderr: string(in.err.tail)}
	}
	outcome, e := classify(ctx, op, err)
	e.Stderr = string(in.err.tail)
	switch denied := in.account.denied; {
	case denied == nil:
	case e.Err == nil: // an exit
		e.Err = fmt.Errorf("it was refused memory: %w", denied)
	default:
		e.Err = fmt.Errorf("%w (it was refused memory: %w)", e.Err, denied)
	}
	if e.Kind == KindHost {
		in.x.r.log.Error("a host function or the engine failed while a guest ran",
			"digest", in.x.Digest(), "job", in.inv.Context.JobName, "error", e, "stack", e.Stack)
	}
	return outcome, e
}

// close drops the instance. It runs on the goroutine that used it, after the
// last call has returned.
func (in *instance) close() {
	in.inv = nil // its open files have ended with it: no calls are made for them
	if in.mod != nil {
		_ = in.mod.Close(context.Background())
	}
	// wazero v1.12.0 skips its own clean-up if an ended context closed the instance just after a call, or if a
	// start section failed.
	for _, m := range in.mounts {
		m.close()
	}
	if in.linear != nil {
		in.x.r.memories.put(in.linear)
		in.linear = nil
	}
}

// stopIfEnded stops the guest if its time is up. Every import calls it, because code without loops is not
// interrupted otherwise.
func (in *instance) stopIfEnded() {
	if in.ctx.Err() != nil {
		panic(&fault{text: "the time was up", ended: true})
	}
}

// nativeStack finds the native stack of a function's calls. wazero v1.12.0 doubles
// it up to 400 MB and offers no other limit. The result has length 0 if
// the engine has no such stack.
func nativeStack(f api.Function) reflect.Value {
	v := reflect.ValueOf(f)
	if v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct {
		if stack := v.Elem().FieldByName("stack"); stack.IsValid() && stack.Kind() == reflect.Slice {
			return stack
		}
	}
	return reflect.ValueOf([]byte(nil))
}

// sizeOf is the size of a native stack in bytes.
func sizeOf(stack reflect.Value) int64 {
	return int64(stack.Len()) * int64(stack.Type().Elem().Size())
}

// doubled is what a native stack takes while the engine grows it, as a multiple of its size: the old stack and
// the new one, of twice the size, exist at once.
const doubled = 3

// checkStack stops a guest whose native stack exceeds abi.MaxStack, or cannot grow for lack of memory. A guest
// pays for its stack, so this is called before the stack is far beyond the limit.
func (in *instance) checkStack() {
	size := sizeOf(in.stack)
	if more := size - in.grown; more > 0 && in.x.r.stackGrown != nil {
		in.x.r.stackGrown(2 * more) // each is twice as large as the one before
		in.grown = size
	}
	if wasm.StackExceeds(size) {
		panic(&fault{text: "stack overflow"}) // as the engine says it
	}
	need := doubled * size
	for _, f := range in.entry {
		if f != nil && f != in.at {
			need += sizeOf(nativeStack(f)) // it keeps the largest size
		}
	}
	if need > in.account.stack && !in.account.covers(in.account.linear, need) {
		panic(&fault{text: "stack overflow: there is no more memory for the guest's calls"})
	}
}

// mayAct is called by every import with an outside effect. It checks the clock and the host's state: when a
// stopped process wakes up, the guest may run before Go handles its timers.
func (in *instance) mayAct() bool {
	if d, ok := in.ctx.Deadline(); ok && !time.Now().Before(d) {
		panic(&fault{text: "the time was up", ended: true})
	}
	return in.host.Cancelled() != abi.CancelLost
}

// pieceSize is how much is read for a guest at once, in bytes: between two pieces the guest's deadline is
// checked.
const pieceSize = 1 << 20

// randomness is where WASI's random bytes come from.
type randomness struct{ in *instance }

func (r randomness) Read(p []byte) (int, error) {
	r.in.stopIfEnded()
	return rand.Read(p[:min(len(p), pieceSize)])
}

// sleep is WASI's sleep. It ends with the call's context.
func (in *instance) sleep(ns int64) {
	in.stopIfEnded()
	t := time.NewTimer(time.Duration(ns))
	defer t.Stop()
	select {
	case <-t.C:
	case <-in.ctx.Done():
		in.stopIfEnded()
	}
}
