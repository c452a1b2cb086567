package keeper

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/alert/store"
	"github.com/wasmjob/wasmjob/host/event"
)

// loop is the running dispatcher. It belongs to the goroutine in run; work in other goroutines reports back
// through the channel done.
type loop struct {
	s     *Dispatcher
	log   *zap.Logger
	ctx   context.Context // of what is done beside the loop; ends with it
	stop  context.CancelFunc
	wg    sync.WaitGroup
	done  chan func()
	judge *alert.Judge

	place   place
	leaves  bool                   // the host stops
	waiting []chan struct{}        // closed once it has left
	pending map[string]alert.Alert // to be written, by id
	checks  []alert.Check
	busy    bool      // a request to the registry is in flight
	retryAt time.Time // when to try the registry again
	trouble string    // its last refusal

	mail outbox
	// silences are those that this host has read last; they hold without a session, too.
	silences []alert.Silence
	// historyAt is when to ask the history how it fares.
	historyAt time.Time
}

// place is this host's place among those that look for alerts, for one session.
type place struct {
	id     string // empty: there is no session
	former []string
	board  *store.Board
	center registry.Center
	watch  <-chan registry.Snapshot
	end    context.CancelFunc // of the watch
	joined bool
	left   bool // this host will not be gone when it is
	seen   store.Seen
	// known says that seen was seen; read is the change that content shows.
	known     bool
	read      int64
	quiet     int64 // silences as of this change
	content   store.Content
	orphansAt time.Time // when to look for jobs without a host
	suspects  []string  // hosts that seem to be gone
	forget    []string  // hosts that are gone
	drop      []string  // alerts that are over and sent
	expired   []string  // silences
}

// keeps reports whether this host is the keeper. A host that was halted learns late that its session is over,
// after its guests have ended: so this asks the session.
func (p *place) keeps() bool {
	return p.joined && p.known && p.id != "" && p.seen.Keeper == p.id && !p.over()
}

// over reports whether the session is over: other hosts may have seen its nodes deleted.
func (p *place) over() bool {
	trust, _ := p.center.Trust()
	return trust == registry.TrustLost
}

func newLoop(s *Dispatcher, end context.Context) *loop {
	l := &loop{s: s, log: s.o.Logger, done: make(chan func()), pending: make(map[string]alert.Alert),
		judge: alert.NewJudge(s.o.Rules.File(), s.o.Server), mail: newOutbox()}
	l.ctx, l.stop = context.WithCancel(end)
	return l
}

// close joins what was begun.
func (l *loop) close() {
	l.stop()
	l.leaveSession()
	ended := make(chan struct{})
	go func() { // joined by the loop below
		defer close(ended)
		l.wg.Wait()
	}()
	for {
		select {
		case <-l.done:
		case <-ended:
			return
		}
	}
}

// beside runs work outside the loop; the loop then runs the returned function.
func (l *loop) beside(do func(ctx context.Context) (then func())) {
	l.wg.Go(func() {
		then := do(l.ctx)
		select {
		case l.done <- then:
		case <-l.ctx.Done():
		}
	})
}

// run is the loop.
func (l *loop) run(stop context.Context) {
	if l.s.o.History != nil {
		l.historyAt = time.Now().Add(historyEvery)
	}
	stopping := stop.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-stopping:
			stopping, l.leaves = nil, true
		case left := <-l.s.leaving:
			l.seeQueued() // the session that is to end may have begun there
			l.leaves, l.waiting = true, append(l.waiting, left)
		case e := <-l.s.queue:
			l.see(e)
			l.seeQueued()
		case <-l.s.o.Rules.Changed():
			l.judge.Use(l.s.o.Rules.File(), time.Now())
			if l.place.keeps() {
				l.keep()
			}
		case s, ok := <-l.place.watch:
			if !ok {
				l.place.watch = nil // the session is over, or about to be
				continue
			}
			l.look(s)
		case then := <-l.done:
			then()
		case <-timer.C:
		}
		now := time.Now()
		l.judge.Tick(now)
		l.askHistory(now)
		l.take()
		l.ask(now)
		l.noteLeft()
		next := l.send(now)
		l.report()
		timer.Reset(l.sleep(now, next))
	}
}

// seeQueued takes the events that wait.
func (l *loop) seeQueued() {
	for more := len(l.s.queue); more > 0; more-- {
		l.see(<-l.s.queue)
	}
}

// noteLeft lets the host end its session once the others know that it stops. Without a session there is nothing
// to wait for.
func (l *loop) noteLeft() {
	if l.place.id != "" && !l.place.left {
		return
	}
	for _, left := range l.waiting {
		close(left)
	}
	l.waiting = nil
}

