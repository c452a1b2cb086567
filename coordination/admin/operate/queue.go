package operate

import (
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

// ErrQueueFull refuses a trigger: the job's queue has reached its limit.
var ErrQueueFull = errors.New("the queue of triggers is full")

// Made is the result of a trigger.
type Made struct {
	// Round is the number of its round; 0 if it is queued.
	Round int64
	// Earlier is the earlier trigger with which this one was merged, because an instance has not begun that
	// one. It happens only in a job with hosts that know no queue.
	Earlier int64
	// Queued is its number in the queue; 0 if it is not queued. Ahead is how many triggers wait before it,
	// including the one that hosts have not begun.
	Queued int64
	Ahead  int
}

// Dropped is a trigger that left the queue without a round.
type Dropped struct {
	tree.QueuedTrigger
	// Why is tree.ErrRemoved, or the error with which [TriggerWith] would refuse it.
	Why error
}

// AdvanceQueue makes the round of the first queued trigger, if no earlier round waits. Each host calls it when
// it has begun items of a round, and the leader with each division that finds a queue, so that a queue
// continues when a host dies. It is one read while nothing is queued. A trigger that the job can no longer run
// leaves the queue and is reported to exactly one caller, also with an error.
func AdvanceQueue(ctx context.Context, r registry.Center, l tree.Layout) (dropped []Dropped, err error) {
	err = step.Perform(ctx, r, "begin the next queued trigger", func(ctx context.Context, x *step.Exchange) error {
		for more := true; more; {
			var some []Dropped
			if some, more, err = advance(ctx, x, l, true); err != nil {
				return err
			}
			dropped = append(dropped, some...)
		}
		return nil
	})
	return dropped, err
}

// advance does one step of AdvanceQueue. more is set if another step may follow. Without drop, for a caller
// that reports nothing, a trigger that the job cannot run is left to a host, and the error is an
// [ErrTriggerWaits].
func advance(ctx context.Context, x *step.Exchange, l tree.Layout, drop bool) (dropped []Dropped, more bool, err error) {
	n, err := x.Read(ctx, registry.Data(l.Queue()))
	if err != nil {
		return nil, false, err
	}
	node := n.Data(l.Queue())
	queue := tree.ParseQueue(node.Data, node.Mzxid)
	if len(queue.Triggers) == 0 {
		return nil, false, nil
	}
	t, config, err := readTriggering(ctx, x, l)
	if err != nil {
		return nil, false, err
	}
	var ops []registry.Op
	for _, q := range queue.Triggers {
		if config.Exists && config.Czxid < q.Number {
			break
		}
		dropped = append(dropped, Dropped{q, tree.ErrRemoved}) // it belonged to the job that was removed
	}
	if len(dropped) == 0 {
		if len(t.instances) == 0 {
			return nil, false, nil
		}
		if _, waits, err := t.waits(ctx, x); err != nil || waits != nil {
			return nil, false, err // the host that begins that one calls again
		}
		t.args = queue.Triggers[0].Round()
		var bad *tree.ArgError
		switch err := t.check(ctx, x, config.Data); {
		case errors.Is(err, ErrNothingRuns), errors.Is(err, ErrNoTriggerArgs), errors.As(err, &bad):
			dropped = []Dropped{{queue.Triggers[0], err}}
		case err != nil:
			return nil, false, err
		default:
			ops = t.ops()
		}
	}
	if len(dropped) > 0 && !drop {
		return nil, false, fmt.Errorf("%w: a host of the job has still to drop a queued one; try again in a moment", ErrTriggerWaits)
	}
	rest := queue.Rest(max(len(dropped), 1))
	ops = append(ops, registry.Set(l.Queue(), rest.Data(), node.Version))
	if !config.Exists {
		if ops, err = clearQueue(ctx, x, l, node); err != nil {
			return nil, false, err
		}
	}
	_, err = x.Commit(ctx, ops...)
	switch {
	case step.Contested(err):
		return nil, true, nil
	case err != nil:
		return nil, false, err
	}
	return dropped, len(dropped) > 0, nil
}

// clearQueue returns the ops that delete the queue of a removed job, and its parent node if a purge has left
// nothing else there.
func clearQueue(ctx context.Context, x *step.Exchange, l tree.Layout, node registry.Node) ([]registry.Op, error) {
	n, err := x.Read(ctx, registry.Children(l.Records()))
	if err != nil {
		return nil, err
	}
	ops := []registry.Op{registry.Delete(l.Queue(), node.Version)}
	if len(n.Children(l.Records())) == 1 {
		ops = append(ops, registry.Delete(l.Records(), registry.AnyVersion))
	}
	return ops, nil
}

// enqueue returns the ops that queue the trigger behind an earlier one; guard proves that the earlier one still
// waits. most is the limit of the job's queue.
func (t *triggering) enqueue(most int, guard registry.Op) ([]registry.Op, error) {
	if t.queue.Full(most, t.args) {
		waiting := fmt.Sprintf("%d triggers wait", len(t.queue.Triggers))
		if len(t.queue.Triggers) == 1 {
			waiting = "1 trigger waits"
		}
		return nil, fmt.Errorf("%w: %s behind the one that has not begun, and the job allows %d (queueMax); try again when some have run, or '%s' ends what runs",
			ErrQueueFull, waiting, most, words.Command("job kill", t.layout.Job))
	}
	version := int32(0)
	if t.queueNode.Exists {
		version = t.queueNode.Version
	}
	l := t.layout
	return []registry.Op{registry.Check(l.Config(), registry.AnyVersion), guard, registry.Ensure(l.Records()), registry.Ensure(l.Queue()), registry.Set(l.Queue(), t.queue.With(t.args).Data(), version)}, nil
}

// knowQueues reports whether all hosts of the job begin queued triggers; hosts of ElasticJob and of earlier versions do not.
func (t *triggering) knowQueues(ctx context.Context, x *step.Exchange) (bool, error) {
	var read []registry.Query
	for _, id := range t.instances {
		read = append(read, registry.Data(t.layout.Detail(id)))
	}
	n, err := x.Read(ctx, read...)
	if err != nil {
		return false, err
	}
	for _, id := range t.instances {
		if !tree.ParseDetail(n.Data(t.layout.Detail(id)).Data).TriggerQueue {
			return false, nil
		}
	}
	return true, nil
}

// queueMax is how many triggers the configuration lets wait.
func queueMax(config []byte) int {
	c, _, _ := jobconfig.Parse(config)
	g, _ := c.Guest() // what cannot be read has its default
	return g.QueueMax
}

// Triggers are a job's triggers that have not begun.
type Triggers struct {
	// First has a round and has not begun on all hosts; nil if there is none.
	First *FirstTrigger
	// Queue are the triggers behind it, the oldest first.
	Queue []tree.QueuedTrigger
}

// FirstTrigger is a trigger that has not begun on all hosts.
type FirstTrigger struct {
	// Round is its number, Since when it was made.
	Round int64
	Since time.Time
	Args  tree.TriggerArgs
	// Hosts are the instances that have not begun it, ascending; Items moved before they began it, and begin it
	// on their new owner.
	Hosts []string
	Items tree.Items
}

// ReadTriggers reads which triggers of a job have not begun, and what they wait for. It makes one read, and
// another one while items still have to run in a round.
func ReadTriggers(ctx context.Context, r registry.Center, l tree.Layout) (out Triggers, err error) {
	err = step.Perform(ctx, r, "read the triggers that wait", func(ctx context.Context, x *step.Exchange) error {
		t, config, err := readTriggering(ctx, x, l)
		if err != nil {
			return err
		}
		if !config.Exists {
			return tree.ErrRemoved
		}
		first := FirstTrigger{Round: t.parent.Mzxid, Since: t.parent.Mtime, Args: tree.ParseTriggerArgs(t.parent.Data), Hosts: t.keepers()}
		if first.Items, _, err = t.owing(ctx, x, first.Args); err != nil {
			return err
		}
		out = Triggers{Queue: t.queue.Triggers}
		if len(first.Hosts)+len(first.Items) > 0 {
			out.First = &first
		}
		return nil
	})
	return out, err
}
