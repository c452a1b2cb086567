package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// given is what guests were given: "ITEM SOURCE PARAMETER", in order.
type given struct {
	mu   sync.Mutex
	runs []string
}

// guest takes so long for each item.
func (g *given) guest(takes func(inv *abi.Invocation) time.Duration) *guest {
	return &guest{digest: "given", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
		g.mu.Lock()
		g.runs = append(g.runs, fmt.Sprintf("%d %s %s", inv.Context.ShardingItem, inv.Context.Source, inv.Context.JobParameter))
		g.mu.Unlock()
		select {
		case <-time.After(takes(inv)):
			return ok
		case <-ctx.Done():
			return abi.Result{Outcome: abi.OutcomeCancelled, Message: context.Cause(ctx).Error()}
		}
	}}
}

// of are the runs of these sources, sorted.
func (g *given) of(sources ...abi.Source) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	runs := slices.DeleteFunc(slices.Clone(g.runs), func(run string) bool {
		return !slices.Contains(sources, abi.Source(strings.Fields(run)[1]))
	})
	slices.Sort(runs)
	return runs
}

func atOnce(*abi.Invocation) time.Duration { return 0 }

// args are arguments of a trigger; items "" are all, param "" is none.
func args(t *testing.T, items, param string) tree.TriggerArgs {
	t.Helper()
	given := &param
	if param == "" {
		given = nil
	}
	a, err := tree.NewTriggerArgs(items, given)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (n *node) triggers(t *testing.T, job string, a tree.TriggerArgs) {
	t.Helper()
	if _, err := n.operator().TriggerWith(t.Context(), job, a); err != nil {
		t.Fatal(err)
	}
}

// TestTriggerArgs: the items that were asked for run with the parameter that was given,
// no others do, and the next instant is as configured. The events say what it was.
func TestTriggerArgs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newCluster(t), &given{}
		d := definition("j", "0 * * * * ?", 6)
		d.JobParameter = "configured"
		n := c.start(1, job(d, g.guest(atOnce)))
		c.start(2, job(d, g.guest(atOnce)))
		time.Sleep(5 * time.Second)
		n.triggers(t, "j", args(t, "0,3-4", "day-1"))
		time.Sleep(time.Second)
		n.triggers(t, "j", args(t, "5", ""))
		time.Sleep(time.Second)
		n.triggers(t, "j", tree.TriggerArgs{})
		time.Sleep(time.Minute)
		want := []string{"0 trigger configured", "0 trigger day-1", "1 trigger configured", "2 trigger configured", "3 trigger configured", "3 trigger day-1",
			"4 trigger configured", "4 trigger day-1", "5 trigger configured", "5 trigger configured"}
		if got := g.of(abi.SourceTrigger); !slices.Equal(got, want) {
			t.Errorf("triggered runs %q, want %q\n%s", got, want, c.all())
		}
		if got := g.of(abi.SourceSchedule); len(got) != 6 || got[0] != "0 schedule configured" {
			t.Errorf("scheduled runs %q", got)
		}
		said := make(map[string]int)
		for _, e := range c.list(event.FireStarted, event.ItemStarted) {
			text := "none"
			if e.Args != nil {
				text = e.Args.Items
				if e.Args.Param != nil {
					text += " with " + *e.Args.Param
				}
			}
			if e.Trigger == 0 && e.Args != nil {
				t.Errorf("a scheduled fire has arguments: %+v", e)
			}
			if e.Kind == event.FireStarted && e.Trigger != 0 && e.Total != map[string]int{"none": 6, "5": 1, "0,3-4 with day-1": 3}[text] {
				t.Errorf("a fire with %s has %d items in all", text, e.Total)
			}
			said[string(e.Kind)+" "+text]++
		}
		if said["fire.started 0,3-4 with day-1"] != 2 || said["item.started 0,3-4 with day-1"] != 3 || said["fire.started 5"] != 1 || said["item.started 5"] != 1 {
			t.Errorf("events of triggers with arguments: %v", said)
		}
	})
}

