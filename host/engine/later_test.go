package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
)

// asker is a guest that asks to run again some time after its first run of a fire, once.
type asker struct {
	mu     sync.Mutex
	asked  map[string]bool
	starts []time.Time
}

func (a *asker) guest(after time.Duration, pauses bool) *guest {
	a.asked = make(map[string]bool)
	return &guest{digest: "asker", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.starts = append(a.starts, time.Now())
		if a.asked[inv.Context.RunID] || len(a.starts) > 1 {
			return ok
		}
		a.asked[inv.Context.RunID] = true
		return abi.Result{Outcome: abi.OutcomeRetryAt, Status: abi.StatusRetry, Message: "429", RetryAt: time.Now().Add(after), PauseKey: pauses}
	}}
}

func (a *asker) at(from time.Time) (list []time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.starts {
		list = append(list, s.Sub(from).Round(time.Second))
	}
	return list
}

// owns reports whether the host has items of a job.
func (n *node) owns(name string) bool {
	for _, j := range n.host.Status().Jobs {
		if j.Name == name && len(j.Items) > 0 {
			return true
		}
	}
	return false
}

// TestRetryAt: an item whose guest asks for a time runs again then and not before, whoever has it then.
func TestRetryAt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		cron   string
		after  time.Duration
		change func(*jobconfig.Configuration)
		do     func(t *testing.T, c *cluster, at time.Time, owner, other *node)
		starts string // after the instant
	}{
		{name: "on its owner", after: 10 * time.Minute, starts: "[0s 10m0s]"},
		{name: "a time that has passed", after: -time.Hour, starts: "[0s 1s]"},
		{name: "later than it might have started", after: 10 * time.Minute, starts: "[0s 10m0s]",
			change: func(d *jobconfig.Configuration) { d.Props["wasm.startWithin"] = "1m" }},
		{name: "no catch-up and no misfire", after: 10 * time.Minute, starts: "[0s 10m0s]",
			change: func(d *jobconfig.Configuration) { d.Misfire, d.Props["wasm.catchUp"] = false, "none" }},
		{name: "its host dies", after: 10 * time.Minute, starts: "[0s 10m0s]",
			do: func(_ *testing.T, _ *cluster, at time.Time, owner, _ *node) {
				until(at.Add(time.Minute))
				owner.kill()
				<-owner.done
			}},
		{name: "its host leaves", after: 10 * time.Minute, starts: "[0s 10m0s]",
			do: func(_ *testing.T, _ *cluster, at time.Time, owner, _ *node) {
				until(at.Add(time.Minute))
				owner.stop()
				<-owner.done
			}},
		{name: "a newer instant stands for it", cron: "0 0,4 * * * ?", after: 10 * time.Minute, starts: "[0s 10m0s]"},
		{name: "in a queue both run", cron: "0 0,4 * * * ?", after: 10 * time.Minute, starts: "[0s 10m0s 10m0s]",
			change: func(d *jobconfig.Configuration) { d.Props["wasm.overlap"] = "queue_all" }},
		{name: "a trigger", cron: "0 30 0 1 1 ? 2099", after: 10 * time.Minute, starts: "[0s 10m0s]",
			do: func(t *testing.T, _ *cluster, at time.Time, owner, _ *node) {
				until(at)
				if err := owner.operator().Trigger(context.Background(), "j"); err != nil {
					t.Fatal(err)
				}
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, a := newCluster(t), &asker{}
				d := definition("j", "0 0 * * * ?", 1)
				d.Failover = true
				if tt.cron != "" {
					d.Cron = tt.cron
				}
				if tt.change != nil {
					tt.change(&d)
				}
				g := a.guest(tt.after, false)
				time.Sleep(20 * time.Minute) // not at an instant
				one, two := c.start(1, job(d, g)), c.start(2, job(d, g))
				at := hour()
				until(at.Add(-time.Second))
				owner, other := one, two
				if two.owns("j") {
					owner, other = two, one
				}
				if tt.do != nil {
					tt.do(t, c, at, owner, other)
				}
				until(at.Add(8 * time.Minute))
				if tt.after > 0 {
					waits := 0
					for _, n := range []*node{one, two} {
						select {
						case <-n.done:
							continue
						default:
						}
						if w := n.waits(event.WaitRetryAt); w != nil {
							waits++
							if !strings.Contains(w.Reason, "the time that guests asked for, the first 20") {
								t.Errorf("the status says %q", w.Reason)
							}
						}
					}
					if waits != 1 {
						t.Errorf("%d hosts say that the item waits\n%s", waits, c.all())
					}
				}
				until(at.Add(12 * time.Minute))
				if got := fmt.Sprint(a.at(at)); got != tt.starts {
					t.Errorf("it ran at %s after the instant, expected %s\n%s", got, tt.starts, c.all())
				}
				later := false
				for _, e := range c.list(event.ItemSkipped) {
					later = later || (e.Cause == event.SkipLater && e.Outcome == abi.OutcomeRetryAt && strings.Contains(e.Reason, "its guest asked to run again, and not before 20"))
				}
				if !later {
					t.Errorf("no event says that it runs again later\n%s", c.all())
				}
			})
		})
	}
}

