package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/plugin"
)

// Serve is all that a worker process does. in and out are its standard input and
// output. It restricts the whole process, which is to end when Serve returns, with
// all guests that still run. The error is nil if the host has ended it.
func Serve(in io.Reader, out io.Writer) error { return serve(in, out, nil) }

// serve calls restricted, unless it is nil, when the sandbox is closed: what it
// returns is given to the host as the module's problem.
func serve(in io.Reader, out io.Writer, restricted func() string) error {
	s := &session{in: newReader(in, maxFromHost), out: &writer{w: out}, workers: map[int64]*guest{}}
	var q start
	if err := s.in.expect(kindStart, &q); err != nil {
		return fmt.Errorf("standard input has nothing to run, as a host would write it: %w", err)
	}
	r, err := s.start(&q, restricted)
	if err != nil {
		return err
	}
	if err := s.out.send(kindReady, r); err != nil || s.executor == nil {
		return err
	}
	for {
		k, body, err := s.in.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = s.take(k, body)
		}
		if err != nil {
			return err
		}
	}
}

// session is the state of a worker process.
type session struct {
	in       *reader
	out      *writer
	executor abi.Executor // nil: there was a trial only, or it has failed

	mu      sync.Mutex
	workers map[int64]*guest
}

// guest is a worker, and the invocation that it runs.
type guest struct {
	s       *session
	id      int64
	worker  abi.Worker
	answers chan answer // has room for one
	whole   *wholeLines // of the invocation at hand; nil: nothing takes them

	// Guarded by session.mu.
	life    *life // of the invocation at hand; nil: there is none
	waiting bool  // for an answer
}

// start closes the sandbox and makes the executor. The error says that the host
// cannot be understood.
func (s *session) start(q *start, restricted func() string) (ready, error) {
	ctx := context.Background()
	o := plugin.Options{}
	if !q.Compile {
		o = plugin.Options{CacheDir: q.Dir, Stored: true}
	}
	rt, err := plugin.NewRuntime(ctx, o)
	if err != nil {
		return ready{Failure: err.Error()}, nil
	}
	lacks, err := restrict(q)
	if err != nil {
		return ready{Failure: err.Error()}, nil
	}
	k, wasm, err := s.in.next()
	if err == nil && k != kindModule {
		err = fmt.Errorf("a frame of kind %d, expected the module", k)
	}
	if err != nil {
		return ready{}, err
	}
	if restricted != nil {
		return ready{Problem: restricted(), Lacks: lacks}, nil
	}
	q.Module.Wasm = wasm
	m, err := rt.Unpack(q.Module)
	if err != nil {
		return ready{Failure: err.Error()}, nil
	}
	if q.Trial {
		err = m.Try(ctx, q.Pages)
	} else {
		s.executor, err = m.Executor(q.Settings)
	}
	load, isLoad := errors.AsType[*plugin.LoadError](err)
	if isLoad && load.Err != nil {
		err = load.Err
	}
	if isLoad && errors.Is(err, plugin.ErrNotStored) {
		return ready{NotStored: true, Lacks: lacks}, nil
	}
	if err != nil {
		return ready{Problem: clip(err.Error()), Lacks: lacks}, nil
	}
	return ready{Lacks: lacks}, nil
}

// take acts on a frame of the host's. An error ends the process.
func (s *session) take(k kind, body []byte) error {
	switch k {
	case kindRun:
		return decoded(body, s.run)
	case kindEnd:
		return decoded(body, s.end)
	case kindAnswer:
		return decoded(body, s.answer)
	case kindClose:
		return decoded(body, s.close)
	}
	return fmt.Errorf("a frame of kind %d", k)
}

func decoded[T any](body []byte, act func(*T) error) error {
	var q T
	if err := decode(body, &q); err != nil {
		return err
	}
	return act(&q)
}

func (s *session) end(q *end) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// It may have ended at the same time.
	if g := s.workers[q.Worker]; g != nil && g.life != nil {
		g.life.end(q.Timeout)
	}
	return nil
}

func (s *session) answer(q *answer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.workers[q.Worker]
	if g == nil || !g.waiting {
		return fmt.Errorf("an answer for worker %d, which has not asked", q.Worker)
	}
	g.waiting = false
	g.answers <- *q
	return nil
}

func (s *session) close(q *closed) error {
	s.mu.Lock()
	g := s.workers[q.Worker]
	idle := g == nil || g.life == nil
	delete(s.workers, q.Worker)
	s.mu.Unlock()
	if !idle {
		return fmt.Errorf("the end of worker %d, which is running", q.Worker)
	}
	if g == nil {
		return nil
	}
	return g.worker.Close()
}

