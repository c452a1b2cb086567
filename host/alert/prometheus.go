package alert

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// metricRule is a rule as one of Prometheus: an expression over the hosts' metrics, in which
// SEL stands for the jobs that are meant and LIMIT for the limit.
type metricRule struct {
	rule    Rule
	field   string // of the file, which sets the limit
	name    string
	limit   func(Rules) float64 // 0: off
	expr    string
	summary string
}

// metricRules are the rules of jobs. What Prometheus cannot know as hosts do is as near to it
// as it can be.
func metricRules() []metricRule {
	seconds := func(d func(Rules) time.Duration) func(Rules) float64 {
		return func(r Rules) float64 { return d(r).Seconds() }
	}
	yes := func(on func(Rules) bool) func(Rules) float64 {
		return func(r Rules) float64 {
			if on(r) {
				return 1
			}
			return 0
		}
	}
	return []metricRule{
		{Failures, "failures", "WasmjobFailures", func(r Rules) float64 { return float64(r.Failures) },
			"max by (job, job_name) (wasmjob_job_failures_in_a_row{SEL}) >= LIMIT", "An item of {{ $labels.job_name }} has failed {{ $value }} times in a row."},
		{SucceedEvery, "succeedEvery", "WasmjobNoSuccess", seconds(func(r Rules) time.Duration { return r.SucceedEvery }),
			"time() - min by (job, job_name) (wasmjob_job_last_success_timestamp_seconds{SEL}) > LIMIT", "An item of {{ $labels.job_name }} has not succeeded for {{ $value | humanizeDuration }}."},
		{StartWithin, "startWithin", "WasmjobNotStarted", seconds(func(r Rules) time.Duration { return r.StartWithin }),
			"time() - max by (job, job_name) (wasmjob_job_next_fire_timestamp_seconds{SEL}) > LIMIT", "{{ $labels.job_name }} was due {{ $value | humanizeDuration }} ago, and no host has fired it."},
		{LongerThan, "longerThan", "WasmjobLongRun", seconds(func(r Rules) time.Duration { return r.LongerThan }),
			"max by (job, job_name) (wasmjob_job_oldest_run_seconds{SEL}) > LIMIT", "A run of {{ $labels.job_name }} lasts {{ $value | humanizeDuration }}."},
		{LongerThan, "longerThanUsual", "WasmjobUnusualRun", func(r Rules) float64 { return r.LongerThanUsual },
			"max by (job, job_name) (wasmjob_job_oldest_run_seconds{SEL}) > LIMIT * sum by (job, job_name) (increase(wasmjob_item_duration_seconds_sum{SEL}[1d])) / sum by (job, job_name) (increase(wasmjob_item_duration_seconds_count{SEL}[1d]))",
			"A run of {{ $labels.job_name }} lasts {{ $value | humanizeDuration }}, much longer than those of the last day."},
		{Lost, "lost", "WasmjobLost", yes(func(r Rules) bool { return r.Lost }),
			`sum by (job, job_name) (increase(wasmjob_items_skipped_total{SEL, reason="lost"}[15m])) > 0`, "A run of {{ $labels.job_name }} was lost when its host died."},
		{Held, "held", "WasmjobHeld", yes(func(r Rules) bool { return r.Held }),
			"max by (job, job_name) (wasmjob_items_held{SEL}) > 0", "Items of {{ $labels.job_name }} are held back: hosts died in their runs."},
		{Refused, "refused", "WasmjobRefused", yes(func(r Rules) bool { return r.Refused }),
			`max by (job, job_name) (wasmjob_job_state{SEL, state="error"}) > 0`, "A host cannot run {{ $labels.job_name }} as it is."},
	}
}

