package engine_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/engine"
)

// TestNext: the host says which instant of a job comes next, and goes on to another when its fire
// has begun; a job that left has none.
func TestNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var next time.Time
		c := newCluster(t)
		c.wrap = func(_ int, s *lease) registry.Center { return &slow{s, time.Second, 0} }
		c.config = func(cfg *engine.Config) {
			cfg.OnNext = func(_ string, at time.Time) {
				mu.Lock()
				defer mu.Unlock()
				next = at
			}
		}
		want := func(what string, instant time.Time) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !next.Equal(instant) {
				t.Errorf("%s: next is %v, want %v", what, next, instant)
			}
		}
		n := c.start(1, job(definition("next", "0 * * * * ?", 2), sleeper(time.Second)))
		time.Sleep(48 * time.Second)
		minute := time.Now().Truncate(time.Minute).Add(time.Minute)
		want("after the start", minute)
		time.Sleep(time.Until(minute.Add(time.Second)))
		want("while the fire begins", minute)
		time.Sleep(10 * time.Second)
		want("when it has begun", minute.Add(time.Minute))
		n.host.Apply(nil, nil)
		time.Sleep(30 * time.Second)
		want("when the job has left", time.Time{})
	})
}
