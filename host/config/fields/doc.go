// Package fields reads settings from YAML files field by field. A mistake is a [Problem]
// with file, line, column and field; reading goes on after it, so that all mistakes of a
// file are reported at once. What makes a file mean something else than it shows,
// such as aliases, tags and merged mappings, is refused.
package fields
