package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// permissions are a registry's, for all of its sessions: which nodes cannot be written, and which cannot be read.
type permissions struct {
	mu             sync.Mutex
	denied, unread []string
}

// hide makes nodes unreadable.
func (p *permissions) hide(paths ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unread = paths
}

// unreadable are the queries that are not permitted, of nodes that are there.
func (p *permissions) unreadable(ctx context.Context, r registry.Center, queries []registry.Query) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	denied := make(map[registry.Query]error)
	for _, q := range queries {
		if !slices.Contains(p.unread, q.Path) {
			continue
		}
		if n, err := r.Read(ctx, q); err == nil && n[0].Exists {
			denied[q] = fmt.Errorf("%w: access denied: read %s", registry.ErrUnavailable, q.Path)
		}
	}
	if len(denied) == 0 {
		return nil
	}
	return &registry.UnreadableError{Denied: denied}
}

func (p *permissions) deny(paths ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.denied = paths
}

// permitted is a session that keeps to the permissions.
type permitted struct {
	*lease
	*permissions
}

func (p permitted) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	p.mu.Lock()
	denied, unread := p.denied, p.unread
	p.mu.Unlock()
	for i, op := range ops {
		if (op.Kind != registry.OpCheck && slices.Contains(denied, op.Path)) || (op.Kind == registry.OpCheck && slices.Contains(unread, op.Path)) {
			return nil, &registry.DeniedError{Index: i, Op: op, Err: fmt.Errorf("%w: access denied: %s %s", registry.ErrUnavailable, op.Kind, op.Path)}
		}
	}
	return p.lease.Commit(ctx, ops...)
}

func (p permitted) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	nodes, err := p.lease.Read(ctx, queries...)
	if err != nil {
		return nil, err
	}
	unreadable := p.unreadable(ctx, p.lease, queries)
	var u *registry.UnreadableError
	if errors.As(unreadable, &u) {
		for i, n := range nodes {
			if u.Denied[n.Query] != nil {
				nodes[i] = registry.Node{Query: n.Query}
			}
		}
	}
	return nodes, unreadable
}

func (p permitted) Watch(ctx context.Context, queries ...registry.Query) (<-chan registry.Snapshot, error) {
	if err := p.unreadable(ctx, p.lease, queries); err != nil {
		return nil, err
	}
	return p.lease.Watch(ctx, queries...)
}

// with has the hosts of a cluster keep to permissions.
func (p *permissions) with(c *cluster) {
	c.wrap = func(_ int, s *lease) registry.Center { return permitted{s, p} }
}

// completions counts the completions by item from a number of events on.
func (c *cluster) completions(from int) map[int]int {
	by := make(map[int]int)
	for _, e := range c.list(event.ItemCompleted)[from:] {
		by[*e.Item]++
	}
	return by
}

