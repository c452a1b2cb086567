package coordination_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/admin/cleanup"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/recipe/latch"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// TestTwoTakersAtOnce: both survivors want all that a dead host left. Each
// item is claimed once.
func TestTwoTakersAtOnce(t *testing.T) {
	t.Parallel()
	c, h := group(t, 3, func(cfg *jobconfig.Configuration) { cfg.Failover = true })
	c.pass(10 * time.Second)
	for _, other := range h[:2] {
		must(t, other.complete(other.running(), "OK", ""))
	}
	owed := h[2].running()
	h[2].crash()
	must(t, h[0].look())
	must(t, h[1].look())
	var first, late co.Recovered
	var err error
	h[0].beforeCommit(func() {
		first, err = h[1].recover(h[2].Self.ID, true, 1)
		must(t, err)
	})
	late, err = h[0].recover(h[2].Self.ID, true, 100)
	must(t, err)
	if len(first.Claimed) != 1 || len(late.Claimed) != len(owed)-1 {
		t.Errorf("B claimed %d, A %d, of %s", len(first.Claimed), len(late.Claimed), owed)
	}
	c.invariants()
	c.settle()
	c.finish()
}

// TestRecoverDivides: N survivors share what a dead host left; All and Limit;
// disabled items wait; busy ones too.
func TestRecoverDivides(t *testing.T) {
	t.Parallel()
	for survivors := 1; survivors <= 5; survivors++ {
		c, h := group(t, 1, func(cfg *jobconfig.Configuration) { cfg.Failover, cfg.ShardingTotalCount = true, 23 })
		c.pass(10 * time.Second)
		var others []*simHost
		for k := range survivors {
			o := c.addHost(string(rune('B'+k)), fmt.Sprintf("10.0.0.%d", 2+k))
			must(t, second(o.join(c.file)))
			others = append(others, o)
		}
		c.settle()
		must(t, c.operate(moves.SetItem(c.layout, 5, false)))
		h[0].crash()
		for _, o := range others {
			must(t, o.look())
		}
		claimed := make(map[int]string)
		for _, o := range others {
			out, err := o.recover(h[0].Self.ID, false, 100)
			must(t, err)
			for _, claim := range out.Claimed {
				if by, twice := claimed[claim.Item]; twice {
					t.Errorf("%d survivors: %d was claimed by %s and %s", survivors, claim.Item, by, o.name)
				}
				claimed[claim.Item] = o.name
				if claim.Fire.Instant != c.now.UnixMilli() || claim.State.RecordZxid == 0 {
					t.Errorf("claim %+v", claim)
				}
			}
			if n := len(out.Claimed); n < 23/survivors-1 || n > 23/survivors+1 {
				t.Errorf("%d survivors: %s claimed %d of 22", survivors, o.name, n)
			}
		}
		if len(claimed) != 22 || claimed[5] != "" {
			t.Errorf("%d survivors claimed %d items, the disabled one by %q", survivors, len(claimed), claimed[5])
		}
		must(t, c.operate(moves.SetItem(c.layout, 5, true)))
		must(t, others[0].look())
		limited, err := others[0].recover(h[0].Self.ID, true, 0)
		must(t, err)
		if len(limited.Claimed) > 0 || !slices.Equal(limited.Left.Items(), tree.Items{5}) {
			t.Errorf("with no place left: %+v", limited)
		}
		c.settle()
		c.finish()
	}
}

// TestRecoverDividesAmongTheIdle: hosts that run something of the job take
// nothing while others run nothing, whichever looks first, and the items are
// divided evenly whatever their numbers are.
func TestRecoverDividesAmongTheIdle(t *testing.T) {
	t.Parallel()
	for _, busy := range []int{0, 1, 3} { // of the three survivors
		for first := range 3 {
			c, h := group(t, 4, func(cfg *jobconfig.Configuration) { cfg.Failover, cfg.ShardingTotalCount = true, 24 })
			dead, survivors := h[3], h[:3]
			c.pass(10 * time.Second)
			had := dead.running()
			must(t, dead.complete(tree.Items{had[1], had[3], had[5]}, "OK", ""))
			crashed := dead.running() // every other one
			for k, o := range survivors {
				if k >= busy {
					must(t, o.complete(o.running(), "OK", ""))
				}
			}
			dead.crash()
			for _, o := range survivors {
				must(t, o.look())
			}
			var all tree.Items
			for k := range 3 {
				n := (first + k) % 3
				out, err := survivors[n].recover(dead.Self.ID, false, 100)
				must(t, err)
				want := len(crashed) / (3 - busy%3)
				if n < busy%3 {
					want = 0
				}
				if got := len(out.Claimed); got < want || got > want+1 || want == 0 && got > 0 {
					t.Errorf("%d busy, %d looks first: %d claims %d of %s, want %d or one more", busy, first, n, got, crashed, want)
				}
				for _, claim := range out.Claimed {
					all = append(all, claim.Item)
				}
			}
			if slices.Sort(all); !slices.Equal(all, crashed) {
				t.Errorf("%d busy, %d looks first: %s were taken over in one round, want %s", busy, first, all, crashed)
			}
			c.settle()
			c.finish()
		}
	}
}

