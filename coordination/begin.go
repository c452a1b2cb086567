package coordination

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/recipe/permit"
	"github.com/wasmjob/wasmjob/coordination/recipe/rate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// Beginning is a host's request to begin items of one fire.
type Beginning struct {
	Fire tree.Fire
	// Items with their known states.
	Items map[int]ItemState
	// ConsumeTrigger deletes the trigger that waits for this host.
	ConsumeTrigger bool
	// KeepTrigger keeps the trigger if an item is refused because another host runs it: the item then runs in
	// the round afterwards, here or on its next host.
	KeepTrigger bool
	Now         time.Time
	// Latest is the latest instant that may begin, by the registry's clock. Ahead is the latest instant that a
	// record can plausibly have: a record beyond it was written by a wrong clock, refuses no instant, and is
	// repaired by the begin. Both are Unix milliseconds; 0 is no limit. Triggers have neither.
	Latest, Ahead int64
	// Permits are the tickets of items that begin under a limit, by item: paths of package permit. The commit
	// that begins an item also assigns it the ticket.
	Permits map[int]string
	// Turns are the rates of items that begin under one, by item; several items may share one. Begin refreshes
	// each; if that fails, the turn is not Known afterwards. Each key must have a node.
	Turns map[int]*rate.Turn
	// Count makes records count the scheduled instants that begin.
	Count bool
}

// Begun is the result of a Beginning.
type Begun struct {
	// Items were begun; their states hold the record that was written, and
	// RecordZxid is the fence token. It is nil if nothing was written.
	Items map[int]ItemState
	// Refused did not begin, each for its reason.
	Refused map[int]Refusal
	// Held are the Refused items that are held back, with their records; Holds are those of Held that this
	// commit has held back.
	Held  map[int]tree.Record
	Holds tree.Items
	// Disabled says who disabled a refused item.
	Disabled map[int]tree.Word
	// Denied did not begin because the registry does not permit to read or write one of their nodes.
	Denied Denials
	// Stale is set when the host's share has changed: read it again.
	Stale bool
	// Kept is set if the trigger is kept: see KeepTrigger.
	Kept bool
	// Adopted items were begun by an earlier commit whose answer was lost, and cannot be handed back: the host
	// must run them as failover.
	Adopted []Claim
	// Commits is how many commits were made.
	Commits int
}

// Refusal is why an item was not begun.
type Refusal reason.Code

// Reason is the reason of that code.
func (r Refusal) Reason() reason.Reason { return reason.New(reason.Code(r)) }

// String is its text.
func (r Refusal) String() string { return r.Reason().String() }

// The refusals.
const (
	RefusedDisabled = Refusal(reason.ItemDisabled)
	RefusedRunning  = Refusal(reason.StillMarked)
	RefusedFailover = Refusal(reason.RunsAfterCrash)
	RefusedStale    = Refusal(reason.BegunElsewhere)
	RefusedPast     = Refusal(reason.BegunAlready)
	RefusedHeld     = Refusal(reason.Held) // Record.HeldBack says more
	RefusedAhead    = Refusal(reason.AheadOfClock)
	RefusedChanged  = Refusal(reason.ScheduleChanged)
	RefusedPermit   = Refusal(reason.NoPermit)
	RefusedRate     = Refusal(reason.BegunUnderRate)
	RefusedAgain    = Refusal(reason.JavaMayRepeat) // see Quiet
)

// Begin writes the running marks, records and the host's list of runs for the items of a fire: in one commit,
// or several if they do not fit one. It removes items that cannot begin and tries the rest again. Begun is
// valid only without an error, except Denied, which is always valid. After an error Begin may be called again
// with the same request and states: it finds what had begun. An item that the registry denies does not keep the
// others from beginning.
func (m *Member) Begin(ctx context.Context, b Beginning) (Begun, error) {
	b.Items = maps.Clone(b.Items) // brought up to date below
	g := begin{
		Member:    m,
		Beginning: b,
		own:       ownList{m.Runs, m.RunsVersion},
		out:       Begun{Refused: make(map[int]Refusal), Held: make(map[int]tree.Record), Disabled: make(map[int]tree.Word)},
		trigger:   b.ConsumeTrigger,
		config:    m.View.configVersion(),
		forgotten: make(map[int]registry.Node),
		left:      make(map[int]bool),
	}
	if err := m.perform(ctx, "begin", g.run); err != nil {
		m.Unknown = true
		return g.out, err
	}
	m.Runs, m.RunsVersion = g.own.runs, g.own.version
	m.Unknown = m.Unknown && len(g.out.Items) == 0
	return g.out, nil
}

