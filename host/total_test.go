package host_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
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
