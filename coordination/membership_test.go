package coordination_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// TestDrainWhileSharding: the leader has read that a host is ready, and the
// host says that it drains before the leader commits.
func TestDrainWhileSharding(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, nil)
	must(t, c.edit(func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = 7 }))
	h[0].beforeCommit(func() { must(t, h[1].perform(moves.Drain(&h[1].Member, tree.HostDetail{}))) })
	must(t, second(h[0].step()))
	if d := c.division(); !slices.Equal(d.Draining, []string{h[1].Self.ID}) {
		t.Errorf("draining are %v", d.Draining)
	}
	if items := c.assignments()[h[1].Self.ID]; len(items) > 0 {
		t.Errorf("the draining host has %s", items)
	}
	if flags := c.children(c.layout.Root() + "/leader/sharding"); len(flags) > 0 {
		t.Errorf("flags %v", flags)
	}
}

// TestJoinOdds: joins at once, a lost answer, leftovers of the same id, a job
// that is removed meanwhile, a tree that is half there.
func TestJoinOdds(t *testing.T) {
	t.Parallel()
	t.Run("at once", func(t *testing.T) {
		c := newChronicle(t)
		a, b := c.addHost("A", "10.0.0.1"), c.addHost("B", "10.0.0.1")
		a.connect()
		a.beforeCommit(func() { must(t, second(b.join(c.file))) })
		applied, err := a.join(c.file)
		must(t, err)
		if applied.Created {
			t.Error("both made the job")
		}
		c.settle()
		c.finish()
	})
	for _, fault := range []registrytest.Fault{registrytest.LostAnswer, registrytest.LostRequest} {
		c := newChronicle(t)
		a := c.addHost("A", "10.0.0.1")
		a.connect()
		a.nextCommit(fault)
		must(t, second(a.join(c.file)))
		c.settle()
		// And again, as a host does that got no answer.
		before := c.node(c.layout.Sibling() + "/assignment/" + a.Self.ID)
		must(t, second(a.join(c.file)))
		if after := c.node(c.layout.Sibling() + "/assignment/" + a.Self.ID); after.Version != before.Version || after.Czxid != before.Czxid {
			t.Error("joining again took the share away")
		}
		c.finish()
	}
	t.Run("leftovers", func(t *testing.T) {
		c, _ := group(t, 1, nil)
		b := c.addHost("B", "10.0.0.2")
		b.connect()
		c.hand(registry.Create(c.layout.Sibling()+"/runs/"+b.Self.ID, nil), registry.Create(c.layout.Sibling()+"/assignment/"+b.Self.ID, nil),
			registry.Set(c.layout.Sibling()+"/runs/"+b.Self.ID, nil, 0))
		must(t, second(b.join(c.file)))
		c.settle()
		c.finish()
		d := c.addHost("D", "10.0.0.4")
		d.connect()
		c.hand(registry.Create(c.layout.Sibling()+"/runs/"+d.Self.ID, []byte(`{"runs":[{"instant":1,"source":"schedule","items":"0"}]}`)))
		if err := second(d.join(c.file)); err == nil || !strings.Contains(err.Error(), "used before") {
			t.Errorf("an id that has unfinished runs: %v", err)
		}
	})
	t.Run("removed meanwhile", func(t *testing.T) {
		c, h := group(t, 1, nil)
		b := c.addHost("B", "10.0.0.2")
		b.connect()
		b.beforeCommit(func() { must(t, c.operate(moves.Remove(c.layout, true))) })
		if _, err := b.join(c.file); !errors.Is(err, tree.ErrRemoved) {
			t.Errorf("the job that was removed was joined: %v", err)
		}
		if _, err := h[0].step(); err != nil {
			t.Errorf("A: %v", err)
		}
		c.settle()
	})
	t.Run("bad configuration", func(t *testing.T) {
		c, _ := group(t, 1, nil)
		must(t, c.edit(func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = 0 }))
		b := c.addHost("B", "10.0.0.2")
		if err := second(b.join(c.file)); err == nil || !strings.Contains(err.Error(), "shardingTotalCount") {
			t.Errorf("join: %v", err)
		}
		c.settle()
		if shares := c.assignments(); len(shares) != 1 {
			t.Errorf("shares %v", shares)
		}
		for _, items := range c.assignments() {
			if len(items) != 6 {
				t.Errorf("the items are %s", items)
			}
		}
	})
	t.Run("half a tree", func(t *testing.T) {
		c, h := group(t, 1, nil)
		root := c.layout.Root()
		c.hand(registry.Delete(root+"/leader/sharding", registry.AnyVersion), registry.Delete(root+"/trigger", registry.AnyVersion),
			registry.Delete(root+"/leader/failover/items", registry.AnyVersion), registry.Delete(root+"/leader/failover", registry.AnyVersion),
			registry.Delete(root+"/sharding/0/instance", registry.AnyVersion), registry.Delete(root+"/sharding/0", registry.AnyVersion))
		must(t, c.edit(func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = 5 }))
		c.settle()
		must(t, c.operate(moves.TriggerJob(c.layout)))
		c.settle()
		if len(h[0].running()) != 5 {
			t.Errorf("running are %s", h[0].running())
		}
		c.complete(all)
		must(t, h[0].leave("left", nil))
	})
}