// refuse removes the items that their known states refuse. open are the remaining items whose last run was
// begun by another host and not completed.
func (g *begin) refuse() (open tree.Items) {
	for i, state := range g.Items {
		if g.tooEarly() {
			g.out.Refused[i] = RefusedAhead
			continue
		}
		if g.wrong(state.Record) {
			state.Record.Instant = g.Fire.Instant - 1
			g.Items[i] = state
		}
		// A commit whose outcome is unknown may have begun this very run: look will find it.
		begun := state.Record.Owner == g.Self.ID && state.Record.Open() && state.Record.IsOf(g.Fire) && !g.Runs.Has(i)
		if state.Record.Accepts(g.Fire) != nil && !begun {
			g.out.Refused[i] = RefusedPast
			continue
		}
		if state.Record.Held != 0 {
			g.out.Refused[i], g.out.Held[i] = RefusedHeld, state.Record
			continue
		}
		if state.Record.Open() && state.Record.Owner != g.Self.ID {
			open = append(open, i)
		}
		g.todo = append(g.todo, i)
	}
	slices.Sort(g.todo)
	slices.Sort(open)
	return open
}

// tooEarly reports whether the instant has not come by the registry's clock.
func (b Beginning) tooEarly() bool {
	return b.Fire.Trigger == 0 && b.Latest != 0 && b.Fire.Instant > b.Latest
}

// wrong reports whether a wrong clock wrote the instant of a record.
func (b Beginning) wrong(r tree.Record) bool {
	return b.Fire.Trigger == 0 && b.Ahead != 0 && r.Instant > max(b.Ahead, b.Fire.Instant)
}

// begin is a Beginning on its way.
type begin struct {
	*Member
	Beginning
	own     ownList // as of the newest commit or look
	out     Begun
	todo    tree.Items // neither begun nor refused, ascending
	trigger bool       // the trigger has to be consumed
	config  int32      // version of the configuration whose schedule has the instant
	// forgotten are items whose record says that a living host runs them while that host's list of runs, which
	// is the value, does not: an external edit has changed one of the two.
	forgotten map[int]registry.Node
	// unknown is set once a commit's outcome is unknown.
	unknown bool
	// left are items whose record has a run of a host that left in good order.
	left map[int]bool
}

func (g *begin) run(ctx context.Context, x *step.Exchange) error {
	if open := g.refuse(); len(open) > 0 {
		if err := g.look(ctx, x, open); err != nil { // how the hosts of those runs ended
			return err
		}
	}
	for len(g.todo) > 0 || g.trigger {
		c := g.next()
		results, err := x.Commit(ctx, c.ops...)
		conflict := step.ConflictOf(err)
		if err == nil || conflict != nil {
			g.out.Commits++
		}
		if err == nil {
			g.began(c, results)
			if len(c.rest) == 0 {
				return nil
			}
			g.todo = c.rest
			continue
		}

		if conflict != nil {
			switch c.roles[conflict.Index] {
			case roleRoot:
				if err := g.reconfigured(ctx, x); err != nil {
					return err
				}
				continue
			case roleShare:
				g.stale()
				return nil
			case roleRate:
				g.contended(conflict.Op.Path)
				continue
			case roleTrigger: // consumed elsewhere
				g.trigger = false
				if g.out.Items == nil {
					return nil
				}
				continue
			}
		} else if step.IsUnknown(err) {
			g.unknown = true
			for _, t := range g.Turns {
				t.Known = false
			}
		} else if i, ok := c.denied(err, &g.out.Denied); ok {
			g.todo = without(g.todo, i)
			continue
		} else {
			return err
		}
		if err := g.look(ctx, x, c.part); err != nil {
			return err
		}
		if g.trigger && g.KeepTrigger && g.runsElsewhere() {
			g.trigger, g.out.Kept = false, true
		}
	}
	return nil
}