// TestDenied: an item of which the registry does not permit to write a node does not keep the
// others from running. The host says so, and runs it when it may be written.
func TestDenied(t *testing.T) {
	const items, bad = 4, 1
	own, sibling := "/test/denied/sharding/1", "/test.wasmjob/denied"
	for name, tc := range map[string]struct {
		paths []string
		set   func(*jobconfig.Configuration)
		// most is how many completions the item has while it is denied.
		most int
	}{
		"record":            {paths: []string{sibling + "/sharding/1"}, most: 0},
		"running mark":      {paths: []string{own + "/running"}, most: 0},
		"persistent mark":   {paths: []string{own + "/running"}, set: func(d *jobconfig.Configuration) { d.Failover = true }},
		"mark of disabling": {paths: []string{own + "/disabled"}},
		"offset":            {paths: []string{sibling + "/offset/1"}},
		"misfire mark":      {paths: []string{own + "/misfire"}, most: 1000},
	} {
		for _, running := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, running %v", name, running), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var may permissions
					c := newCluster(t)
					may.with(c)
					d := definition("denied", "* * * * * ?", items)
					if tc.set != nil {
						tc.set(&d)
					}
					g := sleeper(300 * time.Millisecond)
					sleep := g.run
					g.run = func(ctx context.Context, inv *abi.Invocation) abi.Result {
						r := sleep(ctx, inv)
						r.Offset, r.Staged = []byte(time.Now().String()), true
						return r
					}
					n := c.start(1, job(d, g))
					time.Sleep(5 * time.Second)
					if running {
						time.Sleep(100 * time.Millisecond)
					} else {
						time.Sleep(900 * time.Millisecond)
					}
					before := len(c.list(event.ItemCompleted))
					may.deny(tc.paths...)
					time.Sleep(20 * time.Second)
					by := c.completions(before)
					for i := range items {
						if i != bad && by[i] < 18 {
							t.Errorf("item %d completed %d times in 20 s", i, by[i])
						}
					}
					if most := tc.most + 1; by[bad] > most {
						t.Errorf("item %d completed %d times in 20 s", bad, by[bad])
					}
					s := n.host.Status().Jobs[0]
					says := s.State == engine.JobError && strings.Contains(s.Reason, "items 1 cannot be written") && strings.Contains(s.Reason, tc.paths[0])
					if says != (tc.most == 0) {
						t.Errorf("status is %s: %s", s.State, s.Reason)
					}
					if errs := c.list(event.JobError); tc.most == 0 && (len(errs) != 1 || !slices.Equal(errs[0].Items, []int{bad}) || !strings.Contains(errs[0].Reason, tc.paths[0])) {
						t.Errorf("errors:\n%s", lines(errs))
					}
					skips := slices.DeleteFunc(c.list(event.ItemSkipped), func(e event.Event) bool {
						return *e.Item != bad || !strings.Contains(e.Reason, tc.paths[0])
					})
					if tc.most == 0 && len(skips) < 18 && !running {
						t.Errorf("skips:\n%s", lines(skips))
					}

					may.deny()
					before = len(c.list(event.ItemCompleted))
					time.Sleep(time.Minute)
					if by := c.completions(before); by[bad] < 28 {
						t.Errorf("item %d completed %d times in the minute since it may be written", bad, by[bad])
					}
					if s := n.host.Status().Jobs[0]; s.State == engine.JobError {
						t.Errorf("status since it may be written is %s: %s", s.State, s.Reason)
					}
					last := c.list(event.JobConfigured)
					if tc.most == 0 && last[len(last)-1].Reason != "" {
						t.Errorf("it did not say that all is well:\n%s", lines(last))
					}
				})
			})
		}
	}
}

// TestDeniedTakeover: of what a host that died was running, the items that cannot be written or read
// wait, and the others are taken over.
func TestDeniedTakeover(t *testing.T) {
	const own, sibling = "/test/denied/sharding/%d", "/test.wasmjob/denied/sharding/%d"
	for name, tc := range map[string]struct {
		path string
		read bool
	}{
		"record": {sibling, false}, "mark": {own + "/failover", false},
		"record, read": {sibling, true}, "running mark, read": {own + "/running", true}, "item, read": {own, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var may permissions
				forbid, verb := may.deny, "written"
				if tc.read {
					forbid, verb = may.hide, "read"
				}
				c := newCluster(t)
				may.with(c)
				d := definition("denied", "0 0 * * * ?", 6)
				d.Failover = true
				hosts := []*node{c.start(1, job(d, sleeper(10*time.Minute))), c.start(2, job(d, sleeper(10*time.Minute)))}
				time.Sleep(time.Hour) // the bubble begins at midnight
				time.Sleep(time.Minute)
				var owned []int
				for _, i := range hosts[1].host.Status().Jobs[0].Items {
					owned = append(owned, i.Item)
				}
				if len(owned) != 3 {
					t.Fatalf("host 2 has items %v", owned)
				}
				bad := owned[1]
				forbid(fmt.Sprintf(tc.path, bad))
				hosts[1].kill()
				taken := func() (items []int) {
					for _, e := range c.list(event.ItemStarted) {
						if e.Source == abi.SourceFailover {
							items = append(items, *e.Item)
						}
					}
					slices.Sort(items)
					return items
				}
				time.Sleep(2 * time.Minute)
				if got := taken(); !slices.Equal(got, []int{owned[0], owned[2]}) {
					t.Errorf("taken over: %v of %v without %d", got, owned, bad)
				}
				s := hosts[0].host.Status().Jobs[0]
				if want := fmt.Sprintf("items %d cannot be %s", bad, verb); s.State != engine.JobError || !strings.Contains(s.Reason, want) {
					t.Errorf("status is %s: %s", s.State, s.Reason)
				}
				forbid()
				time.Sleep(2 * time.Minute)
				if got := taken(); !slices.Equal(got, owned) {
					t.Errorf("taken over since: %v of %v", got, owned)
				}
				if s := hosts[0].host.Status().Jobs[0]; s.State != engine.JobRunning {
					t.Errorf("status is %s: %s", s.State, s.Reason)
				}
			})
		})
	}
}

