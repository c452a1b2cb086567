package explain

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// notRun says why an item of a fire has no run.
func (t *writer) notRun() {
	decisive := t.decisive()
	if decisive == nil {
		t.absent()
		return
	}
	if t.story.verdict = t.verdictOf(decisive); t.story.verdict == Killed {
		t.story.verdict = Disabled // it was not in a run
	}
	if t.story.verdict == Pending || decisive.Owed {
		t.coalesced(decisive)
		return
	}
	host := t.name(decisive.Host)
	t.headline(decisive.Time, func(g group) string {
		return fmt.Sprintf("%s %s due at %s and did not run: host %s reported at %s: %s.", g.Items(), g.is("was", "were"), t.at(t.fire.instant), host, t.at(decisive.Time), reason(decisive))
	}, decisive)
	switch decisive.Cause {
	case event.SkipDisabled:
		t.disabledBy(decisive)
	case event.SkipMissed:
		if owner, share := t.ownerAt(t.item, t.fire.instant); owner != nil {
			t.wentFrom(owner.id, later(share.Time, t.fire.instant.Add(-lookBack)), decisive.Time)
		}
	case event.SkipRefused:
		t.refusals(decisive.Host, decisive.Time)
	}
}

// headline says that the item did not run.
func (t *writer) headline(at time.Time, text func(group) string, events ...*event.Event) {
	t.say(KindNotRun, at, text, events...)
}

// decisive is the skip that says most of why the item did not run: the newest that
// promises nothing and sees no run elsewhere, else the newest.
func (t *writer) decisive() *event.Event {
	var newest *event.Event
	rank := -1
	for _, e := range t.skips {
		r := 2
		switch e.Cause {
		case event.SkipElsewhere:
			r = 0
		case event.SkipLater, event.SkipUnfinished:
			r = 1
		}
		if r >= rank {
			newest, rank = e, r
		}
	}
	return newest
}

// coalesced says what became of a skip that promises a run.
func (t *writer) coalesced(promise *event.Event) {
	host := t.name(promise.Host)
	var next *event.Event
	for _, e := range t.begins[t.item] {
		if e.Trigger == 0 && e.Instant.After(t.fire.instant) && e.Time.After(t.fire.instant) {
			next = e
			break
		}
	}
	if next == nil {
		t.story.verdict = Pending
		t.headline(promise.Time, func(g group) string {
			return fmt.Sprintf("%s %s due at %s and %s not begun, as far as the histories go: host %s reported at %s: %s.",
				g.Items(), g.is("was", "were"), t.at(t.fire.instant), g.is("has", "have"), host, t.at(promise.Time), reason(promise))
		}, promise)
		return
	}
	t.story.verdict = Coalesced
	t.headline(promise.Time, func(g group) string {
		return fmt.Sprintf("%s %s due at %s and did not run for that instant: host %s reported at %s: %s.",
			g.Items(), g.is("was", "were"), t.at(t.fire.instant), host, t.at(promise.Time), reason(promise))
	}, promise)
	if owner, share := t.ownerAt(t.item, t.fire.instant); owner != nil && owner.id != promise.Host {
		t.wentFrom(owner.id, later(share.Time, t.fire.instant.Add(-lookBack)), promise.Time)
	}
	on := t.name(next.Host)
	t.say(KindAgain, next.Time, func(g group) string {
		return fmt.Sprintf("%s ran next for %s: %s began at %s on host %s.", g.They(), t.at(next.Instant), g.they(), t.at(next.Time), on)
	}, next)
}

// disabledBy says who disabled or removed what did not run.
func (t *writer) disabledBy(e *event.Event) {
	// It may have been enabled again since, before a host reported it.
	c := t.newest(sought{held: t.fire.instant, at: e.Time, item: t.item, host: e.Host, what: []string{"disable", "remove", "shutdown", "stop", "kill", "edit"}})
	if c != nil && (e.Time.Sub(c.Time) >= time.Hour || strings.HasSuffix(reason(e), disabledReason)) { // only what is disabled stays so
		c = t.newest(sought{held: t.fire.instant, at: e.Time, item: t.item, host: e.Host, what: []string{"disable", "edit disabled"}})
	}
	if c != nil {
		t.add(t.changeClause(c))
		return
	}
	t.say(KindHistory, time.Time{}, func(group) string { return "The histories do not have who did that." }, e)
}

