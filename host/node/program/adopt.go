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
		Short: "Use a ZooKeeper that was copied from another one, or has gone back",
		Long: `Let hosts use a namespace whose nodes were copied to another ZooKeeper, or a
ZooKeeper that was restored from a backup. Transaction numbers begin again there, or
go back, and fences and trigger rounds with them; hosts see that and begin nothing.
From now on a number is added to all transactions of the namespace, so that fences
go on above those that were given out before.

Without --above it looks at the items' records for the highest number, and leaves a
registry that is no copy as it is. A backup does not show in the records: give the
number that the hosts' messages name. Hosts that wait begin at once.`,
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
	cmd.Flags().Int64Var(&above, "above", 0, "the greatest number `N` that was given out before")
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
		return p.Done(nil, fmt.Sprintf("adopted namespace %s: fences and trigger rounds go on above %d", o.Namespace, a.Base))
	}
	return p.Done(nil, fmt.Sprintf("adopted namespace %s: the highest number in %s and %s is %d; fences and trigger rounds go on above %d",
		o.Namespace, words.Count(a.Jobs, "job"), words.Count(a.Items, "item"), a.Highest, a.Base))
}
