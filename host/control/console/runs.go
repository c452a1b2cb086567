package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/times"
)

// filter reads a history's filter from the page's address. Empty values are those of
// forms, and mean nothing; a time without a zone is one of the page's.
func (p *page) filter() (history.Filter, error) {
	q := make(url.Values)
	for name, values := range p.Query {
		for _, value := range values {
			if value != "" {
				q.Add(name, value)
			}
		}
	}
	for _, name := range []string{"from", "to"} {
		if t, err := times.Instant(q.Get(name), p.Now.In(p.Zone), times.Back); err == nil {
			q.Set(name, t.Format(time.RFC3339Nano))
		}
	}
	f, err := cluster.ParseQuery(q)
	if f.Limit == 0 {
		f.Limit = perPage
	}
	return f, err
}

// Input is a time of the query as an input of a form has it.
func (p *page) Input(name string) string {
	f, err := p.filter()
	if err != nil || p.Query.Get(name) == "" {
		return ""
	}
	t := f.From
	if name == "to" {
		t = f.To
	}
	return t.In(p.Zone).Format("2006-01-02T15:04")
}

// silence warns of hosts, and of a database, whose records are missing.
func (p *page) silence(silent []string) {
	p.Partial = p.Partial || len(silent) > 0
	for _, s := range silent {
		text := p.T("banner.missing", s)
		switch s {
		case history.Away:
			text = p.T("banner.away")
		case history.AwayForLong:
			text = p.T("banner.away.long")
		}
		if missing := (banner{"stale", text}); !slices.Contains(p.Banners, missing) {
			p.Banners = append(p.Banners, missing)
		}
	}
}

// without lets a page be shown without its history, and says so, if the history's database
// does not answer. Other errors stay.
func (p *page) without(err error) error {
	if !errors.Is(err, history.ErrUnavailable) {
		return err
	}
	p.NoHistory = true
	missing := banner{"stale", p.T("banner.nohistory", err)}
	if !slices.Contains(p.Banners, missing) {
		p.Banners = append(p.Banners, missing)
	}
	return nil
}

// Known says how many items a fire has, and how many are known if histories are missing.
func (p *page) Known(f history.Fire) string {
	if f.Lacks() && p.Partial {
		return p.T("n.known", len(f.Items), f.Total)
	}
	return p.T("n.total", f.Total)
}

// Empty is the heading of an empty list; otherwise is the text if no filter left anything out.
func (p *page) Empty(otherwise string) string {
	if p.filtered() {
		otherwise = "empty.filter"
	}
	return cmp.Or(p.Nothing, p.None(otherwise))
}

// nothing notes why a list may be empty: no host has the job, or the trigger has no fire.
func (c *Console) nothing(ctx context.Context, p *page, f history.Filter) {
	if name, one := f.OnlyJob(); one {
		if _, err := c.o.Service.Job(ctx, name); errors.As(err, new(*service.NotFoundError)) {
			p.Nothing = p.T("empty.job", name)
			return
		}
	}
	if f.Trigger == 0 {
		return
	}
	of := history.Filter{Jobs: f.Jobs, Trigger: f.Trigger, Limit: 1}
	events, err := records(ctx, p, of, c.o.Service.Events)
	if err != nil {
		return // what is wrong with the history, the list says
	}
	if len(events.Records) > 0 {
		if e := &events.Records[0]; e.Kind == event.FireSkipped {
			p.Nothing = p.T("empty.trigger.skipped", f.Trigger, p.Host(e.Host), p.First(e.Reason))
		}
		return
	}
	if events.Next != "" || p.Partial { // they were not looked through to the end
		return
	}
	changes, err := records(ctx, p, of, c.o.Service.Changes)
	switch {
	case p.Partial:
	case err == nil && len(changes.Records) == 0 && changes.Next == "":
		p.Nothing = p.T("empty.trigger", f.Trigger)
	default:
		p.Nothing = p.T("empty.trigger.waits", f.Trigger)
	}
}

// fireTable and runTable are lists; Jobs says that they are of several jobs.
type fireTable struct {
	P     *page
	Fires []history.Fire
	Jobs  bool
}

type runTable struct {
	P    *page
	Runs []history.Run
	Jobs bool
}

// changeTable is who changed what.
type changeTable struct {
	P       *page
	Changes []history.Change
	Jobs    bool
}

// Differences are what a change has changed.
func (p *page) Differences(c history.Change) []history.Setting {
	if list, ok := c.Settings(); ok || c.Before+c.After == "" {
		return list
	}
	return []history.Setting{{Before: p.First(c.Before), After: p.First(c.After)}}
}

// filterView is the form of a search. Kept are parameters that it has no inputs for.
type filterView struct {
	P        *page
	Outcomes []abi.Outcome
	Levels   []level
	// Operations, if there are some, are those of changes.
	Operations []string
	Kept       []string
	Filtered   bool
}

// Quick are links to spans of time up to now.
func (f filterView) Quick() []entry {
	var list []entry
	for _, span := range []string{"1h", "24h", "168h"} {
		list = append(list, entry{f.P.With("from", span, "to", "", "after", ""), f.P.T("span." + span), f.P.Value("from") == span})
	}
	return list
}

