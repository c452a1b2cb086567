package coordination

import (
	"context"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// DropKills deletes the node once nothing that it names runs any more. One that
// was set since it was read stays, and so does one that is gone.
func DropKills(ctx context.Context, r registry.Center, l tree.Layout, self tree.JobInstance, version int32) error {
	return step.Perform(ctx, r, "end kill", func(ctx context.Context, x *step.Exchange) error {
		_, err := x.Commit(ctx, registry.Delete(l.Kill(self.ID), version))
		return step.UnlessConflict(err)
	})
}
