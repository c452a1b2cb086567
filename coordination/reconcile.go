package coordination

import "time"

// Reconcile says what this host should do next for the common good of the
// job, from what it sees: give up leadership, stand for election, divide the
// items, or ask the leader to if that may not know. It reports false if there is nothing to do.
// The host performs the move and looks again when the next snapshot has come.
// share is what the host knows of its share; sharded is filled in when the move
// divides the items; line is this host's place in the latch of the election.
func (v View) Reconcile(now time.Time, share Share, sharded *Sharded, line *Line) (Move, bool) {
	why := v.DivisionStale()
	switch {
	case line.Standing && v.Exists && !v.CanLead():
		return leaveLine(v.Self.ID, v.electionLatch(), line), true
	case !v.Exists || !v.Joined():
		return Move{}, false
	case v.Leading() && !v.Enabled:
		return Resign(v), true
	case v.CanLead() && line.Behind != "" && !line.Around:
		return Move{}, false // it waits for its turn
	case v.CanLead():
		return Elect(v, line), true
	case v.unconfigured():
		return Move{}, false
	case v.Leading() && (v.flagged() || why != ""):
		switch {
		case len(v.Java()) > 0 && !v.Necessary:
			return AskForSharding(v), true // Java hosts wait for it
		case now.Before(v.DivideAt()):
			return Move{}, false
		}
		return Reshard(v, now, sharded), true
	case v.Leading() && len(v.Java()) > 0 && len(v.Division.Deferred) > 0:
		if now.Before(v.DivideAt()) {
			return Move{}, false
		}
		return AskForSharding(v), true
	case v.JavaLed() && !share.Current(v):
		// A Java leader writes nothing down: whether its division is out of
		// date is known when the share has been read.
	case why != "" && !v.Necessary && v.Leader != "" && !v.leaderSees():
		return AskForSharding(v), true
	}
	return Move{}, false
}

// unconfigured reports that this host has never seen a configuration that it
// could read, and that there is no division to go by either.
func (v View) unconfigured() bool {
	return v.ConfigErr != nil && v.Config.ShardingTotalCount <= 0 && v.Division.Total <= 0
}
