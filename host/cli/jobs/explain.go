package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/show"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/explain"
	"github.com/wasmjob/wasmjob/host/history/jsonl"
	"github.com/wasmjob/wasmjob/internal/text/times"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Explain returns the command that explains why a job ran late, or not at all.
func Explain(p *command.Program) *cobra.Command {
	var how command.Shown
	var at, before string
	item := -1
	var trigger int64
	var files []string
	cmd := &cobra.Command{
		Use:     "explain JOB [flags]",
		Aliases: []string{"why"},
		Short:   "Explain why a job ran late, on another host, again, or not at all",
		Long: `Explain in sentences what happened to a fire of a job, and why: which host had each item,
what each item waited for, who paused the job, which host died, and what the schedule
says. The command explains the newest fire, the fire of --at or of --trigger, or the
newest fire up to --before.

The command asks a host, which answers from the histories of all hosts, also those in
databases. With --history the command asks no host, but reads the files (JSON lines) that
hosts have written, with the older files beside each. Name the files of all hosts: what is
in no file is called unknown. With --json each sentence has the events that prove it.

--at and --before take times of this machine's zone unless they name another zone; the
answer has times of the job's zone, and names it. 15:04 is the last time that the clock
showed 15:04.`,
		Example: `  wasmjob explain report
  wasmjob explain report --at 03:00
  wasmjob explain report --at 03:00 --item 3 --history /var/log/wasmjob/host1.jsonl
  wasmjob why report --before 2026-03-01T03:10:00Z --history host1.jsonl --json`,
		Args: command.Exactly("JOB"),
	}
	t := p.AddHost(cmd)
	cmd.ValidArgsFunction = p.JobNames(t)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q := explain.Question{Job: args[0]}
		if at != "" && before != "" {
			return command.Usagef("--at and --before choose different fires; give one of the two")
		}
		if round := cmd.Flags().Changed("trigger"); round && at+before != "" {
			return command.Usagef("--trigger chooses another fire than --at or --before; give one of them")
		} else if round && trigger <= 0 {
			return command.Usagef("--trigger: found %d, expected the number of a trigger", trigger)
		}
		q.Trigger = trigger
		var err error
		switch {
		case at != "":
			q.At, err = command.Instant("at", at, time.Now(), times.Back)
		case before != "":
			q.Nearest = true
			q.At, err = command.Instant("before", before, time.Now(), times.Back)
		}
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("item") {
			if item < 0 {
				return command.Usagef("--item: found %d, expected the number of an item, from 0", item)
			}
			q.Item = &item
		}
		answer, err := explained(cmd, p, t, q, files)
		if err != nil {
			return err
		}
		return p.Print(&how, answer, show.Explained(p.Tables(), answer))
	}
	f := cmd.Flags()
	f.StringVar(&at, "at", "", "explain the fire of this instant, `TIME`: 03:00, \"2026-03-01 03:00\", RFC 3339, or 90m for 90 minutes ago")
	f.StringVar(&before, "before", "", "explain the newest fire at or before this `TIME`")
	f.Int64Var(&trigger, "trigger", 0, "explain the fire of the trigger with this `NUMBER`, which 'wasmjob job run' shows")
	addItemFlag(cmd, &item)
	f.StringArrayVar(&files, "history", nil, "read a host's history `FILE` and ask no host; repeat for each host")
	how.AddOutput(cmd, "the answer")
	return cmd
}

