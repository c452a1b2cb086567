package run

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/abi"
)

// ErrOperator is the cause with which the context of a guest ends that an
// operator has killed.
var ErrOperator = errors.New("an operator killed the run, and its grace is over")

// errNext is that of a guest that is stopped by force because the next instant has come.
var errNext = errors.New("the next instant has come, and overlap is terminate")

// stopping is what an operator's kill needs of an execution, and a stop for the next instant.
type stopping struct {
	mu      sync.Mutex
	stop    context.CancelCauseFunc // ends the guest, and what its worker waits for; nil while it has none
	inGuest bool
	reason  string    // why it was killed or stopped; empty: it was not
	cause   error     // of the end of the guest's context
	until   time.Time // when it is stopped by force; zero: never
	forced  bool
}

// life is the context of an item, from when a worker takes it until the func is
// called. It ends when the item is killed, or with guests.
func (e *Execution) life(guests context.Context) (own context.Context, end func()) {
	own, stop := context.WithCancelCause(guests)
	s := &e.stopping
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = stop
	if s.reason != "" {
		stop(s.cause)
	}
	return own, func() { stop(nil) }
}

// enter notes that the guest begins, and reports false if it must not.
func (e *Execution) enter() bool {
	s := &e.stopping
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inGuest = s.reason == ""
	return s.inGuest
}

// leave notes that the guest has ended.
func (e *Execution) leave() {
	s := &e.stopping
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inGuest = false
}

// Abort kills the run, once: the guest is asked to end by the given time, and
// what only waits ends at once. first is true if it was not killed before,
// unclaimed if no worker has taken the item: none will.
func (e *Execution) Abort(reason string, until time.Time) (first, unclaimed bool) {
	return e.halt(abi.CancelAbort, ErrOperator, reason, until)
}

// StopFor stops the run, once, because the next instant has come. Unless it is by force the guest is
// asked to end as when its host drains, and may take until its time-out. The results are those of Abort.
func (e *Execution) StopFor(reason string, now time.Time, force bool) (first, unclaimed bool) {
	if !force {
		return e.halt(abi.CancelStop, errNext, reason, time.Time{})
	}
	first, unclaimed = e.halt(abi.CancelAbort, errNext, reason, now)
	e.Press(now)
	return first, unclaimed
}

// halt is Abort with what the guest sees, and the cause of its context's end.
func (e *Execution) halt(seen abi.Cancel, cause error, reason string, until time.Time) (first, unclaimed bool) {
	s := &e.stopping
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason != "" {
		if !until.IsZero() && (s.until.IsZero() || until.Before(s.until)) {
			s.until, s.cause = until, cause // asked for again, with less grace
		}
		return false, false
	}
	s.reason, s.cause, s.until = reason, cause, until
	e.Cancel(seen)
	if s.stop != nil && !s.inGuest {
		s.stop(cause)
	}
	return true, e.claimed.CompareAndSwap(false, true)
}

// Press stops the guest by force if its grace is over. It returns when that is,
// if it is not.
func (e *Execution) Press(now time.Time) (at time.Time) {
	s := &e.stopping
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.until) {
		return s.until
	}
	if s.inGuest && !s.forced && !s.until.IsZero() {
		s.forced = true
		s.stop(s.cause)
	}
	return time.Time{}
}

// KilledBefore is the end of an item that was killed before its guest began.
func (e *Execution) KilledBefore() (Ended, bool) {
	s := &e.stopping
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason == "" {
		return Ended{}, false
	}
	reason := s.reason + "; it had not started"
	if e.attempt.Load() > 0 {
		reason = s.reason + "; it waited for another attempt"
	}
	return Ended{Run: e, Result: abi.Result{Outcome: abi.OutcomeCancelled, Message: reason}, Reason: reason}, true
}

// KilledInstead is the end of an item that was to be handed back, and that an operator had killed.
func (e Ended) KilledInstead(reason string) Ended {
	result := e.Result
	result.Outcome, result.Message = abi.OutcomeCancelled, reason
	return Ended{Run: e.Run, Result: result, Reason: reason}
}

// killed is the end of an item that was killed while its guest ran, or between
// two attempts. A guest that did its work nevertheless has done it.
func (e *Execution) killed(r abi.Result) (Ended, bool) {
	s := &e.stopping
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason == "" {
		return Ended{}, false
	}
	reason := s.reason
	switch {
	case r.Outcome == abi.OutcomeOK:
		reason += "; it had done its work"
	case s.forced:
		reason += "; its guest was stopped by force"
	case r.Outcome == abi.OutcomeTimeout:
		reason += "; its time was up"
	default:
		reason += "; its guest ended by itself"
	}
	if r.Outcome != abi.OutcomeOK {
		r.Outcome, r.Message = abi.OutcomeCancelled, reason
	}
	return Ended{Run: e, Result: r, Reason: reason}, true
}
