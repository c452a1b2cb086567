package trace

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/test/collector"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// collect starts a collector.
func collect(t testing.TB) *collector.Collector {
	t.Helper()
	c, err := collector.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// open opens a tracer to it, which the test closes.
func open(t testing.TB, c *collector.Collector, change func(*Options)) (*Tracer, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	o := Options{Settings: Settings{Endpoint: c.URL() + tracesPath, Timeout: patience}, Ratio: 1, Namespace: "prod", Version: "v7", Instance: "127.0.0.1@-@1", Logger: zap.New(core),
		queued: 2 * maxBatch, flushWithin: patience}
	if change != nil {
		change(&o)
	}
	tr, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return tr, logs
}

// closed ends a tracer that has sent everything.
func closed(t testing.TB, tr *Tracer) {
	t.Helper()
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
}

// the only span of that name.
func the(t testing.TB, spans []collector.Span, name string, attributes ...any) collector.Span {
	t.Helper()
	list := collector.Named(spans, name, attributes...)
	if len(list) != 1 {
		t.Fatalf("%d spans %s %v, want one, of %+v", len(list), name, attributes, spans)
	}
	return list[0]
}

var instant = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)

// stage makes the events of a host.
type stage struct {
	tr      *Tracer
	host    string
	now     time.Time
	source  abi.Source
	instant time.Time
	trigger int64
}

func on(tr *Tracer, host string) *stage {
	return &stage{tr: tr, host: host, now: instant.Add(20 * time.Millisecond), source: abi.SourceSchedule, instant: instant}
}

func (s *stage) event(kind event.Kind, after time.Duration, set func(*event.Event)) {
	s.now = s.now.Add(after)
	e := event.Event{Kind: kind, Time: s.now, Host: s.host, Job: "cities", Instant: s.instant, Trigger: s.trigger, Source: s.source, Digest: "d1"}
	if set != nil {
		set(&e)
	}
	s.tr.Observe(e)
}

func (s *stage) run(item int) event.Run {
	return event.Run{Job: "cities", Instant: s.instant, Trigger: s.trigger, Item: item, RunID: fmt.Sprintf("cities/x/%d", item)}
}

// attempt has an attempt of an item run for ten milliseconds, and returns its trace context.
func (s *stage) attempt(item, n int, outcome abi.Outcome) string {
	parent := s.tr.Traceparent(s.run(item))
	set := func(e *event.Event) { e.Item, e.Attempt, e.RunID, e.Fence = &item, n, s.run(item).RunID, 42 }
	s.event(event.ItemStarted, time.Millisecond, set)
	s.event(event.ItemEnded, 10*time.Millisecond, func(e *event.Event) {
		set(e)
		e.Outcome, e.Duration = outcome, 10*time.Millisecond
		if outcome != abi.OutcomeOK {
			e.Reason = "boom"
		}
	})
	return parent
}

func (s *stage) complete(item int, outcome abi.Outcome) {
	s.event(event.ItemCompleted, 2*time.Millisecond, func(e *event.Event) { e.Item, e.Attempt, e.RunID, e.Outcome = &item, 1, s.run(item).RunID, outcome })
}

func (s *stage) start(items ...int) {
	s.event(event.FireStarted, 0, func(e *event.Event) { e.Items, e.Total, e.Lag = items, 4, 20*time.Millisecond })
}

func (s *stage) finish(outcome abi.Outcome, items ...int) {
	s.event(event.FireEnded, time.Millisecond, func(e *event.Event) { e.Items, e.Outcome, e.Duration = items, outcome, time.Second })
}

// fire is a whole one.
func (s *stage) fire(items ...int) {
	s.start(items...)
	for _, n := range items {
		s.attempt(n, 1, abi.OutcomeOK)
		s.complete(n, abi.OutcomeOK)
	}
	s.finish(abi.OutcomeOK, items...)
}

