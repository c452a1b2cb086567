package cluster_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// The benchmarks need a server with more memory than the tests', and one that
// writes to the disk before it answers.
func server(b *testing.B) *zkserver.Ensemble {
	b.Helper()
	return zkserver.ForTest(b, zkserver.Options{Measured: true, JavaArgs: []string{"-Xmx2g"}})
}

// longTimeout is that of sessions which a busy machine shall not end.
const longTimeout = 60 * time.Second

// BenchmarkItems is one job of 10,000 items: from the start of three hosts
// until each knows its share, a fire, and a fourth host.
func BenchmarkItems(b *testing.B) {
	const name, items = "many", 10_000
	for b.Loop() {
		e := server(b)
		c := newCluster(b, e.Connect(), "items", longTimeout)
		c.patience = longPatience
		ended := make(map[*node]int)
		see := func(n *node, ev event.Event) {
			if ev.Kind == event.FireEnded {
				ended[n]++
			}
		}
		j := job(name, "", items, true, noop)
		j.Definition.Props["wasm.maxConcurrency"] = "16"
		step := func(what string, do, until func()) {
			from, begun := c.marks(), time.Now()
			do()
			until()
			took := time.Since(begun)
			b.ReportMetric(took.Seconds(), what+"-s")
			commits, nodes := 0, 0
			for _, n := range c.hosts {
				f, to := from[n], n.meter.mark()
				commits += to.wire["multi"] - f.wire["multi"]
				nodes += reads(to.wire) - reads(f.wire)
			}
			b.ReportMetric(float64(commits), what+"-multis")
			b.ReportMetric(float64(nodes), what+"-reads")
		}
		step("start", func() {
			for range 3 {
				c.start(see, j)
			}
		}, func() { c.divided(name, items, c.hosts...) })
		c.quiet(2 * rest)
		for i, fire := range []string{"first-fire", "fire"} {
			step(fire, func() {
				if err := c.hosts[0].trigger(b.Context(), name); err != nil {
					b.Fatal(err)
				}
			}, func() {
				c.await("all hosts have fired", func() bool {
					return ended[c.hosts[0]] > i && ended[c.hosts[1]] > i && ended[c.hosts[2]] > i
				})
			})
			c.quiet(rest)
		}
		step("one-host-more", func() { c.start(see, j) }, func() { c.divided(name, items, c.hosts...) })
		c.quiet(2 * rest)
		c.end()
		b.ReportMetric(0, "ns/op")
	}
}

// BenchmarkJobs is the start of three hosts with jobs of three items, and what
// they hold when all is done.
func BenchmarkJobs(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprintf("jobs=%d", n), func(b *testing.B) { jobs(b, n) })
	}
}

func jobs(b *testing.B, jobs int) {
	const hosts = 3
	for b.Loop() {
		e := server(b)
		var all []engine.Job
		for i := range jobs {
			all = append(all, job(fmt.Sprintf("job%04d", i), "0 0 0 1 1 ? *", hosts, true, noop))
		}
		c := newCluster(b, e.Connect(), "jobs", longTimeout)
		c.patience = longPatience
		goroutines, heap := resources()
		begun := time.Now()
		for range hosts {
			c.start(nil, all...)
		}
		for _, j := range all {
			c.divided(j.Definition.JobName, hosts, c.hosts...)
		}
		b.ReportMetric(time.Since(begun).Seconds(), "start-s")
		c.quiet(2 * rest)
		b.ReportMetric(time.Since(begun).Seconds()-(2*rest).Seconds(), "quiet-s")
		var multis, nodes int
		for _, n := range c.hosts {
			m := n.meter.mark()
			multis += m.wire["multi"]
			nodes += reads(m.wire)
		}
		b.ReportMetric(float64(multis)/float64(hosts*jobs), "multis/host/job")
		b.ReportMetric(float64(nodes)/float64(hosts*jobs), "reads/host/job")
		b.ReportMetric(float64(watches(b, e))/float64(hosts*jobs), "watches/host/job")
		g, h := resources()
		b.ReportMetric(float64(g-goroutines)/hosts, "goroutines/host")
		b.ReportMetric(float64(h-heap)/hosts/(1<<20), "heap-MB/host")

		from, idle := c.marks(), 20*time.Second
		time.Sleep(idle)
		other := 0
		for _, n := range c.hosts {
			for op, count := range requests(from[n], n.meter.mark()) {
				if !signsOfLife[op] {
					other += count
				}
			}
		}
		b.ReportMetric(float64(other), "idle-requests")
		begun = time.Now()
		for _, n := range c.hosts {
			n.stop()
		}
		for _, n := range c.hosts {
			n.wait()
		}
		b.ReportMetric(time.Since(begun).Seconds(), "stop-s")
		c.hosts = nil
		b.ReportMetric(0, "ns/op")
	}
}

