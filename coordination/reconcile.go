package coordination

import (
	"context"
	"time"

	"github.com/wasmjob/wasmjob/coordination/recipe/latch"
	"github.com/wasmjob/wasmjob/coordination/step"
)

// Action is what a host does for the job as a whole.
type Action string

// The actions.
const (
	ActionNone      Action = ""
	ActionLeaveLine Action = "leave the line"
	ActionResign    Action = "resign"
	ActionElect     Action = "elect"
	ActionReshard   Action = "reshard"
	ActionAsk       Action = "ask for sharding"
)

// Reconcile returns what this host should do next for the job as a whole, from its view: give up leadership,
// stand for election, divide the items, or ask the leader to divide if it may not know. The host does it with
// [Member.Act] and calls Reconcile again after the next snapshot.
func (m *Member) Reconcile(now time.Time) Action {
	v, line := m.View, m.Election
	if line.Standing && v.Exists && !v.CanLead() {
		return ActionLeaveLine
	}
	if !v.Exists || !v.Joined() {
		return ActionNone
	}
	if v.Leading() && !v.Enabled {
		return ActionResign
	}
	if v.CanLead() {
		if line.Behind != "" && !line.Around {
			return ActionNone // it waits for its turn
		}
		return ActionElect
	}
	if v.unconfigured() {
		return ActionNone
	}
	if v.Leading() {
		return v.reconcileLeader(now)
	}
	if v.JavaLed() && !m.Share.Current(v) {
		// A Java leader records nothing: whether its division is out of date is known when the share has been
		// read.
		return ActionNone
	}
	if !v.DivisionStale().IsZero() && !v.Necessary && v.Leader != "" && !v.leaderSees() {
		return ActionAsk
	}
	return ActionNone
}

// reconcileLeader is Reconcile for the leader. With Java hosts it waits until the flag has settled.
func (v View) reconcileLeader(now time.Time) Action {
	mixed := v.Mixed()
	if v.Flagged() || !v.DivisionStale().IsZero() {
		if mixed && !v.Necessary {
			return ActionAsk
		}
		if now.Before(v.DivideAt()) {
			return ActionNone
		}
		return ActionReshard
	}
	if mixed && len(v.Division.Deferred) > 0 && !now.Before(v.DivideAt()) {
		return ActionAsk
	}
	return ActionNone
}

// Act performs the action. Sharded is set if it divided the items.
func (m *Member) Act(ctx context.Context, a Action, now time.Time) (Sharded, error) {
	switch a {
	case ActionLeaveLine:
		return Sharded{}, m.perform(ctx, string(a), func(ctx context.Context, x *step.Exchange) error {
			return latch.Leave(ctx, x, m.Self.ID, m.Layout.ElectionLatch(), &m.Election)
		})
	case ActionResign:
		return Sharded{}, m.Resign(ctx)
	case ActionElect:
		return Sharded{}, m.Elect(ctx)
	case ActionAsk:
		return Sharded{}, m.AskForSharding(ctx)
	case ActionReshard:
		return m.Reshard(ctx, now)
	}
	return Sharded{}, nil
}

// unconfigured reports that this host has never seen a readable configuration, and that there is no division
// either.
func (v View) unconfigured() bool {
	return v.ConfigErr != nil && v.Config.ShardingTotalCount <= 0 && v.Division.Total <= 0
}
