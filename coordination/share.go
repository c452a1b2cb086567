package coordination

import (
	"fmt"
	"maps"
	"slices"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// Share is what a host owns, with what it must know of each item to begin it.
type Share struct {
	Guard ShareGuard
	Items map[int]ItemState
	// Pending are items that go elsewhere when they are completed.
	Pending Items
	// Java is set when a Java leader divided the items. Foreign are then the
	// items that this host did not own before: which of their instants were
	// run is not known.
	Java    bool
	Foreign Items
	// Owing are items that missed trigger round Round by moving here.
	Owing    Items
	Round    int64
	division int64
	round    int
}

// ShareGuard is what a begin proves: that the share is still the one that was
// read. Our leaders take an item away by setting the host's assignment node. A
// Java leader recreates the instance nodes of all items, the lowest first, so
// that the node of the share's lowest item, the anchor, has another version. A
// host of ours may bring it to that version again, for itself, and with that
// raises the epoch.
type ShareGuard struct {
	Assignment, Epoch int32
	// Anchor is the lowest item of the share; AnchorVersion is 0 if there is
	// none.
	Anchor        int
	AnchorVersion int32
}

// ItemState is what the registry holds of one item.
type ItemState struct {
	Record        Record
	RecordVersion int32
	RecordZxid    int64
	Offset        []byte
	OffsetVersion int32
	HasOffset     bool
	// Misfire, Disabled: the marks, as of the reading.
	Misfire, Disabled bool
}

// Current reports whether the share was read after the view's division, and
// after the last one that a Java leader made, as far as the view knows.
func (s Share) Current(v View) bool {
	return s.Items != nil && s.division == v.divisionNode.Mzxid && s.round == v.round && !v.Halted()
}

// Edited reports whether the share is another one than before, though the items
// were not divided in between: somebody has set this host's assignment node. It
// may also be that a division is just being made.
func (s Share) Edited(before Share) bool {
	if s.Items == nil || before.Items == nil || s.Java || before.Java || s.division != before.division || s.round != before.round {
		return false
	}
	for i := range before.Items {
		if _, mine := s.Items[i]; !mine {
			return true
		}
	}
	return len(s.Items) != len(before.Items)
}

// ReadShare reads what this host owns. known are states that need not be read
// again: items that the host has held without a break. share is left alone
// while no host knows: a Java leader divides the items, or has divided them
// and is gone, so that ours will.
//
// An item of the share that stayed only because it ran, and does not run any
// more, moves now: its host did not know the division yet when it
// completed the item, and so it asks for another one here.
func ReadShare(v View, known map[int]ItemState, share *Share) Move {
	l := v.Layout
	if v.Halted() {
		return Move{Name: "read share"}
	}
	read := []registry.Query{registry.Data(l.assignmentOf(v.Self.ID)), registry.Data(l.assignment()), registry.Data(l.runsOf(v.Self.ID)), registry.Data(l.epoch()), registry.Data(l.itemInstance(0))}
	return Move{Name: "read share", Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		mine, err := ParseItems(string(n[0].Data))
		if err != nil {
			if v.Leader != "" && !v.JavaLed() && !v.Necessary {
				return AskForSharding(v), nil // the leader writes it again
			}
			return Move{}, fmt.Errorf("node %s: %w", n[0].Path, err)
		}
		epoch, first := n[3], n[4]
		if byJava(epoch, first) {
			switch {
			case v.JavaLed():
				return adoption{view: v, known: known, share: share, had: mine, assigned: n[0], division: n[1], epoch: epoch, first: first}.read(), nil
			case v.OurTerm && !v.Necessary && len(n[1].Data) > 0:
				return AskForSharding(v), nil // an instance node was recreated by an external edit
			}
			return Done()
		}
		switch {
		case !epoch.Exists:
			return Move{}, gone(epoch)
		case !n[0].Exists:
			return Move{}, gone(n[0])
		}
		// An external edit may have written any number of items there that are none.
		divided, beyond := parseDivision(n[1].Data), false
		mine = slices.DeleteFunc(mine, func(i int) bool {
			none := i >= max(divided.Total, v.Config.ShardingTotalCount) && !divided.Pending.Contains(i)
			beyond = beyond || none
			return none
		})
		// The nodes may be of different instants. What is certain is that the
		// share is not older than the view's division.
		s := Share{Items: make(map[int]ItemState, len(mine)), Pending: divided.Pending, division: v.divisionNode.Mzxid, round: v.round,
			Guard: ShareGuard{Assignment: n[0].Version, Epoch: epoch.Version}}
		return s.fill(v, mine, known, func(anchored bool) (Move, error) {
			for _, i := range divided.Owing {
				if state, has := s.Items[i]; has && state.Record.Trigger < divided.Round {
					s.Owing, s.Round = append(s.Owing, i), divided.Round
				}
			}
			*share = s
			runs, err := parseRuns(n[2].Data)
			if v.Necessary || v.Leader == "" {
				return Done()
			}
			if !anchored || beyond {
				return AskForSharding(v), nil // a node was changed or deleted by an external edit
			}
			if err != nil {
				return Done()
			}
			running := runs.Items()
			for _, i := range s.Pending {
				if mine.Contains(i) && !running.Contains(i) {
					return AskForSharding(v), nil
				}
			}
			return Done()
		})
	}}
}

