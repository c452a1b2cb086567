package schedule

import (
	"math/bits"
	"time"
)

// Fields are a schedule's fields as numbers, ascending, for describing it in words.
type Fields struct {
	// Every is the interval of @every; all other fields are empty then.
	Every                   time.Duration
	Seconds, Minutes, Hours []int
	Days                    Days
	// Months and Years are empty if all match.
	Months, Years []int
}

// Days says on which days a schedule fires.
type Days struct {
	// Dates and Weekdays (0 is Sunday) must both match, or with Either only one of them; each is empty if all
	// match.
	Dates, Weekdays []int
	Either          bool
	// Nth is 1 to 5 for the first to the fifth of the one weekday in a month, -1 for
	// the last.
	Nth int
	// Last means the last day of a month, or Before days before it.
	Last   bool
	Before int
	// Nearest means the weekday, Monday to Friday, that is nearest to the one date or
	// to Last.
	Nearest bool
}

// Fields are those of the schedule.
func (s *Schedule) Fields() Fields {
	if s.dialect == interval {
		return Fields{Every: s.every}
	}
	f := Fields{Seconds: numbers(s.seconds), Minutes: numbers(s.minutes), Hours: numbers(s.hours), Days: s.days.fields()}
	if s.months != 1<<13-2 {
		f.Months = numbers(s.months)
	}
	if !s.anyYear {
		for n := range lastYear - firstYear + 1 {
			if s.years.has(n) {
				f.Years = append(f.Years, firstYear+n)
			}
		}
	}
	return f
}

func (d *days) fields() Days {
	out := Days{Nearest: d.nearest}
	switch d.rule {
	case lastDate:
		out.Last, out.Before = true, d.n
	case oneDate:
		out.Dates = []int{d.n}
	case nthWeekday:
		out.Weekdays, out.Nth = []int{d.weekday}, d.n
	case lastWeekday:
		out.Weekdays, out.Nth = []int{d.weekday}, -1
	case dateAndWeekday, dateOrWeekday:
		out.Either = d.rule == dateOrWeekday
		if d.dates != everyDate {
			out.Dates = numbers(uint64(d.dates))
		}
		if d.weekdays != everyWeekday {
			out.Weekdays = numbers(uint64(d.weekdays))
		}
	}
	return out
}

// numbers are the bits that are set.
func numbers(set uint64) []int {
	var list []int
	for ; set != 0; set &= set - 1 {
		list = append(list, bits.TrailingZeros64(set))
	}
	return list
}
