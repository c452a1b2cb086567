// Package abi defines Job ABI v1: the contract between a host that runs
// sharded jobs and a guest, a core WebAssembly module that implements one.
//
// This package is normative. It names every function, identifier, code and
// limit that crosses the border, and both the host (package host/sandbox/plugin) and
// the guest SDK (package sdk) take them from here. A guest in any other
// language needs nothing but this text.
//
// # Shape
//
// The guest exports functions that take no parameters and return at most one
// i32. While one of them runs, the guest pulls what it needs by calling
// imported host functions. Nothing but i32 and i64 values and bytes in the
// guest's own memory crosses the border; there is no codec, no allocator to
// export, and the host never calls a guest function from inside an import.
//
// # Strings
//
// A byte string is a pair (ptr i32, len i32), both unsigned; ptr is ignored
// when len is 0. Strings are not NUL-terminated. A list of strings is each
// element followed by one NUL byte; a key/value list alternates keys and
// values. Names must be UTF-8 without NUL, else [ErrInvalid]. Invalid UTF-8
// in log and error text is replaced by U+FFFD and never fails a job.
//
// # Reading
//
// A function with (buf i32, buf_limit i32) returns the full length n >= 0 of
// the value and writes it only if n <= buf_limit; otherwise it writes nothing.
// A limit of 0 asks for the length. A negative result is a [Code]. Context,
// configuration and the committed offset do not change during one invocation.
//
// # Mistakes
//
// A region outside the guest's memory traps. Every other mistake is a
// negative [Code], so that newer guests run on older hosts: an unknown field
// is [ErrNotFound], an unknown kind is [ErrInvalid].
//
// # Versions
//
// A guest exports the marker function job_abi_v1 (see [MarkerPrefix]); it is
// never called. Functions are only ever added to the import module "job_v1";
// a module links if the functions that it references exist with the same
// signature. A breaking change would be a new marker and a module "job_v2".
package abi

// Version is the highest Job ABI version that this package describes.
const Version = 1

// Names of import modules.
const (
	// Module holds the core imports; see [Imports].
	Module = "job_v1"
	// ModuleWASI is WASI preview 1; clocks, randomness, arguments,
	// environment, standard streams and mounted directories come from it.
	ModuleWASI = "wasi_snapshot_preview1"
)

// Names of guest exports. All but memory are functions.
const (
	// MarkerPrefix followed by a decimal version is the marker export, of
	// type () -> (). It is looked for without running the guest.
	MarkerPrefix = "job_abi_v"
	// Marker is the marker export of this version.
	Marker = "job_abi_v1"
	// ExportMemory is the guest's only memory. A guest may not import memories,
	// tables or globals.
	ExportMemory = "memory"
	// ExportInitialize, () -> (), is optional: called exactly once per
	// instance, before anything else, within [InitializeTimeout].
	ExportInitialize = "_initialize"
	// ExportStart, () -> (), makes the module a SCRIPT: a WASI command. Its
	// exit code 0 is OK, 75 is RETRY, any other is the outcome EXIT. A module
	// must not export both it and ExportInitialize. It may import from Module
	// and may, but need not, export Marker.
	ExportStart = "_start"
	// ExportExecute, () -> i32, runs one sharding item of a SIMPLE job and
	// returns a [Status].
	ExportExecute = "job_execute"
	// ExportFetch, () -> i32, loads the next batch of a DATAFLOW job into
	// the guest's memory: a record count > 0, 0 for "nothing left", or a
	// negated [Status] such as -1 (FAIL) or -2 (RETRY).
	ExportFetch = "job_fetch"
	// ExportProcess, () -> i32, processes the batch that ExportFetch loaded
	// and returns a [Status].
	ExportProcess = "job_process"

	// The listener exports are optional, () -> i32, and return a [Status].
	// They run in an instance of their own; [CtxItem] and
	// [CtxItemParameter] are [ErrNotFound] and the offset functions return
	// [ErrState]. A failure is reported and goes to the job's error
	// handler; the items run all the same.

	// ExportBefore runs on each host before its items of a fire.
	ExportBefore = "job_before_executed"
	// ExportAfter runs on each host after its items of a fire, whatever
	// their outcome.
	ExportAfter = "job_after_executed"
	// ExportBeforeOnce runs once per fire over all hosts, on the host whose
	// items were the last to be started, before any item runs.
	ExportBeforeOnce = "job_before_executed_at_last_started"
	// ExportAfterOnce runs once per fire over all hosts, on the host whose
	// items were the last to be completed.
	ExportAfterOnce = "job_after_executed_at_last_completed"
)

// Code is a negative result of a host function.
type Code int32

