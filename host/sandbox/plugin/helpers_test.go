package plugin

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
	"github.com/wasmjob/wasmjob/test/hostile"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == compileWord {
		if err := compilers[os.Args[2]](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		// Even if a test has failed to release something, this ends.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if r, err := goRuntime(); err == nil && code == 0 {
			if err := r.Close(ctx); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}
		os.Exit(code)
	}))
}

// goRuntime runs the Go guests of all tests, for compiling them takes long.
var goRuntime = sync.OnceValues(func() (*Runtime, error) { return NewRuntime(context.Background(), Options{interpreter: raceEnabled}) })

// loadGo loads a Go guest; its compiled code stays for the next test.
func loadGo(t testing.TB, name string) *Module {
	t.Helper()
	r, err := goRuntime()
	if err != nil {
		t.Fatal(err)
	}
	return load(t, r, goGuest(t, name))
}

// guest reads a committed guest by its path below testdata, without ".wasm".
func guest(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// newRuntime makes a runtime that is closed, and must be closeable, at the end.
func newRuntime(t testing.TB, o Options) *Runtime {
	t.Helper()
	r, err := NewRuntime(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := r.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return r
}

// bothEngines runs a test on the compiler and on the interpreter.
func bothEngines(t *testing.T, f func(t *testing.T, r *Runtime)) {
	t.Helper()
	for _, interpreter := range []bool{false, true} {
		name := engineCompiler
		if interpreter {
			name = engineInterpreter
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRuntime(t, Options{interpreter: interpreter})
			if r.engine != name {
				if os.Getenv("CI") != "" {
					t.Fatalf("found the %s, expected the %s", r.engine, name)
				}
				t.Skipf("the %s does not work here", name)
			}
			f(t, r)
		})
	}
}

func load(t testing.TB, r *Runtime, wasm []byte) *Module {
	t.Helper()
	m, err := r.Load(context.Background(), "some/guest.wasm", wasm, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Modules without a compiler; see package hostile.
var (
	nasty         = hostile.Job
	body          = hostile.Body
	appendSection = hostile.AppendSection
)

func times(n int, b ...byte) []byte { return bytes.Repeat(b, n) }

// metered is what the runtime gets of a module, which need not be a job.
func metered(t testing.TB, file []byte) []byte {
	t.Helper()
	m, err := wasm.Read(file).Meter()
	if err != nil {
		t.Fatal(err)
	}
	return m.Bytes
}

func appendU32(b []byte, v uint32) []byte { return binary.AppendUvarint(b, uint64(v)) }

// worked makes a worker, of which there is room for one.
func worked(t testing.TB, x abi.Executor) abi.Worker {
	t.Helper()
	w, err := x.NewWorker(context.Background())
	if err != nil {
		t.Error(err)
		return &worker{gone: true}
	}
	return w
}

// newWorker configures a module and makes a worker, both dropped at the end.
func newWorker(t testing.TB, m *Module, s Settings) abi.Worker {
	t.Helper()
	x, err := m.Executor(s)
	if err != nil {
		t.Fatal(err)
	}
	w := worked(t, x)
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		x.Release()
	})
	return w
}

type logged struct {
	level int
	msg   string
	kv    []string
}

type measured struct {
	kind  int
	name  string
	value int64
}

// recorder is an abi.Host that remembers everything.
type recorder struct {
	mu         sync.Mutex
	lines      []logged
	progress   [][2]int64
	metrics    []measured
	commits    []string
	stages     []string
	commitCode abi.Code
	stageCode  abi.Code
	metricCode abi.Code
	cancel     func(r *recorder) abi.Cancel
	quiet      bool // counts lines only
	count      int
	minLevel   int
	pauses     int
}

func newRecorder() *recorder { return &recorder{minLevel: abi.LevelDebug} }

func (r *recorder) Log(level int, msg string, kv []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count++; !r.quiet {
		r.lines = append(r.lines, logged{level, msg, kv})
	}
}
func (r *recorder) LogEnabled(level int) bool { return level >= r.minLevel }
func (r *recorder) Progress(done, total int64) {
	r.progress = append(r.progress, [2]int64{done, total})
}
func (r *recorder) Metric(kind int, name string, value int64) abi.Code {
	r.metrics = append(r.metrics, measured{kind, name, value})
	return r.metricCode
}
func (r *recorder) CommitOffset(_ context.Context, o []byte) abi.Code {
	if r.commitCode == abi.OK {
		r.commits = append(r.commits, string(o))
	}
	return r.commitCode
}
func (r *recorder) StageOffset(_ context.Context, o []byte) abi.Code {
	if r.stageCode == abi.OK {
		r.stages = append(r.stages, string(o))
	}
	return r.stageCode
}
func (r *recorder) Pause(context.Context) { r.pauses++ }
func (r *recorder) Cancelled() abi.Cancel {
	if r.cancel == nil {
		return abi.CancelNone
	}
	return r.cancel(r)
}

// texts are the messages logged so far.
func (r *recorder) texts() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []string
	for _, l := range r.lines {
		list = append(list, l.msg)
	}
	return list
}

// item is an invocation of item 2 of 3 with a job parameter.
func item(h abi.Host, parameter string) *abi.Invocation {
	return &abi.Invocation{Host: h, Context: abi.ShardingContext{
		JobName:            "probe",
		TaskID:             "probe@-@0,1,2@-@READY@-@10.0.0.7@-@4711",
		ShardingTotalCount: 3,
		ShardingItem:       2,
		JobParameter:       parameter,
		Attempt:            1,
		Fence:              77,
		RunID:              "probe/1/2",
		Source:             abi.SourceSchedule,
		FireTime:           time.UnixMilli(1_700_000_000_123),
	}}
}

// goGuest builds one of the Go programs below testdata, once.
func goGuest(t testing.TB, name string) []byte {
	t.Helper()
	build := map[string]func() ([]byte, error){"goguest": buildReactor, "gosmall": buildSmall, "gocommand": buildCommand}[name]
	b, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var (
	buildReactor = sync.OnceValues(func() ([]byte, error) { return buildGo("goguest", "-buildmode=c-shared") })
	buildSmall   = sync.OnceValues(func() ([]byte, error) { return buildGo("gosmall", "-buildmode=c-shared") })
	buildCommand = sync.OnceValues(func() ([]byte, error) { return buildGo("gocommand") })
)

func buildGo(name string, flags ...string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "plugin-guest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, name+".wasm")
	cmd := exec.Command("go", append(append([]string{"build", "-trimpath"}, flags...), "-o", out, "./testdata/"+name)...)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s: %w\n%s", name, err, msg)
	}
	return os.ReadFile(out)
}
