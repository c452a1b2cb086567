package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/plugin/wasm"
)

// Options is what NewRuntime needs. The zero value works.
type Options struct {
	// CacheDir keeps compiled code from one process to the next. What lies
	// there is executed as native code, so it must be readable and writable
	// by the owner only (0700); it is created if it does not exist. What is
	// older than 30 days is removed. Empty: compiled code is kept in memory
	// only.
	CacheDir string
	// Compiler makes the command, not started yet, of a program that calls
	// [ServeCompile] and ends. What the cache does not have is compiled by it,
	// so that neither a module that makes the compiler panic nor the memory
	// that it needs are this process' matter. It has as many goroutines as
	// there are processors, at most 4, a lower priority on Linux, and a limit
	// of time and memory; a module that makes it fail is refused. Where no
	// such process can be had, modules are compiled in this one, with a
	// warning. Without a CacheDir, its results go through a directory of their
	// own in [os.TempDir], and do not stay. The command's streams are set by
	// this package. Nil: modules are compiled in this process.
	Compiler func() *exec.Cmd
	// MemoryBudget bounds what all guests (their memories, tables and native
	// stacks) and all compiled code take together, in bytes. A worker waits
	// until what it is expected to need is free; a guest that wants more than is
	// left is refused it. The guests of one job may have three quarters of it,
	// and code too. 0 is no limit.
	MemoryBudget int64
	// ModuleMemory is how much of it compiled code may take while no guest needs
	// more, in bytes. Beyond it, modules leave memory, the one that is needed
	// last first, and come back from CacheDir ahead of their jobs' next fires. 0, or
	// no CacheDir: no module leaves.
	ModuleMemory int64
	// CodeChanged is called with the bytes that the modules in memory take of the
	// process' own heap, about, each time that changes. Calls do not overlap. It may
	// be nil.
	CodeChanged func(heap int64)
	// Stored says that CacheDir is another process' (see [Runtime.Store]): it is
	// only read, and a module that is not there is [ErrNotStored].
	Stored bool
	// Logger takes what an operator should know; nil drops it.
	Logger *slog.Logger

	// For tests: interpreter leaves the compiler aside, and initialize is
	// used instead of abi.InitializeTimeout unless it is 0.
	interpreter bool
	initialize  time.Duration
	compileTime func(n int) time.Duration // instead of the function of that name
}

// Names of wazero's engines.
const (
	engineCompiler    = "compiler"
	engineInterpreter = "interpreter"
)

// Runtime holds the modules of one process. Its methods are safe for
// concurrent use.
type Runtime struct {
	log        *slog.Logger
	engine     string
	initialize time.Duration        // bounds _initialize
	config     wazero.RuntimeConfig // without limits and cache

	// Caches must outlive all wazero runtimes that use them. memory takes
	// over when the directory fails.
	cache, memory wazero.CompilationCache
	child         *child // nil: modules are compiled in this process
	stored        bool   // modules are not compiled at all
	worker        *child // compiles for worker processes; nil: they do so themselves

	quick, long *lane    // modules that are compiled
	memories    memories // of guests
	budget      *budget

	spills string // where modules' bytes lie; empty: in memory
	limit  int64  // of compiled code in memory; 0: there is none
	// moduleLimit is Options.ModuleMemory, also where nothing leaves this process.
	moduleLimit int64
	changed     chan struct{} // for keep: decide again
	kept        chan struct{} // closed when keep has ended
	endKeep     context.CancelFunc

	codeChanged func(heap int64) // called with mu held

	mu        sync.Mutex
	codes     map[string]*code // by digest
	modules   map[*Module]struct{}
	executors map[*executor]struct{}
	closed    bool
	idle      chan struct{} // closed when closed and codes is empty
}

// wazeroKnowsItsVersion has wazero 1.12.0 write the package variable in which it keeps
// its version (internal/version), which it does without a lock when the first runtime
// is made. Runtimes are made by several goroutines.
var wazeroKnowsItsVersion = sync.OnceFunc(func() {
	_ = wazero.NewRuntime(context.Background()).Close(context.Background())
})

