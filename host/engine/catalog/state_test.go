package catalog

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

const rest = 200 * time.Millisecond

// world drives the pure part by hand: a directory of texts, and modules that
// are compiled when the test says so.
type world struct {
	t        *testing.T
	now      time.Time
	state    state
	plan     plan
	files    map[string]written
	outcomes map[string]outcome
	loader   *fakeLoader
}

type written struct {
	text     string
	modified time.Time
	problem  string
}

func newWorld(t *testing.T) *world {
	w := &world{
		t: t, state: state{dir: "."}, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		files: make(map[string]written), outcomes: make(map[string]outcome), loader: newFakeLoader(t),
	}
	t.Cleanup(func() {
		for _, o := range w.outcomes {
			if o.compiled != nil {
				o.compiled.close()
			}
		}
	})
	return w
}

// write puts files there, each "NAME: TEXT", that were modified a minute ago.
func (w *world) write(files ...string) {
	for _, f := range files {
		name, text, _ := strings.Cut(f, ": ")
		w.files[name] = written{text: text, modified: w.now.Add(-time.Minute)}
	}
}

func (w *world) remove(name string) { delete(w.files, name) }

// look looks, reads and decides, a second later, without compiling.
func (w *world) look() (read []string, wake time.Time) {
	w.now = w.now.Add(time.Second)
	return w.lookNow(false)
}

func (w *world) lookNow(all bool) (read []string, wake time.Time) {
	l := look{entries: make(map[string]entry)}
	for name, f := range w.files {
		e := entry{stamp: stamp{size: int64(len(f.text)), modified: f.modified}}
		if f.problem != "" {
			e = entry{problem: f.problem}
		}
		l.entries[name] = e
	}
	next, read, wake := w.state.look(l, w.now, rest, all)
	contents := make(map[string]content)
	for _, name := range read {
		f := w.files[name]
		c := content{stamp: l.entries[name].stamp, digest: digestOf(f.text)}
		if kindOf(name) == aDefinition {
			c.docs, c.problems = fakeParse(name, []byte(f.text), nil)
		}
		if kindOf(name) == aCalendar {
			c.calendar, c.problems = readCalendar(name, f.text)
		}
		contents[name] = c
	}
	next, again := next.read(contents, w.now, rest)
	w.state = next
	w.decide()
	return read, earlier(wake, again)
}

func (w *world) decide() {
	w.state, w.plan = w.state.decide(w.outcomes, w.now)
}

// compile does all the work that is asked for, until nothing is.
func (w *world) compile() {
	for range 100 {
		if len(w.plan.compile) == 0 {
			return
		}
		for _, want := range w.plan.compile {
			o := w.outcomes[want.digest]
			if o.compiled == nil {
				m, err := w.loader.load(w.t.Context(), want.file, []byte(w.files[want.file].text), want.apart, want.due, func() {})
				if err != nil {
					w.outcomes[want.digest] = outcome{problems: reasons(err)}
					continue
				}
				o = outcome{compiled: m}
			}
			if o.trials == nil {
				o.trials = make(map[string]trial)
			}
			for _, d := range want.try {
				job := d.doc.Configuration.JobName
				x := trial{doc: d.doc, granted: d.granted.key}
				if err := fit(o.compiled.bind(job, d.granted), d.doc.Configuration); err != nil {
					x.problem = err.Error()
				}
				o.trials[job] = x
			}
			o.again = false
			w.outcomes[want.digest] = o
		}
		w.decide()
	}
	w.t.Fatal("there is no end of work")
}

// String tells the plan: a line for each job and each refusal.
func (p plan) String() string {
	var b strings.Builder
	for _, j := range p.jobs {
		fmt.Fprintf(&b, "%s %q %s %s %s\n", j.job.Definition.JobName, j.job.Definition.JobParameter, j.job.File, j.job.ModuleFile, j.digest[:4])
	}
	for _, r := range p.refused {
		kept := ""
		if r.Kept {
			kept = " (kept)"
		}
		fmt.Fprintf(&b, "refused%s %s: %s\n", kept, r.File, strings.Join(r.Reasons, "; "))
	}
	return b.String()
}

