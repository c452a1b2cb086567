package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// running waits until the worker's guest runs, and returns its process.
func running(t *testing.T, w abi.Worker, parameter string, limit time.Duration) (*child, <-chan abi.Result) {
	t.Helper()
	ctx := t.Context()
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		t.Cleanup(cancel)
	}
	started := make(chan struct{}, 1)
	h := newRecorder()
	h.heard = func(string) {
		select {
		case started <- struct{}{}:
		default:
		}
	}
	ended := make(chan abi.Result, 1)
	go func() { ended <- w.Execute(ctx, item(h, parameter)) }()
	select {
	case <-started:
	case r := <-ended:
		t.Fatalf("it ended with %+v", r)
	}
	return w.(*worker).process, ended
}

func TestDied(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{}, Options{})
	x := executorOf(t, moduleOf(t, w, "c/guest"), plugin.Settings{Type: wasm.TypeSimple})
	one := worked(t, x)
	c, ended := running(t, one, "spin-log", 0)
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if r := <-ended; r.Outcome != abi.OutcomeWorker || !strings.Contains(r.Message, "the worker process ended (signal: killed)") {
		t.Errorf("%+v", r)
	}
	// The same worker goes on, in another process.
	if r := one.Execute(t.Context(), item(newRecorder(), "ok")); r.Outcome != abi.OutcomeOK {
		t.Errorf("%+v", r)
	}
	if s := w.Stats(); s.Killed != 0 || s.Running != 2 || s.Ended[CauseKilled] != 1 || len(s.Ended) != 1 { // one has tried the module
		t.Errorf("%+v", s)
	}
}

func TestIdle(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{MemoryBudget: 1 << 30}, Options{idle: 20 * time.Millisecond})
	x := executorOf(t, moduleOf(t, w, "c/guest"), plugin.Settings{Type: wasm.TypeSimple})
	for range 2 {
		one, err := x.NewWorker(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if r := one.Execute(t.Context(), item(newRecorder(), "ok")); r.Outcome != abi.OutcomeOK {
			t.Fatalf("%+v", r)
		}
		if m := w.o.Runtime.Memory(); m.Guests < baseMemory {
			t.Errorf("the process is not accounted for: %+v", m)
		}
		c := one.(*worker).process
		if err := one.Close(); err != nil {
			t.Fatal(err)
		}
		<-c.dead
	}
	if s := w.Stats(); s.Running != 0 || s.Killed != 0 || s.Started != 3 { // one has tried the module
		t.Errorf("%+v", s)
	}
	if m := w.o.Runtime.Memory(); m.Guests != 0 {
		t.Errorf("an idle process was not given back: %+v", m)
	}
}

