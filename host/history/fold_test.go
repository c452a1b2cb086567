package history

import (
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
)

// TestRun_Took: a run takes all its attempts on the host that has it.
func TestRun_Took(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	after := func(d time.Duration) time.Time { return at.Add(d) }
	for what, c := range map[string]struct {
		run  Run
		want time.Duration
	}{
		"runs":                       {Run{Begun: at, Attempt: 2}, 0},
		"one attempt":                {Run{Begun: at, Ended: after(time.Second), Attempt: 1, Duration: 287 * time.Microsecond, Outcome: abi.OutcomeOK}, 287 * time.Microsecond},
		"second attempt":             {Run{Begun: at, Ended: after(time.Second), Attempt: 2, Duration: 287 * time.Microsecond, Outcome: abi.OutcomeRetry}, time.Second},
		"taken over":                 {Run{First: at, Begun: after(time.Minute), Ended: after(2 * time.Minute), Attempt: 1, Duration: time.Minute, Outcome: abi.OutcomeOK}, time.Minute},
		"taken over, second attempt": {Run{First: at, Begun: after(time.Minute), Ended: after(3 * time.Minute), Attempt: 2, Duration: time.Minute, Outcome: abi.OutcomeOK}, 2 * time.Minute},
		"by a clock that is ahead":   {Run{Begun: after(time.Hour), Ended: at, Attempt: 2, Duration: time.Second, Outcome: abi.OutcomeOK}, time.Second},
		"unknown":                    {Run{First: at, Begun: at, Ended: after(time.Hour), Attempt: 2, Outcome: Unknown}, 0},
		"lost":                       {Run{Begun: at, Ended: after(time.Hour), Attempt: 2, Outcome: Lost}, 0},
	} {
		if got := c.run.Took(); got != c.want {
			t.Errorf("%s: took %s, want %s", what, got, c.want)
		}
	}
}

// TestPart_again: where files of a history meet, a store may read the begin of a fire twice. Its end is its end.
func TestPart_again(t *testing.T) {
	t.Parallel()
	begin := event.Event{Kind: event.FireStarted, Job: "j", Host: "h", Time: time.Now(), Items: []int{0, 1}}
	end := begin
	end.Kind, end.Outcome = event.FireEnded, abi.OutcomeOK
	var p Part
	for _, e := range []event.Event{begin, begin, end} {
		p.Apply(e)
	}
	if p.Ended.IsZero() || p.Outcome != abi.OutcomeOK {
		t.Errorf("%+v", p)
	}
}

// TestRun_endedByAnotherHost: a run that another host ends, because its own died, is one of the host that
// died, with the attempt that it had if that is known.
func TestRun_endedByAnotherHost(t *testing.T) {
	t.Parallel()
	item, at := 1, time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	start := event.Event{Kind: event.ItemStarted, RunID: "j/t1/1", Job: "j", Trigger: 1, Item: &item, Time: at, Host: "10.0.0.2@-@2-b", Fence: 7, Attempt: 2}
	for kind, outcome := range map[event.Kind]abi.Outcome{event.ItemSkipped: abi.OutcomeCancelled, event.ItemHeld: Held} {
		end := event.Event{Kind: kind, RunID: "j/t1/1", Job: "j", Trigger: 1, Item: &item, Time: at.Add(time.Minute), Host: "10.0.0.1@-@1-a", Other: "10.0.0.2@-@2-b", Outcome: outcome, Reason: "why"}
		var alone, after, late Run
		alone.Apply(end)
		after.Apply(start)
		after.Apply(end)
		late.Apply(end)
		late.Apply(start)
		late.Apply(end)
		for what, r := range map[string]Run{"alone": alone, "after its begin": after, "after another end": late, "joined": JoinRuns(alone, after)} {
			attempt := 2
			if what == "alone" {
				attempt = 0
			}
			if r.Host != "10.0.0.2@-@2-b" || r.Attempt != attempt || r.Outcome != outcome || r.Message != "why" || r.Ended.IsZero() {
				t.Errorf("%s, %s: %+v", kind, what, r)
			}
		}
	}
}

// TestSum_takenOver: a fire began when its first run did, also if another host has taken that over.
func TestSum_takenOver(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	f := Sum(nil, []Run{{Job: "j", Item: 0, Instant: at, Begun: at.Add(time.Minute), First: at.Add(time.Second)}, {Job: "j", Item: 1, Instant: at, Begun: at.Add(2 * time.Second)}})
	if !f.Begun.Equal(at.Add(time.Second)) {
		t.Errorf("began at %s, want a second after its instant", f.Begun)
	}
}
