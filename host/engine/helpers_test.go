package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// operator operates jobs through a host's session, as its admin address does.
func operator(h *engine.Host, namespace string) *admin.Registry {
	return admin.NewRegistry(namespace, func() registry.Center { return engine.Session(h) })
}

func (n *node) operator() *admin.Registry { return operator(n.host, "test") }

func (m *machine) operator() *admin.Registry { return operator(m.host, rigNamespace) }

// slow is a session over a slow line: every call takes a while, and what a
// watch shows is late.
type slow struct {
	*lease
	call, news time.Duration
}

func (s *slow) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	time.Sleep(s.call)
	results, err := s.lease.Commit(ctx, ops...)
	time.Sleep(s.call)
	return results, err
}

func (s *slow) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	time.Sleep(s.call)
	nodes, err := s.lease.Read(ctx, queries...)
	time.Sleep(s.call)
	return nodes, err
}

func (s *slow) Watch(ctx context.Context, queries ...registry.Query) (<-chan registry.Snapshot, error) {
	in, err := s.lease.Watch(ctx, queries...)
	if err != nil {
		return nil, err
	}
	out := make(chan registry.Snapshot, 1)
	go func() { // ends with ctx, which ends the watch
		defer close(out)
		for snapshot := range in {
			select {
			case <-time.After(s.news):
			case <-ctx.Done():
				continue
			}
			select {
			case <-out:
			default:
			}
			out <- snapshot
		}
	}()
	return out, nil
}

// planned is a session that goes wrong as planned: calls are numbered from 1
// over all of the host's sessions.
func planned(l *lease, plan func(op string) registrytest.Fault) registry.Center {
	return registrytest.Faulty(l, func(_ int, op string) registrytest.Fault {
		switch fault := plan(op); {
		case fault == registrytest.ExpireBefore, fault == registrytest.ExpireAfter && op != "commit":
			l.lose() // what the call finds
			return registrytest.NoFault
		case fault == registrytest.ExpireAfter:
			l.loseAfter.Store(true)
			return registrytest.NoFault
		default:
			return fault
		}
	})
}

// nodes reads from the registry behind the hosts' back.
func (c *cluster) nodes(queries ...registry.Query) []registry.Node {
	c.t.Helper()
	r, err := c.server.Connect(context.Background())
	if err != nil {
		c.t.Fatal(err)
	}
	defer r.Close()
	nodes, err := r.Read(context.Background(), queries...)
	if err != nil {
		c.t.Fatal(err)
	}
	return nodes
}

// commit writes to the registry by hand.
func (c *cluster) commit(ops ...registry.Op) {
	c.t.Helper()
	r, err := c.server.Connect(context.Background())
	if err != nil {
		c.t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Commit(context.Background(), ops...); err != nil {
		c.t.Fatal(err)
	}
}

// starts are the starts of an item, as "04:05 source for 04:05".
func (c *cluster) starts(item int) []string {
	var s []string
	for _, e := range c.list(event.ItemStarted) {
		if *e.Item == item {
			s = append(s, fmt.Sprintf("%s %s for %s", e.Time.UTC().Format("04:05"), e.Source, e.Instant.UTC().Format("04:05")))
		}
	}
	return s
}

// lone is a guest that tells when two live runs of one item overlap.
type lone struct {
	mu      sync.Mutex
	running map[int][]context.Context
	faults  []string
	most    int // runs at once
	now     int
}

func (l *lone) guest(d func(item int) time.Duration) *guest {
	l.running = make(map[int][]context.Context)
	return &guest{digest: "lone", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
		item := inv.Context.ShardingItem
		l.mu.Lock()
		for _, other := range l.running[item] {
			if other.Err() == nil {
				l.faults = append(l.faults, fmt.Sprintf("%s: item %d began for %s (%s) beside another live run",
					time.Now().UTC().Format("04:05"), item, inv.Context.RunID, inv.Context.Source))
			}
		}
		l.running[item] = append(l.running[item], ctx)
		l.now++
		l.most = max(l.most, l.now)
		l.mu.Unlock()
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.now--
			l.running[item] = slices.DeleteFunc(l.running[item], func(c context.Context) bool { return c == ctx })
		}()
		select {
		case <-time.After(d(item)):
			return ok
		case <-ctx.Done():
			return abi.Result{Outcome: abi.OutcomeCancelled, Message: context.Cause(ctx).Error()}
		}
	}}
}

func (l *lone) check(t *testing.T, c *cluster) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.faults) > 0 {
		t.Errorf("%s\n%s", strings.Join(l.faults, "\n"), c.all())
	}
}

