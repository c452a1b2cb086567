package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero/api"

	"github.com/wasmjob/wasmjob/abi"
)

// dataflow fetches and processes: once, or, if the job streams, until nothing is left, the host wants an end,
// or a call fails. A streaming job's staged offset is passed to the host as soon as its batch has succeeded, so
// a failure loses only its own batch; for other jobs it becomes part of the result.
func (w *worker) dataflow(ctx context.Context, in *instance) (r abi.Result, keep bool) {
	streaming := w.x.settings.Streaming
	var batches, records int64
	done := func(res abi.Result, keep bool) (abi.Result, bool) {
		res.Batches, res.Records = batches, records
		return res, keep
	}
	for {
		n, fail, keep := in.step(ctx, abi.ExportFetch, in.entry[0])
		if fail != nil {
			return done(*fail, keep)
		}
		if n < 0 {
			return done(in.status(abi.ExportFetch, negate(n)))
		}
		if n > 0 {
			status, fail, keep := in.step(ctx, abi.ExportProcess, in.entry[1])
			if fail != nil {
				return done(*fail, keep)
			}
			if r, keep := in.status(abi.ExportProcess, status); r.Outcome != abi.OutcomeOK {
				return done(r, keep)
			}
			batches++
			records += int64(n)
		}
		if !streaming {
			return done(abi.Result{Outcome: abi.OutcomeOK, Offset: in.staged, Staged: in.isStaged}, true)
		}
		if code := in.save(in.host.StageOffset); code != abi.OK {
			return done(lost(code), false)
		}
		if n == 0 {
			return done(abi.Result{Outcome: abi.OutcomeOK}, true)
		}
		in.host.Pause(ctx)
		switch why := in.host.Cancelled(); why {
		case abi.CancelNone:
		case abi.CancelYield:
			return done(abi.Result{Outcome: abi.OutcomeOK, Yielded: true}, true)
		default:
			text := fmt.Sprintf("stopped between batches: %s", cancelText(why))
			return done(failure(abi.OutcomeCancelled, &Error{Kind: KindCancelled, Op: abi.ExportFetch, Err: errors.New(text)}, text), false)
		}
		in.message = ""
	}
}

// step calls fetch or process. fail is set if the call did not return.
func (in *instance) step(ctx context.Context, op string, f api.Function) (value int32, fail *abi.Result, keep bool) {
	inner, late := ctx, ""
	if t := in.x.settings.CallTimeout; t > 0 && in.x.settings.Streaming {
		var cancel context.CancelFunc
		inner, cancel = context.WithTimeout(ctx, t)
		defer cancel()
		late = fmt.Sprintf("ran longer than %s", t)
	}
	value, err := in.call(inner, f)
	if err != nil || inner.Err() != nil {
		outcome, e := in.failed(ctx, inner, op, err, late)
		r := failure(outcome, e, in.message)
		return 0, &r, false
	}
	return value, nil, true
}

// negate turns job_fetch's -s into s. The smallest number has no negative, and
// is no status either way.
func negate(n int32) int32 {
	if n == -1<<31 {
		return n
	}
	return -n
}

func lost(code abi.Code) abi.Result {
	text := fmt.Sprintf("the offset was not taken (code %d)", code)
	switch code {
	case abi.ErrConflict:
		text = "the offset was not taken: ownership of the item was lost"
	case abi.ErrCancelled:
		text = "the offset was not taken: ownership of the item is in doubt"
	}
	return failure(abi.OutcomeCancelled, &Error{Kind: KindCancelled, Op: abi.ExportProcess, Err: errors.New(text)}, text)
}

func cancelText(c abi.Cancel) string {
	switch c {
	case abi.CancelDeadline:
		return "the time is nearly up"
	case abi.CancelStop:
		return "the job or the host is stopping"
	case abi.CancelLost:
		return "ownership of the item was lost"
	case abi.CancelAbort:
		return "an operator asked for it"
	}
	return fmt.Sprintf("reason %d", c)
}