// TestTriggerArgs_busy: no instant stands for a trigger with arguments, however busy its
// items are, and until it has begun others are queued behind it.
func TestTriggerArgs_busy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newCluster(t), &given{}
		busy := func(inv *abi.Invocation) time.Duration {
			if inv.Context.ShardingItem == 1 && inv.Context.Source != abi.SourceTrigger {
				return 15 * time.Second // it owes the next instant whenever it ends
			}
			return 0
		}
		n := c.start(1, job(definition("j", "0/10 * * * * ?", 2), g.guest(busy)))
		time.Sleep(time.Minute + 5*time.Second)
		asked := args(t, "", "day-1")
		n.triggers(t, "j", asked)
		time.Sleep(time.Second) // item 0 has run in the round
		n.triggers(t, "j", asked)
		for what, other := range map[string]tree.TriggerArgs{"a plain one": {}, "another parameter": args(t, "", "day-2"), "other items": args(t, "1", "day-1")} {
			if made, err := n.operator().TriggerWith(t.Context(), "j", other); err != nil || made.Queued == 0 || made.Trigger != 0 {
				t.Errorf("%s: %+v %v", what, made, err)
			}
		}
		time.Sleep(3 * time.Minute)
		want := []string{"0 trigger ", "0 trigger day-1", "0 trigger day-1", "0 trigger day-2", "1 trigger ", "1 trigger day-1", "1 trigger day-1", "1 trigger day-1", "1 trigger day-2"}
		if got := g.of(abi.SourceTrigger); !slices.Equal(got, want) {
			t.Errorf("triggered runs %q, want %q\n%s", got, want, c.all())
		}
		n.triggers(t, "j", args(t, "0", "day-2"))
	})
}

// TestTriggerArgs_elsewhere: a host that has none of the items is done with the trigger at
// once, though it is never idle: others are accepted.
func TestTriggerArgs_elsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newCluster(t), &given{}
		long := func(inv *abi.Invocation) time.Duration {
			if inv.Context.HostInfo == "busy" {
				return time.Hour
			}
			return 0
		}
		d := definition("j", "0 * * * * ?", 2)
		n := c.start(1, job(d, g.guest(long)))
		time.Sleep(time.Second)
		c.config = func(cfg *engine.Config) { cfg.HostInfo = "busy" }
		c.start(2, job(d, g.guest(long)))
		time.Sleep(time.Minute + 5*time.Second)
		owner := func(item int) string {
			return string(c.nodes(registry.Data(fmt.Sprintf("/test/j/sharding/%d/instance", item)))[0].Data)
		}
		idle := "0"
		if strings.HasPrefix(owner(1), "10.0.0.1@") {
			idle = "1"
		}
		for day := range 3 {
			n.triggers(t, "j", args(t, idle, fmt.Sprint("day-", day)))
			time.Sleep(time.Second)
		}
		want := []string{idle + " trigger day-0", idle + " trigger day-1", idle + " trigger day-2"}
		if got := g.of(abi.SourceTrigger); !slices.Equal(got, want) {
			t.Errorf("triggered runs %q, want %q\n%s", got, want, c.all())
		}
	})
}

// TestTriggerArgs_goesOn: whoever takes a run over, or goes on with it, has its parameter.
func TestTriggerArgs_goesOn(t *testing.T) {
	for how, end := range map[string]func(n *node){
		"its host dies":   func(n *node) { n.kill() },
		"its host drains": func(n *node) { n.stop() },
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, g := newCluster(t), &given{}
				c.config = func(cfg *engine.Config) { cfg.DrainTimeout = 5 * time.Second }
				first := func(inv *abi.Invocation) time.Duration {
					if inv.Context.Source == abi.SourceFailover {
						return 0
					}
					return time.Hour
				}
				d := definition("j", "", 2)
				d.Failover, d.JobParameter = true, "configured"
				n := c.start(1, job(d, g.guest(first)))
				time.Sleep(time.Second)
				n.triggers(t, "j", args(t, "1", "day-1"))
				time.Sleep(time.Second)
				c.start(2, job(d, g.guest(first)))
				time.Sleep(time.Second)
				end(n)
				<-n.done
				time.Sleep(time.Minute)
				if got, want := g.of(abi.SourceTrigger, abi.SourceFailover), []string{"1 failover day-1", "1 trigger day-1"}; !slices.Equal(got, want) {
					t.Errorf("runs %q, want %q\n%s", got, want, c.all())
				}
			})
		})
	}
}

