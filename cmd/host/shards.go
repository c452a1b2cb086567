package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/host/show"
)

func (p *program) shardsCommand() *cobra.Command {
	var asJSON, watch bool
	var t *target
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
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.with(cmd, t, func(ctx context.Context, r *reached) error {
				show := func() error {
					s, err := r.Shards(ctx, args[0])
					switch {
					case err != nil:
						return r.similar(ctx, args[0], err)
					case asJSON:
						return p.printJSON(s)
					}
					text := show.Shards(p.tables(), s, time.Now())
					if watch && p.outTTY {
						text = "\x1b[H\x1b[2J" + text
					}
					_, err = p.out.Write([]byte(text))
					return err
				}
				if !watch {
					return show()
				}
				return p.repeat(ctx, show)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "show them as JSON")
	cmd.Flags().BoolVar(&watch, "watch", false, "show them again each second, until Ctrl-C")
	t = p.addTarget(cmd)
	cmd.ValidArgsFunction = p.jobNames(t)
	return cmd
}
