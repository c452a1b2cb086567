package coordination

import (
	"maps"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
)

// Beginning is a host's wish to begin items of one fire.
type Beginning struct {
	Layout Layout
	Self   JobInstance
	Fire   Fire
	Config jobconfig.Configuration
	// Items with the states that are known of them.
	Items map[int]ItemState
	// Guard proves that the items are the host's share (Share.Guard); HasGuard
	// is false when they are not.
	Guard    ShareGuard
	HasGuard bool
	// Java says that a Java host is in the job, JavaLed that one leads it.
	Java, JavaLed bool
	// Runs is what the host has begun already, with the version of its node.
	Runs        Runs
	RunsVersion int32
	// ConsumeTrigger deletes the trigger that waits for this host.
	ConsumeTrigger bool
	Now            time.Time
	// Latest is the latest instant that may begin, by the registry's clock, and
	// Ahead the latest that a record can name unless a wrong clock wrote it, both
	// in Unix milliseconds. A record beyond Ahead refuses no instant, and the
	// begin repairs it. 0 is no limit. Triggers have none.
	Latest, Ahead int64
}

// Begun is what became of a Beginning.
type Begun struct {
	// Items were begun; their states hold the record that was written, and
	// RecordZxid is the fence token. It is nil if nothing was written.
	Items map[int]ItemState
	// Refused were not begun.
	Refused map[int]Refusal
	// Held are those of Refused that were found to be held back, with what is
	// recorded; Holds are those of Held that this commit holds back.
	Held  map[int]Record
	Holds Items
	// Stale is set when the host's share is not what it was: read it again.
	Stale bool
	// Adopted had been begun by an earlier commit whose answer was lost, and
	// cannot be handed back: the host is to run them as failover.
	Adopted     []Claim
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
	RefusedHeld     Refusal = "the item is held back" // Record.HeldBack says more
	RefusedAhead    Refusal = "the instant is later than the registry's clock"
)

// Begin writes the running marks, records and the host's list of runs for the
// items of a fire: in one commit, or several if they do not fit one. What
// cannot begin is taken out and the rest is tried again. Begun is valid when
// the exchange ends without error. After an error the same wish, with the
// same states, may be put again: what had begun nevertheless is found.
func Begin(b Beginning, out *Begun) Move {
	*out = Begun{Refused: make(map[int]Refusal), Held: make(map[int]Record), Runs: b.Runs, RunsVersion: b.RunsVersion}
	b.Items = maps.Clone(b.Items) // brought up to date below
	g := begin{Beginning: b, out: out, trigger: b.ConsumeTrigger, forgotten: make(map[int]registry.Node), left: make(map[int]bool)}
	var open Items
	for i, state := range b.Items {
		if b.tooEarly() {
			out.Refused[i] = RefusedAhead
			continue
		}
		if b.wrong(state.Record) {
			state.Record.Instant = b.Fire.Instant - 1
			b.Items[i] = state
		}
		// This very run, begun by a commit whose answer was lost, is found by
		// look.
		unheard := state.Record.Owner == b.Self.ID && state.Record.Open() && state.Record.isOf(b.Fire) && !b.Runs.has(i)
		if state.Record.Accepts(b.Fire) != nil && !unheard {
			out.Refused[i] = RefusedPast
			continue
		}
		if state.Record.Held != 0 {
			out.Refused[i], out.Held[i] = RefusedHeld, state.Record
			continue
		}
		if state.Record.Open() && state.Record.Owner != b.Self.ID {
			open = append(open, i)
		}
		g.todo = append(g.todo, i)
	}
	slices.Sort(g.todo)
	if len(open) > 0 {
		slices.Sort(open)
		return g.look(open) // how the hosts of those runs ended
	}
	return g.next()
}

// tooEarly reports whether the instant has not come by the registry's clock.
func (b Beginning) tooEarly() bool {
	return b.Fire.Trigger == 0 && b.Latest != 0 && b.Fire.Instant > b.Latest
}

// wrong reports whether a wrong clock wrote the instant of a record.
func (b Beginning) wrong(r Record) bool {
	return b.Fire.Trigger == 0 && b.Ahead != 0 && r.Instant > max(b.Ahead, b.Fire.Instant)
}

// begin is a Beginning on its way.
type begin struct {
	Beginning
	out     *Begun
	todo    Items // neither begun nor refused, ascending
	trigger bool  // the trigger is to be consumed
	// forgotten are items whose record names a run of a host that lives and does
	// not have it in its list of runs, which is given: an external edit has changed one of
	// the two.
	forgotten map[int]registry.Node
	// unheard is set when the outcome of a commit is unknown.
	unheard bool
	// left are items whose record names a run of a host that left in good order.
	left map[int]bool
}

