// Command chaos is built as bin/wasmjob-chaos. It attacks a cluster of built hosts, and reports whether the
// promises hold. It is a laboratory and no part of wasmjob: test/chaos does the work, this package reads flags
// and prints.
package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/host/node/ensemble"
	"github.com/wasmjob/wasmjob/test/chaos"
)

// Exit codes.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p := &program{out: os.Stdout, err: os.Stderr, getenv: os.Getenv}
	if code := p.main(ctx, os.Args[1:]); code != 0 {
		stop()
		os.Exit(code)
	}
}

// program is one run of the command: its flags, and its streams and environment.
type program struct {
	out, err io.Writer
	getenv   func(name string) string

	options chaos.Options
	zk      ensemble.Ensemble
	// config is a settings file of wasmjob.
	config         string
	asJSON, remove bool
}

// errViolated: the report has been shown.
var errViolated = errors.New("the promises did not hold")

// usageError is a mistake on the command line or in the settings.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// main runs the command line and returns the exit code.
func (p *program) main(ctx context.Context, args []string) int {
	cmd := p.command()
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		fmt.Fprintf(p.err, "wasmjob-chaos: %v\nSee 'wasmjob-chaos --help'.\n", err)
		return exitUsage
	case errors.Is(err, errViolated):
		fmt.Fprintf(p.err, "wasmjob-chaos: %v; the same plan again: wasmjob-chaos --seed %d --duration %s\n", err, p.options.Seed, p.options.Duration)
	default:
		fmt.Fprintf(p.err, "wasmjob-chaos: %v\n", err)
	}
	return exitFailure
}

func (p *program) command() *cobra.Command {
	o, z := &p.options, &p.zk
	var only []string
	cmd := &cobra.Command{
		Use:   "wasmjob-chaos [flags]",
		Short: "Attack a cluster of hosts, and see whether the promises hold",
		Long: `Start hosts of the wasmjob that is next to this program, keep them busy, and break
one thing after the other: kill -9, SIGSTOP, cut connections, slow links, SIGTERM,
rolling restarts with a new module and operators' actions in between. Then judge
by the histories of all hosts, by what the guests themselves said and by sums
that only come out if no batch was lost or repeated.

Without --zk it also starts three ZooKeeper servers (ZooKeeper and Java must be
installed), kills, halts and parts them, fills a disk (as root, on Linux), and
reads their transaction log as one more witness. With --zk it uses a test cluster
of yours: its hosts and its jobs come and go there, in a namespace that must have
no jobs; what runs there otherwise is left alone. Do not point it at a cluster
that matters. Its jobs are taken out of it at the end, unless something was
violated, or --keep is given; --remove takes away what is left of an attack.

Its hosts reach the servers through proxies on this machine. With TLS they
therefore need a name that is in the certificates of all servers: if none of the
names that --zk and the certificates tell is, give it with --zk-tls-server-name,
or attack through one server.

The end is 0 only if nothing was violated. If something was, all that was seen
stays in a directory, which is named, with a timeline in report.txt.`,
		Example: `  wasmjob-chaos
  wasmjob-chaos --duration 2m --seed 7
  wasmjob-chaos --zk zk1:2181,zk2:2181 --namespace chaos-test --session-timeout 10s
  wasmjob-chaos --zk zk1:2181,zk2:2181 --namespace chaos-test --remove`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unexpected argument %.80q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, k := range only {
				o.Kinds = append(o.Kinds, chaos.Kind(k))
			}
			if err := p.testCluster(cmd.Context(), cmd.Flags()); err != nil {
				return err
			}
			if p.remove {
				return p.removeAttack(cmd.Context())
			}
			return p.attack(cmd.Context())
		},
		ValidArgsFunction:     cobra.NoFileCompletions,
		DisableFlagsInUseLine: true,
		SilenceErrors:         true,
		SilenceUsage:          true,
	}
	cmd.SetOut(p.out)
	cmd.SetErr(p.err)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	flags := cmd.Flags()
	flags.DurationVar(&o.Duration, "duration", chaos.DefaultDuration, "begin faults for `DURATION`; -1s is until each kind was there once")
	flags.Uint64Var(&o.Seed, "seed", 0, "`NUMBER` that makes the plan (default: another one each time)")
	flags.IntVar(&o.Hosts, "hosts", chaos.DefaultHosts, "start this `NUMBER` of hosts")
	flags.DurationVar(&o.SessionTimeout, "session-timeout", 0, "of the hosts (default 6s, with --zk 30s)")
	flags.StringSliceVar(&only, "only", nil, "only faults of these `KINDS`")
	flags.StringVar(&o.Dir, "dir", "", "keep everything in this `DIR`, which must be empty (default: a temporary one, removed if all is well)")
	flags.BoolVar(&o.Keep, "keep", false, "keep it also if all is well, and the jobs in the test cluster")
	flags.BoolVar(&p.remove, "remove", false, "do not attack, but take the jobs of earlier attacks out of the namespace")
	flags.BoolVar(&o.Reuse, "reuse-namespace", false, "use a namespace that has jobs")
	flags.BoolVar(&p.asJSON, "json", false, "print the report as JSON")
	flags.StringVar(&p.config, "config", "", "read the --zk-… settings that no flag gives from this `FILE` with settings of wasmjob")
	flags.StringVar(&o.Namespace, "namespace", "", "`NAME` of a namespace of the test cluster that has no jobs")
	flags.StringVar(&z.Connect, "zk", "", "the test cluster's `SERVERS`, HOST:PORT joined by commas, with a path after the last if all is to be below one")
	flags.BoolVar(&z.TLS, "zk-tls", false, "speak TLS to ZooKeeper; the other --zk-tls settings imply it")
	flags.StringVar(&z.CAFile, "zk-tls-ca", "", "`FILE` with certificates, PEM, that ZooKeeper's are checked against (default: the system's)")
	flags.StringVar(&z.CertFile, "zk-tls-cert", "", "`FILE` with the certificate, PEM, by which ZooKeeper knows this client")
	flags.StringVar(&z.KeyFile, "zk-tls-key", "", "`FILE` with the key, PEM, of that certificate")
	flags.StringVar(&z.ServerName, "zk-tls-server-name", "", "`NAME` in the servers' certificates (default: the one that is dialled)")
	flags.StringVar(&z.CredentialsFile, "zk-credentials-file", "", "`FILE` with user:password for ZooKeeper's digest authentication, or "+ensemble.CredentialsVariable+" in the environment")
	flags.SortFlags = false
	return cmd
}

