package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const tree = "../.."

// TestMutantsFit: each row of the list still fits the tree: its text stands in
// its file once, and its test is there and names it.
func TestMutantsFit(t *testing.T) {
	for _, m := range mutants {
		text, err := os.ReadFile(filepath.Join(tree, m.file))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.apply(text); err != nil {
			t.Error(err)
		}
		name, _, _ := strings.Cut(m.test, "/")
		if !named(t, filepath.Join(tree, m.in), name, m.name) {
			t.Errorf("no test %s in %s says that it kills the mutant %q", name, m.in, m.name)
		}
	}
}

// named reports whether a file of the folder has the test and the mutant's name.
func named(t *testing.T, folder, test, mutant string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), `mutant "`+mutant+`"`) {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, is := d.(*ast.FuncDecl); is && f.Name.Name == test {
				return true
			}
		}
	}
	return false
}

// TestApply: a change must fit exactly once.
func TestApply(t *testing.T) {
	m := mutant{name: "m", file: "f", old: "b", new: "x"}
	if got, err := m.apply([]byte("abc")); err != nil || string(got) != "axc" {
		t.Errorf("apply: %q, %v", got, err)
	}
	for _, text := range []string{"ac", "abcb"} {
		if got, err := m.apply([]byte(text)); err == nil {
			t.Errorf("apply to %q made %q", text, got)
		}
	}
}

// TestCopyTree: the copy has the sources, and neither git's files nor what was
// built.
func TestCopyTree(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for _, name := range []string{"go.mod", "a/b/c.go", ".git/HEAD", "bin/wasmjob"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(from, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(from, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyTree(to, from); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"go.mod": true, "a/b/c.go": true, ".git": false, "bin": false} {
		if _, err := os.Stat(filepath.Join(to, name)); (err == nil) != want {
			t.Errorf("%s in the copy: %v", name, err)
		}
	}
}
