// Package dump answers ElasticJob's dump request: a TCP server that is asked
// for a job by one line, dump@NAME, writes what the registry holds of it as
// lines of path and value, and closes. ElasticJob's own tools ask this way.
//
// There is no password in that protocol. Addresses of servers are masked, as
// ElasticJob masks them; the rest of a job's configuration can be read by
// everyone who reaches the port.
package dump

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

const (
	// maxRequest is the longest request in bytes, its newline included: the
	// command and the longest name of a job, with some room.
	maxRequest = 512
	// maxConnections are served at once; others are closed.
	maxConnections = 8
	// requestTimeout is how long a client may take to ask, readTimeout how
	// long the registry may take, writeTimeout how long the client may take
	// to read the answer.
	requestTimeout = 5 * time.Second
	readTimeout    = 30 * time.Second
	writeTimeout   = 30 * time.Second
)

// Options say where to listen and what to read. All but Logger are needed.
type Options struct {
	// Address is an address of package net, such as 127.0.0.1:9888; port 0 is any.
	Address string
	// Namespace is the namespace whose jobs are served.
	Namespace string
	// Read reads nodes of the registry, as [registry.Center] does.
	// It is called from several goroutines.
	Read   func(ctx context.Context, queries ...registry.Query) ([]registry.Node, error)
	Logger *zap.Logger
}

// Server listens from Listen on and answers while Run runs.
type Server struct {
	opts     Options
	listener net.Listener
	slots    chan struct{}
}

// Listen takes the address.
func Listen(o Options) (*Server, error) {
	if o.Read == nil {
		return nil, errors.New("dump: nothing to read from")
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	l, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("dump port: %w", err)
	}
	return &Server{opts: o, listener: l, slots: make(chan struct{}, maxConnections)}, nil
}

// Address returns the listening address, with the chosen port if the options said 0.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Close releases the address if Run was never called.
func (s *Server) Close() error {
	if err := s.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("dump port: %w", err)
	}
	return nil
}

// Run answers requests until ctx is done, which also ends those under way, and
// returns nil; or it returns the error that ended it.
func (s *Server) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = s.listener.Close() })() // Accept reports it
	var connections sync.WaitGroup
	defer connections.Wait()
	for {
		c, err := s.listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = c.Close() // nothing was asked
			}
			return nil
		case err != nil:
			var temporary interface{ Timeout() bool }
			if errors.As(err, &temporary) && temporary.Timeout() {
				continue
			}
			return fmt.Errorf("dump port: %w", err)
		}
		select {
		case s.slots <- struct{}{}:
		default:
			_ = c.Close() // too many at once: as if nothing listened
			continue
		}
		connections.Go(func() {
			defer func() { <-s.slots }()
			s.serve(ctx, c)
		})
	}
}

// serve answers the one request of a connection.
func (s *Server) serve(ctx context.Context, c net.Conn) {
	defer func() { _ = c.Close() }() // all was written, or the client is gone
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	log := s.opts.Logger.With(zap.Stringer("from", c.RemoteAddr()))
	if err := c.SetReadDeadline(time.Now().Add(requestTimeout)); err != nil {
		return
	}
	job, err := readRequest(c)
	if err != nil {
		log.Debug("dump: not answered", zap.Error(err))
		return
	}
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	text, err := Text(reading, s.opts.Read, s.opts.Namespace, job)
	if err != nil {
		log.Warn("dump: not answered", zap.String("job", job), zap.Error(err))
		return
	}
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return
	}
	if _, err := io.WriteString(c, text); err != nil {
		log.Debug("dump: the client did not take the answer", zap.Error(err))
	}
}

// readRequest reads the line of a request and returns the job's name.
func readRequest(r io.Reader) (job string, err error) {
	line := bufio.NewReaderSize(r, maxRequest)
	text, err := line.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return "", fmt.Errorf("the request has more than %d bytes", maxRequest)
	case err != nil && !(errors.Is(err, io.EOF) && len(text) > 0):
		return "", fmt.Errorf("read the request: %w", err)
	}
	return parseRequest(string(text))
}
