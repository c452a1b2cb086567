package trace

import (
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	otlp "go.opentelemetry.io/proto/slim/otlp/trace/v1"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
)

// span is one that has ended, as it waits. What it is of is an event, or a call.
type span struct {
	trace      traceID
	id, parent spanID // a fire has no parent
	start, end time.Time
	event      event.Event
	call       *event.GuestCall
}

// message is the span as OTLP has it.
func (s *span) message() *otlp.Span {
	const flags = uint32(otlp.SpanFlags_SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK) | 1 // sampled; the parent is this process's
	end := s.end
	if end.Before(s.start) { // the clock was set back
		end = s.start
	}
	m := &otlp.Span{TraceId: s.trace[:], SpanId: s.id[:], Flags: flags, Kind: otlp.Span_SPAN_KIND_INTERNAL,
		StartTimeUnixNano: uint64(s.start.UnixNano()), EndTimeUnixNano: uint64(end.UnixNano())}
	if s.parent != (spanID{}) {
		m.ParentSpanId = s.parent[:]
	}
	if s.call != nil {
		s.describeCall(m)
	} else {
		s.describeEvent(m)
	}
	return m
}

// attributes are those of a span.
type attributes []*common.KeyValue

func (a *attributes) text(key, value string) {
	if value != "" {
		*a = append(*a, &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: strings.ToValidUTF8(value, "\uFFFD")}}})
	}
}

func (a *attributes) number(key string, value int64) {
	*a = append(*a, &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: value}}})
}

func (a *attributes) some(key string, value int64) {
	if value != 0 {
		a.number(key, value)
	}
}

func (a *attributes) seconds(key string, value time.Duration) {
	*a = append(*a, &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_DoubleValue{DoubleValue: value.Seconds()}}})
}

// describeEvent makes a span of what events report.
func (s *span) describeEvent(m *otlp.Span) {
	e := &s.event
	var a attributes
	a.text("wasmjob.job", e.Job)
	if e.Trigger != 0 {
		a.number("wasmjob.trigger", e.Trigger)
	} else {
		a.text("wasmjob.instant", e.Instant.UTC().Format("2006-01-02T15:04:05.000Z"))
	}
	a.text("wasmjob.source", string(e.Source))
	a.text("wasmjob.host", e.Host)
	if e.Item != nil {
		a.number("wasmjob.item", int64(*e.Item))
	}
	a.text("wasmjob.run_id", e.RunID)
	a.text("wasmjob.outcome", string(e.Outcome))
	a.text("wasmjob.cause", string(e.Cause))
	a.some("wasmjob.fence", e.Fence)
	a.text("wasmjob.module.digest", e.Digest)
	switch e.Kind {
	case event.FireEnded:
		m.Name = "fire " + e.Job
		a.text("wasmjob.items", tree.Items(e.Items).String())
		a.some("wasmjob.items.total", int64(e.Total))
		a.seconds("wasmjob.lag", e.Lag)
	case event.ItemEnded:
		m.Name = "attempt " + e.Job
		a.number("wasmjob.attempt", int64(e.Attempt))
		a.text("wasmjob.module.signer", e.Signer)
		a.some("wasmjob.memory", e.Memory)
		a.some("wasmjob.batches", e.Batches)
		a.some("wasmjob.records", e.Records)
	case event.Listener:
		m.Name = "listener " + e.Job
		a.text("wasmjob.listener", e.Because.Arg("listener"))
	default:
		m.Name = "item " + e.Job
		a.some("wasmjob.attempts", int64(e.Attempt))
	}
	m.Attributes = a
	if e.Outcome.Failed() {
		m.Status = failed(e.Reason)
	}
}

// describeCall makes a span of a request or a connection, by OpenTelemetry's conventions.
// It has neither path nor query: guests put tokens there.
func (s *span) describeCall(m *otlp.Span) {
	c := s.call
	m.Kind, m.Name = otlp.Span_SPAN_KIND_CLIENT, "connect"
	var a attributes
	if host, port, err := net.SplitHostPort(c.Target); err == nil {
		a.text("server.address", host)
		if n, err := strconv.ParseInt(port, 10, 32); err == nil {
			a.number("server.port", n)
		}
	}
	if c.Method != "" {
		m.Name = c.Method
		a.text("http.request.method", c.Method)
		a.text("url.scheme", c.Scheme)
		a.some("http.response.status_code", int64(c.Status))
		a.some("http.request.body.size", c.Sent)
		a.some("http.response.body.size", c.Received)
	} else {
		a.text("network.transport", "tcp")
		if c.Scheme == "tls" {
			a.text("network.protocol.name", "tls")
		}
		a.some("wasmjob.sent", c.Sent)
		a.some("wasmjob.received", c.Received)
	}
	a.text("wasmjob.capability", c.Capability)
	a.text("wasmjob.job", c.Job)
	a.text("wasmjob.run_id", c.RunID)
	switch {
	case c.Failure != "":
		m.Status = failed(event.Reason(c.Failure))
		a.text("error.type", "_OTHER")
	case c.Status >= 400:
		m.Status = failed("")
		a.text("error.type", strconv.Itoa(c.Status))
	}
	if c.Connected > 0 {
		m.Events = append(m.Events, &otlp.Span_Event{Name: "connected", TimeUnixNano: uint64(s.start.Add(c.Connected).UnixNano())})
	}
	m.Attributes = a
}

func failed(reason string) *otlp.Status {
	return &otlp.Status{Code: otlp.Status_STATUS_CODE_ERROR, Message: strings.ToValidUTF8(reason, "\uFFFD")}
}

// resource is who sends: what is the same for all spans.
func (o Options) resource() *otlp.ResourceSpans {
	var a attributes
	for _, pair := range o.Attributes {
		a.text(pair.Key, pair.Value)
	}
	own := func(key, value string) {
		for _, pair := range o.Attributes {
			if pair.Key == key {
				return // the environment says otherwise
			}
		}
		a.text(key, value)
	}
	own("service.name", "wasmjob")
	own("service.namespace", o.Namespace)
	own("service.version", o.Version)
	own("service.instance.id", o.Instance)
	if name, err := os.Hostname(); err == nil {
		own("host.name", name)
	}
	a.number("process.pid", int64(os.Getpid()))
	return &otlp.ResourceSpans{
		Resource:   &resource.Resource{Attributes: a},
		ScopeSpans: []*otlp.ScopeSpans{{Scope: &common.InstrumentationScope{Name: "github.com/wasmjob/wasmjob", Version: o.Version}}},
	}
}
