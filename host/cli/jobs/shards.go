package jobs

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/show"
)

func shardsCommand(p *command.Program) *cobra.Command {
	var how command.Shown
	cmd := &cobra.Command{
		Use:     "items JOB [flags]",
		Aliases: []string{"shards"},
		Short:   "Show which instance has which item of a job",
		Long: `Show the items of a job on all hosts, as the registry has them: the instance that
owns each, what it is doing, and its newest run. The registry itself (--zk) calls items
RUNNING that wait for a slot, too: a host calls them QUEUED.`,
		Example: `  wasmjob job items cities
  wasmjob job items cities --watch
  wasmjob job items cities --zk zk1:2181,zk2:2181 --namespace prod --json`,
		Args: command.Exactly("the job's name"),
	}
	how.Add(cmd, "them")
	return p.OnTarget(cmd, func(ctx context.Context, r *command.Reached, args []string) error {
		return p.Show(ctx, &how, func() (any, string, error) {
			s, err := r.Shards(ctx, args[0])
			if err != nil {
				return nil, "", r.Similar(ctx, args[0], err)
			}
			return s, show.Shards(p.Tables(), s, time.Now()), nil
		})
	})
}