// TestDeniedSteps: what a host cannot write beside its items does not keep these from running.
func TestDeniedSteps(t *testing.T) {
	t.Run("trigger", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var may permissions
			c := newCluster(t)
			may.with(c)
			n := c.start(1, job(definition("denied", "0 0 0 1 1 ?", 3), sleeper(time.Second)))
			time.Sleep(time.Minute)
			may.deny("/test.wasmjob/denied/sharding/1")
			id := n.host.Status().Jobs[0].Instances[0]
			c.commit(registry.Ensure("/test/denied/trigger"), registry.Create("/test/denied/trigger/"+id, nil))
			time.Sleep(time.Minute)
			if by := c.completions(0); by[0] != 1 || by[1] != 0 || by[2] != 1 {
				t.Errorf("completed: %v", by)
			}
			may.deny()
			time.Sleep(time.Minute)
			if by := c.completions(0); by[0] != 1 || by[1] != 1 || by[2] != 1 {
				t.Errorf("completed since: %v", by)
			}
		})
	})
	t.Run("sweep", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var may permissions
			c := newCluster(t)
			may.with(c)
			d := definition("denied", "* * * * * ?", 3)
			d.ReconcileIntervalMinutes = 1
			d.MonitorExecution = false
			c.start(1, job(d, sleeper(time.Millisecond)))
			time.Sleep(10 * time.Second)
			for i := range 2 { // of nobody
				c.commit(registry.Create(fmt.Sprintf("/test/denied/sharding/%d/running", i), []byte("nobody")))
			}
			may.deny("/test/denied/sharding/0/running")
			time.Sleep(2 * time.Minute)
			before := len(c.list(event.ItemCompleted))
			time.Sleep(time.Minute)
			if by := c.completions(before); by[0] < 59 || by[1] < 59 || by[2] < 59 {
				t.Errorf("completed in a minute: %v", by)
			}
			marks := c.nodes(registry.Data("/test/denied/sharding/0/running"), registry.Data("/test/denied/sharding/1/running"))
			if !marks[0].Exists || marks[1].Exists {
				t.Error("the mark that may be removed is there, or the other is not")
			}
		})
	})
	t.Run("sharding", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var may permissions
			c := newCluster(t)
			may.with(c)
			d := definition("denied", "* * * * * ?", 3)
			c.start(1, job(d, sleeper(time.Millisecond)))
			time.Sleep(10 * time.Second)
			may.deny("/test/denied/sharding/1/instance")
			c.start(2, job(d, sleeper(time.Millisecond)))
			time.Sleep(10 * time.Second)
			before := len(c.list(event.ItemCompleted))
			time.Sleep(time.Minute)
			if by := c.completions(before); by[0] < 59 || by[1] < 59 || by[2] < 59 {
				t.Errorf("completed in a minute: %v", by)
			}
		})
	})
	t.Run("offset of a guest", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var may permissions
			c := newCluster(t)
			may.with(c)
			codes := make(chan abi.Code, 2)
			g := &guest{digest: "o", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
				for range 2 {
					codes <- inv.Host.CommitOffset(ctx, []byte("1"))
					time.Sleep(time.Minute)
				}
				return ok
			}}
			c.start(1, job(definition("denied", "0 0 * * * ?", 1), g))
			may.deny("/test.wasmjob/denied/offset/0")
			if code := <-codes; code != abi.ErrUnavailable {
				t.Errorf("the commit returned %v, want %v", code, abi.ErrUnavailable)
			}
			may.deny()
			if code := <-codes; code != abi.OK {
				t.Errorf("the commit since returned %v: the run is taken for lost", code)
			}
		})
	})
	t.Run("another life in the job", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var may permissions
			c := newCluster(t)
			may.with(c)
			n := c.start(1, job(definition("denied", "0 0 0 1 1 ?", 3), sleeper(time.Second)))
			time.Sleep(time.Minute)
			may.deny("/test.wasmjob/denied/sharding/1")
			id := n.host.Status().Jobs[0].Instances[0]
			c.commit(registry.Ensure("/test/denied/trigger"), registry.Create("/test/denied/trigger/"+id, nil))
			time.Sleep(time.Minute)
			if s := n.host.Status().Jobs[0]; s.State != engine.JobError {
				t.Fatalf("status is %s: %s", s.State, s.Reason)
			}
			c.commit(registry.Delete("/test/denied/instances/"+id, registry.AnyVersion))
			time.Sleep(time.Minute)
			if s := n.host.Status().Jobs[0]; s.State != engine.JobStopped {
				t.Fatalf("status is %s: %s", s.State, s.Reason)
			}
			may.deny()
			if err := n.host.Start(t.Context(), "denied", tree.Word{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if s := n.host.Status().Jobs[0]; s.State != engine.JobReady {
				t.Errorf("status is %s: %s", s.State, s.Reason)
			}
		})
	})
	t.Run("leaving", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var may permissions
			c := newCluster(t)
			may.with(c)
			n := c.start(1, job(definition("denied", "* * * * * ?", 3), sleeper(500*time.Millisecond)))
			time.Sleep(10*time.Second + 100*time.Millisecond)
			may.deny("/test.wasmjob/denied/sharding/1")
			time.Sleep(10 * time.Second)
			began := time.Now()
			n.stop()
			<-n.done
			if took := time.Since(began); took > time.Minute {
				t.Errorf("it took %s to leave", took)
			}
			left := c.list(event.JobRemoved)
			if len(left) != 1 || !slices.Equal(left[0].Items, []int{1}) {
				t.Errorf("it left:\n%s", lines(left))
			}
		})
	})
	t.Run("many", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			const items = 300
			var may permissions
			c := newCluster(t)
			may.with(c)
			n := c.start(1, job(definition("denied", "0/10 * * * * ?", items), sleeper(time.Millisecond)))
			time.Sleep(time.Minute)
			var paths []string
			for i := range items - 1 {
				paths = append(paths, fmt.Sprintf("/test.wasmjob/denied/sharding/%d", i))
			}
			may.deny(paths...)
			time.Sleep(time.Minute)
			before := len(c.list(event.ItemCompleted))
			time.Sleep(time.Minute)
			if by := c.completions(before); len(by) != 1 || by[items-1] < 5 {
				t.Errorf("completed in a minute: %d items, item %d %d times", len(by), items-1, by[items-1])
			}
			defer func() {
				may.deny()
				time.Sleep(time.Minute)
				before := len(c.list(event.ItemCompleted))
				time.Sleep(time.Minute)
				if by := c.completions(before); len(by) != items || by[0] < 5 {
					t.Errorf("completed in the minute since they may be written: %d items, item 0 %d times", len(by), by[0])
				}
			}()
			if s := n.host.Status().Jobs[0]; len(s.Reason) > 2000 || !strings.Contains(s.Reason, "items 0-298 cannot be written") {
				t.Errorf("status: %s", s.Reason)
			}
		})
	})
}

