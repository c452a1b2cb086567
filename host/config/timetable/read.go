package timetable

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/config/calendar"
	"github.com/wasmjob/wasmjob/host/schedule"
	"github.com/wasmjob/wasmjob/internal/text/reason"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// New reads a job's timetable from its configuration: nil for a job without a schedule. The jitter depends on
// the namespace. Problems concern fields of a definition; with a problem there is no timetable.
func New(c jobconfig.Configuration, namespace string) (*Timetable, []*jobconfig.FieldError) {
	return NewWith(c, namespace, nil)
}

// NewWith is [New] for a caller that has already read the days of the job's calendars: sets has them by name,
// and replaces the texts in the configuration. With nil sets the texts are read.
func NewWith(c jobconfig.Configuration, namespace string, sets map[string]*calendar.Days) (*Timetable, []*jobconfig.FieldError) {
	r := reader{c: c, when: jobconfig.DefaultGuest().When, sets: sets}
	if c.InstantProps() != nil { // most jobs have none
		g, err := c.Guest()
		for _, s := range jobconfig.InstantSettings() {
			for _, f := range jobconfig.FieldErrors(err) {
				if f.Field == "props."+s.Prop {
					r.bad(s.Name, "%s", f.Problem)
				}
			}
		}
		r.when = g.When
	}
	t := r.read(namespace)
	if len(r.problems) > 0 {
		return nil, r.problems
	}
	return t, nil
}

// reader reads a timetable.
type reader struct {
	c        jobconfig.Configuration
	when     jobconfig.When
	sets     map[string]*calendar.Days // nil: those of the configuration's texts
	problems []*jobconfig.FieldError
}

func (r *reader) bad(field, format string, args ...any) {
	r.problems = append(r.problems, &jobconfig.FieldError{Field: field, Problem: words.Reason(fmt.Sprintf(format, args...))})
}

func (r *reader) read(namespace string) *Timetable {
	w := &r.when
	zone, err := schedule.Zone(r.c.TimeZone)
	if err != nil {
		r.bad("timeZone", "%s", strings.TrimPrefix(err.Error(), "time zone "))
	}
	r.one()
	for _, a := range w.After {
		if a.Job == r.c.JobName && a.Job != "" {
			r.bad("after", "the job would come after itself: %s -> %s", words.Clip(a.Job), words.Clip(a.Job))
		}
	}
	t := &Timetable{zone: zone, start: r.instant("startAt", w.StartAt), end: r.instant("endAt", w.EndAt)}
	if !t.start.IsZero() && !t.end.IsZero() && t.end.Before(t.start) {
		r.bad("endAt", "found %s, which is before startAt, %s", w.EndAt, w.StartAt)
	}
	filter := r.filter()
	add := func(l line) {
		l.filter, l.moves = filter, filter != nil && w.OnExcluded == jobconfig.OnExcludedToNext
		t.lines = append(t.lines, l)
	}
	if r.c.Cron != "" {
		if s, err := schedule.Parse(r.c.Cron, zone); err != nil {
			r.bad("cron", "%s", strings.TrimPrefix(err.Error(), "cron "))
		} else {
			add(line{schedule: s.With(schedule.DST(w.DST)), zone: zone})
		}
	}
	if at := r.instant("at", w.At); !at.IsZero() {
		if (!t.start.IsZero() && at.Before(t.start)) || (!t.end.IsZero() && at.After(t.end)) {
			r.bad("at", "found %s, which is not between startAt and endAt: the job would never fire", w.At)
		}
		add(line{schedule: once{at}, zone: zone})
	}
	for n, s := range w.Schedules {
		if own := r.schedule(n, s, zone); own != nil {
			add(*own)
		}
	}
	if len(r.problems) > 0 || len(t.lines) == 0 {
		return nil
	}
	if filter != nil && t.Next(beforeAll).IsZero() && !t.bare().Next(beforeAll).IsZero() {
		r.bad(calendarField(w), "the calendars exclude every instant of the job")
		return nil
	}
	if w.Jitter > 0 {
		t.jitter = newJitter(w.Jitter, w.JitterMode == jobconfig.JitterRandom, namespace, r.c.JobName)
		if gap, between := t.shortestGap(w.Jitter); gap < w.Jitter {
			r.bad("jitter", "found %s, which is longer than the %s between %s and the instant after it", words.Duration(w.Jitter), words.Duration(gap), between.Format(time.RFC3339))
			return nil
		}
	}
	if s, is := t.lines[0].schedule.(*schedule.Schedule); is && len(w.Schedules) == 0 && filter == nil && t.start.IsZero() && t.end.IsZero() && w.Jitter == 0 {
		t.plain = s
	}
	return t
}

