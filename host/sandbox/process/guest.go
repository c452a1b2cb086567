package process

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
)

// Depth is how many items a host passes to a guest at once: the guest runs them one after the other, and need
// not wait for the host in between.
const Depth = 8

// patience is how long an item may take while others wait behind it: they are then returned to the host, which
// has another guest run them.
const patience = 2 * time.Millisecond

// guest is a worker of an executor, with the invocations that wait for it.
type guest struct {
	s *session
	x *lodger

	heap int64 // what it may have of Go's heap; its own goroutine uses it

	mu      sync.Mutex
	waiting []*invocationHere
	busy    time.Time // since when an invocation runs; zero: none does
	closed  bool
	wake    chan struct{} // has room for one
	late    *time.Timer   // returns those that wait
}

func newGuest(s *session, x *lodger) *guest {
	g := &guest{s: s, x: x, wake: make(chan struct{}, 1)}
	g.late = time.AfterFunc(time.Hour, g.giveBack)
	g.late.Stop()
	return g
}

// add puts an invocation in the queue.
func (g *guest) add(v *invocationHere) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) >= Depth {
		return fmt.Errorf("more than %d invocations wait for one guest", Depth)
	}
	g.waiting = append(g.waiting, v)
	if !g.busy.IsZero() {
		g.late.Reset(max(patience-time.Since(g.busy), 0))
	}
	g.signal()
	return nil
}

func (g *guest) signal() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// giveBack returns the items behind an invocation that takes long.
func (g *guest) giveBack() {
	g.mu.Lock()
	var back []*invocationHere
	if !g.busy.IsZero() && time.Since(g.busy) >= patience {
		back, g.waiting = g.waiting, nil
	}
	g.mu.Unlock()
	for _, v := range back {
		g.s.finish(v, abi.Result{Outcome: abi.OutcomeCancelled, NotBegun: true})
	}
}

// close ends the guest, which must be idle.
func (g *guest) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.busy.IsZero() || len(g.waiting) > 0 {
		return errors.New("the end of a guest that is running")
	}
	g.closed = true
	g.signal()
	return nil
}

// next waits for an invocation; nil if the guest is closed.
func (g *guest) next() *invocationHere {
	for {
		g.mu.Lock()
		if len(g.waiting) > 0 {
			v := g.waiting[0]
			g.waiting = append(g.waiting[:0], g.waiting[1:]...)
			g.busy = time.Now()
			if len(g.waiting) > 0 {
				g.late.Reset(patience)
			}
			g.mu.Unlock()
			return v
		}
		closed := g.closed
		g.mu.Unlock()
		if closed {
			return nil
		}
		<-g.wake
	}
}

// mayHave raises the guest's allowance of Go heap to bytes.
func (g *guest) mayHave(bytes int64) {
	if more := bytes - g.heap; more > 0 {
		g.heap = bytes
		g.s.addHeap(more)
	}
}

// loop runs invocations until the guest is closed.
func (g *guest) loop() {
	g.mayHave(guestHeap)
	defer func() {
		g.s.addHeap(-g.heap)
		g.s.collectLeft()
	}()
	worker, err := g.x.NewWorker(context.Background())
	for v := g.next(); v != nil; v = g.next() {
		r := abi.Result{Outcome: abi.OutcomeError}
		if err != nil {
			r.Err = &plugin.Error{Kind: plugin.KindHost, Op: v.q.Export, Err: err}
			r.Message = r.Err.Error()
		} else {
			r = v.run(worker)
		}
		g.mu.Lock()
		g.busy = time.Time{}
		if len(g.waiting) == 0 {
			g.late.Stop()
		}
		g.mu.Unlock()
		g.s.finish(v, r)
	}
	g.late.Stop()
	if worker != nil {
		_ = worker.Close() // it has nothing left to say
	}
}

// invocationHere is an invocation in the process that runs it. It is the abi.Host of
// its guest, and asks the host's own.
type invocationHere struct {
	guest   *guest
	q       *run
	id      int64
	life    *life
	answers chan answer // has room for one
	waiting bool        // for an answer; guarded by session.mu
	whole   *wholeLines // nil: nothing takes them

	mu        sync.Mutex
	cancelled abi.Cancel
	asked     time.Time // when the host was asked for what is known of it; zero: never
	asking    time.Time // when it was asked again; zero: it was not
}

