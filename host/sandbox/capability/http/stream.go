package http

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/capability"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/dial"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/pipe"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// startAt is how much of a body is buffered before its request begins, unless the guest asks for the response
// first: a shorter body gets a Content-Length.
const startAt = 64 << 10

// maxReason bounds how much of a server's answer a message quotes, in bytes.
const maxReason = 256

// stream is a request and its response.
type stream struct {
	in      *Instance
	run     *capability.Run
	notify  func()
	origin  string
	address string     // host and port, for counts
	up      *pipe.Pipe // the request's body
	down    *pipe.Pipe // the response's
	stop    context.CancelCauseFunc
	start   chan struct{} // closed when the request is to begin
	over    chan struct{} // closed when the goroutine has ended

	call *capability.Call // of the run's trace
	took time.Duration    // that the server took; of the goroutine
	idle atomic.Int64     // nanoseconds that the request waited for the guest

	// Used by the guest's calls; the goroutine reads length and whole after start.
	length   int64 // of the body; -1: not known
	whole    bool  // the body is in up
	written  int64
	started  bool
	finished bool
	aborted  error

	mu      sync.Mutex
	asked   bool // a call for the head was answered with Again
	status  int  // 0: no response yet
	headers string
	err     error // there will be no response
}

// Write implements capability.Stream.
func (s *stream) Write(b []byte) (int, error) {
	if s.finished {
		return 0, invalid("the request is finished: nothing is written after it")
	}
	size := int64(len(b))
	if s.length >= 0 && s.written+size > s.length {
		return 0, s.abort(invalid("%s: Content-Length is %d, and more is written", s.origin, s.length))
	}
	if !s.run.Left.Sent.Take(size) {
		return 0, s.abort(tooMuchSent(s.run))
	}
	n, err := s.up.Put(b)
	s.run.Left.Sent.Return(size - int64(n))
	if n > 0 {
		s.written += int64(n)
		s.run.Usage.Add(name, func(c *abi.OutsideCount) { c.Sent += int64(n) })
	}
	if s.written > startAt {
		s.begin()
	}
	return n, err
}

func tooMuchSent(r *capability.Run) error {
	return capability.Fail(abi.ErrQuota, "the run may send %d bytes, and has sent %d before", r.Left.Sent.Limit(), r.Left.Sent.Used())
}

// Finish implements capability.Stream.
func (s *stream) Finish() error {
	if s.finished || s.aborted != nil {
		return s.aborted
	}
	if s.length >= 0 && s.written < s.length {
		return s.abort(invalid("%s: Content-Length is %d, and %d bytes were written", s.origin, s.length, s.written))
	}
	s.finished = true
	s.up.End(io.EOF)
	if !s.started {
		s.length, s.whole = s.written, true
		s.begin()
	}
	return nil
}

func (s *stream) begin() {
	if !s.started {
		s.started = true
		close(s.start)
	}
}

// Read implements capability.Stream.
func (s *stream) Read(b []byte) (int, error) { return s.down.Get(b) }

// Close implements capability.Stream.
func (s *stream) Close() {
	_ = s.abort(capability.Fail(abi.ErrCancelled, "the request was closed"))
	<-s.over
}

// abort ends the request for a reason, which it returns.
func (s *stream) abort(reason error) error {
	s.aborted = reason
	s.stop(reason)
	s.up.Break(reason)
	s.down.Break(reason)
	return reason
}

func status(_ context.Context, r *capability.Run, c *abi.Call) (int64, error) {
	return ofResponse(r, c, func(s *stream) int64 { return int64(s.status) })
}

func headers(_ context.Context, r *capability.Run, c *abi.Call) (int64, error) {
	return ofResponse(r, c, func(s *stream) int64 { return c.Give(s.headers) })
}

// ofResponse answers a call with a part of the response's head.
func ofResponse(r *capability.Run, c *abi.Call, give func(*stream) int64) (int64, error) {
	return r.Do(int32(c.Numbers[0]), func(of capability.Stream) (int64, error) {
		s, ok := of.(*stream)
		if !ok {
			return 0, invalid("the handle %d is not of a request", c.Numbers[0])
		}
		s.begin() // a guest that asks for the response may wait for it before writing more
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.status != 0 {
			return give(s), nil
		}
		if s.err != nil {
			return 0, s.err
		}
		s.asked = true
		return 0, capability.Again()
	})
}

// The following is used by the stream's goroutine.

// do sends the request and receives the response.
func (s *stream) do(ctx context.Context, t *http.Transport, request *http.Request) {
	defer close(s.over)
	defer s.run.Left.InFlight.Return(1)
	select {
	case <-s.start:
	case <-ctx.Done():
		s.fail(ctx, ctx.Err())
		return
	}
	s.call.Start()
	defer s.call.End()
	user := &dial.User{MayAct: s.mayAct, Lost: s.run.Lost, Closed: func() {
		s.up.Break(capability.Fail(abi.ErrUnavailable, "%s: the connection was closed before the end of the request", s.origin))
	}}
	var conn *dial.Conn
	request = request.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			conn = dial.Of(info.Conn)
			conn.Use(user)
			s.call.Connect()
		},
	}))
	if err := s.setBody(request); err != nil {
		s.fail(ctx, err)
		return
	}
	if err := s.run.MayAct(); err != nil {
		s.fail(ctx, err)
		return
	}
	began := time.Now()
	response, err := t.RoundTrip(request)
	s.took = time.Since(began) - time.Duration(s.idle.Load())
	defer func() { s.run.Usage.Took(name, s.address, s.took) }()
	if err == nil {
		err = s.receive(ctx, response)
	}
	if err != nil {
		s.fail(ctx, err)
		return
	}
	conn.Leave(user)
}

