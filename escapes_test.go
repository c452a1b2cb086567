package wasmjob_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestEscapesInOneRoom: only host/cli/terminal gives orders to a terminal, so that its Terminal can tell them from those
// in somebody's text.
func TestEscapesInOneRoom(t *testing.T) {
	t.Parallel()
	for _, top := range []string{"host", "cmd", "coordination", "strategy"} {
		err := filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			dir := filepath.ToSlash(filepath.Dir(name))
			if dir == "host/cli/terminal" || strings.Contains(dir, "testdata") || filepath.ToSlash(name) == "host/sandbox/wasm/scan.go" { // which looks for it in names
				return nil
			}
			fileSet := token.NewFileSet()
			file, err := parser.ParseFile(fileSet, name, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				lit, ok := n.(*ast.BasicLit)
				if !ok || (lit.Kind != token.STRING && lit.Kind != token.CHAR) {
					return true
				}
				text, err := strconv.Unquote(lit.Value)
				if err == nil && strings.ContainsAny(text, "\x1b\u009b") {
					t.Errorf("%s writes an order to a terminal; host/cli/terminal does that", fileSet.Position(lit.Pos()))
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
