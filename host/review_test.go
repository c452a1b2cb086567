package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registrytest"
	"github.com/wasmjob/wasmjob/host"
)

// slow is a session over a slow line: every call takes a while, and what a
// watch shows is late.
type slow struct {
	*lease
	call, news time.Duration
}

func (s *slow) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	time.Sleep(s.call)
	results, err := s.lease.Commit(ctx, ops...)
	time.Sleep(s.call)
	return results, err
}

func (s *slow) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	time.Sleep(s.call)
	nodes, err := s.lease.Read(ctx, queries...)
	time.Sleep(s.call)
	return nodes, err
}

func (s *slow) Watch(ctx context.Context, queries ...registry.Query) (<-chan registry.Snapshot, error) {
	in, err := s.lease.Watch(ctx, queries...)
	if err != nil {
		return nil, err
	}
	out := make(chan registry.Snapshot, 1)
	go func() { // ends with ctx, which ends the watch
		defer close(out)
		for snapshot := range in {
			select {
			case <-time.After(s.news):
			case <-ctx.Done():
				continue
			}
			select {
			case <-out:
			default:
			}
			out <- snapshot
		}
	}()
	return out, nil
}

// planned is a session that goes wrong as planned: calls are numbered from 1
// over all of the host's sessions.
func planned(l *lease, plan func(op string) registrytest.Fault) registry.Center {
	return registrytest.Faulty(l, func(_ int, op string) registrytest.Fault {
		switch fault := plan(op); {
		case fault == registrytest.ExpireBefore, fault == registrytest.ExpireAfter && op != "commit":
			l.lose() // what the call finds
			return registrytest.NoFault
		case fault == registrytest.ExpireAfter:
			l.loseAfter.Store(true)
			return registrytest.NoFault
		default:
			return fault
		}
	})
}

// nodes reads from the registry behind the hosts' back.
func (c *cluster) nodes(queries ...registry.Query) []registry.Node {
	c.t.Helper()
	r, err := c.server.Connect(context.Background())
	if err != nil {
		c.t.Fatal(err)
	}
	defer r.Close()
	nodes, err := r.Read(context.Background(), queries...)
	if err != nil {
		c.t.Fatal(err)
	}
	return nodes
}

// commit writes to the registry by hand.
func (c *cluster) commit(ops ...registry.Op) {
	c.t.Helper()
	r, err := c.server.Connect(context.Background())
	if err != nil {
		c.t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Commit(context.Background(), ops...); err != nil {
		c.t.Fatal(err)
	}
}

// starts are the starts of an item, as "04:05 source for 04:05".
func (c *cluster) starts(item int) []string {
	var s []string
	for _, e := range c.list(host.EventItemStarted) {
		if *e.Item == item {
			s = append(s, fmt.Sprintf("%s %s for %s", e.Time.UTC().Format("04:05"), e.Source, e.Instant.UTC().Format("04:05")))
		}
	}
	return s
}

// lone is a guest that tells when two live runs of one item overlap.
type lone struct {
	mu      sync.Mutex
	running map[int][]context.Context
	faults  []string
	most    int // runs at once
	now     int
}

func (l *lone) guest(d func(item int) time.Duration) *guest {
	l.running = make(map[int][]context.Context)
	return &guest{digest: "lone", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
		item := inv.Context.ShardingItem
		l.mu.Lock()
		for _, other := range l.running[item] {
			if other.Err() == nil {
				l.faults = append(l.faults, fmt.Sprintf("%s: item %d began for %s (%s) beside another live run",
					time.Now().UTC().Format("04:05"), item, inv.Context.RunID, inv.Context.Source))
			}
		}
		l.running[item] = append(l.running[item], ctx)
		l.now++
		l.most = max(l.most, l.now)
		l.mu.Unlock()
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.now--
			l.running[item] = slices.DeleteFunc(l.running[item], func(c context.Context) bool { return c == ctx })
		}()
		select {
		case <-time.After(d(item)):
			return ok
		case <-ctx.Done():
			return abi.Result{Outcome: abi.OutcomeCancelled, Message: context.Cause(ctx).Error()}
		}
	}}
}

func (l *lone) check(t *testing.T, c *cluster) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.faults) > 0 {
		t.Errorf("%s\n%s", strings.Join(l.faults, "\n"), c.all())
	}
}

func TestReviewAJobThatIsLeftFinishesWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		g := sleeper(20 * time.Second)
		n := c.start(1, job(definition("long", "0 0 * * * ?", 1), g))
		time.Sleep(time.Hour + time.Second)
		n.host.Apply(nil, nil)
		time.Sleep(10 * time.Minute)
		if done := c.list(host.EventItemCompleted); len(done) != 1 || done[0].Outcome != abi.OutcomeOK {
			t.Errorf("completed: %s, want the item that ran when the definition went\n%s", lines(done), c.all())
		}
		if jobs := n.host.Status().Jobs; len(jobs) != 0 || g.inUse() != 0 {
			t.Errorf("jobs %+v, %d uses", jobs, g.inUse())
		}
	})
}

