package e2e_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/event"
)

// The exit code of what was to be killed and runs on.
const exitRunning = 4

// kills is what kill says with --json.
func kills(t *testing.T, out string) (k admin.Kills) {
	t.Helper()
	if err := json.Unmarshal([]byte(out), &k); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return k
}

// TestKill ends runs by the admin address: one that listens, one that does not,
// and those that wait.
func TestKill(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.guestJob("greedy", "shardingTotalCount: 3", "maxConcurrency: 2", "timeout: 0s", "failover: true", `shardingItemParameters: {0: "hold:a", 1: spin, 2: "hold:a"}`)
	h := p.start("--data", p.path("data"), "--mount", "greedy="+p.path("gate")+":/gate", "--drain-timeout", "5s")
	h.of("greedy", 0, owned())
	p.refused(1, []string{`no job`}, "job", "kill", "none")
	p.refused(1, []string{`has no item 7`}, "job", "kill", "greedy", "--item", "7")
	p.refused(2, []string{`is not a run of greedy`}, "job", "kill", "greedy", "--run", "other/x/0")
	if out := p.must("job", "kill", "greedy"); out != "nothing of it runs\n" {
		t.Errorf("kill of an idle job says %q", out)
	}

	p.must("job", "run", "greedy")
	first := h.of("greedy", 0, kind(event.ItemStarted), item(0))
	h.of("greedy", 0, kind(event.ItemStarted), item(1))
	// Item 2 waits for a worker.
	k := kills(t, p.must("job", "kill", "greedy", "--item", "2", "--json"))
	if len(k.Runs) != 1 || k.Runs[0].State != admin.KillEnded || k.Runs[0].Outcome != "CANCELLED" || !strings.HasSuffix(k.Runs[0].Reason, "it had not started") {
		t.Errorf("of one that waits: %+v", k)
	}
	p.refused(1, []string{"is not running", first.RunID}, "job", "kill", "greedy", "--run", strings.Replace(first.RunID, "/t", "/t1", 1))
	out := p.must("job", "kill", "greedy", "--run", first.RunID)
	for _, want := range []string{first.RunID, "ended", "CANCELLED", "an operator killed it ("} {
		if !strings.Contains(out, want) {
			t.Errorf("kill says %q, want %q", out, want)
		}
	}
	// The one that spins hears nothing, and needs force.
	k = kills(t, p.must("job", "pause", "greedy", "--now", "--grace", "500ms", "--json"))
	if len(k.Runs) != 1 || k.Runs[0].Item != 1 || k.Runs[0].State != admin.KillEnded || !strings.HasSuffix(k.Runs[0].Reason, "its guest was stopped by force") {
		t.Errorf("of one that spins: %+v", k)
	}
	h.of("greedy", 0, kind(event.FireEnded))
	if n := len(h.all("greedy", 0, kind(event.ItemStarted))); n != 2 {
		t.Errorf("%d items were started, want the two that ran", n)
	}
	p.must("job", "resume", "greedy")

	// Whoever does not wait is told so.
	from := h.mark()
	p.must("job", "run", "greedy")
	h.of("greedy", from, kind(event.ItemStarted), item(1))
	p.refused(exitRunning, []string{"asked"}, "job", "kill", "greedy", "--grace", "1h", "--wait", "0s")
	k = kills(t, p.must("job", "kill", "greedy", "--grace", "0s", "--json")) // and now
	for _, r := range k.Runs {
		if r.State != admin.KillEnded || r.Outcome != "CANCELLED" {
			t.Errorf("%+v", r)
		}
	}

	// What goes for good has the drain timeout.
	from = h.mark()
	p.must("job", "run", "greedy")
	h.of("greedy", from, kind(event.ItemStarted), item(1))
	p.must("job", "remove", "greedy")
	h.of("greedy", from, kind(event.ItemEnded), item(1), outcome(abi.OutcomeCancelled))
	h.stop()
}

