package catalog

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestFolders: a definition in a folder, with its module beside it, is as one in the directory; folders come and go.
func TestFolders(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "a.yaml: job a", "a.wasm: one.")
	r.await(`a "" a.yaml a.wasm @one.`)
	r.must(os.MkdirAll(r.path("pay/eu"), 0o755))
	r.must(os.MkdirAll(r.path(".git/x"), 0o755))
	r.write(".git/x/z.yaml: job z", "pay/b.yaml: job b", "pay/b.wasm: two..", "pay/eu/c.yaml: job c a.wasm", "pay/eu/a.wasm: three...")
	r.await(`a "" a.yaml a.wasm @one.`, `b "" pay/b.yaml pay/b.wasm @two..`, `c "" pay/eu/c.yaml pay/eu/a.wasm @three...`)
	// In place, in a folder that was not there when the host started.
	r.write("pay/eu/a.wasm: four....")
	r.await(`a "" a.yaml a.wasm @one.`, `b "" pay/b.yaml pay/b.wasm @two..`, `c "" pay/eu/c.yaml pay/eu/a.wasm @four....`)
	// A module of another folder is not beside the definition.
	r.write("pay/eu/c.yaml: job c b.wasm")
	r.await(`a "" a.yaml a.wasm @one.`, `b "" pay/b.yaml pay/b.wasm @two..`, `c "" pay/eu/c.yaml pay/eu/a.wasm @four....`,
		`refused (kept) pay/eu/c.yaml: line 1: job "c": module "pay/eu/b.wasm": there is no such file beside the definition`)
	r.must(os.RemoveAll(r.path("pay/eu")))
	r.await(`a "" a.yaml a.wasm @one.`, `b "" pay/b.yaml pay/b.wasm @two..`)
	r.must(os.Rename(r.path("pay"), r.path("bill")))
	r.await(`a "" a.yaml a.wasm @one.`, `b "" bill/b.yaml bill/b.wasm @two..`)
}

// TestFoldersOut: no folder is read through a link, and none out of the directory.
func TestFoldersOut(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	put(t, outside, "b.yaml", "job b")
	put(t, outside, "b.wasm", "two..")
	r := newRig(t, nil, "a.yaml: job a", "a.wasm: one.")
	r.await(`a "" a.yaml a.wasm @one.`)
	r.must(os.Symlink(outside, r.path("pay")))
	r.must(os.Mkdir(r.path("team"), 0o755))
	r.must(os.Symlink(filepath.Join(outside, "b.yaml"), r.path("team/b.yaml")))
	r.await(`a "" a.yaml a.wasm @one.`, `refused team/b.yaml: `+leadsOut)
}

// TestFolderDefaults: a change of a folder's defaults reaches all definitions below, and only those; what is broken
// leaves what was in force.
func TestFolderDefaults(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(*Options) {}, "a.yaml: job a", "a.wasm: one.", "defaults.yaml: jobParameter: all")
	r.await(`a "all" a.yaml a.wasm @one.`)
	r.must(os.MkdirAll(r.path("pay"), 0o755))
	r.write("pay/defaults.yaml: jobParameter: pay", "pay/b.yaml: job b", "pay/b.wasm: two..", "pay/c.yaml: job c b.wasm own")
	r.await(`a "all" a.yaml a.wasm @one.`, `b "pay" pay/b.yaml pay/b.wasm @two..`, `c "own" pay/c.yaml pay/b.wasm @two..`)
	r.write("pay/defaults.yaml: jobParameter: new")
	r.await(`a "all" a.yaml a.wasm @one.`, `b "new" pay/b.yaml pay/b.wasm @two..`, `c "own" pay/c.yaml pay/b.wasm @two..`)
	r.write("pay/defaults.yaml: jobName: x")
	r.awaitNever(`b "all"`, `a "all" a.yaml a.wasm @one.`, `b "new" pay/b.yaml pay/b.wasm @two..`, `c "own" pay/c.yaml pay/b.wasm @two..`,
		`refused (kept) pay/defaults.yaml: line 1: jobName: is each job's own: it has no default`)
	r.must(os.Remove(r.path("pay/defaults.yaml")))
	r.await(`a "all" a.yaml a.wasm @one.`, `b "all" pay/b.yaml pay/b.wasm @two..`, `c "own" pay/c.yaml pay/b.wasm @two..`)
	r.must(os.Remove(r.path("defaults.yaml")))
	r.await(`a "" a.yaml a.wasm @one.`, `b "" pay/b.yaml pay/b.wasm @two..`, `c "own" pay/c.yaml pay/b.wasm @two..`)
}

// TestBrokenDefaults: no job begins with other values than its folder has for it.
func TestBrokenDefaults(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "a.yaml: job a", "a.wasm: one.", "defaults.yaml: jobParametr: x")
	r.await(`refused a.yaml: the defaults of its folder, defaults.yaml, are refused`, `refused defaults.yaml: line 1: jobParametr: unknown field; did you mean jobParameter?`)
	r.write("defaults.yaml: jobParameter: x")
	r.await(`a "x" a.yaml a.wasm @one.`)
	r.must(os.Rename(r.path("defaults.yaml"), r.path("defaults.yml")))
	r.await(`a "" a.yaml a.wasm @one.`, `refused defaults.yml: ends in .yml, expected .yaml: rename it`)
}

