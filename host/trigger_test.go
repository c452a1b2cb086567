package host_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host"
)

// TestATriggerDoesNotWaitForABusyItem: one item of a host is never idle. The other one
// begins each round at once; of the busy one the history says what became of the round.
func TestATriggerDoesNotWaitForABusyItem(t *testing.T) {
	for name, tc := range map[string]struct {
		cron  string
		takes time.Duration
		runs  int // of the busy item, in the two rounds
	}{
		"never idle":                {"0/10 * * * * ?", 15 * time.Second, 0},
		"idle before the next fire": {"0 * * * * ?", 15 * time.Second, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				g := &guest{digest: "d1", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
					if inv.Context.ShardingItem == 1 {
						time.Sleep(tc.takes)
					}
					return ok
				}}
				n := c.start(1, job(definition("busy", tc.cron, 2), g))
				time.Sleep(time.Minute + 5*time.Second) // item 1 runs
				ran := func() (by [2]int) {
					for _, e := range c.list(host.EventItemCompleted) {
						if e.Source == abi.SourceTrigger {
							by[*e.Item]++
						}
					}
					return by
				}
				for round := 1; round <= 2; round++ {
					if err := n.host.Trigger(t.Context(), "busy"); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
					if round == 1 && ran() != [2]int{1, 0} {
						t.Errorf("a second after the trigger %v runs of the items, want the idle one's", ran())
					}
				}
				time.Sleep(time.Minute)
				if by := ran(); by[0] != 2 || by[1] > tc.runs || by[1] < min(tc.runs, 1) {
					t.Errorf("%v runs of the items in two rounds", by)
				}
				told := make(map[int64]bool)
				for _, e := range append(c.list(host.EventItemSkipped), c.list(host.EventItemCompleted)...) {
					if e.Trigger != 0 && *e.Item == 1 {
						told[e.Trigger] = true
					}
				}
				if len(told) == 0 {
					t.Error("nothing says what became of the rounds for the busy item")
				}
				if t.Failed() {
					t.Log("\n" + c.all())
				}
			})
		})
	}
}
