package verify

import (
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
)

// TestLinkOfAChain: when a fire has ended over all its items, a job that comes after it has a fire for the same instant, or the
// reason why not.
func TestLinkOfAChain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		between    func(b *book) // what happens before the second instant
		more       func(b *book) // what the link says of that
		after      string
		ended      bool // of the second fire both items end
		violations int
	}{
		"it runs": {nil, func(b *book) { link(b, 23, 20, 9) }, `[{"job":"j"}]`, true, 0},
		"it says why not": {nil, func(b *book) {
			b.add(23, event.Event{Kind: event.FireSkipped, Host: a1, Job: "k", Instant: instant(20), Items: []int{0}, Cause: event.SkipUnmet, Reason: "x"})
		}, `[{"job":"j"}]`, true, 0},
		"nothing is said":               {nil, nil, `[{"job":"j"}]`, true, 1},
		"the fire has not ended":        {nil, nil, `[{"job":"j"}]`, false, 0},
		"it comes after other jobs too": {nil, nil, `[{"job":"j"},{"job":"l"}]`, true, 0},
		"it was changed since":          {func(b *book) { b.add(15, event.Event{Kind: event.JobChanged, Host: a1, Job: "k"}) }, nil, `[{"job":"j"}]`, true, 0},
		"it comes after another job": {func(b *book) {
			b.add(15, event.Event{Kind: event.JobConfigured, Host: a1, Job: "k", Settings: &event.Settings{Terms: `{"wasm.after":"[{\"job\":\"l\"}]"}`}})
		}, nil, `[{"job":"j"}]`, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open("a", a1)
			b.add(0, event.Event{Kind: event.JobAdded, Host: a1, Job: "k"})
			terms := `{"wasm.after":"` + escaped(tt.after) + `"}`
			b.add(0, event.Event{Kind: event.JobConfigured, Host: a1, Job: "k", Settings: &event.Settings{Terms: terms}})
			b.fire(10, 10, 2, 0, 1).run(10, 11, 10, 0, 5).run(10, 11.5, 10, 1, 6)
			link(b, 12, 10, 8)
			if tt.between != nil {
				tt.between(b)
			}
			b.fire(20, 20, 2, 0, 1).run(20, 21, 20, 0, 15)
			if tt.ended {
				b.run(20, 22, 20, 1, 16)
			}
			if tt.more != nil {
				tt.more(b)
			}
			for at := 30.0; at <= 600; at += 10 {
				b.fire(at, at, 0)
			}
			r := check(Options{}, b)
			found := 0
			for _, f := range r.Findings {
				if f.Job == "k" && f.Invariant == Accounted {
					found++
				}
			}
			if found != tt.violations {
				t.Errorf("%d violations, expected %d: %+v", found, tt.violations, r.Findings)
			}
		})
	}
}

// link is a fire of the job k, of one item.
func link(b *book, at, due float64, fence int64) {
	run := event.Event{Host: a1, Job: "k", Instant: instant(due), Source: abi.SourceSchedule, Fence: fence, RunID: tree.RunID("k", tree.Fire{Instant: instant(due).UnixMilli()}, 0)}
	started := run
	started.Kind, started.Items, started.Total, started.Fence, started.RunID = event.FireStarted, []int{0}, 1, 0, ""
	b.add(at, started)
	item := 0
	for n, kind := range []event.Kind{event.ItemStarted, event.ItemEnded, event.ItemCompleted} {
		e := run
		e.Kind, e.Item = kind, &item
		if kind != event.ItemStarted {
			e.Outcome = "OK"
		}
		b.add(at+float64(n)/10, e)
	}
}

// escaped is a JSON text within a JSON text.
func escaped(text string) string { return strings.ReplaceAll(text, `"`, `\"`) }
