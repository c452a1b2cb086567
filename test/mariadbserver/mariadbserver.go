// Package mariadbserver runs a real MariaDB server on this machine, for tests. It has a
// directory and a port of its own, and goes with the process that started it.
//
// Debian's package mariadb-server must be installed. Its server refuses to run as root, so
// for root it runs as the package's user mysql.
package mariadbserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/wasmjob/wasmjob/test/child"
)

// ErrNotInstalled is why a server cannot be started on this machine.
var ErrNotInstalled = errors.New("MariaDB is not installed (apt-get install mariadb-server)")

const (
	// User and Database are whom clients log in as, and where.
	User     = "wasmjob"
	Database = "wasmjob"

	glance = 50 * time.Millisecond
)

// Server is a server that runs. Its methods may be called from any goroutine.
type Server struct {
	Port     int
	Password string

	dir, daemon, install, client string
	owner                        *owner
	cmd                          *exec.Cmd
	exited                       chan struct{}
}

// Start starts a server and waits until it answers, at most until ctx is done; ctx has
// no influence afterwards. It may lose data when the machine ends, and not when the
// server does.
func Start(ctx context.Context) (*Server, error) {
	s := &Server{Password: rand.Text(), exited: make(chan struct{})}
	if err := s.installed(); err != nil {
		return nil, err
	}
	var err error
	if s.owner, err = unprivileged(); err != nil {
		return nil, fmt.Errorf("mariadbserver: %w", err)
	}
	if s.dir, err = os.MkdirTemp("", "mariadb-"); err != nil {
		return nil, fmt.Errorf("mariadbserver: %w", err)
	}
	if err := s.start(ctx); err != nil {
		log, _ := os.ReadFile(s.path("log")) // there may be none yet
		return nil, errors.Join(fmt.Errorf("mariadbserver: %w\n%s", err, log), os.RemoveAll(s.dir))
	}
	return s, nil
}

// installed finds the programs. Debian has the server where only root's PATH finds it.
func (s *Server) installed() error {
	find := func(name string) string {
		if file, err := exec.LookPath(name); err == nil {
			return file
		}
		file := filepath.Join("/usr/sbin", name)
		if _, err := os.Stat(file); err != nil {
			return ""
		}
		return file
	}
	s.daemon, s.install, s.client = find("mariadbd"), find("mariadb-install-db"), find("mariadb")
	if s.daemon == "" || s.install == "" || s.client == "" {
		return ErrNotInstalled
	}
	return nil
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

func (s *Server) start(ctx context.Context) error {
	setup := fmt.Sprintf("CREATE DATABASE %s CHARACTER SET utf8mb4;\nCREATE USER '%s'@'127.0.0.1' IDENTIFIED BY '%s';\nGRANT ALL ON *.* TO '%s'@'127.0.0.1';\n",
		Database, User, s.Password, User)
	if err := os.WriteFile(s.path("setup.sql"), []byte(setup), 0o600); err != nil {
		return err
	}
	if err := s.owner.own(s.dir, s.path("setup.sql")); err != nil {
		return err
	}
	install := exec.CommandContext(ctx, s.install, "--no-defaults", "--datadir="+s.path("data"), "--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-flush-log-at-trx-commit=0", "--innodb-log-file-size=8M")
	install.Dir = s.dir
	s.owner.run(install)
	if out, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("mariadb-install-db: %w\n%s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.Port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return err
	}
	return s.launch(ctx)
}

// launch starts the daemon. The first start makes the user and the database.
func (s *Server) launch(ctx context.Context) error {
	log, err := os.OpenFile(s.path("log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	args := []string{"--no-defaults", "--datadir=" + s.path("data"), "--port=" + strconv.Itoa(s.Port), "--bind-address=127.0.0.1", "--socket=" + s.path("socket"),
		"--pid-file=" + s.path("pid"), "--skip-name-resolve", "--innodb-flush-log-at-trx-commit=0", "--innodb-log-file-size=96M", "--tmpdir=" + s.dir}
	setup := s.path("setup.sql")
	if _, err := os.Stat(setup); err == nil {
		args = append(args, "--init-file="+setup)
	}
	s.cmd = exec.Command(s.daemon, args...)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = s.dir, log, log
	s.owner.run(s.cmd)
	if err := child.Start(s.cmd, func(error) { close(s.exited) }); err != nil { // how it ended is in its state
		return err
	}
	if err := s.await(ctx); err != nil {
		return err
	}
	if err := os.Remove(setup); err != nil && !errors.Is(err, os.ErrNotExist) {
		return errors.Join(err, s.stop())
	}
	return nil
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
	return fmt.Sprintf("mysql://%s@127.0.0.1:%d/%s", User, s.Port, Database)
}

// Query runs SQL by the server's client, and returns its rows, one a line, with tabs between
// the columns.
func (s *Server) Query(ctx context.Context, sql string) (string, error) {
	cmd := exec.CommandContext(ctx, s.client, "--no-defaults", "--protocol=tcp", "--host=127.0.0.1", "--port="+strconv.Itoa(s.Port), "--user="+User, "--batch", "--skip-column-names", Database)
	cmd.Env = append(os.Environ(), "MYSQL_PWD="+s.Password)
	cmd.Stdin = strings.NewReader(sql)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("mariadb: %w: %s", err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// Close stops the server, without waiting for its clients, and deletes its files.
func (s *Server) Close() error { return errors.Join(s.stop(), os.RemoveAll(s.dir)) }

func (s *Server) stop() error {
	err := s.cmd.Process.Signal(syscall.SIGKILL)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-s.exited
	return err
}
