package login

import (
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/auth/cookie"
	"github.com/wasmjob/wasmjob/host/auth/httpx"
	"github.com/wasmjob/wasmjob/host/auth/oidc"
	"github.com/wasmjob/wasmjob/host/auth/ratelimit"
	"github.com/wasmjob/wasmjob/host/auth/users"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// The paths. The console links to them and has its forms send to them.
const (
	Path        = "/login"
	LinkPath    = "/login/link"
	LogoutPath  = "/logout"
	OIDCPath    = "/oidc/start"
	oidcAnswers = "/oidc/callback"
)

const (
	// pendingLife is how long a provider's login page can be left open.
	pendingLife = 15 * time.Minute
	// maxQueue bounds the requests that wait until a password can be checked.
	maxQueue = 16

	kindPending = "oidc"
)

// Page is what a login page shows. Its form sends name, password and next by POST
// to Path.
type Page struct {
	// Cluster is the cluster's id.
	Cluster string `json:"cluster"`
	// Passwords: there are users with a password, for whom there is a form.
	Passwords bool `json:"passwords"`
	// Provider is the name of the OpenID Connect provider, ProviderURL the address that
	// signs in there; empty if there is none.
	Provider    string `json:"provider,omitempty"`
	ProviderURL string `json:"providerUrl,omitempty"`
	// Name is what was typed before, Next where to go after it.
	Name string `json:"name,omitempty"`
	Next string `json:"next"`
	// Problem says why the last attempt failed; nil at first.
	Problem *auth.Problem `json:"problem,omitempty"`
	// Why says why the session of this browser was not taken, empty if it had none.
	Why auth.SessionProblem `json:"why,omitempty"`
	// Plain: what is typed goes over the network without TLS.
	Plain bool `json:"plain,omitempty"`
}

// Status is the answer's: 200, or that of the problem.
func (p Page) Status() int {
	if p.Problem != nil {
		return p.Problem.Status
	}
	return http.StatusOK
}

// Options are what a Login needs.
type Options struct {
	Users    *users.Live
	Sessions *cookie.Sessions
	Site     *httpx.Site
	Provider *oidc.Client
	// Show writes a login page, with the status that it has; nil shows it as JSON.
	Show func(w http.ResponseWriter, r *http.Request, p Page)
	// Signed is called for each sign-in and sign-out: what is operation.SignIn or operation.SignOut, failed why
	// it did not come about. An attempt that a limit refused, so that it was not made, fails
	// with a problem of the type access.TooMany; a storm has many of them.
	Signed func(ctx context.Context, who auth.Principal, what operation.Operation, failed error)
	Now    func() time.Time
	Logger *zap.Logger
}

// Login answers below /login, /logout and /oidc. It is safe for concurrent use.
type Login struct {
	Options
	throttle *ratelimit.Throttle
	// starts bounds how often an address begins to sign in at the provider.
	starts *ratelimit.Throttle
	links  *links
	// known and strangers are the lanes in which passwords are checked, one at a time
	// each: those that have signed in from there before do not wait for a storm of others.
	known, strangers *lane
}

// New makes the handlers.
func New(o Options) *Login {
	if o.Show == nil {
		o.Show = showJSON
	}
	if o.Signed == nil {
		o.Signed = func(context.Context, auth.Principal, operation.Operation, error) {}
	}
	return &Login{Options: o, throttle: ratelimit.New(o.Now), starts: ratelimit.New(o.Now), links: &links{now: o.Now}, known: newLane(), strangers: newLane()}
}

// Handler answers all paths of this package.
func (l *Login) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path, l.page)
	mux.HandleFunc("POST "+Path, l.password)
	mux.HandleFunc("GET "+LinkPath, l.link)
	mux.HandleFunc("HEAD "+LinkPath, looked)
	mux.HandleFunc("POST "+LogoutPath, l.logout)
	mux.HandleFunc("GET "+OIDCPath, l.startOIDC)
	mux.HandleFunc("GET "+oidcAnswers, l.finishOIDC)
	return l.Site.Hosts(mux)
}

