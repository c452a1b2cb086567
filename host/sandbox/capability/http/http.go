// Package http sends the requests of guests (job_v1_http). It speaks HTTP/1.1, to granted
// addresses only, and keeps a job's connections from one fire to the next.
//
//	guest ── write ─► pipe ─► net/http.Transport ─► dial.Conn ─► server
//	      ◄─ read ──  pipe ◄─ one goroutine     ◄─
//
// Each stream has one goroutine, and two pipes of at most 256 KiB.
package http

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/sandbox/capability"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/dial"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/pipe"
)

// Options are what an Instance is given besides the grant.
type Options struct {
	// Secret returns the value of a secret that the grant names; its error is shown to the guest, and must not
	// contain a value. nil: there are none.
	Secret   func(name string) (string, error)
	resolver *net.Resolver // of tests
}

// Instance sends the requests of all runs of one job under one version of its grant. It
// is safe for concurrent use.
type Instance struct {
	o      Options
	grant  *grants.Grant
	quotas grants.Quotas
	dialer *dial.Dialer

	mu         sync.Mutex
	transports map[rule]*http.Transport
}

// rule are the settings that connections must share to be reused for a request.
type rule struct {
	private       bool
	ca, cert, key string
}

// name is the capability's in usage.
const name = "http"

// How connections are kept between requests.
const (
	idlePerHost = 16
	idleTimeout = 90 * time.Second
)

// New makes an Instance. The caller ends it with Close, when no run uses it any more.
func New(grant *grants.Grant, o Options) *Instance {
	q := grant.Quotas.Or()
	return &Instance{o: o, grant: grant, quotas: q, transports: map[rule]*http.Transport{},
		dialer: dial.New(dial.Options{Connect: q.Connect, Resolver: o.resolver})}
}

// Close ends all connections, and returns when none is left.
func (in *Instance) Close() {
	in.mu.Lock()
	for _, t := range in.transports {
		t.CloseIdleConnections()
	}
	in.mu.Unlock()
	in.dialer.Close()
}

// Functions are for [capability.NewRun], of any number of runs.
func (in *Instance) Functions() map[string]capability.Function {
	return map[string]capability.Function{
		abi.ModuleHTTP + ".open":    in.open,
		abi.ModuleHTTP + ".status":  status,
		abi.ModuleHTTP + ".headers": headers,
	}
}

func (in *Instance) open(ctx context.Context, r *capability.Run, c *abi.Call) (int64, error) {
	h, err := parse(c.Texts[0])
	if err != nil {
		return 0, err
	}
	granted, err := in.grant.AllowHTTP(h.method, h.url)
	if err != nil {
		return 0, capability.Fail(abi.ErrDenied, "%v", err)
	}
	if err := in.reveal(h, granted); err != nil {
		return 0, err
	}
	address := r.Redacted(h.address())
	if !r.Left.InFlight.Take(1) {
		return 0, capability.Fail(abi.ErrQuota, "%d requests are in flight, which is the limit: read one to its end, or close it", r.Left.InFlight.Limit())
	}
	id, err := r.Open(func(notify func()) (capability.Stream, error) {
		if !r.Left.Requests.Take(1) {
			return nil, capability.Fail(abi.ErrQuota, "the run has made %d requests, which is the limit", r.Left.Requests.Limit())
		}
		if size := int64(len(c.Texts[0])); !r.Left.Sent.Take(size) {
			return nil, tooMuchSent(r)
		}
		r.Usage.Add(name, func(n *abi.OutsideCount) { n.Sent += int64(len(c.Texts[0])) })
		r.Usage.Target(name, address)
		return in.begin(ctx, r, h, granted, address, notify), nil
	})
	if err != nil {
		r.Left.InFlight.Return(1)
	}
	return id, err
}

// begin makes a stream, which owns a request in flight from now on.
func (in *Instance) begin(ctx context.Context, r *capability.Run, h *head, granted *grants.HTTP, address string, notify func()) *stream {
	s := &stream{in: in, run: r, notify: notify, origin: h.origin(), address: address, length: h.length,
		up: pipe.New(notify), down: pipe.New(notify), start: make(chan struct{}), over: make(chan struct{})}
	ctx, s.stop = context.WithCancelCause(ctx)
	s.call = r.Begin(abi.OutsideCall{Capability: name, Method: h.method, Scheme: h.url.Scheme, Target: address})
	request := &http.Request{Method: h.method, URL: h.url, Header: headersOf(r, h, s.call), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	go s.do(ctx, in.transport(granted), request)
	return s
}

// headersOf are the headers of the request, with what the host adds.
func headersOf(r *capability.Run, h *head, call *capability.Call) http.Header {
	all := http.Header{}
	for _, x := range h.headers {
		all.Add(x.name, x.value)
	}
	add := func(name, value string) {
		if _, given := all[name]; !given && value != "" {
			all.Set(name, value)
		}
	}
	if _, given := all["Idempotency-Key"]; !given && r.Info.RunID != "" {
		// One request, one key: the requests of a retried run have the same key.
		key := r.Info.RunID
		if n := r.Left.Requests.Used(); n > 1 {
			key += "-" + strconv.FormatInt(n, 10)
		}
		// Under its usual name, net/http would take the key as permission to send a request twice.
		all["idempotency-key"] = []string{key}
	}
	add("Wasmjob-Fence", strconv.FormatInt(r.Info.Fence, 10))
	add("Traceparent", call.Traceparent(r))
	add("User-Agent", "wasmjob")
	return all
}

// transport returns the connection pool for requests under a grant.
func (in *Instance) transport(g *grants.HTTP) *http.Transport {
	k := rule{g.Private, g.CA, g.Cert, g.Key}
	in.mu.Lock()
	defer in.mu.Unlock()
	t := in.transports[k]
	if t != nil {
		return t
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	t = &http.Transport{
		Protocols:              protocols,
		MaxIdleConnsPerHost:    idlePerHost,
		IdleConnTimeout:        idleTimeout,
		ResponseHeaderTimeout:  in.quotas.FirstByte,
		MaxResponseHeaderBytes: abi.MaxHead,
		DialContext: func(ctx context.Context, _, at string) (net.Conn, error) {
			return in.connect(ctx, k, at, func(ctx context.Context, t dial.Target) (net.Conn, error) {
				return in.dialer.TCP(ctx, t, nil)
			})
		},
		DialTLSContext: func(ctx context.Context, _, at string) (net.Conn, error) {
			return in.connect(ctx, k, at, func(ctx context.Context, t dial.Target) (net.Conn, error) {
				return in.dialer.TLS(ctx, t, nil, "http/1.1")
			})
		},
	}
	in.transports[k] = t
	return t
}

func (in *Instance) connect(ctx context.Context, k rule, at string, dialed func(context.Context, dial.Target) (net.Conn, error)) (net.Conn, error) {
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	c, err := dialed(ctx, dial.Target{Host: host, Port: uint16(number), Private: k.private, CA: k.ca, Cert: k.cert, Key: k.key})
	if err == nil {
		return c, nil
	}
	return nil, &unconnected{err}
}

// unconnected is the error of a request that found no connection.
type unconnected struct{ err error }

func (u *unconnected) Error() string { return u.err.Error() }
func (u *unconnected) Unwrap() error { return u.err }
