// Package zookeeper is the registry on a ZooKeeper ensemble.
//
// A [Session] is one ZooKeeper session and implements registry.Center. The client below it is go-zookeeper/zk,
// which keeps the connection, finds another server when one is gone, and speaks the protocol. This package does
// what a host's safety depends on:
//
//   - Trust is counted from the time at which the last answered sync was sent,
//     on a clock that also runs while the machine sleeps. Pings do not count: a
//     server that is cut off from its leader still answers them when the
//     session has ended elsewhere.
//   - No second session. The client would make a new one after the first has
//     ended; the connection does not let it.
//   - A commit whose caller has given up is not sent later. One that was
//     sent and not answered is resolved, and only if that is impossible it
//     becomes registry.ErrUnknown.
//   - Watches are set by the reads of one dispatcher, and set again with a read
//     after every reconnect. Every event of the connection is noted
//     before the answers that follow it.
//
// A session has these parts. Each has a state of its own, and calls only those before it:
//
//   - life: the stage of the session, the trust in it, and its goroutines.
//   - dialer: which server is tried when, and for how long.
//   - link: the connection of the moment. A wire is one connection as the client
//     sees it.
//   - requests: reads of single nodes, repeated after a reconnect. So many are on their way at once, those of
//     operators before others ([registry.Urgent]).
//   - watches: what callers watch, and the dispatcher.
//   - claims: which ephemeral nodes are made by commits whose outcome is open.
//   - commits: multis, one after the other, and the outcome of each.
//   - pulse: the syncs, and leaving a server that does not answer them.
//
// Four calls go the other way. The client reports events, which Session.event gives to life, link and watches.
// The wire asks commits whether a multi may be sent, and watches whether a read sets a watch. The end of life
// closes the watches. The dialer reports servers that refuse to link.
//
// A request waits for a connection and for its answer, until its context is done or the session ends. A commit
// waits until the one before it is on the wire, not for that one's answer. The dispatcher does not wait for
// callers, who get the newest snapshot only. Close waits for all goroutines. Locks are taken in the order life,
// watches or commits, link; trust, claims and servers are taken last. No goroutine waits while it holds one of
// them.
package zookeeper

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

const (
	defaultTimeout = 40 * time.Second
	// defaultMaxRequest is ZooKeeper's own jute.maxbuffer.
	defaultMaxRequest = 0xfffff
	// wrapping is how many bytes servers add to a request when they pass it on.
	wrapping = 1024
)

// ErrNoAuth says that the session's credentials do not allow what was asked.
// Nothing was written. It is a registry.ErrUnavailable.
var ErrNoAuth = fmt.Errorf("%w: access denied by ZooKeeper", registry.ErrUnavailable)

// Options are the arguments of [Dial].
type Options struct {
	// Connect is ZooKeeper's connect string: "host:port,host:port/chroot".
	// The port is 2181 unless given. All paths are below the chroot, which is
	// made if it does not exist. Names are looked up at every reconnect.
	Connect string
	// SessionTimeout is how long a silent session is kept, 40 s by default.
	// Servers may grant less or more; see Session.Timeout.
	SessionTimeout time.Duration
	// Credentials, "user:password", are used for digest authentication. With them only this user gets rights to
	// created nodes; without them everyone has all rights.
	Credentials string
	// TLS, if not nil, is how to talk to the servers. The name to verify is
	// the one in Connect, unless ServerName is set.
	TLS *tls.Config
	// MaxRequest is the servers' jute.maxbuffer in bytes, 1 MiB less one byte by default. A request near that
	// size is refused before it is sent, since servers just drop the connection.
	MaxRequest int
	// Logger logs connections and suspect sessions; nil logs nothing.
	Logger *zap.Logger
	// OnOperation, if not nil, counts requests by kind, as they are sent:
	// "multi", "getData", "getChildren", "exists", "sync", "ping", "connect",
	// "auth", "close", "removeWatches". It is called from several goroutines and must not block.
	OnOperation func(op string, n int)
	// OnWait, if not nil, is called by Dial with the reason why there is no session yet, first at once and then
	// when the reason changes.
	OnWait func(err error)
	// Renewed, if not nil, is called when the ensemble has proved that the session lives: the ensemble keeps
	// the session, and the ephemeral nodes, at least for timeout after sent. sent is when the proof was
	// requested, on CLOCK_BOOTTIME on Linux, elsewhere on a clock of the session's own. It is called from
	// several goroutines, first before Dial returns, last before Close does, and sometimes with an older proof
	// after a newer one. It must not block.
	Renewed func(sent, timeout time.Duration)

	// clock is the time since some start, also while the machine sleeps; lookup resolves a name. Tests set
	// them.
	clock  func() time.Duration
	lookup func(ctx context.Context, host string) ([]string, error)
}

// Dial opens a session. It waits without limit until a server answers, or until ctx is done; then the error has
// the last reason.
func Dial(ctx context.Context, o Options) (*Session, error) {
	servers, chroot, err := parseConnect(o.Connect)
	if err != nil {
		return nil, err
	}
	user, password, ok := strings.Cut(o.Credentials, ":")
	if o.Credentials != "" && (!ok || user == "") {
		return nil, errors.New(`zookeeper: credentials: expected "user:password"`)
	}
	o.SessionTimeout = cmp.Or(o.SessionTimeout, defaultTimeout)
	if o.SessionTimeout < time.Millisecond {
		return nil, fmt.Errorf("zookeeper: session timeout %v, expected at least 1ms", o.SessionTimeout)
	}
	o.MaxRequest = cmp.Or(o.MaxRequest, defaultMaxRequest)
	if o.MaxRequest < 4*wrapping {
		return nil, fmt.Errorf("zookeeper: requests of %d bytes, expected at least %d", o.MaxRequest, 4*wrapping)
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.clock == nil {
		o.clock = bootClock()
	}
	if o.lookup == nil {
		o.lookup = net.DefaultResolver.LookupHost
	}
	acl := zk.WorldACL(zk.PermAll)
	if o.Credentials != "" {
		acl = zk.DigestACL(zk.PermAll, user, password)
	}
	s := newSession(&o, chroot, acl)
	if err := s.connect(ctx, servers); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// parseConnect splits a connect string.
func parseConnect(text string) (servers []string, chroot string, err error) {
	list, path, ok := strings.Cut(text, "/")
	if ok && path != "" {
		chroot = "/" + path
		if err := registry.CheckPath(chroot); err != nil {
			return nil, "", fmt.Errorf("zookeeper: connect string %q: %w", text, err)
		}
	}
	for server := range strings.SplitSeq(list, ",") {
		server = strings.TrimSpace(server)
		if server == "" || strings.ContainsAny(server, " \t@?#") {
			return nil, "", fmt.Errorf(`zookeeper: connect string %q: server %q, expected "host:port,host:port/chroot"`, text, server)
		}
		servers = append(servers, server)
	}
	return zk.FormatServers(servers), chroot, nil
}

// quiet passes the client's log on at debug level.
type quiet struct{ *zap.Logger }

func (q quiet) Printf(format string, args ...any) {
	q.Debug("zookeeper client: " + fmt.Sprintf(format, args...))
}
