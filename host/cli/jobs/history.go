package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/show"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/labels"
	"github.com/wasmjob/wasmjob/internal/text/times"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// filterFlags are those of commands that look into the history.
type filterFlags struct {
	item           int
	trigger        uint64
	host, from, to string
	text, after    string
	failed         bool
	running        bool
	outcomes       []string
	who            string
	what           []string
	labels         []string
	limit          int
}

// hostHelp is the help of the flag --host.
const hostHelp = "only on this `HOST`: its address as tables show it, or an instance's id"

func (f *filterFlags) add(cmd *cobra.Command) {
	addLabelFlag(cmd, &f.labels)
	cmd.Flags().StringVar(&f.from, "from", "", "only since this `TIME`, or so long ago: 90m, 7d, 15:04, 2026-11-23, 2026-11-23T03:00:00Z")
	cmd.Flags().StringVar(&f.to, "to", "", "only before this `TIME`, or so long ago")
	cmd.Flags().IntVar(&f.limit, "limit", history.DefaultLimit, "at most so many, `N` up to "+strconv.Itoa(history.MaxLimit))
	cmd.Flags().StringVar(&f.after, "after", "", "go on after a page: the `CURSOR` that it ended with")
}

func (f *filterFlags) addRuns(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.failed, "failed", false, "only what failed, not what was stopped")
	cmd.Flags().BoolVar(&f.running, "running", false, "only what runs now, with how long it usually takes")
	cmd.Flags().StringSliceVar(&f.outcomes, "outcome", nil, "only these `OUTCOMES`: OK, FAIL, TIMEOUT, TRAP, LOST, …")
	_ = cmd.RegisterFlagCompletionFunc("outcome", oneOf(texts(history.Outcomes())...))
	addItemFlag(cmd, &f.item)
	cmd.Flags().Uint64Var(&f.trigger, "trigger", 0, "only the fire of the trigger with this `NUMBER`, which 'wasmjob job run' prints")
	cmd.Flags().StringVar(&f.host, "host", "", hostHelp)
}

// addLabelFlag adds the flag that finds jobs by their labels.
func addLabelFlag(cmd *cobra.Command, into *[]string) {
	cmd.Flags().StringArrayVar(into, "label", nil, "only of jobs with these labels: `CONDITIONS` such as "+labels.Example+" (or !critical); all have to hold")
}

// query is what the API is asked.
func (f *filterFlags) query(cmd *cobra.Command, job string) (string, error) {
	q := url.Values{"limit": {strconv.Itoa(f.limit)}}
	now := time.Now()
	for flag, value := range map[string]string{"from": f.from, "to": f.to} {
		if value == "" {
			continue
		}
		at, err := command.Instant(flag, value, now, times.Back)
		if err != nil {
			return "", err
		}
		q.Set(flag, at.Format(time.RFC3339Nano))
	}
	for name, value := range map[string]string{"text": f.text, "after": f.after, "host": f.host, "who": f.who} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if job != "" {
		q.Set("job", job)
	}
	if f.failed {
		q.Set("failed", "true")
	}
	if f.running {
		q.Set("running", "true")
	}
	if f.trigger != 0 {
		q.Set("trigger", strconv.FormatUint(f.trigger, 10))
	}
	q["label"], q["outcome"], q["what"] = f.labels, f.outcomes, operationsOf(f.what)
	if cmd.Flags().Changed("item") {
		q.Set("item", strconv.Itoa(f.item))
	}
	return q.Encode(), nil
}

// itemOf is the item that was named, -1 if none was.
func (f *filterFlags) itemOf(cmd *cobra.Command) int {
	if !cmd.Flags().Changed("item") {
		return -1
	}
	return f.item
}

