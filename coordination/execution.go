package coordination

import (
	"slices"
	"time"
)

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
	// RecordZxid is the fence token.
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
// items of a fire, all in one commit. What cannot begin is taken out and the
// rest is tried again. Begun is valid when the exchange ends without error.
func Begin(b Beginning, out *Begun) Move {
	if out.Refused == nil {
		*out = Begun{Refused: make(map[int]Refusal), Runs: b.Runs, RunsVersion: b.RunsVersion}
		for i, state := range b.Items {
			if state.Record.Accepts(b.Fire) != nil {
				out.Refused[i] = RefusedPast
			}
		}
	}
	l := b.Layout
	c := commit{}
	items := b.remaining(out)
	if b.ConsumeTrigger {
		c.add(roleTrigger, -1, Delete(l.trigger(b.Self.ID), AnyVersion))
	}
	if len(items) == 0 && len(c.ops) == 0 {
		return Move{Name: "begin"}
	}
	c.add(roleRoot, -1, Check(l.config(), AnyVersion))
	if b.HasGuard {
		c.add(roleShare, -1, Check(l.assignmentOf(b.Self.ID), b.Guard))
	}
	now := b.Now.UnixMilli()
	records := make(map[int]Record, len(items))
	for _, i := range items {
		state := b.Items[i]
		record := state.Record.begin(b.Self.ID, b.Fire, now)
		records[i] = record
		version := state.RecordVersion
		if version < 0 {
			c.add(roleRecord, i, Create(l.record(i), nil))
			version = 0
		}
		c.add(roleRecord, i, Set(l.record(i), record.data(), version))
		c.add(roleDisabled, i, Absent(l.itemDisabled(i)))
		if b.Config.Failover {
			c.add(roleFailover, i, Absent(l.itemFailover(i)))
		}
		if b.Config.MonitorExecution {
			c.add(roleRunning, i, b.runningMark(i))
		}
		if state.Misfire {
			c.add(roleMisfire, i, Delete(l.itemMisfire(i), AnyVersion))
		}
	}
	runs := b.Runs.with(b.Fire, items)
	if len(items) > 0 {
		c.add(roleRuns, -1, Set(l.runsOf(b.Self.ID), runs.data(), b.RunsVersion))
	}
	return Move{
		Name: "begin", Commit: c.ops,
		Then: func(_ []Node, results []Result) (Move, error) {
			out.Commits++
			out.Items = make(map[int]ItemState, len(items))
			for k, r := range results {
				switch i := c.items[k]; {
				case c.ops[k].Kind != OpSet:
				case c.roles[k] == roleRecord:
					state := b.Items[i]
					state.Record, state.RecordVersion, state.RecordZxid, state.Misfire = records[i], r.Version, r.Zxid, false
					out.Items[i] = state
				case c.roles[k] == roleRuns:
					out.Runs, out.RunsVersion = runs, r.Version
				}
			}
			return Done()
		},
		Else: func(e *OpError) (Move, error) {
			out.Commits++
			item := c.items[e.Index]
			switch c.roles[e.Index] {
			case roleShare:
				out.Stale = true
				return Done()
			case roleTrigger:
				out.TriggerGone = true
				return Done()
			case roleRoot:
				return Move{}, ErrRemoved
			case roleRuns:
				return Move{}, e
			case roleRecord:
				out.Refused[item], out.Stale = RefusedStale, true
			case roleRunning:
				if e.Reason == ReasonParent { // the item's node went: the share is old
					out.Refused[item], out.Stale = RefusedStale, true
				} else {
					out.Refused[item] = RefusedRunning
				}
			case roleFailover:
				out.Refused[item] = RefusedFailover
			case roleMisfire:
				state := b.Items[item]
				state.Misfire = false
				b.Items[item] = state
			case roleDisabled:
				if e.Reason == ReasonParent {
					out.Refused[item], out.Stale = RefusedStale, true
					break
				}
				return b.findRefusals(items, out), nil
			}
			return Begin(b, out), nil
		},
		Unknown: func() (Move, error) { return b.resolve(records, runs, out), nil },
	}
}

// remaining are the items not refused yet, ascending.
func (b Beginning) remaining(out *Begun) Items {
	items := make(Items, 0, len(b.Items))
	for i := range b.Items {
		if _, refused := out.Refused[i]; !refused {
			items = append(items, i)
		}
	}
	slices.Sort(items)
	return items
}

