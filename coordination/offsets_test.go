package coordination_test

import (
	"errors"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/registry"
)

// TestOffsetAfterPurge: the offset of a run is refused in a job that was purged
// and created again, also if another host has begun the item there since and the
// versions of the records are the same.
//
// It kills the mutant "offset without the list of runs".
func TestOffsetAfterPurge(t *testing.T) {
	t.Parallel()
	for name, begins := range map[string]bool{"made anew": false, "begun anew": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, hosts := group(t, 1, nil)
			a := hosts[0]
			old := begin(t, a, c.now.Add(time.Second)).Items[0]
			must(t, c.operate(moves.Remove(c.layout, true)))
			b := c.addHost("Z", "10.9.9.9")
			anew := c.file
			anew.Description = "anew"
			must(t, second(b.join(anew)))
			for range 10 {
				must(t, second(b.step()))
				must(t, b.look())
			}
			c.now = c.now.Add(20 * time.Second)
			if begins {
				if n := begin(t, b, c.now).Items[0].RecordVersion; n != old.RecordVersion {
					t.Fatalf("the new record has version %d, the old one %d: the test shows nothing", n, old.RecordVersion)
				}
			}
			var saved co.Saved
			must(t, a.perform(moves.SaveOffsets(c.layout, map[int]co.Ended{0: {State: old, Offset: []byte("of the former life"), HasOffset: true}}, &saved)))
			if n := c.node(c.layout.Sibling() + "/offset/0"); n.Exists || len(saved.Items) > 0 || len(saved.Lost) != 1 {
				t.Errorf("the offset is %q, saved %v, lost %v; expected it to be lost", n.Data, saved.Items, saved.Lost)
			}
		})
	}
}

// TestOffsetWithoutRuns: while the host's list of runs is gone no offset is
// saved and none is lost: the list is repaired first.
func TestOffsetWithoutRuns(t *testing.T) {
	t.Parallel()
	c, hosts := group(t, 1, nil)
	a := hosts[0]
	state := begin(t, a, c.now.Add(time.Second)).Items[0]
	must(t, second(c.op.Commit(c.ctx, registry.Delete(c.layout.Sibling()+"/runs/"+a.Self.ID, registry.AnyVersion))))
	save := map[int]co.Ended{0: {State: state, Offset: []byte("7"), HasOffset: true}}
	var saved co.Saved
	if err := a.perform(moves.SaveOffsets(c.layout, save, &saved)); !errors.Is(err, registry.ErrConflict) || len(saved.Lost) > 0 {
		t.Errorf("without a list of runs: %v, lost %v; expected a conflict, and nothing to be lost", err, saved.Lost)
	}
	must(t, a.look())
	var mended []string
	must(t, a.perform(moves.Repair(&a.Member, co.Repairing{}, &mended)))
	must(t, a.perform(moves.SaveOffsets(c.layout, save, &saved)))
	if n := c.node(c.layout.Sibling() + "/offset/0"); string(n.Data) != "7" {
		t.Errorf("after the repair of %v: the offset is %q, expected 7", mended, n.Data)
	}
}
