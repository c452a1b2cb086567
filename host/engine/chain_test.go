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
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// after is a job with items that comes after others, given as in the property.
func after(name string, total int, jobs string) jobconfig.Configuration {
	d := definition(name, "", total)
	d.Failover = true
	d.Props["wasm.after"] = jobs
	return d
}

// every is a job each minute.
func every(name string, total int) jobconfig.Configuration {
	d := definition(name, "0 * * * * ?", total)
	d.Failover = true
	return d
}

// ran are the runs of a job's items that were completed, as "0@04:05 OK" in order of the completion, and "tN" of a
// trigger.
func (c *cluster) ran(job string) (list []string) {
	for _, e := range c.list(event.ItemCompleted) {
		if e.Job != job {
			continue
		}
		at := e.Instant.UTC().Format("04:05")
		if e.Trigger != 0 {
			at = "t"
		}
		list = append(list, fmt.Sprintf("%d@%s %s", *e.Item, at, e.Outcome))
	}
	return list
}

// skippedFires are the fires of a job that did not begin, as "cause for 04:05".
func (c *cluster) skippedFires(job string) (list []string) {
	for _, e := range c.list(event.FireSkipped) {
		if e.Job == job {
			list = append(list, fmt.Sprintf("%s for %s: %s", e.Cause, e.Instant.UTC().Format("04:05"), e.Reason))
		}
	}
	return list
}

func (c *cluster) same(what string, got []string, want ...string) {
	c.t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		c.t.Errorf("%s: %q\nexpected %q\n%s", what, got, want, c.all())
	}
}

// failing is a guest that takes d and fails at the instants whose minute is given.
func failing(d time.Duration, minutes ...int) *guest {
	return &guest{digest: fmt.Sprint("failing", d, minutes), run: func(_ context.Context, inv *abi.Invocation) abi.Result {
		time.Sleep(d)
		if slices.Contains(minutes, inv.Context.FireTime.UTC().Minute()) {
			return abi.Result{Outcome: abi.OutcomeFail, Message: "no"}
		}
		return ok
	}}
}

// TestAfter: a job runs for each instant of the one before, when that has ended over all items, on whatever host.
func TestAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		for n := 1; n <= 3; n++ {
			c.start(n, job(every("a", 3), sleeper(7*time.Second)), job(after("b", 2, `[{"job":"a"}]`), sleeper(2*time.Second)), job(after("c", 1, `[{"job":"b"}]`), sleeper(time.Second)),
				job(after("d", 1, `[{"job":"a"}]`), sleeper(time.Second)))
		}
		until(minute(3).Add(55 * time.Second))
		c.same("b", c.ran("b"), "0@01:00 OK", "1@01:00 OK", "0@02:00 OK", "1@02:00 OK", "0@03:00 OK", "1@03:00 OK")
		c.same("c", c.ran("c"), "0@01:00 OK", "0@02:00 OK", "0@03:00 OK")
		c.same("d", c.ran("d"), "0@01:00 OK", "0@02:00 OK", "0@03:00 OK")
		for _, e := range c.list(event.ItemStarted) {
			began := map[string]time.Duration{"a": 0, "b": 7 * time.Second, "c": 9 * time.Second, "d": 7 * time.Second}[e.Job]
			if lag := e.Time.Sub(e.Instant) - began; lag < 0 || lag > 100*time.Millisecond {
				t.Errorf("%s began %s after %s, want %s", e.Job, e.Time.Sub(e.Instant), e.Instant.UTC(), began)
			}
		}
	})
}

