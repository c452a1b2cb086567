// Package deadman has the kernel end this process when the process no longer
// proves that it may run.
//
// Go code cannot do that for itself: a guest in a loop that is not interrupted
// stops the world at the next garbage collection, and then no goroutine runs.
// The kernel's POSIX timers (timer_create(2)) need nothing of the process. There
// are two:
//
//   - The fence of a session, on CLOCK_BOOTTIME. Each proof that the registry
//     keeps the session sets it to nine tenths of the session timeout after that
//     proof was asked for. No other host has this host's items before the
//     whole timeout has passed. CLOCK_BOOTTIME counts suspend, so a machine that
//     slept past the deadline ends the process as it wakes.
//   - The heartbeat, on CLOCK_MONOTONIC: it ends a process that is frozen and
//     has no session, or a long one. A suspended machine does not count.
//
// The signal is SIGKILL, which also ends a process that was stopped by SIGSTOP.
// Process 1 of a PID namespace, as in most containers, gets SIGHUP: the kernel
// drops a SIGKILL that such a process sends itself, and of its timers too. Go's
// handler for SIGHUP ends the process without the scheduler, also while the world
// is stopped. Only a process that was stopped from outside the container runs some
// instructions between SIGCONT and the handler. See [Guard.First]. Go leaves SIGHUP
// ignored where it was so at the start (nohup); there are no timers then.
//
// A [Record] says at the next start how the process before it ended.
package deadman

import (
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Guard is the two timers of this process. Its methods are safe for concurrent
// use, and each costs one system call.
type Guard struct {
	patience time.Duration

	mu     sync.Mutex
	closed bool
	fence  timer
	beat   timer

	// What the timers are set to, on their clocks; 0 is off.
	fenceDue, beatDue atomic.Int64
}

// New creates both timers; neither is set. patience is how long after a
// [Guard.Beat] the heartbeat ends the process; it must be positive. The error is
// errors.ErrUnsupported on systems other than Linux, the kernel's where a sandbox
// refuses timers, and one of its own for a process 1 that ignores SIGHUP.
func New(patience time.Duration) (*Guard, error) {
	g := &Guard{patience: patience}
	var err error
	if g.fence, err = newTimer(bootClock); err != nil {
		return nil, err
	}
	if g.beat, err = newTimer(monotonicClock); err != nil {
		g.fence.close()
		return nil, err
	}
	return g, nil
}

// First reports whether this process is the first of its PID namespace, so that
// the timers send SIGHUP and not SIGKILL.
func (g *Guard) First() bool { return os.Getpid() == 1 }

// Beat says that the process is alive: the heartbeat is due after the patience
// from now.
func (g *Guard) Beat() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.set(&g.beat, &g.beatDue, now(monotonicClock)+g.patience)
}

// set needs the lock. The kernel refuses no time that comes here.
func (g *Guard) set(t *timer, due *atomic.Int64, at time.Duration) {
	if g.closed {
		return
	}
	t.set(at)
	due.Store(int64(at))
}

// Close deletes both timers. Later renewals and beats have no effect.
func (g *Guard) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	g.set(&g.fence, &g.fenceDue, 0)
	g.set(&g.beat, &g.beatDue, 0)
	g.closed = true
	g.fence.close()
	g.beat.close()
}

// Fence is what one registry session does to a Guard: renewed while the session
// is set up, armed before anything runs under it, lifted when all that did has
// ended. A process has one session at a time. Its methods are safe for
// concurrent use.
type Fence struct {
	g *Guard

	// Guarded by g.mu.
	sent, due     time.Duration // of the newest proof; 0: none yet
	armed, lifted bool
}

// Fence begins a session. The timer is off until [Fence.Arm].
func (g *Guard) Fence() *Fence { return &Fence{g: g} }

// Renew sets the fence again: the registry has confirmed that the session was
// alive at sent, a time of the boot clock, and keeps it for timeout from then on.
// A proof that is older than the newest changes nothing. It does not block.
func (f *Fence) Renew(sent, timeout time.Duration) {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	if sent < f.sent {
		return
	}
	f.sent, f.due = sent, max(sent+Limit(timeout), 1)
	f.set()
}

// Arm sets the timer by the newest proof, and with each further one.
func (f *Fence) Arm() {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	f.armed = true
	f.set()
}

// set needs the lock.
func (f *Fence) set() {
	if f.armed && !f.lifted && f.due != 0 {
		f.g.set(&f.g.fence, &f.g.fenceDue, f.due)
	}
}

// Lift switches the timer off for good: all that ran under the session has
// ended.
func (f *Fence) Lift() {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	if f.armed && !f.lifted {
		f.g.set(&f.g.fence, &f.g.fenceDue, 0)
	}
	f.lifted = true
}

// Limit is how long after the newest proof a process may run under a session
// with the timeout.
func Limit(timeout time.Duration) time.Duration { return timeout / 10 * 9 }