// disabledReason ends the reasons of hosts for which an item or a server is disabled.
const disabledReason = " is disabled"

// changed is the newest change up to a time whose operation begins with one of the
// words, and that is of the job, or of this item, on all hosts or on the given one; nil
// if it was taken back since.
func (t *writer) changed(at time.Time, host string, what ...string) *history.Change {
	return t.newest(sought{held: at, at: at, item: t.item, host: host, what: what})
}

// sought says which change is meant.
type sought struct {
	held time.Time // what was taken back up to then does not count
	at   time.Time // when it had been made
	item int       // -1: any
	host string    // the instance that it has to concern; empty: any
	what []string  // what the operation begins with
}

// newest is the newest change that is sought; nil for none.
func (tl *timeline) newest(s sought) *history.Change {
	var found []*history.Change
	for _, c := range tl.changes {
		if c.Time.After(s.at) || c.Job != tl.job || (c.Item != nil && s.item >= 0 && *c.Item != s.item) {
			continue
		}
		if !c.Time.After(s.held) {
			found = slices.DeleteFunc(found, func(before *history.Change) bool { return takesBack(c, before) })
		}
		ofHost := s.host == "" || c.Host == "" || c.Host == tree.ServerOf(s.host) || isOf(s.host, c.Host)
		if ofHost && slices.ContainsFunc(s.what, func(w string) bool { return strings.HasPrefix(c.What, w) }) {
			found = append(found, c)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return found[len(found)-1]
}

// takesBack reports whether a change takes an earlier one back.
func takesBack(c, before *history.Change) bool {
	switch {
	case strings.HasPrefix(before.What, "disable"):
		return strings.HasPrefix(c.What, "enable") && sameItem(c.Item, before.Item) && (c.Host == "" || c.Host == before.Host)
	case before.What == "shutdown" || before.What == "remove":
		return c.What == "restore" || c.What == "start"
	}
	return false
}

func sameItem(a, b *int) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// leaving is the change that had a host leave the job; nil if none is known.
func (tl *timeline) leaving(e *event.Event) *history.Change {
	if e.Kind != event.JobRemoved && e.Kind != event.JobStopped {
		return nil
	}
	since := e.Time.Add(-time.Hour)
	if m := tl.members[e.Host]; m != nil {
		for _, s := range m.spans {
			if s.end == e && s.known {
				since = later(since, s.begin.Time)
			}
		}
	}
	c := tl.newest(sought{held: e.Time, at: e.Time, item: -1, host: e.Host, what: []string{"remove", "shutdown", "stop"}})
	if c == nil || c.Time.Before(since) {
		return nil
	}
	return c
}

// changeClause says of a change.
func (tl *timeline) changeClause(c *history.Change) clause {
	who := c.Who
	if who == "" {
		who = "A user"
	}
	of := " of the job"
	switch {
	case c.Item != nil:
		of = fmt.Sprintf(" of item %d", *c.Item)
	case c.Host != "":
		of = " on host " + tl.name(c.Host)
	}
	text := fmt.Sprintf("%s did %q%s at %s", who, c.What, of, tl.at(c.Time))
	if c.From != "" {
		text += ", from " + c.From
	}
	if c.Before != "" || c.After != "" {
		text += fmt.Sprintf(" (before: %s; after: %s)", orNothing(c.Before), orNothing(c.After))
	}
	if c.Why != "" {
		text += ": " + strings.TrimRight(c.Why, ".")
	}
	text += "."
	return clause{kind: KindChange, time: c.Time, key: text, text: fixed(text), changes: []*history.Change{c}}
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

// refusals says what a host had refused of the job's files, and what stood against it.
func (t *writer) refusals(host string, until time.Time) {
	if c := t.refusal(func(id string) bool { return isOf(host, id) }, until); c != nil {
		t.add(*c)
	}
}

// refusal is the newest that hosts refused of the job, or of its files, up to a time; nil
// for nothing.
func (tl *timeline) refusal(by func(host string) bool, until time.Time) *clause {
	quoted := fmt.Sprintf("job %q", tl.job)
	found := tl.between(time.Time{}, until, func(e *event.Event) bool {
		ofJob := e.Kind == event.JobError && e.Wait == ""
		ofFile := e.Kind == event.Refused && (strings.Contains(e.Reason, quoted) || strings.TrimSuffix(e.File, path.Ext(e.File)) == tl.job)
		return (ofJob || ofFile) && by(e.Host)
	})
	if len(found) == 0 {
		return nil
	}
	e := found[len(found)-1]
	what := "the job"
	if e.File != "" {
		what = e.File
	}
	text := fmt.Sprintf("Host %s refused %s at %s: %s.", tl.name(e.Host), what, tl.at(e.Time), reason(e))
	return &clause{kind: KindJob, time: e.Time, key: text, text: fixed(text), events: []*event.Event{e}}
}

// absent says of an item of which no event is known: no host had the job, its host had
// gone, or the histories do not show it.
func (t *writer) absent() {
	at := t.fire.instant
	t.story.verdict = Unknown
	if t.from.After(at) {
		t.headline(t.from, func(g group) string {
			return fmt.Sprintf("What became of %s is not known: %s due at %s, and the histories begin at %s.", g.subject(), g.is("it was", "they were"), t.at(at), t.at(t.from))
		})
		return
	}
	if t.fire.trigger == 0 && (t.noHost() || t.disabledThen()) {
		return
	}
	owner, share := t.ownerAt(t.item, at)
	if owner == nil {
		t.headline(at, func(g group) string {
			return fmt.Sprintf("What became of %s is not known: %s due at %s, and none of the histories says that its host had %s then.", g.subject(), g.is("it was", "they were"), t.at(at), g.them())
		})
		t.refusedThen(at)
		return
	}
	if t.notDueOn(owner.id) {
		return
	}
	host, from := t.name(owner.id), later(share.Time, at.Add(-lookBack))
	but := "its history says nothing of that instant"
	gone := t.goneEvent(owner.id, share.Time)
	if gone != nil {
		but = "that host is gone: its session had ended by " + t.at(gone.Time)
		if gone.Time.Before(from) {
			from = later(share.Time, gone.Time.Add(-time.Minute))
		}
	}
	t.headline(at, func(g group) string {
		return fmt.Sprintf("What became of %s is not known: %s due at %s, host %s had %s since %s, and %s.",
			g.subject(), g.is("it was", "they were"), t.at(at), host, g.them(), t.at(share.Time), but)
	}, share, gone)
	t.wentFrom(owner.id, from, t.timeline.end())
	if gone == nil {
		t.lastWords(owner.id, at)
	}
	t.rescheduled()
}

// notDueOn says that the host that had the item went by a schedule without the instant,
// if that is so: hosts do not take a new one at once.
func (t *writer) notDueOn(id string) bool {
	at := t.fire.instant
	in := t.configuredOn(id, at)
	if t.fire.trigger != 0 || in == nil || nextDue(in.Settings, at.Add(-time.Nanosecond)).Equal(at) {
		return false
	}
	t.story.verdict = NeverDue
	host := t.name(id)
	t.headline(at, func(g group) string {
		return fmt.Sprintf("%s %s not due at %s: host %s, which had %s, went by the schedule %s since %s, which has no such instant.",
			g.Items(), g.is("was", "were"), t.at(at), host, g.them(), scheduleText(in.Settings), t.at(in.Time))
	}, in)
	t.rescheduled()
	return true
}

// rescheduled says how the schedule changed within a minute of the instant.
func (t *writer) rescheduled() {
	for _, c := range t.reschedules(t.fire.instant) {
		if c.kind == KindChange || c.time.Sub(t.fire.instant).Abs() <= time.Minute {
			t.add(c)
		}
	}
}

// disabledThen says that the job, or the item, was disabled at the instant, if that is so.
func (t *writer) disabledThen() bool {
	at := t.fire.instant
	c := t.changed(at, "", "disable")
	if c == nil || c.Host != "" || t.enabledOnSome(c.Time, at) { // other servers may have had the item
		return false
	}
	t.story.verdict = Disabled
	t.headline(at, func(g group) string {
		return fmt.Sprintf("%s %s due at %s and did not run: %s disabled then.", g.Items(), g.is("was", "were"), t.at(at), g.is("it was", "they were"))
	})
	t.add(t.changeClause(c))
	return true
}

// enabledOnSome reports whether the job was enabled on a server alone between two times.
func (tl *timeline) enabledOnSome(from, to time.Time) bool {
	return slices.ContainsFunc(tl.changes, func(c *history.Change) bool {
		return c.Job == tl.job && c.Host != "" && strings.HasPrefix(c.What, "enable") && c.Time.After(from) && !c.Time.After(to)
	})
}

// refusedThen says of what hosts had refused of the job.
func (t *writer) refusedThen(at time.Time) {
	for _, m := range t.order {
		if m.spanAt(at) != nil {
			t.refusals(m.id, at)
		}
	}
}

// vacancy is a time in which no host had the job.
type vacancy struct {
	left, came *event.Event // what ended and began it; came is nil if it goes on
	leaver     *member      // whom left is about
}

// vacancyAt reports whether no host had the job at a time: each that had it before had
// left it, and the next came later. That one came proves nothing: what was before it may
// be missing.
func (tl *timeline) vacancyAt(at time.Time) (v vacancy, none bool) {
	for _, m := range tl.order {
		for i := range m.spans {
			s := &m.spans[i]
			switch {
			case s.begin.Time.After(at):
				if !s.known { // it may have had it
					return v, false
				}
				if v.came == nil || s.begin.Time.Before(v.came.Time) {
					v.came = s.begin
				}
			case s.end == nil || s.end.Time.After(at):
				return v, false
			case v.left == nil || s.end.Time.After(v.left.Time):
				v.left, v.leaver = s.end, m
			}
		}
	}
	return v, v.left != nil
}

// noHost says that no host had the job at the instant, if that is so.
func (t *writer) noHost() bool {
	at := t.fire.instant
	v, none := t.vacancyAt(at)
	if !none {
		return false
	}
	t.story.verdict = NoHost
	events := []*event.Event{v.left}
	if v.came != nil {
		events = append(events, v.came)
	}
	t.headline(at, func(g group) string {
		return fmt.Sprintf("%s %s due at %s and did not run: none of the hosts whose histories there are had the job then.", g.Items(), g.is("was", "were"), t.at(at))
	}, events...)
	t.leaver(v)
	if v.came != nil {
		host := t.name(v.came.Host)
		t.say(KindJob, v.came.Time, func(group) string {
			return fmt.Sprintf("The next that came to it was host %s, at %s.", host, t.at(v.came.Time))
		}, v.came)
	}
	return true
}

// leaver says which host had the job last before a vacancy, and why it left.
func (t *writer) leaver(v vacancy) {
	host := t.name(v.leaver.id)
	t.say(KindJob, v.left.Time, func(group) string {
		return fmt.Sprintf("The last that had the job before was host %s, until %s%s.", host, t.at(v.left.Time), t.because(v.left))
	}, v.left)
	if who := t.leaving(v.left); who != nil {
		t.add(t.changeClause(who))
	}
	if v.left.Kind != event.JobRemoved && v.left.Kind != event.JobStopped {
		t.lastWords(v.leaver.id, v.left.Time)
	}
}

// because says how an event ended a host's time in the job.
func (t *writer) because(e *event.Event) string {
	switch e.Kind {
	case event.HostStopped:
		return ", when it stopped"
	case event.HostStarted:
		return ", when a new process started there; the one before had not said that it stopped"
	case event.HostGone:
		return ", when host " + t.name(e.Host) + " saw that its session had ended"
	case event.Session:
		return ", when it gave its session up"
	}
	return ": " + reason(e)
}

// silence says which histories are missing, and that some were not read to the end.
func (tl *timeline) silence() (missing []Sentence) {
	if tl.partial {
		missing = append(missing, Sentence{Kind: KindHistory, Text: "The histories could not be read to the end in time: there may be more to it."})
	}
	if len(tl.silent) == 0 {
		return missing
	}
	names := make([]string, len(tl.silent))
	for i, id := range tl.silent {
		names[i] = tree.ServerOf(id)
	}
	slices.Sort(names)
	return append(missing, Sentence{Kind: KindHistory, Text: fmt.Sprintf("The histories of %s could not be had: what happened there is not in this answer.", strings.Join(slices.Compact(names), ", "))})
}
