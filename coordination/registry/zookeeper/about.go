package zookeeper

import (
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// About describes a session for operators.
type About struct {
	// ID is ZooKeeper's number of the session.
	ID int64
	// Server is the address, as dialled, of the server that has the session; empty while there is no
	// connection.
	Server string
	// Timeout is the session timeout that the servers have granted.
	Timeout time.Duration
	// Age is the time since the last answered question was sent.
	Age time.Duration
	// Connections counts the connections that had the session, the present one included; failed attempts are
	// not counted.
	Connections uint64
	Trust       registry.Trust
}

// About returns what is known of the session at this moment.
func (s *Session) About() About {
	trust, _ := s.life.level()
	a := About{Timeout: s.life.trust.granted(), Age: s.o.clock() - time.Duration(s.life.trust.answered.Load()), Trust: trust}
	a.ID, a.Server, a.Connections = s.link.about()
	return a
}
