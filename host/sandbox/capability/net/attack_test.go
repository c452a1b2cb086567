package net

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/capabilitytest"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/pipe"
)

// quick are quotas of time for servers that let a guest wait.
var quick = grants.Quotas{Connect: 100 * time.Millisecond}

func TestTargets(t *testing.T) {
	g := begin(t, &grants.Grant{Net: []grants.Net{{Scheme: "tcp", Host: "db.example.com", Port: 5432}}})
	for _, c := range []struct {
		code           abi.Code
		reason, target string
	}{
		{abi.ErrInvalid, "tcp://HOST:PORT", ""},
		{abi.ErrInvalid, "tcp://HOST:PORT", "db.example.com:5432"},
		{abi.ErrInvalid, "tcp://HOST:PORT", "unix:///run/docker.sock"},
		{abi.ErrInvalid, "tcp://HOST:PORT", "TCP://db.example.com:5432"},
		{abi.ErrInvalid, "tcp://HOST:PORT", "tcp://db.example.com"},
		{abi.ErrInvalid, "tcp://HOST:PORT", "tcp://::1:5432"},
		{abi.ErrInvalid, "port", "tcp://db.example.com:"},
		{abi.ErrInvalid, "port", "tcp://db.example.com:0"},
		{abi.ErrInvalid, "port", "tcp://db.example.com:65536"},
		{abi.ErrInvalid, "port", "tcp://db.example.com:postgres"},
		{abi.ErrInvalid, "port", "tcp://db.example.com:5432/x"},
		{abi.ErrInvalid, "no name of a host", "tcp://user@db.example.com:5432"},
		{abi.ErrInvalid, "no name of a host", "tcp://:5432"},
		{abi.ErrInvalid, "punycode", "tcp://db.ex\u0430mple.com:5432"},
		{abi.ErrInvalid, "usual form", "tcp://0x7f.1:5432"},
		{abi.ErrInvalid, "usual form", "tcp://2130706433:5432"},
		{abi.ErrInvalid, "usual form", "tcp://0177.0.0.1:5432"},
		{abi.ErrTooLarge, "at most 1024", "tcp://" + strings.Repeat("a", abi.MaxTarget) + ":1"},
		{abi.ErrDenied, "is not granted", "tcp://db.example.com:5433"},
		{abi.ErrDenied, "is not granted", "tls://db.example.com:5432"},
		{abi.ErrDenied, "is not granted", "tcp://other.example.com:5432"},
	} {
		want(t, g, g.Dial(c.target), c.code, c.reason)
	}
}

// TestEchoes has servers that send a secret of the job back where the host reads it: in the names of
// a certificate, and in the place of TLS.
func TestEchoes(t *testing.T) {
	const secret = "s3cr3t-t0k3n-4f9ab2c7d1"
	here := &capabilitytest.Names{Lookup: func(string) []netip.Addr { return []netip.Addr{netip.MustParseAddr("127.0.0.1")} }}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certificate := func(names ...string) tls.Certificate {
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: secret},
			DNSNames: names, NotAfter: time.Now().Add(time.Hour)}, &x509.Certificate{Subject: pkix.Name{CommonName: secret}}, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	}
	shake := func(names ...string) func(net.Conn) {
		config := &tls.Config{Certificates: []tls.Certificate{certificate(names...)}}
		return func(c net.Conn) { _ = tls.Server(c, config).HandshakeContext(t.Context()); c.Close() }
	}
	for place, serve := range map[string]func(net.Conn){
		"name": shake(secret + ".example.com"), "begin of a name": shake(secret[:10] + ".example.com"), "name with blanks": shake(secret + " " + secret),
		"many names": shake(strings.Split(strings.Repeat(secret+".example.com ", 50), " ")[:50]...),
		"plain":      func(c net.Conn) { fmt.Fprint(c, secret); c.Close() },
	} {
		n := listen(t, serve)
		n.Scheme, n.Host = "tls", "db.test"
		g := resolve(t, here.Resolver(), &grants.Grant{Net: []grants.Net{n}})
		g.Run.Redact = grants.NewRedactor(grants.Named{Name: "TOKEN", Value: secret}).Redact
		h := g.Dial(targetOf(n))
		if code := g.Connected(h); code != int64(abi.ErrUnavailable) {
			t.Errorf("%s: %d", place, code)
		}
		said := g.Error(h)
		if strings.Contains(place, "name") != strings.Contains(said, "certificate is valid for") {
			t.Errorf("%s: %q", place, said)
		}
		for i := 0; i+8 <= len(secret); i++ {
			if strings.Contains(said, secret[i:i+8]) || len(said) > maxReason+100 {
				t.Errorf("%s: %q", place, said)
				break
			}
		}
		g.CloseHandle(h)
	}
}

