package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
)

// heapLimit is the heap size above which a process's collector works harder, in bytes, besides its guests'
// native stacks. The guests' memories are outside the heap.
const heapLimit = baseData / 2

// heapStep is how much the guests' heap must grow before the limit is set again: setting it stops all guests.
const heapStep = 64 << 20

// atOnce is the least number of guests that Go's scheduler runs at once. It takes a processor from a computing
// guest only after 10 ms. With a thread for each guest, the kernel shares the processors, and lets a guest run
// at once that has slept.
const atOnce = 64

// The collector stops all guests, and a computing guest delays it: so it runs only when the heap has collect
// percent of garbage, computed as if there were at least ballast bytes of live data. The ballast is never
// touched, and takes no memory.
const (
	collect = 400
	ballast = 16 << 20
)

// Serve is the main function of a worker process. in and out are its standard input and output. It restricts
// the whole process, which must end when Serve returns, with all running guests. The error is nil if the host
// has ended it.
func Serve(in io.Reader, out io.Writer) error { return serve(in, out, nil) }

// serve calls restricted, unless it is nil, when the sandbox is active, and reports its result to the host.
func serve(in io.Reader, out io.Writer, restricted func() string) error {
	s := newSession(fromHost(in), newWriter(out))
	var q start
	if err := s.in.expect(kindStart, &q); err != nil {
		return fmt.Errorf("standard input has nothing to run, as a host would write it: %w", err)
	}
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), atOnce))
	debug.SetGCPercent(collect)
	s.addHeap(0)
	light := make([]byte, ballast)
	defer runtime.KeepAlive(&light)
	r := s.start(&q, restricted)
	if err := s.out.send(kindReady, r); err != nil || r.Failure != "" {
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

// session is the state of a worker process. Its goroutines end with the process.
type session struct {
	in  *reader
	out *writer
	rt  *plugin.Runtime

	mu        sync.Mutex
	executors map[int64]*lodger
	guests    map[int64]*guest
	runs      map[int64]*invocationHere
	freed     int // bytes of dropped modules since the last garbage collection
	heap      heap
	limit     int64 // of the heap

	sweep  sync.Mutex // held while the collector is waited for
	stacks int64      // bytes of native stacks since it has run; guarded by sweep
}

// lodger is a module with a job's settings.
type lodger struct {
	abi.Executor
	module *plugin.Module
	size   int

	mu    sync.Mutex
	known map[metricKey]bool // metrics that the host has taken
}

type metricKey struct {
	kind int
	name string
}

func newSession(in *reader, out *writer) *session {
	return &session{in: in, out: out, executors: map[int64]*lodger{}, guests: map[int64]*guest{}, runs: map[int64]*invocationHere{}}
}

// start makes the runtime and closes the sandbox.
func (s *session) start(q *start, restricted func() string) ready {
	o := plugin.Options{StackGrown: s.stackGrown}
	if !q.Compile {
		o.CacheDir, o.Stored = q.Dir, true
	}
	var err error
	if s.rt, err = plugin.NewRuntime(context.Background(), o); err != nil {
		return ready{Failure: err.Error()}
	}
	r, err := restrict(q)
	if err != nil {
		return ready{Failure: err.Error()}
	}
	if restricted != nil {
		r.Problem = restricted()
	}
	return r
}

// addHeap changes the guests' heap allowance. Above it the collector works harder, before the kernel refuses
// memory, which ends the process.
func (s *session) addHeap(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heap.add(bytes)
	if limit := heapLimit + s.heap.most; limit >= s.limit {
		s.limit = limit + heapStep
		debug.SetMemoryLimit(s.limit)
	}
}

// stackGarbage is how many bytes of native stacks may become garbage before the collector is run for them.
// Guests that recurse are much faster than the collector: if they did not wait for it, dead stacks would use up
// the process's limit.
const stackGarbage = 128 << 20

// stackLeft is how many such bytes may remain when the last guest is gone.
const stackLeft = 16 << 20

// stackGrown makes a guest wait for the collector if there is much garbage.
func (s *session) stackGrown(bytes int64) {
	s.sweep.Lock()
	defer s.sweep.Unlock()
	if s.stacks += bytes; s.stacks >= stackGarbage {
		runtime.GC()
		s.stacks = 0
	}
}

// collectLeft gives the memory of native stacks back to the system when the last guest is gone.
func (s *session) collectLeft() {
	s.mu.Lock()
	used := s.heap.now > 0
	s.mu.Unlock()
	if used {
		return
	}
	s.sweep.Lock()
	defer s.sweep.Unlock()
	if s.stacks >= stackLeft {
		debug.FreeOSMemory()
		s.stacks = 0
	}
}

// take handles a frame from the host. An error ends the process.
func (s *session) take(k kind, body []byte) error {
	switch k {
	case kindOpen:
		return decoded(s.in, body, s.open)
	case kindRun:
		return decoded(s.in, body, s.run)
	case kindEnd:
		return decoded(s.in, body, s.end)
	case kindAnswer:
		return decoded(s.in, body, s.answer)
	case kindCancel:
		return decoded(s.in, body, s.cancel)
	case kindClose:
		return decoded(s.in, body, s.close)
	case kindDrop:
		return decoded(s.in, body, s.drop)
	}
	return fmt.Errorf("a frame of kind %d", k)
}

func decoded[T any](in *reader, body []byte, act func(*T) error) error {
	q := new(T)
	if err := in.decode(body, q); err != nil {
		return err
	}
	return act(q)
}

// open opens an executor in a goroutine of its own, since it takes a while and guests run.
func (s *session) open(q *open) error {
	var wasm []byte
	if q.Bytes {
		k, body, err := s.in.next()
		if err == nil && k != kindModule {
			err = fmt.Errorf("a frame of kind %d, expected the module", k)
		}
		if err != nil {
			return err
		}
		wasm = bytes.Clone(body)
	}
	s.mu.Lock()
	known := s.executors[q.Executor] != nil
	s.mu.Unlock()
	if known {
		return fmt.Errorf("executor %d is open already", q.Executor)
	}
	q.Module.Wasm = wasm
	m, err := s.rt.Unpack(q.Module)
	if err != nil {
		return err
	}
	go func() {
		r := s.load(q, m, len(wasm))
		r.Executor = q.Executor
		_ = s.out.send(kindOpened, r) // without the host, this process ends
	}()
	return nil
}

// load tries the module, or makes its executor.
func (s *session) load(q *open, m *plugin.Module, size int) opened {
	var err error
	var x abi.Executor
	if q.Trial {
		err = m.Try(context.Background(), q.Pages)
	} else {
		x, err = m.Executor(q.Settings)
	}
	if x != nil && err == nil {
		s.mu.Lock()
		s.executors[q.Executor] = &lodger{Executor: x, module: m, size: size, known: map[metricKey]bool{}}
		s.mu.Unlock()
		return opened{}
	}
	s.gone(m, size)
	load, isLoad := errors.AsType[*plugin.LoadError](err)
	if isLoad && load.Err != nil {
		err = load.Err
	}
	switch {
	case err == nil:
		return opened{}
	case isLoad && errors.Is(err, plugin.ErrNotStored):
		return opened{NotStored: true}
	case isLoad:
		return opened{Problem: clip(err.Error())}
	}
	return opened{Failure: clip(err.Error())}
}

// gone closes a module. Its code is returned to the system after a garbage collection.
func (s *session) gone(m *plugin.Module, size int) {
	m.Close()
	s.mu.Lock()
	s.freed += size
	much := s.freed >= freedBytes
	if much {
		s.freed = 0
	}
	s.mu.Unlock()
	if much {
		debug.FreeOSMemory()
	}
}

// freedBytes of modules are about four times as much code.
const freedBytes = 16 << 20

func (s *session) drop(q *dropped) error {
	s.mu.Lock()
	x := s.executors[q.Executor]
	delete(s.executors, q.Executor)
	s.mu.Unlock()
	if x == nil {
		return fmt.Errorf("the end of executor %d, which is not open", q.Executor)
	}
	x.Release()
	go s.gone(x.module, x.size) // the collector takes a while
	return nil
}

func (s *session) end(q *end) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// It may have ended at the same time.
	if v := s.runs[q.Run]; v != nil {
		v.life.end(q.Timeout)
	}
	return nil
}

