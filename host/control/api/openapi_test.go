package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	gotoken "go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wasmjob/wasmjob/host/control/service/servicetest"

	"github.com/wasmjob/wasmjob/host/event/operation"
)

var (
	update   = flag.Bool("update", false, "write fields.go and docs/openapi.yaml")
	document = flag.Bool("document", false, "write docs/openapi.yaml alone")
)

const (
	documentFile = "../../../docs/openapi.yaml"
	fieldsFile   = "fields.go"
	module       = "github.com/wasmjob/wasmjob"
)

// TestFieldsAreDescribed is not parallel, and comes before TestDocument: fields.go has the comments of the types that the API answers with.
func TestFieldsAreDescribed(t *testing.T) {
	a := New(Options{})
	made := fieldsSource(t, a.huma.OpenAPI().Components.Schemas)
	if *update {
		if err := os.WriteFile(fieldsFile, made, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if was, err := os.ReadFile(fieldsFile); err != nil || !bytes.Equal(was, made) {
		t.Errorf("%s is not what the comments say, or cannot be read (%v): go test ./host/control/api -update", fieldsFile, err)
	}
}

// TestListParameters: numbers and flags of lists are described as what they are, so that clients made of the description have them so.
func TestListParameters(t *testing.T) {
	t.Parallel()
	s := serve(t, servicetest.Options{})
	kinds := map[string]string{"limit": "integer", "item": "integer", "trigger": "integer", "level": "integer", "failed": "boolean", "running": "boolean", "oldest": "boolean"}
	for _, path := range []string{"/v1/fires", "/v1/runs", "/v1/events", "/v1/logs", "/v1/audit", "/v1/jobs"} {
		for _, p := range s.api.huma.OpenAPI().Paths[path].Get.Parameters {
			if want := kinds[p.Name]; want != "" && p.Schema.Type != want {
				t.Errorf("%s: %s is of type %s, expected %s", path, p.Name, p.Schema.Type, want)
			}
		}
	}
}

// TestDocument: docs/openapi.yaml is what hosts serve.
func TestDocument(t *testing.T) {
	if *update {
		// By a process that has the fields.go which was just written.
		out, err := exec.CommandContext(t.Context(), "go", "test", "-run=^TestDocument$", ".", "-document").CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	made, err := New(Options{}).OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	if *document {
		if err := os.WriteFile(documentFile, made, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if was, err := os.ReadFile(documentFile); !*update && (err != nil || !bytes.Equal(was, made)) {
		t.Errorf("%s is not what hosts serve, or cannot be read (%v): go test ./host/control/api -update", documentFile, err)
	}
}

// TestDocumentIsWhole: each operation, parameter and field is described, and each operation
// says how it fails.
func TestDocumentIsWhole(t *testing.T) {
	t.Parallel()
	doc := New(Options{}).huma.OpenAPI()
	texts := lookTexts()
	catalogue := make(map[string]string)
	for _, o := range operation.All() {
		for _, e := range o.Row().Endpoints {
			catalogue[e.ID] = e.Method + " " + e.Path
		}
	}
	for path, item := range doc.Paths {
		for method, o := range map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PATCH": item.Patch, "DELETE": item.Delete} {
			if o == nil {
				continue
			}
			switch of, listed := catalogue[o.OperationID]; {
			case listed && of == method+" "+path:
				delete(catalogue, o.OperationID)
			case method != "GET" && o.OperationID != "createLoginLink":
				t.Errorf("%s %s (%s) is not in the catalogue, host/event/operation", method, path, o.OperationID)
			}
			delete(texts, o.OperationID)
			if o.Summary == "" || o.Description == "" || len(o.Tags) != 1 || !regexp.MustCompile(`^[A-Z].*[^.]$`).MatchString(o.Summary) {
				t.Errorf("%s %s: summary %q, description %q, tags %v", method, path, o.Summary, o.Description, o.Tags)
			}
			for _, p := range o.Parameters {
				if problem := unclear(p.Description); problem != "" {
					t.Errorf("%s %s: the description of the parameter %s %s: %q", method, path, p.Name, problem, p.Description)
				}
			}
			takes := o.OperationID != "createLoginLink" // which takes nothing that may be wrong
			if o.Responses["401"] == nil || o.Responses["403"] == nil || (takes && o.Responses["422"] == nil) {
				t.Errorf("%s %s does not say how it fails", method, path)
			}
		}
	}
	for id := range texts {
		t.Errorf("there is no operation %s", id)
	}
	for id, of := range catalogue {
		t.Errorf("the API has no endpoint %s (%s), which the catalogue of package operation has", id, of)
	}
	for name, s := range doc.Components.Schemas.Map() {
		for field, p := range s.Properties {
			if problem := unclear(p.Description); problem != "" {
				t.Errorf("the description of %s.%s %s: %q; change its comment in the code, or commonTexts", name, field, problem, p.Description)
			}
		}
	}
}

// unclear says why a description means nothing to who has not the source; empty if it does.
func unclear(description string) string {
	if len(strings.Fields(description)) < 3 {
		return "is no sentence"
	}
	for _, name := range regexp.MustCompile(`\b[a-z]\w*\.[A-Z]\w*|\b[A-Z][a-z]+(\.?[A-Z][a-z]*)+\b|\bnil\b`).FindAllString(description, -1) {
		if !slices.Contains([]string{"ElasticJob", "ZooKeeper"}, name) {
			return "names what is only in the source, " + name
		}
	}
	return ""
}

// TestUnclear: fragments of comments and names of Go are found.
func TestUnclear(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "Job.", "As abi.LevelInfo.", "For what FireStarted has.", "The hosts, as in Host.ID.", "It is nil if there is none."} {
		if unclear(bad) == "" {
			t.Errorf("%q passes", bad)
		}
	}
	for _, good := range []string{"The IP address of a server.", "`digestsDiffer` says so, as ElasticJob does.", "A DATAFLOW job, in UTC."} {
		if problem := unclear(good); problem != "" {
			t.Errorf("%q %s", good, problem)
		}
	}
}

// comments are the texts of a package.
type comments struct {
	types, fields map[string]string
	values        map[string][]string // of constants, by their types
	constants     map[string]string   // the values of constants, by their names
}

// fieldsSource is the source of fields.go.
func fieldsSource(t *testing.T, r huma.Registry) []byte {
	t.Helper()
	packages := make(map[string]comments)
	texts := make(map[string]string)
	var visit func(typ reflect.Type)
	seen := make(map[reflect.Type]bool)
	visit = func(typ reflect.Type) {
		typ = elem(typ)
		if typ.Kind() == reflect.Map {
			visit(typ.Elem())
			return
		}
		if seen[typ] || !strings.HasPrefix(typ.PkgPath(), module) {
			return
		}
		seen[typ] = true
		dir := filepath.Join("../../..", strings.TrimPrefix(typ.PkgPath(), module))
		if _, read := packages[dir]; !read {
			packages[dir] = readComments(t, dir)
		}
		c := packages[dir]
		name, _, _ := strings.Cut(typ.Name(), "[")
		if typ.Kind() != reflect.Struct {
			if values := c.values[name]; len(values) > 0 {
				texts["values of "+typeKey(typ)] = "One of " + strings.Join(values, ", ") + "."
			}
			return
		}
		texts[typeKey(typ)] = c.types[name]
		for i := range typ.NumField() {
			f := typ.Field(i)
			if f.IsExported() {
				texts[typeKey(typ)+"."+f.Name] = c.fields[name+"."+f.Name]
				visit(f.Type)
			}
		}
	}
	for name := range r.Map() {
		if typ := r.TypeFromRef("#/components/schemas/" + name); typ != nil {
			visit(typ)
		}
	}
	var b bytes.Buffer
	b.WriteString("package api\n\n// Code generated by go test ./host/control/api -update; DO NOT EDIT.\n\n// fieldTexts are the comments of types and their fields, for the description.\nfunc fieldTexts() map[string]string {\n\treturn map[string]string{\n")
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		if texts[key] != "" {
			fmt.Fprintf(&b, "\t\t%q: %q,\n", key, texts[key])
		}
	}
	b.WriteString("\t}\n}\n")
	out, err := format.Source(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// readComments reads the comments of a package's types.
func readComments(t *testing.T, dir string) comments {
	t.Helper()
	c := comments{make(map[string]string), make(map[string]string), make(map[string][]string), make(map[string]string)}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var structures []func() // which need the constants of all files
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(gotoken.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range g.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					c.types[s.Name.Name] = text(firstOf(s.Doc, g.Doc))
					if st, ok := s.Type.(*ast.StructType); ok {
						structures = append(structures, func() { c.structure(s.Name.Name, st) })
					}
				case *ast.ValueSpec:
					c.constant(s)
				}
			}
		}
	}
	for _, take := range structures {
		take()
	}
	return c
}

// structure takes the comments of fields. One without a comment of its own has the sentences
// about it in the comment of those before it.
func (c comments) structure(name string, st *ast.StructType) {
	before := ""
	names := make(map[string]string) // in JSON, by those in Go
	for _, field := range st.Fields.List {
		for _, id := range field.Names {
			names[id.Name] = jsonName(field, id.Name)
		}
	}
	for _, field := range st.Fields.List {
		comment := text(firstOf(field.Doc, field.Comment))
		if comment != "" {
			before = comment
		}
		for n, id := range field.Names {
			own := comment
			if own == "" || n > 0 {
				own = about(before, id.Name)
			}
			c.fields[name+"."+id.Name] = c.public(own, names)
		}
	}
}

// jsonName is what a field is called in JSON.
func jsonName(field *ast.Field, name string) string {
	if field.Tag == nil {
		return name
	}
	tag, err := strconv.Unquote(field.Tag.Value)
	if err != nil {
		return name
	}
	in, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
	return cmp.Or(in, name)
}

// about has the sentences of a comment that name a field.
func about(comment, name string) string {
	var said []string
	for _, sentence := range regexp.MustCompile(`[^.]+(\.\S[^.]*)*\.`).FindAllString(comment, -1) {
		if regexp.MustCompile(`\b` + name + `\b`).MatchString(sentence) {
			said = append(said, strings.TrimSpace(sentence))
		}
	}
	return strings.Join(said, " ")
}

// public is a comment in the words of the API: fields and constants are called as in JSON.
func (c comments) public(comment string, fields map[string]string) string {
	return regexp.MustCompile(`[\w.]*\b[A-Z]\w*|\bnil\b`).ReplaceAllStringFunc(comment, func(word string) string {
		if word == "nil" {
			return "missing"
		}
		if in, ok := fields[word]; ok && in != "-" && word != "API" {
			return "`" + in + "`"
		}
		if value, ok := c.constants[word]; ok {
			return value
		}
		return word
	})
}

func (c comments) constant(s *ast.ValueSpec) {
	for n, v := range s.Values {
		lit, ok := v.(*ast.BasicLit)
		switch {
		case ok && lit.Kind == gotoken.INT:
			c.constants[s.Names[n].Name] = lit.Value
			continue
		case !ok || lit.Kind != gotoken.STRING:
			continue
		}
		value, err := strconv.Unquote(lit.Value)
		if err != nil || value == "" {
			continue
		}
		c.constants[s.Names[n].Name] = "`" + value + "`"
		if of, typed := s.Type.(*ast.Ident); typed {
			c.values[of.Name] = append(c.values[of.Name], value)
		}
	}
}

func firstOf(groups ...*ast.CommentGroup) *ast.CommentGroup {
	for _, g := range groups {
		if g != nil {
			return g
		}
	}
	return nil
}

// text is a comment as one paragraph.
func text(g *ast.CommentGroup) string {
	if g == nil {
		return ""
	}
	s := strings.Join(strings.Fields(g.Text()), " ")
	s = regexp.MustCompile(`\[([A-Za-z.]+)\]`).ReplaceAllString(s, "$1")
	if s != "" && !strings.HasSuffix(s, ".") {
		s += "."
	}
	if s != "" {
		s = strings.ToUpper(s[:1]) + s[1:]
	}
	return s
}

// TestDocumentIsServed in both forms, and both are the same.
func TestDocumentIsServed(t *testing.T) {
	t.Parallel()
	a := New(Options{})
	want, err := json.Marshal(a.huma.OpenAPI())
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(want) || bytes.Contains(want, []byte("/v1/peer/")) {
		t.Error("the description has what only hosts ask each other")
	}
}
