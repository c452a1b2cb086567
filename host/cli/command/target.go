package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/client"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// watchInterval is how often status --watch asks.
const watchInterval = time.Second

// Operator is what commands do to jobs: a running host's admin address, or the
// registry itself.
type Operator interface {
	Jobs(ctx context.Context) ([]admin.Brief, error)
	Shards(ctx context.Context, job string) (*admin.Shards, error)
	TriggerWith(ctx context.Context, job string, args tree.TriggerArgs) (admin.Triggered, error)
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

// Target are the flags that say who is meant.
type Target struct {
	address, tokenFile, ca string
	Reason                 string // of a change
	One                    bool   // only one host is meant, no other of its cluster
	Writes                 bool   // the command changes something
	flags                  *pflag.FlagSet
	// context is the name of one that was given; settled: what it has is taken over. from says
	// which context the address comes from; empty: from none.
	context string
	settled bool
	from    string
	getenv  func(string) string
}

// AddHost adds the flags that name a host.
func (p *Program) AddHost(cmd *cobra.Command) *Target {
	t := &Target{flags: cmd.Flags(), getenv: p.Getenv}
	cmd.Flags().StringVar(&t.address, "admin", p.Getenv(EnvPrefix+"ADMIN"), "`ADDRESS` of the host (default: the one that runs here, or one of several that are of one cluster)")
	cmd.Flags().StringVar(&t.tokenFile, "token-file", p.Getenv(EnvPrefix+"ADMIN_TOKEN_FILE"), "`FILE` with a token (default: the host's own, from the note that it left)")
	cmd.Flags().StringVar(&t.ca, "ca", "", "`FILE` with the authorities of the host's certificate, or system; the address has TLS then (default: as the host's note says)")
	cmd.Flags().StringVar(&t.context, "context", "", "`NAME` of a context that says where the cluster is (default: the one in use, see 'wasmjob context')")
	Connects(cmd.Flags(), "admin", "token-file", "ca", "context")
	_ = cmd.RegisterFlagCompletionFunc("context", p.ContextNames)
	return t
}

// AddTarget adds the flags that name a host or a registry.
func (p *Program) AddTarget(cmd *cobra.Command) *Target {
	t := p.AddHost(cmd)
	p.RegistryFlags(cmd.Flags())
	for _, name := range []string{ConfigFlag, "registry", "zk"} {
		cmd.Flags().Lookup(name).Usage += "; asks ZooKeeper itself, no host needs to run"
	}
	return t
}

// AddChange adds the flags of a command that changes something.
func (p *Program) AddChange(cmd *cobra.Command) *Target {
	t := p.AddTarget(cmd)
	t.Writes = true
	cmd.Flags().StringVar(&t.Reason, "reason", "", "`TEXT` that says why, for 'wasmjob access audit'")
	return t
}

// Direct reports whether the registry itself is meant: --registry was given, or
// another flag of the registry.
func (t *Target) Direct() (bool, error) {
	if err := t.settle(); err != nil {
		return false, err
	}
	given := t.registryFlag()
	if given == "" {
		return false, nil
	}
	for _, name := range []string{"admin", "token-file", "ca"} {
		if t.flags.Changed(name) {
			return false, Usagef("--%s asks a host, --%s the registry itself; leave one of them out", name, given)
		}
	}
	return true, nil
}

// registryFlag is a flag of the registry that was given, empty if there is none.
func (t *Target) registryFlag() string {
	for _, name := range []string{"zk", "registry", ConfigFlag, "namespace"} {
		if t.flags.Changed(name) {
			return name
		}
	}
	return ""
}

// Reached is the host or the registry that a command talks to.
type Reached struct {
	Operator
	// Client is the host; nil for the registry itself.
	Client *client.Client
	// Registry is that; nil for a host.
	Registry *Opened
}

// Until are the operations for what is to end by itself: what they disable is enabled at that time.
func (r *Reached) Until(at time.Time) Operator {
	switch o := r.Operator.(type) {
	case *client.Client:
		return o.Until(at)
	case *admin.Registry:
		return o.Until(at)
	}
	return r.Operator
}

// close ends what reach began; the command's own error counts first.
func (r *Reached) close(err error) error {
	if r.Registry == nil {
		return err
	}
	return errors.Join(err, r.Registry.Close())
}

// Find finds the host.
func (p *Program) Find(ctx context.Context, t *Target) (*client.Client, error) {
	if err := t.settle(); err != nil {
		return nil, err
	}
	if t.address == "off" {
		return nil, Usagef("--admin off is a setting of the host, and nothing to ask")
	}
	c, err := client.Find(ctx, client.Where{Address: t.address, TokenFile: t.tokenFile, CA: t.ca, Dirs: client.NoteDirs(p.Getenv), One: t.One})
	return c, t.unreachable(err)
}

// unreachable adds to the error that no host answers where the address comes from, and what to do.
func (t *Target) unreachable(err error) error {
	if !errors.Is(err, client.ErrNoHost) {
		return err
	}
	if t.from != "" {
		err = fmt.Errorf("%s: %w", t.from, err)
	}
	return fmt.Errorf("%w\nStart one with 'wasmjob run', say where it is with --admin ADDRESS, or ask ZooKeeper itself with --zk SERVERS", err)
}

// Reach finds the host, or connects to the registry.
func (p *Program) Reach(ctx context.Context, t *Target) (*Reached, error) {
	direct, err := t.Direct()
	if err != nil {
		return nil, err
	}
	if direct {
		o, err := p.OpenNamespace(ctx, t.flags, t.Writes)
		if err != nil {
			return nil, err
		}
		return &Reached{Operator: o.Jobs.LeavingRecords(WhoAsks(), t.Reason), Registry: o}, nil
	}
	c, err := p.Find(ctx, t)
	if err != nil {
		return nil, err
	}
	c = c.ByUser(WhoAsks()).WithReason(t.Reason)
	return &Reached{Operator: c, Client: c}, nil
}

// With does something with the target that the flags name.
func (p *Program) With(cmd *cobra.Command, t *Target, do func(ctx context.Context, r *Reached) error) error {
	r, err := p.Reach(cmd.Context(), t)
	if err != nil {
		return err
	}
	err = do(cmd.Context(), r)
	if no := (*client.ServerError)(nil); errors.As(err, &no) && no.Query {
		err = Usage(err)
	}
	return r.close(t.unreachable(err))
}

// OnTarget finishes a command about a job, or about all: it adds the flags that say
// who is meant, and completes the job's name.
func (p *Program) OnTarget(cmd *cobra.Command, run func(ctx context.Context, r *Reached, args []string) error) *cobra.Command {
	return p.On(p.AddTarget(cmd), cmd, run)
}

// OnChange is OnTarget for a command that changes something.
func (p *Program) OnChange(cmd *cobra.Command, run func(ctx context.Context, r *Reached, args []string) error) *cobra.Command {
	return p.On(p.AddChange(cmd), cmd, run)
}

// On is OnTarget with flags that were added before.
func (p *Program) On(t *Target, cmd *cobra.Command, run func(ctx context.Context, r *Reached, args []string) error) *cobra.Command {
	cmd.ValidArgsFunction = p.JobNames(t)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return p.With(cmd, t, func(ctx context.Context, r *Reached) error { return run(ctx, r, args) })
	}
	return cmd
}

