package engine

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// repairPause is the least time between two checks for external edits.
const repairPause = 5 * time.Second

// repairs looks for external edits, and repairs them.
type repairs struct {
	job       *access
	detail    func() tree.HostDetail // what the others are to know of this host
	at        time.Time              // when to look
	last      time.Time              // when it looked last
	strangers []string               // instances that were not ours when it last looked
	flagged   time.Time              // since when a division has been asked for
	wanted    bool                   // it has a reason to look
}

// repair restores nodes of this host and of the job that an external edit has deleted or overwritten. A host checks for
// that when it was refused something, when it is missing among the members, when a resharding is not done, and when an
// unknown instance has come; the janitor also checks from time to time.
func (r *repairs) repair(now moment) {
	j := r.job
	if j.rests(now) || !j.term.registry.Trusted() {
		return
	}
	strangers := j.member.View.Java()
	came := len(strangers) > 0 && !slices.Equal(strangers, r.strangers)
	r.strangers = strangers
	if !j.member.View.Necessary {
		r.flagged = time.Time{}
	} else if r.flagged.IsZero() {
		r.flagged = now.Time
	}
	stuck := j.member.View.Necessary && j.member.View.Enabled && now.Sub(r.flagged) > 2*repairPause // a division cannot be made
	r.wanted = r.wanted || j.refusal.conflict || came || stuck || j.member.View.MissingFromMembers()
	if minutes := j.member.View.Config.ReconcileIntervalMinutes; minutes > 0 && r.at.IsZero() {
		r.at = now.Add(time.Duration(minutes) * time.Minute)
	}
	if r.wanted {
		r.at = soonest(later(r.last.Add(repairPause), now.Time), r.at)
	}
	if r.at.IsZero() || now.Before(r.at) {
		return
	}
	items := j.refusal.conflict
	r.at = time.Time{}
	if !r.wanted && !j.member.View.IsJanitor() {
		return
	}
	r.last, j.refusal.conflict, r.wanted = now.Time, false, false
	repaired, err := j.member.Repair(j.work, coordination.Repairing{Detail: r.detail(), Items: items})
	if err != nil {
		j.setback(now, "repairing external edits", err)
		return
	}
	if len(repaired) > 0 {
		j.log.Warn("nodes of the job were edited outside wasmjob; this host has repaired them", zap.Strings("nodes", repaired))
	}
}