// expect compares the plan with lines; in them, @TEXT stands for the digest.
func (w *world) expect(lines ...string) {
	w.t.Helper()
	var want strings.Builder
	for _, line := range lines {
		if before, text, ok := strings.Cut(line, "@"); ok {
			line = before + digestOf(text)[:4]
		}
		want.WriteString(line + "\n")
	}
	if got := w.plan.String(); got != want.String() {
		w.t.Errorf("plan:\n%s\nwant:\n%s", got, want.String())
	}
}

func (w *world) step() {
	w.look()
	w.compile()
}

func TestPairIsTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("a.yaml: job a\njob b a.wasm p", "a.wasm: one.")
	w.look()
	w.expect()
	if len(w.plan.compile) != 1 {
		t.Fatalf("to compile: %v, want a.wasm once", w.plan.compile)
	}
	w.compile()
	w.expect(`a "" a.yaml a.wasm @one.`, `b "p" a.yaml a.wasm @one.`)
	for _, b := range w.plan.jobs {
		if b.job.Group != "file a.yaml" {
			t.Errorf("the group of %s is %q, want that of its file", b.job.Definition.JobName, b.job.Group)
		}
	}
	if got := groupOf("ann", "a.yaml"); got != "key ann" {
		t.Errorf("the group of a signed module is %q, want that of the key", got)
	}
}

func TestModuleIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("a.yaml: job a", "a.wasm: one.")
	w.step()
	w.write("a.wasm: two..")
	w.look()
	w.expect(`a "" a.yaml a.wasm @one.`)
	w.compile()
	w.expect(`a "" a.yaml a.wasm @two..`)
	if w.plan.needed[digestOf("one.")] {
		t.Error("the old module is still needed")
	}
	// Going back needs no compilation.
	w.write("a.wasm: one.")
	w.look()
	w.expect(`a "" a.yaml a.wasm @one.`)
}

func TestDefinitionAndModuleTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("a.yaml: job a a.wasm old", "a.wasm: one.", "b.yaml: job b b.wasm old", "b.wasm: bee.")
	w.step()
	w.write("a.yaml: job a a.wasm new", "a.wasm: two..", "b.yaml: job b b.wasm new!")
	w.look()
	w.expect(`a "old" a.yaml a.wasm @one.`, `b "new!" b.yaml b.wasm @bee.`)
	w.compile()
	w.expect(`a "new" a.yaml a.wasm @two..`, `b "new!" b.yaml b.wasm @bee.`)
}

func TestBrokenModule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("a.yaml: job a", "a.wasm: bad one.")
	w.step()
	w.expect(`refused a.wasm: first problem; second problem`,
		`refused a.yaml: line 1: job "a": module "a.wasm": the file is refused`)
	w.write("a.wasm: good.")
	w.step()
	w.expect(`a "" a.yaml a.wasm @good.`)
	w.write("a.wasm: bad two.")
	w.step()
	w.expect(`a "" a.yaml a.wasm @good.`, `refused (kept) a.wasm: first problem; second problem`)
	// The definition can change meanwhile, and another job come.
	w.write("a.yaml: job a a.wasm x\njob b a.wasm y")
	w.step()
	w.expect(`a "x" a.yaml a.wasm @good.`, `b "y" a.yaml a.wasm @good.`, `refused (kept) a.wasm: first problem; second problem`)
	w.write("a.wasm: better.")
	w.step()
	w.expect(`a "x" a.yaml a.wasm @better.`, `b "y" a.yaml a.wasm @better.`)
}

