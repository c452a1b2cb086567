package server

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// callers is a listener that tests call by function.
type callers struct {
	net.Listener
	come chan net.Conn
}

func (c *callers) Accept() (net.Conn, error) {
	if one, ok := <-c.come; ok {
		return one, nil
	}
	return nil, net.ErrClosed
}

func (c *callers) Close() error { close(c.come); return nil }

// caller is a connection from an address.
type caller struct {
	net.Conn
	from   string
	closed bool
}

func (c *caller) RemoteAddr() net.Addr { return named(c.from) }
func (c *caller) Close() error         { c.closed = true; return nil }

type named string

func (named) Network() string  { return "tcp" }
func (n named) String() string { return string(n) }

// TestFairConnections: no address takes all connections, and the last ones are for those that have few.
func TestFairConnections(t *testing.T) {
	t.Parallel()
	logs, log := observer.New(zap.DebugLevel)
	l := &callers{come: make(chan net.Conn, 1)}
	f := newFair(l, connections{all: 20, each: 8, reserved: 6, few: 2}, func(a netip.Addr) bool { return a == netip.MustParseAddr("192.0.2.9") }, zap.New(logs))
	var open []net.Conn
	// A caller that is refused is followed by one that is let in.
	in := func(from string, want bool) {
		t.Helper()
		c := &caller{from: from}
		l.come <- c
		if !want {
			go func() { l.come <- &caller{from: "@"} }() // Accept, below, takes both
		}
		got, err := f.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if c.closed == want {
			t.Fatalf("%s is let in: %v, expected %v; open: %v", from, !c.closed, want, f.of)
		}
		if !want {
			_ = got.Close()
			return
		}
		open = append(open, got)
	}
	for range 8 {
		in("10.0.0.1:1", true)
	}
	in("10.0.0.1:2", false)
	in("[::ffff:10.0.0.1]:2", false) // the same
	for n := range 6 {
		in("[2001:db8::"+string('1'+rune(n))+"]:1", true) // one network
	}
	in("[2001:db8::ffff]:1", false) // there are 14: the last 6 are for those that have few
	in("10.0.0.2:1", true)
	in("10.0.0.2:1", true)
	in("10.0.0.2:1", false)
	in("192.0.2.9:1", true)
	in("192.0.2.9:1", true)
	in("192.0.2.9:1", true) // a proxy
	if said := log.TakeAll(); len(said) != 1 || !strings.Contains(said[0].Message, "too many") || said[0].ContextMap()["from"] != "10.0.0.1" {
		t.Errorf("the log: %v", said)
	}
	_ = open[0].Close()
	_ = open[0].Close() // twice is once
	in("10.0.0.1:1", false)
	in("10.0.0.3:1", true)
	for _, c := range open {
		_ = c.Close()
	}
	if f.open != 0 || len(f.of) != 0 || len(f.places) != 0 {
		t.Errorf("all are closed: %d, %v, %d", f.open, f.of, len(f.places))
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Accept(); err == nil {
		t.Error("a closed listener accepts")
	}
}
