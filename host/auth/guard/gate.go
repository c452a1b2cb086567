// Package guard assembles the protection of the admin address: users, tokens, certificates, sessions and the
// pages that begin them.
package guard

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/auth/cookie"
	"github.com/wasmjob/wasmjob/host/auth/httpx"
	"github.com/wasmjob/wasmjob/host/auth/login"
	"github.com/wasmjob/wasmjob/host/auth/mtls"
	"github.com/wasmjob/wasmjob/host/auth/oidc"
	"github.com/wasmjob/wasmjob/host/auth/ratelimit"
	"github.com/wasmjob/wasmjob/host/auth/users"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/history"
)

// Config has the operator's settings of access.
type Config struct {
	// Users is the file with users, tokens and groups, which need not exist; empty: only the host's own token
	// is valid.
	Users string
	// URL is what people type, Proxies are those that end TLS; see [httpx.SiteOptions].
	URL     string
	Proxies []netip.Prefix
	// TLS are the server's files; none without Cert.
	TLS mtls.Files
	// Open lists what is answered without identification.
	Open auth.Open
}

// Check says what is wrong with the settings together, and of which that is; beyond is an
// address that other machines can reach, empty for one that they cannot, insecure the
// operator's word that it needs no TLS.
func (c Config) Check(beyond string, insecure bool) (setting string, err error) {
	switch {
	case c.TLS.Cert == "" != (c.TLS.Key == ""):
		return "adminTlsCert", errors.New("a certificate and its key go together; want both adminTlsCert and adminTlsKey, or neither")
	case c.TLS.ClientCA != "" && c.TLS.Cert == "":
		return "adminClientCa", errors.New("clients show certificates where the host shows one; want adminTlsCert and adminTlsKey as well")
	case beyond != "" && c.TLS.Cert == "" && len(c.Proxies) == 0 && !insecure:
		return "admin", fmt.Errorf("other machines can reach %s, and there is no TLS: who listens in on the way has the token; want --admin-tls-cert and --admin-tls-key, --admin-proxies NETWORK if a proxy ends TLS, an address such as 127.0.0.1:9770, a socket's path, off, or --insecure-admin as well", beyond)
	}
	return "", nil
}

// Options are a configuration and what the host has besides.
type Options struct {
	Config
	// Token is the host's own token, Server its address in the cluster.
	Token, Server string
	// Keys are those of the cluster's cookies, which Revoked must go with: a session that
	// was signed out must be known to all that have the key, for as long as they have it.
	Keys    func() (keys cookie.Keys, ok bool)
	Revoked cookie.Revocations
	// Show writes the login page; nil shows it as JSON.
	Show func(w http.ResponseWriter, r *http.Request, p login.Page)
	// Renewed is called when the server's certificate changes; may be nil.
	Renewed func()
	// Changed takes the record of each sign-in and sign-out, and of each change of the users file.
	Changed func(history.Change)
	// SignedIn counts attempts to sign in, by their result; may be nil.
	SignedIn func(result string)
	Logger   *zap.Logger
}

// The results of attempts to sign in.
const (
	ResultOK        = "ok"
	ResultRefused   = "refused"
	ResultThrottled = "throttled" // by a limit, without being looked at
)

// SharedKeys are keys that all hosts derive of a secret that they have in common. loaded
// reports whether the sessions that were signed out are known.
func SharedKeys(derive func(purpose string) ([]byte, bool), loaded func() bool) func() (cookie.Keys, bool) {
	return func() (cookie.Keys, bool) {
		id, known := derive("cluster id")
		secret, ok := derive("cookies")
		if !known || !ok || !loaded() {
			return cookie.Keys{}, false
		}
		return cookie.Keys{Cluster: hex.EncodeToString(id[:5]), Secret: secret}, true
	}
}

// Gate protects the admin address.
type Gate struct {
	Guard *auth.Guard
	Login *login.Login
	Site  *httpx.Site
	// Sessions have the tokens that pages send with their changes.
	Sessions *cookie.Sessions
	Users    *users.Live

	options  Options
	tls      *mtls.TLS // nil: there is no TLS
	provider *oidc.Client
	// failures says which failures to sign in are recorded, of each address, and throttled
	// which attempts that a limit refused, of all addresses together: a storm can come from many.
	failures, throttled *ratelimit.Records
}

