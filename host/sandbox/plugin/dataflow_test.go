package plugin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// flow is an invocation that counts from offset to end.
func flow(h abi.Host, parameter, offset, end string) *abi.Invocation {
	inv := item(h, parameter)
	inv.Context.FetchDataCount = 10
	inv.Context.ShardingParameter, inv.Context.HasShardingParameter = end, true
	if offset != "" {
		inv.Offset, inv.HasOffset = []byte(offset), true
	}
	return inv
}

func TestDataflowOnce(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	w := newWorker(t, load(t, r, guest(t, "c/guest")), Settings{Type: wasm.TypeDataflow})
	for _, c := range []struct {
		parameter, offset, end string
		want                   abi.Result
	}{
		{"", "", "35", abi.Result{Outcome: abi.OutcomeOK, Offset: []byte("10"), Staged: true, Batches: 1, Records: 10}},
		{"", "30", "35", abi.Result{Outcome: abi.OutcomeOK, Offset: []byte("35"), Staged: true, Batches: 1, Records: 5}},
		{"", "35", "35", abi.Result{Outcome: abi.OutcomeOK}},
		{"tail", "35", "35", abi.Result{Outcome: abi.OutcomeOK, Offset: []byte("1000"), Staged: true}},
		{"no-offset", "", "35", abi.Result{Outcome: abi.OutcomeOK, Batches: 1, Records: 10}},
		{"fetch-fail:0", "", "35", abi.Result{Outcome: abi.OutcomeFail, Status: 1, Message: "job_fetch returned FAIL"}},
		{"fetch-retry:0", "", "35", abi.Result{Outcome: abi.OutcomeRetry, Status: 2, Message: "job_fetch returned RETRY"}},
		{"fetch-nonsense:0", "", "35", abi.Result{Outcome: abi.OutcomeFail, Status: 1000, Message: "job_fetch returned 1000, which is no status"}},
		{"process-fail:3", "", "35", abi.Result{Outcome: abi.OutcomeFail, Status: 1, Message: "bad record"}},
		{"process-retry:3", "", "35", abi.Result{Outcome: abi.OutcomeRetry, Status: 2, Message: "job_process returned RETRY"}},
		{"process-trap:3", "", "35", abi.Result{Outcome: abi.OutcomeTrap, Message: "job_process: trap: unreachable"}},
	} {
		h := newRecorder()
		got := w.Execute(context.Background(), flow(h, c.parameter, c.offset, c.end))
		got.Memory, got.Err = 0, nil
		if got.Outcome != c.want.Outcome || got.Status != c.want.Status || got.Message != c.want.Message ||
			string(got.Offset) != string(c.want.Offset) || got.Staged != c.want.Staged ||
			got.Batches != c.want.Batches || got.Records != c.want.Records {
			t.Errorf("%s from %s: %+v, want %+v", c.parameter, c.offset, got, c.want)
		}
		if len(h.stages) != 0 {
			t.Errorf("%s: staged %q outside a loop", c.parameter, h.stages)
		}
	}
}

func TestDataflowStreaming(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	m := load(t, r, guest(t, "c/guest"))
	w := newWorker(t, m, Settings{Type: wasm.TypeDataflow, Streaming: true})
	run := func(parameter, offset string, set func(h *recorder)) (abi.Result, string) {
		h := newRecorder()
		if set != nil {
			set(h)
		}
		got := w.Execute(context.Background(), flow(h, parameter, offset, "35"))
		if got.Staged || got.Offset != nil {
			t.Errorf("%s: the loop left an offset to its caller: %+v", parameter, got)
		}
		return got, strings.Join(h.stages, " ")
	}
	check := func(got abi.Result, stages string, outcome abi.Outcome, batches, records int64, want string) {
		t.Helper()
		if got.Outcome != outcome || got.Batches != batches || got.Records != records || stages != want {
			t.Errorf("%+v staged %q; want %s, %d batches of %d records, staged %q", got, stages, outcome, batches, records, want)
		}
	}
	got, stages := run("", "", nil)
	check(got, stages, abi.OutcomeOK, 4, 35, "10 20 30 35")
	got, stages = run("tail", "", nil)
	check(got, stages, abi.OutcomeOK, 4, 35, "10 20 30 35 1000")
	// A failure loses its own batch only; the next run begins after the last good one.
	got, stages = run("process-retry:25", "", nil)
	check(got, stages, abi.OutcomeRetry, 2, 20, "10 20")
	got, stages = run("process-trap:25", "", nil)
	check(got, stages, abi.OutcomeTrap, 2, 20, "10 20")
	got, stages = run("", "20", nil)
	check(got, stages, abi.OutcomeOK, 2, 15, "30 35")
	got, stages = run("fetch-fail:20", "", nil)
	check(got, stages, abi.OutcomeFail, 2, 20, "10 20")

	after := func(n int, why abi.Cancel) func(*recorder) {
		return func(h *recorder) {
			h.cancel = func(r *recorder) abi.Cancel {
				if len(r.stages) >= n {
					return why
				}
				return abi.CancelNone
			}
		}
	}
	got, stages = run("", "", after(2, abi.CancelYield))
	check(got, stages, abi.OutcomeOK, 2, 20, "10 20")
	got, stages = run("", "", after(2, abi.CancelStop))
	check(got, stages, abi.OutcomeCancelled, 2, 20, "10 20")
	if !errors.Is(got.Err, context.Canceled) || got.Message != "stopped between batches: the job or the host is stopping" {
		t.Errorf("%+v", got)
	}
	got, stages = run("", "", func(h *recorder) { h.stageCode = abi.ErrConflict })
	check(got, stages, abi.OutcomeCancelled, 1, 10, "")
	if got.Message != "the offset was not taken: ownership of the item was lost" {
		t.Errorf("%+v", got)
	}

	paused := newRecorder()
	if w.Execute(context.Background(), flow(paused, "", "", "35")); paused.pauses != 4 {
		t.Errorf("%d pauses of four batches", paused.pauses)
	}
}

func TestDataflowCallTimeout(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	w := newWorker(t, load(t, r, guest(t, "c/guest")), Settings{Type: wasm.TypeDataflow, Streaming: true, CallTimeout: 300 * time.Millisecond})
	h := newRecorder()
	got := w.Execute(context.Background(), flow(h, "fetch-spin:20", "", "35"))
	if got.Outcome != abi.OutcomeTimeout || got.Message != "job_fetch: timeout: ran longer than 300ms" || got.Batches != 2 ||
		!errors.Is(got.Err, context.DeadlineExceeded) || !slices.Equal(h.stages, []string{"10", "20"}) {
		t.Errorf("%+v %q", got, h.stages)
	}
}
