package step

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// never fails every commit with a conflict.
type never struct {
	registry.Center
	reason registry.Reason
}

func (n never) Commit(context.Context, ...registry.Op) ([]registry.Result, error) {
	return nil, &registry.OpError{Reason: n.reason}
}

func (never) Read(_ context.Context, q ...registry.Query) ([]registry.Node, error) {
	return make([]registry.Node, len(q)), nil
}

// TestExchangeGivesUp: two hosts that contradict each other for ever stop, and
// an exchange that gets on does not.
func TestExchangeGivesUp(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	tries := 0
	stubborn := func(ctx context.Context, x *Exchange) error {
		for ; ; tries++ {
			if _, err := x.Commit(ctx, registry.Op{}); ConflictOf(err) == nil {
				return err
			}
		}
	}
	if err := Perform(ctx, never{reason: registry.ReasonVersion}, "stubborn", stubborn); !errors.Is(err, registry.ErrConflict) || tries != maxConflicts || !strings.Contains(err.Error(), "stubborn") {
		t.Errorf("after %d tries: %v", tries, err)
	}
	long := func(ctx context.Context, x *Exchange) error {
		for range 10 * maxConflicts {
			if _, err := x.Read(ctx, registry.Data("/x")); err != nil {
				return err
			}
		}
		return nil
	}
	if err := Perform(ctx, never{reason: registry.ReasonVersion}, "long", long); err != nil {
		t.Errorf("a long exchange: %v", err)
	}
	if err := Perform(ctx, never{reason: registry.ReasonVersion}, "nothing", func(ctx context.Context, x *Exchange) error { _, err := x.Read(ctx); return err }); err != nil {
		t.Errorf("nothing to read: %v", err)
	}
	plain := func(ctx context.Context, x *Exchange) error { _, err := x.Commit(ctx, registry.Op{}); return err }
	if err := Perform(ctx, never{reason: registry.ReasonVersion}, "plain", plain); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("a conflict that the step does not handle: %v", err)
	}
	// A node that is there, again and again, is an external edit.
	tries = 0
	if err := Perform(ctx, never{reason: registry.ReasonExists}, "stubborn", stubborn); !errors.Is(err, registry.ErrConflict) || tries != maxSame {
		t.Errorf("after %d tries: %v", tries, err)
	}
}
