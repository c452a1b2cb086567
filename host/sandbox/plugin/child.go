package plugin

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/wasmjob/wasmjob/abi"
)

// Limits of a process that compiles a module of n bytes.

// compileTime is how long it may take. A Go module takes less than a second of processor time for each MB, but
// may have to share the processor.
func compileTime(n int) time.Duration {
	return 2*time.Minute + time.Duration(n>>10)*10*time.Millisecond
}

// validateMemory is how much memory reading and validating the module may allocate in all, in bytes. This
// process does both again when it loads the code, so the limit is close to what modules need. Measured with Go
// modules: 2.2 bytes for each byte of the module, and 22 with the compilation for the interpreter.
func validateMemory(n int, interpreted bool) int64 {
	if interpreted {
		return 16<<20 + 64*int64(n)
	}
	return 16<<20 + 8*int64(n)
}

// validateTime is how much processor time that may take, where it is known. A Go module takes 12 ms for each MB.
func validateTime(n int) time.Duration {
	return time.Second + time.Duration(n>>10)*time.Millisecond/4
}

// codeLimit is the largest size of the compiled module. Go modules take 4.5 times their size, and 19 times with
// the interpreter.
func codeLimit(n int, interpreted bool) int64 {
	if interpreted {
		return 32<<20 + 64*int64(n)
	}
	return 32<<20 + 16*int64(n)
}

// compileMemory is how much data the process may allocate, in bytes, beyond its start. Measured with Go
// modules: 110 MB and 14 bytes for each byte of the module.
func compileMemory(n int) uint64 { return 256<<20 + 64*uint64(n) }

const (
	// maxChildWorkers bounds the goroutines that compile a module; the steps after that use one.
	maxChildWorkers = 4
	// childPriority is the process's nice value relative to its host: two of its threads together get as much
	// as one of the host's, so that on a busy machine a module is ready about as soon as if one goroutine here
	// compiled it.
	childPriority = 3
	// childGCPercent lets the heap grow, up to the memory limit.
	childGCPercent = 400
	// maxAnswer bounds how much of its output is kept, on each stream.
	maxAnswer = 64 << 10
	// stagingAge is the age after which a result directory is taken for a leftover: it far exceeds any
	// compileTime.
	stagingAge = time.Hour

	greeting       = "wasmjob compiler 1\n"
	stagingPattern = "compile-*"
)

// compileRequest is the first line of the process's input. The module follows; then the input stays open until
// the host is gone or gives up.
type compileRequest struct {
	// Dir is an empty directory, used as a cache. Empty: the host interprets modules, and nothing is stored.
	Dir     string
	Size    int
	Workers int
}

// compileAnswer is its output after the greeting.
type compileAnswer struct {
	// Problem is wazero's complaint about the module; empty if it was compiled.
	Problem string `json:",omitempty"`
	// Failure is an error that is not the module's fault.
	Failure string `json:",omitempty"`
	// NotKept says why the compiled code could not be written: not the module's fault, and another directory
	// may work.
	NotKept string `json:",omitempty"`

	// Allocated is how many bytes reading and validating the module has allocated, and Time the processor time
	// of that. For the interpreter both include its compilation.
	Allocated int64
	Time      time.Duration
	// Takes is what the compiled module takes in memory.
	Takes footprint
}

// judge returns which limit the module exceeds; empty: none.
func (q *compileRequest) judge(a *compileAnswer) string {
	interpreted := q.Dir == ""
	memory, time, code := validateMemory(q.Size, interpreted), validateTime(q.Size), codeLimit(q.Size, interpreted)
	switch {
	case a.Allocated > memory:
		return fmt.Sprintf("reading and validating it takes %s of memory, expected at most %s for its %d bytes", mebibytes(a.Allocated), mebibytes(memory), q.Size)
	case a.Time > time:
		return fmt.Sprintf("reading and validating it takes %s of processor time, expected at most %s for its %d bytes", a.Time, time, q.Size)
	case a.Takes.bytes() > code:
		return fmt.Sprintf("its compiled code takes %s of memory, expected at most %s for its %d bytes", mebibytes(a.Takes.bytes()), mebibytes(code), q.Size)
	}
	return ""
}

