// Package invoke runs a module once, here and now: without a registry, without a
// schedule, with offsets in memory.
package invoke

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/engine/run"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/dir"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/kv"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/offer"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/process"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Plan says what to run.
type Plan struct {
	// File is the module's.
	File         string
	JobName      string
	JobParameter string
	// Items are run one after the other; Total is the sharding total count.
	Items      []int
	Total      int
	Parameters map[int]string
	FetchCount int
	// Offset is what each item begins with; empty is none.
	Offset string
	// Timeout is how long each item may take; 0 is no limit.
	Timeout  time.Duration
	Settings plugin.Settings
	// Grant is what the module, of which it gets the bytes, may do outside, and what
	// Settings have besides. The error says why it may not be run.
	Grant    func(module []byte) (*grants.Grant, error)
	HostInfo string
	// Level is the lowest level of the guest's lines that is shown.
	Level zapcore.Level
	// JSON has each result written as an object, not as a line for people.
	JSON bool
}

// Run carries out a plan. The fields are set by its maker, and not changed
// afterwards.
type Run struct {
	Plan
	Runtime *plugin.Runtime
	Workers *process.Workers // nil: guests run in this process
	// Cache is the directory where compiled code is kept; empty if it is not.
	Cache string
	Out   *terminal.Console
	Log   *zap.Logger
	// Stop, if it is closed, asks the guest to end, and begins no further item.
	Stop <-chan struct{}

	width int // of the labels
}

// ErrFailed says that an item or a listener did not end well. That was shown.
var ErrFailed = errors.New("not all ended well")

// stopping reports whether the run is to end.
func (r *Run) stopping() bool {
	select {
	case <-r.Stop:
		return true
	default:
		return false
	}
}

// Result is how an item ended: a line of JSON.
type Result struct {
	Job       string        `json:"job"`
	Item      int           `json:"item"`
	Parameter *string       `json:"parameter,omitempty"`
	Outcome   abi.Outcome   `json:"outcome"`
	Status    abi.Status    `json:"status"`
	Message   string        `json:"message,omitempty"`
	Stack     string        `json:"stack,omitempty"`
	Duration  time.Duration `json:"durationNs"`
	Memory    int64         `json:"memoryBytes"`
	Batches   int64         `json:"batches,omitempty"`
	Records   int64         `json:"records,omitempty"`
	// Offset is what was committed, as text if it is text.
	Offset  string           `json:"offset,omitempty"`
	Done    int64            `json:"done,omitempty"`
	Total   int64            `json:"total,omitempty"`
	Metrics map[string]int64 `json:"metrics,omitempty"`
	// State is what was committed of the item's key/value state, Outside what the guest
	// did with each capability.
	State   map[string]string           `json:"state,omitempty"`
	Outside map[string]abi.OutsideCount `json:"outside,omitempty"`
}

// Once loads the module and runs all items. It returns ErrFailed if an item did not
// end well.
func (r *Run) Once(ctx context.Context) error {
	wasm, err := ReadModule(r.File)
	if err != nil {
		return err
	}
	grant, err := r.Grant(wasm)
	if err == nil {
		err = dir.Check(grant.Dirs)
	}
	if err != nil {
		return err
	}
	module, err := r.load(r.noteCompile(ctx), wasm)
	if err != nil {
		return err
	}
	defer module.Close()
	if err := r.checkStreaming(module.Info().Types); err != nil {
		return err
	}
	executor, err := r.executor(r.noteCompile(ctx), module, offer.Settings(r.Settings, grant))
	if err != nil {
		return err
	}
	executor = offer.Wrap(executor, grant, "", dir.NewQuotas())
	defer executor.Release()
	worker, err := executor.NewWorker(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err := worker.Close(); err != nil {
			r.Log.Warn("closing the guest", zap.Error(err))
		}
	}()
	r.width = r.widest(executor)
	if !r.fire(ctx, executor, worker) {
		return ErrFailed
	}
	return nil
}

// noteCompile has a line say that the module is compiled, which may take long.
func (r *Run) noteCompile(ctx context.Context) context.Context {
	return plugin.OnCompile(ctx, func() {
		text := "compiling " + r.File
		if r.Cache != "" {
			text += ", once: compiled code is kept in " + r.Cache
		}
		r.Log.Info(text)
	})
}

// load takes the module in, in this process or for one of its own.
func (r *Run) load(ctx context.Context, wasm []byte) (*plugin.Module, error) {
	if r.Workers != nil {
		return r.Runtime.Open(r.File, wasm)
	}
	return r.Runtime.Load(ctx, r.File, wasm, time.Time{})
}

func (r *Run) executor(ctx context.Context, module *plugin.Module, s plugin.Settings) (abi.Executor, error) {
	if r.Workers != nil {
		return r.Workers.Module(module).Executor(ctx, s, "")
	}
	return module.Executor(s)
}

