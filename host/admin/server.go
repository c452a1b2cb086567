package admin

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/operate"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host"
)

const (
	// operationTimeout bounds one operation at the registry.
	operationTimeout = 15 * time.Second
	// shutdownTimeout is how long requests may go on when Run is cancelled.
	shutdownTimeout = 3 * time.Second
	// minToken is the shortest token in bytes.
	minToken = 16
)

// Host is what the server shows; [host.Host] is one.
type Host interface {
	FullStatus() host.Status
	Ready() (ready bool, missing string)
	// Start is the one operation that concerns a single host.
	Start(ctx context.Context, job string) error
}

// Operations are what operators do to a job on all its hosts; [Registry] has them.
type Operations interface {
	Trigger(ctx context.Context, job string) error
	Enable(ctx context.Context, job string) error
	Disable(ctx context.Context, job string) error
	EnableItem(ctx context.Context, job string, item int) error
	DisableItem(ctx context.Context, job string, item int) error
	Remove(ctx context.Context, job string, purge bool) error
}

// Options say where to listen and what to show. Metrics may be nil.
type Options struct {
	Address Address
	// Token is what operations want, at least 16 bytes.
	Token string
	Host  Host
	// Metrics answers /metrics.
	Metrics http.Handler
	// About is shown beside the host's status.
	About About
	// Pending says what the host still waits for; nil means nothing. It is
	// called for each request, from many goroutines.
	Pending func() Pending
	// Registry answers what is asked of the registry rather than of the host.
	// nil: nothing of it is known.
	Registry *Registry
	// Operations take effect for all hosts; nil: those of Registry.
	Operations Operations
	// Session describes the host's session; nil: there is none. It
	// is called for each request, from many goroutines, and returns nil while
	// there is no session.
	Session func() *Session
	// Waiting says what the host waits for to get a session, empty for
	// nothing. nil is the same.
	Waiting func() string
	// History describes the history file; nil: there is none. It is called for
	// each request, from many goroutines.
	History func() *History
	// Warnings say what is wrong with the host's settings; nil: nothing. It is
	// called for each request, from many goroutines.
	Warnings func() []string
	Logger   *zap.Logger
}

// About is what a host's process reports about itself.
type About struct {
	Version string `json:"version"`
	PID     int    `json:"pid"`
	// Plugins is the directory that the host watches.
	Plugins string `json:"plugins"`
	// Registry says in words where the registry is.
	Registry string `json:"registry"`
	// History is the history file, empty if there is none.
	History string `json:"history,omitempty"`
}

