package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"html/template"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/i18n"
)

// Options are what a console shows.
type Options struct {
	Service   *service.Service
	Namespace string
	// Version is the program's.
	Version string
	Logger  *zap.Logger
}

// Console answers with pages. It is safe for concurrent use.
type Console struct {
	o         Options
	texts     i18n.Table
	assets    *assets
	seed      maphash.Seed // of the ids of parts
	templates *template.Template
	mux       *http.ServeMux
}

const (
	// pageTimeout bounds what a page waits for.
	pageTimeout = 10 * time.Second
	// maxForm bounds a form in bytes: 1,000 names of jobs, or a job's settings.
	maxForm = 512 << 10
)

// New returns a console.
func New(o Options) (*Console, error) {
	c := &Console{o: o, seed: maphash.MakeSeed(), mux: http.NewServeMux()}
	var err error
	if c.texts, err = allTexts(); err != nil {
		return nil, err
	}
	if c.assets, err = newAssets(); err != nil {
		return nil, err
	}
	if c.templates, err = template.ParseFS(files, "templates/*.html"); err != nil {
		return nil, err
	}
	c.mux.Handle("GET /static/", c.assets)
	c.mux.HandleFunc("GET /preferences", preferences)
	for pattern, show := range map[string]shower{
		"GET /{$}":                     ofAll(overviewPage),
		"GET /jobs":                    ofAll(jobsPage),
		"GET /jobs/{job}":              jobPage,
		"GET /jobs/{job}/config":       configPage,
		"POST /jobs/{job}/config":      editPage,
		"GET /jobs/{job}/backfill":     backfillPage,
		"GET /jobs/{job}/explain":      explainPage,
		"GET /jobs/{job}/fire":         firePage,
		"GET /jobs/{job}/items/{item}": itemPage,
		"GET /fires":                   firesPage,
		"GET /runs":                    runsPage,
		"GET /run":                     runPage,
		"GET /alerts":                  alertsPage,
		"POST /alerts":                 silencePage,
		"GET /hosts":                   ofAll(hostsPage),
		"GET /limits":                  ofAll(limitsPage),
		"GET /modules":                 ofAll(modulesPage),
		"GET /calendar":                ofAll(calendarPage),
		"GET /audit":                   auditPage,
		"GET /logs":                    logsPage,
		"GET /":                        missingPage,
	} {
		c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { c.show(w, r, show) })
	}
	for pattern, do := range map[string]actor{
		"POST /bulk":                             bulk,
		"POST /jobs/{job}/{action}":              actOnJob,
		"POST /jobs/{job}/items/{item}/{action}": actOnItem,
		"POST /hosts/{action}":                   actOnHost,
		"POST /alerts/{action}":                  actOnAlerts,
	} {
		c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { c.act(w, r, do) })
	}
	return c, nil
}

// ServeHTTP implements [http.Handler]. Who sent the request is in its context.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	c.mux.ServeHTTP(w, r)
}

// policy lets a page load only the console's own files.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// view is what a page shows, and by which template.
type view struct {
	template string
	data     any
}

// shower makes a page. It has set the page's title, and may set its status.
type shower func(ctx context.Context, c *Console, r *http.Request, p *page) (view, error)

// ofAll limits how many pages are made from all jobs at once.
func ofAll(do shower) shower {
	return func(ctx context.Context, c *Console, r *http.Request, p *page) (view, error) {
		leave, err := c.o.Service.Page(ctx)
		if err != nil {
			return view{}, err
		}
		defer leave()
		return do(ctx, c, r, p)
	}
}

// show answers with a page.
func (c *Console) show(w http.ResponseWriter, r *http.Request, do shower) {
	ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
	defer cancel()
	p := c.newPage(ctx, r)
	hosts, err := c.o.Service.Hosts(ctx)
	p.know(hosts)
	mark, _ := c.o.Service.Mark() // before all other reads
	p.Mark = mark.String()
	v := view{}
	if err == nil {
		v, err = do(ctx, c, r, p)
	}
	if err != nil {
		v = p.problem(r, err)
		if no := (*auth.Problem)(nil); errors.As(err, &no) && no.Header.Get("Retry-After") != "" {
			w.Header().Set("Retry-After", no.Header.Get("Retry-After"))
		}
		if p.status >= http.StatusInternalServerError {
			c.o.Logger.Warn("a page could not be shown", zap.String("page", r.URL.Path), zap.Error(err))
		}
	}
	if to, elsewhere := v.data.(redirect); elsewhere {
		setFlash(w, flash{"done", to.done, ""})
		http.Redirect(w, r, to.to, http.StatusSeeOther)
		return
	}
	c.render(w, p, v)
}