func TestMemory(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{MemoryBudget: 60 << 20}, Options{})
	m := moduleOf(t, w, "c/guest")
	x := executorOf(t, m, plugin.Settings{Type: wasm.TypeSimple, JobName: "a"})
	one := worked(t, x)
	r := one.Execute(t.Context(), item(newRecorder(), "grow:10")) // pages
	if r.Outcome != abi.OutcomeOK {
		t.Errorf("%+v", r)
	}
	before := w.o.Runtime.Memory()
	if before.Guests < baseMemory+10<<16 {
		t.Errorf("%+v after a guest has grown by 10 pages", before)
	}
	// Of 60 MiB its process takes 24.
	one.Execute(t.Context(), item(newRecorder(), "grow:1000"))
	if after := w.o.Runtime.Memory(); after.Guests > 60<<20 || after.Refused == 0 {
		t.Errorf("%+v after a guest wanted 1000 pages", after)
	}
	// Whoever has to wait gets the error of its context.
	rest, err := w.o.Runtime.Admit(t.Context(), "b", 60<<20-w.o.Runtime.Memory().Guests)
	if err != nil {
		t.Fatal(err)
	}
	defer rest.Close()
	other := executorOf(t, m, plugin.Settings{Type: wasm.TypeSimple, JobName: "c"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := other.NewWorker(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("found %v, expected that it waits for memory", err)
	}
	tiny := workers(t, "good", plugin.Options{MemoryBudget: 16 << 20}, Options{})
	if _, err := moduleOf(t, tiny, "c/guest").Executor(t.Context(), plugin.Settings{Type: wasm.TypeSimple}, ""); err == nil || !strings.Contains(err.Error(), "its worker process included") {
		t.Errorf("found %v, expected that the budget is too small", err)
	}
}

// Who waits for memory holds none, or workers of one job would wait for each other.
func TestWaitingHoldsNothing(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{MemoryBudget: 100 << 20}, Options{})
	x := executorOf(t, moduleOf(t, w, "c/guest"), plugin.Settings{Type: wasm.TypeSimple, JobName: "a"})
	x.(*executor).expected.Store(30 << 20) // two of them and a process are more than a job's 75 MiB
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	other, err := w.o.Runtime.Admit(ctx, "b", 60<<20)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	for range 3 {
		go func() {
			one, err := x.NewWorker(ctx)
			if err == nil {
				err = one.Close()
			}
			ended <- err
		}()
	}
	for w.o.Runtime.Memory().Waiting == 0 { // somebody does, soon
		runtime.Gosched()
	}
	other.Close()
	for range 3 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// An idle process ends when somebody waits for its memory.
func TestIdleGivesWay(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{MemoryBudget: 40 << 20}, Options{idle: time.Hour})
	m := moduleOf(t, w, "c/guest")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, job := range []string{"a", "b", "a"} {
		one, err := executorOf(t, m, plugin.Settings{Type: wasm.TypeSimple, JobName: job}).NewWorker(ctx)
		if err != nil {
			t.Fatalf("job %s: %v", job, err)
		}
		if r := one.Execute(ctx, item(newRecorder(), "ok")); r.Outcome != abi.OutcomeOK {
			t.Errorf("%+v", r)
		}
		if err := one.Close(); err != nil {
			t.Error(err)
		}
		if s := w.Stats(); s.Running != 1 {
			t.Errorf("job %s: %+v, expected that its process alone is there", job, s)
		}
	}
}

// A process starts with its first worker: an item's time is its own.
func TestStart(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{}, Options{})
	x := executorOf(t, moduleOf(t, w, "c/guest"), plugin.Settings{Type: wasm.TypeSimple})
	one := worked(t, x)
	if s := w.Stats(); s.Running != 2 { // one has tried the module
		t.Errorf("%+v before the first item, expected a process", s)
	}
	if r := one.Execute(t.Context(), item(newRecorder(), "ok")); r.Outcome != abi.OutcomeOK {
		t.Errorf("%+v", r)
	}
}

// A program that cannot be started is not the module's fault.
func TestNoProgram(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{}, Options{Command: func(string) *exec.Cmd { return exec.Command("/nonexistent") }})
	_, err := moduleOf(t, w, "c/guest").Executor(t.Context(), plugin.Settings{Type: wasm.TypeSimple}, "")
	if load := (*plugin.LoadError)(nil); err == nil || errors.As(err, &load) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("found %v, expected an error of the host's", err)
	}
}

func TestReleased(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{}, Options{})
	x, err := moduleOf(t, w, "c/guest").Executor(t.Context(), plugin.Settings{Type: wasm.TypeSimple}, "")
	if err != nil {
		t.Fatal(err)
	}
	one := worked(t, x)
	one.Execute(t.Context(), item(newRecorder(), "ok"))
	c := one.(*worker).process
	x.Release()
	if r := one.Execute(t.Context(), item(newRecorder(), "ok")); r.Outcome != abi.OutcomeOK {
		t.Errorf("a worker outlives the executor's own use: %+v", r)
	}
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	<-c.dead
	if x.Retain() {
		t.Error("a released executor was retained")
	}
	if _, err := x.NewWorker(t.Context()); !errors.Is(err, errReleased) {
		t.Errorf("found %v, expected %v", err, errReleased)
	}
	if r := one.Execute(t.Context(), item(newRecorder(), "ok")); r.Outcome != abi.OutcomeError {
		t.Errorf("a closed worker: %+v", r)
	}
}

