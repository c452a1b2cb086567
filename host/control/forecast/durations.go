package forecast

import (
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/schedule/plan"
)

// Durations say how long runs of jobs take: from a history, or else an assumed value. Add all known runs before
// the first question; after that it is safe for concurrent use.
type Durations struct {
	assumed time.Duration
	past    bool
	jobs    map[string]*seen
	open    map[string]event.Event // begins by the ids of runs
	runs    int
	silent  []string
}

// seen is what a history has of a job.
type seen struct {
	took    []time.Duration // of runs that were OK, in the order in which they came
	next    int             // in took, which is full
	typical time.Duration
	runs    map[instant]plan.Run
}

type instant struct {
	item int
	at   int64 // Unix milliseconds
}

// mostTook is how many of a job's newest runs determine the typical duration, as their median.
const mostTook = 200

// DefaultDuration is the duration of runs without a history.
const DefaultDuration = 5 * time.Second

// NewDurations knows no run; assumed is the duration of runs without a history. With past, an instant with a
// run in the history takes as long as that run, begins as late, and fails as it did.
func NewDurations(assumed time.Duration, past bool) *Durations {
	return &Durations{assumed: assumed, past: past, jobs: make(map[string]*seen), open: make(map[string]event.Event)}
}

// Known is of how many runs it was told.
func (d *Durations) Known() int { return d.runs }

// Missing notes hosts that do not answer, with the reason: their histories are missing.
func (d *Durations) Missing(hosts ...string) {
	for _, h := range hosts {
		if !slices.Contains(d.silent, h) {
			d.silent = append(d.silent, h)
		}
	}
}

// Has reports whether it knows how long runs of a job take.
func (d *Durations) Has(job string) bool { return d.jobs[job] != nil }

// AddRun takes a run of a history. One that has not ended says nothing.
func (d *Durations) AddRun(r history.Run) {
	if r.Ended.IsZero() || r.Begun.IsZero() {
		return
	}
	lag := time.Duration(0)
	if r.Source == abi.SourceSchedule {
		lag = r.Lag
	}
	d.add(r.Job, r.Item, r.Instant, r.Trigger, lag, r.Ended.Sub(r.Begun), r.Outcome)
}

// AddEvent adds an event of a history. Events must be added in order of time.
func (d *Durations) AddEvent(e event.Event) {
	if e.Item == nil || e.RunID == "" {
		return
	}
	switch e.Kind {
	case event.ItemStarted:
		if _, has := d.open[e.RunID]; !has { // else it is another attempt
			d.open[e.RunID] = event.Event{Time: e.Time, Source: e.Source}
		}
	case event.ItemCompleted:
		begun, has := d.open[e.RunID]
		delete(d.open, e.RunID)
		if !has {
			return
		}
		lag := time.Duration(0)
		if begun.Source == abi.SourceSchedule {
			lag = max(begun.Time.Sub(e.Instant), 0)
		}
		d.add(e.Job, *e.Item, e.Instant, e.Trigger, lag, e.Time.Sub(begun.Time), e.Outcome)
	case event.ItemSkipped: // it has another end
		delete(d.open, e.RunID)
	}
}

func (d *Durations) add(job string, item int, at time.Time, trigger int64, lag, took time.Duration, outcome abi.Outcome) {
	if outcome == abi.OutcomeCancelled || outcome == tree.OutcomeLost || outcome == tree.OutcomeElsewhere || took < 0 {
		return // it says nothing of how long the guest would have taken
	}
	s := d.jobs[job]
	if s == nil {
		s = &seen{runs: make(map[instant]plan.Run)}
		d.jobs[job] = s
	}
	d.runs++
	if outcome == abi.OutcomeOK {
		if len(s.took) < mostTook {
			s.took = append(s.took, took)
		} else {
			s.took[s.next%mostTook] = took
			s.next++
		}
		s.typical = 0
	}
	if d.past && trigger == 0 {
		s.runs[instant{item, at.UnixMilli()}] = plan.Run{Lag: lag, Takes: took, Failed: outcome.Failed()}
	}
}

// Typical is how long a run of a job typically takes: the median of the newest that were OK.
func (d *Durations) Typical(job string) time.Duration {
	s := d.jobs[job]
	switch {
	case s == nil || len(s.took) == 0:
		return d.assumed
	case s.typical == 0:
		sorted := slices.Sorted(slices.Values(s.took))
		s.typical = sorted[len(sorted)/2]
	}
	return s.typical
}

// of returns how runs of a job go, none longer than the timeout, unless that is 0. byItem says that items may
// differ.
func (d *Durations) of(job string, timeout time.Duration) (takes func(item int, at time.Time) plan.Run, byItem bool) {
	bounded := func(r plan.Run) plan.Run {
		if timeout > 0 && r.Takes > timeout {
			r.Takes, r.Failed = timeout, true
		}
		return r
	}
	typical := bounded(plan.Run{Takes: d.Typical(job)})
	s := d.jobs[job]
	if s == nil || len(s.runs) == 0 {
		return func(int, time.Time) plan.Run { return typical }, false
	}
	return func(item int, at time.Time) plan.Run {
		if r, has := s.runs[instant{item, at.UnixMilli()}]; has {
			return bounded(r)
		}
		return typical
	}, true
}
