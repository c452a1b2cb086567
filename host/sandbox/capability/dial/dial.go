// Package dial makes the connections of a job: only to granted addresses, with TLS if required, and so that
// nothing is written after a run has lost its item.
package dial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/capability"
	"github.com/wasmjob/wasmjob/internal/address"
)

// Options apply to all connections.
type Options struct {
	// Connect bounds resolving, connecting and TLS together.
	Connect time.Duration
	// Resolver is nil for the system's.
	Resolver *net.Resolver
}

// Target is a connection's destination, and the settings of its grant.
type Target struct {
	Host string // a name, or an address without brackets
	Port uint16
	// Private allows addresses that are not public.
	Private bool
	// CA, Cert and Key are the paths of PEM files; empty: the system's authorities,
	// no certificate of the client.
	CA, Cert, Key string
}

// Dialer makes connections. It is safe for concurrent use.
type Dialer struct {
	o Options

	mu     sync.Mutex
	closed bool
	open   map[*entry]struct{}
	joined sync.WaitGroup // of open
}

// entry is a connection, or an attempt to make one.
type entry struct{ end func() }

// New makes a Dialer. The caller ends it with Close.
func New(o Options) *Dialer { return &Dialer{o: o, open: map[*entry]struct{}{}} }

// errClosed is the error of a Dialer after Close.
var errClosed = errors.New("the job's connections are closed")

// Close ends all connections, and returns when none is left.
func (d *Dialer) Close() {
	d.mu.Lock()
	d.closed = true
	var ends []func()
	for e := range d.open {
		ends = append(ends, e.end)
	}
	d.mu.Unlock()
	for _, end := range ends {
		end()
	}
	d.joined.Wait()
}

func (d *Dialer) add(e *entry) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.open[e] = struct{}{}
	d.joined.Add(1)
	return true
}

func (d *Dialer) remove(e *entry) {
	d.mu.Lock()
	delete(d.open, e)
	d.mu.Unlock()
	d.joined.Done()
}

// TCP connects. user may be nil; see [Conn.Use].
func (d *Dialer) TCP(ctx context.Context, t Target, user *User) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.o.Connect)
	defer cancel()
	return d.tcp(ctx, cancel, t, user)
}

func (d *Dialer) tcp(ctx context.Context, cancel context.CancelFunc, t Target, user *User) (*Conn, error) {
	try := &entry{end: cancel}
	if !d.add(try) {
		return nil, errClosed
	}
	defer d.remove(try)
	check := address.Control(t.Private, t.Port)
	dialer := net.Dialer{Resolver: d.o.Resolver, ControlContext: func(ctx context.Context, network, at string, c syscall.RawConn) error {
		if err := check(ctx, network, at, c); err != nil {
			return err
		}
		return bound(c)
	}}
	raw, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(t.Host, strconv.Itoa(int(t.Port))))
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: raw}
	c.Use(user)
	socket, ok := raw.(syscall.Conn)
	if !ok {
		return nil, errors.Join(errors.ErrUnsupported, raw.Close())
	}
	if c.raw, err = socket.SyscallConn(); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	made := &entry{end: func() { _ = c.Close() }} // it is closed either way
	c.closed = sync.OnceValue(func() error {
		defer d.remove(made)
		return c.close()
	})
	if !d.add(made) {
		_ = raw.Close()
		return nil, errClosed
	}
	return c, nil
}

// TLS connects and verifies the server's certificate. protocols are offered by ALPN.
func (d *Dialer) TLS(ctx context.Context, t Target, user *User, protocols ...string) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.o.Connect)
	defer cancel()
	config, err := t.config()
	if err != nil {
		return nil, err
	}
	config.NextProtos = protocols
	c, err := d.tcp(ctx, cancel, t, user)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(c, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = c.Close() // the handshake's error is reported
		if ctx.Err() != nil {
			err = ctx.Err() // not the error of the closed connection
		}
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return secure, nil
}

