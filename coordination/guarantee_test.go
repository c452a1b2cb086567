package coordination_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/recipe/guarantee"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
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
		s, err := guarantee.Look(c.ctx, c.op, c.layout, guarantee.Arrival{Phase: guarantee.Started, Items: h[0].owned(), Total: 9})
		must(t, err)
		if n := c.read(registry.Children(path)); s.Over != !slices.Contains(n.Names, h[0].owned()[:1].String()) {
			t.Errorf("over with %v", n.Names)
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
	s, err := guarantee.Look(c.ctx, c.op, c.layout, guarantee.Arrival{Self: a.Self, Phase: guarantee.Started, Items: a.owned(), Total: 6})
	must(t, err)
	if !s.Over {
		t.Errorf("the phase is over, and A would go on waiting: %+v", s)
	}
}

// TestGuaranteeNamesItsFire: hosts that are one fire apart do not run the listener for items of two fires, and
// do not wait for each other. Marks of Java hosts name no fire, and count for any.
func TestGuaranteeNamesItsFire(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, nil)
	a, b := h[0], h[1]
	at := func(h *simHost, fire tree.Fire) guarantee.Arrival {
		return guarantee.Arrival{Self: h.Self, Phase: guarantee.Started, Fire: fire, Items: h.owned(), Total: 6}
	}
	arrive := func(arrival guarantee.Arrival) guarantee.Standing {
		t.Helper()
		s, err := guarantee.Arrive(c.ctx, c.op, c.layout, arrival)
		must(t, err)
		return s
	}
	first, next := tree.Fire{Instant: c.now.UnixMilli()}, tree.Fire{Instant: c.now.Add(10 * time.Second).UnixMilli()}
	if s := arrive(at(b, first)); s.Last || s.Over || !slices.Equal(s.Missing, a.owned()) {
		t.Errorf("B has come alone: %+v, expected it to wait for %s", s, a.owned())
	}
	if s := arrive(at(a, next)); s.Last || s.Over || !slices.Equal(s.Missing, b.owned()) || s.Left != (tree.Fire{}) {
		t.Errorf("A has come for the next fire: %+v, expected it to wait for %s", s, b.owned())
	}
	s, err := guarantee.Look(c.ctx, c.op, c.layout, at(b, first))
	must(t, err)
	if !s.Over {
		t.Errorf("A's items are in a later fire, and B goes on waiting for them: %+v", s)
	}
	if s := arrive(at(b, next)); !s.Last || !s.Left.Same(first) {
		t.Errorf("B has come for A's fire: %+v, expected it to be the last, and to have found its marks of the fire before", s)
	}
	if s := arrive(at(a, first)); s.Last || !s.Over {
		t.Errorf("A comes for the fire before: %+v, expected that to be over", s)
	}
	must(t, a.perform(moves.ClearGuarantee(c.layout, guarantee.Started)))

	for _, i := range a.owned() { // as a Java host marks its items
		c.hand(registry.Ensure(c.layout.Started()), registry.Create(c.layout.Started()+"/"+strconv.Itoa(i), nil))
	}
	if s := arrive(at(b, next)); !s.Last {
		t.Errorf("a Java host has come, and then B: %+v, expected it to be the last", s)
	}
}

// TestGuaranteeMeetsALaterFire: a host looks at a mark of an earlier fire that it is about to replace, and an item comes
// for a later fire before it does. That stays.
func TestGuaranteeMeetsALaterFire(t *testing.T) {
	t.Parallel()
	c, h := group(t, 1, nil)
	fire := func(n int) guarantee.Arrival {
		at := c.now.Add(time.Duration(n) * 10 * time.Second).UnixMilli()
		return guarantee.Arrival{Self: h[0].Self, Phase: guarantee.Started, Fire: tree.Fire{Instant: at}, Items: tree.Items{3}, Total: 6}
	}
	arrive := func(r registry.Center, a guarantee.Arrival) guarantee.Standing {
		t.Helper()
		s, err := guarantee.Arrive(c.ctx, r, c.layout, a)
		must(t, err)
		return s
	}
	arrive(c.op, fire(0))
	met := &interrupted{Center: c.op, at: 3, do: func() { arrive(c.op, fire(2)) }} // it marks, finds the mark, and sets it
	if s := arrive(met, fire(1)); !s.Over || met.calls < 3 {
		t.Errorf("after %d calls: %+v, expected the fire to be over for this host", met.calls, s)
	}
	if s, err := guarantee.Look(c.ctx, c.op, c.layout, fire(2)); err != nil || slices.Contains(s.Missing, 3) {
		t.Errorf("the later fire: %+v, %v; expected item 3 to have come", s, err)
	}
}

// TestGuaranteeOfTriggers: hosts see a trigger at instants of their own, and its round is one fire.
func TestGuaranteeOfTriggers(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, nil)
	for k, last := range []bool{false, true} {
		fire := tree.Fire{Instant: c.now.Add(time.Duration(k) * time.Second).UnixMilli(), Trigger: 77}
		s, err := guarantee.Arrive(c.ctx, c.op, c.layout, guarantee.Arrival{Self: h[k].Self, Phase: guarantee.Completed, Fire: fire, Items: h[k].owned(), Total: 6})
		must(t, err)
		if s.Last != last {
			t.Errorf("host %d: %+v, expected the last: %t", k, s, last)
		}
	}
}
