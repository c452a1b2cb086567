package event

// SkipCause is the kind of reason for which a fire or an item was skipped. It is
// the same for all texts of its kind, so that alerts can go by it.
type SkipCause string

// The causes. After later and elsewhere the instant has a run, after disabled and excluded
// an operator did not want one; all others have cost a run.
const (
	SkipLater      SkipCause = "later"      // it runs later, or with a newer instant
	SkipElsewhere  SkipCause = "elsewhere"  // another host runs it, or has run it
	SkipDisabled   SkipCause = "disabled"   // an operator disabled, ended or removed it
	SkipBusy       SkipCause = "busy"       // the item still ran or had to wait, and misfire is off
	SkipMissed     SkipCause = "missed"     // no host had the item when it was due
	SkipRefused    SkipCause = "refused"    // no module, or settings or a clock that a host cannot go by
	SkipFailed     SkipCause = "failed"     // the error handler THROW stopped the catch-up
	SkipHeld       SkipCause = "held"       // hosts have died in runs of the item
	SkipLost       SkipCause = "lost"       // its host died while it ran, and failover is off
	SkipExcluded   SkipCause = "excluded"   // a calendar of the job excludes the day
	SkipUnfinished SkipCause = "unfinished" // its host left while it ran; it goes on if failover is on
)

// SkipCauses are all causes.
func SkipCauses() []SkipCause {
	return []SkipCause{SkipLater, SkipElsewhere, SkipDisabled, SkipBusy, SkipMissed, SkipRefused, SkipFailed, SkipHeld, SkipLost, SkipExcluded, SkipUnfinished}
}