// TestResign: a leader that was replaced does not depose its successor.
func TestResign(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, nil)
	leader := c.layout.Root() + "/leader/election/instance"
	stale := h[0].Member
	c.hand(registry.Delete(leader, registry.AnyVersion)) // an operator
	must(t, second(h[1].step()))
	if got := string(c.node(leader).Data); got != h[1].Self.ID {
		t.Fatalf("leader is %s", got)
	}
	must(t, h[0].perform(moves.Resign(&stale)))
	must(t, h[0].perform(moves.Elect(&stale)))
	if got := string(c.node(leader).Data); got != h[1].Self.ID {
		t.Errorf("leader is %s", got)
	}
	// Nor can it divide, even in the middle of it.
	var sharded co.Sharded
	must(t, h[0].perform(moves.Reshard(&stale, c.now, &sharded)))
	if sharded.Commits != 0 {
		t.Error("a former leader divided the items")
	}
}

// TestLeaveUnfinished: what a host leaves behind is taken over, even while the
// session that made its marks lives on for other jobs.
func TestLeaveUnfinished(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.Failover = true })
	c.pass(time.Second)
	h[1].crash()
	c.settle()
	c.now = c.now.Add(2 * time.Second)
	c.settle()
	if len(h[0].running()) != 6 {
		t.Fatalf("A runs %s", h[0].running())
	}
	d := c.addHost("D", "10.0.0.4")
	must(t, second(d.join(c.file)))
	must(t, h[0].look())
	must(t, h[0].leave("left", h[0].running())) // some of them as failover: those marks are ephemeral
	c.settle()
	if len(d.running()) != 6 {
		t.Errorf("D runs %s", d.running())
	}
	must(t, h[0].rc.Close())
	c.complete(all)
	c.finish()
}

// TestLeaveWithABeginUnknown: a host leaves and believes that nothing of it runs, but a
// begin took effect whose answer was lost. The others take it over.
func TestLeaveWithABeginUnknown(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.Failover = true })
	c.now = c.now.Add(10 * time.Second)
	n := 0
	h[0].plan = func(int, string) registrytest.Fault {
		n++
		return []registrytest.Fault{registrytest.LostAnswer, registrytest.Refused}[min(n, 2)-1]
	}
	if err := h[0].fire(c.now); err == nil {
		t.Fatal("the begin was heard")
	}
	h[0].plan = nil
	must(t, h[0].leave("left", nil))
	c.settle()
	c.now = c.now.Add(2 * time.Second)
	c.settle()
	if len(h[1].running()) != 3 {
		t.Errorf("B runs %s", h[1].running())
	}
	c.finish()
}

