package jobs

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/show"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

const (
	// defaultGrace is how long guests may go on that are killed.
	defaultGrace = 5 * time.Second
	// afterGrace is how long kill waits for the end when the grace is over.
	afterGrace = 15 * time.Second
	// mostRounds bounds how often disable --now looks whether a host has begun
	// something before it heard that the job is disabled.
	mostRounds = 5
)

// killFlags are those of kill and of disable --now.
type killFlags struct {
	grace, wait time.Duration
	asJSON      bool
}

func (f *killFlags) add(cmd *cobra.Command) {
	command.DurationVar(cmd.Flags(), &f.grace, "grace", defaultGrace, "how long guests may go on after they were asked to end, a `DURATION`; 0s is by force at once")
	command.DurationVar(cmd.Flags(), &f.wait, "wait", -1, "how long to wait for the end, a `DURATION`; 0s is not at all (default: 15s after the grace)")
	cmd.Flags().Lookup("wait").DefValue = "" // which the help leaves out
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "show what became of it as JSON")
}

// given reports whether one of the flags was given.
func (f *killFlags) given(cmd *cobra.Command) bool {
	for _, name := range []string{"grace", "wait", "json"} {
		if flag := cmd.Flags().Lookup(name); flag != nil && flag.Changed {
			return true
		}
	}
	return false
}

// options are what the flags ask for, of all items.
func (f *killFlags) options() (admin.KillOptions, error) {
	o := admin.KillOptions{Item: -1, Grace: f.grace, Wait: f.wait, By: command.WhoAsks()}
	if f.wait < 0 {
		o.Wait = min(f.grace+afterGrace, admin.MaxGrace)
	}
	switch {
	case f.grace < 0 || f.grace > admin.MaxGrace:
		return o, command.Usagef("--grace: %s is not from 0s to %s", f.grace, admin.MaxGrace)
	case f.wait > admin.MaxGrace:
		return o, command.Usagef("--wait: %s is not from 0s to %s", f.wait, admin.MaxGrace)
	}
	return o, nil
}

func killCommand(p *command.Program) *cobra.Command {
	var t *command.Target
	var f killFlags
	item, run := -1, ""
	cmd := &cobra.Command{
		Use:   "kill JOB [flags]",
		Short: "End what a job runs now",
		Long: `End what a job runs now, on all hosts: guests of items and listeners are asked to end,
and stopped by force when the grace is over. Items that have begun and wait for a worker
do not start. With --item only that item, with --run only that run, if it is what runs;
neither ends listeners.

What is killed is completed as CANCELLED, with who killed it: it is not tried
again, without failover and without catch-up. The next instant runs
as usual; 'wasmjob job pause JOB --now' prevents that. A run that begins after the
command has looked is not meant. What runs on a Java host cannot be ended here.

Exit codes: 0 all of it has ended, or nothing ran; 1 an error, or there is no such
item or run; 2 the command line; 4 something runs on, or was not waited for.`,
		Example: `  wasmjob job kill cities
  wasmjob job kill cities --item 2 --grace 30s
  wasmjob job kill cities --run cities/2026-03-01T10:00:00.000Z/2 --grace 0s
  wasmjob job kill cities --zk zk1:2181 --namespace prod`,
		Args: command.Exactly("the job's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.options()
			switch {
			case err != nil:
				return err
			case cmd.Flags().Changed("item") && item < 0:
				return command.Usagef("--item: %d is not a number from 0", item)
			}
			if o.Item, o.Run = item, run; run != "" {
				n, ok := itemOfRun(args[0], run)
				switch {
				case !ok:
					return command.Usagef("--run: %q is not a run of %s; a run is JOB/INSTANT/ITEM, as in the log and the history", words.Clip(run), args[0])
				case item >= 0 && item != n:
					return command.Usagef("--run: %q is not of item %d", words.Clip(run), item)
				}
				o.Item = n
			}
			return p.With(cmd, t, func(ctx context.Context, r *command.Reached) error {
				k, err := endRuns(ctx, p, r, args[0], f, o)
				if err != nil {
					return r.Similar(ctx, args[0], err)
				}
				return judgeKills(p, []*admin.Kills{k}, f)
			})
		},
	}
	addItemFlag(cmd, &item)
	cmd.Flags().StringVar(&run, "run", "", "only the run with this `ID`, if it is what runs")
	f.add(cmd)
	t = p.AddChange(cmd)
	cmd.ValidArgsFunction = p.JobNames(t)
	return cmd
}

