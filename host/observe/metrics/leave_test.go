package metrics

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/sandbox/capability"
)

func newMetrics() *Metrics {
	return New(Options{Version: "v7", Status: func() engine.Status { return engine.Status{} }})
}

func addJobs(m *Metrics, n int) {
	for i := range n {
		m.Observe(event.Event{Kind: event.JobAdded, Job: fmt.Sprintf("job%d", i)})
	}
}

// TestScrapeWhileJobsComeAndGo has a scrape ask for a value that waits for an event of a job
// that comes and one of a job that goes. The scrape has more series than it collects ahead.
func TestScrapeWhileJobsComeAndGo(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	addJobs(m, 1200)
	var once sync.Once
	err := m.GaugeFunc("asked", "Asked.", func() float64 {
		once.Do(func() {
			m.Observe(event.Event{Kind: event.JobAdded, Job: "new"})
			m.Observe(event.Event{Kind: event.JobRemoved, Job: "job0"})
		})
		return 1
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // the order of the collectors is not known
		if got := scrape(t, m)["wasmjob_asked"]; got != "1" {
			t.Fatalf("wasmjob_asked is %q, want 1", got)
		}
		once = sync.Once{}
	}
}

// TestJobThatLeavesKeepsNoSeries gives a job all series that it can have.
func TestJobThatLeavesKeepsNoSeries(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	addJobs(m, 2)
	refused := make(map[string]int64)
	for _, reason := range capability.Reasons() {
		refused[reason] = 1
	}
	outside := make(map[string]abi.OutsideCount)
	for _, name := range capabilities {
		outside[name] = abi.OutsideCount{Calls: 1, Failed: 1, Sent: 1, Received: 1, Refused: refused}
	}
	for _, job := range []string{"job0", "job1"} {
		see := func(e event.Event) {
			e.Job, e.Time = job, time.Unix(1, 0)
			m.Observe(e)
		}
		for _, kind := range []event.Kind{event.FireStarted, event.ItemStarted, event.Listener, event.ItemCompleted, event.ItemRepaired, event.Elected, event.Sharded} {
			see(event.Event{Kind: kind, Items: []int{0, 1}, Outside: outside, DroppedLines: 1})
		}
		for _, outcome := range abi.Outcomes() {
			see(event.Event{Kind: event.ItemEnded, Outcome: outcome, Outside: outside, AttemptEnd: event.AttemptEnd{Batches: 1, Records: 1}})
		}
		for _, cause := range event.SkipCauses() {
			see(event.Event{Kind: event.FireSkipped, Cause: cause})
			see(event.Event{Kind: event.ItemSkipped, Cause: cause})
		}
		for _, quota := range ceiling.Quotas() {
			see(event.Event{Kind: event.OverQuota, Ceiling: quota, Count: 1})
		}
		for kind, name := range map[int]string{abi.MetricCounter: "c", abi.MetricGauge: "g", abi.MetricHistogram: "h"} {
			if code := m.Guest(event.GuestMetric{Job: job, Kind: kind, Name: name, Value: 1}); code != abi.OK {
				t.Fatalf("metric %s of a guest: %v", name, code)
			}
		}
	}
	of := func(job string) (n int) {
		for series := range scrape(t, m) {
			if strings.Contains(series, fmt.Sprintf("job_name=%q", job)) {
				n++
			}
		}
		return n
	}
	before := of("job1")
	m.Observe(event.Event{Kind: event.JobRemoved, Job: "job0"})
	if left := of("job0"); left != 0 {
		t.Errorf("%d series are left of a job that has left", left)
	}
	if n := of("job1"); n != before {
		t.Errorf("the other job has %d series, want %d as before", n, before)
	}
	if n := len(m.waiting); n != 1 {
		t.Errorf("fires of %d jobs are under way, want 1", n)
	}
	for _, d := range []*durations{m.lag, m.fireTime, m.itemTime} {
		for b := range d.named {
			if b.job == "job0" {
				t.Errorf("bucket %d of a job that has left is kept", b.number)
			}
		}
	}
}

// TestJobLeavesAtTheSameCostBesideOthers compares what leaving costs beside few and beside many
// jobs. A search for the series of the job would take 32 times as long.
func TestJobLeavesAtTheSameCostBesideOthers(t *testing.T) {
	cost := func(jobs int) time.Duration {
		m := newMetrics()
		addJobs(m, jobs)
		for i := range jobs {
			m.Observe(event.Event{Kind: event.FireStarted, Job: fmt.Sprintf("job%d", i), Items: []int{0}})
		}
		least := time.Hour
		for i := range 20 {
			began := time.Now()
			m.Observe(event.Event{Kind: event.JobRemoved, Job: fmt.Sprintf("job%d", i)})
			least = min(least, time.Since(began))
		}
		return least
	}
	few, many := cost(50), cost(1600)
	if many > 8*few {
		t.Errorf("a job leaves 1,600 jobs in %v, and 50 jobs in %v, want at most 8 times as long", many, few)
	}
}
