package coordination

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/latch"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Recovery is a host's wish to deal with what a crashed host left behind.
type Recovery struct {
	// Dead is the crashed host's instance id.
	Dead string
	// All is set to take whatever is left, not only this host's share of it.
	All bool
	// Limit is how many items this host can take now.
	Limit int
	// Busy are items that this host is running itself.
	Busy tree.Items
	Now  time.Time
}

// Recovered is what became of a Recovery.
type Recovered struct {
	// Claimed were begun by this host, as failover of the fires they belong to.
	Claimed []Claim
	// Lost were begun by the dead host and will not be run again in their
	// fire, because failover is off or, as State shows, another host has begun
	// them for a later one. They are reported, as Elsewhere are, even if the
	// exchange ends with an error: its commit may have taken effect without an answer.
	Lost []Claim
	// Elsewhere were run again by Java hosts.
	Elsewhere []Claim
	// Held are held back: too many hosts in a row have died in runs of the
	// item. State.Record says which.
	Held []Claim
	// Killed were not taken over: an operator had killed the run. The reason is
	// in State.Record.
	Killed []Claim
	// Left were not taken: disabled, somebody else's share, or over Limit.
	Left tree.Items
	// Settled is set when nothing of the dead host is left.
	Settled bool
	// Gone is set if the dead host was found to have died, Stopped if it has left in
	// good order, with runs that had not ended.
	Gone, Stopped bool
	Commits       int
}

// Claim is one item of a crashed host.
type Claim struct {
	Item  int
	Fire  tree.Fire
	State ItemState
}

// Recover takes over items that a crashed host had begun, or with failover off
// writes down that they are lost. The items are divided in turn among the hosts
// that run nothing of the job, or among all if each runs something; what the
// first host that takes its share has found is written down with it, and the
// others go by that. Each takes its share in one commit, which also begins the
// items. Any host may call it, any number of times; after an error the next
// call finds what had been claimed nevertheless.
//
// A host is dead when its instance node and its detail node are both gone.
// Where only the instance node is, an operator has stopped the host and it is
// finishing what it runs.
//
// Dead is empty for items that Java hosts have marked as crashed and that are
// in no host's list of runs.
//
// While Java hosts are in the job, or have marked items, the items are taken in
// ElasticJob's failover latch, and what a Java host has taken is left to it. A
// Java host marks and takes only what has a running mark that outlived its
// host; once such a mark and all others are gone, it has run the item. If no Java
// host was in the job since the run began, a person has deleted the mark.
//
// The host stands in that latch as m.Takeover. If Behind is set there afterwards, call
// Recover again when that node is gone.
func (m *Member) Recover(ctx context.Context, r Recovery) (Recovered, error) {
	g := recovery{Member: m, Recovery: r, own: ownList{m.Runs, m.RunsVersion}}
	err := m.perform(ctx, "recover", func(ctx context.Context, x *step.Exchange) error {
		for {
			done, err := g.look(ctx, x)
			if done || err != nil {
				return err
			}
		}
	})
	if err != nil {
		m.Unknown = true
		return g.out, err
	}
	m.Runs, m.RunsVersion = g.own.runs, g.own.version
	m.Unknown = m.Unknown && g.out.Commits == 0
	return g.out, nil
}

// recovery is a Recovery on its way.
type recovery struct {
	*Member
	Recovery
	own ownList // as of the newest commit or look
	out Recovered
	// leave is set while it is this host's turn: the ops that leave the latch.
	leave []registry.Op
	// takers are the hosts among which all of owed is divided, in turn.
	takers []string
	owed   tree.Items
	// alive are the hosts whose detail node is there.
	alive []string
	// from is where to go on: the items below it have been decided about.
	from int
	// javaSeen is until when a Java host was in the job, Unix milliseconds; it is
	// known if an item of the dead host has lost its marks.
	javaSeen int64
}