func TestReviewLeavingBeforeTheFirstSnapshotLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.wrap = func(_ int, l *lease) registry.Center { return &slow{lease: l, news: 5 * time.Second} }
		n := c.start(1, job(definition("j", "", 1), sleeper(time.Second)))
		time.Sleep(time.Second)
		n.host.Apply(nil, nil)
		time.Sleep(time.Second)
		if in := c.nodes(registry.Children("/test/j/instances"), registry.Data("/test.wasmjob/j/members")); len(in[0].Names) > 0 || len(in[1].Data) > 0 {
			t.Errorf("instances %v, members %q after the host has left", in[0].Names, in[1].Data)
		}
	})
}

func TestReviewLeavingAfterAHalfwayJoinLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.wrap = func(_ int, l *lease) registry.Center {
			return planned(l, func(op string) registrytest.Fault {
				if op == "watch" {
					return registrytest.Refused
				}
				return registrytest.NoFault
			})
		}
		n := c.start(1, job(definition("j", "", 1), sleeper(time.Second)))
		time.Sleep(time.Second)
		n.host.Apply(nil, nil)
		time.Sleep(5 * time.Second)
		if in := c.nodes(registry.Children("/test/j/instances"), registry.Data("/test.wasmjob/j/members")); len(in[0].Names) > 0 || len(in[1].Data) > 0 {
			t.Errorf("instances %v, members %q after the host has left", in[0].Names, in[1].Data)
		}
	})
}

func TestReviewADefinitionThatWasRefusedByTheRegistryIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var bad atomic.Bool
		c.wrap = func(_ int, l *lease) registry.Center {
			return planned(l, func(string) registrytest.Fault {
				if bad.Load() {
					return registrytest.Refused
				}
				return registrytest.NoFault
			})
		}
		g := sleeper(time.Second)
		d := definition("j", "0 * * * * ?", 1)
		n := c.start(1, job(d, g))
		time.Sleep(70 * time.Second)
		bad.Store(true)
		d.ShardingTotalCount = 3
		n.host.Apply([]host.Job{job(d, g)}, nil)
		time.Sleep(3 * time.Second)
		bad.Store(false)
		time.Sleep(5 * time.Second)
		if s := n.host.Status().Jobs[0]; s.ShardingTotalCount != 3 || s.State != host.JobReady || len(s.Items) != 3 {
			t.Errorf("status %+v, want 3 items", s)
		}
	})
}

func TestReviewAFailoverDoesNotSwallowACatchUp(t *testing.T) {
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

func TestReviewAJobThatIsRemovedAndBroughtBackByAnotherHost(t *testing.T) {
	for _, purge := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			d := definition("j", "0 * * * * ?", 2)
			d.Failover = true
			var l lone
			g := l.guest(func(item int) time.Duration { return time.Duration(item) * 3 * time.Minute })
			a := c.start(1, job(d, g))
			time.Sleep(30 * time.Second)
			b := c.start(2) // a bystander, for now
			time.Sleep(35 * time.Second)
			if err := a.host.Remove(t.Context(), "j", purge); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			b.host.Apply([]host.Job{job(d, g)}, nil)
			time.Sleep(10 * time.Minute)
			if !purge {
				l.check(t, c) // a purge forgets who runs what
			}
			before := len(c.starts(1))
			time.Sleep(10 * time.Minute)
			if after := len(c.starts(1)); after <= before {
				t.Errorf("purge %v: item 1 has not begun in 10 minutes\n%s", purge, c.all())
			}
			// The first host has its job removed, and nothing of it is left.
			in := c.nodes(registry.Children("/test.wasmjob/j/instances"), registry.Children("/test.wasmjob/j/runs"),
				registry.Children("/test.wasmjob/j/assignment"), registry.Data("/test.wasmjob/j/members"))
			for _, n := range in {
				names := n.Names
				if n.Children == false {
					names = strings.Fields(string(n.Data))
				}
				if len(names) != 1 || !strings.HasPrefix(names[0], "10.0.0.2@") {
					t.Errorf("purge %v: %s holds %v, want the second host only", purge, n.Path, names)
				}
			}
		})
	}
}

func TestReviewAJobIsBackAsSoonAsItsOldRunsHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("j", "0 0 * * * ?", 1)
		g := sleeper(30 * time.Second)
		n := c.start(1, job(d, g))
		time.Sleep(time.Hour + time.Second)
		if err := n.host.Remove(t.Context(), "j", false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		d.Description = "back"
		n.host.Apply([]host.Job{job(d, g)}, nil)
		time.Sleep(30 * time.Second)
		if s := n.host.Status().Jobs[0]; s.State != host.JobReady || len(s.Items) != 1 {
			t.Errorf("status %+v, want ready two seconds after the run ended\n%s", s, c.all())
		}
	})
}

func TestReviewAJobThatComesBackOwesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("j", "0 * * * * ?", 1)
		g := sleeper(time.Second)
		n := c.start(1, job(d, g))
		time.Sleep(65 * time.Second)
		if err := n.host.Remove(t.Context(), "j", false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(150 * time.Second) // 3:35
		d.Description = "back"
		n.host.Apply([]host.Job{job(d, g)}, nil)
		time.Sleep(10 * time.Second)
		if got := c.starts(0); len(got) != 1 {
			t.Errorf("started %q: instants during which the job was removed are not due\n%s", got, c.all())
		}
		time.Sleep(30 * time.Second)
		if got := c.starts(0); len(got) != 2 {
			t.Errorf("started %q\n%s", got, c.all())
		}
	})
}

