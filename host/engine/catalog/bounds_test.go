package catalog

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/config/definition"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// TestTooManyFiles: of a directory with too many files those that were there before are read, then the first
// by name, of each kind by itself, and a refusal of the directory counts the others.
func TestTooManyFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 9 {
		put(t, dir, fmt.Sprintf("d%d.yaml", i), "job a")
	}
	put(t, dir, "z.wasm", "one.")
	l := lookFor(dir, 3, map[string]bool{"d7.yaml": true}, nil)
	if len(l.entries) != 4 {
		t.Errorf("%d files, expected 4", len(l.entries))
	}
	for _, name := range []string{"d7.yaml", "d0.yaml", "d1.yaml", "z.wasm"} {
		if _, ok := l.entries[name]; !ok {
			t.Errorf("%s is not read", name)
		}
	}
	s, _, _ := state{dir: "DIR"}.look(l, time.Now(), 0, false)
	_, p := s.decide(nil, time.Now())
	if len(p.refused) == 0 || p.refused[0].File != "DIR" || p.refused[0].Reasons[0] != "has 9 definitions, expected at most 3: 6 are not read" {
		t.Errorf("refused: %+v", p.refused)
	}
	if l := lookFor(dir, 9, nil, nil); len(l.entries) != 10 || len(l.excess) > 0 {
		t.Errorf("as many as are allowed: %d files, %q", len(l.entries), l.excess)
	}
}

// TestManyRefusedFiles: what is wrong is kept of a bounded number of files.
func TestManyRefusedFiles(t *testing.T) {
	t.Parallel()
	const n = 2 * mostRefused
	var many complaints
	for i := range 60 {
		many.Add(complaint{line: i + 1, text: strings.Repeat("x", 900)})
	}
	s := state{dir: "DIR", files: make(map[string]file)}
	contents := make(map[string]content)
	for i := range n {
		name := fmt.Sprintf("f%05d.yaml", i)
		s.files[name] = file{}
		contents[name] = content{stamp: stamp{size: 1}, digest: name, problems: many}
	}
	old, _ := fakeParse("old.yaml", []byte("job old"), nil)
	s.files["zz.yaml"] = file{docs: old, problems: about("is empty")}
	s.files["old.wasm"] = file{digest: "d", read: stamp{size: 1}}
	s.jobs = map[string]*binding{"old": {doc: old[0], digest: "d", job: engine.Job{File: "zz.yaml", ModuleFile: "old.wasm"}}}
	s, _ = s.read(contents, time.Now(), 0)
	bytes := 0
	for _, f := range s.files {
		for _, c := range f.problems.Kept() {
			bytes += len(c.text)
		}
	}
	if most := mostRefused*words.MaxReasons + n*900; bytes > most {
		t.Errorf("%d bytes are kept of what is wrong, expected at most %d", bytes, most)
	}
	s, p := s.decide(map[string]outcome{"d": {compiled: &fakeModule{l: newFakeLoader(t), text: "old."}}}, time.Now())
	if len(p.refused) != mostRefused+1 || len(s.refused) != len(p.refused) || len(p.complaints) != len(p.refused) {
		t.Fatalf("%d refusals, expected %d", len(p.refused), mostRefused+1)
	}
	if r := p.refused[0]; r.File != "DIR" || r.Reasons[0] != "1001 more files in it are refused, expected at most 1000: why is kept of these only" {
		t.Errorf("the first refusal is %+v", r)
	}
	if r := p.refused[len(p.refused)-1]; r.File != "zz.yaml" || !r.Kept {
		t.Errorf("the refusal of a file in force is left out; the last is %+v", r)
	}
}

// TestNamesOfOneFile: a file with many names is read once in a look, and defines the jobs of many only once.
func TestNamesOfOneFile(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) { o.Rescan = 20 * time.Millisecond })
	link := func(old string, names ...string) {
		t.Helper()
		for _, name := range names {
			r.must(os.Link(r.path(old), r.path(name)))
		}
	}
	r.must(os.MkdirAll(r.path(".src"), 0o755))
	put(t, r.path(".src"), "bad", "!bad")
	put(t, r.path(".src"), "many", "job x one.wasm\njob y one.wasm")
	link(".src/bad", "b0.yaml", "b1.yaml", "b2.yaml", "b3.yaml")
	bad := func(n int) string { return fmt.Sprintf("refused b%d.yaml: line 1: !bad", n) }
	r.await(bad(0), bad(1), bad(2), bad(3))
	if n := r.parsed.Load(); n != 1 {
		t.Errorf("one file is read %d times", n)
	}
	r.write("one.wasm: one.")
	link(".src/many", "m0.yaml")
	r.await(`x "" m0.yaml one.wasm @one.`, `y "" m0.yaml one.wasm @one.`, bad(0), bad(1), bad(2), bad(3))
	link(".src/many", "m1.yaml")
	r.await(`x "" m0.yaml one.wasm @one.`, `y "" m0.yaml one.wasm @one.`, bad(0), bad(1), bad(2), bad(3),
		"refused m1.yaml: is another name of the file m0.yaml, which defines its jobs; expected a file of its own")
	// When the first name goes, the other one counts.
	r.must(os.Remove(r.path("m0.yaml")))
	r.await(`x "" m1.yaml one.wasm @one.`, `y "" m1.yaml one.wasm @one.`, bad(0), bad(1), bad(2), bad(3))
}

