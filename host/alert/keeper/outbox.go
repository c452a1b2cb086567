package keeper

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/alert"
)

// outbox has the deliveries in progress, and their results.
type outbox struct {
	targets map[alert.Target]*delivery
	// own are the alerts about this host's own session, which only it sends.
	own []alert.Alert
	// marks are sent messages that are not noted on the board yet.
	marks        []*marks
	sent, failed int64
	// arrived is when the keeper first read the begin or end of an alert.
	arrived map[news]time.Time
}

// news is that an alert has begun or is over, at a time by the clock of who found it.
type news struct {
	id   string
	over bool
	at   time.Time
}

// arrive makes sure that no news is later than its first reading: the clock of the host that found it may be
// ahead.
func (o *outbox) arrive(alerts []alert.Alert, now time.Time) {
	arrived := make(map[news]time.Time)
	for i := range alerts {
		a := &alerts[i]
		at := &a.Since
		if !a.Firing() {
			at = &a.Resolved
		}
		n := news{a.ID, !a.Firing(), at.UTC()}
		first, known := o.arrived[n]
		if !known {
			first = now
		}
		arrived[n] = first
		if first.Before(*at) {
			*at = first
		}
		if !a.Firing() && a.Resolved.Before(a.Since) {
			a.Since = a.Resolved
		}
	}
	o.arrived = arrived
}

// delivery is the state of a target.
type delivery struct {
	busy     bool
	attempts int // in a row that failed
	since    time.Time
	retryAt  time.Time
	err      string
	partly   string // who did not get the newest message
	last     string // the group of the newest message
}

// marks are the alerts of a message that was taken.
type marks struct {
	to           alert.Target
	at           time.Time
	firing, over []string
}

func newOutbox() outbox { return outbox{targets: make(map[alert.Target]*delivery)} }

// local handles an alert that only this host knows.
func (o *outbox) local(a alert.Alert) {
	i := slices.IndexFunc(o.own, func(other alert.Alert) bool { return other.ID == a.ID })
	switch {
	case i < 0 && a.Firing():
		o.own = append(o.own, a)
	case i < 0:
	case a.Firing():
		o.own[i].Resolved, o.own[i].Text = time.Time{}, a.Text
	default:
		o.own[i].Resolved, o.own[i].Why = a.Resolved, a.Why
	}
}

// send plans messages and begins to send them. It returns when to plan again.
func (l *loop) send(now time.Time) (next time.Time) {
	f := l.s.o.Rules.File()
	l.mail.tidy(f)
	held := func(to alert.Target) bool {
		d := l.mail.targets[to]
		return d != nil && (d.busy || now.Before(d.retryAt))
	}
	p := alert.PlanNow(f, l.mail.own, l.silences, held, now)
	l.mail.own = slices.DeleteFunc(l.mail.own, func(a alert.Alert) bool { return slices.Contains(p.Done, a.ID) })
	next = p.Next
	var letters []letter
	for i := range p.Messages {
		letters = append(letters, letter{&p.Messages[i], true})
	}
	if l.place.keeps() && l.place.read != 0 {
		p := alert.PlanNow(f, l.mail.overlay(l.place.content.Alerts), l.silences, held, now)
		next = soonest(next, p.Next)
		for i := range p.Messages {
			letters = append(letters, letter{&p.Messages[i], false})
		}
		if l.place.read == l.place.seen.Change && len(l.mail.marks) == 0 {
			l.place.drop = p.Done
		}
	}
	for _, one := range l.mail.inTurn(letters) {
		if !held(one.message.Target()) {
			l.deliver(f, one.message, one.own)
		}
	}
	for _, d := range l.mail.targets {
		if !d.busy && now.Before(d.retryAt) {
			next = soonest(next, d.retryAt)
		}
	}
	return next
}

// letter is a message to be sent; own: about alerts that only this host knows.
type letter struct {
	message *alert.Message
	own     bool
}

// inTurn orders letters round-robin by group for each target, so that a group that a target rejects does not
// block the rest.
func (o *outbox) inTurn(letters []letter) []letter {
	behind := func(one letter) bool {
		d := o.targets[one.message.Target()]
		return d != nil && one.message.Group > d.last
	}
	slices.SortStableFunc(letters, func(a, b letter) int { return strings.Compare(a.message.Group, b.message.Group) })
	var first, then []letter
	for _, one := range letters {
		if behind(one) {
			first = append(first, one)
		} else {
			then = append(then, one)
		}
	}
	return append(first, then...)
}

