package engine_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// TestRun_betweenAttempts: a run that waits for its next attempt is known to run, and however the pause
// ends, what became of the run is known then.
func TestRun_betweenAttempts(t *testing.T) {
	for name, c := range map[string]struct {
		ends func(c *cluster, n *node)
		want abi.Outcome
	}{
		"killed":       {func(c *cluster, _ *node) { c.kill("j", 0, "", 5*time.Second) }, abi.OutcomeCancelled},
		"session ends": {func(c *cluster, n *node) { c.expire(n) }, history.Lost},
		"host stops":   {func(_ *cluster, n *node) { n.stop() }, abi.OutcomeCancelled},
		"next attempt": {func(*cluster, *node) { time.Sleep(10 * time.Minute) }, abi.OutcomeRetry},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cl := newCluster(t)
				d := definition("j", "0 0 * * * ?", 1)
				d.Props["wasm.retry.backoff"], d.Props["wasm.retry.attempts"] = "10m", "2"
				g := &guest{digest: "again", run: func(context.Context, *abi.Invocation) abi.Result {
					return abi.Result{Outcome: abi.OutcomeRetry, Message: "no file"}
				}}
				n := cl.start(1, job(d, g))
				run := func() (r history.Run) {
					for _, e := range cl.list(event.ItemStarted, event.ItemEnded, event.ItemCompleted, event.ItemSkipped, event.ItemHeld) {
						if history.AboutRun(e) {
							r.Apply(e)
						}
					}
					return r
				}
				time.Sleep(time.Hour + time.Minute)
				if r := run(); !r.Ended.IsZero() || r.Outcome != "" || r.Attempt != 1 {
					t.Errorf("in the pause: %+v\n%s", r, cl.all())
				}
				c.ends(cl, n)
				time.Sleep(time.Minute)
				if r := run(); r.Ended.IsZero() || r.Outcome != c.want || strings.Contains(r.Message, "comes") {
					t.Errorf("after it: %+v\n%s", r, cl.all())
				}
			})
		})
	}
}
