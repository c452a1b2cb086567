package plugin

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// worker implements abi.Worker. It is used by one goroutine at a time.
type worker struct {
	x       *executor
	failed  error   // why the module is not in memory
	engine  *engine // nil if it is not
	account *account
	in      *instance // kept between items; nil if there is none
	gone    bool
}

// Close drops the instance and ends the worker's use of the executor.
func (w *worker) Close() error {
	if w.gone {
		return nil
	}
	w.gone = true
	if w.failed == nil {
		w.drop()
		if w.account.host == nil { // otherwise the host knows what to expect, and admits it
			w.x.expect(w.account.most)
		}
		w.account.close()
		w.x.r.release(w.engine)
	}
	w.x.Release()
	return nil
}

func (w *worker) drop() {
	if w.in != nil {
		w.in.close()
		w.in = nil
	}
}

// Execute implements abi.Worker.
func (w *worker) Execute(ctx context.Context, inv *abi.Invocation) abi.Result {
	op, second := abi.ExportExecute, ""
	switch w.x.typ {
	case wasm.TypeDataflow:
		op, second = abi.ExportFetch, abi.ExportProcess
	case wasm.TypeScript:
		op = abi.ExportStart
	}
	if r, ok := w.ready(ctx, op, inv); !ok {
		return r
	}
	if w.x.typ == wasm.TypeScript {
		return w.script(ctx, inv)
	}
	if w.in == nil {
		in, outcome, err := w.x.instantiate(ctx, w.engine, w.account, inv, w.x.config, op, second)
		if err != nil {
			return failure(outcome, err, "")
		}
		w.in = in
	}
	in := w.in
	in.begin(ctx, inv, abi.PhaseItem)
	var r abi.Result
	var keep bool
	if w.x.typ == wasm.TypeDataflow {
		r, keep = w.dataflow(ctx, in)
	} else {
		r, keep = in.simple(ctx, op)
	}
	in.finish(&r)
	// The watcher of an ended context may close the instance just after a call has returned.
	if !keep || w.x.settings.FreshPerItem || in.mod.IsClosed() {
		w.drop()
	}
	return r
}

// Listen implements abi.Worker. A listener has an instance of its own.
func (w *worker) Listen(ctx context.Context, export string, inv *abi.Invocation) abi.Result {
	if r, ok := w.ready(ctx, export, inv); !ok {
		return r
	}
	if !w.x.HasListener(export) {
		return failure(abi.OutcomeError, &Error{Kind: KindHost, Op: export, Err: errors.New("the module has no such listener")}, "")
	}
	in, outcome, err := w.x.instantiate(ctx, w.engine, w.account, inv, w.x.config, export)
	if err != nil {
		return failure(outcome, err, "")
	}
	defer in.close()
	in.begin(ctx, inv, abi.PhaseListener)
	r, _ := in.simple(ctx, export)
	in.finish(&r)
	return r
}

// ready reports whether an invocation may begin. An ended context must not reach wazero, which would close the
// instance.
func (w *worker) ready(ctx context.Context, op string, inv *abi.Invocation) (abi.Result, bool) {
	if w.gone {
		return failure(abi.OutcomeError, &Error{Kind: KindHost, Op: op, Err: errors.New("the worker is closed")}, ""), false
	}
	if inv == nil || inv.Host == nil {
		return failure(abi.OutcomeError, &Error{Kind: KindHost, Op: op, Err: errors.New("the invocation has no host")}, ""), false
	}
	if w.failed != nil {
		return failure(abi.OutcomeError, &Error{Kind: KindLoad, Op: op, Err: w.failed}, ""), false
	}
	if ctx.Err() != nil {
		outcome, err := classify(ctx, op, nil)
		return failure(outcome, err, ""), false
	}
	return abi.Result{}, true
}

// simple calls an entry point that returns a status. keep is false if the
// instance may not be used again.
func (in *instance) simple(ctx context.Context, op string) (r abi.Result, keep bool) {
	status, err := in.call(ctx, in.entry[0])
	if err != nil || ctx.Err() != nil {
		outcome, e := in.failed(ctx, ctx, op, err, "")
		return failure(outcome, e, in.message), false
	}
	r, keep = in.status(op, status)
	if r.Outcome == abi.OutcomeOK {
		r.Offset, r.Staged = in.staged, in.isStaged
	}
	return r, keep
}

// status turns what the guest returned into a result.
func (in *instance) status(op string, status int32) (r abi.Result, keep bool) {
	r.Status = abi.Status(status)
	r.Message = in.message
	say := func(format string, args ...any) {
		if r.Message == "" {
			r.Message = op + " " + fmt.Sprintf(format, args...)
		}
	}
	switch {
	case r.Status == abi.StatusOK:
		r.Outcome, r.Message = abi.OutcomeOK, ""
	case r.Status == abi.StatusFail:
		r.Outcome = abi.OutcomeFail
		say("returned FAIL")
	case r.Status == abi.StatusRetry:
		r.Outcome = abi.OutcomeRetry
		say("returned RETRY")
		in.later(&r)
	case r.Status == abi.StatusCancelled:
		r.Outcome = abi.OutcomeCancelled
		say("returned CANCELLED")
		r.Err = &Error{Kind: KindCancelled, Op: op, Err: errors.New(r.Message)}
		return r, false
	case status > 3 && status < 64:
		r.Outcome = abi.OutcomeFail
		say("returned %d, a reserved status", status)
		in.host.Log(abi.LevelWarn, "the guest returned a reserved status", []string{"export", op, "status", strconv.Itoa(int(status))})
	case status >= 64 && status < 256:
		r.Outcome = abi.OutcomeFail
		say("failed with code %d", status)
	default:
		r.Outcome = abi.OutcomeFail
		say("returned %d, which is no status", status)
		return r, false
	}
	return r, true
}

// later turns a RETRY into RETRY_AT if the guest has named a time.
func (in *instance) later(r *abi.Result) {
	if in.retryAt != 0 {
		r.Outcome, r.RetryAt, r.PauseKey = abi.OutcomeRetryAt, time.UnixMilli(in.retryAt), in.pauseKey
	}
}

// failure makes the result of a run that did not end with a status. message is the guest's own, if it set one.
func failure(outcome abi.Outcome, err *Error, message string) abi.Result {
	if message == "" {
		message = err.Error()
	}
	return abi.Result{Outcome: outcome, Message: message, Err: err}
}
