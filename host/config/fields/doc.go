// Package fields reads settings from YAML files field by field. A mistake is a [Problem] with file, line,
// column and field; reading continues, so that all mistakes of a file are reported at once. It refuses
// constructs that hide a file's meaning, such as aliases, tags and merged mappings.
package fields
