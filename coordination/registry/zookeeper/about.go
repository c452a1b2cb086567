package zookeeper

import (
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// About is what operators want to know of a session.
type About struct {
	// ID is ZooKeeper's number of the session.
	ID int64
	// Server is the address of the server that has the session, as it was
	// dialled; empty while there is no connection.
	Server string
	// Timeout is what the servers have granted.
	Timeout time.Duration
	// Age is how long ago the question was sent that was answered last.
	Age time.Duration
	// Connections counts those that have had the session, the present one
	// included. Attempts that the server did not take are not counted.
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
