package coordination

import (
	"math"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
)

// Recovery is a host's wish to deal with what a crashed host left behind.
type Recovery struct {
	View View
	// Dead is the crashed host's instance id.
	Dead string
	// All is set to take whatever is left, not only this host's share of it.
	All bool
	// Limit is how many items this host can take now.
	Limit int
	// Busy are items that this host is running itself.
	Busy Items
	// Line is this host's place in ElasticJob's failover latch, in which it
	// stands while Java hosts may take the same items. If Line.Behind is set
	// afterwards, call Recover again when that is gone.
	Line *Line
	// Runs is what this host has begun already.
	Runs        Runs
	RunsVersion int32
	Now         time.Time

	// leave is set while it is this host's turn: the ops that leave the latch.
	leave []registry.Op
	// takers are the hosts among which all of owed is divided, in turn.
	takers []string
	owed   Items
	// alive are the hosts whose detail node is there.
	alive []string
	// from is where to go on: the items below it have been decided about.
	from int
	// kills are what operators had asked of the dead host.
	kills Kills
	// javaSeen is until when a Java host was in the job, Unix milliseconds; it is
	// known if an item of the dead host has lost its marks.
	javaSeen int64
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
	Left        Items
	Runs        Runs
	RunsVersion int32
	// Settled is set when nothing of the dead host is left.
	Settled bool
	Commits int
}

// Claim is one item of a crashed host.
type Claim struct {
	Item  int
	Fire  Fire
	State ItemState
	// Owner is the host that died.
	Owner string
}

// OutcomeElsewhere is the outcome of a run whose host died and which a Java
// host has repeated, with whatever outcome.
const OutcomeElsewhere = "ELSEWHERE"

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
func Recover(r Recovery, out *Recovered) Move {
	if r.Line == nil {
		r.Line = &Line{}
	}
	r.takers = r.View.takers() // of what is in no host's list
	*out = Recovered{Runs: r.Runs, RunsVersion: r.RunsVersion}
	return r.look(out)
}

func (r Recovery) look(out *Recovered) Move {
	l := r.View.Layout
	if r.Dead == "" {
		return r.lookAtMarks(out)
	}
	read := []registry.Query{registry.Data(l.runsOf(r.Dead)), registry.Data(l.instance(r.Dead)), registry.Data(l.detail(r.Dead)), registry.Data(l.members()), registry.Data(l.assignmentOf(r.Dead)), registry.Data(l.config()), registry.Data(l.runsOf(r.View.Self.ID)), registry.Children(l.details()), registry.Data(l.kill(r.Dead))}
	fixed, takers := len(read), r.View.takers()
	for _, id := range takers {
		read = append(read, registry.Data(l.runsOf(id)))
	}
	return Move{Name: "recover", Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		r.alive = n[7].Names
		runs, instance, detail, members, assigned, own, kill := n[0], n[1], n[2], n[3], n[4], n[6], n[8]
		r.kills = parseKills(kill.Data)
		if !n[5].Exists {
			return Move{}, ErrRemoved
		}
		if actual, orphans := ownRuns(own, out.Runs, out.RunsVersion); versionOf(own) != out.RunsVersion {
			out.Runs, out.RunsVersion = actual, versionOf(own)
			if len(orphans) > 0 {
				return r.adopt(orphans, out), nil
			}
		}
		out.Left = r.before(out.Left)
		if instance.Exists || detail.Exists {
			return Done() // it is not dead
		}
		owed, err := parseRuns(runs.Data)
		if err != nil {
			// No host knows what was running. Its marks are swept by
			// Sweep; what is due is found from the items' records.
			owed = Runs{}
		}
		return r.beyond(owed.Items(), func(none Items) (Move, error) {
			owed := owed.without(none)
			if len(owed.Runs) == 0 {
				if !r.All && !r.View.IsJanitor() {
					return Done() // one buries it, not all
				}
				return r.bury(runs, members, assigned, kill, out), nil
			}
			if len(owed.Takers) == 0 {
				owed.Owed, owed.Takers = owed.Items(), idle(takers, n[fixed:])
			}
			r.owed, r.takers = owed.Owed, owed.Takers
			return r.readOwed(owed, runs, out)
		})
	}}
}

