package capability

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/grants"
)

// Owner is what a run needs to know about its item. It is safe for concurrent use.
type Owner interface {
	// Cancelled returns whether the invocation is being cancelled, and why. It is called before every outside
	// effect.
	Cancelled() abi.Cancel
	// AwaitCancel returns when the guest must end, or ctx has ended. A request to yield is not a reason to
	// return.
	AwaitCancel(ctx context.Context)
	// Log logs a line for the job, as from a guest.
	Log(level int, msg string, kv []string)
}

// Function carries out a function of a capability. The error is the reason for a result that is a code, for the
// guest to read.
type Function func(ctx context.Context, r *Run, c *abi.Call) (int64, error)

// Stream stands behind a handle. Its methods do not block, except Close. An error is a [*Failure], or io.EOF of
// Read.
type Stream interface {
	Read(p []byte) (int, error)
	Write(p []byte) (int, error)
	// Finish says that nothing more will be written.
	Finish() error
	// Close drops unfinished work, and returns when all goroutines of the stream have ended.
	Close()
}

// Failure is a code with its reason.
type Failure struct {
	Code   abi.Code
	Reason string
}

func (f *Failure) Error() string { return f.Reason }

// Fail makes a [*Failure].
func Fail(code abi.Code, format string, args ...any) error {
	return &Failure{code, fmt.Sprintf(format, args...)}
}

var errAgain = &Failure{abi.ErrAgain, "nothing yet"}

// Again returns the error of a stream that has no result yet: it calls its notify when that may have changed.
func Again() error { return errAgain }

// Info says whose run it is.
type Info struct {
	Job         string
	RunID       string
	Fence       int64
	Traceparent string
}

// Run carries out one invocation's calls to the outside world. It implements abi.Outside. Only one goroutine at
// a time may use Call and Close.
type Run struct {
	Info  Info
	Grant *grants.Grant
	Usage *Usage
	Left  Budgets
	// Called receives finished requests and connections, from any goroutine; nil if the run has no recorded
	// trace.
	Called func(abi.OutsideCall)
	// Redact removes secrets from a text; nil: there are none. It is called for each text from outside, or from
	// a library, that the guest may read or the host keeps.
	Redact func(text string) string

	owner     Owner
	functions map[string]Function
	closed    atomic.Bool
	unwatch   func() // ends the goroutine that watches the owner, and waits for it; nil: there is none
	last      error  // of the newest call that failed

	mu      sync.Mutex
	handles map[int32]*handle
	next    int32
	ready   []*handle
	waiting int           // handles of which a call was answered with ErrAgain
	noticed bool          // the guest knows that it is being cancelled
	wake    chan struct{} // has room for one
}

// handle is an open stream.
type handle struct {
	id      int32
	stream  Stream
	waiting bool // a call was answered with ErrAgain, and nothing has changed since
	queued  bool // it is in ready
	closed  bool
	last    error
}

// NewRun begins a run. Functions are by module.name. The caller ends it with Close.
func NewRun(info Info, grant *grants.Grant, owner Owner, functions map[string]Function) *Run {
	r := &Run{Info: info, Grant: grant, Usage: newUsage(), owner: owner, functions: functions,
		handles: map[int32]*handle{}, wake: make(chan struct{}, 1)}
	r.Left.set(grant.Quotas.Or())
	return r
}

// Warn logs for the job what the guest does not see, since its answer is only a number.
func (r *Run) Warn(msg string, kv ...string) { r.owner.Log(abi.LevelWarn, msg, kv) }

// MayAct returns nil if an outside effect is allowed, because the item is this host's. Every write to the
// outside calls it just before. It is safe for concurrent use.
func (r *Run) MayAct() error {
	if r.Lost() {
		return Fail(abi.ErrCancelled, "ownership of the item is lost")
	}
	if r.closed.Load() {
		return Fail(abi.ErrCancelled, "the run is over")
	}
	return nil
}