func TestReviewAFireWithStoppedItemsIsNotOK(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.start(1, job(definition("j", "0 * * * * ?", 1), sleeper(time.Hour)))
		time.Sleep(61 * time.Second)
		n.stop()
		<-n.done
		ended := c.list(host.EventFireEnded)
		if len(ended) != 1 || ended[0].Outcome == abi.OutcomeOK {
			t.Errorf("fires that ended: %s, want one, not OK", lines(ended))
		}
	})
}

func TestReviewAnItemBeyondTheTotalIsNotBegunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("j", "0 * * * * ?", 3)
		g := sleeper(90 * time.Second)
		n := c.start(1, job(d, g))
		time.Sleep(65 * time.Second)
		d.ShardingTotalCount = 1
		n.host.Apply([]host.Job{job(d, g)}, nil)
		time.Sleep(10 * time.Minute)
		for _, item := range []int{1, 2} {
			if got := c.starts(item); len(got) != 1 {
				t.Errorf("item %d started %q, want only before the total count was lowered\n%s", item, got, c.all())
			}
		}
		if items := n.host.Status().Jobs[0].Items; len(items) != 1 {
			t.Errorf("items %+v, want one", items)
		}
		if in := c.nodes(registry.Children("/test/j/sharding")); !slices.Equal(in[0].Names, []string{"0"}) {
			t.Errorf("item nodes %v, want 0", in[0].Names)
		}
	})
}

func TestReviewAnItemThatRunsMovesWhenItIsCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("j", "0 * * * * ?", 2)
		var l lone
		g := l.guest(func(int) time.Duration { return 90 * time.Second })
		c.start(1, job(d, g))
		time.Sleep(65 * time.Second)
		c.start(2, job(d, g))
		time.Sleep(3 * time.Minute) // 4:05; the runs of 1:00 ended at 2:30
		l.check(t, c)
		hosts := make(map[string]bool)
		for _, e := range c.list(host.EventItemStarted) {
			if e.Time.Sub(time.Date(2000, 1, 1, 0, 2, 0, 0, time.UTC)) > 0 {
				hosts[e.Host] = true
			}
		}
		if len(hosts) != 2 {
			t.Errorf("after the first runs were completed items began on %v, want both hosts\n%s", hosts, c.all())
		}
		if got := len(c.list(host.EventItemStarted)); got < 4 {
			t.Errorf("%d starts, want at least 4", got)
		}
	})
}

func TestReviewALeaderThatLeavesLetsOthersDivide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("j", "0 * * * * ?", 4)
		g := &guest{digest: "g", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
			d := time.Second
			if inv.Context.ShardingItem == 0 {
				d = 10 * time.Minute
			}
			select {
			case <-time.After(d):
			case <-ctx.Done():
			}
			return ok
		}}
		a := c.start(1, job(d, g))
		time.Sleep(65 * time.Second)
		a.host.Apply(nil, nil)
		time.Sleep(time.Second)
		b := c.start(2, job(d, g))
		time.Sleep(10 * time.Second)
		if s := b.host.Status().Jobs[0]; len(s.Items) != 3 {
			t.Errorf("10 seconds after the leader began to leave the other has %+v, want the three idle items\n%s", s, c.all())
		}
		time.Sleep(15 * time.Minute)
		if s := b.host.Status().Jobs[0]; len(s.Items) != 4 {
			t.Errorf("the other has %+v, want all\n%s", s, c.all())
		}
	})
}

func TestReviewAHostThatStaysGetsItsShareBack(t *testing.T) {
	for pause := time.Duration(0); pause < 4*time.Second; pause += 90 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.wrap = func(_ int, l *lease) registry.Center {
				return &slow{lease: l, call: 100 * time.Millisecond, news: 50 * time.Millisecond}
			}
			d := definition("j", "0 * * * * ?", 4)
			var l lone
			g := l.guest(func(int) time.Duration { return 30 * time.Second })
			c.start(1, job(d, g))
			time.Sleep(10 * time.Second)
			b := c.start(2, job(d, g))
			time.Sleep(60 * time.Second)
			b.host.Apply(nil, nil)
			time.Sleep(pause)
			b.host.Apply([]host.Job{job(d, g)}, nil)
			time.Sleep(80 * time.Second) // another fire
			time.Sleep(30 * time.Second)
			if s := b.host.Status().Jobs; len(s) != 1 || len(s[0].Items) != 2 {
				t.Errorf("back after %s: %+v, want two items\n%s", pause, s, c.all())
			}
			l.check(t, c)
		})
		if t.Failed() {
			return
		}
	}
}

func TestReviewHostsWaitForTheListenerThatRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.wrap = func(n int, l *lease) registry.Center {
			return &slow{lease: l, call: time.Duration(n) * 100 * time.Millisecond, news: time.Second}
		}
		var mu sync.Mutex
		var calls []string
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, what)
		}
		g := &guest{digest: "listens", run: func(context.Context, *abi.Invocation) abi.Result {
			note("item")
			return ok
		}, listeners: map[string]func(*abi.Invocation) abi.Result{
			abi.ExportBeforeOnce: func(*abi.Invocation) abi.Result { note("first"); return ok },
			abi.ExportAfterOnce:  func(*abi.Invocation) abi.Result { note("last"); return ok },
		}}
		d := definition("listen", "*/20 * * * * ?", 4)
		for i := range 2 {
			c.start(1+i, job(d, g))
		}
		time.Sleep(41 * time.Second) // they share now
		mu.Lock()
		calls = nil
		mu.Unlock()
		time.Sleep(60 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		got := strings.Join(calls, " ")
		if want := strings.Repeat("first item item item item last ", 3); got+" " != want {
			t.Errorf("calls: %s\nwant:  %s\n%s", got, want, c.all())
		}
	})
}

func TestReviewAMisfireDoesNotWaitForHostsThatHaveNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var mu sync.Mutex
		g := &guest{digest: "listens", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
			if inv.Context.ShardingItem == 0 && inv.Context.Source == abi.SourceSchedule {
				time.Sleep(70 * time.Second)
			}
			return ok
		}, listeners: map[string]func(*abi.Invocation) abi.Result{
			abi.ExportBeforeOnce: func(*abi.Invocation) abi.Result { mu.Lock(); defer mu.Unlock(); return ok },
		}}
		c.start(1, job(definition("j", "0 * * * * ?", 2), g))
		time.Sleep(145 * time.Second)
		want := []string{"01:00 schedule for 01:00", "02:10 misfire for 02:00"}
		if got := c.starts(0); !slices.Equal(got, want) {
			t.Errorf("item 0 started %q, want %q\n%s", got, want, c.all())
		}
		want = []string{"01:00 schedule for 01:00", "02:00 schedule for 02:00"}
		if got := c.starts(1); !slices.Equal(got, want) {
			t.Errorf("item 1 started %q, want %q: a slow item must not delay it\n%s", got, want, c.all())
		}
	})
}

func TestReviewSwitchesAreToggledWhileItemsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("j", "0 * * * * ?", 4)
		d.Failover = true
		var l lone
		g := l.guest(func(item int) time.Duration { return time.Duration(item)*40*time.Second + time.Second })
		hosts := []*node{c.start(1, job(d, g)), c.start(2, job(d, g))}
		apply := func() {
			for _, n := range hosts {
				n.host.Apply([]host.Job{job(d, g)}, nil)
			}
		}
		for k := range 16 {
			time.Sleep(47 * time.Second)
			d.MonitorExecution = k%2 == 0
			d.Failover = k%4 < 2 && d.MonitorExecution
			d.Misfire = k%8 < 4
			apply()
		}
		time.Sleep(5 * time.Minute)
		l.check(t, c)
		// Wait for a moment without runs, and look for marks.
		d.Cron = ""
		apply()
		time.Sleep(5 * time.Minute)
		var queries []registry.Query
		for i := range 4 {
			queries = append(queries, registry.Children(fmt.Sprintf("/test/j/sharding/%d", i)))
		}
		for _, n := range c.nodes(queries...) {
			if !slices.Equal(n.Names, []string{"instance"}) {
				t.Errorf("%s holds %v while nothing runs", n.Path, n.Names)
			}
		}
	})
}

func TestReviewSwitchesAreToggledDuringAFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("j", "0 * * * * ?", 3)
		d.Failover = true
		var l lone
		g := l.guest(func(int) time.Duration { return 50 * time.Second })
		hosts := []*node{c.start(1, job(d, g)), c.start(2, job(d, g)), c.start(3, job(d, g))}
		time.Sleep(105 * time.Second) // 1:45, they run
		hosts[2].kill()
		<-hosts[2].done
		time.Sleep(5 * time.Second) // one of the others has taken over
		d.MonitorExecution, d.Failover = false, false
		for _, n := range hosts[:2] {
			n.host.Apply([]host.Job{job(d, g)}, nil)
		}
		time.Sleep(5 * time.Minute)
		l.check(t, c)
		over := 0
		for _, e := range c.list(host.EventItemCompleted) {
			if e.Source == abi.SourceFailover {
				over++
			}
		}
		if over != 1 {
			t.Errorf("%d items failed over, want 1\n%s", over, c.all())
		}
	})
}

func TestReviewEveryInstantHasAReason(t *testing.T) {
	for _, misfire := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.wrap = func(_ int, l *lease) registry.Center {
				return &slow{lease: l, call: 700 * time.Millisecond, news: 900 * time.Millisecond}
			}
			d := definition("j", "* * * * * ?", 2)
			d.Misfire = misfire
			g := sleeper(0)
			c.start(1, job(d, g))
			time.Sleep(time.Minute) // it has been elected, and has divided
			from := time.Now().Truncate(time.Second)
			b := c.start(2, job(d, g))
			time.Sleep(30 * time.Second)
			b.host.Apply(nil, nil)
			time.Sleep(90 * time.Second)
			to := time.Now().Truncate(time.Second).Add(-60 * time.Second)
			missing(c, from, to, time.Second, 2)
		})
	}
}

