package e2e_test

import (
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
)

// TestATriggerWhileTheJobRunsIsNotLost: on the host that is busy it waits, and one more
// waits behind it.
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
	c.registry("job", "run", "held") // kept on both
	c.open("a")
	ends := []seen{}
	for at := f.at[first]; len(ends) < 2; {
		e := first.of("held", at, kind(event.ItemCompleted), source(abi.SourceTrigger), outcome(abi.OutcomeOK))
		ends, at = append(ends, e), e.at+1
	}
	c.registry("job", "run", "held") // it is queued until the one that is kept has begun on the slow one
	c.open("b")
	last := first.of("held", ends[1].at+1, kind(event.ItemCompleted), source(abi.SourceTrigger), outcome(abi.OutcomeOK))
	at := f.at[slow]
	for _, want := range []int64{ends[0].Trigger, ends[1].Trigger, last.Trigger} {
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

// TestATriggerWithArguments: on two hosts the items that were asked for run with the
// parameter that was given, and when the host of one dies in its run, the other goes on
// with it. What cannot be asked for is refused, by a host and by the registry.
func TestATriggerWithArguments(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("asked", "shardingTotalCount: 4", "failover: true", `jobParameter: "configured"`)
	flags := append([]string{"--max-concurrency", "8"}, mortal...)
	a, b := c.add(flags...), c.add(flags...)
	c.divided("asked", a, b)
	first, other := a, b // first owns item 0
	if strings.HasPrefix(c.shards("asked").Items[0].Owner, b.ip+"@") {
		first, other = b, a
	}
	other.place.refused(2, []string{`--items: found "x", expected numbers and ranges`}, "job", "run", "asked", "--items", "x")
	other.place.refused(1, []string{"items: found 4, expected 0 to 3: the job has 4"}, "job", "run", "asked", "--items", "0,4")
	c.refused(1, []string{"items: found 4, expected 0 to 3: the job has 4"}, "job", "run", "asked", "--items", "4", "--registry", "zookeeper://"+c.zk, "--namespace", c.ns)
	if said := c.registry("job", "run", "asked", "--items", "0", "--param", "stubborn:a"); !strings.Contains(said, "triggered asked with items 0 and a parameter") {
		t.Errorf("trigger: %s", said)
	}
	first.of("asked", 0, kind(event.ItemStarted), item(0), source(abi.SourceTrigger)) // it waits for the gate
	first.kill()
	other.of("asked", 0, kind(event.ItemStarted), item(0), source(abi.SourceFailover))
	c.open("a") // without the parameter it would not wait for it
	end := other.of("asked", 0, kind(event.ItemCompleted), item(0), source(abi.SourceFailover), outcome(abi.OutcomeOK))
	for _, e := range other.all("asked", 0, kind(event.ItemStarted)) {
		if e.at < end.at && (*e.Item != 0 || e.Args == nil || e.Args.Items != "0" || *e.Args.Param != "stubborn:a") {
			t.Errorf("%s of item %d with %+v", e.Kind, *e.Item, e.Args)
		}
	}
	c.judge("asked")
}