// level is one from which on lines are wanted.
type level struct {
	Value int
	Text  string
}

// foundView is a page of records that a filter finds.
type foundView struct {
	P      *page
	Fires  fireTable
	Runs   runTable
	Filter filterView
	// Next is the Filter.After of the next page, empty if there is none.
	Next     string
	Filtered bool
}

func firesPage(ctx context.Context, c *Console, _ *http.Request, p *page) (view, error) {
	p.Nav, p.Title = "fires", p.T("nav.fires")
	p.Live = liveAll
	f, err := p.filter()
	if err != nil {
		return view{}, err
	}
	if err := c.framed(ctx, p, f, "fires"); err != nil {
		return view{}, err
	}
	found, err := records(ctx, p, f, c.o.Service.Fires)
	if err != nil {
		return view{}, err
	}
	if len(found.Records) == 0 {
		c.nothing(ctx, p, f)
	}
	return view{"fires", foundView{P: p, Fires: fireTable{p, found.Records, p.Frame == nil}, Next: found.Next, Filter: p.search(), Filtered: p.filtered()}}, nil
}

// search is the form of a search in fires and runs.
func (p *page) search() filterView {
	return filterView{P: p, Outcomes: abi.Outcomes(), Kept: []string{"host", "item", "instant", "trigger"}, Filtered: p.filtered()}
}

func runsPage(ctx context.Context, c *Console, _ *http.Request, p *page) (view, error) {
	p.Nav, p.Title = "fires", p.T("nav.runs")
	p.Live = liveAll
	f, err := p.filter()
	if err != nil {
		return view{}, err
	}
	if err := c.framed(ctx, p, f, "fires"); err != nil {
		return view{}, err
	}
	found, err := records(ctx, p, f, c.o.Service.Runs)
	if err != nil {
		return view{}, err
	}
	if len(found.Records) == 0 {
		c.nothing(ctx, p, f)
	}
	return view{"runs", foundView{P: p, Runs: runTable{p, found.Records, p.Frame == nil}, Next: found.Next, Filter: p.search(), Filtered: p.filtered()}}, nil
}

// fireView is one fire with the runs of its items.
type fireView struct {
	P *page
	history.Fire
	Runs runTable
	// MoreRuns is the address of all runs, MoreEvents is set if there are more events than Events; empty
	// and false if all are shown.
	MoreRuns   string
	MoreEvents bool
	// Spans are the runs drawn over the time of the fire, MoreSpans counts those that are not drawn.
	Spans     []span
	MoreSpans int
	Events    []event.Event
}

// Args are the arguments of the trigger that events are of; nil if it has none.
func (p *page) Args(events []event.Event) *event.TriggerArgs {
	for _, e := range events {
		if e.Args != nil {
			return e.Args
		}
	}
	return nil
}

// span is a run in a drawing that is 1,000 wide: it waited from Wait on, and ran from X on.
type span struct {
	history.Run
	Wait, X, W int
}

func firePage(ctx context.Context, c *Console, r *http.Request, p *page) (view, error) {
	job := r.PathValue("job")
	p.Live = liveAll
	f, err := p.filter()
	if err != nil {
		return view{}, err
	}
	if err := c.below(ctx, p, job, "fires"); err != nil {
		return view{}, err
	}
	f.Jobs, f.Limit = []string{cluster.Literal(job)}, history.MaxLimit
	fires, err := records(ctx, p, f, c.o.Service.Fires)
	if err != nil {
		return view{}, err
	}
	if len(fires.Records) == 0 {
		return view{}, &service.NotFoundError{What: p.T("fire.missing", job)}
	}
	runs, err := records(ctx, p, f, c.o.Service.Runs)
	if err != nil {
		return view{}, err
	}
	f.Oldest = true
	events, err := records(ctx, p, f, c.o.Service.Events)
	if err != nil {
		return view{}, err
	}
	slices.SortFunc(runs.Records, func(a, b history.Run) int { return cmp.Or(cmp.Compare(a.Item, b.Item), a.Begun.Compare(b.Begun)) })
	v := fireView{P: p, Fire: fires.Records[0], Runs: runTable{P: p, Runs: runs.Records}, Events: events.Records}
	p.Title = p.T("fire.title", job, p.At(v.Instant).Full)
	v.Spans = spans(&v.Fire, runs.Records, p.Now)
	v.MoreSpans, v.MoreEvents = len(runs.Records)-len(v.Spans), events.Next != ""
	if runs.Next != "" {
		v.MoreRuns = p.Link("/runs", "job", p.Pattern(job), "instant", p.Value("instant"), "trigger", p.Value("trigger"))
	}
	return view{"fire", v}, nil
}

// Badge is the badge of the run's outcome.
func (s span) Badge(p *page) badge { return p.Outcome(s.Outcome) }

// mostSpans bounds the runs that are drawn.
const mostSpans = 100

