package calendar

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	ics "github.com/arran4/golang-ical"
	"github.com/teambition/rrule-go"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Bounds for an iCalendar file: a rule of recurrence can have endless days, or search for one forever.
const (
	mostRecurring = 100
	mostInterval  = 1000
	longestRule   = 500 // characters
	// mostSteps bounds the cost of a file's rules: the days, weeks, months and years that the library iterates
	// over, about a microsecond each. A rule with BYSETPOS costs stepsBySetPos times as much, and stepsOfYear
	// more for each year.
	mostSteps     = 800_000
	stepsBySetPos = 4
	stepsOfYear   = 45
)

// readICS reads the days of an iCalendar file: those of its events, which have to be whole days.
func readICS(_ string, data []byte) (*Days, []Problem) {
	calendar, err := parseICS(data)
	if err != nil {
		return nil, []Problem{{Message: words.Reason("is no iCalendar file: " + err.Error())}}
	}
	r := icsReader{lines: eventLines(data), moved: make(map[string]map[Day]bool)}
	events := calendar.Events()
	for n, e := range events {
		r.at = n
		r.note(e)
	}
	for n, e := range events {
		r.at = n
		if err := r.event(e); err != nil {
			r.problem(e, err)
			if len(r.problems) >= words.MostProblems || errors.Is(err, errTooMany) {
				break
			}
		}
	}
	if len(r.problems) > 0 {
		return nil, r.problems
	}
	return r.set.made(), nil
}

