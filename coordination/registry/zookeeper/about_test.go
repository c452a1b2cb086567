package zookeeper_test

import (
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

func TestAbout(t *testing.T) {
	t.Parallel()
	e := zkserver.ForTest(t, zkserver.Options{TickTime: 200 * time.Millisecond, NoSync: true})
	s, err := zookeeper.Dial(t.Context(), zookeeper.Options{Connect: e.Connect(), SessionTimeout: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(t.Context(), registry.Data("/")); err != nil {
		t.Fatal(err)
	}
	a := s.About()
	if a.ID == 0 || a.Server != e.Addr(0) || a.Timeout != 4*time.Second || a.Age < 0 || a.Age > a.Timeout || a.Connections != 1 || a.Trust != registry.TrustLive {
		t.Errorf("%+v, want a live session with %s", a, e.Addr(0))
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if a := s.About(); a.Trust != registry.TrustLost || a.Server != "" {
		t.Errorf("%+v after Close", a)
	}
}

// TestReconnects: a connection counts when the server has given it the session.
// Attempts in between do not.
func TestReconnects(t *testing.T) {
	t.Parallel()
	e := zkserver.ForTest(t, zkserver.Options{TickTime: 200 * time.Millisecond, NoSync: true})
	p, err := zkserver.NewProxy(e.Addr(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	s, err := zookeeper.Dial(t.Context(), zookeeper.Options{Connect: p.Addr(), SessionTimeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	for want := uint64(1); ; want++ {
		if _, err := s.Read(t.Context(), registry.Data("/")); err != nil {
			t.Fatal(err)
		}
		if a := s.About(); a.Connections != want {
			t.Fatalf("%+v, want %d connections that had the session", a, want)
		}
		if want == 3 {
			return
		}
		p.Cut()
		time.Sleep(time.Second) // for attempts that are accepted and closed
		p.Heal()
	}
}
