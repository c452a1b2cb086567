package coordination_test

import (
	"fmt"
	"maps"
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

// TestLargeShardingStopsAnywhere makes a division that takes several commits,
// while items run, and stops the leader after each of them. No item is ever
// in two hands, what runs stays where it runs, and the next leader finishes.
func TestLargeShardingStopsAnywhere(t *testing.T) {
	t.Parallel()
	const total = 6000
	for k := 0; ; k++ {
		c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount, cfg.Failover = total, true })
		leader, other := h[0], h[1]
		c.now = c.now.Add(10 * time.Second)
		busy := slices.Clone(other.owned()[:40])
		must(t, other.begin(tree.Fire{Instant: c.now.UnixMilli(), Source: "schedule"}, busy, false))
		d := c.addHost("C", "10.0.0.3")
		must(t, second(d.join(c.file)))
		must(t, c.edit(func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = total + 500 }))
		commits := 0
		leader.plan = func(_ int, op string) registrytest.Fault {
			if op != "commit" {
				return registrytest.NoFault
			}
			c.invariants()
			if commits == k {
				return registrytest.ExpireBefore
			}
			commits++
			return registrytest.NoFault
		}
		_, err := leader.step()
		leader.plan = nil
		c.invariants()
		mine := c.assignments()[other.Self.ID]
		for _, i := range busy {
			if !mine.Contains(i) {
				t.Fatalf("after %d commits: item %d runs on B, which has lost it", k, i)
			}
		}
		finished := err == nil
		if !finished && k > 0 && !slices.Contains(c.children(c.layout.Root()+"/leader/sharding"), "necessary") {
			t.Errorf("after %d commits the flag is gone", k)
		}
		c.settle()
		assigned := 0
		for _, items := range c.assignments() {
			assigned += len(items)
		}
		if assigned != total+500 {
			t.Errorf("after %d commits: %d items are assigned", k, assigned)
		}
		must(t, other.complete(busy, "OK", ""))
		c.settle()
		sum := 0
		for id, items := range c.assignments() {
			sum += len(items)
			want := (total + 500) / 2
			if finished {
				want = (total + 500) / 3
			}
			if len(items) < want || len(items) > want+1 {
				t.Errorf("after %d commits: %s has %d items", k, id, len(items))
			}
		}
		if flags := c.children(c.layout.Root() + "/leader/sharding"); sum != total+500 || len(flags) > 0 {
			t.Errorf("after %d commits: %d items are assigned, flags %v", k, sum, flags)
		}
		if finished {
			if k < 4 {
				t.Errorf("the division took %d commits only", k)
			}
			return
		}
	}
}

// TestTotalRaisedAgain: an item beyond a lowered total count still runs when
// the count is raised again. Its completion takes effect.
func TestTotalRaisedAgain(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, nil)
	c.pass(10 * time.Second)
	set := func(total int) {
		must(t, c.edit(func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = total }))
		c.settle()
	}
	set(1)
	set(6)
	for _, host := range h {
		must(t, host.complete(host.running(), "OK", ""))
	}
	for i := range 6 {
		if r := c.record(i); r.Open() || r.Outcome != "OK" {
			t.Errorf("item %d: %+v", i, r)
		}
	}
	c.finish()
}

