package login

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/auth/cookie"
	"github.com/wasmjob/wasmjob/host/auth/httpx"
	"github.com/wasmjob/wasmjob/host/auth/oidc"
	"github.com/wasmjob/wasmjob/host/auth/users"
	"github.com/wasmjob/wasmjob/host/event/operation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "correct horse battery"

// host is a real HTTP server with everything that signs in before a page that says who
// came.
type host struct {
	*Login
	url  string
	file string
	logs *observer.ObservedLogs

	mu     sync.Mutex
	offset time.Duration
	signed []string
}

func (h *host) now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Add(h.offset)
}

// pass lets time go by.
func (h *host) pass(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.offset += d
}

// seen are the sign-ins and sign-outs that were reported.
func (h *host) seen() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := strings.Join(h.signed, "; ")
	h.signed = nil
	return s
}

type options struct {
	users   string // the file's text; empty: no file
	cluster string
	secret  byte
	tls     *tls.Config
	site    httpx.SiteOptions
}

// Two hashes of secret, which cost less than those that are made, so that tests are quick.
const (
	hash      = `$argon2id$v=19$m=8192,t=1,p=1$c2FsdHNhbHRzYWx0MQ$TEZO1SW4DKEkpbVvMpzyQgK3m47zI1KQBmbkdkqZx3Q`
	otherHash = `$argon2id$v=19$m=8192,t=1,p=1$c2FsdHNhbHRzYWx0Mg$r4nMKoazxQeZL47L/kft/Cg43A9amNBjCkXOBFJB3f0`
)

// annAndBob are two users with the same password.
func annAndBob() string {
	return fmt.Sprintf("users:\n  - {name: ann, password: %q, roles: {operator: 'etl-*'}}\n  - {name: bob, password: %q, roles: {viewer: '*'}}\n  - {name: locked, roles: {viewer: '*'}}\n", hash, hash)
}

func serve(t *testing.T, o options) *host {
	t.Helper()
	h := &host{file: filepath.Join(t.TempDir(), "users.yaml")}
	if o.users != "" {
		h.write(t, o.users)
	}
	core, logs := observer.New(zap.InfoLevel)
	log := zap.New(core)
	h.logs = logs
	live, err := users.Open(h.file, log)
	if err != nil {
		t.Fatal(err)
	}
	watching, cancel := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	go func() { watched <- live.Watch(watching) }()
	t.Cleanup(func() {
		cancel()
		if err := <-watched; err != nil {
			t.Error(err)
		}
	})
	site, err := httpx.NewSite(o.site)
	if err != nil {
		t.Fatal(err)
	}
	if o.cluster == "" {
		o.cluster, o.secret = "prod", 'k'
	}
	keys := cookie.Keys{Cluster: o.cluster, Secret: []byte(strings.Repeat(string(rune(o.secret)), 32))}
	sessions := &cookie.Sessions{
		Box:     &cookie.Box{Keys: func() (cookie.Keys, bool) { return keys, true }, Secure: site.Secure, Now: h.now},
		Resolve: Resolve(live), Origin: site.CheckOrigin, Host: site.CheckHost, Revoked: &revocations{now: h.now},
	}
	provider := oidc.New(h.now, log)
	t.Cleanup(provider.Close)
	h.Login = New(Options{Users: live, Sessions: sessions, Site: site, Provider: provider, Now: h.now, Logger: log,
		Signed: func(_ context.Context, who auth.Principal, what operation.Operation, err error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.signed = append(h.signed, fmt.Sprintf("%s %s from %s: %v", what, who, who.From, err))
		}})
	guard := auth.NewGuard(log, site.Client, live.Tokens("the-host's-own-token", h.now), sessions, live.Certificates(site.CheckOrigin))
	who := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := auth.From(r.Context())
		_ = json.NewEncoder(w).Encode(map[string]any{"who": p.String(), "operates": p.Patterns(operation.Operate)})
	})
	mux := http.NewServeMux()
	for _, path := range []string{"/login", "/login/", "/logout", "/oidc/"} {
		mux.Handle(path, h.Handler())
	}
	mux.Handle("/api/", guard.Handler(who))
	mux.Handle("/", guard.Pages(who, h.Refused))
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: site.Headers(httpx.Body(64<<10, mux)), TLSConfig: o.tls, ErrorLog: zap.NewStdLog(log)}
	httpx.Limit(s)
	ended := make(chan error, 1)
	if o.tls == nil {
		h.url = "http://" + l.Addr().String()
		go func() { ended <- s.Serve(l) }()
	} else {
		h.url = "https://" + l.Addr().String()
		go func() { ended <- s.ServeTLS(l, "", "") }()
	}
	t.Cleanup(func() {
		_ = s.Close()
		<-ended
	})
	return h
}