// err returns why the module was not compiled.
func (q *compileRequest) err(a *compileAnswer) error {
	switch {
	case a.Failure != "":
		return errNoChild{errors.New(a.Failure)}
	case a.NotKept != "":
		return errNotKept{errors.New(a.NotKept)}
	}
	if problem := cmp.Or(a.Problem, q.judge(a)); problem != "" {
		return &errCompiler{text: problem}
	}
	return nil
}

// ServeCompile is the main function of a process made by [Options].Compiler: it reads a module, whose bytes the
// host has checked, and compiles it into a directory, with less priority and memory than the host. in and out
// are its standard input and output.
//
// It changes priority and limits of the whole process, which must end when it returns. If in ends first, the
// result is no longer wanted: that is an error, and the compiler may still be running.
func ServeCompile(in io.Reader, out io.Writer) error {
	return serve(in, out, (*compileRequest).compile)
}

func serve(in io.Reader, out io.Writer, compile func(*compileRequest, []byte) compileAnswer) error {
	if _, err := io.WriteString(out, greeting); err != nil {
		return err
	}
	r := bufio.NewReaderSize(in, maxAnswer)
	line, err := r.ReadSlice('\n')
	var q compileRequest
	if err == nil {
		err = json.Unmarshal(line, &q)
	}
	if err == nil && (q.Size < 0 || q.Size > 2*abi.MaxModuleSize || q.Workers < 1 || (q.Dir != "" && !filepath.IsAbs(q.Dir))) {
		err = fmt.Errorf("a module of %d bytes for %d workers and directory %q", q.Size, q.Workers, q.Dir)
	}
	if err != nil {
		return fmt.Errorf("standard input has no module to compile, as a host would write it: %w", err)
	}
	runtime.GOMAXPROCS(q.Workers)
	memory := compileMemory(q.Size)
	debug.SetMemoryLimit(int64(memory / 2)) // above it the collector works harder
	debug.SetGCPercent(childGCPercent)
	confine(memory)
	wasm := make([]byte, q.Size)
	if _, err := io.ReadFull(r, wasm); err != nil {
		return fmt.Errorf("read the module: %w", err)
	}

	gone := make(chan struct{})
	go func() { // until the process ends
		defer close(gone)
		_, _ = io.Copy(io.Discard, r)
	}()
	goroutines := runtime.NumGoroutine()
	answer := make(chan compileAnswer, 1)
	go func() { answer <- compile(&q, wasm) }() // the same
	select {
	case a := <-answer:
		// If a goroutine of wazero panics, it signals the others before the process ends, and they would
		// continue with an incomplete result. So wait for them all.
		for runtime.NumGoroutine() > goroutines {
			runtime.Gosched()
		}
		return json.NewEncoder(out).Encode(a)
	case <-gone:
		return errors.New("the host is gone")
	}
}