// TestTrial has what a module does on trial happen in a process, and told in the
// words of one that is tried here.
func TestTrial(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{}, Options{})
	for _, name := range []string{"wat/init_trap", "wat/init_exit", "wat/start_trap", "wat/noop"} {
		m := moduleOf(t, w, name)
		_, here := w.o.Runtime.Load(t.Context(), "some/guest.wasm", wasmOf(t, name), time.Time{})
		there := m.Try(t.Context())
		if fmt.Sprint(here) != fmt.Sprint(there) {
			t.Errorf("%s: in this process\n%v\nin another\n%v", name, here, there)
		}
	}
	before := w.Stats().Started
	m := moduleOf(t, w, "c/guest")
	for range 3 { // tried once, not run
		executorOf(t, m, plugin.Settings{Type: wasm.TypeSimple})
	}
	if n := w.Stats().Started - before; n > 2 { // it may have to be compiled
		t.Errorf("%d processes for one trial", n)
	}
}

// TestWithoutCompiler has the worker process compile the module itself.
func TestWithoutCompiler(t *testing.T) {
	t.Parallel()
	rt, err := plugin.NewRuntime(t.Context(), plugin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := New(Options{Runtime: rt, Command: command("good")})
	defer func() {
		w.Close()
		if err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	m, err := rt.Open("guest.wasm", wasmOf(t, "c/guest"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	x, err := w.Module(m).Executor(t.Context(), plugin.Settings{Type: wasm.TypeSimple}, "")
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	one, err := x.NewWorker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	if r := one.Execute(t.Context(), item(newRecorder(), "ok")); r.Outcome != abi.OutcomeOK {
		t.Errorf("%+v", r)
	}
}

// host is a host that says which process its guest runs in, and runs it for ever.
func host() error {
	file, err := os.ReadFile(filepath.Join("..", "plugin", "testdata", "c", "guest.wasm"))
	if err != nil {
		return err
	}
	ctx := context.Background()
	rt, err := plugin.NewRuntime(ctx, plugin.Options{})
	if err != nil {
		return err
	}
	m, err := rt.Open("guest.wasm", file)
	if err != nil {
		return err
	}
	x, err := New(Options{Runtime: rt, Command: command("good")}).Module(m).Executor(ctx, plugin.Settings{Type: wasm.TypeSimple}, "")
	if err != nil {
		return err
	}
	w, err := x.NewWorker(ctx)
	if err != nil {
		return err
	}
	h := newRecorder()
	told := false
	h.heard = func(string) {
		if pid := w.(*worker).process.pid; !told {
			told = true
			fmt.Println(pid)
		}
	}
	return fmt.Errorf("it ended with %+v", w.Execute(ctx, item(h, "spin-log")))
}

// strangers are processes that do not keep to the protocol, each as soon as it has an
// invocation to run.
func strangers() map[string]func() error {
	// first takes modules on trial, an executor, and its first invocation.
	first := func() (*reader, *writer, *run, error) {
		in, out := fromHost(os.Stdin), newWriter(os.Stdout)
		var s start
		if err := in.expect(kindStart, &s); err != nil {
			return nil, nil, nil, err
		}
		if err := out.send(kindReady, ready{}); err != nil {
			return nil, nil, nil, err
		}
		for {
			var o open
			if err := in.expect(kindOpen, &o); err != nil {
				return nil, nil, nil, err
			}
			if _, _, err := in.next(); err != nil {
				return nil, nil, nil, err
			}
			if err := out.send(kindOpened, opened{Executor: o.Executor}); err != nil {
				return nil, nil, nil, err
			}
			if !o.Trial {
				q := &run{}
				return in, out, q, in.expect(kindRun, q)
			}
		}
	}
	// tells sends what is on the list, and waits for the end.
	tells := func(list ...any) func() error {
		return func() error {
			in, out, q, err := first()
			if err != nil {
				return err
			}
			for _, m := range list {
				switch m := m.(type) {
				case string:
					err = out.sendBytes(kindCall, []byte(m))
				case kind:
					err = out.sendBytes(m, []byte("{}"))
				case opened:
					err = out.send(kindOpened, m)
				case call:
					m.Run += q.Run
					err = out.send(kindCall, m)
				case result:
					m.Run += q.Run
					err = out.send(kindResult, m)
				}
				if err != nil {
					return err
				}
			}
			for {
				if _, _, err := in.next(); err != nil {
					return nil
				}
			}
		}
	}
	wait := call{Name: callOutside, Text: "job_v1_io.wait", Numbers: []int64{-1}}
	return map[string]func() error{
		"mute": func() error { // it is never ready
			_, err := io.Copy(io.Discard, os.Stdin)
			return err
		},
		"deaf":            tells(),
		"waits, and errs": tells(wait, "nonsense"),
		"waits, and ends": func() error {
			_, out, q, err := first()
			if err != nil {
				return err
			}
			wait.Run = q.Run
			return out.send(kindCall, wait)
		},
		"a strange kind":         tells(kind(99)),
		"a kind of the host's":   tells(kindRun),
		"no CBOR":                tells("nonsense"),
		"more than a body":       tells("\x80\x80"),
		"too few fields":         tells("\x82\x01\x61a"),
		"too many fields":        tells("\x8e" + strings.Repeat("\x01", 14)),
		"a list without an end":  tells("\x9f"),
		"nested lists":           tells(strings.Repeat("\x81", 100)),
		"another run":            tells(call{Run: 7, Name: callProgress}),
		"an executor":            tells(opened{Executor: 1 << 40}),
		"an unknown call":        tells(call{Name: "sudo"}),
		"negative progress":      tells(call{Name: callProgress, A: -1}),
		"a metric's name":        tells(call{Name: callMetric, Text: "Rows\n"}),
		"a metric's kind":        tells(call{Name: callMetric, Text: "rows", Kind: 9}),
		"a long offset":          tells(call{Name: callCommit, Bytes: make([]byte, abi.MaxOffset+1)}),
		"a stage":                tells(call{Name: callStage}),
		"a pause":                tells(call{Name: callPause}),
		"a long line":            tells(call{Name: callLog, Text: strings.Repeat("x", 4*abi.MaxLogMessage)}),
		"odd attributes":         tells(call{Name: callLog, Attrs: []string{"a"}}),
		"much memory":            tells(call{Name: callMemory, A: 1 << 40}),
		"much stack":             tells(call{Name: callMemory, A: 1 << 40, B: 1 << 40}),
		"less than no stack":     tells(call{Name: callMemory, A: 1, B: -1}),
		"more stack than memory": tells(call{Name: callMemory, A: 1, B: 2}),
		"an outcome":             tells(result{Outcome: "FINE"}),
		"a long result":          tells(result{Outcome: abi.OutcomeFail, Message: strings.Repeat("x", maxText+1)}),
		"a long end":             tells(result{Outcome: abi.OutcomeOK, Staged: true, Offset: make([]byte, abi.MaxOffset+1)}),
		"an offset of a failure": tells(result{Outcome: abi.OutcomeFail, Staged: true}),
		"a kind of error":        tells(result{Outcome: abi.OutcomeTrap, Error: &failure{Kind: "odd"}}),
		// The rest are calls of capabilities.
		"no such function":          tells(call{Name: callOutside, Text: "job_v1_dir.chmod"}),
		"a function of job_v1":      tells(call{Name: callOutside, Text: "job_v1.log", Texts: [][]byte{{}, {}}}),
		"too few numbers":           tells(call{Name: callOutside, Text: "job_v1_dir.truncate", Numbers: []int64{1}}),
		"too many numbers":          tells(call{Name: callOutside, Text: "job_v1_io.close", Numbers: []int64{1, 2}}),
		"too few texts":             tells(call{Name: callOutside, Text: "job_v1_dir.rename", Numbers: []int64{0}, Texts: [][]byte{[]byte("a")}}),
		"too many texts":            tells(call{Name: callOutside, Text: "job_v1_io.wait", Numbers: []int64{0}, Texts: [][]byte{{}}}),
		"a limit without buffer":    tells(call{Name: callOutside, Text: "job_v1_io.wait", Numbers: []int64{0}, Limit: 1}),
		"a huge limit":              tells(call{Name: callOutside, Text: "job_v1_io.read", Numbers: []int64{1}, Limit: maxPiece + 1}),
		"a negative limit":          tells(call{Name: callOutside, Text: "job_v1_io.read", Numbers: []int64{1}, Limit: -1}),
		"a long text":               tells(call{Name: callOutside, Text: "job_v1_io.write", Numbers: []int64{1}, Texts: [][]byte{make([]byte, maxPiece+1)}}),
		"a number beyond its type":  tells(call{Name: callOutside, Text: "job_v1_io.close", Numbers: []int64{1<<32 + 1}}),
		"yields without a stream":   tells(result{Outcome: abi.OutcomeOK, Yielded: true}),
		"fails with batches":        tells(result{Outcome: abi.OutcomeRetry, Batches: 1}),
		"a time, and OK":            tells(result{Outcome: abi.OutcomeOK, RetryAt: 1}),
		"again at no time":          tells(result{Outcome: abi.OutcomeRetryAt}),
		"again at a time too late":  tells(result{Outcome: abi.OutcomeRetryAt, RetryAt: 1 << 60}),
		"a paused key, and a RETRY": tells(result{Outcome: abi.OutcomeRetry, PauseKey: true}),
		"an end of a process":       tells(result{Outcome: abi.OutcomeWorker}),
		"not begun, and failed":     tells(result{Outcome: abi.OutcomeFail, NotBegun: true}),
		"a call after its result":   tells(result{Outcome: "FINE"}, call{Name: callOutside, Text: "job_v1_io.wait", Numbers: []int64{-1}}),
		"a huge frame": func() error {
			in, out, _, err := first()
			if err != nil || in == nil {
				return err
			}
			return out.sendBytes(kindCall, make([]byte, maxFromProcess+1))
		},
	}
}

func TestStrangers(t *testing.T) {
	t.Parallel()
	for name := range strangers() {
		if name == "deaf" || name == "mute" || strings.HasPrefix(name, "waits") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := workers(t, name, plugin.Options{}, Options{})
			x := executorOf(t, moduleOf(t, w, "c/guest"), plugin.Settings{Type: wasm.TypeSimple})
			h := newRecorder()
			inv := item(h, "ok")
			inv.Outside = outside(func(_ context.Context, c *abi.Call) int64 {
				t.Errorf("%s was called", c.Function.Name)
				return 0
			})
			r := worked(t, x).Execute(t.Context(), inv)
			if r.Outcome != abi.OutcomeWorker || !strings.Contains(r.Message, "was killed because it did not keep to the protocol: ") {
				t.Errorf("%+v", r)
			}
			if len(h.Lines)+len(h.Metrics)+len(h.Commits)+len(h.Stages) != 0 || len(h.Done) > 1 {
				t.Errorf("%+v", h)
			}
			if s := w.Stats(); s.Killed != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// outside is an abi.Outside.
type outside func(context.Context, *abi.Call) int64

func (f outside) Call(ctx context.Context, c *abi.Call) int64 { return f(ctx, c) }

// TestEndsWhileItWaits has a process end while the host waits for the world outside on its
// behalf, or for the host itself: that ends with the process, not with the item's time.
func TestEndsWhileItWaits(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"waits, and errs", "waits, and ends"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := executorOf(t, moduleOf(t, workers(t, name, plugin.Options{}, Options{}), "c/guest"), plugin.Settings{Type: wasm.TypeSimple})
			inv := item(newRecorder(), "ok")
			inv.Outside = outside(func(ctx context.Context, c *abi.Call) int64 {
				<-ctx.Done()
				return int64(abi.ErrCancelled)
			})
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			r := worked(t, x).Execute(ctx, inv)
			if r.Outcome != abi.OutcomeWorker || ctx.Err() != nil {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestFrameLimit refuses a frame by its length, before its body comes.
func TestFrameLimit(t *testing.T) {
	t.Parallel()
	in := fromProcess(strings.NewReader("\x01\x00\x10\x00\x09")) // 1 MiB and a byte
	if _, _, err := in.next(); err == nil || !strings.Contains(err.Error(), "a frame of 1048577 bytes, expected at most 1048576") {
		t.Errorf("found %v, expected that the frame is too long", err)
	}
}

func TestMetricNames(t *testing.T) {
	t.Parallel()
	x := &executor{}
	for n := range 2 * abi.MaxMetricNames {
		want := abi.OK
		if n >= abi.MaxMetricNames {
			want = abi.ErrQuota
		}
		if _, code := x.metrics.Use([]byte(fmt.Sprint("m", n))); code != want {
			t.Errorf("name %d: %d, expected %d", n, code, want)
		}
	}
	if _, code := x.metrics.Use([]byte("m0")); code != abi.OK {
		t.Errorf("a name that is in use: %d", code)
	}
}

// TestNoEffectAfterEnd asks the host for effects when the item is lost, or its time
// is up, which a process may not know or not care about.
func TestNoEffectAfterEnd(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{}, Options{})
	x := executorOf(t, moduleOf(t, w, "c/guest"), plugin.Settings{Type: wasm.TypeSimple})
	over, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		cancel abi.Cancel
	}{"lost": {t.Context(), abi.CancelLost}, "late": {over, abi.CancelNone}} {
		h := newRecorder()
		h.cancel = func(int) abi.Cancel { return c.cancel }
		v := &invocation{w: &worker{x: x.(*executor)}, inv: item(h, "")}
		for _, q := range []call{{Name: callProgress, A: 1}, {Name: callMetric, Text: "rows"}, {Name: callCommit, Bytes: []byte("1")}} {
			if code, err := v.answer(c.ctx, &q); err != nil || q.Name != callProgress && code.Value != int64(abi.ErrCancelled) {
				t.Errorf("%s: %s: %+v, %v", name, q.Name, code, err)
			}
		}
		if len(h.Done)+len(h.Metrics)+len(h.Commits) != 0 {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	h := newRecorder()
	v := &invocation{inv: item(h, ""), lines: newLineLimit()}
	for range 100_000 {
		if err := v.log(&call{Name: callLog, Text: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(h.Lines); n < abi.LogBurst || n > 6*abi.LogBurst {
		t.Errorf("%d lines passed", n)
	}
}

// TestWholeLog: all lines come out of the process; one that was not asked for lines gives none.
func TestWholeLog(t *testing.T) {
	t.Parallel()
	w := worked(t, executorOf(t, moduleOf(t, workers(t, "good", plugin.Options{}, Options{}), "c/guest"), plugin.Settings{Type: wasm.TypeSimple}))
	i, lines := item(newRecorder(), "flood:20000"), 0
	i.WholeLog = &abi.WholeLog{Where: "all.log", Add: func(_ context.Context, _ int, msg string, _ []string) {
		if msg == "line" {
			lines++
		}
	}}
	began := time.Now()
	if result := w.Execute(t.Context(), i); result.Outcome != abi.OutcomeOK || lines != 20_000 {
		t.Errorf("%d lines, %+v", lines, result)
	}
	t.Logf("%s a line", time.Since(began)/20_000)

	v := &invocation{inv: item(newRecorder(), ""), lines: newLineLimit()}
	if err := v.wholeLog(t.Context(), &call{Lines: []line{{Text: "x"}}}); err == nil {
		t.Error("a line for a file that there is not is taken")
	}
	v.inv.WholeLog = i.WholeLog
	if err := v.wholeLog(t.Context(), &call{Lines: []line{{Text: strings.Repeat("x", 4*abi.MaxLogMessage)}}}); err == nil {
		t.Error("a line that no guest can have logged is taken")
	}
}

// TestWholeLog_ended: a guest whose time is up while its line waits for the disk ends.
func TestWholeLog_ended(t *testing.T) {
	t.Parallel()
	w := worked(t, executorOf(t, moduleOf(t, workers(t, "good", plugin.Options{}, Options{grace: time.Minute}), "c/guest"), plugin.Settings{Type: wasm.TypeSimple}))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	i := item(newRecorder(), "spin-log")
	i.WholeLog = &abi.WholeLog{Where: "all.log", Add: func(ctx context.Context, _ int, _ string, _ []string) { <-ctx.Done() }}
	if result := w.Execute(ctx, i); result.Outcome != abi.OutcomeTimeout {
		t.Errorf("%+v", result)
	}
}

// answering answers each call that a guest writes, and notes its size.
type answering struct {
	v     *invocationHere
	sizes []int
}

func (a *answering) Write(frame []byte) (int, error) {
	a.sizes = append(a.sizes, len(frame)-headSize)
	a.v.answers <- answer{}
	return len(frame), nil
}

// TestWholeLines: whatever lines are made of, what is sent of them at once is no more than a host takes.
func TestWholeLines(t *testing.T) {
	t.Parallel()
	const most = abi.MaxLogMessage
	for name, c := range map[string]struct {
		line
		lines int
	}{
		"long":            {line{Text: strings.Repeat("x", most), Attrs: []string{"k", strings.Repeat("x", most-2)}}, 100},
		"escaped":         {line{Text: strings.Repeat("<", most), Attrs: []string{"", strings.Repeat("<", most-1)}}, 100},
		"attributes":      {line{Attrs: []string{"k", strings.Repeat("<", most-2)}}, 100},
		"many attributes": {line{Attrs: make([]string, most)}, 100},
		"nothing":         {line{Level: -1 << 31}, 50_000},
	} {
		synctest.Test(t, func(t *testing.T) { // time stands still, so that none is sent because of its age
			v := &invocationHere{guest: &guest{s: &session{}}, answers: make(chan answer, 1)}
			out := &answering{v: v}
			v.guest.s.out = newWriter(out)
			w := &wholeLines{v: v, sent: time.Now()}
			for range c.lines {
				w.add(t.Context(), c.Level, c.Text, c.Attrs)
			}
			w.flush()
			if largest := slices.Max(out.sizes); largest > maxFromProcess || len(w.lines) != 0 {
				t.Errorf("%s: %d frames, one of %d bytes; %d lines wait", name, len(out.sizes), largest, len(w.lines))
			}
		})
	}
}

// FuzzFromProcess reads what a process may send.
func FuzzFromProcess(f *testing.F) {
	seed := func(k kind, body any) {
		b, err := theCodec().Marshal(body)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(k), b)
	}
	for _, k := range []kind{kindCall, kindTell} {
		seed(k, call{Run: 1, Name: callLog, Text: "x", Attrs: []string{"a", "b"}})
		seed(k, call{Run: 1, Name: callMetric, Text: "rows", A: 3})
		seed(k, call{Run: 1, Name: callCommit, Bytes: []byte("1")})
		seed(k, call{Run: 1, Name: callMemory, A: 65536})
	}
	seed(kindResult, result{Run: 1, Outcome: abi.OutcomeTrap, Error: &failure{Kind: plugin.KindTrap, Op: "x"}})
	seed(kindOpened, opened{Executor: 1})
	f.Fuzz(func(t *testing.T, k byte, body []byte) {
		h := newRecorder()
		x := &executor{needs: plugin.Needs{Type: wasm.TypeDataflow}}
		c := &child{runs: map[int64]*invocation{}, openings: map[int64]*opening{1: {id: 1, done: make(chan struct{})}}}
		v := &invocation{w: &worker{x: x}, c: c, id: 1, inv: item(h, ""), lines: newLineLimit(), inbox: make(chan message, 1), over: make(chan struct{})}
		c.runs[1] = v
		if err := c.take(fromProcess(nil), kind(k), body); err != nil || kind(k) == kindOpened {
			return
		}
		m := <-v.inbox
		if m.result != nil {
			if r, err := m.result.unpack(); err == nil && (len(r.Message) > maxText || len(r.Offset) > abi.MaxOffset) {
				t.Errorf("%+v", r)
			}
			return
		}
		if m.call.Name == callMemory {
			return // there is no budget
		}
		_, err := v.answer(t.Context(), m.call)
		if err != nil && len(h.Lines)+len(h.Done)+len(h.Metrics)+len(h.Commits)+len(h.Stages) != 0 {
			t.Errorf("it was refused (%v) and had an effect: %+v", err, h)
		}
		for _, m := range h.Metrics {
			if !abi.ValidMetric(m.Kind, m.Name) {
				t.Errorf("metric %q", m.Name)
			}
		}
	})
}

// nobody is an executor whose workers do nothing.
type nobody struct{ abi.Executor }

func (nobody) NewWorker(context.Context) (abi.Worker, error) { return nobodyWorker{}, nil }

type nobodyWorker struct{}

func (nobodyWorker) Execute(context.Context, *abi.Invocation) abi.Result {
	return abi.Result{Outcome: abi.OutcomeOK}
}
func (nobodyWorker) Listen(context.Context, string, *abi.Invocation) abi.Result {
	return abi.Result{Outcome: abi.OutcomeOK}
}
func (nobodyWorker) Close() error { return nil }

// sink takes what a session says.
type sink struct{ frames chan []byte }

func (s sink) Write(p []byte) (int, error) { s.frames <- p; return len(p), nil }

// FuzzFromHost reads what a host may send.
func FuzzFromHost(f *testing.F) {
	for k, body := range map[kind]any{kindRun: run{Run: 1, Executor: 1, Invocation: invoked{JobName: "a"}}, kindEnd: end{Run: 1, Timeout: true},
		kindAnswer: answer{Run: 1, Value: -8}, kindClose: closed{Guest: 1}, kindCancel: cancel{Run: 1, Value: abi.CancelStop}} {
		b, err := theCodec().Marshal(body)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(k), b)
	}
	f.Fuzz(func(t *testing.T, k byte, body []byte) {
		if kind(k) == kindOpen || kind(k) == kindDrop {
			return // they need a runtime
		}
		out := sink{make(chan []byte, 1)}
		s := newSession(fromHost(nil), newWriter(out))
		s.executors[1] = &lodger{Executor: nobody{}}
		if err := s.take(kind(k), body); err == nil && kind(k) == kindRun {
			frame := <-out.frames
			var r result
			if err := s.in.decode(frame[headSize:], &r); err != nil || r.Outcome != abi.OutcomeOK {
				t.Errorf("%q: %v", frame, err)
			}
			for _, g := range s.guests {
				if err := g.close(); err != nil {
					t.Error(err)
				}
			}
		}
	})
}
