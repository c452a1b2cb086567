// Package arguments reads the arguments of a run, which the job's definition declares, into the fields of a struct. The
// host has checked them before the run, and has filled in defaults.
//
//	type args struct {
//		Day   arguments.Date `json:"day"`
//		Limit int            `json:"limit"`
//	}
//
//	func settle(ctx context.Context, sc sdk.ShardingContext) error {
//		a, err := arguments.Of[args](sc)
//		…
package arguments

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/sdk"
)

// Of returns the run's arguments as a T, which must be a struct. The json tags of its fields are the names of the
// arguments. The error says what does not fit: an argument without a field, a field without an argument (unless its tag
// has omitempty or omitzero), a value of another type, or that the job declares no arguments. All functions of the
// package are safe for concurrent use.
func Of[T any](sc sdk.ShardingContext) (T, error) { return Parse[T](sc.JobParameter) }

// Parse is [Of] for a given job parameter, a JSON object.
func Parse[T any](parameter string) (T, error) {
	var out, none T
	t := reflect.TypeFor[T]()
	if t.Kind() != reflect.Struct {
		return none, fmt.Errorf("arguments: found the type %s, expected a struct", t)
	}
	text := []byte(strings.TrimSpace(parameter))
	if len(text) == 0 || text[0] != '{' {
		return none, fmt.Errorf("arguments: found %.80q as the job parameter, expected a JSON object; the job's definition declares no arguments", parameter)
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(text, &given); err != nil {
		return none, fmt.Errorf("arguments: found %.80q as the job parameter, expected a JSON object: %w", parameter, err)
	}
	known := fields(t)
	for name := range given {
		if !slices.ContainsFunc(known, func(f field) bool { return f.name == name }) {
			return none, fmt.Errorf("arguments: %s has no field for the argument %.80q", t, name)
		}
	}
	for _, f := range known {
		if _, ok := given[f.name]; !ok && !f.optional {
			return none, fmt.Errorf("arguments: the job declares no argument %q, and %s has a field for it", f.name, t)
		}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&out); err != nil {
		return none, fmt.Errorf("arguments: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return none, fmt.Errorf("arguments: found %.80q as the job parameter, expected one JSON object", parameter)
	}
	return out, nil
}

// field is a field of a struct as JSON names it.
type field struct {
	name     string
	optional bool
}

// fields are those of a struct, and of the structs that it embeds.
func fields(t reflect.Type) (list []field) {
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case tag == "-" || (!f.IsExported() && !f.Anonymous):
			continue
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			list = append(list, fields(f.Type)...)
			continue
		case name == "":
			name = f.Name
		}
		optional := slices.ContainsFunc(strings.Split(options, ","), func(o string) bool { return o == "omitempty" || o == "omitzero" })
		list = append(list, field{name, optional})
	}
	return list
}

// Date is an argument of type date: a day, as midnight in UTC.
type Date struct{ time.Time }

// UnmarshalText reads a day such as 2026-12-24.
func (d *Date) UnmarshalText(text []byte) error {
	t, err := time.Parse(time.DateOnly, string(text))
	if err != nil {
		return fmt.Errorf("found %.40q, expected a day such as 2026-12-24", text)
	}
	d.Time = t
	return nil
}

// MarshalText is the day as UnmarshalText reads it.
func (d Date) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalJSON and MarshalJSON are those of a text: the ones of [time.Time] have a time of day.
func (d *Date) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("found %.40q, expected a day such as \"2026-12-24\"", data)
	}
	return d.UnmarshalText([]byte(text))
}

// MarshalJSON is the day as UnmarshalJSON reads it.
func (d Date) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// String is the day as 2026-12-24.
func (d Date) String() string { return d.Format(time.DateOnly) }
