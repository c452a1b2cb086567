package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/operate"
	"github.com/wasmjob/wasmjob/host"
	"github.com/wasmjob/wasmjob/host/cluster"
	"github.com/wasmjob/wasmjob/host/service"
	"github.com/wasmjob/wasmjob/host/service/servicetest"
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

// TestKeyOfATrigger: a trigger that is sent again with its key triggers nothing more, one with
// another key or another body is not the same.
func TestKeyOfATrigger(t *testing.T) {
	t.Parallel()
	s := serve(t, servicetest.Options{Jobs: []host.Job{once("cities", 2)}})
	fires := func(n int) {
		t.Helper()
		s.Until(fmt.Sprintf("%d fires", n), func() bool {
			all := get[cluster.Found[struct{ Ended string }]](s, "/v1/fires?job=cities").Records
			return len(all) == n && all[0].Ended != ""
		})
	}
	send := func(key, body string, want int) {
		t.Helper()
		if a := s.ask(http.MethodPost, "/v1/jobs/cities/trigger", body, "Idempotency-Key", key); a.code != want {
			t.Errorf("key %s, body %q: %d %s", key, body, a.code, a.body)
		}
	}
	send("a", "", http.StatusNoContent)
	fires(1)
	send("a", "", http.StatusNoContent)
	send("a", `{"items":"1"}`, http.StatusUnprocessableEntity)
	send("b", "", http.StatusNoContent)
	fires(2)
}
