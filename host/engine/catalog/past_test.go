package catalog

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/engine"
)

// TestHomeOfAJob: if no definition of a job is in force, that counts which was before the start, then that of the job's
// name; others wait while it cannot be read.
func TestHomeOfAJob(t *testing.T) {
	t.Parallel()
	modules := []string{"aa.wasm: evil.", "m.wasm: many.", "z.wasm: good."}
	start := func(before string, files ...string) *world {
		w := newWorld(t)
		if before != "" {
			w.state.past = past{Jobs: map[string]pastJob{"z": {File: before}}}.indexed()
		}
		w.write(append(files, modules...)...)
		return w
	}
	jobs := func(w *world) (list []string) {
		for _, b := range w.plan.jobs {
			list = append(list, b.job.Definition.JobName+" "+b.job.File)
		}
		return list
	}
	for _, c := range []struct {
		before string
		files  []string
		want   string
	}{
		{"", []string{"aa.yaml: job z", "z.yaml: job z"}, "z z.yaml"},
		{"", []string{"aa.yaml: job z", "z.yml: job z z.wasm"}, "z z.yml"},
		{"", []string{"aa.yaml: job z", "m.yaml: job z"}, "z aa.yaml"},
		{"m.yaml", []string{"aa.yaml: job z", "m.yaml: job z", "z.yaml: job z"}, "z m.yaml"},
		{"m.yaml", []string{"aa.yaml: job z"}, "z aa.yaml"},
		{"m.yaml", []string{"aa.yaml: job z", "m.yaml: !broken"}, ""},
		{"m.yaml", []string{"aa.yaml: job z", "m.yaml: job m"}, "m m.yaml z aa.yaml"},
	} {
		w := start(c.before, c.files...)
		w.step()
		if got := strings.Join(jobs(w), " "); got != c.want {
			t.Errorf("%s was in force, %q: found %q, expected %q", c.before, c.files, got, c.want)
		}
	}
	// The file that it belongs to was not read yet.
	w := start("", "aa.yaml: job z", "z.yaml: job z")
	w.files["z.yaml"] = written{text: "job z", modified: w.now.Add(time.Second)}
	w.step()
	if got := jobs(w); len(got) > 0 {
		t.Errorf("%q is in force before z.yaml is read", got)
	}
	w.now = w.now.Add(time.Minute)
	w.step()
	if got := jobs(w); !slices.Equal(got, []string{"z z.yaml"}) {
		t.Errorf("%q is in force", got)
	}
}

// TestGroupsTakeTurns: however many modules of one group wait, and however soon they are due, those of another group
// have a turn; what was in force before the start comes first, and what has failed comes last.
func TestGroupsTakeTurns(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var all []want
	for i := range 400 {
		all = append(all, want{file: fmt.Sprintf("many%d.wasm", i), digest: fmt.Sprint(i), groups: []string{"file many.yaml"}, due: now, urgency: isNew})
	}
	all = append(all,
		want{file: "failed.wasm", groups: []string{"file failed.yaml"}, due: now, urgency: hasFailed},
		want{file: "new.wasm", groups: []string{"file new.yaml"}, urgency: isNew},
		want{file: "shared.wasm", groups: []string{"file many.yaml", "file other.yaml"}, urgency: isNew},
		want{file: "old.wasm", groups: []string{"file old.yaml"}, urgency: wasInForce})
	place := make(map[string]int)
	for i, w := range inTurn(all) {
		place[w.file] = i
	}
	if place["old.wasm"] != 0 || place["new.wasm"] > 3 || place["shared.wasm"] > 3 || place["failed.wasm"] != len(all)-1 {
		t.Errorf("places: old %d, new %d, shared %d, failed %d", place["old.wasm"], place["new.wasm"], place["shared.wasm"], place["failed.wasm"])
	}
	r := &run{tasks: make(map[string]task)}
	begin := func(group string, urgency int) (n int) {
		for len(r.tasks) < maxTasks && r.mayBegin(want{groups: []string{group}, urgency: urgency}) {
			r.tasks[fmt.Sprint(len(r.tasks))] = task{groups: []string{group}, urgency: urgency}
			n++
		}
		return n
	}
	if one, other := begin("a", isNew), begin("b", isNew); one != maxTasks/2 || other == 0 || len(r.tasks) == maxTasks {
		t.Errorf("one group has %d tasks and the next one %d of %d", one, other, maxTasks)
	}
	clear(r.tasks)
	if n := begin("a", hasFailed) + begin("b", hasFailed); n != 2 {
		t.Errorf("%d tasks try again what has failed, expected 2", n)
	}
}

