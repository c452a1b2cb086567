package engine_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/recipe/rate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// paced is an hourly job under a rate.
func paced(name string, items int, key string, per time.Duration, most int) jobconfig.Configuration {
	d := definition(name, "0 0 * * * ?", items)
	d.Failover = true
	d.Props["wasm.rate.key"], d.Props["wasm.rate.per"], d.Props["wasm.rate.max"] = key, per.String(), fmt.Sprint(most)
	d.Props[jobconfig.PropMaxConcurrency] = "50"
	return d
}

// checkRate checks that the guests under a key never began more often than may. over are runs that were taken over, which
// do not count.
func (m *meter) checkRate(t *testing.T, c *cluster, key string, per time.Duration, most, over int) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	starts := m.starts[key]
	for k := most + over; k < len(starts); k++ {
		if span := starts[k].Sub(starts[k-most-over]); span < per {
			t.Errorf("%d began under %s within %s, expected at most %d within %s\n%s", most+over+1, key, span, most, per, c.all())
			return
		}
	}
	if len(starts) == 0 {
		t.Errorf("nothing began under %s\n%s", key, c.all())
	}
}

// window is what the node of a rate holds now.
func (c *cluster) window(key string) rate.Window {
	return rate.Parse(c.nodes(registry.Data(tree.Rate("test", key)))[0].Data, time.Now().UnixMilli())
}

// TestRate_overHosts: over all hosts no more items begin in a span than may, and as many as may do.
func TestRate_overHosts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, m := newCluster(t), newMeter()
		d := paced("j", 9, "api", time.Minute, 2)
		for n := range 3 {
			c.start(n+1, job(d, m.guest(each(time.Second), one)))
		}
		at := hour()
		until(at.Add(25 * time.Second))
		waiting := 0
		for _, n := range c.hosts {
			if wait := n.waits(event.WaitRate); wait != nil {
				waiting += len(wait.Items)
				if !strings.Contains(wait.Reason, `rate "api", under which at most 2 begin in 1m: `) || !strings.Contains(wait.Reason, "the next until 20") {
					t.Errorf("the status says %q", wait.Reason)
				}
			}
		}
		if waiting != 7 {
			t.Errorf("%d items wait by the status, expected 7\n%s", waiting, c.all())
		}
		until(at.Add(10 * time.Minute))
		m.checkRate(t, c, "k", time.Minute, 2, 0)
		seen := m.seen()
		if len(seen.runs) != 9 || seen.last["k"].Sub(at) > 6*time.Minute {
			t.Errorf("ran %v until %s\n%s", seen.runs, seen.last["k"].Sub(at), c.all())
		}
		missing(c, at, at.Add(time.Minute), time.Hour, 9)
		if w := c.window("api"); len(w.Places) != 0 {
			t.Errorf("places are left: %+v", w)
		}
	})
}

// TestRate_fair: a host that comes later does not wait until one with many items has run them all, and a key with nothing
// before it does not wait at all.
func TestRate_fair(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, m := newCluster(t), newMeter()
		many, few, other := paced("many", 40, "api", time.Minute, 2), paced("few", 1, "api", time.Minute, 2), paced("other", 2, "{jobParameter}", time.Minute, 2)
		few.Cron, other.Cron, other.JobParameter = "5 0 * * * ?", "5 0 * * * ?", "x"
		c.start(1, job(many, m.guest(each(time.Second), one)), job(other, m.guest(each(time.Second), func(*abi.Invocation) string { return "x" })))
		c.start(2, job(few, m.guest(each(time.Second), one)))
		at := hour()
		until(at.Add(30 * time.Minute))
		seen := m.seen()
		if k := slices.Index(seen.began, "few 0"); k < 0 || k > 8 {
			t.Errorf("it was number %d to begin, expected to be behind those that had places: %v", k, seen.began)
		}
		if seen.runs["other 0"] == 0 || seen.last["x"].Sub(at) > 10*time.Second {
			t.Errorf("another key waited: %v until %s", seen.runs, seen.last["x"].Sub(at))
		}
		m.checkRate(t, c, "k", time.Minute, 2, 0)
		if len(seen.runs) != 43 {
			t.Errorf("%d items ran, expected 43\n%s", len(seen.runs), c.all())
		}
	})
}

