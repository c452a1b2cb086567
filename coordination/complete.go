package coordination

import (
	"maps"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
)

// Ended is one run that ended.
type Ended struct {
	State   ItemState
	Outcome string
	// Reason is kept with the outcome; see Record.
	Reason string
	// Offset is to become durable with the completion, if HasOffset.
	Offset    []byte
	HasOffset bool
	// Failover is true if the run was taken over from a host that died.
	Failover bool
	// HandBack, if not nil, is written in place of the outcome: the fire stays due.
	HandBack *Record
}

// Completing is a host's wish to complete items.
type Completing struct {
	Layout      Layout
	Self        JobInstance
	Config      jobconfig.Configuration
	Items       map[int]Ended
	Runs        Runs
	RunsVersion int32
	// Wake, if not nil, has the other hosts look again: an item that
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
	Items map[int]ItemState
	Lost  Items
	// Adopted had been begun by a commit whose answer was lost, and cannot be
	// handed back: the host is to run them as failover.
	Adopted     []Claim
	Runs        Runs
	RunsVersion int32
	Commits     int
}

// Complete writes the ends of runs: in one commit, or several if they do not
// fit one. After an error the same wish may be put again: what had taken
// effect nevertheless is found. Without items it only looks for begins whose
// answer was lost, and proves that there are none left.
func Complete(c Completing, out *Completed) Move {
	*out = Completed{Items: make(map[int]ItemState), Runs: c.Runs, RunsVersion: c.RunsVersion}
	c.Items = maps.Clone(c.Items)
	e := completion{Completing: c, out: out, todo: slices.Sorted(maps.Keys(c.Items)), marks: make(map[int]endMarks), ask: c.AskForSharding}
	if len(c.Items) == 0 {
		e.ask = false // not before something can move
		return e.look(nil)
	}
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
	wake  registry.Node    // the members node, to be set as it is
	stale []registry.Op    // delete marks that name this host on items that are lost
	ask   bool
}

// endMarks are the marks that go with an item's completion.
type endMarks struct{ running, failover, failovering bool }

// ended is the record of an item that is completed.
func (c completion) ended(i int) Record {
	e := c.Items[i]
	if e.HandBack != nil {
		return *e.HandBack
	}
	return e.State.Record.end(e.Outcome, e.Reason, c.Now.UnixMilli())
}

// ops adds what completes one item, and returns the record that it writes.
func (c completion) ops(i int, b *commit) Record {
	l, e := c.Layout, c.Items[i]
	record := c.ended(i).after(e.State.RecordZxid)
	marks, looked := c.marks[i]
	if !looked {
		marks = endMarks{running: c.Config.MonitorExecution, failover: e.Failover, failovering: e.Failover}
	}
	b.add(roleRecord, i, registry.Set(l.record(i), record.data(), e.State.RecordVersion))
	if marks.running {
		b.add(roleItem, i, registry.Delete(l.itemRunning(i), registry.AnyVersion))
	}
	if marks.failover {
		b.add(roleItem, i, registry.Delete(l.itemFailover(i), registry.AnyVersion))
	}
	if marks.failovering {
		b.add(roleItem, i, registry.Delete(l.itemFailovering(i), registry.AnyVersion))
	}
	switch {
	case !e.HasOffset:
	case e.State.HasOffset:
		b.add(roleOffset, i, registry.Set(l.offset(i), e.Offset, e.State.OffsetVersion))
	default:
		b.add(roleOffset, i, registry.Create(l.offset(i), e.Offset))
	}
	return record
}

