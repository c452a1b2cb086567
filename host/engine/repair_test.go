package engine_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// TestReconcilingGoesOnAfterAnError: what the sweep finds is found an interval
// later if the registry refused this time.
func TestReconcilingGoesOnAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		c := newCluster(t)
		c.wrap = func(_ int, l *lease) registry.Center { return &refusing{l, &broken} }
		d := definition("swept", "", 2)
		d.ReconcileIntervalMinutes = 1
		c.start(1, job(d, sleeper(time.Second)))
		time.Sleep(10 * time.Second)
		l := tree.NewLayout("test", "swept")
		stale := l.Root() + "/trigger/10.9.9.9@-@gone"
		c.commit(registry.Create(stale, nil))
		there := func() bool { return c.nodes(registry.Data(stale))[0].Exists }
		broken.Store(true)
		time.Sleep(3 * time.Minute)
		if !there() {
			t.Fatal("the mark is gone although the registry refuses")
		}
		broken.Store(false)
		time.Sleep(2 * time.Minute)
		if there() {
			t.Errorf("the mark is still there\n%s", c.all())
		}
	})
}
