package coordination

import (
	"context"
	"errors"
	"fmt"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// exchange is what one protocol step asks of the registry, request by request. A
// step reads nodes by name, decides by pure functions, commits, and looks again
// after a conflict. The exchange bounds the conflicts of all its requests together.
type exchange struct {
	registry  registry.Center
	conflicts int
	// failed is why the newest of the commits that failed did so; same is how often
	// in a row it was that the same node is there, or is not.
	failed error
	same   int
}

const (
	// maxConflicts bounds an exchange, so that two hosts that keep contradicting
	// each other give up and look again. The number of requests is not bounded: a
	// resharding of very many items is very many commits.
	maxConflicts = 200
	// maxSame bounds how often the same node is found missing, or there, in one
	// exchange: another look does not undo an external edit.
	maxSame = 20
)

// perform runs one protocol step. Its errors begin with the step's name.
func perform(ctx context.Context, r registry.Center, name string, step func(context.Context, *exchange) error) error {
	if err := step(ctx, &exchange{registry: r}); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// exhausted is the error of an exchange that met too many conflicts.
type exhausted struct {
	conflicts int
	last      error
}

func (e *exhausted) Error() string {
	return fmt.Sprintf("gave up after %d conflicts: %v", e.conflicts, e.last)
}

func (e *exhausted) Unwrap() error { return e.last }

func (x *exchange) mayGoOn() error {
	if x.conflicts >= maxConflicts || x.same >= maxSame {
		return &exhausted{x.conflicts, x.failed}
	}
	return nil
}

// read asks for nodes in one request. Without queries it asks for nothing.
func (x *exchange) read(ctx context.Context, queries ...registry.Query) (registry.Snapshot, error) {
	if len(queries) == 0 {
		return nil, nil
	}
	if err := x.mayGoOn(); err != nil {
		return nil, err
	}
	nodes, err := x.registry.Read(ctx, queries...)
	if err != nil {
		return nil, err
	}
	found := make(registry.Snapshot, len(nodes))
	for _, n := range nodes {
		found[n.Query] = n
	}
	return found, nil
}

// commit applies all ops or none. [contested], [conflictOf] and [isUnknown] say of its error what
// to do about it.
func (x *exchange) commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	if err := x.mayGoOn(); err != nil {
		return nil, err
	}
	results, err := x.registry.Commit(ctx, ops...)
	conflict := conflictOf(err)
	if conflict == nil && !isUnknown(err) {
		return results, err
	}
	before := conflictOf(x.failed)
	x.failed = err
	x.conflicts++
	switch {
	case conflict == nil || conflict.Reason == registry.ReasonVersion:
		x.same = 0
	case before != nil && before.Op.Path == conflict.Op.Path && before.Reason == conflict.Reason:
		x.same++
	default:
		x.same = 1
	}
	return nil, err
}

// conflictOf is the conflict that a commit met; nil if it was something else.
func conflictOf(err error) *registry.OpError {
	var conflict *registry.OpError
	var end *exhausted
	if errors.As(err, &end) || !errors.As(err, &conflict) {
		return nil
	}
	return conflict
}

// isUnknown reports that a commit may or may not have taken effect.
func isUnknown(err error) bool {
	var end *exhausted
	return errors.Is(err, registry.ErrUnknown) && !errors.As(err, &end)
}

// contested reports that a commit met a conflict, or that its outcome is unknown:
// look again.
func contested(err error) bool { return conflictOf(err) != nil || isUnknown(err) }

// unlessConflict is the error of a commit of which a conflict says only that it is
// not needed any more.
func unlessConflict(err error) error {
	if conflictOf(err) != nil {
		return nil
	}
	return err
}
