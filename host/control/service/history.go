package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/labels"
)

// longestPatterns bounds how much of a filter the patterns of a principal may be, in
// bytes: it goes to other hosts as a URL.
const longestPatterns = 4 << 10

// found finds records of jobs that the principal may see. Records without a job need the right to see all.
func found[T any](ctx context.Context, s *Service, f history.Filter, find func(context.Context, history.Filter, cluster.See) (cluster.Found[T], error)) (cluster.Found[T], error) {
	if err := known(ctx); err != nil {
		return cluster.Found[T]{}, err
	}
	leave, err := s.reads.Take(ctx)
	if err != nil {
		return cluster.Found[T]{}, err
	}
	defer leave()
	var see cluster.See
	if !f.Labels.Empty() {
		if err := f.Check(); err != nil {
			return cluster.Found[T]{}, err
		}
		if err := s.o.Cluster.Refresh(ctx); err != nil {
			return cluster.Found[T]{}, err
		}
		f, see = s.labelled(ctx, f)
	}
	var refreshing sync.WaitGroup
	if !s.o.Store.State().Shared {
		refreshing.Go(func() { _ = s.o.Cluster.Refresh(ctx) }) // without it, what was known last counts
	}
	f.Host = hostOf(ctx, s.o.Cluster, f.Host)
	list, err := foundIn(ctx, f, see, find)
	refreshing.Wait()
	if err == nil {
		for _, server := range departed(ctx, s, f.Jobs) {
			list.Silent = append(list.Silent, server+": no host runs there now")
		}
	}
	return list, err
}

// departed returns the servers of some jobs, by patterns, on which no host runs now, sorted: records that only
// their histories have are missing. There are none if hosts share a history.
func departed(ctx context.Context, s *Service, jobs []string) (list []string) {
	if s.o.Store.State().Shared {
		return nil
	}
	var live []string
	for _, h := range s.o.Cluster.Hosts() {
		live = append(live, h.ServerIP)
	}
	note := func(status *engine.JobStatus) {
		for _, server := range status.Servers {
			if !slices.Contains(live, server) && !slices.ContainsFunc(status.Instances, func(id string) bool { return tree.ServerOf(id) == server }) {
				list = with(list, server)
			}
		}
	}
	if len(jobs) == 1 {
		if name, one := only(jobs[0]); one {
			if seen(ctx, name) {
				for _, status := range s.o.Cluster.On(name) {
					note(status)
				}
			}
			return list
		}
	}
	s.o.Cluster.Each(func(_ string, status *engine.JobStatus) {
		if (len(jobs) == 0 || matchesAny(jobs, status.Name)) && seen(ctx, status.Name) {
			note(status)
		}
	})
	return list
}

// labelled resolves a filter's selector of labels to the jobs that have the labels now. If there are too many
// names for a request to other hosts, see filters the records instead.
func (s *Service) labelled(ctx context.Context, f history.Filter) (history.Filter, cluster.See) {
	selector, asked := f.Labels, f.Jobs
	f.Labels = labels.Selector{}
	wanted := make(map[string]bool)
	size := 0
	var names []string
	for _, j := range s.o.Cluster.Jobs() {
		if !selector.Matches(j.Labels) || !seen(ctx, j.Name) || (len(asked) > 0 && !matchesAny(asked, j.Name)) {
			continue
		}
		wanted[j.Name] = true
		name := cluster.Literal(j.Name)
		names, size = append(names, name), size+len(name)+1
	}
	switch {
	case len(names) == 0:
		f.Jobs = []string{auth.NoJob}
	case size <= longestPatterns:
		f.Jobs = names
	default:
		return f, func(job string) bool { return wanted[job] }
	}
	return f, nil
}