// attack runs the attack and prints the report.
func (p *program) attack(ctx context.Context) error {
	o := &p.options
	var err error
	if o.Program, err = host(); err != nil {
		return err
	}
	if o.Seed == 0 {
		o.Seed = uint64(time.Now().UnixNano())
	}
	o.Say = func(line string) { fmt.Fprintln(p.err, line) }
	report, err := chaos.Run(ctx, *o)
	if err != nil {
		return err
	}
	if p.asJSON {
		encoder := json.NewEncoder(p.out)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(report)
	} else {
		report.Write(p.out)
	}
	if err != nil {
		return err
	}
	if !report.OK() {
		return errViolated
	}
	return nil
}

// host is the program that is attacked: the wasmjob next to this one.
func host() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	return hostIn(filepath.Dir(self))
}

func hostIn(dir string) (string, error) {
	name, err := exec.LookPath(filepath.Join(dir, "wasmjob"))
	if err != nil {
		return "", fmt.Errorf("the hosts to attack are those of the wasmjob next to this program: %w", err)
	}
	return name, nil
}

// removeAttack removes the jobs of earlier attacks.
func (p *program) removeAttack(ctx context.Context) error {
	if p.options.Connect == "" {
		return usagef("--remove needs the test cluster: --zk HOST:PORT,HOST:PORT --namespace NAME")
	}
	removed, err := chaos.Remove(ctx, p.options)
	if err != nil {
		return err
	}
	if len(removed) == 0 {
		fmt.Fprintf(p.out, "there are no jobs of an attack in namespace %s\n", p.options.Namespace)
		return nil
	}
	fmt.Fprintf(p.out, "removed %s from namespace %s\n", strings.Join(removed, ", "), p.options.Namespace)
	return nil
}

// testCluster reads how to reach a test cluster, and in which state its hosts are. The cluster is taken from
// flags only: an address in the environment or in a file may belong to a production cluster.
func (p *program) testCluster(ctx context.Context, flags *pflag.FlagSet) error {
	o, z := &p.options, &p.zk
	if flags.Changed("zk") {
		if err := p.reach(flags); err != nil {
			return usageError{err}
		}
		o.Connect = z.Connect
		if z.Credentials != "" {
			o.HostEnv = append(o.HostEnv, ensemble.CredentialsVariable+"="+z.Credentials)
		}
		var err error
		if o.HostFlags, err = behindProxies(ctx, z); err != nil {
			return err
		}
	} else {
		p.zk, o.Namespace = ensemble.Ensemble{}, ""
	}
	o.Dial = func(ctx context.Context, connect string, timeout time.Duration) (registry.Center, error) {
		to := p.zk
		to.Connect, to.SessionTimeout = connect, timeout
		options, err := to.Options()
		if err != nil {
			return nil, err
		}
		session, err := zookeeper.Dial(ctx, options)
		if err != nil {
			return nil, err // not a nil pointer in an interface
		}
		return session, nil
	}
	return nil
}