// await asks until the answer is good: files are noticed a moment after they change.
func await(t *testing.T, what string, good func() bool) {
	t.Helper()
	late, again := time.After(20*time.Second), time.NewTicker(20*time.Millisecond)
	defer again.Stop()
	for !good() {
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("%s was not noticed", what)
		}
	}
}

func (h *host) write(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(h.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// browser keeps cookies as a browser does, and follows redirects if it is told to.
type browser struct {
	*http.Client
	t *testing.T
}

func newBrowser(t *testing.T, config *tls.Config) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: config}
	return &browser{&http.Client{Jar: jar, Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, t}
}

// answer is one of the server's.
type answer struct {
	code   int
	body   string
	header http.Header
	page   Page
	// problem is the detail, wherever it is.
	problem string
}

func (b *browser) do(method, address string, form url.Values, header map[string]string) answer {
	b.t.Helper()
	var body io.Reader = http.NoBody
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(b.t.Context(), method, address, body)
	if err != nil {
		b.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if method != http.MethodGet { // as browsers do
		r.Header.Set("Origin", r.URL.Scheme+"://"+r.URL.Host)
	}
	for name, value := range header {
		if name == "Host" {
			r.Host = value
		} else {
			r.Header.Set(name, value)
		}
	}
	resp, err := b.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	a := answer{code: resp.StatusCode, body: string(text), header: resp.Header}
	var p auth.Problem
	if json.Unmarshal(text, &p) == nil {
		a.problem = p.Detail
	}
	if json.Unmarshal(text, &a.page) == nil && a.page.Problem != nil {
		a.problem = a.page.Problem.Detail
	}
	return a
}

func (b *browser) get(address string) answer { b.t.Helper(); return b.do("GET", address, nil, nil) }

// signIn opens the login page and sends its form.
func (b *browser) signIn(h *host, name, pass string) answer {
	b.t.Helper()
	page := b.get(h.url + Path + "?next=/jobs").page
	return b.do("POST", h.url+Path, url.Values{"name": {name}, "password": {pass}, "next": {page.Next}}, nil)
}

// whoami is what the API says of the browser.
func (b *browser) whoami(h *host) (who, problem string) {
	b.t.Helper()
	a := b.get(h.url + "/api/whoami")
	var is struct{ Who string }
	if a.code == 200 {
		if err := json.Unmarshal([]byte(a.body), &is); err != nil {
			b.t.Fatal(err)
		}
	}
	return is.Who, a.problem
}

func (b *browser) expect(h *host, who string) {
	b.t.Helper()
	if got, problem := b.whoami(h); got != who {
		b.t.Errorf("signed in as %q (%s), want %q", got, problem, who)
	}
}

func (a answer) expect(t *testing.T, code int, text string) {
	t.Helper()
	if a.code != code || !strings.Contains(a.problem+a.header.Get("Location"), text) {
		t.Errorf("%d %q to %q, want %d and %q\n%s", a.code, a.problem, a.header.Get("Location"), code, text, a.body)
	}
}

// revocations are those of one process.
type revocations struct {
	now    func() time.Time
	mu     sync.Mutex
	ledger cookie.Ledger
}

func (r *revocations) Add(_ context.Context, user, id string, begun time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ledger.Add(user, id, begun, r.now(), 1000)
	return nil
}

func (r *revocations) Has(user, id string, begun time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ledger.Has(user, id, begun)
}
