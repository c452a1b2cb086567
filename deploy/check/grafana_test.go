package check

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write deploy/grafana/wasmjob.json")

// panel is one of the dashboard, as it is written down here.
type panel struct {
	title, about string
	kind         string // stat, timeseries, table
	unit         string // as Grafana calls it
	width        int    // of 24
	queries      []query
	// bad is the value from which on a stat is red; 0: it has no colour.
	bad float64
	// stacked sums the series of a chart.
	stacked bool
}

// query is a query of a panel. In expr, HERE stands for the matchers of the dashboard's
// scrape job and hosts, JOBS for those and the chosen jobs, RATE for Grafana's interval.
type query struct {
	expr, legend string
	exemplars    bool
}

// section is a row of the dashboard.
type section struct {
	title  string
	panels []panel
}

// one is a panel with one query.
func one(expr, legend string) []query { return []query{{expr: expr, legend: legend}} }

// quantiles are three of a histogram, with exemplars.
func quantiles(metric, matchers string) (list []query) {
	for _, q := range []struct{ value, name string }{{"0.5", "median"}, {"0.95", "95 %"}, {"0.99", "99 %"}} {
		list = append(list, query{"histogram_quantile(" + q.value + ", sum by (le) (rate(" + metric + "_bucket{" + matchers + "}[RATE])))", q.name, q.value == "0.99"})
	}
	return list
}

