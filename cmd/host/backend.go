package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/embedded"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/zookeeper"
	"github.com/wasmjob/wasmjob/host/admin"
	"github.com/wasmjob/wasmjob/host/ensemble"
	"github.com/wasmjob/wasmjob/words"
)

// Kinds of registries.
const (
	registryEmbedded  = "embedded"
	registryZooKeeper = "zookeeper"
	// zooKeeperScheme stands before ZooKeeper's servers in an address.
	zooKeeperScheme = registryZooKeeper + "://"
)

// backend is all that this package knows of a kind of registry. It is a value
// made of the configuration; nothing is connected.
type backend interface {
	// String names the registry for people.
	String() string
	// shared reports whether it outlives this process and other hosts use it:
	// it may be away, and sessions of it can be lost.
	shared() bool
	// servers are where it is reached, each HOST:PORT; none if it is not shared.
	servers() []string
	// open prepares sessions.
	open(opening) (*dialer, error)
	// denied reports whether an error of a session says that this client may not
	// do what it asked for.
	denied(err error) bool
}

// opening is what a backend reports to.
type opening struct {
	log *zap.Logger
	// operation, if not nil, counts requests by kind.
	operation func(kind string, n int)
	// waits is called with the reason why there is no session yet.
	waits func(why error)
}

// dialer makes sessions.
type dialer struct {
	// dial opens a session; it waits for it until ctx is done. renewed, if not nil,
	// is called whenever the session has proved to live; see zookeeper.Options.
	dial func(ctx context.Context, renewed func(sent, timeout time.Duration)) (session, error)
	// close gives back what sessions are made of.
	close func() error
}

// session is a session of any registry.
type session interface {
	registry.Center
	// about is what is known of it; nil if it cannot be lost.
	about() *admin.Session
}

// backend is the registry that the configuration names.
func (c *Config) backend() backend {
	if c.Registry == registryZooKeeper {
		return zooKeeperBackend{c.ZooKeeper}
	}
	return embeddedBackend{c.Data}
}

// parseRegistry checks what names a registry: its kind, or an address, whose
// ports it completes.
func parseRegistry(s string) (string, error) {
	kinds := []string{registryEmbedded, registryZooKeeper}
	servers, isAddress := strings.CutPrefix(s, zooKeeperScheme)
	switch {
	case strings.Contains(s, "@"): // it is not shown: a password is in it
		return "", errors.New("there are credentials in the address; want zookeeper://HOST:PORT,HOST:PORT/PATH, and --zk-credentials-file for them")
	case !isAddress && !slices.Contains(kinds, s):
		return "", fmt.Errorf("%q is not a registry; want embedded, zookeeper or zookeeper://HOST:PORT,HOST:PORT/PATH%s", words.Clip(s), words.Suggest(s, kinds))
	case !isAddress:
		return s, nil
	case strings.ContainsAny(servers, "?#"):
		return "", fmt.Errorf("%q has more than servers and a path; want zookeeper://HOST:PORT,HOST:PORT/PATH", words.Clip(s))
	}
	connect, err := ensemble.ParseConnect(servers)
	if err != nil {
		return "", fmt.Errorf("%q is not an address of ZooKeeper; want zookeeper://HOST:PORT,HOST:PORT/PATH: %w", words.Clip(s), err)
	}
	return zooKeeperScheme + connect, nil
}

// embeddedBackend is the registry in this process.
type embeddedBackend struct{ dir string }

func (b embeddedBackend) String() string {
	if b.dir == "" {
		return "embedded, in memory (--data DIR keeps it)"
	}
	return "embedded, in " + b.dir
}

func (embeddedBackend) shared() bool      { return false }
func (embeddedBackend) servers() []string { return nil }
func (embeddedBackend) denied(error) bool { return false }

func (b embeddedBackend) open(opening) (*dialer, error) {
	server, err := embedded.Open(embedded.Options{Dir: b.dir})
	if err != nil {
		return nil, err
	}
	dial := func(ctx context.Context, _ func(sent, timeout time.Duration)) (session, error) {
		c, err := server.Connect(ctx)
		if err != nil {
			return nil, err
		}
		return embeddedSession{c}, nil
	}
	return &dialer{dial: dial, close: server.Close}, nil
}

type embeddedSession struct{ registry.Center }

func (embeddedSession) about() *admin.Session { return nil }

// zooKeeperBackend is a registry on a ZooKeeper ensemble.
type zooKeeperBackend struct{ ensemble.Ensemble }

func (b zooKeeperBackend) String() string      { return "ZooKeeper, " + b.Connect }
func (zooKeeperBackend) shared() bool          { return true }
func (b zooKeeperBackend) servers() []string   { return b.Servers() }
func (zooKeeperBackend) denied(err error) bool { return errors.Is(err, zookeeper.ErrNoAuth) }

func (b zooKeeperBackend) open(o opening) (*dialer, error) {
	options, err := b.Options()
	if err != nil {
		return nil, err
	}
	options.Logger, options.OnOperation, options.OnWait = o.log, o.operation, o.waits
	dial := func(ctx context.Context, renewed func(sent, timeout time.Duration)) (session, error) {
		o.waits(fmt.Errorf("waiting for ZooKeeper at %s: no server has answered yet", b.Connect))
		options := options
		options.Renewed = renewed
		s, err := zookeeper.Dial(ctx, options)
		if err != nil {
			return nil, err // not a nil pointer in an interface
		}
		return zooKeeperSession{s}, nil
	}
	return &dialer{dial: dial, close: func() error { return nil }}, nil
}

type zooKeeperSession struct{ *zookeeper.Session }

func (s zooKeeperSession) about() *admin.Session {
	a := s.About()
	return &admin.Session{
		Server: a.Server, ID: fmt.Sprintf("0x%x", a.ID), Timeout: a.Timeout, Answered: time.Now().Add(-a.Age), Trust: a.Trust.String(),
		Reconnects: int64(max(1, a.Connections)) - 1,
	}
}
