package catalog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
)

// days are those that the one job in force has of its calendars, as its configuration has them.
func (w *world) days() string {
	w.t.Helper()
	if len(w.plan.jobs) != 1 {
		w.t.Fatalf("%d jobs are in force, want one:\n%s", len(w.plan.jobs), w.plan.String())
	}
	return w.plan.jobs[0].job.Definition.Props[jobconfig.PropCalendarDays]
}

// refusedFor finds a word in what is said of a file.
func (w *world) refusedFor(file, word string) {
	w.t.Helper()
	for _, r := range w.plan.refused {
		if r.File == file && strings.Contains(strings.Join(r.Reasons, "\n"), word) {
			return
		}
	}
	w.t.Errorf("%s is not refused for %q:\n%s", file, word, w.plan.String())
}

// TestCalendarChanges: a job has the days of the calendars that it names; a changed file changes
// the job, and one that is broken or gone leaves it as it was, and is named.
func TestCalendarChanges(t *testing.T) {
	t.Parallel()
	const first, second = `{"h":"{\"days\":[\"2026-12-24\"]}"}`, `{"h":"{\"days\":[\"2026-12-25\"]}"}`
	w := newWorld(t)
	w.write("a.yaml: job a a.wasm p not=h", "a.wasm: one.", "h.calendar.yaml: days: [2026-12-24]")
	w.step()
	if len(w.plan.refused) != 0 || w.days() != first {
		t.Fatalf("the job has %s:\n%s", w.days(), w.plan.String())
	}
	w.write("h.calendar.yaml: days: [2026-12-25]  ")
	w.step()
	if w.days() != second || len(w.plan.compile) != 0 {
		t.Errorf("after the change it has %s", w.days())
	}
	w.write("h.calendar.yaml: days: [2026-12-")
	w.step()
	w.refusedFor("h.calendar.yaml", "not YAML")
	if w.days() != second {
		t.Errorf("with a broken file it has %s", w.days())
	}
	w.write("h.calendar.yaml: weekdays: [MON, TUE, WED, THU, FRI, SAT, SUN]")
	w.step()
	w.refusedFor("a.yaml", "the calendars leave no day")
	if w.days() != second {
		t.Errorf("with a calendar that excludes everything it has %s", w.days())
	}
	w.write("h.calendar.yaml: days: [2026-12-24]", "h.ics: BEGIN:VCALENDAR")
	w.step()
	w.refusedFor("a.yaml", `calendar "h": both h.calendar.yaml and h.ics`)
	w.remove("h.ics")
	w.step()
	if w.days() != first || len(w.plan.refused) != 0 {
		t.Errorf("it has %s:\n%s", w.days(), w.plan.String())
	}
	w.remove("h.calendar.yaml")
	w.step()
	w.refusedFor("a.yaml", `job "a": calendar "h": there is neither h.calendar.yaml nor h.ics beside the definition`)
	if w.days() != first {
		t.Errorf("without the file it has %s", w.days())
	}
}

// TestCalendarIsMissing: a job without its calendar is not taken, and is when the file comes.
func TestCalendarIsMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("a.yaml: job a a.wasm p not=h", "a.wasm: one.")
	w.step()
	w.refusedFor("a.yaml", `calendar "h": there is neither`)
	w.write("h.calendar.yaml: days: [x]")
	w.step()
	w.refusedFor("a.yaml", `calendar "h": the file h.calendar.yaml is refused`)
	w.write("h.calendar.yaml: days: [2026-12-24]")
	w.step()
	w.days()
	if len(w.plan.refused) != 0 {
		t.Error(w.plan.String())
	}
}

// TestCalendarIsBeingWritten: a job waits for a calendar that was not read yet, and nothing is said
// against it; one that is in force goes on.
func TestCalendarIsBeingWritten(t *testing.T) {
	t.Parallel()
	for _, inForce := range []bool{false, true} {
		w := newWorld(t)
		w.write("a.yaml: job a a.wasm p not=h", "a.wasm: one.")
		if inForce {
			w.write("h.calendar.yaml: days: [2026-12-24]")
			w.step()
			w.remove("h.calendar.yaml")
			w.step()
		}
		w.files["h.calendar.yaml"] = written{text: "days: [2026-12-25]", modified: w.now.Add(time.Second)}
		w.step()
		if len(w.plan.refused) != 0 || len(w.plan.jobs) != map[bool]int{false: 0, true: 1}[inForce] {
			t.Errorf("while it is written:\n%s", w.plan.String())
		}
		w.step()
		if days := w.days(); !strings.Contains(days, "2026-12-25") || len(w.plan.refused) != 0 {
			t.Errorf("then it has %s:\n%s", days, w.plan.String())
		}
	}
}

func TestCheckCalendars(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml": "job a a.wasm p not=h", "b.yaml": "job b a.wasm p not=none", "a.wasm": "a.", "h.calendar.yaml": "days: [2026-12-24]",
		"bad.ics": "x", "old.calendar.yml": "days: [2026-12-24]",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string][]string{
		"a.yaml":           nil,
		"h.calendar.yaml":  nil,
		"b.yaml":           {`b.yaml:1: job "b": calendar "none": there is neither`},
		"bad.ics":          {"bad.ics: is no iCalendar file"},
		"old.calendar.yml": {"old.calendar.yml: ends in .yml, expected .yaml: rename it"},
	} {
		found := check(t.Context(), newFakeLoader(t), fakeParse, Placement{}, []string{filepath.Join(dir, path)})
		if len(found) != len(want) || (len(want) > 0 && !strings.HasPrefix(strings.TrimPrefix(found[0].String(), dir+string(filepath.Separator)), want[0])) {
			t.Errorf("%s: %v, want %v", path, found, want)
		}
	}
}
