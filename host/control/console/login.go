package console

import (
	"net/http"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/auth/login"
)

// loginView is the page by which people sign in.
type loginView struct {
	P    *page
	Page login.Page
	// Path is where the form goes.
	Path string
}

// Login answers with the page by which people sign in: it is the Show of login.Options.
func (c *Console) Login(w http.ResponseWriter, r *http.Request, l login.Page) {
	p := c.newPage(r.Context(), r)
	p.status, p.Nav, p.Title = l.Status(), navLogin, p.T("login.title")
	c.render(w, p, view{"login", loginView{p, l, login.Path}})
}

// navLogin is the page.Nav of a page without a menu.
const navLogin = "login"

// Refused answers a request whose sender is known and may not do this, or is not known:
// where signing in cannot help, a page says so.
func (c *Console) Refused(w http.ResponseWriter, r *http.Request, problem *auth.Problem) {
	for name, values := range problem.Header {
		w.Header()[name] = append(w.Header()[name], values...)
	}
	p := c.newPage(r.Context(), r)
	p.Nav = navLogin
	c.render(w, p, p.problem(r, problem))
}
