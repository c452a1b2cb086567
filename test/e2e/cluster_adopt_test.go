package e2e_test

import (
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/event"
)

// TestClusterAdoptsACopy: a host does not join a job whose records name
// transactions that this ZooKeeper has not had, and does once it was adopted;
// its fences are above those.
func TestClusterAdoptsACopy(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("tick", everySecond, "shardingTotalCount: 2")
	const before = int64(9) << 40
	sibling := "/" + c.ns + ".wasmjob/tick/sharding/"
	c.put(c.session(""), sibling+`0 = {"owner":"10.0.0.1@-@1","instant":1,"after":9895604649984,"begun":1,"ended":2,"outcome":"OK"}`, sibling+`1 = {"instant":1}`)

	m := c.add()
	e := m.of("tick", 0, kind(event.JobError))
	if !strings.Contains(e.Reason, "copied from another one") {
		t.Errorf("the host says %q", e.Reason)
	}
	m.stop()
	out := c.registry("adopt")
	if !strings.HasPrefix(out, "adopted namespace "+c.ns+": the highest number in 1 job and 2 items is 9895604649984; ") {
		t.Errorf("adopt says %q", out)
	}
	c.refused(1, []string{"adopted already"}, "adopt", "--zk", c.zk, "--namespace", c.ns)
	m = c.add()
	if e := m.of("tick", 0, kind(event.ItemStarted)); e.Fence <= before {
		t.Errorf("an item runs with fence %d, expected one above %d", e.Fence, before)
	}
	m.stop()
}
