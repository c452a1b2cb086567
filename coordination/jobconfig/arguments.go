package jobconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Argument is one named value that the job's definition declares and that each run gets. A job with arguments
// passes them to its guests as one JSON object, the job parameter; see [Arguments.Complete].
type Argument struct {
	Name string `json:"name"`
	// Type is string, integer, number, boolean, date or enum.
	Type string `json:"type"`
	// Default is used if a run is not given a value; nil means that each run must be given one. Default, Min,
	// Max and Values are texts as people write them.
	Default *string `json:"default,omitempty"`
	// Min and Max bound a number or a date, and the length of a string in characters; empty for no bound.
	Min string `json:"min,omitempty"`
	Max string `json:"max,omitempty"`
	// Values are those of an enum.
	Values []string `json:"values,omitempty"`
	// Description is for people.
	Description string `json:"description,omitempty"`
}

// The types of arguments.
const (
	ArgString  = "string"
	ArgInteger = "integer" // see MaxArgInteger
	ArgNumber  = "number"  // a finite float64
	ArgBoolean = "boolean"
	ArgDate    = "date" // a day, 2026-12-24
	ArgEnum    = "enum" // one of Values
)

// ArgumentTypes are the types of arguments, in the order of the documentation.
func ArgumentTypes() []string {
	return []string{ArgString, ArgInteger, ArgNumber, ArgBoolean, ArgDate, ArgEnum}
}

// The bounds of arguments.
const (
	// MaxArguments is how many arguments a job may have, MaxArgValues how many values an enum may have.
	MaxArguments, MaxArgValues = 50, 100
	// MaxArgInteger bounds an integer on both sides: every language reads JSON numbers up to it exactly.
	MaxArgInteger = 1<<53 - 1
	// MaxParameter bounds the arguments of a run as JSON, and the parameter of a trigger, in bytes: hosts write
	// them with each commit of the fire.
	MaxParameter = 4 << 10
	// maxArgDescription bounds a description, in bytes.
	maxArgDescription = 500
)

// ArgumentsExample is the example of a list of arguments in error messages.
const ArgumentsExample = `[{"name":"day","type":"date"},{"name":"limit","type":"integer","default":"100","min":"1","max":"1000"}]`

// Arguments are a job's declared arguments, in the order of its definition.
type Arguments []Argument