// NewRuntime finds out which engine works here and makes a runtime. On systems
// that forbid making memory executable (a hardened service unit, for example)
// that is the interpreter, which is 10 to 50 times slower: a warning is logged.
func NewRuntime(ctx context.Context, o Options) (*Runtime, error) {
	wazeroKnowsItsVersion()
	r := &Runtime{
		log:        o.Logger,
		stored:     o.Stored,
		initialize: cmp.Or(o.initialize, abi.InitializeTimeout),
		memory:     wazero.NewCompilationCache(),
		budget:     newBudget(o.MemoryBudget),

		moduleLimit: o.ModuleMemory,
		quick:       newLane(max(runtime.GOMAXPROCS(0)/maxChildWorkers, 1)),
		long:        newLane(1),
		changed:     make(chan struct{}, 1),

		codeChanged: o.CodeChanged,
		kept:        make(chan struct{}),
		codes:       map[string]*code{},
		modules:     map[*Module]struct{}{},
		executors:   map[*executor]struct{}{},
		idle:        make(chan struct{}),
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if err := r.openCache(&o); err != nil {
		return nil, err
	}
	r.chooseEngine(ctx, o.interpreter)
	if o.Compiler != nil && r.engine == engineCompiler {
		r.compileApart(&o)
	}
	if r.engine == engineInterpreter {
		r.limit = 0 // there is no compiled code that the directory could have
	}
	if !r.evicts() {
		close(r.kept)
		r.endKeep = func() {}
		return r, nil
	}
	r.budget.crowded = r.nudge
	ctx, r.endKeep = context.WithCancel(context.WithoutCancel(ctx))
	go r.keep(ctx) // Close waits for it
	return r, nil
}

func (r *Runtime) openCache(o *Options) error {
	r.cache = r.memory
	what := "compilation cache"
	if o.Stored {
		what = "compiled code"
	}
	if o.CacheDir != "" { // other processes look for it from other directories
		dir, err := filepath.Abs(o.CacheDir)
		if err != nil {
			return fmt.Errorf("compilation cache: %w", err)
		}
		o.CacheDir = dir
	}
	if o.CacheDir == "" && !o.Stored {
		return nil
	}
	if !o.Stored {
		if err := privateDir(o.CacheDir); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if err := prune(o.CacheDir, time.Now().Add(-cacheAge)); err != nil {
			r.log.Warn("old files in the cache directory could not be removed", "error", err)
		}
		r.spills, r.limit = o.CacheDir, o.ModuleMemory
	}
	cache, err := wazero.NewCompilationCacheWithDir(o.CacheDir)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	r.cache = cache
	return nil
}

// chooseEngine tries the compiler: NewRuntimeConfig falls back to the interpreter without
// a word, and NewRuntimeConfigCompiler panics where it cannot work.
func (r *Runtime) chooseEngine(ctx context.Context, interpreter bool) {
	r.engine, r.config = engineInterpreter, wazero.NewRuntimeConfigInterpreter()
	if interpreter {
		return
	}
	if err := probe(ctx); err != nil {
		r.log.Warn("modules are interpreted, which is 10 to 50 times slower: the compiler does not work here", "error", err)
		return
	}
	r.engine, r.config = engineCompiler, wazero.NewRuntimeConfig()
}

// compileApart has modules compiled by processes.
func (r *Runtime) compileApart(o *Options) {
	c := child{command: o.Compiler, dir: o.CacheDir, workers: min(runtime.GOMAXPROCS(0), maxChildWorkers), limit: compileTime}
	if o.compileTime != nil {
		c.limit = o.compileTime
	}
	own, apart := c, c
	r.child = &own
	if o.CacheDir == "" {
		if err := r.passage(); err != nil {
			r.log.Warn("modules are compiled in this process", "error", err)
			r.child = nil
			return
		}
	}
	r.worker = &apart
}

// passage makes a directory through which a process that compiles gives its
// results to this one, in place of a cache.
func (r *Runtime) passage() error {
	dir, err := os.MkdirTemp("", "wasmjob-modules-")
	if err != nil {
		return err
	}
	cache, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	r.cache, r.child.dir, r.child.private = cache, dir, true
	return nil
}

// probe compiles and runs a function that returns 42.
func probe(ctx context.Context) error {
	wasm := []byte("\x00asm\x01\x00\x00\x00" +
		"\x01\x05\x01\x60\x00\x01\x7f" + // one type: ()->(i32)
		"\x03\x02\x01\x00" + // one function of it
		"\x07\x05\x01\x01f\x00\x00" + // exported as f
		"\x0a\x06\x01\x04\x00\x41\x2a\x0b") // i32.const 42
	return guard(func() error {
		rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler().WithCloseOnContextDone(true))
		defer rt.Close(ctx)
		m, err := rt.Instantiate(ctx, wasm)
		if err != nil {
			return err
		}
		v, err := m.ExportedFunction("f").Call(ctx)
		if err == nil && v[0] != 42 {
			err = fmt.Errorf("compiled code returned %d, expected 42", v[0])
		}
		return err
	})
}

