package zookeeper_test

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
)

// lag passes connections on to a server, each byte by so much later.
type lag struct {
	net.Listener
	each atomic.Int64 // one way
	over chan struct{}
	done sync.WaitGroup
}

func lagging(t *testing.T, target string) *lag {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &lag{Listener: l, over: make(chan struct{})}
	var mu sync.Mutex
	var open []net.Conn
	p.done.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			mu.Lock()
			open = append(open, client, server)
			mu.Unlock()
			p.done.Go(func() { p.pass(server, client) })
			p.done.Go(func() { p.pass(client, server) })
		}
	})
	t.Cleanup(func() {
		close(p.over)
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		p.done.Wait()
	})
	return p
}

func (p *lag) pass(to, from net.Conn) {
	type chunk struct {
		due  time.Time
		data []byte
	}
	late := make(chan chunk, 4096)
	p.done.Go(func() {
		for c := range late {
			select {
			case <-time.After(time.Until(c.due)):
			case <-p.over:
			}
			if _, err := to.Write(c.data); err != nil {
				_ = from.Close()
			}
		}
		_ = to.Close()
	})
	defer close(late)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		late <- chunk{time.Now().Add(time.Duration(p.each.Load())), slices.Clone(buf[:n])}
	}
}

// lagTimeout is the session timeout of the tests with servers that lag.
const lagTimeout = 12 * time.Second

// twoWays is a session with a server that it reaches in two ways.
func twoWays(t *testing.T) (rc *zookeeper.Session, here, there *lag) {
	t.Helper()
	e := shared.get(t, 1)
	here, there = lagging(t, e.Addr(0)), lagging(t, e.Addr(0))
	rc = dial(t, zookeeper.Options{Connect: here.Addr().String() + "," + there.Addr().String(), SessionTimeout: lagTimeout})
	commit(t, rc, registry.CreateEphemeral(fresh(t, rc)+"/e", nil))
	return rc, here, there
}

// keeps checks that the session is not in doubt for two timeouts, and how many
// connections it takes.
func keeps(t *testing.T, rc *zookeeper.Session, connections uint64) {
	t.Helper()
	select {
	case was := <-levels(rc):
		t.Errorf("the session was given up: %v", was)
	case <-time.After(2 * lagTimeout):
	}
	if n := rc.About().Connections; n != connections {
		t.Errorf("%d connections, want %d", n, connections)
	}
}

// TestSlowServer: a session stays with a server that is slow, if no other gives a
// sign of life before it answers: each answer proves that the session lives.
func TestSlowServer(t *testing.T) {
	t.Parallel()
	rc, here, there := twoWays(t)
	here.each.Store(int64(lagTimeout / 10)) // T/5 for an answer: more than T/6
	there.each.Store(int64(lagTimeout / 10))
	keeps(t, rc, 1)
	commit(t, rc, registry.Ensure(fresh(t, rc)))
}

// TestFasterServer: a session leaves a server that is silent for one that is not.
func TestFasterServer(t *testing.T) {
	t.Parallel()
	rc, here, there := twoWays(t)
	has := here
	if rc.About().Server == there.Addr().String() {
		has = there
	}
	has.each.Store(int64(time.Hour))
	keeps(t, rc, 2)
}