// BenchmarkStorm is the start of very many hosts at once, and what they do after
// the server was gone for longer than their sessions last.
func BenchmarkStorm(b *testing.B) {
	for _, size := range []struct{ hosts, jobs int }{{50, 20}, {200, 5}} {
		b.Run(fmt.Sprintf("hosts=%d/jobs=%d", size.hosts, size.jobs), func(b *testing.B) {
			for b.Loop() {
				storm(b, size.hosts, size.jobs)
			}
		})
	}
}

func storm(b *testing.B, hosts, jobs int) {
	const timeout = 30 * time.Second
	e := server(b)
	var all []engine.Job
	for i := range jobs {
		all = append(all, job(fmt.Sprintf("job%04d", i), "0 0 0 1 1 ? *", 2*hosts, true, noop))
	}
	c := newCluster(b, e.Connect(), "storm", timeout)
	c.patience = longPatience
	report := func(phase string, from map[*node]mark, begun time.Time) {
		for _, j := range all {
			c.divided(j.Definition.JobName, 2*hosts, c.hosts...)
		}
		b.ReportMetric(time.Since(begun).Seconds(), phase+"-s")
		c.quiet(2 * rest)
		commits, refused, nodes := 0, 0, 0
		purposes := make(map[string]int)
		for _, n := range c.hosts {
			to := n.meter.mark()
			for _, call := range n.meter.between(from[n], to, "") {
				switch call.kind {
				case commitCall:
					commits++
				case conflictCall:
					commits++
					refused++
				default:
					continue
				}
				purposes[call.purpose()+" "+string(call.kind)]++
				if call.purpose() == "other" {
					purposes[fmt.Sprintf("other: %.100s", call.what)]++
				}
			}
			nodes += reads(to.wire) - reads(from[n].wire)
		}
		for _, what := range slices.SortedFunc(maps.Keys(purposes), func(x, y string) int { return purposes[y] - purposes[x] })[:min(12, len(purposes))] {
			fmt.Fprintf(os.Stderr, "%s: %6d %.200s\n", phase, purposes[what], what)
		}
		each := float64(hosts * jobs)
		b.ReportMetric(float64(commits)/each, phase+"-commits/host/job")
		b.ReportMetric(float64(refused)/each, phase+"-refused/host/job")
		b.ReportMetric(float64(nodes)/each, phase+"-reads/host/job")
	}
	begun := time.Now()
	for range hosts {
		c.start(nil, all...)
	}
	report("start", make(map[*node]mark), begun)

	c.mu.Lock()
	c.outage = true
	c.mu.Unlock()
	from := c.marks()
	if err := e.Stop(0); err != nil {
		b.Fatal(err)
	}
	c.await("all sessions are lost", func() bool { return !slices.ContainsFunc(c.hosts, func(n *node) bool { return !n.lost }) })
	begun = time.Now()
	if err := e.Restart(0); err != nil {
		b.Fatal(err)
	}
	report("outage", from, begun)
	c.end()
	c.hosts = nil
	b.ReportMetric(0, "ns/op")
}

// resources are the goroutines and the live heap of the process.
func resources() (goroutines int, heap uint64) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), m.HeapAlloc
}

// peer is a host without jobs to run: a session, and a membership of the job.
type peer struct {
	b       *testing.B
	session *zookeeper.Session
	meter   *meter
	member  coordination.Member
}

func (p *peer) perform(step func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), longPatience)
	defer cancel()
	if err := step(ctx); err != nil {
		p.b.Errorf("%s: %v", p.member.Self.ID, err)
	}
}

