package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/invoke"
	"github.com/wasmjob/wasmjob/host/cli/show"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/config/signature"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/engine/catalog"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// addGrantsFlag makes the flag of a command that is no host.
func addGrantsFlag(flags *pflag.FlagSet, into *string) {
	flags.StringVar(into, "grants", "", "`FILE|DIR` with the operator's grants, that of 'wasmjob run --grants' (default: WASMJOB_GRANTS)")
}

// readGrants reads what the flag or the environment names; nil if neither does. A mistake in it is
// one of usage.
func readGrants(p *program, flag string) (*grants.Set, error) {
	name := cmp.Or(flag, p.Getenv(grantsSetting(defaults{}).variable()))
	if name == "" {
		return nil, nil
	}
	set, err := grants.Read(name)
	if err != nil {
		return nil, command.Usage(fmt.Errorf("--grants: %w", err))
	}
	return set, nil
}

func grantsCommand(p *program) *cobra.Command {
	var file, module string
	var how command.Shown
	var t *command.Target
	cmd := &cobra.Command{
		Use:   "grants [JOB] [flags]",
		Short: "Show what jobs may do outside of their sandbox",
		Long: `Show what each job may do, by the operator's files of grants: requests,
connections, directories, state, secrets (their names), variables, quotas, and
whose signature is demanded. With a JOB: what that job gets; with --module as
well: what it gets with this module, and what the module wants that is not
granted. The exit code is 1 if something is missing.

Without --grants, and without WASMJOB_GRANTS, a running host is asked: what is in
force there, job by job.`,
		Example: `  wasmjob access grants
  wasmjob access grants --grants grants.yaml
  wasmjob access grants report --grants grants.yaml --module jobs/report.wasm`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return command.Usagef("unexpected argument %q", words.Clip(args[1]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			asked := cmd.Flags().Changed("admin") || cmd.Flags().Changed("token-file")
			if asked && file != "" {
				return command.Usagef("--grants is about files, --admin about a host that runs; leave one of them out")
			}
			if module != "" && len(args) == 0 {
				return command.Usagef("--module is about one job: name it")
			}
			var set *grants.Set
			if !asked {
				var err error
				if set, err = readGrants(p, file); err != nil {
					return err
				}
			}
			if set == nil && module != "" {
				return command.Usagef("--module is compared with files: name them with --grants")
			}
			if set == nil {
				return grantsInForce(cmd.Context(), p, t, strings.Join(args, ""), &how)
			}
			r := grantsReport{Job: strings.Join(args, "")}
			var m *grants.Module
			if module != "" {
				var err error
				if m, err = r.look(set, module); err != nil {
					return err
				}
			}
			var err error
			r.Grants, r.Warnings = set.Explain(r.Job, m), set.WarningsFor(r.Job)
			text := r.text(p)
			if r.Grants == nil {
				r.Grants = []grants.Line{}
			}
			err = p.Print(&how, r, text)
			if err == nil && r.lacks() {
				err = command.Said{}
			}
			return err
		},
	}
	addGrantsFlag(cmd.Flags(), &file)
	t = p.AddHost(cmd)
	cmd.Flags().StringVar(&module, "module", "", "the job's module, a `FILE`: conditions and what it imports are looked at")
	how.AddOutput(cmd, "it")
	return cmd
}

// jobGrants is what a job is granted on a host.
type jobGrants struct {
	Job     string   `json:"job"`
	Granted []string `json:"granted"`
	Signer  string   `json:"signer,omitempty"` // of its module
}

// grantsInForce shows what jobs are granted on the host that runs; of one job, if it is named.
func grantsInForce(ctx context.Context, p *program, t *command.Target, job string, how *command.Shown) error {
	c, err := p.Find(ctx, t)
	if err != nil {
		return err
	}
	report, err := c.Status(ctx)
	if err != nil {
		return err
	}
	var jobs []*engine.JobStatus
	var names []string
	for _, j := range report.Status.Jobs {
		if names = append(names, j.Name); job == "" || job == j.Name {
			jobs = append(jobs, j)
		}
	}
	if job != "" && len(jobs) == 0 {
		return fmt.Errorf("the host has no job %q in force%s", words.Clip(job), words.Suggest(job, names))
	}
	list := []jobGrants{}
	for _, j := range jobs {
		list = append(list, jobGrants{j.Name, append([]string{}, j.Granted...), j.Signer})
	}
	return p.Print(how, list, show.InForce(p.Tables(), jobs))
}

// grantsReport is what the command grants shows.
type grantsReport struct {
	Job    string `json:"job,omitempty"`
	Digest string `json:"digest,omitempty"` // of the module
	wanted
	Grants []grants.Line `json:"grants"`
	// Warnings are about what is granted and cannot be used as it is.
	Warnings []string `json:"warnings,omitempty"`
}

// look completes the report with what the module is and wants.
func (r *grantsReport) look(set *grants.Set, file string) (*grants.Module, error) {
	data, err := invoke.ReadModule(file)
	if err != nil {
		return nil, err
	}
	info := wasm.Read(data).Info
	m := r.of(set, r.Job, file, data, info.Imports)
	r.Digest = m.Digest
	return &m, nil
}

// wanted is what a module wants of the grants.
type wanted struct {
	// Signer is the key that signed the module, Refused why the job may not run it.
	Signer  string        `json:"signer,omitempty"`
	Refused string        `json:"refused,omitempty"`
	Wants   []grants.Want `json:"wants,omitempty"`
}

// of compares what the module wants with what the job is granted.
func (w *wanted) of(set *grants.Set, job, file string, module []byte, imports map[string][]string) grants.Module {
	m, err := moduleOf(set, job, file, module)
	if err != nil {
		w.Refused = err.Error()
	}
	w.Signer = m.Signer
	w.Wants = grants.Compare(catalog.Wants(imports, nil), set.For(job, m))
	return m
}

func (w *wanted) lacks() bool {
	for _, x := range w.Wants {
		if x.Missing != "" {
			return true
		}
	}
	return w.Refused != ""
}

// compare completes what inspect shows. Without grants nothing is missing: they are the host's.
func (r *inspected) compare(p *program, granted, job, file string, module []byte) error {
	set, err := readGrants(p, granted)
	if err != nil {
		return err
	}
	job = cmp.Or(job, jobOf(file))
	r.of(set, job, file, module, r.Imports)
	if set == nil {
		for i := range r.Wants {
			r.Wants[i].Missing = ""
		}
	}
	return nil
}

// moduleOf is what conditions ask of a module. The error is why the job may not run it; the
// digest is known all the same.
func moduleOf(set *grants.Set, job, file string, module []byte) (grants.Module, error) {
	m := grants.Module{Digest: wasm.Read(module).Info.Digest}
	sig, err := signature.Read(file)
	if err != nil && !errors.Is(err, signature.ErrMissing) && set.TrustFor(job) != nil {
		return m, err
	}
	m.Signer, err = set.Signer(job, module, sig)
	return m, err
}

func (r *grantsReport) text(p *program) string {
	var b strings.Builder
	if r.Digest != "" {
		fmt.Fprintf(&b, "digest  %s\nsigner  %s\n", r.Digest, words.Dash(r.Signer))
	}
	if r.Refused != "" {
		b.WriteString("refused " + r.Refused + "\n")
	}
	if r.Digest != "" {
		b.WriteString("\n")
	}
	b.WriteString(show.Grants(p.Tables(), r.Grants))
	if wanted := show.Wanted(p.Tables(), []grants.Wanted{{Job: r.Job, Wants: r.Wants}}); wanted != "" {
		b.WriteString("\n" + wanted)
	}
	for _, w := range r.Warnings {
		b.WriteString("warning: " + w + "\n")
	}
	return b.String()
}

// shortForms are the grants of a command line, for one run.
type shortForms struct {
	file               string
	http, net, secrets []string
	kv                 bool
}

func (s *shortForms) add(flags *pflag.FlagSet) {
	addGrantsFlag(flags, &s.file)
	flags.StringArrayVar(&s.http, "http-allow", nil, "let the guest send requests, with any method, to what begins with this `URL`, also at a private address; may be repeated")
	flags.StringArrayVar(&s.net, "net-allow", nil, "let the guest connect to an `ADDRESS`, tcp://HOST:PORT or tls://HOST:PORT; may be repeated")
	flags.BoolVar(&s.kv, "kv", false, "let the guest keep key/value state")
	flags.StringArrayVar(&s.secrets, "secret", nil, "a secret for headers of requests to the URLs of --http-allow: `NAME=file:PATH` or NAME=env:VARIABLE; may be repeated")
}

// read makes a grant of the short forms.
func (s *shortForms) read(wrong *mistakes) grants.Grant {
	g := grants.Grant{KV: s.kv}
	var names []string
	for _, text := range s.secrets {
		name, secret, err := grants.ParseSecret(text)
		wrong.add("secret", err)
		if err == nil {
			if g.Secrets == nil {
				g.Secrets = map[string]grants.Secret{}
			}
			g.Secrets[name] = secret
			names = append(names, name)
		}
	}
	for _, text := range s.http {
		h, err := grants.ParseHTTP(text)
		wrong.add("http-allow", err)
		h.Methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
		// The owner of a domain chooses the addresses of *.HOST.
		h.Private, h.Secrets = !strings.HasPrefix(h.Host, "*."), names
		g.HTTP = append(g.HTTP, h)
	}
	for _, text := range s.net {
		n, err := grants.ParseNet(text)
		wrong.add("net-allow", err)
		n.Private = true
		g.Net = append(g.Net, n)
	}
	return g
}

// grant is what the module may do in this run: what the files grant to the job, after
// what the flags do: --http-allow, --net-allow, --kv, --secret, --mount, --env and
// --plugin-config. module are the bytes of the file that is run. The error says why the
// job may not run it.
func (o *invocation) grant(module []byte) (*grants.Grant, error) {
	m, err := moduleOf(o.granted, o.JobName, o.File, module)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.File, err)
	}
	return o.granted.First("the command line", o.short).For(o.JobName, m), nil
}