// TestRetryAt_pausesKey: a guest pauses its own key over jobs and hosts, and no other key.
func TestRetryAt_pausesKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, a, m := newCluster(t), &asker{}, newMeter()
		first, same, other := paced("first", 1, "api", time.Minute, 10), paced("same", 3, "api", time.Minute, 10), paced("zebra", 1, "else", time.Minute, 10)
		same.Cron, other.Cron = "0 1 * * * ?", "0 1 * * * ?"
		g := m.guest(each(time.Second), func(inv *abi.Invocation) string { return inv.Context.JobName })
		time.Sleep(2 * time.Minute)
		c.start(1, job(first, a.guest(20*time.Minute, true)))
		n := c.start(2, job(same, g), job(other, g))
		at := hour()
		until(at.Add(10 * time.Minute))
		w := n.waits(event.WaitRate)
		if w == nil || !strings.Contains(w.Reason, "which job first has paused") {
			t.Errorf("the status says %+v", w)
		} else if want := at.Add(20 * time.Minute); w.Until.Sub(want).Abs() > time.Second {
			t.Errorf("the status says until %s, want %s", w.Until, want)
		}
		until(at.Add(30 * time.Minute))
		seen := m.seen()
		if got := seen.starts["same"]; len(got) != 3 || got[0].Sub(at).Round(time.Second) != 20*time.Minute {
			t.Errorf("the other job of the key began at %v\n%s", got, c.all())
		}
		if got := seen.starts["zebra"]; len(got) != 1 || got[0].Sub(at) != time.Minute {
			t.Errorf("a job of another key began at %v", got)
		}
		if got := fmt.Sprint(a.at(at)); got != "[0s 20m0s]" {
			t.Errorf("the job itself ran at %s", got)
		}
	})
}

// TestRetryAt_shown: an item that its guest has put off is shown as that, with the time, by the host that ran it, by the one that has it next, and
// by the registry alone; and so is a fire.
func TestRetryAt_shown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, a := newCluster(t), &asker{}
		d := definition("j", "0 0 * * * ?", 1)
		d.Failover = true
		time.Sleep(2 * time.Minute)
		one := c.start(1, job(d, a.guest(20*time.Minute, false)))
		at := hour()
		until(at.Add(time.Minute))
		shown := func(n *node) {
			t.Helper()
			s := n.host.Status().Jobs[0]
			if len(s.Items) != 1 || s.Items[0].LastOutcome != abi.OutcomeRetryAt || s.Items[0].NotBefore.Sub(at.Add(20*time.Minute)).Abs() > time.Second {
				t.Fatalf("%+v", s.Items)
			}
			if w := n.waits(event.WaitRetryAt); w == nil || !w.Until.Equal(s.Items[0].NotBefore) {
				t.Errorf("it waits for %+v", w)
			}
			shards, err := n.operator().Shards(t.Context(), "j")
			if err != nil {
				t.Fatal(err)
			}
			if i := shards.Items[0]; i.Outcome != string(abi.OutcomeRetryAt) || !i.NotBefore.Equal(s.Items[0].NotBefore) || shards.LastOutcome != string(abi.OutcomeRetryAt) {
				t.Errorf("the registry has %+v, and the fire %s", i, shards.LastOutcome)
			}
		}
		shown(one)
		two := c.start(2, job(d, a.guest(20*time.Minute, false)))
		one.stop()
		<-one.done
		until(at.Add(3 * time.Minute))
		shown(two)
		until(at.Add(21 * time.Minute))
		if i := two.host.Status().Jobs[0].Items[0]; i.LastOutcome != abi.OutcomeOK || !i.NotBefore.IsZero() {
			t.Errorf("when it has run: %+v", i)
		}
	})
}