// TestNoEndlessSharding: in every one of these situations the hosts come to
// rest, and stay there.
func TestNoEndlessSharding(t *testing.T) {
	t.Parallel()
	for name, situation := range map[string]func(*chronicle, []*simHost){
		"alias of a strategy": func(c *chronicle, _ []*simHost) {
			c.must(c.edit(func(cfg *jobconfig.Configuration) {
				cfg.JobShardingStrategyType = "com.dangdang.ddframe.job.lite.api.strategy.impl.OdevitySortByNameJobShardingStrategy"
			}))
		},
		"balance": func(c *chronicle, _ []*simHost) {
			c.must(c.edit(func(cfg *jobconfig.Configuration) { cfg.JobShardingStrategyType = "SINGLE_SHARDING_BALANCE" }))
		},
		"static sharding": func(c *chronicle, _ []*simHost) {
			c.must(c.edit(func(cfg *jobconfig.Configuration) { cfg.StaticSharding = true }))
		},
		"one server down": func(c *chronicle, _ []*simHost) {
			c.must(c.operate(moves.SetServers(c.layout, false, "10.0.0.1")))
		},
		"all servers down": func(c *chronicle, _ []*simHost) { c.must(c.operate(moves.SetServers(c.layout, false))) },
		"unreadable configuration": func(c *chronicle, _ []*simHost) {
			c.hand(registry.Set(c.layout.Root()+"/config", []byte("{"), registry.AnyVersion))
		},
		"invalid configuration": func(c *chronicle, _ []*simHost) {
			c.must(c.edit(func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = -1 }))
		},
		"everybody drains": func(c *chronicle, _ []*simHost) {
			for _, host := range c.hosts {
				c.must(host.perform(moves.Drain(&host.Member, tree.HostDetail{})))
			}
		},
		"unreadable share": func(c *chronicle, h []*simHost) {
			c.hand(registry.Set(c.layout.Sibling()+"/assignment/"+h[1].Self.ID, []byte("x"), registry.AnyVersion), registry.Create(c.layout.Root()+"/leader/sharding/necessary", nil))
		},
		"share gone": func(c *chronicle, h []*simHost) {
			c.hand(registry.Delete(c.layout.Sibling()+"/assignment/"+h[1].Self.ID, registry.AnyVersion), registry.Create(c.layout.Root()+"/leader/sharding/necessary", nil))
		},
		"unreadable division": func(c *chronicle, _ []*simHost) {
			c.hand(registry.Set(c.layout.Sibling()+"/assignment", []byte("x"), registry.AnyVersion))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, h := group(t, 3, nil)
			e := c.addHost("E", "10.0.0.1") // a second one on A's server
			must(t, second(e.join(c.file)))
			c.settle()
			c.pass(time.Second) // something runs
			situation(c, h)
			c.settle()
			c.complete(all)
			c.settle()
			path := c.layout.Sibling() + "/assignment"
			before := c.node(path).Version
			for range 3 {
				c.now = c.now.Add(time.Minute)
				for _, host := range c.living() {
					host.snapshot = nil
				}
				c.settle()
			}
			if after := c.node(path).Version; after != before {
				t.Errorf("the items were divided %d times more", after-before)
			}
			seen := make(map[int]bool)
			for _, items := range c.assignments() {
				for _, i := range items {
					seen[i] = true
				}
			}
			want := 6
			if name == "everybody drains" {
				want = 0
			}
			if len(seen) != want {
				t.Errorf("%d items are assigned: %v", len(seen), c.assignments())
			}
		})
	}
}

// TestLargeShare: what a host begins, completes and saves goes in as many
// commits as it needs, and a fault in the middle of it is repaired by putting it
// again.
func TestLargeShare(t *testing.T) {
	t.Parallel()
	const total = 5000
	for _, fault := range []registrytest.Fault{registrytest.NoFault, registrytest.Refused, registrytest.LostAnswer, registrytest.LostRequest} {
		c, hosts := group(t, 1, func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount, cfg.Failover = total, true })
		h := hosts[0]
		third := func() {
			n := 0
			h.plan = func(_ int, op string) registrytest.Fault {
				if op == "commit" {
					if n++; n == 3 {
						return fault
					}
				}
				return registrytest.NoFault
			}
		}
		must(t, c.operate(moves.TriggerJob(c.layout)))
		must(t, h.look())
		third()
		_, err := h.step()
		h.plan = nil
		if err != nil {
			if n := len(h.Runs.Items()); n != 0 {
				t.Errorf("after an error the host knows of %d runs", n)
			}
			must(t, second(h.step()))
		}
		if n := len(h.running()); n != total {
			t.Fatalf("fault %d: %d items run", fault, n)
		}
		if c.node(c.layout.Root() + "/trigger/" + h.Self.ID).Exists {
			t.Error("the trigger was not consumed")
		}
		third()
		offsets := make(map[int]co.Ended)
		for i, it := range h.items {
			offsets[i] = co.Ended{State: it.state, Offset: make([]byte, 300), HasOffset: true}
		}
		var saved co.Saved
		if err := h.perform(moves.SaveOffsets(c.layout, offsets, &saved)); err != nil {
			h.plan = nil
			must(t, h.perform(moves.SaveOffsets(c.layout, offsets, &saved)))
		}
		if len(saved.Items) != total {
			t.Errorf("fault %d: %d offsets are saved", fault, len(saved.Items))
		}
		third()
		if err := h.complete(h.running(), "OK", fmt.Sprintf("%0300d", 1)); err != nil {
			h.plan = nil
			must(t, h.complete(h.running(), "OK", fmt.Sprintf("%0300d", 1)))
		}
		h.plan = nil
		if n := len(h.Runs.Items()); n != 0 {
			t.Errorf("fault %d: %d runs are left", fault, n)
		}
		for _, i := range []int{0, total / 2, total - 1} {
			if r := c.record(i); r.Open() || c.node(c.mark(i, "running")).Exists {
				t.Errorf("fault %d: item %d: %+v", fault, i, r)
			}
		}
	}
}

