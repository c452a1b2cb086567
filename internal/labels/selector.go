package labels

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Selector finds jobs by their labels: a job must meet all its conditions. The zero value has none, and finds
// every job. It is immutable.
type Selector struct{ terms []term }

// term is one condition.
type term struct {
	name, value string
	kind        kind
}

type kind uint8

const (
	exists kind = iota // name
	absent             // !name
	equal              // name=value
	differ             // name!=value: also a job without the label
)

// ParseSelector reads conditions separated by commas: NAME=VALUE (or ==), NAME!=VALUE, NAME for a job that has
// the label, !NAME for one that does not. Several texts are combined. The error names what was found and what
// was expected.
func ParseSelector(texts ...string) (Selector, error) {
	var s Selector
	for _, text := range texts {
		if strings.TrimSpace(text) == "" {
			continue
		}
		for part := range strings.SplitSeq(text, ",") {
			t, err := parseTerm(strings.TrimSpace(part))
			if err != nil {
				return Selector{}, err
			}
			if len(s.terms) == MaxTerms {
				return Selector{}, fmt.Errorf("found more than %d conditions, expected at most %d", MaxTerms, MaxTerms)
			}
			s.terms = append(s.terms, t)
		}
	}
	return s, nil
}

func parseTerm(text string) (term, error) {
	var t term
	if at := strings.Index(text, "="); at > 0 {
		t = term{text[:at], text[at+1:], equal}
		if strings.HasSuffix(t.name, "!") {
			t.name, t.kind = strings.TrimSuffix(t.name, "!"), differ
		} else {
			t.value = strings.TrimPrefix(t.value, "=")
		}
	} else if name, not := strings.CutPrefix(text, "!"); not {
		t = term{name, "", absent}
	} else {
		t = term{text, "", exists}
	}
	t.name, t.value = strings.TrimSpace(t.name), strings.TrimSpace(t.value)
	if err := Check(t.name, t.value); err != nil {
		return term{}, fmt.Errorf("found %q in a selector of labels, expected conditions such as %s: %w", words.Clip(text), Example, err)
	}
	return t, nil
}

// Matches reports whether the labels meet all conditions.
func (s Selector) Matches(of Set) bool {
	for _, t := range s.terms {
		if !t.holds(of) {
			return false
		}
	}
	return true
}

func (t term) holds(of Set) bool {
	value, has := of[t.name]
	switch t.kind {
	case exists:
		return has
	case absent:
		return !has
	case equal:
		return has && value == t.value
	default:
		return !has || value != t.value
	}
}

// Empty reports whether the selector has no conditions.
func (s Selector) Empty() bool { return len(s.terms) == 0 }

// IsZero reports whether the selector has no conditions, for JSON.
func (s Selector) IsZero() bool { return s.Empty() }

// MarshalText implements [encoding.TextMarshaler] by String.
func (s Selector) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler] by ParseSelector.
func (s *Selector) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSelector(string(text))
	return err
}

// String is the selector as [ParseSelector] reads it; empty without conditions.
func (s Selector) String() string {
	var parts []string
	for _, t := range s.terms {
		switch t.kind {
		case exists:
			parts = append(parts, t.name)
		case absent:
			parts = append(parts, "!"+t.name)
		case equal:
			parts = append(parts, t.name+"="+t.value)
		case differ:
			parts = append(parts, t.name+"!="+t.value)
		}
	}
	return strings.Join(parts, ",")
}

// Names returns the label names of all conditions, in their order.
func (s Selector) Names() (names []string) {
	for _, t := range s.terms {
		names = append(names, t.name)
	}
	return names
}

// Matchers returns the conditions in Prometheus' syntax, for a metric with the jobs' labels by [InMetrics]:
// there a missing label is empty.
func (s Selector) Matchers() string {
	var parts []string
	for _, t := range s.terms {
		is := "="
		if t.kind == exists || t.kind == differ {
			is = "!="
		}
		parts = append(parts, InMetrics(t.name)+is+strconv.Quote(t.value))
	}
	return strings.Join(parts, ", ")
}

// InMetrics returns the name of a job's label in metrics: characters that Prometheus does not allow become _.
func InMetrics(name string) string {
	return "label_" + strings.Map(func(r rune) rune {
		if r == '_' || (r >= '0' && r <= '9') || (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z') {
			return r
		}
		return '_'
	}, name)
}
