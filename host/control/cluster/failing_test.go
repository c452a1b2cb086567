package cluster

import (
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/engine"
)

// TestFailingSince: a job has been failing since the first failure in a row of its items, not since
// the last, and as often as the item that has failed most often in a row.
func TestFailingSince(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	ago := func(h int) time.Time { return now.Add(-time.Duration(h) * time.Hour) }
	failed := func(n, failures int, first, ok time.Time) engine.ItemStatus {
		return engine.ItemStatus{Item: n, LastOutcome: abi.OutcomeFail, LastEnd: ago(0), Failures: failures, Failing: first, LastOK: ok}
	}
	for name, c := range map[string]struct {
		items    []engine.ItemStatus
		failures int
		since    time.Time
	}{
		"well":                {[]engine.ItemStatus{{Item: 0, LastOutcome: abi.OutcomeOK, LastEnd: ago(0), LastOK: ago(0)}}, 0, time.Time{}},
		"once":                {[]engine.ItemStatus{failed(0, 1, ago(0), ago(1))}, 1, ago(0)},
		"often":               {[]engine.ItemStatus{failed(0, 12, ago(6), ago(7)), failed(1, 2, ago(1), ago(2))}, 12, ago(6)},
		"from the beginning":  {[]engine.ItemStatus{failed(0, 3, ago(3), time.Time{})}, 3, ago(3)},
		"an earlier version":  {[]engine.ItemStatus{failed(0, 4, time.Time{}, ago(5))}, 4, ago(5)},
		"once, of an earlier": {[]engine.ItemStatus{failed(0, 1, time.Time{}, ago(5))}, 1, ago(0)},
	} {
		status := job("a", engine.JobReady, c.items...)
		j := merge([]part{{"x", false, &status}}, now)
		if j.Failures != c.failures || !j.Failing.Equal(c.since) {
			t.Errorf("%s: %d times, since %s; want %d, %s", name, j.Failures, j.Failing, c.failures, c.since)
		}
	}
}
