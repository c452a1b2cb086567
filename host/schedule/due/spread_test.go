package due_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/wasmjob/wasmjob/host/schedule/due"
)

// spread puts off the starts of a schedule, each by another time.
type spread struct {
	every
	most time.Duration
	seed uint64
}

func (s spread) Jitter() time.Duration { return s.most }

func (s spread) Delay(at time.Time) time.Duration {
	return time.Duration(rand.New(rand.NewPCG(s.seed, uint64(at.Unix()))).Int64N(int64(s.most)))
}

func (s spread) Reached(now time.Time) time.Time {
	for n := s.Next(now.Add(-s.most)); ; n = s.Next(n) {
		if n.After(now) {
			return now
		}
		if n.Add(s.Delay(n)).After(now) {
			return n.Add(-time.Millisecond)
		}
	}
}

// TestSpread: whenever the calendar is looked at, each instant is taken once, or a newer one stands
// for it, and none before its delay is over. The schedule changes meanwhile, from one jitter to
// another.
func TestSpread(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		before := spread{everyMinute, 1 + duration(r, time.Minute), seed}
		after := spread{every(30 * time.Second), 1 + duration(r, 30*time.Second), seed + 1}
		c := due.Calendar{Schedule: before, Window: 5 * time.Minute}
		now, changeAt := start, minute(10).Add(duration(r, time.Minute))
		c.Arm(now)
		delay := func(at time.Time) time.Duration {
			if at.After(changeAt) {
				return after.Delay(at)
			}
			return before.Delay(at)
		}
		taken, changed := c.Next.Add(-1), false // the instant at the start is put off, too
		for now.Before(minute(30)) {
			step := duration(r, 20*time.Second)
			if r.IntN(20) == 0 {
				step += 3 * time.Minute // it was suspended
			}
			if now = now.Add(step); !changed && !now.Before(changeAt.Add(-time.Second)) {
				now = changeAt.Add(-time.Second) // the change is heard of before it is in force
				c.Change(after, changeAt)
				changed = true
			}
			if !c.Due(now) {
				if at := c.DueAt(); !at.After(now) {
					t.Fatalf("seed %d: %v is not due, and comes due at %v", seed, now, at)
				}
				continue
			}
			at, skip := c.Take(now, taken, true)
			if now.Before(at.Add(delay(at))) {
				t.Fatalf("seed %d: %v is taken at %v, before its delay of %v is over", seed, at, now, delay(at))
			}
			first := c.After(taken)
			switch {
			case skip == nil && !at.Equal(first):
				t.Fatalf("seed %d: %v comes after %v, and nothing is said of %v", seed, at, taken, first)
			case skip != nil && (!skip.First.Equal(first) || !skip.Through.Before(at)):
				t.Fatalf("seed %d: %+v stands for what lies between %v and %v", seed, skip, taken, at)
			}
			taken = at
			if !c.Next.Equal(c.After(at)) {
				t.Fatalf("seed %d: after %v comes %v, want %v", seed, at, c.Next, c.After(at))
			}
		}
		if late := now.Sub(taken); late > 6*time.Minute {
			t.Fatalf("seed %d: nothing was taken for %v", seed, late)
		}
	}
}

// TestArmBesideADelay: an instant whose delay is not over is the next one of a host that comes
// then, and one that is due is not.
func TestArmBesideADelay(t *testing.T) {
	t.Parallel()
	s := spread{everyMinute, time.Minute, 7}
	c := due.Calendar{Schedule: s}
	at := minute(5)
	c.Arm(at.Add(s.Delay(at)).Add(-time.Millisecond))
	if !c.Next.Equal(at) || !c.DueAt().Equal(at.Add(s.Delay(at))) {
		t.Errorf("next is %v at %v, want %v at %v", c.Next, c.DueAt(), at, at.Add(s.Delay(at)))
	}
	if c.Arm(at.Add(s.Delay(at))); !c.Next.Equal(minute(6)) {
		t.Errorf("next is %v, want %v", c.Next, minute(6))
	}
}

// TestWindowBesideADelay: what is made up for is as late as it is after its delay.
func TestWindowBesideADelay(t *testing.T) {
	t.Parallel()
	s := spread{every(time.Hour), 30 * time.Minute, 3}
	c := due.Calendar{Schedule: s, Window: time.Minute}
	at := start.Add(time.Hour)
	now := at.Add(s.Delay(at)).Add(time.Second)
	c.Arm(now)
	if got, _ := c.CatchUp(now, start, time.Time{}, true); !got.Equal(at) {
		t.Errorf("%v runs, want %v", got, at)
	}
}