// below are the ops that delete a node and all below it, the deepest first.
func (c *cluster) below(path string) (ops []registry.Op) {
	for _, name := range c.children(path) {
		ops = append(ops, c.below(path+"/"+name)...)
	}
	return append(ops, registry.Delete(path, registry.AnyVersion))
}

// members are the names in the list.
func (c *cluster) members() []string {
	return strings.Fields(string(c.node(c.layout.Sibling() + "/members").Data))
}

// arrive calls Join once for a host that has waited for others for a while; it
// reports how long the host is to wait on.
func (h *simHost) arrive(definition jobconfig.Configuration, applied *co.Applied, waited time.Duration) (wait time.Duration, err error) {
	err = h.perform(moves.Join(&h.Member, co.Joining{Definition: definition, Applied: applied, Detail: tree.HostDetail{State: tree.DetailReady},
		Wait: &wait, Waited: waited}))
	return wait, err
}

// TestJoinInACrowd: hosts that come at once are written down by one of them.
func TestJoinInACrowd(t *testing.T) {
	t.Parallel()
	newHosts := func(c *chronicle, n int) []*simHost {
		var hosts []*simHost
		for k := range n {
			h := c.addHost(fmt.Sprintf("N%d", k), fmt.Sprintf("10.0.1.%d", k+1))
			h.connect()
			hosts = append(hosts, h)
		}
		return hosts
	}
	appeared := func(c *chronicle, h *simHost) bool { return c.node(c.layout.Root() + "/instances/" + h.Self.ID).Exists }

	t.Run("one writes all names", func(t *testing.T) {
		c, _ := group(t, 1, nil)
		hosts := newHosts(c, 3)
		// The others announce themselves while the first is about to join alone.
		first := hosts[0]
		first.beforeCommit(func() {
			for _, h := range hosts[1:] {
				c.hand(registry.Create(c.layout.Sibling()+"/instances/"+h.Self.ID, nil))
			}
			members := c.node(c.layout.Sibling() + "/members")
			c.hand(registry.Set(members.Path, members.Data, members.Version))
		})
		wait, err := first.arrive(c.file, new(co.Applied), 0)
		must(t, err)
		if wait != 0 || !appeared(c, first) {
			t.Errorf("the first of them waits %s, and is in the list of instances: %v", wait, appeared(c, first))
		}
		for _, h := range hosts {
			if !slices.Contains(c.members(), h.Self.ID) {
				t.Errorf("%s is not among the members %v", h.name, c.members())
			}
		}
		// Their announcements are their own: they have one step to go.
		for _, h := range hosts[1:] {
			commits := 0
			h.plan = countCommits(&commits)
			wait, err := h.arrive(c.file, new(co.Applied), 0)
			must(t, err)
			if wait != 0 || !appeared(c, h) || commits != 1 {
				t.Errorf("%s waits %s after %d commits, and is in the list of instances: %v", h.name, wait, commits, appeared(c, h))
			}
		}
	})
	t.Run("does not wait for ever", func(t *testing.T) {
		c, _ := group(t, 1, nil)
		hosts := newHosts(c, 2)
		lower := c.layout.Sibling() + "/instances/" + hosts[0].Self.ID
		c.hand(registry.Create(lower, nil)) // one that comes no further
		var applied co.Applied
		wait, err := hosts[1].arrive(c.file, &applied, 0)
		must(t, err)
		if wait <= 0 || appeared(c, hosts[1]) {
			t.Fatalf("it waits %s for the other, and is in the list of instances: %v", wait, appeared(c, hosts[1]))
		}
		if !c.node(c.layout.Sibling() + "/instances/" + hosts[1].Self.ID).Exists {
			t.Error("it waits unannounced")
		}
		wait, err = hosts[1].arrive(c.file, &applied, 10*time.Second)
		must(t, err)
		if wait != 0 || !appeared(c, hosts[1]) {
			t.Errorf("it waits on, %s, and is in the list of instances: %v", wait, appeared(c, hosts[1]))
		}
	})
	t.Run("the root was removed and the configuration put back between its steps", func(t *testing.T) {
		c, a := group(t, 1, nil)
		must(t, a[0].leave("left", nil)) // so that none but the newcomer is there to make the parent nodes
		h := newHosts(c, 2)
		lower := c.layout.Sibling() + "/instances/" + h[0].Self.ID
		c.hand(registry.Create(lower, nil))
		var applied co.Applied
		wait, err := h[1].arrive(c.file, &applied, 0)
		must(t, err)
		if wait <= 0 {
			t.Fatal("it does not wait for the other")
		}
		config := c.node(c.layout.Config())
		c.hand(c.below(c.layout.Root())...)
		c.hand(registry.Ensure(c.layout.Root()), registry.Create(config.Path, config.Data))
		wait, err = h[1].arrive(c.file, &applied, 10*time.Second)
		must(t, err)
		if wait != 0 || !appeared(c, h[1]) {
			t.Errorf("it waits %s, and is in the list of instances: %v", wait, appeared(c, h[1]))
		}
	})
	t.Run("tells what all steps changed", func(t *testing.T) {
		c, _ := group(t, 1, nil)
		hosts := newHosts(c, 2)
		c.hand(registry.Create(c.layout.Sibling()+"/instances/"+hosts[0].Self.ID, nil))
		file := c.file
		file.Description = "another"
		var applied co.Applied
		_, err := hosts[1].arrive(file, &applied, 0)
		must(t, err)
		_, err = hosts[1].arrive(file, &applied, 10*time.Second)
		must(t, err)
		if !slices.Equal(applied.Changed, []string{"description"}) {
			t.Errorf("changed: %q", applied.Changed)
		}
	})
}

