package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/fsnotify/fsnotify"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host"
	"github.com/wasmjob/wasmjob/host/console"
	"github.com/wasmjob/wasmjob/host/plugin"
	"github.com/wasmjob/wasmjob/host/plugin/process"
	"github.com/wasmjob/wasmjob/host/plugin/wasm"
	"github.com/wasmjob/wasmjob/words"
)

// invokeDebounce is how long a watched module must be left alone before it is
// run again.
const invokeDebounce = 200 * time.Millisecond

// invocation is what `wasmjob invoke` was asked to do.
type invocation struct {
	module       string
	items        string
	total        int
	params       string
	jobName      string
	jobParameter string
	jobType      string
	streaming    bool
	timeout      time.Duration
	offset       string
	mounts       []string
	args         []string
	env          []string
	pluginConfig string
	memoryLimit  string
	fetchCount   int
	logLevel     string
	watch        bool
	json         bool
	cache        string
	isolation    string
}

// plan is an invocation whose texts have been read.
type plan struct {
	*invocation
	numbers    []int
	parameters map[int]string
	settings   plugin.Settings
	level      zapcore.Level
}

func (p *program) invokeCommand() *cobra.Command {
	o := &invocation{cache: machineDefaults(p.getenv).cache}
	cmd := &cobra.Command{
		Use:   "invoke MODULE.wasm [flags] [-- ARG…]",
		Short: "Run a module once, here and now, without a registry",
		Long: `Run the items of a job once, one after the other, without a registry and
without a schedule. Each item gets what a host would give it. What the guest
logs goes to stderr; a line per item with its outcome, time and memory goes to
stdout. Offsets are kept in memory and shown.

The exit code is 0 if all items ended with OK, else 1. With --watch the module
is run again whenever its file changes; Ctrl-C ends that.`,
		Example: `  wasmjob invoke cities.wasm --items 0-2 --total 3 --param "0=Beijing,1=Shanghai"
  wasmjob invoke codestats.wasm --streaming --mount "$(go env GOROOT)/src:/src" --timeout 1m
  wasmjob invoke script.wasm -- --verbose
  wasmjob invoke job.wasm --watch`,
		Args: func(cmd *cobra.Command, args []string) error {
			at := cmd.ArgsLenAtDash()
			if at < 0 {
				at = len(args)
			}
			return exactly("the module's file")(cmd, args[:at])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.module = args[0]
			o.args = append(o.args, args[1:]...)
			q, err := o.read()
			if err != nil {
				return usageError{err}
			}
			return p.invoke(cmd.Context(), q)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"wasm"}, cobra.ShellCompDirectiveFilterFileExt
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.items, "items", "", "`ITEMS` to run, such as 0-2,5 (default all)")
	f.IntVar(&o.total, "total", 0, "sharding total count `N` (default: what the items and parameters need)")
	f.StringVar(&o.params, "param", "", "item `PARAMETERS`, such as 0=Beijing,1=Shanghai")
	f.StringVar(&o.jobParameter, "job-parameter", "", "job parameter, a `TEXT`")
	f.StringVar(&o.jobName, "job", "", "`NAME` of the job (default: that of the module's file)")
	f.StringVar(&o.jobType, "type", "", "`TYPE` of the job: SIMPLE, DATAFLOW or SCRIPT (default: from the module's exports)")
	f.BoolVar(&o.streaming, "streaming", false, "DATAFLOW: fetch and process until nothing is left, not just once")
	f.IntVar(&o.fetchCount, "fetch-data-count", 0, "DATAFLOW: wished-for number of records `N` per batch; 0 is the job's choice")
	f.DurationVar(&o.timeout, "timeout", 0, "`TIME` that each item gets; 0 is no limit")
	f.StringVar(&o.offset, "offset", "", "offset to begin with: a `TEXT`, or @FILE")
	f.StringArrayVar(&o.mounts, "mount", nil, "let the guest read a directory of this machine: `HOST:GUEST`; may be repeated")
	f.StringArrayVar(&o.args, "arg", nil, "argument of a SCRIPT, a `TEXT`; may be repeated, or given after --")
	f.StringArrayVar(&o.env, "env", nil, "environment variable of the guest, `NAME=VALUE`; may be repeated")
	f.StringVar(&o.pluginConfig, "plugin-config", "", "configuration that the guest reads: a `TEXT`, or @FILE")
	f.StringVar(&o.memoryLimit, "memory-limit", "", "most memory of the guest, a `SIZE` such as 64MiB (default 128MiB)")
	f.StringVar(&o.logLevel, "log-level", "debug", "lowest `LEVEL` of the guest's lines that is shown: debug, info, warn or error")
	f.StringVar(&o.cache, "cache", o.cache, "`DIR` for compiled modules, or off")
	f.StringVar(&o.isolation, "isolation", "", "`WHERE` the guest runs: process, in one of its own as on a host with --isolation process (default: in this one)")
	f.BoolVar(&o.watch, "watch", false, "run again whenever the module's file changes")
	f.BoolVar(&o.json, "json", false, "show results as JSON, one object per line")
	return cmd
}

