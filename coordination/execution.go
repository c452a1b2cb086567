package coordination

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// A host's list of runs (node runs/{id}) is written by nobody else while the
// host lives, in the same commit as every begin and completion. So it is the
// journal by which a host finds out what became of a commit whose answer was
// lost: Begin, Complete and Recover that meet another version of it than they
// know read it, take what they had begun after all for begun, and hand back
// what nobody runs.

// Beginning is a host's wish to begin items of one fire.
type Beginning struct {
	Layout Layout
	Self   JobInstance
	Fire   Fire
	Config JobConfiguration
	// Items with the states that are known of them.
	Items map[int]ItemState
	// Guard is the version of the host's assignment node (Share.Guard), and
	// HasGuard false when the items are not its own share.
	Guard    int32
	HasGuard bool
	// Runs is what the host has begun already, with the version of its node.
	Runs        Runs
	RunsVersion int32
	// ConsumeTrigger deletes the trigger that waits for this host.
	ConsumeTrigger bool
	Now            time.Time
}

// Begun is what became of a Beginning.
type Begun struct {
	// Items were begun; their states hold the record that was written, and
	// RecordZxid is the fence token. It is nil if nothing was written.
	Items map[int]ItemState
	// Refused were not begun.
	Refused map[int]Refusal
	// Stale is set when the host's share is not what it was: read it again.
	Stale bool
	// TriggerGone is set when the trigger that was to be consumed was not
	// there any more; nothing was begun.
	TriggerGone bool
	Runs        Runs
	RunsVersion int32
	// Commits is how many commits it took.
	Commits int
}

// Refusal is why an item was not begun.
type Refusal string

// The refusals.
const (
	RefusedDisabled Refusal = "the item is disabled"
	RefusedRunning  Refusal = "the item is still marked as running"
	RefusedFailover Refusal = "another host is running the item after a crash"
	RefusedStale    Refusal = "the item has been begun by another host since"
	RefusedPast     Refusal = "the instant has been begun already"
)

// Begin writes the running marks, records and the host's list of runs for the
// items of a fire: in one commit, or several if they do not fit one. What
// cannot begin is taken out and the rest is tried again. Begun is valid when
// the exchange ends without error. After an error the same wish, with the
// same states, may be put again: what had begun nevertheless is found.
func Begin(b Beginning, out *Begun) Move {
	*out = Begun{Refused: make(map[int]Refusal), Runs: b.Runs, RunsVersion: b.RunsVersion}
	b.Items = maps.Clone(b.Items) // brought up to date below
	g := begin{Beginning: b, out: out, trigger: b.ConsumeTrigger}
	for i, state := range b.Items {
		// This very run, begun by a commit whose answer was lost, is found by
		// look.
		unheard := state.Record.Owner == b.Self.ID && state.Record.Open() && state.Record.isOf(b.Fire) && !b.Runs.Items().Contains(i)
		if state.Record.Accepts(b.Fire) != nil && !unheard {
			out.Refused[i] = RefusedPast
			continue
		}
		g.todo = append(g.todo, i)
	}
	slices.Sort(g.todo)
	return g.next()
}

// begin is a Beginning on its way.
type begin struct {
	Beginning
	out     *Begun
	todo    Items // neither begun nor refused, ascending
	trigger bool  // the trigger is to be consumed
}

