package grants

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/words"
)

// file is a file that is being read.
type file struct {
	*reader
	name string
	dir  string // where relative paths begin; absolute
}

func (f *file) problem(n *yaml.Node, field, format string, args ...any) {
	f.problems = append(f.problems, f.at(n, field, fmt.Sprintf(format, args...)))
}

func (f *file) at(n *yaml.Node, field, message string) Problem {
	return Problem{File: f.name, Line: n.Line, Column: n.Column, Field: field, Message: message}
}

// place is how messages to guests and people name a line.
func (f *file) place(n *yaml.Node) string { return base(f.name) + ":" + strconv.Itoa(n.Line) }

// root is the mapping of the file's one document; nil if there is none.
func (f *file) root(data []byte) *yaml.Node {
	whole := func(format string, args ...any) *yaml.Node {
		f.problems = append(f.problems, Problem{File: f.name, Message: fmt.Sprintf(format, args...)})
		return nil
	}
	documents, err := decode(data)
	switch {
	case err != nil:
		line, message := syntax(err)
		f.problems = append(f.problems, Problem{File: f.name, Line: line, Column: 1, Message: "not YAML: " + message})
		return nil
	case len(documents) == 0:
		// A file that is being written begins so; it must not take all grants away.
		return whole("the file is empty, expected the field grants; \"grants: []\" grants nothing")
	case len(documents) > 1:
		return whole("found %d YAML documents, expected one", len(documents))
	case documents[0].Kind != yaml.MappingNode:
		f.problem(documents[0], "", "found %s, expected the fields grants, keys and trust", form(documents[0]))
		return nil
	}
	return documents[0]
}

// decode returns the roots of all documents that are not empty.
func decode(data []byte) (roots []*yaml.Node, err error) {
	// The parser is not ours; whatever it does with a file, the host goes on.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return roots, nil
		}
		if err != nil {
			return nil, err
		}
		for _, root := range document.Content {
			if !isNull(root) {
				roots = append(roots, root)
			}
		}
	}
}

var lineOfError = regexp.MustCompile(`^line (\d+): `)

// syntax takes the line out of the parser's error. It can be one off.
func syntax(err error) (line int, message string) {
	message = strings.TrimPrefix(err.Error(), "yaml: ")
	line = 1
	if m := lineOfError.FindStringSubmatch(message); m != nil {
		line, _ = strconv.Atoi(m[1]) // digits
		message = message[len(m[0]):]
	}
	return line, message
}

// fields returns the values of a mapping by name. field is the mapping's own name; the
// names of its entries come after it.
func (f *file) fields(n *yaml.Node, field string, known ...string) map[string]*yaml.Node {
	found := map[string]*yaml.Node{}
	f.pairs(n, field, func(key, value *yaml.Node) {
		if !slices.Contains(known, key.Value) {
			expected := words.Suggest(key.Value, known)
			if expected == "" {
				expected = ", expected one of " + strings.Join(known, ", ")
			}
			f.problem(key, field, "unknown field %q%s", jobconfig.Clip(key.Value), expected)
			return
		}
		found[key.Value] = value
	})
	return found
}

// pairs calls each for the entries of a mapping that have a name of their own and a value.
func (f *file) pairs(n *yaml.Node, field string, each func(key, value *yaml.Node)) {
	if n == nil {
		return
	}
	if n.Kind != yaml.MappingNode {
		f.problem(n, field, "found %s, expected a mapping", describe(n))
		return
	}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		line, twice := first[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode:
			f.problem(key, field, "found %s as the name of a field, expected a name", form(key))
		case isPlain(key) && key.Value == "<<":
			f.problem(key, field, "mappings cannot be merged with <<, expected the fields themselves")
		case twice:
			f.problem(key, field, "%q is given twice, first in line %d", jobconfig.Clip(key.Value), line)
		case isNull(value):
			f.problem(key, field, "%q has no value, expected one; leave the field out to grant nothing by it", jobconfig.Clip(key.Value))
		case !f.plain(value, join(field, key.Value)):
		default:
			each(key, value)
		}
		if !twice {
			first[key.Value] = key.Line
		}
	}
}

