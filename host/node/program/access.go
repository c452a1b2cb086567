package program

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/auth/guard"
	"github.com/wasmjob/wasmjob/host/auth/httpx"
	"github.com/wasmjob/wasmjob/host/auth/login"
	"github.com/wasmjob/wasmjob/host/cli/command"
	usercommand "github.com/wasmjob/wasmjob/host/cli/users"
	"github.com/wasmjob/wasmjob/host/control/server"
	"github.com/wasmjob/wasmjob/internal/schema"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// accessSettings say who may use the admin address.
func accessSettings(d defaults) []setting {
	text := func(key, arg, help string, field func(c *Config) *string) setting {
		return textSetting(key, arg, "", help, field)
	}
	url := text("adminUrl", "URL", "address by which people reach the admin address, such as https://cron.example.com; needed behind a proxy with a name of its own, and for OpenID Connect", func(c *Config) *string { return &c.Access.URL })
	url.set = checked(url.set, func(s string) error {
		if s == "" {
			return nil
		}
		_, err := httpx.ParseURL(s)
		return err
	})
	return []setting{
		usersSetting(d),
		url,
		{
			key: "adminProxies", arg: "NETWORKS",
			help: "networks of proxies before the admin address that end TLS, such as 10.0.0.0/8 or 127.0.0.1,10.1.2.3: what they say of the client is believed",
			set: func(c *Config, s string) (err error) {
				c.Access.Proxies, err = httpx.ParseNetworks(s)
				return err
			},
			show: func(c *Config) string {
				var list []string
				for _, p := range c.Access.Proxies {
					list = append(list, p.String())
				}
				return strings.Join(list, ",")
			},
		},
		text("adminTlsCert", "FILE", "certificate of the admin address (PEM), with those that lead to its authority; read again when it changes", func(c *Config) *string { return &c.Access.TLS.Cert }),
		text("adminTlsKey", "FILE", "private key of that certificate", func(c *Config) *string { return &c.Access.TLS.Key }),
		text("adminClientCa", "FILE", "authorities whose certificates clients may show in place of a token; the users file says whose they are", func(c *Config) *string { return &c.Access.TLS.ClientCA }),
		{
			key: "adminOpen", arg: "WHAT", standard: string(auth.OpenAuto), is: schema.Words(auth.Opens()...),
			help: "what is answered without a token: all (/healthz, /readyz, /docs, /schemas and /metrics), health (without /metrics), none, or auto: all on an address of this machine, else health",
			set: func(c *Config, s string) error {
				if !slices.Contains(auth.Opens(), s) {
					return fmt.Errorf("%q is not known; want %s%s", words.Clip(s), strings.Join(auth.Opens(), ", "), words.Suggest(s, auth.Opens()))
				}
				c.Access.Open = auth.Open(s)
				return nil
			},
			show: func(c *Config) string { return string(c.Access.Open) },
		},
	}
}

// usersSetting is where users, tokens and groups are.
func usersSetting(d defaults) setting {
	return offSetting(textSetting("users", "FILE", cmp.Or(d.users, off), "file with users, tokens and an OpenID Connect provider (docs/access.md), read again when it changes; 'wasmjob access user' and 'wasmjob access token' edit it; off: only the host's own token", func(c *Config) *string { return &c.Access.Users }))
}

// wireAccess makes the gate before the admin address, and the pages behind it.
func (s *system) wireAccess(token string) (_ server.Access, pages http.Handler, err error) {
	c, err := s.pages()
	if err != nil {
		return server.Access{}, nil, err
	}
	s.gate, err = guard.New(guard.Options{Config: s.loaded.Access, Token: token, Server: s.serverIP, Show: c.login, Keys: guard.SharedKeys(s.peers.Derive, s.signedOut.Loaded),
		Revoked: s.signedOut, Renewed: s.peers.Renew, Changed: s.history.AddChange, SignedIn: s.metrics.SignIn, Logger: s.log})
	if err != nil {
		return server.Access{}, nil, command.Usage(err)
	}
	s.onClose("access", s.gate.Close)
	g := s.gate
	a := server.Access{Guard: g.Guard, Login: g.Login.Handler(), Link: g.Login.Link, Site: g.Site, TLS: g.TLS(), Open: s.loaded.Access.Open}
	s.shows = c.Handler != nil
	return a, s.guarded(c), nil
}

// consoleURL is where a browser of this machine reaches the console; empty if there is none.
func (s *system) consoleURL() string {
	a := s.admin.Address()
	if !s.shows || a.Network != "tcp" {
		return ""
	}
	scheme := "http"
	if s.gate.TLS() != nil {
		scheme = "https"
	}
	return scheme + "://" + a.Reachable().Name
}

// consolePages are the console: what it shows to whom, how people sign in, and what it says to
// those who may not. Without a console all are nil.
type consolePages struct {
	http.Handler
	login   func(w http.ResponseWriter, r *http.Request, p login.Page)
	refused func(w http.ResponseWriter, r *http.Request, p *auth.Problem)
}

// filesAtOnce is how many of the files are sent at once that a login page is made of.
const filesAtOnce = 64

// guarded lets to the pages who is signed in, and others to what a login page is made of.
func (s *system) guarded(p consolePages) http.Handler {
	if p.Handler == nil {
		return nil
	}
	mux := http.NewServeMux()
	anybody := httpx.AtOnce(filesAtOnce, p)
	mux.Handle("GET /static/", anybody)
	mux.Handle("GET /preferences", anybody)
	mux.Handle("/", s.gate.Guard.Pages(p, func(w http.ResponseWriter, r *http.Request, problem *auth.Problem) {
		if problem.Status == http.StatusUnauthorized && r.Method == http.MethodGet {
			s.gate.Login.Refused(w, r, problem)
			return
		}
		p.refused(w, r, problem)
	}))
	return mux
}

// accessCommands are about who may do what.
func accessCommands(p *program) []*cobra.Command {
	return usercommand.Commands(&p.Program, cmp.Or(p.Getenv(usersSetting(defaults{}).variable()), machineDefaults(p.Getenv).users))
}