// The forms in which commands show something.
const (
	OutputTable = "table"
	OutputJSON  = "json"
	OutputYAML  = "yaml"
)

// Shown are the flags of a command that shows something: in which form, and whether
// again and again.
type Shown struct {
	Output string
	Watch  bool
}

func (s *Shown) Add(cmd *cobra.Command, what string) {
	s.AddOutput(cmd, what)
	cmd.Flags().BoolVar(&s.Watch, "watch", false, "show "+what+" again each second, until Ctrl-C")
}

// form is a form of output as a flag: another one than those of the command is refused before the command does anything.
type form struct {
	into  *string
	forms []string
}

func (f *form) String() string {
	if f.into == nil {
		return ""
	}
	return *f.into
}
func (f *form) Type() string { return "string" }

func (f *form) Set(text string) error {
	if !slices.Contains(f.forms, text) {
		return fmt.Errorf("found %q, expected %s", words.Clip(text), f.names())
	}
	*f.into = text
	return nil
}

// names are the forms in a sentence.
func (f *form) names() string {
	last := len(f.forms) - 1
	return strings.Join(f.forms[:last], ", ") + " or " + f.forms[last]
}

// AddOutput adds the form alone. more are forms that the command has besides those of all commands.
func (s *Shown) AddOutput(cmd *cobra.Command, what string, more ...string) {
	s.Output = OutputTable
	f := &form{&s.Output, append([]string{OutputTable, OutputJSON, OutputYAML}, more...)}
	cmd.Flags().VarP(f, "output", "o", "show "+what+" in this `FORM`: "+f.names())
	cmd.Flags().BoolFunc("json", "the same as --output json", func(string) error { s.Output = OutputJSON; return nil })
	_ = cmd.RegisterFlagCompletionFunc("output", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return f.forms, cobra.ShellCompDirectiveNoFileComp
	})
}

// Show shows what look returns, as a value for JSON and YAML and as text.
func (p *Program) Show(ctx context.Context, s *Shown, look func() (v any, text string, err error)) error {
	once := func() error {
		v, text, err := look()
		if err != nil {
			return err
		}
		if s.Watch && p.OutTTY {
			text = p.Tables().Screen(text)
		}
		return p.Print(s, v, text)
	}
	if !s.Watch {
		return once()
	}
	return p.repeat(ctx, once)
}

// Print shows a value once, as JSON or YAML or as its text. A list is an object with the field records, as the API's
// pages are; a command that was called by its former name prints it bare.
func (p *Program) Print(s *Shown, v any, text string) error {
	switch s.Output {
	case OutputJSON:
		return p.PrintJSON(v)
	case OutputYAML:
		return p.printYAML(p.listed(v))
	}
	_, err := p.Out.Write([]byte(text))
	return err
}

