package net

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/capabilitytest"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/pipe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// begin starts a run with a grant. It ends with the test.
func begin(t testing.TB, g *grants.Grant) *capabilitytest.Guest { return resolve(t, nil, g) }

// resolve is begin with another resolver than the system's.
func resolve(t testing.TB, resolver *net.Resolver, g *grants.Grant) *capabilitytest.Guest {
	in := resolving(g, resolver)
	t.Cleanup(in.Close)
	return capabilitytest.NewGuest(t, g, in.Functions())
}

// listen answers each connection with f, and returns the grant for it.
func listen(t testing.TB, f func(net.Conn)) grants.Net {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	var conns []net.Conn
	go func() {
		defer close(over)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns = append(conns, c)
			go f(c) // ends when the test closes c
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-over
		for _, c := range conns {
			c.Close()
		}
	})
	return grants.Net{Scheme: "tcp", Host: "127.0.0.1", Port: uint16(l.Addr().(*net.TCPAddr).Port), Private: true}
}

func targetOf(g grants.Net) string {
	return g.Scheme + "://" + net.JoinHostPort(g.Host, strconv.Itoa(int(g.Port)))
}

// echo sends back what comes.
func echo(c net.Conn) {
	io.Copy(c, c)
	c.Close()
}

// want fails unless the code is as wanted and the guest can read why.
func want(t testing.TB, g *capabilitytest.Guest, got int64, code abi.Code, reason string) {
	t.Helper()
	if text := g.Error(0); abi.Code(got) != code || !strings.Contains(text, reason) {
		t.Fatalf("got %d (%s), want %d with %q", got, text, code, reason)
	}
}

func TestConnection(t *testing.T) {
	n := listen(t, echo)
	g := begin(t, &grants.Grant{Net: []grants.Net{n}})
	h := g.Dial(targetOf(n))
	if code := g.Connected(h); code != 0 {
		t.Fatalf("connected: %d: %s", code, g.Error(h))
	}
	text := bytes.Repeat([]byte("wasmjob"), 20_000)
	if code := g.Write(h, text); code != 0 {
		t.Fatalf("write: %d: %s", code, g.Error(h))
	}
	if code := g.Finish(h); code != 0 {
		t.Fatalf("finish: %d: %s", code, g.Error(h))
	}
	if back, code := g.ReadAll(h); code != 0 || !bytes.Equal(back, text) {
		t.Fatalf("read: %d: %d bytes, %s", code, len(back), g.Error(h))
	}
	if c := g.Run.Usage.All()["net"]; c.Sent != int64(len(text)) || c.Received != c.Sent || c.Calls != 1 || c.Failed != 0 {
		t.Errorf("usage: %+v", c)
	}
}

func TestDenied(t *testing.T) {
	n := listen(t, echo)
	g := begin(t, &grants.Grant{Net: []grants.Net{n}})
	want(t, g, g.Dial("tls"+strings.TrimPrefix(targetOf(n), "tcp")), abi.ErrDenied, "is not granted to job")
	want(t, g, g.Dial("tcp://127.0.0.1:1"), abi.ErrDenied, "tcp://127.0.0.1:1")
	want(t, g, g.Dial("udp://127.0.0.1:1"), abi.ErrInvalid, "tcp://HOST:PORT")
}

