package coordination_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
)

// TestCycle: the shortest way back is named, and only of jobs that come after themselves.
func TestCycle(t *testing.T) {
	t.Parallel()
	after := map[string][]string{
		"a": {"b"}, "b": {"c", "x"}, "c": {"a"}, // a circle
		"d": {"a"}, // after a circle, and not in it
		"x": {"y"}, "y": nil,
		"e": {"e"},
		"f": {"elsewhere"},
	}
	for job, want := range map[string]string{"a": "a b c a", "b": "b c a b", "c": "c a b c", "d": "", "x": "", "y": "", "e": "e e", "f": "", "elsewhere": ""} {
		if got := strings.Join(co.Cycle(job, func(job string) []string { return after[job] }), " "); got != want {
			t.Errorf("%s: the way back is %q, expected %q", job, got, want)
		}
	}
	if got, want := slices.Sorted(maps.Keys(co.Circular(after))), []string{"a", "b", "c", "d", "e"}; !slices.Equal(got, want) {
		t.Errorf("in circles, or after such, are %q, expected %q", got, want)
	}
}

// TestCircular_many: 2,000 jobs in 40 layers, each after all 50 of the layer before, are looked at once.
func TestCircular_many(t *testing.T) {
	t.Parallel()
	after := make(map[string][]string)
	name := func(layer, n int) string { return string(rune('A'+layer)) + string(rune('A'+n)) }
	for layer := range 40 {
		for n := range 50 {
			for before := range 50 {
				if layer > 0 {
					after[name(layer, n)] = append(after[name(layer, n)], name(layer-1, before))
				}
			}
		}
	}
	began := time.Now()
	if rest := co.Circular(after); len(rest) > 0 {
		t.Errorf("%d jobs may be in a circle, expected none", len(rest))
	}
	t.Logf("took %s", time.Since(began))
}
