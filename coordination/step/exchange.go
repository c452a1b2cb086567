package step

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// Exchange is what one step asks of the registry, request by request. It bounds the
// conflicts, and the denied commits, of all its requests together. It is for one goroutine.
type Exchange struct {
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

// Perform runs one step on a session. Its errors begin with the step's name and wrap
// those of the registry.
func Perform(ctx context.Context, r registry.Center, name string, step func(context.Context, *Exchange) error) error {
	if err := step(ctx, &Exchange{registry: r}); err != nil {
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

func (x *Exchange) mayGoOn() error {
	if x.conflicts >= maxConflicts || x.same >= maxSame {
		return &exhausted{x.conflicts, x.failed}
	}
	return nil
}

// Read asks for nodes in one request. Without queries it asks for nothing.
func (x *Exchange) Read(ctx context.Context, queries ...registry.Query) (registry.Snapshot, error) {
	found, denied, err := x.ReadSome(ctx, queries...)
	if err == nil && len(denied) > 0 {
		return nil, &registry.UnreadableError{Denied: denied}
	}
	return found, err
}

// ReadSome asks for nodes in one request, and goes on without those that the registry does not
// permit to read: they are not in found, and denied says why. [Exchange.Read] fails for one of them.
func (x *Exchange) ReadSome(ctx context.Context, queries ...registry.Query) (found registry.Snapshot, denied map[registry.Query]error, err error) {
	nodes, denied, err := x.ReadList(ctx, queries...)
	if err != nil || len(nodes) == 0 {
		return nil, nil, err
	}
	found = make(registry.Snapshot, len(nodes))
	for _, n := range nodes {
		if denied[n.Query] == nil {
			found[n.Query] = n
		}
	}
	return found, denied, nil
}

// ReadList is ReadSome for very many nodes: it returns them in the order of the queries. One that the registry does not
// permit to read is in the list, too, without what it holds; denied says why.
func (x *Exchange) ReadList(ctx context.Context, queries ...registry.Query) (nodes []registry.Node, denied map[registry.Query]error, err error) {
	if len(queries) == 0 {
		return nil, nil, nil
	}
	if err := x.mayGoOn(); err != nil {
		return nil, nil, err
	}
	nodes, err = x.registry.Read(ctx, queries...)
	var unreadable *registry.UnreadableError
	if errors.As(err, &unreadable) && len(nodes) == len(queries) {
		denied, err = unreadable.Denied, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return nodes, denied, nil
}

// ReadAfter asks for some nodes, and then for the others: what it finds of these is of no earlier moment.
// Within one request nodes are read in any order.
func (x *Exchange) ReadAfter(ctx context.Context, first []registry.Query, then ...registry.Query) (registry.Snapshot, error) {
	found, err := x.Read(ctx, first...)
	if err != nil {
		return nil, err
	}
	rest, err := x.Read(ctx, then...)
	if err != nil {
		return nil, err
	}
	maps.Copy(found, rest)
	return found, nil
}

// Commit applies all ops or none. [Contested], [ConflictOf] and [IsUnknown] say of its error what
// to do about it.
func (x *Exchange) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	if err := x.mayGoOn(); err != nil {
		return nil, err
	}
	results, err := x.registry.Commit(ctx, ops...)
	conflict := ConflictOf(err)
	if conflict == nil && !IsUnknown(err) && DeniedOf(err) == nil {
		return results, err
	}
	before := ConflictOf(x.failed)
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

// ConflictOf is the conflict that a commit met; nil if it was something else.
func ConflictOf(err error) *registry.OpError {
	var conflict *registry.OpError
	var end *exhausted
	if errors.As(err, &end) || !errors.As(err, &conflict) {
		return nil
	}
	return conflict
}

// DeniedOf says which op of a commit the registry does not permit; nil if the commit failed
// for something else. The same commit without that op, or without what it belongs to, may
// take effect.
func DeniedOf(err error) *registry.DeniedError {
	var denied *registry.DeniedError
	var end *exhausted
	if errors.As(err, &end) || !errors.As(err, &denied) {
		return nil
	}
	return denied
}

// IsUnknown reports that a commit may or may not have taken effect.
func IsUnknown(err error) bool {
	var end *exhausted
	return errors.Is(err, registry.ErrUnknown) && !errors.As(err, &end)
}

// Contested reports that a commit met a conflict, or that its outcome is unknown:
// look again.
func Contested(err error) bool { return ConflictOf(err) != nil || IsUnknown(err) }

// UnlessConflict is the error of a commit of which a conflict says only that it is
// not needed any more.
func UnlessConflict(err error) error {
	if ConflictOf(err) != nil {
		return nil
	}
	return err
}
