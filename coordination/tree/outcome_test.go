package tree

import "testing"

// TestWorse: one order of outcomes holds wherever a fire's is made of its items'. What is no failure is
// better than what is one, and what a newer host writes is the worst.
func TestWorse(t *testing.T) {
	t.Parallel()
	order := []string{"", "OK", OutcomeCancelled, "RETRY_AT", OutcomeElsewhere, "UNKNOWN", "RETRY", "FAIL", "EXIT", "TIMEOUT", "TRAP", "ERROR", OutcomeLost, OutcomeHeld, "NEW"}
	for n, a := range order {
		for m, b := range order {
			if Worse(a, b) != (n > m) {
				t.Errorf("%q is worse than %q: %v", a, b, n <= m)
			}
		}
	}
}

// TestRecord_LastOutcome: a run whose guest asked to be run again later is not called cancelled, though its fire was handed back; one that another
// reason handed back is.
func TestRecord_LastOutcome(t *testing.T) {
	t.Parallel()
	fire := Fire{Instant: 1000, Source: "schedule"}
	begun := Record{Instant: 1000, Begun: 1005, Source: "schedule"}
	for want, r := range map[string]Record{
		"RETRY_AT":       begun.Postpone(fire, 9000, "the server is busy"),
		OutcomeCancelled: begun.HandBack(fire),
		"FAIL":           begun.End("FAIL", "", 1010),
		"":               begun,
	} {
		if got := r.LastOutcome(); got != want {
			t.Errorf("found %q, want %q of %+v", got, want, r)
		}
	}
	if got := begun.Postpone(fire, 9000, "").Hasten().LastOutcome(); got != OutcomeCancelled {
		t.Errorf("one that an operator lets begin is shown as %q", got)
	}
}