// next begins as many items as fit one commit.
func (g begin) next() Move {
	if len(g.todo) == 0 && !g.trigger {
		return Move{Name: "begin"}
	}
	l, out := g.Layout, g.out
	var items Items
	body := newCommit(4 * len(g.todo))
	records := make(map[int]Record, len(g.todo))
	room := commitBudget - out.Runs.size()
	for _, i := range g.todo {
		before := len(body.ops)
		record := g.ops(i, &body)
		if room -= size(body.ops[before:]); room < 0 && len(items) > 0 {
			body.cut(before)
			break
		}
		items, records[i] = append(items, i), record
	}
	rest := g.todo[len(items):]

	c := newCommit(len(body.ops) + 5)
	c.add(roleRoot, -1, Check(l.config(), AnyVersion))
	if g.HasGuard {
		c.add(roleShare, -1, Check(l.assignmentOf(g.Self.ID), g.Guard))
	}
	switch {
	case g.trigger && len(rest) == 0:
		c.add(roleTrigger, -1, Delete(l.trigger(g.Self.ID), AnyVersion))
	case g.trigger:
		c.add(roleTrigger, -1, Check(l.trigger(g.Self.ID), AnyVersion))
	}
	c.join(body)
	runs := out.Runs.with(g.Fire, items)
	if len(items) > 0 {
		c.addRuns(l, g.Self.ID, runs, out.RunsVersion)
	}
	return Move{
		Name: "begin", Commit: c.ops,
		Then: func(_ []Node, results []Result) (Move, error) {
			out.Commits++
			if out.Items == nil {
				out.Items = make(map[int]ItemState, len(items))
			}
			for k, r := range results {
				switch i := c.items[k]; {
				case c.ops[k].Kind != OpSet:
				case c.roles[k] == roleRecord:
					out.Items[i] = g.Items[i].begun(records[i], r.Version, r.Zxid)
				case c.roles[k] == roleRuns:
					out.Runs, out.RunsVersion = runs, r.Version
				}
			}
			if len(rest) == 0 {
				return Done()
			}
			g.todo = rest
			return g.next(), nil
		},
		Else: func(e *OpError) (Move, error) {
			out.Commits++
			switch c.roles[e.Index] {
			case roleRoot:
				return Move{}, ErrRemoved
			case roleShare:
				return g.stale()
			case roleTrigger:
				g.trigger = false
				if out.Items == nil {
					out.TriggerGone = true
					return Done()
				}
				return g.next(), nil
			}
			return g.look(items), nil
		},
		Unknown: func() (Move, error) { return g.look(items), nil },
	}
}

// ops adds what begins one item, and returns the record that it writes.
func (g begin) ops(i int, c *commit) Record {
	l, state := g.Layout, g.Items[i]
	record := state.Record.begin(g.Self.ID, g.Fire, g.Now.UnixMilli())
	version := state.RecordVersion
	if version < 0 {
		c.add(roleRecord, i, Create(l.record(i), nil))
		version = 0
	}
	c.add(roleRecord, i, Set(l.record(i), record.data(), version))
	c.add(roleItem, i, Absent(l.itemDisabled(i)))
	if g.Config.Failover || state.Record.Open() && state.Record.Owner != g.Self.ID {
		// One that was taken over runs on when failover is switched off.
		c.add(roleItem, i, Absent(l.itemFailover(i)))
	}
	if g.Config.MonitorExecution {
		c.add(roleItem, i, g.runningMark(i))
	}
	if state.Misfire {
		c.add(roleItem, i, Delete(l.itemMisfire(i), AnyVersion))
	}
	return record
}

// runningMark is ephemeral without failover, persistent with it, as
// ElasticJob has it since 3.0.2.
func (b Beginning) runningMark(item int) Op {
	if b.Config.Failover {
		return Create(b.Layout.itemRunning(item), []byte(b.Self.ID))
	}
	return CreateEphemeral(b.Layout.itemRunning(item), []byte(b.Self.ID))
}

// begun is the state after a begin.
func (s ItemState) begun(r Record, version int32, zxid int64) ItemState {
	s.Record, s.RecordVersion, s.RecordZxid, s.Misfire = r, version, zxid, false
	return s
}

// stale ends a begin for a share that is not what it was.
func (g begin) stale() (Move, error) {
	g.out.Stale = true
	if g.out.Items != nil {
		for _, i := range g.todo {
			g.out.Refused[i] = RefusedStale
		}
	}
	return Done()
}

