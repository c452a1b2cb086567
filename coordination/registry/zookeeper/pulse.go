package zookeeper

import (
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// A late answer may come from a dead server or from a slow one; all servers may be slow. A client that leaves a
// slow server for an equally slow one starts over, again and again, until the session is lost. So the session
// asks all servers for a sign of life, and leaves only if that helps; see leaveAfter.

// askAfter is how late an answer must be before all servers are asked for a sign of life: before the session is
// suspect, and after the next sync.
func askAfter(timeout time.Duration) time.Duration { return timeout / 6 }

// leaveAfter is how late an answer may be before the server is left; false if it is not left. If only others
// have given a sign of life, the server is gone. If it has given one itself, it is slow or cut off from its
// leader: it is left a little before the session is suspect, unless that did not help the last time. If none
// has, there is no server to change to.
func leaveAfter(timeout time.Duration, heard signs, helpless bool) (limit time.Duration, leave bool) {
	switch {
	case heard.others && !heard.same:
		return askAfter(timeout) + timeout/48, true
	case heard.same && !helpless:
		return timeout / 40 * 9, true
	}
	return 0, false
}

// signs says which servers have given a sign of life since an answer was late: the session's own, or others.
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

// run asks ZooKeeper for a sign of life every T/12 and at every reconnect, reports the level when it changes
// with time, and leaves a server that does not answer while another one does.
func (p *pulse) run() {
	type sign struct {
		of       uint64 // the connection
		sent     time.Duration
		answered bool
	}
	answers := make(chan sign)
	var asked []sign // unanswered, of the present connection, oldest first
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
		case <-changed: // reported by a caller that read the clock after a long sleep
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
