package jsonl

import (
	"context"
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

// halted is one of which nothing takes lines but the test.
func halted(t *testing.T, maxBytes int64) *Whole {
	t.Helper()
	file, err := openWriter("file", filepath.Join(t.TempDir(), "guests.jsonl"), maxBytes, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.close() })
	return newWhole(file)
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
		w.Add(t.Context(), line("j", "j/1/0", n, 150))
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
		w.Add(t.Context(), line("noisy", "noisy/1/0", n, 150))
		if n%100 == 0 {
			w.Add(t.Context(), line("quiet", "quiet/1/0", n/100, 10))
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
		w := halted(t, 64<<20)
		const all = 5000
		began := time.Now()
		for n := range all { // nothing takes what is written
			w.Add(t.Context(), line("j", "j/1/0", n, 1000))
		}
		if took := time.Since(began); took != wholePatience {
			t.Errorf("a guest waited %s", took)
		}
		began = time.Now()
		w.Add(t.Context(), line("other", "other/1/0", 0, 1000))
		if took := time.Since(began); took != 0 {
			t.Errorf("another one waited %s", took)
		}
		if n := len(w.runs["j/1/0"].text); n > wholeBuffer {
			t.Errorf("%d bytes wait", n)
		}
		w.drain(false)
		w.Add(t.Context(), line("j", "j/1/0", all, 1000))
		for n := range all { // until it is full again
			w.Add(t.Context(), line("j", "j/1/0", all+1+n, 1000))
		}
		if took := time.Since(began); took != wholePatience {
			t.Errorf("when the disk had gone on a guest waited %s", took)
		}
		w.drain(false)
		w.Ended(&event.Event{Kind: event.ItemEnded, RunID: "j/1/0"})
		w.drain(false)
		if there := account(t, linesIn(t, w.Path())["j/1/0"], 2*all+1); there < 400 || there > 520 {
			t.Errorf("%d lines", there)
		}
		if len(w.runs) != 0 {
			t.Errorf("%d runs are kept", len(w.runs))
		}
	})
}

// TestWhole_ended: a guest that waits for the disk goes on at once when its run is to end, and so do its
// further lines. They are counted.
func TestWhole_ended(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := halted(t, 64<<20)
		ctx, cancel := context.WithTimeout(t.Context(), wholePatience/10)
		defer cancel()
		began := time.Now()
		const all = 1000
		for n := range all {
			w.Add(ctx, line("j", "j/1/0", n, 1000))
		}
		if took := time.Since(began); took != wholePatience/10 {
			t.Errorf("a guest that is to end waited %s", took)
		}
		w.drain(true)
		if there := account(t, linesIn(t, w.Path())["j/1/0"], all); w.Lost() != int64(all-there) {
			t.Errorf("%d lines are there, %d are lost", there, w.Lost())
		}
	})
}

// TestWhole_hangs: while the disk hangs runs end and others begin. What waits is bounded, and the
// runs with missing lines are; guests wait a second once. Each line is there, or counted, when the disk goes on.
func TestWhole_hangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := halted(t, 128<<20)
		began, all := time.Now(), 0
		add := func(run, bytes int) {
			w.Add(t.Context(), line(fmt.Sprint("j", run), fmt.Sprintf("j%d/1/0", run), all, bytes))
			all++
		}
		for run := range 300 {
			for range 20 {
				add(run, 8000)
			}
		}
		for run := range wholeRuns + 500 {
			add(1000+run, 10)
		}
		if took := time.Since(began); took != wholePatience {
			t.Errorf("guests waited %s", took)
		}
		waits := 0
		for _, r := range w.runs {
			waits += len(r.text)
		}
		if waits > wholeWaiting || waits < wholeWaiting-wholeBuffer || len(w.runs) > wholeRuns+1 {
			t.Errorf("%d bytes of %d runs wait", waits, len(w.runs))
		}
		w.drain(true)
		add(0, 10)
		w.drain(true)
		there, missing := counted(t, w)
		if there+missing != all || w.Lost() != int64(missing) || w.waiting != 0 || len(w.runs) != 0 {
			t.Errorf("%d lines are there, %d are said to be missing, %d are lost, of %d; %d bytes of %d runs wait", there, missing, w.Lost(), all, w.waiting, len(w.runs))
		}
	})
}

