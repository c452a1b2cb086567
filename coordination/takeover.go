package coordination

import (
	"context"
	"slices"

	"github.com/wasmjob/wasmjob/coordination/recipe/latch"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// taking is what a host writes about a crashed host's items: which it closes and which it claims.
type taking struct {
	commit
	closed  Recovered // what is closed, by kind
	claims  map[int]Claim
	begun   []begins   // the claims, as they follow each other
	dropped tree.Items // from the dead host's list
	marked  bool       // a Java host has marked one of the claims
	next    int        // the first undecided item
}

// begins are items that are begun for one fire.
type begins struct {
	tree.Fire
	items tree.Items
}

// take decides item by item and writes the result in commits. done is false if the caller must read again.
func (r *recovery) take(ctx context.Context, x *step.Exchange, owed tree.Runs, runs registry.Node) (done bool, err error) {
	for {
		t, err := r.nextTaking(ctx, x, owed, runs)
		if err != nil {
			return false, err
		}
		if len(t.dropped) == 0 {
			return true, r.giveWay(ctx, x)
		}
		turn, err := r.turn(ctx, x, t)
		if !turn || err != nil {
			return r.leave == nil, err
		}
		again, err := r.write(ctx, x, t, &owed, &runs)
		if again || err != nil {
			return false, err
		}
		if runs.Path == "" && r.Dead != "" {
			return true, r.giveWay(ctx, x) // it is not dead
		}
		if len(owed.Runs) == 0 && r.Dead != "" {
			break
		}
	}
	l := r.View.Layout
	n, err := x.Read(ctx, registry.Data(l.RunsOf(r.Dead)), registry.Data(l.Members()), registry.Data(l.AssignmentOf(r.Dead)))
	if err != nil {
		return false, err
	}
	r.out.Next = 0
	return true, r.bury(ctx, x, n)
}

// turn reports whether this host may write: while Java hosts matter it must first stand in their latch. When
// its turn has come, r.leave is set and it must read again.
func (r *recovery) turn(ctx context.Context, x *step.Exchange, t taking) (bool, error) {
	if len(t.claims) == 0 || r.leave != nil || !(t.marked || r.View.Mixed()) {
		return true, nil
	}
	turn, err := latch.Stand(ctx, x, r.View.Layout, r.View.Self.ID, r.View.Layout.FailoverLatch(), &r.Takeover)
	if err == nil && turn != nil {
		r.leave, r.chunk = turn.Leave, nil
	}
	return false, err
}

// write writes the decisions. It updates owed and runs, the dead host's list and its node; runs is zero if the
// host is not dead. again is set if the caller must read again.
func (r *recovery) write(ctx context.Context, x *step.Exchange, t taking, owed *tree.Runs, runs *registry.Node) (again bool, err error) {
	l, self, dead := r.View.Layout, r.View.Self.ID, r.deadOf(*owed)
	mine, left := r.own.runs, owed.Without(t.dropped)
	for _, b := range t.begun {
		mine = mine.With(b.Fire, true, b.items)
	}
	c := newCommit(len(t.ops) + 8)
	if r.Dead != "" { // the lists first: hosts that take at the same time conflict there
		c.add(roleRoot, -1, registry.Absent(l.Instance(dead)))
		c.add(roleRoot, -1, registry.Absent(l.Detail(dead)))
		c.add(roleShare, -1, registry.Set(runs.Path, left.Data(), runs.Version))
	}
	if len(t.claims) > 0 {
		c.addRuns(l, self, mine, r.own.version)
	}
	c.join(t.commit)
	for _, op := range r.leave {
		c.add(roleRoot, -1, op)
	}
	t.commit = c
	results, err := x.Commit(ctx, t.ops...)
	conflict := step.ConflictOf(err)
	if conflict != nil && r.Dead != "" && conflict.Op.Path == l.Instance(dead) {
		*runs = registry.Node{}
		return false, nil
	}
	if step.IsUnknown(err) { // if it took effect no host finds these items again
		r.note(t.closed)
	}
	if step.Contested(err) { // another host took a share meanwhile, or an item changed
		r.leave = nil
		if conflict != nil && t.roles[conflict.Index] == rolePermit {
			r.unpermitted[t.items[conflict.Index]] = true
		}
		if conflict == nil || t.roles[conflict.Index] != roleShare {
			r.chunk = nil // otherwise the items may be unchanged
		}
		return true, nil
	}
	if _, ok := t.denied(err, &r.out.Denied); ok {
		return true, nil // read again, and leave the item
	}
	if err != nil {
		return false, err
	}

	r.noteTaken(t, mine, results)
	r.out.Left, *owed = left.Ranges(), left
	for k, op := range t.ops {
		if t.roles[k] == roleShare && op.Kind == registry.OpSet {
			runs.Version = results[k].Version
			r.out.Version = runs.Version + 1
		}
	}
	return false, nil
}

// nextTaking reads items and decides about them until there is something to write, or no more to read in this
// call.
func (r *recovery) nextTaking(ctx context.Context, x *step.Exchange, owed tree.Runs, runs registry.Node) (t taking, err error) {
	for r.out.Next = 0; r.from != end; r.chunk = nil {
		if r.chunk == nil {
			if r.read > 0 && r.full() {
				break
			}
			if r.read == readsOfACall {
				r.out.Next = r.from
				return taking{}, nil
			}
			r.read++
			if r.chunk, err = r.readOwed(ctx, x, owed); err != nil {
				return taking{}, err
			}
		}
		if t = r.decide(owed, runs); len(t.dropped) > 0 {
			return t, nil
		}
		r.from = r.chunk.next
	}
	return taking{}, nil
}

// full reports whether this host can claim no more items.
func (r *recovery) full() bool {
	return len(r.out.Claimed) >= r.Limit && r.View.Config.Failover && r.View.Config.MonitorExecution
}

// noteTaken notes what a commit has closed and claimed. mine is this host's list of runs after it.
func (r *recovery) noteTaken(t taking, mine tree.Runs, results []registry.Result) {
	r.out.Commits++
	r.note(t.closed)
	if r.from = t.next; r.from == r.chunk.next {
		r.chunk = nil
	}
	for k, result := range results {
		if t.ops[k].Kind != registry.OpSet {
			continue
		}
		switch i := t.items[k]; {
		case t.roles[k] == roleRecord && i >= 0:
			claim := t.claims[i]
			claim.State.RecordVersion, claim.State.RecordZxid = result.Version, result.Zxid
			r.out.Claimed = append(r.out.Claimed, claim)
		case t.roles[k] == roleRuns:
			r.own = ownList{mine, result.Version}
		}
	}
	if r.leave != nil {
		r.Takeover, r.leave = latch.Line{}, nil
	}
}

// decide decides about the items that were read, from r.from on, as many as fit one commit.
func (r *recovery) decide(owed tree.Runs, runs registry.Node) taking {
	t := taking{claims: make(map[int]Claim), next: r.chunk.next}
	room, last := max(itemRoom(r.own.runs)-len(runs.Data), leastRoom), -1
	first, _ := slices.BinarySearch(r.chunk.list, r.from)
	for k, i := range r.chunk.list[first:] {
		if room <= 0 {
			t.next = i
			break
		}
		it := &r.chunk.items[first+k]
		if !owed.Has(i) || owed.FireOf(i) != it.fire {
			continue // another host has taken it since it was read
		}
		f := r.judge(i, it, owed, len(r.out.Claimed)+len(t.claims))
		if f == fateLeft || r.out.Denied[i] != nil {
			continue
		}
		before := len(t.ops)
		r.become(f, i, it, owed, &t)
		t.dropped = append(t.dropped, i)
		room -= step.Size(t.ops[before:]) + 2*tree.ListGrowth(i, last) // in two lists
		last = i
	}
	return t
}

// become adds the decision about one item.
func (r *recovery) become(f fate, i int, it *owedItem, owed tree.Runs, t *taking) {
	l, now, dead := r.View.Layout, r.Now.UnixMilli(), r.deadOf(owed)
	claim := Claim{Item: i, Fire: it.fire, State: it.state}
	end := func(record tree.Record) Claim {
		record = record.Follow(it.state.RecordZxid)
		if dead == r.Dead && dead != "" { // a Java host's run is in no record
			t.add(roleItem, i, registry.Set(l.Record(i), record.Data(), it.state.RecordVersion))
			claim.State.Record = record
		}
		it.clear(dead, &t.commit, i)
		if it.mark.Exists {
			t.add(roleItem, i, registry.Delete(it.mark.Path, registry.AnyVersion))
		}
		return claim
	}
	closed := &t.closed
	switch f {
	case fateSettled:
		it.clear(dead, &t.commit, i)
		if it.mark.Exists && it.state.Record.Open() { // made too late, or an external edit has changed the record
			t.add(roleItem, i, registry.Check(l.Record(i), it.state.RecordVersion))
			t.add(roleItem, i, registry.Delete(it.mark.Path, registry.AnyVersion))
		}
	case fateLost:
		closed.Lost = append(closed.Lost, end(r.mourned(it, owed).Lose(now)))
	case fateKilled:
		closed.Killed = append(closed.Killed, end(it.state.Record.EndKilled(reason.HostEndedBefore, now)))
		if r.repeats(i, it) { // a Java host that has just come may not run it
			for _, mark := range []registry.Node{it.failover, it.mark} {
				if !mark.Exists {
					t.add(roleItem, i, registry.Absent(mark.Path))
				}
			}
		}
	case fateHeld:
		closed.Held = append(closed.Held, end(r.mourned(it, owed).Hold(now)))
	case fateOvertaken:
		it.clear(dead, &t.commit, i)
		closed.Lost = append(closed.Lost, claim)
	case fateElsewhere:
		closed.Elsewhere = append(closed.Elsewhere, end(it.state.Record.End(tree.OutcomeElsewhere, "", now)))
		for _, mark := range []registry.Node{it.running, it.failover, it.failovering, it.mark} {
			t.add(roleItem, i, registry.Absent(mark.Path)) // they were read one after the other
		}
	case fateClaim:
		t.marked = t.marked || it.mark.Exists
		r.claim(i, &claim, it, r.mourned(it, owed), &t.commit)
		t.claims[i] = claim
		if len(t.begun) == 0 || t.begun[len(t.begun)-1].Fire != it.fire {
			t.begun = append(t.begun, begins{Fire: it.fire})
		}
		newest := &t.begun[len(t.begun)-1]
		newest.items = append(newest.items, i)
	}
}

// note reports a closed run, once.
func (r *recovery) note(closed Recovered) {
	add := func(to, claims []Claim) []Claim {
		for _, c := range claims {
			if run := (notedRun{c.Item, c.Fire}); !r.noted[run] {
				r.noted[run], to = true, append(to, c)
			}
		}
		return to
	}
	out := &r.out
	out.Lost, out.Elsewhere = add(out.Lost, closed.Lost), add(out.Elsewhere, closed.Elsewhere)
	out.Held, out.Killed = add(out.Held, closed.Held), add(out.Killed, closed.Killed)
}

// giveWay ends a recovery without a write, and leaves the latch.
func (r *recovery) giveWay(ctx context.Context, x *step.Exchange) error {
	if r.leave == nil && !r.Takeover.Standing {
		return nil
	}
	return latch.Leave(ctx, x, r.View.Self.ID, r.View.Layout.FailoverLatch(), &r.Takeover)
}

// claim adds what begins an item that is owed, after the given record.
func (r *recovery) claim(i int, claim *Claim, it *owedItem, before tree.Record, c *commit) {
	l, self := r.View.Layout, r.View.Self.ID
	record := before.Follow(it.state.RecordZxid).Begin(self, it.fire, r.Now.UnixMilli())
	record.Source = tree.SourceFailover
	version := it.state.RecordVersion
	if version < 0 {
		c.add(roleItem, i, registry.Create(l.Record(i), nil))
		version = 0
	}
	c.add(roleRecord, i, registry.Set(l.Record(i), record.Data(), version))
	c.add(roleItem, i, registry.Absent(l.ItemDisabled(i)))
	if r.Permit != nil {
		c.permit(r.Member, i, r.Permit(i, it.fire))
	}
	if it.mark.Exists {
		c.add(roleItem, i, registry.Delete(it.mark.Path, registry.AnyVersion))
	} else { // by a Java host that has just come
		c.add(roleItem, i, registry.Absent(it.mark.Path))
	}
	if it.failover.Exists {
		c.add(roleItem, i, registry.Delete(it.failover.Path, it.failover.Version))
	}
	c.add(roleItem, i, registry.CreateEphemeral(l.ItemFailover(i), []byte(self)))
	c.put(i, it.failovering, []byte(self))
	c.put(i, it.running, []byte(self))
	claim.State.Record = record
}

// clear removes the marks that the dead host left on an item.
func (it *owedItem) clear(dead string, c *commit, item int) {
	for _, n := range []registry.Node{it.running, it.failover, it.failovering} {
		if n.Exists && string(n.Data) == dead {
			c.add(roleItem, item, registry.Delete(n.Path, registry.AnyVersion))
		}
	}
}

// put makes a persistent node, or sets the one that is there.
func (c *commit) put(item int, n registry.Node, data []byte) {
	switch {
	case n.Exists && !n.Ephemeral:
		c.add(roleItem, item, registry.Set(n.Path, data, n.Version))
		return
	case n.Exists: // it would go with the session that made it
		c.add(roleItem, item, registry.Delete(n.Path, n.Version))
	}
	c.add(roleItem, item, registry.Create(n.Path, data))
}
