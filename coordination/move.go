package coordination

import (
	"context"
	"errors"
	"fmt"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// Move is the next thing to ask of the registry: either a read or a commit,
// and what to do with the answer. Decisions are made of moves, so that they
// stay pure: they are given nodes and return the next move, and somebody else
// talks to the registry.
type Move struct {
	// Name is for messages: "reshard", "begin".
	Name   string
	Read   []registry.Query
	Commit []registry.Op
	// Then is given the nodes of the read, or the results of the commit. nil
	// ends the exchange.
	Then func(nodes []registry.Node, results []registry.Result) (Move, error)
	// Else is given the conflict of a commit that failed; nil passes it on.
	Else func(*registry.OpError) (Move, error)
	// Unknown is what to do if the commit may or may not have taken effect;
	// nil passes ErrUnknown on.
	Unknown func() (Move, error)
}

// errStopMove ends an exchange.
var errStopMove = errors.New("no move")

// Done ends an exchange.
func Done() (Move, error) { return Move{}, errStopMove }

// maxConflicts bounds an exchange, so that two hosts that keep contradicting
// each other give up and look again. How many moves it takes to get on is not
// bounded: a division of very many items is very many commits.
const maxConflicts = 200

// maxSame bounds how often the same node is found missing, or there, in one
// exchange: looking again does not change what an external edit has done to the tree.
const maxSame = 20

// Perform carries out a move and those that follow from it. It returns an
// error that names the move.
func Perform(ctx context.Context, r registry.Center, m Move) error {
	name := m.Name
	var last registry.OpError
	same := 0
	var failed error
	conflicts := 0
	for conflicts < maxConflicts {
		var next Move
		var err error
		next, failed, err = step(ctx, r, m)
		if errors.Is(err, errStopMove) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		m = next
		if failed == nil {
			continue
		}
		conflicts++
		var conflict *registry.OpError
		if !errors.As(failed, &conflict) || conflict.Reason == registry.ReasonVersion {
			same = 0
			continue
		}
		if same++; last.Op.Path != conflict.Op.Path || last.Reason != conflict.Reason {
			same = 1
		}
		if last = *conflict; same == maxSame {
			break
		}
	}
	return fmt.Errorf("%s: gave up after %d conflicts: %w", name, conflicts, failed)
}

// step carries out one move and returns the next. failed is why, if it was a
// commit that failed.
func step(ctx context.Context, r registry.Center, m Move) (next Move, failed, err error) {
	var nodes []registry.Node
	var results []registry.Result
	switch {
	case m.Commit != nil:
		results, err = r.Commit(ctx, m.Commit...)
		var conflict *registry.OpError
		switch {
		case errors.As(err, &conflict) && m.Else != nil:
			next, err = m.Else(conflict)
			return next, conflict, err
		case errors.Is(err, registry.ErrUnknown) && m.Unknown != nil:
			next, err = m.Unknown()
			return next, registry.ErrUnknown, err
		}
	case m.Read != nil:
		nodes, err = r.Read(ctx, m.Read...)
	default:
		return Move{}, nil, errStopMove
	}
	switch {
	case err != nil:
		return Move{}, nil, err
	case m.Then == nil:
		return Move{}, nil, errStopMove
	}
	next, err = m.Then(nodes, results)
	return next, nil, err
}
