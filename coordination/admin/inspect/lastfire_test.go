package inspect_test

import (
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/admin/inspect"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// TestNewestFire: of all items' records those of the newest fire count, whichever
// instance ran them, and the worst outcome is the fire's.
func TestNewestFire(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_000_000)
	ended := func(instant int64, outcome string) tree.Record {
		return tree.Record{Instant: instant, Begun: instant + 5, Ended: instant + 100, Source: "schedule", Outcome: outcome}
	}
	now := at.UnixMilli()
	for name, tc := range map[string]struct {
		records map[int]tree.Record
		outcome string
		items   string
	}{
		"none began":          {map[int]tree.Record{0: {Instant: now}}, "", ""},
		"all well":            {map[int]tree.Record{0: ended(now, "OK"), 1: ended(now, "OK")}, "OK", "0-1"},
		"the worst counts":    {map[int]tree.Record{0: ended(now, "FAIL"), 1: ended(now, "TRAP"), 2: ended(now, "OK"), 3: ended(now, "CANCELLED")}, "TRAP", "0-3"},
		"a host died":         {map[int]tree.Record{0: ended(now, "LOST"), 1: ended(now, "TRAP")}, "LOST", "0-1"},
		"an older fire":       {map[int]tree.Record{0: ended(now-10_000, "TRAP"), 1: ended(now, "OK")}, "OK", "1"},
		"one still runs":      {map[int]tree.Record{0: {Instant: now, Begun: now}, 1: ended(now, "FAIL")}, "FAIL", "0-1"},
		"an outcome unknown":  {map[int]tree.Record{0: ended(now, "OK"), 1: ended(now, "NEW")}, "NEW", "0-1"},
		"a trigger after one": {map[int]tree.Record{0: {Instant: now, Trigger: 1, Begun: now + 300, Ended: now + 400, Outcome: "FAIL", Source: "trigger"}, 1: ended(now, "OK")}, "FAIL", "0"},
		"one was disabled":    {map[int]tree.Record{0: ended(now, "OK"), 1: {Instant: now, Begun: now - 9_000, Ended: now - 8_000, Outcome: "FAIL", Source: "schedule"}}, "OK", "0"},
		"all were disabled":   {map[int]tree.Record{0: waived(ended(now-9_000, "FAIL"), now), 1: waived(ended(now-9_000, "OK"), now)}, "FAIL", "0-1"},
	} {
		fire, ok := inspect.NewestFire(tc.records)
		if ok != (tc.outcome != "") || fire.Outcome != tc.outcome || fire.Items.String() != tc.items {
			t.Errorf("%s: %+v %t, want %q of items %q", name, fire, ok, tc.outcome, tc.items)
		}
	}
	fire, _ := inspect.NewestFire(map[int]tree.Record{0: ended(now, "OK"), 1: {Instant: now, Begun: now + 50, Ended: now + 300, Outcome: "OK", Source: "schedule"}})
	if !fire.Begun.Equal(at.Add(5*time.Millisecond)) || !fire.Ended.Equal(at.Add(300*time.Millisecond)) || fire.Source != "schedule" {
		t.Errorf("times of %+v", fire)
	}
}

// TestNewestFire_disabledSince: the newest fire is not dated by the instants that came
// while its items were disabled.
func TestNewestFire_disabledSince(t *testing.T) {
	t.Parallel()
	fire, ok := inspect.NewestFire(map[int]tree.Record{0: {Instant: 9_000, Begun: 1_005, Ended: 1_100, Outcome: "OK", Source: "schedule"}})
	if began := time.UnixMilli(1_005); !ok || !fire.Instant.Equal(began) || !fire.Begun.Equal(began) {
		t.Errorf("found %+v, expected the fire that began at %v", fire, began)
	}
}

func waived(r tree.Record, until int64) tree.Record {
	r.Instant = until
	return r
}
