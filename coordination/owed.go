package coordination

import (
	"context"
	"math"
	"slices"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// owedItem is what the registry holds of one item of a crashed host.
type owedItem struct {
	fire                                       tree.Fire
	state                                      ItemState
	running, failover, failovering, mark, node registry.Node
}

// owedAtOnce is how many items are read for one commit: about as many as one commit can hold.
const owedAtOnce = 500

// readsOfACall is how often one Recover reads owedAtOnce items.
const readsOfACall = 8

// owing are some of the crashed host's items, as they were read.
type owing struct {
	list  tree.Items
	items []owedItem // in the order of the list
	next  int        // the first item that was not read, or end
}

// readOwed reads some of the crashed host's items that this host takes or reports, from r.from on. Other hosts
// handle their own part; for an item that no host takes, one of ours reports it.
func (r *recovery) readOwed(ctx context.Context, x *step.Exchange, owed tree.Runs) (*owing, error) {
	l, cfg := r.View.Layout, r.View.Config
	from := r.mine
	if r.View.IsJanitor() && (!cfg.Failover || !cfg.MonitorExecution) {
		from = owed.Ranges()
	}
	o := &owing{next: end}
	for i := range from.Since(r.from) {
		if len(o.list) == owedAtOnce {
			o.next = i
			break
		}
		o.list = append(o.list, i)
	}

	read := newReading(9 * len(o.list))
	for _, i := range o.list {
		if r.onlyRecorded(i, owed) {
			read.add(i, registry.Data(l.Record(i)), registry.Data(l.ItemRunning(i)))
			continue
		}
		read.addState(l, i)
		read.add(i, registry.Data(l.ItemRunning(i)), registry.Data(l.ItemFailover(i)), registry.Data(l.ItemFailovering(i)), registry.Data(l.FailoverItem(i)), registry.Data(l.Item(i)))
	}
	nodes, err := read.list(ctx, x, &r.out.Denied)
	if err != nil {
		return nil, err
	}
	asked, unmarked := o.list, false
	o.list, o.items = r.out.Denied.without(asked), make([]owedItem, 0, len(asked))
	for _, i := range asked {
		it := owedItem{fire: owed.FireOf(i)}
		if r.onlyRecorded(i, owed) {
			var state [itemNodes]registry.Node
			state[0], it.running = nodes[0], nodes[1]
			it.state, nodes = itemState(state[:]), nodes[2:]
		} else {
			it.state, nodes = itemState(nodes), nodes[itemNodes:]
			it.running, it.failover, it.failovering, it.mark, it.node = nodes[0], nodes[1], nodes[2], nodes[3], nodes[4]
			nodes = nodes[5:]
		}
		if r.out.Denied[i] != nil {
			continue
		}
		o.items = append(o.items, it)
		unmarked = unmarked || (owed.Java == "" && owed.MarkedOf(i) && it.unmarked())
	}
	if unmarked {
		err = r.lookForJava(ctx, x)
	}
	return o, err
}

// onlyRecorded reports whether only an item's record and running mark matter: it is not run again, and no mark
// of a takeover was left. The running mark has outlived a host that left the job and kept its session.
func (r *recovery) onlyRecorded(i int, owed tree.Runs) bool {
	repeated := r.View.Config.Failover && r.View.Config.MonitorExecution
	return !repeated && owed.Java == "" && r.Dead != "" && !owed.MarkedOf(i)
}

// lookForJava finds out until when a Java host was in the job. The view may be older than the deletion of the
// marks.
func (r *recovery) lookForJava(ctx context.Context, x *step.Exchange) error {
	l := r.View.Layout
	n, first, err := readDivided(ctx, x, r.View, registry.Children(l.Instances()), registry.Data(l.Members()), registry.Data(l.Epoch()), registry.Data(l.Assignment()))
	if err != nil {
		return err
	}
	members, division := tree.ParseMembers(n.Data(l.Members()).Data), tree.ParseDivision(n.Data(l.Assignment()).Data)
	stranger := slices.ContainsFunc(n.Children(l.Instances()), func(id string) bool { return !slices.Contains(members, id) })
	r.javaSeen = division.JavaSeen
	if stranger || division.Java || len(division.Foreigners) > 0 || byJava(n.Data(l.Epoch()), first) {
		r.javaSeen = math.MaxInt64
	}
	return nil
}

// unmarked reports that an item has no mark of who runs it, or is to.
func (it *owedItem) unmarked() bool {
	return !it.running.Exists && !it.failover.Exists && !it.failovering.Exists && !it.mark.Exists
}

// fate is what happens to an item of the crashed host.
type fate uint8

const (
	fateSettled   fate = iota + 1 // settled already
	fateLost                      // it will not run again
	fateOvertaken                 // will not run again; its record names a newer run
	fateElsewhere                 // a Java host has run it
	fateKilled                    // will not run again: an operator had killed it
	fateHeld                      // will not run again, and the item is held back
	fateLeft                      // not for this host, or not now
	fateClaim
)

// judge decides about one item. claimed is how many this host has claimed so far.
func (r *recovery) judge(i int, it *owedItem, owed tree.Runs, claimed int) fate {
	java := owed.Java != "" || r.Dead == ""
	if r.settled(it, owed) {
		return fateSettled
	}
	if !java && it.state.Record.Owner != r.Dead {
		// The host that completes an item, or takes it over, removes it from the list in the same commit. This
		// item is still listed: with failover off its new owner begins it for the next instant, perhaps before
		// this host gets here.
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
		// One host reports it, not all.
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
	mayTake := claimed < r.Limit && !it.state.Disabled && !r.busy(i) && r.View.Enabled && r.mine.Contains(i)
	if !mayTake {
		return fateLeft
	}
	if r.holds(it, owed) {
		return fateHeld
	}
	if r.Permit != nil && (r.unpermitted[i] || r.Permit(i, it.fire) == "") {
		return fateLeft
	}
	return fateClaim
}

// busy reports whether this host is running the item.
func (r *recovery) busy(i int) bool { return r.Busy != nil && r.Busy(i) }

// deadOf returns the id in the dead host's marks.
func (r *recovery) deadOf(owed tree.Runs) string {
	if owed.Java != "" {
		return owed.Java
	}
	return r.Dead
}

// settled reports that nothing is owed of an item any more.
func (r *recovery) settled(it *owedItem, owed tree.Runs) bool {
	record, dead := it.state.Record, r.deadOf(owed)
	if java := owed.Java != "" || r.Dead == ""; !java {
		return record.Owner == dead && !record.Open()
	}
	runsOnOurs := record.Open() && slices.Contains(r.View.Members, record.Owner) && r.lives(record.Owner)
	return runsOnOurs || (!it.mark.Exists && !names(it.running, dead) && !names(it.failovering, dead))
}

// repeats reports whether hosts repeat an item at all: failover is on, and the
// total count was not lowered since.
func (r *recovery) repeats(i int, it *owedItem) bool {
	cfg := r.View.Config
	return cfg.Failover && cfg.MonitorExecution && it.node.Exists && (cfg.ShardingTotalCount <= 0 || i < cfg.ShardingTotalCount)
}

// taken reports that another host runs an item, or may. A failover mark that is not
// ephemeral is unowned: an external edit has made it.
func (r *recovery) taken(it *owedItem, owed tree.Runs) bool {
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
func (r *recovery) mourned(it *owedItem, owed tree.Runs) tree.Record {
	if r.Dead == "" || owed.Java != "" || owed.Left {
		return it.state.Record
	}
	return it.state.Record.NoteDeath(r.Dead)
}

// holds reports whether the dead host is one too many for the item.
func (r *recovery) holds(it *owedItem, owed tree.Runs) bool {
	return tooMany(r.mostDeaths, it.state.Record, r.mourned(it, owed))
}

// mostDeaths is the job's limit of deaths in a row; 0 for none.
func mostDeaths(c jobconfig.Configuration) int {
	guest, _ := c.Guest() // what cannot be read has its default
	return guest.MaxHostDeaths
}

// tooMany reports whether a death brings an item's record to the job's limit.
func tooMany(most int, before, after tree.Record) bool {
	return after.Deaths > before.Deaths && most > 0 && after.Deaths >= most
}