// missing complains of instants that have left no event for an item.
func missing(c *cluster, from, to time.Time, step time.Duration, total int) {
	c.t.Helper()
	seen := make(map[string]bool)
	for _, e := range c.list(event.ItemCompleted, event.ItemSkipped, event.FireSkipped, event.ItemEnded, event.ItemHeld) {
		if e.Kind == event.ItemEnded && !(c.lostAnswers && e.Outcome == abi.OutcomeOK) {
			continue
		}
		for at := e.Instant.UTC(); e.Item != nil && !at.After(e.Through.UTC()); at = at.Add(step) {
			seen[fmt.Sprint(at, *e.Item)] = true
		}
		instants := 1 // that the event is of
		if before, _, many := strings.Cut(e.Reason, " instants from here on"); many {
			fmt.Sscan(before[strings.LastIndexAny(before, "( ")+1:], &instants)
		}
		for k := range instants {
			at := e.Instant.UTC().Add(time.Duration(k) * step)
			if e.Item == nil {
				seen[at.String()] = true // for all items of the host
			} else {
				seen[fmt.Sprint(at, *e.Item)] = true
			}
		}
	}
	var gone []string
	for at := from.UTC(); at.Before(to); at = at.Add(step) {
		for item := range total {
			if !seen[at.String()] && !seen[fmt.Sprint(at, item)] {
				gone = append(gone, fmt.Sprintf("%s item %d", at.Format("15:04:05"), item))
			}
		}
	}
	if len(gone) > 0 {
		c.t.Errorf("%d have neither run nor a reason: %s\n%s", len(gone), strings.Join(gone, ", "), c.all())
	}
}

// unheard loses the answer of the first commit with such an operation, and
// refuses what comes from the same host in the second after it.
type unheard struct {
	is    func(op registry.Op) bool
	mu    sync.Mutex
	host  int
	until time.Time
}

func (u *unheard) refuses(host int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.host == host && time.Now().Before(u.until)
}

func (u *unheard) happened() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.host != 0
}

// loses reports whether the answer to a commit of the host is the one.
func (u *unheard) loses(host int, ops []registry.Op) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.host != 0 || !slices.ContainsFunc(ops, u.is) {
		return false
	}
	u.host, u.until = host, time.Now().Add(time.Second)
	return true
}

func (u *unheard) wrap(n int, l *lease) registry.Center {
	return &unheardCenter{l, u, n}
}

// unheardCenter is a host's session in which an answer is lost.
type unheardCenter struct {
	registry.Center
	u    *unheard
	host int
}

func (c *unheardCenter) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	if c.u.refuses(c.host) {
		return nil, registry.ErrUnavailable
	}
	results, err := c.Center.Commit(ctx, ops...)
	if err == nil && c.u.loses(c.host, ops) {
		return nil, registry.ErrUnknown
	}
	return results, err
}

func (c *unheardCenter) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	if c.u.refuses(c.host) {
		return nil, registry.ErrUnavailable
	}
	return c.Center.Read(ctx, queries...)
}

func byRun(events []event.Event) map[string]int {
	n := make(map[string]int)
	for _, e := range events {
		n[e.RunID]++
	}
	return n
}

// skewed is a session with a registry whose clock differs.
type skewed struct {
	*lease
	by *atomic.Int64
}

func (s *skewed) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	nodes, err := s.lease.Read(ctx, queries...)
	for i := range nodes {
		if nodes[i].Exists {
			nodes[i].Mtime = nodes[i].Mtime.Add(time.Duration(s.by.Load()))
		}
	}
	return nodes, err
}

func (s *skewed) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	results, err := s.lease.Commit(ctx, ops...)
	for i := range results {
		if !results[i].Time.IsZero() {
			results[i].Time = results[i].Time.Add(time.Duration(s.by.Load()))
		}
	}
	return results, err
}

// refusing is a session that answers nothing while it is told so.
type refusing struct {
	*lease
	broken *atomic.Bool
}

func (r *refusing) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	if r.broken.Load() {
		return nil, registry.ErrUnavailable
	}
	return r.lease.Commit(ctx, ops...)
}

func (r *refusing) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	if r.broken.Load() {
		return nil, registry.ErrUnavailable
	}
	return r.lease.Read(ctx, queries...)
}

// open are the items that a host has begun for an instant and not completed.
func (r *rig) open(m *machine, at time.Time) (items []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.from != m.n || e.e.Item == nil || !e.e.Instant.Equal(at) {
			continue
		}
		switch e.e.Kind {
		case event.ItemStarted:
			items = append(items, *e.e.Item)
		case event.ItemCompleted:
			items = slices.DeleteFunc(items, func(n int) bool { return n == *e.e.Item })
		}
	}
	slices.Sort(items)
	return items
}

// starts are the starts of a fire's items.
func (r *rig) starts(at time.Time, source abi.Source) (items []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.e.Kind == event.ItemStarted && e.e.Instant.Equal(at) && e.e.Source == source {
			items = append(items, *e.e.Item)
		}
	}
	slices.Sort(items)
	return items
}

// marks are the marks of items that run or are taken over.
func (r *rig) marks() (marks []string) {
	r.t.Helper()
	rc, err := r.server.Connect(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	defer rc.Close()
	root := tree.NewLayout(rigNamespace, rigJob).Root()
	queries := []registry.Query{registry.Children(root + "/leader/failover/items")}
	for i := range r.def.ShardingTotalCount {
		queries = append(queries, registry.Children(fmt.Sprintf("%s/sharding/%d", root, i)))
	}
	nodes, err := rc.Read(context.Background(), queries...)
	if err != nil {
		r.t.Fatal(err)
	}
	for k, n := range nodes {
		for _, name := range n.Names {
			if k == 0 || name != "instance" {
				marks = append(marks, queries[k].Path+"/"+name)
			}
		}
	}
	return marks
}

// stopInstance stops an instance of a job as an operator does.
func stopInstance(ctx context.Context, r registry.Center, l tree.Layout, id string) error {
	_, err := operate.Stop(ctx, r, l, tree.Word{By: "user alice"}, tree.ProcessOf(id), []string{id})
	return err
}