// render writes a page.
func (c *Console) render(w http.ResponseWriter, p *page, v view) {
	var b bytes.Buffer
	if err := c.templates.ExecuteTemplate(&b, v.template, v.data); err != nil {
		c.o.Logger.Error("a page's template failed", zap.String("template", v.template), zap.Error(err))
		http.Error(w, "this page cannot be shown; the host's log says why", http.StatusInternalServerError)
		return
	}
	if p.Flash != nil {
		dropFlash(w)
	}
	w.Header().Set("Content-Language", string(p.Lang))
	if p.Have != "" {
		c.answerUpdate(w, p.Have, p.status, b.String())
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(p.status)
	_, _ = w.Write(b.Bytes()) // the client is gone if that fails
}

// problemView is a page that says why there is no other one.
type problemView struct {
	P *page
	// Heading and Text say it; Kind is the name of the problemKind.
	Kind, Heading, Text string
}

// problem is the page for an error of a request.
func (p *page) problem(r *http.Request, err error) view {
	kind := kindOf(err)
	if kind.name == "forbidden" && r.Method == http.MethodPost {
		kind.name = "refused"
	}
	p.status = kind.status
	p.Title = p.T("problem." + kind.name)
	return view{"problem", problemView{p, kind.name, p.Title, err.Error()}}
}

// problemKind is a kind of errors, and its status in HTTP.
type problemKind struct {
	name   string
	status int
}

// kindOf sorts an error.
func kindOf(err error) problemKind {
	var (
		input  *service.InputError
		query  *cluster.QueryError
		gone   *service.NotFoundError
		silent *service.SilentError
		busy   *service.BusyError
		clash  *service.ConflictError
		form   *formError
		arg    *tree.ArgError
		answer *auth.Problem
	)
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
	if errors.As(err, &answer) && answer.Type == auth.NotNow {
		return problemKind{"unavailable", answer.Status}
	}
	if answer != nil && answer.Type == auth.TooMany {
		return problemKind{"toomany", answer.Status}
	}
	if answer != nil && answer.Type == auth.Forged {
		return problemKind{"forged", answer.Status}
	}
	if answer != nil {
		return problemKind{"forbidden", answer.Status}
	}
	if errors.As(err, &input) || errors.As(err, &query) || errors.As(err, &form) || errors.As(err, &arg) || is(history.ErrFilter) {
		return problemKind{"input", http.StatusBadRequest}
	}
	if errors.As(err, &gone) || is(engine.ErrNoJob) {
		return problemKind{"missing", http.StatusNotFound}
	}
	if errors.As(err, &silent) {
		return problemKind{"missing", http.StatusServiceUnavailable}
	}
	if is(history.ErrUnavailable) {
		return problemKind{"nohistory", http.StatusServiceUnavailable}
	}
	if errors.As(err, &busy) || is(engine.ErrNotLive, engine.ErrDraining, cluster.ErrEnded, registry.ErrSessionLost, registry.ErrSuspect, registry.ErrClosed, registry.ErrUnavailable) {
		return problemKind{"unavailable", http.StatusServiceUnavailable}
	}
	if errors.As(err, &clash) || is(engine.ErrJobRemoved, operate.ErrJavaRuns, operate.ErrNothingRuns, operate.ErrItemRuns, operate.ErrTriggerWaits, operate.ErrQueueFull, operate.ErrNoTriggerArgs, operate.ErrBackfillRuns, operate.ErrNoBackfill) {
		return problemKind{"conflict", http.StatusConflict}
	}
	if is(context.DeadlineExceeded) {
		return problemKind{"slow", http.StatusGatewayTimeout}
	}
	return problemKind{"failed", http.StatusInternalServerError}
}

// missingPage is the page for unknown addresses.
func missingPage(_ context.Context, _ *Console, r *http.Request, p *page) (view, error) {
	return view{}, &service.NotFoundError{What: p.T("problem.address", r.URL.Path)}
}

// formError: a field of a form has an invalid value.
type formError struct{ Field, Problem string }

func (e *formError) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Problem) }
