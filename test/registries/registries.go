// Package registries runs a test on both registries: the embedded one, and a real ZooKeeper.
package registries

import (
	"context"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// Each runs a test on each registry, in parallel subtests. dial opens a session, which is the test's to close.
func Each(t *testing.T, run func(t *testing.T, dial func() registry.Center)) {
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		s, err := embedded.Open(embedded.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		run(t, func() registry.Center {
			c, err := s.Connect(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			return c
		})
	})
	t.Run("ZooKeeper", func(t *testing.T) {
		t.Parallel()
		e := zkserver.ForTest(t, zkserver.Options{NoSync: true})
		run(t, func() registry.Center {
			c, err := zookeeper.Dial(context.Background(), zookeeper.Options{Connect: e.Connect(), SessionTimeout: 30 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			return c
		})
	})
}
