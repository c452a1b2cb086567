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

// Recovery is a host's request to take over what a crashed host left behind.
type Recovery struct {
	// Dead is the crashed host's instance id.
	Dead string
	// All takes everything that is left, not only this host's share.
	All bool
	// Limit is how many items this host can take now.
	Limit int
	// Busy reports whether this host runs an item itself; nil means that it runs none.
	Busy func(item int) bool
	// Permit returns the ticket with which the item is to run under a limit. An empty path means that none is
	// granted, and the item is left. It returns the same ticket each time. A nil Permit means that the items
	// are under no limit.
	Permit func(item int, fire tree.Fire) string
	// From is Recovered.Next of the previous call, if that was not 0.
	From int
	// Seen is Recovered.Version of the previous call; 0 at the first. While other hosts still take items, a
	// large remainder is left to them even with All.
	Seen int32
	Now  time.Time
}

// Recovered is the result of a Recovery.
type Recovered struct {
	// Claimed items were begun by this host, as failover of their fires.
	Claimed []Claim
	// Lost were begun by the dead host and will not run again in their fire: failover is off or, as State
	// shows, another host has begun them for a later one. Lost and Elsewhere are reported even with an error:
	// the commit may have taken effect without an answer.
	Lost []Claim
	// Elsewhere were run again by Java hosts.
	Elsewhere []Claim
	// Held are held back: too many hosts in a row have died in runs of the item. State.Record names the run.
	Held []Claim
	// Killed were not taken over, because an operator had killed the run. State.Record has the reason.
	Killed []Claim
	// Left were not taken: disabled, another host's share, over Limit, or beyond Next.
	Left tree.Ranges
	// Denied are those of Left that the registry does not permit to take or to close.
	Denied Denials
	// Next is set if there may be more items than one call takes: pass it as From to the next call.
	Next int
	// Version is the version of the dead host's list of runs, from 1.
	Version int32
	// Settled is set when nothing of the dead host is left.
	Settled bool
	// Gone is set if the dead host has died, Stopped if it left in good order with unfinished runs.
	Gone, Stopped bool
	Commits       int
}

// Claim is one item of a crashed host.
type Claim struct {
	Item  int
	Fire  tree.Fire
	State ItemState
}

// Recover takes over items that a crashed host had begun, or with failover off records them as lost. The items
// are divided in blocks among the hosts that run nothing of the job, or among all hosts if each runs something;
// the first host to take its share records these hosts, and the others use that list. Each takes its share in
// one commit, which also begins the items, or in several if they do not fit one. A call handles some thousand
// items and returns Next for the next call. Any host may call it, any number of times; after an error the next
// call finds what had been claimed.
//
// A host is dead when its instance node and its detail node are both gone. If only the instance node is gone,
// an operator has stopped the host and it finishes what it runs.
//
// An empty Dead means items that Java hosts have marked as crashed and that are in no host's list of runs.
//
// While Java hosts are in the job, or have marked items, items are taken in ElasticJob's failover latch, and
// those that a Java host has taken are left to it. A Java host marks and takes only items whose running mark
// outlived its host. If that mark and all others are gone, the Java host has run the item, or, if no Java host
// was in the job since the run began, a person has deleted the mark.
//
// The host's place in that latch is m.Takeover. If Behind is set there afterwards, call Recover again when that
// node is gone.
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
	// leave are the ops that leave the latch, set while it is this host's turn.
	leave []registry.Op
	// idle are the hosts among which items are divided, as first read.
	idle []string
	// looked is set once All was decided from what is left.
	looked bool
	// mine are the remaining items that this host takes.
	mine tree.Ranges
	// alive are the hosts that have a detail node.
	alive []string
	// from is the first undecided item. chunk are the items from there that were read, nil if they must be
	// read; read counts the reads of items.
	from  int
	chunk *owing
	read  int
	// noted are the runs that are in out.
	noted      map[notedRun]bool
	mostDeaths int
	// unpermitted are items whose ticket was found to be gone.
	unpermitted map[int]bool
	// javaSeen is until when a Java host was in the job, in Unix milliseconds. It is only known if an item of
	// the dead host has lost its marks.
	javaSeen int64
}

// notedRun names a run that was closed.
type notedRun struct {
	item int
	fire tree.Fire
}

// end is the value of from when nothing is left.
const end = math.MaxInt

// look reads what the dead host has left, and takes this host's part. done is false if look must be called
// again.
func (r *recovery) look(ctx context.Context, x *step.Exchange) (done bool, err error) {
	if r.Dead == "" {
		return r.lookAtMarks(ctx, x)
	}
	l := r.View.Layout
	lives := []registry.Query{registry.Data(l.Instance(r.Dead)), registry.Data(l.Detail(r.Dead))} // and may have left now
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
		// No host knows what was running: Sweep removes its marks, and the items' records show what is due.
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
			return true, nil // one host removes it, not all
		}
		return true, r.bury(ctx, x, n)
	}
	if len(owed.Takers) == 0 {
		owed.Shared, owed.Takers = owed.Ranges(), r.idle
	}
	r.share(owed, runs)
	return r.take(ctx, x, owed, runs)
}

// share sets the items that this host takes of what is left, by the node that was read.
func (r *recovery) share(owed tree.Runs, node registry.Node) {
	left := owed.Ranges()
	r.out.Left, r.out.Version = left, node.Version+1
	if !r.looked && r.All && left.Len() > owedAtOnce && r.Seen != r.out.Version {
		r.All = false // a host that takes so much may need a while
	}
	r.looked = true
	if r.mine = left; !r.All {
		r.mine = owed.BlockOf(r.View.Self.ID).And(left)
	}
}

// beyond finds the items that the job never had: those beyond the total count without a node in either tree.
// Items that an external edit invented are not taken over.
func (r *recovery) beyond(ctx context.Context, x *step.Exchange, items tree.Ranges) (none tree.Items, err error) {
	first := max(r.View.Config.ShardingTotalCount, r.View.Division.Total)
	if len(items) == 0 || items[len(items)-1].To < first {
		return nil, nil
	}
	return neverWere(ctx, x, r.View.Layout, slices.Collect(items.Since(first)))
}

// neverWere finds the items without a node in either tree. No host begins an item without a record.
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

// adopt claims items that this host has begun by a commit whose outcome was unknown, and hands back those that
// turn out to be another host's. own is the node of its list of runs. adopted is true if there were such items.
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

// idle returns the takers that run nothing of the job; all takers, if each runs something. n has their lists.
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

// lives reports whether a host may still run something: a host that an operator has stopped has left the job
// but finishes what it runs.
func (r *recovery) lives(id string) bool {
	return slices.Contains(r.View.Instances, id) || slices.Contains(r.alive, id)
}