// runsElsewhere reports whether an item was refused because another host runs it.
func (g *begin) runsElsewhere() bool {
	for _, why := range g.out.Refused {
		if why == RefusedRunning || why == RefusedFailover {
			return true
		}
	}
	return false
}

// beginCommit begins some of the items that are to begin.
type beginCommit struct {
	commit
	part, rest tree.Items
	records    map[int]tree.Record // that it writes, of part
	runs       tree.Runs           // that it writes
	turns      map[*rate.Turn]int  // how many items begin under each rate
}

// next begins as many items as fit one commit.
func (g *begin) next() beginCommit {
	l := g.Layout
	next := beginCommit{records: make(map[int]tree.Record), turns: make(map[*rate.Turn]int)}
	var begins tree.Items
	body := newCommit(4 * len(g.todo))
	room, last := itemRoom(g.own.runs), -1
	for _, i := range g.todo {
		before := len(body.ops)
		record := g.ops(i, &body)
		room -= step.Size(body.ops[before:]) + tree.ListGrowth(i, last)
		turn := g.Turns[i]
		if turn != nil && next.turns[turn] == 0 && record.Held == 0 {
			room -= step.Size([]registry.Op{turn.Op(1)})
		}
		if last = i; room < 0 && len(next.part) > 0 {
			body.cut(before)
			break
		}
		next.part, next.records[i] = append(next.part, i), record
		if record.Held == 0 {
			begins = append(begins, i)
			if turn != nil {
				next.turns[turn]++
			}
		}
	}
	next.rest = g.todo[len(next.part):]
	next.runs = g.own.runs.With(g.Fire, g.marked(), begins)

	c := g.guarded(len(body.ops)+len(next.turns)+9, g.config)
	for _, turn := range slices.SortedFunc(maps.Keys(next.turns), func(a, b *rate.Turn) int { return strings.Compare(a.Path, b.Path) }) {
		c.add(roleRate, -1, turn.Op(next.turns[turn]))
	}
	if g.View.JavaLed() {
		c.add(roleShare, -1, registry.Absent(l.Necessary()))
		c.add(roleShare, -1, registry.Absent(l.Processing()))
	}
	if g.trigger && len(next.rest) == 0 {
		c.add(roleTrigger, -1, registry.Delete(l.Trigger(g.Self.ID), registry.AnyVersion))
	} else if g.trigger {
		c.add(roleTrigger, -1, registry.Check(l.Trigger(g.Self.ID), registry.AnyVersion))
	}
	c.join(body)
	if len(begins) > 0 {
		c.addRuns(l, g.Self.ID, next.runs, g.own.version)
	}
	next.commit = c
	return next
}

// guarded returns a commit of about n ops that takes effect only if the job exists with this version of its
// configuration, and this host's share is the known one.
func (m *Member) guarded(n int, config int32) commit {
	l, guard := m.Layout, m.Share.Guard
	c := newCommit(n)
	c.add(roleRoot, -1, registry.Check(l.Config(), config))
	c.add(roleShare, -1, registry.Check(l.AssignmentOf(m.Self.ID), guard.Assignment))
	c.add(roleShare, -1, registry.Check(l.Epoch(), guard.Epoch))
	if guard.AnchorVersion > 0 {
		c.add(roleShare, -1, registry.Check(l.ItemInstance(guard.Anchor), guard.AnchorVersion))
	}
	return c
}

// reconfigured checks whether the instant still counts: the configuration may have changed without this host
// knowing yet. A trigger counts under every configuration.
func (g *begin) reconfigured(ctx context.Context, x *step.Exchange) error {
	n, err := x.Read(ctx, registry.Data(g.Layout.Config()))
	if err != nil {
		return err
	}
	node := n.Data(g.Layout.Config())
	if !node.Exists {
		return tree.ErrRemoved
	}
	g.config = node.Version
	for _, i := range g.todo {
		if g.Permits[i] != "" { // the limit may have changed
			g.out.Refused[i] = RefusedPermit
		} else if g.Turns[i] != nil {
			g.out.Refused[i] = RefusedRate
		}
	}
	g.todo = slices.DeleteFunc(slices.Clone(g.todo), func(i int) bool { return g.Permits[i] != "" || g.Turns[i] != nil })
	if g.Fire.Trigger == 0 && g.View.reschedules(node, g.Fire.Time()) {
		for _, i := range g.todo {
			g.out.Refused[i] = RefusedChanged
		}
		g.todo = nil
	}
	return nil
}

