package plugin

import (
	"context"
	"errors"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// The following lets another process run a module's guests: this one reads, checks and meters the module, has
// it compiled, and accounts for memory.

// ErrNotStored says that a module's compiled code is not in the directory where
// another process leaves it.
var ErrNotStored = errors.New("its compiled code is not there")

// MemoryHost is implemented by an abi.Host that accounts for memory itself.
type MemoryHost interface {
	// CoverMemory reserves a total of bytes for the invocation's worker: memory, tables and native stacks;
	// stacks is the part for native stacks. The error names the limit that was reached.
	CoverMemory(bytes, stacks int64) error
}

// Packed is a module in the form in which one process passes it to another.
type Packed struct {
	Name       string
	Info       *wasm.Info
	TableBytes int64 // of an instance
	// Tried says that a trial instance was made already.
	Tried bool
	// Wasm is the metered module.
	Wasm []byte `json:"-"`
}

// Pack prepares a module for another process. The result is read-only. It fails if the module's bytes cannot be
// read from their file.
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
	// Least is the initial memory of a guest, in bytes.
	Least int64
	// Code is the size of the compiled module in the process that runs it, in bytes; an estimate before it was
	// stored.
	Code int64
}

// Needs checks settings as Executor does, without compiling or running the module. The error is a [*LoadError].
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

// TrialNeeds returns what a trial instance needs before a job is known; false if its initial memory exceeds the
// default limit, so that it is not tried.
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

// Refused returns the error of a module that another process could not compile or try because of err.
func (m *Module) Refused(err error) error { return m.refused(context.Background(), err) }

// Retain adds a use of the module, which prevents the runtime from closing; end it with Release. It returns
// false if the runtime is closed.
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

// Store compiles the module for worker processes, unless its code is stored already; anew recompiles because a
// worker process could not use the stored code. It uses the same lanes and the same kind of process as other
// compilations. The error is a [*LoadError], or wraps that of ctx.
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

// workerStore returns where worker processes find compiled code: the cache, or without one a directory that
// Close removes.
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

// StoreDir is where Store puts compiled code: the cache, or without one a directory in [os.TempDir] that Close
// removes. Empty: there is no compiling process, and the process that runs the module compiles it.
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

// Possible returns an error if a job needs more bytes at its start than the memory budget can ever give it.
func (r *Runtime) Possible(bytes int64) error { return r.budget.possible(bytes) }

// Account is memory of the budget that is used outside this process. Only one goroutine at a time may use it.
type Account struct{ a account }

// Admit waits until a job may have so many bytes, and reserves them.
func (r *Runtime) Admit(ctx context.Context, job string, bytes int64) (*Account, error) {
	if err := r.budget.admit(ctx, job, bytes); err != nil {
		return nil, err
	}
	return &Account{account{budget: r.budget, job: job, has: bytes}}, nil
}

// Cover raises the reservation to a total of bytes. The error names the limit that was reached.
func (a *Account) Cover(bytes int64) error {
	if bytes > a.a.has {
		if err := a.a.budget.grow(a.a.job, bytes-a.a.has); err != nil {
			return err
		}
		a.a.has = bytes
	}
	return nil
}

// Split moves bytes of the account to a new one for another job.
func (a *Account) Split(bytes int64, job string) *Account {
	a.a.has -= bytes
	a.a.budget.move(a.a.job, job, bytes)
	return &Account{account{budget: a.a.budget, job: job, has: bytes}}
}

// ModuleLimit is how much compiled code may take while no guest needs the memory, in
// bytes; 0 is no limit.
func (r *Runtime) ModuleLimit() int64 { return r.moduleLimit }

// OnShortage sets f, which is called when a worker begins to wait for memory, so that memory reserved for later
// is given back. Call it once, before the first Admit.
func (r *Runtime) OnShortage(f func()) {
	r.budget.mu.Lock()
	defer r.budget.mu.Unlock()
	r.budget.short = f
}

// Bytes is the reserved total.
func (a *Account) Bytes() int64 { return a.a.has }

// Close gives everything back.
func (a *Account) Close() { a.a.close() }
