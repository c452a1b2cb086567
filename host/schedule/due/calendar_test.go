package due_test

import (
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/schedule/due"
)

// every is a schedule with an instant at each full one of a duration.
type every time.Duration

func (e every) Next(t time.Time) time.Time {
	return t.Truncate(time.Duration(e)).Add(time.Duration(e))
}

const everyMinute = every(time.Minute)

var start = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)

// minute is a number of minutes after the start.
func minute(n int) time.Time { return start.Add(time.Duration(n) * time.Minute) }

func TestTake(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		now, begun time.Time
		held       bool
		at         time.Time
		skip       due.Skip // First is zero for none
		next       time.Time
	}{
		{"in time", minute(1), start, true, minute(1), due.Skip{}, minute(2)},
		{"late, before the next", minute(2).Add(-time.Second), start, true, minute(1), due.Skip{}, minute(2)},
		{"three at once", minute(3), start, true, minute(3), due.Skip{First: minute(1), Through: minute(3).Add(-time.Millisecond)}, minute(4)},
		{"what was begun is not owed", minute(4), minute(2), true, minute(4), due.Skip{First: minute(3), Through: minute(4).Add(-time.Millisecond)}, minute(5)},
		{"begun by a clock that is ahead", minute(3), minute(9), true, minute(3), due.Skip{}, minute(4)},
		{"without items nothing is owed", minute(3), time.Time{}, false, minute(3), due.Skip{}, minute(4)},
		{"a year later", start.Add(365 * 24 * time.Hour), start, true, start.Add(365 * 24 * time.Hour),
			due.Skip{First: minute(1), Through: start.Add(365*24*time.Hour - time.Millisecond)}, start.Add(365*24*time.Hour + time.Minute)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := due.Calendar{Schedule: everyMinute, Next: minute(1)}
			if !c.Due(tt.now) {
				t.Fatal("nothing is due")
			}
			at, skip := c.Take(tt.now, tt.begun, tt.held)
			if !at.Equal(tt.at) || !c.Next.Equal(tt.next) {
				t.Errorf("found %v, and %v next; expected %v and %v", at, c.Next, tt.at, tt.next)
			}
			checkSkip(t, skip, tt.skip)
			if c.Due(tt.now) {
				t.Error("something is due still")
			}
		})
	}
}

func checkSkip(t *testing.T, found *due.Skip, expected due.Skip) {
	t.Helper()
	if found == nil {
		found = &due.Skip{}
	}
	if !found.First.Equal(expected.First) || !found.Through.Equal(expected.Through) || found.Cause != expected.Cause {
		t.Errorf("found %+v, expected %+v", *found, expected)
	}
	if (found.Reason == "") != found.First.IsZero() {
		t.Errorf("the reason is %q", found.Reason)
	}
}

func TestPark(t *testing.T) {
	t.Parallel()
	c := due.Calendar{Schedule: everyMinute}
	checkSkip(t, c.Park(minute(1), start, true), due.Skip{})
	checkSkip(t, c.Park(minute(2), start, true), due.Skip{First: minute(1)})
	checkSkip(t, c.Park(minute(3), minute(2), true), due.Skip{}) // it was begun
	checkSkip(t, c.Park(minute(4), time.Time{}, false), due.Skip{})
	if !c.Parked.Equal(minute(4)) {
		t.Errorf("%v is parked", c.Parked)
	}
}

