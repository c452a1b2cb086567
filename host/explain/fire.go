package explain

import (
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/config/timetable"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/schedule"
)

// fire is the fire of the question.
type fire struct {
	instant time.Time // of a trigger, when a host saw it first
	trigger int64
	given   bool // the trigger gave the instant
}

// early is an answer without a fire.
type early struct {
	verdict Verdict
	instant time.Time
	story   story
}

// is reports whether an event is of the fire.
func (f fire) is(e *event.Event) bool {
	if f.trigger != 0 || e.Trigger != 0 {
		return f.trigger == e.Trigger
	}
	return !e.Instant.IsZero() && e.Instant.UnixMilli() == f.instant.UnixMilli()
}

// covers reports whether a skip also counts for the fire.
func (f fire) covers(e *event.Event) bool {
	return f.trigger == 0 && e.Trigger == 0 && !e.Instant.IsZero() && !e.Through.IsZero() && !e.Instant.After(f.instant) && !e.Through.Before(f.instant)
}

// OfFire reports whether events of a kind belong to a fire, or an item of it.
func OfFire(k event.Kind) bool {
	switch k {
	case event.FireStarted, event.FireSkipped, event.ItemStarted, event.ItemEnded, event.ItemCompleted, event.ItemSkipped, event.ItemHeld:
		return true
	}
	return false
}

// known returns the fires that appear in events, each once, in the order of their first event.
func (tl *timeline) known() []fire {
	seen := make(map[[2]int64]bool)
	var fires []fire
	for _, e := range tl.events {
		if e.Job == "" || !OfFire(e.Kind) || e.Instant.IsZero() {
			continue
		}
		key := [2]int64{e.Instant.UnixMilli(), 0}
		if e.Trigger != 0 {
			key = [2]int64{0, e.Trigger}
		}
		if !seen[key] {
			seen[key] = true
			fires = append(fires, fire{e.Instant, e.Trigger, e.Args != nil && e.Args.At})
		}
	}
	return fires
}

// choose finds the fire of the question, or explains why there is none.
func (tl *timeline) choose(q Question) (fire, *early) {
	limit := tl.now
	if !q.At.IsZero() && !(q.Nearest && q.At.After(tl.now)) {
		limit = q.At
	}
	tl.local = fixed(time.Local, limit)
	settings, in := tl.settingsAt(limit)
	tl.inZone(settings)
	known := tl.known()
	if len(known) == 0 && settings == nil && !tl.anyHad() {
		return fire{}, tl.noJob(q.At)
	}
	if q.Trigger != 0 {
		return tl.round(q.Trigger, known)
	}
	if !q.At.IsZero() && !q.Nearest {
		return tl.exact(q.At, known, settings, in)
	}
	newest := fire{instant: lastDue(settings, limit)}
	scheduled := !newest.instant.IsZero()
	for _, f := range known {
		stands := f.instant.Equal(newest.instant) && newest.trigger != 0 && f.trigger > newest.trigger
		if (f.instant.After(newest.instant) || stands) && !f.instant.After(limit) {
			newest, scheduled = f, false
		}
	}
	if newest.instant.IsZero() || (scheduled && tl.cameAfter(newest.instant) && !tl.from.After(limit) && !has(newest, known) && !tl.covered(newest)) {
		return fire{}, tl.notYet(limit, newest.instant, settings, in)
	}
	tl.fire = newest
	return newest, nil
}

// anyHad reports whether any host has ever had the job.
func (tl *timeline) anyHad() bool {
	for _, m := range tl.order {
		if len(m.spans) > 0 {
			return true
		}
	}
	return false
}

// has reports whether there are events of a fire.
func has(f fire, known []fire) bool {
	for _, k := range known {
		if k.trigger == f.trigger && k.instant.UnixMilli() == f.instant.UnixMilli() {
			return true
		}
	}
	return false
}

// covered reports whether a skip counts for a fire that may have no other event.
func (tl *timeline) covered(f fire) bool {
	return slices.ContainsFunc(tl.events, func(e *event.Event) bool { return e.Job != "" && OfFire(e.Kind) && f.covers(e) })
}

// cameAfter reports whether the first known host of the job came to it after a time.
func (tl *timeline) cameAfter(t time.Time) bool {
	if len(tl.order) == 0 {
		return false
	}
	for _, m := range tl.order {
		if len(m.spans) == 0 || !m.spans[0].known || m.spans[0].begin.Time.Before(t) {
			return false
		}
	}
	return true
}