// compile reads and validates the module as the host will do when it loads the code. If that stays within the
// limits, it compiles the module.
func (q *compileRequest) compile(wasm []byte) compileAnswer {
	var a compileAnswer
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	config := wazero.NewRuntimeConfigInterpreter()
	if q.Dir != "" {
		config = wazero.NewRuntimeConfig()
	}
	var m wazero.CompiledModule
	heap := heapInUse()
	err := guard(func() (err error) {
		rt := wazero.NewRuntimeWithConfig(context.Background(), engineConfig(config, nil))
		before, began := allocated(), processTime()
		// With more than one goroutine wazero checks the context before each function. The interpreter does
		// not.
		m, err = rt.CompileModule(experimental.WithCompilationWorkers(ctx, 2), wasm)
		a.Allocated, a.Time = allocated()-before, processTime()-began
		return err
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		return compileAnswer{Problem: err.Error()}
	}
	if q.judge(&a) != "" {
		return a
	}
	if q.Dir == "" {
		a.Takes.Heap = heapInUse() - heap
		runtime.KeepAlive(m)
		return a
	}

	cache, err := wazero.NewCompilationCacheWithDir(q.Dir)
	if err != nil {
		return compileAnswer{NotKept: err.Error()}
	}
	heap = heapInUse()
	mapped := codeMapped()
	err = guard(func() (err error) {
		rt := wazero.NewRuntimeWithConfig(context.Background(), engineConfig(config, cache))
		m, err = rt.CompileModule(experimental.WithCompilationWorkers(context.Background(), q.Workers), wasm)
		return err
	})
	switch {
	case err == nil:
	case notWritten(err):
		return compileAnswer{NotKept: err.Error()}
	case notRead(err):
		return compileAnswer{Failure: err.Error()}
	default:
		return compileAnswer{Problem: err.Error()}
	}
	a.Takes = footprint{Code: codeMapped() - mapped, Heap: heapInUse() - heap}
	runtime.KeepAlive(m)
	files, err := filepath.Glob(filepath.Join(q.Dir, "wazero-*", "*"))
	if err != nil || len(files) != 1 {
		return compileAnswer{Failure: fmt.Sprintf("the compiler left %q, expected one file: %v", files, err)}
	}
	info, err := os.Stat(files[0])
	if err != nil {
		return compileAnswer{Failure: err.Error()}
	}
	a.Takes.Code = max(a.Takes.Code, info.Size()) // if mappings are unknown
	return a
}

// allocated is how many bytes this process has allocated so far.
func allocated() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.TotalAlloc)
}

