package jobconfig

import (
	"encoding/json"
	"regexp"
	"strings"
)

// SchemaURL names the JSON Schema of a definition; docs/job.schema.json is published
// there.
const SchemaURL = "https://raw.githubusercontent.com/wasmjob/wasmjob/main/docs/job.schema.json"

// Schema returns the JSON Schema of one job of a definition file, for editors. What
// it refuses, a host refuses; a host looks closer, at cron expressions for example.
func Schema() []byte {
	root := schemaObject(map[string]any{})
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["$id"] = SchemaURL
	root["title"] = "wasmjob job definition"
	properties := root["properties"].(map[string]any)
	var required []string
	for _, s := range settings {
		fields := properties
		name := s.Name
		if group, field, nested := strings.Cut(s.Name, "."); nested {
			fields, name = properties[group].(map[string]any)["properties"].(map[string]any), field
		}
		fields[name] = s.schema()
		if s.Required {
			required = append(required, s.Name)
		}
	}
	root["required"] = required
	text, _ := json.MarshalIndent(root, "", "  ") // maps, texts and numbers always have a JSON form
	return append(text, '\n')
}

func schemaObject(properties map[string]any) map[string]any {
	return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
}

// markdownLink is replaced by its text, for editors show none.
var markdownLink = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)

func (s Setting) schema() map[string]any {
	scalar := []string{"string", "number", "boolean"} // YAML has no quotes around most texts
	one := func(kinds ...map[string]any) map[string]any { return map[string]any{"anyOf": kinds} }
	pattern := func(p string) map[string]any { return map[string]any{"type": "string", "pattern": p} }
	var schema map[string]any
	switch s.Type {
	case Boolean:
		schema = one(map[string]any{"type": "boolean"}, pattern("^([Yy][Ee][Ss]|[Nn][Oo]|[Oo][Nn]|[Oo][Ff][Ff]|[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee])$"))
	case Number:
		schema = one(map[string]any{"type": "integer", "minimum": s.Min, "maximum": s.Max}, pattern("^[-+]?(0|[1-9][0-9]*)$"))
	case Duration:
		schema = one(map[string]any{"const": 0}, pattern(`^([0-9]{1,6}d|([0-9]{1,6}d)?([-+]?0|\+?(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+))$`))
	case Size:
		schema = one(map[string]any{"type": "integer", "minimum": 0, "maximum": s.Max}, pattern(`^\s*[0-9.]+\s*([KkMmGg]?[Ii]?[Bb])?\s*$`))
	case Word:
		anyCase := ""
		for _, w := range s.Words {
			for _, r := range w {
				anyCase += "[" + strings.ToUpper(string(r)) + strings.ToLower(string(r)) + "]"
			}
			anyCase += "|"
		}
		schema = one(map[string]any{"enum": s.Words}, pattern(`^\s*(`+strings.TrimSuffix(anyCase, "|")+`)\s*$`))
	case Texts:
		schema = map[string]any{"type": "array", "items": map[string]any{"type": scalar}}
	case Outcomes:
		outcome := map[string]any{"enum": RetryOutcomes()}
		schema = one(map[string]any{"type": "array", "items": one(outcome, map[string]any{"type": "string"})}, outcome, map[string]any{"type": "string"})
	case Several:
		schedule := schemaObject(map[string]any{"cron": map[string]any{"type": scalar}, "timeZone": map[string]any{"type": scalar}, "jobParameter": map[string]any{"type": scalar}})
		schedule["required"] = []string{"cron"}
		schema = map[string]any{"type": "array", "items": schedule, "maxItems": MaxSchedules}
	case Jobs:
		job := schemaObject(map[string]any{"job": map[string]any{"type": scalar}, "on": map[string]any{"enum": []string{OnSuccess, OnFailure, OnAlways}}, "within": map[string]any{"type": scalar}})
		job["required"] = []string{"job"}
		schema = map[string]any{"type": "array", "items": job, "maxItems": MaxAfter}
	case ItemList:
		schema = one(map[string]any{"type": scalar}, map[string]any{"type": "object", "additionalProperties": map[string]any{"type": scalar}})
	case Mapping:
		schema = schemaObject(map[string]any{})
		if s.Name == keyProps {
			schema = map[string]any{"type": "object", "additionalProperties": map[string]any{"type": scalar}}
		}
	default:
		schema = map[string]any{"type": scalar}
	}
	schema["description"] = plain(s.Help) + ". Default: " + plain(s.Default)
	return schema
}

func plain(markdown string) string {
	return strings.NewReplacer("`", "", "*", "").Replace(markdownLink.ReplaceAllString(strings.ReplaceAll(markdown, "`*`", "an asterisk"), "$1"))
}
