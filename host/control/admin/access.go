package admin

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/auth/httpx"
	"github.com/wasmjob/wasmjob/host/auth/users"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/internal/tlsconfig"
)

// Access is who may ask. The zero value lets in who has the token, and others see health,
// and metrics on this machine.
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
	// Open is what is answered to anybody; empty is access.OpenAuto.
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

// open answers anybody if the setting says so, else who may see all jobs.
func (s *Server) open(what auth.Open, next http.Handler) http.Handler {
	if s.opts.Access.Open == auth.OpenAll || s.opts.Access.Open == what {
		return next
	}
	return s.opts.Access.Guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := auth.Require(r.Context(), auth.View, ""); err != nil {
			auth.Answer(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	}))
}

// For is the part of the report that the principal may see.
func (r Report) For(p auth.Principal) Report {
	r.About.History = StoreFor(p, r.About.History)
	if r.History != nil {
		h := *r.History
		h.File, h.Problem = StoreFor(p, h.File), StoreProblemFor(p, h.Problem)
		r.History = &h
	}
	if p.All(auth.View) {
		return r
	}
	r.Status.Jobs = slices.DeleteFunc(slices.Clone(r.Status.Jobs), func(j *engine.JobStatus) bool { return !p.May(auth.View, j.Name) })
	r.About.Plugins, r.About.Grants, r.About.Alerts, r.About.Users, r.About.GuestLog = "", "", "", "", ""
	// These name files, modules and jobs that may be others'.
	r.Status.Refused, r.Status.Waits, r.Compiling, r.Warnings, r.Reason = nil, nil, nil, nil, ""
	return r
}

// StoreFor is what the principal may know of where a history is: its file or its address, or,
// for who does not operate all jobs, its kind alone.
func StoreFor(p auth.Principal, where string) string {
	if where == "" || where == "memory" || p.All(auth.Operate) {
		return where
	}
	for _, kind := range []string{"postgres", "mysql", "sqlite"} {
		if strings.HasPrefix(where, kind+":") {
			return kind
		}
	}
	return "file"
}

// StoreProblemFor is what the principal may know of why a history cannot be written: errors of
// databases name the address and the user.
func StoreProblemFor(p auth.Principal, problem string) string {
	if problem == "" || p.All(auth.Operate) {
		return problem
	}
	return "the host's log says why"
}

// LinkPath answers with a login link.
const LinkPath = "/v1/login"

// LoginLink is a link that signs a browser in.
type LoginLink struct {
	// Link is an address of the host that signs a browser in once.
	Link string `json:"link"`
}

// link answers with a login link, for who has the host's own token.
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

// LoginLink asks the host for the address of a login link.
func (c *Client) LoginLink(ctx context.Context) (string, error) {
	var l LoginLink
	err := c.do(ctx, http.MethodPost, LinkPath, &l)
	return l.Link, err
}

// SystemCA stands for the authorities that this machine knows, where a file of some is
// wanted.
const SystemCA = "system"

// trusting is for a server whose certificate one of the file's authorities has signed.
func trusting(file string) (*tls.Config, error) {
	config := tlsconfig.New()
	if file == SystemCA {
		return config, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM form, expected those of the authorities of the host's", file)
	}
	return config, nil
}

// showing is for a server of this machine that shows the certificate in a file, whatever
// authority has signed it and whatever names are in it. The file is read for each
// connection, as the server reads it again when it changes.
func showing(file string) *tls.Config {
	config := tlsconfig.New()
	config.InsecureSkipVerify = true // in place of it:
	config.VerifyConnection = func(state tls.ConnectionState) error {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		block, _ := pem.Decode(text)
		if block == nil || len(state.PeerCertificates) == 0 || !bytes.Equal(block.Bytes, state.PeerCertificates[0].Raw) {
			return fmt.Errorf("the server does not show the certificate in %s", file)
		}
		return nil
	}
	return config
}
