package console

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/internal/labels"
)

// address is that of a page, from which links to others are made. Templates call its
// methods.
type address struct {
	Path  string
	Query url.Values
}

// With is the page's own address with other values of its query; no value takes one away.
func (a *address) With(pairs ...any) string {
	q := make(url.Values)
	for name, values := range a.Query {
		q[name] = slices.Clone(values)
	}
	for n := 0; n+1 < len(pairs); n += 2 {
		q.Set(fmt.Sprint(pairs[n]), fmt.Sprint(pairs[n+1]))
	}
	for name, values := range q {
		if len(values) == 0 || values[0] == "" {
			delete(q, name)
		}
	}
	if len(q) == 0 {
		return a.Path
	}
	return a.Path + "?" + q.Encode()
}

// Self is the page's own address.
func (a *address) Self() string { return a.With() }

// Sister is the address of another page with the same query.
func (a *address) Sister(path string) string {
	q := make(url.Values)
	for name, values := range a.Query {
		if name != "after" && len(values) > 0 && values[0] != "" {
			q[name] = values
		}
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// Value is the first value of a parameter of the query.
func (a *address) Value(name string) string { return a.Query.Get(name) }

// Has reports whether the query has a parameter with that value.
func (a *address) Has(name string, value any) bool {
	return slices.Contains(a.Query[name], fmt.Sprint(value))
}

// Job is the address of a job's page, or with parts of one below it.
func (a *address) Job(name string, parts ...string) string { return jobPath(name, parts...) }

// Fire is the address of a fire's page.
func (a *address) Fire(job string, instant time.Time, trigger int64) string {
	q := url.Values{"instant": {instant.UTC().Format(time.RFC3339Nano)}}
	if trigger != 0 {
		q.Set("trigger", strconv.FormatInt(trigger, 10))
	}
	return jobPath(job, "fire") + "?" + q.Encode()
}

// Triggered is the address of the fires of a trigger, which may wait.
func (a *address) Triggered(job string, trigger int64) string {
	return a.Link("/fires", "job", a.Pattern(job), "trigger", trigger)
}

// Run is the address of a run's page.
func (a *address) Run(id string) string { return "/run?" + url.Values{"run": {id}}.Encode() }

// Link is an address with a query of names and values in turns; what has no value is
// left out.
func (a *address) Link(path string, pairs ...any) string {
	q := make(url.Values)
	for n := 0; n+1 < len(pairs); n += 2 {
		if value := fmt.Sprint(pairs[n+1]); value != "" {
			q.Add(fmt.Sprint(pairs[n]), value)
		}
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// labelLink is a label of a job, and where the jobs are that have it.
type labelLink struct{ Text, Href string }

// Labels are the labels of a job, by name.
func (a *address) Labels(of labels.Set) (list []labelLink) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		text := name + "=" + of[name]
		list = append(list, labelLink{text, a.Link("/jobs", "label", text)})
	}
	return list
}

// Selector is the selector of labels of the query: all that there are, as one.
func (a *address) Selector() string {
	return strings.Join(slices.DeleteFunc(slices.Clone(a.Query["label"]), func(s string) bool { return s == "" }), ",")
}

// Pattern matches exactly one job's name, for filters.
func (a *address) Pattern(name string) string { return cluster.Literal(name) }

// narrowed reports whether a filter leaves anything out, by other parameters than some.
func (a *address) narrowed(except ...string) bool {
	for name, values := range a.Query {
		if name != "after" && name != "limit" && name != "oldest" && !slices.Contains(except, name) && slices.ContainsFunc(values, func(v string) bool { return v != "" }) {
			return true
		}
	}
	return false
}
