package zookeeper

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// closePatience is how long Close waits for the server to confirm.
const closePatience = 5 * time.Second

// link is the session's connection, a new one after each reconnect.
type link struct {
	o      *Options
	life   *life
	dialer *dialer
	// The wire calls these two before it writes a request: may the multi be sent, and should a read set a
	// watch.
	admit   func() bool
	watched func(op int32, path string) bool

	started  chan struct{} // closed when conn is set
	finished chan struct{} // closed when the client has ended
	zxid     atomic.Int64  // the newest that an answer had

	mu     sync.Mutex
	conn   *zk.Conn
	newest *wire
	wires  uint64        // how many there were, including those that the server never answered
	joined uint64        // how many of them have had the session
	up     uint64        // which of them has the session, 0 if none
	moved  chan struct{} // closed when up changes
	id     int64         // ZooKeeper's number of the session, 0: none yet
}

func newLink(o *Options, l *life, d *dialer) *link {
	k := &link{
		o: o, life: l, dialer: d,
		started: make(chan struct{}), finished: make(chan struct{}), moved: make(chan struct{}),
	}
	d.servers.tell = k.waiting
	return k
}

// open starts the client, which calls event for everything that happens.
func (l *link) open(servers []string, event zk.EventCallback) error {
	conn, events, err := zk.Connect(servers, l.o.SessionTimeout,
		zk.WithDialer(l.dial),
		zk.WithHostProvider(&l.dialer.servers),
		zk.WithEventCallback(event),
		zk.WithLogger(quiet{l.o.Logger}),
		zk.WithMaxConnBufferSize(l.o.MaxRequest+wrapping),
	)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.conn = conn
	l.mu.Unlock()
	close(l.started)
	go func() {
		for range events { // the callback gets all events; this channel drops some
		}
		close(l.finished)
	}()
	return nil
}

// present returns the number of the connection that has the session (0 if none has), the newest connection (nil if there was none), and a
// channel that is closed when that number changes.
func (l *link) present() (up uint64, newest *wire, moved <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up, l.newest, l.moved
}

// dialled returns how many connections there were.
func (l *link) dialled() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wires
}

// dial is the client's dialer. It connects to the server that the client has chosen, or to another one if that
// is silent.
func (l *link) dial(network, address string, _ time.Duration) (net.Conn, error) {
	<-l.started
	if pause := l.dialer.servers.pause(l.dialer.longestPause()); pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.dialer.ctx.Done():
		}
	}
	l.mu.Lock()
	refuse := l.id != 0 && l.conn.SessionID() == 0
	l.mu.Unlock()
	if refuse { // the client has dropped the ended session, and wants a new one
		<-l.dialer.ctx.Done()
		return nil, errRefused
	}
	conn, server, err := l.dialer.race(network, address)
	if err != nil {
		return nil, err
	}
	l.dialer.servers.used(server)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dialer.ctx.Err() != nil { // nothing would close it
		_ = conn.Close()
		return nil, errRefused
	}
	l.wires++
	l.newest = &wire{Conn: conn, in: bufio.NewReaderSize(conn, 32<<10), link: l, to: server, gone: make(chan struct{})}
	return l.newest, nil
}

// setUp notes that the newest connection has the session, or has it no more.
func (l *link) setUp(up bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := uint64(0)
	if up {
		n = l.wires
	}
	if l.up == n {
		return
	}
	if up {
		l.joined++
	}
	if l.life.stage.Load() == live {
		if up {
			l.o.Logger.Info("connected to ZooKeeper", zap.String("server", l.newest.to), zap.Int64("session", l.id))
		} else {
			l.o.Logger.Info("the connection to ZooKeeper is lost", zap.String("server", l.newest.to))
		}
	}
	l.up = n
	close(l.moved)
	l.moved = make(chan struct{})
}

// connected waits for a connection that has the session and is newer than after, and returns its number. With
// guarded set it also returns when the session is no longer trusted.
func (l *link) connected(ctx context.Context, after uint64, guarded bool) (uint64, error) {
	for {
		var changed <-chan struct{}
		if guarded {
			var level registry.Trust
			if level, changed = l.life.level(); level != registry.TrustLive {
				return 0, l.life.doubted()
			}
		}
		up, _, moved := l.present()
		if err := l.life.over(); err != nil {
			return 0, err
		}
		if up > after {
			return up, nil
		}
		select {
		case <-moved:
		case <-changed:
		case <-l.life.lost:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// retry repeats an idempotent call until it is answered.
func retry[T any](ctx context.Context, l *link, f func() (T, error)) (T, error) {
	var none T
	for n := uint64(0); ; {
		var err error
		if n, err = l.connected(ctx, n, false); err != nil {
			return none, err
		}
		v, err := call(ctx, l.life, f)
		if !lossy(err) {
			return v, err
		}
	}
}

// lossy reports whether an error of the client only says that the connection is gone.
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

// drop closes a connection; the client then makes another one.
func (l *link) drop(n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.newest != nil && l.wires == n {
		_ = l.newest.Conn.Close()
	}
}

// close ends the session at the server, if that can be done, and then the
// connection. trusted says whether the session still lived.
func (l *link) close(trusted bool) {
	l.mu.Lock()
	conn, up, w := l.conn, l.up != 0, l.newest
	l.mu.Unlock()
	l.dialer.servers.close()
	if conn == nil {
		l.dialer.stop()
		return
	}
	if !up {
		l.dialer.stop()
		if w != nil {
			_ = w.Conn.Close()
		}
	}
	conn.Close()
	if up && trusted { // the client waits a second; a server may take longer
		patience := time.NewTimer(closePatience)
		defer patience.Stop()
		select {
		case <-l.finished:
		case <-w.gone:
		case <-patience.C:
		}
	}
	l.dialer.stop()
	if _, w, _ = l.present(); w != nil {
		_ = w.Conn.Close()
	}
	<-l.finished
}

// about returns the session's number, the address of the server that has it, and
// how many connections have had it.
func (l *link) about() (id int64, server string, connections uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.up != 0 && l.newest != nil {
		server = l.newest.RemoteAddr().String()
	}
	return l.id, server, l.joined
}

// waiting reports to Dial's caller why connecting takes so long.
func (l *link) waiting(err error) {
	l.mu.Lock()
	first := l.id == 0
	l.mu.Unlock()
	if l.o.OnWait != nil && first {
		l.o.OnWait(fmt.Errorf("waiting for ZooKeeper at %s: %w", l.o.Connect, err))
		return // it is reported there
	}
	l.o.Logger.Info("waiting for ZooKeeper", zap.String("servers", l.o.Connect), zap.Error(err))
}

// count reports a request.
func (l *link) count(op int32) {
	if l.o.OnOperation != nil {
		l.o.OnOperation(opName(op), 1)
	}
}
