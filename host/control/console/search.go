package console

import (
	"context"
	"net/http"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/history"
)

// logView is lines of guests.
type logView struct {
	P     *page
	Lines []history.Line
	// Runs says that they are of several runs, Jobs of several jobs.
	Runs, Jobs bool
	// Stream is where new lines come from; Follows says that there may be some.
	Stream  string
	Follows bool
	// From is where the stream begins if there is no line yet.
	From string
}

// Level is the name of a line's level.
func (v logView) Level(n int) string {
	names := []struct {
		least int
		name  string
	}{{abi.LevelError, "error"}, {abi.LevelWarn, "warn"}, {abi.LevelInfo, "info"}}
	for _, l := range names {
		if n >= l.least {
			return l.name
		}
	}
	return "debug"
}

// Pairs are the attributes of a line, as texts.
func (v logView) Pairs(attrs []string) []string {
	var list []string
	for n := 0; n+1 < len(attrs); n += 2 {
		list = append(list, attrs[n]+"="+attrs[n+1])
	}
	return list
}

// linesView is the search in logs.
type linesView struct {
	P        *page
	Log      logView
	Filter   filterView
	Next     string
	Filtered bool
}

func logsPage(ctx context.Context, c *Console, _ *http.Request, p *page) (view, error) {
	p.Nav, p.Title = "logs", p.T("nav.logs")
	f, err := p.filter()
	if err != nil {
		return view{}, err
	}
	if err := c.framed(ctx, p, f, "logs"); err != nil {
		return view{}, err
	}
	found, err := records(ctx, p, f, c.o.Service.Lines)
	if err != nil {
		return view{}, err
	}
	if len(found.Records) == 0 {
		c.nothing(ctx, p, f)
	}
	v := linesView{P: p, Next: found.Next, Filtered: p.filtered(), Log: logView{P: p, Lines: found.Records, Runs: true, Jobs: p.Frame == nil},
		Filter: filterView{P: p, Kept: []string{"host", "item", "run", "oldest"}, Filtered: p.filtered()}}
	for _, n := range []int{abi.LevelDebug, abi.LevelInfo, abi.LevelWarn, abi.LevelError} {
		v.Filter.Levels = append(v.Filter.Levels, level{n, p.T("level." + v.Log.Level(n))})
	}
	return view{"logs", v}, nil
}

// auditView is the data of the audit page.
type auditView struct {
	P        *page
	Changes  changeTable
	Filter   filterView
	Next     string
	Filtered bool
}

// operations are those by which the audit can be filtered, by their first words; the first is to leave
// out who signed in and out.
func operations() []string {
	sign := firstWord(operation.SignIn)
	list := []string{"!" + sign, sign}
	for _, o := range operation.All() {
		if first := firstWord(o); first != sign {
			list = append(list, first)
		}
	}
	return list
}

func auditPage(ctx context.Context, c *Console, _ *http.Request, p *page) (view, error) {
	p.Nav, p.Title = "audit", p.T("nav.audit")
	f, err := p.filter()
	if err != nil {
		return view{}, err
	}
	if err := c.framed(ctx, p, f, "audit"); err != nil {
		return view{}, err
	}
	found, err := records(ctx, p, f, c.o.Service.Changes)
	if err != nil {
		return view{}, err
	}
	if len(found.Records) == 0 {
		c.nothing(ctx, p, f)
	}
	return view{"audit", auditView{P: p, Changes: changeTable{p, found.Records, p.Frame == nil}, Filter: filterView{P: p, Operations: operations(), Kept: []string{"trigger"}, Filtered: p.filtered()}, Next: found.Next, Filtered: p.filtered()}}, nil
}

// calendarView is a week of fires.
type calendarView struct {
	P    *page
	Days []day
	// Hours are the rows: of each day so many fires begin in that hour.
	Hours [24][]cell
	// Often are the jobs that fire more often than a calendar has room for.
	Often []service.Upcoming
	// Omitted counts the jobs that are left out because there are too many.
	Omitted int
	// At is the hour that is shown in full, zero for none.
	At    time.Time
	Fires []lane
	// Before and After are the first days of the weeks around.
	Before, After string
	Total         int
	// None says why the week is empty: the name of a text.
	None string
}

