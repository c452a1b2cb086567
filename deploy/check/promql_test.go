package check

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// metric is what docs/metrics.md has of a metric. A test in host/node/program writes that page from
// the program, one in test/e2e holds it against what a host shows.
type metric struct {
	typ    string
	labels []string
	values map[string][]string // of labels whose values are known
}

var (
	metricRow = regexp.MustCompile("(?m)^\\| `(wasmjob_\\w+)` \\| (\\w+) \\| \\w+ \\| ([^|]*) \\|")
	labelRow  = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]*) \\| (`wasmjob_[^|]*) \\|$")
	quoted    = regexp.MustCompile("`([^`]*)`")
	legend    = regexp.MustCompile(`\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}`)
	words     = regexp.MustCompile(`^[\w |]+$`)
)

func spans(text string) (list []string) {
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	return list
}

// metrics are all that a query may name, by the name of a series.
func metrics(t *testing.T) map[string]metric {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	families := make(map[string]metric)
	for _, m := range metricRow.FindAllStringSubmatch(string(page), -1) {
		families[m[1]] = metric{typ: m[2], labels: spans(m[3]), values: make(map[string][]string)}
	}
	for _, m := range labelRow.FindAllStringSubmatch(string(page), -1) {
		for _, name := range spans(m[3]) {
			families[name].values[m[1]] = spans(m[2])
		}
	}
	if len(families) < 40 {
		t.Fatalf("%d metrics in docs/metrics.md: the page is not read as it is written", len(families))
	}
	all := map[string]metric{ // of Prometheus, of Go and of the process
		"up": {}, "process_resident_memory_bytes": {}, "process_cpu_seconds_total": {}, "process_start_time_seconds": {},
	}
	for name, m := range families {
		if m.typ != "histogram" {
			all[name] = m
			continue
		}
		all[name+"_sum"], all[name+"_count"] = m, m
		all[name+"_bucket"] = metric{m.typ, append(slices.Clone(m.labels), "le"), m.values}
	}
	return all
}

// ofTarget are the labels that Prometheus puts on what it scrapes.
var ofTarget = []string{"job", "instance"}

// complaints are about metrics, labels and values of a query that no host has. labels are
// all that its series have.
func complaints(expr string, known map[string]metric) (problems []string, has []string) {
	complain := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return []string{err.Error()}, nil
	}
	all := slices.Clone(ofTarget)
	var grouped []string
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			m, exists := known[n.Name]
			if !exists {
				complain("there is no metric %q", n.Name)
				return nil
			}
			all = append(all, m.labels...)
			for _, match := range n.LabelMatchers {
				if match.Name == model.MetricNameLabel {
					continue
				}
				if !slices.Contains(m.labels, match.Name) && !slices.Contains(ofTarget, match.Name) {
					complain("%s has no label %q", n.Name, match.Name)
				}
				values, listed := m.values[match.Name]
				if !listed || !words.MatchString(match.Value) {
					continue
				}
				for value := range strings.SplitSeq(match.Value, "|") {
					if !slices.Contains(values, value) {
						complain("%s never has %s=%q", n.Name, match.Name, value)
					}
				}
			}
		case *parser.AggregateExpr:
			grouped = append(grouped, n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				grouped = append(grouped, n.VectorMatching.MatchingLabels...)
			}
		}
		return nil
	})
	for _, l := range grouped {
		if !slices.Contains(all, l) {
			complain("no series in it has the label %q", l)
		}
	}
	return problems, all
}

// plain is a query of the dashboard without Grafana's variables.
func plain(expr string) string {
	return strings.NewReplacer("$job_name", ".*", "$job", "wasmjob", "$host", ".*", "$__rate_interval", "5m").Replace(expand(expr))
}

