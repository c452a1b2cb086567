package registrytest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is the embedded registry with every session decorated.
type server struct {
	*embedded.Server
	decorate func(registry.Center) registry.Center
}

func start(t testing.TB, decorate func(registry.Center) registry.Center) server {
	t.Helper()
	s, err := embedded.Open(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return server{s, decorate}
}

func (s server) Connect(t testing.TB) registry.Center {
	t.Helper()
	rc, err := s.Server.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s.decorate(rc)
}

func (s server) Expire(_ testing.TB, r registry.Center) {
	r.(interface{ Expire() }).Expire()
}

func faulty(plan func(int, string) registrytest.Fault) func(registry.Center) registry.Center {
	return func(rc registry.Center) registry.Center { return registrytest.Faulty(rc, plan) }
}

// Without a fault the decorator is a registry like any other.
func TestFaultyWithoutFault(t *testing.T) {
	registrytest.RunBubble(t, func(t testing.TB) registrytest.Server { return start(t, faulty(nil)) })
}

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		fault   registrytest.Fault
		op      string
		err     error
		applied bool
		ended   bool
	}{
		{registrytest.Refused, "commit", registry.ErrUnavailable, false, false},
		{registrytest.InDoubt, "commit", registry.ErrSuspect, false, false},
		{registrytest.LostRequest, "commit", registry.ErrUnknown, false, false},
		{registrytest.LostAnswer, "commit", registry.ErrUnknown, true, false},
		{registrytest.ExpireBefore, "commit", registry.ErrSessionLost, false, true},
		{registrytest.ExpireAfter, "commit", registry.ErrUnknown, true, true},
		{registrytest.Refused, "read", registry.ErrUnavailable, false, false},
		{registrytest.InDoubt, "read", registry.ErrSuspect, false, false},
		{registrytest.LostAnswer, "read", registry.ErrUnavailable, false, false},
		{registrytest.ExpireBefore, "read", registry.ErrSessionLost, false, true},
		{registrytest.LostRequest, "watch", registry.ErrUnavailable, false, false},
		{registrytest.ExpireAfter, "watch", registry.ErrSessionLost, false, true},
	} {
		t.Run(fmt.Sprintf("%d of a %s", c.fault, c.op), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			var calls []string
			s := start(t, func(rc registry.Center) registry.Center { return rc })
			other := s.Connect(t)
			rc := registrytest.Faulty(s.Connect(t), func(call int, op string) registrytest.Fault {
				calls = append(calls, fmt.Sprint(call, op))
				if call == 2 {
					return c.fault
				}
				return registrytest.NoFault
			})
			if _, err := rc.Commit(ctx, registry.CreateEphemeral("/e", nil)); err != nil {
				t.Fatal(err)
			}
			var err error
			switch c.op {
			case "commit":
				_, err = rc.Commit(ctx, registry.Create("/a", nil))
			case "read":
				_, err = rc.Read(ctx, registry.Data("/e"))
			case "watch":
				_, err = rc.Watch(ctx, registry.Data("/e"))
			}
			if !errors.Is(err, c.err) {
				t.Errorf("error %v, want %v", err, c.err)
			}
			nodes, err := other.Read(ctx, registry.Data("/a"), registry.Data("/e"))
			if err != nil {
				t.Fatal(err)
			}
			if nodes[0].Exists != c.applied || nodes[1].Exists == c.ended || rc.Trusted() == c.ended {
				t.Errorf("applied %v, ephemeral node there %v, trusted %v", nodes[0].Exists, nodes[1].Exists, rc.Trusted())
			}
			_, err = rc.Commit(ctx, registry.Ensure("/b"))
			if c.ended {
				<-rc.Lost()
				if !errors.Is(err, registry.ErrSessionLost) {
					t.Errorf("commit after the session's end: %v", err)
				}
			} else if err != nil {
				t.Errorf("commit after the fault: %v", err)
			} else if got := strings.Join(calls, " "); got != "1commit 2"+c.op+" 3commit" {
				t.Errorf("calls: %s", got)
			}
			if err := rc.Close(); err != nil {
				t.Error(err)
			}
			if _, err := rc.Commit(ctx); !errors.Is(err, registry.ErrClosed) {
				t.Errorf("commit after close: %v", err)
			}
		})
	}
}

func TestSuspect(t *testing.T) {
	s := start(t, func(rc registry.Center) registry.Center { return rc })
	rc := registrytest.Faulty(s.Connect(t), nil)
	rc.Suspect(true)
	if _, err := rc.Commit(t.Context(), registry.Ensure("/a")); !errors.Is(err, registry.ErrSuspect) || rc.Trusted() {
		t.Errorf("commit in doubt: %v, trusted %v", err, rc.Trusted())
	}
	if nodes, err := rc.Read(t.Context(), registry.Data("/a")); err != nil || nodes[0].Exists {
		t.Errorf("read in doubt: %v, %v", nodes, err)
	}
	rc.Suspect(false)
	if _, err := rc.Commit(t.Context(), registry.Ensure("/a")); err != nil || !rc.Trusted() {
		t.Errorf("commit afterwards: %v, trusted %v", err, rc.Trusted())
	}
}

