package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Module is one loaded file. It is safe for concurrent use.
type Module struct {
	r    *Runtime
	name string
	code *code
	once sync.Once
}

// Digest is the lower-case hex SHA-256 of the file.
func (m *Module) Digest() string { return m.code.info.Digest }

// Info is what the module says about itself. It must not be changed.
func (m *Module) Info() *wasm.Info { return m.code.info }

// Close ends the loader's use. Executors continue; the last one frees the compiled code. Further calls do
// nothing.
func (m *Module) Close() {
	m.once.Do(func() {
		m.r.mu.Lock()
		delete(m.r.modules, m)
		m.r.mu.Unlock()
		m.r.releaseCode(m.code)
	})
}

// Settings configure a module for one job.
type Settings struct {
	JobName string
	// Type is SIMPLE, DATAFLOW or SCRIPT. Empty: the only one that the
	// module's exports allow.
	Type string
	// Streaming makes a DATAFLOW job fetch and process until nothing is
	// left. Otherwise it does so once per fire.
	Streaming bool
	// FreshPerItem gives each item an instance of its own, instead of one
	// to each worker. A SCRIPT always gets its own.
	FreshPerItem bool
	// MemoryLimit bounds linear memory, in bytes; it is rounded down to
	// whole pages of 64 KiB. 0 is abi.DefaultMemory.
	MemoryLimit int64
	// Args, after its name, and Env are what a WASI guest gets. A SCRIPT
	// gets more, see the package's comment.
	Args []string
	Env  map[string]string
	// PluginConfig is what ctx_str gives for abi.CtxPluginConfig during
	// _initialize, and in invocations whose context has none.
	PluginConfig []byte
	Mounts       []Mount
	// Group names the jobs that share the host's dedicated processes.
	Group string
	// Granted are the import modules of capabilities that the job may use.
	Granted []string
	// CallTimeout bounds each call of job_fetch and job_process of a
	// streaming job. 0 is no bound.
	CallTimeout time.Duration
}

// Mount shows a directory of the host to the guest. Symbolic links do not lead out of it.
type Mount struct {
	Host  string // a directory
	Guest string // an absolute, clean path
	// Write lets the guest write to it, through the invocation's abi.Outside, which numbers these directories
	// in this order.
	Write bool
}

// Executor configures the module for a job. A [*LoadError] has all problems of the settings. The caller owns
// one use of the result, and ends it with Release.
func (m *Module) Executor(s Settings) (abi.Executor, error) {
	typ, pages, err := m.check(s)
	if err != nil {
		return nil, err
	}
	s.Args = slices.Clone(s.Args)
	s.Env = maps.Clone(s.Env)
	s.PluginConfig = slices.Clone(s.PluginConfig)
	s.Mounts = slices.Clone(s.Mounts)
	s.Granted = slices.Clone(s.Granted)
	x := &executor{r: m.r, code: m.code, pages: pages, settings: s, typ: typ, name: guestName(m.name)}
	x.config = x.baseConfig()
	x.Begin()
	m.r.mu.Lock()
	m.code.uses++
	m.r.executors[x] = struct{}{}
	m.r.mu.Unlock()
	if m.code.proved(m.r, pages) {
		return x, nil
	}
	if err := m.r.prove(context.Background(), m.code, pages, time.Time{}); err != nil {
		x.Release()
		return nil, m.refused(context.Background(), err)
	}
	return x, nil
}

// refused returns the error of a module that could not be compiled or tried. If ctx ended it, it is not the
// module's fault.
func (m *Module) refused(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return fmt.Errorf("load %s: %w", m.name, err)
	}
	return &LoadError{Name: m.name, Problems: []string{err.Error()}, Err: err}
}