// began notes what a commit has begun and what it holds back.
func (g *begin) began(c beginCommit, results []registry.Result) {
	if g.out.Items == nil {
		g.out.Items = make(map[int]ItemState, len(c.part))
	}
	for k, result := range results {
		if c.ops[k].Kind != registry.OpSet {
			continue
		}
		i := c.items[k]
		switch c.roles[k] {
		case roleRecord:
			if c.records[i].Held != 0 {
				g.out.Refused[i], g.out.Held[i], g.out.Holds = RefusedHeld, c.records[i], append(g.out.Holds, i)
			} else {
				g.out.Items[i] = g.Items[i].begun(c.records[i], result.Version, result.Zxid)
			}
		case roleRuns:
			g.own = ownList{c.runs, result.Version}
		case roleRate:
			for turn, n := range c.turns {
				if turn.Path == c.ops[k].Path {
					turn.Took(n, result)
				}
			}
		}
	}
}

// contended removes the items under the rate of a node that another host has written meanwhile.
func (g *begin) contended(path string) {
	g.todo = slices.DeleteFunc(slices.Clone(g.todo), func(i int) bool {
		turn := g.Turns[i]
		if turn == nil || turn.Path != path {
			return false
		}
		turn.Known, g.out.Refused[i] = false, RefusedRate
		return true
	})
}

// ops adds the ops that begin one item, and returns the record that it writes. If the death of the host that
// began it last exceeds the limit of deaths, the item is held back instead.
func (g *begin) ops(i int, c *commit) tree.Record {
	l, state := g.Layout, g.Items[i]
	mine := state.Record.Owner == g.Self.ID && !state.Record.Open()
	open := state.Record.Open() && state.Record.Owner != g.Self.ID
	before := state.Record.Follow(state.RecordZxid)
	if open && before.Kill.Asked() { // its host died before it could end it
		before = before.EndKilled(reason.HostEndedBefore, g.Now.UnixMilli())
	} else if _, forgets := g.forgotten[i]; open && !forgets && !g.left[i] {
		before = before.NoteDeath(before.Owner)
	}
	if before.Deaths > state.Record.Deaths && tooMany(mostDeaths(g.View.Config), state.Record, before) {
		record := before.Hold(g.Now.UnixMilli())
		c.add(roleRecord, i, registry.Set(l.Record(i), record.Data(), state.RecordVersion)) // look has found that its host is gone
		return record
	}
	record := before.Begin(g.Self.ID, g.Fire, g.Now.UnixMilli())
	if !g.Count {
		record.Runs = 0
	} else if g.Fire.Trigger == 0 {
		record.Runs++
	}
	version := state.RecordVersion
	if version < 0 {
		c.add(roleRecord, i, registry.Create(l.Record(i), nil))
		version = 0
	}
	c.add(roleRecord, i, registry.Set(l.Record(i), record.Data(), version))
	c.add(roleItem, i, registry.Absent(l.ItemDisabled(i)))
	c.permit(g.Member, i, g.Permits[i])
	if g.mayBeTaken(mine, open) {
		c.add(roleItem, i, registry.Absent(l.FailoverItem(i)))
		c.add(roleItem, i, registry.Absent(l.ItemFailover(i)))
	}
	if runs, ok := g.forgotten[i]; open && ok {
		c.add(roleItem, i, registry.Check(runs.Path, runs.Version))
	} else if open {
		// Its host may live: under a Java leader items move while they run.
		c.add(roleItem, i, registry.Absent(l.Detail(state.Record.Owner)))
	}
	if g.View.Config.MonitorExecution {
		c.add(roleItem, i, g.runningMark(i))
	}
	switch {
	case state.Misfire:
		c.add(roleItem, i, registry.Delete(l.ItemMisfire(i), registry.AnyVersion))
	case g.MayRepeat():
		c.add(roleItem, i, registry.Absent(l.ItemMisfire(i)))
	}
	return record
}

// permit assigns a ticket to the item; path is empty if the item is under no limit.
func (c *commit) permit(m *Member, item int, path string) {
	if path != "" {
		c.add(rolePermit, item, registry.Set(path, permit.Holder{Host: m.Self.ID, Job: m.Job, Item: &item}.Data(), registry.AnyVersion))
	}
}

