package engine_test

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

var (
	crashStride = flag.Int("crash.stride", crashDefault, "of the operations of a scenario every n-th is a place to die at; 1 is all of them")
	crashPairs  = flag.Int("crash.pairs", pairsDefault, "the same for pairs; 0 is none")
	crashCase   = flag.String("crash.case", "", "run only this case, such as fire/2/1/17/after, and print what happened")
)

// TestCrashAtEveryOperation plays short scripts with one, two and three hosts,
// and lets each host die right before and right after each of its operations
// on the registry: after it, the write is done and its answer is not heard. The
// others go on; then the events of all hosts, the journal of the registry, and
// what is left in it must be in order.
func TestCrashAtEveryOperation(t *testing.T) {
	if *crashCase != "" {
		c, err := parseCase(*crashCase)
		if err != nil {
			t.Fatal(err)
		}
		c.play(t, true)
		return
	}
	t.Parallel()
	var ran, died atomic.Int64
	t.Cleanup(func() {
		t.Logf("%d cases of %d scenarios with 1 to 3 hosts; in %d of them a host died at an operation (stride %d)", ran.Load(), len(scenarios), died.Load(), *crashStride)
	})
	for name := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for hosts := 1; hosts <= 3; hosts++ {
				for victim := 1; victim <= hosts+1; victim++ { // scenarios may start one more
					for _, when := range []meddling{killBefore, killAfter} {
						// Strides begin at different places, so that none is never looked at.
						first := 1 + (len(name)+3*hosts+5*victim+7*int(when))%*crashStride
						for k := first; !t.Failed(); k += *crashStride {
							c := crash{scenario: name, hosts: hosts, deaths: []death{{victim, k, when}}}
							ran.Add(1)
							if !c.play(t, false)[0] {
								break // it made fewer operations
							}
							died.Add(1)
						}
					}
				}
			}
		})
	}
}

// TestTwoCrashes lets two hosts of three die, each at each of its operations,
// while the items are divided and while what a third host left is taken over.
// Of the four ways in which the two can die, before or after their operations,
// each pair is played in one, which goes round with the two numbers: a whole run
// has each operation of each host before and after, beside several of the other.
func TestTwoCrashes(t *testing.T) {
	if *crashPairs == 0 || *crashCase != "" {
		t.Skip("asked for no pairs")
	}
	t.Parallel()
	var ran, died atomic.Int64
	t.Cleanup(func() {
		t.Logf("%d cases; in %d of them two hosts died at operations (stride %d)", ran.Load(), died.Load(), *crashPairs)
	})
	for _, name := range []string{"failover", "scale up", "scale out"} {
		for _, pair := range [][2]int{{1, 2}, {2, 3}, {1, 3}} {
			t.Run(fmt.Sprint(name, pair), func(t *testing.T) {
				t.Parallel()
				for k1 := 1 + len(name)%*crashPairs; !t.Failed(); k1 += *crashPairs {
					reached := false
					for k2 := 1 + k1%*crashPairs; !t.Failed(); k2 += *crashPairs {
						when := []meddling{killBefore, killAfter}
						c := crash{scenario: name, hosts: 3, deaths: []death{{pair[0], k1, when[(k1+k2)%2]}, {pair[1], k2, when[(k1/2+k2/2)%2]}}}
						ran.Add(1)
						deaths := c.play(t, false)
						reached = reached || deaths[0]
						if !deaths[1] {
							break // the second made fewer operations
						}
						if deaths[0] {
							died.Add(1)
						}
					}
					if !reached {
						break
					}
				}
			})
		}
	}
}

// crash is one case.
type crash struct {
	scenario string
	hosts    int
	deaths   []death
}

// death is the death of a host at one of its operations, counted from the
// beginning of the scenario's second part.
type death struct {
	victim, operation int
	when              meddling
}

func (c crash) String() string {
	s := fmt.Sprintf("%s/%d", c.scenario, c.hosts)
	for _, d := range c.deaths {
		s += fmt.Sprintf("/%d/%d/%s", d.victim, d.operation, map[meddling]string{killBefore: "before", killAfter: "after"}[d.when])
	}
	return s
}

func parseCase(text string) (c crash, err error) {
	parts := strings.Split(text, "/")
	if len(parts) < 2 || len(parts)%3 != 2 || scenarios[parts[0]] == nil {
		return c, fmt.Errorf("case %q: expected SCENARIO/HOSTS/VICTIM/OPERATION/before", text)
	}
	c.scenario = parts[0]
	if _, err := fmt.Sscan(parts[1], &c.hosts); err != nil {
		return c, fmt.Errorf("case %q: %w", text, err)
	}
	for p := parts[2:]; len(p) > 0; p = p[3:] {
		d := death{when: killBefore}
		if _, err := fmt.Sscan(p[0]+" "+p[1], &d.victim, &d.operation); err != nil {
			return c, fmt.Errorf("case %q: %w", text, err)
		}
		if p[2] == "after" {
			d.when = killAfter
		}
		c.deaths = append(c.deaths, d)
	}
	return c, nil
}

