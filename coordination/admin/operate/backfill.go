package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Runs of past instants. A backfill is a node below those of the items' records, which the leader lists with
// each division: a job without a backfill needs no request for it. One host, the janitor, watches the node and
// makes a trigger round for one instant after the other ([GiveInstant]), in one commit with the count of
// instants given out. The rounds are handled like any trigger; a new janitor continues after the last round.

var (
	// ErrBackfillRuns refuses a second backfill of a job.
	ErrBackfillRuns = errors.New("another backfill goes on")
	// ErrNoBackfill: there is none to cancel.
	ErrNoBackfill = errors.New("no backfill goes on")
)

// StartBackfill begins a backfill. It is refused if another one goes on ([ErrBackfillRuns]), and for the
// reasons that refuse a trigger: nothing would run, or a host does not know backfills.
func StartBackfill(ctx context.Context, r registry.Center, l tree.Layout, b tree.Backfill) error {
	b.Total, b.Done = len(b.Instants), 0
	if err := b.Validate(); err != nil {
		return err
	}
	return step.Perform(ctx, r, "begin a backfill", func(ctx context.Context, x *step.Exchange) error {
		for {
			f, err := readBackfilling(ctx, x, l)
			if err != nil {
				return err
			}
			if going, ok := tree.ParseBackfill(f.node.Data); ok {
				if going.Same(b) { // the answer to its begin was lost
					return nil
				}
				return fmt.Errorf("%w: that of %s to %s, with %d of %d instants given out; '%s' ends it", ErrBackfillRuns,
					at(going.From), at(going.To), going.Done, going.Total, words.Command("job backfill", l.Job, "--cancel"))
			}
			if len(f.instances) == 0 {
				return fmt.Errorf("%w: no host has the job; '%s' says why, as far as that is known", ErrNothingRuns, words.Command("why", l.Job))
			}
			f.args = b.Args()
			if err := f.check(ctx, x, f.config.Data); err != nil {
				return err
			}
			ops := []registry.Op{registry.Check(l.Config(), registry.AnyVersion), registry.Ensure(l.Records())}
			if f.node.Exists { // it cannot be read: an external edit
				ops = append(ops, registry.Delete(l.Backfill(), f.node.Version))
			}
			ops = append(ops, registry.Create(l.Backfill(), b.Data()))
			switch {
			case f.division.Backfill: // a host watches the node
				ops = append(ops, registry.Check(l.Assignment(), f.assignment.Version))
			case f.flag.Exists:
				ops = append(ops, registry.Check(l.Necessary(), registry.AnyVersion))
			default:
				ops = append(ops, registry.Ensure(l.ShardingFlags()), registry.Create(l.Necessary(), nil))
			}
			if _, err = x.Commit(ctx, ops...); !step.Contested(err) {
				return err
			}
		}
	})
}

// GiveInstant makes a round of the next instant of a backfill as the caller knows it, or ends the backfill if
// all were given out. It does nothing if the backfill has advanced since, or is gone. The error is an
// [ErrTriggerWaits] while a host has not begun an earlier trigger, or another refusal while the trigger could
// not begin: call it again then.
func GiveInstant(ctx context.Context, r registry.Center, l tree.Layout, known tree.Backfill, now time.Time) error {
	return step.Perform(ctx, r, "go on with a backfill", func(ctx context.Context, x *step.Exchange) error {
		for {
			f, err := readBackfilling(ctx, x, l)
			if err != nil {
				return err
			}
			b, ok := tree.ParseBackfill(f.node.Data)
			if !ok || !b.Same(known) || b.Done != known.Done {
				return nil
			}
			var ops []registry.Op
			if b.GivenOut() {
				if tree.ParseTriggerArgs(f.parent.Data).Backfill {
					if _, refusal, err := f.waits(ctx, x); err != nil || refusal != nil {
						return cmp.Or(err, refusal)
					}
				}
				ops = f.end(b, now.UnixMilli(), "")
			} else {
				f.args = b.Args()
				if err := f.check(ctx, x, f.config.Data); err != nil {
					return err
				}
				if _, refusal, err := f.waits(ctx, x); err != nil || refusal != nil {
					return cmp.Or(err, refusal)
				}
				if n := len(f.queue.Triggers); n > 0 {
					return fmt.Errorf("%w: the queue has %s, and the backfill goes on behind it", ErrTriggerWaits, words.Count(n, "trigger"))
				}
				ops = append(f.ops(), registry.Set(l.Backfill(), b.Next().Data(), f.node.Version))
			}
			if _, err = x.Commit(ctx, ops...); !step.Contested(err) {
				return err
			}
		}
	})
}

