package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// The stages of a session's life. It only ever goes forward.
const (
	live int32 = iota
	lost
	closed
)

// closePatience is how long Close waits for the server to confirm.
const closePatience = 5 * time.Second

// Session is one session with an ensemble. It implements
// registry.Center.
type Session struct {
	o      Options
	chroot string // "" or "/path"
	acl    []zk.ACL

	servers  servers
	started  chan struct{} // closed when conn is set
	finished chan struct{} // closed when the client has ended
	life     context.Context
	end      context.CancelFunc // of life
	dialing  context.Context
	stopDial context.CancelFunc
	closing  sync.Mutex // held by Close

	trust trust
	stage atomic.Int32  // written under mu
	lost  chan struct{} // closed when stage leaves live

	work    sync.WaitGroup // goroutines of this package; none is added once stage left live
	handoff chan struct{}  // holds one value while a multi is on its way to the wire
	zxid    atomic.Int64   // the newest that an answer had

	mu      sync.Mutex
	conn    *zk.Conn
	wire    *wire                // the newest connection
	wires   uint64               // how many there were, those that the server never answered included
	joined  uint64               // how many of them have had the session
	up      uint64               // which of them has the session, 0 if none
	moved   chan struct{}        // closed when up changes
	id      int64                // ZooKeeper's number of the session, 0: none yet
	ticket  *ticket              // of the multi on its way to the wire
	makes   map[string][]*ticket // who makes an ephemeral node; see claim
	doubts  []doubt
	entries map[registry.Query]*entry
	stale   map[*entry]struct{} // entries whose node may have changed
	watches map[*watch]struct{}
	wake    chan struct{} // wakes the dispatcher: stale or forgotten is not empty
	// forgotten are the paths that somebody has ceased to watch.
	forgotten map[string]struct{}
}

var _ registry.Center = (*Session)(nil)

func newSession(o Options, chroot string) *Session {
	s := &Session{
		o: o, chroot: chroot,
		started: make(chan struct{}), finished: make(chan struct{}), lost: make(chan struct{}),
		handoff: make(chan struct{}, 1), moved: make(chan struct{}), wake: make(chan struct{}, 1),
		makes:   make(map[string][]*ticket),
		entries: make(map[registry.Query]*entry),
		stale:   make(map[*entry]struct{}),
		watches: make(map[*watch]struct{}), forgotten: make(map[string]struct{}),
	}
	s.servers.tell = s.waiting
	s.life, s.end = context.WithCancel(context.Background())
	s.dialing, s.stopDial = context.WithCancel(context.Background())
	s.trust.init()
	return s
}

// over returns the error of a session that ended.
func (s *Session) over() error {
	switch s.stage.Load() {
	case lost:
		return registry.ErrSessionLost
	case closed:
		return registry.ErrClosed
	}
	return nil
}

// ready is the first look of every method.
func (s *Session) ready(ctx context.Context, deed string) error {
	if s.reckon() == registry.TrustLost {
		return s.over()
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("registry: %s: %w", deed, err)
	}
	return nil
}

// spawn runs f in a goroutine that Close waits for; false if it is too late.
func (s *Session) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stage.Load() != live {
		return false
	}
	s.work.Go(f)
	return true
}

// event is called by the client for every event, before it handles any answer
// that came later. It must not block.
func (s *Session) event(e zk.Event) {
	switch e.Type {
	case zk.EventSession:
		switch e.State {
		case zk.StateHasSession:
			s.setUp(true)
		case zk.StateDisconnected:
			s.setUp(false)
		case zk.StateExpired:
			s.o.Logger.Warn("ZooKeeper says that the session is over")
			s.lose()
		case zk.StateAuthFailed:
			s.o.Logger.Error("ZooKeeper refuses the way of authentication")
		}
	case zk.EventNodeCreated, zk.EventNodeDeleted, zk.EventNodeDataChanged, zk.EventNodeChildrenChanged:
		s.touched(e.Path, e.Type)
	}
}

// setUp notes that the newest connection has the session, or has it no more.
func (s *Session) setUp(up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := uint64(0)
	if up {
		n = s.wires
		s.allTouched()
	}
	if s.up == n {
		return
	}
	if up {
		s.joined++
	}
	if s.stage.Load() == live {
		if up {
			s.o.Logger.Info("connected to ZooKeeper", zap.String("server", s.wire.to), zap.Int64("session", s.id))
		} else {
			s.o.Logger.Info("the connection to ZooKeeper is lost", zap.String("server", s.wire.to))
		}
	}
	s.up = n
	close(s.moved)
	s.moved = make(chan struct{})
}

