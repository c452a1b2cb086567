package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/test/collector"
)

// callsGuest is testdata/calls, compiled.
func callsGuest(t *testing.T) []byte {
	t.Helper()
	return read(t, made(t, "calls.wasm", func(ctx context.Context, path string) error {
		return command(ctx, []string{"GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0"}, "go", "build", "-trimpath", "-ldflags", "-s -w",
			"-buildmode=c-shared", "-o", path, "./test/e2e/testdata/calls")
	}))
}

// called is a server that notes in which trace it was called, by path; it is busy for the
// first request of item 1.
type called struct {
	mu      sync.Mutex
	parents map[string][]string
}

func (c *called) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parents[r.URL.Path] = append(c.parents[r.URL.Path], r.Header.Get("Traceparent"))
	if r.URL.Path == "/1" && len(c.parents["/1"]) == 1 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// TestTraces: two hosts of a fire write into one trace, each with its items, attempts and
// requests; the server that a guest calls, and the guest, learn of it; numbers lead there.
func TestTraces(t *testing.T) {
	t.Parallel()
	taker, err := collector.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := taker.Close(); err != nil {
			t.Error(err)
		}
	})
	calls := &called{parents: make(map[string][]string)}
	server := httptest.NewServer(calls)
	t.Cleanup(server.Close)

	c := newCluster(t)
	grants := c.path("grants.yaml")
	text := fmt.Sprintf("grants:\n  - jobs: calls\n    http: [{url: %q, private: true}]\n", server.URL+"/")
	if err := os.WriteFile(grants, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	guest := callsGuest(t)
	var hosts []*member
	for range 2 {
		m := c.add("--otlp", taker.URL(), "--grants", grants)
		m.place.drop("calls.wasm", guest)
		m.place.define("calls", "jobName: calls", "type: SIMPLE", "shardingTotalCount: 4", "jobParameter: "+server.URL+"/", "retry: {attempts: 3, backoff: 10ms}")
		hosts = append(hosts, m)
	}
	c.divided("calls", hosts...)
	c.registry("job", "run", "calls")
	for _, m := range hosts {
		m.of("calls", 0, kind(event.FireEnded), outcome(abi.OutcomeOK))
	}
	spans, err := taker.Await(within(t), func(all []collector.Span) bool { return len(collector.Named(all, "fire calls")) == 2 })
	if err != nil {
		t.Fatal(err)
	}

	fires := collector.Named(spans, "fire calls")
	if fires[0].Trace != fires[1].Trace || fires[0].Attributes["wasmjob.host"] == fires[1].Attributes["wasmjob.host"] {
		t.Fatalf("the hosts do not write into one trace: %+v", fires)
	}
	parents := make(map[string]collector.Span)
	for _, s := range spans {
		if s.Trace != fires[0].Trace || s.Resource["service.name"] != "wasmjob" || s.Resource["service.namespace"] != c.ns {
			t.Errorf("a span of something else: %+v", s)
		}
		parents[s.ID] = s
	}
	var said []string
	for _, m := range hosts {
		for _, l := range m.guestLines("calls") {
			said = append(said, l.Attrs["traceparent"])
		}
	}
	for item := range 4 {
		path, attempts := fmt.Sprintf("/%d", item), 1
		if item == 1 {
			attempts = 2
		}
		of := collector.Named(spans, "attempt calls", "wasmjob.item", int64(item))
		items := collector.Named(spans, "item calls", "wasmjob.item", int64(item), "wasmjob.outcome", "OK")
		if len(of) != attempts || len(items) != 1 || parents[items[0].Parent].Name != "fire calls" || len(calls.parents[path]) != attempts {
			t.Fatalf("item %d: %+v, %+v, requests %v", item, of, items, calls.parents[path])
		}
		for _, a := range of {
			want := fmt.Sprintf("00-%s-%s-01", a.Trace, a.ID)
			if a.Parent != items[0].ID || !slices.Contains(said, want) {
				t.Errorf("item %d: the parent of its attempt is %+v; guests said %v, want %s", item, parents[a.Parent], said, want)
			}
		}
		for _, parent := range calls.parents[path] {
			get, ok := parents[strings.Split(parent, "-")[2]]
			if !ok || get.Name != "GET" || !slices.ContainsFunc(of, func(a collector.Span) bool { return a.ID == get.Parent }) || get.Attributes["server.address"] != "127.0.0.1" {
				t.Errorf("item %d: the server learned %s, which is %+v", item, parent, get)
			}
		}
	}
	if busy := collector.Named(spans, "GET", "http.response.status_code", int64(503)); len(busy) != 1 || !busy[0].Failed {
		t.Errorf("%+v", busy)
	}

	// A number leads to the trace.
	request, err := http.NewRequestWithContext(within(t), http.MethodGet, "http://"+hosts[0].address+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body := new(strings.Builder)
	if err := response.Write(body); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`trace_id="` + fires[0].Trace + `"`, "wasmjob_trace_spans_dropped_total 0", "wasmjob_trace_failing 0"} {
		if !strings.Contains(body.String(), want) {
			t.Errorf("the metrics have no %s:\n%s", want, body)
		}
	}
}

// TestTracesThatAreNotTaken: hosts whose collector is not there, or does not answer, work and
// end as others do.
func TestTracesThatAreNotTaken(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(silent.Close)
	t.Cleanup(func() { close(over) })
	for name, endpoint := range map[string]string{"dead": "http://" + closedPort(t), "silent": silent.URL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.guestJob("tick", "jobName: tick", "type: SIMPLE", everySecond, "shardingTotalCount: 3")
			h := p.startEnv([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint, "OTEL_EXPORTER_OTLP_TIMEOUT=60000"})
			at := 0
			for range 3 {
				at = h.of("tick", at, kind(event.FireEnded), outcome(abi.OutcomeOK)).at + 1
			}
			if name == "dead" {
				h.line(0, "traces are not sent")
			}
			_, metrics := h.get("/metrics")
			if !strings.Contains(metrics, "wasmjob_trace_spans_sent_total 0") {
				t.Error("spans were sent")
			}
			began := time.Now()
			h.stop() // and its exit code is 0
			if took := time.Since(began); took > patience/2 {
				t.Errorf("the end took %s", took)
			}
			h.line(0, "the last traces are lost")
		})
	}
}