// mayBeTaken reports whether another host may take over an item, or may have done so. mine says that this host
// ran it last and to the end; open says that another host's run of it has not ended.
//
// A taken-over run continues when failover is switched off. If this host ran the item last and has owned it
// since, no other host can have taken it: hosts of ours set the record, and a Java host, even one that joined
// after the view, takes only items that are marked for it. Items are marked when a host that ran them dies, and
// no host has run this one since.
func (g *begin) mayBeTaken(mine, open bool) bool {
	return open || (g.View.Config.Failover && (!mine || g.mixed()))
}

// marked reports whether running marks outlive the host.
func (g *begin) marked() bool { return g.View.Config.MonitorExecution && g.View.Config.Failover }

// runningMark returns the op that makes the mark: ephemeral without failover, persistent with it, as in
// ElasticJob since 3.0.2.
func (g *begin) runningMark(item int) registry.Op {
	if g.View.Config.Failover {
		return registry.Create(g.Layout.ItemRunning(item), []byte(g.Self.ID))
	}
	return registry.CreateEphemeral(g.Layout.ItemRunning(item), []byte(g.Self.ID))
}

// begun is the state after a begin.
func (s ItemState) begun(r tree.Record, version int32, zxid int64) ItemState {
	s.Record, s.RecordVersion, s.RecordZxid, s.Misfire = r, version, zxid, false
	return s
}

// stale ends a begin because the share has changed.
func (g *begin) stale() {
	g.out.Stale = true
	if g.out.Items != nil {
		for _, i := range g.todo {
			g.out.Refused[i] = RefusedStale
		}
	}
}

// look finds out, in one read, why items could not begin, or whether they have begun although the commit's
// outcome was unknown. It hands back items that have begun and do not run.
func (g *begin) look(ctx context.Context, x *step.Exchange, items tree.Items) error {
	l, self := g.Layout, g.Self.ID
	items = slices.Clone(items)
	for {
		read := g.beginQueries(items)
		n, err := read.do(ctx, x, &g.out.Denied)
		if err != nil {
			return err
		}
		items, g.todo = g.out.Denied.without(items), g.out.Denied.without(g.todo)
		own := n.Data(l.RunsOf(self))
		actual, orphans := ownRuns(own, g.own.runs, g.own.version)
		asked := len(items)
		for _, i := range orphans {
			if !items.Contains(i) && g.todo.Contains(i) {
				items = append(items, i)
			}
		}
		if len(items) > asked { // begun by a later commit of an earlier attempt
			slices.Sort(items)
			continue
		}

		begun, done := make(map[int]bool), make(map[int]bool)
		for _, i := range items {
			again, has := g.understand(i, n, actual, orphans)
			begun[i], done[i] = has, !again
		}
		handBacks := slices.DeleteFunc(slices.Clone(orphans), func(i int) bool { return begun[i] })
		g.todo = slices.DeleteFunc(slices.Clone(g.todo), func(i int) bool { return done[i] })
		g.own = ownList{actual, tree.VersionOf(own)}
		if g.trigger && g.out.Items != nil && len(g.todo) == 0 {
			// It may have been consumed together with items that began.
			g.trigger = false
			_, err := x.Commit(ctx, registry.Delete(l.Trigger(self), registry.AnyVersion))
			if step.UnlessConflict(err) != nil {
				return err
			}
		}
		return g.handBack(ctx, x, handBacks)
	}
}

// beginQueries are the nodes that decide whether items can begin.
func (g *begin) beginQueries(items tree.Items) reading {
	l := g.Layout
	read := newReading(1 + 9*len(items))
	read.add(-1, registry.Data(l.RunsOf(g.Self.ID)))
	for _, i := range items {
		read.add(i, registry.Data(l.Record(i)), registry.Data(l.Item(i)), registry.Data(l.ItemDisabled(i)), registry.Data(l.ItemFailover(i)), registry.Data(l.ItemRunning(i)),
			registry.Data(l.ItemMisfire(i)), registry.Data(l.FailoverItem(i)))
		if path := g.Permits[i]; path != "" {
			read.add(i, registry.Data(path))
		}
		if owner := g.Items[i].Record.Owner; owner != "" {
			read.add(i, registry.Data(l.Detail(owner)), registry.Data(l.RunsOf(owner)))
		}
	}
	return read
}

