package login

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/test/oidcserver"
)

// people are whom the provider knows.
func people() []oidcserver.User {
	return []oidcserver.User{
		{Name: "ann", Password: "a", Email: "ann@example.com", Verified: true, Groups: []string{"sre", "everybody"}},
		{Name: "eve", Password: "e", Email: "ann@example.com", Groups: []string{"etl"}}, // says that she is ann
		{Name: "joe", Password: "j", Email: "joe@example.com", Verified: true, Groups: []string{"everybody"}},
	}
}

// withProvider is a host whose people sign in at a provider of their own.
func withProvider(t *testing.T, program oidcserver.Program, o oidcserver.Options) (*host, *oidcserver.Server) {
	t.Helper()
	h := serve(t, options{})
	o.ClientID, o.Redirects, o.Users = "wasmjob", []string{h.url + oidcAnswers}, people()
	s, err := program.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !strings.Contains(err.Error(), "already") {
			t.Error(err)
		}
	})
	secretFile := ""
	if o.ClientSecret != "" {
		secretFile = "  clientSecretFile: secret\n"
		if err := os.WriteFile(filepath.Join(filepath.Dir(h.file), "secret"), []byte(o.ClientSecret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.write(t, fmt.Sprintf("oidc:\n  name: Example SSO\n  issuer: %s\n  clientId: wasmjob\n%s  groups:\n    sre: {admin: '*'}\n    etl: {operator: 'etl-*'}\n", s.Issuer, secretFile))
	await(t, "the provider", func() bool { return h.Users.Set().Provider() != nil })
	return h, s
}

// begin goes to the provider, and returns where it wants the browser to sign in.
func (b *browser) begin(h *host, next string) *url.URL {
	b.t.Helper()
	a := b.get(h.url + OIDCPath + "?next=" + url.QueryEscape(next))
	a.expect(b.t, 303, "code_challenge_method=S256")
	u, err := url.Parse(a.header.Get("Location"))
	if err != nil {
		b.t.Fatal(err)
	}
	return u
}

// consent signs in at the provider, and returns the address that it sends the browser to.
func (b *browser) consent(at *url.URL, name, pass string) *url.URL {
	b.t.Helper()
	var a answer
	for range 5 {
		a = b.get(at.String())
		if a.code/100 != 3 {
			break
		}
		var err error
		if at, err = at.Parse(a.header.Get("Location")); err != nil {
			b.t.Fatal(err)
		}
	}
	if a.code != http.StatusOK {
		b.t.Fatalf("the provider shows no login page: %d %s", a.code, a.body)
	}
	a = b.do("POST", at.String(), url.Values{"id": {at.Query().Get("authRequestID")}, "username": {name}, "password": {pass}}, nil)
	for range 5 {
		to, err := at.Parse(a.header.Get("Location"))
		if err != nil || a.code/100 != 3 {
			b.t.Fatalf("the provider does not let %s in: %d %s", name, a.code, a.body)
		}
		if to.Path == oidcAnswers {
			return to
		}
		at = to
		a = b.get(to.String())
	}
	b.t.Fatal("the provider does not send the browser back")
	return nil
}

// TestOIDC signs in at a real provider, and is attacked on the way.
func TestOIDC(t *testing.T) {
	t.Parallel()
	program, err := oidcserver.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]oidcserver.Options{
		"groups on request":             {},
		"groups in the token":           {GroupsInToken: true},
		"several audiences":             {Audiences: []string{"mail", "chat"}},
		"client with a secret (header)": {ClientSecret: "s3cret/+:&"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, s := withProvider(t, program, o)
			b := newBrowser(t, nil)
			if page := b.get(h.url + Path).page; page.Provider != "Example SSO" || page.ProviderURL != OIDCPath+"?next=%2F" || page.Passwords {
				t.Errorf("the page: %+v", page)
			}
			to := b.begin(h, "/jobs?q=x")
			if !strings.HasPrefix(to.String(), s.Issuer) || to.Query().Get("code_challenge") == "" || to.Query().Get("nonce") == "" || to.Query().Get("state") == "" {
				t.Errorf("the browser is sent to %s", to)
			}
			back := b.consent(to, "ann", "a")
			b.get(back.String()).expect(t, 303, "/jobs?q=x")
			b.expect(h, "oidc ann@example.com")
			if a := b.get(h.url + "/api/x"); !strings.Contains(a.body, `"operates":["*"]`) {
				t.Errorf("ann's groups: %s", a.body)
			}
			if got := h.seen(); got != "sign in oidc ann@example.com from 127.0.0.1: <nil>" {
				t.Errorf("reported: %s", got)
			}
			// The same answer once more.
			b.get(back.String()).expect(t, 403, "not begun in this browser")
		})
	}
	t.Run("attacks", func(t *testing.T) {
		t.Parallel()
		h, _ := withProvider(t, program, oidcserver.Options{})
		t.Run("an address that is not verified", func(t *testing.T) {
			b := newBrowser(t, nil)
			b.get(b.consent(b.begin(h, "/"), "eve", "e").String()).expect(t, 303, "/")
			b.expect(h, "oidc id-eve")
			if a := b.get(h.url + "/api/x"); !strings.Contains(a.body, `"operates":["etl-*"]`) {
				t.Errorf("eve's groups: %s", a.body)
			}
		})
		t.Run("no group that is known", func(t *testing.T) {
			b := newBrowser(t, nil)
			a := b.get(b.consent(b.begin(h, "/"), "joe", "j").String())
			a.expect(t, 403, "knows you as joe@example.com, and none of your groups there has a role here")
			if strings.Contains(a.body, "sre") || strings.Contains(a.body, "etl") {
				t.Errorf("the groups that have a role are shown: %s", a.body)
			}
			b.expect(h, "")
		})
		t.Run("another state", func(t *testing.T) {
			b := newBrowser(t, nil)
			back := b.consent(b.begin(h, "/"), "ann", "a")
			q := back.Query()
			q.Set("state", "x"+q.Get("state")[1:])
			back.RawQuery = q.Encode()
			b.get(back.String()).expect(t, 403, "its state is another one")
			b.expect(h, "")
		})
		t.Run("an answer from another browser", func(t *testing.T) {
			// The attacker's answer in the victim's browser would sign the victim in as the attacker.
			attacker, victim := newBrowser(t, nil), newBrowser(t, nil)
			back := attacker.consent(attacker.begin(h, "/"), "ann", "a")
			victim.get(back.String()).expect(t, 403, "not begun in this browser")
			victim.begin(h, "/")
			victim.get(back.String()).expect(t, 403, "its state is another one")
			victim.expect(h, "")
		})
		t.Run("a code of another sign-in", func(t *testing.T) {
			// With the victim's code and the attacker's own state: PKCE refuses it.
			attacker, victim := newBrowser(t, nil), newBrowser(t, nil)
			stolen := victim.consent(victim.begin(h, "/"), "ann", "a").Query().Get("code")
			own := attacker.consent(attacker.begin(h, "/"), "eve", "e")
			q := own.Query()
			q.Set("code", stolen)
			own.RawQuery = q.Encode()
			attacker.get(own.String()).expect(t, 403, "did not take the code")
			attacker.expect(h, "")
		})
		t.Run("another nonce", func(t *testing.T) {
			b := newBrowser(t, nil)
			to := b.begin(h, "/")
			q := to.Query()
			q.Set("nonce", "replayed")
			to.RawQuery = q.Encode()
			b.get(b.consent(to, "ann", "a").String()).expect(t, 403, "not valid")
			b.expect(h, "")
			if !logged(h, "nonce is not that of this sign-in") {
				t.Errorf("the log does not say why: %v", h.logs.All())
			}
		})
		t.Run("the provider refuses", func(t *testing.T) {
			b := newBrowser(t, nil)
			state := b.begin(h, "/").Query().Get("state")
			b.get(h.url+oidcAnswers+"?"+url.Values{"state": {state}, "error": {"access_denied"}}.Encode()).expect(t, 403, "Example SSO refused: access_denied")
		})
		t.Run("no code", func(t *testing.T) {
			b := newBrowser(t, nil)
			state := b.begin(h, "/").Query().Get("state")
			b.get(h.url+oidcAnswers+"?state="+state).expect(t, 403, "no code")
		})
		t.Run("too late", func(t *testing.T) {
			b := newBrowser(t, nil)
			back := b.consent(b.begin(h, "/"), "ann", "a")
			h.pass(pendingLife)
			b.get(back.String()).expect(t, 403, "too long ago")
		})
	})
	t.Run("storm of beginnings", func(t *testing.T) {
		t.Parallel()
		h, _ := withProvider(t, program, oidcserver.Options{})
		b, codes := newBrowser(t, nil), make(map[int]int)
		for range 60 {
			a := b.get(h.url + OIDCPath)
			codes[a.code]++
			if a.code == 429 && (a.header.Get("Retry-After") == "" || a.header.Get("Location") != "") {
				t.Errorf("%d %v", a.code, a.header)
			}
		}
		if codes[303] < 20 || codes[429] < 10 {
			t.Errorf("answers %v", codes)
		}
		if n := strings.Count(h.seen(), "too many attempts"); n != codes[429] {
			t.Errorf("%d of %d that a limit refused are reported", n, codes[429])
		}
		// Who signs in is not held up by how often others at the address have: each end gives its begin back.
		h.pass(2 * time.Minute)
		for range 25 {
			b := newBrowser(t, nil)
			b.get(b.consent(b.begin(h, "/"), "ann", "a").String()).expect(t, 303, "/")
		}
	})
	t.Run("storm of answers", func(t *testing.T) {
		t.Parallel()
		h, _ := withProvider(t, program, oidcserver.Options{})
		b, codes := newBrowser(t, nil), map[int]int{}
		b.begin(h, "/")
		for range 40 {
			codes[b.get(h.url+oidcAnswers+"?state=x&code=y").code]++
		}
		if codes[403] < 20 || codes[429] < 10 {
			t.Errorf("answers by code: %v", codes)
		}
	})
	t.Run("ID token expired", func(t *testing.T) {
		t.Parallel()
		h, _ := withProvider(t, program, oidcserver.Options{TokenLife: -time.Hour})
		b := newBrowser(t, nil)
		b.get(b.consent(b.begin(h, "/"), "ann", "a").String()).expect(t, 403, "not valid")
		b.expect(h, "")
		if !logged(h, "token is expired") {
			t.Errorf("the log does not say why: %v", h.logs.All())
		}
	})
	t.Run("wrong client secret", func(t *testing.T) {
		t.Parallel()
		h, _ := withProvider(t, program, oidcserver.Options{ClientSecret: "right"})
		if err := os.WriteFile(filepath.Join(filepath.Dir(h.file), "secret"), []byte("wrong"), 0o600); err != nil {
			t.Fatal(err)
		}
		await(t, "another secret", func() bool { return h.Users.Set().Provider().ClientSecret == "wrong" })
		b := newBrowser(t, nil)
		b.get(b.consent(b.begin(h, "/"), "ann", "a").String()).expect(t, 403, "did not take the code")
	})
	t.Run("provider down, and back", func(t *testing.T) {
		t.Parallel()
		h, s := withProvider(t, program, oidcserver.Options{})
		b := newBrowser(t, nil)
		back := b.consent(b.begin(h, "/"), "ann", "a")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		b.get(back.String()).expect(t, 503, "Example SSO cannot be reached")
		h.pass(2 * time.Hour) // what the provider said of itself counts no longer, but for want of better
		b.begin(h, "/")
		fresh := serve(t, options{users: fmt.Sprintf("oidc: {issuer: '%s', clientId: wasmjob, groups: {sre: {admin: '*'}}}", s.Issuer)})
		fresh.Users.Set()
		newBrowser(t, nil).get(fresh.url+OIDCPath).expect(t, 503, "cannot be reached at the moment")
		again, err := program.Start(oidcserver.Options{Listen: strings.TrimPrefix(s.Issuer, "http://"), ClientID: "wasmjob", Redirects: []string{h.url + oidcAnswers}, Users: people(), TokenLife: 24 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := again.Close(); err != nil {
				t.Error(err)
			}
		})
		b.get(b.consent(b.begin(h, "/"), "ann", "a").String()).expect(t, 303, "/")
		b.expect(h, "oidc ann@example.com")
	})
	t.Run("group loses its role", func(t *testing.T) {
		t.Parallel()
		h, s := withProvider(t, program, oidcserver.Options{})
		b := newBrowser(t, nil)
		b.get(b.consent(b.begin(h, "/"), "ann", "a").String()).expect(t, 303, "/")
		problem := func() string { _, p := b.whoami(h); return p }
		h.write(t, fmt.Sprintf("oidc: {issuer: '%s', clientId: wasmjob, groups: {etl: {viewer: '*'}}}", s.Issuer))
		await(t, "the group", func() bool { return strings.Contains(problem(), "no role any more") })
		h.write(t, "users: []")
		await(t, "the provider's end", func() bool { return h.Users.Set().Provider() == nil })
		b.get(h.url+OIDCPath).expect(t, 404, "no OpenID Connect provider")
		b.get(h.url+oidcAnswers).expect(t, 404, "no OpenID Connect provider")
	})
}

// logged reports whether a line of the log has a text in its error.
func logged(h *host, text string) bool {
	for _, e := range h.logs.All() {
		if s, ok := e.ContextMap()["error"].(string); ok && strings.Contains(s, text) {
			return true
		}
	}
	return false
}
