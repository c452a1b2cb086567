package database

import (
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// TestSeldomKinds: what a host and a job reported seldom is found by one look among very much about fires and runs.
func TestSeldomKinds(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		s := openStore(t, url, credentials, t.TempDir())
		if s.dialect == mySQL { // has no index for it: it is asked in parts
			return
		}
		s.lookTime = 0 // one look is a page
		begun := time.Now().Add(-time.Hour)
		of := func(n int, kind event.Kind, job string) event.Event {
			return event.Event{Time: begun.Add(time.Duration(n) * time.Millisecond), Kind: kind, Host: "h", Job: job}
		}
		s.AddEvent(of(0, event.HostStarted, ""))
		s.AddEvent(of(1, event.JobAdded, "j"))
		const many = 3 * firstRows
		for n := range many {
			s.AddEvent(of(n+2, event.ItemSkipped, "j"))
		}
		s.AddEvent(of(many+2, event.FireSkipped, "last"))
		await(t, "all", func() bool {
			page, err := s.Events(t.Context(), history.Filter{Limit: 1})
			return err == nil && len(page.Records) == 1 && page.Records[0].Job == "last"
		})
		for name, f := range map[string]history.Filter{"of hosts": {Kinds: []event.Kind{event.HostStarted, event.HostGone}}, "of a job": {Jobs: []string{"j"}, Kinds: []event.Kind{event.JobAdded, event.JobRemoved}}} {
			if page, err := s.Events(t.Context(), f); err != nil || len(page.Records) != 1 || page.Next != "" {
				t.Errorf("%s: %d records, more: %q, %v", name, len(page.Records), page.Next, err)
			}
		}
		if page, err := s.Events(t.Context(), history.Filter{Kinds: []event.Kind{event.HostStarted, event.FireSkipped}}); err != nil || len(page.Records) != 1 {
			t.Errorf("of both: %v, %v", page.Records, err)
		}
	})
}