func (s *session) answer(q *answer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.runs[q.Run]
	if v == nil || !v.waiting {
		return fmt.Errorf("an answer for run %d, which has not asked", q.Run)
	}
	v.waiting = false
	v.answers <- *q
	return nil
}

func (s *session) cancel(q *cancel) error {
	s.mu.Lock()
	v := s.runs[q.Run]
	s.mu.Unlock()
	if v != nil { // otherwise it has ended at the same time
		v.learn(q.Value)
	}
	return nil
}

func (s *session) close(q *closed) error {
	s.mu.Lock()
	g := s.guests[q.Guest]
	delete(s.guests, q.Guest)
	s.mu.Unlock()
	if g == nil {
		return nil // it has run nothing
	}
	return g.close()
}

// run puts an invocation in the queue of its guest.
func (s *session) run(q *run) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.guests[q.Guest]
	if g == nil {
		x := s.executors[q.Executor]
		if x == nil {
			return fmt.Errorf("a run of executor %d, which is not open", q.Executor)
		}
		g = newGuest(s, x)
		s.guests[q.Guest] = g
		go g.loop()
	}
	if s.runs[q.Run] != nil {
		return fmt.Errorf("run %d once more", q.Run)
	}
	v := newInvocationHere(g, q)
	s.runs[q.Run] = v
	return g.add(v)
}

// finish sends a result. The run is removed before the host learns of it.
func (s *session) finish(v *invocationHere, r abi.Result) {
	v.life.release()
	s.mu.Lock()
	delete(s.runs, v.id)
	s.mu.Unlock()
	// If the host is gone, so is this process, soon.
	_ = s.out.send(kindResult, packResult(v.id, r))
}

// clip cuts a text that may be long.
func clip(s string) string { return s[:min(len(s), maxText)] }