// sections are the dashboard: first what is wrong, then what is done, then why.
func sections() []section {
	const stat, chart, table = "stat", "timeseries", "table"
	return []section{
		{"What is wrong", []panel{
			{title: "Hosts that answer", about: "Hosts of the scrape job whose last scrape succeeded.", kind: stat, width: 3,
				queries: one(`count(wasmjob_build_info{HERE})`, "")},
			{title: "Hosts that do not", about: "Targets of the scrape job that do not answer.", kind: stat, width: 3, bad: 1,
				queries: one(`count(up{HERE} == 0) or vector(0)`, "")},
			{title: "Without a session", about: "Hosts that have no live session with the registry. A host with the embedded registry has no session, and does not count.", kind: stat, width: 3, bad: 1,
				queries: one(`count(wasmjob_registry_session_trust{HERE, trust="live"} == 0) or vector(0)`, "")},
			{title: "Jobs in error", about: "Jobs that cannot run on one host at least: wasmjob status says why.", kind: stat, width: 3, bad: 1,
				queries: one(`count(sum by (job_name) (wasmjob_job_state{JOBS, state="error"}) > 0) or vector(0)`, "")},
			{title: "Fires that failed, 1 h", about: "Parts of fires, one for each host, of which an item did not end well.", kind: stat, width: 3, bad: 1,
				queries: one(`sum(increase(wasmjob_fires_total{JOBS, outcome!~"OK|CANCELLED"}[1h]))`, "")},
			{title: "Runs lost, 24 h", about: "Runs that were given up when their host died.", kind: stat, width: 3, bad: 1,
				queries: one(`sum(increase(wasmjob_items_skipped_total{JOBS, reason=~"lost|held"}[24h]))`, "")},
			{title: "Items held back", about: "Hosts in a row died in their runs: wasmjob job release JOB.", kind: stat, width: 3, bad: 1,
				queries: one(`sum(max by (job_name) (wasmjob_items_held{JOBS}))`, "")},
			{title: "Most overdue", about: "How long the job that is latest has been due on every host.", kind: stat, unit: "s", width: 3, bad: 60,
				queries: one(`clamp_min(max(time() - max by (job_name) (wasmjob_job_next_fire_timestamp_seconds{JOBS})), 0)`, "")},
		}},
		{"Fires", []panel{
			{title: "Fires by outcome", about: "Parts of fires that ended, in a second.", kind: chart, unit: "ops", width: 12, stacked: true,
				queries: one(`sum by (outcome) (rate(wasmjob_fires_total{JOBS}[RATE]))`, "{{outcome}}")},
			{title: "Failed attempts by job", about: "The ten jobs of which the most attempts did not end well in the last hour.", kind: chart, unit: "short", width: 12,
				queries: one(`topk(10, sum by (job_name, outcome) (increase(wasmjob_item_attempts_total{JOBS, outcome!="OK"}[1h])) > 0)`, "{{job_name}} {{outcome}}")},
			{title: "Lag", about: "How much later than their instant the items of a fire were begun.", kind: chart, unit: "s", width: 8,
				queries: quantiles("wasmjob_fire_lag_seconds", "JOBS")},
			{title: "Duration of fires", about: "From the begin of a host's items to the end of the last.", kind: chart, unit: "s", width: 8,
				queries: quantiles("wasmjob_fire_duration_seconds", "JOBS")},
			{title: "Duration of attempts", about: "Of single items.", kind: chart, unit: "s", width: 8,
				queries: quantiles("wasmjob_item_duration_seconds", "JOBS")},
			{title: "Slowest jobs", about: "Within what time 95 % of the attempts of a job ended: the ten longest.", kind: chart, unit: "s", width: 12,
				queries: one(`topk(10, histogram_quantile(0.95, sum by (le, job_name) (rate(wasmjob_item_duration_seconds_bucket{JOBS}[RATE]))))`, "{{job_name}}")},
			{title: "Latest jobs", about: "Mean lag of a job: the ten longest.", kind: chart, unit: "s", width: 12,
				queries: one(`topk(10, sum by (job_name) (rate(wasmjob_fire_lag_seconds_sum{JOBS}[RATE])) / (sum by (job_name) (rate(wasmjob_fire_lag_seconds_count{JOBS}[RATE])) > 0))`, "{{job_name}}")},
			{title: "Skipped, by reason", about: "Items, and instants of hosts, that did not run. later and elsewhere have a run all the same.", kind: chart, unit: "short", width: 12, stacked: true,
				queries: []query{
					{expr: `sum by (reason) (increase(wasmjob_items_skipped_total{JOBS}[RATE])) > 0`, legend: "item: {{reason}}"},
					{expr: `sum by (reason) (increase(wasmjob_fires_skipped_total{JOBS}[RATE])) > 0`, legend: "instant: {{reason}}"},
				}},
			{title: "What is waited for", about: "The longest wait of each kind: the page Operating, Waiting.", kind: chart, unit: "s", width: 12,
				queries: one(`max by (job_name, what) (wasmjob_waiting_seconds{HERE})`, "{{what}} {{job_name}}")},
			{title: "Jobs", about: "One line for each job.", kind: table, width: 24,
				queries: []query{
					{expr: `max by (job_name) (wasmjob_job_next_fire_timestamp_seconds{JOBS}) - time()`, legend: "next fire in, s"},
					{expr: `sum by (job_name) (wasmjob_job_items{JOBS})`, legend: "items"},
					{expr: `sum by (job_name) (wasmjob_job_items_running{JOBS})`, legend: "running"},
					{expr: `sum by (job_name) (wasmjob_job_items_misfired{JOBS})`, legend: "misfired"},
					{expr: `sum by (job_name) (increase(wasmjob_items_completed_total{JOBS}[1h]))`, legend: "completed, 1 h"},
					{expr: `sum by (job_name) (increase(wasmjob_fires_total{JOBS, outcome!~"OK|CANCELLED"}[1h]))`, legend: "failed, 1 h"},
				}},
		}},
		{"Hosts", []panel{
			{title: "Items that run", kind: chart, unit: "short", width: 8, stacked: true,
				queries: one(`sum by (instance) (wasmjob_job_items_running{JOBS})`, "{{instance}}")},
			{title: "Items that wait for a worker", about: "Begun, and without a slot or memory yet.", kind: chart, unit: "short", width: 8, stacked: true,
				queries: one(`sum by (instance) (wasmjob_items_waiting{HERE})`, "{{instance}}")},
			{title: "Items by owner", kind: chart, unit: "short", width: 8, stacked: true,
				queries: one(`sum by (instance) (wasmjob_job_items{JOBS})`, "{{instance}}")},
			{title: "Memory of guests and modules", about: "Against the budget of each host.", kind: chart, unit: "bytes", width: 8,
				queries: []query{
					{expr: `wasmjob_memory_guests_bytes{HERE}`, legend: "guests, {{instance}}"},
					{expr: `wasmjob_memory_code_bytes{HERE}`, legend: "modules, {{instance}}"},
					{expr: `wasmjob_memory_budget_bytes{HERE} > 0`, legend: "budget, {{instance}}"},
				}},
			{title: "Memory of the process", kind: chart, unit: "bytes", width: 8,
				queries: one(`process_resident_memory_bytes{HERE} and on (job, instance) wasmjob_build_info{HERE}`, "{{instance}}")},
			{title: "Processors", about: "How many are busy with the host.", kind: chart, unit: "short", width: 8,
				queries: one(`rate(process_cpu_seconds_total{HERE}[RATE]) and on (job, instance) wasmjob_build_info{HERE}`, "{{instance}}")},
			{title: "Worker processes", about: "They run guests outside of the host's process.", kind: chart, unit: "short", width: 8,
				queries: []query{
					{expr: `wasmjob_worker_processes{HERE}`, legend: "run, {{instance}}"},
					{expr: `increase(wasmjob_worker_processes_killed_total{HERE}[RATE]) > 0`, legend: "killed, {{instance}}"},
					{expr: `increase(wasmjob_worker_processes_ended_total{HERE}[RATE]) > 0`, legend: "ended ({{cause}}), {{instance}}"},
				}},
			{title: "Over quota", about: "What was dropped, or had to wait, since a job was beyond a ceiling.", kind: chart, unit: "short", width: 8,
				queries: one(`sum by (job_name, ceiling) (increase(wasmjob_over_quota_total{JOBS}[RATE])) > 0`, "{{job_name}} {{ceiling}}")},
			{title: "Refused files and gaps in the history", kind: chart, unit: "short", width: 8,
				queries: []query{
					{expr: `wasmjob_refused_files{HERE}`, legend: "refused files, {{instance}}"},
					{expr: `increase(wasmjob_history_events_dropped_total{HERE}[RATE]) > 0`, legend: "events lost, {{instance}}"},
				}},
			{title: "Versions", kind: table, width: 24,
				queries: one(`sum by (instance, version, goversion) (wasmjob_build_info{HERE})`, "hosts")},
		}},
		{"Registry", []panel{
			{title: "Requests by kind", about: "An undisturbed fire is two multi.", kind: chart, unit: "reqps", width: 8, stacked: true,
				queries: one(`sum by (kind) (rate(wasmjob_registry_operations_total{HERE}[RATE]))`, "{{kind}}")},
			{title: "Failures by reason", kind: chart, unit: "short", width: 8,
				queries: one(`sum by (instance, reason) (increase(wasmjob_registry_failures_total{HERE}[RATE])) > 0`, "{{reason}} {{instance}}")},
			{title: "Age of the last answer", about: "A session is given up after two thirds of its time-out.", kind: chart, unit: "s", width: 8,
				queries: one(`wasmjob_registry_session_answer_age_seconds{HERE}`, "{{instance}}")},
			{title: "Sessions lost, reconnects", kind: chart, unit: "short", width: 8,
				queries: []query{
					{expr: `increase(wasmjob_sessions_lost_total{HERE}[RATE])`, legend: "lost, {{instance}}"},
					{expr: `wasmjob_registry_reconnects{HERE}`, legend: "reconnects, {{instance}}"},
				}},
			{title: "Clocks", about: "By how much a host's clock is ahead of the registry's.", kind: chart, unit: "s", width: 8,
				queries: one(`wasmjob_clock_drift_seconds{HERE}`, "{{instance}}")},
			{title: "Elections and reshardings", kind: chart, unit: "short", width: 8,
				queries: []query{
					{expr: `sum(increase(wasmjob_elections_won_total{JOBS}[RATE]))`, legend: "elections"},
					{expr: `sum(increase(wasmjob_reshardings_total{JOBS}[RATE]))`, legend: "reshardings"},
				}},
		}},
		{"What jobs do outside", []panel{
			{title: "Calls", kind: chart, unit: "reqps", width: 8, stacked: true,
				queries: one(`sum by (capability) (rate(wasmjob_outside_calls_total{JOBS}[RATE]))`, "{{capability}}")},
			{title: "Without an answer", about: "Part of the calls of a job that had none.", kind: chart, unit: "percentunit", width: 8,
				queries: one(`sum by (job_name, capability) (rate(wasmjob_outside_failed_total{JOBS}[RATE])) / (sum by (job_name, capability) (rate(wasmjob_outside_calls_total{JOBS}[RATE])) > 0)`, "{{job_name}} {{capability}}")},
			{title: "Refused", kind: chart, unit: "short", width: 8,
				queries: one(`sum by (job_name, capability, reason) (increase(wasmjob_outside_refused_total{JOBS}[RATE])) > 0`, "{{job_name}} {{capability}}: {{reason}}")},
			{title: "Bytes sent", kind: chart, unit: "Bps", width: 12,
				queries: one(`sum by (job_name, capability) (rate(wasmjob_outside_sent_bytes_total{JOBS}[RATE]))`, "{{job_name}} {{capability}}")},
			{title: "Bytes received", kind: chart, unit: "Bps", width: 12,
				queries: one(`sum by (job_name, capability) (rate(wasmjob_outside_received_bytes_total{JOBS}[RATE]))`, "{{job_name}} {{capability}}")},
		}},
		{"Traces", []panel{
			{title: "Spans", about: "Sent to the collector, and dropped.", kind: chart, unit: "ops", width: 12,
				queries: []query{
					{expr: `sum(rate(wasmjob_trace_spans_sent_total{HERE}[RATE]))`, legend: "sent"},
					{expr: `sum by (instance) (rate(wasmjob_trace_spans_dropped_total{HERE}[RATE])) > 0`, legend: "dropped, {{instance}}"},
				}},
			{title: "Spans that wait", kind: chart, unit: "short", width: 12,
				queries: one(`wasmjob_trace_spans_queued{HERE}`, "{{instance}}")},
		}},
	}
}

