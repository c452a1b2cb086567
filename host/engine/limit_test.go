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
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// meter counts the guests that run at once, by the key under which they do.
type meter struct {
	mu    sync.Mutex
	now   map[string]int
	most  map[string]int
	runs  map[string]int       // by job and item
	last  map[string]time.Time // when the last run under a key ended
	began []string             // job and item, in their order
	// starts are when guests began, by key.
	starts map[string][]time.Time
}

func newMeter() *meter {
	return &meter{now: make(map[string]int), most: make(map[string]int), runs: make(map[string]int), last: make(map[string]time.Time), starts: make(map[string][]time.Time)}
}

// guest takes some time for each item, under a key.
func (m *meter) guest(takes func(item int) time.Duration, key func(inv *abi.Invocation) string) *guest {
	return &guest{digest: "meter", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
		k, name := key(inv), fmt.Sprintf("%s %d", inv.Context.JobName, inv.Context.ShardingItem)
		m.mu.Lock()
		m.now[k]++
		m.most[k] = max(m.most[k], m.now[k])
		m.runs[name]++
		m.began = append(m.began, name)
		m.starts[k] = append(m.starts[k], time.Now())
		m.mu.Unlock()
		defer func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.now[k]--
			m.last[k] = time.Now()
		}()
		select {
		case <-time.After(takes(inv.Context.ShardingItem)):
			return ok
		case <-ctx.Done():
			return abi.Result{Outcome: abi.OutcomeCancelled, Message: context.Cause(ctx).Error()}
		}
	}}
}

// seen is a copy of what was counted up to now.
func (m *meter) seen() *meter {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &meter{now: maps.Clone(m.now), most: maps.Clone(m.most), runs: maps.Clone(m.runs), last: maps.Clone(m.last), starts: maps.Clone(m.starts), began: slices.Clone(m.began)}
}

// one key for all runs.
func one(*abi.Invocation) string { return "k" }

// each takes the same time.
func each(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

// limited is an hourly job under a limit.
func limited(name string, items int, key string, most int) jobconfig.Configuration {
	d := definition(name, "0 0 * * * ?", items)
	d.Failover = true
	d.Props["wasm.concurrency.key"], d.Props["wasm.concurrency.max"] = key, fmt.Sprint(most)
	return d
}

// hour is the next full hour.
func hour() time.Time { return time.Now().Truncate(time.Hour).Add(time.Hour) }

// tickets are the nodes that are left below a limit.
func (c *cluster) tickets(key string) []string {
	return c.nodes(registry.Children(tree.Limit("test", key)))[0].Names
}

func (m *meter) check(t *testing.T, c *cluster, key string, most int) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.most[key] > most || m.most[key] == 0 {
		t.Errorf("%d ran at once under %s, expected at most %d\n%s", m.most[key], key, most, c.all())
	}
}

// TestLimit_overHosts: over all hosts so many items run at once, each of them runs, and no permit is idle while
// items wait.
func TestLimit_overHosts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, m := newCluster(t), newMeter()
		d := limited("j", 9, "db", 2)
		for n := range 3 {
			c.start(n+1, job(d, m.guest(each(10*time.Second), one)))
		}
		at := hour()
		until(at.Add(25 * time.Second))
		w := 0
		for _, n := range c.hosts {
			if wait := n.waits(event.WaitPermit); wait != nil {
				w += len(wait.Items)
				if !strings.Contains(wait.Reason, `limit "db", under which 2 items may run at once`) {
					t.Errorf("the status says %q", wait.Reason)
				}
			}
		}
		if w != 3 {
			t.Errorf("%d items wait by the status, expected 3\n%s", w, c.all())
		}
		until(at.Add(time.Minute))
		m.check(t, c, "k", 2)
		seen := m.seen()
		if len(seen.runs) != 9 || seen.most["k"] != 2 {
			t.Errorf("ran %v\n%s", seen.runs, c.all())
		}
		if took := seen.last["k"].Sub(at); took > 52*time.Second {
			t.Errorf("it took %s, expected five times 10s\n%s", took, c.all())
		}
		if left := c.tickets("db"); len(left) != 0 {
			t.Errorf("tickets are left: %v", left)
		}
		missing(c, at, at.Add(time.Minute), time.Hour, 9)
	})
}

