package catalog

import (
	"errors"
	"slices"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
)

// Grouping says which jobs share a worker process, unless they have one each.
type Grouping string

// The groupings.
const (
	// GroupAll: all jobs of the host share one.
	GroupAll Grouping = "all"
	// GroupFolder: those whose definitions lie in one folder.
	GroupFolder Grouping = "folder"
	// GroupSigner: those whose modules were signed by one key, and those whose modules
	// were signed by none that is known.
	GroupSigner Grouping = "signer"
)

// Groupings are all groupings.
func Groupings() []Grouping { return []Grouping{GroupAll, GroupFolder, GroupSigner} }

// Placement says where the guests of jobs run: by default in a worker process that jobs
// share, if there are [Options].Workers. Patterns are those of ceilings.
type Placement struct {
	// Alone are patterns of the jobs that run in processes of their own, whatever
	// their definitions say.
	Alone []string
	// InProcess are patterns of the jobs that may run in the host's own process, if
	// their definitions ask for it.
	InProcess []string
	// Groups is empty for GroupAll.
	Groups Grouping
	// workers says that there are worker processes; else jobs that would share one run in
	// the host's own process.
	workers bool
}

// where is the place of a job's guests.
type where int

const (
	inHost where = iota
	inGroup
	inOwn
)

// of is where the guests of a job run. trusted says that the key that has signed its
// module is trusted to run in the host's process. The error says that the definition asks
// for what the operator has not allowed.
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

// errNotTrusted refuses isolation: host.
var errNotTrusted = errors.New(`the host runs no guest of this job in its own process: allow it by --in-process, or by inProcess of the entry of trust whose key has signed the module`)

// group names the worker process of a job that shares it.
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

// trusted reports whether a job's module may run in the host's process because of who
// has signed it.
func (s state) trusted(job, digest string) bool {
	return s.grants.InProcess(job, s.signed[digest].signer)
}
