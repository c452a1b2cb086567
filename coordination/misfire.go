package coordination

import (
	"context"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// MarkMisfire creates ElasticJob's misfire marks, for consoles and for the next owner after a resharding. The
// host itself remembers what it missed. If the registry denies some marks the others are created, and the error
// is that of one denied mark.
func MarkMisfire(ctx context.Context, r registry.Center, l tree.Layout, items tree.Items) error {
	return step.Perform(ctx, r, "mark misfire", func(ctx context.Context, x *step.Exchange) error {
		var denied error
		for len(items) > 0 {
			var ops []registry.Op
			for _, i := range items {
				ops = append(ops, registry.Create(l.ItemMisfire(i), nil))
			}
			part := step.FirstPart(ops)
			_, err := x.Commit(ctx, part...)
			if err == nil {
				items = items[len(part):]
				continue
			}
			if d := step.DeniedOf(err); d != nil {
				items, denied = without(items, items[d.Index]), err
				continue
			}
			if step.ConflictOf(err) == nil {
				return err
			}

			// Some items have the mark, or are gone.
			var read []registry.Query
			for _, i := range items {
				read = append(read, registry.Data(l.Item(i)), registry.Data(l.ItemMisfire(i)))
			}
			n, unread, err := x.ReadSome(ctx, read...)
			if err != nil {
				return err
			}
			if len(unread) > 0 {
				denied = &registry.UnreadableError{Denied: unread}
			}
			var left tree.Items
			for _, i := range items {
				if unread[registry.Data(l.ItemMisfire(i))] == nil && n.Data(l.Item(i)).Exists && !n.Data(l.ItemMisfire(i)).Exists {
					left = append(left, i)
				}
			}
			items = left
		}
		return denied
	})
}

// RegistryTime returns the time of the registry's clock. It returns tree.ErrRemoved for a job that is not in
// the registry, and does not recreate it.
func RegistryTime(ctx context.Context, r registry.Center, l tree.Layout) (now time.Time, err error) {
	err = step.Perform(ctx, r, "read registry time", func(ctx context.Context, x *step.Exchange) error {
		results, err := x.Commit(ctx, registry.Check(l.Config(), registry.AnyVersion), registry.Ensure(l.SystemTime()), registry.Set(l.SystemTime(), nil, registry.AnyVersion))
		if conflict := step.ConflictOf(err); conflict != nil && conflict.Index == 0 {
			return tree.ErrRemoved
		}
		if err != nil {
			return err
		}
		now = results[2].Time
		return nil
	})
	return now, err
}
