package httpx

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wasmjob/wasmjob/host/auth"
)

const maxBody = 64 << 10

// The server keeps a connection for half a second after an answer that it did not want
// the whole request for.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

func site(t *testing.T, o SiteOptions) *Site {
	t.Helper()
	s, err := NewSite(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestHosts(t *testing.T) {
	t.Parallel()
	leaf := &x509.Certificate{DNSNames: []string{"cron.internal", "*.cluster.local"}}
	s := site(t, SiteOptions{URL: "https://Cron.example.com:8443/", Names: []string{"node7"}, Certificate: func() *tls.Certificate { return &tls.Certificate{Leaf: leaf} }})
	h := s.Hosts(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:1": 200, "127.0.0.1:9770": 200, "[::1]:9770": 200, "[::1]": 200, "10.1.2.3": 200,
		"cron.example.com": 200, "cron.example.com:9770": 200, "node7:9770": 200, "NODE7": 200, "cron.internal": 200, "a.cluster.local:1": 200,
		"evil.example": 403, "evil.example:9770": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403, "cron.example.com.evil.example": 403, "b.a.cluster.local": 403, "": 403,
	} {
		r := httptest.NewRequest("GET", "/", http.NoBody)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("Host %q: %d, want %d", host, w.Code, want)
		}
		if want == 403 && !strings.Contains(w.Body.String(), auth.WrongHost) {
			t.Errorf("Host %q: %s", host, w.Body)
		}
	}
	if r := httptest.NewRequest("GET", "/", http.NoBody); site(t, SiteOptions{}).CheckHost(r) == nil {
		t.Error("a site without a name answers to example.com")
	}
}

func TestParseURL(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "cron.example.com", "ftp://x", "https://", "https://x/path", "https://u@x", "https://x?q", "https://x#f", "javascript:alert(1)", "https://[::1"} {
		if _, err := NewSite(SiteOptions{URL: bad}); bad != "" && err == nil {
			t.Errorf("%q is taken", bad)
		}
		if _, err := ParseURL(bad); err == nil {
			t.Errorf("%q is an address", bad)
		}
	}
}