// check returns all problems of the settings, the resulting job type, and the memory limit in pages. The error
// is a [*LoadError].
func (m *Module) check(s Settings) (typ string, pages uint32, err error) {
	info := m.code.info
	refused := &LoadError{Name: m.name}

	if typ, err = info.JobType(s.Type); err != nil {
		refused.add("%s", err)
	}
	if pages, err = m.Pages(s.MemoryLimit); err != nil {
		refused.add("%s", err)
	}
	s.checkImports(info, refused)
	if err := m.r.budget.possible(m.code.leastMemory()); err != nil {
		refused.add("%s", err)
	}
	s.checkEnvironment(refused)
	s.checkMounts(refused)
	if s.CallTimeout < 0 {
		refused.add("call timeout of %s, expected 0 or more", s.CallTimeout)
	}
	if len(refused.Problems) > 0 {
		return "", 0, refused
	}
	return typ, pages, nil
}

// Pages is a memory limit, as Settings has it, in pages. The error says why the module cannot run within it.
func (m *Module) Pages(limit int64) (uint32, error) {
	limit = cmp.Or(limit, abi.DefaultMemory)
	n, least := limit/wasm.PageSize, int64(m.code.info.MemoryMinPages)
	switch {
	case n < 1:
		return 0, fmt.Errorf("memory limit of %d bytes, expected at least one page of %d", limit, wasm.PageSize)
	case n > wasm.MostPages:
		return 0, fmt.Errorf("memory limit of %d bytes, expected at most 2 GiB", limit)
	case least > n:
		return 0, fmt.Errorf("the module begins with %d bytes of memory, the limit is %d", least*wasm.PageSize, limit)
	}
	return uint32(n), nil
}

// checkImports refuses a module that needs a capability that is not granted.
func (s *Settings) checkImports(info *wasm.Info, refused *LoadError) {
	for _, module := range slices.Sorted(maps.Keys(info.Imports)) {
		// Handles are granted with every capability that returns handles.
		if module != abi.ModuleIO && abi.IsCapability(module) && !slices.Contains(s.Granted, module) {
			refused.add("the module imports %s from %s, which is not granted to the job (--grants)",
				words.Some(info.Imports[module], ", "), module)
		}
	}
}

func (s *Settings) checkEnvironment(refused *LoadError) {
	for i, a := range s.Args {
		if strings.ContainsRune(a, 0) {
			refused.add("argument %d contains a NUL byte", i)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			refused.add("environment variable %q: expected a name without '=' and NUL", k)
		}
		if strings.ContainsRune(s.Env[k], 0) {
			refused.add("environment variable %s contains a NUL byte", k)
		}
	}
}

func (s *Settings) checkMounts(refused *LoadError) {
	guests := map[string]bool{}
	for _, mount := range s.Mounts {
		if !path.IsAbs(mount.Guest) || path.Clean(mount.Guest) != mount.Guest {
			refused.add("mount of %s: guest path %q, expected an absolute path in its shortest form", mount.Host, mount.Guest)
		}
		if guests[mount.Guest] {
			refused.add("mount of %s: guest path %s is mounted twice", mount.Host, mount.Guest)
		}
		guests[mount.Guest] = true
		if mount.Write {
			continue // the host opens it when it is used; a worker process must not
		}
		root, err := os.OpenRoot(mount.Host)
		if err != nil {
			refused.add("mount at %s: %s", mount.Guest, err)
			refused.Err = err // it may be temporary
			continue
		}
		root.Close()
	}
}