// TestLimit_fairOverHosts: a host that comes to the line later does not wait until a host with many items has run them all.
func TestLimit_fairOverHosts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, m := newCluster(t), newMeter()
		many, few := limited("many", 40, "db", 2), limited("few", 1, "db", 2)
		few.Cron = "5 0 * * * ?"
		c.start(1, job(many, m.guest(each(10*time.Second), one)))
		c.start(2, job(few, m.guest(each(10*time.Second), one)))
		at := hour()
		until(at.Add(10 * time.Minute))
		seen := m.seen()
		if k := slices.Index(seen.began, "few 0"); k < 0 || k > 6 {
			t.Errorf("it was number %d to run, expected to be among the first after those that stood in the line: %v", k, seen.began)
		}
		m.check(t, c, "k", 2)
	})
}

// TestLimit_smallest: of jobs that name different maxima for a key the smallest holds while the job with it runs or waits.
func TestLimit_smallest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, m := newCluster(t), newMeter()
		wide, narrow := limited("wide", 8, "db", 4), limited("narrow", 2, "db", 1)
		narrow.Cron = "5 0 * * * ?"
		c.start(1, job(wide, m.guest(each(10*time.Second), one)))
		c.start(2, job(narrow, m.guest(each(10*time.Second), func(*abi.Invocation) string {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.now["k"] > 0 {
				t.Errorf("%d run beside one of which at most one runs\n%s", m.now["k"], c.all())
			}
			return "k"
		})))
		at := hour()
		until(at.Add(12 * time.Second))
		if w := c.hosts["10.0.0.2"].waits(event.WaitPermit); w == nil || !strings.Contains(w.Reason, "under which 1 item may run") {
			t.Errorf("the status says %+v", w)
		}
		until(at.Add(10 * time.Minute))
		m.check(t, c, "k", 4)
		seen := m.seen()
		if len(seen.runs) != 10 {
			t.Errorf("ran %v\n%s", seen.runs, c.all())
		}
	})
}

// TestLimit_template: a template is a limit for each value.
func TestLimit_template(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, m := newCluster(t), newMeter()
		d := limited("j", 6, "db-{shardingParameter}", 1)
		d.ShardingItemParameters = "0=a/b,1=a/b,2=a/b,3=c,4=c,5=c"
		c.start(1, job(d, m.guest(each(10*time.Second), func(inv *abi.Invocation) string { return inv.Context.ShardingParameter })))
		at := hour()
		until(at.Add(50 * time.Second))
		m.check(t, c, "a/b", 1)
		m.check(t, c, "c", 1)
		seen := m.seen()
		if len(seen.runs) != 6 || seen.last["c"].Sub(at) > 31*time.Second {
			t.Errorf("ran %v, until %s", seen.runs, seen.last["c"].Sub(at))
		}
	})
}

// TestLimit_hostDies: the permits of a host that dies come back with its session, not before, and what it ran is taken over
// with permits.
func TestLimit_hostDies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, m := newCluster(t), newMeter()
		d := limited("j", 6, "db", 2)
		g := m.guest(each(30*time.Second), one)
		hosts := []*node{c.start(1, job(d, g)), c.start(2, job(d, g)), c.start(3, job(d, g))}
		at := hour()
		until(at.Add(10 * time.Second))
		hosts[0].kill()
		<-hosts[0].done
		until(at.Add(5 * time.Minute))
		m.check(t, c, "k", 2)
		if got := completed(c.list(event.ItemCompleted)); len(got) != 6 {
			t.Errorf("completed %v\n%s", got, c.all())
		}
		if left := c.tickets("db"); len(left) != 0 {
			t.Errorf("tickets are left: %v", left)
		}
	})
}

