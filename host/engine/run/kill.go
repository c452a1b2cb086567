package run

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// ErrOperator is the cause of a guest's context that ends because an operator has killed the run.
var ErrOperator = errors.New("an operator killed the run, and its grace is over")

// errNext is the same for a guest that is stopped by force because the next instant has come.
var errNext = errors.New(reason.New(reason.TerminatedForNext).String())

// stopping is the state of an execution that an operator kills, or that is stopped for the next instant.
type stopping struct {
	mu      sync.Mutex
	stop    context.CancelCauseFunc // ends the guest, and what its worker waits for; nil while it has none
	inGuest bool
	why     reason.Reason // why it was killed or stopped; zero: it was not
	cause   error         // of the end of the guest's context
	until   time.Time     // when it is stopped by force; zero: never
	forced  bool
}

// life returns the context of an item, from when a worker takes it until end is called. It ends when the item is killed,
// or with guests.
func (e *Execution) life(guests context.Context) (own context.Context, end func()) {
	own, stop := context.WithCancelCause(guests)
	s := &e.stopping
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = stop
	if !s.why.IsZero() {
		stop(s.cause)
	}
	return own, func() { stop(nil) }
}

// enter records that the guest begins. It returns false if the guest must not begin.
func (e *Execution) enter() bool {
	s := &e.stopping
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inGuest = s.why.IsZero()
	return s.inGuest
}

// leave records that the guest has ended.
func (e *Execution) leave() {
	s := &e.stopping
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inGuest = false
}

// Abort kills the run: it asks the guest to end by the given time, and ends waits at once. first is true for the first
// call; unclaimed is true if no worker has taken the item, so that none will.
func (e *Execution) Abort(why reason.Reason, until time.Time) (first, unclaimed bool) {
	return e.halt(abi.CancelAbort, ErrOperator, why, until)
}

// StopFor stops the run because the next instant has come. Without force it asks the guest to end as when its host
// drains, and the guest may take until its time-out. The results are those of Abort.
func (e *Execution) StopFor(why reason.Reason, now time.Time, force bool) (first, unclaimed bool) {
	if !force {
		return e.halt(abi.CancelStop, errNext, why, time.Time{})
	}
	first, unclaimed = e.halt(abi.CancelAbort, errNext, why, now)
	e.Press(now)
	return first, unclaimed
}

// halt is Abort with the reason that the guest sees, and the cause of its context's end.
func (e *Execution) halt(seen abi.Cancel, cause error, why reason.Reason, until time.Time) (first, unclaimed bool) {
	s := &e.stopping
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.why.IsZero() {
		if !until.IsZero() && (s.until.IsZero() || until.Before(s.until)) {
			s.until, s.cause = until, cause // asked for again, with less grace
		}
		return false, false
	}
	s.why, s.cause, s.until = why, cause, until
	e.Cancel(seen)
	if s.stop != nil && !s.inGuest {
		s.stop(cause)
	}
	return true, e.claimed.CompareAndSwap(false, true)
}

// Press stops the guest by force if its grace has passed. Otherwise it returns when that is.
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

// KilledBefore returns the end of an item that was killed before its guest began.
func (e *Execution) KilledBefore() (Ended, bool) {
	s := &e.stopping
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why.IsZero() {
		return Ended{}, false
	}
	how := reason.NotStarted
	if e.attempt.Load() > 0 {
		how = reason.WaitedForAttempt
	}
	why := reason.New(how, s.why)
	return Ended{Run: e, Result: abi.Result{Outcome: abi.OutcomeCancelled, Message: why.String()}, Reason: why}, true
}

// KilledInstead returns the end of an item that was to be handed back, but that an operator had killed.
func (e Ended) KilledInstead(why reason.Reason) Ended {
	result := e.Result
	result.Outcome, result.Message = abi.OutcomeCancelled, why.String()
	return Ended{Run: e.Run, Result: result, Reason: why}
}

// killed returns the end of an item that was killed while its guest ran, or between two attempts. If the guest finished
// its work nevertheless, that result counts.
func (e *Execution) killed(r abi.Result) (Ended, bool) {
	s := &e.stopping
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why.IsZero() {
		return Ended{}, false
	}
	how := reason.EndedByItself
	switch {
	case r.Outcome == abi.OutcomeOK:
		how = reason.HadDoneItsWork
	case s.forced:
		how = reason.ByForce
	case r.Outcome == abi.OutcomeTimeout:
		how = reason.TimeWasUp
	}
	why := reason.New(how, s.why)
	if r.Outcome != abi.OutcomeOK {
		r.Outcome, r.Message = abi.OutcomeCancelled, why.String()
	}
	return Ended{Run: e, Result: r, Reason: why}, true
}
