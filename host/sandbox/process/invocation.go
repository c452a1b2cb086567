package process

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// inboxSize is how many messages of an invocation are queued before its process waits.
const inboxSize = 16

// invocation is a run of a worker. One goroutine uses it.
type invocation struct {
	w        *worker
	c        *child
	id       int64 // names it in the process
	guest    int64
	op       string
	listener bool
	inv      *abi.Invocation
	lines    lineLimit
	inbox    chan message
	over     chan struct{}   // closed when nothing takes from inbox any more
	executor int64           // names the executor in the process
	acted    bool            // the process has asked for something on its behalf
	asking   atomic.Bool     // a call has no answer yet
	number   int64           // of the worker's invocations
	behind   bool            // the worker had another one when it began
	served   context.Context // see serving; nil: nothing was asked yet
	unserve  func()
}

func (v *invocation) run(ctx context.Context, export string) abi.Result {
	w, c := v.w, v.c
	v.behind = w.under.Add(1) > 1
	v.number = w.begun.Add(1)
	defer w.under.Add(-1)
	c.mu.Lock()
	c.runs[v.id] = v
	if o := c.opened[w.x]; o != nil {
		v.executor = o.id
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.runs, v.id)
		c.mu.Unlock()
		close(v.over)
	}()

	defer func() {
		if v.served != nil {
			v.unserve()
		}
	}()
	finished := make(chan struct{}) // no later than the end of this function
	stopped := make(chan struct{})
	sent := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		v.stop(ctx, sent, finished)
	})
	defer func() {
		close(finished)
		if !stop() {
			<-stopped
		}
	}()

	q := run{Run: v.id, Executor: v.executor, Guest: v.guest, Export: export, LogLevel: lowestLevel(v.inv.Host), Invocation: pack(&v.inv.Context), Offset: v.inv.Offset, HasOffset: v.inv.HasOffset, Outside: v.inv.Outside != nil}
	if whole := v.inv.WholeLog; whole != nil {
		q.WholeLog = whole.Where
	}
	if d, ok := ctx.Deadline(); ok {
		q.Deadline = nanos(d)
	}
	err := c.out.send(kindRun, q)
	close(sent)
	if err != nil {
		<-c.dead // it cannot be written to, so it ends
	}
	for {
		select {
		case m := <-v.inbox:
			if r, done := v.take(ctx, m); done {
				return r
			}
			continue
		case <-c.dead:
		}
		for { // these may have been the last that it said
			select {
			case m := <-v.inbox:
				if r, done := v.take(ctx, m); done {
					return r
				}
				continue
			default:
			}
			return v.died(ctx)
		}
	}
}

// serving is the context for work on behalf of the process: an answer may take as long as the item, but not
// longer than the process.
func (v *invocation) serving(ctx context.Context) context.Context {
	if v.served == nil {
		served, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(v.c.life, cancel)
		v.served, v.unserve = served, func() { stop(); cancel() }
	}
	return v.served
}

// take handles a message; done is true for the last.
func (v *invocation) take(ctx context.Context, m message) (r abi.Result, done bool) {
	if m.result == nil {
		v.acted = true
		a, err := v.answer(v.serving(ctx), m.call)
		if err != nil {
			v.c.kill(nil, "it did not keep to the protocol: "+err.Error())
			return r, false // its end is next
		}
		switch {
		case !m.tell:
			a.Run = v.id
			v.asking.Store(false)
			_ = v.c.out.send(kindAnswer, a) // if it has ended, that is next
		case m.call.Name == callCancelled:
			_ = v.c.out.send(kindCancel, cancel{Run: v.id, Value: abi.Cancel(a.Value)})
		}
		return r, false
	}
	r, err := m.result.unpack()
	if err == nil {
		err = v.plausible(&r)
	}
	if err != nil {
		v.c.kill(nil, "it did not keep to the protocol: "+err.Error())
		<-v.c.dead
		return v.died(ctx), true
	}
	if v.listener {
		r.Offset, r.Staged = nil, false
	}
	r.Outside = nil // the host has counted that itself
	return r, true
}

// plausible returns what is wrong with a result that claims streaming progress for a job that does not stream:
// a stream that made progress gets new attempts and may move to another host.
func (v *invocation) plausible(r *abi.Result) error {
	if alone := !v.behind && v.w.begun.Load() == v.number; r.NotBegun && (alone || v.acted || v.listener || v.w.Depth() == 1) {
		return errors.New("a run that was not begun, and need not have waited")
	}
	most := int64(0)
	if v.w.x.needs.Type == wasm.TypeDataflow && r.Outcome == abi.OutcomeOK {
		most = 1
	}
	if streams := v.w.x.settings.Streaming && !v.listener; !streams && (r.Yielded || r.Batches > most) {
		return fmt.Errorf("%d batches (yielded: %t) of a job that does not stream", r.Batches, r.Yielded)
	}
	return nil
}

