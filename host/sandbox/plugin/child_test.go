package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/ownership"
	"github.com/wasmjob/wasmjob/test/hostile"
)

// compileWord makes the test binary one of the compilers below.
const compileWord = "compile-for-tests"

// compilers are processes that compile modules, or do something else.
var compilers = map[string]func() error{
	"good": func() error { return ServeCompile(os.Stdin, os.Stdout) },
	"mute": func() error { return errors.New("went home") },
	// Never comes to an end with what has "bomb" in it.
	"bombed": func() error {
		return serve(os.Stdin, os.Stdout, func(q *compileRequest, wasm []byte) compileAnswer {
			if bytes.Contains(wasm, []byte("bomb")) {
				<-make(chan struct{})
			}
			return q.compile(wasm)
		})
	},
	// As wazero does when it fails in one of its goroutines.
	"panics": func() error {
		return serve(os.Stdin, os.Stdout, func(*compileRequest, []byte) compileAnswer {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				panic("BUG: no register is left")
			}()
			<-ended
			return compileAnswer{}
		})
	},
	"killed": func() error {
		return serve(os.Stdin, os.Stdout, func(*compileRequest, []byte) compileAnswer {
			p, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = p.Kill()
			}
			if err == nil {
				select {} // the signal is on its way
			}
			return compileAnswer{Problem: err.Error()}
		})
	},
	"hungry": func() error {
		return serve(os.Stdin, os.Stdout, func(q *compileRequest, _ []byte) compileAnswer {
			var all [][]byte
			for range 2 * compileMemory(q.Size) >> 20 {
				all = append(all, make([]byte, 1<<20))
			}
			return compileAnswer{Problem: fmt.Sprintf("%d MiB were to be had", len(all))}
		})
	},
	// Tells on file 3 that it has the module, and compiles it for ever.
	"slow": func() error {
		return serve(os.Stdin, os.Stdout, func(*compileRequest, []byte) compileAnswer {
			_, _ = os.NewFile(3, "pipe").Write([]byte{'!'})
			select {}
		})
	},
	"failing": func() error {
		return serve(os.Stdin, os.Stdout, func(q *compileRequest, wasm []byte) compileAnswer {
			q.Dir = filepath.Join(q.Dir, "none", "\x00")
			return q.compile(wasm)
		})
	},
	// Its directory is full; another one is not.
	"full": func() error {
		return serve(os.Stdin, os.Stdout, func(q *compileRequest, wasm []byte) compileAnswer {
			if !strings.Contains(q.Dir, "wasmjob-modules-") {
				// No user can write there.
				if err := os.Symlink("/proc/self", filepath.Join(q.Dir, filepath.Dir(cacheFile(wasm)))); err != nil {
					return compileAnswer{Problem: err.Error()}
				}
			}
			return q.compile(wasm)
		})
	},
	"idle": func() error {
		return serve(os.Stdin, os.Stdout, func(*compileRequest, []byte) compileAnswer { return compileAnswer{} })
	},
	"fat": func() error {
		return serve(os.Stdin, os.Stdout, func(q *compileRequest, wasm []byte) compileAnswer {
			a := q.compile(wasm)
			a.Takes.Code = 1<<30 - a.Takes.Heap
			return a
		})
	},
	"state": func() error {
		return serve(os.Stdin, os.Stdout, func(*compileRequest, []byte) compileAnswer { return compileAnswer{Problem: processState()} })
	},
	// A host whose own compiler is slow, and which is killed while it waits.
	"host": func() error {
		dir, err := io.ReadAll(os.Stdin)
		if err != nil {
			return err
		}
		wasm, err := os.ReadFile(filepath.Join("testdata", "wat", "noop.wasm"))
		if err != nil {
			return err
		}
		r, err := NewRuntime(context.Background(), Options{CacheDir: string(dir), Compiler: func() *exec.Cmd {
			c := compiler("slow")()
			c.ExtraFiles = []*os.File{os.NewFile(3, "pipe")}
			return c
		}})
		if err != nil {
			return err
		}
		_, err = r.Load(context.Background(), "noop.wasm", wasm, time.Time{})
		return fmt.Errorf("loaded: %w", err)
	},
}

