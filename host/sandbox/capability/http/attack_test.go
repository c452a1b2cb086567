package http

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/capabilitytest"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/pipe"
)

// quick are quotas of time for servers that let a request wait.
var quick = grants.Quotas{Connect: 100 * time.Millisecond, FirstByte: 100 * time.Millisecond}

// fails makes a request that ends with a code.
func fails(t *testing.T, g *capabilitytest.Guest, code abi.Code, reason string, head ...string) {
	t.Helper()
	h := g.Open(head...)
	if h < 0 {
		want(t, g, h, code, reason)
		return
	}
	g.Finish(h)
	want(t, g, g.Status(h), code, reason)
	g.CloseHandle(h)
}

// TestAddresses has names that lead to addresses which are not public.
//
// It kills the mutant "guest that is led to an address that is not public".
func TestAddresses(t *testing.T) {
	var hits atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer server.Close()
	port := granted(t, server.URL).Port
	all := map[string]string{
		"loopback.test": "127.0.0.1", "loopback6.test": "::1", "mapped.test": "::ffff:127.0.0.1", "unspecified.test": "0.0.0.0",
		"private.test": "10.1.2.3", "linklocal.test": "169.254.1.1", "metadata.test": "169.254.169.254", "metadata6.test": "fd00:ec2::254",
		"nat64.test": "64:ff9b::7f00:1", "teredo.test": "2001:0:102:304::80ff:fffe", "cgnat.test": "100.100.100.200",
	}
	names := &capabilitytest.Names{Lookup: func(name string) []netip.Addr {
		if a := all[name]; a != "" {
			return []netip.Addr{netip.MustParseAddr(a)}
		}
		return nil
	}}
	grant := &grants.Grant{Quotas: quick}
	for name := range all {
		grant.HTTP = append(grant.HTTP, grants.HTTP{Scheme: "http", Host: name, Port: port, Path: "/"})
	}
	g := begin(t, Options{resolver: names.Resolver()}, grant)
	for name, a := range all {
		fails(t, g, abi.ErrDenied, strings.TrimPrefix(a, "::ffff:"), "GET", fmt.Sprintf("http://%s:%d/", name, port))
	}
	if hits.Load() != 0 {
		t.Errorf("%d requests have come", hits.Load())
	}
}

// TestRebinding has a name of which every look-up says something else.
func TestRebinding(t *testing.T) {
	var hits, asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer server.Close()
	port := granted(t, server.URL).Port
	names := &capabilitytest.Names{Lookup: func(string) []netip.Addr {
		list := []string{"192.0.2.1", "127.0.0.1", "10.0.0.1"}
		first := netip.MustParseAddr(list[asked.Add(1)%3])
		return []netip.Addr{first, netip.MustParseAddr("127.0.0.1")}
	}}
	g := begin(t, Options{resolver: names.Resolver()}, &grants.Grant{HTTP: []grants.HTTP{{Scheme: "http", Host: "rebind.test", Port: port, Path: "/"}}})
	for range 9 {
		fails(t, g, abi.ErrDenied, "is not public", "GET", fmt.Sprintf("http://rebind.test:%d/", port))
	}
	if hits.Load() != 0 {
		t.Errorf("%d requests have come", hits.Load())
	}
}

// TestPoolPerGrant has a grant with private: true beside one without it, for one host.
//
// It kills the mutant "guest's connection used under another grant".
func TestPoolPerGrant(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	open := granted(t, server.URL)
	open.Path = "/open/"
	closed := open
	closed.Path, closed.Private = "/closed/", false
	g := begin(t, Options{}, &grants.Grant{HTTP: []grants.HTTP{open, closed}})
	get(t, g, "", "GET", server.URL+"/open/")
	fails(t, g, abi.ErrDenied, "127.0.0.1 is not public", "GET", server.URL+"/closed/")
}

