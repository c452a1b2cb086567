// Package net makes the connections of guests (job_v1_net): TCP, and TLS terminated by the host, only to
// granted addresses.
package net

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/sandbox/capability"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/dial"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/pipe"
	"github.com/wasmjob/wasmjob/internal/address"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Instance makes the connections of all runs of one job under one version of its grant.
// It is safe for concurrent use.
type Instance struct {
	grant  *grants.Grant
	quotas grants.Quotas
	dialer *dial.Dialer
}

// name is the capability's in usage.
const name = "net"

// New makes an Instance. The caller ends it with Close, when no run uses it any more.
func New(grant *grants.Grant) *Instance { return resolving(grant, nil) }

// resolving makes an Instance with another resolver than the system's.
func resolving(grant *grants.Grant, resolver *net.Resolver) *Instance {
	q := grant.Quotas.Or()
	return &Instance{grant: grant, quotas: q, dialer: dial.New(dial.Options{Connect: q.Connect, Resolver: resolver})}
}

// Close ends all connections, and returns when none is left.
func (in *Instance) Close() { in.dialer.Close() }

// Functions are for [capability.NewRun], of any number of runs.
func (in *Instance) Functions() map[string]capability.Function {
	return map[string]capability.Function{abi.ModuleNet + ".dial": in.dial}
}

// target is what a guest wants to be connected to.
type target struct {
	scheme, host string
	port         uint16
}

func (t target) String() string { return t.scheme + "://" + t.address() }

func (t target) address() string { return net.JoinHostPort(t.host, strconv.Itoa(int(t.port))) }

func parse(text string) (target, error) {
	invalid := func(why string) (target, error) {
		return target{}, capability.Fail(abi.ErrInvalid, "net: the target %q: %s", words.Clip(text), why)
	}
	scheme, at, found := strings.Cut(text, "://")
	if !found || (scheme != "tcp" && scheme != "tls") {
		return invalid("expected tcp://HOST:PORT or tls://HOST:PORT")
	}
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		return invalid("expected " + scheme + "://HOST:PORT")
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return invalid("its port is not a number from 1 to 65535")
	}
	if host, err = address.Host(host); err != nil {
		return invalid(err.Error())
	}
	return target{scheme, host, uint16(number)}, nil
}

func (in *Instance) dial(ctx context.Context, r *capability.Run, c *abi.Call) (int64, error) {
	if n := len(c.Texts[0]); n > abi.MaxTarget {
		return 0, capability.Fail(abi.ErrTooLarge, "net: the target has %d bytes, at most %d are allowed", n, abi.MaxTarget)
	}
	t, err := parse(string(c.Texts[0]))
	if err != nil {
		return 0, err
	}
	granted, err := in.grant.AllowNet(t.scheme, t.host, t.port)
	if err != nil {
		return 0, capability.Fail(abi.ErrDenied, "%v", err)
	}
	return r.Open(func(notify func()) (capability.Stream, error) {
		if !r.Left.Connections.Take(1) {
			return nil, capability.Fail(abi.ErrQuota, "net: the run has made %d connections, which is the limit", r.Left.Connections.Limit())
		}
		at := r.Redacted(t.address())
		r.Usage.Target(name, at)
		s := &stream{in: in, run: r, target: t, at: at, up: pipe.New(notify), down: pipe.New(notify), notify: notify, sent: make(chan struct{})}
		ctx, s.stop = context.WithCancelCause(ctx)
		s.call = r.Begin(abi.OutsideCall{Capability: name, Scheme: t.scheme, Target: at})
		s.joined.Go(func() { s.do(ctx, granted) })
		return s, nil
	})
}

// maxReason bounds how much of an error a message quotes, in bytes: names in a certificate come from the
// server.
const maxReason = 256

// stream is a connection.
type stream struct {
	in       *Instance
	run      *capability.Run
	notify   func()
	target   target
	at       string // host and port, for counts
	up, down *pipe.Pipe
	stop     context.CancelCauseFunc
	joined   sync.WaitGroup // of its goroutines

	connected atomic.Bool
	direct    atomic.Pointer[dial.Conn] // nil: no connection, or one with TLS
	sent      chan struct{}             // closed when everything that the guest has written is sent, or cannot be
	cut       atomic.Bool               // some of that was not sent
	asked     atomic.Bool               // an empty write was answered with Again
	finished  bool                      // of the guest's calls
	answers   answers
	call      *capability.Call // of the run's trace
}

// Write implements capability.Stream. An empty write reports whether there is a connection.
func (s *stream) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return s.probe()
	}
	if s.finished {
		return 0, capability.Fail(abi.ErrInvalid, "net: %s is finished: nothing is written after it", s.target)
	}
	size := int64(len(b))
	sent := &s.run.Left.Sent
	if !sent.Take(size) {
		return 0, s.abort(capability.Fail(abi.ErrQuota, "net: the run may send %d bytes, and has sent %d before", sent.Limit(), sent.Used()))
	}
	s.answers.wrote() // before the answer can come
	n, err := s.put(b)
	sent.Return(size - int64(n))
	if n > 0 {
		s.run.Usage.Add(name, func(c *abi.OutsideCount) { c.Sent += int64(n) })
	}
	return n, err
}

// little is how many bytes the guest's goroutine writes itself; more is handed to the sending goroutine.
const little = 16 << 10

// put writes what the socket accepts at once, if nothing is queued. The rest, and errors, are left to the
// sending goroutine.
func (s *stream) put(b []byte) (int, error) {
	if conn := s.direct.Load(); conn != nil && len(b) <= little && s.up.Size() == 0 {
		if n, _ := conn.TryWrite(b); n > 0 {
			s.call.Transfer(int64(n), 0)
			return n, nil
		}
	}
	return s.up.Put(b)
}

