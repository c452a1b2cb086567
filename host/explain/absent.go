package explain

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/reason"
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
	t.report(KindNotRun, "did-not-run", decisive, nil)
	t.triggeredBy()
	t.chain(decisive.Time)
	switch decisive.Cause {
	case event.SkipDisabled, event.SkipPaused:
		t.disabledBy(decisive)
	case event.SkipMissed, event.SkipTooOld, event.SkipNoOwner:
		if owner, share := t.ownerAt(t.item, t.fire.instant); owner != nil {
			t.wentFrom(owner.id, later(share.Time, t.fire.instant.Add(-lookBack)), decisive.Time)
		}
	case event.SkipRefused, event.SkipNoModule, event.SkipClock:
		t.refusals(decisive.Host, decisive.Time)
	}
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
		case event.SkipLater, event.SkipSuperseded, event.SkipUnfinished:
			r = 1
		}
		if r >= rank {
			newest, rank = e, r
		}
	}
	return newest
}

// coalesced explains a skip that promised a run.
func (t *writer) coalesced(promise *event.Event) {
	var next *event.Event
	for _, e := range t.begins[t.item] {
		newer := e.Trigger == 0 && e.Instant.After(t.fire.instant) && e.Time.After(t.fire.instant)
		if newer || (t.fire.trigger != 0 && e.Trigger > t.fire.trigger) {
			next = e
			break
		}
	}
	if next == nil {
		t.story.verdict = Pending
		t.report(KindNotRun, "not-begun", promise, nil)
		return
	}
	t.story.verdict = Coalesced
	if t.fire.trigger == 0 {
		t.report(KindNotRun, "did-not-run-for", promise, nil)
	} else {
		t.report(KindNotRun, "did-not-run", promise, nil)
		t.triggeredBy()
	}
	if owner, share := t.ownerAt(t.item, t.fire.instant); owner != nil && owner.id != promise.Host {
		t.wentFrom(owner.id, later(share.Time, t.fire.instant.Add(-lookBack)), promise.Time)
	}
	in := places{"next": next.Instant}
	if next.Trigger != 0 {
		in["next"] = message{"the-round", places{"n": next.Trigger}}
	}
	t.report(KindAgain, "ran-next", next, in)
}

// disabledBy says who disabled or removed what did not run.
func (t *writer) disabledBy(e *event.Event) {
	// It may have been enabled again since, before a host reported it.
	c := t.newest(sought{held: t.fire.instant, at: e.Time, item: t.item, host: e.Host, what: []string{"disable", "remove", "shutdown", "stop", "kill", "edit"}})
	if c != nil && (e.Time.Sub(c.Time) >= time.Hour || e.Because.Has(reason.ItemDisabled, reason.WasDisabled)) { // only what is disabled stays so
		c = t.newest(sought{held: t.fire.instant, at: e.Time, item: t.item, host: e.Host, what: []string{"disable"}})
	}
	if c != nil {
		t.add(t.changeClause(c))
		return
	}
	if c := t.wantedBy(t.fire.instant, t.item, e.Host); c != nil {
		t.add(t.changeClause(c))
		return
	}
	t.say(KindHistory, "by-unknown", time.Time{}, nil, e)
}

// wantedBy is the change, made up to a time, by which an item, or a host, does not run now, as the registry
// has it; item is noItem for none, host empty for any. Nil: it does not have it.
func (tl *timeline) wantedBy(at time.Time, item int, host string) *history.Change {
	for i := range tl.wanted {
		c := &tl.wanted[i]
		ofItem := c.Item == nil || *c.Item == item
		ofHost := c.Host == "" || host == "" || c.Host == tree.ServerOf(host)
		if ofItem && ofHost && !c.Time.After(at) {
			return c
		}
	}
	return nil
}

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
	item int       // -1: any; noItem: only what is of the whole job
	host string    // the instance that it has to concern; empty: any
	what []string  // what the operation begins with; "disable" is also a setting that does
}