func TestDoubt(t *testing.T) {
	s := start(t, func(rc registry.Center) registry.Center { return rc })
	rc := registrytest.Faulty(s.Connect(t), nil)
	last := registry.TrustLive
	_, changed := rc.Trust()
	for _, level := range []registry.Trust{registry.TrustSuspect, registry.TrustYield, registry.TrustLive, registry.TrustYield, registry.TrustYield, registry.TrustLost} {
		if level == last {
			rc.Doubt(level)
			select {
			case <-changed:
				t.Errorf("%s again was told as a change", level)
			default:
			}
			continue
		}
		rc.Doubt(level)
		<-changed
		var now registry.Trust
		if now, changed = rc.Trust(); now != level || rc.Trusted() != (level == registry.TrustLive) {
			t.Errorf("trust %s, trusted %v, want %s", now, rc.Trusted(), level)
		}
		want := registry.ErrSuspect
		switch level {
		case registry.TrustLive:
			want = nil
		case registry.TrustLost:
			want = registry.ErrSessionLost
			<-rc.Lost()
		}
		if _, err := rc.Commit(t.Context(), registry.Ensure("/a")); !errors.Is(err, want) {
			t.Errorf("commit at %s: %v", level, err)
		}
		last = level
	}
	if err := rc.Close(); err != nil {
		t.Error(err)
	}
}

// wrong is a session of a registry with a flaw.
type wrong struct {
	*registrytest.FaultyCenter
	commit func(rc registry.Center, ctx context.Context, ops []registry.Op) ([]registry.Result, error)
}

func (w wrong) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	return w.commit(w.FaultyCenter, ctx, ops)
}

// witness is a testing.TB whose failure is what the test wants.
type witness struct {
	testing.TB
	said string
}

func (w *witness) Fatalf(format string, args ...any) {
	w.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (w *witness) Errorf(format string, args ...any) { w.said = fmt.Sprintf(format, args...) }

// A walk notices registries that are almost right.
func TestWalkNotices(t *testing.T) {
	for name, flaw := range map[string]func(rc registry.Center, ctx context.Context, ops []registry.Op) ([]registry.Result, error){
		"applies what comes before the op that fails": func(rc registry.Center, ctx context.Context, ops []registry.Op) ([]registry.Result, error) {
			results, err := rc.Commit(ctx, ops...)
			var oe *registry.OpError
			if errors.As(err, &oe) && oe.Index > 0 {
				_, _ = rc.Commit(ctx, ops[:oe.Index]...)
			}
			return results, err
		},
		"leaves a check out": func(rc registry.Center, ctx context.Context, ops []registry.Op) ([]registry.Result, error) {
			for i := range ops {
				if ops[i].Kind == registry.OpCheck {
					ops[i] = registry.Ensure("/walk")
				}
			}
			return rc.Commit(ctx, ops...)
		},
		"sets twice": func(rc registry.Center, ctx context.Context, ops []registry.Op) ([]registry.Result, error) {
			results, err := rc.Commit(ctx, ops...)
			if last := ops[len(ops)-1]; err == nil && last.Kind == registry.OpSet {
				_, _ = rc.Commit(ctx, registry.Set(last.Path, last.Data, registry.AnyVersion))
			}
			return results, err
		},
		"names the wrong op": func(rc registry.Center, ctx context.Context, ops []registry.Op) ([]registry.Result, error) {
			results, err := rc.Commit(ctx, ops...)
			var oe *registry.OpError
			if errors.As(err, &oe) {
				oe.Index++
			}
			return results, err
		},
		"ignores versions": func(rc registry.Center, ctx context.Context, ops []registry.Op) ([]registry.Result, error) {
			for i := range ops {
				ops[i].Version = registry.AnyVersion
			}
			return rc.Commit(ctx, ops...)
		},
		"makes ephemeral nodes persistent": func(rc registry.Center, ctx context.Context, ops []registry.Op) ([]registry.Result, error) {
			for i := range ops {
				if ops[i].Kind == registry.OpEphemeral {
					ops[i].Kind = registry.OpCreate
				}
			}
			return rc.Commit(ctx, ops...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, func(rc registry.Center) registry.Center {
				return wrong{registrytest.Faulty(rc, nil), func(rc registry.Center, ctx context.Context, ops []registry.Op) ([]registry.Result, error) {
					return flaw(rc, ctx, append([]registry.Op(nil), ops...))
				}}
			})
			if _, err := registrytest.Faulty(s.Connect(t).(wrong).Unwrap(), nil).Commit(t.Context(), registry.Create("/walk", nil)); err != nil {
				t.Fatal(err)
			}
			w := &witness{TB: t}
			done := make(chan struct{})
			go func() {
				defer close(done)
				registrytest.Walk(w, rand.New(rand.NewPCG(1, 1)), 400, "/walk", s)
			}()
			<-done
			if w.said == "" {
				t.Error("nothing was noticed")
			}
		})
	}
}
