package engine_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

var (
	faultSeeds = flag.Int("faults.seeds", faultsDefault, "how many seeds of random faults are run")
	faultFirst = flag.Int("faults.first", 1, "the first of them")
	faultSeed  = flag.Int64("faults.seed", 0, "run only this seed, and print what happened")
)

// TestRandomFaults does to a cluster, at random times of half an hour each,
// what happens to clusters: hosts are killed, started, stopped, halted, cut off
// and connected again, sessions end, answers and requests are lost or late, what
// a host asked for arrives when it hears nothing any more, the definition changes, an operator triggers and disables, clocks are wrong and are
// set forwards and backwards. Then it comes to rest,
// and everything must be in order.
func TestRandomFaults(t *testing.T) {
	if *faultSeed != 0 {
		attack(t, uint64(*faultSeed), true)
		return
	}
	t.Parallel()
	seeds := *faultSeeds
	if testing.Short() {
		seeds = min(seeds, 50)
	}
	var faults atomic.Int64
	t.Cleanup(func() { t.Logf("%d seeds, %d faults", seeds, faults.Load()) })
	const groups = 4
	for g := range groups {
		t.Run(fmt.Sprintf("group%d", g), func(t *testing.T) {
			t.Parallel()
			for seed := *faultFirst + g; seed < *faultFirst+seeds && !t.Failed(); seed += groups {
				faults.Add(int64(attack(t, uint64(seed), false)))
			}
		})
	}
}

// attack runs one seed and returns the number of faults.
func attack(t *testing.T, seed uint64, tell bool) (faults int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 2)) // what is done, and when
		r := newRig(t, 1+rng.IntN(6))
		r.seed, r.stagger = seed, 17*time.Microsecond
		r.def.Failover = seed%4 != 0
		sick := 0 // of a thousand calls so many go wrong
		r.takes = func(item int) time.Duration {
			length := mix(seed, 4, uint64(item), uint64(time.Now().UnixNano()))
			switch length % 12 {
			case 0:
				return 45 * time.Second
			case 1:
				return 0
			}
			return time.Duration(length/12%12_000) * time.Millisecond
		}
		r.meddle = func(m *machine, _ string) meddling {
			if sick == 0 || m.dice(1000) >= sick {
				return letBe
			}
			wrong := []meddling{loseAnswer, loseAnswer, loseRequest, refuse, refuse, expireNow, expireThen, killBefore, killAfter, slowRequest, slowRequest, slowAnswer, slowAnswer}
			return wrong[m.dice(len(wrong))]
		}
		setSick := func(n int) {
			r.note("of a thousand calls %d go wrong", n)
			r.mu.Lock()
			defer r.mu.Unlock()
			sick = n
		}
		nap := func(low, high time.Duration) {
			// Never at a full millisecond, where hosts and guests act.
			time.Sleep((low + time.Duration(rng.Int64N(int64(high-low)+1))).Truncate(time.Millisecond) + 333*time.Microsecond)
		}
		clocks := rand.New(rand.NewPCG(seed, 5))
		off := func(most time.Duration) time.Duration {
			return time.Duration(clocks.Int64N(int64(2*most)+1) - int64(most)).Truncate(time.Millisecond)
		}
		// wrong is half a minute before or behind what is right, or up to sixty days
		// before it. Days behind keep a host from its items, which is no fault.
		wrong := func() time.Duration {
			if clocks.IntN(3) == 0 {
				return time.Duration(clocks.Int64N(int64(60 * 24 * time.Hour))).Truncate(time.Millisecond)
			}
			return off(30 * time.Second)
		}
		jumps := seed%8 == 1 || seed%8 == 4 // the one with failover, the other without
		if jumps || seed%3 == 1 {
			r.clocks = func() time.Duration {
				if jumps && clocks.IntN(4) == 0 {
					return wrong()
				}
				return off(2 * time.Second)
			}
		}
		kinds := 20
		if jumps {
			kinds += 3
		}
		for range 1 + rng.IntN(3) {
			r.start()
			nap(time.Millisecond, 9*time.Millisecond)
		}
		for end := time.Now().Add(30 * time.Minute); time.Now().Before(end); {
			nap(time.Second, 50*time.Second)
			living := r.living()
			if len(living) == 0 {
				r.start()
				continue
			}
			m := living[rng.IntN(len(living))]
			faults++
			switch rng.IntN(kinds) {
			case 0, 1, 2:
				if len(living) < 4 {
					r.start()
				}
			case 3, 4:
				m.murdered("at random")
			case 5:
				m.retire()
			case 6, 7:
				m.part(rng.IntN(3) == 0)
				nap(time.Second, 2*sessionTimeout)
				if jumps && clocks.IntN(3) == 0 {
					m.set(wrong())
				}
				m.heal()
			case 8, 9:
				m.halt()
				before := time.Now()
				nap(time.Second, 2*sessionTimeout)
				if jumps && clocks.IntN(3) == 0 {
					m.set(wrong())
				}
				m.goOn(time.Since(before))
			case 10:
				m.expire()
			case 11:
				r.apply(func(d *jobconfig.Configuration) { d.ShardingTotalCount = 1 + rng.IntN(6) })
			case 12:
				r.apply(func(d *jobconfig.Configuration) { d.Misfire = rng.IntN(3) > 0 })
			case 13:
				r.operate("trigger", func(ctx context.Context, m *machine) error { return m.operator().Trigger(ctx, rigJob) })
			case 14:
				item := rng.IntN(r.def.ShardingTotalCount)
				r.operate(fmt.Sprint("disable item ", item), func(ctx context.Context, m *machine) error { return m.operator().DisableItem(ctx, rigJob, item) })
				nap(time.Second, 40*time.Second)
				r.enableAll()
			case 15:
				setSick(1 + rng.IntN(200))
				nap(time.Second, 30*time.Second)
				setSick(0)
			case 16, 17, 18: // others may happen meanwhile
				m.slowFor(time.Second + time.Duration(rng.Int64N(int64(time.Minute))))
			case 19: // and it is cut off while things are on their way
				m.slowFor(time.Minute)
				nap(time.Second, 15*time.Second)
				m.part(rng.IntN(2) == 0)
				nap(time.Second, 2*sessionTimeout)
				m.heal()
			case 20, 21, 22:
				m.set(wrong())
			}
		}
		r.rest(4 * time.Minute)
		if tell {
			t.Log("\n" + r.timeline())
		}
		if len(r.faults) > 0 {
			t.Errorf("seed %d (repeat with: go test ./host/engine -run TestRandomFaults -faults.seed %d)\n%s\n\n%s", seed, seed, strings.Join(r.faults, "\n"), r.timeline())
		}
	})
	return faults
}

