package coordination

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/internal/text/reason"
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
	// Fire is the fire of the run. Root is the trigger at the beginning of the chain of jobs, if that is
	// another one. The jobs that come after this one use both.
	Fire tree.Fire
	Root int64
	// Permit is the ticket with which the item runs under a limit; it is deleted with the completion. Empty: none.
	Permit string
	// HandBack, if not nil, is written in place of the outcome: the fire stays due.
	HandBack *tree.Record
}

// Completing is a host's request to complete items.
type Completing struct {
	Items map[int]Ended
	// Marked says that the items have running marks, whatever the configuration says now.
	Marked bool
	// Wake makes the other hosts check again, since an item that waited for this run can begin. Set it when an
	// item is not the host's own.
	Wake bool
	// AskForSharding also raises the flag: an item that stayed only because it ran can move now.
	AskForSharding bool
	Now            time.Time
}

// Completed is the result of a Completing.
type Completed struct {
	// Items are completed, with their new states. Lost are no longer this host's: their completion and offset
	// had no effect.
	Items map[int]ItemState
	Lost  tree.Items
	// Closed are the records of those Lost items that other hosts have closed, because they took this host for
	// dead.
	Closed map[int]tree.Record
	// Adopted items had been begun by a commit whose answer was lost, and cannot be handed back: the host must
	// run them as failover.
	Adopted []Claim
	// Killed are those of Items that were to be handed back but had been killed by an operator: they have ended
	// as their records say.
	Killed tree.Items
	// Denied are neither completed nor lost: the registry does not permit it. Complete them again later.
	Denied Denials
	// Crowded are items that this host completed beside Java hosts and whose running mark was no longer its
	// own, with the mark's owner, empty if the mark was gone. Another host ran the item at the same time.
	Crowded map[int]string
	Commits int
}

// Complete writes the ends of runs: in one commit, or several if they do not fit one. After an error it may be
// called again with the same request: it finds what had taken effect. An item that the registry denies does not
// keep the others from being completed; Denied is valid with an error, too. Without items it only resolves
// begins whose outcome is unknown.
func (m *Member) Complete(ctx context.Context, c Completing) (Completed, error) {
	c.Items = maps.Clone(c.Items)
	e := completion{
		Member:     m,
		Completing: c,
		own:        ownList{m.Runs, m.RunsVersion},
		out:        Completed{Items: make(map[int]ItemState), Closed: make(map[int]tree.Record), Crowded: make(map[int]string)},
		todo:       slices.Sorted(maps.Keys(c.Items)),
		marks:      make(map[int]endMarks),
		ask:        c.AskForSharding && len(c.Items) > 0, // otherwise not before an item can move
		ends:       m.ends,
	}
	if !m.Followed() {
		e.ends = knownEnds{}
	}
	if c.Wake && len(c.Items) > 0 {
		e.wake = m.View.membersNode
	}
	if err := m.perform(ctx, "complete", e.run); err != nil {
		return e.out, err
	}
	m.Runs, m.RunsVersion, m.Unknown, m.ends = e.own.runs, e.own.version, false, e.ends
	return e.out, nil
}

// completion is a Completing on its way.
type completion struct {
	*Member
	Completing
	own   ownList // as of the newest commit or look
	out   Completed
	todo  tree.Items
	marks map[int]endMarks // of items that were looked at
	wake  registry.Node    // the members node, to be set as it is
	ends  knownEnds
	stale []registry.Op // delete marks that name this host on items that are lost
	ask   bool
}

