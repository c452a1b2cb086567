package service_test

import (
	"context"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host"
	"github.com/wasmjob/wasmjob/host/access"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/service/servicetest"
)

// laterPages is a store that finds runs and lines on a page behind empty ones alone, as one does
// that has much to look through.
type laterPages struct{ history.Store }

func (s laterPages) Runs(ctx context.Context, f history.Filter) (history.Page[history.Run], error) {
	if f.To.IsZero() {
		return history.Page[history.Run]{Next: nothingYet(history.ListRuns)}, nil
	}
	return s.Store.Runs(ctx, f)
}

func (s laterPages) Lines(ctx context.Context, f history.Filter) (history.Page[history.Line], error) {
	if f.To.IsZero() {
		return history.Page[history.Line]{Next: nothingYet(history.ListLines)}, nil
	}
	return s.Store.Lines(ctx, f)
}

// nothingYet is the cursor of a page that has looked through what is newer than all records.
func nothingYet(list byte) string {
	return history.PositionOf(time.Now().Add(time.Hour), "x").Cursor(list)
}

// TestRun_laterPages: a run is found with its lines however many pages the store needs for it.
func TestRun_laterPages(t *testing.T) {
	t.Parallel()
	h := servicetest.Start(t, servicetest.Options{Jobs: []host.Job{servicetest.Job("a", "", 1, servicetest.OK)}})
	ctx := access.With(t.Context(), access.HostToken(access.ByHostToken))
	if _, err := h.Service.Trigger(ctx, "a", tree.TriggerArgs{}, ""); err != nil {
		t.Fatal(err)
	}
	var runs []history.Run
	h.Until("the item ran", func() bool {
		found, err := h.Service.Runs(ctx, history.Filter{Outcomes: []abi.Outcome{abi.OutcomeOK}})
		runs = found.Records
		return err == nil && len(runs) == 1
	})
	h.Store.AddLine(history.Line{Time: time.Now(), Job: "a", RunID: runs[0].ID, Message: "hello"})
	h.Histories.Store = laterPages{h.Store}
	h.Until("its line is there", func() bool {
		d, err := h.Service.Run(ctx, runs[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		return len(d.Lines) == 1 && len(d.Events) > 0
	})
}
