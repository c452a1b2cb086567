package e2e_test

import (
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// TestHarm: items that end badly, each in its way, side by side in one fire.
// Each harms itself only, and another job does not notice.
func TestHarm(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	ways := []struct {
		what    string
		outcome abi.Outcome
		reason  string
	}{
		{"say", abi.OutcomeOK, ""},
		{"trap", abi.OutcomeTrap, "unreachable"},
		{"exit:3", abi.OutcomeExit, "code 3"},
		{"status:77", abi.OutcomeFail, "77"},
		{"status:5", abi.OutcomeFail, "5"},
		{"status:-9", abi.OutcomeFail, "-9"},
		{"status:123456", abi.OutcomeFail, "123456"},
		{"fail:of its own accord", abi.OutcomeFail, "of its own accord"},
		{"second", abi.OutcomeOK, ""},
		{"hog", abi.OutcomeFail, "there is no more memory"},
		{"spin", abi.OutcomeTimeout, ""},
		{"spam", abi.OutcomeTimeout, ""},
		{"hold:never", abi.OutcomeTimeout, "it ended early because its time was nearly up"},
		{"nonsense", abi.OutcomeFail, "no such word"},
	}
	var parameters []string
	for i, w := range ways {
		parameters = append(parameters, fmt.Sprintf("%d=%s", i, w.what))
	}
	p.guestJob("harm", fmt.Sprint("shardingTotalCount: ", len(ways)), `shardingItemParameters: "`+strings.Join(parameters, ",")+`"`,
		"timeout: 3s", "memoryLimit: 8MiB", "maxConcurrency: 5", "retry: {backoff: 100ms}")
	p.guestJob("clock", everySecond, "shardingTotalCount: 1")
	h := p.start("--max-concurrency", "16")
	h.of("harm", 0, owned())
	h.fires("clock", 0)
	p.must("job", "run", "harm")
	fire := h.of("harm", 0, kind(event.FireStarted))
	end := h.of("harm", fire.at, kind(event.FireEnded), ofFire(fire), outcome(abi.OutcomeTrap))
	for i, w := range ways {
		e := h.of("harm", fire.at, kind(event.ItemCompleted), item(i), ofFire(fire))
		last := h.all("harm", fire.at, kind(event.ItemEnded), item(i), ofFire(fire))
		if e.Outcome != w.outcome || len(last) == 0 || !strings.Contains(last[len(last)-1].Reason, w.reason) {
			t.Errorf("%s: %s, attempts %+v, want %s because of %q", w.what, e.Outcome, last, w.outcome, w.reason)
		}
		switch want := map[string]int{"second": 2}[w.what]; {
		case want == 0 && len(last) != 1, want > 0 && len(last) != want:
			t.Errorf("%s: %d attempts", w.what, len(last))
		case w.what == "hog" && (last[0].Memory > 8<<20 || last[0].Memory < 4<<20):
			t.Errorf("hog: %d bytes, the limit is 8 MiB", last[0].Memory)
		case w.what == "status:123456" && e.Outcome == abi.OutcomeOK:
			t.Error("a status that there is not passes for OK")
		}
	}
	// The clock went on, on time: a guest that spins does not hold others up.
	ticks := h.all("clock", fire.at, kind(event.FireEnded), outcome(abi.OutcomeOK))
	during := 0
	for _, e := range ticks {
		if e.at < end.at {
			during++
		}
	}
	if during < 2 {
		t.Errorf("the clock fired %d times within %s", during, end.Duration)
	}
	spam := 0
	for _, l := range h.guestLines("harm") {
		if l.Message == "spam" {
			spam++
		}
	}
	if most := 2*abi.LogBurst + 4*abi.LogLinesPerSecond; spam == 0 || spam > most {
		t.Errorf("%d lines of a guest that logs without end, want at most %d", spam, most)
	}
	h.line(0, "over the limits", "dropped_lines")
	if code, metrics := h.get("/metrics"); !regexp.MustCompile(`wasmjob_log_lines_dropped_total\{job_name="harm"\} [1-9]`).MatchString(metrics) {
		t.Errorf("the metrics do not count the dropped lines: %d %s", code, metrics)
	}
	if s := p.job("harm"); s.State != engine.JobReady {
		t.Errorf("the job is %s: %s", s.State, s.Reason)
	}
	h.fires("clock", end.at)
	// Once more: nothing is left behind.
	from := h.mark()
	p.must("job", "run", "harm")
	h.of("harm", from, kind(event.ItemCompleted), item(0), outcome(abi.OutcomeOK))
	h.of("harm", from, kind(event.FireEnded))
	h.stop()
}

// TestSpinning: more guests that spin than there are processors.
func TestSpinning(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	items := 2 * runtime.NumCPU()
	p.guestJob("spin", fmt.Sprint("shardingTotalCount: ", items), fmt.Sprint("maxConcurrency: ", items), "jobParameter: spin", "timeout: 3s")
	p.guestJob("clock", everySecond, "shardingTotalCount: 1")
	h := p.start("--max-concurrency", fmt.Sprint(items+4))
	h.of("spin", 0, owned())
	h.fires("clock", 0)
	p.must("job", "run", "spin")
	fire := h.of("spin", 0, kind(event.FireStarted))
	for n := range items {
		h.of("spin", fire.at, kind(event.ItemStarted), item(n))
	}
	tick := h.fires("clock", h.mark())
	p.job("spin") // the host answers
	end := h.of("spin", fire.at, kind(event.FireEnded))
	if tick.at > end.at {
		t.Errorf("while %d guests span, the clock did not fire", items)
	}
	if n := h.count("spin", kind(event.ItemCompleted), outcome(abi.OutcomeTimeout)); n != items {
		t.Errorf("the time of %d items was up, want all %d", n, items)
	}
	h.fires("clock", end.at)
	h.stop()
}
