package database

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/history/historytest"
	"github.com/wasmjob/wasmjob/host/history/jsonl"
)

// openFile opens the history of a file.
func openFile(t *testing.T, path string, maxBytes int64) *Store {
	t.Helper()
	c, err := InFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), Options{Config: c, MaxBytes: maxBytes, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func openMemoryStore(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), Options{Config: InMemory(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestContract_oneHost holds the histories of one host to what is expected of all.
func TestContract_oneHost(t *testing.T) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		historytest.Run(t, func(t *testing.T) history.Store { return openMemoryStore(t) })
	})
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		historytest.Run(t, func(t *testing.T) history.Store { return openFile(t, filepath.Join(t.TempDir(), "h.jsonl"), 0) })
	})
}

// TestFollower_database: what the log has and the database has not is loaded when the next process begins: all
// of it after an upgrade, or if the database's file is gone, and what a crash came before otherwise.
func TestFollower_database(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "h.jsonl")
	n := 0
	logged := func(count int) { // as a host that is killed before the database has them, or one without a database
		t.Helper()
		log, err := jsonl.OpenLog(path, 1<<20, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range count {
			entry, err := history.NewEntry(history.Record{Event: new(number(n))})
			if err != nil {
				t.Fatal(err)
			}
			if _, lost := log.Append([]history.Entry{entry}); lost != 0 {
				t.Fatal(n, "is lost")
			}
			n++
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string) {
		t.Helper()
		s := openFile(t, path, 8<<20)
		for range 10 {
			s.AddEvent(number(n))
			n++
		}
		await(t, what, func() bool { return len(messages(t, s)) == n })
		inOrder(t, s, n)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	logged(8000)
	if files, err := jsonl.Segments(path); err != nil || len(files) < 2 {
		t.Fatalf("%d older files, %v; want some", len(files), err)
	}
	check("all of the log")
	check("nothing more")
	logged(50)
	check("what the database did not get")
	logged(4000) // with new files
	check("also in new files")
	if err := os.Remove(path + ".db"); err != nil {
		t.Fatal(err)
	}
	check("all again")
	if err := os.Rename(path, path+".taken"); err != nil { // it was loaded
		t.Fatal(err)
	}
	logged(5)
	check("a file that begins anew")
}

// TestFollower_locked: while the database cannot be written nothing is lost, however much comes, and queries are
// not held up for long.
func TestFollower_locked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "h.jsonl")
	s := openFile(t, path, 64<<20)
	s.AddEvent(number(0))
	s.Sync(t.Context())
	other, err := sql.Open("sqlite", "file:"+path+".db?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	tx, err := other.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	const total = 3 * mostPending
	for n := 1; n < total; n++ {
		s.AddEvent(number(n))
		if n%1000 == 0 {
			s.feed.Sync(t.Context())
		}
	}
	if page, err := s.Events(t.Context(), history.Filter{}); err != nil || len(page.Records) != 1 {
		t.Errorf("%d records while it is locked, %v", len(page.Records), err)
	}
	if state := s.State(); state.Spooled < total-mostPending {
		t.Errorf("%+v; want what is not in memory to be counted", state)
	}
	await(t, "problem", func() bool { return strings.Contains(s.State().Problem, "locked") })
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	await(t, "all", func() bool { state := s.State(); return state.Problem == "" && state.Spooled+state.Queued == 0 })
	inOrder(t, s, total)
}

// TestFollower_size: what a history takes stays within its bound, and the newest records stay in it; and in memory.
func TestFollower_size(t *testing.T) {
	t.Parallel()
	const size, total = 4 << 20, 40_000
	path := filepath.Join(t.TempDir(), "h.jsonl")
	inMemory := openMemoryStore(t)
	inMemory.cleaner.maxBytes = size * 3 / 4
	for name, s := range map[string]*Store{"file": openFile(t, path, size), "memory": inMemory} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now().Add(-total * time.Second)
			for n := range total {
				e := number(n)
				e.Time = begin.Add(time.Duration(n) * time.Second)
				s.AddEvent(e)
				if n%500 == 0 {
					s.Sync(t.Context())
				}
			}
			s.Sync(t.Context())
			await(t, "room", func() bool {
				bytes, _, err := s.dialect.size(t.Context(), s.db)
				return err == nil && bytes <= size*3/4
			})
			left := messages(t, s)
			if s.Dropped() != 0 || len(left) < 2000 || left[len(left)-1] != strconv.Itoa(total-1) {
				t.Errorf("%d are lost; %d are left", s.Dropped(), len(left))
			}
		})
	}
	names, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	taken, sizes := int64(0), []string(nil)
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, fmt.Sprint(filepath.Base(name), " ", info.Size()))
		if taken += info.Size(); info.Mode().Perm() != 0o600 {
			t.Errorf("%s has the mode %o", name, info.Mode().Perm())
		}
	}
	const slack = 5 << 20 // SQLite's own log, and what was deleted a moment ago
	if taken > size+slack {
		t.Errorf("%d bytes in %v", taken, sizes)
	}
}

