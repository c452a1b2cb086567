package program

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/invoke"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/process"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// invocation is what `wasmjob invoke` was asked to do: a plan, and what is still
// text.
type invocation struct {
	invoke.Plan
	items, params, offset, pluginConfig, memoryLimit, logLevel string
	mounts, env                                                []string
	isolation                                                  string
	cache                                                      *cacheFlags
	watch                                                      bool

	forms   shortForms
	short   grants.Grant // what the flags grant
	granted *grants.Set  // what the files grant; nil: nothing
}

func invokeCommand(p *program) *cobra.Command {
	o := &invocation{}
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
			return command.Exactly("the module's file")(cmd, args[:at])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.File = args[0]
			o.Settings.Args = append(o.Settings.Args, args[1:]...)
			var err error
			if o.granted, err = readGrants(p, o.forms.file); err != nil {
				return err
			}
			if err := o.read(); err != nil {
				return command.Usage(err)
			}
			o.Grant = o.grant
			return invokeModule(cmd.Context(), p, o)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"wasm"}, cobra.ShellCompDirectiveFilterFileExt
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.items, "items", "", "`ITEMS` to run, such as 0-2,5 (default all)")
	f.IntVar(&o.Total, "total", 0, "sharding total count `N` (default: what the items and parameters need)")
	f.StringVar(&o.params, "param", "", "item `PARAMETERS`, such as 0=Beijing,1=Shanghai")
	f.StringVar(&o.JobParameter, "job-parameter", "", "job parameter, a `TEXT`")
	f.StringVar(&o.JobName, "job", "", "`NAME` of the job (default: that of the module's file)")
	f.StringVar(&o.Settings.Type, "type", "", "`TYPE` of the job: SIMPLE, DATAFLOW or SCRIPT (default: from the module's exports)")
	f.BoolVar(&o.Settings.Streaming, "streaming", false, "DATAFLOW: fetch and process until nothing is left, not just once")
	f.IntVar(&o.FetchCount, "fetch-data-count", 0, "DATAFLOW: wished-for number of records `N` per batch; 0 is the default of jobs, 100")
	command.DurationVar(f, &o.Timeout, "timeout", 0, "`TIME` that each item gets; 0 is no limit")
	f.StringVar(&o.offset, "offset", "", "offset to begin with: a `TEXT`, or @FILE")
	f.StringArrayVar(&o.mounts, "mount", nil, "let the guest read a directory of this machine: `HOST:GUEST`; may be repeated")
	o.forms.add(f)
	f.StringArrayVar(&o.Settings.Args, "arg", nil, "argument of a SCRIPT, a `TEXT`; may be repeated, or given after --")
	f.StringArrayVar(&o.env, "env", nil, "environment variable of the guest, `NAME=VALUE`; may be repeated")
	f.StringVar(&o.pluginConfig, "plugin-config", "", "configuration that the guest reads: a `TEXT`, or @FILE")
	f.StringVar(&o.memoryLimit, "memory-limit", "", "most memory of the guest, a `SIZE` such as 64MiB (default 128MiB)")
	f.StringVar(&o.logLevel, "log-level", "debug", "lowest `LEVEL` of the guest's lines that is shown: debug, info, warn or error")
	o.cache = addCacheFlags(f, p)
	f.StringVar(&o.isolation, "isolation", "", "`WHERE` the guest runs: process, in one of its own as on a host with --isolation process (default: in this one)")
	f.BoolVar(&o.watch, "watch", false, "run again whenever the module's file changes")
	f.BoolVar(&o.JSON, "json", false, "show results as JSON, one object per line")
	return cmd
}

// mistakes are what is wrong with flags.
type mistakes []error

func (m *mistakes) add(flag string, err error) {
	if err != nil {
		*m = append(*m, fmt.Errorf("--%s: %w", flag, err))
	}
}

// read completes the plan from all options, and reports all problems.
func (o *invocation) read() error {
	var wrong mistakes
	o.readItems(&wrong)
	o.readType(&wrong)
	if o.Timeout < 0 {
		wrong.add("timeout", fmt.Errorf("%s is less than 0", o.Timeout))
	}
	if o.FetchCount < 0 {
		wrong.add("fetch-data-count", fmt.Errorf("%d is less than 0", o.FetchCount))
	}
	if o.isolation != "" && o.isolation != isolationProcess {
		wrong.add("isolation", fmt.Errorf("%q is no isolation; want process", words.Clip(o.isolation)))
	}
	wrong.add("log-level", setLevel(&o.Level, o.logLevel))
	o.readMounts(&wrong)
	o.readEnv(&wrong)
	var err error
	if o.memoryLimit != "" {
		o.Settings.MemoryLimit, err = parseSize(o.memoryLimit)
		wrong.add("memory-limit", err)
	}
	o.Settings.PluginConfig, err = textOrFile(o.pluginConfig)
	wrong.add("plugin-config", err)
	o.readShort(&wrong)
	offset, err := textOrFile(o.offset)
	wrong.add("offset", err)
	if len(offset) > abi.MaxOffset {
		wrong.add("offset", fmt.Errorf("it has %d bytes, want at most %d", len(offset), abi.MaxOffset))
	}
	o.Offset = string(offset)
	return errors.Join(wrong...)
}

