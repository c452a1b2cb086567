package coordination_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// TestOperator: servers, items and instances, and what an operator gets as answers
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
	if stopped, err := operate.Stop(t.Context(), c.op, c.layout, said, tree.ProcessOf(h[1].Self.ID), []string{h[1].Self.ID}); stopped != 0 || err != nil {
		t.Errorf("stopping it twice: %d stopped, %v", stopped, err)
	}
	must(t, c.operate(moves.SetServers(c.layout, false)))
	want := "trigger: nothing would run: the job is paused on all servers that have an instance (10.0.0.1); 'wasmjob job resume demo' lets it run"
	if err := c.operate(moves.TriggerJob(c.layout)); !errors.Is(err, operate.ErrNothingRuns) || err.Error() != want {
		t.Errorf("trigger of a disabled job: %v, want %s", err, want)
	}
	must(t, c.operate(moves.SetServers(c.layout, true, "10.0.0.1")))
	must(t, c.operate(moves.TriggerJob(c.layout)))
	must(t, c.operate(func(ctx context.Context, r registry.Center) error {
		_, err := r.Commit(ctx, registry.Ensure(tree.NewLayout(c.layout.Namespace, "all alone").Config()))
		return err
	}))
	want = "trigger: nothing would run: no host has the job; 'wasmjob why \"all alone\"' says why, as far as that is known"
	if err := c.operate(moves.TriggerJob(tree.NewLayout(c.layout.Namespace, "all alone"))); !errors.Is(err, operate.ErrNothingRuns) || err.Error() != want {
		t.Errorf("trigger of a job without a host: %v, want %s", err, want)
	}
	nobody := tree.NewLayout(c.layout.Namespace, "nobody")
	for name, m := range map[string]move{"trigger": moves.TriggerJob(nobody), "set servers": moves.SetServers(nobody, true), "remove": moves.Remove(nobody, true),
		"apply definition": moves.ApplyDefinition(nobody, c.file, "", nil, nil), "registry time": moves.RegistryTime(nobody, new(time.Time))} {
		if err := c.operate(m); !errors.Is(err, tree.ErrRemoved) {
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

// TestShutdownOfAJavaHost: its running marks are persistent with failover, so
// that without its instance node they look as those of a host that crashed.
func TestShutdownOfAJavaHost(t *testing.T) {
	t.Parallel()
	t.Run("it runs", func(t *testing.T) {
		c, _, j := runningJava(t)
		err := c.operate(moves.StopInstance(c.layout, j.id))
		if !errors.Is(err, operate.ErrJavaRuns) || !strings.Contains(err.Error(), j.executing.String()) || !strings.Contains(err.Error(), "--server 10.0.0.9") {
			t.Errorf("shutdown while it runs %s: %v", j.executing, err)
		}
		if !j.joined() {
			t.Fatal("its instance node was removed")
		}
		j.finish = true
		j.rest()
		must(t, c.operate(moves.StopInstance(c.layout, j.id)))
		if j.joined() {
			t.Error("its instance node is still there")
		}
	})
	t.Run("it begins meanwhile", func(t *testing.T) {
		c, _, j := runningJava(t)
		items := slices.Clone(j.executing)
		j.finish = true
		j.rest()
		op := c.op
		defer func() { c.op = op }()
		c.op = beforeCommits{Center: op, do: func() {
			c.now = c.now.Add(10 * time.Second)
			j.due()
			j.rest()
		}}
		if err := c.operate(moves.StopInstance(c.layout, j.id)); !errors.Is(err, operate.ErrJavaRuns) {
			t.Errorf("shutdown while it begins %s: %v", items, err)
		}
		if !j.joined() {
			t.Error("its instance node was removed")
		}
	})
	t.Run("without failover", func(t *testing.T) {
		c, _, j := runningJava(t)
		for _, i := range j.executing { // as it makes them then
			must(t, second(j.rc.Commit(c.ctx, registry.Delete(c.mark(i, "running"), registry.AnyVersion))))
			must(t, second(j.rc.Commit(c.ctx, registry.CreateEphemeral(c.mark(i, "running"), []byte(j.id)))))
		}
		must(t, c.operate(moves.StopInstance(c.layout, j.id)))
	})
	t.Run("ours", func(t *testing.T) {
		c, h, _ := runningJava(t)
		c.now = c.now.Add(10 * time.Second)
		must(t, h[0].look())
		must(t, h[0].fire(c.now))
		if len(h[0].running()) == 0 {
			t.Fatal("ours runs nothing")
		}
		must(t, c.operate(moves.StopInstance(c.layout, h[0].Self.ID)))
	})
}

// TestRemoveLarge: a job of 30,000 nodes goes in several commits, while hosts
// watch; a removal that had to start over does not say that there was nothing.
func TestRemoveLarge(t *testing.T) {
	t.Parallel()
	c, h := group(t, 1, func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = 15_000 })
	r := registrytest.Faulty(c.op, func(call int, op string) registrytest.Fault {
		if call == 8 && op == "commit" {
			return registrytest.LostAnswer
		}
		return registrytest.NoFault
	})
	commits := 0
	counted := counting{r, &commits}
	must(t, perform(context.Background(), counted, moves.Remove(c.layout, true)))
	if commits < 5 {
		t.Errorf("it took %d commits", commits)
	}
	left := func() bool {
		names := c.children(c.layout.Sibling())
		return c.node(c.layout.Root()).Exists || !slices.Equal(names, []string{"wanted"})
	}
	if left() {
		t.Error("something is left besides what is wanted")
	}
	if err := perform(context.Background(), c.op, moves.Remove(c.layout, true)); !errors.Is(err, tree.ErrRemoved) {
		t.Errorf("removing it again: %v", err)
	}
	must(t, second(h[0].step()))
	c.settle()
	if left() {
		t.Error("a host brought something back")
	}
	// The last commit took effect, and the answer was lost.
	small, _ := group(t, 1, nil)
	lossy := registrytest.Faulty(small.op, func(_ int, op string) registrytest.Fault {
		if op == "commit" {
			return registrytest.LostAnswer
		}
		return registrytest.NoFault
	})
	must(t, perform(context.Background(), lossy, moves.Remove(small.layout, false)))
}

// counting counts commits.
type counting struct {
	registry.Center
	commits *int
}

func (c counting) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	*c.commits++
	return c.Center.Commit(ctx, ops...)
}

