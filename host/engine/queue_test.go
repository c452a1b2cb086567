package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/event"
)

// order are the runs in the order in which they began.
func (g *given) order() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.runs)
}

func tenSeconds(*abi.Invocation) time.Duration { return 10 * time.Second }

// asks triggers the job with day-1, day-2 and so on.
func (n *node) asks(t *testing.T, days int) (made []admin.Triggered) {
	t.Helper()
	for day := 1; day <= days; day++ {
		m, err := n.operator().TriggerWith(t.Context(), "j", args(t, "", fmt.Sprint("day-", day)))
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, m)
		time.Sleep(100 * time.Millisecond)
	}
	return made
}

// TestTriggerQueue: triggers that come while an earlier one waits run one after the other, each with its own
// parameter, plain ones too, and no instant stands for one.
func TestTriggerQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newCluster(t), &given{}
		d := definition("j", "0 * * * * ?", 1)
		d.JobParameter = "configured"
		n := c.start(1, job(d, g.guest(tenSeconds)))
		time.Sleep(5 * time.Second)
		made := n.asks(t, 3)
		n.triggers(t, "j", tree.TriggerArgs{})
		n.triggers(t, "j", tree.TriggerArgs{})
		made = append(made, n.asks(t, 1)...)
		for i, m := range made {
			if queued := i > 1; (m.Queued != 0) != queued || (m.Trigger == 0) != queued || (queued && m.Ahead == 0) || m.Earlier != 0 {
				t.Errorf("trigger %d: %+v", i, m)
			}
		}
		time.Sleep(3 * time.Minute)
		var got []string
		for _, run := range g.order() {
			if strings.Contains(run, " trigger ") {
				got = append(got, strings.TrimPrefix(run, "0 trigger "))
			}
		}
		if want := []string{"day-1", "day-2", "day-3", "configured", "configured", "day-1"}; !slices.Equal(got, want) {
			t.Errorf("runs %q, want %q\n%s", got, want, c.all())
		}
		seen := make(map[int64]bool)
		for _, e := range c.list(event.FireStarted) {
			if e.Args != nil && e.Args.Queued != 0 {
				seen[e.Args.Queued] = true
			}
		}
		if len(seen) != 4 || !seen[made[2].Queued] || !seen[made[3].Queued] {
			t.Errorf("fires of queued triggers %v, want four of them, with %+v", seen, made)
		}
	})
}

// TestTriggerQueue_hostsDie: whichever host dies, and whenever, each queued trigger makes one round, in which each item runs
// once with its parameter; a run that died with its host is repeated by another host.
func TestTriggerQueue_hostsDie(t *testing.T) {
	for after := time.Second; after <= 43*time.Second; after += 3 * time.Second {
		for _, dies := range []int{1, 2} {
			t.Run(fmt.Sprintf("host %d after %s", dies, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, g := newCluster(t), &given{}
					d := definition("j", "", 4)
					d.Failover = true
					hosts := map[int]*node{1: c.start(1, job(d, g.guest(tenSeconds)))}
					time.Sleep(time.Second)
					hosts[2] = c.start(2, job(d, g.guest(tenSeconds)))
					time.Sleep(5 * time.Second)
					hosts[3-dies].asks(t, 5)
					time.Sleep(after)
					hosts[dies].kill()
					<-hosts[dies].done
					time.Sleep(10 * time.Minute)
					ran := make(map[string]int)
					for _, run := range g.of(abi.SourceTrigger) {
						ran[strings.Replace(run, " trigger", "", 1)]++
					}
					repeated := g.of(abi.SourceFailover)
					for item := range 4 {
						for day := 1; day <= 5; day++ {
							if key := fmt.Sprintf("%d day-%d", item, day); ran[key] != 1 {
								t.Errorf("%s ran %d times", key, ran[key])
							}
						}
					}
					if len(repeated) > 4 {
						t.Errorf("repeated %q", repeated)
					}
					if t.Failed() {
						t.Log("\n" + c.all())
					}
				})
			})
		}
	}
}

