package console

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/event/operation"
)

// alertsView are alerts and silences.
type alertsView struct {
	P *page
	*service.Alerts
	// Firing are the current alerts, Over the recently ended ones, by cause, Quiet the silences: the first
	// mostAlerts of each. More counts those that are left out of each list. Going counts the current alerts.
	Firing, Over                  []alertRow
	Going                         int
	Quiet                         []silenceRow
	MoreFiring, MoreOver, MoreOff int
	// Nowhere: no host has a file of alerts. Without are the hosts that have none while others do.
	Nowhere bool
	Without []string
	// Problems are what keeps hosts from judging or sending as they should.
	Problems []string
	// Form is there for who may silence something.
	Form *silenceForm
	// Routes are there for who may have them tried.
	Routes []routeRow
}

// alertRow is a line of alerts of one cause: the first one, without its item if there are several. N is how
// many there are.
type alertRow struct {
	P *page
	service.Alert
	N int
	// Items are those that several alerts are about, as ranges; All are the first mostAlerts of these alerts.
	Items    string
	All      []service.Alert
	Messages []messageRow
	// Silence is the address of the form that silences it, empty for who may not.
	Silence string
}

// messageRow is what a receiver of a route has got about a cause: At is when it got the newest message, zero if
// none, and Unsent counts the alerts that it got no message about.
type messageRow struct {
	To     alert.Target
	At     time.Time
	Unsent int
}

// silenceRow is a silence in a line.
type silenceRow struct {
	alert.Silence
	Acts []act
}

// routeRow is a route in a line.
type routeRow struct {
	alert.Route
	Acts []act
}

// silenceForm is the form that adds a silence.
type silenceForm struct {
	service.WantedSilence
	AllRules []alert.Rule
	// Problems are what is wrong, by the fields jobs, labels, for, rules and why; Problem is about none.
	Problems map[string]string
	Problem  string
}

// fieldProblem is what is wrong with a field; nothing if Problem is empty.
type fieldProblem struct{ Name, Problem string }

// At is what is wrong with a field.
func (f *silenceForm) At(field string) fieldProblem { return fieldProblem{field, f.Problems[field]} }

// Has reports whether the form has a rule ticked.
func (f *silenceForm) Has(r alert.Rule) bool { return slices.Contains(f.Rules, string(r)) }

const (
	// mostAlerts bounds each list of the page.
	mostAlerts = 200
	// usualSilence is the default duration of a silence.
	usualSilence = "2h"
)

func alertsPage(ctx context.Context, c *Console, r *http.Request, p *page) (view, error) {
	p.Live = liveAll
	q := r.URL.Query()
	form := silenceForm{WantedSilence: service.WantedSilence{Jobs: q.Get("jobs"), Labels: q.Get("labels"), Rules: q["rule"], For: usualSilence}}
	return withAlerts(ctx, c.o.Service.Alerting(), p, form)
}

// silencePage adds a silence, or shows the form again with what is wrong.
func silencePage(ctx context.Context, c *Console, r *http.Request, p *page) (view, error) {
	if err := r.ParseForm(); err != nil {
		return view{}, &formError{"form", err.Error()}
	}
	s := c.o.Service.Alerting()
	form := silenceForm{WantedSilence: service.WantedSilence{Jobs: strings.TrimSpace(r.PostForm.Get("jobs")), Labels: strings.TrimSpace(r.PostForm.Get("labels")), Rules: r.PostForm["rule"],
		For: strings.TrimSpace(r.PostForm.Get("for")), Why: reasonOf(r)}, Problems: make(map[string]string)}
	made, err := s.Silence(ctx, form.WantedSilence)
	var input *service.InputError
	var clash *service.ConflictError
	switch {
	case errors.As(err, &input):
		p.status = http.StatusUnprocessableEntity
		form.Problems[strings.TrimPrefix(input.Where, "body.")] = input.Problem
	case errors.As(err, &clash):
		p.status = http.StatusConflict
		form.Problem = clash.What
	case err != nil:
		return view{}, err
	default:
		return view{"", redirect{"/alerts", p.T("done.silence", made.Jobs, p.At(made.Until).Text)}}, nil
	}
	return withAlerts(ctx, s, p, form)
}

