package api

import (
	"context"
	"fmt"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/explain"
)

// TestQueuedTrigger: a queued trigger is known by its number of the queue: its runs are explained by it.
func TestQueuedTrigger(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	gated := func(ctx context.Context, _ *abi.Invocation) abi.Result {
		select {
		case <-gate:
			return abi.Result{Outcome: abi.OutcomeOK}
		case <-ctx.Done():
			return abi.Result{Outcome: abi.OutcomeCancelled}
		}
	}
	s := serve(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("pay", "", 1, gated)}})
	var made []admin.Triggered
	for range 3 {
		m, err := s.client.TriggerWith(t.Context(), "pay", tree.TriggerArgs{})
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, m)
		s.Until("the first one runs", func() bool { return get[service.JobDetail](s, "/v1/jobs/pay").Running == 1 })
	}
	last := made[2]
	if made[1].Trigger == 0 || last.Queued == 0 || last.Ahead != 1 {
		t.Fatalf("triggers %+v", made)
	}
	path := fmt.Sprintf("/v1/jobs/pay/explain?trigger=%d", last.Queued)
	close(gate)
	var a explain.Answer
	s.Until("it has run", func() bool {
		a = get[explain.Answer](s, path+"&wait=1s")
		return a.Trigger != last.Queued && !a.Open()
	})
	if a.Trigger <= last.Queued || len(a.Items) != 1 || a.Items[0].Verdict != explain.Ran {
		t.Errorf("after its run: %+v", a)
	}
}