// read checks all options and reports all problems.
func (o *invocation) read() (*plan, error) {
	q := &plan{invocation: o}
	var problems []error
	wrong := func(flag string, err error) {
		if err != nil {
			problems = append(problems, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	var err error
	if q.numbers, err = parseItems(o.items); err != nil {
		wrong("items", err)
	}
	if q.parameters, err = jobconfig.ParseItemParameters(o.params); err != nil {
		wrong("param", err)
	}
	if o.total < 0 {
		wrong("total", fmt.Errorf("%d is not a count; want 1 or more", o.total))
	}
	if o.total <= 0 {
		o.total = 1
		for _, n := range q.numbers {
			o.total = max(o.total, n+1)
		}
		for n := range q.parameters {
			o.total = max(o.total, n+1)
		}
	}
	for _, n := range q.numbers {
		if n >= o.total {
			wrong("items", fmt.Errorf("there is no item %d: the total count is %d", n, o.total))
			break
		}
	}
	if o.items == "" && o.total > maxItems {
		wrong("total", fmt.Errorf("%d items are too many to run here; choose some with --items", o.total))
	} else if o.items == "" {
		for n := range o.total {
			q.numbers = append(q.numbers, n)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(q.parameters)) {
		if n >= o.total {
			wrong("param", fmt.Errorf("there is no item %d: the total count is %d", n, o.total))
		}
	}
	if o.jobName == "" {
		o.jobName = strings.TrimSuffix(filepath.Base(o.module), ".wasm")
	}
	types := []string{wasm.TypeSimple, wasm.TypeDataflow, wasm.TypeScript}
	o.jobType = strings.ToUpper(o.jobType)
	if o.jobType != "" && !slices.Contains(types, o.jobType) {
		wrong("type", fmt.Errorf("%q is not a type; want %s%s", words.Clip(o.jobType), strings.Join(types, ", "), words.Suggest(o.jobType, types)))
	}
	if o.timeout < 0 {
		wrong("timeout", fmt.Errorf("%s is less than 0", o.timeout))
	}
	if o.fetchCount < 0 {
		wrong("fetch-data-count", fmt.Errorf("%d is less than 0", o.fetchCount))
	}
	if o.isolation != "" && o.isolation != isolationProcess {
		wrong("isolation", fmt.Errorf("%q is no isolation; want process", words.Clip(o.isolation)))
	}
	wrong("log-level", setLevel(&q.level, o.logLevel))
	q.settings = plugin.Settings{
		JobName: o.jobName, Type: o.jobType, Streaming: o.streaming, Args: o.args,
	}
	for _, text := range o.mounts {
		m, err := parseMount(text)
		if err == nil && m.Host != "" {
			if m.Host, err = filepath.Abs(m.Host); err == nil {
				err = checkMount(m)
			}
		} else if err == nil {
			err = checkMount(m)
		}
		wrong("mount", err)
		q.settings.Mounts = append(q.settings.Mounts, m)
	}
	for _, text := range o.env {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			wrong("env", fmt.Errorf("%q is not a variable; want NAME=VALUE", words.Clip(text)))
			continue
		}
		if q.settings.Env == nil {
			q.settings.Env = make(map[string]string)
		}
		q.settings.Env[name] = value
	}
	if o.memoryLimit != "" {
		q.settings.MemoryLimit, err = parseSize(o.memoryLimit)
		wrong("memory-limit", err)
	}
	config, err := textOrFile(o.pluginConfig)
	wrong("plugin-config", err)
	q.settings.PluginConfig = config
	offset, err := textOrFile(o.offset)
	wrong("offset", err)
	if len(offset) > abi.MaxOffset {
		wrong("offset", fmt.Errorf("it has %d bytes, want at most %d", len(offset), abi.MaxOffset))
	}
	o.offset = string(offset)
	return q, errors.Join(problems...)
}

// textOrFile is the text, or the content of the file that @FILE names.
func textOrFile(s string) ([]byte, error) {
	if name, ok := strings.CutPrefix(s, "@"); ok {
		return os.ReadFile(name)
	}
	return []byte(s), nil
}

const maxItems = 100_000

// parseItems reads 0-2,5 as ascending numbers without doubles.
func parseItems(s string) ([]int, error) {
	items, err := coordination.ParseItems(strings.ReplaceAll(s, " ", ""))
	if err != nil || len(items) > maxItems {
		return nil, fmt.Errorf("%q are not items; want numbers and ranges from 0, such as 0-2,5, and not more than %d items", words.Clip(s), maxItems)
	}
	return items, nil
}

// invoke runs the plan, again and again if it watches.
func (p *program) invoke(ctx context.Context, q *plan) error {
	signals, endSignals := p.notify()
	defer endSignals()
	out := console.New(p.out, console.Style{Columns: true, Colour: p.colour(p.outTTY)})
	logs := console.New(p.err, console.Style{Columns: true, Colour: p.colour(p.errTTY)})
	if p.outTTY && p.errTTY {
		logs = out
	}
	log := console.NewLogger(false, q.level, logs, nil)
	cache := q.cache
	if cache == off {
		cache = ""
	}
	runtime, err := newRuntime(ctx, plugin.Options{
		CacheDir: cache,
		Compiler: p.compiler(),
		Logger:   console.Slog(console.AtLeast(log, zapcore.WarnLevel)),
	})
	if err != nil {
		return err
	}
	defer func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), runtimeGrace)
		defer cancel()
		if err := runtime.Close(grace); err != nil {
			log.Warn("the runtime does not end", zap.Error(err))
		}
	}()

	var workers *process.Workers
	if q.isolation != "" {
		if workers = p.newWorkers(runtime, console.Slog(console.AtLeast(log, zapcore.WarnLevel))); workers == nil {
			return errors.New("--isolation process: this program cannot be started once more")
		}
		defer workers.Close()
	}

	// The first signal asks the guest to end, the second ends it.
	ctx, kill := context.WithCancel(ctx)
	defer kill()
	var stopping atomic.Bool
	stop := make(chan struct{})
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() { // joined by ended
		defer close(ended)
		for {
			select {
			case <-signals:
				if stopping.Swap(true) {
					kill()
				} else {
					close(stop)
				}
			case <-done:
				return
			}
		}
	}()
	defer func() {
		close(done)
		<-ended
	}()

	run := &invokeRun{plan: q, runtime: runtime, workers: workers, out: out, log: log, program: p, stopping: &stopping}
	if !q.watch {
		return run.once(ctx)
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("--watch: %w", err)
	}
	defer func() { _ = watcher.Close() }() // it was only read from
	// The directory, for editors and compilers put a new file in place.
	if err := watcher.Add(filepath.Dir(q.module)); err != nil {
		return fmt.Errorf("--watch: %w", err)
	}
	for {
		last := fingerprint(q.module)
		err := run.once(ctx)
		if err != nil && !errors.As(err, new(said)) {
			log.Error(err.Error())
		}
		if stopping.Load() || ctx.Err() != nil {
			return err
		}
		log.Info("waiting for " + q.module + " to change; Ctrl-C ends")
		if !awaitChange(ctx, stop, watcher, q.module, last) {
			if err != nil {
				return said{}
			}
			return nil
		}
	}
}