// Lost reports whether the item belongs to another host. It is safe for concurrent use.
func (r *Run) Lost() bool { return r.owner.Cancelled() == abi.CancelLost }

// Close closes all streams, and returns when all goroutines of the run have ended.
func (r *Run) Close() {
	r.closed.Store(true)
	if r.unwatch != nil {
		r.unwatch()
	}
	for id, h := range r.handles {
		h.stream.Close()
		delete(r.handles, id)
	}
}

// Call implements abi.Outside.
func (r *Run) Call(ctx context.Context, c *abi.Call) int64 {
	v, err := r.call(ctx, c)
	if err == nil {
		return v
	}
	var f *Failure
	if !errors.As(err, &f) {
		f = &Failure{abi.ErrInternal, err.Error()}
	}
	if f.Code != abi.ErrAgain {
		r.last = f
		r.Usage.refused(c.Function, f.Code)
	}
	return int64(f.Code)
}

func (r *Run) call(ctx context.Context, c *abi.Call) (int64, error) {
	r.Usage.called(c.Function)
	if c.Function.Module == abi.ModuleIO {
		return r.io(ctx, c)
	}
	do := r.functions[c.Function.Module+"."+c.Function.Name]
	if do == nil {
		return 0, Fail(abi.ErrDenied, "%s is not granted to job %q", c.Function.Module, r.Info.Job)
	}
	return do(ctx, r, c)
}

// io are the functions of handles.
func (r *Run) io(ctx context.Context, c *abi.Call) (int64, error) {
	id := int32(c.Numbers[0])
	switch c.Function.Name {
	case "wait":
		return r.wait(ctx, time.Duration(c.Numbers[0])*time.Millisecond)
	case "error":
		return r.reason(id, c)
	case "close":
		h, err := r.handle(id)
		if err != nil {
			return 0, err
		}
		r.drop(h)
		return int64(abi.OK), nil
	case "read":
		return r.Do(id, func(s Stream) (int64, error) {
			n, err := s.Read(c.Buf)
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return int64(n), err
		})
	case "write":
		if err := r.MayAct(); err != nil {
			return 0, err
		}
		return r.Do(id, func(s Stream) (int64, error) {
			n, err := s.Write(c.Texts[0])
			return int64(n), err
		})
	case "finish":
		if err := r.MayAct(); err != nil {
			return 0, err
		}
		return r.Do(id, func(s Stream) (int64, error) { return int64(abi.OK), s.Finish() })
	}
	return 0, Fail(abi.ErrUnsupported, "%s.%s", c.Function.Module, c.Function.Name)
}

func (r *Run) handle(id int32) (*handle, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.handles[id]; h != nil {
		return h, nil
	}
	return nil, Fail(abi.ErrInvalid, "there is no open handle %d", id)
}

// Open gives a stream a handle. start makes the stream, whose goroutines end at its Close. The stream calls
// notify when calls in either direction that were answered with Again may succeed; any goroutine may call it,
// at any time.
func (r *Run) Open(start func(notify func()) (Stream, error)) (int64, error) {
	if err := r.MayAct(); err != nil {
		return 0, err
	}
	r.mu.Lock()
	if len(r.handles) >= abi.MaxHandles {
		r.mu.Unlock()
		return 0, Fail(abi.ErrQuota, "%d handles are open, which is the limit: close those that are done with", abi.MaxHandles)
	}
	r.next++
	h := &handle{id: r.next}
	r.mu.Unlock()
	s, err := start(func() { r.notify(h) })
	if err != nil {
		return 0, err
	}
	h.stream = s
	r.mu.Lock()
	r.handles[h.id] = h
	r.mu.Unlock()
	return int64(h.id), nil
}

