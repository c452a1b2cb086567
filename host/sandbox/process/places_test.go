package process

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// There are twice as many processes of one job as items, and three quarters of the tasks at most.
func TestNewPlaces(t *testing.T) {
	for _, c := range []struct{ items, tasks, want, share int }{
		{0, 0, 16 * runtime.GOMAXPROCS(0), 12 * runtime.GOMAXPROCS(0)},
		{20, 0, 40, 30},
		{20, 16 * tasksOfProcess(), 12, 9},
		{1, 100_000, 2, 1},
		{20, 5, 1, 1},
	} {
		if p := newPlaces(c.items, c.tasks); p.Free() != c.want || p.share != c.share {
			t.Errorf("%d items, %d tasks: %d processes, %d for a group, expected %d and %d", c.items, c.tasks, p.Free(), p.share, c.want, c.share)
		}
	}
}

// Processes start as fast as there are places, and then so many in a second.
func TestNewPlaces_pace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, begin := newPlaces(4, 0), time.Now()
		for range 8 + 20*startsPerProcessor*runtime.GOMAXPROCS(0) {
			if err := p.pace.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin).Round(time.Second); took != 20*time.Second {
			t.Errorf("that many starts took %s, expected 20s", took)
		}
	})
}

// Jobs with processes of their own have as many at once as there are places; an idle one is
// ended for another job, and one that runs is waited for, without memory.
func TestPlaces(t *testing.T) {
	w := workers(t, "good", plugin.Options{}, Options{tasks: 3 * tasksOfProcess()}) // two places
	m := moduleOf(t, w, "c/guest")
	var jobs []abi.Executor
	for i, group := range []string{"file a", "file a", "file a", "file b"} {
		jobs = append(jobs, executorOf(t, m, plugin.Settings{JobName: fmt.Sprint("job", i), Type: wasm.TypeSimple, Group: group}))
	}
	trials := w.Stats().Running
	begin := func(job int) abi.Worker {
		t.Helper()
		g, err := jobs[job].NewWorker(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	one := begin(0)
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	one = begin(1)
	if n := w.Stats().Running - trials; n != 1 { // one of two is for other groups
		t.Errorf("%d processes of the group run, expected the idle one to end", n)
	}
	memory := w.o.Runtime.Memory().Guests
	short, cancel := context.WithCancel(t.Context())
	waits := make(chan error)
	go func() {
		_, err := jobs[2].NewWorker(short)
		waits <- err
	}()
	waiting := func() {
		for w.wanted.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	waiting()
	two := begin(3) // there is a place for another group
	if err := two.Close(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Errorf("a third job of the group: %v, expected it to wait", err)
	}
	if more := w.o.Runtime.Memory().Guests - memory; more > baseMemory+16<<20 {
		t.Errorf("who waits has %d bytes", more)
	}
	next := make(chan abi.Worker)
	go func() {
		g, err := jobs[2].NewWorker(t.Context())
		if err != nil {
			t.Error(err)
		}
		next <- g
	}()
	waiting()
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	if g := <-next; g != nil {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
}
