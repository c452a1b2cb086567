package coordination

import (
	"context"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Quieted is the result of Quiet.
type Quieted struct {
	// Refused are items that another host runs or is to run, and why they cannot begin.
	Refused map[int]Refusal
	// Denied are items whose marks the registry does not permit to read, or whose misfire mark it does not
	// permit to delete.
	Denied Denials
	// Stale is set when the host's share has changed: read it again.
	Stale bool
}

// MayRepeat reports whether a Java host may run an item of this host's share: with failover it takes items of
// crashed hosts, even if others own them.
func (m *Member) MayRepeat() bool {
	return m.View.Config.Failover && m.View.Config.MonitorExecution && m.mixed()
}

// Quiet deletes the misfire marks of items, and reports which items have marks of another host's run. If
// MayRepeat, call it JavaLag before this host first begins an item that it was given and has not run since.
//
// A Java host that has repeated a run deletes its marks, looks for a misfire mark, and if there is one runs the
// item again; meanwhile nothing shows that. Without a misfire mark it does not; one that has seen the mark
// before creates its running mark within JavaLag, and then Begin refuses.
func (m *Member) Quiet(ctx context.Context, items tree.Items) (Quieted, error) {
	out := Quieted{Refused: make(map[int]Refusal)}
	l := m.Layout
	err := m.perform(ctx, "look at items beside Java hosts", func(ctx context.Context, x *step.Exchange) error {
		for {
			read := newReading(4 * len(items))
			for _, i := range items {
				read.add(i, registry.Data(l.ItemRunning(i)), registry.Data(l.ItemFailover(i)), registry.Data(l.FailoverItem(i)), registry.Data(l.ItemMisfire(i)))
			}
			n, err := read.do(ctx, x, &out.Denied)
			if err != nil {
				return err
			}
			clear(out.Refused)
			c := m.guarded(4+len(items), registry.AnyVersion)
			guards, room := len(c.ops), step.Budget
			for _, i := range items {
				switch {
				case n.Data(l.ItemFailover(i)).Exists, n.Data(l.FailoverItem(i)).Exists:
					out.Refused[i] = RefusedFailover
				case n.Data(l.ItemRunning(i)).Exists:
					out.Refused[i] = RefusedRunning
				}
				if !n.Data(l.ItemMisfire(i)).Exists || out.Denied[i] != nil {
					continue
				}
				op := registry.Delete(l.ItemMisfire(i), registry.AnyVersion)
				if room -= step.Size([]registry.Op{op}); room >= 0 {
					c.add(roleItem, i, op)
				}
			}
			if len(c.ops) == guards {
				return nil
			}
			_, err = x.Commit(ctx, c.ops...)
			if conflict := step.ConflictOf(err); conflict != nil {
				switch c.roles[conflict.Index] {
				case roleRoot:
					return tree.ErrRemoved
				case roleShare:
					out.Stale = true
					return nil
				}
			}
			if _, ok := c.denied(err, &out.Denied); !ok && err != nil && !step.Contested(err) {
				return err
			}
			// Read again: for remaining marks, and for begins since the read.
		}
	})
	return out, err
}