// PrintNext shows one of the values that come one after another: as a line of JSON, as a document of
// YAML, or as its text.
func (p *Program) PrintNext(s *Shown, v any, text string) error {
	if s.Output == OutputJSON {
		return json.NewEncoder(p.Out).Encode(v)
	}
	if s.Output == OutputYAML {
		text = "---\n"
	}
	if _, err := p.Out.Write([]byte(text)); err != nil || s.Output != OutputYAML {
		return err
	}
	return p.printYAML(v)
}

// listed is a value as programs read it: a list has its place in an object, and none is null.
func (p *Program) listed(v any) any {
	of := withoutNil(reflect.ValueOf(v))
	if !of.IsValid() {
		return nil
	}
	if !isList(of) || p.Former {
		return of.Interface()
	}
	return struct {
		Records any `json:"records"`
	}{of.Interface()}
}

// isList reports whether a value is a list in JSON, too.
func isList(v reflect.Value) bool {
	return v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8 && !v.Type().Implements(reflect.TypeFor[json.Marshaler]())
}

// withoutNil is a copy of a value in which each list that is nil is an empty one. What writes itself as JSON is left
// alone.
func withoutNil(v reflect.Value) reflect.Value {
	if !v.IsValid() || v.Type().Implements(reflect.TypeFor[json.Marshaler]()) {
		return v
	}
	switch v.Kind() {
	case reflect.Slice:
		if !isList(v) {
			return v
		}
		list := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			list.Index(i).Set(withoutNil(v.Index(i)))
		}
		return list
	case reflect.Map:
		if v.IsNil() {
			return v
		}
		all := reflect.MakeMapWithSize(v.Type(), v.Len())
		for key, value := range v.Seq2() {
			all.SetMapIndex(key, withoutNil(value))
		}
		return all
	case reflect.Pointer:
		if v.IsNil() {
			return v
		}
		to := reflect.New(v.Type().Elem())
		to.Elem().Set(withoutNil(v.Elem()))
		return to
	case reflect.Interface:
		if v.IsNil() {
			return v
		}
		in := reflect.New(v.Type()).Elem()
		in.Set(withoutNil(v.Elem()))
		return in
	case reflect.Struct:
		all := reflect.New(v.Type()).Elem()
		all.Set(v)
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				all.Field(i).Set(withoutNil(v.Field(i)))
			}
		}
		return all
	}
	return v
}

// printYAML writes a value as YAML, with the names that it has in JSON.
func (p *Program) printYAML(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("show it as YAML: %w", err)
	}
	var node yaml.Node
	// JSON is YAML, but for some characters that may stand in it as they are.
	if err := yaml.Unmarshal(escapedYAML(b), &node); err != nil {
		return fmt.Errorf("show it as YAML: %w", err)
	}
	block(&node)
	if b, err = yaml.Marshal(&node); err != nil {
		return fmt.Errorf("show it as YAML: %w", err)
	}
	_, err = p.Out.Write(escapedYAML(b))
	return err
}

// escapedYAML writes characters that a terminal would not just show as YAML escapes them between double quotes,
// where block has put them.
func escapedYAML(b []byte) []byte {
	if !bytes.ContainsFunc(b, func(r rune) bool { return !words.Harmless(r) }) {
		return b
	}
	var out []byte
	for _, r := range string(b) {
		switch {
		case words.Harmless(r):
			out = utf8.AppendRune(out, r)
		case r > 0xFFFF:
			out = fmt.Appendf(out, `\U%08x`, r)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// block has a document that was read from JSON written as YAML is by people.
func block(n *yaml.Node) {
	n.Style = 0
	if strings.ContainsFunc(n.Value, func(r rune) bool { return !words.Harmless(r) }) {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, c := range n.Content {
		block(c)
	}
}

// JobNames completes the names of jobs.
func (p *Program) JobNames(t *Target) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		err := p.With(cmd, t, func(ctx context.Context, r *Reached) (err error) {
			names, err = r.Names(ctx)
			return err
		})
		if err != nil && len(names) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// Names are those of the jobs that there are, or will be when their modules
// are compiled. With an error they may be some of them.
func (r *Reached) Names(ctx context.Context) ([]string, error) {
	var names []string
	list, err := r.Jobs(ctx)
	for _, b := range list {
		names = append(names, b.Name)
	}
	if r.Client == nil {
		return names, err
	}
	report, silent := r.Client.Status(ctx)
	if silent != nil {
		return names, cmp.Or(err, silent)
	}
	for _, j := range report.Status.Jobs {
		names = append(names, j.Name)
	}
	for _, c := range report.Compiling {
		names = append(names, c.Jobs...)
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// Similar adds the nearest name to the error about a job that the registry does not have. Hosts
// add it by themselves.
func (r *Reached) Similar(ctx context.Context, job string, err error) error {
	if !errors.Is(err, engine.ErrNoJob) {
		return err
	}
	names, _ := r.Names(ctx) // some are better than none
	if slices.Contains(names, job) {
		return err // which says enough
	}
	return fmt.Errorf("%w%s", err, words.Suggest(job, names))
}

// repeat shows until a signal comes or showing fails.
func (p *Program) repeat(ctx context.Context, show func() error) error {
	signals, end := p.Notify()
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