// TestAHostThatComesOrGoesWhileItemsAreDividedIsCounted: the membership changes
// after the leader has read it, and before it commits the division.
func TestAHostThatComesOrGoesWhileItemsAreDividedIsCounted(t *testing.T) {
	t.Parallel()
	for _, comes := range []bool{true, false} {
		c, h := group(t, 3, nil)
		leader, late := h[0], c.addHost("D", "10.0.0.4")
		must(t, c.edit(func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = 9 }))
		leader.beforeCommit(func() {
			if comes {
				must(t, second(late.join(c.file)))
				return
			}
			h[2].crash()
		})
		for leader.plan != nil { // until the division has met it
			if stepped, err := leader.step(); err != nil || !stepped {
				t.Fatalf("the leader does not divide: %v", err)
			}
		}
		c.settle()
		shares := c.assignments()
		if got := len(shares[late.Self.ID]) > 0; got != comes {
			t.Errorf("the host that came has %s", shares[late.Self.ID])
		}
		if items := shares[h[2].Self.ID]; (len(items) > 0) != comes {
			t.Errorf("the host that went has %s", items)
		}
		c.finish()
	}
}

// TestASlowItemHoldsUpNoOtherAtAResharding: one item runs on and on while
// hosts come; all others are divided and run in every fire.
func TestASlowItemHoldsUpNoOtherAtAResharding(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, nil)
	c.pass(10 * time.Second)
	slow, holder := h[0].running()[0], h[0]
	quick := func(i int) bool { return i != slow }
	c.complete(quick)
	for _, name := range []string{"C", "D"} {
		d := c.addHost(name, "10.0.0."+name)
		must(t, second(d.join(c.file)))
		c.settle()
		c.pass(10 * time.Second)
		if items := d.running(); len(items) == 0 {
			t.Errorf("%s came while item %d runs, and runs nothing in the next fire", name, slow)
		}
		c.complete(quick)
		for i := range 6 {
			if r := c.record(i); quick(i) && (r.Open() || r.Instant != c.now.UnixMilli()) {
				t.Errorf("item %d waited for the slow one: %+v", i, r)
			}
		}
	}
	if !holder.running().Contains(slow) || !c.assignments()[holder.Self.ID].Contains(slow) {
		t.Errorf("the slow item has not stayed where it runs")
	}
	c.complete(all)
	c.finish()
}

// TestStaticShardingGivesAwayTheItemsOfADeadHost, and leaves all others where
// they are.
func TestStaticShardingGivesAwayTheItemsOfADeadHost(t *testing.T) {
	t.Parallel()
	c, h := group(t, 3, func(cfg *jobconfig.Configuration) { cfg.StaticSharding = true })
	before := c.assignments()
	late := c.addHost("D", "10.0.0.4")
	must(t, second(late.join(c.file)))
	c.settle()
	for id, items := range before {
		if got := c.assignments()[id]; !slices.Equal(got, items) {
			t.Errorf("a host came, and %s has %s instead of %s", id, got, items)
		}
	}
	gone := h[1].Self.ID
	h[1].crash()
	c.settle()
	after := c.assignments()
	for id, items := range before {
		if id == gone {
			continue
		}
		for _, i := range items {
			if !after[id].Contains(i) {
				t.Errorf("item %d was moved away from %s, which is alive", i, id)
			}
		}
	}
	owners := make(map[int]string)
	for id, items := range after {
		for _, i := range items {
			owners[i] = id
		}
	}
	for _, i := range before[gone] {
		if id, ok := owners[i]; !ok || id == gone {
			t.Errorf("item %d of the dead host belongs to %q", i, id)
		}
	}
	c.finish()
}

// TestAStrategyThatFailsBlocksNoHost: a configuration that cannot be divided
// by is refused, the last good one stays in force, and a leader that dies in
// the middle of a division leaves no flag that others wait for.
func TestAStrategyThatFailsBlocksNoHost(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, nil)
	before := c.assignments()
	path := c.layout.Root() + "/config"
	text := string(c.node(path).Data)
	broken := text + "jobShardingStrategyType: NO_SUCH_STRATEGY\n"
	if strings.Contains(text, "jobShardingStrategyType") {
		t.Fatalf("the configuration names a strategy:\n%s", text)
	}
	c.hand(registry.Set(path, []byte(broken), registry.AnyVersion))
	c.settle()
	if err := h[0].View.ConfigErr; err == nil || !strings.Contains(err.Error(), "NO_SUCH_STRATEGY") {
		t.Errorf("the strategy does not exist, and the reason is %v", err)
	}
	if !maps.EqualFunc(before, c.assignments(), slices.Equal) {
		t.Errorf("the division became %v", c.assignments())
	}
	c.pass(10 * time.Second)
	for i := range 6 {
		if r := c.record(i); !r.Open() {
			t.Errorf("item %d does not begin while the configuration is broken: %+v", i, r)
		}
	}
	c.complete(all)
	c.hand(registry.Set(path, []byte(text), registry.AnyVersion))
	c.finish()
}

