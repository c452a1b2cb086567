package offer_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/sandbox/capability"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/capabilitytest"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/dir"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/env"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/kv"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/net"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/offer"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/process"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// The test binary is also the programs that it starts.
const (
	workWord    = "work-for-tests"
	compileWord = "compile-for-tests"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == workWord || os.Args[1] == compileWord) {
		serve := process.Serve
		if os.Args[1] == compileWord {
			serve = plugin.ServeCompile
		}
		if err := serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "offer-test-")
	if err != nil {
		panic(err)
	}
	shared = filepath.Join(dir, "cache")
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// shared is where the compiled guest lies for all tests.
var shared string

func command(words ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return exec.Command(self, words...)
}

// builtGuest is the guest of all tests.
var builtGuest = sync.OnceValues(func() ([]byte, error) {
	out := filepath.Join(os.TempDir(), fmt.Sprintf("offer-guest-%d.wasm", os.Getpid()))
	defer os.Remove(out)
	c := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-buildmode=c-shared", "-o", out, "./testdata/guest")
	c.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if text, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	return os.ReadFile(out)
})

// recorder is the host of an item.
type recorder struct {
	mu        sync.Mutex
	lines     []string
	warnings  []string
	cancel    abi.Cancel
	committed [][]byte
	code      abi.Code
}

func (r *recorder) Log(level int, msg string, _ []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if level == abi.LevelWarn { // of the host
		r.warnings = append(r.warnings, msg)
		return
	}
	r.lines = append(r.lines, msg)
	if msg == "lose" {
		r.cancel = abi.CancelLost
	}
}
func (r *recorder) LogEnabled(int) bool                { return true }
func (r *recorder) Progress(int64, int64)              {}
func (r *recorder) Metric(int, string, int64) abi.Code { return abi.OK }
func (r *recorder) CommitOffset(_ context.Context, offset []byte) abi.Code {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.code == abi.OK {
		r.committed = append(r.committed, slices.Clone(offset))
	}
	return r.code
}
func (r *recorder) StageOffset(ctx context.Context, offset []byte) abi.Code {
	return r.CommitOffset(ctx, offset)
}
func (r *recorder) Pause(context.Context) {}
func (r *recorder) Cancelled() abi.Cancel {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cancel
}

// place runs the guest in one kind of executor.
type place struct {
	t      *testing.T
	grant  *grants.Grant
	worker abi.Worker
	stored []byte // the item's offset, as the registry has it
	has    bool
	host   *recorder
	result abi.Result
}

// everywhere runs a test in this process and with a worker process.
func everywhere(t *testing.T, grant func(dir string) grants.Grant, test func(p *place, dir string)) {
	for _, apart := range []bool{false, true} {
		t.Run(map[bool]string{false: "inside", true: "apart"}[apart], func(t *testing.T) {
			t.Parallel()
			base := t.TempDir()
			g := grant(base)
			test(&place{t: t, grant: &g, worker: newWorker(t, &g, plugin.Settings{JobName: "report", Type: wasm.TypeSimple}, apart)}, base)
		})
	}
}

