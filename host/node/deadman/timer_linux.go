package deadman

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// clock is a clock of the kernel.
type clock int32

const (
	bootClock      clock = unix.CLOCK_BOOTTIME
	monotonicClock clock = unix.CLOCK_MONOTONIC
)

// timer is a POSIX timer that signals this process. A child does not inherit it.
type timer struct{ id int32 }

// sigevent is the kernel's struct sigevent, which has 64 bytes: sigev_value,
// sigev_signo, sigev_notify, and a union that SIGEV_SIGNAL does not use. Here it
// is never shorter.
type sigevent struct {
	value  uintptr
	signo  int32
	notify int32 // 0: SIGEV_SIGNAL
	_      [52]byte
}

func newTimer(c clock) (timer, error) {
	event := sigevent{signo: int32(unix.SIGKILL)}
	if os.Getpid() == 1 { // see the package's description
		if signal.Ignored(unix.SIGHUP) {
			return timer{}, errors.New("this is process 1, whose timer sends SIGHUP, and it was started with SIGHUP ignored: start it without nohup")
		}
		event.signo = int32(unix.SIGHUP)
	}
	var t timer
	if _, _, e := unix.Syscall(unix.SYS_TIMER_CREATE, uintptr(c), uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&t.id))); e != 0 {
		return timer{}, fmt.Errorf("timer_create: %w", e)
	}
	if e := t.settime(0); e != 0 { // a sandbox may refuse one and not the other
		t.close()
		return timer{}, fmt.Errorf("timer_settime: %w", e)
	}
	return t, nil
}

// set has the timer fire at a time of its clock, at once if that has passed; 0
// switches it off. It cannot fail: newTimer has tried it, and the time is valid.
func (t timer) set(at time.Duration) { _ = t.settime(at) }

func (t timer) settime(at time.Duration) unix.Errno {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(at))}
	_, _, e := unix.Syscall6(unix.SYS_TIMER_SETTIME, uintptr(t.id), unix.TIMER_ABSTIME, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	return e
}

func (t timer) close() { _, _, _ = unix.Syscall(unix.SYS_TIMER_DELETE, uintptr(t.id), 0, 0) }

// now reads a clock.
func now(c clock) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(int32(c), &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// bootID identifies one start of the machine; empty if unknown.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