// New reads the files. The error names the faulty one.
func New(o Options) (*Gate, error) {
	if o.Renewed == nil {
		o.Renewed = func() {}
	}
	if o.SignedIn == nil {
		o.SignedIn = func(string) {}
	}
	g := &Gate{options: o, failures: ratelimit.NewRecords(time.Now), throttled: ratelimit.NewRecords(time.Now)}
	var err error
	if g.Users, err = users.Open(o.Users, o.Logger); err != nil {
		return nil, fmt.Errorf("users: %w", err)
	}
	g.Users.Changed = g.changed
	site := httpx.SiteOptions{URL: o.URL, Proxies: o.Proxies}
	if name, err := os.Hostname(); err == nil {
		site.Names = append(site.Names, name)
	}
	if o.TLS.Cert != "" {
		if g.tls, err = mtls.Open(o.TLS, time.Now, o.Logger); err != nil {
			return nil, fmt.Errorf("TLS of the admin address: %w", err)
		}
		site.Certificate = g.tls.Certificate
	}
	if g.Site, err = httpx.NewSite(site); err != nil {
		return nil, fmt.Errorf("the address of the site: %w", err)
	}
	g.Sessions = &cookie.Sessions{
		Box:     &cookie.Box{Keys: o.Keys, Secure: g.Site.Secure, Now: time.Now},
		Resolve: login.Resolve(g.Users), Origin: g.Site.CheckOrigin, Host: g.Site.CheckHost, Revoked: o.Revoked,
	}
	g.provider = oidc.New(time.Now, o.Logger)
	g.Login = login.New(login.Options{Users: g.Users, Sessions: g.Sessions, Site: g.Site, Provider: g.provider, Show: o.Show, Signed: g.signed, Now: time.Now, Logger: o.Logger})
	g.Guard = auth.NewGuard(o.Logger, g.Site.Client, g.Users.Tokens(o.Token, time.Now), g.Sessions, g.Users.Certificates(g.Site.CheckOrigin))
	return g, nil
}

// TLS returns the server's configuration; nil: no TLS.
func (g *Gate) TLS() *tls.Config {
	if g.tls == nil {
		return nil
	}
	return g.tls.Config()
}

// Certificate returns the present certificate in DER; nil: no TLS.
func (g *Gate) Certificate() []byte {
	if g.tls == nil {
		return nil
	}
	return g.tls.Certificate().Leaf.Raw
}

// signed records that somebody has signed in or out, or could not. The log has all failures, the
// records some; both have some of the attempts that a limit refused, and how many were left out.
func (g *Gate) signed(ctx context.Context, who auth.Principal, what operation.Operation, failed error) {
	var p *auth.Problem
	throttled := errors.As(failed, &p) && p.Type == auth.TooMany
	if what == operation.SignIn {
		g.options.SignedIn(resultOf(failed, throttled))
	}
	c := auth.Change(auth.With(ctx, who), what.String(), "")
	log := g.options.Logger.With(zap.String("who", c.Who), zap.String("from", c.From))
	if failed == nil {
		log.Info(what.String())
		g.options.Changed(c)
		return
	}
	c.Error = failed.Error()
	if throttled {
		ok, left := g.throttled.Take("")
		if !ok {
			return
		}
		log.Warn(what.String()+" refused", zap.Error(failed), zap.Int("moreSinceLast", left))
		if left > 0 {
			c.Error += fmt.Sprintf("; %d more were refused so since the last record, from all addresses together", left)
		}
		g.options.Changed(c)
		return
	}
	log.Warn(what.String()+" refused", zap.Error(failed))
	ok, left := g.failures.Take(c.From)
	if left > 0 {
		c.Error += fmt.Sprintf("; %d more failures from this address since the last record are in the log alone", left)
	}
	if ok {
		g.options.Changed(c)
	}
}

func resultOf(failed error, throttled bool) string {
	switch {
	case throttled:
		return ResultThrottled
	case failed != nil:
		return ResultRefused
	}
	return ResultOK
}

// Run reads the files again when they change, until ctx ends. Where changes cannot be
// noticed it goes on with what there is, and says so in the log.
func (g *Gate) Run(ctx context.Context) error {
	parts := map[string]func(context.Context) error{"users file": g.Users.Watch}
	if g.tls != nil {
		parts["certificate"] = func(ctx context.Context) error { return g.tls.Watch(ctx, g.options.Renewed) }
	}
	ended := make(chan struct{})
	for what, watch := range parts {
		go func() { // joined below
			if err := watch(ctx); err != nil {
				g.options.Logger.Error("the "+what+" of the admin address is not watched: changes take effect at the next start", zap.Error(err))
			}
			ended <- struct{}{}
		}()
	}
	for range parts {
		<-ended
	}
	return nil
}

// Close ends the connections to the OpenID Connect provider.
func (g *Gate) Close() error {
	g.provider.Close()
	return nil
}