func TestBrokenDefinition(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("a.yaml: !wrong", "a.wasm: one.")
	w.step()
	w.expect(`refused a.yaml: line 1: !wrong`)
	w.write("a.yaml: job a")
	w.step()
	w.expect(`a "" a.yaml a.wasm @one.`)
	w.write("a.yaml: job a a.wasm new\n!oops\n!twice")
	w.step()
	w.expect(`a "" a.yaml a.wasm @one.`, `refused (kept) a.yaml: line 2: !oops; line 3: !twice`)
	since := w.plan.refused[0].Since
	w.look()
	if got := w.plan.refused[0].Since; !got.Equal(since) {
		t.Errorf("the same refusal is said to be since %v, then %v", since, got)
	}
	// The module is replaced all the same.
	w.write("a.wasm: two..")
	w.step()
	w.expect(`a "" a.yaml a.wasm @two..`, `refused (kept) a.yaml: line 2: !oops; line 3: !twice`)
}

// A new version with mistakes takes the place of what was wrong with the one before, if that is
// not in force.
func TestBrokenDefinitionAfterARefusedOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("a.yaml: job a b.wasm", "a.wasm: one.", "b.yaml: job b c.wasm\njob d a.wasm", "c.yaml: job d")
	w.step()
	w.expect(`d "" b.yaml a.wasm @one.`, `refused a.yaml: line 1: job "a": module "b.wasm": there is no such file beside the definition`,
		`refused b.yaml: line 1: job "b": module "c.wasm": there is no such file beside the definition`,
		`refused c.yaml: line 1: job "d": is defined in b.yaml (line 2), expected one definition`)
	w.write("a.yaml: !oops", "b.yaml: !wrong", "c.yaml: !worse")
	w.step()
	w.expect(`d "" b.yaml a.wasm @one.`, `refused a.yaml: line 1: !oops`, `refused (kept) b.yaml: line 1: !wrong`, `refused c.yaml: line 1: !worse`)
	// What is wrong with the version in force, because its module has changed, counts.
	w.write("a.wasm: bad two.")
	w.step()
	w.write("b.yaml: job d a.wasm needs one")
	w.step()
	w.write("b.yaml: !wrong", "a.wasm: two..")
	w.step()
	w.expect(`d "needs one" b.yaml a.wasm @one.`, `refused a.yaml: line 1: !oops`,
		`refused (kept) b.yaml: line 1: !wrong; line 1: job "d": module "a.wasm": has not one`, `refused c.yaml: line 1: !worse`)
}

func TestDeletion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("a.yaml: job a", "a.wasm: one.", "b.yaml: job b\njob c", "b.wasm: bee.")
	w.step()
	w.remove("a.yaml")
	w.step()
	w.expect(`b "" b.yaml b.wasm @bee.`, `c "" b.yaml b.wasm @bee.`,
		`refused a.wasm: no definition names it, expected one such as a.yaml beside it`)
	w.remove("a.wasm")
	w.write("b.yaml: job c")
	w.step()
	w.expect(`c "" b.yaml b.wasm @bee.`)
	w.remove("b.wasm")
	w.step()
	w.expect(`refused b.yaml: line 1: job "c": module "b.wasm": there is no such file beside the definition`)
	if len(w.plan.needed) != 0 {
		t.Errorf("needed: %v, want nothing", w.plan.needed)
	}
}

func TestModuleName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("a.yaml: job a\njob b ../../a.wasm\njob c a.bin\njob d sub/a.wasm\njob e other.wasm", "a.wasm: one.")
	w.step()
	w.expect(`a "" a.yaml a.wasm @one.`, `refused a.yaml: `+strings.Join([]string{
		`line 2: job "b": module "../../a.wasm": expected the name of a file NAME.wasm beside the definition`,
		`line 3: job "c": module "a.bin": expected the name of a file NAME.wasm beside the definition`,
		`line 4: job "d": module "sub/a.wasm": expected the name of a file NAME.wasm beside the definition`,
		`line 5: job "e": module "other.wasm": there is no such file beside the definition`,
	}, "; "))
	// A misspelt module in a new version: the job stays as it was.
	w.write("a.yaml: job a b.wasm")
	w.step()
	w.expect(`a "" a.yaml a.wasm @one.`,
		`refused (kept) a.yaml: line 1: job "a": module "b.wasm": there is no such file beside the definition`)
}