var errFaults = map[registrytest.Fault]string{
	registrytest.Refused: "refused", registrytest.InDoubt: "in doubt", registrytest.LostRequest: "lost request",
	registrytest.LostAnswer: "lost answer", registrytest.ExpireBefore: "expired before", registrytest.ExpireAfter: "expired after",
}

// TestEveryCallGoesWrongOnce lets each call of one of two hosts go wrong
// in each way, while the hosts run, drain and change their minds.
func TestEveryCallGoesWrongOnce(t *testing.T) {
	for fault, name := range errFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for k := 1; ; k += callStep {
				if !goesWrong(t, fault, k) || t.Failed() {
					break
				}
			}
		})
	}
}

// goesWrong reports false if the host makes fewer than k calls.
func goesWrong(t *testing.T, fault registrytest.Fault, k int) (happened bool) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.lostAnswers = fault == registrytest.ExpireAfter
		calls := 0
		c.wrap = func(n int, l *lease) registry.Center {
			if n != 1 {
				return l
			}
			return planned(l, func(string) registrytest.Fault {
				c.mu.Lock()
				defer c.mu.Unlock()
				calls++
				if calls == k {
					happened = true
					return fault
				}
				return registrytest.NoFault
			})
		}
		d := definition("j", "0 * * * * ?", 3)
		d.Failover = true
		var l lone
		g := l.guest(func(item int) time.Duration { return time.Duration(item)*25*time.Second + 10*time.Second })
		a := c.start(1, job(d, g))
		b := c.start(2, job(d, g))
		time.Sleep(2*time.Minute + 5*time.Second)
		b.stop() // the other leaves
		<-b.done
		time.Sleep(30 * time.Second)
		_ = a.operator().Trigger(t.Context(), "j")
		time.Sleep(time.Minute)
		b = c.start(3, job(d, g)) // and another comes
		time.Sleep(35 * time.Second)
		a.host.Apply(nil, nil) // this one wants to leave, and stays
		time.Sleep(time.Second)
		d.Description = "more"
		a.host.Apply([]engine.Job{job(d, g)}, nil)
		time.Sleep(2 * time.Minute)
		b.kill() // the other dies: failover
		<-b.done
		time.Sleep(2 * time.Minute)
		from := time.Now().Truncate(time.Minute).Add(time.Minute)
		time.Sleep(4 * time.Minute)
		l.check(t, c)
		for run, n := range byRun(c.list(event.ItemCompleted)) {
			if n > 1 {
				t.Errorf("%s was completed %d times", run, n)
			}
		}
		missing(c, from, time.Now().Add(-time.Minute), time.Minute, 3)
		// Nothing that was due since the start is without a word, either.
		missing(c, time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC), from, time.Minute, 3)
		a.stop()
		<-a.done
		if uses := g.inUse(); uses != 0 {
			t.Errorf("%d uses of the module are left", uses)
		}
		if t.Failed() {
			t.Logf("call %d: %s\n%s", k, errFaults[fault], c.all())
		}
	})
	return happened
}
