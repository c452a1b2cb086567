package due_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/schedule/due"
)

// bursts has instants of some milliseconds, but for a long time none; asked counts how often it is asked.
type bursts struct {
	period     time.Duration
	quiet, end time.Time // no instant between
	asked      *int
}

func (b bursts) Next(t time.Time) time.Time {
	*b.asked++
	n := t.Truncate(b.period).Add(b.period)
	if n.Before(b.quiet) || n.After(b.end) {
		return n
	}
	return b.end.Truncate(b.period).Add(b.period)
}

// TestManyInstantsOfManyItems has thousands of items ask what they owe of a month of a schedule that never rests, and of one
// that rested most of the time: each gets the newest instants, and the schedule is asked for some thousands, once and not by each.
func TestManyInstantsOfManyItems(t *testing.T) {
	t.Parallel()
	const month, items = 30 * 24 * time.Hour, 2000
	now := start.Add(month)
	for _, tt := range []struct {
		name       string
		quiet, end time.Time
		newest     time.Time
	}{
		{name: "never rests", newest: now},
		{name: "rested for two weeks", quiet: now.Add(-month / 2), end: now.Add(time.Millisecond), newest: now.Add(-month/2 - 100*time.Millisecond)},
		{name: "rested until a minute ago", quiet: start.Add(time.Hour), end: now.Add(-time.Minute), newest: now},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked := 0
			c := due.Calendar{Schedule: bursts{100 * time.Millisecond, tt.quiet, tt.end, &asked}, Window: 2 * month}
			c.Arm(now)
			asked = 0
			for item := range items {
				_, missed, skips, _ := c.Each(now, start, due.Limits{CatchUpMax: 1000})
				if len(missed) != 1000 || !missed[999].Equal(tt.newest) || len(skips) != 1 || !skips[0].First.Equal(start.Add(100*time.Millisecond)) {
					t.Fatalf("item %d owes %d instants, with %d skips, expected the newest 1000 up to %v", item, len(missed), len(skips), tt.newest)
				}
				at, skip := c.CatchUp(now, start, time.Time{}, true)
				if !at.Equal(tt.newest) || skip == nil || !strings.HasPrefix(skip.Reason.String(), "more than ") {
					t.Fatalf("item %d catches up on %v with %+v, expected %v and more than can be counted", item, at, skip, tt.newest)
				}
			}
			if most := 100*items + 10*items; asked > most {
				t.Errorf("the schedule was asked %d times, expected %d at most", asked, most)
			}
		})
	}
}

// TestFewInstants compares what an item catches up on with what the schedule says one by one, at another time and for another
// window each: nothing that was found before counts then.
func TestFewInstants(t *testing.T) {
	t.Parallel()
	asked := 0
	c := due.Calendar{Schedule: bursts{100 * time.Millisecond, start.Add(20 * time.Second), start.Add(50 * time.Second), &asked}}
	for second := 1; second < 120; second += 3 {
		now := start.Add(time.Duration(second)*time.Second + time.Millisecond)
		c.Arm(now)
		for _, c.Window = range []time.Duration{time.Second, 33 * time.Second, time.Hour} {
			for _, most := range []int{1, 7, 1000} {
				_, missed, _, _ := c.Each(now, start, due.Limits{CatchUpMax: most})
				var want []time.Time
				for at := c.Schedule.Next(start); !at.After(now); at = c.Schedule.Next(at) {
					if at.After(now.Add(-c.Window - time.Millisecond)) {
						want = append(want, at)
					}
				}
				want = want[max(0, len(want)-most):]
				if !slices.EqualFunc(missed, want, time.Time.Equal) {
					t.Fatalf("after %d s, with a window of %v and %d at most: %v, expected %v", second, c.Window, most, missed, want)
				}
			}
		}
	}
}

// TestOwedIsCheap has an item owe a thousand instants, one after the other as they come: none of them makes the others move.
func TestOwedIsCheap(t *testing.T) {
	each := func(tree.Fire) bool { return true }
	made := testing.AllocsPerRun(10, func() {
		var o due.Owed
		for n := range 1000 {
			o.Put(tree.Fire{Instant: int64(n + 1), Source: "schedule"}, each)
		}
		if o.Len() != 1000 || o.Has(tree.Fire{Instant: 1001}) || !o.Has(tree.Fire{Instant: 1}) || !o.Has(tree.Fire{Instant: 1000}) {
			t.Errorf("%d wait, expected 1000, up to the newest", o.Len())
		}
	})
	if made > 50 {
		t.Errorf("%.0f allocations for 1000 instants, expected those of a list that grows", made)
	}
}