// awaitChange waits until the file has another content than last, and has been
// left alone for a moment. It reports false if it is time to end.
func awaitChange(ctx context.Context, stop <-chan struct{}, w *fsnotify.Watcher, file string, last [sha256.Size]byte) bool {
	quiet := time.NewTimer(0) // it may have changed since it was read
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-stop:
			return false
		case e, ok := <-w.Events:
			if !ok {
				return false
			}
			if filepath.Base(e.Name) == filepath.Base(file) {
				quiet.Reset(invokeDebounce)
			}
		case <-w.Errors: // events were lost: look
			quiet.Reset(invokeDebounce)
		case <-quiet.C:
			if now := fingerprint(file); now != last && now != ([sha256.Size]byte{}) {
				return true
			}
		}
	}
}

// fingerprint is the digest of the file, zero if it cannot be read.
func fingerprint(file string) [sha256.Size]byte {
	data, err := os.ReadFile(file)
	if err != nil {
		return [sha256.Size]byte{}
	}
	return sha256.Sum256(data)
}

// invokeRun carries out a plan.
type invokeRun struct {
	*plan
	runtime  *plugin.Runtime
	workers  *process.Workers // nil: guests run in this process
	out      *console.Console
	log      *zap.Logger
	program  *program
	stopping *atomic.Bool
	width    int // of the labels
}

