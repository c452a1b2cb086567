package host

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/host/ceiling"
	"github.com/wasmjob/wasmjob/host/event"
)

const (
	// burstSeconds is how long a quota has to be unused until it is full: a job
	// that was quiet may use that much at once.
	burstSeconds = 10
	// quotaInterval is how often the use beyond a quota is reported, at most.
	quotaInterval = 5 * time.Second
)

// quotas are what one job may use on this host in a second. Guests use them
// from their goroutines; the job's loop reports what went beyond.
type quotas struct {
	lines, bytes, commits *quota
}

func newQuotas(l ceiling.List, job string) quotas {
	return quotas{newQuota(l.Of(job, ceiling.LogLines)), newQuota(l.Of(job, ceiling.LogBytes)), newQuota(l.Of(job, ceiling.OffsetCommits))}
}

// quota is one of them.
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

// take uses n of the quota. It reports false, and uses nothing, if there is less.
func (q *quota) take(n int) bool {
	return q.limiter == nil || q.limiter.AllowN(time.Now(), n)
}

// reportQuotas reports what the job has used beyond its quotas, at most once
// per quotaInterval.
func (j *job) reportQuotas(now moment) {
	j.mail.mu.Lock()
	beyond := j.mail.beyond
	j.mail.beyond = false
	j.mail.mu.Unlock()
	if beyond && j.quotaAt.IsZero() {
		j.quotaAt = now.Add(quotaInterval)
	}
	if j.quotaAt.IsZero() || now.Before(j.quotaAt) {
		return
	}
	j.quotaAt = time.Time{}
	j.flushQuotas()
}

// beyondCeilings reports whether an error is a configuration's that is beyond
// the host's ceilings.
func beyondCeilings(err error) bool {
	beyond := (*ceiling.Error)(nil)
	return errors.As(err, &beyond)
}

// refused reports whether it is this host that does not want to join: for its
// ceilings, or because the registry is a copy.
func refused(err error) bool {
	copied := (*coordination.CopiedError)(nil)
	return beyondCeilings(err) || errors.As(err, &copied)
}

// refusedAgain is how long a host waits before it looks again at a
// configuration that is beyond its ceilings, or at a registry that is a copy,
// while it is not in the job.
const refusedAgain = time.Minute

// refuse notes that the job is not joined: what the registry has, with what the
// definition changes in it, is beyond the host's ceilings, or the registry is a
// copy that was not adopted.
func (j *job) refuse(now moment, err error) {
	known := j.joining.err != nil && j.joining.err.Error() == err.Error()
	j.joining.err, j.refusal.retryAt = err, now.Add(refusedAgain)
	j.settled.Store(true)
	if !known {
		j.log.Error("the job does not run on this host", zap.Error(err))
		j.Emit(event.Event{Kind: event.JobError, Reason: err.Error()})
	}
}

// declines reports that this host has to leave the job to others: the
// configuration is beyond its ceilings, and it has none that was in force
// before, or the leader goes by it.
func (j *job) declines() bool {
	total := j.host.cfg.Ceilings.Of(j.name, ceiling.ShardingTotalCount)
	return beyondCeilings(j.member.View.ConfigErr) && (j.member.View.Config.JobName == "" || total.Beyond(int64(j.member.View.Division.Total)))
}

// decline leaves the job once what runs has ended, and tries to join again
// later.
func (j *job) decline(now moment) {
	if j.running() > 0 || now.Before(j.refusal.retryAt) {
		return
	}
	why := j.member.View.ConfigErr
	if err := j.member.Leave(j.work, nil); err != nil {
		j.failed(now, "leaving the job", err)
		return
	}
	j.dropTrigger(event.SkipRefused, "the configuration is beyond this host's ceilings")
	j.unwatchAll()
	clear(j.items)
	j.Emit(event.Event{Kind: event.JobRemoved, Reason: "the configuration is beyond this host's ceilings"})
	j.rejoin(now)
	j.refuse(now, why)
}

// leaderRefuses says why nothing begins here under a leader that refuses the
// number of items which this host knows: the guests of both would count
// differently.
func (j *job) leaderRefuses() string {
	v := j.member.View
	if v.ConfigErr != nil || !v.LeaderRefuses() || v.Division.Total == v.Config.ShardingTotalCount {
		return ""
	}
	return fmt.Sprintf("the leader, %s, refuses the configuration: it divides %d items, and the configuration has %d; see its status", v.Leader, v.Division.Total, v.Config.ShardingTotalCount)
}