// play plays it and reports which of the deaths came about.
func (c crash) play(t *testing.T, tell bool) []bool {
	t.Helper()
	died := make([]bool, len(c.deaths))
	synctest.Test(t, func(t *testing.T) {
		s := scenarios[c.scenario]
		r := newRig(t, 4)
		base := make(map[int]int)
		armed := false
		r.meddle = func(m *machine, _ string) meddling {
			if !armed {
				base[m.n] = m.calls
				return letBe
			}
			for i, d := range c.deaths {
				if d.victim == m.n && m.calls-base[m.n] == d.operation {
					died[i] = true
					return d.when
				}
			}
			return letBe
		}
		s(r, c.hosts, func() {
			r.mu.Lock()
			armed = true
			r.mu.Unlock()
		})
		r.rest(100 * time.Second)
		r.served()
		if tell {
			t.Log("\n" + r.timeline())
		}
		if len(r.faults) > 0 {
			t.Errorf("%s (repeat with: go test ./host/engine -run TestCrashAtEveryOperation -crash.case '%s')\n%s\n\n%s", c, c, strings.Join(r.faults, "\n"), r.timeline())
		}
	})
	return died
}

// script is a scenario: it begins so many hosts, calls act where the operations
// begin to count, and goes on.
type script func(r *rig, hosts int, act func())

// begin starts hosts and waits until all is quiet.
func (r *rig) begin(hosts int) {
	for range hosts {
		r.start()
	}
	time.Sleep(time.Until(time.Now().Truncate(10 * time.Second).Add(25 * time.Second)))
}

// slowly makes the runs that begin from now on take so long.
func (r *rig) slowly(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takes = func(int) time.Duration { return d }
}

func (r *rig) operate(what string, do func(ctx context.Context, m *machine) error) (done bool) {
	r.note("operator: %s", what)
	for _, m := range r.living() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		err := do(ctx, m)
		cancel()
		if err == nil {
			return true
		}
		r.note("operator: %v", err) // its host died, or has no session
	}
	return false
}