// noItem is more than the number of any item.
const noItem = tree.MaxItems

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
		if ofHost && slices.ContainsFunc(s.what, func(w string) bool { return strings.HasPrefix(c.What, w) || (w == "disable" && disables(c)) }) {
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
	case disables(before) && c.From == event.FromFile && sets(c, "disabled"):
		return true
	case disables(before):
		return operation.Enable.Is(c.What) && sameItem(c.Item, before.Item) && (c.Host == "" || c.Host == before.Host)
	case operation.Shutdown.Is(before.What) || operation.Remove.Is(before.What):
		return operation.Restore.Is(c.What) || operation.Start.Is(c.What)
	}
	return false
}

// disables reports whether a change disables the job, or an item of it: by itself, or by the
// setting in a definition file. Where that setting is edited otherwise, servers stay as they are.
func disables(c *history.Change) bool {
	settings, _ := c.Settings()
	return operation.Disable.Is(c.What) || (c.From == event.FromFile &&
		slices.ContainsFunc(settings, func(s history.Setting) bool { return s.Name == "disabled" && s.After == "true" }))
}

// sets reports whether a change is of a setting.
func sets(c *history.Change, name string) bool {
	settings, edit := strings.CutPrefix(c.What, "edit ")
	return edit && slices.Contains(strings.Split(settings, ", "), name)
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
	in := places{"at": c.Time, "who": c.Who, "what": quoted{word{"what", c.What}}, "of": message{row: "change-of-job"}, "from": "", "states": "", "why": ""}
	switch {
	case c.Who == "":
		in["who"] = message{row: "user"}
	case c.From == event.FromFile || c.From == event.FromRegistry:
		in["who"] = report{text: c.Who, codes: reason.Parse(c.Who)}
	}
	if settings, edit := strings.CutPrefix(c.What, "edit "); edit {
		in["what"] = quoted{message{"what.edit", places{"settings": strings.Split(settings, ", ")}}}
	}
	switch {
	case c.Item != nil:
		in["of"] = message{"change-of-item", places{"item": *c.Item}}
	case c.Host != "":
		in["of"] = message{"change-on-host", places{"host": tl.name(c.Host)}}
	}
	if c.From != "" {
		in["from"] = message{"change-from", places{"from": word{"from", c.From}}}
	}
	if !operation.Create.Is(c.What) { // what a new job has says nothing of how it ran
		in["states"] = changeStates(c)
	}
	if c.Why != "" {
		why := places{"why": typed(strings.TrimRight(c.Why, "."))}
		if c.From == event.FromRegistry && operation.Enable.Is(c.What) { // by itself, perhaps
			why["why"] = report{text: c.Why, codes: reason.Parse(c.Why)}
		}
		in["why"] = message{"change-why", why}
	}
	return clause{kind: KindChange, time: c.Time, message: message{"change", in}, changes: []*history.Change{c}}
}

// changeStates is what was before a change and after it; of settings, each by its name.
func changeStates(c *history.Change) message {
	settings, ok := c.Settings()
	var list []message
	for _, s := range settings {
		in := places{"setting": typed(s.Name), "before": quoted{s.Before}, "after": quoted{s.After}}
		if s.Had {
			list = append(list, message{"change-setting", in})
		} else {
			list = append(list, message{"change-setting-new", in})
		}
	}
	in := places{"before": typed(c.Before), "after": typed(c.After)}
	switch {
	case ok && len(list) == 0, c.Before+c.After == "":
		return message{}
	case ok:
		return message{"change-settings", places{"settings": list}}
	case c.Before == "":
		return message{"change-state", in}
	case c.After == "":
		in["after"] = message{row: "nothing"}
	}
	return message{"change-states", in}
}

// refusals says what a host had refused of the job's files, and what stood against it.
func (t *writer) refusals(host string, until time.Time) {
	if c := t.refusal(func(id string) bool { return isOf(host, id) }, until); c != nil {
		t.add(*c)
	}
}

