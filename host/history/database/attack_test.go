package database

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// open opens a store with a log.
func open(t *testing.T, url, credentials string, o Options) (*Store, *observer.ObservedLogs, error) {
	t.Helper()
	c, err := Parse(url, credentials)
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zapcore.DebugLevel)
	o.Config, o.Logger = c, zap.New(core)
	if o.Spool == "" {
		o.Spool = t.TempDir()
	}
	s, err := Open(t.Context(), o)
	if err == nil {
		t.Cleanup(func() { _ = s.Close() })
	}
	return s, logs, err
}

// TestDeadAtTheStart: records wait on the disk, also for the next process, and come into
// the database once and in order.
func TestDeadAtTheStart(t *testing.T) {
	t.Parallel()
	servers(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		p := newProxy(t, addressOf(url))
		p.refuse.Store(true)
		spool, n := t.TempDir(), 0
		for range 2 {
			s, logs, err := open(t, p.through(url), credentials, Options{Spool: spool})
			if err != nil {
				t.Fatal(err)
			}
			for range 500 {
				s.AddEvent(number(n))
				n++
			}
			await(t, "word of the problem", func() bool { return s.State().Problem != "" && !s.State().Since.IsZero() })
			if page, err := s.Events(t.Context(), history.Filter{}); err != nil || page.Missing != history.Away {
				t.Errorf("a query: %q, %v", page.Missing, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if state := s.State(); state.Dropped != 0 || logs.FilterLevelExact(zap.WarnLevel).Len() != 1 {
				t.Errorf("state %+v, log %v", state, logs.All())
			}
		}
		s, _, err := open(t, p.through(url), credentials, Options{Spool: spool})
		if err != nil {
			t.Fatal(err)
		}
		if spooled := s.State().Spooled; spooled != 1000 {
			t.Errorf("%d records are spooled, want 1000", spooled)
		}
		s.AddEvent(number(n))
		p.refuse.Store(false)
		await(t, "all in the database", func() bool { state := s.State(); return state.Problem == "" && state.Spooled+state.Queued == 0 })
		await(t, "the last", func() bool { return len(messages(t, s)) == 1001 })
		got := messages(t, s)
		slices.SortFunc(got, func(a, b string) int { return len(a)*10000 - len(b)*10000 + strings.Compare(a, b) })
		for i, m := range got {
			if m != fmt.Sprint(i) {
				t.Fatalf("record %d is %s", i, m)
			}
		}
		if left, err := os.ReadDir(spool); err != nil || len(left) != 0 {
			t.Errorf("the spool has %v, %v", left, err)
		}
	})
}

// TestDyingInTheMiddle: connections are cut at any moment, also between a commit and its
// answer. Nothing is lost, nothing is there twice.
func TestDyingInTheMiddle(t *testing.T) {
	t.Parallel()
	servers(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		p := newProxy(t, addressOf(url))
		s, _, err := open(t, p.through(url), credentials, Options{})
		if err != nil {
			t.Fatal(err)
		}
		random := rand.New(rand.NewPCG(1, 2))
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		const total = 3000
		for n := range total {
			s.AddEvent(number(n))
			if n%3 == 0 {
				<-tick.C
			}
			if random.IntN(60) == 0 {
				p.cut()
			}
			if n == total/3 {
				p.refuse.Store(true)
				p.cut()
			}
			if n == total/2 {
				p.refuse.Store(false)
			}
		}
		await(t, "all in the database", func() bool { state := s.State(); return state.Problem == "" && state.Spooled+state.Queued == 0 })
		await(t, "the last", func() bool {
			page, err := s.Events(t.Context(), history.Filter{Text: fmt.Sprint(total - 1)})
			return err == nil && len(page.Records) == 1
		})
		inOrder(t, s, total)
		if state := s.State(); state.Dropped != 0 {
			t.Errorf("state %+v", state)
		}
	})
}

