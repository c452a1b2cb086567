package oidc

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/access"
	"github.com/wasmjob/wasmjob/host/access/users"
)

// The rest is tested against a real provider, in host/access/login.

func TestIdentity(t *testing.T) {
	t.Parallel()
	roles := map[string][]access.Binding{"sre": {{Role: access.RoleAdmin, Jobs: []string{"*"}}}, "etl": {{Role: access.RoleViewer, Jobs: []string{"*"}}}}
	type claims = map[string]any
	for name, c := range map[string]struct {
		nameClaim string
		claims    claims
		want      Identity
	}{
		"verified":      {"email", claims{"sub": "1", "email": "a@x", "email_verified": true, "groups": []any{"sre", "x", "sre", 7}}, Identity{"a@x", []string{"sre"}}},
		"as a text":     {"email", claims{"sub": "1", "email": "a@x", "email_verified": "true", "groups": "etl"}, Identity{"a@x", []string{"etl"}}},
		"not verified":  {"email", claims{"sub": "1", "email": "a@x", "email_verified": false, "groups": []any{"sre"}}, Identity{"1", []string{"sre"}}},
		"nothing said":  {"email", claims{"sub": "1", "email": "a@x", "groups": []any{"sre"}}, Identity{"1", []string{"sre"}}},
		"no address":    {"email", claims{"sub": "1", "groups": []any{"sre"}}, Identity{"1", []string{"sre"}}},
		"another claim": {"preferred_username", claims{"sub": "1", "preferred_username": "ann\x1b[31m", "groups": []any{"sre", "etl"}}, Identity{`ann\x1b[31m`, []string{"etl", "sre"}}},
		"long":          {"name", claims{"sub": "1", "name": strings.Repeat("é", 100), "groups": []any{"sre"}}, Identity{strings.Repeat("é", 64) + "…", []string{"sre"}}},
	} {
		p := &users.Provider{Name: "SSO", NameClaim: c.nameClaim, GroupsClaim: "groups", Groups: roles}
		if got, err := identity(p, c.claims); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
	p := &users.Provider{Name: "SSO", NameClaim: "email", GroupsClaim: "groups", Groups: roles}
	for name, c := range map[string]claims{"no groups": {"sub": "1"}, "other groups": {"sub": "1", "groups": []any{"x", ""}}, "a number": {"sub": "1", "groups": 7}, "an object": {"sub": "1", "groups": claims{"sre": true}}} {
		var problem *access.Problem
		if id, err := identity(p, c); !errors.As(err, &problem) || problem.Status != 403 || problem.Type != access.RoleMissing {
			t.Errorf("%s: %+v, %v", name, id, err)
		}
	}
}

// TestClose: no connection to a provider outlives the client.
func TestClose(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{}, 1)
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	s.Start()
	defer s.Close()
	c := New(time.Now, zap.NewNop())
	if _, _, err := c.Start(t.Context(), &users.Provider{Name: "SSO", Issuer: s.URL}, "http://localhost"); err == nil {
		t.Fatal("there is no provider")
	}
	c.Close()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Error("the connection is still open")
	}
}

// TestAskedOnce: while a provider does not answer, many that want to sign in have it asked
// once, and the one that asked may leave.
func TestAskedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New(time.Now, zap.NewNop())
		var dialed atomic.Int32
		c.http.Transport.(limited).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			dialed.Add(1)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		const many = 20
		began, ended := time.Now(), make(chan error, many)
		start := func(ctx context.Context) {
			_, _, err := c.Start(ctx, &users.Provider{Name: "SSO", Issuer: "http://sso.invalid"}, "http://localhost")
			ended <- err
		}
		leaving, leave := context.WithCancel(t.Context())
		go start(leaving)
		synctest.Wait()
		for range many - 1 {
			go start(t.Context())
		}
		synctest.Wait()
		leave()
		for range many {
			var p *access.Problem
			if err := <-ended; !errors.As(err, &p) || p.Status != http.StatusServiceUnavailable {
				t.Errorf("%v", err)
			}
		}
		if took := time.Since(began); dialed.Load() != 1 || took != timeout {
			t.Errorf("it was asked %d times, and that took %s", dialed.Load(), took)
		}
		start(t.Context())
		if <-ended; dialed.Load() != 2 {
			t.Errorf("it was asked %d times, and once more was wanted", dialed.Load())
		}
		c.Close()
	})
}
