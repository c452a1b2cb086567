package program

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/show"
	"github.com/wasmjob/wasmjob/host/history/database"
	"github.com/wasmjob/wasmjob/host/history/verify"
	"github.com/wasmjob/wasmjob/host/node/ensemble"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// leastSettle is how long a takeover takes: the default session timeout, and the
// time for another host to notice and to run the items.
const leastSettle = time.Minute

func verifyCommand(p *program) *cobra.Command {
	var o verify.Options
	var how command.Shown
	var rest time.Duration
	var where []string // flags that say which registry
	var credentialsFile string
	cmd := &cobra.Command{
		Use:   "verify [HISTORY...] [flags]",
		Short: "Check the histories of all hosts for lost or doubled work",
		Long: `Read the histories of all hosts of a cluster, or look at the registry itself (--zk), or
both, and check what is promised about delivery. A history is a file (written with
--history FILE.jsonl; the older files beside it are read with it) or a database, by the
URL that hosts have: sqlite:PATH, postgres://… or mysql://…. Of a database
the time is read for which it keeps successes; what still waits on the disks of hosts is
not in it. Nothing is written to it.

  1  no item has two live owners
  2  every item of every due fire ran, or a reason why not is recorded
  3  no completed item runs again in its fire
  4  offsets only move forward under growing fences
  5  with --period: every job with a cron goes on firing; with --zk: nothing that
     belonged to a host that is gone is left behind in the registry
  6  the fences of an item strictly grow

Java hosts write no history: in a job in which they took part (--java, --zk) an item
that no wasmjob host had all the while counts as theirs. An item that is in none of the
given histories may be in one that is missing: it is unproven.

For each violation the lines that prove it are shown. Lines that are cut short are
passed over. In the registry, only what is still there after --rest counts, and jobs
without a host are not judged. Nothing is written to it. The exit code is 0 if all was
kept, 1 if not, and 2 if a file or the registry cannot be read.`,
		Example: `  wasmjob job verify 'postgres://wasmjob@db/jobs' --history-credentials-file credentials
  wasmjob job verify host1.jsonl host2.jsonl host3.jsonl
  wasmjob job verify --period 1m --json /var/log/wasmjob/*.jsonl
  wasmjob job verify --zk zk1:2181,zk2:2181 --namespace prod
  wasmjob job verify --zk zk1:2181 --namespace prod --rest 11m host*.jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Skew == 0 {
				o.Skew = -1 // asked for: not at all
			}
			if o.Settle < leastSettle {
				fmt.Fprintf(p.Err, "wasmjob: warning: --settle %s is shorter than a takeover takes, which begins when the session of a dead host ends (--session-timeout, %s unless hosts set another): a fire may be called lost that another host has yet to run; want at least %s\n",
					words.Duration(o.Settle), defaultSession, words.Duration(leastSettle))
			}
			ctx := cmd.Context()
			var r *verify.Report
			var err error
			if len(args) == 0 || slices.ContainsFunc(where, cmd.Flags().Changed) {
				r, err = verifyWithRegistry(ctx, p, cmd.Flags(), rest, o, credentialsFile, args)
				if len(args) == 0 && errors.Is(err, errNoServers) {
					err = errors.New("the histories are missing, or --zk to look at the registry")
				}
			} else {
				r, err = verifyHistories(ctx, p, o, credentialsFile, args)
			}
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				return command.Usage(err)
			}
			err = p.Print(&how, r, show.Verified(p.Tables(), r, o.Settle))
			if err == nil && r.Violations > 0 {
				err = command.Said{}
			}
			return err
		},
	}
	f := cmd.Flags()
	registryFlags := pflag.NewFlagSet("", pflag.ContinueOnError)
	how.AddOutput(cmd, "the report")
	command.DurationVar(f, &o.Period, "period", 0, "how often every job with a cron fires at least, `DURATION`")
	f.StringSliceVar(&o.Java, "java", nil, "the `JOBS` in which Java hosts took part, with commas between; --zk adds those in which one is now")
	command.DurationVar(f, &o.Skew, "skew", verify.DefaultSkew, "by how much the clocks of servers may differ, `DURATION`")
	command.DurationVar(f, &o.Settle, "settle", verify.DefaultSettle, "how long after its instant a fire must be accounted for, `DURATION`")
	f.BoolVar(&o.Strict, "strict", false, "count what is unproven or without effect as violated")
	f.StringVar(&credentialsFile, "history-credentials-file", "", "`FILE` with user:password for databases, or "+historyCredentialsVariable+" in the environment")
	f.IntVar(&o.MaxFindings, "max", verify.DefaultMaxFindings, "how many findings of a kind are shown, `N`")
	command.DurationVar(f, &rest, "rest", 10*time.Second, "how long something must stay in the registry to be called left behind, `DURATION`")
	addRegistryFlags(registryFlags)
	registryFlags.VisitAll(func(flag *pflag.Flag) { where = append(where, flag.Name) })
	f.AddFlagSet(registryFlags)
	return cmd
}

// verifyHistories checks histories in files and in databases.
func verifyHistories(ctx context.Context, p *program, how verify.Options, credentialsFile string, histories []string) (r *verify.Report, err error) {
	var files []string
	var databases []verify.Database
	for _, h := range histories {
		if !database.IsURL(h) {
			files = append(files, h)
			continue
		}
		config, err := historyAt(p, h, credentialsFile)
		if err != nil {
			return nil, err
		}
		reader, err := database.OpenReader(ctx, config)
		if err != nil {
			return nil, err
		}
		defer func() { _ = reader.Close() }() // it was only read
		databases = append(databases, reader)
	}
	return verify.Histories(ctx, how, databases, files...)
}

// historyAt reads the URL of a history, with its credentials.
func historyAt(p *program, url, credentialsFile string) (*database.Config, error) {
	credentials, from := p.Getenv(historyCredentialsVariable), historyCredentialsVariable
	if strings.HasPrefix(strings.ToLower(url), "sqlite:") {
		credentials = "" // which are for another one
	} else if credentialsFile != "" {
		read, warning, err := ensemble.ReadCredentials(credentialsFile, "the history's")
		if err != nil {
			return nil, fmt.Errorf("--history-credentials-file: %w", err)
		}
		if warning != "" {
			fmt.Fprintln(p.Err, "wasmjob: warning:", warning)
		}
		credentials, from = read, credentialsFile
	}
	if credentials != "" {
		if err := ensemble.CheckCredentials(credentials, from); err != nil {
			return nil, err
		}
	}
	return database.Parse(url, credentials)
}

// verifyWithRegistry checks the histories, with what the registry says of Java hosts,
// and adds what is left behind in the registry.
func verifyWithRegistry(ctx context.Context, p *program, flags *pflag.FlagSet, rest time.Duration, how verify.Options, credentialsFile string, histories []string) (r *verify.Report, err error) {
	o, err := openNamespace(ctx, p, flags, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	java, err := verify.JavaJobs(ctx, o.Center, o.Namespace)
	if err != nil {
		return nil, err
	}
	how.Java = append(slices.Clone(how.Java), java...)
	if r, err = verifyHistories(ctx, p, how, credentialsFile, histories); err != nil {
		return nil, err
	}
	looked, findings, err := verify.LeftBehind(ctx, o.Center, o.Namespace, rest)
	switch {
	case err != nil:
		return nil, err
	case looked.Jobs == 0 && len(histories) == 0:
		return nil, fmt.Errorf("there is no job in namespace %s", o.Namespace)
	}
	r.AddRegistry(looked, findings)
	return r, nil
}
