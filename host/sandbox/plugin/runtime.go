package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/ownership"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// Options is what NewRuntime needs. The zero value works.
type Options struct {
	// CacheDir keeps compiled code from one process to the next. Its files are executed as native code, so it
	// must belong to this user or to root, and be readable and writable by the owner only (0700); it is created
	// if it does not exist. Empty: compiled code is kept in memory only.
	CacheDir string
	// CacheSize bounds the files there, in bytes; the least recently used are removed. A single module may take
	// more. 0 is DefaultCacheSize.
	CacheSize int64
	// Compiler returns the command, not started, of a program that calls [ServeCompile] and ends. That process
	// reads, validates and compiles modules that the cache does not have, so that neither a compiler panic nor
	// its memory use affects this process. It has as many goroutines as there are processors, at most 4, a
	// lower priority on Linux, and a limit of time and memory.
	//
	// A module that makes it fail is refused, and so is a module whose code is too large, or that this process
	// would need too much memory or time to read and validate again. If no such process can be started, no new
	// module is loaded. Without a usable CacheDir its results go through a directory in [os.TempDir], and are
	// not kept. This package sets the command's streams. Nil: modules are compiled in this process, without
	// limits.
	Compiler func() *exec.Cmd
	// MemoryBudget bounds what all guests (their memories, tables and native stacks) and all compiled code use
	// together, in bytes. A worker waits until its expected need is free; a guest gets no more memory than is
	// left. The guests of one job may use three quarters of it, and so may code. 0 is no limit.
	MemoryBudget int64
	// ModuleMemory is how much of the budget compiled code may use while no guest needs more, in bytes. Beyond
	// it, the modules that are needed last are evicted, and loaded from CacheDir again before their jobs' next
	// fires. 0, or no CacheDir: no module is evicted.
	ModuleMemory int64
	// CodeChanged is called with about how many bytes of the process's heap the loaded modules use, each time
	// that changes. Calls do not overlap. It may be nil.
	CodeChanged func(heap int64)
	// StackGrown is called with the bytes of heap that the engine has allocated for a guest's native stack
	// since the last call for it; the old stack is left to the collector. The guest waits for it. Calls
	// overlap. It may be nil.
	StackGrown func(bytes int64)
	// Stored says that CacheDir belongs to another process (see [Runtime.Store]): it is only read, and a module
	// that is not there is [ErrNotStored].
	Stored bool
	// Logger logs what an operator should know; nil drops it.
	Logger *slog.Logger

	// For tests: interpreter disables the compiler, and initialize replaces abi.InitializeTimeout unless it is
	// 0.
	interpreter bool
	initialize  time.Duration
	compileTime func(n int) time.Duration // instead of the function of that name
	user        *ownership.User           // instead of this process'
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

	// Caches must outlive all wazero runtimes that use them. memory is for code that is compiled in this
	// process without a directory, or when the directory fails.
	memory wazero.CompilationCache
	cache  *store // nil: compiled code is not stored
	child  *child // nil: modules are compiled in this process
	stored bool   // modules are not compiled here

	quick, long *lane    // modules being compiled
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
	stackGrown  func(bytes int64)
	heap        atomic.Int64 // of the modules in memory

	mu        sync.Mutex
	spare     *store           // replaces a cache that cannot be written to; nil until then
	workers   *store           // for worker processes; nil until they need it
	codes     map[string]*code // by digest
	modules   map[*Module]struct{}
	executors map[*executor]struct{}
	closed    bool
	idle      chan struct{} // closed when closed and codes is empty
}

// wazeroKnowsItsVersion makes wazero 1.12.0 set the package variable with its version (internal/version), which
// it does without a lock when the first runtime is made. Several goroutines make runtimes.
var wazeroKnowsItsVersion = sync.OnceFunc(func() {
	_ = wazero.NewRuntime(context.Background()).Close(context.Background())
})

