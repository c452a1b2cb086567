package main

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// change is a mutant that an operator makes of a place in the sources.
type change struct {
	file, in string // the file, with slashes, and the function
	line     int
	// what says what became of what; nth tells changes of a function apart that say the same.
	what string
	nth  int
	// from and to are the place. The mutant's switch is written around it.
	from, to       int
	before, behind string
}

// id names the change as long as its place is not rewritten.
func (c change) id() string {
	id := c.file + " " + c.in + ": " + c.what
	if c.nth > 1 {
		id += " (" + strconv.Itoa(c.nth) + ")"
	}
	return id
}

// number stands in before and behind for the number of the mutant.
const number = "\x00"

// module is the path of what is mutated.
const module = "github.com/wasmjob/wasmjob"

// changes lists the mutants of the files of some folders, in order.
func changes(tree string, folders []string) ([]change, error) {
	states := states{tree: tree, of: make(map[string]map[string]string)}
	var list []change
	for _, folder := range folders {
		files, err := os.ReadDir(filepath.Join(tree, filepath.FromSlash(folder)))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if f.IsDir() || !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
				continue
			}
			if built, err := build.Default.MatchFile(filepath.Join(tree, filepath.FromSlash(folder)), f.Name()); err != nil || !built {
				continue // for another system
			}
			name := path.Join(folder, f.Name())
			text, err := os.ReadFile(filepath.Join(tree, filepath.FromSlash(name)))
			if err != nil {
				return nil, err
			}
			of, err := changesOf(name, text, &states)
			if err != nil {
				return nil, err
			}
			list = append(list, of...)
		}
	}
	return list, nil
}

// changesOf lists the mutants of one file.
func changesOf(name string, text []byte, states *states) ([]change, error) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := file{name: name, text: text, set: set, states: states, imports: make(map[string]string), count: make(map[string]int)}
	for _, i := range parsed.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return nil, err
		}
		if dir, ours := strings.CutPrefix(p, module+"/"); ours {
			as := path.Base(p)
			if i.Name != nil {
				as = i.Name.Name
			}
			f.imports[as] = dir
		}
	}
	for _, d := range parsed.Decls {
		if fn, is := d.(*ast.FuncDecl); is && fn.Body != nil {
			f.in = fn.Name.Name
			if fn.Recv != nil && len(fn.Recv.List) == 1 {
				f.in = strings.TrimLeft(f.textOf(fn.Recv.List[0].Type), "*") + "." + f.in
			}
			f.walk(fn.Body)
		}
	}
	return f.found, nil
}

// file is one whose mutants are looked for.
type file struct {
	name    string
	text    []byte
	set     *token.FileSet
	states  *states
	imports map[string]string // folders of the module, by what the file calls them
	in      string
	found   []change
	count   map[string]int
}

func (f *file) offset(p token.Pos) int { return f.set.Position(p).Offset }

func (f *file) textOf(n ast.Node) string {
	return string(f.text[f.offset(n.Pos()):f.offset(n.End())])
}

// add notes a mutant. In before and behind, number stands for its own.
func (f *file) add(n ast.Node, what, before, behind string) {
	c := change{file: f.name, in: f.in, line: f.set.Position(n.Pos()).Line, what: what,
		from: f.offset(n.Pos()), to: f.offset(n.End()), before: before, behind: behind}
	f.count[c.id()]++
	c.nth = f.count[c.id()]
	f.found = append(f.found, c)
}

