package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/history"
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
		{engine.ErrNoJob, true}, {engine.ErrNotLive, true}, {fmt.Errorf("%w: so", operate.ErrTriggerWaits), true}, {&service.InputError{Where: "body", Problem: "wrong"}, true},
	} {
		k, done := newKeys(), 0
		ask := func() error {
			_, err := k.once(t.Context(), key{"ann", "report", "a"}, "items 1", func() (admin.Triggered, error) { done++; return admin.Triggered{}, c.err })
			return err
		}
		if first, second := ask(), ask(); !errors.Is(first, c.err) || !errors.Is(second, c.err) || (done == 2) != c.again {
			t.Errorf("%v: done %d times; %v, then %v", c.err, done, first, second)
		}
	}

	k := newKeys()
	do := func(who, what string) error {
		_, err := k.once(t.Context(), key{who, "report", "a"}, what, func() (admin.Triggered, error) { return admin.Triggered{}, nil })
		return err
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
	s := serve(t, servicetest.Options{Jobs: []engine.Job{once("cities", 2)}})
	send := func(key, body string, want int) (round string) {
		t.Helper()
		a := s.ask(http.MethodPost, "/v1/jobs/cities/trigger", body, "Idempotency-Key", key)
		if a.code != want {
			t.Errorf("key %s, body %q: %d %s", key, body, a.code, a.body)
		}
		var done admin.Triggered
		if err := json.Unmarshal(a.body, &done); err != nil || (done.Trigger != 0) != (want == http.StatusOK) {
			t.Errorf("key %s, body %q: %v %s", key, body, err, a.body)
		}
		return strconv.FormatInt(done.Trigger, 10)
	}
	fires := func(n int, round string) {
		t.Helper()
		s.Until(fmt.Sprintf("%d fires, and that of round %s", n, round), func() bool {
			all := get[cluster.Found[struct{ Ended string }]](s, "/v1/fires?job=cities").Records
			runs := get[cluster.Found[history.Run]](s, "/v1/runs?job=cities&trigger="+round).Records
			return len(all) == n && all[0].Ended != "" && len(runs) == 2
		})
	}
	first := send("a", "", http.StatusOK)
	fires(1, first)
	if again := send("a", "", http.StatusOK); again != first {
		t.Errorf("the same once more is round %s, it was %s", again, first)
	}
	send("a", `{"items":"1"}`, http.StatusUnprocessableEntity)
	fires(2, send("b", "", http.StatusOK))
}
