package fields

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// TestWorstFiles: what is said about any file of a megabyte is short, and reading it takes memory in proportion to
// its size.
func TestWorstFiles(t *testing.T) {
	const size = 1 << 20
	many := func(text string, size int) string { return strings.Repeat(text, size/len(text)) }
	for name, text := range map[string]string{
		"a list":                    "list: [" + many("a,", size) + "]",
		"a mapping":                 "map: {" + many("a,", size) + "}",
		"lists of the wrong kind":   "list: [" + many("[],", size/8) + "]",
		"one field":                 many("text: a\n", size/4),
		"unknown fields":            many("a: 1\n", size/4),
		"a long name":               "? " + many("a", size) + "\n: b",
		"a long text":               "time: " + many("a", size),
		"a long tag":                "text: !" + many("a", size) + " b",
		"a long anchor":             "text: *" + many("a", size),
		"aliases":                   "text: &a b\nlist: [" + many("*a,", size/8) + "]",
		"lists in lists":            many("[", size),
		"lists of dashes":           many("- ", size),
		"documents":                 many("---\n", size/8),
		"documents with line marks": "a" + many("\u2028...\u2028a", size/2),
		"comments":                  many("#\n", size),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := read(text)
			runtime.ReadMemStats(&after)
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 100<<20 {
				t.Errorf("it takes %d MiB", allocated>>20)
			}
			var all Problems
			if !errors.As(err, &all) || len(all) > words.MostProblems+1 || len(err.Error()) > words.MaxReasons {
				t.Errorf("found %d problems and %d bytes", len(all), len(err.Error()))
			}
		})
	}
	_, err := read("list: [" + many("[],", 3*1000) + "]")
	if !strings.HasSuffix(err.Error(), "\n/etc/x.yaml: … and 950 more") {
		t.Errorf("found %v", err)
	}
}
