package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/sdktest"
)

// tree makes a source tree with everything that may trip a walk.
func tree(t *testing.T, r *rand.Rand) string {
	t.Helper()
	root := t.TempDir()
	write := func(name string, lines int, tail string) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(strings.Repeat("x\n", lines)+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, pkg := range []string{"archive", "bufio", "cmd", "Go", "go", "go.mod.d", "go-x", "internal", "ünicode", "zip"} {
		for i := range 5 + r.IntN(20) {
			dir := pkg
			for range r.IntN(4) {
				dir += "/" + []string{"a", "a-b", "ab", "testdata", "_x", ".hidden", "a.go"}[r.IntN(7)]
			}
			write(fmt.Sprintf("%s/f%d.go", dir, i), r.IntN(300), []string{"", "no newline"}[r.IntN(2)])
		}
		write(pkg+"/README.md", 50, "")
		write(pkg+"/x.go.txt", 50, "")
	}
	write("all.go", 7, "")
	write("m.go", 8, "")
	write("zz.go", 9, "")
	write("big/big.go", 20_000, "")
	write("big/empty.go", 0, "")
	write("cmd/.go", 3, "")
	if err := os.MkdirAll(filepath.Join(root, "none/at/all"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "big/big.go"), filepath.Join(root, "cmd/link.go")); err != nil {
		t.Log("no symbolic links here:", err)
	} else if err := os.Symlink(root, filepath.Join(root, "cmd/loop")); err != nil {
		t.Error(err)
	}
	return root
}

// counted is lines and files by package.
type counted map[string]total

// independent counts in its own way.
func independent(t *testing.T, root string) counted {
	t.Helper()
	sums := make(counted)
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || filepath.Ext(name) != ".go" {
			return err
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		pkg := "."
		if parts := strings.Split(filepath.ToSlash(rel), "/"); len(parts) > 1 {
			pkg = parts[0]
		}
		s := sums[pkg]
		sums[pkg] = total{pkg, s.files + 1, s.lines + int64(len(bytes.Split(b, []byte("\n")))-1)}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

// reported reads the sums from the log, and checks them against the sum that
// the pass gives. A pass whose last offset was refused is reported again by
// the next run; the last report counts.
func reported(t *testing.T, host *sdktest.Host, into counted) {
	t.Helper()
	var last, report []total
	for _, l := range host.Logs() {
		n, _ := strconv.ParseInt(l.Attr("lines"), 10, 64)
		f, _ := strconv.ParseInt(l.Attr("files"), 10, 64)
		if pkg, ok := strings.CutPrefix(l.Message, "package "); ok {
			report = append(report, total{pkg, f, n})
		}
		if l.Message != "pass ends" {
			continue
		}
		var files, lines int64
		for _, p := range report {
			files, lines = files+p.files, lines+p.lines
		}
		if l.Level != slog.LevelInfo {
			t.Errorf("the end of the pass has level %s", l.Level)
		}
		room := 0
		for _, p := range report {
			room += len(p.name) + 20
		}
		// Without room for all packages in the offset it is not known.
		if got, want := l.Attr("largest"), largestOf(report); len(report) > 1 && (got != "" || room < abi.MaxOffset/2) && got != want {
			t.Errorf("the largest are %q, want %q", got, want)
		}
		if f != files || n != lines {
			t.Errorf("sum is %d files, %d lines; of its packages %d, %d", f, n, files, lines)
		}
		last, report = report, nil
	}
	for _, p := range last {
		if _, twice := into[p.name]; twice {
			t.Errorf("package %s is reported twice", p.name)
		}
		into[p.name] = p
	}
}

// largestOf is what the log has to say of the packages that it told of.
func largestOf(list []total) string {
	var texts []string
	for left := slices.Clone(list); len(left) > 0 && len(texts) < 3; {
		at := 0
		for i, t := range left {
			if t.lines > left[at].lines || t.lines == left[at].lines && t.name < left[at].name {
				at = i
			}
		}
		texts = append(texts, fmt.Sprintf("%s %d", left[at].name, left[at].lines))
		left = slices.Delete(left, at, at+1)
	}
	return strings.Join(texts, ", ")
}

func host(root string, item, items, batch int) *sdktest.Host {
	return &sdktest.Host{LogLevel: slog.LevelDebug, Context: sdktest.Context{
		JobParameter: root, ShardingItem: item, ShardingTotalCount: items, FetchDataCount: batch,
	}}
}

func run(h *sdktest.Host, j *job) abi.Result { return sdktest.Dataflow(h, j.fetch, j.process) }

func TestCount(t *testing.T) {
	t.Parallel()
	root := tree(t, rand.New(rand.NewPCG(1, 2)))
	want := independent(t, root)
	for _, items := range []int{1, 4, 50} {
		for _, batch := range []int{0, 1, 7, 1000} {
			got := make(counted)
			for item := range items {
				h := host(root, item, items, batch)
				if r := run(h, &job{}); r.Outcome != abi.OutcomeOK {
					t.Fatalf("%s %s", r.Outcome, r.Message)
				}
				reported(t, h, got)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%d items, %d files per fetch: got %v\nwant %v", items, batch, got, want)
			}
		}
	}
}

// TestInterrupted stops passes at random batches in every way there is: told
// to, by a crash, and by a crash after which older offsets come back.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 3))
		root := tree(t, r)
		want, got := independent(t, root), make(counted)
		items, interruptions := 1+r.IntN(5), 0
		for item := range items {
			h := host(root, item, items, 1+r.IntN(9))
			var durable [][]byte
			j := &job{}
			for ended := false; !ended; {
				left := 1 + r.IntN(8) // batches until something happens
				lost := r.IntN(2) == 0
				h.OnCommit = func(offset []byte) abi.Code {
					left--
					if left == 0 && lost {
						return abi.ErrConflict
					}
					durable = append(durable, offset)
					if left == 0 {
						h.OnCancelled = func(int) abi.Cancel { return abi.CancelStop }
					}
					return abi.OK
				}
				h.OnCancelled = nil
				result := run(h, j)
				ended = result.Outcome == abi.OutcomeOK
				if ended {
					break
				}
				interruptions++
				if result.Outcome != abi.OutcomeCancelled {
					t.Fatalf("seed %d: %s %s", seed, result.Outcome, result.Message)
				}
				if r.IntN(3) > 0 {
					j = &job{} // another guest goes on
				}
				if len(durable) > 0 && r.IntN(3) == 0 {
					durable = durable[:max(1, len(durable)-r.IntN(4))]
					h.Offset = durable[len(durable)-1]
					j = &job{}
				}
			}
			reported(t, h, got)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("seed %d: got %v\nwant %v", seed, got, want)
		}
		if interruptions == 0 {
			t.Errorf("seed %d: nothing was interrupted", seed)
		}
	}
}

// TestPasses: what a fire does after a pass has ended, and with an offset
// that is not of its job.
func TestPasses(t *testing.T) {
	t.Parallel()
	root := tree(t, rand.New(rand.NewPCG(1, 2)))
	h := host(root, 0, 1, 10)
	begun := func() (n int) {
		for _, l := range h.Logs() {
			if l.Message == "pass begins" {
				n++
			}
		}
		return n
	}
	for pass := 1; pass <= 2; pass++ {
		if r := run(h, &job{}); r.Outcome != abi.OutcomeOK || begun() != pass {
			t.Fatalf("%s %s, %d passes have begun, want %d", r.Outcome, r.Message, begun(), pass)
		}
	}
	stop := func() {
		t.Helper()
		h.Once = true
		if r := run(h, &job{}); r.Outcome != abi.OutcomeOK || r.Records != 10 {
			t.Fatalf("%s %s", r.Outcome, r.Message)
		}
		h.Once = false
	}
	stop()
	for i, change := range []func(){
		func() { h.Context.ShardingTotalCount = 2 },
		func() { h.Context.JobParameter = tree(t, rand.New(rand.NewPCG(3, 4))) },
		func() { h.Offset = []byte{9, 9} },
		func() { h.Offset = h.Offset[:len(h.Offset)-1] },
	} {
		stop()
		passes := begun()
		change()
		if r := run(h, &job{}); r.Outcome != abi.OutcomeOK || begun() != passes+1 {
			t.Errorf("change %d: %s %s, %d passes have begun, want %d", i, r.Outcome, r.Message, begun(), passes+1)
		}
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	root := tree(t, rand.New(rand.NewPCG(1, 2)))
	h := host(root, 0, 1, 10)
	run(h, &job{})
	var files int64
	for _, p := range independent(t, root) {
		files += p.files
	}
	p := h.Progress()
	if len(p) < 5 || p[len(p)-1] != (sdktest.Progress{Done: files, Total: files}) || p[0] != (sdktest.Progress{Done: 10, Total: files}) {
		t.Errorf("progress %v, want up to %d", p, files)
	}
}

// TestManyPackages: an offset has 4 KiB, a tree may have more packages.
func TestManyPackages(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for i := range 500 {
		dir := filepath.Join(root, fmt.Sprintf("a-package-with-a-rather-long-name-%04d", i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "x.go"), bytes.Repeat([]byte("\n"), i), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h, got := host(root, 0, 1, 50), make(counted)
	if r := run(h, &job{}); r.Outcome != abi.OutcomeOK {
		t.Fatal(r.Message)
	}
	reported(t, h, got)
	if want := independent(t, root); !reflect.DeepEqual(got, want) {
		t.Errorf("got %d packages, want %d", len(got), len(want))
	}
}

func TestTreeTrouble(t *testing.T) {
	t.Parallel()
	h := host(filepath.Join(t.TempDir(), "missing"), 0, 1, 10)
	if r := run(h, &job{}); r.Outcome != abi.OutcomeFail || !strings.Contains(r.Message, "mount one at ") {
		t.Errorf("no tree: %s %q", r.Outcome, r.Message)
	}

	root := t.TempDir()
	for _, name := range []string{"a.go", "b.go", "c.go"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte("\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h, j := host(root, 0, 1, 10), &job{}
	vanish := true
	process := func(ctx context.Context, sc sdk.ShardingContext, batch []file) error {
		if vanish {
			vanish = false
			if err := os.Remove(filepath.Join(root, "b.go")); err != nil {
				return err
			}
		}
		return j.process(ctx, sc, batch)
	}
	if r := sdktest.Dataflow(h, j.fetch, process); r.Outcome != abi.OutcomeRetry {
		t.Errorf("file has gone: %s %q", r.Outcome, r.Message)
	}
	if r := sdktest.Dataflow(h, j.fetch, process); r.Outcome != abi.OutcomeOK || r.Records != 2 {
		t.Errorf("next attempt: %+v", r)
	}
}

// TestWalkResumes: a walk opened behind any file lists what comes after it.
func TestWalkResumes(t *testing.T) {
	t.Parallel()
	root := tree(t, rand.New(rand.NewPCG(5, 6)))
	list := func(last string) []string {
		w := open(root, last, func(string) bool { return true })
		var names []string
		for {
			name, err := w.next()
			if err != nil {
				return names
			}
			names = append(names, name)
		}
	}
	all := list("")
	for i, name := range all {
		if got := list(name); !slices.Equal(got, all[i+1:]) {
			t.Fatalf("behind %s: %v\nwant %v", name, got, all[i+1:])
		}
	}
	// A place that is gone: the walk goes on behind where it was.
	for _, name := range all {
		dir, file := filepath.Split(name)
		if got := list(dir + strings.TrimSuffix(file, ".go") + ".gn"); len(got) > 0 && got[0] != name {
			t.Errorf("before %s: goes on with %s", name, got[0])
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add((&pass{root: "/src", items: 4, last: "bufio/scan.go", done: 3, files: 9, lines: 1000, packages: []total{{"archive", 1, 2}, {"bufio", 2, 998}}}).encode())
	f.Add([]byte{layout})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 || len(b) > abi.MaxOffset {
			return
		}
		p, err := decode(b)
		if err != nil {
			return
		}
		again, err := decode(p.encode())
		if err != nil || !reflect.DeepEqual(p, again) {
			t.Errorf("%+v becomes %+v, %v", p, again, err)
		}
	})
}
