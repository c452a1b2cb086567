package engine_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
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

// TestQueueAllOfANewJob: of what comes while the items of a new job are sharded for the first time the newest has its run,
// also without catch-up.
func TestQueueAllOfANewJob(t *testing.T) {
	for off := -1500 * time.Millisecond; off <= 0; off += 100 * time.Millisecond {
		t.Run(off.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.wrap = func(_ int, l *lease) registry.Center {
					return &slow{lease: l, call: 300 * time.Millisecond, news: 100 * time.Millisecond}
				}
				d := policy("overlap", "queue_all", "catchUp", "none")
				d.Cron, d.ShardingTotalCount = "0/2 * * * * ?", 2
				until(minute(1).Add(off))
				c.start(1, job(d, sleeper(10*time.Millisecond)))
				until(minute(1).Add(30 * time.Second))
				first := c.list(event.ItemStarted)[0]
				accounted(c, "j", first.Instant, minute(1).Add(26*time.Second), 2*time.Second, []int{0, 1})
				if late := first.Time.Sub(first.Instant); first.Source == abi.SourceSchedule || late > 8*time.Second {
					t.Errorf("the first run is of the source %s, and begins %s after its instant\n%s", first.Source, late, c.all())
				}
			})
		})
	}
}

// TestQueueAllNeverBegan: an instant of a job that has never run, and that no host had, is missed.
func TestQueueAllNeverBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := policy("overlap", "queue_all", "catchUp", "none")
		d.Cron = "0 0/20 * * * ?"
		n := c.start(1, job(d, sleeper(time.Second)))
		until(minute(10))
		n.stop()
		<-n.done
		until(minute(50))
		c.start(2, job(d, sleeper(time.Second)))
		until(minute(61))
		c.expect("00:00 schedule for 00:00", "too_old for 20:00 to 50:00")
	})
}