// see takes an event.
func (l *loop) see(e event.Event) {
	if e.Kind == event.Session && e.Wait == "" {
		switch e.Reason {
		case event.SessionLive:
			if l.place.id != e.Host {
				l.enterSession(e.Host)
			}
			l.retryAt = time.Time{}
		case event.SessionLost:
			l.leaveSession()
		}
	}
	if p := &l.place; p.keeps() && (e.Kind == event.JobRemoved || e.Kind == event.JobConfigured) {
		p.orphansAt = soonest(p.orphansAt, time.Now().Add(orphansAfter))
	}
	l.judge.See(e)
}

// enterSession begins with the session that the host has.
func (l *loop) enterSession(id string) {
	l.leaveSession()
	center := l.s.o.Session()
	if center == nil {
		return // it is over already
	}
	p := &l.place
	p.id, p.center, p.board = id, center, store.Of(center, l.s.o.Namespace)
}

// leaveSession forgets what belongs to the session.
func (l *loop) leaveSession() {
	p := &l.place
	if p.end != nil {
		p.end()
	}
	former := p.former
	if p.id != "" {
		former = append(former, p.id)
	}
	l.place = place{former: former}
	l.checks = nil
}

// look takes a snapshot of the board.
func (l *loop) look(s registry.Snapshot) {
	p := &l.place
	kept, before := p.keeps(), p.seen.Cluster.Alive
	p.seen, p.known = p.board.See(s), true
	l.overlay()
	switch {
	case !p.keeps():
		if kept {
			p.orphansAt, p.content, p.read = time.Time{}, store.Content{}, 0
			l.judge.Orphans(nil, time.Now())
		}
		return
	case !kept:
		l.log.Info("this host sends the alerts of all")
		p.orphansAt = time.Now()
	case !slices.Equal(before, p.seen.Cluster.Alive): // a job's host has a session
		p.orphansAt = time.Now().Add(orphansAfter)
	}
	l.keep()
}

// overlay tells the judge which alerts exist: those of the board, and those still to be written.
func (l *loop) overlay() {
	active := make(map[string]bool)
	for _, id := range l.place.seen.Active {
		active[id] = true
	}
	for id, a := range l.pending {
		if a.Firing() {
			active[id] = true
		} else {
			delete(active, id)
		}
	}
	l.judge.Known(active)
}

// keep judges the hosts, once the board is read.
func (l *loop) keep() {
	p := &l.place
	if p.read == 0 || p.read != p.seen.Change {
		return
	}
	p.suspects = p.seen.Cluster.Gone()
	for i := range p.content.Alerts {
		a := &p.content.Alerts[i]
		if a.Firing() && a.OfHost && !slices.Contains(p.seen.Cluster.Alive, a.Host) && !slices.Contains(p.suspects, a.Host) && a.Host != "" {
			p.suspects = append(p.suspects, a.Host)
		}
	}
	if len(p.suspects) == 0 {
		l.judge.Keep(p.seen.Cluster, p.content.Alerts, time.Now())
	}
}

// take takes what the judge has found.
func (l *loop) take() {
	changes, checks := l.judge.Take()
	for _, c := range changes {
		level := zap.WarnLevel
		if !c.Firing() {
			level = zap.InfoLevel
		}
		l.log.Log(level, map[bool]string{true: "alert", false: "alert is over"}[c.Firing()], zap.String("rule", string(c.Rule)), given("job", c.Job), zap.String("text", c.Text), given("because", c.Why))
		if c.Local {
			l.mail.local(c.Alert)
		} else {
			l.found(c.Alert)
		}
	}
	l.checks = append(l.checks, checks...)
}

// found queues an alert to be written. An alert that ends before its begin was written is written with both.
func (l *loop) found(a alert.Alert) {
	if began, there := l.pending[a.ID]; there && began.Text != "" && !a.Firing() {
		began.Resolved, began.Why = a.Resolved, a.Why
		a = began
	} else if !a.Firing() {
		a.Text = ""
	}
	l.pending[a.ID] = a
}

// askHistory asks the history how it fares, when it is time.
func (l *loop) askHistory(now time.Time) {
	if l.historyAt.IsZero() || now.Before(l.historyAt) {
		return
	}
	l.historyAt = now.Add(historyEvery)
	problem, since := l.s.o.History()
	l.judge.History(problem, since, now)
}

// ask asks the next thing of the registry, if nothing is asked yet.
func (l *loop) ask(now time.Time) {
	p := &l.place
	if l.busy || p.board == nil || now.Before(l.retryAt) {
		return
	}
	if do := l.nextRequest(now); do != nil {
		l.busy = true
		b := p.board
		l.beside(func(ctx context.Context) func() {
			ctx, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			then, err := do(ctx, b)
			return func() {
				l.busy = false
				if l.place.board != b {
					return // of a session that is over
				}
				l.note(err)
				then(err)
			}
		})
	}
}

