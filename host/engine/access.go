package engine

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// access is what the parts of a job's loop use of the registry: this host's membership, as the loop knows it, what the registry
// refused last, and whether it was otherwise than this host knew. A part that is given it, as a chain is, reaches nothing else of the loop.
type access struct {
	shared
	member  coordination.Member
	stale   staleShare
	refusal refusal
	againAt time.Time // when to try again what the registry's state stood against
}

// staleShare is what a begin found out that met another state of the registry than
// this host knew.
type staleShare struct {
	reread bool      // the share is to be read again, before anything begins
	atOnce bool      // in a pass of the loop that follows this one at once
	count  int       // such begins in a row
	at     time.Time // the last of them
}

// hurry has the loop go before others on this host that begin and end no runs, and for which no fire waits, until the function is called
// that it returns.
func (a *access) hurry() (over func()) {
	was := a.turn.Hurry
	a.turn.Hurry = true
	return func() { a.turn.Hurry = was }
}

// often reports whether so many begins in a row found the registry to be otherwise that
// no host seems to be on the way to change anything.
func (s *staleShare) often() bool { return s.count > 3 }

// refusal is what the registry refused last, and when to try again.
type refusal struct {
	what     string
	at       time.Time
	retryAt  time.Time
	conflict bool // a write met another state than this host knew: another program may have edited the job's nodes
}

// again has the loop try again at a time, or sooner.
func (a *access) again(now moment, at time.Time) { a.againAt = soonest(now.ahead(a.againAt), at) }

// wakes is when the registry is asked again.
func (a *access) wakes(now moment) time.Time { return now.ahead(a.refusal.retryAt, a.againAt) }

// failed notes that the registry refused, and when to try again.
func (a *access) failed(now moment, what string, err error) {
	if a.work.Err() != nil || errors.Is(err, registry.ErrSessionLost) {
		return
	}
	a.refusal.retryAt = now.Add(retryPause)
	if errors.Is(err, registry.ErrConflict) {
		a.refusal.conflict = true
	}
	a.refusal.what, a.refusal.at = what+": "+err.Error(), now.Time
	a.log.Warn(what+"; trying again", zap.Error(err), zap.Duration("after", retryPause))
}

// setback is failed for a step that others do not wait for. If the registry denies it, the
// host goes on: it returns true, and the caller tries that step again later.
func (a *access) setback(now moment, what string, err error) (later bool) {
	if !registry.IsDenied(err) {
		a.failed(now, what, err)
		return false
	}
	a.refusal.what, a.refusal.at = what+": "+err.Error(), now.Time
	a.log.Warn(what+" is denied; trying again later", zap.Error(err))
	return true
}

// rests reports whether the registry is not to be asked yet, because it refused a moment ago.
func (a *access) rests(now moment) bool { return now.Before(a.refusal.retryAt) }

// counts is how many items there are: as many as the division made by which they begin, and not
// as the configuration says, of which each host hears at another time. Java hosts go by the
// configuration, and so do ours by a division of theirs.
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

// beyond reports whether an item is left over from a larger total count.
func (a *access) beyond(it *item) bool {
	total := a.counts().Total
	return total > 0 && it.number >= total
}

// layoutOf are the nodes of another job of the namespace.
func (a *access) layoutOf(job string) tree.Layout {
	return tree.NewLayout(a.member.Layout.Namespace, job)
}

// knowsShare reports whether what this host knows of its share is what was divided.
func (a *access) knowsShare() bool { return !a.stale.reread && a.member.Share.Current(a.member.View) }

// foundStale has the share read again in a later pass of the loop, after a begin that
// found the registry to be otherwise: at once, but for several of them in a row.
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
