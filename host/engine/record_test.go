package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// TestABeginTellsOfTheRunBefore: if another instance had it.
func TestABeginTellsOfTheRunBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("told", "0 * * * * ?", 1)
		first := c.start(1, job(d, sleeper(time.Second)))
		time.Sleep(150 * time.Second)
		first.stop()
		if err := <-first.done; err != nil {
			t.Fatal(err)
		}
		c.start(2, job(d, sleeper(time.Second)))
		time.Sleep(2 * time.Minute)
		began := c.list(event.ItemStarted)
		if len(began) != 4 {
			t.Fatalf("%d runs, want 4\n%s", len(began), c.all())
		}
		for i, e := range began {
			switch was := e.Previous; {
			case i != 2 && was != nil:
				t.Errorf("run %d tells of %+v", i, *was)
			case i == 2 && (was == nil || was.Host != began[1].Host || !was.Instant.Equal(began[1].Instant) || was.Trigger != 0 || was.Outcome != abi.OutcomeOK):
				t.Errorf("run %d tells of %+v, want the run of %s on %s", i, was, began[1].Instant, began[1].Host)
			}
		}
	})
}

// TestAJobGoesWhileThereIsNoSession: the next term says so, once.
func TestAJobGoesWhileThereIsNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var down atomic.Bool
		c.config = func(cfg *engine.Config) {
			dial := cfg.Dial
			cfg.Dial = func(ctx context.Context) (registry.Center, error) {
				if down.Load() {
					return nil, errors.New("no route")
				}
				return dial(ctx)
			}
		}
		stays, goes := job(definition("stays", "0 * * * * ?", 1), sleeper(0)), job(definition("goes", "0 * * * * ?", 1), sleeper(0))
		n := c.start(1, stays, goes)
		time.Sleep(10 * time.Second)
		down.Store(true)
		c.expire(n)
		time.Sleep(10 * time.Second)
		n.host.Apply([]engine.Job{stays}, nil)
		down.Store(false)
		time.Sleep(time.Minute)
		n.host.Apply([]engine.Job{stays, goes}, nil)
		time.Sleep(10 * time.Second)
		n.host.Apply([]engine.Job{stays}, nil)
		time.Sleep(10 * time.Second)
		removed := c.list(event.JobRemoved)
		if len(removed) != 2 || removed[0].Job != "goes" || removed[1].Job != "goes" || removed[0].Host == "" ||
			!strings.Contains(removed[0].Reason, "no session") || strings.Contains(removed[1].Reason, "no session") {
			t.Errorf("told of\n%s", lines(removed))
		}
	})
}
