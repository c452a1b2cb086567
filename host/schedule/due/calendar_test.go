package due_test

import (
	"slices"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
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
	if found.Reason.IsZero() != found.First.IsZero() {
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
		{"catch-up is off", minute(6), 3, 0, 0, false, time.Time{}, due.Skip{First: minute(4), Through: minute(6), Cause: due.Missed}},
		{"disabled until now", minute(6), 3, 0, 6, true, minute(6), due.Skip{First: minute(4), Through: minute(6).Add(-time.Millisecond)}},
		{"disabled until after the last", minute(6).Add(time.Second), 3, 0, 7, true, time.Time{}, due.Skip{First: minute(4), Through: minute(6).Add(time.Second), Cause: due.Disabled}},
		{"handed back", minute(4).Add(-time.Second), 2, 3, 0, false, minute(3), due.Skip{}},
		{"handed back, and a newer one was begun", minute(4).Add(-time.Second), 3, 2, 0, true, time.Time{}, due.Skip{}},
		{"handed back, and a newer one", minute(5), 2, 3, 0, true, minute(5), due.Skip{First: minute(3), Through: minute(5).Add(-time.Millisecond)}},
		{"handed back, and catch-up is off", minute(5), 2, 3, 0, false, minute(3), due.Skip{First: minute(4), Through: minute(5), Cause: due.Missed}},
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

// TestCatchUpBeforeAnInstantThatIsDue: the next instant has come due and was not taken yet. It is not missed.
func TestCatchUpBeforeAnInstantThatIsDue(t *testing.T) {
	t.Parallel()
	c := due.Calendar{Schedule: everyMinute, Window: 5 * time.Minute, Next: minute(6)}
	at, skip := c.CatchUp(minute(6).Add(time.Second), minute(3), time.Time{}, false)
	if !at.IsZero() {
		t.Errorf("%v runs", at)
	}
	checkSkip(t, skip, due.Skip{First: minute(4), Through: minute(6).Add(-time.Millisecond), Cause: due.Missed})
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
	checkSkip(t, skip, due.Skip{First: start.Add(time.Hour), Through: now, Cause: due.TooOld})
}

// TestEach: instants that do not stand for each other.
func TestEach(t *testing.T) {
	t.Parallel()
	most := time.Millisecond // before the next instant
	for _, tt := range []struct {
		name           string
		now            time.Time
		begun          int // minutes
		notBefore      int
		limits         due.Limits
		queued, missed []int
		skips          []due.Skip
		through        time.Time
	}{
		{"nothing", minute(3), 3, 0, due.Limits{QueueMax: 9, Busy: minute(3), CatchUpMax: 9}, nil, nil, nil, minute(3)},
		{"while it ran", minute(6), 3, 0, due.Limits{QueueMax: 9, Busy: minute(5)}, []int{4, 5}, nil, nil, minute(5)},
		{"while it ran, and since", minute(6), 3, 0, due.Limits{QueueMax: 9, Busy: minute(4), CatchUpMax: 9}, []int{4}, []int{5, 6}, nil, minute(7).Add(-most)},
		{"too many", minute(6), 2, 0, due.Limits{QueueMax: 3, Waiting: 1, Busy: minute(6)}, []int{3, 4}, nil,
			[]due.Skip{{First: minute(5), Through: minute(6), Cause: due.Full}}, minute(6)},
		{"the newest alone", minute(6), 2, 0, due.Limits{QueueMax: 1, Newest: true, Busy: minute(5), CatchUpMax: 9}, []int{5}, []int{6},
			[]due.Skip{{First: minute(3), Through: minute(5).Add(-most), Cause: due.Later}}, minute(7).Add(-most)},
		{"dropped", minute(6), 2, 0, due.Limits{Busy: minute(5), CatchUpMax: 9}, nil, []int{6},
			[]due.Skip{{First: minute(3), Through: minute(5), Cause: due.Busy}}, minute(7).Add(-most)},
		{"missed", minute(6), 3, 0, due.Limits{CatchUpMax: 9}, nil, []int{4, 5, 6}, nil, minute(7).Add(-most)},
		{"missed, too many", minute(6), 3, 0, due.Limits{CatchUpMax: 2}, nil, []int{5, 6},
			[]due.Skip{{First: minute(4), Through: minute(5).Add(-most), Cause: due.TooOld}}, minute(7).Add(-most)},
		{"missed, too old", minute(9), 1, 0, due.Limits{CatchUpMax: 9}, nil, []int{4, 5, 6, 7, 8, 9},
			[]due.Skip{{First: minute(2), Through: minute(4).Add(-most), Cause: due.TooOld}}, minute(10).Add(-most)},
		{"missed, too old and too many", minute(9), 1, 0, due.Limits{CatchUpMax: 1}, nil, []int{9},
			[]due.Skip{{First: minute(2), Through: minute(4).Add(-most), Cause: due.TooOld}, {First: minute(4), Through: minute(9).Add(-most), Cause: due.TooOld}}, minute(10).Add(-most)},
		{"missed, and disabled", minute(6), 3, 6, due.Limits{CatchUpMax: 9}, nil, []int{6},
			[]due.Skip{{First: minute(4), Through: minute(6).Add(-most), Cause: due.Disabled}}, minute(7).Add(-most)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := due.Calendar{Schedule: everyMinute, Window: 5 * time.Minute, NotBefore: minute(tt.notBefore)}
			c.Arm(tt.now)
			queued, missed, skips, through := c.Each(tt.now, minute(tt.begun), tt.limits)
			for _, list := range []struct {
				what     string
				found    []time.Time
				expected []int
			}{{"queued", queued, tt.queued}, {"missed", missed, tt.missed}} {
				if !slices.EqualFunc(list.found, list.expected, func(at time.Time, n int) bool { return at.Equal(minute(n)) }) {
					t.Errorf("%s: found %v, expected %v", list.what, list.found, list.expected)
				}
			}
			if len(skips) != len(tt.skips) || !through.Equal(tt.through) {
				t.Fatalf("found %d skips, through %v; expected %v, %v", len(skips), through, tt.skips, tt.through)
			}
			for i, s := range skips {
				checkSkip(t, s, tt.skips[i])
			}
		})
	}
}

// TestOwed: fires wait in the order of their instants, and a newer one stands for the last if that
// does not run for itself.
func TestOwed(t *testing.T) {
	t.Parallel()
	at := func(n int) tree.Fire { return tree.Fire{Instant: minute(n).UnixMilli()} }
	each := func(f tree.Fire) bool { return f.Source != "one" }
	one := func(n int) tree.Fire { return tree.Fire{Instant: minute(n).UnixMilli(), Source: "one"} }
	for _, tt := range []struct {
		name  string
		had   []tree.Fire
		put   tree.Fire
		gone  int // 0: none
		waits []int
	}{
		{"the first", nil, at(1), 0, []int{1}},
		{"a newer one", []tree.Fire{at(1)}, at(2), 0, []int{1, 2}},
		{"an older one", []tree.Fire{at(2), at(3)}, at(1), 0, []int{1, 2, 3}},
		{"between", []tree.Fire{at(1), at(3)}, at(2), 0, []int{1, 2, 3}},
		{"the same", []tree.Fire{at(1), at(2)}, at(2), 0, []int{1, 2}},
		{"for one that stands back", []tree.Fire{at(1), one(2)}, at(3), 2, []int{1, 3}},
		{"one for another", []tree.Fire{at(1), one(2)}, one(3), 2, []int{1, 3}},
		{"one that is too late", []tree.Fire{at(1), at(3)}, one(2), 2, []int{1, 3}},
	} {
		var o due.Owed
		for _, f := range tt.had {
			o.Put(f, each)
		}
		gone := o.Put(tt.put, each)
		found := 0
		if gone != nil {
			found = int(gone.Time().Sub(start) / time.Minute)
		}
		if found != tt.gone || !slices.EqualFunc(o.Waiting(), tt.waits, func(f tree.Fire, n int) bool { return f.Time().Equal(minute(n)) }) {
			t.Errorf("%s: %d is gone and %v wait, expected %d and %v", tt.name, found, o.Waiting(), tt.gone, tt.waits)
		}
		for _, n := range tt.waits {
			if next := o.Next(); next == nil || !next.Time().Equal(minute(n)) {
				t.Fatalf("%s: %v is next, expected minute %d", tt.name, next, n)
			}
			o.Answered(at(n + 50))
			o.Answered(at(n))
		}
		if o.Next() != nil || o.Waiting() != nil {
			t.Errorf("%s: %v waits", tt.name, o.Next())
		}
	}
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
