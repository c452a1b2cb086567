package zookeeper

import (
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// An answer that is late may come from a server that is gone, or from one that is
// slow: all of them may be. Who leaves a slow one for another that is no faster
// starts over there, and so on until the session is lost. So the session asks all
// servers for a sign of life, and leaves only if that helps; see leaveAfter.

// askAfter is when an answer is so late that all servers are asked for a sign of
// life: before anything is suspect, and later than the next sync.
func askAfter(timeout time.Duration) time.Duration { return timeout / 6 }

// leaveAfter is how late an answer may be before the server is left, by who has
// given a sign of life; false if it is not left. If only others have, the server is
// gone. If it has itself, what it waits for is slow, or it is cut off from its
// leader: it is left a little before anything is suspect, unless that was no help
// the last time. If none has, the session has nowhere to go.
func leaveAfter(timeout time.Duration, heard signs, helpless bool) (limit time.Duration, leave bool) {
	switch {
	case heard.others && !heard.same:
		return askAfter(timeout) + timeout/48, true
	case heard.same && !helpless:
		return timeout / 40 * 9, true
	}
	return 0, false
}

// signs says which servers have given a sign of life since an answer is late: the
// one that has the session, or others.
type signs struct {
	same, others bool
	other        string // one of them
}

// pulse has the ensemble prove that the session lives, again and again.
type pulse struct {
	o        *Options
	life     *life
	dialer   *dialer
	link     *link
	requests *requests
	claims   *claims
}

// run asks ZooKeeper for a sign of life every T/12 and at every reconnect,
// reports the level when it changes by time, and leaves a server that does not
// answer while another one does.
func (p *pulse) run() {
	type sign struct {
		of       uint64 // the connection
		sent     time.Duration
		answered bool
	}
	answers := make(chan sign)
	var asked []sign // without an answer, of the present connection, oldest first
	var last sign
	var late question // while asked[0] is late
	defer func() { late.end() }()
	helpless := false // another server was no faster
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		level, changed := p.life.level()
		if level == registry.TrustLost {
			return
		}
		up, newest, moved := p.link.present()
		server := ""
		if newest != nil {
			server = newest.to
		}
		now, timeout := p.o.clock(), p.life.trust.granted()
		wait := p.life.trust.untilNextLevel(now, timeout)
		if up == 0 || (len(asked) > 0 && asked[0].of != up) {
			asked = nil
		}
		if len(asked) == 0 {
			late.end()
		}
		if up != 0 {
			if last.of != up || now-last.sent >= timeout/syncEvery {
				last = sign{of: up, sent: now}
				asked = append(asked, last)
				this := last
				p.life.spawn(func() {
					this.sent = p.o.clock()
					_, err := p.link.conn.Sync(p.requests.real("/"))
					if p.life.expired(err) == nil {
						p.life.trust.confirm(this.sent)
						p.life.renewed()
						p.claims.settle(this.sent)
						this.answered = true
					}
					select {
					case answers <- this:
					case <-p.life.lost:
					}
				})
			}
			wait = min(wait, last.sent+timeout/syncEvery-now)
			if len(asked) > 0 {
				age := now - asked[0].sent
				limit, leave := leaveAfter(timeout, late.heard, helpless)
				switch {
				case leave && age >= limit:
					p.o.Logger.Warn("a ZooKeeper server does not answer: trying another one", zap.String("server", server), zap.Duration("for", age))
					helpless = late.heard.same
					p.dialer.servers.prefer(late.heard.other)
					p.link.drop(up)
					late.end()
					asked = nil
					wait = min(wait, timeout/syncEvery)
				case leave:
					wait = min(wait, limit-age)
				case age >= askAfter(timeout) && late.from == nil:
					late = p.dialer.whoLives()
				case late.from == nil:
					wait = min(wait, askAfter(timeout)-age)
				}
			}
		}
		timer.Reset(max(wait, time.Millisecond))
		select {
		case <-timer.C:
		case <-moved:
		case <-changed: // by somebody who looked at the clock after a long sleep
		case from := <-late.from:
			if from == server {
				late.heard.same = true
			} else {
				late.heard.others, late.heard.other = true, from
			}
		case a := <-answers:
			if a.answered && a.of == up {
				asked = nil // those before it are answered too, or never will be
				helpless = helpless && p.o.clock()-a.sent >= askAfter(timeout)
			}
		case <-p.life.lost:
			return
		}
	}
}
