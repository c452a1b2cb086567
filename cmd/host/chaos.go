package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
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
	asJSON := false
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
that matters.

The end is 0 only if nothing was violated. If something was, all that was seen
stays in a directory, which is named, with a timeline in report.txt.`,
		Example: `  wasmjob chaos
  wasmjob chaos --duration 2m --seed 7
  wasmjob chaos --zk zk1:2181,zk2:2181 --namespace chaos-test --session-timeout 10s`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, k := range only {
				o.Kinds = append(o.Kinds, chaos.Kind(k))
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
	flags.BoolVar(&o.Keep, "keep", false, "keep it also if all is well")
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
	z := zooKeeper{}
	// Only the flag counts: an address that happens to be in the environment or
	// in a file is of a cluster that may matter.
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
		flags.Visit(func(f *pflag.Flag) {
			if strings.HasPrefix(f.Name, "zk-tls") {
				o.HostFlags = append(o.HostFlags, "--"+f.Name+"="+f.Value.String())
			}
		})
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
