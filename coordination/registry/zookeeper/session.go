package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// Session is one session with an ensemble. It implements registry.Center with
// its parts, which the package's comment describes.
type Session struct {
	o *Options

	life     *life
	dialer   *dialer
	link     *link
	requests *requests
	watches  *watches
	commits  *commits
	pulse    *pulse

	closing sync.Mutex // held by Close
}

var _ registry.Center = (*Session)(nil)

func newSession(o *Options, chroot string, acl []zk.ACL) *Session {
	s := &Session{o: o}
	s.life = newLife(o)
	s.dialer = newDialer(o, s.life)
	s.link = newLink(o, s.life, s.dialer)
	s.requests = &requests{o: o, life: s.life, link: s.link, places: newPlaces(mostReads), chroot: chroot, acl: acl}
	s.watches = newWatches(o, s.requests)
	s.commits = newCommits(o, s.requests, s.watches)
	s.pulse = &pulse{o: o, life: s.life, dialer: s.dialer, link: s.link, requests: s.requests, claims: s.commits.claims}
	// Connections from a part to a later one.
	s.life.ended = s.watches.close
	s.link.admit, s.link.watched = s.commits.admit, s.watches.watched
	return s
}

// connect establishes the session.
func (s *Session) connect(ctx context.Context, servers []string) error {
	if err := s.link.open(servers, s.event); err != nil {
		return fmt.Errorf("zookeeper: %s: %w", s.o.Connect, err)
	}
	if err := s.begin(ctx); err != nil {
		if why := s.dialer.servers.reason(); why != nil && ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", why, err) // the cause that an operator can fix comes first
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
	if _, err := s.link.connected(ctx, 0, false); err != nil {
		return err
	}
	s.life.spawn(s.pulse.run)
	if s.o.Credentials != "" {
		// The client gives them again after every reconnect.
		if _, err := retry(ctx, s.link, func() (struct{}, error) {
			return struct{}{}, s.link.conn.AddAuth("digest", []byte(s.o.Credentials))
		}); err != nil {
			return fmt.Errorf("authenticate: %w", err)
		}
	}
	// A server that wants another authentication grants a session, and closes each connection at its first
	// request.
	err := s.requests.sync(ctx)
	if err != nil && strings.HasSuffix(err.Error(), wantsSASL) {
		return fmt.Errorf("%w: the servers ask for an authentication that this session has not: sessionRequireClientSASLAuth, or enforce.auth.schemes without digest; wasmjob speaks digest only (zkCredentialsFile)", ErrNoAuth)
	}
	if err != nil {
		return err
	}
	s.life.spawn(s.watches.dispatch)
	if s.requests.chroot != "" {
		if err := s.requests.makeChroot(ctx); err != nil {
			return err
		}
	}
	s.life.spawn(s.examine)
	if granted := s.life.trust.granted(); granted < s.o.SessionTimeout {
		s.o.Logger.Warn("ZooKeeper grants a shorter session than asked for: its maxSessionTimeout is lower",
			zap.Duration("asked", s.o.SessionTimeout), zap.Duration("granted", granted))
	}
	return nil
}

// examine asks the server for its limits and warns if the session timeout is so short that the session could
// end elsewhere while a server that is cut off still answers syncs. Servers do not answer by default; then the
// log says what the timeout should be.
func (s *Session) examine() {
	_, w, _ := s.link.present()
	if w == nil {
		return
	}
	text := s.dialer.conf(w.to, w.RemoteAddr().String())
	least, ok := leastTimeout(text)
	switch {
	case !ok:
		s.o.Logger.Info("the ZooKeeper server does not tell its limits; the session is to be at least 3 × (syncLimit + 1) × tickTime of the ensemble, 36s with the settings that ZooKeeper comes with",
			zap.Duration("session", s.life.trust.granted()))
	case s.life.trust.granted() < least:
		s.o.Logger.Warn("the ZooKeeper session is short for this ensemble: a host could be cut off and not know in time",
			zap.Duration("session", s.life.trust.granted()), zap.Duration("expected at least", least))
	}
}

// leastTimeout returns 3 × (syncLimit + 1) × tickTime, from a server's answer to "conf"; 0 for a standalone
// server. A leader checks every tick whether its followers have answered within syncLimit ticks, so it may take
// one more. ok is false if the answer has neither.
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

// event is called by the client for every event, before it handles any answer
// that came later. It must not block.
func (s *Session) event(e zk.Event) {
	switch e.Type {
	case zk.EventSession:
		switch e.State {
		case zk.StateHasSession:
			s.watches.allTouched()
			s.link.setUp(true)
		case zk.StateDisconnected:
			s.link.setUp(false)
		case zk.StateExpired:
			s.o.Logger.Warn("ZooKeeper says that the session is over")
			s.life.lose()
		case zk.StateAuthFailed:
			s.o.Logger.Error("ZooKeeper refuses the way of authentication")
		}
	case zk.EventNodeCreated, zk.EventNodeDeleted, zk.EventNodeDataChanged, zk.EventNodeChildrenChanged:
		s.watches.touched(e.Path, e.Type)
	}
}

// Trust implements registry.Center.
func (s *Session) Trust() (registry.Trust, <-chan struct{}) { return s.life.level() }

// Trusted implements registry.Center.
func (s *Session) Trusted() bool { return s.life.trusted() }

// Read implements registry.Center. All queries are sent without
// waiting for answers in between, as far as fewer than mostReads of the session are on their way; they are asked
// again if the connection is lost.
func (s *Session) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	if err := s.life.ready(ctx, "read"); err != nil {
		return nil, err
	}
	for _, q := range queries {
		if err := registry.CheckPath(q.Path); err != nil {
			return nil, err
		}
	}
	denied := unreadable{of: make(map[registry.Query]error)}
	nodes, err := parallel(ctx, s.life, queries, func(ctx context.Context, q registry.Query) (registry.Node, error) {
		node, err := s.requests.fetch(ctx, q)
		return node, denied.note(q, err)
	})
	if err == nil && len(denied.of) > 0 {
		for q := range denied.of {
			s.watches.hidden(q.Path)
		}
		return nodes, &registry.UnreadableError{Denied: denied.of}
	}
	if err != nil && ctx.Err() != nil && s.life.over() == nil {
		err = fmt.Errorf("registry: read: %w", err)
	}
	return nodes, err
}