// TestRate_newest: an instant that comes while items wait stands for the one before, as ever.
func TestRate_newest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, m := newCluster(t), newMeter()
		d := paced("j", 6, "api", time.Minute, 1)
		d.Cron = "0 0/2 * * * ?"
		c.start(1, job(d, m.guest(each(time.Second), one)))
		at := hour()
		until(at.Add(time.Hour))
		m.checkRate(t, c, "k", time.Minute, 1, 0)
		seen := m.seen()
		for item := range 6 {
			if n := seen.runs[fmt.Sprintf("j %d", item)]; n < 5 {
				t.Errorf("item %d ran %d times in an hour, expected about ten: %v", item, n, seen.runs)
			}
		}
		missing(c, at, at.Add(50*time.Minute), 2*time.Minute, 6)
	})
}

// TestRate_trigger: a trigger under a rate runs all items, also if the host dies while some wait.
func TestRate_trigger(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{false, true} {
		t.Run(fmt.Sprintf("dies=%v", dies), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, m := newCluster(t), newMeter()
				d := paced("j", 4, "api", 20*time.Second, 1)
				g := m.guest(each(time.Second), one)
				n, other := c.start(1, job(d, g)), c.start(2, job(d, g))
				time.Sleep(10 * time.Second)
				if err := n.operator().Trigger(context.Background(), "j"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * time.Second)
				if dies {
					other.kill()
					<-other.done
				}
				time.Sleep(5 * time.Minute)
				m.checkRate(t, c, "k", 20*time.Second, 1, 1)
				if got := completed(c.list(event.ItemCompleted)); len(got) != 4 {
					t.Errorf("completed %v\n%s", got, c.all())
				}
			})
		})
	}
}

// TestRate_beside: a job under a limit and a rate keeps both, and runs all items.
func TestRate_beside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, m := newCluster(t), newMeter()
		d := paced("j", 8, "api", 10*time.Second, 3)
		d.Props["wasm.concurrency.key"], d.Props["wasm.concurrency.max"] = "db", "2"
		g := m.guest(each(7*time.Second), one)
		c.start(1, job(d, g))
		c.start(2, job(d, g))
		at := hour()
		until(at.Add(5 * time.Minute))
		m.check(t, c, "k", 2)
		m.checkRate(t, c, "k", 10*time.Second, 3, 0)
		if seen := m.seen(); len(seen.runs) != 8 {
			t.Errorf("ran %v\n%s", seen.runs, c.all())
		}
		if left := c.tickets("db"); len(left) != 0 {
			t.Errorf("tickets are left: %v", left)
		}
	})
}

// TestRate_changes: the rate is changed, and taken away, while items wait.
func TestRate_changes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		to   jobconfig.Configuration
		took time.Duration
	}{
		{"raised", paced("j", 6, "api", 10*time.Second, 6), 20 * time.Second},
		{"another key", paced("j", 6, "other", time.Hour, 6), 10 * time.Second},
		{"none any more", definition("j", "0 0 * * * ?", 6), 10 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, m := newCluster(t), newMeter()
				d := paced("j", 6, "api", 30*time.Minute, 1)
				g := m.guest(each(time.Second), one)
				n := c.start(1, job(d, g))
				at := hour()
				until(at.Add(5 * time.Second))
				tt.to.Overwrite, tt.to.Failover = true, true
				tt.to.Props[jobconfig.PropMaxConcurrency] = "50"
				n.host.Apply([]engine.Job{job(tt.to, g)}, nil)
				until(at.Add(5 * time.Minute))
				seen := m.seen()
				if took := seen.last["k"].Sub(at); len(seen.runs) != 6 || took > tt.took {
					t.Errorf("ran %v until %s\n%s", seen.runs, took, c.all())
				}
				if w := c.window("api"); len(w.Places) != 0 {
					t.Errorf("places are left: %+v", w)
				}
			})
		})
	}
}

