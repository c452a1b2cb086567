package server

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/auth/httpx"
	"github.com/wasmjob/wasmjob/host/auth/users"
	"github.com/wasmjob/wasmjob/host/event/operation"
)

// Access says who may use the server. The zero value lets in holders of the token; others get health, and
// metrics on this machine.
type Access struct {
	// Guard finds out who sends a request; nil: by the token alone.
	Guard *auth.Guard
	// Login answers LoginPaths; nil: there is no way to sign in with a browser.
	Login http.Handler
	// Link makes the path of a login link for a user of the host's own token, empty if that is not
	// known; nil: there is none.
	Link func(user string) string
	// Site is where people reach the server; nil: this machine.
	Site *httpx.Site
	// TLS is nil for a server without.
	TLS *tls.Config
	// Open says which endpoints are open to everyone; empty is auth.OpenAuto.
	Open auth.Open
}

// LoginPaths are what Access.Login answers.
func LoginPaths() []string { return []string{"/login", "/login/", "/logout", "/oidc/"} }

// complete fills in what was not said.
func (a *Access) complete(token string, local bool, log *zap.Logger) error {
	var err error
	if a.Site == nil {
		if a.Site, err = httpx.NewSite(httpx.SiteOptions{}); err != nil {
			return err
		}
	}
	if a.Guard == nil {
		none, err := users.Open("", log)
		if err != nil {
			return err
		}
		a.Guard = auth.NewGuard(log, a.Site.Client, none.Tokens(token, time.Now))
	}
	if a.Open == "" || a.Open == auth.OpenAuto {
		a.Open = auth.OpenHealth
		if local {
			a.Open = auth.OpenAll
		}
	}
	return nil
}

// open answers everyone if the setting says so, otherwise only principals that may see all jobs.
func (s *Server) open(what auth.Open, next http.Handler) http.Handler {
	if s.opts.Access.Open == auth.OpenAll || s.opts.Access.Open == what {
		return next
	}
	return s.opts.Access.Guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := auth.Require(r.Context(), operation.View, ""); err != nil {
			auth.Answer(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	}))
}

// LinkPath answers with a login link.
const LinkPath = "/v1/login"

// LoginLink is a link that signs a browser in.
type LoginLink struct {
	// Link is an address of the host that signs a browser in once.
	Link string `json:"link"`
}

// link answers with a login link, for holders of the host's own token.
func (s *Server) link(w http.ResponseWriter, r *http.Request) {
	p := auth.From(r.Context())
	switch {
	case p.Method != auth.ByHostToken:
		auth.NewProblem(auth.RoleMissing, http.StatusForbidden, "a login link is for who has the host's own token; you are %s", p).ServeHTTP(w, r)
		return
	case s.opts.Access.Link == nil:
		fail(w, http.StatusNotFound, "this host has no login links")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(LoginLink{s.opts.Access.Site.Base(r) + s.opts.Access.Link(p.User)}) // the client is gone if that fails
}
