package calendar

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/host/config/fields"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// The names of files with calendars: what comes after a calendar's name.
const (
	SuffixYAML = ".calendar.yaml"
	SuffixICS  = ".ics"
)

// MaxSize is the largest file of a calendar, in bytes.
const MaxSize = 1 << 20

// NameOf is the name of the calendar in a file; ok is false if the file is not named as that of
// a calendar.
func NameOf(file string) (name string, ok bool) {
	for _, suffix := range []string{SuffixYAML, SuffixICS} {
		if name, ok = strings.CutSuffix(file, suffix); ok {
			return name, name != ""
		}
	}
	return "", false
}

// CheckName checks that a name can be that of a calendar: of a file beside a definition.
func CheckName(name string) error {
	if name == "" || len(name) > 100 || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || strings.ContainsRune("/\\\x7f", r) }) || name[0] == '.' || name[0] == '#' {
		return fmt.Errorf("found %q, expected the name of a calendar: NAME of a file NAME%s or NAME%s beside the definition", clip(name), SuffixYAML, SuffixICS)
	}
	return nil
}

// Problem is something wrong in a file. Line and Column begin with 1; they are 0 if they are not
// known, or if the problem is the whole file.
type Problem struct {
	Line, Column int
	// Message names what was found and what was expected.
	Message string
}

func (p Problem) String() string {
	switch {
	case p.Line == 0:
		return p.Message
	case p.Column == 0:
		return fmt.Sprintf("line %d: %s", p.Line, p.Message)
	}
	return fmt.Sprintf("%d:%d: %s", p.Line, p.Column, p.Message)
}

// Parse reads the days of a calendar from a file whose name ends with [SuffixYAML] or [SuffixICS].
// It returns days, or problems.
func Parse(file string, data []byte) (*Days, []Problem) {
	if len(data) > MaxSize {
		return nil, []Problem{{Message: fmt.Sprintf("found %d bytes, expected at most %d", len(data), MaxSize)}}
	}
	read := readYAML
	if strings.HasSuffix(file, SuffixICS) {
		read = readICS
	}
	days, problems := read(file, data)
	switch {
	case len(problems) > 0:
		return nil, problems
	case days.empty():
		return nil, []Problem{{Message: "the calendar has no days, expected at least one"}}
	case len(days.Text()) > MaxText:
		return nil, []Problem{{Message: fmt.Sprintf("the calendar's days take %d bytes in a job's configuration, expected at most %d", len(days.Text()), MaxText)}}
	}
	return days, nil
}

// readYAML reads the form of this project: days, ranges, weekdays and yearly.
func readYAML(file string, data []byte) (*Days, []Problem) {
	f := &fields.File{Name: file}
	var made set
	root := f.Root(data, "expected days, such as days: [2026-12-24]", "a mapping of days, ranges, weekdays and yearly")
	if root != nil {
		made.fields(f, root)
	}
	var all fields.Problems
	if errors.As(f.Problems.Sorted(), &all) {
		problems := make([]Problem, 0, len(all))
		for _, p := range all {
			message := p.Message
			if p.Field != "" {
				message = p.Field + ": " + message
			}
			problems = append(problems, Problem{p.Line, p.Column, message})
		}
		return nil, problems
	}
	return made.made(), nil
}

func (s *set) fields(f *fields.File, root *yaml.Node) {
	for i := 0; i < len(root.Content); i += 2 {
		if key := root.Content[i]; key.Value == "timeZone" {
			f.Problem(key, "timeZone", "a calendar has no time zone: a day is that of each job's own zone; leave it out")
			return
		}
	}
	found := f.Fields(root, "", fileFields)
	each := func(field string, add func(string) error) {
		f.Texts(found[field], field, func(n *yaml.Node, text string) {
			if err := add(text); err != nil {
				f.Problem(n, field, "%v", err)
			}
		})
	}
	each("days", func(text string) error { return s.between(text, text) })
	each("weekdays", s.weekday)
	each("yearly", s.yearly)
	f.Each(found["ranges"], "ranges", func(n *yaml.Node) {
		ends := f.Fields(n, "ranges", rangeFields)
		from, hasFrom := f.Text(ends["from"], "ranges.from")
		to, hasTo := f.Text(ends["to"], "ranges.to")
		if !hasFrom || !hasTo {
			f.Problem(n, "ranges", "a range lacks from or to, expected both, such as {from: 2026-12-24, to: 2027-01-02}")
			return
		}
		if err := s.between(from, to); err != nil {
			f.Problem(n, "ranges", "%v", err)
		}
	})
	f.Text(found["description"], "description")
}

func clip(s string) string { return words.Clip(s) }
