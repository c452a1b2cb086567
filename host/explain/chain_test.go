package explain_test

import (
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/explain"
)

// TestExplain_after: a run after other jobs is not late, however long those took; an answer names them, and where to read on.
func TestExplain_after(t *testing.T) {
	t.Parallel()
	configured := of(-3600*24, event.JobConfigured, first, func(e *event.Event) {
		e.Settings = &event.Settings{TimeZone: "UTC", Terms: `{"wasm.after":"[{\"job\":\"load\"},{\"job\":\"check\",\"on\":\"always\"}]"}`, Items: 1, Misfire: true}
	})
	on := "'wasmjob explain load@2026-03-01T12:00:00Z' says what became of \"load\".\n'wasmjob explain check@2026-03-01T12:00:00Z' says what became of \"check\"."
	run := func(n *event.Event) {
		n.Item, n.RunID, n.Fence, n.Outcome = number(0), "j/2026-03-01T12:00:00.000Z/0", 7, abi.OutcomeOK
	}
	for name, c := range map[string]struct {
		events  []event.Event
		verdict explain.Verdict
		want    []string
	}{
		"it ran": {[]event.Event{
			of(600, event.FireStarted, first, func(e *event.Event) { e.Items, e.Total = []int{0}, 1 }), of(600, event.ItemStarted, first, run), of(601, event.ItemEnded, first, run), of(601, event.ItemCompleted, first, run),
		}, explain.Ran, []string{"Item 0 was due for 12:00:00, after \"load, check (always)\", and began", on}},
		"it did not": {[]event.Event{of(600, event.FireSkipped, first, func(e *event.Event) {
			e.Items, e.Total, e.Cause, e.Reason = []int{0}, 1, event.SkipUnmet, "job load failed, and after demands success"
		})}, explain.Skipped, []string{"job load failed, and after demands success", on}},
		"it was late": {[]event.Event{of(600, event.FireSkipped, first, func(e *event.Event) {
			e.Items, e.Total, e.Cause, e.Reason = []int{0}, 1, event.SkipLate, "job load had not ended 10m after the instant"
		})}, explain.Skipped, []string{"job load had not ended 10m after the instant"}},
		"nothing is known": {nil, explain.NeverDue, []string{"The job has no run for 2026-03-01 12:00:00: it runs after \"load, check (always)\""}},
	} {
		a := ask(t, explain.Question{Job: "j", At: noon}, explain.Facts{Now: noon.Add(time.Hour), Events: append([]event.Event{configured}, c.events...)})
		for _, want := range c.want {
			if a.Verdict != c.verdict || !strings.Contains(lines(a), want) {
				t.Errorf("%s: %s\nwant %s: %s", name, answered(a), c.verdict, want)
			}
		}
	}
}