// TestSlow: a database that takes half a second for each answer holds nobody up, and nothing is lost.
func TestSlow(t *testing.T) {
	t.Parallel()
	servers(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		p := newProxy(t, addressOf(url))
		s, _, err := open(t, p.through(url), credentials, Options{Queue: 2000})
		if err != nil {
			t.Fatal(err)
		}
		p.delay.Store(int64(300 * time.Millisecond))
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		const total = 20_000
		var slowest time.Duration
		for n := range total {
			began := time.Now()
			s.AddEvent(number(n))
			slowest = max(slowest, time.Since(began))
			if n%15 == 0 {
				<-tick.C
			}
		}
		if state := s.State(); state.Dropped != 0 || state.Spooled == 0 {
			t.Errorf("state %+v; want nothing dropped, and something spooled", state)
		}
		if slowest > 250*time.Millisecond { // it would be 300 ms if it waited for an answer
			t.Errorf("adding took %s", slowest)
		}
		p.delay.Store(0)
		await(t, "all in the database", func() bool { state := s.State(); return state.Spooled+state.Queued == 0 })
		await(t, "the last", func() bool {
			page, err := s.Events(t.Context(), history.Filter{Text: fmt.Sprint(total - 1)})
			return err == nil && len(page.Records) == 1
		})
		inOrder(t, s, total)
	})
}

// TestSpoolIsFull: what has no room is dropped and counted, and that is said once.
func TestSpoolIsFull(t *testing.T) {
	t.Parallel()
	spool := t.TempDir()
	s, logs, err := open(t, "postgres://u@127.0.0.1:1/d", "u:p", Options{Spool: spool, SpoolBytes: 100 << 10})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20_000 {
		s.AddEvent(number(n))
		for s.Queued() > 4000 {
			time.Sleep(time.Millisecond) // the disk is slower
		}
	}
	await(t, "full spool", func() bool { return s.State().Dropped > 1000 })
	if n := logs.FilterMessageSnippet("spool cannot take").Len(); n != 1 {
		t.Errorf("%d lines about the full spool: %v", n, logs.All())
	}
	if err := s.Close(); err == nil || !errors.Is(err, errSpoolFull) && !strings.Contains(err.Error(), "spool") {
		t.Logf("closed: %v", err) // what was in memory may have room, or not
	}
	names, err := filepath.Glob(filepath.Join(spool, "*"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%v %v", names, err)
	}
}

// TestNewerSchema: a host does not write to tables of a newer version.
func TestNewerSchema(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		s := openStore(t, url, credentials, t.TempDir())
		if _, err := s.db.ExecContext(t.Context(), "INSERT INTO wasmjob_schema (version, since) VALUES (7, 0)"); err != nil {
			t.Fatal(err)
		}
		_, _, err := open(t, url, credentials, Options{})
		if !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), "found version 7 of the tables, expected at most 3") || !strings.Contains(err.Error(), "upgrade this host") {
			t.Errorf("opening: %v", err)
		}
	})
}

// TestOlderSchema: tables of version 1 are brought up to date with what they hold, also if a host
// began that and ended before it had noted it.
func TestOlderSchema(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		s := openStore(t, url, credentials, t.TempDir())
		aRun(s, "cities", "a", time.Now(), abi.OutcomeOK)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		undo := []string{"DELETE FROM wasmjob_schema WHERE version >= 2"}
		if s.dialect != mySQL { // of the others, a migration is one transaction
			undo = append(undo, "ALTER TABLE wasmjob_items DROP COLUMN repeated")
		}
		db, err := s.config.open()
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		for _, statement := range undo {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		s = openStore(t, url, credentials, t.TempDir())
		runs, err := s.Runs(t.Context(), history.Filter{})
		if err != nil || len(runs.Records) != 1 || !runs.Records[0].First.IsZero() || runs.Records[0].Begun.IsZero() {
			t.Errorf("%+v %v", runs, err)
		}
		if n := count(t, s, "SELECT COUNT(*) FROM wasmjob_schema"); n != schemaVersion {
			t.Errorf("%d versions, want %d", n, schemaVersion)
		}
		if s.dialect == mySQL { // what has not ended is looked for at each start of a host
			n := count(t, s, "SELECT COUNT(DISTINCT table_name) FROM information_schema.statistics WHERE table_schema = DATABASE() AND index_name IN ('wasmjob_items_open', 'wasmjob_executions_open')")
			if n != 2 {
				t.Errorf("%d tables have a key of what has not ended, want 2", n)
			}
		}
	})
}

// TestHostsMigrateAtOnce: each finds the tables, which are made once.
func TestHostsMigrateAtOnce(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		var group sync.WaitGroup
		spool := t.TempDir()
		for n := range 6 {
			group.Go(func() {
				s, _, err := open(t, url+map[bool]string{true: "", false: "?"}[strings.Contains(url, "?")]+"&elasticjob=true", credentials, Options{Spool: spool})
				if err != nil {
					t.Error(err)
					return
				}
				aRun(s, "cities", fmt.Sprint("host", n), time.Now().Add(time.Duration(n)*time.Second), abi.OutcomeOK)
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				if state := s.State(); state.Dropped+state.Spooled != 0 || state.Problem != "" {
					t.Errorf("%+v", state)
				}
			})
		}
		group.Wait()
		s := openStore(t, url, credentials, t.TempDir())
		if n := count(t, s, "SELECT COUNT(*) FROM wasmjob_schema"); n != schemaVersion {
			t.Errorf("%d versions, want %d", n, schemaVersion)
		}
		if n := count(t, s, "SELECT COUNT(*) FROM wasmjob_items"); n != 6 {
			t.Errorf("%d runs of 6", n)
		}
	})
}