// short is the text of a node on one line.
func (f *file) short(n ast.Node) string {
	const most = 90
	s := strings.Join(strings.Fields(f.textOf(n)), " ")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// oneLine reports whether the text of a node may be repeated before it.
func (f *file) oneLine(n ast.Node) bool {
	return f.set.Position(n.Pos()).Line == f.set.Position(n.End()).Line
}

// walk looks at all nodes below one, each with those that it is in.
func (f *file) walk(top ast.Node) {
	var above []ast.Node
	ast.Inspect(top, func(n ast.Node) bool {
		if n == nil {
			above = above[:len(above)-1]
			return true
		}
		if d, is := n.(*ast.GenDecl); is && d.Tok != token.VAR {
			return false // constants and types
		}
		f.look(n, above)
		above = append(above, n)
		return true
	})
}

func (f *file) look(n ast.Node, above []ast.Node) {
	if s, is := n.(ast.Stmt); is && inList(s, above) {
		f.dropStatement(s)
	}
	e, is := n.(ast.Expr)
	if !is {
		return
	}
	if len(above) > 0 && isCondition(e, above) {
		f.conditions(e, above)
	}
	switch e := e.(type) {
	case *ast.BinaryExpr:
		f.binary(e, above)
	case *ast.CallExpr:
		f.call(e)
	case *ast.CompositeLit:
		f.order(e)
	case *ast.Ident:
		f.word(e, above)
	case *ast.SelectorExpr:
		if x, is := e.X.(*ast.Ident); is && f.imports[x.Name] != "" {
			f.state(e, x.Name+".", f.states.other(f.imports[x.Name], e.Sel.Name), above)
		}
	}
}

// inList reports whether a statement is one of a block's, so that it can be left out.
func inList(s ast.Stmt, above []ast.Node) bool {
	if len(above) == 0 {
		return false
	}
	switch up := above[len(above)-1].(type) {
	case *ast.BlockStmt:
		return slices.Contains(up.List, s)
	case *ast.CaseClause:
		return slices.Contains(up.Body, s)
	case *ast.CommClause:
		return slices.Contains(up.Body, s)
	}
	return false
}

// unchecked are calls of which no test can say that they are missing, or only by waiting for
// ever: locks, and what frees memory or writes a log.
var unchecked = []string{"Lock", "Unlock", "RLock", "RUnlock", "Done", "Wait", "Helper", "Grow", "Reset", "Close", "Stop", "panic", "close",
	"Debug", "Info", "Warn", "Error", "DebugContext", "InfoContext", "WarnContext", "ErrorContext"}

// dropStatement leaves out an assignment or a call.
func (f *file) dropStatement(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.AssignStmt:
		call, is := s.Rhs[0].(*ast.CallExpr)
		if s.Tok == token.DEFINE || len(s.Lhs) != 1 || f.textOf(s.Lhs[0]) == "_" || is && hasOp(call) {
			return // an op is replaced for itself
		}
	case *ast.IncDecStmt:
	case *ast.ExprStmt:
		call, is := s.X.(*ast.CallExpr)
		if !is || slices.Contains(unchecked, nameOf(call)) || hasOp(call) {
			return
		}
	default:
		return
	}
	f.add(s, "drop `"+f.short(s)+"`", "if !mutated.On("+number+") { ", " }")
}

// nameOf is the name of what is called, without its package or receiver.
func nameOf(call *ast.CallExpr) string {
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		return fun.Name
	case *ast.SelectorExpr:
		return fun.Sel.Name
	}
	return ""
}

// ops are the functions that make an op of a commit, with whether the last argument is
// the version that the op demands.
var ops = map[string]bool{"Check": true, "Set": true, "Delete": true, "Create": false, "CreateEphemeral": false, "CreateSequential": false, "Absent": false}

// isOp reports whether a call makes an op.
func isOp(call *ast.CallExpr) bool {
	s, is := call.Fun.(*ast.SelectorExpr)
	if !is {
		return false
	}
	x, is := s.X.(*ast.Ident)
	_, op := ops[s.Sel.Name]
	return is && op && x.Name == "registry"
}

// hasOp reports whether an argument of a call makes an op.
func hasOp(call *ast.CallExpr) bool {
	return slices.ContainsFunc(call.Args, func(e ast.Expr) bool { c, is := e.(*ast.CallExpr); return is && isOp(c) })
}

// call changes ops of commits, comparisons of times, and bounds.
func (f *file) call(c *ast.CallExpr) {
	const any = "registry.AnyVersion"
	name := nameOf(c)
	fun, method := c.Fun.(*ast.SelectorExpr)
	switch {
	case isOp(c):
		f.add(c, "leave out `"+f.short(c)+"`", "mutated.Swap("+number+", ", ", registry.Check(\"/\", "+any+"))")
		if last := c.Args[len(c.Args)-1]; ops[name] && f.textOf(last) != any {
			f.add(last, "any version in `"+f.short(c)+"`", "mutated.Swap("+number+", ", ", "+any+")")
		}
	case method && (name == "Before" || name == "After") && len(c.Args) == 1 && f.textOf(fun.X) != "time" && f.oneLine(c):
		x, arg := f.textOf(fun.X), f.textOf(c.Args[0])
		other := map[string]string{"Before": "After", "After": "Before"}[name]
		f.instead(c, "!"+x+"."+other+"("+arg+")")
	case !method && (name == "min" || name == "max") && len(c.Args) == 2 && f.oneLine(c):
		for _, arg := range c.Args {
			f.add(c, "`"+f.short(c)+"` → `"+f.short(arg)+"`", "mutated.Swap("+number+", ", ", "+f.textOf(arg)+")")
		}
	}
}

