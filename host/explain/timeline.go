package explain

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/i18n"
)

// timeline is what hosts reported about a job and about themselves, in the order of time.
type timeline struct {
	job      string
	now      time.Time
	from     time.Time
	events   []*event.Event
	changes  []*history.Change
	wanted   []history.Change // see Facts.Wanted
	current  *event.Settings  // those in force now, if they are known otherwise
	idle     Idle
	silent   []string
	mute     []Unanswering
	departed []string
	files    bool
	partial  bool
	members  map[string]*member // by instance id
	order    []*member          // as they came
	names    map[string]int     // how many instances of a server were in the job
	local    *time.Location     // this host's own zone, as it is about the time that is asked for
	location *time.Location     // of all times in the answer
	reader   *time.Location     // of who asks; nil if that is not said
	language i18n.Language
	fire     fire
	trigger  *history.Change           // that made the fire, if it is one of a trigger, and if that is known
	byHost   map[string][]*event.Event // events by their host
	common   []*event.Event            // those that are of no job
	begins   map[int][]*event.Event    // those that begin an item, by its number
}

// member is an instance that had the job.
type member struct {
	id    string
	spans []span
	// shares are the events that list its items.
	shares []*event.Event
}

// span is a time in which a host had the job.
type span struct {
	// begin is its first sign; known says that the host came to the job with it, and was not there before.
	begin *event.Event
	known bool
	// end is what ended it; nil while it goes on.
	end *event.Event
}

// newTimeline sorts the facts.
func newTimeline(job string, f Facts) *timeline {
	tl := &timeline{job: job, now: f.Now, from: f.From, current: f.Settings, idle: f.Idle, wanted: f.Wanted, silent: f.Silent, mute: f.Unanswering, files: f.Files, departed: f.Departed, partial: f.Partial, members: make(map[string]*member), names: make(map[string]int), local: time.UTC, location: time.UTC,
		byHost: make(map[string][]*event.Event), begins: make(map[int][]*event.Event)}
	for i := range f.Events {
		e := &f.Events[i]
		if e.Job == job || e.Job == "" {
			tl.events = append(tl.events, e)
		}
	}
	slices.SortStableFunc(tl.events, func(a, b *event.Event) int { return a.Time.Compare(b.Time) })
	for i := range f.Changes {
		if c := &f.Changes[i]; (c.Job == job || c.Job == "") && c.Error == "" {
			tl.changes = append(tl.changes, c)
		}
	}
	slices.SortStableFunc(tl.changes, func(a, b *history.Change) int { return a.Time.Compare(b.Time) })
	if tl.from.IsZero() && len(tl.events) > 0 {
		tl.from = tl.events[0].Time
	}
	for _, e := range tl.events {
		tl.take(e)
	}
	for _, m := range tl.order {
		tl.names[tree.ServerOf(m.id)]++
	}
	return tl
}

// take records what an event says about which host has the job.
func (tl *timeline) take(e *event.Event) {
	switch e.Kind {
	case event.Session:
		if e.Reason == event.SessionLost && e.Wait == "" {
			tl.close(e, e.Host)
		}
	case event.HostStopped, event.HostStarted: // another process of that name begins
		tl.close(e, e.Host)
	case event.HostGone:
		for _, m := range tl.order {
			if event.TermOf(m.id) == event.TermOf(e.Other) {
				m.close(e)
			}
		}
	}
	tl.byHost[e.Host] = append(tl.byHost[e.Host], e)
	if e.Job == "" {
		tl.common = append(tl.common, e)
	}
	if e.Job == "" || e.Host == "" {
		return
	}
	switch {
	case e.Kind == event.ItemStarted && e.Item != nil:
		tl.begins[*e.Item] = append(tl.begins[*e.Item], e)
	case e.Kind == event.FireStarted:
		for _, n := range e.Items {
			tl.begins[n] = append(tl.begins[n], e)
		}
	}
	m := tl.members[e.Host]
	if m == nil {
		m = &member{id: e.Host}
		tl.members[e.Host], tl.order = m, append(tl.order, m)
	}
	has := len(m.spans) > 0 && m.spans[len(m.spans)-1].end == nil
	switch e.Kind {
	case event.JobRemoved, event.JobStopped:
		if len(m.spans) == 0 { // it had the job: the events from before are missing
			m.spans = append(m.spans, span{begin: e})
		}
		m.close(e)
		return
	case event.JobError, event.OverQuota: // also of a host that has not joined
		return
	case event.Assigned:
		m.shares = append(m.shares, e)
	}
	if added := e.Kind == event.JobAdded; !has && (added || len(m.spans) == 0) {
		m.spans = append(m.spans, span{begin: e, known: added})
	}
}

// close ends the spans of the instances of a process or a term.
func (tl *timeline) close(e *event.Event, host string) {
	for _, m := range tl.order {
		if isOf(m.id, host) {
			m.close(e)
		}
	}
}

func (m *member) close(e *event.Event) {
	if n := len(m.spans); n > 0 && m.spans[n-1].end == nil {
		m.spans[n-1].end = e
	}
}

