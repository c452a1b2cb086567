package database

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/test/mariadbserver"
	"github.com/wasmjob/wasmjob/test/pgserver"
)

// everywhere runs a test on each database.
func everywhere(t *testing.T, test func(t *testing.T, fresh func(*testing.T) (url, credentials string))) {
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		test(t, sqliteURL)
	})
	servers(t, test)
}

// shared are the servers of this package's tests. Each test has databases of its own there.
var shared struct {
	postgres server[*pgserver.Server]
	mariaDB  server[*mariadbserver.Server]
	names    atomic.Int64 // of databases
}

// server is one that the first test which wants it starts.
type server[S io.Closer] struct {
	once    sync.Once
	started S
	err     error
}

// get returns the server. Where it is not installed the test is skipped, but never in CI:
// .ci/setup installs it.
func (s *server[S]) get(t *testing.T, start func(context.Context) (S, error), missing error) S {
	t.Helper()
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		s.started, s.err = start(ctx)
	})
	if errors.Is(s.err, missing) && os.Getenv("CI") == "" {
		t.Skip(s.err, "; make setup does it")
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.started
}

// end closes the server if there is one.
func (s *server[S]) end() (err error) {
	s.once.Do(func() { s.err = errors.New("the tests are over") })
	if s.err == nil {
		err = s.started.Close()
	}
	return err
}

// tests are all of the package; the servers end with them.
type tests struct{ *testing.M }

func (m tests) Run() int {
	code := m.M.Run()
	if err := errors.Join(shared.postgres.end(), shared.mariaDB.end()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

// servers runs a test on each server.
func servers(t *testing.T, test func(t *testing.T, fresh func(*testing.T) (url, credentials string))) {
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		start := func(ctx context.Context) (*pgserver.Server, error) { return pgserver.Start(ctx, pgserver.Options{}) }
		test(t, onPostgres(shared.postgres.get(t, start, pgserver.ErrNotInstalled)))
	})
	t.Run("MariaDB", func(t *testing.T) {
		t.Parallel()
		test(t, onMariaDB(shared.mariaDB.get(t, mariadbserver.Start, mariadbserver.ErrNotInstalled)))
	})
}

// await waits until the condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); !holds(); {
		if time.Now().After(end) {
			t.Fatalf("still no %s after a minute", what)
		}
		<-tick.C
	}
}

// messages are the reasons of all events, oldest first.
func messages(t *testing.T, s *Store) []string {
	t.Helper()
	var list []string
	f := history.Filter{Limit: history.MaxLimit, Oldest: true}
	for {
		page, err := s.Events(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Records {
			list = append(list, e.Reason)
		}
		if f.After = page.Next; f.After == "" {
			return list
		}
	}
}

// number is an event that says its number.
func number(n int) event.Event {
	return event.Event{Time: time.Now(), Kind: event.JobChanged, Host: "h", Job: "j", Reason: fmt.Sprint(n)}
}

// inOrder checks that all events from 0 on are there, once and in their order.
func inOrder(t *testing.T, s *Store, want int) {
	t.Helper()
	got := messages(t, s)
	for i, m := range got {
		if m != fmt.Sprint(i) {
			t.Fatalf("event %d is %s; %d of %d are there", i, m, len(got), want)
		}
	}
	if len(got) != want {
		t.Fatalf("%d events are there, want %d", len(got), want)
	}
}

// aRun reports a run of one item in a fire of its own.
func aRun(s history.Store, job, host string, at time.Time, outcome abi.Outcome) {
	item := 0
	e := event.Event{Time: at, Kind: event.FireStarted, Host: host, Job: job, Instant: at, Source: abi.SourceSchedule, Items: []int{0}, Total: 1}
	s.AddEvent(e)
	e.Kind, e.Item, e.Items, e.RunID, e.Fence, e.Attempt = event.ItemStarted, &item, nil, job+"/"+at.UTC().Format("2006-01-02T15:04:05.000Z")+"/0", 1, 1
	s.AddEvent(e)
	s.AddLine(history.Line{Time: at, Job: job, RunID: e.RunID, Host: host, Message: "line of " + e.RunID})
	e.Kind, e.Time, e.Outcome, e.Duration = event.ItemEnded, at.Add(time.Second), outcome, time.Second
	if outcome != abi.OutcomeOK {
		e.Reason = "failed"
	}
	s.AddEvent(e)
	e.Kind, e.Item, e.Items, e.RunID, e.Fence, e.Attempt, e.Reason = event.FireEnded, nil, []int{0}, "", 0, 0, ""
	s.AddEvent(e)
}

// proxy stands before a server and does harm.
type proxy struct {
	address string
	target  string
	l       net.Listener
	done    sync.WaitGroup
	refuse  atomic.Bool
	delay   atomic.Int64 // of each answer

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{address: l.Addr().String(), target: target, l: l, conns: make(map[net.Conn]bool)}
	p.done.Go(p.run)
	t.Cleanup(func() {
		l.Close()
		p.cut()
		p.done.Wait()
	})
	return p
}

func (p *proxy) run() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		if p.refuse.Load() {
			c.Close()
			continue
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			c.Close()
			continue
		}
		p.mu.Lock()
		p.conns[c], p.conns[server] = true, true
		p.mu.Unlock()
		p.done.Go(func() { p.pass(server, c, false) })
		p.done.Go(func() { p.pass(c, server, true) })
	}
}

// pass passes bytes on; answers come late.
func (p *proxy) pass(to, from net.Conn, answers bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if d := time.Duration(p.delay.Load()); d > 0 && answers {
			timer := time.NewTimer(d)
			<-timer.C
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if errors.Is(err, io.EOF) || err != nil {
			return
		}
	}
}

// cut ends all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
}

// through is a URL with the proxy's address.
func (p *proxy) through(url string) string { return strings.Replace(url, p.target, p.address, 1) }

// addressOf is HOST:PORT of a URL.
func addressOf(url string) string {
	_, rest, _ := strings.Cut(url, "@")
	address, _, _ := strings.Cut(rest, "/")
	return address
}

// count asks for one number.
func count(t *testing.T, s *Store, statement string) (n int) {
	t.Helper()
	if err := s.db.QueryRowContext(context.WithoutCancel(t.Context()), statement).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
