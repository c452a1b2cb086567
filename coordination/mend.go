package coordination

import (
	"fmt"
	"slices"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// Mending is a host's wish to have in order what the job's hosts rely on.
type Mending struct {
	View   View
	Detail HostDetail
	// Runs is what the host has begun and not completed.
	Runs Runs
	// Items is set to look at the node of every item as well.
	Items bool
}

// MissingFromMembers reports that this host is in the job's list and not among the members:
// somebody has edited that node, or taken our tree away.
func (v View) MissingFromMembers() bool {
	return v.Exists && v.Joined() && !slices.Contains(v.Members, v.Self.ID)
}

// Mend repairs what an external edit has deleted or put in
// another one's place: the nodes below which hosts write, this host's own ones,
// its name among the members. It takes away hosts that do not exist: the nodes by
// which a host is known to live are ephemeral, and one that is not stands for
// nobody. If something was gone that a division relies on, it asks for one.
//
// A job that was removed, and a host that was stopped by an operator, are left
// as they are. mended lists the nodes that were made, set or taken away.
func Mend(m Mending, mended *[]string) Move {
	l, self := m.View.Layout, m.View.Self.ID
	places := l.places()
	read := []registry.Query{registry.Data(l.config()), registry.Data(l.instance(self)), registry.Data(l.detail(self)), registry.Data(l.runsOf(self)), registry.Data(l.assignmentOf(self)),
		registry.Children(l.instances()), registry.Children(l.details()), registry.Children(l.sharding()), registry.Data(l.necessary())}
	first := len(read)
	for _, p := range places {
		read = append(read, registry.Data(p))
	}
	return Move{Name: "mend", Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		if !n[0].Exists || !n[1].Exists {
			return Done()
		}
		g := mending{Mending: m, mended: mended, instance: n[1], detail: n[2], runs: n[3], assigned: n[4], flag: n[8], places: n[first:]}
		var read []registry.Query
		for _, id := range n[5].Names {
			if known := slices.Contains(n[6].Names, id) && slices.Contains(m.View.Members, id); !known && id != self {
				read = append(read, registry.Data(l.instance(id)))
			}
		}
		for _, id := range n[6].Names {
			if !slices.Contains(n[5].Names, id) {
				read = append(read, registry.Data(l.detail(id)))
			}
		}
		strangers := len(read)
		for _, name := range n[7].Names {
			if i, ok := itemNumber(name); ok && m.Items {
				read = append(read, registry.Data(l.item(i)))
			}
		}
		if len(read) == 0 {
			return g.write()
		}
		return Move{Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
			g.strangers, g.items = n[:strangers], n[strangers:]
			return g.write()
		}}, nil
	}}
}

// mending is a Mending on its way.
type mending struct {
	Mending
	mended                                 *[]string
	instance, detail, runs, assigned, flag registry.Node
	// places are the nodes below which others are made, parents first; strangers
	// are nodes of hosts that may not exist.
	places, strangers, items []registry.Node
}

// places are the nodes of skeleton and those above them, parents first.
func (l Layout) places() []string {
	paths := []string{l.root + "/leader", l.root + "/leader/failover", l.adopted(), l.sibling}
	for _, op := range l.skeleton() {
		paths = append(paths, op.Path)
	}
	return paths
}

func (g mending) write() (Move, error) {
	l, v := g.View.Layout, g.View
	self := v.Self.ID
	var ops []registry.Op
	divide := false
	at := make(map[string]registry.Node, len(g.places))
	for _, n := range g.places {
		switch {
		case !n.Exists:
			ops = append(ops, registry.Ensure(n.Path))
		case n.Ephemeral: // nothing can be made below it
			ops = append(ops, registry.Delete(n.Path, n.Version), registry.Create(n.Path, n.Data))
		default:
			at[n.Path] = n
			continue
		}
		divide = true
		at[n.Path] = registry.Node{Query: n.Query, Data: n.Data}
	}
	for _, n := range g.items {
		if n.Ephemeral {
			ops = append(ops, registry.Delete(n.Path, n.Version), registry.Create(n.Path, nil))
			divide = true
		}
	}
	members, term := at[l.members()], at[l.term()]
	with := parseMembers(members.Data).with(self)
	switch {
	case !members.Exists || !term.Exists:
		// Their versions begin again. A division that relies on one of them must
		// find that the other has changed.
		ops = append(ops, registry.Set(l.members(), with.data(), members.Version), registry.Set(l.term(), term.Data, term.Version))
	case string(with.data()) != string(members.Data):
		ops = append(ops, registry.Set(l.members(), with.data(), members.Version))
		divide = divide || !slices.Contains(parseMembers(members.Data), self)
	}
	switch _, err := parseRuns(g.runs.Data); {
	case !g.runs.Exists:
		ops = append(ops, registry.Create(l.runsOf(self), g.Runs.data()))
	case err != nil:
		ops = append(ops, registry.Set(l.runsOf(self), g.Runs.data(), g.runs.Version))
	}
	if !g.assigned.Exists {
		ops = append(ops, registry.Create(l.assignmentOf(self), nil))
		divide = true
	}
	if n := g.detail; !n.Exists || !n.Ephemeral {
		if n.Exists {
			ops = append(ops, registry.Delete(n.Path, n.Version))
		}
		ops = append(ops, registry.CreateEphemeral(l.detail(self), g.Detail.data()))
	}
	if n := g.instance; !n.Ephemeral {
		ops = append(ops, registry.Delete(n.Path, n.Version), registry.CreateEphemeral(n.Path, v.Self.yaml()))
	}
	for _, n := range g.strangers {
		if n.Exists && !n.Ephemeral {
			ops = append(ops, registry.Delete(n.Path, n.Version))
		}
	}
	if len(ops) == 0 {
		return Done()
	}
	paths := make([]string, 0, len(ops))
	for _, op := range ops {
		paths = append(paths, op.Path)
	}
	if divide && !g.flag.Exists {
		ops = append(ops, registry.Create(l.necessary(), nil))
	}
	// Not a job that was removed meanwhile, and not a host that was stopped.
	ops = append([]registry.Op{registry.Check(l.config(), registry.AnyVersion), registry.Check(l.instance(self), g.instance.Version)}, ops...)
	again := func() (Move, error) { return Mend(g.Mending, g.mended), nil }
	return Move{Name: "mend", Commit: ops,
		Then: func([]registry.Node, []registry.Result) (Move, error) {
			*g.mended = append(*g.mended, slices.Compact(paths)...)
			return Done()
		},
		Else: func(e *registry.OpError) (Move, error) {
			if e.Index < 2 {
				return Done()
			}
			return again()
		},
		Unknown: again}, nil
}

// gone is the error about a node without which a host cannot go on, and which
// Mend repairs.
func gone(n registry.Node) error {
	return fmt.Errorf("node %s is gone: %w", n.Path, registry.ErrConflict)
}
