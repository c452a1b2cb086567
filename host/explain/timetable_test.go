package explain_test

import (
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/explain"
)

// TestExplain_leftOut: why a schedule leaves out an instant that its cron has.
func TestExplain_leftOut(t *testing.T) {
	t.Parallel()
	terms := func(props ...string) string {
		c := jobconfig.Configuration{Props: map[string]string{}}
		for n := 0; n < len(props); n += 2 {
			c.Props["wasm."+props[n]] = props[n+1]
		}
		return c.Terms()
	}
	excluding := terms("calendars.exclude", `["h"]`, "calendarDays", `{"h":"{\"days\":[\"2026-03-01\"]}"}`)
	for name, c := range map[string]struct{ cron, terms, want string }{
		"excluded":     {"0 0 * * * ?", excluding, "The job was not due at 2026-03-01 12:00:00: its schedule then, \"0 0 * * * ?\" UTC, has no such instant; the one before is 2026-02-28 23:00:00, the next 2026-03-02 00:00:00.\nIts calendars exclude that day."},
		"before":       {"0 0 * * * ?", terms("startAt", "2026-03-01T13:00:00Z"), "; the next is 2026-03-01 13:00:00.\nIts schedule begins at 2026-03-01 13:00:00."},
		"after":        {"0 0 * * * ?", terms("endAt", "2026-03-01T11:00:00Z"), "; the last was 2026-03-01 11:00:00.\nIts schedule has ended at 2026-03-01 11:00:00."},
		"once":         {"", terms("at", "2026-03-01T11:00:00Z"), "its schedule then, \"at 2026-03-01T11:00:00Z\" UTC, has no such instant; the last was 2026-03-01 11:00:00."},
		"no such time": {"0 30 * * * ?", excluding, "has no such instant"},
	} {
		configured := of(-3600*24, event.JobConfigured, first, func(e *event.Event) {
			e.Settings = &event.Settings{Cron: c.cron, TimeZone: "UTC", Terms: c.terms, Items: 1, Misfire: true}
		})
		a := ask(t, explain.Question{Job: "j", At: noon}, explain.Facts{Now: noon.Add(time.Hour), Events: []event.Event{configured}})
		if text := lines(a); a.Verdict != explain.NeverDue || !strings.Contains(text, c.want) || (name == "no such time" && strings.Contains(text, "exclude")) {
			t.Errorf("%s: %s", name, answered(a))
		}
	}
	// An event says the same of the instant that it is about.
	skipped := of(0, event.FireSkipped, first, func(e *event.Event) {
		e.Items, e.Cause, e.Reason = []int{0}, event.SkipExcluded, "a calendar of the job excludes the day"
	})
	configured := of(-3600*24, event.JobConfigured, first, func(e *event.Event) {
		e.Settings = &event.Settings{Cron: "0 0 * * * ?", TimeZone: "UTC", Terms: excluding, Items: 1, Misfire: true}
	})
	a := ask(t, explain.Question{Job: "j", At: noon}, explain.Facts{Now: noon.Add(time.Hour), Events: []event.Event{configured, skipped}})
	if a.Verdict != explain.NeverDue || !strings.Contains(lines(a), "a calendar of the job excludes the day") {
		t.Error(answered(a))
	}
}
