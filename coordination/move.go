package coordination

import (
	"context"
	"errors"
	"fmt"
)

// Move is the next thing to ask of the registry: either a read or a commit,
// and what to do with the answer. Decisions are made of moves, so that they
// stay pure: they are given nodes and return the next move, and somebody else
// talks to the registry.
type Move struct {
	// Name is for messages: "reshard", "begin".
	Name   string
	Read   []Query
	Commit []Op
	// Then is given the nodes of the read, or the results of the commit. nil
	// ends the exchange.
	Then func(nodes []Node, results []Result) (Move, error)
	// Else is given the conflict of a commit that failed; nil passes it on.
	Else func(*OpError) (Move, error)
	// Unknown is what to do if the commit may or may not have taken effect;
	// nil passes ErrUnknown on.
	Unknown func() (Move, error)
}

// errStopMove ends an exchange.
var errStopMove = errors.New("no move")

// Done ends an exchange.
func Done() (Move, error) { return Move{}, errStopMove }

// maxMoves bounds an exchange, so that two hosts that keep contradicting each
// other give up and look again.
const maxMoves = 200

// Perform carries out a move and those that follow from it. It returns an
// error that names the move.
func Perform(ctx context.Context, r RegistryCenter, m Move) error {
	name := m.Name
	for range maxMoves {
		next, err := step(ctx, r, m)
		if errors.Is(err, errStopMove) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		m = next
	}
	return fmt.Errorf("%s: gave up after %d exchanges: %w", name, maxMoves, ErrConflict)
}

func step(ctx context.Context, r RegistryCenter, m Move) (Move, error) {
	if m.Commit == nil && m.Read == nil {
		return Done()
	}
	var nodes []Node
	var results []Result
	var err error
	if m.Commit != nil {
		results, err = r.Commit(ctx, m.Commit...)
		var conflict *OpError
		switch {
		case errors.As(err, &conflict) && m.Else != nil:
			return m.Else(conflict)
		case errors.Is(err, ErrUnknown) && m.Unknown != nil:
			return m.Unknown()
		}
	} else {
		nodes, err = r.Read(ctx, m.Read...)
	}
	if err != nil {
		return Move{}, err
	}
	if m.Then == nil {
		return Done()
	}
	return m.Then(nodes, results)
}