// TestRetryAt_pausesNoKey: a guest of a job without a rate has no key: only the item waits.
func TestRetryAt_pausesNoKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, a := newCluster(t), &asker{}
		time.Sleep(time.Minute)
		c.start(1, job(definition("j", "0 0 * * * ?", 1), a.guest(20*time.Minute, true)))
		at := hour()
		until(at.Add(30 * time.Minute))
		if got := fmt.Sprint(a.at(at)); got != "[0s 20m0s]" {
			t.Errorf("it ran at %s\n%s", got, c.all())
		}
	})
}

// TestRetryAt_released: an operator ends the wait that a guest has asked for, and the pause of its key, at once on a host that is
// told, and within minutes on others.
func TestRetryAt_released(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, a, m := newCluster(t), &asker{}, newMeter()
		first, same := paced("first", 1, "api", time.Minute, 10), paced("same", 1, "api", time.Minute, 10)
		same.Cron = "0 1 * * * ?"
		time.Sleep(2 * time.Minute)
		n := c.start(1, job(first, a.guest(20*24*time.Hour, true)))
		c.start(2, job(same, m.guest(each(time.Second), func(inv *abi.Invocation) string { return inv.Context.JobName })))
		at := hour()
		until(at.Add(10 * time.Minute))
		release := func(job string, item int, items []int, keys ...string) {
			t.Helper()
			var out operate.Released
			if err := c.operate(func(ctx context.Context, r registry.Center) (err error) {
				out, err = operate.Release(ctx, r, tree.NewLayout("test", job), item, time.Now())
				return err
			}); err != nil || !slices.Equal(out.Items, items) || !slices.Equal(out.Keys, keys) {
				t.Fatalf("%+v, %v", out, err)
			}
		}
		release("same", -1, nil) // which has not paused the key
		release("first", 0, []int{0})
		release("first", -1, []int{0}, "api")
		release("first", -1, nil)
		n.host.Look("first")
		until(at.Add(20 * time.Minute))
		if got := fmt.Sprint(a.at(at)); got != "[0s 10m0s]" {
			t.Errorf("the job itself ran at %s\n%s", got, c.all())
		}
		if got := m.seen().starts["same"]; len(got) != 1 || got[0].Sub(at) > 13*time.Minute {
			t.Errorf("the other job of the key began at %v\n%s", got, c.all())
		}
	})
}

