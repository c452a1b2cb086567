// Package changes notices changes of a job that no operation of a host made and recorded: those of
// its configuration by definition files, and what other programs changed in the registry.
package changes

import (
	"context"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
)

// ByFile is what a definition file changed in the registry; nil for nothing. server is the
// address of the host that has the file.
func ByFile(applied coordination.Applied, file, server string) *event.Edit {
	if len(applied.Changed) == 0 && !applied.Created {
		return nil
	}
	e := event.Edit{Who: "file " + file + " on host " + server, From: event.FromFile, Created: applied.Created}
	e.Before, e.After = operate.Differences(applied.Before, applied.Configuration)
	if e.Created {
		e.Before = nil
	}
	return &e
}

// theRegistry is who made a change, in records of what other programs changed in the registry.
const theRegistry = "the registry"

// Seen is what a host has seen of a job's configuration. The zero value has seen none. It is
// not safe for concurrent use.
type Seen struct {
	known  jobconfig.Configuration
	change int64 // the number of the write that made it; 0: nothing is known
	// pending: it is still to be looked who made the change from before to known.
	pending bool
	before  jobconfig.Configuration
}

// Note notes the configuration that is in force, and the number of the write that made it.
func (s *Seen) Note(c jobconfig.Configuration, change int64) {
	if s.change == change {
		return
	}
	s.pending, s.before = s.change != 0, s.known
	s.known, s.change = c, change
}

// Look returns the change that was noted last, if another program made it, such as
// ElasticJob's console, and if this host looks after the job: one host reports it for all. After
// an error Look is to be called again.
func (s *Seen) Look(ctx context.Context, r registry.Center, l tree.Layout, janitor bool) (*event.Edit, error) {
	outside := false
	if s.pending && janitor {
		var err error
		if outside, err = operate.EditedOutside(ctx, r, l, s.change); err != nil {
			return nil, err
		}
	}
	s.pending = false
	if !outside {
		return nil, nil
	}
	was, is := operate.Differences(s.before, s.known)
	return &event.Edit{Who: theRegistry, From: event.FromRegistry, Before: was, After: is}, nil
}
