package coordination

import (
	"slices"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// Phase is one of the two points of a fire at which a listener runs once over
// all hosts.
type Phase bool

// The phases.
const (
	PhaseStarted   Phase = true
	PhaseCompleted Phase = false
)

func (l Layout) guarantee(p Phase) string {
	if p == PhaseStarted {
		return l.started()
	}
	return l.completed()
}

func (l Layout) guaranteeItem(p Phase, i int) string {
	if p == PhaseStarted {
		return l.startedItem(i)
	}
	return l.completedItem(i)
}

// GuaranteeWatch is what to watch while waiting for a phase: the node is gone
// when some host has run the listener.
func GuaranteeWatch(l Layout, p Phase) registry.Query { return registry.Children(l.guarantee(p)) }

// GuaranteePassed reports, from what GuaranteeWatch shows, whether the phase
// at which a host has arrived with these items is over: the marks are gone, or
// those that are there are of the next fire. The answer is certain only for a
// node that was read after the arrival; a snapshot may have been sent before.
func GuaranteePassed(n registry.Node, items Items) bool {
	if !n.Exists {
		return true
	}
	for _, i := range items {
		if slices.Contains(n.Names, itoa(i)) {
			return false
		}
	}
	return len(items) > 0
}

// Arrive marks that this host's items have come to the phase. last is set to
// true on exactly one host: the one whose items were the last of all that can
// run. That host runs the listener and then clears the marks with
// ClearGuarantee; the others wait until it has. Disabled items are not waited
// for.
func Arrive(l Layout, self JobInstance, p Phase, items Items, total int, last *bool) Move {
	var marks []registry.Op
	for _, i := range items {
		marks = append(marks, registry.Create(l.guaranteeItem(p, i), nil))
	}
	ops := []registry.Op{registry.Check(l.config(), registry.AnyVersion), registry.Ensure(l.guarantee(p))}
	var rest Items
	for part := range parts(marks, commitBudget) {
		ops = append(ops, part...)
		rest = items[len(part):]
		break
	}
	return Move{
		Name: "arrive", Commit: ops,
		Then: func([]registry.Node, []registry.Result) (Move, error) {
			if len(rest) > 0 {
				return Arrive(l, self, p, rest, total, last), nil
			}
			return arrived(l, self, p, total, last), nil
		},
		Else: func(e *registry.OpError) (Move, error) {
			switch {
			case e.Index == 0:
				return Move{}, ErrRemoved
			case e.Reason != registry.ReasonExists: // the marks have just been cleared
				return Arrive(l, self, p, items, total, last), nil
			}
			// Left by an earlier fire that timed out.
			return Move{Read: []registry.Query{registry.Children(l.guarantee(p))}, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
				there := make(map[string]bool, len(n[0].Names))
				for _, name := range n[0].Names {
					there[name] = true
				}
				left := slices.DeleteFunc(slices.Clone(items), func(i int) bool { return there[itoa(i)] })
				return Arrive(l, self, p, left, total, last), nil
			}}, nil
		},
	}
}

// arrived looks whether all have arrived, and then claims the phase: the
// node's data is the instance that runs the listener. A claim of an instance
// that is gone counts for nothing.
func arrived(l Layout, self JobInstance, p Phase, total int, last *bool) Move {
	read := []registry.Query{registry.Children(l.guarantee(p)), registry.Data(l.guarantee(p)), registry.Children(l.instances())}
	first := len(read)
	for i := range total {
		read = append(read, registry.Data(l.itemDisabled(i)))
	}
	return Move{Name: "arrive", Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		marks, claim, instances := n[0], n[1], n[2]
		there := make(map[string]bool, len(marks.Names))
		for _, name := range marks.Names {
			there[name] = true
		}
		for i := range total {
			if !n[first+i].Exists && !there[itoa(i)] {
				return Done()
			}
		}
		by := string(claim.Data)
		if !claim.Exists || (by != "" && by != self.ID && slices.Contains(instances.Names, by)) {
			return Done()
		}
		return Move{
			Commit: []registry.Op{registry.Set(l.guarantee(p), []byte(self.ID), claim.Version)},
			Then:   func([]registry.Node, []registry.Result) (Move, error) { *last = true; return Done() },
			Else:   func(*registry.OpError) (Move, error) { return arrived(l, self, p, total, last), nil },
		}, nil
	}}
}

// ClearGuarantee ends a phase: its listener has run, or the time is up.
func ClearGuarantee(l Layout, p Phase) Move {
	return Move{Name: "clear guarantee", Read: []registry.Query{registry.Children(l.guarantee(p))}, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		if !n[0].Exists {
			return Done()
		}
		return clearGuarantee(l, p, n[0].Names), nil
	}}
}

// clearGuarantee deletes the subtree; of several hosts that try, the one whose
// first commit succeeds does it.
func clearGuarantee(l Layout, p Phase, names []string) Move {
	ops := make([]registry.Op, 0, len(names)+1)
	for _, name := range names {
		ops = append(ops, registry.Delete(l.guarantee(p)+"/"+name, registry.AnyVersion))
	}
	ops = append(ops, registry.Delete(l.guarantee(p), registry.AnyVersion))
	for part := range parts(ops, commitBudget) {
		rest := names[min(len(part), len(names)):]
		return Move{
			Name: "clear guarantee", Commit: part,
			Then: func([]registry.Node, []registry.Result) (Move, error) {
				if len(part) == len(ops) {
					return Done()
				}
				return finishGuarantee(l, p, rest), nil
			},
			Else: func(*registry.OpError) (Move, error) { return Done() },
		}
	}
	return Move{Name: "clear guarantee"}
}

// finishGuarantee goes on with a subtree that this host has begun to delete.
func finishGuarantee(l Layout, p Phase, names []string) Move {
	m := clearGuarantee(l, p, names)
	m.Else = func(*registry.OpError) (Move, error) {
		return Move{Read: []registry.Query{registry.Children(l.guarantee(p))}, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
			if !n[0].Exists {
				return Done()
			}
			return finishGuarantee(l, p, n[0].Names), nil
		}}, nil
	}
	return m
}
