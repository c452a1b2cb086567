//go:build !linux

package zookeeper

import "time"

// bootClock returns Go's own clock. It depends on the system whether that runs while the machine is suspended.
func bootClock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
