package engine_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

func TestWorkers_maxConcurrencyHoldsOverFires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("j", "0 * * * * ?", 4)
		d.Props["wasm.maxConcurrency"] = "2"
		var l lone
		g := l.guest(func(item int) time.Duration { return time.Duration(1+item%2*80) * time.Second })
		c.start(1, job(d, g))
		time.Sleep(10 * time.Minute)
		l.check(t, c)
		if l.most > 2 {
			t.Errorf("%d items ran at once, want 2 at most", l.most)
		}
	})
}

// staffed is a guest that counts its workers.
type staffed struct {
	*guest
	workers atomic.Int64
}

func (s *staffed) Executor(d jobconfig.Configuration) (abi.Executor, error) {
	_, err := s.guest.Executor(d)
	return s, err
}

func (s *staffed) NewWorker(context.Context) (abi.Worker, error) {
	s.workers.Add(1)
	return s.guest, nil
}

// TestWorkers has a fire of items that come and go make do with a worker for
// each processor, and one of items that take their time have all it may.
func TestWorkers(t *testing.T) {
	few := runtime.GOMAXPROCS(0)
	for _, tc := range []struct {
		takes time.Duration
		items int
		want  int
	}{{0, 100 * few, few}, {time.Second, 2 * few, 2 * few}, {2 * time.Millisecond, 100 * few, 2 * few}} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			g := &staffed{guest: sleeper(tc.takes)}
			d := definition("staffed", "0 * * * * ?", tc.items)
			c.start(1, engine.Job{Definition: d, Module: g, File: "staffed.yaml", ModuleFile: "staffed.wasm"})
			time.Sleep(90 * time.Second)
			if got := len(c.list(event.ItemCompleted)); got != tc.items {
				t.Errorf("%d items of %s: %d were completed", tc.items, tc.takes, got)
			}
			if got := int(g.workers.Load()); got > tc.want || tc.takes > 0 && got != tc.want {
				t.Errorf("%d items of %s had %d workers; want %d", tc.items, tc.takes, got, tc.want)
			}
		})
	}
}
