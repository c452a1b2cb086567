package engine

import (
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// A guest may ask to be run again, not before a given time (RETRY_AT). Its run ends and the fire is handed back: the
// item's record has the fire and the time, so that the item's later owner runs it. Until then the item owes the fire, as
// an item that waits for a permit does: a newer instant replaces it.

// laterReason returns why an item does not begin yet.
func laterReason(r tree.Record) reason.Reason {
	return reason.New(reason.NotBefore, time.UnixMilli(r.Again).UTC())
}

// postpones reports whether an item waits for the time that its guest asked for.
func (it *item) postpones(at int64) bool {
	return it.owned && it.run == nil && it.Next() != nil && it.state.Record.NotBefore(at) != 0
}

// postponedUntil is when the first of them may begin, by Go's own clock; zero if none waits. at is now by the registry's
// clock, in milliseconds.
func (s *items) postponedUntil(now moment, at int64) (first time.Time) {
	for it := range s.allActive() {
		if it.state.Record.Again != 0 && it.postpones(at) {
			first = soonest(first, now.Add(time.Duration(it.state.Record.Again-at)*time.Millisecond))
		}
	}
	return first
}

// waitsForLater says in words until when the job's items wait because their guests asked for it.
func (s *items) waitsForLater(at int64) (forWhat, then string) {
	first := int64(0)
	for it := range s.allActive() {
		if it.postpones(at) && (first == 0 || it.state.Record.Again < first) {
			first = it.state.Record.Again
		}
	}
	return "the time that guests asked for, the first " + time.UnixMilli(first).UTC().Format(time.RFC3339), ""
}