// look finds out why items could not begin, all of them in one read, or
// whether they have begun though the answer was lost.
func (g begin) look(items Items) Move {
	l, out, self := g.Layout, g.out, g.Self.ID
	items = slices.Clone(items)
	const each = 6
	read := make([]Query, 0, 1+each*len(items))
	read = append(read, Data(l.runsOf(self)))
	for _, i := range items {
		read = append(read, Data(l.record(i)), Data(l.item(i)), Data(l.itemDisabled(i)), Data(l.itemFailover(i)), Data(l.itemRunning(i)), Data(l.itemMisfire(i)))
	}
	return Move{Name: "begin", Read: read, Then: func(n []Node, _ []Result) (Move, error) {
		actual, orphans := ownRuns(n[0], out.Runs, out.RunsVersion)
		asked := len(items)
		for _, i := range orphans {
			if !items.Contains(i) && g.todo.Contains(i) {
				items = append(items, i)
			}
		}
		if len(items) > asked { // begun by a later commit of an earlier attempt
			slices.Sort(items)
			return g.look(items), nil
		}
		handBacks := orphans
		done := make(map[int]bool)
		for k, i := range items {
			record, node, disabled, failover, running, misfire := n[1+each*k], n[2+each*k], n[3+each*k], n[4+each*k], n[5+each*k], n[6+each*k]
			state := g.Items[i]
			r := parseRecord(record.Data)
			done[i] = true
			switch {
			case orphans.Contains(i) && r.Owner == self && r.Open() && actual.fireOf(i).same(g.Fire):
				if out.Items == nil {
					out.Items = make(map[int]ItemState)
				}
				out.Items[i] = state.begun(r, record.Version, record.Mzxid)
				handBacks = slices.DeleteFunc(slices.Clone(handBacks), func(o int) bool { return o == i })
			case !node.Exists, record.Exists && record.Version != state.RecordVersion, !record.Exists && state.RecordVersion >= 0:
				out.Refused[i], out.Stale = RefusedStale, true
			case disabled.Exists:
				out.Refused[i] = RefusedDisabled
			case failover.Exists && (g.Config.Failover || r.Open() && r.Owner != self):
				out.Refused[i] = RefusedFailover
			case running.Exists && g.Config.MonitorExecution:
				out.Refused[i] = RefusedRunning
			default:
				state.Misfire = misfire.Exists
				g.Items[i] = state
				done[i] = false
			}
		}
		g.todo = slices.DeleteFunc(slices.Clone(g.todo), func(i int) bool { return done[i] })
		out.Runs, out.RunsVersion = actual, versionOf(n[0])
		if g.trigger && out.Items != nil && len(g.todo) == 0 {
			// It may have been consumed with what was begun after all.
			g.trigger = false
			return g.consume(handBacks), nil
		}
		return g.handBack(handBacks), nil
	}}
}

// consume deletes the trigger, if it is still there, and goes on.
func (g begin) consume(orphans Items) Move {
	next := func() (Move, error) { return g.handBack(orphans), nil }
	return Move{Name: "begin", Commit: []Op{Delete(g.Layout.trigger(g.Self.ID), AnyVersion)},
		Then: func([]Node, []Result) (Move, error) { return next() },
		Else: func(*OpError) (Move, error) { return next() }}
}

// handBack hands items back that nobody runs, and goes on.
func (g begin) handBack(orphans Items) Move {
	if len(orphans) == 0 {
		return g.next()
	}
	return handBack(g.Layout, g.Self.ID, g.out.Runs, g.out.RunsVersion, orphans, func(runs Runs, version int32) (Move, error) {
		g.out.Runs, g.out.RunsVersion = runs, version
		return g.next(), nil
	})
}

// noVersion is the version of a node that does not exist.
const noVersion int32 = -1

func versionOf(n Node) int32 {
	if !n.Exists {
		return noVersion
	}
	return n.Version
}

// ownRuns compares the host's own list of runs with what it knew of it.
// orphans are items that were begun by a commit whose answer was lost: they
// are in the list, and nobody runs them.
func ownRuns(n Node, known Runs, version int32) (actual Runs, orphans Items) {
	if versionOf(n) == version {
		return known, nil
	}
	actual, err := parseRuns(n.Data)
	if err != nil || !n.Exists {
		return known, nil // spoilt by a hand: the next write mends it
	}
	have := known.Items()
	for _, i := range actual.Items() {
		if !have.Contains(i) {
			orphans = append(orphans, i)
		}
	}
	return actual, orphans
}

// OutcomeCancelled is the outcome of a run that was handed back before
// anything of it ran: its instant is due again.
const OutcomeCancelled = "CANCELLED"

