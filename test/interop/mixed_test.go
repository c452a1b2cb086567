//go:build interop

package interop_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/test/interop/peer"
)

// javaClass is what ElasticJob writes into the root of a job of Jobs.java.
const javaClass = "io.github.wasmjob.interop.Jobs$Item"

func mixed(total int, lines ...string) string {
	return definition(total, append([]string{`jobClass: "` + javaClass + `"`}, lines...)...)
}

// members starts a Java host and two of ours, in an order in which that kind
// leads which is named.
func (c *cluster) members(leader string, total int) (j *java, a, b *ours) {
	c.t.Helper()
	if leader == "java" {
		j = c.startJava(total)
		if !c.leads(j.ip) {
			c.t.Fatal("the Java host is alone and does not lead")
		}
	}
	a = c.start(mixed(total))
	b = c.start(mixed(total))
	if leader == "ours" {
		j = c.startJava(total)
	}
	if got := c.leads(j.ip); got != (leader == "java") {
		c.t.Fatalf("the Java host leads: %t, and %s should", got, leader)
	}
	c.settled(total, 3)
	return j, a, b
}

func bothLead(t *testing.T, test func(t *testing.T, leader string)) {
	t.Parallel()
	for _, leader := range []string{"ours", "java"} {
		t.Run(leader, func(t *testing.T) {
			t.Parallel()
			test(t, leader)
		})
	}
}

// TestMixedShares: a Java host beside two of ours, one kind or the other in the
// lead: every fire runs each item once, on the host that ElasticJob's rule
// gives it to.
func TestMixedShares(t *testing.T) {
	bothLead(t, func(t *testing.T, leader string) {
		c := newCluster(t, "shared")
		j, _, _ := c.members(leader, 7)
		for range 3 {
			c.round(7)
			c.divided(7, 3)
		}
		c.states(every("PENDING", 7)...)
		c.status("OK")

		// By the clock: each instant once over all hosts.
		mark := c.log.Mark()
		c.console("update configuration", peer.Request{"change": peer.Request{"cron": "0/3 * * * * ?"}}, nil)
		c.runs("three whole instants", mark, func(list []peer.Run) bool { return len(list) >= 3*7 })
		c.console("update configuration", peer.Request{"change": peer.Request{"cron": never}}, nil)
		c.until("quiet", func(v *view) bool { return v.idle(7) })
		count := make(map[string]int)
		for _, r := range c.log.Runs(c.job, mark) {
			count[r.Begin.Truncate(3*time.Second).Format(time.TimeOnly)+" "+strconv.Itoa(r.Item)]++
		}
		for at, n := range count {
			if n != 1 {
				t.Errorf("%s ran %d times, want once:\n%s", at, n, peer.Text(c.log.Runs(c.job, mark)))
			}
		}
		if got := c.leads(j.ip); got != (leader == "java") {
			t.Errorf("the Java host leads at the end: %t", got)
		}
		c.apart()
	})
}

// TestMixedScale: hosts of both kinds come and go.
func TestMixedScale(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "scaled")
	round := func(instances int) {
		t.Helper()
		c.settled(6, instances)
		c.round(6)
		c.divided(6, instances)
		c.round(6)
	}
	a := c.start(mixed(6))
	round(1)
	j := c.startJava(6)
	round(2)
	b := c.start(mixed(6))
	round(3)
	j.stop()
	round(2)
	j2 := c.startJava(6)
	round(3)
	a.stop() // the leader: whoever is next divides
	round(2)
	b.stop()
	c.settled(6, 1)
	if !c.leads(j2.ip) {
		t.Error("the Java host is alone and does not lead")
	}
	round(1)
	c.start(mixed(6))
	round(2)
	j2.stop()
	round(1)
	c.apart()
}

// failover holds all items, kills a host with kill, and demands that its items,
// and no others, run once more on the survivors.
func (c *cluster) failover(total int, victim string, hold func(on bool), kill func()) {
	c.t.Helper()
	c.round(total)
	c.divided(total, 3)
	hold(true)
	mark := c.log.Mark()
	c.console("trigger", nil, nil)
	c.begun(mark, items(total)...)
	var lost []int
	for _, r := range c.log.Runs(c.job, mark) {
		if r.Host == victim {
			lost = append(lost, r.Item)
		}
	}
	if len(lost) == 0 {
		c.t.Fatalf("%s has no items", victim)
	}
	killed := time.Now()
	kill()
	hold(false)
	c.runs(fmt.Sprintf("items %v to run again", lost), mark, func(list []peer.Run) bool {
		return !slices.ContainsFunc(items(total), func(i int) bool {
			return !slices.ContainsFunc(list, func(r peer.Run) bool { return r.Item == i && !r.End.IsZero() && !r.Cut })
		})
	})
	c.t.Logf("items %v of %s ran again %s after the kill", lost, victim, time.Since(killed).Round(time.Millisecond))
	c.until("quiet after the failover", func(v *view) bool {
		return v.idle(total) && len(v.children("leader/failover/items")) == 0
	})
	list := c.log.Runs(c.job, mark)
	for i := range total {
		want := 1
		if slices.Contains(lost, i) {
			want = 2
		}
		n := 0
		for _, r := range list {
			if r.Item == i {
				n++
			}
		}
		if n != want {
			c.t.Errorf("item %d ran %d times, want %d (lost: %v):\n%s", i, n, want, lost, peer.Text(list))
			break
		}
	}
	c.apart()
	c.settled(total, 2)
	c.round(total) // the first fire of a Java leader divides
	c.divided(total, 2)
	c.round(total)
}

