package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host"
	"github.com/wasmjob/wasmjob/host/admin"
	"github.com/wasmjob/wasmjob/host/console"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/service"
	"github.com/wasmjob/wasmjob/host/show"
	"github.com/wasmjob/wasmjob/host/words"
)

// watchInterval is how often status --watch asks.
const watchInterval = time.Second

// operator is what commands do to jobs: a running host's admin address, or the
// registry itself.
type operator interface {
	Jobs(ctx context.Context) ([]admin.Brief, error)
	Shards(ctx context.Context, job string) (*admin.Shards, error)
	Trigger(ctx context.Context, job string) error
	Enable(ctx context.Context, job string) error
	Disable(ctx context.Context, job string) error
	EnableServer(ctx context.Context, job, server string) error
	DisableServer(ctx context.Context, job, server string) error
	EnableItem(ctx context.Context, job string, item int) error
	DisableItem(ctx context.Context, job string, item int) error
	Shutdown(ctx context.Context, job, server, instance string) error
	Remove(ctx context.Context, job string, purge bool) error
	Kill(ctx context.Context, job string, o admin.KillOptions, progress func(*admin.Kills)) (*admin.Kills, error)
	Release(ctx context.Context, job string, item int) (tree.Items, error)
	Kept(ctx context.Context, job string, item int) ([]admin.Kept, error)
	ChangeKept(ctx context.Context, job string, item int, change admin.KeptChange) (*admin.Kept, error)
	Config(ctx context.Context, job string) (*admin.JobConfig, error)
	EditConfig(ctx context.Context, job string, e admin.Edit) (*admin.Edited, error)
}

// target are the flags that say who is meant.
type target struct {
	address, tokenFile, ca string
	reason                 string // of a change
	flags                  *pflag.FlagSet
}

// addHost adds the flags that name a host.
func (p *program) addHost(cmd *cobra.Command) *target {
	t := &target{flags: cmd.Flags()}
	cmd.Flags().StringVar(&t.address, "admin", p.getenv(envPrefix+"ADMIN"), "`ADDRESS` of the host (default: the one that runs here)")
	cmd.Flags().StringVar(&t.tokenFile, "token-file", p.getenv(envPrefix+"ADMIN_TOKEN_FILE"), "`FILE` with a token (default: the host's own, from the note that it left)")
	cmd.Flags().StringVar(&t.ca, "ca", "", "`FILE` with the authorities of the host's certificate, or system; the address has TLS then (default: as the host's note says)")
	return t
}

// addTarget adds the flags that name a host or a registry.
func (p *program) addTarget(cmd *cobra.Command) *target {
	t := p.addHost(cmd)
	addRegistryFlags(cmd.Flags())
	for _, name := range []string{configFlag, "registry", "zk"} {
		cmd.Flags().Lookup(name).Usage += "; asks ZooKeeper itself, no host needs to run"
	}
	return t
}

// addChange adds the flags of a command that changes something.
func (p *program) addChange(cmd *cobra.Command) *target {
	t := p.addTarget(cmd)
	cmd.Flags().StringVar(&t.reason, "reason", "", "`TEXT` that says why, for 'wasmjob audit'")
	return t
}

// direct reports whether the registry itself is meant: --registry was given, or
// another flag of the registry.
func (t *target) direct() (bool, error) {
	given := ""
	for _, name := range []string{"zk", "registry", configFlag, "namespace"} {
		if t.flags.Changed(name) {
			given = name
			break
		}
	}
	if given == "" {
		return false, nil
	}
	if t.reason != "" {
		return false, usagef("--reason is recorded by hosts, and --%s asks the registry itself; leave one of them out", given)
	}
	for _, name := range []string{"admin", "token-file", "ca"} {
		if t.flags.Changed(name) {
			return false, usagef("--%s asks a host, --%s the registry itself; leave one of them out", name, given)
		}
	}
	return true, nil
}

// reached is the host or the registry that a command talks to.
type reached struct {
	operator
	// client is the host; nil for the registry itself.
	client *admin.Client
	// registry is that; nil for a host.
	registry *opened
}

// close ends what reach began; the command's own error counts first.
func (r *reached) close(err error) error {
	if r.registry == nil {
		return err
	}
	return errors.Join(err, r.registry.close())
}