// instead changes a condition into another one.
func (f *file) instead(e ast.Expr, other string) {
	f.add(e, "`"+f.short(e)+"` → `"+other+"`", "(mutated.On("+number+") && ("+other+") || !mutated.On("+number+") && (", "))")
}

var wider = map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR}

// binary changes a comparison, and takes parts of a condition away.
func (f *file) binary(e *ast.BinaryExpr, above []ast.Node) {
	switch e.Op {
	case token.LAND, token.LOR:
		for _, part := range []ast.Expr{e.X, e.Y} {
			if inner, is := part.(*ast.BinaryExpr); is && inner.Op == e.Op {
				continue // its parts are taken
			}
			f.constant(part, e.Op == token.LAND)
		}
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		if f.oneLine(e) && !(strings.HasPrefix(f.textOf(e.X), "len(") && f.textOf(e.Y) == "0") { // else as false or true
			f.instead(e, f.textOf(e.X)+" "+wider[e.Op].String()+" "+f.textOf(e.Y))
		}
	case token.EQL, token.NEQ:
		if f.oneLine(e) && len(above) > 0 && !isCondition(e, above) && !isPart(above[len(above)-1]) {
			other := map[token.Token]token.Token{token.EQL: token.NEQ, token.NEQ: token.EQL}[e.Op]
			f.instead(e, f.textOf(e.X)+" "+other.String()+" "+f.textOf(e.Y))
		}
	}
}

func isPart(up ast.Node) bool {
	if p, is := up.(*ast.ParenExpr); is {
		_, both := p.X.(*ast.BinaryExpr)
		return both
	}
	b, is := up.(*ast.BinaryExpr)
	return is && (b.Op == token.LAND || b.Op == token.LOR)
}

// constant makes a condition always true, or never.
func (f *file) constant(e ast.Expr, to bool) {
	if to {
		f.add(e, "`"+f.short(e)+"` → true", "(mutated.On("+number+") || (", "))")
	} else {
		f.add(e, "`"+f.short(e)+"` → false", "(!mutated.On("+number+") && (", "))")
	}
}

// isCondition reports whether an expression decides about statements.
func isCondition(e ast.Expr, above []ast.Node) bool {
	switch up := above[len(above)-1].(type) {
	case *ast.IfStmt:
		return up.Cond == e
	case *ast.ForStmt:
		return up.Cond == e
	case *ast.CaseClause:
		if len(above) < 3 || !slices.Contains(up.List, e) {
			return false
		}
		s, is := above[len(above)-3].(*ast.SwitchStmt)
		return is && s.Tag == nil
	}
	return false
}

// conditions changes a whole condition. What its parts are changed into is left out, and so are
// errors that are passed on.
func (f *file) conditions(e ast.Expr, above []ast.Node) {
	up := above[len(above)-1]
	if i, is := up.(*ast.IfStmt); is && f.textOf(e) == "err != nil" && passesOn(i) {
		return
	}
	b, both := e.(*ast.BinaryExpr)
	_, loop := up.(*ast.ForStmt)
	if !both || b.Op != token.LOR {
		f.constant(e, false)
	}
	if (!both || b.Op != token.LAND) && !loop {
		f.constant(e, true)
	}
}

// passesOn reports whether all that is done is to return.
func passesOn(i *ast.IfStmt) bool {
	if len(i.Body.List) != 1 || i.Else != nil {
		return false
	}
	_, is := i.Body.List[0].(*ast.ReturnStmt)
	return is
}

// order reverses a list of what is done in turn.
func (f *file) order(c *ast.CompositeLit) {
	a, is := c.Type.(*ast.ArrayType)
	if !is || a.Len != nil || len(c.Elts) < 2 {
		return
	}
	switch f.textOf(a.Elt) {
	case "registry.Op", "[]registry.Op", "time.Time", "func()":
	default:
		return // what is asked for together has no order
	}
	f.add(c, "reverse `"+f.short(c)+"`", "mutated.Reversed("+number+", ", ")")
}

