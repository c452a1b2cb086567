package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/admin/changelog"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/config/definition"
	"github.com/wasmjob/wasmjob/host/config/timetable"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// JobConfig is a job's configuration in the registry.
type JobConfig struct {
	Job string `json:"job"`
	// Version names the configuration that an edit is made from. It grows with each change, even if the job is
	// removed and restored.
	Version int64 `json:"version"`
	// Settings are all that can be edited, by their names in a definition file, as texts.
	Settings map[string]string `json:"settings"`
	// Terms are the settings besides cron and zone that determine the schedule, for programs of this project;
	// empty for none.
	Terms string `json:"terms,omitempty"`
	// Origins say where the value of each setting comes from. They are missing in answers to edits.
	Origins map[string]Origin `json:"origins,omitempty"`
	// File is the definition file of the job, empty if no host has one.
	File string `json:"file,omitempty"`
	// Silent are hosts that do not answer, so that it may be unknown who changed a setting.
	Silent []string `json:"silent,omitempty"`
}

// Origin is where the value of a setting comes from.
type Origin struct {
	// From is default: the value is a definition's default; file: it is from the definition file that was
	// applied last; edit: it was changed since, by a known author; registry: the author is unknown, or no
	// definition file was ever applied to the job.
	From string `json:"from"`
	// File is the file of defaults that gave the value to the definition; empty if it is the definition's own.
	File string `json:"file,omitempty"`
	// Who edited it, Time is when, and Why is the given reason.
	Who  string    `json:"who,omitempty"`
	Time time.Time `json:"time,omitzero"`
	Why  string    `json:"why,omitempty"`
}

// Where the value of a setting comes from; see [Origin].
const FromDefault, FromFile, FromEdit, FromRegistry = "default", "file", "edit", "registry"

// origins say where the settings of a job come from, as far as the registry knows it.
func (r *Registry) origins(job string, c operate.Config) (map[string]Origin, error) {
	defaults, err := definition.Defaults(job, r.ceilings)
	if err != nil {
		return nil, err
	}
	file, applied := c.Definition()
	out := make(map[string]Origin)
	for _, s := range operate.Editable() {
		now := operate.Text(s, c.Configuration)
		switch {
		case !s.Required && now == operate.Text(s, defaults) && (!applied || now == operate.Text(s, file)):
			out[s.Name] = Origin{From: FromDefault}
		case applied && now == operate.Text(s, file):
			out[s.Name] = Origin{From: FromFile}
		default:
			out[s.Name] = Origin{From: FromRegistry}
		}
	}
	return out, nil
}

func newJobConfig(job string, c operate.Config) *JobConfig {
	out := &JobConfig{Job: job, Version: c.Version, Settings: make(map[string]string), Terms: c.Terms()}
	for _, s := range operate.Editable() {
		out.Settings[s.Name] = operate.Text(s, c.Configuration)
	}
	return out
}

// Edit is an edit of a job's configuration.
type Edit struct {
	// Version is that of the configuration from which the edit was made; -1 edits
	// whichever there is.
	Version int64
	// Settings are the new values, by names, an empty one the default; the others stay.
	Settings map[string]string
	// Preview changes nothing.
	Preview bool
}

// Edited is a job's configuration before and after an edit.
type Edited struct {
	Before *JobConfig `json:"before"`
	After  *JobConfig `json:"after"`
}

// Unchanged reports whether the edit changes nothing.
func (e *Edited) Unchanged() bool { return maps.Equal(e.Before.Settings, e.After.Settings) }

// StaleError refuses an edit that was made from another version than there is.
type StaleError struct {
	Found int64 // the version that the edit was made from
	Now   *JobConfig
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("the configuration of job %q was changed since version %d, which the edit was made from: it is version %d now; look at it and edit that",
		e.Now.Job, e.Found, e.Now.Version)
}

// errUnwritten ends an edit before it is written: a preview, or one that changes nothing.
var errUnwritten = errors.New("nothing is written")

// Config is the configuration of a job.
func (r *Registry) Config(ctx context.Context, job string) (*JobConfig, error) {
	c, err := query(ctx, r, job, operate.ReadConfig)
	if err != nil {
		return nil, err
	}
	out := newJobConfig(job, c)
	out.Origins, err = r.origins(job, c)
	return out, err
}