// before is the part of items that is below from.
func (r Recovery) before(items Items) Items {
	n, _ := slices.BinarySearch(items, r.from)
	return items[:n]
}

// beyond finds out which of the items the job has never had: those beyond the
// total count that are in no tree. Nothing is owed of what an external edit has made up.
func (r Recovery) beyond(items Items, then func(none Items) (Move, error)) (Move, error) {
	n, _ := slices.BinarySearch(items, max(r.View.Config.ShardingTotalCount, r.View.Division.Total))
	if n == len(items) {
		return then(nil)
	}
	return neverWere(r.View.Layout, items[n:], then), nil
}

// neverWere finds out which of the items have a node in neither tree. Nobody
// begins an item that has no record.
func neverWere(l Layout, items Items, then func(none Items) (Move, error)) Move {
	return Move{Name: "look for items", Read: []registry.Query{registry.Children(l.records()), registry.Children(l.sharding())}, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		were := make(map[int]bool)
		for _, name := range slices.Concat(n[0].Names, n[1].Names) {
			if i, ok := itemNumber(name); ok {
				were[i] = true
			}
		}
		return then(slices.DeleteFunc(slices.Clone(items), func(i int) bool { return were[i] }))
	}}
}

// adopt claims what this host has begun by a commit whose answer was lost, and
// hands back what turns out not to be its own any more.
func (r Recovery) adopt(orphans Items, out *Recovered) Move {
	return neverWere(r.View.Layout, orphans, func(none Items) (Move, error) {
		out.Runs = out.Runs.without(none)
		return r.adoptItems(slices.DeleteFunc(slices.Clone(orphans), none.Contains), out), nil
	})
}

func (r Recovery) adoptItems(orphans Items, out *Recovered) Move {
	l, self := r.View.Layout, r.View.Self.ID
	return readItems(l, orphans, func(states map[int]ItemState) (Move, error) {
		var strange Items
		for _, i := range orphans {
			state := states[i]
			if state.Record.Owner == self && state.Record.Open() {
				out.Claimed = append(out.Claimed, Claim{Item: i, Fire: out.Runs.fireOf(i), State: state, Owner: r.Dead})
			} else {
				strange = append(strange, i)
			}
		}
		out.Commits++
		if len(strange) == 0 {
			return r.look(out), nil
		}
		return handBack(l, self, out.Runs, out.RunsVersion, strange, func(runs Runs, version int32) (Move, error) {
			out.Runs, out.RunsVersion = runs, version
			return r.look(out), nil
		}), nil
	})
}

// bury removes the last traces of a host that left nothing unfinished. If
// items are still assigned to it they are resharded: the instances may be
// the same as at the last division, for a host that was stopped by an operator
// is not counted any more and keeps what it runs.
func (r Recovery) bury(runs, members, assigned, kill registry.Node, out *Recovered) Move {
	l := r.View.Layout
	var ops []registry.Op
	if list := parseMembers(members.Data); slices.Contains(list, r.Dead) {
		ops = append(ops, registry.Set(l.members(), list.without(r.Dead).data(), members.Version))
	}
	for _, n := range []registry.Node{runs, assigned, kill} {
		if n.Exists {
			ops = append(ops, registry.Delete(n.Path, n.Version))
		}
	}
	if len(ops) == 0 { // somebody else has done it
		out.Settled = true
		return Move{Name: "recover"}
	}
	buried := func([]registry.Node, []registry.Result) (Move, error) {
		out.Commits++
		out.Settled = true
		return Done()
	}
	m := Move{Name: "recover", Commit: ops, Then: buried,
		Else:    func(*registry.OpError) (Move, error) { return Done() }, // somebody else does it
		Unknown: Done,                                                    // the next call sees
	}
	// A Java leader divides of its own accord when an instance goes, and may
	// have done so already: its division says nothing to our assignment nodes.
	if len(assigned.Data) > 0 && !r.View.JavaLed() {
		plain := m
		m.Commit = append(slices.Clone(ops), registry.Create(l.necessary(), nil))
		m.Else = func(e *registry.OpError) (Move, error) {
			if e.Index < len(ops) {
				return Done()
			}
			return plain, nil // the flag stands already
		}
	}
	return m
}

