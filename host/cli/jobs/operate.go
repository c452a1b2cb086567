// Package jobs has the commands that show and operate a cluster, through one of its hosts or the registry.
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
		Short:      "Show the state of the host, or of a job on all hosts",
		Long: `Show the jobs of the host that is asked, their items and modules, and the files that it
rejected, with the reasons. Without --items, the list of items has only those that run,
did not end with OK, are paused or held back, or misfired.

With a job's name, show the job's health, its next fire, the outcome of its last fire, and
its instances on all hosts: the state of each, the items that it owns and runs, and its
module. The host that is asked adds what it grants to the job, who signed the job's
module, and what the job's last runs did outside. With --zk the command asks the
registry, which does not know when a job fires next.`,
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
	cmd.Flags().BoolVar(&all, "items", false, "list all items")
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
			text += "\nRejected on the host that was asked\n" + p.Tables().Wrapped(show.Refused(p.Tables(), refused, time.Now()))
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

// namespaceText shows the jobs of a namespace; if it has none, it names namespaces that have jobs.
func namespaceText(ctx context.Context, p *command.Program, r *command.Reached, list []admin.Brief) string {
	none := ""
	if len(list) == 0 {
		none = "no jobs in namespace " + r.Registry.Namespace
		if others, err := r.Registry.Jobs.Namespaces(ctx); err == nil && len(others) > 0 {
			none += "; there are jobs in " + strings.Join(others, ", ") + words.Suggest(r.Registry.Namespace, others)
		}
	}
	return show.Namespace(p.Tables(), list, none, time.Now())
}

// jobReport is the output of status for one job as JSON: from the registry, from all hosts together, and from the host
// that was asked.
type jobReport struct {
	*admin.Shards
	Cluster *cluster.Job      `json:"cluster,omitempty"`
	Here    *engine.JobStatus `json:"here,omitempty"`
	// Refused are the job's files that this host refuses.
	Refused []engine.Refusal `json:"refused,omitempty"`
}

// onAllHosts returns the job as its hosts report it; nil if the command asks the registry, or if no host knows the job
// yet.
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

// here returns the job on the host that is asked, nil without a host or if the host does not have it, and the job's files
// that this host refuses.
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
		Long: `List the jobs of all hosts of the cluster: state, health, next fire, and the outcome of
the last fire. The list includes jobs that no host of wasmjob has: their health is error,
or their state is "elsewhere" if ElasticJob's hosts have them. With --zk the command lists
what the registry knows of each job.`,
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

// jobFlags select the jobs to list.
type jobFlags struct {
	text, host, sort              string
	jobs, health, state, outcomes []string
	labels                        []string
}

func (f *jobFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.text, "text", "", "only jobs whose name or description contains this `TEXT`")
	cmd.Flags().StringSliceVar(&f.jobs, "job", nil, "only jobs whose names match one of these `PATTERNS`")
	addLabelFlag(cmd, &f.labels)
	cmd.Flags().StringSliceVar(&f.health, "health", nil, "only jobs of this `HEALTH`: error, failing, late, paused, ok")
	cmd.Flags().StringSliceVar(&f.state, "state", nil, "only jobs in these `STATES`: running, paused (or disabled, its name in the API), stopped, removed, …")
	cmd.Flags().StringSliceVar(&f.outcomes, "outcome", nil, "only jobs whose last fire has one of these `OUTCOMES`: OK, FAIL, TIMEOUT, TRAP, …")
	cmd.Flags().StringVar(&f.host, "host", "", hostHelp)
	cmd.Flags().StringVar(&f.sort, "sort", "name", "sort by this `ORDER`: name, next, last, health or duration; -next reverses it")
	_ = cmd.RegisterFlagCompletionFunc("health", oneOf(texts(cluster.Healths())...))
	_ = cmd.RegisterFlagCompletionFunc("state", oneOf(stateWords()...))
	_ = cmd.RegisterFlagCompletionFunc("outcome", oneOf(texts(history.Outcomes())...))
	_ = cmd.RegisterFlagCompletionFunc("sort", oneOf("name", "next", "last", "health", "duration"))
}