var argumentName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,63}$`)

// parseArguments reads a JSON list of arguments.
func parseArguments(text string) (Arguments, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	var list []*Argument
	if err := d.Decode(&list); err != nil || list == nil {
		return nil, fmt.Errorf("found %q, expected a JSON list of arguments, such as %s", Clip(text), ArgumentsExample)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("found %q, expected one JSON list of arguments and nothing after it", Clip(text))
	}
	if len(list) > MaxArguments {
		return nil, fmt.Errorf("found %d arguments, expected at most %d", len(list), MaxArguments)
	}
	var out Arguments
	for n, a := range list {
		if a == nil {
			return nil, fmt.Errorf("entry %d is empty, expected one such as %s", n+1, ArgumentsExample)
		}
		one, err := CheckArgument(*a, out)
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", n+1, err)
		}
		out = append(out, one)
	}
	return out, nil
}

// CheckArgument checks one argument of a job that declares others before it, and returns it as it is stored.
func CheckArgument(a Argument, before Arguments) (Argument, error) {
	if a.Name = strings.TrimSpace(a.Name); !argumentName.MatchString(a.Name) {
		return a, fmt.Errorf("name: found %q, expected a letter and up to 63 letters, digits and underscores", Clip(a.Name))
	}
	if slices.ContainsFunc(before, func(b Argument) bool { return b.Name == a.Name }) {
		return a, fmt.Errorf("name: %q is given twice", a.Name)
	}
	kind, err := Setting{Words: ArgumentTypes()}.word(strings.TrimSpace(a.Type))
	if err != nil {
		return a, fmt.Errorf("argument %s: type: %w", a.Name, err)
	}
	a.Type = kind
	if err := a.check(); err != nil {
		return a, fmt.Errorf("argument %s: %w", a.Name, err)
	}
	return a, nil
}

// check refuses bounds, values, a default or a description that do not fit the type.
func (a *Argument) check() error {
	bounded := a.Type != ArgBoolean && a.Type != ArgEnum
	switch {
	case (a.Min != "" || a.Max != "") && !bounded:
		return fmt.Errorf("min and max: found bounds, but the type %s has none", a.Type)
	case a.Type == ArgEnum && len(a.Values) == 0:
		return errors.New("values: found none, expected the values of the enum")
	case a.Type != ArgEnum && len(a.Values) > 0:
		return fmt.Errorf("values: found some, but the type is %s; values are for the type %s", a.Type, ArgEnum)
	case len(a.Values) > MaxArgValues:
		return fmt.Errorf("values: found %d, expected at most %d", len(a.Values), MaxArgValues)
	case len(a.Description) > maxArgDescription:
		return fmt.Errorf("description: found %d bytes, expected at most %d", len(a.Description), maxArgDescription)
	}
	for n, v := range a.Values {
		if err := checkText(v); err != nil {
			return fmt.Errorf("values: %w", err)
		}
		if v == "" || slices.Contains(a.Values[:n], v) {
			return fmt.Errorf("values: found %q twice or empty, expected different texts", Clip(v))
		}
	}
	low, high, err := a.bounds()
	if err != nil {
		return err
	}
	if low != nil && high != nil && a.less(high, low) {
		return fmt.Errorf("max: found %s, expected at least min, %s", Clip(a.Max), Clip(a.Min))
	}
	if a.Default != nil {
		if _, err := a.parse(*a.Default); err != nil {
			return fmt.Errorf("default: %w", err)
		}
	}
	return nil
}

// bounds returns min and max, nil for none, as the type compares them; see less.
func (a *Argument) bounds() (low, high any, err error) {
	if a.Min != "" {
		if low, err = a.bound(a.Min); err != nil {
			return nil, nil, fmt.Errorf("min: %w", err)
		}
	}
	if a.Max != "" {
		if high, err = a.bound(a.Max); err != nil {
			return nil, nil, fmt.Errorf("max: %w", err)
		}
	}
	return low, high, nil
}

func (a *Argument) bound(text string) (any, error) {
	if a.Type != ArgString {
		return a.value(text)
	}
	n, err := Setting{Max: MaxParameter}.number(strings.TrimSpace(text)) // a length
	return int64(n), err
}

// less compares two values that value or bound returned.
func (a *Argument) less(x, y any) bool {
	switch x := x.(type) {
	case int64:
		return x < y.(int64)
	case float64:
		return x < y.(float64)
	case string: // a date
		return x < y.(string)
	}
	return false
}

// value reads a text as the type has it, without its bounds: a string, an int64, a float64 or a bool.
func (a *Argument) value(text string) (any, error) {
	trimmed := strings.TrimSpace(text)
	switch a.Type {
	case ArgInteger:
		if n, err := strconv.ParseInt(trimmed, 10, 64); err == nil && n >= -MaxArgInteger && n <= MaxArgInteger {
			return n, nil
		}
	case ArgNumber:
		f, err := strconv.ParseFloat(trimmed, 64)
		if err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) && !strings.ContainsAny(trimmed, "xX_") {
			return f, nil
		}
	case ArgBoolean:
		if trimmed == "true" || trimmed == "false" {
			return trimmed == "true", nil
		}
	case ArgDate:
		if d, err := time.Parse(time.DateOnly, trimmed); err == nil && d.Year() > 0 {
			return trimmed, nil
		}
	case ArgEnum:
		if slices.Contains(a.Values, text) {
			return text, nil
		}
	default:
		if err := checkText(text); err != nil {
			return nil, err
		}
		return text, nil
	}
	return nil, fmt.Errorf("found %q, expected %s", Clip(text), a.Expected())
}

func checkText(text string) error {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return errors.New("found bytes that are no text, expected UTF-8 without NUL")
	}
	return nil
}

// Expected describes the values that the argument accepts, in a text of bounded length.
func (a Argument) Expected() string {
	between := func(what string) string {
		switch {
		case a.Min != "" && a.Max != "":
			return fmt.Sprintf("%s from %s to %s", what, Clip(a.Min), Clip(a.Max))
		case a.Min != "":
			return fmt.Sprintf("%s of at least %s", what, Clip(a.Min))
		case a.Max != "":
			return fmt.Sprintf("%s of at most %s", what, Clip(a.Max))
		}
		return what
	}
	switch a.Type {
	case ArgInteger:
		return between("a whole number")
	case ArgNumber:
		return between("a number")
	case ArgBoolean:
		return "true or false"
	case ArgDate:
		return between("a date such as 2026-12-24")
	case ArgEnum:
		return "one of " + words.Clip(strings.Join(a.Values, ", "))
	}
	if a.Min != "" || a.Max != "" {
		return between("a text with a number of characters")
	}
	return "a text"
}

// parse reads a text as people write the argument, within its bounds, and returns its JSON.
func (a *Argument) parse(text string) (json.RawMessage, error) {
	v, err := a.value(text)
	if err != nil {
		return nil, err
	}
	low, high, err := a.bounds()
	if err != nil {
		return nil, err
	}
	measure := v
	if a.Type == ArgString {
		measure = int64(utf8.RuneCountInString(text))
	}
	if (low != nil && a.less(measure, low)) || (high != nil && a.less(high, measure)) {
		return nil, fmt.Errorf("found %q, expected %s", Clip(text), a.Expected())
	}
	return asJSON(v)
}

// asJSON returns a value as JSON, without escapes for <, > and &.
func asJSON(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// read reads a JSON value: of the argument's type, or a text as people write it.
func (a *Argument) read(raw json.RawMessage) (json.RawMessage, error) {
	switch raw[0] {
	case '"':
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, fmt.Errorf("found %q, expected %s", Clip(string(raw)), a.Expected())
		}
		return a.parse(text)
	case 't', 'f':
		if a.Type == ArgBoolean {
			return a.parse(string(raw))
		}
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		if a.Type == ArgInteger || a.Type == ArgNumber {
			return a.parse(string(raw))
		}
	}
	return nil, fmt.Errorf("found %s, expected %s", Clip(string(raw)), a.Expected())
}

// Complete makes the parameter of a run: a JSON object of all arguments, in their order, without blanks. Each
// text is a JSON object of some arguments, or empty; an earlier text takes precedence over a later one, and the
// defaults come last. A value is of the argument's type, or a text as people write it. The error joins a
// [*FieldError] for each problem; its field is "arguments", or "arguments." and the argument's name.
func (list Arguments) Complete(texts ...string) (string, error) {
	return list.complete(true, texts)
}

// Check is Complete for texts that may omit arguments without a default.
func (list Arguments) Check(texts ...string) error {
	_, err := list.complete(false, texts)
	return err
}

func (list Arguments) complete(all bool, texts []string) (string, error) {
	var problems words.Problems
	bad := func(name string, err error) {
		field := "arguments"
		if name != "" {
			field += "." + name
		}
		problems.Add(&FieldError{field, err.Error()})
	}
	values := make(map[string]json.RawMessage, len(list))
	for _, text := range texts {
		given, err := object(text)
		if err != nil {
			bad("", err)
			continue
		}
		for _, g := range given {
			at := slices.IndexFunc(list, func(a Argument) bool { return a.Name == g.name })
			if at < 0 {
				bad("", fmt.Errorf("found %q, expected %s", Clip(g.name), list.names()))
				continue
			}
			v, err := list[at].read(g.value)
			if err != nil {
				bad(g.name, err)
				v = json.RawMessage("null") // it is given
			}
			if values[g.name] == nil {
				values[g.name] = v
			}
		}
	}
	out := []byte("{")
	for _, a := range list {
		v := values[a.Name]
		if v == nil && a.Default != nil {
			var err error
			if v, err = a.parse(*a.Default); err != nil { // CheckArgument has read it
				bad(a.Name, err)
			}
		}
		if v == nil {
			if all {
				bad(a.Name, fmt.Errorf("is missing, expected %s", a.Expected()))
			}
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, `"`+a.Name+`":`...)
		out = append(out, v...)
	}
	out = append(out, '}')
	if len(out) > MaxParameter {
		bad("", fmt.Errorf("found %d bytes as JSON, expected at most %d", len(out), MaxParameter))
	}
	return string(out), problems.Err()
}

// With returns the arguments with defaults replaced by the values of the job's parameter: what a run gets that
// is given nothing. A parameter that cannot be read changes none.
func (list Arguments) With(parameter string) Arguments {
	given, err := object(parameter)
	if err != nil || len(given) == 0 {
		return list
	}
	list = slices.Clone(list)
	for i := range list {
		for _, g := range given {
			if g.name != list[i].Name {
				continue
			}
			if v, err := list[i].read(g.value); err == nil {
				text := string(v)
				if v[0] == '"' {
					_ = json.Unmarshal(v, &text) // asJSON made it
				}
				list[i].Default = &text
			}
		}
	}
	return list
}

// names lists the names of the arguments, for messages.
func (list Arguments) names() string {
	if len(list) == 0 {
		return "none: the job declares no arguments"
	}
	var names []string
	for _, a := range list {
		names = append(names, a.Name)
	}
	return "one of " + words.Clip(strings.Join(names, ", "))
}

// member is one member of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// object reads a JSON object in its order; an empty text has no members.
func object(text string) (list []member, err error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	refused := fmt.Errorf(`found %q, expected a JSON object such as {"day":"2026-12-24"}`, Clip(text))
	if len(text) > 8*MaxParameter {
		return nil, fmt.Errorf("found %d bytes, expected at most %d", len(text), MaxParameter)
	}
	d := json.NewDecoder(strings.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, refused
	}
	for d.More() {
		t, err := d.Token()
		name, isName := t.(string)
		if err != nil || !isName {
			return nil, refused
		}
		if slices.ContainsFunc(list, func(m member) bool { return m.name == name }) {
			return nil, fmt.Errorf("found %q twice, expected each argument once", Clip(name))
		}
		if len(list) == MaxArguments {
			return nil, fmt.Errorf("found more than %d arguments, expected at most that many", MaxArguments)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil || len(value) == 0 {
			return nil, refused
		}
		list = append(list, member{name, value})
	}
	if _, err := d.Token(); err != nil {
		return nil, refused
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, refused
	}
	return list, nil
}

// checkArguments checks the parameters in the configuration: those of a schedule must be complete.
func (c Configuration) checkArguments(g Guest) error {
	if len(g.Arguments) == 0 {
		return nil
	}
	var problems words.Problems
	check := g.Arguments.Check
	if c.Cron != "" || g.When.At != "" || len(g.When.After) > 0 {
		check = func(texts ...string) error {
			_, err := g.Arguments.Complete(texts...)
			return err
		}
	}
	in := func(field, where string, err error) {
		for _, f := range FieldErrors(err) {
			problems.Add(&FieldError{field, fmt.Sprintf("%s%s: %s", where, f.Field, f.Problem)})
		}
	}
	in("jobParameter", "", check(c.JobParameter))
	for n, s := range g.When.Schedules {
		own := ""
		if s.JobParameter != nil {
			own = *s.JobParameter
		}
		_, err := g.Arguments.Complete(own, c.JobParameter)
		in("props.wasm.schedules", fmt.Sprintf("schedule %d: ", n+1), err)
	}
	return problems.Err()
}

// Parameter is the job parameter of a run. given is what the run was given, nil for nothing. For a job with
// arguments it is the JSON of [Arguments.Complete].
func (g Guest) Parameter(c Configuration, given *string) (string, error) {
	switch {
	case len(g.Arguments) == 0 && given != nil:
		return *given, nil
	case len(g.Arguments) == 0:
		return c.JobParameter, nil
	case given != nil:
		return g.Arguments.Complete(*given, c.JobParameter)
	}
	return g.Arguments.Complete(c.JobParameter)
}