// TestRestart: a host that starts again knows what was in force and what was refused.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir, cache := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"m.yaml": "job z", "m.wasm": "good.", "bad.yaml": "job bad", "bad.wasm": "bad.", "fail.yaml": "job fail", "fail.wasm": "fail.",
		"full.yaml": "job full", "full.wasm": "full.",
	} {
		put(t, dir, name, text)
	}
	begin := func() (files map[string]string, refused []engine.Refusal, loads []string) {
		loader := newFakeLoader(t)
		c, err := newCatalog(Options{Dir: dir, Cache: cache, Rescan: time.Hour, Debounce: time.Millisecond}, loader, fakeParse)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		if err := c.Run(ctx, func(jobs []engine.Job, no []engine.Refusal) {
			files, refused = make(map[string]string), no
			for _, j := range jobs {
				files[j.Definition.JobName] = j.File
			}
			if len(files) == 1 && slices.ContainsFunc(no, func(r engine.Refusal) bool { return r.File == "bad.wasm" }) &&
				slices.ContainsFunc(no, func(r engine.Refusal) bool { return r.File == "fail.wasm" }) &&
				slices.ContainsFunc(no, func(r engine.Refusal) bool { return r.File == "full.wasm" }) {
				stop()
			}
		}); err != nil {
			t.Fatal(err)
		}
		return files, refused, loader.loads
	}
	_, first, _ := begin()
	put(t, dir, "aa.yaml", "job z")
	put(t, dir, "aa.wasm", "evil.")
	put(t, dir, "z.yaml", "job z aa.wasm")
	files, second, loads := begin()
	if !maps.Equal(files, map[string]string{"z": "m.yaml"}) {
		t.Errorf("after the start: %v", files)
	}
	if slices.Contains(loads, "bad.") || slices.Contains(loads, "fail.") || !slices.Contains(loads, "good.") {
		t.Errorf("after the start these were tried: %q", loads)
	}
	if !slices.Contains(loads, "full.") {
		t.Errorf("after the start a module of which nothing was known was not tried: %q", loads)
	}
	reasons := func(all []engine.Refusal, name string) string {
		for _, r := range all {
			if r.File == name {
				return strings.Join(r.Reasons, "; ")
			}
		}
		return ""
	}
	if got, want := reasons(second, "bad.wasm"), reasons(first, "bad.wasm"); got != want || got == "" {
		t.Errorf("the module is refused for %q, before for %q", got, want)
	}
	// What cannot be read is no past.
	name := pastFile(cache, dir)
	if err := os.WriteFile(name, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if p, err := readPast(name); err == nil || len(p.Jobs) > 0 {
		t.Errorf("%+v, %v", p, err)
	}
	if filepath.Dir(name) != cache {
		t.Errorf("the past is in %s", name)
	}
}

// TestPastIsBounded: of very many refusals a bounded number is kept, and what is gone is forgotten.
func TestPastIsBounded(t *testing.T) {
	t.Parallel()
	outcomes := make(map[string]outcome)
	for i := range 2 * mostRemembered {
		outcomes[fmt.Sprint(i)] = outcome{problems: []string{"x"}}
	}
	p := past{Jobs: map[string]pastJob{"gone": {File: "gone.yaml"}, "there": {File: "there.yaml"}}, Refused: map[string][]string{"gone": {"y"}}}.indexed()
	s := state{files: map[string]file{"there.yaml": {}}}
	if next := p.next(s, nil, outcomes, true); len(next.Refused) != mostRemembered || len(next.Jobs) != 1 {
		t.Errorf("%d refusals and %d jobs are kept", len(next.Refused), len(next.Jobs))
	}
	if next := p.next(s, nil, map[string]outcome{"full": {problems: []string{"no space left on device"}, unjudged: true}}, true); len(next.Refused) != 0 {
		t.Errorf("%v is kept, though nothing is known of the module", next.Refused)
	}
	long := map[string]outcome{"a": {problems: []string{strings.Repeat("x", 900)}}}
	for i := range 6000 {
		long[fmt.Sprint(i)] = long["a"]
	}
	if next := p.next(s, nil, long, true); len(next.Refused)*900 > rememberedSize {
		t.Errorf("%d long refusals are kept", len(next.Refused))
	}
}

// TestLateModulesDoNotHoldUpTheStart: what is new keeps a host from being ready for a bounded time.
func TestLateModulesDoNotHoldUpTheStart(t *testing.T) {
	t.Parallel()
	r := newRun(&Catalog{}, nil)
	r.applied = true
	for _, c := range []struct {
		urgency int
		late    bool
		want    bool
	}{{wasInForce, false, false}, {wasInForce, true, false}, {isNew, false, false}, {isNew, true, true}, {hasFailed, false, true}} {
		r.plan.compile = []want{{urgency: c.urgency}}
		if r.began = time.Now(); c.late {
			r.began = r.began.Add(-2 * settleTime)
		}
		if got := r.settled(); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// TestTrialsTakeTurns: a task that has tried jobs for long leaves the others to the next one.
func TestTrialsTakeTurns(t *testing.T) {
	t.Parallel()
	l := newFakeLoader(t)
	m := &fakeModule{l: l, text: "m."}
	l.open[m] = true
	defer m.close()
	docs, _ := fakeParse("a.yaml", []byte("job a\njob b\njob c"), nil)
	var wishes []wish
	for _, d := range docs {
		wishes = append(wishes, wish{doc: d})
	}
	w := want{file: "m.wasm", try: wishes}
	for pace, want := range map[time.Duration]int{0: 3, 2 * tryTime: 1} {
		clock := time.Now()
		c := &Catalog{now: func() time.Time {
			clock = clock.Add(pace)
			return clock
		}}
		if res := c.do(t.Context(), w, m, func() {}); len(res.outcome.trials) != want {
			t.Errorf("%s for each: %d trials, expected %d", pace, len(res.outcome.trials), want)
		}
	}
}