// TestRecoverOdds: what is not owed any more.
func TestRecoverOdds(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.Failover = true })
	c.pass(10 * time.Second)
	must(t, h[0].complete(h[0].running(), "OK", ""))
	dead := h[1].Self.ID
	owed := h[1].running()
	h[1].crash()
	// The first item's record was written by somebody else since; the second
	// is beyond a total count that was lowered.
	other, err := json.Marshal(tree.Record{Owner: "somebody", Instant: 1, Begun: 2})
	must(t, err)
	c.hand(registry.Set(fmt.Sprintf("%s/sharding/%d", c.layout.Sibling(), owed[0]), other, registry.AnyVersion))
	must(t, c.edit(func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = owed[1] }))
	must(t, h[0].look())
	out, err := h[0].recover(dead, true, 100)
	must(t, err)
	if !out.Settled || len(out.Claimed) != 0 {
		t.Errorf("recovered %+v", out)
	}
	var lost tree.Items
	for _, l := range out.Lost {
		lost = append(lost, l.Item)
	}
	if !slices.Equal(lost, owed) {
		t.Errorf("lost are %s, want %s", lost, owed)
	}
	if r := c.record(owed[0]); r.Owner != "somebody" {
		t.Errorf("the record of somebody else became %+v", r)
	}
	for _, i := range owed {
		if c.node(c.mark(i, "running")).Exists {
			t.Errorf("item %d is still marked as running", i)
		}
	}

	// A list that cannot be read: the marks alone show what is owed.
	d := c.addHost("D", "10.0.0.4")
	must(t, second(d.join(c.file)))
	must(t, c.edit(func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = 6 }))
	c.settle()
	c.pass(10 * time.Second)
	d.crash()
	c.hand(registry.Set(c.layout.Sibling()+"/runs/"+d.Self.ID, []byte("nonsense"), registry.AnyVersion))
	must(t, h[0].look())
	out, err = h[0].recover(d.Self.ID, true, 100)
	must(t, err)
	if !out.Settled {
		t.Errorf("recovered %+v", out)
	}
	var swept cleanup.Swept
	must(t, h[0].perform(moves.Sweep(&h[0].Member, c.now, &swept)))
	if len(swept.Nodes) != 0 {
		t.Errorf("swept %v", swept)
	}
	must(t, h[0].look())
	crashed := h[0].View.Crashed()
	if len(crashed) != 1 {
		t.Fatalf("crashed are %v", crashed)
	}
	out, err = h[0].recover(crashed[0], true, 100)
	must(t, err)
	if len(out.Claimed) != 3 || !out.Settled {
		t.Errorf("recovered %+v", out)
	}
	c.settle()
	c.finish()
}