func (p *program) find(ctx context.Context, t *target) (*admin.Client, error) {
	if t.address == off {
		return nil, usagef("--admin off is a setting of the host, and nothing to ask")
	}
	c, err := admin.Find(ctx, admin.Where{Address: t.address, TokenFile: t.tokenFile, CA: t.ca, Dirs: admin.NoteDirs(p.getenv)})
	if errors.Is(err, admin.ErrNoHost) {
		err = fmt.Errorf("%w\nStart one with 'wasmjob run', say where it is with --admin ADDRESS, or ask ZooKeeper itself with --zk SERVERS", err)
	}
	return c, err
}

// reach finds the host, or connects to the registry.
func (p *program) reach(ctx context.Context, t *target) (*reached, error) {
	direct, err := t.direct()
	if err != nil {
		return nil, err
	}
	if direct {
		o, err := openNamespace(ctx, p, t.flags)
		if err != nil {
			return nil, err
		}
		return &reached{operator: o.jobs, registry: o}, nil
	}
	c, err := p.find(ctx, t)
	if err != nil {
		return nil, err
	}
	c = c.WithReason(t.reason)
	return &reached{operator: c, client: c}, nil
}

// with does something with the target that the flags name.
func (p *program) with(cmd *cobra.Command, t *target, do func(ctx context.Context, r *reached) error) error {
	r, err := p.reach(cmd.Context(), t)
	if err != nil {
		return err
	}
	return r.close(do(cmd.Context(), r))
}

// onTarget finishes a command about a job, or about all: it adds the flags that say
// who is meant, and completes the job's name.
func (p *program) onTarget(cmd *cobra.Command, run func(ctx context.Context, r *reached, args []string) error) *cobra.Command {
	return p.on(p.addTarget(cmd), cmd, run)
}

// onChange is onTarget for a command that changes something.
func (p *program) onChange(cmd *cobra.Command, run func(ctx context.Context, r *reached, args []string) error) *cobra.Command {
	return p.on(p.addChange(cmd), cmd, run)
}

func (p *program) on(t *target, cmd *cobra.Command, run func(ctx context.Context, r *reached, args []string) error) *cobra.Command {
	cmd.ValidArgsFunction = p.jobNames(t)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return p.with(cmd, t, func(ctx context.Context, r *reached) error { return run(ctx, r, args) })
	}
	return cmd
}

// The forms in which commands show something.
const (
	outputTable = "table"
	outputJSON  = "json"
	outputYAML  = "yaml"
)

// shown are the flags of a command that shows something: in which form, and whether
// again and again.
type shown struct {
	output string
	watch  bool
}

func (s *shown) add(cmd *cobra.Command, what string) {
	s.addOutput(cmd, what)
	cmd.Flags().BoolVar(&s.watch, "watch", false, "show "+what+" again each second, until Ctrl-C")
}

// addOutput adds the form alone.
func (s *shown) addOutput(cmd *cobra.Command, what string) {
	s.output = outputTable
	cmd.Flags().StringVarP(&s.output, "output", "o", outputTable, "show "+what+" as table, json or yaml")
	cmd.Flags().BoolFunc("json", "the same as --output json", func(string) error { s.output = outputJSON; return nil })
	_ = cmd.RegisterFlagCompletionFunc("output", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{outputTable, outputJSON, outputYAML}, cobra.ShellCompDirectiveNoFileComp
	})
}

// show shows what look returns, as a value for JSON and YAML and as text.
func (p *program) show(ctx context.Context, s *shown, look func() (v any, text string, err error)) error {
	once := func() error {
		v, text, err := look()
		if err != nil {
			return err
		}
		switch s.output {
		case outputJSON:
			return p.printJSON(v)
		case outputYAML:
			return p.printYAML(v)
		case outputTable, "":
		default:
			return usagef("--output: found %q, expected table, json or yaml", words.Clip(s.output))
		}
		if s.watch && p.outTTY {
			text = "\x1b[H\x1b[2J" + text
		}
		_, err = p.out.Write([]byte(text))
		return err
	}
	if !s.watch {
		return once()
	}
	return p.repeat(ctx, once)
}