// NewRuntime finds out which engine works here and makes a runtime. On systems that forbid executable memory (a
// hardened service unit, for example) it is the interpreter, which is 10 to 50 times slower: a warning is
// logged.
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
		stackGrown:  o.StackGrown,
		kept:        make(chan struct{}),
		codes:       map[string]*code{},
		modules:     map[*Module]struct{}{},
		executors:   map[*executor]struct{}{},
		idle:        make(chan struct{}),
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if limit, taken, ok := addressLimit(); ok {
		r.memories.boundedBy(limit, taken)
		r.log.Info("the address space of processes is bounded (RLIMIT_AS): memories of guests grow by moving, and share what is left of it", "limit", mebibytes(int64(limit)), "guests", mebibytes(int64(r.memories.from.most)))
	}
	if err := r.openCache(&o); err != nil {
		return nil, err
	}
	r.chooseEngine(ctx, o.interpreter)
	if o.Compiler != nil {
		r.child = &child{command: o.Compiler, workers: min(runtime.GOMAXPROCS(0), maxChildWorkers), limit: compileTime}
		if o.compileTime != nil {
			r.child.limit = o.compileTime
		}
	}
	if r.engine == engineInterpreter {
		r.limit, r.cache = 0, nil // there is no compiled code that the directory could have
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
	if o.CacheDir == "" && !o.Stored {
		return nil
	}
	what, user := "compilation cache", ownership.Self()
	if o.Stored {
		what = "compiled code"
	}
	if o.user != nil {
		user = *o.user
	}
	var err error
	if r.cache, err = openStore(o.CacheDir, o.CacheSize, user, r.log); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if r.cache.readOnly = o.Stored; o.Stored {
		return nil // whoever stores it has checked the rest
	}
	if err := user.Parents(r.cache.dir); err != nil {
		return fmt.Errorf("%s: what lies in %s is executed: %w", what, r.cache.dir, err)
	}
	if err := r.cache.sweep(); err != nil {
		r.log.Warn("what earlier hosts have left in the cache directory could not be removed", "error", err)
	}
	r.cache.makeRoom(0)
	r.spills, r.limit = r.cache.dir, o.ModuleMemory
	return nil
}

// chooseEngine tries the compiler: NewRuntimeConfig falls back to the interpreter silently, and
// NewRuntimeConfigCompiler panics where it does not work.
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

// Load reads, checks and compiles a module and makes a trial instance, which runs its _initialize. A
// [*LoadError] has all problems of the module; any other error is not the module's fault. A loaded module is
// neither compiled nor tried again, even if several callers load it at once. name is for people; its base
// without ".wasm" is the name that a WASI guest sees.
//
// The trial has the default memory limit. A module whose initial memory is larger is not tried before a job
// grants it that much. due is when a job of the module fires first: modules are compiled in that order, with
// the zero time last.
//
// When ctx is cancelled Load returns, and a compiling process is ended; a compilation in this process may
// continue until its current function is done.
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

// Open reads and checks a module without compiling or running it. An executor compiles it and makes a trial
// instance.
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

// Close refuses new loads, ends the use of all modules, waits for the last executor to be released, and frees
// everything. If ctx ends first, the runtime stays open, and Close may be called again.
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
	errs := []error{r.memory.Close(ctx)}
	for _, s := range []*store{r.cache, r.spare, r.workers} {
		if s != nil {
			errs = append(errs, s.cache.Close(ctx), s.close())
		}
	}
	return errors.Join(errs...)
}

// code is one module, by digest, and its compiled form if that is in memory.
type code struct {
	info       *wasm.Info
	wasm       *spilled // as passed to wazero
	tableBytes int64    // of an instance
	passed     bool     // another process has tried it: no trial instance is made
	trying     sync.Mutex
	// measured is the size of the compiled form; 0: unknown.
	measured atomic.Int64

	// Guarded by Runtime.mu.
	uses    int             // modules, executors, and those that acquire the engine
	engine  *engine         // nil: it is not in memory
	tried   map[uint32]bool // an instance was made on trial with that memory limit in pages
	retryAt time.Time       // after a failure: when it may be loaded ahead again
}

// bytes is the size of the compiled form, an estimate before it was compiled once.
func (c *code) bytes() int64 { return cmp.Or(c.measured.Load(), guessed(c.wasm.size).bytes()) }

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