// counted are the lines that are there, and those that are said to be missing.
func counted(t *testing.T, w *Whole) (there, missing int) {
	t.Helper()
	for _, lines := range linesIn(t, w.Path()) {
		for _, l := range lines {
			if missing += int(l.Gap); l.Gap == 0 {
				there++
			}
		}
	}
	return there, missing
}

// TestWhole_manyRuns: the lines about what is missing are bounded as well, or a job with many runs would
// drive out with them what others log. What they do not say is said without the names of the runs.
func TestWhole_manyRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, all := halted(t, 4<<20), 0
		add := func(job string, run, bytes int) {
			id := fmt.Sprintf("%s/%d/0", job, run)
			w.Add(t.Context(), line(job, id, all, bytes))
			w.Ended(&event.Event{Kind: event.ItemEnded, RunID: id})
			w.drain(false)
			all++
		}
		for run := range 1000 {
			add("noisy", run, 8000)
		}
		add("quiet", 0, 10)
		said := 0
		for run, lines := range linesIn(t, w.Path()) {
			for _, l := range lines {
				if l.Gap > 0 && run != "" {
					said++
				}
			}
		}
		if there, missing := counted(t, w); said != gapBurst || there+missing != all || w.Lost() != int64(missing) {
			t.Errorf("%d lines are there, %d are said to be missing, of %d; of %d runs", there, missing, all, said)
		}
		time.Sleep(2 * wholePause)
		add("noisy", 0, 8000)
		if there, missing := counted(t, w); there+missing != all {
			t.Errorf("%d lines are there, %d are said to be missing, of %d", there, missing, all)
		}
	})
}

// TestWhole_fullRun: a run of which lines wait keeps them, however many other runs miss some.
func TestWhole_fullRun(t *testing.T) {
	t.Parallel()
	w, all := halted(t, 4<<20), 0
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	add := func(job string, run, bytes int) {
		w.Add(ended, line(job, fmt.Sprintf("%s/%d/0", job, run), all, bytes))
		all++
	}
	for run := range wholeRuns + 200 {
		add("noisy", run, 8000)
		if all%30 == 0 && w.Lost() == 0 {
			w.drain(false)
		}
	}
	for range 40 {
		add("full", 0, 8000)
	}
	if r := w.runs["full/0/0"]; r == nil || r.missing == 0 || len(w.runs) <= wholeRuns {
		t.Fatalf("of %d runs one has %+v", len(w.runs), r)
	}
	w.drain(true)
	add("quiet", 0, 10)
	w.drain(true)
	if there, missing := counted(t, w); there+missing != all {
		t.Errorf("%d lines are there, %d are said to be missing, of %d", there, missing, all)
	}
}

// TestWhole_afterGap: when a job may write again its lines are written at once, with how many are missing.
func TestWhole_afterGap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, all := openWhole(t, 4<<20), 0
		add := func() {
			w.Add(t.Context(), line("j", "j/1/0", all, 8000))
			all++
		}
		for w.Lost() == 0 {
			add()
			synctest.Wait()
		}
		time.Sleep(wholePause / 2) // the next look at all runs is later
		w.Add(t.Context(), line("j", "j/1/0", all, 10))
		all++
		synctest.Wait()
		if lines := linesIn(t, w.Path())["j/1/0"]; account(t, lines, all) != all-1 {
			t.Errorf("of %d lines there are %d, with the gap", all, len(lines))
		}
		if err := w.Close(); err != nil {
			t.Error(err)
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
	w.Add(t.Context(), line("j", "j/1/0", 0, 10))
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