// TestOneDefinitionForManyJobs: a small definition without a name is a job of each of its file's names.
func TestOneDefinitionForManyJobs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "a.yaml", "shardingTotalCount: 1\n")
	if err := os.Link(filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	s, names, _ := state{}.look(lookAt(dir), time.Now(), 0, true)
	r := newReading(dir, s.files, parseWithin(nil))
	for _, name := range names {
		r.read(name)
	}
	for _, name := range []string{"a", "b"} {
		if docs := r.contents[name+".yaml"].docs; len(docs) != 1 || docs[0].Configuration.JobName != name {
			t.Errorf("%s.yaml defines %+v", name, docs)
		}
	}
}

// TestTooManyJobsInDefinitions: all definitions together define a bounded number of jobs.
func TestTooManyJobsInDefinitions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "a.yaml", "job a\njob b")
	put(t, dir, "b.yaml", "job c")
	put(t, dir, "c.yaml", "job d")
	s, _, _ := state{}.look(lookAt(dir), time.Now(), 0, true)
	r := newReading(dir, s.files, fakeParse)
	r.jobs = mostJobs - 1
	for name, want := range map[string]bool{"a.yaml": false, "b.yaml": true} {
		if r.read(name); (len(r.contents[name].docs) > 0) != want {
			t.Errorf("%s is taken: %t", name, !want)
		}
	}
	parsed := 0
	r.parse = func(string, []byte, []*definition.Shared) ([]definition.Definition, complaints) {
		parsed++
		return nil, complaints{}
	}
	r.jobs = mostJobs
	r.read("c.yaml")
	if c := r.contents["c.yaml"]; parsed > 0 || c.problems.Len() != 1 || c.digest != "" {
		t.Errorf("a file that there is no room for is parsed, or forgotten: %+v", c)
	}
}

// TestOrder: what costs little is read before what costs much, whosever folder that is in, and defaults before the
// definitions that they are for.
func TestOrder(t *testing.T) {
	t.Parallel()
	seen := func(size int64) file { return file{stamp: stamp{size: size}} }
	s := state{files: map[string]file{
		"a.yaml": seen(100), "m.wasm": seen(4 << 20), "b/defaults.yaml": seen(50), "b/b.yaml": seen(200), "b/x/defaults.yaml": seen(1 << 20), "b/x/c.yaml": seen(10),
		"e/defaults.yaml": seen(1 << 20), "f/defaults.yaml": seen(1 << 20), "f/old.yaml": {stamp: stamp{size: 900}, docs: make([]definition.Definition, 1)}, "cheap.calendar.yaml": seen(90), "cheap.ics": seen(90), "long.ics": seen(1 << 20),
	}}
	want := "f/defaults.yaml f/old.yaml cheap.calendar.yaml a.yaml b/defaults.yaml b/b.yaml m.wasm cheap.ics e/defaults.yaml b/x/defaults.yaml b/x/c.yaml long.ics"
	for range 20 {
		names := slices.Collect(maps.Keys(s.files))
		s.order(names)
		if got := strings.Join(names, " "); got != want {
			t.Fatalf("found %s\nexpected %s", got, want)
		}
	}
}

// TestCostlyFilesComeLast: what is small counts before what takes long is read, also if it comes later; a look
// that takes long is cut, and goes on where it was.
func TestCostlyFilesComeLast(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 20 {
		put(t, dir, fmt.Sprintf("a%02d.yaml", i), "!"+strings.Repeat("x", 1000))
	}
	put(t, dir, "z.yaml", "!z")
	old := time.Now().Add(-time.Minute)
	for name := range lookAt(dir).entries {
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	var clock, costly atomic.Int64
	var before atomic.Int64
	c, err := newCatalog(Options{Dir: dir, Rescan: time.Hour, Debounce: time.Millisecond}, newFakeLoader(t), func(file string, data []byte, shared []*definition.Shared) ([]definition.Definition, complaints) {
		if strings.HasPrefix(file, "a") {
			costly.Add(1)
			clock.Add(int64(lookTime) / 2)
		}
		return fakeParse(file, data, shared)
	})
	if err != nil {
		t.Fatal(err)
	}
	c.now = func() time.Time { return time.Unix(0, clock.Load()) }
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	first := make(map[string]int64) // costly files that were read when a file counted
	if err := c.Run(ctx, func(_ []engine.Job, refused []engine.Refusal) {
		for _, r := range refused {
			if _, known := first[r.File]; !known {
				first[r.File] = costly.Load()
			}
		}
		if len(first) > 0 && before.CompareAndSwap(0, 1) {
			put(t, dir, "n.yaml", "!n")
			if err := os.Chtimes(filepath.Join(dir, "n.yaml"), old, old); err != nil {
				t.Error(err)
			}
		}
		if len(first) == 22 {
			stop()
		}
	}); err != nil {
		t.Fatal(err)
	}
	if z, n := first["z.yaml"], first["n.yaml"]; z > 4 || n > z+4 {
		t.Errorf("z counted after %d costly files, and n after %d", z, n)
	}
	if n := costly.Load(); n != 20 {
		t.Errorf("20 costly files were read %d times", n)
	}
}