// TestAfterOutcome: on decides by the outcome of the whole fire, and what does not follow has its reason.
func TestAfterOutcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.start(1, job(every("a", 2), failing(time.Second, 2)), job(after("good", 1, `[{"job":"a"}]`), sleeper(time.Second)),
			job(after("bad", 1, `[{"job":"a","on":"failure"}]`), sleeper(time.Second)), job(after("any", 1, `[{"job":"a","on":"always"}]`), sleeper(time.Second)))
		until(minute(3).Add(30 * time.Second))
		c.same("good", c.ran("good"), "0@01:00 OK", "0@03:00 OK")
		c.same("bad", c.ran("bad"), "0@02:00 OK")
		c.same("any", c.ran("any"), "0@01:00 OK", "0@02:00 OK", "0@03:00 OK")
		c.same("good", c.skippedFires("good"), "unmet for 02:00: job a failed, and after demands success")
		c.same("bad", c.skippedFires("bad"), "unmet for 01:00: job a was a success, and after demands failure", "unmet for 03:00: job a was a success, and after demands failure")
	})
}

// TestAfterOutcome_whileNoHostHasTheItem: an instant after which a job does not run has its reason, also if no host had the item when
// the job before it ended, or the host that had it was leaving.
func TestAfterOutcome_whileNoHostHasTheItem(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(c *cluster, n *node, again func(int) *node){
		"the next host comes later": func(c *cluster, n *node, again func(int) *node) {
			n.stop()
			<-n.done
			until(minute(2).Add(45 * time.Second))
			again(3)
		},
		"the next host is there": func(c *cluster, n *node, again func(int) *node) {
			again(1)
			time.Sleep(100 * time.Millisecond)
			n.stop() // what runs goes on until 02:47
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.start(4, job(every("a", 1), failing(7*time.Second, 1)))
				b := func(n int) *node {
					d := after("b", 1, `[{"job":"a","on":"failure"}]`)
					d.StaticSharding = true
					return c.start(n, job(d, sleeper(100*time.Second)))
				}
				n := b(2)
				until(minute(2).Add(3 * time.Second))
				leave(c, n, b)
				until(minute(2).Add(55 * time.Second))
				said := 0
				for _, e := range c.list(event.FireSkipped, event.ItemSkipped) {
					if e.Job == "b" && e.Cause == event.SkipUnmet && e.Instant.Equal(minute(2)) {
						said++
					}
				}
				if said != 1 {
					t.Errorf("that job b does not run for 02:00 is said %d times\n%s", said, c.all())
				}
			})
		})
	}
}

// TestAfter_ranWhenItMoved: an item of a job after another one ran on while fires of that ended, and moves. What is reported of the
// instants that came meanwhile is not said of one that the job before has not ended yet, and that the item runs for.
func TestAfter_ranWhenItMoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		b := after("b", 1, `[{"job":"a"}]`)
		b.Misfire = false
		c.start(1, job(every("a", 1), sleeper(50*time.Second)), job(b, sleeper(90*time.Second))) // from 01:50 to 03:20
		until(minute(2).Add(30 * time.Second))
		c.start(2, job(b, sleeper(time.Second)))
		until(minute(3).Add(55 * time.Second))
		c.same("b", c.ran("b"), "0@01:00 OK", "0@03:00 OK")
		for _, e := range c.list(event.ItemSkipped) {
			if e.Job == "b" && !e.Instant.Equal(minute(2)) || !e.Through.Before(minute(3)) {
				t.Errorf("why item %d does not run is said from %s to %s\n%s", *e.Item, e.Instant.UTC(), e.Through.UTC(), c.all())
			}
		}
	})
}

