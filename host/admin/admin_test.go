package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wasmjob/wasmjob/host"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "0123456789abcdef0123456789"

// deeds is a Host that notes what it was asked to do.
type deeds struct {
	mu    sync.Mutex
	done  []string
	err   error
	ready bool
	state host.Status
}

func (d *deeds) do(format string, args ...any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done = append(d.done, fmt.Sprintf(format, args...))
	return d.err
}

func (d *deeds) taken() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.done
	d.done = nil
	return t
}

func (d *deeds) FullStatus() host.Status                     { return d.state }
func (d *deeds) Ready() (bool, string)                       { return d.ready, "" }
func (d *deeds) Trigger(_ context.Context, job string) error { return d.do("trigger %q", job) }
func (d *deeds) Start(_ context.Context, job string) error   { return d.do("start %q", job) }
func (d *deeds) Enable(_ context.Context, job string) error  { return d.do("enable %q", job) }
func (d *deeds) Disable(_ context.Context, job string) error { return d.do("disable %q", job) }
func (d *deeds) EnableItem(_ context.Context, j string, i int) error {
	return d.do("enable %q %d", j, i)
}
func (d *deeds) DisableItem(_ context.Context, j string, i int) error {
	return d.do("disable %q %d", j, i)
}
func (d *deeds) Remove(_ context.Context, j string, p bool) error { return d.do("remove %q %t", j, p) }

