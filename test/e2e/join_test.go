package e2e_test

import (
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
)

// TestAHostThatComesWhileItemsRunIsNotForgotten: it gets its share of what is
// idle at once, and of what runs as that ends.
func TestAHostThatComesWhileItemsRunIsNotForgotten(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("idle", "shardingTotalCount: 6", "failover: true")
	c.job("held", "shardingTotalCount: 6", "failover: true", `jobParameter: "stubborn:a"`)
	a, b := c.add(longest...), c.add(longest...)
	everywhere("held", nil, map[*member]int{a: 3, b: 3})
	everywhere("idle", nil, map[*member]int{a: 3, b: 3})
	f := c.fly("held", a, b)
	at := marks(a, b)
	d := c.add(longest...)
	everywhere("idle", at, map[*member]int{a: 2, b: 2, d: 2})
	// One goes, too, and others are still waiting for the rest.
	e := c.add(longest...)
	e.of("idle", 0, owned())
	e.stop()
	everywhere("idle", nil, map[*member]int{d: 2})
	at = marks(a, b)
	c.open("a")
	everywhere("held", at, map[*member]int{a: 2, b: 2, d: 2})
	for _, m := range []*member{a, b} {
		for _, n := range f.of(m) {
			m.of("held", f.at[m], kind(event.ItemCompleted), item(n), outcome(abi.OutcomeOK))
		}
	}
	c.wholeFire("held", 6, a, b, d)
	c.judge("held")
}
