package database

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/test/pgserver"
)

// ids are the jobs of all runs.
func jobs(t *testing.T, s *Store) (list []string) {
	t.Helper()
	page, err := s.Runs(t.Context(), history.Filter{Limit: history.MaxLimit})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range page.Records {
		list = append(list, r.Job)
	}
	slices.Sort(list)
	return list
}

// TestPurge: successes go after seven days, failures and what runs after 90, changes
// after 400; and what a purge left is found and written to as before.
func TestPurge(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		s := openStore(t, url, credentials, t.TempDir())
		now := time.Now().UTC().Truncate(time.Second)
		for _, age := range []int{0, 5, 9, 40, 89, 95} {
			at := now.Add(-time.Duration(age) * day)
			aRun(s, fmt.Sprintf("good-%02d", age), "h", at, abi.OutcomeOK)
			aRun(s, fmt.Sprintf("bad-%02d", age), "h", at, abi.OutcomeFail)
			item := 0
			s.AddEvent(event.Event{Time: at, Kind: event.ItemStarted, Host: "h", Job: fmt.Sprintf("open-%02d", age), RunID: fmt.Sprintf("open-%02d/t%d/0", age, age+1), Trigger: int64(age + 1), Item: &item, Fence: 1, Attempt: 1, Instant: at})
			s.AddEvent(event.Event{Time: at, Kind: event.JobError, Host: "h", Job: fmt.Sprintf("error-%02d", age), Reason: "r"})
			s.AddEvent(event.Event{Time: at, Kind: event.Assigned, Host: "h", Job: fmt.Sprintf("assigned-%02d", age)})
		}
		for _, age := range []int{0, 399, 401} {
			s.AddChange(history.Change{Time: now.Add(-time.Duration(age) * day), Who: fmt.Sprint(age), What: "x"})
		}
		await(t, "all", func() bool { return count(t, s, "SELECT COUNT(*) FROM wasmjob_audit") == 3 })
		await(t, "all runs", func() bool { return len(jobs(t, s)) == 18 })
		for range 2 { // the second finds nothing to do
			if err := s.cleaner.round(t.Context(), now); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := jobs(t, s), []string{"bad-00", "bad-05", "bad-09", "bad-40", "bad-89", "good-00", "good-05", "open-00", "open-05", "open-09", "open-40", "open-89"}; !slices.Equal(got, want) {
			t.Errorf("runs of %v, want %v", got, want)
		}
		fires, err := s.Fires(t.Context(), history.Filter{Limit: 1000})
		if err != nil || len(fires.Records) != 7 {
			t.Errorf("%d fires, %v", len(fires.Records), err)
		}
		lines, err := s.Lines(t.Context(), history.Filter{Limit: 1000})
		if err != nil || len(lines.Records) != 7 {
			t.Errorf("%d lines, %v", len(lines.Records), err)
		}
		for kind, want := range map[event.Kind]int{event.JobError: 5, event.Assigned: 2, event.FireStarted: 4} {
			events, err := s.Events(t.Context(), history.Filter{Kinds: []event.Kind{kind}})
			if err != nil || len(events.Records) != want {
				t.Errorf("%d events %s, want %d, %v", len(events.Records), kind, want, err)
			}
		}
		changes, err := s.Changes(t.Context(), history.Filter{})
		if err != nil || len(changes.Records) != 2 {
			t.Errorf("%d changes, %v", len(changes.Records), err)
		}
		// What comes late has a place, and what runs can end.
		aRun(s, "late", "h", now.Add(-9*day), abi.OutcomeFail)
		item := 0
		s.AddEvent(event.Event{Time: now, Kind: event.ItemEnded, Host: "h", Job: "open-40", RunID: "open-40/t41/0", Trigger: 41, Item: &item, Fence: 1, Attempt: 1, Instant: now.Add(-40 * day), Outcome: abi.OutcomeOK})
		await(t, "late run", func() bool { return slices.Contains(jobs(t, s), "late") })
		await(t, "end of an old run", func() bool {
			page, err := s.Runs(t.Context(), history.Filter{Run: "open-40/t41/0"})
			return err == nil && len(page.Records) == 1 && page.Records[0].Outcome == abi.OutcomeOK
		})
		if state := s.State(); state.Dropped != 0 {
			t.Errorf("%+v", state)
		}
	})
}