// TestUnreadable: an item of which the registry does not permit to read a node does not keep the others from
// running when a host is given them, or reads them again. The host says so, and makes up for the item when it can
// be read.
func TestUnreadable(t *testing.T) {
	const own, sibling = "/test/denied/sharding/", "/test.wasmjob/denied"
	for name, tc := range map[string]struct {
		node func(item int) string
		set  func(c *cluster, item int) // before the node is hidden
	}{
		"record": {node: func(i int) string { return fmt.Sprintf("%s/sharding/%d", sibling, i) }},
		// That of another item than the lowest is the leader's only.
		"instance": {node: func(int) string { return own + "0/instance" }},
		"offset":   {node: func(i int) string { return fmt.Sprintf("%s/offset/%d", sibling, i) }},
		"misfire mark": {node: func(i int) string { return fmt.Sprintf("%s%d/misfire", own, i) }, set: func(c *cluster, i int) {
			c.commit(registry.Create(fmt.Sprintf("%s%d/misfire", own, i), nil))
		}},
	} {
		for _, lowest := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, of the lowest item %v", name, lowest), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const items = 6
					var may permissions
					c := newCluster(t)
					may.with(c)
					d := definition("denied", "* * * * * ?", items)
					g := sleeper(300 * time.Millisecond)
					sleep := g.run
					g.run = func(ctx context.Context, inv *abi.Invocation) abi.Result {
						r := sleep(ctx, inv)
						r.Offset, r.Staged = []byte(time.Now().String()), true
						return r
					}
					hosts := []*node{c.start(1, job(d, g)), c.start(2, job(d, g))}
					time.Sleep(10*time.Second + 900*time.Millisecond)
					var owned []int
					for _, i := range hosts[1].host.Status().Jobs[0].Items {
						owned = append(owned, i.Item)
					}
					bad := owned[len(owned)/2]
					if lowest || name == "instance" {
						bad = 0
					}
					if lowest != slices.Contains(owned, 0) && name == "instance" {
						hosts[0], hosts[1] = hosts[1], hosts[0]
					}
					if tc.set != nil {
						tc.set(c, bad)
					}
					path := tc.node(bad)
					may.hide(path)
					hosts[1].stop()
					<-hosts[1].done
					time.Sleep(5 * time.Second)
					before := len(c.list(event.ItemCompleted))
					time.Sleep(20 * time.Second)
					by := c.completions(before)
					for i := range items {
						if i != bad && by[i] < 18 {
							t.Errorf("item %d completed %d times in 20 s", i, by[i])
						}
					}
					if by[bad] != 0 {
						t.Errorf("item %d completed %d times in 20 s", bad, by[bad])
					}
					s := hosts[0].host.Status().Jobs[0]
					if want := fmt.Sprintf("items %d cannot be read", bad); s.State != engine.JobError || !strings.Contains(s.Reason, want) || !strings.Contains(s.Reason, path) {
						t.Errorf("status is %s: %s", s.State, s.Reason)
					}
					if errs := c.list(event.JobError); len(errs) != 1 || !slices.Equal(errs[0].Items, []int{bad}) || !strings.Contains(errs[0].Reason, path) {
						t.Errorf("errors:\n%s", lines(errs))
					}
					skips := slices.DeleteFunc(c.list(event.ItemSkipped), func(e event.Event) bool {
						return *e.Item != bad || !strings.HasPrefix(e.Reason, "the item cannot be read: ") || !strings.Contains(e.Reason, path)
					})
					if len(skips) < 18 {
						t.Errorf("skips:\n%s", lines(skips))
					}
					if n := len(c.list(event.Assigned)); n > 6 {
						t.Errorf("%d times a share was reported", n)
					}

					may.hide()
					before = len(c.list(event.ItemCompleted))
					time.Sleep(time.Minute)
					if by := c.completions(before); by[bad] < 28 {
						t.Errorf("item %d completed %d times in the minute since it may be read", bad, by[bad])
					}
					if s := hosts[0].host.Status().Jobs[0]; s.State == engine.JobError {
						t.Errorf("status since it may be read is %s: %s", s.State, s.Reason)
					}
					last := c.list(event.JobConfigured)
					if last[len(last)-1].Reason != "" {
						t.Errorf("it did not say that all is well:\n%s", lines(last))
					}
				})
			})
		}
	}
}