// look reads what the dead host has left, and takes what this host is to take.
// done is false if it is to look again.
func (r *recovery) look(ctx context.Context, x *step.Exchange) (done bool, err error) {
	if r.Dead == "" {
		return r.lookAtMarks(ctx, x)
	}
	l, takers := r.View.Layout, r.View.takers()
	lives := []registry.Query{registry.Data(l.Instance(r.Dead)), registry.Data(l.Detail(r.Dead))} // and may leave now
	read := []registry.Query{registry.Data(l.RunsOf(r.Dead)), registry.Data(l.Members()), registry.Data(l.AssignmentOf(r.Dead)), registry.Data(l.Config()), registry.Data(l.RunsOf(r.View.Self.ID)), registry.Children(l.Details())}
	for _, id := range takers {
		read = append(read, registry.Data(l.RunsOf(id)))
	}
	n, err := x.ReadAfter(ctx, lives, read...)
	if err != nil {
		return false, err
	}
	r.alive = n.Children(l.Details())
	if !n.Data(l.Config()).Exists {
		return false, tree.ErrRemoved
	}
	if adopted, err := r.adopt(ctx, x, n.Data(l.RunsOf(r.View.Self.ID))); adopted || err != nil {
		return false, err
	}
	r.out.Left = r.before(r.out.Left)
	if n.Data(l.Instance(r.Dead)).Exists || n.Data(l.Detail(r.Dead)).Exists {
		return true, nil // it is not dead
	}

	runs := n.Data(l.RunsOf(r.Dead))
	owed, err := tree.ParseRuns(runs.Data)
	if err != nil {
		// No host knows what was running: Sweep removes its marks, the items' records show what is due.
		owed = tree.Runs{}
	}
	r.out.Stopped = r.out.Stopped || owed.Left
	r.out.Gone = !r.out.Stopped && (r.out.Gone || slices.Contains(tree.ParseMembers(n.Data(l.Members()).Data), r.Dead))
	none, err := r.beyond(ctx, x, owed.Items())
	if err != nil {
		return false, err
	}
	owed = owed.Without(none)
	if len(owed.Runs) == 0 {
		if !r.All && !r.View.IsJanitor() {
			return true, nil // one buries it, not all
		}
		return true, r.bury(ctx, x, n)
	}
	if len(owed.Takers) == 0 {
		owed.Owed, owed.Takers = owed.Items(), idle(l, takers, n)
	}
	r.owed, r.takers = owed.Owed, owed.Takers
	return r.take(ctx, x, owed, runs)
}

// before is the part of items that is below from.
func (r *recovery) before(items tree.Items) tree.Items {
	n, _ := slices.BinarySearch(items, r.from)
	return items[:n]
}

// beyond finds out which of the items the job has never had: those beyond the
// total count that are in no tree. Nothing is owed of what an external edit has made up.
func (r *recovery) beyond(ctx context.Context, x *step.Exchange, items tree.Items) (none tree.Items, err error) {
	n, _ := slices.BinarySearch(items, max(r.View.Config.ShardingTotalCount, r.View.Division.Total))
	if n == len(items) {
		return nil, nil
	}
	return neverWere(ctx, x, r.View.Layout, items[n:])
}

