// Package calendar has sets of days: holidays, working days, closures. They are read from files beside job
// definitions, and from texts in a job's configuration.
//
// A calendar has days and no time zone: the caller's zone decides when a day begins.
package calendar

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Day counts days from 1970-01-01, which is 0.
type Day int32

// DayOf is the day of a time in its own zone.
func DayOf(t time.Time) Day {
	year, month, day := t.Date()
	return dayOf(year, month, day)
}

func dayOf(year int, month time.Month, day int) Day {
	return Day(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix() / (24 * 60 * 60))
}

// Date is the day's date.
func (d Day) Date() (year int, month time.Month, day int) {
	return time.Unix(int64(d)*24*60*60, 0).UTC().Date()
}

// String is the date, such as 2026-12-24.
func (d Day) String() string {
	return time.Unix(int64(d)*24*60*60, 0).UTC().Format(time.DateOnly)
}

func (d Day) weekday() time.Weekday { return time.Weekday((int(d)%7 + 7 + 4) % 7) } // 1970-01-01 is a Thursday

// The days that a calendar can name by their dates.
var (
	firstDay = dayOf(1970, time.January, 1)
	lastDay  = dayOf(2099, time.December, 31)
)

func parseDay(text string) (Day, error) {
	t, err := time.Parse(time.DateOnly, text)
	if err != nil || DayOf(t) < firstDay || DayOf(t) > lastDay {
		return 0, fmt.Errorf("found %q, expected a date such as 2026-12-24, from 1970 to 2099", clip(text))
	}
	return DayOf(t), nil
}

// span is some days in a row; both ends count.
type span struct{ first, last Day }

// Days is a set of days. It is not changed once it is made; the zero value has none.
type Days struct {
	spans    []span     // ascending, with at least a day between two
	weekdays uint8      // bit 0 is Sunday
	yearly   [13]uint32 // by month, bits 1 to 31
}

// Has reports whether a day is in the set.
func (d *Days) Has(day Day) bool {
	if d.weekdays>>day.weekday()&1 != 0 {
		return true
	}
	if d.yearly != ([13]uint32{}) {
		if _, month, date := day.Date(); d.yearly[month]>>date&1 != 0 {
			return true
		}
	}
	_, found := slices.BinarySearchFunc(d.spans, day, func(s span, day Day) int {
		switch {
		case s.last < day:
			return -1
		case s.first > day:
			return 1
		}
		return 0
	})
	return found
}

// empty reports whether the set has no days.
func (d *Days) empty() bool {
	return len(d.spans) == 0 && d.weekdays == 0 && d.yearly == [13]uint32{}
}

// set is a set of days that is being made.
type set struct {
	days  Days
	count int // of the spans, before they are merged
}

// mostSpans bounds the single days and ranges of a calendar.
const mostSpans = 5000

var errTooMany = fmt.Errorf("has more than %d single days and ranges, expected at most that", mostSpans)

func (s *set) add(first, last Day) error {
	if s.count++; s.count > mostSpans {
		return errTooMany
	}
	s.days.spans = append(s.days.spans, span{first, last})
	return nil
}

// made puts the spans in order, and joins those that touch each other.
func (s *set) made() *Days {
	slices.SortFunc(s.days.spans, func(a, b span) int { return int(a.first) - int(b.first) })
	var merged []span
	for _, next := range s.days.spans {
		if n := len(merged); n > 0 && next.first <= merged[n-1].last+1 {
			merged[n-1].last = max(merged[n-1].last, next.last)
			continue
		}
		merged = append(merged, next)
	}
	s.days.spans = merged
	return &s.days
}

// text is the form of a set of days in a job's configuration.
type text struct {
	Days     []string `json:"days,omitempty"` // 2026-12-24, or 2026-12-24/2027-01-02
	Weekdays []string `json:"weekdays,omitempty"`
	Yearly   []string `json:"yearly,omitempty"`
}

var weekdayNames = [...]string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}

