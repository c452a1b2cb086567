package coordination

import (
	"context"
	"math"
	"slices"
	"time"

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
	// Busy reports whether this host is running an item itself; nil: it runs none.
	Busy func(item int) bool
	// Permit returns the ticket with which the item is to run under a limit; empty: there is none that is granted, and
	// the item is left. It gives the same ticket each time. nil: the items are under no limit.
	Permit func(item int, fire tree.Fire) string
	// From is Recovered.Next of the call before, if that was not 0.
	From int
	// Seen is Recovered.Version of the look before; 0 at the first. Much that is left is another
	// host's, whatever All says, as long as somebody takes something.
	Seen int32
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
	// Left were not taken: disabled, somebody else's share, over Limit, or beyond Next.
	Left tree.Ranges
	// Denied are of Left: the registry does not permit to take or to close them.
	Denied Denials
	// Next is set if there may be more to take than one call does: call again with it.
	Next int
	// Version is that of the dead host's list of runs, from 1 on.
	Version int32
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
// writes down that they are lost. The items are divided in blocks among the hosts
// that run nothing of the job, or among all if each runs something; what the
// first host that takes its share has found is written down with it, and the
// others go by that. Each takes its share in one commit, which also begins the
// items, or in several if they do not fit one. A call looks at some thousand items; Next says
// where the next one goes on. Any host may call it, any number of times; after an error the next
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
	g := recovery{Member: m, Recovery: r, own: ownList{m.Runs, m.RunsVersion}, from: r.From, noted: make(map[notedRun]bool), unpermitted: make(map[int]bool), mostDeaths: mostDeaths(m.View.Config)}
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
	// idle are the hosts among which items are divided, as of the first look.
	idle []string
	// looked is set once All was judged by what is left.
	looked bool
	// mine is what this host takes of what is left.
	mine tree.Ranges
	// alive are the hosts whose detail node is there.
	alive []string
	// from is where to go on: the items below it have been decided about. chunk are
	// the items from there on that were read, nil if they are to be read; read is how often items were.
	from  int
	chunk *owing
	read  int
	// noted are the runs that are in out.
	noted      map[notedRun]bool
	mostDeaths int
	// unpermitted are items whose ticket was found to be gone.
	unpermitted map[int]bool
	// javaSeen is until when a Java host was in the job, Unix milliseconds; it is
	// known if an item of the dead host has lost its marks.
	javaSeen int64
}

// notedRun names a run that was closed.
type notedRun struct {
	item int
	fire tree.Fire
}

// end is where to go on if there is nothing more.
const end = math.MaxInt

// look reads what the dead host has left, and takes what this host is to take.
// done is false if it is to look again.
func (r *recovery) look(ctx context.Context, x *step.Exchange) (done bool, err error) {
	if r.Dead == "" {
		return r.lookAtMarks(ctx, x)
	}
	l := r.View.Layout
	lives := []registry.Query{registry.Data(l.Instance(r.Dead)), registry.Data(l.Detail(r.Dead))} // and may leave now
	read := []registry.Query{registry.Data(l.RunsOf(r.Dead)), registry.Data(l.Members()), registry.Data(l.AssignmentOf(r.Dead)), registry.Data(l.Config()), registry.Data(l.RunsOf(r.View.Self.ID)), registry.Children(l.Details())}
	takers := r.View.takers()
	if r.idle == nil {
		for _, id := range takers {
			read = append(read, registry.Data(l.RunsOf(id)))
		}
	}
	n, err := x.ReadAfter(ctx, lives, read...)
	if err != nil {
		return false, err
	}
	if r.idle == nil {
		r.idle = idle(l, takers, n)
	}
	r.alive = n.Children(l.Details())
	if !n.Data(l.Config()).Exists {
		return false, tree.ErrRemoved
	}
	if adopted, err := r.adopt(ctx, x, n.Data(l.RunsOf(r.View.Self.ID))); adopted || err != nil {
		return false, err
	}
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
	none, err := r.beyond(ctx, x, owed.Ranges())
	if err != nil {
		return false, err
	}
	owed = owed.Without(none)
	if len(owed.Runs) == 0 {
		r.out.Left = nil
		if !r.All && !r.View.IsJanitor() {
			return true, nil // one buries it, not all
		}
		return true, r.bury(ctx, x, n)
	}
	if len(owed.Takers) == 0 {
		owed.Shared, owed.Takers = owed.Ranges(), r.idle
	}
	r.share(owed, runs)
	return r.take(ctx, x, owed, runs)
}

// share notes what this host takes of what is left, in the node that was read.
func (r *recovery) share(owed tree.Runs, node registry.Node) {
	left := owed.Ranges()
	r.out.Left, r.out.Version = left, node.Version+1
	if !r.looked && r.All && left.Len() > owedAtOnce && r.Seen != r.out.Version {
		r.All = false // who takes so much may need a while
	}
	r.looked = true
	if r.mine = left; !r.All {
		r.mine = owed.BlockOf(r.View.Self.ID).And(left)
	}
}

// beyond finds out which of the items the job has never had: those beyond the
// total count that are in no tree. Nothing is owed of what an external edit has made up.
func (r *recovery) beyond(ctx context.Context, x *step.Exchange, items tree.Ranges) (none tree.Items, err error) {
	first := max(r.View.Config.ShardingTotalCount, r.View.Division.Total)
	if len(items) == 0 || items[len(items)-1].To < first {
		return nil, nil
	}
	return neverWere(ctx, x, r.View.Layout, slices.Collect(items.Since(first)))
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
	states, err := readItems(ctx, x, l, orphans, &out.Denied)
	if err != nil {
		return false, err
	}
	r.own.runs = r.own.runs.Without(slices.DeleteFunc(slices.Clone(orphans), func(i int) bool { return out.Denied[i] == nil }))
	orphans = out.Denied.without(orphans)
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

// idle are those of the takers that run nothing of the job; all, if each does. n has their lists.
func idle(l tree.Layout, takers []string, n registry.Snapshot) []string {
	var idle []string
	for _, id := range takers {
		if runs, err := tree.ParseRuns(n.Data(l.RunsOf(id)).Data); err == nil && len(runs.Runs) == 0 {
			idle = append(idle, id)
		}
	}
	if len(idle) == 0 {
		return takers
	}
	return idle
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

// lives reports whether a host may still run something: one that an operator
// has stopped is not in the job any more and finishes what it runs.
func (r *recovery) lives(id string) bool {
	return slices.Contains(r.View.Instances, id) || slices.Contains(r.alive, id)
}
