package program

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/observe/metrics"
)

var update = flag.Bool("update", false, "write the tables of docs/metrics.md")

// families are all metrics that a host can have: of one on ZooKeeper with a history, a log of guests, alerts
// and traces, that starts where another one was before.
func families(t *testing.T) []metrics.Family {
	t.Helper()
	dir := t.TempDir()
	alerts := filepath.Join(dir, "alerts.yaml")
	if err := os.WriteFile(alerts, []byte("receivers:\n  ops: {webhook: {url: \"http://127.0.0.1:1\"}}\nroutes:\n  - {name: all, to: ops}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var list []metrics.Family
	for range 2 {
		l, _, err := load(t, "", nil, []string{"--plugins", "P", "--cache", filepath.Join(dir, "cache"), "--history", filepath.Join(dir, "h.jsonl"), "--guest-log", filepath.Join(dir, "guests.jsonl"),
			"--zk", "127.0.0.1:1", "--server-ip", "127.0.0.1", "--admin", "off", "--dead-man", "off", "--otlp", "http://127.0.0.1:1", "--alerts", alerts})
		if err != nil {
			t.Fatal(err)
		}
		p := &program{Program: command.Program{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}, Environ: []string{"HOME=" + dir}},
			self: func(...string) *exec.Cmd { return exec.CommandContext(t.Context(), "false") }}
		s, err := wire(t.Context(), p, l)
		if err != nil {
			t.Fatal(err)
		}
		list = s.metrics.Families()
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// TestMetricsAreDocumented: the tables of docs/metrics.md are what a host has.
func TestMetricsAreDocumented(t *testing.T) {
	const file = "../../../docs/metrics.md"
	had, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := families(t)
	values := make(map[string][]string) // metrics by label and values
	var table, labels strings.Builder
	table.WriteString("| Metric | Type | Unit | Labels | Meaning |\n| --- | --- | --- | --- | --- |\n")
	for i, f := range all {
		if i > 0 && all[i-1].Name == f.Name {
			t.Errorf("%s is there twice", f.Name)
		}
		if f.Help == "" || !strings.HasSuffix(f.Help, ".") {
			t.Errorf("%s: its meaning is no sentence: %q", f.Name, f.Help)
		}
		var names []string
		for _, l := range f.Labels {
			names = append(names, "`"+l.Name+"`")
			if l.Values != nil {
				key := fmt.Sprintf("`%s` | `%s`", l.Name, strings.Join(l.Values, "`, `"))
				values[key] = append(values[key], "`"+f.Name+"`")
			}
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s | %s |\n", f.Name, f.Type, f.Unit(), strings.Join(names, ", "), f.Help)
	}
	labels.WriteString("| Label | Values | Of |\n| --- | --- | --- |\n")
	var rows []string
	for key, of := range values {
		rows = append(rows, fmt.Sprintf("| %s | %s |\n", key, strings.Join(of, ", ")))
	}
	slices.Sort(rows)
	labels.WriteString(strings.Join(rows, ""))

	want := between(t, file, string(had), "metrics", table.String())
	want = between(t, file, want, "labels", labels.String())
	if string(had) == want {
		return
	}
	if !*update {
		t.Fatalf("%s is not what a host has: go test ./host/node/program -run TestMetricsAreDocumented -update", file)
	}
	if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// between replaces what stands after the comment of that name, up to the next.
func between(t *testing.T, file, text, name, put string) string {
	t.Helper()
	begin, end := "<!-- "+name+" -->\n", "<!-- end -->\n"
	before, after, found := strings.Cut(text, begin)
	_, rest, ended := strings.Cut(after, end)
	if !found || !ended {
		t.Fatalf("%s has no part between %q and %q", file, begin, end)
	}
	return before + begin + put + end + rest
}