// TestTriggerOfWhatCannotRun: a trigger none of whose items may run is refused, and says why; one of
// whose items some may run is not.
func TestTriggerOfWhatCannotRun(t *testing.T) {
	t.Parallel()
	c, _ := group(t, 1, func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = 4 })
	trigger := func(items, want string) {
		t.Helper()
		args, err := tree.NewTriggerArgs(items, nil)
		must(t, err)
		err = c.operate(moves.TriggerWith(c.layout, args))
		if want == "" {
			must(t, err)
			c.settle()
			return
		}
		if want = "trigger: nothing would run: " + want; !errors.Is(err, operate.ErrNothingRuns) || err.Error() != want {
			t.Errorf("trigger of items %q: %v, want %s", items, err, want)
		}
	}
	must(t, c.operate(moves.SetItem(c.layout, 1, false)))
	trigger("1", "item 1 is paused: 'wasmjob job resume demo --item 1' lets it run")
	held := c.node(c.layout.Record(2))
	c.hand(registry.Set(c.layout.Record(2), tree.Record{Held: 1, Deaths: 3}.Data(), held.Version))
	trigger("2", "item 2 is held back: 'wasmjob job release demo --item 2' lets it run")
	trigger("1-2", "item 1 is paused: 'wasmjob job resume demo --item 1' lets it run; item 2 is held back: 'wasmjob job release demo --item 2' lets it run")
	must(t, c.operate(moves.SetItem(c.layout, 0, false)))
	must(t, c.operate(moves.SetItem(c.layout, 3, false)))
	trigger("", "items 0-1,3 are paused: 'wasmjob job resume demo --item N' lets one run; item 2 is held back: 'wasmjob job release demo --item 2' lets it run")
	must(t, c.operate(moves.SetItem(c.layout, 3, true)))
	trigger("0-3", "")
	must(t, c.operate(moves.SetItem(c.layout, 2, false)))
	must(t, c.operate(moves.SetItem(c.layout, 3, false)))
	trigger("", "items 0-3 are paused: 'wasmjob job resume demo --item N' lets one run")
	must(t, c.operate(moves.SetItem(c.layout, 0, true)))
	trigger("", "")
}

