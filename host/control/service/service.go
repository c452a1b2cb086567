package service

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/alert/store"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/auth/ratelimit"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/labels"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Options are the parts and settings of a service.
type Options struct {
	Namespace string
	Cluster   *cluster.Cluster
	Histories *cluster.Histories
	// Store takes records of changes.
	Store    history.Store
	Registry *admin.Registry
	// Host is this host.
	Host interface {
		Start(ctx context.Context, job string, said tree.Word) error
		Status() engine.Status
		Look(job string)
	}
	// StartOn has another host of the cluster join a job again, or with "" all that were stopped
	// there: it asks for cluster.StartPath.
	StartOn func(ctx context.Context, p cluster.Peer, job string) error
	// Session is the one that the host has with the registry; nil while it has none.
	Session func() registry.Center
	// Board is what this host knows of alerts and silences; nil: nothing. AlertFile is how it
	// sends messages about them; nil: it has no file of alerts.
	Board     *store.Copy
	AlertFile *AlertFile
	// About is what the host says of itself, for backups; nil: nothing.
	About func() report.About
	// Pending says what this host still waits for.
	Pending func() report.Pending
	Logger  *zap.Logger
}

// Service carries out requests of people and programs. It is safe for concurrent use. Each method first checks
// the context's principal ([auth.Require]).
type Service struct {
	o        Options
	refusals *ratelimit.Records // of which principals
	// What goes on: reads of a list of histories, searches in the texts of lines, explanations.
	reads, searches, explanations *auth.Places
	// Answers and pages about all jobs, or all items of one.
	large, pages *auth.Places
	batches      batches
}

// Each asks every host, or a database that all share.
func reads() auth.PlacesOptions {
	return auth.PlacesOptions{What: "queries of histories", All: 256, Each: 64, Reserved: 64, Retry: 5 * time.Second}
}

func searches() auth.PlacesOptions {
	return auth.PlacesOptions{What: "searches in logs", All: 32, Each: 8, Reserved: 8, Retry: 5 * time.Second}
}

func explanations() auth.PlacesOptions {
	return auth.PlacesOptions{What: "explanations", All: 32, Each: 8, Reserved: 8, Retry: 5 * time.Second}
}

func large() auth.PlacesOptions {
	return auth.PlacesOptions{What: "requests about all jobs or items", All: 8, Each: 2, Reserved: 2, Wait: 5 * time.Second, Retry: 5 * time.Second}
}

func pages() auth.PlacesOptions {
	return auth.PlacesOptions{What: "pages about all jobs", All: 64, Each: 8, Reserved: 16, Wait: 5 * time.Second, Retry: 5 * time.Second}
}

// New returns a service. The caller ends it with Close.
func New(o Options) *Service {
	return &Service{o: o, refusals: ratelimit.NewRecords(time.Now),
		reads: auth.NewPlaces(reads()), searches: auth.NewPlaces(searches()), explanations: auth.NewPlaces(explanations()), large: auth.NewPlaces(large()), pages: auth.NewPlaces(pages())}
}

// Large takes a place for an answer whose cost grows with the number of jobs, or of the items of one. Hold the
// place until the answer is written; leave gives it back. If all are taken it waits for some seconds; the error
// is an *access.Problem.
func (s *Service) Large(ctx context.Context) (leave func(), err error) { return s.large.Take(ctx) }

// Page does the same for a page, which shows a part of what it is made from.
func (s *Service) Page(ctx context.Context) (leave func(), err error) { return s.pages.Take(ctx) }

// NotFoundError says that something does not exist, or the principal may not see it.
type NotFoundError struct{ What string }

func (e *NotFoundError) Error() string { return e.What }

// SilentError says that nothing was found, but some hosts that may know it do not answer.
type SilentError struct{ What string }

func (e *SilentError) Error() string { return e.What }

// InputError says that a part of a request is wrong. Where is its place: query.sort, body.cron.
type InputError struct{ Where, Problem string }

func (e *InputError) Error() string { return e.Where + ": " + e.Problem }

// known returns an error if the principal is unknown.
func known(ctx context.Context) error {
	if auth.From(ctx).Method == "" {
		return auth.Require(ctx, operation.View, "")
	}
	return nil
}

// seen reports whether the principal may see a job.
func seen(ctx context.Context, job string) bool {
	p := auth.From(ctx)
	return p.Method != "" && p.May(operation.View, job)
}

