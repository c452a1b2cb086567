package coordination

import (
	"context"
	"time"

	"github.com/wasmjob/wasmjob/coordination/recipe/latch"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Member is one host's membership of one job: what the host knows of the job and what it has begun. Its methods
// are the steps of the protocol. Each reads nodes by name, decides by pure functions, commits, and looks again
// after a conflict; after an error it may be called again. A Member is for one goroutine: the job's loop.
//
// Steps for other goroutines and for operators are functions of a session and a [tree.Layout].
type Member struct {
	tree.Layout
	Self     tree.JobInstance
	Registry registry.Center
	// View is the newest snapshot of the job's nodes.
	View View
	// Share is what the host owns, as of the last successful ReadShare.
	Share Share
	// Runs is what the host has begun and not completed, RunsVersion the version of
	// its node.
	Runs        tree.Runs
	RunsVersion int32
	// Unknown is set while the registry may hold begins that this host does not know of, because the outcome of
	// a commit is unknown. Begin, Complete, Recover and Resolve find them.
	Unknown bool
	// ends is how fires have ended, as far as this host knows, if other jobs come after this one.
	ends knownEnds
	// Election and Takeover are the host's places in ElasticJob's latches.
	Election, Takeover latch.Line
}

// Observe takes a snapshot of the Control nodes.
func (m *Member) Observe(s registry.Snapshot) {
	m.View = ParseView(s, m.Layout, m.Self, m.View)
}

// mixed reports whether Java hosts are in the job, or divided its items.
func (m *Member) mixed() bool { return m.Share.Java || m.View.Mixed() }

// perform runs one step with the member's session.
func (m *Member) perform(ctx context.Context, name string, what func(context.Context, *step.Exchange) error) error {
	return step.Perform(ctx, m.Registry, name, what)
}

// Resolve resolves commits whose outcome is still unknown: scheduled instants are handed back and due again;
// other runs stay begun, and are returned for the host to run them. ask allows a reshard: an item that stayed
// only because it was begun here can move then.
func (m *Member) Resolve(ctx context.Context, now time.Time, ask bool) (adopted []Claim, err error) {
	if !m.Unknown {
		return nil, nil
	}
	v := m.View
	out, err := m.Complete(ctx, Completing{Wake: true, AskForSharding: ask && !v.Necessary && v.Leader != "" && !v.JavaLed(), Now: now})
	if err != nil {
		return nil, err
	}
	return out.Adopted, nil
}

// TriggerRound returns the round of the trigger that waits for this host: the transaction that last created or
// set the parent node. ElasticJob recreates that node for every round, before the nodes of the instances, each
// of which has a transaction of its own. consumed is the newest round that this host has consumed. If the
// parent node's round is not newer than consumed, or is older than this host, an external edit made the trigger
// and it is a round by itself. args are the arguments of the round. round is 0 if there is no trigger.
func (m *Member) TriggerRound(ctx context.Context, consumed int64) (round int64, args tree.TriggerArgs, err error) {
	l, id := m.Layout, m.Self.ID
	err = m.perform(ctx, "read trigger", func(ctx context.Context, x *step.Exchange) error {
		n, err := x.Read(ctx, registry.Data(l.Triggers()), registry.Data(l.Trigger(id)), registry.Data(l.Instance(id)))
		if err != nil {
			return err
		}
		parent, own, instance := n.Data(l.Triggers()), n.Data(l.Trigger(id)), n.Data(l.Instance(id))
		if !own.Exists {
			return nil
		}
		round = own.Czxid
		if parent.Mzxid > consumed && instance.Exists && parent.Mzxid > instance.Czxid {
			round, args = parent.Mzxid, tree.ParseTriggerArgs(parent.Data)
		}
		return nil
	})
	return round, args, err
}
