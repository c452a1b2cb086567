package schedule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Parse reads an expression whose fields are local times of loc; nil is the host's zone. An error names the
// field, what was found and what is allowed. An expression that matches no date at all (30 February) is an
// error too; one whose years are over is not.
//
// An expression that is accepted in the Quartz dialect means what it means to Quartz. Expressions that Quartz
// silently reads otherwise than written are refused.
func Parse(expr string, loc *time.Location) (*Schedule, error) {
	if loc == nil {
		loc = time.Local
	}
	if len(expr) > longestExpression {
		return nil, fmt.Errorf("cron %q...: %d characters long, at most %d are allowed", expr[:40], len(expr), longestExpression)
	}
	p := parser{expr}
	s := &Schedule{expr: expr, loc: loc}
	fields := strings.Fields(expr)
	var err error
	switch {
	case len(fields) == 0:
		err = fmt.Errorf("cron %q: empty", expr)
	case fields[0][0] == '@':
		err = p.descriptor(fields, s)
	case strings.HasPrefix(fields[0], "TZ=") || strings.HasPrefix(fields[0], "CRON_TZ="):
		err = fmt.Errorf("cron %q: %s: the time zone has a setting of its own, timeZone", expr, fields[0])
	case len(fields) == 5:
		s.dialect = unix
		err = p.unix(fields, s)
	case len(fields) == 6 || len(fields) == 7:
		err = p.quartz(fields, s)
	default:
		err = fmt.Errorf("cron %q: %d fields found; 6 or 7 are Quartz (seconds, minutes, hours, day of month, month, day of week, and the year if wanted), 5 are Unix cron (minutes to day of week)", expr, len(fields))
	}
	if err != nil {
		return nil, err
	}
	s.everyHour = s.hours == 1<<24-1
	if s.dialect != interval {
		if _, ok := s.nextLocal(0); !ok {
			return nil, fmt.Errorf("cron %q: never fires: the days, months and years given never come together", expr)
		}
	}
	return s, nil
}

const longestExpression = 1000

// A fire and its end are two writes to the registry, and ends are batched for 50 ms: with a shorter interval a
// fire would not end before the next.
const shortestInterval = 100 * time.Millisecond

// field says what is valid in one field of an expression.
type field struct {
	number   int // as users count
	name     string
	min, max int
	last     int // of *; max, except for the Unix day of the week, where 7 is 0
	maxStep  int
	names    []string // names of the values, starting at min
	strict   bool     // Quartz: names have no steps and do not mix with numbers
}

func number(n int, name string, min, max int) field {
	return field{number: n, name: name, min: min, max: max, last: max, maxStep: max}
}

func (f field) named(names ...string) field {
	f.names = names
	return f
}