// Watch implements registry.Center. It returns with the first snapshot. A watch of k queries costs k watches at
// the server, minus those that this session has on the same nodes.
func (s *Session) Watch(ctx context.Context, queries ...registry.Query) (<-chan registry.Snapshot, error) {
	if err := s.life.ready(ctx, "watch"); err != nil {
		return nil, err
	}
	for _, q := range queries {
		if err := registry.CheckPath(q.Path); err != nil {
			return nil, err
		}
	}
	return s.watches.watch(ctx, queries)
}

// Commit implements registry.Center. It is one multi; [Ensure] costs nothing if the node exists, and otherwise
// one failed multi and a read. If the connection breaks after the multi was sent, it waits for the next one and
// resolves the outcome.
//
// [Ensure]: https://pkg.go.dev/github.com/wasmjob/wasmjob/coordination#Ensure
func (s *Session) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	if err := s.life.ready(ctx, "commit"); err != nil {
		return nil, err
	}
	if !s.Trusted() {
		return nil, s.life.doubted()
	}
	if err := registry.CheckOps(ops); err != nil {
		return nil, err
	}
	if len(ops) == 0 {
		return nil, nil
	}
	results, err := s.commits.commit(ctx, ops)
	var denied *registry.DeniedError
	if errors.As(err, &denied) {
		s.watches.hidden(denied.Op.Path)
	}
	return results, err
}

// Lost implements registry.Center. Close closes it too.
func (s *Session) Lost() <-chan struct{} { return s.life.lost }

// Timeout is how long the servers keep this session when it is silent, as granted; 0 before that.
func (s *Session) Timeout() time.Duration { return s.life.trust.granted() }

// Close implements registry.Center. If no server can be reached it returns anyway; the ephemeral nodes are
// deleted after the session timeout.
func (s *Session) Close() error {
	s.closing.Lock()
	defer s.closing.Unlock()
	trusted := s.life.reckon() != registry.TrustLost
	s.life.leave(closed)
	s.link.close(trusted)
	s.life.work.Wait()
	return nil
}