// TestRecoverLeavesTheLatch has a host stand in the failover latch when nothing
// is left for it to take: it makes way for those that wait behind it.
func TestRecoverLeavesTheLatch(t *testing.T) {
	t.Parallel()
	c, h := group(t, 1, func(cfg *jobconfig.Configuration) { cfg.Failover, cfg.ShardingTotalCount = true, 1 })
	c.pass(10 * time.Second)
	var others []*simHost
	for k := range 2 {
		o := c.addHost(string(rune('B'+k)), fmt.Sprintf("10.0.0.%d", 2+k))
		must(t, second(o.join(c.file)))
		others = append(others, o)
	}
	c.settle()
	h[0].crash()
	looked := 0
	queue := c.layout.Root() + "/leader/failover/latch"
	for _, o := range others {
		must(t, o.look())
		sum := sha256.Sum256([]byte(o.Self.ID))
		name := fmt.Sprintf("_c_%x-%x-%x-%x-%x-latch-", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
		if _, err := o.rc.Commit(c.ctx, registry.Ensure(queue), registry.CreateSequential(queue+"/"+name, nil)); err != nil {
			t.Fatal(err)
		}
		o.Takeover = latch.Line{Standing: true}
		out, err := o.recover(h[0].Self.ID, false, 100)
		must(t, err)
		if len(out.Left) == 0 {
			continue // it was this one's share
		}
		looked++
		left, err := c.op.Read(c.ctx, registry.Children(queue))
		must(t, err)
		if len(left[0].Names) > 0 || o.Takeover.Standing {
			t.Errorf("%s has nothing to take and stands in the latch: %v", o.name, left[0].Names)
		}
	}
	if looked == 0 {
		t.Error("both had something to take")
	}
}

// TestLostThoughBegunAgain: failover is off, and the new owner of a dead host's
// item begins it for the next instant before anybody looks at what that host has
// left. The run that was cut off is reported nevertheless.
func TestLostThoughBegunAgain(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, nil)
	c.pass(10 * time.Second)
	survivor, dead, owed := h[0], h[1].Self.ID, h[1].running()
	must(t, survivor.complete(survivor.running(), "OK", ""))
	cut := tree.Fire{Instant: c.now.UnixMilli(), Source: "schedule"}
	h[1].crash()
	for !slices.Equal(survivor.owned(), tree.Items{0, 1, 2, 3, 4, 5}) {
		if stepped, err := survivor.step(); err != nil || !stepped {
			t.Fatalf("it does not get the dead host's items: %v", err)
		}
	}
	c.now = c.now.Add(10 * time.Second)
	must(t, survivor.fire(c.now))
	if got := survivor.running(); !slices.Equal(got, survivor.owned()) {
		t.Fatalf("begun are %s", got)
	}
	must(t, survivor.look())
	out, err := survivor.recover(dead, false, 100)
	must(t, err)
	var lost tree.Items
	for _, l := range out.Lost {
		lost = append(lost, l.Item)
		if l.Fire != cut {
			t.Errorf("item %d is lost in the fire %+v, want %+v", l.Item, l.Fire, cut)
		}
	}
	if !slices.Equal(lost, owed) {
		t.Errorf("lost are %s, want %s", lost, owed)
	}
	for _, i := range owed {
		if r := c.record(i); !r.Open() || r.Owner != survivor.Self.ID {
			t.Errorf("the record of the run that goes on is %+v", r)
		}
	}
	c.settle()
	c.finish()
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

// TestRecoverElsewhere: a crashed run whose running mark is gone counts as repeated by
// a Java host only if there was one since the run began, whether that is still
// there or has gone; else somebody deleted the mark, and the run is taken over.
//
// It kills the mutant "run whose mark is gone called Java's".
func TestRecoverElsewhere(t *testing.T) {
	t.Parallel()
	for name, java := range map[string]string{"no Java host": "never", "one that left before": "before", "one that left since": "since", "one that is there": "there"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.Failover = true })
			a, b := h[0], h[1]
			settle := func() {
				t.Helper()
				for range 12 {
					for _, h := range []*simHost{a, b} {
						must(t, h.look())
						must(t, second(h.step()))
					}
					c.now = c.now.Add(time.Second)
				}
			}
			const id = "10.0.9.9@-@77"
			come := func() {
				t.Helper()
				must(t, second(c.op.Commit(c.ctx, registry.Ensure(c.layout.Root()+"/servers/10.0.9.9"), registry.Create(c.layout.Root()+"/instances/"+id, []byte("jobInstanceId: "+id+"\n")))))
				settle()
			}
			leave := func() {
				t.Helper()
				must(t, second(c.op.Commit(c.ctx, registry.Delete(c.layout.Root()+"/instances/"+id, registry.AnyVersion))))
				settle()
			}
			if java == "before" {
				come()
				leave()
			}
			begin(t, a, c.now.Add(time.Second))
			if java == "since" || java == "there" {
				come()
			}
			if java == "since" {
				leave()
			}
			a.crash()
			item := a.Runs.Items()[0]
			must(t, second(c.op.Commit(c.ctx, registry.Delete(fmt.Sprintf("%s/sharding/%d/running", c.layout.Root(), item), registry.AnyVersion))))
			must(t, b.look())
			out, err := b.recover(a.Self.ID, true, 1000)
			must(t, err)
			claimed, elsewhere := false, false
			for _, cl := range out.Claimed {
				claimed = claimed || cl.Item == item
			}
			for _, cl := range out.Elsewhere {
				elsewhere = elsewhere || cl.Item == item
			}
			if want := java == "since" || java == "there"; elsewhere != want || claimed == want {
				t.Errorf("item %d: taken over %v, said to have been repeated by a Java host %v; expected the latter to be %v", item, claimed, elsewhere, want)
			}
		})
	}
}

