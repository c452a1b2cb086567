package ratelimit

import (
	"sync"
	"time"
)

// Records says which failures are recorded: about 10 a minute of an address, or of
// a user, so that they do not push out the records of what was done. It is
// safe for concurrent use, and bounded in memory as a Throttle is.
type Records struct {
	now func() time.Time

	mu      sync.Mutex
	sources table
}

// NewRecords makes it with a clock.
func NewRecords(now func() time.Time) *Records {
	return &Records{now: now, sources: newTable(rate{10, 6 * time.Second})}
}

// Take reports whether a failure of a source, an address or a name, is to be recorded, and
// how many were left out since the last one that was.
func (r *Records) Take(source string) (ok bool, left int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	b := r.sources.bucket(keyOf(network(source)), now)
	if b.wait(now) > 0 {
		b.left++
		return false, 0
	}
	b.level--
	left, b.left = b.left, 0
	return true, left
}
