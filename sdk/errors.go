package sdk

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk/internal/border"
)

// Errno is an error code of the host. The functions of this package wrap it with the attempted operation: test with
// errors.Is, as in errors.Is(err, sdk.ErrConflict).
type Errno abi.Code

// The error codes.
const (
	ErrInvalid     = Errno(abi.ErrInvalid)
	ErrNotFound    = Errno(abi.ErrNotFound)
	ErrDenied      = Errno(abi.ErrDenied)
	ErrTooLarge    = Errno(abi.ErrTooLarge)
	ErrQuota       = Errno(abi.ErrQuota)
	ErrUnavailable = Errno(abi.ErrUnavailable)
	ErrConflict    = Errno(abi.ErrConflict)
	ErrCancelled   = Errno(abi.ErrCancelled)
	ErrUnsupported = Errno(abi.ErrUnsupported)
	ErrState       = Errno(abi.ErrState)
	ErrTimeout     = Errno(abi.ErrTimeout)
	ErrInternal    = Errno(abi.ErrInternal)
)

// Error says in words what the code means.
func (e Errno) Error() string {
	switch e {
	case ErrInvalid:
		return "argument is malformed or out of range"
	case ErrNotFound:
		return "no such field or value"
	case ErrDenied:
		return "not allowed"
	case ErrTooLarge:
		return "value is over its limit"
	case ErrQuota:
		return "budget is used up"
	case ErrUnavailable:
		return "registry or network is unavailable"
	case ErrConflict:
		return "the item is no longer owned by this host"
	case ErrCancelled:
		return "the invocation is being cancelled"
	case ErrUnsupported:
		return "this host does not do that"
	case ErrState:
		return "not allowed in this phase"
	case ErrTimeout:
		return "timed out"
	case ErrInternal:
		return "internal error of the host"
	}
	return "host code " + strconv.Itoa(int(e))
}

// check makes an error of what the host answered to the deed.
func check(deed string, code int32) error {
	if code >= 0 {
		return nil
	}
	return &refusal{deed: deed, errno: Errno(code)}
}

type refusal struct {
	deed  string
	errno Errno
}

func (r *refusal) Error() string { return r.deed + ": " + r.errno.Error() }
func (r *refusal) Unwrap() error { return r.errno }

// Retry marks an error as transient: a handler that returns it, or an error
// that wraps it, ends with RETRY, and the job's retry policy runs the item
// again within the same fire. Retry(nil) is nil.
func Retry(err error) error {
	if err == nil {
		return nil
	}
	return &statusError{error: err, status: abi.StatusRetry}
}

// RetryAt marks an error: a handler that returns it, or an error that wraps it, ends with RETRY_AT, which is not a
// failure. The item runs again in the same fire, not before the given time, on its owner at that time; the present run
// ends, and frees its slot. A time in the past means now. A time later than abi.MaxRetryAt makes the run fail. Hosts of
// earlier versions do not load a module that uses RetryAt. With a nil error the time is the only reason.
func RetryAt(at time.Time, err error) error { return retryAt(at, 0, err) }

// PauseKey is RetryAt, and also pauses the key of the job's rate: no item of any job begins under that key before the
// time. For a job without a rate it is only RetryAt.
func PauseKey(until time.Time, err error) error { return retryAt(until, abi.RetryPausesKey, err) }

func retryAt(at time.Time, flags int32, err error) error {
	if err == nil {
		err = errors.New("not before " + at.UTC().Format(time.RFC3339))
	}
	// Only modules that call this have the import.
	tell := func() int32 { return border.RetryAt(max(at.UnixMilli(), 1), flags) }
	return &statusError{error: err, status: abi.StatusRetry, tell: tell}
}

// Fail gives an error a failure code of the job's own, from 64 to 255, which the host records with the text. Any other
// code is a plain failure. Fail(code, nil) returns nil.
func Fail(code int, err error) error {
	if err == nil {
		return nil
	}
	status := abi.StatusFail
	if code >= 64 && code <= 255 {
		status = abi.Status(code)
	}
	return &statusError{error: err, status: status}
}

type statusError struct {
	error
	status abi.Status
	tell   func() int32 // tells the host more about the status; nil: there is no more
}

func (e *statusError) Unwrap() error { return e.error }

// statusOf is the status that a handler's error stands for, given what the
// host says about cancellation.
func statusOf(err error, reason abi.Cancel) abi.Status {
	if reason != abi.CancelNone && unwound(err) {
		return abi.StatusCancelled
	}
	var s *statusError
	if errors.As(err, &s) {
		return s.status
	}
	return abi.StatusFail
}

// unwound reports whether err comes from a cancellation.
func unwound(err error) bool {
	for _, target := range []error{context.Canceled, context.DeadlineExceeded, ErrCancelled, ErrConflict} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// errEnded is the cause of a context whose handler has returned.
var errEnded = errors.New("the handler has returned")

// cancelError is the cause of a cancelled context. It is context.Canceled,
// and ErrConflict or context.DeadlineExceeded where that is the reason.
type cancelError abi.Cancel

func (e cancelError) Error() string {
	switch abi.Cancel(e) {
	case abi.CancelDeadline:
		return "cancelled: the item's time is nearly up"
	case abi.CancelStop:
		return "cancelled: the job or the host is stopping"
	case abi.CancelLost:
		return "cancelled: the item is no longer owned by this host"
	case abi.CancelAbort:
		return "cancelled: an operator asked for it"
	case abi.CancelYield:
		return "cancelled: the item is to move to another host"
	}
	return "cancelled: reason " + strconv.Itoa(int(e))
}

func (e cancelError) Is(target error) bool {
	switch target {
	case context.Canceled:
		return true
	case context.DeadlineExceeded:
		return abi.Cancel(e) == abi.CancelDeadline
	case ErrConflict:
		return abi.Cancel(e) == abi.CancelLost
	}
	return false
}