// understand decides about one item that a commit has not begun: try again, refuse, or it has begun after all.
func (g *begin) understand(i int, n registry.Snapshot, actual tree.Runs, orphans tree.Items) (again, begun bool) {
	l, self := g.Layout, g.Self.ID
	state, record := g.Items[i], n.Data(l.Record(i))
	var owner, ownersRuns registry.Node // of the host that last began the item
	if id := state.Record.Owner; id != "" {
		owner, ownersRuns = n.Data(l.Detail(id)), n.Data(l.RunsOf(id))
	}
	exists := n.Data(l.Item(i)).Exists
	r := tree.ParseRecord(record.Data)
	open := r.Open() && r.Owner != self

	if orphans.Contains(i) && r.Owner == self && r.Open() && !r.Kill.Asked() && actual.FireOf(i).Same(g.Fire) {
		if g.out.Items == nil {
			g.out.Items = make(map[int]ItemState)
		}
		g.out.Items[i] = state.begun(r, record.Version, record.Mzxid)
		return false, true
	}
	if r.Held != 0 && exists {
		g.out.Refused[i], g.out.Held[i] = RefusedHeld, r
		if g.unknown && state.Record.Open() && r.Held == g.Now.UnixMilli() { // by that commit
			g.out.Holds = append(g.out.Holds, i)
		}
		return false, false
	}
	if !exists || tree.VersionOf(record) != state.RecordVersion {
		g.out.Refused[i], g.out.Stale = RefusedStale, true
		return false, false
	}
	if path := g.Permits[i]; path != "" && !n.Data(path).Exists {
		g.out.Refused[i] = RefusedPermit
		return false, false
	}
	if why := g.markedAgainst(i, n, r); why != "" {
		if g.out.Refused[i] = why; why == RefusedDisabled {
			g.out.Disabled[i], _ = tree.ParseMark(n.Data(l.ItemDisabled(i)).Data)
		}
		return false, false
	}
	runsOn := open && owner.Exists && !forgets(ownersRuns, i)
	marked := g.View.Config.MonitorExecution && n.Data(l.ItemRunning(i)).Exists
	if runsOn || marked {
		g.out.Refused[i] = RefusedRunning
		return false, false
	}
	misfire := n.Data(l.ItemMisfire(i)).Exists
	if misfire && !state.Misfire && g.MayRepeat() {
		g.out.Refused[i] = RefusedAgain
		return false, false
	}

	delete(g.forgotten, i)
	if open && owner.Exists {
		g.forgotten[i] = ownersRuns
	}
	runs, err := tree.ParseRuns(ownersRuns.Data)
	g.left[i] = open && err == nil && runs.Left
	state.Misfire = misfire
	g.Items[i] = state
	return true, false
}

// markedAgainst returns which operator's or failover mark keeps an item from beginning.
func (g *begin) markedAgainst(i int, n registry.Snapshot, r tree.Record) Refusal {
	l := g.Layout
	open, mine := r.Open() && r.Owner != g.Self.ID, r.Owner == g.Self.ID && !r.Open()
	if n.Data(l.ItemDisabled(i)).Exists {
		return RefusedDisabled
	}
	if n.Data(l.ItemFailover(i)).Exists && (g.View.Config.Failover || open) {
		return RefusedFailover
	}
	if n.Data(l.FailoverItem(i)).Exists && g.mayBeTaken(mine, open) {
		return RefusedFailover
	}
	return ""
}

// forgets reports whether a list of runs exists and does not have the item.
func forgets(n registry.Node, item int) bool {
	runs, err := tree.ParseRuns(n.Data)
	return n.Exists && err == nil && !runs.Has(item)
}

// handBack hands back items that this host has begun and does not run.
func (g *begin) handBack(ctx context.Context, x *step.Exchange, orphans tree.Items) error {
	if len(orphans) == 0 {
		return nil
	}
	settled, err := settleOrphans(ctx, x, g.Layout, g.Self.ID, g.own, orphans, &g.out.Denied)
	if err != nil {
		return err
	}
	g.own = settled.ownList
	g.out.Adopted = append(g.out.Adopted, settled.adopted...)
	return nil
}
