package engine

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// access is the part of a job's loop that uses the registry. It has this host's membership as the loop knows it, the
// registry's last refusal, and whether the registry differed from what this host knew. A concern that is given access,
// such as a chain, reaches nothing else of the loop.
type access struct {
	shared
	member  coordination.Member
	stale   staleShare
	refusal refusal
	againAt time.Time // when to try again what the registry's state stood against
}

// staleShare records that a begin met a conflict: the registry's state was not the one that this host knew.
type staleShare struct {
	reread bool      // the share is to be read again, before anything begins
	atOnce bool      // in a pass of the loop that follows this one at once
	count  int       // such begins in a row
	at     time.Time // the last of them
}

// often reports whether more than three begins in a row met a conflict, so that probably no other host is about to change
// the registry.
func (s *staleShare) often() bool { return s.count > 3 }

// refusal is the registry's last refusal, and when to try again.
type refusal struct {
	what     string
	at       time.Time
	retryAt  time.Time
	conflict bool // a write met another state than this host knew: another program may have edited the job's nodes
}

// again makes the loop try again at the given time, or sooner.
func (a *access) again(now moment, at time.Time) { a.againAt = soonest(now.ahead(a.againAt), at) }

// wakes returns when the registry may be asked again.
func (a *access) wakes(now moment) time.Time { return now.ahead(a.refusal.retryAt, a.againAt) }

// failed records that the registry refused a step, and when to try again.
func (a *access) failed(now moment, what string, err error) {
	if a.work.Err() != nil || errors.Is(err, registry.ErrSessionLost) {
		return
	}
	a.refusal.retryAt = now.Add(retryPause)
	if errors.Is(err, registry.ErrConflict) {
		a.refusal.conflict = true
	}
	a.refusal.what, a.refusal.at = what+": "+err.Error(), now.Time
	a.log.Warn(what+"; failed, trying again", zap.Error(err), zap.Duration("after", retryPause))
}

// setback is failed for a step that other steps do not depend on. If the registry denies the step, setback returns true:
// the host goes on, and the caller tries the step again later.
func (a *access) setback(now moment, what string, err error) (later bool) {
	if !registry.IsDenied(err) {
		a.failed(now, what, err)
		return false
	}
	a.refusal.what, a.refusal.at = what+": "+err.Error(), now.Time
	a.log.Warn("the registry denied "+what+"; trying again later", zap.Error(err))
	return true
}

// rests reports whether the registry must not be asked yet, because it refused a moment ago.
func (a *access) rests(now moment) bool { return now.Before(a.refusal.retryAt) }

// counts returns how many items there are: the count of the division by which they begin, not that of the configuration,
// which each host reads at another time. Java hosts follow the configuration, and so do our hosts under a division by a
// Java leader.
func (a *access) counts() tree.Counts {
	v, counts := &a.member.View, a.member.Share.Counts
	if v.Division.Java || a.member.Share.Java || v.Division.Total == 0 {
		return tree.Counts{Total: v.Config.ShardingTotalCount}
	}
	if counts.Since > v.Division.Since {
		return counts
	}
	return v.Division.Counts
}

// beyond reports whether an item's number is not below the total count, which was larger before.
func (a *access) beyond(it *item) bool {
	total := a.counts().Total
	return total > 0 && it.number >= total
}

// layoutOf returns the nodes of another job of the namespace.
func (a *access) layoutOf(job string) tree.Layout {
	return tree.NewLayout(a.member.Layout.Namespace, job)
}

// knowsShare reports whether this host's known share is that of the newest division.
func (a *access) knowsShare() bool { return !a.stale.reread && a.member.Share.Current(a.member.View) }

// foundStale makes a later pass of the loop read the share again, after a begin met a conflict: the next pass, or a later
// one after several conflicts in a row.
func (a *access) foundStale(now moment) {
	s := &a.stale
	since := now.Sub(s.at)
	if since > longestSleep {
		s.count = 0
	}
	s.reread, s.at = true, now.Time
	s.count++
	a.againAt = now.Add(againPause)
	if s.often() {
		a.againAt = now.Add(min(againPause<<min(s.count, 10), commitTimeout))
		a.refusal.conflict = true
	}
	s.atOnce = since > againPause && !s.often()
}