// TestAfter_noneEndedYet: a fire of which no item has ended when a later one has over all items is not forgotten: its other
// items had not begun for it, and the one that runs for it was left out of the later one.
func TestAfter_noneEndedYet(t *testing.T) {
	t.Parallel()
	others := map[string]func(t *testing.T, c *cluster, n *node, a jobconfig.Configuration, b engine.Job){
		"they were paused": func(t *testing.T, _ *cluster, n *node, _ jobconfig.Configuration, _ engine.Job) {
			for _, item := range []int{1, 2} {
				if err := n.operator().EnableItem(t.Context(), "a", item); err != nil {
					t.Fatal(err)
				}
			}
		},
		"they are new": func(_ *testing.T, c *cluster, _ *node, a jobconfig.Configuration, b engine.Job) {
			a.ShardingTotalCount = 3
			for _, n := range c.hosts {
				n.host.Apply([]engine.Job{job(a, longFirst()), b}, nil)
			}
		},
	}
	for name, come := range others {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				a, b := every("a", 3), job(after("b", 1, `[{"job":"a"}]`), sleeper(time.Second))
				a.Misfire = false
				if name == "they are new" {
					a.ShardingTotalCount = 1
				}
				n := c.start(1, job(a, longFirst()), b)
				c.start(2, job(a, longFirst()), b)
				until(minute(1).Add(-30 * time.Second))
				for item := 1; item < a.ShardingTotalCount; item++ {
					if err := n.operator().DisableItem(t.Context(), "a", item); err != nil {
						t.Fatal(err)
					}
				}
				until(minute(1).Add(10 * time.Second))
				come(t, c, n, a, b)
				until(minute(3).Add(50 * time.Second))
				ran, skipped := []string{"0@03:00 OK"}, []string{"unmet for 02:00: job a failed, and after demands success"}
				if name == "they are new" {
					ran = append(ran, "0@01:00 OK")
				} else { // they have run later, and not for this
					skipped = append(skipped, "unmet for 01:00: job a failed, and after demands success")
				}
				c.same("b", c.ran("b"), ran...)
				c.same("b", c.skippedFires("b"), skipped...)
			})
		})
	}
}

// TestAfter_runsOn: an item that still runs at the next instant, and is left out of that, ends the fire that it runs for when it ends.
func TestAfter_runsOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := every("a", 3), job(after("b", 1, `[{"job":"a"}]`), sleeper(time.Second))
		a.Misfire = false
		c.start(1, job(a, longFirst()), b)
		c.start(2, job(a, longFirst()), b)
		until(minute(3).Add(50 * time.Second))
		c.same("b", c.ran("b"), "0@01:00 OK", "0@03:00 OK")
		c.same("b", c.skippedFires("b"), "unmet for 02:00: job a failed, and after demands success")
	})
}

// TestAfter_endsLater: of two fires the one that ends after the later one, for which the job has begun by then, has the reason.
func TestAfter_endsLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := every("a", 3), job(after("b", 1, `[{"job":"a","on":"always"}]`), sleeper(time.Second))
		a.Misfire = false
		c.start(1, job(a, longFirst()), b)
		c.start(2, job(a, longFirst()), b)
		until(minute(3).Add(50 * time.Second))
		c.same("b", c.ran("b"), "0@02:00 OK", "0@03:00 OK")
		c.same("b", c.skippedFires("b"), "unmet for 01:00: the jobs before had ended a later fire by then, 2000-01-01T00:02:00.000Z: the job does not go back")
	})
}

// TestAfter_endsLaterAway: so has one that ends while the job has no host.
func TestAfter_endsLaterAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := every("a", 3), job(after("b", 1, `[{"job":"a","on":"always"}]`), sleeper(time.Second))
		a.Misfire = false
		n := c.start(1, job(a, longFirst()), b)
		until(minute(2).Add(10 * time.Second))
		n.host.Apply([]engine.Job{job(a, longFirst())}, nil)
		until(minute(2).Add(40 * time.Second))
		n.host.Apply([]engine.Job{job(a, longFirst()), b}, nil)
		until(minute(3).Add(50 * time.Second))
		said := 0
		for _, e := range c.list(event.ItemSkipped, event.FireSkipped) {
			if e.Job == "b" && e.Instant.Equal(minute(1)) && e.Because.Has(reason.BeforeEndedLater) {
				said++
			}
		}
		if said != 1 {
			t.Errorf("the reason is given %d times\n%s", said, c.all())
		}
	})
}

