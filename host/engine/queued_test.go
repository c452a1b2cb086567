package engine_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/event"
)

// TestQueueAllWhileSharded: with queue_all each instant that comes while the items are being sharded has its run, also
// without catch-up: the items had hosts.
func TestQueueAllWhileSharded(t *testing.T) {
	for _, catchUp := range []string{"none", "latest", "all"} {
		for off := -4 * time.Second; off <= 500*time.Millisecond; off += 125 * time.Millisecond {
			t.Run(fmt.Sprint(catchUp, off), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t)
					c.wrap = func(_ int, l *lease) registry.Center {
						return &slow{lease: l, call: 150 * time.Millisecond, news: 100 * time.Millisecond}
					}
					d := policy("overlap", "queue_all", "catchUp", catchUp)
					d.Cron, d.ShardingTotalCount = "* * * * * ?", 4
					c.start(1, job(d, sleeper(10*time.Millisecond)))
					until(minute(1).Add(off))
					c.start(2, job(d, sleeper(10*time.Millisecond)))
					until(minute(1).Add(15 * time.Second))
					from := minute(1).Add(-8 * time.Second)
					accounted(c, "j", from, minute(1).Add(10*time.Second), time.Second, []int{0, 1, 2, 3})
					for _, e := range c.list(event.ItemSkipped, event.FireSkipped) {
						if e.Instant.After(from) && !e.Owed {
							t.Errorf("item %v does not run for %s: %s, %s", e.Item, e.Instant.Format("04:05"), e.Cause, e.Reason)
						}
					}
				})
			})
		}
	}
}
