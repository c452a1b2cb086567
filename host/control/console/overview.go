package console

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/labels"
)

// jobRow is a job in a line.
type jobRow struct {
	P *page
	cluster.Job
	// Why says what is wrong, Since from when on; both may be missing.
	Why   string
	Since time.Time
}

// Operable reports whether the reader may operate the job.
func (r jobRow) Operable() bool { return r.P.may(operation.Operate, r.Name) }

// row makes a line of a job.
func (p *page) row(j cluster.Job) jobRow {
	why, since := p.why(&j)
	return jobRow{p, j, why, since}
}

func (p *page) rows(jobs []cluster.Job) []jobRow {
	rows := make([]jobRow, len(jobs))
	for n, j := range jobs {
		rows[n] = p.row(j)
	}
	return rows
}

// why says why a job's health is what it is.
func (p *page) why(j *cluster.Job) (text string, since time.Time) {
	switch j.Health {
	case cluster.HealthError:
		return p.whyError(j)
	case cluster.HealthFailing:
		return p.whyFailing(j)
	case cluster.HealthLate:
		return p.whyLate(j)
	case cluster.HealthPaused:
		if j.Paused != nil {
			return p.whoPaused(j), j.Paused.At
		}
		if j.State == engine.JobDisabled { // the reason is one server's
			return p.T("why.paused"), time.Time{}
		}
		return cmp.Or(j.Reason, p.T("why.paused")), time.Time{}
	case cluster.HealthOK:
	}
	return "", time.Time{}
}

// whyError says why hosts cannot run a job. If they have had no session with the registry since they started,
// since is the time of the first of these.
func (p *page) whyError(j *cluster.Job) (text string, since time.Time) {
	if j.State != engine.JobNoSession || !j.SessionLost.IsZero() {
		return j.Reason, time.Time{}
	}
	for _, h := range p.hosts {
		if h.Report == nil || !slices.Contains(j.Hosts, h.ID) {
			continue
		}
		if at := sessionless(h.Report.Status); !at.IsZero() && (since.IsZero() || at.Before(since)) {
			since = at
		}
	}
	return p.T("why.nosession"), since
}

// whoPaused says who has paused a job, and why.
func (p *page) whoPaused(j *cluster.Job) string {
	return p.paused(p.Word("state", j.State), j.Paused.By, j.Paused.Why, j.Paused.Until)
}

// paused says who has paused something, whose state is a word, why, and until when.
func (p *page) paused(state, by, why string, until time.Time) string {
	text := p.T("why.paused.by", state, by)
	if why != "" {
		text = p.T("why.paused.reason", state, by, why)
	}
	if !until.IsZero() {
		text = p.T("why.paused.until", text, p.At(until).Full)
	}
	return text
}

// SaidOf says who has paused an item, why, and until when. It is called by templates.
func (p *page) SaidOf(s *engine.Said) string {
	if s == nil || s.By == "" {
		return p.T("item.paused")
	}
	return p.paused(p.T("item.paused"), s.By, s.Why, s.Until)
}

func (p *page) whyFailing(j *cluster.Job) (text string, since time.Time) {
	if since = j.Failing; since.IsZero() && j.Last != nil {
		since = j.Last.Ended
	}
	if j.Held > 0 {
		text = p.T("why.held", j.Held)
	}
	if j.Last == nil || outcomeClass(j.Last.Outcome) != "bad" {
		return text, since
	}
	last := p.Word("outcome", j.Last.Outcome)
	if j.Last.Message != "" {
		last += ": " + p.First(j.Last.Message)
	}
	if j.Failures > 1 {
		last += " (" + p.T("why.inarow", j.Failures) + ")"
	}
	if text != "" {
		text += "; "
	}
	return text + last, since
}

func (p *page) whyLate(j *cluster.Job) (text string, since time.Time) {
	waits := slices.Clone(j.Waits)
	slices.SortStableFunc(waits, func(a, b engine.WaitStatus) int {
		if a.Expired != b.Expired {
			if a.Expired {
				return -1
			}
			return 1
		}
		return a.Since.Compare(b.Since)
	})
	if due := j.Due(); !due.IsZero() && due.Before(p.Now) {
		text, since = p.T("why.late", p.At(due).Text), due
	}
	if len(waits) == 0 {
		return text, since
	}
	if since.IsZero() {
		since = waits[0].Since
	}
	wait := p.T("why.waits", p.Word("wait", waits[0].What), waits[0].Reason)
	if text != "" {
		text += "; "
	}
	return text + wait, since
}

// tile counts the jobs of a health.
type tile struct {
	Health cluster.Health
	Count  int
}

// stateTile counts the jobs in a state.
type stateTile struct {
	State engine.JobState
	Count int
}

// waiting is what one job waits for.
type waiting struct {
	Job string
	engine.WaitStatus
}

// overviewView is the first page.
type overviewView struct {
	P *page
	*service.Overview
	Tiles []tile
	// Begun counts the jobs that run, and those that are queued, if there are some.
	Begun  []stateTile
	Total  int
	Rows   []jobRow // of Trouble
	Failed []failures
	// FailedMore: more have failed than were counted.
	FailedMore bool
	Waits      []waiting
	Timeline   timeline
	Hosts      []cluster.Host
	// Plugins is the directory of this host's files.
	Plugins string
	// Sessionless: no host has a session with the registry, so that nothing fires.
	Sessionless bool
	// Alerting counts the alerts that go on; nil if that is not known.
	Alerting *tile
}