// TestOriginScheme: the scheme is the one of the connection, or what a proxy says that is believed.
func TestOriginScheme(t *testing.T) {
	t.Parallel()
	s := site(t, SiteOptions{Proxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}) // httptest's client
	for _, c := range []struct {
		from, proto, origin string
		ok                  bool
	}{
		{"192.0.2.1:1", "https", "https://10.0.0.1", true}, {"192.0.2.1:1", "https", "http://10.0.0.1", false},
		{"192.0.2.1:1", "http", "http://10.0.0.1", true}, {"192.0.2.1:1", "http", "https://10.0.0.1", false},
		{"10.0.0.9:1", "https", "https://10.0.0.1", false}, {"10.0.0.9:1", "https", "http://10.0.0.1", true}, // no proxy of ours
	} {
		r := httptest.NewRequest("POST", "/", http.NoBody)
		r.Host, r.RemoteAddr = "10.0.0.1", c.from
		r.Header.Set("Origin", c.origin)
		r.Header.Set("X-Forwarded-Proto", c.proto)
		if err := s.CheckOrigin(r); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
	r := httptest.NewRequest("POST", "/", http.NoBody)
	r.Host, r.TLS = "10.0.0.1", &tls.ConnectionState{}
	for origin, ok := range map[string]bool{"https://10.0.0.1": true, "http://10.0.0.1": false} {
		r.Header.Set("Origin", origin)
		if err := s.CheckOrigin(r); (err == nil) != ok {
			t.Errorf("by TLS, from %s: %v", origin, err)
		}
	}
}

// TestOrigin: what a browser sends for another site's page is refused, if it changes something.
func TestOrigin(t *testing.T) {
	t.Parallel()
	s := site(t, SiteOptions{URL: "https://cron.example.com"})
	for _, c := range []struct {
		method, host, origin, fetch string
		ok                          bool
	}{
		{"POST", "10.0.0.1:9770", "", "", true}, // no browser
		{"POST", "10.0.0.1:9770", "http://10.0.0.1:9770", "", true},
		{"POST", "10.0.0.1:9770", "http://10.0.0.1:9770", "same-origin", true},
		{"POST", "10.0.0.1:9770", "https://cron.example.com", "cross-site", true}, // the proxy's name
		{"POST", "10.0.0.1:9770", "http://10.0.0.1:9771", "", false},              // another port
		{"POST", "10.0.0.1:9770", "https://evil.example", "cross-site", false},
		{"POST", "10.0.0.1:9770", "https://evil.example", "same-origin", true}, // no page can set Sec-Fetch-Site
		{"POST", "10.0.0.1:9770", "", "cross-site", false},
		{"POST", "10.0.0.1:9770", "", "same-site", false},
		{"POST", "10.0.0.1:9770", "null", "", false},
		{"DELETE", "10.0.0.1:9770", "https://evil.example", "", false},
		{"GET", "10.0.0.1:9770", "https://evil.example", "cross-site", true},
		{"POST", "10.0.0.1:9770", "https://10.0.0.1:9770", "", false}, // another scheme: there is no TLS
		{"GET", "10.0.0.1:9770", "https://10.0.0.1:9770", "", true},
		{"POST", "cron.example.com", "http://cron.example.com", "", true},
		{"POST", "cron.example.com", "https://cron.example.com", "", true}, // the name that was given, with its scheme
	} {
		r := httptest.NewRequest(c.method, "/", http.NoBody)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if c.fetch != "" {
			r.Header.Set("Sec-Fetch-Site", c.fetch)
		}
		err := s.CheckOrigin(r)
		var p *auth.Problem
		if (err == nil) != c.ok || (err != nil && (!errors.As(err, &p) || p.Status != 403 || p.Type != auth.Forged)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestClient: only proxies that are named say who the client is, and a client cannot make
// up an address in front of them.
func TestClient(t *testing.T) {
	t.Parallel()
	s := site(t, SiteOptions{Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	for _, c := range []struct {
		remote, forwarded, proto, want string
		secure                         bool
	}{
		{"192.0.2.1:1", "", "", "192.0.2.1", false},
		{"192.0.2.1:1", "203.0.113.9", "https", "192.0.2.1", false},
		{"10.0.0.1:1", "203.0.113.9", "https", "203.0.113.9", true},
		{"10.0.0.1:1", "1.1.1.1, 203.0.113.9", "http", "203.0.113.9", false},
		{"10.0.0.1:1", "203.0.113.9, 10.0.0.2", "", "203.0.113.9", false},
		{"10.0.0.1:1", "1.1.1.1, rubbish, 10.0.0.2", "", "10.0.0.2", false},
		{"10.0.0.1:1", "", "https", "10.0.0.1", true},
		{"[::ffff:10.0.0.1]:1", "2001:db8::1%eth0", "", "2001:db8::1", false},
		{"@", "203.0.113.9", "https", Here, false}, // a socket
	} {
		r := httptest.NewRequest("GET", "/", http.NoBody)
		r.RemoteAddr = c.remote
		if c.forwarded != "" {
			r.Header.Set("X-Forwarded-For", c.forwarded)
		}
		r.Header.Set("X-Forwarded-Proto", c.proto)
		if got := s.Client(r); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
		if got := s.Secure(r); got != c.secure {
			t.Errorf("%+v: secure %t", c, got)
		}
	}
	r := httptest.NewRequest("GET", "/", http.NoBody)
	r.Host = "10.1.1.1:9770"
	if b := s.Base(r); b != "http://10.1.1.1:9770" {
		t.Errorf("base %s", b)
	}
	if b := site(t, SiteOptions{URL: "https://cron.example.com/"}).Base(r); b != "https://cron.example.com" {
		t.Errorf("base %s", b)
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	site(t, SiteOptions{}).Headers(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", "/", http.NoBody))
	for name, want := range map[string]string{
		"Content-Security-Policy": "frame-ancestors 'none'", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "X-Frame-Options": "DENY", "Cache-Control": "no-store",
	} {
		if got := w.Header().Get(name); !strings.Contains(got, want) {
			t.Errorf("%s: %q", name, got)
		}
	}
	if strings.Contains(w.Header().Get("Content-Security-Policy"), "unsafe") {
		t.Error("the policy allows scripts or styles in the page")
	}
}

// TestOnlyTLS: browsers are told to keep to TLS (HSTS), over TLS, and not for this machine's own
// name.
func TestOnlyTLS(t *testing.T) {
	t.Parallel()
	s := site(t, SiteOptions{Proxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}})
	for _, c := range []struct {
		host, from, proto string
		tls, want         bool
	}{
		{"cron.example.com", "10.0.0.9:1", "", true, true},
		{"cron.example.com:9770", "10.0.0.9:1", "", true, true},
		{"cron.example.com", "192.0.2.1:1", "https", false, true}, // a proxy ends TLS
		{"cron.example.com", "192.0.2.1:1", "http", false, false},
		{"cron.example.com", "10.0.0.9:1", "https", false, false}, // no proxy of ours
		{"cron.example.com", "10.0.0.9:1", "", false, false},
		{"localhost:9770", "127.0.0.1:1", "", true, false},
		{"LOCALHOST.", "127.0.0.1:1", "", true, false},
		{"cron.localhost", "127.0.0.1:1", "", true, false},
	} {
		r := httptest.NewRequest("GET", "/", http.NoBody)
		r.Host, r.RemoteAddr = c.host, c.from
		if c.tls {
			r.TLS = &tls.ConnectionState{}
		}
		r.Header.Set("X-Forwarded-Proto", c.proto)
		w := httptest.NewRecorder()
		s.Headers(http.NotFoundHandler()).ServeHTTP(w, r)
		want := ""
		if c.want {
			want = "max-age=31536000"
		}
		if got := w.Header().Get("Strict-Transport-Security"); got != want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// serve runs a server with the limits; it returns its address.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	Limit(s)
	// The limits themselves, made short, so that the test does not wait for them.
	s.ReadHeaderTimeout, s.ReadTimeout = s.ReadHeaderTimeout/50, s.ReadTimeout/50
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		<-ended
	})
	return l.Addr().String()
}

// endless sends zeros for ever and counts them.
type endless struct{ sent atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.sent.Add(int64(len(p)))
	return len(p), nil
}

// TestLargeBody: of a request with a gigabyte little is taken, whether its size is
// announced or not, and the server answers others meanwhile.
func TestLargeBody(t *testing.T) {
	t.Parallel()
	address := serve(t, Body(maxBody, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if n > maxBody {
			t.Errorf("%d bytes were read", n)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		}
	})))
	const gigabyte = 1 << 30
	for _, announced := range []int64{gigabyte, -1} {
		body := &endless{}
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+address+"/", io.LimitReader(body, gigabyte))
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = announced
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Do(r)
		if err == nil { // else the server has closed while we sent, which is as good
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("announced %d: %s", announced, resp.Status)
			}
		}
		if body.sent.Load() > 64<<20 {
			t.Errorf("announced %d: the server took %d MB", announced, body.sent.Load()>>20)
		}
	}
}

// TestRestOfBody: what comes of a body after it was given up is not taken for the next
// request.
func TestRestOfBody(t *testing.T) {
	t.Parallel()
	address := serve(t, Body(maxBody, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Error(err)
		}
		if r.Method == "POST" {
			if _, err := io.ReadAll(r.Body); err == nil {
				t.Errorf("%s %s was read to its end", r.Method, r.URL)
			}
		}
		if err := r.Body.Close(); r.Method == "PUT" && err == nil {
			t.Errorf("%s %s was read to its end", r.Method, r.URL)
		}
		w.WriteHeader(http.StatusRequestTimeout)
	})))
	for _, method := range []string{"POST", "PUT"} {
		restOfBody(t, address, method)
	}
}

