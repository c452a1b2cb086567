package e2e_test

import (
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
)

// TestATriggerWhileTheJobRunsIsNotLost: on the host that is busy it waits, and a
// new one does not take it away.
func TestATriggerWhileTheJobRunsIsNotLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("held", "shardingTotalCount: 2", `shardingItemParameters: "0=stubborn:a,1=stubborn:b"`)
	a, b := c.add(longest...), c.add(longest...)
	everywhere("held", nil, map[*member]int{a: 1, b: 1})
	f := c.fly("held", a, b)
	first, slow := a, b
	if f.of(a)[0] == 1 {
		first, slow = b, a
	}
	c.registry("trigger", "held") // kept on both
	c.open("a")
	ends := []seen{}
	for at := f.at[first]; len(ends) < 2; {
		e := first.of("held", at, kind(event.ItemCompleted), source(abi.SourceTrigger), outcome(abi.OutcomeOK))
		ends, at = append(ends, e), e.at+1
	}
	c.registry("trigger", "held") // the one that is kept on the slow one counts for both
	last := first.of("held", ends[1].at+1, kind(event.ItemCompleted), source(abi.SourceTrigger), outcome(abi.OutcomeOK))
	c.open("b")
	at := f.at[slow]
	for _, want := range []int64{ends[0].Trigger, last.Trigger} {
		e := slow.of("held", at, kind(event.ItemCompleted), source(abi.SourceTrigger), outcome(abi.OutcomeOK))
		if e.Trigger != want {
			t.Errorf("the slow host ran trigger %d, want %d", e.Trigger, want)
		}
		at = e.at + 1
	}
	if last.Trigger <= ends[1].Trigger || ends[1].Trigger <= ends[0].Trigger {
		t.Errorf("three triggers are %d, %d and %d", ends[0].Trigger, ends[1].Trigger, last.Trigger)
	}
	c.wholeFire("held", 2, a, b) // and all is idle again
	c.judge("held")
}