// missing complains of instants that have left no event for an item.
func missing(c *cluster, from, to time.Time, step time.Duration, total int) {
	c.t.Helper()
	seen := make(map[string]bool)
	for _, e := range c.list(host.EventItemCompleted, host.EventItemSkipped, host.EventFireSkipped, host.EventItemEnded, host.EventItemHeld) {
		if e.Kind == host.EventItemEnded && !(c.lostAnswers && e.Outcome == abi.OutcomeOK) {
			continue
		}
		instants := 1 // that the event is of
		if before, _, many := strings.Cut(e.Reason, " instants from here on"); many {
			fmt.Sscan(before[strings.LastIndexAny(before, "( ")+1:], &instants)
		}
		for k := range instants {
			at := e.Instant.UTC().Add(time.Duration(k) * step)
			if e.Item == nil {
				seen[at.String()] = true // for all items of the host
			} else {
				seen[fmt.Sprint(at, *e.Item)] = true
			}
		}
	}
	var gone []string
	for at := from.UTC(); at.Before(to); at = at.Add(step) {
		for item := range total {
			if !seen[at.String()] && !seen[fmt.Sprint(at, item)] {
				gone = append(gone, fmt.Sprintf("%s item %d", at.Format("15:04:05"), item))
			}
		}
	}
	if len(gone) > 0 {
		c.t.Errorf("%d have neither run nor a reason: %s\n%s", len(gone), strings.Join(gone, ", "), c.all())
	}
}

func TestReviewABeginThatFailsForAWhileLeavesReasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var bad atomic.Int32 // the registrytest.Fault of every call
		c.wrap = func(_ int, l *lease) registry.Center {
			return planned(l, func(string) registrytest.Fault { return registrytest.Fault(bad.Load()) })
		}
		c.start(1, job(definition("j", "*/10 * * * * ?", 2), sleeper(time.Second)))
		for _, fault := range []registrytest.Fault{registrytest.Refused, registrytest.InDoubt, registrytest.LostRequest, registrytest.LostAnswer} {
			time.Sleep(65 * time.Second)
			bad.Store(int32(fault))
			time.Sleep(35 * time.Second)
			bad.Store(int32(registrytest.NoFault))
		}
		time.Sleep(60 * time.Second)
		missing(c, time.Date(2000, 1, 1, 0, 0, 10, 0, time.UTC), time.Now().Add(-20*time.Second), 10*time.Second, 2)
	})
}

// An offset that was staged is not put in the place of a newer one, the commit of
// which took effect and was not heard of.
func TestReviewAnUnheardCommitIsNotUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var bad, lost atomic.Bool
		c.wrap = func(_ int, l *lease) registry.Center {
			return planned(l, func(op string) registrytest.Fault {
				switch {
				case !bad.Load():
					return registrytest.NoFault
				case op == "commit" && lost.CompareAndSwap(false, true):
					return registrytest.LostAnswer
				}
				return registrytest.Refused
			})
		}
		var code atomic.Int64
		g := &guest{digest: "o", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
			inv.Host.StageOffset(ctx, []byte("1"))
			bad.Store(true)
			code.Store(int64(inv.Host.CommitOffset(ctx, []byte("2"))))
			bad.Store(false)
			return abi.Result{Outcome: abi.OutcomeOK}
		}}
		d := definition("j", "0 0 * * * ?", 1)
		c.start(1, job(d, g))
		time.Sleep(time.Hour + 2*time.Minute)
		if got := abi.Code(code.Load()); got != abi.ErrUnavailable {
			t.Fatalf("the commit returned %v, want %v", got, abi.ErrUnavailable)
		}
		if got := string(c.nodes(registry.Data("/test.wasmjob/j/offset/0"))[0].Data); got != "2" {
			t.Errorf("the offset is %q, want that of the commit, 2\n%s", got, c.all())
		}
	})
}

// unheard loses the answer of the first commit with such an operation, and
// refuses what comes from the same host in the second after it.
type unheard struct {
	is    func(op registry.Op) bool
	mu    sync.Mutex
	host  int
	until time.Time
}

func (u *unheard) refuses(host int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.host == host && time.Now().Before(u.until)
}

func (u *unheard) happened() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.host != 0
}

// loses reports whether the answer to a commit of the host is the one.
func (u *unheard) loses(host int, ops []registry.Op) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.host != 0 || !slices.ContainsFunc(ops, u.is) {
		return false
	}
	u.host, u.until = host, time.Now().Add(time.Second)
	return true
}

func (u *unheard) wrap(n int, l *lease) registry.Center {
	return &unheardCenter{l, u, n}
}

// unheardCenter is a host's session in which an answer is lost.
type unheardCenter struct {
	registry.Center
	u    *unheard
	host int
}

func (c *unheardCenter) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	if c.u.refuses(c.host) {
		return nil, registry.ErrUnavailable
	}
	results, err := c.Center.Commit(ctx, ops...)
	if err == nil && c.u.loses(c.host, ops) {
		return nil, registry.ErrUnknown
	}
	return results, err
}

