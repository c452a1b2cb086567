package catalog

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/config/builtin"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/config/definition"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/dir"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/offer"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/process"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// loader compiles modules. The catalog's own tests have one without guests.
type loader interface {
	// load compiles a module with its file name and bytes. The error is a *plugin.LoadError if the module is at fault.
	// apart says that all jobs that name the module run in their own processes, so that load also tries it in one. due is
	// when the first of them fires; zero: unknown. load calls compiles before it compiles the module, but not if the
	// compiled code is cached.
	// is compiled, and not if its compiled code is kept.
	load(ctx context.Context, name string, wasm []byte, apart bool, due time.Time, compiles func()) (compiled, error)
}

// compiled is a module that is ready. It is safe for concurrent use.
type compiled interface {
	// bind returns the module as the job sees it.
	bind(job string, g granted) engine.Module
	// imports returns the import modules, with the names that are imported from each.
	imports() map[string][]string
	// apart reports whether the module was loaded only for processes.
	apart() bool
	// close ends the catalog's use. Executors stay usable.
	close()
}

// parser reads a definition file. It returns jobs or problems, not both. The jobs have the defaults of shared, and name
// their modules by their path in the directory.
type parser func(file string, data []byte, shared []*definition.Shared) ([]definition.Definition, complaints)

// parseWithin returns the parser of a host with ceilings.
func parseWithin(ceilings ceiling.List) parser {
	return func(file string, data []byte, shared []*definition.Shared) ([]definition.Definition, complaints) {
		list, err := definition.ParseWithin(file, data, ceilings, shared...)
		for i := range list {
			list[i].Module = beside(file, list[i].Module)
		}
		return list, complaintsOf(err)
	}
}

// complaintsOf returns the problems of a definition; none without an error.
func complaintsOf(err error) (problems complaints) {
	if err == nil {
		return problems
	}
	e := (*definition.Error)(nil)
	if !errors.As(err, &e) {
		return about(err.Error())
	}
	for _, p := range e.Problems {
		text := p.Message
		if p.Field != "" {
			text = p.Field + ": " + text
		}
		problems.Add(complaint{line: p.Line, column: p.Column, text: text})
	}
	problems.Count(e.More)
	return problems
}

// streamCallTimeout bounds one call of job_fetch or job_process of a streaming job, which may have no timeout for the
// whole item. A batch that takes longer is too large for useful resumption.
const streamCallTimeout = 5 * time.Minute

// terms are the operator's settings for all jobs.
type terms struct {
	ceilings  ceiling.List
	placement Placement
	allowed   []string    // capabilities that every job may use
	quotas    *dir.Quotas // of the directories that jobs write to
}

type runtimeLoader struct {
	runtime *plugin.Runtime
	workers *process.Workers // nil: there are none
	terms
}

// placed completes the placement: without worker processes guests run in this process.
func placed(o Options) Options {
	o.Placement.workers = o.Workers != nil
	return o
}

func loaderOf(o Options) runtimeLoader {
	return runtimeLoader{o.Runtime, o.Workers, terms{o.Ceilings, o.Placement, o.Granted, dir.NewQuotas()}}
}