func restOfBody(t *testing.T, address, method string) {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(method + " / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\na")); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(c)
	resp, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusRequestTimeout || !resp.Close {
		t.Errorf("%s, and the connection goes on: %v", resp.Status, !resp.Close)
	}
	_, _ = c.Write([]byte("GET /rest HTTP/1.1\r\nHost: localhost\r\n\r\n")) // it may be closed by now
	if resp, err := http.ReadResponse(answers, nil); err == nil {
		_ = resp.Body.Close()
		t.Errorf("the rest of the body was answered: %s", resp.Status)
	}
}

// TestLargeHeader: how large a header may be, as docs/access.md says it.
func TestLargeHeader(t *testing.T) {
	t.Parallel()
	for _, version := range []int{1, 2} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor != version {
				t.Errorf("HTTP/%d, want %d", r.ProtoMajor, version)
			}
		}))
		Limit(s.Config)
		s.EnableHTTP2 = version == 2
		s.StartTLS()
		t.Cleanup(s.Close)
		most := map[int]int{1: 24 << 10, 2: 16 << 10}[version]
		for bytes, taken := range map[int]bool{16<<10 - 500: true, most + 500: false} {
			r, err := http.NewRequest("GET", s.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-Large", strings.Repeat("x", bytes))
			a, err := s.Client().Do(r)
			if err == nil {
				_ = a.Body.Close()
			}
			if got := err == nil && a.StatusCode == http.StatusOK; got != taken {
				t.Errorf("HTTP/%d, %d bytes: %v %v", version, bytes, a, err)
			}
		}
	}
}

