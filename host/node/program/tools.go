package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/invoke"
	"github.com/wasmjob/wasmjob/host/cli/show"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/config/timetable"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/engine/catalog"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
	"github.com/wasmjob/wasmjob/host/schedule"
	"github.com/wasmjob/wasmjob/internal/schema"
	"github.com/wasmjob/wasmjob/internal/text/times"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

func inspectCommand(p *program) *cobra.Command {
	var how command.Shown
	var granted, job string
	cmd := &cobra.Command{
		Use:   "inspect MODULE.wasm [flags]",
		Short: "Show what a module is and what it asks for",
		Long: `Show the type, the ABI version, the imports by capability, the size, the digest
and the manifest of a module, without running or compiling it. The exit code
is 1 if a host would refuse the module; the reasons are listed. What it wants of
the operator's grants is named; with --grants also what of it is missing for the
job (--job).`,
		Example: `  wasmjob module inspect plugins/examples/cities.wasm
  wasmjob module inspect report.wasm --grants grants.yaml --job nightly-report
  wasmjob module inspect cities.wasm --json`,
		Args: command.Exactly("the module's file"),
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := invoke.ReadModule(args[0])
			if err != nil {
				return err
			}
			r := inspected{Info: wasm.Inspect(file)}
			if err := r.compare(p, granted, job, args[0], file); err != nil {
				return err
			}
			err = p.Print(&how, r, show.Module(p.Tables(), args[0], r.Info, r.Wants, r.Refused))
			if err == nil && (len(r.Problems) > 0 || r.lacks()) {
				err = command.Said{}
			}
			return err
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"wasm"}, cobra.ShellCompDirectiveFilterFileExt
		},
	}
	addGrantsFlag(cmd.Flags(), &granted)
	cmd.Flags().StringVar(&job, "job", "", "`NAME` of the job that the grants are for (default: that of the module's file)")
	how.AddOutput(cmd, "it")
	return cmd
}

// inspected is what inspect shows.
type inspected struct {
	*wasm.Info
	wanted
}

// newRuntime makes a runtime; its error says what to do about a cache that
// cannot be used.
func newRuntime(ctx context.Context, o plugin.Options) (*plugin.Runtime, error) {
	r, err := plugin.NewRuntime(ctx, o)
	if err != nil && o.CacheDir != "" {
		if none, other := plugin.NewRuntime(ctx, plugin.Options{}); other == nil { // so it is the cache
			err = errors.Join(fmt.Errorf("%w (use --cache DIR or --cache off)", err), none.Close(ctx))
		}
	}
	return r, err
}

// cacheFlags are --cache and --cache-size of commands that run modules without a host: they mean
// what they mean for a host.
type cacheFlags struct{ dir, size string }

func addCacheFlags(f *pflag.FlagSet, p *program) *cacheFlags {
	c := &cacheFlags{dir: machineDefaults(p.Getenv).cache}
	s := cacheSizeSetting()
	c.size = cmp.Or(p.Getenv(s.variable()), s.standard)
	f.StringVar(&c.dir, "cache", c.dir, "`DIR` for compiled modules, or off")
	f.StringVar(&c.size, "cache-size", c.size, "`SIZE` that compiled modules take in it at most")
	return c
}

// set has the runtime keep to them. The error is a mistake of the command line, or the environment's.
func (c *cacheFlags) set(o *plugin.Options) error {
	var read Config
	if err := cacheSizeSetting().set(&read, c.size); err != nil {
		return command.Usage(fmt.Errorf("cache-size: %w", err))
	}
	o.CacheDir, o.CacheSize = c.dir, read.CacheSize
	if o.CacheDir == off {
		o.CacheDir = ""
	}
	return nil
}

