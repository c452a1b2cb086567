package tree

import "slices"

const (
	// OutcomeCancelled is the outcome of a run that was stopped, and of one that was handed back before it ran:
	// its instant is due again then.
	OutcomeCancelled = "CANCELLED"
	// OutcomeElsewhere is the outcome of a run whose host died and that a Java host has repeated, with any
	// outcome.
	OutcomeElsewhere = "ELSEWHERE"
	// OutcomeLost is the outcome of a run whose host died while failover was off.
	OutcomeLost = "LOST"
	// OutcomeHeld is the outcome of a run whose host's death exceeded the limit of deaths: the item is held
	// back.
	OutcomeHeld = "HELD"
	// outcomeOK is abi.OutcomeOK.
	outcomeOK = "OK"
	// outcomeRetryAt is abi.OutcomeRetryAt.
	outcomeRetryAt = "RETRY_AT"
)

// Worse reports whether an outcome is worse than another: a fire has the worst outcome of its items. No outcome
// is the best, and one of a newer version is the worst.
func Worse(a, b string) bool { return harm(a) > harm(b) }

// harm is the rank of an outcome. UNKNOWN occurs only in histories.
func harm(outcome string) int {
	order := []string{"", outcomeOK, OutcomeCancelled, outcomeRetryAt, OutcomeElsewhere, "UNKNOWN", "RETRY", "FAIL", "EXIT", "TIMEOUT", "TRAP", "WORKER", "ERROR", OutcomeLost, OutcomeHeld}
	if n := slices.Index(order, outcome); n >= 0 {
		return n
	}
	return len(order)
}

// IsOK reports whether a run ended well.
func IsOK(outcome string) bool { return outcome == outcomeOK }