// Bury removes the last traces of those of the dead hosts that left nothing
// unfinished, all in one commit: after an outage that is every host there was. It
// leaves alone who lives: one that an operator has stopped, or one that is on its
// way into the job. Without bury it only looks. left are those with whom Recover
// has to deal.
func Bury(v View, dead []string, bury bool, left *[]string) Move {
	const each = 5
	l := v.Layout
	var read []registry.Query
	for _, id := range dead {
		read = append(read, registry.Data(l.runsOf(id)), registry.Data(l.instance(id)), registry.Data(l.detail(id)), registry.Data(l.assignmentOf(id)), registry.Data(l.kill(id)))
	}
	read = append(read, registry.Data(l.members()))
	return Move{Name: "bury", Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		*left = nil
		members := n[len(n)-1]
		list := parseMembers(members.Data)
		var buried []string
		var ops []registry.Op
		divide := false
		for k, id := range dead {
			runs, instance, detail, assigned, kill := n[each*k], n[each*k+1], n[each*k+2], n[each*k+3], n[each*k+4]
			owed, err := parseRuns(runs.Data)
			switch {
			case instance.Exists || detail.Exists, !slices.Contains(list, id): // it lives, or is buried
				continue
			case err == nil && len(owed.Runs) > 0:
				*left = append(*left, id)
				continue
			}
			buried = append(buried, id)
			divide = divide || len(assigned.Data) > 0
			for _, node := range []registry.Node{runs, assigned, kill} {
				if node.Exists {
					ops = append(ops, registry.Delete(node.Path, node.Version))
				}
			}
			if size(ops) > commitBudget {
				break // the others next time
			}
		}
		if !bury || len(buried) == 0 {
			return Done()
		}
		ops = append(ops, registry.Set(members.Path, list.without(buried...).data(), members.Version))
		if divide && !v.JavaLed() && !v.Necessary { // as for one that is buried alone
			ops = append(ops, registry.Create(l.necessary(), nil))
		}
		return Move{Commit: ops,
			Else:    func(*registry.OpError) (Move, error) { return Done() }, // somebody else does it, or the next call
			Unknown: Done}, nil
	}}
}

// owedItem is what the registry holds of one item of a crashed host.
type owedItem struct {
	fire                                       Fire
	state                                      ItemState
	running, failover, failovering, mark, node registry.Node
}

const (
	owedQueries = 9
	// owedAtOnce is how many items are read for one commit: about as many as
	// it has room for.
	owedAtOnce = 500
)

// owing are some of the items that are owed, as they were read.
type owing struct {
	items map[int]owedItem
	// end is the first item that was not looked at, all of them if more is
	// false.
	end  int
	more bool
}

func (r Recovery) readOwed(owed Runs, runs registry.Node, out *Recovered) (Move, error) {
	l := r.View.Layout
	// What others are to take they look after. Where no host takes anything, one
	// of ours reports it.
	cfg := r.View.Config
	tells := r.View.IsJanitor() && (!cfg.Failover || !cfg.MonitorExecution)
	all := owed.ranges()
	var looked Items
	o := owing{items: make(map[int]owedItem)}
	for i := range all.since(r.from) {
		if !tells && !r.takes(i) {
			continue
		}
		if len(looked) == owedAtOnce {
			o.end, o.more = i, true
			break
		}
		looked = append(looked, i)
	}
	if len(looked) == 0 {
		out.Left = slices.AppendSeq(out.Left, all.since(r.from))
		return r.giveWay()
	}
	read := make([]registry.Query, 0, owedQueries*len(looked))
	for _, i := range looked {
		read = append(read, registry.Data(l.record(i)), registry.Data(l.offset(i)), registry.Data(l.itemMisfire(i)), registry.Data(l.itemDisabled(i)),
			registry.Data(l.itemRunning(i)), registry.Data(l.itemFailover(i)), registry.Data(l.itemFailovering(i)), registry.Data(l.failoverItem(i)), registry.Data(l.item(i)))
	}
	return Move{Name: "recover", Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		for k, i := range looked {
			q := n[owedQueries*k:]
			o.items[i] = owedItem{fire: owed.fireOf(i), state: itemState(q[0], q[1], q[2], q[3]),
				running: q[4], failover: q[5], failovering: q[6], mark: q[7], node: q[8]}
		}
		for i, it := range o.items {
			if owed.Java == "" && owed.markedOf(i) && it.unmarked() {
				return r.lookForJava(func(r Recovery) (Move, error) { return r.take(owed, runs, o, out) }), nil
			}
		}
		return r.take(owed, runs, o, out)
	}}, nil
}