// round is the fire of a trigger.
func (tl *timeline) round(trigger int64, known []fire) (fire, *early) {
	for _, f := range known {
		if f.trigger == trigger {
			tl.fire = f
			return f, nil
		}
	}
	return fire{}, &early{Unknown, time.Time{}, ofJob(Unknown, clause{kind: KindHistory, message: message{"histories-no-round", places{"round": trigger, "from": tl.from}}})}
}

// sinceAsked finds the change that requested the fire of a trigger, and counts the fire from its time: a host reads a
// trigger only when one of its items is idle.
func (tl *timeline) sinceAsked(f fire) fire {
	if f.trigger == 0 {
		return f
	}
	tl.trigger = tl.asked(f)
	if tl.trigger != nil && tl.trigger.Time.Before(f.instant) {
		f.instant = tl.trigger.Time
	}
	tl.fire = f
	return f
}

// asked returns the change that requested the fire of a trigger; nil if unknown.
func (tl *timeline) asked(f fire) *history.Change {
	for _, c := range slices.Backward(tl.changes) { // a registry in memory gives out the same numbers again
		if c.Job == tl.job && c.Trigger == f.trigger && !c.Time.After(f.instant.Add(lateAfter)) {
			return c
		}
	}
	// Of a host of an earlier version, the record has no number.
	var before time.Time // of the round before
	standing := 0        // the later rounds that one host saw with it, and that stand for it
	for _, k := range tl.known() {
		switch {
		case k.trigger > f.trigger && k.instant.Equal(f.instant):
			standing++
		case k.trigger != 0 && k.trigger < f.trigger && k.instant.Before(f.instant):
			before = later(before, k.instant)
		}
	}
	args := recordOf(f, tl.events)
	for _, c := range slices.Backward(tl.changes) {
		inTime := c.Time.After(before) && !c.Time.After(f.instant.Add(lateAfter)) && f.instant.Sub(c.Time) < time.Hour
		if c.Job == tl.job && operation.Trigger.Is(c.What) && c.Trigger == 0 && c.After == args && inTime {
			if standing == 0 {
				return c
			}
			standing--
		}
	}
	return nil
}

// askedAt returns the fire of a trigger that was requested in the second from a time on. If there is none, a later
// trigger replaced it, or it waits. It returns neither if no trigger of that time is known.
func (tl *timeline) askedAt(at time.Time, known []fire) (fire, *early) {
	fires := make(map[*history.Change]fire)
	for _, f := range known {
		if c := tl.asked(f); f.trigger != 0 && c != nil {
			fires[c] = f
		}
	}
	var lone *history.Change
	for _, c := range tl.changes {
		f, found := fires[c]
		switch {
		case c.Job != tl.job || !operation.Trigger.Is(c.What) || c.Time.Before(at) || (lone != nil && c.After != lone.After):
		case lone == nil && c.Time.Before(at.Add(time.Second)):
			if found {
				return f, nil
			}
			lone = c
		case lone != nil && found:
			merged := message{"merged", places{"at": lone.Time, "later": c.Time, "round": f.trigger}}
			return f, &early{Coalesced, lone.Time, ofJob(Coalesced, clause{kind: KindNotRun, time: lone.Time, message: merged, changes: []*history.Change{lone, c}}, tl.changeClause(lone))}
		}
	}
	if lone == nil {
		return fire{}, nil
	}
	waits := clause{kind: KindNotRun, time: lone.Time, message: message{"not-begun-trigger", places{"at": lone.Time}}, changes: []*history.Change{lone}}
	return fire{}, &early{Pending, lone.Time, ofJob(Pending, waits, tl.changeClause(lone))}
}

// recordOf returns what the record of a fire's trigger says about its arguments.
func recordOf(f fire, events []*event.Event) string {
	for _, e := range events {
		if e.Job == "" || !OfFire(e.Kind) || !f.is(e) || e.Args == nil {
			continue
		}
		if args, err := tree.NewTriggerArgs(e.Args.Items, e.Args.Param); err == nil {
			if e.Args.At {
				args.At, args.Backfill = e.Instant.UnixMilli(), e.Args.Backfill
			}
			return args.Record()
		}
	}
	return ""
}

