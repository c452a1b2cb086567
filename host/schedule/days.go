package schedule

import "time"

// days is a rule for which days of a month match.
type days struct {
	rule dayRule
	// dates has bits 1 to 31, weekdays bits 0 (Sunday) to 6.
	dates    uint32
	weekdays uint32

	weekday int  // of nthWeekday and lastWeekday
	n       int  // of the rule
	nearest bool // to the weekday (Monday to Friday) nearest to the date
}

type dayRule int

const (
	dateAndWeekday dayRule = iota
	dateOrWeekday
	lastDate    // n days before the end of the month
	oneDate     // n
	nthWeekday  // the n-th weekday of the month
	lastWeekday // the last weekday of the month
)

// of returns the days that match in a month, as bits 1 to 31. Days that the month does not have never match.
func (d *days) of(year int, month time.Month) uint32 {
	first := int(time.Date(year, month, 1, 0, 0, 0, 0, time.UTC).Weekday())
	length := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()

	var day int
	switch d.rule {
	case dateAndWeekday, dateOrWeekday:
		// The weekdays in order from that of the 1st, five times over.
		week := uint64((d.weekdays|d.weekdays<<7)>>first) & 0x7f
		weekdays := uint32(week * (1 | 1<<7 | 1<<14 | 1<<21 | 1<<28) << 1)
		all := uint32(1<<(length+1) - 2)
		if d.rule == dateOrWeekday {
			return (d.dates | weekdays) & all
		}
		return d.dates & weekdays & all
	case lastDate:
		day = length - d.n
	case oneDate:
		day = d.n
	case nthWeekday:
		day = 1 + (d.weekday-first+7)%7 + 7*(d.n-1)
	case lastWeekday:
		day = 1 + (d.weekday-first+7)%7 + 28
		if day > length {
			day -= 7
		}
	}
	if day < 1 || day > length {
		return 0
	}
	if d.nearest {
		day = nearestWeekday(day, (first+day-1)%7, length)
	}
	return 1 << day
}

// nearestWeekday moves a Saturday to Friday and a Sunday to Monday, or the
// other way round where that would leave the month.
func nearestWeekday(day, weekday, length int) int {
	switch time.Weekday(weekday) {
	case time.Saturday:
		if day == 1 {
			return 3
		}
		return day - 1
	case time.Sunday:
		if day == length {
			return day - 2
		}
		return day + 1
	}
	return day
}
