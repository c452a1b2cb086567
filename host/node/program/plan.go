package program

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/show"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/forecast"
	"github.com/wasmjob/wasmjob/host/engine/catalog"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/history/database"
	"github.com/wasmjob/wasmjob/host/history/jsonl"
	"github.com/wasmjob/wasmjob/internal/text/times"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

const (
	// outputMarkdown is a plan for a pull request.
	outputMarkdown = "markdown"
	// defaultNext is how far ahead a plan looks that is told nothing else.
	defaultNext = 7 * 24 * time.Hour
	// mostRunsAsked is how many runs a plan takes from a running host at most, the newest ones.
	mostRunsAsked = 100_000
)

// planFlags are the flags of plan.
type planFlags struct {
	from, to         string
	last, next       time.Duration
	hosts, slots     int
	duration         time.Duration
	histories        []string
	credentialsFile  string
	running          bool
	alerts           string
	rules            *alert.File
	changed          func(flag string) bool
	how              command.Shown
	started          time.Time
	begin, end       time.Time
	past             bool
	before, after    []forecast.Definition
	namespace        string
	comparesWithFile bool
}

func planCommand(p *program) *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use:   "plan [OLD] NEW [flags]",
		Short: "Show what a change of schedules does, before it does",
		Long: `Play the definitions of a directory, or of a file, on a clock of its own: when
they fire, what overlaps, what is skipped and why, the busiest minutes, what waits for
a slot, and what summer time does. With OLD, or --running for what the registry has
now, say what changes. Nothing is run and nothing is written. Modules are not looked at.

Runs to come (--next) take as long as runs of the job typically do in the history; past
ones (--last, or --from in the past) as long as each did, begin as late, and fail if it
failed. The history is a file or a database (--history), or that of the running host
(--running). Runs of a job without runs in it take --duration.

The exit code is 3 if something is skipped or overlaps that was not before.`,
		Example: `  wasmjob plan jobs
  wasmjob plan main/jobs jobs --next 30d --hosts 3 --slots 16 --output markdown
  wasmjob plan jobs --running --last 7d
  wasmjob plan main/jobs jobs --from 2027-03-01 --to 2027-04-01 --history history.jsonl`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return command.Usagef("name a directory of definitions, or two: the one before and the one after the change")
			}
			if len(args) > 2 {
				return command.Usagef("unexpected argument %q", words.Clip(args[2]))
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
	cmd.Flags().StringVar(&f.from, "from", "", "begin at this `TIME`: 2027-03-28, \"2027-03-28 09:00\", RFC 3339, or 7d from now (default: now)")
	cmd.Flags().StringVar(&f.to, "to", "", "end before this `TIME`")
	command.DurationVar(cmd.Flags(), &f.last, "last", 0, "the time until now, `DURATION` such as 30d")
	command.DurationVar(cmd.Flags(), &f.next, "next", 0, "the time from now on, `DURATION` (default 7d)")
	cmd.Flags().IntVar(&f.hosts, "hosts", 1, "how many hosts have the jobs, `N`")
	cmd.Flags().IntVar(&f.slots, "slots", 0, "how many items run at once on each host, `N` (default: as many as there are)")
	command.DurationVar(cmd.Flags(), &f.duration, "duration", forecast.DefaultDuration, "how long a run takes of a job of which the history has none, `DURATION`")
	cmd.Flags().StringArrayVar(&f.histories, "history", nil, "`HISTORY` with durations: a file of JSON lines, or the URL of a database; may be given again")
	cmd.Flags().StringVar(&f.credentialsFile, "history-credentials-file", "", "`FILE` with user:password for databases, or "+historyCredentialsVariable+" in the environment")
	cmd.Flags().StringVar(&f.alerts, "alerts", "", "`FILE` with rules of alerts: count those that would begin")
	cmd.Flags().BoolVar(&f.running, "running", false, "compare with the jobs in the registry, and take durations from the history of the host that runs here")
	f.how.AddOutput(cmd, "it", outputMarkdown)
	t := p.AddTarget(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.changed = cmd.Flags().Changed
		if err := f.check(time.Now(), args); err != nil {
			return command.Usage(err)
		}
		if err := f.read(args); err != nil {
			return err
		}
		if f.alerts != "" {
			var err error
			if f.rules, err = alert.Read(f.alerts); err != nil {
				return command.Usage(fmt.Errorf("--alerts: %w", err))
			}
		}
		d := forecast.NewDurations(f.duration, f.past)
		for _, h := range f.histories {
			if err := readDurations(cmd.Context(), p, d, h, f.credentialsFile); err != nil {
				return command.Usage(err)
			}
		}
		if !f.running {
			return f.play(cmd.Context(), p, d)
		}
		return p.With(cmd, t, func(ctx context.Context, r *command.Reached) error {
			if err := f.ask(ctx, r, d); err != nil {
				return err
			}
			return f.play(ctx, p, d)
		})
	}
	return cmd
}

