package tree

import "testing"

// TestWorse: one order of outcomes holds wherever a fire's is made of its items'. What is no failure is
// better than what is one, and what a newer host writes is the worst.
func TestWorse(t *testing.T) {
	t.Parallel()
	order := []string{"", "OK", OutcomeCancelled, OutcomeElsewhere, "UNKNOWN", "RETRY", "FAIL", "EXIT", "TIMEOUT", "TRAP", "ERROR", OutcomeLost, OutcomeHeld, "NEW"}
	for n, a := range order {
		for m, b := range order {
			if Worse(a, b) != (n > m) {
				t.Errorf("%q is worse than %q: %v", a, b, n <= m)
			}
		}
	}
}
