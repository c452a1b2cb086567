// Package sdktest runs jobs under plain "go test": a [Host] plays the host's
// side of Job ABI v1 as far as one item sees it, scripted by the test, and
// keeps what the job reported.
//
//	host := &sdktest.Host{Context: sdktest.Context{ShardingItem: 1, ShardingParameter: "Shanghai"}}
//	result := host.Run(settle)
//	if result.Outcome != abi.OutcomeOK { ... }
//
// What the job may do outside is what the test grants: [Host.AllowHTTP], [Host.AllowNet],
// Host.KV, Host.Secrets, Host.Env. Anything else is refused, as by a host.
//
// A guest finds its host without being handed one, and there is one of it. A
// run is therefore alone in its process: parallel tests take turns, and a
// handler must not start a run of its own. While a run lasts, slog's default
// logger and the log package write to its host.
package sdktest

import (
	"cmp"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/dataflow"
	"github.com/wasmjob/wasmjob/sdk/internal/border"
)

// Host plays the host for one item. The zero value is ready: item 0 of 1 of
// the job "test". The exported fields are the script; set them before a run.
// The methods may be called from any goroutine, and from the handler.
type Host struct {
	// Context is what the handler gets. For a run these defaults hold:
	// JobName "test", ShardingTotalCount 1, Attempt 1, Fence 1, Source
	// invoke; a FireTime of zero is the time of the run, and TaskID and
	// RunID are made from the rest. A ShardingParameter that is not empty
	// counts as present.
	Context Context
	// Listener makes the run one of a listener: no item and no offset.
	Listener bool
	// Once ends a dataflow run after its first batch, as for a job without
	// streamingProcess.
	Once bool
	// flows is set while a dataflow runs, whose FetchDataCount of 0 is the default.
	flows bool
	// Offset is the committed offset; nil if none ever was. A run that
	// commits changes it, so that the next run with this host goes on there.
	Offset []byte
	// KV is the committed key/value state of the item; nil refuses it to the job. A run
	// that commits replaces it.
	KV map[string][]byte
	// Secrets are granted to the job by name: to be read, and in headers of requests.
	Secrets map[string]string
	// Env are the environment variables that package sdk/env finds.
	Env map[string]string
	// LogLevel is the lowest level that the host logs. The zero value is
	// slog.LevelInfo.
	LogLevel slog.Level
	// OnCancelled is asked each time that the job asks for a cancellation,
	// with the number of the question in this run, from 1; nil never
	// cancels. See also [Host.Cancel]. It must not call the host.
	OnCancelled func(question int) abi.Cancel
	// OnCommit is asked before an offset, or key/value state with the offset as
	// it is, is made durable, by CommitOffset or after a batch; anything but abi.OK refuses it. It must not call the
	// host.
	OnCommit func(offset []byte) abi.Code

	mu        sync.Mutex
	context   Context // of the run
	cancel    abi.Cancel
	questions int
	staged    []byte
	isStaged  bool
	reason    string
	logs      []Log
	metrics   []Metric
	names     map[string]bool // of metrics
	progress  []Progress
	retryAt   time.Time
	pauseKey  bool
	commits   int
	stagedKV  map[string][]byte // nil: nothing is staged
	routes    map[string]http.RoundTripper
	dials     map[string]func() (net.Conn, error)
	outside   *outside // of the run
}

// Context is all that a host says about an invocation: the fields of
// [sdk.ShardingContext], and what its methods answer.
type Context = abi.ShardingContext

// Log is a line that the job logged.
type Log struct {
	Level   slog.Level
	Message string
	// Attrs alternates keys and values.
	Attrs []string
}

// String returns the line as "INFO message key=value".
func (l Log) String() string {
	var b strings.Builder
	b.WriteString(l.Level.String() + " " + l.Message)
	for i := 0; i+1 < len(l.Attrs); i += 2 {
		value := l.Attrs[i+1]
		if value == "" || strings.ContainsAny(value, " \"\n=") {
			value = strconv.Quote(value)
		}
		b.WriteString(" " + l.Attrs[i] + "=" + value)
	}
	return b.String()
}

