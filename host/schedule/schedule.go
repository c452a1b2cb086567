// Package schedule reads cron expressions and computes when they fire.
//
// Three dialects differ by their shape: 6 or 7 fields are Quartz's, as
// ElasticJob has them; 5 fields are Unix cron; a word with an @ is a
// descriptor. docs/cron.md has the tables.
//
// A [Schedule] has the one method of robfig/cron's interface of that name. It
// is a value computed once by [Parse] and never changed, so it may be used
// from any number of goroutines. Nothing here reads the clock.
package schedule

import (
	"math/bits"
	"time"

	"github.com/robfig/cron/v3"
)

var _ cron.Schedule = (*Schedule)(nil)

// Schedule is a cron expression in a time zone. Use [Parse] to make one.
type Schedule struct {
	expr    string
	dialect dialect
	loc     *time.Location
	every   time.Duration // of @every; 0 in all other dialects

	// The values that match, one bit each.
	seconds, minutes, hours, months uint64
	days                            days
	years                           set // bit 0 is firstYear
	anyYear                         bool

	everyHour bool // all 24 hours match
	dst       DST  // empty is Once
}

type dialect int

const (
	quartz dialect = iota
	unix
	descriptor
	interval
)

// Next is the first instant after t at which the schedule fires, in the schedule's zone. The zero time means
// that it never fires again. Nothing fires from the last day of the year 9999, so that the year has four digits
// in every zone, as RFC 3339 and JSON require.
//
// Fields are matched against the local time of the zone. When clocks go forward, the skipped local times fire
// once, together, at the first instant after the gap. When clocks go back, local times that occur twice fire
// the first time only, unless the schedule fires in every hour of the day: then it fires both times.
// [Schedule.With] has other rules.
//
// Next takes bounded time, usually about a microsecond, and does not allocate.
func (s *Schedule) Next(t time.Time) time.Time {
	if s.dialect == interval {
		return s.nextInterval(t)
	}
	if next := s.nextField(t); next.Unix() < date(lastYearAsked, time.December, 31) {
		return next
	}
	return time.Time{}
}

// nextField is Next for a schedule with fields, without the limit of years.
func (s *Schedule) nextField(t time.Time) time.Time {
	if t.Year() > lastYearAsked {
		return time.Time{}
	}
	// at is the earliest instant that may fire. The loop goes from one change of the zone's offset to the next,
	// but skips those far before the next matching local time.
	at := max(t.Unix()+1, -longestChange)
	for {
		z := zoneAt(at, s.loc)
		if at == z.start && z.before < z.offset && s.dst != Skip {
			if local, ok := s.nextLocal(at + z.before); ok && local < at+z.offset {
				return time.Unix(at, 0).In(s.loc)
			}
		}
		local := at + z.offset
		if z.before > z.offset && !s.everyHour && s.dst != Both {
			local = max(local, z.start+z.before)
		}
		local, ok := s.nextLocal(local)
		switch {
		case ok && local-z.offset < z.end:
			return time.Unix(local-z.offset, 0).In(s.loc)
		case z.end-at < longestChange:
			// Later local times may repeat those before at.
			at = z.end
		case !ok:
			return time.Time{}
		default:
			at = max(z.end, local-longestChange)
		}
	}
}

// nextInterval counts from the Unix epoch, so that all hosts agree without
// knowing when a job was first seen.
func (s *Schedule) nextInterval(t time.Time) time.Time {
	if y := t.Year(); y < firstYear-200 || y > firstYear+200 {
		return time.Time{} // beyond what 64 bits of nanoseconds hold
	}
	into := time.Duration(t.UnixNano()) % s.every
	if into < 0 {
		into += s.every
	}
	next := t.Round(0).Add(s.every - into)
	if next.Year() > firstYear+200 {
		return time.Time{}
	}
	return next.In(s.loc)
}

// String is the expression as it was given.
func (s *Schedule) String() string { return s.expr }

// Unix reports whether the expression was read as Unix cron: five fields, minutes
// first, no seconds.
func (s *Schedule) Unix() bool { return s.dialect == unix }

// Next lists the first n instants after from at which s fires, fewer when it
// ends before that.
func Next(s cron.Schedule, from time.Time, n int) []time.Time {
	var times []time.Time
	for range n {
		from = s.Next(from)
		if from.IsZero() {
			break
		}
		times = append(times, from)
	}
	return times
}