// exact is the fire of an instant.
func (tl *timeline) exact(at time.Time, known []fire, settings *event.Settings, in *event.Event) (fire, *early) {
	tl.fire = fire{instant: at}
	if has(tl.fire, known) {
		return tl.fire, nil
	}
	for _, f := range known {
		if f.trigger > tl.fire.trigger && !f.instant.Before(at) && f.instant.Before(at.Add(time.Second)) {
			tl.fire = f // of several, the newest stands for the others
		}
	}
	if tl.fire.trigger != 0 {
		return tl.fire, nil
	}
	if settings == nil && tl.covered(tl.fire) { // under a schedule that is not known
		return tl.fire, nil
	}
	due := settings != nil && nextDue(settings, at.Add(-time.Nanosecond)).Equal(at)
	if due && !at.After(tl.now) {
		if made := tl.created(); made != nil && made.Time.After(at) {
			tl.fire = fire{}
			c := clause{kind: KindDue, time: at, message: message{"never-due-created", places{"at": at, "of": made.Time}}, changes: []*history.Change{made}}
			return tl.fire, &early{NeverDue, at, ofJob(NeverDue, c, tl.changeClause(made))}
		}
		return tl.fire, nil
	}
	tl.fire = fire{} // there is none
	if f, none := tl.askedAt(at, known); !due && (f.trigger != 0 || none != nil) {
		return f, none
	}
	switch {
	case settings == nil:
		return tl.fire, &early{Unknown, at, ofJob(Unknown, clause{kind: KindHistory, time: at, message: message{"histories-no-fire", places{"at": at, "from": tl.from}}})}
	case due:
		return tl.fire, tl.notYet(at, time.Time{}, settings, in)
	}
	return tl.fire, tl.neverDue(at, settings, in)
}

// created returns the change that created the job; nil if there are earlier facts about the job.
func (tl *timeline) created() (made *history.Change) {
	if n := slices.IndexFunc(tl.changes, func(c *history.Change) bool { return c.Job == tl.job }); n >= 0 {
		made = tl.changes[n]
	}
	for _, e := range tl.events {
		if c, ok := history.ChangeOf(*e); ok && e.Edit.Created && made == nil {
			made = &c
		}
	}
	if made == nil || !operation.Create.Is(made.What) {
		return nil
	}
	if slices.ContainsFunc(tl.events, func(e *event.Event) bool { return e.Job == tl.job && made.Time.Sub(e.Time) > lateAfter }) {
		return nil
	}
	return made
}

// inZone shows times in the job's zone.
func (tl *timeline) inZone(s *event.Settings) {
	switch {
	case s == nil:
	case isLocal(s) && tl.reader == nil:
		tl.location = tl.local
	case isLocal(s):
		tl.location = tl.reader
	default:
		if l := location(s); l != nil {
			tl.location = l
		}
	}
}

// isLocal reports whether each host of a job uses its own zone.
func isLocal(s *event.Settings) bool { return s.TimeZone == "" || s.TimeZone == "Local" }

// fixed returns a zone that is known only by its name and offset at a time.
func fixed(l *time.Location, at time.Time) *time.Location {
	at = at.In(l)
	_, offset := at.Zone()
	if offset == 0 {
		return time.UTC
	}
	return time.FixedZone("GMT"+at.Format("-07:00"), offset)
}

// location is a job's zone; nil if it is not known.
func location(s *event.Settings) *time.Location {
	if isLocal(s) || s.TimeZone == time.Local.String() {
		return time.Local
	}
	l, err := schedule.Zone(s.TimeZone)
	if err != nil {
		return nil
	}
	return l
}

// scheduleOf is a job's schedule; nil if there is none, or it is not known.
func scheduleOf(s *event.Settings) *timetable.Timetable {
	if s == nil || location(s) == nil {
		return nil
	}
	zone := s.TimeZone
	if isLocal(s) || zone == time.Local.String() {
		zone = ""
	}
	table, _ := timetable.FromTerms("", "", s.Cron, zone, s.Terms) // instants do not depend on the job's name
	return table
}

// scheduled reports whether a job has a schedule.
func scheduled(s *event.Settings) bool { return timetable.Describe(s.Cron, s.Terms) != "" }

// nextDue is the first instant after a time; zero for none.
func nextDue(s *event.Settings, t time.Time) time.Time {
	parsed := scheduleOf(s)
	if parsed == nil {
		return time.Time{}
	}
	return parsed.Next(t)
}

