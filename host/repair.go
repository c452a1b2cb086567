package host

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination"
)

// repairs is the state of the repair of external edits.
type repairs struct {
	at        time.Time // when to look
	last      time.Time // when it looked last
	strangers []string  // instances that were not ours when it last looked
	refused   bool      // a write was, since then
	flagged   time.Time // since when a division has been asked for
	wanted    bool      // it has a reason to look
}

// repair repairs what an external edit has deleted or overwritten of what this
// host and the others rely on. A host looks when it was refused something, when
// it is missing among the members, when a division does not come about, and when
// a stranger has come; the janitor does now and then.
func (j *job) repair(now moment) {
	if !j.joined || !j.seen || j.exit.left != "" || !j.member.View.Exists || !j.member.View.Joined() || now.Before(j.refusal.retryAt) || !j.term.registry.Trusted() {
		return
	}
	strangers := j.member.View.Java()
	came := len(strangers) > 0 && !slices.Equal(strangers, j.repairs.strangers)
	j.repairs.strangers = strangers
	if !j.member.View.Necessary {
		j.repairs.flagged = time.Time{}
	} else if j.repairs.flagged.IsZero() {
		j.repairs.flagged = now.Time
	}
	stuck := j.member.View.Necessary && now.Sub(j.repairs.flagged) > 2*repairPause // a division cannot be made
	j.repairs.wanted = j.repairs.wanted || j.repairs.refused || came || stuck || j.member.View.MissingFromMembers()
	if minutes := j.member.View.Config.ReconcileIntervalMinutes; minutes > 0 && j.repairs.at.IsZero() {
		j.repairs.at = now.Add(time.Duration(minutes) * time.Minute)
	}
	if j.repairs.wanted {
		j.repairs.at = soonest(later(j.repairs.last.Add(repairPause), now.Time), j.repairs.at)
	}
	if j.repairs.at.IsZero() || now.Before(j.repairs.at) {
		return
	}
	items := j.repairs.refused
	j.repairs.at = time.Time{}
	if !j.repairs.wanted && !j.member.View.IsJanitor() {
		return
	}
	j.repairs.last, j.repairs.refused, j.repairs.wanted = now.Time, false, false
	repaired, err := j.member.Repair(j.work, coordination.Repairing{Detail: j.detail(), Items: items})
	if err != nil {
		j.failed(now, "repairing external edits", err)
		return
	}
	if len(repaired) > 0 {
		j.log.Warn("the registry was edited outside wasmjob; repaired it", zap.Strings("nodes", repaired))
	}
}