// TestUnreadableMarkOfDisabling: a mark of disabling that cannot be read is there, and keeps neither the other
// disabled items from being enabled nor the rest from running.
func TestUnreadableMarkOfDisabling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const items = 4
		var may permissions
		c := newCluster(t)
		may.with(c)
		n := c.start(1, job(definition("denied", "* * * * * ?", items), sleeper(time.Millisecond)))
		time.Sleep(10 * time.Second)
		may.hide("/test/denied/sharding/1/disabled")
		for _, i := range []int{1, 2} {
			if err := n.operator().DisableItem(t.Context(), "denied", i); err != nil {
				t.Fatal(err)
			}
		}
		completed := func(in time.Duration) map[int]int {
			before := len(c.list(event.ItemCompleted))
			time.Sleep(in)
			return c.completions(before)
		}
		time.Sleep(5 * time.Second)
		if by := completed(20 * time.Second); by[0] < 19 || by[3] < 19 || by[1]+by[2] > 0 {
			t.Errorf("completed in 20 s while two are disabled: %v", by)
		}
		if s := n.host.Status().Jobs[0]; s.State != engine.JobError || !strings.Contains(s.Reason, "items 1 cannot be read") {
			t.Errorf("status is %s: %s", s.State, s.Reason)
		}
		if err := n.operator().EnableItem(t.Context(), "denied", 2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if by := completed(20 * time.Second); by[0] < 19 || by[2] < 19 || by[1] > 0 {
			t.Errorf("completed in 20 s while one is disabled: %v", by)
		}
		may.hide()
		time.Sleep(time.Minute)
		if by := completed(20 * time.Second); by[0] < 19 || by[1] > 0 {
			t.Errorf("completed in 20 s since it may be read: %v", by)
		}
		if s := n.host.Status().Jobs[0]; s.State == engine.JobError {
			t.Errorf("status since it may be read is %s: %s", s.State, s.Reason)
		}
		if err := n.operator().EnableItem(t.Context(), "denied", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if by := completed(20 * time.Second); by[1] < 19 {
			t.Errorf("completed in 20 s since it was enabled: %v", by)
		}
	})
}

