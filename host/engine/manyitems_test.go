package engine_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// TestManyItems_othersGoBetween has a job of many items, each of which still runs when the next instant comes, and one of
// another group with which it shares the host's only turn: that one says what becomes of its own instant after some of
// those items, and not after all.
func TestManyItems_othersGoBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const items = 1000
		c := newCluster(t)
		c.config = func(cfg *engine.Config) { engine.SetTurns(cfg, 1); cfg.MaxConcurrency = 2 }
		many, one := definition("many", "0 * * * * ?", items), definition("one", "0 * * * * ?", 1)
		many.Misfire, one.Misfire = false, false // without marks, which are commits: each of them gives up the turn
		jobs := []engine.Job{job(many, sleeper(time.Hour)), job(one, sleeper(time.Hour))}
		jobs[0].Group, jobs[1].Group = "many", "one"
		n := c.start(1, jobs...)
		time.Sleep(90 * time.Second)
		n.host.Look("one") // so that the other's last turn is longer ago
		synctest.Wait()
		before := len(c.list(event.ItemSkipped))
		give := engine.TakeTurn(n.host)
		time.Sleep(40 * time.Second) // both wait
		give()
		time.Sleep(time.Second)
		went := -1
		skips := c.list(event.ItemSkipped)[before:]
		for i, e := range skips {
			if e.Job == "one" {
				went = i
				break
			}
		}
		if len(skips) != items+1 || went < 1 || went > items/4 {
			t.Errorf("the other job's instant came after %d of %d, expected it after some hundreds at most", went, len(skips))
		}
	})
}

// TestManyItems_mayOweTogether has many items whose instants queue: they owe no more than a host keeps for one group, and the
// reason says so.
func TestManyItems_mayOweTogether(t *testing.T) {
	for _, tt := range []struct {
		items, jobs, queue, owe int
		shared                  bool
	}{
		{items: 2, jobs: 1, queue: 5, owe: 5},
		{items: 2, jobs: 1, queue: 20, owe: 10, shared: true},
		{items: 2, jobs: 2, queue: 20, owe: 5, shared: true},
	} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.config = func(cfg *engine.Config) { engine.SetMostOwed(cfg, 20) }
				var jobs []engine.Job
				for i := range tt.jobs {
					d := policy("overlap", "queue_all", "queueMax", fmt.Sprint(tt.queue))
					d.JobName, d.ShardingTotalCount = fmt.Sprint("j", i), tt.items
					jobs = append(jobs, job(d, sleeper(24*time.Hour)))
				}
				other := job(definition("other", "0 0 * * * ?", 1000), sleeper(time.Second))
				other.Group = "another"
				c.start(1, append(jobs, other)...)
				time.Sleep(40 * time.Minute)
				owed, reasons := make(map[string]int), make(map[string]int)
				for _, e := range c.list(event.ItemSkipped) {
					if e.Cause == event.SkipLater {
						owed[fmt.Sprint(e.Job, *e.Item)]++
					} else if e.Cause == event.SkipQueueFull {
						reasons[e.Reason]++
					}
				}
				if len(owed) != tt.items*tt.jobs {
					t.Errorf("%d items owe something, expected %d", len(owed), tt.items*tt.jobs)
				}
				for item, n := range owed {
					if n != tt.owe {
						t.Errorf("item %s owes %d instants, expected %d", item, n, tt.owe)
					}
				}
				want := fmt.Sprintf("the item still runs, and %d instants wait already (queueMax)", tt.owe)
				if tt.shared {
					want = fmt.Sprintf("the item still runs, and %d instants wait already (the host keeps no more for each item of its file; queueMax allows more)", tt.owe)
				}
				if len(reasons) != 1 || reasons[want] == 0 {
					t.Errorf("the reasons are %v, expected %q", reasons, want)
				}
			})
		})
	}
}

// TestManyItems_leavesAtOnce has a job left while its loop goes through instants that its item owes and that are too late to
// run: it does not come to the others.
func TestManyItems_leavesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var n atomic.Pointer[node]
		var late atomic.Int32
		c.config = func(cfg *engine.Config) {
			hear := cfg.OnEvent
			cfg.OnEvent = func(e event.Event) {
				hear(e)
				if e.Cause != event.SkipLate {
					return
				}
				if late.Add(1) == 1 {
					h := n.Load().host
					h.Apply(nil, nil)
					engine.Leave(h, "j") // before the loop goes on
				}
			}
		}
		n.Store(c.start(1, job(policy("overlap", "queue_all", "startWithin", "5s"), first(30*time.Minute+30*time.Second, time.Second))))
		time.Sleep(40 * time.Minute)
		removed := c.list(event.JobRemoved)
		if len(removed) != 1 || late.Load() != 1 {
			t.Errorf("%d instants were dropped and the job was left %d times, expected once each\n%s", late.Load(), len(removed), c.all())
		}
	})
}
