package grants

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// ParseHTTP reads a URL as the field http.url has it.
func ParseHTTP(text string) (HTTP, error) { return parseURL(text) }

// ParseNet reads an address as the field net.to has it.
func ParseNet(text string) (Net, error) { return parseAddress(text) }

// ParseSecret reads NAME=file:PATH or NAME=env:VARIABLE. A relative path begins at the
// working directory. The error does not show what comes after the name: it may be a secret.
func ParseSecret(text string) (name string, s Secret, err error) {
	const want = "expected NAME=file:PATH or NAME=env:VARIABLE"
	name, place, given := strings.Cut(text, "=")
	if !given {
		return "", s, fmt.Errorf("found no =, %s", want)
	}
	if !nameOf.MatchString(name) {
		return "", s, fmt.Errorf("found the name %q, %s", jobconfig.Clip(name), goodName)
	}
	kind, value, _ := strings.Cut(place, ":")
	switch {
	case kind == "file" && value != "":
		s.File, err = filepath.Abs(value)
	case kind == "env" && isEnvName(value):
		s.Env = value
	case strings.Contains(place, ":") && len(kind) <= 5:
		err = fmt.Errorf("%s: %s%s", name, want, words.Suggest(kind, []string{"file", "env"}))
	default:
		err = fmt.Errorf("%s: %s", name, want)
	}
	return name, s, err
}
