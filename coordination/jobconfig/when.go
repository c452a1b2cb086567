package jobconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// When has the settings that determine a job's instants besides cron and time zone; host/config/timetable
// evaluates them.
type When struct {
	// DST is once, both or skip: what happens to local times that occur twice or not at all. "wasm.dst"
	DST string
	// StartAt and EndAt bound the instants, both included; At is the one instant of a job without
	// a cron. They are as [time.RFC3339], empty for none. "wasm.startAt", "wasm.endAt", "wasm.at"
	StartAt, EndAt, At string
	// Jitter is the longest delay of a start; JitterMode is stable or random. "wasm.jitter", "wasm.jitterMode"
	Jitter     time.Duration
	JitterMode string
	// Schedules are set if the job has several. "wasm.schedules", a JSON list
	Schedules []Schedule
	// Include and Exclude name calendars, OnExcluded is skip or next. "wasm.calendars.include",
	// "wasm.calendars.exclude", "wasm.calendars.onExcluded"
	Include, Exclude []string
	OnExcluded       string
	// After are the jobs that this one follows, in place of a cron. "wasm.after", a JSON list
	After []After
}

// After is a job that another one follows: the following job has an instant when the fire of this one has ended
// over all items.
type After struct {
	Job string `json:"job"`
	// On is success, failure or always: the outcome of the fire that counts; empty for success.
	On string `json:"on,omitempty"`
	// Within is how long after the instant the fire may end and still count, as a duration of a definition
	// file; empty for 24 hours.
	Within string `json:"within,omitempty"`
}

// DefaultWithin is the default of After.Within.
const DefaultWithin = 24 * time.Hour

// Limit is Within as a duration.
func (a After) Limit() time.Duration {
	d, err := ParseDuration(a.Within, MaxWithin)
	if err != nil || d <= 0 {
		return DefaultWithin
	}
	return d
}

// Accepts reports whether a fire that has ended with success or not is followed.
func (a After) Accepts(success bool) bool {
	switch a.On {
	case OnAlways:
		return true
	case OnFailure:
		return !success
	}
	return success
}

// Schedule is one of several schedules of a job.
type Schedule struct {
	Cron string `json:"cron"`
	// TimeZone is empty for the job's.
	TimeZone string `json:"timeZone,omitempty"`
	// JobParameter is nil for the job's.
	JobParameter *string `json:"jobParameter,omitempty"`
}

// The values of settings that say when a job fires.
const (
	DSTOnce, DSTBoth, DSTSkip        = "once", "both", "skip"
	JitterStable, JitterRandom       = "stable", "random"
	OnExcludedSkip, OnExcludedToNext = "skip", "next"
	OnSuccess, OnFailure, OnAlways   = "success", "failure", "always"
)

// PropCalendarDays is the property with the days of the job's calendars: a JSON mapping of names to texts of
// host/config/calendar. The host with the calendar's file writes it, so that all hosts of the job use the same
// days.
const PropCalendarDays = "wasm.calendarDays"

// The bounds of settings that say when a job fires.
const (
	// MaxSchedules is how many schedules a job may have, MaxCalendars how many calendars it may name.
	MaxSchedules, MaxCalendars = 50, 20
	// MaxJitter bounds the jitter.
	MaxJitter = 24 * time.Hour
	// MaxAfter is how many jobs a job may come after, MaxWithin how long it may wait for the others.
	MaxAfter  = 50
	MaxWithin = 30 * 24 * time.Hour
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

// InstantProps returns the configuration's properties that say when the job fires, with the days of its
// calendars; nil if there are none, as in most jobs.
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

// Terms returns the instants' properties as a text, for a caller without the configuration that asks
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

// instant returns the stored form of a time.
func instant(text string) (string, error) {
	t, err := ParseInstant(text)
	if err != nil {
		return "", err
	}
	return t.Format(time.RFC3339), nil
}

// oneOf returns a function that checks a word and returns its stored form.
func oneOf(words ...string) func(string) (string, error) {
	return func(text string) (string, error) { return Setting{Words: words}.word(strings.TrimSpace(text)) }
}

// SchedulesExample is the example of a list of schedules in error messages.
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

// AfterExample is the example of a list of jobs to come after in error messages.
const AfterExample = `[{"job":"load"},{"job":"check","on":"always","within":"2h"}]`

// parseAfter reads a JSON list of jobs.
func parseAfter(text string) ([]After, error) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	var list []*After
	if err := d.Decode(&list); err != nil || list == nil {
		return nil, fmt.Errorf("found %q, expected a JSON list of jobs, such as %s", Clip(text), AfterExample)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("found %q, expected one JSON list of jobs and nothing after it", Clip(text))
	}
	if len(list) > MaxAfter {
		return nil, fmt.Errorf("found %d jobs, expected at most %d", len(list), MaxAfter)
	}
	var out []After
	for n, a := range list {
		if a == nil {
			return nil, fmt.Errorf("entry %d is empty, expected one such as %s", n+1, AfterExample)
		}
		one, err := CheckAfter(*a)
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", n+1, err)
		}
		for _, before := range out {
			if before.Job == one.Job {
				return nil, fmt.Errorf("entry %d: job %q is given twice", n+1, Clip(one.Job))
			}
		}
		out = append(out, one)
	}
	return out, nil
}

// CheckAfter checks one job that another one comes after, and returns it as it is stored.
func CheckAfter(a After) (After, error) {
	if a.Job = strings.TrimSpace(a.Job); a.Job == "" {
		return a, fmt.Errorf("found no job, expected the name of one")
	}
	if strings.ContainsAny(a.Job, "/\x00") || strings.Contains(a.Job, "@-@") || len(a.Job) > 200 {
		return a, fmt.Errorf("found %q for job, expected the name of a job", Clip(a.Job))
	}
	if on := strings.TrimSpace(a.On); on != "" {
		word, err := Setting{Words: []string{OnSuccess, OnFailure, OnAlways}}.word(on)
		if err != nil {
			return a, fmt.Errorf("on: %w", err)
		}
		if a.On = word; word == OnSuccess {
			a.On = "" // the default is not stored
		}
	}
	if a.Within = strings.TrimSpace(a.Within); a.Within != "" {
		d, err := ParseDuration(a.Within, MaxWithin)
		if err != nil {
			return a, fmt.Errorf("within: %w", err)
		}
		if d <= 0 {
			return a, fmt.Errorf("within: found %q, expected a duration above 0", Clip(a.Within))
		}
	}
	return a, nil
}
