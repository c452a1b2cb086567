package cookie

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/auth"
)

const (
	// Life is how long a session lasts, even if it is used.
	Life = 12 * time.Hour

	kindSession = "session"
)

// Session is a browser that has signed in.
type Session struct {
	ID string `json:"i"`
	// Name is the user's name, Method how the user signed in.
	Name   string      `json:"n"`
	Method auth.Method `json:"m"`
	// User is the user who asked for the login link that began the session, empty if unknown.
	User string `json:"u,omitempty"`
	// Credential changes with the user's credential: a session ends when its user has another password.
	Credential string `json:"c,omitempty"`
	// Groups are the provider's groups that are configured here.
	Groups []string  `json:"g,omitempty"`
	Begun  time.Time `json:"b"`
}

// user returns the key of the session's user in the revocations, of one length for any name.
func (s Session) user() string {
	sum := sha256.Sum256([]byte(string(s.Method) + " " + s.Name))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// Sessions are the sessions of a cluster's browsers. It is a source of a guard, and safe for concurrent use.
type Sessions struct {
	Box *Box
	// Resolve returns the present rights of a session's user. An error, such as for a removed user, ends the
	// session.
	Resolve func(Session) (auth.Principal, error)
	// Origin refuses requests of other sites; it is called for each request with a cookie.
	Origin func(*http.Request) error
	// Host refuses names that are not this server's; it is called likewise.
	Host func(*http.Request) error
	// Revoked remembers ended sessions.
	Revoked Revocations
}

// Ready returns nil if sessions can be begun, else a problem.
func (s *Sessions) Ready() error {
	_, err := s.Box.keys()
	return err
}

// Begin starts a session of a user. Its id is always new: a session that an attacker put into the browser is
// not continued.
func (s *Sessions) Begin(w http.ResponseWriter, r *http.Request, session Session) error {
	session.ID, session.Begun = rand.Text(), s.Box.Now().UTC().Truncate(time.Second)
	return s.Box.Set(w, r, kindSession, session, Life)
}

// Identify finds the session of the request's cookie.
func (s *Sessions) Identify(r *http.Request) (auth.Principal, error) {
	session, k, err := s.session(r)
	if err != nil {
		return auth.Principal{}, err
	}
	if err := s.Host(r); err != nil {
		return auth.Principal{}, err
	}
	if err := s.Origin(r); err != nil {
		return auth.Principal{}, err
	}
	if !safe(r) && r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == "" {
		return auth.Principal{}, auth.NewProblem(auth.Forged, http.StatusForbidden,
			"a request with a session cookie that changes something needs the header Origin or Sec-Fetch-Site, which browsers send; programs use a token in place of the cookie")
	}
	p, err := s.Resolve(session)
	if err != nil {
		return auth.Principal{}, s.over(r, k, auth.SessionRevoked, "this session has ended: "+err.Error()+"; sign in again")
	}
	p.Session = session.ID
	return p, nil
}

// session returns the session of the request, valid or not. The error is ErrNone or a problem.
func (s *Sessions) session(r *http.Request) (Session, Keys, error) {
	var session Session
	if !slices.ContainsFunc(r.Cookies(), isSession) {
		return session, Keys{}, auth.ErrNone
	}
	k, err := s.Box.keys()
	if err != nil {
		return session, k, err
	}
	var theirs errForeign
	err = s.Box.get(r, k, kindSession, &session)
	switch {
	case errors.Is(err, errNone):
		return session, k, auth.ErrNone
	case errors.As(err, &theirs):
		p := auth.Unauthenticated("your session is one of the cluster %q, and this is the cluster %q: sign in here", theirs.theirs, theirs.ours)
		p.Session = auth.SessionElsewhere
		return session, k, p
	case errors.Is(err, errExpired):
		return session, k, s.over(r, k, auth.SessionExpired, "this session has expired; sign in again")
	case err != nil:
		return session, k, s.over(r, k, auth.SessionUnreadable, err.Error()+"; sign in again")
	case s.Revoked.Has(session.user(), session.ID, session.Begun):
		return session, k, s.over(r, k, auth.SessionSignedOut, "this session was signed out; sign in again")
	}
	return session, k, nil
}

// isSession reports whether a cookie is a session's, of any cluster.
func isSession(c *http.Cookie) bool {
	return strings.HasPrefix(strings.TrimPrefix(c.Name, hostPrefix), prefix+kindSession+"-")
}

// over returns the answer to a useless cookie, and makes the browser delete it.
func (s *Sessions) over(r *http.Request, k Keys, kind auth.SessionProblem, why string) error {
	p := auth.Unauthenticated("%s", why)
	p.Session = kind
	p.Header.Add("Set-Cookie", s.Box.drop(r, k, kindSession).String())
	return p
}

// End ends the request's session on all hosts that share the revocations, and makes the browser delete its
// cookie. A request without a session is no error.
func (s *Sessions) End(w http.ResponseWriter, r *http.Request) error {
	session, k, err := s.session(r)
	if k.Cluster != "" {
		http.SetCookie(w, s.Box.drop(r, k, kindSession))
	}
	if err != nil {
		return nil // there is none, or it has ended
	}
	return s.Revoked.Add(r.Context(), session.user(), session.ID, session.Begun)
}

// safe reports whether a request only reads.
func safe(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
}
