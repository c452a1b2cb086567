package coordination

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// TestParts: every op once and in order, no part over the limit by more than
// what must stay together.
func TestParts(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		var ops []registry.Op
		for n := range r.IntN(50) {
			path := fmt.Sprintf("/%d", n)
			switch r.IntN(3) {
			case 0:
				ops = append(ops, registry.Create(path, make([]byte, r.IntN(200))))
			case 1:
				ops = append(ops, registry.Delete(path, registry.AnyVersion), registry.Create(path, nil))
			default:
				ops = append(ops, registry.Check("/runs", 1), registry.Set(path, nil, registry.AnyVersion))
			}
		}
		limit := 100 + r.IntN(1000)
		var all []registry.Op
		for part := range parts(ops, limit) {
			if len(part) == 0 {
				t.Fatal("an empty part")
			}
			if extra := size(part) - opSize(part[len(part)-1]); len(part) > 2 && extra > limit {
				t.Fatalf("a part of %d bytes, the limit is %d", size(part), limit)
			}
			if last := part[len(part)-1]; last.Kind == registry.OpCheck {
				t.Fatal("a check without what it guards")
			}
			if first := part[0]; first.Kind == registry.OpCreate && len(all) > 0 && all[len(all)-1].Kind == registry.OpDelete && all[len(all)-1].Path == first.Path {
				t.Fatal("a delete and its create were parted")
			}
			all = append(all, part...)
		}
		if len(all) != len(ops) {
			t.Fatalf("%d ops of %d", len(all), len(ops))
		}
		for i := range ops {
			if all[i].Path != ops[i].Path || all[i].Kind != ops[i].Kind {
				t.Fatalf("op %d is %v, want %v", i, all[i], ops[i])
			}
		}
	}
}

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
	stubborn := func(ctx context.Context, x *exchange) error {
		for ; ; tries++ {
			if _, err := x.commit(ctx, registry.Op{}); conflictOf(err) == nil {
				return err
			}
		}
	}
	if err := perform(ctx, never{reason: registry.ReasonVersion}, "stubborn", stubborn); !errors.Is(err, registry.ErrConflict) || tries != maxConflicts || !strings.Contains(err.Error(), "stubborn") {
		t.Errorf("after %d tries: %v", tries, err)
	}
	long := func(ctx context.Context, x *exchange) error {
		for range 10 * maxConflicts {
			if _, err := x.read(ctx, registry.Data("/x")); err != nil {
				return err
			}
		}
		return nil
	}
	if err := perform(ctx, never{reason: registry.ReasonVersion}, "long", long); err != nil {
		t.Errorf("a long exchange: %v", err)
	}
	if err := perform(ctx, never{reason: registry.ReasonVersion}, "nothing", func(ctx context.Context, x *exchange) error { _, err := x.read(ctx); return err }); err != nil {
		t.Errorf("nothing to read: %v", err)
	}
	plain := func(ctx context.Context, x *exchange) error { _, err := x.commit(ctx, registry.Op{}); return err }
	if err := perform(ctx, never{reason: registry.ReasonVersion}, "plain", plain); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("a conflict that the step does not handle: %v", err)
	}
	// A node that is there, again and again, is an external edit.
	tries = 0
	if err := perform(ctx, never{reason: registry.ReasonExists}, "stubborn", stubborn); !errors.Is(err, registry.ErrConflict) || tries != maxSame {
		t.Errorf("after %d tries: %v", tries, err)
	}
}
