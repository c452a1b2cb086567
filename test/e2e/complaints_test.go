package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/zookeeper"
	"github.com/wasmjob/wasmjob/host"
	"github.com/wasmjob/wasmjob/host/admin"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// The tests of this file, and those of the file of this name in host, are named
// after what people complain about in schedulers of this kind; the table in
// docs/reliability.md says which is which.

// TestNoJobFallsSilentWhenZooKeeperGoesAndComes is about T1: a session is lost,
// it comes back, and some of a process's jobs never fire again, or have shut
// themselves down, while others go on. Thirty jobs on two hosts go through
// every way in which ZooKeeper can go; after each of them every item of every
// job runs again, on both hosts, and long before anything that is swept up now
// and then could be the reason (reconcileIntervalMinutes is 10).
func TestNoJobFallsSilentWhenZooKeeperGoesAndComes(t *testing.T) {
	t.Parallel()
	e := zkserver.ForTest(t, zkserver.Options{TickTime: 200 * time.Millisecond, NoSync: true})
	c := newCluster(t)
	c.zk, c.ns = e.Connect(), "silent"
	var jobs []string
	for n := range 30 {
		name := fmt.Sprintf("job%02d", n)
		jobs = append(jobs, name)
		c.job(name, `cron: "*/2 * * * * ?"`, "shardingTotalCount: 2", fmt.Sprintf("failover: %v", n%2 == 0))
	}
	brief := []string{"--session-timeout", clusterSession.String()}
	a, toA := c.behind(brief...)
	b, toB := c.behind(append(brief, "--dead-man", "off")...) // it halts beyond its session
	both := []*member{a, b}
	c.allFire(jobs, both, both)

	server := func(do func(int) error) {
		t.Helper()
		if err := do(0); err != nil {
			t.Fatal(err)
		}
	}
	serves := func() {
		t.Helper()
		server(e.Restart)
		if err := e.Await(within(t), 0); err != nil {
			t.Fatal(err)
		}
	}
	// lost waits until hosts have given their sessions up.
	lost := func(at map[*member]int) {
		t.Helper()
		for m, from := range at {
			m.of("", from, kind(host.EventSession), because("lost"))
		}
	}
	for _, way := range []struct {
		name string
		goes func(at map[*member]int)
	}{
		{"the server is killed, and started at once", func(map[*member]int) {
			server(e.Kill)
			serves()
		}},
		{"the server is killed, and stays away", func(at map[*member]int) {
			server(e.Kill)
			lost(at)
			serves()
		}},
		{"the server halts, and goes on", func(at map[*member]int) {
			server(e.Pause)
			lost(at)
			server(e.Resume)
		}},
		{"one host is cut off", func(at map[*member]int) {
			toA.Cut()
			lost(map[*member]int{a: at[a]})
			c.allFire(jobs, []*member{b}, both)
			toA.Heal()
		}},
		{"the network swallows what both say", func(at map[*member]int) {
			toA.Hold(zkserver.ToServer | zkserver.ToClient)
			toB.Hold(zkserver.ToServer | zkserver.ToClient)
			lost(at)
			toA.Heal()
			toB.Heal()
		}},
		{"one host halts, and goes on", func(at map[*member]int) {
			b.signal(syscall.SIGSTOP)
			t.Cleanup(func() { _ = b.cmd.Process.Signal(syscall.SIGCONT) })
			c.allFire(jobs, []*member{a}, both)
			b.signal(syscall.SIGCONT)
			lost(map[*member]int{b: at[b]})
		}},
	} {
		way.goes(marks(both...))
		took := c.allFire(jobs, both, both)
		t.Logf("%s: every item of all jobs has run on both hosts %s later", way.name, took.Round(time.Millisecond))
		for _, m := range both {
			for _, k := range []host.EventKind{host.EventJobStopped, host.EventJobRemoved} {
				for _, name := range jobs {
					if n := m.count(name, kind(k)); n > 0 {
						t.Errorf("%s: %s on %s: %s", way.name, k, m.ip, name)
					}
				}
			}
		}
	}
	c.judge(jobs...)
}

// allFire waits until every job has an instant after now of which all items
// were completed, by the hosts that are named, each of which did some. It reads
// events of all hosts, and returns how long it took.
func (c *cluster) allFire(jobs []string, by, all []*member) time.Duration {
	c.t.Helper()
	const items = 2
	start := time.Now()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*patience)
	defer cancel()
	type fire struct {
		job     string
		instant int64
	}
	ran := make(map[fire]map[int]*member)
	silent := make(map[string]bool)
	for _, name := range jobs {
		silent[name] = true
	}
	for from := marks(all...); ; {
		news := newsOf(all)
		for _, m := range all {
			for _, e := range m.since(from[m]) {
				from[m]++
				if e.Kind != host.EventItemCompleted || e.Outcome != abi.OutcomeOK || !e.Instant.After(start) {
					continue
				}
				f := fire{e.Job, e.Instant.UnixMilli()}
				if ran[f] == nil {
					ran[f] = make(map[int]*member)
				}
				ran[f][*e.Item] = m
				hosts := slices.Collect(maps.Values(ran[f]))
				if len(ran[f]) == items && !slices.ContainsFunc(by, func(m *member) bool { return !slices.Contains(hosts, m) }) {
					delete(silent, e.Job)
				}
			}
		}
		if len(silent) == 0 {
			return time.Since(start)
		}
		more := make(chan struct{})
		waiting, stop := context.WithCancel(ctx)
		for _, n := range news {
			go func() { // ends with waiting
				select {
				case <-n:
					select {
					case more <- struct{}{}:
					case <-waiting.Done():
					}
				case <-waiting.Done():
				}
			}()
		}
		select {
		case <-more:
		case <-ctx.Done():
			stop()
			c.t.Fatalf("silent for %s: %v", time.Since(start).Round(time.Second), slices.Sorted(maps.Keys(silent)))
		}
		stop()
	}
}