// fill reads the items' states, and the anchor of the guard. anchored is false
// if that node is not there.
func (s *Share) fill(v View, mine Items, known map[int]ItemState, then func(anchored bool) (Move, error)) (Move, error) {
	l := v.Layout
	var fresh Items
	for _, i := range mine {
		if state, ok := known[i]; ok {
			s.Items[i] = state
		} else {
			fresh = append(fresh, i)
		}
	}
	read := itemQueries(l, fresh)
	if len(mine) > 0 {
		s.Guard.Anchor = mine[0]
		read = append(read, registry.Data(l.itemInstance(mine[0])))
	}
	if len(read) == 0 {
		return then(true)
	}
	return Move{Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		maps.Copy(s.Items, itemStates(fresh, n))
		anchored := true
		if len(mine) > 0 {
			anchor := n[len(n)-1]
			anchored = anchor.Version > 0 && string(anchor.Data) == v.Self.ID
			s.Guard.AnchorVersion = max(anchor.Version, 1) // where it is not there no begin succeeds
		}
		return then(anchored)
	}}, nil
}

// readItems reads the states of items.
func readItems(l Layout, items Items, then func(map[int]ItemState) (Move, error)) Move {
	return Move{Name: "read items", Read: itemQueries(l, items), Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		return then(itemStates(items, n))
	}}
}

const itemQueriesEach = 4

func itemQueries(l Layout, items Items) []registry.Query {
	read := make([]registry.Query, 0, itemQueriesEach*len(items)+1)
	for _, i := range items {
		read = append(read, registry.Data(l.record(i)), registry.Data(l.offset(i)), registry.Data(l.itemMisfire(i)), registry.Data(l.itemDisabled(i)))
	}
	return read
}

func itemStates(items Items, n []registry.Node) map[int]ItemState {
	states := make(map[int]ItemState, len(items))
	for k, i := range items {
		q := n[itemQueriesEach*k:]
		states[i] = itemState(q[0], q[1], q[2], q[3])
	}
	return states
}

func itemState(record, offset, misfire, disabled registry.Node) ItemState {
	s := ItemState{Record: parseRecord(record.Data), RecordVersion: record.Version, RecordZxid: record.Mzxid,
		Misfire: misfire.Exists, Disabled: disabled.Exists}
	if !record.Exists {
		s.RecordVersion = -1
	}
	if offset.Exists {
		s.Offset, s.OffsetVersion, s.HasOffset = offset.Data, offset.Version, true
	}
	return s
}

// ReadDisabled reads which of the items are disabled into out.
func ReadDisabled(l Layout, items Items, out *map[int]bool) Move {
	read := make([]registry.Query, len(items))
	for k, i := range items {
		read[k] = registry.Data(l.itemDisabled(i))
	}
	return Move{Name: "read disabled items", Read: read, Then: func(nodes []registry.Node, _ []registry.Result) (Move, error) {
		*out = make(map[int]bool)
		for k, n := range nodes {
			if n.Exists {
				(*out)[items[k]] = true
			}
		}
		return Done()
	}}
}

// ReadItems reads the states of items into out.
func ReadItems(l Layout, items Items, out *map[int]ItemState) Move {
	return readItems(l, items, func(m map[int]ItemState) (Move, error) {
		*out = m
		return Done()
	})
}
