package coordination

import (
	"fmt"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/strategy"
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
// them. Any host may call it, any number of times.
func Recover(r Recovery, out *Recovered) Move {
	l := r.View.Layout
	*out = Recovered{Runs: r.Runs, RunsVersion: r.RunsVersion}
	return Move{Name: "recover", Read: []Query{Data(l.runsOf(r.Dead)), Data(l.instance(r.Dead)), Data(l.members()), Data(l.assignmentOf(r.Dead)), Data(l.config())},
		Then: func(n []Node, _ []Result) (Move, error) {
			runs, instance, members, assigned := n[0], n[1], n[2], n[3]
			if !n[4].Exists {
				return Move{}, ErrRemoved
			}
			if instance.Exists {
				return Done() // it is not dead
			}
			owed, err := parseRuns(runs.Data)
			if err != nil {
				// Nobody can tell what was running. Its marks are swept by
				// Sweep; what is due is found from the items' records.
				owed = Runs{}
			}
			if len(owed.Runs) == 0 {
				return r.bury(runs, members, assigned, out), nil
			}
			return r.readOwed(owed, runs, out), nil
		}}
}

// bury removes the last traces of a host that left nothing unfinished.
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
	return Move{Name: "recover", Commit: ops,
		Then: func([]Node, []Result) (Move, error) {
			out.Commits++
			out.Settled = true
			return Done()
		},
		Else: func(*OpError) (Move, error) { return Done() }, // somebody else does it
	}
}

// owedItem is what the registry holds of one item of a crashed host.
type owedItem struct {
	fire                                       Fire
	state                                      ItemState
	running, failover, failovering, mark, node Node
	instance                                   Node
}

const owedQueries = 10

func (r Recovery) readOwed(owed Runs, runs Node, out *Recovered) Move {
	l := r.View.Layout
	var read []Query
	for _, run := range owed.Runs {
		for _, i := range run.Items {
			read = append(read, Data(l.record(i)), Data(l.offset(i)), Data(l.itemMisfire(i)), Data(l.itemDisabled(i)),
				Data(l.itemRunning(i)), Data(l.itemFailover(i)), Data(l.itemFailovering(i)), Data(l.failoverItem(i)), Data(l.item(i)), Data(l.itemInstance(i)))
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
					running: q[4], failover: q[5], failovering: q[6], mark: q[7], node: q[8], instance: q[9]}
			}
		}
		return r.take(owed, runs, items, out)
	}}
}

// take decides item by item and writes it all in one commit.
func (r Recovery) take(owed Runs, runs Node, items map[int]owedItem, out *Recovered) (Move, error) {
	l, self := r.View.Layout, r.View.Self.ID
	cfg := r.View.Config
	failover := cfg.Failover && cfg.MonitorExecution
	share := r.share(owed.Items())
	var ops []Op
	var dropped Items
	claims := make(map[int]Claim)
	recordOps := make(map[int]int) // op index → item
	now := r.Now.UnixMilli()
	mine := r.Runs
	for _, i := range owed.Items() {
		it := items[i]
		claim := Claim{Item: i, Fire: it.fire, State: it.state, Owner: r.Dead}
		// Completed, or begun by another host since: nothing is owed. The
		// item may also be beyond a total count that was lowered since.
		if it.state.Record.Owner != r.Dead || !it.state.Record.Open() {
			dropped = append(dropped, i)
			continue
		}
		if !failover || !it.node.Exists {
			if !r.View.Leading() { // one of us tells, not all
				out.Left = append(out.Left, i)
				continue
			}
			dropped = append(dropped, i)
			ops = append(ops, Set(l.record(i), it.state.Record.end(OutcomeLost, now).data(), it.state.RecordVersion))
			for _, n := range []Node{it.running, it.failovering, it.mark} {
				if n.Exists && (n.Path == l.failoverItem(i) || string(n.Data) == r.Dead) {
					ops = append(ops, Delete(n.Path, AnyVersion))
				}
			}
			out.Lost = append(out.Lost, claim)
			continue
		}
		if it.state.Disabled || it.failover.Exists || len(claims) >= r.Limit || r.Busy.Contains(i) || !r.View.Enabled || !share.Contains(i) {
			out.Left = append(out.Left, i)
			continue
		}
		record := it.state.Record.begin(self, it.fire, now)
		record.Source = "failover"
		recordOps[len(ops)] = i
		ops = append(ops, Set(l.record(i), record.data(), it.state.RecordVersion))
		ops = append(ops, Absent(l.itemDisabled(i)), CreateEphemeral(l.itemFailover(i), []byte(self)))
		ops = append(ops, put(it.failovering, []byte(self)), put(it.running, []byte(self)))
		if it.mark.Exists {
			ops = append(ops, Delete(it.mark.Path, AnyVersion))
		}
		fire := it.fire
		claim.Fire = fire
		claim.State.Record = record
		claims[i] = claim
		mine = mine.with(fire, Items{i})
		dropped = append(dropped, i)
	}
	if len(dropped) == 0 {
		return Done()
	}
	left := owed.without(dropped)
	ops = append(ops, Absent(l.instance(r.Dead)), Set(runs.Path, left.data(), runs.Version))
	runsOp := -1
	if len(claims) > 0 {
		runsOp = len(ops)
		ops = append(ops, Set(l.runsOf(self), mine.data(), r.RunsVersion))
	}
	again := r
	return Move{
		Name: "recover", Commit: ops,
		Then: func(_ []Node, results []Result) (Move, error) {
			out.Commits++
			for k, i := range recordOps {
				c := claims[i]
				c.State.RecordVersion, c.State.RecordZxid = results[k].Version, results[k].Zxid
				out.Claimed = append(out.Claimed, c)
			}
			slices.SortFunc(out.Claimed, func(a, b Claim) int { return a.Item - b.Item })
			if runsOp >= 0 {
				out.Runs, out.RunsVersion = mine, results[runsOp].Version
			}
			if len(left.Runs) > 0 {
				return Done()
			}
			return Move{Read: []Query{Data(runs.Path), Data(l.members()), Data(l.assignmentOf(r.Dead))},
				Then: func(n []Node, _ []Result) (Move, error) { return r.bury(n[0], n[1], n[2], out), nil }}, nil
		},
		// Another host took a share meanwhile, or an item changed: look again.
		Else: func(e *OpError) (Move, error) {
			if e.Op.Path == l.runsOf(self) {
				return Move{}, fmt.Errorf("this host's own list of runs was changed by somebody else: %w", e)
			}
			return Recover(again, out), nil
		},
	}, nil
}