// TestUnreadableRunIsKilled: that the record of one run cannot be read keeps no kill of another from being seen,
// and the one of that run is when it can.
func TestUnreadableRunIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var may permissions
		c := newCluster(t)
		may.with(c)
		n := c.start(1, job(definition("denied", "0 0 * * * ?", 3), sleeper(50*time.Minute)))
		time.Sleep(time.Hour + time.Minute)
		may.hide("/test.wasmjob/denied/sharding/1")
		for item := range 2 {
			c.kill("denied", item, "", 0)
		}
		running := func() (items []int) {
			for _, i := range n.host.Status().Jobs[0].Items {
				if i.Running {
					items = append(items, i.Item)
				}
			}
			return items
		}
		time.Sleep(time.Minute)
		if got := running(); !slices.Equal(got, []int{1, 2}) {
			t.Errorf("running: %v", got)
		}
		if s := n.host.Status().Jobs[0]; s.State != engine.JobError || !strings.Contains(s.Reason, "items 1 cannot be read") {
			t.Errorf("status is %s: %s", s.State, s.Reason)
		}
		may.hide()
		time.Sleep(2 * time.Minute)
		if got := running(); !slices.Equal(got, []int{2}) {
			t.Errorf("running since it may be read: %v", got)
		}
	})
}
