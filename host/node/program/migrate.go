package program

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/host/cli/command"
	migratecommand "github.com/wasmjob/wasmjob/host/cli/importing"
	"github.com/wasmjob/wasmjob/host/config/migrate"
	"github.com/wasmjob/wasmjob/host/history/database"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

func importCommand(p *program) *cobra.Command {
	return migratecommand.Import(&p.Program, moveCommand(p, moving{
		use: "elasticjob --zk SERVERS --namespace NS --out DIR [flags]", short: "Write definitions for the jobs of an ElasticJob namespace",
		long: `Read the jobs that ElasticJob 1.x, 2.x or 3.x keeps in a namespace, and write for
each a definition, NAME.yaml, and the beginnings of a module in Go, NAME/main.go.
Nothing is written to ZooKeeper. What a definition cannot say is a comment in the
file, and is reported on stderr. Files that exist are left alone without --force.`,
		example: `  wasmjob job import elasticjob --zk zk1:2181 --namespace prod --out jobs
  wasmjob job import elasticjob --zk zk1:2181 --namespace prod --job ledgerClose --out jobs`,
		args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return command.Usagef("unexpected argument %q; choose a job with --job", words.Clip(args[0]))
			}
			return nil
		},
		skeletons: true,
	}), tablesOf(p))
}

func exportCommand(p *program) *cobra.Command {
	return moveCommand(p, moving{
		use: "export --zk SERVERS --namespace NS --out DIR [flags]", short: "Write the registry's configuration as definition files",
		long: `Write the configuration that the registry has of each job of a namespace as a
definition file, NAME.yaml. Modules are not in the registry: put them beside the
definitions. Files that exist are left alone without --force.`,
		example: `  wasmjob job export --zk zk1:2181 --namespace prod --out backup
  wasmjob job export --zk zk1:2181 --namespace prod --job cities --out jobs --force`,
		args: command.Exactly(),
	})
}

// moving is one of the commands that write definitions.
type moving struct {
	use, short, long, example string
	args                      cobra.PositionalArgs
	skeletons                 bool
}

func moveCommand(p *program, m moving) *cobra.Command {
	out, job, force := "", "", false
	cmd := &cobra.Command{
		Use: m.use, Short: m.short, Long: m.long, Example: m.example, Args: m.args,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" {
				return command.Usagef("--out is missing: the directory to write to")
			}
			ctx := cmd.Context()
			o, err := openNamespace(ctx, p, cmd.Flags(), false)
			if err != nil {
				return err
			}
			jobs, err := findJobs(ctx, o, job)
			if err = errors.Join(err, o.Close()); len(jobs) == 0 {
				return err
			}
			return errors.Join(err, writeJobs(p, jobs, out, m.skeletons, force))
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringVar(&out, "out", "", "write to this `DIR`, which is made if it does not exist")
	cmd.Flags().StringVar(&job, "job", "", "only the job of this `NAME`")
	cmd.Flags().BoolVar(&force, "force", false, "write over files that exist")
	addRegistryFlags(cmd.Flags())
	return cmd
}

// find reads the jobs of the namespace, or one of them.
func findJobs(ctx context.Context, o *command.Opened, job string) ([]migrate.Job, error) {
	found, err := migrate.Detect(ctx, o.Center, o.Namespace)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("namespace %s has no jobs", o.Namespace)
	}
	if job != "" {
		var names []string
		for _, f := range found {
			names = append(names, f.Name)
		}
		i := slices.Index(names, job)
		if i < 0 {
			return nil, fmt.Errorf("namespace %s has no job %q%s", o.Namespace, words.Clip(job), words.Suggest(job, names))
		}
		found = found[i : i+1]
	}
	return migrate.Read(ctx, o.Center, o.Namespace, found)
}

// writeJobs writes the files of all jobs, and reports each.
func writeJobs(p *program, jobs []migrate.Job, dir string, skeletons, force bool) error {
	var problems words.Problems
	used := make(map[string]string)
	for _, j := range jobs {
		if other := used[strings.ToLower(j.File())]; other != "" {
			problems.Addf("job %q would have the same files as job %q, %s.yaml; take it over with --job into another directory", j.Name, other, j.File())
			continue
		}
		used[strings.ToLower(j.File())] = j.Name
		source := ""
		if skeletons {
			source = "of ElasticJob " + string(j.Version)
		}
		problems.Add(migratecommand.Write(&p.Program, &j, source, dir, skeletons, force))
	}
	return problems.Err()
}

// tablesOf reads tables of another scheduler's database; its credentials may stand in the
// variable of those of a history.
func tablesOf(p *program) migratecommand.Tables {
	return func(ctx context.Context, url string, names ...string) (map[string]migrate.Table, error) {
		found, err := database.Tables(ctx, url, p.Getenv(historyCredentialsVariable), names...)
		tables := make(map[string]migrate.Table, len(found))
		for name, t := range found {
			tables[name] = migrate.Table(t)
		}
		return tables, err
	}
}