// TestTriggerQueue_allHostsDie: the queue outlives all hosts.
func TestTriggerQueue_allHostsDie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newCluster(t), &given{}
		d := definition("j", "", 1)
		d.Failover = true
		n := c.start(1, job(d, g.guest(tenSeconds)))
		time.Sleep(5 * time.Second)
		n.asks(t, 4)
		n.kill()
		<-n.done
		time.Sleep(5 * time.Minute)
		c.start(2, job(d, g.guest(tenSeconds)))
		time.Sleep(5 * time.Minute)
		want := []string{"0 failover day-1", "0 trigger day-1", "0 trigger day-2", "0 trigger day-3", "0 trigger day-4"}
		if got := g.of(abi.SourceTrigger, abi.SourceFailover); !slices.Equal(got, want) {
			t.Errorf("runs %q, want %q\n%s", got, want, c.all())
		}
	})
}

// TestTriggerQueue_full: of 10,000 triggers those that find no room are refused, and all others run.
func TestTriggerQueue_full(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newCluster(t), &given{}
		d := definition("j", "", 1)
		d.Props["wasm.queueMax"] = "20"
		n := c.start(1, job(d, g.guest(tenSeconds)))
		time.Sleep(5 * time.Second)
		made, o := 0, n.operator()
		for day := range 10_000 {
			time.Sleep(100 * time.Microsecond) // of a run of ten seconds
			_, err := o.TriggerWith(t.Context(), "j", args(t, "", fmt.Sprint("day-", day)))
			switch {
			case err == nil:
				made++
			case !errors.Is(err, operate.ErrQueueFull) || !strings.Contains(err.Error(), "20 triggers wait behind the one that has not begun, and the job allows 20 (queueMax)"):
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Minute)
		if runs := g.of(abi.SourceTrigger); made < 21 || made > 22 || len(runs) != made {
			t.Errorf("%d triggers were accepted, and %d ran", made, len(runs))
		}
	})
}

// TestTriggerQueue_removed: each trigger that waits when the job is removed has a reason, and none runs when it comes back.
func TestTriggerQueue_removed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newCluster(t), &given{}
		n := c.start(1, job(definition("j", "", 1), g.guest(tenSeconds)))
		time.Sleep(5 * time.Second)
		made := n.asks(t, 5)
		if err := n.operator().Remove(t.Context(), "j", false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		reasons := make(map[int64]string)
		for _, e := range c.list(event.FireSkipped) {
			reasons[e.Trigger] = fmt.Sprint(e.Cause, " ", e.Reason)
		}
		for _, m := range made[2:] {
			if reasons[m.Queued] != "disabled the trigger was queued: the job was removed from the registry" {
				t.Errorf("trigger %d: %q of %v", m.Queued, reasons[m.Queued], reasons)
			}
		}
		if got := g.of(abi.SourceTrigger); len(got) != 1 {
			t.Errorf("ran %q", got)
		}
	})
}

// TestPurge_reasons: what waits for its turn when a job is removed with its records has one reason each: queued triggers, the one that has
// not begun, and the instants that items owe. No node but the tombstone is left.
func TestPurge_reasons(t *testing.T) {
	for _, hosts := range []int{1, 2} {
		t.Run(fmt.Sprint(hosts, " hosts"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, g := newCluster(t), &given{}
				d := definition("j", "0 * * * * ?", 2)
				d.Props["wasm.overlap"] = "queue_all"
				guest := g.guest(func(*abi.Invocation) time.Duration { return time.Hour })
				n := c.start(1, job(d, guest))
				if hosts == 2 {
					c.start(2, job(d, guest))
				}
				time.Sleep(200 * time.Second) // an instant runs, and two or three wait
				made := n.asks(t, 5)
				if err := n.operator().Remove(t.Context(), "j", true); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				said := make(map[int64]int) // by trigger
				for _, e := range c.list(event.FireSkipped, event.ItemSkipped) {
					if e.Trigger != 0 && e.Cause == event.SkipDisabled {
						said[e.Trigger]++
					}
				}
				for i, m := range made {
					number, want := m.Queued, 1
					if i == 0 { // the one that has a round: each of its items has a reason
						number, want = m.Trigger, 2
					}
					if said[number] != want {
						t.Errorf("trigger %d has %d reasons, want %d: %v", number, said[number], want, said)
					}
				}
				began, owes := make(map[string]bool), make(map[string]int) // item and instant
				for _, e := range c.list(event.ItemStarted) {
					began[fmt.Sprint(*e.Item, " ", e.Instant.UTC().Format("15:04"))] = true
				}
				for _, e := range c.list(event.ItemSkipped) {
					if e.Cause == event.SkipDisabled && e.Trigger == 0 {
						for at := e.Instant; !at.After(slices.MaxFunc([]time.Time{e.Instant, e.Through}, time.Time.Compare)); at = at.Add(time.Minute) {
							owes[fmt.Sprint(*e.Item, " ", at.UTC().Format("15:04"))]++
						}
					}
				}
				for item := range 2 {
					for at := time.Date(2000, 1, 1, 0, 2, 0, 0, time.UTC); at.Minute() <= 3; at = at.Add(time.Minute) {
						if key := fmt.Sprint(item, " ", at.Format("15:04")); began[key] == (owes[key] == 1) || owes[key] > 1 {
							t.Errorf("item and instant %s: began %v, %d reasons", key, began[key], owes[key])
						}
					}
				}
				if t.Failed() {
					t.Log(c.all())
				}
				l := tree.NewLayout("test", "j")
				nodes := c.nodes(registry.Children(l.Sibling()), registry.Children(l.Root()))
				if got := nodes[0].Names; !slices.Equal(got, []string{"wanted"}) || nodes[1].Exists {
					t.Errorf("left over: %q, %v", got, nodes[1])
				}
			})
		})
	}
}

