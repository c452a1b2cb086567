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
	"github.com/wasmjob/wasmjob/host/plugin"
	"github.com/wasmjob/wasmjob/host/plugin/wasm"
)

// executor implements abi.Executor. It has at most one process.
type executor struct {
	m           *Module
	w           *Workers
	settings    plugin.Settings
	needs       plugin.Needs
	concurrency int

	plugin.Uses
	expected atomic.Int64 // the most that a worker has needed, in bytes
	ids      atomic.Int64 // of workers

	lock chan struct{} // holds one token: the right to the fields below
	// users are the workers that are open. base pays for the process while there
	// are any, or a process.
	users   int
	base    *plugin.Account
	process *child
	idle    *time.Timer // ends the process; nil unless it is idle

	metrics plugin.MetricNames
}

func (x *executor) Digest() string { return x.m.m.Digest() }

// Type is SIMPLE, DATAFLOW or SCRIPT: what the job runs the module as.
func (x *executor) Type() string { return x.needs.Type }

// About is the module's size in bytes, and what it imports from.
func (x *executor) About() (size int, imports []string) { return x.m.m.Info().About() }

func (x *executor) HasListener(export string) bool {
	return x.m.m.HasListener(x.needs.Type, export)
}

// Release ends the process with the last use, and waits for its end.
func (x *executor) Release() {
	if x.End() {
		x.lock <- struct{}{}
		x.keep()
		x.drop()
		<-x.lock
		x.m.m.Release()
	}
}

// keep stops the timer of an idle process. The lock is held.
func (x *executor) keep() {
	if x.idle == nil {
		return
	}
	if x.idle.Stop() {
		x.w.joined.Done()
	}
	x.w.wakes(x)
	x.idle = nil
}

// drop ends the process and gives back what it costs. The lock is held.
func (x *executor) drop() {
	if x.process != nil {
		x.process.end()
		<-x.process.dead
		x.process = nil
	}
	if x.base != nil {
		x.base.Close()
		x.base = nil
	}
}

var errReleased = errors.New("the executor was released")

// NewWorker waits until there is memory for a guest, and for the process if there
// is none, and starts the process: that takes nothing of an item's time. If it
// cannot be started, the first invocation says why.
func (x *executor) NewWorker(ctx context.Context) (abi.Worker, error) {
	if !x.Retain() {
		return nil, errReleased
	}
	account, err := x.enter(ctx)
	if err != nil {
		x.Release()
		return nil, err
	}
	w := &worker{x: x, id: x.ids.Add(1), account: account, inbox: make(chan message, 1)}
	w.process, w.failed = x.current(ctx)
	return w, nil
}

// Expect implements abi.Executor: a process that is idle ends by itself, and takes
// its compiled code along.
func (x *executor) Expect(time.Time) {}

// enter begins a worker's part in the process; leave ends it. Who waits for memory
// holds neither memory nor the lock: what a guest and a process need is admitted
// together.
func (x *executor) enter(ctx context.Context) (*plugin.Account, error) {
	guest, base := max(x.needs.Least, x.expected.Load()), baseMemory+x.needs.Code
	for {
		if err := x.acquire(ctx); err != nil {
			return nil, err
		}
		need := guest
		if x.base == nil {
			need += base
		}
		<-x.lock
		account, err := x.w.o.Runtime.Admit(ctx, x.settings.JobName, need)
		if err != nil {
			return nil, err
		}
		if x.admitted(account, base, need > guest) {
			return account, nil
		}
		account.Close() // the process has ended meanwhile
	}
}

// admitted counts a worker in, if there is memory for the process: it has some, or
// the account has.
func (x *executor) admitted(account *plugin.Account, base int64, both bool) bool {
	x.lock <- struct{}{}
	defer func() { <-x.lock }()
	if both {
		part := account.Split(base)
		if x.base == nil {
			x.base = part
		} else {
			part.Close()
		}
	}
	if x.base == nil {
		return false
	}
	x.keep()
	x.users++
	return true
}

