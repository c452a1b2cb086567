package explain

import (
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/config/timetable"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/reason"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

const (
	// lateAfter is how late an item may begin and still count as in time.
	lateAfter = time.Second
	// lookBack is how long before an instant events of a host may matter for it.
	lookBack = 10 * time.Minute
	// mostItems bounds the items of an answer.
	mostItems = tree.MaxItems / 10
	// mostAttempts is how many attempts are described one by one.
	mostAttempts = 3
)

// story is what happened to an item in a fire.
type story struct {
	item    int // -1: it is about the job
	verdict Verdict
	clauses []clause
}

// run is one begin of an item on a host.
type run struct {
	host, other string
	source      abi.Source
	begun       *event.Event // the fire's; nil if the histories do not have it
	attempts    []attempt
	completed   *event.Event
	closed      *event.Event // it ended without a completion of its own
}

// attempt is one attempt of a run.
type attempt struct{ started, ended *event.Event }

// began returns when the run's guest began, or should have; nil if the histories do not have it.
func (r *run) began() *event.Event {
	if len(r.attempts) > 0 && r.attempts[0].started != nil {
		return r.attempts[0].started
	}
	if len(r.attempts) > 0 {
		return nil // it did, but when?
	}
	return r.begun
}

// since returns when the first sign of the run was.
func (r *run) since() *event.Event {
	for _, e := range []*event.Event{r.began(), r.begun} {
		if e != nil {
			return e
		}
	}
	if len(r.attempts) > 0 {
		return r.attempts[0].ended
	}
	if r.completed != nil {
		return r.completed
	}
	return r.closed
}

// writer puts the story of one item together.
type writer struct {
	*timeline
	fire  fire
	item  int
	runs  []*run
	skips []*event.Event // that belong to no run
	story story
}

// stories returns what happened to the items of a fire, to one of them or all.
func (tl *timeline) stories(f fire, item *int) []story {
	byItem := make(map[int][]*event.Event)
	total := 0
	asked := tl.askedItems(f)
	for _, e := range tl.events {
		if e.Job == "" || !OfFire(e.Kind) || (!f.is(e) && !(f.covers(e) && (e.Kind == event.FireSkipped || e.Kind == event.ItemSkipped))) {
			continue
		}
		if f.is(e) {
			total = max(total, e.Total)
		}
		switch {
		case e.Item != nil:
			byItem[*e.Item] = append(byItem[*e.Item], e)
		case e.Kind == event.FireStarted || e.Kind == event.FireSkipped:
			for _, n := range e.Items { // of a skip all that the host had, also if a trigger asked for some
				if asked.by == nil || asked.items.Contains(n) {
					byItem[n] = append(byItem[n], e)
				}
			}
		}
	}
	settings, in := tl.settingsAt(f.instant)
	if total == 0 && settings != nil {
		total = settings.Items
	}
	if item != nil {
		if *item < 0 || (settings != nil && *item >= settings.Items && len(byItem[*item]) == 0) {
			return []story{noSuchItem(*item, settings, in)}
		}
		if asked.by != nil && !asked.items.Contains(*item) {
			return []story{notAsked(*item, asked)}
		}
		return []story{tl.itemStory(f, *item, byItem[*item])}
	}
	items := asked.first()
	for n := range min(total, mostItems) {
		if asked.by == nil {
			items = append(items, n)
		}
	}
	for n := range byItem {
		items = append(items, n)
	}
	slices.Sort(items)
	items = slices.Compact(items)
	if len(items) == 0 {
		s := tl.itemStory(f, -1, nil)
		return []story{s}
	}
	var all []story
	for _, n := range items {
		all = append(all, tl.itemStory(f, n, byItem[n]))
	}
	return all
}

// askedItems returns the items that a trigger requested, according to the event by; by is nil if it requested all.
type askedItems struct {
	items tree.Ranges
	by    *event.Event
}

// first are the first of the items, at most mostItems.
func (a askedItems) first() (items []int) {
	for n := range a.items.All() {
		if len(items) == mostItems {
			break
		}
		items = append(items, n)
	}
	return items
}

func (tl *timeline) askedItems(f fire) askedItems {
	for _, e := range tl.events {
		if e.Job == "" || !OfFire(e.Kind) || !f.is(e) || e.Args == nil || e.Args.Items == "" {
			continue
		}
		if items, err := tree.ParseRanges(e.Args.Items); err == nil {
			return askedItems{items, e}
		}
	}
	return askedItems{}
}

// notAsked is the story of an item that a trigger did not ask for.
func notAsked(item int, asked askedItems) story {
	due := message{"not-asked", places{"item": item, "asked": asked.items}}
	return ofJob(NeverDue, clause{kind: KindDue, message: due, time: asked.by.Time, events: []*event.Event{asked.by}})
}

func noSuchItem(item int, s *event.Settings, in *event.Event) story {
	total := message{row: "total-unknown"}
	switch {
	case s != nil && s.Items == 1:
		total = message{row: "total-1"}
	case s != nil:
		total = message{"total", places{"n": s.Items}}
	}
	c := clause{kind: KindDue, message: message{"no-item", places{"item": item, "total": total}}}
	if in != nil {
		c.time, c.events = in.Time, []*event.Event{in}
	}
	return ofJob(NeverDue, c)
}

// itemStory says of one item; -1 is the job, if nothing is known of its items.
func (tl *timeline) itemStory(f fire, item int, events []*event.Event) story {
	t := writer{timeline: tl, fire: f, item: item, story: story{item: item}}
	for _, e := range events {
		t.sort(e)
	}
	if len(t.runs) == 0 {
		t.notRun()
		return t.story
	}
	t.begin()
	last := 0 // where the last run's attempts begin
	for i, r := range t.runs {
		if i > 0 {
			t.again(t.runs[i-1], r)
		}
		last = len(t.story.clauses)
		t.attempts(r)
	}
	t.end()
	if t.story.verdict == Killed || t.story.verdict == Failed {
		t.causeFirst(last)
	}
	return t.story
}

// causeFirst moves the result of the last run, which begins at a place in the story, behind when and where the item first
// began: the reasons why it ran there, or again, follow.
func (t *writer) causeFirst(last int) {
	said := t.story.clauses
	began := 1
	if t.fire.trigger != 0 && last > 1 && said[1].kind == KindChange {
		began = 2
	}
	t.story.clauses = slices.Concat(said[:began], said[last:], said[began:last])
}

// sort puts an event where it belongs.
func (t *writer) sort(e *event.Event) {
	switch e.Kind {
	case event.FireStarted:
		t.runs = append(t.runs, &run{host: e.Host, other: e.Other, source: e.Source, begun: e})
	case event.ItemStarted:
		r := t.open(e.Host, e.Source)
		r.attempts = append(r.attempts, attempt{started: e})
	case event.ItemEnded:
		r := t.open(e.Host, e.Source)
		if n := len(r.attempts); n > 0 && r.attempts[n-1].ended == nil {
			r.attempts[n-1].ended = e
		} else {
			r.attempts = append(r.attempts, attempt{ended: e})
		}
	case event.ItemCompleted:
		t.open(e.Host, e.Source).completed = e
	case event.ItemSkipped, event.ItemHeld:
		host := e.Other
		if ofRun := e.Outcome != "" || e.Fence != 0; host == "" && ofRun && !e.Owed {
			host = e.Host
		}
		if host == "" {
			t.skips = append(t.skips, e)
			return
		}
		t.open(host, "").closed = e
	case event.FireSkipped:
		t.skips = append(t.skips, e)
	}
}

// open returns the newest run of a host that has not ended. It adds one, with the source, if no history has the begin.
func (t *writer) open(host string, source abi.Source) *run {
	for _, r := range slices.Backward(t.runs) {
		if r.host == host && r.completed == nil && r.closed == nil {
			return r
		}
	}
	r := &run{host: host, source: source}
	t.runs = append(t.runs, r)
	return r
}

func (t *writer) add(c clause) { t.story.clauses = append(t.story.clauses, c) }

// say adds a clause about a time, with the events that prove it.
func (t *writer) say(kind Kind, row string, at time.Time, in places, events ...*event.Event) {
	t.add(clause{kind: kind, time: at, message: message{row, in}, events: events})
}

// report adds a clause about what an event shows.
func (t *writer) report(kind Kind, row string, e *event.Event, more places) {
	t.add(t.shows(kind, row, e, more))
}

// begin says when and where the item first began, and what it waited for before.
func (t *writer) begin() {
	r := t.runs[0]
	since := r.began()
	if since == nil {
		t.someRun(r)
		return
	}
	events := []*event.Event{since}
	if r.begun != nil && r.begun != since {
		events = []*event.Event{r.begun, since}
	}
	late := since.Time.Sub(t.fire.instant)
	in := places{"host": t.name(r.host), "was": message{row: "due"}, "how": ""}
	after := t.after()
	if after != "" { // it began when those had ended, however long after the instant
		late = 0
		in["was"] = message{"due-after", places{"jobs": quoted{after}}}
	}
	if t.fire.trigger != 0 {
		in["was"] = message{row: "triggered"}
	}
	if t.fire.given { // the instant says nothing of when it was to begin
		late, in["was"] = 0, message{row: "given"}
	}
	switch r.source {
	case abi.SourceFailover:
		t.takenOver(r, in, events)
		return
	case abi.SourceCatchUp:
		in["how"] = message{row: "how.catch-up"}
	case abi.SourceBackfill:
		in["how"] = message{row: "how.backfill"}
	case abi.SourceMisfire:
		in["how"] = message{row: "how.misfire"}
	}
	row := "in-time"
	switch {
	case late > lateAfter:
		row = "late"
	case after != "", t.fire.given:
		row = "began"
	case t.fire.trigger != 0 && t.trigger == nil: // a host may have seen it late
		row, in["was"] = "began", message{row: "triggered-once"}
	}
	if len(r.attempts) == 0 && r.completed == nil {
		row += "-unstarted"
	}
	t.add(clause{kind: KindBegan, time: since.Time, took: late, message: message{row, in}, events: events})
	t.triggeredBy()
	t.chain(since.Time)
	before := len(t.story.clauses)
	if late > lateAfter {
		t.delays(r, since.Time)
		t.waits(r)
		if len(t.story.clauses) == before {
			t.say(KindHistory, "no-cause", since.Time, nil, since)
		}
	} else {
		t.moved(r)
		t.clock(r.host, since.Time)
	}
}

// takenOver says where a taken-over item began whose first host's begin is in no history, and what happened to that host.
// in are the places of all begins.
func (t *writer) takenOver(r *run, in places, events []*event.Event) {
	row, until := "taken-over-somewhere", r.began().Time
	if r.other != "" {
		row, in["of"] = "taken-over", t.name(r.other)
	}
	if sameServer(r.other, r.host) {
		row, in["host"] = "taken-over-itself", tree.ServerOf(r.host)
	}
	t.add(clause{kind: KindBegan, time: until, message: message{row, in}, events: events})
	t.triggeredBy()
	if r.other != "" {
		t.wentFrom(r.other, t.fire.instant.Add(-lookBack), until)
	}
	t.waits(r)
}

// sameServer reports whether both hosts ran on one server; the later one is then probably the earlier one after a
// restart.
func sameServer(a, b string) bool { return a != "" && tree.ServerOf(a) == tree.ServerOf(b) }

// after names the jobs that the job comes after, if the fire is of their instants; else it is empty.
func (t *writer) after() string {
	settings, _ := t.settingsAt(t.fire.instant)
	if settings == nil || t.fire.trigger != 0 {
		return ""
	}
	return afterOf(settings)
}

// afterOf names the jobs that a job with these settings comes after.
func afterOf(s *event.Settings) string { return timetable.DescribeAfter(timetable.AfterOf(s.Terms)) }

// chain says where to read on about the jobs before.
func (t *writer) chain(at time.Time) {
	settings, in := t.settingsAt(t.fire.instant)
	if settings == nil || t.fire.trigger != 0 {
		return
	}
	for _, a := range timetable.AfterOf(settings.Terms) {
		c := clause{kind: KindDue, time: at, message: message{"chain", places{"jobs": quoted{a.Job}, "command": words.Command("explain", a.Job+"@"+t.fire.instant.UTC().Format(time.RFC3339))}}}
		if in != nil {
			c.events = []*event.Event{in}
		}
		t.add(c)
	}
}

// someRun says that the item ran, of a run whose begin is in no history.
func (t *writer) someRun(r *run) {
	t.report(KindBegan, "began-sometime", r.since(), places{"host": t.name(r.host)})
}

// triggeredBy says who triggered the job.
func (t *writer) triggeredBy() {
	if t.trigger != nil {
		t.add(t.changeClause(t.trigger))
	}
}

// moved says why an item that began in time ran on another host than before.
func (t *writer) moved(r *run) {
	var before *event.Event
	for _, e := range t.begins[t.item] {
		if e.Kind == event.ItemStarted && e.Time.Before(r.since().Time) && !t.fire.is(e) {
			before = e
		}
	}
	if before == nil || before.Host == r.host {
		return
	}
	t.report(KindShare, "run-before", before, nil)
	t.wentFrom(before.Host, before.Time, r.since().Time)
	t.shares(r.host, before.Time, r.since().Time)
}

// delays says what happened between the instant and the begin that delayed the item.
func (t *writer) delays(r *run, until time.Time) {
	at := t.fire.instant
	if owner, share := t.ownerAt(t.item, at); owner != nil && owner.id != r.host {
		t.wentFrom(owner.id, later(share.Time, at.Add(-lookBack)), until)
	} else if v, none := t.vacancyAt(at); none && owner == nil && t.fire.trigger == 0 && t.others(v) == "" {
		t.leaver(v, "had-last")
	}
	t.runBefore(until)
	t.skipped(until)
	t.session(r.host, at, until)
	if s := t.members[r.host].spanAfter(at, until); s != nil {
		t.report(KindJob, "came", s.begin, nil)
	}
	t.shares(r.host, at, until)
	for _, e := range t.between(at, until, func(e *event.Event) bool {
		return e.Kind == event.JobError && e.Host == r.host && (len(e.Items) == 0 || slices.Contains(e.Items, t.item))
	}) {
		t.report(KindWait, "reported", e, nil)
	}
	t.clock(r.host, until)
}

// runBefore says that a trigger waited for the item's run before, if that is so.
func (t *writer) runBefore(until time.Time) {
	if t.fire.trigger == 0 {
		return
	}
	var before, ended *event.Event
	for _, e := range t.begins[t.item] {
		if e.Kind == event.ItemStarted && e.Time.Before(until) && !t.fire.is(e) {
			before = e
		}
	}
	if before == nil {
		return
	}
	of := fire{instant: before.Instant, trigger: before.Trigger}
	for _, e := range t.between(later(before.Time, t.fire.instant), until, func(e *event.Event) bool { return e.Item != nil && *e.Item == t.item && of.is(e) }) {
		if e.Kind == event.ItemEnded || e.Kind == event.ItemCompleted {
			ended = e
		}
	}
	if ended != nil {
		t.report(KindWait, "run-before-ended", ended, nil)
	}
}

// spanAfter returns the host's time in the job that began between two times; nil without one.
func (m *member) spanAfter(t, until time.Time) *span {
	if m == nil {
		return nil
	}
	for i := range m.spans {
		if s := &m.spans[i]; s.known && s.begin.Time.After(t) && !s.begin.Time.After(until) {
			return s
		}
	}
	return nil
}

// wentFrom says what happened to the host that had the item before: to its session, that it left, or its last report.
func (t *writer) wentFrom(id string, from, until time.Time) {
	said := len(t.story.clauses)
	for _, e := range t.find(event.Session, id, from, until) {
		switch e.Reason {
		case event.SessionSuspect:
			t.report(KindHost, "suspect", e, places{"host": t.name(id)})
		case event.SessionLost:
			t.report(KindHost, "session-lost", e, places{"host": t.name(id)})
		}
	}
	if left := t.between(from, until, func(e *event.Event) bool {
		return e.Host == id && (e.Kind == event.JobRemoved || e.Kind == event.JobStopped)
	}); len(left) > 0 {
		t.left(left[0])
		return
	}
	if stopped := t.between(from, until, func(e *event.Event) bool {
		return e.Kind == event.FireStarted && event.TermOf(e.Other) == event.TermOf(id) && e.Reason != ""
	}); len(stopped) > 0 {
		t.report(KindHost, "stopped", stopped[0], places{"of": t.name(id)})
		return
	}
	gone := t.goneEvent(id, from)
	if gone != nil && gone.Time.After(until) {
		gone = nil
	}
	if last := t.lastBefore(id, until); len(t.story.clauses) == said && gone != nil && last != nil {
		t.report(KindHost, "last-report", last, places{"host": t.name(id)})
	}
	if gone != nil {
		t.report(KindHost, "session-ended", gone, places{"of": t.name(id)})
		t.lastWords(id, gone.Time)
	}
}

// left says why a host left the job in good order, and who wanted that.
func (t *writer) left(e *event.Event) {
	t.report(KindJob, "left", e, nil)
	if who := t.leaving(e); who != nil {
		t.add(t.changeClause(who))
	}
}

// lastWords says what the server's next process found out about the end of the host, which ended by a time.
func (t *writer) lastWords(id string, after time.Time) {
	server, process := tree.ServerOf(id), event.ProcessOf(id)
	from := after.Add(-lookBack)
	if last := t.lastBefore(id, after); last != nil {
		from = later(from, last.Time)
	}
	starts := within(t.common, from, t.timeline.end(), func(e *event.Event) bool {
		return e.Kind == event.HostStarted && tree.ServerOf(e.Host) == server && (e.Host != process || e.Reason != "")
	})
	if len(starts) == 0 {
		return
	}
	e := starts[0]
	pid := strings.TrimPrefix(process, server+"@-@")
	last := e.Because.Arg("pid")
	ofOther := last != "" && last != pid
	livedOn := t.between(after, e.Time.Add(-time.Nanosecond), func(e *event.Event) bool { return e.Host != id && event.ProcessOf(e.Host) == process })
	if e.Reason == "" || ofOther || len(livedOn) > 0 {
		return
	}
	t.report(KindHost, "last-words", e, places{"server": server})
}

// shares says how the items were sharded in a time, as far as this host got the item by it.
func (t *writer) shares(host string, from, until time.Time) {
	m := t.members[host]
	if m == nil {
		return
	}
	got := t.between(from, until, func(e *event.Event) bool {
		return e.Kind == event.Assigned && e.Host == host && slices.Contains(e.Items, t.item) && !m.hadBefore(e, t.item)
	})
	if len(got) == 0 {
		return
	}
	first := got[0]
	sharded := t.between(from, first.Time.Add(lateAfter), func(e *event.Event) bool { return e.Kind == event.Sharded })
	if n := len(sharded); n > 0 {
		t.report(KindShare, "sharded", sharded[n-1], nil)
	}
	t.report(KindShare, "got", first, nil)
}

// hadBefore reports whether a host had the item already when an event says that it has.
func (m *member) hadBefore(e *event.Event, item int) bool {
	i := slices.Index(m.shares, e)
	return i > 0 && slices.Contains(m.shares[i-1].Items, item) && !m.leftBefore(m.shares[i-1], e.Time)
}

// skipped says why hosts did not begin the item up to a time, each reason once.
func (t *writer) skipped(until time.Time) {
	said := make(map[string]bool)
	for _, e := range t.skips {
		key := e.Host + "\x00" + e.Reason
		if e.Time.After(until) || said[key] {
			continue
		}
		said[key] = true
		t.report(KindSkip, "did-not-begin", e, nil)
	}
}

// session says of doubts about a host's session in a time.
func (t *writer) session(id string, from, until time.Time) {
	var doubt *event.Event
	for _, e := range t.find(event.Session, id, from.Add(-lookBack), until) {
		switch {
		case e.Wait != "":
		case e.Reason == event.SessionSuspect:
			doubt = e
		case e.Reason == event.SessionLive && doubt != nil && !e.Time.Before(from):
			t.say(KindHost, "doubt", doubt.Time, places{"host": t.name(id), "since": doubt.Time, "at": e.Time}, doubt, e)
			doubt = nil
		case e.Reason != event.SessionYield:
			doubt = nil
		}
	}
}

// clock says that a host's clock was wrong.
func (t *writer) clock(id string, until time.Time) {
	var off *event.Event
	for _, e := range t.find(event.Clock, id, time.Time{}, until) {
		off = e
		if e.Because.Has(reason.ClockRight) {
			off = nil
		}
	}
	if off != nil {
		t.report(KindHost, "reported", off, places{"host": t.name(id)})
	}
}

// waits says what the run's first attempt waited for on its host.
func (t *writer) waits(r *run) {
	if len(r.attempts) == 0 || r.attempts[0].started == nil {
		return
	}
	e := r.attempts[0].started
	if e.Waited == nil {
		return
	}
	for _, w := range []struct {
		d    time.Duration
		what string
	}{{e.Waited.Listener, "listener"}, {e.Waited.Slot, "slot"}, {e.Waited.Memory, "memory"}} {
		if w.d < lateAfter/4 {
			continue
		}
		waited := message{"waited", places{"host": t.name(r.host), "what": message{row: "waited-for." + w.what}}}
		t.add(clause{kind: KindWait, time: e.Time, took: w.d, message: waited, events: []*event.Event{e}})
	}
}

// again says why the item was begun once more in the fire.
func (t *writer) again(before, r *run) {
	since := r.since()
	switch {
	case before.closed != nil && before.closed.Host == before.host:
		t.closing(before)
	case before.host != r.host:
		t.wentFrom(before.host, before.since().Time, since.Time)
	}
	t.session(r.host, before.since().Time, since.Time)
	row, host := "again", t.name(r.host)
	switch {
	case r.began() == nil:
		row = "again-sometime"
	case r.source == abi.SourceFailover && before.host != r.host && sameServer(before.host, r.host):
		row, host = "again-itself", tree.ServerOf(r.host)
	case r.source == abi.SourceFailover:
		row = "again-failover"
	case r.source == abi.SourceCatchUp:
		row = "again-catch-up"
	}
	t.say(KindAgain, row, since.Time, places{"host": host}, since)
	t.waits(r)
}

// orphaned returns the end of the attempt under which the worker process ended for the first time; nil without one. The
// host ran the item again, and did not count that as an attempt.
func (r *run) orphaned() *event.Event {
	for _, a := range r.attempts {
		if a.ended != nil && a.ended.Outcome == abi.OutcomeWorker {
			if a.ended.Again {
				return a.ended
			}
			return nil
		}
	}
	return nil
}

// attempts describes the failed attempts, except the last one if the run ended with it, which end describes.
func (t *writer) attempts(r *run) {
	var failed []*event.Event
	orphaned := r.orphaned()
	for i, a := range r.attempts {
		last := i == len(r.attempts)-1 && r.completed != nil
		switch {
		case a.ended == nil, a.ended.Outcome == abi.OutcomeOK, last:
		case a.ended == orphaned:
			t.report(KindAttempt, "orphaned", orphaned, nil)
		default:
			failed = append(failed, a.ended)
		}
	}
	for i, e := range failed {
		if rest := len(failed) - i; i == mostAttempts-1 && rest > 1 {
			more := t.shows(KindAttempt, "attempts", failed[len(failed)-1], places{"n": rest})
			more.events = failed[i:]
			t.add(more)
			return
		}
		t.report(KindAttempt, "attempt", e, places{"n": max(e.Attempt, 1)})
	}
}

// closing says how a run ended without a completion.
func (t *writer) closing(r *run) {
	e := r.closed
	if e.Host == r.host {
		t.report(KindEnd, "gave-up", e, nil)
		return
	}
	t.wentFrom(r.host, r.since().Time, later(e.Time, t.timeline.end()))
	t.report(KindEnd, "closed", e, places{"of": t.name(r.host)})
}

// end says how it ended, and finds the verdict.
func (t *writer) end() {
	for _, r := range t.runs {
		if r.completed != nil {
			t.completed(r)
			return
		}
	}
	r := t.runs[len(t.runs)-1]
	if r.closed != nil {
		t.closing(r)
		if t.story.verdict = t.verdictOf(r.closed); t.story.verdict == Disabled {
			t.story.verdict = Killed // it had begun
		}
		return
	}
	since := r.since()
	over := t.goneEvent(r.host, since.Time)
	for _, e := range t.find(event.Session, r.host, since.Time, t.timeline.end()) {
		if e.Reason == event.SessionLost && over == nil {
			over = e
		}
	}
	if over != nil {
		t.wentFrom(r.host, since.Time, t.timeline.end())
		t.story.verdict = Unknown
		t.say(KindHistory, "not-taken-over", over.Time, nil, over)
		return
	}
	if n := len(r.attempts); n > 0 && r.attempts[n-1].ended != nil {
		e := r.attempts[n-1].ended
		t.story.verdict = Running
		t.report(KindEnd, "guest-ended", e, nil)
		return
	}
	t.story.verdict = Running
	last := t.lastBefore(r.host, t.timeline.end())
	if last == nil {
		last = since
	}
	if len(r.attempts) == 0 {
		t.story.verdict = Pending
		t.say(KindEnd, "still-to-start", last.Time, nil, since, last)
	} else {
		t.say(KindEnd, "not-ended", last.Time, nil, since, last)
	}
	t.unanswered(r.host)
}

// completed says of a completion.
func (t *writer) completed(r *run) {
	e := r.completed
	ended := e
	if n := len(r.attempts); n > 0 && r.attempts[n-1].ended != nil {
		ended = r.attempts[n-1].ended
	}
	late := len(t.runs) > 1 || t.runs[0].source == abi.SourceFailover
	if began := t.runs[0].began(); began != nil {
		late = late || (began.Time.Sub(t.fire.instant) > lateAfter && t.after() == "")
	}
	attempts := len(r.attempts)
	if r.orphaned() != nil {
		attempts--
	}
	attempts = max(attempts, 1)
	switch {
	case e.Outcome == abi.OutcomeOK && late:
		t.story.verdict = Late
	case e.Outcome == abi.OutcomeOK:
		t.story.verdict = Ran
	case e.Outcome == abi.OutcomeCancelled && e.Reason != "":
		t.story.verdict = Killed
	default:
		t.story.verdict = Failed
	}
	events := []*event.Event{ended, e}
	if ended == e {
		events = events[:1]
	}
	if e.Outcome == abi.OutcomeOK {
		row := "ok"
		if ended.Kind == event.ItemEnded {
			row = "ok-after"
		}
		t.add(clause{kind: KindEnd, time: ended.Time, took: ended.Duration, message: message{row: row}, events: events})
		return
	}
	if t.story.verdict == Killed {
		t.say(KindEnd, "killed", e.Time, places{"at": e.Time, "reason": reasonOf(e)}, events...)
		if who := t.changed(e.Time, r.host, "kill"); who != nil && e.Time.Sub(who.Time) < time.Hour {
			t.add(t.changeClause(who))
		}
		return
	}
	t.say(KindEnd, "failed", ended.Time, places{"at": ended.Time, "n": attempts, "outcome": outcome(ended)}, events...)
}

// verdictOf returns the verdict for a skip.
func (t *writer) verdictOf(e *event.Event) Verdict {
	switch e.Cause {
	case event.SkipLost:
		return Lost
	case event.SkipHeld:
		return Held
	case event.SkipMissed, event.SkipTooOld, event.SkipNoOwner:
		return Missed
	case event.SkipRefused, event.SkipNoModule, event.SkipClock:
		return Refused
	case event.SkipOverlap, event.SkipQueueFull, event.SkipLate, event.SkipFailed, event.SkipUnmet, busyBefore:
		return Skipped
	case event.SkipExcluded:
		return NeverDue
	case event.SkipDisabled, event.SkipPaused:
		if e.Outcome == abi.OutcomeCancelled {
			return Killed
		}
		return Disabled
	case event.SkipElsewhere:
		return Elsewhere
	case event.SkipLater, event.SkipSuperseded, event.SkipUnfinished:
		return Pending
	}
	return Unknown
}

// busyBefore is event.SkipOverlap in histories of versions up to 0.9.
const busyBefore event.SkipCause = "busy"

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
