package sdktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"

	"github.com/wasmjob/wasmjob/abi"
)

// room is how much of a body, or of what a connection carries, waits on its way.
const room = 64 << 10

// stream is what a handle stands for. All fields but the first four are the lock's of
// outside. The guest's calls do not block; goroutines, the pumps, carry what it writes
// on and what comes to it.
type stream struct {
	o      *outside
	id     int32
	ctx    context.Context
	cancel context.CancelFunc

	waiting  bool // a call was answered with ErrAgain, and nothing has changed since
	closed   bool
	finished bool // the guest writes nothing more
	asked    bool // the guest wants the response

	conn      net.Conn      // of a connection
	connected bool          // or a request, which takes a body from the start
	sending   chan struct{} // closed when what the guest has written to a connection is sent
	sent      []byte        // by the guest, and not carried on yet
	received  []byte        // and not read yet
	ended     bool          // nothing more will be received

	status  int // of a response
	headers []byte

	code   abi.Code // of a failure, with its reason
	failed string
}

// read, write and head are calls of the guest, with the lock held.

func (s *stream) read(p []byte) int32 {
	switch {
	case len(p) == 0:
		return 0
	case len(s.received) > 0:
		n := copy(p, s.received)
		s.received = s.received[n:]
		s.o.changed.Broadcast()
		return int32(n)
	case s.code != 0:
		return int32(s.code)
	case s.ended:
		return 0
	}
	return int32(abi.ErrAgain)
}

func (s *stream) write(p []byte) int32 {
	n := min(len(p), room-len(s.sent))
	switch {
	case s.code != 0:
		return int32(s.code)
	case s.finished:
		s.failed = "nothing can be written after finish"
		return int32(abi.ErrInvalid)
	case !s.connected, n == 0 && len(p) > 0:
		return int32(abi.ErrAgain)
	}
	s.sent = append(s.sent, p[:n]...)
	s.o.changed.Broadcast()
	return int32(n)
}

func (s *stream) head(answer func() int32) int32 {
	if !s.asked {
		s.asked = true
		s.o.changed.Broadcast()
	}
	switch {
	case s.status != 0:
		return answer()
	case s.code != 0:
		return int32(s.code)
	}
	return int32(abi.ErrAgain)
}

// change is what a pump does to the stream: who waits for it may go on.
func (s *stream) change(do func()) {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	do()
	s.o.changed.Broadcast()
	if s.waiting {
		s.waiting = false
		s.o.ready = append(s.o.ready, s)
		s.o.wakeUp()
	}
}

func (s *stream) fail(code abi.Code, format string, args ...any) {
	s.change(func() { s.code, s.failed = code, fmt.Sprintf(format, args...) })
}

var errStreamClosed = errors.New("the job has closed it")

// Read is for a pump: it takes what the guest has written.
func (s *stream) Read(p []byte) (n int, err error) {
	s.o.mu.Lock()
	for len(s.sent) == 0 && !s.finished && !s.closed {
		s.o.changed.Wait()
	}
	closed := s.closed
	s.o.mu.Unlock()
	if closed {
		return 0, errStreamClosed
	}
	err = io.EOF
	s.change(func() {
		if len(s.sent) > 0 {
			n, err = copy(p, s.sent), nil
			s.sent = s.sent[n:]
		}
	})
	return n, err
}

// Write is for a pump: it gives the guest what has come.
func (s *stream) Write(p []byte) (written int, err error) {
	for written < len(p) {
		s.o.mu.Lock()
		for len(s.received) >= room && !s.closed {
			s.o.changed.Wait()
		}
		closed, n := s.closed, min(len(p)-written, room-len(s.received))
		s.o.mu.Unlock()
		if closed {
			return written, errStreamClosed
		}
		s.change(func() { s.received = append(s.received, p[written:written+n]...) })
		written += n
	}
	return written, nil
}

func (i imports) NetDial(target string) int32 {
	if code := i.mayAct(); code != 0 {
		return code
	}
	o := i.out()
	i.h.mu.Lock()
	dial, allowed := i.h.dials[target], sorted(i.h.dials)
	i.h.mu.Unlock()
	switch {
	case len(allowed) == 0:
		return o.refuse(abi.ErrDenied, "%s is not granted to job %q", abi.ModuleNet, o.job)
	case len(target) > abi.MaxTarget:
		return o.refuse(abi.ErrTooLarge, "the target is longer than %d bytes", abi.MaxTarget)
	case dial == nil:
		return o.refuse(abi.ErrDenied, "net: %s is not granted to job %q: the test allows %q", target, o.job, allowed)
	}
	return o.open(func(s *stream) { o.pumps.Go(func() { s.connect(target, dial) }) })
}

