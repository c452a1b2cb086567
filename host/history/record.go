package history

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/event/operation"
)

// KindLine and KindChange are the kinds of the records in a file that are not events.
const (
	KindLine   event.Kind = "log"
	KindChange event.Kind = "change"
)

// Record is one of the three that a store keeps: one of the fields is set.
type Record struct {
	Event  *event.Event
	Line   *Line
	Change *Change
}

// Time returns the record's time.
func (r Record) Time() time.Time {
	switch {
	case r.Event != nil:
		return r.Event.Time
	case r.Line != nil:
		return r.Line.Time
	case r.Change != nil:
		return r.Change.Time
	}
	return time.Time{}
}

// Job returns the record's job, empty if it has none.
func (r Record) Job() string {
	switch {
	case r.Event != nil:
		return r.Event.Job
	case r.Line != nil:
		return r.Line.Job
	case r.Change != nil:
		return r.Change.Job
	}
	return ""
}

type (
	lineRecord struct {
		Kind event.Kind `json:"kind"`
		*Line
	}
	changeRecord struct {
		Kind event.Kind `json:"kind"`
		*Change
	}
)

// MarshalJSON writes a record as one object, which has a kind: an event as it is.
func (r Record) MarshalJSON() ([]byte, error) {
	switch {
	case r.Line != nil:
		return json.Marshal(lineRecord{KindLine, r.Line})
	case r.Change != nil:
		return json.Marshal(changeRecord{KindChange, r.Change})
	}
	return json.Marshal(r.Event)
}

// UnmarshalJSON reads what MarshalJSON writes. An object without a kind is an error.
func (r *Record) UnmarshalJSON(data []byte) error {
	// Most records are events, and the fields of the others do not contradict theirs.
	var e event.Event
	if err := e.UnmarshalJSON(data); err != nil {
		return err
	}
	*r = Record{}
	switch e.Kind {
	case "":
		return fmt.Errorf("found no kind, expected that of an event, %q or %q", KindLine, KindChange)
	case KindLine:
		r.Line = new(Line)
		return json.Unmarshal(data, r.Line)
	case KindChange:
		r.Change = new(Change)
		return json.Unmarshal(data, r.Change)
	}
	r.Event = &e
	return nil
}

// ChangeOf is the audit record of an event that reports an edit of a job's configuration.
func ChangeOf(e event.Event) (c Change, ok bool) {
	if e.Edit == nil {
		return c, false
	}
	c = Change{Time: e.Time, Who: e.Edit.Who, From: e.Edit.From, What: operation.Edit.String() + " " + noSettings, Job: e.Job}
	if len(e.Edit.After) > 0 {
		c.What = operation.Edit.String() + " " + strings.Join(slices.Sorted(maps.Keys(e.Edit.After)), ", ")
	}
	c.Before, c.After = settingsText(e.Edit.Before), settingsText(e.Edit.After)
	if e.Edit.Created {
		c.What, c.Before = operation.Create.String(), "{}"
	}
	return c, true
}

// settingsText returns settings as JSON, empty for none.
func settingsText(settings map[string]string) string {
	if len(settings) == 0 {
		return ""
	}
	text, err := json.Marshal(settings)
	if err != nil { // texts always marshal
		return ""
	}
	return string(text)
}

// Setting is a setting of a job before and after a change. Had is set if it was there before.
type Setting struct {
	Name, Before, After string
	Had                 bool
}

// Settings returns the changed settings by name; ok is false if the change is of another kind.
func (c *Change) Settings() (list []Setting, ok bool) {
	var before, after map[string]string
	if json.Unmarshal([]byte(cmp.Or(c.Before, "{}")), &before) != nil || json.Unmarshal([]byte(c.After), &after) != nil {
		return nil, false
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		was, had := before[name]
		list = append(list, Setting{name, was, after[name], had})
	}
	return list, true
}

// Entry is a record and its JSON, without a newline.
type Entry struct {
	Record
	JSON []byte
}

// NewEntry encodes a record. Invalid UTF-8 becomes U+FFFD.
func NewEntry(r Record) (Entry, error) {
	data, err := r.MarshalJSON()
	if err == nil && bytes.Contains(data, []byte(`\ufffd`)) {
		err = r.UnmarshalJSON(data)
	}
	return Entry{r, data}, err
}