// heapInUse is how many bytes of the heap are in use.
func heapInUse() int64 {
	runtime.GC() // pools are emptied by the second run
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// engineConfig is the configuration that compiled code, and its name in the cache, depend on. The code
// interrupts itself, see wasm.Quantum; a module that cannot be metered is never compiled. Memory is limited
// where it is allocated.
func engineConfig(base wazero.RuntimeConfig, cache wazero.CompilationCache) wazero.RuntimeConfig {
	base = base.WithCoreFeatures(api.CoreFeaturesV2)
	if cache == nil {
		return base
	}
	return base.WithCompilationCache(cache)
}

// child starts processes that compile.
type child struct {
	command func() *exec.Cmd
	workers int
	limit   func(n int) time.Duration
}

// quickTime is how long a module may take in the quick lane, and quickSize the size, in bytes of the metered
// module, from which it skips that lane, since it would take longer.
const (
	quickTime = 4 * time.Second
	quickSize = 8 << 20
)

// errTakesLong says that a module did not compile within a limit that is shorter than the module's.
var errTakesLong = errors.New("compiling it takes long")

// ErrUnjudged says that the host could not compile a module for a reason that is not the module's, such as a
// full disk: the module may be fine.
var ErrUnjudged = errors.New("nothing is known of the module")

// errNoChild says that there was no process to compile, or that it failed for a reason that is not the
// module's. It is an ErrUnjudged.
type errNoChild struct{ error }

func (e errNoChild) Error() string { return "no process compiles the module: " + e.error.Error() }
func (e errNoChild) Unwrap() error { return e.error }

// Is says that the error is an ErrUnjudged.
func (e errNoChild) Is(target error) bool { return target == ErrUnjudged }

// errNotKept says that the compiled code cannot be stored in the directory. It is an ErrUnjudged.
type errNotKept struct{ error }

func (e errNotKept) Error() string { return "compiled code cannot be kept: " + e.error.Error() }
func (e errNotKept) Unwrap() error { return e.error }

// Is says that the error is an ErrUnjudged.
func (e errNotKept) Is(target error) bool { return target == ErrUnjudged }

// errCompiler says why a module was not compiled.
type errCompiler struct{ text string }

func (e *errCompiler) Error() string { return e.text }

// compile compiles the module into the store, within limit unless that is 0. With a nil store the process
// compiles for the interpreter, and nothing is stored. The error is an errNoChild, an errNotKept, an
// *errCompiler, errTakesLong, or that of ctx.
func (c *child) compile(ctx context.Context, s *store, wasm []byte, limit time.Duration) (footprint, error) {
	q := compileRequest{Size: len(wasm), Workers: c.workers}
	if s != nil {
		staging, err := os.MkdirTemp(s.dir, stagingPattern)
		if err != nil {
			return footprint{}, errNotKept{err}
		}
		defer os.RemoveAll(staging)
		q.Dir = staging
	}
	takes, err := c.run(ctx, &q, wasm, limit)
	if err == nil && s != nil {
		if err = s.install(q.Dir, wasm, takes); err != nil {
			err = errNotKept{err}
		}
	}
	return takes, err
}

// run starts a process for the request, and waits for its end.
func (c *child) run(ctx context.Context, q *compileRequest, wasm []byte, short time.Duration) (footprint, error) {
	var none footprint
	line, err := json.Marshal(q)
	if err != nil {
		return none, errNoChild{err}
	}
	limit := c.limit(q.Size)
	quick := short > 0 && short < limit
	if quick {
		limit = short
	}
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := c.command()
	var out, errOut head
	cmd.Stdout, cmd.Stderr = &out, &errOut
	detach(cmd)
	cmd.WaitDelay = time.Second // no other process should have its streams
	in, err := cmd.StdinPipe()
	if err != nil {
		return none, errNoChild{err}
	}
	if err := cmd.Start(); err != nil {
		return none, errNoChild{err}
	}
	// It may die at any moment, also during a write; the reason is determined below. Its input stays open until
	// then: an end of input means that the host has ended.
	killed := make(chan struct{})
	stop := context.AfterFunc(timed, func() {
		defer close(killed)
		_ = cmd.Process.Kill()
	})
	if _, err := in.Write(append(line, '\n')); err == nil {
		_, _ = in.Write(wasm)
	}
	_ = cmd.Wait() // the state has more detail
	if !stop() {
		<-killed
	}

	said, greeted := strings.CutPrefix(out.String(), greeting)
	var a compileAnswer
	answered := greeted && cmd.ProcessState.Success() && json.Unmarshal([]byte(said), &a) == nil
	if ctx.Err() != nil {
		return none, ctx.Err()
	}
	if answered {
		return a.Takes, q.err(&a)
	}
	if timed.Err() != nil {
		if quick {
			return none, errTakesLong
		}
		return none, &errCompiler{text: fmt.Sprintf("compiling it took longer than %s and was stopped", limit)}
	}
	if !greeted {
		return none, errNoChild{fmt.Errorf("%s: %s: %s", cmd.Path, cmd.ProcessState, lastWords(errOut.String()))}
	}
	return none, crashed(cmd.ProcessState, errOut.String(), compileMemory(q.Size))
}

// crashed explains the end of a process that did not answer.
func crashed(state *os.ProcessState, stderr string, memory uint64) *errCompiler {
	words := lastWords(stderr)
	begin := stderr[:min(len(stderr), 2048)] // threads may fail together
	short := func(text string) bool { return strings.Contains(begin, text) }
	switch {
	// The last two: no room for another thread's stack.
	case short("out of memory"), short("cannot allocate memory"), short("pthread_create failed"), short("failed to create new OS thread"):
		return &errCompiler{text: fmt.Sprintf("compiling it takes more than %d MiB of memory", memory>>20)}
	case !state.Exited():
		return &errCompiler{text: fmt.Sprintf("the process that compiled it was stopped from outside (%s), as the system does when memory is short", state)}
	}
	return &errCompiler{text: fmt.Sprintf("the compiler failed (%s): %s", state, words)}
}

// head keeps the first bytes that are written to it.
type head struct{ bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	h.Buffer.Write(p[:min(len(p), maxAnswer-h.Len())])
	return len(p), nil
}

// notWritten reports whether the cache could not be written: wazero v1.12.0 does
// it through a file named *.tmp and a rename.
func notWritten(err error) bool {
	pathErr, isPath := errors.AsType[*fs.PathError](err)
	_, isRename := errors.AsType[*os.LinkError](err)
	return isRename || (isPath && strings.HasSuffix(pathErr.Path, ".tmp"))
}

// notRead reports whether the cache could not be read, which fails with a path
// or with a text of wazero's.
func notRead(err error) bool {
	_, isPath := errors.AsType[*fs.PathError](err)
	return isPath || strings.HasPrefix(err.Error(), "compilationcache:")
}