// stop tells the process that the context has ended, and kills it if that does not help.
func (v *invocation) stop(ctx context.Context, sent, finished <-chan struct{}) {
	timeout, why := errors.Is(ctx.Err(), context.DeadlineExceeded), " did not stop when it was asked to"
	if timeout {
		why = " overran its limit"
	}
	why = v.label() + why // inv is not v's when this ends
	t := time.AfterFunc(v.grace(ctx), func() { v.c.kill(v.w.x, why) })
	defer t.Stop()
	<-sent                                                      // else the process does not know the run yet
	_ = v.c.out.send(kindEnd, end{Run: v.id, Timeout: timeout}) // lasts until it reads, or is killed
	select {
	case <-finished:
	case <-v.c.dead:
	}
}

// grace is how long the guest may continue after ctx has ended. A host that has lost its session has little
// time left.
func (v *invocation) grace(ctx context.Context) time.Duration {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return v.w.x.w.o.grace
	}
	return v.w.x.w.o.grace / 2
}

func (v *invocation) label() string {
	if v.listener {
		return "listener " + v.op
	}
	return fmt.Sprintf("item %d of job %s", v.inv.Context.ShardingItem, v.inv.Context.JobName)
}

// died is the result if the process has ended.
func (v *invocation) died(ctx context.Context) abi.Result {
	if ctx.Err() != nil {
		text := fmt.Sprintf("it did not stop within %s, and %s", v.grace(ctx), v.c.epitaph())
		return ended(ctx, v.op, text, text)
	}
	return failed(abi.OutcomeWorker, plugin.KindHost, v.op, v.c.epitaph())
}

// answer carries out a request of the process. The error says why it is not allowed.
func (v *invocation) answer(ctx context.Context, q *call) (answer, error) {
	var code abi.Code
	var err error
	switch q.Name {
	case callLog:
		err = v.log(q)
	case callWholeLog:
		err = v.wholeLog(ctx, q)
	case callCancelled:
		return answer{Value: int64(v.inv.Host.Cancelled())}, nil
	case callPause:
		err = v.pause(ctx)
	case callMemory:
		return v.cover(q.A, q.B)
	case callProgress:
		err = v.progress(ctx, q.A, q.B)
	case callMetric:
		code, err = v.metric(ctx, q)
	case callCommit, callStage:
		code, err = v.offset(ctx, q)
	case callOutside:
		return v.outside(ctx, q)
	default:
		err = fmt.Errorf("the call %q", clip(q.Name))
	}
	return answer{Value: int64(code)}, err
}

func (v *invocation) pause(ctx context.Context) error {
	if v.listener || !v.w.x.settings.Streaming {
		return errors.New("a pause outside of a streaming job")
	}
	v.inv.Host.Pause(ctx)
	return nil
}

// maxStacks is the most that a guest's native stacks take, in bytes: one that is growing, and the one of
// another entry point.
const maxStacks = 5 * abi.MaxStack

// cover reserves memory; stacks is the part for native stacks; 1 is yes.
func (v *invocation) cover(bytes, stacks int64) (answer, error) {
	if stacks < 0 || stacks > maxStacks || bytes < stacks || bytes > v.w.x.needs.Least+int64(v.w.x.needs.Pages)<<16+maxStacks {
		return answer{}, fmt.Errorf("%d bytes of memory for a guest, %d of them for its stacks", bytes, stacks)
	}
	if err := v.w.cover(v.c, bytes, stacks); err != nil {
		return answer{Text: err.Error()}, nil
	}
	return answer{Value: 1}, nil
}

// outside calls a function of a capability. It checks the parameters as for a guest of this process.
func (v *invocation) outside(ctx context.Context, q *call) (answer, error) {
	f := v.w.x.w.functions[q.Text]
	size := 0
	for _, t := range q.Texts {
		size += len(t)
	}
	if v.inv.Outside == nil || f == nil || size > maxPiece || q.Limit < 0 || q.Limit > maxPiece || !fits(f, q) {
		return answer{}, fmt.Errorf("the call %q with %d numbers, %d texts of %d bytes, and room for %d", clip(q.Text), len(q.Numbers), len(q.Texts), size, q.Limit)
	}
	if v.listener && f.During&abi.PhaseListener == 0 {
		return answer{}, fmt.Errorf("the call %q in a listener", q.Text)
	}
	c := abi.Call{Function: f, Numbers: q.Numbers, Texts: q.Texts, Buf: make([]byte, q.Limit)}
	a := answer{Value: v.inv.Outside.Call(ctx, &c)}
	if a.Value > 0 && a.Value <= int64(q.Limit) {
		a.Bytes = c.Buf[:a.Value]
	}
	return a, nil
}

