package database

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// nowhere is a server's database that no server answers for.
func nowhere(t *testing.T) *Config {
	t.Helper()
	c, err := Parse("postgres://127.0.0.1:1/wasmjob?sslmode=disable", "wasmjob:secret")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ask asks all lists of a store about a job, and returns how many records of each are found, and what is said to be missing.
func ask(t *testing.T, s *Store, f history.Filter) (found [5]int, missing string) {
	t.Helper()
	f.Jobs = []string{"j"}
	note := func(i, n int, m string, err error) {
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && m != missing {
			t.Errorf("list %d says %q, the others %q", i, m, missing)
		}
		found[i], missing = n, m
	}
	fires, err := s.Fires(t.Context(), f)
	note(0, len(fires.Records), fires.Missing, err)
	runs, err := s.Runs(t.Context(), f)
	note(1, len(runs.Records), runs.Missing, err)
	events, err := s.Events(t.Context(), f)
	note(2, len(events.Records), events.Missing, err)
	lines, err := s.Lines(t.Context(), f)
	note(3, len(lines.Records), lines.Missing, err)
	changes, err := s.Changes(t.Context(), f)
	note(4, len(changes.Records), changes.Missing, err)
	return found, missing
}

// all reports one of each.
func all(s *Store, n int) {
	at := time.Now().Add(time.Duration(n) * time.Second)
	aRun(s, "j", "h", at, abi.OutcomeOK)
	s.AddChange(history.Change{Time: at, Job: "j", Who: "ann", What: "trigger"})
}

// TestStandIn: while the database does not answer, what this host has not written there is found, and it is said that the rest
// is missing: what waits in memory, what an earlier process has left in the spool, and what comes meanwhile.
func TestStandIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func() *Store {
		s, err := Open(t.Context(), Options{Config: nowhere(t), Spool: dir})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	first := open()
	for n := range 3 {
		all(first, n)
	}
	first.Sync(t.Context())
	perRun := 0
	if found, missing := ask(t, first, history.Filter{}); found[0] != 3 || found[1] != 3 || found[3] != 3 || found[4] != 3 || missing != history.Away {
		t.Fatalf("%v, %q", found, missing)
	} else {
		perRun = found[2] / 3
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Runs(t.Context(), history.Filter{}); err == nil {
		t.Error("a store that is closed answers")
	}

	s := open()
	if found, missing := ask(t, s, history.Filter{}); found != [5]int{3, 3, 3 * perRun, 3, 3} || missing != history.Away {
		t.Errorf("of the spool: %v, %q", found, missing)
	}
	all(s, 10)
	s.Sync(t.Context())
	if found, _ := ask(t, s, history.Filter{}); found != [5]int{4, 4, 4 * perRun, 4, 4} {
		t.Errorf("with what came since: %v", found)
	}
	if found, missing := ask(t, s, history.Filter{Unwritten: true}); found != [5]int{4, 4, 4 * perRun, 4, 4} || missing != "" {
		t.Errorf("for another host: %v, %q", found, missing)
	}
	page, err := s.Runs(t.Context(), history.Filter{Limit: 3})
	if err != nil || len(page.Records) != 3 || page.Next == "" {
		t.Fatalf("%+v, %v", page, err)
	}
	if page, err = s.Runs(t.Context(), history.Filter{Limit: 3, After: page.Next}); err != nil || len(page.Records) != 1 || page.Next != "" {
		t.Errorf("the next page: %+v, %v", page, err)
	}
	if _, err := s.Runs(t.Context(), history.Filter{Limit: -1}); !errors.Is(err, history.ErrFilter) {
		t.Errorf("a wrong filter: %v", err)
	}
}

// TestStandIn_long: of a long spool the newest is found, and that is said.
func TestStandIn_long(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Options{Config: nowhere(t), Spool: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	text := make([]byte, 4000)
	for i := range text {
		text[i] = byte('a' + i%26)
	}
	const n = 6000 // 24 MB
	begin := time.Now()
	for i := range n {
		s.AddEvent(event.Event{Time: begin.Add(time.Duration(i) * time.Millisecond), Kind: event.JobChanged, Host: "h", Job: "j", Reason: fmt.Sprintf("%d %s", i, text)})
		if i%1000 == 0 {
			s.Sync(t.Context())
		}
	}
	s.Sync(t.Context())
	var page history.Page[event.Event]
	await(t, "newest event", func() bool {
		page, err = s.Events(t.Context(), history.Filter{Limit: 1})
		return err == nil && len(page.Records) == 1 && page.Records[0].Reason[:4] == "5999"
	})
	if page.Missing != history.AwayForLong {
		t.Errorf("%q", page.Missing)
	}
}

// TestStandIn_back: when the database answers again, it is asked, and has all.
func TestStandIn_back(t *testing.T) {
	t.Parallel()
	servers(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		p := newProxy(t, addressOf(url))
		s := openStore(t, p.through(url), credentials, t.TempDir())
		all(s, 0)
		await(t, "run in the database", func() bool { found, missing := ask(t, s, history.Filter{}); return found[1] == 1 && missing == "" })
		if found, _ := ask(t, s, history.Filter{Unwritten: true}); found != [5]int{} {
			t.Errorf("with the database there, %v is not written there", found)
		}
		p.refuse.Store(true)
		p.cut()
		all(s, 1)
		await(t, "run that is not written", func() bool {
			page, err := s.Runs(t.Context(), history.Filter{Jobs: []string{"j"}})
			return err == nil && page.Missing == history.Away && len(page.Records) == 1
		})
		p.refuse.Store(false)
		await(t, "all in the database", func() bool {
			page, err := s.Runs(t.Context(), history.Filter{Jobs: []string{"j"}})
			return err == nil && page.Missing == "" && len(page.Records) == 2 && s.State().Problem == ""
		})
		await(t, "end of the copy", func() bool {
			s.standIn.mu.Lock()
			defer s.standIn.mu.Unlock()
			return s.standIn.now == nil
		})
	})
}
