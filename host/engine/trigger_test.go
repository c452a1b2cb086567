package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// TestATriggerDoesNotWaitForABusyItem: one item of a host is never idle. The other one
// begins each round at once; of the busy one the history says what became of the round.
func TestATriggerDoesNotWaitForABusyItem(t *testing.T) {
	for name, tc := range map[string]struct {
		cron  string
		takes time.Duration
		runs  int // of the busy item, in the two rounds
	}{
		"never idle":                {"0/10 * * * * ?", 15 * time.Second, 0},
		"idle before the next fire": {"0 * * * * ?", 15 * time.Second, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				g := &guest{digest: "d1", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
					if inv.Context.ShardingItem == 1 {
						time.Sleep(tc.takes)
					}
					return ok
				}}
				n := c.start(1, job(definition("busy", tc.cron, 2), g))
				time.Sleep(time.Minute + 5*time.Second) // item 1 runs
				ran := func() (by [2]int) {
					for _, e := range c.list(event.ItemCompleted) {
						if e.Source == abi.SourceTrigger {
							by[*e.Item]++
						}
					}
					return by
				}
				for round := 1; round <= 2; round++ {
					if err := n.operator().Trigger(t.Context(), "busy"); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
					if round == 1 && ran() != [2]int{1, 0} {
						t.Errorf("a second after the trigger %v runs of the items, want the idle one's", ran())
					}
				}
				time.Sleep(time.Minute)
				if by := ran(); by[0] != 2 || by[1] > tc.runs || by[1] < min(tc.runs, 1) {
					t.Errorf("%v runs of the items in two rounds", by)
				}
				told := make(map[int64]bool)
				for _, e := range append(c.list(event.ItemSkipped), c.list(event.ItemCompleted)...) {
					if e.Trigger != 0 && *e.Item == 1 {
						told[e.Trigger] = true
					}
				}
				if len(told) == 0 {
					t.Error("nothing says what became of the rounds for the busy item")
				}
				if t.Failed() {
					t.Log("\n" + c.all())
				}
			})
		})
	}
}

// TestATriggerSurvivesItsHost has a host die that was still busy when the job
// was triggered. Its items run in the round all the same, once, on the host
// that has run its own part already.
func TestATriggerSurvivesItsHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		busy := make(chan struct{})
		g := &guest{digest: "d1", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
			if inv.Context.HostInfo == "busy" && inv.Context.Source == abi.SourceSchedule {
				select {
				case <-busy:
				case <-ctx.Done():
					return abi.Result{Outcome: abi.OutcomeCancelled}
				}
			}
			return ok
		}}
		d := definition("survives", "0 0 * * * ?", 4)
		first := c.start(1, job(d, g))
		time.Sleep(time.Second)
		c.config = func(cfg *engine.Config) { cfg.HostInfo = "busy" }
		second := c.start(2, job(d, g))
		time.Sleep(time.Hour) // a scheduled fire: the second host is busy with it
		if err := first.operator().Trigger(t.Context(), "survives"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		second.kill()
		<-second.done
		time.Sleep(2 * time.Minute)
		ran := make(map[int]int)
		for _, e := range c.list(event.ItemCompleted) {
			if e.Source == abi.SourceTrigger {
				ran[*e.Item]++
			}
		}
		for i := range 4 {
			if ran[i] != 1 {
				t.Errorf("item %d ran %d times in the round", i, ran[i])
			}
		}
		if t.Failed() {
			t.Log("\n" + c.all())
		}
	})
}