// tidy forgets targets that the file does not have any more.
func (o *outbox) tidy(f *alert.File) {
	for to, d := range o.targets {
		route, receiver, _ := strings.Cut(string(to), "/")
		is := func(r alert.Route) bool { return r.Name == route && slices.Contains(r.To, receiver) }
		if !d.busy && !slices.ContainsFunc(f.Routes, is) {
			delete(o.targets, to)
		}
	}
}

// overlay returns the alerts of the board, with sent messages that are not noted there yet.
func (o *outbox) overlay(alerts []alert.Alert) []alert.Alert {
	if len(o.marks) == 0 {
		return alerts
	}
	all := slices.Clone(alerts)
	for i := range all {
		a := &all[i]
		for _, m := range o.marks {
			over := slices.Contains(m.over, a.ID)
			if over || slices.Contains(m.firing, a.ID) {
				a.Sent = with(a.Sent, m.to, alert.Sent{At: m.at, Resolved: over})
			}
		}
	}
	return all
}

// with is a copy of what was sent, and this.
func with(sent map[alert.Target]alert.Sent, to alert.Target, one alert.Sent) map[alert.Target]alert.Sent {
	all := map[alert.Target]alert.Sent{to: one}
	for other, s := range sent {
		if other != to {
			all[other] = s
		}
	}
	return all
}

// deliver sends a message beside the loop.
func (l *loop) deliver(f *alert.File, m *alert.Message, own bool) {
	receiver, known := f.Receivers[m.Receiver]
	if !known {
		return
	}
	to := m.Target()
	d := l.mail.targets[to]
	if d == nil {
		d = &delivery{}
		l.mail.targets[to] = d
	}
	d.busy, d.last = true, m.Group
	l.beside(func(ctx context.Context) func() {
		err := l.s.o.Send(ctx, receiver, m)
		at := time.Now()
		return func() { l.delivered(d, m, own, at, err) }
	})
}

// delivered takes what became of a message.
func (l *loop) delivered(d *delivery, m *alert.Message, own bool, at time.Time, err error) {
	d.busy = false
	_, partly := errors.AsType[*alert.PartlyError](err)
	if err != nil && !partly {
		l.mail.failed++
		if d.attempts == 0 {
			d.since = at
		}
		d.attempts++
		pause := min(shortestPause<<min(d.attempts-1, 10), longestPause)
		d.retryAt, d.err = at.Add(pause), err.Error()
		l.log.Warn("an alert was not sent; trying again", zap.String("to", string(m.Target())), zap.Int("attempt", d.attempts), zap.Duration("after", pause), zap.Error(err))
		return
	}
	l.mail.sent++
	before := *d
	*d = delivery{last: d.last}
	if partly {
		d.partly, d.since = err.Error(), at
		if before.partly != "" {
			d.since = before.since
		}
		l.log.Warn("an alert was not sent to all", zap.String("to", string(m.Target())), zap.Error(err))
	}
	firing, over := m.IDs()
	if !own {
		l.mail.marks = append(l.mail.marks, &marks{m.Target(), at, firing, over})
		return
	}
	for i := range l.mail.own {
		a := &l.mail.own[i]
		ended := slices.Contains(over, a.ID)
		if ended || slices.Contains(firing, a.ID) {
			a.Sent = with(a.Sent, m.Target(), alert.Sent{At: at, Resolved: ended})
		}
	}
}

// report makes the status.
func (l *loop) report() {
	st := Status{Keeper: l.place.keeps(), Firing: len(l.place.seen.Active) + len(l.mail.own), Sent: l.mail.sent, Failed: l.mail.failed, Problem: l.trouble}
	for to, d := range l.mail.targets {
		switch {
		case d.attempts > 0:
			st.Failing = append(st.Failing, Failing{to, d.since, d.attempts, d.err})
		case d.partly != "":
			st.Failing = append(st.Failing, Failing{to, d.since, 0, d.partly})
		}
	}
	slices.SortFunc(st.Failing, func(a, b Failing) int { return strings.Compare(string(a.Target), string(b.Target)) })
	var own []alert.Alert
	for _, a := range l.mail.own {
		if a.Firing() {
			a.Sent = maps.Clone(a.Sent)
			own = append(own, a)
		}
	}
	l.s.mu.Lock()
	l.s.status, l.s.own = st, own
	l.s.mu.Unlock()
}

func soonest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
