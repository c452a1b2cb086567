// Package offer gives an executor the granted capabilities of its job. It is a layer between the host and the
// executor, so it is the same for guests of this process, of worker processes, and of `wasmjob invoke`.
package offer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/sandbox/capability"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/dir"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/env"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/http"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/kv"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/net"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
)

// Settings returns the settings of a job's executor with the grant's additions.
func Settings(s plugin.Settings, grant *grants.Grant) plugin.Settings {
	s.Env, s.PluginConfig, s.Mounts = grant.Env, grant.Config, nil
	s.Granted = append(grant.Modules(), s.Granted...)
	for _, d := range grant.Dirs {
		s.Mounts = append(s.Mounts, plugin.Mount{Host: d.Host, Guest: d.Guest, Write: d.Write})
	}
	return s
}

// Wrap returns an executor with the job's granted capabilities around another one. It takes over the caller's
// use of that one. signer names the signer of the module. The quotas are those of all jobs of the process.
// Connections are kept from fire to fire, and closed with the last use of the executor.
func Wrap(x abi.Executor, grant *grants.Grant, signer string, quotas *dir.Quotas) abi.Executor {
	e := &executor{Executor: x, grant: grant, nothing: grant.Nothing(), signer: signer, quotas: quotas, secrets: newSecrets(grant.Secrets), uses: 1}
	if len(grant.HTTP) > 0 {
		e.http = http.New(grant, http.Options{Secret: e.secrets.value})
	}
	if len(grant.Net) > 0 {
		e.net = net.New(grant)
	}
	return e
}

// executor is an abi.Executor with a grant.
type executor struct {
	abi.Executor
	grant   *grants.Grant
	nothing bool // nothing that the host carries out is granted
	signer  string
	quotas  *dir.Quotas
	secrets *secrets
	http    *http.Instance // nil: not granted
	net     *net.Instance  // likewise

	mu   sync.Mutex
	uses int
}

// Signer names the key that signed the module; empty if there is no known signature.
func (x *executor) Signer() string { return x.signer }

// Type is the job type that the module's exports imply; empty if they imply none.
func (x *executor) Type() string {
	if typed, ok := x.Executor.(interface{ Type() string }); ok {
		return typed.Type()
	}
	return ""
}

// About returns the module's size in bytes, and its import modules.
func (x *executor) About() (size int, imports []string) {
	if inner, ok := x.Executor.(interface{ About() (int, []string) }); ok {
		return inner.About()
	}
	return 0, nil
}

// Grants describes the job's grants, in a few words each.
func (x *executor) Grants() []string { return x.grant.Words() }

// Retain implements abi.Executor.
func (x *executor) Retain() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.Executor.Retain() {
		return false
	}
	x.uses++
	return true
}

// Release implements abi.Executor.
func (x *executor) Release() {
	x.Executor.Release()
	x.end()
}

// end ends a use; each worker is one.
func (x *executor) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.uses--; x.uses > 0 {
		return
	}
	if x.http != nil {
		x.http.Close()
	}
	if x.net != nil {
		x.net.Close()
	}
}

// functions returns what a run may call, except its state and directories.
func (x *executor) functions() map[string]capability.Function {
	functions := env.Functions(x.secrets.value)
	if x.http != nil {
		maps.Copy(functions, x.http.Functions())
	}
	if x.net != nil {
		maps.Copy(functions, x.net.Functions())
	}
	return functions
}

// NewWorker implements abi.Executor.
func (x *executor) NewWorker(ctx context.Context) (abi.Worker, error) {
	w, err := x.Executor.NewWorker(ctx)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	x.uses++
	x.mu.Unlock()
	return &worker{Worker: w, x: x}, nil
}

// worker is a worker of one fire.
type worker struct {
	abi.Worker
	x     *executor
	plain plain
	used  atomic.Bool // plain is in use
}

// Depth implements abi.Pipelined.
func (w *worker) Depth() int {
	if p, ok := w.Worker.(abi.Pipelined); ok {
		return p.Depth()
	}
	return 1
}

