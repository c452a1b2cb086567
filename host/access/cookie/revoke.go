package cookie

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Revocations remember sessions that were signed out, for as long as they would have
// lasted. They are safe for concurrent use.
type Revocations interface {
	// Add remembers a session. It counts here whatever the error is, which says that
	// other hosts do not know it.
	Add(ctx context.Context, id string, begun time.Time) error
	// Has reports whether the session was signed out.
	Has(id string, begun time.Time) bool
}

// Ledger is a bounded list of sessions that were signed out, with the time when each
// began, in Unix seconds.
type Ledger struct {
	// Floor ends all sessions that began before it: those that there was no more room to
	// remember are among them.
	Floor    int64            `json:"floor,omitempty"`
	Sessions map[string]int64 `json:"sessions"`
}

// Add remembers a session. Where more than most are remembered, what has expired makes
// room, and then the older half of them, by raising the floor.
func (l *Ledger) Add(id string, begun, now time.Time, most int) {
	if l.Sessions == nil {
		l.Sessions = make(map[string]int64)
	}
	l.Sessions[id] = begun.Unix()
	if len(l.Sessions) <= most {
		return
	}
	expired := now.Add(-Life).Unix()
	maps.DeleteFunc(l.Sessions, func(_ string, began int64) bool { return began <= expired })
	if len(l.Sessions) <= most/2 {
		return
	}
	all := slices.Sorted(maps.Values(l.Sessions))
	l.raise(all[len(all)/2] + 1)
}

// raise raises the floor, and forgets what lies below it.
func (l *Ledger) raise(floor int64) {
	l.Floor = max(l.Floor, floor)
	maps.DeleteFunc(l.Sessions, func(_ string, began int64) bool { return began < l.Floor })
}

// Has reports whether the session was signed out, or began before all that is remembered.
func (l *Ledger) Has(id string, begun time.Time) bool {
	_, ok := l.Sessions[id]
	return ok || begun.Unix() < l.Floor
}

// Merge adds what another ledger has, and reports whether that was anything new.
func (l *Ledger) Merge(other Ledger, now time.Time, most int) (changed bool) {
	if other.Floor > l.Floor {
		l.raise(other.Floor)
		changed = true
	}
	expired := now.Add(-Life).Unix()
	for id, began := range other.Sessions {
		if began > expired && !l.Has(id, time.Unix(began, 0)) {
			l.Add(id, time.Unix(began, 0), now, most)
			changed = true
		}
	}
	return changed
}

// maxRevoked bounds what Memory remembers: about 10 MB.
const maxRevoked = 100_000

// Memory remembers the revocations of one process.
type Memory struct {
	// Now is the clock.
	Now func() time.Time

	mu     sync.Mutex
	ledger Ledger
}

// Add remembers a session.
func (m *Memory) Add(_ context.Context, id string, begun time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ledger.Add(id, begun, m.Now(), maxRevoked)
	return nil
}

// Has reports whether the session was signed out.
func (m *Memory) Has(id string, begun time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ledger.Has(id, begun)
}
