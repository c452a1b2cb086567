package e2e_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/event"
)

// documented is a metric in docs/metrics.md.
type documented struct {
	typ, meaning string
	labels       []string
	values       map[string][]string // of labels whose values are known
}

var (
	metricRow = regexp.MustCompile("(?m)^\\| `(wasmjob_\\w+)` \\| (\\w+) \\| \\w+ \\| ([^|]*) \\| ([^|]*) \\|$")
	labelRow  = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]*) \\| (`wasmjob_[^|]*) \\|$")
	quoted    = regexp.MustCompile("`([^`]*)`")
	series    = regexp.MustCompile(`^(\w+)(?:\{(.*)\})? `)
	oneLabel  = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)
)

func spans(text string) (list []string) {
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	return list
}

// metricsInDocs reads docs/metrics.md.
func metricsInDocs(t *testing.T) map[string]documented {
	t.Helper()
	page := string(read(t, filepath.Join("..", "..", "docs", "metrics.md")))
	all := make(map[string]documented)
	for _, m := range metricRow.FindAllStringSubmatch(page, -1) {
		all[m[1]] = documented{typ: m[2], meaning: m[4], labels: spans(m[3]), values: make(map[string][]string)}
	}
	for _, m := range labelRow.FindAllStringSubmatch(page, -1) {
		for _, name := range spans(m[3]) {
			all[name].values[m[1]] = spans(m[2])
		}
	}
	return all
}

// undocumented are complaints about what a scrape has and docs/metrics.md has not.
func undocumented(t *testing.T, scrape string) (problems []string) {
	t.Helper()
	docs := metricsInDocs(t)
	family := ""
	for line := range strings.Lines(scrape) {
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(rest, " ")
			family = name
			if d, known := docs[name]; strings.HasPrefix(name, "wasmjob_") && (!known || d.meaning != help) {
				problems = append(problems, line)
			}
		}
		d := docs[family]
		if rest, ok := strings.CutPrefix(line, "# TYPE wasmjob_"); ok && rest != strings.TrimPrefix(family, "wasmjob_")+" "+d.typ {
			problems = append(problems, line)
		}
		m := series.FindStringSubmatch(line)
		if m == nil || !strings.HasPrefix(m[1], "wasmjob_") {
			continue
		}
		for _, l := range oneLabel.FindAllStringSubmatch(m[2], -1) {
			values, listed := d.values[l[1]]
			if (l[1] != "le" && !slices.Contains(d.labels, l[1])) || (listed && !slices.Contains(values, l[2])) {
				problems = append(problems, line)
			}
		}
	}
	return problems
}

// TestMetricsOfAHost: what a host shows is in docs/metrics.md, and the other way round, but
// for what is shown of trouble only.
func TestMetricsOfAHost(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("tick", everySecond, "shardingTotalCount: 2")
	c.job("fails", everySecond, "shardingTotalCount: 1", "jobParameter: fail:boom")
	c.place.put("alerts.yaml", []byte("receivers:\n  ops: {webhook: {url: \"http://127.0.0.1:1\"}}\nroutes:\n  - {name: all, to: ops}\n"))
	a := c.add("--alerts", c.path("alerts.yaml"), "--guest-log", c.path("guests.jsonl"))
	a.of("tick", 0, kind(event.FireEnded))
	a.of("fails", 0, kind(event.FireEnded))
	code, scrape := a.get("/metrics")
	if code != 200 {
		t.Fatalf("%d %s", code, scrape)
	}
	for _, line := range undocumented(t, scrape) {
		t.Errorf("docs/metrics.md has it otherwise: %s", line)
	}
	rare := []string{"wasmjob_job_labels", // without --metrics-labels there is none
		"wasmjob_guest_counts_total", "wasmjob_guest_values", "wasmjob_guest_observations", // no guest reports any
		"wasmjob_outside_received_bytes_total", "wasmjob_outside_refused_total", "wasmjob_outside_sent_bytes_total",
		"wasmjob_waiting_seconds", "wasmjob_clock_drift_seconds", "wasmjob_last_end_info", "wasmjob_job_oldest_run_seconds",
		"wasmjob_job_backfill_instants_left", "wasmjob_job_backfill_instants_done", // there is no backfill
		// Without --otlp there are none; TestTraces sees them.
		"wasmjob_trace_failing", "wasmjob_trace_spans_dropped_total", "wasmjob_trace_spans_queued", "wasmjob_trace_spans_sent_total"}
	for name := range metricsInDocs(t) {
		if !strings.Contains(scrape, "# HELP "+name+" ") && !slices.Contains(rare, name) {
			t.Errorf("the host has no %s", name)
		}
	}

	// A host that sums its jobs, seen from outside.
	b := c.add("--metrics-jobs", "none")
	b.of("tick", 0, kind(event.JobAdded))
	_, scrape = b.get("/metrics")
	if strings.Contains(scrape, `job_name="tick"`) || !strings.Contains(scrape, `wasmjob_fires_total{job_name="other",outcome="OK"} `) {
		t.Errorf("--metrics-jobs none:\n%s", scrape)
	}
	for _, line := range undocumented(t, scrape) {
		t.Errorf("docs/metrics.md has it otherwise: %s", line)
	}
}
