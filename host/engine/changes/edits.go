// Package changes detects changes of a job that no operation of a host made and recorded: those of its configuration by
// definition files, and those by other programs in the registry.
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

// ByFile returns what a definition file changed in the registry; nil without a change. server is the address of the host
// that has the file.
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

// theRegistry is the author of a change in records of changes by other programs.
const theRegistry = "the registry"

// Seen is what a host has seen of a job's configuration. The zero value has seen none. It is not safe for concurrent use.
type Seen struct {
	known  jobconfig.Configuration
	change int64 // the number of the write that made it; 0: nothing is known
	// pending: the author of the change from before to known is still to be read.
	pending bool
	before  jobconfig.Configuration
}

// Note sets the configuration in force, and the number of the write that made it.
func (s *Seen) Note(c jobconfig.Configuration, change int64) {
	if s.change == change {
		return
	}
	s.pending, s.before = s.change != 0, s.known
	s.known, s.change = c, change
}

// Look returns the last noted change if another program, such as ElasticJob's console, made it, and if this host is the
// job's janitor, so that only one host reports it. After an error the caller must call Look again.
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
