package zookeeper_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// TestTrustCountsFromTheSending: an answer proves that the session lived when
// the question was sent, not when the answer came: the session may have ended
// while that was on its way. The clock moves only between the two.
// It kills the mutant "trust counted from the answer instead of the sending".
func TestTrustCountsFromTheSending(t *testing.T) {
	t.Parallel()
	const way = 100 * time.Millisecond
	var clock, sent atomic.Int64
	clock.Store(int64(time.Hour))
	late := make(chan time.Duration, 1000) // of the proofs after the first sync was sent
	o := zookeeper.Options{Connect: shared.get(t, 1).Addr(0), SessionTimeout: 60 * time.Second,
		Renewed: func(at, _ time.Duration) {
			if asked := time.Duration(sent.Load()); asked != 0 { // the session's beginning is a proof, too
				late <- at - asked
			}
		},
		OnOperation: func(op string, _ int) {
			if op == "sync" {
				sent.Store(clock.Load())
				clock.Add(int64(way))
			}
		}}
	dial(t, o.WithClock(func() time.Duration { return time.Duration(clock.Load()) }))
	select {
	case d := <-late:
		if d > 0 {
			t.Errorf("a proof of life counts from %s after it was asked for", d)
		}
	case <-time.After(long):
		t.Fatal("no answer to a sync")
	}
}

// TestResolveSyncsFirst: the answer to a commit is lost with its connection. The
// server of the next one may be behind the others: nobody may look for what
// became of the commit before that has answered a sync.
// It kills the mutant "no sync before a lost commit is resolved".
func TestResolveSyncsFirst(t *testing.T) {
	t.Parallel()
	e := shared.get(t, 1)
	other := dial(t, zookeeper.Options{Connect: e.Connect()})
	root := fresh(t, other)
	p := proxy(t, e.Addr(0))
	var cut atomic.Bool
	asked := make(chan string, 1000)
	rc := dial(t, zookeeper.Options{Connect: p.Addr(), SessionTimeout: 60 * time.Second, OnOperation: func(op string, _ int) {
		if !cut.Load() {
			return
		}
		if op == "sync" {
			p.Hold(zkserver.ToClient) // it is not sent yet: nothing is answered from here on
		}
		asked <- op
	}})
	p.Hold(zkserver.ToClient)
	done := make(chan error, 1)
	go func() {
		_, err := rc.Commit(within(t), registry.Set(root, []byte("done"), 0))
		done <- err
	}()
	until(t, other, "the effect", func(s registry.Snapshot) bool { return string(s.Data(root).Data) == "done" }, registry.Data(root))
	p.Cut()
	cut.Store(true)
	p.Heal()
	// The session asks for a sign of life by a sync of its own, besides the one
	// that is awaited here.
	for syncs := 0; syncs < 2; {
		select {
		case op := <-asked:
			switch op {
			case "sync":
				syncs++
			case "exists", "getData", "getChildren":
				t.Fatalf("%s was sent before a sync was answered", op)
			}
		case <-time.After(long):
			t.Fatal("no sync")
		}
	}
	cut.Store(false)
	p.Heal()
	if err := <-done; !errors.Is(err, registry.ErrUnknown) { // a set leaves nothing to tell by
		t.Errorf("the commit ended with %v, want %v", err, registry.ErrUnknown)
	}
}
