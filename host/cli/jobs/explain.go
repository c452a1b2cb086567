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

// Explain is the command that says why a job ran late, or not.
func Explain(p *command.Program) *cobra.Command {
	var how command.Shown
	var at, before string
	item := -1
	var trigger int64
	var files []string
	cmd := &cobra.Command{
		Use:     "explain JOB [flags]",
		Aliases: []string{"why"},
		Short:   "Say why a job ran late, elsewhere, again, or not at all",
		Long: `Say in sentences what became of a fire of a job, and why: who had its items, what
each waited for, who paused it, which host died, and what the schedule says. The
newest fire is explained, that of --at or of --trigger, or the newest up to --before.

A host is asked, which answers from the histories of all hosts, also those in databases.
With --history no host is asked: the command reads the files (JSON lines) that hosts have
written, with the older files beside each. Name the files of all hosts: the answer calls
unknown what is in none of them. With --json each sentence has the events that it rests
on.

Times are those of this machine's zone unless they say another; the answer has those of
the job's zone, and names it. 15:04 is the last such time of the day.`,
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
			return command.Usagef("--at and --before mean different fires; want one of them")
		}
		if round := cmd.Flags().Changed("trigger"); round && at+before != "" {
			return command.Usagef("--trigger and --at or --before mean different fires; want one of them")
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
				return command.Usagef("--item: %d is not an item; want a number from 0 on", item)
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
	f.StringVar(&at, "at", "", "the instant that is meant, `TIME`: 03:00, \"2026-03-01 03:00\", RFC 3339, or 90m ago")
	f.StringVar(&before, "before", "", "the newest fire at this `TIME` or before it")
	f.Int64Var(&trigger, "trigger", 0, "the fire of this trigger, `NUMBER`, as 'wasmjob job run' shows it")
	addItemFlag(cmd, &item)
	f.StringArrayVar(&files, "history", nil, "read a host's history `FILE` and ask none; once for each host")
	how.AddOutput(cmd, "the answer")
	return cmd
}

// explained answers from history files, or has a host answer.
func explained(cmd *cobra.Command, p *command.Program, t *command.Target, q explain.Question, files []string) (answer explain.Answer, err error) {
	if len(files) > 0 {
		for _, name := range []string{"admin", "token-file", "ca"} {
			if cmd.Flags().Changed(name) {
				return answer, command.Usagef("--%s asks a host, --history reads files; leave one of them out", name)
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

// nothing are the verdicts of answers that may be about what is not there.
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
	// aboutFire is how far from the instant that is meant events of fires matter.
	aboutFire = 24 * time.Hour
	// mostKept is of how many events of fires the newest are kept if none is meant.
	mostKept = 200_000
)

// facts reads the files; jobs are those that they have.
func (files historyFiles) facts(ctx context.Context, q explain.Question) (f explain.Facts, jobs map[string]bool, err error) {
	f, jobs = explain.Facts{Now: time.Now(), Files: true}, make(map[string]bool)
	var fires []event.Event
	n := 0
	for _, path := range files {
		if err := jsonl.CheckFile(path); err != nil {
			return f, nil, command.Usage(fmt.Errorf("%w; without --history, '%s' asks a host, which reads its database", err, words.Command("explain", q.Job)))
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
			return f, nil, command.Usage(fmt.Errorf("%s: no event in it; expected a file that a host wrote with --history", path))
		}
	}
	f.Events = append(f.Events, fires...)
	return f, jobs, nil
}

// matters reports whether an event of a fire may be about the one that is meant.
func matters(e *event.Event, q explain.Question) bool {
	return q.At.IsZero() || e.Time.Sub(q.At).Abs() <= aboutFire
}

// newestEvents are the newest of some events, if they are many.
func newestEvents(events []event.Event) []event.Event {
	if len(events) < 2*mostKept {
		return events
	}
	slices.SortStableFunc(events, func(a, b event.Event) int { return a.Time.Compare(b.Time) })
	return slices.Clone(events[len(events)-mostKept:])
}