// TestHeads has heads that servers or proxies would read in more than one way.
func TestHeads(t *testing.T) {
	grant := grants.HTTP{Scheme: "http", Host: "api.example.com", Port: 80, Path: "/a/"}
	g := begin(t, Options{}, &grants.Grant{HTTP: []grants.HTTP{grant}})
	good := "http://api.example.com/a/"
	for _, c := range []struct {
		code   abi.Code
		reason string
		head   []string
	}{
		{abi.ErrInvalid, "neither a name nor an address", []string{"GET", "http://2130706433/"}},
		{abi.ErrInvalid, "neither a name nor an address", []string{"GET", "http://0x7f.1/"}},
		{abi.ErrInvalid, "neither a name nor an address", []string{"GET", "http://0x7f000001/"}},
		{abi.ErrInvalid, "neither a name nor an address", []string{"GET", "http://0177.0.0.1/"}},
		{abi.ErrInvalid, "neither a name nor an address", []string{"GET", "http://127.1/"}},
		{abi.ErrInvalid, "user info", []string{"GET", "http://api.example.com@evil.test/a/"}},
		{abi.ErrInvalid, "user info", []string{"GET", "http://user:pass@api.example.com/a/"}},
		{abi.ErrInvalid, "user info", []string{"GET", "http://@api.example.com/a/"}},
		{abi.ErrInvalid, "write it as %5C", []string{"GET", `http://api.example.com\@evil.test/a/`}},
		{abi.ErrInvalid, "punycode", []string{"GET", "http://\u0430pi.example.com/a/"}},
		{abi.ErrInvalid, "punycode", []string{"GET", "http://api.example\u3002com/a/"}},
		{abi.ErrInvalid, "in ASCII", []string{"GET", good + "\u00e4"}},
		{abi.ErrInvalid, "write it as %20", []string{"GET", good + "? HTTP/1.1"}},
		{abi.ErrInvalid, "write it as %0D", []string{"GET", good + "\r\nHost: evil.test"}},
		{abi.ErrInvalid, "where it leads", []string{"GET", good + "../b"}},
		{abi.ErrInvalid, "where it leads", []string{"GET", good + "%2e%2E/b"}},
		{abi.ErrInvalid, "where it leads", []string{"GET", good + "..%2fb"}},
		{abi.ErrInvalid, "where it leads", []string{"GET", good + "..%5cb"}},
		{abi.ErrInvalid, "where it leads", []string{"GET", good + "..;x=y/b"}},
		{abi.ErrInvalid, "where it leads", []string{"GET", good + "%252e%252e/b"}},
		{abi.ErrInvalid, "neither http:// nor https://", []string{"GET", "file:///etc/passwd"}},
		{abi.ErrInvalid, "neither http:// nor https://", []string{"GET", "/a/"}},
		{abi.ErrInvalid, "no host", []string{"GET", "http:///a/"}},
		{abi.ErrInvalid, "port", []string{"GET", "http://api.example.com:0/a/"}},
		{abi.ErrInvalid, "port", []string{"GET", "http://api.example.com:65536/a/"}},
		{abi.ErrInvalid, "empty port", []string{"GET", "http://api.example.com:/a/"}},
		{abi.ErrInvalid, "network interface", []string{"GET", "http://[fe80::1%25eth0]/a/"}},
		{abi.ErrInvalid, "no token", []string{"GET /x HTTP/1.1\r\nX:", good}},
		{abi.ErrInvalid, "no token", []string{"", good}},
		{abi.ErrInvalid, "tunnels", []string{"CONNECT", good}},
		{abi.ErrInvalid, "control character", []string{"GET", good, "X", "a\r\nHost: evil.test"}},
		{abi.ErrInvalid, "control character", []string{"GET", good, "X", "a\nb"}},
		{abi.ErrInvalid, "no token", []string{"GET", good, "X: y\r\nZ", "a"}},
		{abi.ErrInvalid, "no token", []string{"GET", good, "X ", "a"}},
		{abi.ErrInvalid, "set by the host", []string{"GET", good, "transfer-encoding", "chunked"}},
		{abi.ErrInvalid, "set by the host", []string{"GET", good, "Content-Length", "3", "Transfer-Encoding", "chunked"}},
		{abi.ErrInvalid, "set by the host", []string{"GET", good, "Host", "evil.test"}},
		{abi.ErrInvalid, "set by the host", []string{"GET", good, "Connection", "X-Forwarded-For"}},
		{abi.ErrInvalid, "set by the host", []string{"GET", good, "Proxy-Authorization", "x"}},
		{abi.ErrInvalid, "set by the host", []string{"GET", good, "TE", "trailers"}},
		{abi.ErrInvalid, "set by the host", []string{"GET", good, "Transfer_Encoding", "chunked"}},
		{abi.ErrInvalid, "set by the host", []string{"GET", good, "content_length", "3"}},
		{abi.ErrInvalid, "set by the host", []string{"GET", good, "proxy_authorization", "x"}},
		{abi.ErrDenied, "names of methods are in upper case", []string{"get", good}},
		{abi.ErrDenied, "names of methods are in upper case", []string{"Head", good}},
		{abi.ErrDenied, "is not granted", []string{"POST", good}},
		{abi.ErrDenied, "is not granted", []string{"GETS", good}},
		{abi.ErrDenied, "is not granted", []string{"connect", good}},
		{abi.ErrInvalid, "there twice", []string{"GET", good, "Content-Length", "3", "content-length", "3"}},
		{abi.ErrInvalid, "no number of bytes", []string{"GET", good, "Content-Length", "+3"}},
		{abi.ErrInvalid, "no number of bytes", []string{"GET", good, "Content-Length", "3, 3"}},
		{abi.ErrInvalid, "no number of bytes", []string{"GET", good, "Content-Length", "-1"}},
		{abi.ErrInvalid, "list of 3", []string{"GET", good, "X"}},
		{abi.ErrInvalid, "list of 0", nil},
		{abi.ErrDenied, "is not granted", []string{"GET", "http://other.example.com/a/"}},
		{abi.ErrInvalid, "no name of a host", []string{"GET", "http://api.example.com./a/"}},
		{abi.ErrTooLarge, "at most 65536", []string{"GET", good, "X", strings.Repeat("x", abi.MaxHead)}},
	} {
		want(t, g, g.Open(c.head...), c.code, c.reason)
	}
	want(t, g, g.Call("job_v1_http.open", nil, []byte("GET\x00"+good), 0), abi.ErrInvalid, "NUL")
}