// TestPurgeByAWrongClock: a host whose clock is wrong deletes nothing of a server's.
func TestPurgeByAWrongClock(t *testing.T) {
	t.Parallel()
	servers(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		s := openStore(t, url, credentials, t.TempDir())
		now := time.Now()
		aRun(s, "new", "h", now, abi.OutcomeOK)
		aRun(s, "old", "h", now.Add(-9*day), abi.OutcomeOK)
		await(t, "both", func() bool { return count(t, s, "SELECT COUNT(*) FROM wasmjob_items WHERE ended > 0") == 2 })
		s.cleaner.clock = func() time.Time { return now.Add(100 * day) }
		if err := s.cleaner.purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := jobs(t, s); !slices.Equal(got, []string{"new"}) {
			t.Errorf("%v are left", got)
		}
	})
}

// TestMigrateWhilePurging: tables are made while another host purges.
func TestMigrateWhilePurging(t *testing.T) {
	t.Parallel()
	servers(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		sign := "?"
		if strings.Contains(url, "?") {
			sign = "&"
		}
		s := openStore(t, url+sign+"elasticjob=true", credentials, t.TempDir()) // whose tables are looked for each time
		ok, err := s.dialect.locked(t.Context(), s.db, false, func(*sql.Conn) error { return s.migrate(t.Context()) })
		if !ok || err != nil {
			t.Errorf("%v, %v", ok, err)
		}
	})
}

// TestLocks: one host at a time purges a database, whatever becomes of others on the same server.
func TestLocks(t *testing.T) {
	t.Parallel()
	servers(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		s, same := openStore(t, url, credentials, t.TempDir()), openStore(t, url, credentials, t.TempDir())
		url, credentials = fresh(t)
		other := openStore(t, url, credentials, t.TempDir())
		ok, err := s.dialect.locked(t.Context(), s.db, false, func(*sql.Conn) error {
			for of, want := range map[*Store]bool{same: false, other: true} {
				if ok, err := of.dialect.locked(t.Context(), of.db, false, func(*sql.Conn) error { return nil }); ok != want || err != nil {
					t.Errorf("%v, %v, expected %v", ok, err, want)
				}
			}
			return nil
		})
		if !ok || err != nil {
			t.Errorf("%v, %v", ok, err)
		}
	})
}

// TestEndOfAPurgedRun: the end of a run that was purged meanwhile is no record that was lost.
func TestEndOfAPurgedRun(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		s := openStore(t, url, credentials, t.TempDir())
		now := time.Now()
		item := 0
		e := event.Event{Time: now.Add(-95 * day), Kind: event.ItemStarted, Host: "h", Job: "long", RunID: "long/t1/0", Trigger: 1, Item: &item, Fence: 1, Attempt: 1, Instant: now.Add(-95 * day)}
		s.AddEvent(e)
		await(t, "the run", func() bool { return count(t, s, "SELECT COUNT(*) FROM wasmjob_items") == 1 })
		if err := s.cleaner.round(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		e.Time, e.Kind, e.Outcome = now, event.ItemEnded, abi.OutcomeOK
		s.AddEvent(e)
		await(t, "its end, or that it was dropped", func() bool {
			return count(t, s, "SELECT COUNT(*) FROM wasmjob_events WHERE kind = 'item.ended'")+int(s.State().Dropped) == 1
		})
		if state := s.State(); state.Dropped != 0 || state.Problem != "" {
			t.Errorf("%+v", state)
		}
	})
}

// TestPurgeOff: what is kept for ever stays.
func TestPurgeOff(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		sign := "?"
		if strings.Contains(url, "?") {
			sign = "&"
		}
		s := openStore(t, url+sign+"successes=off&failures=off&audit=off", credentials, t.TempDir())
		aRun(s, "good", "h", time.Now().Add(-2000*day), abi.OutcomeOK)
		s.AddChange(history.Change{Time: time.Now().Add(-2000 * day), Who: "w", What: "x"})
		await(t, "all", func() bool { return count(t, s, "SELECT COUNT(*) FROM wasmjob_audit") == 1 })
		if err := s.cleaner.round(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if got := jobs(t, s); len(got) != 1 || count(t, s, "SELECT COUNT(*) FROM wasmjob_audit") != 1 {
			t.Errorf("%v are left", got)
		}
	})
}

