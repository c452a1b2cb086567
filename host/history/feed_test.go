package history

import (
	"testing"

	"github.com/wasmjob/wasmjob/host/event"
)

// TestAFullQueueDropsAndCounts: nothing is written, and adding does not block.
func TestAFullQueueDropsAndCounts(t *testing.T) {
	t.Parallel()
	blocked, free := make(chan bool), make(chan bool)
	written := 0
	f := NewFeed(FeedOptions{Queue: 2}, func(batch []Entry) {
		if written += len(batch); written == 1 {
			close(blocked)
			<-free
		}
	})
	f.AddEvent(event.Event{Kind: event.JobAdded})
	<-blocked
	for range 5 {
		f.AddEvent(event.Event{Kind: event.JobAdded})
	}
	if d, q := f.Dropped(), f.Queued(); d != 3 || q != 2 {
		t.Errorf("dropped %d, queued %d; want 3 and 2", d, q)
	}
	close(free)
	f.Close()
	f.AddEvent(event.Event{Kind: event.JobAdded})
	if d := f.Dropped(); d != 4 || written != 3 {
		t.Errorf("dropped %d after Close, wrote %d; want 4 and 3", d, written)
	}
}