// widest is how wide the labels are.
func (r *Run) widest(executor abi.Executor) (width int) {
	for _, item := range r.Items {
		width = max(width, terminal.Width(r.label(item)))
	}
	for _, export := range []string{abi.ExportBefore, abi.ExportBeforeOnce, abi.ExportAfterOnce, abi.ExportAfter} {
		if executor.HasListener(export) {
			width = max(width, len(export))
		}
	}
	return width
}

// fire runs the listeners and the items. It reports whether all ended well.
func (r *Run) fire(ctx context.Context, executor abi.Executor, worker abi.Worker) bool {
	fire := time.Now().Truncate(time.Millisecond)
	bad := 0
	listen := func(exports ...string) {
		for _, export := range exports {
			if executor.HasListener(export) && !r.listener(ctx, worker, export, fire) {
				bad++
			}
		}
	}
	listen(abi.ExportBefore, abi.ExportBeforeOnce)
	ran := 0
	for _, item := range r.Items {
		if r.stopping() || ctx.Err() != nil {
			break
		}
		ran++
		if !r.item(ctx, worker, item, fire) {
			bad++
		}
	}
	listen(abi.ExportAfterOnce, abi.ExportAfter)
	if left := len(r.Items) - ran; left > 0 {
		r.Log.Warn(words.Count(left, "item") + " not begun: stopped")
		bad++
	}
	return bad == 0
}

// checkStreaming refuses streaming of a job that fetches nothing.
func (r *Run) checkStreaming(types []string) error {
	if r.Settings.Type != "" {
		types = []string{r.Settings.Type}
	}
	if !r.Settings.Streaming || slices.Contains(types, wasm.TypeDataflow) {
		return nil
	}
	return fmt.Errorf("--streaming is for DATAFLOW jobs, which fetch and process; %s is %s", r.File, strings.Join(types, ", "))
}

// context is what an item sees; item -1 is a listener.
func (r *Run) context(item int, fire time.Time) abi.ShardingContext {
	parameter, has := r.Parameters[item]
	c := abi.ShardingContext{
		JobName:              r.JobName,
		TaskID:               tree.TaskID(r.JobName, r.Items, "127.0.0.1@-@invoke"),
		ShardingTotalCount:   r.Total,
		JobParameter:         r.JobParameter,
		ShardingItem:         item,
		ShardingParameter:    parameter,
		HasShardingParameter: has,
		FireTime:             fire,
		Attempt:              1,
		Fence:                1,
		FetchDataCount:       r.FetchCount,
		RunID:                fmt.Sprintf("%s/%s/%d", r.JobName, fire.UTC().Format(time.RFC3339Nano), item),
		Source:               abi.SourceInvoke,
		HostInfo:             r.HostInfo,
	}
	if r.Timeout > 0 {
		c.Deadline = time.Now().Add(r.Timeout)
	}
	return c
}

// begin makes the invocation, and the context that ends it.
func (r *Run) begin(ctx context.Context, item int, fire time.Time) (context.Context, context.CancelFunc, *localHost, *abi.Invocation) {
	c := r.context(item, fire)
	h := &localHost{run: r, job: r.JobName, item: item, taskID: c.TaskID, runID: c.RunID}
	cancel := context.CancelFunc(func() {})
	if r.Timeout > 0 {
		ctx, cancel = context.WithDeadline(ctx, c.Deadline)
		h.soft = c.Deadline.Add(-min(5*time.Second, r.Timeout/5))
	}
	inv := &abi.Invocation{Context: c, Host: h}
	if r.Offset != "" {
		inv.Offset, inv.HasOffset = []byte(r.Offset), true
	}
	return ctx, cancel, h, inv
}

func (r *Run) listener(ctx context.Context, w abi.Worker, export string, fire time.Time) bool {
	ctx, cancel, _, inv := r.begin(ctx, -1, fire)
	defer cancel()
	inv.Offset, inv.HasOffset = nil, false
	began := time.Now()
	result := w.Listen(ctx, export, inv)
	if r.JSON {
		if result.Outcome != abi.OutcomeOK {
			r.Log.Warn(export+" ended with "+string(result.Outcome), zap.String("reason", result.Message))
		}
	} else {
		r.row("hook", export, time.Since(began), result, "")
	}
	return result.Outcome == abi.OutcomeOK
}

// fetches counts them; count would not know their plural.
func fetches(n int64) string {
	if n == 1 {
		return "1 fetch"
	}
	return fmt.Sprintf("%d fetches", n)
}