// Link is the path and query of a login link, which signs in once, within minutes, as
// a user of the host's own token; user is empty if that is not known.
func (l *Login) Link(user string) string {
	return LinkPath + "?" + url.Values{"code": {l.links.add(user)}}.Encode()
}

// Refused answers a page's request whose sender is not known: by the way to the login
// page if that can help.
func (l *Login) Refused(w http.ResponseWriter, r *http.Request, p *auth.Problem) {
	if p.Status != http.StatusUnauthorized || r.Method != http.MethodGet {
		p.ServeHTTP(w, r)
		return
	}
	for _, c := range p.Header.Values("Set-Cookie") {
		w.Header().Add("Set-Cookie", c)
	}
	to := url.Values{"next": {r.URL.RequestURI()}}
	if p.Session != "" {
		to.Set("why", string(p.Session))
	}
	http.Redirect(w, r, Path+"?"+to.Encode(), http.StatusSeeOther)
}

// Resolve says what a session's user may do now.
func Resolve(live *users.Live) func(cookie.Session) (auth.Principal, error) {
	return func(s cookie.Session) (auth.Principal, error) {
		p := auth.Principal{Name: s.Name, Method: s.Method}
		switch s.Method {
		case auth.ByLink:
			p = auth.HostToken(auth.ByLink)
			p.User = s.User
			return p, nil
		case auth.ByPassword:
			u, ok := live.Set().User(s.Name)
			if !ok || u.Password.Zero() || u.Credential() != s.Credential {
				return p, errors.New("its user was removed, or has another password")
			}
			p.Bindings = u.Bindings
			return p, nil
		case auth.ByOIDC:
			provider := live.Set().Provider()
			if provider == nil || provider.Issuer != s.Credential {
				return p, errors.New("its provider is not used any more")
			}
			if p.Bindings = provider.Bindings(s.Groups); len(p.Bindings) == 0 {
				return p, errors.New("its user's groups have no role any more")
			}
			return p, nil
		}
		return p, errors.New("it was begun in a way that is not known here")
	}
}

// page shows the login page.
func (l *Login) page(w http.ResponseWriter, r *http.Request) { l.show(w, r, "", nil) }

// show shows the login page, with what went wrong.
func (l *Login) show(w http.ResponseWriter, r *http.Request, name string, problem *auth.Problem) {
	set := l.Users.Set()
	p := Page{Passwords: set.Passwords(), Name: words.ClipTo(name, 64), Next: local(r.FormValue("next")), Problem: problem, Plain: !l.Site.Secure(r) && remote(r)}
	if why := auth.SessionProblem(r.URL.Query().Get("why")); slices.Contains(auth.SessionProblems(), why) {
		p.Why = why
	}
	if k, ok := l.Sessions.Box.Keys(); ok {
		p.Cluster = k.Cluster
	}
	if provider := set.Provider(); provider != nil {
		p.Provider, p.ProviderURL = provider.Name, OIDCPath+"?"+url.Values{"next": {p.Next}}.Encode()
	}
	if err := l.Sessions.Ready(); err != nil && p.Problem == nil {
		p.Problem = asProblem(err)
	}
	if problem != nil {
		for name, values := range problem.Header {
			w.Header()[name] = append(w.Header()[name], values...)
		}
	}
	l.Show(w, r, p)
}

