package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/engine"
)

// countedReads counts the nodes that are read.
type countedReads struct {
	registry.Center
	nodes *atomic.Int64
}

func (s countedReads) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	s.nodes.Add(int64(len(queries)))
	return s.Center.Read(ctx, queries...)
}

// TestStuckDivision: a leader lives, and does not divide the items. Another host looks whether an external edit is why, and less and
// less often as it waits: most leaders that do not divide wait for a registry that is slow, which would never catch up with hosts
// that ask the more of it the longer they wait.
func TestStuckDivision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const wait = 20 * time.Minute
		c := newCluster(t)
		var nodes atomic.Int64
		c.wrap = func(_ int, l *lease) registry.Center { return countedReads{l, &nodes} }
		var away time.Time
		c.config = func(cfg *engine.Config) {
			dial := cfg.Dial
			cfg.Dial = func(ctx context.Context) (registry.Center, error) {
				if time.Now().Before(away) {
					return nil, registry.ErrUnavailable
				}
				return dial(ctx)
			}
		}
		n := c.start(1, job(definition("mixed", "*/2 * * * * ?", 2), sleeper(time.Second)))
		time.Sleep(10 * time.Second)
		java := c.playJava(t.Context(), "10.0.0.9")
		away = time.Now().Add(5 * time.Second)
		c.expire(n)
		time.Sleep(time.Second)
		java.commit(registry.CreateEphemeral(java.path("leader/election/instance"), []byte(java.id)))
		time.Sleep(20 * time.Second)
		if !java.node("leader/sharding/necessary").Exists {
			t.Fatal("no division was asked for")
		}
		before := nodes.Load()
		time.Sleep(wait)
		if got := nodes.Load() - before; got > 400 {
			t.Errorf("the host read %d nodes in %v of waiting for a division, want 400 at most", got, wait)
		} else {
			t.Logf("%d nodes were read in %v", got, wait)
		}
		// It still looks: the item's node goes, and comes back.
		java.commit(registry.Delete("/test.wasmjob/mixed/members", registry.AnyVersion))
		time.Sleep(time.Minute)
		if members, err := java.rc.Read(t.Context(), registry.Data("/test.wasmjob/mixed/members")); err != nil || !members[0].Exists {
			t.Errorf("the list of members was deleted, and is not made again: %v", err)
		}
	})
}