// handBack undoes begins of this host of which nothing ran.
func handBack(l Layout, self string, runs Runs, version int32, items Items, then func(Runs, int32) (Move, error)) Move {
	const each = 4
	var read []Query
	for _, i := range items {
		read = append(read, Data(l.record(i)), Data(l.itemRunning(i)), Data(l.itemFailover(i)), Data(l.itemFailovering(i)))
	}
	return Move{Name: "hand back", Read: read, Then: func(n []Node, _ []Result) (Move, error) {
		c := commit{}
		var part Items
		for k, i := range items {
			record := n[each*k]
			item := commit{}
			if r := parseRecord(record.Data); r.Owner == self && r.Open() {
				item.add(roleRecord, i, Set(record.Path, r.handedBack(runs.fireOf(i)).data(), record.Version))
			}
			for _, mark := range n[each*k+1 : each*k+each] {
				if mark.Exists && string(mark.Data) == self {
					item.add(roleItem, i, Delete(mark.Path, AnyVersion))
				}
			}
			if size(c.ops)+size(item.ops) > commitBudget && len(part) > 0 {
				break
			}
			c.join(item)
			part = append(part, i)
		}
		left := runs.without(part)
		c.addRuns(l, self, left, version)
		return Move{Commit: c.ops,
			Then: func(_ []Node, results []Result) (Move, error) {
				version := results[len(results)-1].Version
				if rest := items[len(part):]; len(rest) > 0 {
					return handBack(l, self, left, version, rest, then), nil
				}
				return then(left, version)
			},
			Else: func(e *OpError) (Move, error) {
				if c.roles[e.Index] == roleRuns {
					return Move{}, fmt.Errorf("this host's own list of runs was changed by somebody else: %w", e)
				}
				return handBack(l, self, runs, version, items, then), nil
			},
			Unknown: func() (Move, error) {
				return Move{Read: []Query{Data(l.runsOf(self))}, Then: func(n []Node, _ []Result) (Move, error) {
					switch {
					case versionOf(n[0]) == version: // it did not take effect
						return handBack(l, self, runs, version, items, then), nil
					case len(part) < len(items):
						return handBack(l, self, left, n[0].Version, items[len(part):], then), nil
					}
					return then(left, n[0].Version)
				}}, nil
			},
		}, nil
	}}
}

// role says what an op of a commit is for, so that a conflict can be
// understood.
type role uint8

const (
	roleRoot role = iota + 1
	roleShare
	roleTrigger
	roleRecord
	roleItem // a mark of the item
	roleRuns
	roleOffset
	roleWake
	roleAsk
)

// commit is a list of ops with the item and role of each.
type commit struct {
	ops   []Op
	items []int
	roles []role
}

func (c *commit) add(r role, item int, op Op) {
	c.ops = append(c.ops, op)
	c.items = append(c.items, item)
	c.roles = append(c.roles, r)
}

// newCommit has room for about n ops.
func newCommit(n int) commit {
	n = min(n, 8192)
	return commit{make([]Op, 0, n), make([]int, 0, n), make([]role, 0, n)}
}

// cut drops all ops from the n-th on.
func (c *commit) cut(n int) {
	c.ops, c.items, c.roles = c.ops[:n], c.items[:n], c.roles[:n]
}

func (c *commit) join(o commit) {
	c.ops = append(c.ops, o.ops...)
	c.items = append(c.items, o.items...)
	c.roles = append(c.roles, o.roles...)
}

// addRuns writes the host's list of runs.
func (c *commit) addRuns(l Layout, self string, runs Runs, version int32) {
	if version == noVersion { // taken away by a hand
		c.add(roleRuns, -1, Create(l.runsOf(self), nil))
		version = 0
	}
	c.add(roleRuns, -1, Set(l.runsOf(self), runs.data(), version))
}

// Ended is one run that ended.
type Ended struct {
	State   ItemState
	Outcome string
	// Offset is to become durable with the completion, if HasOffset.
	Offset    []byte
	HasOffset bool
	// Failover is true if the run was taken over from a host that died.
	Failover bool
	// HandBack undoes a begin of which nothing ran: the instant stays due.
	HandBack *Record
}

// Completing is a host's wish to complete items.
type Completing struct {
	Layout      Layout
	Self        JobInstance
	Config      JobConfiguration
	Items       map[int]Ended
	Runs        Runs
	RunsVersion int32
	// Wake, if not nil, tells the other hosts to look again: an item that
	// waited for this run can begin. Set it to the newest view when an item
	// is not the host's own.
	Wake *View
	// AskForSharding also sets the flag: an item that stayed only because it
	// ran can move now.
	AskForSharding bool
	Now            time.Time
}

