package host_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host"
)

// completed counts completions by item.
func completed(events []host.Event) map[int]int {
	n := make(map[int]int)
	for _, e := range events {
		n[*e.Item]++
	}
	return n
}

func TestOneHostRunsEveryItemOfEveryFire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.start(1, job(definition("tick", "*/5 * * * * ?", 3), sleeper(100*time.Millisecond)))
		time.Sleep(time.Minute + time.Second)
		done := completed(c.list(host.EventItemCompleted))
		if len(done) != 3 {
			t.Fatalf("items %v, want 3\n%s", done, c.all())
		}
		for item, n := range done {
			if n != 12 {
				t.Errorf("item %d: %d completions in a minute, want 12\n%s", item, n, c.all())
			}
		}
	})
}

func TestThreeHostsShareAndTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("share", "*/10 * * * * ?", 6)
		d.Failover = true
		g := sleeper(3 * time.Second)
		c.start(1, job(d, g))
		c.start(2, job(d, g))
		third := c.start(3, job(d, g))
		time.Sleep(21 * time.Second) // a fire is running
		c.expire(third)
		time.Sleep(40 * time.Second)
		over := 0
		for _, e := range c.list(host.EventItemCompleted) {
			if e.Source == abi.SourceFailover {
				over++
			}
		}
		if over != 2 {
			t.Errorf("%d items failed over, want 2\n%s", over, c.all())
		}
	})
}
