package coordination_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/admin/cleanup"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// TestSweep: unowned marks go, marks of the living stay, and what is owed is
// left to Recover.
func TestSweep(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.Failover = true })
	c.pass(time.Second)
	a, b := h[0], h[1]
	must(t, a.complete(a.running(), "OK", ""))
	owed := b.running()
	b.crash()
	mine := a.owned()
	// With failover on, marks of somebody unknown would be owed.
	must(t, c.edit(func(cfg *jobconfig.Configuration) { cfg.Failover = false }))
	c.hand(
		registry.Create(c.mark(mine[0], "running"), []byte("10.9.9.9@-@gone")),
		registry.Create(c.mark(mine[1], "failovering"), []byte("10.9.9.9@-@gone")),
		registry.Create(c.mark(mine[2], "running"), []byte(a.Self.ID)), // A lives and knows nothing of it
		registry.Create(c.layout.Root()+"/trigger/10.9.9.9@-@gone", nil),
		registry.Create(c.layout.Root()+"/sharding/x", nil),
	)
	must(t, a.look())
	var swept cleanup.Swept
	must(t, a.perform(moves.Sweep(&a.Member, c.now, &swept)))
	slices.Sort(swept.Nodes)
	want := []string{c.mark(mine[0], "running"), c.mark(mine[1], "failovering"), c.mark(mine[2], "running"), c.layout.Root() + "/trigger/10.9.9.9@-@gone"}
	slices.Sort(want)
	if !slices.Equal(swept.Nodes, want) {
		t.Errorf("swept %v, want %v", swept, want)
	}
	for _, i := range owed {
		if !c.node(c.mark(i, "running")).Exists {
			t.Errorf("the mark of item %d, which is owed, was swept", i)
		}
	}
	// A begins after the marks were read: the new mark stays.
	c.hand(registry.Create(c.mark(mine[0], "failovering"), []byte("10.9.9.9@-@gone")), registry.Create(c.mark(mine[1], "failovering"), []byte(a.Self.ID)))
	c.now = c.now.Add(10 * time.Second)
	sweeper := c.addHost("D", "10.0.0.4")
	must(t, second(sweeper.join(c.file)))
	must(t, sweeper.look())
	sweeper.beforeCommit(func() { must(t, a.fire(c.now)) })
	swept = cleanup.Swept{}
	must(t, sweeper.perform(moves.Sweep(&sweeper.Member, c.now, &swept)))
	if !slices.Equal(swept.Nodes, []string{c.mark(mine[0], "failovering")}) {
		t.Errorf("swept %v", swept)
	}
	for _, i := range mine {
		if !c.node(c.mark(i, "running")).Exists {
			t.Errorf("the mark of item %d, which runs, was swept", i)
		}
	}
}

func (h *simHost) sweep() []string {
	h.t.Helper()
	var swept cleanup.Swept
	if err := h.look(); err != nil {
		h.t.Fatal(err)
	}
	if err := h.perform(moves.Sweep(&h.Member, h.now, &swept)); err != nil {
		h.t.Fatal(err)
	}
	return swept.Nodes
}

// TestSweepOfFailoverMarks: on an item that is in a host's list, and on one
// that no host runs.
func TestSweepOfFailoverMarks(t *testing.T) {
	t.Parallel()
	c, h := edited(t, 2)
	stranger := c.server.Connect(t)
	defer func() { _ = stranger.Close() }()
	running := h[0].running()
	c.hand(registry.Create(c.mark(running[0], "failover"), []byte("x")))
	if swept := h[1].sweep(); !slices.Equal(swept, []string{c.mark(running[0], "failover")}) {
		t.Errorf("swept %v", swept)
	}
	for _, x := range h {
		must(t, x.complete(x.running(), "OK", ""))
	}
	// Of a session that lasts: who could be a Java host keeps its mark, and so
	// does a host that marks the item as running.
	for _, k := range []struct {
		data, running string
		gone          bool
	}{{"", "", true}, {"0-2", "", true}, {`{"owner":"10.0.0.1@-@A"}`, "", true}, {"x@-@", "", true}, {"10.0.0.9@-@4711", "", false}, {"0-2", "10.0.0.9@-@4711", false}} {
		ops := []registry.Op{registry.CreateEphemeral(c.mark(1, "failover"), []byte(k.data))}
		if k.running != "" {
			ops = append(ops, registry.CreateEphemeral(c.mark(1, "running"), []byte(k.running)))
		}
		must(t, second(stranger.Commit(c.ctx, ops...)))
		h[0].sweep()
		if gone := !c.node(c.mark(1, "failover")).Exists; gone != k.gone {
			t.Errorf("a mark by %q, running %q: gone is %v", k.data, k.running, gone)
		}
		for _, mark := range []string{"failover", "running"} {
			if path := c.mark(1, mark); c.node(path).Exists {
				c.hand(registry.Delete(path, registry.AnyVersion))
			}
		}
	}
	c.settle()
	c.finish()
}