// withAlerts is the page, with a form.
func withAlerts(ctx context.Context, s service.Alerting, p *page, form silenceForm) (view, error) {
	p.Nav, p.Title = "alerts", p.T("nav.alerts")
	list, err := s.List(ctx)
	if err != nil {
		return view{}, err
	}
	p.Alerts = strconv.FormatInt(list.Version, 10)
	if list.Problem != "" {
		p.Banners = append(p.Banners, banner{"stale", p.T("alerts.stale", p.At(list.Read).Text, list.Problem)})
	}
	v := alertsView{P: p, Alerts: list, Nowhere: !list.Here && len(list.Judges) == 0}
	slices.SortStableFunc(list.Alerts, func(a, b service.Alert) int { return b.Since.Compare(a.Since) })
	for _, cause := range service.Causes(list.Alerts) {
		to, more := &v.Firing, &v.MoreFiring
		if cause.First().Firing() {
			v.Going += cause.Count()
		} else {
			to, more = &v.Over, &v.MoreOver
		}
		if len(*to) == mostAlerts {
			*more++
			continue
		}
		*to = append(*to, newAlertRow(ctx, s, p, cause))
	}
	slices.SortStableFunc(list.Silences, func(a, b alert.Silence) int { return a.Until.Compare(b.Until) })
	v.MoreOff = max(0, len(list.Silences)-mostAlerts)
	for _, one := range list.Silences[:len(list.Silences)-v.MoreOff] {
		row := silenceRow{Silence: one}
		if s.MaySilence(ctx, one.Jobs) {
			row.Acts = []act{p.act(one.Jobs, "unsilence", "/alerts/unsilence", field{"id", one.ID})}
		}
		v.Quiet = append(v.Quiet, row)
	}
	v.Without, v.Problems = list.Without(p.hosts), service.AlertProblems(p.hosts)
	if auth.From(ctx).Any(operation.Admin) {
		form.AllRules, v.Form = alert.AllRules(), &form
	}
	for _, r := range s.Routes(ctx) {
		v.Routes = append(v.Routes, routeRow{r, []act{p.act(r.Name, "alerts.test", "/alerts/test", field{"route", r.Name})}})
	}
	return view{"alerts", v}, nil
}

// newAlertRow makes a line of the alerts of a cause.
func newAlertRow(ctx context.Context, s service.Alerting, p *page, c alert.Cause[service.Alert]) alertRow {
	row := alertRow{P: p, Alert: c.Alerts[0], N: c.Count()}
	if row.N > 1 {
		row.Items, row.All = p.Items(c.Items()), c.Alerts[:min(row.N, mostAlerts)]
		row.Job, row.Item, row.Resolved = c.Job(), nil, c.Ended()
	}
	var targets, others []alert.Target
	for _, a := range c.Alerts {
		for _, to := range a.Targets {
			if !slices.Contains(targets, to) {
				targets = append(targets, to)
			}
		}
		others = slices.AppendSeq(others, maps.Keys(a.Sent))
	}
	slices.Sort(others)
	for _, to := range others {
		if !slices.Contains(targets, to) { // by another file
			targets = append(targets, to)
		}
	}
	for _, to := range targets {
		m := messageRow{To: to}
		for _, a := range c.Alerts {
			if sent, took := a.Sent[to]; !took {
				m.Unsent++
			} else if sent.At.After(m.At) {
				m.At = sent.At
			}
		}
		row.Messages = append(row.Messages, m)
	}
	jobs := cluster.Literal(row.Job)
	if row.Job == "" {
		jobs = "*"
	}
	if s.MaySilence(ctx, jobs) {
		row.Silence = p.Link("/alerts", "jobs", jobs, "rule", row.Rule) + "#silence"
	}
	return row
}

// actOnAlerts ends a silence, or sends a test message.
func actOnAlerts(ctx context.Context, s *service.Service, r *http.Request, p *page) (string, error) {
	switch r.PathValue("action") {
	case "unsilence":
		if err := s.Alerting().Unsilence(ctx, r.PostForm.Get("id"), reasonOf(r)); err != nil {
			return "", err
		}
		return p.T("done.unsilence"), nil
	case "test":
		return tryRoute(ctx, s, r, p)
	}
	return "", &service.NotFoundError{What: p.T("problem.address", r.URL.Path)}
}

// tryRoute sends a test message, and says who has taken it and who has not.
func tryRoute(ctx context.Context, s *service.Service, r *http.Request, p *page) (string, error) {
	tried, err := s.Alerting().Test(ctx, r.PostForm.Get("route"), reasonOf(r))
	if err != nil {
		return "", err
	}
	var taken []string
	var failed []error
	for _, t := range tried {
		if t.Error == "" {
			taken = append(taken, string(t.Target))
		} else {
			failed = append(failed, errors.New(p.T("alerts.test.failed", t.Target, t.Error)))
		}
	}
	done := ""
	if len(taken) > 0 {
		done = p.T("done.alerts.test", p.Names(taken))
	}
	return done, errors.Join(failed...)
}
