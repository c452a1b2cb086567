package guarantee

import (
	"context"
	"slices"
	"strconv"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Phase is one of the two points of a fire at which a listener runs once over
// all hosts.
type Phase bool

// The phases.
const (
	Started   Phase = true
	Completed Phase = false
)

// node is the parent of a phase's marks.
func node(l tree.Layout, p Phase) string {
	if p == Started {
		return l.Started()
	}
	return l.Completed()
}

// mark says that an item has come to the phase.
func mark(l tree.Layout, p Phase, i int) string {
	return node(l, p) + "/" + strconv.Itoa(i)
}

// Watch is what to watch while waiting for a phase: the node is gone
// when some host has run the listener.
func Watch(l tree.Layout, p Phase) registry.Query { return registry.Children(node(l, p)) }

// Passed reports, from what Watch shows, whether the phase
// at which a host has arrived with these items is over: the marks are gone, or
// those that are there are of the next fire. The answer is certain only for a
// node that was read after the arrival; a snapshot may have been sent before.
func Passed(n registry.Node, items tree.Items) bool {
	if !n.Exists {
		return true
	}
	for _, i := range items {
		if slices.Contains(n.Names, strconv.Itoa(i)) {
			return false
		}
	}
	return len(items) > 0
}

// Arrive marks that this host's items have come to the phase. last is true on
// exactly one host: the one whose items were the last of all that can
// run. That host runs the listener and then clears the marks with
// Clear; the others wait until it has. Disabled items are not waited
// for.
func Arrive(ctx context.Context, r registry.Center, l tree.Layout, self tree.JobInstance, p Phase, items tree.Items, total int) (last bool, err error) {
	err = step.Perform(ctx, r, "arrive", func(ctx context.Context, x *step.Exchange) error {
		if err := markArrival(ctx, x, l, p, items); err != nil {
			return err
		}
		last, err = claimPhase(ctx, x, l, self, p, total)
		return err
	})
	return last, err
}

// markArrival makes the marks of a host's items, in one commit or several.
func markArrival(ctx context.Context, x *step.Exchange, l tree.Layout, p Phase, items tree.Items) error {
	for {
		var marks []registry.Op
		for _, i := range items {
			marks = append(marks, registry.Create(mark(l, p, i), nil))
		}
		part := step.FirstPart(marks)
		ops := append([]registry.Op{registry.Check(l.Config(), registry.AnyVersion), registry.Ensure(node(l, p))}, part...)
		_, err := x.Commit(ctx, ops...)
		if err == nil {
			if items = items[len(part):]; len(items) == 0 {
				return nil
			}
			continue
		}
		conflict := step.ConflictOf(err)
		if conflict == nil {
			return err
		}
		if conflict.Index == 0 {
			return tree.ErrRemoved
		}
		if conflict.Reason != registry.ReasonExists { // the marks have just been cleared
			continue
		}

		// Left by an earlier fire that timed out.
		n, err := x.Read(ctx, registry.Children(node(l, p)))
		if err != nil {
			return err
		}
		there := setOf(n.Children(node(l, p)))
		items = slices.DeleteFunc(slices.Clone(items), func(i int) bool { return there[strconv.Itoa(i)] })
	}
}

// claimPhase reports whether this host is the last to arrive: all items are there,
// and no other host that lives has claimed the phase, which the node's data says.
func claimPhase(ctx context.Context, x *step.Exchange, l tree.Layout, self tree.JobInstance, p Phase, total int) (last bool, err error) {
	marks, claim := registry.Children(node(l, p)), registry.Data(node(l, p))
	for {
		read := []registry.Query{marks, claim, registry.Children(l.Instances())}
		for i := range total {
			read = append(read, registry.Data(l.ItemDisabled(i)))
		}
		n, err := x.Read(ctx, read...)
		if err != nil {
			return false, err
		}
		there := setOf(n[marks].Names)
		for i := range total {
			if !n.Data(l.ItemDisabled(i)).Exists && !there[strconv.Itoa(i)] {
				return false, nil
			}
		}
		by := string(n[claim].Data)
		claimed := by != "" && by != self.ID && slices.Contains(n.Children(l.Instances()), by)
		if claimed || !n[claim].Exists {
			return false, nil
		}
		_, err = x.Commit(ctx, registry.Set(node(l, p), []byte(self.ID), n[claim].Version))
		if step.ConflictOf(err) == nil {
			return err == nil, err
		}
	}
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// Clear ends a phase: its listener has run, or the time is up. It deletes
// the subtree; of several hosts that try, the one whose first commit succeeds does
// it.
func Clear(ctx context.Context, r registry.Center, l tree.Layout, p Phase) error {
	return step.Perform(ctx, r, "clear guarantee", func(ctx context.Context, x *step.Exchange) error {
		for begun := false; ; {
			n, err := x.Read(ctx, registry.Children(node(l, p)))
			if err != nil {
				return err
			}
			marks := n[registry.Children(node(l, p))]
			if !marks.Exists {
				return nil
			}
			cleared, err := clearPhase(ctx, x, l, p, marks.Names, &begun)
			if err != nil || cleared {
				return err
			}
		}
	})
}

// clearPhase deletes a phase's node and the marks below it. cleared is false if
// marks came while this host, which had begun, deleted them.
func clearPhase(ctx context.Context, x *step.Exchange, l tree.Layout, p Phase, names []string, begun *bool) (cleared bool, err error) {
	ops := make([]registry.Op, 0, len(names)+1)
	for _, name := range names {
		ops = append(ops, registry.Delete(node(l, p)+"/"+name, registry.AnyVersion))
	}
	ops = append(ops, registry.Delete(node(l, p), registry.AnyVersion))
	for part := range step.Parts(ops, step.Budget) {
		_, err := x.Commit(ctx, part...)
		if step.ConflictOf(err) != nil {
			return !*begun, nil // another host does it
		}
		if err != nil {
			return false, err
		}
		*begun = true
	}
	return true, nil
}
