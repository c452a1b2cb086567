package history

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// TestFeed_linger: what many fires at one instant leave is written when it has lingered, and not
// while they begin; more than a batch holds is.
func TestFeed_linger(t *testing.T) {
	for _, c := range []struct {
		name    string
		records int
		reason  string
		want    []int // records of each batch
		at      time.Duration
	}{
		{"a burst", 2000, "", []int{2000}, time.Second},
		{"more records", 5000, "", []int{4096, 904}, time.Second},
		{"more bytes", 5, strings.Repeat("x", 600<<10), []int{2, 2, 1}, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var batches []int
				var last time.Time
				f := NewFeed(FeedOptions{Linger: time.Second}, func(batch []Entry) {
					batches = append(batches, len(batch))
					last = time.Now()
				})
				begun := time.Now()
				for range c.records {
					f.AddEvent(event.Event{Kind: event.JobAdded, Reason: c.reason})
				}
				time.Sleep(10 * time.Second)
				f.Close()
				if !slices.Equal(batches, c.want) || last.Sub(begun) != c.at {
					t.Errorf("batches %v, the last after %v; want %v, %v", batches, last.Sub(begun), c.want, c.at)
				}
			})
		})
	}
}