// foundIn is found, but for the servers that are gone. A record has to pass also, unless that is nil.
func foundIn[T any](ctx context.Context, f history.Filter, also cluster.See, find func(context.Context, history.Filter, cluster.See) (cluster.Found[T], error)) (cluster.Found[T], error) {
	if _, err := checkLimit(f.Limit); err != nil {
		return cluster.Found[T]{}, err
	}
	if err := checkHost(f.Host); err != nil {
		return cluster.Found[T]{}, err
	}
	for _, what := range f.What {
		if err := history.CheckOperation(what, admin.Settings()); err != nil {
			return cluster.Found[T]{}, &InputError{"query.what", err.Error()}
		}
	}
	who := auth.From(ctx)
	if who.All(operation.View) {
		return find(ctx, f, also)
	}
	if err := f.Check(); err != nil {
		return cluster.Found[T]{}, err
	}
	asked := f.Jobs
	f.Jobs = narrowed(who, asked)
	may := make(map[string]bool)
	return find(ctx, f, func(job string) bool {
		if _, known := may[job]; !known {
			may[job] = who.May(operation.View, job) && (also == nil || also(job)) && (len(asked) == 0 || matchesAny(asked, job))
		}
		return may[job]
	})
}

// narrowed returns the patterns of jobs that stores are asked for, so that they do not read what the principal
// may not see: how far they read would reveal what is there. Nil is all jobs: the principal's patterns cannot
// be sent.
func narrowed(who auth.Principal, asked []string) []string {
	isPattern := func(p string) bool { _, one := only(p); return !one }
	if len(asked) > 0 && !slices.ContainsFunc(asked, isPattern) {
		asked = slices.DeleteFunc(slices.Clone(asked), func(p string) bool {
			name, _ := only(p)
			return !who.May(operation.View, name)
		})
		if len(asked) == 0 {
			return []string{auth.NoJob}
		}
		return asked
	}
	patterns := who.Patterns(operation.View)
	if matchesAny(patterns, "") || len(strings.Join(patterns, " ")) > longestPatterns {
		return nil // some, such as **, match what is no job's as well
	}
	return patterns
}

// only is the name that a pattern matches, if it is one alone.
func only(pattern string) (name string, ok bool) {
	f := history.Filter{Jobs: []string{pattern}}
	return f.OnlyJob()
}

// matchesAny reports whether one of the patterns matches a job's name.
func matchesAny(patterns []string, job string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { ok, _ := path.Match(p, job); return ok || p == job })
}

// label fills in the labels that the jobs of records have now.
func label[T any](s *Service, records []T, of func(*T) (job string, labels *labels.Set)) {
	jobs := s.o.Cluster.Jobs() // by name
	for i := range records {
		name, into := of(&records[i])
		if n, found := slices.BinarySearchFunc(jobs, name, func(j *cluster.Job, name string) int { return strings.Compare(j.Name, name) }); found {
			*into = jobs[n].Labels
		}
	}
}

// Fires finds fires.
func (s *Service) Fires(ctx context.Context, f history.Filter) (cluster.Found[history.Fire], error) {
	list, err := found(ctx, s, f, s.o.Histories.Fires)
	label(s, list.Records, func(x *history.Fire) (string, *labels.Set) { return x.Job, &x.Labels })
	for i := range list.Records {
		list.Records[i].Outcome = list.Records[i].Result() // where parts are put together, that of what has ended counts
	}
	if err == nil && f.Running {
		usual(ctx, list.Records, func(x *history.Fire) (string, *time.Duration) { return x.Job, &x.Usual }, func(x *history.Fire) time.Duration { return x.Duration }, s.Fires)
	}
	return list, err
}

// Runs finds runs.
func (s *Service) Runs(ctx context.Context, f history.Filter) (cluster.Found[history.Run], error) {
	list, err := found(ctx, s, f, s.o.Histories.Runs)
	label(s, list.Records, func(x *history.Run) (string, *labels.Set) { return x.Job, &x.Labels })
	if err == nil && f.Running {
		usual(ctx, list.Records, func(x *history.Run) (string, *time.Duration) { return x.Job, &x.Usual }, (*history.Run).Took, s.Runs)
	}
	return list, err
}