func (c *completion) run(ctx context.Context, x *step.Exchange) error {
	if len(c.Items) == 0 || c.marksCount() { // a Java host overwrites marks; its mark must not be deleted
		if err := c.look(ctx, x, c.todo); err != nil {
			return err
		}
	}
	if err := c.readEnds(ctx, x, false); err != nil {
		return err
	}
	for {
		next := c.next()
		if len(next.ops) == 0 {
			c.own.runs = next.runs
			return nil // all is lost, even the list
		}

		results, err := x.Commit(ctx, next.ops...)
		conflict := step.ConflictOf(err)
		if err == nil || conflict != nil {
			c.out.Commits++
		}
		switch {
		case err == nil:
			c.completed(next, results)
			if len(next.rest) == 0 {
				return nil
			}
			c.todo, c.stale = next.rest, nil
			continue
		case conflict != nil && next.roles[conflict.Index] == roleStale:
			c.stale = nil // another host does it
			continue
		case conflict != nil && next.roles[conflict.Index] == rolePermit: // it is gone
			i := next.items[conflict.Index]
			e := c.Items[i]
			e.Permit = ""
			c.Items[i] = e
			continue
		case conflict != nil && next.roles[conflict.Index] == roleAsk:
			c.ask = false // the flag stands already
			continue
		case conflict != nil && next.roles[conflict.Index] == roleEnds: // another host has noted ends since
			if err := c.readEnds(ctx, x, true); err != nil {
				return err
			}
			continue
		}
		if d := step.DeniedOf(err); d != nil && next.roles[d.Index] == roleEnds {
			c.ends.exists = false // the items end all the same
			continue
		}
		if i, ok := next.denied(err, &c.out.Denied); ok {
			c.todo = without(c.todo, i)
			continue
		}
		if !step.Contested(err) {
			return err
		}
		if err := c.look(ctx, x, next.part); err != nil {
			return err
		}
	}
}

// the items are completed anyway
func (c *completion) marksCount() bool {
	return c.Marked && c.View.Config.MonitorExecution && c.View.Mixed()
}

// wrote reports whether a closed record may have been written by an earlier try of this request whose answer
// was lost. Hosts that take this one for dead write another outcome.
func (c *completion) wrote(i int, r tree.Record) bool {
	e := c.Items[i]
	return r.Outcome == c.ended(i).Outcome && (e.HandBack == nil || e.State.Record.Kill.Asked() ||
		(r.Again == e.HandBack.Again && r.IsHandedBack()))
}

// noteKilled notes that an item, which was to be handed back, ended because it was killed.
func (c *completion) noteKilled(i int, e Ended) {
	if e.HandBack != nil && e.State.Record.Kill.Asked() {
		c.out.Killed = append(c.out.Killed, i)
	}
}

// endMarks are the marks that go with an item's completion.
type endMarks struct{ running, failover, failovering bool }

// ended is the record of an item that is completed.
func (c *completion) ended(i int) tree.Record {
	e := c.Items[i]
	if e.HandBack != nil && e.State.Record.Kill.Asked() {
		return e.State.Record.EndKilled(reason.HandedBack, c.Now.UnixMilli())
	}
	if e.HandBack != nil {
		record := *e.HandBack
		record.Ended = c.Now.UnixMilli() // the item was taken until now: what came meanwhile is answered
		return record
	}
	return e.State.Record.End(e.Outcome, e.Reason, c.Now.UnixMilli())
}

// ops adds what completes one item, and returns the record that it writes.
func (c *completion) ops(i int, b *commit) tree.Record {
	l, e := c.Layout, c.Items[i]
	record := c.ended(i).Follow(e.State.RecordZxid)
	marks, looked := c.marks[i]
	if !looked {
		marks = endMarks{running: c.Marked || c.View.Config.MonitorExecution, failover: e.Failover, failovering: e.Failover}
	}
	b.add(roleRecord, i, registry.Set(l.Record(i), record.Data(), e.State.RecordVersion))
	if marks.running {
		b.add(roleItem, i, registry.Delete(l.ItemRunning(i), registry.AnyVersion))
	}
	if marks.failover {
		b.add(roleItem, i, registry.Delete(l.ItemFailover(i), registry.AnyVersion))
	}
	if marks.failovering {
		b.add(roleItem, i, registry.Delete(l.ItemFailovering(i), registry.AnyVersion))
	}
	if e.Permit != "" {
		b.add(rolePermit, i, registry.Delete(e.Permit, registry.AnyVersion))
	}
	if e.HasOffset {
		b.add(roleOffset, i, e.State.setOffset(l.Offset(i), e.Offset))
	}
	return record
}