func month(n int) field {
	return number(n, "month", 1, 12).named("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
}

func weekday(n, min, max int) field {
	return number(n, "day of week", min, max).named("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
}

// allowed says what the field takes, for messages.
func (f field) allowed() string {
	s := fmt.Sprintf("%d-%d", f.min, f.max)
	if f.name == "day of week" {
		s += fmt.Sprintf(" (%d = SUN)", f.min)
	}
	if f.names != nil {
		s += fmt.Sprintf(" or %s-%s", f.names[0], f.names[len(f.names)-1])
	}
	return s
}

type parser struct{ expr string }

func (p parser) fail(f field, format string, args ...any) error {
	return fmt.Errorf("cron %q: field %d (%s): %s", p.expr, f.number, f.name, fmt.Sprintf(format, args...))
}

// list reads a field without the letters for special days.
func (p parser) list(f field, text string) (uint64, error) {
	s, err := p.set(f, text, 0)
	return s[0], err
}

// set reads a list; bit 0 of the result is the value zero.
func (p parser) set(f field, text string, zero int) (set, error) {
	var s set
	for entry := range strings.SplitSeq(text, ",") {
		low, high, step, err := p.entry(f, entry)
		if err != nil {
			return set{}, err
		}
		span := f.last - f.min + 1
		if low > f.last { // the Unix Sunday as 7
			low -= span
			if high > f.last {
				high -= span
			}
		}
		if high < low {
			high += span
		}
		for v := low; v <= high; v += step {
			if v > f.last {
				s.add(v - span - zero)
			} else {
				s.add(v - zero)
			}
		}
	}
	return s, nil
}

// entry reads one entry of a list: *, a value or a range, and perhaps a step.
// High is below low in a range that wraps around.
func (p parser) entry(f field, entry string) (low, high, step int, err error) {
	base, stepText, stepped := strings.Cut(entry, "/")
	step = 1
	if stepped {
		if step, err = strconv.Atoi(stepText); err != nil || !digits(stepText) {
			return 0, 0, 0, p.fail(f, "step %q in %q is not a number", stepText, entry)
		}
		if step < 1 || step > f.maxStep {
			return 0, 0, 0, p.fail(f, "step %d in %q is out of range 1-%d", step, entry, f.maxStep)
		}
	}
	if base == "*" || (base == "" && stepped && f.strict) {
		return f.min, f.last, step, nil
	}
	if base == "" {
		return 0, 0, 0, p.fail(f, "%q has an empty entry; allowed are *, %s, ranges, lists and steps", entry, f.allowed())
	}
	from, to, ranged := strings.Cut(base, "-")
	low, lowNamed, err := p.value(f, from)
	if err != nil {
		return 0, 0, 0, err
	}
	high, highNamed := low, lowNamed
	if ranged {
		if high, highNamed, err = p.value(f, to); err != nil {
			return 0, 0, 0, err
		}
		if f.names == nil && f.min == firstYear && high < low {
			return 0, 0, 0, p.fail(f, "%q ends before it begins", entry)
		}
	} else if stepped {
		high = f.last
	}
	if f.strict && lowNamed != highNamed {
		return 0, 0, 0, p.fail(f, "%q mixes a name and a number, which Quartz cannot read", entry)
	}
	if f.strict && stepped && lowNamed {
		return 0, 0, 0, p.fail(f, "%q: Quartz ignores a step after a name; use numbers, %s", entry, f.allowed())
	}
	return low, high, step, nil
}

// value reads a number or a name.
func (p parser) value(f field, text string) (v int, named bool, err error) {
	if i := slices.Index(f.names, strings.ToUpper(text)); i >= 0 {
		return f.min + i, true, nil
	}
	if !digits(text) {
		hint := ""
		switch {
		case text == "?" && f.strict:
			hint = "; ? is only for the day fields, alone"
		case text == "?":
			hint = "; ? is Quartz's, whose form has 6 or 7 fields with the seconds first: here write *"
		case !f.strict && (f.name == "day of week" || f.name == "day of month") && strings.ContainsAny(strings.ToUpper(text), "LW#"):
			hint = "; L, W and # are Quartz's, whose form has 6 or 7 fields with the seconds first"
		}
		return 0, false, p.fail(f, "%q is not allowed; allowed are *, %s, ranges, lists and steps%s", text, f.allowed(), hint)
	}
	if v, err = strconv.Atoi(text); err != nil || v < f.min || v > f.max {
		return 0, false, p.fail(f, "%s is out of range %s", text, f.allowed())
	}
	return v, false, nil
}

func digits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// unix reads minutes, hours, day of month, month, day of week.
func (p parser) unix(texts []string, s *Schedule) (err error) {
	s.anyYear = true
	s.seconds = 1
	date, day := number(3, "day of month", 1, 31), weekday(5, 0, 7)
	day.last = 6
	var dates, weekdays uint64
	for i, read := range []struct {
		field field
		into  *uint64
	}{
		{number(1, "minutes", 0, 59), &s.minutes},
		{number(2, "hours", 0, 23), &s.hours},
		{date, &dates},
		{month(4), &s.months},
		{day, &weekdays},
	} {
		if *read.into, err = p.list(read.field, texts[i]); err != nil {
			return err
		}
	}
	s.days = days{dates: uint32(dates), weekdays: uint32(weekdays)}
	// crontab(5): either day may match if neither field begins with a *.
	if texts[2][0] != '*' && texts[4][0] != '*' {
		s.days.rule = dateOrWeekday
	}
	return nil
}

// descriptor reads @daily and the like.
func (p parser) descriptor(texts []string, s *Schedule) error {
	word := strings.ToLower(texts[0])
	if word == "@every" {
		s.dialect = interval
		if len(texts) != 2 {
			return fmt.Errorf("cron %q: one duration must follow @every, such as 90s or 1h30m", p.expr)
		}
		d, err := time.ParseDuration(texts[1])
		if err != nil {
			return fmt.Errorf("cron %q: %q is not a duration; write it with the units h, m, s and ms, such as 1h30m", p.expr, texts[1])
		}
		if d < shortestInterval {
			return fmt.Errorf("cron %q: %s is too short, at least %s are allowed", p.expr, d, shortestInterval)
		}
		s.every = d
		return nil
	}
	expr := quartzOf(word)
	if expr == "" || len(texts) != 1 {
		return fmt.Errorf("cron %q: unknown descriptor; allowed are @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly and @every with a duration", p.expr)
	}
	if err := p.quartz(strings.Fields(expr), s); err != nil {
		return err
	}
	s.dialect = descriptor
	return nil
}

// quartzOf returns the expression for a descriptor; empty if it is none.
func quartzOf(word string) string {
	switch strings.ToLower(word) {
	case "@yearly", "@annually":
		return "0 0 0 1 1 ?"
	case "@monthly":
		return "0 0 0 1 * ?"
	case "@weekly":
		return "0 0 0 ? * 1"
	case "@daily", "@midnight":
		return "0 0 0 * * ?"
	case "@hourly":
		return "0 0 * * * ?"
	}
	return ""
}