// longFirst is a guest whose item 0 takes 80 s at the first minute, and all else a second.
func longFirst() *guest {
	return &guest{digest: "long first", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
		if inv.Context.ShardingItem == 0 && inv.Context.FireTime.UTC().Minute() == 1 {
			time.Sleep(79 * time.Second)
		}
		time.Sleep(time.Second)
		return ok
	}}
}

// TestAfterSeveral: a job that comes after several runs for the instants that all of them have, when the last has ended in
// time.
func TestAfterSeveral(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		twice := definition("twice", "0 0/2 * * * ?", 1) // at even minutes
		slow := &guest{digest: "slow", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
			time.Sleep(20 * time.Second)
			if inv.Context.FireTime.UTC().Minute() == 4 {
				time.Sleep(20 * time.Second)
			}
			return ok
		}}
		c.start(1, job(every("a", 1), sleeper(time.Second)), job(twice, slow))
		c.start(2, job(after("both", 1, `[{"job":"a"},{"job":"twice","within":"30s"}]`), sleeper(time.Second)))
		until(minute(7).Add(50 * time.Second))
		c.same("both", c.ran("both"), "0@02:00 OK", "0@06:00 OK")
		c.same("both", c.skippedFires("both"), "late for 01:00: job twice had not ended 30s after the instant", "late for 03:00: job twice had not ended 30s after the instant",
			"late for 04:00: job twice had not ended 30s after the instant", "late for 05:00: job twice had not ended 30s after the instant", "late for 07:00: job twice had not ended 30s after the instant")
	})
}

// TestAfterTrigger: a trigger sets the whole chain off, also where it divides and comes together again; one of some
// items does not.
func TestAfterTrigger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		jobs := []engine.Job{job(definition("a", "", 2), sleeper(time.Second)), job(after("b", 2, `[{"job":"a"}]`), sleeper(2*time.Second)),
			job(after("c", 1, `[{"job":"a"}]`), sleeper(time.Second)), job(after("d", 2, `[{"job":"b"},{"job":"c"}]`), sleeper(time.Second))}
		n := c.start(1, jobs...)
		c.start(2, jobs...)
		until(minute(1))
		for range 2 {
			if err := n.operator().Trigger(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Second)
		}
		args, _ := tree.NewTriggerArgs("0", nil)
		if _, err := n.operator().TriggerWith(t.Context(), "a", args); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		c.same("b", c.ran("b"), "0@t OK", "1@t OK", "0@t OK", "1@t OK")
		c.same("c", c.ran("c"), "0@t OK", "0@t OK")
		c.same("d", c.ran("d"), "0@t OK", "1@t OK", "0@t OK", "1@t OK")
	})
}

// TestAfterRefused: jobs that come after each other, or after one that is not there, are refused with their path.
func TestAfterRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.start(1, job(after("b", 1, `[{"job":"a"}]`), sleeper(time.Second)), job(after("orphan", 1, `[{"job":"nobody"}]`), sleeper(time.Second)))
		until(minute(1))
		c.start(2, job(after("c", 1, `[{"job":"b"}]`), sleeper(time.Second)))
		until(minute(2))
		c.start(3, job(after("a", 1, `[{"job":"c"}]`), sleeper(time.Second)))
		until(minute(3))
		var said []string
		for _, e := range c.list(event.JobError) {
			said = append(said, e.Job+": "+e.Reason)
		}
		for _, want := range []string{`orphan: after: job "nobody" is not in the registry (orphan -> nobody)`, "a: after: the jobs would come after each other: a -> c -> b -> a"} {
			if !slices.Contains(said, want) {
				t.Errorf("reported %q, want %q", said, want)
			}
		}
		// The missing job comes.
		c.start(4, job(every("nobody", 1), sleeper(time.Second)))
		until(minute(6))
		c.same("orphan", c.ran("orphan"), "0@04:00 OK", "0@05:00 OK")
	})
}