// start serves until the test ends.
func start(t *testing.T, o Options) *Server {
	t.Helper()
	if o.Token == "" {
		o.Token = token
	}
	if o.Address.Name == "" {
		o.Address = Address{"tcp", "127.0.0.1:0"}
	}
	if d, ok := o.Host.(*deeds); ok {
		o.Operations = d
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

func TestOperationsReachTheHost(t *testing.T) {
	t.Parallel()
	d := &deeds{state: host.Status{Jobs: []host.JobStatus{{Name: "cities"}}}}
	s := start(t, Options{Host: d})
	c := NewClient(s.Address(), token)
	ctx := t.Context()
	for _, op := range []struct {
		do   func() error
		want string
	}{
		{func() error { return c.Trigger(ctx, "cities") }, `trigger "cities"`},
		{func() error { return c.Trigger(ctx, "a b%/ü?x=1#") }, `trigger "a b%/ü?x=1#"`},
		{func() error { return c.Enable(ctx, "cities") }, `enable "cities"`},
		{func() error { return c.Disable(ctx, "cities") }, `disable "cities"`},
		{func() error { return c.Enable(ctx, "") }, `enable "cities"`},
		{func() error { return c.Disable(ctx, "") }, `disable "cities"`},
		{func() error { return c.EnableItem(ctx, "cities", 2) }, `enable "cities" 2`},
		{func() error { return c.DisableItem(ctx, "cities", 0) }, `disable "cities" 0`},
		{func() error { return c.Remove(ctx, "cities", false) }, `remove "cities" false`},
		{func() error { return c.Remove(ctx, "cities", true) }, `remove "cities" true`},
	} {
		if err := op.do(); err != nil {
			t.Errorf("%s: %v", op.want, err)
		}
		if got := d.taken(); !reflect.DeepEqual(got, []string{op.want}) {
			t.Errorf("the host was asked to %v, want %s", got, op.want)
		}
	}
}

func TestErrorsOfTheHostAreToldInItsWords(t *testing.T) {
	t.Parallel()
	d := &deeds{}
	s := start(t, Options{Host: d})
	c := NewClient(s.Address(), token)
	for _, e := range []struct {
		err  error
		code int
	}{
		{fmt.Errorf("trigger %q: %w", "x", host.ErrNoJob), 404},
		{host.ErrNotLive, 503},
		{fmt.Errorf("job %q: %w", "x", host.ErrDraining), 503},
		{context.DeadlineExceeded, 504},
		{errors.New("commit: conflict"), 500},
	} {
		d.err = e.err
		err := c.Trigger(t.Context(), "x")
		var no *ServerError
		if !errors.As(err, &no) || no.Code != e.code || !strings.Contains(no.Message, e.err.Error()) {
			t.Errorf("%v became %v, want code %d", e.err, err, e.code)
		}
		d.taken()
	}
}

// TestOperationsOnJobsThatAreNotThere: the host says what it knows of them.
func TestOperationsOnJobsThatAreNotThere(t *testing.T) {
	t.Parallel()
	d := &deeds{err: host.ErrNoJob, state: host.Status{
		Jobs: []host.JobStatus{{Name: "removed"}},
		Refused: []host.Refusal{
			{File: "bad.yaml", Reasons: []string{"line 3: cron: no"}},
			{File: "many.yaml", Reasons: []string{`line 1: job "first": worse`, `line 9: job "second": worst`}},
		},
	}}
	c := NewClient(start(t, Options{Host: d}).Address(), token)
	for job, want := range map[string]string{
		"removed": `job "removed": ` + host.ErrJobRemoved.Error(), "bad": host.ErrNoJob.Error() + ": bad.yaml is refused: line 3: cron: no",
		"second": host.ErrNoJob.Error() + `: many.yaml is refused: line 9: job "second": worst`, "none": host.ErrNoJob.Error(),
	} {
		code := 404
		if job == "removed" {
			code = 409
		}
		var no *ServerError
		if err := c.Enable(t.Context(), job); !errors.As(err, &no) || no.Code != code || no.Message != want {
			t.Errorf("%s: %v, want %d %s", job, err, code, want)
		}
	}
	d.err, d.state.State = nil, host.HostDraining
	d.taken()
	var no *ServerError
	if err := c.Trigger(t.Context(), "removed"); !errors.As(err, &no) || no.Code != 503 || !strings.Contains(no.Message, host.ErrDraining.Error()) {
		t.Errorf("a trigger while the host drains: %v", err)
	}
	if did := d.taken(); len(did) > 0 {
		t.Errorf("it was asked to %v", did)
	}
}

func TestStatusTellsOfTheHistory(t *testing.T) {
	t.Parallel()
	want := History{File: "/h.jsonl", Dropped: 7, Problem: "no space left on device", Since: time.Unix(1e9, 0).UTC()}
	c := NewClient(start(t, Options{Host: &deeds{}, History: func() *History { return &want }}).Address(), token)
	report, err := c.Status(t.Context())
	if err != nil || report.History == nil || *report.History != want {
		t.Errorf("got %+v, %v", report, err)
	}
	c = NewClient(start(t, Options{Host: &deeds{}}).Address(), token)
	if report, err := c.Status(t.Context()); err != nil || report.History != nil {
		t.Errorf("without a history: %+v, %v", report, err)
	}
}

// TestWhileModulesAreCompiled: the host is not ready before the directory was
// taken in, and says so; later compilations change nothing about that.
func TestWhileModulesAreCompiled(t *testing.T) {
	t.Parallel()
	d := &deeds{ready: true}
	var p atomic.Pointer[Pending]
	p.Store(&Pending{Starting: true})
	s := start(t, Options{Host: d, Pending: func() Pending { return *p.Load() }})
	c := NewClient(s.Address(), token)
	expect := func(code int, say, reason string) {
		t.Helper()
		if got, body := ask(t, s, "GET", "/readyz", nil); got != code || strings.TrimSpace(body) != say {
			t.Errorf("/readyz: %d %s, want %d %s", got, body, code, say)
		}
		r, err := c.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if r.Ready != (code == 200) || r.Reason != reason || !reflect.DeepEqual(r.Compiling, p.Load().Compiling) {
			t.Errorf("status: %+v", r)
		}
	}
	expect(503, "not ready: the plugins directory is being read", "the plugins directory is being read")
	list := []Compiling{{Module: "slow.wasm", Jobs: []string{"slow"}, Since: time.Unix(1, 0).UTC()}, {Module: "spin.wasm", Jobs: []string{}}}
	p.Store(&Pending{Starting: true, Compiling: list})
	expect(503, "not ready: compiling: slow.wasm, spin.wasm", "compiling: slow.wasm, spin.wasm")
	var no *ServerError
	if err := c.Trigger(t.Context(), "slow"); !errors.As(err, &no) || no.Code != 503 ||
		no.Message != `job "slow": its module is still being compiled; try again in a moment` {
		t.Errorf("trigger: %v", err)
	}
	if did := d.taken(); len(did) > 0 {
		t.Errorf("the host was asked to %v", did)
	}
	d.err = fmt.Errorf("job: %w", host.ErrNoJob)
	if err := c.Disable(t.Context(), "slow"); !errors.As(err, &no) || no.Code != 503 {
		t.Errorf("disable: %v", err)
	}
	if err := c.Disable(t.Context(), "other"); !errors.As(err, &no) || no.Code != 404 {
		t.Errorf("disable another: %v", err)
	}
	p.Store(&Pending{Compiling: list[:1]})
	expect(200, "ready", "")
}

func TestStatusComesBackWhole(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	d := &deeds{ready: true, state: host.Status{
		Instance: "10.0.0.1@-@7-abc", State: host.HostLive, Started: at,
		Jobs: []host.JobStatus{{
			Name: "cities", State: host.JobReady, Next: at.Add(time.Second), Instances: []string{"10.0.0.1@-@7-abc"},
			Items:    []host.ItemStatus{{Item: 1, Parameter: "Shanghai", Done: 3, Total: 9}},
			LastFire: &host.FireStatus{Instant: at, Items: []int{1}, Outcome: "OK", Duration: time.Millisecond},
		}},
		Refused: []host.Refusal{{File: "x.wasm", Reasons: []string{"not a module"}, Since: at, Kept: true}},
	}}
	about := About{Version: "v1", PID: 7, Plugins: "/jobs", Registry: "embedded"}
	s := start(t, Options{Host: d, About: about})
	r, err := NewClient(s.Address(), token).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !r.Ready || r.About != about || !reflect.DeepEqual(r.Status, d.state) {
		t.Fatalf("got %+v", r)
	}
}

func TestWhoMay(t *testing.T) {
	t.Parallel()
	d := &deeds{ready: true}
	m := NewMetrics("v1", d.FullStatus)
	s := start(t, Options{Host: d, Metrics: m.Handler(zap.NewNop())})
	good := "Bearer " + token
	for _, c := range []struct {
		method, path, auth, host string
		code                     int
		say                      string
	}{
		{"GET", "/healthz", "", "", 200, "ok"},
		{"GET", "/readyz", "", "", 200, "ready"},
		{"GET", "/metrics", "", "", 200, "wasmjob_build_info"},
		{"GET", "/v1/status", "", "", 401, "wants the host's token"},
		{"GET", "/v1/status", "Bearer wrong", "", 401, "not the one of this host"},
		{"GET", "/v1/status", "Bearer ", "", 401, "token"},
		{"GET", "/v1/status", "Basic " + token, "", 401, "wants the host's token"},
		{"GET", "/v1/status", good, "", 200, `"ready":true`},
		{"POST", "/v1/jobs/x/trigger", "", "", 401, "token"},
		{"DELETE", "/v1/jobs/x", "", "", 401, "token"},
		{"POST", "/v1/disable", "", "", 401, "token"},
		{"POST", "/v1/jobs/x/items/1/disable", "", "", 401, "token"},
		{"POST", "/v1/jobs/x/items/one/disable", good, "", 400, `item \"one\" is not a number`},
		{"POST", "/v1/jobs/x/items/-1/disable", good, "", 400, `item \"-1\" is not a number`},
		{"DELETE", "/v1/jobs/x?purge=perhaps", good, "", 400, "neither true nor false"},
		{"GET", "/v1/jobs/x/trigger", good, "", 404, "no such endpoint"},
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
	if got := d.taken(); got != nil {
		t.Errorf("refused requests did %v", got)
	}
	d2 := &deeds{}
	if code, _ := ask(t, start(t, Options{Host: d2}), "GET", "/readyz", nil); code != 503 {
		t.Errorf("/readyz of a host that is not: %d, want 503", code)
	}
}

func TestMetricsWantTheTokenBeyondLoopback(t *testing.T) {
	t.Parallel()
	d := &deeds{}
	s := start(t, Options{Address: Address{"tcp", "0.0.0.0:0"}, Host: d, Metrics: NewMetrics("v1", d.FullStatus).Handler(zap.NewNop())})
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
	d := &deeds{}
	s := start(t, Options{Address: address, Host: d})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("socket: %v %v", info, err)
	}
	if err := NewClient(s.Address(), token).Trigger(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(Options{Address: address, Token: token, Host: d, Operations: d}); err == nil || !strings.Contains(err.Error(), "unix:"+path+" is in use") {
		t.Fatalf("second host on the socket: %v", err)
	}
	// A file that is no socket is not ours to remove.
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(Options{Address: Address{"unix", file}, Token: token, Host: d, Operations: d}); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Fatalf("listens in place of a file: %v", err)
	}
	if got, _ := os.ReadFile(file); string(got) != "precious" {
		t.Fatal("the file is gone")
	}
}

func TestListenRefuses(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Host: &deeds{}})
	if _, err := Listen(Options{Address: s.Address(), Token: token, Host: &deeds{}, Operations: &deeds{}}); err == nil || !strings.Contains(err.Error(), s.Address().Name+" is in use") {
		t.Errorf("address in use: %v", err)
	}
	if _, err := Listen(Options{Address: Address{"tcp", "127.0.0.1:0"}, Token: "short", Host: &deeds{}}); err == nil {
		t.Error("a short token is taken")
	}
	if _, err := Listen(Options{Address: Address{"tcp", "127.0.0.1:0"}, Token: token}); err == nil {
		t.Error("no host is taken")
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
		if err != nil || a.reachable().Name != want {
			t.Errorf("%q is reached at %v, want %s (%v)", text, a.reachable(), want, err)
		}
	}
}

// TestOperationText: the log names operations in the words of the commands.
func TestOperationText(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	s := start(t, Options{Host: &deeds{}, Logger: zap.New(core)})
	c := NewClient(s.Address(), token)
	for want, do := range map[string]func() error{
		"trigger cities":                 func() error { return c.Trigger(t.Context(), "cities") },
		"disable item 3 of cities":       func() error { return c.DisableItem(t.Context(), "cities", 3) },
		"disable all jobs":               func() error { return c.Disable(t.Context(), "") },
		"remove cities":                  func() error { return c.Remove(t.Context(), "cities", false) },
		"remove cities with its records": func() error { return c.Remove(t.Context(), "cities", true) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if n := logs.FilterField(zap.String("operation", want)).Len(); n != 1 {
			t.Errorf("%q is not in the log: %v", want, logs.All())
		}
	}
}
