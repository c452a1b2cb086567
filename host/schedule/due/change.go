package due

import (
	"time"

	"github.com/robfig/cron/v3"
)

// changed is a schedule that was replaced by another one: instants up to at are those of before, later ones
// those of after. Both may be nil, which means no instants.
type changed struct {
	before, after cron.Schedule
	at            time.Time
}

// Next implements cron.Schedule.
func (c changed) Next(t time.Time) time.Time {
	if t.Before(c.at) {
		if c.before != nil {
			if n := c.before.Next(t); !n.IsZero() && !n.After(c.at) {
				return n
			}
		}
		t = c.at
	}
	if c.after == nil {
		return time.Time{}
	}
	return c.after.Next(t)
}

// of returns the schedule that an instant belongs to; it may be nil.
func (c changed) of(at time.Time) cron.Schedule {
	if at.After(c.at) {
		return c.after
	}
	return c.before
}

// Delay implements Spread.
func (c changed) Delay(at time.Time) time.Duration {
	if s, is := c.of(at).(Spread); is {
		return s.Delay(at)
	}
	return 0
}

// Jitter implements Spread.
func (c changed) Jitter() (most time.Duration) {
	for _, s := range []cron.Schedule{c.before, c.after} {
		if s, is := s.(Spread); is {
			most = max(most, s.Jitter())
		}
	}
	return most
}

// Reached implements Spread. A delayed instant of the old schedule also delays later ones, so that they stay in
// order.
func (c changed) Reached(now time.Time) time.Time {
	if before, is := c.before.(Spread); is && now.Add(-before.Jitter()).Before(c.at) {
		reached := before.Reached(now)
		if next := c.before.Next(reached); reached.Before(c.at) && reached.Before(now) && !next.IsZero() && !next.After(c.at) {
			return reached
		}
	}
	after, is := c.after.(Spread)
	if !is {
		return now
	}
	if reached := after.Reached(now); reached.After(c.at) {
		return reached
	}
	if now.Before(c.at) {
		return now
	}
	return c.at // instants of the new schedule before it do not count
}

// NextExcluded implements Excluding.
func (c changed) NextExcluded(after time.Time) time.Time {
	if s, is := c.before.(Excluding); is && after.Before(c.at) {
		if n := s.NextExcluded(after); !n.IsZero() && !n.After(c.at) {
			return n
		}
	}
	if s, is := c.after.(Excluding); is {
		return s.NextExcluded(later(after, c.at))
	}
	return time.Time{}
}

// Parameter is the job parameter of the schedule that fires at an instant; ok is false if it has
// none of its own.
func (c changed) Parameter(at time.Time) (parameter string, ok bool) {
	if s, is := c.of(at).(Parametric); is {
		return s.Parameter(at)
	}
	return "", false
}

// remembered is how long a replaced schedule is kept.
const remembered = 24 * time.Hour

// Change replaces the schedule for instants after at; nil has none. Hosts agree on the instants whenever each
// of them calls Change. Instants that came due since at are due.
func (c *Calendar) Change(s cron.Schedule, at time.Time) {
	before := c.Schedule
	if older, is := before.(changed); is && older.at.Before(at.Add(-remembered)) {
		before = older.after
	}
	c.Schedule = changed{before, s, at}
	if c.Next.IsZero() || c.Next.After(at) {
		c.arm(at)
	}
	if c.excluded.IsZero() || c.excluded.After(at) {
		c.excluded = c.excludedAfter(at)
	}
}
