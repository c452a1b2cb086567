package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/zookeeper"
	"github.com/wasmjob/wasmjob/test/chaos"
)

func (p *program) chaosCommand() *cobra.Command {
	o := chaos.Options{}
	asJSON, remove := false, false
	var only []string
	cmd := &cobra.Command{
		Use:   "chaos [flags]",
		Short: "Attack a cluster of hosts, and see whether the promises hold",
		Long: `Start hosts, keep them busy, and break one thing after the other: kill -9,
SIGSTOP, cut connections, slow links, SIGTERM, rolling restarts with a new module
and operators' actions in between. Then judge by the histories of all hosts, by
what the guests themselves said and by sums that only come out if no batch was
lost or repeated.

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
		Example: `  wasmjob chaos
  wasmjob chaos --duration 2m --seed 7
  wasmjob chaos --zk zk1:2181,zk2:2181 --namespace chaos-test --session-timeout 10s
  wasmjob chaos --zk zk1:2181,zk2:2181 --namespace chaos-test --remove`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, k := range only {
				o.Kinds = append(o.Kinds, chaos.Kind(k))
			}
			if remove {
				return p.removeAttack(cmd.Context(), cmd.Flags(), o)
			}
			return p.attack(cmd.Context(), cmd.Flags(), o, asJSON)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := cmd.Flags()
	flags.DurationVar(&o.Duration, "duration", chaos.DefaultDuration, "begin faults for `DURATION`; -1s is until each kind was there once")
	flags.Uint64Var(&o.Seed, "seed", 0, "`NUMBER` that makes the plan (default: another one each time)")
	flags.IntVar(&o.Hosts, "hosts", chaos.DefaultHosts, "start this `NUMBER` of hosts")
	flags.DurationVar(&o.SessionTimeout, "session-timeout", 0, "of the hosts (default 6s, with --zk 30s)")
	flags.StringSliceVar(&only, "only", nil, "only faults of these `KINDS`")
	flags.StringVar(&o.Dir, "dir", "", "keep everything in this `DIR`, which must be empty (default: a temporary one, removed if all is well)")
	flags.BoolVar(&o.Keep, "keep", false, "keep it also if all is well, and the jobs in the test cluster")
	flags.BoolVar(&remove, "remove", false, "do not attack, but take the jobs of earlier attacks out of the namespace")
	flags.BoolVar(&o.Reuse, "reuse-namespace", false, "use a namespace that has jobs")
	flags.BoolVar(&asJSON, "json", false, "print the report as JSON")
	addRegistryFlags(flags)
	flags.SortFlags = false
	return cmd
}

// attack runs the attack and prints the report.
func (p *program) attack(ctx context.Context, flags *pflag.FlagSet, o chaos.Options, asJSON bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	signals, end := p.notify()
	defer end()
	done := make(chan struct{})
	defer func() { <-done }()
	go func() { // joined by done
		defer close(done)
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	defer cancel() // before done is waited for

	var err error
	if o.Program, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if o.Seed == 0 {
		o.Seed = uint64(time.Now().UnixNano())
	}
	if err := p.testCluster(ctx, flags, &o); err != nil {
		return err
	}
	o.Say = func(line string) { fmt.Fprintln(p.err, line) }
	report, err := chaos.Run(ctx, o)
	if err != nil {
		return err
	}
	if asJSON {
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
		fmt.Fprintf(p.err, "wasmjob: the promises did not hold; the same plan again: wasmjob chaos --seed %d --duration %s\n", o.Seed, o.Duration)
		return said{}
	}
	return nil
}

// removeAttack takes the jobs of earlier attacks away.
func (p *program) removeAttack(ctx context.Context, flags *pflag.FlagSet, o chaos.Options) error {
	if !flags.Changed("zk") {
		return usagef("--remove needs the test cluster: --zk HOST:PORT,HOST:PORT --namespace NAME")
	}
	if err := p.testCluster(ctx, flags, &o); err != nil {
		return err
	}
	removed, err := chaos.Remove(ctx, o)
	if err != nil {
		return err
	}
	if len(removed) == 0 {
		fmt.Fprintf(p.out, "there are no jobs of an attack in namespace %s\n", o.Namespace)
		return nil
	}
	fmt.Fprintf(p.out, "removed %s from namespace %s\n", strings.Join(removed, ", "), o.Namespace)
	return nil
}

// testCluster reads how a test cluster is reached, and how its hosts do. Only the
// flag counts: an address that happens to be in the environment or in a file is
// of a cluster that may matter.
func (p *program) testCluster(ctx context.Context, flags *pflag.FlagSet, o *chaos.Options) error {
	z := zooKeeper{}
	if flags.Changed("zk") {
		l, err := loadRegistry(p.environ, flags)
		if err != nil {
			return err
		}
		if !flags.Changed("namespace") {
			return usagef("--namespace is missing: a namespace of the test cluster that has no jobs")
		}
		z, o.Connect, o.Namespace = l.ZooKeeper, l.ZooKeeper.Connect, l.Namespace
		if z.credentials != "" {
			o.HostEnv = append(o.HostEnv, credentialsVariable+"="+z.credentials)
		}
		if o.HostFlags, err = z.behindProxies(ctx); err != nil {
			return err
		}
	}
	o.Dial = func(ctx context.Context, connect string, timeout time.Duration) (coordination.RegistryCenter, error) {
		to := z
		to.Connect, to.SessionTimeout = connect, timeout
		options, err := to.options(zap.NewNop(), nil)
		if err != nil {
			return nil, err
		}
		session, err := zookeeper.Dial(ctx, options)
		if err != nil {
			return nil, err
		}
		return session, nil
	}
	return nil
}

// behindProxies are the flags by which hosts reach the servers with TLS through
// proxies on this machine, whose address is in no certificate. Hosts have
// directories of their own, so files are named in full.
func (z *zooKeeper) behindProxies(ctx context.Context) ([]string, error) {
	if !z.TLS {
		return nil, nil
	}
	flags := []string{"--zk-tls"}
	for _, f := range [][2]string{{"--zk-tls-ca", z.CAFile}, {"--zk-tls-cert", z.CertFile}, {"--zk-tls-key", z.KeyFile}} {
		if f[1] == "" {
			continue
		}
		name, err := filepath.Abs(f[1])
		if err != nil {
			return nil, err
		}
		flags = append(flags, f[0]+"="+name)
	}
	name := z.ServerName
	if name == "" {
		var err error
		if name, err = z.commonName(ctx); err != nil {
			return nil, err
		}
	}
	return append(flags, "--zk-tls-server-name="+name), nil
}

// certificatePatience is how long all servers may take to show theirs.
const certificatePatience = 10 * time.Second

// commonName finds a name that the certificates of all servers have.
func (z *zooKeeper) commonName(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, certificatePatience)
	defer cancel()
	base, err := z.tls()
	if err != nil {
		return "", err
	}
	var names []string
	var leaves []*x509.Certificate
	for server := range strings.SplitSeq(z.servers(), ",") {
		host, _, err := net.SplitHostPort(server)
		if err != nil {
			return "", err
		}
		names = append(names, host)
		// Its own name has to be in its certificate: that is what is trusted.
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

// nameOfAll is the first of the names, or of those in the certificates, that all
// certificates are for.
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