// TestARecordThatIsRefused: the others are written.
func TestARecordThatIsRefused(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		s, logs, err := open(t, url, credentials, Options{})
		if err != nil {
			t.Fatal(err)
		}
		statement := "ALTER TABLE wasmjob_audit ADD CONSTRAINT poison CHECK (who <> 'poison')"
		if s.dialect == sqlite {
			statement = "CREATE TRIGGER poison BEFORE INSERT ON wasmjob_audit WHEN NEW.who = 'poison' BEGIN SELECT RAISE(ABORT, 'poison'); END"
		}
		if _, err := s.db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
		for n := range 50 {
			c := history.Change{Time: time.Now(), Who: fmt.Sprint(n), What: "x"}
			if n == 20 || n == 33 {
				c.Who = "poison"
			}
			s.AddChange(c)
		}
		await(t, "the others", func() bool { return count(t, s, "SELECT COUNT(*) FROM wasmjob_audit") == 48 })
		await(t, "what was dropped", func() bool { return s.State().Dropped == 2 })
		if n := logs.FilterMessage("the database does not take a record").Len(); n != 2 {
			t.Errorf("log %v", logs.All())
		}
	})
}

// TestEndedHost: what a host had begun is not as if it ran when another host has seen its end, also
// with lines that were logged; another host's row stays.
func TestEndedHost(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		at, item := time.Now().UTC().Truncate(time.Second), 3
		a := openStore(t, url, credentials, t.TempDir())
		e := event.Event{Time: at.Add(time.Second), Kind: event.FireStarted, Host: "a@-@1-x", Job: "cities", Instant: at, Source: abi.SourceSchedule, Items: []int{3}, Total: 4}
		a.AddEvent(e)
		e.Kind, e.Item, e.Items, e.RunID, e.Fence, e.Attempt = event.ItemStarted, &item, nil, "cities/"+at.Format("2006-01-02T15:04:05.000Z")+"/3", 5, 1
		a.AddEvent(e)
		e.Host, e.Job, e.RunID = "c@-@1-x", "towns", "towns/"+at.Format("2006-01-02T15:04:05.000Z")+"/3"
		a.AddEvent(e)
		a.AddLine(history.Line{Time: e.Time, Job: "cities", RunID: "cities/" + at.Format("2006-01-02T15:04:05.000Z") + "/3", Item: 3, Host: "a@-@1-x", Message: "last"})
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		b := openStore(t, url, credentials, t.TempDir())
		b.AddEvent(event.Event{Time: at.Add(time.Minute), Kind: event.HostGone, Host: "b@-@1-x", Other: "a@-@1-x"})
		await(t, "the end", func() bool {
			page, err := b.Runs(t.Context(), history.Filter{Outcomes: []abi.Outcome{history.Unknown}})
			return err == nil && len(page.Records) == 1 && page.Records[0].Job == "cities" && page.Records[0].Ended.Equal(at.Add(time.Minute))
		})
		fires, err := b.Fires(t.Context(), history.Filter{Failed: true})
		if err != nil || len(fires.Records) != 1 || fires.Records[0].Unknown != 1 || fires.Records[0].Running != 0 || fires.Records[0].Message == "" {
			t.Errorf("%+v %v", fires, err)
		}
		if n := count(t, b, "SELECT COUNT(*) FROM wasmjob_logs WHERE keep = 1"); n != 1 {
			t.Errorf("%d lines are kept as long as what failed, want 1", n)
		}
		if n := count(t, b, "SELECT COUNT(*) FROM wasmjob_items WHERE ended = 0"); n != 1 {
			t.Errorf("%d runs go on, want 1", n)
		}
		// One that ends just before that is not as if it had failed.
		e.Host, e.Job, e.RunID = "d@-@1-x", "late", "late/"+at.Format("2006-01-02T15:04:05.000Z")+"/3"
		b.AddEvent(e)
		b.AddLine(history.Line{Time: e.Time, Job: e.Job, RunID: e.RunID, Item: 3, Host: e.Host, Message: "well"})
		await(t, "the line", func() bool {
			page, err := b.Lines(t.Context(), history.Filter{Run: e.RunID})
			return err == nil && len(page.Records) == 1
		})
		e.Kind, e.Outcome = event.ItemEnded, abi.OutcomeOK
		b.AddEvent(e)
		b.AddEvent(event.Event{Time: at.Add(time.Minute), Kind: event.HostGone, Host: "b@-@1-x", Other: e.Host})
		await(t, "its end", func() bool {
			page, err := b.Runs(t.Context(), history.Filter{Run: e.RunID, Outcomes: []abi.Outcome{abi.OutcomeOK}})
			return err == nil && len(page.Records) == 1
		})
		b.Sync(t.Context())
		if n := count(t, b, "SELECT COUNT(*) FROM wasmjob_logs WHERE keep = 1"); n != 1 {
			t.Errorf("%d lines are kept as long as what failed, want 1", n)
		}
	})
}

