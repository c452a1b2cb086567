package operate

import (
	"context"
	"errors"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// TriggerAfter triggers a job because of a trigger of the jobs that it comes after: once for each, however often and
// on whatever host it is called, for the round is written in one commit with the node after. why says that it is
// not triggered; empty if it is, or was. If nothing would run, it is not. The error is an [ErrTriggerWaits] while an earlier
// trigger waits that asks for something else: call it again.
func TriggerAfter(ctx context.Context, r registry.Center, l tree.Layout, caused tree.ChainedRound) (why string, err error) {
	err = step.Perform(ctx, r, "trigger after other jobs", func(ctx context.Context, x *step.Exchange) error {
		for {
			n, err := x.Read(ctx, registry.Data(l.Config()), registry.Children(l.Instances()), registry.Data(l.Triggers()), registry.Children(l.Triggers()), registry.Data(l.Assignment()), registry.Data(l.Chained()))
			if err != nil {
				return err
			}
			if !n.Data(l.Config()).Exists {
				return tree.ErrRemoved
			}
			node := n.Data(l.Chained())
			chained := tree.ParseChained(node.Data, node.Mzxid)
			if chained.Has(caused.Root) {
				return nil
			}
			t := triggering{layout: l, parent: n.Data(l.Triggers()), instances: n.Children(l.Instances()), waiting: n.Children(l.Triggers()),
				division: tree.ParseDivision(n.Data(l.Assignment()).Data)}
			ops := []registry.Op{registry.Check(l.Config(), registry.AnyVersion)}
			next := caused
			switch err := t.check(ctx, x, n.Data(l.Config()).Data); {
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
