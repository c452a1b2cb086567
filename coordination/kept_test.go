package coordination_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// writes is a change to an offset.
func writes(offset string) func([]byte, bool) ([]byte, error) {
	return func([]byte, bool) ([]byte, error) { return []byte(offset), nil }
}

// TestChangeKept: whatever becomes of the commit, the change takes effect once, and the
// record stays as it is but for its version.
func TestChangeKept(t *testing.T) {
	t.Parallel()
	for _, fault := range []registrytest.Fault{registrytest.NoFault, registrytest.LostAnswer, registrytest.LostRequest} {
		c, h := group(t, 1, nil)
		begin(t, h[0], c.now.Add(time.Second))
		must(t, h[0].complete(h[0].running(), "OK", "7"))
		before := c.node(c.layout.Record(2))
		rc := registrytest.Faulty(c.server.Connect(t), func(_ int, op string) registrytest.Fault {
			f := fault
			if op != "commit" {
				return registrytest.NoFault
			}
			fault = registrytest.NoFault
			return f
		})
		added := func(data []byte, _ bool) ([]byte, error) { return append([]byte("1"), data...), nil }
		var kept operate.Kept
		must(t, perform(c.ctx, rc, moves.ChangeKept(c.layout, 2, c.now, added, &kept)))
		if string(kept.Data) != "17" || !kept.Has || kept.RunsOn != "" || kept.Fence == 0 || kept.Written.IsZero() {
			t.Errorf("fault %d: %+v", fault, kept)
		}
		if after := c.node(c.layout.Record(2)); after.Version != before.Version+1 || string(after.Data) != string(before.Data) {
			t.Errorf("fault %d: the record was %s (version %d), and is %s (version %d)", fault, before.Data, before.Version, after.Data, after.Version)
		}
		var all []operate.Kept
		must(t, c.operate(moves.ReadKept(c.layout, -1, &all)))
		if len(all) != 6 || string(all[2].Data) != "17" || string(all[3].Data) != "7" || all[3].Fence != kept.Fence {
			t.Errorf("fault %d: %+v", fault, all)
		}
	}
}

// TestChangeKeptOfARun: a run is not disturbed, whether it began before the operator
// has looked or since.
//
// It kills the mutant "offset of a run" and the mutant "offset without the record".
func TestChangeKeptOfARun(t *testing.T) {
	t.Parallel()
	refused := func(c *cluster, err error, host string) {
		t.Helper()
		if !errors.Is(err, operate.ErrItemRuns) || !strings.Contains(err.Error(), "item 2 runs on "+host) || !strings.Contains(err.Error(), "wasmjob job kill demo --item 2") {
			t.Errorf("%v, want that the item runs", err)
		}
		if n := c.node(c.layout.Offset(2)); n.Exists {
			t.Errorf("the offset is %q", n.Data)
		}
	}
	t.Run("it runs", func(t *testing.T) {
		c, h := group(t, 1, nil)
		begin(t, h[0], c.now.Add(time.Second))
		refused(c.cluster, c.operate(moves.ChangeKept(c.layout, 2, c.now, writes("7"), new(operate.Kept))), h[0].Self.ID)
		must(t, h[0].complete(tree.Items{2}, "OK", ""))
		must(t, c.operate(moves.ChangeKept(c.layout, 2, c.now, writes("7"), new(operate.Kept))))
	})
	for name, set := range map[string]func(*jobconfig.Configuration){
		"it begins meanwhile":                nil,
		"it begins meanwhile without a mark": func(cfg *jobconfig.Configuration) { cfg.MonitorExecution = false },
	} {
		t.Run(name, func(t *testing.T) {
			c, h := group(t, 1, set)
			op := c.op
			defer func() { c.op = op }()
			c.op = beforeCommits{Center: op, do: func() {
				if !h[0].items[2].running {
					begin(t, h[0], c.now.Add(time.Second))
				}
			}}
			refused(c.cluster, c.operate(moves.ChangeKept(c.layout, 2, c.now, writes("7"), new(operate.Kept))), h[0].Self.ID)
		})
	}
	t.Run("its host has died", func(t *testing.T) {
		c, h := group(t, 1, nil)
		begin(t, h[0], c.now.Add(time.Second))
		h[0].crash()
		refused(c.cluster, c.operate(moves.ChangeKept(c.layout, 2, c.now, writes("7"), new(operate.Kept))), h[0].Self.ID)
	})
	t.Run("on a Java host", func(t *testing.T) {
		c, _, j := runningJava(t)
		err := c.operate(moves.ChangeKept(c.layout, j.executing[0], c.now, writes("7"), new(operate.Kept)))
		if !errors.Is(err, operate.ErrItemRuns) || !strings.Contains(err.Error(), j.id) {
			t.Errorf("%v, want that it runs on %s", err, j.id)
		}
	})
}

// TestChangeKeptOfWhatIsNotThere: neither a job nor an item comes to be by it.
func TestChangeKeptOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	c, _ := group(t, 1, nil)
	nobody := tree.NewLayout(c.layout.Namespace, "nobody")
	for name, m := range map[string]move{"change": moves.ChangeKept(nobody, 0, c.now, writes("7"), new(operate.Kept)), "read": moves.ReadKept(nobody, 0, new([]operate.Kept))} {
		if err := c.operate(m); !errors.Is(err, tree.ErrRemoved) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.operate(moves.ChangeKept(c.layout, 99, c.now, writes("7"), new(operate.Kept))); err == nil || !strings.Contains(err.Error(), "no item 99") {
		t.Errorf("item 99: %v", err)
	}
	why := errors.New("it is refused")
	no := func([]byte, bool) ([]byte, error) { return nil, why }
	if err := c.operate(moves.ChangeKept(c.layout, 2, c.now, no, new(operate.Kept))); !errors.Is(err, why) {
		t.Errorf("a change that is refused: %v", err)
	}
	if c.node(nobody.Root()).Exists || c.node(nobody.Sibling()).Exists || c.node(c.layout.Offset(99)).Exists || c.node(c.layout.Offset(2)).Exists {
		t.Error("something was made")
	}
	// An item without a record: it gets one, so that a host that knows of none reads it.
	must(t, second(c.op.Commit(c.ctx, registry.Delete(c.layout.Record(2), registry.AnyVersion))))
	must(t, c.operate(moves.ChangeKept(c.layout, 2, c.now, writes("7"), new(operate.Kept))))
	if r := tree.ParseRecord(c.node(c.layout.Record(2)).Data); r.Instant != c.now.UnixMilli() || r.Open() {
		t.Errorf("the record is %+v", r)
	}
}
