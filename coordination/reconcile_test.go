package coordination_test

import (
	"slices"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
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