// build loads the compiled module into memory. On failure nothing remains.
func (r *Runtime) build(ctx context.Context, e *engine) error {
	wasm, err := e.code.wasm.read()
	if err == nil {
		switch {
		case r.child == nil && (!r.stored || r.engine == engineInterpreter):
			err = r.compileHere(ctx, e, wasm)
		case r.engine == engineInterpreter:
			err = r.interpret(ctx, e, wasm)
		default:
			err = r.fetch(ctx, e, wasm)
		}
	}
	if err == nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		r.discard(e)
	}
	return err
}

// discard frees the parts of an engine, and its part of the budget.
func (r *Runtime) discard(e *engine) {
	e.close()
	r.uncover(e)
}

// uncover gives back what cover has taken.
func (r *Runtime) uncover(e *engine) {
	r.heap.Add(-e.heap)
	r.budget.unload(e.loaded)
	e.loaded, e.heap = 0, 0
}

// cover reserves the compiled module's size in the budget, and waits for it.
func (r *Runtime) cover(ctx context.Context, e *engine, f footprint) error {
	if err := r.budget.load(ctx, f.bytes(), r.evicts()); err != nil {
		return err
	}
	e.loaded, e.heap = f.bytes(), f.Heap
	r.heap.Add(f.Heap)
	return nil
}

// fetch loads the module from the cache, which waits for no other module, so a fire may do it. A process first
// compiles a module that the cache does not have. Only the file's name decides whether the cache has it: wazero
// reads and validates a module before it looks for its code, so it must only get modules that such a process
// has accepted.
func (r *Runtime) fetch(ctx context.Context, e *engine, wasm []byte) error {
	// Another host may remove the file at any time, and a file may be damaged.
	for range fetchTries {
		s := r.cache
		f, ok := footprint{}, false
		if s != nil {
			f, ok = s.find(wasm)
		}
		if !ok && r.stored {
			return ErrNotStored
		}
		if !ok {
			var err error
			if s, f, err = r.compileApart(ctx, s, e.code, wasm, e.due); err != nil {
				return err
			}
		}
		err := r.take(ctx, e, s, wasm, f)
		if err == nil || (!errors.Is(err, errNotInCache) && !notRead(err)) {
			return err
		}
		r.discard(e)
		if notRead(err) && r.stored {
			return ErrNotStored
		}
		if notRead(err) {
			s.forget(wasm)
		}
	}
	return errNoChild{errors.New("what it compiled was removed from the cache, or damaged, each time before it was read")}
}

// fetchTries is how often a module is compiled again because its code is gone at the load.
const fetchTries = 5

// errNotInCache says that a file of the cache is gone.
var errNotInCache = errors.New("the compiled code is not in the cache any more")

// take loads compiled code from a file of the cache, once the budget has room for it.
func (r *Runtime) take(ctx context.Context, e *engine, s *store, wasm []byte, f footprint) error {
	if s != r.cache {
		defer s.forget(wasm) // this directory only passes code on
	}
	e.code.measured.Store(f.bytes())
	if err := r.cover(ctx, e, f); err != nil {
		return err
	}
	return r.lookUp(e, s, wasm)
}

// lookUp takes the module from a file of the cache; errNotInCache if there is none.
func (r *Runtime) lookUp(e *engine, s *store, wasm []byte) error {
	// wazero looks into the cache first. With more than one goroutine it checks the context before each
	// function, so that this one compiles none.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := r.compileWith(ctx, e, wasm, s.cache, 2)
	if errors.Is(err, context.Canceled) {
		return errNotInCache
	}
	return err
}

// compileApart makes a process compile the module into the store, or, if that cannot store it, into another
// directory.
func (r *Runtime) compileApart(ctx context.Context, s *store, c *code, wasm []byte, due time.Time) (*store, footprint, error) {
	var failed error
	if s != nil {
		f, err := r.compileIn(ctx, s, wasm, due)
		if _, notKept := errors.AsType[errNotKept](err); !notKept {
			return s, f, err
		}
		r.log.Warn("compiled module could not be written to the cache directory", "digest", c.info.Digest, "error", err)
		failed = err
	}
	r.mu.Lock()
	if r.spare == nil {
		var err error
		if r.spare, err = privateStore(r.log); err != nil {
			r.mu.Unlock()
			return nil, footprint{}, errNoChild{errors.Join(failed, err)}
		}
	}
	s = r.spare
	r.mu.Unlock()
	f, err := r.compileIn(ctx, s, wasm, due)
	return s, f, err
}