// TestSentAsChecked compares what a server gets with what was compared with the grant.
func TestSentAsChecked(t *testing.T) {
	heads := make(chan string, 1)
	server := listen(t, func(c net.Conn) {
		lines := bufio.NewReader(c)
		var all strings.Builder
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			all.WriteString(line)
			if line == "\r\n" {
				heads <- all.String()
				all.Reset()
				fmt.Fprint(c, "HTTP/1.1 204 No Content\r\n\r\n")
			}
		}
	})
	grant := granted(t, server)
	grant.Path, grant.Methods = "/a/", []string{"GET", "PURGE"}
	g := begin(t, Options{}, &grants.Grant{HTTP: []grants.HTTP{grant}})
	at := strings.TrimPrefix(server, "http://")
	for _, c := range []struct{ method, url, line string }{ // line: of the request; empty: it is refused
		{"GET", server + "/a/b", "GET /a/b HTTP/1.1"},
		{"PURGE", server + "/a/b", "PURGE /a/b HTTP/1.1"},
		{"get", server + "/a/b", ""}, {"Get", server + "/a/b", ""}, {"purge", server + "/a/b", ""}, {"PUT", server + "/a/b", ""},
		{"GET", "HTTP://" + at + "/a/b", "GET /a/b HTTP/1.1"},
		{"GET", server + "/A/b", ""},
		{"GET", server + "/%61/b", "GET /%61/b HTTP/1.1"},
		{"GET", server + "/a//b", "GET /a//b HTTP/1.1"},
		{"GET", server + "//a/b", ""}, {"GET", server + "/a%2fb", ""}, {"GET", server + "/a;x/b", ""}, {"GET", server + "/a", ""},
		{"GET", server + "/a/b;c=d", "GET /a/b;c=d HTTP/1.1"},
		{"GET", server + "/a/b%2fc%5Cd%3be", "GET /a/b%2fc%5Cd%3be HTTP/1.1"},
		{"GET", server + "/a/b%3f/../c", ""}, {"GET", server + "/a/%2e%2e/c", ""}, {"GET", server + "/a/.%2E;x/c", ""}, {"GET", server + "/a/%252E./c", ""},
		{"GET", server + "/a/b\\..\\c", ""}, {"GET", server + "/a/b%5c..%5cc", ""}, {"GET", server + "/a/b/.", ""}, {"GET", server + "/a/..", ""},
		{"GET", server + "/a/?x=/../y&z=%2e%2e", "GET /a/?x=/../y&z=%2e%2e HTTP/1.1"},
		{"GET", server + "/a/b#/../c", "GET /a/b HTTP/1.1"},
		{"GET", server + "?/a/b", ""}, {"GET", server + "#/a/b", ""},
		{"GET", "http://LOCALHOST" + at[strings.LastIndexByte(at, ':'):] + "/a/", ""},
	} {
		h := g.Open(c.method, c.url)
		if h < 0 {
			if c.line != "" {
				t.Errorf("%s %s is refused: %s", c.method, c.url, g.Error(0))
			}
			continue
		}
		g.Finish(h)
		if status := g.Status(h); status != 204 {
			t.Fatalf("%s %s: %d %s", c.method, c.url, status, g.Error(h))
		}
		g.CloseHandle(h)
		head := <-heads
		line, rest, _ := strings.Cut(head, "\r\n")
		if line != c.line || !strings.HasPrefix(rest, "Host: "+at+"\r\n") {
			t.Errorf("%s %s was sent as %q, expected %q", c.method, c.url, head, c.line)
		}
	}
}

