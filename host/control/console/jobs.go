package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/engine"
)

// perPage is how many jobs, fires, runs or lines a page has, unless its address says so.
const perPage = 100

// jobsView is the list of jobs.
type jobsView struct {
	P *page
	*service.Jobs
	Rows     []jobRow
	Healths  []tile
	All      int // jobs, whatever the filter says
	States   []engine.JobState
	Outcomes []abi.Outcome
	Filtered bool
	// Operable: the reader may operate some of the jobs that are shown.
	Operable bool
	Columns  []column
	Hosts    []cluster.Host
}

// column is the head of a column by which a list can be sorted.
type column struct {
	Text, Href string
	// Order is ascending, descending or none, as aria-sort has it.
	Order string
}

// jobFilter reads the filter of the list of jobs, as the API does.
func jobFilter(q url.Values) (service.JobFilter, error) {
	f := service.JobFilter{Text: q.Get("q"), Labels: q["label"], Host: q.Get("host"), Sort: q.Get("sort"), After: q.Get("after"), Limit: perPage}
	for _, p := range q["job"] {
		if p != "" {
			f.Jobs = append(f.Jobs, p)
		}
	}
	for _, h := range q["health"] {
		if h != "" {
			f.Health = append(f.Health, cluster.Health(h))
		}
	}
	for _, s := range q["state"] {
		if s != "" {
			f.State = append(f.State, engine.JobState(s))
		}
	}
	for _, o := range q["outcome"] {
		if o != "" {
			f.Outcome = append(f.Outcome, abi.Outcome(strings.ToUpper(o)))
		}
	}
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return f, &cluster.QueryError{Name: "limit", Found: text, Expected: "a number"}
		}
		f.Limit = n
	}
	return f, nil
}

func jobsPage(ctx context.Context, c *Console, r *http.Request, p *page) (view, error) {
	p.Nav, p.Title = "jobs", p.T("nav.jobs")
	p.Live = liveAll
	f, err := jobFilter(r.URL.Query())
	if err != nil {
		return view{}, err
	}
	if f.Sort == "" {
		f.Sort = "health" // what needs somebody is first
	}
	jobs, err := c.o.Service.Jobs(ctx, f)
	if err != nil {
		return view{}, err
	}
	v := jobsView{P: p, Jobs: jobs, Rows: p.rows(jobs.Records), Hosts: p.hosts, Outcomes: abi.Outcomes(),
		States:   cluster.States(),
		Filtered: f.Text != "" || len(f.Jobs)+len(f.Health)+len(f.State)+len(f.Outcome) > 0 || f.Host != "" || strings.Join(f.Labels, "") != ""}
	for _, h := range cluster.Healths() {
		v.Healths = append(v.Healths, tile{h, jobs.Counts[h]})
		v.All += jobs.Counts[h]
	}
	v.Operable = slices.ContainsFunc(v.Rows, jobRow.Operable)
	for _, by := range []string{"health", "name", "next", "last", "duration"} {
		v.Columns = append(v.Columns, p.column(by, f.Sort))
	}
	return view{"jobs", v}, nil
}

// column is the head of a column; a column that the list is sorted by turns it around.
func (p *page) column(by, sorted string) column {
	col := column{Text: p.T("jobs.column." + by), Order: "none"}
	next := by
	switch sorted {
	case by:
		next, col.Order = "-"+by, "ascending"
	case "-" + by:
		col.Order = "descending"
	}
	col.Href = p.With("sort", next, "after", "")
	return col
}
