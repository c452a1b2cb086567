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
	"github.com/wasmjob/wasmjob/host/event"
)

func TestFailover_keepsTheCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("j", "0 * * * * ?", 2)
		d.Failover = true
		first := c.start(1, job(d, sleeper(50*time.Second)))
		time.Sleep(90 * time.Second) // 1:30, the items of 1:00 run
		first.kill()
		<-first.done
		time.Sleep(40 * time.Second) // 2:10, nobody was there at 2:00
		c.start(2, job(d, sleeper(10*time.Second)))
		time.Sleep(45 * time.Second)
		want := []string{"01:00 schedule for 01:00", "02:10 failover for 01:00", "02:20 misfire for 02:00"}
		for item := range 2 {
			got := c.starts(item)
			if len(got) == 3 {
				got[2] = strings.Replace(got[2], "catch-up", "misfire", 1)
			}
			if !slices.Equal(got, want) {
				t.Errorf("item %d started %q, want %q\n%s", item, got, want, c.all())
			}
		}
	})
}

// What a host has taken over without hearing of it does not wait for the next
// fire: the list that it was on is gone, and nobody else looks for it.
func TestFailover_runsAtOnceWhenItsOutcomeIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		lost := &unheard{is: func(op registry.Op) bool {
			return op.Kind == registry.OpSet && strings.Contains(string(op.Data), `"source":"failover"`)
		}}
		c.wrap = lost.wrap
		d := definition("j", "0 0 * * * ?", 1)
		d.Failover = true
		g := sleeper(time.Minute)
		nodes := []*node{c.start(1, job(d, g)), c.start(2, job(d, g)), c.start(3, job(d, g))}
		time.Sleep(time.Hour + 5*time.Second)
		runs := c.list(event.ItemStarted)[0].Host
		for n, m := range nodes {
			if strings.HasPrefix(runs, fmt.Sprintf("10.0.0.%d@", n+1)) {
				m.kill()
				<-m.done
			}
		}
		time.Sleep(5 * time.Minute)
		if !lost.happened() {
			t.Fatal("no answer was lost\n" + c.all())
		}
		over := 0
		for _, e := range c.list(event.ItemCompleted) {
			if e.Source == abi.SourceFailover {
				over++
			}
		}
		if over != 1 {
			t.Errorf("%d items failed over within five minutes, want 1\n%s", over, c.all())
		}
	})
}

// TestADeadHostsFinishedItemsAreNotRunAgain (T4 of docs/complaints.md): what had finished runs
// again because its host is gone, one takeover runs the job several times, and
// runs begin before they are due. A host dies in each second of a fire in which
// its items end one after another; what had not ended runs again, once, and
// nothing else does; nothing ever begins too early.
func TestADeadHostsFinishedItemsAreNotRunAgain(t *testing.T) {
	t.Parallel()
	const items = 6
	dead, crashed := 0, 0
	for second := range 12 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, items)
			r.def.Cron = "0 * * * * ?"
			r.takes = func(item int) time.Duration {
				return time.Duration(item+1)*1500*time.Millisecond + 100*time.Millisecond
			}
			for range 3 {
				r.start()
			}
			at := time.Now().Truncate(time.Minute).Add(time.Minute)
			time.Sleep(time.Until(at.Add(time.Duration(second) * time.Second)))
			synctest.Wait()
			victim := r.hosts[second%3]
			open := r.open(victim, at)
			victim.murdered("in the middle of a fire")
			time.Sleep(time.Until(at.Add(55 * time.Second)))
			if again := r.starts(at, abi.SourceFailover); !slices.Equal(again, open) {
				t.Errorf("second %d: items %v had not ended, and %v are run again\n%s", second, open, again, r.timeline())
			}
			if all := r.starts(at, abi.SourceSchedule); !slices.Equal(all, []int{0, 1, 2, 3, 4, 5}) {
				t.Errorf("second %d: the fire ran %v\n%s", second, all, r.timeline())
			}
			dead, crashed = dead+1, crashed+len(open)
			r.def.Cron = "0/10 * * * * ?" // which is what rest counts by
			r.apply(func(*jobconfig.Configuration) {})
			r.start()
			r.rest(30 * time.Second)
			for _, e := range r.events {
				if e.e.Kind == event.ItemStarted && e.e.Time.Before(e.e.Instant) {
					t.Errorf("second %d: before its time: %s", second, lines([]event.Event{e.e}))
				}
			}
			if len(r.faults) > 0 {
				t.Errorf("second %d: %s\n%s", second, strings.Join(r.faults, "\n"), r.timeline())
			}
		})
	}
	if crashed == 0 || crashed >= 2*dead {
		t.Errorf("%d hosts died, which ran %d items: not both what had ended and what had not was looked at", dead, crashed)
	}
}