// TestSlow: a header or a body that comes drop by drop is not waited for, and a header
// that never ends is not kept.
func TestSlow(t *testing.T) {
	t.Parallel()
	read := make(chan error, 1)
	address := serve(t, Body(maxBody, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		read <- err
	})))
	dial := func() net.Conn {
		t.Helper()
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	// drip sends a byte now and then until the server has had enough.
	drip := func(c net.Conn) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		t.Cleanup(func() { cancel(); <-done })
		go func() {
			defer close(done)
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					if _, err := c.Write([]byte("a")); err != nil {
						return
					}
				}
			}
		}()
	}
	header := dial()
	if _, err := header.Write([]byte("GET / HTTP/1.1\r\nHost: localhost\r\nX: ")); err != nil {
		t.Fatal(err)
	}
	drip(header)
	if _, err := io.ReadAll(header); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
		t.Error("a header that does not end is waited for")
	}
	body := dial()
	if _, err := body.Write([]byte("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\nX: y\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if resp, err := http.ReadResponse(bufio.NewReader(body), nil); err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("a body that is too large: %s", resp.Status)
		}
	}
	slow := dial()
	if _, err := slow.Write([]byte("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	drip(slow)
	if err := <-read; err == nil {
		t.Error("a body that comes drop by drop was read to its end")
	}
	long := dial()
	_, _ = long.Write([]byte("GET / HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("a", 1<<20) + "\r\n\r\n")) // it may close meanwhile
	if resp, err := http.ReadResponse(bufio.NewReader(long), nil); err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("a header of a megabyte: %s", resp.Status)
		}
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// TestAtOnce: beyond as many requests as may be answered at once the others are told so, and have their turn later.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	begun, ends := make(chan struct{}), make(chan struct{})
	h := AtOnce(2, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-ends
	}))
	ask := func() int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		return w.Code
	}
	var asking sync.WaitGroup
	for range 2 {
		asking.Go(func() {
			if code := ask(); code != http.StatusOK {
				t.Errorf("answered with %d", code)
			}
		})
		<-begun
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Connection") != "close" {
		t.Errorf("a third one is answered with %d, and Connection: %q", w.Code, w.Header().Get("Connection"))
	}
	close(ends)
	asking.Wait()
	go func() { <-begun }()
	if code := ask(); code != http.StatusOK {
		t.Errorf("one after them is answered with %d", code)
	}
}

// TestInTurn: beyond as many requests as may be answered at once the others wait for their turn, unless their clients go.
func TestInTurn(t *testing.T) {
	t.Parallel()
	begun, ends := make(chan struct{}), make(chan struct{})
	h := InTurn(2, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-ends
	}))
	var asking sync.WaitGroup
	for range 3 {
		asking.Go(func() {
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody)); w.Code != http.StatusOK {
				t.Errorf("answered with %d", w.Code)
			}
		})
	}
	<-begun
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody).WithContext(ctx)) // returns
	select {
	case <-begun:
		t.Error("a third one has begun beside two")
	default:
	}
	ends <- struct{}{}
	<-begun
	close(ends)
	asking.Wait()
}
