package e2e_test

import (
	"os"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history/jsonl"
)

// TestWholeLog: the file of guestLog has what a guest logs beyond the limits of its run, or how many
// lines are missing, in the host's process, in a worker process and in one of the job's own; the history says where it is. Another job fires on.
func TestWholeLog(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, isolation := range []string{"host", "fire", "process"} {
		p.guestJob("spam-"+isolation, "shardingTotalCount: 1", "jobParameter: spam", "isolation: "+isolation)
	}
	p.guestJob("clock", everySecond, "shardingTotalCount: 1")
	file := p.path("guests.jsonl")
	h := p.start("--guest-log", file, "--in-process", "*")
	h.of("clock", 0, kind(event.ItemEnded))
	from := h.mark()
	runs := make(map[string]string)
	for _, job := range []string{"spam-host", "spam-fire", "spam-process"} { // one after the other: each takes a processor
		before := sizeOf(file)
		p.must("job", "run", job)
		await(t, "lines beyond the limits of "+job, func() bool {
			n := sizeOf(file)
			return n > before+1<<20 || n < before // megabytes later the next file begins
		})
		p.must("job", "kill", job, "--grace", "0s")
		runs[job] = h.of(job, from, kind(event.ItemEnded), outcome(abi.OutcomeCancelled)).RunID
	}
	h.fires("clock", h.mark())
	for job, run := range runs {
		await(t, "the address of all lines of "+run, func() bool {
			return strings.Contains(p.must("job", "logs", job, run, "--text", "lines are missing here"), "whole_log="+file)
		})
	}
	h.stop()
	there, missing := make(map[string]int64), make(map[string]int64)
	for r, err := range jsonl.Records(file) {
		if err != nil {
			t.Fatal(err)
		}
		if l := r.Line; l != nil {
			if missing[l.Job] += l.Gap; l.Message == "spam" || l.Job == "clock" {
				there[l.Job]++
			}
		}
	}
	for job, run := range runs {
		counted := int64(0)
		for _, l := range h.guestLines(job) {
			if l.Message == "spam" {
				counted++
			}
		}
		dropped := h.of(job, from, kind(event.ItemEnded)).DroppedLines
		if there[job]+missing[job] < counted+dropped || there[job] <= counted {
			t.Errorf("%s: %d lines are in the file, and %d are said to be missing; the host logged %d and dropped %d", run, there[job], missing[job], counted, dropped)
		}
		t.Logf("%s: %d lines, %d missing; logged %d, dropped %d", job, there[job], missing[job], counted, dropped)
	}
	if there["clock"] == 0 || missing["clock"] != 0 {
		t.Errorf("of the other job %d lines are there, %d are missing", there["clock"], missing["clock"])
	}
}

// sizeOf is 0 in the moment in which a file has been renamed and the next one is not there.
func sizeOf(file string) int64 {
	i, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return i.Size()
}
