// Package pgserver runs a real PostgreSQL server on this machine, for tests and for
// make demo. It has a directory and a port of its own, and goes with the process that
// started it.
//
// Debian's package postgresql must be installed. Its server refuses to run as root, so
// for root it runs as the package's user postgres.
package pgserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/wasmjob/wasmjob/test/child"
)

// ErrNotInstalled is why a server cannot be started on this machine.
var ErrNotInstalled = errors.New("PostgreSQL is not installed (apt-get install postgresql)")

const (
	// User and Database are whom clients log in as, and where.
	User     = "wasmjob"
	Database = "postgres"

	binaries = "/usr/lib/postgresql/*/bin" // of Debian, which has no initdb in PATH
	glance   = 50 * time.Millisecond
)

// Options say which server to start.
type Options struct {
	// Port is 0 for any that is free.
	Port int
	// Durable has the server write to the disk before it answers. Others lose data when
	// the machine ends, and not when the server does.
	Durable bool
}

// Server is a server that runs. Its methods may be called from any goroutine.
type Server struct {
	Port     int
	Password string

	dir, bin string
	owner    *owner
	cmd      *exec.Cmd
	exited   chan struct{}
}

// Start starts a server and waits until it answers, at most until ctx is done; ctx has
// no influence afterwards.
func Start(ctx context.Context, o Options) (*Server, error) {
	s := &Server{Port: o.Port, Password: rand.Text(), exited: make(chan struct{})}
	var err error
	if s.bin, err = installed(); err != nil {
		return nil, err
	}
	if s.owner, err = unprivileged(); err != nil {
		return nil, fmt.Errorf("pgserver: %w", err)
	}
	if s.dir, err = os.MkdirTemp("", "pgserver-"); err != nil {
		return nil, fmt.Errorf("pgserver: %w", err)
	}
	if err := s.start(ctx, o); err != nil {
		log, _ := os.ReadFile(s.path("log")) // there may be none yet
		return nil, errors.Join(fmt.Errorf("pgserver: %w\n%s", err, log), os.RemoveAll(s.dir))
	}
	return s, nil
}

// installed finds the directory with the newest server.
func installed() (string, error) {
	if file, err := exec.LookPath("initdb"); err == nil {
		if file, err = filepath.EvalSymlinks(file); err == nil {
			return filepath.Dir(file), nil
		}
	}
	found, err := filepath.Glob(filepath.Join(binaries, "initdb"))
	if err != nil || len(found) == 0 {
		return "", ErrNotInstalled
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), nil
}

// version is the number in /usr/lib/postgresql/15/bin/initdb.
func version(file string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(file)))) // 0 is the oldest
	return n
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

func (s *Server) start(ctx context.Context, o Options) error {
	if err := os.WriteFile(s.path("password"), []byte(s.Password+"\n"), 0o600); err != nil {
		return err
	}
	if err := s.owner.own(s.dir, s.path("password")); err != nil {
		return err
	}
	initdb := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), "-D", s.path("data"), "-U", User, "--pwfile", s.path("password"),
		"--auth", "scram-sha-256", "--encoding", "UTF8", "--no-locale", "--no-sync")
	initdb.Dir = s.dir
	s.owner.run(initdb)
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	if s.Port == 0 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		s.Port = l.Addr().(*net.TCPAddr).Port
		if err := l.Close(); err != nil {
			return err
		}
	}
	log, err := os.Create(s.path("log"))
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	args := []string{"-D", s.path("data"), "-p", strconv.Itoa(s.Port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="}
	if !o.Durable {
		args = append(args, "-c", "fsync=off")
	}
	s.cmd = exec.Command(filepath.Join(s.bin, "postgres"), args...)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = s.dir, log, log
	s.owner.run(s.cmd)
	if err := child.Start(s.cmd, func(error) { close(s.exited) }); err != nil { // how it ends is in its state
		return err
	}
	return s.await(ctx)
}

// await waits until the server answers.
func (s *Server) await(ctx context.Context) error {
	retry := time.NewTicker(glance)
	defer retry.Stop()
	for {
		if _, err := s.Query(ctx, "select 1"); err == nil {
			return nil
		}
		select {
		case <-retry.C:
		case <-s.exited:
			return fmt.Errorf("it has ended: %s", s.cmd.ProcessState)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), s.stop())
		}
	}
}

// URL is how clients reach the server, without the password.
func (s *Server) URL() string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", User, s.Port, Database)
}

// Query runs SQL by psql, and returns its rows, one a line, with | between the columns.
func (s *Server) Query(ctx context.Context, sql string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", s.URL(), "-f", "-")
	cmd.Env = append(os.Environ(), "PGPASSWORD="+s.Password)
	cmd.Stdin = strings.NewReader(sql)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("psql: %w: %s", err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// Close stops the server, without waiting for its clients, and deletes its files.
func (s *Server) Close() error { return errors.Join(s.stop(), os.RemoveAll(s.dir)) }

func (s *Server) stop() error {
	err := s.cmd.Process.Signal(syscall.SIGINT)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-s.exited
	return err
}
