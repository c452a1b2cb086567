package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/cli/show"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/cli/view"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/history/database"
	"github.com/wasmjob/wasmjob/host/observe/metrics"
)

// TestStatusOfAHistoryThatCannotBeWritten takes the directory away below it.
func TestStatusOfAHistoryThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "events")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := database.InFile(filepath.Join(dir, "h.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	w, err := database.Open(t.Context(), database.Options{Config: file})
	if err != nil {
		t.Fatal(err)
	}
	text := func() string {
		return show.Status(terminal.Style{}, &report.Report{Now: time.Now(), About: report.About{History: w.State().Where}, History: historyState(w.State())}, false)
	}
	if got := text(); !strings.Contains(got, "history    "+w.State().Where+"\n\n") {
		t.Errorf("nothing is wrong yet:\n%s", got)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	w.AddEvent(event.Event{Kind: event.JobAdded})
	if err := w.Close(); err != nil { // writes what is queued
		t.Fatal(err)
	}
	if got := text(); !strings.Contains(got, "cannot be written for ") || !strings.Contains(got, "1 event lost: open "+w.State().Where+": no such file") {
		t.Errorf("the directory is gone:\n%s", got)
	}
	lost := show.Status(terminal.Style{}, &report.Report{About: report.About{History: "h"}, History: &report.History{File: "h", Dropped: 3}}, false)
	if !strings.Contains(lost, "\n           3 events lost since the start\n") {
		t.Errorf("got\n%s", lost)
	}
}

// TestObserve: all events of a host come to the history, and those of hosts that are gone to who looks at the cluster.
func TestObserve(t *testing.T) {
	t.Parallel()
	store, err := database.Open(t.Context(), database.Options{Config: database.InMemory()})
	if err != nil {
		t.Fatal(err)
	}
	s := &system{
		metrics: metrics.New(metrics.Options{Status: func() engine.Status { return engine.Status{} }}), history: store,
		local: cluster.NewLocal(func() report.Report { return report.Report{} }), view: view.New(view.ShowLog(zap.NewNop()), false),
	}
	gone := event.Event{Time: time.Now(), Kind: event.HostGone, Host: "10.0.0.1@-@1-a", Other: "10.0.0.2@-@2-b"}
	for _, e := range []event.Event{{Time: time.Now(), Kind: event.Session, Host: "10.0.0.1@-@1-a", Reason: "lost"}, gone} {
		s.observe(e)
	}
	if seen := s.local.Delta("", 0).Sightings; len(seen) != 1 || seen[0].Other != gone.Other {
		t.Errorf("hosts that were seen to be gone: %+v", seen)
	}
	s.view.Close()
	if page, err := store.Events(t.Context(), history.Filter{}); err != nil || len(page.Records) != 2 {
		t.Errorf("%d events in the history, %v", len(page.Records), err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}
