package history

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wasmjob/wasmjob/host/config/ceiling"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What a job may take comes back in the course of a day, in whole stretches.
func TestQuotaComesBack(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	q := newQuota(ceiling.Ceiling{Name: ceiling.HistoryBytes, Value: 96_000}, now) // 4,000 an hour, 24,000 at once
	use := func(n int) (kept int) {
		for range n {
			if q.take(100, now) {
				q.beyond = false
				kept++
			} else {
				q.beyond = true
			}
		}
		return kept
	}
	if got := use(1000); got != 240 {
		t.Errorf("%d events at once, expected 240", got)
	}
	now = now.Add(time.Hour)
	if got := use(1000); got != 0 {
		t.Errorf("%d events after an hour, expected none before a quarter is free", got)
	}
	now = now.Add(time.Hour)
	if got := use(1000); got != 80 {
		t.Errorf("%d events after two hours, expected two hours' worth", got)
	}
	now = now.Add(100 * time.Hour)
	if got := use(1000); got != 240 {
		t.Errorf("%d events after days, expected no more than at the begin", got)
	}
	// An event that is larger than all that has room when nothing was used.
	now = now.Add(100 * time.Hour)
	if !q.take(1<<20, now) || q.take(1, now) {
		t.Error("a very large event takes all there is")
	}
}