// plain is an invocation of a job without grants. The next invocation reuses it, so that it costs nothing
// unless several run at once.
type plain struct {
	inv   abi.Invocation
	host  host
	state kv.State
}

// Close implements abi.Worker.
func (w *worker) Close() error {
	defer w.x.end()
	return w.Worker.Close()
}

// Execute implements abi.Worker.
func (w *worker) Execute(ctx context.Context, inv *abi.Invocation) abi.Result {
	if inv == nil || inv.Host == nil {
		return w.Worker.Execute(ctx, inv) // it says what is wrong
	}
	p := &w.plain
	if w.x.nothing && w.used.CompareAndSwap(false, true) {
		defer w.used.Store(false)
	} else {
		p = new(plain) // open streams identify their run by it
	}
	if err := p.state.Decode(inv.Offset, inv.HasOffset); err != nil {
		return abi.Result{Outcome: abi.OutcomeError, Message: err.Error(), Err: err}
	}
	end := w.begin(p, inv)
	p.inv.Offset, p.inv.HasOffset = p.state.Offset, p.state.HasOffset
	r := w.Worker.Execute(ctx, &p.inv)
	end.finish(&r)
	if r.Outcome == abi.OutcomeOK && (r.Staged || p.state.Changed()) {
		offset, has := p.state.Offset, p.state.HasOffset
		if r.Staged {
			offset, has = r.Offset, true
		}
		r.Offset, r.Staged = p.state.Encode(offset, has), true
	}
	return r
}

// Listen implements abi.Worker.
func (w *worker) Listen(ctx context.Context, export string, inv *abi.Invocation) abi.Result {
	if inv == nil || inv.Host == nil {
		return w.Worker.Listen(ctx, export, inv)
	}
	p := &plain{}
	end := w.begin(p, inv)
	r := w.Worker.Listen(ctx, export, &p.inv)
	end.finish(&r)
	return r
}

// begin builds the guest's invocation, and what must be ended after it.
func (w *worker) begin(p *plain, inv *abi.Invocation) outside {
	p.inv = *inv
	p.host = host{Host: inv.Host, state: &p.state, secrets: w.x.secrets}
	p.inv.Host = &p.host
	if whole := inv.WholeLog; whole != nil {
		p.inv.WholeLog = &abi.WholeLog{Where: whole.Where, Add: func(ctx context.Context, level int, msg string, kv []string) {
			w.x.secrets.redactAll(kv)
			whole.Add(ctx, level, w.x.secrets.redact(msg), kv)
		}}
	}
	if w.x.nothing {
		return outside{}
	}
	dirs := dir.New(w.x.grant.Dirs, w.x.quotas)
	functions := w.x.functions()
	maps.Copy(functions, kv.Functions(&p.state))
	maps.Copy(functions, dirs.Functions())
	c := &inv.Context
	run := capability.NewRun(capability.Info{Job: c.JobName, RunID: c.RunID, Fence: c.Fence, Traceparent: c.Traceparent},
		w.x.grant, &p.host, functions)
	run.Redact = w.x.secrets.redact
	if caller, ok := inv.Host.(interface{ OutsideCall(abi.OutsideCall) }); ok {
		run.Called = caller.OutsideCall
	}
	p.inv.Outside = run
	return outside{run, dirs, w.x.secrets}
}

// outside has a run's capabilities; zero if none is granted.
type outside struct {
	run     *capability.Run
	dirs    *dir.Dirs
	secrets *secrets
}

