package e2e_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history/verify"
)

// TestVerifyLooksAtTheRegistry: the command finds what a host that is gone has
// left behind in a real registry, names the node, and is content when it is
// gone.
func TestVerifyLooksAtTheRegistry(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	// It fires only when triggered: a fire clears away the mark that verify is to find.
	c.job("tick", `cron: "0 0 0 1 1 ? 2099"`, "shardingTotalCount: 2", "failover: true")
	c.refused(2, []string{"the histories are missing, or --zk to look at the registry"}, "job", "verify")
	c.refused(2, []string{"there is no job in namespace " + c.ns}, "job", "verify", "--zk", c.zk, "--namespace", c.ns)
	a := c.add()
	a.of("tick", 0, assigned(2))
	c.registry("job", "run", "tick") // after it the host has looked at the marks once
	a.of("tick", 0, kind(event.FireEnded), outcome(abi.OutcomeOK))
	if out := c.registry("job", "verify"); !strings.Contains(out, "namespace "+c.ns+": 1 job, looked at ") || !strings.Contains(out, "0 violations") {
		t.Errorf("all is well, and verify says\n%s", out)
	}
	s := c.session("")
	orphan := tree.NewLayout(c.ns, "tick").Root() + "/sharding/1/failover"
	c.put(s, orphan+" = 127.0.1.9@-@gone")
	c.refused(1, []string{"violated 5  job tick item 1", "127.0.1.9@-@gone, which is gone", orphan, "1 violation,"},
		"job", "verify", "--zk", c.zk, "--namespace", c.ns, "--rest", "1s")
	if _, err := s.Commit(t.Context(), registry.Delete(orphan, registry.AnyVersion)); err != nil {
		t.Fatal(err)
	}
	var r verify.Report
	if err := json.Unmarshal([]byte(c.registry("job", "verify", "--json", a.history)), &r); err != nil {
		t.Fatal(err)
	}
	if r.Registry == nil || r.Registry.Jobs != 1 || r.Registry.Idle != 0 || r.Events == 0 || r.Violations != 0 {
		t.Errorf("with the history it says %+v", r)
	}
	a.stop()
	if out := c.registry("job", "verify"); !strings.Contains(out, "of 1 no host is there") {
		t.Errorf("no host is there, and verify says\n%s", out)
	}
}