// hours fires in odd hours, each minute, and excludes the minutes of even ones but the first.
type hours struct{}

func (hours) Next(t time.Time) time.Time {
	return find(t, func(n time.Time) bool { return n.Hour()%2 == 1 || n.Minute() == 0 })
}

func (hours) NextExcluded(t time.Time) time.Time {
	return find(t, func(n time.Time) bool { return n.Hour()%2 == 0 && n.Minute() != 0 })
}

func (hours) Parameter(at time.Time) (string, bool) { return "odd", at.Hour()%2 == 1 }

func find(t time.Time, is func(time.Time) bool) time.Time {
	for {
		if t = everyMinute.Next(t); is(t) {
			return t
		}
	}
}

// TestExcluded: each excluded instant is taken once, the first at once and then several together,
// none beside one that fires, over a change of the schedule; nothing of it changes what is due.
func TestExcluded(t *testing.T) {
	t.Parallel()
	c := due.Calendar{Schedule: hours{}} // the start is in an even hour
	c.Arm(start)
	take := func(now time.Time, want ...due.Skip) {
		t.Helper()
		found := c.TakeExcluded(now)
		if len(found) != len(want) {
			t.Fatalf("at %v found %d, want %d", now, len(found), len(want))
		}
		for n := range want {
			want[n].Cause = due.Excluded
			checkSkip(t, found[n], want[n])
		}
	}
	take(start)
	if at := c.ExcludedAt(); !at.Equal(minute(1)) {
		t.Errorf("the first is taken at %v", at)
	}
	take(minute(1), due.Skip{First: minute(1)})
	if at := c.ExcludedAt(); !at.Equal(minute(11)) {
		t.Errorf("the next are taken at %v", at)
	}
	take(minute(10))
	take(minute(11), due.Skip{First: minute(2), Through: minute(11)})
	// It was suspended for hours: what fires between is not among those that are excluded.
	take(minute(242), due.Skip{First: minute(12), Through: minute(59)}, due.Skip{First: minute(121), Through: minute(179)}, due.Skip{First: minute(241), Through: minute(242)})
	if !c.Next.Equal(minute(60)) {
		t.Errorf("next is %v", c.Next)
	}
	c.Change(everyMinute, minute(250))
	take(minute(270), due.Skip{First: minute(243), Through: minute(250)})
	if at := c.ExcludedAt(); !at.IsZero() {
		t.Errorf("%v is excluded by a schedule that excludes nothing", at)
	}
	c.Change(hours{}, minute(365))
	take(minute(366), due.Skip{First: minute(366)})
	for at, want := range map[time.Time]bool{minute(61): true, minute(301): false, minute(430): true} {
		if _, own := c.Parameter(at); own != want {
			t.Errorf("%v has a parameter of its own: %v", at, own)
		}
	}
}

func duration(r *rand.Rand, below time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(below)))
}

// TestEachOfASpread: what came while an item ran had come due by then, and the jitter comes on top of the window.
func TestEachOfASpread(t *testing.T) {
	t.Parallel()
	c := due.Calendar{Schedule: late{everyMinute, 30 * time.Second}, Window: time.Minute}
	now := minute(6).Add(30 * time.Second)
	c.Arm(now)
	queued, missed, skips, _ := c.Each(now, minute(3), due.Limits{QueueMax: 9, Busy: minute(5).Add(10 * time.Second), CatchUpMax: 9})
	if len(queued) != 1 || !queued[0].Equal(minute(4)) || len(missed) != 2 || !missed[0].Equal(minute(5)) || !missed[1].Equal(minute(6)) || len(skips) != 0 {
		t.Errorf("queued %v, missed %v, %d skips", queued, missed, len(skips))
	}
	now = minute(6).Add(31 * time.Second)
	if _, missed, skips, _ = c.Each(now, minute(4), due.Limits{CatchUpMax: 9}); len(missed) != 1 || len(skips) != 1 {
		t.Errorf("%s after the oldest: missed %v, %d skips", now.Sub(minute(5)), missed, len(skips))
	}
}

// late puts off all starts by the same time.
type late struct {
	cron.Schedule
	by time.Duration
}

func (s late) Jitter() time.Duration           { return s.by }
func (s late) Delay(time.Time) time.Duration   { return s.by }
func (s late) Reached(now time.Time) time.Time { return now.Add(-s.by) }
