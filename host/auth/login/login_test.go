package login

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/auth/cookie"
	"github.com/wasmjob/wasmjob/host/auth/httpx"
)

func TestPassword(t *testing.T) {
	t.Parallel()
	h := serve(t, options{users: annAndBob()})
	b := newBrowser(t, nil)
	b.get(h.url+"/jobs?q=a%20b").expect(t, 303, "/login?next=%2Fjobs%3Fq%3Da")
	b.do("GET", h.url+"/api/x", nil, nil).expect(t, 401, "sign in first")
	b.signIn(h, "ann", "wrong horse battery").expect(t, 401, "no user of this name with this password")
	b.signIn(h, "nobody", secret).expect(t, 401, "no user of this name with this password")
	b.signIn(h, "locked", secret).expect(t, 401, "no user of this name with this password")
	b.signIn(h, "ann", "").expect(t, 401, "no user of this name with this password")
	b.signIn(h, "host token", secret).expect(t, 401, "no user of this name with this password")
	b.expect(h, "")
	b.signIn(h, "ann", secret).expect(t, 303, "/jobs")
	b.expect(h, "ann")
	if got := h.seen(); !strings.HasSuffix(got, "sign in ann from 127.0.0.1: <nil>") || strings.Count(got, "sign in") != 6 || !strings.Contains(got, `sign in "host token" from`) || strings.Contains(got, secret) {
		t.Errorf("reported: %s", got)
	}
}

// TestSessionFollowsItsUser: another password, a removed user and another role take
// effect in sessions that are there.
func TestSessionFollowsItsUser(t *testing.T) {
	t.Parallel()
	file := annAndBob()
	h := serve(t, options{users: file})
	ann, bob := newBrowser(t, nil), newBrowser(t, nil)
	ann.signIn(h, "ann", secret).expect(t, 303, "/")
	bob.signIn(h, "bob", secret).expect(t, 303, "/")
	problem := func(b *browser) string { _, p := b.whoami(h); return p }
	h.write(t, strings.Replace(file, "operator: 'etl-*'", "admin: '*'", 1))
	await(t, "another role", func() bool { return strings.Contains(ann.get(h.url+"/api/x").body, `"operates":["*"]`) })
	h.write(t, strings.Replace(file, hash, otherHash, 1)) // ann's
	await(t, "another password", func() bool { return strings.Contains(problem(ann), "another password") })
	bob.expect(h, "bob")
	h.write(t, "users: [{name: bob}]") // a mistake: nothing changes
	await(t, "a mistake", func() bool { return h.Users.Problem() != "" })
	bob.expect(h, "bob")
	h.write(t, "users: []")
	await(t, "a removed user", func() bool { return strings.Contains(problem(bob), "was removed") })
}

func TestLogout(t *testing.T) {
	t.Parallel()
	h := serve(t, options{users: annAndBob()})
	b := newBrowser(t, nil)
	b.signIn(h, "ann", secret).expect(t, 303, "/jobs")
	base, err := url.Parse(h.url)
	if err != nil {
		t.Fatal(err)
	}
	kept := b.Jar.Cookies(base) // as a thief would
	b.do("POST", h.url+LogoutPath, url.Values{}, map[string]string{"Origin": ""}).expect(t, 403, "Origin or Sec-Fetch-Site")
	b.expect(h, "ann")
	b.do("POST", h.url+LogoutPath, url.Values{}, map[string]string{"Origin": "https://evil.example"}).expect(t, 403, "another site")
	b.expect(h, "ann")
	b.do("GET", h.url+LogoutPath, nil, nil)
	b.expect(h, "ann")
	b.do("POST", h.url+LogoutPath, url.Values{}, nil).expect(t, 303, "/login")
	b.expect(h, "")
	thief := newBrowser(t, nil)
	thief.Jar.SetCookies(base, kept)
	if who, problem := thief.whoami(h); who != "" || !strings.Contains(problem, "signed out") {
		t.Errorf("a cookie that was kept is %q: %s", who, problem)
	}
	b.do("POST", h.url+LogoutPath, url.Values{}, nil).expect(t, 303, "/login")
}

