package http

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/capabilitytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// allMethods are granted to tests that are not about methods.
var allMethods = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"}

// granted is a grant for the server of a test, wherever it listens.
func granted(t testing.TB, server string) grants.HTTP {
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return grants.HTTP{Scheme: u.Scheme, Host: u.Hostname(), Port: uint16(port), Path: "/", Methods: allMethods, Private: true}
}

// begin starts a run with a grant. It ends with the test.
func begin(t testing.TB, o Options, g *grants.Grant) *capabilitytest.Guest {
	in := New(g, o)
	t.Cleanup(in.Close)
	return capabilitytest.NewGuest(t, g, in.Functions())
}

// serve starts a server and a run that may send requests to it.
func serve(t testing.TB, handler http.HandlerFunc, q grants.Quotas) (*capabilitytest.Guest, string) {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return begin(t, Options{}, &grants.Grant{HTTP: []grants.HTTP{granted(t, server.URL)}, Quotas: q}), server.URL
}

// want fails unless the code is as wanted and the guest can read why.
func want(t testing.TB, g *capabilitytest.Guest, got int64, code abi.Code, reason string) {
	t.Helper()
	if text := g.Error(0); abi.Code(got) != code || !strings.Contains(text, reason) {
		t.Fatalf("got %d (%s), want %d with %q", got, text, code, reason)
	}
}

// get makes a whole request.
func get(t testing.TB, g *capabilitytest.Guest, body string, head ...string) (status int64, answer string, headers []string) {
	t.Helper()
	h := g.Open(head...)
	if h <= 0 {
		t.Fatalf("open: %d: %s", h, g.Error(0))
	}
	if code := g.Write(h, []byte(body)); code != 0 {
		t.Fatalf("write: %d: %s", code, g.Error(h))
	}
	if code := g.Finish(h); code != 0 {
		t.Fatalf("finish: %d: %s", code, g.Error(h))
	}
	if status = g.Status(h); status < 0 {
		t.Fatalf("status: %d: %s", status, g.Error(h))
	}
	headers = g.Headers(h)
	all, code := g.ReadAll(h)
	if code != 0 {
		t.Fatalf("read: %d: %s", code, g.Error(h))
	}
	g.CloseHandle(h)
	return status, string(all), headers
}

// headerOf is a header in a list.
func headerOf(list []string, name string) string {
	for pair := range slices.Chunk(list, 2) {
		if pair[0] == name {
			return pair[1]
		}
	}
	return ""
}