// TestRate_budget: a fire under a rate is no commit and one read more than another, and one commit more if items wait; a
// job without a rate asks the registry for nothing more.
func TestRate_budget(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		d              jobconfig.Configuration
		commits, reads int
	}{
		{"without", definition("j", "0 0/10 * * * ?", 4), 2, 0},
		{"with", paced("j", 4, "api", time.Minute, 4), 2, 1},
		{"some wait", paced("j", 4, "api", time.Minute, 2), 4, 2}, // two begins, each with its completion; the second looks again
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, m := newCluster(t), newMeter()
				var mu sync.Mutex
				commits, reads := 0, 0
				c.wrap = func(_ int, l *lease) registry.Center {
					return registrytest.Faulty(l, func(_ int, op string) registrytest.Fault {
						mu.Lock()
						defer mu.Unlock()
						switch op {
						case "commit":
							commits++
						case "read":
							reads++
						}
						return registrytest.NoFault
					})
				}
				tt.d.Failover, tt.d.Cron = true, "0 0/10 * * * ?"
				tt.d.ReconcileIntervalMinutes = 0
				c.start(1, job(tt.d, m.guest(each(time.Second), one)))
				at := hour()
				until(at.Add(9 * time.Minute)) // the first makes the key's node
				mu.Lock()
				commits, reads = 0, 0
				mu.Unlock()
				until(at.Add(12 * time.Minute))
				mu.Lock()
				defer mu.Unlock()
				if commits > tt.commits || reads > tt.reads || commits < 2 {
					t.Errorf("%d commits and %d reads, expected %d and %d\n%s", commits, reads, tt.commits, tt.reads, c.all())
				}
			})
		})
	}
}

// TestRate_crashes has hosts die, or answers lost, at every call of a fire under a rate. Never begin more than may, but for
// what is taken over, and every item is accounted for.
func TestRate_crashes(t *testing.T) {
	t.Parallel()
	for _, fault := range []registrytest.Fault{registrytest.ExpireBefore, registrytest.ExpireAfter, registrytest.LostAnswer, registrytest.LostRequest} {
		for at := 1; at <= 10; at++ {
			t.Run(fmt.Sprintf("%v at %d", fault, at), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					c, m := newCluster(t), newMeter()
					c.lostAnswers = true
					var mu sync.Mutex
					calls, armed := 0, false
					c.wrap = func(n int, l *lease) registry.Center {
						return planned(l, func(string) registrytest.Fault {
							mu.Lock()
							defer mu.Unlock()
							if n != 1 || !armed {
								return registrytest.NoFault
							}
							if calls++; calls == at {
								return fault
							}
							return registrytest.NoFault
						})
					}
					d := paced("j", 5, "api", time.Minute, 2)
					d.Props[jobconfig.PropMaxHostDeaths] = "0"
					g := m.guest(each(10*time.Second), one)
					c.start(1, job(d, g))
					c.start(2, job(d, g))
					due := hour()
					until(due.Add(-time.Second))
					mu.Lock()
					armed = true
					mu.Unlock()
					until(due.Add(20 * time.Minute))
					m.checkRate(t, c, "k", time.Minute, 2, 2)
					missing(c, due, due.Add(time.Minute), time.Hour, 5)
				})
			})
		}
	}
}

