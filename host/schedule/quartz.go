package schedule

import (
	"slices"
	"strings"
)

// quartz reads seconds, minutes, hours, day of month, month, day of week and
// perhaps the year.
func (p parser) quartz(texts []string, s *Schedule) (err error) {
	for _, read := range []struct {
		field field
		into  *uint64
	}{
		{number(1, "seconds", 0, 59), &s.seconds},
		{number(2, "minutes", 0, 59), &s.minutes},
		{number(3, "hours", 0, 23), &s.hours},
		{month(5), &s.months},
	} {
		read.field.strict = true
		if *read.into, err = p.list(read.field, texts[read.field.number-1]); err != nil {
			return err
		}
	}
	if s.days, err = p.days(texts); err != nil {
		return err
	}
	if len(texts) < 7 || texts[6] == "*" {
		s.anyYear = true
		return nil
	}
	year := number(7, "year", firstYear, lastYear)
	year.strict, year.maxStep = true, lastYear-firstYear
	s.years, err = p.set(year, texts[6], firstYear)
	return err
}

// days reads the two day fields, one of which is always "?".
func (p parser) days(texts []string) (days, error) {
	const dateAt, dayAt = 3, 5
	date, day := number(dateAt+1, "day of month", 1, 31), weekday(dayAt+1, 1, 7)
	date.strict, day.strict = true, true

	instead := func(at int, text string) string {
		texts := slices.Clone(texts)
		texts[at] = text
		return strings.Join(texts, " ")
	}
	switch dateText, dayText := texts[dateAt], texts[dayAt]; {
	case dateText == "?" && dayText == "?":
		return days{}, p.fail(date, "? is in field %d (%s) too, and only one of them may be; write %q", day.number, day.name, instead(dateAt, "*"))
	case dayText == "?":
		return p.dates(date, dateText)
	case dateText == "?":
		return p.weekdays(day, dayText)
	case dayText == "*":
		return days{}, p.fail(day, "* is found, and field %d (%s) is given: one of the two must be ?; write %q", date.number, date.name, instead(dayAt, "?"))
	case dateText == "*":
		return days{}, p.fail(date, "* is found, and field %d (%s) is given: one of the two must be ?; write %q", day.number, day.name, instead(dateAt, "?"))
	default:
		return days{}, p.fail(day, "%q is given, and %q in field %d (%s): one of the two must be ?; only the form with 5 fields knows both, and fires when either matches", dayText, dateText, date.number, date.name)
	}
}

const (
	everyDate    = 1<<32 - 2
	everyWeekday = 1<<7 - 1
)

// dates reads the day of the month, without its "?": a list, L, L-3, LW, L-3W
// or 15W.
func (p parser) dates(f field, text string) (d days, err error) {
	upper := strings.ToUpper(text)
	if !strings.ContainsAny(upper, "LW") {
		values, err := p.list(f, text)
		return days{dates: uint32(values), weekdays: everyWeekday}, err
	}
	if strings.Contains(text, ",") {
		return days{}, p.fail(f, "%q: L and W stand alone, not in a list", text)
	}
	upper, d.nearest = strings.CutSuffix(upper, "W")
	if before, found := strings.CutPrefix(upper, "L"); found {
		d.rule = lastDate
		if before == "" {
			return d, nil
		}
		offset, found := strings.CutPrefix(before, "-")
		if !found || !digits(offset) {
			return days{}, p.fail(f, "%q is not allowed; with L allowed are L, L-1 to L-30, LW, L-1W to L-30W", text)
		}
		f.min, f.max = 0, 30
		d.n, _, err = p.value(f, offset)
		return d, err
	}
	d.rule = oneDate
	if !d.nearest || !digits(upper) {
		return days{}, p.fail(f, "%q is not allowed; L and W are written L, L-3, LW, L-3W or 15W", text)
	}
	d.n, _, err = p.value(f, upper)
	return d, err
}

// weekdays reads the day of the week, without its "?": a list, L (Saturday,
// the last day of the week), 6L or FRIL (the last Friday of the month), 6#3 or
// FRI#3 (the third).
func (p parser) weekdays(f field, text string) (d days, err error) {
	upper := strings.ToUpper(text)
	if !strings.ContainsAny(upper, "L#") {
		values, err := p.list(f, text)
		// Quartz counts from 1, bits from 0.
		return days{dates: everyDate, weekdays: uint32(values >> 1)}, err
	}
	if strings.Contains(text, ",") {
		return days{}, p.fail(f, "%q: L and # stand alone, not in a list", text)
	}
	if upper == "L" {
		return days{dates: everyDate, weekdays: 1 << 6}, nil
	}
	day, nth, found := strings.Cut(upper, "#")
	if found {
		d.rule = nthWeekday
		if len(nth) != 1 || nth < "1" || nth > "5" {
			return days{}, p.fail(f, "%q in %q is not allowed after #; allowed are 1-5", nth, text)
		}
		d.n = int(nth[0] - '0')
	} else {
		d.rule = lastWeekday
		if day, found = strings.CutSuffix(upper, "L"); !found {
			return days{}, p.fail(f, "%q is not allowed; L is written L (Saturday) or 6L (the last Friday)", text)
		}
	}
	d.weekday, _, err = p.value(f, day)
	d.weekday--
	return d, err
}