// lastDue is the last instant up to a time; zero for none in ten years.
func lastDue(s *event.Settings, t time.Time) time.Time {
	parsed := scheduleOf(s)
	if parsed == nil {
		return time.Time{}
	}
	due := func(since time.Time) bool {
		n := parsed.Next(since)
		return !n.IsZero() && !n.After(t)
	}
	for back := time.Second; back < 10*366*24*time.Hour; back *= 2 {
		since, until := t.Add(-back), t
		if !due(since) {
			continue
		}
		for until.Sub(since) > time.Millisecond { // instants are further apart
			if middle := since.Add(until.Sub(since) / 2); due(middle) {
				since = middle
			} else {
				until = middle
			}
		}
		return parsed.Next(since)
	}
	return time.Time{}
}

// scheduleText is the schedule for people.
func (tl *timeline) scheduleText(s *event.Settings) message {
	in := places{"cron": quoted{timetable.Describe(s.Cron, s.Terms)}, "zone": s.TimeZone}
	if isLocal(s) {
		in["zone"] = message{"zone-local", places{"zone": tl.local.String()}}
	}
	return message{"schedule", in}
}

// ofJob is a story about the job.
func ofJob(v Verdict, clauses ...clause) story {
	return story{item: -1, verdict: v, clauses: clauses}
}

// noJob says that no host has had the job, and why if one refused it.
func (tl *timeline) noJob(at time.Time) *early {
	st := ofJob(Unknown, clause{kind: KindHistory, message: message{"histories-no-job", places{"job": quoted{tl.job}}}})
	if c := tl.refusal(func(string) bool { return true }, tl.end()); c != nil {
		st.verdict, st.clauses = Refused, append(st.clauses, *c)
	}
	return &early{st.verdict, at, st}
}

// neverDue explains that the schedule has no such instant, which instants are next to it, and who changed the schedule.
func (tl *timeline) neverDue(at time.Time, s *event.Settings, in *event.Event) *early {
	before, next := lastDue(s, at), nextDue(s, at)
	around := message{places: places{"before": before, "next": next}}
	switch {
	case !before.IsZero() && !next.IsZero():
		around.row = "around"
	case !next.IsZero():
		around.row = "around-next"
	case !before.IsZero():
		around.row = "around-before"
	}
	due := message{"never-due", places{"at": at, "schedule": tl.scheduleText(s), "around": around}}
	switch {
	case afterOf(s) != "":
		due = message{"never-due-after", places{"at": at, "jobs": quoted{afterOf(s)}}}
	case !scheduled(s) && at.After(tl.now):
		due.row = "only-triggers"
	case !scheduled(s):
		due.row = "never-due-triggers"
	case at.After(tl.now):
		due.row = "never-due-yet"
	case in == nil:
		due.row = "never-due-now"
	case in.Time.After(at):
		due.row, due.places["of"] = "never-due-oldest", in.Time
	}
	c := clause{kind: KindDue, time: at, message: due}
	if in != nil {
		c.events = []*event.Event{in}
	}
	clauses := []clause{c}
	if why := leftOut(at, s); why != nil {
		clauses = append(clauses, clause{kind: KindDue, time: at, message: *why, events: c.events})
	}
	st := ofJob(NeverDue, append(clauses, tl.reschedules(at)...)...)
	if idle := tl.idles(); idle != nil && at.After(tl.now) {
		st.clauses = append(st.clauses, idle.clauses...)
	}
	return &early{NeverDue, at, st}
}

// leftOut says why a schedule leaves out an instant that its cron may have; nil if it does not.
func leftOut(at time.Time, s *event.Settings) *message {
	table := scheduleOf(s)
	if table == nil {
		return nil
	}
	start, end := table.Bounds()
	switch {
	case at.Before(start):
		return &message{"before-start", places{"start": start}}
	case !end.IsZero() && at.After(end):
		return &message{"after-end", places{"end": end}}
	case table.NextExcluded(at.Add(-1)).Equal(at):
		return &message{"excluded", nil}
	}
	return nil
}

// reschedules says how the schedule changed about some time.
func (tl *timeline) reschedules(at time.Time) (clauses []clause) {
	var was *event.Event
	for _, e := range tl.events {
		if e.Kind != event.JobConfigured || e.Settings == nil {
			continue
		}
		if was != nil && (was.Settings.Cron != e.Settings.Cron || was.Settings.TimeZone != e.Settings.TimeZone || was.Settings.Terms != e.Settings.Terms) && e.Time.After(at.Add(-24*time.Hour)) {
			became := message{"rescheduled", places{"at": e.Time, "schedule": tl.scheduleText(e.Settings), "before": tl.scheduleText(was.Settings)}}
			clauses = append(clauses, clause{kind: KindJob, time: e.Time, message: became, events: []*event.Event{was, e}})
			if who := tl.newest(sought{held: e.Time, at: e.Time, item: -1, what: []string{"edit"}}); who != nil && e.Time.Sub(who.Time) < time.Hour && reschedules(who) {
				clauses = append(clauses, tl.changeClause(who))
			}
		}
		was = e
	}
	if len(clauses) > 6 {
		clauses = clauses[:6]
	}
	return clauses
}

