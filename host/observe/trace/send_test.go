package trace

import (
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/test/collector"
)

// flood makes n spans, each of a fire of its own minute, from the first on.
func flood(tr *Tracer, first, n int) {
	for i := first; i < first+n; i++ {
		at := instant.Add(time.Duration(i) * time.Minute)
		e := event.Event{Kind: event.FireStarted, Time: at, Job: "cities", Instant: at, Items: []int{0}}
		tr.Observe(e)
		r := event.Run{Job: "cities", Instant: at}
		tr.Traceparent(r)
		e.Kind, e.Outcome = event.FireEnded, abi.OutcomeOK // with a span for its item
		tr.Observe(e)
	}
}

// silent answers nothing until the test is over, or release is called.
func silent(t *testing.T, c *collector.Collector) (release func()) {
	over := make(chan struct{})
	var once atomic.Bool
	release = func() {
		if once.CompareAndSwap(false, true) {
			c.Answer(nil)
			close(over)
		}
	}
	t.Cleanup(release)
	c.Answer(func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-over:
		case <-r.Context().Done():
		}
		return false
	})
	return release
}

// TestSilentCollector: a collector that does not answer holds up nothing. The newest spans
// wait for it, the others are counted, and are sent when it answers.
func TestSilentCollector(t *testing.T) {
	t.Parallel()
	c := collect(t)
	release := silent(t, c)
	tr, _ := open(t, c, nil)
	const fires, room = 4 * maxBatch, 2 * maxBatch
	flood(tr, 0, fires) // it would not return if the collector were waited for
	if s := tr.Stats(); s.Sent != 0 || s.Dropped == 0 || s.Queued != room {
		t.Errorf("%+v", s)
	}
	release()
	last := instant.Add((fires - 1) * time.Minute).UTC().Format("2006-01-02T15:04:05.000Z")
	spans, err := c.Await(within(t), func(spans []collector.Span) bool {
		return len(collector.Named(spans, "fire cities", "wasmjob.instant", last)) == 1
	})
	if err != nil {
		t.Fatal(err)
	}
	closed(t, tr)
	s := tr.Stats()
	if s.Sent+s.Dropped != 2*fires || s.Sent != int64(len(spans)) || s.Sent < room || s.Failing {
		t.Errorf("%+v, and %d spans have come of %d", s, len(spans), 2*fires)
	}
}

// TestCloseDoesNotWait: the end of a host waits a second for a collector that does not
// answer, and says what is lost.
func TestCloseDoesNotWait(t *testing.T) {
	t.Parallel()
	c := collect(t)
	silent(t, c)
	tr, _ := open(t, c, func(o *Options) { o.flushWithin, o.queued = 0, 0 })
	flood(tr, 0, 700)
	began := time.Now()
	err := tr.Close()
	if took := time.Since(began); took > patience/2 { // the time-out of a request
		t.Errorf("it took %s", took)
	}
	if err == nil || !strings.Contains(err.Error(), "1400 spans are not sent") || !strings.Contains(err.Error(), c.URL()) {
		t.Errorf("%v", err)
	}
	if s := tr.Stats(); s.Dropped != 1400 || s.Queued != 0 {
		t.Errorf("%+v", s)
	}
}

// TestCloseSends: what is made just before the end is sent.
func TestCloseSends(t *testing.T) {
	t.Parallel()
	c := collect(t)
	tr, _ := open(t, c, func(o *Options) { o.queued = 0 })
	flood(tr, 0, 1000)
	closed(t, tr)
	if spans, _ := c.Spans(); len(spans) != 2000 || len(c.Requests()) < 4 {
		t.Errorf("%d spans in %d requests", len(spans), len(c.Requests()))
	}
	idle, _ := open(t, c, nil)
	closed(t, idle)
}

// TestDeadCollector: there is none, then one comes. The log says both once.
func TestDeadCollector(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	tr, logs := open(t, collect(t), func(o *Options) { o.Endpoint = "http://" + address + tracesPath })
	flood(tr, 0, 1)
	waitFor(t, func() bool { return tr.Stats().Failing })
	flood(tr, 1, 1)
	if l, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}}
	server.Start()
	defer server.Close()
	waitFor(t, func() bool { return tr.Stats().Sent == 4 })
	closed(t, tr)
	if n, m := logs.FilterMessageSnippet("traces are not sent").Len(), logs.FilterMessage("traces are sent again").Len(); n != 1 || m != 1 || logs.Len() != 2 {
		t.Errorf("%v", logs.All())
	}
	if s := tr.Stats(); s.Dropped != 0 || s.Failing {
		t.Errorf("%+v", s)
	}
}

// waitFor looks until something is so: nothing reports it.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for ctx := within(t); !ok(); {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("in vain")
		}
	}
}