func (s *stream) probe() (int, error) {
	s.asked.Store(true) // set before the check, so that no change in between is missed
	if _, err := s.up.Put(nil); err != nil && err != io.EOF {
		return 0, err
	}
	if !s.connected.Load() {
		return 0, capability.Again()
	}
	return 0, nil
}

// Finish implements capability.Stream.
func (s *stream) Finish() error {
	s.finished = true
	s.up.End(io.EOF)
	return nil
}

// Read implements capability.Stream.
func (s *stream) Read(b []byte) (int, error) {
	n, err := s.down.Get(b)
	if err != nil {
		s.answers.awaited()
	}
	return n, err
}

// linger is how long closing a connection waits until the written data is accepted. The guest waits meanwhile.
const linger = time.Second

// Close implements capability.Stream. If the guest closes a connection its written bytes are sent first; at the
// end of the run they are dropped.
func (s *stream) Close() {
	if s.connected.Load() && s.run.MayAct() == nil {
		s.up.End(io.EOF)
		t := time.NewTimer(linger)
		defer t.Stop()
		select {
		case <-s.sent:
		case <-t.C:
		}
	}
	_ = s.abort(capability.Fail(abi.ErrCancelled, "net: %s was closed", s.target))
	s.joined.Wait()
}

// abort ends the connection for a reason, which it returns.
func (s *stream) abort(reason error) error {
	if s.up.Size() > 0 {
		s.cut.Store(true)
	}
	s.direct.Store(nil) // the socket is closed a little later
	s.stop(reason)
	s.up.Break(reason)
	s.down.Break(reason)
	return reason
}

// do connects and receives; a second goroutine sends.
func (s *stream) do(ctx context.Context, granted *grants.Net) {
	s.call.Start()
	defer s.call.End()
	began := time.Now()
	conn, err := s.connect(ctx, granted)
	connecting := time.Since(began)
	defer func() { s.run.Usage.Took(name, s.at, max(connecting, s.answers.end())) }()
	if err != nil {
		s.run.Usage.Failed(name, s.at)
		s.fail(ctx, err, true)
		return
	}
	s.call.Connect()
	if plain, ok := conn.(*dial.Conn); ok {
		s.direct.Store(plain)
	}
	s.connected.Store(true)
	if s.asked.Load() {
		s.notify()
	}
	raw := dial.Of(conn) // TLS would wait for the other side
	closed := make(chan struct{})
	open := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = raw.Close() // the reason is known
	})
	s.joined.Go(func() {
		defer close(s.sent)
		s.send(ctx, conn)
	})
	s.receive(ctx, conn)
	<-s.sent
	if open() {
		_ = raw.Close() // both sides have ended
	} else {
		<-closed
	}
}

func (s *stream) connect(ctx context.Context, granted *grants.Net) (net.Conn, error) {
	if err := s.run.MayAct(); err != nil {
		return nil, err
	}
	user := &dial.User{MayAct: s.run.MayAct, Lost: func() bool { return s.cut.Load() || s.run.Lost() }, Closed: func() {}}
	t := dial.Target{Host: s.target.host, Port: s.target.port, Private: granted.Private, CA: granted.CA, Cert: granted.Cert, Key: granted.Key}
	if s.target.scheme == "tls" {
		return s.in.dialer.TLS(ctx, t, user)
	}
	return s.in.dialer.TCP(ctx, t, user)
}

// send writes what the guest writes.
func (s *stream) send(ctx context.Context, conn net.Conn) {
	n, err := s.up.WriteTo(conn)
	s.call.Transfer(n, 0)
	if err == nil {
		err = conn.(interface{ CloseWrite() error }).CloseWrite()
	}
	if err != nil {
		s.fail(ctx, err, false)
	}
}

// receive gives the guest what comes.
func (s *stream) receive(ctx context.Context, conn net.Conn) {
	received := &s.run.Left.Received
	count := func(n int) error {
		if !received.Take(int64(n)) {
			return capability.Fail(abi.ErrQuota, "net: the run may receive %d bytes, and has received %d before", received.Limit(), received.Used())
		}
		s.answers.came()
		s.run.Usage.Add(name, func(c *abi.OutsideCount) { c.Received += int64(n) })
		s.call.Transfer(0, int64(n))
		return nil
	}
	read := func(p []byte) (int, error) {
		n, err := conn.Read(p)
		if err != nil && err != io.EOF {
			err = s.failure(ctx, err, false)
			s.call.Fail(err) // before the guest can know and close the connection
		}
		return n, err
	}
	for {
		if _, err := s.down.Fill(read, count); err == io.EOF {
			return // the guest may go on to write
		} else if err != nil {
			s.fail(ctx, err, false)
			return
		}
	}
}

// fail ends both directions.
func (s *stream) fail(ctx context.Context, err error, connecting bool) {
	err = s.failure(ctx, err, connecting)
	s.call.Fail(err)
	s.direct.Store(nil) // the socket is closed a little later
	s.stop(err)
	s.up.Break(err)
	s.down.End(err)
	if s.asked.Load() {
		s.notify()
	}
}

// failure says what an error means to the guest.
func (s *stream) failure(ctx context.Context, err error, connecting bool) error {
	if f := dial.Failure(ctx, s.run, err, "net: "+s.target.String()); f != nil {
		return f
	}
	var slow net.Error
	if connecting && errors.As(err, &slow) && slow.Timeout() {
		return capability.Fail(abi.ErrTimeout, "net: %s: no connection within %s", s.target, s.in.quotas.Connect)
	}
	return capability.Fail(abi.ErrUnavailable, "net: %s: %s", s.target, words.ClipTo(err.Error(), maxReason))
}
