package coordination_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
)

// TestOperator: servers, items and instances, and what an operator is told
// about things that are not there.
func TestOperator(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, nil)
	state := func(ip string) string { return string(c.node(c.layout.Root() + "/servers/" + ip).Data) }
	must(t, c.operate(moves.SetServers(c.layout, false, "10.0.0.1", "10.0.0.9"))) // one of them unknown so far
	if state("10.0.0.1") != "DISABLED" || state("10.0.0.2") != "ENABLED" || state("10.0.0.9") != "DISABLED" {
		t.Error("wrong servers were disabled")
	}
	must(t, c.operate(moves.SetServers(c.layout, true)))
	if state("10.0.0.1") != "ENABLED" || state("10.0.0.9") != "ENABLED" {
		t.Error("not all servers were enabled")
	}
	for range 2 { // twice is once
		must(t, c.operate(moves.SetItem(c.layout, 3, false)))
	}
	if !c.node(c.mark(3, "disabled")).Exists {
		t.Error("item 3 is not disabled")
	}
	for range 2 {
		must(t, c.operate(moves.SetItem(c.layout, 3, true)))
	}
	if c.node(c.mark(3, "disabled")).Exists {
		t.Error("item 3 is disabled")
	}
	if err := c.operate(moves.SetItem(c.layout, 99, true)); err == nil || !strings.Contains(err.Error(), "no item 99") {
		t.Errorf("item 99: %v", err)
	}
	must(t, c.operate(moves.StopInstance(c.layout, h[1].Self.ID)))
	if err := c.operate(moves.StopInstance(c.layout, h[1].Self.ID)); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("stopping it twice: %v", err)
	}
	must(t, c.operate(moves.SetServers(c.layout, false)))
	want := "trigger: nothing would run: the job is disabled on all servers that have an instance (10.0.0.1); 'wasmjob enable demo' lets it run"
	if err := c.operate(moves.TriggerJob(c.layout)); !errors.Is(err, co.ErrNothingRuns) || err.Error() != want {
		t.Errorf("trigger of a disabled job: %v, want %s", err, want)
	}
	must(t, c.operate(moves.SetServers(c.layout, true, "10.0.0.1")))
	must(t, c.operate(moves.TriggerJob(c.layout)))
	nobody := co.NewLayout(c.layout.Namespace, "nobody")
	for name, m := range map[string]move{"trigger": moves.TriggerJob(nobody), "set servers": moves.SetServers(nobody, true), "remove": moves.Remove(nobody, true),
		"apply definition": moves.ApplyDefinition(nobody, c.file, nil, nil, nil), "registry time": moves.RegistryTime(nobody, new(time.Time))} {
		if err := c.operate(m); !errors.Is(err, co.ErrRemoved) {
			t.Errorf("%s of a job that is not there: %v", name, err)
		}
	}
	if c.node(nobody.Root()).Exists || c.node(nobody.Sibling()).Exists {
		t.Error("a job was made by operating it")
	}
	var now time.Time
	must(t, c.operate(moves.RegistryTime(c.layout, &now)))
	if now.IsZero() {
		t.Error("the registry has no clock")
	}
}

// TestMisfireMarks: marks that are there, items that are not, and very many.
func TestMisfireMarks(t *testing.T) {
	t.Parallel()
	c, h := group(t, 1, func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = 9000 })
	must(t, h[0].perform(moves.MarkMisfire(c.layout, co.Items{3, 5})))
	var items co.Items
	for i := range 9003 { // the last three do not exist
		items = append(items, i)
	}
	must(t, h[0].perform(moves.MarkMisfire(c.layout, items)))
	for _, i := range []int{0, 3, 5, 8999} {
		if !c.node(c.mark(i, "misfire")).Exists {
			t.Errorf("item %d is not marked", i)
		}
	}
}

// TestSweep: marks of nobody go, marks of the living stay, and what is owed is
// left to Recover.
func TestSweep(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.Failover = true })
	c.pass(time.Second)
	a, b := h[0], h[1]
	must(t, a.complete(a.running(), "OK", ""))
	owed := b.running()
	b.crash()
	mine := a.owned()
	// With failover on, marks of somebody unknown would be owed.
	must(t, c.edit(func(cfg *jobconfig.Configuration) { cfg.Failover = false }))
	c.hand(
		registry.Create(c.mark(mine[0], "running"), []byte("10.9.9.9@-@gone")),
		registry.Create(c.mark(mine[1], "failovering"), []byte("10.9.9.9@-@gone")),
		registry.Create(c.mark(mine[2], "running"), []byte(a.Self.ID)), // A lives and knows nothing of it
		registry.Create(c.layout.Root()+"/trigger/10.9.9.9@-@gone", nil),
		registry.Create(c.layout.Root()+"/sharding/x", nil),
	)
	must(t, a.look())
	var swept co.Swept
	must(t, a.perform(moves.Sweep(&a.Member, c.now, &swept)))
	slices.Sort(swept.Nodes)
	want := []string{c.mark(mine[0], "running"), c.mark(mine[1], "failovering"), c.mark(mine[2], "running"), c.layout.Root() + "/trigger/10.9.9.9@-@gone"}
	slices.Sort(want)
	if !slices.Equal(swept.Nodes, want) {
		t.Errorf("swept %v, want %v", swept, want)
	}
	for _, i := range owed {
		if !c.node(c.mark(i, "running")).Exists {
			t.Errorf("the mark of item %d, which is owed, was swept", i)
		}
	}
	// A begins after the marks were read: the new mark stays.
	c.hand(registry.Create(c.mark(mine[0], "failovering"), []byte("10.9.9.9@-@gone")), registry.Create(c.mark(mine[1], "failovering"), []byte(a.Self.ID)))
	c.now = c.now.Add(10 * time.Second)
	sweeper := c.addHost("D", "10.0.0.4")
	must(t, second(sweeper.join(c.file)))
	must(t, sweeper.look())
	sweeper.beforeCommit(func() { must(t, a.fire(c.now)) })
	swept = co.Swept{}
	must(t, sweeper.perform(moves.Sweep(&sweeper.Member, c.now, &swept)))
	if !slices.Equal(swept.Nodes, []string{c.mark(mine[0], "failovering")}) {
		t.Errorf("swept %v", swept)
	}
	for _, i := range mine {
		if !c.node(c.mark(i, "running")).Exists {
			t.Errorf("the mark of item %d, which runs, was swept", i)
		}
	}
}
