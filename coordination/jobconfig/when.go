package jobconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// When says what a job's instants are, beside its cron and its time zone; host/config/timetable
// goes by it.
type When struct {
	// DST is once, both or skip: what becomes of local times that come twice or not at all.
	// "wasm.dst"
	DST string
	// StartAt and EndAt bound the instants, both included; At is the one instant of a job without
	// a cron. They are as [time.RFC3339], empty for none. "wasm.startAt", "wasm.endAt", "wasm.at"
	StartAt, EndAt, At string
	// Jitter is the most by which a start is put off; JitterMode is stable or random.
	// "wasm.jitter", "wasm.jitterMode"
	Jitter     time.Duration
	JitterMode string
	// Schedules are those of a job with several. "wasm.schedules", a JSON list
	Schedules []Schedule
	// Include and Exclude name calendars, OnExcluded is skip or next. "wasm.calendars.include",
	// "wasm.calendars.exclude", "wasm.calendars.onExcluded"
	Include, Exclude []string
	OnExcluded       string
}

// Schedule is one of several schedules of a job.
type Schedule struct {
	Cron string `json:"cron"`
	// TimeZone is empty for the job's.
	TimeZone string `json:"timeZone,omitempty"`
	// JobParameter is nil for the job's.
	JobParameter *string `json:"jobParameter,omitempty"`
}

// The words of settings that say when a job fires.
const (
	DSTOnce, DSTBoth, DSTSkip        = "once", "both", "skip"
	JitterStable, JitterRandom       = "stable", "random"
	OnExcludedSkip, OnExcludedToNext = "skip", "next"
)

// PropCalendarDays is the property with the days of the calendars that the job names: a JSON
// mapping of names to texts of host/config/calendar. The host with the calendar's file writes it, so
// that all hosts of the job go by the same days.
const PropCalendarDays = "wasm.calendarDays"

// The bounds of what says when a job fires.
const (
	// MaxSchedules is how many schedules a job has, MaxCalendars how many calendars it names.
	MaxSchedules, MaxCalendars = 50, 20
	// MaxJitter bounds the jitter.
	MaxJitter = 24 * time.Hour
)

// InstantSettings are the settings that say when a job fires, and that ElasticJob does not have.
func InstantSettings() []Setting {
	var list []Setting
	for i := range settings {
		if settings[i].Instants() {
			list = append(list, settings[i])
		}
	}
	return list
}

// InstantProps are the properties of the configuration that say when the job fires, with the days
// of its calendars; nil if there are none, as of most jobs.
func (c Configuration) InstantProps() (props map[string]string) {
	if len(c.Props) == 0 {
		return nil
	}
	note := func(key string) {
		if value := c.Props[key]; value != "" {
			if props == nil {
				props = make(map[string]string)
			}
			props[key] = value
		}
	}
	for i := range settings {
		if settings[i].Instants() {
			note(settings[i].Prop)
		}
	}
	if props != nil {
		note(PropCalendarDays)
	}
	return props
}

// Terms are the instants' properties as a text, for whoever has no configuration and asks
// host/config/timetable for the job's instants; empty if there are none.
func (c Configuration) Terms() string {
	props := c.InstantProps()
	if props == nil {
		return ""
	}
	text, _ := json.Marshal(props) // texts always have a JSON form
	return string(text)
}

// ParseInstant reads a time with its offset, as [time.RFC3339] has it, with whole seconds.
func ParseInstant(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, strings.TrimSpace(text))
	if err != nil || t.Nanosecond() != 0 || t.Year() < 1970 || t.Year() > 9999 {
		return time.Time{}, fmt.Errorf("found %q, expected a time with its offset and whole seconds, such as 2026-12-24T18:00:00+01:00", Clip(text))
	}
	return t, nil
}

// instant is a time as it is stored.
func instant(text string) (string, error) {
	t, err := ParseInstant(text)
	if err != nil {
		return "", err
	}
	return t.Format(time.RFC3339), nil
}

// oneOf is the form of a word in which it is stored.
func oneOf(words ...string) func(string) (string, error) {
	return func(text string) (string, error) { return Setting{Words: words}.word(strings.TrimSpace(text)) }
}

// SchedulesExample is what messages say that a list of schedules looks like.
const SchedulesExample = `[{"cron":"0 0 9 ? * MON-FRI","jobParameter":"day"},{"cron":"0 0 22 * * ?","timeZone":"UTC"}]`

// parseSchedules reads a JSON list of schedules. Their expressions are not read here.
func parseSchedules(text string) ([]Schedule, error) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	var list []*Schedule
	if err := d.Decode(&list); err != nil || list == nil {
		return nil, fmt.Errorf("found %q, expected a JSON list of schedules, such as %s", Clip(text), SchedulesExample)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("found %q, expected one JSON list of schedules and nothing after it", Clip(text))
	}
	if len(list) > MaxSchedules {
		return nil, fmt.Errorf("found %d schedules, expected at most %d", len(list), MaxSchedules)
	}
	var out []Schedule
	for n, s := range list {
		if s == nil || strings.TrimSpace(s.Cron) == "" {
			return nil, fmt.Errorf("schedule %d has no cron, expected one such as %s", n+1, SchedulesExample)
		}
		out = append(out, *s)
	}
	return out, nil
}