// guard turns a panic of the engine into an error.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &enginePanic{p}
		}
	}()
	return f()
}

type enginePanic struct{ value any }

func (e *enginePanic) Error() string { return fmt.Sprintf("the engine failed: %v", e.value) }

// Memory says what guests and modules take at the moment.
func (r *Runtime) Memory() Memory { return r.budget.memory() }

var errClosed = errors.New("the plugin runtime is closed")

// Load reads, checks and compiles a module and makes an instance on trial, in
// which its _initialize runs. Everything that is wrong with it is in one
// [*LoadError]; any other error is not the module's fault. A module whose bytes are loaded already is neither compiled
// nor tried again, also if several callers load it at once. name is for
// people; its base without ".wasm" is what a WASI guest sees as its own name.
//
// The trial has the default memory limit. A module that begins with more is
// not tried before a job grants it that much. due is when a job of the module fires
// first: of several that are to be compiled, the one goes first that is due first;
// the zero time goes last.
//
// Cancelling ctx gives up waiting, and ends the process that compiles; in this
// one the compilation may go on until the function at hand is done.
func (r *Runtime) Load(ctx context.Context, name string, wasm []byte, due time.Time) (*Module, error) {
	m, err := r.Open(name, wasm)
	if err != nil {
		return nil, err
	}
	c := m.code
	pages := uint32(0)
	if c.triable() {
		pages = c.trialPages()
	}
	if err := r.prove(ctx, c, pages, due); err != nil {
		m.Close()
		return nil, m.refused(ctx, err)
	}
	return m, nil
}

// Open reads and checks a module, and neither compiles nor runs any of it. An
// executor compiles it and makes an instance on trial.
func (r *Runtime) Open(name string, file []byte) (*Module, error) {
	read := wasm.Read(file)
	refused := &LoadError{Name: name, Problems: read.Info.Problems}
	if len(refused.Problems) > 0 {
		return nil, refused
	}
	metered, err := read.Meter()
	if err != nil {
		refused.Problems = []string{err.Error()}
		return nil, refused
	}
	return r.open(name, &code{info: read.Info, tableBytes: metered.TableBytes}, metered.Bytes)
}

// open makes a module of what was read, or of the same code if that is here.
func (r *Runtime) open(name string, read *code, wasm []byte) (*Module, error) {
	read.wasm = spill(r.spills, wasm)
	read.tried = map[uint32]bool{}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.codes[read.info.Digest]
	if c != nil || r.closed {
		read.wasm.close()
	}
	if r.closed {
		return nil, errClosed
	}
	if c == nil {
		c = read
		r.codes[read.info.Digest] = c
	}
	c.uses++
	m := &Module{r: r, name: name, code: c}
	r.modules[m] = struct{}{}
	return m, nil
}

// Close refuses new loads, ends the use of all modules, waits for the last
// executor to be released, and frees everything. If ctx ends first, the
// runtime stays as it is, and Close may be called again.
func (r *Runtime) Close(ctx context.Context) error {
	r.mu.Lock()
	first := !r.closed
	r.closed = true
	var modules []*Module
	for m := range r.modules {
		modules = append(modules, m)
	}
	if first && len(r.codes) == 0 {
		close(r.idle)
	}
	r.mu.Unlock()
	for _, m := range modules {
		m.Close()
	}
	r.endKeep()
	select {
	case <-r.idle:
	default:
		select {
		case <-r.idle:
		case <-ctx.Done():
			r.mu.Lock()
			n := len(r.codes)
			r.mu.Unlock()
			return fmt.Errorf("close plugin runtime: %d modules are still in use: %w", n, ctx.Err())
		}
	}
	<-r.kept
	r.memories.close()
	ctx = context.WithoutCancel(ctx)
	errs := []error{r.cache.Close(ctx), r.memory.Close(ctx)}
	if r.child != nil && r.child.private {
		errs = append(errs, os.RemoveAll(r.child.dir))
	}
	if r.worker != nil && r.worker.private {
		errs = append(errs, os.RemoveAll(r.worker.dir))
	}
	return errors.Join(errs...)
}

