package host_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host"
	"github.com/wasmjob/wasmjob/host/verify"
)

// The tests of this file, and those of the file of this name in test/e2e, are
// named after what people complain about in schedulers of this kind; the table
// in docs/reliability.md says which is which.

// away are the ways in which the registry goes from a host, and comes back.
var away = map[string]func(r *rig, m *machine){
	// It is in doubt, and then: what runs is told to stop.
	"a moment without answers": func(_ *rig, m *machine) {
		m.sever()
		time.Sleep(sessionTimeout/3 + time.Second)
		m.heal()
	},
	"a while without answers": func(_ *rig, m *machine) {
		m.sever()
		time.Sleep(5*sessionTimeout/8 + 200*time.Millisecond)
		m.heal()
	},
	"one host is cut off": func(_ *rig, m *machine) {
		m.sever()
		time.Sleep(sessionTimeout + 5*time.Second)
		m.heal()
	},
	"all hosts are cut off": func(r *rig, _ *machine) {
		for _, m := range r.living() {
			m.sever()
		}
		time.Sleep(sessionTimeout + 5*time.Second)
		for _, m := range r.living() {
			m.heal()
		}
	},
	"the host halts": func(_ *rig, m *machine) {
		m.halt()
		time.Sleep(sessionTimeout + 5*time.Second)
		m.goOn(sessionTimeout + 5*time.Second)
	},
	"the session ends": func(_ *rig, m *machine) { m.expire() },
}

// TestNoJobFallsSilentAtWhateverStepTheRegistryGoes is about T1, too: only some
// of a process's jobs die with its session, since each notices by itself, at
// whatever it is doing. Here the registry goes at each operation of a host with
// several jobs, in each way. When it is back, the first instant after one
// session timeout finds every item of every job.
func TestNoJobFallsSilentAtWhateverStepTheRegistryGoes(t *testing.T) {
	t.Parallel()
	var ran atomic.Int64
	t.Cleanup(func() { t.Logf("%d cases (stride %d)", ran.Load(), *crashStride) })
	for way := range away {
		t.Run(strings.ReplaceAll(way, " ", "_"), func(t *testing.T) {
			t.Parallel()
			for k := 1 + len(way)%*crashStride; goesAt(t, way, k) && !t.Failed(); k += *crashStride {
				ran.Add(1)
			}
		})
	}
}

// goesAt reports false if the host makes fewer than k operations.
func goesAt(t *testing.T, way string, k int) (happened bool) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		jobs := []host.Job{job(r.def, r.guest)}
		for n := range 4 {
			d := definition(fmt.Sprint("other", n), "0/10 * * * * ?", 2)
			d.Failover = n%2 == 0
			jobs = append(jobs, job(d, sleeper(time.Duration(n+1)*time.Second)))
		}
		goes, back := make(chan struct{}), make(chan struct{})
		r.meddle = func(m *machine, _ string) meddling {
			if m.n == 1 && m.calls == k {
				happened = true
				close(goes)
			}
			return letBe
		}
		start := func() *machine {
			m := r.start()
			m.host.Apply(jobs, nil)
			return m
		}
		m := start()
		over, cancel := context.WithCancel(context.Background())
		go func() { // joined by back
			defer close(back)
			select {
			case <-goes:
				away[way](r, m)
			case <-over.Done():
			}
		}()
		start()
		time.Sleep(35 * time.Second)
		cancel()
		<-back
		due := time.Now().Add(sessionTimeout).Truncate(10 * time.Second).Add(10 * time.Second)
		time.Sleep(time.Until(due.Add(9 * time.Second)))
		r.mu.Lock()
		ends := make(map[string]int)
		for _, e := range r.events {
			if e.e.Kind == host.EventItemCompleted && e.e.Outcome == abi.OutcomeOK && e.e.Instant.Equal(due) {
				ends[e.e.Job]++
			}
			if e.e.Kind == host.EventJobStopped || e.e.Kind == host.EventJobRemoved {
				t.Errorf("%s at operation %d: nobody did it, and: %s", way, k, lines([]host.Event{e.e}))
			}
		}
		r.mu.Unlock()
		for _, j := range jobs {
			if n := ends[j.Definition.JobName]; n != j.Definition.ShardingTotalCount {
				t.Errorf("%s at operation %d: of %s %d of %d items ran at %s", way, k, j.Definition.JobName, n, j.Definition.ShardingTotalCount, due.UTC().Format(time.TimeOnly))
			}
		}
		r.rest(10 * time.Second)
		// Of the other jobs there is no journal that tells what took effect.
		r.faults = slices.DeleteFunc(r.faults, func(f string) bool {
			return strings.Contains(f, ", "+string(verify.Unproven)+":")
		})
		if len(r.faults) > 0 {
			t.Errorf("%s at operation %d: %s", way, k, strings.Join(r.faults, "\n"))
		}
		if t.Failed() {
			t.Log("\n" + r.timeline())
		}
	})
	return happened
}