// acquire takes the lock; the error is that of ctx.
func (x *executor) acquire(ctx context.Context) error {
	select {
	case x.lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave lets an idle process stay for a while, unless its memory is needed.
func (x *executor) leave() {
	x.rest()
	x.w.relieve()
}

func (x *executor) rest() {
	x.lock <- struct{}{}
	defer func() { <-x.lock }()
	if x.users--; x.users > 0 {
		return
	}
	if x.process == nil || !x.process.alive() {
		x.drop()
		return
	}
	x.w.joined.Add(1)
	var mine *time.Timer
	armed := make(chan struct{})
	mine = time.AfterFunc(x.w.o.idle, func() {
		defer x.w.joined.Done()
		<-armed
		x.lock <- struct{}{}
		defer func() { <-x.lock }()
		if x.idle == mine { // no caller came
			x.w.wakes(x)
			x.idle = nil
			x.drop()
		}
	})
	x.idle = mine
	x.w.rests(x)
	close(armed)
}

// current is the process, started if there is none.
func (x *executor) current(ctx context.Context) (*child, error) {
	if err := x.acquire(ctx); err != nil {
		return nil, err
	}
	defer func() { <-x.lock }()
	if x.process != nil {
		if x.process.alive() {
			return x.process, nil
		}
		<-x.process.dead
		x.process = nil
	}
	c, err := x.m.launch(ctx, x.settings.JobName, start{Settings: x.settings, Pages: x.needs.Pages}, x.concurrency)
	if err != nil {
		return nil, err
	}
	x.process = c
	return c, nil
}

// worker implements abi.Worker. It is used by one goroutine at a time.
type worker struct {
	x       *executor
	id      int64
	account *plugin.Account
	inbox   chan message // has room for one
	gone    bool
	process *child // that knows of it
	failed  error  // why there is none, until an invocation has said so
}

// Close ends the worker in its process, and its use of the executor.
func (w *worker) Close() error {
	if w.gone {
		return nil
	}
	w.gone = true
	x := w.x
	for n := x.expected.Load(); w.account.Bytes() > n && !x.expected.CompareAndSwap(n, w.account.Bytes()); n = x.expected.Load() {
	}
	if w.process != nil && w.process.alive() {
		// If it has ended, so has the worker; if it does not read, it is to end.
		t := time.AfterFunc(x.w.o.grace, func() { w.process.kill("it does not read what the host writes") })
		_ = w.process.out.send(kindClose, closed{w.id})
		t.Stop()
	}
	w.account.Close()
	x.leave()
	x.Release()
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
	if w.gone {
		return failed(abi.OutcomeError, plugin.KindHost, op, "the worker is closed")
	}
	if inv == nil || inv.Host == nil {
		return failed(abi.OutcomeError, plugin.KindHost, op, "the invocation has no host")
	}
	if ctx.Err() != nil {
		return ended(ctx, op, "the time was up", "stopped")
	}
	c, err := w.process, w.failed
	w.failed = nil
	if err == nil && (c == nil || !c.alive()) {
		c, err = w.x.current(ctx)
	}
	if err != nil {
		if ctx.Err() != nil {
			return ended(ctx, op, "the time was up before its worker process was ready", "stopped")
		}
		return failed(abi.OutcomeError, plugin.KindHost, op, err.Error())
	}
	w.process = c
	v := &invocation{w: w, c: c, op: op, listener: export != "", inv: inv, lines: newLineLimit()}
	return v.run(ctx, export)
}

// invocation is a run of a worker. One goroutine uses it.
type invocation struct {
	w        *worker
	c        *child
	op       string
	listener bool
	inv      *abi.Invocation
	lines    lineLimit
}

func (v *invocation) run(ctx context.Context, export string) abi.Result {
	w, c := v.w, v.c
	select { // of an invocation that a killed process left unanswered
	case <-w.inbox:
	default:
	}
	c.mu.Lock()
	c.workers[w.id] = w
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.workers, w.id)
		c.mu.Unlock()
	}()

	// What is done for the process ends with it: an answer may take as long as the item.
	served, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()

	over := make(chan struct{}) // no later than the end of this function
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		v.stop(ctx, over)
	})
	defer func() {
		close(over)
		if !stop() {
			<-stopped
		}
	}()

	q := run{Worker: w.id, Export: export, LogLevel: lowestLevel(v.inv.Host), Invocation: v.inv.Context, Offset: v.inv.Offset, HasOffset: v.inv.HasOffset, Outside: v.inv.Outside != nil}
	if whole := v.inv.WholeLog; whole != nil {
		q.WholeLog = whole.Where
	}
	q.Deadline, _ = ctx.Deadline()
	if err := c.out.send(kindRun, q); err != nil {
		<-c.dead // it cannot be written to, so it ends
	}
	for {
		select {
		case m := <-w.inbox:
			if r, done := v.take(ctx, served, m); done {
				return r
			}
			continue
		case <-c.dead:
		}
		select { // it may have been the last that it said
		case m := <-w.inbox:
			if r, done := v.take(ctx, served, m); done {
				return r
			}
		default:
		}
		return v.died(ctx)
	}
}

