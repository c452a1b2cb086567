package dial

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A write that waits for a slow reader stops where it is when the item is lost: what it has
// not given to the system yet is not sent, however soon there is room for it.
func TestLostInTheMidstOfAWrite(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := netip.MustParseAddrPort(l.Addr().String())
	lost := errors.New("lost")
	var isLost atomic.Bool
	mayAct := func() error {
		if isLost.Load() {
			return lost
		}
		return nil
	}
	d := New(Options{Connect: 5 * time.Second})
	defer d.Close()
	c, err := d.TCP(context.Background(), Target{Host: at.Addr().String(), Port: at.Port(), Private: true},
		&User{MayAct: mayAct, Lost: isLost.Load, Closed: func() {}})
	if err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()

	all := make([]byte, 32<<20) // more than the system takes
	type end struct {
		n   int
		err error
	}
	ended := make(chan end, 1)
	go func() {
		n, err := c.Write(all)
		ended <- end{n, err}
	}()
	time.Sleep(200 * time.Millisecond) // until it waits for room
	isLost.Store(true)
	received := make(chan int64)
	go func() {
		n, _ := io.Copy(io.Discard, peer) // it ends with a reset
		received <- n
	}()
	select {
	case e := <-ended:
		if !errors.Is(e.err, lost) || e.n == len(all) {
			t.Errorf("%d bytes of %d, %v", e.n, len(all), e.err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it still waits")
	}
	c.Close()
	if n := <-received; n == int64(len(all)) {
		t.Error("all of it was received")
	}
}
