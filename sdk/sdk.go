// Package sdk is for writing jobs in Go: it turns functions into the guest
// side of Job ABI v1 (package abi), and the host's imports into Go.
//
// A job is a package main whose init registers a handler; main stays empty,
// because it is never run in a module of this kind:
//
//	package main
//
//	import (
//		"context"
//		"log/slog"
//
//		"github.com/wasmjob/wasmjob/sdk"
//		"github.com/wasmjob/wasmjob/sdk/simple"
//	)
//
//	func init() { simple.Register(settle) }
//
//	func main() {}
//
//	func settle(ctx context.Context, sc sdk.ShardingContext) error {
//		slog.Info("settling", "city", sc.ShardingParameter)
//		return nil
//	}
//
// It is built with the Go toolchain alone:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o settle.wasm .
//
// # One package for each export
//
// What a module exports is what it is, so every export has a package of its
// own and a module has only those that it imports: package simple is
// job_execute, package dataflow is job_fetch and job_process, and the
// packages below listener are the four listener exports. Likewise an import
// of the host is in the module only if a function is used that needs it.
//
// # How a handler ends
//
// nil is OK. An error is FAIL and its text is the reason that the host
// records; [Retry] makes it RETRY, [RetryAt] RETRY_AT and [Fail] a failure code of the job's own.
// An error that comes from the context is CANCELLED if the host does say that
// the invocation is cancelled. A panic is logged at level error with its
// stack, recorded as the reason, and then the guest traps: the host sees a
// TRAP and drops the instance, whose memory cannot be trusted any more. (A
// panic in a goroutine that the handler started cannot be caught here: the Go
// runtime writes it to standard error and traps by itself.) os.Exit is an EXIT.
//
// # Logging
//
// slog.Info and its like, and the log package, go to the host's log. Standard
// output and standard error do as well, line by line.
//
// # Goroutines
//
// A guest has one thread. Goroutines run while the handler waits, and stand
// still from its return until the next invocation; a handler should wait for
// those it started. If all of them wait for each other the Go runtime reports
// a deadlock on standard error and traps.
//
// # Tests
//
// Jobs compile for any platform. Package sdktest runs a handler under plain
// "go test" with a host that the test scripts.
package sdk

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk/internal/border"
)

// Handler is the body of a job or of a listener. The context is done when the
// host cancels the invocation, and knows its deadline.
type Handler func(ctx context.Context, sc ShardingContext) error

// Invoke runs h as the body of a guest's export and returns what the export
// has to return, an abi.Status. The packages that register a handler do it;
// it is exported for modules that write their exports themselves:
//
//	//go:wasmexport job_execute
//	func execute() int32 { return sdk.Invoke(settle) }
func Invoke(h Handler) int32 {
	if h == nil {
		border.SetError("no handler is registered: register it in an init function; main is not run in a module built with -buildmode=c-shared")
		return int32(abi.StatusFail)
	}
	sc := shardingContext()
	ctx := &invocation{deadline: sc.Deadline}
	border.Begin(sc.RunID, sc.Fence, sc.Attempt, ctx.poll)
	return int32(finish(call(ctx, h, sc)))
}

// call runs the handler and does not return if it panics.
func call(ctx *invocation, h Handler, sc ShardingContext) error {
	returned := false
	defer func() {
		if returned {
			ctx.end()
			return
		}
		if r := recover(); r != nil {
			trap(r)
		}
		// runtime.Goexit: in a test that is FailNow, which has to go on.
		ctx.end()
	}()
	err := h(ctx, sc)
	returned = true
	return err
}

// finish reports the reason and returns the status.
func finish(err error) abi.Status {
	if err == nil {
		return abi.StatusOK
	}
	border.SetError(explained(err.Error()))
	status := statusOf(err, Cancelled())
	if s, ok := errors.AsType[*statusError](err); ok && status == abi.StatusRetry && s.tell != nil {
		if refused := check("run again at a time", s.tell()); refused != nil {
			border.SetError(refused.Error() + ": " + err.Error())
			return abi.StatusFail
		}
	}
	return status
}

// trap reports a panic and ends the guest. It is called by the deferred
// function that recovered it.
func trap(r any) {
	message := "panic: " + explained(fmt.Sprint(r))
	if at := origin(); at != "" {
		message += ", at " + at
	}
	border.SetError(message)
	border.Log(abi.LevelError, message, appendPair(nil, "stack", stack()))
	border.Trap(message)
}

// origin names the function that panicked: the first one above the runtime's.
func origin() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(0, pcs[:])])
	panicking := false
	for {
		f, more := frames.Next()
		switch {
		case f.Function == "runtime.gopanic":
			panicking = true
		case panicking && !strings.HasPrefix(f.Function, "runtime."):
			return f.Function + " (" + f.File[strings.LastIndexByte(f.File, '/')+1:] + ":" + strconv.Itoa(f.Line) + ")"
		}
		if !more {
			return ""
		}
	}
}

// stack is the stack of the panic without the frames that report it.
func stack() string {
	s := string(debug.Stack())
	if i := strings.Index(s, "\npanic("); i >= 0 {
		s = s[i+1:]
	}
	return s
}
