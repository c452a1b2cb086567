package server

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"
)

// connections are limits of open connections. Each takes a file descriptor, which guests and the registry need
// as well.
type connections struct {
	// all are open at most; more wait until one ends.
	all int
	// each is the limit of one address, or of one IPv6 network as providers assign to a home.
	each int
	// The last reserved places are for addresses that have fewer than few: other hosts and operators get in
	// while another client uses its full share.
	reserved, few int
}

// usual are the connections of an admin address.
func usual() connections { return connections{all: 4096, each: 2048, reserved: 512, few: 16} }

const (
	// networkBits is what counts as one address of IPv6.
	networkBits = 64
	// complainEvery lies between two lines of the log about connections that are refused.
	complainEvery = time.Minute
)

// fair is a listener that shares its connections among addresses. It closes connections beyond an address's
// share at once.
type fair struct {
	net.Listener
	most   connections
	exempt func(netip.Addr) bool // a proxy, which stands for many clients
	log    *zap.Logger
	places chan struct{} // one for each connection that is open
	closed chan struct{}
	close  func()

	mu         sync.Mutex
	of         map[netip.Addr]int
	open       int
	complained time.Time
}

func newFair(l net.Listener, most connections, exempt func(netip.Addr) bool, log *zap.Logger) *fair {
	f := &fair{Listener: l, most: most, exempt: exempt, log: log, places: make(chan struct{}, most.all), closed: make(chan struct{}), of: make(map[netip.Addr]int)}
	f.close = sync.OnceFunc(func() { close(f.closed) })
	return f
}

// Close implements net.Listener.
func (f *fair) Close() error {
	f.close()
	return f.Listener.Close()
}

// Accept implements net.Listener.
func (f *fair) Accept() (net.Conn, error) {
	for {
		select {
		case f.places <- struct{}{}:
		case <-f.closed:
			return nil, net.ErrClosed
		}
		c, err := f.Listener.Accept()
		if err != nil {
			<-f.places
			return nil, err
		}
		from := addressOf(c)
		if !f.enter(from) {
			_ = c.Close() // it has got nothing
			<-f.places
			continue
		}
		return &counted{c, sync.OnceFunc(func() { f.leave(from) })}, nil
	}
}

// addressOf returns the address by which a connection is counted; invalid for a Unix socket, whose users count
// as one.
func addressOf(c net.Conn) netip.Addr {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	from := at.Addr().Unmap().WithZone("")
	if from.Is6() {
		from = netip.PrefixFrom(from, networkBits).Masked().Addr()
	}
	return from
}

// enter counts a connection, unless the address may not have it.
func (f *fair) enter(from netip.Addr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	has := f.of[from]
	limited := from.IsValid() && !f.exempt(from)
	if limited && (has >= f.most.each || (f.open >= f.most.all-f.most.reserved && has >= f.most.few)) {
		if now := time.Now(); now.Sub(f.complained) >= complainEvery {
			f.complained = now
			f.log.Warn("connections to the admin address are refused: their address has too many", zap.Stringer("from", from), zap.Int("connections", has), zap.Int("of all", f.open))
		}
		return false
	}
	f.of[from]++
	f.open++
	return true
}

func (f *fair) leave(from netip.Addr) {
	f.mu.Lock()
	f.open--
	if f.of[from]--; f.of[from] == 0 {
		delete(f.of, from)
	}
	f.mu.Unlock()
	<-f.places
}

// counted is a connection that gives its place back.
type counted struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