// check reads the range, and finds flags that contradict each other.
func (f *planFlags) check(now time.Time, args []string) error {
	f.started = now
	given := func(flags ...string) []string {
		return slices.DeleteFunc(flags, func(flag string) bool { return !f.changed(flag) })
	}
	switch with := given("last", "next", "from"); {
	case len(with) > 1:
		return fmt.Errorf("--%s and --%s do not go together: each says when the plan begins", with[0], with[1])
	case f.changed("to") && (f.changed("last") || f.changed("next")):
		return fmt.Errorf("--%s and --to do not go together: each says when the plan ends", with[0])
	case f.running && len(args) == 2:
		return fmt.Errorf("%s and --running both say what was before; leave one of them out", args[0])
	case f.last < 0 || f.next < 0 || f.duration < 0:
		return errors.New("a duration is negative, expected at least 0")
	}
	f.begin, f.end = now.Truncate(time.Second), now.Truncate(time.Second).Add(defaultNext)
	switch {
	case f.changed("last"):
		f.begin, f.end = f.begin.Add(-f.last), f.begin
	case f.changed("next"):
		f.end = f.begin.Add(f.next)
	}
	var err error
	if f.from != "" {
		if f.begin, err = command.Instant("from", f.from, now, times.Ahead); err != nil {
			return err
		}
		f.end = f.begin.Add(defaultNext)
	}
	if f.to != "" {
		if f.end, err = command.Instant("to", f.to, now, times.Ahead); err != nil {
			return err
		}
	}
	f.past = f.changed("last") || f.begin.Before(now.Truncate(time.Second)) && (f.running || len(f.histories) > 0)
	if f.changed("last") && !f.running && len(f.histories) == 0 {
		return errors.New("--last needs a history: name one with --history FILE or URL, or ask the host that runs here with --running")
	}
	o := f.options(nil)
	if err := o.Check(); err != nil {
		return err
	}
	if f.hosts < 1 {
		return fmt.Errorf("--hosts: found %d, expected at least 1", f.hosts)
	}
	return nil
}

func (f *planFlags) options(d *forecast.Durations) forecast.Options {
	return forecast.Options{From: f.begin, To: f.end, Hosts: f.hosts, Slots: f.slots, Namespace: f.namespace, Durations: d, Rules: f.rules}
}

// read reads the definitions.
func (f *planFlags) read(args []string) error {
	var lists [][]forecast.Definition
	for _, arg := range args {
		defined, err := catalog.Definitions([]string{arg})
		if err != nil {
			return command.Usage(err)
		}
		var list []forecast.Definition
		for _, d := range defined {
			list = append(list, forecast.Definition{Configuration: d.Configuration, File: d.File})
		}
		lists = append(lists, list)
	}
	f.after = lists[len(lists)-1]
	if f.comparesWithFile = len(lists) == 2; f.comparesWithFile {
		f.before = lists[0]
	}
	return nil
}

// play plays the definitions, and shows what comes out.
func (f *planFlags) play(ctx context.Context, p *program, d *forecast.Durations) error {
	r, err := forecast.Compare(ctx, f.before, f.after, f.comparesWithFile || f.running, f.options(d))
	if err != nil {
		return err
	}
	text := show.Plan(p.Tables(), r)
	if f.how.Output == outputMarkdown {
		text = show.PlanMarkdown(r)
	}
	if err = p.Print(&f.how, r, text); err == nil && r.Worse {
		err = command.ExitNo
	}
	return err
}

// readDurations reads how long runs took from a history.
func readDurations(ctx context.Context, p *program, d *forecast.Durations, from, credentialsFile string) error {
	known := d.Known()
	if !database.IsURL(from) {
		if err := jsonl.CheckFile(from); err != nil {
			return err
		}
		for e, err := range jsonl.Read(from) {
			if err != nil && !errors.Is(err, jsonl.ErrLine) {
				return err
			}
			if err == nil {
				d.AddEvent(e)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	} else {
		config, err := historyAt(p, from, credentialsFile)
		if err != nil {
			return err
		}
		reader, err := database.OpenReader(ctx, config)
		if err != nil {
			return err
		}
		defer func() { _ = reader.Close() }() // it was only read
		from = reader.Name()
		for after := ""; ; {
			events, next, err := reader.Events(ctx, after)
			if err != nil {
				return err
			}
			for _, e := range events {
				d.AddEvent(e)
			}
			if next == "" || next == after {
				break
			}
			after = next
		}
	}
	if d.Known() == known {
		return fmt.Errorf("%s: found no run that has ended, expected a history that hosts wrote with --history", from)
	}
	return nil
}

// ask asks a host, or the registry, for the jobs that there are, and a host for how long their runs took.
func (f *planFlags) ask(ctx context.Context, r *command.Reached, d *forecast.Durations) error {
	jobs, err := r.Jobs(ctx)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		c, err := r.Config(ctx, j.Name)
		if err != nil {
			return err
		}
		configuration, err := forecast.Configuration(c)
		if err != nil {
			return err
		}
		f.before = append(f.before, forecast.Definition{Configuration: configuration, File: c.File})
	}
	if r.Registry != nil {
		f.namespace = r.Registry.Namespace
	}
	if r.Client == nil {
		if f.changed("last") && len(f.histories) == 0 {
			return command.Usagef("--last needs a history, and the registry has none: name one with --history FILE or URL, or ask a host")
		}
		return nil
	}
	known, silent := d.Known(), []string(nil)
	query := url.Values{"limit": {strconv.Itoa(history.MaxLimit)}}
	if f.past {
		query.Set("from", f.begin.Format(time.RFC3339))
	}
	for asked := 0; asked < mostRunsAsked; asked += history.MaxLimit {
		var found cluster.Found[history.Run]
		if err := r.Client.Get(ctx, "/v1/runs?"+query.Encode(), &found); err != nil {
			return err
		}
		for _, run := range found.Records {
			d.AddRun(run)
		}
		d.Missing(found.Silent...)
		silent = append(silent, found.Silent...)
		if found.Next == "" {
			break
		}
		query.Set("after", found.Next)
	}
	if f.changed("last") && d.Known() == 0 && known == 0 {
		text := fmt.Sprintf("the history of the hosts has no run since %s that has ended: name one with --history FILE or URL", f.begin.Format(time.RFC3339))
		if len(silent) > 0 {
			slices.Sort(silent)
			text += "; without an answer: " + strings.Join(slices.Compact(silent), ", ")
		}
		return errors.New(text)
	}
	return nil
}