func validateCommand(p *program) *cobra.Command {
	var how command.Shown
	isolation, inProcess, granted := "", "", ""
	var cache *cacheFlags
	cmd := &cobra.Command{
		Use:   "validate PATH… [flags]",
		Short: "Check definitions and modules as a host would",
		Long: `Check plugins directories, definitions (with the modules that they name) and modules,
without a registry. A host takes what passes here, if it has the same ceilings: the
defaults, and those of --ceiling and WASMJOB_CEILINGS. All problems are listed, one a
line; the exit code is 1 if there are any. Warnings are marked as such, and do not change
the exit code.

With --grants the operator's grants are checked, too, and what each definition
and its module want is shown beside what is granted.`,
		Example: `  wasmjob validate plugins/examples
  wasmjob validate jobs/billing.yaml jobs/reports.wasm
  wasmjob validate jobs --grants grants.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return command.Usagef("name a directory, a definition or a module")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			options := plugin.Options{Compiler: compiler(p)}
			if err := cache.set(&options); err != nil {
				return err
			}
			ceilings, err := ceilingsOf(p.Environ, cmd.Flags())
			if err != nil {
				return command.Usage(err)
			}
			isolate, err := parseIsolation(cmp.Or(isolation, p.Getenv(isolationSetting().variable())))
			if err != nil {
				return command.Usage(fmt.Errorf("isolation: %w", err))
			}
			inside, err := parsePatterns(cmp.Or(inProcess, p.Getenv(inProcessSetting().variable())))
			if err != nil {
				return command.Usage(fmt.Errorf("in-process: %w", err))
			}
			check, err := checkOf(p, granted)
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			runtime, err := newRuntime(ctx, options)
			if err != nil {
				return err
			}
			o := catalog.Options{Runtime: runtime, Ceilings: ceilings, Placement: catalog.Placement{Alone: isolate, InProcess: inside}, Workers: newWorkers(p, runtime, 0, nil), Granted: check.granted()}
			findings := catalog.Check(ctx, o, args)
			if o.Workers != nil {
				o.Workers.Close()
			}
			if err := runtime.Close(ctx); err != nil {
				return err
			}
			missing, wanted := check.compare(p, args)
			findings = append(findings, missing...)
			if findings == nil {
				findings = []catalog.Finding{}
			}
			failed := slices.ContainsFunc(findings, func(f catalog.Finding) bool { return !f.Warning })
			text := p.definedText(catalog.Defined(args), time.Now()) + wanted
			for _, f := range findings {
				text += f.String() + "\n"
			}
			if !failed {
				text += "ok\n"
			}
			err = p.Print(&how, findings, text)
			if err == nil && failed {
				err = command.Said{}
			}
			return err
		},
	}
	how.AddOutput(cmd, "the problems")
	addCeilingFlag(cmd.Flags())
	addGrantsFlag(cmd.Flags(), &granted)
	cmd.Flags().StringVar(&isolation, "isolation", "", "`WHERE` guests run on the host, as 'wasmjob run --isolation' says it; modules are tried there")
	cmd.Flags().StringVar(&inProcess, "in-process", "", "`PATTERNS` of jobs that may run in the host's own process, those of 'wasmjob run --in-process'")
	cache = addCacheFlags(cmd.Flags(), p)
	return cmd
}

// definedText says when each job would fire next on this machine.
func (p *program) definedText(jobs []catalog.DefinedJob, now time.Time) string {
	var b strings.Builder
	for _, j := range jobs {
		c := j.Configuration
		when := "by trigger"
		next, err := admin.Next(admin.Schedule{Cron: c.Cron, TimeZone: c.TimeZone, Terms: c.Terms()}, now, 1)
		switch {
		case err != nil:
			when = "next fire not known" // a problem says why
		case len(next) > 0:
			when = "next fire " + next[0].Format(zonedTime) + ", in " + words.Until(now, next[0])
		case timetable.Has(c):
			when = "fires never again"
		}
		fmt.Fprintf(&b, "%s: %s, %s\n", c.JobName, words.Count(c.ShardingTotalCount, "item"), when)
	}
	return b.String()
}

func schemaCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "schema [KIND]",
		Short: "Print the JSON Schema of a kind of file, for editors",
		Long: `Print the JSON Schema of a kind of file: job (a definition, the default), defaults
(of a folder's definitions), calendar, grants, alerts, users or host (the settings
of a host). An editor with a YAML language server completes and checks the fields
of a file that begins with

  ` + schema.Line("job") + `

A path to a file with this command's output works in the URL's place, and so does
a host's /schemas/KIND.json.`,
		Example: `  wasmjob job schema > job.schema.json
  wasmjob job schema alerts > alerts.schema.json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			kind := jobconfig.SchemaName
			if len(args) > 0 {
				kind = args[0]
			}
			document, ok := schemas()[kind]
			if !ok {
				return command.Usagef("found the kind %q, expected one of %s%s", words.Clip(kind), strings.Join(schemaKinds(), ", "), words.Suggest(kind, schemaKinds()))
			}
			_, err := p.Out.Write(document)
			return err
		},
		ValidArgsFunction: cobra.FixedCompletions(schemaKinds(), cobra.ShellCompDirectiveNoFileComp),
	}
}

func nextCommand(p *program) *cobra.Command {
	var how command.Shown
	var zone, from string
	count := 5
	cmd := &cobra.Command{
		Use:   `next "CRON" [flags]`,
		Short: "Show when a cron expression fires",
		Long: `Show the coming fire times of a cron expression: 6 or 7 fields are Quartz's, with
seconds; 5 fields are Unix cron; @every 10s, @hourly and the like are
descriptors.`,
		Example: `  wasmjob job next "0 */5 * * * ?"
  wasmjob job next "0 0 9 ? * MON-FRI" --zone Asia/Shanghai --count 10
  wasmjob job next "30 2 * * *" --zone Europe/Berlin --from 2026-03-28
  wasmjob job next "@every 90s"`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) >= 5 && len(args) <= 7 {
				return command.Usagef("quote the cron expression: wasmjob job next %q", words.Clip(strings.Join(args, " ")))
			}
			return command.Exactly("the cron expression")(cmd, args)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if count < 1 || count > 10_000 {
				return command.Usagef("--count: %d is not a number from 1 to 10000", count)
			}
			loc, err := schedule.Zone(zone)
			if err != nil {
				return command.Usagef("--zone: %w", err)
			}
			start := time.Now()
			if from != "" {
				if start, err = command.Instant("from", from, time.Now().In(loc), times.Ahead); err != nil {
					return err
				}
			}
			s, err := schedule.Parse(args[0], loc)
			if err != nil {
				return err
			}
			if said := s.Surprise(); said != "" {
				fmt.Fprintln(p.Err, said)
			}
			list := schedule.Next(s, start, count)
			if len(list) == 0 {
				return fmt.Errorf("%q never fires after %s", words.Clip(args[0]), start.In(loc).Format(zonedTime))
			}
			var b strings.Builder
			for _, t := range list {
				in := "in " + words.Until(start, t)
				if from != "" {
					in = words.Until(start, t) + " later"
				}
				fmt.Fprintf(&b, "%s  %s  %s\n", t.Format("Mon 2006-01-02 15:04:05 -07:00"), terminal.Pad(t.Format("MST"), 5), in)
			}
			if len(list) < count {
				b.WriteString("it never fires again\n")
			}
			return p.Print(&how, list, b.String())
		},
	}
	how.AddOutput(cmd, "the times")
	cmd.Flags().StringVar(&zone, "zone", "", "time `ZONE`, an IANA name such as Asia/Shanghai (default: this machine's)")
	cmd.Flags().IntVar(&count, "count", count, "how many times, `N`")
	cmd.Flags().StringVar(&from, "from", "", "begin after this `TIME`: 2026-03-28, \"2026-03-28 09:00\", RFC 3339, 09:00, or 7d from now (default: now)")
	return cmd
}
