package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
)

// caller keeps what it is asked.
type caller struct {
	mu  sync.Mutex
	got []string
}

func (c *caller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	c.got = append(c.got, strings.TrimSpace(fmt.Sprint(r.Method, " ", r.URL.RequestURI(), " ", r.Header.Get("Content-Type"), " ", r.Header.Get("Authorization"), " ", r.Header.Get("X-Run"), " ", string(body))))
	c.mu.Unlock()
	switch r.URL.Path {
	case "/redirect":
		http.Redirect(w, r, "http://127.0.0.1:1/elsewhere", http.StatusFound)
	case "/busy":
		w.WriteHeader(http.StatusServiceUnavailable)
	case "/later", "/unasked", "/at-last", "/dated", "/leap", "/malformed", "/no-such-day":
		if c.times(r.URL.Path) > 1 {
			return
		}
		after, status := "1", http.StatusTooManyRequests
		switch r.URL.Path {
		case "/at-last":
			after, status = "Fri, 31 Dec 9999 23:59:59 GMT", http.StatusServiceUnavailable
		case "/dated":
			after = time.Now().Add(datedAhead).UTC().Format(http.TimeFormat)
		case "/leap":
			after = "Tue, 29 Feb 2000 12:00:00 GMT" // it has been: at once
		case "/malformed":
			after = "in a minute"
		case "/no-such-day":
			after = "Fri, 32 Dec 2027 00:00:00 GMT"
		}
		w.Header().Set("Retry-After", after)
		w.WriteHeader(status)
	case "/no":
		http.Error(w, "no\x1b[2J such thing", http.StatusNotFound)
	case "/huge":
		w.Header().Set("Content-Length", "10000000000")
		for chunk := bytes.Repeat([]byte("x"), 1<<20); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
}

// datedAhead is how far ahead the date in a Retry-After is.
const datedAhead = 4 * time.Second

// times is how often a path was asked for.
func (c *caller) times(path string) int {
	return strings.Count(strings.Join(c.asked(), "\n"), " "+path)
}

func (c *caller) asked() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.got...)
}