func (c *unheardCenter) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	if c.u.refuses(c.host) {
		return nil, registry.ErrUnavailable
	}
	return c.Center.Read(ctx, queries...)
}

// What a host has taken over without hearing of it does not wait for the next
// fire: the list that it was on is gone, and nobody else looks for it.
func TestReviewATakeoverThatWasNotHeardOfRunsAtOnce(t *testing.T) {
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
		runs := c.list(host.EventItemStarted)[0].Host
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
		for _, e := range c.list(host.EventItemCompleted) {
			if e.Source == abi.SourceFailover {
				over++
			}
		}
		if over != 1 {
			t.Errorf("%d items failed over within five minutes, want 1\n%s", over, c.all())
		}
	})
}

// When the server is disabled before the host can ask for a begin again, the item
// is not left begun.
func TestReviewABeginThatWasNotHeardOfIsHandedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		lost := &unheard{is: func(op registry.Op) bool {
			return op.Kind == registry.OpSet && strings.HasSuffix(op.Path, ".wasmjob/j/sharding/0")
		}}
		c.wrap = lost.wrap
		d := definition("j", "0 0 * * * ?", 1)
		c.start(1, job(d, sleeper(time.Second)))
		time.Sleep(time.Hour + 500*time.Millisecond)
		if !lost.refuses(1) {
			t.Fatal("no answer was lost\n" + c.all())
		}
		c.commit(registry.Set("/test/j/servers/10.0.0.1", []byte("DISABLED"), registry.AnyVersion))
		time.Sleep(time.Minute)
		nodes := c.nodes(registry.Data("/test.wasmjob/j/sharding/0"), registry.Data("/test/j/sharding/0/running"))
		var r coordination.Record
		if err := json.Unmarshal(nodes[0].Data, &r); err != nil || r.Open() || nodes[1].Exists {
			t.Errorf("record %s, running %v; want it handed back\n%s", nodes[0].Data, nodes[1].Exists, c.all())
		}
		if len(c.starts(0)) != 0 {
			t.Errorf("it ran\n%s", c.all())
		}
	})
}

// The same with others there: the item that stayed because it was begun moves
// once it is handed back, also if a trigger was consumed in between.
func TestReviewAnItemOfADisabledServerMovesAfterAnUnheardBegin(t *testing.T) {
	for name, trigger := range map[string]bool{"alone": false, "and a trigger": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				var path atomic.Value
				path.Store("-")
				lost := &unheard{is: func(op registry.Op) bool {
					return op.Kind == registry.OpSet && strings.HasSuffix(op.Path, path.Load().(string))
				}}
				c.wrap = lost.wrap
				d := definition("j", "0 0 * * * ?", 2)
				d.Failover = true
				c.start(1, job(d, sleeper(time.Second)))
				c.start(2, job(d, sleeper(time.Second)))
				time.Sleep(10 * time.Minute)
				n := c.nodes(registry.Data("/test/j/leader/election/instance"), registry.Data("/test/j/sharding/0/instance"), registry.Data("/test/j/sharding/1/instance"))
				item := 0
				if string(n[1].Data) == string(n[0].Data) {
					item = 1 // of the host that does not lead
				}
				owner := string(n[1+item].Data)
				ip, _, _ := strings.Cut(owner, "@")
				path.Store(fmt.Sprintf(".wasmjob/j/sharding/%d", item))
				time.Sleep(50*time.Minute + 300*time.Millisecond)
				if !lost.happened() {
					t.Fatal("no answer was lost\n" + c.all())
				}
				c.commit(registry.Create("/test/j/leader/sharding/necessary", nil),
					registry.Set("/test/j/servers/"+ip, []byte("DISABLED"), registry.AnyVersion))
				time.Sleep(300 * time.Millisecond)
				if trigger {
					c.commit(registry.Create("/test/j/trigger/"+owner, nil))
				}
				time.Sleep(3*time.Hour + time.Minute)
				if starts := c.starts(item); len(starts) < 3 {
					t.Errorf("item %d started %q in three hours\n%s", item, starts, c.all())
				}
			})
		})
	}
}

// What became due and could not begin while the only server was disabled is not
// begun hours later: the only start is that of seven o'clock.
func TestReviewWhatWasDueWhileDisabledIsNotBegunAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		lost := &unheard{is: func(op registry.Op) bool {
			return op.Kind == registry.OpSet && strings.HasSuffix(op.Path, ".wasmjob/j/sharding/0")
		}}
		c.wrap = lost.wrap
		c.start(1, job(definition("j", "0 0 * * * ?", 1), sleeper(time.Second)))
		time.Sleep(time.Hour + 500*time.Millisecond)
		c.commit(registry.Set("/test/j/servers/10.0.0.1", []byte("DISABLED"), registry.AnyVersion))
		time.Sleep(5*time.Hour + 30*time.Minute)
		c.commit(registry.Set("/test/j/servers/10.0.0.1", []byte("ENABLED"), registry.AnyVersion))
		time.Sleep(time.Hour)
		if got, want := c.starts(0), []string{"00:00 schedule for 00:00"}; !slices.Equal(got, want) {
			t.Errorf("started %q, want %q\n%s", got, want, c.all())
		}
		missing(c, time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC), time.Now().Add(-time.Minute), time.Hour, 1)
	})
}

