//go:build unix

package plugin

import (
	"syscall"
	"time"
)

func mkfifo(name string) error { return syscall.Mkfifo(name, 0o644) }

// cpuTime is the processor time that this process has used, with those that it
// has started and that have ended.
func cpuTime() (sum time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			return 0
		}
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}
