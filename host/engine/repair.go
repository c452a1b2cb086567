package engine

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// repairPause is the least time between two looks for external edits to repair. It doubles with each look that finds nothing, unless an
// edit is known: most hosts whose division does not come about wait for a slow registry, and would keep it slow by asking more.
const (
	repairPause        = 5 * time.Second
	longestRepairPause = 5 * time.Minute
)

// repairs looks for external edits, and repairs them.
type repairs struct {
	job       *access
	detail    func() tree.HostDetail // what the others are to know of this host
	at        time.Time              // when to look
	last      time.Time              // when it looked last
	pause     time.Duration          // how long after that it may look again
	strangers []string               // instances that were not ours when it last looked
	flagged   time.Time              // since when a division has been asked for
	came      bool                   // there are others since
}

// due reports whether to look now for what an external edit has deleted or overwritten of what this
// host and the others rely on. A host looks when it was refused something, when
// it is missing among the members, when a division does not come about, and when
// a stranger has come; the janitor does now and then.
func (r *repairs) due(now moment) bool {
	j := r.job
	if j.rests(now) || !j.term.registry.Trusted() {
		return false
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
	r.came = r.came || came
	edited := r.came || j.member.View.MissingFromMembers() // there is something to repair, or it is likely
	wanted := edited || stuck || j.refusal.conflict
	if !wanted && now.Sub(r.last) > 2*r.pause {
		r.pause = repairPause
	}
	if minutes := j.member.View.Config.ReconcileIntervalMinutes; minutes > 0 && r.at.IsZero() {
		r.at = now.Add(time.Duration(minutes) * time.Minute)
	}
	if wanted {
		pause := r.pause
		if edited {
			pause = repairPause
		}
		r.at = soonest(later(r.last.Add(pause), now.Time), r.at)
	}
	if r.at.IsZero() || now.Before(r.at) {
		return false
	}
	if !wanted && !j.member.View.IsJanitor() {
		r.at = time.Time{}
		return false
	}
	return true
}

// repair looks, and repairs what it finds.
func (r *repairs) repair(now moment) {
	j := r.job
	items := j.refusal.conflict
	r.at, r.last, r.pause = time.Time{}, now.Time, min(2*max(r.pause, repairPause), longestRepairPause)
	j.refusal.conflict, r.came = false, false
	repaired, err := j.member.Repair(j.work, coordination.Repairing{Detail: r.detail(), Items: items})
	if err != nil {
		j.setback(now, "repairing external edits", err)
		return
	}
	if len(repaired) > 0 {
		r.pause = repairPause
		j.log.Warn("the registry was edited outside wasmjob; repaired it", zap.Strings("nodes", repaired))
	}
}
