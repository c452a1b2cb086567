package report

import (
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event/operation"
)

// For is the part of the report that the principal may see.
func (r Report) For(p auth.Principal) Report {
	r.About.History = StoreFor(p, r.About.History)
	if r.History != nil {
		h := *r.History
		h.File, h.Problem = StoreFor(p, h.File), StoreProblemFor(p, h.Problem)
		r.History = &h
	}
	if p.All(operation.View) {
		return r
	}
	r.Status.Jobs = slices.DeleteFunc(slices.Clone(r.Status.Jobs), func(j *engine.JobStatus) bool { return !p.May(operation.View, j.Name) })
	r.About.Plugins, r.About.Grants, r.About.Alerts, r.About.Users, r.About.GuestLog = "", "", "", "", ""
	// These name files, modules and jobs that may be others'.
	r.Status.Refused, r.Status.Waits, r.Compiling, r.Warnings, r.Reason = []engine.Refusal{}, nil, nil, nil, ""
	return r
}

// StoreFor is what the principal may know of where a history is: its file or its address, or,
// for who does not operate all jobs, its kind alone.
func StoreFor(p auth.Principal, where string) string {
	if where == "" || where == "memory" || p.All(operation.Operate) {
		return where
	}
	for _, kind := range []string{"postgres", "mysql", "sqlite"} {
		if strings.HasPrefix(where, kind+":") {
			return kind
		}
	}
	return "file"
}

// StoreProblemFor is what the principal may know of why a history cannot be written: errors of
// databases name the address and the user.
func StoreProblemFor(p auth.Principal, problem string) string {
	if problem == "" || p.All(operation.Operate) {
		return problem
	}
	return "the host's log says why"
}