// take acts on a message; done if it was the last. served ends with the process, too.
func (v *invocation) take(ctx, served context.Context, m message) (r abi.Result, done bool) {
	if m.result == nil {
		a, err := v.answer(served, m.call)
		if err != nil {
			v.c.kill("it did not keep to the protocol: " + err.Error())
			return r, false // its end is next
		}
		a.Worker = v.w.id
		_ = v.c.out.send(kindAnswer, a) // if it has ended, that is next
		return r, false
	}
	r, err := m.result.unpack()
	if err == nil {
		err = v.plausible(&r)
	}
	if err != nil {
		v.c.kill("it did not keep to the protocol: " + err.Error())
		<-v.c.dead
		return v.died(ctx), true
	}
	if v.listener {
		r.Offset, r.Staged = nil, false
	}
	r.Outside = nil // the host has counted that itself
	return r, true
}

// plausible says what is wrong with a result of a job that does not stream: a host gives
// new attempts to a stream that got on, and lets it go on elsewhere.
func (v *invocation) plausible(r *abi.Result) error {
	most := int64(0)
	if v.w.x.needs.Type == wasm.TypeDataflow && r.Outcome == abi.OutcomeOK {
		most = 1
	}
	if streams := v.w.x.settings.Streaming && !v.listener; !streams && (r.Yielded || r.Batches > most) {
		return fmt.Errorf("%d batches (yielded: %t) of a job that does not stream", r.Batches, r.Yielded)
	}
	return nil
}

// stop signals the process that the context has ended, and kills it if that does not
// help.
func (v *invocation) stop(ctx context.Context, over <-chan struct{}) {
	timeout, why := errors.Is(ctx.Err(), context.DeadlineExceeded), " did not stop when it was asked to"
	if timeout {
		why = " overran its limit"
	}
	t := time.AfterFunc(v.w.x.w.o.grace, func() { v.c.kill(v.label() + why) })
	defer t.Stop()
	_ = v.c.out.send(kindEnd, end{v.w.id, timeout}) // lasts until it reads, or is killed
	select {
	case <-over:
	case <-v.c.dead:
	}
}

func (v *invocation) label() string {
	if v.listener {
		return "listener " + v.op
	}
	return fmt.Sprintf("item %d", v.inv.Context.ShardingItem)
}

// died is the result if the process has ended.
func (v *invocation) died(ctx context.Context) abi.Result {
	if ctx.Err() != nil {
		text := fmt.Sprintf("it did not stop within %s, and %s", v.w.x.w.o.grace, v.c.epitaph())
		return ended(ctx, v.op, text, text)
	}
	return failed(abi.OutcomeError, plugin.KindHost, v.op, v.c.epitaph())
}

// answer carries out what the process asks for. The error says what it may not ask.
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
		return v.cover(q.A)
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

// cover takes memory; 1 is yes.
func (v *invocation) cover(bytes int64) (answer, error) {
	if bytes < 0 || bytes > v.w.x.needs.Least+int64(v.w.x.needs.Pages)<<16+2*abi.MaxStack {
		return answer{}, fmt.Errorf("%d bytes of memory for a guest", bytes)
	}
	if err := v.w.account.Cover(bytes); err != nil {
		return answer{Text: err.Error()}, nil
	}
	return answer{Value: 1}, nil
}

// outside calls a function of a capability. What its parameters say is believed as
// little as in a guest of this process.
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

// mayAct is asked before every outside effect: the item may have been lost, or its
// time be up, without the process knowing it yet.
func (v *invocation) mayAct(ctx context.Context) bool {
	if d, ok := ctx.Deadline(); ctx.Err() != nil || (ok && !time.Now().Before(d)) {
		return false
	}
	return v.inv.Host.Cancelled() != abi.CancelLost
}

// log passes a line on. The process keeps to the limits of lines itself; if it does
// not, what is beyond them is dropped.
func (v *invocation) log(q *call) error {
	l := line{q.Level, q.Text, q.Attrs}
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

// check is the size of a line, or says what is wrong with it.
func (l *line) check() (size int, err error) {
	size = len(l.Text)
	for _, a := range l.Attrs {
		size += len(a)
	}
	// Text that is not UTF-8 grows on its way.
	if len(l.Text) > 3*abi.MaxLogMessage || size > 6*abi.MaxLogMessage || len(l.Attrs)%2 != 0 || len(l.Attrs) > abi.MaxLogMessage {
		return size, fmt.Errorf("a line of %d bytes with %d attributes", size, len(l.Attrs))
	}
	return size, nil
}

// lineLimit bounds the lines of an invocation a little above the contract's limits,
// which hold for its initialisation and its run each, and lines that are held back until the end.
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

// lowestLevel is the lowest of the named levels that the host lets through.
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
