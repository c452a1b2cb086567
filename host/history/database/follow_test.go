package database

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/history/historytest"
	"github.com/wasmjob/wasmjob/host/history/lines"
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
		log, err := lines.OpenLog(path, 1<<20, nil)
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
	if files, err := lines.Segments(path); err != nil || len(files) < 2 {
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
	inMemory.cleaner.maxBytes = size / 2
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
				bytes, _, err := s.cleaner.size(t.Context())
				return err == nil && bytes <= size/2
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
	first, err := lines.OpenLog(path, 64<<20, nil)
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
		if first, err = lines.OpenLog(path, 64<<20, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	s := openFile(t, path, 12<<20) // 6 for the database: 3 of text
	await(t, "all", func() bool {
		page, err := s.Events(t.Context(), history.Filter{Limit: 1})
		return err == nil && len(page.Records) == 1 && strings.HasPrefix(page.Records[0].Reason, fmt.Sprint(files-1))
	})
	s.AddEvent(number(-1))
	s.Sync(t.Context())
	if got := count(t, s, "SELECT COUNT(*) FROM wasmjob_events"); got <= each || got >= 4*each {
		t.Errorf("%d events were loaded", got)
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
	if got := messages(t, s); len(got) != 2 || got[1] != "2" || s.State().Problem != "" {
		t.Errorf("%v, %+v", got, s.State())
	}
}
