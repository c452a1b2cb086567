package engine_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// An instant that is due when the schedule changes begins, or says why not,
// though the new schedule does not have it: here on a host whose session was in
// doubt at the instant, while another host applied the change.
//
// It kills the mutant "schedule changed before the instant that is due".
func TestAScheduleChangesWhileAnInstantIsDue(t *testing.T) {
	for _, cron := range []string{"0 30 * * * ?", "0 0/20 * * * ?", ""} {
		t.Run("new schedule "+cron, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				var mu sync.Mutex
				var session *registrytest.FaultyCenter
				doubt := func(level registry.Trust) {
					mu.Lock()
					defer mu.Unlock()
					session.Doubt(level)
				}
				c.wrap = func(n int, l *lease) registry.Center {
					if n != 1 {
						return l
					}
					mu.Lock()
					defer mu.Unlock()
					session = registrytest.Faulty(l, nil)
					return session
				}
				d := definition("hourly", "0 0 * * * ?", 4)
				c.start(1, job(d, sleeper(time.Second)))
				n2 := c.start(2, job(d, sleeper(time.Second)))
				time.Sleep(time.Minute)
				instant := time.Now().Truncate(time.Hour).Add(time.Hour)
				time.Sleep(time.Until(instant.Add(-5 * time.Second)))
				doubt(registry.TrustSuspect)
				time.Sleep(8 * time.Second)
				d.Cron = cron
				n2.host.Apply([]engine.Job{job(d, sleeper(time.Second))}, nil)
				time.Sleep(time.Second)
				doubt(registry.TrustLive)
				time.Sleep(5 * time.Minute)

				began := make(map[int]int)
				for _, e := range c.list(event.ItemStarted) {
					if e.Instant.Equal(instant) {
						began[*e.Item]++
					}
				}
				for item := range 4 {
					if began[item] != 1 {
						t.Errorf("item %d began %d times for %s, want once", item, began[item], instant.UTC().Format(time.TimeOnly))
					}
				}
				if t.Failed() {
					t.Log(c.all())
				}
			})
		})
	}
}
