package verify

import (
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
)

// past is an instant of a backfill: so many days before t0.
func past(days int) time.Time { return t0.AddDate(0, 0, -days) }

// gives gives out instant number n of three, as the round 100+n.
func (b *book) gives(at float64, n int, items string) *book {
	return b.of(at, event.BackfillGiven, event.Event{Instant: past(10 - n), Trigger: int64(100 + n), Source: abi.SourceBackfill, Total: 3,
		Args: &event.TriggerArgs{Items: items, At: true, Backfill: true}, Backfill: &event.BackfillStep{Since: t0, Done: n, Total: 3}})
}

func (b *book) endsBackfill(at float64, done int) *book {
	return b.of(at, event.BackfillEnded, event.Event{Reason: "all of its 3 instants were given out", Backfill: &event.BackfillStep{Since: t0, Done: done, Total: 3}})
}

// runsPast begins and ends items in the round 100+n.
func (b *book) runsPast(at float64, n int, items ...int) *book {
	of := func(kind event.Kind, item int, more event.Event) {
		more.Item, more.Instant, more.Trigger, more.Source, more.Fence = &item, past(10-n), int64(100+n), abi.SourceBackfill, int64(1000*n+item+1)
		b.of(at, kind, more)
	}
	b.of(at, event.FireStarted, event.Event{Instant: past(10 - n), Trigger: int64(100 + n), Source: abi.SourceBackfill, Items: items, Total: 3})
	for _, i := range items {
		of(event.ItemStarted, i, event.Event{Attempt: 1})
		of(event.ItemEnded, i, event.Event{Outcome: abi.OutcomeOK})
		of(event.ItemCompleted, i, event.Event{Outcome: abi.OutcomeOK})
	}
	return b
}

// TestBackfills: each instant of a backfill that was given out has one run, or one reason, for each of its items, by the time at which the
// next one is given out; none is left out, and none is given out twice.
func TestBackfills(t *testing.T) {
	t.Parallel()
	leaves := func(at float64, n, item int) func(b *book) {
		return func(b *book) {
			b.of(at, event.ItemSkipped, event.Event{Instant: past(10 - n), Trigger: int64(100 + n), Item: &item, Cause: event.SkipOverlap, Reason: "the item still runs"})
		}
	}
	begin := func() *book { return open("a", a1) }
	for name, tc := range map[string]struct {
		build func(a *book) *book
		want  string // of the violation; empty: none
		n     int
	}{
		"all is well": {func(a *book) *book {
			a.gives(1, 1, "").runsPast(2, 1, 0, 1, 2).gives(3, 2, "").gives(3, 2, "").runsPast(4, 2, 0, 2)
			leaves(4, 2, 1)(a)
			return a.gives(5, 3, "").runsPast(6, 3, 0, 1, 2).endsBackfill(7, 3)
		}, "", 0},
		"an item has neither run nor a reason": {func(a *book) *book {
			return a.gives(1, 1, "").runsPast(2, 1, 0, 1, 2).gives(3, 2, "").runsPast(4, 2, 0, 2).gives(5, 3, "").runsPast(6, 3, 0, 1, 2).endsBackfill(7, 3)
		}, "the item neither ran for trigger round 102 nor is there a reason why not", 1},
		"nothing of an instant": {func(a *book) *book {
			return a.gives(1, 1, "").runsPast(2, 1, 0, 1, 2).gives(3, 2, "").gives(5, 3, "").runsPast(6, 3, 0, 1, 2).endsBackfill(7, 3)
		}, "there is no record of the fire at trigger round 102", 1},
		"nothing of the last": {func(a *book) *book {
			return a.gives(1, 1, "").runsPast(2, 1, 0, 1, 2).gives(3, 2, "").runsPast(4, 2, 0, 1, 2).gives(5, 3, "").endsBackfill(7, 3)
		}, "there is no record of the fire at trigger round 103", 1},
		"some of the items": {func(a *book) *book {
			return a.gives(1, 1, "0,2").runsPast(2, 1, 0, 2).gives(3, 2, "0,2").runsPast(4, 2, 0).gives(5, 3, "0,2").runsPast(6, 3, 0, 2).endsBackfill(7, 3)
		}, "the item neither ran for trigger round 102", 1},
		"an instant is missing": {func(a *book) *book {
			return a.gives(1, 1, "").runsPast(2, 1, 0, 1, 2).gives(5, 3, "").runsPast(6, 3, 0, 1, 2).endsBackfill(7, 3)
		}, "there is no record of 1 of the instants of a backfill, from number 2 on", 1},
		"an instant is given out twice": {func(a *book) *book {
			a.gives(1, 1, "").runsPast(2, 1, 0, 1, 2)
			a.of(3, event.BackfillGiven, event.Event{Instant: past(9), Trigger: 199, Total: 3, Backfill: &event.BackfillStep{Since: t0, Done: 1, Total: 3}})
			return a.of(4, event.FireSkipped, event.Event{Instant: past(9), Trigger: 199, Cause: event.SkipRefused, Reason: "x"})
		}, "was given out twice, as trigger round 101 and as trigger round 199", 1},
		"the newest still waits for its turn": {func(a *book) *book {
			return a.gives(1, 1, "").runsPast(2, 1, 0, 1, 2).gives(3, 2, "").runsPast(4, 2, 0)
		}, "", 0},
		"cancelled": {func(a *book) *book {
			return a.gives(1, 1, "").runsPast(2, 1, 0, 1, 2).endsBackfill(3, 1)
		}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := tc.build(begin())
			for at := 100.0; at < 1500; at += 100 { // the job goes on
				a.later(at)
			}
			r := check(Options{Settle: 30 * time.Second}, a)
			if int(r.Violations) != tc.n {
				t.Fatalf("%d violations, want %d: %+v", r.Violations, tc.n, r.Findings)
			}
			if tc.n > 0 && (r.Findings[0].Invariant != Accounted || !strings.Contains(r.Findings[0].Text, tc.want)) {
				t.Errorf("%+v, want %s", r.Findings, tc.want)
			}
		})
	}
}
