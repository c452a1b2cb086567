package history

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/ceiling"
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

// quota is what one job may still take in the history. It belongs to run.
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

// take uses so many bytes. It reports false if the job's events are to be
// dropped; what went before and what comes after that is reported by the caller.
func (q *quota) take(bytes int, now time.Time) bool {
	burst := float64(q.ceiling.Value) / burstPart
	q.free = min(burst, q.free+float64(q.ceiling.Value)*now.Sub(q.at).Seconds()/day.Seconds())
	q.at = now
	need := min(float64(bytes), burst)
	if (q.beyond && q.free < burst/againPart) || q.free < need {
		return false
	}
	q.free -= need
	return true
}

// admit reports whether an event of so many bytes may be kept, and encodes into
// the batch what there is to say about those that may not.
func (w *Writer) admit(e event.Event, bytes int, say func(event.Event)) bool {
	if e.Job == "" {
		return true
	}
	now := time.Now()
	q := w.quotas[e.Job]
	if q == nil {
		q = newQuota(w.ceilings.Of(e.Job, ceiling.HistoryBytes), now)
		w.quotas[e.Job] = q
	}
	if q.ceiling.Value == ceiling.Off {
		return true
	}
	ok := q.take(bytes, now)
	switch {
	case ok && q.beyond:
		say(q.end(e.Job, e.Host, e.Time))
	case !ok && !q.beyond:
		q.beyond = true
		w.log.Warn("the history drops a job's events", zap.String("job", e.Job), zap.Stringer("because", q.ceiling))
		say(event.Event{Time: e.Time, Kind: event.OverQuota, Host: e.Host, Job: e.Job, Ceiling: ceiling.HistoryBytes,
			Reason: fmt.Sprintf("from here on the job's events are not kept: %s", q.ceiling)})
	}
	if !ok {
		q.dropped++
		if w.onOverQuota != nil {
			w.onOverQuota(e.Job)
		}
	}
	return ok
}

// end is the event that says how many were dropped.
func (q *quota) end(job, instance string, at time.Time) event.Event {
	e := event.Event{Time: at, Kind: event.OverQuota, Host: instance, Job: job, Ceiling: ceiling.HistoryBytes, Count: q.dropped,
		Reason: fmt.Sprintf("%d events of the job were not kept up to here: %s", q.dropped, q.ceiling)}
	q.beyond, q.dropped = false, 0
	return e
}
