// Package timetable says at which instants a job fires by its configuration: its cron or crons
// and their zones, the bounds of its life, its calendars, and how far its starts are spread.
// Everybody who asks for the instants of a job asks here.
package timetable

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/wasmjob/wasmjob/host/config/calendar"
	"github.com/wasmjob/wasmjob/host/schedule"
)

// Timetable is the instants of a job. Use [New] to make one. It is not changed after that, so
// it may be used from any number of goroutines, and it does not read the clock.
type Timetable struct {
	// plain is the only schedule of a job that has nothing but a cron and a zone.
	plain *schedule.Schedule
	lines []line
	zone  *time.Location // the job's
	// start and end bound the instants, both included; zero for no bound.
	start, end time.Time
	jitter     jitter
}

// line is one schedule of a job.
type line struct {
	schedule cron.Schedule
	zone     *time.Location
	// filter is nil if all days are allowed; then moves has no meaning: an instant of a day that
	// is not allowed comes on the next day that is.
	filter    *calendar.Filter
	moves     bool
	parameter *string // nil for the job's
}

// once is a schedule with one instant.
type once struct{ at time.Time }

// Next implements cron.Schedule.
func (o once) Next(t time.Time) time.Time {
	if t.Before(o.at) {
		return o.at
	}
	return time.Time{}
}

// Next is the first instant after a time, in the job's zone; the zero time if there is none.
func (t *Timetable) Next(after time.Time) time.Time {
	if t.plain != nil {
		return t.plain.Next(after)
	}
	return t.first(after, (*line).next)
}

// first is the first of the instants after a time that the schedules have, within the bounds.
func (t *Timetable) first(after time.Time, next func(*line, time.Time) time.Time) time.Time {
	if after.Before(t.start) {
		after = t.start.Add(-1)
	}
	first := time.Time{}
	for i := range t.lines {
		first = earlier(first, next(&t.lines[i], after))
	}
	if first.IsZero() || (!t.end.IsZero() && first.After(t.end)) {
		return time.Time{}
	}
	return first.In(t.zone)
}

// earlier is the earlier of two times; zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// NextExcluded is the first instant after a time that a calendar excludes and at which the job
// does not fire by another of its schedules; the zero time if there is none. An instant that
// was moved to another day counts as excluded.
func (t *Timetable) NextExcluded(after time.Time) time.Time {
	for t.plain == nil {
		after = t.first(after, (*line).nextExcluded)
		if after.IsZero() || !t.Next(after.Add(-1)).Equal(after) {
			return after
		}
	}
	return time.Time{}
}

// Parameter is the job parameter of the schedule that fires at an instant; ok is false if that
// is the job's own. Of several schedules the first in the list counts.
func (t *Timetable) Parameter(at time.Time) (parameter string, ok bool) {
	if t.plain != nil {
		return "", false
	}
	for i := range t.lines {
		if l := &t.lines[i]; l.next(at.Add(-1)).Equal(at) {
			if l.parameter == nil {
				return "", false
			}
			return *l.parameter, true
		}
	}
	return "", false
}

// Bounds are the first and the last time at which the job may fire, both included; zero for
// none.
func (t *Timetable) Bounds() (start, end time.Time) { return t.start, t.end }

// Unix reports whether the job has one cron, which was read as Unix cron; see [schedule.Schedule].
func (t *Timetable) Unix() bool { return t.plain != nil && t.plain.Unix() }

// Surprise says how days of the week were read that may have been meant in another way; empty
// for all others.
func (t *Timetable) Surprise() string {
	for _, l := range t.lines {
		if s, is := l.schedule.(*schedule.Schedule); is && s.Surprise() != "" {
			return s.Surprise()
		}
	}
	return ""
}

// next is the first instant of a schedule after a time.
func (l *line) next(after time.Time) time.Time {
	if l.filter == nil {
		return l.schedule.Next(after)
	}
	kept := l.kept(after, true)
	if !l.moves {
		return kept
	}
	return earlier(kept, l.moved(after, kept))
}

func (l *line) nextExcluded(after time.Time) time.Time {
	if l.filter == nil {
		return time.Time{}
	}
	return l.kept(after, false)
}

// kept is the first instant after a time that its own day allows, or with allowed false does
// not. It is looked for as far ahead as days are: a cron of Mondays beside a calendar without them has none, and each of its
// instants until the year 9999 would be looked at.
func (l *line) kept(after time.Time, allowed bool) time.Time {
	end := after.AddDate(0, 0, furthest)
	for n := l.schedule.Next(after); !n.IsZero() && !n.After(end); {
		day := calendar.DayOf(n.In(l.zone))
		open, ok := l.filter.Next(day, allowed)
		if !ok {
			return time.Time{}
		}
		if open == day {
			return n
		}
		if begin := startOf(open, l.zone).Add(-1); begin.After(n) {
			n = begin
		}
		n = l.schedule.Next(n)
	}
	return time.Time{}
}

// furthest is how many days ahead an instant is looked for that comes from another day.
const furthest = 130 * 366

// longestMove is how many days an instant may be moved at most.
const longestMove = 366

