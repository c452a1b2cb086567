package abi

import (
	"context"
	"time"
)

// ShardingContext is what an invocation reads through ctx_str and ctx_int. It does not change while the
// invocation runs.
type ShardingContext struct {
	JobName            string
	TaskID             string
	ShardingTotalCount int
	JobParameter       string
	// ShardingItem is -1 in a listener, which has no item.
	ShardingItem int
	// ShardingParameter is the item's parameter. HasShardingParameter is
	// false when the configuration names none for this item.
	ShardingParameter    string
	HasShardingParameter bool
	// FireTime is the scheduled instant, not the moment of the call.
	FireTime time.Time
	// PreviousFireTime and NextFireTime are zero when there is none.
	PreviousFireTime, NextFireTime time.Time
	// Attempt counts from 1 within a fire.
	Attempt int
	// Deadline is zero when the item has no time limit.
	Deadline time.Time
	// Fence is the fence token of this begin of the item.
	Fence int64
	// FetchDataCount is the preferred batch size of a DATAFLOW job, 0 = [DefaultFetchDataCount].
	FetchDataCount int
	RunID          string
	Source         Source
	PluginConfig   []byte
	Traceparent    string
	HostInfo       string
}

// Outcome classifies how an invocation ended, for events, metrics and retry policies.
type Outcome string

// The outcomes.
const (
	OutcomeOK        Outcome = "OK"
	OutcomeFail      Outcome = "FAIL"      // the guest returned it, or broke the protocol
	OutcomeRetry     Outcome = "RETRY"     // the guest asks to be run again
	OutcomeRetryAt   Outcome = "RETRY_AT"  // the guest asks to be run again, and not before a time
	OutcomeCancelled Outcome = "CANCELLED" // stopped, or ownership lost
	OutcomeTimeout   Outcome = "TIMEOUT"
	OutcomeTrap      Outcome = "TRAP"  // panic, out of bounds, unreachable, …
	OutcomeExit      Outcome = "EXIT"  // proc_exit from a module that may not, or with a code that is not 0
	OutcomeError     Outcome = "ERROR" // the host's own failure: no instance, registry unavailable
	// OutcomeWorker: the process that ran the guest died. A host runs the item again once before this becomes
	// the outcome.
	OutcomeWorker Outcome = "WORKER"
)

// Outcomes are all outcomes.
func Outcomes() []Outcome {
	return []Outcome{OutcomeOK, OutcomeFail, OutcomeRetry, OutcomeRetryAt, OutcomeCancelled, OutcomeTimeout, OutcomeTrap, OutcomeExit, OutcomeError, OutcomeWorker}
}

// Failed reports whether the outcome is a failure. A run that was stopped, or that runs again later, has not
// failed.
func (o Outcome) Failed() bool {
	return o != "" && o != OutcomeOK && o != OutcomeCancelled && o != OutcomeRetryAt
}

// Result is how one invocation ended.
type Result struct {
	Outcome Outcome
	// Status is what the guest returned; it has no meaning for the outcomes
	// TRAP, EXIT, TIMEOUT, WORKER and ERROR.
	Status Status
	// Message is the reason for people: set_error's text, or else the trap's. Empty for OK.
	Message string
	// Err has the details of TRAP, EXIT, TIMEOUT, CANCELLED, WORKER and ERROR, with the guest's stack; nil
	// otherwise.
	Err error
	// Offset is what the guest staged and has not committed, when Outcome is OK. The caller commits it together
	// with the item's completion.
	Offset []byte
	Staged bool
	// RetryAt is the earliest time at which the guest asks to be run again, with the outcome RETRY_AT; PauseKey
	// says that until then no other run under the job's rate key may begin.
	RetryAt  time.Time
	PauseKey bool
	// NotBegun is set when the invocation has not begun, because the one before it takes long; see [Pipelined].
	// The other fields have no meaning then.
	NotBegun bool
	// Batches and Records count what a DATAFLOW invocation processed.
	Batches, Records int64
	// Yielded is set when a streaming loop ended between two batches because
	// the host asked for it (CancelYield), not because nothing was left.
	Yielded bool
	// Memory is the size of the guest's linear memory at the end, in bytes.
	Memory int64
	// DroppedLines counts the log lines that were beyond the limits of one
	// invocation.
	DroppedLines int64
	// Reads and ReadBytes count the reads of files in directories that the guest may only
	// read, and the bytes that they gave.
	Reads, ReadBytes int64
	// Outside counts what the invocation did with each capability, by name (http, net,
	// kv, env, dir); nil if it did nothing.
	Outside map[string]OutsideCount
}

// OutsideCount is what an invocation did with a capability.
type OutsideCount struct {
	Calls    int64            `json:"calls"`
	Refused  map[string]int64 `json:"refused,omitempty"`  // how many calls were refused, by reason
	Failed   int64            `json:"failed,omitempty"`   // how many requests and connections got no answer
	Sent     int64            `json:"sent,omitempty"`     // how many bytes were sent
	Received int64            `json:"received,omitempty"` // how many bytes were received
	Targets  []string         `json:"targets,omitempty"`  // the first hosts that were called, or files that were written
	// FailedTargets are the first targets that did not answer.
	FailedTargets []string `json:"failedTargets,omitempty"`
	// Times has the durations of requests and connections, by target; if there are many, only the slowest
	// targets.
	Times map[string]TargetTime `json:"times,omitempty"`
}

