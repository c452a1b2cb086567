package coordination_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registrytest"
)

// reader counts what is asked of a registry.
type reader struct {
	registry.Center
	queries, most int // most: in one read
}

func (c *reader) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	c.queries += len(queries)
	c.most = max(c.most, len(queries))
	return c.Center.Read(ctx, queries...)
}

// counted does what a host does and tells how much it read.
func (h *simHost) counted(m move) *reader {
	h.t.Helper()
	c := &reader{Center: h.rc}
	if err := perform(h.ctx, c, m); err != nil {
		h.t.Fatal(err)
	}
	return c
}

// everything is a list of runs that a hand has written: a few bytes.
const everything = `{"runs":[{"instant":1772359210000,"source":"schedule","items":"0-999999","marked":true}]}`

// TestMadeUpItemsOfADeadHostAreNotReadOneByOne: its list names a million.
func TestMadeUpItemsOfADeadHostAreNotReadOneByOne(t *testing.T) {
	t.Parallel()
	c, h := edited(t, 2)
	owed := h[1].running()
	h[1].crash()
	c.hand(registry.Set(c.layout.Sibling()+"/runs/"+h[1].Self.ID, []byte(everything), registry.AnyVersion))
	must(t, h[0].look())
	var out co.Recovered
	n := h[0].counted(moves.Recover(&h[0].Member, co.Recovery{Dead: h[1].Self.ID, All: true, Limit: 100, Busy: h[0].running(), Now: c.now}, &out))
	if n.queries > 9*c.file.ShardingTotalCount+50 {
		t.Errorf("%d nodes were read for %d items", n.queries, c.file.ShardingTotalCount)
	}
	var claimed co.Items
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

// TestMadeUpItemsInAHostsOwnListAreNotReadOneByOne: it finds out when it writes
// the list, and strikes them out.
func TestMadeUpItemsInAHostsOwnListAreNotReadOneByOne(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, failoverOn)
	c.edited = true
	list := c.layout.Sibling() + "/runs/" + h[0].Self.ID
	c.hand(registry.Set(list, []byte(everything), registry.AnyVersion))
	counter := &reader{Center: h[0].rc.Unwrap()}
	before := h[0].rc
	h[0].rc = registrytest.Faulty(counter, func(int, string) registrytest.Fault { return registrytest.NoFault })
	c.pass(10 * time.Second)
	h[0].rc = before
	if counter.queries > 500 {
		t.Errorf("%d nodes were read", counter.queries)
	}
	if n := len(c.node(list).Data); n > 200 {
		t.Errorf("the list has %d bytes", n)
	}
	c.settle()
	c.finish()
}

// TestNoListIsTooLongToRead: ten ranges of a million each would be ten million
// numbers.
func TestNoListIsTooLongToRead(t *testing.T) {
	t.Parallel()
	var runs co.Runs
	text := `{"runs":[`
	for i := range 10 {
		text += fmt.Sprintf(`{"instant":%d,"items":"0-999999"},`, i)
	}
	text = text[:len(text)-1] + `]}`
	if err := runs.UnmarshalJSON([]byte(text)); err == nil {
		t.Errorf("%d items were read", len(runs.Items()))
	}
	if err := runs.UnmarshalJSON([]byte(`{"runs":[{"instant":1,"trigger":2,"source":"s","items":"0-2","marked":true}],"java":"x"}`)); err != nil ||
		len(runs.Runs) != 1 || runs.Java != "x" || !runs.Runs[0].Marked || runs.Runs[0].Fire != (co.Fire{Instant: 1, Trigger: 2, Source: "s"}) || runs.Runs[0].Items.String() != "0-2" {
		t.Errorf("read as %+v, %v", runs, err)
	}
}

// TestATreeOfMadeUpItemsIsRemoved: thousands of items beyond the total count,
// and as many marks of Java hosts.
func TestATreeOfMadeUpItemsIsRemoved(t *testing.T) {
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
	var swept co.Swept
	n = h[0].counted(moves.Sweep(&h[0].Member, c.now, &swept))
	if n.queries > 100 {
		t.Errorf("%d nodes were read by the sweep", n.queries)
	}
	c.settle()
	// One has a node below a mark, which nobody of ours makes: it is left.
	if left := c.children(c.layout.Root() + "/sharding"); len(left) != c.file.ShardingTotalCount+1 {
		t.Errorf("%d items are left", len(left))
	}
	for _, below := range []string{"/running/deep", "/running", ""} {
		c.hand(registry.Delete(c.layout.Root()+"/sharding/100"+below, registry.AnyVersion))
	}
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
	n := taker.counted(moves.Recover(&taker.Member, co.Recovery{Dead: h[0].Self.ID, All: true, Limit: 2 * items, Now: c.now}, &out))
	t.Logf("%d nodes were read for %d items, at most %d at once, in %d commits", n.queries, items, n.most, out.Commits)
	if n.queries > 9*items*3/2 || n.most > 9*500 {
		t.Errorf("%d nodes were read for %d items, %d at once", n.queries, items, n.most)
	}
	if len(out.Claimed) != items-1 || !slices.Equal(out.Left, co.Items{7}) {
		t.Errorf("claimed %d, left %s", len(out.Claimed), out.Left)
	}
	taker.takeOver(h[0].Self.ID, out.Claimed)
	must(t, c.operate(moves.SetItem(c.layout, 7, true)))
	c.settle()
	c.finish()
}
