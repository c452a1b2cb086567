//go:build !linux

package zookeeper

import "time"

// bootClock returns Go's own clock. Whether that goes on while the machine is
// suspended is up to the system.
func bootClock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