func newInvocationHere(g *guest, q *run) *invocationHere {
	return &invocationHere{guest: g, q: q, id: q.Run, life: newLife(instant(q.Deadline)), answers: make(chan answer, 1)}
}

func (v *invocationHere) run(w abi.Worker) abi.Result {
	q := v.q
	inv := &abi.Invocation{Context: q.Invocation.unpack(), Host: v, Offset: q.Offset, HasOffset: q.HasOffset}
	if q.Outside {
		inv.Outside = v
	}
	if q.WholeLog != "" {
		v.whole = &wholeLines{v: v}
		inv.WholeLog = &abi.WholeLog{Where: q.WholeLog, Add: v.whole.add}
	}
	var r abi.Result
	if q.Export == "" {
		r = w.Execute(v.life, inv)
	} else {
		r = w.Listen(v.life, q.Export, inv)
	}
	v.whole.flush()
	return r
}

// ask sends a call and waits for the value of the answer.
func (v *invocationHere) ask(c call) int64 { return v.asks(c).Value }

func (v *invocationHere) asks(c call) answer {
	if c.Name != callWholeLog {
		v.whole.flush()
	}
	c.Run = v.id
	s := v.guest.s
	s.mu.Lock()
	v.waiting = true
	s.mu.Unlock()
	if err := s.out.send(kindCall, c); err != nil {
		return answer{Value: int64(abi.ErrUnavailable)}
	}
	return <-v.answers
}

// tell sends a call and does not wait.
func (v *invocationHere) tell(c call) {
	c.Run = v.id
	_ = v.guest.s.out.later(kindTell, c) // without the host, this process ends
}

const (
	// wholeBatch is about how many bytes of lines are sent to the host at once.
	wholeBatch = 128 << 10
	// wholeLine and wholeAttr are added for each line and attribute.
	wholeLine, wholeAttr = 16, 8
	// wholeLinger is the age from which waiting lines are sent when the next one comes.
	wholeLinger = 10 * time.Millisecond
)

// wholeLines buffers lines for the whole log, so that a guest that logs much does not wait for the host with
// each line. They are sent with the next line after wholeLinger, with any other call, and at the end. If the
// process is killed buffered lines are lost. A nil one has none.
type wholeLines struct {
	v     *invocationHere
	lines []line
	size  int
	sent  time.Time
}

func (w *wholeLines) add(_ context.Context, level int, msg string, kv []string) {
	w.lines = append(w.lines, line{Level: level, Text: msg, Attrs: kv})
	w.size += wholeLine + len(msg)
	for _, a := range kv {
		w.size += wholeAttr + len(a)
	}
	if w.size >= wholeBatch || time.Since(w.sent) >= wholeLinger {
		w.flush()
	}
}

func (w *wholeLines) flush() {
	if w == nil || len(w.lines) == 0 {
		return
	}
	w.v.ask(call{Name: callWholeLog, Lines: w.lines})
	w.lines, w.size, w.sent = w.lines[:0], 0, time.Now()
}

// Log implements abi.Host.
func (v *invocationHere) Log(level int, msg string, kv []string) {
	v.tell(call{Name: callLog, Level: level, Text: msg, Attrs: kv})
}

// LogEnabled implements abi.Host.
func (v *invocationHere) LogEnabled(level int) bool { return level >= v.q.LogLevel }

// Progress implements abi.Host.
func (v *invocationHere) Progress(done, total int64) {
	v.tell(call{Name: callProgress, A: done, B: total})
}

// Metric implements abi.Host. It asks the host about each new metric.
func (v *invocationHere) Metric(kind int, name string, value int64) abi.Code {
	c := call{Name: callMetric, Kind: kind, Text: name, A: value}
	x, key := v.guest.x, metricKey{kind, name}
	x.mu.Lock()
	known := x.known[key]
	x.mu.Unlock()
	if known {
		v.tell(c)
		return abi.OK
	}
	code := abi.Code(v.ask(c))
	if code == abi.OK {
		x.mu.Lock()
		x.known[key] = true
		x.mu.Unlock()
	}
	return code
}