// completeCommit completes some of the items that are to be completed.
type completeCommit struct {
	commit
	part, rest tree.Items
	records    map[int]tree.Record // that it writes, of part
	runs       tree.Runs           // that it writes, or that are left
	ends       tree.Ends           // that it writes
}

// next completes as many items as fit one commit.
func (c *completion) next() completeCommit {
	l := c.Layout
	next := completeCommit{commit: newCommit(2*len(c.todo) + 3), records: make(map[int]tree.Record)}
	b := &next.commit
	room, last := max(itemRoom(c.own.runs)-c.ends.size(), leastRoom), -1
	for _, i := range c.todo {
		before := len(b.ops)
		record := c.ops(i, b)
		room -= step.Size(b.ops[before:]) + tree.ListGrowth(i, last)
		if last = i; room < 0 && len(next.part) > 0 {
			b.cut(before)
			break
		}
		next.part, next.records[i] = append(next.part, i), record
	}
	next.rest = c.todo[len(next.part):]

	drop := slices.Sorted(slices.Values(slices.Concat(next.part, c.out.Lost)))
	next.runs = c.own.runs.Without(drop)
	listed := c.own.version != tree.NoVersion
	if len(next.part) > 0 || (listed && next.runs.Ranges().Len() < c.own.runs.Ranges().Len()) {
		b.addRuns(l, c.Self.ID, next.runs, c.own.version)
	} else if len(c.Items) == 0 && listed {
		// What was read may be old: the write may still be on its way there.
		b.add(roleRuns, -1, registry.Check(l.RunsOf(c.Self.ID), c.own.version))
	}
	if ends, changed := c.settle(next.part); changed {
		next.ends = ends
		b.add(roleEnds, -1, registry.Set(l.Ends(), ends.Data(), c.ends.version))
	}
	for _, op := range c.stale {
		b.add(roleStale, -1, op)
	}
	if len(next.rest) == 0 && c.wake.Exists {
		b.add(roleWake, -1, registry.Set(l.Members(), c.wake.Data, c.wake.Version))
	}
	if len(next.rest) == 0 && c.ask {
		b.add(roleAsk, -1, registry.Create(l.Necessary(), nil))
	}
	return next
}

// completed notes what a commit has completed.
func (c *completion) completed(next completeCommit, results []registry.Result) {
	for k, result := range results {
		i := next.items[k]
		switch {
		case next.roles[k] == roleRecord:
			e := c.Items[i]
			state := e.State
			state.Record, state.RecordVersion, state.RecordZxid = next.records[i], result.Version, result.Zxid
			if e.HasOffset {
				state = state.saved(e.Offset)
			}
			c.out.Items[i] = state
			c.noteKilled(i, e)
		case next.roles[k] == roleRuns && next.ops[k].Kind == registry.OpSet:
			c.own = ownList{next.runs, result.Version}
		case next.roles[k] == roleEnds:
			c.ends.ends, c.ends.version = next.ends, result.Version
		}
	}
	if c.own.version == tree.NoVersion {
		c.own.runs = next.runs // the list is gone, and is recreated with these
	}
}