// Slowest is the target that took longest for one call; empty if no times are known.
func (c OutsideCount) Slowest() (target string, t TargetTime) {
	for name, of := range c.Times {
		if target == "" || of.Slowest > t.Slowest || (of.Slowest == t.Slowest && name < target) {
			target, t = name, of
		}
	}
	return target, t
}

// TargetTime is how long a target took.
type TargetTime struct {
	Calls int64 `json:"calls"` // requests, or connections
	// Slowest is the longest single call, from connect to answer, even if it failed. It excludes the time that
	// the guest took to write and read.
	Slowest time.Duration `json:"slowestNs"`
}

// OutsideCall is one finished request or connection of an invocation. Only invocations with a recorded trace
// report them.
type OutsideCall struct {
	Capability string // http or net
	// SpanID names the call in its trace, 16 hexadecimal digits. The server receives it as the parent of its
	// spans, unless the guest sends another one.
	SpanID string
	// Method is the request's; empty for a connection.
	Method string
	// Scheme is http, https, tcp or tls; Target is the server's host and port.
	Scheme, Target string
	// Status is that of the response, 0 if there is none.
	Status int
	// Took is from the start of the request or dial to the end of the response or connection. Connected is the
	// time until the connection was made, 0 if there was none or it is unknown.
	Took, Connected time.Duration
	Sent, Received  int64 // bytes of bodies, or of the connection
	// Failure is why it failed; empty if it did not.
	Failure string
}

// Host is what the embedding program provides to a running invocation: the functions behind the imports.
// Implementations must be safe for use by one goroutine per invocation, and Cancelled by any.
type Host interface {
	// Log takes one line from the guest, already cut to the limits. kv
	// alternates keys and values.
	Log(level int, msg string, kv []string)
	LogEnabled(level int) bool
	Progress(done, total int64)
	// Metric returns OK, ErrInvalid or ErrQuota. The name has been checked.
	Metric(kind int, name string, value int64) Code
	// CommitOffset makes the offset durable before it returns OK. It returns ErrConflict when the item is no
	// longer owned, ErrUnavailable when the registry did not answer in time, ErrCancelled when its owner is
	// unknown. A job that commits more often than its quota on the host waits for its turn instead of getting
	// ErrQuota. A nil offset means no offset: only what an Outside has staged becomes durable.
	CommitOffset(ctx context.Context, offset []byte) Code
	// StageOffset notes the offset of a successful DATAFLOW batch. The host makes the newest one durable at
	// most once per second and at the end of the loop. It returns OK, ErrConflict or ErrCancelled. A nil offset
	// means none, as in CommitOffset.
	StageOffset(ctx context.Context, offset []byte) Code
	// Pause is called between the batches of a streaming DATAFLOW job. It returns when the next batch may
	// begin: the host may let other items go first. It also returns when the item must end; call Cancelled
	// after it.
	Pause(ctx context.Context)
	// Cancelled is called before every import with an outside effect and between batches.
	Cancelled() Cancel
}

// Invocation is one run of one item (or of a listener).
type Invocation struct {
	Context ShardingContext
	Host    Host
	// Offset is the last committed offset; HasOffset is false if none ever was.
	Offset    []byte
	HasOffset bool
	// Outside carries out the guest's calls of capabilities; nil: none is granted.
	Outside Outside
	// WholeLog receives all lines of the guest; nil: only the lines of Host.Log are kept.
	WholeLog *WholeLog
}

// WholeLog receives a guest's log before its limits are applied.
type WholeLog struct {
	// Where names the place where the lines are kept, for people: a file.
	Where string
	// Add stores a line, as Host.Log does. The store may have its own limits. It may block until ctx has ended,
	// and for a second at most.
	Add func(ctx context.Context, level int, msg string, kv []string)
}

// AttrWholeLog is the key of the log attribute with WholeLog.Where: it says where to find lines that are
// missing elsewhere.
const AttrWholeLog = "whole_log"

// Worker runs invocations one after the other, on one goroutine at a time. It may keep a guest instance between
// them, and drops it after every outcome that may leave the guest broken (TRAP, EXIT, TIMEOUT, CANCELLED,
// WORKER, ERROR, and statuses outside the protocol).
type Worker interface {
	// Execute runs one item to its end, or until ctx ends it by force. For a
	// DATAFLOW job that is the whole loop.
	Execute(ctx context.Context, inv *Invocation) Result
	// Listen calls a listener export, one of the Export…Before/After names.
	Listen(ctx context.Context, export string, inv *Invocation) Result
	// Close drops the instance. It may be called once; the worker is gone even if it returns an error.
	Close() error
}

// Pipelined is a Worker that accepts several items at once, from several goroutines. It still runs them one
// after the other, but does not wait for the caller in between. It returns items that wait behind a long one:
// see Result.NotBegun.
type Pipelined interface {
	Worker
	// Depth is how many items it accepts at once, at least 1.
	Depth() int
}

// Executor is a loaded module, configured for one job. It is safe for
// concurrent use.
type Executor interface {
	// Digest identifies the module: lower-case hex of its SHA-256.
	Digest() string
	// HasListener reports whether the module has the listener export.
	HasListener(export string) bool
	// NewWorker makes a worker for one fire. It does not run the guest. It waits until there is memory for one;
	// the error is that of ctx, or says that the executor is closed.
	NewWorker(ctx context.Context) (Worker, error)
	// Expect says when the next worker is needed, by the wall clock: until shortly before, the executor may
	// unload its module from memory. Zero means unknown.
	Expect(next time.Time)
	// Retain adds a use, Release ends one. The last Release closes the executor. Retain returns false if it is
	// closed.
	Retain() bool
	Release()
}