// readShort makes the grant of the flags, when those of Settings are read.
func (o *invocation) readShort(wrong *mistakes) {
	o.short = o.forms.read(wrong)
	for _, m := range o.Settings.Mounts {
		o.short.Dirs = append(o.short.Dirs, grants.Dir{Host: m.Host, Guest: m.Guest})
	}
	o.short.Env = o.Settings.Env
	if o.pluginConfig != "" {
		o.short.Config = o.Settings.PluginConfig
	}
}

// grantsCheck is what validate looks at besides files of jobs.
type grantsCheck struct {
	set      *grants.Set       // nil: there are none, or they are broken
	findings []catalog.Finding // what is wrong with them
}

// checkOf reads the grants for validate.
func checkOf(p *program, flag string) (*grantsCheck, error) {
	set, err := readGrants(p, flag)
	var broken *grants.Error
	if !errors.As(err, &broken) {
		return &grantsCheck{set: set}, err
	}
	c := &grantsCheck{}
	for _, x := range broken.Problems {
		text := x.Message
		if x.Field != "" {
			text = x.Field + ": " + text
		}
		c.findings = append(c.findings, catalog.Finding{File: x.File, Line: x.Line, Column: x.Column, Problem: text})
	}
	return c, nil
}

// granted are the import modules that are not refused: which of them a job may use, compare says.
func (c *grantsCheck) granted() []string {
	if c.set == nil && c.findings == nil {
		return nil
	}
	return catalog.Capabilities()
}

// compare compares what definitions want with the grants. The text shows it.
func (c *grantsCheck) compare(p *program, paths []string) (findings []catalog.Finding, text string) {
	if c.set == nil && len(c.findings) == 0 {
		return catalog.UncheckedNeeds(paths), ""
	}
	if c.set == nil {
		return c.findings, ""
	}
	jobs, findings := catalog.CheckGrants(c.set, paths)
	return findings, show.Wanted(p.Tables(), jobs)
}
