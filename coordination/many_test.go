package coordination_test

import (
	"testing"
	"time"
)

// TestManyItemsOfOneHost: what a fire costs grows with the items, however
// many a host has: its list of runs is ranges, and takes no room from them.
func TestManyItemsOfOneHost(t *testing.T) {
	t.Parallel()
	fire := func(t *testing.T, items int) (begin, complete int) {
		c := newCluster(t, inMemory(t))
		c.file.ShardingTotalCount, c.file.Failover = items, true
		h := c.addHost("A", "10.0.0.1")
		must(t, second(h.join(c.file)))
		c.settle()
		h.plan = countCalls(&begin)
		c.now = c.now.Add(time.Second)
		must(t, h.fire(c.now))
		h.plan = countCalls(&complete)
		must(t, h.complete(h.running(), "OK", ""))
		if n := len(h.running()); n > 0 {
			t.Fatalf("%d items run still", n)
		}
		return begin, complete
	}
	t.Run("commits", func(t *testing.T) {
		const few, times = 9_000, 8 // 8 bytes for each of so many would be more than a commit holds
		begin, complete := fire(t, few)
		if b, c := fire(t, times*few); b > times*begin+times || c > times*complete+times {
			t.Errorf("%d items: %d commits begin and %d complete them; %d times as many: %d and %d", few, begin, complete, times, b, c)
		}
	})
}