// lookForJava finds out until when a Java host was in the job. The view may be
// older than the marks that are gone.
func (r Recovery) lookForJava(then func(Recovery) (Move, error)) Move {
	l := r.View.Layout
	read := []registry.Query{registry.Children(l.instances()), registry.Data(l.members()), registry.Data(l.assignment()), registry.Data(l.epoch()), registry.Data(l.itemInstance(0))}
	return Move{Name: "look for Java hosts", Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		members, division := parseMembers(n[1].Data), parseDivision(n[2].Data)
		stranger := slices.ContainsFunc(n[0].Names, func(id string) bool { return !slices.Contains(members, id) })
		r.javaSeen = division.JavaSeen
		if stranger || division.Java || len(division.Foreigners) > 0 || byJava(n[3], n[4]) {
			r.javaSeen = math.MaxInt64
		}
		return then(r)
	}}
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

// judge decides about one item. n is how many this host has claimed so far.
func (r Recovery) judge(i int, it owedItem, owed Runs, n int) fate {
	cfg := r.View.Config
	record, dead, java := it.state.Record, r.Dead, owed.Java != "" || r.Dead == ""
	if owed.Java != "" {
		dead = owed.Java
	}
	left := func(mark registry.Node) bool { return mark.Exists && string(mark.Data) == dead }
	taken := func(mark registry.Node) bool {
		return mark.Exists && slices.Contains(r.View.Instances, string(mark.Data))
	}
	switch {
	case java && record.Open() && slices.Contains(r.View.Members, record.Owner) && r.lives(record.Owner),
		java && !it.mark.Exists && !left(it.running) && !left(it.failovering),
		!java && record.Owner == dead && !record.Open():
		return fateSettled
	case !java && record.Owner != dead:
		// The host that completes an item, or takes it over, takes it from the list
		// in the same commit. This one was not: with failover off its new owner
		// begins it for the next instant, and may be faster than we are.
		return fateOvertaken
	case java && slices.Contains(r.View.Instances, owed.Java):
		return fateLeft // it is back, under the same id
	case r.killed(i, it) != "":
		return fateKilled
	case !(cfg.Failover && cfg.MonitorExecution), !it.node.Exists, cfg.ShardingTotalCount > 0 && i >= cfg.ShardingTotalCount:
		// Failover is off, or the total count was lowered since. One of us
		// reports it, not all.
		switch {
		case !r.View.IsJanitor():
			return fateLeft
		case r.holds(it, owed):
			return fateHeld
		}
		return fateLost
	case !java && owed.markedOf(i) && it.unmarked() && record.Begun <= r.javaSeen:
		return fateElsewhere
	// A failover mark that is not ephemeral is unowned: an external edit has made it.
	case taken(it.failovering), taken(it.running), it.failover.Ephemeral && (taken(it.failover) || !left(it.failover)),
		it.state.Disabled, n >= r.Limit, r.Busy.Contains(i), !r.View.Enabled, !r.takes(i):
		return fateLeft
	case r.holds(it, owed):
		return fateHeld
	}
	return fateClaim
}