// mostUsual bounds the jobs of a list of which it is looked up how long they usually take,
// askedAtOnce how many at a time.
const mostUsual, askedAtOnce = 50, 8

// usual adds how long the jobs of records usually take, as far as known in time: for a job that is seldom OK,
// stores may have to search everything.
func usual[T any](ctx context.Context, records []T, of func(*T) (job string, usual *time.Duration), took func(*T) time.Duration, find func(context.Context, history.Filter) (cluster.Found[T], error)) {
	var jobs []string
	for i := range records {
		if job, _ := of(&records[i]); !slices.Contains(jobs, job) && len(jobs) < mostUsual {
			jobs = append(jobs, job)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, reading)
	defer cancel()
	answers := make([]time.Duration, len(jobs))
	var asked sync.WaitGroup
	for first := range askedAtOnce {
		asked.Go(func() {
			for n := first; n < len(jobs); n += askedAtOnce {
				latest, err := find(ctx, history.Filter{Jobs: []string{cluster.Literal(jobs[n])}, Outcomes: []abi.Outcome{abi.OutcomeOK}, Limit: alert.UsualRuns})
				if err != nil {
					return
				}
				var times []time.Duration
				for i := range latest.Records {
					if d := took(&latest.Records[i]); d > 0 { // else that is not known
						times = append(times, d)
					}
				}
				answers[n] = alert.Usual(times)
			}
		})
	}
	asked.Wait()
	for i := range records {
		job, usual := of(&records[i])
		if n := slices.Index(jobs, job); n >= 0 {
			*usual = answers[n]
		}
	}
}

// Events finds events.
func (s *Service) Events(ctx context.Context, f history.Filter) (cluster.Found[event.Event], error) {
	return found(ctx, s, f, s.o.Histories.Events)
}

// Lines finds lines that guests logged.
func (s *Service) Lines(ctx context.Context, f history.Filter) (cluster.Found[history.Line], error) {
	if f.Text != "" {
		leave, err := s.searches.Take(ctx)
		if err != nil {
			return cluster.Found[history.Line]{}, err
		}
		defer leave()
	}
	list, err := found(ctx, s, f, s.o.Histories.Lines)
	label(s, list.Records, func(x *history.Line) (string, *labels.Set) { return x.Job, &x.Labels })
	return list, err
}

// MayFollow is an error if the principal may not see the lines of a job or a run.
func (s *Service) MayFollow(ctx context.Context, job, run string) error {
	of, _, _ := strings.Cut(run, "/")
	if job != "" {
		if err := auth.Require(ctx, operation.View, job); err != nil {
			return err
		}
	}
	if run != "" {
		return auth.Require(ctx, operation.View, of)
	}
	return nil
}

// Follow passes on the lines that come, of all hosts, until ctx is done. MayFollow was
// asked before.
func (s *Service) Follow(ctx context.Context, f history.Filter, out chan<- cluster.Tailed) {
	s.o.Histories.Follow(ctx, f, out)
}

// Changes finds who changed what.
func (s *Service) Changes(ctx context.Context, f history.Filter) (cluster.Found[history.Change], error) {
	changes, err := found(ctx, s, f, s.o.Histories.Changes)
	changes.Records = slices.DeleteFunc(changes.Records, func(c history.Change) bool { return ofHiddenSilence(ctx, c) })
	return changes, err
}

// RunDetail is a run with all that is known of it.
type RunDetail struct {
	history.Run
	// Events are those of the run, oldest first: its attempts among them.
	Events []event.Event `json:"events"`
	// Lines are the newest that its guest logged, oldest first: 1,000 at most. Earlier is where those before them
	// are found, as after of GET /v1/logs with the run's id; empty if there are none.
	Lines   []history.Line `json:"lines"`
	Earlier string         `json:"earlier,omitempty"`
	// Silent are hosts that have not answered, or do not run any more, and why: what they have of the
	// run, its events or its lines is missing.
	Silent []string `json:"silent,omitempty"`
}

// Run is one run by its id.
func (s *Service) Run(ctx context.Context, id string) (*RunDetail, error) {
	job, _, _ := strings.Cut(id, "/")
	if err := auth.Require(ctx, operation.View, job); err != nil {
		return nil, err
	}
	f := history.Filter{Jobs: []string{cluster.Literal(job)}, Run: id, Limit: 1}
	runs, err := filled(ctx, f, s.Runs)
	if err != nil {
		return nil, err
	}
	if len(runs.Records) == 0 && len(runs.Silent) > 0 {
		return nil, &SilentError{fmt.Sprintf("no host that answers knows run %q; without an answer: %s", id, strings.Join(runs.Silent, ", "))}
	}
	if len(runs.Records) == 0 {
		return nil, &NotFoundError{fmt.Sprintf("no run %q is known: it was not, or the history does not reach back so far", id)}
	}
	d := &RunDetail{Run: runs.Records[0]}
	for _, silent := range runs.Silent {
		d.Silent = with(d.Silent, silent)
	}
	f.Limit, f.From = history.MaxLimit, d.Since()
	lines, err := filled(ctx, f, s.Lines)
	if err != nil {
		return nil, err
	}
	slices.Reverse(lines.Records)
	d.Lines, d.Earlier = append([]history.Line{}, lines.Records...), lines.Next
	f.Oldest = true
	events, err := filled(ctx, f, s.Events)
	d.Events = append([]event.Event{}, events.Records...)
	for _, silent := range slices.Concat(lines.Silent, events.Silent) {
		d.Silent = with(d.Silent, silent)
	}
	return d, err
}

// Since is from when on what the run did is looked for.
func (d *RunDetail) Since() time.Time { return d.At().Add(-mostApart) }

// mostApart is how far the clocks of hosts may be apart: what a run did is looked for since so long
// before it began.
const mostApart = time.Hour

// filled returns a page that is only shorter than the limit at the end of the list, although a store that
// searches much ends its pages early. It reads until ctx is done. Its Next is where the list continues.
func filled[T any](ctx context.Context, f history.Filter, find func(context.Context, history.Filter) (cluster.Found[T], error)) (all cluster.Found[T], err error) {
	for {
		found, err := find(ctx, f)
		all.Records = append(all.Records, found.Records...)
		for _, silent := range found.Silent {
			all.Silent = with(all.Silent, silent)
		}
		f.Limit -= len(found.Records)
		all.Next = found.Next
		if err != nil || found.Next == "" || found.Next == f.After || f.Limit <= 0 {
			return all, err
		}
		f.After = found.Next
	}
}

// Upcoming is an instant at which a job will fire.
type Upcoming struct {
	Time time.Time `json:"time"`
	Job  string    `json:"job"`
	// Labels are those of the job, by name.
	Labels labels.Set `json:"labels,omitempty"`
}

// Calendar is what will fire.
type Calendar struct {
	// Upcoming are instants, by time.
	Upcoming []Upcoming `json:"upcoming"`
	// Frequent are jobs that fire more often than once an hour and more than 60 times, and hourly ones if there
	// are too many: each with its first instant.
	Frequent []Upcoming `json:"frequent"`
	// Omitted counts the jobs that are left out because there are too many.
	Omitted int `json:"omitted,omitempty"`
	// Silent are hosts that do not answer, and why: what only they know is missing, or as of their last answer.
	Silent []string `json:"silent,omitempty"`
}

// The bounds of a calendar: instants of one job, unless it fires once an hour at most, and of all.
const (
	mostPerJob   = 60
	mostInstants = 10_000
)

// Calendar returns the coming instants in a range, of the jobs that the filter matches; its order, limit and
// host are ignored.
func (s *Service) Calendar(ctx context.Context, from, to time.Time, filter JobFilter) (*Calendar, error) {
	const longest = 31 * 24 * time.Hour
	if !to.After(from) || to.Sub(from) > longest {
		return nil, &InputError{"query.to", fmt.Sprintf("found %s after from, expected up to 31 days", to.Sub(from))}
	}
	if err := filter.check(); err != nil {
		return nil, err
	}
	if err := s.o.Cluster.Refresh(ctx); err != nil {
		return nil, err
	}
	c := &Calendar{Upcoming: []Upcoming{}, Frequent: []Upcoming{}, Silent: s.o.Cluster.Silent()}
	if now := time.Now(); from.Before(now) {
		from = now // the past does not follow from the present schedule
	}
	if !to.After(from) {
		return c, nil
	}
	known := make(map[admin.Schedule][]time.Time)
	var many []*cluster.Job // with more instants than mostPerJob
	for _, j := range s.o.Cluster.Jobs() {
		if err := ctx.Err(); err != nil { // the answer has no reader any more
			return nil, err
		}
		// A job that is paused, has no schedule, or whose hosts have no session, has no next instant.
		if j.Next.IsZero() || !j.Next.Before(to) || !filter.wants(j) || !seen(ctx, j.Name) {
			continue
		}
		if !c.add(j, instants(j, from, to, known), mostPerJob) {
			many = append(many, j)
		}
	}
	// They take the room that is left: jobs with few instants are not omitted because of them.
	for _, j := range many {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		next := instants(j, from, to, known)
		if len(c.Upcoming)+len(next) > mostInstants || !c.add(j, next, hours(from, to)) {
			c.Frequent = append(c.Frequent, Upcoming{next[0], j.Name, j.Labels})
		}
	}
	slices.SortFunc(c.Upcoming, func(a, b Upcoming) int { return cmp.Or(a.Time.Compare(b.Time), strings.Compare(a.Job, b.Job)) })
	return c, nil
}

// instants are those of a job, at most one more than a calendar lists of it. known are those of
// schedules: many jobs share one.
func instants(j *cluster.Job, from, to time.Time, known map[admin.Schedule][]time.Time) []time.Time {
	of := scheduleOf(j)
	next, computed := known[of]
	if !computed {
		next, _ = admin.Between(of, from, to, max(mostPerJob, hours(from, to))+1) // the job's own page says what is wrong
		known[of] = next
	}
	return next
}

// hours are those that begin from one time to another.
func hours(from, to time.Time) int { return int((to.Sub(from) + time.Hour - 1) / time.Hour) }

// add lists the instants of a job, unless they are more than most.
func (c *Calendar) add(j *cluster.Job, next []time.Time, most int) bool {
	switch {
	case len(next) > most:
		return false
	case len(next) > 0 && len(c.Upcoming)+len(c.Frequent) >= mostInstants:
		c.Omitted++
	default:
		for _, t := range next {
			c.Upcoming = append(c.Upcoming, Upcoming{t, j.Name, j.Labels})
		}
	}
	return true
}

// Overview is what an operator looks at first.
type Overview struct {
	Now       time.Time `json:"now"`
	Namespace string    `json:"namespace"`
	// Counts counts the jobs by their healths, States by their states.
	Counts map[cluster.Health]int  `json:"counts"`
	States map[engine.JobState]int `json:"states"`
	// Trouble are the jobs that are not OK and not paused, worst first, and those first that have been
	// failing longest; Waiting are those that
	// wait for something.
	Trouble []cluster.Job `json:"trouble"`
	Waiting []cluster.Job `json:"waiting"`
	// Running are the jobs of which items run, Queued those of which items wait for a slot, Failures the newest runs that failed.
	Running  []cluster.Job  `json:"running"`
	Queued   []cluster.Job  `json:"queued"`
	Failures []history.Run  `json:"failures"`
	NextHour *Calendar      `json:"nextHour"`
	Hosts    []cluster.Host `json:"hosts"`
	// More counts the jobs that do not fit in Trouble, Waiting, Running and Queued.
	More More `json:"more"`
	// Gone are the hosts that were seen to be gone in the last 24 hours and are not back.
	Gone    []GoneHost `json:"gone"`
	Refused []Refusal  `json:"refused"`
	// Silent are hosts that do not answer, and those whose histories do not, and why.
	Silent []string `json:"silent,omitempty"`
	// History is how this host's history fares.
	History history.State `json:"history"`
}

// More counts jobs that are in none of the lists of an overview, by the list in which they would be.
type More struct {
	// Trouble, Waiting, Running and Queued count them by these lists.
	Trouble int `json:"trouble,omitempty"`
	Waiting int `json:"waiting,omitempty"`
	Running int `json:"running,omitempty"`
	Queued  int `json:"queued,omitempty"`
}

// Refusal is a file that hosts refused for the same reasons, since the first of them did.
type Refusal struct {
	// Hosts are their names, in the order of the list of hosts.
	Hosts []string `json:"hosts"`
	engine.Refusal
}

// mostShown bounds each list of the overview.
const mostShown = 20

// store is how the history fares, as far as the principal may know it.
func (s *Service) store(ctx context.Context) history.State {
	state, p := s.o.Store.State(), auth.From(ctx)
	state.Where, state.Problem = report.StoreFor(p, state.Where), report.StoreProblemFor(p, state.Problem)
	return state
}

// Overview shows what fails, what is late, what runs and what comes.
func (s *Service) Overview(ctx context.Context) (*Overview, error) {
	if err := s.o.Cluster.Refresh(ctx); err != nil {
		return nil, err
	}
	now := time.Now()
	o := &Overview{Now: now, Namespace: s.o.Namespace, Counts: make(map[cluster.Health]int), States: make(map[engine.JobState]int), Hosts: s.hosts(ctx), Silent: s.o.Cluster.Silent(), History: s.store(ctx),
		Trouble: []cluster.Job{}, Waiting: []cluster.Job{}, Running: []cluster.Job{}, Queued: []cluster.Job{}, Refused: []Refusal{}}
	for _, j := range s.o.Cluster.Jobs() {
		if !seen(ctx, j.Name) {
			continue
		}
		o.Counts[j.Health]++
		o.States[j.State]++
		if j.Health != cluster.HealthOK && j.Health != cluster.HealthPaused {
			o.Trouble = append(o.Trouble, *j)
		}
		if len(j.Waits) > 0 {
			o.Waiting = append(o.Waiting, *j)
		}
		if j.Running > 0 {
			o.Running = append(o.Running, *j)
		}
		if j.Queued > 0 {
			o.Queued = append(o.Queued, *j)
		}
	}
	slices.SortStableFunc(o.Trouble, func(a, b cluster.Job) int { return cmp.Or(harm(&a)-harm(&b), byTime(a.Failing, b.Failing)) })
	for _, shown := range []struct {
		list *[]cluster.Job
		more *int
	}{{&o.Trouble, &o.More.Trouble}, {&o.Waiting, &o.More.Waiting}, {&o.Running, &o.More.Running}, {&o.Queued, &o.More.Queued}} {
		n := min(len(*shown.list), mostShown)
		*shown.list, *shown.more = (*shown.list)[:n], len(*shown.list)-n
	}
	o.Refused = refusedBy(ctx, o.Hosts)
	failures, err := s.Runs(ctx, history.Filter{Failed: true, Limit: mostShown, From: now.Add(-24 * time.Hour)})
	if err != nil && !errors.Is(err, history.ErrUnavailable) { // without its database, what is now is shown all the same
		return nil, err
	}
	o.Failures = append([]history.Run{}, failures.Records...)
	for _, silent := range failures.Silent {
		if !slices.Contains(o.Silent, silent) {
			o.Silent = append(o.Silent, silent)
		}
	}
	if o.Gone, err = s.Gone(ctx); err != nil {
		return nil, err
	}
	if o.NextHour, err = s.Calendar(ctx, now, now.Add(time.Hour), JobFilter{}); err != nil {
		return nil, err
	}
	return o, nil
}

// refusedBy returns the files that hosts refused, each once with the hosts that refused it for the same
// reasons. A principal that may not see all jobs gets none.
func refusedBy(ctx context.Context, hosts []cluster.Host) []Refusal {
	list := []Refusal{}
	if !seen(ctx, "") {
		return list
	}
	type file struct {
		name string
		kept bool
	}
	places := make(map[file][]int) // in list
	for _, h := range hosts {
		if h.Report == nil {
			continue
		}
		for _, r := range h.Report.Status.Refused {
			of := file{r.File, r.Kept}
			same := slices.IndexFunc(places[of], func(at int) bool { return slices.Equal(list[at].Reasons, r.Reasons) })
			if same < 0 {
				places[of] = append(places[of], len(list))
				list = append(list, Refusal{[]string{h.Name}, r})
				continue
			}
			at := places[of][same]
			list[at].Hosts = append(list[at].Hosts, h.Name)
			if r.Since.Before(list[at].Since) {
				list[at].Since = r.Since
			}
		}
	}
	return list
}

// Module is a module over all hosts, by its digest.
type Module struct {
	Digest string   `json:"digest"`
	Files  []string `json:"files"`
	Signer string   `json:"signer,omitempty"`
	// Size is its size in bytes. Imports are its import modules, Needs the needs in the definitions of its
	// jobs, Granted what is granted.
	Size    int      `json:"sizeBytes,omitempty"`
	Imports []string `json:"imports"`
	Needs   []string `json:"needs"`
	// Jobs run it, Hosts have it, by their ids.
	Jobs    []string `json:"jobs"`
	Hosts   []string `json:"hosts"`
	Granted []string `json:"granted,omitempty"`
}

// Modules are the modules that run, and the files that hosts refused.
type Modules struct {
	Modules []Module  `json:"modules"`
	Refused []Refusal `json:"refused"`
	Silent  []string  `json:"silent,omitempty"`
}

// Modules lists modules by their files.
func (s *Service) Modules(ctx context.Context) (*Modules, error) {
	if err := s.o.Cluster.Refresh(ctx); err != nil {
		return nil, err
	}
	byDigest := make(map[string]*Module)
	s.o.Cluster.Each(func(id string, status *engine.JobStatus) {
		if status.Digest == "" || !seen(ctx, status.Name) {
			return
		}
		m := byDigest[status.Digest]
		if m == nil {
			m = &Module{Digest: status.Digest, Size: status.Size, Imports: append([]string{}, status.Imports...), Needs: []string{}}
			byDigest[status.Digest] = m
		}
		m.Files, m.Jobs, m.Hosts = with(m.Files, status.Module), append(m.Jobs, status.Name), with(m.Hosts, id)
		m.Signer = cmp.Or(status.Signer, m.Signer)
		for _, g := range status.Granted {
			m.Granted = with(m.Granted, g)
		}
		for _, n := range status.Needs {
			m.Needs = with(m.Needs, n)
		}
	})
	out := &Modules{Modules: []Module{}, Refused: refusedBy(ctx, s.o.Cluster.Hosts()), Silent: s.o.Cluster.Silent()}
	for _, m := range byDigest {
		slices.Sort(m.Jobs)
		m.Jobs = slices.Compact(m.Jobs) // several hosts have one
		out.Modules = append(out.Modules, *m)
	}
	slices.SortFunc(out.Modules, func(a, b Module) int {
		return strings.Compare(strings.Join(a.Files, " ")+a.Digest, strings.Join(b.Files, " ")+b.Digest)
	})
	return out, nil
}

// with is a sorted list with one more text, once.
func with(list []string, text string) []string {
	at, known := slices.BinarySearch(list, text)
	if known {
		return list
	}
	return slices.Insert(list, at, text)
}
