package engine_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
)

// TestListenerLimit: a listener has a minute, or the job's timeout if that is shorter.
func TestListenerLimit(t *testing.T) {
	for timeout, want := range map[string]time.Duration{"5s": 5 * time.Second, "1h0m0s": time.Minute, "0s": time.Minute} {
		t.Run(timeout, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				var mu sync.Mutex
				var limits []time.Duration
				g := sleeper(time.Millisecond)
				note := func(inv *abi.Invocation) abi.Result {
					mu.Lock()
					defer mu.Unlock()
					limits = append(limits, time.Until(inv.Context.Deadline))
					return abi.Result{Outcome: abi.OutcomeOK}
				}
				g.listeners = map[string]func(*abi.Invocation) abi.Result{abi.ExportBefore: note, abi.ExportAfter: note}
				d := definition("j", "", 1)
				d.Props[jobconfig.PropTimeout] = timeout
				n := c.start(1, job(d, g))
				time.Sleep(time.Second)
				if err := n.operator().Trigger(t.Context(), "j"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				mu.Lock()
				defer mu.Unlock()
				if len(limits) != 2 || limits[0] != want || limits[1] != want {
					t.Errorf("listeners had %v, want twice %s", limits, want)
				}
			})
		})
	}
}