// ofHosts rejects the flags for a list from the registry, which has all jobs by name.
func (*jobFlags) ofHosts(cmd *cobra.Command) error {
	for _, name := range []string{"text", "job", "label", "health", "state", "outcome", "host", "sort"} {
		if cmd.Flags().Changed(name) {
			return command.Usagef("--%s needs a host; the registry's jobs are all listed, by name", name)
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
		`Let a paused job run again on all its servers, with --server on one of them, or
with --item only one of its items. --server without a job, or with --all, resumes
all jobs on that server. An item that was paused with --item stays paused until it
is resumed with --item; the output names such items.`, true)
}

func disableCommand(p *command.Program) *cobra.Command {
	return switchCommand(p, "pause", "disable", "Keep a job, a server or an item from running",
		`Keep a job from running on all servers, with --server on one of them (the others
take over its items), or with --item only one of its items. Items that run go on to
their end. --now ends them as 'wasmjob job kill' does, and the command then has the
exit codes of 'wasmjob job kill'. --server without a job, or with --all, pauses all
jobs on that server. A pause lasts until the same job, server or item is resumed, or
with --until ends at that time by the registry's clock. With a durable registry a
pause survives restarts of the hosts.`, false)
}

// switching is a pause or resume with its flags.
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
		return command.Usagef("--item and --all cannot be combined")
	case byItem && w.server != "":
		return command.Usagef("--item and --server cannot be combined")
	case byItem && w.item < 0:
		return command.Usagef("--item: %d is not a number from 0", w.item)
	case !w.now && w.ending.given(cmd):
		return command.Usagef("--grace, --wait and --json need --now")
	}
	if w.until == "" {
		return nil
	}
	at, err := times.Instant(w.until, time.Now(), times.Ahead)
	if err != nil {
		return command.Usagef("--until: %v", err)
	}
	if !at.After(time.Now()) {
		return command.Usagef("--until: found %s, expected a time in the future", at.Format(time.RFC3339))
	}
	w.untilAt = at
	return nil
}

// perform switches a job, or all jobs if job is empty, and returns what it did. For one job it first reads what is
// enabled. It ignores an error of that read, because the change fails with the same error or the cause has passed.
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
		cmd.Flags().BoolVar(&w.now, "now", false, "also end the items that run")
		cmd.Flags().StringVar(&w.until, "until", "", "end the pause at this `TIME`: 2h or 7d from now, 15:04, \"2026-03-28 09:00\", RFC 3339")
		w.ending.add(cmd)
	}
	addItemFlag(cmd, &w.item)
	cmd.Flags().StringVar(&w.server, "server", "", "only the server with this `IP`")
	cmd.Flags().BoolVar(&w.all, "all", false, "all jobs on all servers of the namespace")
	t = p.AddChange(cmd)
	cmd.ValidArgsFunction = p.JobNames(t)
	return cmd
}

// addItemFlag adds the flag that names one item; without it that is -1.
func addItemFlag(cmd *cobra.Command, item *int) {
	cmd.Flags().IntVar(item, "item", -1, "only this item, `N` from 0")
}

