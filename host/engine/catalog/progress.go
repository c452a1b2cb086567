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

// slow is how long compiling a module may take before a notice reports it.
const slow = 300 * time.Millisecond

// Compiling is a module that is being compiled, or waits for its turn.
type Compiling struct {
	// Module is the name of the file.
	Module string
	// Jobs are the jobs that cannot run before the module is ready, by name. A job that meanwhile runs an earlier version
	// is not among them.
	Jobs []string
	// Since is when compiling began; zero if it has not begun.
	Since time.Time
}

// Progress is how far a catalog has got.
type Progress struct {
	// Settled says that the first look at the directory is complete: every file was read, every module compiled or
	// refused, and the result applied. After five minutes it no longer waits for new modules. Once true it stays true.
	Settled bool
	// Compiling are the modules that are not compiled yet, by file.
	Compiling []Compiling
	// UnusedMounts are the jobs with mounts that do not exist, by name; empty before Settled.
	UnusedMounts []string
}

// Progress returns how far the catalog has got. It is safe for concurrent use; the slices are not changed later.
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
			r.log.Warn("a directory is mounted for a job that does not exist", zap.String("job", job))
		}
	}
	if !p.Settled {
		p.UnusedMounts = r.progress.UnusedMounts
	}
	p.Settled = p.Settled || r.progress.Settled
	r.progress = p
}

// unusedMounts returns the jobs with mounts that are neither defined nor refused.
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

// settleTime is how long new modules that have not failed yet keep a host from being settled.
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

// announce reports once that modules are being compiled, because that may take a while.
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
		r.notices.Info("compiling " + what + ": without a cache for compiled code (--cache DIR) each start compiles again")
		return
	}
	r.notices.Info("compiling " + what + "; the compiled code is cached in " + r.cache)
}

// compilingNow returns the modules of the tasks that compile. A task whose compiled code is cached only reads it.
func (r *run) compilingNow() (list []want) {
	for _, w := range r.plan.compile {
		if r.tasks[w.digest].compiling {
			list = append(list, w)
		}
	}
	return list
}

// compiledIn reports how long a module was compiled, if that was long or if its begin was announced.
func (r *run) compiledIn(res result) {
	if res.isCompiled && (res.took >= slow || r.shown[res.digest]) && res.outcome.compiled != nil {
		r.notices.Info(fmt.Sprintf("compiled %s in %.1fs", res.file, res.took.Seconds()))
	}
}
