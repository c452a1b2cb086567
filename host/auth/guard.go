package auth

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// ErrNone is a source's error for a request without credentials of its kind.
var ErrNone = errors.New("the request has nothing that says who sent it")

// Source finds out who sent a request. It is safe for concurrent use.
type Source interface {
	// Identify returns ErrNone for a request without credentials of its kind, so that the next source is
	// called. Any other error ends the search; a *Problem is answered as it is.
	Identify(r *http.Request) (Principal, error)
}

// Guard admits requests of known senders. It is safe for concurrent use.
type Guard struct {
	sources []Source
	from    func(*http.Request) string
	log     *zap.Logger
	// requests are the requests in progress, including streams.
	requests *Places
	// strangers has one value for each answer under way to a request whose sender is not known.
	strangers chan struct{}
}

// strangersAtOnce is how many requests whose sender is not known are answered at once.
const strangersAtOnce = 32

// requests bounds what one sender has answered at once: over HTTP/2, one connection has as many
// requests as it likes.
func requests() PlacesOptions {
	return PlacesOptions{What: "requests", All: 2048, Each: 400, Reserved: 512, Retry: 5 * time.Second}
}

// NewGuard makes a guard that asks the sources in turn. from is the address that a
// request came from, for people; log takes what an operator should know.
func NewGuard(log *zap.Logger, from func(*http.Request) string, sources ...Source) *Guard {
	return &Guard{sources: sources, from: from, log: log, requests: NewPlaces(requests()), strangers: make(chan struct{}, strangersAtOnce)}
}

// Identify returns the sender of a request; the error is a *Problem.
func (g *Guard) Identify(r *http.Request) (Principal, error) {
	for _, s := range g.sources {
		p, err := s.Identify(r)
		if errors.Is(err, ErrNone) {
			continue
		}
		if err != nil {
			return Principal{}, g.problem(r, err)
		}
		p.From = g.from(r)
		return p, nil
	}
	return Principal{}, Unauthenticated("sign in first: send a token as \"Authorization: Bearer TOKEN\", or open /login in a browser")
}

// problem returns the answer to an error of a source. An error that is no problem is the host's own; its text
// goes to the log only.
func (g *Guard) problem(r *http.Request, err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	g.log.Error("a request's sender cannot be found out", zap.String("from", g.from(r)), zap.Error(err))
	return NewProblem(NotNow, http.StatusServiceUnavailable, "who you are cannot be found out at the moment; the host's log says why")
}

// Handler lets requests through to next with the principal in their context, and answers
// others with a problem.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return g.guarded(next, func(w http.ResponseWriter, r *http.Request, p *Problem) { p.ServeHTTP(w, r) })
}

// Pages does the same for pages that people look at: refused answers a request whose
// sender is not known, such as by showing the way to sign in.
func (g *Guard) Pages(next http.Handler, refused func(w http.ResponseWriter, r *http.Request, p *Problem)) http.Handler {
	return g.guarded(next, refused)
}

func (g *Guard) guarded(next http.Handler, refused func(http.ResponseWriter, *http.Request, *Problem)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := g.Identify(r)
		if err != nil {
			g.refuse(w, r, func() { refused(w, r, g.problem(r, err)) })
			return
		}
		ctx := With(r.Context(), p)
		leave, err := g.requests.Take(ctx)
		if err != nil {
			refused(w, r, g.problem(r, err))
			return
		}
		defer leave()
		again := func() (Principal, error) { return g.Identify(r) }
		next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, againKey{}, again)))
	})
}

// refuse answers a request whose sender is not known, or ends its connection if too many such answers are under way.
func (g *Guard) refuse(w http.ResponseWriter, r *http.Request, answer func()) {
	select {
	case g.strangers <- struct{}{}:
		defer func() { <-g.strangers }()
		answer()
	default:
		p := NewProblem(NotNow, http.StatusServiceUnavailable, "too many requests of unknown senders are being answered; ask again in a second")
		p.Header = http.Header{"Connection": {"close"}, "Retry-After": {"1"}}
		p.ServeHTTP(w, r)
	}
}

// againKey is that of the function in a context that identifies the sender once more.
type againKey struct{}

// Outdated reports whether the sender of the context's request would now be refused, or has other roles. Long
// answers, such as streams, call it from time to time and end.
func Outdated(ctx context.Context) bool {
	again, ok := ctx.Value(againKey{}).(func() (Principal, error))
	if !ok {
		return false // no guard has let it in
	}
	now, err := again()
	return err != nil || !reflect.DeepEqual(now.Bindings, From(ctx).Bindings)
}

// Require returns nil if the context's principal has the action for the job, else a
// *Problem. It knows nothing of which jobs exist: call it before anything is looked up.
// Of what is no job's, job is empty.
func Require(ctx context.Context, a operation.Action, job string) error {
	p := From(ctx)
	if p.Method == "" {
		return Unauthenticated("sign in first")
	}
	if p.May(a, job) {
		return nil
	}
	if job == "" {
		return NewProblem(RoleMissing, http.StatusForbidden, "to %s all jobs, or what is no job's, you need the role %s for %s; %s has %s", a, weakest(a), AllJobs, p, p.roles())
	}
	return NewProblem(RoleMissing, http.StatusForbidden, "to %s job %q you need the role %s for it; %s has %s", a, words.Clip(job), weakest(a), p, p.roles())
}

// Change begins the record of a change that the context's principal makes: what is the
// operation, job is empty if it is none's.
func Change(ctx context.Context, what, job string) history.Change {
	p := From(ctx)
	return history.Change{Time: time.Now(), Who: p.String(), From: p.From, What: what, Job: job}
}