// mourned is the item's record with the death of the dead host, if that died
// with the run: not one that left in good order, and no Java host, which ran
// another program.
func (r Recovery) mourned(it owedItem, owed Runs) Record {
	if r.Dead == "" || owed.Java != "" || owed.Left {
		return it.state.Record
	}
	return it.state.Record.died(r.Dead)
}

// holds reports whether the dead host is one too many for the item.
func (r Recovery) holds(it owedItem, owed Runs) bool {
	return tooMany(r.View.Config, it.state.Record, r.mourned(it, owed))
}

// tooMany reports whether a death brings an item's record to the job's limit.
func tooMany(c jobconfig.Configuration, before, after Record) bool {
	guest, _ := c.Guest() // what cannot be read has its default
	return guest.MaxHostDeaths > 0 && after.Deaths > before.Deaths && after.Deaths >= guest.MaxHostDeaths
}

// killed is why an operator has killed the run of an item, or "".
func (r Recovery) killed(i int, it owedItem) string {
	k, asked := r.kills.Of(i, it.state.RecordZxid)
	if !asked || r.Dead == "" {
		return ""
	}
	return k.Reason() + "; its host died before that"
}

// begins are items that are begun for one fire.
type begins struct {
	Fire
	items Items
}

// take decides item by item and writes it all in one commit, or as much of it
// as fits one, and then goes on.
func (r Recovery) take(owed Runs, runs registry.Node, o owing, out *Recovered) (Move, error) {
	l, self := r.View.Layout, r.View.Self.ID
	var c commit
	var dropped Items
	var told Recovered // of what is closed
	claims := make(map[int]Claim)
	var begun []begins // the claims, as they follow each other
	now := r.Now.UnixMilli()
	mine := out.Runs
	room, last := max(out.Runs.room()-len(runs.Data), leastRoom), -1
	marked := false
	dead := r.Dead
	if owed.Java != "" {
		dead = owed.Java
	}
	for i := range owed.ranges().since(r.from) {
		if o.more && i >= o.end {
			break
		}
		if room <= 0 {
			o.end, o.more = i, true
			break
		}
		it, read := o.items[i]
		if !read {
			out.Left = append(out.Left, i)
			continue
		}
		before := len(c.ops)
		claim := Claim{Item: i, Fire: it.fire, State: it.state, Owner: r.Dead}
		end := func(record Record) {
			record = record.after(it.state.RecordZxid)
			if dead == r.Dead && dead != "" { // what a Java host ran is in no record
				c.add(roleRecord, -1, registry.Set(l.record(i), record.data(), it.state.RecordVersion))
				claim.State.Record = record
			}
			it.clear(dead, &c, i)
			if it.mark.Exists {
				c.add(roleItem, i, registry.Delete(it.mark.Path, registry.AnyVersion))
			}
		}
		switch r.judge(i, it, owed, len(out.Claimed)+len(claims)) {
		case fateSettled:
			it.clear(dead, &c, i)
			if it.mark.Exists && it.state.Record.Open() { // made too late, or an external edit has changed the record
				c.add(roleItem, i, registry.Check(l.record(i), it.state.RecordVersion))
				c.add(roleItem, i, registry.Delete(it.mark.Path, registry.AnyVersion))
			}
		case fateLost:
			end(r.mourned(it, owed).lost(now))
			told.Lost = append(told.Lost, claim)
		case fateKilled:
			end(it.state.Record.end(OutcomeCancelled, r.killed(i, it), max(now, it.state.Record.Begun+1)))
			told.Killed = append(told.Killed, claim)
		case fateHeld:
			end(r.mourned(it, owed).hold(now))
			told.Held = append(told.Held, claim)
		case fateOvertaken:
			it.clear(dead, &c, i)
			told.Lost = append(told.Lost, claim)
		case fateElsewhere:
			end(it.state.Record.end(OutcomeElsewhere, "", now))
			for _, mark := range []registry.Node{it.running, it.failover, it.failovering, it.mark} {
				c.add(roleItem, i, registry.Absent(mark.Path)) // they were read one after the other
			}
			told.Elsewhere = append(told.Elsewhere, claim)
		case fateLeft:
			out.Left = append(out.Left, i)
			continue
		case fateClaim:
			marked = marked || it.mark.Exists
			r.claim(i, &claim, it, r.mourned(it, owed), &c)
			claims[i] = claim
			if len(begun) == 0 || begun[len(begun)-1].Fire != it.fire {
				begun = append(begun, begins{Fire: it.fire})
			}
			begun[len(begun)-1].items = append(begun[len(begun)-1].items, i)
		}
		dropped = append(dropped, i)
		room -= size(c.ops[before:]) + 2*listed(i, last) // in two lists
		last = i
	}
	if len(dropped) == 0 && o.more {
		r.from = o.end
		return r.readOwed(owed, runs, out)
	}
	if len(dropped) == 0 {
		return r.giveWay()
	}
	if len(claims) > 0 && r.leave == nil && (marked || len(r.View.Java()) > 0) {
		return inLine(l, self, l.failoverLatch(), r.Line, nil, func(leave []registry.Op, _ []registry.Node) (Move, error) {
			r.leave = leave
			return r.look(out), nil
		}), nil
	}
	for _, b := range begun {
		mine = mine.with(b.Fire, true, b.items)
	}
	left := owed.without(dropped)
	if r.Dead != "" {
		c.add(roleRoot, -1, registry.Absent(l.instance(dead)))
		c.add(roleRoot, -1, registry.Absent(l.detail(dead)))
		c.add(roleShare, -1, registry.Set(runs.Path, left.data(), runs.Version))
	}
	if len(claims) > 0 {
		c.addRuns(l, self, mine, out.RunsVersion)
	}
	for _, op := range r.leave {
		c.add(roleRoot, -1, op)
	}
	again := func() (Move, error) {
		r.leave = nil
		return r.look(out), nil
	}
	return Move{
		Name: "recover", Commit: c.ops,
		Then: func(_ []registry.Node, results []registry.Result) (Move, error) {
			out.Commits++
			out.note(told)
			for k, result := range results {
				switch i := c.items[k]; {
				case c.ops[k].Kind != registry.OpSet:
				case c.roles[k] == roleRecord && i >= 0:
					claim := claims[i]
					claim.State.RecordVersion, claim.State.RecordZxid = result.Version, result.Zxid
					out.Claimed = append(out.Claimed, claim)
				case c.roles[k] == roleRuns:
					out.Runs, out.RunsVersion = mine, result.Version
				}
			}
			if r.leave != nil {
				*r.Line = Line{}
			}
			if o.more {
				r.from = o.end
				return again()
			}
			if len(left.Runs) > 0 || r.Dead == "" {
				return Done()
			}
			return Move{Read: []registry.Query{registry.Data(runs.Path), registry.Data(l.members()), registry.Data(l.assignmentOf(r.Dead)), registry.Data(l.kill(r.Dead))},
				Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
					return r.bury(n[0], n[1], n[2], n[3], out), nil
				}}, nil
		},
		// Another host took a share meanwhile, or an item changed: look again.
		Else: func(e *registry.OpError) (Move, error) {
			if e.Op.Path == l.instance(dead) {
				return r.giveWay() // it is not dead
			}
			return again()
		},
		// If it took effect no host finds these again.
		Unknown: func() (Move, error) {
			out.note(told)
			return again()
		},
	}, nil
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
func (r Recovery) giveWay() (Move, error) {
	if r.leave == nil && !r.Line.Standing {
		return Done()
	}
	return leaveLine(r.View.Self.ID, r.View.failoverLatch(), r.Line), nil
}

