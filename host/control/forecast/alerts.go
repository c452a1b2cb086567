package forecast

import (
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/schedule/plan"
)

// judged counts the alerts that a simulation of one job would begin: it passes a host's events to the judge of
// alerts, and answers for the registry. It is for one goroutine.
type judged struct {
	judge  *alert.Judge
	job    string
	items  []alert.FoundItem
	counts map[string]int
	paused bool
	now    time.Time // of the newest event
	end    time.Time // end of the range: later events are not judged, since no instants come then
}

// planHost is the host of a play, for the judge.
const planHost = "plan"

// newJudged begins with the range.
func newJudged(rules *alert.File, c jobconfig.Configuration, from, to time.Time) *judged {
	j := &judged{judge: alert.NewJudge(rules, planHost), job: c.JobName, counts: make(map[string]int), now: from.Add(-time.Millisecond), end: to}
	for n := range max(c.ShardingTotalCount, 0) {
		j.items = append(j.items, alert.FoundItem{Item: n})
	}
	settings := event.Settings{Cron: c.Cron, TimeZone: c.TimeZone, Terms: c.Terms(), ErrorHandler: c.JobErrorHandlerType, Labels: c.Labels().String()}
	j.see(event.Event{Kind: event.Session, Reason: "live"})
	j.see(event.Event{Kind: event.JobConfigured, Job: c.JobName, Settings: &settings})
	j.see(event.Event{Kind: event.Janitor, Job: c.JobName})
	return j
}

func (j *judged) see(e event.Event) {
	e.Time, e.Host = j.now, planHost
	j.judge.See(e)
	j.take()
}

// take counts the alerts that have begun, and answers what the judge asks of the registry.
func (j *judged) take() {
	for {
		changes, checks := j.judge.Take()
		if len(changes)+len(checks) == 0 {
			return
		}
		for _, c := range changes {
			if c.Resolved.IsZero() {
				j.counts[string(c.Rule)]++
			}
		}
		for _, c := range checks {
			j.judge.Checked(c, alert.Found{Exists: true, Enabled: !j.paused, Hosts: 1, Items: j.items}, nil, j.now)
		}
	}
}

// until lets time pass.
func (j *judged) until(at time.Time) {
	for next := j.judge.Next(); !next.IsZero() && next.Before(at); next = j.judge.Next() {
		if next.After(j.now) {
			j.now = next
		}
		j.judge.Tick(j.now)
		j.take()
	}
	if at.After(j.now) {
		j.now = at
	}
}

// note handles the result of an item.
func (j *judged) note(n plan.Note) {
	if !n.At.Before(j.end) {
		return
	}
	j.until(n.At)
	r := &j.items[n.Item].Record
	id := tree.Fire{Instant: n.Instant.UnixMilli()}
	e := event.Event{Job: j.job, Item: &n.Item, Instant: n.Instant, RunID: tree.RunID(j.job, id, n.Item)}
	switch n.What {
	case plan.Begin:
		if r.Outcome == string(abi.OutcomeOK) {
			r.Succeeded = r.Ended
		}
		r.Instant, r.Begun, r.Ended, r.Outcome, r.Owner = id.Instant, j.now.UnixMilli(), 0, "", planHost
	case plan.Start:
		e.Kind = event.ItemStarted
		j.see(e)
	case plan.End:
		outcome := abi.OutcomeOK
		switch {
		case n.Stopped:
			outcome = abi.OutcomeCancelled
		case n.Failed:
			outcome = abi.OutcomeFail
			r.Failures++
		default:
			r.Failures = 0
		}
		r.Ended, r.Outcome = j.now.UnixMilli(), string(outcome)
		e.Outcome, e.Count = outcome, int64(r.Failures)
		e.Kind = event.ItemEnded
		j.see(e)
		e.Kind = event.ItemCompleted
		j.see(e)
	case plan.Skip:
		j.paused = j.paused || n.Reason == plan.Paused
		if r.Ended == 0 && r.Instant == id.Instant && r.Begun != 0 { // it began, and did not come to start
			r.Ended, r.Outcome = j.now.UnixMilli(), string(abi.OutcomeCancelled)
		}
	}
}

// wanted reports whether rules of alerts are about what a play has.
func wanted(rules *alert.File, c jobconfig.Configuration) bool {
	if rules == nil || c.Disabled {
		return false
	}
	r := rules.For(c.JobName, c.Labels())
	return r.Failures > 0 || r.SucceedEvery > 0 || r.StartWithin > 0 || r.LongerThan > 0 || r.LongerThanUsual > 0 || rules.Handlers[strings.ToUpper(c.JobErrorHandlerType)] != ""
}