// spans draws the runs of a fire.
func spans(f *history.Fire, runs []history.Run, now time.Time) []span {
	end := f.Ended
	if end.IsZero() {
		end = now
	}
	begin := f.Begun
	if f.Instant.Before(begin) && begin.Sub(f.Instant) < time.Hour {
		begin = f.Instant
	}
	whole := float64(max(end.Sub(begin), time.Millisecond))
	at := func(t time.Time) int { return max(0, min(1000, int(1000*float64(t.Sub(begin))/whole))) }
	list := []span{}
	for _, r := range runs[:min(len(runs), mostSpans)] {
		ended := r.Ended
		if ended.IsZero() {
			ended = end
		}
		x := at(r.At())
		list = append(list, span{Run: r, X: x, W: max(2, at(ended)-x)})
	}
	return list
}

// attempt is one try of a run.
type attempt struct {
	Number   int
	Begun    time.Time
	Ended    time.Time
	Outcome  abi.Outcome
	Duration time.Duration
	Reason   string
	Host     string
}

// runView is one run.
type runView struct {
	P *page
	*service.RunDetail
	Attempts []attempt
	Log      logView
	Acts     []act
	// Offset is nil if the item has none.
	Offset *offsetView
	// Incomplete: it has ended, and its end is not in the registry.
	Incomplete bool
	// WholeLog is the address of all lines, from the first on, and Earlier of those before the ones that are
	// shown; empty if all are shown.
	WholeLog, Earlier string
	// Explained says in sentences why the run went as it did.
	Explained explanation
}

func runPage(ctx context.Context, c *Console, r *http.Request, p *page) (view, error) {
	id := r.URL.Query().Get("run")
	if id == "" {
		return view{}, &cluster.QueryError{Name: "run", Found: "", Expected: "a run's id: JOB/INSTANT/ITEM"}
	}
	d, err := c.o.Service.Run(ctx, id)
	if err != nil {
		return view{}, err
	}
	p.Title = p.T("run.title", d.Job, d.Item)
	p.Live = liveAll
	p.silence(d.Silent)
	if err := c.below(ctx, p, d.Job, "fires"); err != nil {
		return view{}, err
	}
	v := runView{P: p, RunDetail: d, Attempts: attempts(d.Events),
		Log: logView{P: p, Lines: d.Lines, Stream: p.Link("/v1/logs/stream", "run", d.ID), Follows: d.Ended.IsZero(), From: d.Since().Format(time.RFC3339Nano)}}
	if d.Earlier != "" {
		v.Earlier = p.Link("/logs", "job", p.Pattern(d.Job), "run", d.ID, "after", d.Earlier)
		v.WholeLog = p.Link("/logs", "job", p.Pattern(d.Job), "run", d.ID, "oldest", "true")
	}
	v.Offset, v.Incomplete = p.offset(d.Events), incomplete(d)
	v.Explained = c.whyRun(ctx, p, d)
	if d.Ended.IsZero() && p.may(operation.Operate, d.Job) {
		v.Acts = []act{p.act(d.Job, "kill", jobPath(d.Job, "kill"), field{"run", d.ID})}
	}
	return view{"run", v}, nil
}

// incomplete reports whether a run has ended on its host, and its completion has not taken effect. What
// another host has ended, because the run's own died, is final.
func incomplete(d *service.RunDetail) bool {
	final := func(e event.Event) bool { return e.Kind == event.ItemSkipped && e.Outcome != "" && e.Fence == 0 }
	return !d.Ended.IsZero() && !d.Completed && !d.GivenUp() && !slices.ContainsFunc(d.Events, final)
}

// offsetView is an item's offset before a run, and after it, which is empty until then.
type offsetView struct{ Before, After, Writes string }

// offset is what events say of the item's offset.
func (p *page) offset(events []event.Event) *offsetView {
	text := func(e *event.Event) string { return cmp.Or(e.Offset, p.T("kept.offset.none")) }
	var v offsetView
	var before, after int64
	for _, e := range events {
		if e.Kind == event.ItemStarted && e.Attempt <= 1 && v.Before == "" {
			before, v.Before = e.OffsetWrites, text(&e)
		}
		if e.Kind == event.ItemCompleted {
			after, v.After = e.OffsetWrites, text(&e)
			v.Writes = p.T("offset.writes", after-before, after)
		}
	}
	if before+after == 0 {
		return nil
	}
	return &v
}

// attempts are those that events tell of, oldest first.
func attempts(events []event.Event) []attempt {
	list := []attempt{}
	for _, e := range events {
		at := slices.IndexFunc(list, func(a attempt) bool { return a.Number == e.Attempt && a.Host == e.Host })
		if (e.Kind == event.ItemStarted || e.Kind == event.ItemEnded) && at < 0 {
			at = len(list)
			list = append(list, attempt{Number: e.Attempt, Host: e.Host, Begun: e.Time.Add(-e.Duration)})
		}
		if e.Kind == event.ItemEnded {
			list[at].Ended, list[at].Outcome, list[at].Duration, list[at].Reason = e.Time, e.Outcome, e.Duration, e.Reason
		}
	}
	return list
}