func (l runtimeLoader) load(ctx context.Context, name string, module []byte, apart bool, due time.Time, compiles func()) (compiled, error) {
	ctx = plugin.OnCompile(ctx, compiles)
	if !apart {
		m, err := l.runtime.Load(ctx, name, module, due)
		if err != nil {
			return nil, err
		}
		return l.compiled(m, false), nil
	}
	m, err := l.runtime.Open(name, module)
	if err != nil {
		return nil, err
	}
	c := l.compiled(m, true)
	if c.process != nil {
		err = c.process.Try(ctx)
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	return c, nil
}

func (l runtimeLoader) compiled(m *plugin.Module, apart bool) compiledModule {
	c := compiledModule{m, nil, apart, l.terms}
	if l.workers != nil {
		c.process = l.workers.Module(m)
	}
	return c
}

type compiledModule struct {
	*plugin.Module
	process *process.Module // nil: there are no worker processes
	alone   bool            // in processes
	terms
}

func (m compiledModule) bind(_ string, g granted) engine.Module {
	return &boundModule{m.Module, m.process, g, m.terms}
}
func (m compiledModule) imports() map[string][]string { return m.Info().Imports }
func (m compiledModule) apart() bool                  { return m.alone }
func (m compiledModule) close()                       { m.Close() }

// boundModule is a module with the operator's grants for one job.
type boundModule struct {
	module  *plugin.Module
	process *process.Module
	granted granted
	terms
}

// Digest implements [engine.Module].
func (m *boundModule) Digest() string { return m.module.Digest() }

// Granted implements [engine.Module].
func (m *boundModule) Granted() string { return m.granted.key }

// Executor implements [engine.Module].
func (m *boundModule) Executor(c jobconfig.Configuration) (abi.Executor, error) {
	x, err := m.executor(c)
	if err != nil {
		return nil, err
	}
	return offer.Wrap(x, m.granted.Grant, m.granted.by.signer, m.quotas), nil
}

func (m *boundModule) executor(c jobconfig.Configuration) (abi.Executor, error) {
	s, err := m.settings(c)
	if err == nil {
		err = dir.Check(m.granted.Dirs)
	}
	if err != nil {
		return nil, err
	}
	at, err := m.where(c)
	if err != nil {
		return nil, fmt.Errorf("isolation: %w", err)
	}
	if at == inHost {
		return m.module.Executor(s)
	}
	ctx, cancel := context.WithTimeout(context.Background(), processTime)
	defer cancel()
	share := ""
	if at == inGroup {
		share = m.placement.group(path.Dir(m.granted.file), m.granted.by.signer)
	}
	return m.process.Executor(ctx, s, share)
}

// where returns the place of the job's guests. The error says why there is none.
func (m *boundModule) where(c jobconfig.Configuration) (where, error) {
	at, err := m.placement.of(c, m.granted.inProcess)
	if err == nil && at != inHost && m.process == nil {
		err = errNoWorkers
	}
	return at, err
}

// processTime bounds how long a job waits until its module was tried in a process, which may include compiling it.
const processTime = 5 * time.Minute

// settings returns the configuration's settings, within the ceilings of the host.
func (m *boundModule) settings(c jobconfig.Configuration) (plugin.Settings, error) {
	g, err := c.Guest()
	if err != nil {
		return plugin.Settings{}, err
	}
	s := plugin.Settings{
		JobName:      c.JobName,
		Type:         string(g.Type),
		Streaming:    g.StreamingProcess,
		FreshPerItem: g.Isolation == jobconfig.IsolationItem,
		MemoryLimit:  memoryLimit(m.ceilings, c.JobName, g.MemoryLimit),
		Args:         g.Args,
		Granted:      m.allowed,
		Group:        groupOf(m.granted.by.signer, m.granted.file),
	}
	if g.StreamingProcess {
		s.CallTimeout = time.Duration(m.ceilings.Of(c.JobName, ceiling.Timeout).Cap(int64(streamCallTimeout)))
	}
	if m.granted.kept {
		s.Granted = slices.Concat(s.Granted, Capabilities())
	}
	s = offer.Settings(s, m.granted.Grant)
	if g.Type == jobconfig.TypeHTTP {
		s.Type, s.PluginConfig = wasm.TypeSimple, builtin.Request(g.HTTP)
	}
	return s, nil
}

// fit tries whether the module can be run with the configuration.
func fit(m engine.Module, c jobconfig.Configuration) error {
	e, err := m.Executor(c)
	if err != nil {
		return err
	}
	e.Release()
	return nil
}

// Refuses returns the settings for which the host would refuse to run the job: those beyond its ceilings, and those that
// the job's module cannot run with. It compiles and tries nothing, and returns nothing for a job that this host does not
// have.
func (c *Catalog) Refuses(conf jobconfig.Configuration) (problems []*jobconfig.FieldError) {
	c.mu.Lock()
	m, here := c.modules[conf.JobName]
	c.mu.Unlock()
	if !here {
		return nil
	}
	if beyond := (*ceiling.Error)(nil); errors.As(c.ceilings.Check(conf), &beyond) {
		problems = beyond.Problems
	}
	if b, real := m.(*boundModule); real {
		problems = append(problems, b.refuses(conf)...)
	}
	return problems
}

func (m *boundModule) refuses(c jobconfig.Configuration) (problems []*jobconfig.FieldError) {
	s, err := m.settings(c)
	if err != nil {
		return nil // it is invalid for every host
	}
	bad := func(field string, err error) {
		if err != nil {
			problems = append(problems, &jobconfig.FieldError{Field: field, Problem: err.Error()})
		}
	}
	_, err = m.module.Info().JobType(s.Type)
	bad("type", err)
	_, err = m.module.Pages(s.MemoryLimit)
	bad("memoryLimit", err)
	_, err = m.where(c)
	bad("isolation", err)
	return problems
}

// errNoWorkers is the refusal of guests that may not run in this process.
var errNoWorkers = errors.New("this host has no worker processes")

// costly reports whether fitting the configuration to a compiled module may need a new trial instance, as for another
// memory limit or another process.
func (s state) costly(c jobconfig.Configuration, digest string, m compiled) bool {
	g, err := c.Guest()
	return err == nil && (memoryLimit(s.ceilings, c.JobName, g.MemoryLimit) != 0 || s.inside(c, digest) == m.apart())
}

// memoryLimit returns the limit that a job states, or 0 for the default; it returns the ceiling if the default exceeds
// it.
func memoryLimit(l ceiling.List, job string, stated int64) int64 {
	most := l.Of(job, ceiling.MemoryLimit)
	if stated == 0 && most.Beyond(abi.DefaultMemory) {
		return most.Value
	}
	return stated
}

// reasons splits an error that may hold several into one line each.
func reasons(err error) []string {
	if l := (*plugin.LoadError)(nil); errors.As(err, &l) && len(l.Problems) > 0 {
		return words.Strings(l.Problems, 0)
	}
	var all words.Few[string]
	var collect func(error)
	collect = func(err error) {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				collect(e)
			}
		} else if !all.Full() {
			all.Add(err.Error())
		} else {
			all.Count(1)
		}
	}
	collect(err)
	return words.Strings(all.Kept(), all.More())
}

// unjudged reports whether the host failed before it learned anything about the module.
func unjudged(err error) bool { return errors.Is(err, plugin.ErrUnjudged) }

// passing reports whether a failure may pass without a new module: the module is sound, but could not be compiled or
// tried.
func passing(err error) bool {
	l := (*plugin.LoadError)(nil)
	return !errors.As(err, &l) || l.Err != nil
}
