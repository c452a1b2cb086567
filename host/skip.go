package host

import (
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/host/event"
)

// skipFire reports a fire of which no item begins here.
func (j *job) skipFire(id coordination.Fire, cause event.SkipCause, reason string) {
	j.skipFires(id, time.Time{}, cause, reason)
}

// skipFires reports a fire of which no item begins here, and if through is set
// all instants up to that.
func (j *job) skipFires(id coordination.Fire, through time.Time, cause event.SkipCause, reason string) {
	var owned []int
	for _, it := range j.sorted(func(it *item) bool { return it.owned }) {
		owned = append(owned, it.number)
	}
	j.Emit(event.Event{Kind: event.FireSkipped, Instant: id.Time(), Trigger: id.Trigger, Source: abi.Source(id.Source), Items: owned,
		Total: j.total(), Next: nextAfter(&j.calendar, id), Through: through, Owed: cause == event.SkipLater, Cause: cause, Reason: reason})
}

// skipItem reports an item that does not run for a fire.
func (j *job) skipItem(it *item, id coordination.Fire, cause event.SkipCause, reason string) {
	j.skipItems(it, id, time.Time{}, cause, reason)
}

// skipItems reports an item that does not run for a fire, and if through is set
// for none of the instants up to that.
func (j *job) skipItems(it *item, id coordination.Fire, through time.Time, cause event.SkipCause, reason string) {
	e := j.skipped(it.number, id, cause, reason)
	e.Through = through
	j.Emit(e)
}

// skipped is the event of an item that does not run, or whose run does not count.
func (j *job) skipped(item int, id coordination.Fire, cause event.SkipCause, reason string) event.Event {
	return event.Event{Kind: event.ItemSkipped, Item: &item, Instant: id.Time(), Trigger: id.Trigger, Source: abi.Source(id.Source),
		RunID: coordination.RunID(j.name, id, item), Owed: cause == event.SkipLater, Cause: cause, Reason: reason}
}

// skipRun reports a run that ends without a completion of its own.
func (j *job) skipRun(item int, id coordination.Fire, outcome abi.Outcome, cause event.SkipCause, reason string) {
	e := j.skipped(item, id, cause, reason)
	e.Outcome = outcome
	j.Emit(e)
}
