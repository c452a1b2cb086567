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
	for _, latency := range []map[int]time.Duration{{}, {1: 4 * ms, 2: 9 * ms}, {1: 9 * ms, 2: 2 * ms}} {
		for off := -60 * ms; off <= 60*ms; off += 3 * ms {
			t.Run(fmt.Sprint(latency, ", ", off), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t)
					c.wrap = func(n int, l *lease) registry.Center {
						return &slow{l, latency[n], latency[n] / 2}
					}
					var s totals
					d := definition("big", "*/10 * * * * ?", 4)
					for n := 1; n <= 2; n++ {
						c.start(n, job(d, s.guest()))
					}
					time.Sleep(time.Until(time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC).Add(off)))
					d.ShardingTotalCount = 6
					c.edit(d)
					time.Sleep(25 * time.Second)
					s.mu.Lock()
					defer s.mu.Unlock()
					for at, seen := range s.seen {
						if distinct := slices.Compact(slices.Sorted(slices.Values(seen))); len(distinct) != 1 || len(seen) != distinct[0] {
							t.Errorf("the fire at %s ran by the totals %v\n%s", at, seen, c.all())
						}
					}
					if seen := s.seen["00:01:10"]; len(seen) != 6 {
						t.Errorf("%d items ran ten seconds later, expected 6", len(seen))
					}
				})
			})
		}
	}
}