// Attr returns the value of the first attribute with the key, "" if there is
// none.
func (l Log) Attr(key string) string {
	for i := 0; i+1 < len(l.Attrs); i += 2 {
		if l.Attrs[i] == key {
			return l.Attrs[i+1]
		}
	}
	return ""
}

// Metric is a value that the job reported and the host accepted.
type Metric struct {
	Kind  int // abi.MetricCounter, …
	Name  string
	Value int64
}

// Progress is one report of progress.
type Progress struct{ Done, Total int64 }

// Run runs a handler as an item of a SIMPLE job, or as a listener. A panic is
// not passed on: its outcome is TRAP, and Err has the stack.
func (h *Host) Run(handler sdk.Handler) abi.Result {
	return h.RunExport(func() int32 { return sdk.Invoke(handler) })
}

// RunExport runs the body of an export such as simple.Execute.
func (h *Host) RunExport(export func() int32) abi.Result {
	defer h.enter()()
	return h.item(export)
}

func (h *Host) item(export func() int32) abi.Result {
	status, err := h.call(export)
	return h.end(status, err)
}

// Dataflow runs the loop of a DATAFLOW job: fetch and process in turns, until
// a fetch finds nothing, something fails, or the host cancels between two
// batches. An offset is committed after each batch that went well.
func Dataflow[T any](h *Host, fetch dataflow.Fetch[T], process dataflow.Process[T]) abi.Result {
	flow := dataflow.New(fetch, process)
	return h.DataflowExports(flow.Fetch, flow.Process)
}

// DataflowExports is [Dataflow] for the bodies of the exports, such as
// dataflow.FetchExport and dataflow.ProcessExport.
func (h *Host) DataflowExports(fetch, process func() int32) abi.Result {
	defer h.enter()()
	return h.loop(fetch, process)
}

func (h *Host) loop(fetch, process func() int32) abi.Result {
	h.flows = true
	defer func() { h.flows = false }()
	var batches, records int64
	done := func(status int32, err error) abi.Result {
		result := h.end(status, err)
		result.Batches, result.Records = batches, records
		return result
	}
	for {
		n, err := h.call(fetch)
		if err != nil || n <= 0 {
			return done(-n, err)
		}
		status, err := h.call(process)
		if err != nil || status != int32(abi.StatusOK) {
			return done(status, err)
		}
		batches++
		records += int64(n)
		if code := h.commitStaged(); code != abi.OK {
			return done(int32(abi.StatusCancelled), fmt.Errorf("commit offset of batch %d: %w", batches, sdk.Errno(code)))
		}
		if h.Once {
			return done(int32(abi.StatusOK), nil)
		}
		if reason := (imports{h}).Cancelled(); reason != int32(abi.CancelNone) {
			return done(int32(abi.StatusCancelled), fmt.Errorf("cancelled between batches, reason %d", reason))
		}
	}
}

// Cancel makes the host cancel the run, the one that is running or the next.
func (h *Host) Cancel(reason abi.Cancel) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cancel = reason
	if h.outside != nil {
		h.outside.wakeUp()
	}
}

// Logs returns what was logged so far, over all runs of this host.
func (h *Host) Logs() []Log {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.logs)
}

// Metrics returns the values that were reported so far, in order.
func (h *Host) Metrics() []Metric {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.metrics)
}

// Progress returns the reports of progress so far, in order.
func (h *Host) Progress() []Progress {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.progress)
}

// Commits returns how many times an offset was made durable.
func (h *Host) Commits() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.commits
}

// enter makes h the host of the process until the function that it returns is
// called.
func (h *Host) enter() (leave func()) {
	exit := border.Enter(imports{h}, h.phase(), h.begin)
	logger, writer, flags := slog.Default(), log.Writer(), log.Flags()
	slog.SetDefault(slog.New(sdk.LogHandler()))
	return func() {
		h.mu.Lock()
		h.cancel = abi.CancelNone
		h.mu.Unlock()
		slog.SetDefault(logger)
		log.SetOutput(writer)
		log.SetFlags(flags)
		exit()
	}
}

func (h *Host) phase() abi.Phase {
	if h.Listener {
		return abi.PhaseListener
	}
	return abi.PhaseItem
}

