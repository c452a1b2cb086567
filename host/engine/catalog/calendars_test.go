package catalog

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

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

// manyJobs is the text of a definition file whose jobs exclude a calendar.
func manyJobs(from, n int, module, calendar string) string {
	var text strings.Builder
	for k := range n {
		fmt.Fprintf(&text, "job a%d %s p not=%s\n", from+k, module, calendar)
	}
	return text.String()
}

// manyDays is the text of a calendar of so many days.
func manyDays(n int) string {
	var text strings.Builder
	text.WriteString("days: [")
	for k := range n {
		fmt.Fprintf(&text, "%s, ", time.Date(1970, 1, 1+2*k, 0, 0, 0, 0, time.UTC).Format(time.DateOnly))
	}
	return text.String() + "2099-12-31]"
}

// TestCalendarIsJudgedOnce: jobs with the same schedule and the same calendars are judged together, once for each version of the
// calendar, and share its text.
func TestCalendarIsJudgedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("many.yaml: "+manyJobs(0, 200, "a.wasm", "h"), "a.wasm: one.", "h.calendar.yaml: "+manyDays(1000))
	w.look()
	if w.plan.timetables != 1 {
		t.Errorf("200 jobs with one schedule took %d timetables, want 1", w.plan.timetables)
	}
	w.compile()
	if len(w.plan.jobs) != 200 || w.plan.timetables != 0 {
		t.Fatalf("%d jobs are in force; the next decision made %d timetables, want none", len(w.plan.jobs), w.plan.timetables)
	}
	first := w.plan.jobs[0].job.Definition.Props[jobconfig.PropCalendarDays]
	for _, b := range w.plan.jobs {
		if text := b.job.Definition.Props[jobconfig.PropCalendarDays]; unsafe.StringData(text) != unsafe.StringData(first) {
			t.Fatal("each job has a copy of the calendar's days")
		}
	}
	before := w.plan.jobs[0]
	w.write("h.calendar.yaml: " + manyDays(1000) + " # the same days")
	w.step()
	if w.plan.timetables != 0 || w.plan.jobs[0] != before {
		t.Errorf("a comment in the calendar took %d timetables", w.plan.timetables)
	}
	w.write("h.calendar.yaml: " + manyDays(1001))
	w.step()
	if len(w.plan.jobs) != 200 || w.plan.jobs[0] == before || len(w.plan.jobs[0].job.Definition.Props[jobconfig.PropCalendarDays]) <= len(first) {
		t.Error("the jobs have not the new days")
	}
}

// TestCalendarsWait: jobs with calendars for which there was no time hold up no others, and come with the next
// decisions.
func TestCalendarsWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.state.spent = func() bool { return true }
	w.write("many.yaml: "+manyJobs(0, 5, "a.wasm", "h"), "a.wasm: one.", "h.calendar.yaml: days: [2026-12-24]", "new.yaml: job new a.wasm", "one.yaml: job one a.wasm p not=h")
	w.look()
	w.compile()
	w.decide()
	names := func() (list []string) {
		for _, b := range w.plan.jobs {
			list = append(list, b.job.Definition.JobName)
		}
		return list
	}
	if all := strings.Join(names(), " "); !strings.Contains(all, "new") || !strings.Contains(all, "one") || !w.plan.more || len(w.plan.refused) != 0 {
		t.Fatalf("in force: %s, more: %v\n%s", all, w.plan.more, w.plan.String())
	}
	for n := 0; w.plan.more; n++ {
		if n > 5 {
			t.Fatalf("in force: %s", names())
		}
		w.decide()
	}
	if len(names()) != 7 {
		t.Errorf("in force: %s", names())
	}
}

// TestDaysOfOneFileAreBounded: the days in the configurations of all jobs of one file have a bound. Jobs beyond it are refused, without
// others, and have room again when the calendar has fewer days.
func TestDaysOfOneFileAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("many.yaml: "+manyJobs(0, 400, "a.wasm", "h"), "other.yaml: "+manyJobs(400, 1, "a.wasm", "h"), "a.wasm: one.", "h.calendar.yaml: "+manyDays(4900))
	w.step()
	w.compile()
	size := len(w.plan.jobs[0].job.Definition.Props[jobconfig.PropCalendarDays])
	if want := mostDays/size + 1; len(w.plan.jobs) != want {
		t.Errorf("%d jobs with %d bytes each are in force, want %d", len(w.plan.jobs), size, want)
	}
	w.refusedFor("many.yaml", "the days of the calendars of the file's jobs take more than 16777216 bytes")
	w.write("h.calendar.yaml: " + manyDays(100))
	w.step()
	if len(w.plan.jobs) != 401 || len(w.plan.refused) != 0 {
		t.Errorf("%d jobs are in force:\n%s", len(w.plan.jobs), w.plan.String())
	}
}

// TestDaysAreReadOnce: who lists the jobs of a directory reads each calendar once.
func TestDaysAreReadOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "h.calendar.yaml"), []byte("days: [2026-12-24]"), 0o644); err != nil {
		t.Fatal(err)
	}
	docs, _ := fakeParse("many.yaml", []byte(manyJobs(0, 2, "a.wasm", "h")), nil)
	texts := make(map[string]string)
	first := withDays(dir, "many.yaml", docs[0].Configuration, texts)
	if err := os.Remove(filepath.Join(dir, "h.calendar.yaml")); err != nil {
		t.Fatal(err)
	}
	second := withDays(dir, "many.yaml", docs[1].Configuration, texts)
	if days := second.Props[jobconfig.PropCalendarDays]; days == "" || days != first.Props[jobconfig.PropCalendarDays] {
		t.Errorf("the second job has the days %q", days)
	}
}