// TestLength has bodies of another length than the guest has said.
//
// It kills the mutant "guest's body that is cut and looks whole".
func TestLength(t *testing.T) {
	var got atomic.Int64
	g, server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			got.Add(1)
		}
	}, grants.Quotas{})
	long := bytes.Repeat([]byte("x"), startAt+1)
	h := g.Open("POST", server, "Content-Length", "3")
	want(t, g, g.Write(h, []byte("four")), abi.ErrInvalid, "Content-Length is 3, and more is written")
	want(t, g, g.Finish(h), abi.ErrInvalid, "Content-Length is 3")
	h = g.Open("POST", server, "Content-Length", strconv.Itoa(2*len(long)))
	if code := g.Write(h, long); code != 0 {
		t.Fatal(g.Error(h))
	}
	want(t, g, g.Finish(h), abi.ErrInvalid, "bytes were written")
	want(t, g, g.Status(h), abi.ErrInvalid, "bytes were written")
	if got.Load() != 0 {
		t.Errorf("the server took %d bodies for whole", got.Load())
	}
	h = g.Open("POST", server)
	g.Finish(h)
	want(t, g, g.Write(h, []byte("x")), abi.ErrInvalid, "is finished")
}

func TestRedirect(t *testing.T) {
	var hits atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer other.Close()
	g, server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusFound)
	}, grants.Quotas{})
	status, _, headers := get(t, g, "", "GET", server)
	if status != 302 || headerOf(headers, "Location") != other.URL {
		t.Errorf("status %d, %q", status, headers)
	}
	want(t, g, g.Open("GET", other.URL), abi.ErrDenied, "is not granted")
	if hits.Load() != 0 {
		t.Error("the redirect was followed")
	}
}

func TestProxyOfEnvironment(t *testing.T) {
	var hits atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer proxy.Close()
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	names := &capabilitytest.Names{Lookup: func(string) []netip.Addr { return []netip.Addr{netip.MustParseAddr("127.0.0.1")} }}
	rule := granted(t, server.URL)
	rule.Host = "api.test"
	g := begin(t, Options{resolver: names.Resolver()}, &grants.Grant{HTTP: []grants.HTTP{rule}})
	if status, _, _ := get(t, g, "", "GET", fmt.Sprintf("http://api.test:%d/", rule.Port)); status != 200 || hits.Load() != 0 {
		t.Errorf("status %d, the proxy saw %d", status, hits.Load())
	}
}

// TestBomb has bodies that are much longer than what may be received, and than what is
// sent.
//
// It kills the mutant "guest's body over the quota".
func TestBomb(t *testing.T) {
	q := grants.Quotas{Received: 1 << 20}
	long := func(w io.Writer) {
		piece := make([]byte, 64<<10)
		for range 1024 {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}
	for name, handler := range map[string]http.HandlerFunc{
		"gzip": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			long(gzip.NewWriter(w))
		},
		"plain": func(w http.ResponseWriter, _ *http.Request) { long(w) },
	} {
		t.Run(name, func(t *testing.T) {
			g, server := serve(t, handler, q)
			h := g.Open("GET", server)
			g.Finish(h)
			all, code := g.ReadAll(h)
			want(t, g, int64(code), abi.ErrQuota, "may receive 1048576 bytes")
			if len(all) > 1<<20 {
				t.Errorf("the guest got %d bytes", len(all))
			}
		})
	}
}

