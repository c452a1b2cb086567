package history

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
)

// TestTails_gap: where lines are missing stands how many they are, and where all are.
func TestTails_gap(t *testing.T) {
	t.Parallel()
	var written []Line
	x := tails{whole: "/var/log/guests.jsonl", runs: make(map[string]*tail)}
	const all = 300
	for n := range all {
		x.add(&Line{Job: "j", RunID: "r", Item: 2, Host: "h", Message: strings.Repeat("x", 1000), Time: time.Unix(int64(n), 0)}, time.Unix(1, 0), func(l *Line) { written = append(written, *l) })
	}
	x.end(func(l *Line) { written = append(written, *l) })
	gaps, kept := 0, 0
	for i, l := range written {
		if l.Gap == 0 {
			kept++
			continue
		}
		gaps++
		if next := written[i+1]; kept+int(l.Gap) != int(next.Time.Unix()) || l.Time != next.Time || l.Job != "j" || l.RunID != "r" || l.Item != 2 || l.Host != "h" ||
			l.Level != abi.LevelWarn || !slices.Equal(l.Attrs, []string{abi.AttrWholeLog, "/var/log/guests.jsonl"}) {
			t.Errorf("%d lines, then %+v", kept, l)
		}
	}
	if gaps != 1 || kept >= all {
		t.Errorf("%d lines are kept, with %d gaps", kept, gaps)
	}
}

// TestTails_limits: of a run that logs more than it may, a store has what stands where lines are missing,
// the 64 KiB after that, and what is said at the end.
func TestTails_limits(t *testing.T) {
	t.Parallel()
	var written []string
	write := func(l *Line) { written = append(written, l.Message[:min(len(l.Message), 20)]) }
	x := tails{runs: make(map[string]*tail)}
	log := func(message string, attrs ...string) {
		x.add(&Line{RunID: "r", Message: message, Attrs: attrs}, time.Unix(1, 0), write)
	}
	for range 200 {
		log("before " + strings.Repeat("x", 993))
	}
	before := len(written)
	log("lines are missing here: the guest logged more than it may", "dropped_lines", "98000")
	for range 64 { // as much as a host holds back
		log("after " + strings.Repeat("x", 1024-16-6))
	}
	log("the guest's output was over the limits", "dropped_lines", "98000", "cut_lines", "98000")
	x.ended(&event.Event{Kind: event.ItemEnded, RunID: "r"}, write)
	got := written[before:]
	if n := len(got); n < 66 || !strings.HasPrefix(got[n-66], "lines are missing") || !strings.HasPrefix(got[n-1], "the guest's output") {
		t.Errorf("%d lines, the first is %q", n, got[0])
	}
}
