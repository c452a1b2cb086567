package zookeeper_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// TestUrgentReads: a server stands still, and thousands of reads wait for it. A read of an operator's is sent as soon as one of
// those is answered that were sent before, and the others are not held up by more that are urgent.
func TestUrgentReads(t *testing.T) {
	t.Parallel()
	const reads, urgent = 10 * zookeeper.MostReads, 40
	p := proxy(t, shared.get(t, 1).Addr(0))
	var data, children, ahead atomic.Int64
	rc := dial(t, zookeeper.Options{Connect: p.Addr(), SessionTimeout: 60 * time.Second, OnOperation: func(op string, _ int) {
		switch op { // they are sent one after the other
		case "getData":
			data.Add(1)
		case "getChildren":
			if children.Add(1) == urgent {
				ahead.Store(data.Load())
			}
		}
	}})
	root := fresh(t, rc)
	p.Hold(zkserver.ToClient)
	data.Store(0)
	children.Store(0)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var asked sync.WaitGroup
	for i := range reads {
		asked.Go(func() {
			if _, err := rc.Read(ctx, registry.Data(fmt.Sprintf("%s/%d", root, i))); err != nil {
				t.Error(err)
			}
		})
	}
	awaitWaiting(t, rc, 0, reads-zookeeper.MostReads)
	for range urgent {
		asked.Go(func() {
			if _, err := registry.ForOperators(rc).Read(ctx, registry.Children(root)); err != nil {
				t.Error(err)
			}
		})
	}
	awaitWaiting(t, rc, urgent, reads-zookeeper.MostReads)
	if n := data.Load(); n > zookeeper.MostReads {
		t.Errorf("%d reads were sent to a server that answers none, want %d at most", n, zookeeper.MostReads)
	}
	p.Heal()
	asked.Wait()
	if n := ahead.Load(); n > 2*zookeeper.MostReads || n < zookeeper.MostReads+urgent/2 {
		t.Errorf("%d reads were sent before the last of %d urgent ones, want the %d that were on their way, and one for each of them", n, urgent, zookeeper.MostReads)
	}
}

// TestUrgentReadsEnd: reads that wait for their turn end with their context, and with the session.
func TestUrgentReadsEnd(t *testing.T) {
	t.Parallel()
	p := proxy(t, shared.get(t, 1).Addr(0))
	rc := dial(t, zookeeper.Options{Connect: p.Addr(), SessionTimeout: 60 * time.Second})
	root := fresh(t, rc)
	p.Hold(zkserver.ToClient)
	ends := make(chan error, 2*zookeeper.MostReads)
	read := func(ctx context.Context, c registry.Center) {
		go func() {
			_, err := c.Read(ctx, registry.Data(root))
			ends <- err
		}()
	}
	for range zookeeper.MostReads + 2 {
		read(t.Context(), rc)
	}
	awaitWaiting(t, rc, 0, 2)
	ctx, cancel := context.WithCancel(t.Context())
	read(ctx, registry.ForOperators(rc))
	awaitWaiting(t, rc, 1, 2)
	cancel()
	if err := <-ends; err == nil || ctx.Err() == nil {
		t.Errorf("a read whose context is over ended with %v", err)
	}
	awaitWaiting(t, rc, 0, 2)
	if err := rc.Close(); err != nil {
		t.Error(err)
	}
	for range zookeeper.MostReads + 2 {
		if err := <-ends; err == nil {
			t.Error("a read of a session that is over was answered")
		}
	}
}

// awaitWaiting waits until so many reads wait for their turn.
func awaitWaiting(t *testing.T, rc *zookeeper.Session, urgent, others int) {
	t.Helper()
	for deadline := time.Now().Add(long); ; time.Sleep(time.Millisecond) {
		u, o := rc.Waiting()
		if u == urgent && o == others {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d urgent reads and %d others wait, want %d and %d", u, o, urgent, others)
		}
	}
}
