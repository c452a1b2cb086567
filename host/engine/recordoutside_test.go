package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
)

// unrecorded is a session that may leave no records of changes while that is refused.
type unrecorded struct {
	*lease
	refused *atomic.Bool
}

func (u *unrecorded) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	record := func(op registry.Op) bool { return strings.HasPrefix(op.Path, tree.ClusterChanges("test")) }
	if u.refused.Load() && slices.ContainsFunc(ops, record) {
		return nil, errors.New("no authority")
	}
	return u.lease.Commit(ctx, ops...)
}

// TestRecordOutside_refused: no fire waits for a record that cannot be left, and it is left when it can be, also if the host
// is not in the job any more.
func TestRecordOutside_refused(t *testing.T) {
	l := tree.NewLayout("test", "j")
	for name, change := range map[string]func(c *cluster, id string) registry.Op{
		"server": func(*cluster, string) registry.Op {
			return registry.Set(l.Server("10.0.0.1"), []byte(tree.Enabled), registry.AnyVersion)
		},
		"shutdown": func(_ *cluster, id string) registry.Op { return registry.Delete(l.Instance(id), registry.AnyVersion) },
		"remove":   func(*cluster, string) registry.Op { return registry.Delete(l.Config(), registry.AnyVersion) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				var refused atomic.Bool
				c.wrap = func(_ int, s *lease) registry.Center { return &unrecorded{s, &refused} }
				c.start(1, job(definition("j", "0 * * * * ?", 1), sleeper(time.Second)))
				time.Sleep(25*time.Second + 500*time.Millisecond)
				want := 1
				if name == "server" {
					want = 2
					c.commit(registry.Set(l.Server("10.0.0.1"), []byte(tree.Disabled), registry.AnyVersion))
				}
				time.Sleep(time.Second)
				refused.Store(true)
				c.commit(change(c, c.nodes(registry.Children(l.Instances()))[0].Names[0]))
				time.Sleep(3 * time.Minute)
				began := c.list(event.ItemStarted)
				for _, e := range began {
					if late := e.Time.Sub(e.Instant); late > 100*time.Millisecond {
						t.Errorf("the fire of %s is %s late", e.Instant.UTC().Format(time.TimeOnly), late)
					}
				}
				if name == "server" && len(began) != 3 {
					t.Errorf("%d fires, want 3\n%s", len(began), c.all())
				}
				refused.Store(false)
				time.Sleep(time.Minute)
				if waits := c.nodes(registry.Children(tree.ClusterChanges("test")))[0].Names; len(waits) != want {
					t.Errorf("%d records, want %d\n%s", len(waits), want, c.all())
				}
			})
		})
	}
}
