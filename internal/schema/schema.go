// Package schema makes JSON Schemas, for editors, of the tables from which files are read.
//
// A reader takes the names of fields from an [Object] and can know no other, so that a schema lacks
// none. A schema may accept what a reader refuses (a reader looks closer), and never the other way
// round. All functions are pure.
package schema

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Shape is what a value may be, in the keywords of JSON Schema.
type Shape map[string]any

// Field is a field of an [Object].
type Field struct {
	Name string
	// Help says what the field is for, in a few words without Markdown.
	Help string
	// Required fields must be there.
	Required bool
	// Is is what the value may be; nil is any.
	Is Shape
}

// Object are the fields of a mapping, in the order in which messages name them.
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

// Shape is a mapping with these fields and no others.
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

// Document is a whole schema: of a file with these fields. name is what [URL] takes.
func Document(name, title string, root Object) []byte {
	shape := root.Shape()
	shape["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	shape["$id"] = URL(name)
	shape["title"] = title
	text, _ := json.MarshalIndent(shape, "", "  ") // maps, texts and numbers always have a JSON form
	return append(text, '\n')
}

// URL names a published schema: of the file docs/NAME.schema.json.
func URL(name string) string {
	return "https://raw.githubusercontent.com/wasmjob/wasmjob/main/docs/" + name + ".schema.json"
}

// Line is the comment at the begin of a file by which editors with a YAML language server find its schema.
func Line(name string) string { return "# yaml-language-server: $schema=" + URL(name) }

// Any is one of several shapes.
func Any(shapes ...Shape) Shape { return Shape{"anyOf": shapes} }

// Text is a text. YAML has no quotes around most texts, so that one may look like a number.
func Text() Shape { return Shape{"type": []string{"string", "number", "boolean"}} }

// Pattern is a text of the form of a regular expression.
func Pattern(expression string) Shape { return Shape{"type": "string", "pattern": expression} }

// Words is one of the words, in the letters that are given.
func Words(words ...string) Shape { return Shape{"enum": words} }

// AnyCase is one of the words, in letters of any case and with blanks around it.
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

// Boolean is true or false, also as the words that YAML had for them.
func Boolean() Shape {
	return Any(Shape{"type": "boolean"}, Pattern("^([Yy][Ee][Ss]|[Nn][Oo]|[Oo][Nn]|[Oo][Ff][Ff]|[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee])$"))
}

// Integer is a whole number within bounds, also in quotes, where the bounds are not looked at.
func Integer(least, most int64) Shape {
	return Any(Shape{"type": "integer", "minimum": least, "maximum": most}, Pattern(`^[-+]?[0-9]+$`))
}

// Number is a number, also in quotes.
func Number() Shape { return Any(Shape{"type": "number"}, Pattern(`^[-+]?[0-9.]+([eE][-+]?[0-9]+)?$`)) }

// Duration is a number with a unit, such as 90s, 2h30m or 7d, or 0.
func Duration() Shape {
	return Any(Shape{"const": 0}, Pattern(`^([0-9]{1,6}d|([0-9]{1,6}d)?([-+]?0|\+?(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+))$`))
}

// Size is a number of bytes, such as 64MiB; most bounds one without a unit.
func Size(most int64) Shape {
	return Any(Shape{"type": "integer", "minimum": 0, "maximum": most}, Pattern(`^\s*[0-9.]+\s*([KkMmGg]?[Ii]?[Bb])?\s*$`))
}

// Instant is a day, or an instant of RFC 3339.
func Instant() Shape { return Pattern(`^[0-9]{4}-[0-9]{2}-[0-9]{2}`) }

// List is a list of such values.
func List(of Shape) Shape { return Shape{"type": "array", "items": of} }

// Texts is a text, or a list of texts.
func Texts(of Shape) Shape { return Any(of, Shape{"type": "array", "items": of, "minItems": 1}) }

// Map is a mapping whose names the file chooses.
func Map(values Shape) Shape { return Shape{"type": "object", "additionalProperties": values} }
