package zookeeper_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// A commit is not taken for done because an earlier one, which nobody waited
// for any more, has made the same ephemeral node.
func TestNodeOfAnEarlierCommit(t *testing.T) {
	t.Parallel()
	e := shared.get(t, 1)
	other := dial(t, zookeeper.Options{Connect: e.Connect()})
	root := fresh(t, other)
	p := proxy(t, e.Addr(0))
	var n counter
	rc := dial(t, zookeeper.Options{Connect: p.Addr(), SessionTimeout: 60 * time.Second, OnOperation: n.count})
	read(t, rc, root)
	n.take()
	p.Hold(zkserver.ToClient)

	ctx, cancel := context.WithCancel(within(t))
	first, second := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := rc.Commit(ctx, registry.CreateEphemeral(root+"/e", nil))
		first <- err
	}()
	until(t, other, "the first commit's effect", func(s registry.Snapshot) bool { return s.Data(root + "/e").Exists }, registry.Data(root+"/e"))
	cancel()
	if err := <-first; !errors.Is(err, registry.ErrUnknown) {
		t.Fatalf("the first commit ended with %v", err)
	}
	go func() {
		_, err := rc.Commit(within(t), registry.CreateEphemeral(root+"/e", nil), registry.Create(root+"/never", nil))
		second <- err
	}()
	for n.of("multi") < 2 {
		time.Sleep(time.Millisecond)
	}
	p.Cut()
	p.Heal()
	if err := <-second; err == nil {
		t.Errorf("the second commit succeeded; its own node exists: %t", read(t, other, root+"/never").Exists)
	}
}
