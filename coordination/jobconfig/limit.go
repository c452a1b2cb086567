package jobconfig

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Concurrency is a limit over the whole namespace: of the items that run under a key, whatever their
// jobs and hosts, at most Max run at once. The zero Concurrency is no limit.
type Concurrency struct {
	// Key names the limit, or is a template of the names: one key for each value. See [LimitNames].
	// "wasm.concurrency.key"
	Key string
	// Max is from 1 on. "wasm.concurrency.max"
	Max int
}

// The bounds of limits.
const (
	// MaxLimitKey is the longest key of a limit as a definition has it, in bytes.
	MaxLimitKey = 200
	// MaxConcurrentItems is the most that a limit may allow. Each that runs, or is among the next, is a
	// node of the registry.
	MaxConcurrentItems = 1000
)

const (
	propConcurrencyKey = "wasm.concurrency.key"
	propConcurrencyMax = "wasm.concurrency.max"
)

// LimitNames are the names that may stand in braces in the key of a limit: each stands for what the
// run has.
func LimitNames() []string { return []string{"shardingParameter", "jobParameter"} }

// limitName finds names in braces.
var limitName = regexp.MustCompile(`\{([^{}]*)\}`)

// LimitKey returns the key of a run: the template with what the run has for its names.
func LimitKey(template, shardingParameter, jobParameter string) string {
	key := limitName.ReplaceAllStringFunc(template, func(name string) string {
		switch name {
		case "{shardingParameter}":
			return shardingParameter
		case "{jobParameter}":
			return jobParameter
		}
		return name
	})
	return cmp.Or(key, "-") // all names were empty
}

// checkLimitKey checks the key of a limit.
func checkLimitKey(text string) (string, error) {
	key := strings.TrimSpace(text)
	if len(key) > MaxLimitKey {
		return "", fmt.Errorf("found %d bytes, expected at most %d", len(key), MaxLimitKey)
	}
	for _, m := range limitName.FindAllStringSubmatch(key, -1) {
		if !slices.Contains(LimitNames(), m[1]) {
			return "", fmt.Errorf("found {%s}, expected {%s}", Clip(m[1]), strings.Join(LimitNames(), "} or {"))
		}
	}
	if strings.ContainsAny(limitName.ReplaceAllString(key, ""), "{}") {
		return "", fmt.Errorf("found %q, expected a name between { and }: {%s}", Clip(text), strings.Join(LimitNames(), "} or {"))
	}
	if strings.ContainsFunc(key, unicode.IsControl) {
		return "", fmt.Errorf("found %q, expected a text without control characters", Clip(text))
	}
	return key, nil
}

// incomplete says which property of the limit is missing beside the other; nil if none is.
func (c Concurrency) incomplete() (prop string, err error) {
	switch {
	case c.Key != "" && c.Max == 0:
		return propConcurrencyMax, fmt.Errorf("is missing beside concurrency.key, expected a number from 1 to %d", MaxConcurrentItems)
	case c.Key == "" && c.Max != 0:
		return propConcurrencyKey, fmt.Errorf("is missing beside concurrency.max, expected the name of the limit")
	}
	return "", nil
}
