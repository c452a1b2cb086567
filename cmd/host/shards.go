package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/host/show"
)

func shardsCommand(p *program) *cobra.Command {
	var how shown
	cmd := &cobra.Command{
		Use:   "shards JOB [flags]",
		Short: "Show which instance has which item of a job",
		Long: `Show the items of a job on all hosts, as the registry has them: the instance that
owns each, what it is doing, and its newest run. The host that runs here is asked,
or with --zk the registry itself.`,
		Example: `  wasmjob shards cities
  wasmjob shards cities --watch
  wasmjob shards cities --zk zk1:2181,zk2:2181 --namespace prod --json`,
		Args: exactly("the job's name"),
	}
	how.add(cmd, "them")
	return p.onTarget(cmd, func(ctx context.Context, r *reached, args []string) error {
		return p.show(ctx, &how, func() (any, string, error) {
			s, err := r.Shards(ctx, args[0])
			if err != nil {
				return nil, "", r.similar(ctx, args[0], err)
			}
			return s, show.Shards(p.tables(), s, time.Now()), nil
		})
	})
}
