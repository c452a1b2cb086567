package lines

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

func openWhole(t *testing.T, maxBytes int64) *Whole {
	t.Helper()
	w, err := OpenWhole(filepath.Join(t.TempDir(), "guests.jsonl"), maxBytes, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// linesIn are the lines of the file and its older ones, by run; "" for those of no run.
func linesIn(t *testing.T, path string) map[string][]history.Line {
	t.Helper()
	all := make(map[string][]history.Line)
	for r, err := range Records(path) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Line != nil {
			all[r.Line.RunID] = append(all[r.Line.RunID], *r.Line)
		}
	}
	return all
}

func line(job, run string, n, bytes int) history.Line {
	return history.Line{Time: time.UnixMilli(int64(n)), Job: job, RunID: run, Host: "h", Message: fmt.Sprintf("%08d %s", n, strings.Repeat("x", bytes))}
}

// account checks that a run's lines are in order, and that each gap has as many as are missing. It
// returns how many are there.
func account(t *testing.T, lines []history.Line, all int) (there int) {
	t.Helper()
	next := 0
	for _, l := range lines {
		if l.Gap > 0 {
			next += int(l.Gap)
			if !strings.Contains(l.Message, "lines are missing here") || l.Attrs[1] != strconv.FormatInt(l.Gap, 10) {
				t.Errorf("a gap: %+v", l)
			}
			continue
		}
		if n, err := strconv.Atoi(l.Message[:8]); err != nil || n != next {
			t.Fatalf("line %q, want %d", l.Message[:8], next)
		}
		next++
		there++
	}
	if next != all {
		t.Errorf("the lines and the gaps are %d, want %d", next, all)
	}
	return there
}

// TestWhole: of a run that logs far more than a history keeps all lines are there, through rotations.
func TestWhole(t *testing.T) {
	t.Parallel()
	w := openWhole(t, 128<<20)
	w.patience = time.Hour // the disk, and what packs the file, may be slow
	const all = 100_000
	for n := range all { // 27 MB
		w.Add(line("j", "j/1/0", n, 150))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if there := account(t, linesIn(t, w.Path())["j/1/0"], all); there != all || w.Lost() != 0 {
		t.Errorf("%d of %d lines, %d lost", there, all, w.Lost())
	}
	if list, err := segments(w.Path()); err != nil || len(list) == 0 {
		t.Errorf("the file was not rotated: %v", err)
	}
}

// TestWhole_shares: a job that logs without end writes its part of the file. What others log is
// there, and the disk has no more than it may.
func TestWhole_shares(t *testing.T) {
	t.Parallel()
	const size, all = 4 << 20, 100_000
	w := openWhole(t, size)
	w.patience = time.Hour
	for n := range all {
		w.Add(line("noisy", "noisy/1/0", n, 150))
		if n%100 == 0 {
			w.Add(line("quiet", "quiet/1/0", n/100, 10))
		}
	}
	w.Ended(&event.Event{Kind: event.ItemEnded, RunID: "noisy/1/0"})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	lines := linesIn(t, w.Path())
	if there := account(t, lines["quiet/1/0"], all/100); there != all/100 {
		t.Errorf("%d of %d lines of the other job", there, all/100)
	}
	there := account(t, lines["noisy/1/0"], all)
	if bytes := there * 250; bytes < size/8 || bytes > size/2 || w.Lost() != int64(all-there) {
		t.Errorf("%d lines of the noisy job, %d are counted as lost, of %d", there, w.Lost(), all)
	}
	if taken := onDisk(t, w.Path()); taken > size {
		t.Errorf("%d bytes on the disk, the cap is %d", taken, size)
	}
}

func onDisk(t *testing.T, path string) (n int64) {
	t.Helper()
	files, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		n += info.Size()
	}
	return n
}

// TestWhole_slow: while the disk takes nothing a guest waits for a second, and its further lines are
// dropped; another run has a buffer of its own. What is missing is said when the disk goes on.
func TestWhole_slow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file, err := openWriter("file", filepath.Join(t.TempDir(), "guests.jsonl"), 64<<20, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		defer file.close()
		w := &Whole{writer: file, size: 64 << 20, patience: wholePatience, news: make(chan struct{}, 1), runs: make(map[string]*wholeRun), jobs: make(map[string]*rate.Limiter)}
		const all = 5000
		began := time.Now()
		for n := range all { // nothing takes what is written
			w.Add(line("j", "j/1/0", n, 1000))
		}
		if took := time.Since(began); took != wholePatience {
			t.Errorf("a guest waited %s", took)
		}
		began = time.Now()
		w.Add(line("other", "other/1/0", 0, 1000))
		if took := time.Since(began); took != 0 {
			t.Errorf("another one waited %s", took)
		}
		if n := len(w.runs["j/1/0"].text); n > wholeBuffer {
			t.Errorf("%d bytes wait", n)
		}
		w.drain(false)
		w.Add(line("j", "j/1/0", all, 1000))
		for n := range all { // until it is full again
			w.Add(line("j", "j/1/0", all+1+n, 1000))
		}
		if took := time.Since(began); took != wholePatience {
			t.Errorf("when the disk had gone on a guest waited %s", took)
		}
		w.drain(false)
		w.Ended(&event.Event{Kind: event.ItemEnded, RunID: "j/1/0"})
		w.drain(false)
		if there := account(t, linesIn(t, file.path)["j/1/0"], 2*all+1); there < 400 || there > 520 {
			t.Errorf("%d lines", there)
		}
		if len(w.runs) != 0 {
			t.Errorf("%d runs are kept", len(w.runs))
		}
	})
}

// TestWhole_unwritable: what could not be written is counted, and said when the disk takes lines again.
func TestWhole_unwritable(t *testing.T) {
	t.Parallel()
	w := openWhole(t, 64<<20)
	good := w.writer.file
	closed, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	w.writer.file = closed
	w.writer.info = nil
	w.write([]byte("lost\n"), 7)
	w.writer.file = good
	w.Add(line("j", "j/1/0", 0, 10))
	if err := w.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		t.Fatal(err)
	}
	lines := linesIn(t, w.Path())
	if host := lines[""]; len(host) != 1 || host[0].Gap != 7 || len(lines["j/1/0"]) != 1 || w.Lost() != 7 {
		t.Errorf("%+v, %d lost", lines, w.Lost())
	}
}

// TestWhole_oneWriter: a file of another host is refused.
func TestWhole_oneWriter(t *testing.T) {
	t.Parallel()
	w := openWhole(t, 64<<20)
	if _, err := OpenWhole(w.Path(), 64<<20, zap.NewNop()); !errors.Is(err, errLocked) {
		t.Errorf("opened again: %v", err)
	}
}
