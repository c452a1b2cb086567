package jobs

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/show"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/client"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/explain"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/times"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

const (
	// waitTurn is how long a host is to wait for the end of a fire before it answers; then it is asked again.
	waitTurn = 10 * time.Second
	// askAgain is how long after a host that does not answer is asked again.
	askAgain = time.Second
	// lastLines is how long after the end of a fire its last lines may come.
	lastLines = time.Second
	// mostTries is how often a trigger is sent whose answer is lost.
	mostTries = 4
)

// triggerFlags are those of trigger.
type triggerFlags struct {
	items, param string
	at           string
	named        []string
	wait, follow bool
	timeout      time.Duration
	how          command.Shown
}

func triggerCommand(p *command.Program) *cobra.Command {
	var f triggerFlags
	cmd := &cobra.Command{
		Use:        "run JOB [flags]",
		Aliases:    []string{"trigger"},
		SuggestFor: []string{"run-now", "fire"},
		Short:      "Run a job now",
		Long: `Run all items of a job now, on all its hosts, whatever its schedule says. Items that
are idle begin at once. Those that still run begin again when they have ended. While a
trigger has not begun everywhere, further ones are queued behind it, up to queueMax of
the job's definition, and run one after the other with their own arguments.

With --items only some of the items run; with --param the guests see that text as the
job's parameter, this once; with --at they see that time as the instant of their run.
A job that declares arguments is given them with --arg; what is not given has its
default.

--wait waits until all items have ended, on all hosts, and --follow shows what they log
meanwhile; of a trigger that is queued, until its turn has come and it has ended. The
exit code says how it went: 0, all items were OK; 5, an item was not; 6, an item did not
run; 4, it goes on: --timeout was over, or Ctrl-C came, which ends the command and not
the run.`,
		Example: "  wasmjob job run cities\n  wasmjob job run cities --items 0,3-5 --param 2026-03-01\n  wasmjob job run settle --arg day=2026-03-01 --arg limit=10\n  wasmjob job run cities --follow --timeout 1h",
		Args:    command.Exactly("the job's name"),
	}
	cmd.Flags().StringVar(&f.items, "items", "", "run only these `ITEMS`: numbers and ranges, such as 0,3-5")
	cmd.Flags().StringVar(&f.param, "param", "", "run with this `TEXT` as the job's parameter; it is kept in the history")
	cmd.Flags().StringVar(&f.at, "at", "", "run for this `TIME` as the instant: 2026-03-01, \"2026-03-01 09:00\", 7d")
	cmd.Flags().StringArrayVar(&f.named, "arg", nil, "run with this argument, `NAME=VALUE`; may be repeated; it is kept in the history")
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait until all items have ended; the exit code says how it went")
	cmd.Flags().BoolVarP(&f.follow, "follow", "f", false, "wait as with --wait, and show what is logged meanwhile")
	command.DurationVar(cmd.Flags(), &f.timeout, "timeout", 0, "how long to wait at most, a `DURATION`; the run goes on after that (default: no limit)")
	f.how.AddOutput(cmd, "the number of the trigger, and how it ended,")
	return p.OnChange(cmd, func(ctx context.Context, r *command.Reached, names []string) error {
		args, err := f.args(cmd)
		if err != nil {
			return err
		}
		f.wait = f.wait || f.follow
		if err := f.check(ctx, cmd, r); err != nil {
			return err
		}
		began := time.Now()
		made, err := triggerOnce(ctx, r, names[0], args)
		if err != nil {
			return r.Similar(ctx, names[0], err)
		}
		t := triggered{Job: names[0], Triggered: made}
		if !f.wait {
			return p.Print(&f.how, t, t.text(args, r.Client != nil))
		}
		if f.how.Output == command.OutputTable {
			fmt.Fprint(p.Out, t.text(args, true))
		}
		w := waiting{p: p, client: r.Client, flags: &f, triggered: t, began: began}
		return w.wait(ctx)
	})
}

// args are the arguments of the trigger.
func (f *triggerFlags) args(cmd *cobra.Command) (tree.TriggerArgs, error) {
	var given *string
	if cmd.Flags().Changed("param") {
		given = &f.param
	}
	if cmd.Flags().Changed("items") && strings.TrimSpace(f.items) == "" {
		return tree.TriggerArgs{}, command.Usagef("--items: found nothing, expected numbers and ranges such as 0,3-5")
	}
	args, err := f.made(given)
	if err != nil {
		return args, command.Usagef("--%v", err)
	}
	if cmd.Flags().Changed("at") {
		at, err := times.Instant(f.at, time.Now(), times.Back)
		if err == nil {
			args, err = args.WithInstant(at.UnixMilli())
		}
		if err != nil {
			return args, command.Usagef("--at: %v", err)
		}
	}
	return args, nil
}