// operationsOf are operations that flags name, with commas between; settings that were edited stand
// behind commas, too: edit cron, timeZone. A name may be that of a record, or what people read for it.
func operationsOf(flags []string) (list []string) {
	for _, text := range flags {
		edit := false
		for _, part := range strings.Split(text, ",") {
			part = strings.TrimSpace(part)
			if edit && history.CheckOperation(part, nil) != nil {
				list[len(list)-1] += ", " + part
				continue
			}
			name, not := part, ""
			if strings.HasPrefix(part, "!") {
				name, not = part[1:], "!"
			}
			list, edit = append(list, not+operation.Record(name)), strings.HasPrefix(name, "edit ")
		}
	}
	return list
}

// operationWords are the operations as WHAT shows them.
func operationWords() (list []string) {
	for _, o := range operation.All() {
		list = append(list, o.Text().English)
	}
	return list
}

// texts are words as plain texts.
func texts[T ~string](list []T) (plain []string) {
	for _, word := range list {
		plain = append(plain, string(word))
	}
	return plain
}

// level is the least level of lines as a flag: debug, info, warn or error.
type level int

func (l *level) String() string {
	return map[level]string{abi.LevelDebug: "debug", abi.LevelInfo: "info", abi.LevelWarn: "warn", abi.LevelError: "error"}[*l]
}
func (l *level) Type() string { return "string" }

func (l *level) Set(text string) error {
	for _, known := range []level{abi.LevelDebug, abi.LevelInfo, abi.LevelWarn, abi.LevelError} {
		if known.String() == text {
			*l = known
			return nil
		}
	}
	return fmt.Errorf("found %q, expected debug, info, warn or error", words.Clip(text))
}

// oneOf completes a word of a flag, or one more after a comma.
func oneOf(known ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, begun string) (list []string, _ cobra.ShellCompDirective) {
		before := begun[:strings.LastIndex(begun, ",")+1]
		for _, word := range known {
			list = append(list, before+word)
		}
		return list, cobra.ShellCompDirectiveNoFileComp
	}
}

// onHost finishes a command that only a host can answer, about a job or about all.
func onHost(p *command.Program, cmd *cobra.Command, how *command.Shown, look func(ctx context.Context, r *command.Reached, job string) (any, string, error)) *cobra.Command {
	t := p.AddHost(cmd)
	cmd.ValidArgsFunction = p.JobNames(t)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		job := ""
		if len(args) > 0 {
			job = args[0]
		}
		return p.With(cmd, t, func(ctx context.Context, r *command.Reached) error {
			return p.Show(ctx, how, func() (any, string, error) { return look(ctx, r, job) })
		})
	}
	return cmd
}

// atMostAJob takes a job's name, or none.
func atMostAJob(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return command.Exactly("the job's name")(cmd, args)
}

// records makes a command that shows records of the history.
func records[T any](p *command.Program, cmd *cobra.Command, path string, f *filterFlags, text func(terminal.Style, *cluster.Found[T]) string) *cobra.Command {
	var how command.Shown
	cmd.Args = atMostAJob
	f.add(cmd)
	how.Add(cmd, "them")
	return onHost(p, cmd, &how, func(ctx context.Context, r *command.Reached, job string) (any, string, error) {
		var found cluster.Found[T]
		query, err := f.query(cmd, job) // --from is so long ago at each look
		if err != nil {
			return nil, "", err
		}
		if err := r.Client.Get(ctx, path+"?"+query, &found); err != nil {
			return nil, "", err
		}
		if len(found.Records) == 0 && !how.Watch { // what is watched may come
			err := missing(ctx, r, job, f.itemOf(cmd))
			if err == nil && found.Next == "" { // else not all was looked through
				err = missingHost(ctx, r, f.host)
			}
			if err != nil {
				return nil, "", err
			}
		}
		s := p.Tables()
		shown := text(s, &found)
		if len(found.Records) == 0 && f.trigger != 0 {
			why, err := withoutRuns(ctx, r, job, f.trigger)
			if err != nil && !how.Watch {
				return nil, "", err
			}
			shown += why
		}
		return found, shown + rest(s, &found), nil
	})
}