// Completed is what became of a Completing.
type Completed struct {
	// Items took effect, with their new states. Lost are no longer this
	// host's: their completion and offset did not take effect.
	Items       map[int]ItemState
	Lost        Items
	Runs        Runs
	RunsVersion int32
	Commits     int
}

// Complete writes the ends of runs: in one commit, or several if they do not
// fit one. After an error the same wish may be put again: what had taken
// effect nevertheless is found.
func Complete(c Completing, out *Completed) Move {
	*out = Completed{Items: make(map[int]ItemState), Runs: c.Runs, RunsVersion: c.RunsVersion}
	c.Items = maps.Clone(c.Items)
	e := completion{Completing: c, out: out, todo: slices.Sorted(maps.Keys(c.Items)), marks: make(map[int]endMarks), ask: c.AskForSharding}
	if c.Wake != nil {
		e.wake = c.Wake.membersNode
	}
	return e.next()
}

// completion is a Completing on its way.
type completion struct {
	Completing
	out   *Completed
	todo  Items
	marks map[int]endMarks // of items that were looked at
	wake  Node             // the members node, to be set as it is
	ask   bool
}

// endMarks are the marks that go with an item's completion.
type endMarks struct{ running, failover, failovering bool }

// ops adds what completes one item, and returns the record that it writes.
func (c completion) ops(i int, b *commit) Record {
	l, e := c.Layout, c.Items[i]
	record := e.State.Record.end(e.Outcome, c.Now.UnixMilli())
	if e.HandBack != nil {
		record = *e.HandBack
	}
	marks, looked := c.marks[i]
	if !looked {
		marks = endMarks{running: c.Config.MonitorExecution, failover: e.Failover, failovering: e.Failover}
	}
	b.add(roleRecord, i, Set(l.record(i), record.data(), e.State.RecordVersion))
	if marks.running {
		b.add(roleItem, i, Delete(l.itemRunning(i), AnyVersion))
	}
	if marks.failover {
		b.add(roleItem, i, Delete(l.itemFailover(i), AnyVersion))
	}
	if marks.failovering {
		b.add(roleItem, i, Delete(l.itemFailovering(i), AnyVersion))
	}
	switch {
	case !e.HasOffset:
	case e.State.HasOffset:
		b.add(roleOffset, i, Set(l.offset(i), e.Offset, e.State.OffsetVersion))
	default:
		b.add(roleOffset, i, Create(l.offset(i), e.Offset))
	}
	return record
}

// next completes as many items as fit one commit.
func (c completion) next() Move {
	l, out := c.Layout, c.out
	b := newCommit(2*len(c.todo) + 3)
	var items Items
	records := make(map[int]Record, len(c.todo))
	room := commitBudget - out.Runs.size()
	for _, i := range c.todo {
		before := len(b.ops)
		record := c.ops(i, &b)
		if room -= size(b.ops[before:]); room < 0 && len(items) > 0 {
			b.cut(before)
			break
		}
		items, records[i] = append(items, i), record
	}
	rest := c.todo[len(items):]
	drop := slices.Sorted(slices.Values(slices.Concat(items, out.Lost)))
	runs := out.Runs.without(drop)
	if len(items) > 0 || out.RunsVersion != noVersion {
		b.addRuns(l, c.Self.ID, runs, out.RunsVersion)
	}
	if len(rest) == 0 {
		if c.wake.Exists {
			b.add(roleWake, -1, Set(l.members(), c.wake.Data, c.wake.Version))
		}
		if c.ask {
			b.add(roleAsk, -1, Create(l.necessary(), nil))
		}
	}
	if len(b.ops) == 0 {
		return Move{Name: "complete"} // all is lost, even the list
	}
	return Move{
		Name: "complete", Commit: b.ops,
		Then: func(_ []Node, results []Result) (Move, error) {
			out.Commits++
			for k, r := range results {
				switch i := b.items[k]; {
				case b.roles[k] == roleRecord:
					e := c.Items[i]
					state := e.State
					state.Record, state.RecordVersion, state.RecordZxid = records[i], r.Version, r.Zxid
					if e.HasOffset {
						state = state.saved(e.Offset)
					}
					out.Items[i] = state
				case b.roles[k] == roleRuns && b.ops[k].Kind == OpSet:
					out.Runs, out.RunsVersion = runs, r.Version
				}
			}
			if len(rest) == 0 {
				return Done()
			}
			c.todo = rest
			return c.next(), nil
		},
		Else: func(e *OpError) (Move, error) {
			out.Commits++
			if b.roles[e.Index] == roleAsk {
				c.ask = false // the flag stands already
				return c.next(), nil
			}
			return c.look(items), nil
		},
		Unknown: func() (Move, error) { return c.look(items), nil },
	}
}

