//go:build !linux

package deadman

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

type clock int32

const (
	bootClock clock = iota
	monotonicClock
)

// timer does not exist here.
type timer struct{}

func newTimer(clock) (timer, error) {
	return timer{}, fmt.Errorf("timers that end a process on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func (timer) set(time.Duration) {}
func (timer) close()            {}

func now(clock) time.Duration { return 0 }

// bootID is not known here.
func bootID() string { return "" }