// itemOfRun is the item that a run id names.
func itemOfRun(job, run string) (item int, ok bool) {
	rest, ok := strings.CutPrefix(run, job+"/")
	fire, number, found := strings.Cut(rest, "/")
	n, err := strconv.Atoi(number)
	return n, ok && found && fire != "" && err == nil && n >= 0
}

// endRuns kills what runs of one job, and says meanwhile what it waits for.
func endRuns(ctx context.Context, p *command.Program, r *command.Reached, job string, f killFlags, o admin.KillOptions) (*admin.Kills, error) {
	said := false
	return r.Kill(ctx, job, o, func(k *admin.Kills) {
		if open := k.Open(); !said && open > 0 && o.Wait > 0 && !f.asJSON {
			said = true
			fmt.Fprintf(p.Err, "wasmjob: asked for the end of %s of %s; waits at most %s\n", words.Count(open, "run"), job, words.Duration(o.Wait))
		}
	})
}

// endNow ends what runs of a job that was disabled, or of all that were meant.
// A host may have begun something before it saw that: it looks again until
// nothing runs.
func endNow(ctx context.Context, p *command.Program, r *command.Reached, job string, f killFlags, o admin.KillOptions) error {
	names := []string{job}
	if job == "" {
		var err error
		if names, err = meant(ctx, r, o.Server); err != nil {
			return err
		}
	}
	var all []*admin.Kills
	for _, name := range names {
		sum := &admin.Kills{Job: name, Runs: []admin.Kill{}}
		for range mostRounds {
			k, err := endRuns(ctx, p, r, name, f, o)
			if err != nil {
				return err
			}
			sum.Runs = append(sum.Runs, k.Runs...)
			if len(k.Runs) == 0 || k.Open() > 0 {
				break
			}
		}
		all = append(all, sum)
	}
	return judgeKills(p, all, f)
}

// meant are the jobs that a command without a job's name is about: those of the
// host, as with disable, or all that the registry has.
func meant(ctx context.Context, r *command.Reached, server string) ([]string, error) {
	var names []string
	if r.Client != nil && server == "" {
		report, err := r.Client.Status(ctx)
		if err != nil {
			return nil, err
		}
		for _, j := range report.Status.Jobs {
			names = append(names, j.Name)
		}
		return names, nil
	}
	list, err := r.Jobs(ctx)
	for _, b := range list {
		names = append(names, b.Name)
	}
	return names, err
}

// judgeKills shows what became of what was to end.
func judgeKills(p *command.Program, all []*admin.Kills, f killFlags) error {
	open, runs := 0, 0
	for _, k := range all {
		open += k.Open()
		runs += len(k.Runs)
	}
	var err error
	switch {
	case f.asJSON && len(all) == 1:
		err = p.PrintJSON(all[0])
	case f.asJSON:
		err = p.PrintJSON(all)
	case runs == 0:
		_, err = fmt.Fprintln(p.Out, "nothing of it runs")
	default:
		_, err = p.Out.Write([]byte(show.Kills(p.Tables(), all)))
	}
	if err == nil && open > 0 {
		return command.ExitRunning
	}
	return err
}

func releaseCommand(p *command.Program) *cobra.Command {
	var t *command.Target
	item := -1
	cmd := &cobra.Command{
		Use:   "release JOB [flags]",
		Short: "Let items run again that are held back",
		Long: `Let items run again that are held back: a host holds an item back when hosts have died
in as many of its runs in a row as the job's maxHostDeaths says. All are released, or
with --item one. They run at their next instant; what was due until now does not run.
'wasmjob job items JOB' shows which items are held back, and which hosts died.

Items that wait because their guests asked to run again later begin now. Without --item
this also ends the pauses of keys of 'rate' that guests of the job have asked for:
'wasmjob job limits' names the job.`,
		Example: "  wasmjob job release cities\n  wasmjob job release cities --item 2\n  wasmjob job release cities --zk zk1:2181 --namespace prod",
		Args:    command.Exactly("the job's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("item") && item < 0 {
				return command.Usagef("--item: %d is not a number from 0", item)
			}
			return p.With(cmd, t, func(ctx context.Context, r *command.Reached) error {
				items, err := r.Release(ctx, args[0], item)
				what := "released items " + items.String() + " of " + args[0]
				switch {
				case len(items) == 0 && item >= 0:
					what = fmt.Sprintf("item %d of %s is not held back", item, args[0])
				case len(items) == 0:
					what = "nothing of " + args[0] + " is held back"
				}
				return p.Done(r.Similar(ctx, args[0], err), what)
			})
		},
	}
	addItemFlag(cmd, &item)
	t = p.AddChange(cmd)
	cmd.ValidArgsFunction = p.JobNames(t)
	return cmd
}
