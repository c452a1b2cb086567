package engine

import (
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine/run"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// itemReports emits the events of single items, of which a job may have very many. It decides nothing, and changes no
// state of the loop.
type itemReports struct{ *shared }

// skip reports an item that does not run for a fire.
func (r itemReports) skip(it *item, id tree.Fire, cause event.SkipCause, why reason.Reason) {
	r.skipUpTo(it, id, time.Time{}, cause, why)
}

// skipUpTo reports that an item does not run for a fire, and, if through is set, for no instant up to through.
func (r itemReports) skipUpTo(it *item, id tree.Fire, through time.Time, cause event.SkipCause, why reason.Reason) {
	e := r.event(it.number, id, cause, why)
	e.Through = through
	r.emitItem(e)
}

// endRun reports the end of a run of the dead host that had no completion.
func (r itemReports) endRun(item int, id tree.Fire, dead string, outcome abi.Outcome, cause event.SkipCause, why reason.Reason) {
	e := r.event(item, id, cause, why)
	e.Other, e.Outcome = dead, outcome
	r.emitItem(e)
}

// superseded reports that an owed fire is coalesced into a newer one. For a misfire it reports nothing, because the
// misfire was reported before.
func (r itemReports) superseded(it *item, was, id tree.Fire) {
	if was.ID() == id.ID() || was.Source == string(abi.SourceMisfire) {
		return
	}
	e := r.event(it.number, was, event.SkipSuperseded, reason.New(reason.NewerFire, id.ID()))
	e.Owed = id.Trigger == 0
	r.emitItem(e)
}

// allSuperseded reports owed fires that a newer one replaces.
func (r itemReports) allSuperseded(it *item, gone []tree.Fire, id tree.Fire) {
	for _, was := range gone {
		r.superseded(it, was, id)
	}
}

// repaired reports that an item has begun although its record named a later instant, which was ahead of all clocks.
func (r itemReports) repaired(n int, id tree.Fire, before, after tree.Record) {
	by := time.UnixMilli(before.Instant).Sub(time.UnixMilli(after.Instant))
	if by <= 0 {
		return
	}
	why := reason.New(reason.RecordAhead, time.UnixMilli(before.Instant).UTC())
	r.log.Error("item repaired", zap.Int("item", n), zap.Stringer("reason", why))
	r.Emit(event.Event{Kind: event.ItemRepaired, Item: &n, Instant: id.Time(), Source: abi.Source(id.Source), RunID: tree.RunID(r.name, id, n),
		Drift: by}.Why(why))
}

// waits reports that an instant waits in the item's queue as a misfire. If another policy later lets a newer instant
// replace it, that does not mention the misfire again.
func (r itemReports) waits(it *item, as tree.Fire, at time.Time) {
	if as.Source == string(abi.SourceMisfire) {
		as.Instant = at.UnixMilli()
		r.skip(it, as, event.SkipLater, reason.New(reason.CameUntaken))
	}
}

// emitItem emits an event of one item. A job may have very many of them.
func (r itemReports) emitItem(e event.Event) {
	r.Emit(e)
	r.worked()
}

// event returns the event of an item that does not run, or whose run does not count.
func (r itemReports) event(item int, id tree.Fire, cause event.SkipCause, why reason.Reason) event.Event {
	return event.Event{Kind: event.ItemSkipped, Item: &item, Instant: id.Time(), Trigger: id.Trigger, Source: abi.Source(id.Source),
		Args: run.Args(id), RunID: tree.RunID(r.name, id, item), Owed: cause.Promises() && id.Trigger == 0, Cause: cause}.Why(why)
}