// Prometheus are the rules as those of Prometheus, in the form of its rule files.
func (f *File) Prometheus(source string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Made by 'wasmjob alert export' from %s.\ngroups:\n  - name: wasmjob-alerts\n    rules:\n", source)
	wait := func(rule Rule) string {
		switch rule {
		case HostGone:
			return "\n        for: 5m" // a restart takes as long as the drain of its host
		case Session:
			return "\n        for: 2m" // and a host that starts has none yet
		case Refused, History:
			return "\n        for: 1m" // files come one after the other
		}
		return ""
	}
	write := func(rule Rule, name, jobs, expr, summary string) {
		if jobs != "" {
			jobs = ", jobs: " + strconv.Quote(jobs)
		}
		fmt.Fprintf(&b, "      - alert: %s\n        expr: %s%s\n        labels: {severity: warning, rule: %s%s}\n        annotations: {summary: %s, runbook: \"docs/alerts.md#rules\"}\n",
			name, strconv.Quote(expr), wait(rule), rule, jobs, strconv.Quote(summary))
	}
	for _, m := range metricRules() {
		for _, s := range f.scopes(m.field) {
			if limit := m.limit(s.rules); limit > 0 {
				expr := strings.ReplaceAll(m.expr, "SEL", s.selector)
				expr = strings.ReplaceAll(expr, "LIMIT", strconv.FormatFloat(limit, 'g', -1, 64))
				write(m.rule, m.name, s.jobs, strings.ReplaceAll(expr, "{, ", "{"), m.summary)
			}
		}
	}
	if f.For("").Refused {
		write(Refused, "WasmjobRefusedFiles", "", "wasmjob_refused_files > 0", "{{ $labels.instance }} refuses files of its plugins directory.")
	}
	if f.Hosts.Gone {
		write(HostGone, "WasmjobHostGone", "", "up == 0 and on (job, instance) last_over_time(wasmjob_build_info[1h])", "{{ $labels.instance }} does not answer.")
	}
	if f.Hosts.Session {
		write(Session, "WasmjobSession", "", `wasmjob_registry_session_trust{trust="live"} == 0`, "{{ $labels.instance }} has no live session with the registry.")
	}
	if f.Hosts.Registry {
		write(Registry, "WasmjobRegistryBehind", "", "wasmjob_registry_behind > 0", "{{ $labels.instance }} has found that the registry has gone back, or was copied.")
	}
	if f.Hosts.History {
		write(History, "WasmjobHistory", "", "wasmjob_history_failing > 0", "{{ $labels.instance }} cannot write its history.")
	}
	return b.String()
}

// scope are jobs for which a field has one value.
type scope struct {
	jobs     string // their patterns
	selector string
	rules    Rules
}

// scopes are the jobs by the value that a field has for them: later entries of the file
// take theirs out of earlier ones.
func (f *File) scopes(field string) (list []scope) {
	all := Standard()
	var later []string // patterns of entries after the one at hand
	var entries []entry
	for _, e := range f.entries {
		switch {
		case !e.sets(field):
		case len(e.jobs) == 0:
			for _, set := range e.set {
				set(&all)
			}
		default:
			entries = append(entries, e)
		}
	}
	for i := len(entries) - 1; i >= 0; i-- {
		e := entries[i]
		rules := Standard()
		for _, set := range e.set {
			set(&rules)
		}
		if !covered(e.jobs, later) {
			list = append(list, scope{strings.Join(e.jobs, ", "), selector(e.jobs, later), rules})
		}
		later = append(later, e.jobs...)
	}
	if !covered([]string{"*"}, later) {
		list = append(list, scope{"*", selector(nil, later), all})
	}
	return list
}

// covered reports whether each of some patterns is among others, or all jobs are: no job is left.
func covered(patterns, by []string) bool {
	return slices.Contains(by, "*") || !slices.ContainsFunc(patterns, func(p string) bool { return !slices.Contains(by, p) })
}

// selector are the jobs of some patterns without those of others.
func selector(jobs, without []string) string {
	var parts []string
	if len(jobs) > 0 {
		parts = append(parts, `job_name=~`+strconv.Quote(expression(jobs)))
	}
	if len(without) > 0 {
		parts = append(parts, `job_name!~`+strconv.Quote(expression(without)))
	}
	return strings.Join(parts, ", ")
}

// expression is a regular expression that matches what one of the patterns does. Patterns
// are those of path.Match.
func expression(patterns []string) string {
	var all []string
	for _, p := range patterns {
		var b strings.Builder
		class := false
		for i := 0; i < len(p); i++ {
			switch c := p[i]; {
			case c == '\\' && i+1 < len(p):
				i++
				b.WriteString(quoted(p[i]))
			case class:
				class = c != ']'
				b.WriteByte(c)
			case c == '[':
				class = true
				b.WriteByte(c)
			case c == '*':
				b.WriteString(".*")
			case c == '?':
				b.WriteByte('.')
			default:
				b.WriteString(quoted(c))
			}
		}
		all = append(all, b.String())
	}
	return strings.Join(all, "|")
}

// quoted is a byte that stands for itself in a regular expression.
func quoted(c byte) string {
	if strings.IndexByte(`\.+*?()|[]{}^$`, c) >= 0 {
		return `\` + string(c)
	}
	return string([]byte{c})
}
