package schedule

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
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

	switch dateText, dayText := texts[dateAt], texts[dayAt]; {
	case dateText == "?" && dayText == "?":
		return days{}, p.fail(date, "? is in field %d (%s) too, and only one of them may be%s", day.number, day.name, instead(texts, dateAt, "*"))
	case dayText == "?":
		return p.dates(date, dateText)
	case dateText == "?":
		return p.weekdays(day, dayText)
	case dayText == "*":
		return days{}, p.fail(day, "* is found, and field %d (%s) is given: one of the two must be ?%s", date.number, date.name, instead(texts, dayAt, "?"))
	case dateText == "*":
		texts = slices.Clone(texts)
		texts[dateAt] = "?"
		hint := instead(texts, dayAt, namedDays(dayText, 1))
		if other := instead(texts, dayAt, namedDays(dayText, 0)); hint == "" {
			hint = other // accepts 0, so that 1 is Monday
		} else if other != "" && other != hint {
			hint += ", or" + strings.TrimPrefix(other, "; write") + " if 1 is Monday, as with 5 fields"
		}
		return days{}, p.fail(date, "* is found, and field %d (%s) is given: one of the two must be ?%s", day.number, day.name, hint)
	default:
		return days{}, p.fail(day, "%q is given, and %q in field %d (%s): one of the two must be ?; only the form with 5 fields knows both, and fires when either matches", dayText, dateText, date.number, date.name)
	}
}

// instead proposes the expression with another text in one field; empty if that would be invalid too.
func instead(texts []string, at int, text string) string {
	texts = slices.Clone(texts)
	texts[at] = text
	expr := strings.Join(texts, " ")
	if _, err := Parse(expr, time.UTC); err != nil {
		return ""
	}
	return fmt.Sprintf("; write %q", expr)
}

// namedDays replaces the days of a list by their names, if sunday is Sunday's number. Everything else stays.
func namedDays(text string, sunday int) string {
	if strings.ContainsAny(text, "/L#") {
		return text // Quartz takes no step after a name; the rest is Quartz's own
	}
	names := weekday(0, 0, 0).names
	return regexp.MustCompile(`\d+`).ReplaceAllStringFunc(text, func(n string) string {
		day, err := strconv.Atoi(n)
		if day -= sunday; err != nil || day < 0 || day > 7-sunday {
			return n
		}
		return names[day%7]
	})
}

// Surprise explains how days of the week were read that may have been meant as in Unix cron: a working week or
// a weekend as numbers. It is empty for other expressions.
func (s *Schedule) Surprise() string {
	texts := strings.Fields(s.expr)
	if s.dialect != quartz || !slices.Contains([]string{"1-5", "1-6", "6-7", "6,7", "1,2,3,4,5"}, texts[5]) {
		return ""
	}
	return fmt.Sprintf("cron %q: day of week %s is %s, since 1 is Sunday with 6 or 7 fields; write %s if 1 is to be Monday", s.expr, texts[5], namedDays(texts[5], 1), namedDays(texts[5], 0))
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
