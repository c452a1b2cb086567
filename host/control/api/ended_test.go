package api

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/explain"
)

// TestExplainWaits: an answer about a trigger comes when the last item on the last host has ended, and not before;
// and when the time is over, with what is known.
func TestExplainWaits(t *testing.T) {
	t.Parallel()
	server := servicetest.NewServer(t)
	gates := map[int]chan struct{}{0: make(chan struct{}), 1: make(chan struct{})}
	gated := func(ctx context.Context, inv *abi.Invocation) abi.Result {
		select {
		case <-gates[inv.Context.ShardingItem]:
			return abi.Result{Outcome: abi.OutcomeOK}
		case <-ctx.Done():
			return abi.Result{Outcome: abi.OutcomeCancelled}
		}
	}
	jobs := func() []engine.Job { return []engine.Job{servicetest.Job("pay", "", 2, gated)} }
	a := serve(t, servicetest.Options{Server: server, IP: "127.0.0.1", Jobs: jobs()})
	serve(t, servicetest.Options{Server: server, IP: "127.0.0.2", Jobs: jobs()})
	a.Until("each host has an item", func() bool {
		shards, err := a.Registry.Shards(t.Context(), "pay")
		return err == nil && len(shards.Items) == 2 && shards.Items[0].Owner != shards.Items[1].Owner && shards.Items[0].Owner != "" && shards.Items[1].Owner != ""
	})
	var made admin.Triggered
	if err := a.client.Send(t.Context(), http.MethodPost, "/v1/jobs/pay/trigger", struct{}{}, &made); err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/v1/jobs/pay/explain?trigger=%d", made.Trigger)
	close(gates[0])
	a.Until("one item has ended", func() bool {
		found := get[explain.Answer](a, path)
		return len(found.Items) == 2 && found.Items[0].Verdict == explain.Ran && found.Items[1].Verdict == explain.Running
	})
	if found := get[explain.Answer](a, path+"&wait=50ms"); !found.Open() || found.Items[0].Verdict != explain.Ran {
		t.Errorf("when the time is over: %+v", found)
	}
	answered := make(chan explain.Answer)
	go func() { // the test waits for its answer
		var found explain.Answer
		if err := a.client.Get(t.Context(), path+"&wait=10s", &found); err != nil {
			t.Error(err)
		}
		answered <- found
	}()
	select {
	case found := <-answered:
		t.Errorf("while an item runs: %+v", found)
	case <-time.After(time.Second): // only an answer that comes too early is missed
	}
	close(gates[1])
	if found := <-answered; found.Open() || len(found.Items) != 2 || found.Items[1].Verdict != explain.Ran {
		t.Errorf("at the end: %+v", found)
	}
	for query, want := range map[string]string{
		"trigger=x":                  `found "x", expected the number of a trigger`,
		"trigger=1&wait=11s":         `found "11s", expected a duration from 0s to 10s`,
		"trigger=1&wait=-1s":         `found "-1s", expected a duration from 0s to 10s`,
		"trigger=1&run=pay%2Ft1%2F0": "found it beside at, before, trigger or item, expected one of them: a run has its instant and its item",
	} {
		if got := a.ask("GET", "/v1/jobs/pay/explain?"+query, ""); got.code != 422 || got.problem(t).Errors[0].Message != want {
			t.Errorf("%s: %d %s", query, got.code, got.body)
		}
	}
}