// TestLimit_changes: the maximum and the key are changed while items run and wait.
func TestLimit_changes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		to   jobconfig.Configuration
		took time.Duration
		key  string // of those that begin after the change
		most int
	}{
		{"lowered", limited("j", 8, "db", 1), 90 * time.Second, "db", 1},
		{"raised", limited("j", 8, "db", 8), 25 * time.Second, "db", 8},
		{"another key", limited("j", 8, "other", 2), 50 * time.Second, "other", 2},
		{"no limit any more", definition("j", "0 0 * * * ?", 8), 20 * time.Second, "", 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, m := newCluster(t), newMeter()
				key := "before"
				g := m.guest(each(10*time.Second), func(*abi.Invocation) string { m.mu.Lock(); defer m.mu.Unlock(); return key })
				c.config = func(cfg *engine.Config) { cfg.MaxConcurrency = 50 }
				d := limited("j", 8, "db", 3)
				d.Props[jobconfig.PropMaxConcurrency], tt.to.Props[jobconfig.PropMaxConcurrency] = "20", "20"
				n, other := c.start(1, job(d, g)), c.start(2, job(d, g))
				at := hour()
				until(at.Add(5 * time.Second))
				tt.to.Overwrite, tt.to.Failover = true, true
				n.host.Apply([]engine.Job{job(tt.to, g)}, nil)
				other.host.Apply([]engine.Job{job(tt.to, g)}, nil)
				synctest.Wait()
				m.mu.Lock()
				key = "after"
				m.mu.Unlock()
				until(at.Add(5 * time.Minute))
				m.check(t, c, "after", tt.most)
				seen := m.seen()
				if len(seen.runs) != 8 {
					t.Errorf("ran %v\n%s", seen.runs, c.all())
				}
				if took := seen.last["after"].Sub(at); took > tt.took {
					t.Errorf("it took %s, expected %s\n%s", took, tt.took, c.all())
				}
				for _, k := range []string{"db", "other"} {
					if left := c.tickets(k); len(left) != 0 {
						t.Errorf("tickets of %s are left: %v", k, left)
					}
				}
			})
		})
	}
}

// TestLimit_trigger: a trigger under a limit runs all items, also if the host dies while some wait for a permit.
func TestLimit_trigger(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{false, true} {
		t.Run(fmt.Sprintf("dies=%v", dies), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, m := newCluster(t), newMeter()
				d := limited("j", 4, "db", 1)
				g := m.guest(each(10*time.Second), one)
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
				time.Sleep(3 * time.Minute)
				m.check(t, c, "k", 1)
				if got := completed(c.list(event.ItemCompleted)); len(got) != 4 {
					t.Errorf("completed %v\n%s", got, c.all())
				}
			})
		})
	}
}

// TestLimit_budget: a fire under a limit is one commit and one read more than another; a job without a limit
// asks the registry for nothing more.
func TestLimit_budget(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		d              jobconfig.Configuration
		commits, reads int
	}{
		{"without", definition("j", "0 0 * * * ?", 4), 2, 0},
		{"with", limited("j", 4, "db", 4), 3, 1},
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
				tt.d.Failover, tt.d.Props[jobconfig.PropMaxConcurrency] = true, "8"
				tt.d.Cron = "0 0/2 * * * ?"
				tt.d.ReconcileIntervalMinutes = 0
				c.start(1, job(tt.d, m.guest(each(time.Second), one)))
				at := hour()
				until(at.Add(3 * time.Minute)) // the first makes the limit's node
				mu.Lock()
				commits, reads = 0, 0
				mu.Unlock()
				until(at.Add(5 * time.Minute))
				mu.Lock()
				defer mu.Unlock()
				if commits != tt.commits || reads != tt.reads {
					t.Errorf("%d commits and %d reads, expected %d and %d\n%s", commits, reads, tt.commits, tt.reads, c.all())
				}
			})
		})
	}
}

// TestLimit_crashes has hosts die, or answers lost, at every call of a fire under a limit: between drawing, beginning and
// completing. Never do more run than may, every item is accounted for, and no ticket is left.
func TestLimit_crashes(t *testing.T) {
	t.Parallel()
	for _, fault := range []registrytest.Fault{registrytest.ExpireBefore, registrytest.ExpireAfter, registrytest.LostAnswer, registrytest.LostRequest} {
		for at := 1; at <= 14; at++ {
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
					d := limited("j", 5, "db", 2)
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
					m.check(t, c, "k", 2)
					missing(c, due, due.Add(time.Minute), time.Hour, 5)
					if got := completed(c.list(event.ItemCompleted)); len(got) < 3 { // that of two may have had no answer
						t.Errorf("completed %v\n%s", got, c.all())
					}
					if left := c.tickets("db"); len(left) != 0 {
						t.Errorf("tickets are left: %v\n%s", left, c.all())
					}
				})
			})
		}
	}
}