func TestAddresses(t *testing.T) {
	names := &capabilitytest.Names{Lookup: func(string) []netip.Addr {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("fd00:ec2::254")}
	}}
	var hits atomic.Int64
	n := listen(t, func(net.Conn) { hits.Add(1) })
	n.Host, n.Private = "db.test", false
	g := resolve(t, names.Resolver(), &grants.Grant{Net: []grants.Net{n}})
	h := g.Dial(targetOf(n))
	want(t, g, g.Connected(h), abi.ErrDenied, "is not public")
	want(t, g, g.Write(h, []byte("x")), abi.ErrDenied, "is not public")
	if all := g.Run.Usage.All()["net"]; hits.Load() != 0 || all.Failed != 1 || len(all.FailedTargets) != 1 || all.FailedTargets[0] != all.Targets[0] {
		t.Errorf("%d connections; usage: %+v", hits.Load(), all)
	}
}

func TestNoConnection(t *testing.T) {
	silent := listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	silent.Scheme = "tls"
	plain := listen(t, func(c net.Conn) { fmt.Fprint(c, "220 mail.example.com ESMTP\r\n"); c.Close() })
	plain.Scheme = "tls"
	closed := listen(t, func(net.Conn) {})
	closed.Port = 1 // nothing listens there
	over := make(chan struct{})
	defer close(over)
	names := &capabilitytest.Names{Lookup: func(name string) []netip.Addr {
		if name == "slow.test" {
			<-over
		}
		return nil
	}}
	slow := grants.Net{Scheme: "tcp", Host: "slow.test", Port: 1}
	missing := grants.Net{Scheme: "tcp", Host: "missing.test", Port: 1}
	g := resolve(t, names.Resolver(), &grants.Grant{Net: []grants.Net{silent, plain, closed, slow, missing}, Quotas: quick})
	for _, c := range []struct {
		n      grants.Net
		code   abi.Code
		reason string
	}{
		{silent, abi.ErrTimeout, "no connection within 100ms"}, {slow, abi.ErrTimeout, "no connection within 100ms"},
		{plain, abi.ErrUnavailable, "TLS"}, {closed, abi.ErrUnavailable, "refused"}, {missing, abi.ErrUnavailable, "no such host"},
	} {
		h := g.Dial(targetOf(c.n))
		g.Call("job_v1_io.write", nil, []byte("too early"), h)
		want(t, g, g.Connected(h), c.code, c.reason)
		_, code := g.ReadAll(h)
		want(t, g, int64(code), c.code, c.reason)
	}
}

func TestTLS(t *testing.T) {
	web := httptest.NewTLSServer(nil) // for its certificate
	defer web.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: web.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			echo(c)
		}
	}()
	t.Cleanup(func() { l.Close(); <-over })
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	names := &capabilitytest.Names{Lookup: func(string) []netip.Addr { return []netip.Addr{netip.MustParseAddr("127.0.0.1")} }}
	good := grants.Net{Scheme: "tls", Host: "example.com", Port: uint16(l.Addr().(*net.TCPAddr).Port), Private: true, CA: ca}
	other, unknown := good, good
	other.Host = "example.org"
	unknown.Host, unknown.CA = "127.0.0.1", ""
	g := resolve(t, names.Resolver(), &grants.Grant{Net: []grants.Net{good, other, unknown}})
	h := g.Dial(targetOf(good))
	g.Write(h, []byte("hello"))
	g.Finish(h)
	if all, code := g.ReadAll(h); code != 0 || string(all) != "hello" {
		t.Errorf("%q, %d: %s", all, code, g.Error(h))
	}
	want(t, g, g.Connected(g.Dial(targetOf(other))), abi.ErrUnavailable, "not example.org")
	want(t, g, g.Connected(g.Dial(targetOf(unknown))), abi.ErrUnavailable, "certificate")
}

