package coordination

import (
	"context"
	"fmt"
	"slices"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Repairing are the arguments of Repair.
type Repairing struct {
	Detail tree.HostDetail
	// Items checks the node of every item as well.
	Items bool
}

// MissingFromMembers reports that this host is in the job's list and not among the members: an external edit
// has changed that node, or deleted our tree.
func (v View) MissingFromMembers() bool {
	return v.Exists && v.Joined() && !slices.Contains(v.Members, v.Self.ID)
}

// Repair recreates nodes that an external edit has deleted or replaced: the parent nodes of hosts' writes, this
// host's own nodes, its name among the members. It removes hosts that do not exist: the nodes that show a host
// to be alive are ephemeral, so a persistent one belongs to no host. If a node that a division relies on was
// missing, it asks for a division.
//
// It does nothing for a job that was removed, or if an operator has stopped this host. repaired lists the nodes
// that were created, set or deleted.
func (m *Member) Repair(ctx context.Context, p Repairing) (repaired []string, err error) {
	err = m.perform(ctx, "repair", func(ctx context.Context, x *step.Exchange) error {
		for {
			g := repairing{Member: m, Repairing: p}
			there, err := g.read(ctx, x)
			if err != nil || !there {
				return err
			}
			ops, paths := g.repair()
			if len(paths) == 0 {
				return nil
			}
			_, err = x.Commit(ctx, ops...)
			if conflict := step.ConflictOf(err); conflict != nil && conflict.Index < 2 {
				return nil // the job was removed, or this host was stopped
			}
			if err == nil {
				repaired = append(repaired, paths...)
			}
			if !step.Contested(err) {
				return err
			}
		}
	})
	return repaired, err
}

// repairing is a Repairing on its way: what was read.
type repairing struct {
	*Member
	Repairing
	instance, detail, runs, assigned, flag registry.Node
	// places are parent nodes, parents first; strangers are nodes of hosts that may not exist.
	places, strangers, items []registry.Node
}

// read reads everything that Repair checks. there is false if the job was removed, or this host was stopped.
func (g *repairing) read(ctx context.Context, x *step.Exchange) (there bool, err error) {
	l, v, self := g.View.Layout, g.View, g.View.Self.ID
	read := []registry.Query{registry.Data(l.Config()), registry.Data(l.Instance(self)), registry.Data(l.Detail(self)), registry.Data(l.RunsOf(self)), registry.Data(l.AssignmentOf(self)),
		registry.Children(l.Instances()), registry.Children(l.Details()), registry.Children(l.Sharding()), registry.Data(l.Necessary())}
	for _, p := range places(l) {
		read = append(read, registry.Data(p))
	}
	n, err := x.Read(ctx, read...)
	if err != nil || !n.Data(l.Config()).Exists || !n.Data(l.Instance(self)).Exists {
		return false, err
	}
	g.instance, g.detail, g.runs, g.assigned, g.flag = n.Data(l.Instance(self)), n.Data(l.Detail(self)), n.Data(l.RunsOf(self)), n.Data(l.AssignmentOf(self)), n.Data(l.Necessary())
	for _, p := range places(l) {
		g.places = append(g.places, n.Data(p))
	}

	instances, details := n.Children(l.Instances()), n.Children(l.Details())
	var strangers, items []registry.Query
	for _, id := range instances {
		if known := slices.Contains(details, id) && slices.Contains(v.Members, id); !known && id != self {
			strangers = append(strangers, registry.Data(l.Instance(id)))
		}
	}
	for _, id := range details {
		if !slices.Contains(instances, id) {
			strangers = append(strangers, registry.Data(l.Detail(id)))
		}
	}
	for _, name := range n.Children(l.Sharding()) {
		if i, ok := tree.ItemNumber(name); ok && g.Items {
			items = append(items, registry.Data(l.Item(i)))
		}
	}
	if n, _, err = x.ReadSome(ctx, slices.Concat(strangers, items)...); err != nil { // an unreadable node stays
		return false, err
	}
	for _, q := range strangers {
		g.strangers = append(g.strangers, n[q])
	}
	for _, q := range items {
		g.items = append(g.items, n[q])
	}
	return true, nil
}

// places are the nodes of skeleton and those above them, parents first.
func places(l tree.Layout) []string {
	paths := []string{l.Root() + "/leader", l.Root() + "/leader/failover", l.NamespaceNode(), l.Sibling()}
	for _, op := range skeleton(l) {
		paths = append(paths, op.Path)
	}
	return paths
}

// repair returns the ops that repair the tree, and the paths of the repaired nodes.
func (g *repairing) repair() (ops []registry.Op, paths []string) {
	l, self := g.View.Layout, g.View.Self.ID
	ops, at := g.repairPlaces()
	divide := len(ops) > 0
	for _, n := range g.items {
		if n.Ephemeral {
			ops = append(ops, registry.Delete(n.Path, n.Version), registry.Create(n.Path, nil))
			divide = true
		}
	}
	members, term := at[l.Members()], at[l.Term()]
	with := tree.ParseMembers(members.Data).With(self)
	if !members.Exists || !term.Exists {
		// Their versions start over. A division that relies on one of them must conflict with the other.
		ops = append(ops, registry.Set(l.Members(), with.Data(), members.Version), registry.Set(l.Term(), term.Data, term.Version))
	} else if string(with.Data()) != string(members.Data) {
		ops = append(ops, registry.Set(l.Members(), with.Data(), members.Version))
		divide = divide || !slices.Contains(tree.ParseMembers(members.Data), self)
	}
	if !g.assigned.Exists {
		divide = true
	}
	ops = append(ops, g.repairOwn()...)
	for _, n := range g.strangers {
		if n.Exists && !n.Ephemeral {
			ops = append(ops, registry.Delete(n.Path, n.Version))
		}
	}

	for _, op := range ops {
		paths = append(paths, op.Path)
	}
	if divide && !g.flag.Exists {
		ops = append(ops, registry.Create(l.Necessary(), nil))
	}
	// Only if the job has not been removed nor this host stopped meanwhile.
	ops = append([]registry.Op{registry.Check(l.Config(), registry.AnyVersion), registry.Check(l.Instance(self), g.instance.Version)}, ops...)
	return ops, slices.Compact(paths)
}

// repairPlaces creates parent nodes. at has the nodes as they are afterwards.
func (g *repairing) repairPlaces() (ops []registry.Op, at map[string]registry.Node) {
	at = make(map[string]registry.Node, len(g.places))
	for _, n := range g.places {
		if n.Exists && !n.Ephemeral {
			at[n.Path] = n
			continue
		}
		if n.Exists { // nothing can be made below an ephemeral node
			ops = append(ops, registry.Delete(n.Path, n.Version), registry.Create(n.Path, n.Data))
		} else {
			ops = append(ops, registry.Ensure(n.Path))
		}
		at[n.Path] = registry.Node{Query: n.Query, Data: n.Data}
	}
	return ops, at
}

// repairOwn makes this host's own nodes.
func (g *repairing) repairOwn() (ops []registry.Op) {
	l, self := g.View.Layout, g.View.Self.ID
	if _, err := tree.ParseRuns(g.runs.Data); !g.runs.Exists {
		ops = append(ops, registry.Create(l.RunsOf(self), g.Runs.Data()))
	} else if err != nil {
		ops = append(ops, registry.Set(l.RunsOf(self), g.Runs.Data(), g.runs.Version))
	}
	if !g.assigned.Exists {
		ops = append(ops, registry.Create(l.AssignmentOf(self), nil))
	}
	if n := g.detail; !n.Exists || !n.Ephemeral {
		if n.Exists {
			ops = append(ops, registry.Delete(n.Path, n.Version))
		}
		ops = append(ops, registry.CreateEphemeral(l.Detail(self), g.Detail.Data()))
	}
	if n := g.instance; !n.Ephemeral {
		ops = append(ops, registry.Delete(n.Path, n.Version), registry.CreateEphemeral(n.Path, g.View.Self.YAML()))
	}
	return ops
}

// gone is the error about a missing node that a host needs and that Repair recreates.
func gone(n registry.Node) error {
	return fmt.Errorf("node %s is gone: %w", n.Path, registry.ErrConflict)
}