// TestUnknownItemsOfADeadHostAreNotReadOneByOne: its list names a million.
func TestUnknownItemsOfADeadHostAreNotReadOneByOne(t *testing.T) {
	t.Parallel()
	c, h := edited(t, 2)
	owed := h[1].running()
	h[1].crash()
	c.hand(registry.Set(c.layout.Sibling()+"/runs/"+h[1].Self.ID, []byte(everything), registry.AnyVersion))
	must(t, h[0].look())
	var out co.Recovered
	n := h[0].counted(moves.Recover(&h[0].Member, co.Recovery{Dead: h[1].Self.ID, All: true, Limit: 100, Busy: h[0].running().Contains, Now: c.now}, &out))
	if n.queries > 9*c.file.ShardingTotalCount+50 {
		t.Errorf("%d nodes were read for %d items", n.queries, c.file.ShardingTotalCount)
	}
	var claimed tree.Items
	for _, claim := range out.Claimed {
		claimed = append(claimed, claim.Item)
	}
	if !slices.Equal(claimed, owed) || !out.Settled {
		t.Errorf("claimed %s of %s, settled %v", claimed, owed, out.Settled)
	}
	h[0].takeOver(h[1].Self.ID, out.Claimed)
	c.settle()
	c.finish()
}

// TestALargeRecoveryReadsEveryItemOnce: what does not fit a commit is not read
// again for the next.
func TestALargeRecoveryReadsEveryItemOnce(t *testing.T) {
	t.Parallel()
	const items = 5000
	c, h := group(t, 1, func(cfg *jobconfig.Configuration) { cfg.Failover, cfg.ShardingTotalCount = true, items })
	c.pass(10 * time.Second)
	taker := c.addHost("B", "10.0.0.2")
	must(t, second(taker.join(c.file)))
	c.settle()
	must(t, c.operate(moves.SetItem(c.layout, 7, false)))
	h[0].crash()
	must(t, taker.look())
	var out co.Recovered
	var claimed []co.Claim
	calls, queries := 0, 0
	for next := -1; next != 0; next = out.Next {
		n := taker.counted(moves.Recover(&taker.Member, co.Recovery{Dead: h[0].Self.ID, All: true, Limit: 2 * items, From: max(next, 0), Now: c.now}, &out))
		calls, queries, claimed = calls+1, queries+n.queries, slices.Concat(claimed, out.Claimed)
		if n.most > 9*500 || n.queries > 9*500*9 {
			t.Errorf("%d nodes were read by one call, %d at once", n.queries, n.most)
		}
	}
	t.Logf("%d nodes were read for %d items, in %d calls", queries, items, calls)
	if queries > 9*items*3/2 || calls != 2 {
		t.Errorf("%d nodes were read for %d items, in %d calls", queries, items, calls)
	}
	if len(claimed) != items-1 || !slices.Equal(out.Left.Items(), tree.Items{7}) {
		t.Errorf("claimed %d, left %s", len(claimed), out.Left)
	}
	taker.takeOver(h[0].Self.ID, claimed)
	must(t, c.operate(moves.SetItem(c.layout, 7, true)))
	c.settle()
	c.finish()
}