// rest names what a page lacks: the hosts that did not answer, and the next page.
func rest[T any](s terminal.Style, found *cluster.Found[T]) string {
	text := show.Silent(s, found.Silent)
	if found.Next != "" {
		text += s.Paint(terminal.Grey, "there are more: --after "+found.Next) + "\n"
	}
	return text
}

func historyCommand(p *command.Program) *cobra.Command {
	var f filterFlags
	cmd := &cobra.Command{
		Use:   "history [JOB] [flags]",
		Short: "Show what fired, how it ended, and how late it was",
		Long: `Show fires, the newest first: of a job, of jobs whose names match a pattern, or of
all. 'wasmjob job runs' shows them item by item, 'wasmjob job logs' what they logged.

TOOK is from the first begin to the end of the last item, over all hosts, here as in
'wasmjob job list'; 'wasmjob status' and a host's log have that of the host's own items.`,
		Example: "  wasmjob job history cities\n  wasmjob job history --failed --from 12h\n  wasmjob job history 'etl-*' --limit 200",
	}
	f.addRuns(cmd)
	return records(p, cmd, "/v1/fires", &f, func(s terminal.Style, found *cluster.Found[history.Fire]) string {
		return show.Fires(s, found.Records, time.Now(), len(found.Silent) > 0)
	})
}

func runsCommand(p *command.Program) *cobra.Command {
	var f filterFlags
	cmd := &cobra.Command{
		Use:     "runs [JOB] [flags]",
		Short:   "Show the runs of items, and why they failed",
		Example: "  wasmjob job runs cities --item 2\n  wasmjob job runs --failed --from 12h\n  wasmjob job runs --text 'connection refused'",
	}
	f.addRuns(cmd)
	cmd.Flags().StringVar(&f.text, "text", "", "only those whose message contains this `TEXT`")
	return records(p, cmd, "/v1/runs", &f, func(s terminal.Style, found *cluster.Found[history.Run]) string {
		return show.Runs(s, found.Records, time.Now())
	})
}

// Audit is the command that shows who changed what.
func Audit(p *command.Program) *cobra.Command {
	var f filterFlags
	cmd := &cobra.Command{
		Use:     "audit [JOB] [flags]",
		Short:   "Show who changed what",
		Example: "  wasmjob access audit\n  wasmjob access audit cities --from 168h\n  wasmjob access audit --who ann --what '!sign'",
	}
	cmd.Flags().StringVar(&f.who, "who", "", "only by users whose name contains this `TEXT`")
	cmd.Flags().StringArrayVar(&f.what, "what", nil, "only these `OPERATIONS`, as WHAT shows them or by their first words: pause, 'edit cron', sign (in and out); with ! before it, one is left out")
	_ = cmd.RegisterFlagCompletionFunc("what", oneOf(operationWords()...))
	cmd.Flags().BoolVar(&f.failed, "failed", false, "only what did not take effect")
	return records(p, cmd, "/v1/audit", &f, func(s terminal.Style, found *cluster.Found[history.Change]) string {
		return show.Changes(s, found.Records, time.Now())
	})
}

