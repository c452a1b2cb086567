package zookeeper

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// The thresholds, as fractions of the session timeout T since the send time of the last answered sync.
//
// Guests are cancelled so late that an outage of T/2 cancels none: when the outage begins the last answer is
// about T/12 old, and when it ends T/24 is left to find a server and get an answer.
const (
	syncEvery    = 12 // a sync every T/12
	suspectAfter = 3  // T/3
)

// yieldAfter is 5T/8.
func yieldAfter(timeout time.Duration) time.Duration { return timeout / 8 * 5 }

// lostAfter is 2T/3: a leader that is cut off from its followers answers for up to (syncLimit + 1) × tickTime,
// and T should be at least three times that.
func lostAfter(timeout time.Duration) time.Duration { return timeout / 3 * 2 }

// trust is what is known about whether the session lives.
type trust struct {
	timeout   atomic.Int64  // T as granted, 0: no session yet
	answered  atomic.Int64  // the session was alive at this time of the clock
	published atomic.Uint32 // the level that was reported

	mu      sync.Mutex
	ended   bool
	changed chan struct{} // closed when published changes
}

func (t *trust) init() { t.changed = make(chan struct{}) }

func (t *trust) granted() time.Duration { return time.Duration(t.timeout.Load()) }

// grant notes what the servers granted.
func (t *trust) grant(timeout time.Duration) { t.timeout.Store(int64(timeout)) }

// confirm notes that the session was alive at a time.
func (t *trust) confirm(at time.Duration) {
	for {
		old := t.answered.Load()
		if int64(at) <= old || t.answered.CompareAndSwap(old, int64(at)) {
			return
		}
	}
}

// level is how far the session can be trusted now.
func (t *trust) level(now time.Duration) registry.Trust {
	timeout, age := t.granted(), now-time.Duration(t.answered.Load())
	switch {
	case timeout == 0, age < timeout/suspectAfter:
		return registry.TrustLive
	case age < yieldAfter(timeout):
		return registry.TrustSuspect
	case age < lostAfter(timeout):
		return registry.TrustYield
	}
	return registry.TrustLost
}

// untilNextLevel returns when the level gets worse unless an answer comes.
func (t *trust) untilNextLevel(now, timeout time.Duration) time.Duration {
	age := now - time.Duration(t.answered.Load())
	for _, at := range []time.Duration{timeout / suspectAfter, yieldAfter(timeout), lostAfter(timeout)} {
		if at > age {
			return at - age
		}
	}
	return 0
}

// over makes the level TrustLost for good.
func (t *trust) over() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	close(t.changed)
}