// TestAFailoverMarkThatOutlivesItsMakerIsUnowned: hosts make an ephemeral one.
func TestAFailoverMarkThatOutlivesItsMakerIsUnowned(t *testing.T) {
	t.Parallel()
	for _, data := range []string{"", "DISABLED", "10.0.0.1@-@A", "10.0.0.9@-@Z"} {
		c, h := edited(t, 2)
		owed := h[1].running()
		h[1].crash()
		c.hand(registry.Create(c.mark(owed[0], "failover"), []byte(data)))
		must(t, h[0].look())
		out, err := h[0].recover(h[1].Self.ID, true, 100)
		must(t, err)
		if !out.Settled || len(out.Claimed) != len(owed) {
			t.Errorf("%q: %d of %s were taken over, %s left", data, len(out.Claimed), owed, out.Left)
		}
		if n := c.node(c.mark(owed[0], "failover")); !n.Ephemeral || string(n.Data) != h[0].Self.ID {
			t.Errorf("%q: afterwards the mark is %q", data, n.Data)
		}
		c.settle()
		c.finish()
	}
}

// TestAMarkOnAnItemThatDoesNotRun: the record was edited, and names a host that
// lives as if it ran the item. What Java hosts mark is then of no crashed host.
func TestAMarkOnAnItemThatDoesNotRun(t *testing.T) {
	t.Parallel()
	c, h := edited(t, 2)
	for _, x := range h {
		must(t, x.complete(x.running(), "OK", ""))
	}
	mark := c.layout.Root() + "/leader/failover/items/0"
	c.hand(registry.Set(c.layout.Sibling()+"/sharding/0", []byte(`{"owner":"`+h[1].Self.ID+`","instant":1,"begun":1}`), registry.AnyVersion), registry.Create(mark, nil))
	must(t, h[0].look())
	must(t, second(h[0].recover("", true, 100)))
	if c.node(mark).Exists {
		t.Error("the mark is left")
	}
	c.pass(10 * time.Second) // the owner hears that its share is stale
	c.settle()
	c.pass(10 * time.Second)
	if got := len(h[0].running()) + len(h[1].running()); got != c.file.ShardingTotalCount {
		t.Errorf("%d items run", got)
	}
	c.finish()
}

// TestAStoppedHostKeepsWhatItRunsThoughItsListIsEmptied: one of the two nodes that show that it
// lives is gone; and somebody has marked an item of it.
func TestAStoppedHostKeepsWhatItRunsThoughItsListIsEmptied(t *testing.T) {
	t.Parallel()
	for _, gone := range []string{"its instance", "its detail"} {
		c, h := edited(t, 2)
		running := h[1].running()
		mark := c.layout.Root() + "/leader/failover/items/" + tree.Items{running[0]}.String()
		node := c.layout.Root() + "/instances/" + h[1].Self.ID
		if gone == "its detail" {
			node = c.layout.Sibling() + "/instances/" + h[1].Self.ID
		}
		c.hand(registry.Set(c.layout.Sibling()+"/runs/"+h[1].Self.ID, nil, registry.AnyVersion), registry.Delete(node, registry.AnyVersion), registry.Create(mark, nil))
		must(t, h[0].look())
		out, err := h[0].recover("", true, 100)
		must(t, err)
		if len(out.Claimed) > 0 {
			t.Errorf("%s is gone: claimed %+v", gone, out.Claimed)
		}
		if c.node(mark).Exists {
			t.Errorf("%s is gone: the mark is left", gone)
		}
	}
}

// TestMarkedItemOfADeadHost: what stands in the list of a host that died is taken from there, and
// not because a Java host has marked it as well.
func TestMarkedItemOfADeadHost(t *testing.T) {
	t.Parallel()
	c, h := edited(t, 2)
	running := h[1].running()
	h[1].crash()
	c.hand(registry.Create(c.layout.Root()+"/leader/failover/items/"+tree.Items{running[0]}.String(), nil))
	must(t, h[0].look())
	out, err := h[0].recover("", true, 100)
	must(t, err)
	if len(out.Claimed) > 0 {
		t.Errorf("claimed by the mark: %+v", out.Claimed)
	}
	out, err = h[0].recover(h[1].Self.ID, true, 100)
	must(t, err)
	if len(out.Claimed) != len(running) || len(out.Lost) > 0 {
		t.Errorf("claimed of the dead host's %d items: %+v, lost %+v", len(running), out.Claimed, out.Lost)
	}
}

