package engine_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
)

// obedient returns when it is asked to end.
func obedient(ctx context.Context, inv *abi.Invocation) abi.Result {
	for ctx.Err() == nil && inv.Host.Cancelled() == abi.CancelNone {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return abi.Result{Outcome: abi.OutcomeCancelled, Message: "job_execute returned CANCELLED"}
}

// TestTimeout: an item that used up its time is recorded as TIMEOUT, whether its
// guest obeyed or had to be stopped, and is tried again if the definition says so.
func TestTimeout(t *testing.T) {
	stopped := func(ctx context.Context, _ *abi.Invocation) abi.Result {
		<-ctx.Done()
		return abi.Result{Outcome: abi.OutcomeTimeout, Message: "ran longer than its time"}
	}
	for name, tc := range map[string]struct {
		run    func(context.Context, *abi.Invocation) abi.Result
		reason string
	}{
		"guest obeys": {obedient, "it ended early because its time was nearly up (timeout 20s): job_execute returned CANCELLED"},
		"by force":    {stopped, "ran longer than its time (timeout 20s)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				d := definition("limited", "", 1)
				d.Props["wasm.timeout"], d.Props["wasm.retry.attempts"], d.Props["wasm.retry.on"] = "20s", "2", "TIMEOUT"
				n := c.start(1, job(d, &guest{digest: "patient", run: tc.run}))
				synctest.Wait()
				if err := n.operator().Trigger(t.Context(), "limited"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Minute)
				ends := c.list(event.ItemEnded)
				if len(ends) != 2 {
					t.Fatalf("%d attempts, want 2\n%s", len(ends), c.all())
				}
				for _, e := range append(ends, c.list(event.ItemCompleted)...) {
					if e.Outcome != abi.OutcomeTimeout {
						t.Errorf("%s: outcome %s, want TIMEOUT", e.Kind, e.Outcome)
					}
					if e.Kind == event.ItemEnded && e.Reason != tc.reason {
						t.Errorf("reason %q, want %q", e.Reason, tc.reason)
					}
				}
			})
		})
	}
	t.Run("stop is no time-out", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			d := definition("limited", "", 1)
			d.Props["wasm.timeout"] = "10m"
			n := c.start(1, job(d, &guest{digest: "patient", run: obedient}))
			synctest.Wait()
			if err := n.operator().Trigger(t.Context(), "limited"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			n.stop()
			<-n.done
			for _, e := range c.list(event.ItemEnded) {
				if e.Outcome != abi.OutcomeCancelled || strings.Contains(e.Reason, "time") {
					t.Errorf("%s: %s %q, want CANCELLED", e.Kind, e.Outcome, e.Reason)
				}
			}
		})
	})
}