// TestTriggerKeepsPending: no trigger is lost, none is doubled.
func TestTriggerKeepsPending(t *testing.T) {
	t.Parallel()
	c, h := group(t, 2, nil)
	trigger := func() { must(t, c.operate(moves.TriggerJob(c.layout))) }
	node := func(h *simHost) registry.Node { return c.node(c.layout.Root() + "/trigger/" + h.Self.ID) }
	trigger()
	first := node(h[0]).Czxid
	if node(h[1]).Czxid != first {
		t.Error("a round has two numbers")
	}
	must(t, second(h[1].step())) // consumes its own
	trigger()
	if node(h[0]).Czxid != first || node(h[1]).Czxid <= first {
		t.Error("a pending trigger was replaced")
	}
	c.hand(registry.Create(c.layout.Root()+"/trigger/10.9.9.9@-@gone", nil))
	trigger()
	if c.node(c.layout.Root() + "/trigger/10.9.9.9@-@gone").Exists {
		t.Error("a trigger of nobody is kept")
	}
	for _, host := range h {
		host.crash()
	}
	if err := c.operate(moves.TriggerJob(c.layout)); err == nil || !strings.Contains(err.Error(), "no host has the job") {
		t.Errorf("nobody is there: %v", err)
	}
}

// TestTriggerWhileHostsChange: a job is triggered just when its items are divided anew, at each commit of that, and before the
// trigger's own commit hosts come and go. Each item runs once in the round.
func TestTriggerWhileHostsChange(t *testing.T) {
	t.Parallel()
	type group = []*simHost
	changes := map[string]func(c *chronicle, h group){
		"one comes":                  func(c *chronicle, h group) { must(t, second(c.addHost("D", "10.0.0.4").join(c.file))) },
		"one dies":                   func(c *chronicle, h group) { h[2].crash() },
		"one dies and another comes": func(c *chronicle, h group) { h[2].crash(); must(t, second(c.addHost("D", "10.0.0.4").join(c.file))) },
		"one dies and comes back":    func(c *chronicle, h group) { h[2].crash(); must(t, second(h[2].join(c.file))) },
		"the leader dies":            func(c *chronicle, h group) { h[0].crash() },
	}
	for name, change := range changes {
		for nth, more := 0, true; more; nth++ {
			more = false
			t.Run(fmt.Sprintf("%s, commit %d", name, nth), func(t *testing.T) {
				more = triggerAtCommit(t, 6, nth, change, nil)
				triggerAtCommit(t, 6, nth, change, beginAtOnce)
				triggerAtCommit(t, 6, nth, change, losesSession)
			})
		}
		t.Run(name+", between the trigger's look and its commit", func(t *testing.T) {
			c, h := group3(t, 6)
			once := sync.OnceFunc(func() { change(c, h); c.settle() })
			c.op = beforeCommits{Center: c.op, do: once}
			must(t, c.operate(moves.TriggerJob(c.layout)))
			eachInRound(t, c)
		})
	}
}

// TestTriggerWhileManyItemsMove: the same, of a division that takes several commits.
func TestTriggerWhileManyItemsMove(t *testing.T) {
	t.Parallel()
	change := func(c *chronicle, h []*simHost) {
		h[2].crash()
		must(t, second(c.addHost("D", "10.0.0.4").join(c.file)))
	}
	for nth, more := 0, true; more; nth += extentOfTriggers {
		more = triggerAtCommit(t, 3000, nth, change, nil)
		triggerAtCommit(t, 3000, nth, change, beginAtOnce)
		triggerAtCommit(t, 3000, nth, change, losesSession)
		for later := 1; later < 3; later++ {
			triggerAtCommit(t, 3000, nth, change, losesSessionAfter(later))
		}
	}
}

func group3(t *testing.T, total int) (*chronicle, []*simHost) {
	return group(t, 3, func(cfg *jobconfig.Configuration) { cfg.ShardingTotalCount = total })
}