// one refuses several fields that each say when the job fires.
func (r *reader) one() {
	var given []string
	for name, is := range map[string]bool{"cron": r.c.Cron != "", "at": r.when.At != "", "schedules": len(r.when.Schedules) > 0, "after": len(r.when.After) > 0} {
		if is {
			given = append(given, name)
		}
	}
	if slices.Sort(given); len(given) > 1 {
		r.bad(given[len(given)-1], "is given beside %s, expected one of cron, schedules, at and after", strings.Join(given[:len(given)-1], " and "))
	}
}

func (r *reader) instant(field, text string) time.Time {
	if text == "" {
		return time.Time{}
	}
	t, err := jobconfig.ParseInstant(text)
	if err != nil {
		r.bad(field, "%v", err)
	}
	return t
}

// schedule reads one of several schedules; nil with a problem.
func (r *reader) schedule(n int, s jobconfig.Schedule, zone *time.Location) *line {
	if s.TimeZone != "" {
		var err error
		if zone, err = schedule.Zone(s.TimeZone); err != nil {
			r.bad("schedules", "schedule %d: %v", n+1, err)
		}
	}
	parsed, err := schedule.Parse(s.Cron, zone)
	if err != nil {
		r.bad("schedules", "schedule %d: %v", n+1, err)
		return nil
	}
	return &line{schedule: parsed.With(schedule.DST(r.when.DST)), zone: zone, parameter: s.JobParameter}
}

// filter is nil if the job names no calendars.
func (r *reader) filter() *calendar.Filter {
	w := &r.when
	if len(w.Include)+len(w.Exclude) == 0 {
		return nil
	}
	if n := len(w.Include) + len(w.Exclude); n > jobconfig.MaxCalendars {
		r.bad("calendars.include", "found %d calendars, expected at most %d", n, jobconfig.MaxCalendars)
		return nil
	}
	var days map[string]string
	if r.sets == nil {
		var err error
		if days, err = Days(r.c); err != nil {
			r.bad("calendars.include", "%v", err)
			return nil
		}
	}
	found := len(r.problems)
	named := func(field string, names []string) (list []*calendar.Days) {
		for _, name := range names {
			if set, known := r.sets[name]; known {
				list = append(list, set)
				continue
			}
			text, known := days[name]
			if !known {
				r.bad(field, "the days of calendar %q are not in the job's configuration: a host that has %s%s or %s%s beside the job's definition brings them", words.Clip(name), words.Clip(name), calendar.SuffixYAML, words.Clip(name), calendar.SuffixICS)
				continue
			}
			set, err := calendar.ParseText(text)
			if err != nil {
				r.bad(field, "the days of calendar %q in the job's configuration cannot be read: %v", words.Clip(name), err)
				continue
			}
			list = append(list, set)
		}
		return list
	}
	f := &calendar.Filter{Include: named("calendars.include", w.Include), Exclude: named("calendars.exclude", w.Exclude)}
	if len(r.problems) > found {
		return nil
	}
	if err := f.Check(); err != nil {
		r.bad(calendarField(w), "%v", err)
	}
	return f
}

