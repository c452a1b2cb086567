package history

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	f := NewFeed(FeedOptions{Queue: 2}, func(batch []Entry) int64 {
		if written += len(batch); written == 1 {
			close(blocked)
			<-free
		}
		return 0
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
	if d := f.Dropped(); d != 4 || written != 4 {
		t.Errorf("dropped %d after Close, wrote %d; want 4, and 4 with the event about the 3 before", d, written)
	}
}

// TestFeed_lost: what was lost is in the history once it takes records again: how many, since when, and of whom. The event is
// not lost with them, and in an overload it does not come with each batch.
func TestFeed_lost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		var mu sync.Mutex // of list
		var list []event.Event
		f := NewFeed(FeedOptions{}, func(batch []Entry) int64 {
			mu.Lock()
			defer mu.Unlock()
			if full.Load() {
				return int64(len(batch))
			}
			for _, e := range batch {
				list = append(list, *e.Event)
			}
			return 0
		})
		add := func(n int) {
			for range n {
				f.AddEvent(event.Event{Time: time.Now(), Kind: event.JobAdded, Host: "10.0.0.1@-@7-x"})
			}
			synctest.Wait()
		}
		told := func() (found []event.Event) {
			mu.Lock()
			defer mu.Unlock()
			for _, e := range list {
				if e.Kind == event.HistoryLost {
					found = append(found, e)
				}
			}
			return found
		}
		add(3)
		full.Store(true)
		begin := time.Now()
		for range 5 {
			add(4)
			time.Sleep(time.Minute)
		}
		if f.Dropped() != 20 || len(told()) != 0 {
			t.Fatalf("%d were lost, and %v was written", f.Dropped(), told())
		}
		full.Store(false)
		add(1)
		lost := told()
		if len(lost) != 1 || lost[0].Count != 20 || !lost[0].Instant.Equal(begin) || lost[0].Host != "10.0.0.1@-@7" || !strings.HasPrefix(lost[0].Reason, "20 records of this host could not be written since ") {
			t.Errorf("%+v", lost)
		}
		for range 20 { // half of each second's
			full.Store(true)
			add(1)
			full.Store(false)
			add(1)
			time.Sleep(time.Second)
		}
		f.Close()
		count := int64(0)
		for _, e := range told() {
			count += e.Count
		}
		if count != f.Dropped() || len(told()) > 6 {
			t.Errorf("%d of %d are said to be lost, by %d events", count, f.Dropped(), len(told()))
		}
	})
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
				f := NewFeed(FeedOptions{Linger: time.Second}, func(batch []Entry) int64 {
					if len(batches) == 0 {
						first = time.Now()
					}
					batches, last = append(batches, len(batch)), time.Now()
					return 0
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