// begin makes the invocation.
func (h *Host) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.context = h.defaults()
	h.questions, h.reason = 0, ""
	h.retryAt, h.pauseKey = time.Time{}, false
	h.staged, h.isStaged, h.stagedKV = nil, false, nil
	h.outside = newOutside(h.context.JobName)
}

func (h *Host) defaults() Context {
	c := h.Context
	c.JobName = cmp.Or(c.JobName, "test")
	c.ShardingTotalCount = cmp.Or(c.ShardingTotalCount, 1)
	c.Attempt = cmp.Or(c.Attempt, 1)
	c.Fence = cmp.Or(c.Fence, 1)
	c.Source = cmp.Or(c.Source, abi.SourceInvoke)
	c.HasShardingParameter = c.HasShardingParameter || c.ShardingParameter != ""
	if c.FireTime.IsZero() {
		c.FireTime = time.Now().Truncate(time.Millisecond)
	}
	if h.Listener {
		c.ShardingItem, c.HasShardingParameter = -1, false
	}
	c.TaskID = cmp.Or(c.TaskID, fmt.Sprintf("%s@-@%d@-@READY@-@127.0.0.1@-@1", c.JobName, c.ShardingItem))
	c.RunID = cmp.Or(c.RunID, fmt.Sprintf("%s/%d/%d", c.JobName, c.FireTime.UnixMilli(), c.ShardingItem))
	return c
}

// call runs an export; the error is that of a trap.
func (h *Host) call(export func() int32) (status int32, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w\n%s", trapError(r), debug.Stack())
		}
	}()
	return export(), nil
}

// errTrap marks a panic of the guest.
var errTrap = errors.New("guest trapped")

func trapError(r any) error {
	if t, ok := r.(*border.Trapped); ok {
		return fmt.Errorf("%w: %w", errTrap, t)
	}
	if err, ok := r.(error); ok {
		return fmt.Errorf("%w: panic: %w", errTrap, err)
	}
	return fmt.Errorf("%w: panic: %v", errTrap, r)
}

// end classifies how the run ended and commits what it staged.
func (h *Host) end(status int32, err error) abi.Result {
	h.outside.close()
	h.mu.Lock()
	result := abi.Result{Status: abi.Status(status), Message: h.reason, Err: err, Offset: slices.Clone(h.staged), Staged: h.isStaged}
	h.mu.Unlock()
	switch {
	case errors.Is(err, errTrap):
		result.Outcome = abi.OutcomeTrap
		result.Message = cmp.Or(result.Message, err.Error())
	case result.Status == abi.StatusOK:
		if code := h.commitStaged(); code != abi.OK {
			err := fmt.Errorf("commit offset: %w", sdk.Errno(code))
			return abi.Result{Outcome: abi.OutcomeCancelled, Message: err.Error(), Err: err}
		}
		result.Outcome, result.Message = abi.OutcomeOK, ""
	case result.Status == abi.StatusRetry && !h.retryAt.IsZero():
		result.Outcome, result.RetryAt, result.PauseKey = abi.OutcomeRetryAt, h.retryAt, h.pauseKey
	case result.Status == abi.StatusRetry:
		result.Outcome = abi.OutcomeRetry
	case result.Status == abi.StatusCancelled:
		result.Outcome = abi.OutcomeCancelled
	default:
		result.Outcome = abi.OutcomeFail
	}
	if result.Outcome != abi.OutcomeOK {
		result.Offset, result.Staged = nil, false
	}
	if result.Message == "" && err != nil {
		result.Message = err.Error()
	}
	return result
}

// commitStaged makes a staged offset durable, if there is one.
func (h *Host) commitStaged() abi.Code {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.isStaged && h.stagedKV == nil {
		return abi.OK
	}
	if h.cancel == abi.CancelLost {
		return abi.ErrConflict
	}
	offset := h.Offset
	if h.isStaged {
		offset = append([]byte{}, h.staged...)
	}
	if h.OnCommit != nil {
		if code := h.OnCommit(slices.Clone(offset)); code != abi.OK {
			return code
		}
	}
	h.Offset = offset
	if h.stagedKV != nil {
		h.KV = h.stagedKV
	}
	h.staged, h.isStaged, h.stagedKV = nil, false, nil
	h.commits++
	return abi.OK
}
