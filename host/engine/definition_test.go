package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

func TestDefinition_retriedWhenTheRegistryRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var bad atomic.Bool
		c.wrap = func(_ int, l *lease) registry.Center {
			return planned(l, func(string) registrytest.Fault {
				if bad.Load() {
					return registrytest.Refused
				}
				return registrytest.NoFault
			})
		}
		g := sleeper(time.Second)
		d := definition("j", "0 * * * * ?", 1)
		n := c.start(1, job(d, g))
		time.Sleep(70 * time.Second)
		bad.Store(true)
		d.ShardingTotalCount = 3
		n.host.Apply([]engine.Job{job(d, g)}, nil)
		time.Sleep(3 * time.Second)
		bad.Store(false)
		time.Sleep(5 * time.Second)
		if s := n.host.Status().Jobs[0]; s.ShardingTotalCount != 3 || s.State != engine.JobReady || len(s.Items) != 3 {
			t.Errorf("status %+v, want 3 items", s)
		}
	})
}

func TestDefinition_itemBeyondTheTotalDoesNotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("j", "0 * * * * ?", 3)
		g := sleeper(90 * time.Second)
		n := c.start(1, job(d, g))
		time.Sleep(65 * time.Second)
		d.ShardingTotalCount = 1
		n.host.Apply([]engine.Job{job(d, g)}, nil)
		time.Sleep(10 * time.Minute)
		for _, item := range []int{1, 2} {
			if got := c.starts(item); len(got) != 1 {
				t.Errorf("item %d started %q, want only before the total count was lowered\n%s", item, got, c.all())
			}
		}
		if items := n.host.Status().Jobs[0].Items; len(items) != 1 {
			t.Errorf("items %+v, want one", items)
		}
		if in := c.nodes(registry.Children("/test/j/sharding")); !slices.Equal(in[0].Names, []string{"0"}) {
			t.Errorf("item nodes %v, want 0", in[0].Names)
		}
	})
}

func TestDefinition_switchesChangeWhileItemsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("j", "0 * * * * ?", 4)
		d.Failover = true
		var l lone
		g := l.guest(func(item int) time.Duration { return time.Duration(item)*40*time.Second + time.Second })
		hosts := []*node{c.start(1, job(d, g)), c.start(2, job(d, g))}
		apply := func() {
			for _, n := range hosts {
				n.host.Apply([]engine.Job{job(d, g)}, nil)
			}
		}
		for k := range 16 {
			time.Sleep(47 * time.Second)
			d.MonitorExecution = k%2 == 0
			d.Failover = k%4 < 2 && d.MonitorExecution
			d.Misfire = k%8 < 4
			apply()
		}
		time.Sleep(5 * time.Minute)
		l.check(t, c)
		// Wait for a moment without runs, and look for marks.
		d.Cron = ""
		apply()
		time.Sleep(5 * time.Minute)
		var queries []registry.Query
		for i := range 4 {
			queries = append(queries, registry.Children(fmt.Sprintf("/test/j/sharding/%d", i)))
		}
		for _, n := range c.nodes(queries...) {
			if !slices.Equal(n.Names, []string{"instance"}) {
				t.Errorf("%s holds %v while nothing runs", n.Path, n.Names)
			}
		}
	})
}

func TestDefinition_switchesChangeDuringAFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("j", "0 * * * * ?", 3)
		d.Failover = true
		var l lone
		g := l.guest(func(int) time.Duration { return 50 * time.Second })
		hosts := []*node{c.start(1, job(d, g)), c.start(2, job(d, g)), c.start(3, job(d, g))}
		time.Sleep(105 * time.Second) // 1:45, they run
		hosts[2].kill()
		<-hosts[2].done
		time.Sleep(5 * time.Second) // one of the others has taken over
		d.MonitorExecution, d.Failover = false, false
		for _, n := range hosts[:2] {
			n.host.Apply([]engine.Job{job(d, g)}, nil)
		}
		time.Sleep(5 * time.Minute)
		l.check(t, c)
		over := 0
		for _, e := range c.list(event.ItemCompleted) {
			if e.Source == abi.SourceFailover {
				over++
			}
		}
		if over != 1 {
			t.Errorf("%d items failed over, want 1\n%s", over, c.all())
		}
	})
}

// TestAChangedTimeZoneOrKindOfScheduleTakesEffect: in the registry, as from a
// console: the zone alone; from cron to none; and back.
func TestAChangedTimeZoneOrKindOfScheduleTakesEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("zoned", "0 0 12 * * ?", 1)
		n := c.start(1, job(d, sleeper(time.Second)))
		time.Sleep(time.Second)
		l := tree.NewLayout("test", "zoned")
		set := func(cron, zone string) {
			t.Helper()
			d.Cron, d.TimeZone = cron, zone
			c.commit(registry.Set(l.Root()+"/config", d.YAML(), registry.AnyVersion))
			time.Sleep(time.Second)
		}
		day := func(want ...string) {
			t.Helper()
			before := len(c.list(event.ItemStarted))
			time.Sleep(24 * time.Hour)
			var got []string
			for _, e := range c.list(event.ItemStarted)[before:] {
				got = append(got, fmt.Sprintf("%s %s", e.Time.UTC().Format("15:04"), e.Source))
			}
			if !slices.Equal(got, want) {
				t.Errorf("with cron %q in %s a day has %v, want %v", d.Cron, d.TimeZone, got, want)
			}
		}
		day("12:00 schedule")
		set(d.Cron, "GMT+05:00")
		day("07:00 schedule")
		set("", "GMT+05:00")
		day()
		if err := n.operator().Trigger(context.Background(), "zoned"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if e := c.list(event.ItemCompleted); e[len(e)-1].Source != abi.SourceTrigger || e[len(e)-1].Outcome != abi.OutcomeOK {
			t.Errorf("a trigger of a job without cron: %s", lines(e))
		}
		set("0 0 12 * * ?", "GMT")
		day("12:00 schedule")
	})
}

// allowed is a module with a grant.
type allowed struct {
	*guest
	grant string
}

func (a allowed) Granted() string { return a.grant }

// What the operator grants anew, or takes away, holds from the next fire on; a run keeps what it
// began with.
func TestAnotherGrantIsAnotherExecutor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var ran [3]atomic.Int64
		with := func(n int, grant string) engine.Job {
			g := sleeper(90 * time.Second)
			run := g.run
			g.run = func(ctx context.Context, inv *abi.Invocation) abi.Result {
				ran[n].Add(1)
				return run(ctx, inv)
			}
			j := job(definition("j", "0 0/5 * * * ?", 1), g)
			j.Module = allowed{g, grant}
			return j
		}
		n := c.start(1, with(0, "much"))
		time.Sleep(5*time.Minute + 30*time.Second) // it runs
		n.host.Apply([]engine.Job{with(1, "nothing")}, nil)
		time.Sleep(3 * time.Minute)
		if ran[0].Load() != 1 || ran[1].Load() != 0 {
			t.Fatalf("%d and %d runs; the one at hand ends as it began", ran[0].Load(), ran[1].Load())
		}
		time.Sleep(5 * time.Minute)
		n.host.Apply([]engine.Job{with(2, "much")}, nil)
		time.Sleep(5 * time.Minute)
		if a, b, c := ran[0].Load(), ran[1].Load(), ran[2].Load(); a != 1 || b != 1 || c != 1 {
			t.Errorf("%d, %d and %d runs", a, b, c)
		}
	})
}
