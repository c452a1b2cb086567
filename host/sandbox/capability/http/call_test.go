package http

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/capabilitytest"
)

// calls takes what a guest's run reports.
type calls struct {
	mu   sync.Mutex
	list []abi.OutsideCall
}

func record(g *capabilitytest.Guest) *calls {
	c := &calls{}
	g.Run.Called = func(o abi.OutsideCall) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.list = append(c.list, o)
	}
	return c
}

// next takes the only one there is, without what differs from time to time.
func (c *calls) next(t *testing.T) (call abi.OutsideCall, span string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) != 1 {
		t.Fatalf("%d calls: %+v", len(c.list), c.list)
	}
	call, c.list = c.list[0], nil
	if call.Took <= 0 || call.Connected > call.Took || len(call.SpanID) != 16 {
		t.Errorf("%+v", call)
	}
	span, call.SpanID, call.Took, call.Connected = call.SpanID, "", 0, 0
	return call, span
}

// TestCalls: each request of a run whose trace is recorded is reported when it is over,
// and the server learns it as the parent of what it does.
func TestCalls(t *testing.T) {
	g, server := serve(t, echo, grants.Quotas{})
	reported := record(g)
	target := strings.TrimPrefix(server, "http://")
	_, _, headers := get(t, g, "four", "POST", server+"/secret?in=it")
	g.CloseHandle(1)
	call, span := reported.next(t)
	size := call.Received
	if want := (abi.OutsideCall{Capability: "http", Method: "POST", Scheme: "http", Target: target, Status: 200, Sent: 4, Received: size}); call != want || size == 0 {
		t.Errorf("%+v, want %+v", call, want)
	}
	if got, want := headerOf(headers, "Echo-Traceparent"), "00-0af7651916cd43dd8448eb211c80319c-"+span+"-01"; got != want {
		t.Errorf("the server got %s, want %s", got, want)
	}
	_, _, headers = get(t, g, "", "GET", server, "Traceparent", "mine")
	g.CloseHandle(2)
	if _, other := reported.next(t); other == span || headerOf(headers, "Echo-Traceparent") != "mine" {
		t.Errorf("two calls with the span %s, or what the guest says is overruled: %q", span, headers)
	}
}

// TestCallsThatFail: a call says why it did not come to its end.
func TestCallsThatFail(t *testing.T) {
	g, server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		w.(http.Flusher).Flush()
		if r.URL.Path == "/broken" {
			c, _, _ := w.(http.Hijacker).Hijack()
			c.(*net.TCPConn).SetLinger(0)
			c.Close()
			return
		}
		<-r.Context().Done()
	}, grants.Quotas{})
	reported := record(g)
	h := g.Open("GET", server+"/")
	g.Finish(h)
	if status := g.Status(h); status != http.StatusTeapot {
		t.Fatalf("%d", status)
	}
	g.CloseHandle(h) // the guest has seen enough
	if call, _ := reported.next(t); call.Status != http.StatusTeapot || call.Failure != "" {
		t.Errorf("%+v", call)
	}
	h = g.Open("GET", server+"/broken")
	g.Finish(h)
	if _, code := g.ReadAll(h); code != abi.ErrUnavailable {
		t.Fatalf("%d: %s", code, g.Error(h))
	}
	g.CloseHandle(h)
	if call, _ := reported.next(t); call.Status != http.StatusTeapot || !strings.Contains(call.Failure, "reset") {
		t.Errorf("%+v", call)
	}
	h = g.Open("GET", server+"/")
	g.CloseHandle(h) // before it began
	reported.mu.Lock()
	if len(reported.list) != 0 {
		t.Errorf("%+v", reported.list)
	}
	reported.mu.Unlock()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	g = begin(t, Options{}, &grants.Grant{HTTP: []grants.HTTP{granted(t, gone)}})
	reported = record(g)
	fails(t, g, abi.ErrUnavailable, "refused", "GET", gone)
	if call, _ := reported.next(t); call.Status != 0 || !strings.Contains(call.Failure, "refused") {
		t.Errorf("%+v", call)
	}
}

// TestCallsWithoutATrace: what is not recorded is not reported, and the server learns the
// trace as the run has it.
func TestCallsWithoutATrace(t *testing.T) {
	for _, trace := range []string{"", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", "nonsense-01x"} {
		g, server := serve(t, echo, grants.Quotas{})
		reported := record(g)
		g.Run.Info.Traceparent = trace
		_, _, headers := get(t, g, "", "GET", server)
		g.CloseHandle(1)
		if got := headerOf(headers, "Echo-Traceparent"); got != trace || len(reported.list) != 0 {
			t.Errorf("with %q the server got %q, and %d calls were reported", trace, got, len(reported.list))
		}
	}
}