// shutdownCommand returns the command that takes instances out of a job. With ofHosts it is the command of the group
// host, for all jobs.
func shutdownCommand(p *command.Program, ofHosts bool) *cobra.Command {
	server, instance := "", ""
	cmd := &cobra.Command{
		Use:        "drain JOB [flags]",
		Aliases:    []string{"shutdown"},
		SuggestFor: []string{"stop"},
		Short:      "Stop instances of a job until they are started again",
		Long: `Take instances out of a job: all of them, those of one server, or one. The instances
finish their runs within the host's drain timeout and leave the job; other instances take
over their items. The host's process goes on. The command does not wait for this:
'wasmjob host list' and 'wasmjob status JOB' show what still runs.

The drain lasts until 'wasmjob job restore JOB' or 'wasmjob job start JOB'. It also holds
for instances that start later: of the whole job, with --server on that server, with
--instance in that process. 'wasmjob host drain' takes a host out of all its jobs.

The command refuses to drain a Java instance that runs items of a job with failover:
without its node in the registry the instance looks crashed, and other hosts would run
its items again. Pause its server, and wait until it runs nothing.`,
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
		cmd.Long = `Take the instances on a server, or one instance, out of all their jobs. The instances
finish their runs within the host's drain timeout and leave the jobs; other hosts take
over their items. The host's process goes on. The command does not wait for this:
'wasmjob host list' shows what still runs. The drain lasts until 'wasmjob host start', and
also holds for instances that start later on that server. 'wasmjob job drain' drains one
job.`
		cmd.Example = "  wasmjob host drain --server 10.0.0.7\n  wasmjob host drain --server 10.0.0.7 --zk zk1:2181 --namespace prod"
		cmd.Args = noJob(&server, &instance)
	}
	cmd.Flags().StringVar(&server, "server", "", "drain the instances on the server with this `IP`")
	cmd.Flags().StringVar(&instance, "instance", "", "drain the instance with this `ID`; 'wasmjob status JOB' shows the ids")
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
			then = "; once they have stopped, " + words.Command("status", job) + " no longer shows them"
		case r.Client != nil:
			then = "; wasmjob host list shows when they have stopped"
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

// startCommand returns the command that lets hosts join jobs again. With ofHosts it is the command of the group host, for
// all jobs.
func startCommand(p *command.Program, ofHosts bool) *cobra.Command {
	var t *command.Target
	server, instance := "", ""
	cmd := &cobra.Command{
		Use:   "start JOB [flags]",
		Short: "Start a drained job again, on one host",
		Long: `Have the host that is asked join a job again that 'wasmjob job drain' stopped there. The
start holds for that host, and for hosts that start at its address later: run the command
on each host that is to run the job. A removed job comes back on all hosts that have its
definition, as with 'wasmjob job restore'. If the job runs here, nothing changes.
'wasmjob host start' starts all jobs of a host again.`,
		Example: `  wasmjob job start cities
  wasmjob job start cities --admin 10.0.0.7:9770 --token-file token`,
		Args: func(cmd *cobra.Command, args []string) error {
			if server+instance == "" {
				return command.Exactly("the job's name")(cmd, args)
			}
			if len(args) > 0 {
				return command.Usagef("--server and --instance start all jobs that were drained there: leave the job out, or run the command on that host")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			direct, err := t.Direct()
			if err != nil {
				return err
			}
			if direct {
				return command.Usagef("only a host can start a job again: leave --zk, --config and --namespace out")
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
		cmd.Use, cmd.Short = "start [flags]", "Start all jobs of drained hosts again"
		cmd.Long = `Have the instances on a server, or one instance, join all jobs again that were drained
there. The command can ask any host of the cluster.`
		cmd.Example = "  wasmjob host start --server 10.0.0.7"
		cmd.Args = noJob(&server, &instance)
	}
	t = p.AddChange(cmd)
	registry := pflag.NewFlagSet("", pflag.ContinueOnError)
	p.RegistryFlags(registry)
	registry.VisitAll(func(f *pflag.Flag) { cmd.Flags().Lookup(f.Name).Hidden = true }) // only to say why they are refused
	cmd.Flags().StringVar(&server, "server", "", "start all jobs that were drained on the server with this `IP`")
	cmd.Flags().StringVar(&instance, "instance", "", "start all jobs that were drained on the instance with this `ID`, which 'wasmjob host list -o json' shows as report.status.instance")
	cmd.ValidArgsFunction = p.JobNames(t)
	return cmd
}

// startInstances lets hosts join all jobs again that were shut down there.
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
		Long: `Have all hosts that still have the job's definition file join the job again after 'wasmjob
job remove' or 'wasmjob job drain'. The job keeps its records and offsets, unless it was
removed with --purge. A removed job comes back with the settings of its definition: edits
from before the removal are lost.`,
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
			done += " with the settings of its definition file; edits from before the removal are lost"
		}
		err = p.Done(nil, done)
		if len(restored.Failed) > 0 {
			err = fmt.Errorf("not restored on %s", strings.Join(restored.Failed, "; "))
		}
		return err
	})
}

// isRemoved reports whether a job is removed on a host; false if unknown.
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
		Short:      "Remove a job from the registry",
		Long: `Remove a job from the registry. Hosts that have the job stop it; its runs end within their
drain timeout. No host brings the job back, not even one that starts later, until
'wasmjob job restore' does or a host gets a new version of its definition. The job's
offsets and records stay for a later job of that name, unless --purge is given; its runs
stay in the histories. Edited settings are lost: the job comes back with the settings of
its definition file.`,
		Example: "  wasmjob job remove cities\n  wasmjob job remove cities --purge",
		Args:    command.Exactly("the job's name"),
	}
	cmd.Flags().BoolVar(&purge, "purge", false, "also delete its offsets and records")
	return p.OnChange(cmd, func(ctx context.Context, r *command.Reached, args []string) error {
		what := "removed " + args[0]
		if purge {
			what += " with its records and offsets; its runs stay in the histories"
		}
		defined := stillDefined(ctx, r, args[0])
		return p.Done(r.Similar(ctx, args[0], r.Remove(ctx, args[0], purge)), what+defined)
	})
}

// stillDefined returns which definition files define a job that is about to be removed; empty if unknown.
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
	return "; still defined by " + strings.Join(files, ", ") + ": if the file changes or its host restarts, the job comes back, with the settings of the file and without edits"
}