// TestAddressesAreComparedWhole: 10.0.0.1 is not 10.0.0.12, and an id is not
// another that begins with it.
func TestAddressesAreComparedWhole(t *testing.T) {
	t.Parallel()
	c := newChronicle(t)
	c.file.ShardingTotalCount, c.file.Failover = 6, true
	short, long := c.addHost("A", "10.0.0.1"), c.addHost("AA", "10.0.0.12")
	for _, h := range []*simHost{short, long} {
		must(t, second(h.join(c.file)))
	}
	c.settle()
	want := func(what string, items map[*simHost]int) {
		t.Helper()
		c.settle()
		for h, n := range items {
			if got := c.assignments()[h.Self.ID]; len(got) != n {
				t.Errorf("%s: %s owns %s, want %d items", what, h.ip, got, n)
			}
		}
	}
	must(t, c.operate(moves.SetServers(c.layout, false, short.ip)))
	want("the short one is disabled", map[*simHost]int{short: 0, long: 6})
	must(t, c.operate(moves.SetServers(c.layout, true, short.ip)))
	must(t, c.operate(moves.SetServers(c.layout, false, long.ip)))
	want("the long one is disabled", map[*simHost]int{short: 6, long: 0})
	must(t, c.operate(moves.SetServers(c.layout, true, long.ip)))
	want("both are enabled", map[*simHost]int{short: 3, long: 3})
	// The short one dies: its marks do not look alive because the long one is.
	c.pass(10 * time.Second)
	must(t, long.complete(long.running(), "OK", ""))
	owed := short.running()
	short.crash()
	c.settle()
	if got := long.running(); len(owed) != 3 || !slices.Equal(got, owed) {
		t.Errorf("the short one ran %s, the long one took over %s", owed, got)
	}
	c.complete(all)
	// And an instance is stopped whose id begins like another's.
	next := c.addHost("B", "10.0.0.1")
	must(t, second(next.join(c.file)))
	c.settle()
	must(t, c.operate(moves.StopInstance(c.layout, next.Self.ID)))
	want("the new short one is stopped", map[*simHost]int{next: 0, long: 6})
	c.finish()
}
