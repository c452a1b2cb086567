package grants

import (
	"crypto/sha256"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// TestWorstFiles: what is said about a file of grants is short, and reading it takes memory in proportion to its size.
func TestWorstFiles(t *testing.T) {
	many := func(form string, size int) string {
		var b strings.Builder
		for i := 0; b.Len() < size; i++ {
			fmt.Fprintf(&b, form, i)
		}
		return b.String()
	}
	const part = MaxSize / 5
	for name, text := range map[string]string{
		"jobs of many patterns":   "grants:\n- jobs: [" + many("a%d,", part) + "]\n  secrets: {" + many("s%d: {env: A},", part) + "}\n",
		"bad patterns":            "grants:\n- jobs: [" + many("'/%d',", part) + "]\n",
		"uses without a secret":   "grants:\n- jobs: a\n  secrets: {" + many("s%d: {env: A},", part) + "}\n  http: [{url: 'http://a.example', secrets: [" + many("t%d,", part) + "]}]\n",
		"uses without a key":      "grants:\n- jobs: a\n  signers: [" + many("k%d,", part) + "]\n",
		"directories":             "grants:\n- jobs: a\n  dirs: [" + many("{host: /, guest: /%d},", part) + "]\n",
		"one directory":           "grants:\n- jobs: a\n  dirs: [" + strings.Repeat("{host: /, guest: /x},", part/21) + "]\n",
		"fields":                  many("a%d: 1\n", part),
		"fields of entries":       "grants:\n" + many("- {jobs: a, a%d: 1}\n", part),
		"methods":                 "grants:\n- jobs: a\n  http: [{url: 'http://a.example', methods: [" + many("GETT%d,", part) + "]}]\n",
		"digests":                 "grants:\n- jobs: a\n  digests: [" + many("%d,", part) + "]\n",
		"bytes":                   strings.Repeat("{a,", MaxSize/3),
		"entries with one secret": "grants:\n" + strings.Repeat("- {jobs: a, secrets: {s: {env: A}}}\n", part/37),
	} {
		t.Run(name, func(t *testing.T) {
			r := &reader{open: readFile, contents: sha256.New()}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r.parse("/g.yaml", []byte(text))
			_, err := r.set()
			runtime.ReadMemStats(&after)
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 150<<20 {
				t.Errorf("it takes %d MiB", allocated>>20)
			}
			if err != nil && (len(err.Error()) > words.MaxReasons || strings.Count(err.Error(), "\n") > words.MostProblems) {
				t.Errorf("%d bytes are said: %.200q", len(err.Error()), err)
			}
			if err == nil && name != "directories" {
				t.Error("it is taken")
			}
		})
	}
}
