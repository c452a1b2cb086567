package metrics

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// answer scrapes with an Accept header.
func answer(t *testing.T, m *Metrics, accept string) (format string, body []byte) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	m.Handler(zap.NewNop()).ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Result().Header.Get("Content-Type"), w.Body.Bytes()
}

// fired are metrics of a host on which a fire has run, with a failure.
func fired(t *testing.T, job string, trace func(event.Event) string) *Metrics {
	t.Helper()
	m := New(Options{Version: "v7", Status: func() engine.Status { return engine.Status{} }, TraceID: trace})
	at := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	for _, e := range []event.Event{
		{Kind: event.JobAdded, Job: job},
		{Kind: event.FireStarted, Items: []int{3, 4}, Lag: 30 * time.Millisecond},
		{Kind: event.ItemEnded, RunID: job + "/2026-03-01T10:00:00.000Z/4", Outcome: abi.OutcomeFail, Duration: 7 * time.Second},
		{Kind: event.FireEnded, Items: []int{3, 4}, Outcome: abi.OutcomeFail, Duration: 8 * time.Second},
	} {
		e.Job, e.Instant, e.Source = job, at, abi.SourceSchedule
		m.Observe(e)
	}
	return m
}

// TestExemplars: who asks for OpenMetrics gets a run for each bucket that has one, and its
// trace if there is one.
func TestExemplars(t *testing.T) {
	t.Parallel()
	const trace = "0af7651916cd43dd8448eb211c80319c"
	lines := func(m *Metrics) map[string]string {
		format, body := answer(t, m, "application/openmetrics-text; version=1.0.0")
		if !strings.HasPrefix(format, "application/openmetrics-text") {
			t.Fatalf("format %s", format)
		}
		if !bytes.HasSuffix(body, []byte("# EOF\n")) {
			t.Fatal("the answer is cut")
		}
		found := make(map[string]string)
		for line := range strings.Lines(string(body)) {
			if series, exemplar, has := strings.Cut(line, " # "); has {
				name, _, _ := strings.Cut(series, "{")
				found[name] += exemplar[:strings.LastIndexByte(exemplar, ' ')]
			}
		}
		return found
	}
	want := func(got map[string]string, run map[string]string, more string) {
		t.Helper()
		for name, value := range map[string]string{"wasmjob_fire_lag_seconds_bucket": "3} 0.03", "wasmjob_item_duration_seconds_bucket": "4} 7.0", "wasmjob_fire_duration_seconds_bucket": "3} 8.0"} {
			item, value, _ := strings.Cut(value, "}")
			if w := fmt.Sprintf("{run_id=%q%s}%s", run["run"]+item, more, value); !sameLabels(got[name], w) {
				t.Errorf("%s has the exemplar %s, want %s", name, got[name], w)
			}
		}
	}
	run := map[string]string{"run": "cities/2026-03-01T10:00:00.000Z/"}
	want(lines(fired(t, "cities", nil)), run, "")
	want(lines(fired(t, "cities", func(e event.Event) string {
		if e.Job != "cities" || e.Instant.IsZero() {
			t.Errorf("asked for the trace of %+v", e)
		}
		return trace
	})), run, fmt.Sprintf(",trace_id=%q", trace))
	want(lines(fired(t, "cities", func(event.Event) string { return "" })), run, "")
	// What is longer than OpenMetrics allows is left out, the trace first.
	long := strings.Repeat("j", 80)
	want(lines(fired(t, long, func(event.Event) string { return trace })), map[string]string{"run": long + "/2026-03-01T10:00:00.000Z/"}, "")
	if got := lines(fired(t, strings.Repeat("j", 128), nil)); len(got) != 0 {
		t.Errorf("%v", got)
	}

	_, body := answer(t, fired(t, "cities", nil), "text/plain")
	if bytes.Contains(body, []byte("run_id")) {
		t.Error("an exemplar in a format that has none")
	}
}