// connect is the pump of a connection.
func (s *stream) connect(target string, dial func() (net.Conn, error)) {
	conn, err := dial()
	if err != nil {
		s.fail(abi.ErrUnavailable, "net: %s: %v", target, err)
		return
	}
	sending := make(chan struct{})
	s.change(func() { s.conn, s.connected, s.sending = conn, true, sending })
	if s.ctx.Err() != nil { // it was closed before there was a connection
		conn.Close()
		return
	}
	s.o.pumps.Go(func() {
		defer close(sending)
		if _, err := io.Copy(conn, s); err != nil {
			s.fail(abi.ErrUnavailable, "net: %s: %v", target, err)
		} else if half, ok := conn.(interface{ CloseWrite() error }); ok {
			half.CloseWrite()
		}
	})
	if _, err := io.Copy(s, conn); err != nil {
		s.fail(abi.ErrUnavailable, "net: %s: %v", target, err)
		return
	}
	s.change(func() { s.ended = true })
}

func (i imports) HTTPStatus(handle int32) int32 {
	return i.out().do(handle, func(s *stream) int32 {
		return s.head(func() int32 { return int32(s.status) })
	})
}

func (i imports) HTTPHeaders(handle int32, buf []byte) int32 {
	return i.out().do(handle, func(s *stream) int32 {
		return s.head(func() int32 { return give(buf, s.headers) })
	})
}

func (i imports) HTTPOpen(head []byte) int32 {
	if code := i.mayAct(); code != 0 {
		return code
	}
	o := i.out()
	list, err := abi.ParseList(head)
	switch {
	case len(head) > abi.MaxHead:
		return o.refuse(abi.ErrTooLarge, "http: the head has %d bytes, at most %d are allowed", len(head), abi.MaxHead)
	case err != nil, len(list) < 2, len(list)%2 != 0:
		return o.refuse(abi.ErrInvalid, "http: the head is not a list of method, URL, and a name and a value for each header")
	}
	req, err := http.NewRequest(list[0], list[1], nil)
	if err != nil {
		return o.refuse(abi.ErrInvalid, "http: %v", err)
	}
	trip, reason := i.h.route(req.Method, req.URL)
	if trip == nil {
		return o.refuse(abi.ErrDenied, "%s", reason)
	}
	req.ContentLength = -1
	for pair := range slices.Chunk(list[2:], 2) {
		name := http.CanonicalHeaderKey(pair[0])
		value, err := i.h.withSecrets(pair[1])
		switch {
		case err != nil:
			return o.refuse(abi.ErrDenied, "http: %v", err)
		case slices.Contains([]string{"Host", "Connection", "Transfer-Encoding", "Te", "Trailer", "Upgrade", "Keep-Alive", "Expect"}, name):
			return o.refuse(abi.ErrInvalid, "the header %s is set by the host: leave it out", name)
		case name == "Content-Length":
			if req.ContentLength, err = strconv.ParseInt(value, 10, 64); err != nil || req.ContentLength < 0 {
				return o.refuse(abi.ErrInvalid, "Content-Length is %q, which is no number of bytes", value)
			}
		default:
			req.Header.Add(name, value)
		}
	}
	return o.open(func(s *stream) {
		o.sent++
		i.h.addHeaders(req.Header, o.sent)
		s.connected = true
		o.pumps.Go(func() { s.request(req.WithContext(s.ctx), trip) })
	})
}

// request is the pump of a request.
func (s *stream) request(req *http.Request, trip http.RoundTripper) {
	// Until it is known whether there is a body.
	s.o.mu.Lock()
	for len(s.sent) == 0 && !s.finished && !s.asked && !s.closed {
		s.o.changed.Wait()
	}
	whole, size := s.finished, len(s.sent)
	s.o.mu.Unlock()
	if whole && req.ContentLength < 0 {
		req.ContentLength = int64(size)
	}
	if size > 0 || !whole {
		req.Body = io.NopCloser(s)
	}
	resp, err := trip.RoundTrip(req)
	if err != nil {
		s.fail(abi.ErrUnavailable, "http: %s://%s: %v", req.URL.Scheme, req.URL.Host, err)
		return
	}
	defer resp.Body.Close()
	var headers []byte
	for _, name := range sorted(resp.Header) {
		for _, value := range resp.Header[name] {
			headers = abi.AppendList(headers, name, value)
		}
	}
	s.change(func() { s.status, s.headers = cmp.Or(resp.StatusCode, http.StatusOK), headers })
	if _, err := io.Copy(s, resp.Body); err != nil {
		s.fail(abi.ErrUnavailable, "http: %s://%s: body: %v", req.URL.Scheme, req.URL.Host, err)
		return
	}
	s.change(func() { s.ended = true })
}
