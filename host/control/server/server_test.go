package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/observe/metrics"
)

// What is left for a moment is a connection on which too much was sent.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

const token = "0123456789abcdef0123456789"

// shown is a host that is ready.
type shown struct{}

func (shown) StatusWithin(time.Duration) engine.Status { return engine.Status{} }
func (shown) FullStatus() engine.Status                { return engine.Status{} }
func (shown) Ready() (bool, string)                    { return true, "" }

// answers is an API that says who asked it for what.
func answers(w http.ResponseWriter, r *http.Request) {
	_, _ = fmt.Fprintf(w, "%s %s", r.Method, r.URL.Path)
}

// start serves until the test ends.
func start(t *testing.T, o Options) *Server {
	t.Helper()
	if o.Token == "" {
		o.Token = token
	}
	if o.Address.Name == "" {
		o.Address = Address{"tcp", "127.0.0.1:0"}
	}
	if o.API == nil {
		o.API = http.HandlerFunc(answers)
	}
	if o.Ready == nil {
		o.Ready = func() (bool, string) { return true, "" }
	}
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// ask sends a bare request and returns code and body.
func ask(t *testing.T, s *Server, method, path string, header map[string]string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Address().Name+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		if k == "Host" {
			req.Host = v
		} else {
			req.Header.Set(k, v)
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestWait: a request is answered when what is more urgent has gone first.
func TestWait(t *testing.T) {
	t.Parallel()
	waited := make(chan string, 1)
	s := start(t, Options{
		Wait: func(context.Context) { waited <- "waited" },
		API:  http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, <-waited) }),
	})
	if code, text := ask(t, s, http.MethodGet, "/v1/jobs", map[string]string{"Authorization": "Bearer " + token}); code != http.StatusOK || text != "waited" {
		t.Errorf("%d %q", code, text)
	}
}

// TestReadyWhileModulesAreCompiled: the host is not ready before the directory was
// taken in, and says so; later compilations change nothing about that.
func TestReadyWhileModulesAreCompiled(t *testing.T) {
	t.Parallel()
	var p report.Pending
	r := report.Reporter{Host: shown{}, Pending: func() report.Pending { return p }}
	s := start(t, Options{Ready: r.Ready})
	expect := func(code int, say, reason string) {
		t.Helper()
		if got, body := ask(t, s, "GET", "/readyz", nil); got != code || strings.TrimSpace(body) != say {
			t.Errorf("/readyz: %d %s, want %d %s", got, body, code, say)
		}
		said := r.Report(true)
		if said.Ready != (code == 200) || said.Reason != reason || !reflect.DeepEqual(said.Compiling, p.Compiling) {
			t.Errorf("report: %+v", said)
		}
	}
	p = report.Pending{Starting: true}
	expect(503, "not ready: the plugins directory is being read", "the plugins directory is being read")
	list := []report.Compiling{{Module: "slow.wasm", Jobs: []string{"slow"}, Since: time.Unix(1, 0).UTC()}, {Module: "spin.wasm", Jobs: []string{}}}
	p = report.Pending{Starting: true, Compiling: list}
	expect(503, "not ready: compiling: slow.wasm, spin.wasm", "compiling: slow.wasm, spin.wasm")
	p = report.Pending{Compiling: list[:1]}
	expect(200, "ready", "")
	r.Waiting = func() string { return "ZooKeeper does not answer" }
	p = report.Pending{}
	expect(503, "not ready: ZooKeeper does not answer", "ZooKeeper does not answer")
}

