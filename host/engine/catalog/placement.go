package catalog

import (
	"errors"
	"slices"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
)

// Grouping says which jobs share a worker process, if they do not have their own.
type Grouping string

// The groupings.
const (
	// GroupAll: all jobs of the host share one.
	GroupAll Grouping = "all"
	// GroupFolder: jobs whose definitions are in the same folder share one.
	GroupFolder Grouping = "folder"
	// GroupSigner: jobs whose modules were signed by the same key share one, and so do jobs whose modules no known key
	// signed.
	GroupSigner Grouping = "signer"
)

// Groupings returns all groupings.
func Groupings() []Grouping { return []Grouping{GroupAll, GroupFolder, GroupSigner} }

// Placement says where the guests of jobs run: by default in a worker process that jobs share, if there are
// [Options].Workers. Patterns have the form of those of ceilings.
type Placement struct {
	// Alone are patterns of the jobs that run in their own processes, regardless of their definitions.
	Alone []string
	// InProcess are patterns of the jobs that may run in the host's own process if their definitions ask for it.
	InProcess []string
	// Groups is the grouping; empty means GroupAll.
	Groups Grouping
	// workers says that there are worker processes; without them jobs that would share one run in the host's own process.
	workers bool
}

// where is the place of a job's guests.
type where int

const (
	inHost where = iota
	inGroup
	inOwn
)

// of returns where the guests of a job run. trusted says that the key that signed its module is trusted for the host's
// process. The error says that the definition asks for something that the operator has not allowed.
func (p Placement) of(c jobconfig.Configuration, trusted bool) (where, error) {
	g, err := c.Guest()
	if err != nil {
		return inGroup, nil // it is refused for that
	}
	matches := func(patterns []string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return ceiling.Matches(p, c.JobName) })
	}
	switch {
	case g.Isolation == jobconfig.IsolationProcess, matches(p.Alone):
		return inOwn, nil
	case !p.workers:
		return inHost, nil
	case g.Isolation != jobconfig.IsolationHost:
		return inGroup, nil
	case trusted, matches(p.InProcess):
		return inHost, nil
	}
	return inGroup, errNotTrusted
}

// errNotTrusted is the refusal of isolation: host.
var errNotTrusted = errors.New(`the host may not run guests of this job in its own process: allow it with --in-process, or with inProcess in the trust entry of the key that signed the module`)

// group returns the name of the worker process that a job shares.
func (p Placement) group(folder, signer string) string {
	switch {
	case p.Groups == GroupFolder && folder != "" && folder != ".":
		return "guests of " + folder
	case p.Groups == GroupSigner && signer != "":
		return "guests signed by " + signer
	}
	return "guests"
}

// inside reports whether the guests of a job run in this process.
func (s state) inside(c jobconfig.Configuration, digest string) bool {
	at, err := s.placement.of(c, s.trusted(c.JobName, digest))
	return err == nil && at == inHost
}

// alone reports whether they run in a process of the job's own.
func (s state) alone(c jobconfig.Configuration) bool {
	at, err := s.placement.of(c, false)
	return err == nil && at == inOwn
}

// trusted reports whether a job's module may run in the host's process because of its signature.
func (s state) trusted(job, digest string) bool {
	return s.grants.InProcess(job, s.signed[digest].signer)
}
