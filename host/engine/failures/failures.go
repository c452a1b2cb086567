// Package failures counts requests that the registry did not answer, or refused.
package failures

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/event"
)

// reasons are the reasons by which failures are counted.
var reasons = [...]string{"timeout", "unknown", "suspect", "unavailable", "too_large", "other"}

// Counts counts failures by reason. It is safe for concurrent use.
type Counts struct {
	counts [len(reasons)]atomic.Int64
}

// Note counts an error, unless it is nil or expected: another write was faster, or the session or the caller's context
// has ended.
func (c *Counts) Note(err error) {
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
	c.counts[slices.Index(reasons[:], reason)].Add(1)
}

// ByReason returns the number of failures by reason.
func (c *Counts) ByReason() map[string]int64 {
	m := make(map[string]int64, len(reasons))
	for i, reason := range reasons {
		m[reason] = c.counts[i].Load()
	}
	return m
}