// TestRate_simulation plays hosts that come, die, leave and lose answers, with jobs that share keys. Never begin more than
// may, but for what is taken over, and when all is quiet everything runs again.
func TestRate_simulation(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				dice := rand.New(rand.NewPCG(seed, 43))
				roll := func(n int) int {
					mu.Lock()
					defer mu.Unlock()
					return dice.IntN(n)
				}
				c, m := newCluster(t), newMeter()
				c.lostAnswers = true
				var faults []registrytest.Fault // of the next calls
				c.wrap = func(_ int, l *lease) registry.Center {
					return planned(l, func(string) (fault registrytest.Fault) {
						mu.Lock()
						defer mu.Unlock()
						if len(faults) > 0 && dice.IntN(4) == 0 {
							fault, faults = faults[0], faults[1:]
						}
						return fault
					})
				}
				g := m.guest(each(2*time.Second), func(inv *abi.Invocation) string {
					if inv.Context.Source == abi.SourceFailover {
						return "taken over"
					}
					return "api-" + inv.Context.ShardingParameter
				})
				var jobs []engine.Job
				for _, name := range []string{"a", "b"} {
					d := paced(name, 6, "api-{shardingParameter}", 20*time.Second, 2)
					d.Cron, d.ShardingItemParameters = "0 * * * * ?", "0=x,1=x,2=x,3=x,4=y,5=y"
					d.Props[jobconfig.PropMaxHostDeaths] = "0"
					jobs = append(jobs, job(d, g))
				}
				for n := range 3 {
					c.start(n+1, jobs...)
				}
				next := 4
				for range 30 {
					time.Sleep(time.Duration(20+roll(40)) * time.Second)
					kinds := []registrytest.Fault{registrytest.ExpireBefore, registrytest.LostAnswer, registrytest.LostRequest, registrytest.LostAnswer}
					for range roll(4) {
						kind := kinds[roll(len(kinds))]
						mu.Lock()
						faults = append(faults, kind)
						mu.Unlock()
					}
					what := roll(4)
					if what > 1 {
						continue
					}
					name := slices.Sorted(maps.Keys(c.hosts))[roll(len(c.hosts))]
					n := c.hosts[name]
					if what == 0 {
						n.kill()
					} else {
						n.stop()
					}
					<-n.done
					delete(c.hosts, name)
					c.start(next, jobs...)
					next++
				}
				mu.Lock()
				faults = nil
				mu.Unlock()
				time.Sleep(5 * time.Minute)
				before := m.seen()
				time.Sleep(5 * time.Minute)
				m.checkRate(t, c, "api-x", 20*time.Second, 2, 0)
				m.checkRate(t, c, "api-y", 20*time.Second, 2, 0)
				after := m.seen()
				for _, name := range []string{"a", "b"} {
					for item := range 6 {
						if run := fmt.Sprintf("%s %d", name, item); after.runs[run] <= before.runs[run] {
							t.Errorf("item %s does not run any more\n%s", run, c.all())
						}
					}
				}
			})
		})
	}
}

// TestKeysThatHoldNothing: the nodes of keys under which nothing runs or waits, and nothing has begun lately, are
// removed; what counts stays, and a removed key works as before.
func TestKeysThatHoldNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, m := newCluster(t), newMeter()
		d, long := paced("j", 3, "api", time.Minute, 1), paced("long", 1, "day", 24*time.Hour, 5)
		for _, d := range []*jobconfig.Configuration{&d, &long} {
			d.Props["wasm.concurrency.key"], d.Props["wasm.concurrency.max"] = "db", "5"
			d.ReconcileIntervalMinutes = 10
		}
		time.Sleep(time.Minute)
		c.start(1, job(d, m.guest(each(time.Second), one)), job(long, m.guest(each(20*time.Minute), func(*abi.Invocation) string { return "long" })))
		at := hour()
		exists := func(path string) bool { return c.nodes(registry.Data(path))[0].Exists }
		until(at.Add(15 * time.Minute))
		if !exists(tree.Limit("test", "db")) {
			t.Error("the limit's node was removed while an item runs under it")
		}
		if !exists(tree.Rate("test", "api")) { // hosts may still go by what they know of it
			t.Error("the rate's node was removed soon after its last begin")
		}
		until(at.Add(55 * time.Minute))
		for path, want := range map[string]bool{tree.Limit("test", "db"): false, tree.Rate("test", "api"): false, tree.Rate("test", "day"): true} {
			if exists(path) != want {
				t.Errorf("%s: exists %v, expected %v", path, !want, want)
			}
		}
		until(at.Add(time.Hour + 10*time.Minute))
		if seen := m.seen(); seen.runs["j 0"] != 2 || seen.runs["j 2"] != 2 {
			t.Errorf("ran %v, expected each twice\n%s", seen.runs, c.all())
		}
		m.checkRate(t, c, "k", time.Minute, 1, 0)
	})
}
