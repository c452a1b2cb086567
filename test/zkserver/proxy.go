package zkserver

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Direction is which way bytes go through a Proxy.
type Direction uint8

// The directions; they can be combined.
const (
	ToServer Direction = 1 << iota
	ToClient
)

// Proxy passes TCP connections on to a server, and makes trouble on demand.
// It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	patience time.Duration // for a target that does not listen yet
	done     sync.WaitGroup

	mu      sync.Mutex
	target  string
	cut     bool
	closed  bool
	held    Direction
	delay   time.Duration
	changed chan struct{} // closed at every change of the above
	conns   map[net.Conn]struct{}
}

// NewProxy listens on a free port and passes on to target.
func NewProxy(target string) (*Proxy, error) { return newProxy("127.0.0.1:0", target, 0) }

// NewProxyAt listens on an address and passes on to target.
func NewProxyAt(listen, target string) (*Proxy, error) { return newProxy(listen, target, 0) }

func newProxy(listen, target string, patience time.Duration) (*Proxy, error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("zkserver: proxy to %s: %w", target, err)
	}
	p := &Proxy{listener: l, patience: patience, target: target, changed: make(chan struct{}), conns: make(map[net.Conn]struct{})}
	p.done.Go(p.accept)
	return p, nil
}

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

func (p *Proxy) port() int { return p.listener.Addr().(*net.TCPAddr).Port }

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		p.done.Go(func() { p.serve(client) })
	}
}

// serve carries one connection.
func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	if !p.track(client) {
		return
	}
	defer p.forget(client)
	server, err := p.dial(target)
	if err != nil {
		return
	}
	defer server.Close()
	if !p.track(server) {
		return
	}
	defer p.forget(server)
	var both sync.WaitGroup
	pump := func(to, from net.Conn, way Direction) {
		p.pump(to, from, way)
		_ = to.Close()
		_ = from.Close()
	}
	both.Go(func() { pump(server, client, ToServer) })
	both.Go(func() { pump(client, server, ToClient) })
	both.Wait()
}

// dial connects to the target, and goes on trying for as long as the proxy has
// patience: nothing tells when a server begins to listen.
func (p *Proxy) dial(target string) (net.Conn, error) {
	over := time.After(p.patience)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		c, err := net.DialTimeout("tcp", target, 5*time.Second)
		if err == nil {
			return c, nil
		}
		select {
		case <-again.C:
		case <-over:
			return nil, err
		}
	}
}

// track remembers a connection; false if there can be none now.
func (p *Proxy) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut || p.closed {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) forget(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// pump carries bytes one way until an end closes.
func (p *Proxy) pump(to, from net.Conn, way Direction) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !p.pass(to, way) {
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits until bytes may go on; false if their connection is gone.
func (p *Proxy) pass(to net.Conn, way Direction) bool {
	start := time.Now()
	for {
		p.mu.Lock()
		_, alive := p.conns[to]
		held, rest, changed := p.held&way != 0, p.delay-time.Since(start), p.changed
		p.mu.Unlock()
		switch {
		case !alive:
			return false
		case held:
			<-changed
		case rest > 0:
			timer := time.NewTimer(rest)
			select {
			case <-timer.C:
			case <-changed:
				timer.Stop()
			}
		default:
			return true
		}
	}
}

// change makes a change known to everybody who waits for one.
func (p *Proxy) change(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
	close(p.changed)
	p.changed = make(chan struct{})
}

// drop closes all connections. p.mu is held.
func (p *Proxy) drop() {
	for c := range p.conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}

// Cut closes all connections, and new ones at once, until Heal. What was held
// back is lost.
func (p *Proxy) Cut() {
	p.change(func() {
		p.cut = true
		p.drop()
	})
}

// Drop closes all connections; new ones are served.
func (p *Proxy) Drop() { p.change(p.drop) }

// Hold keeps back what goes in the given directions; connections stay open,
// as on a network that has come apart. Heal delivers it.
func (p *Proxy) Hold(way Direction) { p.change(func() { p.held = way }) }

// Delay makes every read of either end wait before it is passed on.
func (p *Proxy) Delay(d time.Duration) { p.change(func() { p.delay = d }) }

// SetTarget sends new connections elsewhere.
func (p *Proxy) SetTarget(target string) { p.change(func() { p.target = target }) }

// Heal ends what Cut, Hold and Delay began.
func (p *Proxy) Heal() { p.change(func() { p.cut, p.held, p.delay = false, 0, 0 }) }

// Close ends the proxy and waits for its goroutines.
func (p *Proxy) Close() {
	p.change(func() {
		p.closed = true
		p.drop()
	})
	_ = p.listener.Close()
	p.done.Wait()
}