// TestLimit_simulation plays hosts that come, die and lose answers, jobs that share keys, and maxima that change. It checks all
// the time that never more run under a key than any of its jobs has allowed lately, and at the end that all is quiet.
func TestLimit_simulation(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var dicing sync.Mutex
				dice := rand.New(rand.NewPCG(seed, 34))
				roll := func(n int) int {
					dicing.Lock()
					defer dicing.Unlock()
					return dice.IntN(n)
				}
				c, m := newCluster(t), newMeter()
				c.lostAnswers = true
				var mu sync.Mutex
				var faults []registrytest.Fault // of the next calls
				c.wrap = func(_ int, l *lease) registry.Center {
					return planned(l, func(string) (fault registrytest.Fault) {
						mu.Lock()
						defer mu.Unlock()
						if len(faults) > 0 && roll(4) == 0 {
							fault, faults = faults[0], faults[1:]
						}
						return fault
					})
				}
				takes := func(int) time.Duration {
					mu.Lock()
					defer mu.Unlock()
					return time.Duration(1+roll(40)) * time.Second
				}
				g := m.guest(takes, func(inv *abi.Invocation) string { return "db-" + inv.Context.ShardingParameter })
				define := func(most int) []engine.Job {
					var jobs []engine.Job
					for _, name := range []string{"a", "b"} {
						d := limited(name, 6, "db-{shardingParameter}", most)
						d.Cron, d.Overwrite = "0 * * * * ?", true
						d.ShardingItemParameters = "0=x,1=x,2=x,3=x,4=y,5=y"
						d.Props[jobconfig.PropMaxHostDeaths] = "0"
						jobs = append(jobs, job(d, g))
					}
					return jobs
				}
				jobs, next := define(2), 4
				for n := range 3 {
					c.start(n+1, jobs...)
				}
				for range 30 {
					time.Sleep(time.Duration(20+roll(40)) * time.Second)
					kinds := []registrytest.Fault{registrytest.ExpireBefore, registrytest.ExpireAfter, registrytest.LostAnswer, registrytest.LostRequest, registrytest.LostAnswer}
					mu.Lock()
					for range roll(4) {
						faults = append(faults, kinds[roll(len(kinds))])
					}
					mu.Unlock()
					switch roll(4) {
					case 0: // one dies
						name := slices.Sorted(maps.Keys(c.hosts))[roll(len(c.hosts))]
						c.hosts[name].kill()
						<-c.hosts[name].done
						delete(c.hosts, name)
						c.start(next, jobs...)
						next++
					case 1: // one leaves
						name := slices.Sorted(maps.Keys(c.hosts))[roll(len(c.hosts))]
						n := c.hosts[name]
						n.stop()
						<-n.done
						delete(c.hosts, name)
						c.start(next, jobs...)
						next++
					}
				}
				m.check(t, c, "db-x", 2)
				m.check(t, c, "db-y", 2)
				mu.Lock()
				faults = nil
				mu.Unlock()
				time.Sleep(2 * time.Minute)
				before := maps.Clone(m.seen().runs)
				time.Sleep(5 * time.Minute)
				after := m.seen()
				for name, n := range before {
					if after.runs[name] == n {
						t.Errorf("item %s does not run any more", name)
					}
				}
				m.check(t, c, "db-x", 2)
			})
		})
	}
}

// TestPriority: items of a job with a higher priority get the slots of a host before those that wait longer.
func TestPriority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, m := newCluster(t), newMeter()
		c.config = func(cfg *engine.Config) { cfg.MaxConcurrency = 1 }
		low, high := definition("low", "0 0 * * * ?", 6), definition("high", "5 0 * * * ?", 6)
		low.Props["wasm.priority"], high.Props["wasm.priority"] = "4", "1"
		g := m.guest(each(10*time.Second), one)
		c.start(1, job(low, g), job(high, g))
		at := hour()
		until(at.Add(-time.Minute))
		m.mu.Lock()
		m.began = nil // those of the hour in which the host started
		m.mu.Unlock()
		until(at.Add(5 * time.Minute))
		seen := m.seen()
		if len(seen.began) != 12 {
			t.Fatalf("ran %v\n%s", seen.began, c.all())
		}
		if n := strings.Count(strings.Join(seen.began[1:8], " "), "high"); n < 6 {
			t.Errorf("after the first one %d of seven were of the higher priority: %v", n, seen.began)
		}
	})
}