// setOffset makes an item's offset durable.
func (s ItemState) setOffset(path string, offset []byte) registry.Op {
	if s.HasOffset {
		return registry.Set(path, offset, s.OffsetVersion)
	}
	return registry.Create(path, offset)
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

// look finds out why items could not be completed, or whether they are although the commit's outcome was
// unknown.
func (c *completion) look(ctx context.Context, x *step.Exchange, items tree.Items) error {
	l, self := c.Layout, c.Self.ID
	read := newReading(2 + 5*len(items))
	read.add(-1, registry.Data(l.RunsOf(self)), registry.Data(l.Members()))
	for _, i := range items {
		read.add(i, registry.Data(l.Record(i)), registry.Data(l.Offset(i)), registry.Data(l.ItemRunning(i)), registry.Data(l.ItemFailover(i)), registry.Data(l.ItemFailovering(i)))
	}
	n, err := read.do(ctx, x, &c.out.Denied)
	if err != nil {
		return err
	}
	items, c.todo = c.out.Denied.without(items), c.out.Denied.without(c.todo)

	own, members := n.Data(l.RunsOf(self)), n.Data(l.Members())
	actual, orphans := ownRuns(own, c.own.runs, c.own.version)
	done := make(map[int]bool)
	for _, i := range items {
		done[i] = !c.understand(i, n)
	}
	slices.Sort(c.out.Lost)
	c.todo = slices.DeleteFunc(slices.Clone(c.todo), func(i int) bool { return done[i] })
	c.own = ownList{actual, tree.VersionOf(own)}
	if c.wake.Exists {
		c.wake = members // another host woke the others first: once more
	}
	if len(orphans) == 0 {
		return nil
	}

	settled, err := settleOrphans(ctx, x, l, self, c.own, orphans, &c.out.Denied)
	if err != nil {
		return err
	}
	c.own = settled.ownList
	c.out.Adopted = append(c.out.Adopted, settled.adopted...)
	if c.Wake && len(c.Items) == 0 {
		c.wake, c.ask = members, c.Completing.AskForSharding && len(settled.adopted) < len(orphans)
	}
	return nil
}

// understand decides about one item that a commit has not completed: try again, completed after all, or lost.
func (c *completion) understand(i int, n registry.Snapshot) (again bool) {
	l, self, e := c.Layout, c.Self.ID, c.Items[i]
	record, offset := n.Data(l.Record(i)), n.Data(l.Offset(i))
	marks := [...]registry.Node{n.Data(l.ItemRunning(i)), n.Data(l.ItemFailover(i)), n.Data(l.ItemFailovering(i))}
	r := tree.ParseRecord(record.Data)
	// The version alone proves that the run is still this host's. An offset of another version was saved by a
	// commit whose answer was lost.
	state := e.State
	state.Offset, state.OffsetVersion, state.HasOffset = offset.Data, offset.Version, offset.Exists

	// Check the owner too: in a job that was removed and recreated, versions begin at 0 again.
	state, _ = state.killed(record)
	if record.Exists && record.Version == state.RecordVersion && r.Owner == self {
		e.State = state
		c.Items[i] = e
		mine := func(m registry.Node) bool { return m.Exists && (len(m.Data) == 0 || string(m.Data) == self) }
		c.marks[i] = endMarks{running: mine(marks[0]), failover: mine(marks[1]), failovering: mine(marks[2])}
		if running := marks[0]; c.marksCount() && !mine(running) {
			c.out.Crowded[i] = string(running.Data)
		}
		return true
	}
	if r.Owner == self && r.Begun == e.State.Record.Begun && !r.Open() && c.wrote(i, r) {
		state.Record, state.RecordVersion, state.RecordZxid = r, record.Version, record.Mzxid
		c.out.Items[i] = state
		c.noteKilled(i, e)
		return false
	}
	closed := r
	if r.Owner != self && r.Former.Owner == self && r.Former.Begun == e.State.Record.Begun { // it moved to another host, and was begun there
		closed = e.State.Record
		closed.Ended, closed.Outcome, closed.Reason = r.Former.Ended, r.Former.Outcome, ""
	}
	ofThis := closed.Owner == self && closed.Begun == e.State.Record.Begun && closed.Ended != 0
	if r.Owner != self && ofThis && c.wrote(i, closed) {
		if state = e.State; e.HasOffset {
			state = state.saved(e.Offset)
		}
		state.Record, state.RecordVersion, state.RecordZxid = c.ended(i), e.State.RecordVersion+1, 0
		c.out.Items[i] = state
		return false
	}

	c.out.Lost = append(c.out.Lost, i)
	if ofThis {
		c.out.Closed[i] = closed
	}
	for _, m := range marks {
		if m.Exists && string(m.Data) == self {
			c.stale = append(c.stale, registry.Delete(m.Path, m.Version))
		}
	}
	return false
}
