// Package net connects to servers through the host: it is the dialer that client
// libraries ask for. A guest has no sockets, so package net's own Dial fails in it.
//
// A connection goes where the operator's grants allow it, and is refused with ErrDenied
// elsewhere. Names are resolved by the host. It ends with the run of the item that has
// opened it: a pool that outlives the run in a variable finds its connections closed.
//
// While a goroutine waits for a connection the others run. Errors of the host wrap an
// sdk.Errno and say the host's reason: ErrDenied, ErrQuota (connections, bytes),
// ErrInvalid, ErrTimeout, ErrUnavailable (no connection, or it broke) and ErrCancelled
// (the item may no longer be this host's).
package net

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/internal/border"
	"github.com/wasmjob/wasmjob/sdk/internal/handle"
)

// Dial connects to an address such as db.example.com:5432. The network is tcp, tcp4 or
// tcp6; which version of IP is used is for the host to say.
func Dial(network, address string) (net.Conn, error) {
	return DialContext(context.Background(), network, address)
}

// DialContext is [Dial], given up when ctx is done. The connection itself goes on after
// ctx. It fits the options of client libraries: go-redis' Dialer, pgx's DialFunc,
// DialContext of http.Transport.
func DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return dial(ctx, "tcp://", network, address)
}

// DialTLS connects with TLS, which the host speaks: it checks the server's certificate
// against the name of the address. For protocols that begin in clear and change to TLS,
// such as PostgreSQL's, use Dial and the library's own TLS.
func DialTLS(network, address string) (net.Conn, error) {
	return DialTLSContext(context.Background(), network, address)
}

// DialTLSContext is [DialTLS], given up when ctx is done.
func DialTLSContext(ctx context.Context, network, address string) (net.Conn, error) {
	return dial(ctx, "tls://", network, address)
}

// LookupHost returns the name itself, for libraries that want to look it up before they
// dial, such as pgx with its LookupFunc: the host does it when it dials.
func LookupHost(_ context.Context, name string) ([]string, error) { return []string{name}, nil }

func dial(ctx context.Context, scheme, network, address string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: addr(address), Err: err}
	}
	switch network {
	case "tcp", "tcp4", "tcp6":
	default:
		return fail(net.UnknownNetworkError(network))
	}
	h, err := handle.Open(func() int32 { return border.NetDial(scheme + address) })
	if err != nil {
		return fail(err)
	}
	if _, err := h.Write(ctx.Done(), nil); err != nil { // until it is connected
		h.Close()
		if errors.Is(err, handle.ErrStopped) {
			err = context.Cause(ctx)
		}
		return fail(err)
	}
	return &conn{h: h, network: network, remote: addr(address), read: newDeadline(), write: newDeadline()}, nil
}

// addr is an address as it was dialled.
type addr string

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return string(a) }

// conn is a connection of the host's.
type conn struct {
	h           *handle.Handle
	network     string
	remote      addr
	read, write *deadline
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.h.Read(c.read.passed(), p)
	return n, c.error("read", err)
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.h.Write(c.write.passed(), p)
	return n, c.error("write", err)
}

// CloseWrite ends what is written: the other side reads to the end, and may still
// answer.
func (c *conn) CloseWrite() error { return c.error("close", c.h.Finish(c.write.passed())) }

// Close sends what was written before, if the other side takes it within a second.
func (c *conn) Close() error { return c.error("close", c.h.Close()) }

// LocalAddr has no meaning: the connection is the host's.
func (c *conn) LocalAddr() net.Addr { return addr("guest") }

// RemoteAddr is the address as it was dialled.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	c.read.set(t)
	c.write.set(t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.read.set(t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.write.set(t)
	return nil
}

// error words an error as package net does, so that libraries know a deadline and a
// connection that is closed.
func (c *conn) error(op string, err error) error {
	switch {
	case err == nil, err == io.EOF:
		return err
	case errors.Is(err, handle.ErrStopped), errors.Is(err, sdk.ErrTimeout):
		err = timeout{err}
	case errors.Is(err, handle.ErrClosed):
		err = net.ErrClosed
	}
	return &net.OpError{Op: op, Net: c.network, Addr: c.remote, Err: err}
}

// timeout is a deadline that has passed, or a time of the host's.
type timeout struct{ cause error }

func (t timeout) Error() string {
	if errors.Is(t.cause, handle.ErrStopped) {
		return os.ErrDeadlineExceeded.Error()
	}
	return t.cause.Error()
}

func (t timeout) Is(target error) bool { return target == os.ErrDeadlineExceeded }
func (t timeout) Unwrap() error        { return t.cause }
func (timeout) Timeout() bool          { return true }

// Temporary is what package net asks besides.
func (timeout) Temporary() bool { return true }

// deadline is a channel that is closed at a time that may be changed.
type deadline struct {
	mu      sync.Mutex
	timer   *time.Timer
	expired chan struct{}
}

func newDeadline() *deadline { return &deadline{expired: make(chan struct{})} }

// passed returns the channel. A call that waits does so by the deadline that was there
// when it began, and by each that is earlier or later.
func (d *deadline) passed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.expired
}

// set changes the time; zero is none.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.expired // the timer has fired: it is about to close the channel, or has
	}
	d.timer = nil
	select {
	case <-d.expired:
		d.expired = make(chan struct{})
	default:
	}
	if t.IsZero() {
		return
	}
	expired := d.expired
	if rest := time.Until(t); rest > 0 {
		d.timer = time.AfterFunc(rest, func() { close(expired) })
		return
	}
	close(expired)
}