// TestClusterKill ends what runs on other hosts, by the admin address of one that
// runs nothing of it, and by the registry.
func TestClusterKill(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("busy", "shardingTotalCount: 2", "timeout: 0s", "failover: true", `shardingItemParameters: {0: "stubborn:a", 1: "hold:a"}`)
	c.job("clock", everySecond, "shardingTotalCount: 2")
	a := c.add()
	a.of("busy", 0, assigned(2))
	c.registry("job", "run", "busy")
	a.of("busy", 0, kind(event.ItemStarted), item(0))
	first := a.of("busy", 0, kind(event.ItemStarted), item(1))
	b := c.add() // which is given an item when that ends
	b.of("busy", 0, kind(event.JobAdded))
	k := kills(t, b.must("job", "kill", "busy", "--item", "1", "--json"))
	if len(k.Runs) != 1 || k.Runs[0].RunID != first.RunID || !strings.HasPrefix(k.Runs[0].Host, a.ip+"@-@") || k.Runs[0].State != admin.KillEnded ||
		!strings.HasSuffix(k.Runs[0].Reason, "its guest ended by itself") {
		t.Errorf("on the other host: %+v", k)
	}
	a.of("busy", first.at, kind(event.ItemCompleted), item(1), outcome(abi.OutcomeCancelled), because("an operator killed it ("))
	k = kills(t, c.registry("job", "kill", "busy", "--grace", "300ms", "--json"))
	if len(k.Runs) != 1 || k.Runs[0].Item != 0 || !strings.HasSuffix(k.Runs[0].Reason, "its guest was stopped by force") {
		t.Errorf("by the registry: %+v", k)
	}
	// Neither is run again.
	a.fires("clock", a.mark())
	for _, m := range c.members {
		if again := m.all("busy", 0, source(abi.SourceFailover)); len(again) > 0 {
			t.Errorf("%s ran it again: %+v", m.ip, again)
		}
	}
	nodes, err := c.session("").Read(t.Context(), registry.Children(tree.NewLayout(c.ns, "busy").Sibling()+"/kill"))
	if err != nil || len(nodes[0].Names) > 0 {
		t.Errorf("kills are left: %v, %v", nodes, err)
	}
	c.stopAll()
}

// first is the first of the hosts that has such an event.
func first(t *testing.T, members []*member, job string, tests ...test) *member {
	t.Helper()
	for {
		news := newsOf(members)
		for _, m := range members {
			if len(m.all(job, 0, tests...)) > 0 {
				return m
			}
		}
		waitAny(t, news)
	}
}

// TestClusterHoldsBack kills one host after the other with an item, and lets it
// run again.
func TestClusterHoldsBack(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("poison", "shardingTotalCount: 1", "failover: true", `jobParameter: "hold:a"`)
	members := []*member{c.add(), c.add(), c.add()}
	for _, m := range members {
		m.of("poison", 0, kind(event.JobAdded))
	}
	first(t, members, "poison", assigned(1))
	c.registry("job", "run", "poison")
	for range 2 {
		runs := first(t, members, "poison", kind(event.ItemStarted))
		runs.kill()
		members = slices.DeleteFunc(members, func(m *member) bool { return m == runs })
	}
	last := members[0]
	held := last.of("poison", 0, kind(event.ItemHeld), item(0), outcome("HELD"), because("wasmjob job release poison --item 0"))
	s := c.shards("poison")
	if i := s.Items[0]; i.State != "HELD" || i.Deaths != 2 || len(i.Died) != 2 || i.Held.IsZero() {
		t.Errorf("shards says %+v", i)
	}
	for _, args := range [][]string{{"job", "items", "poison"}, {"status", "poison"}} {
		if out := c.registry(args...); !strings.Contains(out, "item 0 is held back since ") || !strings.Contains(out, "wasmjob job release poison --item 0") {
			t.Errorf("%v says %q", args, out)
		}
	}
	c.refused(1, []string{"nothing would run: item 0 is held back: 'wasmjob job release poison --item 0' lets it run"}, "job", "run", "poison", "--registry", "zookeeper://"+c.zk, "--namespace", c.ns)
	if code, metrics := last.get("/metrics"); !strings.Contains(metrics, `wasmjob_items_held{job_name="poison"} 1`) {
		t.Errorf("the metrics do not show it: %d %s", code, metrics)
	}
	if out := last.must("job", "release", "poison"); out != "released items 0 of poison\n" {
		t.Errorf("release says %q", out)
	}
	if out := last.must("job", "release", "poison", "--item", "0"); out != "item 0 of poison is not held back\n" {
		t.Errorf("and then %q", out)
	}
	last.of("poison", held.at, kind(event.ItemReleased), item(0), because("an operator released it"))
	c.open("a")
	c.registry("job", "run", "poison")
	last.of("poison", held.at, kind(event.ItemCompleted), item(0), outcome(abi.OutcomeOK))
	last.stop()
}