// What counts is how long the other side takes to answer, not how long the guest takes.
func TestSlowTarget(t *testing.T) {
	const pause = 30 * time.Millisecond
	took := func(g *capabilitytest.Guest, n grants.Net, calls int64) time.Duration {
		all := g.Run.Usage.All()["net"].Times
		of := all[net.JoinHostPort(n.Host, strconv.Itoa(int(n.Port)))]
		if len(all) != 1 || of.Calls != calls {
			t.Errorf("%+v", all)
		}
		return of.Slowest
	}
	var held atomic.Int64
	slow := listen(t, func(c net.Conn) {
		b := make([]byte, 2)
		for range 2 {
			if _, err := io.ReadFull(c, b); err != nil {
				return
			}
			came := time.Now()
			time.Sleep(pause)
			held.Store(max(held.Load(), int64(time.Since(came))))
			c.Write(b)
		}
		c.Close()
	})
	silent := listen(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	g := begin(t, &grants.Grant{Net: []grants.Net{slow, silent}})
	begun := time.Now()
	for range 2 {
		h := g.Dial(targetOf(slow))
		for range 2 {
			if code := g.Write(h, []byte("hi")); code != 0 || g.Read(h, make([]byte, 2)) != 2 {
				t.Fatalf("%d: %s", code, g.Error(h))
			}
		}
		if _, code := g.ReadAll(h); code != 0 {
			t.Fatal(g.Error(h))
		}
		g.CloseHandle(h)
	}
	if d := took(g, slow, 2); d < time.Duration(held.Load()) || d > time.Since(begun)-3*pause {
		t.Errorf("the slowest answer took %s, of %s in all; the server's took %s", d, time.Since(begun), time.Duration(held.Load()))
	}

	for _, waits := range []bool{true, false} {
		g := begin(t, &grants.Grant{Net: []grants.Net{silent}})
		begun := time.Now()
		h := g.Dial(targetOf(silent))
		if code := g.Connected(h); code != 0 {
			t.Fatal(g.Error(h))
		}
		connected := time.Since(begun)
		g.Write(h, []byte("hi"))
		if waits {
			g.Call(abi.ModuleIO+".read", make([]byte, 1), nil, h)
		}
		time.Sleep(pause)
		g.CloseHandle(h)
		if d := took(g, silent, 1); (waits && d < pause) || (!waits && d > connected) {
			t.Errorf("an answer that the guest waits for (%v), and that never comes, took %s", waits, d)
		}
	}

	missing := grants.Net{Scheme: "tcp", Host: "127.0.0.1", Port: 1, Private: true}
	g = begin(t, &grants.Grant{Net: []grants.Net{missing}})
	want(t, g, g.Connected(g.Dial(targetOf(missing))), abi.ErrUnavailable, "refused")
	g.Run.Close()
	if d := took(g, missing, 1); d <= 0 {
		t.Error("a connection that failed took no time")
	}
}

// What a guest has written before it closes a connection is sent, as it is of a socket.
func TestCloseSends(t *testing.T) {
	came := make(chan []byte)
	n := listen(t, func(c net.Conn) {
		all, _ := io.ReadAll(c)
		came <- all
		c.Close()
	})
	g := begin(t, &grants.Grant{Net: []grants.Net{n}, Quotas: grants.Quotas{Connections: 200}})
	for size := 1; size < pipe.Limit; size *= 3 {
		h := g.Dial(targetOf(n))
		if code := g.Connected(h); code != 0 {
			t.Fatal(g.Error(h))
		}
		text := bytes.Repeat([]byte("x"), size)
		if code := g.Write(h, text); code != 0 {
			t.Fatal(g.Error(h))
		}
		g.CloseHandle(h)
		if got := <-came; !bytes.Equal(got, text) {
			t.Errorf("%d bytes of %d", len(got), size)
		}
	}
}

// What is not sent, because the other side takes nothing or the run is over, is missed: the
// connection does not look as if it had ended well.
func TestCloseThatDropsIsAReset(t *testing.T) {
	for _, run := range []bool{false, true} {
		read, came := make(chan struct{}), make(chan error)
		n := listen(t, func(c net.Conn) {
			<-read
			_, err := io.Copy(io.Discard, c)
			came <- err
		})
		g := begin(t, &grants.Grant{Net: []grants.Net{n}, Quotas: grants.Quotas{Sent: 1 << 30}})
		h := g.Dial(targetOf(n))
		for { // until all buffers are full
			if g.Call("job_v1_io.write", nil, make([]byte, 64<<10), h) == int64(abi.ErrAgain) && g.Wait(100) == int64(abi.ErrTimeout) {
				break
			}
		}
		begun := time.Now()
		if run {
			g.Run.Close()
		} else if g.CloseHandle(h); time.Since(begun) < linger {
			t.Error("the guest did not wait")
		}
		close(read)
		if err := <-came; !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the other side reads to %v", err)
		}
	}
}
