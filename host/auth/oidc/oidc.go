// Package oidc lets people sign in at an OpenID Connect provider: authorization code
// with PKCE. It speaks the protocol, and knows neither cookies nor pages: between the two
// steps its caller keeps what Start returns, where only the same browser can bring it back.
package oidc

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"go.uber.org/zap"
	"golang.org/x/oauth2"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/auth/users"
	"github.com/wasmjob/wasmjob/internal/text/words"
	"github.com/wasmjob/wasmjob/internal/tlsconfig"
)

const (
	// timeout bounds each request to the provider, maxAnswer what is read of an answer.
	timeout   = 10 * time.Second
	maxAnswer = 1 << 20
	// fresh is how long the provider's own description counts.
	fresh = time.Hour
	// maxName bounds the name of a user, in bytes.
	maxName = 128
)

// Pending is a sign-in that has begun.
type Pending struct {
	State    string `json:"s"`
	Nonce    string `json:"o"`
	Verifier string `json:"v"`
	Issuer   string `json:"i"`
	// Redirect is where the provider sends the browser back to.
	Redirect string `json:"r"`
}

// Identity is who has signed in.
type Identity struct {
	Name string
	// Groups are those of the provider's that have a role here.
	Groups []string
}

// Client talks to providers. It is safe for concurrent use.
type Client struct {
	http *http.Client
	now  func() time.Time
	log  *zap.Logger

	mu    sync.Mutex
	found *found
	asked map[string]*asked // by issuer, while it is asked
}

// asked is one question to a provider, for all that want to know at the time.
type asked struct {
	done chan struct{} // closed when what follows is there
	*found
	err error
}

// found is a provider that has described itself.
type found struct {
	provider *oidc.Provider
	issuer   string
	at       time.Time
	// style is how it wants the client's secret.
	style oauth2.AuthStyle
}

// New makes a client with a clock. It connects to nothing yet.
func New(now func() time.Time, log *zap.Logger) *Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout, t.TLSClientConfig = timeout, tlsconfig.New()
	return &Client{http: &http.Client{Transport: limited{t}, Timeout: timeout}, now: now, log: log, asked: make(map[string]*asked)}
}

// Close ends the connections that wait for another request.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Start begins a sign-in: the browser goes to the address that is returned.
func (c *Client) Start(ctx context.Context, p *users.Provider, redirect string) (address string, pending Pending, err error) {
	f, err := c.provider(ctx, p)
	if err != nil {
		return "", Pending{}, c.unavailable(p, err)
	}
	pending = Pending{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Issuer: p.Issuer, Redirect: redirect}
	return f.config(p, redirect).AuthCodeURL(pending.State, oidc.Nonce(pending.Nonce), oauth2.S256ChallengeOption(pending.Verifier)), pending, nil
}