// TestSlow has servers that let a request wait, in each of its phases.
func TestSlow(t *testing.T) {
	silent := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	drip := func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			return
		}
		for _, err := fmt.Fprint(c, "HTTP/1.1 200 OK\r\nX: "); err == nil; _, err = fmt.Fprint(c, "x") {
			time.Sleep(time.Millisecond)
		}
	}
	for name, c := range map[string]struct {
		server func(net.Conn)
		scheme string
		reason string
	}{
		"TLS":  {silent, "https", "no connection within 100ms"},
		"head": {silent, "http", "no response within 100ms"},
		"drip": {drip, "http", "no response within 100ms"},
	} {
		t.Run(name, func(t *testing.T) {
			url := c.scheme + strings.TrimPrefix(listen(t, c.server), "http")
			g := begin(t, Options{}, &grants.Grant{HTTP: []grants.HTTP{granted(t, url)}, Quotas: quick})
			fails(t, g, abi.ErrTimeout, c.reason, "GET", url)
		})
	}
	t.Run("connect", func(t *testing.T) {
		over := make(chan struct{})
		defer close(over)
		names := &capabilitytest.Names{Lookup: func(string) []netip.Addr { <-over; return nil }}
		g := begin(t, Options{resolver: names.Resolver()}, &grants.Grant{HTTP: []grants.HTTP{{Scheme: "http", Host: "slow.test", Port: 80, Path: "/"}}, Quotas: quick})
		fails(t, g, abi.ErrTimeout, "no connection within 100ms", "GET", "http://slow.test/")
	})
	t.Run("body", func(t *testing.T) {
		g, server := serve(t, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "first")
			w.(http.Flusher).Flush()
			<-r.Context().Done() // until the run is over
		}, quick)
		h := g.Open("GET", server)
		g.Finish(h)
		b := make([]byte, 100)
		if n := g.Read(h, b); n != 5 {
			t.Fatalf("%d: %s", n, g.Error(h))
		}
		if n := g.Call("job_v1_io.read", b, nil, h); n != int64(abi.ErrAgain) {
			t.Fatalf("%d: %s", n, g.Error(h))
		}
		want(t, g, g.Wait(10), abi.ErrTimeout, "no handle is ready")
		g.Run.Close()
	})
	t.Run("server that reads nothing", func(t *testing.T) {
		over := make(chan struct{})
		server := listen(t, func(net.Conn) { <-over })
		defer close(over)
		g := begin(t, Options{}, &grants.Grant{HTTP: []grants.HTTP{granted(t, server)}})
		h := g.Open("POST", server)
		for { // until all buffers are full
			n := g.Call("job_v1_io.write", nil, make([]byte, 64<<10), h)
			if n == int64(abi.ErrAgain) && g.Wait(50) == int64(abi.ErrTimeout) {
				break
			} else if n < 0 && n != int64(abi.ErrAgain) {
				t.Fatal(g.Error(h))
			}
		}
		g.Run.Close()
	})
}

