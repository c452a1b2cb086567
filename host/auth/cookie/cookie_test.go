package cookie

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wasmjob/wasmjob/host/auth"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is set by tests.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func keysOf(cluster string, fill byte) Keys {
	return Keys{Cluster: cluster, Secret: []byte(strings.Repeat(string(rune(fill)), minSecret))}
}

// maxRevoked bounds what memory remembers: about 1 MB.
const maxRevoked = 10_000

// memory remembers revocations as hosts do, without a registry.
type memory struct {
	now func() time.Time

	mu     sync.Mutex
	ledger Ledger
}

func (m *memory) Add(_ context.Context, user, id string, begun time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ledger.Add(user, id, begun, m.now(), maxRevoked)
	return nil
}

func (m *memory) Has(user, id string, begun time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ledger.Has(user, id, begun)
}

// sessions are those of a cluster, with a clock; every user exists.
func sessions(k Keys) (*Sessions, *clock) {
	c := &clock{time.Date(2026, 11, 23, 17, 0, 0, 0, time.UTC)}
	ok := func(*http.Request) error { return nil }
	return &Sessions{
		Box: &Box{Keys: func() (Keys, bool) { return k, true }, Secure: func(r *http.Request) bool { return r.TLS != nil }, Now: c.now},
		Resolve: func(s Session) (auth.Principal, error) {
			return auth.Principal{Name: s.Name, Method: s.Method}, nil
		},
		Origin: ok, Host: ok, Revoked: &memory{now: c.now},
	}, c
}

// signIn begins a session and returns its cookie.
func signIn(t *testing.T, s *Sessions, with ...*http.Cookie) *http.Cookie {
	t.Helper()
	w, r := httptest.NewRecorder(), request("POST", with...)
	if err := s.Begin(w, r, Session{Name: "ann", Method: auth.ByPassword}); err != nil {
		t.Fatal(err)
	}
	return w.Result().Cookies()[0]
}

func request(method string, cookies ...*http.Cookie) *http.Request {
	r := httptest.NewRequest(method, "/", http.NoBody)
	for _, c := range cookies {
		r.AddCookie(c)
	}
	return r
}

// refused expects a problem.
func refused(t *testing.T, err error, status int, detail string) {
	t.Helper()
	var p *auth.Problem
	if !errors.As(err, &p) || p.Status != status || !strings.Contains(p.Detail, detail) {
		t.Errorf("%v, want %d and %q", err, status, detail)
	}
}

func TestSession(t *testing.T) {
	t.Parallel()
	s, clock := sessions(keysOf("prod", 'k'))
	c := signIn(t, s)
	if c.Name != "wasmjob-session-prod" || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Secure || c.Path != "/" || c.MaxAge != int(Life/time.Second) {
		t.Errorf("%+v", c)
	}
	p, err := s.Identify(request("GET", c))
	if err != nil || p.Name != "ann" || p.Method != auth.ByPassword || p.Session == "" {
		t.Fatalf("%+v, %v", p, err)
	}
	if _, err := s.Identify(request("GET")); !errors.Is(err, auth.ErrNone) {
		t.Errorf("without a cookie: %v", err)
	}
	if _, err := s.Identify(request("GET", &http.Cookie{Name: "other", Value: "x"})); !errors.Is(err, auth.ErrNone) {
		t.Errorf("with another cookie: %v", err)
	}
	clock.t = clock.t.Add(Life)
	_, err = s.Identify(request("GET", c))
	refused(t, err, 401, "expired")
	var problem *auth.Problem
	if errors.As(err, &problem) && !strings.Contains(problem.Header.Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("the browser keeps an expired cookie: %q", problem.Header)
	}
}

// TestSecureCookie: with TLS the browser takes the cookie from this host alone.
func TestSecureCookie(t *testing.T) {
	t.Parallel()
	s, _ := sessions(keysOf("prod", 'k'))
	r := httptest.NewRequest("POST", "https://cron.example.com/", http.NoBody)
	w := httptest.NewRecorder()
	if err := s.Begin(w, r, Session{Name: "ann"}); err != nil {
		t.Fatal(err)
	}
	if c := w.Result().Cookies()[0]; !c.Secure || c.Name != "__Host-wasmjob-session-prod" || c.Domain != "" {
		t.Errorf("%+v", c)
	}
}

