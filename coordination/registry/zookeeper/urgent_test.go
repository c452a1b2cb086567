package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// TestUrgentReads: a server stands still, and thousands of reads wait for it. As many as have places are sent, and what an operator asks
// then goes soon after them; see TestPlaces for the order.
func TestUrgentReads(t *testing.T) {
	t.Parallel()
	const reads, urgent = 10 * zookeeper.MostReads, 40
	p := proxy(t, shared.get(t, 1).Addr(0))
	var data, children, ahead atomic.Int64
	full := make(chan struct{})
	rc := dial(t, zookeeper.Options{Connect: p.Addr(), SessionTimeout: 60 * time.Second, OnOperation: func(op string, _ int) {
		switch op { // they are sent one after the other
		case "getData":
			if data.Add(1) == zookeeper.MostReads {
				close(full)
			}
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
	var asked sync.WaitGroup
	read := func(ctx context.Context, i int) error {
		_, err := rc.Read(ctx, registry.Data(fmt.Sprintf("%s/%d", root, i)))
		return err
	}
	for i := range reads {
		asked.Go(func() {
			if err := read(t.Context(), i); err != nil {
				t.Error(err)
			}
		})
	}
	<-full
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := read(ctx, reads); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a read without a place ended with %v", err)
	}
	if n := data.Load(); n != zookeeper.MostReads {
		t.Errorf("%d reads were sent to a server that answers none, want %d", n, zookeeper.MostReads)
	}
	for range urgent {
		asked.Go(func() {
			if _, err := registry.ForOperators(rc).Read(t.Context(), registry.Children(root)); err != nil {
				t.Error(err)
			}
		})
	}
	p.Heal()
	asked.Wait()
	if n := ahead.Load(); n > reads/2 {
		t.Errorf("%d reads of %d were sent before the last of %d urgent ones", n, reads, urgent)
	}
}
