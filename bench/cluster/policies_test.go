package cluster_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

var (
	links     = flag.Int("chain.links", 1000, "how many jobs BenchmarkChain has, each after the one before")
	traced    = flag.Bool("chain.trace", false, "whether BenchmarkChain logs what was asked for each link that began late")
	keys      = flag.Int("limit.keys", 100, "under how many keys items of BenchmarkLimit wait")
	keysItems = flag.Int("limit.items", 1000, "how many items of BenchmarkLimit wait under each key")
)

// BenchmarkChain is jobs of three items on three hosts, each after the one before, which a trigger of the first sets
// off: how long after the end of its cause a fire begins. With deaths a host dies every 10 seconds, in the way of
// kill -9 but that its session ends at once, and another one comes; the chain is set off until three have died.
func BenchmarkChain(b *testing.B) {
	for _, deaths := range []int{0, 3} {
		b.Run(fmt.Sprintf("deaths=%d", deaths), func(b *testing.B) {
			for b.Loop() {
				chained(b, *links, deaths)
			}
		})
	}
}

// hop is a fire of one job of the chain.
type hop struct {
	first, last time.Time // when its first item began, and its last item was completed
	begun       map[int]int
	done        map[int]bool
}

func chained(b *testing.B, links, deaths int) {
	const items = 3
	e := server(b)
	c := newCluster(b, e.Connect(), "chain", longTimeout)
	c.patience = longPatience
	var all []engine.Job
	name := func(i int) string { return fmt.Sprintf("link%05d", i) }
	number := make(map[string]int)
	for i := range links {
		j := job(name(i), "", items, true, noop)
		if i > 0 {
			j.Definition.Props["wasm.after"] = fmt.Sprintf(`[{"job":%q,"on":"always"}]`, name(i-1))
		}
		number[name(i)] = i
		all = append(all, j)
	}
	rounds := make([][]hop, 0, 64) // guarded by c.mu, as events come with it held
	round := make(map[string]map[int64]int)
	ready := make(map[int][]event.Event) // elections and divisions by link
	see := func(_ *node, ev event.Event) {
		i, ours := number[ev.Job]
		if ours && (ev.Kind == event.Elected || ev.Kind == event.Sharded) && len(rounds) > 0 {
			ready[i] = append(ready[i], ev)
		}
		if !ours || ev.Item == nil || (ev.Kind != event.ItemStarted && ev.Kind != event.ItemCompleted) || len(rounds) == 0 {
			return
		}
		// The rounds of a job come one after another.
		if round[ev.Job] == nil {
			round[ev.Job] = make(map[int64]int)
		}
		at, known := round[ev.Job][ev.Trigger]
		if !known {
			at = len(round[ev.Job])
			round[ev.Job][ev.Trigger] = at
		}
		if at >= len(rounds) {
			b.Errorf("%s has %d fires, of %d", ev.Job, at+1, len(rounds))
			return
		}
		h := &rounds[at][i]
		switch ev.Kind {
		case event.ItemStarted:
			if ev.Attempt <= 1 {
				h.begun[*ev.Item]++
			}
			if h.first.IsZero() {
				h.first = ev.Time
			}
		case event.ItemCompleted:
			h.done[*ev.Item] = true
			if ev.Time.After(h.last) {
				h.last = ev.Time
			}
		}
	}
	for range 3 {
		c.start(see, all...)
	}
	living := slices.Clone(c.hosts)
	for _, j := range all {
		c.divided(j.Definition.JobName, items, living...)
	}
	c.quiet(rest)
	begun, died := time.Now(), 0
	var killed []time.Time
	for r := 0; r == 0 || died < deaths; r++ {
		c.mu.Lock()
		hops := make([]hop, links)
		for i := range hops {
			hops[i] = hop{begun: make(map[int]int), done: make(map[int]bool)}
		}
		rounds = append(rounds, hops)
		c.mu.Unlock()
		if err := living[len(living)-1].trigger(b.Context(), name(0)); err != nil {
			b.Fatal(err)
		}
		for over := false; !over; {
			due := died < deaths && time.Since(begun) >= time.Duration(died+1)*10*time.Second
			if due {
				died++
				killed = append(killed, time.Now())
				living[0].crash()
				living = append(living[1:], c.start(see, all...))
			}
			next := time.Now().Add(time.Hour)
			if died < deaths {
				next = begun.Add(time.Duration(died+1) * 10 * time.Second)
			}
			wake := time.AfterFunc(time.Until(next), func() { c.mu.Lock(); defer c.mu.Unlock(); c.news() })
			c.await("the chain has ended, or a host is to die", func() bool {
				over = len(hops[links-1].done) == items
				return over || !time.Now().Before(next)
			})
			wake.Stop()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var lags []time.Duration
	twice, taken := 0, 0
	for _, hops := range rounds {
		for i := range hops {
			for _, n := range hops[i].begun {
				if n > 1 { // a run that its host's death ended, begun again
					taken++
				}
			}
			if i == 0 {
				continue
			}
			if lag := hops[i].first.Sub(hops[i-1].last); lag < 0 {
				b.Errorf("%s began %s before the fire ended that it comes after", name(i), -lag)
			} else {
				lags = append(lags, lag)
			}
		}
	}
	for job, of := range round {
		if len(of) > len(rounds) {
			twice++
			b.Errorf("%s ran %d times, of %d", job, len(of), len(rounds))
		}
	}
	var late strings.Builder
	for r, hops := range rounds {
		for i := 1; i < len(hops); i++ {
			h, cause := hops[i], hops[i-1].last
			if h.first.Sub(cause) <= 100*time.Millisecond && h.last.Sub(h.first) <= 100*time.Millisecond {
				continue
			}
			died := begun
			for _, at := range killed {
				if at.Before(h.last) {
					died = at
				}
			}
			fmt.Fprintf(&late, "\nround %d %s, after the death: cause ended %.3f, began %.3f, ended %.3f:", r, name(i), cause.Sub(died).Seconds(), h.first.Sub(died).Seconds(), h.last.Sub(died).Seconds())
			for _, e := range ready[i] {
				if e.Time.After(died) && e.Time.Before(h.last) {
					fmt.Fprintf(&late, " %s %s %.3f,", e.Kind, e.Host[:8], e.Time.Sub(died).Seconds())
				}
			}
			for _, n := range c.hosts {
				for _, call := range n.meter.calls {
					if call.job == name(i) && call.at.After(died) && call.at.Before(h.last.Add(time.Millisecond)) {
						fmt.Fprintf(&late, "\n  %.3f %s %s", call.at.Sub(died).Seconds(), n.name, call)
					}
				}
			}
		}
	}
	if *traced { // a benchmark's own log is cut short
		fmt.Fprintf(os.Stderr, "links that began or ended late, in seconds after the last death:%s\n", late.String())
	}
	slices.Sort(lags)
	inTime, _ := slices.BinarySearch(lags, 100*time.Millisecond)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(lags[len(lags)/2]), "start-p50-ms")
	b.ReportMetric(ms(lags[len(lags)*99/100]), "start-p99-ms")
	b.ReportMetric(ms(lags[len(lags)-1]), "start-max-ms")
	b.ReportMetric(float64(len(lags)), "links")
	b.ReportMetric(float64(len(lags)-inTime), "over-100-ms")
	b.ReportMetric(float64(taken), "begun-again")
	b.ReportMetric(float64(twice), "twice")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkLimit is jobs whose items wait under a concurrency key of the job's own, all set off at once: how much longer
// than fair the key waits that waits longest, and what a fire under a key costs beside one without.
func BenchmarkLimit(b *testing.B) {
	for b.Loop() {
		limited(b, *keys, *keysItems)
	}
}

func limited(b *testing.B, keys, items int) {
	e := server(b)
	c := newCluster(b, e.Connect(), "limit", longTimeout)
	c.patience = longPatience
	var all []engine.Job
	name := func(i int) string { return fmt.Sprintf("key%03d", i) }
	number := make(map[string]int)
	takes := module(func(ctx context.Context, _ *abi.Invocation) abi.Result {
		timer := time.NewTimer(5 * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return abi.Result{Outcome: abi.OutcomeCancelled}
		}
		return ok
	})
	for i := range keys {
		j := job(name(i), "", items, true, takes)
		j.Definition.Props["wasm.concurrency.key"], j.Definition.Props["wasm.concurrency.max"] = name(i), "2"
		number[name(i)] = i
		all = append(all, j)
	}
	done := make([][]time.Time, keys)
	see := func(_ *node, ev event.Event) {
		if i, ours := number[ev.Job]; ours && ev.Kind == event.ItemCompleted {
			done[i] = append(done[i], ev.Time)
		}
	}
	hosts := []*node{c.start(see, all...), c.start(see, all...), c.start(see, all...)}
	for _, j := range all {
		c.divided(j.Definition.JobName, items, hosts...)
	}
	c.quiet(rest)
	begun := time.Now()
	for i := range keys {
		if err := hosts[i%len(hosts)].trigger(b.Context(), name(i)); err != nil {
			b.Fatal(err)
		}
	}
	c.await("all items have run", func() bool {
		return !slices.ContainsFunc(done, func(d []time.Time) bool { return len(d) < items })
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	// A key's wait is that of its items, on the average; with fair shares all keys wait alike.
	waits := make([]time.Duration, keys)
	var sum time.Duration
	for i, times := range done {
		for _, t := range times {
			waits[i] += t.Sub(begun) / time.Duration(items)
		}
		sum += waits[i]
	}
	slices.SortFunc(waits, cmp.Compare)
	mean := sum / time.Duration(keys)
	b.ReportMetric(mean.Seconds(), "wait-s")
	b.ReportMetric(float64(waits[keys-1])/float64(mean), "longest-wait/fair")
	b.ReportMetric(float64(keys*items)/time.Since(begun).Seconds(), "items/s")
	b.ReportMetric(0, "ns/op")
}
