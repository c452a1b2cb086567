package api

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/operate"
	"github.com/wasmjob/wasmjob/host"
	"github.com/wasmjob/wasmjob/host/service"
)

// TestKeysOfRequests: what was done with a key, or may have been, is not done again; what
// was refused is, and a key is for one request.
func TestKeysOfRequests(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err   error
		again bool
	}{
		{nil, false}, {context.DeadlineExceeded, false}, {errors.New("the connection broke"), false},
		{host.ErrNoJob, true}, {host.ErrNotLive, true}, {fmt.Errorf("%w: so", operate.ErrTriggerWaits), true}, {&service.InputError{Where: "body", Problem: "wrong"}, true},
	} {
		k, done := newKeys(), 0
		ask := func() error {
			return k.once(t.Context(), key{"ann", "report", "a"}, "items 1", func() error { done++; return c.err })
		}
		if first, second := ask(), ask(); !errors.Is(first, c.err) || !errors.Is(second, c.err) || (done == 2) != c.again {
			t.Errorf("%v: done %d times; %v, then %v", c.err, done, first, second)
		}
	}

	k := newKeys()
	do := func(who, what string) error {
		return k.once(t.Context(), key{who, "report", "a"}, what, func() error { return nil })
	}
	var wrong *service.InputError
	if err := errors.Join(do("ann", "items 1"), do("bob", "items 2")); err != nil {
		t.Error(err)
	}
	if err := do("ann", "items 2"); !errors.As(err, &wrong) || wrong.Where != "header.Idempotency-Key" {
		t.Errorf("another request with the same key: %v", err)
	}
}
