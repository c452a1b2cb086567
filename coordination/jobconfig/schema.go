package jobconfig

import (
	"regexp"
	"strings"

	"github.com/wasmjob/wasmjob/internal/schema"
)

// SchemaName is the name of the schema of a definition, which is docs/job.schema.json.
const SchemaName = "job"

// Schema returns the JSON Schema of one job of a definition file, for editors. A host refuses everything that
// the schema refuses, and checks more, such as cron expressions.
func Schema() []byte { return schema.Document(SchemaName, "wasmjob job definition", Fields()) }

// Fields are the fields of a definition, for schemas. None is required: a folder's defaults may have it.
func Fields() schema.Object {
	var root schema.Object
	groups := make(map[string]schema.Object)
	for _, s := range settings {
		f := schema.Field{Name: s.Name, Help: plain(s.Help) + ". Default: " + plain(s.Default), Is: s.shape()}
		if group, field, nested := strings.Cut(s.Name, "."); nested {
			f.Name = field
			groups[group] = append(groups[group], f)
			continue
		}
		root = append(root, f)
	}
	for i, f := range root {
		if group, ok := groups[f.Name]; ok {
			root[i].Is = group.Shape()
		}
	}
	return root
}

// markdownLink finds links, which are replaced by their texts because editors show no links.
var markdownLink = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)

// shape is the schema of the setting's value.
func (s Setting) shape() schema.Shape {
	switch s.Type {
	case Boolean:
		return schema.Boolean()
	case Number:
		return schema.Integer(s.Min, s.Max)
	case Duration:
		return schema.Duration()
	case Size:
		return schema.Size(s.Max)
	case Word:
		return schema.AnyCase(s.Words...)
	case Texts:
		return schema.List(schema.Text())
	case Outcomes:
		outcome := schema.Any(schema.Words(RetryOutcomes()...), schema.Shape{"type": "string"})
		return schema.Any(schema.List(outcome), outcome)
	case Several:
		list := schema.List(schema.Object{
			{Name: "cron", Required: true, Is: schema.Text()}, {Name: "timeZone", Is: schema.Text()}, {Name: "jobParameter", Is: schema.Text()},
		}.Shape())
		list["maxItems"] = MaxSchedules
		return list
	case Jobs:
		list := schema.List(schema.Object{
			{Name: "job", Required: true, Is: schema.Text()}, {Name: "on", Is: schema.Words(OnSuccess, OnFailure, OnAlways)}, {Name: "within", Is: schema.Text()},
		}.Shape())
		list["maxItems"] = MaxAfter
		return list
	case Labels:
		return schema.Map(schema.Text())
	case Args:
		list := schema.List(schema.Object{
			{Name: "name", Required: true, Is: schema.Text()}, {Name: "type", Required: true, Is: schema.AnyCase(ArgumentTypes()...)},
			{Name: "default", Is: schema.Text()}, {Name: "min", Is: schema.Text()}, {Name: "max", Is: schema.Text()},
			{Name: "values", Is: schema.List(schema.Text())}, {Name: "description", Is: schema.Text()},
		}.Shape())
		list["maxItems"] = MaxArguments
		return list
	case ItemList:
		return schema.Any(schema.Text(), schema.Map(schema.Text()))
	case Mapping:
		if s.Name == keyProps {
			return schema.Map(schema.Text())
		}
		return schema.Object{}.Shape()
	default:
		return schema.Text()
	}
}

func plain(markdown string) string {
	return strings.NewReplacer("`", "", "*", "").Replace(markdownLink.ReplaceAllString(strings.ReplaceAll(markdown, "`*`", "an asterisk"), "$1"))
}
