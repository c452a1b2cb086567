package zookeeper

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootClock returns a clock that also runs while the machine is suspended.
func bootClock() func() time.Duration {
	return func() time.Duration {
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
			return 1<<63 - 1 // without a clock nothing is trusted
		}
		return time.Duration(t.Nano())
	}
}