// TestHostsThatDieAtOnce: a host that notes the ends of several hosts ends their rows in one order,
// whatever the order in which they were seen to be gone: two that do it at once do not deadlock.
func TestHostsThatDieAtOnce(t *testing.T) {
	t.Parallel()
	url, credentials := sqliteURL(t)
	at, item := time.Now().UTC().Truncate(time.Second), 0
	s := openStore(t, url, credentials, t.TempDir())
	for _, job := range []string{"c", "a", "d", "b"} {
		e := event.Event{Time: at, Kind: event.FireStarted, Host: job + "@-@1-x", Job: job, Instant: at, Source: abi.SourceSchedule, Items: []int{0}, Total: 1}
		s.AddEvent(e)
		e.Kind, e.Item, e.Items, e.RunID, e.Fence, e.Attempt = event.ItemStarted, &item, nil, job+"/"+at.Format("2006-01-02T15:04:05.000Z")+"/0", 5, 1
		s.AddEvent(e)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, url, credentials, t.TempDir()) // which has none of them in its memory
	for table, name := range map[string]string{"wasmjob_items": "OLD.id", "wasmjob_executions": "OLD.fire"} {
		for _, statement := range []string{
			"CREATE TABLE seen_" + table + " (n INTEGER PRIMARY KEY, job TEXT)",
			"CREATE TRIGGER note_" + table + " AFTER UPDATE ON " + table + " BEGIN INSERT INTO seen_" + table + " (job) VALUES (substr(" + name + ", 1, 1)); END",
		} {
			if _, err := s.db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	var batch []history.Entry
	for _, job := range []string{"d", "b", "c", "a"} {
		entry, err := history.NewEntry(history.Record{Event: &event.Event{Time: at.Add(time.Minute), Kind: event.HostGone, Host: "e@-@1-x", Other: job + "@-@1-x"}})
		if err != nil {
			t.Fatal(err)
		}
		batch = append(batch, entry)
	}
	s.queue.add(batch)
	await(t, "their ends", func() bool { return count(t, s, "SELECT COUNT(*) FROM wasmjob_items WHERE ended > 0") == 4 })
	for _, table := range []string{"wasmjob_items", "wasmjob_executions"} {
		var order string
		if err := s.db.QueryRowContext(t.Context(), "SELECT group_concat(job, '') FROM (SELECT job FROM seen_"+table+" ORDER BY n)").Scan(&order); err != nil || order != "abcd" {
			t.Errorf("rows of %s were ended in the order %s, %v", table, order, err)
		}
	}
}

// TestTwoHosts: hosts of one fire write to one database, and a host that takes over knows
// what the other has written.
func TestTwoHosts(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		a, b := openStore(t, url, credentials, t.TempDir()), openStore(t, url, credentials, t.TempDir())
		at, item := time.Now().UTC().Truncate(time.Second), 3
		e := event.Event{Time: at.Add(time.Second), Kind: event.FireStarted, Host: "a", Job: "cities", Instant: at, Source: abi.SourceSchedule, Items: []int{3}, Total: 4}
		a.AddEvent(e)
		e.Kind, e.Item, e.Items, e.RunID, e.Fence, e.Attempt = event.ItemStarted, &item, nil, "cities/"+at.Format("2006-01-02T15:04:05.000Z")+"/3", 5, 1
		a.AddEvent(e)
		await(t, "the first host's run", func() bool {
			page, err := b.Runs(t.Context(), history.Filter{Run: e.RunID})
			return err == nil && len(page.Records) == 1
		})
		second := e
		second.Host, second.Fence, second.Source, second.Time = "b", 6, abi.SourceFailover, at.Add(3*time.Second)
		start := second
		start.Kind, start.Item, start.Items, start.RunID, start.Fence, start.Attempt = event.FireStarted, nil, []int{3}, "", 0, 0
		b.AddEvent(start)
		b.AddEvent(second)
		await(t, "the second host's run", func() bool {
			page, err := a.Runs(t.Context(), history.Filter{Run: e.RunID})
			return err == nil && len(page.Records) == 1 && page.Records[0].Host == "b"
		})
		e.Kind, e.Time, e.Outcome = event.ItemEnded, at.Add(4*time.Second), abi.OutcomeCancelled // by a host that does not know it yet
		a.AddEvent(e)
		second.Kind, second.Time, second.Outcome = event.ItemEnded, at.Add(5*time.Second), abi.OutcomeOK
		b.AddEvent(second)
		start.Kind, start.Time, start.Outcome = event.FireEnded, at.Add(5*time.Second), abi.OutcomeOK
		b.AddEvent(start)
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Fatal(err)
		}
		s := openStore(t, url, credentials, t.TempDir())
		runs, err := s.Runs(t.Context(), history.Filter{})
		if err != nil || len(runs.Records) != 1 || runs.Records[0].Outcome != abi.OutcomeOK || runs.Records[0].Fence != 6 ||
			!runs.Records[0].First.Equal(at.Add(time.Second)) || !runs.Records[0].Begun.Equal(at.Add(3*time.Second)) {
			t.Errorf("%+v %v", runs, err)
		}
		fires, err := s.Fires(t.Context(), history.Filter{})
		if err != nil || len(fires.Records) != 1 || fires.Records[0].Succeeded != 1 || fires.Records[0].Running != 0 || !slices.Equal(fires.Records[0].Hosts, []string{"a", "b"}) {
			t.Errorf("%+v %v", fires, err)
		}
	})
}

