package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/auth/httpx"
)

const (
	// shutdownTimeout is how long requests may go on when Run is cancelled.
	shutdownTimeout = 3 * time.Second
	// maxBody bounds the body of a request in bytes: an offset and a state are the most
	// that anybody sends, of which JSON may make six times as much.
	maxBody = 6 * (abi.MaxOffset + 2*abi.MaxValue)
	// minToken is the shortest token in bytes.
	minToken = 16
)

// PeerPath is where hosts ask each other.
const PeerPath = "/v1/peer/"

// Options say where to listen and what to answer. Metrics and Peers may be nil.
type Options struct {
	Address Address
	// Token is what the API wants, at least 16 bytes.
	Token string
	// Ready says whether the host is ready, and why not if that is known.
	Ready func() (ok bool, reason string)
	// Metrics answers /metrics, API everything below /v1. Peers answers other hosts, below PeerPath: it checks
	// their signatures itself. Pages answers everything else, and authenticates by itself; nil: no pages.
	Metrics, API, Peers, Pages http.Handler
	// Documents answers what lies below /docs and /schemas; nil: nothing does. It holds no secret.
	Documents http.Handler
	// Access is who may ask.
	Access Access
	// Wait is called before each request, to let more urgent work go first; nil: no wait.
	Wait   func(context.Context)
	Logger *zap.Logger

	connections connections // in place of the usual ones, for tests
}

// Server listens from Listen on and answers while Run runs.
type Server struct {
	opts     Options
	listener net.Listener
	address  Address
	http     *http.Server
}

// Listen takes the address. The error names it if something else has it.
func Listen(o Options) (*Server, error) {
	if len(o.Token) < minToken {
		return nil, fmt.Errorf("admin token has %d bytes, want at least %d", len(o.Token), minToken)
	}
	if o.Ready == nil || o.API == nil {
		return nil, errors.New("admin: no Ready or no API")
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if err := o.Access.complete(o.Token, o.Address.Local(), o.Logger); err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	warnings, err := zap.NewStdLogAt(o.Logger, zap.WarnLevel)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	compressed, err := httpx.Compression()
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	l, err := listen(o.Address)
	if err != nil {
		return nil, err
	}
	s := &Server{opts: o, listener: newFair(l, cmp.Or(o.connections, usual()), o.Access.Site.IsProxy, o.Logger), address: o.Address}
	if o.Address.Network == "tcp" {
		s.address.Name = l.Addr().String()
	}
	s.http = &http.Server{Handler: o.Access.Site.Headers(s.handler(compressed)), TLSConfig: o.Access.TLS, ErrorLog: warnings}
	httpx.Limit(s.http)
	return s, nil
}

// Limits of how many answers are sent at once to clients without a token, which may read slowly. All metrics of
// a thousand jobs are megabytes.
const (
	documentsAtOnce = 32
	metricsAtOnce   = 8
	// signInsAtOnce is of the pages for signing in, and as many of what is sent with them, which may wait for others.
	signInsAtOnce = 32
	// probesAtOnce is of answers to probes. Further ones wait: a probe that is refused restarts a host.
	probesAtOnce = 8
)

func listen(a Address) (net.Listener, error) {
	l, err := net.Listen(a.Network, a.Name)
	if errors.Is(err, syscall.EADDRINUSE) && a.Network == "unix" {
		if info, serr := os.Lstat(a.Name); serr == nil && info.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("admin address %s: there is a file of that name which is not a socket", a)
		}
		// The socket of a killed host remains; no host answers there.
		c, derr := net.DialTimeout("unix", a.Name, time.Second)
		switch {
		case derr == nil:
			_ = c.Close() // it was only a question
		case errors.Is(derr, syscall.ECONNREFUSED):
			if rerr := os.Remove(a.Name); rerr != nil {
				return nil, fmt.Errorf("admin address %s: the socket of a host that is gone cannot be removed: %w", a, rerr)
			}
			l, err = net.Listen(a.Network, a.Name)
		}
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("admin address %s is in use, perhaps by another host: choose another one or none", a)
	case err != nil:
		return nil, fmt.Errorf("admin address %s: %w", a, err)
	}
	if a.Network == "unix" {
		if err := os.Chmod(a.Name, 0o600); err != nil {
			return nil, errors.Join(fmt.Errorf("admin address %s: %w", a, err), l.Close())
		}
	}
	return l, nil
}

// Address is where the server listens, with the port that was chosen if the
// options said 0.
func (s *Server) Address() Address { return s.address }

