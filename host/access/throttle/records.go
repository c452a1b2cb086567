package throttle

import (
	"sync"
	"time"
)

// Records says which failures of strangers are recorded: about 10 a minute of an address,
// so that strangers do not push out the records of what users did. It is safe
// for concurrent use, and bounded in memory as a Throttle is.
type Records struct {
	now func() time.Time

	mu        sync.Mutex
	addresses table
}

// NewRecords makes it with a clock.
func NewRecords(now func() time.Time) *Records {
	return &Records{now: now, addresses: newTable(rate{10, 6 * time.Second})}
}

// Take reports whether a failure of an address is to be recorded, and how many were left
// out since the last one that was.
func (r *Records) Take(address string) (ok bool, left int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	b := r.addresses.bucket(keyOf(network(address)), now)
	if b.wait(now) > 0 {
		b.left++
		return false, 0
	}
	b.level--
	left, b.left = b.left, 0
	return true, left
}