// connected waits for a connection that has the session and is newer than
// after, and returns its number. With guarded set it also gives up when the
// session is no longer trusted.
func (s *Session) connected(ctx context.Context, after uint64, guarded bool) (uint64, error) {
	for {
		var changed <-chan struct{}
		if guarded {
			var level registry.Trust
			if level, changed = s.Trust(); level != registry.TrustLive {
				return 0, s.doubted()
			}
		}
		s.mu.Lock()
		up, moved := s.up, s.moved
		s.mu.Unlock()
		if err := s.over(); err != nil {
			return 0, err
		}
		if up > after {
			return up, nil
		}
		select {
		case <-moved:
		case <-changed:
		case <-s.lost:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// doubted is the error of a commit while the session is not trusted.
func (s *Session) doubted() error {
	if err := s.over(); err != nil {
		return err
	}
	return registry.ErrSuspect
}

// lossy reports whether an error of the client says no more than that the
// connection is gone.
func lossy(err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, zk.ErrConnectionClosed), errors.Is(err, zk.ErrNoServer), errors.Is(err, zk.ErrClosing), errors.Is(err, zk.ErrSessionMoved):
		return true
	}
	var network interface{ Timeout() bool }
	return errors.As(err, &network) || errors.Is(err, errRefused)
}

// answer is what a call of the client came to.
type answer[T any] struct {
	value T
	err   error
}

// call runs a call of the client, which knows no context, and waits for it, for
// ctx, or for the session's end. What it left behind ends with the connection.
func call[T any](ctx context.Context, s *Session, f func() (T, error)) (T, error) {
	var none T
	done := make(chan answer[T], 1)
	if !s.spawn(func() {
		v, err := f()
		done <- answer[T]{v, err}
	}) {
		return none, s.over()
	}
	select {
	case a := <-done:
		return a.value, s.expired(a.err)
	case <-ctx.Done():
		return none, ctx.Err()
	case <-s.lost:
		return none, s.over()
	}
}

// expired takes note of a session that is over.
func (s *Session) expired(err error) error {
	if errors.Is(err, zk.ErrSessionExpired) {
		s.lose()
	}
	if over := s.over(); over != nil && err != nil {
		return over
	}
	return err
}

// retry makes a call that may be made twice until it is answered.
func retry[T any](ctx context.Context, s *Session, f func() (T, error)) (T, error) {
	var none T
	for n := uint64(0); ; {
		var err error
		if n, err = s.connected(ctx, n, false); err != nil {
			return none, err
		}
		v, err := call(ctx, s, f)
		if !lossy(err) {
			return v, err
		}
	}
}

// lose ends the session on our side: nothing is trusted or written any more.
// ZooKeeper keeps it, and the ephemeral nodes, until Close or until its time
// is up.
func (s *Session) lose() { s.leave(lost) }

func (s *Session) leave(stage int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.stage.Load()
	if was >= stage {
		return
	}
	s.stage.Store(stage)
	if was != live {
		return
	}
	close(s.lost)
	s.trust.over()
	s.end()
	for w := range s.watches {
		s.unwatch(w)
	}
}

// Lost implements registry.Center. Close closes it too.
func (s *Session) Lost() <-chan struct{} { return s.lost }

// Timeout is how long the servers keep this session when it is silent, as
// they granted it; 0 before they did.
func (s *Session) Timeout() time.Duration { return s.trust.granted() }

// Close implements registry.Center. If no server can be reached it
// returns all the same; the ephemeral nodes go when their time is up.
func (s *Session) Close() error {
	s.closing.Lock()
	defer s.closing.Unlock()
	trusted := s.reckon() != registry.TrustLost
	s.leave(closed)
	s.mu.Lock()
	conn, up, w := s.conn, s.up != 0, s.wire
	s.mu.Unlock()
	s.servers.close()
	if conn == nil {
		s.stopDial()
		s.work.Wait()
		return nil
	}
	if !up {
		s.stopDial()
		if w != nil {
			_ = w.Conn.Close()
		}
	}
	conn.Close()
	if up && trusted { // the client waits a second; a server may take longer
		patience := time.NewTimer(closePatience)
		defer patience.Stop()
		select {
		case <-s.finished:
		case <-w.gone:
		case <-patience.C:
		}
	}
	s.stopDial()
	s.mu.Lock()
	w = s.wire
	s.mu.Unlock()
	if w != nil {
		_ = w.Conn.Close()
	}
	<-s.finished
	s.work.Wait()
	return nil
}

// waiting reports to Dial's caller why it takes so long.
func (s *Session) waiting(err error) {
	s.mu.Lock()
	first := s.id == 0
	s.mu.Unlock()
	if s.o.OnWait != nil && first {
		s.o.OnWait(fmt.Errorf("waiting for ZooKeeper at %s: %w", s.o.Connect, err))
		return // it is reported there
	}
	s.o.Logger.Info("waiting for ZooKeeper", zap.String("servers", s.o.Connect), zap.Error(err))
}