// TestATreeOfUnknownItemsIsRemoved: thousands of items beyond the total count,
// and as many marks of Java hosts.
func TestATreeOfUnknownItemsIsRemoved(t *testing.T) {
	t.Parallel()
	const many = 10_000
	c, h := edited(t, 2)
	for from := 0; from < many; from += 1000 {
		var ops []registry.Op
		for i := range 1000 {
			item := fmt.Sprintf("%s/sharding/%d", c.layout.Root(), 100+from+i)
			ops = append(ops, registry.Create(item, nil), registry.Create(item+"/running", []byte("x")),
				registry.Create(fmt.Sprintf("%s/leader/failover/items/%d", c.layout.Root(), 50_000+from+i), nil))
		}
		c.hand(ops...)
	}
	c.hand(registry.Create(c.layout.Root()+"/sharding/100/running/deep", nil))
	must(t, h[0].look())
	var out co.Recovered
	n := h[0].counted(moves.Recover(&h[0].Member, co.Recovery{Limit: 100, Now: c.now}, &out))
	if n.queries > 100 || len(out.Lost) > 0 {
		t.Errorf("%d nodes were read for marks of nothing, %d are told to be lost", n.queries, len(out.Lost))
	}
	if left := c.children(c.layout.Root() + "/leader/failover/items"); len(left) > 0 {
		t.Errorf("%d marks are left", len(left))
	}
	var swept cleanup.Swept
	n = h[0].counted(moves.Sweep(&h[0].Member, c.now, &swept))
	if n.queries > 100 {
		t.Errorf("%d nodes were read by the sweep", n.queries)
	}
	c.settle()
	// One has a node below a mark, which no host of ours makes: it is left.
	if left := c.children(c.layout.Root() + "/sharding"); len(left) != c.file.ShardingTotalCount+1 {
		t.Errorf("%d items are left", len(left))
	}
	for _, below := range []string{"/running/deep", "/running", ""} {
		c.hand(registry.Delete(c.layout.Root()+"/sharding/100"+below, registry.AnyVersion))
	}
	c.settle()
	c.finish()
}

// TestSweepOfKills: what a host of an earlier version was asked to kill goes with that host.
func TestSweepOfKills(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, nil)
	kills := c.layout.Sibling() + "/kill"
	c.hand(registry.Create(kills, nil), registry.Create(kills+"/10.0.0.9@-@gone", []byte("[]")), registry.Create(kills+"/"+h[0].Self.ID, []byte("[]")))
	var swept cleanup.Swept
	must(t, h[1].look())
	must(t, h[1].perform(moves.Sweep(&h[1].Member, c.now, &swept)))
	if left := c.children(kills); !slices.Equal(left, []string{h[0].Self.ID}) {
		t.Errorf("left are %v, want that of the host that lives", left)
	}
}

// TestSweepLeavesTheRunsOfAJavaHostThatLives: the instance node of a Java host that
// runs is removed by a console. Another ephemeral node of its session shows that it
// lives; when that is gone too, its runs are taken over.
func TestSweepLeavesTheRunsOfAJavaHostThatLives(t *testing.T) {
	t.Parallel()
	for _, proof := range []string{"another job", "a failover mark", ""} {
		t.Run(proof, func(t *testing.T) {
			c, h, j := runningJava(t)
			items := slices.Clone(j.executing)
			var nodes []string
			switch proof {
			case "another job":
				nodes = []string{tree.NewLayout(c.layout.Namespace, "other").Root() + "/instances/" + j.id}
			case "a failover mark":
				nodes = []string{c.mark(items[0], "failover")}
			}
			for _, path := range nodes {
				must(t, second(j.rc.Commit(c.ctx, registry.Ensure(path[:strings.LastIndex(path, "/")]), registry.CreateEphemeral(path, []byte(j.id)))))
			}
			c.hand(registry.Delete(c.layout.Root()+"/instances/"+j.id, registry.AnyVersion))
			take := func() (taken tree.Items, lives bool) {
				c.settle()
				for _, p := range h {
					must(t, p.look())
					var swept cleanup.Swept
					must(t, p.perform(moves.Sweep(&p.Member, c.now, &swept)))
					lives = swept.JavaLives
					c.settle()
					taken = append(taken, p.running()...)
				}
				slices.Sort(taken)
				return taken, lives
			}
			if proof != "" {
				taken, lives := take()
				if len(taken) > 0 {
					t.Errorf("%s were taken, which the Java host runs", taken)
				}
				if !lives {
					t.Error("the sweep does not report that a Java host lives without its instance node")
				}
				for _, i := range items {
					if n := c.node(c.mark(i, "running")); string(n.Data) != j.id {
						t.Errorf("running mark of %d: %q", i, n.Data)
					}
				}
				j.executing = nil
				c.server.Expire(t, j.rc)
			} else {
				j.executing = nil // nothing shows that it lives
			}
			taken, lives := take()
			if !slices.Equal(taken, items) {
				t.Errorf("%s were taken of %s, whose host is gone", taken, items)
			}
			if lives {
				t.Error("the sweep reports a Java host that is gone")
			}
		})
	}
}
