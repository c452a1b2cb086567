package service

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/explain"
	"github.com/wasmjob/wasmjob/host/history"
)

const (
	// reading is how long histories are read for one answer.
	reading = 3 * time.Second
	// The most records that are read of one list, on each side of the instant.
	mostBefore = 5 * history.MaxLimit
	mostAfter  = 2 * history.MaxLimit
	// mostOfFire is the most that is read of the fire itself.
	mostOfFire = 50 * history.MaxLimit
)

// Explain says in sentences what happened in a fire of a job, and why, from the histories of all hosts. A
// principal that may see the job also learns what happened to its hosts.
func (s *Service) Explain(ctx context.Context, q explain.Question) (*explain.Answer, error) {
	if err := auth.Require(ctx, operation.View, q.Job); err != nil {
		return nil, err
	}
	leave, err := s.explanations.Take(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := s.o.Cluster.Refresh(ctx); err != nil {
		return nil, err
	}
	w := &witness{job: q.Job, histories: s.o.Histories}
	if q.Trigger, err = w.roundOf(ctx, q.Trigger); err != nil {
		return nil, err
	}
	if err := w.read(ctx, q); err != nil {
		return nil, err
	}
	w.facts.Now = time.Now()
	if !auth.From(ctx).All(operation.View) {
		w.facts.Events = withoutOthers(w.facts.Events, q.Job)
	}
	knows := slices.ContainsFunc(w.facts.Events, func(e event.Event) bool { return e.Kind == event.JobConfigured })
	j, items, _, here := s.o.Cluster.Job(q.Job)
	if !knows && here {
		w.facts.Settings = &event.Settings{Cron: j.Cron, TimeZone: j.TimeZone, Terms: j.Terms, Items: j.ShardingTotalCount}
	}
	w.facts.Idle = idleOf(&j, here)
	w.facts.Wanted = wantedOf(&j, items)
	w.facts.Departed = departed(ctx, s, []string{cluster.Literal(q.Job)})
	w.facts.Unanswering = unanswering(j.Hosts, items, s.o.Cluster.Hosts())
	answer := explain.Explain(q, w.facts)
	return &answer, nil
}

// roundOf is the round of a trigger that was queued under a number, if the histories have it; else the number itself.
func (w *witness) roundOf(ctx context.Context, number int64) (int64, error) {
	if number == 0 {
		return 0, nil
	}
	f := history.Filter{Jobs: []string{cluster.Literal(w.job)}, Trigger: number, Limit: 1}
	own, err := w.histories.Events(ctx, f, nil)
	if err != nil || len(own.Records) > 0 {
		return number, err
	}
	asked, err := w.histories.Changes(ctx, f, nil)
	if err != nil || len(asked.Records) == 0 {
		return number, err
	}
	f = history.Filter{Jobs: f.Jobs, Kinds: []event.Kind{event.FireStarted}, From: asked.Records[0].Time.Add(-time.Minute), Oldest: true, Limit: history.MaxLimit}
	for n := 0; n < mostAfter; {
		page, err := w.histories.Events(ctx, f, nil)
		if err != nil {
			return number, err
		}
		for _, e := range page.Records {
			if e.Args != nil && e.Args.Queued == number {
				return e.Trigger, nil
			}
		}
		n += len(page.Records)
		if f.After = page.Next; f.After == "" {
			break
		}
	}
	return number, nil
}

const (
	// lookPace is the shortest interval of reads in ExplainEnded: histories get events a moment after the hosts
	// show their effect, so that each change is followed by two reads.
	lookPace = 500 * time.Millisecond
	// lookAgain lies between two at most.
	lookAgain = 3 * time.Second
)

// ExplainEnded is Explain when the fire has ended over all items and hosts, or, after wait, with what is
// known then; see [explain.Answer.Open]. It looks again whenever a host shows a change of the job.
func (s *Service) ExplainEnded(ctx context.Context, q explain.Question, wait time.Duration) (*explain.Answer, error) {
	since, _ := s.Mark()
	answer, err := s.Explain(ctx, q)
	if err != nil || wait == 0 || !answer.Open() {
		return answer, err
	}
	end, err := s.o.Cluster.Watch(ctx) // the hosts are asked for changes meanwhile
	if err != nil {
		return answer, nil // the host ends: what is known counts
	}
	defer end()
	over := time.NewTimer(wait)
	defer over.Stop()
	look := time.NewTimer(lookPace)
	defer look.Stop()
	for changed, next := false, time.Now().Add(lookPace); ; {
		seen := s.ChangedJobs(ctx, since)
		since = seen.Mark
		if slices.ContainsFunc(seen.Jobs, func(j cluster.Job) bool { return j.Name == q.Job }) {
			changed = true
			look.Reset(max(0, time.Until(next)))
		}
		select {
		case <-seen.More:
			continue
		case <-look.C:
		case <-over.C:
			return answer, nil
		case <-s.o.Cluster.Ended():
			return answer, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		newer, err := s.Explain(ctx, q)
		if err != nil || !newer.Open() {
			return newer, err
		}
		answer, next = newer, time.Now().Add(lookPace)
		if look.Reset(lookAgain); changed {
			look.Reset(lookPace)
		}
		changed = false
	}
}

// wantedOf are the changes by which a job, or items of it, do not run now, as the registry has them.
func wantedOf(j *cluster.Job, items []cluster.Item) (list []history.Change) {
	for i := range items {
		if said := items[i].Said; items[i].Disabled && said != nil && said.By != "" {
			list = append(list, history.Change{Time: said.Since, Who: said.By, What: operation.Disable.String(), Job: j.Name, Item: &items[i].ItemStatus.Item, Why: said.Why, After: admin.UntilText(said.Until)})
		}
	}
	what := map[engine.JobState]string{engine.JobDisabled: operation.Disable.String(), engine.JobStopped: operation.Shutdown.String(), engine.JobRemoved: operation.Remove.String()}[j.State]
	if p := j.Paused; p != nil && what != "" {
		list = append(list, history.Change{Time: p.At, Who: p.By, What: what, Job: j.Name, Why: p.Why, After: admin.UntilText(p.Until)})
	}
	return list
}

// idleOf returns why a job does not fire, if none of its hosts would fire it.
func idleOf(j *cluster.Job, known bool) explain.Idle {
	allDisabled := len(j.Hosts) > 0 && len(j.DisabledOn) == len(j.Hosts)
	switch {
	case !known || j.State == cluster.StateNoHost || j.State == cluster.StateUndefined:
		return explain.IdleNoHost
	case allDisabled || j.State == engine.JobDisabled:
		return explain.IdleDisabled
	case j.State == engine.JobStopped:
		return explain.IdleStopped
	case j.State == engine.JobRemoved:
		return explain.IdleRemoved
	}
	return ""
}

// unanswering are those hosts of a job that do not answer, with the items that they had last and
// that no other host has now.
func unanswering(of []string, items []cluster.Item, hosts []cluster.Host) (list []explain.Unanswering) {
	for _, h := range hosts {
		if h.Silent == "" || h.Report == nil || !slices.Contains(of, h.ID) {
			continue
		}
		u := explain.Unanswering{Host: h.Report.Status.Instance, Seen: h.Seen}
		for _, i := range items {
			if i.Host == h.ID {
				u.Items = append(u.Items, i.ItemStatus.Item)
			}
		}
		list = append(list, u)
	}
	return list
}

// withoutOthers removes refusals of other jobs from events: a file may define several jobs.
func withoutOthers(events []event.Event, job string) []event.Event {
	var kept []event.Event
	for _, e := range events {
		if e.Kind == event.Refused {
			reasons := reasonsFor(engine.Refusal{File: e.File, Reasons: strings.Split(e.Reason, "\n"), Jobs: e.Jobs}, job)
			if len(reasons) == 0 {
				continue
			}
			e.Reason, e.Jobs = strings.Join(reasons, "\n"), slices.Repeat([]string{job}, len(reasons))
		}
		kept = append(kept, e)
	}
	return kept
}

// QuestionOfRun asks about a run by its id: JOB/INSTANT/ITEM, or JOB/tROUND/ITEM of a trigger.
func QuestionOfRun(job, id string) (explain.Question, error) {
	wrong := &InputError{"query.run", fmt.Sprintf("found %q, expected the id of a run of the job: %s/2026-03-01T03:00:00.000Z/0, or %s/t5/0 of a trigger", id, job, job)}
	rest, ofJob := strings.CutPrefix(id, job+"/")
	fire, number, two := strings.Cut(rest, "/")
	item, err := strconv.Atoi(number)
	if !ofJob || !two || err != nil || item < 0 {
		return explain.Question{}, wrong
	}
	q := explain.Question{Job: job, Item: &item}
	if round, triggered := strings.CutPrefix(fire, "t"); triggered {
		if q.Trigger, err = strconv.ParseInt(round, 10, 64); err != nil || q.Trigger <= 0 {
			return explain.Question{}, wrong
		}
		return q, nil
	}
	if q.At, err = time.Parse(time.RFC3339Nano, fire); err != nil {
		return explain.Question{}, wrong
	}
	return q, nil
}

// witness reads the evidence for an answer. It reads its lists in parallel.
type witness struct {
	job       string
	histories *cluster.Histories
	reads     sync.WaitGroup

	mu    sync.Mutex // guards what follows
	facts explain.Facts
	err   error
}

// read reads the histories: all about the fire, what jobs and hosts did at about that time, and since when
// there are records. It keeps what was found in time.
func (w *witness) read(ctx context.Context, q explain.Question) error {
	ctx, cancel := context.WithTimeout(ctx, reading)
	defer cancel()
	jobs := []string{cluster.Literal(q.Job)}
	at := q.At
	if at.IsZero() {
		at = time.Now()
	}
	// The fire's own events are found by its name, however many others there are at that time.
	named := history.Filter{Jobs: jobs, Kinds: ofFires(), Trigger: q.Trigger}
	if !q.Nearest && q.Trigger == 0 {
		named.Instant = q.At
	}
	exact := named.Trigger != 0 || !named.Instant.IsZero()
	if exact {
		w.list(ctx, named, mostOfFire, nil)
	}
	if q.Trigger != 0 {
		at = w.seen(ctx, named, at)
	}
	others := func(e *event.Event) bool { return !exact || !named.MatchEvent(e) }
	mine := func(e *event.Event) bool { return e.Job == "" || e.Job == q.Job }
	w.around(ctx, history.Filter{Jobs: jobs, Kinds: ofFires()}, at, others)
	w.around(ctx, history.Filter{Jobs: jobs, Kinds: ofJobs()}, at, nil)
	w.around(ctx, history.Filter{Kinds: ofHosts()}, at, mine)
	w.reads.Go(func() { w.changes(ctx, at) })
	w.reads.Go(func() { w.since(ctx) })
	w.reads.Wait()
	slices.Sort(w.facts.Silent)
	w.facts.Silent = slices.Compact(w.facts.Silent)
	return w.err
}

// around reads what lies before and after a time.
func (w *witness) around(ctx context.Context, f history.Filter, at time.Time, wanted func(*event.Event) bool) {
	before, after := f, f
	before.To, after.From, after.Oldest = at, at, true
	w.list(ctx, before, mostBefore, wanted)
	w.list(ctx, after, mostAfter, wanted)
}

// list begins to read a list of events, up to so many; wanted, if not nil, picks some.
func (w *witness) list(ctx context.Context, f history.Filter, most int, wanted func(*event.Event) bool) {
	w.reads.Go(func() {
		f.Limit = history.MaxLimit
		for n := 0; n < most; {
			page, err := w.histories.Events(ctx, f, nil)
			if !w.note(ctx, page.Silent, err) {
				return
			}
			n += len(page.Records)
			w.mu.Lock()
			for i := range page.Records {
				if wanted == nil || wanted(&page.Records[i]) {
					w.facts.Events = append(w.facts.Events, page.Records[i])
				}
			}
			w.mu.Unlock()
			if f.After = page.Next; f.After == "" {
				return
			}
		}
	})
}

// seen is when hosts saw a trigger first; otherwise, if they have not.
func (w *witness) seen(ctx context.Context, f history.Filter, otherwise time.Time) time.Time {
	f.Limit, f.Oldest = 1, true
	page, err := w.histories.Events(ctx, f, nil)
	if !w.note(ctx, page.Silent, err) || len(page.Records) == 0 || page.Records[0].Instant.IsZero() {
		return otherwise
	}
	return page.Records[0].Instant
}

// changes reads who changed the job up to some time.
func (w *witness) changes(ctx context.Context, at time.Time) {
	f := history.Filter{Jobs: []string{cluster.Literal(w.job)}, To: at.Add(time.Hour), Limit: history.MaxLimit}
	page, err := w.histories.Changes(ctx, f, nil)
	if w.note(ctx, page.Silent, err) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.facts.Changes = page.Records
	}
}

// since reads since when the histories are complete: since the oldest event of a kind that no store keeps
// longer than others.
func (w *witness) since(ctx context.Context) {
	page, err := w.histories.Events(ctx, history.Filter{Kinds: ofEvery(), Limit: 1, Oldest: true}, nil)
	if w.note(ctx, page.Silent, err) && len(page.Records) == 1 {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.facts.From = page.Records[0].Time
	}
}

// note notes which hosts are silent, and an error of this host's own store. What cannot be read in time is left
// out: the answer says what it does not know. ok: there is a page.
func (w *witness) note(ctx context.Context, silent []string, err error) (ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range silent {
		name, _, _ := strings.Cut(s, ": ")
		w.facts.Silent = append(w.facts.Silent, name)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		w.facts.Partial = true
	case err != nil && w.err == nil:
		w.err = err
	}
	return err == nil
}

// ofFires, ofJobs and ofHosts are the kinds of events that answers rest on: of fires, of
// the job on its hosts, and of hosts, which have no job.
func ofFires() []event.Kind {
	return []event.Kind{event.FireStarted, event.FireSkipped, event.ItemStarted, event.ItemEnded, event.ItemCompleted, event.ItemSkipped, event.ItemHeld}
}

func ofJobs() []event.Kind {
	return []event.Kind{event.JobAdded, event.JobChanged, event.JobConfigured, event.JobRemoved, event.JobStopped, event.JobError, event.Sharded, event.Assigned}
}

func ofHosts() []event.Kind {
	return []event.Kind{event.Session, event.HostGone, event.HostStarted, event.HostStopped, event.Clock, event.Refused}
}

// ofEvery are kinds that a database keeps no longer than runs that were OK.
func ofEvery() []event.Kind {
	return []event.Kind{event.FireStarted, event.ItemStarted, event.JobAdded, event.JobConfigured, event.Assigned, event.HostStarted}
}
