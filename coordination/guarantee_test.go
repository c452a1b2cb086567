package coordination_test

import (
	"slices"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/guarantee"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// TestGuaranteeConcurrently: of several hosts that arrive, in any order and
// in the middle of each other's arrival, one is the last.
func TestGuaranteeConcurrently(t *testing.T) {
	t.Parallel()
	c, h := group(t, 3, func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = 9 })
	for round := range 20 {
		last := make([]bool, 3)
		arrive := func(k int) {
			must(t, h[k].perform(moves.Arrive(c.layout, h[k].View.Self, guarantee.Started, h[k].owned(), 9, &last[k])))
		}
		calls := 0
		h[round%3].plan = func(int, string) registrytest.Fault {
			if calls++; calls == 1+round%4 {
				arrive((round + 1) % 3)
			}
			return registrytest.NoFault
		}
		arrive(round % 3)
		h[round%3].plan = nil
		if calls < 1+round%4 {
			arrive((round + 1) % 3)
		}
		path := c.layout.Root() + "/guarantee/started"
		if n := c.read(registry.Children(path)); guarantee.Passed(n, h[0].owned()) != !slices.Contains(n.Names, h[0].owned()[:1].String()) {
			t.Errorf("passed with %v", n.Names)
		}
		arrive((round + 2) % 3)
		n := 0
		for _, l := range last {
			if l {
				n++
			}
		}
		if n != 1 || !c.node(path).Exists {
			t.Fatalf("round %d: %d hosts were the last, %v; the others wait until it is cleared", round, n, last)
		}
		must(t, h[0].perform(moves.ClearGuarantee(c.layout, guarantee.Started)))
	}
	// Very many marks take several commits.
	var items tree.Items
	for i := range 20_000 {
		items = append(items, i)
	}
	done := false
	must(t, h[0].perform(moves.Arrive(c.layout, h[0].View.Self, guarantee.Completed, items[:19_999], 20_000, &done)))
	if done {
		t.Error("one item is missing")
	}
	must(t, h[1].perform(moves.Arrive(c.layout, h[1].View.Self, guarantee.Completed, items[19_999:], 20_000, &done)))
	if !done {
		t.Error("the last item did not end it")
	}
	must(t, h[1].perform(moves.ClearGuarantee(c.layout, guarantee.Completed)))
	if c.node(c.layout.Root() + "/guarantee/completed").Exists {
		t.Error("marks are left")
	}
	must(t, h[0].perform(moves.Arrive(c.layout, h[0].View.Self, guarantee.Completed, items[:3], 20_000, &done)))
	must(t, h[0].perform(moves.ClearGuarantee(c.layout, guarantee.Completed)))
	must(t, h[0].perform(moves.ClearGuarantee(c.layout, guarantee.Completed)))
	if c.node(c.layout.Root() + "/guarantee/completed").Exists {
		t.Error("not cleared")
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
	arrive := func(h *simHost, items tree.Items) (last bool) {
		t.Helper()
		must(t, h.perform(moves.Arrive(c.layout, h.Self, guarantee.Started, items, 6, &last)))
		return last
	}
	if arrive(a, a.owned()) {
		t.Error("A was the last, and B has not arrived")
	}
	must(t, c.operate(moves.SetItem(c.layout, off, false)))
	if !arrive(b, rest) {
		t.Errorf("item %d is disabled, and waited for", off)
	}
	must(t, b.perform(moves.ClearGuarantee(c.layout, guarantee.Started)))
	// A host that looks only now, as after a lost notification, sees that it is over.
	n := c.read(guarantee.Watch(c.layout, guarantee.Started))
	if !guarantee.Passed(n, a.owned()) {
		t.Errorf("the phase is over, and A would go on waiting: %+v", n)
	}
}