// TestLeavingWhileItIsLookedAt: a host that an operator has stopped, and that leaves while another one reads
// what it left, is not taken for gone.
func TestLeavingWhileItIsLookedAt(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"bury", "recover"} {
		c, hosts := group(t, 2, nil)
		other, stopped := hosts[0], hosts[1]
		if how == "recover" { // else there is nothing to recover
			begin(t, stopped, c.now.Add(time.Second))
		}
		must(t, c.operate(moves.StopInstance(c.layout, stopped.Self.ID)))
		must(t, stopped.look())
		must(t, other.look())
		r := &livesLast{Center: other.rc, l: c.layout, of: stopped.Self.ID, before: func() { must(t, stopped.perform(moves.Leave(&stopped.Member))) }}
		m := other.Member
		m.Registry = r
		var gone []string
		var out co.Recovered
		var err error
		if how == "bury" {
			_, gone, err = m.Bury(c.ctx, []string{stopped.Self.ID}, true)
		} else {
			out, err = m.Recover(c.ctx, co.Recovery{Dead: stopped.Self.ID, All: true, Now: c.now})
		}
		if must(t, err); len(gone) > 0 || out.Gone || r.before != nil {
			t.Errorf("%s: gone %v, %+v", how, gone, out)
		}
	}
}

// livesLast reads the nodes that show that a host lives after the others of a request, and lets something
// happen before, once.
type livesLast struct {
	registry.Center
	l      tree.Layout
	of     string
	before func()
}

func (c *livesLast) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	nodes := make([]registry.Node, len(queries))
	shows := func(q registry.Query) bool { return q.Path == c.l.Instance(c.of) || q.Path == c.l.Detail(c.of) }
	for _, last := range []bool{false, true} {
		if last && c.before != nil && slices.ContainsFunc(queries, shows) {
			c.before()
			c.before = nil
		}
		for n, q := range queries {
			if shows(q) != last {
				continue
			}
			one, err := c.Center.Read(ctx, q)
			if err != nil {
				return nil, err
			}
			nodes[n] = one[0]
		}
	}
	return nodes, nil
}

// TestBury: who left nothing is buried with the others, who left something is
// told of, who is on its way or finishes what it runs lives.
func TestBury(t *testing.T) {
	t.Parallel()
	c, hosts := group(t, 5, func(cfg *jobconfig.Configuration) { cfg.Failover = true })
	leader, runs, idle, idleToo, stopped := hosts[0], hosts[1], hosts[2], hosts[3], hosts[4]
	begin(t, runs, c.now.Add(time.Second))
	var dead []string
	for _, h := range hosts[1:4] {
		dead = append(dead, h.Self.ID)
		h.crash()
	}
	c.hand(registry.Delete(c.layout.Root()+"/instances/"+stopped.Self.ID, registry.AnyVersion))
	dead = append(dead, stopped.Self.ID)
	must(t, leader.look())
	c.hand(registry.Set(c.layout.Sibling()+"/runs/"+idleToo.Self.ID, []byte(`{"left":true}`), registry.AnyVersion)) // in good order
	var left, gone []string
	must(t, leader.perform(with(&leader.Member, func(ctx context.Context) (err error) {
		left, gone, err = leader.Bury(ctx, dead, false)
		return err
	})))
	if !slices.Equal(gone, []string{idle.Self.ID}) {
		t.Errorf("gone are %v, expected %s", gone, idle.Self.ID)
	}
	if !slices.Equal(left, []string{runs.Self.ID}) || len(c.members()) != 5 {
		t.Errorf("looking: left %v, members %v", left, c.members())
	}
	commits := 0
	leader.plan = countCommits(&commits)
	must(t, leader.perform(moves.Bury(&leader.Member, dead, true, &left)))
	want := []string{leader.Self.ID, runs.Self.ID, stopped.Self.ID}
	if got := c.members(); !slices.Equal(left, []string{runs.Self.ID}) || !slices.Equal(got, want) || commits != 1 {
		t.Errorf("left %v, members %v after %d commits, want %v after one", left, got, commits, want)
	}
	for _, h := range []*simHost{idle, idleToo} {
		for _, of := range []string{"/runs/", "/assignment/"} {
			if c.node(c.layout.Sibling() + of + h.Self.ID).Exists {
				t.Errorf("%s%s is there still", of, h.name)
			}
		}
	}
	if !c.node(c.layout.Root() + "/leader/sharding/necessary").Exists {
		t.Error("nobody is asked to divide what the dead owned")
	}
}