// code is one module, by digest, and its compiled form if that is in memory.
type code struct {
	info       *wasm.Info
	wasm       *spilled // as wazero gets it
	tableBytes int64    // of an instance
	passed     bool     // it was tried by another process: no instance is made on trial
	trying     sync.Mutex

	// Guarded by Runtime.mu.
	uses    int             // modules, executors, and those that acquire the engine
	engine  *engine         // nil: it is not in memory
	tried   map[uint32]bool // an instance was made on trial with that memory limit in pages
	retryAt time.Time       // after a failure: when it may be loaded ahead again
}

// bytes is what the compiled form takes, about.
func (c *code) bytes() int64 { return codeFactor * int64(c.wasm.size) }

func (r *Runtime) releaseCode(c *code) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.uses--; c.uses > 0 {
		return
	}
	if c.engine != nil {
		r.drop(c.engine)
		r.sayCode()
	}
	c.wasm.close()
	if r.codes[c.info.Digest] == c {
		delete(r.codes, c.info.Digest)
	}
	if r.closed && len(r.codes) == 0 {
		close(r.idle)
	}
}

// build compiles the module, which is cheap if the cache has it. On failure nothing
// is left.
func (r *Runtime) build(ctx context.Context, e *engine) error {
	size := e.code.bytes()
	if err := r.budget.load(ctx, size, r.evicts()); err != nil {
		return err
	}
	e.loaded = size
	wasm, err := e.code.wasm.read()
	if err == nil {
		err = r.compile(ctx, e, wasm)
	}
	if err == nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		e.close()
		r.budget.unload(e.loaded)
	}
	return err
}

// compile takes the module from the cache, which waits for nothing: a fire may.
// Otherwise it compiles it in the quick lane, where each has a short time, and
// what takes longer in the other one: a module that takes minutes delays only its
// like. Without a process that can be ended there is no short time, and only
// the second lane.
func (r *Runtime) compile(ctx context.Context, e *engine, wasm []byte) error {
	if r.cache != r.memory {
		err := r.lookUp(e, wasm)
		if err == nil || (!errors.Is(err, context.Canceled) && !notRead(err)) {
			return err
		}
		e.close()
	}
	if r.stored {
		return ErrNotStored
	}
	if r.child != nil {
		if err := r.compileIn(ctx, r.quick, e, wasm, quickTime); !errors.Is(err, errTakesLong) {
			return err
		}
		e.close()
	}
	return r.compileIn(ctx, r.long, e, wasm, 0)
}

// compileIn compiles the module when the lane is free. A limit of 0 is that of
// the module's size; beyond another one the error is errTakesLong.
func (r *Runtime) compileIn(ctx context.Context, l *lane, e *engine, wasm []byte, limit time.Duration) error {
	if err := l.enter(ctx, e.due); err != nil {
		return err
	}
	defer l.leave()
	err := r.compileOnce(ctx, e, wasm, limit)
	if err == nil || ctx.Err() != nil || errors.Is(err, errTakesLong) {
		return err
	}
	// A cache that cannot be read or written must not keep jobs from running.
	// wazero v1.12.0 counts the module's use in memory first and then fails to
	// write the file.
	if r.cache == r.memory {
		return err
	}
	if notWritten(err) {
		r.log.Warn("compiled module could not be written to the cache directory", "digest", e.code.info.Digest, "error", err)
		e.owed = true
		return guard(func() (err error) {
			e.compiled, err = e.rt.CompileModule(bare{ctx}, wasm)
			return err
		})
	}
	if notRead(err) {
		r.log.Warn("cache directory could not be read, the module is compiled anew", "digest", e.code.info.Digest, "error", err)
		e.close()
		return r.compileWith(ctx, e, wasm, r.memory, 1)
	}
	return err
}

