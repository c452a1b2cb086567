package plugin

import (
	"context"
	"errors"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// What follows lets another process run a module's guests: this one reads,
// checks and meters the module, has it compiled, and keeps account of memory.

// ErrNotStored says that a module's compiled code is not in the directory where
// another process leaves it.
var ErrNotStored = errors.New("its compiled code is not there")

// MemoryHost is implemented by an abi.Host that accounts for memory itself.
type MemoryHost interface {
	// CoverMemory takes so many bytes in all for the invocation's worker: memory, tables
	// and native stacks, of which stacks are for those. The error names the limit that
	// refuses them.
	CoverMemory(bytes, stacks int64) error
}

// Packed is a module as one process gives it to another.
type Packed struct {
	Name       string
	Info       *wasm.Info
	TableBytes int64 // of an instance
	// Tried says that an instance was made on trial already.
	Tried bool
	// Wasm is the metered module.
	Wasm []byte `json:"-"`
}

// Pack makes a module ready for another process. Its result must not be changed.
// It fails if the module's bytes, which lie in a file, cannot be read.
func (m *Module) Pack() (Packed, error) {
	wasm, err := m.code.wasm.read()
	return Packed{Name: m.name, Info: m.code.info, TableBytes: m.code.tableBytes, Wasm: wasm}, err
}

// Unpack takes a module from another process, which has read and checked it.
func (r *Runtime) Unpack(p Packed) (*Module, error) {
	if p.Info == nil {
		return nil, errors.New("the module comes without what is known of it")
	}
	return r.open(p.Name, &code{info: p.Info, tableBytes: p.TableBytes, passed: p.Tried}, p.Wasm)
}

// Needs are what a job's guests need.
type Needs struct {
	// Type is SIMPLE, DATAFLOW or SCRIPT.
	Type string
	// Pages is the limit of a guest's linear memory, in pages of 64 KiB.
	Pages uint32
	// Least is what a guest begins with, in bytes.
	Least int64
	// Code is what the compiled module takes in the process that runs it, in
	// bytes; a guess before it was stored.
	Code int64
}

// Needs checks settings as Executor does, and neither compiles nor runs anything.
// The error is a [*LoadError].
func (m *Module) Needs(s Settings) (Needs, error) {
	typ, pages, err := m.check(s)
	if err != nil {
		return Needs{}, err
	}
	return Needs{Type: typ, Pages: pages, Least: m.code.leastMemory(), Code: m.code.bytes()}, nil
}

// HasListener reports whether the module has the listener export, if it is run
// as the type.
func (m *Module) HasListener(typ, export string) bool { return m.code.info.HasListener(typ, export) }

// TrialNeeds is what an instance needs with which the module is tried before a job is
// known; false if it begins with more memory than the default limit, and is not tried.
func (m *Module) TrialNeeds() (Needs, bool) {
	return Needs{Pages: m.code.trialPages(), Least: m.code.leastMemory(), Code: m.code.bytes()}, m.code.triable()
}

func (c *code) triable() bool { return c.info.MemoryMinPages <= abi.DefaultMemory/wasm.PageSize }

func (c *code) trialPages() uint32 {
	return max(uint32(abi.DefaultMemory/wasm.PageSize), c.info.MemoryMinPages)
}

// Try makes an instance with the memory limit, runs its initialisation, and
// drops it. The error is a [*LoadError], or wraps that of ctx.
func (m *Module) Try(ctx context.Context, pages uint32) error {
	if err := m.r.prove(ctx, m.code, pages, time.Time{}); err != nil {
		return m.refused(ctx, err)
	}
	return nil
}

// Refused is the error of a module that another process could not compile or
// try, for the reason that err gives.
func (m *Module) Refused(err error) error { return m.refused(context.Background(), err) }

// Retain adds a use of the module, which keeps the runtime from closing; it is
// ended with Release. It reports false if the runtime is closed.
func (m *Module) Retain() bool {
	m.r.mu.Lock()
	defer m.r.mu.Unlock()
	if m.r.closed {
		return false
	}
	m.code.uses++
	return true
}

// Release ends a use that Retain has added.
func (m *Module) Release() { m.r.releaseCode(m.code) }

// Store has the module compiled for worker processes, unless its code is there already; anew if that
// was of no use to one. It is compiled in the same
// lanes and by the same kind of process as any other. The error is a [*LoadError], or wraps that of ctx.
func (m *Module) Store(ctx context.Context, anew bool) error {
	if err := m.r.store(ctx, m.code, anew); err != nil {
		return m.refused(ctx, err)
	}
	return nil
}

func (r *Runtime) store(ctx context.Context, c *code, anew bool) error {
	wasm, err := c.wasm.read()
	if err != nil {
		return err
	}
	s, err := r.workerStore()
	if err != nil {
		return err
	}
	f, ok := s.find(wasm)
	if !ok || anew {
		if f, err = r.compileIn(ctx, s, wasm, time.Time{}); err != nil {
			return err
		}
	}
	c.measured.Store(f.bytes())
	return nil
}

// workerStore is where worker processes find compiled code: the cache, or without one a directory that Close
// removes.
func (r *Runtime) workerStore() (*store, error) {
	if r.cache != nil {
		return r.cache, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.workers == nil {
		s, err := privateStore(r.log)
		if err != nil {
			return nil, err
		}
		r.workers = s
	}
	return r.workers, nil
}

// StoreDir is where Store leaves compiled code: the cache, or without one a
// directory in [os.TempDir] that Close removes. Empty: there is no process that
// compiles, and who runs the module compiles it.
func (r *Runtime) StoreDir() (string, error) {
	if r.child == nil || r.engine == engineInterpreter {
		return "", nil
	}
	s, err := r.workerStore()
	if err != nil {
		return "", err
	}
	return s.dir, nil
}

// Possible says what is wrong with a job that needs so many bytes at once to begin
// with: more than the memory budget ever gives it.
func (r *Runtime) Possible(bytes int64) error { return r.budget.possible(bytes) }

// Account is memory of the budget that is in use outside of this process. One
// goroutine at a time uses it.
type Account struct{ a account }

// Admit waits until a job may have so many bytes, and takes them.
func (r *Runtime) Admit(ctx context.Context, job string, bytes int64) (*Account, error) {
	if err := r.budget.admit(ctx, job, bytes); err != nil {
		return nil, err
	}
	return &Account{account{budget: r.budget, job: job, has: bytes}}, nil
}

// Cover takes what is missing of so many bytes in all. The error names the limit
// that refuses them.
func (a *Account) Cover(bytes int64) error {
	if bytes > a.a.has {
		if err := a.a.budget.grow(a.a.job, bytes-a.a.has); err != nil {
			return err
		}
		a.a.has = bytes
	}
	return nil
}

// Split moves so many bytes, of those that the account has, to a new one, which is
// that of another job from now on.
func (a *Account) Split(bytes int64, job string) *Account {
	a.a.has -= bytes
	a.a.budget.move(a.a.job, job, bytes)
	return &Account{account{budget: a.a.budget, job: job, has: bytes}}
}

// ModuleLimit is how much compiled code may take while no guest needs the memory, in
// bytes; 0 is no limit.
func (r *Runtime) ModuleLimit() int64 { return r.moduleLimit }

// OnShortage has f called when a worker begins to wait for memory: who has some
// for later is to give it back. It is called once, before the first Admit.
func (r *Runtime) OnShortage(f func()) {
	r.budget.mu.Lock()
	defer r.budget.mu.Unlock()
	r.budget.short = f
}

// Bytes is what the account has.
func (a *Account) Bytes() int64 { return a.a.has }

// Close gives everything back.
func (a *Account) Close() { a.a.close() }