func logsCommand(p *command.Program) *cobra.Command {
	var f filterFlags
	var how command.Shown
	follow := false
	cmd := &cobra.Command{
		Use:   "logs [JOB [RUN]] [flags]",
		Short: "Show what jobs logged, and follow it",
		Long: `Show the newest lines that a job logged, oldest first: of all its runs, or of the RUN
with that id, which 'wasmjob job runs' shows; without a job, those of all jobs.

--follow goes on with new lines until Ctrl-C, or until the run has ended. With --follow
and --output json each line is an object on a line of its own.`,
		Example: "  wasmjob job logs cities --follow\n  wasmjob job logs cities cities/2026-11-23T03:00:00.000Z/2\n  wasmjob job logs --level warn --text 'disk full' --from 24h",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return nil
			}
			if err := command.Exactly("the job's name", "the run's id")(cmd, args); err != nil {
				return err
			}
			if !strings.HasPrefix(args[1], args[0]+"/") {
				return command.Usagef("%q is no run of job %q; the id of one begins with %s/", words.Clip(args[1]), words.Clip(args[0]), words.Clip(args[0]))
			}
			return nil
		},
	}
	f.add(cmd)
	addItemFlag(cmd, &f.item)
	least := level(abi.LevelInfo)
	cmd.Flags().Var(&least, "level", "only lines of this `LEVEL` or above: debug, info, warn, error")
	_ = cmd.RegisterFlagCompletionFunc("level", oneOf("debug", "info", "warn", "error"))
	cmd.Flags().StringVar(&f.text, "text", "", "only lines that contain this `TEXT`")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what is logged from now on")
	how.AddOutput(cmd, "them")
	t := p.AddHost(cmd)
	cmd.ValidArgsFunction = jobsAndRuns(p, t)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		args = append(args, "", "")
		job, run := args[0], args[1]
		if follow && run == "" && (job == "" || strings.ContainsAny(job, "*?[")) {
			return command.Usagef("--follow wants the name of a job, or a run")
		}
		if follow && cmd.Flags().Changed("item") {
			return command.Usagef("--item and --follow do not go together; follow a run of that item: logs JOB RUN --follow")
		}
		if follow && cmd.Flags().Changed("label") {
			return command.Usagef("--label and --follow do not go together: one job is followed, or a run")
		}
		for _, ends := range []string{"to", "after"} {
			if follow && cmd.Flags().Changed(ends) {
				return command.Usagef("--%s and --follow do not go together: what comes from now on is after it", ends)
			}
		}
		query, err := f.query(cmd, job)
		if err != nil {
			return err
		}
		query += "&level=" + strconv.Itoa(int(least))
		if run != "" {
			query += "&" + url.Values{"run": {run}}.Encode()
		}
		return p.With(cmd, t, func(ctx context.Context, r *command.Reached) error {
			if !follow {
				return showLines(ctx, p, r, &how, query, func() error { return missingRun(ctx, r, job, run, f.itemOf(cmd)) })
			}
			began := time.Now()
			ctx, end := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM) // before a reader can have seen a line
			defer end()
			shown, err := showFirst(ctx, p, r, &how, query)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
			// What was logged since is still to be shown, and what reached the history late.
			since := time.Since(began) + 5*time.Second
			return followLines(ctx, p, r, &how, shown, url.Values{"job": {job}, "run": {run}, "text": {f.text},
				"level": {strconv.Itoa(int(least))}, "from": {since.Round(time.Millisecond).String()}})
		})
	}
	return cmd
}