// open are the items that a host has begun for an instant and not completed.
func (r *rig) open(m *machine, at time.Time) (items []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.from != m.n || e.e.Item == nil || !e.e.Instant.Equal(at) {
			continue
		}
		switch e.e.Kind {
		case host.EventItemStarted:
			items = append(items, *e.e.Item)
		case host.EventItemCompleted:
			items = slices.DeleteFunc(items, func(n int) bool { return n == *e.e.Item })
		}
	}
	slices.Sort(items)
	return items
}

// starts are the starts of a fire's items.
func (r *rig) starts(at time.Time, source abi.Source) (items []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.e.Kind == host.EventItemStarted && e.e.Instant.Equal(at) && e.e.Source == source {
			items = append(items, *e.e.Item)
		}
	}
	slices.Sort(items)
	return items
}

// TestADeadHostsFinishedItemsAreNotRunAgain is about T4: what had finished runs
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
				if e.e.Kind == host.EventItemStarted && e.e.Time.Before(e.e.Instant) {
					t.Errorf("second %d: before its time: %s", second, lines([]host.Event{e.e}))
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

// TestHostsThatAreRestartedInTurnOweOnlyWhatWasUnfinished is about T5: two
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

// marks are the marks of items that run or are taken over.
func (r *rig) marks() (marks []string) {
	r.t.Helper()
	rc, err := r.server.Connect(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	defer rc.Close()
	root := coordination.NewLayout(rigNamespace, rigJob).Root()
	queries := []registry.Query{registry.Children(root + "/leader/failover/items")}
	for i := range r.def.ShardingTotalCount {
		queries = append(queries, registry.Children(fmt.Sprintf("%s/sharding/%d", root, i)))
	}
	nodes, err := rc.Read(context.Background(), queries...)
	if err != nil {
		r.t.Fatal(err)
	}
	for k, n := range nodes {
		for _, name := range n.Names {
			if k == 0 || name != "instance" {
				marks = append(marks, queries[k].Path+"/"+name)
			}
		}
	}
	return marks
}

// TestAnOrphanInALatchHoldsUpNoStart is about T6: somebody who is gone, or who
// does not get on, has left a node in the latch of the election, and hosts that
// start wait behind it for ever. Nobody of ElasticJob's is there. Hosts that
// start wait half a minute, all jobs at once, say for whom, and go on; a crash
// is dealt with at once.
func TestAnOrphanInALatchHoldsUpNoStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *host.Config) { cfg.MaxConcurrency = 100 } // nobody waits for a slot
		var jobs []host.Job
		for n := range 20 {
			d := definition(fmt.Sprintf("job%02d", n), "0/10 * * * * ?", 6)
			d.Failover = true
			jobs = append(jobs, job(d, sleeper(7*time.Second)))
		}
		fleet := []*node{c.start(1, jobs...), c.start(2, jobs...), c.start(3, jobs...)}
		time.Sleep(35 * time.Second)
		for _, n := range fleet {
			n.stop()
			<-n.done
		}
		sleeping, err := c.server.Connect(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		defer sleeping.Close()
		const name = "_c_00000000-0000-0000-0000-000000000000-latch-0000000000"
		for n, j := range jobs {
			for _, latch := range []string{"/leader/election/latch", "/leader/failover/latch"} {
				path := coordination.NewLayout("test", j.Definition.JobName).Root() + latch
				if n%2 == 0 {
					c.commit(registry.Ensure(path), registry.Create(path+"/"+name, nil))
					continue
				}
				if _, err := sleeping.Commit(context.Background(), registry.Ensure(path), registry.CreateEphemeral(path+"/"+name, nil)); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(time.Until(time.Now().Truncate(10 * time.Second).Add(15 * time.Second)))
		begin := time.Now()
		before := len(c.list(host.EventItemStarted))
		fleet = []*node{c.start(4, jobs...), c.start(5, jobs...), c.start(6, jobs...)}
		time.Sleep(45 * time.Second)
		synctest.Wait()
		ran := make(map[string]bool)
		for _, e := range c.list(host.EventItemStarted)[before:] {
			ran[fmt.Sprint(e.Job, *e.Item)] = true
		}
		if len(ran) != 6*len(jobs) {
			t.Errorf("45 s after a start behind an orphan %d of %d items have begun", len(ran), 6*len(jobs))
		}
		told := make(map[string]bool)
		for _, e := range c.list(host.EventJobError) {
			if e.Time.After(begin) && strings.Contains(e.Reason, name+" has stood in the way for 30s") {
				told[e.Job] = true
			}
		}
		if len(told) != len(jobs) {
			t.Errorf("of %d jobs %d say who was in the way: %v", len(jobs), len(told), slices.Sorted(maps.Keys(told)))
		}

		// One dies while its items run, and the others look to it right away.
		time.Sleep(time.Until(time.Now().Truncate(10 * time.Second).Add(12 * time.Second)))
		fleet[0].kill()
		<-fleet[0].done
		time.Sleep(time.Second)
		synctest.Wait()
		again := make(map[string]bool)
		for _, e := range c.list(host.EventItemStarted) {
			if e.Source == abi.SourceFailover && !strings.HasPrefix(e.Host, "10.0.0.4@") {
				again[fmt.Sprint(e.Job, *e.Item)] = true
			}
		}
		if len(again) != 2*len(jobs) {
			t.Errorf("a second after a host died with %d items running, %d of them run again", 2*len(jobs), len(again))
		}
		if t.Failed() {
			t.Log("\n" + c.all())
		}
	})
}

// TestAHostThatWaitsForASlowItemAsksTheRegistryForNothing is about T6, too: a
// host that waits for a division asks the registry ten times a second and more
// for each job, until the next fire, and one slow item keeps it waiting. Here
// what is idle moves at once, and the host that waits asks for nothing.
func TestAHostThatWaitsForASlowItemAsksTheRegistryForNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var calls atomic.Int64
		c.wrap = func(_ int, l *lease) registry.Center { return &asked{l, &calls} }
		d := definition("slow", "0 0 * * * ?", 4)
		d.Failover = true
		// Of four items one is slow. A bubble's time begins at midnight.
		g := &guest{digest: "slow", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
			if inv.Context.ShardingItem == 1 {
				time.Sleep(50 * time.Minute)
			}
			return ok
		}}
		c.start(1, job(d, g))
		time.Sleep(time.Hour + time.Minute)
		synctest.Wait()
		c.start(2, job(d, g))
		time.Sleep(time.Minute)
		synctest.Wait()
		owners := func() map[string][]int {
			list := make(map[string][]int)
			r, err := c.server.Connect(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			s, err := coordination.ReadShards(context.Background(), r, coordination.NewLayout("test", "slow"))
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range s.Items {
				ip, _, _ := strings.Cut(i.Owner, "@")
				list[ip] = append(list[ip], i.Item)
			}
			return list
		}
		if got := owners(); len(got["10.0.0.2"]) == 0 {
			t.Errorf("one item runs, and a host that came has none of the others: %v", got)
		}
		before := calls.Load()
		time.Sleep(40 * time.Minute)
		if n := calls.Load() - before; n > 60 {
			t.Errorf("two hosts made %d requests while they waited 40 minutes for an item", n)
		}
		time.Sleep(10 * time.Minute) // it has ended
		synctest.Wait()
		if got := owners(); len(got["10.0.0.1"]) != 2 || len(got["10.0.0.2"]) != 2 {
			t.Errorf("the item has ended, and the items belong to %v", got)
		}
		time.Sleep(time.Hour)
		if n := len(c.list(host.EventItemCompleted)); n != 8 {
			t.Errorf("two fires of four items are %d\n%s", n, c.all())
		}
	})
}

// asked counts the requests to the registry.
type asked struct {
	*lease
	calls *atomic.Int64
}

func (a *asked) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	a.calls.Add(1)
	return a.lease.Commit(ctx, ops...)
}

func (a *asked) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	a.calls.Add(1)
	return a.lease.Read(ctx, queries...)
}

func (a *asked) Watch(ctx context.Context, queries ...registry.Query) (<-chan registry.Snapshot, error) {
	a.calls.Add(1)
	return a.lease.Watch(ctx, queries...)
}