// TestAfterRemoved: a job before is removed, and comes back. The job after it says so meanwhile, on the host that had both and on one that
// has it alone.
func TestAfterRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.start(1, job(every("a", 1), sleeper(time.Second)), job(after("b", 1, `[{"job":"a"}]`), sleeper(time.Second)))
		c.start(2, job(after("b", 1, `[{"job":"a"}]`), sleeper(time.Second)))
		until(minute(1).Add(30 * time.Second))
		if err := n.operator().Remove(t.Context(), "a", false); err != nil {
			t.Fatal(err)
		}
		until(minute(3))
		said := 0
		for _, e := range c.list(event.JobError) {
			if e.Job == "b" && e.Time.After(minute(1).Add(15*time.Second)) && e.Reason == `after: job "a" is not in the registry (b -> a)` {
				said++
			}
		}
		if said != 2 {
			t.Errorf("said %d times that the job before is gone, expected once by each of the two hosts\n%s", said, c.all())
		}
		if _, err := n.operator().Restore(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		until(minute(5).Add(30 * time.Second))
		ran := c.ran("b")
		if want := "0@05:00 OK"; !slices.Contains(ran, want) {
			t.Errorf("ran %q, expected %s among them", ran, want)
		}
	})
}

// TestAfterManyJoin: a host joins jobs in layers, each after all jobs of the layer before. Each reads its own nodes, and not those of all
// layers, and none is said to be missing that is still to join.
func TestAfterManyJoin(t *testing.T) {
	t.Parallel()
	const layers, width = 10, 12
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		configs := make(map[string]int)
		var mu sync.Mutex
		c.wrap = func(_ int, l *lease) registry.Center {
			return &readings{l, func(path string) { mu.Lock(); defer mu.Unlock(); configs[path]++ }}
		}
		name := func(layer, n int) string { return fmt.Sprintf("l%02d-%02d", layer, n) }
		var jobs []engine.Job
		for layer := range layers {
			var before []string
			for n := range width {
				before = append(before, fmt.Sprintf(`{"job":%q}`, name(layer-1, n)))
			}
			for n := range width {
				d := after(name(layer, n), 1, "["+strings.Join(before, ",")+"]")
				if layer == 0 {
					d = every(name(layer, n), 1)
				}
				jobs = append(jobs, job(d, sleeper(time.Second)))
			}
		}
		c.start(1, jobs...)
		until(minute(2).Add(50 * time.Second))
		if e := c.list(event.JobError); len(e) > 0 {
			t.Errorf("%d errors, the first: %s", len(e), e[0].Reason)
		}
		last := name(layers-1, width-1)
		c.same(last, c.ran(last), "0@01:00 OK", "0@02:00 OK")
		total := 0
		for _, n := range configs {
			total += n
		}
		if most := 4 * (layers - 1) * width * width; total > most {
			t.Errorf("configurations were read %d times, expected at most %d", total, most)
		}
	})
}

// readings tells which configurations are read.
type readings struct {
	*lease
	saw func(path string)
}

func (r *readings) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	for _, q := range queries {
		if strings.HasSuffix(q.Path, "/config") {
			r.saw(q.Path)
		}
	}
	return r.lease.Read(ctx, queries...)
}