// TestPurgeWhileWriting: a purge and a writer do not disturb each other.
func TestPurgeWhileWriting(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		s := openStore(t, url, credentials, t.TempDir())
		now := time.Now()
		for n := range 300 {
			aRun(s, "cities", "h", now.Add(-time.Duration(n)*time.Hour), abi.OutcomeOK)
		}
		done := make(chan error)
		go func() {
			var err error
			for range 5 {
				if err = s.cleaner.round(t.Context(), now); err != nil {
					break
				}
			}
			done <- err
		}()
		for n := range 300 {
			aRun(s, "cities", "h", now.Add(time.Duration(n)*time.Second), abi.OutcomeOK)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := s.cleaner.round(t.Context(), now); err != nil {
			t.Error(err)
		}
		await(t, "all that is new", func() bool { return s.State().Queued == 0 })
		await(t, "the last", func() bool { return count(t, s, "SELECT COUNT(*) FROM wasmjob_items") >= 300+7*24-1 })
		if state := s.State(); state.Dropped != 0 || state.Problem != "" {
			t.Errorf("%+v", state)
		}
	})
}

// TestPurgeInTheWayOfAWriter: a writer that has the table, and wants the partition that a purge replaces, makes a
// deadlock with it, which ends the purge's transaction. It is tried again.
func TestPurgeInTheWayOfAWriter(t *testing.T) {
	t.Parallel()
	start := func(ctx context.Context) (*pgserver.Server, error) { return pgserver.Start(ctx, pgserver.Options{}) }
	url, credentials := onPostgres(shared.postgres.get(t, start, pgserver.ErrNotInstalled))(t)
	s := openStore(t, url, credentials, t.TempDir())
	now := time.Now()
	begun := now.Add(-9 * day)
	aRun(s, "good", "h", begun, abi.OutcomeOK)
	await(t, "the run", func() bool { return count(t, s, "SELECT COUNT(*) FROM wasmjob_items WHERE ended > 0") == 1 })
	writer, err := s.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	do := func(statement string) {
		t.Helper()
		if _, err := writer.ExecContext(t.Context(), statement); err != nil {
			t.Error(err)
		}
	}
	do("SET LOCAL deadlock_timeout = '1h'") // the purge is who notices
	do("SET LOCAL lock_timeout = 0")
	do("LOCK TABLE ONLY wasmjob_items IN ROW EXCLUSIVE MODE")
	purged := make(chan error)
	go func() { purged <- s.cleaner.round(t.Context(), now) }()
	await(t, "the purge to wait for the table", func() bool {
		return count(t, s, "SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND relation = 'wasmjob_items'::regclass") == 1
	})
	do("LOCK TABLE " + partitionName("wasmjob_items", dayOf(begun.UnixNano())) + " IN ROW EXCLUSIVE MODE")
	if err := writer.Rollback(); err != nil {
		t.Error(err)
	}
	if err := <-purged; err != nil {
		t.Error(err)
	}
	if got := jobs(t, s); len(got) != 0 {
		t.Errorf("%q are left", got)
	}
}

// TestSizeOfSQLite: the file stays within its bound, and the newest stays in it.
func TestSizeOfSQLite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "h.db")
	const most = 2 << 20
	s, _, err := open(t, "sqlite:"+path, "", Options{MaxBytes: most})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for n := range 20_000 {
		e := number(n)
		e.Time = now.Add(time.Duration(n-20_000) * time.Second)
		s.AddEvent(e)
		if n%1000 == 0 {
			await(t, "room", func() bool { return s.State().Queued < 4000 })
		}
	}
	await(t, "all", func() bool { state := s.State(); return state.Queued+state.Spooled == 0 })
	s.Sync(t.Context())
	await(t, "room", func() bool { // without an hour's wait
		bytes, _, err := s.dialect.size(t.Context(), s.db)
		return err == nil && bytes <= most
	})
	if err := s.cleaner.shrink(t.Context()); err != nil { // when the one for its growth has ended
		t.Fatal(err)
	}
	if _, err := s.db.ExecContext(t.Context(), "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	left := messages(t, s)
	if err != nil || info.Size() > most || len(left) < 2000 || left[len(left)-1] != "19999" {
		t.Errorf("%d bytes, %d events left, the last is %s, %v", info.Size(), len(left), left[len(left)-1], err)
	}
}

