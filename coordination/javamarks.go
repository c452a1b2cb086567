package coordination

import (
	"context"
	"slices"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// lookAtMarks claims items that Java hosts have marked as crashed and that are in no host's list of runs. If a
// host of ours runs such an item, the mark came too late and is removed. done is false if lookAtMarks must be
// called again.
func (r *recovery) lookAtMarks(ctx context.Context, x *step.Exchange) (done bool, err error) {
	l, self := r.View.Layout, r.View.Self.ID
	n, err := x.Read(ctx, registry.Children(l.FailoverItems()), registry.Children(l.Runs()), registry.Children(l.Details()), registry.Data(l.Config()))
	if err != nil {
		return false, err
	}
	if !n.Data(l.Config()).Exists {
		return false, tree.ErrRemoved
	}
	hosts := n.Children(l.Runs())
	r.alive = n.Children(l.Details())
	var marks tree.Items
	for _, name := range n.Children(l.FailoverItems()) {
		if i, ok := tree.ItemNumber(name); ok {
			marks = append(marks, i)
		}
	}
	slices.Sort(marks)

	read := []registry.Query{registry.Data(l.RunsOf(self))}
	for _, id := range hosts {
		read = append(read, registry.Data(l.RunsOf(id)))
	}
	if n, err = x.Read(ctx, read...); err != nil {
		return false, err
	}
	if adopted, err := r.adopt(ctx, x, n.Data(l.RunsOf(self))); adopted || err != nil {
		return false, err
	}
	listed, late := r.lateMarks(marks, hosts, n)
	if len(late) > 0 {
		return false, drop(ctx, x, late)
	}

	free := slices.DeleteFunc(marks, func(i int) bool { return listed[i] })
	none, err := r.beyond(ctx, x, tree.RangesOf(free))
	if err != nil {
		return false, err
	}
	for _, i := range none {
		late = append(late, registry.Absent(l.Item(i)), registry.Delete(l.FailoverItem(i), registry.AnyVersion))
	}
	if len(late) > 0 {
		return false, drop(ctx, x, late)
	}
	if len(free) == 0 {
		r.out.Left = nil
		return true, r.giveWay(ctx, x)
	}
	r.out.Left, r.mine = tree.RangesOf(free), r.inTurn(free)
	fire := tree.Fire{Instant: r.Now.UnixMilli(), Source: tree.SourceFailover}
	return r.take(ctx, x, tree.Runs{}.With(fire, true, free), registry.Node{})
}

// inTurn returns the items that this host takes of those that are in no list: all, or every n-th, by its rank.
// The result does not depend on what others have taken already.
func (r *recovery) inTurn(items tree.Items) tree.Ranges {
	takers := r.View.takers()
	return tree.RangesOf(slices.DeleteFunc(slices.Clone(items), func(i int) bool {
		return !r.All && (len(takers) == 0 || takers[i%len(takers)] != r.View.Self.ID)
	}))
}

// lateMarks removes marks of items that a host of ours runs. listed are the items in any host's list of runs.
func (r *recovery) lateMarks(marks tree.Items, hosts []string, n registry.Snapshot) (listed map[int]bool, late []registry.Op) {
	l := r.View.Layout
	listed = make(map[int]bool)
	for _, id := range hosts {
		node := n.Data(l.RunsOf(id))
		runs, err := tree.ParseRuns(node.Data)
		if err != nil {
			continue
		}
		items := runs.Items()
		for _, i := range marks {
			if !items.Contains(i) {
				continue
			}
			if !listed[i] && slices.Contains(r.alive, id) {
				late = append(late, registry.Check(node.Path, node.Version), registry.Delete(l.FailoverItem(i), registry.AnyVersion))
			}
			listed[i] = true
		}
	}
	return listed, late
}

// drop removes marks, as many as fit a commit; read again afterwards.
func drop(ctx context.Context, x *step.Exchange, ops []registry.Op) error {
	_, err := x.Commit(ctx, step.FirstPart(ops)...)
	return step.UnlessConflict(err)
}
