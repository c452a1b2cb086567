package host

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination"
)

// mending is the state of the repair of external edits.
type mending struct {
	at        time.Time // when to look
	last      time.Time // when it looked last
	strangers []string  // instances that were not ours when it last looked
	refused   bool      // a write was, since then
	flagged   time.Time // since when a division has been asked for
	wanted    bool      // it has a reason to look
}

// mend repairs what an external edit has deleted or overwritten of what this
// host and the others rely on. A host looks when it was refused something, when
// it is missing among the members, when a division does not come about, and when
// a stranger has come; the janitor does now and then.
func (j *job) mend(now moment) {
	if !j.joined || !j.seen || j.exit.left != "" || !j.member.View.Exists || !j.member.View.Joined() || now.Before(j.refusal.retryAt) || !j.term.registry.Trusted() {
		return
	}
	strangers := j.member.View.Java()
	came := len(strangers) > 0 && !slices.Equal(strangers, j.mending.strangers)
	j.mending.strangers = strangers
	if !j.member.View.Necessary {
		j.mending.flagged = time.Time{}
	} else if j.mending.flagged.IsZero() {
		j.mending.flagged = now.Time
	}
	stuck := j.member.View.Necessary && now.Sub(j.mending.flagged) > 2*mendPause // a division cannot be made
	j.mending.wanted = j.mending.wanted || j.mending.refused || came || stuck || j.member.View.MissingFromMembers()
	if minutes := j.member.View.Config.ReconcileIntervalMinutes; minutes > 0 && j.mending.at.IsZero() {
		j.mending.at = now.Add(time.Duration(minutes) * time.Minute)
	}
	if j.mending.wanted {
		j.mending.at = soonest(later(j.mending.last.Add(mendPause), now.Time), j.mending.at)
	}
	if j.mending.at.IsZero() || now.Before(j.mending.at) {
		return
	}
	items := j.mending.refused
	j.mending.at = time.Time{}
	if !j.mending.wanted && !j.member.View.IsJanitor() {
		return
	}
	j.mending.last, j.mending.refused, j.mending.wanted = now.Time, false, false
	mended, err := j.member.Repair(j.work, coordination.Repairing{Detail: j.detail(), Items: items})
	if err != nil {
		j.failed(now, "mending what was taken away by a hand", err)
		return
	}
	if len(mended) > 0 {
		j.log.Warn("the registry was edited by a hand or another program; mended it", zap.Strings("nodes", mended))
	}
}
