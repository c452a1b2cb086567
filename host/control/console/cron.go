package console

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/config/timetable"
	"github.com/wasmjob/wasmjob/host/schedule"
	"github.com/wasmjob/wasmjob/internal/text/i18n"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// inWords says in the reader's language when a schedule fires; nothing for one that
// cannot be read.
func (r *reader) inWords(cron string) string {
	if cron == "" {
		return r.T("cron.never")
	}
	s, err := schedule.Parse(cron, time.UTC)
	if err != nil {
		return ""
	}
	f := s.Fields()
	if f.Every > 0 {
		return r.T("cron.every", words.Duration(f.Every))
	}
	parts := []string{}
	for _, part := range []string{r.years(f.Years), r.months(f.Months), r.days(f.Days), r.clock(f)} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if r.Lang == i18n.English {
		slices.Reverse(parts)
		return strings.Join(parts, ", ")
	}
	return strings.Join(parts, " ")
}

// scheduleWords says when a job fires: by its cron, and which other settings it goes by.
func (r *reader) scheduleWords(cron, terms string) string {
	said := r.inWords(cron)
	if cron == "" && timetable.Describe(cron, terms) != "" {
		said = "" // the schedule itself is shown
	}
	if also := timetable.Also(terms); len(also) > 0 {
		said = strings.TrimSpace(said + " " + r.T("cron.also", strings.Join(also, ", ")))
	}
	return said
}

func (r *reader) list(parts []string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	last := len(parts) - 1
	return strings.Join(parts[:last], r.T("list.comma")) + r.T("list.and") + parts[last]
}

// numbers lists numbers; three or more in a row are a range.
func (r *reader) numbers(list []int, text func(int) string) string {
	var parts []string
	for n := 0; n < len(list); {
		end := n
		for end+1 < len(list) && list[end+1] == list[end]+1 {
			end++
		}
		if end-n >= 2 {
			parts = append(parts, r.T("cron.range", text(list[n]), text(list[end])))
			n = end + 1
			continue
		}
		parts = append(parts, text(list[n]))
		n++
	}
	return r.list(parts)
}

func (r *reader) years(years []int) string {
	if len(years) == 0 {
		return ""
	}
	return r.T("cron.years", r.numbers(years, strconv.Itoa))
}

func (r *reader) months(months []int) string {
	if len(months) == 0 {
		return ""
	}
	return r.T("cron.months", r.numbers(months, func(m int) string { return r.T("month." + time.Month(m).String()) }))
}

func (r *reader) days(d schedule.Days) string {
	weekday := func(n int) string { return r.T("weekday." + time.Weekday(n%7).String()) }
	dates, weekdays := "", ""
	if len(d.Dates) > 0 {
		dates = r.T("cron.dates", r.numbers(d.Dates, strconv.Itoa))
	}
	if len(d.Weekdays) > 0 {
		week := make([]int, len(d.Weekdays)) // from Monday on
		for n, w := range d.Weekdays {
			week[n] = w + 7*((7-w)/7)
		}
		slices.Sort(week)
		weekdays = r.T("cron.weekdays", r.numbers(week, weekday))
	}
	if d.Last {
		dates = r.T("cron.last")
		if d.Before > 0 {
			dates = r.T("cron.before", d.Before)
		}
	}
	if d.Nearest {
		dates = r.T("cron.nearest", dates)
	}
	if d.Nth != 0 {
		weekdays = r.T("cron.nth."+strconv.Itoa(d.Nth), weekday(d.Weekdays[0]))
	}
	if dates != "" && weekdays != "" {
		if d.Either {
			return r.T("cron.either", dates, weekdays)
		}
		return r.T("cron.both", dates, weekdays)
	}
	return dates + weekdays
}

// step returns the constant distance between numbers that cover the range up to bound, beginning below the
// distance; 0 if there is none.
func step(list []int, bound int) int {
	if len(list) < 2 {
		return 0
	}
	d := list[1] - list[0]
	for n := range list[1:] {
		if list[n+1]-list[n] != d {
			return 0
		}
	}
	if list[0] >= d || list[len(list)-1]+d < bound || bound%d != 0 {
		return 0
	}
	return d
}

// mostTimes is how many times of a day are listed one by one.
const mostTimes = 6

// clock says at which times of a day a schedule fires.
func (r *reader) clock(f schedule.Fields) string {
	if len(f.Seconds) == 1 && len(f.Hours)*len(f.Minutes) <= mostTimes {
		var times []string
		for _, h := range f.Hours {
			for _, m := range f.Minutes {
				times = append(times, timeOfDay(h, m, f.Seconds[0]))
			}
		}
		return r.T("cron.at", r.list(times))
	}
	hours := r.hours(f)
	within := func(text string) string {
		if hours == "" {
			return text
		}
		if r.Lang == i18n.Chinese {
			return hours + text
		}
		return text + ", " + hours
	}
	if len(f.Minutes) == 60 {
		return within(r.seconds(f.Seconds))
	}
	second := ""
	if len(f.Seconds) != 1 {
		second = r.T("cron.and.seconds", r.seconds(f.Seconds))
	} else if f.Seconds[0] != 0 {
		second = r.T("cron.second", f.Seconds[0])
	}
	if every := step(f.Minutes, 60); every > 0 {
		text := r.T("cron.minutes", every)
		if f.Minutes[0] > 0 {
			text = r.T("cron.minutes.from", every, f.Minutes[0])
		}
		return within(text + second)
	}
	at := r.T("cron.past", r.numbers(f.Minutes, func(m int) string { return fmt.Sprintf(":%02d", m) })) + second
	if every := step(f.Hours, 24); every > 1 && f.Hours[0] == 0 {
		if r.Lang == i18n.Chinese {
			return r.T("cron.hours", every) + " " + at
		}
		return r.T("cron.hours", every) + ", " + at
	}
	if len(f.Hours) == 24 {
		return r.T("cron.hourly", at)
	}
	return within(at)
}

// seconds says which seconds of each minute are meant.
func (r *reader) seconds(seconds []int) string {
	if len(seconds) == 60 {
		return r.T("cron.everysecond")
	}
	if len(seconds) == 1 {
		if seconds[0] == 0 {
			return r.T("cron.everyminute")
		}
		return r.T("cron.everyminute") + r.T("cron.second", seconds[0])
	}
	if every := step(seconds, 60); every > 0 && seconds[0] == 0 {
		return r.T("cron.seconds", every)
	}
	return r.T("cron.everyminute") + r.T("cron.second", r.numbers(seconds, strconv.Itoa))
}

// hours says within which hours; nothing for all.
func (r *reader) hours(f schedule.Fields) string {
	if len(f.Hours) == 24 {
		return ""
	}
	if every := step(f.Hours, 24); every > 1 && f.Hours[0] == 0 {
		return r.T("cron.hours.even", every)
	}
	return r.T("cron.within", r.numbers(f.Hours, func(h int) string { return fmt.Sprintf("%02d", h) }))
}

func timeOfDay(hour, minute, second int) string {
	if second == 0 {
		return fmt.Sprintf("%02d:%02d", hour, minute)
	}
	return fmt.Sprintf("%02d:%02d:%02d", hour, minute, second)
}
