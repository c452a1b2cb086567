package process

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
)

// Module is a module whose guests run in worker processes. It is safe for
// concurrent use.
type Module struct {
	w *Workers
	m *plugin.Module

	mu    sync.Mutex
	tried map[uint32]bool // by memory limit in pages
}

// Module binds a module to the worker processes. The caller closes it.
func (w *Workers) Module(m *plugin.Module) *Module {
	return &Module{w: w, m: m, tried: map[uint32]bool{}}
}

// trialJob stands for the job in the memory account while a module is tried.
const trialJob = "trial"

// Try makes a trial instance in a worker process, with the default memory limit, unless the module's initial
// memory exceeds it. The error is a [*plugin.LoadError] if the module is to blame.
func (m *Module) Try(ctx context.Context) error {
	if _, triable := m.m.TrialNeeds(); !triable {
		return nil
	}
	if err := m.store(ctx, false); err != nil {
		return err
	}
	needs, _ := m.m.TrialNeeds() // including the code's size
	return m.try(ctx, needs)
}

// store has the module compiled, unless worker processes do so themselves.
func (m *Module) store(ctx context.Context, anew bool) error {
	dir, err := m.w.o.Runtime.StoreDir()
	if err != nil || dir == "" {
		return err
	}
	return m.m.Store(ctx, anew)
}

func (m *Module) try(ctx context.Context, needs plugin.Needs) error {
	m.mu.Lock()
	tried := m.tried[needs.Pages]
	m.mu.Unlock()
	if tried {
		return nil
	}
	if err := m.w.o.Runtime.Possible(baseMemory + needs.Code + needs.Least); err != nil {
		return m.m.Refused(fmt.Errorf("%w, its worker process included", err))
	}
	x := &executor{m: m, w: m.w, settings: plugin.Settings{JobName: trialJob}, needs: needs}
	err := m.tryIn(ctx, m.w.trials, x)
	if errors.As(err, new(*deadError)) && ctx.Err() == nil {
		// Another module may have ended the process. If this one does so alone, it is to blame.
		g := m.w.group("trial "+m.m.Digest(), "a module on trial", nil)
		defer m.w.unref(g)
		if err = m.tryIn(ctx, g, x); errors.As(err, new(*deadError)) {
			err = m.m.Refused(err)
		}
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tried[needs.Pages] = true
	return nil
}

// tryIn tries the module in the group's process.
func (m *Module) tryIn(ctx context.Context, g *group, x *executor) error {
	account, err := g.enter(ctx, x, x.needs.Least)
	if err != nil {
		return err
	}
	defer g.evict(x.Digest())
	defer g.leave(x)
	defer account.Close()
	for stored := false; ; stored = true {
		c, err := g.current(ctx)
		if err != nil {
			return err
		}
		data := int64(x.needs.Pages) << 16
		c.limits.add(data, trialHeap, 0)
		r, err := c.try(ctx, x, x.needs.Pages)
		c.limits.add(-data, -trialHeap, 0)
		switch {
		case err != nil:
			return err
		case r.Problem != "":
			return m.m.Refused(errors.New(r.Problem))
		case r.Failure != "":
			return fmt.Errorf("worker process: %s", r.Failure)
		case r.NotStored && stored:
			return errNotFound
		case r.NotStored:
			if err := m.store(ctx, true); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// errNotFound says that a process does not find what the host has stored for it.
var errNotFound = errors.New("worker process: it finds no compiled code where the host left it")

// Executor configures the module for a job, and tries it in a process if that was not done yet. Jobs with the
// same share whose guests directly read the same directories run in one process; with an empty share the job
// has a process of its own. A [*plugin.LoadError] has all problems of the settings. The caller owns one use of
// the result, and ends it with Release.
func (m *Module) Executor(ctx context.Context, s plugin.Settings, share string) (abi.Executor, error) {
	if _, err := m.m.Needs(s); err != nil {
		return nil, err
	}
	if err := m.store(ctx, false); err != nil {
		return nil, err
	}
	needs, err := m.m.Needs(s) // with what the code takes
	if err != nil {
		return nil, err
	}
	if err := m.w.o.Runtime.Possible(baseMemory + needs.Code + needs.Least); err != nil {
		return nil, m.m.Refused(fmt.Errorf("%w, its worker process included", err))
	}
	if !m.m.Retain() {
		return nil, errClosed
	}
	if err := m.try(ctx, needs); err != nil {
		m.m.Release()
		return nil, err
	}
	x := &executor{m: m, w: m.w, settings: s, needs: needs, account: m.w.places.account(s.Group)}
	if share == "" {
		x.home = m.w.alone(s)
	} else {
		x.home = m.w.group("share "+share, share, s.Mounts)
	}
	x.Begin()
	m.w.mu.Lock()
	m.w.executors[x] = struct{}{}
	m.w.mu.Unlock()
	return x, nil
}

// alone is the group of a job that shares its process with no other.
func (w *Workers) alone(s plugin.Settings) *group {
	return w.group(aloneKey(s.JobName), s.JobName, s.Mounts)
}

// alonePrefix begins the keys of groups of one job.
const alonePrefix = "job "

func aloneKey(job string) string { return alonePrefix + job }