func TestReviewAStaleMarkHoldsAnItemNoLongerThanItStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("j", "0 0 * * * ?", 1)
		d.ReconcileIntervalMinutes = 0
		c.start(1, job(d, sleeper(time.Second)))
		time.Sleep(time.Hour - 10*time.Second)
		c.commit(registry.Create("/test/j/sharding/0/running", []byte("10.9.9.9@-@1")))
		time.Sleep(20 * time.Second)
		if got, want := c.starts(0), []string{"00:01 misfire for 00:00"}; !slices.Equal(got, want) {
			t.Errorf("started %q, want %q\n%s", got, want, c.all())
		}
	})
}

func TestReviewALeaveThatWasNotHeardOfCanBeTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var bad atomic.Int32 // the registrytest.Fault of every call
		c.wrap = func(_ int, l *lease) registry.Center {
			return planned(l, func(op string) registrytest.Fault {
				if op == "commit" {
					return registrytest.Fault(bad.Load())
				}
				return registrytest.NoFault
			})
		}
		d := definition("j", "0 * * * * ?", 1)
		g := sleeper(time.Second)
		n := c.start(1, job(d, g))
		time.Sleep(65 * time.Second)
		bad.Store(int32(registrytest.LostAnswer))
		n.host.Apply(nil, nil)
		time.Sleep(500 * time.Millisecond)
		bad.Store(int32(registrytest.NoFault))
		n.host.Apply([]host.Job{job(d, g)}, nil)
		time.Sleep(10 * time.Second)
		if s := n.host.Status().Jobs[0]; s.State != host.JobReady || len(s.Items) != 1 {
			t.Errorf("status %+v, want ready\n%s", s, c.all())
		}
	})
}

func TestReviewMaxConcurrencyHoldsOverFires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("j", "0 * * * * ?", 4)
		d.Props["wasm.maxConcurrency"] = "2"
		var l lone
		g := l.guest(func(item int) time.Duration { return time.Duration(1+item%2*80) * time.Second })
		c.start(1, job(d, g))
		time.Sleep(10 * time.Minute)
		l.check(t, c)
		if l.most > 2 {
			t.Errorf("%d items ran at once, want 2 at most", l.most)
		}
	})
}

func TestReviewKillEndsDialling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := host.New(host.Config{Namespace: "n", ServerIP: "10.0.0.1", Dial: func(ctx context.Context) (registry.Center, error) {
			select {
			case <-time.After(time.Second):
				return nil, errors.New("nobody there")
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		kill, killNow := context.WithCancel(t.Context())
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		done := make(chan error, 1)
		go func() { done <- h.Run(ctx, kill) }()
		time.Sleep(10 * time.Second)
		killNow()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Error("Run goes on a minute after it was killed")
		}
	})
}

func TestReviewItemsQueuedForTheHostDoNotBeginInADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		// More items than the host has slots: several jobs want them.
		var jobs []host.Job
		for k := range 40 {
			d := definition(fmt.Sprintf("j%02d", k), "0 * * * * ?", 1)
			jobs = append(jobs, job(d, sleeper(10*time.Second)))
		}
		n := c.start(1, jobs...)
		time.Sleep(61 * time.Second)
		asked := time.Now()
		n.stop()
		<-n.done
		for _, e := range c.list(host.EventItemStarted) {
			if !e.Time.Before(asked) {
				t.Fatalf("%s began while the host drains\n%s", e.RunID, c.all())
			}
		}
	})
}

func TestReviewADrainTellsOfATriggerThatItDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.start(1, job(definition("j", "", 1), sleeper(20*time.Second)))
		time.Sleep(time.Second)
		for range 2 {
			if err := n.host.Trigger(t.Context(), "j"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		n.stop()
		<-n.done
		skipped := c.list(host.EventFireSkipped)
		if len(skipped) != 1 || skipped[0].Trigger == 0 || skipped[0].Reason == "" {
			t.Errorf("skipped: %s, want the trigger that was kept\n%s", lines(skipped), c.all())
		}
	})
}

var errFaults = map[registrytest.Fault]string{
	registrytest.Refused: "refused", registrytest.InDoubt: "in doubt", registrytest.LostRequest: "lost request",
	registrytest.LostAnswer: "lost answer", registrytest.ExpireBefore: "expired before", registrytest.ExpireAfter: "expired after",
}

