// Package labels has the labels of jobs, and the selectors that find jobs by them. Names, values and selectors
// have the grammar of Kubernetes' labels and of its equality-based selectors. It is pure.
package labels

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Bounds. Sizes are in bytes.
const (
	// Max is how many labels a job may have, MaxTerms how many conditions a selector may have.
	Max      = 16
	MaxTerms = 64

	maxPart   = 63
	maxPrefix = 253
)

// Example is the example of a selector in error messages.
const Example = "team=billing,tier!=test,critical"

// Set is the labels of one job: values by name. A value may be empty. Nil is none.
type Set map[string]string

// String returns the set as [Parse] reads it: NAME=VALUE, sorted by name, separated by commas.
func (s Set) String() string {
	var b strings.Builder
	for i, name := range slices.Sorted(maps.Keys(s)) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(name)
		b.WriteByte('=')
		b.WriteString(s[name])
	}
	return b.String()
}

// Parse reads labels as NAME=VALUE, separated by commas. An empty text has no labels. The error names what was
// found and what was expected.
func Parse(text string) (Set, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	if strings.Count(text, ",") >= Max {
		return nil, fmt.Errorf("found %d labels, expected at most %d", strings.Count(text, ",")+1, Max)
	}
	set := make(Set)
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(part, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok {
			return nil, fmt.Errorf("found %q, expected NAME=VALUE, such as team=billing", words.Clip(part))
		}
		if _, twice := set[name]; twice {
			return nil, fmt.Errorf("label %q is given twice", words.Clip(name))
		}
		if err := Check(name, value); err != nil {
			return nil, err
		}
		set[name] = value
	}
	return set, nil
}

// Check returns an error if the name or the value is invalid.
func Check(name, value string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if value != "" && !isPart(value) {
		return fmt.Errorf("found the value %q of label %s, expected none, or 1 to %d letters, digits, -, _ and ., with a letter or a digit first and last", words.Clip(value), name, maxPart)
	}
	return nil
}

// CheckName is an error if no label can have the name.
func CheckName(name string) error {
	prefix, part, prefixed := strings.Cut(name, "/")
	if !prefixed {
		prefix, part = "", name
	}
	if !isPart(part) || (prefixed && !isDomain(prefix)) {
		return fmt.Errorf("found the label name %q, expected 1 to %d letters, digits, -, _ and ., with a letter or a digit first and last, if wanted after a domain and a slash: team, example.com/team", words.Clip(name), maxPart)
	}
	return nil
}

func isPart(s string) bool {
	if s == "" || len(s) > maxPart || !alphanumeric(s[0]) || !alphanumeric(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !alphanumeric(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

// isDomain reports whether a text is a DNS subdomain in lower case.
func isDomain(s string) bool {
	if len(s) > maxPrefix || s != strings.ToLower(s) || strings.Contains(s, "_") {
		return false
	}
	for part := range strings.SplitSeq(s, ".") {
		if !isPart(part) {
			return false
		}
	}
	return true
}

func alphanumeric(c byte) bool {
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')
}