// remote reports whether the browser reaches the server over a network.
func remote(r *http.Request) bool {
	host := r.Host
	if name, _, err := net.SplitHostPort(r.Host); err == nil {
		host = name
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return !strings.EqualFold(host, "localhost") && (err != nil || !ip.IsLoopback())
}

// local is next if it is a path of this site, else /.
func local(next string) string {
	u, err := url.Parse(next)
	ours := err == nil && u.Scheme == "" && u.Host == "" && u.User == nil && u.Opaque == "" && strings.HasPrefix(next, "/")
	odd := strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\r\n\t\x00")
	if !ours || odd || strings.HasPrefix(u.Path, Path) || u.Path == LogoutPath {
		return "/"
	}
	return u.RequestURI()
}

// password signs in by name and password.
func (l *Login) password(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 16<<10)
	if err := r.ParseForm(); err != nil {
		auth.NewProblem(auth.NotSignedIn, http.StatusBadRequest, "the form cannot be read").ServeHTTP(w, r)
		return
	}
	name, text := r.PostForm.Get("name"), r.PostForm.Get("password")
	from := l.Site.Client(r)
	who := auth.Principal{Name: words.ClipTo(name, 64), Method: auth.ByPassword, From: from}
	if err := l.Site.CheckOrigin(r); err != nil { // else another site could sign somebody in under a name of its own
		l.show(w, r, name, asProblem(err))
		return
	}
	u, err := l.check(r.Context(), name, text, from)
	if err == nil {
		err = l.Sessions.Begin(w, r, cookie.Session{Name: u.Name, Method: auth.ByPassword, Credential: u.Credential()})
	}
	if err != nil {
		who.Name = strconv.Quote(who.Name) // somebody's text: no name of who did something
	}
	l.Signed(r.Context(), who, operation.SignIn, err)
	if err != nil {
		l.show(w, r, name, asProblem(err))
		return
	}
	http.Redirect(w, r, local(r.PostForm.Get("next")), http.StatusSeeOther)
}

// check finds the user with a name and a password, as slowly for one that does not exist.
func (l *Login) check(ctx context.Context, name, text, from string) (users.User, error) {
	account := "password " + name
	wait, known := l.throttle.Try(account, from)
	if wait > 0 {
		return users.User{}, later(wait, tooMany)
	}
	way := l.strangers
	if known {
		way = l.known
	}
	leave, err := way.enter(ctx)
	if err != nil {
		return users.User{}, err
	}
	defer leave()
	u, ok := l.Users.Set().User(name)
	if !u.Password.Verify(text) || !ok {
		return users.User{}, auth.NewProblem(auth.NotSignedIn, http.StatusUnauthorized, "there is no user of this name with this password")
	}
	l.throttle.Succeeded(account, from)
	return u, nil
}

const tooMany = "too many attempts to sign in"

// once runs one attempt of a way to sign in that no account is known for; it is counted
// for its address.
func (l *Login) once(from string, attempt func() error) error {
	if wait, _ := l.throttle.Try("", from); wait > 0 {
		return later(wait, tooMany)
	}
	if err := attempt(); err != nil {
		return err
	}
	l.throttle.Succeeded("", from)
	return nil
}

func later(wait time.Duration, why string) error {
	seconds := int(math.Ceil(wait.Seconds()))
	p := auth.NewProblem(auth.TooMany, http.StatusTooManyRequests, "%s; try again in %s", why, words.Duration(time.Duration(seconds)*time.Second))
	p.Header = http.Header{"Retry-After": {strconv.Itoa(seconds)}}
	return p
}

// looked answers who only looks at a login link, as programs do that show what is behind
// the links of a message: it stays good.
func looked(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Allow", http.MethodGet)
	w.WriteHeader(http.StatusMethodNotAllowed)
}