// TestMixedJavaKilled: kill -9 of the Java host while all items run.
func TestMixedJavaKilled(t *testing.T) {
	bothLead(t, func(t *testing.T, leader string) {
		c := newCluster(t, "javakilled")
		j, a, b := c.members(leader, 7)
		hosts := []interface {
			hold()
			release()
		}{j, a, b}
		c.failover(7, j.Name(), func(on bool) {
			for _, h := range hosts {
				if on {
					h.hold()
				} else if h != hosts[0] {
					h.release()
				}
			}
		}, j.Kill)
	})
}

// TestMixedOursKilled: kill -9 of one of ours while all items run.
func TestMixedOursKilled(t *testing.T) {
	bothLead(t, func(t *testing.T, leader string) {
		c := newCluster(t, "ourskilled")
		j, a, b := c.members(leader, 7)
		c.failover(7, a.Name(), func(on bool) {
			if on {
				j.hold()
				a.hold()
				b.hold()
				return
			}
			j.release()
			b.release()
		}, a.Kill)
	})
}

// TestMixedLastOfOursKilled: the Java host alone takes over what our host ran.
func TestMixedLastOfOursKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "javatakes")
	a := c.start(mixed(4))
	j := c.startJava(4)
	c.settled(4, 2)
	c.round(4)
	c.divided(4, 2)
	a.hold()
	mark := c.log.Mark()
	c.console("trigger", nil, nil)
	c.begun(mark, items(4)...)
	c.ended(mark, c.owned(j.ID(), 4)...)
	a.Kill()
	c.ended(mark, items(4)...)
	c.until("quiet after the failover", func(v *view) bool { return v.idle(4) })
	c.round(4)
	c.divided(4, 1)
	c.round(4)
	c.apart()
}

// owned are the items of an instance.
func (c *cluster) owned(id string, total int) (list []int) {
	c.now(func(v *view) {
		for i, owner := range v.owners(total) {
			if owner == id {
				list = append(list, i)
			}
		}
	})
	return list
}

// TestMixedConfiguration: our definition file and ElasticJob's API change the
// configuration for hosts of both kinds.
func TestMixedConfiguration(t *testing.T) {
	bothLead(t, func(t *testing.T, leader string) {
		c := newCluster(t, "configured")
		j, a, b := c.members(leader, 4)
		c.round(4)
		a.define(mixed(6))
		b.define(mixed(6))
		c.until("the file's total count", func(v *view) bool {
			text, _ := v.get("config")
			return strings.Contains(text, "shardingTotalCount: 6\n")
		})
		c.settled(6, 3)
		c.round(6)
		c.divided(6, 3)
		c.console("update configuration", peer.Request{"change": peer.Request{"shardingTotalCount": 3}}, nil)
		c.until("the API's total count", func(v *view) bool {
			text, _ := v.get("config")
			return strings.Contains(text, "shardingTotalCount: 3\n")
		})
		c.settled(3, 3)
		c.round(3)
		c.divided(3, 3)
		c.round(3)

		// A Java host that comes with overwrite: its configuration counts.
		j.stop()
		c.settled(3, 2)
		j.ask(peer.Request{"do": "start", "job": c.job, "cron": never, "total": 5, "failover": true, "monitorExecution": true, "overwrite": true, "parameter": "hold:go"})
		c.settled(5, 3)
		c.round(5)
		c.divided(5, 3)
		c.round(5)
		c.apart()
	})
}

