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