// run begins an invocation in a goroutine of its own, which ends with the
// invocation, or with the process.
func (s *session) run(q *run) error {
	s.mu.Lock()
	g := s.workers[q.Worker]
	busy := g != nil && g.life != nil
	s.mu.Unlock()
	if busy {
		return fmt.Errorf("an invocation for worker %d, which is running", q.Worker)
	}
	if g == nil {
		w, err := s.executor.NewWorker(context.Background())
		if err != nil {
			return err
		}
		g = &guest{s: s, id: q.Worker, worker: w, answers: make(chan answer, 1)}
	}
	ctx := newLife(q.Deadline)
	s.mu.Lock()
	s.workers[q.Worker], g.life = g, ctx
	s.mu.Unlock()
	go g.run(ctx, q)
	return nil
}

func (g *guest) run(ctx *life, q *run) {
	p := &proxy{guest: g, level: q.LogLevel}
	inv := &abi.Invocation{Context: q.Invocation, Host: p, Offset: q.Offset, HasOffset: q.HasOffset}
	if q.Outside {
		inv.Outside = p
	}
	if q.WholeLog != "" {
		g.whole = &wholeLines{guest: g}
		inv.WholeLog = &abi.WholeLog{Where: q.WholeLog, Add: g.whole.add}
	}
	var r abi.Result
	if q.Export == "" {
		r = g.worker.Execute(ctx, inv)
	} else {
		r = g.worker.Listen(ctx, q.Export, inv)
	}
	g.whole.flush()
	g.whole = nil
	ctx.release()
	g.s.mu.Lock()
	g.life = nil
	g.s.mu.Unlock()
	// If the host is gone, so is this process, soon.
	_ = g.s.out.send(kindResult, packResult(g.id, r))
}

// ask sends a call and waits for the value of the answer.
func (g *guest) ask(c call) int64 { return g.asks(c).Value }

func (g *guest) asks(c call) answer {
	if c.Name != callWholeLog {
		g.whole.flush()
	}
	c.Worker = g.id
	g.s.mu.Lock()
	g.waiting = true
	g.s.mu.Unlock()
	if err := g.s.out.send(kindCall, c); err != nil {
		return answer{Value: int64(abi.ErrUnavailable)}
	}
	return <-g.answers
}

const (
	// wholeBatch is how many bytes of lines go to the host at once, about. A frame has more: JSON
	// takes up to six bytes for one.
	wholeBatch = 32 << 10
	// wholeLine and wholeAttr are what a line and an attribute count besides their texts.
	wholeLine, wholeAttr = 16, 4
	// wholeLinger is how old a line may be that waits when the next one comes.
	wholeLinger = 10 * time.Millisecond
)

// wholeLines are lines for the whole log that wait, for a guest that logs much would wait for the host
// with each. They go with the next line after wholeLinger, with any other call, and at the end. If the process
// is killed those that wait are missing. A nil one has none.
type wholeLines struct {
	guest *guest
	lines []line
	size  int
	sent  time.Time
}

func (w *wholeLines) add(_ context.Context, level int, msg string, kv []string) {
	w.lines = append(w.lines, line{level, msg, kv})
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
	w.guest.ask(call{Name: callWholeLog, Lines: w.lines})
	w.lines, w.size, w.sent = w.lines[:0], 0, time.Now()
}

// proxy is an abi.Host that asks the host's own.
type proxy struct {
	guest *guest
	level int

	mu        sync.Mutex
	cancelled abi.Cancel
	asked     time.Time
}

// cancelAge is how long an answer about cancellation is believed. The host asks
// itself before every effect, so this bounds only how soon a guest sees it.
const cancelAge = time.Millisecond

func (p *proxy) Log(level int, msg string, kv []string) {
	p.guest.ask(call{Name: callLog, Level: level, Text: msg, Attrs: kv})
}
func (p *proxy) LogEnabled(level int) bool { return level >= p.level }
func (p *proxy) Progress(done, total int64) {
	p.guest.ask(call{Name: callProgress, A: done, B: total})
}
func (p *proxy) Metric(kind int, name string, value int64) abi.Code {
	return abi.Code(p.guest.ask(call{Name: callMetric, Kind: kind, Text: name, A: value}))
}
func (p *proxy) CommitOffset(_ context.Context, offset []byte) abi.Code {
	return abi.Code(p.guest.ask(call{Name: callCommit, Bytes: offset, A: none(offset)}))
}
func (p *proxy) StageOffset(_ context.Context, offset []byte) abi.Code {
	return abi.Code(p.guest.ask(call{Name: callStage, Bytes: offset, A: none(offset)}))
}

// none is 1 for no offset, which is not an empty one.
func none(offset []byte) int64 {
	if offset == nil {
		return 1
	}
	return 0
}