// The codes. -14 to -63 are reserved.
const (
	OK             Code = 0
	ErrInvalid     Code = -1  // an argument is malformed or out of range
	ErrNotFound    Code = -2  // no such field, or no value
	ErrDenied      Code = -3  // a capability or an allow-list forbids it
	ErrTooLarge    Code = -4  // a value is over its limit
	ErrQuota       Code = -5  // a rate, count or byte budget is used up
	ErrUnavailable Code = -6  // the registry or the network, for now
	ErrConflict    Code = -7  // ownership of the item was lost
	ErrCancelled   Code = -8  // the invocation is being cancelled
	ErrUnsupported Code = -9  // this host does not do that
	ErrState       Code = -10 // not allowed in this phase
	ErrTimeout     Code = -11
	ErrInternal    Code = -12
	ErrAgain       Code = -13 // nothing yet: wait for the handle, and call again
)

// Status is what a guest function returns.
type Status int32

// The statuses. 4 to 63 are reserved and count as FAIL; 64 to 255 are failure
// codes of the guest's own. Any other value is a breach of protocol: FAIL, and
// the instance is dropped.
const (
	StatusOK        Status = 0
	StatusFail      Status = 1
	StatusRetry     Status = 2 // transient; the job's retry policy applies
	StatusCancelled Status = 3 // the guest saw the cancellation and unwound
)

// Flags of retry_at.
const (
	RetryPausesKey = 1 // the key of the job's rate is paused until the time
)

// Fields of ctx_str. Unknown fields are [ErrNotFound]; present but empty is 0.
const (
	CtxJobName       = 1
	CtxTaskID        = 2 // {job}@-@{items}@-@READY@-@{instance}, as ElasticJob has it
	CtxItemParameter = 3 // ErrNotFound when the item has none
	CtxJobParameter  = 4
	CtxPluginConfig  = 5 // opaque bytes from the operator
	CtxTraceparent   = 6 // W3C trace context
	CtxHostInfo      = 7 // text for people
	CtxRunID         = 8 // job/instant/item, unique per fire and item; an idempotency key
	CtxSource        = 9 // one of the Source values
)

// Fields of ctx_int. Values are not negative, so a negative result is a [Code].
const (
	CtxTotalCount     = 32
	CtxItem           = 33
	CtxFireTime       = 34 // the scheduled instant, Unix milliseconds
	CtxPreviousFire   = 35 // Unix milliseconds, or ErrNotFound
	CtxNextFire       = 36 // Unix milliseconds, or ErrNotFound
	CtxAttempt        = 37 // from 1
	CtxDeadline       = 38 // Unix milliseconds, 0 = none
	CtxFence          = 39 // fence token: grows with every begin of the item, for ever
	CtxFetchDataCount = 40 // preferred batch size of a DATAFLOW job, see [DefaultFetchDataCount]; 0 for others
)

// DefaultFetchDataCount is the batch size that a DATAFLOW guest is asked for if its job's
// configuration has none: fetch loops count up to it, so it is never 0.
const DefaultFetchDataCount = 100

// Levels of log and log_enabled are those of log/slog; other numbers are
// ordered between them.
const (
	LevelDebug = -4
	LevelInfo  = 0
	LevelWarn  = 4
	LevelError = 8
)

// Kinds of metric.
const (
	MetricCounter   = 0 // add value
	MetricGauge     = 1 // set to value
	MetricHistogram = 2 // observe value
)

// ValidMetric reports whether the kind is one of these, and the name matches
// [a-z][a-z0-9_]{0,63}.
func ValidMetric[S string | []byte](kind int, name S) bool {
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z'
		if !letter && (i == 0 || (c != '_' && (c < '0' || c > '9'))) {
			return false
		}
	}
	return len(name) > 0 && len(name) <= MaxMetricName && kind >= MetricCounter && kind <= MetricHistogram
}

// Cancel is the result of the import "cancelled".
type Cancel int32

// The reasons. After CancelLost no commit works any more; after the others it
// still does, until the hard stop.
const (
	CancelNone     Cancel = 0
	CancelDeadline Cancel = 1 // the item's time is nearly up
	CancelStop     Cancel = 2 // the job is stopping or the host is draining
	CancelLost     Cancel = 3 // ownership of the item is lost
	CancelAbort    Cancel = 4 // an operator asked for it
	CancelYield    Cancel = 5 // resharding waits for this item: finish the batch
)

// Source says why a fire happened.
type Source string

// The sources.
const (
	SourceSchedule Source = "schedule"
	SourceTrigger  Source = "trigger"
	SourceMisfire  Source = "misfire"
	SourceFailover Source = "failover"
	SourceCatchUp  Source = "catch-up"
	SourceBackfill Source = "backfill" // an operator has past instants run again
	SourceInvoke   Source = "invoke"   // run by `wasmjob invoke`, without a registry
)
