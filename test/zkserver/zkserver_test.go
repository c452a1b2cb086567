package zkserver

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func fast(servers int) Options {
	return Options{Servers: servers, TickTime: 200 * time.Millisecond, NoSync: true}
}

func TestStandalone(t *testing.T) {
	t.Parallel()
	e := ForTest(t, fast(1))
	if i, err := e.Leader(); err != nil || i != 0 {
		t.Errorf("leader: %d, %v", i, err)
	}
	answer, err := e.Ask(t.Context(), 0, "ruok")
	if err != nil || answer != "imok" {
		t.Errorf("ruok: %q, %v", answer, err)
	}
	if err := e.Restart(0); err == nil {
		t.Error("a server that runs was started")
	}
	addr := e.Addr(0)
	for _, end := range []func(int) error{e.Stop, e.Kill} {
		if err := end(0); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Leader(); err == nil {
			t.Error("a server that was ended leads")
		}
		if err := e.Restart(0); err != nil {
			t.Fatal(err)
		}
		if err := e.Await(t.Context(), 0); err != nil || e.Addr(0) != addr {
			t.Fatalf("back at %s, was %s: %v", e.Addr(0), addr, err)
		}
	}
}

func TestEnsemble(t *testing.T) {
	t.Parallel()
	o := fast(3)
	o.PeerProxies = true
	e := ForTest(t, o)
	first, err := e.Leader()
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Kill(first); err != nil {
		t.Fatal(err)
	}
	other := (first + 1) % 3
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		second, err := e.Leader()
		if err == nil && second != first {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("no new leader")
		}
		if err := e.Await(ctx, other); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Restart(first); err != nil {
		t.Fatal(err)
	}
	if err := e.Await(ctx, first); err != nil {
		t.Fatal(err)
	}
	if err := e.Pause(first); err != nil {
		t.Fatal(err)
	}
	for answers := true; answers; { // the last of its threads may still run
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		_, err := e.Ask(short, first, "ruok")
		cancel()
		if answers = err == nil; answers && ctx.Err() != nil {
			t.Fatal("a paused server answers")
		}
	}
	if err := e.Resume(first); err != nil {
		t.Fatal(err)
	}
	if err := e.Await(ctx, first); err != nil {
		t.Fatal(err)
	}
}

func TestWithoutZooKeeper(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := Start(t.Context(), fast(1)); err == nil || !strings.Contains(err.Error(), "apt-get install zookeeper") {
		t.Errorf("without Java: %v", err)
	}
}

func TestWrongClasspath(t *testing.T) {
	t.Setenv(classpathEnv, t.TempDir())
	if _, err := Start(t.Context(), fast(1)); err == nil || !strings.Contains(err.Error(), "QuorumPeerMain") {
		t.Errorf("without ZooKeeper: %v", err)
	}
}

// echo serves what it is sent.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func TestProxy(t *testing.T) {
	t.Parallel()
	p, err := NewProxy(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	say := func(c net.Conn) {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(c net.Conn, patience time.Duration) error {
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		_, err := c.Read(make([]byte, 1))
		return err
	}
	const long = 20 * time.Second
	c := dial()
	say(c)
	if err := hear(c, long); err != nil {
		t.Fatal(err)
	}
	for _, way := range []Direction{ToServer, ToClient, ToServer | ToClient} {
		p.Hold(way)
		say(c)
		var late net.Error
		if err := hear(c, 50*time.Millisecond); !errors.As(err, &late) || !late.Timeout() {
			t.Errorf("held %d: %v", way, err)
		}
		p.Heal()
		if err := hear(c, long); err != nil {
			t.Errorf("healed: %v", err)
		}
	}
	p.Delay(60 * time.Millisecond)
	start := time.Now()
	say(c)
	if err := hear(c, long); err != nil || time.Since(start) < 120*time.Millisecond {
		t.Errorf("delayed: %v after %v", err, time.Since(start))
	}
	p.Cut()
	if err := hear(c, long); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("cut: %v", err)
	}
	if err := hear(dial(), long); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a new connection while cut: %v", err)
	}
	p.Heal()
	c = dial()
	say(c)
	if err := hear(c, long); err != nil {
		t.Errorf("healed: %v", err)
	}
}
