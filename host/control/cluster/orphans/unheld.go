// Package orphans knows the jobs of a namespace that no host of wasmjob has: their hosts are gone, or they run
// on Java hosts. It watches the list of jobs, and the configuration and instances of the jobs that it is asked
// about; unchanged jobs cost the registry nothing.
package orphans

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/admin/sessions"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/internal/labels"
)

// Job is a job as the registry has it.
type Job struct {
	Name string
	// Instances counts those that have joined it.
	Instances int
	// Servers are the addresses of those that have joined it at some time, and were not removed since.
	Servers []string
	// Problem says why its configuration cannot be read; empty if it can, and the rest is
	// from it.
	Problem            string
	Description        string
	Cron, TimeZone     string
	Terms              string // what else its schedule goes by; see jobconfig.Configuration.Terms
	Labels             labels.Set
	ShardingTotalCount int
}

// Jobs knows jobs that no host has. It is safe for concurrent use.
type Jobs struct {
	namespace string
	log       *zap.Logger
	sessions  *sessions.Newest
	asked     chan question
	ended     chan struct{} // closed when Run has returned

	mu    sync.Mutex
	names []string // all jobs of the namespace
}

// question asks for jobs; answer has room for one.
type question struct {
	names  []string
	answer chan []Job
}

// New knows nothing before Run.
func New(namespace string, log *zap.Logger) *Jobs {
	return &Jobs{namespace: namespace, log: log, sessions: sessions.New(), asked: make(chan question), ended: make(chan struct{})}
}

// Begun hands over a new session. It does not block.
func (j *Jobs) Begun(c registry.Center) { j.sessions.Begun(c) }

// Names are all jobs of the namespace, by name, as they were last in a session. The list
// is shared: it must not be changed.
func (j *Jobs) Names() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.names
}

// ErrEnded says that the host ends.
var ErrEnded = errors.New("this host is ending")

// Look returns what the registry has of some jobs, by name, without missing ones. Jobs that were not asked for
// before are read first; without a session it waits for one. An error is that of ctx, or ErrEnded.
func (j *Jobs) Look(ctx context.Context, names []string) ([]Job, error) {
	q := question{names, make(chan []Job, 1)}
	select {
	case j.asked <- q:
	case <-j.ended:
		return nil, ErrEnded
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case list := <-q.answer:
		return list, nil
	case <-j.ended:
		return nil, ErrEnded
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Run follows the registry in each session until ctx is done.
func (j *Jobs) Run(ctx context.Context) error {
	defer close(j.ended)
	j.sessions.Each(ctx, func(ctx context.Context, c registry.Center) {
		if err := j.follow(ctx, c); err != nil && ctx.Err() == nil {
			j.log.Debug("the jobs without a host cannot be followed", zap.Error(err))
		}
	})
	return nil
}

// following is one session. It belongs to follow.
type following struct {
	*Jobs
	center registry.Center
	// watched are the jobs whose nodes are watched by details, known what they have; nil
	// until the first snapshot.
	watched map[string]bool
	details <-chan registry.Snapshot
	end     context.CancelFunc // of details
	known   map[string]Job
	parsed  map[string]parsed // what was read of configurations
	waiting []question
}

// parsed is a job as a change of its configuration's node has it.
type parsed struct {
	change int64
	Job
}

func (j *Jobs) follow(ctx context.Context, c registry.Center) error {
	root := tree.JobsPath(j.namespace)
	lists, err := c.Watch(ctx, registry.Children(root))
	if err != nil {
		return fmt.Errorf("watch the list of jobs: %w", err)
	}
	f := following{Jobs: j, center: c, end: func() {}}
	defer func() { f.end() }()
	for {
		select {
		case s, ok := <-lists:
			if !ok {
				return nil
			}
			names := slices.Sorted(slices.Values(s.Children(root)))
			j.mu.Lock()
			j.names = names
			j.mu.Unlock()
		case q := <-j.asked:
			if err := f.take(ctx, q); err != nil {
				return err
			}
		case s, ok := <-f.details:
			if !ok {
				return nil
			}
			f.learn(s)
		}
	}
}

// take answers a question, at once if its jobs are known.
func (f *following) take(ctx context.Context, q question) error {
	f.waiting = append(f.waiting, q)
	fewer := len(f.watched) > 2*len(q.names)
	if fewer || slices.ContainsFunc(q.names, func(name string) bool { return !f.watched[name] }) {
		if err := f.watch(ctx, q.names); err != nil {
			return err
		}
	}
	f.answer()
	return nil
}

// watch watches other jobs. It keeps what was watched before, without reading it again.
func (f *following) watch(ctx context.Context, names []string) (err error) {
	if len(names) == 0 {
		f.end()
		f.details, f.watched, f.known = nil, nil, make(map[string]Job)
		return nil
	}
	watched, queries := make(map[string]bool), []registry.Query{}
	for _, name := range names {
		l := tree.NewLayout(f.namespace, name)
		watched[name], queries = true, append(queries, registry.Data(l.Config()), registry.Children(l.Instances()), registry.Children(l.Servers()))
	}
	watching, end := context.WithCancel(ctx)
	f.details, err = f.center.Watch(watching, queries...)
	f.end()
	f.end, f.watched, f.known = end, watched, nil // what was parsed stays
	if err != nil {
		return fmt.Errorf("watch jobs without a host: %w", err)
	}
	return nil
}

// learn takes over what the registry has of the jobs that are watched.
func (f *following) learn(s registry.Snapshot) {
	f.known = make(map[string]Job)
	before := f.parsed
	f.parsed = make(map[string]parsed)
	for name := range f.watched {
		l := tree.NewLayout(f.namespace, name)
		node := s.Data(l.Config())
		if !node.Exists { // it was removed
			continue
		}
		p, same := before[name]
		if !same || p.change != node.Mzxid {
			p = parsed{node.Mzxid, parse(name, node.Data)}
		}
		f.parsed[name] = p
		job := p.Job
		job.Instances = len(s.Children(l.Instances()))
		job.Servers = s.Children(l.Servers())
		f.known[name] = job
	}
	f.answer()
}

// parse reads a configuration.
func parse(name string, data []byte) Job {
	c, _, err := jobconfig.Parse(data)
	if err != nil {
		return Job{Name: name, Problem: err.Error()}
	}
	return Job{Name: name, Description: c.Description, Cron: c.Cron, TimeZone: c.TimeZone, Terms: c.Terms(), Labels: c.Labels(), ShardingTotalCount: c.ShardingTotalCount}
}

// answer answers who waits, once the jobs are known.
func (f *following) answer() {
	if f.known == nil {
		return
	}
	for _, q := range f.waiting {
		var list []Job
		for _, name := range q.names {
			if job, there := f.known[name]; there {
				list = append(list, job)
			}
		}
		q.answer <- list
	}
	f.waiting = nil
}