// TestForms: the login form is taken from this site and this browser alone, so that no
// other site signs somebody in under a name of its own.
func TestForms(t *testing.T) {
	t.Parallel()
	h := serve(t, options{users: annAndBob()})
	b := newBrowser(t, nil)
	page := b.get(h.url + Path).page
	if !page.Passwords || page.Provider != "" || page.Cluster != "prod" || page.Next != "/" || page.Plain {
		t.Errorf("the page: %+v", page)
	}
	form := url.Values{"name": {"ann"}, "password": {secret}}
	b.do("POST", h.url+Path, form, map[string]string{"Origin": "https://evil.example"}).expect(t, 403, "another site")
	b.do("POST", h.url+Path, form, map[string]string{"Origin": "null"}).expect(t, 403, "another site")
	b.do("POST", h.url+Path, form, map[string]string{"Sec-Fetch-Site": "cross-site"}).expect(t, 403, "another site")
	b.do("POST", h.url+Path, form, map[string]string{"Host": "evil.example"}).expect(t, 403, "does not answer to the name")
	b.do("GET", h.url+Path, nil, map[string]string{"Host": "evil.example"}).expect(t, 403, "does not answer to the name")
	b.expect(h, "")
	b.do("POST", h.url+Path, form, nil).expect(t, 303, "/")
	b.expect(h, "ann")
}

// TestFixation: a session that was in the browser before is not the user's.
func TestFixation(t *testing.T) {
	t.Parallel()
	h := serve(t, options{users: annAndBob()})
	attacker, victim := newBrowser(t, nil), newBrowser(t, nil)
	attacker.signIn(h, "bob", secret).expect(t, 303, "/")
	base, err := url.Parse(h.url)
	if err != nil {
		t.Fatal(err)
	}
	victim.Jar.SetCookies(base, attacker.Jar.Cookies(base))
	victim.signIn(h, "ann", secret).expect(t, 303, "/")
	victim.expect(h, "ann")
	attacker.expect(h, "bob")
	a, v := attacker.Jar.Cookies(base), victim.Jar.Cookies(base)
	if len(a) != 1 || len(v) != 1 || a[0].Value == v[0].Value {
		t.Error("the attacker knows the victim's session")
	}
}

// TestNext: nobody is sent to another site after signing in.
func TestNext(t *testing.T) {
	t.Parallel()
	for next, want := range map[string]string{
		"": "/", "/": "/", "/jobs?q=a&b=c": "/jobs?q=a&b=c", "/jobs/%E4%BD%A0": "/jobs/%E4%BD%A0",
		"https://evil.example": "/", "//evil.example": "/", "///evil.example": "/", `/\evil.example`: "/", `\\evil.example`: "/", "/\t/evil.example": "/", "/\r\nX: y": "/",
		"javascript:alert(1)": "/", "evil": "/", "/login": "/", "/login?next=/login": "/", "/logout": "/", "/%": "/", "http:/x": "/", "/@evil.example": "/@evil.example",
	} {
		if got := local(next); got != want {
			t.Errorf("next %q is %q, want %q", next, got, want)
		}
	}
}

func TestLink(t *testing.T) {
	t.Parallel()
	h := serve(t, options{})
	b, second := newBrowser(t, nil), newBrowser(t, nil)
	link := h.url + h.Link("")
	second.do("HEAD", link, nil, nil).expect(t, 405, "") // a preview
	b.get(link).expect(t, 303, "/")
	b.expect(h, "login link")
	second.get(link).expect(t, 403, "used already")
	second.expect(h, "")
	b.get(h.url+LinkPath).expect(t, 403, "used already")
	b.get(h.url+LinkPath+"?code=x").expect(t, 403, "used already")
	late := h.url + h.Link("")
	h.pass(linkLife)
	b.get(late).expect(t, 403, "older than 5m")
	late = h.url + h.Link("")
	b.do("GET", late, nil, map[string]string{"Host": "evil.example"}).expect(t, 403, "does not answer to the name")
	for range maxLinks {
		h.Link("")
	}
	b.get(late).expect(t, 403, "used already") // there are only so many at a time
	if n := len(h.links.open); n != maxLinks {
		t.Errorf("%d links are open", n)
	}
	if got := h.seen(); !strings.HasPrefix(got, "sign in login link from 127.0.0.1: <nil>; ") {
		t.Errorf("reported: %s", got)
	}
}

// TestLinkOfUser: whoever has asked for a login link is named in what its session does.
func TestLinkOfUser(t *testing.T) {
	t.Parallel()
	h := serve(t, options{})
	b := newBrowser(t, nil)
	b.get(h.url+h.Link("ann@ops1")).expect(t, 303, "/")
	b.do("POST", h.url+LogoutPath, url.Values{}, nil).expect(t, 303, "/login")
	if got, want := h.seen(), "sign in login link (ann@ops1) from 127.0.0.1: <nil>; sign out login link (ann@ops1) from 127.0.0.1: <nil>"; got != want {
		t.Errorf("reported: %s, want %s", got, want)
	}
}

