package definition

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// worst are files of at most MaxSize bytes that make a reader work as much as they can, or have as much to say.
func worst() map[string]string {
	const head = "shardingTotalCount: 1\n"
	many := func(form string, size int) string {
		var b strings.Builder
		for i := 0; b.Len() < size-len(head)-100; i++ {
			if strings.Contains(form, "%d") {
				fmt.Fprintf(&b, form, i)
			} else {
				b.WriteString(form)
			}
		}
		return b.String()
	}
	const all, part, mended = MaxSize, MaxSize / 4, maxMended
	return map[string]string{
		"many needs":              head + "needs: [" + many("a,", all) + "]",
		"fewer needs":             head + "needs: [" + many("a,", mended) + "]",
		"arguments without value": head + "args: [" + many("~,", mended) + "]",
		"a mapping of one letter": head + "args: {" + many("a,", all) + "}",
		"unknown fields":          head + many("a%d: 1\n", part),
		"nearly known fields":     head + many("cro%d: 1\n", part),
		"a field again and again": head + many("cron: x\n", part),
		"a long name":             head + "? " + many("a", all) + "\n: 1",
		"a long value":            head + "cron: " + many("a", all),
		"a long zone":             head + "timeZone: " + many("a/", all),
		"a long anchor":           head + "cron: *" + many("a", all),
		"a long tag":              head + "cron: !" + many("a", all) + " b",
		"own properties":          head + "props:\n" + many(" wasm.a%d: 1\n", all),
		"unprintable properties":  head + "props:\n" + many(" a%d: \"\\0\"\n", part),
		"items":                   head + "shardingItemParameters:\n" + many(" %d: 1\n", part),
		"items as a text":         head + "shardingItemParameters: " + many("%d=1,", part),
		"outcomes":                head + "retry: {on: [" + many("FAIL,", part) + "]}",
		"merged":                  head + many("<<: a\n", part),
		"documents":               many("---\na: 1\n", all),
		"jobs without a name":     many("---\n"+head, part),
		"jobs with one name":      many("---\njobName: a\n"+head, part),
		"broken documents":        many("---\na: @\n", mended),
		"broken lines":            head + many("a: @x\n", mended),
		"tabs":                    head + many("\ta\n", mended),
		"quotes":                  head + many("cron: 'a' b\n", mended),
		"an open quote":           head + "cron: '" + many("a\n", mended),
		"an open list":            head + "needs: [\n" + many("a\n", mended),
		"lists in lists":          head + "needs: " + many("[", all),
		"mappings in mappings":    head + "needs: " + many("{a: ", all),
		"dashes":                  many("- ", all),
		"comments":                head + many("#\n", all),
		"aliases of a text":       head + "description: &a " + strings.Repeat("x", part) + "\nprops: {" + many("a%d: *a,", part) + "}",
		"aliases of a list":       head + "args: &a [" + many("a,", mended) + "]\nneeds: *a\nretry: {on: *a}\n",
		"laughs":                  head + "a0: &a0 [x]\n" + many("b%[1]d: &b%[1]d [*a0, *a0]\n", part),
	}
}

// TestWorstFiles: what is said about a file is short, and reading it takes memory and time in proportion to its size,
// whatever is in it.
func TestWorstFiles(t *testing.T) {
	for name, text := range worst() {
		t.Run(name, func(t *testing.T) {
			if len(text) > MaxSize {
				t.Fatalf("%d bytes", len(text))
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Parse("a.yaml", []byte(text))
			runtime.ReadMemStats(&after)
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 100<<20 {
				t.Errorf("it takes %d MiB", allocated>>20)
			}
			if err == nil {
				return
			}
			var e *Error
			if !errors.As(err, &e) || len(e.Problems) == 0 || len(e.Problems) > words.MostProblems {
				t.Fatalf("%T with other problems than 1 to %d", err, words.MostProblems)
			}
			if n := len(err.Error()); n > words.MaxReasons {
				t.Errorf("%d bytes are said", n)
			}
		})
	}
}

func TestManyProblems(t *testing.T) {
	t.Parallel()
	_, err := Parse("a.yaml", []byte("shardingTotalCount: 1\nargs: ["+strings.Repeat("~,", 1000)+"]\n"))
	var e *Error
	if !errors.As(err, &e) || len(e.Problems) != words.MostProblems || e.More != 1000-words.MostProblems || !strings.HasSuffix(err.Error(), "\na.yaml: … and 950 more") {
		t.Errorf("found %v", err)
	}
	_, err = Parse("a.yaml", []byte("shardingTotalCount: 1\nshardingItemParameters: "+strings.TrimSuffix(strings.Repeat("a,", 3000), ",")))
	if !errors.As(err, &e) || e.More != 3000-words.MostProblems {
		t.Errorf("found %v", err)
	}
	_, err = Parse("a.yaml", []byte("shardingTotalCount: 1\nneeds: ["+strings.Repeat("kv,", 101)+"]\n"))
	if err == nil || err.Error() != "a.yaml:2:8: needs: found 101 needs, expected at most 100" {
		t.Errorf("found %v", err)
	}
	if err := checkNeeds(101); err == nil || !strings.Contains(err.Error(), "found 101 needs") {
		t.Errorf("an edit: %v", err)
	}
	if err := checkNeeds(100); err != nil {
		t.Errorf("an edit: %v", err)
	}
}

// checkNeeds is what an edit to so many needs is refused for.
func checkNeeds(n int) error {
	list, _ := json.Marshal(slices.Repeat([]string{"kv"}, n))
	for _, f := range Check(jobconfig.Configuration{Props: map[string]string{"wasm.needs": string(list)}}) {
		if f.Field == "needs" {
			return f
		}
	}
	return nil
}

// FuzzParseBounds: what is said about a file does not grow with it, nor does the memory that a byte takes.
func FuzzParseBounds(f *testing.F) {
	for _, text := range worst() {
		f.Add(text[:min(len(text), 4<<10)])
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, err := Parse("a.yaml", []byte(text))
		if err != nil && len(err.Error()) > 3*words.MaxReasons {
			t.Errorf("%d bytes are said about %d", len(err.Error()), len(text))
		}
		for line := range strings.Lines(fmt.Sprint(err)) {
			if len(line) > words.MaxReason+200 {
				t.Errorf("a problem of %d bytes", len(line))
			}
		}
	})
}
