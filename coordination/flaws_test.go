package coordination_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registrytest"
)

// The tests of this file are named after what people complain about in
// ElasticJob; the table in docs/elasticjob.md says which is which.

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

// TestWhatCannotBeReadDecidesNothing: every read of a whole recovery fails
// once, and the step in which it failed writes nothing after it.
func TestWhatCannotBeReadDecidesNothing(t *testing.T) {
	t.Parallel()
	for n := 1; ; n++ {
		c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.Failover = true })
		c.pass(10 * time.Second)
		survivor, owed := h[1], h[0].running()
		h[0].crash()
		left, failed, wrote := n, false, false
		survivor.plan = func(_ int, op string) registrytest.Fault {
			switch {
			case op == "read" && !failed:
				if left--; left == 0 {
					failed = true
					return registrytest.Refused
				}
			case op == "commit" && failed:
				wrote = true
			}
			return registrytest.NoFault
		}
		for range 40 {
			_, err := survivor.step()
			if failed {
				if err == nil {
					t.Errorf("read %d failed, and nobody was told", n)
				}
				break
			}
			must(t, err)
		}
		if !failed {
			if n < 8 {
				t.Fatalf("there were %d reads only", n-1)
			}
			return // all have been tried
		}
		if wrote {
			t.Errorf("read %d failed, and the host went on to write", n)
		}
		survivor.plan = nil
		c.settle()
		c.now = c.now.Add(2 * time.Second) // hosts wait a second before they try again
		c.settle()
		for _, i := range owed {
			if r := c.record(i); r.Source != "failover" || r.Owner != survivor.Self.ID {
				t.Errorf("read %d failed: item %d is left as %+v", n, i, r)
			}
		}
		c.finish()
	}
}

// TestWhatAFollowerSeesIsNotLost: the leader has not looked yet. What it sees by
// itself nobody asks it for; and if it dies before it has, its successor does.
func TestWhatAFollowerSeesIsNotLost(t *testing.T) {
	t.Parallel()
	flags := func(c *chronicle) []string { return c.children(c.layout.Root() + "/leader/sharding") }
	for _, dies := range []bool{false, true} {
		c, h := group(t, 3, nil)
		leader, follower := h[0], h[1]
		h[2].crash()
		must(t, second(follower.step()))
		if len(flags(c)) > 0 {
			t.Errorf("a follower saw a host go, as the leader does, and the flags are %v", flags(c))
		}
		if dies {
			leader.crash()
		}
		c.settle()
		c.finish()
	}
	c, h := group(t, 2, nil)
	must(t, c.edit(func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount++ }))
	must(t, second(h[1].step()))
	if got := flags(c); !slices.Equal(got, []string{"necessary"}) {
		t.Errorf("a follower saw another total count, which the leader may refuse, and the flags are %v", got)
	}
	c.settle()
	c.finish()
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

// TestACrashedTakersOwnItemsRunAgainToo: the host that dies was running an item
// of its own and one that it had taken over.
func TestACrashedTakersOwnItemsRunAgainToo(t *testing.T) {
	t.Parallel()
	c, h := group(t, 3, func(cfg *jobconfig.Configuration) {
		cfg.Failover, cfg.ShardingTotalCount, cfg.Props = true, 3, map[string]string{jobconfig.PropMaxHostDeaths: "3"}
	})
	c.pass(10 * time.Second)
	first, taker, last := h[0], h[1], h[2]
	must(t, last.complete(last.running(), "OK", ""))
	own, owed := taker.running(), first.running()
	first.crash()
	must(t, taker.look())
	must(t, second(taker.recover(first.Self.ID, true, 100)))
	both := taker.running()
	if len(own) != 1 || len(owed) != 1 || !slices.Equal(both, slices.Sorted(slices.Values(append(slices.Clone(own), owed...)))) {
		t.Fatalf("the taker ran %s, took over %s and runs %s", own, owed, both)
	}
	taker.crash()
	c.settle()
	c.now = c.now.Add(2 * time.Second)
	c.settle()
	if got := last.running(); !slices.Equal(got, both) {
		t.Errorf("of %s the last host runs %s again", both, got)
	}
	for _, i := range both {
		if r := c.record(i); r.Instant != start.Add(10*time.Second).UnixMilli() || r.Owner != last.Self.ID {
			t.Errorf("item %d: %+v", i, r)
		}
	}
	c.complete(all)
	c.finish()
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

// TestWhatAnOperatorSwitchedStaysSoAfterARestart: a server that was disabled is
// not enabled by its host's restart, and the other way round; nor by the loss
// of a session.
func TestWhatAnOperatorSwitchedStaysSoAfterARestart(t *testing.T) {
	t.Parallel()
	for _, disabled := range []bool{false, true} { // what the definition says
		c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.Disabled = disabled })
		a, node := h[0], c.layout.Root()+"/servers/"+h[0].ip
		before := string(c.node(node).Data)
		must(t, c.operate(moves.SetServers(c.layout, disabled, a.ip)))
		want := string(c.node(node).Data)
		if before == want {
			t.Fatalf("the server was and is %s", want)
		}
		for _, end := range []func(){a.crash, func() { must(t, a.leave("left", nil)) }} {
			must(t, a.look())
			end()
			if got := string(c.node(node).Data); got != want {
				t.Errorf("disabled: %v; while the host is away its server is %q, want %q", disabled, got, want)
			}
			must(t, second(a.join(c.file)))
			c.settle()
			if got := string(c.node(node).Data); got != want {
				t.Errorf("disabled: %v; after a restart the server is %q, want %q", disabled, got, want)
			}
			if got := len(c.assignments()[a.Self.ID]) > 0; got != disabled {
				t.Errorf("disabled: %v; the host has %s", disabled, c.assignments()[a.Self.ID])
			}
		}
	}
}