// echo answers with what it was sent.
func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Length", strconv.FormatInt(r.ContentLength, 10))
	w.Header().Set("X-Method", r.Method)
	for name, values := range r.Header {
		for _, v := range values {
			w.Header().Add("Echo-"+name, v)
		}
	}
	w.Header().Set("X-Remote", r.RemoteAddr)
	if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
		panic(err)
	}
	if _, err := io.Copy(w, r.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func TestRequest(t *testing.T) {
	g, server := serve(t, echo, grants.Quotas{})
	long := strings.Repeat("wasm", 100_000)
	for _, c := range []struct{ method, body, length string }{
		{"GET", "", "0"}, {"POST", "", "0"}, {"POST", "hello", "5"}, {"PUT", strings.Repeat("x", startAt), strconv.Itoa(startAt)}, {"POST", long, "-1"},
	} {
		status, body, headers := get(t, g, c.body, c.method, server+"/a?b=c")
		if status != 200 || body != c.body || headerOf(headers, "X-Length") != c.length || headerOf(headers, "X-Method") != c.method {
			t.Errorf("%s of %d bytes: status %d, %d bytes, %s", c.method, len(c.body), status, len(body), headers)
		}
	}
	_, body, headers := get(t, g, long, "POST", server, "Content-Length", strconv.Itoa(len(long)))
	if body != long || headerOf(headers, "X-Length") != strconv.Itoa(len(long)) {
		t.Errorf("a body with Content-Length: %s", headers)
	}
	n := g.Run.Usage.All()["http"]
	if n.Calls != 6 || n.Failed != 0 || n.Received != n.Sent-sentHeads(server, len(long)) || len(n.Targets) != 1 {
		t.Errorf("usage: %+v", n)
	}
}

// sentHeads is how many bytes the heads of TestRequest have.
func sentHeads(server string, long int) int64 {
	n := 0
	for _, method := range []string{"GET", "POST", "POST", "PUT", "POST"} {
		n += len(method) + 1 + len(server) + len("/a?b=c") + 1
	}
	return int64(n + len(abi.AppendList(nil, "POST", server, "Content-Length", strconv.Itoa(long))))
}

func TestHeaders(t *testing.T) {
	g, server := serve(t, echo, grants.Quotas{})
	_, _, first := get(t, g, "x", "POST", server, "x-one", "1", "X-One", "2")
	for name, value := range map[string]string{
		"Echo-Idempotency-Key": g.Run.Info.RunID, "Echo-Wasmjob-Fence": "7", "Echo-Traceparent": g.Run.Info.Traceparent, "Echo-User-Agent": "wasmjob", "Echo-X-One": "1",
	} {
		if got := headerOf(first, name); got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
	if i := slices.Index(first, "Echo-X-One"); first[i+2] != "Echo-X-One" || first[i+3] != "2" {
		t.Errorf("the second value is lost: %q", first)
	}
	_, _, second := get(t, g, "x", "POST", server, "User-Agent", "mine", "Wasmjob-Fence", "8", "traceparent", "t")
	for name, value := range map[string]string{
		"Echo-Idempotency-Key": g.Run.Info.RunID + "-2", "Echo-Wasmjob-Fence": "8", "Echo-Traceparent": "t", "Echo-User-Agent": "mine",
	} {
		if got := headerOf(second, name); got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
	if a, b := headerOf(first, "X-Remote"), headerOf(second, "X-Remote"); a != b {
		t.Errorf("the second request has a connection of its own: %s, %s", a, b)
	}
	names := make([]string, 0, len(second)/2)
	for pair := range slices.Chunk(second, 2) {
		names = append(names, pair[0])
	}
	if !slices.IsSorted(names) {
		t.Errorf("the headers are not sorted: %q", names)
	}
}

func TestCompression(t *testing.T) {
	text := strings.Repeat("compress me ", 1000)
	g, server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		fmt.Fprint(z, text)
		z.Close()
		if r.Header.Get("Accept-Encoding") != "gzip" {
			w.WriteHeader(http.StatusNotAcceptable)
		}
		w.Header().Set("Content-Encoding", "gzip")
		w.Write(b.Bytes())
	}, grants.Quotas{})
	if status, body, headers := get(t, g, "", "GET", server); status != 200 || body != text || headerOf(headers, "Content-Encoding") != "" {
		t.Errorf("status %d, %d bytes, %q", status, len(body), headers)
	}
	if status, body, headers := get(t, g, "", "GET", server, "Accept-Encoding", "gzip"); status != 200 || body == text || headerOf(headers, "Content-Encoding") != "gzip" {
		t.Errorf("with an encoding of the guest's own: status %d, %d bytes, %q", status, len(body), headers)
	}
}

// listen answers each connection with f.
func listen(t testing.TB, f func(net.Conn)) string {
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
	return "http://" + l.Addr().String()
}

// A request begins when its response is asked for, also if its body has neither ended nor
// is long: a server may answer to a part of it, before the guest writes the rest.
func TestBeginWithStatus(t *testing.T) {
	for name, ask := range map[string]func(*capabilitytest.Guest, int64) int64{
		"status":  func(g *capabilitytest.Guest, h int64) int64 { return g.Status(h) },
		"headers": func(g *capabilitytest.Guest, h int64) int64 { return int64(min(len(g.Headers(h)), 1)) * 200 },
	} {
		for _, length := range []string{"", "10"} {
			t.Run(name+length, func(t *testing.T) {
				g, server := serve(t, func(w http.ResponseWriter, r *http.Request) {
					half := make([]byte, 5)
					if _, err := io.ReadFull(r.Body, half); err != nil {
						panic(err)
					}
					if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
						panic(err)
					}
					fmt.Fprintf(w, "%d %s ", r.ContentLength, half)
					if err := http.NewResponseController(w).Flush(); err != nil {
						panic(err)
					}
					if _, err := io.Copy(w, r.Body); err != nil {
						panic(http.ErrAbortHandler)
					}
				}, grants.Quotas{FirstByte: 5 * time.Second})
				head := []string{"POST", server}
				want := "-1 first other"
				if length != "" {
					head, want = append(head, "Content-Length", length), length+" first other"
				}
				h := g.Open(head...)
				if code := g.Write(h, []byte("first")); code != 0 {
					t.Fatalf("write: %d: %s", code, g.Error(h))
				}
				if n := ask(g, h); n != 200 {
					t.Fatalf("no response to what is written so far: %d: %s", n, g.Error(h))
				}
				if code := g.Write(h, []byte("other")); code != 0 {
					t.Fatalf("write: %d: %s", code, g.Error(h))
				}
				if code := g.Finish(h); code != 0 {
					t.Fatalf("finish: %d: %s", code, g.Error(h))
				}
				if all, code := g.ReadAll(h); code != 0 || string(all) != want {
					t.Errorf("%q, %d: %s", all, code, g.Error(h))
				}
			})
		}
	}
}