// TestHostsThatAreRestartedInTurnOweOnlyWhatWasUnfinished (T5 of docs/complaints.md): two
// hosts are restarted in turn, each takes over from the other what had finished
// long ago, the marks of that stay, and the job never fires again. Here each
// restart hands over what was running, if the host was killed, and nothing if it
// was stopped; no mark is left.
func TestHostsThatAreRestartedInTurnOweOnlyWhatWasUnfinished(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4)
		r.def.Cron = "0 * * * * ?"
		r.takes = func(item int) time.Duration { return time.Duration(item+1) * 4 * time.Second }
		pair := []*machine{r.start(), r.start()}
		restarts, owed := 0, 0
		for round := range 24 {
			at := time.Now().Truncate(time.Minute).Add(time.Minute)
			// In the first second of a fire, in the middle of it, when it has ended.
			time.Sleep(time.Until(at.Add([]time.Duration{time.Second, 9 * time.Second, 20 * time.Second}[round%3])))
			synctest.Wait()
			old, killed := pair[round%2], round%4 < 2
			var want []int
			if killed {
				want = r.open(old, at)
				old.murdered("to be restarted")
			} else {
				old.retire()
			}
			if round%5 != 0 {
				time.Sleep(3 * time.Second) // else before anybody can have noticed
			}
			pair[round%2] = r.start()
			time.Sleep(time.Until(at.Add(59 * time.Second)))
			if got := r.starts(at, abi.SourceFailover); !slices.Equal(got, want) {
				t.Errorf("round %d, killed %v: items %v were unfinished, and %v are run again", round, killed, want, got)
			}
			if all := r.starts(at, abi.SourceSchedule); !slices.Equal(all, []int{0, 1, 2, 3}) {
				t.Errorf("round %d, killed %v: the fire ran %v", round, killed, all)
			}
			restarts, owed = restarts+1, owed+len(want)
		}
		if owed == 0 || owed >= 2*restarts {
			t.Errorf("%d restarts, with %d items unfinished", restarts, owed)
		}

		// And while the other one runs what it took over.
		r.slowly(20 * time.Second)
		for round := range 8 {
			at := time.Now().Truncate(time.Minute).Add(time.Minute)
			time.Sleep(time.Until(at.Add(2 * time.Second)))
			for k := range 2 {
				pair[(round+k)%2].murdered("to be restarted")
				pair[(round+k)%2] = r.start()
				time.Sleep(sessionTimeout + 2*time.Second)
			}
			time.Sleep(time.Until(at.Add(2*time.Minute + 30*time.Second)))
		}
		marks := r.marks()
		if len(marks) > 0 {
			t.Errorf("marks are left: %v", marks)
		}
		r.def.Cron = "0/10 * * * * ?" // which is what rest counts by
		r.apply(func(*jobconfig.Configuration) {})
		r.rest(time.Minute)
		if len(r.faults) > 0 {
			t.Errorf("%s", strings.Join(r.faults, "\n"))
		}
		if t.Failed() {
			t.Log("\n" + r.timeline())
		}
	})
}

// TestFailover_ofVeryMany: a host that had begun very many items dies. The other takes them over in several passes
// of its loop, and runs each once; with failover off it writes each down as lost.
func TestFailover_ofVeryMany(t *testing.T) {
	t.Parallel()
	const items = 9000
	for _, failover := range []bool{true, false} {
		t.Run(fmt.Sprint(failover), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				d := definition("j", "0 0 * * * ?", items)
				d.Failover = failover
				first := c.start(1, job(d, sleeper(2*time.Hour)))
				time.Sleep(time.Hour + time.Second)
				c.start(2, job(d, &guest{digest: "quick", run: func(context.Context, *abi.Invocation) abi.Result { return ok }}))
				time.Sleep(5 * time.Second)
				first.kill()
				<-first.done
				time.Sleep(2 * time.Minute)
				seen, most, passes := make(map[int]int), 0, 0
				if failover {
					for _, e := range c.list(event.FireStarted) {
						if e.Source == abi.SourceFailover {
							passes, most = passes+1, max(most, len(e.Items))
						}
					}
					for _, e := range c.list(event.ItemCompleted) {
						seen[*e.Item]++
					}
				} else {
					for _, e := range c.list(event.ItemSkipped) {
						if e.Cause == event.SkipLost {
							seen[*e.Item]++
						}
					}
				}
				for i := range items {
					if seen[i] != 1 {
						t.Fatalf("item %d is accounted for %d times; %d of %d are", i, seen[i], len(seen), items)
					}
				}
				if failover && (passes != 3 || most > 4000) {
					t.Errorf("they were begun in %d passes of up to %d items", passes, most)
				}
			})
		})
	}
}