// TestBroken has servers that do not keep to the protocol.
func TestBroken(t *testing.T) {
	answer := func(text string) func(net.Conn) {
		return func(c net.Conn) {
			if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				fmt.Fprint(c, text)
			}
			c.Close()
		}
	}
	forever := func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			return
		}
		for err := error(nil); err == nil; {
			_, err = fmt.Fprint(c, "HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n")
		}
	}
	for name, c := range map[string]struct {
		server func(net.Conn)
		code   abi.Code
		reason string
	}{
		"garbage":       {answer("220 mail.example.com ESMTP\r\n"), abi.ErrUnavailable, "malformed HTTP"},
		"nothing":       {answer(""), abi.ErrUnavailable, "EOF"},
		"half a head":   {answer("HTTP/1.1 200 OK\r\nX: "), abi.ErrUnavailable, "EOF"},
		"huge head":     {answer("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", abi.MaxHead) + "\r\n\r\n"), abi.ErrTooLarge, "more than 65536 bytes"},
		"many headers":  {answer("HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", abi.MaxHead/6) + "\r\n"), abi.ErrTooLarge, "more than 65536 bytes"},
		"1xx forever":   {forever, abi.ErrTooLarge, "more than 65536 bytes"},
		"two lengths":   {answer("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"), abi.ErrUnavailable, "Content-Length"},
		"other length":  {answer("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), abi.ErrUnavailable, "Content-Length"},
		"other coding":  {answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"), abi.ErrUnavailable, "transfer encoding"},
		"folded header": {answer("HTTP/1.1 200 OK\r\n folded\r\n\r\n"), abi.ErrUnavailable, ""},
		"protocol":      {answer("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nraw"), abi.ErrUnavailable, "changes the protocol"},
	} {
		t.Run(name, func(t *testing.T) {
			server := listen(t, c.server)
			g := begin(t, Options{}, &grants.Grant{HTTP: []grants.HTTP{granted(t, server)}})
			fails(t, g, c.code, c.reason, "GET", server)
			if n := g.Run.Usage.All()["http"]; n.Failed != 1 || len(n.FailedTargets) != 1 || n.FailedTargets[0] != n.Targets[0] {
				t.Errorf("usage: %+v", n)
			}
		})
	}
	for name, text := range map[string]string{
		"short body":    "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nfirst",
		"short chunk":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n",
		"broken chunk":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\nxyz\r\n",
		"endless chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n" + strings.Repeat("0", 1<<16),
	} {
		t.Run(name, func(t *testing.T) {
			server := listen(t, answer(text))
			g := begin(t, Options{}, &grants.Grant{HTTP: []grants.HTTP{granted(t, server)}})
			h := g.Open("GET", server)
			g.Finish(h)
			all, code := g.ReadAll(h)
			if string(all) != "first" || code != abi.ErrUnavailable {
				t.Errorf("%q, %d: %s", all, code, g.Error(h))
			}
		})
	}
}

// TestEarlyEnd has servers that do not wait for the end of a request.
func TestEarlyEnd(t *testing.T) {
	body := make([]byte, 1<<20)
	t.Run("close", func(t *testing.T) {
		server := listen(t, func(c net.Conn) {
			_, _ = io.CopyN(io.Discard, c, 100)
			c.Close()
		})
		g := begin(t, Options{}, &grants.Grant{HTTP: []grants.HTTP{granted(t, server)}})
		h := g.Open("POST", server)
		if code := g.Write(h, body[:startAt+1]); code != 0 && code != int64(abi.ErrUnavailable) {
			t.Fatalf("%d: %s", code, g.Error(h))
		}
		// The guest does not go on to write: the status must not wait for it.
		want(t, g, g.Status(h), abi.ErrUnavailable, "")
		want(t, g, g.Write(h, body), abi.ErrUnavailable, "")
	})
	t.Run("answer", func(t *testing.T) {
		g, server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			fmt.Fprint(w, "too large")
		}, grants.Quotas{})
		h := g.Open("POST", server)
		if code := g.Write(h, body[:startAt+1]); code != 0 && code != int64(abi.ErrUnavailable) {
			t.Fatalf("%d: %s", code, g.Error(h))
		}
		if status := g.Status(h); status != 413 {
			t.Fatalf("%d: %s", status, g.Error(h))
		}
		if all, code := g.ReadAll(h); code != 0 || string(all) != "too large" {
			t.Errorf("%d, %q: %s", code, all, g.Error(h))
		}
	})
}

func TestManyOpens(t *testing.T) {
	g, server := serve(t, echo, grants.Quotas{})
	before := runtime.NumGoroutine()
	opened := 0
	for range 10_000 {
		h := g.Open("GET", server)
		if h < 0 {
			want(t, g, h, abi.ErrQuota, "100 requests, which is the limit")
			continue
		}
		opened++
		g.CloseHandle(h)
	}
	if n := runtime.NumGoroutine(); opened != 100 || n > before+10 {
		t.Errorf("%d requests, %d goroutines more", opened, n-before)
	}
	g, server = serve(t, echo, grants.Quotas{})
	for i := range 20 {
		if h := g.Open("GET", server); i < 16 && h < 0 {
			t.Fatal(g.Error(0))
		} else if i >= 16 {
			want(t, g, h, abi.ErrQuota, "16 requests are in flight")
		}
	}
}

func TestSentQuota(t *testing.T) {
	var whole atomic.Int64
	g, server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			whole.Add(1)
		}
	}, grants.Quotas{Sent: 1 << 20})
	h := g.Open("POST", server)
	want(t, g, g.Write(h, make([]byte, 2<<20)), abi.ErrQuota, "may send 1048576 bytes")
	want(t, g, g.Finish(h), abi.ErrQuota, "")
	want(t, g, g.Status(h), abi.ErrQuota, "")
	if whole.Load() != 0 {
		t.Error("the server has a body that is cut and looks whole")
	}
	for range 1 << 20 / (60 << 10) {
		g.CloseHandle(g.Open("GET", server, "X", strings.Repeat("x", 60<<10)))
	}
	want(t, g, g.Open("GET", server, "X", strings.Repeat("x", 60<<10)), abi.ErrQuota, "may send 1048576 bytes")
}

