package wasmjob_test

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var printShape = flag.Bool("shape", false, "print the figures of TestShape, and what is behind them")

// figure is one measure of how easy the product's code is to enter. It is a
// mirror: nothing fails because of it.
type figure struct {
	name     string
	value    float64
	worst    []string // what is behind the value, the worst first
	decimals int
}

// dialect is the words of comments that a reader has to learn first; see
// CONTRIBUTING.md.
var dialect = regexp.MustCompile(`(?i)\b(tells?|told|nobody('s)?|whoever|by hand|a hand|hand has|amiss|janitor|spoilt|anew|neighbours?|made up for|unheard|hears? nothing|heard of)\b`)

// TestShape measures what a newcomer feels. `make shape` prints the figures.
func TestShape(t *testing.T) {
	s := measure(t, "abi", "cmd", "coordination", "host", "sdk", "strategy")
	perThousand := func(n int) float64 { return 1000 * float64(n) / float64(s.lines) }
	types := s.types()
	byMethods := slices.SortedFunc(slices.Values(types), func(a, b typeShape) int { return b.methods - a.methods })
	byFiles := slices.SortedFunc(slices.Values(types), func(a, b typeShape) int { return len(b.files) - len(a.files) })
	byReach := s.reaches()
	packages := s.packages()
	figures := []figure{
		{name: "fields of the largest type", value: float64(types[0].fields), worst: shown(types, 3)},
		{name: "methods of the type with the most", value: float64(byMethods[0].methods), worst: shown(byMethods, 3)},
		{name: "names reached through embedding by one type, at most", value: float64(byReach[0].reached()), worst: shown(byReach, 4)},
		{name: "files with methods of one type, at most", value: float64(len(byFiles[0].files)), worst: shown(byFiles, 4)},
		{name: "lines of the largest package", value: float64(packages[0].lines), worst: shown(packages, 4)},
		{name: "lines of package coordination", value: float64(s.byPackage["coordination"])},
		{name: "functions with a complexity over 15, percent", value: 100 * float64(len(s.complex)) / float64(s.functions), decimals: 1, worst: s.complex},
		{name: "switches without a tag, per 1,000 lines", value: perThousand(s.tagless), decimals: 1},
		{name: "conditions with || and bare &&, per 1,000 lines", value: perThousand(len(s.mixed)), decimals: 1, worst: s.mixed},
		{name: "reads by position", value: float64(len(s.positional)), worst: s.positional},
		{name: "comment lines in words of our own", value: float64(len(s.dialect)), worst: s.dialect},
		{name: "lines of the product", value: float64(s.lines)},
	}
	if s.functions == 0 {
		t.Fatal("no function was found")
	}
	if !*printShape {
		return
	}
	for _, f := range figures {
		fmt.Printf("%-50s %8.*f\n", f.name, f.decimals, f.value)
		for _, w := range f.worst[:min(len(f.worst), 10)] {
			fmt.Printf("    %s\n", w)
		}
	}
}

func shown[T fmt.Stringer](list []T, n int) []string {
	var out []string
	for _, x := range list[:min(len(list), n)] {
		out = append(out, x.String())
	}
	return out
}

// shape is what was counted.
type shape struct {
	lines, functions, tagless int
	complex                   []string
	mixed                     []string
	positional                []string
	dialect                   []string
	byType                    map[string]*typeShape
	byPackage                 map[string]int
}

type typeShape struct {
	name            string
	fields, methods int
	files           map[string]bool
	// fieldNames and methodNames are those of the type itself, embeds are the types that it embeds.
	fieldNames, methodNames, embeds []string
}

// reach is how many fields and methods a reader finds behind one name: those of a type, and of all that it embeds.
type reach struct {
	name            string
	fields, methods int
}

func (r reach) reached() int { return r.fields + r.methods }

func (r reach) String() string {
	return fmt.Sprintf("%s: %d fields, %d methods", r.name, r.fields, r.methods)
}

// reaches is the reach of each type, the largest first. A name that hides another one counts once.
func (s *shape) reaches() []reach {
	var list []reach
	for name := range s.byType {
		fields, methods := make(map[string]bool), make(map[string]bool)
		s.promote(name, fields, methods, make(map[string]bool))
		list = append(list, reach{name, len(fields), len(methods)})
	}
	slices.SortFunc(list, func(a, b reach) int {
		return cmp.Or(b.reached()-a.reached(), strings.Compare(a.name, b.name))
	})
	return list
}

// promote collects the names of a type and of those that it embeds. Types of other modules have none.
func (s *shape) promote(name string, fields, methods, seen map[string]bool) {
	x := s.byType[name]
	if x == nil || seen[name] {
		return
	}
	seen[name] = true
	for _, f := range x.fieldNames {
		fields[f] = true
	}
	for _, m := range x.methodNames {
		methods[m] = true
	}
	for _, e := range x.embeds {
		s.promote(e, fields, methods, seen)
	}
}