// expand writes what stands for matchers and intervals as Grafana reads it.
func expand(expr string) string {
	return strings.NewReplacer(
		"HERE", `job="$job", instance=~"$host"`,
		"JOBS", `job="$job", instance=~"$host", job_name=~"$job_name"`,
		"RATE", "$__rate_interval",
	).Replace(expr)
}

// object is one of JSON, whose keys are written in alphabetical order.
type object = map[string]any

// dashboard is what Grafana reads (schema version 39: Grafana 10 and newer).
func dashboard() object {
	id, y := 0, 0
	var panels []object
	for _, s := range sections() {
		id++
		panels = append(panels, object{"id": id, "type": "row", "title": s.title, "collapsed": false, "panels": []object{}, "gridPos": grid(0, y, 24, 1)})
		y++
		x, height := 0, 0
		for _, p := range s.panels {
			if x+p.width > 24 {
				x, y = 0, y+height
			}
			height = 8
			if p.kind == "stat" {
				height = 4
			}
			id++
			panels = append(panels, p.object(id, grid(x, y, p.width, height)))
			x += p.width
		}
		y += height
	}
	source := object{"type": "prometheus", "uid": "${datasource}"}
	choice := func(name, label, of string, several bool) object {
		v := object{"name": name, "label": label, "type": "query", "datasource": source, "definition": of, "query": object{"query": of, "refId": "values"},
			"refresh": 2, "sort": 1, "multi": several, "includeAll": several, "hide": 0, "options": []object{}, "regex": "", "current": object{}}
		if several {
			v["allValue"] = ".*"
			v["current"] = object{"text": []string{"All"}, "value": []string{"$__all"}}
		}
		return v
	}
	return object{
		"title": "wasmjob", "uid": "wasmjob", "tags": []string{"wasmjob"}, "schemaVersion": 39, "version": 1, "editable": true, "graphTooltip": 1,
		"description": "Hosts and jobs of wasmjob. Metrics: docs/metrics.md; what to do: docs/runbook.md.",
		"time":        object{"from": "now-6h", "to": "now"}, "refresh": "30s", "timezone": "", "annotations": object{"list": []object{}}, "links": []object{},
		"panels": panels,
		"templating": object{"list": []object{
			{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0, "includeAll": false, "multi": false, "options": []object{}, "refresh": 1, "regex": "", "current": object{}},
			choice("job", "Scrape job", "label_values(wasmjob_build_info, job)", false),
			choice("host", "Host", `label_values(wasmjob_build_info{job="$job"}, instance)`, true),
			choice("job_name", "Job", `label_values(wasmjob_fires_total{job="$job"}, job_name)`, true),
		}},
	}
}

