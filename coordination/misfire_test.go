package coordination_test

import (
	"testing"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// TestMisfireMarks: marks that are there, items that are not, and very many.
func TestMisfireMarks(t *testing.T) {
	t.Parallel()
	c, h := group(t, 1, func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = 9000 })
	must(t, h[0].perform(moves.MarkMisfire(c.layout, tree.Items{3, 5})))
	var items tree.Items
	for i := range 9003 { // the last three do not exist
		items = append(items, i)
	}
	must(t, h[0].perform(moves.MarkMisfire(c.layout, items)))
	for _, i := range []int{0, 3, 5, 8999} {
		if !c.node(c.mark(i, "misfire")).Exists {
			t.Errorf("item %d is not marked", i)
		}
	}
}