// TestDashboardQueries: what the dashboard asks for is there.
func TestDashboardQueries(t *testing.T) {
	known := metrics(t)
	asked := make(map[string]bool)
	for _, s := range sections() {
		for _, p := range s.panels {
			for _, q := range p.queries {
				problems, has := complaints(plain(q.expr), known)
				for _, m := range legend.FindAllStringSubmatch(q.legend, -1) {
					if !slices.Contains(has, m[1]) {
						problems = append(problems, fmt.Sprintf("the legend has the label %q, and no series", m[1]))
					}
				}
				for _, problem := range problems {
					t.Errorf("%s / %s: %s\n%s", s.title, p.title, problem, plain(q.expr))
				}
				for name := range known {
					if strings.Contains(q.expr, name+"{") {
						asked[name] = true
					}
				}
			}
		}
	}
	if len(asked) < 30 {
		t.Errorf("the dashboard asks for %d metrics only: %v", len(asked), slices.Sorted(maps.Keys(asked)))
	}
}

// TestRules: so is what the alert rules ask for, and what they say of it; those that are
// made of the example of a file of alerts as well.
func TestRules(t *testing.T) {
	known := metrics(t)
	for name, least := range map[string]int{"wasmjob.rules.yaml": 20, "alerts.rules.yaml": 8} {
		var file struct {
			Groups []struct{ Rules []rule }
		}
		if err := yaml.Unmarshal(read(t, "prometheus/"+name), &file); err != nil {
			t.Fatal(err)
		}
		rules := 0
		for _, g := range file.Groups {
			for i := range g.Rules {
				rules++
				g.Rules[i].check(t, known)
			}
		}
		if rules < least {
			t.Errorf("%s: %d rules only: the file is not read as it is written", name, rules)
		}
	}
}

// rule is one of Prometheus.
type rule struct {
	Alert, Expr string
	Annotations map[string]string
}

func (r *rule) check(t *testing.T, known map[string]metric) {
	t.Helper()
	problems, has := complaints(r.Expr, known)
	for _, problem := range problems {
		t.Errorf("%s: %s\n%s", r.Alert, problem, r.Expr)
	}
	for _, text := range r.Annotations {
		for _, m := range legend.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(has, m[1]) {
				t.Errorf("%s: %q has the label %q, and no series", r.Alert, text, m[1])
			}
		}
	}
	page, section, _ := strings.Cut(r.Annotations["runbook"], "#")
	if page != "docs/runbook.md" && page != "docs/alerts.md" {
		t.Errorf("%s: it has no runbook", r.Alert)
		return
	}
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(page)))
	if err != nil {
		t.Fatal(err)
	}
	heading := regexp.MustCompile(`(?mi)^#+ +` + strings.ReplaceAll(regexp.QuoteMeta(section), "-", `[^\w\n]+`) + `\W*$`)
	if section == "" || !heading.Match(text) {
		t.Errorf("%s: the runbook has no section %q", r.Alert, r.Annotations["runbook"])
	}
}

// TestComplaints: what is wrong with a query is found.
func TestComplaints(t *testing.T) {
	known := metrics(t)
	for expr, want := range map[string]string{
		`sum by (outcome) (rate(wasmjob_fires_total{job_name="a", outcome=~"OK|FAIL"}[5m]))`:         "",
		`histogram_quantile(0.9, sum by (le, instance) (rate(wasmjob_fire_lag_seconds_bucket[5m])))`: "",
		`wasmjob_fire_total`:                        `there is no metric "wasmjob_fire_total"`,
		`wasmjob_fire_lag_seconds`:                  `there is no metric "wasmjob_fire_lag_seconds"`,
		`wasmjob_fires_total_sum`:                   `there is no metric`,
		`wasmjob_fires_total{name="a"}`:             `wasmjob_fires_total has no label "name"`,
		`wasmjob_fires_total{outcome="ok"}`:         `wasmjob_fires_total never has outcome="ok"`,
		`wasmjob_fires_total{outcome!~"OK|FAILED"}`: `wasmjob_fires_total never has outcome="FAILED"`,
		`sum by (le) (wasmjob_fires_total)`:         `no series in it has the label "le"`,
		`wasmjob_fires_total / on (host) up`:        `no series in it has the label "host"`,
		`sum(wasmjob_fires_total`:                   "unclosed left parenthesis",
	} {
		problems, _ := complaints(expr, known)
		if all := strings.Join(problems, "; "); (want == "") != (all == "") || !strings.Contains(all, want) {
			t.Errorf("%s: %q, want %q", expr, all, want)
		}
	}
}
