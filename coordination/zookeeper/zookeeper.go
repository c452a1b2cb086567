// Package zookeeper is the registry on a ZooKeeper ensemble.
//
// A [Session] is one ZooKeeper session and implements
// registry.Center. The client below it is go-zookeeper/zk, which
// keeps the connection, finds another server when one is gone, and speaks the
// protocol. What a host's safety hangs on is done here:
//
//   - Trust is counted from the time at which the last answered sync was sent,
//     on a clock that also runs while the machine sleeps. Pings do not count: a
//     server that is cut off from its leader still answers them when the
//     session has ended elsewhere.
//   - No second session. The client would make a new one after the first has
//     ended; the connection does not let it.
//   - A commit that no caller waits for any more is not sent later. One that was
//     sent and not answered is looked into, and only what cannot be known
//     becomes registry.ErrUnknown.
//   - Watches are set by the reads of one dispatcher, and set again with a read
//     after every reconnect. Every event of the connection is taken note of
//     before the answers that follow it are.
package zookeeper

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
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
	// wrapping is what servers add to a request when they pass it on.
	wrapping = 1024
)

// ErrNoAuth says that the session's credentials do not allow what was asked.
// Nothing was written. It is a registry.ErrUnavailable.
var ErrNoAuth = fmt.Errorf("%w: access denied by ZooKeeper", registry.ErrUnavailable)

// Options say how to reach an ensemble.
type Options struct {
	// Connect is ZooKeeper's connect string: "host:port,host:port/chroot".
	// The port is 2181 unless given. All paths are below the chroot, which is
	// made if it does not exist. Names are looked up at every reconnect.
	Connect string
	// SessionTimeout is how long a silent session is kept, 40 s by default.
	// Servers may grant less or more; see Session.Timeout.
	SessionTimeout time.Duration
	// Credentials, "user:password", are those of digest authentication. With
	// them every node that is made gives all rights to this user and none to
	// anybody else; without them everybody has all rights.
	Credentials string
	// TLS, if not nil, is how to talk to the servers. The name to verify is
	// the one in Connect, unless ServerName is set.
	TLS *tls.Config
	// MaxRequest is the servers' jute.maxbuffer in bytes, 1 MiB less one byte
	// by default. What comes near it is refused before it is sent, since
	// servers just drop the connection.
	MaxRequest int
	// Logger receives connections and doubts; nil is silent.
	Logger *zap.Logger
	// OnOperation, if not nil, counts requests by kind, as they are sent:
	// "multi", "getData", "getChildren", "exists", "sync", "ping", "connect",
	// "auth", "close", "removeWatches". It is called from several goroutines and must not block.
	OnOperation func(op string, n int)
	// OnWait, if not nil, is called by Dial with why there is no session yet, at
	// first and then when the reason changes.
	OnWait func(err error)
	// Renewed, if not nil, is called when the ensemble has proved that the session
	// lives: it keeps the session, and the ephemeral nodes, for timeout from sent
	// on at least. sent is when the proof was asked for, on CLOCK_BOOTTIME on
	// Linux, else on a clock of the session's own. It is called from several
	// goroutines, first before Dial returns, last before Close does, and at times
	// with an older proof after a newer one. It must not block.
	Renewed func(sent, timeout time.Duration)

	// clock is the time since some start, also while asleep; lookup finds the
	// addresses of a name. Tests set them.
	clock  func() time.Duration
	lookup func(ctx context.Context, host string) ([]string, error)
}

// Dial opens a session. It waits until a server answers, however long that
// takes, or until ctx is done; then the error holds the last reason.
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
	s := newSession(o, chroot)
	s.acl = zk.WorldACL(zk.PermAll)
	if o.Credentials != "" {
		s.acl = zk.DigestACL(zk.PermAll, user, password)
	}
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

// connect gets the session going.
func (s *Session) connect(ctx context.Context, servers []string) error {
	conn, events, err := zk.Connect(servers, s.o.SessionTimeout,
		zk.WithDialer(s.dial),
		zk.WithHostProvider(&s.servers),
		zk.WithEventCallback(s.event),
		zk.WithLogger(quiet{s.o.Logger}),
		zk.WithMaxConnBufferSize(s.o.MaxRequest+wrapping),
	)
	if err != nil {
		return fmt.Errorf("zookeeper: %s: %w", s.o.Connect, err)
	}
	s.mu.Lock()
	s.conn = conn
	s.mu.Unlock()
	close(s.started)
	go func() {
		for range events { // the callback has them all; this channel drops some
		}
		close(s.finished)
	}()
	if err := s.begin(ctx); err != nil {
		if why := s.servers.reason(); why != nil && ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", why, err) // what can be mended first
		}
		return fmt.Errorf("zookeeper: no session with %s: %w", s.o.Connect, err)
	}
	return nil
}

// wantsSASL ends the error that the client makes of ZooKeeper's code
// SESSIONCLOSEDREQUIRESASLAUTH, which it does not know.
const wantsSASL = ": -124"