// TestATriggerSurvivesItsHost_refused: when a round begins an item is marked as running on another host, and does not begin. It runs in
// the round all the same, once: when the mark is gone, also if its host dies before that.
func TestATriggerSurvivesItsHost_refused(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{false, true} {
		for _, queued := range []bool{false, true} {
			for _, items := range []int{4, 2} { // with two, the host has nothing else to begin
				t.Run(fmt.Sprint(dies, queued, items), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						c := newCluster(t)
						d := definition("j", "", items)
						first := c.start(1, job(d, sleeper(100*time.Millisecond)))
						second := c.start(2, job(d, sleeper(100*time.Millisecond)))
						time.Sleep(time.Minute)
						layout := tree.NewLayout("test", "j")
						var other string // a host that lives
						for _, id := range c.nodes(registry.Children("/test/j/instances"))[0].Names {
							if strings.HasPrefix(id, "10.0.0.1@") {
								other = id
							}
						}
						if owner := string(c.nodes(registry.Data(layout.ItemInstance(0)))[0].Data); !strings.HasPrefix(owner, "10.0.0.2@") {
							t.Fatalf("item 0 belongs to %s", owner)
						}
						c.commit(registry.Create(layout.ItemRunning(0), []byte(other)))
						want := 1
						noError(t, first.operator().Trigger(t.Context(), "j"))
						if queued {
							noError(t, first.operator().Trigger(t.Context(), "j"))
							want = 2
						}
						time.Sleep(500 * time.Millisecond) // a second later a mark of which no host knows a run is taken away
						if dies {
							second.kill()
							<-second.done
						}
						time.Sleep(3 * time.Minute)
						ran := make(map[int]int)
						for _, e := range c.list(event.ItemCompleted) {
							ran[*e.Item]++
						}
						for i := range items {
							if ran[i] != want {
								t.Errorf("item %d ran %d times for %d triggers\n%s", i, ran[i], want, c.all())
							}
						}
						if waits := c.nodes(registry.Children("/test/j/trigger")); len(waits[0].Names) > 0 {
							t.Errorf("the trigger waits on: %v", waits[0].Names)
						}
					})
				})
			}
		}
	}
}

// TestATriggerAtTheMomentAServerIsDisabled has each item run once in the round,
// whoever hears first of which.
func TestATriggerAtTheMomentAServerIsDisabled(t *testing.T) {
	for off := 1; off <= 3; off++ {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			const total = 7
			for n := 1; n <= 3; n++ {
				c.start(n, job(definition("switched", "", total), sleeper(0)))
				time.Sleep(time.Second)
			}
			layout := tree.NewLayout("test", "switched")
			ops := []registry.Op{registry.Set(fmt.Sprintf("%s/servers/10.0.0.%d", layout.Root(), off), []byte("DISABLED"), registry.AnyVersion)}
			trigger := layout.Root() + "/trigger"
			ops = append(ops, registry.Ensure(trigger), registry.Set(trigger, nil, registry.AnyVersion))
			for _, n := range c.hosts {
				ops = append(ops, registry.Create(trigger+"/"+n.host.Status().Instance, nil))
			}
			c.commit(ops...)
			time.Sleep(time.Minute)
			ran := make([]int, total)
			for _, e := range c.list(event.ItemCompleted) {
				ran[*e.Item]++
			}
			if slices.Min(ran) != 1 || slices.Max(ran) != 1 {
				t.Errorf("host %d disabled: the items ran %v times\n%s", off, ran, c.all())
			}
		})
	}
}

// TestTrigger_both: a trigger of which a host has begun nothing when the next one comes is not run by
// itself there, and the host says so.
func TestTrigger_both(t *testing.T) {
	for name, tc := range map[string]struct {
		takes []time.Duration // of each item
		both  bool
	}{
		"one item":         {[]time.Duration{10 * time.Second}, true},
		"all are busy":     {[]time.Duration{10 * time.Second, 5 * time.Second}, true},
		"an item was idle": {[]time.Duration{10 * time.Second, 0}, false},
	} {
		items := len(tc.takes)
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			g := &guest{digest: "d1", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
				time.Sleep(tc.takes[inv.Context.ShardingItem])
				return ok
			}}
			n := c.start(1, job(definition("slow", "", items), g))
			time.Sleep(time.Second)
			var rounds []admin.Triggered
			for range 2 {
				done, err := n.operator().TriggerWith(t.Context(), "slow", tree.TriggerArgs{})
				if err != nil {
					t.Fatal(err)
				}
				rounds = append(rounds, done)
				time.Sleep(time.Second)
			}
			parent := tree.NewLayout("test", "slow").Triggers() // a command of an earlier version, which knows no queue
			c.commit(registry.Set(parent, nil, registry.AnyVersion))
			rounds = append(rounds, admin.Triggered{Trigger: c.nodes(registry.Data(parent))[0].Mzxid})
			time.Sleep(time.Minute)
			var skips []event.Event
			for _, e := range c.list(event.FireSkipped) {
				if e.Trigger != 0 {
					skips = append(skips, e)
				}
			}
			runs := make(map[int64]int)
			for _, e := range c.list(event.ItemCompleted) {
				runs[e.Trigger]++
			}
			reason := fmt.Sprintf("trigger %d came before this one had begun here: it counts for both", rounds[2].Trigger)
			said := len(skips) == 1 && skips[0].Trigger == rounds[1].Trigger && skips[0].Reason == reason && !skips[0].Owed
			if said != tc.both || len(skips) > 1 {
				t.Errorf("%s: %+v in rounds %+v", name, skips, rounds)
			}
			if runs[rounds[0].Trigger] != items || (runs[rounds[1].Trigger] == 0) != tc.both || runs[rounds[2].Trigger] != items {
				t.Errorf("%s: runs %v in rounds %+v", name, runs, rounds)
			}
		})
	}
}