func TestCatchUp(t *testing.T) {
	t.Parallel()
	const window = 5 * time.Minute
	for _, tt := range []struct {
		name      string
		now       time.Time
		begun     int // minutes
		back      int // minutes; 0: none
		notBefore int
		misfire   bool
		at        time.Time
		skip      due.Skip
	}{
		{"nothing was missed", minute(3), 3, 0, 0, true, time.Time{}, due.Skip{}},
		{"one was missed", minute(4), 3, 0, 0, true, minute(4), due.Skip{}},
		{"several: the newest runs", minute(6), 3, 0, 0, true, minute(6), due.Skip{First: minute(4), Through: minute(6).Add(-time.Millisecond)}},
		{"misfire is off", minute(6), 3, 0, 0, false, time.Time{}, due.Skip{First: minute(4), Through: minute(6), Cause: due.Missed}},
		{"disabled until now", minute(6), 3, 0, 6, true, minute(6), due.Skip{First: minute(4), Through: minute(6).Add(-time.Millisecond)}},
		{"disabled until after the last", minute(6).Add(time.Second), 3, 0, 7, true, time.Time{}, due.Skip{First: minute(4), Through: minute(6).Add(time.Second), Cause: due.Disabled}},
		{"handed back", minute(4).Add(-time.Second), 2, 3, 0, false, minute(3), due.Skip{}},
		{"handed back, and a newer one was begun", minute(4).Add(-time.Second), 3, 2, 0, true, time.Time{}, due.Skip{}},
		{"handed back, and a newer one", minute(5), 2, 3, 0, true, minute(5), due.Skip{First: minute(3), Through: minute(5).Add(-time.Millisecond)}},
		{"handed back, and misfire is off", minute(5), 2, 3, 0, false, minute(3), due.Skip{First: minute(4), Through: minute(5), Cause: due.Missed}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := due.Calendar{Schedule: everyMinute, Window: window, NotBefore: minute(tt.notBefore)}
			c.Arm(tt.now)
			var back time.Time
			if tt.back != 0 {
				back = minute(tt.back)
			}
			at, skip := c.CatchUp(tt.now, minute(tt.begun), back, tt.misfire)
			if !at.Equal(tt.at) {
				t.Errorf("found %v, expected %v", at, tt.at)
			}
			checkSkip(t, skip, tt.skip)
		})
	}
}

// TestCatchUpWindow: what is older than the window does not run, as long as a schedule
// has gaps that are longer.
func TestCatchUpWindow(t *testing.T) {
	t.Parallel()
	c := due.Calendar{Schedule: every(time.Hour), Window: 5 * time.Minute}
	now := start.Add(90 * time.Minute)
	c.Arm(now)
	at, skip := c.CatchUp(now, start, time.Time{}, true)
	if !at.IsZero() {
		t.Errorf("%v runs", at)
	}
	checkSkip(t, skip, due.Skip{First: start.Add(time.Hour), Through: now, Cause: due.Missed})
}

func TestSetBack(t *testing.T) {
	t.Parallel()
	c := due.Calendar{Schedule: everyMinute, Next: minute(10), NotBefore: minute(9)}
	c.SetBack(minute(5))
	if !c.Next.Equal(minute(6)) || !c.NotBefore.Equal(minute(5)) {
		t.Errorf("next is %v, and nothing before %v has a catch-up", c.Next, c.NotBefore)
	}
	c = due.Calendar{Schedule: everyMinute, Next: minute(3)}
	if c.SetBack(minute(5)); !c.Next.Equal(minute(3)) {
		t.Errorf("an instant that came due and was not taken is gone; next is %v", c.Next)
	}
}

func TestNewest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name             string
		now, since, next time.Time
		expected         time.Time
	}{
		{"none came due", minute(3).Add(time.Second), minute(3), minute(4), time.Time{}},
		{"one", minute(4).Add(time.Second), minute(3), minute(5), minute(4)},
		{"the newest of several", minute(9).Add(time.Second), minute(3), minute(10), minute(9)},
		{"what is due and not taken is left", minute(9).Add(time.Second), minute(3), minute(9), minute(8)},
		{"the last one is not taken", minute(4).Add(time.Second), minute(3), minute(4), time.Time{}},
		{"begun by a clock that is ahead", minute(4), minute(9), minute(5), time.Time{}},
		{"a record of long ago", start.Add(365 * 24 * time.Hour), start, time.Time{}, start.Add(365 * 24 * time.Hour)},
	} {
		c := due.Calendar{Schedule: everyMinute, Next: tt.next}
		if at := c.Newest(tt.now, tt.since); !at.Equal(tt.expected) {
			t.Errorf("%s: found %v, expected %v", tt.name, at, tt.expected)
		}
	}
	if c := (due.Calendar{}); !c.Newest(minute(3), start).IsZero() {
		t.Error("a job without a cron has an instant")
	}
}
