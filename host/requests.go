package host

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/event"
)

// counted is a session as one job uses it: its calls have a time limit each,
// however many an exchange takes, failures are counted, and it notes the newest
// transaction that one of them made.
type counted struct {
	registry.Center
	job  *shared
	zxid *int64
}

func (c counted) Commit(ctx context.Context, ops ...registry.Op) (results []registry.Result, err error) {
	late := func() {
		c.job.reportWait(&event.WaitError{What: event.WaitRegistry, For: "its turn among this host's commits", Then: "it goes on waiting: the registry is slow", After: commitTimeout})
	}
	if err := c.job.host.commits.Enter(ctx, commitTimeout, late); err != nil {
		return nil, err
	}
	sent := time.Now()
	err = c.limited(ctx, func(ctx context.Context) error {
		results, err = c.Center.Commit(ctx, ops...)
		return err
	})
	c.job.host.commits.Leave(sent, time.Now(), results != nil)
	for k := range results {
		results[k] = results[k].Raise(c.job.base.Load())
		*c.zxid = max(*c.zxid, results[k].Zxid)
	}
	if i := slices.IndexFunc(results, func(r registry.Result) bool { return !r.Time.IsZero() }); i >= 0 {
		c.job.host.registry.note(sent, time.Now(), results[i].Time)
	}
	return results, err
}

func (c counted) Read(ctx context.Context, queries ...registry.Query) (nodes []registry.Node, err error) {
	err = c.limited(ctx, func(ctx context.Context) error {
		nodes, err = c.Center.Read(ctx, queries...)
		return err
	})
	for k := range nodes {
		nodes[k] = nodes[k].Raise(c.job.base.Load())
	}
	return nodes, err
}

// limited makes a call with a time limit. Its error is a *WaitError if the limit
// was reached, and not one that the caller had set.
func (c counted) limited(ctx context.Context, call func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	err := call(limited)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		late := &event.WaitError{What: event.WaitRegistry, For: "an answer of the registry", After: commitTimeout, Err: err}
		if c.job.work.Err() == nil {
			c.job.reportWait(late)
		}
		err = late
	}
	c.job.host.failures.note(err)
	return err
}

// failures counts requests that the registry did not answer, or refused.
type failures struct {
	counts [len(failureReasons)]atomic.Int64
}

// failureReasons are the reasons by which failures are counted.
var failureReasons = [...]string{"timeout", "unknown", "suspect", "unavailable", "too_large", "other"}

// note counts an error, unless it is nil or in the order of things: another was
// faster, or the session or the caller has ended.
func (f *failures) note(err error) {
	reason := ""
	switch {
	case err == nil, errors.Is(err, registry.ErrConflict), errors.Is(err, registry.ErrSessionLost), errors.Is(err, registry.ErrClosed):
		return
	case errors.Is(err, event.ErrWaited):
		reason = "timeout"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return
	case errors.Is(err, registry.ErrUnknown):
		reason = "unknown"
	case errors.Is(err, registry.ErrSuspect):
		reason = "suspect"
	case errors.Is(err, registry.ErrUnavailable):
		reason = "unavailable"
	case errors.Is(err, registry.ErrTooLarge):
		reason = "too_large"
	default:
		reason = "other"
	}
	f.counts[slices.Index(failureReasons[:], reason)].Add(1)
}

// snapshot is how many failures there were, by reason.
func (f *failures) snapshot() map[string]int64 {
	m := make(map[string]int64, len(failureReasons))
	for i, reason := range failureReasons {
		m[reason] = f.counts[i].Load()
	}
	return m
}
