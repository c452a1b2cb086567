//go:build !wasip1

package sdk

// explained is the reason: hints are for guests.
func explained(reason string) string { return reason }
