package cluster

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// Histories finds what ran on all hosts: in the store of this host if all share it,
// else in those of all hosts, which are asked at once. It is safe for concurrent use.
type Histories struct {
	Store history.Store
	Peers func() []Peer
	// Get asks a peer for a path, and reads its answer.
	Get func(ctx context.Context, p Peer, path string, into any) error
}

// Found is a page over all hosts.
type Found[T any] struct {
	history.Page[T]
	// Silent are hosts that have not answered, and why: what they have is missing.
	Silent []string `json:"silent,omitempty"`
}

// The paths under which peers answer for their own stores.
const (
	PathFires   = "/v1/peer/fires"
	PathRuns    = "/v1/peer/runs"
	PathEvents  = "/v1/peer/events"
	PathLines   = "/v1/peer/logs"
	PathChanges = "/v1/peer/audit"
	// PathStart has a peer join a job again: ?job=NAME.
	PathStart = "/v1/peer/start"
	// PathDelta is where a peer says what has changed on it.
	PathDelta = "/v1/peer/delta"
)

// DeltaPath is PathDelta with a question.
func DeltaPath(epoch string, since uint64) string {
	return PathDelta + "?" + url.Values{"epoch": {epoch}, "since": {strconv.FormatUint(since, 10)}}.Encode()
}

// kind is how records of a kind are found and put in order.
type kind[T any] struct {
	path string
	own  func(context.Context, history.Filter) (history.Page[T], error)
	at   func(*T) time.Time
	// id tells records of one time apart.
	id func(*T) string
	// join, if not nil, puts two records of the same id together.
	join func(a, b T) T
}

// Fires finds fires, each over all hosts.
func (h *Histories) Fires(ctx context.Context, f history.Filter) (Found[history.Fire], error) {
	return find(ctx, h, f, kind[history.Fire]{PathFires, h.Store.Fires, func(r *history.Fire) time.Time { return r.Begun },
		func(r *history.Fire) string {
			k := r.Key() // hosts see a trigger at different times
			return k.Job + "/" + strconv.FormatInt(k.Instant, 10) + "/" + strconv.FormatInt(k.Trigger, 10)
		}, joinFires})
}

// Runs finds runs.
func (h *Histories) Runs(ctx context.Context, f history.Filter) (Found[history.Run], error) {
	return find(ctx, h, f, kind[history.Run]{PathRuns, h.Store.Runs, func(r *history.Run) time.Time { return r.Begun },
		func(r *history.Run) string { return r.ID + " " + r.Host }, nil})
}

// Events finds events.
func (h *Histories) Events(ctx context.Context, f history.Filter) (Found[event.Event], error) {
	return find(ctx, h, f, kind[event.Event]{PathEvents, h.Store.Events, func(r *event.Event) time.Time { return r.Time },
		func(r *event.Event) string { return r.Host + " " + string(r.Kind) + " " + r.RunID }, nil})
}

// Lines finds lines that guests logged.
func (h *Histories) Lines(ctx context.Context, f history.Filter) (Found[history.Line], error) {
	return find(ctx, h, f, kind[history.Line]{PathLines, h.Store.Lines, func(r *history.Line) time.Time { return r.Time },
		func(r *history.Line) string { return r.Host + " " + r.RunID }, nil})
}

// Changes finds changes.
func (h *Histories) Changes(ctx context.Context, f history.Filter) (Found[history.Change], error) {
	return find(ctx, h, f, kind[history.Change]{PathChanges, h.Store.Changes, func(r *history.Change) time.Time { return r.Time },
		func(r *history.Change) string { return r.Who + " " + r.What + " " + r.Job }, nil})
}

// place is where a page over several hosts goes on: after so many records of a time.
// As text it is TIME.COUNT, the time in nanoseconds of Unix.
type place struct {
	at    time.Time
	count int
}

func (p place) String() string {
	return strconv.FormatInt(p.at.UnixNano(), 10) + "." + strconv.Itoa(p.count)
}

func parsePlace(text string) (place, error) {
	at, count, _ := strings.Cut(text, ".")
	nanos, err1 := strconv.ParseInt(at, 10, 64)
	n, err2 := strconv.Atoi(count)
	if err1 != nil || err2 != nil || n < 1 || n > history.MaxLimit {
		return place{}, &QueryError{"after", text, "the next of a page of the same list"}
	}
	return place{time.Unix(0, nanos), n}, nil
}

// find asks this host's store, or those of all hosts.
func find[T any](ctx context.Context, h *Histories, f history.Filter, k kind[T]) (found Found[T], err error) {
	if h.Store.State().Shared || (len(h.Peers()) == 0 && !strings.Contains(f.After, ".")) {
		found.Page, err = k.own(ctx, f)
		return found, err
	}
	limit := cmp.Or(f.Limit, history.DefaultLimit)
	var from place
	if f.After != "" {
		if from, err = parsePlace(f.After); err != nil {
			return found, err
		}
		if f.Oldest {
			f.From = from.at
		} else {
			f.To = from.at.Add(1)
		}
	}
	f.After, f.Limit = "", min(limit+from.count, history.MaxLimit)
	pages, silent, err := askAll(ctx, h, f, k)
	if err != nil {
		return found, err
	}
	found.Silent = silent
	found.Records, found.Next = combine(pages, from, limit, f.Oldest, k)
	return found, nil
}