// itemResult is a line of --json.
type itemResult struct {
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
}

// once loads the module and runs all items. It returns said if an item did not
// end well.
func (r *invokeRun) once(ctx context.Context) error {
	wasm, err := readModule(r.module)
	if err != nil {
		return err
	}
	load := r.runtime.Load
	if r.workers != nil {
		load = func(_ context.Context, name string, wasm []byte, _ time.Time) (*plugin.Module, error) {
			return r.runtime.Open(name, wasm)
		}
	}
	module, err := load(ctx, r.module, wasm, time.Time{})
	if err != nil {
		return err
	}
	defer module.Close()
	var executor abi.Executor
	if r.workers != nil {
		executor, err = r.workers.Module(module).Executor(ctx, r.settings, 1)
	} else {
		executor, err = module.Executor(r.settings)
	}
	if err != nil {
		return err
	}
	defer executor.Release()
	worker, err := executor.NewWorker(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err := worker.Close(); err != nil {
			r.log.Warn("closing the guest", zap.Error(err))
		}
	}()
	r.width = 0
	for _, item := range r.numbers {
		r.width = max(r.width, utf8.RuneCountInString(r.label(item)))
	}
	for _, export := range []string{abi.ExportBefore, abi.ExportBeforeOnce, abi.ExportAfterOnce, abi.ExportAfter} {
		if executor.HasListener(export) {
			r.width = max(r.width, len(export))
		}
	}
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
	for _, item := range r.numbers {
		if r.stopping.Load() || ctx.Err() != nil {
			break
		}
		ran++
		if !r.item(ctx, worker, item, fire) {
			bad++
		}
	}
	listen(abi.ExportAfterOnce, abi.ExportAfter)
	if left := len(r.numbers) - ran; left > 0 {
		r.log.Warn(words.Count(left, "item") + " not begun: stopped")
		bad++
	}
	if bad > 0 {
		return said{}
	}
	return nil
}