// JobFilter says which jobs are wanted, and in which order.
type JobFilter struct {
	// Text is contained in the name or the description, regardless of case; Jobs are
	// patterns of names, none is all.
	Text string
	Jobs []string
	// Labels are selectors of labels, all of which have to hold; see [labels.ParseSelector].
	Labels   []string
	selector labels.Selector
	// Health, State and Outcome, that of the last fire, are alternatives, none is any.
	Health  []cluster.Health
	State   []engine.JobState
	Outcome []abi.Outcome
	// Host is a host that has the job: its id, its name, its server, or an instance. hosts are the matching
	// ids.
	Host  string
	hosts []string
	// Sort is name, next, last, health or duration; with a "-" before it the last is first.
	Sort string
	// Limit is 1 to history.MaxLimit, 0 is history.DefaultLimit; After is the name of the
	// last job of the page before.
	Limit int
	After string
}

// Jobs are jobs of the cluster.
type Jobs struct {
	history.Page[cluster.Job]
	// Total counts all that the filter finds, Counts all jobs by health.
	Total  int                    `json:"total"`
	Counts map[cluster.Health]int `json:"counts"`
	// Silent are hosts that do not answer.
	Silent []string `json:"silent,omitempty"`
}

// Jobs lists jobs.
func (s *Service) Jobs(ctx context.Context, f JobFilter) (*Jobs, error) {
	compare, err := jobOrder(f.Sort)
	if err != nil {
		return nil, err
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	if err := s.o.Cluster.Refresh(ctx); err != nil {
		return nil, err
	}
	for _, h := range s.o.Cluster.Hosts() {
		instance := h.Report != nil && event.Names(f.Host, h.Report.Status.Instance)
		if f.Host == h.ID || f.Host == h.Name || f.Host == h.ServerIP || instance {
			f.hosts = append(f.hosts, h.ID)
		}
	}
	if len(f.hosts) == 0 && !formerID(f.Host) {
		if err := checkHost(f.Host); err != nil {
			return nil, err
		}
	}
	out := &Jobs{Counts: make(map[cluster.Health]int), Silent: s.o.Cluster.Silent()}
	out.Records = []cluster.Job{}
	all := s.o.Cluster.Jobs()
	found := make([]*cluster.Job, 0, len(all))
	for _, j := range all {
		if !seen(ctx, j.Name) {
			continue
		}
		out.Counts[j.Health]++
		if f.wants(j) {
			found = append(found, j)
		}
	}
	slices.SortStableFunc(found, compare)
	out.Total = len(found)
	if f.After != "" {
		at := slices.IndexFunc(found, func(j *cluster.Job) bool { return j.Name == f.After })
		if at < 0 {
			return nil, &InputError{"query.after", fmt.Sprintf("found %q, expected the name of the last job of a page: that job is not in the list any more; begin anew", f.After)}
		}
		found = found[at+1:]
	}
	limit, err := checkLimit(f.Limit)
	if err != nil {
		return nil, err
	}
	if len(found) > limit {
		found = found[:limit]
		out.Next = found[limit-1].Name
	}
	for _, j := range found {
		out.Records = append(out.Records, *j)
	}
	return out, nil
}

func checkLimit(n int) (int, error) {
	switch {
	case n == 0:
		return history.DefaultLimit, nil
	case n < 0 || n > history.MaxLimit:
		return 0, &InputError{"query.limit", fmt.Sprintf("found %d, expected 1 to %d", n, history.MaxLimit)}
	}
	return n, nil
}

// check is an error if no job can be found by the filter because it is wrong.
func (f *JobFilter) check() error {
	for _, p := range f.Jobs {
		if _, err := path.Match(p, ""); err != nil {
			return &InputError{"query.job", fmt.Sprintf("found %q, expected a name or a pattern such as team-a-*", words.Clip(p))}
		}
	}
	var err error
	if f.selector, err = labels.ParseSelector(f.Labels...); err != nil {
		return &InputError{"query.label", err.Error()}
	}
	return cmp.Or(oneOf("health", f.Health, cluster.Healths()), oneOf("state", f.State, cluster.States()), oneOf("outcome", f.Outcome, abi.Outcomes()))
}

// hostOf translates a host's name to that in histories: the list of hosts has its id among its peers, and the
// address of its API in its name if several hosts share its server. If several match, the newest process is
// meant.
func hostOf(ctx context.Context, c *cluster.Cluster, text string) string {
	if checkHost(text) == nil {
		return text
	}
	_ = c.Refresh(ctx) // without it, what was known last counts
	of, newest := text, time.Time{}
	for _, h := range c.Hosts() {
		if (text == h.ID || text == h.Name) && h.Report != nil && h.Report.Status.Instance != "" && h.Started.After(newest) {
			of, newest = event.ProcessOf(h.Report.Status.Instance), h.Started
		}
	}
	return of
}

// formerID reports whether a text may be the id that a host had among its peers in an earlier session:
// a page of the console may still be open with it.
func formerID(text string) bool {
	return len(text) == len(rand.Text()) && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// checkHost is an error if a text cannot name a host; see [event.Names].
func checkHost(text string) error {
	if _, err := netip.ParseAddr(tree.ServerOf(text)); err != nil && text != "" {
		return &InputError{"query.host", fmt.Sprintf("found %q, expected a server's address, with its process or without, an instance's id, or a name or an id of the list of hosts: 10.0.0.7, 10.0.0.7@-@4711, 10.0.0.7@-@4711-1f2e3d4c, 10.0.0.7:9771", words.Clip(text))}
	}
	return nil
}

// oneOf is an error if one of the values of a parameter is not known.
func oneOf[T ~string](name string, found, known []T) error {
	for _, v := range found {
		if slices.Contains(known, v) {
			continue
		}
		var list []string
		for _, k := range known {
			list = append(list, string(k))
		}
		return &InputError{"query." + name, fmt.Sprintf("found %q, expected %s%s", words.Clip(string(v)), strings.Join(list, ", "), words.Suggest(string(v), list))}
	}
	return nil
}

func (f *JobFilter) wants(j *cluster.Job) bool {
	return (f.Text == "" || contains(j.Name, f.Text) || contains(j.Description, f.Text)) &&
		(len(f.Jobs) == 0 || slices.ContainsFunc(f.Jobs, func(p string) bool { ok, _ := path.Match(p, j.Name); return ok })) &&
		f.selector.Matches(j.Labels) &&
		(len(f.Health) == 0 || slices.Contains(f.Health, j.Health)) &&
		(len(f.State) == 0 || slices.Contains(f.State, j.State)) &&
		(len(f.Outcome) == 0 || (j.Last != nil && slices.Contains(f.Outcome, j.Last.Outcome))) &&
		(f.Host == "" || slices.ContainsFunc(j.Hosts, func(id string) bool { return slices.Contains(f.hosts, id) }))
}

// WhoPaused is who has paused a job, by its newest changes; see [cluster.Cluster.WhoPaused].
func (s *Service) WhoPaused(j *cluster.Job, changes []history.Change) *cluster.Paused {
	return s.o.Cluster.WhoPaused(j, changes)
}

// JobDetail is a job with all that hosts say of it.
type JobDetail struct {
	cluster.Job
	Items []cluster.Item `json:"items"`
	// On is its status on each of its hosts, by their ids.
	On map[string]*engine.JobStatus `json:"on"`
	// Upcoming are its next instants.
	Upcoming []time.Time `json:"upcoming"`
	// Chain are the jobs that it comes after, and those that come after it, with itself, from the first on; it is
	// missing if there are none.
	Chain  []Link   `json:"chain,omitempty"`
	Silent []string `json:"silent,omitempty"`
}

// upcoming is how many instants a job's detail has.
const upcoming = 10

// Job is one job.
func (s *Service) Job(ctx context.Context, name string) (*JobDetail, error) {
	if err := auth.Require(ctx, operation.View, name); err != nil {
		return nil, err
	}
	if err := s.o.Cluster.Refresh(ctx); err != nil {
		return nil, err
	}
	j, items, on, ok := s.o.Cluster.Job(name)
	if !ok {
		return nil, s.noJob(ctx, name)
	}
	d := &JobDetail{Job: j, Items: items, On: on, Upcoming: []time.Time{}, Silent: s.o.Cluster.Silent()}
	d.Chain = chainOf(name, slices.DeleteFunc(slices.Clone(s.o.Cluster.Jobs()), func(j *cluster.Job) bool { return !seen(ctx, j.Name) }))
	if j.Next.IsZero() { // it does not fire: it is paused, has no schedule, or its hosts have no session
		return d, nil
	}
	after := j.Next.Add(-time.Nanosecond)
	if next, err := admin.Next(scheduleOf(&j), after, upcoming); err == nil {
		d.Upcoming = next
	}
	return d, nil
}

// scheduleOf is what the instants of a job follow from.
func scheduleOf(j *cluster.Job) admin.Schedule {
	return admin.Schedule{Cron: j.Cron, TimeZone: zoneOf(j.TimeZone), Terms: j.Terms}
}

// zoneOf is a zone as a job's status has it, for schedule.Zone.
func zoneOf(name string) string {
	if name == "Local" {
		return ""
	}
	return name
}

// noJob returns the error that no host has a job, with what is known of it.
func (s *Service) noJob(ctx context.Context, name string) error {
	var unknown []string
	for _, h := range s.o.Cluster.Hosts() {
		if h.Report == nil {
			if h.Silent != "" {
				unknown = append(unknown, h.Name+": "+h.Silent)
			}
			continue
		}
		for _, c := range h.Report.Compiling {
			if slices.Contains(c.Jobs, name) {
				return &NotFoundError{fmt.Sprintf("job %q: its module %s is still being compiled on %s; try again in a moment", name, c.Module, h.Name)}
			}
		}
	}
	if len(unknown) > 0 {
		return &SilentError{fmt.Sprintf("no host that answers has a job %q; what others have is not known: %s", name, strings.Join(unknown, ", "))}
	}
	return &NotFoundError{fmt.Sprintf("no host has a job %q%s", name, similar(ctx, s.o.Cluster, name))}
}

// Hosts are all hosts of the namespace.
func (s *Service) Hosts(ctx context.Context) ([]cluster.Host, error) {
	if err := s.o.Cluster.Refresh(ctx); err != nil {
		return nil, err
	}
	return s.hosts(ctx), nil
}

// hosts are all hosts, each with the part of its report, and the counts of the jobs, that the
// principal may see.
func (s *Service) hosts(ctx context.Context) []cluster.Host {
	var see cluster.See
	if !seen(ctx, "") {
		see = func(job string) bool { return seen(ctx, job) }
	}
	list := s.o.Cluster.HostsOf(see)
	for i, h := range list {
		if h.Report != nil {
			report := h.Report.For(auth.From(ctx))
			list[i].Report = &report
		}
	}
	return list
}

// Mark is that of now; more is closed with the next change.
func (s *Service) Mark() (mark cluster.Mark, more <-chan struct{}) { return s.o.Cluster.Mark() }

// ChangedJobs are the jobs that have changed since a mark, of those that the principal
// may see; see [cluster.Cluster.Changes].
func (s *Service) ChangedJobs(ctx context.Context, since cluster.Mark) cluster.Changed {
	changed := s.o.Cluster.Changes(since)
	changed.Jobs = slices.DeleteFunc(changed.Jobs, func(j cluster.Job) bool { return !seen(ctx, j.Name) })
	return changed
}

// RegistryJobs are the jobs as the registry has them. They are read now.
func (s *Service) RegistryJobs(ctx context.Context) ([]admin.Brief, error) {
	all, err := s.o.Registry.Jobs(ctx)
	list := []admin.Brief{}
	for _, b := range all {
		if seen(ctx, b.Name) {
			list = append(list, b)
		}
	}
	return list, err
}

// Limits returns the limits over the cluster and who runs and waits under them, read now. Entries of jobs that
// the principal may not see are only counted, or left out.
func (s *Service) Limits(ctx context.Context) (*admin.Limits, error) {
	limits, err := s.o.Registry.Limits(ctx, time.Now())
	if err != nil || auth.From(ctx).All(operation.View) {
		return limits, err
	}
	hidden := func(u admin.Under) bool { return !seen(ctx, u.Job) }
	shown := &admin.Limits{Permits: []admin.Permits{}, Rates: []admin.Rate{}, More: limits.More}
	for _, p := range limits.Permits {
		all := len(p.Running) + len(p.Waiting)
		p.Running, p.Waiting = slices.DeleteFunc(p.Running, hidden), slices.DeleteFunc(p.Waiting, hidden)
		if left := len(p.Running) + len(p.Waiting); left > 0 {
			p.More += all - left
			shown.Permits = append(shown.Permits, p)
		}
	}
	for _, r := range limits.Rates {
		r.Waiting = slices.DeleteFunc(r.Waiting, func(t admin.Turn) bool { return !seen(ctx, t.Job) })
		if r.PausedBy != "" && !seen(ctx, r.PausedBy) {
			r.PausedBy = ""
		}
		if len(r.Waiting) > 0 || r.PausedBy != "" {
			shown.Rates = append(shown.Rates, r)
		}
	}
	return shown, nil
}

// Triggers are the triggers of a job that have not begun; nil if there are none. They are read now.
func (s *Service) Triggers(ctx context.Context, job string) (*admin.Triggers, error) {
	if err := auth.Require(ctx, operation.View, job); err != nil {
		return nil, err
	}
	waiting, err := s.o.Registry.Triggers(ctx, job)
	return waiting, s.explained(ctx, job, err)
}

// Shards returns a job item by item from the registry, read now, and which begun items wait for a slot, as
// reported by their hosts.
func (s *Service) Shards(ctx context.Context, job string) (*admin.Shards, error) {
	if err := auth.Require(ctx, operation.View, job); err != nil {
		return nil, err
	}
	shards, err := s.o.Registry.Shards(ctx, job)
	if err != nil {
		return nil, s.explained(ctx, job, err)
	}
	if err := s.o.Cluster.Refresh(ctx); err != nil {
		return nil, err
	}
	_, items, _, _ := s.o.Cluster.Job(job)
	queued := make(map[int]int64) // fences of runs, by their items
	for _, i := range items {
		if i.Queued {
			queued[i.Item] = i.Fence
		}
	}
	shards.Queue(queued)
	return shards, nil
}