// next begins as many items as fit one commit.
func (g begin) next() Move {
	if len(g.todo) == 0 && !g.trigger {
		return Move{Name: "begin"}
	}
	l, out := g.Layout, g.out
	var items, begins Items
	body := newCommit(4 * len(g.todo))
	records := make(map[int]Record)
	room, last := out.Runs.room(), -1
	for _, i := range g.todo {
		before := len(body.ops)
		record := g.ops(i, &body)
		room -= size(body.ops[before:]) + listed(i, last)
		if last = i; room < 0 && len(items) > 0 {
			body.cut(before)
			break
		}
		items, records[i] = append(items, i), record
		if record.Held == 0 {
			begins = append(begins, i)
		}
	}
	rest := g.todo[len(items):]

	c := newCommit(len(body.ops) + 9)
	c.add(roleRoot, -1, registry.Check(l.config(), registry.AnyVersion))
	if g.HasGuard {
		c.add(roleShare, -1, registry.Check(l.assignmentOf(g.Self.ID), g.Guard.Assignment))
		c.add(roleShare, -1, registry.Check(l.epoch(), g.Guard.Epoch))
		if g.Guard.AnchorVersion > 0 {
			c.add(roleShare, -1, registry.Check(l.itemInstance(g.Guard.Anchor), g.Guard.AnchorVersion))
		}
	}
	if g.JavaLed {
		c.add(roleShare, -1, registry.Absent(l.necessary()))
		c.add(roleShare, -1, registry.Absent(l.processing()))
	}
	switch {
	case g.trigger && len(rest) == 0:
		c.add(roleTrigger, -1, registry.Delete(l.trigger(g.Self.ID), registry.AnyVersion))
	case g.trigger:
		c.add(roleTrigger, -1, registry.Check(l.trigger(g.Self.ID), registry.AnyVersion))
	}
	c.join(body)
	runs := out.Runs.with(g.Fire, g.marked(), begins)
	if len(begins) > 0 {
		c.addRuns(l, g.Self.ID, runs, out.RunsVersion)
	}
	return Move{
		Name: "begin", Commit: c.ops,
		Then: func(_ []registry.Node, results []registry.Result) (Move, error) {
			out.Commits++
			if out.Items == nil {
				out.Items = make(map[int]ItemState, len(items))
			}
			for k, r := range results {
				switch i := c.items[k]; {
				case c.ops[k].Kind != registry.OpSet:
				case c.roles[k] == roleRecord && records[i].Held != 0:
					out.Refused[i], out.Held[i], out.Holds = RefusedHeld, records[i], append(out.Holds, i)
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
		Else: func(e *registry.OpError) (Move, error) {
			out.Commits++
			switch c.roles[e.Index] {
			case roleRoot:
				return Move{}, ErrRemoved
			case roleShare:
				return g.stale()
			case roleTrigger:
				g.trigger = false
				if out.Items == nil { // somebody else has consumed it: nothing begins
					return Done()
				}
				return g.next(), nil
			}
			return g.look(items), nil
		},
		Unknown: func() (Move, error) {
			g.unheard = true
			return g.look(items), nil
		},
	}
}

// ops adds what begins one item, and returns the record that it writes. If the
// host that began it last is one too many to have died with it, the item is held
// back instead.
func (g begin) ops(i int, c *commit) Record {
	l, state := g.Layout, g.Items[i]
	mine := state.Record.Owner == g.Self.ID && !state.Record.Open()
	open := state.Record.Open() && state.Record.Owner != g.Self.ID
	before := state.Record.after(state.RecordZxid)
	if _, forgets := g.forgotten[i]; open && !forgets && !g.left[i] {
		before = before.died(before.Owner)
	}
	if open && tooMany(g.Config, state.Record, before) {
		record := before.hold(g.Now.UnixMilli())
		c.add(roleRecord, i, registry.Set(l.record(i), record.data(), state.RecordVersion)) // look has seen that its host is gone
		return record
	}
	record := before.begin(g.Self.ID, g.Fire, g.Now.UnixMilli())
	version := state.RecordVersion
	if version < 0 {
		c.add(roleRecord, i, registry.Create(l.record(i), nil))
		version = 0
	}
	c.add(roleRecord, i, registry.Set(l.record(i), record.data(), version))
	c.add(roleItem, i, registry.Absent(l.itemDisabled(i)))
	if (g.Config.Failover && (!mine || g.Java)) || open {
		// It may be owed, and about to be taken, or taken. One that was taken over runs on when failover is switched off. What
		// this host itself ran last, and has owned since, no other host can have
		// taken: hosts of ours set the record, and a Java host, also one that
		// came after the view, takes only what was marked for it. It marks what
		// a host that died was running, and no host has run this item since.
		c.add(roleItem, i, registry.Absent(l.failoverItem(i)))
		c.add(roleItem, i, registry.Absent(l.itemFailover(i)))
	}
	if runs, ok := g.forgotten[i]; open && ok {
		c.add(roleItem, i, registry.Check(runs.Path, runs.Version))
	} else if open {
		// Its host may live: under a Java leader items move while they run.
		c.add(roleItem, i, registry.Absent(l.detail(state.Record.Owner)))
	}
	if g.Config.MonitorExecution {
		c.add(roleItem, i, g.runningMark(i))
	}
	if state.Misfire {
		c.add(roleItem, i, registry.Delete(l.itemMisfire(i), registry.AnyVersion))
	}
	return record
}

// ofOwner are the detail node of the host that last began the item, which is
// there while that lives if it is one of ours, and its list of runs.
func (g begin) ofOwner(i int) (detail, runs registry.Query) {
	if owner := g.Items[i].Record.Owner; owner != "" {
		return registry.Data(g.Layout.detail(owner)), registry.Data(g.Layout.runsOf(owner))
	}
	return registry.Data(g.Layout.record(i)), registry.Data(g.Layout.record(i))
}

// marked reports whether the running marks outlive the host.
func (b Beginning) marked() bool { return b.Config.MonitorExecution && b.Config.Failover }

// runningMark is ephemeral without failover, persistent with it, as
// ElasticJob has it since 3.0.2.
func (b Beginning) runningMark(item int) registry.Op {
	if b.Config.Failover {
		return registry.Create(b.Layout.itemRunning(item), []byte(b.Self.ID))
	}
	return registry.CreateEphemeral(b.Layout.itemRunning(item), []byte(b.Self.ID))
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
	const each = 9
	read := make([]registry.Query, 0, 1+each*len(items))
	read = append(read, registry.Data(l.runsOf(self)))
	for _, i := range items {
		detail, runs := g.ofOwner(i)
		read = append(read, registry.Data(l.record(i)), registry.Data(l.item(i)), registry.Data(l.itemDisabled(i)), registry.Data(l.itemFailover(i)), registry.Data(l.itemRunning(i)), registry.Data(l.itemMisfire(i)),
			registry.Data(l.failoverItem(i)), detail, runs)
	}
	return Move{Name: "begin", Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
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
			q := n[1+each*k : 1+each*k+each]
			record, node, disabled, failover, running, misfire, mark, owner, ownersRuns := q[0], q[1], q[2], q[3], q[4], q[5], q[6], q[7], q[8]
			state := g.Items[i]
			r := parseRecord(record.Data)
			mine, open := r.Owner == self && !r.Open(), r.Open() && r.Owner != self
			done[i] = true
			switch {
			case orphans.Contains(i) && r.Owner == self && r.Open() && actual.fireOf(i).same(g.Fire):
				if out.Items == nil {
					out.Items = make(map[int]ItemState)
				}
				out.Items[i] = state.begun(r, record.Version, record.Mzxid)
				handBacks = slices.DeleteFunc(slices.Clone(handBacks), func(o int) bool { return o == i })
			case r.Held != 0 && node.Exists:
				out.Refused[i], out.Held[i] = RefusedHeld, r
				if g.unheard && state.Record.Open() && r.Held == g.Now.UnixMilli() { // by that commit
					out.Holds = append(out.Holds, i)
				}
			case !node.Exists, record.Exists && record.Version != state.RecordVersion, !record.Exists && state.RecordVersion >= 0:
				out.Refused[i], out.Stale = RefusedStale, true
			case disabled.Exists:
				out.Refused[i] = RefusedDisabled
			case failover.Exists && (g.Config.Failover || open), mark.Exists && ((g.Config.Failover && (!mine || g.Java)) || open):
				out.Refused[i] = RefusedFailover
			case open && owner.Exists && !forgets(ownersRuns, i):
				out.Refused[i] = RefusedRunning
			case running.Exists && g.Config.MonitorExecution:
				out.Refused[i] = RefusedRunning
			default:
				delete(g.forgotten, i)
				if open && owner.Exists {
					g.forgotten[i] = ownersRuns
				}
				runs, err := parseRuns(ownersRuns.Data)
				g.left[i] = open && err == nil && runs.Left
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

// forgets reports whether a list of runs is there, and without the item.
func forgets(n registry.Node, item int) bool {
	runs, err := parseRuns(n.Data)
	return n.Exists && err == nil && !runs.has(item)
}

// consume deletes the trigger, if it is still there, and goes on.
func (g begin) consume(orphans Items) Move {
	next := func() (Move, error) { return g.handBack(orphans), nil }
	return Move{Name: "begin", Commit: []registry.Op{registry.Delete(g.Layout.trigger(g.Self.ID), registry.AnyVersion)},
		Then: func([]registry.Node, []registry.Result) (Move, error) { return next() },
		Else: func(*registry.OpError) (Move, error) { return next() }}
}

// handBack deals with items that no host runs, and goes on.
func (g begin) handBack(orphans Items) Move {
	if len(orphans) == 0 {
		return g.next()
	}
	return settleOrphans(g.Layout, g.Self.ID, g.out.Runs, g.out.RunsVersion, orphans, func(runs Runs, version int32, adopted []Claim) (Move, error) {
		g.out.Runs, g.out.RunsVersion = runs, version
		g.out.Adopted = append(g.out.Adopted, adopted...)
		return g.next(), nil
	})
}