const (
	firstYear     = 1970 // before it nothing fires
	lastYear      = 2099 // that a year field can name, as Quartz documents
	lastYearAsked = 9999

	// The calendar repeats itself, weekdays included, every 400 years.
	calendarCycle = 400

	// longestChange is an upper bound for a change of clocks, in seconds. Samoa once skipped a day.
	longestChange = 48 * 60 * 60

	forever = 1 << 61 // seconds; differences must not overflow
)

// zone is a stretch of time with one offset from UTC, all in seconds. The next
// one may have the same offset.
type zone struct {
	start, end int64 // instants; end is not part of it, and after the one asked for
	offset     int64
	before     int64 // the offset before start, if start is near; otherwise offset
}

func zoneAt(at int64, loc *time.Location) zone {
	t := time.Unix(at, 0).In(loc)
	_, offset := t.Zone()
	z := zone{start: -forever, end: forever, offset: int64(offset), before: int64(offset)}
	start, end := t.ZoneBounds()
	if !end.IsZero() {
		z.end = end.Unix()
		if z.end <= at {
			// If the offset follows a yearly rule, package time cuts the stretches at the end of the year
			// (UTC), and gives leap years 365 days.
			z.end = date(t.UTC().Year()+1, time.January, 1)
		}
	}
	if !start.IsZero() {
		z.start = start.Unix()
		if at-z.start < longestChange {
			_, before := time.Unix(z.start-1, 0).In(loc).Zone()
			z.before = int64(before)
		}
	}
	return z
}

// nextLocal is the first local time from from that matches all fields. Local times are counted in seconds from
// 1970-01-01 00:00 on a clock that never changes.
func (s *Schedule) nextLocal(from int64) (int64, bool) {
	t := time.Unix(max(from, 0), 0).UTC()
	year, month, day := t.Date()
	candidates := s.daysOf(year, month)
	if candidates>>day&1 != 0 {
		if second, ok := s.nextSecond(t.Clock()); ok {
			return date(year, month, day) + second, true
		}
	}
	candidates = candidates >> (day + 1) << (day + 1)
	last := year + calendarCycle
	if !s.anyYear {
		last = min(last, lastYear)
	}
	for candidates == 0 {
		if month++; month > time.December {
			year, month = year+1, time.January
			if year > last {
				return 0, false
			}
		}
		candidates = s.daysOf(year, month)
	}
	first, _ := s.nextSecond(0, 0, 0)
	return date(year, month, bits.TrailingZeros32(candidates)) + first, true
}

// daysOf returns the days that match in a month, as bits 1 to 31.
func (s *Schedule) daysOf(year int, month time.Month) uint32 {
	if s.months>>month&1 == 0 || (!s.anyYear && !s.years.has(year-firstYear)) {
		return 0
	}
	return s.days.of(year, month)
}

// nextSecond is the first second of the day that matches, not before the given
// time.
func (s *Schedule) nextSecond(hour, minute, second int) (int64, bool) {
	if next(s.hours, hour) == hour {
		if next(s.minutes, minute) == minute {
			if second := next(s.seconds, second); second < none {
				return secondOfDay(hour, minute, second), true
			}
		}
		if minute := next(s.minutes, minute+1); minute < none {
			return secondOfDay(hour, minute, next(s.seconds, 0)), true
		}
	}
	if hour := next(s.hours, hour+1); hour < none {
		return secondOfDay(hour, next(s.minutes, 0), next(s.seconds, 0)), true
	}
	return 0, false
}

func secondOfDay(hour, minute, second int) int64 { return int64(hour*3600 + minute*60 + second) }

// next returns the lowest bit in values that is not below from.
func next(values uint64, from int) int { return bits.TrailingZeros64(values >> from << from) }

const none = 64

func date(year int, month time.Month, day int) int64 {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix()
}

// set is a set of small numbers, up to 191.
type set [3]uint64

func (s *set) add(n int)     { s[n/64] |= 1 << (n % 64) }
func (s set) has(n int) bool { return n >= 0 && n < 64*len(s) && s[n/64]>>(n%64)&1 != 0 }