// finish ends it, and completes the result.
func (o outside) finish(r *abi.Result) {
	r.Outside = nil // a worker process does not count it
	if o.run == nil {
		if r.Reads > 0 {
			r.Outside = map[string]abi.OutsideCount{"dir": {Calls: r.Reads, Received: r.ReadBytes}}
		}
		return
	}
	o.run.Close()
	o.dirs.Close()
	if r.Reads > 0 {
		o.run.Usage.Add("dir", func(c *abi.OutsideCount) {
			c.Calls += r.Reads
			c.Received += r.ReadBytes
		})
	}
	r.Message, r.Outside = o.secrets.redact(r.Message), o.run.Usage.All()
	if r.Err != nil {
		r.Err = &redacted{o.secrets.redact(r.Err.Error()), r.Err}
	}
	if r.Outcome == abi.OutcomeOK {
		return
	}
	for _, why := range []string{o.dirs.Full(), capability.Slow(r.Outside)} {
		if why != "" {
			r.Message = strings.TrimPrefix(r.Message+"; "+why, "; ")
		}
	}
}

// redacted is an error without secrets. errors.As still finds the original.
type redacted struct {
	text string
	err  error
}

func (r *redacted) Error() string { return r.text }
func (r *redacted) Unwrap() error { return r.err }

// host is the abi.Host of an invocation, which adds the item's state to its offset.
type host struct {
	abi.Host
	state   *kv.State
	secrets *secrets
}

// AwaitCancel implements capability.Owner.
func (h *host) AwaitCancel(ctx context.Context) {
	if a, ok := h.Host.(interface{ AwaitCancel(context.Context) }); ok {
		a.AwaitCancel(ctx)
		return
	}
	<-ctx.Done()
}

// Log implements abi.Host.
func (h *host) Log(level int, msg string, kv []string) {
	h.secrets.redactAll(kv)
	h.Host.Log(level, h.secrets.redact(msg), kv)
}

// CommitOffset implements abi.Host. Without an offset it commits what is staged of
// the state.
func (h *host) CommitOffset(ctx context.Context, offset []byte) abi.Code {
	return h.save(ctx, offset, h.Host.CommitOffset)
}

// StageOffset implements abi.Host, likewise.
func (h *host) StageOffset(ctx context.Context, offset []byte) abi.Code {
	return h.save(ctx, offset, h.Host.StageOffset)
}

func (h *host) save(ctx context.Context, offset []byte, save func(context.Context, []byte) abi.Code) abi.Code {
	has := true
	if offset == nil {
		if !h.state.Changed() {
			return abi.OK
		}
		offset, has = h.state.Offset, h.state.HasOffset
	}
	code := save(ctx, h.state.Encode(offset, has))
	if code == abi.OK {
		h.state.Taken(offset, has)
	}
	return code
}

// secrets are a job's secrets, read on demand. It is safe for concurrent use.
type secrets struct {
	granted map[string]grants.Secret

	mu       sync.Mutex
	values   map[string]string // that were read, the newest of each
	former   []grants.Named    // those before, the newest first
	redactor *grants.Redactor  // of values and former
}

// maxFormer is how many replaced secret values are still redacted from logs.
const maxFormer = 16

func newSecrets(granted map[string]grants.Secret) *secrets {
	return &secrets{granted: granted, values: map[string]string{}}
}

// value reads a secret.
func (s *secrets) value(name string) (string, error) {
	where, ok := s.granted[name]
	if !ok {
		return "", errors.New("it is not granted")
	}
	value, err := grants.Resolve(where)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.values[name]
	if known && old == value {
		return value, nil
	}
	if known {
		s.former = append([]grants.Named{{Name: name, Value: old}}, s.former[:min(len(s.former), maxFormer-1)]...)
	}
	s.values[name] = value
	var all []grants.Named
	for _, name := range slices.Sorted(maps.Keys(s.values)) {
		all = append(all, grants.Named{Name: name, Value: s.values[name]})
	}
	s.redactor = grants.NewRedactor(append(all, s.former...)...)
	return value, nil
}

func (s *secrets) redactAll(texts []string) {
	for i, text := range texts {
		texts[i] = s.redact(text)
	}
}

// redact replaces the values that were read in a text.
func (s *secrets) redact(text string) string {
	s.mu.Lock()
	r := s.redactor
	s.mu.Unlock()
	return r.Redact(text)
}
