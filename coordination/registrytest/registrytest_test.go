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

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/embedded"
	"github.com/wasmjob/wasmjob/coordination/registrytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is the embedded registry with every session decorated.
type server struct {
	*embedded.Server
	decorate func(co.RegistryCenter) co.RegistryCenter
}

func start(t testing.TB, decorate func(co.RegistryCenter) co.RegistryCenter) server {
	t.Helper()
	s, err := embedded.Open(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return server{s, decorate}
}

func (s server) Connect(t testing.TB) co.RegistryCenter {
	t.Helper()
	rc, err := s.Server.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s.decorate(rc)
}

func (s server) Expire(_ testing.TB, r co.RegistryCenter) {
	r.(interface{ Expire() }).Expire()
}

func faulty(plan func(int, string) registrytest.Fault) func(co.RegistryCenter) co.RegistryCenter {
	return func(rc co.RegistryCenter) co.RegistryCenter { return registrytest.Faulty(rc, plan) }
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
		{registrytest.Refused, "commit", co.ErrUnavailable, false, false},
		{registrytest.InDoubt, "commit", co.ErrSuspect, false, false},
		{registrytest.LostRequest, "commit", co.ErrUnknown, false, false},
		{registrytest.LostAnswer, "commit", co.ErrUnknown, true, false},
		{registrytest.ExpireBefore, "commit", co.ErrSessionLost, false, true},
		{registrytest.ExpireAfter, "commit", co.ErrUnknown, true, true},
		{registrytest.Refused, "read", co.ErrUnavailable, false, false},
		{registrytest.InDoubt, "read", co.ErrSuspect, false, false},
		{registrytest.LostAnswer, "read", co.ErrUnavailable, false, false},
		{registrytest.ExpireBefore, "read", co.ErrSessionLost, false, true},
		{registrytest.LostRequest, "watch", co.ErrUnavailable, false, false},
		{registrytest.ExpireAfter, "watch", co.ErrSessionLost, false, true},
	} {
		t.Run(fmt.Sprintf("%d of a %s", c.fault, c.op), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			var calls []string
			s := start(t, func(rc co.RegistryCenter) co.RegistryCenter { return rc })
			other := s.Connect(t)
			rc := registrytest.Faulty(s.Connect(t), func(call int, op string) registrytest.Fault {
				calls = append(calls, fmt.Sprint(call, op))
				if call == 2 {
					return c.fault
				}
				return registrytest.NoFault
			})
			if _, err := rc.Commit(ctx, co.CreateEphemeral("/e", nil)); err != nil {
				t.Fatal(err)
			}
			var err error
			switch c.op {
			case "commit":
				_, err = rc.Commit(ctx, co.Create("/a", nil))
			case "read":
				_, err = rc.Read(ctx, co.Data("/e"))
			case "watch":
				_, err = rc.Watch(ctx, co.Data("/e"))
			}
			if !errors.Is(err, c.err) {
				t.Errorf("error %v, want %v", err, c.err)
			}
			nodes, err := other.Read(ctx, co.Data("/a"), co.Data("/e"))
			if err != nil {
				t.Fatal(err)
			}
			if nodes[0].Exists != c.applied || nodes[1].Exists == c.ended || rc.Trusted() == c.ended {
				t.Errorf("applied %v, ephemeral node there %v, trusted %v", nodes[0].Exists, nodes[1].Exists, rc.Trusted())
			}
			_, err = rc.Commit(ctx, co.Ensure("/b"))
			if c.ended {
				<-rc.Lost()
				if !errors.Is(err, co.ErrSessionLost) {
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
			if _, err := rc.Commit(ctx); !errors.Is(err, co.ErrClosed) {
				t.Errorf("commit after close: %v", err)
			}
		})
	}
}

func TestSuspect(t *testing.T) {
	s := start(t, func(rc co.RegistryCenter) co.RegistryCenter { return rc })
	rc := registrytest.Faulty(s.Connect(t), nil)
	rc.Suspect(true)
	if _, err := rc.Commit(t.Context(), co.Ensure("/a")); !errors.Is(err, co.ErrSuspect) || rc.Trusted() {
		t.Errorf("commit in doubt: %v, trusted %v", err, rc.Trusted())
	}
	if nodes, err := rc.Read(t.Context(), co.Data("/a")); err != nil || nodes[0].Exists {
		t.Errorf("read in doubt: %v, %v", nodes, err)
	}
	rc.Suspect(false)
	if _, err := rc.Commit(t.Context(), co.Ensure("/a")); err != nil || !rc.Trusted() {
		t.Errorf("commit afterwards: %v, trusted %v", err, rc.Trusted())
	}
}

func TestDoubt(t *testing.T) {
	s := start(t, func(rc co.RegistryCenter) co.RegistryCenter { return rc })
	rc := registrytest.Faulty(s.Connect(t), nil)
	last := co.TrustLive
	_, changed := rc.Trust()
	for _, level := range []co.Trust{co.TrustSuspect, co.TrustYield, co.TrustLive, co.TrustYield, co.TrustYield, co.TrustLost} {
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
		var now co.Trust
		if now, changed = rc.Trust(); now != level || rc.Trusted() != (level == co.TrustLive) {
			t.Errorf("trust %s, trusted %v, want %s", now, rc.Trusted(), level)
		}
		want := co.ErrSuspect
		switch level {
		case co.TrustLive:
			want = nil
		case co.TrustLost:
			want = co.ErrSessionLost
			<-rc.Lost()
		}
		if _, err := rc.Commit(t.Context(), co.Ensure("/a")); !errors.Is(err, want) {
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
	commit func(rc co.RegistryCenter, ctx context.Context, ops []co.Op) ([]co.Result, error)
}

func (w wrong) Commit(ctx context.Context, ops ...co.Op) ([]co.Result, error) {
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
	for name, flaw := range map[string]func(rc co.RegistryCenter, ctx context.Context, ops []co.Op) ([]co.Result, error){
		"applies what comes before the op that fails": func(rc co.RegistryCenter, ctx context.Context, ops []co.Op) ([]co.Result, error) {
			results, err := rc.Commit(ctx, ops...)
			var oe *co.OpError
			if errors.As(err, &oe) && oe.Index > 0 {
				_, _ = rc.Commit(ctx, ops[:oe.Index]...)
			}
			return results, err
		},
		"leaves a check out": func(rc co.RegistryCenter, ctx context.Context, ops []co.Op) ([]co.Result, error) {
			for i := range ops {
				if ops[i].Kind == co.OpCheck {
					ops[i] = co.Ensure("/walk")
				}
			}
			return rc.Commit(ctx, ops...)
		},
		"sets twice": func(rc co.RegistryCenter, ctx context.Context, ops []co.Op) ([]co.Result, error) {
			results, err := rc.Commit(ctx, ops...)
			if last := ops[len(ops)-1]; err == nil && last.Kind == co.OpSet {
				_, _ = rc.Commit(ctx, co.Set(last.Path, last.Data, co.AnyVersion))
			}
			return results, err
		},
		"names the wrong op": func(rc co.RegistryCenter, ctx context.Context, ops []co.Op) ([]co.Result, error) {
			results, err := rc.Commit(ctx, ops...)
			var oe *co.OpError
			if errors.As(err, &oe) {
				oe.Index++
			}
			return results, err
		},
		"ignores versions": func(rc co.RegistryCenter, ctx context.Context, ops []co.Op) ([]co.Result, error) {
			for i := range ops {
				ops[i].Version = co.AnyVersion
			}
			return rc.Commit(ctx, ops...)
		},
		"makes ephemeral nodes persistent": func(rc co.RegistryCenter, ctx context.Context, ops []co.Op) ([]co.Result, error) {
			for i := range ops {
				if ops[i].Kind == co.OpEphemeral {
					ops[i].Kind = co.OpCreate
				}
			}
			return rc.Commit(ctx, ops...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, func(rc co.RegistryCenter) co.RegistryCenter {
				return wrong{registrytest.Faulty(rc, nil), func(rc co.RegistryCenter, ctx context.Context, ops []co.Op) ([]co.Result, error) {
					return flaw(rc, ctx, append([]co.Op(nil), ops...))
				}}
			})
			if _, err := registrytest.Faulty(s.Connect(t).(wrong).Unwrap(), nil).Commit(t.Context(), co.Create("/walk", nil)); err != nil {
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
