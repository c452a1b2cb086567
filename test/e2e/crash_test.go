package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/admin/inspect"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/event"
)

// TestNothingIsShownAsRunningWhoseHostIsGone (T3 of docs/complaints.md): a run stays RUNNING
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
			if i.RunningOn == "" || i.State != inspect.ShardRunning {
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
			if i.RunningOn == dead || i.State == inspect.ShardRunning && i.RunningOn == "" {
				t.Errorf("the host has died, and item %d of %s is shown as %+v", i.Item, name, i)
			}
		}
	}
	over, lost := flights["over"], flights["lost"]
	taken := over.takenOver(t, over.of(a), b)
	left := lost.of(a)[0]
	b.of("lost", lost.at[b], kind(event.ItemSkipped), item(left), outcome("LOST"))
	if i := c.running(s, "over")[over.of(a)[0]]; !strings.HasPrefix(i.RunningOn, b.ip+"@-@") || i.State != inspect.ShardRunning || !i.Record.Open() {
		t.Errorf("the item that was taken over is shown as %+v", i)
	}
	if i := c.running(s, "lost")[left]; i.RunningOn != "" || i.State == inspect.ShardRunning || i.Record.Open() || i.Record.Outcome != "LOST" {
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
		if i.RunningOn != "" || i.State != inspect.ShardFailover {
			t.Errorf("no host is there, and item %d is shown as %+v", i.Item, i)
		}
	}
	for _, line := range strings.Split(c.registry("job", "items", "late"), "\n") {
		if strings.Contains(line, "RUNNING") {
			t.Errorf("no host is there, and shards says %q", line)
		}
	}
	if line := c.registry("job", "list"); strings.Count(line, string(inspect.JobCrashed)) != len(names)+1 {
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
			if i.RunningOn != "" || i.State == inspect.ShardRunning || i.Record.Open() {
				t.Errorf("the last host has stopped, and item %d of %s is shown as %+v", i.Item, name, i)
			}
		}
	}
	c.judge("over", "lost", "late")
}

// TestAFleetThatCrashedAndCameBackTogetherRecovers: all hosts are killed with
// items in flight, and all start again before the registry has noticed.
func TestAFleetThatCrashedAndCameBackTogetherRecovers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("tick", everySecond, "shardingTotalCount: 3", "failover: true")
	c.job("held", "shardingTotalCount: 6", "failover: true", `jobParameter: "stubborn:a"`)
	fleet := []*member{c.add(mortal...), c.add(mortal...), c.add(mortal...)}
	for _, m := range fleet {
		m.of("held", 0, assigned(2))
		m.of("tick", 0, assigned(1))
	}
	f := c.fly("held", fleet...)
	items := f.of(fleet...)
	for _, m := range fleet {
		m.kill()
	}
	started := make([]*member, len(fleet))
	for i, m := range fleet {
		started[i] = c.again(m, mortal...)
		f.at[started[i]] = 0
	}
	taken := f.takenOver(t, items, started...)
	c.open("a")
	f.once(t, items, taken, started...)
	c.divided("tick", started...)
	for _, m := range started {
		m.of("tick", m.mark(), kind(event.FireEnded), outcome(abi.OutcomeOK))
	}
	c.wholeFire("held", 6, started...)
	c.judge("tick", "held")
}

// TestAHostThatComesBackAtOnceIsAnotherOne: a host is killed and started again,
// at the same address, before its session has ended. Its old marks are not
// taken for its own.
func TestAHostThatComesBackAtOnceIsAnotherOne(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("held", "shardingTotalCount: 3", "failover: true", `jobParameter: "stubborn:a"`)
	m := c.add(mortal...)
	m.of("held", 0, assigned(3))
	f := c.fly("held", m)
	old := f.runs[m][0].Host
	m.kill()
	next := c.again(m, mortal...)
	f.at[next] = 0
	taken := f.takenOver(t, f.of(m), next)
	if e := next.of("held", 0, kind(event.ItemStarted)); e.Host == old || !strings.HasPrefix(e.Host, m.ip+"@-@") {
		t.Errorf("%s came back as %s", old, e.Host)
	}
	c.open("a")
	f.once(t, f.of(m), taken, next)
	c.wholeFire("held", 3, next)
	c.judge("held")
}
