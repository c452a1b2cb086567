package alert_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// TestWorstFiles: what is said about a file of alerts is short, and reading it takes memory in proportion to its size.
func TestWorstFiles(t *testing.T) {
	many := func(form string, size int) string {
		var b strings.Builder
		for i := 0; b.Len() < size; i++ {
			fmt.Fprintf(&b, form, i, i%2)
		}
		return b.String()
	}
	const part = 200 << 10
	for name, text := range map[string]string{
		"routes":            "routes:\n" + many("- {name: r%d, to: x%d}\n", part),
		"routes of a name":  "routes:\n" + many("- {name: r, to: x, wait: %[1]d}\n", part),
		"receivers":         "receivers: {" + many("r%[1]d: {webhook: {url: 'http://x'}},", part) + "}\nroutes: [{name: a, to: [" + many("s%[1]d,", part) + "]}]\n",
		"targets":           "receivers: {r: {webhook: {url: 'http://x'}}}\nroutes: [{name: a, to: [" + many("r,%.0[1]d", part) + "]}]\n",
		"rules":             "routes: [{name: a, to: [x], rules: [" + many("faillures%d,", part) + "]}]\n",
		"patterns":          "routes: [{name: a, to: [x], jobs: [" + many("'/%[1]d',", part) + "]}]\n",
		"kinds":             "receivers: {r: {" + many("k%[1]d: 1,", part) + "}}\nroutes: []\n",
		"fields of entries": "routes: []\njobs:\n" + many("- {jobs: a, x%[1]d: 1}\n", part),
		"bytes":             strings.Repeat("{a,", 1<<20/3),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := alert.Parse("/a.yaml", []byte(text))
			runtime.ReadMemStats(&after)
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 100<<20 {
				t.Errorf("it takes %d MiB", allocated>>20)
			}
			if err == nil || len(err.Error()) > words.MaxReasons || strings.Count(err.Error(), "\n") > words.MostProblems {
				t.Errorf("found %.300q", fmt.Sprint(err))
			}
		})
	}
}