// Text is the set as a job's configuration has it: the same text for the same set of single
// days, weekdays and yearly days. [ParseText] reads it.
func (d *Days) Text() string {
	var t text
	for _, s := range d.spans {
		if s.first == s.last {
			t.Days = append(t.Days, s.first.String())
		} else {
			t.Days = append(t.Days, s.first.String()+"/"+s.last.String())
		}
	}
	for n, name := range weekdayNames {
		if d.weekdays>>n&1 != 0 {
			t.Weekdays = append(t.Weekdays, name)
		}
	}
	for month, dates := range d.yearly {
		for date := 1; date <= 31; date++ {
			if dates>>date&1 != 0 {
				t.Yearly = append(t.Yearly, fmt.Sprintf("%02d-%02d", month, date))
			}
		}
	}
	out, _ := json.Marshal(t) // texts always have a JSON form
	return string(out)
}

// MaxText is the longest text of a calendar, in bytes.
const MaxText = 64 << 10

// ParseText reads what [Days.Text] has written.
func ParseText(s string) (*Days, error) {
	if len(s) > MaxText {
		return nil, fmt.Errorf("found %d bytes, expected at most %d", len(s), MaxText)
	}
	var t text
	if err := json.Unmarshal([]byte(s), &t); err != nil {
		return nil, fmt.Errorf("found %q, expected the days of a calendar: %w", clip(s), err)
	}
	var made set
	for _, days := range t.Days {
		from, to, isRange := strings.Cut(days, "/")
		if !isRange {
			to = from
		}
		if err := made.between(from, to); err != nil {
			return nil, err
		}
	}
	for _, name := range t.Weekdays {
		if err := made.weekday(name); err != nil {
			return nil, err
		}
	}
	for _, date := range t.Yearly {
		if err := made.yearly(date); err != nil {
			return nil, err
		}
	}
	return made.made(), nil
}

func (s *set) between(from, to string) error {
	first, err := parseDay(from)
	if err != nil {
		return err
	}
	last, err := parseDay(to)
	if err != nil {
		return err
	}
	if last < first {
		return fmt.Errorf("found a range from %s to %s, expected one that ends when it begins, or later", first, last)
	}
	return s.add(first, last)
}

func (s *set) weekday(name string) error {
	for n, known := range weekdayNames {
		if strings.EqualFold(known, name) || strings.EqualFold(time.Weekday(n).String(), name) {
			s.days.weekdays |= 1 << n
			return nil
		}
	}
	return fmt.Errorf("found %q, expected a day of the week: %s", clip(name), strings.Join(weekdayNames[:], ", "))
}

func (s *set) yearly(date string) error {
	// 2024 is a leap year: 29 February is in the years that have one.
	t, err := time.Parse(time.DateOnly, "2024-"+date)
	if err != nil {
		return fmt.Errorf("found %q, expected a month and a day such as 12-25", clip(date))
	}
	s.days.yearly[t.Month()] |= 1 << t.Day()
	return nil
}

// Filter says on which days a job fires: if Include is set, on days of one of them; never on days of Exclude.
type Filter struct{ Include, Exclude []*Days }

// Allows reports whether the job fires on a day.
func (f *Filter) Allows(day Day) bool {
	has := func(d *Days) bool { return d.Has(day) }
	return (len(f.Include) == 0 || slices.ContainsFunc(f.Include, has)) && !slices.ContainsFunc(f.Exclude, has)
}

// furthest is how many days Next searches: as many as calendars can name.
var furthest = lastDay - firstDay

// Next returns the first day from one on that is allowed, or with allowed false the first that is not; ok is
// false if there is none in 130 years.
func (f *Filter) Next(from Day, allowed bool) (day Day, ok bool) {
	for day = from; day <= from+furthest; day++ {
		if f.Allows(day) == allowed {
			return day, true
		}
	}
	return 0, false
}

// ErrNoDay says that calendars leave no day on which a job could fire.
var ErrNoDay = errors.New("the calendars leave no day from 2026 to 2099 on which the job could fire")

// Check returns ErrNoDay if no day from 2026 to 2099 is allowed. The result does not depend on the present day,
// so that all hosts agree.
func (f *Filter) Check() error {
	if day, ok := f.Next(dayOf(2026, time.January, 1), true); !ok || day > lastDay {
		return ErrNoDay
	}
	return nil
}
