package alert

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// labelled is the metric that has labels of jobs, of hosts with the setting metricsLabels.
const labelled = "wasmjob_job_labels"

// Prometheus returns the rules as a Prometheus rule file.
func (f *File) Prometheus(source string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Made by 'wasmjob alert export' from %s.\n", source)
	if names := f.labelNames(); len(names) > 0 {
		fmt.Fprintf(&b, "# Some rules go by the labels of jobs, which hosts show only with the setting metricsLabels: %s (--metrics-labels).\n# On hosts without it a rule of jobs with labels fires for no job, and a rule of the other jobs fires for all.\n", strings.Join(names, ","))
	}
	b.WriteString("groups:\n  - name: wasmjob-alerts\n    rules:\n")
	write := func(r row, name, jobs, expr, summary string) {
		wait := ""
		if r.wait != "" {
			wait = "\n        for: " + r.wait
		}
		if jobs != "" {
			jobs = ", jobs: " + strconv.Quote(jobs)
		}
		fmt.Fprintf(&b, "      - alert: %s\n        expr: %s%s\n        labels: {severity: warning, rule: %s%s}\n        annotations: {summary: %s, runbook: \"docs/alerts.md#rules\"}\n",
			name, strconv.Quote(expr), wait, r.rule, jobs, strconv.Quote(summary))
	}
	for _, r := range rows {
		for _, set := range r.settings {
			if set.metric.name == "" {
				continue
			}
			for _, s := range f.scopes(set.Name) {
				if limit := set.metric.limit(s.rules); limit > 0 {
					expr := strings.ReplaceAll(set.metric.expr, "LIMIT", strconv.FormatFloat(limit, 'g', -1, 64))
					write(r, set.metric.name, s.jobs, s.in(expr), set.metric.summary)
				}
			}
		}
	}
	for _, r := range rows {
		for _, m := range r.whole {
			if m.on(f) {
				write(r, m.name, "", m.expr, m.summary)
			}
		}
	}
	return b.String()
}

// labelNames are the names of the labels by which rules go, sorted.
func (f *File) labelNames() (names []string) {
	for _, e := range f.entries {
		names = append(names, e.labels.Names()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// scope are the jobs that have one value of a field.
type scope struct {
	jobs     string // their patterns and conditions
	selector string
	// only and without are selectors of the metric with labels: the jobs must match only, empty for any, and
	// not match without.
	only    string
	without []string
	rules   Rules
}

// in is an expression for the jobs of the scope.
func (s scope) in(expr string) string {
	expr = strings.ReplaceAll(strings.ReplaceAll(expr, "SEL", s.selector), "{, ", "{")
	if s.only == "" && len(s.without) == 0 {
		return expr
	}
	expr = "(" + expr + ")"
	const on = " on (job, job_name) " + labelled
	if s.only != "" {
		expr += " and" + on + "{" + s.only + "}"
	}
	for _, not := range s.without {
		expr += " unless" + on + "{" + not + "}"
	}
	return expr
}

// when the oldest news is due, and when the newest message was sent
func (f *File) scopes(field string) (list []scope) {
	all := Standard()
	var later, entries []entry // later are those after the one at hand
	for _, e := range f.entries {
		switch {
		case !e.sets(field):
		case len(e.jobs) == 0 && e.labels.Empty():
			for _, set := range e.set {
				set(&all)
			}
		default:
			entries = append(entries, e)
		}
	}
	for _, e := range slices.Backward(entries) {
		rules := Standard()
		for _, set := range e.set {
			set(&rules)
		}
		if !covered(&e, later) {
			list = append(list, scopeOf(&e, later, rules))
		}
		later = append(later, e)
	}
	if rest := (entry{jobs: []string{"*"}}); !covered(&rest, later) {
		s := scopeOf(&entry{}, later, all)
		s.jobs = "*"
		list = append(list, s)
	}
	return list
}

// covered reports whether later entries apply to every job that an entry applies to.
func covered(e *entry, later []entry) bool {
	var by []string // patterns of entries that are for all that have e's labels
	for i := range later {
		if l := &later[i]; l.labels.Empty() || l.labels.String() == e.labels.String() {
			if len(l.jobs) == 0 {
				return true
			}
			by = append(by, l.jobs...)
		}
	}
	return slices.Contains(by, "*") || (len(e.jobs) > 0 && !slices.ContainsFunc(e.jobs, func(p string) bool { return !slices.Contains(by, p) }))
}

// scopeOf are the jobs of an entry without those of later ones.
func scopeOf(e *entry, later []entry, rules Rules) scope {
	s := scope{jobs: strings.Join(e.jobs, ", "), only: e.labels.Matchers(), rules: rules}
	if !e.labels.Empty() {
		s.jobs = strings.TrimSpace(s.jobs + " {" + e.labels.String() + "}")
	}
	var names []string
	for _, l := range later {
		if l.labels.Empty() {
			names = append(names, l.jobs...)
			continue
		}
		s.without = append(s.without, strings.TrimPrefix(selector(l.jobs, nil)+", ", ", ")+l.labels.Matchers())
	}
	s.selector = selector(e.jobs, names)
	return s
}

// selector returns label matchers for jobs that match one of jobs and none of without.
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