// moved is the first instant after a time that comes from a day that is not allowed; zero if
// there is none up to a limit, if that is not zero.
func (l *line) moved(after, limit time.Time) time.Time {
	today := calendar.DayOf(after.In(l.zone))
	for from := today; from <= today+furthest; from++ {
		// The next day that is allowed and has a day before it that is not.
		closed, ok := l.filter.Next(from-1, false)
		if !ok {
			return time.Time{}
		}
		day, ok := l.filter.Next(closed, true)
		if !ok || (!limit.IsZero() && startOf(day, l.zone).After(limit)) {
			return time.Time{}
		}
		first := time.Time{}
		for source := day - 1; source >= day-longestMove && !l.filter.Allows(source); source-- {
			first = earlier(first, l.movedFrom(source, day, after))
		}
		if !first.IsZero() {
			return first
		}
		from = day
	}
	return time.Time{}
}

// movedFrom is the first instant of a day that comes after a time when it is moved to another
// day; zero if there is none.
func (l *line) movedFrom(source, day calendar.Day, after time.Time) time.Time {
	from := startOf(source, l.zone)
	// Where clocks are not changed, what is later by the clock comes later.
	inOrder := !changes(source, l.zone) && !changes(day, l.zone)
	if inOrder && calendar.DayOf(after.In(l.zone)) == day {
		from = moveTo(after.In(l.zone), source)
	}
	first := time.Time{}
	for n := l.schedule.Next(from.Add(-1)); !n.IsZero(); n = l.schedule.Next(n) {
		local := n.In(l.zone)
		if calendar.DayOf(local) > source {
			break
		}
		to := moveTo(local, day)
		if calendar.DayOf(local) < source || !to.After(after) {
			continue
		}
		first = earlier(first, to)
		if inOrder {
			break
		}
	}
	return first
}

// changes reports whether clocks are changed on a day.
func changes(day calendar.Day, zone *time.Location) bool {
	return startOf(day+1, zone).Sub(startOf(day, zone)) != 24*time.Hour
}

// moveTo is the same local time on another day.
func moveTo(at time.Time, day calendar.Day) time.Time {
	hour, minute, second := at.Clock()
	return localTime(day, hour, minute, second, at.Nanosecond(), at.Location())
}

// startOf is the first instant of a day.
func startOf(day calendar.Day, zone *time.Location) time.Time {
	return localTime(day, 0, 0, 0, 0, zone)
}

// localTime is a local time of a day: the first of two, or the first instant after the gap
// that has it. [time.Date] does not say which one it returns.
func localTime(day calendar.Day, hour, minute, second, nano int, zone *time.Location) time.Time {
	year, month, date := day.Date()
	local := time.Date(year, month, date, hour, minute, second, nano, time.UTC)
	// begin is a time in a stretch with one offset; clocks differ from UTC by less than a day.
	for begin := local.Add(-26 * time.Hour); ; {
		_, offset := begin.In(zone).Zone()
		_, end := begin.In(zone).ZoneBounds()
		if !end.IsZero() && !end.After(begin) {
			end = time.Date(begin.UTC().Year()+1, time.January, 1, 0, 0, 0, 0, time.UTC) // see zoneAt in host/schedule
		}
		at := local.Add(-time.Duration(offset) * time.Second)
		if !end.IsZero() && !at.Before(end) {
			begin = end
			continue
		}
		if at.Before(begin) { // the gap ends where this stretch begins
			at = begin
		}
		return at.In(zone)
	}
}

// jitter spreads the starts of a job. The zero jitter does not.
type jitter struct {
	most   time.Duration
	stable time.Duration // by how much each start is put off
	random bool          // by another time for each instant
	seed   []byte
}

func newJitter(most time.Duration, random bool, namespace, job string) jitter {
	j := jitter{most: most, random: random, seed: []byte(namespace + "\x00" + job + "\x00")}
	j.stable = j.share(j.seed)
	return j
}

// share is a part of the jitter that follows from a text: whole milliseconds, less than all
// of it.
func (j *jitter) share(text []byte) time.Duration {
	sum := sha256.Sum256(text)
	steps := uint64(j.most / time.Millisecond)
	if steps == 0 {
		return 0
	}
	return time.Duration(binary.BigEndian.Uint64(sum[:])%steps) * time.Millisecond
}

// Delay is by how much the start of an instant is put off: on all hosts by the same.
func (t *Timetable) Delay(at time.Time) time.Duration {
	switch {
	case t.jitter.most == 0:
		return 0
	case !t.jitter.random:
		return t.jitter.stable
	}
	return t.jitter.share(binary.BigEndian.AppendUint64(t.jitter.seed[:len(t.jitter.seed):len(t.jitter.seed)], uint64(at.UnixMilli())))
}

// Jitter is the most by which a start is put off.
func (t *Timetable) Jitter() time.Duration { return t.jitter.most }

// Reached is the time up to which all instants are due to start now, and none after it. It is
// now, unless an instant before that is put off.
func (t *Timetable) Reached(now time.Time) time.Time {
	if t.jitter.most == 0 {
		return now
	}
	for n := t.Next(now.Add(-t.jitter.most)); ; n = t.Next(n) {
		if n.IsZero() || n.After(now) {
			return now
		}
		if n.Add(t.Delay(n)).After(now) {
			return n.Add(-time.Millisecond)
		}
	}
}
