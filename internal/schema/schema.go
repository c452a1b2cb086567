// Package schema makes JSON Schemas, for editors, from the tables by which files are read.
//
// A reader takes field names only from an [Object], so that the schema has them all. A schema may accept what a
// reader refuses, since a reader checks more, but never the other way round. All functions are pure.
package schema

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Shape is the schema of a value, in the keywords of JSON Schema.
type Shape map[string]any

// Field is a field of an [Object].
type Field struct {
	Name string
	// Help says what the field is for, in a few words without Markdown.
	Help string
	// Required fields must be there.
	Required bool
	// Is is the schema of the value; nil allows any.
	Is Shape
}

// Object are the fields of a mapping, in the order of error messages.
type Object []Field

// Names are the names of the fields.
func (o Object) Names() []string {
	names := make([]string, len(o))
	for i, f := range o {
		names[i] = f.Name
	}
	return names
}

// Has reports whether a field has this name.
func (o Object) Has(name string) bool {
	return slices.ContainsFunc(o, func(f Field) bool { return f.Name == name })
}

// Shape is the schema of a mapping with these fields and no others.
func (o Object) Shape() Shape {
	properties := make(map[string]any)
	var required []string
	for _, f := range o {
		s := maps.Clone(f.Is)
		if s == nil {
			s = Shape{}
		}
		if f.Help != "" {
			s["description"] = f.Help
		}
		properties[f.Name] = s
		if f.Required {
			required = append(required, f.Name)
		}
	}
	shape := Shape{"type": "object", "additionalProperties": false, "properties": properties}
	if required != nil {
		shape["required"] = required
	}
	return shape
}

// Document returns the schema of a file with these fields. name is the argument of [URL].
func Document(name, title string, root Object) []byte {
	shape := root.Shape()
	shape["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	shape["$id"] = URL(name)
	shape["title"] = title
	text, _ := json.MarshalIndent(shape, "", "  ") // maps, texts and numbers always have a JSON form
	return append(text, '\n')
}

// URL returns the URL of a published schema: of the file docs/NAME.schema.json.
func URL(name string) string {
	return "https://raw.githubusercontent.com/wasmjob/wasmjob/main/docs/" + name + ".schema.json"
}

// Line is the comment at the beginning of a file that tells YAML language servers its schema.
func Line(name string) string { return "# yaml-language-server: $schema=" + URL(name) }

// Any is one of several shapes.
func Any(shapes ...Shape) Shape { return Shape{"anyOf": shapes} }

// Text allows a text, also one that looks like a number, since YAML needs no quotes.
func Text() Shape { return Shape{"type": []string{"string", "number", "boolean"}} }

// Pattern is a text of the form of a regular expression.
func Pattern(expression string) Shape { return Shape{"type": "string", "pattern": expression} }

// Words allows one of the words, case-sensitive.
func Words(words ...string) Shape { return Shape{"enum": words} }

// AnyCase allows one of the words, in any case and with blanks around it.
func AnyCase(words ...string) Shape {
	var forms []string
	for _, w := range words {
		var form strings.Builder
		for _, r := range w {
			upper, lower := strings.ToUpper(string(r)), strings.ToLower(string(r))
			if upper == lower {
				form.WriteString(upper)
				continue
			}
			form.WriteString("[" + upper + lower + "]")
		}
		forms = append(forms, form.String())
	}
	return Any(Words(words...), Pattern(`^\s*(`+strings.Join(forms, "|")+`)\s*$`))
}

// Boolean allows true and false, and YAML 1.1's words for them.
func Boolean() Shape {
	return Any(Shape{"type": "boolean"}, Pattern("^([Yy][Ee][Ss]|[Nn][Oo]|[Oo][Nn]|[Oo][Ff][Ff]|[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee])$"))
}

// Integer allows an integer within bounds, also in quotes, where the bounds are not checked.
func Integer(least, most int64) Shape {
	return Any(Shape{"type": "integer", "minimum": least, "maximum": most}, Pattern(`^[-+]?[0-9]+$`))
}

// Number allows a number, also in quotes.
func Number() Shape { return Any(Shape{"type": "number"}, Pattern(`^[-+]?[0-9.]+([eE][-+]?[0-9]+)?$`)) }

// Duration is a number with a unit, such as 90s, 2h30m or 7d, or 0.
func Duration() Shape {
	return Any(Shape{"const": 0}, Pattern(`^([0-9]{1,6}d|([0-9]{1,6}d)?([-+]?0|\+?(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+))$`))
}

// Size allows a number of bytes, such as 64MiB; most bounds a number without a unit.
func Size(most int64) Shape {
	return Any(Shape{"type": "integer", "minimum": 0, "maximum": most}, Pattern(`^\s*[0-9.]+\s*([KkMmGg]?[Ii]?[Bb])?\s*$`))
}

// Instant is a day, or an instant of RFC 3339.
func Instant() Shape { return Pattern(`^[0-9]{4}-[0-9]{2}-[0-9]{2}`) }

// List is a list of such values.
func List(of Shape) Shape { return Shape{"type": "array", "items": of} }

// Texts is a text, or a list of texts.
func Texts(of Shape) Shape { return Any(of, Shape{"type": "array", "items": of, "minItems": 1}) }

// Map allows a mapping with any names.
func Map(values Shape) Shape { return Shape{"type": "object", "additionalProperties": values} }