func TestWhoMay(t *testing.T) {
	t.Parallel()
	m := metrics.New(metrics.Options{Version: "v1", Status: shown{}.FullStatus})
	s := start(t, Options{Metrics: m.Handler(zap.NewNop()), Peers: http.NotFoundHandler()})
	good := "Bearer " + token
	for _, c := range []struct {
		method, path, auth, host string
		code                     int
		say                      string
	}{
		{"GET", "/healthz", "", "", 200, "ok"},
		{"GET", "/readyz", "", "", 200, "ready"},
		{"GET", "/metrics", "", "", 200, "wasmjob_build_info"},
		{"GET", "/v1/status", "", "", 401, ""},
		{"GET", "/v1/status", "Bearer wrong", "", 401, "not the one of this host"},
		{"GET", "/v1/status", "Bearer ", "", 401, "token"},
		{"GET", "/v1/status", "Basic " + token, "", 401, ""},
		{"GET", "/v1/status", good, "", 200, "GET /v1/status"},
		{"GET", "/v1/peer/../status", "", "", 401, "token"},
		{"GET", "//v1/status", "", "", 401, "token"},
		{"POST", "/v1/jobs/x/trigger", "", "", 401, "token"},
		{"DELETE", "/v1/jobs/x", "", "", 401, "token"},
		{"POST", "/v1/disable", "", "", 401, "token"},
		{"POST", "/v1/jobs/x/items/1/disable", "", "", 401, "token"},
		{"GET", "/nothing", "", "", 404, "no such endpoint: GET /nothing"},
		{"GET", "/healthz", "", "evil.example:9770", 403, "evil.example"},
		{"GET", "/v1/status", good, "evil.example", 403, "evil.example"},
		{"GET", "/healthz", "", "localhost", 200, "ok"},
		{"GET", "/healthz", "", "LOCALHOST:1", 200, "ok"},
		{"GET", "/healthz", "", "[::1]:9770", 200, "ok"},
		{"GET", "/healthz", "", "[::1]", 200, "ok"},
	} {
		h := map[string]string{}
		if c.auth != "" {
			h["Authorization"] = c.auth
		}
		if c.host != "" {
			h["Host"] = c.host
		}
		code, body := ask(t, s, c.method, c.path, h)
		if code != c.code || !strings.Contains(body, c.say) {
			t.Errorf("%s %s (auth %q, host %q): %d %s; want %d and %q", c.method, c.path, c.auth, c.host, code, body, c.code, c.say)
		}
		if code >= 400 && !json.Valid([]byte(body)) {
			t.Errorf("%s %s: the error is not JSON: %s", c.method, c.path, body)
		}
	}
	// What hosts ask is answered by nothing else.
	for _, path := range []string{"/v1/peer/delta", "/v1/peer/%2e%2e/status", "/v1/peer/x%2f..%2f..%2fstatus"} {
		if code, body := ask(t, s, "GET", path, nil); code != 404 || strings.Contains(body, "GET") {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	// The console answers all other addresses, but none of a version of the API.
	console := start(t, Options{Pages: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) })})
	for path, want := range map[string]string{"/v2/jobs": "no such endpoint: GET /v2/jobs", "/v10": "no such endpoint", "/jobs": "<html>", "/vx": "<html>"} {
		if _, body := ask(t, console, "GET", path, nil); !strings.Contains(body, want) {
			t.Errorf("%s: %s", path, body)
		}
	}
	no := func() (bool, string) { return false, "" }
	if code, _ := ask(t, start(t, Options{Ready: no}), "GET", "/readyz", nil); code != 503 {
		t.Errorf("/readyz of a host that is not: %d, want 503", code)
	}
}

func TestMetricsWantTheTokenBeyondLoopback(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Address: Address{"tcp", "0.0.0.0:0"}, Metrics: metrics.New(metrics.Options{Version: "v1", Status: shown{}.FullStatus}).Handler(zap.NewNop())})
	for path, want := range map[string]int{"/metrics": 401, "/healthz": 200} {
		if code, body := ask(t, s, "GET", path, map[string]string{"Host": "pod.example"}); code != want {
			t.Errorf("%s: %d %s, want %d", path, code, body, want)
		}
	}
	if code, _ := ask(t, s, "GET", "/metrics", map[string]string{"Authorization": "Bearer " + token}); code != 200 {
		t.Errorf("/metrics with the token: %d", code)
	}
}

