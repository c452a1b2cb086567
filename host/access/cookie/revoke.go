package cookie

import (
	"context"
	"sync"
	"time"
)

// Revocations remember sessions that were signed out. They are safe for concurrent use.
type Revocations interface {
	// Add remembers a session until it would have expired.
	Add(ctx context.Context, id string, begun, expires time.Time) error
	// Has reports whether the session was signed out.
	Has(id string, begun time.Time) bool
}

// maxRevoked bounds what Memory remembers: about 20 MB.
const maxRevoked = 100_000

// Memory remembers the revocations of one process.
type Memory struct {
	// Now is the clock.
	Now func() time.Time

	mu      sync.Mutex
	revoked map[string]revoked
	// floor ends all sessions that began before it: those that there was no more room
	// to remember are among them.
	floor time.Time
}

type revoked struct{ begun, expires time.Time }

// Add remembers a session. What has expired makes room; where there is none, sessions
// end that began earlier than half of those that are remembered.
func (m *Memory) Add(_ context.Context, id string, begun, expires time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.revoked == nil {
		m.revoked = make(map[string]revoked)
	}
	if len(m.revoked) >= maxRevoked {
		m.shrink()
	}
	m.revoked[id] = revoked{begun, expires}
	return nil
}

// shrink makes room for at least half of maxRevoked, if all began at different times.
func (m *Memory) shrink() {
	now := m.Now()
	var sum time.Duration
	for id, r := range m.revoked {
		if !now.Before(r.expires) {
			delete(m.revoked, id)
			continue
		}
		sum += now.Sub(r.begun) / maxRevoked
	}
	if len(m.revoked) < maxRevoked/2 {
		return
	}
	m.floor = now.Add(-sum).Add(time.Second)
	for id, r := range m.revoked {
		if r.begun.Before(m.floor) {
			delete(m.revoked, id)
		}
	}
}

// Has reports whether the session was signed out, or began before all that is remembered.
func (m *Memory) Has(id string, begun time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.revoked[id]
	return ok || begun.Before(m.floor)
}
