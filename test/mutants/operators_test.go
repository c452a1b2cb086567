package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const sample = `package p

import (
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

const (
	one kind = iota
	two
)

type kind int

func f(a, b int, at, now time.Time, v int32) (kind, bool) {
	var ops []registry.Op
	if a < b && at.Before(now) || v == 0 {
		a = max(a, b)
		ops = append(ops, registry.Check("/x", v))
	}
	if err := g(ops); err != nil {
		return one, false
	}
	switch {
	case a >= b:
		g(ops)
	}
	g([]registry.Op{ops[0], ops[1]})
	return two, true
}
`

// TestOperators: each operator finds its places, and the text with all mutants in it is Go.
func TestOperators(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "f.go"), []byte(sample), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := changesOf("f.go", []byte(sample), &states{tree: folder, of: make(map[string]map[string]string)})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	numbers := make([]int, len(list))
	for n, c := range list {
		got = append(got, fmt.Sprintf("%d %s", c.line, c.what))
		numbers[n] = n + 1
	}
	want := []string{
		"18 `a < b && at.Before(now) || v == 0` → true",
		"18 `a < b && at.Before(now)` → false",
		"18 `v == 0` → false",
		"18 `a < b` → true",
		"18 `at.Before(now)` → true",
		"18 `a < b` → `a <= b`",
		"18 `at.Before(now)` → `!at.After(now)`",
		"19 drop `a = max(a, b)`",
		"19 `max(a, b)` → `a`",
		"19 `max(a, b)` → `b`",
		"20 leave out `registry.Check(\"/x\", v)`",
		"20 any version in `registry.Check(\"/x\", v)`",
		"23 `one` → `two` in `return one, false`",
		"23 `false` → `true` in `return one, false`",
		"26 `a >= b` → false",
		"26 `a >= b` → true",
		"26 `a >= b` → `a > b`",
		"27 drop `g(ops)`",
		"29 drop `g([]registry.Op{ops[0], ops[1]})`",
		"29 reverse `[]registry.Op{ops[0], ops[1]}`",
		"30 `two` → `one` in `return two, true`",
		"30 `true` → `false` in `return two, true`",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	woven, _ := weave([]byte(sample), list, numbers)
	woven, _, err = imported(woven)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.ParseFile(token.NewFileSet(), "f.go", woven, 0); err != nil {
		t.Errorf("%v in\n%s", err, woven)
	}
	if got, want := strings.Count(string(woven), "\n"), strings.Count(sample, "\n"); got != want {
		t.Errorf("%d lines with mutants, %d without", got, want)
	}
}

// TestHarmlessFit: each mutant that is listed as harmless is one that is made, and has a reason.
func TestHarmlessFit(t *testing.T) {
	reasons, err := readHarmless(harmlessText)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range areas {
		list, err := changes(tree, a.folders)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d mutants", a.name, len(list))
		for _, c := range list {
			delete(reasons, c.id())
		}
	}
	for id := range reasons {
		t.Errorf("no mutant is %q", id)
	}
	for _, wrong := range []string{"\treason\n", "a\n", "a\n\tr\na\n\tr\n"} {
		if _, err := readHarmless(wrong); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}

// TestBatches: random tests come last, far suites after near ones, slow tests after fast ones, what has killed before comes first.
func TestBatches(t *testing.T) {
	near := &suite{in: "near", tests: []test{
		{name: "Slow", took: 5e9, reaches: map[int]bool{1: true}},
		{name: "Killer", took: 2e8, reaches: map[int]bool{1: true}},
		{name: "Fast", took: 1e8, reaches: map[int]bool{1: true}},
		{name: "Elsewhere", took: 1, reaches: map[int]bool{2: true}},
		{name: "Random", took: 1, reaches: map[int]bool{1: true}, random: true}}}
	far := &suite{in: "far", tests: []test{{name: "Far", took: 1, reaches: map[int]bool{1: true}}, {name: "Long", took: 9e10, reaches: map[int]bool{1: true}}}}
	list, omitted := batches([]*suite{near, far}, 1, 6e10, map[string]bool{"Killer": true})
	var got []string
	for _, b := range list {
		got = append(got, b.in+" "+strings.Join(b.names, ","))
	}
	if want := []string{"near Killer", "near Fast", "near Slow", "far Far", "near Random"}; !slices.Equal(got, want) {
		t.Errorf("batches %q, expected %q", got, want)
	}
	if omitted != 1 {
		t.Errorf("%d tests are left out", omitted)
	}
}
