package due

import (
	"slices"
	"sort"
	"time"
)

// Start is an instant and the time when it comes due.
type Start struct{ At, Due time.Time }

// Listed is a schedule of given instants, for a job that comes after others: its instants come due when those
// have ended. The zero value has none.
type Listed struct{ starts []Start }

// NewListed returns a schedule of these instants, each given once. An instant does not come due before earlier
// ones.
func NewListed(starts []Start) *Listed {
	l := &Listed{slices.SortedFunc(slices.Values(starts), func(a, b Start) int { return a.At.Compare(b.At) })}
	for n := 1; n < len(l.starts); n++ {
		l.starts[n].Due = later(l.starts[n].Due, l.starts[n-1].Due)
	}
	return l
}

// Next is the first instant after a time; zero for none.
func (l *Listed) Next(t time.Time) time.Time {
	n := sort.Search(len(l.starts), func(n int) bool { return l.starts[n].At.After(t) })
	if n == len(l.starts) {
		return time.Time{}
	}
	return l.starts[n].At
}

// lastUpTo is the last instant up to a time; that time if there is none.
func (l *Listed) lastUpTo(t time.Time) time.Time {
	n := sort.Search(len(l.starts), func(n int) bool { return l.starts[n].At.After(t) })
	if n == 0 {
		return t
	}
	return l.starts[n-1].At
}

// Newest is the last instant; zero for none.
func (l *Listed) Newest() time.Time {
	if len(l.starts) == 0 {
		return time.Time{}
	}
	return l.starts[len(l.starts)-1].At
}

// Delay is how long after its instant a start comes due.
func (l *Listed) Delay(at time.Time) time.Duration {
	n := sort.Search(len(l.starts), func(n int) bool { return !l.starts[n].At.Before(at) })
	if n == len(l.starts) || !l.starts[n].At.Equal(at) {
		return 0
	}
	return max(l.starts[n].Due.Sub(at), 0)
}

// Jitter is the longest delay.
func (l *Listed) Jitter() (most time.Duration) {
	for _, s := range l.starts {
		most = max(most, s.Due.Sub(s.At))
	}
	return most
}

// Reached returns a time: all instants up to it are due, later ones are not.
func (l *Listed) Reached(now time.Time) time.Time {
	for _, s := range l.starts {
		if s.Due.After(now) {
			return s.At.Add(-time.Millisecond)
		}
	}
	return now
}

// Extend replaces the list with a longer one. New instants come due even if their time is past. It returns
// false for the first list, whose instants may have run.
func (c *Calendar) Extend(list *Listed) bool {
	before, grown := c.Schedule.(*Listed)
	c.Schedule = list
	if !grown {
		return false
	}
	if c.Next.IsZero() {
		c.Next = list.Next(before.Newest())
	}
	return true
}
