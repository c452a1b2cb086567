package metrics

import (
	"runtime"
	"testing"

	"github.com/wasmjob/wasmjob/host/event"
)

// TestJobsAreSmall bounds what the metrics of a job take that has not run: a host may have thousands.
func TestJobsAreSmall(t *testing.T) {
	held := func() uint64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	const jobs, most = 1000, 8 << 10
	m := newMetrics()
	before := held()
	addJobs(m, jobs)
	if each := (held() - before) / jobs; each > most {
		t.Errorf("the metrics of a job take %d bytes, want at most %d", each, most)
	}
	runtime.KeepAlive(m)
}

// TestUnknownValueOfALabel: nothing is counted for a value that a label does not have, and the others are.
func TestUnknownValueOfALabel(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	addJobs(m, 1)
	before := len(scrape(t, m))
	for _, cause := range []event.SkipCause{"made up", event.SkipLost} {
		m.Observe(event.Event{Kind: event.ItemSkipped, Job: "job0", Cause: cause})
	}
	expect(t, m, map[string]string{
		`wasmjob_items_skipped_total{job_name="job0",reason="lost"}`:    "1",
		`wasmjob_items_skipped_total{job_name="job0",reason="made up"}`: "",
	})
	if after := len(scrape(t, m)); after != before {
		t.Errorf("%d series, %d before", after, before)
	}
}
