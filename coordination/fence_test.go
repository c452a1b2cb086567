package coordination_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Each test of this file removes every other reason to refuse a former leader or
// owner, so that one guard is left. The list of mutants names the test for that
// guard (test/mutants).

// TestFenceOfFormerLeader: a host read all that a division needs, and was leader
// no more when it committed. Another one of ours leads, with the same membership
// and configuration, and has not divided yet. Only the term differs.
// It kills the mutant "division without the term's guard".
func TestFenceOfFormerLeader(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, nil)
	former, next := h[0], h[1]
	must(t, c.edit(func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = 7 }))
	must(t, former.look())
	var sharded co.Sharded
	former.beforeCommit(func() {
		must(t, c.operate(moves.Resign(&former.Member)))
		must(t, next.look())
		for steps := 0; !next.View.Leading(); steps++ {
			if steps == 5 {
				t.Fatal("nobody is elected")
			}
			must(t, second(next.step()))
			must(t, next.look())
		}
	})
	must(t, former.perform(moves.Reshard(&former.Member, c.now, &sharded)))
	if sharded.Commits > 0 {
		t.Errorf("a former leader divided the items into %v", sharded.Items)
	}
	if total := c.division().Total; total != 6 {
		t.Errorf("the division has %d items before the new leader made one, want 6 as before", total)
	}
	c.settle()
	if total := c.division().Total; total != 7 {
		t.Errorf("the new leader divided %d items, want 7", total)
	}
	c.finish()
}

// TestFenceOfFormerOwner: a host writes for an item that another host has begun since,
// or is running.
func TestFenceOfFormerOwner(t *testing.T) {
	t.Parallel()

	// Somebody deleted the node that shows that A lives, B looked, and A has made
	// it again since. Without running marks only that node shows that the item
	// may still run on A.
	// It kills the mutant "begin without the old owner's detail guard".
	t.Run("lives", func(t *testing.T) {
		c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.MonitorExecution = false })
		a, b := h[0], h[1]
		begin(t, a, c.now.Add(time.Second))
		item := a.running()[0]
		before, detail := c.record(item), c.layout.Sibling()+"/instances/"+a.Self.ID
		c.hand(registry.Delete(detail, registry.AnyVersion))
		b.beforeCommit(func() {
			_, err := a.rc.Commit(c.ctx, registry.CreateEphemeral(detail, nil))
			must(t, err)
		})
		out := beginAt(t, b, item, a.items[item].state, b.View.Config, c.now.Add(2*time.Second))
		if out.Refused[item] != co.RefusedRunning || c.record(item) != before {
			t.Errorf("B began item %d, which runs on A: refused %q, the record is %+v", item, out.Refused[item], c.record(item))
		}
	})

	// Somebody deleted the node that shows that A lives, and B began the item.
	// A's session lives, and its list of runs is as it was.
	taken := func(t *testing.T) (c *chronicle, a *simHost, item int, state co.ItemState) {
		c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.MonitorExecution = false })
		a, b := h[0], h[1]
		begin(t, a, c.now.Add(time.Second))
		item = a.running()[0]
		state = a.items[item].state
		var saved co.Saved
		must(t, a.perform(moves.SaveOffsets(c.layout, map[int]co.Ended{item: {State: state, Offset: []byte("first"), HasOffset: true}}, &saved)))
		state = saved.Items[item]
		c.hand(registry.Delete(c.layout.Sibling()+"/instances/"+a.Self.ID, registry.AnyVersion))
		if out := beginAt(t, b, item, state, b.View.Config, c.now.Add(2*time.Second)); len(out.Items) != 1 {
			t.Fatalf("B did not begin item %d: %v", item, out.Refused)
		}
		return c, a, item, state
	}
	offset := func(c *chronicle, item int) string {
		return string(c.node(fmt.Sprintf("%s/offset/%d", c.layout.Sibling(), item)).Data)
	}

	// It kills the mutant "offset without the record check".
	t.Run("saves an offset", func(t *testing.T) {
		c, a, item, state := taken(t)
		var saved co.Saved
		must(t, a.perform(moves.SaveOffsets(c.layout, map[int]co.Ended{item: {State: state, Offset: []byte("late"), HasOffset: true}}, &saved)))
		if !slices.Equal(saved.Lost, tree.Items{item}) || offset(c, item) != "first" {
			t.Errorf("A's offset of an item that B began since: lost %v, the node holds %q", saved.Lost, offset(c, item))
		}
	})

	// It kills the mutant "complete without the record's version".
	t.Run("completes", func(t *testing.T) {
		c, a, item, state := taken(t)
		before := c.record(item)
		var out co.Completed
		must(t, a.perform(moves.Complete(&a.Member, co.Completing{Now: c.now,
			Items: map[int]co.Ended{item: {State: state, Outcome: "OK", Offset: []byte("late"), HasOffset: true}}}, &out)))
		if !slices.Equal(out.Lost, tree.Items{item}) || c.record(item) != before || offset(c, item) != "first" {
			t.Errorf("A's completion of an item that B began since: lost %v, the record is %+v, the offset %q", out.Lost, c.record(item), offset(c, item))
		}
	})

	// A dies with an item. B has read the record and is about to take the item
	// over when C, its owner now, begins it for the next instant. C knows an
	// older configuration, without running marks, so that B meets none.
	// It kills the mutant "claim without the record's version".
	t.Run("claims", func(t *testing.T) {
		c, h := group(t, 3, func(cfg *jobconfig.Configuration) { cfg.Failover, cfg.MonitorExecution = true, false })
		a, b, next := h[0], h[1], h[2]
		begin(t, a, c.now.Add(time.Second))
		item := a.running()[0]
		state, old := a.items[item].state, next.View.Config
		must(t, c.edit(func(cfg *jobconfig.Configuration) { cfg.MonitorExecution = true }))
		a.crash()
		must(t, b.look())
		var newer tree.Record
		b.beforeCommit(func() {
			if out := beginAt(t, next, item, state, old, c.now.Add(2*time.Second)); len(out.Items) != 1 {
				t.Fatalf("C did not begin item %d: %v", item, out.Refused)
			}
			newer = c.record(item)
		})
		out, err := b.recover(a.Self.ID, true, 100)
		must(t, err)
		for _, claim := range out.Claimed {
			if claim.Item == item {
				t.Errorf("B took over item %d, which C began since", item)
			}
		}
		if c.record(item) != newer {
			t.Errorf("the record of C's run was overwritten: %+v", c.record(item))
		}
	})
}

// TestRecordNamesItsPast: every begin and completion notes the transaction that
// wrote the record before, so that the record of a run that has ended names its
// fence, and none names a transaction that comes after its own.
//
// It kills the mutant "record that does not name its past".
func TestRecordNamesItsPast(t *testing.T) {
	t.Parallel()
	c, hosts := group(t, 1, nil)
	h := hosts[0]
	node := func() registry.Node { return c.node(c.layout.Sibling() + "/sharding/0") }
	for n := range 3 {
		before := node().Mzxid
		fence := begin(t, h, c.now.Add(time.Duration(n+1)*time.Second)).Items[0].RecordZxid
		if got := c.record(0).After; got != before {
			t.Errorf("begin %d: the record names %d, expected %d, which wrote it before", n, got, before)
		}
		must(t, h.complete(h.running(), "OK", ""))
		if got := c.record(0).After; got != fence || got >= node().Mzxid {
			t.Errorf("completion %d: the record names %d, expected the fence %d; transaction %d wrote it", n, got, fence, node().Mzxid)
		}
	}
}
