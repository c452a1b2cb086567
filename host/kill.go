package host

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/registry"
)

// killWatchAfter is how long guests of a fire run before this host watches what
// operators ask it to end. A fire that is over sooner costs nothing; what was
// asked meanwhile is found then.
const killWatchAfter = time.Second

// errOperator is the cause with which the context of a guest ends that an
// operator has killed.
var errOperator = errors.New("an operator killed the run, and its grace is over")

// stopping is what an operator's kill needs of an execution.
type stopping struct {
	mu      sync.Mutex
	stop    context.CancelCauseFunc // ends the guest, and what its worker waits for; nil while it has none
	inGuest bool
	reason  string    // why it was killed; empty: it was not
	until   time.Time // when it is stopped by force
	forced  bool
}

// life is the context of an item, from when a worker takes it until the func is
// called. It ends when the item is killed, or with guests.
func (e *execution) life(guests context.Context) (own context.Context, end func()) {
	own, stop := context.WithCancelCause(guests)
	s := &e.stopping
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = stop
	if s.reason != "" {
		stop(errOperator)
	}
	return own, func() { stop(nil) }
}

// enter notes that the guest begins, and reports false if it must not.
func (e *execution) enter() bool {
	s := &e.stopping
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inGuest = s.reason == ""
	return s.inGuest
}

// leave notes that the guest has ended.
func (e *execution) leave() {
	s := &e.stopping
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inGuest = false
}

// abort kills the run, once: the guest is asked to end by the given time, and
// what only waits ends at once. first is true if it was not killed before,
// unclaimed if no worker has taken the item: none will.
func (e *execution) abort(reason string, until time.Time) (first, unclaimed bool) {
	s := &e.stopping
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason != "" {
		if until.Before(s.until) {
			s.until = until // asked for again, with less grace
		}
		return false, false
	}
	s.reason, s.until = reason, until
	e.cancel(abi.CancelAbort)
	if s.stop != nil && !s.inGuest {
		s.stop(errOperator)
	}
	return true, e.claimed.CompareAndSwap(false, true)
}

// press stops the guest by force if its grace is over. It returns when that is,
// if it is not.
func (e *execution) press(now time.Time) (at time.Time) {
	s := &e.stopping
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.until) {
		return s.until
	}
	if s.inGuest && !s.forced {
		s.forced = true
		s.stop(errOperator)
	}
	return time.Time{}
}

// killedBefore is the end of an item that was killed before its guest began.
func (e *execution) killedBefore() (endedRun, bool) {
	s := &e.stopping
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason == "" {
		return endedRun{}, false
	}
	reason := s.reason + "; it had not started"
	if e.attempt.Load() > 0 {
		reason = s.reason + "; it waited for another attempt"
	}
	return endedRun{run: e, result: abi.Result{Outcome: abi.OutcomeCancelled, Message: reason}, reason: reason}, true
}

// killed is the end of an item that was killed while its guest ran, or between
// two attempts. A guest that did its work nevertheless has done it.
func (e *execution) killed(r abi.Result) (endedRun, bool) {
	s := &e.stopping
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason == "" {
		return endedRun{}, false
	}
	reason := s.reason
	switch {
	case r.Outcome == abi.OutcomeOK:
		reason += "; it had done its work"
	case s.forced:
		reason += "; its guest was stopped by force"
	case r.Outcome == abi.OutcomeTimeout:
		reason += "; its time was up"
	default:
		reason += "; its guest ended by itself"
	}
	if r.Outcome != abi.OutcomeOK {
		r.Outcome, r.Message = abi.OutcomeCancelled, reason
	}
	return endedRun{run: e, result: r, reason: reason}, true
}

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
		k, asked := j.killing.asked.Of(it.number, it.run.fence)
		if !asked {
			continue
		}
		open = true
		grace := time.Duration(k.Grace) * time.Millisecond
		first, unclaimed := it.run.abort(k.Reason(), now.Add(grace))
		if first {
			j.log.Warn("an operator ends a run", zap.Int("item", it.number), zap.String("run", it.run.runID()), zap.String("reason", k.Reason()), zap.Duration("grace", grace))
		}
		if unclaimed {
			ended, _ := it.run.killedBefore()
			j.hear(ended)
		}
		if at := it.run.press(now.Time); !at.IsZero() {
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
func (j *job) goesOn(e *execution) bool {
	it := j.items[e.item]
	if it == nil || it.run != e {
		return false
	}
	_, ended := j.ended[e.item]
	return !ended
}

// wantsKills reports whether to watch what operators ask to end: something has
// run for long, lately.
func (j *job) wantsKills(now moment) bool {
	for f := range j.fires {
		since := f.started.Add(killWatchAfter)
		switch {
		case !slices.ContainsFunc(f.runs, j.goesOn):
		case !now.Before(since):
			j.killing.ranLong = now.Time
		default:
			j.killing.lookAt = soonest(j.killing.lookAt, since)
		}
	}
	return !j.killing.ranLong.IsZero() && now.Before(j.killing.ranLong.Add(longestSleep))
}
