package zookeeper

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// The thresholds, as parts of the session timeout T after the send time of the
// last sync that was answered.
//
// Guests are cancelled so late that an outage of T/2 costs none: when it
// begins the last answer is about T/12 old, and when it ends T/24 is left to find a
// server and to ask it.
const (
	syncEvery    = 12 // a sync every T/12
	suspectAfter = 3  // T/3
)

// yieldAfter is 5T/8.
func yieldAfter(timeout time.Duration) time.Duration { return timeout / 8 * 5 }

// lostAfter is 2T/3: a leader that is cut off from its followers answers for up
// to (syncLimit + 1) × tickTime, of which T is to be three times at least.
func lostAfter(timeout time.Duration) time.Duration { return timeout / 3 * 2 }

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

// trust is what is known about the session's being alive.
type trust struct {
	timeout   atomic.Int64  // T as granted, 0: no session yet
	answered  atomic.Int64  // the session was alive at this time of the clock
	published atomic.Uint32 // the level that was reported

	mu      sync.Mutex
	ended   bool
	changed chan struct{} // closed when published changes
}

func (t *trust) init() { t.changed = make(chan struct{}) }

func (t *trust) granted() time.Duration { return time.Duration(t.timeout.Load()) }

// grant notes what the servers granted.
func (t *trust) grant(timeout time.Duration) { t.timeout.Store(int64(timeout)) }

// confirm notes that the session was alive at a time.
func (t *trust) confirm(at time.Duration) {
	for {
		old := t.answered.Load()
		if int64(at) <= old || t.answered.CompareAndSwap(old, int64(at)) {
			return
		}
	}
}

// renewed passes the newest proof of life on.
func (s *Session) renewed() {
	if s.o.Renewed != nil {
		s.o.Renewed(time.Duration(s.trust.answered.Load()), s.trust.granted())
	}
}

// level is how far the session can be trusted now.
func (t *trust) level(now time.Duration) registry.Trust {
	timeout, age := t.granted(), now-time.Duration(t.answered.Load())
	switch {
	case timeout == 0, age < timeout/suspectAfter:
		return registry.TrustLive
	case age < yieldAfter(timeout):
		return registry.TrustSuspect
	case age < lostAfter(timeout):
		return registry.TrustYield
	}
	return registry.TrustLost
}

// over reports that the level is TrustLost for ever.
func (t *trust) over() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	close(t.changed)
}

// reckon returns the level at this moment, and reports it if it is
// another one than before.
func (s *Session) reckon() registry.Trust {
	if s.stage.Load() != live {
		<-s.lost // it is being closed at this moment
		return registry.TrustLost
	}
	level := s.trust.level(s.o.clock())
	if level == registry.Trust(s.trust.published.Load()) {
		return level
	}
	return s.publish()
}

func (s *Session) publish() registry.Trust {
	t := &s.trust
	t.mu.Lock()
	level := t.level(s.o.clock())
	if level == registry.TrustLost {
		t.mu.Unlock()
		s.o.Logger.Debug("the ZooKeeper session is given up: no answer for too long", zap.Duration("timeout", t.granted()))
		s.lose()
		<-s.lost
		return level
	}
	defer t.mu.Unlock()
	was := registry.Trust(t.published.Load())
	if level != was && !t.ended {
		t.published.Store(uint32(level))
		close(t.changed)
		t.changed = make(chan struct{})
		s.o.Logger.Debug("trust in the ZooKeeper session", zap.Stringer("is", level), zap.Stringer("was", was))
	}
	return level
}

// Trust implements registry.Center.
func (s *Session) Trust() (registry.Trust, <-chan struct{}) {
	if s.reckon() == registry.TrustLost {
		return registry.TrustLost, nil
	}
	s.trust.mu.Lock()
	defer s.trust.mu.Unlock()
	if s.trust.ended {
		return registry.TrustLost, nil
	}
	return registry.Trust(s.trust.published.Load()), s.trust.changed
}

// Trusted implements registry.Center.
func (s *Session) Trusted() bool { return s.reckon() == registry.TrustLive }