// embedded is the full name of an embedded type: of the package dir, or of one that the file imports.
func embedded(e ast.Expr, dir string, imports []*ast.ImportSpec) (name, full string) {
	if star, is := e.(*ast.StarExpr); is {
		e = star.X
	}
	switch x := e.(type) {
	case *ast.Ident:
		return x.Name, dir + "." + x.Name
	case *ast.SelectorExpr:
		from, _ := x.X.(*ast.Ident)
		for _, spec := range imports {
			of := strings.TrimPrefix(strings.Trim(spec.Path.Value, `"`), "github.com/wasmjob/wasmjob/")
			if from != nil && (path.Base(of) == from.Name || (spec.Name != nil && spec.Name.Name == from.Name)) {
				return x.Sel.Name, of + "." + x.Sel.Name
			}
		}
		return x.Sel.Name, ""
	case *ast.IndexExpr:
		return embedded(x.X, dir, imports)
	}
	return "", ""
}

func (x typeShape) String() string {
	return fmt.Sprintf("%s: %d fields, %d methods in %d files", x.name, x.fields, x.methods, len(x.files))
}

type packageShape struct {
	name  string
	lines int
}

func (x packageShape) String() string { return fmt.Sprintf("%s: %d lines", x.name, x.lines) }

func (s *shape) types() []typeShape {
	var list []typeShape
	for _, x := range s.byType {
		list = append(list, *x)
	}
	slices.SortFunc(list, func(a, b typeShape) int { return b.fields - a.fields })
	return list
}

func (s *shape) packages() []packageShape {
	var list []packageShape
	for name, lines := range s.byPackage {
		list = append(list, packageShape{name, lines})
	}
	slices.SortFunc(list, func(a, b packageShape) int { return b.lines - a.lines })
	return list
}

// measure reads the sources of the product below the folders: no tests, no guests.
func measure(t *testing.T, folders ...string) *shape {
	t.Helper()
	s := &shape{byType: make(map[string]*typeShape), byPackage: make(map[string]int)}
	for _, folder := range folders {
		err := fs.WalkDir(os.DirFS("."), folder, func(name string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "testdata" || name == "coordination/registry/registrytest"):
				return fs.SkipDir
			case d.IsDir(), !strings.HasSuffix(name, ".go"), strings.HasSuffix(name, "_test.go"):
				return nil
			}
			src, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			return s.file(name, src)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *shape) file(name string, src []byte) error {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	at := func(n ast.Node) string {
		p := set.Position(n.Pos())
		return fmt.Sprintf("%s:%d", p.Filename, p.Line)
	}
	lines := bytes.Count(src, []byte("\n"))
	s.lines += lines
	s.byPackage[path.Dir(name)] += lines
	for _, group := range f.Comments {
		for _, c := range group.List {
			for i, line := range strings.Split(c.Text, "\n") {
				if dialect.MatchString(line) {
					s.dialect = append(s.dialect, fmt.Sprintf("%s:%d: %s", name, set.Position(c.Pos()).Line+i, strings.TrimSpace(line)))
				}
			}
		}
	}
	of := func(typeName string) *typeShape {
		full := path.Dir(name) + "." + typeName
		if s.byType[full] == nil {
			s.byType[full] = &typeShape{name: full, files: make(map[string]bool)}
		}
		return s.byType[full]
	}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				ts, isType := spec.(*ast.TypeSpec)
				if !isType {
					continue
				}
				if st, isStruct := ts.Type.(*ast.StructType); isStruct {
					for _, field := range st.Fields.List {
						x := of(ts.Name.Name)
						x.fields += max(1, len(field.Names))
						for _, n := range field.Names {
							x.fieldNames = append(x.fieldNames, n.Name)
						}
						if field.Names == nil {
							short, full := embedded(field.Type, path.Dir(name), f.Imports)
							x.fieldNames, x.embeds = append(x.fieldNames, short), append(x.embeds, full)
						}
					}
				}
			}
		case *ast.FuncDecl:
			s.functions++
			if c := complexity(d); c > 15 {
				s.complex = append(s.complex, fmt.Sprintf("%s: %s has %d", at(d), d.Name.Name, c))
			}
			if d.Recv != nil {
				x := of(receiver(d.Recv.List[0].Type))
				x.methods++
				x.methodNames = append(x.methodNames, d.Name.Name)
				x.files[name] = true
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SwitchStmt:
			if n.Tag == nil {
				s.tagless++
			}
		case *ast.BinaryExpr:
			if n.Op == token.LOR && (bareAnd(n.X) || bareAnd(n.Y)) {
				s.mixed = append(s.mixed, at(n))
			}
		case *ast.IndexExpr:
			if x, isName := n.X.(*ast.Ident); isName && (x.Name == "n" || x.Name == "nodes") {
				if _, constant := n.Index.(*ast.BasicLit); constant && strings.HasPrefix(name, "coordination/") {
					s.positional = append(s.positional, at(n))
				}
			}
		}
		return true
	})
	return nil
}

func bareAnd(e ast.Expr) bool {
	b, isBinary := e.(*ast.BinaryExpr)
	return isBinary && b.Op == token.LAND
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return "?"
		}
	}
}

// complexity is McCabe's: one, and one for each branch.
func complexity(d *ast.FuncDecl) int {
	n := 1
	ast.Inspect(d, func(node ast.Node) bool {
		switch x := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if x.List != nil {
				n++
			}
		case *ast.CommClause:
			if x.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if x.Op == token.LAND || x.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}