// begin waits for the first connection and prepares the session for use.
func (s *Session) begin(ctx context.Context) error {
	if _, err := s.connected(ctx, 0, false); err != nil {
		return err
	}
	s.spawn(s.pulse)
	if s.o.Credentials != "" {
		// The client gives them again after every reconnect.
		if _, err := retry(ctx, s, func() (struct{}, error) {
			return struct{}{}, s.conn.AddAuth("digest", []byte(s.o.Credentials))
		}); err != nil {
			return fmt.Errorf("authenticate: %w", err)
		}
	}
	// A server that wants another authentication grants a session, and ends each
	// connection at its first request.
	_, err := retry(ctx, s, func() (string, error) { return s.conn.Sync(s.real("/")) })
	if err != nil && strings.HasSuffix(err.Error(), wantsSASL) {
		return fmt.Errorf("%w: the servers ask for an authentication that this session has not: sessionRequireClientSASLAuth, or enforce.auth.schemes without digest; wasmjob speaks digest only (zkCredentialsFile)", ErrNoAuth)
	}
	if err != nil {
		return err
	}
	s.spawn(s.dispatch)
	if s.chroot != "" {
		if err := s.makeChroot(ctx); err != nil {
			return err
		}
	}
	s.spawn(s.examine)
	if granted := s.Timeout(); granted < s.o.SessionTimeout {
		s.o.Logger.Warn("ZooKeeper grants a shorter session than asked for: its maxSessionTimeout is lower",
			zap.Duration("asked", s.o.SessionTimeout), zap.Duration("granted", granted))
	}
	return nil
}

// examine asks the server for its limits and warns of a session that could end
// elsewhere before a server that is cut off stops answering syncs. Servers that do
// not tell, as they do by default, leave that to those who read the log.
func (s *Session) examine() {
	s.mu.Lock()
	w := s.wire
	s.mu.Unlock()
	if w == nil {
		return
	}
	text := s.limits(w)
	least, ok := leastTimeout(text)
	switch {
	case !ok:
		s.o.Logger.Info("the ZooKeeper server does not tell its limits; the session is to be at least 3 × (syncLimit + 1) × tickTime of the ensemble, 36s with the settings that ZooKeeper comes with",
			zap.Duration("session", s.Timeout()))
	case s.Timeout() < least:
		s.o.Logger.Warn("the ZooKeeper session is short for this ensemble: a host could be cut off and not know in time",
			zap.Duration("session", s.Timeout()), zap.Duration("expected at least", least))
	}
}

// limits is the server's answer to "conf", on a connection of its own; "" if there
// is none.
func (s *Session) limits(w *wire) string {
	ctx, cancel := context.WithTimeout(s.life, 5*time.Second)
	defer cancel()
	r := s.try(ctx, "tcp", candidate{server: w.to, address: w.RemoteAddr().String()})
	if r.conn == nil {
		return ""
	}
	defer r.conn.Close()
	defer context.AfterFunc(ctx, func() { _ = r.conn.Close() })()
	if _, err := io.WriteString(r.conn, "conf"); err != nil {
		return ""
	}
	text, err := io.ReadAll(r.conn)
	if err != nil && len(text) == 0 {
		return ""
	}
	return string(text)
}

// leastTimeout is 3 × (syncLimit + 1) × tickTime, from a server's answer to "conf";
// 0 if the server stands alone. A leader looks every tick whether its followers
// were heard of within syncLimit ticks, so it may take one more. ok is false if
// the answer has neither.
func leastTimeout(conf string) (least time.Duration, ok bool) {
	number := func(key string) (time.Duration, bool) {
		for line := range strings.SplitSeq(conf, "\n") {
			if value, ok := strings.CutPrefix(line, key+"="); ok {
				n, err := strconv.Atoi(strings.TrimSpace(value))
				if err == nil {
					return time.Duration(n), true
				}
			}
		}
		return 0, false
	}
	tick, ok := number("tickTime")
	limit, ensemble := number("syncLimit")
	if !ok || !ensemble {
		return 0, ok
	}
	return 3 * (limit + 1) * tick * time.Millisecond, true
}

// makeChroot makes the missing parts of the chroot.
func (s *Session) makeChroot(ctx context.Context) error {
	for i := 1; i <= len(s.chroot); i++ {
		if i < len(s.chroot) && s.chroot[i] != '/' {
			continue
		}
		path := s.chroot[:i]
		_, err := retry(ctx, s, func() (struct{}, error) {
			exists, _, err := s.conn.Exists(path)
			if err == nil && !exists {
				_, err = s.conn.Create(path, nil, zk.FlagPersistent, s.acl)
			}
			if errors.Is(err, zk.ErrNodeExists) {
				err = nil
			}
			return struct{}{}, err
		})
		if errors.Is(err, zk.ErrNoAuth) {
			return s.denied(path, "create")
		}
		if err != nil {
			return fmt.Errorf("chroot %s: %w", path, err)
		}
	}
	return nil
}

// denied words a lack of rights. path is below the chroot or the chroot's own.
func (s *Session) denied(path, deed string) error {
	if s.o.Credentials == "" {
		return fmt.Errorf("%w: %s %s: this session has no credentials; the node's ACL expects some", ErrNoAuth, deed, path)
	}
	user, _, _ := strings.Cut(s.o.Credentials, ":")
	return fmt.Errorf("%w: %s %s: the node's ACL does not know user %q with this password", ErrNoAuth, deed, path, user)
}

// quiet passes the client's own words on, for those who debug.
type quiet struct{ *zap.Logger }

func (q quiet) Printf(format string, args ...any) {
	q.Debug("zookeeper client: " + fmt.Sprintf(format, args...))
}