// TestLimit_noKeyStarves: of many keys with many items that wait, on hosts with few slots, none falls behind: at any time each key
// has had at least half of its fair share.
func TestLimit_noKeyStarves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const keys, each1, slots = 25, 16, 5 // slots of each of two hosts
		c, m := newCluster(t), newMeter()
		c.config = func(cfg *engine.Config) { cfg.MaxConcurrency = slots }
		ran := make(map[string]int)
		worst := 1.0
		total := 0
		g := &guest{digest: "share", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
			time.Sleep(time.Second)
			m.mu.Lock()
			defer m.mu.Unlock()
			ran[inv.Context.ShardingParameter]++
			total++
			if fair := float64(total) / keys; fair >= 4 && fair <= each1-2 {
				for k := range keys {
					worst = min(worst, float64(ran[fmt.Sprint("k", k)]+1)/fair) // one may be running
				}
			}
			return ok
		}}
		d := limited("j", keys*each1, "{shardingParameter}", 2)
		var parameters []string
		for n := range keys * each1 { // all items of a key together, the worst order
			parameters = append(parameters, fmt.Sprintf("%d=k%d", n, n/each1))
		}
		d.ShardingItemParameters = strings.Join(parameters, ",")
		d.Props[jobconfig.PropMaxConcurrency] = "1000"
		c.start(1, job(d, g))
		c.start(2, job(d, g))
		until(hour().Add(10 * time.Minute))
		m.mu.Lock()
		defer m.mu.Unlock()
		if total != keys*each1 {
			t.Errorf("%d of %d items have run", total, keys*each1)
		}
		if worst < 0.5 {
			t.Errorf("a key had %.2f of its fair share", worst)
		}
	})
}

// TestLimit_heldBack: a trigger whose items are refused one after another, since each of them waits for the permit of the one
// before and is held back, is answered once.
func TestLimit_heldBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, m := newCluster(t), newMeter()
		d := limited("j", 3, "db", 2)
		d.Props["wasm.maxHostDeaths"] = "1"
		g := m.guest(func(item int) time.Duration {
			if item == 2 {
				return time.Second
			}
			return 20 * time.Minute
		}, one)
		c.start(1, job(d, g))
		until(hour().Add(-time.Second))
		n := c.start(2, job(d, g))
		until(hour().Add(2 * time.Second))
		for _, running := range c.hosts {
			if running != n {
				running.kill()
				<-running.done
			}
		}
		delete(c.hosts, "10.0.0.1")
		time.Sleep(time.Minute)
		if held := c.list(event.ItemHeld); len(held) == 0 {
			t.Fatalf("no item is held back\n%s", c.all())
		}
		n.kill()
		<-n.done
		delete(c.hosts, "10.0.0.2")
		d.Props = map[string]string{"wasm.maxHostDeaths": "1", "wasm.concurrency.key": "db", "wasm.concurrency.max": "1"}
		n = c.start(3, job(d, g))
		time.Sleep(time.Minute)
		if held := c.list(event.ItemHeld); len(held) != 2 {
			t.Fatalf("%d items are held back, expected 2\n%s", len(held), c.all())
		}
		if err := n.operator().Trigger(t.Context(), "j"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		said := make(map[int]int)
		for _, e := range c.list(event.ItemSkipped) {
			if e.Cause == event.SkipHeld && e.Trigger != 0 {
				said[*e.Item]++
			}
		}
		if said[0] != 1 || said[1] != 1 {
			t.Errorf("that the item is held back is said %v times\n%s", said, c.all())
		}
		if waits := c.nodes(registry.Children("/test/j/trigger")); len(waits[0].Names) > 0 {
			t.Errorf("the trigger waits on: %v", waits[0].Names)
		}
	})
}

// TestLimit_leaves: a host that leaves the job with an item that it had to cut off, and whose session goes on, returns the item's
// permit, also when an operator stops its instance.
func TestLimit_leaves(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*testing.T, *cluster, *node){
		"the definition goes": func(_ *testing.T, _ *cluster, n *node) { n.host.Apply(nil, nil) },
		"an operator stops it": func(t *testing.T, c *cluster, n *node) {
			if err := c.operate(func(ctx context.Context, r registry.Center) error {
				return stopInstance(ctx, r, tree.NewLayout("test", "j"), n.host.Status().Instance)
			}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, m := newCluster(t), newMeter()
				d := limited("j", 4, "db", 1)
				d.Failover, d.MonitorExecution = false, false
				c.start(1, job(d, m.guest(each(time.Second), one)))
				time.Sleep(time.Second)
				n := c.start(2, job(d, m.guest(each(10*time.Minute), one)))
				until(hour().Add(10 * time.Second))
				if left := c.tickets("db"); len(left) == 0 {
					t.Fatalf("tickets before: %v", left)
				}
				leave(t, c, n)
				time.Sleep(time.Minute)
				if left := c.tickets("db"); len(left) > 0 {
					t.Errorf("tickets are left: %v\n%s", left, c.all())
				}
				until(hour().Add(time.Minute))
				if seen := m.seen(); len(seen.runs) < 4 {
					t.Errorf("ran %v\n%s", seen.runs, c.all())
				}
			})
		})
	}
}
