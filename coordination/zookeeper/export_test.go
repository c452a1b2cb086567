package zookeeper

import "time"

// Expire ends a session as one that went silent for too long: it finds out by
// its clock, and then ZooKeeper lets its nodes go.
func (s *Session) Expire() {
	s.lose()
	s.conn.Close()
}

// WithClock gives a session another clock.
func (o Options) WithClock(clock func() time.Duration) Options {
	o.clock = clock
	return o
}

// BootClock is the clock that is used otherwise.
func BootClock() func() time.Duration { return bootClock() }