func TestMisfit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("a.yaml: job a a.wasm misfit", "a.wasm: one.")
	w.step()
	w.expect(`refused a.yaml: line 1: job "a": module "a.wasm": has not the exports`)
	w.write("a.yaml: job a a.wasm needs one")
	w.step()
	w.expect(`a "needs one" a.yaml a.wasm @one.`)
	w.write("a.wasm: two..")
	w.step()
	w.expect(`a "needs one" a.yaml a.wasm @one.`, `refused (kept) a.yaml: line 1: job "a": module "a.wasm": has not one`)
	if !w.plan.needed[digestOf("one.")] {
		t.Error("the module in force is not needed")
	}
	w.write("a.yaml: job a a.wasm needs two")
	w.step()
	w.expect(`a "needs two" a.yaml a.wasm @two..`)
}

// TestCostlyTrial: what needs the module to be compiled once more is tried by
// the worker, and the job stays as it was until that is done.
func TestCostlyTrial(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("a.yaml: job a", "a.wasm: one.")
	w.step()
	w.write("a.yaml: job a a.wasm needs one memory\njob b a.wasm misfit memory")
	w.look()
	w.expect(`a "" a.yaml a.wasm @one.`)
	if len(w.plan.compile) != 1 || len(w.plan.compile[0].try) != 2 {
		t.Fatalf("work is %+v, want both jobs to be tried", w.plan.compile)
	}
	w.compile()
	w.expect(`a "needs one" a.yaml a.wasm @one.`, `refused a.yaml: line 2: job "b": module "a.wasm": has not the exports`)

	o := w.outcomes[digestOf("one.")]
	o.again = true
	w.outcomes[digestOf("one.")] = o
	w.decide()
	w.expect(`a "needs one" a.yaml a.wasm @one.`, `refused a.yaml: line 2: job "b": module "a.wasm": has not the exports`)
	if len(w.plan.compile) != 1 || len(w.plan.compile[0].try) != 1 {
		t.Errorf("work is %+v, want what failed to be tried again", w.plan.compile)
	}
}

func TestOneNameTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("b.yaml: job x b.wasm b\njob y", "b.wasm: bee.")
	w.write("a.yaml: job z\njob x a.wasm a", "a.wasm: one.")
	w.step()
	w.expect(`x "a" a.yaml a.wasm @one.`, `y "" b.yaml b.wasm @bee.`, `z "" a.yaml a.wasm @one.`,
		`refused b.yaml: line 1: job "x": is defined in a.yaml (line 2), expected one definition`)

	// The one that runs stays, whatever its name.
	w.write("0.yaml: job y b.wasm zero")
	w.step()
	w.expect(`x "a" a.yaml a.wasm @one.`, `y "" b.yaml b.wasm @bee.`, `z "" a.yaml a.wasm @one.`,
		`refused 0.yaml: line 1: job "y": is defined in b.yaml (line 2), expected one definition`,
		`refused b.yaml: line 1: job "x": is defined in a.yaml (line 2), expected one definition`)

	// The other takes over when it goes.
	w.write("a.yaml: job z")
	w.remove("0.yaml")
	w.step()
	w.expect(`x "b" b.yaml b.wasm @bee.`, `y "" b.yaml b.wasm @bee.`, `z "" a.yaml a.wasm @one.`)

	// Twice in one file, if the parser lets it through.
	w.write("a.yaml: job z a.wasm 1\njob z a.wasm 2")
	w.step()
	w.expect(`x "b" b.yaml b.wasm @bee.`, `y "" b.yaml b.wasm @bee.`, `z "1" a.yaml a.wasm @one.`,
		`refused a.yaml: line 2: job "z": is defined in a.yaml (line 1), expected one definition`)
}

