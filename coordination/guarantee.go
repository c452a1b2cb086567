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

// Arrive marks that this host's items have come to the phase. last is set to
// true on exactly one host: the one whose items were the last of all that can
// run. Disabled items are not waited for.
func Arrive(l Layout, p Phase, items Items, total int, last *bool) Move {
	ops := []Op{Check(l.config(), AnyVersion), Ensure(l.guarantee(p))}
	for _, i := range items {
		ops = append(ops, Create(l.guaranteeItem(p, i), nil))
	}
	return Move{
		Name: "arrive", Commit: ops,
		Then: func([]Node, []Result) (Move, error) { return arrived(l, p, total, last), nil },
		Else: func(e *OpError) (Move, error) {
			switch {
			case e.Index == 0:
				return Move{}, ErrRemoved
			case e.Reason == ReasonExists: // left by an earlier fire that timed out
				k := e.Index - 2
				rest := slices.Delete(slices.Clone(items), k, k+1)
				if len(rest) == 0 {
					return arrived(l, p, total, last), nil
				}
				return Arrive(l, p, rest, total, last), nil
			}
			return Arrive(l, p, items, total, last), nil
		},
	}
}

func arrived(l Layout, p Phase, total int, last *bool) Move {
	read := []Query{Children(l.guarantee(p))}
	for i := range total {
		read = append(read, Data(l.itemDisabled(i)))
	}
	return Move{Name: "arrive", Read: read, Then: func(n []Node, _ []Result) (Move, error) {
		waiting := 0
		for i := range total {
			if !n[1+i].Exists && !slices.Contains(n[0].Names, itoa(i)) {
				waiting++
			}
		}
		if !n[0].Exists || waiting > 0 {
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

// clearGuarantee deletes the subtree; of several hosts that try, one succeeds.
func clearGuarantee(l Layout, p Phase, names []string, success func()) Move {
	var ops []Op
	for _, name := range names {
		ops = append(ops, Delete(l.guarantee(p)+"/"+name, AnyVersion))
	}
	ops = append(ops, Delete(l.guarantee(p), AnyVersion))
	return Move{
		Name: "clear guarantee", Commit: ops,
		Then: func([]Node, []Result) (Move, error) { success(); return Done() },
		Else: func(*OpError) (Move, error) { return Done() },
	}
}