// saved is the state after the offset was written.
func (s ItemState) saved(offset []byte) ItemState {
	if s.HasOffset {
		s.OffsetVersion++
	} else {
		s.OffsetVersion = 0
	}
	s.Offset, s.HasOffset = offset, true
	return s
}

// look finds out why items could not be completed, or whether they have been
// though the answer was lost.
func (c completion) look(items Items) Move {
	l, out, self := c.Layout, c.out, c.Self.ID
	const each = 5
	read := make([]Query, 0, 2+each*len(items))
	read = append(read, Data(l.runsOf(self)), Data(l.members()))
	for _, i := range items {
		read = append(read, Data(l.record(i)), Data(l.offset(i)), Data(l.itemRunning(i)), Data(l.itemFailover(i)), Data(l.itemFailovering(i)))
	}
	return Move{Name: "complete", Read: read, Then: func(n []Node, _ []Result) (Move, error) {
		actual, orphans := ownRuns(n[0], out.Runs, out.RunsVersion)
		done := make(map[int]bool)
		for k, i := range items {
			record, offset, running, failover, failovering := n[2+each*k], n[3+each*k], n[4+each*k], n[5+each*k], n[6+each*k]
			e := c.Items[i]
			r := parseRecord(record.Data)
			// The version alone proves that the run is still this host's: an
			// offset of another version is one that was saved unheard.
			state := e.State
			state.Offset, state.OffsetVersion, state.HasOffset = offset.Data, offset.Version, offset.Exists
			switch {
			case record.Exists && record.Version == e.State.RecordVersion && r.Owner == self:
				// The owner is looked at for a job that was removed and made
				// anew: versions begin at 0 again.
				e.State = state
				c.Items[i] = e
				mine := func(m Node) bool { return m.Exists && (len(m.Data) == 0 || string(m.Data) == self) }
				c.marks[i] = endMarks{running: mine(running), failover: mine(failover), failovering: mine(failovering)}
			case r.Owner == self && r.Begun == e.State.Record.Begun && !r.Open():
				state.Record, state.RecordVersion, state.RecordZxid = r, record.Version, record.Mzxid
				out.Items[i] = state
				done[i] = true
			default:
				out.Lost = append(out.Lost, i)
				done[i] = true
			}
		}
		slices.Sort(out.Lost)
		c.todo = slices.DeleteFunc(slices.Clone(c.todo), func(i int) bool { return done[i] })
		out.Runs, out.RunsVersion = actual, versionOf(n[0])
		if c.wake.Exists {
			c.wake = n[1] // somebody woke the others before this was written: once more
		}
		if len(orphans) == 0 {
			return c.next(), nil
		}
		return handBack(l, self, actual, out.RunsVersion, orphans, func(runs Runs, version int32) (Move, error) {
			out.Runs, out.RunsVersion = runs, version
			return c.next(), nil
		}), nil
	}}
}

// SaveOffsets makes offsets of running items durable. The record's version
// proves that the item is still the host's own.
type SaveOffsets struct {
	Layout Layout
	Items  map[int]Ended // Offset and State are used
}

// Saved is what became of SaveOffsets.
type Saved struct {
	Items map[int]ItemState
	Lost  Items
}

// Move writes all offsets: in one commit, or several if they do not fit one.
func (s SaveOffsets) Move(out *Saved) Move {
	*out = Saved{Items: make(map[int]ItemState)}
	s.Items = maps.Clone(s.Items)
	return s.next(slices.Sorted(maps.Keys(s.Items)), out)
}