// note handles the end of a request.
func (l *loop) note(err error) {
	l.trouble = ""
	if err == nil {
		return
	}
	l.retryAt = time.Now().Add(retryPause)
	if errors.Is(err, registry.ErrSuspect) || errors.Is(err, registry.ErrSessionLost) || errors.Is(err, registry.ErrClosed) {
		return // the session's own alert reports it
	}
	l.trouble = err.Error()
	l.log.Warn("alerts: the registry refused; trying again", zap.Error(err), zap.Duration("after", retryPause))
}

// request asks something of the board. What it returns is done in the loop.
type request func(ctx context.Context, b *store.Board) (then func(error), err error)

// nextRequest is what is to be asked next; nil for nothing.
func (l *loop) nextRequest(now time.Time) request {
	p := &l.place
	switch {
	case l.leaves && !p.left:
		return l.leave()
	case l.leaves && !p.joined:
		return nil
	case !p.joined:
		return l.join()
	case p.known && p.seen.Keeper == "":
		return l.candidate()
	case len(l.pending) > 0:
		return l.write()
	case len(l.mail.marks) > 0:
		return l.mark()
	case len(p.suspects) > 0:
		return l.suspect()
	case len(p.forget) > 0:
		return l.bury()
	case p.known && !p.keeps() && p.quiet != p.seen.Change:
		return l.hush(p.seen.Change)
	case len(l.checks) > 0:
		return l.check()
	case p.keeps():
		return l.upkeep(now)
	}
	return nil
}

// upkeep returns the keeper's next request; nil for none.
func (l *loop) upkeep(now time.Time) request {
	p := &l.place
	switch {
	case p.read != p.seen.Change:
		return l.read(p.seen.Change)
	case len(p.drop) > 0:
		return l.discard()
	case len(p.expired) > 0:
		return l.unsilence()
	case !p.orphansAt.IsZero() && !now.Before(p.orphansAt):
		return l.orphans()
	}
	return nil
}

// candidate makes this host the keeper, if there is none.
func (l *loop) candidate() request {
	p := &l.place
	id := p.id
	return func(ctx context.Context, b *store.Board) (func(error), error) {
		return func(err error) {
			if err == nil && p.seen.Keeper == "" {
				p.seen.Keeper = unknown // until the next snapshot
			}
		}, b.Keep(ctx, id)
	}
}

// suspect checks whether hosts that seem to be gone are, and judges.
func (l *loop) suspect() request {
	p := &l.place
	suspects := p.suspects
	p.suspects = nil
	return func(ctx context.Context, b *store.Board) (func(error), error) {
		gone, crashed, err := b.Gone(ctx, suspects)
		return func(err error) {
			if err != nil || !p.keeps() {
				if p.keeps() {
					p.suspects = suspects
				}
				return
			}
			c := p.seen.Cluster
			for _, id := range suspects {
				if !slices.Contains(gone, id) {
					c.Alive = append(slices.Clip(c.Alive), id)
				}
			}
			c.Hosts = slices.DeleteFunc(slices.Clone(c.Hosts), func(id string) bool { return !slices.Contains(c.Alive, id) && !slices.Contains(crashed, id) })
			l.judge.Keep(c, p.content.Alerts, time.Now())
			p.forget = c.Gone()
		}, err
	}
}

// bury removes hosts that are gone.
func (l *loop) bury() request {
	gone := l.place.forget
	l.place.forget = nil
	return func(ctx context.Context, b *store.Board) (func(error), error) {
		return func(error) {}, b.Forget(ctx, gone)
	}
}

// discard removes alerts that are over and need no more messages.
func (l *loop) discard() request {
	p := &l.place
	over := p.drop
	p.drop = nil
	return func(ctx context.Context, b *store.Board) (func(error), error) {
		return func(err error) {
			if err == nil { // until it is read again
				p.content.Alerts = slices.DeleteFunc(p.content.Alerts, func(a alert.Alert) bool { return slices.Contains(over, a.ID) })
			}
		}, b.Drop(ctx, over)
	}
}

// unsilence takes silences away whose time is over.
func (l *loop) unsilence() request {
	over := l.place.expired
	l.place.expired = nil
	return func(ctx context.Context, b *store.Board) (func(error), error) {
		err := b.Unsilence(ctx, over...)
		if errors.Is(err, store.ErrNoSilence) {
			err = nil
		}
		return func(error) {}, err
	}
}

// unknown stands for the keeper during an election.
const unknown = "?"

// join takes part, and watches.
func (l *loop) join() request {
	p := &l.place
	id, former := p.id, slices.Clone(p.former)
	return func(ctx context.Context, b *store.Board) (func(error), error) {
		err := b.Join(ctx, id, former)
		return func(err error) {
			if err != nil {
				return
			}
			watched, cancel := context.WithCancel(l.ctx)
			if p.watch, err = p.center.Watch(watched, b.Watch()...); err != nil {
				cancel()
				l.note(err)
				return
			}
			p.end, p.joined, p.former = cancel, true, nil
		}, err
	}
}