// TestSpans: a fire with its items, attempts, listeners and calls.
func TestSpans(t *testing.T) {
	t.Parallel()
	c := collect(t)
	tr, _ := open(t, c, func(o *Options) {
		o.Attributes = []Attribute{{"deployment.environment.name", "test"}, {"service.namespace", "mine"}}
	})
	s := on(tr, "h1")
	s.start(2, 3)
	before := tr.Traceparent(s.run(-1))
	tr.Called(event.GuestCall{Run: s.run(-1), Time: s.now, OutsideCall: abi.OutsideCall{Capability: "net", SpanID: "00000000000000aa", Scheme: "tls", Target: "db.test:5432", Took: time.Millisecond, Connected: time.Microsecond, Sent: 7, Received: 9}})
	s.event(event.Listener, time.Millisecond, func(e *event.Event) {
		e.Reason, e.Because, e.Outcome, e.Duration = "job_before_executed: said", event.OfListener("job_before_executed"), abi.OutcomeOK, time.Millisecond
	})
	first := s.attempt(2, 1, abi.OutcomeRetry)
	second := tr.Traceparent(s.run(2))
	two := 2
	s.event(event.ItemStarted, time.Millisecond, func(e *event.Event) { e.Item, e.Attempt = &two, 2 })
	tr.Called(event.GuestCall{Run: s.run(2), Time: s.now.Add(5 * time.Millisecond), OutsideCall: abi.OutsideCall{Capability: "http", SpanID: "00000000000000bb", Method: "GET", Scheme: "https", Target: "[2001:db8::1]:443",
		Status: 503, Took: 4 * time.Millisecond, Connected: time.Millisecond}})
	s.event(event.ItemEnded, 10*time.Millisecond, func(e *event.Event) {
		e.Item, e.Attempt, e.Outcome, e.Duration, e.Signer, e.Memory, e.Batches, e.Records = &two, 2, abi.OutcomeOK, 10*time.Millisecond, "release", 65536, 3, 40
	})
	s.complete(2, abi.OutcomeOK)
	s.attempt(3, 1, abi.OutcomeTrap)
	tr.Called(event.GuestCall{Run: s.run(3), Time: s.now, OutsideCall: abi.OutsideCall{Capability: "http", SpanID: "00000000000000cc", Method: "PUT", Scheme: "http", Target: "api.test:80", Took: time.Millisecond, Failure: "no connection\x1b\xff"}})
	s.complete(3, abi.OutcomeTrap)
	s.finish(abi.OutcomeFail, 2, 3)
	closed(t, tr)

	spans, _ := c.Spans()
	if len(spans) != 10 {
		t.Fatalf("%d spans: %+v", len(spans), spans)
	}
	ids := make(map[string]bool)
	for _, s := range spans {
		if s.Trace != spans[0].Trace || ids[s.ID] || s.End.Before(s.Start) || s.Attributes["wasmjob.job"] != "cities" {
			t.Errorf("%+v", s)
		}
		ids[s.ID] = true
		for key, want := range map[string]string{"service.name": "wasmjob", "service.namespace": "mine", "service.version": "v7", "service.instance.id": "127.0.0.1@-@1", "deployment.environment.name": "test"} {
			if s.Resource[key] != want {
				t.Errorf("%s is %v, want %s", key, s.Resource[key], want)
			}
		}
	}
	want := func(s collector.Span, parent string, start, end time.Duration, failed bool, attributes map[string]any) {
		t.Helper()
		if s.Parent != parent || !s.Start.Equal(instant.Add(start)) || !s.End.Equal(instant.Add(end)) || s.Failed != failed {
			t.Errorf("%s: parent %s, from %s to %s, failed %v; want %s, %s, %s, %v", s.Name, s.Parent, s.Start.Sub(instant), s.End.Sub(instant), s.Failed, parent, start, end, failed)
		}
		for key, value := range attributes {
			if s.Attributes[key] != value {
				t.Errorf("%s: %s is %v, want %v", s.Name, key, s.Attributes[key], value)
			}
		}
	}
	const ms = time.Millisecond
	fire := the(t, spans, "fire cities")
	want(fire, "", 20*ms, 59*ms, true, map[string]any{"wasmjob.instant": "2026-03-01T10:00:00.000Z", "wasmjob.items": "2-3", "wasmjob.items.total": int64(4), "wasmjob.lag": 0.02,
		"wasmjob.source": "schedule", "wasmjob.host": "h1", "wasmjob.outcome": "FAIL", "wasmjob.module.digest": "d1"})
	listener := the(t, spans, "listener cities")
	want(listener, fire.ID, 20*ms, 21*ms, false, map[string]any{"wasmjob.listener": "job_before_executed"})
	want(the(t, spans, "connect"), listener.ID, 19*ms, 20*ms, false, map[string]any{"server.address": "db.test", "server.port": int64(5432), "network.protocol.name": "tls",
		"wasmjob.sent": int64(7), "wasmjob.received": int64(9), "wasmjob.capability": "net"})
	item := the(t, spans, "item cities", "wasmjob.item", int64(2))
	want(item, fire.ID, 20*ms, 45*ms, false, map[string]any{"wasmjob.run_id": "cities/x/2", "wasmjob.outcome": "OK"})
	failed := the(t, spans, "attempt cities", "wasmjob.item", int64(2), "wasmjob.attempt", int64(1))
	want(failed, item.ID, 22*ms, 32*ms, true, map[string]any{"wasmjob.outcome": "RETRY", "wasmjob.fence": int64(42)})
	again := the(t, spans, "attempt cities", "wasmjob.item", int64(2), "wasmjob.attempt", int64(2))
	want(again, item.ID, 33*ms, 43*ms, false, map[string]any{"wasmjob.module.signer": "release", "wasmjob.memory": int64(65536), "wasmjob.batches": int64(3), "wasmjob.records": int64(40)})
	get := the(t, spans, "GET")
	want(get, again.ID, 34*ms, 38*ms, true, map[string]any{"server.address": "2001:db8::1", "server.port": int64(443), "http.request.method": "GET", "http.response.status_code": int64(503), "error.type": "503"})
	if get.ID != "00000000000000bb" || get.Kind != v1.Span_SPAN_KIND_CLIENT || !slices.Equal(get.Events, []string{"connected"}) {
		t.Errorf("%+v", get)
	}
	if fire.Kind != v1.Span_SPAN_KIND_INTERNAL || failed.Message != "boom" {
		t.Errorf("%+v, %+v", fire, failed)
	}
	put := collector.Named(spans, "PUT") // its attempt had ended, which does not happen
	if len(put) != 1 || put[0].Message != "no connection\uFFFD\uFFFD" {
		t.Errorf("%+v", put)
	}
	for got, span := range map[string]string{before: listener.ID, first: failed.ID, second: again.ID} {
		if want := "00-" + fire.Trace + "-" + span + "-01"; got != want {
			t.Errorf("the guest sees %s, want %s", got, want)
		}
	}
	if tr.fires[key{"cities", instant.UnixMilli(), 0}] != nil {
		t.Error("the fire is remembered")
	}
}

