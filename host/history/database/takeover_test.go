package database

import (
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// TestTakenOverFromALateHost: the host that a run was taken over from reports its begin, which was a
// day before, while the run goes on elsewhere. It stays one run.
func TestTakenOverFromALateHost(t *testing.T) {
	t.Parallel()
	servers(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		late, next := openStore(t, url, credentials, t.TempDir()), openStore(t, url, credentials, t.TempDir())
		midnight := time.Now().UTC().Truncate(day)
		item := 0
		e := event.Event{Kind: event.ItemStarted, Job: "j", RunID: "j/" + midnight.Add(-2*time.Second).Format("2006-01-02T15:04:05.000Z") + "/0", Instant: midnight.Add(-2 * time.Second), Item: &item, Attempt: 1}
		report := func(s *Store, host string, fence int64, kind event.Kind, at time.Time) {
			e := e
			e.Host, e.Fence, e.Kind, e.Time = host, fence, kind, at
			e.Source = abi.SourceSchedule
			if fence > 1 {
				e.Source = abi.SourceFailover
			}
			if kind == event.ItemEnded {
				e.Outcome = abi.OutcomeOK
			}
			s.AddEvent(e)
		}
		rows := func(want string) {
			t.Helper()
			await(t, want, func() bool { return count(t, next, "SELECT COUNT(*) FROM wasmjob_items WHERE "+want) == 1 })
		}
		report(next, "b", 2, event.ItemStarted, midnight.Add(time.Second))
		rows("fence = 2")
		report(late, "a", 1, event.ItemStarted, midnight.Add(-time.Second))
		rows("repeated <> 0")
		report(next, "b", 2, event.ItemEnded, midnight.Add(2*time.Second))
		rows("ended <> 0")
		page, err := late.Runs(t.Context(), history.Filter{})
		if err != nil || len(page.Records) != 1 {
			t.Fatalf("%+v, %v", page.Records, err)
		}
		r := page.Records[0]
		if !r.First.Equal(midnight.Add(-time.Second)) || !r.Begun.Equal(midnight.Add(time.Second)) || r.Lag != time.Second || r.Host != "b" || r.Outcome != abi.OutcomeOK {
			t.Errorf("%+v", r)
		}
	})
}