// readItems reads the items and their parameters; the total count follows from
// them if it is not given.
func (o *invocation) readItems(wrong *mistakes) {
	var err error
	o.Items, err = parseItems(o.items)
	wrong.add("items", err)
	o.Parameters, err = jobconfig.ParseItemParameters(o.params)
	wrong.add("param", err)
	if o.Total < 0 {
		wrong.add("total", fmt.Errorf("%d is not a count; want 1 or more", o.Total))
	}
	named := slices.Sorted(maps.Keys(o.Parameters))
	if o.Total <= 0 {
		o.Total = 1 + slices.Max(slices.Concat([]int{0}, o.Items, named))
	}
	beyond := func(n int) bool { return n >= o.Total }
	none := func(n int) error { return fmt.Errorf("there is no item %d: the total count is %d", n, o.Total) }
	if i := slices.IndexFunc(o.Items, beyond); i >= 0 {
		wrong.add("items", none(o.Items[i]))
	}
	for _, n := range named {
		if beyond(n) {
			wrong.add("param", none(n))
		}
	}
	if o.items != "" {
		return
	}
	if o.Total > maxItems {
		wrong.add("total", fmt.Errorf("%d items are too many to run here; choose some with --items", o.Total))
		return
	}
	for n := range o.Total {
		o.Items = append(o.Items, n)
	}
}

func (o *invocation) readType(wrong *mistakes) {
	if o.JobName == "" {
		o.JobName = jobOf(o.File)
	}
	o.Settings.JobName = o.JobName
	types := []string{wasm.TypeSimple, wasm.TypeDataflow, wasm.TypeScript}
	given := &o.Settings.Type
	*given = strings.ToUpper(*given)
	if *given != "" && !slices.Contains(types, *given) {
		wrong.add("type", fmt.Errorf("%q is not a type; want %s%s", words.Clip(*given), strings.Join(types, ", "), words.Suggest(*given, types)))
	}
}

// jobOf is the job that a module's file is for, unless something else is said.
func jobOf(file string) string { return strings.TrimSuffix(filepath.Base(file), ".wasm") }

func (o *invocation) readMounts(wrong *mistakes) {
	for _, text := range o.mounts {
		m, err := parseMount(text)
		if err == nil && m.Host != "" {
			m.Host, err = filepath.Abs(m.Host)
		}
		if err == nil {
			err = checkMount(m)
		}
		wrong.add("mount", err)
		o.Settings.Mounts = append(o.Settings.Mounts, m)
	}
}

func (o *invocation) readEnv(wrong *mistakes) {
	o.Settings.Env = make(map[string]string)
	for _, text := range o.env {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			wrong.add("env", fmt.Errorf("%q is not a variable; want NAME=VALUE", words.Clip(text)))
			continue
		}
		o.Settings.Env[name] = value
	}
}

// textOrFile is the text, or the content of the file that @FILE names.
func textOrFile(s string) ([]byte, error) {
	if name, ok := strings.CutPrefix(s, "@"); ok {
		return command.ReadFile(name, command.MostValue)
	}
	return []byte(s), nil
}

const maxItems = 100_000

// parseItems reads 0-2,5 as ascending numbers without doubles.
func parseItems(s string) ([]int, error) {
	items, err := tree.ParseItems(strings.ReplaceAll(s, " ", ""))
	if err != nil || len(items) > maxItems {
		return nil, fmt.Errorf("%q are not items; want numbers and ranges from 0, such as 0-2,5, and not more than %d items", words.Clip(s), maxItems)
	}
	return items, nil
}

// invokeModule runs the plan, again and again if it watches.
func invokeModule(ctx context.Context, p *program, o *invocation) error {
	signals, endSignals := p.Notify()
	defer endSignals()
	out := terminal.New(p.Out, terminal.Style{Columns: true, Colour: p.Colour(p.OutTTY), Seal: p.Seal})
	logs := terminal.New(p.Err, terminal.Style{Columns: true, Colour: p.Colour(p.ErrTTY), Seal: p.Seal})
	if p.OutTTY && p.ErrTTY {
		logs = out
	}
	log := terminal.NewLogger(false, o.Level, logs, nil)
	warnings := terminal.Slog(terminal.AtLeast(log, zapcore.WarnLevel))
	options := plugin.Options{Compiler: compiler(p), Logger: warnings}
	if err := o.cache.set(&options); err != nil {
		return err
	}
	runtime, err := newRuntime(ctx, options)
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
	if o.isolation != "" {
		if workers = newWorkers(p, runtime, 0, warnings); workers == nil {
			return errors.New("--isolation process: this program cannot be started once more")
		}
		defer workers.Close()
	}

	// The first signal asks the guest to end, the second ends it.
	ctx, kill := context.WithCancel(ctx)
	defer kill()
	stop := make(chan struct{})
	defer twoSignals(signals, func(os.Signal) { close(stop) }, func(os.Signal) { kill() })()

	o.HostInfo = "wasmjob " + versionText() + " " + platform() + " invoke"
	run := &invoke.Run{Plan: o.Plan, Runtime: runtime, Workers: workers, Cache: options.CacheDir, Out: out, Log: log, Stop: stop}
	if o.watch {
		err = run.Watch(ctx)
	} else {
		err = run.Once(ctx)
	}
	if errors.Is(err, invoke.ErrFailed) {
		return command.Said{}
	}
	return err
}