// refusal is the newest that hosts refused of the job, or of its files, up to a time, and that was not over
// by then; nil for nothing.
func (tl *timeline) refusal(by func(host string) bool, until time.Time) *clause {
	found := tl.between(time.Time{}, until, func(e *event.Event) bool {
		ofJob := e.Kind == event.JobError && e.Wait == ""
		ofFile := e.Kind == event.Refused && (slices.Contains(e.Jobs, tl.job) || strings.TrimSuffix(e.File, path.Ext(e.File)) == tl.job)
		return ((ofJob && !overcome(e, tl.byHost[e.Host], until)) || ofFile) && by(e.Host)
	})
	if len(found) == 0 {
		return nil
	}
	e := found[len(found)-1]
	what := message{row: "this-job"}
	if e.File != "" {
		what = message{"refused-file", places{"file": e.File}}
	}
	c := tl.shows(KindJob, "refused", e, places{"what": what})
	return &c
}

// overcome reports whether a host said by some time, among its events, that it refuses nothing of the job any
// more, after it had.
func overcome(refused *event.Event, events []*event.Event, until time.Time) bool {
	return slices.ContainsFunc(events, func(e *event.Event) bool {
		return e.Kind == event.JobConfigured && e.Reason == "" && e.Time.After(refused.Time) && !e.Time.After(until)
	})
}

// absent says of an item of which no event is known: no host had the job, its host had
// gone, or the histories do not show it.
func (t *writer) absent() {
	at := t.fire.instant
	t.story.verdict = Unknown
	if t.from.After(at) {
		t.say(KindNotRun, "unknown-before-history", t.from, places{"from": t.from})
		return
	}
	owner, share := t.ownerAt(t.item, at)
	if owner == nil && t.unanswering() {
		return
	}
	if t.fire.trigger == 0 && (t.noHost() || t.disabledThen()) {
		return
	}
	if owner == nil {
		t.say(KindNotRun, "unknown-host", at, nil)
		t.refusedThen(at)
		return
	}
	if t.notDueOn(owner.id) {
		return
	}
	from := later(share.Time, at.Add(-lookBack))
	in := places{"host": t.name(owner.id), "at": share.Time}
	gone := t.goneEvent(owner.id, share.Time)
	if gone == nil {
		t.say(KindNotRun, "unknown-silent", at, in, share)
	} else {
		in["ended"] = gone.Time
		t.say(KindNotRun, "unknown-gone", at, in, share, gone)
		if gone.Time.Before(from) {
			from = later(share.Time, gone.Time.Add(-time.Minute))
		}
	}
	t.wentFrom(owner.id, from, t.timeline.end())
	if gone == nil {
		t.lastWords(owner.id, at)
	}
	t.rescheduled()
}

// unanswering says that a host has the item that does not answer since about the instant, or
// later, if that is so.
func (t *writer) unanswering() bool {
	for i := range t.mute {
		u := &t.mute[i]
		if slices.Contains(u.Items, t.item) && t.fire.instant.After(u.Seen.Add(-lookBack)) {
			t.say(KindNotRun, "unknown-unanswering", t.fire.instant, places{"host": t.name(u.Host)})
			t.unanswered(u.Host)
			return true
		}
	}
	return false
}

// unanswered says that a host does not answer, if that is so, and what comes of it.
func (t *writer) unanswered(host string) {
	for _, u := range t.mute {
		if event.TermOf(u.Host) == event.TermOf(host) {
			t.say(KindHost, "unanswered", u.Seen, places{"host": t.name(u.Host), "seen": u.Seen})
		}
	}
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
	t.say(KindNotRun, "other-schedule", at, places{"host": t.name(id), "schedule": t.scheduleText(in.Settings), "at": in.Time}, in)
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
	t.say(KindNotRun, "disabled-then", at, nil)
	t.add(t.changeClause(c))
	return true
}

