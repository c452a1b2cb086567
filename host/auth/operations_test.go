package auth

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/event/operation"
)

var update = flag.Bool("update", false, "write the table of operations in docs/access.md")

// TestOperationsDocument: the table of operations in docs/access.md is what the catalogue says.
func TestOperationsDocument(t *testing.T) {
	t.Parallel()
	const file, begin, end = "../../docs/access.md", "<!-- operations: made by go test ./host/auth -update -->\n", "<!-- end of operations -->\n"
	var b strings.Builder
	b.WriteString("\n| In the audit | Role | Commands | Endpoints |\n| --- | --- | --- | --- |\n")
	code := func(texts []string) string {
		if len(texts) == 0 {
			return "–"
		}
		return "`" + strings.Join(texts, "`, `") + "`"
	}
	for _, o := range operation.All() {
		r := o.Row()
		if r.May == "" {
			continue
		}
		role := "`" + string(weakest(r.May)) + "`"
		if r.MayPurge != "" {
			role += ", with `--purge` `" + string(weakest(r.MayPurge)) + "`"
		}
		var endpoints []string
		for _, e := range r.Endpoints {
			endpoints = append(endpoints, e.Method+" "+e.Path)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.Record, role, code(r.Commands), code(endpoints))
	}
	b.WriteByte('\n')
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(data), begin)
	was, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the operations: %q to %q", file, begin, end)
	}
	if was == b.String() {
		return
	}
	if !*update {
		t.Fatalf("the operations in %s are not those of the catalogue: go test ./host/auth -update", file)
	}
	if err := os.WriteFile(file, []byte(before+begin+b.String()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
