package alert

import (
	"flag"
	"fmt"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/wasmjob/wasmjob/host/event"
)

// TestRows: each rule has a row, and each row what is made of it.
func TestRows(t *testing.T) {
	t.Parallel()
	file, err := goparser.ParseFile(token.NewFileSet(), "alert.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if of, ok := spec.Type.(*ast.Ident); !ok || of.Name != "Rule" {
			return true
		}
		for i, value := range spec.Values {
			text, err := strconv.Unquote(value.(*ast.BasicLit).Value)
			if named++; err != nil || !slices.Contains(AllRules(), Rule(text)) {
				t.Errorf("the rule %s (%q) has no row in table.go", spec.Names[i].Name, text)
			}
		}
		return true
	})
	if named != len(rows) {
		t.Errorf("%d rules are named, and %d have a row", named, len(rows))
	}
	fields := make(map[string]bool)
	for _, r := range rows {
		switch {
		case r.short == "" || !strings.ContainsFunc(r.chinese, func(c rune) bool { return unicode.Is(unicode.Han, c) }):
			t.Errorf("%s lacks its words for lists, short and chinese in its row of table.go: %q, %q", r.rule, r.short, r.chinese)
		case r.on == nil:
			t.Errorf("the row of %s in table.go does not say when it is on: set on", r.rule)
		case len(r.events) == 0 && !r.asks:
			t.Errorf("%s goes by no event, and asks for nothing: it cannot fire; set events or asks in its row of table.go", r.rule)
		case len(r.settings) == 0:
			t.Errorf("%s has no field in the file: set settings in its row of table.go", r.rule)
		}
		for _, s := range r.settings {
			field := s.Name
			if s.ofHosts != nil {
				field = "hosts." + field
			}
			if fields[field] {
				t.Errorf("the field %s is there twice", field)
			}
			fields[field] = true
			switch {
			case s.Name == "" || s.Help == "" || s.Is == nil || s.values == "" || s.standard == "" || s.fires == "" || s.over == "":
				t.Errorf("%s: the field %q lacks a text for docs/alerts.md", r.rule, s.Name)
			case (s.read == nil) == (s.ofHosts == nil):
				t.Errorf("%s: the field %s is to be one of jobs or one of hosts", r.rule, s.Name)
			case s.ofHosts == nil && (s.metric.name == "" || s.metric.limit == nil || s.metric.expr == "" || s.metric.summary == ""):
				t.Errorf("%s: the field %s lacks its rule for Prometheus", r.rule, s.Name)
			}
		}
	}
}

// TestHears: an event that no rule goes by is passed over, so that the queue has room for the others.
func TestHears(t *testing.T) {
	t.Parallel()
	for _, k := range []event.Kind{event.ItemCompleted, event.Session, event.Accepted, event.Janitor} {
		if !Hears(k) {
			t.Errorf("%s is passed over", k)
		}
	}
	if Hears(event.Listener) {
		t.Errorf("%s is heard, and no rule goes by it", event.Listener)
	}
}

// TestJudgeHears: each event that the judge acts on is one that a row names. See passes the others over, so that a
// judgement by another event would never happen.
func TestJudgeHears(t *testing.T) {
	t.Parallel()
	listed := strings.Builder{}
	judged := 0
	parsed, err := goparser.ParseFile(token.NewFileSet(), "judge.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("table.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range regexp.MustCompile(`\[\]event\.Kind\{([^}]*)\}`).FindAllStringSubmatch(string(table), -1) {
		listed.WriteString(list[1] + ", ")
	}
	check := func(of ast.Expr, kinds ...ast.Expr) {
		if s, ok := of.(*ast.SelectorExpr); !ok || s.Sel.Name != "Kind" {
			return
		}
		for _, kind := range kinds {
			if s, ok := kind.(*ast.SelectorExpr); ok {
				if judged++; !strings.Contains(listed.String(), "event."+s.Sel.Name+",") {
					t.Errorf("judge.go judges by event.%s, which See passes over: name it in events of the rule's row in table.go", s.Sel.Name)
				}
			}
		}
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SwitchStmt:
			for _, c := range n.Body.List {
				check(n.Tag, c.(*ast.CaseClause).List...)
			}
		case *ast.BinaryExpr:
			check(n.X, n.Y)
		}
		return true
	})
	if judged < 10 {
		t.Errorf("judge.go judges by %d events: the test looked at the wrong place", judged)
	}
}

// TestRulesDocument: the table of rules in docs/alerts.md is what the rows say.
func TestRulesDocument(t *testing.T) {
	t.Parallel()
	const file, begin, end = "../../docs/alerts.md", "<!-- rules: made by go test ./host/alert -update -->\n", "<!-- end of rules -->\n"
	var b strings.Builder
	b.WriteString("\n| Rule | Value | Standard | It fires when | It is over when |\n| --- | --- | --- | --- | --- |\n")
	for _, hosts := range []bool{false, true} {
		for _, s := range settingsOf(hosts) {
			name := s.Name
			if hosts {
				name = "hosts." + name
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", name, s.values, s.standard, s.fires, s.over)
		}
	}
	b.WriteByte('\n')
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(data), begin)
	was, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the rules: %q to %q", file, begin, end)
	}
	if was == b.String() {
		return
	}
	if u := flag.Lookup("update"); u == nil || u.Value.String() != "true" { // prometheus_test.go has it
		t.Fatalf("the rules in %s are not those of table.go: go test ./host/alert -update", file)
	}
	if err := os.WriteFile(file, []byte(before+begin+b.String()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
