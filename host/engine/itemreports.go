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

// itemReports reports what becomes of single items, of which there may be as many as the job has. It decides nothing, and
// changes no state of the loop.
type itemReports struct{ *shared }

// skip reports an item that does not run for a fire.
func (r itemReports) skip(it *item, id tree.Fire, cause event.SkipCause, why reason.Reason) {
	r.skipUpTo(it, id, time.Time{}, cause, why)
}

// skipUpTo reports an item that does not run for a fire, and if through is set
// for none of the instants up to that.
func (r itemReports) skipUpTo(it *item, id tree.Fire, through time.Time, cause event.SkipCause, why reason.Reason) {
	e := r.event(it.number, id, cause, why)
	e.Through = through
	r.emitItem(e)
}

// endRun reports a run of the host dead that ends without a completion of its own.
func (r itemReports) endRun(item int, id tree.Fire, dead string, outcome abi.Outcome, cause event.SkipCause, why reason.Reason) {
	e := r.event(item, id, cause, why)
	e.Other, e.Outcome = dead, outcome
	r.emitItem(e)
}

// superseded reports that a fire which an item owed is coalesced into a newer one. A
// misfire has been reported already.
func (r itemReports) superseded(it *item, was, id tree.Fire) {
	if was.ID() == id.ID() || was.Source == string(abi.SourceMisfire) {
		return
	}
	e := r.event(it.number, was, event.SkipSuperseded, reason.New(reason.NewerFire, id.ID()))
	e.Owed = id.Trigger == 0
	r.emitItem(e)
}

// allSuperseded reports fires which an item owed, and for which a newer one stands.
func (r itemReports) allSuperseded(it *item, gone []tree.Fire, id tree.Fire) {
	for _, was := range gone {
		r.superseded(it, was, id)
	}
}

// repaired reports that an item was begun though its record named a later instant:
// one that was ahead of all clocks.
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

// waits reports that an instant waits in the item's queue, if it does so as a misfire: a newer one may stand for it by another policy
// later, and says nothing of a misfire then.
func (r itemReports) waits(it *item, as tree.Fire, at time.Time) {
	if as.Source == string(abi.SourceMisfire) {
		as.Instant = at.UnixMilli()
		r.skip(it, as, event.SkipLater, reason.New(reason.CameUntaken))
	}
}

// emitItem reports an event of one item, of which there may be as many as the job has items.
func (r itemReports) emitItem(e event.Event) {
	r.Emit(e)
	r.worked()
}

// event is the event of an item that does not run, or whose run does not count.
func (r itemReports) event(item int, id tree.Fire, cause event.SkipCause, why reason.Reason) event.Event {
	return event.Event{Kind: event.ItemSkipped, Item: &item, Instant: id.Time(), Trigger: id.Trigger, Source: abi.Source(id.Source),
		Args: run.Args(id), RunID: tree.RunID(r.name, id, item), Owed: cause.Promises() && id.Trigger == 0, Cause: cause}.Why(why)
}