// context is what an item sees; item -1 is a listener.
func (r *invokeRun) context(item int, fire time.Time) abi.ShardingContext {
	parameter, has := r.parameters[item]
	c := abi.ShardingContext{
		JobName:              r.jobName,
		TaskID:               coordination.TaskID(r.jobName, r.numbers, "127.0.0.1@-@invoke"),
		ShardingTotalCount:   r.total,
		JobParameter:         r.jobParameter,
		ShardingItem:         item,
		ShardingParameter:    parameter,
		HasShardingParameter: has,
		FireTime:             fire,
		Attempt:              1,
		Fence:                1,
		FetchDataCount:       r.fetchCount,
		RunID:                fmt.Sprintf("%s/%s/%d", r.jobName, fire.UTC().Format(time.RFC3339Nano), item),
		Source:               abi.SourceInvoke,
		PluginConfig:         r.settings.PluginConfig,
		HostInfo:             "wasmjob " + versionText() + " " + platform() + " invoke",
	}
	if r.timeout > 0 {
		c.Deadline = time.Now().Add(r.timeout)
	}
	return c
}

// begin makes the invocation, and the context that ends it.
func (r *invokeRun) begin(ctx context.Context, item int, fire time.Time) (context.Context, context.CancelFunc, *localHost, *abi.Invocation) {
	c := r.context(item, fire)
	h := &localHost{run: r, job: r.jobName, item: item, taskID: c.TaskID, runID: c.RunID}
	cancel := context.CancelFunc(func() {})
	if r.timeout > 0 {
		ctx, cancel = context.WithDeadline(ctx, c.Deadline)
		h.soft = c.Deadline.Add(-min(5*time.Second, r.timeout/5))
	}
	inv := &abi.Invocation{Context: c, Host: h}
	if r.offset != "" {
		inv.Offset, inv.HasOffset = []byte(r.offset), true
	}
	return ctx, cancel, h, inv
}