func compiler(name string) func() *exec.Cmd {
	return func() *exec.Cmd { return exec.Command(os.Args[0], compileWord, name) }
}

// counted counts how often a compiler is started.
func counted(name string) (func() *exec.Cmd, *atomic.Int64) {
	var n atomic.Int64
	start := compiler(name)
	return func() *exec.Cmd { n.Add(1); return start() }, &n
}

// lines is a log handler that keeps the messages.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// runs loads a module and runs an item in it.
func runs(t *testing.T, r *Runtime, wasm []byte) {
	t.Helper()
	w := newWorker(t, load(t, r, wasm), Settings{})
	if got := w.Execute(context.Background(), item(newRecorder(), "")); got.Outcome != abi.OutcomeOK {
		t.Errorf("%+v", got)
	}
}

// stored lists the files and directories below a cache directory, and checks
// that nothing is left of a compilation.
func stored(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "wazero-*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, stagingPattern))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q %v", left, err)
	}
	return files
}

func needsCompiler(t *testing.T) {
	t.Helper()
	if err := probe(context.Background()); err != nil {
		t.Skip("there is no compiler here:", err)
	}
}

func TestChild(t *testing.T) {
	t.Parallel()
	needsCompiler(t)
	dir := filepath.Join(t.TempDir(), "cache")
	compile, started := counted("good")
	var log lines
	o := Options{CacheDir: dir, Compiler: compile, Logger: log.logger()}
	r := newRuntime(t, o)
	plain := guest(t, "wat/noop")
	runs(t, r, plain)
	load(t, r, guest(t, "c/guest"))
	if n := started.Load(); n != 2 {
		t.Errorf("%d processes for 2 modules", n)
	}
	// Another memory limit is another runtime of wazero's with the same code.
	newWorker(t, load(t, r, plain), Settings{MemoryLimit: 1 << 20})
	// The next host finds what was compiled, also without a process for it.
	runs(t, newRuntime(t, o), plain)
	if n := started.Load(); n != 2 {
		t.Errorf("%d processes for 2 modules that are in the cache", n-2)
	}
	if files := stored(t, dir); len(files) != 2 {
		t.Errorf("%q", files)
	}

	// A damaged file is replaced.
	for _, name := range stored(t, dir) {
		if err := os.WriteFile(name, []byte("garbage"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	runs(t, newRuntime(t, o), plain)
	runs(t, newRuntime(t, o), plain)
	if n := started.Load(); n != 3 {
		t.Errorf("%d processes for a damaged file", n-2)
	}
	if log.String() != "" {
		t.Error(log.String())
	}

	// What wazero says of a module is the same from both processes.
	bad := []byte("\x00asm\x01\x00\x00\x00" + "\x01\x08\x02\x60\x00\x00\x60\x00\x01\x7f" + "\x03\x03\x02\x00\x01" + "\x05\x03\x01\x00\x01" +
		"\x07\x25\x03\x06memory\x02\x00\x0ajob_abi_v1\x00\x00\x0bjob_execute\x00\x01" + "\x0a\x07\x02\x02\x00\x0b\x02\x00\x0b")
	_, here := newRuntime(t, Options{}).Load(context.Background(), "bad", bad, time.Time{})
	_, there := r.Load(context.Background(), "bad", bad, time.Time{})
	if here == nil || there == nil || here.Error() != there.Error() {
		t.Errorf("%v\n%v", here, there)
	}
}

// A process compiles what this one would.
func TestChildCompilesTheSame(t *testing.T) {
	t.Parallel()
	needsCompiler(t)
	for _, name := range []string{"wat/noop", "wat/instructions", "c/guest"} {
		wasm, cacheDir := metered(t, guest(t, name)), filepath.Join(t.TempDir(), "cache")
		c := child{command: compiler("good"), workers: 2, limit: compileTime}
		here := compileRequest{Dir: t.TempDir(), Size: len(wasm), Workers: 1}
		if a := here.compile(wasm); here.err(&a) != nil {
			t.Fatalf("%s: %+v", name, a)
		}
		files := stored(t, here.Dir)
		if len(files) != 1 {
			t.Fatalf("%s: %q", name, files)
		}
		sub, err := filepath.Rel(here.Dir, files[0])
		if err != nil {
			t.Fatal(err)
		}
		kept, err := openStore(cacheDir, 0, ownership.Self(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		takes, err := c.compile(context.Background(), kept, wasm, 0)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want, err1 := os.ReadFile(files[0])
		got, err2 := os.ReadFile(filepath.Join(cacheDir, sub))
		if err := errors.Join(err1, err2); err != nil || string(got) != string(append(want, takes.seal()...)) {
			t.Errorf("%s: %d bytes of code, expected the %d that one goroutine here makes: %v", name, len(got), len(want), err)
		}
	}
}

// A process that fails on a module is the end of the module, not of the host.
func TestChildFails(t *testing.T) {
	t.Parallel()
	needsCompiler(t)
	for _, c := range []struct {
		name    string
		limit   time.Duration
		problem string
	}{
		{"panics", time.Hour, "the compiler failed (exit status 2): panic: BUG: no register is left"},
		{"killed", time.Hour, "the process that compiled it was stopped from outside (signal: killed)"},
		{"slow", 50 * time.Millisecond, "compiling it took longer than 50ms and was stopped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "cache")
			compile, started := counted(c.name)
			var log lines
			r := newRuntime(t, Options{CacheDir: dir, Compiler: compile, Logger: log.logger(), compileTime: func(int) time.Duration { return c.limit }})
			_, err := r.Load(context.Background(), "x.wasm", guest(t, "wat/noop"), time.Time{})
			refused, ok := errors.AsType[*LoadError](err)
			if !ok || len(refused.Problems) != 1 || !strings.Contains(refused.Problems[0], c.problem) || refused.Err == nil {
				t.Fatalf("%#v", err)
			}
			if n := started.Load(); n != 1 {
				t.Errorf("%d processes, expected 1", n)
			}
			if files := stored(t, dir); len(files) != 0 {
				t.Errorf("%q", files)
			}
			if log.String() != "" {
				t.Error("compiled in this process:", log.String())
			}
		})
	}
}

// A module that takes minutes to compile delays the next one by the time of the
// quick lane at most.
func TestBombDelaysNobodyForLong(t *testing.T) {
	t.Parallel()
	needsCompiler(t)
	r := newRuntime(t, Options{CacheDir: filepath.Join(t.TempDir(), "cache"), Compiler: compiler("bombed")})
	ctx, giveUp := context.WithCancel(t.Context())
	bombs := make(chan error, 2)
	for i := range 2 {
		go func() {
			wasm := nasty(body(times(10+i, 0x01)))
			wasm = appendSection(wasm, 0, appendSection(hostile.AppendName(nil, "name"), 1, append([]byte{1, 2}, hostile.AppendName(nil, "bomb")...)))
			_, err := r.Load(ctx, "bomb.wasm", wasm, time.Time{})
			bombs <- err
		}()
	}
	m := load(t, r, guest(t, "wat/noop"))
	m.Close()
	select {
	case err := <-bombs:
		t.Error("the bomb is over:", err)
	default:
	}
	giveUp()
	for range 2 {
		if err := <-bombs; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// Where no process compiles, no new module is loaded, and the module is not to blame.
func TestNoChild(t *testing.T) {
	t.Parallel()
	needsCompiler(t)
	for name, c := range map[string]struct {
		compile func() *exec.Cmd
		says    string
	}{
		"absent":  {func() *exec.Cmd { return exec.Command(filepath.Join(t.TempDir(), "none")) }, "no process compiles the module"},
		"mute":    {compiler("mute"), "went home"},
		"failing": {compiler("failing"), "compiled code cannot be kept"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "cache")
			r := newRuntime(t, Options{CacheDir: dir, Compiler: c.compile})
			_, err := r.Load(t.Context(), "x.wasm", guest(t, "wat/noop"), time.Time{})
			refused, ok := errors.AsType[*LoadError](err)
			if !ok || refused.Err == nil || !strings.Contains(err.Error(), c.says) || !errors.Is(err, ErrUnjudged) {
				t.Errorf("%v, expected %q", err, c.says)
			}
			if files := stored(t, dir); len(files) != 0 {
				t.Errorf("%q", files)
			}
		})
	}
	// What cannot be kept in the cache goes through a directory that nothing stays in.
	for name, spoil := range map[string]func(dir string) func() *exec.Cmd{
		"directory vanished": func(dir string) func() *exec.Cmd {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			return compiler("good")
		},
		"no room for what is compiled": func(string) func() *exec.Cmd { return compiler("full") },
		"a directory in the place of the file": func(dir string) func() *exec.Cmd {
			file := filepath.Join(dir, cacheFile(metered(t, guest(t, "wat/noop"))), "x")
			if err := os.MkdirAll(file, 0o700); err != nil {
				t.Fatal(err)
			}
			return compiler("good")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log lines
			dir := filepath.Join(t.TempDir(), "cache")
			var compile func() *exec.Cmd
			r := newRuntime(t, Options{CacheDir: dir, Compiler: func() *exec.Cmd { return compile() }, Logger: log.logger()})
			compile = spoil(dir)
			runs(t, r, guest(t, "wat/noop"))
			if got := log.String(); !strings.Contains(got, "could not be written") {
				t.Error(got)
			}
			if files := stored(t, r.spare.dir); len(files) != 0 {
				t.Errorf("%q", files)
			}
		})
	}
	t.Run("nothing is left", func(t *testing.T) {
		t.Parallel()
		var log lines
		dir := filepath.Join(t.TempDir(), "cache")
		r := newRuntime(t, Options{CacheDir: dir, Compiler: compiler("idle"), Logger: log.logger()})
		_, err := r.Load(t.Context(), "x.wasm", guest(t, "wat/noop"), time.Time{})
		if err == nil || !strings.Contains(err.Error(), "left [], expected one file") {
			t.Error(err)
		}
	})
}

// What is interpreted is accepted, and measured, by a process that interprets it, and nothing is kept.
func TestChildInterprets(t *testing.T) {
	t.Parallel()
	compile, started := counted("good")
	dir := filepath.Join(t.TempDir(), "cache")
	r := newRuntime(t, Options{CacheDir: dir, Compiler: compile, interpreter: true})
	runs(t, r, guest(t, "wat/noop"))
	if n := started.Load(); n != 1 || r.spare != nil || len(stored(t, dir)) != 0 {
		t.Errorf("%d processes, kept in %v", n, r.spare)
	}
	if took := r.Memory().Code; took != r.heap.Load() || took == 0 {
		t.Errorf("the budget has %d bytes, %d of them on the heap, expected all there", took, r.heap.Load())
	}
}

// Two hosts, and two loaders in each, may want the same module in the same
// directory at the same time.
func TestChildShared(t *testing.T) {
	t.Parallel()
	needsCompiler(t)
	dir := filepath.Join(t.TempDir(), "cache")
	wasm := guest(t, "c/guest")
	var log lines
	var wg sync.WaitGroup
	for range 2 {
		r := newRuntime(t, Options{CacheDir: dir, Compiler: compiler("good"), Logger: log.logger()})
		for range 2 {
			wg.Go(func() {
				m, err := r.Load(context.Background(), "guest.wasm", wasm, time.Time{})
				if err != nil {
					t.Error(err)
					return
				}
				m.Close()
			})
		}
	}
	wg.Wait()
	if files := stored(t, dir); len(files) != 1 {
		t.Errorf("%q", files)
	}
	if log.String() != "" {
		t.Error(log.String())
	}
}

// Without a directory for a cache, nothing stays on the disk.
func TestChildWithoutCache(t *testing.T) {
	needsCompiler(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Setenv("TMP", tmp)
	list := func() (names []string) {
		if err := filepath.WalkDir(tmp, func(name string, d os.DirEntry, err error) error {
			if !d.IsDir() {
				names = append(names, name)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return names
	}
	compile, started := counted("good")
	var log lines
	r, err := NewRuntime(context.Background(), Options{Compiler: compile, Logger: log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	wasm := guest(t, "wat/noop")
	for i := range 2 {
		m := load(t, r, wasm)
		x, err := m.Executor(Settings{MemoryLimit: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		x.Release()
		m.Close()
		if n := started.Load(); n != int64(i+1) {
			t.Errorf("%d processes for a module that was dropped", n)
		}
		if names := list(); len(names) > 0 {
			t.Errorf("%q", names)
		}
	}
	if err := r.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("%v %v", left, err)
	}
	if log.String() != "" {
		t.Error(log.String())
	}

	// There may be no place for it.
	t.Setenv("TMPDIR", filepath.Join(tmp, "none"))
	t.Setenv("TMP", filepath.Join(tmp, "none"))
	_, err = newRuntime(t, Options{Compiler: compile}).Load(t.Context(), "x.wasm", wasm, time.Time{})
	if refused, ok := errors.AsType[*LoadError](err); !ok || refused.Err == nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%#v", err)
	}
}

// pipe is the end at which to hear of a "slow" compiler: one byte when it has
// the module, and the end when nobody is left that has the other end.
func pipe(t *testing.T) (heard, told *os.File) {
	t.Helper()
	heard, told, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { heard.Close() })
	return heard, told
}

func TestChildCancelled(t *testing.T) {
	t.Parallel()
	needsCompiler(t)
	heard, told := pipe(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dir := filepath.Join(t.TempDir(), "cache")
	r := newRuntime(t, Options{CacheDir: dir, Compiler: func() *exec.Cmd {
		c := compiler("slow")()
		c.ExtraFiles = []*os.File{told}
		return c
	}})
	loaded := make(chan error)
	go func() {
		_, err := r.Load(ctx, "noop.wasm", guest(t, "wat/noop"), time.Time{})
		told.Close()
		loaded <- err
	}()
	if _, err := io.ReadFull(heard, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	cancel()
	err := <-loaded
	if _, refused := errors.AsType[*LoadError](err); refused || !errors.Is(err, context.Canceled) {
		t.Errorf("%#v", err)
	}
	if rest, err := io.ReadAll(heard); err != nil || len(rest) > 0 {
		t.Errorf("%q %v", rest, err)
	}
	stored(t, dir)
}

// A process that compiles does not outlive its host, however that ends.
func TestChildOrphaned(t *testing.T) {
	t.Parallel()
	needsCompiler(t)
	heard, told := pipe(t)
	dir := filepath.Join(t.TempDir(), "cache")
	host := compiler("host")()
	host.Stdin, host.ExtraFiles, host.Stderr = strings.NewReader(dir), []*os.File{told}, os.Stderr
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	told.Close()
	_, err := io.ReadFull(heard, make([]byte, 1))
	killed := host.Process.Kill()
	_ = host.Wait()
	if err := errors.Join(err, killed); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(heard); err != nil || len(rest) > 0 { // it ends with the last of them
		t.Errorf("%q %v", rest, err)
	}

	// What it leaves in the directory is removed by a later host.
	left, err := filepath.Glob(filepath.Join(dir, stagingPattern))
	if err != nil || len(left) != 1 {
		t.Fatal(left, err)
	}
	newRuntime(t, Options{CacheDir: dir})
	if _, err := os.Stat(left[0]); err != nil {
		t.Error("it may still be in use:", err)
	}
	old := time.Now().Add(-2 * stagingAge)
	if err := os.Chtimes(left[0], old, old); err != nil {
		t.Fatal(err)
	}
	newRuntime(t, Options{CacheDir: dir})
	stored(t, dir)
}

func TestServeCompileRefuses(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"", "\n", "{}\n", `{"Dir":"cache","Size":1,"Workers":1}` + "\nx", `{"Dir":"/c","Size":-1,"Workers":1}` + "\n",
		strings.Repeat("x", maxAnswer) + "\n"} {
		if err := ServeCompile(strings.NewReader(in), io.Discard); err == nil || !strings.Contains(err.Error(), "no module to compile") {
			t.Errorf("%.40q: %v", in, err)
		}
	}
}

func TestHead(t *testing.T) {
	t.Parallel()
	var h head
	for range 3 {
		if n, err := h.Write(make([]byte, maxAnswer-1)); n != maxAnswer-1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if h.Len() != maxAnswer {
		t.Errorf("%d bytes are kept", h.Len())
	}
}
