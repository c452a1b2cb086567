package coordination_test

import (
	"errors"
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

// TestCompleteBeforeObserving: an item that stays only because it runs is
// completed before its host has observed that. It moves all the same, and one
// beyond the total count goes.
func TestCompleteBeforeObserving(t *testing.T) {
	t.Parallel()
	for _, total := range []int{6, 2} {
		c, h := group(t, 1, nil)
		c.pass(10 * time.Second)
		d := c.addHost("B", "10.0.0.2")
		must(t, second(d.join(c.file)))
		must(t, c.edit(func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = total }))
		must(t, second(h[0].step()))
		if len(c.division().Pending) == 0 {
			t.Fatal("nothing is pending")
		}
		must(t, h[0].complete(h[0].running(), "OK", "")) // with what it knew
		c.settle()
		if d := c.division(); len(d.Pending) > 0 || len(c.assignments()[h[0].Self.ID]) != total/2 {
			t.Errorf("pending %s, A has %s", d.Pending, c.assignments()[h[0].Self.ID])
		}
		c.finish()
	}
}

// TestACompletionWithALostAnswerStands: items move as soon as they are
// completed, and their new owner has begun the next fire before the host that
// completed them asks what became of the commit.
func TestACompletionWithALostAnswerStands(t *testing.T) {
	t.Parallel()
	for _, fault := range []registrytest.Fault{registrytest.LostAnswer, registrytest.LostRequest} {
		c, hosts := group(t, 2, nil)
		leader, h := hosts[0], hosts[1]
		begin(t, h, c.now.Add(time.Second))
		items := h.running()
		c.hand(registry.Set(c.layout.Root()+"/servers/"+h.ip, []byte("DISABLED"), registry.AnyVersion))
		if stepped, err := h.step(); !stepped || err != nil {
			t.Fatalf("a disabled host does not ask for another division: %v", err)
		}
		wish := co.Completing{Items: make(map[int]co.Ended), Now: c.now}
		for _, i := range items {
			wish.Items[i] = co.Ended{State: h.items[i].state, Outcome: "OK", Offset: []byte("done"), HasOffset: true}
		}
		lost := false
		h.plan = func(_ int, op string) registrytest.Fault {
			switch {
			case op == "commit" && !lost:
				lost = true
				return fault
			case lost:
				h.plan = nil
				for stepped := true; stepped; {
					var err error
					stepped, err = leader.step()
					must(t, err)
				}
				begin(t, leader, c.now.Add(11*time.Second))
			}
			return registrytest.NoFault
		}
		var out co.Completed
		must(t, h.perform(moves.Complete(&h.Member, wish, &out)))
		if len(out.Lost) > 0 || len(out.Items) != len(items) {
			t.Errorf("fault %d: of %v, completed %v, lost %v", fault, items, out.Items, out.Lost)
		}
		for i, state := range out.Items {
			if state.Record.Open() || state.Record.Outcome != "OK" || string(state.Offset) != "done" {
				t.Errorf("fault %d: item %d: %+v", fault, i, state)
			}
			if owner := c.record(i).Owner; (owner == leader.Self.ID) != (fault == registrytest.LostAnswer) {
				t.Errorf("fault %d: item %d was last begun by %s", fault, i, owner)
			}
		}
		for i := range h.items {
			h.items[i].running = false
		}
		must(t, leader.complete(leader.running(), "OK", ""))
		c.finish()
	}
}

