package database

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/event"
)

// TestReader: a database is read in order and whole, from when on successes are kept, also beside a host that writes.
func TestReader(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		s := openStore(t, url, credentials, t.TempDir())
		begin := time.Now().Add(-time.Hour)
		add := func(n int, at time.Time) {
			s.AddEvent(event.Event{Time: at, Kind: event.JobChanged, Host: fmt.Sprintf("10.0.0.%d@-@7-x", n%3), Job: "j", Reason: fmt.Sprint(n)})
		}
		const all = 2500
		for n := range all {
			add(n, begin.Add(time.Duration(n)*time.Millisecond))
		}
		s.AddEvent(event.Event{Time: begin.Add(-30 * day), Kind: event.JobError, Host: "10.0.0.1@-@7-x", Job: "j", Reason: "long ago"}) // which is kept
		s.Sync(t.Context())
		config, err := Parse(url, credentials)
		if err != nil {
			t.Fatal(err)
		}
		var r *Reader
		await(t, "reader", func() bool { // the tables are made
			r, err = OpenReader(t.Context(), config)
			return err == nil
		})
		read := func() (list []string) {
			for after := ""; ; {
				events, next, err := r.Events(t.Context(), after)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range events {
					list = append(list, e.Reason)
				}
				if after = next; next == "" {
					return list
				}
			}
		}
		var want []string
		for n := range all {
			want = append(want, fmt.Sprint(n))
		}
		await(t, "all events", func() bool { return len(read()) >= all })
		if got := read(); !slices.Equal(got, want) {
			t.Errorf("%d events are read, expected %d: %.200q", len(got), all, got)
		}
		if strings.Contains(r.Name(), "secret") || (credentials != "" && strings.Contains(r.Name(), strings.SplitN(credentials, ":", 2)[1])) {
			t.Errorf("the name has the password: %s", r.Name())
		}
		if config.path != "" {
			if _, err := r.store.db.ExecContext(t.Context(), "DELETE FROM wasmjob_events"); err == nil {
				t.Error("a reader can write")
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if _, err := s.db.ExecContext(t.Context(), "DELETE FROM wasmjob_schema WHERE version > 2"); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenReader(t.Context(), config); err == nil || !strings.Contains(err.Error(), "found version 2 of the tables, expected 3: start a host of this version with it") {
			t.Errorf("of older tables: %v", err)
		}
		if _, err := s.db.ExecContext(t.Context(), "INSERT INTO wasmjob_schema (version, since) VALUES (99, 0)"); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenReader(t.Context(), config); err == nil || !strings.Contains(err.Error(), "newer version") {
			t.Errorf("of newer tables: %v", err)
		}
	})
}

// TestReaderOfNothing: no file is made where none is, and what is no history is refused.
func TestReaderOfNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "none.db")
	config, err := Parse("sqlite:"+path, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenReader(t.Context(), config); err == nil || !strings.Contains(err.Error(), path+": no history can be read there") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("a file was made: %v", err)
	}
}