// TestSizeOfSQLite_others: the tables of changes and of ElasticJob shrink with the others, and
// what runs stays.
func TestSizeOfSQLite_others(t *testing.T) {
	t.Parallel()
	const most = 2 << 20
	s, _, err := open(t, "sqlite:"+filepath.Join(t.TempDir(), "h.db")+"?elasticjob=true&successes=off&failures=off", "", Options{})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	item := 0
	begin := now.Add(-3 * 3600 * time.Second)
	s.AddEvent(event.Event{Time: begin, Kind: event.ItemStarted, Host: "h", Job: "open", RunID: "open/t1/0", Trigger: 1, Item: &item, Fence: 1, Attempt: 1, Instant: begin})
	for n := range 1500 {
		at := now.Add(time.Duration(n-1500) * time.Second)
		aRun(s, "cities", "h", at, abi.OutcomeOK)
		s.AddChange(history.Change{Time: at.Add(-time.Hour), Who: "w", What: "edit", Before: strings.Repeat("x", 2000)})
		if n%100 == 0 {
			await(t, "room", func() bool { return s.State().Queued < 2000 })
		}
	}
	await(t, "all", func() bool { return count(t, s, "SELECT COUNT(*) FROM wasmjob_items WHERE ended > 0") == 1500 })
	s.Sync(t.Context())
	s.cleaner.maxBytes = most
	if err := s.cleaner.round(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	size := count(t, s, "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()")
	if size > most || size < most/4 {
		t.Errorf("%d bytes", size)
	}
	for table, least := range map[string]int{"wasmjob_items WHERE job = 'open'": 1, "wasmjob_items WHERE job = 'cities'": 100, "JOB_EXECUTION_LOG WHERE complete_time IS NULL": 1, "JOB_EXECUTION_LOG": 100} {
		if n := count(t, s, "SELECT COUNT(*) FROM "+table); n < least {
			t.Errorf("%d rows of %s, want at least %d", n, table, least)
		}
	}
	s.AddEvent(event.Event{Kind: event.JobError, Host: "h", Job: "timeless"})
	await(t, "event of no time", func() bool { return count(t, s, "SELECT COUNT(*) FROM wasmjob_events WHERE time = 0") == 1 })
	s.Sync(t.Context())    // the loader has read the bound
	s.cleaner.maxBytes = 1 // which nothing can reach
	if err := s.cleaner.round(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if got := jobs(t, s); !slices.Equal(got, []string{"open"}) {
		t.Errorf("%v are left", got)
	}
}

// TestSizeOfServers: the tables stay within their bound. The oldest records go, but neither what
// runs nor who changed what; the newest stay.
func TestSizeOfServers(t *testing.T) {
	t.Parallel()
	servers(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		sign := "?"
		if strings.Contains(url, "?") {
			sign = "&"
		}
		s := openStore(t, url+sign+"successes=off&failures=off&elasticjob=true&size=64MiB", credentials, t.TempDir())
		if s.cleaner.maxBytes != 64<<20 {
			t.Fatalf("the bound is %d bytes", s.cleaner.maxBytes)
		}
		const days, each = 12, 250
		now := time.Now().UTC().Truncate(day).Add(12 * time.Hour)
		item := 0
		for age := days - 1; age >= 0; age-- {
			at := now.Add(-time.Duration(age) * day)
			open := event.Event{Time: at, Kind: event.FireStarted, Host: "h", Job: fmt.Sprintf("open-%02d", age), Trigger: int64(age + 1), Instant: at, Items: []int{0}, Total: 1}
			s.AddEvent(open)
			open.Kind, open.Items, open.Item, open.RunID, open.Fence, open.Attempt = event.ItemStarted, nil, &item, fmt.Sprintf("%s/t%d/0", open.Job, age+1), 1, 1
			s.AddEvent(open)
			for n := range each {
				at := at.Add(-time.Duration(n) * time.Second)
				aRun(s, fmt.Sprintf("good-%02d", age), "h", at, abi.OutcomeOK)
				s.AddEvent(event.Event{Time: at, Kind: event.JobError, Host: "h", Job: fmt.Sprintf("error-%02d", age), Reason: strings.Repeat("x", 1000)})
			}
			s.AddChange(history.Change{Time: at, Who: "w", What: "x"})
			await(t, "room", func() bool { return s.State().Queued < 4000 })
		}
		await(t, "all", func() bool { return count(t, s, "SELECT COUNT(*) FROM wasmjob_items WHERE ended > 0") == days*each })
		size := func() int64 {
			t.Helper()
			size, _, err := s.dialect.size(t.Context(), s.db)
			if err != nil {
				t.Fatal(err)
			}
			return size
		}
		round := func() {
			t.Helper()
			if err := s.cleaner.round(t.Context(), now); err != nil {
				t.Fatal(err)
			}
		}
		whole := size()
		round() // nothing is too much
		if n := count(t, s, "SELECT COUNT(*) FROM wasmjob_items"); n != days*(each+1) {
			t.Errorf("%d runs are left of %d, and %d bytes are allowed of %d", n, days*(each+1), s.cleaner.maxBytes, whole)
		}
		s.cleaner.maxBytes = whole / 2
		round()
		slack := map[dialect]int64{mySQL: whole / 4}[s.dialect] // it goes by estimates
		await(t, "tables within the bound", func() bool { return size() <= s.cleaner.maxBytes+slack })
		for rows, want := range map[string][2]int{ // at least, at most
			"wasmjob_items WHERE job LIKE 'open%'": {days, days}, "wasmjob_executions WHERE job LIKE 'open%'": {days, days}, "wasmjob_audit": {days, days},
			"JOB_EXECUTION_LOG WHERE complete_time IS NULL": {days, days}, "JOB_EXECUTION_LOG": {2 * each, 8 * each},
			"wasmjob_items WHERE job = 'good-00'": {each, each}, "wasmjob_events WHERE job = 'error-01'": {each, each}, "wasmjob_logs WHERE job = 'good-01'": {each, each},
			"wasmjob_items": {days + 3*each, days + 8*each}, "wasmjob_events": {3 * each, 45 * each},
			"wasmjob_items WHERE job = 'good-11'": {0, 0}, "wasmjob_events WHERE job = 'error-11'": {0, 0}, "wasmjob_logs WHERE job = 'good-11'": {0, 0}, "wasmjob_executions WHERE job = 'good-11'": {0, 0},
		} {
			if n := count(t, s, "SELECT COUNT(*) FROM "+rows); n < want[0] || n > want[1] {
				t.Errorf("%d rows of %s, want %v; %d bytes of %d", n, rows, want, size(), whole)
			}
		}
		s.cleaner.maxBytes = 1 // which nothing can reach
		for range 2 {          // also where only what runs is left
			round()
		}
		least, most := each, each // PostgreSQL's today stays
		if s.dialect == mySQL {
			least, most = 0, each/10
		}
		if ended, open := count(t, s, "SELECT COUNT(*) FROM wasmjob_items WHERE ended > 0"), count(t, s, "SELECT COUNT(*) FROM wasmjob_items WHERE ended = 0"); ended < least || ended > most || open != days {
			t.Errorf("%d runs that ended are left, want %d to %d; and %d others, want %d", ended, least, most, open, days)
		}
		// What comes late has a place, and what runs can end.
		late := now.Add(-11 * day)
		aRun(s, "late", "h", late, abi.OutcomeOK)
		s.AddEvent(event.Event{Time: now, Kind: event.ItemEnded, Host: "h", Job: "open-11", RunID: "open-11/t12/0", Trigger: 12, Item: &item, Fence: 1, Attempt: 1, Instant: late, Outcome: abi.OutcomeOK})
		await(t, "both", func() bool {
			return count(t, s, "SELECT COUNT(*) FROM wasmjob_items WHERE ended > 0 AND job IN ('late', 'open-11')") == 2
		})
		if state := s.State(); state.Dropped != 0 {
			t.Errorf("%+v", state)
		}
	})
}