// TestFollower_least: of a log of which the database knows nothing it takes what it has room for, the newest; a file that cannot be
// read is passed over, and that is said.
func TestFollower_least(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "h.jsonl")
	first, err := jsonl.OpenLog(path, 64<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	const each, files = 1000, 6
	text := strings.Repeat("x", 1000)
	for n := range files {
		for range each {
			e := number(n)
			e.Reason = fmt.Sprint(n) + text
			entry, err := history.NewEntry(history.Record{Event: &e})
			if err != nil {
				t.Fatal(err)
			}
			first.Append([]history.Entry{entry})
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		if n+1 < files {
			err = os.Rename(path, fmt.Sprint(path, ".", n+1))
		}
		if n == 3 { // no compressed file
			err = errors.Join(err, os.Rename(path+".4", path+".4.gz"))
		}
		if err != nil {
			t.Fatal(err)
		}
		if first, err = jsonl.OpenLog(path, 64<<20, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	s := openFile(t, path, 8<<20) // 6 for the database: 3 of text
	await(t, "more than the newest file", func() bool { return count(t, s, "SELECT COUNT(*) FROM wasmjob_events") > each })
	s.AddEvent(number(-1)) // behind all that is there
	await(t, "what came since", func() bool {
		page, err := s.Events(t.Context(), history.Filter{Limit: 1})
		return err == nil && len(page.Records) == 1 && page.Records[0].Reason == number(-1).Reason
	})
	if got := count(t, s, "SELECT COUNT(*) FROM wasmjob_events"); got >= 4*each {
		t.Errorf("%d events were loaded", got)
	}
}

// TestSQLiteWaits: SQLite writes when what is more urgent has begun.
func TestSQLiteWaits(t *testing.T) {
	t.Parallel()
	begun, waits := make(chan struct{}), make(chan struct{}, 100)
	s, err := Open(t.Context(), Options{Config: InMemory(), Wait: func(context.Context) {
		waits <- struct{}{}
		<-begun
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.AddEvent(number(0))
	<-waits
	if n := count(t, s, "SELECT COUNT(*) FROM wasmjob_events"); n != 0 {
		t.Errorf("%d events are written before", n)
	}
	close(begun)
	if got := messages(t, s); len(got) != 1 {
		t.Errorf("%d events", len(got))
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestFollower_log: what cannot be written to the log is lost, and said.
func TestFollower_log(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "events")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := openFile(t, filepath.Join(dir, "h.jsonl"), 0)
	s.AddEvent(number(0))
	s.Sync(t.Context())
	if err := os.Rename(dir, dir+".taken"); err != nil {
		t.Fatal(err)
	}
	s.AddEvent(number(1))
	s.Sync(t.Context())
	if state := s.State(); state.Dropped != 1 || !strings.Contains(state.Problem, "no such file") || state.Since.IsZero() {
		t.Errorf("%+v", state)
	}
	if err := os.Rename(dir+".taken", dir); err != nil {
		t.Fatal(err)
	}
	s.AddEvent(number(2))
	if got := messages(t, s); len(got) != 3 || got[1] != "2" || !strings.HasPrefix(got[2], "1 record of this host could not be written since ") || s.State().Problem != "" {
		t.Errorf("%v, %+v", got, s.State())
	}
}

// TestFollower_answers: what a store answers, the next one of its file does, and one that has the log alone.
func TestFollower_answers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "h.jsonl")
	s := openFile(t, path, 0)
	at := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	item := 7
	e := event.Event{Time: at.Add(time.Second), Kind: event.FireStarted, Host: "h1", Job: "cities", Instant: at, Source: abi.SourceSchedule, Items: []int{7}, Total: 8}
	s.AddEvent(e)
	e.Kind, e.Item, e.Items, e.RunID, e.Attempt, e.Fence = event.ItemStarted, &item, nil, "cities/2026-03-01T03:00:00.000Z/7", 1, 5
	s.AddEvent(e)
	s.AddLine(history.Line{Time: e.Time, Job: e.Job, RunID: e.RunID, Item: item, Host: "h1", Message: "hello"})
	e.Kind, e.Time, e.Outcome, e.Reason = event.ItemEnded, e.Time.Add(time.Second), abi.OutcomeFail, "no such City"
	s.AddEvent(e)
	s.AddChange(history.Change{Time: e.Time, Who: "ann", What: "trigger", Job: "cities"})
	check := func(what string) {
		t.Helper()
		runs, err := s.Runs(t.Context(), history.Filter{Jobs: []string{"cit*"}, Failed: true, Text: "CITY"})
		if err != nil || len(runs.Records) != 1 || runs.Records[0].Outcome != abi.OutcomeFail || runs.Records[0].Lag != time.Second {
			t.Errorf("%s: runs %+v %v", what, runs, err)
		}
		fires, err := s.Fires(t.Context(), history.Filter{Item: &item})
		if err != nil || len(fires.Records) != 1 || fires.Records[0].Failed != 1 || fires.Records[0].Total != 8 || fires.Records[0].Message != "no such City" {
			t.Errorf("%s: fires %+v %v", what, fires, err)
		}
		lines, err := s.Lines(t.Context(), history.Filter{Run: e.RunID})
		if err != nil || len(lines.Records) != 1 || lines.Records[0].Message != "hello" {
			t.Errorf("%s: lines %+v %v", what, lines, err)
		}
		changes, err := s.Changes(t.Context(), history.Filter{})
		if err != nil || len(changes.Records) != 1 || changes.Records[0].Who != "ann" {
			t.Errorf("%s: changes %+v %v", what, changes, err)
		}
		events, err := s.Events(t.Context(), history.Filter{Limit: 2})
		if err != nil || len(events.Records) != 2 || events.Records[0].Kind != event.ItemEnded || events.Next == "" {
			t.Fatalf("%s: events %+v %v", what, events, err)
		}
		events, err = s.Events(t.Context(), history.Filter{Limit: 2, After: events.Next})
		if err != nil || len(events.Records) != 1 || events.Records[0].Kind != event.FireStarted || events.Next != "" {
			t.Errorf("%s: older events %+v %v", what, events, err)
		}
	}
	check("the writer") // at once
	for _, what := range []string{"the next one", "one that has the log alone"} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if what != "the next one" {
			if err := os.Remove(path + ".db"); err != nil {
				t.Fatal(err)
			}
		}
		s = openFile(t, path, 0)
		check(what)
	}
}

// TestFollower_runs: what began in one file of a log may go on, or be given up, in a later one.
func TestFollower_runs(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "h.jsonl")
	at := time.Now().UTC().Add(-time.Hour).Truncate(time.Second)
	e := event.Event{Host: "10.0.0.1@-@1-a", Source: abi.SourceTrigger, Instant: at, Fence: 5, Item: new(int)}
	logged := func(events ...event.Event) {
		t.Helper()
		log, err := jsonl.OpenLog(path, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			entry, err := history.NewEntry(history.Record{Event: &e})
			if err != nil {
				t.Fatal(err)
			}
			log.Append([]history.Entry{entry})
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	of := func(job string, after time.Duration, kind event.Kind, attempt int, outcome abi.Outcome) event.Event {
		e := e
		e.Time, e.Kind, e.Job, e.RunID, e.Trigger, e.Attempt, e.Outcome = at.Add(after), kind, job, job+"/t1/0", 1, attempt, outcome
		return e
	}
	logged(of("again", 0, event.ItemStarted, 1, ""), of("again", time.Millisecond, event.ItemEnded, 1, abi.OutcomeRetry), of("over", time.Millisecond, event.ItemStarted, 1, ""))
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	over := at.Add(10 * time.Minute)
	logged(of("again", 5*time.Minute, event.ItemStarted, 2, ""), of("again", 6*time.Minute, event.ItemEnded, 2, abi.OutcomeOK),
		event.Event{Time: over, Kind: event.HostStarted, Host: "10.0.0.1@-@2"})
	s := openFile(t, path, 0)
	s.Sync(t.Context())
	runs, err := s.Runs(t.Context(), history.Filter{Oldest: true})
	if err != nil || len(runs.Records) != 2 || runs.Records[0].Attempt != 2 || !runs.Records[0].Begun.Equal(at) || runs.Records[0].Outcome != abi.OutcomeOK {
		t.Fatalf("%+v, %v", runs, err)
	}
	if r := runs.Records[1]; r.Outcome != history.Unknown || !r.Ended.Equal(over) {
		t.Errorf("what ran when the host ended: %+v", r)
	}
}

// TestFollower_manyGoroutines: what is added while the store closes is written, or counted as dropped.
func TestFollower_manyGoroutines(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "h.jsonl")
	c, err := InFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), Options{Config: c, Queue: 16})
	if err != nil {
		t.Fatal(err)
	}
	var adding sync.WaitGroup
	const each = 200
	for range 4 {
		adding.Go(func() {
			for n := range each {
				s.AddEvent(number(n))
			}
		})
	}
	adding.Go(func() { _ = s.Close() })
	adding.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	written := slices.DeleteFunc(eventsOf(t, path), func(e event.Event) bool { return e.Kind == event.HistoryLost }) // that some were dropped
	if got := int64(len(written)) + s.Dropped(); got != 4*each {
		t.Fatalf("%d events written or dropped, want %d", got, 4*each)
	}
}

func eventsOf(t *testing.T, path string) (events []event.Event) {
	t.Helper()
	for e, err := range jsonl.Read(path) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

// TestFollower_quota: a job that fills the history is cut to its quota; the events of another job,
// from before and after, are all there, and what was dropped is counted.
func TestFollower_quota(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "h.jsonl")
	const size = 1 << 20
	c, err := InFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dropped := 0
	s, err := Open(t.Context(), Options{Config: c, MaxBytes: 2 * size, Queue: 100_000, Ceilings: ceiling.List{ceiling.Default(size)}, OnOverQuota: func(job string) {
		if job != "noisy" {
			t.Errorf("an event of %s was dropped", job)
		}
		dropped++
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.AddEvent(number(1))
	const floods = 20_000 // 26 MB
	for n := range floods {
		e := number(n)
		e.Job, e.Reason = "noisy", strings.Repeat("x", event.MaxReason)
		s.AddEvent(e)
	}
	s.AddEvent(number(2))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	quiet, noisy, bytes := 0, 0, 0
	var said []event.Event
	for _, e := range eventsOf(t, path) {
		switch {
		case e.Kind == event.OverQuota:
			said = append(said, e)
		case e.Job == "noisy":
			noisy++
			line, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			bytes += len(line) + 1
		default:
			quiet++
		}
	}
	if quiet != 2 {
		t.Errorf("%d of 2 events of the other job are there", quiet)
	}
	if bytes < size/4-2048 || bytes > size/4+2048 {
		t.Errorf("%d events of the noisy job, %d bytes, expected a quarter of %d", noisy, bytes, size)
	}
	if noisy+dropped != floods || s.Dropped() != 0 {
		t.Errorf("%d are there, %d were dropped, of %d; %d more were lost", noisy, dropped, floods, s.Dropped())
	}
	if len(said) != 2 || said[0].Job != "noisy" || said[0].Ceiling != ceiling.HistoryBytes || said[0].Host == "" || int(said[1].Count) != dropped ||
		!strings.Contains(said[0].Reason, `the host's ceiling historyBytes for jobs "*" is 1MiB a day`) {
		t.Errorf("said %+v", said)
	}
}

// TestFollower_lostAnswer: a batch is written in parts if the database does not take one of its records. If the
// answer to one of the parts is lost, each record is still written once: of a batch that was read from a
// file, and of one that was in memory until more came than it holds.
//
// It kills the mutant "history's batch left after a lost answer".
func TestFollower_lostAnswer(t *testing.T) {
	t.Parallel()
	s := openStore(t, "sqlite:"+filepath.Join(t.TempDir(), "h.db"), "", t.TempDir())
	log, err := jsonl.OpenLog(filepath.Join(t.TempDir(), "h.jsonl"), 64<<20, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	f := newFollower(log, 64<<20, make(chan struct{}, 1), zap.NewNop())
	t.Cleanup(func() { _, _ = f.close() })
	l := &loader{pool: s.pool, queue: f, drop: func(int64) {}, written: func(context.Context) {}, migrated: true, memory: newMemory(), days: make(map[int64]bool)}
	added := 0
	add := func(count int) {
		t.Helper()
		batch := make([]history.Entry, count)
		for i := range batch {
			batch[i] = lineOf(t, added+i)
		}
		if lost := f.add(batch); lost != 0 {
			t.Fatal(lost, "are lost")
		}
		added += count
	}
	next := func(old bool) chunk {
		t.Helper()
		c, _, err := f.next(t.Context(), l.position, l.doubt)
		if err != nil || len(c.entries) != 8 || c.old != old {
			t.Fatalf("next are %d records, %v, from a file: %t; want 8", len(c.entries), err, c.old)
		}
		return c
	}
	part := func(c chunk) {
		t.Helper()
		if err := l.commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	lost := func(c chunk) {
		t.Helper()
		part(c)
		l.doubt = true // as step does
		f.fail(errors.New("no answer"))
	}
	check := func() {
		t.Helper()
		for did := true; did; {
			var err error
			if did, err = l.step(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		inOrder(t, s, added)
	}

	add(8)
	lost(next(true).part(0, 4))
	check()

	add(8)
	c := next(false)
	part(c.part(0, 4))
	if err := f.done(c.part(0, 4)); err != nil {
		t.Fatal(err)
	}
	lost(c.part(4, 6))
	add(mostPending)
	check()
}