// TestDistributedListenersWaitForNoDisabledItem: the count that all wait for
// leaves disabled items out, whether they are disabled before or meanwhile.
func TestDistributedListenersWaitForNoDisabledItem(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, nil)
	a, b := h[0], h[1]
	off := b.owned()[0]
	rest := slices.DeleteFunc(b.owned(), func(i int) bool { return i == off })
	arrive := func(h *simHost, items co.Items) (last bool) {
		t.Helper()
		must(t, h.perform(moves.Arrive(c.layout, h.Self, co.PhaseStarted, items, 6, &last)))
		return last
	}
	if arrive(a, a.owned()) {
		t.Error("A was the last, and B has not arrived")
	}
	must(t, c.operate(moves.SetItem(c.layout, off, false)))
	if !arrive(b, rest) {
		t.Errorf("item %d is disabled, and waited for", off)
	}
	must(t, b.perform(moves.ClearGuarantee(c.layout, co.PhaseStarted)))
	// Whoever looks only now, as after a lost notification, sees that it is over.
	n := c.read(co.GuaranteeWatch(c.layout, co.PhaseStarted))
	if !co.GuaranteePassed(n, a.owned()) {
		t.Errorf("the phase is over, and A would go on waiting: %+v", n)
	}
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

// TestAStrategyThatFailsBlocksNobody: a configuration that cannot be divided
// by is refused, the last good one stays in force, and a leader that dies in
// the middle of a division leaves no flag that others wait for.
func TestAStrategyThatFailsBlocksNobody(t *testing.T) {
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

// TestAnItemOfOneThatIsGoneCanBeShown: what an operator sees of a job while an
// owner is offline.
func TestAnItemOfOneThatIsGoneCanBeShown(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, nil)
	gone, items := h[1].Self.ID, h[1].owned()
	h[1].crash()
	var s co.Shards
	must(t, c.operate(moves.ReadShards(c.layout, &s)))
	for _, it := range s.Items {
		want := co.ShardPending
		if items.Contains(it.Item) {
			want = co.ShardSharding
		}
		if it.State != want {
			t.Errorf("item %d: %+v, want it to be %s", it.Item, it, want)
		}
	}
	if i := slices.IndexFunc(s.Instances, func(i co.ShardInstance) bool { return i.ID == gone }); i < 0 || !s.Instances[i].Gone {
		t.Errorf("the host that is gone is not shown as such: %+v", s.Instances)
	}
}

// TestEveryRunHasAnIDAndItsSource: of all runs of all fires, and what was
// failed over or made up for says so.
func TestEveryRunHasAnIDAndItsSource(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.Failover = true })
	ids := make(map[string]bool)
	note := func(source string, items co.Items) {
		t.Helper()
		for _, i := range items {
			r := c.record(i)
			if !r.Open() || r.Source != source {
				t.Errorf("item %d is recorded as %+v, want a run from %s", i, r, source)
			}
		}
		for _, host := range c.living() {
			for i, it := range host.items {
				if it.running && items.Contains(i) {
					id := co.RunID("demo", it.fire, i)
					if ids[id] {
						t.Errorf("two runs are %s", id)
					}
					ids[id] = source != "failover" // which is the same run once more
				}
			}
		}
	}
	items := co.Items{0, 1, 2, 3, 4, 5}
	c.pass(10 * time.Second)
	note("schedule", items)
	c.pass(10 * time.Second) // a misfire of all
	c.complete(all)
	c.settle()
	note("misfire", items)
	c.complete(all)
	must(t, c.operate(moves.TriggerJob(c.layout)))
	c.settle()
	note("trigger", items)
	owed := h[1].running()
	must(t, h[0].complete(h[0].running(), "OK", ""))
	for _, i := range owed { // the run goes on elsewhere under its id
		delete(ids, co.RunID("demo", h[1].items[i].fire, i))
	}
	h[1].crash()
	c.settle()
	note("failover", owed)
	if len(ids) != 18 {
		t.Errorf("%d runs of three fires of six items", len(ids))
	}
	c.complete(all)
	c.finish()
}