// claim adds what begins an item that is owed, after the given record.
func (r Recovery) claim(i int, claim *Claim, it owedItem, before Record, c *commit) {
	l, self := r.View.Layout, r.View.Self.ID
	record := before.after(it.state.RecordZxid).begin(self, it.fire, r.Now.UnixMilli())
	record.Source = sourceFailover
	version := it.state.RecordVersion
	if version < 0 {
		c.add(roleItem, i, registry.Create(l.record(i), nil))
		version = 0
	}
	c.add(roleRecord, i, registry.Set(l.record(i), record.data(), version))
	c.add(roleItem, i, registry.Absent(l.itemDisabled(i)))
	if it.mark.Exists {
		c.add(roleItem, i, registry.Delete(it.mark.Path, registry.AnyVersion))
	} else { // by a Java host that has just come
		c.add(roleItem, i, registry.Absent(it.mark.Path))
	}
	if it.failover.Exists {
		c.add(roleItem, i, registry.Delete(it.failover.Path, it.failover.Version))
	}
	c.add(roleItem, i, registry.CreateEphemeral(l.itemFailover(i), []byte(self)))
	c.put(i, it.failovering, []byte(self))
	c.put(i, it.running, []byte(self))
	claim.State.Record = record
}

// lookAtMarks claims what Java hosts have marked as crashed and no host has in
// his list of runs. A mark on an item that a host of ours runs was made too
// late: it is taken away.
func (r Recovery) lookAtMarks(out *Recovered) Move {
	l := r.View.Layout
	return Move{Name: "recover", Read: []registry.Query{registry.Children(l.failoverItems()), registry.Children(l.runs()), registry.Children(l.details()), registry.Data(l.config())}, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		if !n[3].Exists {
			return Move{}, ErrRemoved
		}
		ids := n[1].Names
		r.alive = n[2].Names
		var marks Items
		for _, name := range n[0].Names {
			if i, ok := itemNumber(name); ok {
				marks = append(marks, i)
			}
		}
		slices.Sort(marks)
		read := []registry.Query{registry.Data(l.runsOf(r.View.Self.ID))}
		for _, id := range ids {
			read = append(read, registry.Data(l.runsOf(id)))
		}
		return Move{Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
			if actual, orphans := ownRuns(n[0], out.Runs, out.RunsVersion); versionOf(n[0]) != out.RunsVersion {
				out.Runs, out.RunsVersion = actual, versionOf(n[0])
				if len(orphans) > 0 {
					return r.adopt(orphans, out), nil
				}
			}
			out.Left = r.before(out.Left)
			var late []registry.Op
			listed := make(map[int]bool)
			for k, id := range ids {
				node := n[k+1]
				runs, err := parseRuns(node.Data)
				if err != nil {
					continue
				}
				items := runs.Items()
				for _, i := range marks {
					if !items.Contains(i) {
						continue
					}
					if !listed[i] && slices.Contains(r.alive, id) {
						late = append(late, registry.Check(node.Path, node.Version), registry.Delete(l.failoverItem(i), registry.AnyVersion))
					}
					listed[i] = true
				}
			}
			if len(late) > 0 {
				return r.drop(late, out)
			}
			free := slices.DeleteFunc(marks, func(i int) bool { return listed[i] })
			return r.beyond(free, func(none Items) (Move, error) {
				for _, i := range none {
					late = append(late, registry.Absent(l.item(i)), registry.Delete(l.failoverItem(i), registry.AnyVersion))
				}
				if len(late) > 0 {
					return r.drop(late, out)
				}
				if len(free) == 0 {
					return r.giveWay()
				}
				fire := Fire{Instant: r.Now.UnixMilli(), Source: sourceFailover}
				return r.readOwed(Runs{}.with(fire, true, free), registry.Node{}, out)
			})
		}}, nil
	}}
}

// drop takes marks away, as many as fit a commit, and looks again.
func (r Recovery) drop(ops []registry.Op, out *Recovered) (Move, error) {
	for part := range parts(ops, commitBudget) {
		ops = part
		break
	}
	again := func() (Move, error) { return r.look(out), nil }
	return Move{Commit: ops, Then: func([]registry.Node, []registry.Result) (Move, error) { return again() }, Else: func(*registry.OpError) (Move, error) { return again() }}, nil
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
func idle(takers []string, runs []registry.Node) []string {
	var idle []string
	for k, id := range takers {
		if r, err := parseRuns(runs[k].Data); err == nil && len(r.Runs) == 0 {
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
func (r Recovery) takes(item int) bool {
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
func (r Recovery) lives(id string) bool {
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