type day struct {
	Text  string
	Today bool
}

// cell is one hour of one day.
type cell struct {
	Count int
	// Heat is 0 to 4, Missing an hour that the day does not have.
	Heat    int
	Missing bool
	Now     bool
	Past    bool
	Chosen  bool
	Href    string
	Title   string
}

// firstDay is the Monday of a time's week, at midnight.
func firstDay(t time.Time) time.Time {
	back := (int(t.Weekday()) + 6) % 7
	return time.Date(t.Year(), t.Month(), t.Day()-back, 0, 0, 0, 0, t.Location())
}

func calendarPage(ctx context.Context, c *Console, _ *http.Request, p *page) (view, error) {
	p.Nav, p.Title = "calendar", p.T("nav.calendar")
	p.Live = liveAll
	f, err := p.filter()
	if err != nil {
		return view{}, err
	}
	if f.From.IsZero() {
		f.From = p.Now
	}
	from := firstDay(f.From.In(p.Zone))
	to := from.AddDate(0, 0, 7)
	list, err := c.o.Service.Calendar(ctx, from, to, service.JobFilter{Jobs: f.Jobs, Labels: p.Query["label"]})
	if err != nil {
		return view{}, err
	}
	v := calendarView{P: p, Before: from.AddDate(0, 0, -7).Format(time.DateOnly), After: to.Format(time.DateOnly)}
	if at, err := time.Parse(time.RFC3339, p.Value("at")); err == nil {
		v.At = at.In(p.Zone)
	}
	counts := make(map[time.Time]int)
	inHour := make(map[string]*lane)
	var order []string
	v.Often, v.Omitted = list.Frequent, list.Omitted
	for _, u := range list.Upcoming {
		v.Total++
		local := u.Time.In(p.Zone)
		begin := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), 0, 0, 0, p.Zone)
		counts[begin]++
		if begin.Equal(v.At) {
			l := inHour[u.Job]
			if l == nil {
				l = &lane{Job: u.Job, Labels: u.Labels, First: u.Time}
				inHour[u.Job], order = l, append(order, u.Job)
			}
			l.Count++
		}
	}
	for _, job := range order[:min(len(order), perPage)] {
		v.Fires = append(v.Fires, *inHour[job])
	}
	v.fill(from, counts)
	v.None = "calendar.none"
	if len(v.Often) > 0 {
		v.None = "calendar.none.often"
	}
	if v.Total == 0 {
		c.nothing(ctx, p, f)
	}
	if !to.After(p.Now) {
		v.None = "calendar.none.over"
	}
	return view{"calendar", v}, nil
}

// fill makes the table of days and hours.
func (v *calendarView) fill(from time.Time, counts map[time.Time]int) {
	most := 1
	for _, n := range counts {
		most = max(most, n)
	}
	now := v.P.Now.In(v.P.Zone)
	for d := range 7 {
		date := from.AddDate(0, 0, d)
		v.Days = append(v.Days, day{Text: v.P.T("weekday."+date.Weekday().String()) + " " + date.Format("01-02"), Today: date.YearDay() == now.YearDay() && date.Year() == now.Year()})
		for h := range v.Hours {
			begin := time.Date(date.Year(), date.Month(), date.Day(), h, 0, 0, 0, v.P.Zone)
			n := counts[begin]
			c := cell{Count: n, Missing: begin.Hour() != h, Chosen: begin.Equal(v.At),
				Now:  !now.Before(begin) && now.Before(begin.Add(time.Hour)),
				Past: !now.Before(begin.Add(time.Hour)),
				Href: v.P.With("at", begin.Format(time.RFC3339)) + "#hour", Title: begin.Format("2006-01-02 15:04") + ": " + v.P.T("n.fires", n)}
			if n > 0 {
				c.Heat = 1 + 3*(n-1)/max(most-1, 3)
			}
			v.Hours[h] = append(v.Hours[h], c)
		}
	}
}