func grid(x, y, w, h int) object { return object{"x": x, "y": y, "w": w, "h": h} }

func (p panel) object(id int, at object) object {
	source := object{"type": "prometheus", "uid": "${datasource}"}
	var targets []object
	for i, q := range p.queries {
		t := object{"refId": string(rune('A' + i)), "datasource": source, "editorMode": "code", "expr": expand(q.expr), "legendFormat": q.legend, "exemplar": q.exemplars,
			"range": p.kind == "timeseries", "instant": p.kind != "timeseries"}
		if p.kind == "table" {
			t["format"] = "table"
		}
		targets = append(targets, t)
	}
	defaults := object{"unit": cmp.Or(p.unit, "short"), "color": object{"mode": "palette-classic"}}
	out := object{"id": id, "type": p.kind, "title": p.title, "datasource": source, "gridPos": at, "targets": targets}
	if p.about != "" {
		out["description"] = p.about
	}
	switch p.kind {
	case "stat":
		steps := []object{{"color": "text", "value": nil}}
		if p.bad > 0 {
			steps = []object{{"color": "green", "value": nil}, {"color": "red", "value": p.bad}}
		}
		defaults["color"], defaults["thresholds"] = object{"mode": "thresholds"}, object{"mode": "absolute", "steps": steps}
		defaults["decimals"] = 0
		out["options"] = object{"colorMode": "value", "graphMode": "none", "justifyMode": "auto", "textMode": "value",
			"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false}}
	case "timeseries":
		custom := object{"drawStyle": "line", "lineWidth": 1, "fillOpacity": 5, "showPoints": "auto", "spanNulls": false}
		if p.stacked {
			custom["fillOpacity"], custom["stacking"] = 30, object{"group": "A", "mode": "normal"}
		}
		defaults["custom"], defaults["min"] = custom, 0
		if p.title == "Clocks" {
			delete(defaults, "min") // they may be behind
		}
		out["options"] = object{"legend": object{"calcs": []string{}, "displayMode": "list", "placement": "bottom", "showLegend": true}, "tooltip": object{"mode": "multi", "sort": "desc"}}
	case "table":
		names, hidden := object{}, object{"Time": true}
		for i, q := range p.queries {
			if len(p.queries) == 1 {
				names["Value"] = q.legend
				break
			}
			names["Value #"+string(rune('A'+i))] = q.legend
		}
		out["transformations"] = []object{{"id": "merge", "options": object{}},
			{"id": "organize", "options": object{"excludeByName": hidden, "renameByName": names, "indexByName": object{}}}}
		out["options"] = object{"cellHeight": "sm", "showHeader": true, "footer": object{"show": false, "countRows": false, "fields": "", "reducer": []string{"sum"}}}
	}
	out["fieldConfig"] = object{"defaults": defaults, "overrides": []object{}}
	return out
}

// TestDashboard: deploy/grafana/wasmjob.json is what is written down above.
func TestDashboard(t *testing.T) {
	var want bytes.Buffer
	e := json.NewEncoder(&want)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(dashboard()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(deployDir, "grafana", "wasmjob.json")
	if *update {
		if err := os.WriteFile(file, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(read(t, "grafana/wasmjob.json"), want.Bytes()) {
		t.Errorf("%s is not what grafana_test.go makes: go test ./deploy/check -run TestDashboard -update", file)
	}
	titles := make(map[string]bool)
	for _, s := range sections() {
		width := 0
		for _, p := range s.panels {
			if titles[p.title] {
				t.Errorf("two panels are called %q", p.title)
			}
			titles[p.title] = true
			width += p.width
			if len(p.queries) == 0 {
				t.Errorf("%s has no query", p.title)
			}
		}
		if width%24 != 0 {
			t.Errorf("the panels of %q leave a gap", s.title)
		}
	}
}