// since are the events from the given place on.
func (h *process) since(at int) []host.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events[at:])
}

// TestNothingIsShownAsRunningWhoseHostIsGone is about T3: a run stays RUNNING
// for ever when who ran it was killed or stopped, or is RUNNING again though it
// was ended, and nothing begins any more because of it. Here RUNNING is what a
// living session says of itself: it goes with the session, also when nobody is
// left to clean up, and the job goes on.
func TestNothingIsShownAsRunningWhoseHostIsGone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	names := []string{"over", "lost"}
	for _, name := range names {
		c.job(name, "shardingTotalCount: 2", fmt.Sprintf("failover: %v", name == "over"), `jobParameter: "stubborn:a"`)
	}
	c.job("late", "shardingTotalCount: 2", "failover: true", `jobParameter: "stubborn:b"`)
	a, b := c.add(mortal...), c.add(mortal...)
	for _, name := range append(names, "late") {
		everywhere(name, nil, map[*member]int{a: 1, b: 1})
	}
	s := c.session("")
	flights := make(map[string]*flight)
	for _, name := range names {
		flights[name] = c.fly(name, a, b)
		for _, i := range c.running(s, name) {
			if i.RunningOn == "" || i.State != coordination.ShardRunning {
				t.Errorf("item %d of %s runs, and is shown as %+v", i.Item, name, i)
			}
		}
	}
	dead := flights["over"].runs[a][0].Host

	// One of two is killed.
	a.kill()
	for _, name := range names {
		c.gone(s, name, dead)
		for _, i := range c.running(s, name) {
			if i.RunningOn == dead || i.State == coordination.ShardRunning && i.RunningOn == "" {
				t.Errorf("the host has died, and item %d of %s is shown as %+v", i.Item, name, i)
			}
		}
	}
	over, lost := flights["over"], flights["lost"]
	taken := over.takenOver(t, over.of(a), b)
	left := lost.of(a)[0]
	b.of("lost", lost.at[b], kind(host.EventItemSkipped), item(left), outcome("LOST"))
	if i := c.running(s, "over")[over.of(a)[0]]; !strings.HasPrefix(i.RunningOn, b.ip+"@-@") || i.State != coordination.ShardRunning || !i.Record.Open() {
		t.Errorf("the item that was taken over is shown as %+v", i)
	}
	if i := c.running(s, "lost")[left]; i.RunningOn != "" || i.State == coordination.ShardRunning || i.Record.Open() || i.Record.Outcome != "LOST" {
		t.Errorf("the item that was lost is shown as %+v", i)
	}
	for _, name := range names {
		if out := c.shards(name); slices.ContainsFunc(out.Instances, func(i admin.Instance) bool { return i.ID == dead && i.Running != "" }) {
			t.Errorf("the host has died, and is shown as running something: %+v", out.Instances)
		}
	}
	c.open("a")
	over.once(t, over.of(a), taken, b)
	for _, name := range names { // nothing that is over keeps the job from running
		c.wholeFire(name, 2, b)
	}

	// The other one is killed, and nobody is left.
	f := c.fly("late", b)
	last := f.runs[b][0].Host
	b.kill()
	c.gone(s, "late", last)
	for _, i := range c.running(s, "late") {
		if i.RunningOn != "" || i.State != coordination.ShardFailover {
			t.Errorf("no host is there, and item %d is shown as %+v", i.Item, i)
		}
	}
	for _, line := range strings.Split(c.registry("shards", "late"), "\n") {
		if strings.Contains(line, "RUNNING") {
			t.Errorf("no host is there, and shards says %q", line)
		}
	}
	if line := c.registry("jobs"); strings.Count(line, string(coordination.JobCrashed)) != len(names)+1 {
		t.Errorf("no host is there, and jobs says\n%s", line)
	}

	// One comes, ends what was left, and stops.
	next := c.again(b, mortal...)
	f.at[next] = 0
	taken = f.takenOver(t, f.of(b), next)
	c.open("b")
	f.once(t, f.of(b), taken, next)
	c.wholeFire("late", 2, next)
	next.stop()
	for _, name := range append(names, "late") {
		for _, i := range c.running(s, name) {
			if i.RunningOn != "" || i.State == coordination.ShardRunning || i.Record.Open() {
				t.Errorf("the last host has stopped, and item %d of %s is shown as %+v", i.Item, name, i)
			}
		}
	}
	c.judge("over", "lost", "late")
}

// running are the items of a job as they are shown.
func (c *cluster) running(s *zookeeper.Session, job string) []coordination.ShardItem {
	c.t.Helper()
	shards, err := coordination.ReadShards(within(c.t), s, coordination.NewLayout(c.ns, job))
	if err != nil {
		c.t.Fatal(err)
	}
	return shards.Items
}

// gone waits until the session of an instance is over.
func (c *cluster) gone(s *zookeeper.Session, job, id string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	q := registry.Children(coordination.NewLayout(c.ns, job).Root() + "/instances")
	watch, err := s.Watch(ctx, q)
	if err != nil {
		c.t.Fatal(err)
	}
	for seen := range watch {
		if !slices.Contains(seen[q].Names, id) {
			return
		}
	}
	c.t.Fatalf("%s has been an instance of %s for %s", id, job, patience)
}
