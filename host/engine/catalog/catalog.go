// Package catalog keeps a host supplied with jobs from a plugins directory.
//
// The directory holds modules (NAME.wasm) and definitions (NAME.yaml) that
// name them. A [Catalog] watches it and reports, after every change, the whole
// desired state: the jobs that should run, and the files that were not taken,
// with the reasons. What a bad file replaced stays in force; what is deleted
// leaves.
//
// # How a change is noticed
//
// Events of the file system carry no news here; they only wake. What counts is
// a look at the directory: names, sizes, times and identities of the files.
// What looks different is read, and what has another digest has changed. So a
// file that is written, renamed into place, touched or reached through
// Kubernetes' symlink swap is all the same, and a missed event is made good by
// the next look: at the latest the one that a timer begins, which reads
// everything.
//
// # The parts
//
// What follows from a look is decided by pure functions (state.go), from the
// state before, the files' contents and the modules that are compiled. [Catalog.Run]
// (run.go) is the loop that acts: it looks, reads, has modules compiled one at a
// time by a goroutine of its own, and applies. While a module is being
// compiled, everything else takes effect.
package catalog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/process"
)

// Options are what New needs.
type Options struct {
	// Dir is the plugins directory. It must exist when New is called.
	Dir string
	// Runtime compiles the modules.
	Runtime *plugin.Runtime
	// Mounts are the directories that guests may read, by job name.
	Mounts map[string][]plugin.Mount
	// Grants are what the operator lets jobs do outside of their sandbox; nil is nothing.
	// If they were read from GrantsFile, they are read again when that changes.
	Grants     *grants.Set
	GrantsFile string
	// Ceilings are what no job may go beyond: a definition that asks for more
	// is refused.
	Ceilings ceiling.List
	// Workers run guests outside of this process. nil: they run in it, and those of jobs
	// that are to have a process of their own are refused.
	Workers   *process.Workers
	Placement Placement
	// Granted are the import modules of capabilities that all jobs may use: those of
	// CheckGrants, which judges each job by itself.
	Granted []string
	// Logger receives each change and each refusal, once. nil drops it.
	Logger *zap.Logger
	// Notices is informed, at the level info, that modules are being compiled and
	// how long each took, if that is long. nil is Logger.
	Notices *zap.Logger
	// Cache is where the runtime keeps compiled code, for the notices; empty
	// if it keeps none.
	Cache string
	// Wait is called before each file is read again: it lets what is more urgent go first. nil:
	// nothing is.
	Wait func(context.Context)
	// Rescan is the time between two looks that read every file, whatever
	// events came. 0 is 30 s.
	Rescan time.Duration
	// Debounce is how long the directory has to be quiet before it is looked
	// at, and a file before it is read. 0 is 200 ms.
	Debounce time.Duration
}

// Catalog watches one plugins directory. But for its progress and modules it is not
// changed after New.
type Catalog struct {
	dir              string // absolute
	load             loader
	parse            parser
	mounts           map[string][]plugin.Mount
	grants           *grants.Set
	grantsFile       string
	ceilings         ceiling.List
	placement        Placement
	log, notices     *zap.Logger
	cache            string
	rescan, debounce time.Duration
	wait             func(context.Context)
	now              func() time.Time // for the time that a look, or a task, takes

	mu       sync.Mutex
	progress Progress
	modules  map[string]engine.Module // of the jobs that were applied last
}

// New checks the options. It fails if the directory cannot be read: a host that
// was pointed at the wrong place should not start with nothing to do.
func New(o Options) (*Catalog, error) {
	if o.Runtime == nil {
		return nil, errors.New("catalog: no runtime")
	}
	o = placed(o)
	return newCatalog(o, loaderOf(o), parseWithin(o.Ceilings))
}

func newCatalog(o Options, load loader, parse parser) (*Catalog, error) {
	for name, d := range map[string]time.Duration{"rescan": o.Rescan, "debounce": o.Debounce} {
		if d < 0 {
			return nil, fmt.Errorf("catalog: %s is %v, expected 0 or more", name, d)
		}
	}
	c := &Catalog{load: load, parse: parse, mounts: o.Mounts, grants: o.Grants, grantsFile: o.GrantsFile, ceilings: o.Ceilings, placement: o.Placement, log: o.Logger, notices: o.Notices, cache: o.Cache, rescan: o.Rescan, debounce: o.Debounce, wait: o.Wait, now: time.Now}
	if c.rescan == 0 {
		c.rescan = 30 * time.Second
	}
	if c.debounce == 0 {
		c.debounce = 200 * time.Millisecond
	}
	if c.wait == nil {
		c.wait = func(context.Context) {}
	}
	if c.log == nil {
		c.log = zap.NewNop()
	}
	if c.notices == nil {
		c.notices = c.log
	}
	var err error
	if c.dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, fmt.Errorf("plugins directory %q: %w", o.Dir, err)
	}
	if _, err := os.ReadDir(c.dir); err != nil {
		return nil, fmt.Errorf("plugins directory %q: %w", o.Dir, plain(err))
	}
	return c, nil
}

// Run looks at the directory at once, and again on every change, until ctx is
// done. Each time something came of it, and the first time in any case, it
// calls apply with the whole desired state: jobs by name, refusals by file.
// apply is called from one goroutine; while it runs, nothing else is noticed,
// so it should hand the state on and return. The slices are the callee's.
//
// A module that no job of the last applied state uses is closed some time
// later; an executor made from it stays usable until it is released. Before Run
// returns it has ended everything that it began and closed all modules: call it
// for a time that encloses the host's own.
//
// The error is nil if ctx ended.
func (c *Catalog) Run(ctx context.Context, apply func(jobs []engine.Job, refused []engine.Refusal)) error {
	return newRun(c, apply).run(ctx)
}
