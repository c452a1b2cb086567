package jobconfig

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// TestParseWorst: a registry is shared, and what is said about a document in it is short, whatever is in it.
func TestParseWorst(t *testing.T) {
	many := func(form string, size int) string {
		var b strings.Builder
		for i := 0; b.Len() < size; i++ {
			fmt.Fprintf(&b, form, i)
		}
		return b.String()
	}
	const head, part = "jobName: j\nshardingTotalCount: 1\n", MaxSize / 5
	for name, text := range map[string]string{
		"keys":           head + many("k%d: 1\n", part),
		"a key":          head + strings.Repeat("cron: [a]\n", part/10),
		"listeners":      head + "jobListenerTypes: [" + many("[%d],", part) + "]\n",
		"nothing":        head + "jobListenerTypes: [" + strings.Repeat("~,", part/2) + "]\n",
		"props":          head + "props: {" + many("p%d: [],", part) + "}\n",
		"times":          head + "props: {" + many("%d: 2001-01-01,", part) + "}\n",
		"a long name":    head + strings.Repeat("a", 1000) + ": 1\n? " + strings.Repeat("b", part) + "\n: 1\n",
		"a long anchor":  head + "cron: *" + strings.Repeat("a", part) + "\n",
		"lists":          head + "jobListenerTypes: " + strings.Repeat("[", part) + "\n",
		"bytes":          strings.Repeat("{a,", MaxSize/3),
		"bytes and list": head + "jobListenerTypes: [" + strings.Repeat("a,", MaxSize/2-100) + "]\n",
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, warnings, err := Parse([]byte(text))
			runtime.ReadMemStats(&after)
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 100<<20 && !raced {
				t.Errorf("it takes %d MiB", allocated>>20)
			}
			if len(warnings) > words.MostProblems || len(strings.Join(warnings, "")) > words.MaxReasons {
				t.Errorf("%d warnings of %d bytes", len(warnings), len(strings.Join(warnings, "")))
			}
			if err == nil && len(warnings) == 0 {
				t.Error("it is taken")
			}
			if err != nil && (len(err.Error()) > words.MaxReasons || len(FieldErrors(err)) > words.MostProblems+1) {
				t.Errorf("%d bytes are said, about %d fields", len(err.Error()), len(FieldErrors(err)))
			}
		})
	}
	c := Configuration{JobName: "j", ShardingTotalCount: 1, Props: map[string]string{}}
	for i := range 1000 {
		c.Props[fmt.Sprint("p", i)] = "\x00"
	}
	if list := FieldErrors(c.Validate()); len(list) != words.MostProblems+1 || list[words.MostProblems].Problem != "… and 950 more" {
		t.Errorf("%d errors: %v", len(list), c.Validate())
	}
}

// FuzzCheckNodes: the parser never makes more than twice the nodes that are counted, and a few.
func FuzzCheckNodes(f *testing.F) {
	for _, text := range []string{"{a,b,c}", "[a:,b]", "- - - a\n- ? b\n  : c", "a:\n- b\n-\n", "--- a\n...\n---\nb", "a\u2028- b\u2028", "[[],{}]", `{"a":b,"c":"d"}`, "a: &x b\nc: *x", "- a: b\n  c: d\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		counted, made := countNodes([]byte(text)), 0
		for _, root := range decodeAll(text) {
			made += size(root)
		}
		if made > 2*counted+4 {
			t.Errorf("%q has %d nodes, %d were counted", text, made, counted)
		}
	})
}

// decodeAll are the documents of a text, up to one that is broken.
func decodeAll(text string) (documents []*yaml.Node) {
	defer func() { _ = recover() }() // the parser is not ours
	for d := yaml.NewDecoder(strings.NewReader(text)); ; {
		var n yaml.Node
		if d.Decode(&n) != nil {
			return documents
		}
		documents = append(documents, &n)
	}
}

func size(n *yaml.Node) int {
	all := 1
	for _, c := range n.Content {
		all += size(c)
	}
	return all
}
