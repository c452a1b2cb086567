package coordination_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
)

// TestElsewhere: a crashed run whose running mark is gone counts as repeated by
// a Java host only if there was one since the run began, whether that is still
// there or has gone; else the mark was deleted by hand, and the run is taken over.
//
// It kills the mutant "run whose mark is gone called Java's".
func TestElsewhere(t *testing.T) {
	t.Parallel()
	for name, java := range map[string]string{"no Java host": "never", "one that left before": "before", "one that left since": "since", "one that is there": "there"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.Failover = true })
			a, b := h[0], h[1]
			settle := func() {
				t.Helper()
				for range 12 {
					for _, h := range []*simHost{a, b} {
						must(t, h.look())
						must(t, second(h.step()))
					}
					c.now = c.now.Add(time.Second)
				}
			}
			const id = "10.0.9.9@-@77"
			come := func() {
				t.Helper()
				must(t, second(c.op.Commit(c.ctx, registry.Ensure(c.layout.Root()+"/servers/10.0.9.9"), registry.Create(c.layout.Root()+"/instances/"+id, []byte("jobInstanceId: "+id+"\n")))))
				settle()
			}
			leave := func() {
				t.Helper()
				must(t, second(c.op.Commit(c.ctx, registry.Delete(c.layout.Root()+"/instances/"+id, registry.AnyVersion))))
				settle()
			}
			if java == "before" {
				come()
				leave()
			}
			begin(t, a, c.now.Add(time.Second))
			if java == "since" || java == "there" {
				come()
			}
			if java == "since" {
				leave()
			}
			a.crash()
			item := a.Runs.Items()[0]
			must(t, second(c.op.Commit(c.ctx, registry.Delete(fmt.Sprintf("%s/sharding/%d/running", c.layout.Root(), item), registry.AnyVersion))))
			must(t, b.look())
			out, err := b.recover(a.Self.ID, true, 1000)
			must(t, err)
			claimed, elsewhere := false, false
			for _, cl := range out.Claimed {
				claimed = claimed || cl.Item == item
			}
			for _, cl := range out.Elsewhere {
				elsewhere = elsewhere || cl.Item == item
			}
			if want := java == "since" || java == "there"; elsewhere != want || claimed == want {
				t.Errorf("item %d: taken over %v, said to have been repeated by a Java host %v; expected the latter to be %v", item, claimed, elsewhere, want)
			}
		})
	}
}
