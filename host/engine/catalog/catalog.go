// Package catalog keeps a host supplied with jobs from a plugins directory.
//
// The directory holds modules (NAME.wasm) and definitions (NAME.yaml) that
// name them. A [Catalog] watches the directory. After every change it reports the whole desired state: the jobs that
// should run, and the refused files with the reasons. If a new version of a file is bad, the old one stays in force; a
// deleted job leaves.
//
// # How a change is noticed
//
// Events of the file system only wake the catalog. It then looks at the directory: the names, sizes, times and identities
// of the files. It reads files that look different; a file with another digest has changed. So it does not matter whether
// a file is written, renamed into place, touched, or reached through Kubernetes' symlink swap. The next look makes up for
// a missed event, at the latest the look that a timer begins, which reads every file.
//
// # The parts
//
// Pure functions (state.go) decide what follows from a look, from the previous state, the files' contents and the
// compiled modules. [Catalog.Run] (run.go) is the loop that acts: it looks, reads, has tasks compile modules in their own
// goroutines, and applies the result. While a module is being compiled, all other changes take effect.
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
	// Grants are what the operator lets jobs do outside their sandbox; nil grants nothing. Grants from GrantsFile are
	// read again when the file changes.
	Grants     *grants.Set
	GrantsFile string
	// Ceilings are the limits of all jobs: a definition that exceeds them is refused.
	Ceilings ceiling.List
	// Workers run guests outside this process. Without them (nil) guests run in this process, and jobs that need a
	// process of their own are refused.
	Workers   *process.Workers
	Placement Placement
	// Granted are the import modules of capabilities that all jobs may use: those of CheckGrants, which checks each job
	// separately.
	Granted []string
	// Logger receives each change and each refusal, once. nil drops it.
	Logger *zap.Logger
	// Notices gets messages, at the level info, that modules are being compiled, and how long each took if that is long.
	// nil means Logger.
	Notices *zap.Logger
	// Cache is the directory where the runtime keeps compiled code, for the notices; empty without one.
	Cache string
	// Wait is called before each file is read again; it returns when no more urgent work is due. It may be nil.
	Wait func(context.Context)
	// Rescan is the time between two looks that read every file, regardless of events. 0 means 30 s.
	Rescan time.Duration
	// Debounce is how long the directory must be quiet before a look, and a file before it is read. 0 means 200 ms.
	Debounce time.Duration
}

// Catalog watches one plugins directory. All fields except progress and modules are immutable after New.
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

// New checks the options. It fails if the directory cannot be read, so that a host with a wrong path does not start
// without jobs.
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

// Run looks at the directory at once, and again on every change, until ctx is done. After the first look, and whenever
// the result changed, it calls apply with the whole desired state: jobs by name, refusals by file. apply is called from
// one goroutine, and Run notices nothing while apply runs, so that apply should pass the state on and return. The slices
// belong to apply.
//
// Run closes a module some time after the last applied state that uses it; an executor made from the module stays usable
// until its release. When Run returns, it has ended everything that it began and has closed all modules, so that it must
// run longer than the host.
//
// The error is nil if ctx ended.
func (c *Catalog) Run(ctx context.Context, apply func(jobs []engine.Job, refused []engine.Refusal)) error {
	return newRun(c, apply).run(ctx)
}