// isOf reports whether an instance belongs to a term or a process, whose id is the beginning of the instance's id.
func isOf(id, of string) bool {
	return of != "" && (id == of || strings.HasPrefix(id, of+"-"))
}

// spanAt returns the span in which the host had the job at a time; nil if it did not, as far as the events show.
func (m *member) spanAt(t time.Time) *span {
	for i := range m.spans {
		s := &m.spans[i]
		if !s.begin.Time.After(t) && (s.end == nil || s.end.Time.After(t)) {
			return s
		}
	}
	return nil
}

// shareAt returns the event that lists the host's items at a time.
func (m *member) shareAt(t time.Time) *event.Event {
	var found *event.Event
	for _, e := range m.shares {
		if !e.Time.After(t) {
			found = e
		}
	}
	return found
}

// ownerAt returns the host that had an item at a time, and the event that shows it. A host that was gone by then without
// a report still counts if no other host got the item.
func (tl *timeline) ownerAt(item int, t time.Time) (*member, *event.Event) {
	var owner *member
	var since *event.Event
	for _, m := range tl.order {
		e := m.shareAt(t)
		if e == nil || !slices.Contains(e.Items, item) || (since != nil && e.Time.Before(since.Time)) {
			continue
		}
		if left := m.leftBefore(e, t); !left {
			owner, since = m, e
		}
	}
	return owner, since
}

// leftBefore reports whether the host left the job in good order after an event, and
// by some time.
func (m *member) leftBefore(e *event.Event, t time.Time) bool {
	for _, s := range m.spans {
		if s.end != nil && !s.end.Time.Before(e.Time) && !s.end.Time.After(t) && (s.end.Kind == event.JobRemoved || s.end.Kind == event.JobStopped) {
			return true
		}
	}
	return false
}

// settingsAt returns the settings in force at a time, and the event that shows them, nil if they are the present ones.
func (tl *timeline) settingsAt(t time.Time) (*event.Settings, *event.Event) {
	var found *event.Event
	for _, e := range tl.events {
		if e.Kind == event.JobConfigured && e.Settings != nil && (found == nil || !e.Time.After(t)) {
			found = e
		}
	}
	if found != nil && (tl.current == nil || !found.Time.After(t)) {
		return found.Settings, found
	}
	return tl.current, nil
}

// configuredOn returns the event with the settings that a host used at a time; nil without one.
func (tl *timeline) configuredOn(id string, t time.Time) (in *event.Event) {
	for _, e := range tl.byHost[id] {
		if e.Kind == event.JobConfigured && e.Settings != nil && !e.Time.After(t) {
			in = e
		}
	}
	return in
}

// find returns the events of a kind, without a job, of the term or process of an instance, from one time to another.
func (tl *timeline) find(kind event.Kind, id string, from, to time.Time) []*event.Event {
	return within(tl.common, from, to, func(e *event.Event) bool { return e.Kind == kind && isOf(id, e.Host) })
}

// between are the events of a time, both ends included.
func (tl *timeline) between(from, to time.Time, wanted func(*event.Event) bool) []*event.Event {
	return within(tl.events, from, to, wanted)
}

// within are those of some events, in the order of time, that are of a time and wanted.
func within(events []*event.Event, from, to time.Time, wanted func(*event.Event) bool) []*event.Event {
	first, _ := slices.BinarySearchFunc(events, from, func(e *event.Event, t time.Time) int { return cmp.Or(e.Time.Compare(t), 1) })
	var found []*event.Event
	for _, e := range events[first:] {
		if e.Time.After(to) {
			break
		}
		if wanted(e) {
			found = append(found, e)
		}
	}
	return found
}

// goneEvent is the first event that says that an instance is gone, from some time on.
func (tl *timeline) goneEvent(id string, from time.Time) *event.Event {
	found := within(tl.common, from, tl.end(), func(e *event.Event) bool {
		return e.Kind == event.HostGone && event.TermOf(id) == event.TermOf(e.Other)
	})
	if len(found) == 0 {
		return nil
	}
	return found[0]
}

// lastBefore is the last event of an instance, its term or its process by some time.
func (tl *timeline) lastBefore(id string, t time.Time) *event.Event {
	var found *event.Event
	for host, events := range tl.byHost {
		if !isOf(id, host) {
			continue
		}
		n, _ := slices.BinarySearchFunc(events, t, func(e *event.Event, t time.Time) int { return cmp.Or(e.Time.Compare(t), -1) })
		if n == 0 {
			continue
		}
		if e := events[n-1]; found == nil || e.Time.After(found.Time) || (e.Time.Equal(found.Time) && len(host) > len(found.Host)) {
			found = e
		}
	}
	return found
}

// end is the time of the last event, or later.
func (tl *timeline) end() time.Time {
	if n := len(tl.events); n > 0 && tl.events[n-1].Time.After(tl.now) {
		return tl.events[n-1].Time
	}
	return tl.now
}
