package definition

import (
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/config/calendar"
)

// TestTimetableFields: what says when a job fires, beside its cron, is read and stored.
func TestTimetableFields(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[string]string{
		"cron: 0 0 9 * * ?\ndst: Both\njitter: 1m\njitterMode: random\nstartAt: 2026-12-24T18:00:00+01:00\nendAt: '2027-01-01T00:00:00Z'": {
			"wasm.dst": "both", "wasm.jitter": "1m0s", "wasm.jitterMode": "random", "wasm.startAt": "2026-12-24T18:00:00+01:00", "wasm.endAt": "2027-01-01T00:00:00Z"},
		"at: 2026-12-24T18:00:00+01:00": {"wasm.at": "2026-12-24T18:00:00+01:00"},
		"schedules:\n  - {cron: '0 0 9 * * ?', jobParameter: 07}\n  - cron: '@daily'\n    timeZone: UTC\n    jobParameter: ''": {
			"wasm.schedules": `[{"cron":"0 0 9 * * ?","jobParameter":"07"},{"cron":"@daily","timeZone":"UTC","jobParameter":""}]`},
		"cron: '@daily'\ncalendars: {include: [workdays], exclude: [holidays, de.berlin], onExcluded: next}": {
			"wasm.calendars.include": `["workdays"]`, "wasm.calendars.exclude": `["holidays","de.berlin"]`, "wasm.calendars.onExcluded": "next"},
		"after:\n  - {job: load}\n  - job: check\n    on: Always\n    within: 2h\n  - {job: last, on: success}": {
			"wasm.after": `[{"job":"load"},{"job":"check","on":"always","within":"2h"},{"job":"last"}]`},
	} {
		list, err := Parse("a.yaml", []byte("shardingTotalCount: 1\ntimeout: 0\n"+text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := list[0].Configuration.Props; !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}

func TestTimetableMistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"cron: '@daily'\nat: 2026-12-24T18:00:00+01:00":                              "a.yaml:2:7: cron: is given beside at, expected one of cron, schedules, at and after",
		"cron: '@daily'\nstartAt: 2027-01-01T00:00:00Z\nendAt: 2026-01-01T00:00:00Z": "a.yaml:4:8: endAt: found 2026-01-01T00:00:00Z, which is before startAt, 2027-01-01T00:00:00Z",
		"startAt: tomorrow":                             `a.yaml:2:10: startAt: found "tomorrow", expected a time with its offset`,
		"at: [x]":                                       "a.yaml:2:5: at: found a list",
		"jitter: 1m":                                    "a.yaml:2:9: jitter: is given, but neither cron nor schedules nor at: the job has no instants",
		"cron: 0 * * * * ?\njitter: 2m":                 "a.yaml:3:9: jitter: found 2m, which is longer than the 1m between",
		"schedules: '@daily'":                           "a.yaml:2:12: schedules: found \"@daily\", expected a list of schedules",
		"schedules: []":                                 "a.yaml:2:12: schedules: found a list, expected a list of schedules, each with its cron",
		"schedules: [{timeZone: UTC}]":                  "a.yaml:2:13: schedules: found a schedule without a cron",
		"schedules: [{cron: '@daily', corn: x}]":        "a.yaml:2:30: schedules: found \"corn\" in a schedule, expected one of cron, timeZone, jobParameter",
		"schedules: [{cron: '@daily', timeZone: Mars}]": "a.yaml:2:12: schedules: schedule 1: time zone \"Mars\": unknown",
		"schedules: [{cron: [x]}]":                      "a.yaml:2:20: schedules: found a list for cron, expected a text",
		"cron: '@daily'\ncalendars: [x]":                "a.yaml:3:12: calendars: found a list, expected a mapping of include, exclude, onExcluded",
		"cron: '@daily'\ncalendars: {exclude: [a/b]}":   `a.yaml:3:22: calendars.exclude: found "a/b", expected the name of a calendar`,
		"cron: '@daily'\ncalendars: {onExcluded: next}": "a.yaml:3:25: calendars.onExcluded: is given without calendars",
		"calendars: {exclude: [a]}":                     "a.yaml:2:22: calendars.exclude: is given, but neither cron nor schedules nor at",
		"cron: '@daily'\ncalendars: {exlcude: [a]}":     "a.yaml:3:13: calendars.exlcude: unknown field; did you mean exclude?",
		"cron: '@daily'\nprops: {wasm.calendarDays: x}": "a.yaml:3:9: props.wasm.calendarDays: unknown property",
		"schedules: [{cron: '@daily', cron: '@daily'}]": "a.yaml:2:30: schedules: cron is given twice in a schedule",
		"after: load":                                   "a.yaml:2:8: after: found \"load\", expected a list of jobs",
		"after: [{jop: load}]":                          "a.yaml:2:10: after: found \"jop\" in an entry, expected one of job, on, within",
		"after: [{on: success}]":                        "a.yaml:2:9: after: found no job, expected the name of one",
		"after: [{job: b, on: maybe}]":                  "a.yaml:2:9: after: on: found \"maybe\", expected success, failure or always",
		"after: [{job: b, within: 0}]":                  "a.yaml:2:9: after: within: found \"0\", expected a duration above 0",
		"after: [{job: b}, {job: b}]":                   "a.yaml:2:19: after: job \"b\" is given twice",
		"after: [{job: a/b}]":                           "a.yaml:2:9: after: found \"a/b\" for job, expected the name of a job",
		"after: [{job: a}]":                             "a.yaml:2:8: after: the job would come after itself: a -> a",
		"cron: '@daily'\nafter: [{job: b}]":             "a.yaml:2:7: cron: is given beside after, expected one of cron, schedules, at and after",
		"after: [{job: b}]\njitter: 1m":                 "a.yaml:3:9: jitter: is given beside after: the job has the instants of the jobs that it comes after",
		"dst: twice\ncron: '@daily'":                    `a.yaml:2:6: dst: found "twice", expected once, both or skip`,
		"cron: '@daily'\ncalendars:\n  include: [" + strings.Repeat("a, ", 21) + "]": "found 21 calendars, expected at most 20",
	} {
		_, err := Parse("a.yaml", []byte("shardingTotalCount: 1\n"+text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\ngot  %v\nwant %s", text, err, want)
		}
	}
}

// TestCalendarExamples: the examples of docs/calendars.md are read.
func TestCalendarExamples(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/calendars.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```yaml\n")[1:]
	if len(blocks) < 6 {
		t.Fatalf("%d examples", len(blocks))
	}
	for _, b := range blocks {
		text, _, _ := strings.Cut(b, "```")
		if strings.Contains(text, "days: [") {
			if _, problems := calendar.Parse("a.calendar.yaml", []byte(text)); len(problems) > 0 {
				t.Errorf("%s: %v", text, problems)
			}
			continue
		}
		if !strings.Contains(text, "shardingTotalCount") {
			text += "shardingTotalCount: 1\n"
		}
		if _, err := Parse("a.yaml", []byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestNeverFiresAgain(t *testing.T) {
	t.Parallel()
	list, err := Parse("a.yaml", []byte("shardingTotalCount: 1\nat: 2026-12-24T18:00:00+01:00"))
	if err != nil {
		t.Fatal(err)
	}
	if w := list[0].Warnings(time.Date(2026, 12, 24, 17, 0, 0, 0, time.UTC)); len(w) != 1 || w[0] != "the job never fires again" {
		t.Errorf("warnings %q", w)
	}
	if w := list[0].Warnings(time.Date(2026, 12, 24, 16, 0, 0, 0, time.UTC)); len(w) != 0 {
		t.Errorf("warnings %q", w)
	}
}