// calendarField is the field that is to blame if calendars leave nothing.
func calendarField(w *jobconfig.When) string {
	if len(w.Exclude) > 0 {
		return "calendars.exclude"
	}
	return "calendars.include"
}

// beforeAll is before all relevant instants: a refusal for lack of instants must not depend on the present day.
var beforeAll = time.Date(2025, time.December, 31, 0, 0, 0, 0, time.UTC)

// bare is the timetable without calendars and jitter.
func (t *Timetable) bare() *Timetable {
	bare := &Timetable{zone: t.zone, start: t.start, end: t.end}
	for _, l := range t.lines {
		bare.lines = append(bare.lines, line{schedule: l.schedule, zone: l.zone})
	}
	return bare
}

// shortestGap returns the shortest time between two consecutive instants, among the first thousand from 2026 on
// or five years, and the first of the two. It stops at one shorter than bound. It ignores calendars: they
// remove instants, and one that they move may come close to its neighbour.
func (t *Timetable) shortestGap(bound time.Duration) (gap time.Duration, between time.Time) {
	bare := t.bare()
	gap = 1<<63 - 1
	from := bare.Next(beforeAll)
	end := from.AddDate(5, 0, 0)
	for range 1000 {
		next := bare.Next(from)
		if next.IsZero() || from.IsZero() || next.After(end) || gap < bound {
			break
		}
		if d := next.Sub(from); d < gap {
			gap, between = d, from
		}
		from = next
	}
	return gap, between
}

// Days are the days of the calendars that the configuration has, by name, as texts of
// host/config/calendar.
func Days(c jobconfig.Configuration) (map[string]string, error) {
	days := map[string]string{}
	text, has := c.Props[jobconfig.PropCalendarDays]
	if !has {
		return days, nil
	}
	if err := json.Unmarshal([]byte(text), &days); err != nil {
		return nil, fmt.Errorf("the days of calendars in the job's configuration cannot be read: property %s: %w", jobconfig.PropCalendarDays, err)
	}
	return days, nil
}

// Calendars are the names of the calendars that a configuration names, each once, in ascending
// order.
func Calendars(c jobconfig.Configuration) []string {
	if c.InstantProps() == nil {
		return nil
	}
	g, _ := c.Guest() // what cannot be read names none
	names := slices.Concat(g.When.Include, g.When.Exclude)
	slices.Sort(names)
	return slices.Compact(names)
}

// MaxDays is how many bytes the days of all calendars of a job take at most.
const MaxDays = 128 << 10

// DaysText returns the days of a job's calendars, by name as texts of host/config/calendar, in the form of a
// configuration: the argument of [WithDays]. It is empty for no calendars.
func DaysText(days map[string]string) (string, error) {
	if len(days) == 0 {
		return "", nil
	}
	text, err := json.Marshal(days)
	if err != nil { // texts always have a JSON form
		return "", err
	}
	if len(text) > MaxDays {
		return "", fmt.Errorf("the days of the job's calendars take %d bytes, expected at most %d", len(text), MaxDays)
	}
	return string(text), nil
}

// WithDays returns the configuration with the days of its calendars: a text of [DaysText], which is not copied.
func WithDays(c jobconfig.Configuration, days string) jobconfig.Configuration {
	props := make(map[string]string, len(c.Props)+1)
	for key, value := range c.Props {
		props[key] = value
	}
	delete(props, jobconfig.PropCalendarDays)
	if days != "" {
		props[jobconfig.PropCalendarDays] = days
	}
	c.Props = props
	if len(props) == 0 {
		c.Props = nil
	}
	return c
}

// WithoutCalendars returns the configuration without calendars, for a definition whose calendars were not read
// yet.
func WithoutCalendars(c jobconfig.Configuration) jobconfig.Configuration {
	props := make(map[string]string, len(c.Props))
	for key, value := range c.Props {
		if !strings.HasPrefix(key, "wasm.calendar") {
			props[key] = value
		}
	}
	c.Props = props
	return c
}