// reschedules reports whether an edit was of what makes the schedule.
func reschedules(c *history.Change) bool {
	return sets(c, "cron") || sets(c, "timeZone")
}

// idles says that the job does not fire, and who caused that; nil if it fires, as far as known.
func (tl *timeline) idles() *story {
	who := tl.newest(sought{held: tl.now, at: tl.now, item: noItem, what: idleBy[tl.idle]})
	idle := tl.idle
	if tl.files { // no host has said how the job is
		who = tl.newest(sought{held: tl.now, at: tl.now, item: noItem, what: []string{"disable", "shutdown", "remove"}})
		if who == nil || who.Host != "" || tl.enabledOnSome(who.Time, tl.now) {
			return nil
		}
		idle = IdleDisabled
		for i, words := range idleBy {
			if slices.Contains(words, who.What) {
				idle = i
			}
		}
	}
	t := writer{timeline: tl, story: ofJob(Disabled)}
	switch idle {
	case IdleDisabled:
		t.say(KindDue, "idle-disabled", tl.now, nil)
	case IdleStopped:
		t.say(KindDue, "idle-stopped", tl.now, nil)
	case IdleRemoved:
		t.say(KindDue, "idle-removed", tl.now, nil)
	case IdleNoHost:
		t.story.verdict = NoHost
		t.say(KindDue, "idle-no-host", tl.now, nil)
		if v, none := tl.vacancyAt(tl.now); none {
			row := "had-last"
			if t.others(v) != "" {
				row = "had-until"
			}
			t.leaver(v, row)
		}
		return &t.story
	default:
		return nil
	}
	if who == nil {
		who = tl.wantedBy(tl.now, noItem, "")
	}
	if who != nil {
		t.add(tl.changeClause(who))
	} else {
		t.say(KindHistory, "by-unknown", time.Time{}, nil)
	}
	return &t.story
}

// idleBy is how the operations begin that make a job idle.
var idleBy = map[Idle][]string{IdleDisabled: {"disable"}, IdleStopped: {"shutdown", "stop"}, IdleRemoved: {"remove"}}

// notYet says one of: nothing was due up to a time, or since the histories begin if the previous instant is older than
// they are; an instant is in the future; or the job does not fire.
func (tl *timeline) notYet(limit, before time.Time, s *event.Settings, in *event.Event) *early {
	next := nextDue(s, limit.Add(-time.Nanosecond))
	if idle := tl.idles(); idle != nil {
		if !next.IsZero() {
			c := clause{kind: KindDue, time: limit, message: message{"would-be", places{"schedule": tl.scheduleText(s), "next": next}}}
			if in != nil {
				c.events = []*event.Event{in}
			}
			idle.clauses = append(idle.clauses, c)
		}
		return &early{idle.verdict, limit, *idle}
	}
	when := message{"up-to", places{"at": limit}}
	if tl.from.After(before) && !before.IsZero() {
		when = message{"since-histories", places{"from": tl.from}}
	}
	due := message{row: "not-scheduled"}
	switch {
	case s == nil || !scheduled(s):
	case limit.After(tl.now):
		due = message{"to-come", places{"at": limit, "schedule": tl.scheduleText(s)}}
	case next.IsZero():
		due = message{"not-any-more", places{"when": when, "schedule": tl.scheduleText(s)}}
	default:
		due = message{"not-yet", places{"when": when, "schedule": tl.scheduleText(s), "next": next}}
	}
	c := clause{kind: KindDue, time: limit, message: due}
	if in != nil {
		c.events = []*event.Event{in}
	}
	st := ofJob(NotYetDue, c)
	if len(tl.order) > 0 && tl.order[0].spans != nil && tl.order[0].spans[0].known {
		st.clauses = append(st.clauses, tl.shows(KindJob, "came-first", tl.order[0].spans[0].begin, nil))
	}
	return &early{NotYetDue, limit, st}
}
