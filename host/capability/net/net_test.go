package net

import (
	"bytes"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/capability/capabilitytest"
	"github.com/wasmjob/wasmjob/host/grants"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// begin starts a run with a grant. It ends with the test.
func begin(t testing.TB, o Options, g *grants.Grant) *capabilitytest.Guest {
	in := New(g, o)
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
	g := begin(t, Options{}, &grants.Grant{Net: []grants.Net{n}})
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
	g := begin(t, Options{}, &grants.Grant{Net: []grants.Net{n}})
	want(t, g, g.Dial("tls"+strings.TrimPrefix(targetOf(n), "tcp")), abi.ErrDenied, "is not granted to job")
	want(t, g, g.Dial("tcp://127.0.0.1:1"), abi.ErrDenied, "tcp://127.0.0.1:1")
	want(t, g, g.Dial("udp://127.0.0.1:1"), abi.ErrInvalid, "tcp://HOST:PORT")
}
