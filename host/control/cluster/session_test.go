package cluster

import (
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/engine"
)

// TestMergeWithoutSession: a host without a session does not make a job fail that others run, and where none has one the job
// is as it was.
func TestMergeWithoutSession(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ago := func(minutes int) time.Time { return now.Add(-time.Duration(minutes) * time.Minute) }
	item := func(n int, o abi.Outcome) engine.ItemStatus {
		return engine.ItemStatus{Item: n, LastOutcome: o, LastEnd: ago(30), LastMessage: "m"}
	}
	lost := func(at time.Time, last engine.JobState, items ...engine.ItemStatus) *engine.JobStatus {
		s := &engine.JobStatus{Name: "j", State: engine.JobNoSession, Reason: "no session", SessionLost: at, LastState: last, LastItems: items, ShardingTotalCount: 2, Cron: "0 0 3 * * ?", Next: ago(10)}
		if last == engine.JobError {
			s.Reason = "no module"
		}
		return s
	}
	unknown := &engine.JobStatus{Name: "j", State: engine.JobNoSession, Reason: "no session"}
	live := func(state engine.JobState, items ...engine.ItemStatus) *engine.JobStatus {
		return &engine.JobStatus{Name: "j", State: state, Items: items, ShardingTotalCount: 2}
	}
	for name, c := range map[string]struct {
		parts  []part
		health Health
		state  engine.JobState
		reason string
		lost   time.Time
		failed int
		hosts  []string // of the items 0 and 1
	}{
		"it was fine":                    {[]part{{"a", false, lost(ago(9), engine.JobReady, item(0, abi.OutcomeOK))}, {"b", false, lost(ago(8), engine.JobReady, item(1, abi.OutcomeOK))}}, HealthOK, engine.JobNoSession, "no session", ago(8), 0, []string{"a", "b"}},
		"it was failing":                 {[]part{{"a", false, lost(ago(9), engine.JobReady, item(0, abi.OutcomeFail), item(1, abi.OutcomeOK))}}, HealthFailing, engine.JobNoSession, "no session", ago(9), 1, []string{"a", "a"}},
		"it was paused":                  {[]part{{"a", false, lost(ago(9), engine.JobDisabled, item(0, abi.OutcomeOK))}}, HealthPaused, engine.JobNoSession, "no session", ago(9), 0, []string{"a", ""}},
		"it was in error":                {[]part{{"a", false, lost(ago(9), engine.JobError)}}, HealthError, engine.JobNoSession, "no module", ago(9), 0, []string{"", ""}},
		"nothing is known":               {[]part{{"a", false, unknown}}, HealthError, engine.JobNoSession, "no session", time.Time{}, 0, []string{"", ""}},
		"one host knows it":              {[]part{{"a", false, unknown}, {"b", false, lost(ago(9), engine.JobReady, item(1, abi.OutcomeOK))}}, HealthOK, engine.JobNoSession, "no session", ago(9), 0, []string{"", "b"}},
		"another host has a session":     {[]part{{"a", false, lost(ago(9), engine.JobReady, item(0, abi.OutcomeFail), item(1, abi.OutcomeOK))}, {"b", false, live(engine.JobReady, item(0, abi.OutcomeOK))}}, HealthOK, engine.JobReady, "", time.Time{}, 0, []string{"b", "a"}},
		"one without has just begun":     {[]part{{"a", false, unknown}, {"b", false, live(engine.JobRunning)}}, HealthOK, engine.JobRunning, "", time.Time{}, 0, []string{"", ""}},
		"one is silent, one has no more": {[]part{{"a", true, live(engine.JobReady, item(0, abi.OutcomeOK))}, {"b", false, lost(ago(9), engine.JobReady, item(1, abi.OutcomeOK))}}, HealthOK, engine.JobNoSession, "no session", ago(9), 0, []string{"a", "b"}},
	} {
		j := merge(c.parts, now)
		if j.Health != c.health || j.State != c.state || j.Reason != c.reason || !j.SessionLost.Equal(c.lost) || j.Failed != c.failed || !j.Next.IsZero() {
			t.Errorf("%s: %+v", name, j)
		}
		if j.Dim() != !c.lost.IsZero() {
			t.Errorf("%s: dim is %v", name, j.Dim())
		}
		hosts := []string{"", ""}
		for _, i := range itemsOf(c.parts) {
			hosts[i.ItemStatus.Item] = i.Host
		}
		if hosts[0] != c.hosts[0] || hosts[1] != c.hosts[1] {
			t.Errorf("%s: items are on %q, expected %q", name, hosts, c.hosts)
		}
	}
}
