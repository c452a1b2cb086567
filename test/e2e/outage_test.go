package e2e_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// TestNoJobFallsSilentWhenZooKeeperGoesAndComes (T1 of docs/complaints.md): a session is lost,
// it comes back, and some of a process's jobs never fire again, or have shut
// themselves down, while others go on. Thirty jobs on two hosts go through
// every way in which ZooKeeper can go; after each of them every item of every
// job runs again, on both hosts, and long before anything that is swept up now
// and then could be the reason (reconcileIntervalMinutes is 10). A host that a busy machine makes so late that it has to
// end itself is started again, as systemd does.
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
	a, toA := c.behind(mortal...)
	b, toB := c.behind(append(mortal, "--dead-man", "off")...) // it halts beyond its session
	a.supervised, b.supervised = true, true
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
			m.lost(from)
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
			for _, k := range []event.Kind{event.JobStopped, event.JobRemoved} {
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