func overviewPage(ctx context.Context, c *Console, _ *http.Request, p *page) (view, error) {
	p.Nav, p.Title = "overview", p.T("nav.overview")
	p.Live = liveAll
	o, err := c.o.Service.Overview(ctx)
	if err != nil {
		return view{}, err
	}
	v := overviewView{P: p, Overview: o, Rows: p.rows(o.Trouble),
		Timeline: p.timeline(o.NextHour, o.Now), Hosts: o.Hosts}
	failed, err := records(ctx, p, history.Filter{Failed: true, From: o.Now.Add(-24 * time.Hour), Limit: mostFailed}, c.o.Service.Fires)
	if err := p.without(err); err != nil {
		return view{}, err
	}
	v.Failed, v.FailedMore = byJob(failed.Records), failed.Next != ""
	for _, h := range cluster.Healths() {
		v.Tiles = append(v.Tiles, tile{h, o.Counts[h]})
		v.Total += o.Counts[h]
	}
	v.Begun = []stateTile{{engine.JobRunning, o.States[engine.JobRunning]}}
	if n := o.States[engine.JobQueued]; n > 0 {
		v.Begun = append(v.Begun, stateTile{engine.JobQueued, n})
	}
	for _, j := range o.Waiting {
		for _, w := range j.Waits {
			v.Waits = append(v.Waits, waiting{j.Name, w})
		}
	}
	v.Sessionless = !slices.ContainsFunc(o.Hosts, func(h cluster.Host) bool { return h.Report == nil || sessionless(h.Report.Status).IsZero() })
	for _, h := range o.Hosts {
		if h.Here && h.Report != nil {
			v.Plugins = h.Report.About.Plugins
		}
	}
	if n, version, err := c.o.Service.Alerting().Count(ctx); err == nil {
		v.Alerting, p.Alerts = &tile{Count: n}, strconv.FormatInt(version, 10)
	}
	if o.History.Problem != "" {
		p.Banners = append(p.Banners, banner{"warn", p.T("banner.history", p.At(o.History.Since).Text, o.History.Problem)})
	}
	return view{"overview", v}, nil
}

// failures are the fires of one job that failed, of which Last is the newest.
type failures struct {
	Last  history.Fire
	Count int
}

// mostFailed bounds the failed fires that are counted.
const mostFailed = 500

// byJob counts fires by their jobs, in the order of the list.
func byJob(fires []history.Fire) []failures {
	var list []failures
	at := make(map[string]int)
	for _, f := range fires {
		n, known := at[f.Job]
		if !known {
			n = len(list)
			at[f.Job], list = n, append(list, failures{Last: f})
		}
		list[n].Count++
	}
	return list
}

// timeline is what fires in the next hour: all jobs by the minute, and the first jobs
// one by one.
type timeline struct {
	// Minutes are bars of a drawing that is 3,600 wide and 30 high, a unit for a second; none
	// for a single job, whose lane has the same.
	Minutes []mark
	Most    int // in a minute
	Fires   int
	// Frequent counts jobs that fire more often than is listed: they are not in Fires.
	Frequent int
	Lanes    []lane
	// More counts the jobs that have no lane.
	More  int
	Scale []string // begin, a quarter, half, three quarters, end
}

// lane is one job in a timeline, or in an hour of the calendar.
type lane struct {
	Job    string
	Labels labels.Set
	Marks  []mark
	First  time.Time
	Count  int
}

// mark is a place in a drawing.
type mark struct {
	X, Y, W, H int
	Title      string
}

const (
	// mostLanes bounds the jobs that a timeline has one by one.
	mostLanes = 12
	hour      = 3600
	laneTop   = 30
	laneMark  = 12 // the width of one instant
)

// timeline draws the hour from a time on.
func (p *page) timeline(c *service.Calendar, from time.Time) timeline {
	t := timeline{More: c.Omitted}
	var perMinute [60]int
	at := make(map[string]int) // of lanes; -1 for a job that has none
	add := func(u service.Upcoming, width int) {
		second := int(u.Time.Sub(from) / time.Second)
		if second < 0 || second >= hour {
			return
		}
		n, known := at[u.Job]
		if !known {
			n = -1
			if len(t.Lanes) < mostLanes {
				n = len(t.Lanes)
				t.Lanes = append(t.Lanes, lane{Job: u.Job, First: u.Time})
			} else {
				t.More++
			}
			at[u.Job] = n
		}
		if n >= 0 {
			t.Lanes[n].Marks = append(t.Lanes[n].Marks, mark{X: second, W: min(width, hour-second), Title: p.At(u.Time).Text})
		}
		if width == laneMark {
			perMinute[second/60]++
			t.Fires++
		}
	}
	for _, u := range c.Upcoming {
		add(u, laneMark)
	}
	for _, u := range c.Frequent {
		add(u, hour)
		t.Frequent++
	}
	if len(at)-t.Frequent < 2 {
		perMinute = [60]int{}
	}
	t.Most = slices.Max(perMinute[:])
	for n, count := range perMinute {
		if count > 0 {
			h := max(2, laneTop*count/t.Most)
			t.Minutes = append(t.Minutes, mark{X: n * 60, Y: laneTop - h, W: 52, H: h, Title: fmt.Sprintf("%s  %s", p.At(from.Add(time.Duration(n)*time.Minute)).Text, p.T("n.fires", count))})
		}
	}
	for n := range 5 {
		t.Scale = append(t.Scale, from.Add(time.Duration(n)*time.Hour/4).In(p.Zone).Format("15:04"))
	}
	return t
}
