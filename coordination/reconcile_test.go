package coordination_test

import (
	"slices"
	"testing"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// TestWhatAFollowerSeesIsNotLost: the leader has not looked yet. No follower asks
// it for what it sees by itself; and if it dies before it has, its successor does.
func TestWhatAFollowerSeesIsNotLost(t *testing.T) {
	t.Parallel()
	flags := func(c *chronicle) []string { return c.children(c.layout.Root() + "/leader/sharding") }
	for _, dies := range []bool{false, true} {
		c, h := group(t, 3, nil)
		leader, follower := h[0], h[1]
		h[2].crash()
		must(t, second(follower.step()))
		if len(flags(c)) > 0 {
			t.Errorf("a follower saw a host go, as the leader does, and the flags are %v", flags(c))
		}
		if dies {
			leader.crash()
		}
		c.settle()
		c.finish()
	}
	c, h := group(t, 2, nil)
	must(t, c.edit(func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount++ }))
	must(t, second(h[1].step()))
	if got := flags(c); !slices.Equal(got, []string{"necessary"}) {
		t.Errorf("a follower saw another total count, which the leader may refuse, and the flags are %v", got)
	}
	c.settle()
	c.finish()
}

// TestRepair: a host that is not among the members is written there, and the items are divided anew;
// nothing is written where nothing is wrong, and nothing of a job that is removed, or of a host that
// is stopped, between the look and the commit.
func TestRepair(t *testing.T) {
	t.Parallel()
	for _, wrong := range []string{"nothing", "members", "the job is removed", "the host is stopped"} {
		c, hosts := group(t, 2, nil)
		c.edited = true
		h, l := hosts[1], c.layout
		var repaired []string
		repair := func() { must(t, h.perform(moves.Repair(&h.Member, co.Repairing{}, &repaired))) }
		necessary := func() bool { return c.node(l.Necessary()).Exists }
		switch wrong {
		case "nothing":
			before := c.node(l.Members()).Version
			repair()
			if len(repaired) > 0 || c.node(l.Members()).Version != before || necessary() {
				t.Errorf("repaired %v, though nothing was wrong", repaired)
			}
		case "members":
			c.hand(registry.Set(l.Members(), tree.Members{hosts[0].Self.ID}.Data(), registry.AnyVersion))
			repair()
			if !slices.Equal(repaired, []string{l.Members()}) || !slices.Contains(c.members(), h.Self.ID) || !necessary() {
				t.Errorf("repaired %v; members are %v, a division is asked for: %v", repaired, c.members(), necessary())
			}
		default:
			gone := l.Config()
			if wrong == "the host is stopped" {
				gone = l.Instance(h.Self.ID)
			}
			c.hand(registry.Delete(l.RunsOf(h.Self.ID), registry.AnyVersion))
			h.beforeCommit(func() { c.hand(registry.Delete(gone, registry.AnyVersion)) })
			repair()
			if len(repaired) > 0 || c.node(l.RunsOf(h.Self.ID)).Exists {
				t.Errorf("%s: repaired %v", wrong, repaired)
			}
		}
	}
}