func TestHandleOfAnotherRun(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	grant := &grants.Grant{HTTP: []grants.HTTP{granted(t, server.URL)}}
	in := New(grant, Options{})
	defer in.Close()
	one, other := capabilitytest.NewGuest(t, grant, in.Functions()), capabilitytest.NewGuest(t, grant, in.Functions())
	defer other.Run.Close()
	defer one.Run.Close()
	h := one.Open("GET", server.URL)
	for _, f := range []string{"job_v1_io.read", "job_v1_io.write", "job_v1_io.finish", "job_v1_io.close", "job_v1_http.status", "job_v1_http.headers"} {
		want(t, other, other.Call(f, make([]byte, 10), []byte("x"), h), abi.ErrInvalid, "no open handle")
	}
}

// recorder keeps what a server receives.
type recorder struct {
	mu   sync.Mutex
	all  bytes.Buffer
	more chan struct{}
	over chan struct{}
}

func (r *recorder) serve(c net.Conn) {
	defer close(r.over)
	b := make([]byte, 4096)
	for {
		n, err := c.Read(b)
		r.mu.Lock()
		r.all.Write(b[:n])
		r.mu.Unlock()
		select {
		case r.more <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// await waits until so many of a letter have come.
func (r *recorder) await(letter string, n int) {
	for r.count(letter) < n {
		<-r.more
	}
}

func (r *recorder) count(text string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Count(r.all.Bytes(), []byte(text))
}

// TestLostMidBody loses the item when a part of a body has been sent: the server gets
// nothing of what the guest writes then, nor what looks like an end, nor a new request.
func TestLostMidBody(t *testing.T) {
	r := &recorder{more: make(chan struct{}, 1), over: make(chan struct{})}
	server := listen(t, r.serve)
	g := begin(t, Options{}, &grants.Grant{HTTP: []grants.HTTP{granted(t, server)}})
	h := g.Open("POST", server)
	if code := g.Write(h, bytes.Repeat([]byte("A"), startAt+1)); code != 0 {
		t.Fatal(g.Error(h))
	}
	r.await("A", startAt+1)
	g.Owner.Cancel(abi.CancelLost)
	g.Write(h, bytes.Repeat([]byte("B"), startAt+1))
	g.Finish(h)
	want(t, g, g.Status(h), abi.ErrCancelled, "")
	want(t, g, g.Open("POST", server), abi.ErrCancelled, "lost")
	g.Run.Close()
	<-r.over
	if n := r.count("B"); n != 0 || r.count("\r\n0\r\n\r\n") != 0 {
		t.Errorf("the server got %d bytes more", n)
	}
	if n := r.count("POST"); n != 1 {
		t.Errorf("the server got %d requests", n)
	}
}

// TestLostBeforeStart loses the item between open and the first byte, on a connection
// that exists already.
func TestLostBeforeStart(t *testing.T) {
	var hits atomic.Int64
	g, server := serve(t, func(http.ResponseWriter, *http.Request) { hits.Add(1) }, grants.Quotas{})
	get(t, g, "", "GET", server)
	h := g.Open("GET", server)
	g.Owner.Cancel(abi.CancelLost)
	want(t, g, g.Finish(h), abi.ErrCancelled, "lost")
	want(t, g, g.Open("GET", server), abi.ErrCancelled, "lost")
	if hits.Load() != 1 {
		t.Errorf("%d requests", hits.Load())
	}
}

// TestSecret has servers that give a secret back in every place.
//
// It kills the mutant "secret in the headers of a response".
func TestSecret(t *testing.T) {
	const secret = "s3cr3t-t0k3n"
	reply := func(c net.Conn) {
		for {
			r, err := http.ReadRequest(bufio.NewReader(c))
			if err != nil {
				return
			}
			value := r.Header.Get("Authorization")
			if r.URL.Path == "/garbage" {
				fmt.Fprintf(c, "%s\r\n\r\n", value)
				c.Close()
				return
			}
			fmt.Fprintf(c, "HTTP/1.1 200 %s\r\nX-Echo: %s\r\nX-%s: %s\r\nLocation: /?t=%s\r\nContent-Length: 2\r\n\r\nok", value, value, secret, secret, secret)
		}
	}
	server := listen(t, reply)
	rule := granted(t, server)
	rule.Secrets = []string{"TOKEN", "BROKEN", "LOST"}
	secrets := map[string]string{"TOKEN": secret, "BROKEN": secret + "\r\nX: y", "OTHER": secret}
	g := begin(t, Options{Secret: func(name string) (string, error) {
		if v := secrets[name]; v != "" {
			return v, nil
		}
		return "", errors.New("no such file")
	}}, &grants.Grant{HTTP: []grants.HTTP{rule}})
	g.Run.Redact = grants.NewRedactor(grants.Named{Name: "TOKEN", Value: secret}).Redact

	_, _, headers := get(t, g, "", "GET", server, "Authorization", "Bearer {{secret:TOKEN}}")
	if headerOf(headers, "X-Echo") != "Bearer [secret TOKEN]" {
		t.Errorf("the secret was not sent: %q", headers)
	}
	said := strings.Join(headers, "\n")
	fails(t, g, abi.ErrUnavailable, "malformed", "GET", server+"/garbage", "Authorization", "Bearer {{secret:TOKEN}}")
	said += g.Error(0)
	for reason, value := range map[string]string{
		`"OTHER" is not granted`: "{{secret:OTHER}}", `"BROKEN" cannot be in a header`: "{{secret:BROKEN}}",
		"no such file": "{{secret:LOST}}", "without }}": "{{secret:TOKEN", `"TOKEN " is not granted`: "{{secret:TOKEN }}",
	} {
		h := g.Open("GET", server, "Authorization", value)
		if text := g.Error(0); h > 0 || !strings.Contains(text, reason) {
			t.Errorf("%q: %d: %s, want %s", value, h, text, reason)
		}
		said += g.Error(0)
	}
	if strings.Contains(strings.ToLower(said), secret) {
		t.Errorf("the guest got the secret: %q", said)
	}
}

// TestTLS has an authority and a client certificate of the grant's own.
func TestTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, len(r.TLS.PeerCertificates), r.Proto)
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	rule := granted(t, server.URL)
	with := rule
	with.CA = write("ca.pem", "CERTIFICATE", server.Certificate().Raw)
	with.Path, with.Host = "/with/", "example.com" // a name of the certificate of httptest
	key, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	client := with
	client.Path, client.Cert, client.Key = "/client/", with.CA, write("key.pem", "PRIVATE KEY", key)
	wrong := with
	wrong.Path, wrong.CA = "/wrong/", client.Key
	keyless := with
	keyless.Path, keyless.Cert, keyless.Key = "/keyless/", with.CA, with.CA
	missing := rule
	missing.Path, missing.CA = "/missing/", filepath.Join(dir, "missing.pem")
	other := with
	other.Path, other.Host = "/", "example.org"
	names := &capabilitytest.Names{Lookup: func(string) []netip.Addr { return []netip.Addr{netip.MustParseAddr("127.0.0.1")} }}
	g := begin(t, Options{resolver: names.Resolver()}, &grants.Grant{HTTP: []grants.HTTP{with, client, wrong, keyless, missing, other, rule}})
	at := func(host, path string) string { return fmt.Sprintf("https://%s:%d%s", host, rule.Port, path) }
	if _, body, _ := get(t, g, "", "GET", at("example.com", "/with/")); body != "0HTTP/1.1" {
		t.Errorf("%q", body)
	}
	if _, body, _ := get(t, g, "", "GET", at("example.com", "/client/")); body != "1HTTP/1.1" {
		t.Errorf("%q", body)
	}
	fails(t, g, abi.ErrUnavailable, "has no certificate", "GET", at("example.com", "/wrong/"))
	fails(t, g, abi.ErrUnavailable, "the granted client certificate", "GET", at("example.com", "/keyless/"))
	fails(t, g, abi.ErrUnavailable, "certificate", "GET", at("127.0.0.1", "/"))
	fails(t, g, abi.ErrUnavailable, "missing.pem", "GET", at("127.0.0.1", "/missing/"))
	fails(t, g, abi.ErrUnavailable, "not example.org", "GET", at("example.org", "/"))
}

// TestClosedInFlight closes runs and the instance at any moment of requests.
func TestClosedInFlight(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	grant := &grants.Grant{HTTP: []grants.HTTP{granted(t, server.URL)}}
	for i := range 50 {
		in := New(grant, Options{})
		g := capabilitytest.NewGuest(t, grant, in.Functions())
		for range i % 8 {
			h := g.Open("POST", server.URL)
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
func TestLostWhileItWaits(t *testing.T) {
	read, over := make(chan struct{}), make(chan struct{})
	var received int64
	server := listen(t, func(c net.Conn) {
		defer close(over)
		<-read
		received, _ = io.Copy(io.Discard, c)
	})
	g := begin(t, Options{}, &grants.Grant{HTTP: []grants.HTTP{granted(t, server)}, Quotas: grants.Quotas{Sent: 1 << 30}})
	h := g.Open("POST", server)
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
