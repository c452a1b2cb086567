package event

// SkipCause is the kind of reason for which a fire or an item was skipped. It is
// the same for all texts of its kind, so that alerts can go by it.
type SkipCause string

// The causes. After later, superseded and elsewhere the instant has a run, after disabled and excluded
// an operator did not want one; all others have cost a run.
const (
	SkipLater      SkipCause = "later"      // it runs later, or with a newer instant
	SkipElsewhere  SkipCause = "elsewhere"  // another host runs it, or has run it
	SkipDisabled   SkipCause = "disabled"   // an operator disabled, ended or removed it
	SkipSuperseded SkipCause = "superseded" // a newer instant or trigger stands for it
	SkipPaused     SkipCause = "paused"     // a policy of the job has paused it: maxRuns, pauseAfterFailures
	SkipOverlap    SkipCause = "overlap"    // the item still ran or had to wait, and overlap is skip
	SkipQueueFull  SkipCause = "queue_full" // the item still ran, and too many instants wait already
	SkipLate       SkipCause = "late"       // it would have started later than startWithin
	SkipTooOld     SkipCause = "too_old"    // no host had the item when it was due, too long ago for a catch-up
	SkipNoOwner    SkipCause = "no_owner"   // no host had the item when it was due, and there is no catch-up for it
	SkipMissed     SkipCause = "missed"     // a trigger came to a host whose session ended
	SkipNoModule   SkipCause = "no_module"  // the host has no module that it can run
	SkipClock      SkipCause = "clock"      // the host's clock is too far from the registry's
	SkipRefused    SkipCause = "refused"    // settings that a host cannot go by
	SkipFailed     SkipCause = "failed"     // the error handler THROW stopped the catch-up
	SkipHeld       SkipCause = "held"       // hosts have died in runs of the item
	SkipLost       SkipCause = "lost"       // its host died while it ran, and failover is off
	SkipExcluded   SkipCause = "excluded"   // a calendar of the job excludes the day
	SkipUnmet      SkipCause = "unmet"      // a job that it comes after did not end as that demands
	SkipUnfinished SkipCause = "unfinished" // its host left while it ran; it goes on if failover is on
)

// SkipCauses are all causes.
func SkipCauses() []SkipCause {
	return []SkipCause{SkipLater, SkipSuperseded, SkipElsewhere, SkipDisabled, SkipPaused, SkipOverlap, SkipQueueFull, SkipLate, SkipTooOld, SkipNoOwner, SkipMissed,
		SkipNoModule, SkipClock, SkipRefused, SkipFailed, SkipHeld, SkipLost, SkipExcluded, SkipUnmet, SkipUnfinished}
}

// Promises reports whether a skip of a scheduled instant for this cause says that a run follows, of the
// instant itself or of the one that stands for it.
func (c SkipCause) Promises() bool { return c == SkipLater || c == SkipSuperseded }