// Finish ends a sign-in with what the provider sent along with the browser. Errors are
// problems; what is wrong in detail is for the log.
func (c *Client) Finish(ctx context.Context, p *users.Provider, pending Pending, answer url.Values) (Identity, error) {
	switch {
	case pending.Issuer != p.Issuer:
		return Identity{}, refused("the provider was changed meanwhile; begin again")
	case !auth.NewSecret(pending.State).Is(answer.Get("state")):
		return Identity{}, refused("this sign-in was not begun in this browser (its state is another one); begin again")
	case answer.Has("iss") && answer.Get("iss") != p.Issuer:
		return Identity{}, refused("the answer comes from another provider than the one that was asked; begin again")
	case answer.Get("error") != "":
		c.log.Warn("the OpenID Connect provider refused a sign-in", zap.String("error", words.Clip(answer.Get("error"))), zap.String("description", words.Clip(answer.Get("error_description"))))
		return Identity{}, refused("%s refused: %s", p.Name, words.Clip(words.Printable(answer.Get("error"))))
	case answer.Get("code") == "":
		return Identity{}, refused("the provider's answer has no code; begin again")
	}
	ctx = oidc.ClientContext(ctx, c.http)
	f, err := c.provider(ctx, p)
	if err != nil {
		return Identity{}, c.unavailable(p, err)
	}
	token, err := f.config(p, pending.Redirect).Exchange(ctx, answer.Get("code"), oauth2.VerifierOption(pending.Verifier))
	if err != nil {
		var no *oauth2.RetrieveError
		if !errors.As(err, &no) || no.Response.StatusCode/100 == 5 {
			return Identity{}, c.unavailable(p, err)
		}
		c.log.Warn("the OpenID Connect provider did not take a code", zap.String("issuer", p.Issuer), zap.String("error", no.ErrorCode), zap.String("description", words.Clip(no.ErrorDescription)))
		return Identity{}, refused("%s did not take the code of this sign-in, which may be used once and soon; begin again", p.Name)
	}
	claims, err := c.verified(ctx, f, p, pending, token)
	if err != nil {
		c.log.Warn("an answer of the OpenID Connect provider is refused", zap.String("issuer", p.Issuer), zap.Error(err))
		return Identity{}, refused("the provider's answer is not valid; the host's log says why")
	}
	return identity(p, claims)
}

// verified are the claims of the ID token, with those of the user that the provider gives
// on request only.
func (c *Client) verified(ctx context.Context, f *found, p *users.Provider, pending Pending, token *oauth2.Token) (map[string]any, error) {
	raw, _ := token.Extra("id_token").(string)
	if raw == "" {
		return nil, errors.New("there is no ID token in it")
	}
	id, err := f.provider.Verifier(&oidc.Config{ClientID: p.ClientID, Now: c.now}).Verify(ctx, raw)
	if err != nil {
		return nil, err
	}
	if !auth.NewSecret(pending.Nonce).Is(id.Nonce) {
		return nil, errors.New("the ID token's nonce is not that of this sign-in")
	}
	if id.AccessTokenHash != "" {
		if err := id.VerifyAccessToken(token.AccessToken); err != nil {
			return nil, err
		}
	}
	var claims map[string]any
	if err := id.Claims(&claims); err != nil {
		return nil, err
	}
	if err := checkParty(claims, len(id.Audience), p.ClientID); err != nil {
		return nil, err
	}
	if claims[p.GroupsClaim] != nil || f.provider.UserInfoEndpoint() == "" {
		return claims, nil
	}
	info, err := f.provider.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		return nil, fmt.Errorf("the user's claims: %w", err)
	}
	if info.Subject != id.Subject {
		return nil, errors.New("the user's claims are those of another subject than the ID token's")
	}
	var more map[string]any
	if err := info.Claims(&more); err != nil {
		return nil, err
	}
	for name, value := range more {
		if _, signed := claims[name]; !signed {
			claims[name] = value
		}
	}
	return claims, nil
}

// checkParty checks for which client the ID token was issued: azp, of OpenID Connect Core
// 3.1.3.7. A token for several audiences, of which this host is one, must name it; any token
// must name no other.
func checkParty(claims map[string]any, audiences int, clientID string) error {
	party, named := claims["azp"]
	switch {
	case named && party != clientID:
		return fmt.Errorf("the ID token was issued for another client: azp is %q, expected %q", words.Clip(fmt.Sprint(party)), clientID)
	case !named && audiences > 1:
		return fmt.Errorf("the ID token is for %d audiences and has no azp, expected azp %q", audiences, clientID)
	}
	return nil
}

// identity reads name and groups of the claims.
func identity(p *users.Provider, claims map[string]any) (Identity, error) {
	id := Identity{Name: nameOf(p, claims)}
	id.Groups = p.Mapped(groupsOf(claims[p.GroupsClaim]))
	if len(id.Groups) == 0 {
		return id, auth.NewProblem(auth.RoleMissing, http.StatusForbidden,
			"%s knows you as %s, and none of your groups there has a role here; ask an admin to add one to the users file", p.Name, id.Name)
	}
	return id, nil
}