// link signs in by a login link.
func (l *Login) link(w http.ResponseWriter, r *http.Request) {
	who := auth.HostToken(auth.ByLink)
	who.From = l.Site.Client(r)
	if err := l.Sessions.Ready(); err != nil { // the link stays good
		l.show(w, r, "", asProblem(err))
		return
	}
	err := l.once(who.From, func() error {
		user, ok := l.links.take(r.URL.Query().Get("code"))
		if !ok {
			return auth.NewProblem(auth.NotSignedIn, http.StatusForbidden, "this login link was used already, or is older than %s; 'wasmjob access login' prints another one", words.Duration(linkLife))
		}
		who.User = user
		return l.Sessions.Begin(w, r, cookie.Session{Name: who.Name, User: user, Method: auth.ByLink})
	})
	l.Signed(r.Context(), who, operation.SignIn, err)
	if err != nil {
		l.show(w, r, "", asProblem(err))
		return
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// logout ends the session.
func (l *Login) logout(w http.ResponseWriter, r *http.Request) {
	who, err := l.Sessions.Identify(r)
	if p := (*auth.Problem)(nil); errors.As(err, &p) && p.Status != http.StatusUnauthorized {
		p.ServeHTTP(w, r) // a request of another site signs out no user
		return
	}
	ended := l.Sessions.End(w, r)
	if err == nil {
		who.From = l.Site.Client(r)
		l.Signed(r.Context(), who, operation.SignOut, ended)
	}
	if ended != nil {
		l.Logger.Error("a session is not ended on the other hosts", zap.Error(ended))
		auth.NewProblem(auth.NotNow, http.StatusServiceUnavailable, "this browser has forgotten the session, and other hosts would still take it; the host's log says why").ServeHTTP(w, r)
		return
	}
	http.Redirect(w, r, Path, http.StatusSeeOther)
}

// pending is a sign-in at the provider, while the browser is there.
type pending struct {
	oidc.Pending
	Next string `json:"n"`
}

// startOIDC sends the browser to the provider.
func (l *Login) startOIDC(w http.ResponseWriter, r *http.Request) {
	provider := l.Users.Set().Provider()
	if provider == nil {
		l.show(w, r, "", auth.NewProblem(auth.NotSignedIn, http.StatusNotFound, "there is no OpenID Connect provider here"))
		return
	}
	who := auth.Principal{Method: auth.ByOIDC, From: l.Site.Client(r)}
	if wait, _ := l.starts.Try("", who.From); wait > 0 {
		err := later(wait, tooMany)
		l.Signed(r.Context(), who, operation.SignIn, err)
		l.show(w, r, "", asProblem(err))
		return
	}
	address, begun, err := l.Provider.Start(r.Context(), provider, l.Site.Base(r)+oidcAnswers)
	if err == nil {
		err = l.Sessions.Box.Set(w, r, kindPending, pending{begun, local(r.URL.Query().Get("next"))}, pendingLife)
	}
	if err != nil {
		l.show(w, r, "", asProblem(err))
		return
	}
	http.Redirect(w, r, address, http.StatusSeeOther)
}

// finishOIDC takes the browser back from the provider.
func (l *Login) finishOIDC(w http.ResponseWriter, r *http.Request) {
	who := auth.Principal{Method: auth.ByOIDC, From: l.Site.Client(r)}
	if err := l.Sessions.Ready(); err != nil {
		l.show(w, r, "", asProblem(err))
		return
	}
	next := "/"
	err := l.once(who.From, func() (err error) {
		next, err = l.answered(w, r, &who)
		return err
	})
	l.Signed(r.Context(), who, operation.SignIn, err)
	if err != nil {
		l.show(w, r, "", asProblem(err))
		return
	}
	l.starts.Succeeded("", who.From) // what was begun came to something
	http.Redirect(w, r, next, http.StatusSeeOther)
}

// answered begins a session for who the provider says.
func (l *Login) answered(w http.ResponseWriter, r *http.Request, who *auth.Principal) (next string, err error) {
	provider := l.Users.Set().Provider()
	if provider == nil {
		return "", auth.NewProblem(auth.NotSignedIn, http.StatusNotFound, "there is no OpenID Connect provider here")
	}
	var begun pending
	if err := l.Sessions.Box.Get(r, kindPending, &begun); err != nil {
		if p := (*auth.Problem)(nil); errors.As(err, &p) {
			return "", p
		}
		return "", auth.NewProblem(auth.NotSignedIn, http.StatusForbidden, "this sign-in was not begun in this browser, or too long ago; begin again")
	}
	l.Sessions.Box.Drop(w, r, kindPending) // its answer is taken once
	id, err := l.Provider.Finish(r.Context(), provider, begun.Pending, r.URL.Query())
	who.Name = id.Name
	if err != nil {
		return "", err
	}
	s := cookie.Session{Name: id.Name, Method: auth.ByOIDC, Credential: provider.Issuer, Groups: id.Groups}
	return local(begun.Next), l.Sessions.Begin(w, r, s)
}

// asProblem is the problem that an error is, or stands for.
func asProblem(err error) *auth.Problem {
	var p *auth.Problem
	if errors.As(err, &p) {
		return p
	}
	return auth.NewProblem(auth.NotNow, http.StatusServiceUnavailable, "no one can sign in at the moment; the host's log says why")
}