func TestSocketOutlivesAKill(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	address, err := ParseAddress(path)
	if err != nil {
		t.Fatal(err)
	}
	// What a killed host leaves: a socket that nobody answers.
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s := start(t, Options{Address: address})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("socket: %v %v", info, err)
	}
	answered, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	_ = answered.Close() // it was only a question
	o := s.opts
	if _, err := Listen(o); err == nil || !strings.Contains(err.Error(), "unix:"+path+" is in use") {
		t.Fatalf("second host on the socket: %v", err)
	}
	// A file that is no socket is not ours to remove.
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Address.Name = file
	if _, err := Listen(o); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Fatalf("listens in place of a file: %v", err)
	}
	if got, _ := os.ReadFile(file); string(got) != "precious" {
		t.Fatal("the file is gone")
	}
}

func TestListenRefuses(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	o := s.opts
	o.Address = s.Address()
	if _, err := Listen(o); err == nil || !strings.Contains(err.Error(), s.Address().Name+" is in use") {
		t.Errorf("address in use: %v", err)
	}
	if _, err := Listen(Options{Address: Address{"tcp", "127.0.0.1:0"}, Token: token}); err == nil {
		t.Error("a server without an API is taken")
	}
	if _, err := Listen(Options{Address: Address{"tcp", "127.0.0.1:0"}, Token: "short"}); err == nil {
		t.Error("a short token is taken")
	}
}

func TestParseAddress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		address Address
		local   bool
	}{
		"127.0.0.1:9770":       {Address{"tcp", "127.0.0.1:9770"}, true},
		"127.9.9.9:0":          {Address{"tcp", "127.9.9.9:0"}, true},
		"localhost:1":          {Address{"tcp", "localhost:1"}, true},
		"[::1]:1":              {Address{"tcp", "[::1]:1"}, true},
		"[::ffff:127.0.0.1]:1": {Address{"tcp", "[::ffff:127.0.0.1]:1"}, true},
		":9770":                {Address{"tcp", ":9770"}, false},
		"0.0.0.0:9770":         {Address{"tcp", "0.0.0.0:9770"}, false},
		"10.1.2.3:9770":        {Address{"tcp", "10.1.2.3:9770"}, false},
		"/run/w.sock":          {Address{"unix", "/run/w.sock"}, true},
		"unix:w.sock":          {Address{"unix", "w.sock"}, true},
	} {
		a, err := ParseAddress(text)
		if err != nil || a != want.address || a.Local() != want.local {
			t.Errorf("%q: %v, local %t, %v; want %v, %t", text, a, a.Local(), err, want.address, want.local)
		}
		if again, err := ParseAddress(a.String()); err != nil || again != a {
			t.Errorf("%q: %q reads back as %v, %v", text, a.String(), again, err)
		}
	}
	for _, text := range []string{"", "9770", "127.0.0.1", "127.0.0.1:", "example.org:80", "127.0.0.1:99999", "unix:", "/" + strings.Repeat("x", 200)} {
		if a, err := ParseAddress(text); err == nil {
			t.Errorf("%q is taken as %v", text, a)
		}
	}
	for text, want := range map[string]string{":80": "127.0.0.1:80", "[::]:80": "127.0.0.1:80", "localhost:80": "127.0.0.1:80", "10.0.0.1:80": "10.0.0.1:80"} {
		a, err := ParseAddress(text)
		if err != nil || a.Reachable().Name != want {
			t.Errorf("%q is reached at %v, want %s (%v)", text, a.Reachable(), want, err)
		}
	}
}

// TestAnswersAreCompressed: pages, answers of the API and documents, for a client that takes them so.
func TestAnswersAreCompressed(t *testing.T) {
	t.Parallel()
	text := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, strings.Repeat("<tr><td>job</td></tr>\n", 4000)) // the test sees what came
	})
	s := start(t, Options{API: text, Pages: text, Documents: text})
	for _, path := range []string{"/", "/v1/jobs", "/docs/"} {
		code, body := ask(t, s, "GET", path, map[string]string{"Authorization": "Bearer " + token, "Accept-Encoding": "gzip"})
		if code != 200 || !strings.HasPrefix(body, "\x1f\x8b") || len(body) > 4000 {
			t.Errorf("%s: %d, %d bytes, which begin with %.20q", path, code, len(body), body)
		}
	}
}