func TestQuotas(t *testing.T) {
	endless := listen(t, func(c net.Conn) {
		for {
			if _, err := c.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	})
	g := begin(t, &grants.Grant{Net: []grants.Net{endless}, Quotas: grants.Quotas{Received: 1 << 20, Sent: 1 << 20, Connections: 3}})
	h := g.Dial(targetOf(endless))
	all, code := g.ReadAll(h)
	want(t, g, int64(code), abi.ErrQuota, "may receive 1048576 bytes")
	if len(all) > 1<<20 {
		t.Errorf("the guest got %d bytes", len(all))
	}
	h = g.Dial(targetOf(endless))
	want(t, g, g.Write(h, make([]byte, 2<<20)), abi.ErrQuota, "may send 1048576 bytes")
	want(t, g, g.Connected(h), abi.ErrQuota, "")
	for range 10_000 {
		if h := g.Dial(targetOf(endless)); h < 0 {
			want(t, g, h, abi.ErrQuota, "3 connections")
		} else {
			g.CloseHandle(h)
		}
	}
}

// TestLost loses the item when a part has been sent: the server gets nothing of what the
// guest writes then.
func TestLost(t *testing.T) {
	const part = 10_000
	came, over := make(chan struct{}), make(chan struct{})
	var rest []byte
	n := listen(t, func(c net.Conn) {
		defer close(over)
		_, _ = io.CopyN(io.Discard, c, part)
		close(came)
		rest, _ = io.ReadAll(c)
	})
	g := begin(t, &grants.Grant{Net: []grants.Net{n}})
	h := g.Dial(targetOf(n))
	if code := g.Write(h, bytes.Repeat([]byte("A"), part)); code != 0 {
		t.Fatal(g.Error(h))
	}
	<-came
	g.Owner.Cancel(abi.CancelLost)
	g.Write(h, bytes.Repeat([]byte("B"), part))
	g.Finish(h)
	g.Run.Close()
	<-over
	if len(rest) != 0 {
		t.Errorf("the server got %d bytes more", len(rest))
	}
}

// TestPeerCloses has a server that closes while the guest goes on.
func TestPeerCloses(t *testing.T) {
	n := listen(t, func(c net.Conn) {
		fmt.Fprint(c, "bye")
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.CopyN(io.Discard, c, 5)
		c.Close()
	})
	g := begin(t, &grants.Grant{Net: []grants.Net{n}})
	h := g.Dial(targetOf(n))
	if all, code := g.ReadAll(h); code != 0 || string(all) != "bye" {
		t.Fatalf("%q, %d: %s", all, code, g.Error(h))
	}
	for { // until the system notices
		code := g.Write(h, []byte("hello"))
		if code < 0 {
			want(t, g, code, abi.ErrUnavailable, "net: tcp://127.0.0.1")
			break
		}
	}
}

// TestClosedInFlight closes runs and the instance at any moment of connections.
func TestClosedInFlight(t *testing.T) {
	n := listen(t, echo)
	grant := &grants.Grant{Net: []grants.Net{n}}
	for i := range 50 {
		in := New(grant)
		g := capabilitytest.NewGuest(t, grant, in.Functions())
		for range i % 8 {
			h := g.Dial(targetOf(n))
			g.Call("job_v1_io.write", nil, make([]byte, i*4096), h)
			if i%3 > 0 {
				g.Finish(h)
			}
			if i%5 == 0 {
				g.Wait(1)
			}
		}
		g.Run.Close()
		in.Close()
	}
}

// TestLostWhileItWaits loses the item while a server does not read: of what the host has
// taken from the guest, no more than one piece is written.
//
// It kills the mutant "guest's bytes written though the item is lost".
func TestLostWhileItWaits(t *testing.T) {
	read, over := make(chan struct{}), make(chan struct{})
	var received int64
	n := listen(t, func(c net.Conn) {
		defer close(over)
		<-read
		received, _ = io.Copy(io.Discard, c)
	})
	g := begin(t, &grants.Grant{Net: []grants.Net{n}, Quotas: grants.Quotas{Sent: 1 << 30}})
	h := g.Dial(targetOf(n))
	taken := int64(0)
	for { // until all buffers are full
		n := g.Call("job_v1_io.write", nil, make([]byte, 64<<10), h)
		if n > 0 {
			taken += n
		} else if n != int64(abi.ErrAgain) {
			t.Fatal(g.Error(h))
		} else if g.Wait(100) == int64(abi.ErrTimeout) {
			break
		}
	}
	g.Owner.Cancel(abi.CancelLost)
	close(read)
	select {
	case <-over:
	case <-time.After(10 * time.Second):
		t.Error("the connection goes on")
		g.Run.Close()
		<-over
	}
	if most := taken - pipe.Limit + 64<<10; received > most {
		t.Errorf("the server got %d bytes, of %d that were taken; at most %d are allowed", received, taken, most)
	}
}