var scenarios = map[string]script{
	"register and fire": func(r *rig, hosts int, act func()) {
		act()
		for range hosts {
			r.start()
		}
		time.Sleep(25 * time.Second)
	},
	"fire": func(r *rig, hosts int, act func()) {
		r.begin(hosts)
		act()
		time.Sleep(15 * time.Second)
	},
	"misfire": func(r *rig, hosts int, act func()) {
		r.begin(hosts)
		act()
		r.slowly(14 * time.Second)
		time.Sleep(35 * time.Second)
	},
	"failover": func(r *rig, hosts int, act func()) {
		r.slowly(8 * time.Second)
		r.begin(hosts + 1)
		time.Sleep(7 * time.Second) // it runs items
		act()
		r.hosts[hosts].murdered("scenario")
		time.Sleep(30 * time.Second)
	},
	"without failover": func(r *rig, hosts int, act func()) {
		r.def.Failover = false
		r.slowly(8 * time.Second)
		r.begin(hosts + 1)
		time.Sleep(7 * time.Second)
		act()
		r.hosts[hosts].murdered("scenario")
		time.Sleep(30 * time.Second)
	},
	"failover of a failover": func(r *rig, hosts int, act func()) {
		r.slowly(8 * time.Second)
		r.begin(hosts + 2)
		time.Sleep(7 * time.Second)
		act()
		r.hosts[hosts].murdered("scenario")
		time.Sleep(sessionTimeout + 3*time.Second) // what it ran is taken, and runs
		r.hosts[hosts+1].murdered("scenario")
		time.Sleep(30 * time.Second)
	},
	"drain": func(r *rig, hosts int, act func()) {
		r.begin(hosts)
		r.slowly(8 * time.Second)
		time.Sleep(7 * time.Second)
		act()
		r.hosts[0].retire()
		time.Sleep(25 * time.Second)
	},
	"scale out": func(r *rig, hosts int, act func()) {
		r.slowly(8 * time.Second)
		r.begin(hosts)
		time.Sleep(7 * time.Second)
		act()
		r.start()
		time.Sleep(25 * time.Second)
	},
	"scale up": func(r *rig, hosts int, act func()) {
		r.slowly(7 * time.Second)
		r.begin(hosts)
		time.Sleep(7 * time.Second)
		act()
		r.apply(func(d *jobconfig.Configuration) { d.ShardingTotalCount = 7 })
		time.Sleep(25 * time.Second)
	},
	"scale down": func(r *rig, hosts int, act func()) {
		r.slowly(7 * time.Second)
		r.begin(hosts)
		time.Sleep(7 * time.Second)
		act()
		r.apply(func(d *jobconfig.Configuration) { d.ShardingTotalCount = 2 })
		time.Sleep(25 * time.Second)
	},
	"trigger": func(r *rig, hosts int, act func()) {
		r.begin(hosts)
		act()
		r.operate("trigger", func(ctx context.Context, m *machine) error { return m.operator().Trigger(ctx, rigJob) })
		time.Sleep(15 * time.Second)
	},
	"trigger with arguments": func(r *rig, hosts int, act func()) {
		r.begin(hosts)
		r.mu.Lock()
		r.takes = func(item int) time.Duration { return time.Duration(2+6*(item%2)) * time.Second } // 1 and 3 are busy then
		param := "of this fire"
		r.args = tree.TriggerArgs{Items: tree.RangesOf(tree.Items{0, 1, 3}), Param: &param}
		r.mu.Unlock()
		time.Sleep(8 * time.Second)
		act()
		r.triggered = r.operate("trigger with arguments", func(ctx context.Context, m *machine) error {
			_, err := m.operator().TriggerWith(ctx, rigJob, r.args)
			return err
		})
		time.Sleep(25 * time.Second)
	},
	"backfill": func(r *rig, hosts int, act func()) {
		r.begin(hosts)
		r.slowly(3 * time.Second)
		b := tree.Backfill{Every: 1000, Since: time.Now().UnixMilli(), By: "ann"}
		for day := range 3 {
			b.Instants = append(b.Instants, time.Now().AddDate(0, 0, day-5).UnixMilli())
		}
		b.From, b.To = b.Instants[0], b.Instants[2]
		act()
		if r.operate("backfill", func(ctx context.Context, m *machine) error { return m.operator().Backfill(ctx, rigJob, b) }) {
			r.mu.Lock()
			r.backfilled = len(b.Instants)
			r.mu.Unlock()
		}
		time.Sleep(40 * time.Second)
	},
	"disable an item": func(r *rig, hosts int, act func()) {
		r.begin(hosts)
		act()
		r.operate("disable item 1", func(ctx context.Context, m *machine) error { return m.operator().DisableItem(ctx, rigJob, 1) })
		time.Sleep(12 * time.Second)
		r.operate("enable item 1", func(ctx context.Context, m *machine) error { return m.operator().EnableItem(ctx, rigJob, 1) })
		time.Sleep(12 * time.Second)
	},
	"disable the servers": func(r *rig, hosts int, act func()) {
		r.begin(hosts)
		act()
		r.operate("disable", func(ctx context.Context, m *machine) error { return m.operator().Disable(ctx, rigJob) })
		time.Sleep(12 * time.Second)
		r.operate("enable", func(ctx context.Context, m *machine) error { return m.operator().Enable(ctx, rigJob) })
		time.Sleep(12 * time.Second)
	},
	"remove and bring back": func(r *rig, hosts int, act func()) {
		r.slowly(7 * time.Second)
		r.begin(hosts)
		time.Sleep(7 * time.Second)
		act()
		r.operate("remove", func(ctx context.Context, m *machine) error { return m.operator().Remove(ctx, rigJob, false) })
		time.Sleep(15 * time.Second)
		r.apply(func(d *jobconfig.Configuration) { d.Description = "back again" })
		time.Sleep(15 * time.Second)
	},
	"leader dies": func(r *rig, hosts int, act func()) {
		r.start() // it leads
		time.Sleep(time.Second)
		r.begin(hosts)
		act()
		r.hosts[0].murdered("scenario")
		time.Sleep(30 * time.Second)
	},
	"session ends": func(r *rig, hosts int, act func()) {
		r.slowly(8 * time.Second)
		r.begin(hosts)
		time.Sleep(7 * time.Second)
		act()
		r.hosts[0].expire()
		time.Sleep(25 * time.Second)
	},
	"cut off": func(r *rig, hosts int, act func()) {
		r.slowly(8 * time.Second)
		r.begin(hosts)
		time.Sleep(7 * time.Second)
		act()
		r.hosts[0].sever()
		time.Sleep(20 * time.Second)
		r.hosts[0].heal()
		time.Sleep(20 * time.Second)
	},
	"half cut off": func(r *rig, hosts int, act func()) {
		r.slowly(8 * time.Second)
		r.begin(hosts)
		time.Sleep(7 * time.Second)
		act()
		r.hosts[0].deafen() // what it asks for still arrives
		time.Sleep(30 * time.Second)
		r.hosts[0].heal()
		time.Sleep(20 * time.Second)
	},
}
