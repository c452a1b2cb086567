package host

import (
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/operate"
	"github.com/wasmjob/wasmjob/host/event"
)

// edits are the changes of the configuration that this host has to report, because no
// operation of a host recorded them.
type edits struct {
	known, before jobconfig.Configuration // as last seen, and before the change that is pending
	pending       int64                   // the number of a change that is still to be looked at; 0: none
}

// editByFile is what a definition file changed in the registry; nil for nothing.
func (j *job) editByFile(applied coordination.Applied) *event.Edit {
	if len(applied.Changed) == 0 {
		return nil
	}
	was, is := operate.Differences(applied.Before, applied.Configuration)
	return &event.Edit{Who: "file " + j.wanted.File + " on host " + j.host.cfg.ServerIP, From: event.FromFile, Before: was, After: is}
}

// noteEdit notes that the registry has another configuration, by the write of that number.
func (j *job) noteEdit(c jobconfig.Configuration, change int64) {
	if j.configured.config != 0 && j.configured.config != change {
		j.edits.pending, j.edits.before = change, j.edits.known
	}
	j.edits.known = c
}

// reportEdit reports a change of the configuration that another program made, such as
// ElasticJob's console: one host does it for all.
func (j *job) reportEdit(now moment) {
	if j.edits.pending == 0 {
		return
	}
	outside := false
	if j.member.View.IsJanitor() {
		var err error
		if outside, err = coordination.EditedOutside(j.work, j.member.Registry, j.member.Layout, j.edits.pending); err != nil {
			j.failed(now, "looking who changed the configuration", err)
			return
		}
	}
	j.edits.pending = 0
	if outside {
		was, is := operate.Differences(j.edits.before, j.edits.known)
		j.Emit(event.Event{Kind: event.JobChanged, Source: sourceOf(j.edits.known.Cron), Reason: "the configuration, in the registry",
			Edit: &event.Edit{Who: "the registry", From: event.FromRegistry, Before: was, After: is}})
	}
}
