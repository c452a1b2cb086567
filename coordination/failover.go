package coordination

import (
	"slices"
	"time"
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
	// Runs is what this host has begun already.
	Runs        Runs
	RunsVersion int32
	Now         time.Time
}

// Recovered is what became of a Recovery.
type Recovered struct {
	// Claimed were begun by this host, as failover of the fires they belong to.
	Claimed []Claim
	// Lost were begun by the dead host and will not be run again in their
	// fire, because failover is off.
	Lost []Claim
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

// Recover takes over items that a crashed host had begun, or with failover off
// writes down that they are lost. All hosts that call it compute the same
// division of the items; each takes its share in one commit, which also begins
// them. Any host may call it, any number of times; after an error the next
// call finds what had been claimed nevertheless.
//
// A host is dead when its instance node and its detail node are both gone.
// Where only the instance node is, an operator has stopped the host and it is
// finishing what it runs.
func Recover(r Recovery, out *Recovered) Move {
	*out = Recovered{Runs: r.Runs, RunsVersion: r.RunsVersion}
	return r.look(out)
}

func (r Recovery) look(out *Recovered) Move {
	l := r.View.Layout
	read := []Query{Data(l.runsOf(r.Dead)), Data(l.instance(r.Dead)), Data(l.detail(r.Dead)), Data(l.members()), Data(l.assignmentOf(r.Dead)), Data(l.config()), Data(l.runsOf(r.View.Self.ID))}
	return Move{Name: "recover", Read: read, Then: func(n []Node, _ []Result) (Move, error) {
		runs, instance, detail, members, assigned, own := n[0], n[1], n[2], n[3], n[4], n[6]
		if !n[5].Exists {
			return Move{}, ErrRemoved
		}
		if actual, orphans := ownRuns(own, out.Runs, out.RunsVersion); versionOf(own) != out.RunsVersion {
			out.Runs, out.RunsVersion = actual, versionOf(own)
			if len(orphans) > 0 {
				return r.adopt(orphans, out), nil
			}
		}
		out.Left = nil
		if instance.Exists || detail.Exists {
			return Done() // it is not dead
		}
		owed, err := parseRuns(runs.Data)
		if err != nil {
			// Nobody can tell what was running. Its marks are swept by
			// Sweep; what is due is found from the items' records.
			owed = Runs{}
		}
		if len(owed.Items()) == 0 {
			return r.bury(runs, members, assigned, out), nil
		}
		return r.readOwed(owed, runs, out), nil
	}}
}

// adopt claims what this host has begun by a commit whose answer was lost, and
// hands back what turns out not to be its own any more.
func (r Recovery) adopt(orphans Items, out *Recovered) Move {
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
// items are still assigned to it they are divided anew: the instances may be
// the same as at the last division, for a host that was stopped by an operator
// is not counted any more and keeps what it runs.
func (r Recovery) bury(runs, members, assigned Node, out *Recovered) Move {
	l := r.View.Layout
	var ops []Op
	if members.Exists {
		ops = append(ops, Set(l.members(), parseMembers(members.Data).without(r.Dead).data(), members.Version))
	}
	for _, n := range []Node{runs, assigned} {
		if n.Exists {
			ops = append(ops, Delete(n.Path, n.Version))
		}
	}
	buried := func([]Node, []Result) (Move, error) {
		out.Commits++
		out.Settled = true
		return Done()
	}
	m := Move{Name: "recover", Commit: ops, Then: buried,
		Else:    func(*OpError) (Move, error) { return Done() }, // somebody else does it
		Unknown: Done,                                           // the next call sees
	}
	if len(assigned.Data) > 0 {
		plain := m
		m.Commit = append(slices.Clone(ops), Create(l.necessary(), nil))
		m.Else = func(e *OpError) (Move, error) {
			if e.Index < len(ops) {
				return Done()
			}
			return plain, nil // the flag stands already
		}
	}
	return m
}

// owedItem is what the registry holds of one item of a crashed host.
type owedItem struct {
	fire                                       Fire
	state                                      ItemState
	running, failover, failovering, mark, node Node
}

const owedQueries = 9

func (r Recovery) readOwed(owed Runs, runs Node, out *Recovered) Move {
	l := r.View.Layout
	var read []Query
	for _, run := range owed.Runs {
		for _, i := range run.Items {
			read = append(read, Data(l.record(i)), Data(l.offset(i)), Data(l.itemMisfire(i)), Data(l.itemDisabled(i)),
				Data(l.itemRunning(i)), Data(l.itemFailover(i)), Data(l.itemFailovering(i)), Data(l.failoverItem(i)), Data(l.item(i)))
		}
	}
	return Move{Name: "recover", Read: read, Then: func(n []Node, _ []Result) (Move, error) {
		items := make(map[int]owedItem)
		k := 0
		for _, run := range owed.Runs {
			for _, i := range run.Items {
				q := n[k : k+owedQueries]
				k += owedQueries
				items[i] = owedItem{fire: run.Fire, state: itemState(q[0], q[1], q[2], q[3]),
					running: q[4], failover: q[5], failovering: q[6], mark: q[7], node: q[8]}
			}
		}
		return r.take(owed, runs, items, out)
	}}
}

// take decides item by item and writes it all in one commit, or as much of it
// as fits one, and then the rest.
func (r Recovery) take(owed Runs, runs Node, items map[int]owedItem, out *Recovered) (Move, error) {
	l, self := r.View.Layout, r.View.Self.ID
	cfg := r.View.Config
	failover := cfg.Failover && cfg.MonitorExecution
	var c commit
	var dropped Items
	var lost []Claim
	claims := make(map[int]Claim)
	now := r.Now.UnixMilli()
	mine := out.Runs
	room := commitBudget - len(runs.Data) - mine.size()
	full := false
	for _, i := range owed.Items() {
		if room <= 0 {
			full = true
			break
		}
		before := len(c.ops)
		it := items[i]
		claim := Claim{Item: i, Fire: it.fire, State: it.state, Owner: r.Dead}
		switch {
		case it.state.Record.Owner != r.Dead || !it.state.Record.Open():
			// Completed, or begun by another host since: nothing is owed.
			dropped = append(dropped, i)
			it.clear(r.Dead, &c, i)
		case !failover || !it.node.Exists || cfg.ShardingTotalCount > 0 && i >= cfg.ShardingTotalCount:
			// Failover is off, or the total count was lowered since.
			if !r.View.Leading() { // one of us tells, not all
				out.Left = append(out.Left, i)
				continue
			}
			dropped = append(dropped, i)
			c.add(roleRecord, -1, Set(l.record(i), it.state.Record.end(OutcomeLost, now).data(), it.state.RecordVersion))
			it.clear(r.Dead, &c, i)
			if it.mark.Exists {
				c.add(roleItem, i, Delete(it.mark.Path, AnyVersion))
			}
			lost = append(lost, claim)
		case it.state.Disabled, it.failover.Exists && string(it.failover.Data) != r.Dead, len(out.Claimed)+len(claims) >= r.Limit,
			r.Busy.Contains(i), !r.View.Enabled, !r.takes(i):
			out.Left = append(out.Left, i)
			continue
		default:
			record := it.state.Record.begin(self, it.fire, now)
			record.Source = "failover"
			c.add(roleRecord, i, Set(l.record(i), record.data(), it.state.RecordVersion))
			c.add(roleItem, i, Absent(l.itemDisabled(i)))
			if it.failover.Exists {
				c.add(roleItem, i, Delete(it.failover.Path, AnyVersion))
			}
			c.add(roleItem, i, CreateEphemeral(l.itemFailover(i), []byte(self)))
			c.put(i, it.failovering, []byte(self))
			c.put(i, it.running, []byte(self))
			if it.mark.Exists {
				c.add(roleItem, i, Delete(it.mark.Path, AnyVersion))
			}
			claim.State.Record = record
			claims[i] = claim
			mine = mine.with(it.fire, Items{i})
			dropped = append(dropped, i)
		}
		room -= size(c.ops[before:])
	}
	if len(dropped) == 0 {
		return Done()
	}
	left := owed.without(dropped)
	c.add(roleRoot, -1, Absent(l.instance(r.Dead)))
	c.add(roleRoot, -1, Absent(l.detail(r.Dead)))
	c.add(roleShare, -1, Set(runs.Path, left.data(), runs.Version))
	if len(claims) > 0 {
		c.addRuns(l, self, mine, out.RunsVersion)
	}
	again := func() (Move, error) { return r.look(out), nil }
	return Move{
		Name: "recover", Commit: c.ops,
		Then: func(_ []Node, results []Result) (Move, error) {
			out.Commits++
			out.Lost = append(out.Lost, lost...)
			for k, result := range results {
				switch i := c.items[k]; {
				case c.ops[k].Kind != OpSet:
				case c.roles[k] == roleRecord && i >= 0:
					claim := claims[i]
					claim.State.RecordVersion, claim.State.RecordZxid = result.Version, result.Zxid
					out.Claimed = append(out.Claimed, claim)
				case c.roles[k] == roleRuns:
					out.Runs, out.RunsVersion = mine, result.Version
				}
			}
			if full {
				return again()
			}
			if len(left.Runs) > 0 {
				return Done()
			}
			return Move{Read: []Query{Data(runs.Path), Data(l.members()), Data(l.assignmentOf(r.Dead))},
				Then: func(n []Node, _ []Result) (Move, error) { return r.bury(n[0], n[1], n[2], out), nil }}, nil
		},
		// Another host took a share meanwhile, or an item changed: look again.
		Else:    func(*OpError) (Move, error) { return again() },
		Unknown: again,
	}, nil
}

// clear removes the marks that the dead host left on an item.
func (it owedItem) clear(dead string, c *commit, item int) {
	for _, n := range []Node{it.running, it.failover, it.failovering} {
		if n.Exists && string(n.Data) == dead {
			c.add(roleItem, item, Delete(n.Path, AnyVersion))
		}
	}
}

// takes reports whether this host takes an item: any of them if All is set,
// else every n-th, n being the hosts that take part. Which ones does not
// depend on what the others have taken already.
func (r Recovery) takes(item int) bool {
	if r.All {
		return true
	}
	var takers []string
	for _, id := range r.View.Instances {
		if slices.Contains(r.View.Members, id) && !slices.Contains(r.View.Division.Excluded, id) && !slices.Contains(r.View.Division.Draining, id) {
			takers = append(takers, id)
		}
	}
	return len(takers) > 0 && takers[item%len(takers)] == r.View.Self.ID
}

// put makes a persistent node, or sets the one that is there.
func (c *commit) put(item int, n Node, data []byte) {
	switch {
	case n.Exists && !n.Ephemeral:
		c.add(roleItem, item, Set(n.Path, data, AnyVersion))
		return
	case n.Exists: // it would go with the session that made it
		c.add(roleItem, item, Delete(n.Path, AnyVersion))
	}
	c.add(roleItem, item, Create(n.Path, data))
}

// Sweep removes marks of items that belong to nobody who is alive: left by a
// hand, by another program, or by a host whose own list of runs was lost. It
// is called at the slow reconcile interval and after a host has joined, never
// in a fire. swept lists the nodes that were removed.
func Sweep(v View, swept *[]string) Move {
	l := v.Layout
	return Move{Name: "sweep", Read: []Query{Children(l.sharding()), Children(l.runs()), Children(l.instances()), Children(l.triggers()), Children(l.details())}, Then: func(n []Node, _ []Result) (Move, error) {
		instances, details := n[2].Names, n[4].Names
		var read []Query
		var items Items
		for _, name := range n[0].Names {
			if i, ok := itemNumber(name); ok {
				items = append(items, i)
				read = append(read, Data(l.itemRunning(i)), Data(l.itemFailovering(i)), Data(l.itemFailover(i)))
			}
		}
		lists := n[1].Names
		for _, id := range lists {
			read = append(read, Data(l.runsOf(id)))
		}
		for _, id := range n[3].Names {
			if !slices.Contains(instances, id) {
				read = append(read, Data(l.trigger(id)))
			}
		}
		if len(read) == 0 {
			return Done()
		}
		return Move{Read: read, Then: func(nodes []Node, _ []Result) (Move, error) {
			runsOf := make(map[string]Node) // of hosts that live
			owed := make(map[int]bool)
			for k, id := range lists {
				node := nodes[3*len(items)+k]
				runs, err := parseRuns(node.Data)
				if err != nil {
					continue
				}
				for _, i := range runs.Items() {
					owed[i] = true
				}
				if slices.Contains(instances, id) || slices.Contains(details, id) {
					runsOf[id] = node
				}
			}
			var groups [][]Op
			for k, i := range items {
				if owed[i] {
					continue
				}
				for _, mark := range nodes[3*k : 3*k+3] {
					id := string(mark.Data)
					runs, ours := runsOf[id]
					switch {
					case !mark.Exists:
					case ours:
						// Its host lives and knows nothing of it, unless it
						// has begun the item since.
						groups = append(groups, []Op{Check(runs.Path, runs.Version), Delete(mark.Path, mark.Version)})
					case !mark.Ephemeral && !slices.Contains(instances, id) && !slices.Contains(details, id):
						groups = append(groups, []Op{Delete(mark.Path, mark.Version)})
					}
				}
			}
			for _, trigger := range nodes[3*len(items)+len(lists):] {
				if trigger.Exists {
					groups = append(groups, []Op{Delete(trigger.Path, trigger.Version)})
				}
			}
			return sweepEach(groups, swept)
		}}, nil
	}}
}

// sweepEach removes in commits that fit. A mark that has changed since it was
// read belongs to somebody: it is left out.
func sweepEach(groups [][]Op, swept *[]string) (Move, error) {
	var ops []Op
	var of []int // op → group
	n := 0
	for k, group := range groups {
		if size(ops)+size(group) > commitBudget && k > 0 {
			break
		}
		for _, op := range group {
			ops, of = append(ops, op), append(of, k)
		}
		n++
	}
	if len(ops) == 0 {
		return Done()
	}
	return Move{Commit: ops,
		Then: func([]Node, []Result) (Move, error) {
			for _, op := range ops {
				if op.Kind == OpDelete {
					*swept = append(*swept, op.Path)
				}
			}
			return sweepEach(groups[n:], swept)
		},
		Else: func(e *OpError) (Move, error) {
			k := of[e.Index]
			return sweepEach(slices.Delete(slices.Clone(groups), k, k+1), swept)
		},
	}, nil
}
