package jsonl

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func numbered(n int) event.Event {
	item := n % 3
	return event.Event{
		Time:     time.Date(2026, 3, 1, 12, 0, 0, n, time.UTC),
		Kind:     event.ItemEnded,
		Host:     "10.0.0.1@-@7-abc",
		Job:      "cities",
		Instant:  time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		Source:   abi.SourceSchedule,
		Item:     &item,
		Fence:    int64(n),
		Outcome:  abi.OutcomeFail,
		Duration: time.Duration(n) * time.Millisecond,
		Signer:   "release",
		Outside: map[string]abi.OutsideCount{
			"dir": {Calls: 3, Received: 9, Targets: []string{"/in/\u00e4\u2028<b>"}},
			"http": {Calls: 2, Failed: 1, Sent: 7, Refused: map[string]int64{"too large": 1}, Targets: []string{"a:443"}, FailedTargets: []string{"b:80"},
				Times: map[string]abi.TargetTime{"a:443": {Calls: 2, Slowest: 3 * time.Second}}},
		},
		Reason: "line one\nline two " + fmt.Sprint(n),
	}
}

func readEvents(t *testing.T, path string) []event.Event {
	t.Helper()
	var events []event.Event
	for e, err := range Read(path) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

// logged is a log that takes events one by one, and counts what is lost.
type logged struct {
	*Log
	t       *testing.T
	dropped int64
}

func open(t *testing.T, path string, maxBytes int64) *logged {
	t.Helper()
	l, err := OpenLog(path, maxBytes, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return &logged{Log: l, t: t}
}

func (l *logged) AddEvent(e event.Event) {
	l.t.Helper()
	entry, err := history.NewEntry(history.Record{Event: &e})
	if err != nil {
		l.t.Fatal(err)
	}
	_, lost := l.Append([]history.Entry{entry})
	l.dropped += lost
}

func TestEventsComeBackInOrderAcrossReopening(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	var want []event.Event
	for round := range 3 {
		w := open(t, path, 0)
		for n := range 100 {
			e := numbered(round*100 + n)
			want = append(want, e)
			w.AddEvent(e)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if d := w.dropped; d != 0 {
			t.Fatalf("dropped %d events", d)
		}
	}
	if got := readEvents(t, path); !reflect.DeepEqual(got, want) {
		t.Fatalf("read %d events that are not the %d written", len(got), len(want))
	}
}

func TestTheFilesStayWithinTheCap(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	w := open(t, path, MinMaxBytes)
	const total = 20_000
	for n := range total {
		w.AddEvent(numbered(n))
		if n%100 == 0 {
			names, err := filepath.Glob(path + "*")
			if err != nil {
				t.Fatal(err)
			}
			var size int64
			for _, name := range names {
				if info, err := os.Stat(name); err == nil {
					size += info.Size()
				}
			}
			if size > MinMaxBytes {
				t.Fatalf("%d bytes after %d events, cap %d", size, n, MinMaxBytes)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(path + "*")
	if err != nil || len(names) < 2 {
		t.Fatalf("the files are %v, %v", names, err)
	}
	for _, name := range names {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want it to be its owner's alone", name, info.Mode(), err)
		}
	}
	events := readEvents(t, path)
	// What is left is the newest, without a gap, and compressed more than the cap; how much more goes by how the
	// batches fall into the parts.
	line, _ := json.Marshal(numbered(total))
	if least := 3 * MinMaxBytes / 2 / len(line); len(events) < least || len(events) == total {
		t.Fatalf("%d events are left, want at least %d and fewer than %d", len(events), least, total)
	}
	for i, e := range events {
		if want := int64(total - len(events) + i); e.Fence != want {
			t.Fatalf("event %d is number %d, want %d", i, e.Fence, want)
		}
	}
}

// TestSegments: what a crash left between the steps of a rotation, and the older
// file of a version that did not compress, is read once and compressed by the next
// rotation.
func TestSegments(t *testing.T) {
	t.Parallel()
	line := func(n int) string {
		b, err := json.Marshal(numbered(n))
		if err != nil {
			t.Fatal(err)
		}
		return string(b) + "\n"
	}
	path := filepath.Join(t.TempDir(), "events.jsonl")
	files := map[string]string{".1": line(1), ".2": line(2), ".2.gz.tmp": "half", ".x": "not of it", "": line(4)}
	for suffix, text := range files {
		if err := os.WriteFile(path+suffix, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := compress(path + ".2"); err != nil { // and its plain file is still there
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".3", []byte(line(3)), 0o600); err != nil {
		t.Fatal(err)
	}
	reads := func(want ...int64) {
		t.Helper()
		var got []int64
		for _, e := range readEvents(t, path) {
			got = append(got, e.Fence)
		}
		if !slices.Equal(got, want) {
			t.Errorf("read %v, want %v", got, want)
		}
	}
	reads(1, 2, 3, 4)
	w := &writer{path: path, part: 10, cap: 1 << 20, log: zap.NewNop()}
	w.write([]byte(line(5)), 1, time.Time{}, time.Now())
	w.size = 10
	w.write([]byte(line(6)), 1, time.Time{}, time.Now())
	reads(1, 2, 3, 4, 5, 6)
	if err := w.file.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := Segments(path)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for n := range 4 {
		want = append(want, fmt.Sprintf("%s.%d.gz", path, n+1))
	}
	if !slices.Equal(names, want) {
		t.Errorf("segments %v, want %v", names, want)
	}
	for name, base := range map[string]string{want[3]: path, path + ".12": path, path: path, path + ".x": path + ".x", path + ".0.gz": path + ".0.gz", path + ".x.gz": path + ".x.gz"} {
		if got := Base(name); got != base {
			t.Errorf("%s is of %s, want %s", name, got, base)
		}
	}
}

func TestALineCutShortIsRepairedAndPassedOver(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	whole, _ := json.Marshal(numbered(1))
	for name, tail := range map[string]string{
		"short": `{"time":"2026-`,
		"long":  `{"reason":"` + strings.Repeat("x", 10_000),
	} {
		if err := os.WriteFile(path, []byte(string(whole)+"\n"+tail), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := readEvents(t, path); len(got) != 1 {
			t.Fatalf("%s: read %d events before the repair, want 1", name, len(got))
		}
		w := open(t, path, 0)
		w.AddEvent(numbered(2))
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if got := readEvents(t, path); len(got) != 2 || got[1].Fence != 2 {
			t.Fatalf("%s: read %d events after the repair, want numbers 1 and 2", name, len(got))
		}
	}
	// A file that is one line cut short.
	if err := os.WriteFile(path, []byte(strings.Repeat("y", 9000)), 0o600); err != nil {
		t.Fatal(err)
	}
	w := open(t, path, 0)
	w.AddEvent(numbered(3))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := readEvents(t, path); len(got) != 1 || got[0].Fence != 3 {
		t.Fatalf("read %v, want number 3 alone", got)
	}
}

func TestReadNamesALineThatIsNoEventAndGoesOn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	line, _ := json.Marshal(numbered(5))
	if err := os.WriteFile(path, []byte(blank+"nonsense\n"+string(line)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var fences []int64
	var errs []error
	for e, err := range Read(path) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		fences = append(fences, e.Fence)
	}
	if !reflect.DeepEqual(fences, []int64{0, 5}) {
		t.Fatalf("read %v", fences)
	}
	if len(errs) != 1 || !errors.Is(errs[0], ErrLine) || !strings.Contains(errs[0].Error(), "events.jsonl:2:") {
		t.Fatalf("errors %v, want one that names line 2", errs)
	}
	for _, err := range Read(filepath.Join(t.TempDir(), "none")) {
		if !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("a missing file: %v", err)
		}
	}
}

// blank is an event that says nothing.
const blank = "{\"kind\":\"x\"}\n"

func TestAFullDiskIsReportedOnceAndOutlived(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("this system has no /dev/full")
	}
	path := filepath.Join(t.TempDir(), "events.jsonl")
	core, logs := observer.New(zapcore.InfoLevel)
	var lost int64
	w := &writer{path: path, part: 1 << 20, cap: 4 << 20, log: zap.New(core), file: full}
	line := []byte(blank)
	for range 3 {
		lost += w.write(line, 1, time.Time{}, time.Now())
	}
	if got := logs.Len(); got != 1 {
		t.Fatalf("%d log lines for 3 failed writes, want 1", got)
	}
	if d := lost; d != 3 {
		t.Fatalf("dropped %d, want 3", d)
	}
	if trouble := w.problem.Load(); trouble == nil || !errors.Is(trouble.Err, syscall.ENOSPC) || trouble.Since.IsZero() {
		t.Errorf("trouble is %+v, want no space", trouble)
	}
	if w.file != nil {
		if err := w.file.Close(); err != nil {
			t.Fatal(err)
		}
		w.file = nil
	}
	lost += w.write(line, 1, time.Time{}, time.Now()) // opens the file again
	if logs.Len() != 2 || logs.All()[1].ContextMap()["recordsLost"] != int64(3) {
		t.Fatalf("log after the disk has room: %v", logs.All())
	}
	if err := w.file.Close(); err != nil {
		t.Fatal(err)
	}
	if got := readEvents(t, path); len(got) != 1 || w.problem.Load() != nil {
		t.Fatalf("read %d events, want 1; trouble is %+v, want none", len(got), w.problem.Load())
	}
}

// A file that nobody finds any more is no history.
func TestAFileThatIsTakenAwayIsMadeAnew(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "events")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "events.jsonl")
	core, logs := observer.New(zapcore.InfoLevel)
	var lost int64
	w := &writer{path: path, part: 1 << 20, cap: 4 << 20, log: zap.New(core)}
	lost += w.write([]byte(blank), 1, time.Time{}, time.Now())
	if err := os.Rename(path, path+".taken"); err != nil {
		t.Fatal(err)
	}
	lost += w.write([]byte(blank+blank), 2, time.Time{}, time.Now())
	if got := readEvents(t, path); len(got) != 2 || lost != 0 {
		t.Errorf("read %d events of the new file, dropped %d; want 2 and none", len(got), lost)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		lost += w.write([]byte(blank), 1, time.Time{}, time.Now())
	}
	first := w.problem.Load()
	if first == nil || !errors.Is(first.Err, os.ErrNotExist) || lost != 2 || logs.Len() != 1 {
		t.Fatalf("without its directory: trouble %+v, %d dropped, log %v", first, lost, logs.All())
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	lost += w.write([]byte(blank), 1, time.Time{}, time.Now())
	if got := readEvents(t, path); len(got) != 1 || w.problem.Load() != nil || lost != 2 {
		t.Errorf("with its directory back: read %d events, trouble %+v, %d dropped", len(got), w.problem.Load(), lost)
	}
	if err := w.file.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestARotationThatFailsIsOutlived(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	// A directory that is not empty stands where the older file should go.
	if err := os.MkdirAll(filepath.Join(path+".1", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	var lost int64
	w := &writer{path: path, part: 10, cap: 1 << 20, log: zap.NewNop()}
	lost += w.write([]byte(blank+blank), 2, time.Time{}, time.Now())
	lost += w.write([]byte(blank), 1, time.Time{}, time.Now())
	if d := lost; d != 1 {
		t.Fatalf("dropped %d, want 1", d)
	}
	if err := os.RemoveAll(path + ".1"); err != nil {
		t.Fatal(err)
	}
	lost += w.write([]byte(blank), 1, time.Time{}, time.Now())
	if err := w.file.Close(); err != nil {
		t.Fatal(err)
	}
	if got := readEvents(t, path); len(got) != 3 || lost != 1 {
		t.Fatalf("read %d events, dropped %d", len(got), lost)
	}
}

func TestAnEventThatIsTooLongIsDropped(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	w := open(t, path, MinMaxBytes)
	long := numbered(1)
	long.Reason = strings.Repeat("x", MinMaxBytes/4)
	w.AddEvent(long)
	w.AddEvent(numbered(2))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := readEvents(t, path); len(got) != 1 || got[0].Fence != 2 || w.dropped != 1 {
		t.Fatalf("read %d events, dropped %d", len(got), w.dropped)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, o := range map[string]struct {
		path string
		most int64
	}{
		"tiny cap":        {filepath.Join(dir, "a"), 10},
		"no directory":    {filepath.Join(dir, "no", "a"), 0},
		"a directory":     {dir, 0},
		"not a real file": {os.DevNull, 0},
	} {
		if w, err := OpenLog(o.path, o.most, nil); err == nil {
			_ = w.Close()
			t.Errorf("%s: no error", name)
		}
	}
}

// TestOneWriter: a file that another host writes is refused and left as it is, also
// after it was rotated; it is free when that host has closed it.
func TestOneWriter(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "h.jsonl")
	first := open(t, path, MinMaxBytes)
	refused := func() {
		t.Helper()
		w, err := OpenLog(path, 0, nil)
		if err == nil {
			t.Fatal(errors.Join(errors.New("two hosts write one file"), w.Close()))
		}
		if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "another host writes") {
			t.Errorf("error %q", err)
		}
	}
	refused()
	for n := range 200 { // more than its part of the cap
		first.AddEvent(numbered(n))
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + ".1.gz"); err != nil {
		t.Fatal(err)
	}
	second := open(t, path, MinMaxBytes)
	refused()
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLog_pieces: what Append says it has written stands in the files there, whatever the batch, and is read on
// from behind each record.
func TestLog_pieces(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "h.jsonl")
	if list, unread, err := Files(path); len(list) > 0 || unread != nil || err != nil {
		t.Errorf("files before there is one: %v, %v, %v", list, unread, err)
	}
	l, err := OpenLog(path, 4<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	var all []history.Entry
	var pieces []Piece
	for batch := range 6 {
		var list []history.Entry
		for n := range 200 {
			entry, err := history.NewEntry(history.Record{Event: &event.Event{Time: time.UnixMilli(int64(1000*batch + n)), Kind: event.JobError, Reason: strings.Repeat("x", 2000)}})
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, entry)
		}
		written, lost := l.Append(list)
		if lost != 0 {
			t.Fatalf("%d records are lost", lost)
		}
		all, pieces = append(all, list...), append(pieces, written...)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	files, unread, err := Files(path)
	if err != nil || unread != nil {
		t.Fatal(unread, err)
	}
	at := 0
	for _, p := range pieces {
		i := slices.IndexFunc(files, func(f File) bool { return f.ID == p.File })
		if i < 0 || files[i].Size == 0 || len(p.Ends) != len(p.Entries) || len(p.Entries) == 0 {
			t.Fatalf("a piece of %d records with %d ends in file %s of %+v", len(p.Entries), len(p.Ends), p.File, files)
		}
		for k, entry := range p.Entries {
			if at >= len(all) || string(entry.JSON) != string(all[at].JSON) {
				t.Fatalf("record %d is another one", at)
			}
			if at++; k%40 != 0 || k+1 == len(p.Entries) {
				continue
			}
			r, err := OpenReader(files[i].Name, p.Ends[k])
			if err != nil {
				t.Fatal(err)
			}
			next, ends, err := r.Next(1)
			if err != nil || len(next) != 1 || string(next[0].JSON) != string(p.Entries[k+1].JSON) || ends[0] != p.Ends[k+1] {
				t.Fatalf("behind record %d: %d records, ends %v, %v", at, len(next), ends, err)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if at != len(all) || len(pieces) < 12 {
		t.Errorf("%d of %d records in %d pieces", at, len(all), len(pieces))
	}

	// A history without its newest file is still one.
	if len(files) < 2 {
		t.Fatalf("%d files", len(files))
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for _, err := range Records(path) {
		if err != nil {
			t.Fatal(err)
		}
	}
}