// TestRetryAt_nextRound: an item whose guest asks for a time in a round of a trigger with arguments runs in that again before it runs in
// the next round, which has begun by then, also on the host that it moves to.
func TestRetryAt_nextRound(t *testing.T) {
	t.Parallel()
	for _, moves := range []bool{false, true} {
		t.Run(fmt.Sprint("moves ", moves), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				var mu sync.Mutex
				var ran []string
				g := &guest{digest: "asker", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
					mu.Lock()
					first := len(ran) < 2
					ran = append(ran, fmt.Sprint(inv.Context.ShardingItem, " ", inv.Context.JobParameter))
					mu.Unlock()
					if inv.Context.ShardingItem == 1 {
						return ok
					}
					time.Sleep(5 * time.Second)
					if first {
						return abi.Result{Outcome: abi.OutcomeRetryAt, Status: abi.StatusRetry, Message: "429", RetryAt: time.Now().Add(30 * time.Second)}
					}
					return ok
				}}
				n := c.start(1, job(definition("j", "", 2), g))
				time.Sleep(time.Second)
				n.triggers(t, "j", args(t, "", "a"))
				time.Sleep(time.Second)
				n.triggers(t, "j", args(t, "", "b"))
				time.Sleep(time.Second)
				n.triggers(t, "j", args(t, "", "c"))
				time.Sleep(10 * time.Second)
				if moves {
					c.start(2, job(definition("j", "", 2), g))
					time.Sleep(time.Second)
					n.stop()
					<-n.done
				}
				time.Sleep(2 * time.Minute)
				mu.Lock()
				defer mu.Unlock()
				var of0, of1 []string
				for _, run := range ran {
					if strings.HasPrefix(run, "0") {
						of0 = append(of0, run)
					} else {
						of1 = append(of1, run)
					}
				}
				if want := []string{"0 a", "0 a", "0 b", "0 c"}; !slices.Equal(of0, want) {
					t.Errorf("ran %q, want %q", of0, want)
				}
				if want := []string{"1 a", "1 b", "1 c"}; !slices.Equal(of1, want) {
					t.Errorf("ran %q, want %q", of1, want)
				}
				if t.Failed() {
					t.Log(c.all())
				}
			})
		})
	}
}

// TestRetryAt_overlap: instants that came while the item ran, and for which it was left out, are not caught up on by its next host when the
// guest asks for a time.
func TestRetryAt_overlap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var mu sync.Mutex
		var ran []string
		g := &guest{digest: "asker", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
			mu.Lock()
			ran = append(ran, inv.Context.FireTime.UTC().Format("04:05"))
			first := len(ran) == 1
			mu.Unlock()
			if !first {
				return ok
			}
			time.Sleep(130 * time.Second)
			return abi.Result{Outcome: abi.OutcomeRetryAt, Status: abi.StatusRetry, Message: "429", RetryAt: time.Now().Add(20 * time.Second)}
		}}
		d := definition("j", "0 * * * * ?", 1)
		d.Misfire = false
		d.Props["wasm.catchUp"] = "latest"
		n := c.start(1, job(d, g))
		until(minute(3).Add(12 * time.Second))
		c.start(2, job(d, g))
		time.Sleep(time.Second)
		n.stop()
		<-n.done
		until(minute(4).Add(30 * time.Second))
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"01:00", "01:00", "04:00"}; !slices.Equal(ran, want) {
			t.Errorf("ran %q, want %q\n%s", ran, want, c.all())
		}
		missing(c, minute(1), minute(4), time.Minute, 1)
	})
}

// TestMoved_overlap: the same of a streaming run that ends because its item moves.
func TestMoved_overlap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var mu sync.Mutex
		var ran []string
		g := &guest{digest: "stream", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
			mu.Lock()
			ran = append(ran, inv.Context.FireTime.UTC().Format("04:05"))
			first := len(ran) == 1
			mu.Unlock()
			for first && inv.Host.Cancelled() == abi.CancelNone {
				time.Sleep(time.Second)
			}
			return abi.Result{Outcome: abi.OutcomeOK, Yielded: first}
		}}
		d := definition("j", "0 * * * * ?", 1)
		d.Misfire = false
		d.Props["wasm.catchUp"], d.Props["streaming.process"] = "latest", "true"
		n := c.start(1, job(d, g))
		until(minute(3).Add(12 * time.Second))
		c.start(2, job(d, g))
		time.Sleep(time.Second)
		n.stop()
		<-n.done
		until(minute(4).Add(30 * time.Second))
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"01:00", "01:00", "04:00"}; !slices.Equal(ran, want) {
			t.Errorf("ran %q, want %q\n%s", ran, want, c.all())
		}
		missing(c, minute(1), minute(4), time.Minute, 1)
	})
}