// made makes the arguments of the trigger; param is nil if there is none.
func (f *triggerFlags) made(param *string) (tree.TriggerArgs, error) {
	if len(f.named) == 0 {
		return tree.NewTriggerArgs(f.items, param)
	}
	if param != nil {
		return tree.TriggerArgs{}, &tree.ArgError{Arg: "param", Problem: "found a parameter beside --arg, expected one of the two"}
	}
	values := make(map[string]string, len(f.named))
	for _, text := range f.named {
		name, value, ok := strings.Cut(text, "=")
		if _, twice := values[name]; !ok || name == "" || twice {
			return tree.TriggerArgs{}, &tree.ArgError{Arg: "arg", Problem: fmt.Sprintf("found %q, expected NAME=VALUE, each name once", words.Clip(text))}
		}
		values[name] = value
	}
	text, err := json.Marshal(values)
	if err != nil {
		return tree.TriggerArgs{}, err
	}
	return tree.NewNamedArgs(f.items, string(text))
}

// check reports what keeps the command from waiting, before anything is triggered.
func (f *triggerFlags) check(ctx context.Context, cmd *cobra.Command, r *command.Reached) error {
	switch {
	case !f.wait && cmd.Flags().Changed("timeout"):
		return command.Usagef("--timeout is for --wait and --follow")
	case !f.wait:
		return nil
	case f.timeout < 0:
		return command.Usagef("--timeout: found %s, expected 0s or more", f.timeout)
	case r.Client == nil:
		return command.Usagef("--wait asks a host, which answers from the histories of all hosts; ask one with --admin, not ZooKeeper itself")
	}
	report, err := reportOf(ctx, r.Client)
	if err == nil && report.History == nil {
		err = errors.New("the host keeps no history (--history off), so it cannot say how a trigger ends; trigger without --wait")
	}
	return err
}

// triggerOnce triggers a job. If the answer of a host is lost, as when the connection breaks, the request is sent again under the
// same name, which the host knows: it triggers once. A host forgets names when its process ends, so another process is not asked.
func triggerOnce(ctx context.Context, r *command.Reached, job string, args tree.TriggerArgs) (admin.Triggered, error) {
	if r.Client == nil {
		return r.TriggerWith(ctx, job, args)
	}
	process := func() (started time.Time, err error) {
		report, err := reportOf(ctx, r.Client)
		return report.Status.Started, err
	}
	started, unknown := process()
	client := r.Client.Once(rand.Text())
	for try := 1; ; try++ {
		made, err := client.TriggerWith(ctx, job, args)
		if err == nil || !lost(err) || ctx.Err() != nil {
			return made, err
		}
		again, silent := process()
		for n := 1; silent != nil && n < mostTries && pause(ctx, askAgain); n++ {
			again, silent = process()
		}
		if unknown != nil || silent != nil || !again.Equal(started) || try == mostTries {
			return made, fmt.Errorf("it is not known whether job %q was triggered: 'wasmjob access audit --job %s --what trigger' shows it; the answer was lost: %w", job, words.Argument(job), err)
		}
	}
}

// reportOf is what a host does, without what it would have to read from the registry.
func reportOf(ctx context.Context, c *client.Client) (report report.Report, err error) {
	err = c.Get(ctx, "/v1/status", &report)
	return report, err
}

// lost reports whether a request may have been carried out all the same.
func lost(err error) bool {
	var said *client.ServerError
	if errors.As(err, &said) {
		return said.Code == http.StatusBadGateway || said.Code == http.StatusGatewayTimeout // a proxy's
	}
	return !errors.Is(err, client.ErrNoHost)
}

// pause waits; false: the context is done.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// triggered is what trigger shows as JSON.
type triggered struct {
	Job string `json:"job"`
	admin.Triggered
	// Outcome says how the trigger ended, and Items, of each item, what became of it; both are missing if the command did not wait.
	Outcome string                `json:"outcome,omitempty"`
	Items   []explain.ItemVerdict `json:"items,omitempty"`
}