// TestTriggerArgs_aStreamMoves: a streaming run that is handed back to its item's next
// owner goes on with its parameter.
func TestTriggerArgs_aStreamMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var mu sync.Mutex
		var got []string
		g := &guest{digest: "stream", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
			mu.Lock()
			got = append(got, inv.Context.JobParameter)
			second := len(got) > 1
			mu.Unlock()
			for !second && inv.Host.Cancelled() == abi.CancelNone {
				select {
				case <-time.After(100 * time.Millisecond):
				case <-ctx.Done():
					return abi.Result{Outcome: abi.OutcomeCancelled}
				}
			}
			if second {
				return ok
			}
			return abi.Result{Outcome: abi.OutcomeCancelled, Status: abi.StatusCancelled}
		}}
		d := definition("stream", "", 1)
		d.Props["streaming.process"] = "true"
		n := c.start(1, job(d, g))
		c.start(2, job(d, g))
		time.Sleep(10 * time.Second)
		n.triggers(t, "stream", args(t, "0", "day-1"))
		time.Sleep(1500 * time.Millisecond)
		owner, _, _ := strings.Cut(string(c.nodes(registry.Data("/test/stream/sharding/0/instance"))[0].Data), "@")
		if err := c.operate(func(ctx context.Context, r registry.Center) error {
			_, err := operate.SetServers(ctx, r, tree.NewLayout("test", "stream"), tree.Word{}, false, owner)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"day-1", "day-1"}; !slices.Equal(got, want) {
			t.Errorf("parameters %q, want %q\n%s", got, want, c.all())
		}
	})
}

// TestTriggerArgs_disabled: a disabled item that was asked for does not run, and the event
// says so; the others do.
func TestTriggerArgs_disabled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newCluster(t), &given{}
		n := c.start(1, job(definition("j", "", 3), g.guest(atOnce)))
		time.Sleep(time.Second)
		if err := n.operator().DisableItem(t.Context(), "j", 1); err != nil {
			t.Fatal(err)
		}
		n.triggers(t, "j", args(t, "0-1", "day-1"))
		time.Sleep(time.Minute)
		if got, want := g.of(abi.SourceTrigger), []string{"0 trigger day-1"}; !slices.Equal(got, want) {
			t.Errorf("runs %q, want %q", got, want)
		}
		if s := c.list(event.ItemSkipped); len(s) != 1 || *s[0].Item != 1 || s[0].Cause != event.SkipDisabled {
			t.Errorf("skipped %s", lines(s))
		}
		n.triggers(t, "j", args(t, "2", "day-2")) // the first one is over
	})
}

// TestTriggerArgs_itemsMove: hosts come and go while the trigger waits for busy items. Each
// runs once, with the parameter.
func TestTriggerArgs_itemsMove(t *testing.T) {
	for what, change := range map[string]func(c *cluster, j engine.Job, n *node){
		"a host comes":       func(c *cluster, j engine.Job, _ *node) { c.start(3, j) },
		"the busy host dies": func(c *cluster, j engine.Job, n *node) { n.kill() },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, g := newCluster(t), &given{}
				takes := func(inv *abi.Invocation) time.Duration {
					if inv.Context.Source == abi.SourceSchedule {
						return 10 * time.Second
					}
					return 0
				}
				d := definition("j", "0 0 * * * ?", 6)
				d.Failover = true
				n := c.start(1, job(d, g.guest(takes)))
				busy := c.start(2, job(d, g.guest(takes)))
				time.Sleep(time.Hour + time.Second)
				n.triggers(t, "j", args(t, "1-5", "day-1"))
				time.Sleep(time.Second)
				change(c, job(d, g.guest(takes)), busy)
				time.Sleep(2 * time.Minute)
				var want []string
				for i := 1; i <= 5; i++ {
					want = append(want, fmt.Sprintf("%d trigger day-1", i))
				}
				if got := g.of(abi.SourceTrigger); !slices.Equal(got, want) {
					t.Errorf("runs %q, want %q\n%s", got, want, c.all())
				}
			})
		})
	}
}

// TestTriggerArgs_unreadable: of what an external edit has made of the arguments nothing
// runs: it is not known which items are meant.
func TestTriggerArgs_unreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newCluster(t), &given{}
		n := c.start(1, job(definition("j", "", 3), g.guest(atOnce)))
		time.Sleep(time.Second)
		id := n.host.Status().Instance
		c.commit(registry.Set("/test/j/trigger", []byte(`{"items":"all"}`), registry.AnyVersion), registry.Create("/test/j/trigger/"+id, []byte("args")))
		time.Sleep(time.Second)
		if s := c.list(event.FireSkipped); len(g.of(abi.SourceTrigger)) != 0 || len(s) != 1 || s[0].Cause != event.SkipRefused {
			t.Errorf("ran %q, skipped %s", g.of(abi.SourceTrigger), lines(s))
		}
		n.triggers(t, "j", tree.TriggerArgs{})
		time.Sleep(time.Second)
		if got := g.of(abi.SourceTrigger); len(got) != 3 {
			t.Errorf("a plain trigger after that: %q", got)
		}
	})
}