// share is what this host takes of the items: all of them if All is set, else
// its part of an even division over the hosts that take part.
func (r Recovery) share(items Items) Items {
	if r.All {
		return items
	}
	var takers []string
	for _, id := range r.View.Instances {
		if slices.Contains(r.View.Members, id) && !slices.Contains(r.View.Division.Excluded, id) && !slices.Contains(r.View.Division.Draining, id) {
			takers = append(takers, id)
		}
	}
	average, _, err := strategy.ByName("")
	if err != nil || len(takers) == 0 {
		return nil
	}
	var mine Items
	for k, owner := range average(r.View.Job, takers, len(items), r.Now) {
		if owner == r.View.Self.ID {
			mine = append(mine, items[k])
		}
	}
	return mine
}

// put creates a persistent node or sets it.
func put(n Node, data []byte) Op {
	if n.Exists {
		return Set(n.Path, data, AnyVersion)
	}
	return Create(n.Path, data)
}

// Sweep removes marks of items that belong to nobody who is alive: left by a
// hand, by another program, or by a host whose own list of runs was lost. It
// is called at the slow reconcile interval and after a host has joined, never
// in a fire. swept lists the nodes that were removed.
func Sweep(v View, swept *[]string) Move {
	l := v.Layout
	return Move{Name: "sweep", Read: []Query{Children(l.sharding()), Children(l.runs()), Children(l.instances()), Children(l.triggers())}, Then: func(n []Node, _ []Result) (Move, error) {
		instances := n[2].Names
		var read []Query
		var items Items
		for _, name := range n[0].Names {
			if i, ok := itemNumber(name); ok {
				items = append(items, i)
				read = append(read, Data(l.itemRunning(i)), Data(l.itemFailovering(i)), Data(l.itemFailover(i)))
			}
		}
		for _, id := range n[1].Names {
			read = append(read, Data(l.runsOf(id)))
		}
		if len(read) == 0 {
			return Done()
		}
		triggers := n[3].Names
		return Move{Read: read, Then: func(nodes []Node, _ []Result) (Move, error) {
			owed := make(map[int]bool)
			for _, node := range nodes[3*len(items):] {
				runs, err := parseRuns(node.Data)
				if err != nil {
					continue
				}
				for _, i := range runs.Items() {
					owed[i] = true
				}
			}
			var ops []Op
			for k, i := range items {
				if owed[i] {
					continue
				}
				for _, mark := range nodes[3*k : 3*k+3] {
					if mark.Exists && !mark.Ephemeral && !slices.Contains(instances, string(mark.Data)) {
						ops = append(ops, Delete(mark.Path, mark.Version))
					}
				}
			}
			for _, id := range triggers {
				if !slices.Contains(instances, id) {
					ops = append(ops, Delete(l.trigger(id), AnyVersion))
				}
			}
			if len(ops) == 0 {
				return Done()
			}
			return Move{Commit: ops,
				Then: func([]Node, []Result) (Move, error) {
					for _, op := range ops {
						*swept = append(*swept, op.Path)
					}
					return Done()
				},
				Else: func(*OpError) (Move, error) { return Done() }, // next time
			}, nil
		}}, nil
	}}
}
