package coordination

import (
	"context"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
)

// MarkMisfire makes ElasticJob's misfire marks, for consoles and for the owner
// after a resharding. The host itself remembers what it missed.
func MarkMisfire(ctx context.Context, r registry.Center, l Layout, items Items) error {
	return step.Perform(ctx, r, "mark misfire", func(ctx context.Context, x *step.Exchange) error {
		for len(items) > 0 {
			var ops []registry.Op
			for _, i := range items {
				ops = append(ops, registry.Create(l.itemMisfire(i), nil))
			}
			part := step.FirstPart(ops)
			_, err := x.Commit(ctx, part...)
			if err == nil {
				items = items[len(part):]
				continue
			}
			if step.ConflictOf(err) == nil {
				return err
			}

			// Some items have the mark, or are gone.
			var read []registry.Query
			for _, i := range items {
				read = append(read, registry.Data(l.item(i)), registry.Data(l.itemMisfire(i)))
			}
			n, err := x.Read(ctx, read...)
			if err != nil {
				return err
			}
			var left Items
			for _, i := range items {
				if n.Data(l.item(i)).Exists && !n.Data(l.itemMisfire(i)).Exists {
					left = append(left, i)
				}
			}
			items = left
		}
		return nil
	})
}

// RegistryTime asks for the registry's clock. It returns ErrRemoved for a job that
// is not in the registry, and does not bring it back.
func RegistryTime(ctx context.Context, r registry.Center, l Layout) (now time.Time, err error) {
	err = step.Perform(ctx, r, "read registry time", func(ctx context.Context, x *step.Exchange) error {
		results, err := x.Commit(ctx, registry.Check(l.config(), registry.AnyVersion), registry.Ensure(l.systemTime()), registry.Set(l.systemTime(), nil, registry.AnyVersion))
		if conflict := step.ConflictOf(err); conflict != nil && conflict.Index == 0 {
			return ErrRemoved
		}
		if err != nil {
			return err
		}
		now = results[2].Time
		return nil
	})
	return now, err
}
