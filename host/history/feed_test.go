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
// while they begin. A queue that is half full, and a Close, do not wait.
func TestFeed_linger(t *testing.T) {
	for _, c := range []struct {
		name    string
		records int
		reason  string
		want    []int         // records of each batch
		first   time.Duration // when it was written; all were within a second more
	}{
		{"a burst", 2000, "", []int{2000}, time.Second},
		{"more bytes than a batch has", 5, strings.Repeat("x", 600<<10), []int{2, 2, 1}, time.Second},
		{"half a queue", 4097, "", []int{4096, 1}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var batches []int
				var first, last time.Time
				f := NewFeed(FeedOptions{Linger: time.Second}, func(batch []Entry) {
					if len(batches) == 0 {
						first = time.Now()
					}
					batches, last = append(batches, len(batch)), time.Now()
				})
				begun := time.Now()
				for range c.records {
					f.AddEvent(event.Event{Kind: event.JobAdded, Reason: c.reason})
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if !slices.Equal(batches, c.want) || first.Sub(begun) != c.first || last.Sub(first) > time.Second {
					t.Errorf("batches %v, the first after %v; want %v, %v", batches, first.Sub(begun), c.want, c.first)
				}
				for range c.records {
					f.AddEvent(event.Event{Kind: event.JobAdded, Reason: c.reason})
				}
				closing := time.Now()
				f.Close()
				if took := time.Since(closing); took != 0 || len(batches) != 2*len(c.want) {
					t.Errorf("Close took %v; batches %v", took, batches)
				}
			})
		})
	}
}
