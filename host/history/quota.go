package history

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/event"
)

const (
	day = 24 * time.Hour
	// burstPart is the part of a day's quota that a job may use at once, and
	// againPart the part of that which must be free before the events of a job
	// that was beyond its quota are kept again: whole stretches are worth more
	// than single events.
	burstPart, againPart = 4, 4
)

// quota is the rest of one job's share of the history.
type quota struct {
	ceiling ceiling.Ceiling
	free    float64 // bytes
	at      time.Time
	// beyond is set while the job's events are dropped; dropped counts them.
	beyond  bool
	dropped int64
}

func newQuota(c ceiling.Ceiling, now time.Time) *quota {
	return &quota{ceiling: c, free: float64(c.Value) / burstPart, at: now}
}

// refill adds the share of the time since the last call. It returns the upper limit.
func (q *quota) refill(now time.Time) (burst float64) {
	burst = float64(q.ceiling.Value) / burstPart
	q.free = min(burst, q.free+float64(q.ceiling.Value)*now.Sub(q.at).Seconds()/day.Seconds())
	q.at = now
	return burst
}

// line takes bytes for a line. Half of the burst is kept for events, so that log lines do not displace
// outcomes.
func (q *quota) line(bytes int, now time.Time) bool {
	if burst := q.refill(now); q.free-float64(bytes) < burst/2 {
		return false
	}
	q.free -= float64(bytes)
	return true
}

// take uses so many bytes. It reports false if the job's events are to be
// dropped; what went before and what comes after that is reported by the caller.
func (q *quota) take(bytes int, now time.Time) bool {
	burst := q.refill(now)
	need := min(float64(bytes), burst)
	if (q.beyond && q.free < burst/againPart) || q.free < need {
		return false
	}
	q.free -= need
	return true
}

// admit reports whether a record of so many bytes may be kept. It first passes events about dropped ones to
// say.
func (q *quotas) admit(r Record, bytes int, say func(event.Event)) bool {
	job := r.Job()
	if job == "" || r.Change != nil { // who changed what is never dropped
		return true
	}
	now := time.Now()
	one := q.jobs[job]
	if one == nil {
		one = newQuota(q.ceilings.Of(job, ceiling.HistoryBytes), now)
		q.jobs[job] = one
	}
	if one.ceiling.Value == ceiling.Off {
		return true
	}
	if r.Line != nil {
		return one.line(bytes, now) || q.over(job)
	}
	ok := one.take(bytes, now)
	switch {
	case ok && one.beyond:
		say(one.end(job, r.Event.Host, r.Event.Time))
	case !ok && !one.beyond:
		one.beyond = true
		q.log.Warn("the history drops a job's events", zap.String("job", job), zap.Stringer("because", one.ceiling))
		say(event.Event{Time: r.Event.Time, Kind: event.OverQuota, Host: r.Event.Host, Job: job, Ceiling: ceiling.HistoryBytes,
			Reason: fmt.Sprintf("from here on the job's events are not kept: %s", one.ceiling)})
	}
	if !ok {
		one.dropped++
		return q.over(job)
	}
	return true
}

// over counts a dropped record. It returns false.
func (q *quotas) over(job string) bool {
	if q.onOver != nil {
		q.onOver(job)
	}
	return false
}

// end returns the event with the number of dropped events.
func (q *quota) end(job, instance string, at time.Time) event.Event {
	e := event.Event{Time: at, Kind: event.OverQuota, Host: instance, Job: job, Ceiling: ceiling.HistoryBytes, Count: q.dropped,
		Reason: fmt.Sprintf("%d events of the job were not kept up to here: %s", q.dropped, q.ceiling)}
	q.beyond, q.dropped = false, 0
	return e
}
