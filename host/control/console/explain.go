package console

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/explain"
	"github.com/wasmjob/wasmjob/internal/text/times"
)

// explanation explains a fire, or one run of it, in sentences.
type explanation struct {
	P         *page
	Verdict   badge
	Sentences []sentence
	// Zone is that of the times in the sentences, When the instant in it.
	Zone, When string
	// Problem says why there is none.
	Problem string
}

// sentence is one of an explanation. Head begins what is said of some items.
type sentence struct {
	P      *page
	Text   string
	Head   bool
	Events []event.Event
}

// explained puts an answer on the page.
func (p *page) explained(a *explain.Answer) explanation {
	zone := a.Zone()
	x := explanation{P: p, Verdict: badge{"outcome-" + verdictClass(a.Verdict), p.Word("verdict", a.Verdict)}, Zone: zone.String()}
	if !a.Instant.IsZero() {
		x.When = a.Instant.In(zone).Format(time.DateTime)
	}
	for _, s := range a.Sentences {
		head := s.Kind == explain.KindBegan || s.Kind == explain.KindNotRun || s.Kind == explain.KindDue
		x.Sentences = append(x.Sentences, sentence{p, p.Line(s.Text), head, s.Events})
	}
	return x
}

// verdictClass is good, bad, cancelled for what is neither, or running.
func verdictClass(v explain.Verdict) string {
	switch v {
	case explain.Ran, explain.NotYetDue, explain.NeverDue:
		return "good"
	case explain.Running, explain.Pending:
		return "running"
	case explain.Coalesced, explain.Disabled, explain.Elsewhere, explain.Unknown, explain.Skipped:
		return "cancelled"
	default:
		return "bad"
	}
}

// explainView is the data of the page that explains a fire of a job.
type explainView struct {
	P       *page
	At      string // as the form's input has it
	Instant time.Time
	explanation
}

// explainForm is how an input of a form has a time with seconds.
const explainForm = "2006-01-02T15:04:05"

func explainPage(ctx context.Context, c *Console, r *http.Request, p *page) (view, error) {
	name := r.PathValue("job")
	p.Title = p.T("explain.title", name)
	q, err := p.question(name)
	if err != nil {
		return view{}, err
	}
	a, err := c.o.Service.Explain(ctx, q)
	if err != nil {
		return view{}, err
	}
	if err := c.frame(ctx, p, name, "explain"); err != nil {
		return view{}, err
	}
	v := explainView{P: p, Instant: a.Instant, explanation: p.explained(a)}
	if !q.At.IsZero() {
		v.At = q.At.In(p.Zone).Format(explainForm)
	}
	return view{"explain", v}, nil
}

// question reads what is asked from the page's address. A time without a zone is one of
// the page's.
func (p *page) question(job string) (explain.Question, error) {
	q := explain.Question{Job: job, Language: p.Lang, Zone: p.zone()}
	if at := p.Value("at"); at != "" {
		var err error
		if q.At, err = times.Instant(at, p.Now.In(p.Zone), times.Back); err != nil {
			return q, &cluster.QueryError{Name: "at", Found: at, Expected: "a time such as 2026-11-23T03:00:00"}
		}
	}
	if item := p.Value("item"); item != "" {
		n, err := strconv.Atoi(item)
		if err != nil || n < 0 {
			return q, &cluster.QueryError{Name: "item", Found: item, Expected: "a number from 0"}
		}
		q.Item = &n
	}
	return q, nil
}

// whyRun says why a run went as it did.
func (c *Console) whyRun(ctx context.Context, p *page, d *service.RunDetail) explanation {
	q, err := service.QuestionOfRun(d.Job, d.ID)
	if err != nil {
		return explanation{P: p, Problem: err.Error()}
	}
	q.Language, q.Zone = p.Lang, p.zone()
	a, err := c.o.Service.Explain(ctx, q)
	if err != nil {
		return explanation{P: p, Problem: err.Error()}
	}
	return p.explained(a)
}

// Why returns the address of the page that explains an instant of a job.
func (a *address) Why(job string, instant time.Time) string {
	return jobPath(job, "explain") + "?" + url.Values{"at": {instant.UTC().Format(time.RFC3339Nano)}}.Encode()
}