// nameOf is the name by the configured claim, else the subject. An e-mail address that the
// provider does not vouch for is no name: its user could choose another user's.
func nameOf(p *users.Provider, claims map[string]any) string {
	name, _ := claims[p.NameClaim].(string)
	verified := claims["email_verified"] == true || claims["email_verified"] == "true"
	if name == "" || (p.NameClaim == "email" && !verified) {
		name, _ = claims["sub"].(string)
	}
	return words.ClipTo(strings.ToValidUTF8(words.Printable(name), ""), maxName)
}

// groupsOf are the names in a claim: a list, or a single one.
func groupsOf(claim any) (list []string) {
	switch v := claim.(type) {
	case string:
		return []string{v}
	case []any:
		for _, g := range v {
			if name, ok := g.(string); ok {
				list = append(list, name)
			}
		}
	}
	return list
}

// provider finds out what the provider says of itself, now and then. However many want to
// know, it is asked once at a time.
func (c *Client) provider(ctx context.Context, p *users.Provider) (*found, error) {
	c.mu.Lock()
	f, a := c.found, c.asked[p.Issuer]
	known := f != nil && f.issuer == p.Issuer
	if known && c.now().Sub(f.at) < fresh {
		c.mu.Unlock()
		return f, nil
	}
	first := a == nil
	if first {
		a = &asked{done: make(chan struct{})}
		c.asked[p.Issuer] = a
	}
	c.mu.Unlock()
	if first {
		c.ask(context.WithoutCancel(ctx), p.Issuer, a) // others wait for it, too
	}
	select {
	case <-a.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if a.err != nil && known {
		return f, nil
	}
	return a.found, a.err
}

// ask asks a provider. The answer is for all that wait.
func (c *Client) ask(ctx context.Context, issuer string, a *asked) {
	defer close(a.done)
	a.found, a.err = c.discover(ctx, issuer)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.asked, issuer)
	if a.err == nil {
		c.found = a.found
	}
}

// discover asks a provider what it says of itself, for at most timeout.
func (c *Client) discover(ctx context.Context, issuer string) (*found, error) {
	now := c.now()
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, c.http), issuer)
	if err != nil {
		return nil, err
	}
	var says struct {
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := provider.Claims(&says); err != nil {
		return nil, err
	}
	f := &found{provider, issuer, now, oauth2.AuthStyleInHeader}
	// Without a list it is the header (RFC 8414, section 2).
	if len(says.Methods) > 0 && !slices.Contains(says.Methods, "client_secret_basic") {
		f.style = oauth2.AuthStyleInParams
	}
	return f, nil
}

func (f *found) config(p *users.Provider, redirect string) *oauth2.Config {
	scopes := p.Scopes
	if len(scopes) == 0 {
		scopes = []string{"profile", "email"}
	}
	if !slices.Contains(scopes, oidc.ScopeOpenID) {
		scopes = slices.Concat([]string{oidc.ScopeOpenID}, scopes)
	}
	c := &oauth2.Config{ClientID: p.ClientID, ClientSecret: p.ClientSecret, Endpoint: f.provider.Endpoint(), RedirectURL: redirect, Scopes: scopes}
	c.Endpoint.AuthStyle = f.style
	if p.ClientSecret == "" {
		c.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return c
}

func (c *Client) unavailable(p *users.Provider, err error) error {
	c.log.Warn("the OpenID Connect provider cannot be used", zap.String("issuer", p.Issuer), zap.Error(err))
	return auth.NewProblem(auth.NotNow, http.StatusServiceUnavailable, "%s cannot be reached at the moment, so that no one can sign in by it; the host's log says why", p.Name)
}

func refused(format string, args ...any) error {
	return auth.NewProblem(auth.NotSignedIn, http.StatusForbidden, format, args...)
}

// limited reads a bounded part of each answer.
type limited struct{ *http.Transport }

func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	return resp, nil
}
