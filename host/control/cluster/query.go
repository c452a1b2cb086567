package cluster

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/labels"
	"github.com/wasmjob/wasmjob/internal/text/times"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// The paths under which peers answer for their own stores.
const (
	PathFires   = "/v1/peer/fires"
	PathRuns    = "/v1/peer/runs"
	PathEvents  = "/v1/peer/events"
	PathLines   = "/v1/peer/logs"
	PathChanges = "/v1/peer/audit"
	// PathParts is where a peer says what it knows of some fires, or of some runs: run=ID. A host
	// of an earlier version answers that it knows none of the runs.
	PathParts = "/v1/peer/parts"
	// PathStart has a peer join a job again: ?job=NAME. PathStartAll is for all that an operator
	// stopped there: a host of an earlier version does not know it.
	PathStart    = "/v1/peer/start"
	PathStartAll = "/v1/peer/start-all"
	// PathDelta is where a peer says what has changed on it.
	PathDelta = "/v1/peer/delta"
)

// DeltaPath is PathDelta with a question.
func DeltaPath(epoch string, since uint64) string {
	return PathDelta + "?" + url.Values{"epoch": {epoch}, "since": {strconv.FormatUint(since, 10)}}.Encode()
}

// StartPath is PathStart of a job, or with "" PathStartAll.
func StartPath(job string) string {
	if job == "" {
		return PathStartAll
	}
	return PathStart + "?" + url.Values{"job": {job}}.Encode()
}

// Query is a filter as the query of a URL, as the API and the console take it.
func Query(f history.Filter) url.Values {
	q := url.Values{}
	put := func(name, value string) {
		if value != "" {
			q.Add(name, value)
		}
	}
	for _, p := range f.Jobs {
		put("job", p)
	}
	put("label", f.Labels.String())
	put("host", f.Host)
	if f.Item != nil {
		put("item", strconv.Itoa(*f.Item))
	}
	put("run", f.Run)
	if !f.Instant.IsZero() {
		put("instant", f.Instant.Format(time.RFC3339Nano))
	}
	if f.Trigger != 0 {
		put("trigger", strconv.FormatInt(f.Trigger, 10))
	}
	if f.Failed {
		put("failed", "true")
	}
	if f.Running {
		put("running", "true")
	}
	for _, o := range f.Outcomes {
		put("outcome", string(o))
	}
	for _, k := range f.Kinds {
		put("kind", string(k))
	}
	if f.Level != 0 {
		put("level", strconv.Itoa(f.Level))
	}
	put("text", f.Text)
	put("who", f.Who)
	for _, w := range f.What {
		put("what", w)
	}
	for name, t := range map[string]time.Time{"from": f.From, "to": f.To} {
		if !t.IsZero() {
			put(name, t.Format(time.RFC3339Nano))
		}
	}
	if f.Limit != 0 {
		put("limit", strconv.Itoa(f.Limit))
	}
	put("after", f.After)
	if f.Oldest {
		put("oldest", "true")
	}
	if f.Unwritten {
		put("unwritten", "true")
	}
	return q
}

// ParseQuery reads a filter from the query of a URL. An empty value counts as missing: forms send it. The error
// joins a [QueryError] for each wrong parameter.
func ParseQuery(q url.Values) (f history.Filter, err error) {
	r := queryReader{q: q}
	f = history.Filter{Jobs: r.texts("job"), Host: q.Get("host"), Run: q.Get("run"), Text: q.Get("text"), After: q.Get("after")}
	if f.Labels, err = labels.ParseSelector(q["label"]...); err != nil {
		r.errs = append(r.errs, &QueryError{"label", words.Clip(strings.Join(q["label"], ",")), "conditions such as " + labels.Example + ": " + err.Error()})
	}
	if q.Get("item") != "" {
		n := int(r.number("item", 0, math.MaxInt32))
		f.Item = &n
	}
	f.Instant, f.From, f.To = r.time("instant"), r.time("from"), r.time("to")
	f.Trigger = r.number("trigger", 0, math.MaxInt64)
	f.Level = int(r.number("level", -100, 100))
	f.Limit = int(r.number("limit", 1, history.MaxLimit))
	f.Failed, f.Running, f.Oldest, f.Unwritten = r.flag("failed"), r.flag("running"), r.flag("oldest"), r.flag("unwritten")
	f.Outcomes = r.outcomes()
	f.Who, f.What = q.Get("who"), r.texts("what")
	for _, k := range r.texts("kind") {
		f.Kinds = append(f.Kinds, event.Kind(k))
	}
	return f, errors.Join(r.errs...)
}

// QueryError says that a parameter of a URL is wrong.
type QueryError struct{ Name, Found, Expected string }

func (e *QueryError) Error() string {
	return fmt.Sprintf("%s: found %q, expected %s", e.Name, e.Found, e.Expected)
}

// queryReader reads parameters; errs are those that were wrong.
type queryReader struct {
	q    url.Values
	errs []error
}

func (r *queryReader) wrong(name, expected string) {
	r.errs = append(r.errs, &QueryError{name, r.q.Get(name), expected})
}

// texts are all values of a parameter.
func (r *queryReader) texts(name string) (list []string) {
	for _, text := range r.q[name] {
		if text != "" {
			list = append(list, text)
		}
	}
	return list
}

// outcomes reads those that records may have, in letters of any case.
func (r *queryReader) outcomes() (list []abi.Outcome) {
	var known []string
	for _, o := range history.Outcomes() {
		known = append(known, string(o))
	}
	for _, text := range r.texts("outcome") {
		name := strings.ToUpper(text)
		if !slices.Contains(known, name) {
			r.errs = append(r.errs, &QueryError{"outcome", words.Clip(text), strings.Join(known, ", ") + words.Suggest(name, known)})
		}
		list = append(list, abi.Outcome(name))
	}
	return list
}

func (r *queryReader) number(name string, least, most int64) int64 {
	if r.q.Get(name) == "" {
		return 0
	}
	n, err := strconv.ParseInt(r.q.Get(name), 10, 64)
	if err != nil || n < least || n > most {
		r.wrong(name, fmt.Sprintf("a number from %d to %d", least, most))
		return 0
	}
	return n
}

func (r *queryReader) flag(name string) bool {
	if r.q.Get(name) == "" {
		return false
	}
	if is, err := strconv.ParseBool(r.q.Get(name)); err == nil { // as the API reads others
		return is
	}
	r.wrong(name, "true or false")
	return false
}

// time reads a time, or a duration before now: 90m, 24h.
func (r *queryReader) time(name string) time.Time {
	text := r.q.Get(name)
	if text == "" {
		return time.Time{}
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t
	}
	if d, err := times.Duration(text); err == nil && d >= 0 {
		return time.Now().Add(-d)
	}
	r.wrong(name, "a time such as 2026-11-23T03:00:00Z, or how long ago, such as 90m or 7d")
	return time.Time{}
}