// TestTriggerBeforeTheFirstDivision: jobs that are triggered when their first host has joined, and wait for their turn to be
// divided, run all of their items once.
func TestTriggerBeforeTheFirstDivision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.wrap = func(_ int, l *lease) registry.Center {
			return &slow{lease: l, call: 300 * time.Millisecond, news: 100 * time.Millisecond}
		}
		g := &guest{digest: "d1", run: func(context.Context, *abi.Invocation) abi.Result { return ok }}
		var jobs []engine.Job
		waiting := make(map[string]bool)
		for k := range 100 { // more than may be divided at once
			name := fmt.Sprint("new", k)
			jobs, waiting[name] = append(jobs, job(definition(name, "0 0 * * * ?", 3), g)), true
		}
		n := c.start(1, jobs...)
		early := 0
		for len(waiting) > 0 {
			time.Sleep(50 * time.Millisecond)
			divided := make(map[string]bool)
			for _, e := range c.list(event.Sharded) {
				divided[e.Job] = true
			}
			for name := range waiting {
				if n.operator().Trigger(t.Context(), name) == nil {
					delete(waiting, name)
					if !divided[name] {
						early++
					}
				}
			}
		}
		time.Sleep(time.Minute)
		ran := make(map[string]int)
		for _, e := range c.list(event.ItemCompleted) {
			if e.Source == abi.SourceTrigger {
				ran[e.Job]++
			}
		}
		for _, j := range jobs {
			if name := j.Definition.JobName; ran[name] != 3 {
				t.Errorf("%d items of %s ran in the round, want 3", ran[name], name)
			}
		}
		if early == 0 {
			t.Error("no trigger came before the division")
		}
	})
}

// owesRound starts a host whose item 0 runs in a first round, and owes a second one.
func (c *cluster) owesRound(t *testing.T, d jobconfig.Configuration, g *given) *node {
	n := c.start(1, job(d, g.guest(func(*abi.Invocation) time.Duration { return 20 * time.Second })))
	time.Sleep(time.Second)
	n.triggers(t, d.JobName, args(t, "0", "first"))
	time.Sleep(time.Second)
	n.triggers(t, d.JobName, args(t, "", "second"))
	time.Sleep(time.Second)
	return n
}

// TestTrigger_onlyHostStops: a trigger that an item has still to run for when its only host stops runs on the next host.
func TestTrigger_onlyHostStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newCluster(t), &given{}
		d := definition("j", "", 2)
		n := c.owesRound(t, d, g)
		n.stop()
		<-n.done
		time.Sleep(time.Minute)
		c.start(2, job(d, g.guest(atOnce)))
		time.Sleep(time.Minute)
		if got, want := g.of(abi.SourceTrigger), []string{"0 trigger first", "0 trigger second", "1 trigger second"}; !slices.Equal(got, want) {
			t.Errorf("ran %q, want %q\n%s", got, want, c.all())
		}
	})
}

// TestTrigger_lastHostIsStopped: a round that an item of the last host owes ends when an operator stops that, and the reason does not
// speak of a next owner.
func TestTrigger_lastHostIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.owesRound(t, definition("j", "", 2), &given{})
		if err := c.operate(func(ctx context.Context, r registry.Center) error {
			return stopInstance(ctx, r, tree.NewLayout("test", "j"), n.host.Status().Instance)
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		var said []string
		for _, e := range c.list(event.ItemSkipped) {
			said = append(said, fmt.Sprintf("%d %s: %s", *e.Item, e.Cause, e.Reason))
		}
		if want := []string{"0 disabled: its instance was removed by an operator"}; !slices.Equal(said, want) {
			t.Errorf("said of items: %q, want %q", said, want)
		}
	})
}