// TestCompleteOutcomeUnknown: the same for a completion, put again as it was.
func TestCompleteOutcomeUnknown(t *testing.T) {
	t.Parallel()
	c, hosts := group(t, 1, nil)
	h := hosts[0]
	c.pass(time.Second)
	lost := false
	h.plan = func(_ int, op string) registrytest.Fault {
		if op == "commit" && !lost {
			lost = true
			return registrytest.LostAnswer
		}
		return registrytest.Refused
	}
	if err := h.complete(tree.Items{0, 1}, "OK", "end"); !errors.Is(err, registry.ErrUnavailable) {
		t.Fatalf("complete: %v", err)
	}
	h.plan = nil
	must(t, h.complete(tree.Items{0, 1, 2}, "OK", "end"))
	if strings.Contains(c.log.String(), "no longer") || !slices.Equal(h.Runs.Items(), tree.Items{3, 4, 5}) {
		t.Errorf("runs are %v", h.Runs)
	}
	if h.items[0].state.OffsetVersion != c.node(c.layout.Sibling()+"/offset/0").Version || string(c.node(c.layout.Sibling()+"/offset/2").Data) != "end" {
		t.Error("offsets are not what the host believes")
	}
	c.finish()
}

// TestCompleteOdds: marks and offsets that are not what they were.
func TestCompleteOdds(t *testing.T) {
	t.Parallel()
	c, hosts := group(t, 1, nil) // the marks are ephemeral
	h := hosts[0]
	c.pass(time.Second)
	l := c.layout
	if !c.node(c.mark(0, "running")).Ephemeral {
		t.Error("without failover the mark is persistent")
	}
	c.hand(registry.Delete(c.mark(0, "running"), registry.AnyVersion))                                                                                                  // a console
	c.hand(registry.Delete(c.mark(1, "running"), registry.AnyVersion), registry.Create(c.mark(1, "running"), []byte("java")))                                           // Java
	c.hand(registry.Create(l.Sibling()+"/offset/2", []byte("by hand")))                                                                                                 // an offset that the host has not seen
	c.hand(registry.Set(l.Sibling()+"/sharding/3", []byte(`{"owner":"other","instant":1,"begun":2}`), registry.AnyVersion))                                             // another owner
	c.hand(registry.Delete(c.mark(4, "running"), registry.AnyVersion), registry.Create(c.mark(4, "running"), nil))                                                      // 2.x
	c.hand(registry.Set(l.Sibling()+"/members", c.node(l.Sibling()+"/members").Data, registry.AnyVersion), registry.Create(l.Root()+"/leader/sharding/necessary", nil)) // news
	completing := co.Completing{Items: make(map[int]co.Ended), Wake: true, AskForSharding: true, Now: c.now}
	for i, it := range h.items {
		completing.Items[i] = co.Ended{State: it.state, Outcome: "OK", Offset: []byte("end"), HasOffset: i == 2 || i == 3}
	}
	before := c.node(l.Sibling() + "/members").Version
	var out co.Completed
	must(t, h.perform(moves.Complete(&h.Member, completing, &out)))
	if len(out.Items) != 5 || !slices.Equal(out.Lost, tree.Items{3}) || len(h.Runs.Runs) != 0 {
		t.Errorf("completed %+v", out)
	}
	if got := string(c.node(l.Sibling() + "/offset/2").Data); got != "end" || out.Items[2].OffsetVersion != 1 {
		t.Errorf("offset %q, state %+v", got, out.Items[2])
	}
	if c.node(l.Sibling() + "/offset/3").Exists {
		t.Error("the offset of a lost item was written")
	}
	if string(c.node(c.mark(1, "running")).Data) != "java" || c.node(c.mark(4, "running")).Exists {
		t.Error("the marks of others and of 2.x")
	}
	if c.node(l.Sibling()+"/members").Version == before {
		t.Error("the others were not woken after the completion")
	}
}

// TestCompleteNothing: a look for begins whose outcome is unknown writes nothing where there are none.
func TestCompleteNothing(t *testing.T) {
	t.Parallel()
	c, hosts := group(t, 1, nil)
	h := hosts[0]
	c.pass(time.Second)
	list := c.layout.RunsOf(h.Self.ID)
	before := c.node(list).Mzxid
	var out co.Completed
	must(t, h.perform(moves.Complete(&h.Member, co.Completing{Now: c.now}, &out)))
	if c.node(list).Mzxid != before || len(out.Items) != 0 || len(h.Runs.Items()) == 0 {
		t.Errorf("completed %+v; the list was written: %v", out, c.node(list).Mzxid != before)
	}
}