// History is how the history file fares.
type History struct {
	File string `json:"file"`
	// Dropped is how many events are not in the file since the host began.
	Dropped int64 `json:"dropped"`
	// Problem says why the last events could not be written, empty if they
	// could; Since is when the first of them was lost.
	Problem string    `json:"problem,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// Pending is what keeps a host from having all its jobs.
type Pending struct {
	// Starting says that the plugins directory has not been taken in whole
	// yet: the host is not ready then.
	Starting bool
	// Compiling are the modules that are not compiled yet.
	Compiling []Compiling
}

// Compiling is a module that is being compiled, or waits for its turn.
type Compiling struct {
	Module string `json:"module"`
	// Jobs are those that run nothing before the module is ready.
	Jobs []string `json:"jobs"`
	// Since is when it was begun; zero if it was not yet.
	Since time.Time `json:"since,omitzero"`
}

// reason says in words why the host is not ready.
func (p Pending) reason() string {
	if len(p.Compiling) == 0 {
		return "the plugins directory is being read"
	}
	names := make([]string, len(p.Compiling))
	for i, c := range p.Compiling {
		names[i] = c.Module
	}
	return "compiling: " + strings.Join(names, ", ")
}

// waits reports whether the job runs nothing before its module is compiled.
func (p Pending) waits(job string) bool {
	return slices.ContainsFunc(p.Compiling, func(c Compiling) bool { return slices.Contains(c.Jobs, job) })
}

// Report is the answer of GET /v1/status.
type Report struct {
	About About     `json:"about"`
	Now   time.Time `json:"now"`
	Ready bool      `json:"ready"`
	// Reason says why it is not ready, if that is known.
	Reason string      `json:"reason,omitempty"`
	Status host.Status `json:"status"`
	// Session is missing while there is none, and for a registry that has no
	// sessions to speak of.
	Session *Session `json:"session,omitempty"`
	// Compiling are the modules that are not compiled yet, by file.
	Compiling []Compiling `json:"compiling,omitempty"`
	// History is missing if there is no history file.
	History *History `json:"history,omitempty"`
	// Warnings are about the host's settings, in words.
	Warnings []string `json:"warnings,omitempty"`
}

// Server listens from Listen on and answers while Run runs.
type Server struct {
	opts     Options
	token    [sha256.Size]byte
	listener net.Listener
	address  Address
	http     *http.Server
}

// Listen takes the address. The error names it if something else has it.
func Listen(o Options) (*Server, error) {
	if len(o.Token) < minToken {
		return nil, fmt.Errorf("admin token has %d bytes, want at least %d", len(o.Token), minToken)
	}
	if o.Host == nil {
		return nil, errors.New("admin: no host given")
	}
	if o.Operations == nil && o.Registry == nil {
		return nil, errors.New("admin: no registry given")
	}
	if o.Operations == nil {
		o.Operations = o.Registry
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	warnings, err := zap.NewStdLogAt(o.Logger, zap.WarnLevel)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	l, err := listen(o.Address)
	if err != nil {
		return nil, err
	}
	s := &Server{opts: o, token: sha256.Sum256([]byte(o.Token)), listener: l, address: o.Address}
	if o.Address.Network == "tcp" {
		s.address.Name = l.Addr().String()
	}
	s.http = &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      operationTimeout + 15*time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          warnings,
	}
	return s, nil
}

func listen(a Address) (net.Listener, error) {
	l, err := net.Listen(a.Network, a.Name)
	if errors.Is(err, syscall.EADDRINUSE) && a.Network == "unix" {
		if info, serr := os.Lstat(a.Name); serr == nil && info.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("admin address %s: there is a file of that name which is not a socket", a)
		}
		// The socket of a host that was killed stays; no host answers there.
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

// Run answers requests until ctx is done, gives those under way a few seconds,
// and returns nil; or it returns the error that ended it. It may be called
// once.
func (s *Server) Run(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(s.listener) }()
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

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		text(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		ready, reason := s.ready(s.pending())
		switch {
		case ready:
			text(w, http.StatusOK, "ready")
		case reason != "" && s.opts.Address.Local(): // others get yes or no
			text(w, http.StatusServiceUnavailable, "not ready: "+reason)
		default:
			text(w, http.StatusServiceUnavailable, "not ready")
		}
	})
	if s.opts.Metrics != nil {
		if s.opts.Address.Local() {
			mux.Handle("GET /metrics", s.opts.Metrics)
		} else {
			mux.Handle("GET /metrics", s.authorized(s.opts.Metrics))
		}
	}
	mux.Handle("GET /v1/status", s.authorized(http.HandlerFunc(s.status)))
	if s.opts.Registry != nil {
		s.registryEndpoints(mux, s.opts.Registry)
	}
	o := s.opts.Operations
	all := func(do func(context.Context, string) error) func(*http.Request) error {
		return func(r *http.Request) error {
			var problems []error
			for _, j := range s.opts.Host.FullStatus().Jobs {
				problems = append(problems, s.explained(j.Name, do(r.Context(), j.Name)))
			}
			return errors.Join(problems...)
		}
	}
	job := func(do func(context.Context, string) error) func(*http.Request) error {
		return func(r *http.Request) error { return do(r.Context(), r.PathValue("job")) }
	}
	item := func(do func(context.Context, string, int) error) func(*http.Request) error {
		return func(r *http.Request) error {
			n, err := strconv.Atoi(r.PathValue("item"))
			if err != nil || n < 0 {
				return badRequest{fmt.Sprintf("item %q is not a number from 0", r.PathValue("item"))}
			}
			return do(r.Context(), r.PathValue("job"), n)
		}
	}
	for pattern, do := range map[string]func(*http.Request) error{
		"POST /v1/enable":                          all(o.Enable),
		"POST /v1/disable":                         all(o.Disable),
		"POST /v1/jobs/{job}/trigger":              job(s.trigger),
		"POST /v1/jobs/{job}/start":                job(s.opts.Host.Start),
		"POST /v1/jobs/{job}/enable":               job(o.Enable),
		"POST /v1/jobs/{job}/disable":              job(o.Disable),
		"POST /v1/jobs/{job}/items/{item}/enable":  item(o.EnableItem),
		"POST /v1/jobs/{job}/items/{item}/disable": item(o.DisableItem),
		"DELETE /v1/jobs/{job}": func(r *http.Request) error {
			purge := false
			if q := r.URL.Query().Get("purge"); q != "" {
				var err error
				if purge, err = strconv.ParseBool(q); err != nil {
					return badRequest{fmt.Sprintf("purge=%q is neither true nor false", q)}
				}
			}
			return o.Remove(r.Context(), r.PathValue("job"), purge)
		},
	} {
		mux.Handle(pattern, s.authorized(s.operation(do)))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, fmt.Sprintf("no such endpoint: %s %s", r.Method, r.URL.Path))
	})
	return s.guarded(mux)
}

// registryEndpoints answer from the registry, about all hosts of a job.
func (s *Server) registryEndpoints(mux *http.ServeMux, r *Registry) {
	show := func(read func(*http.Request) (any, error)) http.Handler {
		return s.authorized(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			ctx, cancel := context.WithTimeout(req.Context(), operationTimeout)
			defer cancel()
			v, err := read(req.WithContext(ctx))
			if err != nil {
				s.failed(w, err)
				return
			}
			respond(w, http.StatusOK, v)
		}))
	}
	mux.Handle("GET /v1/registry/jobs", show(func(req *http.Request) (any, error) { return r.Jobs(req.Context()) }))
	mux.Handle("GET /v1/jobs/{job}/shards", show(func(req *http.Request) (any, error) {
		return r.Shards(req.Context(), req.PathValue("job"))
	}))
	mux.Handle("POST /v1/jobs/{job}/kill", s.authorized(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { s.kill(w, req, r) })))
	mux.Handle("POST /v1/jobs/{job}/release", show(func(req *http.Request) (any, error) {
		item, err := itemOf(req)
		if err != nil {
			return nil, err
		}
		items, err := r.Release(req.Context(), req.PathValue("job"), item)
		if err == nil {
			s.opts.Logger.Info("operation done", zap.String("operation", operationText(req)), zap.Stringer("items", items))
			s.opts.Host.FullStatus() // reads held items again: an owner here reports the release
		}
		return releasedItems{items}, err
	}))
	mux.Handle("GET /v1/jobs/{job}/kept", show(func(req *http.Request) (any, error) {
		item, err := itemOf(req)
		if err != nil {
			return nil, err
		}
		return r.Kept(req.Context(), req.PathValue("job"), item)
	}))
	mux.Handle("POST /v1/jobs/{job}/kept", show(func(req *http.Request) (any, error) { return s.changeKept(req, r) }))
	server := func(do func(ctx context.Context, job, server string) error) http.Handler {
		return s.authorized(s.operation(func(req *http.Request) error {
			return do(req.Context(), req.PathValue("job"), req.PathValue("server"))
		}))
	}
	for _, prefix := range []string{"POST /v1", "POST /v1/jobs/{job}"} {
		mux.Handle(prefix+"/servers/{server}/enable", server(r.EnableServer))
		mux.Handle(prefix+"/servers/{server}/disable", server(r.DisableServer))
		mux.Handle(prefix+"/shutdown", s.authorized(s.operation(func(req *http.Request) error {
			server, instance := req.URL.Query().Get("server"), req.URL.Query().Get("instance")
			if req.PathValue("job")+server+instance == "" {
				return badRequest{"shutdown of all instances of all jobs is not offered; name a job, a server or an instance"}
			}
			return r.Shutdown(req.Context(), req.PathValue("job"), server, instance)
		})))
	}
}

// maxChange bounds the body of a change: an offset and a state, of which JSON may make
// six times as much.
const maxChange = 6 * (abi.MaxOffset + 2*abi.MaxValue)

// changeKept changes what an item keeps.
func (s *Server) changeKept(req *http.Request, r *Registry) (any, error) {
	item, err := itemOf(req)
	if err != nil {
		return nil, err
	}
	var change KeptChange
	d := json.NewDecoder(req.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&change); err != nil {
		return nil, badRequest{fmt.Sprintf("the body is not a change: %v", err)}
	}
	k, err := r.ChangeKept(req.Context(), req.PathValue("job"), item, change)
	log := s.opts.Logger.With(zap.String("operation", operationText(req)), zap.Stringer("change", change))
	if err != nil {
		log.Warn("operation failed", zap.Error(err))
		return nil, err
	}
	log.Info("operation done", zap.Int("item", k.Item))
	return k, nil
}

// itemOf is the item that a query names, -1 for none.
func itemOf(req *http.Request) (int, error) {
	text := req.URL.Query().Get("item")
	if text == "" {
		return -1, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return -1, badRequest{fmt.Sprintf("item=%q is not a number from 0", text)}
	}
	return n, nil
}

// releasedItems is the answer of release.
type releasedItems struct {
	Items tree.Items `json:"items"`
}

// killLine is one line of the answer of kill: the whole state, or an error that
// came after the first.
type killLine struct {
	*Kills
	Error string `json:"error,omitempty"`
}

// kill answers with a line when all hosts are asked, and one for each change
// until nothing runs any more, or the time is over.
func (s *Server) kill(w http.ResponseWriter, req *http.Request, r *Registry) {
	log := s.opts.Logger.With(zap.String("operation", operationText(req)))
	q := req.URL.Query()
	item, err := itemOf(req)
	o := KillOptions{Item: item, Run: q.Get("run"), Server: q.Get("server"), By: q.Get("by")}
	for name, into := range map[string]*time.Duration{"grace": &o.Grace, "wait": &o.Wait} {
		if text := q.Get(name); text != "" && err == nil {
			if *into, err = time.ParseDuration(text); err != nil {
				err = badRequest{fmt.Sprintf("%s=%q is not a duration such as 5s", name, text)}
			}
		}
	}
	if err == nil {
		err = o.check()
	}
	if err != nil {
		s.failed(w, err)
		return
	}
	limit := o.Wait + operationTimeout
	ctx, cancel := context.WithTimeout(req.Context(), limit)
	defer cancel()
	conn := http.NewResponseController(w)
	deadline := time.Now().Add(limit + operationTimeout)
	if err := errors.Join(conn.SetReadDeadline(deadline), conn.SetWriteDeadline(deadline)); err != nil {
		s.failed(w, err)
		return
	}
	begun := false
	lines := json.NewEncoder(w)
	say := func(line killLine) {
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.Header().Set("Cache-Control", "no-store")
			w.Header().Set("X-Content-Type-Options", "nosniff")
		}
		if lines.Encode(line) == nil { // else the client is gone, and ctx ends
			_ = conn.Flush()
		}
	}
	kills, err := r.Kill(ctx, req.PathValue("job"), o, func(k *Kills) { say(killLine{Kills: k}) })
	switch {
	case err != nil && !begun:
		s.failed(w, err)
		log.Warn("operation failed", zap.Error(err))
	case err != nil:
		say(killLine{Error: err.Error()})
		log.Warn("operation failed", zap.Error(err))
	default:
		say(killLine{Kills: kills})
		log.Info("operation done", zap.String("by", o.By), zap.Int("runs", len(kills.Runs)), zap.Int("still running", kills.Open()))
	}
}

// guarded refuses a foreign Host header on a local TCP address, and large bodies.
func (s *Server) guarded(next http.Handler) http.Handler {
	check := s.opts.Address.Network == "tcp" && s.opts.Address.Local()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if check && !localName(r.Host) {
			fail(w, http.StatusForbidden, fmt.Sprintf("this address does not answer to the name %q; use localhost or an IP address", r.Host))
			return
		}
		most := int64(4 << 10)
		if r.Method == http.MethodPost && path.Base(r.URL.Path) == "kept" {
			most = maxChange
		}
		r.Body = http.MaxBytesReader(w, r.Body, most)
		next.ServeHTTP(w, r)
	})
}

// localName reports whether a Host header cannot be a name from the DNS.
func localName(hostPort string) bool {
	name := hostPort
	if h, _, err := net.SplitHostPort(hostPort); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	_, err := netip.ParseAddr(name)
	return err == nil || strings.EqualFold(name, "localhost")
}

func (s *Server) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		sum := sha256.Sum256([]byte(given)) // equal lengths, so that nothing leaks
		if !ok || subtle.ConstantTimeCompare(sum[:], s.token[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			what := "the token is not the one of this host"
			if !ok {
				what = "this endpoint wants the host's token: Authorization: Bearer TOKEN"
			}
			fail(w, http.StatusUnauthorized, what)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	p := s.pending() // first: what ends meanwhile is in the status
	ready, reason := s.ready(p)
	report := Report{
		About: s.opts.About, Now: time.Now(), Ready: ready, Reason: reason, Status: s.opts.Host.FullStatus(), Compiling: p.Compiling,
	}
	if s.opts.Session != nil {
		report.Session = s.opts.Session()
	}
	if s.opts.History != nil {
		report.History = s.opts.History()
	}
	if s.opts.Warnings != nil {
		report.Warnings = s.opts.Warnings()
	}
	respond(w, http.StatusOK, report)
}

func (s *Server) pending() Pending {
	if s.opts.Pending == nil {
		return Pending{}
	}
	return s.opts.Pending()
}

// ready reports whether the host is ready, and why not if that is known.
func (s *Server) ready(p Pending) (ok bool, reason string) {
	if s.opts.Waiting != nil {
		if reason := s.opts.Waiting(); reason != "" {
			return false, reason
		}
	}
	if p.Starting {
		return false, p.reason()
	}
	return s.opts.Host.Ready()
}

// trigger refuses a job that this host cannot run yet: no host would serve the
// request.
func (s *Server) trigger(ctx context.Context, job string) error {
	if s.pending().waits(job) {
		return compilingError{job}
	}
	if s.opts.Host.FullStatus().State == host.HostDraining {
		return fmt.Errorf("job %q: %w", job, host.ErrDraining)
	}
	return s.opts.Operations.Trigger(ctx, job)
}

// explained adds to the error about a job that the registry does not have what this
// host knows of it.
func (s *Server) explained(job string, err error) error {
	if job == "" || !errors.Is(err, host.ErrNoJob) {
		return err
	}
	if s.pending().waits(job) {
		return compilingError{job}
	}
	st := s.opts.Host.FullStatus()
	if slices.ContainsFunc(st.Jobs, func(j host.JobStatus) bool { return j.Name == job }) {
		return fmt.Errorf("job %q: %w", job, host.ErrJobRemoved)
	}
	for _, f := range st.Refused {
		reasons := f.Reasons
		if strings.TrimSuffix(f.File, path.Ext(f.File)) != job {
			of := fmt.Sprintf("job %q: ", job)
			reasons = slices.DeleteFunc(slices.Clone(reasons), func(reason string) bool { return !strings.Contains(reason, of) })
		}
		if len(reasons) > 0 {
			return fmt.Errorf("%w: %s is refused: %s", err, f.File, strings.Join(reasons, "; "))
		}
	}
	return err
}

// compilingError refuses an operation for a moment.
type compilingError struct{ job string }

func (e compilingError) Error() string {
	return fmt.Sprintf("job %q: its module is still being compiled; try again in a moment", e.job)
}

// badRequest is an error of the client.
type badRequest struct{ text string }

func (b badRequest) Error() string { return b.text }

// operationText says what a request does, as the command that sends it says it.
func operationText(r *http.Request) string {
	words := []string{path.Base(r.URL.Path)}
	if r.Method == http.MethodDelete {
		words[0] = "remove"
	}
	q := r.URL.Query()
	for _, name := range []string{"item", "server", "instance", "run"} {
		if value := cmp.Or(r.PathValue(name), q.Get(name)); value != "" {
			words = append(words, name, value, "of")
		}
	}
	words = append(words, cmp.Or(r.PathValue("job"), "all jobs"))
	if purge, err := strconv.ParseBool(q.Get("purge")); err == nil && purge {
		words = append(words, "with its records")
	}
	return strings.Join(words, " ")
}

func (s *Server) operation(do func(*http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), operationTimeout)
		defer cancel()
		log := s.opts.Logger.With(zap.String("operation", operationText(r)))
		err := s.explained(r.PathValue("job"), do(r.WithContext(ctx)))
		if err == nil {
			log.Info("operation done")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		s.failed(w, err)
		log.Warn("operation failed", zap.Error(err))
	})
}

// failed answers with an error, and the code that it has in HTTP.
func (s *Server) failed(w http.ResponseWriter, err error) {
	var bad badRequest
	var compiling compilingError
	var target *noTargetError
	switch {
	case errors.As(err, &bad):
		fail(w, http.StatusBadRequest, err.Error())
	case errors.As(err, &compiling), errors.Is(err, host.ErrNotLive), errors.Is(err, host.ErrDraining):
		fail(w, http.StatusServiceUnavailable, err.Error())
	case errors.Is(err, host.ErrNoJob), errors.As(err, &target):
		fail(w, http.StatusNotFound, err.Error())
	case errors.Is(err, host.ErrJobRemoved), errors.Is(err, operate.ErrJavaRuns), errors.Is(err, operate.ErrNothingRuns), errors.Is(err, operate.ErrItemRuns):
		fail(w, http.StatusConflict, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		fail(w, http.StatusGatewayTimeout, fmt.Sprintf("not done within %s, it may still take effect: %v", operationTimeout, err))
	default:
		fail(w, http.StatusInternalServerError, err.Error())
	}
}

// problem is the JSON of every error.
type problem struct {
	Error string `json:"error"`
}

func fail(w http.ResponseWriter, code int, message string) {
	respond(w, code, problem{message})
}

// respond writes v. An error of the connection is the client's to notice.
func respond(w http.ResponseWriter, code int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		code, body = http.StatusInternalServerError, []byte(`{"error":"the answer does not fit JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
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