// look reads the control nodes. What a host watches is watched besides.
func (p *peer) look() {
	control := coordination.Control(p.member.Layout, p.member.Self)
	nodes, err := p.session.Read(context.Background(), control...)
	if err != nil {
		p.b.Errorf("%s: %v", p.member.Self.ID, err)
		return
	}
	s := make(registry.Snapshot)
	for i, q := range control {
		s[q] = nodes[i]
	}
	p.member.Observe(s)
}

func (p *peer) readShare() {
	p.look()
	p.perform(func(ctx context.Context) error {
		share := p.member.Share.Items
		_, _, err := p.member.ReadShare(ctx, func(item int) (s coordination.ItemState, known bool) { return s, share.Contains(item) })
		return err
	})
}

// BenchmarkSessions is 100 hosts with a session each and one job of very many
// items: its first division and the one after a 101st host has come. The other
// hosts are only told, and read their shares all at once.
func BenchmarkSessions(b *testing.B) {
	const hosts = 100
	for _, items := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("items=%d", items), func(b *testing.B) {
			for b.Loop() {
				sessions(b, hosts, items)
			}
		})
	}
}

func sessions(b *testing.B, hosts, items int) {
	e := server(b)
	definition := job("huge", "", items, true, noop).Definition
	var peers []*peer
	defer func() {
		each(peers, func(p *peer) {
			if err := p.session.Close(); err != nil {
				b.Error(err)
			}
		})
	}()
	watching, stop := context.WithCancel(context.Background())
	defer stop()
	var mu sync.Mutex
	join := func(n int) {
		m := newMeter()
		s, err := zookeeper.Dial(b.Context(), zookeeper.Options{Connect: e.Connect(), SessionTimeout: longTimeout, OnOperation: m.sent})
		if err != nil {
			b.Error(err)
			return
		}
		p := &peer{b: b, session: s, meter: m, member: coordination.Member{Layout: tree.NewLayout("sessions", "huge"),
			Self: tree.NewJobInstance(fmt.Sprintf("10.0.0.%d", n), fmt.Sprint(1000+n)), Registry: counted{s, m}}}
		mu.Lock()
		peers = append(peers, p)
		mu.Unlock()
		p.perform(func(ctx context.Context) error {
			return p.member.Join(ctx, coordination.Joining{Definition: definition, Detail: tree.HostDetail{State: tree.DetailReady}})
		})
		if _, err := s.Watch(watching, coordination.Control(p.member.Layout, p.member.Self)...); err != nil {
			b.Error(err)
		}
	}
	timed := func(what string, do func()) {
		begun := time.Now()
		do()
		b.ReportMetric(time.Since(begun).Seconds(), what+"-s")
	}
	timed("join", func() {
		for n := range hosts {
			join(n + 1)
		}
	})
	if b.Failed() {
		return
	}
	leader := peers[0]
	leader.look()
	leader.perform(leader.member.Elect)
	divide := func(what string) {
		leader.look()
		var out coordination.Sharded
		from := leader.meter.mark()
		timed(what, func() {
			leader.perform(func(ctx context.Context) (err error) {
				out, err = leader.member.Reshard(ctx, time.Now())
				return err
			})
		})
		sent := requests(from, leader.meter.mark())
		b.ReportMetric(float64(out.Commits), what+"-commits")
		b.ReportMetric(float64(sent["multi"]), what+"-multis")
		b.ReportMetric(float64(reads(sent)), what+"-reads")
		if len(out.Items) != items {
			b.Errorf("%s: %d items of %d were divided", what, len(out.Items), items)
		}
		before := 0
		for _, p := range peers {
			before += reads(p.meter.mark().wire)
		}
		timed(what+"-shares", func() { each(peers, (*peer).readShare) })
		owned := 0
		for _, p := range peers {
			owned += len(p.member.Share.Items)
			before -= reads(p.meter.mark().wire)
		}
		b.ReportMetric(float64(-before)/float64(len(peers)), what+"-shares-reads/host")
		if owned != items {
			b.Errorf("%s: the shares have %d items of %d", what, owned, items)
		}
	}
	divide("first")
	b.ReportMetric(float64(watches(b, e))/float64(hosts), "watches/host")
	join(hosts + 1)
	divide("one-more")
	b.ReportMetric(0, "ns/op")
}

// each does something with all at once.
func each[T any](list []T, do func(T)) {
	var wg sync.WaitGroup
	for _, v := range list {
		wg.Go(func() { do(v) })
	}
	wg.Wait()
}