// triggerAtCommit triggers before the nth commit after the change, and has then, which knows whose commit that is, do something; it
// reports whether there was one.
func triggerAtCommit(t *testing.T, total, nth int, change func(c *chronicle, h []*simHost), then func(c *chronicle, host *simHost) registrytest.Fault) (reached bool) {
	t.Helper()
	c, h := group3(t, total)
	change(c, h)
	for _, host := range c.hosts {
		host.plan = func(_ int, op string) registrytest.Fault {
			if op != "commit" || reached {
				return registrytest.NoFault
			}
			if nth--; nth >= 0 {
				return registrytest.NoFault
			}
			reached = true
			must(t, c.operate(moves.TriggerJob(c.layout)))
			if then == nil {
				return registrytest.NoFault
			}
			return then(c, host)
		}
	}
	c.settle()
	for _, host := range c.hosts {
		host.plan = nil
	}
	if reached {
		eachInRound(t, c)
	}
	return reached
}

// beginAtOnce has the other hosts that have items begin before the commit, and they have seen nothing but the trigger by then.
func beginAtOnce(c *chronicle, host *simHost) registrytest.Fault {
	for _, other := range c.hosts {
		if other != host && other.alive() && len(other.owned()) > 0 {
			other.View.Trigger = c.node(c.layout.Trigger(other.Self.ID)).Czxid
			c.must(second(other.followUp()))
		}
	}
	return registrytest.NoFault
}

// losesSession has the host's session end with the commit, and the host come back.
func losesSession(c *chronicle, host *simHost) registrytest.Fault {
	for _, other := range c.hosts {
		other.plan = nil
	}
	return registrytest.ExpireBefore
}

// losesSessionAfter has others begin before the commit, and the host's session end so many commits later.
func losesSessionAfter(commits int) func(c *chronicle, host *simHost) registrytest.Fault {
	return func(c *chronicle, host *simHost) registrytest.Fault {
		beginAtOnce(c, host)
		host.plan = func(_ int, op string) registrytest.Fault {
			if op != "commit" {
				return registrytest.NoFault
			}
			if commits--; commits > 0 {
				return registrytest.NoFault
			}
			host.plan = nil
			return registrytest.ExpireBefore
		}
		return registrytest.NoFault
	}
}

// eachInRound demands that all items run in the round of the newest trigger.
func eachInRound(t *testing.T, c *chronicle) {
	t.Helper()
	round := c.node(c.layout.Triggers()).Mzxid
	for range 10 {
		c.settle()
		for _, host := range c.hosts {
			if host.alive() && len(host.running()) > 0 {
				must(t, host.complete(host.running(), "OK", ""))
			}
		}
	}
	missed := 0
	for i := range c.file.ShardingTotalCount {
		if r := c.record(i); r.Trigger != round || r.Open() {
			if missed++; missed <= 3 {
				t.Errorf("item %d is in round %d, expected %d: %+v", i, r.Trigger, round, r)
			}
		}
	}
	if missed > 3 {
		t.Errorf("%d items are not in the round", missed)
	}
	c.finish()
}

// TestWhatAnOperatorSwitchedStaysSoAfterARestart: a server that was disabled is
// not enabled by its host's restart, and the other way round; nor by the loss
// of a session.
func TestWhatAnOperatorSwitchedStaysSoAfterARestart(t *testing.T) {
	t.Parallel()
	for _, disabled := range []bool{false, true} { // what the definition says
		c, h := group(t, 2, func(cfg *jobconfig.Configuration) { cfg.Disabled = disabled })
		a, node := h[0], c.layout.Root()+"/servers/"+h[0].ip
		before := string(c.node(node).Data)
		must(t, c.operate(moves.SetServers(c.layout, disabled, a.ip)))
		want := string(c.node(node).Data)
		if before == want {
			t.Fatalf("the server was and is %s", want)
		}
		for _, end := range []func(){a.crash, func() { must(t, a.leave("left", nil)) }} {
			must(t, a.look())
			end()
			if got := string(c.node(node).Data); got != want {
				t.Errorf("disabled: %v; while the host is away its server is %q, want %q", disabled, got, want)
			}
			must(t, second(a.join(c.file)))
			c.settle()
			if got := string(c.node(node).Data); got != want {
				t.Errorf("disabled: %v; after a restart the server is %q, want %q", disabled, got, want)
			}
			if got := len(c.assignments()[a.Self.ID]) > 0; got != disabled {
				t.Errorf("disabled: %v; the host has %s", disabled, c.assignments()[a.Self.ID])
			}
		}
	}
}