// compileOnce has the module compiled by a process, or compiles it here if there is
// none to be had.
func (r *Runtime) compileOnce(ctx context.Context, e *engine, wasm []byte, limit time.Duration) error {
	if r.child == nil {
		return r.compileWith(ctx, e, wasm, r.cache, 1)
	}
	if limit > 0 && len(wasm) > quickSize {
		return errTakesLong
	}
	err := r.child.compile(ctx, wasm, limit)
	if err == nil {
		err = r.lookUp(e, wasm)
		if r.child.private {
			r.child.forget()
		}
		if err == nil {
			return nil
		}
		e.close()
		err = errNoChild{fmt.Errorf("what it compiled is not in the cache: %w", err)}
	}
	if _, ok := errors.AsType[errNoChild](err); !ok {
		return err
	}
	if limit > 0 {
		return errTakesLong // this process cannot end it
	}
	r.log.Warn("no process compiles the module, so this one does", "digest", e.code.info.Digest, "error", err)
	cache := r.cache
	if r.child.private {
		cache = r.memory // nothing is to stay in the directory
	}
	return r.compileWith(ctx, e, wasm, cache, 1)
}

// lookUp takes the module from the cache. The error is context.Canceled if it is
// not there.
func (r *Runtime) lookUp(e *engine, wasm []byte) error {
	// wazero looks into the cache first. With more than one goroutine to
	// compile, each asks the context before it begins with a function.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return r.compileWith(ctx, e, wasm, r.cache, 2)
}

// compileWith has so many goroutines compile. With one, a module that makes the
// compiler panic is refused; with more, it ends the process.
func (r *Runtime) compileWith(ctx context.Context, e *engine, wasm []byte, cache wazero.CompilationCache, workers int) error {
	ours := context.Background()
	return guard(func() (err error) {
		e.rt = wazero.NewRuntimeWithConfig(ours, engineConfig(r.config, cache))
		if err := register(ours, e.rt, e.code.info.Imports); err != nil {
			return err
		}
		if err := registerMeter(ours, e.rt); err != nil {
			return err
		}
		e.compiled, err = e.rt.CompileModule(experimental.WithCompilationWorkers(bare{ctx}, workers), wasm)
		return err
	})
}

// try makes an instance with a memory limit in pages, runs its initialisation, and
// drops it.
func (r *Runtime) try(ctx context.Context, e *engine, pages uint32) error {
	x := &executor{r: r, code: e.code, pages: pages, name: "trial", typ: wasm.TypeSimple}
	if slices.Contains(e.code.info.Exports, abi.ExportStart) {
		x.typ = wasm.TypeScript
	}
	host := &trialHost{log: r.log, digest: e.code.info.Digest}
	a, failed := x.admit(ctx)
	if failed != nil {
		return failed
	}
	defer a.close()
	in, _, err := x.instantiate(ctx, e, a, &abi.Invocation{Host: host}, x.baseConfig())
	if err != nil {
		return err
	}
	in.close()
	return nil
}

// bare is a context without values, so that nothing a caller has in its own
// can switch on an experiment of wazero's.
type bare struct{ context.Context }

func (bare) Value(any) any { return nil }

// trialHost is what a module meets while it is tried.
type trialHost struct {
	log    *slog.Logger
	digest string
}

func (h *trialHost) Log(level int, msg string, kv []string) {
	h.log.Debug("guest on trial: "+msg, "digest", h.digest, "guestLevel", level, "attrs", kv)
}
func (h *trialHost) LogEnabled(int) bool                { return h.log.Enabled(context.Background(), slog.LevelDebug) }
func (h *trialHost) Progress(int64, int64)              {}
func (h *trialHost) Metric(int, string, int64) abi.Code { return abi.ErrState }
func (h *trialHost) CommitOffset(context.Context, []byte) abi.Code {
	return abi.ErrState
}
func (h *trialHost) StageOffset(context.Context, []byte) abi.Code { return abi.ErrState }
func (h *trialHost) Pause(context.Context)                        {}
func (h *trialHost) Cancelled() abi.Cancel                        { return abi.CancelNone }
