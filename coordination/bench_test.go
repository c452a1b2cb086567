package coordination_test

import (
	"fmt"
	"testing"
	"time"

	co "github.com/wasmjob/wasmjob/coordination"
)

// benchHosts joins n hosts to a job; the first one leads and has not divided
// the items yet.
func benchHosts(b *testing.B, n, total int) (*cluster, []*simHost) {
	c := newCluster(b, inMemory(b))
	c.file.ShardingTotalCount, c.file.Failover = total, true
	var hosts []*simHost
	for k := range n {
		h := c.addHost(fmt.Sprintf("H%03d", k), fmt.Sprintf("10.0.%d.%d", k/250, k%250+1))
		if _, err := h.join(c.file); err != nil {
			b.Fatal(err)
		}
		hosts = append(hosts, h)
	}
	leader := hosts[0]
	if _, err := leader.step(); err != nil { // is elected
		b.Fatal(err)
	}
	if err := leader.look(); err != nil {
		b.Fatal(err)
	}
	return c, hosts
}

// BenchmarkReshard: the first division makes all nodes; the second finds them
// and moves what one host more makes move.
func BenchmarkReshard(b *testing.B) {
	for _, size := range []struct{ total, hosts int }{{1000, 3}, {10_000, 10}, {100_000, 100}} {
		name := fmt.Sprintf("%dx%d", size.total, size.hosts)
		reshard := func(b *testing.B, h *simHost) int {
			var sharded co.Sharded
			if err := h.perform(moves.Reshard(&h.Member, h.now, &sharded)); err != nil {
				b.Fatal(err)
			}
			return sharded.Commits
		}
		b.Run("first/"+name, func(b *testing.B) {
			commits := 0
			for b.Loop() {
				b.StopTimer()
				_, hosts := benchHosts(b, size.hosts, size.total)
				b.StartTimer()
				commits = reshard(b, hosts[0])
			}
			b.ReportMetric(float64(commits), "commits")
		})
		b.Run("oneMore/"+name, func(b *testing.B) {
			commits := 0
			for b.Loop() {
				b.StopTimer()
				c, hosts := benchHosts(b, size.hosts, size.total)
				reshard(b, hosts[0])
				h := c.addHost("X", "10.1.0.1")
				if _, err := h.join(c.file); err != nil {
					b.Fatal(err)
				}
				if err := hosts[0].look(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				commits = reshard(b, hosts[0])
			}
			b.ReportMetric(float64(commits), "commits")
		})
	}
}

// BenchmarkFire begins and completes all items of one host.
func BenchmarkFire(b *testing.B) {
	for _, items := range []int{1, 100, 1000, 10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(items), func(b *testing.B) {
			c, hosts := benchHosts(b, 1, items)
			h := hosts[0]
			c.settle()
			calls, fires := 0, 0
			h.plan = countCalls(&calls)
			for b.Loop() {
				c.now = c.now.Add(time.Second)
				if err := h.fire(c.now); err != nil {
					b.Fatal(err)
				}
				if err := h.complete(h.running(), "OK", ""); err != nil {
					b.Fatal(err)
				}
				fires++
			}
			b.ReportMetric(float64(calls)/float64(fires), "calls/fire")
		})
	}
}

// BenchmarkParseView reads a snapshot of a job with a hundred hosts, one
// after the other, as a host does: the configuration has not changed.
func BenchmarkParseView(b *testing.B) {
	for _, n := range []int{3, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			_, hosts := benchHosts(b, n, 10*n)
			h := hosts[0]
			if _, err := h.step(); err != nil {
				b.Fatal(err)
			}
			if err := h.look(); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				h.View = co.ParseView(h.snapshot, h.layout, h.Self, h.View)
			}
		})
	}
}

// BenchmarkReadShare: what a follower reads after a division that left it its
// items.
func BenchmarkReadShare(b *testing.B) {
	c, hosts := benchHosts(b, 10, 10_000)
	c.settle()
	h := hosts[1]
	known := make(map[int]co.ItemState)
	for i, it := range h.items {
		known[i] = it.state
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := h.perform(moves.ReadShare(&h.Member, known)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTakeover has the two others of three hosts take over, or one of them write down, what a host that has died
// had begun: all items. They do it call by call, in turn.
func BenchmarkTakeover(b *testing.B) {
	for _, failover := range []bool{true, false} {
		for _, items := range []int{10_000, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("failover=%v/%d", failover, items), func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					c := newCluster(b, inMemory(b))
					c.say = func(string, ...any) {}
					c.file.ShardingTotalCount, c.file.Failover = items, failover
					var hosts []*simHost
					for k := range 3 {
						h := c.addHost(string(rune('A'+k)), fmt.Sprintf("10.0.0.%d", k+1))
						if _, err := h.join(c.file); err != nil {
							b.Fatal(err)
						}
						if hosts = append(hosts, h); k == 0 { // it gets all of them
							c.settle()
							c.now = c.now.Add(time.Second)
							if err := h.fire(c.now); err != nil {
								b.Fatal(err)
							}
						}
					}
					c.settle()
					hosts[0].crash()
					for _, h := range hosts[1:] {
						if err := h.look(); err != nil {
							b.Fatal(err)
						}
					}
					for !failover && !hosts[1].View.IsJanitor() { // who writes down what is lost
						if _, err := hosts[1].step(); err != nil {
							b.Fatal(err)
						}
						if err := hosts[1].look(); err != nil {
							b.Fatal(err)
						}
					}
					b.StartTimer()
					if done := takeAll(b, hosts[1:], hosts[0].Self.ID, items); done != items {
						b.Fatalf("%d of %d items", done, items)
					}
				}
			})
		}
	}
}

// takeAll has hosts recover what is left of a dead one, call by call in turn, and returns how many items that were.
func takeAll(b *testing.B, hosts []*simHost, dead string, items int) (done int) {
	next, open := make([]int, len(hosts)), len(hosts)
	var slowest time.Duration
	for open > 0 {
		for k, h := range hosts {
			if next[k] < 0 {
				continue
			}
			var out co.Recovered
			at := time.Now()
			if err := h.perform(moves.Recover(&h.Member, co.Recovery{Dead: dead, Limit: items, From: next[k], Now: h.now}, &out)); err != nil {
				b.Fatal(err)
			}
			slowest = max(slowest, time.Since(at))
			done += len(out.Claimed) + len(out.Lost)
			if next[k] = out.Next; out.Next == 0 {
				next[k], open = -1, open-1
			}
		}
	}
	b.ReportMetric(float64(slowest.Milliseconds()), "ms/longest-call")
	return done
}