func TestUnreadable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("a.yaml: job a", "a.wasm: one.")
	w.step()
	w.files["a.wasm"] = written{problem: "cannot be read: permission denied"}
	w.files["a.yaml"] = written{problem: "is a symbolic link to x, which does not exist"}
	w.step()
	w.expect(`a "" a.yaml a.wasm @one.`,
		`refused (kept) a.wasm: cannot be read: permission denied`,
		`refused (kept) a.yaml: is a symbolic link to x, which does not exist`)
	w.write("a.yaml: job a a.wasm new", "a.wasm: one.")
	w.step()
	w.expect(`a "new" a.yaml a.wasm @one.`)
}

func TestDirectoryIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("a.yaml: job a\n", "a.wasm: one.", "b.yaml: !bad")
	w.step()
	before := w.plan.jobs
	w.state, _, _ = w.state.look(look{problem: "cannot be read: no such file or directory"}, w.now, rest, true)
	w.decide()
	w.expect(`a "" a.yaml a.wasm @one.`, `refused (kept) .: cannot be read: no such file or directory`, `refused b.yaml: line 1: !bad`)
	if !slices.Equal(before, w.plan.jobs) {
		t.Error("the job is not the same as before")
	}
	w.step()
	w.expect(`a "" a.yaml a.wasm @one.`, `refused b.yaml: line 1: !bad`)
}

func TestRest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := w.now
	put := func(text string, modified time.Time) {
		w.files["a.yaml"] = written{text: text, modified: modified}
	}
	expect := func(read int, wake time.Time) {
		t.Helper()
		names, got := w.lookNow(false)
		if len(names) != read || !got.Equal(wake) {
			t.Errorf("after %v: read %v, wake after %v; want %d files and %v", w.now.Sub(at), names, got.Sub(at), read, wake.Sub(at))
		}
	}
	// Written just now: wait until it is a rest time old.
	put("job a", at.Add(-rest/2))
	expect(0, at.Add(rest/2))
	w.now = at.Add(rest / 2)
	expect(1, time.Time{})
	// Nothing to do when nothing changes.
	w.now = w.now.Add(time.Hour)
	expect(0, time.Time{})
	// A clock that is ahead: it must look the same for a rest time.
	at = w.now
	put("job ab", at.Add(time.Hour))
	expect(0, at.Add(rest))
	w.now = at.Add(rest - 1)
	expect(0, at.Add(rest))
	w.now = at.Add(rest)
	expect(1, time.Time{})
	// An old time that comes with the file: it is read at once.
	put("job abc", at.Add(-time.Hour))
	expect(1, time.Time{})
	// The same size and time: only the look that reads everything sees it.
	put("job xyz", at.Add(-time.Hour))
	expect(0, time.Time{})
	if read, _ := w.lookNow(true); len(read) != 1 {
		t.Errorf("the look that reads everything read %v", read)
	}
	if _, ok := w.state.files["a.yaml"]; !ok || w.state.files["a.yaml"].docs[0].Configuration.JobName != "xyz" {
		t.Error("a change without a change of time was not taken over")
	}
	// One that never rests is reported in the end, once.
	at = w.now
	reported := time.Duration(0)
	for i := range 20 {
		w.now = at.Add(time.Duration(i) * rest / 2)
		put(strings.Repeat("x", i+1), w.now)
		if read, _ := w.lookNow(i%2 == 0); len(read) > 0 {
			t.Fatalf("read while it is being written, after %v", w.now.Sub(at))
		}
		if reported == 0 && len(w.plan.refused) > 0 && strings.Contains(w.plan.String(), "is still being written") {
			reported = w.now.Sub(at)
		}
	}
	if reported != patience*rest {
		t.Errorf("a file that is written without end was reported after %v, want %v", reported, patience*rest)
	}
	w.now = w.now.Add(rest)
	expect(1, time.Time{})
}

func TestBusyRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("a.yaml: job a", "a.wasm: one.")
	w.step()
	newest := stamp{size: 9, modified: w.now}
	next, wake := w.state.read(map[string]content{"a.yaml": {busy: true, stamp: newest}}, w.now, rest)
	if !wake.Equal(w.now.Add(rest)) {
		t.Errorf("wake is %v, want a rest time from now", wake)
	}
	w.state = next
	w.decide()
	w.expect(`a "" a.yaml a.wasm @one.`)
	next, read, _ := w.state.look(look{entries: map[string]entry{"a.yaml": {stamp: newest}}}, w.now.Add(rest), rest, false)
	if !slices.Equal(read, []string{"a.yaml"}) {
		t.Errorf("read %v, want a.yaml once it is at rest", read)
	}
	_ = next
	if f := w.state.forget("a.wasm").files["a.wasm"]; !f.unread() {
		t.Error("a forgotten file counts as read")
	}
	if w.state.files["a.wasm"].unread() {
		t.Error("forget changed the state that it was asked of")
	}
}

// TestRandomHistory: whatever is done to the directory, the plan names no job
// twice and no file that is not there, and it settles; and once everything is
// in order, nothing of the history is left.
func TestRandomHistory(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		w := newWorld(t)
		rnd := rand.New(rand.NewPCG(seed, 1))
		modules := []string{"one.", "two..", "bad..", "cut"}
		for range 40 {
			n := string(rune('a' + rnd.IntN(3)))
			switch rnd.IntN(8) {
			case 0, 1:
				w.write(n + ".wasm: " + modules[rnd.IntN(len(modules))])
			case 2, 3, 4:
				w.write(fmt.Sprintf("%s.yaml: job %c %c.wasm v%d", n, 'w'+rune(rnd.IntN(3)), 'a'+rune(rnd.IntN(3)), rnd.IntN(100)))
			case 5:
				w.write(n + ".yaml: !bad " + fmt.Sprint(rnd.IntN(1000)))
			case 6:
				w.remove(n + ".wasm")
			case 7:
				w.remove(n + ".yaml")
			}
			w.look()
			if rnd.IntN(3) > 0 {
				w.compile()
			}
			w.check(seed)
		}
		w.compile()
		settled := w.plan.String()
		jobs := slices.Clone(w.plan.jobs)
		w.look()
		if w.plan.String() != settled || !slices.Equal(jobs, w.plan.jobs) || len(w.plan.compile) > 0 {
			t.Fatalf("seed %d: it does not settle:\n%s\nthen:\n%s", seed, settled, w.plan)
		}
		// Repair everything: no trace of the history may be left.
		maps.DeleteFunc(w.files, func(string, written) bool { return true })
		w.write("a.yaml: job w\njob x", "a.wasm: one.", "b.yaml: job y", "b.wasm: two..")
		w.step()
		w.expect(`w "" a.yaml a.wasm @one.`, `x "" a.yaml a.wasm @one.`, `y "" b.yaml b.wasm @two..`)
		if len(w.plan.needed) != 2 {
			t.Fatalf("seed %d: needed is %v", seed, w.plan.needed)
		}
	}
}

func (w *world) check(seed uint64) {
	w.t.Helper()
	last := ""
	for _, b := range w.plan.jobs {
		name := b.doc.Configuration.JobName
		if name <= last {
			w.t.Fatalf("seed %d: job %q after %q", seed, name, last)
		}
		last = name
		for _, f := range []string{b.job.File, b.job.ModuleFile} {
			if _, ok := w.files[f]; !ok {
				w.t.Fatalf("seed %d: job %q runs from %s, which is deleted", seed, name, f)
			}
		}
		if w.outcomes[b.digest].compiled == nil || !w.plan.needed[b.digest] {
			w.t.Fatalf("seed %d: job %q has a module that is not compiled or not needed", seed, name)
		}
	}
	for _, r := range w.plan.refused {
		if len(r.Reasons) == 0 {
			w.t.Fatalf("seed %d: %s is refused without a reason", seed, r.File)
		}
	}
}
