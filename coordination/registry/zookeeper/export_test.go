package zookeeper

import (
	"context"
	"time"
)

// Expire ends a session as one that went silent for too long: it finds out by
// its clock, and then ZooKeeper lets its nodes go.
func (s *Session) Expire() {
	s.life.lose()
	s.link.conn.Close()
}

// WithClock gives a session another clock.
func (o Options) WithClock(clock func() time.Duration) Options {
	o.clock = clock
	return o
}

// BootClock is the clock that is used otherwise.
func BootClock() func() time.Duration { return bootClock() }

// WithLookup gives a session another way to find addresses.
func (o Options) WithLookup(lookup func(context.Context, string) ([]string, error)) Options {
	o.lookup = lookup
	return o
}

// LeastTimeout is leastTimeout.
func LeastTimeout(conf string) (time.Duration, bool) { return leastTimeout(conf) }

// ID is ZooKeeper's number of the session.
func (s *Session) ID() int64 { return s.link.conn.SessionID() }

// Failed is why a server could not be used, if one was found to be so.
func (s *Session) Failed() error { return s.dialer.servers.reason() }

// MostReads is mostReads.
const MostReads = mostReads