// text says what was triggered.
func (t *triggered) text(args tree.TriggerArgs, byHost bool) string {
	done := "triggered " + t.Job
	if !args.Plain() {
		done += " with " + args.String()
	}
	if t.Queued != 0 {
		done += fmt.Sprintf("; it is queued as number %d behind %s, and runs when they have begun everywhere", t.Queued, words.Count(t.Ahead, "trigger"))
	}
	if t.Earlier != 0 {
		done += fmt.Sprintf("; hosts still keep trigger %d: those that have begun nothing of it run once for both, as trigger %d", t.Earlier, t.Trigger)
	}
	switch {
	case t.Trigger != 0 && byHost:
		done += fmt.Sprintf("; '%s --trigger %d' shows its runs", words.Command("job runs", t.Job), t.Trigger)
	case t.Queued != 0 && byHost:
		done += fmt.Sprintf("; '%s --trigger %d' says how it stands", words.Command("explain", t.Job), t.Queued)
	}
	return done + "\n"
}

// The outcomes of a trigger over all its items.
const (
	outcomeOK      = "ok"
	outcomeFailed  = "failed"  // an item was not OK
	outcomeNotRun  = "not run" // no item failed, and one did not run
	outcomeRunning = "running" // an item goes on, or is to begin
)

// judge sets the outcome and the items from what became of them, and returns the exit code; ExitRunning if not all have ended.
func (t *triggered) judge(a *explain.Answer) command.Exit {
	t.Items = a.Items
	verdicts := []explain.Verdict{a.Verdict}
	if len(a.Items) > 0 {
		verdicts = nil
	}
	for _, i := range a.Items {
		verdicts = append(verdicts, i.Verdict)
	}
	t.Outcome = outcomeOK
	exit := command.Exit(0)
	for _, v := range verdicts {
		switch {
		case v.Open():
			t.Outcome = outcomeRunning
			return command.ExitRunning
		case v == explain.Failed, v == explain.Killed, v == explain.Lost, v == explain.Held:
			t.Outcome, exit = outcomeFailed, command.ExitFailed
		case v != explain.Ran && v != explain.Late && exit == 0:
			t.Outcome, exit = outcomeNotRun, command.ExitNotRun
		}
	}
	return exit
}

// summary says what became of the items, the worst first.
func (t *triggered) summary() string {
	of := make(map[explain.Verdict]tree.Items)
	for _, i := range t.Items {
		v := i.Verdict
		if v == explain.Late {
			v = explain.Ran // a trigger is late if the item still ran
		}
		of[v] = append(of[v], i.Item)
	}
	var parts []string
	for _, v := range explain.Verdicts() {
		if items := of[v]; len(items) > 0 {
			name := words.State(v)
			if v == explain.Ran {
				name = "OK"
			}
			parts = append(parts, fmt.Sprintf("%s: %s", name, words.Clip(items.String())))
		}
	}
	if len(parts) == 0 {
		return "nothing is known of its items"
	}
	return strings.Join(parts, "; ")
}

// waiting waits for the end of a trigger. One that is queued has no number of its own until it runs: the host knows it by that of the
// queue meanwhile.
type waiting struct {
	p      *command.Program
	client *client.Client
	flags  *triggerFlags
	triggered
	began time.Time
}

// look is what a host said of the fire.
type look struct {
	answer *explain.Answer
	err    error
}

// wait shows lines until the fire has ended, the time is over, or a signal comes, and then what became of the items.
func (w *waiting) wait(ctx context.Context) error {
	signals, end := w.p.Notify()
	defer end()
	var limit <-chan time.Time
	if w.flags.timeout > 0 {
		t := time.NewTimer(w.flags.timeout)
		defer t.Stop()
		limit = t.C
	}
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	looks, lines := make(chan look), make(chan json.RawMessage)
	asked, ended := context.WithCancel(ctx)
	defer ended()
	number := w.Queued + w.Trigger // one of the two is 0
	answers := looks
	asking.Go(func() { w.ask(asked, number, answers) })
	follow := func() {
		if trigger := w.Trigger; w.flags.follow && trigger != 0 {
			asking.Go(func() { w.follow(ctx, trigger, lines) })
		}
	}
	follow()
	silent := false
	var last <-chan time.Time
	exit := command.ExitRunning
	for {
		select {
		case l := <-looks:
			if l.answer == nil && !lasting(l.err) {
				return l.err
			}
			if l.answer == nil {
				if !silent {
					fmt.Fprintf(w.p.Err, "wasmjob: %v; the command asks again until it answers\n", l.err)
				}
				silent = true
				continue
			}
			silent = false
			if w.Trigger == 0 && l.answer.Trigger != w.Queued {
				w.Trigger = l.answer.Trigger
				follow()
			}
			if exit = w.judge(l.answer); exit == command.ExitRunning {
				continue
			}
			ended()
			looks, limit = nil, nil // one more answer may be on its way: this was the last
			last = time.After(0)
			if w.flags.follow {
				last = time.After(lastLines)
			}
		case data := <-lines:
			if err := w.line(data); err != nil {
				return err
			}
		case <-last:
			return w.show(exit, "")
		case <-limit:
			return w.show(command.ExitRunning, fmt.Sprintf("--timeout %s is over", w.flags.timeout))
		case s := <-signals:
			return w.show(command.ExitRunning, signalName(s))
		case <-ctx.Done():
			return w.show(command.ExitRunning, "the command was stopped")
		}
	}
}

