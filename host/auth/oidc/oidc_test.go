package oidc

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/auth/users"
)

// The rest is tested against a real provider, in host/auth/login.

func TestIdentity(t *testing.T) {
	t.Parallel()
	roles := map[string][]auth.Binding{"sre": {{Role: auth.RoleAdmin, Jobs: []string{"*"}}}, "etl": {{Role: auth.RoleViewer, Jobs: []string{"*"}}}}
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
		var problem *auth.Problem
		if id, err := identity(p, c); !errors.As(err, &problem) || problem.Status != 403 || problem.Type != auth.RoleMissing {
			t.Errorf("%s: %+v, %v", name, id, err)
		}
	}
}

// signer is a provider that issues the ID token that a test wants, signed.
type signer struct {
	*httptest.Server
	key    *rsa.PrivateKey
	claims map[string]any // of the next ID token
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	s := &signer{key: key}
	answer := func(w http.ResponseWriter, v map[string]any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"issuer": s.URL, "authorization_endpoint": s.URL + "/a", "token_endpoint": s.URL + "/t", "jwks_uri": s.URL + "/k"})
	})
	mux.HandleFunc("/k", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"keys": []any{map[string]any{"kty": "RSA", "alg": "RS256", "use": "sig", "n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()), "e": "AQAB"}}})
	})
	mux.HandleFunc("/t", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"access_token": "x", "token_type": "Bearer", "id_token": s.token(t)})
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// token signs the claims, as RFC 7515 has it.
func (s *signer) token(t *testing.T) string {
	claims, err := json.Marshal(s.claims)
	if err != nil {
		t.Error(err)
	}
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256"}`)) + "." + base64.RawURLEncoding.EncodeToString(claims)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(nil, s.key, crypto.SHA256, sum[:])
	if err != nil {
		t.Error(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// TestAudiences has signed ID tokens for this client, for others, and for several.
func TestAudiences(t *testing.T) {
	t.Parallel()
	s := newSigner(t)
	logs, log := observer.New(zap.DebugLevel)
	c := New(time.Now, zap.New(logs))
	defer c.Close()
	p := &users.Provider{Name: "SSO", Issuer: s.URL, ClientID: "wasmjob", NameClaim: "sub", GroupsClaim: "groups", Groups: map[string][]auth.Binding{"sre": {{Role: auth.RoleAdmin, Jobs: []string{"*"}}}}}
	for name, x := range map[string]struct {
		audience, party any // party nil: none
		why             string
	}{
		"one":                        {"wasmjob", nil, ""},
		"one in a list":              {[]string{"wasmjob"}, nil, ""},
		"one and ours":               {"wasmjob", "wasmjob", ""},
		"several and ours":           {[]string{"wasmjob", "mail"}, "wasmjob", ""},
		"several, ours last":         {[]string{"mail", "wasmjob"}, "wasmjob", ""},
		"several and none":           {[]string{"wasmjob", "mail"}, nil, "is for 2 audiences and has no azp"},
		"several and another's":      {[]string{"wasmjob", "mail"}, "mail", `azp is "mail", expected "wasmjob"`},
		"one and another's":          {"wasmjob", "mail", `azp is "mail", expected "wasmjob"`},
		"one and empty":              {"wasmjob", "", `azp is "", expected "wasmjob"`},
		"one and in other letters":   {"wasmjob", "WasmJob", "azp is"},
		"one and no text":            {"wasmjob", []string{"wasmjob"}, "azp is"},
		"ours twice, and none":       {[]string{"wasmjob", "wasmjob"}, nil, "is for 2 audiences and has no azp"},
		"another's":                  {"mail", "wasmjob", "audience"},
		"none":                       {[]string{}, "wasmjob", "audience"},
		"several others, party ours": {[]string{"mail", "chat"}, "wasmjob", "audience"},
	} {
		_, pending, err := c.Start(t.Context(), p, "http://localhost")
		if err != nil {
			t.Fatal(err)
		}
		s.claims = map[string]any{"iss": s.URL, "sub": "ann", "aud": x.audience, "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), "nonce": pending.Nonce, "groups": []string{"sre"}}
		if x.party != nil {
			s.claims["azp"] = x.party
		}
		got, err := c.Finish(t.Context(), p, pending, url.Values{"state": {pending.State}, "code": {"c"}})
		said := log.TakeAll()
		if x.why == "" && (err != nil || got.Name != "ann") {
			t.Errorf("%s: %+v, %v %v", name, got, err, said)
		}
		if x.why != "" && (err == nil || len(said) != 1 || !strings.Contains(fmt.Sprint(said[0].ContextMap()["error"]), x.why)) {
			t.Errorf("%s: %+v, %v; the log: %v, expected %s", name, got, err, said, x.why)
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
			var p *auth.Problem
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
