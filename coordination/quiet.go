package coordination

import (
	"context"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Quieted is what Quiet has found.
type Quieted struct {
	// Refused are items that another host runs, or is to run, and why they cannot begin.
	Refused map[int]Refusal
	// Denied are items of which the registry does not permit to delete the misfire mark, or to read the marks.
	Denied Denials
	// Stale is set when the host's share is not what it was: read it again.
	Stale bool
}

// MayRepeat reports whether a Java host may run an item of this host's share: with failover it takes items of hosts
// that died, whoever owns them.
func (m *Member) MayRepeat() bool {
	return m.View.Config.Failover && m.View.Config.MonitorExecution && m.mixed()
}

// Quiet deletes the misfire marks of items, and reports which of them have marks of another host's run. Call it where
// MayRepeat, JavaLag before the first begin of an item that this host has not run since it was given the item.
//
// A Java host that has repeated a run deletes its marks, looks for a misfire mark, and if there is one runs the item
// again. In between nothing shows that it is going to. Without a misfire mark it does not; one that has
// seen the mark before makes its running mark within JavaLag, and then Begin refuses.
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
			// Look again: for marks that are left, and for what has begun since they were read.
		}
	})
	return out, err
}
