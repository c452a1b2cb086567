package engine_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/admin/inspect"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// checkCause: whatever was skipped has a cause by which it is counted, and what
// is owed is no loss.
func checkCause(t testing.TB, e event.Event) {
	t.Helper()
	skip := e.Kind == event.ItemSkipped || e.Kind == event.FireSkipped || e.Kind == event.ItemHeld
	switch {
	case skip != slices.Contains(event.SkipCauses(), e.Cause), e.Owed && !e.Cause.Promises():
		t.Errorf("%s has the cause %q, owed %v: %s", e.Kind, e.Cause, e.Owed, e.Reason)
	}
}

// TestStatusWithoutSession: while a host has no session its jobs are still shown,
// with the next fire that they had, so that an alert on late fires goes off.
func TestStatusWithoutSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var down atomic.Bool
		down.Store(true)
		c.config = func(cfg *engine.Config) {
			dial := cfg.Dial
			cfg.Dial = func(ctx context.Context) (registry.Center, error) {
				if down.Load() {
					return nil, registry.ErrUnavailable
				}
				return dial(ctx)
			}
		}
		n := c.start(1, job(definition("hourly", "0 0 * * * ?", 2), sleeper(0)))
		time.Sleep(time.Minute)
		job := func(state engine.JobState) *engine.JobStatus {
			t.Helper()
			s := n.host.Status()
			if len(s.Jobs) != 1 || s.Jobs[0].Name != "hourly" || s.Jobs[0].State != state {
				t.Fatalf("%s: %+v, want the job, %s", s.State, s.Jobs, state)
			}
			return s.Jobs[0]
		}
		if s := job(engine.JobNoSession); s.Reason == "" || s.Cron == "" || s.Digest == "" {
			t.Errorf("a host that has never had a session: %+v", s)
		}

		down.Store(false)
		time.Sleep(time.Minute)
		next := job(engine.JobReady).Next
		down.Store(true)
		c.expire(n)
		time.Sleep(2 * time.Hour)
		if s := job(engine.JobNoSession); !s.Next.Equal(next) || len(s.Items) > 0 || len(s.Instances) > 0 {
			t.Errorf("%+v, want the next fire %s, which is late, and no items", s, next)
		}

		down.Store(false)
		time.Sleep(time.Minute)
		if s := job(engine.JobReady); !s.Next.After(time.Now()) || len(s.Items) != 2 {
			t.Errorf("with a session again: %+v", s)
		}
	})
}

// TestFailureIsRecorded: what a run that failed said stands in the registry, short,
// for who looks at the cluster; a run that went well leaves nothing of it.
func TestFailureIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		fails := true
		c.start(1, job(definition("fails", "0 * * * * ?", 1), &guest{digest: "fails", run: func(context.Context, *abi.Invocation) abi.Result {
			if fails {
				return abi.Result{Outcome: abi.OutcomeTrap, Message: "out of bounds: \x1b" + strings.Repeat("x", 300) + "\nand its stack"}
			}
			return ok
		}}))
		time.Sleep(30 * time.Second)
		recorded := func() tree.Record {
			t.Helper()
			time.Sleep(time.Minute)
			r, err := c.server.Connect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			s, err := inspect.ReadShards(t.Context(), r, tree.NewLayout("test", "fails"))
			if err != nil {
				t.Fatal(err)
			}
			return s.Items[0].Record
		}
		if r := recorded(); r.Outcome != "TRAP" || !strings.HasPrefix(r.Reason, "out of bounds: \uFFFDxxx") || !strings.HasSuffix(r.Reason, "x…") || len(r.Reason) > 200 {
			t.Errorf("%+v (%d bytes)", r, len(r.Reason))
		}
		fails = false
		if r := recorded(); r.Outcome != "OK" || r.Reason != "" {
			t.Errorf("%+v", r)
		}
	})
}
