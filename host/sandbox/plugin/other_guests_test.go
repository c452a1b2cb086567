package plugin

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

func TestAssemblyScript(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	w := newWorker(t, load(t, r, guest(t, "as/guest")), Settings{})
	for _, c := range []struct {
		parameter string
		outcome   abi.Outcome
		message   string
	}{
		{"ok", abi.OutcomeOK, ""},
		{"boom", abi.OutcomeExit, "job_execute: guest exited with code 255: told to fail at guest.ts:15:3"},
		{"östlich", abi.OutcomeFail, "unknown: östlich"},
	} {
		if got := w.Execute(context.Background(), item(newRecorder(), c.parameter)); got.Outcome != c.outcome || got.Message != c.message {
			t.Errorf("%s: %+v", c.parameter, got)
		}
	}
}

// Loads, runs, traps, timeouts and releases of a few modules, all at once.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	guests := [][]byte{guest(t, "c/guest"), guest(t, "wat/noop"), guest(t, "as/guest")}
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			for i := range 20 {
				m, err := r.Load(context.Background(), fmt.Sprint("guest", g), guests[(g+i)%len(guests)], time.Time{})
				if err != nil {
					t.Error(err)
					return
				}
				x, err := m.Executor(Settings{Type: wasm.TypeSimple, MemoryLimit: int64(4+i%2) << 20})
				m.Close()
				if err != nil {
					t.Error(err)
					return
				}
				w := worked(t, x)
				x.Release()
				for _, p := range []string{"ok", "trap", "spin", "ok"} {
					ctx, cancel := context.WithTimeout(context.Background(), 2*time.Millisecond)
					if p == "ok" {
						cancel()
						ctx, cancel = context.WithCancel(context.Background())
					}
					got := w.Execute(ctx, item(newRecorder(), p))
					cancel()
					if p == "ok" && got.Outcome != abi.OutcomeOK {
						t.Errorf("%+v", got)
					}
				}
				if err := w.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.codes) != 0 || len(r.modules) != 0 {
		t.Errorf("%d modules are still held", len(r.codes))
	}
}
