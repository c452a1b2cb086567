package coordination

import "slices"

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
func GuaranteeWatch(l Layout, p Phase) Query { return Children(l.guarantee(p)) }

// GuaranteePassed reports, from what GuaranteeWatch shows, whether the phase
// at which a host has arrived with these items is over: the marks are gone, or
// those that are there are of the next fire. The answer is certain only for a
// node that was read after the arrival; a snapshot may have been sent before.
func GuaranteePassed(n Node, items Items) bool {
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
// run. Disabled items are not waited for.
func Arrive(l Layout, p Phase, items Items, total int, last *bool) Move {
	var marks []Op
	for _, i := range items {
		marks = append(marks, Create(l.guaranteeItem(p, i), nil))
	}
	ops := []Op{Check(l.config(), AnyVersion), Ensure(l.guarantee(p))}
	var rest Items
	for part := range parts(marks, commitBudget) {
		ops = append(ops, part...)
		rest = items[len(part):]
		break
	}
	return Move{
		Name: "arrive", Commit: ops,
		Then: func([]Node, []Result) (Move, error) {
			if len(rest) > 0 {
				return Arrive(l, p, rest, total, last), nil
			}
			return arrived(l, p, total, last), nil
		},
		Else: func(e *OpError) (Move, error) {
			switch {
			case e.Index == 0:
				return Move{}, ErrRemoved
			case e.Reason != ReasonExists: // the marks have just been cleared
				return Arrive(l, p, items, total, last), nil
			}
			// Left by an earlier fire that timed out.
			return Move{Read: []Query{Children(l.guarantee(p))}, Then: func(n []Node, _ []Result) (Move, error) {
				there := make(map[string]bool, len(n[0].Names))
				for _, name := range n[0].Names {
					there[name] = true
				}
				left := slices.DeleteFunc(slices.Clone(items), func(i int) bool { return there[itoa(i)] })
				return Arrive(l, p, left, total, last), nil
			}}, nil
		},
	}
}

func arrived(l Layout, p Phase, total int, last *bool) Move {
	read := []Query{Children(l.guarantee(p))}
	for i := range total {
		read = append(read, Data(l.itemDisabled(i)))
	}
	return Move{Name: "arrive", Read: read, Then: func(n []Node, _ []Result) (Move, error) {
		there := make(map[string]bool, len(n[0].Names))
		for _, name := range n[0].Names {
			there[name] = true
		}
		for i := range total {
			if !n[1+i].Exists && !there[itoa(i)] {
				return Done()
			}
		}
		if !n[0].Exists {
			return Done()
		}
		return clearGuarantee(l, p, n[0].Names, func() { *last = true }), nil
	}}
}

// ClearGuarantee gives up on a phase, after a time-out.
func ClearGuarantee(l Layout, p Phase) Move {
	return Move{Name: "clear guarantee", Read: []Query{Children(l.guarantee(p))}, Then: func(n []Node, _ []Result) (Move, error) {
		if !n[0].Exists {
			return Done()
		}
		return clearGuarantee(l, p, n[0].Names, func() {}), nil
	}}
}

// clearGuarantee deletes the subtree; of several hosts that try, the one whose
// first commit succeeds has done it. It calls success once the node is gone.
func clearGuarantee(l Layout, p Phase, names []string, success func()) Move {
	ops := make([]Op, 0, len(names)+1)
	for _, name := range names {
		ops = append(ops, Delete(l.guarantee(p)+"/"+name, AnyVersion))
	}
	ops = append(ops, Delete(l.guarantee(p), AnyVersion))
	for part := range parts(ops, commitBudget) {
		rest := names[min(len(part), len(names)):]
		return Move{
			Name: "clear guarantee", Commit: part,
			Then: func([]Node, []Result) (Move, error) {
				if len(part) == len(ops) {
					success()
					return Done()
				}
				return finishGuarantee(l, p, rest, success), nil
			},
			Else: func(*OpError) (Move, error) { return Done() },
		}
	}
	return Move{Name: "clear guarantee"}
}

// finishGuarantee goes on with a subtree that this host has begun to delete.
func finishGuarantee(l Layout, p Phase, names []string, success func()) Move {
	m := clearGuarantee(l, p, names, success)
	m.Else = func(*OpError) (Move, error) {
		return Move{Read: []Query{Children(l.guarantee(p))}, Then: func(n []Node, _ []Result) (Move, error) {
			if !n[0].Exists {
				success()
				return Done()
			}
			return finishGuarantee(l, p, n[0].Names, success), nil
		}}, nil
	}
	return m
}