func (s SaveOffsets) next(todo Items, out *Saved) Move {
	l := s.Layout
	b := commit{}
	var items Items
	for _, i := range todo {
		e := s.Items[i]
		item := commit{}
		item.add(roleRecord, i, Check(l.record(i), e.State.RecordVersion))
		if e.State.HasOffset {
			item.add(roleOffset, i, Set(l.offset(i), e.Offset, e.State.OffsetVersion))
		} else {
			item.add(roleOffset, i, Create(l.offset(i), e.Offset))
		}
		if size(b.ops)+size(item.ops) > commitBudget && len(items) > 0 {
			break
		}
		b.join(item)
		items = append(items, i)
	}
	rest := todo[len(items):]
	if len(items) == 0 {
		return Move{Name: "save offsets"}
	}
	// look finds items that were lost, and offsets that were saved though the
	// answer was not heard: writing the same bytes again does no harm.
	look := func() (Move, error) {
		var read []Query
		for _, i := range items {
			read = append(read, Data(l.record(i)), Data(l.offset(i)))
		}
		return Move{Read: read, Then: func(n []Node, _ []Result) (Move, error) {
			var again Items
			for k, i := range items {
				record, offset, e := n[2*k], n[2*k+1], s.Items[i]
				if versionOf(record) != e.State.RecordVersion {
					out.Lost = append(out.Lost, i)
					continue
				}
				e.State.Offset, e.State.OffsetVersion, e.State.HasOffset = offset.Data, offset.Version, offset.Exists
				s.Items[i] = e
				again = append(again, i)
			}
			return s.next(slices.Concat(again, rest), out), nil
		}}, nil
	}
	return Move{
		Name: "save offsets", Commit: b.ops,
		Then: func([]Node, []Result) (Move, error) {
			for _, i := range items {
				e := s.Items[i]
				out.Items[i] = e.State.saved(e.Offset)
			}
			return s.next(rest, out), nil
		},
		Else:    func(*OpError) (Move, error) { return look() },
		Unknown: look,
	}
}

// MarkMisfire makes ElasticJob's misfire marks, for consoles and for the owner
// after a resharding. The host itself remembers what it missed.
func MarkMisfire(l Layout, items Items) Move {
	return changeMisfire(l, items, "mark misfire", true)
}

// ClearMisfire removes marks for which no catch-up will run.
func ClearMisfire(l Layout, items Items) Move {
	return changeMisfire(l, items, "clear misfire", false)
}

// changeMisfire makes or removes the marks of those items that exist.
func changeMisfire(l Layout, items Items, name string, marked bool) Move {
	var ops []Op
	for _, i := range items {
		if marked {
			ops = append(ops, Create(l.itemMisfire(i), nil))
		} else {
			ops = append(ops, Delete(l.itemMisfire(i), AnyVersion))
		}
	}
	for part := range parts(ops, commitBudget) {
		rest := items[len(part):]
		return Move{Name: name, Commit: part,
			Then: func([]Node, []Result) (Move, error) { return changeMisfire(l, rest, name, marked), nil },
			Else: func(*OpError) (Move, error) {
				var read []Query
				for _, i := range items {
					read = append(read, Data(l.item(i)), Data(l.itemMisfire(i)))
				}
				return Move{Read: read, Then: func(n []Node, _ []Result) (Move, error) {
					var left Items
					for k, i := range items {
						if n[2*k].Exists && n[2*k+1].Exists != marked {
							left = append(left, i)
						}
					}
					return changeMisfire(l, left, name, marked), nil
				}}, nil
			}}
	}
	return Move{Name: name}
}

// RegistryTime asks for the registry's clock.
func RegistryTime(l Layout, out *time.Time) Move {
	return Move{
		Name: "read registry time",
		// The check keeps a job that was removed from coming back by this.
		Commit: []Op{Check(l.config(), AnyVersion), Ensure(l.systemTime()), Set(l.systemTime(), nil, AnyVersion)},
		Then: func([]Node, []Result) (Move, error) {
			return Move{Read: []Query{Data(l.systemTime())}, Then: func(n []Node, _ []Result) (Move, error) {
				*out = n[0].Mtime
				return Done()
			}}, nil
		},
		Else: func(e *OpError) (Move, error) {
			if e.Index == 0 {
				return Move{}, ErrRemoved
			}
			return Move{}, e
		},
	}
}