// word swaps a constant for another one of its kind.
func (f *file) word(e *ast.Ident, above []ast.Node) {
	if e.Name == "true" || e.Name == "false" {
		switch above[len(above)-1].(type) {
		case *ast.AssignStmt, *ast.ReturnStmt, *ast.CallExpr, *ast.KeyValueExpr:
			other := strconv.FormatBool(e.Name != "true")
			f.add(e, "`"+e.Name+"` → `"+other+"` in `"+f.short(above[len(above)-1])+"`", "mutated.Swap("+number+", ", ", "+other+")")
		}
		return
	}
	if s, is := above[len(above)-1].(*ast.SelectorExpr); is && s.Sel == e {
		return
	}
	f.state(e, "", f.states.other(path.Dir(f.name), e.Name), above)
}

func (f *file) state(e ast.Expr, of, other string, above []ast.Node) {
	if other == "" {
		return
	}
	switch up := above[len(above)-1].(type) {
	case *ast.KeyValueExpr:
		if up.Key == e {
			return
		}
	case *ast.ArrayType, *ast.CaseClause:
		return
	}
	f.add(e, "`"+f.short(e)+"` → `"+of+other+"` in `"+f.short(above[len(above)-1])+"`", "mutated.Swap("+number+", ", ", "+of+other+")")
}

// states knows the constants of a type that are declared together.
type states struct {
	tree string
	of   map[string]map[string]string // the next one, by folder and name
}

// other is the constant that is declared next, or "".
func (s *states) other(folder, name string) string {
	if s.of[folder] == nil {
		s.of[folder] = make(map[string]string)
		files, err := filepath.Glob(filepath.Join(s.tree, filepath.FromSlash(folder), "*.go"))
		if err != nil {
			return ""
		}
		for _, name := range files {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				continue // the compiler says it
			}
			for _, d := range f.Decls {
				if g, is := d.(*ast.GenDecl); is && g.Tok == token.CONST {
					s.note(folder, g)
				}
			}
		}
	}
	return s.of[folder][name]
}

// note notes the constants of one declaration.
func (s *states) note(folder string, g *ast.GenDecl) {
	var names []string
	kind := ""
	for _, spec := range g.Specs {
		v := spec.(*ast.ValueSpec)
		if of, is := v.Type.(*ast.Ident); is {
			kind = of.Name
		}
		if strings.HasPrefix(kind, "int") || strings.HasPrefix(kind, "uint") || kind == "string" || kind == "" {
			return
		}
		for _, n := range v.Names {
			if n.Name != "_" {
				names = append(names, n.Name)
			}
		}
	}
	for i, n := range names {
		if len(names) > 1 {
			s.of[folder][n] = names[(i+1)%len(names)]
		}
	}
}

// weave writes the changes of one file into its text, each behind a switch; numbers has their
// numbers. places says where each stands in the result.
func weave(text []byte, list []change, numbers []int) (woven []byte, places [][2]int) {
	type edge struct {
		at    int
		opens bool
		of    int
	}
	var edges []edge
	for n, c := range list {
		edges = append(edges, edge{c.from, true, n}, edge{c.to, false, n})
	}
	length := func(n int) int { return list[n].to - list[n].from }
	slices.SortStableFunc(edges, func(a, b edge) int {
		switch {
		case a.at != b.at:
			return a.at - b.at
		case a.opens != b.opens && !a.opens:
			return -1
		case a.opens != b.opens:
			return 1
		case a.opens && length(a.of) != length(b.of): // the longer one is outside
			return length(b.of) - length(a.of)
		case a.opens:
			return a.of - b.of
		case length(a.of) != length(b.of):
			return length(a.of) - length(b.of)
		}
		return b.of - a.of
	})
	places = make([][2]int, len(list))
	last := 0
	for _, e := range edges {
		woven = append(woven, text[last:e.at]...)
		last = e.at
		c, n := list[e.of], strconv.Itoa(numbers[e.of])
		if e.opens {
			places[e.of][0] = len(woven)
			woven = append(woven, strings.ReplaceAll(c.before, number, n)...)
		} else {
			woven = append(woven, strings.ReplaceAll(c.behind, number, n)...)
			places[e.of][1] = len(woven)
		}
	}
	return append(woven, text[last:]...), places
}

// imported adds the import of the switch behind the package clause, on its line.
func imported(text []byte) ([]byte, int, error) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, "", text, parser.PackageClauseOnly)
	if err != nil {
		return nil, 0, err
	}
	at := set.Position(parsed.Name.End()).Offset
	add := fmt.Sprintf("; import %q", module+"/test/mutants/mutated")
	return slices.Concat(text[:at], []byte(add), text[at:]), len(add), nil
}
