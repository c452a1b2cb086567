package reason

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/wasmjob/wasmjob/internal/text/i18n"
)

// elsewhere are codes that this package gives itself.
var elsewhere = []string{"Instant", "Instants"}

// constants are the names of the codes in the source, with their values.
func constants(t *testing.T) map[string]Code {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "table.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]Code)
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
			for _, spec := range g.Specs {
				v := spec.(*ast.ValueSpec)
				names[v.Names[0].Name] = Code(strings.Trim(v.Values[0].(*ast.BasicLit).Value, `"`))
			}
		}
	}
	return names
}

// TestTable: each code is in the table once, in both languages with the same arguments, and no text is two codes.
func TestTable(t *testing.T) {
	t.Parallel()
	seen := make(map[Code]string)
	for name, code := range constants(t) {
		if other, twice := seen[code]; twice {
			t.Errorf("%s and %s are the same code %q", name, other, code)
		}
		seen[code] = name
		if rows[code] == nil && code != Listener {
			t.Errorf("the table has no row for %s", name)
		}
	}
	texts := make(map[string]Code)
	quotes := regexp.MustCompile(`“[^”]*”`)
	for _, r := range table {
		if seen[r.code] == "" {
			t.Errorf("the row %q has no constant", r.code)
		}
		if other, twice := texts[r.en]; twice {
			t.Errorf("%s and %s have the same text", r.code, other)
		}
		texts[r.en] = r.code
		en, zh := slices.Sorted(slices.Values(names(r.en))), slices.Sorted(slices.Values(names(r.zh)))
		if !slices.Equal(en, zh) {
			t.Errorf("%s: the arguments are %q in English and %q in Chinese", r.code, en, zh)
		}
		bare := i18n.Fill(r.zh, func(string) string { return "" })
		latin := strings.NewReplacer("Java", "").Replace(quotes.ReplaceAllString(bare, ""))
		if strings.ContainsFunc(latin, func(c rune) bool { return unicode.Is(unicode.Latin, c) }) || strings.ContainsAny(bare, `,.;:()?"'`) ||
			!strings.ContainsFunc(bare, func(c rune) bool { return unicode.Is(unicode.Han, c) }) && strings.Trim(bare, "；") != "" {
			t.Errorf("%s: %q is not Chinese", r.code, r.zh)
		}
	}
	if len(rows) != len(table) {
		t.Errorf("%d codes have %d rows", len(rows), len(table))
	}
}