// TestAfterWithout: an item that does not run in a fire does not keep it from ending.
func TestAfterWithout(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		failover bool
		guest    *guest
		act      func(c *cluster, n *node) // at 01:30
		ran      []string                  // by b
		skipped  []string
	}{
		{"an item is disabled", true, sleeper(time.Second), func(c *cluster, n *node) {
			if err := n.operator().DisableItem(c.t.Context(), "a", 1); err != nil {
				c.t.Fatal(err)
			}
		}, []string{"0@01:00 OK", "0@02:00 OK", "0@03:00 OK"}, nil},
		{"the job before is disabled", true, sleeper(time.Second), func(c *cluster, n *node) {
			if err := n.operator().Disable(c.t.Context(), "a"); err != nil {
				c.t.Fatal(err)
			}
		}, []string{"0@01:00 OK"}, nil},
		{"the job after is disabled", true, sleeper(time.Second), func(c *cluster, n *node) {
			if err := n.operator().Disable(c.t.Context(), "b"); err != nil {
				c.t.Fatal(err)
			}
		}, []string{"0@01:00 OK"}, []string{"disabled for 02:00: the job is paused on this server", "disabled for 03:00: the job is paused on this server"}},
		{"an item runs for longer, and once more", true, &guest{digest: "long", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
			if inv.Context.ShardingItem == 1 && inv.Context.FireTime.UTC().Minute() == 1 {
				time.Sleep(80 * time.Second)
			}
			time.Sleep(time.Second)
			return ok
		}}, nil, []string{"0@01:00 OK", "0@02:00 OK", "0@03:00 OK"}, nil},
		{"an item runs over several instants", true, &guest{digest: "longer", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
			if inv.Context.ShardingItem == 1 && inv.Context.FireTime.UTC().Minute() == 1 {
				time.Sleep(140 * time.Second)
			}
			time.Sleep(time.Second)
			return ok
		}}, nil, []string{"0@01:00 OK", "0@03:00 OK"}, []string{"unmet for 02:00: job a failed, and after demands success"}},
		{"its host dies, and no other takes over", false, sleeper(20 * time.Second), func(c *cluster, _ *node) {
			until(minute(2).Add(10 * time.Second))
			c.expire(c.hosts["10.0.0.2"])
		}, []string{"0@01:00 OK", "0@03:00 OK"}, []string{"unmet for 02:00: job a failed, and after demands success"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				a := every("a", 2)
				a.Failover = tt.failover
				n := c.start(1, job(a, tt.guest))
				c.start(2, job(a, tt.guest))
				c.start(3, job(after("b", 1, `[{"job":"a"}]`), sleeper(time.Second)))
				until(minute(1).Add(30 * time.Second))
				if tt.act != nil {
					tt.act(c, n)
				}
				until(minute(3).Add(50 * time.Second))
				c.same("b", c.ran("b"), tt.ran...)
				c.same("b", c.skippedFires("b"), tt.skipped...)
			})
		})
	}
}

// TestAfterLeft: when the last job leaves that came after another one, nothing is noted any more.
func TestAfterLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := every("a", 1)
		c.start(1, job(a, sleeper(time.Second)), job(after("b", 1, `[{"job":"a"}]`), sleeper(time.Second)))
		until(minute(2).Add(30 * time.Second))
		l := tree.NewLayout("test", "a")
		if ends := tree.ParseEnds(c.nodes(registry.Data(l.Ends()))[0].Data); !slices.Equal(ends.Followers, []string{"b"}) || len(ends.Fires) != 2 {
			t.Errorf("noted %+v", ends)
		}
		c.edit(definition("b", "", 1))
		until(minute(3).Add(30 * time.Second))
		n := c.nodes(registry.Data(l.Ends()), registry.Data(l.Assignment()))
		if n[0].Exists || tree.ParseDivision(n[1].Data).Followed {
			t.Errorf("still noted: %s, %s", n[0].Data, n[1].Data)
		}
		c.same("b", c.ran("b"), "0@01:00 OK", "0@02:00 OK")
	})
}

