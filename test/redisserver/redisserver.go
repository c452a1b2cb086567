// Package redisserver runs a real Redis server on this machine, for tests. It has a directory and
// a port of its own, remembers nothing, and goes with the process that started it.
//
// Debian's package redis-server must be installed.
package redisserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/wasmjob/wasmjob/test/child"
)

// ErrNotInstalled is why a server cannot be started on this machine.
var ErrNotInstalled = errors.New("redis-server is not installed (apt-get install redis-server)")

// Server is a server that runs. Its methods may be called from any goroutine.
type Server struct {
	Port int

	dir    string
	cmd    *exec.Cmd
	exited chan struct{}
}

// Start starts a server and waits until it accepts connections, at most until ctx is done; ctx
// has no influence afterwards.
func Start(ctx context.Context) (*Server, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, ErrNotInstalled
	}
	dir, err := os.MkdirTemp("", "redisserver-")
	if err != nil {
		return nil, fmt.Errorf("redisserver: %w", err)
	}
	s := &Server{dir: dir, exited: make(chan struct{})}
	if err := s.start(ctx, binary); err != nil {
		return nil, errors.Join(fmt.Errorf("redisserver: %w", err), os.RemoveAll(dir))
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, binary string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.Port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return err
	}
	s.cmd = exec.Command(binary, "--port", strconv.Itoa(s.Port), "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "no", "--daemonize", "no")
	out, log, err := os.Pipe()
	if err != nil {
		return err
	}
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := child.Start(s.cmd, func(error) { close(s.exited) }); err != nil {
		return errors.Join(err, out.Close(), log.Close())
	}
	if err := log.Close(); err != nil { // the child has its own
		return errors.Join(err, out.Close(), s.stop())
	}
	ready := make(chan error, 1)
	go func() { // it ends with the child
		defer out.Close()
		ready <- await(out)
		_, _ = io.Copy(io.Discard, out) // or the server would wait for it
	}()
	select {
	case err := <-ready:
		if err != nil {
			return errors.Join(err, s.stop())
		}
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), s.stop())
	}
}

// await reads the server's log until the server is ready.
func await(out io.Reader) error {
	var said []string
	for lines := bufio.NewScanner(out); lines.Scan(); said = append(said, lines.Text()) {
		if strings.Contains(lines.Text(), "Ready to accept connections") {
			return nil
		}
	}
	return fmt.Errorf("it has ended:\n%s", strings.Join(said, "\n"))
}

// Address is HOST:PORT.
func (s *Server) Address() string { return "127.0.0.1:" + strconv.Itoa(s.Port) }

// Close stops the server, and deletes its files.
func (s *Server) Close() error { return errors.Join(s.stop(), os.RemoveAll(s.dir)) }

func (s *Server) stop() error {
	err := s.cmd.Process.Signal(syscall.SIGTERM)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-s.exited
	return err
}

// TB is what ForTest needs of a testing.TB.
type TB interface {
	Helper()
	Cleanup(func())
	Skip(args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// ForTest is a server for the time of a test. Where Redis is not installed the test is skipped,
// but never in CI: .ci/setup installs it.
func ForTest(t TB) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := Start(ctx)
	if errors.Is(err, ErrNotInstalled) && os.Getenv("CI") == "" {
		t.Skip(err, "; make setup does it")
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("%v", err)
		}
	})
	return s
}