// What counts is how long the server takes, to the end of its answer, not how long the guest
// takes to write and to read.
func TestSlowTarget(t *testing.T) {
	const pause = 30 * time.Millisecond
	var held atomic.Int64
	begun := make(chan struct{}, 1)
	g, server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/head":
			came := time.Now()
			time.Sleep(pause)
			held.Store(int64(time.Since(came)))
		case "/body":
			came := time.Now()
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			time.Sleep(pause)
			held.Store(int64(time.Since(came)))
		case "/hang":
			begun <- struct{}{}
			<-r.Context().Done()
		default:
			begun <- struct{}{}
			io.Copy(w, r.Body)
		}
	}, grants.Quotas{})
	times := func(g *capabilitytest.Guest) abi.TargetTime {
		all := g.Run.Usage.All()["http"].Times
		if len(all) != 1 {
			t.Errorf("%+v", all)
		}
		return all[strings.TrimPrefix(server, "http://")]
	}
	for n, path := range []string{"/head", "/body"} {
		get(t, g, "", "GET", server+path)
		if now := times(g); now.Calls != int64(n+1) || now.Slowest < time.Duration(held.Load()) {
			t.Errorf("%s: %+v, the server's answer took %s", path, now, time.Duration(held.Load()))
		}
	}

	another := func() *capabilitytest.Guest {
		return begin(t, Options{}, &grants.Grant{HTTP: []grants.HTTP{granted(t, server)}})
	}
	g = another()
	h := g.Open("GET", server+"/hang")
	g.Finish(h)
	<-begun
	time.Sleep(pause)
	g.CloseHandle(h)
	if now := times(g); now.Calls != 1 || now.Slowest < pause {
		t.Errorf("without an answer: %+v", now)
	}

	// The machine may be busy: of a longer pause less is lost to that.
	for wait := pause; ; wait *= 2 {
		g, start := another(), time.Now()
		h := g.Open("POST", server+"/echo")
		g.Write(h, make([]byte, startAt+1))
		<-begun
		time.Sleep(wait)
		g.Finish(h)
		if _, code := g.ReadAll(h); code != 0 {
			t.Fatal(g.Error(h))
		}
		g.CloseHandle(h)
		now, all := times(g), time.Since(start)
		if now.Slowest < all-wait/2 {
			break
		}
		if wait > time.Second {
			t.Fatalf("a guest that took %s counts as a server that took %s, of %s", wait, now.Slowest, all)
		}
	}
}