// TestForged: what this cluster has not made is refused, whatever was changed.
func TestForged(t *testing.T) {
	t.Parallel()
	s, _ := sessions(keysOf("prod", 'k'))
	good := signIn(t, s)
	raw, err := base64.RawURLEncoding.DecodeString(good.Value)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{
		"nothing": "", "no base64": "%%%", "cut": good.Value[:len(good.Value)/2], "longer": good.Value + "AAAA", "huge": strings.Repeat("A", 1<<16),
		"plain": base64.RawURLEncoding.EncodeToString([]byte(`{"e":9999999999,"d":{"i":"x","n":"root","m":"password"}}`)),
	}
	for i := range raw {
		changed := append([]byte{}, raw...)
		changed[i] ^= 1
		values[fmt.Sprintf("bit of byte %d", i)] = base64.RawURLEncoding.EncodeToString(changed)
	}
	for name, value := range values {
		if _, err := s.Identify(request("GET", &http.Cookie{Name: good.Name, Value: value})); err == nil {
			t.Errorf("%s is taken", name)
		} else {
			refused(t, err, 401, "sign in again")
		}
	}
	// A cookie of another kind is none of a session.
	w := httptest.NewRecorder()
	if err := s.Box.Set(w, request("GET"), "login", Session{ID: "x", Name: "root"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	_, err = s.Identify(request("GET", &http.Cookie{Name: good.Name, Value: w.Result().Cookies()[0].Value}))
	refused(t, err, 401, "sign in again")
	_, err = s.Identify(request("GET", good, good))
	refused(t, err, 401, "two cookies")
}

// TestOtherCluster: a cookie of another cluster is refused with both names, also under
// ours, and also if both have the same secret.
func TestOtherCluster(t *testing.T) {
	t.Parallel()
	ours, _ := sessions(keysOf("prod", 'k'))
	for name, k := range map[string]Keys{"another secret": keysOf("test", 'x'), "the same secret": keysOf("test", 'k')} {
		theirs, _ := sessions(k)
		c := signIn(t, theirs)
		_, err := ours.Identify(request("GET", c))
		refused(t, err, 401, `your session is one of the cluster "test", and this is the cluster "prod"`)
		var p *auth.Problem
		if errors.As(err, &p) && p.Header.Get("Set-Cookie") != "" {
			t.Errorf("%s: the other cluster's session is ended", name)
		}
		c.Name = "wasmjob-session-prod"
		_, err = ours.Identify(request("GET", c))
		refused(t, err, 401, "not made by this cluster")
	}
	// Beside ours, the other one does no harm.
	theirs, _ := sessions(keysOf("test", 'x'))
	if _, err := ours.Identify(request("GET", signIn(t, theirs), signIn(t, ours))); err != nil {
		t.Error(err)
	}
}

// TestFixation: a session that was in the browser before is not the one that a user gets.
func TestFixation(t *testing.T) {
	t.Parallel()
	s, _ := sessions(keysOf("prod", 'k'))
	planted := signIn(t, s)
	own := signIn(t, s, planted)
	a, err := s.Identify(request("GET", planted))
	b, failed := s.Identify(request("GET", own))
	if err != nil || failed != nil || a.Session == b.Session || planted.Value == own.Value {
		t.Errorf("%+v, %v; %+v, %v", a, err, b, failed)
	}
}

func TestLogout(t *testing.T) {
	t.Parallel()
	s, _ := sessions(keysOf("prod", 'k'))
	c, other := signIn(t, s), signIn(t, s)
	w := httptest.NewRecorder()
	if err := s.End(w, request("POST", c)); err != nil {
		t.Fatal(err)
	}
	if set := w.Result().Cookies(); len(set) != 1 || set[0].MaxAge >= 0 {
		t.Errorf("%+v", set)
	}
	_, err := s.Identify(request("GET", c))
	refused(t, err, 401, "signed out")
	if _, err := s.Identify(request("GET", other)); err != nil {
		t.Errorf("another session of the user: %v", err)
	}
	if err := s.End(httptest.NewRecorder(), request("POST")); err != nil {
		t.Errorf("without a session: %v", err)
	}
}

// TestFromPages: a browser says which page sends a request that changes something, and the cookie
// alone is not enough.
func TestFromPages(t *testing.T) {
	t.Parallel()
	s, _ := sessions(keysOf("prod", 'k'))
	c := signIn(t, s)
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		_, err := s.Identify(request(method, c))
		refused(t, err, 403, "Origin or Sec-Fetch-Site")
		for _, header := range []string{"Origin", "Sec-Fetch-Site"} {
			r := request(method, c)
			r.Header.Set(header, "x")
			if _, err := s.Identify(r); err != nil {
				t.Errorf("%s with %s: %v", method, header, err)
			}
		}
	}
	s.Origin = func(*http.Request) error { return auth.NewProblem(auth.Forged, 403, "elsewhere") }
	r := request("POST", c)
	r.Header.Set("Origin", "x")
	_, err := s.Identify(r)
	refused(t, err, 403, "elsewhere")
}

func TestResolve(t *testing.T) {
	t.Parallel()
	s, _ := sessions(keysOf("prod", 'k'))
	c := signIn(t, s)
	s.Resolve = func(Session) (auth.Principal, error) { return auth.Principal{}, errors.New("its user was removed") }
	_, err := s.Identify(request("GET", c))
	refused(t, err, 401, "its user was removed; sign in again")
}

func TestKeys(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]Keys{"short": {"prod", []byte("short")}, "empty": keysOf("", 'k'), "odd": keysOf("a-b", 'k'), "semicolon": keysOf("a;b", 'k'), "long": keysOf(strings.Repeat("a", 33), 'k')} {
		if k.Check() == nil {
			t.Errorf("%s is taken", name)
		}
	}
	s, _ := sessions(keysOf("prod", 'k'))
	c := signIn(t, s)
	s.Box.Keys = func() (Keys, bool) { return Keys{}, false }
	_, err := s.Identify(request("GET", c))
	refused(t, err, 503, "registry")
	if _, err := s.Identify(request("GET", &http.Cookie{Name: "theme", Value: "dark"})); !errors.Is(err, auth.ErrNone) {
		t.Errorf("a cookie that is no session's: %v", err) // a certificate or a token may say who it is
	}
	if err := s.Begin(httptest.NewRecorder(), request("POST"), Session{}); err == nil {
		t.Error("a session is begun without keys")
	}
	s.Box.Keys = func() (Keys, bool) { return keysOf("prod", 'n'), true }
	_, err = s.Identify(request("GET", c))
	refused(t, err, 401, "sign in again")
	if err := s.Box.Set(httptest.NewRecorder(), request("GET"), "x", strings.Repeat("a", 4000), time.Hour); err == nil {
		t.Error("a cookie that no browser keeps is set")
	}
}