// runningMark is ephemeral without failover, persistent with it, as
// ElasticJob has it since 3.0.2.
func (b Beginning) runningMark(item int) Op {
	if b.Config.Failover {
		return Create(b.Layout.itemRunning(item), []byte(b.Self.ID))
	}
	return CreateEphemeral(b.Layout.itemRunning(item), []byte(b.Self.ID))
}

// findRefusals reads the marks of all items once, so that many disabled items
// do not cost a commit each.
func (b Beginning) findRefusals(items Items, out *Begun) Move {
	read := make([]Query, 0, 2*len(items))
	for _, i := range items {
		read = append(read, Data(b.Layout.itemDisabled(i)), Data(b.Layout.itemRunning(i)))
	}
	return Move{Name: "begin", Read: read, Then: func(n []Node, _ []Result) (Move, error) {
		for k, i := range items {
			switch {
			case n[2*k].Exists:
				out.Refused[i] = RefusedDisabled
			case n[2*k+1].Exists && b.Config.MonitorExecution:
				out.Refused[i] = RefusedRunning
			}
		}
		return Begin(b, out), nil
	}}
}

// resolve finds out whether a begin whose answer was lost took effect: the
// host's list of runs, which nobody else writes while it lives, tells.
func (b Beginning) resolve(records map[int]Record, runs Runs, out *Begun) Move {
	l := b.Layout
	items := b.remaining(out)
	read := []Query{Data(l.runsOf(b.Self.ID))}
	for _, i := range items {
		read = append(read, Data(l.record(i)))
	}
	return Move{Name: "begin", Read: read, Then: func(n []Node, _ []Result) (Move, error) {
		if n[0].Version == b.RunsVersion {
			return Begin(b, out), nil // it did not
		}
		out.Runs, out.RunsVersion = runs, n[0].Version
		out.Items = make(map[int]ItemState, len(items))
		for k, i := range items {
			node := n[1+k]
			if string(node.Data) != string(records[i].data()) {
				out.Refused[i], out.Stale = RefusedStale, true
				continue
			}
			state := b.Items[i]
			state.Record, state.RecordVersion, state.RecordZxid, state.Misfire = records[i], node.Version, node.Mzxid, false
			out.Items[i] = state
		}
		return Done()
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
	roleRunning
	roleDisabled
	roleFailover
	roleMisfire
	roleRuns
	roleOffset
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

// Complete writes the ends of runs in one commit.
func Complete(c Completing, out *Completed) Move {
	if out.Items == nil {
		*out = Completed{Items: make(map[int]ItemState), Runs: c.Runs, RunsVersion: c.RunsVersion}
	}
	return c.next(out, completing{monitor: make(map[int]bool), failover: make(map[int]bool)})
}

// completing are marks that turned out not to be there.
type completing struct {
	monitor, failover    map[int]bool // items whose marks are gone already
	wakeOff, shardingOff bool
}

func (c Completing) next(out *Completed, gone completing) Move {
	l := c.Layout
	b := commit{}
	var items Items
	for i := range c.Items {
		if !slices.Contains(out.Lost, i) {
			items = append(items, i)
		}
	}
	slices.Sort(items)
	now := c.Now.UnixMilli()
	records := make(map[int]Record, len(items))
	for _, i := range items {
		e := c.Items[i]
		records[i] = e.State.Record.end(e.Outcome, now)
		if e.HandBack != nil {
			records[i] = *e.HandBack
		}
		b.add(roleRecord, i, Set(l.record(i), records[i].data(), e.State.RecordVersion))
		if c.Config.MonitorExecution && !gone.monitor[i] {
			b.add(roleRunning, i, Delete(l.itemRunning(i), AnyVersion))
		}
		if e.Failover && !gone.failover[i] {
			b.add(roleFailover, i, Delete(l.itemFailover(i), AnyVersion))
			b.add(roleFailover, i, Delete(l.itemFailovering(i), AnyVersion))
		}
		if e.HasOffset {
			if e.State.HasOffset {
				b.add(roleOffset, i, Set(l.offset(i), e.Offset, e.State.OffsetVersion))
			} else {
				b.add(roleOffset, i, Create(l.offset(i), e.Offset))
			}
		}
	}
	all := make(Items, 0, len(c.Items))
	for i := range c.Items {
		all = append(all, i)
	}
	runs := c.Runs.without(all)
	b.add(roleRuns, -1, Set(l.runsOf(c.Self.ID), runs.data(), c.RunsVersion))
	if c.Wake != nil && !gone.wakeOff {
		b.add(roleShare, -1, Set(l.members(), c.Wake.Members.data(), c.Wake.membersNode.Version))
	}
	if c.AskForSharding && !gone.shardingOff {
		b.add(roleTrigger, -1, Create(l.necessary(), nil))
	}
	return Move{
		Name: "complete", Commit: b.ops,
		Then: func(_ []Node, results []Result) (Move, error) {
			out.Commits++
			for k, r := range results {
				switch i := b.items[k]; {
				case b.roles[k] == roleRecord:
					state := c.Items[i].State
					state.Record, state.RecordVersion, state.RecordZxid = records[i], r.Version, r.Zxid
					if e := c.Items[i]; e.HasOffset {
						state.OffsetVersion++
						if !state.HasOffset {
							state.OffsetVersion = 0
						}
						state.Offset, state.HasOffset = e.Offset, true
					}
					out.Items[i] = state
				case b.roles[k] == roleRuns:
					out.Runs, out.RunsVersion = runs, r.Version
				}
			}
			return Done()
		},
		Else: func(e *OpError) (Move, error) {
			out.Commits++
			item := b.items[e.Index]
			switch b.roles[e.Index] {
			case roleRecord, roleOffset:
				out.Lost = append(out.Lost, item)
			case roleRunning:
				gone.monitor[item] = true // somebody cleared the mark already
			case roleFailover:
				return c.findFailover(items, out, gone), nil
			case roleShare:
				gone.wakeOff = true // somebody else has just woken them
			case roleTrigger:
				gone.shardingOff = true // the flag stands already
			default:
				return Move{}, e
			}
			return c.next(out, gone), nil
		},
		Unknown: func() (Move, error) { return c.resolve(records, runs, out, gone), nil },
	}
}

// findFailover sees which of the failover marks are still there. One may be
// gone: the session that made it has ended, or a console took it away.
func (c Completing) findFailover(items Items, out *Completed, gone completing) Move {
	var read []Query
	for _, i := range items {
		read = append(read, Data(c.Layout.itemFailover(i)), Data(c.Layout.itemFailovering(i)))
	}
	return Move{Name: "complete", Read: read, Then: func(n []Node, _ []Result) (Move, error) {
		var sweep []Op
		for k, i := range items {
			if c.Items[i].Failover && n[2*k].Exists != n[2*k+1].Exists {
				gone.failover[i] = true
				for _, mark := range n[2*k : 2*k+2] {
					if mark.Exists {
						sweep = append(sweep, Delete(mark.Path, AnyVersion))
					}
				}
			} else if !n[2*k].Exists {
				gone.failover[i] = true
			}
		}
		if len(sweep) > 0 {
			next := func() (Move, error) { return c.next(out, gone), nil }
			return Move{Name: "complete", Commit: sweep,
				Then: func([]Node, []Result) (Move, error) { return next() },
				Else: func(*OpError) (Move, error) { return next() }}, nil
		}
		return c.next(out, gone), nil
	}}
}

// resolve finds out whether a completion whose answer was lost took effect.
func (c Completing) resolve(records map[int]Record, runs Runs, out *Completed, gone completing) Move {
	l := c.Layout
	read := []Query{Data(l.runsOf(c.Self.ID))}
	var items Items
	for i := range records {
		items = append(items, i)
	}
	slices.Sort(items)
	for _, i := range items {
		read = append(read, Data(l.record(i)), Data(l.offset(i)))
	}
	return Move{Name: "complete", Read: read, Then: func(n []Node, _ []Result) (Move, error) {
		if n[0].Version == c.RunsVersion {
			return c.next(out, gone), nil
		}
		out.Runs, out.RunsVersion = runs, n[0].Version
		for k, i := range items {
			record, offset := n[1+2*k], n[2+2*k]
			if string(record.Data) != string(records[i].data()) {
				out.Lost = append(out.Lost, i)
				continue
			}
			state := c.Items[i].State
			state.Record, state.RecordVersion, state.RecordZxid = records[i], record.Version, record.Mzxid
			if c.Items[i].HasOffset {
				state.Offset, state.OffsetVersion, state.HasOffset = offset.Data, offset.Version, true
			}
			out.Items[i] = state
		}
		return Done()
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

// Move writes all offsets in one commit.
func (s SaveOffsets) Move(out *Saved) Move {
	if out.Items == nil {
		out.Items = make(map[int]ItemState)
	}
	l := s.Layout
	b := commit{}
	for i, e := range s.Items {
		if slices.Contains(out.Lost, i) {
			continue
		}
		b.add(roleRecord, i, Check(l.record(i), e.State.RecordVersion))
		if e.State.HasOffset {
			b.add(roleOffset, i, Set(l.offset(i), e.Offset, e.State.OffsetVersion))
		} else {
			b.add(roleOffset, i, Create(l.offset(i), e.Offset))
		}
	}
	if len(b.ops) == 0 {
		return Move{Name: "save offsets"}
	}
	return Move{
		Name: "save offsets", Commit: b.ops,
		Then: func(_ []Node, results []Result) (Move, error) {
			for k := range results {
				if b.roles[k] != roleOffset {
					continue
				}
				i := b.items[k]
				state := s.Items[i].State
				if state.HasOffset {
					state.OffsetVersion++
				} else {
					state.OffsetVersion = 0
				}
				state.Offset, state.HasOffset = s.Items[i].Offset, true
				out.Items[i] = state
			}
			return Done()
		},
		Else: func(e *OpError) (Move, error) {
			out.Lost = append(out.Lost, b.items[e.Index])
			return s.Move(out), nil
		},
		Unknown: func() (Move, error) {
			var read []Query
			var items Items
			for i := range s.Items {
				items = append(items, i)
				read = append(read, Data(l.offset(i)), Data(l.record(i)))
			}
			return Move{Name: "save offsets", Read: read, Then: func(n []Node, _ []Result) (Move, error) {
				for k, i := range items {
					offset, record, e := n[2*k], n[2*k+1], s.Items[i]
					switch {
					case record.Version != e.State.RecordVersion:
						out.Lost = append(out.Lost, i)
					case offset.Exists:
						e.State.Offset, e.State.OffsetVersion, e.State.HasOffset = offset.Data, offset.Version, true
						s.Items[i] = e
					}
				}
				return s.Move(out), nil // writing the same bytes again does no harm
			}}, nil
		},
	}
}

// MarkMisfire makes ElasticJob's misfire marks, for consoles and for the owner
// after a resharding. The host itself remembers what it missed.
func MarkMisfire(l Layout, items Items) Move {
	if len(items) == 0 {
		return Move{Name: "mark misfire"}
	}
	var ops []Op
	for _, i := range items {
		ops = append(ops, Create(l.itemMisfire(i), nil))
	}
	return Move{
		Name: "mark misfire", Commit: ops,
		Else: func(e *OpError) (Move, error) {
			return MarkMisfire(l, slices.Delete(slices.Clone(items), e.Index, e.Index+1)), nil
		},
	}
}

// ClearMisfire removes marks for which no catch-up will run.
func ClearMisfire(l Layout, items Items) Move {
	if len(items) == 0 {
		return Move{Name: "clear misfire"}
	}
	var ops []Op
	for _, i := range items {
		ops = append(ops, Delete(l.itemMisfire(i), AnyVersion))
	}
	return Move{
		Name: "clear misfire", Commit: ops,
		Else: func(e *OpError) (Move, error) {
			return ClearMisfire(l, slices.Delete(slices.Clone(items), e.Index, e.Index+1)), nil
		},
	}
}

// RegistryTime asks for the registry's clock.
func RegistryTime(l Layout, out *time.Time) Move {
	return Move{
		Name:   "read registry time",
		Commit: []Op{Ensure(l.systemTime()), Set(l.systemTime(), nil, AnyVersion)},
		Then: func([]Node, []Result) (Move, error) {
			return Move{Read: []Query{Data(l.systemTime())}, Then: func(n []Node, _ []Result) (Move, error) {
				*out = n[0].Mtime
				return Done()
			}}, nil
		},
	}
}
