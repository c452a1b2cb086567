package engine

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/wasmjob/wasmjob/coordination/fence"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/event"
)

const (
	// burstSeconds is how long a quota must be unused until it is full: a job that was quiet may use that much at once.
	burstSeconds = 10
	// quotaInterval is the least time between two reports of use beyond a quota.
	quotaInterval = 5 * time.Second
)

// quotas are what one job may use on this host per second. Guests use them from their goroutines; the job's loop reports
// excess use.
type quotas struct {
	lines, bytes, commits *quota
	at                    time.Time // when the loop reports what went beyond one; zero: at no time
}

// report reports the job's use beyond its quotas, at most once per quotaInterval. beyond says that a quota was exceeded
// since the last call.
func (q *quotas) report(now moment, beyond bool, emit func(event.Event)) {
	if beyond && q.at.IsZero() {
		q.at = now.Add(quotaInterval)
	}
	if q.at.IsZero() || now.Before(q.at) {
		return
	}
	q.at = time.Time{}
	q.flush(emit)
}

// flush reports the job's use beyond its quotas.
func (q *quotas) flush(emit func(event.Event)) {
	for _, one := range []*quota{q.lines, q.bytes, q.commits} {
		n := one.beyond.Swap(0)
		if n == 0 {
			continue
		}
		what := "log lines were dropped"
		if one == q.commits {
			what = "offset commits had to wait"
		}
		emit(event.Event{Kind: event.OverQuota, Ceiling: one.ceiling.Name, Count: n, Reason: fmt.Sprintf("%d %s: %s", n, what, one.ceiling)})
	}
}

func newQuotas(l ceiling.List, job string) quotas {
	return quotas{lines: newQuota(l.Of(job, ceiling.LogLines)), bytes: newQuota(l.Of(job, ceiling.LogBytes)), commits: newQuota(l.Of(job, ceiling.OffsetCommits))}
}

// quota is one of the quotas.
type quota struct {
	ceiling ceiling.Ceiling
	limiter *rate.Limiter // nil is no limit
	beyond  atomic.Int64  // not yet reported
}

func newQuota(c ceiling.Ceiling) *quota {
	q := &quota{ceiling: c}
	if c.Value != ceiling.Off {
		q.limiter = rate.NewLimiter(rate.Limit(c.Value), int(burstSeconds*c.Value))
	}
	return q
}

// take uses n of the quota. If less is left, it uses nothing and returns false.
func (q *quota) take(n int) bool {
	return q.limiter == nil || q.limiter.AllowN(time.Now(), n)
}

// beyondCeilings reports whether an error says that a configuration exceeds the host's ceilings.
func beyondCeilings(err error) bool {
	beyond := (*ceiling.Error)(nil)
	return errors.As(err, &beyond)
}

// refused reports whether it is this host that refuses to join: for its ceilings, or because the registry has gone back.
func refused(err error) bool {
	behind := (*fence.BehindError)(nil)
	return beyondCeilings(err) || errors.As(err, &behind)
}

// refusedAgain is how long a host that is not in the job waits before it checks again a configuration that exceeds its
// ceilings, or a registry that has gone back.
const refusedAgain = time.Minute
