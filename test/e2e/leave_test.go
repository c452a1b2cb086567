package e2e_test

import (
	"slices"
	"syscall"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/event"
)

// TestALeaderThatIsShutDownLeavesNoItemBehind, neither by our command nor by the
// deletion that ElasticJob's console makes.
func TestALeaderThatIsShutDownLeavesNoItemBehind(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	names := []string{"one", "two", "three", "four"}
	for _, name := range names {
		c.job(name, "shardingTotalCount: 6", "failover: true")
	}
	all := []*member{c.add(longest...), c.add(longest...), c.add(longest...)}
	for _, name := range names {
		everywhere(name, nil, map[*member]int{all[0]: 2, all[1]: 2, all[2]: 2})
	}
	s := c.session("")
	for i, name := range names {
		at := marks(all...)
		leads, others := c.leader(name, all...)
		id := c.shards(name).Leader
		if i%2 == 0 {
			c.registry("job", "drain", name, "--instance", id)
		} else if _, err := s.Commit(t.Context(), registry.Delete("/"+c.ns+"/"+name+"/instances/"+id, registry.AnyVersion)); err != nil {
			t.Fatal(err)
		}
		leads.of(name, at[leads], kind(event.JobStopped))
		everywhere(name, at, map[*member]int{others[0]: 3, others[1]: 3})
		c.wholeFire(name, 6, others...)
	}
	c.judge(names...)
}

// TestAGracefulStopWithRunningItemsIsNoCrash: what runs ends where it runs, what
// is idle goes to others at once, and nothing is failed over.
func TestAGracefulStopWithRunningItemsIsNoCrash(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("idle", "shardingTotalCount: 4", "failover: true")
	c.job("held", "shardingTotalCount: 4", "failover: true", `jobParameter: "stubborn:a"`)
	a, b := c.add(append(longest, "--drain-timeout", "10m")...), c.add(longest...)
	everywhere("held", nil, map[*member]int{a: 2, b: 2})
	everywhere("idle", nil, map[*member]int{a: 2, b: 2})
	f := c.fly("held", a, b)
	at := marks(b)
	a.signal(syscall.SIGTERM)
	b.of("idle", at[b], assigned(4))
	if s := c.shards("held"); !slices.ContainsFunc(s.Instances, func(i admin.Instance) bool { return i.State == tree.DetailDraining }) {
		t.Errorf("nobody is shown as draining: %+v", s.Instances)
	}
	c.open("a")
	for _, m := range []*member{a, b} {
		for _, n := range f.of(m) {
			if done := m.of("held", f.at[m], kind(event.ItemCompleted), item(n)); done.Outcome != abi.OutcomeOK || done.Source != abi.SourceTrigger {
				t.Errorf("item %d ends as %+v", n, done.Event)
			}
		}
	}
	if code := a.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	b.of("held", at[b], assigned(4))
	c.wholeFire("held", 4, b)
	if n := b.count("held", kind(event.ItemStarted), source(abi.SourceFailover)); n != 0 {
		t.Errorf("%d items were failed over from a host that stopped in good order", n)
	}
	c.judge("held")
}