func newWorker(t *testing.T, g *grants.Grant, settings plugin.Settings, apart bool) abi.Worker {
	t.Helper()
	code, err := builtGuest()
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	rt, err := plugin.NewRuntime(ctx, plugin.Options{CacheDir: shared,
		Compiler: func() *exec.Cmd { return command(compileWord) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	// As for a job from which something was taken away that its module imports.
	settings.Granted = []string{abi.ModuleIO, abi.ModuleKV, abi.ModuleEnv}
	s := offer.Settings(settings, g)
	m, err := rt.Open("guest.wasm", code)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	var x abi.Executor
	if apart {
		w := process.New(process.Options{Runtime: rt, Command: func(string) *exec.Cmd { return command(workWord) }})
		t.Cleanup(w.Close)
		x, err = w.Module(m).Executor(ctx, s, "guests")
	} else {
		x, err = m.Executor(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	x = offer.Wrap(x, g, "release", dir.NewQuotas())
	t.Cleanup(x.Release)
	if typed, ok := x.(interface{ Type() string }); !ok || typed.Type() != settings.Type {
		t.Error("the executor does not say of which type its module is")
	}
	w, err := x.NewWorker(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// run runs a script, and returns what the guest says of each line.
func (p *place) run(lines ...string) []string {
	p.t.Helper()
	if p.host == nil {
		p.host = &recorder{}
	}
	p.host.lines = nil
	inv := &abi.Invocation{Host: p.host, Offset: p.stored, HasOffset: p.has}
	inv.Context = abi.ShardingContext{JobName: "report", RunID: "report/1/0", ShardingParameter: strings.Join(lines, "\n"), HasShardingParameter: true}
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	p.result = p.worker.Execute(ctx, inv)
	if p.result.Outcome == abi.OutcomeOK && p.result.Staged {
		p.stored, p.has = p.result.Offset, true
	}
	return p.host.lines
}

// says runs a script of which each line is followed by what is expected.
func (p *place) says(script ...[2]string) {
	p.t.Helper()
	var lines []string
	for _, s := range script {
		lines = append(lines, s[0])
	}
	got := p.run(lines...)
	if len(got) != len(script) {
		p.t.Fatalf("%d lines of %d: %q, %+v", len(got), len(script), got, p.result)
	}
	for i, s := range script {
		word, _, _ := strings.Cut(s[0], " ")
		if want := strings.TrimSpace(word + " " + s[1]); got[i] != want {
			p.t.Errorf("%s: %q, want %q", s[0], got[i], want)
		}
	}
}

func writable(base string) grants.Grant {
	return grants.Grant{Dirs: []grants.Dir{{Host: base, Guest: "/out", Write: true, Bytes: 1 << 20, Files: 20}}, KV: true, Env: map[string]string{"ZONE": "Berlin"}}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	everywhere(t, writable, func(p *place, base string) {
		p.says([][2]string{
			{"put /out/a hello", ""},
			{"cat /out/a", "hello"},
			{"append /out/a ,world", "at 11"},
			{"cat /out/a", "hello,world"},
			{"at /out/a 6 W", ""},
			{"cat /out/a", "hello,World"},
			{"truncate /out/a 5", ""},
			{"cat /out/a", "hello"},
			{"sync /out/a", ""},
			{"stat /out/a", "5"},
			{"touch /out/a", "1000000000"},
			{"mkdir /out/d/e", ""},
			{"stat /out/d", "directory"},
			{"put /out/d/e/b bb", ""},
			{"ls /out", "/out,/out/a,/out/d,/out/d/e,/out/d/e/b"},
			{"mv /out/d/e/b /out/a", ""},
			{"cat /out/a", "bb"},
			{"exclusive /out/a", "errno File exists"},
			{"rm /out/d", "errno Directory not empty"},
			{"rmall /out/d", ""},
			{"cat /out/d/e/b", "errno No such file or directory"},
		}...)
		if b, err := os.ReadFile(filepath.Join(base, "a")); string(b) != "bb" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
		u := p.result.Outside["dir"]
		if u.Sent != 5+6+1+2 || !slices.Contains(u.Targets, "/out/a") {
			t.Errorf("%+v", u)
		}
		p.says([2]string{"mkdir /out/d", ""}) // with 0o777, and files with 0o666
		for name, mode := range map[string]os.FileMode{"a": 0o600, "d": 0o700 | os.ModeDir} {
			if info, err := os.Stat(filepath.Join(base, name)); err != nil || info.Mode() != mode {
				t.Errorf("%s: %v, %v", name, info.Mode(), err)
			}
		}
	})
}

func TestFilesDoNotLeadOut(t *testing.T) {
	t.Parallel()
	everywhere(t, func(base string) grants.Grant {
		in := filepath.Join(base, "in")
		if err := os.Mkdir(in, 0o755); err != nil {
			panic(err)
		}
		return writable(in)
	}, func(p *place, base string) {
		in := filepath.Join(base, "in")
		for _, err := range []error{
			os.WriteFile(filepath.Join(base, "secret"), []byte("secret"), 0o644),
			os.WriteFile(filepath.Join(in, "file"), []byte("x"), 0o644),
			os.Link(filepath.Join(base, "secret"), filepath.Join(in, "hard")),
			os.Symlink("../secret", filepath.Join(in, "soft")),
			os.Symlink(base, filepath.Join(in, "up")),
			mkfifo(filepath.Join(in, "pipe")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		p.says([][2]string{
			{"put /out/hard x", "errno Operation not permitted"},
			{"truncate /out/hard 0", "errno Operation not permitted"},
			{"cat /out/soft", "errno Operation not permitted"},
			{"put /out/soft x", "errno Operation not permitted"},
			{"put /out/up/new x", "errno Operation not permitted"},
			{"put /out/../secret x", "errno Read-only file system"},
			{"mv /out/file /out/up/file", "errno Operation not permitted"},
			{"cat /out/pipe", "errno Operation not permitted"},
			{"put /out/pipe x", "errno Operation not permitted"},
			{"ln /out/file /out/other", "errno Operation not permitted"},
			{"symlink /out/file /out/other", "errno Operation not permitted"},
		}...)
		if b, err := os.ReadFile(filepath.Join(base, "secret")); string(b) != "secret" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
	})
}

func TestFilesWithinTheirQuota(t *testing.T) {
	t.Parallel()
	everywhere(t, writable, func(p *place, base string) {
		if err := os.WriteFile(filepath.Join(base, "before"), make([]byte, 1000), 0o644); err != nil {
			t.Fatal(err)
		}
		p.says([][2]string{
			{"fill /out/big 1047576", "1047576"}, // to the last byte
			{"append /out/big x", "errno I/O error"},
			{"at /out/new 0 x", "errno I/O error"},
			{"truncate /out/new 1", "errno I/O error"},
			{"truncate /out/big 47576", ""},
			{"fill /out/new 1000001", "errno I/O error"}, // after what there was room for
			{"stat /out/new", "1000000"},
			{"rm /out/new", ""},
			{"rm /out/big", ""},
			{"at /out/far 1048000 x", "errno I/O error"},
			{"fill /out/big 1047000", "1047000"},
			{"mv /out/big /out/before", ""},
			{"append /out/before x", "at 1047001"},
			{"rm /out/before", ""},
		}...)
		if u := p.result.Outside["dir"]; u.Refused["quota"] != 6 {
			t.Errorf("%+v", u)
		}
		if len(p.host.warnings) != 1 || !strings.Contains(p.host.warnings[0], "the quota of its directory is used up") {
			t.Errorf("%q", p.host.warnings)
		}
		if strings.Contains(p.result.Message, "quota") {
			t.Errorf("a run that succeeded has the reason %q", p.result.Message)
		}
		// The run of a job that fails for it says which quota it was.
		p.run("many /out/f 30\nstatus 1")
		if !strings.HasSuffix(p.result.Message, "the quota of /out is used up: it has 0 of 1048576 bytes and 20 of 20 files") {
			t.Errorf("%q", p.result.Message)
		}
		// The files far and 19 more.
		if got := p.run("many /out/f 30"); !slices.Equal(got, []string{"many errno I/O error"}) {
			t.Errorf("%q", got)
		}
		if entries, err := os.ReadDir(base); len(entries) != 20 || err != nil {
			t.Errorf("%d files, %v", len(entries), err)
		}
	})
}

// A file that was opened in one run is closed in the next, though the instance is kept.
func TestFilesEndWithTheRun(t *testing.T) {
	t.Parallel()
	everywhere(t, writable, func(p *place, _ string) {
		p.says([2]string{"keep /out/a", ""})
		p.says([2]string{"kept", "errno Bad file number"}, [2]string{"put /out/a x", ""})
	})
}

// After ownership is lost nothing changes any more.
func TestFilesOfALostItem(t *testing.T) {
	t.Parallel()
	everywhere(t, writable, func(p *place, base string) {
		p.says([2]string{"put /out/a x", ""})
		p.host.cancel = abi.CancelLost
		p.says([][2]string{
			{"put /out/a y", "errno I/O error"}, {"put /out/b y", "errno I/O error"}, {"rm /out/a", "errno I/O error"},
			{"mv /out/a /out/b", "errno I/O error"}, {"mkdir /out/d", "errno I/O error"}, {"touch /out/a", "errno I/O error"},
			{"cat /out/a", "x"},
		}...)
		if entries, err := os.ReadDir(base); len(entries) != 1 || err != nil {
			t.Errorf("%v, %v", entries, err)
		}
	})
}

func TestStateIsCommittedWithTheOffset(t *testing.T) {
	t.Parallel()
	everywhere(t, writable, func(p *place, _ string) {
		none := "error code -2:"
		p.says([2]string{"get k", none}, [2]string{"set k 1", ""}, [2]string{"get k", "1"}, [2]string{"offset 7", ""})
		p.says([2]string{"get k", "1"}, [2]string{"offset?", "7"}, [2]string{"add n", "1"}, [2]string{"add n", "2"})
		// A failure loses what it staged, and only that.
		p.says([2]string{"set k 9", ""}, [2]string{"status 1", ""})
		p.says([2]string{"get k", "1"}, [2]string{"get n", "2"}, [2]string{"offset?", "7"})
		// Committed in the middle, it stays.
		p.says([2]string{"set k 2", ""}, [2]string{"commit", "0"}, [2]string{"set k 3", ""}, [2]string{"status 1", ""})
		if len(p.host.committed) != 1 {
			t.Fatalf("%q", p.host.committed)
		}
		p.stored = p.host.committed[0]
		p.says([2]string{"get k", "2"}, [2]string{"offset?", "7"}, [2]string{"commit", "0"})
		if len(p.host.committed) != 1 {
			t.Error("nothing was staged, and something was committed")
		}
		// What is not taken is not there.
		p.host.code = abi.ErrConflict
		p.says([2]string{"set k 4", ""}, [2]string{"commit", "-7"}, [2]string{"status 1", ""})
		p.host.code = abi.OK
		p.says([2]string{"get k", "2"})
	})
}

// A batch that succeeds keeps its state, also without an offset; one that fails loses its own,
// and no other's.
func TestStateOfBatches(t *testing.T) {
	t.Parallel()
	for _, apart := range []bool{false, true} {
		t.Run(map[bool]string{false: "inside", true: "apart"}[apart], func(t *testing.T) {
			t.Parallel()
			g := writable(t.TempDir())
			p := &place{t: t, grant: &g, worker: newWorker(t, &g, plugin.Settings{JobName: "report", Type: wasm.TypeDataflow, Streaming: true, FreshPerItem: true}, apart)}
			p.run("set k 1\noffset a", "--", "set k 2", "--", "set k 3\noffset c\nstatus 1")
			if p.result.Outcome != abi.OutcomeFail || p.result.Batches != 2 || len(p.host.committed) != 2 {
				t.Fatalf("%d saved, %+v", len(p.host.committed), p.result)
			}
			p.stored, p.has = p.host.committed[1], true
			p.says([2]string{"get k", "2"}, [2]string{"offset?", "a"})

			// Without streaming the batch's state goes with the run.
			p.worker = newWorker(t, &g, plugin.Settings{JobName: "report", Type: wasm.TypeDataflow, FreshPerItem: true}, apart)
			p.run("set k 4", "status 1")
			p.says([2]string{"get k", "2"}, [2]string{"set k 5", ""})
			p.says([2]string{"get k", "5"}, [2]string{"offset?", "a"})
		})
	}
}

func TestEnvironmentAndSecrets(t *testing.T) {
	t.Parallel()
	everywhere(t, func(base string) grants.Grant {
		file := filepath.Join(base, "token")
		if err := os.WriteFile(file, []byte("s3cr3t-value"), 0o600); err != nil {
			panic(err)
		}
		g := writable(filepath.Join(base))
		g.Secrets = map[string]grants.Secret{"OPEN": {File: file, Readable: true}, "CLOSED": {File: file}, "GONE": {File: file + "x", Readable: true}}
		return g
	}, func(p *place, base string) {
		p.says([][2]string{
			{"env ZONE", "Berlin Berlin"},
			{"env HOME", "error code -2:"},
			{"secret CLOSED", `error code -3: secret: "CLOSED" may not be read by job "report", only named in a header of a request, as {{secret:CLOSED}}: its grant has no readable: true`},
			{"secret OTHER", `error code -3: secret: "OTHER" is not granted to job "report"`},
		}...)
		got := p.run("secret OPEN", "secret GONE")
		if got[0] != "secret [secret OPEN]" || !strings.HasPrefix(got[1], "secret error code -6: secret: ") {
			t.Errorf("%q", got)
		}
		// A guest may log the one before, too.
		if err := os.WriteFile(filepath.Join(base, "token"), []byte("an0ther-value"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := p.run("secret OPEN", "s3cr3t-value", "an0ther-value"); got[0] != "secret [secret OPEN]" || got[1] != "[secret OPEN] error unknown word" || got[2] != "[secret OPEN] error unknown word" {
			t.Errorf("%q", got)
		}
	})
}

// Nothing is granted: nothing can be called, and the module is refused before it runs.
func TestNothingIsGranted(t *testing.T) {
	t.Parallel()
	code, err := builtGuest()
	if err != nil {
		t.Fatal(err)
	}
	rt, err := plugin.NewRuntime(t.Context(), plugin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background())
	m, err := rt.Open("guest.wasm", code)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	_, err = m.Executor(plugin.Settings{JobName: "report", Type: wasm.TypeSimple, Granted: []string{abi.ModuleIO, abi.ModuleEnv}})
	if err == nil || !strings.Contains(err.Error(), "the module imports get, set, increment from job_v1_kv, which is not granted to the job") {
		t.Error(err)
	}
}

// What a guest reads of a directory counts, whether it may write there or not.
func TestReadsOfDirectoriesCount(t *testing.T) {
	for name, more := range map[string][]grants.Dir{"read only": nil, "beside one that is written": {{Host: t.TempDir(), Guest: "/out", Write: true}}} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(base string) grants.Grant {
				if err := os.WriteFile(filepath.Join(base, "a.txt"), []byte("hello"), 0o600); err != nil {
					t.Fatal(err)
				}
				return grants.Grant{Dirs: append([]grants.Dir{{Host: base, Guest: "/in"}}, more...)}
			}, func(p *place, _ string) {
				p.says([2]string{"cat /in/a.txt", "hello"})
				if c := p.result.Outside["dir"]; c.Calls == 0 || c.Received != 5 || c.Sent != 0 {
					p.t.Errorf("counted %+v for a file of 5 bytes", p.result.Outside)
				}
			})
		})
	}
}

// A job to which nothing is granted costs no allocation more.
func TestNothingCostsNothing(t *testing.T) { // not beside others, which allocate
	x := offer.Wrap(idle{}, &grants.Grant{Dirs: []grants.Dir{{Host: "/", Guest: "/data"}}}, "", dir.NewQuotas())
	w, err := x.NewWorker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	inv := &abi.Invocation{Host: &recorder{}, Offset: []byte("7"), HasOffset: true}
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		if r := w.Execute(ctx, inv); r.Outcome != abi.OutcomeOK || string(r.Offset) != "8" {
			t.Errorf("%+v", r)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// idle is an executor whose guests stage an offset.
type idle struct {
	abi.Executor
	abi.Worker
}

func (idle) NewWorker(context.Context) (abi.Worker, error) { return idle{}, nil }
func (idle) Close() error                                  { return nil }
func (idle) Execute(_ context.Context, inv *abi.Invocation) abi.Result {
	if string(inv.Offset) != "7" || inv.Outside != nil {
		return abi.Result{Outcome: abi.OutcomeFail}
	}
	return abi.Result{Outcome: abi.OutcomeOK, Offset: eight, Staged: true}
}

var eight = []byte("8")

// What a job's module imports and is not granted any more is refused call by call.
func TestTakenAway(t *testing.T) {
	t.Parallel()
	everywhere(t, func(base string) grants.Grant { return grants.Grant{Env: map[string]string{"ZONE": "Berlin"}} }, func(p *place, _ string) {
		p.says([2]string{"env ZONE", "Berlin Berlin"}, [2]string{"set k 1", `error code -3: kv: state is not granted to job "report"`},
			[2]string{"put /out/a x", "errno Read-only file system"}, [2]string{"secret TOKEN", `error code -3: secret: "TOKEN" is not granted to job "report"`})
	})
	everywhere(t, func(base string) grants.Grant { return grants.Grant{} }, func(p *place, _ string) {
		p.says([2]string{"env ZONE", "error code -3:"}, [2]string{"set k 1", "error code -3:"}, [2]string{"put /out/a x", "errno Read-only file system"})
	})
}

// A directory of any size is listed whole, with names of any length.
func TestLongList(t *testing.T) {
	t.Parallel()
	everywhere(t, func(base string) grants.Grant {
		for i := range 3000 {
			name := fmt.Sprintf("%d-%s", i, strings.Repeat("n", i%200))
			if err := os.WriteFile(filepath.Join(base, name), nil, 0o666); err != nil {
				panic(err)
			}
		}
		return grants.Grant{Dirs: []grants.Dir{{Host: base, Guest: "/out", Write: true, Bytes: 1 << 20, Files: 3002}}}
	}, func(p *place, base string) {
		p.says([2]string{"count /out", "3000"}, [2]string{"put /out/" + strings.Repeat("x", 255) + " x", ""}, [2]string{"count /out", "3001"},
			[2]string{"put /out/" + strings.Repeat("x", 256) + " x", "errno File name too long"}, [2]string{"put /out/a x", ""},
			[2]string{"put /out/b x", "errno I/O error"}, [2]string{"rmall /out/" + strings.Repeat("x", 255), ""}, [2]string{"count /out", "3001"})
	})
}

// A text that is too long is refused before it is copied: the copy would be memory of the
// host that is on no account.
func TestLongTextsAreNotCopied(t *testing.T) { // not beside others, which allocate
	g := &grants.Grant{KV: true, Env: map[string]string{"a": "b"}, Net: []grants.Net{{Scheme: "tcp", Host: "db", Port: 1}},
		Dirs: []grants.Dir{{Host: t.TempDir(), Guest: "/out", Write: true}}}
	dirs, connections := dir.New(g.Dirs, dir.NewQuotas()), net.New(g)
	defer connections.Close()
	defer dirs.Close()
	functions := map[string]capability.Function{}
	for _, more := range []map[string]capability.Function{kv.Functions(&kv.State{}), env.Functions(nil), dirs.Functions(), connections.Functions()} {
		maps.Copy(functions, more)
	}
	run := capability.NewRun(capability.Info{}, g, capabilitytest.NewOwner(), functions)
	defer run.Close()
	long := make([]byte, 16<<20)
	for i := range long {
		long[i] = 'x'
	}
	for _, f := range slices.Concat(abi.CapabilityImports(), abi.DirectoryFunctions()) {
		if functions[f.Module+"."+f.Name] == nil || f.Name == "write" {
			continue
		}
		for n := range 2 {
			c := &abi.Call{Function: &f, Buf: make([]byte, 100)}
			texts := 0
			for _, p := range f.Params {
				switch p.Kind {
				case abi.KindText, abi.KindBytes:
					c.Texts = append(c.Texts, []byte("k"))
					if texts++; texts == n+1 {
						c.Texts[n] = long
					}
				case abi.KindBuffer:
				default:
					c.Numbers = append(c.Numbers, 0)
				}
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			v := run.Call(t.Context(), c)
			runtime.ReadMemStats(&after)
			if texts > n && (v >= 0 || after.TotalAlloc-before.TotalAlloc > 1<<20) {
				t.Errorf("%s.%s: %d, with %d bytes of memory", f.Module, f.Name, v, after.TotalAlloc-before.TotalAlloc)
			}
		}
	}
}

// slow is an executor whose guests wait for a server, and then end with an outcome.
type slow struct {
	abi.Executor
	abi.Worker
	url     string
	outcome abi.Outcome
	message string
}

func (x slow) NewWorker(context.Context) (abi.Worker, error) { return x, nil }
func (slow) Close() error                                    { return nil }
func (slow) Release()                                        {}
func (x slow) Execute(ctx context.Context, inv *abi.Invocation) abi.Result {
	return x.Listen(ctx, "", inv)
}
func (x slow) Listen(ctx context.Context, _ string, inv *abi.Invocation) abi.Result {
	call := func(name string, number int64, text string) int64 {
		for _, f := range abi.CapabilityImports() {
			if f.Module+"."+f.Name == name {
				return inv.Outside.Call(ctx, &abi.Call{Function: &f, Numbers: []int64{number}, Texts: [][]byte{[]byte(text)}})
			}
		}
		return -1
	}
	h := call(abi.ModuleHTTP+".open", 0, string(abi.AppendList(nil, "GET", x.url)))
	call(abi.ModuleIO+".finish", h, "")
	for call(abi.ModuleHTTP+".status", h, "") == int64(abi.ErrAgain) {
		call(abi.ModuleIO+".wait", -1, "")
	}
	return abi.Result{Outcome: x.outcome, Message: x.message}
}

// The message of a run that fails names the target that was slow.
func TestSlowTargetInTheMessage(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			time.Sleep(1010 * time.Millisecond)
		}
	}))
	t.Cleanup(server.Close)
	at, err := netip.ParseAddrPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	g := &grants.Grant{HTTP: []grants.HTTP{{Scheme: "http", Host: at.Addr().String(), Port: at.Port(), Path: "/", Private: true}}}
	for _, c := range []struct {
		x    slow
		want string
	}{
		{slow{url: "/slow", outcome: abi.OutcomeFail, message: "no rates"}, "no rates; 1 request to " + at.String() + ", slowest 1."},
		{slow{url: "/slow", outcome: abi.OutcomeTimeout}, "1 request to " + at.String() + ", slowest 1."},
		{slow{url: "/slow", outcome: abi.OutcomeOK}, ""},
		{slow{url: "/", outcome: abi.OutcomeFail, message: "no rates"}, "no rates"},
	} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			c.x.url = server.URL + c.x.url
			x := offer.Wrap(c.x, g, "", dir.NewQuotas())
			defer x.Release()
			w, err := x.NewWorker(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			inv := &abi.Invocation{Host: &recorder{}}
			for _, r := range []abi.Result{w.Execute(t.Context(), inv), w.Listen(t.Context(), "", inv)} {
				of := r.Outside["http"].Times[at.String()]
				named := of.Slowest >= time.Second && c.x.outcome != abi.OutcomeOK
				if !strings.HasPrefix(r.Message, c.want) || strings.Contains(r.Message, "slowest") != named || of.Calls != 1 {
					t.Errorf("%q, %+v", r.Message, of)
				}
			}
		})
	}
}