// TestFullDisk: SQLite cannot write any more, and then can again. Nothing is lost: what it
// does not take is spooled.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv("WASMJOB_TEST_FULL_DISK"); dir != "" {
		fullDisk(t, dir)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
	cmd.Env = append(os.Environ(), "WASMJOB_TEST_FULL_DISK="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// fullDisk runs in a process of its own, whose files may not grow beyond a limit.
func fullDisk(t *testing.T, dir string) {
	limit := unix.Rlimit{Cur: 2 << 20, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	s, _, err := open(t, "sqlite:"+filepath.Join(dir, "h.db"), "", Options{Spool: filepath.Join(dir, "spool")})
	if err != nil {
		t.Fatal(err)
	}
	const total = 20_000
	for n := range total {
		s.AddEvent(number(n))
		if n%500 == 0 {
			await(t, "room", func() bool { return s.Queued() < 4000 })
		}
		if n == 15_000 {
			await(t, "full disk", func() bool { return s.State().Problem != "" || s.State().Queued == 0 })
		}
	}
	await(t, "full disk", func() bool { return s.State().Problem != "" })
	t.Log(s.State())
	limit.Cur = unix.RLIM_INFINITY
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	await(t, "all in the database", func() bool { state := s.State(); return state.Problem == "" && state.Spooled+state.Queued == 0 })
	await(t, "the last", func() bool {
		page, err := s.Events(t.Context(), history.Filter{Text: fmt.Sprint(total - 1)})
		return err == nil && len(page.Records) == 1
	})
	inOrder(t, s, total)
}

// TestPasswordIsNowhere: not in what is logged, returned and shown when the server refuses it.
func TestPasswordIsNowhere(t *testing.T) {
	t.Parallel()
	servers(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		user, _, _ := strings.Cut(credentials, ":")
		for _, given := range [][2]string{{url, user + ":s3cr3t/%@:"}, {strings.Replace(url, user+"@", user+":s3cr3t%2F%25%40%3A@", 1), ""}} {
			s, logs, err := open(t, given[0], given[1], Options{})
			if err != nil {
				t.Fatal(err)
			}
			s.AddEvent(number(0))
			await(t, "refusal", func() bool { return s.State().Problem != "" })
			_, err = s.Events(t.Context(), history.Filter{})
			shown := fmt.Sprintf("%+v %v %v", s.State(), err, s.Close())
			for _, l := range logs.All() {
				shown += fmt.Sprint(l.Message, l.ContextMap())
			}
			if strings.Contains(shown, "s3cr3t") || !strings.Contains(shown, user) {
				t.Errorf("shown: %s", shown)
			}
		}
	})
}
