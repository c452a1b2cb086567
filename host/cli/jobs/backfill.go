package jobs

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/show"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/internal/text/times"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// backfillFlags are those of backfill.
type backfillFlags struct {
	from, to       string
	items, overlap string
	every          time.Duration
	dryRun, cancel bool
	how            command.Shown
}

func backfillCommand(p *command.Program) *cobra.Command {
	var f backfillFlags
	cmd := &cobra.Command{
		Use:   "backfill JOB [flags]",
		Short: "Run past instants of a job again",
		Long: `Run each instant of a job's schedule from one time to another once more, oldest
first, whatever became of it then. Both ends count. The instants are listed, and then
given out one after the other, --every so often at most; the next begins when each item
has begun the one before. It goes on whichever hosts die or restart, and waits while the
job is paused. Runs say that they are of a backfill.

--dry-run lists the instants and begins nothing. Without --from and --to, the command
shows how far the job's backfill is, with --watch again each second. --cancel gives out
no further instant; what was given out runs to its end. A job has one backfill at a time.`,
		Example: `  wasmjob job backfill cities --from 2026-03-01 --to 2026-03-31 --dry-run
  wasmjob job backfill cities --from 2026-03-01 --to 2026-03-31 --items 0-2 --every 1m
  wasmjob job backfill cities --watch
  wasmjob job backfill cities --cancel`,
		Args: command.Exactly("the job's name"),
	}
	cmd.Flags().StringVar(&f.from, "from", "", "the first instant that may run, a `TIME`: 2026-03-01, \"2026-03-01 09:00\", 7d")
	cmd.Flags().StringVar(&f.to, "to", "", "the last instant that may run, a `TIME` that is past")
	cmd.Flags().StringVar(&f.items, "items", "", "run only these `ITEMS`: numbers and ranges, such as 0,3-5")
	cmd.Flags().StringVar(&f.overlap, "overlap", "queue_all", "the `POLICY` for an item that still runs for the schedule when its turn comes: queue_all, it runs after that; skip, it leaves the instant out")
	command.DurationVar(cmd.Flags(), &f.every, "every", time.Second, "the least time between two instants, a `DURATION` from 1s to 24h")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "list what would run, and begin nothing")
	cmd.Flags().BoolVar(&f.cancel, "cancel", false, "end the job's backfill")
	f.how.Add(cmd, "it")
	_ = cmd.RegisterFlagCompletionFunc("overlap", oneOf("queue_all", "skip"))
	t := p.AddHost(cmd)
	cmd.Flags().StringVar(&t.Reason, "reason", "", "`TEXT` that says why, for 'wasmjob access audit'")
	return p.On(t, cmd, func(ctx context.Context, r *command.Reached, names []string) error {
		body, err := f.check(cmd, time.Now())
		if err != nil {
			return err
		}
		job, path := names[0], "/v1/jobs/"+url.PathEscape(names[0])+"/backfill"
		switch {
		case f.cancel:
			err := r.Client.Send(ctx, http.MethodDelete, path, nil, nil)
			return p.Done(r.Similar(ctx, job, err), "cancelled the backfill of "+job+"; what was given out runs to its end")
		case f.dryRun:
			q := url.Values{"from": {body.From.Format(time.RFC3339Nano)}, "to": {body.To.Format(time.RFC3339Nano)}, "items": {f.items}, "overlap": {f.overlap}}
			var all service.Backfills
			if err := r.Client.Get(ctx, path+"?"+q.Encode(), &all); err != nil {
				return r.Similar(ctx, job, err)
			}
			all.Plan.Every = f.every
			return p.Print(&f.how, all.Plan, show.BackfillPlan(p.Tables(), job, all.Plan)+"nothing was begun: --dry-run\n")
		case f.from != "":
			var plan service.BackfillPlan
			if err := r.Client.Send(ctx, http.MethodPost, path, body, &plan); err != nil {
				return r.Similar(ctx, job, err)
			}
			return p.Print(&f.how, &plan, show.BackfillPlan(p.Tables(), job, &plan)+fmt.Sprintf("the backfill has begun; '%s' shows how far it is\n", words.Command("job backfill", job, "--watch")))
		}
		return p.Show(ctx, &f.how, func() (any, string, error) {
			var all service.Backfills
			if err := r.Client.Get(ctx, path, &all); err != nil {
				return nil, "", r.Similar(ctx, job, err)
			}
			return all, show.Backfills(p.Tables(), job, &all), nil
		})
	})
}

// backfillBody is the body of the request that begins a backfill.
type backfillBody struct {
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Items   string    `json:"items,omitempty"`
	Every   int64     `json:"everySeconds,omitempty"`
	Overlap string    `json:"overlap,omitempty"`
}

// check reads the flags.
func (f *backfillFlags) check(cmd *cobra.Command, now time.Time) (body backfillBody, err error) {
	ranged := f.from != "" || f.to != ""
	switch {
	case f.cancel && (ranged || f.dryRun || f.how.Watch):
		return body, command.Usagef("--cancel goes with the job's name alone")
	case ranged && f.how.Watch:
		return body, command.Usagef("--watch shows how far a backfill is: leave --from and --to out")
	case ranged && (f.from == "" || f.to == ""):
		return body, command.Usagef("--from and --to go together")
	case !ranged:
		for _, name := range []string{"items", "overlap", "every", "dry-run"} {
			if cmd.Flags().Changed(name) {
				return body, command.Usagef("--%s goes with --from and --to", name)
			}
		}
		return body, nil
	case f.every < time.Second || f.every > 24*time.Hour || f.every%time.Second != 0:
		return body, command.Usagef("--every: found %s, expected whole seconds from 1s to 24h", words.Duration(f.every))
	}
	if body.From, err = times.Instant(f.from, now, times.Back); err != nil {
		return body, command.Usagef("--from: %v", err)
	}
	if body.To, err = times.Instant(f.to, now, times.Back); err != nil {
		return body, command.Usagef("--to: %v", err)
	}
	body.Items, body.Overlap, body.Every = f.items, f.overlap, int64(f.every/time.Second)
	return body, nil
}