// Run answers requests until ctx is done, gives requests in progress a few seconds, and returns nil; or it
// returns the error that ended it. It may be called once.
func (s *Server) Run(ctx context.Context) error {
	served := make(chan error, 1)
	go func() {
		if s.opts.Access.TLS != nil {
			served <- s.http.ServeTLS(s.listener, "", "")
			return
		}
		served <- s.http.Serve(s.listener)
	}()
	select {
	case err := <-served:
		return fmt.Errorf("admin address %s: %w", s.address, err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := s.http.Shutdown(grace); err != nil {
		_ = s.http.Close() // the connections that would not end; nothing is lost
	}
	<-served
	return nil
}

// Close gives the address back if Run was never called.
func (s *Server) Close() error { return s.http.Close() }

func (s *Server) handler(compressed func(http.Handler) http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	probe := func(answer http.HandlerFunc) http.Handler {
		return s.open(auth.OpenHealth, httpx.InTurn(probesAtOnce, answer))
	}
	mux.Handle("GET /healthz", probe(func(w http.ResponseWriter, _ *http.Request) {
		text(w, http.StatusOK, "ok")
	}))
	mux.Handle("GET /readyz", probe(func(w http.ResponseWriter, _ *http.Request) {
		ready, reason := s.opts.Ready()
		switch {
		case ready:
			text(w, http.StatusOK, "ready")
		case reason != "" && s.opts.Address.Local(): // others get yes or no
			text(w, http.StatusServiceUnavailable, "not ready: "+reason)
		default:
			text(w, http.StatusServiceUnavailable, "not ready")
		}
	}))
	if s.opts.Metrics != nil {
		mux.Handle("GET /metrics", s.open(auth.OpenAll, httpx.AtOnce(metricsAtOnce, s.opts.Metrics)))
	}
	if s.opts.Documents != nil {
		// Who cannot sign in needs them most.
		documents := s.open(auth.OpenHealth, httpx.AtOnce(documentsAtOnce, compressed(s.opts.Documents)))
		for _, path := range []string{"GET /docs", "GET /docs/", "GET /schemas/"} {
			mux.Handle(path, documents)
		}
	}
	if s.opts.Access.Login != nil {
		shown, sent := httpx.AtOnce(signInsAtOnce, s.opts.Access.Login), httpx.AtOnce(signInsAtOnce, s.opts.Access.Login)
		for _, path := range LoginPaths() {
			mux.Handle(path, sent)
		}
		mux.Handle("GET /login", shown)
	}
	mux.Handle("/v1/", s.opts.Access.Guard.Handler(compressed(s.opts.API)))
	mux.Handle("POST "+LinkPath, s.opts.Access.Guard.Handler(http.HandlerFunc(s.link)))
	if s.opts.Peers != nil {
		mux.Handle(PeerPath, s.opts.Peers)
	}
	pages := compressed(s.opts.Pages)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if s.opts.Pages != nil && !ofAPI(r.URL.Path) {
			pages.ServeHTTP(w, r)
			return
		}
		fail(w, http.StatusNotFound, fmt.Sprintf("no such endpoint: %s %s", r.Method, r.URL.Path))
	})
	return s.guarded(mux)
}

// ofAPI reports whether a path is below that of a version of the API, such as /v2.
func ofAPI(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	number, ok := strings.CutPrefix(first, "v")
	_, err := strconv.ParseUint(number, 10, 64)
	return ok && err == nil
}

// guarded refuses a foreign Host header on a local TCP address, and large bodies, and waits.
func (s *Server) guarded(next http.Handler) http.Handler {
	next = httpx.Body(maxBody, s.waiting(next))
	if s.opts.Address.Network == "tcp" && s.opts.Address.Local() {
		return s.opts.Access.Site.Hosts(next)
	}
	return next
}

// waiting lets what is more urgent go first.
func (s *Server) waiting(next http.Handler) http.Handler {
	if s.opts.Wait == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.opts.Wait(r.Context())
		next.ServeHTTP(w, r)
	})
}

// Problem is the JSON of every error, as RFC 9457 has it.
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Errors are about parts of the request.
	Errors []ProblemPart `json:"errors,omitempty"`
}

// ProblemPart is what is wrong with one part of a request.
type ProblemPart struct {
	Location string `json:"location,omitempty"`
	Message  string `json:"message"`
}

func fail(w http.ResponseWriter, code int, message string) {
	respond(w, code, Problem{Title: http.StatusText(code), Status: code, Detail: message})
}

// respond writes v. An error of the connection is the client's to notice.
func respond(w http.ResponseWriter, code int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		code, body = http.StatusInternalServerError, []byte(`{"title":"Internal Server Error","status":500,"detail":"the answer does not fit JSON"}`)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n'))
}

func text(w http.ResponseWriter, code int, s string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(s + "\n"))
}
