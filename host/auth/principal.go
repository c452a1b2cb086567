package auth

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/host/event/operation"
)

// Method is how a principal was authenticated.
type Method string

// The methods.
const (
	ByHostToken   Method = "host token"
	ByToken       Method = "token"
	ByPassword    Method = "password"
	ByOIDC        Method = "oidc"
	ByCertificate Method = "certificate"
	ByLink        Method = "login link"
)

// Principal is the sender of a request. The zero value may do nothing.
type Principal struct {
	// Name is the name of the user or the token.
	Name   string `json:"name"`
	Method Method `json:"method"`
	// User is the user of the host's own token, as the client states it unproven; empty if unknown.
	User string `json:"user,omitempty"`
	// Bindings are what it may do.
	Bindings []Binding `json:"bindings"`
	// Session is the id of its session, empty if it has none.
	Session string `json:"-"`
	// From is the address that the request came from, without its port.
	From string `json:"from,omitempty"`
}

// UserHeader says who sends a request with the host's own token, which several people of a machine
// may read. With anything else it has no meaning: those have names of their own.
const UserHeader = "Wasmjob-User"

// HostToken is who has the host's own token: it may do everything.
func HostToken(m Method) Principal {
	return Principal{Name: string(m), Method: m, Bindings: []Binding{{RoleAdmin, []string{AllJobs}}}}
}

// String names the principal such that two of different methods differ. A user is the
// same by password and by certificate.
func (p Principal) String() string {
	switch p.Method {
	case ByPassword, ByCertificate:
		return p.Name
	case ByHostToken, ByLink:
		if p.User != "" {
			return string(p.Method) + " (" + p.User + ")"
		}
		return string(p.Method)
	case "":
		return "unknown"
	}
	return string(p.Method) + " " + p.Name
}

// May reports whether the principal has the action for a job. Of what is no job's, job
// is empty: that is for who has the action for all jobs.
func (p Principal) May(a operation.Action, job string) bool {
	return slices.ContainsFunc(p.Bindings, func(b Binding) bool {
		return b.Role.May(a) && slices.ContainsFunc(b.Jobs, func(pattern string) bool { return covers(pattern, job) })
	})
}

// Any reports whether the principal has the action for some jobs.
func (p Principal) Any(a operation.Action) bool {
	return slices.ContainsFunc(p.Bindings, func(b Binding) bool { return b.Role.May(a) })
}

// All reports whether the principal has the action for all jobs.
func (p Principal) All(a operation.Action) bool { return p.May(a, "") }

func covers(pattern, job string) bool {
	if job == "" || pattern == AllJobs {
		return pattern == AllJobs
	}
	ok, err := path.Match(pattern, job)
	return ok && err == nil
}

// Patterns are those of the jobs for which the principal has the action, sorted, each
// once. The list is never empty, so that a filter by it cannot mean all jobs by mistake:
// who has the action for no job gets NoJob.
func (p Principal) Patterns(a operation.Action) []string {
	if p.All(a) {
		return []string{AllJobs}
	}
	var list []string
	for _, b := range p.Bindings {
		if b.Role.May(a) {
			list = append(list, b.Jobs...)
		}
	}
	if len(list) == 0 {
		return []string{NoJob}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// roles says in words what the principal may do.
func (p Principal) roles() string {
	if len(p.Bindings) == 0 {
		return "no role"
	}
	texts := make([]string, len(p.Bindings))
	for i, b := range p.Bindings {
		texts[i] = string(b.Role) + " of " + strings.Join(b.Jobs, ", ")
	}
	return strings.Join(texts, "; ")
}

// key is the principal's in a context.
type key struct{}

// With returns a context with the principal.
func With(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, key{}, p)
}

// From is the principal of a request's context; the zero value, which may do nothing, if
// no guard let the request through.
func From(ctx context.Context) Principal {
	p, _ := ctx.Value(key{}).(Principal)
	return p
}
