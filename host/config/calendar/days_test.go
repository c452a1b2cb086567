package calendar

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/test/schemas"
)

func parse(t testing.TB, file, text string) *Days {
	t.Helper()
	days, problems := Parse(file, []byte(text))
	if tt, ok := t.(*testing.T); ok && strings.HasSuffix(file, SuffixYAML) && len(problems) == 0 {
		schemas.New(tt, Schema()).Check(tt, text, nil)
	}
	if len(problems) > 0 {
		t.Fatalf("%s: %v", file, problems)
	}
	return days
}

func day(t testing.TB, date string) Day {
	t.Helper()
	d, err := parseDay(date)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// check holds a calendar to lists of days that it has and has not.
func check(t *testing.T, days *Days, has, hasNot string) {
	t.Helper()
	for _, date := range strings.Fields(has) {
		if !days.Has(day(t, date)) {
			t.Errorf("%s is missing", date)
		}
	}
	for _, date := range strings.Fields(hasNot) {
		if days.Has(day(t, date)) {
			t.Errorf("%s is found", date)
		}
	}
}

func TestYAML(t *testing.T) {
	t.Parallel()
	days := parse(t, "holidays.calendar.yaml", `
description: Bank holidays
days: [2026-12-24, 2027-02-17]
ranges:
  - {from: 2026-12-30, to: 2027-01-03}
weekdays: [sat, Sunday]
yearly: [12-25, 02-29]
`)
	check(t, days, "2026-12-24 2026-12-30 2027-01-01 2027-01-03 2026-11-28 2026-11-29 2026-12-25 2031-12-25 2028-02-29 2027-02-17",
		"2026-12-23 2027-01-04 2026-11-27 2027-02-26 2028-03-01")
	one := parse(t, "x.calendar.yaml", "days: 2026-12-24")
	check(t, one, "2026-12-24", "2026-12-23 2026-12-25")
}

func TestBrokenYAML(t *testing.T) {
	t.Parallel()
	editor := schemas.New(t, Schema())
	for text, want := range map[string]string{
		"":                               "the file is empty",
		"days: []":                       "found an empty list",
		"days: [2026-13-01]":             "1:8: days: found \"2026-13-01\", expected a date",
		"days: [2026-12-24, 1969-01-01]": "from 1970 to 2099",
		"description: none":              "the calendar has no days",
		"ranges: [{from: 2026-12-24}]":   "a range lacks from or to",
		"ranges: [{from: 2026-12-24, to: 2026-12-23}]": "ends when it begins, or later",
		"weekdays: [WEN]": "expected a day of the week",
		"yearly: [13-01]": "expected a month and a day",
		"timeZone: Europe/Berlin\ndays: [2026-12-24]": "has no time zone",
		"dyas: [2026-12-24]":                          `did you mean "days"?`,
		"days: [2026-12-24\n":                         "not YAML",
		"- 2026-12-24":                                "expected a mapping",
	} {
		days, problems := Parse("x.calendar.yaml", []byte(text))
		editor.Check(t, text, errors.New("refused"))
		if days != nil || len(problems) == 0 || !strings.Contains(problems[0].String(), want) {
			t.Errorf("%q: %v, %v; want %s", text, days, problems, want)
		}
	}
	if editor.Refused < 4 {
		t.Errorf("the schema refuses %d of these files: it shows little", editor.Refused)
	}
}

const icsHead, icsEnd = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:test\r\n", "END:VCALENDAR\r\n"

// events is an iCalendar file with events of some lines each.
func events(list ...string) string {
	var b strings.Builder
	b.WriteString(icsHead)
	for n, lines := range list {
		b.WriteString("BEGIN:VEVENT\r\nUID:" + string(rune('a'+n)) + "\r\nSUMMARY:event " + string(rune('a'+n)) + "\r\n")
		for _, line := range strings.Split(lines, "|") {
			b.WriteString(line + "\r\n")
		}
		b.WriteString("END:VEVENT\r\n")
	}
	return b.String() + icsEnd
}

// alike is an iCalendar file with a day, and n events of one rule before it.
func alike(n int, start, rule string) string {
	return events(append(slices.Repeat([]string{"DTSTART;VALUE=DATE:" + start + "|RRULE:" + rule}, n), "DTSTART;VALUE=DATE:20261224")...)
}

func TestICS(t *testing.T) {
	t.Parallel()
	for _, v := range []struct{ name, file, has, hasNot string }{
		{"a day", events("DTSTART;VALUE=DATE:20261224"), "2026-12-24", "2026-12-23 2026-12-25"},
		{"its end does not count", events("DTSTART;VALUE=DATE:20261224|DTEND;VALUE=DATE:20261227"), "2026-12-24 2026-12-26", "2026-12-27"},
		{"an end on the same day", events("DTSTART;VALUE=DATE:20261224|DTEND;VALUE=DATE:20261224"), "2026-12-24", "2026-12-25"},
		{"a duration", events("DTSTART;VALUE=DATE:20261224|DURATION:P1W"), "2026-12-30", "2026-12-31"},
		{"from midnight to midnight", events("DTSTART;TZID=Europe/Berlin:20261224T000000|DTEND;TZID=Europe/Berlin:20261225T000000"), "2026-12-24", "2026-12-25"},
		{"every year", events("DTSTART;VALUE=DATE:20201225|RRULE:FREQ=YEARLY"), "2020-12-25 2026-12-25 2099-12-25", "2019-12-25 2026-12-24"},
		{"the fourth Thursday of November", events("DTSTART;VALUE=DATE:20201126|RRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH"), "2026-11-26 2027-11-25", "2026-11-27 2027-11-26"},
		{"until", events("DTSTART;VALUE=DATE:20261201|RRULE:FREQ=DAILY;UNTIL=20261203"), "2026-12-01 2026-12-03", "2026-12-04"},
		{"count", events("DTSTART;VALUE=DATE:20261204|RRULE:FREQ=WEEKLY;BYDAY=FR,SA;COUNT=3"), "2026-12-04 2026-12-05 2026-12-11", "2026-12-12"},
		{"but not on", events("DTSTART;VALUE=DATE:20261201|RRULE:FREQ=DAILY;COUNT=3|EXDATE;VALUE=DATE:20261202,20261203"), "2026-12-01", "2026-12-02 2026-12-03"},
		{"and also on", events("DTSTART;VALUE=DATE:20261201|RDATE;VALUE=DATE:20261210"), "2026-12-01 2026-12-10", "2026-12-02"},
		{"cancelled", events("DTSTART;VALUE=DATE:20261201|STATUS:CANCELLED", "DTSTART;VALUE=DATE:20261202"), "2026-12-02", "2026-12-01"},
		{"one was moved", icsHead + "BEGIN:VEVENT\r\nUID:a\r\nDTSTART;VALUE=DATE:20261201\r\nRRULE:FREQ=DAILY;COUNT=3\r\nEND:VEVENT\r\n" +
			"BEGIN:VEVENT\r\nUID:a\r\nRECURRENCE-ID;VALUE=DATE:20261202\r\nDTSTART;VALUE=DATE:20261220\r\nEND:VEVENT\r\n" + icsEnd, "2026-12-01 2026-12-03 2026-12-20", "2026-12-02"},
		{"rules of years that end", alike(99, "19700101", "FREQ=YEARLY;BYMONTH=1;COUNT=1"), "1970-01-01 2026-12-24", "1971-01-01"},
		{"rules of weeks that end", alike(99, "19700101", "FREQ=WEEKLY;COUNT=9"), "1970-01-01 1970-02-26", "1970-03-05"},
		{"a mark at the begin", "\ufeff" + events("DTSTART;VALUE=DATE:20261224"), "2026-12-24", "2026-12-25"},
	} {
		t.Run(v.name, func(t *testing.T) { check(t, parse(t, "x.ics", v.file), v.has, v.hasNot) })
	}
}

func TestBrokenICS(t *testing.T) {
	t.Parallel()
	many := make([]string, mostRecurring+1)
	for n := range many {
		many[n] = "DTSTART;VALUE=DATE:20261224|RRULE:FREQ=YEARLY;COUNT=2"
	}
	for file, want := range map[string]string{
		"hello":                            "is no iCalendar file",
		"":                                 "the calendar has no days",
		icsHead:                            "",
		events("DTSTART:20261224T140000"):  `line 4: event "event a": DTSTART: found "20261224T140000", expected whole days`,
		events("DTSTART:20261224T000000Z"): "a time in UTC",
		events("SUMMARY:b"):                "has no DTSTART",
		events("DTSTART;VALUE=DATE:20261224|DTEND;VALUE=DATE:20261223"):      "which is before the begin",
		events("DTSTART;VALUE=DATE:20261224|DURATION:PT3H"):                  "DURATION: found",
		events("DTSTART;VALUE=DATE:20261224|RRULE:FREQ=SECONDLY"):            "expected a rule for whole days",
		events("DTSTART;VALUE=DATE:20261224|RRULE:FREQ=DAILY;BYHOUR=1"):      "expected a rule for whole days",
		events("DTSTART;VALUE=DATE:20261224|RRULE:BYDAY=MO"):                 "RRULE: found",
		events("DTSTART;VALUE=DATE:20200101|RRULE:FREQ=DAILY"):               "more than 5000 single days",
		events("DTSTART;VALUE=DATE:20261224|RRULE:FREQ=DAILY;INTERVAL=1001"): "expected at most 1000",
		events("DTSTART;VALUE=DATE:20261224|EXDATE:x"):                       "EXDATE: found",
		events("DTSTART;VALUE=DATE:20261224|STATUS:CANCELLED"):               "the calendar has no days",
		events(many...): "more than 100 events that recur",
		events("DTSTART;VALUE=DATE:19700101|RRULE:FREQ=YEARLY;BYMONTH=1,2,3;BYDAY=53MO"): "which has no meaning",
		events("DTSTART;VALUE=DATE:19700101|RRULE:FREQ=MONTHLY;BYEASTER=-150"):           "which has no meaning",
		alike(16, "19700101", "FREQ=DAILY;BYMONTH=1;COUNT=1"):                            "too many days, weeks, months and years",
		alike(5, "19700101", "FREQ=DAILY;BYMONTH=1;BYSETPOS=1;COUNT=1"):                  "too many days, weeks, months and years",
		alike(9, "00010101", "FREQ=YEARLY;BYMONTH=1;COUNT=1"):                            "too many days, weeks, months and years",
		alike(2, "00010101", "FREQ=DAILY;BYMONTH=1;COUNT=1"):                             "too many days, weeks, months and years",
	} {
		days, problems := Parse("x.ics", []byte(file))
		if days != nil || len(problems) == 0 || !strings.Contains(problems[0].String(), want) {
			t.Errorf("%.200q: %v, %v; want %s", file, days, problems, want)
		}
	}
}

// TestTextIsRead: the text of a set of days is that set, whatever it is.
func TestTextIsRead(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var s set
		has := map[Day]bool{}
		for range r.IntN(30) {
			first := Day(20000 + r.IntN(300))
			last := first + Day(r.IntN(4))
			if err := s.add(first, last); err != nil {
				t.Fatal(err)
			}
			for d := first; d <= last; d++ {
				has[d] = true
			}
		}
		weekdays, dates := []uint8{0, 1, 1<<6 | 1, 1 << 3, 127}[r.IntN(5)], map[string]bool{}
		s.days.weekdays = weekdays
		for range r.IntN(4) {
			date := time.Date(2024, 1, 1+r.IntN(366), 0, 0, 0, 0, time.UTC).Format("01-02")
			if err := s.yearly(date); err != nil {
				t.Fatal(err)
			}
			dates[date] = true
		}
		days := s.made()
		back, err := ParseText(days.Text())
		if err != nil || back.Text() != days.Text() {
			t.Fatalf("%s is read as %v, %v", days.Text(), back, err)
		}
		for d := Day(19900); d < 20500; d++ {
			date := time.Unix(int64(d)*86400, 0).UTC()
			want := has[d] || weekdays>>date.Weekday()&1 != 0 || dates[date.Format("01-02")]
			if days.Has(d) != want || back.Has(d) != want {
				t.Fatalf("%s: %v is found %v, want %v", days.Text(), d, days.Has(d), want)
			}
		}
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	weekend := parse(t, "w.calendar.yaml", "weekdays: [SAT, SUN]")
	always := parse(t, "a.calendar.yaml", "weekdays: [SUN, MON, TUE, WED, THU, FRI, SAT]")
	past := parse(t, "p.calendar.yaml", "days: [2020-01-01]")
	for _, v := range []struct {
		name   string
		filter Filter
		from   string
		next   string
	}{
		{"weekends are excluded", Filter{Exclude: []*Days{weekend}}, "2026-11-28", "2026-11-30"},
		{"only weekends", Filter{Include: []*Days{weekend}}, "2026-11-30", "2026-12-05"},
		{"exclusion wins", Filter{Include: []*Days{always}, Exclude: []*Days{weekend}}, "2026-11-28", "2026-11-30"},
	} {
		if d, ok := v.filter.Next(day(t, v.from), true); !ok || d != day(t, v.next) || v.filter.Check() != nil {
			t.Errorf("%s: %v, %v, %v", v.name, d, ok, v.filter.Check())
		}
	}
	for _, f := range []Filter{{Exclude: []*Days{always}}, {Include: []*Days{weekend}, Exclude: []*Days{weekend}}, {Include: []*Days{past}}} {
		if f.Check() == nil {
			t.Errorf("%+v leaves days", f)
		}
	}
}

func TestNameOf(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{"holidays.calendar.yaml": "holidays", "de.berlin.ics": "de.berlin", "holidays.yaml": "", ".ics": "", ".calendar.yaml": ""} {
		if name, ok := NameOf(file); name != want || ok != (want != "") {
			t.Errorf("%s: %q, %v", file, name, ok)
		}
	}
}

// FuzzParse: whatever is in a file, it is read or it has problems that are short, and its text
// is read as the same days.
func FuzzParse(f *testing.F) {
	f.Add("days: [2026-12-24]\nranges: [{from: 2026-12-24, to: 2027-01-03}]\nweekdays: [SAT]\nyearly: [12-25]", false)
	f.Add("days: &a [*a]", false)
	f.Add(events("DTSTART;VALUE=DATE:20201126|RRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH|EXDATE:20211125", "DTSTART:20261224T000000|DURATION:P2D"), true)
	f.Add(events("DTSTART;VALUE=DATE:20200101|RRULE:FREQ=MONTHLY;BYMONTHDAY=-1;BYSETPOS=1;WKST=MO"), true)
	f.Add(events("DTSTART;VALUE=DATE:19700101|RRULE:FREQ=YEARLY;BYMONTH=1,2,3;BYDAY=53MO"), true)
	f.Add(icsHead+"BEGIN:VEVENT\nDTSTART;X=\"\\", true)
	f.Fuzz(func(t *testing.T, text string, icalendar bool) {
		file := "x.calendar.yaml"
		if icalendar {
			file = "x.ics"
		}
		days, problems := Parse(file, []byte(text))
		if (days == nil) != (len(problems) > 0) {
			t.Fatalf("%v and %v", days, problems)
		}
		for _, p := range problems {
			if p.Message == "" || len(p.Message) > 10_000 || p.Line < 0 {
				t.Fatalf("%+v", p)
			}
		}
		if days == nil {
			return
		}
		back, err := ParseText(days.Text())
		if err != nil || back.Text() != days.Text() {
			t.Fatalf("%s: %v", days.Text(), err)
		}
	})
}
