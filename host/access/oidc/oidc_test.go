package oidc

import (
	"errors"
	"reflect"
	"strings"
	"testing"

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
