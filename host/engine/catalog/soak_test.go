//go:build soak

package catalog

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/engine"
)

// TestSoakReloads replaces a module 10,000 times, runs each version, and sees
// that memory, goroutines and open files end where they were after the first
// thousand.
func TestSoakReloads(t *testing.T) {
	const reloads, warm = 10_000, 1_000
	rt := newRuntime(t)
	dir := t.TempDir()
	put(t, dir, "a.yaml", fmt.Sprintf(tinyDefinition, "a", ""))
	put(t, dir, "a.wasm", string(tinyModule(0, "0")))
	c, err := New(Options{Dir: dir, Runtime: rt, Debounce: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	states := make(chan engine.Job, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- c.Run(ctx, func(jobs []engine.Job, refused []engine.Refusal) {
			if len(refused) > 0 {
				t.Errorf("refused: %+v", refused)
			}
			if len(jobs) == 1 {
				states <- jobs[0]
			}
		})
	}()
	type usage struct {
		heap, resident int64
		goroutines     int
		files          int
	}
	measure := func() usage {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		u := usage{heap: int64(m.HeapAlloc), goroutines: runtime.NumGoroutine()}
		if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
			u.files = len(fds)
		}
		if statm, err := os.ReadFile("/proc/self/statm"); err == nil {
			if pages, err := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64); err == nil {
				u.resident = pages * int64(os.Getpagesize())
			}
		}
		return u
	}
	var first usage
	began := time.Now()
	await := func() engine.Job {
		limit := time.NewTimer(time.Minute)
		defer limit.Stop()
		select {
		case job := <-states:
			return job
		case <-limit.C:
			t.Fatal("no new state")
			return engine.Job{}
		}
	}
	for i := range reloads {
		job := await()
		e, err := job.Module.Executor(job.Definition)
		if err != nil {
			t.Fatal(err)
		}
		if r := execute(t, e, "a"); r.Outcome != abi.OutcomeOK {
			t.Fatalf("version %d: %+v", i, r)
		}
		e.Release()
		if i == warm {
			first = measure()
		}
		put(t, dir, "a.wasm", string(tinyModule(0, strconv.Itoa(i+1))))
	}
	await()
	last := measure()
	t.Logf("%d reloads in %v; after %d: %+v, at the end: %+v", reloads, time.Since(began).Round(time.Second), warm, first, last)
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	if grown := last.heap - first.heap; grown > 8<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	if grown := last.resident - first.resident; grown > 64<<20 {
		t.Errorf("resident memory grew by %d bytes", grown)
	}
	if last.goroutines > first.goroutines+2 || last.files > first.files+2 {
		t.Errorf("goroutines or files were left: %+v, then %+v", first, last)
	}
}
