// Package schemas holds a JSON Schema for editors against the reader of the same files: what the reader
// takes, the schema must take.
package schemas

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// Checker compares a schema with a reader. It is not safe for concurrent use.
type Checker struct {
	schema *jsonschema.Schema
	// Accepted and Refused count the texts about which both agree.
	Accepted, Refused int
}

// New reads a schema.
func New(t testing.TB, document []byte) *Checker {
	t.Helper()
	content, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	const url = "file:///schema.json"
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(url, content); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile(url)
	if err != nil {
		t.Fatal(err)
	}
	return &Checker{schema: schema}
}

// Check holds the schema against what a reader said of a text: nil is that it took it. A text that is no
// YAML, or no document, has no form that an editor could check.
func (c *Checker) Check(t testing.TB, text string, reader error) {
	t.Helper()
	var content any
	if err := yaml.Unmarshal([]byte(text), &content); err != nil || content == nil {
		if reader == nil && err != nil {
			t.Errorf("the reader takes what is no YAML: %v\n%s", err, text)
		}
		return
	}
	editor := c.schema.Validate(asJSON(content))
	switch {
	case reader == nil && editor != nil:
		t.Errorf("the reader takes it, the schema does not: %v\n%s", editor, text)
	case reader == nil:
		c.Accepted++
	case editor != nil:
		c.Refused++
	}
}

// asJSON has what JSON has: names that are texts, and instants as texts.
func asJSON(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = asJSON(e)
		}
	case map[any]any:
		m := make(map[string]any)
		for k, e := range v {
			m[fmt.Sprint(k)] = asJSON(e)
		}
		return m
	case []any:
		for i, e := range v {
			v[i] = asJSON(e)
		}
	case time.Time:
		return v.Format(time.RFC3339)
	}
	return v
}
