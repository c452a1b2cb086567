package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/event"
)

// TestTotalRaisedAtAnInstant: all items of one fire run by one number of items, and those that it
// has all run, whenever that is raised: before the instant, while hosts begin their items for
// it, or after; also on a host for which the registry is slow, and if the leader's host is.
func TestTotalRaisedAtAnInstant(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		hosts, from, to int
		latency         map[int]time.Duration
	}{
		{2, 4, 6, nil},
		{2, 4, 6, map[int]time.Duration{1: 4 * ms, 2: 9 * ms}},
		{2, 4, 6, map[int]time.Duration{1: 9 * ms, 2: 2 * ms}},
		{3, 4, 5, map[int]time.Duration{1: 4 * ms, 2: 2 * ms, 3: 9 * ms}}, // two hosts keep what they have
		{3, 4, 5, map[int]time.Duration{1: 9 * ms, 2: 4 * ms, 3: 2 * ms}},
	} {
		for off := -150 * ms; off <= 60*ms; off += 3 * ms {
			t.Run(fmt.Sprint(tt, ", ", off), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t)
					c.wrap = func(n int, l *lease) registry.Center {
						return &slow{l, tt.latency[n], tt.latency[n] / 2}
					}
					var s totals
					d := definition("big", "*/10 * * * * ?", tt.from)
					for n := 1; n <= tt.hosts; n++ {
						c.start(n, job(d, s.guest()))
						time.Sleep(5 * time.Second) // the first leads
					}
					time.Sleep(time.Until(time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC).Add(off)))
					d.ShardingTotalCount = tt.to
					c.edit(d)
					time.Sleep(25 * time.Second)
					s.mu.Lock()
					defer s.mu.Unlock()
					for at, seen := range s.seen {
						if distinct := slices.Compact(slices.Sorted(slices.Values(seen))); len(distinct) != 1 || len(seen) != distinct[0] {
							t.Errorf("the fire at %s ran by the totals %v\n%s", at, seen, c.all())
						}
					}
					if seen := s.seen["00:01:10"]; len(seen) != tt.to {
						t.Errorf("%d items ran ten seconds later, expected %d", len(seen), tt.to)
					}
				})
			})
		}
	}
}

// TestTotalLoweredAtAnInstant: all items of one fire run by one number of items, and each that the
// fire has runs or has a reason not to, whenever that number is lowered.
//
// It kills the mutant "number of items by the newest configuration".
// It kills the mutant "item that went with its instant".
func TestTotalLoweredAtAnInstant(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		hosts, from, to int
		latency, news   map[int]time.Duration
	}{
		{2, 6, 4, nil, nil},
		{2, 20, 4, map[int]time.Duration{1: 4 * ms, 2: 9 * ms}, map[int]time.Duration{2: 40 * ms}},
		{3, 20, 4, map[int]time.Duration{1: 9 * ms, 2: 2 * ms, 3: 4 * ms}, map[int]time.Duration{1: 30 * ms, 2: 3 * ms}},
		{3, 20, 4, map[int]time.Duration{1: 2 * ms, 2: 6 * ms, 3: 8 * ms}, map[int]time.Duration{1: 2 * ms, 2: 25 * ms, 3: 38 * ms}},
	} {
		for off := -120 * ms; off <= 60*ms; off += 3 * ms {
			t.Run(fmt.Sprint(tt.hosts, tt.from, tt.to, tt.latency, ", ", off), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t)
					c.wrap = func(n int, l *lease) registry.Center { return &slow{l, tt.latency[n], tt.news[n]} }
					var s totals
					d := definition("big", "*/10 * * * * ?", tt.from)
					for n := 1; n <= tt.hosts; n++ {
						c.start(n, job(d, s.guest()))
						time.Sleep(5 * time.Second) // the first leads
					}
					time.Sleep(time.Until(time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC).Add(off)))
					d.ShardingTotalCount = tt.to
					c.edit(d)
					time.Sleep(25 * time.Second)
					s.mu.Lock()
					defer s.mu.Unlock()
					for at, seen := range s.seen {
						distinct := slices.Compact(slices.Sorted(slices.Values(seen)))
						if len(distinct) != 1 {
							t.Errorf("the fire at %s ran by the totals %v\n%s", at, seen, c.all())
							continue
						}
						known := make(map[int]bool)
						for _, e := range c.list(event.ItemStarted, event.ItemSkipped) {
							first, through := e.Instant.UTC().Format("15:04:05"), e.Through.UTC().Format("15:04:05")
							if first == at || (!e.Through.IsZero() && first < at && at <= through) {
								known[*e.Item] = true
							}
						}
						for n := range distinct[0] {
							if !known[n] {
								t.Errorf("item %d of the fire at %s of %d items neither ran nor has a reason\n%s", n, at, distinct[0], c.all())
							}
						}
					}
					if seen := s.seen["00:01:10"]; len(seen) != tt.to {
						t.Errorf("%d items ran ten seconds later, expected %d", len(seen), tt.to)
					}
				})
			})
		}
	}
}
