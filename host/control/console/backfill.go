package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/internal/text/times"
)

// mostBackfilled bounds the instants that a plan shows: of more, those at the beginning and the end.
const mostBackfilled = 40

// backfillView is the page on which a backfill begins: a form, then what the range would run, then the button.
type backfillView struct {
	P    *page
	Name string
	// From and To are the range as the form has it; Items, Every and Overlap are as they were typed.
	From, To, Items, Every, Overlap string
	// Overlaps are the values that Overlap may have.
	Overlaps []string
	// Problem says what is wrong with the range; empty if nothing is, or none was given.
	Problem string
	// Plan is what the range would run; nil without one, and while a backfill goes on.
	Plan *planned
	// Now is the backfill that goes on, Last the last that has ended; nil if there is none.
	Now, Last *engine.BackfillStatus
	// Cancel ends the backfill that goes on.
	Cancel []act
	// Operable: the reader may begin one.
	Operable bool
}

// backfilling is a backfill that goes on, in a part of a page.
type backfilling struct {
	P *page
	*engine.BackfillStatus
}

// Backfilling is the part of a page that shows how far a backfill is. It is called by templates.
func (p *page) Backfilling(s *engine.BackfillStatus) backfilling { return backfilling{p, s} }

// planned is what a range would run.
type planned struct {
	// Fields are what the button sends: the range that the plan was made from.
	Fields []field
	Rows   []plannedRow
	// Instants, Items and Least are how many there are, how many items run for each, and the least time that all take.
	Instants, Items  int
	Least            time.Duration
	OwnZone, Reading string
}

// plannedRow is an instant of a plan, or, with More, how many are left out.
type plannedRow struct {
	N, More int
	instants
}

// wished is the backfill that a form asks for; a time without a zone is one of the page's. ok is false if the form is empty.
func (p *page) wished(form url.Values) (of service.Backfill, ok bool, err error) {
	of = service.Backfill{Items: form.Get("items"), Overlap: form.Get("overlap")}
	for _, t := range []struct {
		name string
		to   *time.Time
	}{{"from", &of.From}, {"to", &of.To}} {
		text := form.Get(t.name)
		if text == "" {
			continue
		}
		ok = true
		if *t.to, err = times.Instant(text, p.Now.In(p.Zone), times.Back); err != nil {
			return of, ok, &formError{t.name, err.Error()}
		}
	}
	if text := form.Get("every"); text != "" {
		seconds, err := strconv.Atoi(text)
		if most := int(tree.MaxBackfillEvery / time.Second); err != nil || seconds < 1 || seconds > most {
			return of, ok, &formError{"every", fmt.Sprintf("found %q, expected a number of seconds from 1 to %d", jobconfig.Clip(text), most)}
		}
		of.Every = time.Duration(seconds) * time.Second
	}
	return of, ok, nil
}

// backfillPage asks the registry: for the job's backfills, and with a range for nothing more.
func backfillPage(ctx context.Context, c *Console, r *http.Request, p *page) (view, error) {
	name := r.PathValue("job")
	if err := c.below(ctx, p, name, "now"); err != nil {
		return view{}, err
	}
	p.Title = p.T("backfill.title", name)
	v := backfillView{P: p, Name: name, Operable: p.mayAct("backfill", name), Items: p.Value("items"), Every: p.Value("every"), Overlap: p.Value("overlap"),
		Overlaps: []string{string(jobconfig.OverlapQueueAll), string(jobconfig.OverlapSkip)}}
	of, given, problem := p.wished(p.Query)
	var wish *service.Backfill
	if given && problem == nil {
		wish = &of
	}
	all, err := c.o.Service.Backfills(ctx, name, wish)
	if kind := kindOf(err); wish != nil && err != nil && (kind.name == "input" || kind.name == "conflict") {
		problem, p.status = err, kind.status
		all, err = c.o.Service.Backfills(ctx, name, nil)
	}
	if err != nil {
		return view{}, err
	}
	v.Now, v.Last = all.Now, all.Last
	for _, t := range []struct {
		name string
		at   time.Time
		to   *string
	}{{"from", of.From, &v.From}, {"to", of.To, &v.To}} {
		if !t.at.IsZero() {
			*t.to = t.at.In(p.Zone).Format(explainForm)
		}
	}
	if problem != nil {
		v.Problem, p.status = plainly(problem), max(p.status, http.StatusBadRequest)
	}
	switch {
	case v.Now != nil:
		p.Live = liveAll
		if p.mayAct("cancelBackfill", name) {
			v.Cancel = []act{p.act(name, "cancelBackfill", jobPath(name, "cancelBackfill"))}
		}
	case all.Plan != nil:
		v.Plan = p.planned(all.Plan, of)
	}
	return view{"backfill", v}, nil
}

// plainly is an error without the place in a request that the API names.
func plainly(err error) string {
	var input *service.InputError
	if errors.As(err, &input) {
		return input.Problem
	}
	return err.Error()
}

// planned is the table of a plan.
func (p *page) planned(plan *service.BackfillPlan, of service.Backfill) *planned {
	n := len(plan.Instants)
	out := &planned{Instants: n, Items: plan.Items, Least: time.Duration(n-1) * plan.Every, OwnZone: plan.Zone}
	for _, f := range []field{
		{"from", of.From.UTC().Format(time.RFC3339Nano)}, {"to", of.To.UTC().Format(time.RFC3339Nano)}, {"items", of.Items},
		{"every", strconv.FormatInt(int64(plan.Every/time.Second), 10)}, {"overlap", plan.Overlap},
	} {
		if f.Value != "" {
			out.Fields = append(out.Fields, f)
		}
	}
	list, reading := p.instants(plan.Instants, plan.Zone)
	out.Reading = reading
	left := n - mostBackfilled
	for i, at := range list {
		switch {
		case left > 0 && i == mostBackfilled/2:
			out.Rows = append(out.Rows, plannedRow{More: left})
		case left > 0 && i > mostBackfilled/2 && i < mostBackfilled/2+left:
		default:
			out.Rows = append(out.Rows, plannedRow{N: i + 1, instants: at})
		}
	}
	return out
}

// startBackfill begins the backfill that a form asks for.
func startBackfill(ctx context.Context, s *service.Service, job string, r *http.Request, p *page) (string, error) {
	of, _, err := p.wished(r.PostForm)
	if err != nil {
		return "", err
	}
	plan, err := s.StartBackfill(ctx, job, of, reasonOf(r))
	if err != nil {
		return "", err
	}
	return p.T("done.backfill", job, len(plan.Instants)), nil
}