// TestTableIsUsed: a code that no source gives, or gives with another number of arguments than its text has, is named here.
func TestTableIsUsed(t *testing.T) {
	t.Parallel()
	codes := constants(t)
	used := make(map[string]bool)
	var all strings.Builder
	for _, dir := range []string{"../../../host", "../../../coordination"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all.Write(source)
			if !strings.Contains(string(source), "internal/text/reason\"") {
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, source, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, is := n.(*ast.CallExpr)
				if is && named(call.Fun) == "New" && len(call.Args) > 0 {
					if name := named(call.Args[0]); codes[name] != "" && rows[codes[name]] != nil {
						if want := len(names(rows[codes[name]].en)); len(call.Args)-1 != want {
							t.Errorf("%s: %s is given %d arguments, expected %d", path, name, len(call.Args)-1, want)
						}
					}
				}
				if e, is := n.(ast.Expr); is {
					used[named(e)] = true
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	pieces := regexp.MustCompile(`\{[^}]*\}|; | for | \(|\)? at `)
	for name, code := range codes {
		if used[name] || slices.Contains(elsewhere, name) {
			continue
		}
		if rows[code] == nil {
			t.Errorf("no source gives the code %s", name)
			continue
		}
		for _, piece := range pieces.Split(rows[code].en, -1) { // it is in a text that is made elsewhere
			if !strings.Contains(all.String(), piece) {
				t.Errorf("no source gives the code %s, nor says %q", name, piece)
			}
		}
	}
}

// named is x of reason.x; empty for another expression.
func named(e ast.Expr) string {
	s, is := e.(*ast.SelectorExpr)
	if !is {
		return ""
	}
	if p, is := s.X.(*ast.Ident); !is || p.Name != "reason" {
		return ""
	}
	return s.Sel.Name
}

// TestReadBack: the codes of a text, or of one of an earlier version, are those with which it was made.
func TestReadBack(t *testing.T) {
	t.Parallel()
	for _, r := range table {
		var args []any
		for _, name := range names(r.en) {
			if name == place {
				args = append(args, New(FailoverOff))
			} else {
				args = append(args, "<"+name+">")
			}
		}
		made := New(r.code, args...)
		for _, old := range r.old {
			was := i18n.Fill(old, func(name string) string { return "<" + name + ">" })
			if got := Parse(was); len(got) == 0 || got[0].Code != r.code || (len(names(old)) == len(names(r.en)) && !reflect.DeepEqual(got, made.Codes())) {
				t.Errorf("%s: the former text %q is read as %+v, expected %+v", r.code, was, got, made.Codes())
			}
		}
		if got := Parse(made.String()); !reflect.DeepEqual(got, made.Codes()) {
			t.Errorf("%s: %q is read as %+v, expected %+v", r.code, made, got, made.Codes())
		}
	}
	if got := Parse("disk on fire"); got != nil {
		t.Errorf("%+v", got)
	}
}

// TestReason: what stands in a reason has its codes, whether it comes as a reason or as an error; a text has none.
func TestReason(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	inner := New(KilledBy, "ann", at)
	for want, r := range map[string]Reason{
		"an operator killed it (ann) at 2026-03-01T12:00:00Z; its time was up":         New(TimeWasUp, inner),
		"the item cannot be read: an operator killed it (ann) at 2026-03-01T12:00:00Z": New(ItemUnreadable, fmt.Errorf("%w", inner)),
	} {
		if c := r.Codes(); r.String() != want || r.Error() != want || !c.Has(KilledBy) || c.Has(Killed) || c.Arg("who") != "ann" || c.Arg("nothing") != "" || len(c) != 2 {
			t.Errorf("%q %+v, expected %q", r, r.Codes(), want)
		}
	}
	cause := errors.New("disk on fire")
	for _, r := range []Reason{New(ItemUnreadable, cause), New(LastKnownStays, fmt.Errorf("reading: %w", cause))} {
		if !errors.Is(r, cause) || r.Codes().Arg("reason") == "" || len(r.Codes()) != 1 {
			t.Errorf("%q does not wrap its cause: %+v", r, r.Codes())
		}
	}
	if r := Of(fmt.Errorf("x: %w", inner)); r.Codes() != nil || r.IsZero() {
		t.Errorf("%q says more than its reason, and has codes %+v", r, r.Codes())
	}
	if r := Of(nil); !r.IsZero() || Of(errors.Join(inner)).Codes() == nil || New("of a newer host", 1).Codes() != nil {
		t.Errorf("%+v", r)
	}
	texts := New(TimeWasUp, inner).Codes().Map(strings.ToUpper).Text(i18n.Chinese, func(name, arg string) string { return name + "=" + arg })
	if want := "操作者（who=ANN）于 at=2026-03-01T12:00:00Z 终止了它；其时间已到"; texts != want {
		t.Errorf("%q, expected %q", texts, want)
	}
	for _, c := range []Codes{Parse("removed from the registry"), {{Code: TimeWasUp}}, {{Code: TimeWasUp}, {Code: "of a newer host"}}, {{Code: "of a newer host"}}} {
		if text := c.Text(i18n.Chinese, func(_, arg string) string { return arg }); text != "" || len(c) == 0 {
			t.Errorf("%+v lacks something, and is %q", c, text)
		}
	}
	if inner.Codes().Arg("who") != "ann" {
		t.Error("Map changed what it was given")
	}
}