// TestRevocationsAreBounded: however many sign out, memory is bounded, and no session
// comes back to life; the newest sessions stay.
func TestRevocationsAreBounded(t *testing.T) {
	t.Parallel()
	c := &clock{time.Unix(1e9, 0)}
	m := &memory{now: c.now}
	const n = 3*maxRevoked + 10
	user := func(i int) string { return fmt.Sprint(i % 600) }
	begun := make([]time.Time, n)
	for i := range n {
		c.t = c.t.Add(time.Second)
		begun[i] = c.t
		if err := m.Add(context.Background(), user(i), fmt.Sprint(i), c.t); err != nil {
			t.Fatal(err)
		}
		if i%7 == 0 && m.ledger.size() > maxRevoked {
			t.Fatalf("%d are remembered", m.ledger.size())
		}
	}
	for i := range n {
		if !m.Has(user(i), fmt.Sprint(i), begun[i]) {
			t.Fatalf("session %d is alive again", i)
		}
	}
	if m.Has("0", "new", c.t) {
		t.Error("a new session is taken for one that was signed out")
	}
	floor := m.ledger.Floor
	c.t = c.t.Add(Life + time.Second)
	for i := range maxRevoked {
		if err := m.Add(context.Background(), user(i), "later"+fmt.Sprint(i), c.t); err != nil {
			t.Fatal(err)
		}
	}
	if m.ledger.size() > maxRevoked || m.ledger.Floor != floor {
		t.Errorf("%d are remembered, and the floor went from %d to %d though all before have expired", m.ledger.size(), floor, m.ledger.Floor)
	}
}

