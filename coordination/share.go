package coordination

import (
	"context"
	"fmt"
	"slices"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Known returns the state of an item that need not be read: the host has owned the item without a break. A nil Known knows
// none.
type Known func(item int) (state ItemState, known bool)

func (k Known) of(item int) (ItemState, bool) {
	if k == nil {
		return ItemState{}, false
	}
	return k(item)
}

// Share is what a host owns.
type Share struct {
	Guard ShareGuard
	// Items is nil if the share was not read.
	Items tree.Items
	// Denied are items of the share that are not in Items, because the registry does not permit to read them.
	Denied Denials
	// Pending are items that move to another host when they are completed.
	Pending tree.Items
	// Java is set when a Java leader divided the items. Foreign are then the items that this host did not own
	// before: it does not know which of their instants were run.
	Java    bool
	Foreign tree.Items
	// Owing are items that missed the trigger round Round, with arguments Args, by moving here.
	Owing    tree.Items
	Round    int64
	Args     tree.TriggerArgs
	Counts   tree.Counts // of the division; the view's may be older
	Followed bool        // the same
	division int64
	round    int
}

// ShareGuard proves at a begin that the share has not changed since it was read. Our leaders take an item away
// by setting the host's assignment node. A Java leader recreates the instance nodes of all items, the lowest
// first, so that the node of the share's lowest item, the anchor, gets another version. Another host of ours
// may bring that node to the same version again for its own share, and then also raises the epoch.
type ShareGuard struct {
	Assignment, Epoch int32
	// Anchor is the lowest item of the share; AnchorVersion is 0 if there is
	// none.
	Anchor        int
	AnchorVersion int32
}

// ItemState is what the registry holds of one item.
type ItemState struct {
	Record        tree.Record
	RecordVersion int32
	RecordZxid    int64
	Offset        []byte
	OffsetVersion int32
	HasOffset     bool
	// Misfire and Disabled are the marks, as read. Said is who disabled it, if a program of ours did.
	Misfire, Disabled bool
	Said              tree.Word
}

// Current reports whether the share was read after the view's division, and
// after the last one that a Java leader made, as far as the view knows.
func (s Share) Current(v View) bool {
	return s.Items != nil && s.division == v.divisionNode.Mzxid && s.round == v.round && !v.Halted()
}

// Edited reports whether the share has changed although the items were not divided in between: an external edit
// has set this host's assignment node, or a division is in progress.
func (s Share) Edited(before Share) bool {
	if s.Items == nil || before.Items == nil || s.Java || before.Java || s.division != before.division || s.round != before.round {
		return false
	}
	for _, i := range before.Items {
		if !s.has(i) {
			return true
		}
	}
	for i := range before.Denied {
		if !s.has(i) {
			return true
		}
	}
	return len(s.Items)+len(s.Denied) != len(before.Items)+len(before.Denied)
}

// has reports whether an item is of the share.
func (s Share) has(item int) bool {
	return s.Items.Contains(item) || s.Denied[item] != nil
}

// ReadShare reads what this host owns, and returns the states of the items that are not known. read is false, and m.Share
// unchanged, while the owners are undecided: a Java leader divides the items, or has divided them and is gone, so that a leader
// of ours will.
//
// If an item of the share stayed only because it ran, and does not run any more, ReadShare asks for another
// division: the item's host did not know the division yet when it completed the item.
func (m *Member) ReadShare(ctx context.Context, known Known) (states map[int]ItemState, read bool, err error) {
	if m.View.Halted() {
		return nil, false, nil
	}
	r := shareReading{view: m.View, known: known}
	err = m.perform(ctx, "read share", func(ctx context.Context, x *step.Exchange) error {
		for {
			done, err := r.read(ctx, x)
			if done || err != nil {
				return err
			}
		}
	})
	if err != nil || r.share.Items == nil {
		return nil, false, err
	}
	m.Share = r.share
	return r.states, true, nil
}

// shareReading is a ReadShare on its way.
type shareReading struct {
	view   View
	known  Known
	share  Share
	states map[int]ItemState // of items that are not known
}

// read is one attempt to read the share; done is false if a Java leader
// divided the items meanwhile.
func (r *shareReading) read(ctx context.Context, x *step.Exchange) (done bool, err error) {
	v, l := r.view, r.view.Layout
	// The division is read last: it is not older than what begins check.
	n, first, err := readDivided(ctx, x, v, registry.Data(l.AssignmentOf(v.Self.ID)), registry.Data(l.RunsOf(v.Self.ID)), registry.Data(l.Epoch()), registry.Data(l.Assignment()))
	if err != nil {
		return false, err
	}
	assigned, division, epoch := n.Data(l.AssignmentOf(v.Self.ID)), n.Data(l.Assignment()), n.Data(l.Epoch())
	mine, err := tree.ParseItems(string(assigned.Data))
	if err != nil {
		if v.Leader != "" && !v.JavaLed() && !v.Necessary {
			return true, AskForSharding(ctx, x, v) // the leader writes it again
		}
		return false, fmt.Errorf("node %s: %w", assigned.Path, err)
	}
	if byJava(epoch, first) {
		if v.JavaLed() {
			a := adoption{shareReading: r, had: mine, assigned: assigned, division: division, epoch: epoch, first: first}
			return a.adopt(ctx, x)
		}
		if v.OurTerm && !v.Necessary && len(division.Data) > 0 {
			return true, AskForSharding(ctx, x, v) // an instance node was recreated by an external edit
		}
		return true, nil
	}
	for _, node := range []registry.Node{epoch, assigned} {
		if !node.Exists {
			return false, gone(node)
		}
	}

	// An external edit may have written any number of invalid items there.
	divided, beyond := tree.ParseDivision(division.Data), false
	mine = slices.DeleteFunc(mine, func(i int) bool {
		none := i >= max(divided.Total, v.Config.ShardingTotalCount) && !divided.Pending.Contains(i)
		beyond = beyond || none
		return none
	})
	// The nodes may be of different instants, but the share is not older than the view's division.
	s := Share{Pending: divided.Pending, Counts: divided.Counts, Followed: divided.Followed, division: v.divisionNode.Mzxid, round: v.round,
		Guard: ShareGuard{Assignment: assigned.Version, Epoch: epoch.Version}}
	anchored, err := r.fill(ctx, x, &s, mine)
	if err != nil {
		return false, err
	}
	for _, i := range divided.Owed() {
		if s.Items.Contains(i) && r.state(i).Record.Trigger < divided.Round {
			s.Owing, s.Round, s.Args = append(s.Owing, i), divided.Round, divided.Args
		}
	}
	r.share = s

	if v.Necessary || v.Leader == "" {
		return true, nil
	}
	if !anchored || beyond { // a node was changed or deleted by an external edit
		return true, AskForSharding(ctx, x, v)
	}
	runs, err := tree.ParseRuns(n.Data(l.RunsOf(v.Self.ID)).Data)
	if err == nil && s.waitsToMove(mine, runs.Items()) {
		return true, AskForSharding(ctx, x, v)
	}
	return true, nil
}

// waitsToMove reports whether an item was only to stay while it ran, and does not run.
func (s Share) waitsToMove(mine, running tree.Items) bool {
	return slices.ContainsFunc(s.Pending, func(i int) bool { return mine.Contains(i) && !running.Contains(i) })
}

// state is the state of an item of the share.
func (r *shareReading) state(item int) ItemState {
	if state, read := r.states[item]; read {
		return state
	}
	state, _ := r.known.of(item)
	return state
}

// fill reads the states of the items mine, which become those of the share, and the anchor of the guard. anchored is false if
// the anchor's node is missing.
func (r *shareReading) fill(ctx context.Context, x *step.Exchange, s *Share, mine tree.Items) (anchored bool, err error) {
	v, l := r.view, r.view.Layout
	var fresh tree.Items
	for _, i := range mine {
		if _, known := r.known.of(i); !known {
			fresh = append(fresh, i)
		}
	}
	r.states = make(map[int]ItemState, len(fresh))
	var lowest reading
	if len(mine) > 0 {
		lowest.add(mine[0], registry.Data(l.ItemInstance(mine[0])))
	}
	found, err := readStates(ctx, x, l, fresh, r.states, &s.Denied, lowest)
	if err != nil {
		return false, err
	}
	anchor, err := s.findAnchor(ctx, x, l, mine, found)
	if err != nil {
		return false, err
	}
	for i := range s.Denied {
		delete(r.states, i)
	}
	if s.Items = s.Denied.without(mine); s.Items == nil {
		s.Items = tree.Items{}
	}
	if len(mine) == 0 || anchor.Path == "" {
		return true, nil
	}
	s.Guard.AnchorVersion = max(anchor.Version, 1) // if it is missing no begin succeeds
	return anchor.Version > 0 && string(anchor.Data) == v.Self.ID, nil
}

// findAnchor is the lowest instance node of the share's that can be read: items whose node cannot are denied,
// so that the anchor is the lowest of those that may begin. found has that of the first item.
func (s *Share) findAnchor(ctx context.Context, x *step.Exchange, l tree.Layout, mine tree.Items, found []registry.Node) (registry.Node, error) {
	for k, i := range mine {
		if k > 0 {
			var next reading
			next.add(i, registry.Data(l.ItemInstance(i)))
			var err error
			if found, err = next.list(ctx, x, &s.Denied); err != nil {
				return registry.Node{}, err
			}
		}
		if found[0].Unread == nil {
			s.Guard.Anchor = i
			return found[0], nil
		}
	}
	return registry.Node{}, nil
}

// readItems reads the states of items; those that cannot be read are noted in denials.
func readItems(ctx context.Context, x *step.Exchange, l tree.Layout, items tree.Items, denials *Denials) (map[int]ItemState, error) {
	states := make(map[int]ItemState, len(items))
	if _, err := readStates(ctx, x, l, items, states, denials, reading{}); err != nil {
		return nil, err
	}
	for i := range *denials {
		delete(states, i)
	}
	return states, nil
}

// statesAtOnce is how many items readStates asks for in one request.
const statesAtOnce = 4096

// readStates reads the states of items into a map, those of many in parts, and what else is to be read with the first part: it
// returns those nodes. Items that are denied are in the map, too.
func readStates(ctx context.Context, x *step.Exchange, l tree.Layout, items tree.Items, states map[int]ItemState, denials *Denials, also reading) (found []registry.Node, err error) {
	for first := true; first || len(items) > 0; first = false {
		part := items[:min(len(items), statesAtOnce)]
		items = items[len(part):]
		read := newReading(itemNodes*len(part) + len(also.queries))
		for _, i := range part {
			read.addState(l, i)
		}
		if first {
			read.queries, read.items = append(read.queries, also.queries...), append(read.items, also.items...)
		}
		nodes, err := read.list(ctx, x, denials)
		if err != nil {
			return nil, err
		}
		for _, i := range part {
			states[i], nodes = itemState(nodes), nodes[itemNodes:]
		}
		if first {
			found = nodes
		}
	}
	return found, nil
}

// addState asks for the nodes of an item that itemState understands.
func (r *reading) addState(l tree.Layout, item int) {
	r.add(item, registry.Data(l.Record(item)), registry.Data(l.Offset(item)), registry.Data(l.ItemMisfire(item)), registry.Data(l.ItemDisabled(item)))
}

// itemNodes is how many nodes that are.
const itemNodes = 4

// itemState is the state of the item whose nodes are the first of a list.
func itemState(nodes []registry.Node) ItemState {
	record, offset, misfire, mark := nodes[0], nodes[1], nodes[2], nodes[3]
	s := ItemState{Record: tree.ParseRecord(record.Data), RecordVersion: tree.VersionOf(record), Misfire: misfire.Exists}
	if mark.Exists {
		s.Disabled = true
		s.Said, _ = tree.ParseMark(mark.Data)
	}
	if offset.Exists {
		s.Offset, s.OffsetVersion, s.HasOffset = offset.Data, offset.Version, true
	}
	s.RecordZxid = s.Record.Token(record.Mzxid)
	return s
}

// ReadDisabled reads which of the items are disabled, and who disabled them. A mark that cannot be read counts
// as present.
func ReadDisabled(ctx context.Context, r registry.Center, l tree.Layout, items tree.Items) (map[int]tree.Word, error) {
	disabled := make(map[int]tree.Word)
	err := step.Perform(ctx, r, "read disabled items", func(ctx context.Context, x *step.Exchange) error {
		n, denied, err := x.ReadSome(ctx, DisabledMarks(l, items)...)
		if err != nil {
			return err
		}
		for _, i := range items {
			if mark := n.Data(l.ItemDisabled(i)); mark.Exists || denied[registry.Data(l.ItemDisabled(i))] != nil {
				disabled[i], _ = tree.ParseMark(mark.Data)
			}
		}
		return nil
	})
	return disabled, err
}

// DisabledMarks are the nodes whose existence says that items are disabled.
func DisabledMarks(l tree.Layout, items tree.Items) []registry.Query {
	read := make([]registry.Query, len(items))
	for k, i := range items {
		read[k] = registry.Data(l.ItemDisabled(i))
	}
	return read
}

// ReadEnabled reads since when instants of items count, because they, or all servers, were disabled before: for
// all items, and by item, in Unix milliseconds of the registry's clock. It omits items that were never enabled
// or cannot be read.
func ReadEnabled(ctx context.Context, r registry.Center, l tree.Layout, items tree.Items) (all int64, of map[int]int64, err error) {
	read := []registry.Query{registry.Data(l.Enabled())}
	for _, i := range items {
		read = append(read, registry.Data(l.Item(i)))
	}
	of = make(map[int]int64)
	err = step.Perform(ctx, r, "read when items were enabled", func(ctx context.Context, x *step.Exchange) error {
		n, denied, err := x.ReadSome(ctx, read...)
		if err == nil && denied[read[0]] != nil {
			err = &registry.UnreadableError{Denied: denied}
		}
		if err != nil {
			return err
		}
		if enabled := n.Data(l.Enabled()); enabled.Exists {
			all = tree.EnabledAt(enabled.Data, enabled.Mtime.UnixMilli())
		}
		for _, i := range items {
			if node := n.Data(l.Item(i)); node.Exists && node.Version > 0 { // it was set
				of[i] = node.Mtime.UnixMilli()
			}
		}
		return nil
	})
	return all, of, err
}

// ReadItems reads the states of items. Those that cannot be read are left out.
func ReadItems(ctx context.Context, r registry.Center, l tree.Layout, items tree.Items) (states map[int]ItemState, err error) {
	err = step.Perform(ctx, r, "read items", func(ctx context.Context, x *step.Exchange) (err error) {
		var denied Denials
		states, err = readItems(ctx, x, l, items, &denied)
		return err
	})
	return states, err
}
