package coordination

import (
	"context"
	"slices"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// bury removes the last nodes of a host that left nothing unfinished. If items are still assigned to it they
// are resharded, even if the instances are the same as at the last division: a host that an operator has
// stopped no longer counts but keeps what it runs. n has the nodes of the dead host.
func (r *recovery) bury(ctx context.Context, x *step.Exchange, n registry.Snapshot) error {
	l := r.View.Layout
	members, assigned := n.Data(l.Members()), n.Data(l.AssignmentOf(r.Dead))
	var ops []registry.Op
	if list := tree.ParseMembers(members.Data); slices.Contains(list, r.Dead) {
		ops = append(ops, registry.Set(l.Members(), list.Without(r.Dead).Data(), members.Version))
	}
	for _, node := range []registry.Node{n.Data(l.RunsOf(r.Dead)), assigned} {
		if node.Exists {
			ops = append(ops, registry.Delete(node.Path, node.Version))
		}
	}
	if len(ops) == 0 { // another host has done it
		r.out.Settled = true
		return nil
	}

	var err error
	// A Java leader divides by itself when an instance goes, and may have done so already; its division does
	// not touch our assignment nodes.
	if divide := len(assigned.Data) > 0 && !r.View.JavaLed(); divide {
		_, err = x.Commit(ctx, append(slices.Clone(ops), registry.Create(l.Necessary(), nil))...)
		if conflict := step.ConflictOf(err); conflict != nil && conflict.Index == len(ops) {
			_, err = x.Commit(ctx, ops...) // the flag stands already
		}
	} else {
		_, err = x.Commit(ctx, ops...)
	}
	if step.Contested(err) { // another host does it, or the next call sees that it is done
		return nil
	}
	if err == nil {
		r.out.Commits++
		r.out.Settled = true
	}
	return err
}

// Bury removes the last nodes of those dead hosts that left nothing unfinished, all in one commit: after an
// outage that is every former host. It skips living hosts: one that an operator has stopped, or one that is
// joining. If bury is false it only reads. left are the hosts that Recover must handle, gone those of the
// others that did not leave in good order.
func (m *Member) Bury(ctx context.Context, dead []string, bury bool) (left, gone []string, err error) {
	l, v := m.Layout, m.View
	var lives, read []registry.Query
	for _, id := range dead {
		lives = append(lives, registry.Data(l.Instance(id)), registry.Data(l.Detail(id)))
		read = append(read, registry.Data(l.RunsOf(id)), registry.Data(l.AssignmentOf(id)))
	}
	read = append(read, registry.Data(l.Members()))
	err = m.perform(ctx, "bury", func(ctx context.Context, x *step.Exchange) error {
		n, err := x.ReadAfter(ctx, lives, read...)
		if err != nil {
			return err
		}
		var ops []registry.Op
		if left, gone, ops = v.burials(dead, n); !bury || len(ops) == 0 {
			return nil
		}
		_, err = x.Commit(ctx, ops...)
		if step.Contested(err) { // another host does it, or the next call
			return nil
		}
		return err
	})
	return left, gone, err
}

// burials returns the results of Bury, and the ops that remove as many hosts as fit a commit.
func (v View) burials(dead []string, n registry.Snapshot) (left, gone []string, ops []registry.Op) {
	l := v.Layout
	members := n.Data(l.Members())
	list := tree.ParseMembers(members.Data)
	rest, divide := list, false
	for _, id := range dead {
		lives := n.Data(l.Instance(id)).Exists || n.Data(l.Detail(id)).Exists
		if lives || !slices.Contains(list, id) { // or is buried
			continue
		}
		runs, assigned := n.Data(l.RunsOf(id)), n.Data(l.AssignmentOf(id))
		owed, err := tree.ParseRuns(runs.Data)
		if err == nil && len(owed.Runs) > 0 {
			left = append(left, id)
			continue
		}
		if rest = rest.Without(id); !owed.Left {
			gone = append(gone, id)
		}
		divide = divide || len(assigned.Data) > 0
		for _, node := range []registry.Node{runs, assigned} {
			if node.Exists {
				ops = append(ops, registry.Delete(node.Path, node.Version))
			}
		}
		if step.Size(ops) > step.Budget {
			break // the others next time
		}
	}
	if len(rest) == len(list) {
		return left, nil, nil
	}
	ops = append(ops, registry.Set(members.Path, rest.Data(), members.Version))
	if divide && !v.JavaLed() && !v.Necessary { // as in bury
		ops = append(ops, registry.Create(l.Necessary(), nil))
	}
	return left, gone, ops
}
