package api

import (
	"context"
	"fmt"
	"strings"
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
	for n := range 22 {
		param := strings.Repeat("x", 300*min(n, 9))
		if _, err := s.client.TriggerWith(t.Context(), "pay", tree.TriggerArgs{Items: tree.Ranges{{From: 0, To: 0}}, Param: &param}); err != nil {
			t.Fatal(err)
		}
	}
	// The first one runs, the second has not begun, and 23 are queued behind it.
	w := get[admin.Shards](s, "/v1/jobs/pay/shards").Triggers
	if w == nil || w.First == nil || w.First.Trigger != made[1].Trigger || len(w.First.Hosts) != 1 || w.First.Since.IsZero() || w.First.Asked.Items != "" {
		t.Fatalf("the trigger that has not begun: %+v", w)
	}
	if w.Length != 23 || len(w.Queue) != 20 || w.Queue[0].Queued != made[2].Queued || w.Queue[0].Asked.Param != nil || w.Queue[1].Asked.Items != "0" ||
		*w.Queue[2].Asked.Param != strings.Repeat("x", 300) || *w.Queue[3].Asked.Param != strings.Repeat("x", 400)+"…" {
		t.Errorf("the queue: %+v", w)
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
	s.Until("no trigger waits any more", func() bool { return get[admin.Shards](s, "/v1/jobs/pay/shards").Triggers == nil })
	if a.Trigger <= last.Queued || len(a.Items) != 1 || a.Items[0].Verdict != explain.Ran {
		t.Errorf("after its run: %+v", a)
	}
}