// mayAct is called before each write to the connection, while it is used for the request.
func (s *stream) mayAct() error {
	err := s.run.MayAct()
	if err != nil {
		s.stop(err) // otherwise net/http retries on another connection
	}
	return err
}

// setBody gives the request what the guest writes.
func (s *stream) setBody(request *http.Request) error {
	request.ContentLength = s.length
	if !s.whole {
		request.Body = body{s}
		return nil
	}
	if s.length == 0 {
		return nil
	}
	all := s.up.All()
	if int64(len(all)) != s.length {
		return errors.New("the body is not whole") // the guest has closed the handle
	}
	// It can be sent again if nothing was written to a stale connection.
	request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(all)), nil }
	request.Body, _ = request.GetBody()
	return nil
}

// body is read by the transport while the guest writes.
type body struct{ s *stream }

func (b body) Read(p []byte) (int, error) {
	began := time.Now()
	n, err := b.s.up.Read(p)
	b.s.idle.Add(int64(time.Since(began)))
	if refused := b.s.run.MayAct(); refused != nil {
		return 0, refused
	}
	return n, err
}

func (b body) Close() error {
	b.s.up.Break(capability.Fail(abi.ErrUnavailable, "%s: the server has answered before the end of the request; nothing more of it is sent", b.s.origin))
	return nil
}

// receive reads the response to its end.
func (s *stream) receive(ctx context.Context, response *http.Response) error {
	defer response.Body.Close()
	if response.StatusCode == http.StatusSwitchingProtocols {
		return errors.New("the server changes the protocol, which the request did not ask for")
	}
	s.mu.Lock()
	s.status, s.headers = response.StatusCode, s.listOf(response.Header)
	s.call.Answer(s.status)
	s.call.Transfer(max(s.length, 0), 0)
	asked := s.asked
	s.mu.Unlock()
	if asked {
		s.notify()
	}
	read := func(p []byte) (int, error) {
		began := time.Now()
		n, err := response.Body.Read(p)
		s.took += time.Since(began)
		if err != nil && err != io.EOF {
			err = s.failure(ctx, err)
			s.call.Fail(err) // before the guest can know and close the request
		}
		return n, err
	}
	count := func(n int) error {
		if !s.run.Left.Received.Take(int64(n)) {
			return capability.Fail(abi.ErrQuota, "%s: the run may receive %d bytes, after decompression, and has received %d before", s.origin, s.run.Left.Received.Limit(), s.run.Left.Received.Used())
		}
		s.run.Usage.Add(name, func(c *abi.OutsideCount) { c.Received += int64(n) })
		s.call.Transfer(0, int64(n))
		return nil
	}
	for {
		if _, err := s.down.Fill(read, count); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// listOf is a list of names and values, sorted by name.
func (s *stream) listOf(all http.Header) string {
	var names []string
	for n := range all {
		names = append(names, n)
	}
	slices.Sort(names)
	var list []byte
	for _, n := range names {
		for _, v := range all[n] {
			list = abi.AppendList(list, s.run.Redacted(n), s.run.Redacted(v))
		}
	}
	return string(list)
}

// fail ends the parts of the stream that the request did not reach.
func (s *stream) fail(ctx context.Context, err error) {
	err = s.failure(ctx, err)
	s.call.Fail(err)
	if s.status == 0 {
		s.run.Usage.Failed(name, s.address)
	}
	s.stop(err)
	s.up.Break(err)
	s.down.End(err)
	s.mu.Lock()
	s.err = err
	asked := s.asked
	s.mu.Unlock()
	if asked {
		s.notify()
	}
}

// failure turns an error into one for the guest.
func (s *stream) failure(ctx context.Context, err error) error {
	if f := dial.Failure(ctx, s.run, err, "http: "+s.origin); f != nil {
		return f
	}
	fail := func(code abi.Code, format string, args ...any) error {
		return capability.Fail(code, "http: "+s.origin+": "+format, args...)
	}
	var connecting *unconnected
	early := errors.As(err, &connecting)
	var slow net.Error
	if errors.As(err, &slow) && slow.Timeout() {
		if early {
			return fail(abi.ErrTimeout, "no connection within %s", s.in.quotas.Connect)
		}
		return fail(abi.ErrTimeout, "no response within %s", s.in.quotas.FirstByte)
	}
	text := words.ClipTo(err.Error(), maxReason)
	if strings.Contains(text, "response headers exceeded") { // net/http has no type for it
		return fail(abi.ErrTooLarge, "the head of the response has more than %d bytes", abi.MaxHead)
	}
	if strings.HasPrefix(text, "readLoopPeekFailLocked") {
		text = "the server sent what was not asked for"
	}
	if early {
		return fail(abi.ErrUnavailable, "no connection: %s", text)
	}
	return fail(abi.ErrUnavailable, "%s", text)
}