// TestTriggerQueue_disabled: a trigger whose turn comes while the job is disabled has that as its reason.
func TestTriggerQueue_disabled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newCluster(t), &given{}
		n := c.start(1, job(definition("j", "", 1), g.guest(tenSeconds)))
		time.Sleep(5 * time.Second)
		made := n.asks(t, 3)
		if err := n.operator().Disable(t.Context(), "j"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		said := 0
		for _, e := range c.list(event.FireSkipped) {
			if e.Trigger == made[2].Queued && e.Cause == event.SkipDisabled {
				said++
			}
		}
		if got := g.of(abi.SourceTrigger); said != 1 || len(got) != 1 {
			t.Errorf("said %d times, ran %q\n%s", said, got, c.all())
		}
	})
}

// TestTriggerQueue_elasticJobs: a trigger of ElasticJob's console still runs, and the queue goes on after it.
func TestTriggerQueue_elasticJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newCluster(t), &given{}
		d := definition("j", "", 1)
		d.JobParameter = "configured"
		n := c.start(1, job(d, g.guest(tenSeconds)))
		time.Sleep(5 * time.Second)
		n.asks(t, 4)
		time.Sleep(10 * time.Second)
		l := tree.NewLayout("test", "j")
		c.commit(registry.Delete(l.Trigger(n.host.Status().Instance), registry.AnyVersion))
		c.commit(registry.Create(l.Trigger(n.host.Status().Instance), nil)) // in place of the one that waited
		time.Sleep(5 * time.Minute)
		got := g.of(abi.SourceTrigger)
		for _, day := range []string{"day-1", "day-2", "day-4"} {
			if !slices.Contains(got, "0 trigger "+day) {
				t.Errorf("%s is not among %q\n%s", day, got, c.all())
			}
		}
		if len(got) != 4 {
			t.Errorf("runs %q, want four", got)
		}
	})
}

// TestTriggerQueue_neverIdle: the queue goes on though the item is due again whenever it ends.
func TestTriggerQueue_neverIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newCluster(t), &given{}
		busy := func(inv *abi.Invocation) time.Duration {
			if inv.Context.Source == abi.SourceTrigger {
				return 0
			}
			return 15 * time.Second
		}
		n := c.start(1, job(definition("j", "0/10 * * * * ?", 1), g.guest(busy)))
		time.Sleep(time.Minute + 5*time.Second)
		n.asks(t, 5)
		time.Sleep(3 * time.Minute)
		want := []string{"0 trigger day-1", "0 trigger day-2", "0 trigger day-3", "0 trigger day-4", "0 trigger day-5"}
		if got := g.of(abi.SourceTrigger); !slices.Equal(got, want) {
			t.Errorf("runs %q, want %q\n%s", got, want, c.all())
		}
	})
}