func signalName(s os.Signal) string {
	if s == os.Interrupt {
		return "Ctrl-C"
	}
	return "the signal " + s.String()
}

// show shows how it ended; why is set if it goes on.
func (w *waiting) show(exit command.Exit, why string) error {
	number := cmp.Or(w.Trigger, w.Queued)
	text := fmt.Sprintf("trigger %d of %s has ended; %s\n", number, w.Job, w.summary())
	explained := fmt.Sprintf("'%s --trigger %d'", words.Command("explain", w.Job), number)
	switch exit {
	case command.ExitRunning:
		w.Outcome = outcomeRunning
		text = ""
		fmt.Fprintf(w.p.Err, "wasmjob: %s: trigger %d of %s goes on; %s. %s says how it stands, and '%s' ends it.\n", why, number, w.Job, w.summary(), explained, words.Command("job kill", w.Job))
	case 0:
	default:
		text += explained + " says why\n"
	}
	print := w.p.Print
	if w.flags.follow {
		print = w.p.PrintNext
	}
	if err := print(&w.flags.how, w.triggered, text); err != nil {
		return err
	}
	if exit == 0 {
		return nil
	}
	return exit
}

// ask asks the host again and again what became of the fire, until ctx is done.
func (w *waiting) ask(ctx context.Context, trigger int64, out chan<- look) {
	q := url.Values{"trigger": {strconv.FormatInt(trigger, 10)}, "wait": {waitTurn.String()}}
	path := "/v1/jobs/" + url.PathEscape(w.Job) + "/explain?" + q.Encode()
	for {
		var answer explain.Answer
		l := look{answer: &answer}
		if err := w.client.Get(ctx, path, &answer); err != nil {
			l = look{err: err}
		}
		select {
		case out <- l:
		case <-ctx.Done():
			return
		}
		if l.err != nil && !pause(ctx, askAgain) {
			return
		}
	}
}

// lasting reports whether a host that does not answer may do so later.
func lasting(err error) bool {
	var said *client.ServerError
	return !errors.As(err, &said) || said.Code >= 500 || said.Code == http.StatusTooManyRequests
}

// follow reads the lines of the fire until ctx is done. A stream that breaks is opened again, and begins a little before it broke.
func (w *waiting) follow(ctx context.Context, trigger int64, out chan<- json.RawMessage) {
	newest := make(map[string]string) // the place of the last line of each run
	prefix := tree.RunID(w.Job, tree.Fire{Trigger: trigger}, 0)
	prefix = strings.TrimSuffix(prefix, "0")
	for from := w.began; ctx.Err() == nil; {
		shown := make(map[string]string, len(newest))
		for run, place := range newest {
			shown[run] = place
		}
		q := url.Values{"job": {w.Job}, "from": {(time.Since(from) + 5*time.Second).Round(time.Millisecond).String()}}
		_ = w.client.Stream(ctx, "/v1/logs/stream?"+q.Encode(), func(_ string, data []byte) error { // ask reports a host that does not answer
			var l history.Line
			if err := json.Unmarshal(data, &l); err != nil {
				return fmt.Errorf("the host's answer is no line: %w", err)
			}
			if !strings.HasPrefix(l.RunID, prefix) || (shown[l.RunID] != "" && l.Place() <= shown[l.RunID]) {
				return nil
			}
			newest[l.RunID] = max(newest[l.RunID], l.Place())
			select {
			case out <- slices.Clone(data):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		from = time.Now()
		pause(ctx, askAgain)
	}
}

// line shows a line.
func (w *waiting) line(data json.RawMessage) error {
	var l history.Line
	if err := json.Unmarshal(data, &l); err != nil {
		return fmt.Errorf("the host's answer is no line: %w", err)
	}
	return w.p.PrintNext(&w.flags.how, data, show.Line(w.p.Tables(), &l))
}