// Pause ends when the host says so; what it knows of cancellation is old then.
func (p *proxy) Pause(context.Context) {
	p.guest.ask(call{Name: callPause})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = time.Time{}
}

// Cancelled is called by the guest's goroutine only; the contract allows more.
func (p *proxy) Cancelled() abi.Cancel {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); p.asked.IsZero() || now.Sub(p.asked) > cancelAge {
		p.cancelled, p.asked = abi.Cancel(p.guest.ask(call{Name: callCancelled})), now
	}
	return p.cancelled
}

// Call implements abi.Outside.
func (p *proxy) Call(_ context.Context, c *abi.Call) int64 {
	q := call{Name: callOutside, Text: c.Function.Module + "." + c.Function.Name, Numbers: c.Numbers, Limit: min(len(c.Buf), maxPiece)}
	left := maxPiece
	for _, t := range c.Texts {
		t = t[:min(len(t), left)]
		left -= len(t)
		q.Texts = append(q.Texts, t)
	}
	a := p.guest.asks(q)
	copy(c.Buf, a.Bytes)
	return a.Value
}

// CoverMemory implements plugin.MemoryHost.
func (p *proxy) CoverMemory(bytes int64) error {
	if a := p.guest.asks(call{Name: callMemory, A: bytes}); a.Value != 1 {
		return errors.New(a.Text)
	}
	return nil
}

var _ plugin.MemoryHost = (*proxy)(nil)

// life is the context of an invocation. It ends at its deadline, or when the host
// says so, for the reason that the host gives.
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

// release ends what hangs on the context; nothing looks at it any more.
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

// packResult takes a result apart. Texts that a guest can make long are cut.
func packResult(worker int64, r abi.Result) result {
	p := result{Worker: worker, Result: r}
	p.Message, p.Err = clip(r.Message), nil
	if r.Err == nil {
		return p
	}
	p.Error = &failure{Kind: plugin.KindHost, Cause: clip(r.Err.Error())}
	if e, ok := errors.AsType[*plugin.Error](r.Err); ok {
		p.Error = &failure{Kind: e.Kind, Op: e.Op, ExitCode: e.ExitCode, Stack: clip(e.Stack), Stderr: clip(e.Stderr)}
		if e.Err != nil {
			p.Error.Cause = clip(e.Err.Error())
		}
	}
	return p
}

// unpack checks a result and puts it together. The error says what is wrong with it.
func (p *result) unpack() (abi.Result, error) {
	r := p.Result
	if err := p.check(); err != nil {
		return r, err
	}
	if !p.Staged {
		r.Offset = nil
	} else if r.Offset == nil {
		r.Offset = []byte{}
	}
	if p.Error == nil {
		return r, nil
	}
	e, err := p.Error.unpack()
	if err != nil {
		return r, err
	}
	r.Err = e
	return r, nil
}

func (p *result) check() error {
	if !slices.Contains(abi.Outcomes(), p.Outcome) {
		return fmt.Errorf("the outcome %q", clip(string(p.Outcome)))
	}
	if len(p.Offset) > abi.MaxOffset {
		return fmt.Errorf("an offset of %d bytes", len(p.Offset))
	}
	if p.Staged && p.Outcome != abi.OutcomeOK {
		return fmt.Errorf("an offset with the outcome %s", p.Outcome)
	}
	if len(p.Message) > maxText {
		return fmt.Errorf("a message of %d bytes", len(p.Message))
	}
	if min(p.Batches, p.Records, p.DroppedLines, p.Memory) < 0 || p.Memory > math.MaxUint32+1 {
		return fmt.Errorf("%d batches, %d records, %d dropped lines and %d bytes of memory", p.Batches, p.Records, p.DroppedLines, p.Memory)
	}
	return nil
}

func (f *failure) unpack() (*plugin.Error, error) {
	switch f.Kind {
	case plugin.KindLoad, plugin.KindTrap, plugin.KindExit, plugin.KindTimeout, plugin.KindCancelled, plugin.KindHost:
	default:
		return nil, fmt.Errorf("an error of the kind %q", clip(string(f.Kind)))
	}
	if len(f.Op)+len(f.Stack)+len(f.Stderr)+len(f.Cause) > 4*maxText {
		return nil, errors.New("an error that is too long")
	}
	e := &plugin.Error{Kind: f.Kind, Op: f.Op, ExitCode: f.ExitCode, Stack: f.Stack, Stderr: f.Stderr}
	if f.Cause != "" {
		e.Err = errors.New(f.Cause)
	}
	return e, nil
}

// clip cuts a text that may be long.
func clip(s string) string { return s[:min(len(s), maxText)] }