// Of is a problem as an error; nil for none. It joins all of them.
func Of(problems []*jobconfig.FieldError) error {
	var all []error
	for _, p := range problems {
		all = append(all, p)
	}
	return errors.Join(all...)
}

// Has reports whether a configuration has a schedule of any kind; a job without one only runs when triggered.
func Has(c jobconfig.Configuration) bool {
	if c.Cron != "" || c.InstantProps() == nil {
		return c.Cron != ""
	}
	g, _ := c.Guest() // what cannot be read is no schedule
	return g.When.At != "" || len(g.When.Schedules) > 0
}

// FromTerms is the timetable of a job by its cron, its zone and its [jobconfig.Configuration.Terms].
func FromTerms(namespace, job, cron, zone, terms string) (*Timetable, []*jobconfig.FieldError) {
	c := jobconfig.Configuration{JobName: job, Cron: cron, TimeZone: zone}
	if terms != "" {
		if err := json.Unmarshal([]byte(terms), &c.Props); err != nil {
			return nil, []*jobconfig.FieldError{{Problem: "the terms of the job's schedule cannot be read: " + err.Error()}}
		}
	}
	return New(c, namespace)
}

// Describe describes in English what a job without a cron fires by, from its terms; it returns the cron for
// others, and is empty for a job that only triggers run.
func Describe(cron, terms string) string {
	if cron != "" || terms == "" {
		return cron
	}
	c := jobconfig.Configuration{}
	if err := json.Unmarshal([]byte(terms), &c.Props); err != nil {
		return ""
	}
	g, _ := c.Guest() // what cannot be read is not described
	if g.When.At != "" {
		return "at " + g.When.At
	}
	var crons []string
	if len(g.When.After) > 0 {
		return "after " + DescribeAfter(g.When.After)
	}
	for _, s := range g.When.Schedules {
		crons = append(crons, strings.TrimSpace(s.Cron+" "+s.TimeZone))
	}
	return words.Some(crons, "; ")
}

// DescribeAfter names the jobs that a job comes after, with what is demanded of each.
func DescribeAfter(list []jobconfig.After) string {
	names := make([]string, 0, len(list))
	for _, a := range list {
		name := a.Job
		if a.On != "" {
			name += " (" + a.On + ")"
		}
		names = append(names, name)
	}
	return words.Some(names, ", ")
}

// After are the jobs that a job comes after, by its configuration; what cannot be read names none.
func After(c jobconfig.Configuration) []jobconfig.After {
	if c.InstantProps() == nil {
		return nil
	}
	g, _ := c.Guest()
	return g.When.After
}

// AfterOf are the jobs that a job comes after, from its terms; what cannot be read names none.
func AfterOf(terms string) []jobconfig.After {
	if terms == "" {
		return nil
	}
	c := jobconfig.Configuration{}
	if err := json.Unmarshal([]byte(terms), &c.Props); err != nil {
		return nil
	}
	return After(c)
}

// Also returns the names of the settings besides cron and zone that determine the schedule, from its terms.
func Also(terms string) (names []string) {
	if terms == "" {
		return nil
	}
	var props map[string]string
	if err := json.Unmarshal([]byte(terms), &props); err != nil {
		return nil
	}
	for _, s := range jobconfig.InstantSettings() {
		if props[s.Prop] != "" {
			names = append(names, s.Name)
		}
	}
	return names
}

// JavaCompatible returns nil if ElasticJob would start runs for the same instants at the same times, or what it
// does differently.
func JavaCompatible(c jobconfig.Configuration) error {
	if names := c.NotJavas(); len(names) > 0 {
		return reason.New(reason.NotFollowed, strings.Join(names, ", "))
	}
	if err := schedule.JavaCompatible(c.Cron, c.TimeZone); err != nil {
		return reason.New(reason.OtherInstants, err)
	}
	return nil
}
