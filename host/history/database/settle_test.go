package database

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/history"
)

// TestChangesAtOnce: a change is found by who asks right after it, also among much else.
func TestChangesAtOnce(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		s := openStore(t, url, credentials, t.TempDir())
		for n := range 20 {
			s.AddEvent(number(n))
			s.AddChange(history.Change{Time: time.Now(), Who: "ann", What: fmt.Sprint(n), Job: "j"})
			page, err := s.Changes(t.Context(), history.Filter{Limit: 1})
			if err != nil || len(page.Records) != 1 || page.Records[0].What != fmt.Sprint(n) {
				t.Fatalf("after change %d there is %v, %v", n, page.Records, err)
			}
		}
	})
}

// TestChangeOfTrigger: who asked for a trigger is found among many changes by a few looks.
func TestChangeOfTrigger(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		s := openStore(t, url, credentials, t.TempDir())
		s.lookTime = 0 // one look is a page
		begun := time.Now().Add(-time.Hour)
		const many = 3000
		for n := range int64(many) {
			s.AddChange(history.Change{Time: begun.Add(time.Duration(n) * time.Millisecond), Who: "ann", What: "trigger", Job: "j", Trigger: n + 1})
			if n%500 == 0 {
				s.Sync(t.Context()) // no more than are queued
			}
		}
		await(t, "all changes", func() bool {
			page, err := s.Changes(t.Context(), history.Filter{Limit: 1})
			return err == nil && len(page.Records) == 1 && page.Records[0].Trigger == many
		})
		f := history.Filter{Trigger: 7, Limit: 1}
		for looks := 1; ; looks++ {
			page, err := s.Changes(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			if len(page.Records) == 1 && page.Records[0].Trigger == 7 {
				return
			}
			if f.After = page.Next; len(page.Records) != 0 || page.Next == "" || looks == many/firstRows {
				t.Fatalf("after %d looks: %v", looks, page)
			}
		}
	})
}

// TestChangesWhileAway: who asks while the database is away is not held up for long, and finds what is spooled.
func TestChangesWhileAway(t *testing.T) {
	t.Parallel()
	s, _, err := open(t, "postgres://u@127.0.0.1:1/d", "u:p", Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.AddChange(history.Change{Time: time.Now(), Who: "ann", What: "x"})
	if page, err := s.Changes(t.Context(), history.Filter{}); err != nil || len(page.Records) != 1 || page.Missing != history.Away {
		t.Errorf("%+v, %v", page, err)
	}
	state := s.State()
	if state.Spooled != 1 || state.Queued != 0 {
		t.Errorf("%+v; want the change to be spooled", state)
	}
	if !strings.Contains(state.Problem, "database=d`: 127.0.0.1:1 ") || strings.Count(state.Problem, "refused") != 1 || strings.Contains(state.Problem, "\n") {
		t.Errorf("the problem is %q; want one line, and the answer of the server once", state.Problem)
	}
}

// TestNextHasMore: a page whose time is up names a next one only if there is something behind what it looked through.
func TestNextHasMore(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		s := openStore(t, url, credentials, t.TempDir())
		s.lookTime = 0 // one look is a page
		at := time.Now().Add(-time.Hour)
		for run, lines := range map[string]int{"j/t1/0": firstRows, "j/t2/0": firstRows + 1} {
			for n := range lines {
				s.AddLine(history.Line{Time: at.Add(time.Duration(n) * time.Millisecond), Job: "j", RunID: run, Host: "h", Message: fmt.Sprint(n)})
			}
			s.Sync(t.Context())
		}
		for _, tc := range []struct {
			run, text string
			limit     int
			more      bool
		}{
			{"j/t1/0", "", history.MaxLimit, false},
			{"j/t2/0", "", history.MaxLimit, true},
			{"j/t1/0", "NEVER", 10, false},
			{"j/t2/0", "NEVER", 10, true},
		} {
			page, err := s.Lines(t.Context(), history.Filter{Run: tc.run, Text: tc.text, Limit: tc.limit, Oldest: true})
			if err != nil {
				t.Fatal(err)
			}
			if more := page.Next != ""; more != tc.more {
				t.Errorf("run %s, text %q: %d lines and a next page: %t, want %t", tc.run, tc.text, len(page.Records), more, tc.more)
			}
		}
	})
}