// plain refuses what makes a file mean other things than it shows.
func (f *file) plain(n *yaml.Node, field string) bool {
	switch {
	case n.Kind == yaml.AliasNode:
		f.problem(n, field, "found an alias (*), expected the value itself; one entry may name several jobs")
		return false
	case n.Style&yaml.TaggedStyle != 0:
		f.problem(n, field, "found the tag %s, expected a value without one", jobconfig.Clip(n.Tag))
		return false
	}
	return true
}

func join(field, name string) string {
	if field == "" {
		return jobconfig.Clip(name)
	}
	return field + "." + jobconfig.Clip(name)
}

// each calls do for the elements of a list. Of no list there are none.
func (f *file) each(n *yaml.Node, field string, do func(*yaml.Node)) {
	if n == nil {
		return
	}
	if n.Kind != yaml.SequenceNode {
		f.problem(n, field, "found %s, expected a list", describe(n))
	}
	for _, e := range n.Content {
		if n.Kind == yaml.SequenceNode && f.plain(e, field) {
			do(e)
		}
	}
}

// texts takes a text, or a list of texts that is not empty.
func (f *file) texts(n *yaml.Node, field string, each func(n *yaml.Node, text string)) {
	if n == nil {
		return
	}
	if n.Kind == yaml.ScalarNode {
		each(n, n.Value)
		return
	}
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		f.problem(n, field, "found an empty list, expected at least one text")
	}
	f.each(n, field, func(e *yaml.Node) {
		if text, ok := f.text(e, field); ok {
			each(e, text)
		}
	})
}

func (f *file) text(n *yaml.Node, field string) (string, bool) {
	if n.Kind != yaml.ScalarNode || isNull(n) {
		f.problem(n, field, "found %s, expected a text", describe(n))
		return "", false
	}
	return n.Value, true
}

func (f *file) bool(n *yaml.Node, field string) bool {
	if n == nil {
		return false
	}
	if n.Kind == yaml.ScalarNode {
		switch strings.ToLower(n.Value) {
		case "true", "yes", "on":
			return true
		case "false", "no", "off":
			return false
		}
	}
	f.problem(n, field, "found %s, expected true or false", describe(n))
	return false
}

func (f *file) number(n *yaml.Node, field string, least, most int64) int64 {
	if n == nil {
		return 0
	}
	v, err := strconv.ParseInt(n.Value, 10, 64)
	if n.Kind != yaml.ScalarNode || err != nil || v < least || v > most {
		f.problem(n, field, "found %s, expected a whole number from %d to %d", describe(n), least, most)
		return 0
	}
	return v
}

func (f *file) size(n *yaml.Node, field string, most int64) int64 {
	if n == nil {
		return 0
	}
	v, ok := jobconfig.ParseSize(n.Value)
	if n.Kind != yaml.ScalarNode || !ok || v < 1 || v > most {
		f.problem(n, field, "found %s, expected a size such as 64MiB, up to %s", describe(n), jobconfig.ShowSize(most))
		return 0
	}
	return v
}

func (f *file) duration(n *yaml.Node, field string, least, most time.Duration) time.Duration {
	if n == nil {
		return 0
	}
	v, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || v < least || v > most {
		f.problem(n, field, "found %s, expected a duration from %s to %s, such as 5s", describe(n), words.Duration(least), words.Duration(most))
		return 0
	}
	return v
}

// path is a path of this machine; a relative one begins at the file's directory.
func (f *file) path(n *yaml.Node, field string) string {
	if n == nil {
		return ""
	}
	text, ok := f.text(n, field)
	switch {
	case !ok:
		return ""
	case text == "" || strings.ContainsRune(text, 0):
		f.problem(n, field, "found %s, expected a path", describe(n))
		return ""
	case filepath.IsAbs(text):
		return filepath.Clean(text)
	}
	return filepath.Join(f.dir, text)
}

func isPlain(n *yaml.Node) bool {
	const marked = yaml.TaggedStyle | yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	return n.Kind == yaml.ScalarNode && n.Style&marked == 0
}

func isNull(n *yaml.Node) bool {
	if !isPlain(n) {
		return false
	}
	switch n.Value {
	case "", "~", "null", "Null", "NULL":
		return true
	}
	return false
}

const aText = "a text"

// describe says what was found.
func describe(n *yaml.Node) string {
	if s := form(n); s != aText {
		return s
	}
	return strconv.Quote(jobconfig.Clip(n.Value))
}

// form says of what kind something is, without its content.
func form(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case isNull(n):
		return "nothing"
	}
	return aText
}
