package catalog

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
)

// slow is how long a module may be compiled before a notice says so.
const slow = 300 * time.Millisecond

// Compiling is a module that is being compiled, or waits for its turn.
type Compiling struct {
	// Module is the file's name.
	Module string
	// Jobs are those that run nothing before the module is ready, by name. A
	// job that runs an earlier version meanwhile is not among them.
	Jobs []string
	// Since is when it was begun; zero if it was not yet.
	Since time.Time
}

// Progress is how far a catalog is.
type Progress struct {
	// Settled says that the first look at the directory has been acted on in
	// full: every file was read, every module compiled or refused, and the
	// outcome applied. After five minutes modules that are new are not waited for. It stays true.
	Settled bool
	// Compiling are the modules that are not compiled yet, by file.
	Compiling []Compiling
	// UnusedMounts are the jobs that directories are mounted for and that are not
	// there, by name; none before Settled.
	UnusedMounts []string
}

// Progress reports how far the catalog is. It is safe for concurrent use; the
// slices are not changed later.
func (c *Catalog) Progress() Progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.progress
}

// publish updates what Progress reports.
func (r *run) publish() {
	p := Progress{Settled: r.settled()}
	for _, w := range r.plan.compile {
		x := Compiling{Module: w.file, Jobs: slices.Clone(r.plan.waiting[w.digest])}
		x.Since = r.tasks[w.digest].began
		p.Compiling = append(p.Compiling, x)
	}
	if p.Settled {
		p.UnusedMounts = r.unusedMounts()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.Settled && !r.progress.Settled {
		for _, job := range p.UnusedMounts {
			r.log.Warn("a directory is mounted for a job that is not there", zap.String("job", job))
		}
	}
	if !p.Settled {
		p.UnusedMounts = r.progress.UnusedMounts
	}
	p.Settled = p.Settled || r.progress.Settled
	r.progress = p
}

// unusedMounts are the jobs with mounts that are neither defined nor refused.
func (r *run) unusedMounts() []string {
	known := make(map[string]bool)
	for _, b := range r.plan.jobs {
		known[b.job.Definition.JobName] = true
	}
	for _, f := range r.plan.refused {
		base := filepath.Base(f.File)
		known[strings.TrimSuffix(base, filepath.Ext(base))] = true
	}
	var unused []string
	for _, job := range slices.Sorted(maps.Keys(r.mounts)) {
		if !known[job] {
			unused = append(unused, job)
		}
	}
	return unused
}

// settleTime is how long what is new, and has not failed yet, keeps a host from having settled.
const settleTime = 5 * time.Minute

func (r *run) settled() bool {
	if !r.applied || r.plan.more {
		return false
	}
	late := time.Since(r.began) > settleTime
	for _, w := range r.plan.compile {
		if w.urgency == wasInForce || (w.urgency == isNew && !late) {
			return false
		}
	}
	for _, f := range r.state.files {
		if f.unread() {
			return false
		}
	}
	return true
}

// announce says once that modules are being compiled, as that may take a while.
func (r *run) announce() {
	now := r.compilingNow()
	if r.slowAt = (time.Time{}); len(now) == 0 {
		return // it was given up
	}
	r.announced, r.shown = true, make(map[string]bool)
	for _, w := range now {
		r.shown[w.digest] = true
	}
	what := strconv.Itoa(len(now)) + " modules"
	if len(now) == 1 {
		what = now[0].file
	}
	if r.cache == "" {
		r.notices.Info("compiling " + what + ": there is no cache for compiled code (--cache DIR), so each start has to")
		return
	}
	r.notices.Info("compiling " + what + ", once: compiled code is kept in " + r.cache)
}

// compilingNow are the modules of the tasks that compile. A task whose compiled code is
// kept only reads it.
func (r *run) compilingNow() (list []want) {
	for _, w := range r.plan.compile {
		if r.tasks[w.digest].compiling {
			list = append(list, w)
		}
	}
	return list
}

// compiledIn says how long a module was compiled, if that was long or if its beginning
// was announced.
func (r *run) compiledIn(res result) {
	if res.isCompiled && (res.took >= slow || r.shown[res.digest]) && res.outcome.compiled != nil {
		r.notices.Info(fmt.Sprintf("compiled %s in %.1fs", res.file, res.took.Seconds()))
	}
}
