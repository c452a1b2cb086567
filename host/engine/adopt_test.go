package engine_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/admin/inspect"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/fence"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// copyTo copies what is below a path to another registry, as a tool for that
// does: without versions, transactions and ephemeral nodes.
func copyTo(t *testing.T, to, from registry.Center, path string) {
	t.Helper()
	n, err := from.Read(t.Context(), registry.Data(path), registry.Children(path))
	if err != nil {
		t.Fatal(err)
	}
	if !n[0].Exists || n[0].Ephemeral {
		return
	}
	if _, err := to.Commit(t.Context(), registry.Ensure(path), registry.Set(path, n[0].Data, registry.AnyVersion)); err != nil {
		t.Fatal(err)
	}
	for _, name := range n[1].Names {
		copyTo(t, to, from, path+"/"+name)
	}
}

// TestCopiedRegistry: hosts do not join the jobs of a registry that was copied
// from another one, and say so, until the copy is adopted. Then triggers run
// again, fences are above those that were given out before, and what operators
// see is what guests see.
//
// It kills the mutant "copied registry joined".
func TestCopiedRegistry(t *testing.T) {
	for name, triggered := range map[string]bool{"after a trigger": true, "after scheduled runs": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				connect := func() registry.Center {
					t.Helper()
					rc, err := c.server.Connect(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = rc.Close() })
					return rc
				}
				old := connect()
				for range 2000 { // the old registry has had many transactions
					if _, err := old.Commit(t.Context(), registry.Ensure("/other"), registry.Set("/other", nil, registry.AnyVersion)); err != nil {
						t.Fatal(err)
					}
				}
				d := definition("copied", "0 0 * * * ?", 2)
				n := c.start(1, job(d, sleeper(time.Second)))
				time.Sleep(time.Minute)
				if triggered {
					if err := n.operator().Trigger(t.Context(), "copied"); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Minute)
				} else {
					time.Sleep(2 * time.Hour)
				}
				n.stop()
				<-n.done
				var highest int64
				for _, e := range c.list(event.ItemStarted) {
					highest = max(highest, e.Fence)
				}
				if highest < 2000 {
					t.Fatalf("the highest fence of the old registry is %d", highest)
				}

				server, err := embedded.Open(embedded.Options{})
				if err != nil {
					t.Fatal(err)
				}
				before := c.server
				t.Cleanup(func() {
					if err := before.Close(); err != nil {
						t.Error(err)
					}
				})
				c.server = server
				rc := connect()
				copyTo(t, rc, old, "/test")
				copyTo(t, rc, old, "/test.wasmjob")

				n = c.start(1, job(d, sleeper(time.Second)))
				time.Sleep(5 * time.Minute)
				s := n.host.Status().Jobs[0]
				if s.State != engine.JobError || !strings.Contains(s.Reason, "copied from another one") || !strings.Contains(s.Reason, "wasmjob registry adopt") {
					t.Errorf("in the copy the job is %s: %s", s.State, s.Reason)
				}
				if got := len(c.list(event.JobError)); got != 2 {
					t.Errorf("%d errors are reported, expected one of each of two sessions", got)
				}
				layout := tree.NewLayout("test", "copied")
				trigger := func() error { return operate.TriggerJob(t.Context(), rc, layout) }
				adopt := func() (fence.Adoption, error) { return fence.Adopt(t.Context(), rc, "test", 0, "ann") }
				if err := trigger(); err == nil || !strings.Contains(err.Error(), "no host has the job") {
					t.Errorf("a trigger in the copy: %v", err)
				}

				out, err := adopt()
				if err != nil || out.Jobs != 1 || out.Items != 2 || out.Base <= highest {
					t.Fatalf("adopted %+v, %v; the highest fence was %d", out, err, highest)
				}
				if _, err := adopt(); err == nil || !strings.Contains(err.Error(), "adopted already") {
					t.Errorf("adopting it once more: %v", err)
				}
				time.Sleep(5 * time.Second) // the host sees it
				began := len(c.list(event.ItemStarted))
				if err := trigger(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				fences := make(map[int]int64)
				for _, e := range c.list(event.ItemStarted)[began:] {
					fences[*e.Item] = e.Fence
					if e.Fence <= highest || e.Trigger <= highest {
						t.Errorf("item %d runs in round %d with fence %d; expected both above %d", *e.Item, e.Trigger, e.Fence, highest)
					}
				}
				if len(fences) != 2 {
					t.Errorf("after a trigger %d items ran, expected 2", len(fences))
				}
				n.stop()
				<-n.done
				started := time.Now()
				n = c.start(2, job(d, sleeper(10*time.Minute)))
				time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + time.Minute)))
				assigned := c.list(event.Assigned)
				if took := assigned[len(assigned)-1].Time.Sub(started); took > 500*time.Millisecond {
					t.Errorf("the items were assigned after %s: the host does not know its own writes in what it watches", took)
				}
				var shards inspect.Shards
				raised, err := fence.Raised(t.Context(), rc, "test")
				if err == nil {
					shards, err = inspect.ReadShards(t.Context(), raised, layout)
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, it := range n.host.Status().Jobs[0].Items {
					if !it.Running || shards.Items[it.Item].Fence != it.Fence {
						t.Errorf("item %d, running %v: shards show fence %d, the guest sees %d", it.Item, it.Running, shards.Items[it.Item].Fence, it.Fence)
					}
				}
			})
		})
	}
}
