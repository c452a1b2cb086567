package users

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/config/filewatch"
	"github.com/wasmjob/wasmjob/host/config/ownership"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Live is the set in force. It is safe for concurrent use.
type Live struct {
	path string
	log  *zap.Logger
	// check refuses files that another user can change.
	check owners
	set   atomic.Pointer[Set]
	// Changed is called by Watch with a set that takes the place of another; nil: it is not. It is set before Watch runs.
	Changed func(before, after *Set)
	// problem is why the newest file is not in force, empty if it is.
	problem atomic.Pointer[string]
}

// Open reads the file, which may not exist yet. An empty path has no users ever.
func Open(path string, log *zap.Logger) (*Live, error) { return openAs(ownership.Self(), path, log) }

// openAs opens the file for a host that the user runs.
func openAs(u ownership.User, path string, log *zap.Logger) (*Live, error) {
	l := &Live{path: path, log: log, check: trusted(u)}
	l.set.Store(Empty())
	if path == "" {
		return l, nil
	}
	set, err := read(path, l.check)
	if err != nil {
		return nil, err
	}
	l.take(set)
	return l, nil
}

// Set is what is in force now.
func (l *Live) Set() *Set { return l.set.Load() }

// Problem says why the newest file is not in force; empty: it is.
func (l *Live) Problem() string {
	if p := l.problem.Load(); p != nil {
		return *p
	}
	return ""
}

// Watch reads the file again whenever it changes, until ctx ends. A file that has a
// mistake, or was removed, leaves the set before in force, which the log says. The error
// says that changes cannot be noticed.
func (l *Live) Watch(ctx context.Context) error {
	if l.path == "" {
		<-ctx.Done()
		return nil
	}
	return filewatch.Files(ctx, func() []string { return append([]string{l.path}, l.Set().files...) }, l.look)
}

// look reads the file and takes it, or says why not. It is called by Watch alone.
func (l *Live) look() {
	set, err := read(l.path, l.check)
	// Only a file that is not there reads as Empty; it is not looked at a second time, for
	// it may be there again.
	if err == nil && set.Same(Empty()) && !l.Set().Same(Empty()) {
		err = errors.New(l.path + " was removed, and those in it stay users; a file with \"users: []\" has none")
	}
	if err != nil {
		if text := err.Error(); text != l.Problem() {
			l.problem.Store(&text)
			l.log.Error("the users file is not taken; the one before stays in force", zap.Error(err))
		}
		return
	}
	l.problem.Store(nil)
	if before := l.Set(); !set.Same(before) {
		l.take(set)
		if l.Changed != nil {
			l.Changed(before, set)
		}
		l.log.Info("users read again", zap.String("file", l.path), zap.Int("users", len(set.users)), zap.Int("tokens", len(set.tokens)))
	}
}

func (l *Live) take(set *Set) {
	l.set.Store(set)
	for _, w := range set.Warnings() {
		l.log.Warn(w)
	}
}

const bearer = "Bearer "

// Tokens is a source of a guard: bearer tokens. host is the host's own token, empty if
// there is none; now is the clock.
func (l *Live) Tokens(host string, now func() time.Time) auth.Source {
	return &tokens{live: l, host: auth.NewSecret(host), now: now}
}

type tokens struct {
	live *Live
	host auth.Secret
	now  func() time.Time
}

// Identify finds the token that a request carries. One that is wrong is refused, whatever
// else the request has.
func (s *tokens) Identify(r *http.Request) (auth.Principal, error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return auth.Principal{}, auth.ErrNone
	}
	if len(header) < len(bearer) || !strings.EqualFold(header[:len(bearer)], bearer) {
		return auth.Principal{}, auth.Unauthenticated("this address takes tokens: Authorization: Bearer TOKEN")
	}
	given := header[len(bearer):]
	if s.host.Is(given) {
		p := auth.HostToken(auth.ByHostToken)
		p.User = words.Clip(words.Printable(r.Header.Get(auth.UserHeader)))
		return p, nil
	}
	t, ok := s.live.Set().Token(given)
	switch {
	case !ok:
		return auth.Principal{}, auth.Unauthenticated("the token is not the one of this host, and none of its users file: it is wrong, or was revoked")
	case !s.now().Before(t.Expires):
		return auth.Principal{}, auth.Unauthenticated("the token %q has expired at %s; 'wasmjob access token create' makes another one", t.Name, t.Expires.UTC().Format(time.RFC3339))
	}
	return auth.Principal{Name: t.Name, Method: auth.ByToken, Bindings: t.Bindings}, nil
}

// Certificates is a source of a guard: certificates of clients that the server has
// verified. origin refuses requests of other sites, since browsers send certificates
// with those, too.
func (l *Live) Certificates(origin func(*http.Request) error) auth.Source {
	return &certificates{l, origin}
}

type certificates struct {
	live   *Live
	origin func(*http.Request) error
}

// Identify finds the user for whom the certificate stands.
func (s *certificates) Identify(r *http.Request) (auth.Principal, error) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return auth.Principal{}, auth.ErrNone
	}
	subject := Subject(r.TLS.VerifiedChains[0][0])
	u, ok := s.live.Set().Subject(subject)
	if !ok {
		return auth.Principal{}, auth.Unauthenticated("the certificate is valid, and its subject %q is no user's; add it to a user's certificates in the users file", subject)
	}
	if err := s.origin(r); err != nil {
		return auth.Principal{}, err
	}
	return auth.Principal{Name: u.Name, Method: auth.ByCertificate, Bindings: u.Bindings}, nil
}

// Subject is how the users file names the subject of a certificate (RFC 2253), such as
// CN=ann,O=Example: in the order that the certificate has it, the last part first.
func Subject(c *x509.Certificate) string {
	var parts pkix.RDNSequence
	if rest, err := asn1.Unmarshal(c.RawSubject, &parts); err != nil || len(rest) > 0 {
		return c.Subject.String() // one that was not read from bytes
	}
	return parts.String()
}
