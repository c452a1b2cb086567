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
	// defaultGrace is how long killed guests may continue.
	defaultGrace = 5 * time.Second
	// afterGrace is how long kill waits for the end after the grace.
	afterGrace = 15 * time.Second
	// mostRounds is how often disable --now checks whether a host has begun items before it saw that the job is disabled.
	mostRounds = 5
)

// killFlags are those of kill and of disable --now.
type killFlags struct {
	grace, wait time.Duration
	asJSON      bool
}

func (f *killFlags) add(cmd *cobra.Command) {
	command.DurationVar(cmd.Flags(), &f.grace, "grace", defaultGrace, "how long guests may continue after they were asked to end, a `DURATION`; 0s stops them at once")
	command.DurationVar(cmd.Flags(), &f.wait, "wait", -1, "how long to wait for the end, a `DURATION`; 0s does not wait (default: the grace and 15s)")
	cmd.Flags().Lookup("wait").DefValue = "" // which the help leaves out
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "show the result as JSON")
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

// options returns the options that the flags select, for all items.
func (f *killFlags) options() (admin.KillOptions, error) {
	o := admin.KillOptions{Item: -1, Grace: f.grace, Wait: f.wait, By: command.WhoAsks()}
	if f.wait < 0 {
		o.Wait = min(f.grace+afterGrace, admin.MaxGrace)
	}
	switch {
	case f.grace < 0 || f.grace > admin.MaxGrace:
		return o, command.Usagef("--grace: found %s, expected 0s to %s", f.grace, admin.MaxGrace)
	case f.wait > admin.MaxGrace:
		return o, command.Usagef("--wait: found %s, expected 0s to %s", f.wait, admin.MaxGrace)
	}
	return o, nil
}

func killCommand(p *command.Program) *cobra.Command {
	var t *command.Target
	var f killFlags
	item, run := -1, ""
	cmd := &cobra.Command{
		Use:   "kill JOB [flags]",
		Short: "End the current runs of a job",
		Long: `End the current runs of a job, on all hosts. Hosts ask the guests of items and listeners to
end, and stop them by force after --grace. Items that have begun but wait for a worker do
not start. --item ends only the run of that item, and --run ends only that run if it is
still running; neither ends listeners.

A killed run is completed as CANCELLED, with the user who killed it. It gets no further
attempt, no failover and no catch-up. The next instant runs as usual, unless the job is
paused: 'wasmjob job pause JOB --now' does both. The command does not end runs that begin
after it has listed them, and cannot end runs on Java hosts.

Exit codes: 0 all runs have ended, or none ran; 1 an error, or there is no such item or
run; 2 the command line is wrong; 4 a run goes on, or the command did not wait for it.`,
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
					return command.Usagef("--run: %q is not a run of %s; expected JOB/INSTANT/ITEM, as in the log and the history", words.Clip(run), args[0])
				case item >= 0 && item != n:
					return command.Usagef("--run: %q is not a run of item %d", words.Clip(run), item)
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
	cmd.Flags().StringVar(&run, "run", "", "end only the run with this `ID`")
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

// endRuns kills the current runs of one job, and prints meanwhile what it waits for.
func endRuns(ctx context.Context, p *command.Program, r *command.Reached, job string, f killFlags, o admin.KillOptions) (*admin.Kills, error) {
	said := false
	return r.Kill(ctx, job, o, func(k *admin.Kills) {
		if open := k.Open(); !said && open > 0 && o.Wait > 0 && !f.asJSON {
			said = true
			fmt.Fprintf(p.Err, "wasmjob: asked %s of %s to end; waiting at most %s\n", words.Count(open, "run"), job, words.Duration(o.Wait))
		}
	})
}

// endNow ends the runs of a disabled job, or of all meant jobs. A host may have begun items before it saw the disable, so
// that endNow checks again until nothing runs.
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

// meant returns the jobs that a command without a job's name concerns: those of the host, as with disable, or all of the
// registry.
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

// judgeKills shows the results of kills.
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
		_, err = fmt.Fprintln(p.Out, "nothing is running")
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
		Short: "Release items that are held back, so that they run again",
		Long: `Release items that are held back: all of the job, or with --item one. An item is held back
after hosts have died during its runs, maxHostDeaths times in a row. A released item runs
at its next instant; instants that were due while it was held back do not run.
'wasmjob job items JOB' shows the items that are held back, and which hosts died.

Items whose guests asked to run again later begin now. Without --item, the command also
ends the pauses of 'rate' keys that guests of the job have asked for; 'wasmjob job limits'
shows those pauses and the job.`,
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
					what = "no item of " + args[0] + " is held back"
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
