package tree

import "slices"

const (
	// OutcomeCancelled is the outcome of a run that was stopped, and of one that was handed
	// back before anything of it ran: its instant is due again then.
	OutcomeCancelled = "CANCELLED"
	// OutcomeElsewhere is the outcome of a run whose host died and which a Java
	// host has repeated, with whatever outcome.
	OutcomeElsewhere = "ELSEWHERE"
	// OutcomeLost is the outcome of a run whose host died while failover was off.
	OutcomeLost = "LOST"
	// OutcomeHeld is the outcome of the run whose host was one too many to die
	// with it: the item is held back.
	OutcomeHeld = "HELD"
	// outcomeOK is abi.OutcomeOK.
	outcomeOK = "OK"
	// outcomeRetryAt is abi.OutcomeRetryAt.
	outcomeRetryAt = "RETRY_AT"
)

// Worse reports whether an outcome is worse than another: the worst of its items is that of a fire.
// None is the best, and the worst is what a newer host writes.
func Worse(a, b string) bool { return harm(a) > harm(b) }

// harm is the place of an outcome in their order. UNKNOWN is of histories.
func harm(outcome string) int {
	order := []string{"", outcomeOK, OutcomeCancelled, outcomeRetryAt, OutcomeElsewhere, "UNKNOWN", "RETRY", "FAIL", "EXIT", "TIMEOUT", "TRAP", "WORKER", "ERROR", OutcomeLost, OutcomeHeld}
	if n := slices.Index(order, outcome); n >= 0 {
		return n
	}
	return len(order)
}

// IsOK reports whether a run ended well.
func IsOK(outcome string) bool { return outcome == outcomeOK }
