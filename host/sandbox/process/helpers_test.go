package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
)

// The test binary is also the programs that it starts.
const (
	workWord    = "work-for-tests"
	compileWord = "compile-for-tests"
)

// programs are worker processes, by name, or something else.
func programs() map[string]func() error {
	list := map[string]func() error{
		"good":   func() error { return Serve(os.Stdin, os.Stdout) },
		"probe":  func() error { return serve(os.Stdin, os.Stdout, probe) },
		"hungry": hungry,
		"trap":   endsInTrial,
		"host":   host,
	}
	for name, f := range strangers() {
		list[name] = f
	}
	return list
}

func TestMain(m *testing.M) {
	var err error
	switch {
	case len(os.Args) >= 3 && os.Args[1] == workWord:
		err = programs()[os.Args[2]]()
	case len(os.Args) == 2 && os.Args[1] == compileWord:
		err = plugin.ServeCompile(os.Stdin, os.Stdout)
	default:
		goleak.VerifyTestMain(m)
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

func command(name string) func(string) *exec.Cmd {
	return func(job string) *exec.Cmd { return exec.Command(self(), workWord, name, job) }
}

func compiler() *exec.Cmd { return exec.Command(self(), compileWord) }

// workers makes a runtime and its workers, both closed at the end.
func workers(t testing.TB, name string, p plugin.Options, o Options) *Workers {
	t.Helper()
	p.Compiler = compiler
	if p.CacheDir == "" {
		p.CacheDir = filepath.Join(t.TempDir(), "cache")
	}
	rt, err := plugin.NewRuntime(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	o.Runtime = rt
	if o.Command == nil {
		o.Command = command(name)
	}
	w := New(o)
	t.Cleanup(func() {
		w.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := rt.Close(ctx); err != nil {
			t.Error(err)
		}
		if m := rt.Memory(); m.Guests != 0 || m.Code != 0 {
			t.Errorf("memory was not given back: %+v", m)
		}
	})
	return w
}

// guest reads a module of the plugin package's tests.
func wasmOf(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "plugin", "testdata", name+".wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func moduleOf(t testing.TB, w *Workers, name string) *Module {
	t.Helper()
	m, err := w.o.Runtime.Open("some/guest.wasm", wasmOf(t, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return w.Module(m)
}

func executorOf(t testing.TB, m *Module, s plugin.Settings) abi.Executor {
	t.Helper()
	x, err := m.Executor(t.Context(), s, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Release)
	return x
}

func worked(t testing.TB, x abi.Executor) abi.Worker {
	t.Helper()
	w, err := x.NewWorker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

type measured struct {
	Kind  int
	Name  string
	Value int64
}

type logged struct {
	Level int
	Msg   string
	KV    []string
}

// recorder is an abi.Host that remembers everything.
type recorder struct {
	mu      sync.Mutex
	Lines   []logged
	Done    [][2]int64
	Metrics []measured
	Commits []string
	Stages  []string
	Pauses  int

	code   abi.Code // of metrics, commits and stages
	level  int
	cancel func(n int) abi.Cancel // n counts from 1
	asked  int
	heard  func(msg string)
}

func newRecorder() *recorder { return &recorder{level: abi.LevelDebug} }

func (r *recorder) Log(level int, msg string, kv []string) {
	r.mu.Lock()
	r.Lines = append(r.Lines, logged{level, msg, kv})
	r.mu.Unlock()
	if r.heard != nil {
		r.heard(msg)
	}
}
func (r *recorder) LogEnabled(level int) bool { return level >= r.level }
func (r *recorder) Progress(done, total int64) {
	r.Done = append(r.Done, [2]int64{done, total})
}
func (r *recorder) Metric(kind int, name string, value int64) abi.Code {
	r.Metrics = append(r.Metrics, measured{kind, name, value})
	return r.code
}
func (r *recorder) CommitOffset(_ context.Context, o []byte) abi.Code {
	r.Commits = append(r.Commits, string(o))
	return r.code
}
func (r *recorder) StageOffset(_ context.Context, o []byte) abi.Code {
	r.Stages = append(r.Stages, string(o))
	return r.code
}
func (r *recorder) Pause(context.Context) { r.Pauses++ }
func (r *recorder) Cancelled() abi.Cancel {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.cancel == nil {
		return abi.CancelNone
	}
	return r.cancel(r.asked)
}

// item is an invocation of item 2 of 3 with a job parameter.
func item(h abi.Host, parameter string) *abi.Invocation {
	return &abi.Invocation{Host: h, Context: abi.ShardingContext{
		JobName: "probe", TaskID: "probe@-@0,1,2@-@READY@-@10.0.0.7@-@4711", ShardingTotalCount: 3, ShardingItem: 2,
		JobParameter: parameter, Attempt: 1, Fence: 77, RunID: "probe/1/2", Source: abi.SourceSchedule, FireTime: time.UnixMilli(1_700_000_000_123),
	}}
}
