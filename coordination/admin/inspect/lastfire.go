package inspect

import (
	"maps"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
)

// LastFire is the newest fire of a job, as far as the records of its items know it.
type LastFire struct {
	Items tree.Items
	// Instant is the scheduled instant. For a trigger, or if later instants were waived, it is when the first
	// item began.
	Instant time.Time
	// Trigger is the round if it was a trigger, and no failover of one.
	Trigger int64
	Source  string
	// Begun is when the first item began, Ended when the last one ended; zero if
	// none has.
	Begun, Ended time.Time
	// Outcome is the worst of the items that have ended, empty if none has. Reason is from the record of an
	// item with that outcome.
	Outcome, Reason string
}

// NewestFire finds the newest fire in records, by item; ok is false if no item was
// ever begun.
func NewestFire(records map[int]tree.Record) (fire LastFire, ok bool) {
	var newest tree.Record
	for _, r := range records {
		if r.Begun > newest.Begun {
			newest = r
		}
	}
	if newest.Begun == 0 {
		return LastFire{}, false
	}
	begun := newest.Begun
	for _, n := range slices.Sorted(maps.Keys(records)) {
		r := records[n]
		if r.Begun == 0 || r.Instant != newest.Instant || r.Trigger != newest.Trigger || waived(r) != waived(newest) {
			continue
		}
		fire.Items = append(fire.Items, n)
		begun = min(begun, r.Begun)
		if r.Ended == 0 {
			continue
		}
		fire.Ended = newer(fire.Ended, r.Ended)
		if outcome := r.LastOutcome(); tree.Worse(outcome, fire.Outcome) {
			fire.Outcome, fire.Reason = outcome, r.Reason
		}
	}
	fire.Source, fire.Begun, fire.Instant = newest.Source, time.UnixMilli(begun), time.UnixMilli(newest.Instant)
	if newest.Source == "trigger" {
		fire.Trigger = newest.Trigger
	}
	if (newest.Trigger != 0 && newest.Source != "schedule") || waived(newest) {
		fire.Instant = fire.Begun
	}
	return fire, true
}

// waived reports whether the instant of a record is later than its newest run: it came due while the item was
// disabled.
func waived(r tree.Record) bool { return r.Instant > r.Begun }