// jobsAndRuns completes a job's name, and then the id of one of its newest runs.
func jobsAndRuns(p *command.Program, t *command.Target) cobra.CompletionFunc {
	names := p.JobNames(t)
	return func(cmd *cobra.Command, args []string, begun string) (ids []string, _ cobra.ShellCompDirective) {
		if len(args) != 1 {
			return names(cmd, args, begun)
		}
		_ = p.With(cmd, t, func(ctx context.Context, r *command.Reached) error { // without an answer there is nothing to offer
			var found cluster.Found[history.Run]
			err := r.Client.Get(ctx, "/v1/runs?"+url.Values{"job": {args[0]}, "limit": {"20"}}.Encode(), &found)
			for _, run := range found.Records {
				ids = append(ids, run.ID)
			}
			return err
		})
		return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// missingRun is missing of the job of a run, and an error if the run is not there.
func missingRun(ctx context.Context, r *command.Reached, job, run string, item int) error {
	if err := missing(ctx, r, job, item); err != nil || run == "" {
		return err
	}
	return r.Client.Get(ctx, "/v1/run?"+url.Values{"id": {run}}.Encode(), new(service.RunDetail))
}

// showLines shows lines, oldest first. If it is certain that there are none it asks whether what was
// looked for is there, with missing.
func showLines(ctx context.Context, p *command.Program, r *command.Reached, how *command.Shown, query string, missing func() error) error {
	return p.Show(ctx, how, func() (any, string, error) {
		var found cluster.Found[history.Line]
		if err := r.Client.Get(ctx, "/v1/logs?"+query, &found); err != nil {
			return nil, "", err
		}
		if len(found.Records) == 0 && found.Next == "" {
			if len(found.Silent) == 0 {
				if err := missing(); err != nil {
					return nil, "", err
				}
			}
			fmt.Fprintln(p.Err, "wasmjob: no lines")
		}
		s := p.Tables()
		var b strings.Builder
		for _, l := range slices.Backward(found.Records) {
			b.WriteString(show.Line(s, &l))
		}
		return found, b.String() + rest(s, &found), nil
	})
}

// showFirst shows the lines that there are before those that come, oldest first: each by itself, as those.
func showFirst(ctx context.Context, p *command.Program, r *command.Reached, how *command.Shown, query string) (found cluster.Found[history.Line], err error) {
	if err := r.Client.Get(ctx, "/v1/logs?"+query, &found); err != nil {
		return found, err
	}
	s := p.Tables()
	for _, l := range slices.Backward(found.Records) {
		if err := p.PrintNext(how, &l, show.Line(s, &l)); err != nil {
			return found, err
		}
	}
	if len(found.Records) == 0 && found.Next == "" {
		fmt.Fprintln(p.Err, "wasmjob: no lines")
	}
	_, err = fmt.Fprint(p.Err, show.Silent(s, found.Silent))
	return found, err
}

// followLines shows lines as they are logged, until ctx is done or the run of the query has ended, but
// none that was shown, or that is older than those and was left out.
func followLines(ctx context.Context, p *command.Program, r *command.Reached, how *command.Shown, shown cluster.Found[history.Line], query url.Values) error {
	ctx, end := context.WithCancel(ctx)
	var looking sync.WaitGroup
	defer looking.Wait()
	defer end()
	if run := query.Get("run"); run != "" {
		looking.Go(func() {
			untilEnded(ctx, r, run)
			end()
		})
	}
	for name, values := range query {
		if values[0] == "" {
			query.Del(name)
		}
	}
	var oldest time.Time
	if n := len(shown.Records); shown.Next != "" && n > 0 {
		oldest = shown.Records[n-1].Time
	}
	err := r.Client.Stream(ctx, "/v1/logs/stream?"+query.Encode(), func(_ string, data []byte) error {
		var l history.Line
		if err := json.Unmarshal(data, &l); err != nil {
			return fmt.Errorf("the host's answer is no line: %w", err)
		}
		same := func(s history.Line) bool { return s.RunID == l.RunID && s.Place() == l.Place() }
		if l.Time.Before(oldest) || slices.ContainsFunc(shown.Records, same) {
			return nil
		}
		return p.PrintNext(how, json.RawMessage(data), show.Line(p.Tables(), &l))
	})
	if ctx.Err() != nil { // a signal, or the end of the run, ends it well
		return nil
	}
	return err
}

// untilEnded returns when a run has ended and its last lines have had a second to come. It goes on if
// the run is not known yet.
func untilEnded(ctx context.Context, r *command.Reached, run string) {
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for ended := false; ; {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
		if ended {
			return
		}
		var found cluster.Found[history.Run]
		err := r.Client.Get(ctx, "/v1/runs?"+url.Values{"run": {run}, "limit": {"1"}}.Encode(), &found)
		ended = err == nil && len(found.Records) == 1 && !found.Records[0].Ended.IsZero()
	}
}

func hostsCommand(p *command.Program) *cobra.Command {
	var how command.Shown
	cmd := &cobra.Command{
		Use:     "list [flags]",
		Short:   "Show all hosts of the cluster, and what is wrong with them",
		Example: "  wasmjob host list\n  wasmjob host list --watch",
		Args:    command.Exactly(),
	}
	how.Add(cmd, "them")
	return onHost(p, cmd, &how, func(ctx context.Context, r *command.Reached, _ string) (any, string, error) {
		var list []cluster.Host
		if err := r.Client.Get(ctx, "/v1/hosts", &list); err != nil {
			return nil, "", err
		}
		var gone []service.GoneHost
		_ = r.Client.Get(ctx, "/v1/hosts/gone", &gone) // the hosts are shown without a history, too
		now := time.Now()
		missing := show.Gone(p.Tables(), gone, now)
		if how.Output != command.OutputTable { // the list of hosts has no place for them
			_, _ = io.WriteString(p.Err, missing)
		}
		return list, show.Hosts(p.Tables(), list, now) + missing, nil
	})
}

// Modules is the command that lists the modules of a cluster.
func Modules(p *command.Program) *cobra.Command {
	var how command.Shown
	cmd := &cobra.Command{
		Use:     "list [flags]",
		Short:   "Show which host runs which module, and the files that were refused",
		Example: "  wasmjob module list\n  wasmjob module list -o json",
		Args:    command.Exactly(),
	}
	how.Add(cmd, "them")
	return onHost(p, cmd, &how, func(ctx context.Context, r *command.Reached, _ string) (any, string, error) {
		var m service.Modules
		var hosts []cluster.Host
		err := r.Client.Get(ctx, "/v1/modules", &m)
		if err == nil { // which names hosts by their ids
			err = r.Client.Get(ctx, "/v1/hosts", &hosts)
		}
		return m, show.Modules(p.Tables(), &m, hosts, time.Now()), err
	})
}

func calendarCommand(p *command.Program) *cobra.Command {
	var how command.Shown
	span := time.Hour
	cmd := &cobra.Command{
		Use:     "calendar [JOB] [flags]",
		Short:   "Show which jobs fire next, and when",
		Example: "  wasmjob job calendar\n  wasmjob job calendar 'etl-*' --for 24h",
		Args:    atMostAJob,
	}
	var labels []string
	addLabelFlag(cmd, &labels)
	command.DurationVar(cmd.Flags(), &span, "for", span, "how far to look, a `DURATION`: 90m, 7d")
	how.Add(cmd, "it")
	return onHost(p, cmd, &how, func(ctx context.Context, r *command.Reached, job string) (any, string, error) {
		now := time.Now()
		q := url.Values{"label": labels, "from": {now.Format(time.RFC3339)}, "to": {now.Add(span).Format(time.RFC3339)}}
		if job != "" {
			q.Set("job", job)
		}
		var c service.Calendar
		err := r.Client.Get(ctx, "/v1/calendar?"+q.Encode(), &c)
		if err == nil && len(c.Upcoming)+len(c.Frequent) == 0 && !how.Watch {
			err = missing(ctx, r, job, -1)
		}
		return c, show.Upcoming(p.Tables(), c.Upcoming, c.Frequent, now) + show.Silent(p.Tables(), c.Silent), err
	})
}

// Top is the command that watches a cluster.
func Top(p *command.Program) *cobra.Command {
	var how command.Shown
	once := false
	cmd := &cobra.Command{
		Use:   "top [flags]",
		Short: "Watch what fails, what is late and what runs",
		Long: `Show the hosts, and the jobs that fail, are late or run, on all hosts: in a terminal
again each second until Ctrl-C, elsewhere once.`,
		Example: "  wasmjob top\n  wasmjob top --once",
		Args:    command.Exactly(),
		PreRun:  func(*cobra.Command, []string) { how.Watch = how.Watch || (p.OutTTY && !once) },
	}
	cmd.Flags().BoolVar(&once, "once", false, "show it once")
	return onHost(p, cmd, &how, func(ctx context.Context, r *command.Reached, _ string) (any, string, error) {
		var o service.Overview
		err := r.Client.Get(ctx, "/v1/overview", &o)
		return o, show.Overview(p.Tables(), &o), err
	})
}
