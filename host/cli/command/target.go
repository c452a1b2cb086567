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

// Operator is the set of operations on jobs that commands use: a host's admin address provides it, or the registry.
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

// Target has the flags that name the host or the registry of a command.
type Target struct {
	address, tokenFile, ca string
	Reason                 string // of a change
	One                    bool   // only one host is meant, no other of its cluster
	Writes                 bool   // the command changes something
	flags                  *pflag.FlagSet
	// context is the name of the given context. settled says that it has been applied. from says from which context the
	// address comes; empty without one.
	context string
	settled bool
	from    string
	getenv  func(string) string
}

// AddHost adds the flags that name a host.
func (p *Program) AddHost(cmd *cobra.Command) *Target {
	t := &Target{flags: cmd.Flags(), getenv: p.Getenv}
	cmd.Flags().StringVar(&t.address, "admin", p.Getenv(EnvPrefix+"ADMIN"), "`ADDRESS` of a host of the cluster (default: the host that runs on this machine, or one of several if they are of one cluster)")
	cmd.Flags().StringVar(&t.tokenFile, "token-file", p.Getenv(EnvPrefix+"ADMIN_TOKEN_FILE"), "`FILE` with a token (default: the token that the host on this machine leaves for commands)")
	cmd.Flags().StringVar(&t.ca, "ca", "", "`FILE` with the authorities that signed the host's certificate, or system; implies TLS (default: what the host on this machine leaves for commands)")
	cmd.Flags().StringVar(&t.context, "context", "", "`NAME` of the context whose cluster is asked (default: the context in use, see 'wasmjob context')")
	Connects(cmd.Flags(), "admin", "token-file", "ca", "context")
	_ = cmd.RegisterFlagCompletionFunc("context", p.ContextNames)
	return t
}

// AddTarget adds the flags that name a host or a registry.
func (p *Program) AddTarget(cmd *cobra.Command) *Target {
	t := p.AddHost(cmd)
	p.RegistryFlags(cmd.Flags())
	for _, name := range []string{ConfigFlag, "registry", "zk"} {
		cmd.Flags().Lookup(name).Usage += "; the command then asks ZooKeeper directly and needs no host"
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

// Direct reports whether the command asks the registry directly, because a registry flag was given.
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
			return false, Usagef("--%s asks a host, and --%s asks the registry; give one of the two", name, given)
		}
	}
	return true, nil
}

// registryFlag returns a registry flag that was given; empty without one.
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
	// Client is the host; nil if the command asks the registry.
	Client *client.Client
	// Registry is the registry; nil if the command asks a host.
	Registry *Opened
}

// Until returns operations whose effect ends by itself: what they disable is enabled at that time.
func (r *Reached) Until(at time.Time) Operator {
	switch o := r.Operator.(type) {
	case *client.Client:
		return o.Until(at)
	case *admin.Registry:
		return o.Until(at)
	}
	return r.Operator
}

// close ends what Reach began; the command's own error takes precedence.
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
		return nil, Usagef("--admin off is a setting of the host, not an address; expected HOST:PORT")
	}
	c, err := client.Find(ctx, client.Where{Address: t.address, TokenFile: t.tokenFile, CA: t.ca, Dirs: client.NoteDirs(p.Getenv), One: t.One})
	return c, t.unreachable(err)
}

// unreachable adds to the error that no host answers where its address came from, and what the user can do.
func (t *Target) unreachable(err error) error {
	if !errors.Is(err, client.ErrNoHost) {
		return err
	}
	if t.from != "" {
		err = fmt.Errorf("%s: %w", t.from, err)
	}
	return fmt.Errorf("%w\nStart a host with 'wasmjob run', name its address with --admin ADDRESS, or ask ZooKeeper directly with --zk SERVERS", err)
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

// With calls do with the target that the flags name.
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

// OnTarget completes a command about one job, or about all: it adds the flags of the target, and completion of the job's
// name.
func (p *Program) OnTarget(cmd *cobra.Command, run func(ctx context.Context, r *Reached, args []string) error) *cobra.Command {
	return p.On(p.AddTarget(cmd), cmd, run)
}

// OnChange is OnTarget for a command that changes something.
func (p *Program) OnChange(cmd *cobra.Command, run func(ctx context.Context, r *Reached, args []string) error) *cobra.Command {
	return p.On(p.AddChange(cmd), cmd, run)
}

// On is OnTarget with a target whose flags were added before.
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

// Shown has the flags of a command's output: its form, and whether it is repeated.
type Shown struct {
	Output string
	Watch  bool
}

func (s *Shown) Add(cmd *cobra.Command, what string) {
	s.AddOutput(cmd, what)
	cmd.Flags().BoolVar(&s.Watch, "watch", false, "refresh "+what+" every second until Ctrl-C")
}

// form is the form of output as a flag: it rejects other forms than those of the command before the command runs.
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

// names lists the forms for a sentence.
func (f *form) names() string {
	last := len(f.forms) - 1
	return strings.Join(f.forms[:last], ", ") + " or " + f.forms[last]
}

// AddOutput adds only the flag for the form. more are further forms of this command.
func (s *Shown) AddOutput(cmd *cobra.Command, what string, more ...string) {
	s.Output = OutputTable
	f := &form{&s.Output, append([]string{OutputTable, OutputJSON, OutputYAML}, more...)}
	cmd.Flags().VarP(f, "output", "o", "show "+what+" in this `FORM`: "+f.names())
	cmd.Flags().BoolFunc("json", "the same as --output json", func(string) error { s.Output = OutputJSON; return nil })
	_ = cmd.RegisterFlagCompletionFunc("output", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return f.forms, cobra.ShellCompDirectiveNoFileComp
	})
}

// Show prints what look returns, as a value for JSON and YAML, or as text; with --watch repeatedly.
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

// Print prints a value once, as JSON, YAML or text. A list becomes an object with the field records, like a page of the
// API; a command that was called by its former name prints the bare list.
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

// PrintNext prints one of several values: as a line of JSON, as a document of YAML, or as text.
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

// listed returns a value as programs read it: a list inside an object, and no list null.
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

// withoutNil returns a copy of a value in which each nil list is an empty one. It does not change values that encode
// themselves as JSON.
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
	// JSON is YAML, except for some characters that JSON need not escape.
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

// escapedYAML writes characters that a terminal might not print as they are as YAML escapes; block has put them between
// double quotes.
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

// block sets the style of a document that was read from JSON to the style that people write.
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

// Names returns the names of the jobs that exist, or that will exist when their modules are compiled. With an error the
// list may be incomplete.
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

// Similar adds the nearest name to the error about a job that the registry does not have. Hosts add it themselves.
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

// repeat calls show until a signal comes or show fails.
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
