package cluster

import (
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/engine"
)

// TestLastFire: the last fire of a job is that of all its hosts, from the first begin to the last end;
// hosts take a trigger up at times of their own, by which they call its instant.
func TestLastFire(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	after := func(seconds int) time.Time { return at.Add(time.Duration(seconds) * time.Second) }
	fire := func(trigger int64, instant, begun, ended int, o abi.Outcome) *engine.FireStatus {
		return &engine.FireStatus{Trigger: trigger, Instant: after(instant), Begun: after(begun), Ended: after(ended), Duration: after(ended).Sub(after(begun)), Outcome: o}
	}
	earlier := func(instant, took int, o abi.Outcome) *engine.FireStatus { // of a version that does not say when it began
		return &engine.FireStatus{Instant: after(instant), Duration: time.Duration(took) * time.Second, Outcome: o}
	}
	for name, c := range map[string]struct {
		a, b  *engine.FireStatus
		begun int
		ended int
		last  abi.Outcome
	}{
		"a trigger":           {fire(7, 0, 1, 5, abi.OutcomeFail), fire(7, 1, 2, 11, abi.OutcomeOK), 1, 11, abi.OutcomeFail},
		"two triggers":        {fire(7, 0, 1, 30, abi.OutcomeFail), fire(8, 20, 20, 25, abi.OutcomeOK), 20, 25, abi.OutcomeOK},
		"an instant":          {fire(0, 0, 0, 4, abi.OutcomeOK), fire(0, 0, 3, 9, abi.OutcomeOK), 0, 9, abi.OutcomeOK},
		"one is within":       {fire(0, 0, 0, 9, abi.OutcomeOK), fire(0, 0, 2, 4, abi.OutcomeTrap), 0, 9, abi.OutcomeTrap},
		"begun late":          {fire(0, 0, 30, 34, abi.OutcomeOK), nil, 30, 34, abi.OutcomeOK},
		"an earlier version":  {earlier(0, 4, abi.OutcomeOK), fire(0, 0, 1, 9, abi.OutcomeOK), 0, 9, abi.OutcomeOK},
		"a trigger after one": {fire(0, 0, 0, 4, abi.OutcomeTrap), fire(7, 2, 2, 3, abi.OutcomeOK), 2, 3, abi.OutcomeOK},
	} {
		for _, swapped := range []bool{false, true} {
			one, two := &engine.JobStatus{Name: "j", LastFire: c.a}, &engine.JobStatus{Name: "j", LastFire: c.b}
			if swapped {
				one, two = two, one
			}
			l := lastOf([]part{{host: "a", JobStatus: one}, {host: "b", JobStatus: two}}, nil)
			if !l.Begun.Equal(after(c.begun)) || !l.Ended.Equal(after(c.ended)) || l.Duration != l.Ended.Sub(l.Begun) || l.Outcome != c.last {
				t.Errorf("%s, swapped %t: %+v", name, swapped, l)
			}
		}
	}
}
