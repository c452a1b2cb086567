package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/admin"
	"github.com/wasmjob/wasmjob/host/console"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history/lines"
	"github.com/wasmjob/wasmjob/host/show"
)

// TestStatusOfAHistoryThatCannotBeWritten takes the directory away below it.
func TestStatusOfAHistoryThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "events")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w, err := lines.Open(lines.Options{Path: filepath.Join(dir, "h.jsonl")})
	if err != nil {
		t.Fatal(err)
	}
	text := func() string {
		return show.Status(console.Style{}, &admin.Report{Now: time.Now(), About: admin.About{History: w.Path()}, History: historyState(w.State())}, false)
	}
	if got := text(); !strings.Contains(got, "history    "+w.Path()+"\n\n") {
		t.Errorf("nothing is wrong yet:\n%s", got)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	w.AddEvent(event.Event{Kind: event.JobAdded})
	if err := w.Close(); err != nil { // writes what is queued
		t.Fatal(err)
	}
	if got := text(); !strings.Contains(got, "cannot be written for ") || !strings.Contains(got, "1 event lost: open "+w.Path()+": no such file") {
		t.Errorf("the directory is gone:\n%s", got)
	}
	lost := show.Status(console.Style{}, &admin.Report{About: admin.About{History: "h"}, History: &admin.History{File: "h", Dropped: 3}}, false)
	if !strings.Contains(lost, "\n           3 events lost since the start\n") {
		t.Errorf("got\n%s", lost)
	}
}