// fits reports whether a call has the parameters of the function.
func fits(f *abi.Import, q *call) bool {
	numbers, texts, buffers := 0, 0, 0
	for _, p := range f.Params {
		switch p.Kind {
		case abi.KindText, abi.KindBytes:
			texts++
		case abi.KindBuffer:
			buffers++
		case abi.KindInt64:
			numbers++
		default:
			if numbers < len(q.Numbers) && q.Numbers[numbers] != int64(int32(q.Numbers[numbers])) {
				return false
			}
			numbers++
		}
	}
	return len(q.Numbers) == numbers && len(q.Texts) == texts && (buffers > 0 || q.Limit == 0)
}

func (v *invocation) progress(ctx context.Context, done, total int64) error {
	if done < 0 || total < 0 {
		return fmt.Errorf("progress of %d of %d", done, total)
	}
	if v.mayAct(ctx) {
		v.inv.Host.Progress(done, total)
	}
	return nil
}

func (v *invocation) metric(ctx context.Context, q *call) (abi.Code, error) {
	if !abi.ValidMetric(q.Kind, q.Text) {
		return 0, fmt.Errorf("a metric of kind %d named %q", q.Kind, q.Text[:min(len(q.Text), abi.MaxMetricName)])
	}
	if _, code := v.w.x.metrics.Use([]byte(q.Text)); code != abi.OK {
		return code, nil
	}
	if !v.mayAct(ctx) {
		return abi.ErrCancelled, nil
	}
	return v.inv.Host.Metric(q.Kind, q.Text, q.A), nil
}

func (v *invocation) offset(ctx context.Context, q *call) (abi.Code, error) {
	stages := q.Name == callStage
	if v.listener || len(q.Bytes) > abi.MaxOffset || (stages && v.w.x.needs.Type != wasm.TypeDataflow) {
		return 0, fmt.Errorf("an offset of %d bytes (%s)", len(q.Bytes), q.Name)
	}
	if !v.mayAct(ctx) {
		return abi.ErrCancelled, nil
	}
	offset := q.Bytes
	switch {
	case q.A == 1 && v.inv.Outside != nil:
		offset = nil
	case offset == nil:
		offset = []byte{}
	}
	if stages {
		return v.inv.Host.StageOffset(ctx, offset), nil
	}
	return v.inv.Host.CommitOffset(ctx, offset), nil
}

// mayAct is called before every outside effect: the item may be lost, or its time up, before the process knows.
func (v *invocation) mayAct(ctx context.Context) bool {
	if d, ok := ctx.Deadline(); ctx.Err() != nil || (ok && !time.Now().Before(d)) {
		return false
	}
	return v.inv.Host.Cancelled() != abi.CancelLost
}

// log passes a line on. The process applies the limits of lines; if it does not, excess lines are dropped here.
func (v *invocation) log(q *call) error {
	l := line{Level: q.Level, Text: q.Text, Attrs: q.Attrs}
	size, err := l.check()
	if err == nil && v.inv.Host.LogEnabled(l.Level) && v.lines.take(size) {
		v.inv.Host.Log(l.Level, l.Text, l.Attrs)
	}
	return err
}

// wholeLog passes lines on that have no limits.
func (v *invocation) wholeLog(ctx context.Context, q *call) error {
	if v.inv.WholeLog == nil {
		return errors.New("lines for a file that there is not")
	}
	for _, l := range q.Lines {
		if _, err := l.check(); err != nil {
			return err
		}
		if v.inv.Host.LogEnabled(l.Level) {
			v.inv.WholeLog.Add(ctx, l.Level, l.Text, l.Attrs)
		}
	}
	return nil
}

// check returns the size of a line, or what is wrong with it.
func (l *line) check() (size int, err error) {
	size = len(l.Text)
	for _, a := range l.Attrs {
		size += len(a)
	}
	// Invalid UTF-8 grows on its way.
	if len(l.Text) > 3*abi.MaxLogMessage || size > 6*abi.MaxLogMessage || len(l.Attrs)%2 != 0 || len(l.Attrs) > abi.MaxLogMessage {
		return size, fmt.Errorf("a line of %d bytes with %d attributes", size, len(l.Attrs))
	}
	return size, nil
}

// lineLimit bounds the lines of an invocation slightly above the contract's limits, which apply to its
// initialisation and its run separately, plus lines that are held back until the end.
type lineLimit struct {
	lines *rate.Limiter
	bytes int // left
}

func newLineLimit() lineLimit {
	return lineLimit{rate.NewLimiter(abi.LogLinesPerSecond, 4*abi.LogBurst+10), 2 * (abi.MaxLogBytes + (64 << 10))}
}

func (l *lineLimit) take(size int) bool {
	if size > l.bytes || !l.lines.Allow() {
		return false
	}
	l.bytes -= size
	return true
}

// lowestLevel is the lowest named level that the host logs.
func lowestLevel(host abi.Host) int {
	if host.LogEnabled(abi.LevelDebug) {
		return math.MinInt32
	}
	for _, level := range []int{abi.LevelInfo, abi.LevelWarn, abi.LevelError} {
		if host.LogEnabled(level) {
			return level
		}
	}
	return math.MaxInt32
}