// TestAnswers: what is for now is tried again, what is not is dropped and counted.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for status, again := range map[int]bool{429: true, 502: true, 503: true, 504: true, 400: false, 401: false, 404: false, 413: false, 500: false, 307: false} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			c := collect(t)
			elsewhere := collect(t)
			var asked atomic.Int64
			c.Answer(func(w http.ResponseWriter, r *http.Request) bool {
				if asked.Add(1) > 1 {
					return false
				}
				w.Header().Set("Retry-After", "1")
				w.Header().Set("Location", elsewhere.URL()+tracesPath)
				http.Error(w, "not so", status)
				return true
			})
			tr, logs := open(t, c, func(o *Options) { o.Headers = map[string]string{"Authorization": "Bearer secret"} })
			flood(tr, 0, 1)
			want := Stats{Dropped: 2, Failing: true}
			if again {
				want = Stats{Sent: 2}
			}
			waitFor(t, func() bool { s := tr.Stats(); return s.Sent+s.Dropped == 2 })
			if s := tr.Stats(); s != want {
				t.Errorf("%+v, want %+v", s, want)
			}
			text := fmt.Sprint(logs.All())
			if !strings.Contains(text, "not so") || strings.Contains(text, "secret") {
				t.Errorf("the log says %s", text)
			}
			flood(tr, 1, 1) // the next is taken
			waitFor(t, func() bool { return tr.Stats().Sent == want.Sent+2 })
			closed(t, tr)
			if len(elsewhere.Requests()) != 0 {
				t.Error("a redirect was followed, with the headers")
			}
		})
	}
}

// TestPartialSuccess: the log says once which spans a collector does not take.
func TestPartialSuccess(t *testing.T) {
	t.Parallel()
	c := collect(t)
	c.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = w.Write([]byte("\x0a\x09\x08\x03\x12\x05a lot")) // partial_success: 3 spans
		return true
	})
	tr, logs := open(t, c, nil)
	flood(tr, 0, 1)
	waitFor(t, func() bool { return tr.Stats().Sent == 2 })
	flood(tr, 1, 1)
	closed(t, tr)
	if text := fmt.Sprint(logs.All()); logs.Len() != 1 || !strings.Contains(text, "3 spans: a lot") {
		t.Errorf("%s", text)
	}
}

// TestHTTPS: by TLS with an authority and a certificate of its own, compressed, with headers.
func TestHTTPS(t *testing.T) {
	t.Parallel()
	c := collect(t)
	var heads []http.Header
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heads = append(heads, r.Header.Clone())
		onward, err := http.NewRequestWithContext(r.Context(), r.Method, c.URL()+r.URL.Path, r.Body)
		if err != nil {
			panic(err)
		}
		onward.Header = r.Header
		answer, err := http.DefaultTransport.RoundTrip(onward)
		if err != nil {
			panic(err)
		}
		defer answer.Body.Close()
		w.WriteHeader(answer.StatusCode)
		_, _ = io.Copy(w, answer.Body)
	}))
	server.StartTLS()
	defer server.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	tr, _ := open(t, c, func(o *Options) {
		o.Endpoint, o.CA, o.Gzip, o.Headers = server.URL+tracesPath, ca, true, map[string]string{"Api-Key": "k", "content-type": "text/plain"}
	})
	flood(tr, 0, 1)
	closed(t, tr)
	if spans, _ := c.Spans(); len(spans) != 2 || len(heads) != 1 || heads[0].Get("Api-Key") != "k" || heads[0].Get("Content-Encoding") != "gzip" || heads[0].Get("User-Agent") != "wasmjob/v7" {
		t.Errorf("%d spans, %v", len(spans), heads)
	}

	strange, logs := open(t, c, func(o *Options) { o.Endpoint = server.URL + tracesPath })
	flood(strange, 0, 1)
	waitFor(t, func() bool { return strange.Stats().Failing })
	if err := strange.Close(); err == nil || !strings.Contains(fmt.Sprint(logs.All()), "certificate") {
		t.Errorf("a server with a strange certificate: %v, %v", err, logs.All())
	}
	for name, change := range map[string]func(*Options){
		"no such file":  func(o *Options) { o.CA = ca + ".gone" },
		"CERTIFICATE: ": func(o *Options) { o.CA = os.Args[0] },
		"…_KEY":         func(o *Options) { o.Cert = ca },
	} {
		o := Options{Settings: Settings{Endpoint: server.URL}}
		change(&o)
		if _, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTimeout: a request that takes too long is tried again.
func TestTimeout(t *testing.T) {
	t.Parallel()
	c := collect(t)
	var asked atomic.Int64
	c.Answer(func(_ http.ResponseWriter, r *http.Request) bool {
		if asked.Add(1) > 1 {
			return false
		}
		<-r.Context().Done()
		return true
	})
	tr, _ := open(t, c, func(o *Options) { o.Timeout = 500 * time.Millisecond })
	flood(tr, 0, 1)
	waitFor(t, func() bool { return tr.Stats().Sent == 2 })
	closed(t, tr)
	if asked.Load() < 2 {
		t.Error("the first request was answered")
	}
}