// leave makes sure that this host will not count as gone.
func (l *loop) leave() request {
	p := &l.place
	ids := append(slices.Clone(p.former), p.id)
	return func(ctx context.Context, b *store.Board) (func(error), error) {
		return func(err error) { p.left = err == nil }, b.Forget(ctx, ids)
	}
}

// write writes what was found.
func (l *loop) write() request {
	writing := slices.SortedFunc(maps.Values(l.pending), func(a, b alert.Alert) int { return a.Since.Compare(b.Since) })
	return func(ctx context.Context, b *store.Board) (func(error), error) {
		err := b.Write(ctx, writing)
		full := errors.Is(err, store.ErrFull)
		return func(err error) {
			if err != nil && !full {
				return
			}
			for _, a := range writing {
				if now := l.pending[a.ID]; now.Firing() == a.Firing() {
					delete(l.pending, a.ID)
				}
			}
		}, err
	}
}

// mark notes what was sent.
func (l *loop) mark() request {
	m := l.mail.marks[0]
	return func(ctx context.Context, b *store.Board) (func(error), error) {
		return func(err error) {
			if err == nil { // until it is read again
				l.place.content.Alerts = l.mail.overlay(l.place.content.Alerts)
				l.mail.marks = slices.DeleteFunc(l.mail.marks, func(other *marks) bool { return other == m })
			}
		}, b.Sent(ctx, m.to, m.at, m.firing, m.over)
	}
}

// read reads the board.
func (l *loop) read(change int64) request {
	p := &l.place
	return func(ctx context.Context, b *store.Board) (func(error), error) {
		content, err := b.Read(ctx)
		return func(err error) {
			if err != nil || !p.keeps() {
				return
			}
			now := time.Now()
			l.mail.arrive(content.Alerts, now)
			p.content, p.read, p.quiet, l.silences = content, change, change, content.Silences
			l.overlay()
			l.keep()
			for _, s := range content.Silences {
				if now.After(s.Until) {
					p.expired = append(p.expired, s.ID)
				}
			}
		}, err
	}
}

// hush reads the silences, for a host that sends alerts that only it knows.
func (l *loop) hush(change int64) request {
	p := &l.place
	return func(ctx context.Context, b *store.Board) (func(error), error) {
		silences, err := b.Silences(ctx)
		return func(err error) {
			if err == nil {
				l.silences, p.quiet = silences, change
			}
		}, err
	}
}

// check looks at the items of a job.
func (l *loop) check() request {
	c := l.checks[0]
	l.checks = l.checks[1:]
	return func(ctx context.Context, b *store.Board) (func(error), error) {
		found, err := b.Look(ctx, l.s.o.Namespace, c)
		return func(err error) { l.judge.Checked(c, found, err, time.Now()) }, err
	}
}

// orphans finds jobs without a host, and removed jobs that have alerts.
func (l *loop) orphans() request {
	p := &l.place
	p.orphansAt = time.Time{}
	var named []string
	for _, a := range p.content.Alerts {
		if a.Firing() && a.Job != "" && !slices.Contains(named, a.Job) {
			named = append(named, a.Job)
		}
	}
	return func(ctx context.Context, b *store.Board) (func(error), error) {
		found, err := b.Orphans(ctx, l.s.o.Namespace)
		var items map[string]int
		if err == nil {
			items, err = b.Items(ctx, l.s.o.Namespace, named)
		}
		return func(err error) {
			p.orphansAt = time.Now().Add(orphansEvery)
			if err != nil {
				p.orphansAt = time.Now().Add(orphansAfter)
			} else if p.keeps() {
				l.judge.Orphans(found, time.Now())
				l.judge.Jobs(items, p.content.Alerts, time.Now())
			}
		}, err
	}
}

// sleep is how long there is nothing to do, if nothing happens.
func (l *loop) sleep(now, next time.Time) time.Duration {
	wait := time.Hour
	orphansAt := l.place.orphansAt
	if orphansAt.Before(l.retryAt) {
		orphansAt = time.Time{} // what is asked then is asked at retryAt
	}
	for _, at := range []time.Time{l.judge.Next(), next, l.historyAt, orphansAt, l.retryAt} {
		if at.IsZero() {
			continue
		}
		if d := at.Sub(now); d > 0 || at != l.retryAt {
			wait = min(wait, max(d, time.Millisecond))
		}
	}
	if l.busy { // what comes back wakes the loop
		return max(wait, 50*time.Millisecond)
	}
	return wait
}

// given is a field of a log entry, left out where it is empty: an alert about a host has no job.
func given(name, text string) zap.Field {
	if text == "" {
		return zap.Skip()
	}
	return zap.String(name, text)
}