// TestReviewEveryCallGoesWrongOnce lets each call of one of two hosts go wrong
// in each way, while the hosts run, drain and change their minds.
func TestReviewEveryCallGoesWrongOnce(t *testing.T) {
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
		_ = a.host.Trigger(t.Context(), "j")
		time.Sleep(time.Minute)
		b = c.start(3, job(d, g)) // and another comes
		time.Sleep(35 * time.Second)
		a.host.Apply(nil, nil) // this one wants to leave, and stays
		time.Sleep(time.Second)
		d.Description = "more"
		a.host.Apply([]host.Job{job(d, g)}, nil)
		time.Sleep(2 * time.Minute)
		b.kill() // the other dies: failover
		<-b.done
		time.Sleep(2 * time.Minute)
		from := time.Now().Truncate(time.Minute).Add(time.Minute)
		time.Sleep(4 * time.Minute)
		l.check(t, c)
		for run, n := range byRun(c.list(host.EventItemCompleted)) {
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

func byRun(events []host.Event) map[string]int {
	n := make(map[string]int)
	for _, e := range events {
		n[e.RunID]++
	}
	return n
}

// TestRestless has somebody ask for a division whenever one was made, as
// another host would that takes each for wrong. The leader obeys, but not
// faster than a registry that others need can take, and says so; items still run.
func TestRestless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, logs := observer.New(zap.WarnLevel)
		c := newCluster(t)
		c.log = zap.New(log)
		g := sleeper(0)
		c.start(1, job(definition("restless", "0 * * * * ?", 2), g))
		time.Sleep(30 * time.Second)
		layout := coordination.NewLayout("test", "restless")
		flag := layout.Root() + "/leader/sharding/necessary"
		r, err := c.server.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		news, err := r.Watch(ctx, registry.Data(flag))
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		var wg sync.WaitGroup
		wg.Go(func() {
			for s := range news {
				if !s.Data(flag).Exists {
					asked++
					if _, err := r.Commit(t.Context(), registry.Create(flag, nil)); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
		const minutes = 2
		time.Sleep(minutes * time.Minute)
		cancel()
		wg.Wait()
		if most := 30 + 5*60*minutes; asked > most {
			t.Errorf("divided %d times in %d minutes; want %d at most", asked, minutes, most)
		}
		if least := 4 * 60 * minutes; asked < least {
			t.Errorf("divided only %d times in %d minutes, though it was asked %d times to", asked, minutes, least)
		}
		if n := logs.FilterMessageSnippet("not coming to rest").Len(); n < 1 || n > minutes+1 {
			t.Errorf("said %d times that it does not come to rest", n)
		}
		time.Sleep(90 * time.Second)
		if starts := c.starts(0); len(starts) == 0 {
			t.Error("no item ran any more")
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

// staffed is a guest that counts its workers.
type staffed struct {
	*guest
	workers atomic.Int64
}

func (s *staffed) Executor(d jobconfig.Configuration) (abi.Executor, error) {
	_, err := s.guest.Executor(d)
	return s, err
}

func (s *staffed) NewWorker(context.Context) (abi.Worker, error) {
	s.workers.Add(1)
	return s.guest, nil
}

// TestWorkers has a fire of items that come and go make do with a worker for
// each processor, and one of items that take their time have all it may.
func TestWorkers(t *testing.T) {
	few := runtime.GOMAXPROCS(0)
	for _, tc := range []struct {
		takes time.Duration
		items int
		want  int
	}{{0, 100 * few, few}, {time.Second, 2 * few, 2 * few}, {2 * time.Millisecond, 100 * few, 2 * few}} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			g := &staffed{guest: sleeper(tc.takes)}
			d := definition("staffed", "0 * * * * ?", tc.items)
			c.start(1, host.Job{Definition: d, Module: g, File: "staffed.yaml", ModuleFile: "staffed.wasm"})
			time.Sleep(90 * time.Second)
			if got := len(c.list(host.EventItemCompleted)); got != tc.items {
				t.Errorf("%d items of %s: %d were completed", tc.items, tc.takes, got)
			}
			if got := int(g.workers.Load()); got > tc.want || tc.takes > 0 && got != tc.want {
				t.Errorf("%d items of %s had %d workers; want %d", tc.items, tc.takes, got, tc.want)
			}
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
		c.config = func(cfg *host.Config) { cfg.HostInfo = "busy" }
		second := c.start(2, job(d, g))
		time.Sleep(time.Hour) // a scheduled fire: the second host is busy with it
		if err := first.host.Trigger(t.Context(), "survives"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		second.kill()
		<-second.done
		time.Sleep(2 * time.Minute)
		ran := make(map[int]int)
		for _, e := range c.list(host.EventItemCompleted) {
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
			layout := coordination.NewLayout("test", "switched")
			ops := []registry.Op{registry.Set(fmt.Sprintf("%s/servers/10.0.0.%d", layout.Root(), off), []byte("DISABLED"), registry.AnyVersion)}
			trigger := layout.Root() + "/trigger"
			ops = append(ops, registry.Ensure(trigger), registry.Set(trigger, nil, registry.AnyVersion))
			for _, n := range c.hosts {
				ops = append(ops, registry.Create(trigger+"/"+n.host.Status().Instance, nil))
			}
			c.commit(ops...)
			time.Sleep(time.Minute)
			ran := make([]int, total)
			for _, e := range c.list(host.EventItemCompleted) {
				ran[*e.Item]++
			}
			if slices.Min(ran) != 1 || slices.Max(ran) != 1 {
				t.Errorf("host %d disabled: the items ran %v times\n%s", off, ran, c.all())
			}
		})
	}
}
