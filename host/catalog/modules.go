package catalog

import (
	"context"
	"errors"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/host"
	"github.com/wasmjob/wasmjob/host/definition"
	"github.com/wasmjob/wasmjob/host/plugin"
)

// loader compiles modules. The catalog's own tests have one without guests.
type loader interface {
	// load takes the module's file name and bytes. Its error is a
	// *plugin.LoadError if the module is to blame.
	load(ctx context.Context, name string, wasm []byte) (compiled, error)
}

// compiled is a module that is ready. It is safe for concurrent use.
type compiled interface {
	// bind returns the module as the job sees it.
	bind(job string) host.Module
	// close ends our use. Executors go on.
	close()
}

// parser reads a definition file. There are jobs or problems, not both.
type parser func(file string, data []byte) ([]definition.Definition, []complaint)

func parseDefinitions(file string, data []byte) ([]definition.Definition, []complaint) {
	list, err := definition.Parse(file, data)
	if err == nil {
		return list, nil
	}
	e := (*definition.Error)(nil)
	if !errors.As(err, &e) {
		return nil, about(err.Error())
	}
	var problems []complaint
	for _, p := range e.Problems {
		text := p.Message
		if p.Field != "" {
			text = p.Field + ": " + text
		}
		problems = append(problems, complaint{p.Line, p.Column, text})
	}
	return nil, problems
}

// streamCallTimeout bounds one call of job_fetch or job_process of a streaming
// job, which may have no timeout for the item as a whole. A batch that takes
// longer is too large to be resumed with profit.
const streamCallTimeout = 5 * time.Minute

type runtimeLoader struct {
	runtime *plugin.Runtime
	mounts  map[string][]plugin.Mount
}

func (l runtimeLoader) load(ctx context.Context, name string, wasm []byte) (compiled, error) {
	m, err := l.runtime.Load(ctx, name, wasm)
	if err != nil {
		return nil, err
	}
	return compiledModule{m, l.mounts}, nil
}

type compiledModule struct {
	*plugin.Module
	mounts map[string][]plugin.Mount
}

func (m compiledModule) bind(job string) host.Module { return &boundModule{m.Module, m.mounts[job]} }
func (m compiledModule) close()                      { m.Close() }

// boundModule is a module with what the operator granted to one job.
type boundModule struct {
	module *plugin.Module
	mounts []plugin.Mount
}

func (m *boundModule) Digest() string { return m.module.Digest() }

func (m *boundModule) Executor(c coordination.JobConfiguration) (abi.Executor, error) {
	g, err := c.Guest()
	if err != nil {
		return nil, err
	}
	s := plugin.Settings{
		JobName:      c.JobName,
		Type:         string(g.Type),
		Streaming:    g.StreamingProcess,
		FreshPerItem: g.Isolation == coordination.IsolationItem,
		MemoryLimit:  g.MemoryLimit,
		Args:         g.Args,
		Mounts:       m.mounts,
	}
	if g.StreamingProcess {
		s.CallTimeout = streamCallTimeout
	}
	return m.module.Executor(s)
}

// fit tries whether the module can be run with the configuration.
func fit(m host.Module, c coordination.JobConfiguration) error {
	e, err := m.Executor(c)
	if err != nil {
		return err
	}
	e.Release()
	return nil
}

// costly reports whether fitting the configuration to a module that is compiled
// may mean to compile it once more, which is what another memory limit does.
func costly(c coordination.JobConfiguration) bool {
	g, err := c.Guest()
	return err == nil && g.MemoryLimit != 0
}

// reasons turns an error that may hold several into one line each.
func reasons(err error) []string {
	if l := (*plugin.LoadError)(nil); errors.As(err, &l) && len(l.Problems) > 0 {
		return l.Problems
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var list []string
		for _, e := range joined.Unwrap() {
			list = append(list, reasons(e)...)
		}
		return list
	}
	return []string{err.Error()}
}

// passing reports whether a failure may go away without the module being
// replaced: it is sound, but could not be compiled or tried.
func passing(err error) bool {
	l := (*plugin.LoadError)(nil)
	return !errors.As(err, &l) || l.Err != nil
}