// TestHTTPJob: a job without a module sends its request for each item, with what the run has in
// its places, and its outcome is the answer's.
func TestHTTPJob(t *testing.T) {
	t.Parallel()
	p, c := newPlace(t), &caller{}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	p.put("token", []byte("s3cret-token\n"))
	p.put("grants.yaml", []byte(fmt.Sprintf("grants:\n  - jobs: ['call*']\n    http:\n      - url: %s/\n        methods: [GET, POST]\n        secrets: [API]\n        private: true\n    secrets:\n      API: {file: %s}\n", s.URL, p.path("token"))))
	p.define("call", "type: HTTP", "shardingTotalCount: 2", `shardingItemParameters: {0: "a&b", 1: "say \"hi\""}`, "jobParameter: day",
		"http:", "  url: "+s.URL+"/run/{item}?of={total}&p={itemParameter}", `  headers: ["Authorization: Bearer {{secret:API}}", "X-Run: {job}"]`, `  body: '{"item": {item}, "parameter": "{itemParameter}", "job": "{jobParameter}", "other": "{other}"}'`)
	for job, path := range map[string]string{"call-no": "/no", "call-busy": "/busy", "call-redirect": "/redirect", "call-huge": "/huge"} {
		p.define(job, "type: HTTP", "shardingTotalCount: 1", "retry: {attempts: 2, backoff: 10ms}", "timeout: 20s", "http: {url: '"+s.URL+path+"'}")
	}
	p.define("call-elsewhere", "type: HTTP", "shardingTotalCount: 1", "retry: {attempts: 1}", "http: {url: 'http://127.0.0.1:1/'}")
	p.define("call-expects", "type: HTTP", "shardingTotalCount: 1", "http: {url: '"+s.URL+"/no', expect: '200,404'}")
	for _, job := range []string{"later", "at-last"} {
		p.define("call-"+job, "type: HTTP", "shardingTotalCount: 1", "retry: {attempts: 1}", "http: {url: '"+s.URL+"/"+job+"', retryAfter: 1s}")
	}
	for _, job := range []string{"dated", "leap", "malformed", "no-such-day"} {
		p.define("call-"+job, "type: HTTP", "shardingTotalCount: 1", "retry: {attempts: 1}", "http: {url: '"+s.URL+"/"+job+"', retryAfter: 1h}")
	}
	p.define("call-unasked", "type: HTTP", "shardingTotalCount: 1", "retry: {attempts: 1}", "http: {url: '"+s.URL+"/unasked'}")
	p.define("stranger", "type: HTTP", "shardingTotalCount: 1", "http: {url: '"+s.URL+"/'}")

	h := p.start("--grants", p.path("grants.yaml"))
	run := func(job string, item int, o abi.Outcome) event.Event {
		t.Helper()
		from := h.mark()
		h.of(job, 0, owned())
		p.must("job", "run", job, "--items", fmt.Sprint(item))
		return h.of(job, from, kind(event.ItemEnded), outcome(o)).Event
	}
	run("call", 0, abi.OutcomeOK)
	run("call", 1, abi.OutcomeOK)
	want := []string{
		`POST /run/0?of=2&p=a%26b application/json Bearer s3cret-token call {"item": 0, "parameter": "a&b", "job": "day", "other": "{other}"}`,
		`POST /run/1?of=2&p=say%20%22hi%22 application/json Bearer s3cret-token call {"item": 1, "parameter": "say \"hi\"", "job": "day", "other": "{other}"}`,
	}
	if got := c.asked(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("asked\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if e := run("call-no", 0, abi.OutcomeFail); !strings.Contains(e.Reason, "GET "+s.URL+"/no answered 404, expected 200-299: no") {
		t.Errorf("not found: %q", e.Reason)
	}
	if e := run("call-busy", 0, abi.OutcomeRetry); !strings.Contains(e.Reason, "answered 503") {
		t.Errorf("busy: %q", e.Reason)
	}
	h.of("call-busy", 0, kind(event.FireEnded), outcome(abi.OutcomeRetry))
	if asked := strings.Join(c.asked(), "\n"); strings.Count(asked, "GET /busy") != 2 {
		t.Errorf("of two attempts:\n%s", asked)
	}
	if e := run("call-redirect", 0, abi.OutcomeFail); !strings.Contains(e.Reason, "answered 302") {
		t.Errorf("redirect: %q", e.Reason)
	}
	run("call-huge", 0, abi.OutcomeOK) // of which a little is read
	run("call-expects", 0, abi.OutcomeOK)
	for _, job := range []string{"call-later", "call-at-last"} { // the time of Retry-After, in seconds and as a date, at most a second ahead
		from := h.mark()
		run(job, 0, abi.OutcomeRetryAt)
		h.of(job, from, kind(event.ItemEnded), outcome(abi.OutcomeOK))
	}
	for job, ahead := range map[string]time.Duration{"call-dated": datedAhead, "call-leap": 0} {
		from, asked := h.mark(), time.Now()
		run(job, 0, abi.OutcomeRetryAt)
		h.of(job, from, kind(event.ItemEnded), outcome(abi.OutcomeOK))
		if took := time.Since(asked); took < ahead-2*time.Second { // a date has whole seconds
			t.Errorf("%s ran again after %s, expected %s", job, took, ahead)
		}
	}
	for _, job := range []string{"call-unasked", "call-malformed", "call-no-such-day"} {
		run(job, 0, abi.OutcomeRetry)
	}
	if e := run("call-elsewhere", 0, abi.OutcomeFail); !strings.Contains(e.Reason, "is not granted") {
		t.Errorf("an address that is not granted: %q", e.Reason)
	}
	if r := p.refusal("stranger.yaml"); r == nil || !strings.Contains(strings.Join(r.Reasons, ";"), "http") {
		t.Errorf("a job without a grant: %+v", r)
	}
	h.stop()

	p.cli("validate", p.path("plugins"), "--grants", p.path("grants.yaml")).mustSay(t, 1, []string{`job "stranger" wants`}, "validate")
	p.must("validate", filepath.Join(p.path("plugins"), "call.yaml"), "--grants", p.path("grants.yaml"))
}