// TestAfterHundred: a hundred jobs, each after the one before, while hosts die: each runs once for each instant.
func TestAfterHundred(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const links = 100
		c := newCluster(t)
		var mu sync.Mutex
		effects := make(map[string]int)
		work := func(name string) *guest {
			return &guest{digest: name, run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
				select {
				case <-time.After(100 * time.Millisecond):
				case <-ctx.Done():
					return abi.Result{Outcome: abi.OutcomeCancelled}
				}
				mu.Lock()
				defer mu.Unlock()
				effects[fmt.Sprintf("%s@%s", name, inv.Context.FireTime.UTC().Format("04:05"))]++
				return ok
			}}
		}
		jobs := []engine.Job{job(every("j0", 2), work("j0"))}
		for n := 1; n < links; n++ {
			jobs = append(jobs, job(after(fmt.Sprintf("j%d", n), 1+n%2, fmt.Sprintf(`[{"job":"j%d"}]`, n-1)), work(fmt.Sprintf("j%d", n))))
		}
		var hosts []*node
		for n := 1; n <= 3; n++ {
			hosts = append(hosts, c.start(n, jobs...))
		}
		until(minute(1).Add(3050 * time.Millisecond)) // while an item runs
		hosts[0].kill()
		until(minute(2).Add(5050 * time.Millisecond))
		c.expire(hosts[1])
		until(minute(2).Add(50 * time.Second))
		for n := range links {
			for m := 1; m <= 2; m++ {
				name := fmt.Sprintf("j%d@%02d:00", n, m)
				mu.Lock()
				got, want := effects[name], 1+n%2
				mu.Unlock()
				if n == 0 {
					want = 2
				}
				if got != want {
					t.Errorf("%s ran %d times, want %d", name, got, want)
				}
			}
		}
		if t.Failed() {
			t.Log(strings.Join(strings.Split(c.all(), "\n")[:400], "\n"))
		}
	})
}

// mortal is a session that ends with one of the commits of a host: before or after it took effect.
type mortal struct {
	*lease
	count  func() (dies bool)
	before bool
}

func (m *mortal) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	if m.count() {
		if m.before {
			m.lose()
			return nil, registry.ErrSessionLost
		}
		m.loseAfter.Store(true)
	}
	return m.lease.Commit(ctx, ops...)
}

// TestAfterCrashes ends a session with each commit of a chain in turn: for scheduled instants, and for a trigger. Every
// job of the chain runs for each of them, and its items begin once.
func TestAfterCrashes(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{true, false} {
		for victim := 1; victim <= 2; victim++ {
			for nth := range 24 {
				synctest.Test(t, func(t *testing.T) { crashInChain(t, victim, nth, before) })
			}
		}
	}
}