// askAll asks this host's store and all peers at once.
func askAll[T any](ctx context.Context, h *Histories, f history.Filter, k kind[T]) (pages []history.Page[T], silent []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	peers := h.Peers()
	pages = make([]history.Page[T], len(peers)+1)
	problems := make([]error, len(peers))
	var asked sync.WaitGroup
	for n, p := range peers {
		asked.Go(func() { problems[n] = h.Get(ctx, p, k.path+"?"+Query(f).Encode(), &pages[n]) })
	}
	pages[len(peers)], err = k.own(ctx, f)
	asked.Wait()
	for n, p := range peers {
		if problems[n] != nil {
			pages[n] = history.Page[T]{}
			silent = append(silent, cmp.Or(p.API, p.ServerIP)+": "+problems[n].Error())
		}
	}
	return pages, silent, err
}

// combine makes one page of those of several hosts.
func combine[T any](pages []history.Page[T], from place, limit int, oldest bool, k kind[T]) (records []T, next string) {
	more := false
	for _, p := range pages {
		records = append(records, p.Records...)
		more = more || p.Next != ""
	}
	slices.SortStableFunc(records, func(a, b T) int {
		order := cmp.Or(k.at(&b).Compare(k.at(&a)), strings.Compare(k.id(&a), k.id(&b)))
		if oldest {
			order = cmp.Or(k.at(&a).Compare(k.at(&b)), strings.Compare(k.id(&a), k.id(&b)))
		}
		return order
	})
	if k.join != nil {
		records = joined(records, k)
	}
	skip := 0
	for skip < len(records) && skip < from.count && k.at(&records[skip]).Equal(from.at) {
		skip++
	}
	records = records[skip:]
	if len(records) > limit {
		records, more = records[:limit], true
	}
	if !more || len(records) == 0 {
		return records, ""
	}
	last := place{at: k.at(&records[len(records)-1])}
	for _, r := range slices.Backward(records) {
		if !k.at(&r).Equal(last.at) {
			break
		}
		last.count++
	}
	if last.at.Equal(from.at) {
		last.count += skip
	}
	return records, last.String()
}

// joined puts records of the same id together, at the place of the first.
func joined[T any](records []T, k kind[T]) []T {
	at := make(map[string]int)
	var out []T
	for _, r := range records {
		id := k.id(&r)
		if n, known := at[id]; known {
			out[n] = k.join(out[n], r)
			continue
		}
		at[id] = len(out)
		out = append(out, r)
	}
	return out
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
	return q
}

// ParseQuery reads a filter from the query of a URL. Errors name the parameter.
func ParseQuery(q url.Values) (f history.Filter, err error) {
	r := queryReader{q: q}
	f = history.Filter{Jobs: q["job"], Host: q.Get("host"), Run: q.Get("run"), Text: q.Get("text"), After: q.Get("after")}
	if q.Has("item") {
		n := int(r.number("item", 0, 1<<31))
		f.Item = &n
	}
	f.Instant, f.From, f.To = r.time("instant"), r.time("from"), r.time("to")
	f.Trigger = r.number("trigger", 0, 1<<62)
	f.Level = int(r.number("level", 0, 100))
	f.Limit = int(r.number("limit", 1, history.MaxLimit))
	f.Failed, f.Oldest = r.flag("failed"), r.flag("oldest")
	for _, o := range q["outcome"] {
		f.Outcomes = append(f.Outcomes, abi.Outcome(strings.ToUpper(o)))
	}
	for _, k := range q["kind"] {
		f.Kinds = append(f.Kinds, event.Kind(k))
	}
	return f, r.err
}

// QueryError says that a parameter of a URL is wrong.
type QueryError struct{ Name, Found, Expected string }

func (e *QueryError) Error() string {
	return fmt.Sprintf("%s: found %q, expected %s", e.Name, e.Found, e.Expected)
}

// queryReader reads parameters; err is the first that was wrong.
type queryReader struct {
	q   url.Values
	err error
}

func (r *queryReader) wrong(name, expected string) {
	if r.err == nil {
		r.err = &QueryError{name, r.q.Get(name), expected}
	}
}

func (r *queryReader) number(name string, least, most int64) int64 {
	if !r.q.Has(name) {
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
	switch r.q.Get(name) {
	case "", "false":
		return false
	case "true":
		return true
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
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return time.Now().Add(-d)
	}
	r.wrong(name, "a time such as 2026-11-23T03:00:00Z, or how long ago, such as 90m")
	return time.Time{}
}

// joinFires puts what two hosts know of one fire together.
func joinFires(a, b history.Fire) history.Fire {
	a.Hosts = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(a.Hosts), b.Hosts...))))
	a.Items = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(a.Items), b.Items...))))
	a.Total = max(a.Total, b.Total)
	a.Succeeded, a.Failed, a.Running = a.Succeeded+b.Succeeded, a.Failed+b.Failed, a.Running+b.Running
	if b.Begun.Before(a.Begun) {
		a.Begun = b.Begun
	}
	a.Ended = later(a.Ended, b.Ended)
	if a.Running > 0 {
		a.Ended = time.Time{}
	}
	a.Duration, a.Lag = max(a.Duration, b.Duration), max(a.Lag, b.Lag)
	if a.Outcome == "" || failed(b.Outcome) {
		a.Outcome, a.Message = cmp.Or(b.Outcome, a.Outcome), cmp.Or(b.Message, a.Message)
	}
	return a
}
