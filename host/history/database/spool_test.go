package database

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wasmjob/wasmjob/host/history"
)

// lineOf is a record's line in a spool.
func lineOf(t *testing.T, n int) history.Entry {
	t.Helper()
	e := number(n)
	entry, err := history.NewEntry(history.Record{Event: &e})
	if err != nil {
		t.Fatal(err)
	}
	return entry
}

// TestSpoolOfAnother: what a process that is gone has left is loaded, but for lines that are
// none; what a process that lives has is left alone; what another database is to have, too.
func TestSpoolOfAnother(t *testing.T) {
	t.Parallel()
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "h.db")
	alive, err := openSpool(dir, "sqlite:"+path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := alive.add(0, []history.Entry{lineOf(t, 100)}); err != nil {
		t.Fatal(err)
	}
	other, err := openSpool(dir, "sqlite:/other", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.add(0, []history.Entry{lineOf(t, 200)}); err != nil {
		t.Fatal(err)
	}
	if err := other.close(); err != nil {
		t.Fatal(err)
	}
	gone, err := openSpool(dir, "sqlite:"+path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.add(0, []history.Entry{lineOf(t, 0), {JSON: []byte("nonsense")}, {JSON: []byte("{}")}, lineOf(t, 1), {JSON: []byte(`{"kind":"log","time":7}`)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := gone.files[0].file.WriteString(`{"kind":"job.cha`); err != nil { // a crash
		t.Fatal(err)
	}
	if err := gone.close(); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, "sqlite:"+path, "", dir)
	await(t, "what was left", func() bool { return s.State().Spooled == 0 && len(messages(t, s)) == 2 })
	inOrder(t, s, 2)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 2 {
		t.Errorf("left are %v, %v", left, err)
	}
	if err := alive.close(); err != nil {
		t.Fatal(err)
	}
}

// TestSpoolInParts: a process that ends while it loads a spool leaves to the next one what it has
// not loaded, and no more.
func TestSpoolInParts(t *testing.T) {
	t.Parallel()
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "h.db")
	s := openStore(t, "sqlite:"+path, "", t.TempDir())
	spool, err := openSpool(dir, "sqlite:"+path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var entries []history.Entry
	for n := range 10 {
		entries = append(entries, lineOf(t, n))
	}
	if err := spool.add(0, entries); err != nil {
		t.Fatal(err)
	}
	f, _, ends, err := spool.read(100)
	if err != nil || len(ends) != 10 {
		t.Fatal(ends, err)
	}
	// The first four are there, and this process ends.
	for n := range 4 {
		s.AddEvent(*entries[n].Event)
	}
	await(t, "four", func() bool { return len(messages(t, s)) == 4 })
	if _, err := s.db.ExecContext(t.Context(), "INSERT INTO wasmjob_writers (id, position, seen) VALUES (?, ?, 0)", f.name, ends[3]); err != nil {
		t.Fatal(err)
	}
	if err := spool.close(); err != nil {
		t.Fatal(err)
	}
	next := openStore(t, "sqlite:"+path, "", dir)
	await(t, "the others", func() bool { return next.State().Spooled == 0 && len(messages(t, next)) == 10 })
	inOrder(t, next, 10)
}

// nobody is known to the database.
func nobody(context.Context, string) (int64, error) { return 0, nil }

// TestSpoolAfterCommitWithoutAnswer: a process that is killed after the answer to its last commit
// was lost leaves to the next one what the database does not have, and no more.
func TestSpoolAfterCommitWithoutAnswer(t *testing.T) {
	t.Parallel()
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), "h.db")
	s := openStore(t, "sqlite:"+path, "", t.TempDir())
	spool, err := openSpool(dir, "sqlite:"+path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	b := &backlog{trouble: trouble{log: zap.NewNop()}, name: spool.process(), spool: spool, woken: make(chan struct{}, 1)}
	add := func(from, to int) {
		for n := from; n < to; n++ {
			if lost := b.add([]history.Entry{lineOf(t, n)}); lost != 0 {
				t.Fatal(n, "is lost")
			}
		}
	}
	// Two are written, and four more, but the answer is lost.
	add(0, 2)
	c, ok, err := b.next(t.Context(), nobody, false)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := b.done(c); err != nil {
		t.Fatal(err)
	}
	add(2, 6)
	if c, ok, err = b.next(t.Context(), nobody, false); err != nil || !ok || len(c.entries) != 4 {
		t.Fatal(len(c.entries), ok, err)
	}
	for n := range 6 {
		s.AddEvent(number(n))
	}
	await(t, "six", func() bool { return len(messages(t, s)) == 6 })
	if _, err := s.db.ExecContext(t.Context(), "INSERT INTO wasmjob_writers (id, position, seen) VALUES (?, ?, 0)", c.writer, c.ends[3]); err != nil {
		t.Fatal(err)
	}
	add(6, 8)
	b.fail(errors.New("no answer"))
	add(8, 10)
	if spool.records != 8 {
		t.Fatalf("%d records are spooled, want 8", spool.records)
	}
	if err := spool.close(); err != nil { // not the backlog: this process is killed
		t.Fatal(err)
	}
	next := openStore(t, "sqlite:"+path, "", dir)
	await(t, "the others", func() bool { return next.State().Spooled == 0 && len(messages(t, next)) == 10 })
	inOrder(t, next, 10)
}

// TestSpooledWhileItIsWritten: what a slow transaction writes is spooled meanwhile, and not
// written again when it has ended.
func TestSpooledWhileItIsWritten(t *testing.T) {
	t.Parallel()
	spool, err := openSpool(t.TempDir(), "x", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	b := &backlog{trouble: trouble{log: zap.NewNop()}, name: spool.process(), spool: spool, woken: make(chan struct{}, 1)}
	take := func() (n []string, c chunk) {
		c, _, err := b.next(t.Context(), nobody, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range c.entries {
			n = append(n, e.Event.Reason)
		}
		return n, c
	}
	b.add([]history.Entry{lineOf(t, 0), lineOf(t, 1)})
	_, c := take()
	b.add([]history.Entry{lineOf(t, 2)})
	b.late()
	b.add([]history.Entry{lineOf(t, 3)})
	if spool.records != 4 || len(spool.files) != 1 {
		t.Fatalf("%d records in %d files are spooled, want 4 in one", spool.records, len(spool.files))
	}
	if err := b.done(c); err != nil {
		t.Fatal(err)
	}
	n, c := take()
	if fmt.Sprint(n) != "[2 3]" {
		t.Fatalf("next are %v, want 2 and 3", n)
	}
	if err := b.done(c); err != nil {
		t.Fatal(err)
	}
	if n, _ := take(); len(n) != 0 || !spool.empty() || spool.records != 0 {
		t.Errorf("left are %v, %+v", n, spool)
	}
	// Then it goes on in memory.
	b.add([]history.Entry{lineOf(t, 4)})
	if n, c := take(); fmt.Sprint(n) != "[4]" || c.spool != nil {
		t.Errorf("next are %v", n)
	}
	if _, err := b.close(); err != nil {
		t.Fatal(err)
	}
}

// TestSpoolFiles: it goes on in a new file when one is long, and a file that is loaded is removed.
func TestSpoolFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openSpool(dir, "x", 100<<20)
	if err != nil {
		t.Fatal(err)
	}
	long := history.Entry{Record: lineOf(t, 1).Record, JSON: []byte(`{"kind":"x","reason":"` + strings.Repeat("x", 9<<20) + `"}`)}
	for n := range 4 {
		if err := s.add(int64(n), []history.Entry{long}); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.files) != 2 || s.records != 4 {
		t.Errorf("%d files with %d records", len(s.files), s.records)
	}
	for n := range 2 {
		f, entries, ends, err := s.read(1000)
		if err != nil || len(entries) != 2 || entries[1].Event.Reason[0] != 'x' {
			t.Fatal(n, len(entries), err)
		}
		if err := s.done(f, ends[0], 1); err != nil || len(s.files) != 2-n {
			t.Fatal(err)
		}
		if err := s.done(f, ends[1], 1); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 || !s.empty() || s.bytes != 0 || s.records != 0 {
		t.Errorf("left are %v, %v, %+v", left, err, s)
	}
}

func TestSpoolDirectoryWithSpecialCharacters(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), `a[b]*?c`)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		s, err := openSpool(dir, "x", 1<<20)
		if err != nil || int(s.records) != n {
			t.Fatal(fmt.Sprintf("%+v", s), err)
		}
		if err := s.add(0, []history.Entry{lineOf(t, n)}); err != nil {
			t.Fatal(err)
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Microsecond)
	}
}

// TestStateWhileTheDiskIsSlow: who asks how the store fares does not wait for the spool.
func TestStateWhileTheDiskIsSlow(t *testing.T) {
	t.Parallel()
	url, credentials := sqliteURL(t)
	s := openStore(t, url, credentials, t.TempDir())
	waiting, ok := s.queue.(*backlog)
	if !ok {
		t.Fatalf("%T", s.queue)
	}
	waiting.fail(errors.New("it is away"))
	waiting.mu.Lock() // as it is while the spool is written
	asked := make(chan history.State, 1)
	go func() { asked <- s.State() }()
	select {
	case state := <-asked:
		if state.Problem != "it is away" || state.Since.IsZero() {
			t.Errorf("%+v", state)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits")
	}
	waiting.mu.Unlock()
}

// TestSpooledBetweenTwoCommits: a batch with a record that the database does not take is written in parts. If
// it is spooled after the first part, and the answer to the next one is lost, each record is still
// written once; so it is if that happens to what comes from the spool.
//
// It kills the mutant "history's batch written twice".
func TestSpooledBetweenTwoCommits(t *testing.T) {
	t.Parallel()
	s := openStore(t, "sqlite:"+filepath.Join(t.TempDir(), "h.db"), "", t.TempDir())
	await(t, "the tables", func() bool { _, err := s.loader.position(t.Context(), "x"); return err == nil })
	spool, err := openSpool(t.TempDir(), "x", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	b := &backlog{trouble: trouble{log: zap.NewNop()}, name: spool.process(), spool: spool, woken: make(chan struct{}, 1)}
	l := &loader{pool: s.pool, queue: b, drop: func(int64) {}, written: func(context.Context) {}, migrated: true, memory: newMemory(), days: make(map[int64]bool)}
	part := func(c chunk) {
		t.Helper()
		if err := l.commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	add := func(from, to int) {
		for n := from; n < to; n++ {
			b.add([]history.Entry{lineOf(t, n)})
		}
	}
	next := func(want int) chunk {
		t.Helper()
		c, _, err := b.next(t.Context(), l.position, l.doubt)
		if err != nil || len(c.entries) != want {
			t.Fatalf("next are %d records, %v; want %d", len(c.entries), err, want)
		}
		return c
	}
	lost := func(c chunk) {
		t.Helper()
		part(c)
		l.doubt = true // as step does
		b.fail(errors.New("no answer"))
	}

	add(0, 8)
	c := next(8)
	part(c.part(0, 4))
	b.late()
	if err := b.done(c.part(0, 4)); err != nil {
		t.Fatal(err)
	}
	lost(c.part(4, 6))
	add(8, 10)
	c = next(4) // it asks
	l.doubt = false
	part(c.part(0, 1))
	if err := b.done(c.part(0, 1)); err != nil {
		t.Fatal(err)
	}
	lost(c.part(1, 2))
	for did := true; did; {
		if did, err = l.step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	inOrder(t, s, 10)
	if !spool.empty() || spool.records != 0 || spool.bytes != 0 {
		t.Errorf("%d records in %d bytes are spooled", spool.records, spool.bytes)
	}
}

// TestSpoolIsFullAgain: a small batch that has room in between does not have it said twice that the spool is
// full; that is said again when the spool was empty since.
func TestSpoolIsFullAgain(t *testing.T) {
	t.Parallel()
	spool, err := openSpool(t.TempDir(), "x", 50<<10)
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.WarnLevel)
	b := &backlog{trouble: trouble{log: zap.New(core)}, name: spool.process(), spool: spool, woken: make(chan struct{}, 1)}
	t.Cleanup(func() { _ = spool.close() })
	add := func(count int, fits bool) {
		t.Helper()
		if lost := b.add(slices.Repeat([]history.Entry{lineOf(t, 0)}, count)); (lost == 0) != fits {
			t.Fatalf("%d of %d are lost", lost, count)
		}
	}
	for turn := 1; turn <= 2; turn++ {
		add(mostPending, true)
		add(mostPending, false)
		add(1, true)
		add(mostPending, false)
		if n := logs.FilterMessageSnippet("spool cannot take").Len(); n != turn {
			t.Fatalf("%d lines about the full spool, want %d", n, turn)
		}
		for {
			c, ok, err := b.next(t.Context(), nobody, false)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			if err := b.done(c); err != nil {
				t.Fatal(err)
			}
		}
	}
}
