package e2e_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

const (
	beforeHuge = 120 // files of the package with the huge one that come before it
	batch      = 10
	holes      = 1 << 40
)

// sourceTree makes packages of small files. One of the packages has a file in
// its middle that is huge, without taking room on the disk: whoever counts its
// lines is busy with it until it is killed.
func sourceTree(t *testing.T) (root, huge string) {
	t.Helper()
	root = t.TempDir()
	write := func(name string, lines int) {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(strings.Repeat("x\n", lines)+"// no newline at the end"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for pkg := range 40 {
		for n := range 50 {
			write(fmt.Sprintf("pkg%02d/sub/f%03d.go", pkg, n), 1+(pkg*53+n*17)%60)
		}
		write(fmt.Sprintf("pkg%02d/README.md", pkg), 1000)
	}
	for n := range beforeHuge {
		write(fmt.Sprintf("aaa/a%03d.go", n), n)
	}
	for n := range 77 {
		write(fmt.Sprintf("aaa/z%03d.go", n), n)
	}
	huge = filepath.Join(root, "aaa", "huge.go")
	write("aaa/huge.go", 3)
	if err := os.Truncate(huge, holes); err != nil {
		t.Fatal(err)
	}
	return root, huge
}

// newlines counts those of all *.go files, as find | xargs cat | wc -l does,
// by package.
func newlines(t *testing.T, root string) (lines, files map[string]int) {
	t.Helper()
	lines, files = make(map[string]int), make(map[string]int)
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !strings.HasSuffix(name, ".go") {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		pkg, _, _ := strings.Cut(filepath.ToSlash(rel), "/")
		lines[pkg] += bytes.Count(data, []byte{'\n'})
		files[pkg]++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines, files
}

// TestCodestatsGoesOn kills the host in the middle of a count. The next one
// goes on where the offset says, and the sums are those of an undisturbed count.
func TestCodestatsGoesOn(t *testing.T) {
	t.Parallel()
	module := example(t, "codestats")
	p := newPlace(t)
	root, huge := sourceTree(t)
	p.drop("codestats.wasm", read(t, module))
	p.define("codestats", "shardingTotalCount: 3", "type: DATAFLOW", "streamingProcess: true",
		fmt.Sprint("fetchDataCount: ", batch), "failover: true", "timeout: 10m")
	p.guestJob("clock", everySecond, "shardingTotalCount: 1")
	flags := []string{"--guest-log-level", "debug", "--data", p.path("data"), "--mount", "codestats=" + root + ":/src"}

	h := p.start(flags...)
	h.of("codestats", 0, owned())
	p.must("job", "run", "codestats")
	fire := h.of("codestats", 0, kind(event.FireStarted))
	// The item with the huge file is the one that does not end.
	ended := make(map[int]bool)
	at := fire.at
	for len(ended) < 2 {
		e := h.of("codestats", at, kind(event.ItemCompleted))
		if e.Outcome != abi.OutcomeOK {
			t.Fatalf("item %d: %s %s", *e.Item, e.Outcome, e.Reason)
		}
		ended[*e.Item], at = true, e.at+1
	}
	stuck := 3 - sum(ended)
	// What it has counted is durable within a second or so; other jobs are
	// not disturbed meanwhile. There is no event of a saved offset.
	for range 4 {
		at = h.fires("clock", at).at + 1
	}
	var before engine.ItemStatus
	for _, i := range p.job("codestats").Items {
		if i.Item == stuck {
			before = i
		}
	}
	if before.Done != beforeHuge || !before.Running || before.Total <= beforeHuge {
		t.Fatalf("item %d is stuck at the huge file, status shows %+v", stuck, before)
	}
	h.kill()
	first := h.guestLines("codestats")

	if err := os.WriteFile(huge, []byte("now\nit\nis\nsmall\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	h = p.start(flags...)
	again := h.of("codestats", 0, kind(event.ItemEnded))
	if *again.Item != stuck || again.Source != abi.SourceFailover || again.Outcome != abi.OutcomeOK || !ofFire(fire).ok(again.Event) {
		t.Errorf("after the kill: %+v", again.Event)
	}
	if want := before.Total - beforeHuge; again.Records != want {
		t.Errorf("%d files were counted after the kill, want the %d that were left of %d", again.Records, want, before.Total)
	}
	h.of("codestats", again.at, kind(event.ItemCompleted), item(stuck))
	goesOn := h.line(0, `"pass goes on"`)
	if goesOn.Attrs["behind"] != fmt.Sprintf("aaa/a%03d.go", beforeHuge-1) || goesOn.Attrs["files"] != strconv.Itoa(beforeHuge) {
		t.Errorf("went on with %v", goesOn.Attrs)
	}
	h.stop()
	if n := h.count("codestats", kind(event.ItemStarted)); n != 1 {
		t.Errorf("%d items were run after the kill, want 1: the others were complete", n)
	}

	wantLines, wantFiles := newlines(t, root)
	totals := make(map[string]int)
	for _, l := range append(first, h.guestLines("codestats")...) {
		lines, files := attr(t, l, "lines"), attr(t, l, "files")
		if l.Message == "pass ends" {
			totals["lines"] += lines
			totals["files"] += files
			totals["passes"]++
		}
		pkg, ok := strings.CutPrefix(l.Message, "package ")
		if !ok {
			continue
		}
		if lines != wantLines[pkg] || files != wantFiles[pkg] {
			t.Errorf("package %s: %d lines in %d files, want %d in %d", pkg, lines, files, wantLines[pkg], wantFiles[pkg])
		}
		delete(wantLines, pkg) // none is told twice
		delete(wantFiles, pkg)
	}
	if len(wantLines) != 0 {
		t.Errorf("nothing was said of %v", wantLines)
	}
	wantLines, wantFiles = newlines(t, root)
	if totals["passes"] != 3 || totals["lines"] != total(wantLines) || totals["files"] != total(wantFiles) {
		t.Errorf("in all %v, want 3 passes over %d lines in %d files", totals, total(wantLines), total(wantFiles))
	}
}

func sum(set map[int]bool) (n int) {
	for i := range set {
		n += i
	}
	return n
}

func total(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

func attr(t *testing.T, l logLine, key string) int {
	t.Helper()
	text, ok := l.Attrs[key]
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Errorf("%s: %v", l.raw, err)
	}
	return n
}