// CancelBackfill ends a backfill: no further instant is given out; instants that were given out still run. It
// returns the ended backfill. The error is an [ErrNoBackfill] if none goes on.
func CancelBackfill(ctx context.Context, r registry.Center, l tree.Layout, by string, now time.Time) (ended tree.Backfill, err error) {
	err = step.Perform(ctx, r, "cancel a backfill", func(ctx context.Context, x *step.Exchange) error {
		for {
			f, err := readBackfilling(ctx, x, l)
			if err != nil {
				return err
			}
			b, ok := tree.ParseBackfill(f.node.Data)
			if !f.node.Exists {
				last, ok := tree.ParseBackfill(f.last.Data)
				if ok && last.Ended == now.UnixMilli() && last.Cancelled == by { // the answer was lost
					ended = last
					return nil
				}
				return ErrNoBackfill
			}
			ops := f.end(b, now.UnixMilli(), by)
			if !ok { // it cannot be read: an external edit
				ops = []registry.Op{registry.Delete(l.Backfill(), f.node.Version)}
			}
			if _, err = x.Commit(ctx, ops...); !step.Contested(err) {
				ended = b.End(now.UnixMilli(), by)
				return err
			}
		}
	})
	return ended, err
}

// Backfills are the backfills of a job; each is nil if there is none.
type Backfills struct {
	// Now is the current backfill, Last the last one that ended.
	Now, Last *tree.Backfill
}

// ReadBackfills reads a job's backfills.
func ReadBackfills(ctx context.Context, r registry.Center, l tree.Layout) (all Backfills, err error) {
	err = step.Perform(ctx, r, "read backfills", func(ctx context.Context, x *step.Exchange) error {
		n, err := x.Read(ctx, registry.Data(l.Backfill()), registry.Data(l.LastBackfill()))
		if err != nil {
			return err
		}
		all = Backfills{}
		if b, ok := tree.ParseBackfill(n.Data(l.Backfill()).Data); ok {
			all.Now = &b
		}
		if b, ok := tree.ParseBackfill(n.Data(l.LastBackfill()).Data); ok {
			all.Last = &b
		}
		return nil
	})
	return all, err
}

// CheckArgs checks the arguments of a trigger or backfill as these would: it refuses items that the job does
// not have, and declared arguments that are missing or wrong. It writes nothing.
func CheckArgs(ctx context.Context, r registry.Center, l tree.Layout, args tree.TriggerArgs) error {
	return step.Perform(ctx, r, "check the arguments", func(ctx context.Context, x *step.Exchange) error {
		n, err := x.Read(ctx, registry.Data(l.Config()))
		if err != nil {
			return err
		}
		config := n.Data(l.Config())
		if !config.Exists {
			return tree.ErrRemoved
		}
		c, _, err := jobconfig.Parse(config.Data)
		if err != nil {
			return fmt.Errorf("the job's configuration cannot be read: %w", err)
		}
		_, err = args.In(c)
		return err
	})
}

// backfilling is a step of a backfill: what was read.
type backfilling struct {
	triggering
	config, assignment, flag, node, last registry.Node
}

func readBackfilling(ctx context.Context, x *step.Exchange, l tree.Layout) (*backfilling, error) {
	t, config, err := readTriggering(ctx, x, l)
	if err != nil {
		return nil, err
	}
	if !config.Exists {
		return nil, tree.ErrRemoved
	}
	n, err := x.Read(ctx, registry.Data(l.Assignment()), registry.Data(l.Necessary()), registry.Data(l.Backfill()), registry.Data(l.LastBackfill()))
	if err != nil {
		return nil, err
	}
	return &backfilling{
		triggering: t, config: config, assignment: n.Data(l.Assignment()), flag: n.Data(l.Necessary()), node: n.Data(l.Backfill()), last: n.Data(l.LastBackfill()),
	}, nil
}

// end are the ops that end a backfill.
func (f *backfilling) end(b tree.Backfill, now int64, cancelled string) []registry.Op {
	l := f.layout
	last := b.End(now, cancelled).Data()
	ops := []registry.Op{registry.Check(l.Config(), registry.AnyVersion), registry.Delete(l.Backfill(), f.node.Version)}
	if f.last.Exists {
		return append(ops, registry.Set(l.LastBackfill(), last, f.last.Version))
	}
	return append(ops, registry.Create(l.LastBackfill(), last))
}

// at formats an instant for people.
func at(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }
