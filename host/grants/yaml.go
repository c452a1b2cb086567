package grants

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/words"
	"github.com/wasmjob/wasmjob/host/yamlnode"
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
	documents, err := yamlnode.Decode(data)
	documents = slices.DeleteFunc(documents, yamlnode.IsNull)
	switch {
	case err != nil:
		line, column, message := yamlnode.Explain(data, err)
		f.problems = append(f.problems, Problem{File: f.name, Line: line, Column: column, Message: "not YAML: " + message})
		return nil
	case len(documents) == 0:
		// A file that is being written begins so; it must not take all grants away.
		return whole("the file is empty, expected the field grants; \"grants: []\" grants nothing")
	case len(documents) > 1:
		return whole("found %d YAML documents, expected one", len(documents))
	case documents[0].Kind != yaml.MappingNode:
		f.problem(documents[0], "", "found %s, expected the fields grants, keys and trust", yamlnode.Form(documents[0]))
		return nil
	}
	return documents[0]
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
		f.problem(n, field, "found %s, expected a mapping", yamlnode.Describe(n))
		return
	}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		line, twice := first[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode:
			f.problem(key, field, "found %s as the name of a field, expected a name", yamlnode.Form(key))
		case yamlnode.IsPlain(key) && key.Value == "<<":
			f.problem(key, field, "mappings cannot be merged with <<, expected the fields themselves")
		case twice:
			f.problem(key, field, "%q is given twice, first in line %d", jobconfig.Clip(key.Value), line)
		case yamlnode.IsNull(value):
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
		f.problem(n, field, "found %s, expected a list", yamlnode.Describe(n))
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
	if n.Kind != yaml.ScalarNode || yamlnode.IsNull(n) {
		f.problem(n, field, "found %s, expected a text", yamlnode.Describe(n))
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
	f.problem(n, field, "found %s, expected true or false", yamlnode.Describe(n))
	return false
}

func (f *file) number(n *yaml.Node, field string, least, most int64) int64 {
	if n == nil {
		return 0
	}
	v, err := strconv.ParseInt(n.Value, 10, 64)
	if n.Kind != yaml.ScalarNode || err != nil || v < least || v > most {
		f.problem(n, field, "found %s, expected a whole number from %d to %d", yamlnode.Describe(n), least, most)
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
		f.problem(n, field, "found %s, expected a size such as 64MiB, up to %s", yamlnode.Describe(n), jobconfig.ShowSize(most))
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
		f.problem(n, field, "found %s, expected a duration from %s to %s, such as 5s", yamlnode.Describe(n), words.Duration(least), words.Duration(most))
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
		f.problem(n, field, "found %s, expected a path", yamlnode.Describe(n))
		return ""
	case filepath.IsAbs(text):
		return filepath.Clean(text)
	}
	return filepath.Join(f.dir, text)
}
