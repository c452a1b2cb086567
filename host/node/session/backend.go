// Package session is where a host, or a command, gets its sessions with the registry
// from: it makes them, waits for them and says what for, and arms the timer that ends
// the process before a session ends.
package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/node/ensemble"
)

// Backend is all that this package knows of a kind of registry. It is a value
// made of the configuration; nothing is connected.
type Backend interface {
	// String names the registry for people.
	String() string
	// Shared reports whether it outlives this process and other hosts use it:
	// it may be away, and sessions of it can be lost.
	Shared() bool
	// Servers are where it is reached, each HOST:PORT; none if it is not shared.
	Servers() []string
	// Open prepares sessions.
	Open(Opening) (*Dialer, error)
	// Denied reports whether an error of a session says that this client may not
	// do what it asked for.
	Denied(err error) bool
}

// Opening is what a backend reports to.
type Opening struct {
	Log *zap.Logger
	// Operation, if not nil, counts requests by kind.
	Operation func(kind string, n int)
	// Waits is called with the reason why there is no session yet.
	Waits func(why error)
}

// Dialer makes sessions.
type Dialer struct {
	// Dial opens a session; it waits for it until ctx is done. renewed, if not nil,
	// is called whenever the session has proved to live; see zookeeper.Options.
	Dial func(ctx context.Context, renewed func(sent, timeout time.Duration)) (Session, error)
	// Close gives back what sessions are made of.
	Close func() error
}

// Session is a session of any registry.
type Session interface {
	registry.Center
	// About is what is known of it; nil if it cannot be lost.
	About() *report.Session
}

// Embedded is the registry in this process.
type Embedded struct{ Dir string }

// String implements [Backend].
func (b Embedded) String() string {
	if b.Dir == "" {
		return "embedded, in memory (--data DIR keeps it)"
	}
	return "embedded, in " + b.Dir
}

// Shared implements [Backend].
func (Embedded) Shared() bool { return false }

// Servers implements [Backend].
func (Embedded) Servers() []string { return nil }

// Denied implements [Backend].
func (Embedded) Denied(error) bool { return false }

// Open implements [Backend].
func (b Embedded) Open(Opening) (*Dialer, error) {
	server, err := embedded.Open(embedded.Options{Dir: b.Dir})
	if err != nil {
		return nil, err
	}
	dial := func(ctx context.Context, _ func(sent, timeout time.Duration)) (Session, error) {
		c, err := server.Connect(ctx)
		if err != nil {
			return nil, err
		}
		return embeddedSession{c}, nil
	}
	return &Dialer{Dial: dial, Close: server.Close}, nil
}

type embeddedSession struct{ registry.Center }

func (embeddedSession) About() *report.Session { return nil }

// ZooKeeper is a registry on a ZooKeeper ensemble.
type ZooKeeper struct{ ensemble.Ensemble }

// String implements [Backend].
func (b ZooKeeper) String() string { return "ZooKeeper, " + b.Connect }

// Shared implements [Backend].
func (ZooKeeper) Shared() bool { return true }

// Denied implements [Backend].
func (ZooKeeper) Denied(err error) bool { return errors.Is(err, zookeeper.ErrNoAuth) }

// Servers implements [Backend].
func (b ZooKeeper) Servers() []string { return b.Ensemble.Servers() }

// Open implements [Backend].
func (b ZooKeeper) Open(o Opening) (*Dialer, error) {
	options, err := b.Options()
	if err != nil {
		return nil, err
	}
	options.Logger, options.OnOperation, options.OnWait = o.Log, o.Operation, o.Waits
	dial := func(ctx context.Context, renewed func(sent, timeout time.Duration)) (Session, error) {
		o.Waits(fmt.Errorf("waiting for ZooKeeper at %s: no server has answered yet", b.Connect))
		options := options
		options.Renewed = renewed
		s, err := zookeeper.Dial(ctx, options)
		if err != nil {
			return nil, err // not a nil pointer in an interface
		}
		return zooKeeperSession{s}, nil
	}
	return &Dialer{Dial: dial, Close: func() error { return nil }}, nil
}

type zooKeeperSession struct{ *zookeeper.Session }

func (s zooKeeperSession) About() *report.Session {
	a := s.Session.About()
	return &report.Session{
		Server: a.Server, ID: fmt.Sprintf("0x%x", a.ID), Timeout: a.Timeout, Answered: time.Now().Add(-a.Age), Trust: a.Trust.String(),
		Reconnects: int64(max(1, a.Connections)) - 1,
	}
}
