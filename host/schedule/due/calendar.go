// Package due says which instants of a job are due, and why others run late or not at
// all. It is given the clock and what was begun, and decides by these alone.
package due

import (
	"cmp"
	"slices"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// Calendar is a job's schedule and what has come due of it. All times are of the wall
// clock. It is for one goroutine.
type Calendar struct {
	// Schedule is nil for a job that only triggers run. It may be a [Spread] as well, and an
	// [Excluding].
	Schedule cron.Schedule
	// Next is the next scheduled instant; zero for none.
	Next time.Time
	// Parked is an instant that waits for the items to be sharded; zero for none.
	Parked time.Time
	// NotBefore is the instant up to which nothing has a catch-up.
	NotBefore time.Time
	// Window is how late an instant that was missed may run. The jitter of the schedule comes on top.
	Window time.Duration
	// Ahead is by how much the wall clock is ahead of the one by which all hosts count the Window.
	Ahead time.Duration
	// Off says why there is no catch-up, for the reasons of a job without; empty: misfire is off.
	Off reason.Code
	// excluded is the next instant that is excluded and was not reported, zero for none; reported
	// is when one was last.
	excluded, reported time.Time
	found              recent
}

// recent are instants that have come, as they were found last: the items of a job mostly ask for the same ones.
type recent struct {
	floor, end time.Time
	// at are those from floor to end, ascending; if there are more than maxTaken, the newest, fewestTaken at least.
	at   []time.Time
	more bool // there are older ones
}

// Spread is a schedule whose starts are put off. An instant comes due when its delay is over, and
// not before the instants that are earlier than it.
type Spread interface {
	// Delay is by how much the start of an instant is put off: the same on all hosts.
	Delay(at time.Time) time.Duration
	// Jitter is the most by which a start is put off.
	Jitter() time.Duration
	// Reached is the time up to which all instants are due now, and none after it.
	Reached(now time.Time) time.Time
}

// Excluding is a schedule with instants that do not fire.
type Excluding interface {
	// NextExcluded is the first of them after a time; zero for none.
	NextExcluded(after time.Time) time.Time
}

// Parametric is a schedule that has job parameters for its instants.
type Parametric interface {
	// Parameter is that of an instant; ok is false if it is the job's own.
	Parameter(at time.Time) (parameter string, ok bool)
}

// Parameter is the job parameter of an instant; ok is false if it is the job's own.
func (c *Calendar) Parameter(at time.Time) (parameter string, ok bool) {
	if s, is := c.Schedule.(Parametric); is {
		return s.Parameter(at)
	}
	return "", false
}

// Cause is why instants do not run as they come due.
type Cause uint8

// The causes.
const (
	Later    Cause = iota // a newer instant stands for them
	Disabled              // the host was disabled for the job, or away from it
	Missed                // no host had the item
	Busy                  // the item still ran
	Full                  // too many wait already
	TooOld                // longer ago than the window, or too many newer ones were missed
	Excluded              // a calendar of the job excludes them
)

// Skip is one instant, or several that follow each other, for which no fire comes.
type Skip struct {
	First, Through time.Time // Through is zero for one instant
	Cause          Cause
	Reason         reason.Reason
}

// Arm makes the first instant that is not due at a time the next one.
func (c *Calendar) Arm(now time.Time) {
	c.arm(c.reached(now))
	c.excluded = c.excludedAfter(now)
}

func (c *Calendar) arm(after time.Time) { c.Next, c.found = c.After(after), recent{} }

// reached is the time up to which all instants are due, and none after it.
func (c *Calendar) reached(now time.Time) time.Time {
	if s, is := c.Schedule.(Spread); is {
		return s.Reached(now)
	}
	return now
}

// Delay is by how much the start of an instant is put off.
func (c *Calendar) Delay(at time.Time) time.Duration {
	if s, is := c.Schedule.(Spread); is && !at.IsZero() {
		return s.Delay(at)
	}
	return 0
}

func (c *Calendar) jitter() time.Duration {
	if s, is := c.Schedule.(Spread); is {
		return s.Jitter()
	}
	return 0
}

// DueAt is when the next instant comes due; zero for none.
func (c *Calendar) DueAt() time.Time {
	if c.Next.IsZero() {
		return c.Next
	}
	return c.Next.Add(c.Delay(c.Next))
}

// After is the first instant after a time; zero for none.
func (c *Calendar) After(t time.Time) time.Time {
	if c.Schedule == nil {
		return time.Time{}
	}
	return c.Schedule.Next(t)
}

// Due reports whether an instant has come that was not taken.
func (c *Calendar) Due(now time.Time) bool {
	return c.Schedule != nil && !c.Next.IsZero() && !now.Before(c.DueAt())
}

// SetBack takes note that the wall clock was set back to now. What lies ahead by it
// comes sooner than what was computed. An instant that came due by the old clock and
// by the new one, and was not taken, stays due.
func (c *Calendar) SetBack(now time.Time) {
	if c.Next.IsZero() || c.DueAt().After(now) {
		c.Arm(now)
	}
	if c.NotBefore.After(now) {
		c.NotBefore = now
	}
}

// maxTaken is how many instants are counted one by one, and fewestTaken how many of the newest are found if there are more:
// as many as an item may catch up on.
const (
	maxTaken    = 10_000
	fewestTaken = jobconfig.MaxQueue
)

// Take takes the instants that are due: the process was suspended, say, or the clock
// was set. They are coalesced into the newest, which is to fire. begun is the earliest
// instant that one of the host's items was begun for last; held is false if it has no
// item. skip is what the newest stands for, nil if that is nothing that is owed.
func (c *Calendar) Take(now, begun time.Time, held bool) (at time.Time, skip *Skip) {
	now = c.reached(now)
	at = c.Next
	if next := c.Schedule.Next(begun); at.Before(next) && !next.After(now) {
		at = next
	}
	first, skipped := at, 0
	for n := c.Schedule.Next(at); !n.IsZero() && !n.After(now); n = c.Schedule.Next(n) {
		at = n
		if skipped++; skipped > maxTaken {
			at = newest(c.Schedule.Next, now) // a long sleep and a fast schedule
			break
		}
	}
	if skipped > 0 && held && first.After(begun) {
		skip = &Skip{First: first, Through: at.Add(-time.Millisecond), Cause: Later,
			Reason: reason.New(reason.CameUnseen, reason.Count(skipped), at)}
	}
	if c.arm(at); !c.Next.After(now) {
		c.arm(now)
	}
	return at, skip
}

// newest finds the last instant up to now by looking back further and further.
func newest(next func(time.Time) time.Time, now time.Time) time.Time {
	var found time.Time
	for back := time.Second; back < 10*366*24*time.Hour; back *= 2 {
		for n := next(now.Add(-back)); !n.IsZero() && !n.After(now); n = next(n) {
			found = n
		}
		if !found.IsZero() {
			return found
		}
	}
	return now
}

// Park keeps an instant until the items have been divided; a newer one takes its
// place. begun and held are as for Take. skip is the instant whose place was taken,
// nil if that is not owed.
func (c *Calendar) Park(at, begun time.Time, held bool) (skip *Skip) {
	if held && c.Parked.After(begun) && c.Parked.Before(at) {
		skip = &Skip{First: c.Parked, Cause: Later, Reason: reason.New(reason.NewerWhileSharding)}
	}
	c.Parked = at
	return skip
}

// past is the time up to which instants were due.
//
// What is before the next instant was due: the wall clock may have gone back by some
// milliseconds since, when the registry's became better known.
func (c *Calendar) past(now time.Time) time.Time {
	if c.Next.IsZero() {
		return c.reached(now)
	}
	return c.Next.Add(-time.Millisecond)
}

// First is the first instant after a time if that came due and is not the next one; zero
// if none did.
func (c *Calendar) First(now, since time.Time) time.Time {
	first := c.After(since)
	if first.IsZero() || first.After(c.past(now)) {
		return time.Time{}
	}
	return first
}

// Newest is the newest instant after a time that came due and is not the next one; zero
// for none.
func (c *Calendar) Newest(now, since time.Time) time.Time {
	if c.First(now, since).IsZero() {
		return time.Time{}
	}
	return newest(c.Schedule.Next, c.past(now))
}

// missed are instants that came due and were not begun.
type missed struct {
	first, newest time.Time // newest: the newest in the window, for which a catch-up runs
	count         int       // from first to newest; with gaps at most more
	more          bool      // there are more than count
}

// counted names how many instants were missed, but for so many of them.
func (m missed) counted(but int) reason.Reason {
	if m.more {
		return reason.New(reason.MoreInstants, m.count-but)
	}
	return reason.Count(m.count - but)
}

// recentUpTo finds the newest instants of a stretch of time, which is not before window. However long that is and however
// many there are, it looks at some tens of thousands, and seldom for items that ask one after the other.
func (c *Calendar) recentUpTo(window, floor, end time.Time) recent {
	if c.found.end.Equal(end) && !end.IsZero() {
		if !c.found.floor.After(floor) {
			return c.found
		}
		floor = later(window, end.Add(-2*end.Sub(floor))) // the next one may ask for more again
	}
	r := recent{floor: floor, end: end}
	after := floor.Add(-time.Millisecond)
	if r.at, r.more = c.between(after, end); r.more {
		back := time.Second
		for len(r.at) < fewestTaken || r.more {
			at, more := c.between(end.Add(-back), end)
			if more {
				break
			}
			r.at, r.more = at, false
			back *= 2
		}
		// Between early, from which there are too many, and late, from which there are too few.
		early, late := end.Add(-back), end.Add(-back/2)
		for r.more || len(r.at) < fewestTaken {
			middle := early.Add(late.Sub(early) / 2)
			if !middle.After(early) || !middle.Before(late) {
				break
			}
			if at, more := c.between(middle, end); more {
				early = middle
			} else {
				r.at, r.more, late = at, false, middle
			}
		}
		r.more = true
	}
	c.found = r
	return r
}

// between are the instants after a time up to another, oldest first, at most maxTaken; more says that there are others.
func (c *Calendar) between(after, end time.Time) (at []time.Time, more bool) {
	for t := c.Schedule.Next(after); !t.IsZero() && !t.After(end); t = c.Schedule.Next(t) {
		if len(at) == maxTaken {
			return at, true
		}
		at = append(at, t)
	}
	return at, false
}

// from are those of the instants that are not before a time.
func (r recent) from(floor time.Time) []time.Time {
	after := floor.Add(-time.Millisecond)
	i, _ := slices.BinarySearchFunc(r.at, after, func(t, after time.Time) int {
		if t.After(after) {
			return 1
		}
		return -1
	})
	return r.at[i:]
}

// oldest is before when instants that were missed are too old to run.
func (c *Calendar) oldest(now time.Time) time.Time { return now.Add(-c.Ahead - c.Window - c.jitter()) }

// missedSince finds the instants after one that was begun, up to now. What is
// ahead of the clock is left to that.
func (c *Calendar) missedSince(now, since time.Time) missed {
	end := c.past(now)
	first := c.Schedule.Next(since)
	if first.IsZero() || first.After(end) {
		return missed{}
	}
	m := missed{first: first}
	window := c.oldest(now)
	floor := later(window, c.NotBefore)
	if !floor.After(first) {
		floor = first
	}
	r := c.recentUpTo(window, floor, end)
	in := r.from(floor)
	if m.count = len(in); m.count > 0 {
		m.newest = in[m.count-1]
	}
	m.more = r.more && m.count == len(r.at) && m.count > 0 && c.Schedule.Next(floor.Add(-time.Millisecond)).Before(in[0])
	if floor.After(first) {
		m.count++ // the first, and what lies between it and the window
	}
	return m
}

// CatchUp decides what an item that the host was given owes. begun is the instant that
// it was begun for last; back is one that was handed back, zero for none: it was begun
// in time, and runs whatever the window and latest say, unless a newer one does or was
// begun. latest is set if the newest instant that was missed is made up for. at
// is the instant to run, zero for none; skip is what does not run, or nil.
func (c *Calendar) CatchUp(now, begun, back time.Time, latest bool) (at time.Time, skip *Skip) {
	m := c.missedSince(now, begun)
	if back.After(begun) && (m.newest.IsZero() || !latest) {
		at = back
		m = c.missedSince(now, back)
	}
	if m.first.IsZero() {
		return at, nil
	}
	through := c.lastUpTo(later(sooner(now, c.past(now)), m.newest)) // the next instant may have come due, and runs
	if m.newest.IsZero() && m.first.Before(c.NotBefore) {
		return at, &Skip{m.first, through, Disabled, reason.New(reason.DueWhileAway)}
	}
	if m.newest.IsZero() {
		return at, &Skip{m.first, through, TooOld, reason.New(reason.TooOld, c.Window)}
	}
	if !latest {
		return at, &Skip{m.first, through, Missed, reason.New(cmp.Or(c.Off, reason.NoOwnerMisfireOff), m.counted(0))}
	}
	if !m.newest.Equal(m.first) {
		skip = &Skip{m.first, c.lastUpTo(m.newest.Add(-time.Millisecond)), Later, reason.New(reason.CameWithoutHost, m.counted(1), m.newest.UTC())}
	}
	return m.newest, skip
}

// excludedInterval is how often excluded instants of a frequent schedule are reported: several
// then are one report.
const excludedInterval = 10 * time.Minute

// excludedAfter is the first instant after a time that is excluded; zero for none.
func (c *Calendar) excludedAfter(t time.Time) time.Time {
	if s, is := c.Schedule.(Excluding); is {
		return s.NextExcluded(t)
	}
	return time.Time{}
}

// ExcludedAt is when excluded instants are to be taken next; zero for never.
func (c *Calendar) ExcludedAt() time.Time {
	if c.excluded.IsZero() {
		return c.excluded
	}
	return later(c.excluded, c.reported.Add(excludedInterval))
}

// TakeExcluded takes the excluded instants up to now that were not taken: those that follow each
// other, without one that fires between them, together. They follow from the configuration, and
// nothing is written for them; a host that comes later takes those after it came.
func (c *Calendar) TakeExcluded(now time.Time) (skips []*Skip) {
	if at := c.ExcludedAt(); at.IsZero() || at.After(now) {
		return nil
	}
	c.reported = now
	for range maxTaken {
		if c.excluded.IsZero() || c.excluded.After(now) {
			break
		}
		first, last, count := c.excluded, c.excluded, 1
		fires := c.After(first)
		for c.excluded = c.excludedAfter(first); count < maxTaken; c.excluded = c.excludedAfter(last) {
			if c.excluded.IsZero() || c.excluded.After(now) || (!fires.IsZero() && c.excluded.After(fires)) {
				break
			}
			last = c.excluded
			count++
		}
		skip := &Skip{First: first, Cause: Excluded, Reason: reason.New(reason.DayExcluded)}
		if count > 1 {
			skip.Through = last
			skip.Reason = reason.New(reason.DaysExcluded, reason.Count(count))
		}
		skips = append(skips, skip)
	}
	return skips
}

// Limits say which of the instants that an item missed run for themselves.
type Limits struct {
	// Busy is up to when the item ran, as far as its record says: what came until then came while it ran.
	// At most QueueMax of that run, with the Waiting ones that wait already: the oldest ones, or the newest
	// one alone if Newest is set.
	Busy              time.Time
	QueueMax, Waiting int
	Newest            bool
	// Shared says that QueueMax is the item's part of what the host keeps, and less than that of the job.
	Shared bool
	// CatchUpMax of what came since run at most, within the calendar's Window; 0: none by Each.
	CatchUpMax int
}

// Each decides what an item that the host was given owes, if instants do not stand for each other.
// begun is the instant up to which all is accounted for. queued came while the item ran, missed since;
// both are to run, oldest first. skips are the others, up to through: what comes after that is left to CatchUp.
func (c *Calendar) Each(now, begun time.Time, l Limits) (queued, missed []time.Time, skips []*Skip, through time.Time) {
	queued, missed, skips, through = c.each(now, begun, l)
	for _, s := range skips {
		s.Through = c.lastUpTo(s.Through)
	}
	return queued, missed, skips, through
}

// lastUpTo is where a stretch of instants that are skipped ends: at a time, or, of a schedule of given instants, at the last of
// them up to there. Others may be given later.
func (c *Calendar) lastUpTo(t time.Time) time.Time {
	if l, is := c.Schedule.(*Listed); is {
		return l.lastUpTo(t)
	}
	return t
}

func (c *Calendar) each(now, begun time.Time, l Limits) (queued, missed []time.Time, skips []*Skip, through time.Time) {
	end := c.past(now)
	busy := sooner(end, c.reached(l.Busy))
	queued, skips = c.whileBusy(begun, busy, l)
	through = later(begun, busy)
	if l.CatchUpMax == 0 {
		return queued, nil, skips, through
	}
	first := c.Schedule.Next(through)
	if first.IsZero() || first.After(end) {
		return queued, nil, skips, through
	}
	from, window := first, c.oldest(now)
	if floor := later(window, c.NotBefore); first.Before(floor) {
		skip := &Skip{First: first, Through: floor.Add(-time.Millisecond), Cause: TooOld, Reason: reason.New(reason.TooOld, c.Window)}
		if floor.Equal(c.NotBefore) {
			skip.Cause, skip.Reason = Disabled, reason.New(reason.DueWhileAway)
		}
		skips = append(skips, skip)
		from = c.Schedule.Next(skip.Through)
	}
	if !from.IsZero() {
		missed = c.recentUpTo(window, from, end).from(from)
		missed = missed[max(0, len(missed)-l.CatchUpMax):]
	}
	if len(missed) > 0 && from.Before(missed[0]) {
		skips = append(skips, &Skip{from, missed[0].Add(-time.Millisecond), TooOld,
			reason.New(reason.NoOwnerNewestRun, reason.Count(l.CatchUpMax))})
	}
	return queued, missed, skips, end
}

// whileBusy decides about the instants after one time up to another, between which the item ran.
func (c *Calendar) whileBusy(after, to time.Time, l Limits) (queued []time.Time, skips []*Skip) {
	first, room := c.Schedule.Next(after), l.QueueMax-l.Waiting
	if first.IsZero() || first.After(to) {
		return nil, nil
	}
	if l.Newest && room > 0 {
		at := newest(c.Schedule.Next, to)
		if at.After(first) {
			skips = append(skips, &Skip{first, at.Add(-time.Millisecond), Later, reason.New(reason.RanNewestRuns)})
		}
		return []time.Time{at}, skips
	}
	t := first
	for ; !t.IsZero() && !t.After(to) && len(queued) < room; t = c.Schedule.Next(t) {
		queued = append(queued, t)
	}
	switch {
	case t.IsZero() || t.After(to):
	case l.QueueMax == 0:
		skips = append(skips, &Skip{t, to, Busy, reason.New(reason.RanOverlapSkip)})
	default:
		skips = append(skips, &Skip{t, to, Full, QueueFull(l.QueueMax, l.Shared)})
	}
	return queued, skips
}

// QueueFull says why an instant of an item that still runs does not wait. shared is as in Limits.
func QueueFull(most int, shared bool) reason.Reason {
	if shared {
		return reason.New(reason.QueueFullShared, reason.Count(most))
	}
	return reason.New(reason.QueueFull, reason.Count(most))
}

func sooner(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
