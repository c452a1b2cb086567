package program

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

func adoptCommand(p *program) *cobra.Command {
	above := int64(0)
	cmd := &cobra.Command{
		Use:   "adopt --zk SERVERS --namespace NS [--above N]",
		Short: "Adopt a ZooKeeper that was copied from another one, or restored from a backup",
		Long: `Let hosts use a namespace whose nodes were copied to another ZooKeeper, or a ZooKeeper
that was restored from a backup. Its transaction numbers, from which fences and trigger
rounds come, are lower than those that were issued before; hosts notice that and begin
no item. The command stores an offset that hosts add to all transaction numbers of the
namespace, so that fences continue above those that were issued before.

Without --above, the command takes the highest number from the items' records, and does
not change a registry that is not a copy. After a restore from a backup the records do
not show the highest number: give --above the number in the hosts' log messages. Hosts
that wait continue at once.`,
		Example: "  wasmjob registry adopt --zk zk1:2181,zk2:2181 --namespace prod\n  wasmjob registry adopt --zk zk1:2181,zk2:2181 --namespace prod --above 8589934671",
		Args:    command.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("above") && above <= 0 {
				return command.Usage(fmt.Errorf("--above %d: expected a number above 0", above))
			}
			return adopt(cmd.Context(), p, cmd, above)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().Int64Var(&above, "above", 0, "the greatest number `N` that was issued before")
	addRegistryFlags(cmd.Flags())
	return cmd
}

func adopt(ctx context.Context, p *program, cmd *cobra.Command, above int64) error {
	o, err := openNamespace(ctx, p, cmd.Flags(), true)
	if err != nil {
		return err
	}
	a, err := o.Jobs.Adopt(ctx, above)
	if err = errors.Join(err, o.Close()); err != nil {
		return err
	}
	if above != 0 {
		return p.Done(nil, fmt.Sprintf("adopted namespace %s: fences and trigger rounds continue above %d", o.Namespace, a.Base))
	}
	return p.Done(nil, fmt.Sprintf("adopted namespace %s: the highest number in %s and %s is %d; fences and trigger rounds continue above %d",
		o.Namespace, words.Count(a.Jobs, "job"), words.Count(a.Items, "item"), a.Highest, a.Base))
}