// TestExemplarEverySecond: a bucket gets a new exemplar once a second, one of its own each.
func TestExemplarEverySecond(t *testing.T) {
	t.Parallel()
	m := New(Options{Version: "v7", Status: func() engine.Status { return engine.Status{} }})
	m.Observe(event.Event{Kind: event.JobAdded, Job: "a"})
	at := time.Unix(1_800_000_000, 0)
	for run, e := range []struct {
		after, took time.Duration
	}{{0, 2 * time.Millisecond}, {time.Millisecond, 3 * time.Millisecond}, {2 * time.Millisecond, time.Second},
		{time.Second, 2 * time.Millisecond}, {1001 * time.Millisecond, time.Second}} {
		m.Observe(event.Event{Time: at.Add(e.after), Kind: event.ItemEnded, Job: "a", RunID: fmt.Sprint(run), Duration: e.took, Outcome: abi.OutcomeOK})
	}
	_, body := answer(t, m, "application/openmetrics-text; version=1.0.0")
	for line, want := range map[string]string{`le="0.004"} 3 `: `{run_id="3"}`, `le="1.024"} 5 `: `{run_id="2"}`} {
		_, rest, _ := strings.Cut(string(body), `wasmjob_item_duration_seconds_bucket{job_name="a",`+line)
		if rest, _, _ = strings.Cut(rest, "\n"); !strings.Contains(rest, want) {
			t.Errorf("%s: %q, want %s", line, rest, want)
		}
	}
	if got := strings.Count(string(body), "run_id"); got != 2 {
		t.Errorf("%d exemplars, want 2", got)
	}
	m.Observe(event.Event{Kind: event.JobRemoved, Job: "a"})
	if len(m.itemTime.named) != 0 {
		t.Errorf("%d buckets of a job that is gone", len(m.itemTime.named))
	}
}

// sameLabels compares exemplars whose labels come in any order.
func sameLabels(a, b string) bool {
	sorted := func(s string) string {
		labels, value, _ := strings.Cut(strings.TrimPrefix(s, "{"), "}")
		parts := strings.Split(labels, ",")
		if len(parts) == 2 && parts[0] > parts[1] {
			parts[0], parts[1] = parts[1], parts[0]
		}
		return strings.Join(parts, ",") + value
	}
	return sorted(a) == sorted(b)
}

// TestNativeHistograms: who asks for protobuf gets native histograms and the classic
// buckets beside them, with the exemplars.
func TestNativeHistograms(t *testing.T) {
	t.Parallel()
	const protobuf = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
	_, body := answer(t, fired(t, "cities", nil), protobuf)
	seen := make(map[string]*dto.Histogram)
	for d := expfmt.NewDecoder(bytes.NewReader(body), protobuf); ; {
		var f dto.MetricFamily
		if err := d.Decode(&f); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if f.GetType() == dto.MetricType_HISTOGRAM {
			seen[f.GetName()] = f.GetMetric()[0].GetHistogram()
		}
	}
	for _, name := range []string{"wasmjob_fire_lag_seconds", "wasmjob_fire_duration_seconds", "wasmjob_item_duration_seconds"} {
		h := seen[name]
		if h.GetSampleCount() != 1 || len(h.GetPositiveSpan()) != 1 || h.GetSchema() != 3 {
			t.Errorf("%s is no native histogram with a value: %v", name, h)
		}
		runs := 0
		for _, b := range h.GetBucket() {
			if b.GetExemplar() != nil {
				runs++
			}
		}
		if len(h.GetBucket()) != 11 || runs != 1 {
			t.Errorf("%s has %d classic buckets, %d with a run", name, len(h.GetBucket()), runs)
		}
	}
}

// BenchmarkObserve is a fire of one item.
func BenchmarkObserve(b *testing.B) {
	m := New(Options{Version: "v7", Status: func() engine.Status { return engine.Status{} }})
	e := event.Event{Job: "cities", Instant: time.Now(), Source: abi.SourceSchedule, Items: []int{0}, RunID: "cities/2026-03-01T10:00:00.000Z/0", Outcome: abi.OutcomeOK, Attempt: 1}
	e.Kind = event.JobAdded
	m.Observe(e)
	b.ReportAllocs()
	for b.Loop() {
		for _, e.Kind = range []event.Kind{event.FireStarted, event.ItemStarted, event.ItemEnded, event.ItemCompleted, event.FireEnded} {
			m.Observe(e)
		}
	}
}

// BenchmarkJobs is what the series of a job take.
func BenchmarkJobs(b *testing.B) {
	b.ReportAllocs()
	m := New(Options{Version: "v7", Status: func() engine.Status { return engine.Status{} }})
	n := 0
	for b.Loop() {
		n++
		job := fmt.Sprintf("job%d", n)
		m.Observe(event.Event{Kind: event.JobAdded, Job: job})
		for _, d := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond} {
			m.Observe(event.Event{Kind: event.FireStarted, Job: job, Items: []int{0}, Lag: d})
			m.Observe(event.Event{Kind: event.ItemEnded, Job: job, RunID: job + "/x/0", Outcome: abi.OutcomeOK, Duration: d})
			m.Observe(event.Event{Kind: event.FireEnded, Job: job, Items: []int{0}, Outcome: abi.OutcomeOK, Duration: d})
		}
	}
}
