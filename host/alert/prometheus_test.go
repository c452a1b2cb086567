package alert_test

import (
	"flag"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/alert"
)

var update = flag.Bool("update", false, "write deploy/prometheus/alerts.rules.yaml")

// TestPrometheus: the rules that are deployed are made of the file beside them; promtool
// checks and plays them (make alerts).
func TestPrometheus(t *testing.T) {
	t.Parallel()
	const file, rules = "../../deploy/prometheus/alerts.yaml", "../../deploy/prometheus/alerts.rules.yaml"
	f, err := alert.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	want := f.Prometheus("alerts.yaml")
	if *update {
		if err := os.WriteFile(rules, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not made of %s: go test ./host/alert -update", rules, file)
	}
}

// TestPrometheusCovered: where a later entry sets a rule for the same jobs, or for all, no rule is made of the
// earlier one: it could never fire.
func TestPrometheusCovered(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "alerts.yaml")
	for jobs, want := range map[string][]string{
		`[{jobs: "*", failures: 3}]`: {`{job_name=~".*"}`},
		`[{jobs: a, failures: 2}, {jobs: "*", failures: 3}, {jobs: b, failures: 4}]`: {`{job_name=~"b"}`, `{job_name=~".*", job_name!~"b"}`},
		`[{jobs: a, failures: 2}, {jobs: a, failures: 3}]`:                           {`{job_name=~"a"}`, `{job_name!~"a|a"}`},
		`[{jobs: [a, b], failures: 2}, {jobs: a, failures: 3}]`:                      {`{job_name=~"a"}`, `{job_name=~"a|b", job_name!~"a"}`, `{job_name!~"a|a|b"}`},
	} {
		if err := os.WriteFile(file, []byte("receivers: {}\nroutes: []\njobs: "+jobs+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := alert.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range regexp.MustCompile(`failures_in_a_row(\{.*\})\) >=`).FindAllStringSubmatch(f.Prometheus(""), -1) {
			got = append(got, strings.ReplaceAll(m[1], `\"`, `"`))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", jobs, got, want)
		}
	}
}

// TestExpression: a pattern of jobs and its regular expression match the same.
func TestExpression(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"report", "team-a-*", "*", "a?c", "a.b", "x[ab]y", "x[^ab]y", "x[a-c]", `a\*b`, `a\[`, "日*", "a+b(c)|d^e$f{1}"} {
		e, err := regexp.Compile("^(?:" + alert.Expression([]string{pattern}) + ")$")
		if err != nil {
			t.Errorf("%s: %v", pattern, err)
			continue
		}
		for _, name := range []string{"report", "reports", "team-a-x", "team-a-", "abc", "a.b", "axb", "xay", "xcy", "xb", "a*b", "a[", "日本", "a+b(c)|d^e$f{1}", ""} {
			if want, _ := path.Match(pattern, name); want != e.MatchString(name) {
				t.Errorf("%s matches %q: %v, and %s does not", pattern, name, want, e)
			}
		}
	}
}