func (r *invokeRun) listener(ctx context.Context, w abi.Worker, export string, fire time.Time) bool {
	ctx, cancel, _, inv := r.begin(ctx, -1, fire)
	defer cancel()
	inv.Offset, inv.HasOffset = nil, false
	began := time.Now()
	result := w.Listen(ctx, export, inv)
	if r.json {
		if result.Outcome != abi.OutcomeOK {
			r.log.Warn(export+" ended with "+string(result.Outcome), zap.String("reason", result.Message))
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

func (r *invokeRun) item(ctx context.Context, w abi.Worker, item int, fire time.Time) bool {
	ctx, cancel, h, inv := r.begin(ctx, item, fire)
	defer cancel()
	began := time.Now()
	result := host.OutOfTime(w.Execute(ctx, inv), h.Cancelled(), r.timeout)
	took := time.Since(began)
	if result.Outcome == abi.OutcomeOK && result.Staged {
		h.keep(result.Offset)
	}
	offset, committed := h.kept()
	res := itemResult{
		Job: r.jobName, Item: item, Outcome: result.Outcome, Status: result.Status, Message: result.Message,
		Duration: took, Memory: result.Memory, Batches: result.Batches, Records: result.Records,
		Done: h.done.Load(), Total: h.total.Load(), Metrics: h.values(),
	}
	var trap *plugin.Error
	if errors.As(result.Err, &trap) {
		res.Stack = trap.Stack
	}
	if committed {
		res.Offset = offsetText(offset)
	}
	if inv.Context.HasShardingParameter {
		res.Parameter = &inv.Context.ShardingParameter
	}
	if r.json {
		line, err := json.Marshal(res)
		if err == nil {
			_, err = r.out.Out.Write(append(line, '\n'))
		}
		if err != nil {
			r.log.Error("the result cannot be shown", zap.Error(err))
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
	if named(res.Stack) {
		more = append(more, "\n"+res.Stack)
	}
	r.row("item", r.label(item), took, result, strings.Join(more, ", "))
	return result.Outcome == abi.OutcomeOK
}

// label is how an item is called in the results.
func (r *invokeRun) label(item int) string {
	text := "item " + strconv.Itoa(item)
	if parameter, ok := r.parameters[item]; ok {
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
func (r *invokeRun) row(tag, what string, took time.Duration, result abi.Result, more string) {
	colour := console.Green
	if result.Outcome != abi.OutcomeOK {
		colour = console.Red
	}
	text := console.Pad(what, r.width) + "  " + fmt.Sprintf("%7s  %9s  ", words.Short(took), memoryText(result.Memory)) + r.out.Style.Paint(colour, string(result.Outcome))
	if result.Message != "" {
		text += "  " + words.Printable(result.Message)
	}
	if more != "" {
		text += "  " + r.out.Style.Paint(console.Grey, words.Printable(more))
	}
	r.out.Row(time.Now(), tag, console.Bold, r.jobName, text)
}

// offsetText is the offset as it stands if it is text, else in hex.
func offsetText(b []byte) string {
	if utf8.Valid(b) && words.Printable(string(b)) == string(b) {
		return string(b)
	}
	return fmt.Sprintf("0x%x", b)
}

// localHost is the host's side of one invocation.
type localHost struct {
	run                *invokeRun
	job, taskID, runID string
	item               int
	soft               time.Time // when the guest is asked to end; zero is never
	done, total        atomic.Int64

	mu        sync.Mutex
	offset    []byte
	committed bool
	metrics   map[string]int64
	kinds     map[string]int
}

// Log implements [abi.Host].
func (h *localHost) Log(level int, msg string, kv []string) {
	console.GuestLog(h.run.log, host.GuestLog{Job: h.job, TaskID: h.taskID, RunID: h.runID, Item: h.item, Level: level, Message: msg, Attrs: kv})
}

// LogEnabled implements [abi.Host].
func (h *localHost) LogEnabled(level int) bool { return h.run.level.Enabled(console.ZapLevel(level)) }

// Progress implements [abi.Host].
func (h *localHost) Progress(done, total int64) {
	h.done.Store(done)
	h.total.Store(total)
}

// Metric implements [abi.Host]: counters and histograms are summed up, of a
// gauge the last value is kept.
func (h *localHost) Metric(kind int, name string, value int64) abi.Code {
	if (kind != abi.MetricCounter && kind != abi.MetricGauge && kind != abi.MetricHistogram) || (kind == abi.MetricCounter && value < 0) {
		return abi.ErrInvalid
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	before, known := h.kinds[name]
	switch {
	case known && before != kind:
		return abi.ErrInvalid
	case !known && len(h.kinds) >= abi.MaxMetricNames:
		return abi.ErrQuota
	case h.kinds == nil:
		h.kinds, h.metrics = make(map[string]int), make(map[string]int64)
	}
	h.kinds[name] = kind
	if kind == abi.MetricGauge {
		h.metrics[name] = value
	} else {
		h.metrics[name] += value
	}
	return abi.OK
}

// CommitOffset implements [abi.Host].
func (h *localHost) CommitOffset(_ context.Context, offset []byte) abi.Code {
	h.keep(offset)
	return abi.OK
}

// StageOffset implements [abi.Host].
func (h *localHost) StageOffset(_ context.Context, offset []byte) abi.Code {
	h.keep(offset)
	return abi.OK
}

// Pause implements [abi.Host].
func (h *localHost) Pause(context.Context) {}

// Cancelled implements [abi.Host].
func (h *localHost) Cancelled() abi.Cancel {
	switch {
	case h.run.stopping.Load():
		return abi.CancelStop
	case !h.soft.IsZero() && !time.Now().Before(h.soft):
		return abi.CancelDeadline
	}
	return abi.CancelNone
}

func (h *localHost) keep(offset []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.offset, h.committed = slices.Clone(offset), true
}

func (h *localHost) kept() ([]byte, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.offset, h.committed
}

func (h *localHost) values() map[string]int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.metrics)
}