// EditConfig edits the configuration of a job, on all its hosts. Errors are a
// *StaleError, and a *jobconfig.FieldError for each setting at fault. What changes nothing is not written.
func (r *Registry) EditConfig(ctx context.Context, job string, e Edit) (*Edited, error) {
	var after jobconfig.Configuration
	record := changelog.Record{What: EditOf(e.Settings)}
	written := false
	edit := func(before jobconfig.Configuration) (_ jobconfig.Configuration, err error) {
		if after, err = r.edited(job, before, e.Settings); err != nil {
			return after, err
		}
		record.Before, record.After = settingsTexts(operate.Differences(before, after))
		if written = !e.Preview && record.After != ""; !written {
			return after, errUnwritten
		}
		return after, nil
	}
	type both struct{ before, after operate.Config }
	done, err := query(ctx, r, job, func(ctx context.Context, c registry.Center, l tree.Layout) (both, error) {
		before, after, err := operate.EditConfig(ctx, r.recorded(c, l, &record), l, e.Version, edit)
		if errors.Is(err, errUnwritten) {
			err = nil
		}
		return both{before, after}, err
	})
	var stale *operate.StaleError
	if errors.As(err, &stale) {
		return nil, &StaleError{stale.Found, newJobConfig(job, stale.Now)}
	}
	if err != nil {
		return nil, err
	}
	done.after.Configuration = after
	if !written {
		done.after.Version = done.before.Version
	}
	return &Edited{newJobConfig(job, done.before), newJobConfig(job, done.after)}, nil
}

// Settings are the names of the settings that can be edited.
func Settings() []string { return operate.EditableNames() }

// edited returns a configuration with settings changed; an empty text resets one to its default. The error
// joins a *jobconfig.FieldError for each setting at fault. Only faults that the edit introduces are refused.
func (r *Registry) edited(job string, before jobconfig.Configuration, settings map[string]string) (jobconfig.Configuration, error) {
	defaults, err := definition.Defaults(job, r.ceilings)
	if err != nil {
		return before, err
	}
	settings = maps.Clone(settings)
	for _, s := range operate.Editable() {
		text, edits := settings[s.Name]
		absent := s.Prop != "" && operate.Text(s, defaults) == operate.Text(s, jobconfig.Configuration{}) // then it may follow other settings
		if edits && text == "" && !s.Required && !absent {
			settings[s.Name] = operate.Text(s, defaults)
		}
	}
	after, err := operate.Edit(before, settings)
	var problems words.Problems
	problems.Add(err)
	for _, check := range []func(jobconfig.Configuration) []*jobconfig.FieldError{definition.Check, r.refuses} {
		known := check(before)
		for _, p := range check(after) {
			if !slices.ContainsFunc(known, func(k *jobconfig.FieldError) bool { return *k == *p }) {
				problems.Add(p)
			}
		}
	}
	return after, problems.Err()
}

// EditOf is what the record of an edit of settings says that was done.
func EditOf(settings map[string]string) string {
	return words.Reason(operation.Edit.String() + " " + strings.Join(sortedKeys(settings), ", "))
}

// settingsTexts returns settings before and after as a record in the registry has them: JSON, empty for none.
// Long values are cut, because the record is in one commit with the configuration.
func settingsTexts(before, after map[string]string) (was, is string) {
	text := func(settings map[string]string) string {
		short := make(map[string]string, len(settings))
		for name, value := range settings {
			short[name] = event.Cut(value, event.MaxReason)
		}
		data, err := json.Marshal(short)
		if err != nil || len(settings) == 0 { // texts always marshal
			return ""
		}
		return string(data)
	}
	return text(before), text(after)
}

// Schedule is what determines a job's instants: its cron, its zone, and its terms, see
// [jobconfig.Configuration.Terms].
type Schedule struct{ Cron, TimeZone, Terms string }

// Next are the next instants of a schedule after a time, at most n; none without a
// schedule. The error is about a field of it: a *jobconfig.FieldError.
func Next(of Schedule, after time.Time, n int) ([]time.Time, error) {
	return Between(of, after.Add(1), time.Time{}, n)
}

// Between are the instants of a schedule from one time to another, at most n; a zero
// end is none. The error is as that of [Next].
func Between(of Schedule, from, to time.Time, n int) ([]time.Time, error) {
	s, problems := timetable.FromTerms("", "", of.Cron, of.TimeZone, of.Terms) // instants do not depend on the job's name
	if len(problems) > 0 {
		return nil, problems[0]
	}
	if s == nil {
		return nil, nil
	}
	var times []time.Time
	for at := s.Next(from.Add(-1)); len(times) < n && !at.IsZero() && (to.IsZero() || at.Before(to)); at = s.Next(at) {
		times = append(times, at)
	}
	return times, nil
}
