package auth

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// Problem is an answer that says no, as RFC 9457 has it, and an error. A handler of huma
// may return it as its error.
type Problem struct {
	// Type is one of the URIs below, which programs go by.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail is for people.
	Detail string `json:"detail"`
	// Session says why a session is not taken, if it is that; else it is empty.
	Session SessionProblem `json:"-"`
	// Header is added to the answer.
	Header http.Header `json:"-"`
}

// SessionProblem is why a browser's session is not taken.
type SessionProblem string

// Why a session is not taken.
const (
	SessionExpired   SessionProblem = "expired"
	SessionSignedOut SessionProblem = "signed-out"
	// SessionRevoked: its user was removed or has another password, or its groups have no role.
	SessionRevoked SessionProblem = "revoked"
	// SessionElsewhere: it is one of another cluster.
	SessionElsewhere SessionProblem = "elsewhere"
	// SessionUnreadable: it was not made with this cluster's keys, or was changed.
	SessionUnreadable SessionProblem = "unreadable"
)

// SessionProblems are all.
func SessionProblems() []SessionProblem {
	return []SessionProblem{SessionExpired, SessionSignedOut, SessionRevoked, SessionElsewhere, SessionUnreadable}
}

// Types of problems.
const (
	// NotSignedIn: the request has nothing that says who sent it, or nothing valid.
	NotSignedIn = "urn:wasmjob:problem:not-signed-in"
	// RoleMissing: it is known who sent it, who may not do that.
	RoleMissing = "urn:wasmjob:problem:role-missing"
	// Forged: a browser sent it for a page of another site.
	Forged = "urn:wasmjob:problem:cross-site"
	// WrongHost: the Host header has a name that is not this server's.
	WrongHost = "urn:wasmjob:problem:wrong-host"
	// TooMany: a limit by time was reached; Retry-After says when to come back.
	TooMany = "urn:wasmjob:problem:too-many"
	// TooLarge: the body has more bytes than are read.
	TooLarge = "urn:wasmjob:problem:too-large"
	// NotNow: something that is needed cannot be reached.
	NotNow = "urn:wasmjob:problem:unavailable"
)

// NewProblem makes a problem; its title goes by the status.
func NewProblem(kind string, status int, format string, args ...any) *Problem {
	return &Problem{Type: kind, Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

// Unauthenticated is a 401, for requests that have to be sent again with something else.
func Unauthenticated(format string, args ...any) *Problem {
	p := NewProblem(NotSignedIn, http.StatusUnauthorized, format, args...)
	p.Header = http.Header{"Www-Authenticate": {`Bearer realm="wasmjob"`}}
	return p
}

// Error is the detail.
func (p *Problem) Error() string { return p.Detail }

// GetStatus and GetHeaders are what huma asks errors for.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders is the other.
func (p *Problem) GetHeaders() http.Header { return p.Header }

// ContentType turns huma's type of answers into that of problems.
func (p *Problem) ContentType(string) string { return problemJSON }

const problemJSON = "application/problem+json"

// ServeHTTP answers with the problem.
func (p *Problem) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	body, err := json.Marshal(p)
	if err != nil { // strings and a number
		http.Error(w, p.Title, p.Status)
		return
	}
	h := w.Header()
	for name, values := range p.Header {
		for _, v := range values {
			h.Add(name, v)
		}
	}
	h.Set("Content-Type", problemJSON)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // the client is gone if that fails
}

// Answer answers with an error: a problem as it is, any other without its text.
func Answer(w http.ResponseWriter, r *http.Request, err error) {
	var p *Problem
	if !errors.As(err, &p) {
		p = NewProblem("about:blank", http.StatusInternalServerError, "this failed; the host's log says why")
	}
	p.ServeHTTP(w, r)
}
