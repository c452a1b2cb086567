package fields

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/host/config/yamlnode"
	"github.com/wasmjob/wasmjob/internal/schema"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// File is a file that is being read.
type File struct {
	// Name is the file's, as messages have it.
	Name string
	// Problems are those that were found so far.
	Problems List
}

// Problem adds a problem about a node. An argument that is expensive to build can be a [words.Late].
func (f *File) Problem(n *yaml.Node, field, format string, args ...any) {
	if f.Problems.Full() {
		f.Problems.Add(Problem{})
		return
	}
	f.Problems.Add(Problem{File: f.Name, Line: n.Line, Column: n.Column, Field: field, Message: fmt.Sprintf(format, args...)})
}

// Root is the mapping of the file's one document; nil if there is none. empty and
// expected complete the messages about a file without one.
func (f *File) Root(data []byte, empty, expected string) *yaml.Node {
	whole := func(line, column int, message string) {
		f.Problems.Add(Problem{File: f.Name, Line: line, Column: column, Message: message})
	}
	if err := yamlnode.Check(data); err != nil {
		whole(0, 0, err.Error())
		return nil
	}
	documents, err := yamlnode.Decode(data)
	documents = slices.DeleteFunc(documents, yamlnode.IsNull)
	switch {
	case err != nil:
		line, column, message := yamlnode.Explain(data, err)
		whole(line, column, "not YAML: "+message)
		return nil
	case len(documents) == 0:
		// A file that is being written begins so.
		whole(0, 0, "the file is empty, "+empty)
		return nil
	case len(documents) > 1:
		whole(0, 0, fmt.Sprintf("found %d YAML documents, expected one", len(documents)))
		return nil
	case documents[0].Kind != yaml.MappingNode:
		f.Problem(documents[0], "", "found %s, expected %s", yamlnode.Form(documents[0]), expected)
		return nil
	}
	return documents[0]
}

// Fields returns the values of a mapping by name. field is the mapping's own name; the
// names of its entries come after it. The schema for editors is made of the same object.
func (f *File) Fields(n *yaml.Node, field string, object schema.Object) map[string]*yaml.Node {
	found := map[string]*yaml.Node{}
	f.Pairs(n, field, func(key, value *yaml.Node) {
		if !object.Has(key.Value) {
			expected := words.Late(func() string {
				known := object.Names()
				return cmp.Or(words.Suggest(key.Value, known), ", expected one of "+strings.Join(known, ", "))
			})
			f.Problem(key, field, "unknown field %q%s", words.Clip(key.Value), expected)
			return
		}
		found[key.Value] = value
	})
	return found
}

// Pairs calls each for the entries of a mapping that have a name of their own and a value.
func (f *File) Pairs(n *yaml.Node, field string, each func(key, value *yaml.Node)) {
	if n == nil {
		return
	}
	if n.Kind != yaml.MappingNode {
		f.Problem(n, field, "found %s, expected a mapping", yamlnode.Describe(n))
		return
	}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		line, twice := first[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode:
			f.Problem(key, field, "found %s as the name of a field, expected a name", yamlnode.Form(key))
		case yamlnode.IsPlain(key) && key.Value == "<<":
			f.Problem(key, field, "mappings cannot be merged with <<, expected the fields themselves")
		case twice:
			f.Problem(key, field, "%q is given twice, first in line %d", words.Clip(key.Value), line)
		case yamlnode.IsNull(value):
			f.Problem(key, field, "%q has no value, expected one; leave the field out if there is none", words.Clip(key.Value))
		case !f.plain(value, Join(field, key.Value)):
		default:
			each(key, value)
		}
		if !twice {
			first[key.Value] = key.Line
		}
	}
}

// plain refuses constructs that hide a file's meaning.
func (f *File) plain(n *yaml.Node, field string) bool {
	switch {
	case n.Kind == yaml.AliasNode:
		f.Problem(n, field, "found an alias (*), expected the value itself")
		return false
	case n.Style&yaml.TaggedStyle != 0:
		f.Problem(n, field, "found the tag %s, expected a value without one", words.Clip(n.Tag))
		return false
	}
	return true
}

// Join is the name of a field in a field.
func Join(field, name string) string {
	if field == "" {
		return words.Clip(name)
	}
	return field + "." + words.Clip(name)
}

// Each calls do for the elements of a list; a missing list has none.
func (f *File) Each(n *yaml.Node, field string, do func(*yaml.Node)) {
	if n == nil {
		return
	}
	if n.Kind != yaml.SequenceNode {
		f.Problem(n, field, "found %s, expected a list", yamlnode.Describe(n))
		return
	}
	for _, e := range n.Content {
		if f.plain(e, field) {
			do(e)
		}
	}
}

// Texts takes a text, or a list of texts that is not empty.
func (f *File) Texts(n *yaml.Node, field string, each func(n *yaml.Node, text string)) {
	if n == nil {
		return
	}
	if n.Kind == yaml.ScalarNode {
		each(n, n.Value)
		return
	}
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		f.Problem(n, field, "found an empty list, expected at least one text")
	}
	f.Each(n, field, func(e *yaml.Node) {
		if text, ok := f.Text(e, field); ok {
			each(e, text)
		}
	})
}

// Text returns a text; ok is false without a problem if there is no node.
func (f *File) Text(n *yaml.Node, field string) (string, bool) {
	if n == nil {
		return "", false
	}
	if n.Kind != yaml.ScalarNode || yamlnode.IsNull(n) {
		f.Problem(n, field, "found %s, expected a text", yamlnode.Describe(n))
		return "", false
	}
	return n.Value, true
}

// Time takes an instant such as 2026-11-23T17:00:00Z, or a day; the zero time if there is none.
func (f *File) Time(n *yaml.Node, field string) time.Time {
	if n == nil {
		return time.Time{}
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, n.Value); n.Kind == yaml.ScalarNode && err == nil {
			return t
		}
	}
	f.Problem(n, field, "found %s, expected an instant such as 2026-11-23T17:00:00Z, or a day such as 2026-11-23", yamlnode.Describe(n))
	return time.Time{}
}

// Path is a path of this machine; a relative one begins at the file's directory.
func (f *File) Path(n *yaml.Node, field string) string {
	text, ok := f.Text(n, field)
	switch {
	case !ok:
		return ""
	case text == "" || strings.ContainsRune(text, 0):
		f.Problem(n, field, "found %s, expected a path", yamlnode.Describe(n))
		return ""
	case filepath.IsAbs(text):
		return filepath.Clean(text)
	}
	return filepath.Join(filepath.Dir(f.Name), text)
}

// Describe says what was found.
func Describe(n *yaml.Node) string { return yamlnode.Describe(n) }
