package due

import (
	"time"

	"github.com/robfig/cron/v3"
)

// changed is a schedule that became another one: instants up to a time, at, are those of
// before, and later ones those of after. Both may be nil, which has none.
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

// remembered is how long a schedule is known that is not in force any more.
const remembered = 24 * time.Hour

// Change has instants after a time follow another schedule; nil has none. Hosts that change it
// at the same time agree which instants there are, whenever each of them calls Change. What came due
// since then is due.
func (c *Calendar) Change(s cron.Schedule, at time.Time) {
	before := c.Schedule
	if older, is := before.(changed); is && older.at.Before(at.Add(-remembered)) {
		before = older.after
	}
	c.Schedule = changed{before, s, at}
	if c.Next.IsZero() || c.Next.After(at) {
		c.Arm(at)
	}
}