// TestUnstarted_overlap: the same of an item that waits for a slot, and is handed back because its host leaves.
func TestUnstarted_overlap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var mu sync.Mutex
		var ran []string
		g := &guest{digest: "queued", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
			mu.Lock()
			ran = append(ran, fmt.Sprint(inv.Context.ShardingItem, " ", inv.Context.FireTime.UTC().Format("04:05")))
			first := len(ran) == 1
			mu.Unlock()
			if first {
				time.Sleep(140 * time.Second)
			}
			return ok
		}}
		d := definition("j", "0 * * * * ?", 2)
		d.Misfire = false
		d.Props["wasm.catchUp"], d.Props["wasm.maxConcurrency"] = "latest", "1"
		n := c.start(1, job(d, g))
		until(minute(3).Add(12 * time.Second))
		c.start(2, job(d, g))
		time.Sleep(time.Second)
		n.stop()
		<-n.done
		until(minute(4).Add(30 * time.Second))
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(ran)
		waited := "1"
		if slices.Contains(ran, "1 01:00") && !slices.Contains(ran, "0 01:00") {
			waited = "0"
		}
		for _, run := range ran {
			if run == waited+" 02:00" || run == waited+" 03:00" {
				t.Errorf("ran %q: item %s for an instant that it was left out of\n%s", ran, waited, c.all())
			}
		}
		missing(c, minute(1), minute(4), time.Minute, 2)
	})
}

// beforeServers is a session that does something once, before it reads the servers of a job, if it is armed.
type beforeServers struct {
	*lease
	armed *atomic.Bool
	do    func()
}

func (b *beforeServers) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	if slices.ContainsFunc(queries, func(q registry.Query) bool { return strings.Contains(q.Path, "/servers") }) && b.armed.CompareAndSwap(true, false) {
		b.do()
	}
	return b.lease.Read(ctx, queries...)
}

// TestRetryAt_pausedBeforeTheNextRound: the job is paused on all servers while its leader divides it, and a round of a trigger waits for an
// item whose guest asked for a time. No host has the item then: the one that had it says why it does not run in the round.
func TestRetryAt_pausedBeforeTheNextRound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, armed := newCluster(t), new(atomic.Bool)
		l := tree.NewLayout("test", "j")
		c.wrap = func(_ int, session *lease) registry.Center {
			return &beforeServers{session, armed, func() {
				if err := c.operate(func(ctx context.Context, r registry.Center) error {
					_, err := operate.SetServers(ctx, r, l, tree.Word{By: "test"}, false)
					return err
				}); err != nil {
					t.Error(err)
				}
			}}
		}
		g := &guest{digest: "asker", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
			if inv.Context.ShardingItem == 0 {
				return abi.Result{Outcome: abi.OutcomeRetryAt, Status: abi.StatusRetry, Message: "429", RetryAt: time.Now().Add(time.Hour)}
			}
			return ok
		}}
		n := c.start(1, job(definition("j", "", 2), g))
		c.start(2, job(definition("j", "", 2), g))
		time.Sleep(10 * time.Second)
		n.triggers(t, "j", args(t, "", "a"))
		time.Sleep(5 * time.Second)
		n.triggers(t, "j", args(t, "", "b"))
		time.Sleep(5 * time.Second)
		armed.Store(true)
		if err := c.operate(func(ctx context.Context, r registry.Center) error {
			_, err := r.Commit(ctx, registry.Ensure(l.Necessary()))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		fires := c.list(event.FireStarted)
		second, said := fires[len(fires)-1].Trigger, false
		for _, e := range c.list(event.ItemSkipped, event.FireSkipped) {
			of := slices.Contains(e.Items, 0) || e.Item != nil && *e.Item == 0
			said = said || of && e.Trigger == second && strings.Contains(e.Reason, "paused on this server")
		}
		if armed.Load() || !said {
			t.Errorf("it was paused while it was divided: %v; item 0 has the reason that it is paused: %v\n%s", !armed.Load(), said, c.all())
		}
	})
}