// enabledOnSome reports whether the job was enabled on a server alone between two times.
func (tl *timeline) enabledOnSome(from, to time.Time) bool {
	return slices.ContainsFunc(tl.changes, func(c *history.Change) bool {
		return c.Job == tl.job && c.Host != "" && operation.Enable.Is(c.What) && c.Time.After(from) && !c.Time.After(to)
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
	if others := t.others(v); others != "" {
		t.say(KindNotRun, "unknown-others", at, places{"are": message{row: others}}, v.left)
		t.leaver(v, "had-until")
		return true
	}
	t.story.verdict = NoHost
	events := []*event.Event{v.left}
	if v.came != nil {
		events = append(events, v.came)
	}
	t.say(KindNotRun, "no-host", at, nil, events...)
	t.leaver(v, "had-last")
	if v.came != nil {
		t.report(KindJob, "came-next", v.came, nil)
	}
	return true
}

// others names the text that says whether histories of other hosts are missing that may have had
// the job in a vacancy; empty for none. If histories may be missing, those that are here have to
// show that their hosts had all items when these were assigned last, and that there were more items
// than hosts: each other host would have had one.
func (t *writer) others(v vacancy) string {
	if !t.files && len(t.silent) == 0 && len(t.departed) == 0 {
		return ""
	}
	var last time.Time
	for _, m := range t.order {
		if e := m.shareAt(v.left.Time); e != nil {
			last = later(last, e.Time)
		}
	}
	s, _ := t.settingsAt(last)
	if s == nil {
		return "others.maybe"
	}
	assigned, hosts := make(map[int]bool), 0
	for _, m := range t.order {
		e := m.shareAt(last)
		if e == nil || m.spanAt(last) == nil {
			continue
		}
		hosts++
		for _, n := range e.Items {
			assigned[n] = true
		}
	}
	switch {
	case hosts == 0:
		return "others.maybe"
	case len(assigned) < s.Items:
		return "others.are"
	case s.Items <= hosts:
		return "others.maybe"
	}
	return ""
}

// leaver says, in a row of the table, which host had the job before a vacancy, and why it left.
func (t *writer) leaver(v vacancy, row string) {
	t.report(KindJob, row, v.left, places{"host": t.name(v.leaver.id), "because": message{because(v.left), places{"host": t.name(v.left.Host), "reason": reasonOf(v.left)}}})
	if who := t.leaving(v.left); who != nil {
		t.add(t.changeClause(who))
	}
	if v.left.Kind != event.JobRemoved && v.left.Kind != event.JobStopped {
		t.lastWords(v.leaver.id, v.left.Time)
	}
}

// because is the text of how an event ended a host's time in the job.
func because(e *event.Event) string {
	switch e.Kind {
	case event.HostStopped:
		return "because-stopped"
	case event.HostStarted:
		return "because-started"
	case event.HostGone:
		return "because-gone"
	case event.Session:
		return "because-session"
	}
	return "because"
}

// silence says which histories are missing, and that some were not read to the end.
func (tl *timeline) silence() (missing []Sentence) {
	say := func(row string, in places) {
		missing = append(missing, Sentence{Kind: KindHistory, Text: tl.write(tl.language, message{row, in}, group{items: tree.Items{-1}})})
	}
	if tl.partial {
		say("histories-partial", nil)
	}
	silent, gone := servers(tl.silent), servers(tl.goneWithHistory())
	if len(silent) > 0 {
		say("histories-silent", places{"hosts": silent})
	}
	gone = slices.DeleteFunc(gone, func(server string) bool { return slices.Contains(silent, server) })
	switch len(gone) {
	case 0:
	case 1:
		say("histories-gone-1", places{"hosts": gone})
	default:
		say("histories-gone", places{"hosts": gone})
	}
	departed := slices.DeleteFunc(servers(tl.departed), func(server string) bool {
		return slices.Contains(silent, server) || slices.Contains(gone, server)
	})
	if len(departed) > 0 {
		say("histories-departed", places{"hosts": departed})
	}
	return missing
}

// goneWithHistory are the hosts that others have seen to be gone about the fire or since, and of
// which there is no record.
func (tl *timeline) goneWithHistory() (ids []string) {
	if tl.fire.instant.IsZero() {
		return nil
	}
	recorded := make(map[string]bool) // by process
	for host := range tl.byHost {
		recorded[event.ProcessOf(host)] = true
	}
	for _, e := range tl.between(tl.fire.instant.Add(-lookBack), tl.end(), func(e *event.Event) bool { return e.Other != "" }) {
		if (e.Kind == event.HostGone || tl.fire.is(e)) && !recorded[event.ProcessOf(e.Other)] {
			ids = append(ids, e.Other)
		}
	}
	return ids
}

// servers are the addresses of hosts, each once.
func servers(ids []string) []string {
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = tree.ServerOf(id)
	}
	slices.Sort(list)
	return slices.Compact(list)
}