// reach combines the flags about the test cluster.
func (p *program) reach(flags *pflag.FlagSet) (err error) {
	z := &p.zk
	if err := p.settings(flags); err != nil {
		return err
	}
	if z.Connect, err = ensemble.ParseConnect(z.Connect); err != nil {
		return fmt.Errorf("--zk: %w", err)
	}
	if p.options.Namespace == "" {
		return errors.New("--namespace is missing: a namespace of the test cluster that has no jobs")
	}
	if (z.CertFile == "") != (z.KeyFile == "") {
		return errors.New("a certificate and its key go together; give both --zk-tls-cert and --zk-tls-key")
	}
	z.TLS = z.TLS || z.CAFile != "" || z.CertFile != "" || z.ServerName != ""
	if _, err := z.TLSConfig(); err != nil {
		return err
	}
	z.Credentials = p.getenv(ensemble.CredentialsVariable)
	from := ensemble.CredentialsVariable
	if z.CredentialsFile != "" {
		if z.Credentials != "" {
			return fmt.Errorf("--zk-credentials-file: credentials are in %s, too; give them once", from)
		}
		from = z.CredentialsFile
		warning := ""
		if z.Credentials, warning, err = ensemble.ReadCredentials(from, "ZooKeeper's"); err != nil {
			return fmt.Errorf("--zk-credentials-file: %w", err)
		}
		if warning != "" {
			fmt.Fprintln(p.err, "wasmjob-chaos: warning:", warning)
		}
	}
	if z.Credentials == "" {
		return nil
	}
	return ensemble.CheckCredentials(z.Credentials, from)
}

// settings sets the --zk-… flags that were not given from the environment or the settings file, under wasmjob's
// names for them. Other settings in the file are for hosts.
func (p *program) settings(flags *pflag.FlagSet) error {
	file := make(map[string]any)
	if name := cmp.Or(p.config, p.getenv("WASMJOB_CONFIG")); name != "" {
		data, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("--config: %w", err)
		}
		if err := yaml.Unmarshal(data, &file); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	var problems []error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || !strings.HasPrefix(f.Name, "zk-") {
			return
		}
		words := strings.Split(f.Name, "-")
		key := words[0]
		for _, w := range words[1:] {
			key += strings.ToUpper(w[:1]) + w[1:]
		}
		variable := "WASMJOB_" + strings.ToUpper(strings.Join(words, "_"))
		value, from := p.getenv(variable), variable
		if value == "" && file[key] != nil {
			value, from = fmt.Sprint(file[key]), key
		}
		if value == "" {
			return
		}
		if err := f.Value.Set(value); err != nil {
			problems = append(problems, fmt.Errorf("%s: %.80q: %w", from, value, err))
		}
	})
	return errors.Join(problems...)
}

// behindProxies returns the flags by which hosts reach the servers with TLS through proxies on this machine,
// whose address is in no certificate. Hosts have their own directories, so file names are absolute.
func behindProxies(ctx context.Context, e *ensemble.Ensemble) ([]string, error) {
	if !e.TLS {
		return nil, nil
	}
	flags := []string{"--zk-tls"}
	for _, f := range [][2]string{{"--zk-tls-ca", e.CAFile}, {"--zk-tls-cert", e.CertFile}, {"--zk-tls-key", e.KeyFile}} {
		if f[1] == "" {
			continue
		}
		name, err := filepath.Abs(f[1])
		if err != nil {
			return nil, err
		}
		flags = append(flags, f[0]+"="+name)
	}
	name := e.ServerName
	if name == "" {
		var err error
		if name, err = commonName(ctx, e); err != nil {
			return nil, err
		}
	}
	return append(flags, "--zk-tls-server-name="+name), nil
}

// certificatePatience is how long all servers together may take to show their certificates.
const certificatePatience = 10 * time.Second

// commonName finds a name that the certificates of all servers have.
func commonName(ctx context.Context, e *ensemble.Ensemble) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, certificatePatience)
	defer cancel()
	base, err := e.TLSConfig()
	if err != nil {
		return "", err
	}
	var names []string
	var leaves []*x509.Certificate
	for _, server := range e.Servers() {
		host, _, err := net.SplitHostPort(server)
		if err != nil {
			return "", err
		}
		names = append(names, host)
		// Its own name must be in its certificate, because that certificate is then trusted.
		config := base.Clone()
		config.ServerName = host
		leaf, err := leafOf(ctx, server, config)
		if err != nil {
			return "", fmt.Errorf("look at the certificate of %s: %w", server, err)
		}
		leaves = append(leaves, leaf)
	}
	return nameOfAll(names, leaves)
}

// leafOf is the certificate that a server shows.
func leafOf(ctx context.Context, server string, config *tls.Config) (*x509.Certificate, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return secure.ConnectionState().PeerCertificates[0], nil // a verified chain is not empty
}

// nameOfAll returns the first of the names, or of those in the certificates, that all certificates are valid
// for.
func nameOfAll(servers []string, leaves []*x509.Certificate) (string, error) {
	names := slices.Clone(servers)
	for _, leaf := range leaves {
		names = append(names, leaf.DNSNames...)
		for _, ip := range leaf.IPAddresses {
			names = append(names, ip.String())
		}
	}
	for _, name := range names {
		if !strings.Contains(name, "*") && !slices.ContainsFunc(leaves, func(c *x509.Certificate) bool { return c.VerifyHostname(name) != nil }) {
			return name, nil
		}
	}
	return "", fmt.Errorf("the certificates of %s have no name in common: hosts that are attacked reach all servers through proxies, under one name; "+
		"name one server only with --zk, or a name with --zk-tls-server-name", strings.Join(servers, " and "))
}