// printYAML writes a value as YAML, with the names that it has in JSON.
func (p *program) printYAML(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("show it as YAML: %w", err)
	}
	var node yaml.Node
	if err := yaml.Unmarshal(b, &node); err != nil { // JSON is YAML
		return fmt.Errorf("show it as YAML: %w", err)
	}
	block(&node)
	if b, err = yaml.Marshal(&node); err != nil {
		return fmt.Errorf("show it as YAML: %w", err)
	}
	_, err = p.out.Write(b)
	return err
}

// block has a document that was read from JSON written as YAML is by people.
func block(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		block(c)
	}
}

// jobNames completes the names of jobs.
func (p *program) jobNames(t *target) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		err := p.with(cmd, t, func(ctx context.Context, r *reached) (err error) {
			names, err = r.names(ctx)
			return err
		})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// names are those of the jobs that there are, or will be when their modules
// are compiled.
func (r *reached) names(ctx context.Context) ([]string, error) {
	var names []string
	list, err := r.Jobs(ctx)
	for _, b := range list {
		names = append(names, b.Name)
	}
	if r.client == nil {
		return names, err
	}
	report, err := r.client.Status(ctx)
	if err != nil {
		return nil, err
	}
	for _, j := range report.Status.Jobs {
		names = append(names, j.Name)
	}
	for _, c := range report.Compiling {
		names = append(names, c.Jobs...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func statusCommand(p *program) *cobra.Command {
	var how shown
	all := false
	cmd := &cobra.Command{
		Use:   "status [JOB] [flags]",
		Short: "Show what the host is doing, or who runs a job",
		Long: `Show the jobs of the running host, their items, their modules, and the files
that it refused with the reasons. Of the items those are shown that run, that
did not end well, that are disabled or held back, or that misfired;
--items shows all.

With a job's name, show the instances of the job on all hosts: their state, what
they own and run, and which module, as the registry has it; and of the host that is asked
what the job is granted, who signed its module, and what its last runs did outside.
With --zk, ask the registry itself.`,
		Example: `  wasmjob status
  wasmjob status cities
  wasmjob status --watch
  wasmjob status --zk zk1:2181 --namespace prod
  wasmjob status --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return exactly("the job's name")(cmd, args)
		},
	}
	how.add(cmd, "it")
	cmd.Flags().BoolVar(&all, "items", false, "show all items")
	return p.onTarget(cmd, func(ctx context.Context, r *reached, args []string) error {
		return p.show(ctx, &how, func() (any, string, error) { return statusOf(ctx, p, r, args, all) })
	})
}

// statusOf is what status shows, as a value for JSON and as text.
func statusOf(ctx context.Context, p *program, r *reached, args []string, all bool) (v any, text string, err error) {
	switch {
	case len(args) > 0:
		s, err := r.Shards(ctx, args[0])
		if err != nil {
			return nil, "", r.similar(ctx, args[0], err)
		}
		here, err := r.here(ctx, args[0])
		if err != nil {
			return nil, "", err
		}
		text := show.Instances(p.tables(), s, time.Now())
		if here == nil {
			return s, text, nil
		}
		if more := show.Here(p.tables(), here); more != "" {
			text += "\n" + more
		}
		return jobReport{s, here}, text, nil
	case r.client != nil:
		report, err := r.client.Status(ctx)
		if err != nil {
			return nil, "", err
		}
		return report, show.Status(p.tables(), report, all), nil
	}
	list, err := r.Jobs(ctx)
	if err != nil {
		return nil, "", err
	}
	return list, r.registry.heading(p.tables()) + "\n" + show.Namespace(p.tables(), list), nil
}

// jobReport is what status shows of one job as JSON: what the registry has, and what the
// host has that was asked.
type jobReport struct {
	*admin.Shards
	Here *host.JobStatus `json:"here,omitempty"`
}

// here is the job on the host that is asked; nil if none is, or it does not have the job.
func (r *reached) here(ctx context.Context, job string) (*host.JobStatus, error) {
	if r.client == nil {
		return nil, nil
	}
	report, err := r.client.Status(ctx)
	if err != nil {
		return nil, err
	}
	for _, j := range report.Status.Jobs {
		if j.Name == job {
			return &j, nil
		}
	}
	return nil, nil
}

// repeat shows until a signal comes or showing fails.
func (p *program) repeat(ctx context.Context, show func() error) error {
	signals, end := p.notify()
	defer end()
	ticks := time.NewTicker(watchInterval)
	defer ticks.Stop()
	for {
		if err := show(); err != nil {
			return err
		}
		select {
		case <-signals:
			return nil
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}

// tables is how tables look on stdout.
func (p *program) tables() console.Style {
	s := console.Style{Colour: p.colour(p.outTTY)}
	if p.outTTY && p.width != nil {
		s.Width = p.width()
	}
	return s
}

func jobsCommand(p *program) *cobra.Command {
	var how shown
	var f jobFlags
	cmd := &cobra.Command{
		Use:   "jobs [flags]",
		Short: "List the jobs of all hosts, or of the registry",
		Long: `List the jobs of all hosts of the cluster: what they do, whether they are well, when
they fire next, and how they ended last. With --zk, list those of the registry.`,
		Example: "  wasmjob jobs\n  wasmjob jobs --health failing,late\n  wasmjob jobs --job 'etl-*' --sort -duration\n  wasmjob jobs --zk zk1:2181 --namespace prod",
		Args:    exactly(),
	}
	f.add(cmd)
	how.add(cmd, "them")
	p.onTarget(cmd, func(ctx context.Context, r *reached, _ []string) error {
		return p.show(ctx, &how, func() (any, string, error) {
			if r.client == nil {
				list, err := r.Jobs(ctx)
				return list, show.Namespace(p.tables(), list), err
			}
			all, err := f.list(ctx, r.client)
			if err != nil {
				return nil, "", err
			}
			return all.Records, show.ClusterJobs(p.tables(), all.Records, time.Now()) + show.Silent(p.tables(), all.Silent), nil
		})
	})
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

func triggerCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trigger JOB [flags]",
		Short: "Run a job now",
		Long: `Run all items of a job now, on all its hosts, whatever its schedule says. While
the job runs one trigger is kept, and served when it ends.`,
		Example: "  wasmjob trigger cities",
		Args:    exactly("the job's name"),
	}
	return p.onChange(cmd, func(ctx context.Context, r *reached, args []string) error {
		return p.done(r.similar(ctx, args[0], r.Trigger(ctx, args[0])), "triggered "+args[0])
	})
}

// jobFlags say which jobs are listed.
type jobFlags struct {
	text, sort   string
	jobs, health []string
}

func (f *jobFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.text, "text", "", "only those whose name or description contains this `TEXT`")
	cmd.Flags().StringSliceVar(&f.jobs, "job", nil, "only those whose names match one of these `PATTERNS`")
	cmd.Flags().StringSliceVar(&f.health, "health", nil, "only `error,failing,late,paused,ok`")
	cmd.Flags().StringVar(&f.sort, "sort", "name", "by name, next, last, health or duration; -next is the reverse")
}

// list asks for all pages.
func (f *jobFlags) list(ctx context.Context, c *admin.Client) (*service.Jobs, error) {
	q := url.Values{"limit": {strconv.Itoa(history.MaxLimit)}, "job": f.jobs, "health": f.health}
	for name, value := range map[string]string{"q": f.text, "sort": f.sort} {
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

// similar adds the nearest name to the error about a job that there is not.
func (r *reached) similar(ctx context.Context, job string, err error) error {
	var no *admin.ServerError
	if !errors.Is(err, host.ErrNoJob) && !(errors.As(err, &no) && no.Code == http.StatusNotFound) {
		return err
	}
	names, other := r.names(ctx)
	if other != nil || slices.Contains(names, job) {
		return err // which says enough
	}
	return fmt.Errorf("%w%s", err, words.Suggest(job, names))
}

// done reports an operation.
func (p *program) done(err error, what string) error {
	if err == nil {
		_, err = fmt.Fprintln(p.out, what)
	}
	return err
}

func enableCommand(p *program) *cobra.Command {
	return switchCommand(p, "enable", "enabled", "Let a job, a server or an item run again",
		`Let a job that was disabled run again, on all its servers; with --server on one
of them, with --item one of its items. --server without a job, or with --all, is
all jobs of that server.`, true)
}

func disableCommand(p *program) *cobra.Command {
	return switchCommand(p, "disable", "disabled", "Keep a job, a server or an item from running",
		`Keep a job from running on any server; with --server on one of them, whose items
go to the others; with --item one of its items. What runs goes on to its end, or
with --now is ended as by 'wasmjob kill', whose exit codes it has then.
--server without a job, or with --all, is all jobs of that server. It lasts until
the same is enabled again, and with a durable registry it outlives the hosts.`, false)
}

// switching is an enable or a disable: what its flags ask for.
type switching struct {
	enable   bool
	done     string // as the message says it
	server   string
	item     int // -1: none
	all, now bool
	ending   killFlags
}

func (w *switching) check(cmd *cobra.Command) error {
	byItem := cmd.Flags().Changed("item")
	switch {
	case byItem && w.all:
		return usagef("--item and --all do not go together")
	case byItem && w.server != "":
		return usagef("--item and --server do not go together")
	case byItem && w.item < 0:
		return usagef("--item: %d is not a number from 0", w.item)
	case !w.now && w.ending.given(cmd):
		return usagef("--grace, --wait and --json go with --now")
	}
	return nil
}

// perform switches a job, or all if it is empty, and says what it did.
func (w *switching) perform(ctx context.Context, o operator, job string) (what string, err error) {
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

func switchCommand(p *program, name, done, short, long string, enable bool) *cobra.Command {
	var t *target
	w := switching{enable: enable, done: done}
	example := "  wasmjob NAME cities\n  wasmjob NAME cities --server 10.0.0.7\n  wasmjob NAME cities --item 2\n  wasmjob NAME --server 10.0.0.7\n  wasmjob NAME --all"
	if !enable {
		example += "\n  wasmjob NAME cities --now --grace 30s"
	}
	cmd := &cobra.Command{
		Use:     name + " [JOB] [flags]",
		Short:   short,
		Long:    long,
		Example: strings.ReplaceAll(example, "NAME", name),
		Args: func(cmd *cobra.Command, args []string) error {
			if w.all || (len(args) == 0 && w.server != "") {
				return exactly()(cmd, args)
			}
			return exactly("the job's name (or --all, or --server IP)")(cmd, args)
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
			return p.with(cmd, t, func(ctx context.Context, r *reached) error {
				what, err := w.perform(ctx, r, job)
				err = r.similar(ctx, job, err)
				if !w.now || !w.ending.asJSON {
					err = p.done(err, what)
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
		w.ending.add(cmd)
	}
	addItemFlag(cmd, &w.item)
	cmd.Flags().StringVar(&w.server, "server", "", "only the server with this `IP`")
	cmd.Flags().BoolVar(&w.all, "all", false, "all jobs of the host, or with --zk of the namespace")
	t = p.addChange(cmd)
	cmd.ValidArgsFunction = p.jobNames(t)
	return cmd
}

// addItemFlag adds the flag that names one item; without it that is -1.
func addItemFlag(cmd *cobra.Command, item *int) {
	cmd.Flags().IntVar(item, "item", -1, "only this item, `N` from 0")
	cmd.Flags().Lookup("item").DefValue = "0" // which the help leaves out
}

func shutdownCommand(p *program) *cobra.Command {
	server, instance := "", ""
	cmd := &cobra.Command{
		Use:   "shutdown [JOB] [flags]",
		Short: "Stop instances of a job until they are started again",
		Long: `Take instances out of a job, as ElasticJob's console does: all of the job, those
of a server, or one. They finish what they run within the host's drain timeout and
leave the job; their items go to the others. The process of the host goes on. An instance comes back when
'wasmjob start' is given on its host, the host is restarted, or the job's
definition file there changes. Without a job, --server or --instance is meant in
all jobs.

A Java instance that runs items of a job with failover is refused: without its node
in the registry it cannot be told from a crashed one, and its items would run again
elsewhere. Disable its server and wait until it runs nothing.`,
		Example: `  wasmjob shutdown cities --instance 10.0.0.7@-@4711-1f2e3d4c
  wasmjob shutdown cities --server 10.0.0.7
  wasmjob shutdown --server 10.0.0.7 --zk zk1:2181 --namespace prod`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && server+instance != "" {
				return nil
			}
			return exactly("the job's name (or --server IP, or --instance ID)")(cmd, args)
		},
	}
	cmd.Flags().StringVar(&server, "server", "", "the instances on the server with this `IP`")
	cmd.Flags().StringVar(&instance, "instance", "", "the instance with this `ID`; 'wasmjob status JOB' shows them")
	return p.onChange(cmd, func(ctx context.Context, r *reached, args []string) error {
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
		return p.done(r.similar(ctx, job, r.Shutdown(ctx, job, server, instance)), "asked "+what+" of "+cmp.Or(job, "all jobs")+" to stop")
	})
}

func startCommand(p *program) *cobra.Command {
	var t *target
	cmd := &cobra.Command{
		Use:   "start JOB [flags]",
		Short: "Bring a job back that was shut down or removed",
		Long: `Have the host join a job again that 'wasmjob shutdown' stopped there, or that was
removed from the registry while its definition file is still there. It is for one
host: give it on each host that is to run the job. A job that runs is left alone.`,
		Example: "  wasmjob start cities\n  wasmjob start cities --admin 10.0.0.7:9770 --token-file token",
		Args:    exactly("the job's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			direct, err := t.direct()
			if err != nil {
				return err
			}
			if direct {
				return usagef("only a host can start a job again, not the registry: leave --zk, --config and --namespace out")
			}
			return p.with(cmd, t, func(ctx context.Context, r *reached) error {
				what := startedText(ctx, r.client, args[0])
				return p.done(r.similar(ctx, args[0], r.client.Start(ctx, args[0])), what)
			})
		},
	}
	t = p.addChange(cmd)
	cmd.ValidArgsFunction = p.jobNames(t)
	return cmd
}

func restoreCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore JOB [flags]",
		Short: "Bring a job back on all hosts that was removed or shut down",
		Long: `Have all hosts of the cluster join a job again that 'wasmjob remove' or 'wasmjob
shutdown' took from them, and whose definition file is still there. It begins with
its records and offsets, unless it was removed with --purge.`,
		Example: "  wasmjob restore cities",
		Args:    exactly("the job's name"),
	}
	t := p.addHost(cmd)
	cmd.Flags().StringVar(&t.reason, "reason", "", "`TEXT` that says why, for 'wasmjob audit'")
	return p.on(t, cmd, func(ctx context.Context, r *reached, args []string) error {
		var restored service.Restored
		err := r.client.Send(ctx, http.MethodPost, "/v1/jobs/"+url.PathEscape(args[0])+"/restore", nil, &restored)
		if err != nil {
			return r.similar(ctx, args[0], err)
		}
		err = p.done(nil, "restored "+args[0]+" on "+strings.Join(restored.Hosts, ", "))
		if len(restored.Failed) > 0 {
			err = fmt.Errorf("not restored on %s", strings.Join(restored.Failed, "; "))
		}
		return err
	})
}

// startedText is what start reports of a job, from its state on the host before.
func startedText(ctx context.Context, c *admin.Client, job string) string {
	started := "started " + job
	report, err := c.Status(ctx)
	if err != nil {
		return started
	}
	n := slices.IndexFunc(report.Status.Jobs, func(j host.JobStatus) bool { return j.Name == job })
	if n < 0 {
		return started
	}
	switch report.Status.Jobs[n].State {
	case host.JobReady, host.JobRunning, host.JobSharding:
		return job + " runs here already"
	case host.JobDisabled:
		return fmt.Sprintf("%s is disabled: wasmjob enable %s", job, job)
	}
	return started
}

func removeCommand(p *program) *cobra.Command {
	purge := false
	cmd := &cobra.Command{
		Use:   "remove JOB [flags]",
		Short: "Take a job out of the registry",
		Long: `Take a job out of the registry. Hosts that run it stop it, what runs ends within
their drain timeout, and they do not bring it back until 'wasmjob start' is given
on them, they are restarted, or its definition file changes. Its offsets and records stay, for a job of that name that
comes later, unless --purge is given.`,
		Example: "  wasmjob remove cities\n  wasmjob remove cities --purge",
		Args:    exactly("the job's name"),
	}
	cmd.Flags().BoolVar(&purge, "purge", false, "forget its offsets and records too")
	return p.onChange(cmd, func(ctx context.Context, r *reached, args []string) error {
		what := "removed " + args[0]
		if purge {
			what += " and all that was known of it"
		}
		return p.done(r.similar(ctx, args[0], r.Remove(ctx, args[0], purge)), what)
	})
}