// TestOneUserFillsNothing: a user who signs in and out all the time ends old sessions of
// that user alone, while there are few such users.
func TestOneUserFillsNothing(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	var l Ledger
	for i := range 1001 {
		l.Add("eve", fmt.Sprint(i), now, now, 1000)
		now = now.Add(time.Second)
	}
	if l.Has("ann", "hers", now.Add(-Life)) || l.Floor != 0 {
		t.Errorf("all are signed out that began before %d", l.Floor)
	}
	for i := range 1001 {
		if !l.Has("eve", fmt.Sprint(i), time.Unix(1e9+int64(i), 0)) {
			t.Fatalf("session %d is alive again", i)
		}
	}
	if n := l.size(); n > perUser+1 {
		t.Errorf("%d are remembered", n)
	}
}

// TestLedgersMerge: of two lists that were filled apart nothing is lost, in either order.
func TestLedgersMerge(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	fill := func(prefix string, n int) (l Ledger) {
		for i := range n {
			l.Add(fmt.Sprint(i%12), prefix+fmt.Sprint(i), now.Add(-time.Duration(i)*time.Second), now, 100)
		}
		return l
	}
	for _, n := range [][2]int{{10, 20}, {100, 100}, {1000, 5}, {5, 1000}, {0, 7}} {
		a, b := fill("a", n[0]), fill("b", n[1])
		if changed := a.Merge(b, now, 100); changed != (n[1] > 0) {
			t.Errorf("%v: changed %t", n, changed)
		}
		if a.size() > 100 {
			t.Errorf("%v: %d are remembered", n, a.size())
		}
		for prefix, many := range map[string]int{"a": n[0], "b": n[1]} {
			for i := range many {
				if !a.Has(fmt.Sprint(i%12), prefix+fmt.Sprint(i), now.Add(-time.Duration(i)*time.Second)) {
					t.Fatalf("%v: %s%d is alive again", n, prefix, i)
				}
			}
		}
		if a.Merge(b, now, 100) {
			t.Errorf("%v: the same list has something new", n)
		}
	}
	gone := now.Add(-Life).Unix()
	old := Ledger{Users: map[string]Ends{"ann": {Floor: gone, Sessions: map[string]int64{"x": gone}}}}
	var l Ledger
	if l.Merge(old, now, 100) || len(l.Users) > 0 {
		t.Errorf("what has expired is taken over: %+v", l)
	}
}

// FuzzOpen: no value but one that was sealed opens, and nothing that a browser sends
// panics.
func FuzzOpen(f *testing.F) {
	k := keysOf("prod", 'k')
	good, err := k.seal(kindSession, Session{ID: "x", Name: "ann"}, time.Unix(2e9, 0))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, "wasmjob-session-prod")
	f.Add("", "wasmjob-session-")
	f.Add("a.b.c", "__Host-wasmjob-session-test")
	f.Fuzz(func(t *testing.T, value, name string) {
		var s Session
		if err := k.open(kindSession, value, time.Unix(1e9, 0), &s); err == nil && s.ID != "x" {
			t.Errorf("%q opens", value)
		}
		sessions, _ := sessions(k)
		r := httptest.NewRequest("GET", "/", http.NoBody)
		r.Header.Set("Cookie", name+"="+value)
		if p, err := sessions.Identify(r); err == nil && p.Name != "ann" {
			t.Errorf("%q is %+v", name+"="+value, p)
		}
	})
}
