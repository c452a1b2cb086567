package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/host/command"
	"github.com/wasmjob/wasmjob/host/words"
)

func adoptCommand(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "adopt --zk SERVERS --namespace NS",
		Short: "Use a ZooKeeper whose nodes were copied from another one",
		Long: `Let hosts use a namespace whose nodes were copied to another ZooKeeper, or
restored to a new one from a backup of nodes. Transaction numbers begin anew there,
and fences and trigger rounds with them; hosts see that in the items' records and do
not join. From now on a number is added to all transactions of the namespace, so
that fences go on above those that were given out before.

Run it once, after copying. Hosts that wait join within a minute. No host may be
in any job of the namespace. A registry that is no copy is left as it is.`,
		Example: "  wasmjob adopt --zk zk1:2181,zk2:2181 --namespace prod",
		Args:    command.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return adopt(cmd.Context(), p, cmd)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	addRegistryFlags(cmd.Flags())
	return cmd
}

func adopt(ctx context.Context, p *program, cmd *cobra.Command) error {
	o, err := openNamespace(ctx, p, cmd.Flags(), true)
	if err != nil {
		return err
	}
	a, err := o.Jobs.Adopt(ctx)
	if err = errors.Join(err, o.Close()); err != nil {
		return err
	}
	return p.Done(nil, fmt.Sprintf("adopted namespace %s: the highest number in %s and %s is %d; fences and trigger rounds go on above %d",
		o.Namespace, words.Count(a.Jobs, "job"), words.Count(a.Items, "item"), a.Highest, a.Base))
}