// TestAnUnownedListOfRunsStopsNoSharding: somebody's node among the instances
// lives, and has a list that cannot be read.
func TestAnUnownedListOfRunsStopsNoSharding(t *testing.T) {
	t.Parallel()
	c, h := edited(t, 2)
	stranger := c.server.Connect(t)
	defer func() { _ = stranger.Close() }()
	must(t, second(stranger.Commit(c.ctx, registry.CreateEphemeral(c.layout.Root()+"/instances/x", nil))))
	c.hand(registry.Create(c.layout.Sibling()+"/runs/x", []byte("NaN")))
	before := c.node(c.layout.Sibling() + "/assignment").Version
	c.settle()
	c.now = c.now.Add(time.Minute) // x is taken for a Java host, which has its time to hear of the flag
	c.settle()
	if after := c.node(c.layout.Sibling() + "/assignment").Version; after == before {
		t.Errorf("the items were not divided for %s", h[0].View.Instances)
	}
	// One of ours recreates its list, and is waited for.
	c.hand(registry.Set(c.layout.Sibling()+"/runs/"+h[1].Self.ID, []byte("NaN"), registry.AnyVersion))
	must(t, h[0].look())
	if err := h[0].perform(moves.Reshard(&h[0].Member, c.now, nil)); err == nil {
		t.Error("items were divided though nobody can tell what a host runs")
	}
}

// TestReshardDatesItemsByTheRegistrysClock: the clock of the leader is remembered
// nowhere.
func TestReshardDatesItemsByTheRegistrysClock(t *testing.T) {
	t.Parallel()
	for _, wrong := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		c, hosts := group(t, 1, nil)
		h := hosts[0]
		mine := c.file
		mine.ShardingTotalCount = 9
		must(t, h.perform(moves.ApplyDefinition(c.layout, mine, h.former, nil, nil)))
		h.View.Clock = c.now.Add(time.Minute)
		must(t, h.perform(moves.Reshard(&h.Member, c.now.Add(wrong), nil)))
		var states map[int]co.ItemState
		must(t, h.perform(moves.ReadItems(h.layout, tree.Items{7}, &states)))
		if got := time.UnixMilli(states[7].Record.Instant); !got.Equal(h.View.Clock.Truncate(time.Millisecond)) {
			t.Errorf("a leader whose clock is %s ahead: the new item begins with %s, want the registry's %s", wrong, got.UTC(), h.View.Clock.UTC())
		}
	}
}

// TestFirstShardingWithoutAConfiguration: the items of a job that were never divided are divided by the last
// configuration that its leader could read.
func TestFirstShardingWithoutAConfiguration(t *testing.T) {
	t.Parallel()
	c := newChronicle(t)
	c.file.ShardingTotalCount = 6
	h := c.addHost("A", "10.0.0.1")
	must(t, second(h.join(c.file)))
	must(t, h.look())
	c.hand(registry.Set(c.layout.Config(), []byte("shardingTotalCount: many"), registry.AnyVersion))
	c.settle()
	if d := c.division(); d.Total != 6 || len(h.owned()) != 6 {
		t.Errorf("%d items are divided, and the only host has %d", d.Total, len(h.owned()))
	}
}

// TestShareThatCannotBeRead: a host whose assignment was edited into something else has its leader write
// it again, and asks for that once.
func TestShareThatCannotBeRead(t *testing.T) {
	t.Parallel()
	c, hosts := group(t, 2, nil)
	c.edited = true
	h, l := hosts[1], c.layout
	c.hand(registry.Set(l.AssignmentOf(h.Self.ID), []byte("all of them"), registry.AnyVersion))
	for _, asked := range []bool{false, true} {
		must(t, h.look())
		commits := 0
		h.plan = countCommits(&commits)
		_, _, err := h.ReadShare(c.ctx, nil)
		h.plan = nil
		if !c.node(l.Necessary()).Exists || (commits > 0) == asked || (err != nil) != asked {
			t.Errorf("asked before: %v; %d commits, %v", asked, commits, err)
		}
	}
	c.settle()
	if len(h.owned()) != 3 {
		t.Errorf("it has %d items of 6", len(h.owned()))
	}
}