// next completes as many items as fit one commit.
func (c completion) next() Move {
	l, out := c.Layout, c.out
	b := newCommit(2*len(c.todo) + 3)
	var items Items
	records := make(map[int]Record)
	room, last := out.Runs.room(), -1
	for _, i := range c.todo {
		before := len(b.ops)
		record := c.ops(i, &b)
		room -= size(b.ops[before:]) + listed(i, last)
		if last = i; room < 0 && len(items) > 0 {
			b.cut(before)
			break
		}
		items, records[i] = append(items, i), record
	}
	rest := c.todo[len(items):]
	drop := slices.Sorted(slices.Values(slices.Concat(items, out.Lost)))
	runs := out.Runs.without(drop)
	if len(items) > 0 || (out.RunsVersion != noVersion && runs.ranges().Len() < out.Runs.ranges().Len()) {
		b.addRuns(l, c.Self.ID, runs, out.RunsVersion)
	} else if len(c.Items) == 0 && out.RunsVersion != noVersion {
		// What was read may be old: the write may still be on its way there.
		b.add(roleRuns, -1, registry.Check(l.runsOf(c.Self.ID), out.RunsVersion))
	}
	for _, op := range c.stale {
		b.add(roleStale, -1, op)
	}
	if len(rest) == 0 {
		if c.wake.Exists {
			b.add(roleWake, -1, registry.Set(l.members(), c.wake.Data, c.wake.Version))
		}
		if c.ask {
			b.add(roleAsk, -1, registry.Create(l.necessary(), nil))
		}
	}
	if len(b.ops) == 0 {
		out.Runs = runs
		return Move{Name: "complete"} // all is lost, even the list
	}
	return Move{
		Name: "complete", Commit: b.ops,
		Then: func(_ []registry.Node, results []registry.Result) (Move, error) {
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
				case b.roles[k] == roleRuns && b.ops[k].Kind == registry.OpSet:
					out.Runs, out.RunsVersion = runs, r.Version
				}
			}
			if out.RunsVersion == noVersion {
				out.Runs = runs // the list is gone, and is recreated of these
			}
			if len(rest) == 0 {
				return Done()
			}
			c.todo, c.stale = rest, nil
			return c.next(), nil
		},
		Else: func(e *registry.OpError) (Move, error) {
			out.Commits++
			if b.roles[e.Index] == roleStale {
				c.stale = nil // somebody else does it
				return c.next(), nil
			}
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
	read := make([]registry.Query, 0, 2+each*len(items))
	read = append(read, registry.Data(l.runsOf(self)), registry.Data(l.members()))
	for _, i := range items {
		read = append(read, registry.Data(l.record(i)), registry.Data(l.offset(i)), registry.Data(l.itemRunning(i)), registry.Data(l.itemFailover(i)), registry.Data(l.itemFailovering(i)))
	}
	return Move{Name: "complete", Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		actual, orphans := ownRuns(n[0], out.Runs, out.RunsVersion)
		done := make(map[int]bool)
		for k, i := range items {
			record, offset, running, failover, failovering := n[2+each*k], n[3+each*k], n[4+each*k], n[5+each*k], n[6+each*k]
			e := c.Items[i]
			r := parseRecord(record.Data)
			// The version alone proves that the run is still this host's: an
			// offset of another version is one that was saved without an answer.
			state := e.State
			state.Offset, state.OffsetVersion, state.HasOffset = offset.Data, offset.Version, offset.Exists
			switch {
			case record.Exists && record.Version == e.State.RecordVersion && r.Owner == self:
				// The owner is looked at for a job that was removed and made
				// again: versions begin at 0 again.
				e.State = state
				c.Items[i] = e
				mine := func(m registry.Node) bool { return m.Exists && (len(m.Data) == 0 || string(m.Data) == self) }
				c.marks[i] = endMarks{running: mine(running), failover: mine(failover), failovering: mine(failovering)}
			case r.Owner == self && r.Begun == e.State.Record.Begun && !r.Open():
				state.Record, state.RecordVersion, state.RecordZxid = r, record.Version, record.Mzxid
				out.Items[i] = state
				done[i] = true
			case r.Owner != self && r.Former.Owner == self && r.Former.Begun == e.State.Record.Begun && r.Former.Ended != 0:
				// It was completed, moved to another host, and was begun there.
				if state = e.State; e.HasOffset {
					state = state.saved(e.Offset)
				}
				state.Record, state.RecordVersion, state.RecordZxid = c.ended(i), e.State.RecordVersion+1, 0
				out.Items[i] = state
				done[i] = true
			default:
				out.Lost = append(out.Lost, i)
				done[i] = true
				for _, m := range []registry.Node{running, failover, failovering} {
					if m.Exists && string(m.Data) == self {
						c.stale = append(c.stale, registry.Delete(m.Path, m.Version))
					}
				}
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
		return settleOrphans(l, self, actual, out.RunsVersion, orphans, func(runs Runs, version int32, adopted []Claim) (Move, error) {
			out.Runs, out.RunsVersion = runs, version
			out.Adopted = append(out.Adopted, adopted...)
			if c.Wake != nil && len(c.Items) == 0 {
				c.wake, c.ask = n[1], c.AskForSharding && len(adopted) < len(orphans)
			}
			return c.next(), nil
		}), nil
	}}
}
