package guarantee

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Phase is one of the two points of a fire at which a listener runs once over all hosts.
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

// mark returns the node that marks an item's arrival at the phase.
func mark(l tree.Layout, p Phase, i int) string {
	return node(l, p) + "/" + strconv.Itoa(i)
}

// Watch is the query to watch while waiting for a phase: the node is deleted when a host has run the listener.
func Watch(l tree.Layout, p Phase) registry.Query { return registry.Children(node(l, p)) }

// Arrival is a host's arrival at a phase of a fire.
type Arrival struct {
	Self  tree.JobInstance
	Phase Phase
	Fire  tree.Fire
	// Items are the host's items that have arrived; Total is how many items the job has.
	Items tree.Items
	Total int
}

// Standing is the state of a phase, for a host that has arrived.
type Standing struct {
	// Last is true on exactly one host: the one whose items arrived last of all that can run. It runs the
	// listener and then calls Clear; the others wait for that.
	Last bool
	// Over is set when the host need not wait any longer: the listener has run, or this fire is Outrun.
	Over bool
	// Outrun is set when items have arrived at the phase of a later fire, so that they never arrive in this
	// one.
	Outrun bool
	// Missing are the items that have not come, without those that are disabled.
	Missing tree.Items
	// Left is the newest earlier fire that items of this host are still marked for, because other items of that
	// fire never arrived; zero if there is none.
	Left tree.Fire
}

// markData names the fire in a mark. Marks of Java hosts are empty, and count for any fire.
func markData(f tree.Fire) []byte {
	if f == (tree.Fire{}) {
		return nil
	}
	return fmt.Appendf(nil, "%d %d", f.Instant, f.Trigger)
}

// fireOf returns the fire in a mark, zero if there is none.
func fireOf(n registry.Node) (f tree.Fire) {
	if _, err := fmt.Sscanf(string(n.Data), "%d %d", &f.Instant, &f.Trigger); err != nil {
		return tree.Fire{}
	}
	return f
}

// counts reports whether a mark exists and counts for a fire.
func counts(n registry.Node, f tree.Fire) bool {
	named := fireOf(n)
	return n.Exists && (named == (tree.Fire{}) || named.Same(f))
}

// isLater reports whether a mark names a later fire.
func isLater(n registry.Node, f tree.Fire) bool {
	return n.Exists && !counts(n, f) && fireOf(n).Instant > f.Instant
}

// Arrive marks that this host's items have come to the phase. Disabled items are not waited for. Each mark
// names its fire, so that hosts that are one fire apart do not wait for each other.
func Arrive(ctx context.Context, r registry.Center, l tree.Layout, a Arrival) (s Standing, err error) {
	err = step.Perform(ctx, r, "arrive", func(ctx context.Context, x *step.Exchange) error {
		left, err := markArrival(ctx, x, l, a)
		if err != nil {
			return err
		}
		s, err = claimPhase(ctx, x, l, a)
		s.Left = left
		return err
	})
	return s, err
}

// markArrival makes the marks of a host's items, in one commit or several. left is the newest fire that an old
// mark named.
func markArrival(ctx context.Context, x *step.Exchange, l tree.Layout, a Arrival) (left tree.Fire, err error) {
	parent := node(l, a.Phase)
	items, there := a.Items, make(map[int]registry.Node)
	for {
		var marks []registry.Op
		for _, i := range items {
			if n := there[i]; n.Exists {
				marks = append(marks, registry.Set(n.Path, markData(a.Fire), n.Version))
			} else {
				marks = append(marks, registry.Create(mark(l, a.Phase, i), markData(a.Fire)))
			}
		}
		part := step.FirstPart(marks)
		ops := append([]registry.Op{registry.Check(l.Config(), registry.AnyVersion), registry.Ensure(parent)}, part...)
		_, err := x.Commit(ctx, ops...)
		if err == nil {
			if items = items[len(part):]; len(items) == 0 {
				return left, nil
			}
			continue
		}
		conflict := step.ConflictOf(err)
		if conflict == nil {
			return left, err
		}
		if conflict.Index == 0 {
			return left, tree.ErrRemoved
		}

		// The marks have just been cleared, or some were left by an earlier fire.
		var read []registry.Query
		for _, i := range items {
			read = append(read, registry.Data(mark(l, a.Phase, i)))
		}
		n, err := x.Read(ctx, read...)
		if err != nil {
			return left, err
		}
		var todo tree.Items
		for _, i := range items {
			there[i] = n.Data(mark(l, a.Phase, i))
			if was := fireOf(there[i]); there[i].Exists && !was.Same(a.Fire) && was.Instant > left.Instant {
				left = was
			}
			if !isLater(there[i], a.Fire) && (!there[i].Exists || !fireOf(there[i]).Same(a.Fire)) {
				todo = append(todo, i)
			}
		}
		if items = todo; len(items) == 0 {
			return left, nil
		}
	}
}