// guestName is what a guest sees as its own name.
func guestName(name string) string {
	name = strings.ReplaceAll(name, "\x00", "")
	name = strings.TrimSuffix(path.Base(strings.ReplaceAll(name, `\`, "/")), ".wasm")
	if name == "" || name == "." || name == "/" {
		return "job"
	}
	return name
}

// executor implements abi.Executor.
type executor struct {
	r        *Runtime
	code     *code
	pages    uint32 // the memory limit
	settings Settings
	typ      string
	name     string              // as the guest sees it
	config   wazero.ModuleConfig // without what belongs to one instance

	Uses
	// expected is the most that an instance has needed, in bytes.
	expected atomic.Int64

	next time.Time // see Expect; guarded by Runtime.mu

	metrics MetricNames
}

func (x *executor) Digest() string { return x.code.info.Digest }

// Type is SIMPLE, DATAFLOW or SCRIPT: what the job runs the module as.
func (x *executor) Type() string { return x.typ }

// About is the module's size in bytes, and what it imports from.
func (x *executor) About() (size int, imports []string) { return x.code.info.About() }

func (x *executor) HasListener(export string) bool {
	return x.code.info.HasListener(x.typ, export)
}

func (x *executor) Release() {
	if x.End() {
		x.r.mu.Lock()
		delete(x.r.executors, x)
		x.r.mu.Unlock()
		x.r.releaseCode(x.code)
	}
}

// Expect implements abi.Executor.
func (x *executor) Expect(next time.Time) {
	if !x.r.evicts() {
		return
	}
	x.r.mu.Lock()
	x.next = next
	x.r.mu.Unlock()
	if x.out() {
		x.r.nudge()
	}
}

// out reports whether the module is not in memory.
func (x *executor) out() bool {
	x.r.mu.Lock()
	defer x.r.mu.Unlock()
	return x.code.engine == nil
}

// NewWorker waits until the module is in memory, and as much memory is free as a guest of this job has needed
// so far. Its result holds a use of the executor until it is closed, so that the code outlives every instance.
// If the module cannot be loaded again, the first invocation reports why.
func (x *executor) NewWorker(ctx context.Context) (abi.Worker, error) {
	if !x.Retain() {
		return nil, errReleased
	}
	if x.out() {
		x.r.budget.isLate()
	}
	e, err := x.r.acquire(ctx, x.code, time.Now())
	if err != nil && ctx.Err() == nil {
		return &worker{x: x, failed: err}, nil
	}
	if err != nil {
		x.Release()
		return nil, err
	}
	a, err := x.admit(ctx)
	if err != nil {
		x.r.release(e)
		x.Release()
		return nil, err
	}
	return &worker{x: x, engine: e, account: a}, nil
}

var errReleased = errors.New("the executor was released")

// leastMemory is the initial memory of an instance, in bytes.
func (c *code) leastMemory() int64 {
	return guestBase + c.tableBytes + int64(c.info.MemoryMinPages)*wasm.PageSize
}

// admit opens an account for the expected need of an instance.
func (x *executor) admit(ctx context.Context) (*account, error) {
	c := x.code
	a := &account{budget: x.r.budget, job: x.settings.JobName, fixed: guestBase + c.tableBytes}
	need := max(c.leastMemory(), x.expected.Load())
	if err := a.budget.admit(ctx, a.job, need); err != nil {
		return nil, err
	}
	a.has = need
	return a, nil
}

// expect notes what an instance has needed.
func (x *executor) expect(bytes int64) {
	for {
		n := x.expected.Load()
		if bytes <= n || x.expected.CompareAndSwap(n, bytes) {
			return
		}
	}
}

func (x *executor) baseConfig() wazero.ModuleConfig {
	c := wazero.NewModuleConfig().
		WithName("").         // anonymous: a named one could exist only once
		WithStartFunctions(). // we call them ourselves
		WithSysWalltime().
		WithSysNanotime().
		WithOsyield(runtime.Gosched)
	for _, k := range slices.Sorted(maps.Keys(x.settings.Env)) {
		c = c.WithEnv(k, x.settings.Env[k])
	}
	if x.typ != wasm.TypeScript {
		c = c.WithArgs(append([]string{x.name}, x.settings.Args...)...)
	}
	return c
}

// MetricNames are the names of metrics that a job uses. The zero value is none. It is
// safe for concurrent use.
type MetricNames struct {
	mu    sync.Mutex
	names map[string]string // each maps to itself
}

// Use returns a valid name, unless the job uses too many. It allocates only for a new name.
func (m *MetricNames) Use(name []byte) (string, abi.Code) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n, ok := m.names[string(name)]; ok {
		return n, abi.OK
	}
	if len(m.names) >= abi.MaxMetricNames {
		return "", abi.ErrQuota
	}
	if m.names == nil {
		m.names = map[string]string{}
	}
	n := string(name)
	m.names[n] = n
	return n, abi.OK
}