// neverWere finds out which of the items have a node in neither tree. No host
// begins an item that has no record.
func neverWere(ctx context.Context, x *step.Exchange, l tree.Layout, items tree.Items) (none tree.Items, err error) {
	n, err := x.Read(ctx, registry.Children(l.Records()), registry.Children(l.Sharding()))
	if err != nil {
		return nil, err
	}
	were := make(map[int]bool)
	for _, name := range slices.Concat(n.Children(l.Records()), n.Children(l.Sharding())) {
		if i, ok := tree.ItemNumber(name); ok {
			were[i] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(items), func(i int) bool { return were[i] }), nil
}

// adopt claims what this host has begun by a commit whose outcome was unknown, and
// hands back what turns out not to be its own any more. own is the node of its list
// of runs. adopted is true if there was something of that kind.
func (r *recovery) adopt(ctx context.Context, x *step.Exchange, own registry.Node) (adopted bool, err error) {
	l, self, out := r.View.Layout, r.View.Self.ID, &r.out
	if tree.VersionOf(own) == r.own.version {
		return false, nil
	}
	actual, orphans := ownRuns(own, r.own.runs, r.own.version)
	r.own = ownList{actual, tree.VersionOf(own)}
	if len(orphans) == 0 {
		return false, nil
	}

	none, err := neverWere(ctx, x, l, orphans)
	if err != nil {
		return false, err
	}
	r.own.runs = r.own.runs.Without(none)
	orphans = slices.DeleteFunc(slices.Clone(orphans), none.Contains)
	states, err := readItems(ctx, x, l, orphans)
	if err != nil {
		return false, err
	}
	var strange tree.Items
	for _, i := range orphans {
		state := states[i]
		if state.Record.Owner == self && state.Record.Open() && !state.Record.Kill.Asked() {
			out.Claimed = append(out.Claimed, Claim{Item: i, Fire: r.own.runs.FireOf(i), State: state})
		} else {
			strange = append(strange, i)
		}
	}
	out.Commits++
	r.own, err = handBack(ctx, x, l, self, r.own, strange)
	return true, err
}

// bury removes the last traces of a host that left nothing unfinished. If
// items are still assigned to it they are resharded: the instances may be
// the same as at the last division, for a host that was stopped by an operator
// is not counted any more and keeps what it runs. n has the nodes of the dead host.
func (r *recovery) bury(ctx context.Context, x *step.Exchange, n registry.Snapshot) error {
	l := r.View.Layout
	members, assigned := n.Data(l.Members()), n.Data(l.AssignmentOf(r.Dead))
	var ops []registry.Op
	if list := tree.ParseMembers(members.Data); slices.Contains(list, r.Dead) {
		ops = append(ops, registry.Set(l.Members(), list.Without(r.Dead).Data(), members.Version))
	}
	for _, node := range []registry.Node{n.Data(l.RunsOf(r.Dead)), assigned} {
		if node.Exists {
			ops = append(ops, registry.Delete(node.Path, node.Version))
		}
	}
	if len(ops) == 0 { // somebody else has done it
		r.out.Settled = true
		return nil
	}

	var err error
	// A Java leader divides of its own accord when an instance goes, and may
	// have done so already: its division says nothing to our assignment nodes.
	if divide := len(assigned.Data) > 0 && !r.View.JavaLed(); divide {
		_, err = x.Commit(ctx, append(slices.Clone(ops), registry.Create(l.Necessary(), nil))...)
		if conflict := step.ConflictOf(err); conflict != nil && conflict.Index == len(ops) {
			_, err = x.Commit(ctx, ops...) // the flag stands already
		}
	} else {
		_, err = x.Commit(ctx, ops...)
	}
	if step.Contested(err) { // somebody else does it, or the next call sees that it is done
		return nil
	}
	if err == nil {
		r.out.Commits++
		r.out.Settled = true
	}
	return err
}

// Bury removes the last traces of those of the dead hosts that left nothing
// unfinished, all in one commit: after an outage that is every host there was. It
// leaves alone who lives: one that an operator has stopped, or one that is on its
// way into the job. Without bury it only looks. left are those with whom Recover
// has to deal, gone those of the others that have not left in good order.
func (m *Member) Bury(ctx context.Context, dead []string, bury bool) (left, gone []string, err error) {
	l, v := m.Layout, m.View
	var lives, read []registry.Query
	for _, id := range dead {
		lives = append(lives, registry.Data(l.Instance(id)), registry.Data(l.Detail(id)))
		read = append(read, registry.Data(l.RunsOf(id)), registry.Data(l.AssignmentOf(id)))
	}
	read = append(read, registry.Data(l.Members()))
	err = m.perform(ctx, "bury", func(ctx context.Context, x *step.Exchange) error {
		n, err := x.ReadAfter(ctx, lives, read...)
		if err != nil {
			return err
		}
		var ops []registry.Op
		if left, gone, ops = v.burials(dead, n); !bury || len(ops) == 0 {
			return nil
		}
		_, err = x.Commit(ctx, ops...)
		if step.Contested(err) { // somebody else does it, or the next call
			return nil
		}
		return err
	})
	return left, gone, err
}

// burials are what Bury returns, and the ops that remove as many as fit a commit.
func (v View) burials(dead []string, n registry.Snapshot) (left, gone []string, ops []registry.Op) {
	l := v.Layout
	members := n.Data(l.Members())
	list := tree.ParseMembers(members.Data)
	rest, divide := list, false
	for _, id := range dead {
		lives := n.Data(l.Instance(id)).Exists || n.Data(l.Detail(id)).Exists
		if lives || !slices.Contains(list, id) { // or is buried
			continue
		}
		runs, assigned := n.Data(l.RunsOf(id)), n.Data(l.AssignmentOf(id))
		owed, err := tree.ParseRuns(runs.Data)
		if err == nil && len(owed.Runs) > 0 {
			left = append(left, id)
			continue
		}
		if rest = rest.Without(id); !owed.Left {
			gone = append(gone, id)
		}
		divide = divide || len(assigned.Data) > 0
		for _, node := range []registry.Node{runs, assigned} {
			if node.Exists {
				ops = append(ops, registry.Delete(node.Path, node.Version))
			}
		}
		if step.Size(ops) > step.Budget {
			break // the others next time
		}
	}
	if len(rest) == len(list) {
		return left, nil, nil
	}
	ops = append(ops, registry.Set(members.Path, rest.Data(), members.Version))
	if divide && !v.JavaLed() && !v.Necessary { // as for one that is buried alone
		ops = append(ops, registry.Create(l.Necessary(), nil))
	}
	return left, gone, ops
}

// owedItem is what the registry holds of one item of a crashed host.
type owedItem struct {
	fire                                       tree.Fire
	state                                      ItemState
	running, failover, failovering, mark, node registry.Node
}

// owedAtOnce is how many items are read for one commit: about as many as it has
// room for.
const owedAtOnce = 500

// owing are some of the items that are owed, as they were read.
type owing struct {
	items map[int]owedItem
	// end is the first item that was not looked at, all of them if more is
	// false.
	end  int
	more bool
}

// readOwed reads some of the items that are owed and that this host takes or
// reports. What others are to take they look after; where no host takes anything,
// one of ours reports it.
func (r *recovery) readOwed(ctx context.Context, x *step.Exchange, owed tree.Runs) (owing, error) {
	l, cfg := r.View.Layout, r.View.Config
	reports := r.View.IsJanitor() && (!cfg.Failover || !cfg.MonitorExecution)
	o := owing{items: make(map[int]owedItem)}
	var items tree.Items
	for i := range owed.Ranges().Since(r.from) {
		if !reports && !r.takes(i) {
			continue
		}
		if len(items) == owedAtOnce {
			o.end, o.more = i, true
			break
		}
		items = append(items, i)
	}

	read := itemQueries(l, items)
	for _, i := range items {
		read = append(read, registry.Data(l.ItemRunning(i)), registry.Data(l.ItemFailover(i)), registry.Data(l.ItemFailovering(i)), registry.Data(l.FailoverItem(i)), registry.Data(l.Item(i)))
	}
	n, err := x.Read(ctx, read...)
	if err != nil {
		return o, err
	}
	unmarked := false
	for _, i := range items {
		it := owedItem{fire: owed.FireOf(i), state: itemState(l, n, i), running: n.Data(l.ItemRunning(i)), failover: n.Data(l.ItemFailover(i)),
			failovering: n.Data(l.ItemFailovering(i)), mark: n.Data(l.FailoverItem(i)), node: n.Data(l.Item(i))}
		o.items[i] = it
		unmarked = unmarked || (owed.Java == "" && owed.MarkedOf(i) && it.unmarked())
	}
	if unmarked {
		err = r.lookForJava(ctx, x)
	}
	return o, err
}

// lookForJava finds out until when a Java host was in the job. The view may be
// older than the marks that are gone.
func (r *recovery) lookForJava(ctx context.Context, x *step.Exchange) error {
	l := r.View.Layout
	n, err := x.Read(ctx, registry.Children(l.Instances()), registry.Data(l.Members()), registry.Data(l.Assignment()), registry.Data(l.Epoch()), registry.Data(l.ItemInstance(0)))
	if err != nil {
		return err
	}
	members, division := tree.ParseMembers(n.Data(l.Members()).Data), tree.ParseDivision(n.Data(l.Assignment()).Data)
	stranger := slices.ContainsFunc(n.Children(l.Instances()), func(id string) bool { return !slices.Contains(members, id) })
	r.javaSeen = division.JavaSeen
	if stranger || division.Java || len(division.Foreigners) > 0 || byJava(n.Data(l.Epoch()), n.Data(l.ItemInstance(0))) {
		r.javaSeen = math.MaxInt64
	}
	return nil
}

// unmarked reports that an item has no mark of who runs it, or is to.
func (it owedItem) unmarked() bool {
	return !it.running.Exists && !it.failover.Exists && !it.failovering.Exists && !it.mark.Exists
}

// fate is what becomes of an item that is owed.
type fate uint8

const (
	fateSettled   fate = iota + 1 // nothing is owed any more
	fateLost                      // it will not be run again
	fateOvertaken                 // nor this one; its record names a newer run
	fateElsewhere                 // a Java host has run it
	fateKilled                    // nor this one: an operator had killed it
	fateHeld                      // nor this one, and the item is held back
	fateLeft                      // not for this host, or not now
	fateClaim
)

// judge decides about one item. claimed is how many this host has claimed so far.
func (r *recovery) judge(i int, it owedItem, owed tree.Runs, claimed int) fate {
	java := owed.Java != "" || r.Dead == ""
	if r.settled(it, owed) {
		return fateSettled
	}
	if !java && it.state.Record.Owner != r.Dead {
		// The host that completes an item, or takes it over, takes it from the list
		// in the same commit. This one was not: with failover off its new owner
		// begins it for the next instant, and may be faster than we are.
		return fateOvertaken
	}
	if java && slices.Contains(r.View.Instances, owed.Java) {
		return fateLeft // it is back, under the same id
	}
	killed := !java && it.state.Record.Kill.Asked()
	if !r.repeats(i, it) {
		if killed {
			return fateKilled
		}
		// One of us reports it, not all.
		if !r.View.IsJanitor() {
			return fateLeft
		}
		if r.holds(it, owed) {
			return fateHeld
		}
		return fateLost
	}
	if !java && owed.MarkedOf(i) && it.unmarked() && it.state.Record.Begun <= r.javaSeen {
		return fateElsewhere
	}
	if r.taken(it, owed) {
		return fateLeft
	}
	if killed {
		return fateKilled
	}
	mayTake := claimed < r.Limit && !it.state.Disabled && !r.Busy.Contains(i) && r.View.Enabled && r.takes(i)
	if !mayTake {
		return fateLeft
	}
	if r.holds(it, owed) {
		return fateHeld
	}
	return fateClaim
}

// deadOf is the host whose marks are those of the dead one.
func (r *recovery) deadOf(owed tree.Runs) string {
	if owed.Java != "" {
		return owed.Java
	}
	return r.Dead
}

// settled reports that nothing is owed of an item any more.
func (r *recovery) settled(it owedItem, owed tree.Runs) bool {
	record, dead := it.state.Record, r.deadOf(owed)
	if java := owed.Java != "" || r.Dead == ""; !java {
		return record.Owner == dead && !record.Open()
	}
	runsOnOurs := record.Open() && slices.Contains(r.View.Members, record.Owner) && r.lives(record.Owner)
	return runsOnOurs || (!it.mark.Exists && !names(it.running, dead) && !names(it.failovering, dead))
}

// repeats reports whether hosts repeat an item at all: failover is on, and the
// total count was not lowered since.
func (r *recovery) repeats(i int, it owedItem) bool {
	cfg := r.View.Config
	return cfg.Failover && cfg.MonitorExecution && it.node.Exists && (cfg.ShardingTotalCount <= 0 || i < cfg.ShardingTotalCount)
}

// taken reports that another host runs an item, or may. A failover mark that is not
// ephemeral is unowned: an external edit has made it.
func (r *recovery) taken(it owedItem, owed tree.Runs) bool {
	taken := func(mark registry.Node) bool {
		return mark.Exists && slices.Contains(r.View.Instances, string(mark.Data))
	}
	return taken(it.failovering) || taken(it.running) || (it.failover.Ephemeral && (taken(it.failover) || !names(it.failover, r.deadOf(owed))))
}

// names reports whether a mark is there and names a host.
func names(mark registry.Node, id string) bool { return mark.Exists && string(mark.Data) == id }

// mourned is the item's record with the death of the dead host, if that died
// with the run: not one that left in good order, and no Java host, which ran
// another program.
func (r *recovery) mourned(it owedItem, owed tree.Runs) tree.Record {
	if r.Dead == "" || owed.Java != "" || owed.Left {
		return it.state.Record
	}
	return it.state.Record.NoteDeath(r.Dead)
}

// holds reports whether the dead host is one too many for the item.
func (r *recovery) holds(it owedItem, owed tree.Runs) bool {
	return tooMany(r.View.Config, it.state.Record, r.mourned(it, owed))
}

// tooMany reports whether a death brings an item's record to the job's limit.
func tooMany(c jobconfig.Configuration, before, after tree.Record) bool {
	guest, _ := c.Guest() // what cannot be read has its default
	return guest.MaxHostDeaths > 0 && after.Deaths > before.Deaths && after.Deaths >= guest.MaxHostDeaths
}

// taking is what a host writes about items that are owed: what it closes and what
// it claims.
type taking struct {
	commit
	closed  Recovered // what is closed, by kind
	claims  map[int]Claim
	begun   []begins   // the claims, as they follow each other
	dropped tree.Items // from the dead host's list
	marked  bool       // a Java host has marked one of the claims
}

// begins are items that are begun for one fire.
type begins struct {
	tree.Fire
	items tree.Items
}

// take decides item by item and writes it in commits. done is false if this host is
// to look again.
func (r *recovery) take(ctx context.Context, x *step.Exchange, owed tree.Runs, runs registry.Node) (done bool, err error) {
	l, self := r.View.Layout, r.View.Self.ID
	t, o, err := r.nextTaking(ctx, x, owed, runs)
	if err != nil {
		return false, err
	}
	if len(t.dropped) == 0 {
		return true, r.giveWay(ctx, x)
	}
	if len(t.claims) > 0 && r.leave == nil && (t.marked || r.View.Mixed()) {
		turn, err := latch.Stand(ctx, x, l, self, l.FailoverLatch(), &r.Takeover)
		if err != nil || turn == nil {
			return true, err
		}
		r.leave = turn.Leave
		return false, nil
	}

	dead := r.deadOf(owed)
	mine, left := r.own.runs, owed.Without(t.dropped)
	for _, b := range t.begun {
		mine = mine.With(b.Fire, true, b.items)
	}
	if r.Dead != "" {
		t.add(roleRoot, -1, registry.Absent(l.Instance(dead)))
		t.add(roleRoot, -1, registry.Absent(l.Detail(dead)))
		t.add(roleShare, -1, registry.Set(runs.Path, left.Data(), runs.Version))
	}
	if len(t.claims) > 0 {
		t.addRuns(l, self, mine, r.own.version)
	}
	for _, op := range r.leave {
		t.add(roleRoot, -1, op)
	}
	results, err := x.Commit(ctx, t.ops...)
	if conflict := step.ConflictOf(err); conflict != nil && conflict.Op.Path == l.Instance(dead) {
		return true, r.giveWay(ctx, x) // it is not dead
	}
	if step.IsUnknown(err) { // if it took effect no host finds these again
		r.out.note(t.closed)
	}
	if step.Contested(err) { // another host took a share meanwhile, or an item changed
		r.leave = nil
		return false, nil
	}
	if err != nil {
		return false, err
	}

	r.noteTaken(t, mine, results)
	if o.more {
		r.from = o.end
		return false, nil
	}
	if len(left.Runs) > 0 || r.Dead == "" {
		return true, nil
	}
	n, err := x.Read(ctx, registry.Data(runs.Path), registry.Data(l.Members()), registry.Data(l.AssignmentOf(r.Dead)))
	if err != nil {
		return false, err
	}
	return true, r.bury(ctx, x, n)
}

// nextTaking reads what is owed, and decides about it, until there is something to
// write or nothing more to read.
func (r *recovery) nextTaking(ctx context.Context, x *step.Exchange, owed tree.Runs, runs registry.Node) (taking, owing, error) {
	for {
		o, err := r.readOwed(ctx, x, owed)
		if err != nil {
			return taking{}, owing{}, err
		}
		t := r.decide(owed, runs, &o)
		if len(t.dropped) > 0 || !o.more {
			return t, o, nil
		}
		r.from = o.end
	}
}

// noteTaken notes what a commit has closed and claimed. mine is this host's list of
// runs since then.
func (r *recovery) noteTaken(t taking, mine tree.Runs, results []registry.Result) {
	r.out.Commits++
	r.out.note(t.closed)
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

// decide decides about the items that were read, as many as fit one commit; of the
// others o shows where to go on.
func (r *recovery) decide(owed tree.Runs, runs registry.Node, o *owing) taking {
	t := taking{claims: make(map[int]Claim)}
	room, last := max(itemRoom(r.own.runs)-len(runs.Data), leastRoom), -1
	for i := range owed.Ranges().Since(r.from) {
		if o.more && i >= o.end {
			break
		}
		if room <= 0 {
			o.end, o.more = i, true
			break
		}
		it, read := o.items[i]
		if !read {
			r.out.Left = append(r.out.Left, i)
			continue
		}
		f := r.judge(i, it, owed, len(r.out.Claimed)+len(t.claims))
		if f == fateLeft {
			r.out.Left = append(r.out.Left, i)
			continue
		}
		before := len(t.ops)
		r.write(f, i, it, owed, &t)
		t.dropped = append(t.dropped, i)
		room -= step.Size(t.ops[before:]) + 2*tree.ListGrowth(i, last) // in two lists
		last = i
	}
	return t
}

// write adds what becomes of one item.
func (r *recovery) write(f fate, i int, it owedItem, owed tree.Runs, t *taking) {
	l, now, dead := r.View.Layout, r.Now.UnixMilli(), r.deadOf(owed)
	claim := Claim{Item: i, Fire: it.fire, State: it.state}
	end := func(record tree.Record) Claim {
		record = record.Follow(it.state.RecordZxid)
		if dead == r.Dead && dead != "" { // what a Java host ran is in no record
			t.add(roleRecord, -1, registry.Set(l.Record(i), record.Data(), it.state.RecordVersion))
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
		closed.Killed = append(closed.Killed, end(it.state.Record.EndKilled(EndedBefore, now)))
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

// note keeps what is closed, once.
func (out *Recovered) note(closed Recovered) {
	add := func(to []Claim, claims []Claim) []Claim {
		told := to
		for _, c := range claims {
			if !slices.ContainsFunc(told, func(d Claim) bool { return c.Item == d.Item && c.Fire == d.Fire }) {
				to = append(to, c)
			}
		}
		return to
	}
	out.Lost, out.Elsewhere = add(out.Lost, closed.Lost), add(out.Elsewhere, closed.Elsewhere)
	out.Held, out.Killed = add(out.Held, closed.Held), add(out.Killed, closed.Killed)
}

// giveWay ends a recovery that has nothing to write, and leaves the latch.
func (r *recovery) giveWay(ctx context.Context, x *step.Exchange) error {
	if r.leave == nil && !r.Takeover.Standing {
		return nil
	}
	return latch.Leave(ctx, x, r.View.Self.ID, r.View.Layout.FailoverLatch(), &r.Takeover)
}

// claim adds what begins an item that is owed, after the given record.
func (r *recovery) claim(i int, claim *Claim, it owedItem, before tree.Record, c *commit) {
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

// lookAtMarks claims what Java hosts have marked as crashed and is in no host's list
// of runs. A mark on an item that a host of ours runs was made too
// late: it is taken away. done is false if this host is to look again.
func (r *recovery) lookAtMarks(ctx context.Context, x *step.Exchange) (done bool, err error) {
	l, self := r.View.Layout, r.View.Self.ID
	r.takers = r.View.takers()
	n, err := x.Read(ctx, registry.Children(l.FailoverItems()), registry.Children(l.Runs()), registry.Children(l.Details()), registry.Data(l.Config()))
	if err != nil {
		return false, err
	}
	if !n.Data(l.Config()).Exists {
		return false, tree.ErrRemoved
	}
	hosts := n.Children(l.Runs())
	r.alive = n.Children(l.Details())
	var marks tree.Items
	for _, name := range n.Children(l.FailoverItems()) {
		if i, ok := tree.ItemNumber(name); ok {
			marks = append(marks, i)
		}
	}
	slices.Sort(marks)

	read := []registry.Query{registry.Data(l.RunsOf(self))}
	for _, id := range hosts {
		read = append(read, registry.Data(l.RunsOf(id)))
	}
	if n, err = x.Read(ctx, read...); err != nil {
		return false, err
	}
	if adopted, err := r.adopt(ctx, x, n.Data(l.RunsOf(self))); adopted || err != nil {
		return false, err
	}
	r.out.Left = r.before(r.out.Left)
	listed, late := r.lateMarks(marks, hosts, n)
	if len(late) > 0 {
		return false, drop(ctx, x, late)
	}

	free := slices.DeleteFunc(marks, func(i int) bool { return listed[i] })
	none, err := r.beyond(ctx, x, free)
	if err != nil {
		return false, err
	}
	for _, i := range none {
		late = append(late, registry.Absent(l.Item(i)), registry.Delete(l.FailoverItem(i), registry.AnyVersion))
	}
	if len(late) > 0 {
		return false, drop(ctx, x, late)
	}
	if len(free) == 0 {
		return true, r.giveWay(ctx, x)
	}
	fire := tree.Fire{Instant: r.Now.UnixMilli(), Source: tree.SourceFailover}
	return r.take(ctx, x, tree.Runs{}.With(fire, true, free), registry.Node{})
}

// lateMarks removes marks of items that a host of ours runs. listed are the items
// that are in some host's list of runs.
func (r *recovery) lateMarks(marks tree.Items, hosts []string, n registry.Snapshot) (listed map[int]bool, late []registry.Op) {
	l := r.View.Layout
	listed = make(map[int]bool)
	for _, id := range hosts {
		node := n.Data(l.RunsOf(id))
		runs, err := tree.ParseRuns(node.Data)
		if err != nil {
			continue
		}
		items := runs.Items()
		for _, i := range marks {
			if !items.Contains(i) {
				continue
			}
			if !listed[i] && slices.Contains(r.alive, id) {
				late = append(late, registry.Check(node.Path, node.Version), registry.Delete(l.FailoverItem(i), registry.AnyVersion))
			}
			listed[i] = true
		}
	}
	return listed, late
}

// drop takes marks away, as many as fit a commit; look again afterwards.
func drop(ctx context.Context, x *step.Exchange, ops []registry.Op) error {
	_, err := x.Commit(ctx, step.FirstPart(ops)...)
	return step.UnlessConflict(err)
}

// clear removes the marks that the dead host left on an item.
func (it owedItem) clear(dead string, c *commit, item int) {
	for _, n := range []registry.Node{it.running, it.failover, it.failovering} {
		if n.Exists && string(n.Data) == dead {
			c.add(roleItem, item, registry.Delete(n.Path, registry.AnyVersion))
		}
	}
}

// idle are those of the takers that run nothing of the job; all, if each does.
func idle(l tree.Layout, takers []string, n registry.Snapshot) []string {
	var idle []string
	for _, id := range takers {
		if r, err := tree.ParseRuns(n.Data(l.RunsOf(id)).Data); err == nil && len(r.Runs) == 0 {
			idle = append(idle, id)
		}
	}
	if len(idle) == 0 {
		return takers
	}
	return idle
}

// takes reports whether this host takes an item: any of them if All is set,
// else its share of all. Which that is does not depend on what the others have
// taken already.
func (r *recovery) takes(item int) bool {
	if r.All || len(r.takers) == 0 {
		return r.All
	}
	rank, known := slices.BinarySearch(r.owed, item)
	if !known {
		rank = item
	}
	return r.takers[rank%len(r.takers)] == r.View.Self.ID
}

// lives reports whether a host may still run something: one that an operator
// has stopped is not in the job any more and finishes what it runs.
func (r *recovery) lives(id string) bool {
	return slices.Contains(r.View.Instances, id) || slices.Contains(r.alive, id)
}

// takers are the hosts of ours among which crashed items are divided.
func (v View) takers() []string {
	var takers []string
	for _, id := range v.Instances {
		if slices.Contains(v.Members, id) && !slices.Contains(v.Division.Excluded, id) && !slices.Contains(v.Division.Draining, id) {
			takers = append(takers, id)
		}
	}
	return takers
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
