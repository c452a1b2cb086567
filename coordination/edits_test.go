package coordination_test

import (
	"slices"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
)

// The tests of this file show, one by one, what scripts of random edits have
// found (FuzzRegistry): nodes that a hand has written and that stood in the
// way of a job for ever.

func failoverOn(cfg *jobconfig.Configuration) { cfg.Failover = true }

// edited is a group whose nodes a hand will edit, in the middle of a fire.
func edited(t *testing.T, n int) (*chronicle, []*simHost) {
	c, h := group(t, n, failoverOn)
	c.edited = true
	c.pass(10 * time.Second)
	return c, h
}

func (h *simHost) sweep() []string {
	h.t.Helper()
	var swept co.Swept
	if err := h.look(); err != nil {
		h.t.Fatal(err)
	}
	if err := h.perform(moves.Sweep(&h.Member, h.now, &swept)); err != nil {
		h.t.Fatal(err)
	}
	return swept.Nodes
}

// TestAFailoverMarkThatOutlivesItsMakerIsNobodys: hosts make an ephemeral one.
func TestAFailoverMarkThatOutlivesItsMakerIsNobodys(t *testing.T) {
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

// TestSweepOfFailoverMarks: on an item that is in a host's list, and on one
// that nobody runs.
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
	// does whoever marks the item as running.
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

// TestAMarkOnAnItemThatNobodyRuns: the record was edited, and names a host that
// lives as if it ran the item. What Java hosts mark is then of no crashed host.
func TestAMarkOnAnItemThatNobodyRuns(t *testing.T) {
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

// TestAStoppedHostKeepsWhatItRunsThoughItsListIsEmptied: its instance is gone,
// its detail tells that it lives; and somebody has marked an item of it.
func TestAStoppedHostKeepsWhatItRunsThoughItsListIsEmptied(t *testing.T) {
	t.Parallel()
	c, h := edited(t, 2)
	running := h[1].running()
	mark := c.layout.Root() + "/leader/failover/items/" + co.Items{running[0]}.String()
	c.hand(registry.Set(c.layout.Sibling()+"/runs/"+h[1].Self.ID, nil, registry.AnyVersion),
		registry.Delete(c.layout.Root()+"/instances/"+h[1].Self.ID, registry.AnyVersion), registry.Create(mark, nil))
	must(t, h[0].look())
	out, err := h[0].recover("", true, 100)
	must(t, err)
	if len(out.Claimed) > 0 {
		t.Errorf("claimed %+v", out.Claimed)
	}
	if c.node(mark).Exists {
		t.Error("the mark is left")
	}
}

// TestAListOfRunsOfNobodyStopsNoDivision: somebody's node among the instances
// lives, and has a list that cannot be read.
func TestAListOfRunsOfNobodyStopsNoDivision(t *testing.T) {
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
	// One of ours makes its list anew, and is waited for.
	c.hand(registry.Set(c.layout.Sibling()+"/runs/"+h[1].Self.ID, []byte("NaN"), registry.AnyVersion))
	must(t, h[0].look())
	if err := h[0].perform(moves.Reshard(&h[0].Member, c.now, nil)); err == nil {
		t.Error("items were divided though nobody can tell what a host runs")
	}
}
