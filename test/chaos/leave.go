package chaos

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// ourMark is in the description of every job that an attack makes: nothing else
// is ever removed.
const ourMark = "made by wasmjob-chaos"

// gone sees that nothing of a host's instance is left when it has drained.
func (s *stage) gone(ctx context.Context, h *node, id string) error {
	if s.deaf {
		return nil // the soak's jobs come and go meanwhile; it looks at the end
	}
	// A run that it left unfinished is named until another host has taken it over.
	var left []string
	err := until(ctx, 100*time.Millisecond, 10*time.Second, func() error {
		r, err := s.looked(ctx)
		if err == nil {
			left, err = s.traces(ctx, r, jobs(), []string{id})
		}
		if err == nil && len(left) > 0 {
			err = errors.New(left[0])
		}
		return err
	})
	for _, text := range left {
		s.violate("%s has drained, and there is %s", h.name, text)
	}
	if len(left) > 0 {
		return nil
	}
	return err
}

// traces are the nodes of the jobs that name an instance whose id begins in one
// of the ways, but those that tell of the past: the term's leader, the records
// of items, what was divided last and to whom, the changes on record.
func (s *stage) traces(ctx context.Context, r registry.Center, list []job, begins []string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var level []string
	var roots []tree.Layout
	for _, j := range list {
		l := tree.NewLayout(s.o.Namespace, j.name)
		roots = append(roots, l)
		level = append(level, l.Root(), l.Sibling())
	}
	past := func(p string) bool {
		return slices.ContainsFunc(roots, func(l tree.Layout) bool {
			return p == l.Sibling()+"/leader" || p == tree.Recorded(l) || p == l.Sibling()+"/assignment" || strings.HasPrefix(p, l.Sibling()+"/sharding/") ||
				strings.HasPrefix(p, l.Root()+"/sharding/") && path.Base(p) == "instance"
		})
	}
	// A server may lag behind; it does not when this session has written.
	if len(roots) > 0 {
		config := roots[0].Root() + "/config"
		if _, err := r.Commit(ctx, registry.Check(config, registry.AnyVersion)); err != nil {
			return nil, fmt.Errorf("look at the registry: %w", err)
		}
	}
	var found []string
	for len(level) > 0 {
		var queries []registry.Query
		for _, p := range level {
			queries = append(queries, registry.Children(p), registry.Data(p))
		}
		nodes, err := r.Read(ctx, queries...)
		if err != nil {
			return nil, fmt.Errorf("look at the registry: %w", err)
		}
		level = level[:0]
		for i := 0; i < len(nodes); i += 2 {
			p, data := nodes[i].Path, string(nodes[i+1].Data)
			names := func(id string) bool { return strings.Contains(path.Base(p), id) || strings.Contains(data, id) }
			if slices.ContainsFunc(begins, names) && !past(p) && (nodes[i].Exists || nodes[i+1].Exists) {
				found = append(found, fmt.Sprintf("%s %q", p, data))
			}
			for _, name := range nodes[i].Names {
				level = append(level, p+"/"+name)
			}
		}
	}
	return found, nil
}

// clear takes the jobs out of a test cluster, unless they are evidence.
func (s *stage) clear(ctx context.Context) error {
	if s.own != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r, err := s.looked(ctx)
	if err != nil {
		return err
	}
	if !s.report.OK() || s.o.Keep {
		s.report.Left, err = ourJobs(ctx, r, s.o.Namespace, s.had)
		return err
	}
	removed, err := remove(ctx, r, s.o.Namespace, s.had)
	if err != nil {
		return err
	}
	s.say("%d jobs were taken out of namespace %s again", len(removed), s.o.Namespace)
	if s.was {
		return nil
	}
	// What hosts keep beside the jobs: each other's addresses, alerts.
	siblings := path.Dir(tree.NewLayout(s.o.Namespace, "x").Sibling())
	nodes, err := r.Read(ctx, registry.Children(siblings))
	if err != nil {
		return err
	}
	for _, name := range nodes[0].Names {
		if len(tree.JobsOf([]string{name})) > 0 {
			continue
		}
		if err := operate.Forget(ctx, r, tree.NewLayout(s.o.Namespace, name)); err != nil {
			return fmt.Errorf("%s/%s: %w", siblings, name, err)
		}
	}
	for _, p := range []string{tree.JobsPath(s.o.Namespace), siblings} {
		if _, err := r.Commit(ctx, registry.Delete(p, registry.AnyVersion)); err != nil && !errors.Is(err, registry.ErrConflict) {
			return err // a conflict: somebody else has a job there by now
		}
	}
	return nil
}

// Remove takes the jobs that an attack left in a namespace of a test cluster out
// of it, and returns their names. It removes no other jobs, and none that hosts
// have. Dial, Connect and Namespace of the options are required.
func Remove(ctx context.Context, o Options) (_ []string, err error) {
	if o.Dial == nil || o.Connect == "" || o.Namespace == "" {
		return nil, errors.New("chaos: options: Dial, Connect and Namespace are required")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r, err := o.Dial(ctx, o.Connect, otherSession)
	if err != nil {
		return nil, fmt.Errorf("chaos: connect to %s: %w", o.Connect, err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	removed, err := remove(ctx, r, o.Namespace, nil)
	if err != nil {
		return removed, fmt.Errorf("chaos: %w", err)
	}
	return removed, nil
}

// ourJobs are the jobs of a namespace that an attack made, but those that had
// been there before this one.
func ourJobs(ctx context.Context, r registry.Center, namespace string, had []string) ([]string, error) {
	var names []string
	var queries []registry.Query
	for _, j := range jobs() {
		if !slices.Contains(had, j.name) {
			names = append(names, j.name)
			queries = append(queries, registry.Data(tree.NewLayout(namespace, j.name).Root()+"/config"))
		}
	}
	nodes, err := r.Read(ctx, queries...)
	if err != nil {
		return nil, err
	}
	var ours []string
	for i, n := range nodes {
		if c, _, err := jobconfig.Parse(n.Data); n.Exists && err == nil && c.Description == ourMark {
			ours = append(ours, names[i])
		}
	}
	return ours, nil
}

func remove(ctx context.Context, r registry.Center, namespace string, had []string) (removed []string, err error) {
	ours, err := ourJobs(ctx, r, namespace, had)
	if err != nil {
		return nil, err
	}
	for _, name := range ours {
		l := tree.NewLayout(namespace, name)
		nodes, err := r.Read(ctx, registry.Children(l.Root()+"/instances"))
		if err != nil {
			return removed, err
		}
		if hosts := nodes[0].Names; len(hosts) > 0 {
			return removed, fmt.Errorf("job %s of namespace %s is at %s; end its hosts first", name, namespace, strings.Join(hosts, ", "))
		}
		if err := operate.Forget(ctx, r, l); err != nil && !errors.Is(err, tree.ErrRemoved) {
			return removed, fmt.Errorf("job %s of namespace %s: %w", name, namespace, err)
		}
		removed = append(removed, name)
	}
	return removed, nil
}