// parseICS takes the file apart.
func parseICS(data []byte) (calendar *ics.Calendar, err error) {
	broken := guarded(func() { calendar, err = ics.ParseCalendar(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff")))) })
	if broken != nil {
		return nil, fmt.Errorf("it cannot be taken apart: %w", broken)
	}
	return calendar, err
}

// guarded calls a third-party library with data from a file, and returns its panic as an error.
func guarded(call func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	call()
	return nil
}

// eventLines are the lines on which events begin.
func eventLines(data []byte) (lines []int) {
	n := 0
	for line := range bytes.Lines(data) {
		if n++; bytes.EqualFold(bytes.TrimSpace(line), []byte("BEGIN:VEVENT")) {
			lines = append(lines, n)
		}
	}
	return lines
}

// icsReader reads the events of one file.
type icsReader struct {
	set       set
	lines     []int
	at        int // which event is being read
	recurring int
	steps     int // of all rules
	// moved has, by event, the occurrences that another event of the file replaces.
	moved    map[string]map[Day]bool
	problems []Problem
}

func (r *icsReader) problem(e *ics.VEvent, err error) {
	line, name := 0, value(e, ics.ComponentPropertySummary)
	if r.at < len(r.lines) {
		line = r.lines[r.at]
	}
	if name == "" {
		name = e.Id()
	}
	r.problems = append(r.problems, Problem{Line: line, Message: words.Reason(fmt.Sprintf("event %q: %v", clip(name), err))})
}

// note notes an event that replaces one occurrence of another event.
func (r *icsReader) note(e *ics.VEvent) {
	of := e.GetProperty(ics.ComponentPropertyRecurrenceId)
	if of == nil {
		return
	}
	day, err := dayOfICS(of.Value)
	if err != nil {
		r.problem(e, fmt.Errorf("RECURRENCE-ID: %w", err))
		return
	}
	if r.moved[e.Id()] == nil {
		r.moved[e.Id()] = make(map[Day]bool)
	}
	r.moved[e.Id()][day] = true
}

// event adds the days of an event.
func (r *icsReader) event(e *ics.VEvent) error {
	if strings.EqualFold(value(e, ics.ComponentPropertyStatus), string(ics.ObjectStatusCancelled)) {
		return nil
	}
	start := e.GetProperty(ics.ComponentPropertyDtStart)
	if start == nil {
		return fmt.Errorf("has no DTSTART, expected a day such as DTSTART;VALUE=DATE:20261224")
	}
	first, err := dayOfICS(start.Value)
	if err != nil {
		return fmt.Errorf("DTSTART: %w", err)
	}
	length, err := lengthOf(e, first)
	if err != nil {
		return err
	}
	without := map[Day]bool{}
	for _, p := range e.GetProperties(ics.ComponentPropertyExdate) {
		if err := eachDay(p.Value, func(d Day) error { without[d] = true; return nil }); err != nil {
			return fmt.Errorf("EXDATE: %w", err)
		}
	}
	isOther := e.GetProperty(ics.ComponentPropertyRecurrenceId) != nil
	add := func(d Day) error {
		if without[d] || (!isOther && r.moved[e.Id()][d]) || d < firstDay || d > lastDay {
			return nil
		}
		return r.set.add(d, min(d+length-1, lastDay))
	}
	for _, p := range e.GetProperties(ics.ComponentPropertyRdate) {
		if err := eachDay(p.Value, add); err != nil {
			return fmt.Errorf("RDATE: %w", err)
		}
	}
	rules := e.GetProperties(ics.ComponentPropertyRrule)
	if len(rules) == 0 {
		return add(first)
	}
	for _, p := range rules {
		if err := r.recurs(p.Value, first, add); err != nil {
			return fmt.Errorf("RRULE: %w", err)
		}
	}
	return nil
}

// recurs adds the days on which an event begins again.
func (r *icsReader) recurs(rule string, first Day, add func(Day) error) error {
	if r.recurring++; r.recurring > mostRecurring {
		return fmt.Errorf("the file has more than %d events that recur, expected at most that", mostRecurring)
	}
	if len(rule) > longestRule {
		return fmt.Errorf("has %d characters, expected at most %d", len(rule), longestRule)
	}
	var option *rrule.ROption
	var err error
	if broken := guarded(func() { option, err = rrule.StrToROption(rule) }); broken != nil {
		err = broken
	}
	if err != nil {
		return fmt.Errorf("found %q: %w", clip(rule), err)
	}
	switch {
	case option.Freq > rrule.DAILY || len(option.Byhour)+len(option.Byminute)+len(option.Bysecond) > 0:
		return fmt.Errorf("found %q, expected a rule for whole days: FREQ=YEARLY, MONTHLY, WEEKLY or DAILY, without hours, minutes and seconds", clip(rule))
	case option.Interval > mostInterval:
		return fmt.Errorf("found an interval of %d, expected at most %d", option.Interval, mostInterval)
	}
	midnight := func(d Day) time.Time { return time.Unix(int64(d)*24*60*60, 0).UTC() }
	option.Dtstart = midnight(first)
	if last := midnight(lastDay); option.Until.IsZero() || option.Until.After(last) {
		option.Until = last
	}
	if r.steps += stepsOf(option); r.steps > mostSteps {
		return fmt.Errorf("the rules of the file go through too many days, weeks, months and years up to 2099: found %d steps, expected at most %d; give them an UNTIL", r.steps, mostSteps)
	}
	broken := guarded(func() {
		var all *rrule.RRule
		if all, err = rrule.NewRRule(*option); err != nil {
			return
		}
		next := all.Iterator()
		for t, ok := next(); ok && err == nil; t, ok = next() {
			if err = add(DayOf(t)); err != nil {
				return
			}
		}
	})
	switch {
	case broken != nil:
		return fmt.Errorf("found %q, which has no meaning: %w", clip(rule), broken)
	case errors.Is(err, errTooMany):
		return err
	case err != nil:
		return fmt.Errorf("found %q: %w", clip(rule), err)
	}
	return nil
}

// stepsOf returns the highest cost of a rule, even if it yields no days.
func stepsOf(option *rrule.ROption) int {
	days := int(option.Until.Unix()-option.Dtstart.Unix()) / (24 * 60 * 60)
	fewest := [...]int{rrule.YEARLY: 365, rrule.MONTHLY: 28, rrule.WEEKLY: 7, rrule.DAILY: 1}[option.Freq]
	steps := days/(fewest*max(option.Interval, 1)) + 1
	conditions := len(option.Bysetpos) + len(option.Bymonth) + len(option.Bymonthday) + len(option.Byyearday) + len(option.Byweekno) + len(option.Byweekday) + len(option.Byeaster)
	if option.Count > 0 && conditions == 0 {
		steps = min(steps, option.Count)
	}
	years := min(steps, days/365+1)
	if len(option.Bysetpos) > 0 {
		steps *= stepsBySetPos
	}
	return max(steps+years*stepsOfYear, 1)
}

// value is the text of an event's property; empty if it has none.
func value(e *ics.VEvent, name ics.ComponentProperty) string {
	if p := e.GetProperty(name); p != nil {
		return p.Value
	}
	return ""
}

// dayOfICS reads a date, 20261224, or the midnight at which a day begins, 20261224T000000.
func dayOfICS(text string) (Day, error) {
	date, clock, timed := strings.Cut(text, "T")
	t, err := time.Parse("20060102", date)
	switch {
	case err != nil:
		return 0, fmt.Errorf("found %q, expected a date such as 20261224", clip(text))
	case strings.HasSuffix(clock, "Z"):
		return 0, fmt.Errorf("found %q, a time in UTC, expected whole days: a date such as 20261224", clip(text))
	case timed && clock != "000000":
		return 0, fmt.Errorf("found %q, expected whole days: a date such as 20261224, or midnight", clip(text))
	}
	return DayOf(t), nil
}

// eachDay calls do for each date of a list with commas. Of a period the begin counts.
func eachDay(list string, do func(Day) error) error {
	for text := range strings.SplitSeq(list, ",") {
		begin, _, _ := strings.Cut(strings.TrimSpace(text), "/")
		day, err := dayOfICS(begin)
		if err == nil {
			err = do(day)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inDays are the durations that are whole days.
var inDays = regexp.MustCompile(`^\+?P(?:(\d{1,4})W|(\d{1,5})D(?:T0[HMS])?|T(\d{1,6})H)$`)

// lengthOf returns how many days an event lasts: up to the day before its end, which is exclusive.
func lengthOf(e *ics.VEvent, first Day) (Day, error) {
	if end := e.GetProperty(ics.ComponentPropertyDtEnd); end != nil {
		last, err := dayOfICS(end.Value)
		switch {
		case err != nil:
			return 0, fmt.Errorf("DTEND: %w", err)
		case last < first:
			return 0, fmt.Errorf("DTEND: found %s, which is before the begin, %s", last, first)
		}
		return max(last-first, 1), nil // some programs give the day itself
	}
	text := value(e, ics.ComponentPropertyDuration)
	if text == "" {
		return 1, nil
	}
	m := inDays.FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("DURATION: found %q, expected whole days such as P1D", clip(text))
	}
	number := func(at int) int { n, _ := strconv.Atoi(m[at]); return n }
	days := 7*number(1) + number(2) + number(3)/24
	if days < 1 || number(3)%24 != 0 {
		return 0, fmt.Errorf("DURATION: found %q, expected whole days such as P1D", clip(text))
	}
	return Day(min(days, int(lastDay))), nil
}