// TestHostsOfOneFire: two hosts, and one that takes an item over, write into one trace.
func TestHostsOfOneFire(t *testing.T) {
	t.Parallel()
	c := collect(t)
	for _, trigger := range []int64{0, 17} {
		a, _ := open(t, c, nil)
		b, _ := open(t, c, nil)
		first, second := on(a, "h1"), on(b, "h2")
		first.trigger, second.trigger = trigger, trigger
		if trigger != 0 { // each host notes when it saw a trigger
			first.source, second.source, second.instant = abi.SourceTrigger, abi.SourceTrigger, instant.Add(time.Second)
		}
		first.start(0, 1)
		first.attempt(0, 1, abi.OutcomeOK)
		second.fire(2, 3)
		second.source = abi.SourceFailover
		second.fire(0) // the first one died
		closed(t, a)
		closed(t, b)
	}
	other, _ := open(t, c, func(o *Options) { o.Namespace = "test" })
	on(other, "h9").fire(0)
	closed(t, other)
	spans, _ := c.Spans()
	traces := make(map[string]map[string]int)
	for _, s := range spans {
		if traces[s.Trace] == nil {
			traces[s.Trace] = make(map[string]int)
		}
		traces[s.Trace][fmt.Sprint(s.Name, " ", s.Attributes["wasmjob.host"], " ", s.Attributes["wasmjob.source"])]++
	}
	if len(traces) != 3 {
		t.Fatalf("%d traces, want that of the instant, that of the trigger, and that of another namespace: %v", len(traces), traces)
	}
	for _, source := range []string{"schedule", "trigger"} {
		want := map[string]int{"attempt cities h1 " + source: 1, "fire cities h2 " + source: 1, "item cities h2 " + source: 2, "attempt cities h2 " + source: 2,
			"fire cities h2 failover": 1, "item cities h2 failover": 1, "attempt cities h2 failover": 1}
		if !slices.ContainsFunc(slices.Collect(func(yield func(map[string]int) bool) {
			for _, has := range traces {
				if !yield(has) {
					return
				}
			}
		}), func(has map[string]int) bool { return fmt.Sprint(has) == fmt.Sprint(want) }) {
			t.Errorf("no trace is %v: %v", want, traces)
		}
	}
}

// TestTraceIDs: ids are those of former versions, which may run beside this one.
func TestTraceIDs(t *testing.T) {
	t.Parallel()
	scheduled := keyOfRun(event.Run{Job: "cities", Instant: instant})
	for _, c := range []struct {
		namespace string
		key       key
		want      string
	}{
		{"prod", scheduled, "494f38b2b5436b65db89c2c491f7e1f5"},
		{"prod", keyOfRun(event.Run{Job: "cities", Instant: instant, Trigger: 17}), "3d3f7fc22342779570c5c2f8b06dfbc5"},
		{"team/prod", scheduled, "e5f454217094bfb52dfe0b9e4865405e"},
	} {
		id := traceOf(c.namespace, c.key)
		if got := hex.EncodeToString(id[:]); got != c.want {
			t.Errorf("%s %+v: %s, want %s", c.namespace, c.key, got, c.want)
		}
	}
	seen := make(map[traceID]string)
	for _, namespace := range []string{"a", "a\x00b", ""} {
		for _, k := range []key{{"j", 1, 0}, {"j", 12, 0}, {"j1", 2, 0}, {"j", 0, 1}, {"j", 0, 12}, {"b\x00j", 1, 0}} {
			id := traceOf(namespace, k)
			name := fmt.Sprintf("%q %+v", namespace, k)
			if other, twice := seen[id]; twice && !strings.Contains(name+other, `\x00`) { // no name has a NUL
				t.Errorf("%s and %s are one trace", name, other)
			}
			seen[id] = name
		}
	}
	for text, zero := range map[string]bool{"": true, "12": true, "zz34567890123456": true, "1234567890123456": false, "123456789012345678": true} {
		if id := parseSpanID(text); (id == spanID{}) != zero {
			t.Errorf("%q is %x", text, id)
		}
	}
}

