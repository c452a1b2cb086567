package step

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// Exchange is the sequence of one step's requests to the registry. It bounds their conflicts and denied commits
// in total. It is for one goroutine.
type Exchange struct {
	registry  registry.Center
	conflicts int
	// failed is the error of the last failed commit; same is how often in a row the reason was the same node's
	// existence or absence.
	failed error
	same   int
}

const (
	// maxConflicts bounds an exchange, so that two hosts that keep conflicting give up and start over. The
	// number of requests is not bounded: a resharding of very many items is very many commits.
	maxConflicts = 200
	// maxSame bounds how often the same node is found missing, or present, in one exchange: a retry does not
	// undo an external edit.
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

// Read reads nodes in one request. Without queries it makes none.
func (x *Exchange) Read(ctx context.Context, queries ...registry.Query) (registry.Snapshot, error) {
	found, denied, err := x.ReadSome(ctx, queries...)
	if err == nil && len(denied) > 0 {
		return nil, &registry.UnreadableError{Denied: denied}
	}
	return found, err
}

// ReadSome reads nodes in one request, and omits from found those that the registry does not permit to read;
// denied says why. [Exchange.Read] fails for such a node.
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

// Commit applies all ops or none. [Contested], [ConflictOf] and [IsUnknown] classify its error.
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

// ConflictOf returns the conflict of a commit; nil if it failed for another reason.
func ConflictOf(err error) *registry.OpError {
	var conflict *registry.OpError
	var end *exhausted
	if errors.As(err, &end) || !errors.As(err, &conflict) {
		return nil
	}
	return conflict
}

// DeniedOf returns which op of a commit the registry does not permit; nil if the commit failed for another
// reason. The commit may succeed without that op and those that belong to it.
func DeniedOf(err error) *registry.DeniedError {
	var denied *registry.DeniedError
	var end *exhausted
	if errors.As(err, &end) || !errors.As(err, &denied) {
		return nil
	}
	return denied
}

// IsUnknown reports whether a commit may or may not have taken effect.
func IsUnknown(err error) bool {
	var end *exhausted
	return errors.Is(err, registry.ErrUnknown) && !errors.As(err, &end)
}

// Contested reports whether a commit met a conflict, or its outcome is unknown: read again.
func Contested(err error) bool { return ConflictOf(err) != nil || IsUnknown(err) }

// UnlessConflict returns the error of a commit that is no longer needed after a conflict: nil for a conflict.
func UnlessConflict(err error) error {
	if ConflictOf(err) != nil {
		return nil
	}
	return err
}
