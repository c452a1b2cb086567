package dial

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// notSent is what the kernel has taken and not sent.
func notSent(t *testing.T, c net.Conn) int {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	var failed error
	if err := raw.Control(func(fd uintptr) { n, failed = unix.IoctlGetInt(int(fd), unix.SIOCOUTQNSD) }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	return n
}

// TestUnsentIsBounded: a server reads slowly until it reads no more, and all buffers are full. Of
// what the guest has written the kernel holds little that is not sent yet: a halted host sends no
// more than that.
//
// It kills the mutant "much that a halted host still sends".
func TestUnsentIsBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := netip.MustParseAddrPort(l.Addr().String())
	var lost atomic.Bool
	d := New(Options{Connect: 5 * time.Second})
	defer d.Close()
	c, err := d.TCP(context.Background(), Target{Host: at.Addr().String(), Port: at.Port(), Private: true},
		&User{MayAct: func() error {
			if lost.Load() {
				return errors.New("lost")
			}
			return nil
		}, Lost: lost.Load, Closed: func() {}})
	if err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	ended := make(chan int)
	go func() {
		n, _ := c.Write(make([]byte, 64<<20)) // more than the system takes
		ended <- n
	}()
	if _, err := io.CopyN(io.Discard, peer, 16<<20); err != nil { // such that its buffers have grown
		t.Fatal(err)
	}
	most := 0
	for last := -1; last != most || most == 0; { // until nothing is taken any more
		last = most
		for range 20 {
			time.Sleep(5 * time.Millisecond)
			most = max(most, notSent(t, c.Conn))
		}
	}
	if most == 0 || most > 2*unsent {
		t.Errorf("%d bytes are not sent, at most %d are to be", most, 2*unsent)
	}

	// As by a host that was halted, nothing more is written, and the connection is not closed.
	lost.Store(true)
	sent := make(chan int64)
	go func() {
		n, _ := io.Copy(io.Discard, peer)
		sent <- n
	}()
	written := <-ended
	for notSent(t, c.Conn) > 0 {
		time.Sleep(time.Millisecond)
	}
	c.Close()
	if n := <-sent; int(n)+16<<20 > written {
		t.Errorf("%d bytes came, %d were written", int(n)+16<<20, written)
	}
}