// CommitOffset implements abi.Host.
func (v *invocationHere) CommitOffset(_ context.Context, offset []byte) abi.Code {
	return abi.Code(v.ask(call{Name: callCommit, Bytes: offset, A: none(offset)}))
}

// StageOffset implements abi.Host.
func (v *invocationHere) StageOffset(_ context.Context, offset []byte) abi.Code {
	return abi.Code(v.ask(call{Name: callStage, Bytes: offset, A: none(offset)}))
}

// none is 1 for no offset, which is not an empty one.
func none(offset []byte) int64 {
	if offset == nil {
		return 1
	}
	return 0
}

// Pause ends when the host says so; what is known of cancellation is old then.
func (v *invocationHere) Pause(context.Context) {
	v.ask(call{Name: callPause})
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked = time.Time{}
}

const (
	// fresh is how old the cancellation state may be; if it is older the host is asked again, while the guest
	// continues. The host checks before every effect itself, so this only bounds how soon a guest sees it.
	fresh = time.Millisecond
	// stale is how old it may get while the host is being asked.
	stale = 20 * time.Millisecond
)

// Cancelled is only called by the guest's goroutine, although the contract allows others.
func (v *invocationHere) Cancelled() abi.Cancel {
	now := time.Now()
	v.mu.Lock()
	age := now.Sub(v.asked)
	known := !v.asked.IsZero() && age <= stale
	refresh := known && age > fresh && v.asking.IsZero()
	if refresh {
		v.asking = now
	}
	cancelled := v.cancelled
	v.mu.Unlock()
	if refresh {
		_ = v.guest.s.out.send(kindTell, call{Run: v.id, Name: callCancelled})
	}
	if known {
		return cancelled
	}
	cancelled = abi.Cancel(v.ask(call{Name: callCancelled}))
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cancelled, v.asked = cancelled, now
	return cancelled
}

// learn takes what the host says about cancellation.
func (v *invocationHere) learn(c abi.Cancel) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.asking.After(v.asked) {
		v.cancelled, v.asked = c, v.asking
	}
	v.asking = time.Time{}
}

// Call implements abi.Outside.
func (v *invocationHere) Call(_ context.Context, c *abi.Call) int64 {
	q := call{Name: callOutside, Text: c.Function.Module + "." + c.Function.Name, Numbers: c.Numbers, Limit: min(len(c.Buf), maxPiece)}
	left := maxPiece
	for _, t := range c.Texts {
		t = t[:min(len(t), left)]
		left -= len(t)
		q.Texts = append(q.Texts, t)
	}
	a := v.asks(q)
	copy(c.Buf, a.Bytes)
	return a.Value
}

// CoverMemory implements plugin.MemoryHost.
func (v *invocationHere) CoverMemory(bytes, stacks int64) error {
	if a := v.asks(call{Name: callMemory, A: bytes, B: stacks}); a.Value != 1 {
		return errors.New(a.Text)
	}
	v.guest.mayHave(guestHeap + stacks)
	return nil
}

var _ plugin.MemoryHost = (*invocationHere)(nil)

// life is the context of an invocation. It ends at its deadline, or when the host says so, with the host's
// reason.
type life struct {
	context.Context
	stop context.CancelFunc

	mu    sync.Mutex
	cause error
}

func newLife(deadline time.Time) *life {
	l := &life{}
	if deadline.IsZero() {
		l.Context, l.stop = context.WithCancel(context.Background())
	} else {
		l.Context, l.stop = context.WithDeadline(context.Background(), deadline)
	}
	return l
}

func (l *life) end(timeout bool) {
	l.mu.Lock()
	if l.cause == nil {
		l.cause = context.Canceled
		if timeout {
			l.cause = context.DeadlineExceeded
		}
	}
	l.mu.Unlock()
	l.stop()
}

// release frees the context's timer; the context is not used any more.
func (l *life) release() { l.stop() }

func (l *life) Err() error {
	if l.Context.Err() == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return l.cause
	}
	return l.Context.Err()
}