// Do calls a method of a handle's stream, and notes if the guest must wait for it.
func (r *Run) Do(id int32, act func(Stream) (int64, error)) (int64, error) {
	h, err := r.handle(id)
	if err != nil {
		return 0, err
	}
	// Set before the call, so that no change in between is missed.
	changed := r.setWaiting(h, true)
	n, err := act(h.stream)
	if errors.Is(err, errAgain) {
		return n, err
	}
	if changed { // otherwise an earlier call still waits: a read, while this was a write
		r.setWaiting(h, false)
	}
	if err != nil {
		h.last = err
	}
	return n, err
}

// setWaiting reports whether that is a change.
func (r *Run) setWaiting(h *handle, waiting bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.waiting == waiting {
		return false
	}
	h.waiting = waiting
	if waiting {
		r.waiting++
	} else {
		r.waiting--
	}
	return true
}

// notify says that a stream may have something.
func (r *Run) notify(h *handle) {
	r.mu.Lock()
	if !h.waiting || h.closed {
		r.mu.Unlock()
		return
	}
	h.waiting = false
	r.waiting--
	if !h.queued {
		h.queued = true
		r.ready = append(r.ready, h)
	}
	r.mu.Unlock()
	r.wakeUp()
}

func (r *Run) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *Run) drop(h *handle) {
	r.setWaiting(h, false)
	r.mu.Lock()
	h.closed = true
	delete(r.handles, h.id)
	if h.queued { // a guest that never waits would keep all its closed handles here
		r.ready = slices.DeleteFunc(r.ready, func(other *handle) bool { return other == h })
	}
	r.mu.Unlock()
	h.stream.Close()
}

// wait returns a handle that has a call that may succeed now.
func (r *Run) wait(ctx context.Context, timeout time.Duration) (int64, error) {
	r.watch(ctx)
	var late <-chan time.Time
	if timeout >= 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		late = t.C
	}
	for {
		if id, err := r.first(); id != 0 || err != nil {
			return int64(id), err
		}
		select {
		case <-r.wake:
		case <-late:
			if id, err := r.first(); id != 0 || err != nil {
				return int64(id), err
			}
			return 0, Fail(abi.ErrTimeout, "no handle is ready after %s", timeout)
		case <-ctx.Done():
			return 0, Fail(abi.ErrCancelled, "the time of the run is up")
		}
	}
}

// first takes the first handle that is ready; 0 if there is none.
func (r *Run) first() (int32, error) {
	cancelled := r.owner.Cancelled() != abi.CancelNone
	r.mu.Lock()
	defer r.mu.Unlock()
	if cancelled && !r.noticed {
		r.noticed = true
		return 0, Fail(abi.ErrCancelled, "the run is being cancelled")
	}
	if len(r.ready) > 0 {
		h := r.ready[0]
		r.ready = r.ready[1:]
		h.queued = false
		return h.id, nil
	}
	if r.waiting == 0 {
		return 0, Fail(abi.ErrInvalid, "there is nothing to wait for: no call was answered with ErrAgain")
	}
	return 0, nil
}

// watch starts the goroutine that wakes wait when the run is cancelled. Close waits for it.
func (r *Run) watch(ctx context.Context) {
	if r.unwatch != nil {
		return
	}
	ctx, end := context.WithCancel(ctx)
	watched := make(chan struct{})
	r.unwatch = func() { end(); <-watched }
	go func() {
		defer close(watched)
		r.owner.AwaitCancel(ctx)
		r.wakeUp()
	}()
}

// reason returns the text of a failure.
func (r *Run) reason(id int32, c *abi.Call) (int64, error) {
	last := r.last
	if id != 0 {
		r.mu.Lock()
		h := r.handles[id]
		r.mu.Unlock()
		if h == nil {
			return int64(abi.ErrNotFound), nil
		}
		last = h.last
	}
	if last == nil {
		return int64(abi.ErrNotFound), nil
	}
	return c.Give(r.Redacted(last.Error())), nil
}

// Redacted is a text without secrets.
func (r *Run) Redacted(text string) string {
	if r.Redact == nil {
		return text
	}
	return r.Redact(text)
}
