package host

import (
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
)

// SkipCause is the kind of reason for which a fire or an item was skipped. It is
// the same for all texts of its kind, so that alerts can go by it.
type SkipCause string

// The causes. After later and elsewhere the instant has a run, after disabled an
// operator did not want one; all others have cost a run.
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
	SkipUnfinished SkipCause = "unfinished" // its host left while it ran; it goes on if failover is on
)

// SkipCauses are all causes.
func SkipCauses() []SkipCause {
	return []SkipCause{SkipLater, SkipElsewhere, SkipDisabled, SkipBusy, SkipMissed, SkipRefused, SkipFailed, SkipHeld, SkipLost, SkipUnfinished}
}

// skipFire reports a fire of which no item begins here.
func (j *job) skipFire(id coordination.Fire, cause SkipCause, reason string) {
	j.skipFires(id, time.Time{}, cause, reason)
}

// skipFires reports a fire of which no item begins here, and if through is set
// all instants up to that.
func (j *job) skipFires(id coordination.Fire, through time.Time, cause SkipCause, reason string) {
	var owned []int
	for _, it := range j.sorted(func(it *item) bool { return it.owned }) {
		owned = append(owned, it.number)
	}
	j.emit(Event{Kind: EventFireSkipped, Instant: id.Time(), Trigger: id.Trigger, Source: abi.Source(id.Source), Items: owned,
		Total: j.total(), Next: nextAfter(&j.calendar, id), Through: through, Owed: cause == SkipLater, Cause: cause, Reason: reason})
}

// skipItem reports an item that does not run for a fire.
func (j *job) skipItem(it *item, id coordination.Fire, cause SkipCause, reason string) {
	j.skipItems(it, id, time.Time{}, cause, reason)
}

// skipItems reports an item that does not run for a fire, and if through is set
// for none of the instants up to that.
func (j *job) skipItems(it *item, id coordination.Fire, through time.Time, cause SkipCause, reason string) {
	e := j.skipped(it.number, id, cause, reason)
	e.Through = through
	j.emit(e)
}

// skipped is the event of an item that does not run, or whose run does not count.
func (j *job) skipped(item int, id coordination.Fire, cause SkipCause, reason string) Event {
	return Event{Kind: EventItemSkipped, Item: &item, Instant: id.Time(), Trigger: id.Trigger, Source: abi.Source(id.Source),
		RunID: coordination.RunID(j.name, id, item), Owed: cause == SkipLater, Cause: cause, Reason: reason}
}

// skipRun reports a run that ends without a completion of its own.
func (j *job) skipRun(item int, id coordination.Fire, outcome abi.Outcome, cause SkipCause, reason string) {
	e := j.skipped(item, id, cause, reason)
	e.Outcome = outcome
	j.emit(e)
}