// TestManyFolders: what lies too deep, or too far to the side, is counted, and not read.
func TestManyFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	deep := strings.TrimSuffix(strings.Repeat("d/", mostDepth+1), "/")
	if err := os.MkdirAll(filepath.Join(dir, deep), 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, dir, deep+"/a.yaml", "job a")
	put(t, dir, filepath.Dir(deep)+"/b.yaml", "job b")
	if l := lookAt(dir); len(l.entries) != 1 || len(l.folders) != mostDepth+1 || len(l.excess) != 1 {
		t.Errorf("the look has %d files, %d folders, %v", len(l.entries), len(l.folders), l.excess)
	}
	for n := range mostFolders {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprint("f", n)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if l := lookAt(dir); len(l.folders) != mostFolders || len(l.excess) != 1 || !strings.Contains(l.excess[0], "are not read") {
		t.Errorf("the look has %d folders, %v", len(l.folders), l.excess)
	}
	if err := os.Mkdir(filepath.Join(dir, "x\ny"), 0o755); err != nil {
		t.Fatal(err)
	}
	if l := lookAt(dir); !slices.ContainsFunc(l.excess, func(s string) bool { return strings.Contains(s, `x\ny`) }) {
		t.Errorf("of a name with a line break it says %q", l.excess)
	}
}

// TestCalendarAbove: a calendar may lie in a folder above the definition; the nearest one counts.
func TestCalendarAbove(t *testing.T) {
	t.Parallel()
	s := state{files: map[string]file{"h.calendar.yaml": {calendar: &daysOf{text: "all"}}, "pay/h.calendar.yaml": {calendar: &daysOf{text: "pay"}}}}
	for of, want := range map[string]string{"a.yaml": "all", "pay/eu/b.yaml": "pay", "pay/b.yaml": "pay", "ops/c.yaml": "all"} {
		if got, problem := s.calendarOf("h", of); problem != "" || got.text != want {
			t.Errorf("the calendar of %s is not that of %s: %s", of, want, problem)
		}
	}
	if _, problem := s.calendarOf("x", "pay/a.yaml"); !strings.Contains(problem, "or in a folder above it") {
		t.Error(problem)
	}
}

// TestCheckFolders: who checks one file, or a directory, has the defaults that a host has.
func TestCheckFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"defaults.yaml": "shardingTotalCount: 2\n", "pay/defaults.yaml": "failover: true\n", "pay/a.yaml": "monitorExecution: true\n", "pay/a.wasm": "one.", "b.yaml": "timeout: 1m\n", "b.wasm": "two.."} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		put(t, dir, name, text)
	}
	try := func(path string) string {
		return fmt.Sprint(check(t.Context(), newFakeLoader(t), parseWithin(nil), Placement{}, []string{filepath.Join(dir, path)}))
	}
	for _, path := range []string{".", "pay/a.yaml", "pay", "b.yaml"} {
		want := "[]"
		if path == "pay" { // a directory is the one that a host has
			want = "shardingTotalCount: is missing"
		}
		if got := try(path); !strings.Contains(got, want) {
			t.Errorf("%s: %s, expected %s", path, got, want)
		}
	}
	// What else lies about is of no interest to a file.
	if err := os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", mostDepth+2)), 0o755); err != nil {
		t.Fatal(err)
	}
	if one, all := try("b.yaml"), try("."); one != "[]" || !strings.Contains(all, "are not read") {
		t.Errorf("beside a deep folder a file has %s, the directory %s", one, all)
	}
	put(t, dir, "pay/defaults.yaml", "failover: perhaps\n")
	if got := try("pay/a.yaml"); !strings.Contains(got, "are refused") {
		t.Error("a definition whose defaults are broken:", got)
	}
	if jobs := Defined([]string{dir}); len(jobs) != 1 || jobs[0].Configuration.ShardingTotalCount != 2 {
		t.Errorf("the directory defines %+v", jobs)
	}
}

// TestRefusedUnderDefaults: a definition that is refused before it is parsed was read with the defaults that there are: it
// is not read again and again.
func TestRefusedUnderDefaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "defaults.yaml", "timeout: 1m\n")
	put(t, dir, "a.yaml", "jobName: x\nshardingTotalCount: 1\n---\njobName: y\nshardingTotalCount: 1\n")
	if err := os.Link(filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "c.yaml", "shardingTotalCount: 1\n")
	for _, jobs := range []int{0, mostJobs} { // with room for more, and without
		s, names, _ := state{}.look(lookAt(dir), time.Now(), 0, true)
		s.order(names)
		r := newReading(dir, s.files, parseWithin(nil))
		r.jobs += jobs
		for _, name := range names {
			r.read(name)
		}
		s, _ = s.read(r.contents, time.Now(), 0)
		refused := 0
		for name, f := range s.files {
			if s.stale(name, f) {
				t.Errorf("%s is to be read again: %v", name, f.problems.Kept())
			}
			refused += min(f.problems.Len(), 1)
		}
		if refused == 0 {
			t.Error("no file is refused")
		}
	}
}