func (r *Run) item(ctx context.Context, w abi.Worker, item int, fire time.Time) bool {
	ctx, cancel, h, inv := r.begin(ctx, item, fire)
	defer cancel()
	began := time.Now()
	result := run.OutOfTime(w.Execute(ctx, inv), h.Cancelled(), r.Timeout)
	took := time.Since(began)
	if result.Outcome == abi.OutcomeOK && result.Staged {
		h.keep(result.Offset)
	}
	offset, committed := h.kept()
	res := Result{
		Job: r.JobName, Item: item, Outcome: result.Outcome, Status: result.Status, Message: result.Message,
		Duration: took, Memory: result.Memory, Batches: result.Batches, Records: result.Records,
		Done: h.done.Load(), Total: h.total.Load(), Metrics: h.values(), Outside: result.Outside,
	}
	var trap *plugin.Error
	if errors.As(result.Err, &trap) {
		res.Stack = trap.Stack
	}
	state, err := kv.Decode(offset, committed)
	if err != nil {
		r.Log.Error("what was committed cannot be shown", zap.Error(err))
		state = &kv.State{}
	}
	if committed = state.HasOffset; committed {
		res.Offset = offsetText(state.Offset)
	}
	res.State = state.Pairs()
	if inv.Context.HasShardingParameter {
		res.Parameter = &inv.Context.ShardingParameter
	}
	if r.JSON {
		line, err := json.Marshal(res)
		if err == nil {
			_, err = r.Out.Out.Write(append(line, '\n'))
		}
		if err != nil {
			r.Log.Error("the result cannot be shown", zap.Error(err))
		}
		return result.Outcome == abi.OutcomeOK
	}
	var more []string
	if res.Batches > 0 {
		more = append(more, words.Count(int(res.Records), "record")+" in "+fetches(res.Batches))
	}
	if res.Total > 0 {
		more = append(more, fmt.Sprintf("%d of %d done", res.Done, res.Total))
	} else if res.Done > 0 {
		more = append(more, fmt.Sprintf("%d done", res.Done))
	}
	for _, name := range slices.Sorted(maps.Keys(res.Metrics)) {
		more = append(more, fmt.Sprintf("%s=%d", name, res.Metrics[name]))
	}
	if committed {
		more = append(more, "offset "+res.Offset)
	}
	for _, key := range slices.Sorted(maps.Keys(res.State)) {
		more = append(more, key+"="+words.Clip(offsetText([]byte(res.State[key]))))
	}
	for _, name := range slices.Sorted(maps.Keys(res.Outside)) {
		more = append(more, outside(name, res.Outside[name]))
	}
	if named(res.Stack) {
		more = append(more, "\n"+res.Stack)
	}
	r.row("item", r.label(item), took, result, strings.Join(more, ", "))
	return result.Outcome == abi.OutcomeOK
}

// outside says what a guest did with a capability.
func outside(name string, c abi.OutsideCount) string {
	text := fmt.Sprintf("%s %s", name, words.Count(int(c.Calls), "call"))
	if c.Sent+c.Received > 0 {
		text += fmt.Sprintf(" (%s sent, %s received)", words.Size(c.Sent), words.Size(c.Received))
	}
	for _, reason := range slices.Sorted(maps.Keys(c.Refused)) {
		text += fmt.Sprintf(", %d refused: %s", c.Refused[reason], reason)
	}
	if c.Failed > 0 {
		text += fmt.Sprintf(", %d failed", c.Failed)
	}
	return text
}

// label is how an item is called in the results.
func (r *Run) label(item int) string {
	text := "item " + strconv.Itoa(item)
	if parameter, ok := r.Parameters[item]; ok {
		text += " " + parameter
	}
	return words.Clip(words.Printable(text))
}

// named reports whether a stack has at least one function's name: those of a
// stripped module are numbers without use.
func named(stack string) bool {
	for frame := range strings.Lines(stack) {
		name, _, _ := strings.Cut(frame, "(")
		if name = strings.TrimSpace(name); name != "" && !strings.HasPrefix(name, ".$") {
			return true
		}
	}
	return false
}

func memoryText(n int64) string {
	if n <= 0 {
		return "-"
	}
	return words.Size(n)
}

// row shows how an item or a listener ended.
func (r *Run) row(tag, what string, took time.Duration, result abi.Result, more string) {
	colour := terminal.Green
	if result.Outcome != abi.OutcomeOK {
		colour = terminal.Red
	}
	text := terminal.Pad(what, r.width) + "  " + fmt.Sprintf("%7s  %9s  ", words.Short(took), memoryText(result.Memory)) + r.Out.Style.Paint(colour, string(result.Outcome))
	if result.Message != "" {
		text += "  " + result.Message
	}
	if more != "" {
		text += "  " + r.Out.Style.Paint(terminal.Grey, more)
	}
	r.Out.Row(time.Now(), tag, terminal.Bold, r.JobName, text)
}

// offsetText is the offset as it stands if it is text, else in hex.
func offsetText(b []byte) string {
	if utf8.Valid(b) && words.Printable(string(b)) == string(b) {
		return string(b)
	}
	return fmt.Sprintf("0x%x", b)
}
