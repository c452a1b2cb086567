package alert

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Prometheus are the rules as those of Prometheus, in the form of its rule files.
func (f *File) Prometheus(source string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Made by 'wasmjob alert export' from %s.\ngroups:\n  - name: wasmjob-alerts\n    rules:\n", source)
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
					expr := strings.ReplaceAll(set.metric.expr, "SEL", s.selector)
					expr = strings.ReplaceAll(expr, "LIMIT", strconv.FormatFloat(limit, 'g', -1, 64))
					write(r, set.metric.name, s.jobs, strings.ReplaceAll(expr, "{, ", "{"), set.metric.summary)
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