// TestMixedMoves: a server of ours is disabled and enabled about when items are
// due, so that they move between ours and the Java host that waits for the
// division. No item runs twice for one instant.
func TestMixedMoves(t *testing.T) {
	t.Parallel()
	const total, period = 40, 3 * time.Second
	c := newCluster(t, "moves")
	j, _, b := c.members("ours", total)
	mark := c.log.Mark()
	c.console("update configuration", peer.Request{"change": peer.Request{"cron": "0/3 * * * * ?"}}, nil)
	state := "DISABLED"
	for n := range 16 {
		due := time.Now().Truncate(period).Add(2 * period)
		select {
		case <-time.After(time.Until(due.Add(time.Duration(n%8*19/7-14) * time.Millisecond))):
		case <-c.ctx.Done():
			t.Fatal(c.ctx.Err())
		}
		_, err := c.zk.Set("/"+c.namespace+"/"+c.job+"/servers/"+b.ip, []byte(state), -1)
		c.check(err)
		if state == "DISABLED" {
			state = "ENABLED"
		} else {
			state = "DISABLED"
		}
	}
	c.console("update configuration", peer.Request{"change": peer.Request{"cron": never}}, nil)
	c.until("quiet", func(v *view) bool { return v.idle(total) })

	moves, before := 0, make(map[int]string)
	ran := make(map[string]string)
	for _, r := range c.log.Runs(c.job, mark) {
		run := fmt.Sprintf("item %d at %s", r.Item, r.Begin.Truncate(period).Format(time.TimeOnly))
		if ran[run] != "" {
			t.Errorf("%s ran on %s and on %s", run, ran[run], r.Host)
		}
		ran[run] = r.Host
		if was := before[r.Item]; was != "" && was != r.Host && (was == j.Name() || r.Host == j.Name()) {
			moves++
		}
		before[r.Item] = r.Host
	}
	t.Logf("%d runs, %d moves between ours and the Java host", len(ran), moves)
	if moves < 20 {
		t.Errorf("%d moves between ours and the Java host, want 20 at least", moves)
	}
}

// TestJavaAmongThemselves is the control: what these tests demand of a cluster
// holds for ElasticJob alone.
func TestJavaAmongThemselves(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "control")
	j := c.startJava(5)
	c.round(5)
	c.startJava(5)
	c.until("two instances", func(v *view) bool { return len(v.children("instances")) == 2 })
	c.round(5)
	c.divided(5, 2)
	c.states(every("PENDING", 5)...)
	j.stop()
	c.until("one to leave", func(v *view) bool { return len(v.children("instances")) == 1 })
	c.round(5)
	c.divided(5, 1)
	c.apart()
}

// TestShutdownOfAJavaLeader: a Java leader runs, and is to give way. Its shutdown is
// refused while it runs, as it would go on; a disabled server makes it give up its
// leadership, and each item runs once.
func TestShutdownOfAJavaLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "shutjava")
	j, _, b := c.members("java", 6)
	c.round(6)
	c.divided(6, 3)
	j.hold()
	mark := c.log.Mark()
	c.console("trigger", nil, nil)
	c.begun(mark, items(6)...)
	shut := func() (string, error) {
		ctx, cancel := c.within()
		defer cancel()
		return b.Run(ctx, "job", "drain", c.job, "--instance", j.ID())
	}
	if out, err := shut(); err == nil || !strings.Contains(out+err.Error(), "a Java host that is shut down goes on running its items") {
		t.Errorf("shutdown of a Java host that runs: %s, %v", out, err)
	}
	c.console("disable", peer.Request{"ip": j.ip}, nil)
	c.until("one of ours to lead", func(v *view) bool {
		leader, ok := v.get("leader/election/instance")
		return ok && leader != "" && leader != j.ID()
	})
	j.release()
	c.ended(mark, items(6)...)
	c.until("quiet", func(v *view) bool { return v.idle(6) })
	if out, err := shut(); err != nil {
		t.Errorf("shutdown of a Java host that runs nothing: %s, %v", out, err)
	}
	if list := c.log.Runs(c.job, mark); len(list) != 6 {
		t.Errorf("%d runs, want each item once:\n%s", len(list), peer.Text(list))
	}
	c.round(6)
	c.apart()
}

// TestJobOfJavaHostsAlone: a host of ours shows a job that only ElasticJob's hosts have, and
// says so when those are gone.
func TestJobOfJavaHostsAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "alone")
	j := c.startJava(4)
	c.round(4)
	other := *c
	other.job, other.next = "ours", 100
	o := other.start(definition(1))
	shows := func(state, health string) {
		t.Helper()
		ctx, cancel := c.within()
		defer cancel()
		out := ""
		for ctx.Err() == nil {
			var list struct {
				Records []struct {
					State, Health      string
					Cron               string
					ShardingTotalCount int
				}
			}
			var err error
			out, err = o.Run(ctx, "job", "list", "--job", "alone", "--json")
			if c.check(err); json.Unmarshal([]byte(out), &list) == nil && len(list.Records) == 1 && list.Records[0].State == state {
				if j := list.Records[0]; j.Health != health || j.Cron != never || j.ShardingTotalCount != 4 {
					t.Errorf("the job is shown as %s", out)
				}
				return
			}
		}
		t.Fatalf("the job is not shown as %q: %s", state, out)
	}
	shows("elsewhere", "ok")
	j.stop()
	shows("no host", "error")
	c.startJava(4)
	shows("elsewhere", "ok")
	c.round(4)
}
