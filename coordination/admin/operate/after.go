package operate

import (
	"context"
	"errors"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// TriggerAfter triggers a job because of a trigger of the jobs that it comes after. It does so once for each
// such trigger, however often and on whatever host it is called: the round and the node "after" are written in
// one commit. why says why the job was not triggered; it is empty if it is or was. If nothing would run, the
// job is not triggered. The error is an [ErrTriggerWaits] while an earlier trigger with other arguments waits:
// call it again.
func TriggerAfter(ctx context.Context, r registry.Center, l tree.Layout, caused tree.ChainedRound) (why string, err error) {
	err = step.Perform(ctx, r, "trigger after other jobs", func(ctx context.Context, x *step.Exchange) error {
		for {
			t, config, err := readTriggering(ctx, x, l)
			if err != nil {
				return err
			}
			if !config.Exists {
				return tree.ErrRemoved
			}
			n, err := x.Read(ctx, registry.Data(l.Chained()))
			if err != nil {
				return err
			}
			node := n.Data(l.Chained())
			chained := tree.ParseChained(node.Data, node.Mzxid)
			if chained.Has(caused.Root) {
				return nil
			}
			ops := []registry.Op{registry.Check(l.Config(), registry.AnyVersion)}
			next := caused
			switch err := t.checkAlone(ctx, x, config.Data); {
			case errors.Is(err, ErrNothingRuns):
				why = err.Error()
				next.Skipped = why
			case err != nil:
				return err
			default:
				why, ops = "", t.ops()
			}
			version := int32(0)
			if node.Exists {
				version = node.Version
			} else {
				ops = append(ops, registry.Create(l.Chained(), nil))
			}
			ops = append(ops, registry.Set(l.Chained(), chained.With(next).Data(), version))
			if _, err = x.Commit(ctx, ops...); !step.Contested(err) {
				return err
			}
		}
	})
	return why, err
}

// checkAlone is check for a trigger that cannot be queued: it is refused while an earlier trigger with other
// arguments waits.
func (t *triggering) checkAlone(ctx context.Context, x *step.Exchange, config []byte) error {
	if err := t.check(ctx, x, config); err != nil || tree.ParseTriggerArgs(t.parent.Data).Same(t.args) {
		return err
	}
	_, waits, err := t.waits(ctx, x)
	if err != nil {
		return err
	}
	return waits
}
