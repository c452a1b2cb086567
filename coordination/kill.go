package coordination

import (
	"context"
	"time"

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

// killKept is how long a kill is kept that its host does not answer: one of an
// earlier version cannot.
const killKept = time.Hour

// staleKill reports whether no host needs a kill any more.
func staleKill(n registry.Node, lives, listed bool, now time.Time) bool {
	return n.Exists && ((!lives && !listed) || now.Sub(n.Mtime) > killKept)
}
