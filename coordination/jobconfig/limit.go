package jobconfig

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Concurrency is a limit over the whole namespace: at most Max items run at once under a key, whatever their
// jobs and hosts. The zero Concurrency is no limit.
type Concurrency struct {
	// Key names the limit, or is a template for names, with one limit for each result. See [LimitNames].
	// "wasm.concurrency.key"
	Key string
	// Max is from 1 on. "wasm.concurrency.max"
	Max int
}

// The bounds of limits.
const (
	// MaxLimitKey is the longest key of a limit as a definition has it, in bytes.
	MaxLimitKey = 200
	// MaxConcurrentItems is the highest limit that may be set. Each item that runs or is next is a node of the
	// registry.
	MaxConcurrentItems = 1000
	// MaxRate is the highest number of begins in a span that a rate may have. Each is a number in a node of the
	// registry.
	MaxRate = 1000
	// MinRateSpan and MaxRateSpan bound the span of a rate.
	MinRateSpan = time.Second
	MaxRateSpan = 24 * time.Hour
)

// Rate is a rate over the whole namespace: under a key at most Max items begin in any span of the length Per,
// whatever their jobs and hosts. The zero Rate is none.
type Rate struct {
	// Key names the rate, or is a template for names, as in Concurrency. "wasm.rate.key"
	Key string
	// Per is from MinRateSpan to MaxRateSpan. "wasm.rate.per"
	Per time.Duration
	// Max is from 1 on. "wasm.rate.max"
	Max int
}

const (
	propConcurrencyKey = "wasm.concurrency.key"
	propConcurrencyMax = "wasm.concurrency.max"
	propRateKey        = "wasm.rate.key"
	propRatePer        = "wasm.rate.per"
	propRateMax        = "wasm.rate.max"
)

// LimitNames are the names that may be used in braces in the key of a limit: each is replaced by the value of
// the run.
func LimitNames() []string { return []string{"shardingParameter", "jobParameter"} }

// limitName finds names in braces.
var limitName = regexp.MustCompile(`\{([^{}]*)\}`)

// LimitKey returns the key of a run: the template with its names replaced.
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

// incomplete returns the property that is missing while the limit's other one is set; nil if none is.
func (c Concurrency) incomplete() (prop string, err error) {
	switch {
	case c.Key != "" && c.Max == 0:
		return propConcurrencyMax, fmt.Errorf("is missing beside concurrency.key, expected a number from 1 to %d", MaxConcurrentItems)
	case c.Key == "" && c.Max != 0:
		return propConcurrencyKey, fmt.Errorf("is missing beside concurrency.max, expected the name of the limit")
	}
	return "", nil
}

// incomplete returns the property of the rate that is missing, or does not fit the others; nil if none is.
func (r Rate) incomplete() (prop string, err error) {
	switch {
	case r == Rate{}:
		return "", nil
	case r.Key == "":
		return propRateKey, fmt.Errorf("is missing beside rate.per and rate.max, expected the name of the rate")
	case r.Per == 0:
		return propRatePer, fmt.Errorf("is missing beside rate.key, expected a duration from %s to %s", MinRateSpan, MaxRateSpan)
	case r.Per < MinRateSpan:
		return propRatePer, fmt.Errorf("found %s, expected a duration from %s to %s", r.Per, MinRateSpan, MaxRateSpan)
	case r.Max == 0:
		return propRateMax, fmt.Errorf("is missing beside rate.key, expected a number from 1 to %d", MaxRate)
	}
	return "", nil
}
