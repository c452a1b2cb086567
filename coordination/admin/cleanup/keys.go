package cleanup

import (
	"context"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/recipe/rate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// KeysIdle is how long the node of a rate must be unwritten before it may be removed. It is much longer than
// hosts cache what they know of the node: a node that is recreated begins with version 0.
const KeysIdle = 10 * time.Minute

// keysAtOnce is how many keys are read in one request.
const keysAtOnce = 200

// Keys removes the nodes of limits and rates that hold nothing: no ticket, and no begin, place or pause that
// still counts. Such nodes pile up because a key with a job parameter in its template may be used only once.
// now is the registry's clock. The janitor of a job under a limit or a rate calls it at the slow reconcile
// interval. It returns how many nodes were removed.
func Keys(ctx context.Context, r registry.Center, namespace string, now time.Time) (removed int, err error) {
	err = step.Perform(ctx, r, "remove the nodes of unused limits", func(ctx context.Context, x *step.Exchange) error {
		limits, rates := registry.Children(tree.Limits(namespace)), registry.Children(tree.Rates(namespace))
		n, err := x.Read(ctx, limits, rates)
		if err != nil {
			return err
		}
		for names := range slices.Chunk(n.Children(limits.Path), keysAtOnce) {
			var lines []registry.Query
			for _, name := range names {
				lines = append(lines, registry.Children(limits.Path+"/"+name))
			}
			n, err := x.Read(ctx, lines...)
			if err != nil {
				return err
			}
			for _, line := range lines {
				if len(n.Children(line.Path)) > 0 {
					continue
				}
				if err := remove(ctx, x, registry.Delete(line.Path, registry.AnyVersion), &removed); err != nil {
					return err
				}
			}
		}
		for names := range slices.Chunk(n.Children(rates.Path), keysAtOnce) {
			var keys []registry.Query
			for _, name := range names {
				keys = append(keys, registry.Data(rates.Path+"/"+name))
			}
			n, err := x.Read(ctx, keys...)
			if err != nil {
				return err
			}
			for _, key := range keys {
				node := n.Data(key.Path)
				if !node.Exists || now.Sub(node.Mtime) < KeysIdle || !rate.Parse(node.Data, now.UnixMilli()).Empty(now.UnixMilli()) {
					continue
				}
				if err := remove(ctx, x, registry.Delete(key.Path, node.Version), &removed); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return removed, err
}

// remove deletes a node, unless it is in use or already gone.
func remove(ctx context.Context, x *step.Exchange, op registry.Op, removed *int) error {
	_, err := x.Commit(ctx, op)
	if err == nil {
		*removed++
	}
	return step.UnlessConflict(err)
}
