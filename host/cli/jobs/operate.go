// Package jobs has the commands that look at a cluster and operate it: by one of its
// hosts, or by the registry itself.
package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/show"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/client"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/times"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Look are the commands of the group job that show what jobs do and have done.
func Look(p *command.Program) []*cobra.Command {
	return []*cobra.Command{jobsCommand(p), shardsCommand(p), historyCommand(p), runsCommand(p), logsCommand(p), calendarCommand(p), limitsCommand(p)}
}

// Operate are the commands of the group job that change what jobs do.
func Operate(p *command.Program) []*cobra.Command {
	return []*cobra.Command{triggerCommand(p), backfillCommand(p), enableCommand(p), disableCommand(p), editCommand(p), killCommand(p), releaseCommand(p), offsetCommand(p), kvCommand(p),
		shutdownCommand(p, false), startCommand(p, false), removeCommand(p), restoreCommand(p)}
}

// Hosts are the commands of the group host.
func Hosts(p *command.Program) []*cobra.Command {
	return []*cobra.Command{hostsCommand(p), mayRestartCommand(p), shutdownCommand(p, true), startCommand(p, true)}
}

// Status is the command that shows a host, or a job.
func Status(p *command.Program) *cobra.Command {
	var how command.Shown
	all := false
	cmd := &cobra.Command{
		Use:        "status [JOB] [flags]",
		SuggestFor: []string{"describe", "get"},
		Short:      "Show what the host is doing, or who runs a job",
		Long: `Show the jobs of the running host, their items, their modules, and the files that it
refused, with the reasons. Only those items are shown that run, that did not end well,
that are paused or held back, or that misfired; --items shows all.

With a job's name, show whether the job is well, when it fires next and how it ended
last, and its instances on all hosts: their state, what they own and run, and which
module; and, of the host that is asked, what the job is granted, who signed its module,
and what its last runs did outside. With --zk the registry itself is asked, which does
not know when a job fires next.`,
		Example: `  wasmjob status
  wasmjob status cities
  wasmjob status --watch
  wasmjob status --zk zk1:2181 --namespace prod
  wasmjob status --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return command.Exactly("the job's name")(cmd, args)
		},
	}
	how.Add(cmd, "it")
	cmd.Flags().BoolVar(&all, "items", false, "show all items")
	return p.OnTarget(cmd, func(ctx context.Context, r *command.Reached, args []string) error {
		return p.Show(ctx, &how, func() (any, string, error) { return statusOf(ctx, p, r, args, all) })
	})
}

// statusOf is what status shows, as a value for JSON and as text.
func statusOf(ctx context.Context, p *command.Program, r *command.Reached, args []string, all bool) (v any, text string, err error) {
	switch {
	case len(args) > 0:
		s, err := r.Shards(ctx, args[0])
		if err != nil {
			return nil, "", r.Similar(ctx, args[0], err)
		}
		here, refused, err := here(ctx, r, args[0])
		if err != nil {
			return nil, "", err
		}
		whole, err := onAllHosts(ctx, r, args[0])
		if err != nil {
			return nil, "", err
		}
		text := show.Instances(p.Tables(), s, whole, time.Now())
		if here != nil {
			if more := show.Here(p.Tables(), here); more != "" {
				text += "\n" + more
			}
		}
		if len(refused) > 0 {
			text += "\nRefused on the host that was asked\n" + p.Tables().Wrapped(show.Refused(p.Tables(), refused, time.Now()))
		}
		return jobReport{s, whole, here, refused}, text, nil
	case r.Client != nil:
		report, err := r.Client.Status(ctx)
		if err != nil {
			return nil, "", err
		}
		return report, show.Status(p.Tables(), report, all), nil
	}
	list, err := r.Jobs(ctx)
	if err != nil {
		return nil, "", err
	}
	return list, r.Registry.Heading(p.Tables()) + "\n" + namespaceText(ctx, p, r, list), nil
}

// namespaceText shows the jobs of a namespace; if it has none, it says where there are some.
func namespaceText(ctx context.Context, p *command.Program, r *command.Reached, list []admin.Brief) string {
	none := ""
	if len(list) == 0 {
		none = "no jobs in namespace " + r.Registry.Namespace
		if others, err := r.Registry.Jobs.Namespaces(ctx); err == nil && len(others) > 0 {
			none += "; there are some in " + strings.Join(others, ", ") + words.Suggest(r.Registry.Namespace, others)
		}
	}
	return show.Namespace(p.Tables(), list, none, time.Now())
}

// jobReport is what status shows of one job as JSON: what the registry has, what the hosts
// say together, and what the host has that was asked.
type jobReport struct {
	*admin.Shards
	Cluster *cluster.Job      `json:"cluster,omitempty"`
	Here    *engine.JobStatus `json:"here,omitempty"`
	// Refused are the job's files that this host refuses.
	Refused []engine.Refusal `json:"refused,omitempty"`
}

// onAllHosts is the job as its hosts say that it is; nil if no host is asked, or none knows it yet.
func onAllHosts(ctx context.Context, r *command.Reached, job string) (*cluster.Job, error) {
	if r.Client == nil {
		return nil, nil
	}
	var d service.JobDetail
	err := r.Client.Get(ctx, "/v1/jobs/"+url.PathEscape(job), &d)
	if no := (*client.ServerError)(nil); errors.As(err, &no) && no.Code == http.StatusNotFound {
		return nil, nil
	}
	return &d.Job, err
}

// here is the job on the host that is asked, nil if none is or it does not have the job, and
// which of the job's files that host refuses.
func here(ctx context.Context, r *command.Reached, job string) (here *engine.JobStatus, refused []engine.Refusal, err error) {
	if r.Client == nil {
		return nil, nil, nil
	}
	report, err := r.Client.Status(ctx)
	if err != nil {
		return nil, nil, err
	}
	files := []string{job + ".yaml", job + ".yml", job + ".wasm"}
	for _, j := range report.Status.Jobs {
		if j.Name == job {
			here, files = j, append(files, j.File, j.Module)
		}
	}
	for _, f := range report.Status.Refused {
		if slices.Contains(files, f.File) {
			refused = append(refused, f)
		}
	}
	return here, refused, nil
}

func jobsCommand(p *command.Program) *cobra.Command {
	var how command.Shown
	var f jobFlags
	cmd := &cobra.Command{
		Use:        "list [flags]",
		SuggestFor: []string{"list", "ls", "ps"},
		Short:      "List the jobs of all hosts, or of the registry",
		Long: `List the jobs of all hosts of the cluster: what they do, whether they are well, when
they fire next, and how they ended last. Jobs that no host has are among them: they are
in error, or elsewhere if hosts of ElasticJob have them. With --zk all are listed as the
registry has them.`,
		Example: "  wasmjob job list\n  wasmjob job list --health failing,late\n  wasmjob job list --job 'etl-*' --sort -duration\n  wasmjob job list --zk zk1:2181 --namespace prod",
		Args:    command.Exactly(),
	}
	f.add(cmd)
	how.Add(cmd, "them")
	p.OnTarget(cmd, func(ctx context.Context, r *command.Reached, _ []string) error {
		return p.Show(ctx, &how, func() (any, string, error) {
			if r.Client == nil {
				if err := f.ofHosts(cmd); err != nil {
					return nil, "", err
				}
				list, err := r.Jobs(ctx)
				if err != nil {
					return nil, "", err
				}
				return list, namespaceText(ctx, p, r, list), nil
			}
			all, err := f.list(ctx, r.Client)
			if err != nil {
				return nil, "", err
			}
			if len(all.Records) == 0 && !how.Watch {
				for _, job := range f.jobs {
					if err := missing(ctx, r, job, -1); err != nil {
						return nil, "", err
					}
				}
				if err := missingHost(ctx, r, f.host); err != nil {
					return nil, "", err
				}
			}
			silent := show.Silent(p.Tables(), all.Silent)
			if how.Output != command.OutputTable { // the list of jobs has no place for it
				_, _ = io.WriteString(p.Err, silent)
			}
			return all.Records, show.ClusterJobs(p.Tables(), all.Records, time.Now()) + silent, nil
		})
	})
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

// jobFlags say which jobs are listed.
type jobFlags struct {
	text, host, sort              string
	jobs, health, state, outcomes []string
	labels                        []string
}

func (f *jobFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.text, "text", "", "only those whose name or description contains this `TEXT`")
	cmd.Flags().StringSliceVar(&f.jobs, "job", nil, "only those whose names match one of these `PATTERNS`")
	addLabelFlag(cmd, &f.labels)
	cmd.Flags().StringSliceVar(&f.health, "health", nil, "only those of this `HEALTH`: error, failing, late, paused, ok")
	cmd.Flags().StringSliceVar(&f.state, "state", nil, "only in these `STATES`: running, paused (disabled, as the API has it, is the same), stopped, removed, …")
	cmd.Flags().StringSliceVar(&f.outcomes, "outcome", nil, "only those whose last fire has one of these `OUTCOMES`: OK, FAIL, TIMEOUT, TRAP, …")
	cmd.Flags().StringVar(&f.host, "host", "", hostHelp)
	cmd.Flags().StringVar(&f.sort, "sort", "name", "the `ORDER`: by name, next, last, health or duration; -next is the reverse")
	_ = cmd.RegisterFlagCompletionFunc("health", oneOf(texts(cluster.Healths())...))
	_ = cmd.RegisterFlagCompletionFunc("state", oneOf(stateWords()...))
	_ = cmd.RegisterFlagCompletionFunc("outcome", oneOf(texts(history.Outcomes())...))
	_ = cmd.RegisterFlagCompletionFunc("sort", oneOf("name", "next", "last", "health", "duration"))
}

// ofHosts refuses the flags for a list of the registry's, which has all jobs by name.
func (*jobFlags) ofHosts(cmd *cobra.Command) error {
	for _, name := range []string{"text", "job", "label", "health", "state", "outcome", "host", "sort"} {
		if cmd.Flags().Changed(name) {
			return command.Usagef("--%s is for the jobs of hosts; of the registry all are listed, by name", name)
		}
	}
	return nil
}

// stateWords are the states of jobs as they are shown.
func stateWords() (list []string) {
	for _, state := range cluster.States() {
		list = append(list, words.State(state))
	}
	return list
}

// list asks for all pages.
func (f *jobFlags) list(ctx context.Context, c *client.Client) (*service.Jobs, error) {
	q := url.Values{"limit": {strconv.Itoa(history.MaxLimit)}, "job": f.jobs, "label": f.labels, "health": f.health, "outcome": f.outcomes}
	for _, state := range f.state {
		if state == words.State(engine.JobDisabled) { // as it is shown
			state = string(engine.JobDisabled)
		}
		q.Add("state", state)
	}
	for name, value := range map[string]string{"q": f.text, "host": f.host, "sort": f.sort} {
		if value != "" {
			q.Set(name, value)
		}
	}
	var all service.Jobs
	for {
		var page service.Jobs
		if err := c.Get(ctx, "/v1/jobs?"+q.Encode(), &page); err != nil {
			return nil, err
		}
		page.Records = append(all.Records, page.Records...)
		if all = page; page.Next == "" {
			return &all, nil
		}
		q.Set("after", page.Next)
	}
}

func enableCommand(p *command.Program) *cobra.Command {
	return switchCommand(p, "resume", "enable", "Let a job, a server or an item run again",
		`Let a job that was paused run again, on all its servers; with --server on one
of them, with --item one of its items. --server without a job, or with --all, is
all jobs of that server. An item that was paused with --item stays so until it is
resumed the same way; the answer says which.`, true)
}

func disableCommand(p *command.Program) *cobra.Command {
	return switchCommand(p, "pause", "disable", "Keep a job, a server or an item from running",
		`Keep a job from running on any server; with --server on one of them, whose items
go to the others; with --item one of its items. What runs goes on to its end, or
with --now is ended as by 'wasmjob job kill', whose exit codes it has then.
--server without a job, or with --all, is all jobs of that server. It lasts until
the same is resumed, or with --until ends by itself at that time, by the registry's
clock; and with a durable registry it outlives the hosts.`, false)
}

// switching is a pause or its end: what its flags ask for.
type switching struct {
	enable   bool
	done     string // as the message says it
	server   string
	item     int // -1: none
	all, now bool
	until    string
	untilAt  time.Time // until; zero: it lasts
	ending   killFlags
}

func (w *switching) check(cmd *cobra.Command) error {
	byItem := cmd.Flags().Changed("item")
	switch {
	case byItem && w.all:
		return command.Usagef("--item and --all do not go together")
	case byItem && w.server != "":
		return command.Usagef("--item and --server do not go together")
	case byItem && w.item < 0:
		return command.Usagef("--item: %d is not a number from 0", w.item)
	case !w.now && w.ending.given(cmd):
		return command.Usagef("--grace, --wait and --json go with --now")
	}
	if w.until == "" {
		return nil
	}
	at, err := times.Instant(w.until, time.Now(), times.Ahead)
	if err != nil {
		return command.Usagef("--until: %v", err)
	}
	if !at.After(time.Now()) {
		return command.Usagef("--until: found %s, expected a time that is to come", at.Format(time.RFC3339))
	}
	w.untilAt = at
	return nil
}

// perform switches a job, or all if it is empty, and says what it did. Of one job it looks first what is
// enabled, and what is not; the error of the look is that of the change, or is over.
func (w *switching) perform(ctx context.Context, r *command.Reached, job string) (what string, err error) {
	var before *admin.Shards
	already := ""
	if job != "" {
		if before, err = r.Shards(ctx, job); err == nil {
			already = show.Already(before, w.enable, w.server, w.item)
		}
	}
	what, err = w.change(ctx, r.Until(w.untilAt), job)
	if !w.untilAt.IsZero() { // what is disabled already may be so until another time
		return what + " until " + w.untilAt.Format(time.RFC3339), err
	}
	switch {
	case err != nil || before == nil:
		return what, err
	case already == "" && w.enable && w.server == "" && w.item < 0:
		return show.Enabled(before), nil
	case already == "":
		return what, nil
	case w.enable || w.server != "" || w.item >= 0:
		return already, nil
	}
	whole, err := onAllHosts(ctx, r, job)
	if err == nil && whole != nil {
		already += show.Since(whole.Paused, time.Now())
	}
	return already, nil // who has paused it is not known without a host
}

func (w *switching) change(ctx context.Context, o command.Operator, job string) (what string, err error) {
	jobs, servers, items := o.Disable, o.DisableServer, o.DisableItem
	if w.enable {
		jobs, servers, items = o.Enable, o.EnableServer, o.EnableItem
	}
	of := cmp.Or(job, "all jobs")
	if w.server != "" {
		return w.done + " server " + w.server + " for " + of, servers(ctx, job, w.server)
	}
	if w.item >= 0 {
		return fmt.Sprintf("%s item %d of %s", w.done, w.item, of), items(ctx, job, w.item)
	}
	return w.done + " " + of, jobs(ctx, job)
}

func switchCommand(p *command.Program, name, alias, short, long string, enable bool) *cobra.Command {
	var t *command.Target
	w := switching{enable: enable, done: name + "d"}
	example := "  wasmjob job NAME cities\n  wasmjob job NAME cities --server 10.0.0.7\n  wasmjob job NAME cities --item 2\n  wasmjob job NAME --server 10.0.0.7\n  wasmjob job NAME --all"
	if !enable {
		example += "\n  wasmjob job NAME cities --now --grace 30s\n  wasmjob job NAME cities --until 06:00 --reason \"the database moves\""
	}
	cmd := &cobra.Command{
		Use:        name + " [JOB] [flags]",
		Aliases:    []string{alias},
		SuggestFor: map[bool][]string{true: {"unpause"}, false: {"suspend"}}[enable],
		Short:      short,
		Long:       long,
		Example:    strings.ReplaceAll(example, "NAME", name),
		Args: func(cmd *cobra.Command, args []string) error {
			if w.all || (len(args) == 0 && w.server != "") {
				return command.Exactly()(cmd, args)
			}
			return command.Exactly("the job's name (or --all, or --server IP)")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := w.check(cmd); err != nil {
				return err
			}
			o, err := w.ending.options()
			if err != nil {
				return err
			}
			o.Server, o.Item = w.server, w.item
			job := ""
			if len(args) > 0 {
				job = args[0]
			}
			return p.With(cmd, t, func(ctx context.Context, r *command.Reached) error {
				what, err := w.perform(ctx, r, job)
				err = r.Similar(ctx, job, err)
				if !w.now || !w.ending.asJSON {
					err = p.Done(err, what)
				}
				if err != nil || !w.now {
					return err
				}
				return endNow(ctx, p, r, job, w.ending, o)
			})
		},
	}
	if !enable {
		cmd.Flags().BoolVar(&w.now, "now", false, "end what runs, too")
		cmd.Flags().StringVar(&w.until, "until", "", "resume it at this `TIME`: 2h or 7d from now, 15:04, \"2026-03-28 09:00\", RFC 3339")
		w.ending.add(cmd)
	}
	addItemFlag(cmd, &w.item)
	cmd.Flags().StringVar(&w.server, "server", "", "only the server with this `IP`")
	cmd.Flags().BoolVar(&w.all, "all", false, "all jobs of the host, or with --zk of the namespace")
	t = p.AddChange(cmd)
	cmd.ValidArgsFunction = p.JobNames(t)
	return cmd
}

// addItemFlag adds the flag that names one item; without it that is -1.
func addItemFlag(cmd *cobra.Command, item *int) {
	cmd.Flags().IntVar(item, "item", -1, "only this item, `N` from 0")
}

// shutdownCommand takes instances out of a job, or of all jobs: ofHosts is for the latter alone, in the group of hosts.
func shutdownCommand(p *command.Program, ofHosts bool) *cobra.Command {
	server, instance := "", ""
	cmd := &cobra.Command{
		Use:        "drain JOB [flags]",
		Aliases:    []string{"shutdown"},
		SuggestFor: []string{"stop"},
		Short:      "Stop instances of a job until they are started again",
		Long: `Take instances out of a job: all of the job, those of a server, or one. They finish
what they run within the host's drain timeout and leave the job; their items go to the
others. The process of the host goes on. The command does not wait for that: 'wasmjob
host list' and 'wasmjob status JOB' show what still runs.

It holds until 'wasmjob job restore JOB' or 'wasmjob job start JOB' takes it back, also
for instances that come later: of the job, with --server of that server, with --instance
of that process. 'wasmjob host drain' takes a host out of all its jobs.

A Java instance that runs items of a job with failover is refused: without its node
in the registry it looks like a crashed one, and its items would run again
elsewhere. Pause its server and wait until it runs nothing.`,
		Example: `  wasmjob job drain cities
  wasmjob job drain cities --instance 10.0.0.7@-@4711-1f2e3d4c
  wasmjob job drain cities --server 10.0.0.7`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && server+instance != "" {
				return nil // as 'wasmjob shutdown' was called until 0.2.0
			}
			return command.Exactly("the job's name")(cmd, args)
		},
	}
	if ofHosts {
		cmd.Use, cmd.Short = "drain [flags]", "Take hosts out of all their jobs until they are started again"
		cmd.Long = `Take the instances on a server, or one, out of all their jobs. They finish what they run
within the host's drain timeout and leave the jobs; their items go to the others. The
process of the host goes on. The command does not wait for that: 'wasmjob host list'
shows what still runs. It holds until 'wasmjob host start' takes it back, also for
instances that come later on that server. 'wasmjob job drain' is for one job.`
		cmd.Example = "  wasmjob host drain --server 10.0.0.7\n  wasmjob host drain --server 10.0.0.7 --zk zk1:2181 --namespace prod"
		cmd.Args = noJob(&server, &instance)
	}
	cmd.Flags().StringVar(&server, "server", "", "the instances on the server with this `IP`")
	cmd.Flags().StringVar(&instance, "instance", "", "the instance with this `ID`; 'wasmjob status JOB' shows them")
	return p.OnChange(cmd, func(ctx context.Context, r *command.Reached, args []string) error {
		job := ""
		if len(args) > 0 {
			job = args[0]
		}
		what := "all instances"
		switch {
		case instance != "":
			what = instance
		case server != "":
			what = "the instances on " + server
		}
		then := ""
		switch {
		case job != "":
			then = "; when they have, " + words.Command("status", job) + " shows them no more"
		case r.Client != nil:
			then = "; wasmjob host list shows when they have"
		}
		return p.Done(r.Similar(ctx, job, r.Shutdown(ctx, job, server, instance)), "asked "+what+" of "+cmp.Or(job, "all jobs")+" to stop"+then)
	})
}

// noJob demands a server or an instance, and no job.
func noJob(server, instance *string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if *server+*instance == "" && len(args) == 0 {
			return command.Usagef("--server IP or --instance ID is missing")
		}
		return command.Exactly()(cmd, args)
	}
}

// startCommand has hosts join jobs again: ofHosts is for all jobs of hosts alone, in the group of hosts.
func startCommand(p *command.Program, ofHosts bool) *cobra.Command {
	var t *command.Target
	server, instance := "", ""
	cmd := &cobra.Command{
		Use:   "start JOB [flags]",
		Short: "Bring a drained job back, on one host",
		Long: `Have the host join a job again that 'wasmjob job drain' stopped there. It is for one
host, and for what is started at its address later: give it on each host that is to run
the job. A job that was removed comes back on all hosts that have its definition, as by
'wasmjob job restore'. A job that runs is left alone.
'wasmjob host start' brings a host back into all its jobs.`,
		Example: `  wasmjob job start cities
  wasmjob job start cities --admin 10.0.0.7:9770 --token-file token`,
		Args: func(cmd *cobra.Command, args []string) error {
			if server+instance == "" {
				return command.Exactly("the job's name")(cmd, args)
			}
			if len(args) > 0 {
				return command.Usagef("with --server or --instance, all jobs that were drained there are started: leave the job out, or give the command on that host")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			direct, err := t.Direct()
			if err != nil {
				return err
			}
			if direct {
				return command.Usagef("only a host can start a job again, not the registry: leave --zk, --config and --namespace out")
			}
			t.One = len(args) > 0
			return p.With(cmd, t, func(ctx context.Context, r *command.Reached) error {
				if len(args) == 0 {
					return startInstances(ctx, p, r, server, instance)
				}
				what := startedText(ctx, r.Client, args[0])
				return p.Done(r.Client.Start(ctx, args[0]), what)
			})
		},
	}
	if ofHosts {
		cmd.Use, cmd.Short = "start [flags]", "Have hosts that were drained run their jobs again"
		cmd.Long = `Have the hosts on a server, or one, join again all jobs that were drained there. Any
host of the cluster can be asked.`
		cmd.Example = "  wasmjob host start --server 10.0.0.7"
		cmd.Args = noJob(&server, &instance)
	}
	t = p.AddChange(cmd)
	registry := pflag.NewFlagSet("", pflag.ContinueOnError)
	p.RegistryFlags(registry)
	registry.VisitAll(func(f *pflag.Flag) { cmd.Flags().Lookup(f.Name).Hidden = true }) // only to say why they are refused
	cmd.Flags().StringVar(&server, "server", "", "all jobs that were drained on the server with this `IP`")
	cmd.Flags().StringVar(&instance, "instance", "", "all jobs that were drained on the instance with this `ID`: 'wasmjob host list -o json' has it as report.status.instance")
	cmd.ValidArgsFunction = p.JobNames(t)
	return cmd
}

// startInstances has hosts join again all jobs that were shut down there.
func startInstances(ctx context.Context, p *command.Program, r *command.Reached, server, instance string) error {
	var started service.Restored
	path := "/v1/start?" + url.Values{"server": {server}, "instance": {instance}}.Encode()
	if err := r.Client.Send(ctx, http.MethodPost, path, nil, &started); err != nil {
		return err
	}
	if len(started.Hosts) > 0 {
		if err := p.Done(nil, "started all jobs again on "+strings.Join(started.Hosts, ", ")); err != nil {
			return err
		}
	}
	if len(started.Failed) > 0 {
		return fmt.Errorf("not started on %s", strings.Join(started.Failed, "; "))
	}
	return nil
}

func restoreCommand(p *command.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore JOB [flags]",
		Short: "Bring a removed or drained job back, on all its hosts",
		Long: `Have all hosts that still have the job's definition file join it again, after
'wasmjob job remove' or 'wasmjob job drain' took it from them. The job begins with its
records and offsets, unless it was removed with --purge. One that was removed has
the settings of its last definition: what was edited before is gone.`,
		Example: "  wasmjob job restore cities",
		Args:    command.Exactly("the job's name"),
	}
	t := p.AddHost(cmd)
	cmd.Flags().StringVar(&t.Reason, "reason", "", "`TEXT` that says why, for 'wasmjob access audit'")
	return p.On(t, cmd, func(ctx context.Context, r *command.Reached, args []string) error {
		var restored service.Restored
		removed := isRemoved(ctx, r, args[0])
		err := r.Client.Send(ctx, http.MethodPost, "/v1/jobs/"+url.PathEscape(args[0])+"/restore", nil, &restored)
		if err != nil {
			return err
		}
		done := "restored " + args[0] + " on " + strings.Join(restored.Hosts, ", ")
		if removed {
			done += " with the settings of its definition file: what was edited before the removal is gone"
		}
		err = p.Done(nil, done)
		if len(restored.Failed) > 0 {
			err = fmt.Errorf("not restored on %s", strings.Join(restored.Failed, "; "))
		}
		return err
	})
}

// isRemoved reports whether a job is removed on a host; false also if that is not known.
func isRemoved(ctx context.Context, r *command.Reached, job string) bool {
	var d service.JobDetail
	if err := r.Client.Get(ctx, "/v1/jobs/"+url.PathEscape(job), &d); err != nil {
		return false // the restoration itself says what is wrong
	}
	for _, on := range d.On {
		if on.State == engine.JobRemoved {
			return true
		}
	}
	return false
}

// startedText is what start reports of a job, from its state on the host before.
func startedText(ctx context.Context, c *client.Client, job string) string {
	started := "started " + job
	report, err := c.Status(ctx)
	if err != nil {
		return started
	}
	n := slices.IndexFunc(report.Status.Jobs, func(j *engine.JobStatus) bool { return j.Name == job })
	if n < 0 {
		return started
	}
	switch report.Status.Jobs[n].State {
	case engine.JobReady, engine.JobRunning, engine.JobSharding:
		return job + " runs here already"
	case engine.JobDisabled:
		return fmt.Sprintf("%s is paused: %s", job, words.Command("job resume", job))
	}
	return started
}

func removeCommand(p *command.Program) *cobra.Command {
	purge := false
	cmd := &cobra.Command{
		Use:        "remove JOB [flags]",
		SuggestFor: []string{"delete", "rm"},
		Short:      "Take a job out of the registry",
		Long: `Take a job out of the registry. Hosts that run it stop it: what runs ends within
their drain timeout. No host brings it back, whenever it comes, until 'wasmjob job
restore' does, or a host has a definition of it that is new. Its offsets and records
stay, for a later job of that name, unless --purge is given; its runs stay in the
histories. Settings that were edited are lost: the job comes back as its file has it.`,
		Example: "  wasmjob job remove cities\n  wasmjob job remove cities --purge",
		Args:    command.Exactly("the job's name"),
	}
	cmd.Flags().BoolVar(&purge, "purge", false, "forget its offsets and records too")
	return p.OnChange(cmd, func(ctx context.Context, r *command.Reached, args []string) error {
		what := "removed " + args[0]
		if purge {
			what += " with its records and offsets; its runs stay in the histories"
		}
		defined := stillDefined(ctx, r, args[0])
		return p.Done(r.Similar(ctx, args[0], r.Remove(ctx, args[0], purge)), what+defined)
	})
}

// stillDefined says which definition files have a job that is about to be removed; empty if that
// is not known.
func stillDefined(ctx context.Context, r *command.Reached, job string) string {
	if r.Client == nil {
		return ""
	}
	var d service.JobDetail
	if err := r.Client.Get(ctx, "/v1/jobs/"+url.PathEscape(job), &d); err != nil {
		return "" // the removal itself says what is wrong
	}
	hosts := make(map[string]int) // by file
	for _, on := range d.On {
		if on.File != "" {
			hosts[on.File]++
		}
	}
	var files []string
	for _, file := range slices.Sorted(maps.Keys(hosts)) {
		files = append(files, file+" on "+words.Count(hosts[file], "host"))
	}
	if len(files) == 0 {
		return ""
	}
	return "; still defined by " + strings.Join(files, ", ") + ": a change of the file or a restart of its host brings the job back, with the settings of the file and without edits"
}
