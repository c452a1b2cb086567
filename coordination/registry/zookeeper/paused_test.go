package zookeeper_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// stoppable is a boot clock that can stand still, as that of a virtual machine
// which its hypervisor has paused.
type stoppable struct {
	real            func() time.Duration
	stopped, behind atomic.Int64 // when it was stopped, 0 if it goes; how far it is behind
}

func (s *stoppable) now() time.Duration {
	if at := s.stopped.Load(); at != 0 {
		return time.Duration(at)
	}
	return s.real() - time.Duration(s.behind.Load())
}

func (s *stoppable) stop() { s.stopped.Store(int64(s.now())) }

func (s *stoppable) goOn() {
	s.behind.Store(int64(s.real()) - s.stopped.Load())
	s.stopped.Store(0)
}

// TestPausedMachine: a host whose machine was paused with all its clocks cannot see
// that time has passed. It learns that its session is over from the first word that
// it hears; if it hears none, by its clock, as if it had not been paused. Nothing
// that it commits in between takes effect.
func TestPausedMachine(t *testing.T) {
	t.Parallel()
	e := shared.get(t, 1)
	const timeout = 6 * time.Second
	for name, reachable := range map[string]bool{"registry in reach": true, "cut off since": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := dial(t, zookeeper.Options{Connect: e.Connect()})
			root := fresh(t, other)
			p := proxy(t, e.Addr(0))
			clock := &stoppable{real: zookeeper.BootClock()}
			rc := dial(t, zookeeper.Options{Connect: p.Addr(), SessionTimeout: timeout}.WithClock(clock.now))
			commit(t, rc, registry.CreateEphemeral(root+"/e", nil))
			clock.stop()
			p.Hold(zkserver.ToServer | zkserver.ToClient)
			gone(t, other, root+"/e")
			if !rc.Trusted() {
				t.Fatal("the session was in doubt while its clock stood still")
			}
			if reachable {
				p.Heal()
			} else {
				p.Cut()
			}
			clock.goOn()
			resumed := time.Now()
			wait(t, rc.Lost(), "the loss")
			limit := timeout / 12 * 2
			if !reachable {
				limit = timeout / 3 * 2
			}
			if took := time.Since(resumed); took > limit+time.Second {
				t.Errorf("the session was lost %s after the machine went on, want %s at most", took, limit)
			} else {
				t.Logf("lost after %s", took)
			}
			if _, err := rc.Commit(t.Context(), registry.Create(root+"/late", nil)); err == nil {
				t.Error("a commit took effect after the session's end")
			}
		})
	}
}