// explained answers from history files, or asks a host.
func explained(cmd *cobra.Command, p *command.Program, t *command.Target, q explain.Question, files []string) (answer explain.Answer, err error) {
	if len(files) > 0 {
		for _, name := range []string{"admin", "token-file", "ca"} {
			if cmd.Flags().Changed(name) {
				return answer, command.Usagef("--%s asks a host, and --history reads files; give one of the two", name)
			}
		}
		facts, jobs, err := historyFiles(files).facts(cmd.Context(), q)
		if err == nil && !jobs[q.Job] {
			err = fmt.Errorf("the files have no job %q%s", words.Clip(q.Job), words.Suggest(q.Job, slices.Sorted(maps.Keys(jobs))))
		}
		return explain.Explain(q, facts), err
	}
	err = p.With(cmd, t, func(ctx context.Context, r *command.Reached) error {
		if err := r.Client.Get(ctx, "/v1/jobs/"+url.PathEscape(q.Job)+"/explain?"+questionQuery(q), &answer); err != nil || !slices.Contains(nothing(), answer.Verdict) {
			return err
		}
		item := -1
		if q.Item != nil {
			item = *q.Item
		}
		if err := missingJob(ctx, r, q.Job, item); err != nil {
			return err
		}
		return unheardOf(ctx, r, q.Job)
	})
	return answer, err
}

// nothing returns the verdicts of answers that may be about a job or item that does not exist.
func nothing() []explain.Verdict {
	return []explain.Verdict{explain.Unknown, explain.NoHost, explain.NotYetDue, explain.NeverDue}
}

// questionQuery is a question as the API takes it.
func questionQuery(q explain.Question) string {
	query := make(url.Values)
	switch {
	case q.Nearest:
		query.Set("before", q.At.Format(time.RFC3339Nano))
	case !q.At.IsZero():
		query.Set("at", q.At.Format(time.RFC3339Nano))
	}
	if q.Trigger != 0 {
		query.Set("trigger", strconv.FormatInt(q.Trigger, 10))
	}
	if q.Item != nil {
		query.Set("item", strconv.Itoa(*q.Item))
	}
	return query.Encode()
}

// historyFiles are histories in files, one of each host.
type historyFiles []string

const (
	// aboutFire is the distance from the instant within which events of fires matter.
	aboutFire = 24 * time.Hour
	// mostKept is how many of the newest events of fires are kept if the question names no fire.
	mostKept = 200_000
)

// facts reads the files; jobs are the jobs in them.
func (files historyFiles) facts(ctx context.Context, q explain.Question) (f explain.Facts, jobs map[string]bool, err error) {
	f, jobs = explain.Facts{Now: time.Now(), Files: true}, make(map[string]bool)
	var fires []event.Event
	n := 0
	for _, path := range files {
		if err := jsonl.CheckFile(path); err != nil {
			return f, nil, command.Usage(fmt.Errorf("%w; leave --history out: '%s' asks a host, which reads its database", err, words.Command("explain", q.Job)))
		}
		records := 0
		for r, err := range jsonl.Records(path) {
			if n++; n%4096 == 0 && ctx.Err() != nil {
				return f, nil, ctx.Err()
			}
			if errors.Is(err, jsonl.ErrLine) {
				continue
			}
			if err != nil {
				return f, nil, command.Usage(err)
			}
			records++
			if f.From.IsZero() || r.Time().Before(f.From) {
				f.From = r.Time()
			}
			if r.Job() != "" {
				jobs[r.Job()] = true
			}
			e := r.Event
			switch {
			case r.Job() != "" && r.Job() != q.Job:
			case r.Change != nil:
				f.Changes = append(f.Changes, *r.Change)
			case e == nil:
			case !explain.OfFire(e.Kind):
				f.Events = append(f.Events, *e)
			case matters(e, q):
				fires = newestEvents(append(fires, *e))
			}
		}
		if records == 0 {
			return f, nil, command.Usage(fmt.Errorf("%s has no events; expected a file that a host wrote with --history", path))
		}
	}
	f.Events = append(f.Events, fires...)
	return f, jobs, nil
}

// matters reports whether an event of a fire may concern the fire of the question.
func matters(e *event.Event, q explain.Question) bool {
	return q.At.IsZero() || e.Time.Sub(q.At).Abs() <= aboutFire
}

// newestEvents returns the newest events, at most mostKept.
func newestEvents(events []event.Event) []event.Event {
	if len(events) < 2*mostKept {
		return events
	}
	slices.SortStableFunc(events, func(a, b event.Event) int { return a.Time.Compare(b.Time) })
	return slices.Clone(events[len(events)-mostKept:])
}
