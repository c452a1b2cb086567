package coordination_test

import (
	"context"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// onZooKeeper is the registrytest.Server of a real ZooKeeper. It ends a session
// by closing it, which to the others looks the same.
type onZooKeeper struct{ connect string }

func (z onZooKeeper) Connect(t testing.TB) registry.Center {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	rc, err := zookeeper.Dial(ctx, zookeeper.Options{Connect: z.connect})
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() {
		if err := rc.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return rc
}

func (z onZooKeeper) Expire(t testing.TB, r registry.Center) {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// TestScenarioOnZooKeeper plays the scripts on a real ZooKeeper: they go the
// same way there.
func TestScenarioOnZooKeeper(t *testing.T) {
	e := zkserver.ForTest(t, zkserver.Options{TickTime: 500 * time.Millisecond, NoSync: true})
	runScenarios(t, func(testing.TB) registrytest.Server { return onZooKeeper{e.Connect()} })
}