// pulse asks ZooKeeper for a sign of life every T/12 and at every reconnect,
// reports the level when it changes by time, and leaves a server that does not
// answer while another one does.
func (s *Session) pulse() {
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
		level, changed := s.Trust()
		if level == registry.TrustLost {
			return
		}
		s.mu.Lock()
		up, moved := s.up, s.moved
		server := ""
		if s.wire != nil {
			server = s.wire.to
		}
		s.mu.Unlock()
		now, timeout := s.o.clock(), s.trust.granted()
		wait := s.untilNextLevel(now, timeout)
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
				s.spawn(func() {
					this.sent = s.o.clock()
					_, err := s.conn.Sync(s.real("/"))
					if s.expired(err) == nil {
						s.trust.confirm(this.sent)
						s.renewed()
						s.settle(this.sent)
						this.answered = true
					}
					select {
					case answers <- this:
					case <-s.lost:
					}
				})
			}
			wait = min(wait, last.sent+timeout/syncEvery-now)
			if len(asked) > 0 {
				age := now - asked[0].sent
				limit, leave := leaveAfter(timeout, late.heard, helpless)
				switch {
				case leave && age >= limit:
					s.o.Logger.Warn("a ZooKeeper server does not answer: trying another one", zap.String("server", server), zap.Duration("for", age))
					helpless = late.heard.same
					s.servers.prefer(late.heard.other)
					s.drop(up)
					late.end()
					asked = nil
					wait = min(wait, timeout/syncEvery)
				case leave:
					wait = min(wait, limit-age)
				case age >= askAfter(timeout) && late.from == nil:
					late = s.whoLives()
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
				helpless = helpless && s.o.clock()-a.sent >= askAfter(timeout)
			}
		case <-s.lost:
			return
		}
	}
}

// question is one to all servers, whether they live.
type question struct {
	from   <-chan string // who does, as in the list of servers; each may answer more than once
	cancel context.CancelFunc
	heard  signs
}

func (q *question) end() {
	if q.cancel != nil {
		q.cancel()
	}
	*q = question{}
}

// whoLives asks all servers for a sign of life, each on a connection of its own, again
// and again until that is given or the question is ended.
func (s *Session) whoLives() question {
	ctx, cancel := context.WithCancel(s.life)
	from := make(chan string)
	for _, server := range s.servers.all() {
		s.spawn(func() {
			for ctx.Err() == nil {
				if s.lives(ctx, server) {
					select {
					case from <- server:
					case <-ctx.Done():
					}
					return
				}
				pause := time.NewTimer(s.headStart(true, 0))
				select {
				case <-pause.C:
				case <-ctx.Done():
				}
				pause.Stop()
			}
		})
	}
	return question{from: from, cancel: cancel}
}

// lives reports whether a server answers one of ZooKeeper's four letter words: any
// answer will do, also that the word is not allowed.
func (s *Session) lives(ctx context.Context, server string) bool {
	found := s.try(ctx, "tcp", candidate{server: server})
	for _, address := range found.addresses {
		r := s.try(ctx, "tcp", candidate{server: server, address: address})
		if r.conn == nil {
			continue
		}
		ends := context.AfterFunc(ctx, func() { _ = r.conn.Close() })
		_ = r.conn.SetDeadline(time.Now().Add(s.patience()))
		_, err := r.conn.Write([]byte("ruok"))
		if err == nil {
			_, err = r.conn.Read(make([]byte, 1))
		}
		ends()
		_ = r.conn.Close()
		if err == nil {
			return true
		}
	}
	return false
}

// untilNextLevel is when the level gets worse unless an answer comes.
func (s *Session) untilNextLevel(now, timeout time.Duration) time.Duration {
	age := now - time.Duration(s.trust.answered.Load())
	for _, at := range []time.Duration{timeout / suspectAfter, yieldAfter(timeout), lostAfter(timeout)} {
		if at > age {
			return at - age
		}
	}
	return 0
}

// drop closes a connection; the client then makes another one.
func (s *Session) drop(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wire != nil && s.wires == n {
		_ = s.wire.Conn.Close()
	}
}
