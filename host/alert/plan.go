package alert

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Message is what one receiver of one route gets now.
type Message struct {
	Route, Receiver string
	// Group is what the alerts have in common: "job report", "rule lost", or "".
	Group string
	// Firing are the group's current alerts, unsent ones first; New is how many those are. Over are those that
	// have ended.
	Firing []Alert
	New    int
	Over   []Alert
}

// Target is whom the message is for.
func (m *Message) Target() Target { return target(m.Route, m.Receiver) }

// IDs returns the ids of the alerts about which the message has news, or a repeat.
func (m *Message) IDs() (firing, over []string) {
	for _, a := range m.Firing {
		firing = append(firing, a.ID)
	}
	for _, a := range m.Over {
		over = append(over, a.ID)
	}
	return firing, over
}

func target(route, receiver string) Target { return Target(route + "/" + receiver) }

// Plan is what to do about the present alerts.
type Plan struct {
	Messages []Message
	// Done are ended alerts that need no more messages.
	Done []string
	// Next is when to plan again if nothing changes; zero for never.
	Next time.Time
}

// group are the alerts of a route that go into one message.
type group struct {
	route  *Route
	name   string
	alerts []*Alert
	// silent are silenced alerts: only their end is sent, to targets that know the begin.
	silent map[*Alert]bool
}

// PlanNow plans messages. Nothing is sent about silenced alerts. held are targets to skip now: a message to
// them is in flight, or one failed recently.
func PlanNow(f *File, alerts []Alert, silences []Silence, held func(Target) bool, now time.Time) Plan {
	var p Plan
	groups := make(map[string]*group)
	for i := range alerts {
		a := &alerts[i]
		routes := f.routes(a)
		silent := false
		for k := range silences {
			if s := &silences[k]; s.Covers(a, now) {
				silent = true
				p.lookAt(s.Until)
			}
		}
		if !a.Firing() && f.settled(a, routes, silent, held) {
			p.Done = append(p.Done, a.ID)
			continue
		}
		if silent && a.Firing() {
			continue
		}
		for _, r := range routes {
			name := r.groupOf(a)
			key := r.Name + "\x00" + name
			if groups[key] == nil {
				groups[key] = &group{route: r, name: name, silent: make(map[*Alert]bool)}
			}
			groups[key].silent[a] = silent
			groups[key].alerts = append(groups[key].alerts, a)
		}
	}
	var order []string
	for key := range groups {
		order = append(order, key)
	}
	slices.Sort(order)
	for _, key := range order {
		for _, receiver := range groups[key].route.To {
			p.add(groups[key], receiver, held, now)
		}
	}
	return p
}

// settled reports whether an ended alert needs no more messages. That is unknown while a message to one of its
// targets is in flight.
func (f *File) settled(a *Alert, routes []*Route, silent bool, held func(Target) bool) bool {
	for _, r := range routes {
		for _, receiver := range r.To {
			if to := target(r.Name, receiver); held(to) || r.unsaid(a, to, silent) {
				return false
			}
		}
	}
	return true
}

// unsaid reports whether a target still has to get the end of an alert: one that does not know the alert gets
// begin and end together.
func (r *Route) unsaid(a *Alert, to Target, silent bool) bool {
	sent, known := a.Sent[to]
	if !known {
		return !silent
	}
	return !sent.Resolved && r.Resolved
}

// groupOf names the group of an alert in a route.
func (r *Route) groupOf(a *Alert) string {
	var parts []string
	if slices.Contains(r.Group, "job") {
		what := "job " + a.Job
		if a.Job == "" {
			what = "hosts"
		}
		parts = append(parts, what)
	}
	if slices.Contains(r.Group, "rule") {
		parts = append(parts, "rule "+string(a.Rule))
	}
	return strings.Join(parts, ", ")
}

// lookAt plans again at a time.
func (p *Plan) lookAt(t time.Time) {
	if p.Next.IsZero() || t.Before(p.Next) {
		p.Next = t
	}
}

// add plans what a receiver gets of a group.
func (p *Plan) add(g *group, receiver string, held func(Target) bool, now time.Time) {
	r := g.route
	to := target(r.Name, receiver)
	m := Message{Route: r.Name, Receiver: receiver, Group: g.name}
	var fresh, old []Alert
	var due, last time.Time // of the oldest news, and of the newest message
	news := func(at time.Time) {
		if at = at.Add(r.Wait); due.IsZero() || at.Before(due) {
			due = at
		}
	}
	for _, a := range g.alerts {
		sent, known := a.Sent[to]
		switch {
		case a.Firing() && (!known || sent.Resolved):
			fresh = append(fresh, *a)
			news(a.Since)
		case a.Firing():
			old = append(old, *a)
			last = later(last, sent.At)
		case !a.Firing() && r.unsaid(a, to, g.silent[a]):
			m.Over = append(m.Over, *a)
			at := a.Resolved
			if !known {
				at = a.Since
			}
			news(at)
		}
	}
	if due.IsZero() && len(old) > 0 && r.Repeat > 0 {
		due = last.Add(r.Repeat)
	}
	if due.IsZero() {
		return
	}
	if now.Before(due) {
		p.lookAt(due)
		return
	}
	if held(to) {
		return
	}
	for _, list := range [][]Alert{fresh, old, m.Over} {
		slices.SortStableFunc(list, func(a, b Alert) int {
			return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Text, b.Text))
		})
	}
	m.Firing, m.New = slices.Concat(fresh, old), len(fresh)
	p.Messages = append(p.Messages, m)
}

// Test returns a test message to a receiver of a route.
func Test(r *Route, receiver string, now time.Time) Message {
	a := Alert{Rule: "test", Text: "this is a test of the route " + r.Name + ", nothing is wrong", Since: now}.named()
	return Message{Route: r.Name, Receiver: receiver, Group: "test", Firing: []Alert{a}, New: 1}
}

// PartlyError says that a message was accepted, but not for all recipients.
type PartlyError struct{ Err error }

func (e *PartlyError) Error() string { return "not sent to all: " + e.Err.Error() }
func (e *PartlyError) Unwrap() error { return e.Err }