// config reads the target's files each time, because they may be replaced while the host runs. The suites are
// Go's defaults, including those with CBC, since guests may talk to old servers.
func (t Target) config() (*tls.Config, error) {
	c := &tls.Config{ServerName: t.Host, MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("the granted authorities: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("the granted authorities: %s has no certificate", t.CA)
		}
	}
	if t.Cert != "" {
		own, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("the granted client certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{own}
	}
	return c, nil
}

// User is the run that uses a connection. All of its functions are set.
type User struct {
	// MayAct is called before each write.
	MayAct func() error
	// Lost reports whether data that the system has not sent when the connection is closed must be dropped.
	Lost func() bool
	// Closed is called when the connection is closed, by whichever side.
	Closed func()
}

// Conn is a connection that asks its user before each write.
type Conn struct {
	net.Conn
	raw    syscall.RawConn // of the same socket
	user   atomic.Pointer[User]
	closed func() error
}

// Of returns the Conn below a connection that a Dialer made.
func Of(c net.Conn) *Conn {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	of, _ := c.(*Conn)
	return of
}

// Use sets who uses the connection from now on; nil: no run.
func (c *Conn) Use(u *User) { c.user.Store(u) }

// Leave ends the use, unless another run uses the connection already.
func (c *Conn) Leave(u *User) { c.user.CompareAndSwap(u, nil) }

func (c *Conn) refused() error {
	if u := c.user.Load(); u != nil {
		return u.MayAct()
	}
	return nil
}

// Write implements net.Conn. It asks again each time it has waited for room: while the process was halted the
// item may have gone to another host.
func (c *Conn) Write(b []byte) (int, error) { return c.write(b, true) }

// TryWrite writes as much as the system accepts at once, which may be nothing. It asks as Write does. It waits
// for a Write in progress.
func (c *Conn) TryWrite(b []byte) (int, error) { return c.write(b, false) }

func (c *Conn) write(b []byte, wait bool) (int, error) {
	n := 0
	var failed error
	err := c.raw.Write(func(fd uintptr) (done bool) {
		for n < len(b) {
			if failed = c.refused(); failed != nil {
				return true
			}
			k, err := writeNow(fd, b[n:])
			n += max(k, 0)
			if errors.Is(err, syscall.EAGAIN) {
				return !wait // if false, it is called again when there is room
			}
			if err != nil && !errors.Is(err, syscall.EINTR) {
				failed = &net.OpError{Op: "write", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError("write", err)}
				return true
			}
		}
		return true
	})
	if failed != nil {
		err = failed
	}
	return n, err
}

// CloseWrite tells the other side that nothing more follows.
func (c *Conn) CloseWrite() error {
	if err := c.refused(); err != nil {
		return err
	}
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Close implements net.Conn.
func (c *Conn) Close() error { return c.closed() }

func (c *Conn) close() error {
	u := c.user.Load()
	if tcp, ok := c.Conn.(*net.TCPConn); ok && u != nil && u.Lost() {
		_ = tcp.SetLinger(0) // fails if the other side has closed it
	}
	err := c.Conn.Close()
	if u != nil {
		u.Closed()
	}
	return err
}

// Failure turns an error of a connection into one for the guest, if the other side is not to blame; otherwise
// it returns nil. place is the beginning of the message.
func Failure(ctx context.Context, r *capability.Run, err error, place string) error {
	var f *capability.Failure
	if errors.As(context.Cause(ctx), &f) || errors.As(err, &f) {
		return f
	}
	if refused := r.MayAct(); refused != nil {
		return refused
	}
	if ctx.Err() != nil {
		return capability.Fail(abi.ErrCancelled, "the time of the run is up")
	}
	var refused *address.Refused
	if errors.As(err, &refused) {
		return capability.Fail(abi.ErrDenied, "%s: %v", place, refused)
	}
	return nil
}