// TestLinkOnce: of many that use one link at once, one gets in.
func TestLinkOnce(t *testing.T) {
	t.Parallel()
	l := &links{now: time.Now}
	code := l.add("")
	var all sync.WaitGroup
	var mu sync.Mutex
	in := 0
	for range 50 {
		all.Go(func() {
			if _, ok := l.take(code); ok {
				mu.Lock()
				in++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if in != 1 {
		t.Errorf("%d got in", in)
	}
}

// TestStorm: attempts on one account are refused after a few without a password being
// looked at, other accounts get in meanwhile, and so does that account where it is known.
func TestStorm(t *testing.T) {
	t.Parallel()
	h := serve(t, options{users: annAndBob(), site: httpx.SiteOptions{Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}})
	from := func(b *browser, address, name, pass string) answer {
		t.Helper()
		header := map[string]string{"X-Forwarded-For": address}
		return b.do("POST", h.url+Path, url.Values{"name": {name}, "password": {pass}}, header)
	}
	home := newBrowser(t, nil)
	from(home, "198.51.100.7", "ann", secret).expect(t, 303, "/")
	h.seen()
	var mu sync.Mutex
	began, codes := time.Now(), map[int]int{}
	var all sync.WaitGroup
	for g := range 4 {
		b := newBrowser(t, nil)
		all.Go(func() {
			for i := range 100 {
				a := from(b, fmt.Sprintf("203.0.113.%d", 1+(100*g+i)/5%200), "ann", fmt.Sprint("guess number ", i))
				mu.Lock()
				codes[a.code]++
				mu.Unlock()
				if a.code == 429 && a.header.Get("Retry-After") == "" {
					t.Error("no Retry-After")
				}
			}
		})
	}
	stranger := newBrowser(t, nil)
	for range 5 {
		if a := from(stranger, "192.0.2.9", "bob", secret); a.code != 303 {
			t.Errorf("bob meanwhile: %d %s", a.code, a.problem)
		}
	}
	from(home, "198.51.100.7", "ann", secret).expect(t, 303, "/")
	all.Wait()
	// The account has 50 at once and one more in five seconds.
	if most := 51 + int(time.Since(began)/(5*time.Second)); codes[401] > most || codes[401]+codes[429] != 400 {
		t.Errorf("answers by code: %v", codes)
	}
	from(home, "198.51.100.7", "ann", secret).expect(t, 303, "/")
	seen := h.seen()
	if n := strings.Count(seen, `sign in "ann" from 203`); n != 400 {
		t.Errorf("%d of 400 attempts are reported", n)
	}
	if n := strings.Count(seen, "no user of this name"); n != codes[401] {
		t.Errorf("%d attempts are reported as made, and %d were made", n, codes[401])
	}
	if n := h.throttle.Size(); n > 1000 {
		t.Errorf("%d entries", n)
	}
}

// TestCluster: a cookie of another cluster is named as such, and one before the keys are
// known is not lost.
func TestCluster(t *testing.T) {
	t.Parallel()
	prod := serve(t, options{users: annAndBob()})
	test := serve(t, options{users: annAndBob(), cluster: "test", secret: 'x'})
	b := newBrowser(t, nil)
	b.signIn(test, "ann", secret).expect(t, 303, "/")
	base, err := url.Parse(prod.url)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Jar.Cookies(base)) == 0 { // as browsers, the jar does not tell ports apart
		t.Fatal("the cookie is not sent to the other cluster")
	}
	if _, problem := b.whoami(prod); !strings.Contains(problem, `one of the cluster "test", and this is the cluster "prod"`) {
		t.Error(problem)
	}
	b.signIn(prod, "bob", secret).expect(t, 303, "/")
	b.expect(prod, "bob")
	b.expect(test, "ann")
	known := test.Sessions.Box.Keys
	test.Sessions.Box.Keys = func() (cookie.Keys, bool) { return cookie.Keys{}, false }
	if a := b.get(test.url + "/api/x"); a.code != 503 {
		t.Errorf("without keys: %d %s", a.code, a.problem)
	}
	b.get(test.url+Path).expect(t, 503, "registry")
	link := test.url + test.Link("")
	b.get(link).expect(t, 503, "registry")
	b.get(test.url+oidcAnswers).expect(t, 503, "registry")
	b.signIn(test, "ann", secret).expect(t, 503, "registry")
	b.get(test.url+"/jobs").expect(t, 503, "registry")
	test.Sessions.Box.Keys = known
	b.expect(test, "ann")
	b.get(link).expect(t, 303, "/")
	b.expect(test, "login link")
}

// TestExpired: a session lasts so long and no longer.
func TestExpired(t *testing.T) {
	t.Parallel()
	h := serve(t, options{users: annAndBob()})
	b := newBrowser(t, nil)
	b.signIn(h, "ann", secret).expect(t, 303, "/")
	h.pass(cookie.Life - time.Minute)
	b.expect(h, "ann")
	h.pass(2 * time.Minute)
	if a := b.get(h.url + "/api/x"); a.code != 401 || !strings.Contains(a.problem, "expired") || len(a.header.Values("Set-Cookie")) == 0 {
		t.Errorf("%d %s", a.code, a.problem)
	}
	b.get(h.url+"/jobs").expect(t, 303, "/login?next=")
}

// TestWhy: who is led to the login page because of a session reads why, in words of ours alone.
func TestWhy(t *testing.T) {
	t.Parallel()
	h := serve(t, options{users: annAndBob()})
	other := serve(t, options{users: annAndBob(), cluster: "test", secret: 'x'})
	b := newBrowser(t, nil)
	why := func(path string) string {
		var p Page
		a := b.get(h.url + path)
		if err := json.Unmarshal([]byte(a.body), &p); err != nil {
			t.Fatalf("%d %s: %v", a.code, a.body, err)
		}
		return string(p.Why)
	}
	led := func(want string) {
		t.Helper()
		a := b.get(h.url + "/jobs")
		to := a.header.Get("Location")
		if a.code != 303 || strings.Contains(to, "&why=") != (want != "") || why(to) != want {
			t.Errorf("%d, led to %s, which says %q, expected %q", a.code, to, why(to), want)
		}
	}
	led("")
	for _, text := range []string{"%3Cb%3Eyour+bank%3C%2Fb%3E", "", "expired+or+so"} {
		if got := why("/login?why=" + text); got != "" {
			t.Errorf("%s: the page says %q", text, got)
		}
	}
	b.signIn(other, "ann", secret).expect(t, 303, "/")
	led("elsewhere")
	b.signIn(h, "ann", secret).expect(t, 303, "/")
	base, err := url.Parse(h.url)
	if err != nil {
		t.Fatal(err)
	}
	kept := b.Jar.Cookies(base)
	h.write(t, "users: []")
	await(t, "a removed user", func() bool { _, p := b.whoami(h); return strings.Contains(p, "was removed") })
	b.Jar.SetCookies(base, kept)
	led("revoked")
	h.write(t, annAndBob())
	await(t, "the user is back", func() bool {
		b.Jar.SetCookies(base, kept)
		who, _ := b.whoami(h)
		return strings.Contains(who, "ann")
	})
	b.do("POST", h.url+LogoutPath, url.Values{}, nil).expect(t, 303, "/login")
	b.Jar.SetCookies(base, kept)
	led("signed-out")
	h.pass(cookie.Life + time.Minute)
	b.Jar.SetCookies(base, kept)
	led("expired")
	for _, c := range kept {
		if strings.Contains(c.Name, "session") {
			c.Value = "x" + c.Value
		}
	}
	b.Jar.SetCookies(base, kept)
	led("unreadable")
}

// TestChangesFromElsewhere: a page of another site can send requests with the cookie, and
// none of them does anything.
func TestChangesFromElsewhere(t *testing.T) {
	t.Parallel()
	h := serve(t, options{users: annAndBob()})
	b := newBrowser(t, nil)
	b.signIn(h, "ann", secret).expect(t, 303, "/")
	b.do("POST", h.url+"/api/x", nil, map[string]string{"Origin": ""}).expect(t, 403, "Origin or Sec-Fetch-Site")
	b.do("POST", h.url+"/api/x", nil, map[string]string{"Origin": "https://evil.example"}).expect(t, 403, "another site")
	b.do("DELETE", h.url+"/api/x", nil, map[string]string{"Sec-Fetch-Site": "same-site"}).expect(t, 403, "another site")
	base, err := url.Parse(h.url)
	if err != nil {
		t.Fatal(err)
	}
	own := b.Jar.Cookies(base)[0].String()
	b.do("POST", h.url+"/api/x", nil, map[string]string{"Host": "evil.example", "Cookie": own}).expect(t, 403, "does not answer")
	if a := b.do("POST", h.url+"/api/x", nil, map[string]string{"Origin": h.url}); a.code != 200 {
		t.Errorf("a change of our own: %d %s", a.code, a.problem)
	}
	// Tokens are sent by programs, which no other site can make do so.
	program := newBrowser(t, nil)
	if a := program.do("POST", h.url+"/api/x", nil, map[string]string{"Authorization": "Bearer the-host's-own-token"}); a.code != 200 {
		t.Errorf("a token: %d %s", a.code, a.problem)
	}
	// A wrong token is not made good by a cookie.
	b.do("GET", h.url+"/api/x", nil, map[string]string{"Authorization": "Bearer wrong"}).expect(t, 401, "the token is not")
	if a := b.get(h.url + "/jobs"); a.header.Get("Content-Security-Policy") == "" || a.code != http.StatusOK {
		t.Errorf("%d, %v", a.code, a.header)
	}
}
