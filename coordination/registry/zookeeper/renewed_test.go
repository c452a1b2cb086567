package zookeeper_test

import (
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// TestRenewed: whoever ends the process in time hears of each proof of life, by
// when it was asked for, and of nothing else.
func TestRenewed(t *testing.T) {
	t.Parallel()
	type proof struct{ sent, timeout, at time.Duration }
	clock := zookeeper.BootClock()
	proofs := make(chan proof, 1000)
	before := clock()
	p := proxy(t, shared.get(t, 1).Addr(0))
	s := dial(t, zookeeper.Options{Connect: p.Addr(), SessionTimeout: 4 * time.Second, Renewed: func(sent, timeout time.Duration) {
		proofs <- proof{sent, timeout, clock()}
	}})
	if len(proofs) == 0 {
		t.Error("there is a session, and nothing was heard of it")
	}
	newest := before
	next := func(r proof) {
		t.Helper()
		if r.sent < before || r.sent > r.at || r.timeout != s.Timeout() || r.timeout == 0 {
			t.Errorf("at %s a proof asked for at %s, for %s; the session has %s", r.at, r.sent, r.timeout, s.Timeout())
		}
		newest = max(newest, r.sent)
	}
	for n := 0; n < 4; {
		was := newest
		select {
		case r := <-proofs:
			next(r)
		case <-time.After(long):
			t.Fatal("no further proof")
		}
		if newest > was {
			n++
		}
	}

	// The server hears it and keeps the session, but no answer comes.
	p.Hold(zkserver.ToClient)
	held := clock()
	wait(t, s.Lost(), "the loss")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	close(proofs) // nothing is heard after Close
	for r := range proofs {
		next(r)
	}
	if newest > held {
		t.Errorf("a proof asked for at %s, but no answer came after %s", newest, held)
	}
}
