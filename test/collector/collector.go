// Package collector is a collector of OpenTelemetry traces for tests: it takes OTLP over
// HTTP on a port of its own, and can be told to be slow or to refuse.
package collector

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	wire "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is a span that has come.
type Span struct {
	Trace, ID, Parent string // in hexadecimal; Parent is empty if it has none
	Name              string
	Kind              otlp.Span_SpanKind
	Start, End        time.Time
	Failed            bool
	Message           string
	Attributes        map[string]any // string, int64 or float64
	Events            []string
	Resource          map[string]any
}

// Collector takes spans. It is safe for concurrent use.
type Collector struct {
	server   *http.Server
	address  string
	stopped  chan struct{}
	problems []error // what came and is no OTLP

	mu       sync.Mutex
	spans    []Span
	news     chan struct{} // closed, and made again, when there is more
	requests []*http.Request
	answer   func(http.ResponseWriter, *http.Request) bool
}

// Start listens on a free port of the loopback address.
func Start(ctx context.Context) (*Collector, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &Collector{address: l.Addr().String(), stopped: make(chan struct{}), news: make(chan struct{})}
	c.server = &http.Server{Handler: http.HandlerFunc(c.serve), ReadHeaderTimeout: time.Minute}
	go func() { // joined by Close
		defer close(c.stopped)
		_ = c.server.Serve(l) // closed
	}()
	return c, nil
}

// Close stops listening at once. The error says what came that is no OTLP.
func (c *Collector) Close() error {
	err := c.server.Close()
	<-c.stopped
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(append(c.problems, err)...)
}

// URL is the endpoint for OTEL_EXPORTER_OTLP_ENDPOINT and --otlp.
func (c *Collector) URL() string { return "http://" + c.address }

// Answer lets requests be answered by a function. What it reports false for is taken as
// always; nil takes all.
func (c *Collector) Answer(f func(http.ResponseWriter, *http.Request) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = f
}

// Spans are all that have come, and a channel that is closed when there are more.
func (c *Collector) Spans() ([]Span, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...), c.news
}

// Requests are the heads of all that have come, whatever the answer was.
func (c *Collector) Requests() []*http.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*http.Request(nil), c.requests...)
}

// Await waits until the spans are as wanted, and returns them.
func (c *Collector) Await(ctx context.Context, wanted func([]Span) bool) ([]Span, error) {
	for {
		spans, news := c.Spans()
		if wanted(spans) {
			return spans, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return spans, fmt.Errorf("%w; %d spans have come", ctx.Err(), len(spans))
		}
	}
}

// Named picks the spans of a name that have the attributes, which are keys and values in
// turn.
func Named(spans []Span, name string, attributes ...any) (list []Span) {
	for _, s := range spans {
		fits := s.Name == name
		for i := 0; i < len(attributes); i += 2 {
			fits = fits && s.Attributes[attributes[i].(string)] == attributes[i+1]
		}
		if fits {
			list = append(list, s)
		}
	}
	return list
}

func (c *Collector) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	c.mu.Lock()
	c.requests = append(c.requests, r)
	answer := c.answer
	c.mu.Unlock()
	if answer != nil && answer(w, r) {
		return
	}
	if err == nil {
		err = c.take(r, body)
	}
	if err != nil {
		c.mu.Lock()
		c.problems = append(c.problems, err)
		c.mu.Unlock()
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	out, _ := proto.Marshal(&wire.ExportTraceServiceResponse{})
	_, _ = w.Write(out) // who asked may be gone
}

// take decodes a request.
func (c *Collector) take(r *http.Request, body []byte) error {
	if r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
		return fmt.Errorf("%s %s with %q", r.Method, r.URL.Path, r.Header.Get("Content-Type"))
	}
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return err
		}
		if body, err = io.ReadAll(z); err != nil {
			return err
		}
	}
	var m wire.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &m); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range m.GetResourceSpans() {
		resource := values(rs.GetResource().GetAttributes())
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				if len(s.GetTraceId()) != 16 || len(s.GetSpanId()) != 8 {
					return fmt.Errorf("a span with the ids %x and %x", s.GetTraceId(), s.GetSpanId())
				}
				c.spans = append(c.spans, spanOf(s, resource))
			}
		}
	}
	close(c.news)
	c.news = make(chan struct{})
	return nil
}

func spanOf(s *otlp.Span, resource map[string]any) Span {
	out := Span{
		Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
		Name: s.GetName(), Kind: s.GetKind(), Start: time.Unix(0, int64(s.GetStartTimeUnixNano())), End: time.Unix(0, int64(s.GetEndTimeUnixNano())),
		Failed: s.GetStatus().GetCode() == otlp.Status_STATUS_CODE_ERROR, Message: s.GetStatus().GetMessage(),
		Attributes: values(s.GetAttributes()), Resource: resource,
	}
	for _, e := range s.GetEvents() {
		out.Events = append(out.Events, e.GetName())
	}
	return out
}

func values(list []*common.KeyValue) map[string]any {
	all := make(map[string]any, len(list))
	for _, a := range list {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			all[a.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			all[a.GetKey()] = v.IntValue
		case *common.AnyValue_DoubleValue:
			all[a.GetKey()] = v.DoubleValue
		}
	}
	return all
}
