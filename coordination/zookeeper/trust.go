package zookeeper

import (
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination"
)

// The thresholds, as parts of the session timeout T after the send time of the
// last sync that was answered.
//
// Guests are told to stop so late that an outage of T/2 costs none: when it
// begins the last answer is about T/12 old, and when it ends T/24 is left to find a
// server and to ask it.
const (
	syncEvery    = 12 // a sync every T/12
	suspectAfter = 3  // T/3
)

// yieldAfter is 5T/8.
func yieldAfter(timeout time.Duration) time.Duration { return timeout / 8 * 5 }

// lostAfter is 2T/3: a leader that is cut off from its followers answers for up
// to syncLimit × tickTime, of which T is to be three times at least.
func lostAfter(timeout time.Duration) time.Duration { return timeout / 3 * 2 }

// stuckAfter is when an answer is so late that another server is asked: before
// anything is suspect, and later than the next sync.
func stuckAfter(timeout time.Duration) time.Duration { return timeout / 6 }

// trust is what is known about the session's being alive.
type trust struct {
	timeout   atomic.Int64  // T as granted, 0: no session yet
	answered  atomic.Int64  // the session was alive at this time of the clock
	published atomic.Uint32 // the level that was told

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

// level is how far the session can be trusted now.
func (t *trust) level(now time.Duration) coordination.Trust {
	timeout, age := t.granted(), now-time.Duration(t.answered.Load())
	switch {
	case timeout == 0, age < timeout/suspectAfter:
		return coordination.TrustLive
	case age < yieldAfter(timeout):
		return coordination.TrustSuspect
	case age < lostAfter(timeout):
		return coordination.TrustYield
	}
	return coordination.TrustLost
}

// over tells that the level is TrustLost for ever.
func (t *trust) over() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	close(t.changed)
}

// reckon returns the level at this moment, and tells everybody if it is
// another one than before.
func (s *Session) reckon() coordination.Trust {
	if s.stage.Load() != live {
		<-s.lost // it is being closed at this moment
		return coordination.TrustLost
	}
	level := s.trust.level(s.o.clock())
	if level == coordination.Trust(s.trust.published.Load()) {
		return level
	}
	return s.publish()
}

func (s *Session) publish() coordination.Trust {
	t := &s.trust
	t.mu.Lock()
	level := t.level(s.o.clock())
	if level == coordination.TrustLost {
		t.mu.Unlock()
		s.o.Logger.Debug("the ZooKeeper session is given up: no answer for too long", zap.Duration("timeout", t.granted()))
		s.lose()
		<-s.lost
		return level
	}
	defer t.mu.Unlock()
	was := coordination.Trust(t.published.Load())
	if level != was && !t.ended {
		t.published.Store(uint32(level))
		close(t.changed)
		t.changed = make(chan struct{})
		s.o.Logger.Debug("trust in the ZooKeeper session", zap.Stringer("is", level), zap.Stringer("was", was))
	}
	return level
}

// Trust implements coordination.RegistryCenter.
func (s *Session) Trust() (coordination.Trust, <-chan struct{}) {
	if s.reckon() == coordination.TrustLost {
		return coordination.TrustLost, nil
	}
	s.trust.mu.Lock()
	defer s.trust.mu.Unlock()
	if s.trust.ended {
		return coordination.TrustLost, nil
	}
	return coordination.Trust(s.trust.published.Load()), s.trust.changed
}

// Trusted implements coordination.RegistryCenter.
func (s *Session) Trusted() bool { return s.reckon() == coordination.TrustLive }

// pulse asks ZooKeeper for a sign of life every T/12 and at every reconnect,
// tells the level when it changes by time, and leaves a server that does not
// answer while another one may.
func (s *Session) pulse() {
	type sign struct {
		of       uint64 // the connection
		sent     time.Duration
		answered bool
	}
	signs := make(chan sign)
	var asked []sign // without an answer, of the present connection, oldest first
	var last sign
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		level, changed := s.Trust()
		if level == coordination.TrustLost {
			return
		}
		s.mu.Lock()
		up, moved := s.up, s.moved
		s.mu.Unlock()
		now, timeout := s.o.clock(), s.trust.granted()
		wait := s.untilNextLevel(now, timeout)
		if up == 0 || len(asked) > 0 && asked[0].of != up {
			asked = nil
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
						s.settle(this.sent)
						this.answered = true
					}
					select {
					case signs <- this:
					case <-s.lost:
					}
				})
			}
			wait = min(wait, last.sent+timeout/syncEvery-now)
			if len(asked) > 0 {
				stuck := asked[0].sent + stuckAfter(timeout) - now
				if stuck <= 0 {
					s.o.Logger.Warn("a ZooKeeper server does not answer: trying another one", zap.Duration("for", now-asked[0].sent))
					s.drop(up)
					stuck = timeout / syncEvery
				}
				wait = min(wait, stuck)
			}
		}
		timer.Reset(max(wait, time.Millisecond))
		select {
		case <-timer.C:
		case <-moved:
		case <-changed: // by somebody who looked at the clock after a long sleep
		case a := <-signs:
			if a.answered && a.of == up {
				asked = nil // those before it are answered too, or never will be
			}
		case <-s.lost:
			return
		}
	}
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
