// Package due decides which instants of a job are due, and why others run late or not at all. It is pure: the
// caller passes the time and what was begun.
package due

import (
	"cmp"
	"slices"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// Calendar is a job's schedule and its due instants. All times are of the wall clock. It is for one goroutine.
type Calendar struct {
	// Schedule is nil for a job that only triggers run. It may be a [Spread] as well, and an
	// [Excluding].
	Schedule cron.Schedule
	// Next is the next scheduled instant; zero for none.
	Next time.Time
	// Parked is an instant that waits until the items are sharded; zero for none.
	Parked time.Time
	// NotBefore: instants up to this one are not caught up.
	NotBefore time.Time
	// Window is how late a missed instant may run, plus the schedule's jitter.
	Window time.Duration
	// Ahead is how far the wall clock is ahead of the registry's clock, by which all hosts measure the Window.
	Ahead time.Duration
	// Off says why there is no catch-up, for the reasons of a job without; empty: misfire is off.
	Off reason.Code
	// excluded is the next excluded instant that was not reported, zero for none; reported is the time of the
	// last report.
	excluded, reported time.Time
	found              recent
}

// recent caches past instants of the last query: the items of a job mostly ask for the same ones.
type recent struct {
	floor, end time.Time
	// at are the instants from floor to end, ascending; if there are more than maxTaken, only the newest, at
	// least fewestTaken.
	at   []time.Time
	more bool // there are older ones
}

// Spread is a schedule that delays its starts. An instant comes due when its delay is over, and not before
// earlier instants.
type Spread interface {
	// Delay is how long the start of an instant is delayed: the same on all hosts.
	Delay(at time.Time) time.Duration
	// Jitter is the longest delay.
	Jitter() time.Duration
	// Reached returns a time: all instants up to it are due now, later ones are not.
	Reached(now time.Time) time.Time
}

// Excluding is a schedule with instants that do not fire.
type Excluding interface {
	// NextExcluded is the first such instant after a time; zero for none.
	NextExcluded(after time.Time) time.Time
}

// Parametric is a schedule with job parameters for its instants.
type Parametric interface {
	// Parameter is the parameter of an instant; ok is false if it is the job's own.
	Parameter(at time.Time) (parameter string, ok bool)
}

// Parameter is the job parameter of an instant; ok is false if it is the job's own.
func (c *Calendar) Parameter(at time.Time) (parameter string, ok bool) {
	if s, is := c.Schedule.(Parametric); is {
		return s.Parameter(at)
	}
	return "", false
}

// Cause says why instants do not run when they come due.
type Cause uint8

// The causes.
const (
	Later    Cause = iota // a newer instant supersedes them
	Disabled              // the host was disabled for the job, or away from it
	Missed                // no host owned the item
	Busy                  // the item still ran
	Full                  // too many wait already
	TooOld                // longer ago than the window, or too many newer ones were missed
	Excluded              // a calendar of the job excludes them
)

// Skip is one instant, or several in a row, without a fire.
type Skip struct {
	First, Through time.Time // Through is zero for one instant
	Cause          Cause
	Reason         reason.Reason
}

// Arm sets Next to the first instant that is not due at now.
func (c *Calendar) Arm(now time.Time) {
	c.arm(c.reached(now))
	c.excluded = c.excludedAfter(now)
}

func (c *Calendar) arm(after time.Time) { c.Next, c.found = c.After(after), recent{} }

// reached returns a time: all instants up to it are due, later ones are not.
func (c *Calendar) reached(now time.Time) time.Time {
	if s, is := c.Schedule.(Spread); is {
		return s.Reached(now)
	}
	return now
}

// Delay is how long the start of an instant is delayed.
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

// Due reports whether an instant is due that Take has not returned.
func (c *Calendar) Due(now time.Time) bool {
	return c.Schedule != nil && !c.Next.IsZero() && !now.Before(c.DueAt())
}

// SetBack is called when the wall clock was set back to now. Instants that were computed for later come sooner.
// An instant that was due by both clocks, and was not taken, stays due.
func (c *Calendar) SetBack(now time.Time) {
	if c.Next.IsZero() || c.DueAt().After(now) {
		c.Arm(now)
	}
	if c.NotBefore.After(now) {
		c.NotBefore = now
	}
}

// maxTaken is up to how many instants are counted one by one; fewestTaken is how many of the newest are found
// if there are more: as many as an item may catch up.
const (
	maxTaken    = 10_000
	fewestTaken = jobconfig.MaxQueue
)

// Take takes the due instants, several if the process was suspended or the clock was set. They are coalesced
// into the newest, which fires. begun is the earliest of the instants that the host's items were last begun
// for; held is false if it has no item. skip are the superseded instants, nil if none was owed.
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
			at = newest(c.Schedule.Next, now) // a long sleep with a frequent schedule
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

// Park keeps an instant until the items are divided; a newer one replaces it. begun and held are as for Take.
// skip is the replaced instant, nil if it was not owed.
func (c *Calendar) Park(at, begun time.Time, held bool) (skip *Skip) {
	if held && c.Parked.After(begun) && c.Parked.Before(at) {
		skip = &Skip{First: c.Parked, Cause: Later, Reason: reason.New(reason.NewerWhileSharding)}
	}
	c.Parked = at
	return skip
}

// past is the time up to which instants were due.
//
// Everything before the next instant was due: the wall clock may have gone back by some milliseconds since,
// when the estimate of the registry's clock improved.
func (c *Calendar) past(now time.Time) time.Time {
	if c.Next.IsZero() {
		return c.reached(now)
	}
	return c.Next.Add(-time.Millisecond)
}

// First is the first instant after since that came due, except the next one; zero if there is none.
func (c *Calendar) First(now, since time.Time) time.Time {
	first := c.After(since)
	if first.IsZero() || first.After(c.past(now)) {
		return time.Time{}
	}
	return first
}

// Newest is the newest instant after since that came due, except the next one; zero if there is none.
func (c *Calendar) Newest(now, since time.Time) time.Time {
	if c.First(now, since).IsZero() {
		return time.Time{}
	}
	return newest(c.Schedule.Next, c.past(now))
}

// missed are instants that came due and were not begun.
type missed struct {
	first, newest time.Time // newest: the newest in the window, which is caught up
	count         int       // from first to newest; at most this many if more is set
	more          bool      // there are more than count
}

// counted says how many instants were missed, minus but.
func (m missed) counted(but int) reason.Reason {
	if m.more {
		return reason.New(reason.MoreInstants, m.count-but)
	}
	return reason.Count(m.count - but)
}

// recentUpTo finds the newest instants between floor and end, not before window. However long that span and
// however many instants it has, it computes some tens of thousands at most, and caches the result for the next
// item.
func (c *Calendar) recentUpTo(window, floor, end time.Time) recent {
	if c.found.end.Equal(end) && !end.IsZero() {
		if !c.found.floor.After(floor) {
			return c.found
		}
		floor = later(window, end.Add(-2*end.Sub(floor))) // the next item may ask for more
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
		// Since early there are too many, since late too few.
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

// from returns the instants that are not before a time.
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

// oldest is the time before which missed instants are too old to run.
func (c *Calendar) oldest(now time.Time) time.Time { return now.Add(-c.Ahead - c.Window - c.jitter()) }

// missedSince finds the instants after since, up to now. Instants ahead of the clock are not missed.
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

// CatchUp decides what an item that the host was given has to catch up. begun is the instant that it was last
// begun for. back is an instant that was handed back, zero for none: it was begun in time, and runs whatever
// the window and latest say, unless a newer one runs or was begun. latest says that the newest missed instant
// is caught up. at is the instant to run, zero for none; skip are the instants that do not run, or nil.
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

// excludedInterval is how often excluded instants of a frequent schedule are reported: one report then covers
// several.
const excludedInterval = 10 * time.Minute

// excludedAfter is the first instant after a time that is excluded; zero for none.
func (c *Calendar) excludedAfter(t time.Time) time.Time {
	if s, is := c.Schedule.(Excluding); is {
		return s.NextExcluded(t)
	}
	return time.Time{}
}

// ExcludedAt is when to call TakeExcluded next; zero for never.
func (c *Calendar) ExcludedAt() time.Time {
	if c.excluded.IsZero() {
		return c.excluded
	}
	return later(c.excluded, c.reported.Add(excludedInterval))
}

// TakeExcluded takes the excluded instants up to now that were not taken: consecutive ones, without a firing
// instant between them, as one Skip. Nothing is stored for them, because they follow from the configuration; a
// host takes those since it joined.
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

// Limits say which of an item's missed instants run one by one.
type Limits struct {
	// Busy is until when the item ran, as far as its record says: instants up to it came while it ran. At most
	// QueueMax of them run, counting the Waiting ones: the oldest, or only the newest if Newest is set.
	Busy              time.Time
	QueueMax, Waiting int
	Newest            bool
	// Shared says that QueueMax is the item's part of the host's limit, and less than the job's.
	Shared bool
	// CatchUpMax is how many later instants run at most, within the calendar's Window; 0: Each catches up none.
	CatchUpMax int
}

// Each decides what an item that the host was given has to catch up, if instants are not coalesced. begun is
// the instant up to which all are accounted for. queued came due while the item ran, missed later; both run,
// oldest first. skips are the others, up to through: later instants are left to CatchUp.
func (c *Calendar) Each(now, begun time.Time, l Limits) (queued, missed []time.Time, skips []*Skip, through time.Time) {
	queued, missed, skips, through = c.each(now, begun, l)
	for _, s := range skips {
		s.Through = c.lastUpTo(s.Through)
	}
	return queued, missed, skips, through
}

// lastUpTo is where a span of skipped instants ends: at t, or, for a Listed schedule, at its last instant up to
// t, because more may be added.
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

// whileBusy decides about the instants between two times while the item ran.
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

// QueueFull is the reason why an instant is not queued while the item runs. shared is as in Limits.
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
