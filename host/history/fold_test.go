package history

import (
	"testing"
	"time"
)

// TestSum_takenOver: a fire began when its first run did, also if another host has taken that over.
func TestSum_takenOver(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	f := Sum(nil, []Run{{Job: "j", Item: 0, Instant: at, Begun: at.Add(time.Minute), First: at.Add(time.Second)}, {Job: "j", Item: 1, Instant: at, Begun: at.Add(2 * time.Second)}})
	if !f.Begun.Equal(at.Add(time.Second)) {
		t.Errorf("began at %s, want a second after its instant", f.Begun)
	}
}
