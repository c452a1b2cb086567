package host

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/run"
)

// killWatchAfter is how long guests of a fire run before this host watches what
// operators ask it to end. A fire that is over sooner costs nothing; what was
// asked meanwhile is found then.
const killWatchAfter = time.Second

// seeKills takes what operators ask of this host from a snapshot.
func (j *job) seeKills(s registry.Snapshot) {
	if n, watched := s[coordination.KillQuery(j.member.Layout, j.member.Self)]; watched {
		j.killing.asked, j.killing.version, j.killing.stands = coordination.ReadKills(n), n.Version, n.Exists
	}
}

// endKilled ends the runs that operators have killed, and says so when nothing
// of them runs any more. What was begun since is not meant.
func (j *job) endKilled(now moment) {
	j.killing.lookAt = time.Time{}
	if !j.killing.stands {
		return
	}
	open := false
	for _, it := range j.sorted(func(it *item) bool { return it.run != nil }) {
		k, asked := j.killing.asked.Of(it.number, it.run.Fence)
		if !asked {
			continue
		}
		open = true
		grace := time.Duration(k.Grace) * time.Millisecond
		first, unclaimed := it.run.Abort(k.Reason(), now.Add(grace))
		if first {
			j.log.Warn("an operator ends a run", zap.Int("item", it.number), zap.String("run", it.run.RunID()), zap.String("reason", k.Reason()), zap.Duration("grace", grace))
		}
		if unclaimed {
			ended, _ := it.run.KilledBefore()
			j.hear(ended)
		}
		if at := it.run.Press(now.Time); !at.IsZero() {
			j.killing.lookAt = soonest(j.killing.lookAt, at)
		}
	}
	if open || now.Before(j.refusal.retryAt) || !j.term.registry.Trusted() {
		return
	}
	if err := coordination.DropKills(j.work, j.member.Registry, j.member.Layout, j.member.Self, j.killing.version); err != nil {
		j.failed(now, "ending a kill", err)
		return
	}
	j.killing.stands = false
}

// goesOn reports whether a run has not ended.
func (j *job) goesOn(e *run.Execution) bool {
	it := j.items[e.Item]
	if it == nil || it.run != e {
		return false
	}
	_, ended := j.ended[e.Item]
	return !ended
}

// wantsKills reports whether to watch what operators ask to end: something has
// run for long, lately.
func (j *job) wantsKills(now moment) bool {
	for f := range j.fires {
		since := f.Started().Add(killWatchAfter)
		switch {
		case !slices.ContainsFunc(f.Runs, j.goesOn):
		case !now.Before(since):
			j.killing.ranLong = now.Time
		default:
			j.killing.lookAt = soonest(j.killing.lookAt, since)
		}
	}
	return !j.killing.ranLong.IsZero() && now.Before(j.killing.ranLong.Add(longestSleep))
}