// claimPhase finds out the state of the phase, and whether this host is the last to arrive: all items have
// arrived, and the node's data names no other living host that has claimed the phase.
func claimPhase(ctx context.Context, x *step.Exchange, l tree.Layout, a Arrival) (Standing, error) {
	claim := registry.Data(node(l, a.Phase))
	for {
		read := []registry.Query{claim, registry.Children(l.Instances())}
		for i := range a.Total {
			read = append(read, registry.Data(l.ItemDisabled(i)), registry.Data(mark(l, a.Phase, i)))
		}
		n, err := x.Read(ctx, read...)
		if err != nil {
			return Standing{}, err
		}
		s := standing(n, l, a)
		by := string(n[claim].Data)
		claimed := by != "" && by != a.Self.ID && slices.Contains(n.Children(l.Instances()), by)
		if s.Over || claimed || len(s.Missing) > 0 {
			return s, nil
		}
		_, err = x.Commit(ctx, registry.Set(node(l, a.Phase), []byte(a.Self.ID), n[claim].Version))
		if step.ConflictOf(err) == nil {
			s.Last = err == nil
			return s, err
		}
	}
}

// standing derives the state of the phase from the marks.
func standing(n registry.Snapshot, l tree.Layout, a Arrival) (s Standing) {
	for i := range a.Total {
		at := n.Data(mark(l, a.Phase, i))
		s.Outrun = s.Outrun || isLater(at, a.Fire)
		if !counts(at, a.Fire) && !n.Data(l.ItemDisabled(i)).Exists {
			s.Missing = append(s.Missing, i)
		}
	}
	gone := len(a.Items) > 0
	for _, i := range a.Items {
		gone = gone && !counts(n.Data(mark(l, a.Phase, i)), a.Fire)
	}
	cleared := gone || !n.Data(node(l, a.Phase)).Exists
	s.Over, s.Outrun = cleared || s.Outrun, s.Outrun && !cleared
	return s
}

// Look returns the state of the phase for a host that has arrived. Call it again when the node of Watch has
// changed.
func Look(ctx context.Context, r registry.Center, l tree.Layout, a Arrival) (s Standing, err error) {
	err = step.Perform(ctx, r, "look at a phase", func(ctx context.Context, x *step.Exchange) error {
		read := []registry.Query{registry.Data(node(l, a.Phase))}
		for i := range a.Total {
			read = append(read, registry.Data(l.ItemDisabled(i)), registry.Data(mark(l, a.Phase, i)))
		}
		n, err := x.Read(ctx, read...)
		s = standing(n, l, a)
		return err
	})
	return s, err
}

// IdleJava are the Java hosts that own some of the items and run none of them.
func IdleJava(ctx context.Context, r registry.Center, l tree.Layout, items tree.Items) (idle []string, err error) {
	read := []registry.Query{registry.Children(l.Instances()), registry.Children(l.Details())}
	for _, i := range items {
		read = append(read, registry.Data(l.ItemInstance(i)), registry.Data(l.ItemRunning(i)))
	}
	err = step.Perform(ctx, r, "read owners", func(ctx context.Context, x *step.Exchange) error {
		n, err := x.Read(ctx, read...)
		busy := make(map[string]bool)
		for _, i := range items {
			if running := n.Data(l.ItemRunning(i)); running.Exists {
				busy[string(running.Data)] = true
			}
		}
		for _, i := range items {
			id := string(n.Data(l.ItemInstance(i)).Data)
			if slices.Contains(n.Children(l.Instances()), id) && !slices.Contains(n.Children(l.Details()), id) && !busy[id] {
				idle = append(idle, id)
			}
		}
		return err
	})
	slices.Sort(idle)
	return slices.Compact(idle), err
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

// clearPhase deletes a phase's node and the marks below it. cleared is false if marks were added during the
// deletion.
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