// TestSampling: the part that is recorded is as large as it should be, all hosts choose the
// same, and guests learn of it.
func TestSampling(t *testing.T) {
	t.Parallel()
	c := collect(t)
	for ratio, want := range map[float64][2]int{0: {0, 0}, 0.25: {900, 1100}, 1: {4000, 4000}} {
		a, _ := open(t, c, func(o *Options) { o.Ratio = ratio })
		b, _ := open(t, c, func(o *Options) { o.Ratio = ratio })
		recorded := 0
		for n := range 4000 {
			at := instant.Add(time.Duration(n) * time.Minute)
			e := event.Event{Kind: event.FireStarted, Time: at, Job: "cities", Instant: at, Items: []int{0}}
			r := event.Run{Job: "cities", Instant: at}
			a.Observe(e)
			b.Observe(e)
			one, two := a.Traceparent(r), b.Traceparent(r)
			if one[:35] != two[:35] || one[53:] != two[53:] || one[36:52] == two[36:52] {
				t.Fatalf("%s and %s", one, two)
			}
			yes := strings.HasSuffix(one, "-01")
			if yes {
				recorded++
			}
			if id := a.TraceID(e); (id != "") != yes || (yes && id != one[3:35]) {
				t.Fatalf("trace %q, and the guest sees %s", id, one)
			}
		}
		if recorded < want[0] || recorded > want[1] || len(a.fires) != recorded {
			t.Errorf("with %v, %d of 4000 fires are recorded, %d remembered", ratio, recorded, len(a.fires))
		}
		closed(t, a)
		closed(t, b)
	}
	tr, _ := open(t, c, func(o *Options) { o.Ratio = 0 })
	s := on(tr, "h1")
	s.fire(0, 1)
	tr.Called(event.GuestCall{Run: s.run(0)})
	if tr.TraceID(event.Event{Kind: event.HostStarted}) != "" {
		t.Error("an event of the host has a trace")
	}
	closed(t, tr)
	if spans, _ := c.Spans(); len(spans) != 0 {
		t.Errorf("%d spans are recorded", len(spans))
	}
}

// TestUnfinished: items that do not complete here have spans that end with the fire, and
// nothing is remembered of what is over.
func TestUnfinished(t *testing.T) {
	t.Parallel()
	c := collect(t)
	tr, _ := open(t, c, nil)
	s := on(tr, "h1")
	s.start(0, 1, 2)
	s.source = abi.SourceFailover
	s.start(7) // of the same instant, from a host that died
	s.source = abi.SourceSchedule
	s.attempt(0, 1, abi.OutcomeCancelled)
	one := 1
	s.event(event.ItemSkipped, time.Millisecond, func(e *event.Event) { e.Item, e.Cause, e.Reason = &one, event.SkipElsewhere, "handed back" })
	s.event(event.ItemSkipped, 0, func(e *event.Event) { e.Item, e.Instant = &one, e.Instant.Add(time.Hour) }) // of a fire that is none
	s.now = s.now.Add(-time.Hour)                                                                              // the clock is set back
	s.finish(abi.OutcomeCancelled, 0, 1, 2)
	s.finish(abi.OutcomeOK, 5) // never began
	s.source = abi.SourceFailover
	s.attempt(7, 1, abi.OutcomeOK)
	s.complete(7, abi.OutcomeOK)
	s.finish(abi.OutcomeOK, 7)
	s.complete(7, abi.OutcomeOK) // it is over
	s.event(event.Listener, 0, nil)
	closed(t, tr)
	spans, _ := c.Spans()
	for n, cause := range map[int64]any{0: "unfinished", 1: "elsewhere", 2: "unfinished", 7: nil} {
		item := the(t, spans, "item cities", "wasmjob.item", n)
		if item.Attributes["wasmjob.cause"] != cause || item.End.Before(item.Start) || item.Failed {
			t.Errorf("item %d: %+v", n, item)
		}
	}
	if len(collector.Named(spans, "fire cities")) != 2 || len(spans) != 8 || len(tr.fires) != 0 {
		t.Errorf("%d spans, %d fires are remembered: %+v", len(spans), len(tr.fires), spans)
	}
}

// within bounds what a test waits for.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