func crashInChain(t *testing.T, victim, nth int, before bool) {
	c, closed := newCluster(t), newLedger()
	c.wrote = closed.write
	var mu sync.Mutex
	left, armed := nth, false
	c.wrap = func(n int, l *lease) registry.Center {
		return &mortal{l, func() bool {
			mu.Lock()
			defer mu.Unlock()
			if n != victim || !armed || left < 0 {
				return false
			}
			left--
			return left < 0
		}, before}
	}
	a := definition("a", "0 0/2 * * * ?", 2)
	a.Failover = true
	jobs := []engine.Job{job(a, sleeper(300*time.Millisecond)), job(after("b", 2, `[{"job":"a"}]`), sleeper(200*time.Millisecond)), job(after("c", 1, `[{"job":"b"},{"job":"a"}]`), sleeper(100*time.Millisecond))}
	var hosts []*node
	for n := 1; n <= 3; n++ {
		hosts = append(hosts, c.start(n, jobs...))
	}
	arm := func(on bool) {
		mu.Lock()
		defer mu.Unlock()
		armed = on
	}
	until(minute(1).Add(50 * time.Second))
	arm(true)
	until(minute(2).Add(40 * time.Second))
	if err := hosts[2].operator().Trigger(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	until(minute(4).Add(50 * time.Second))
	begun, repeated := make(map[string]int), make(map[string]int)
	for _, e := range c.list(event.ItemStarted) {
		at := e.Instant.UTC().Format("04:05")
		if e.Trigger != 0 {
			at = "trigger"
		}
		by := begun
		if e.Source == abi.SourceFailover {
			by = repeated
		}
		by[fmt.Sprintf("%s/%d for %s", e.Job, *e.Item, at)]++
	}
	for _, item := range []string{"a/0", "a/1", "b/0", "b/1", "c/0"} {
		for _, at := range []string{"02:00", "04:00", "trigger"} {
			run := item + " for " + at
			if n := begun[run]; n > 1 || n+repeated[run] == 0 { // the guest of one whose begin had no answer never starts
				t.Errorf("victim %d, commit %d, before %v: %s began %d times, and was taken over %d times\n%s", victim, nth, before, run, n, repeated[run], c.all())
			}
		}
	}
	for _, b := range c.broken(30*time.Second, closed) {
		t.Errorf("victim %d, commit %d, before %v: %s", victim, nth, before, b)
	}
}

// TestAfterClocks: clocks of the hosts of both jobs are apart, and each link begins at once all the same.
func TestAfterClocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		for n, ahead := range []time.Duration{2 * time.Second, -2 * time.Second, time.Second} {
			w := &wallClock{}
			w.set(ahead)
			c.onWallClock(w)
			c.start(n+1, []engine.Job{job(every("a", 1), sleeper(7*time.Second)), job(after("b", 1, `[{"job":"a"}]`), sleeper(time.Second)), job(after("c", 1, `[{"job":"b"}]`), sleeper(time.Second))}[n])
		}
		until(minute(3).Add(50 * time.Second))
		c.same("b", c.ran("b"), "0@01:00 OK", "0@02:00 OK", "0@03:00 OK")
		c.same("c", c.ran("c"), "0@01:00 OK", "0@02:00 OK", "0@03:00 OK")
		c.mu.Lock()
		defer c.mu.Unlock()
		ended := make(map[string]time.Time)
		for k, e := range c.events {
			before := map[string]string{"b": "a", "c": "b"}[e.Job]
			switch at := e.Instant.UTC().Format("04:05"); {
			case e.Kind == event.ItemCompleted:
				ended[e.Job+at] = c.at[k]
			case e.Kind == event.ItemStarted && before != "":
				if lag := c.at[k].Sub(ended[before+at]); lag > 100*time.Millisecond {
					t.Errorf("%s began for %s %s after %s had ended", e.Job, at, lag, before)
				}
			}
		}
	})
}

// counting counts the requests of a host, by the job that they name first.
type counting struct {
	*lease
	mu    *sync.Mutex
	count map[string]int
}

func (c *counting) add(what, path string) {
	job, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, "/test.wasmjob/"), "/test/"), "/")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count[what+" "+job]++
}

func (c *counting) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	c.add("commits", ops[0].Path)
	return c.lease.Commit(ctx, ops...)
}

func (c *counting) Read(ctx context.Context, q ...registry.Query) ([]registry.Node, error) {
	c.add("reads", q[0].Path)
	return c.lease.Read(ctx, q...)
}

// TestAfterCost: fires of jobs in a chain are two commits each, as of any other, and read nothing.
func TestAfterCost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var mu sync.Mutex
		count := make(map[string]int)
		c.wrap = func(_ int, l *lease) registry.Center { return &counting{l, &mu, count} }
		c.start(1, job(every("alone", 3), sleeper(time.Second)), job(every("a", 3), sleeper(time.Second)), job(after("b", 3, `[{"job":"a"}]`), sleeper(time.Second)), job(after("c", 1, `[{"job":"a"},{"job":"b"}]`), sleeper(time.Second)))
		until(minute(1).Add(30 * time.Second))
		mu.Lock()
		clear(count)
		mu.Unlock()
		until(minute(2).Add(30 * time.Second))
		mu.Lock()
		defer mu.Unlock()
		var got []string
		for what, n := range count {
			got = append(got, fmt.Sprint(what, " ", n))
		}
		c.same("requests", got, "commits alone 2", "commits a 2", "commits b 2", "commits c 2")
	})
}