type onCompile struct{}

// OnCompile returns a context; Load calls f, in the caller's goroutine, before it compiles a module, but not if
// the compiled code is stored. f may be called several times.
func OnCompile(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, onCompile{}, f)
}

func noteCompile(ctx context.Context) {
	if f, ok := ctx.Value(onCompile{}).(func()); ok {
		f()
	}
}

// compileIn makes a process compile the module in the quick lane, which has a short time limit, and then in the
// long lane: a module that takes minutes delays only others like it. Without a store nothing is kept.
func (r *Runtime) compileIn(ctx context.Context, s *store, wasm []byte, due time.Time) (footprint, error) {
	noteCompile(ctx)
	in := func(l *lane, limit time.Duration) (footprint, error) {
		if err := l.enter(ctx, due); err != nil {
			return footprint{}, err
		}
		defer l.leave()
		return r.child.compile(ctx, s, wasm, limit)
	}
	if len(wasm) <= quickSize {
		if f, err := in(r.quick, quickTime); !errors.Is(err, errTakesLong) {
			return f, err
		}
	}
	return in(r.long, 0)
}

// interpret compiles the module for the interpreter, after a process has done so within limits.
func (r *Runtime) interpret(ctx context.Context, e *engine, wasm []byte) error {
	f, err := r.compileIn(ctx, nil, wasm, e.due)
	if err != nil {
		return err
	}
	e.code.measured.Store(f.bytes())
	if err := r.cover(ctx, e, f); err != nil {
		return err
	}
	return r.compileWith(ctx, e, wasm, r.memory, 1)
}

// compileHere compiles the module in this process, without limits, unless the cache has it. The size of its
// code is known afterwards, from the file in the cache.
func (r *Runtime) compileHere(ctx context.Context, e *engine, wasm []byte) error {
	if err := r.cover(ctx, e, guessed(len(wasm))); err != nil {
		return err
	}
	if r.cache == nil {
		return r.compileSlowly(ctx, e, wasm, r.memory)
	}
	r.cache.touch(wasm)
	err := r.lookUp(e, r.cache, wasm)
	if errors.Is(err, errNotInCache) || (err != nil && notRead(err)) {
		e.close()
		err = r.compileSlowly(ctx, e, wasm, r.cache.cache)
		r.cache.makeRoom(0)
	}
	// A cache that cannot be read or written must not prevent jobs from running.
	switch {
	case err == nil:
		return r.coverFile(ctx, e, wasm)
	case ctx.Err() != nil:
		return err
	case notWritten(err):
		// wazero v1.12.0 counts the module's use in memory first and then fails to
		// write the file.
		r.log.Warn("compiled module could not be written to the cache directory", "digest", e.code.info.Digest, "error", err)
		e.owed = true
		return guard(func() (err error) {
			e.compiled, err = e.rt.CompileModule(bare{ctx}, wasm)
			return err
		})
	case notRead(err):
		r.log.Warn("cache directory could not be read, the module is compiled anew", "digest", e.code.info.Digest, "error", err)
		e.close()
		return r.compileSlowly(ctx, e, wasm, r.memory)
	}
	return err
}

// compileSlowly compiles the module in this process while no other is being compiled.
func (r *Runtime) compileSlowly(ctx context.Context, e *engine, wasm []byte, cache wazero.CompilationCache) error {
	noteCompile(ctx)
	if err := r.long.enter(ctx, e.due); err != nil {
		return err
	}
	defer r.long.leave()
	return r.compileWith(ctx, e, wasm, cache, 1)
}

// coverFile replaces the estimate by the size of the file in the cache.
func (r *Runtime) coverFile(ctx context.Context, e *engine, wasm []byte) error {
	size, ok := r.cache.size(wasm)
	if !ok {
		return nil
	}
	f := footprint{Code: size, Heap: guessed(len(wasm)).Heap}
	e.code.measured.Store(f.bytes())
	r.uncover(e)
	return r.cover(ctx, e, f)
}

// compileWith compiles with so many goroutines. With one, a module that makes the compiler panic is refused;
// with more, the panic ends the process.
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

// trialHost is the host of a module that is being tried.
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
