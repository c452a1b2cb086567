package bench_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/event"
)

// debounce is how long the catalog waits for a directory to be quiet.
const debounce = 200 * time.Millisecond

// BenchmarkReplaceModule replaces a job's Go module while it fires every
// second, so that the new one is loaded just when a fire is due, and a
// little before and after. 50 other jobs fire at the same instants. The lag is
// from the scheduled instant until the first guest starts: of the job itself,
// and of the others. ready is from the rename until the job has the
// new module; it includes the 200 ms for which the directory has to be quiet.
//
// kept goes back to a version that the host still holds; cached to one whose
// code is in the cache directory only; cold brings code that was never seen.
// One operation is one second.
func BenchmarkReplaceModule(b *testing.B) {
	g := goGuest(b)
	b.Logf("the module has %d bytes", len(g.wasm))
	for _, c := range []struct {
		name     string
		versions int // that take turns; 0: a new one each time
		lead     time.Duration
		every    int // seconds
	}{
		{"none", 1, 0, 1},
		{"kept", 2, 0, 1},
		{"cached", 6, 50 * time.Millisecond, 1},
		{"cold", 0, 250 * time.Millisecond, 3},
	} {
		b.Run(c.name, func(b *testing.B) { replace(b, g, c.versions, c.lead, c.every) })
	}
}

func replace(b *testing.B, g noop, versions int, lead time.Duration, every int) {
	const others = 50
	dir := b.TempDir()
	c := cGuest(b)
	put(b, dir, "c.wasm", c.wasm)
	for i := range others {
		put(b, dir, fmt.Sprintf("other%d.yaml", i), definition(fmt.Sprintf("other%d", i), c, everySecond, itemsPerJob))
	}
	define(b, dir, "job", g, everySecond, itemsPerJob)
	h := open(b, memory, dir, others+1)

	var editions [][]byte
	for range max(versions, 1) {
		editions = append(editions, edition(b, g.wasm))
	}
	changed := make(chan time.Time, 1)
	awaitChange := func() time.Time {
		timer := time.NewTimer(time.Minute)
		defer timer.Stop()
		select {
		case at := <-changed:
			return at
		case <-timer.C:
			b.Fatal("the module was not replaced")
			return time.Time{}
		}
	}
	var own, other, ready spread
	type instant struct {
		job string
		at  time.Time
	}
	count := false
	started := make(map[instant]bool)
	fired := make(map[string]int)
	h.watch(func(e event.Event) {
		h.went(e)
		switch e.Kind {
		case event.JobChanged:
			changed <- e.Time
		case event.ItemStarted:
			if i := (instant{e.Job, e.Instant}); count && !started[i] {
				started[i] = true
				fired[e.Job]++
				if lag := e.Time.Sub(e.Instant); e.Job == "job" {
					own = append(own, lag)
				} else {
					other = append(other, lag)
				}
			}
		}
	})
	for _, wasm := range editions { // each is compiled once
		put(b, dir, "go.wasm", wasm)
		awaitChange()
	}
	sleepUntil(time.Now().Truncate(time.Second).Add(1500 * time.Millisecond))
	h.mu.Lock()
	count = true
	h.mu.Unlock()
	seconds := 0
	before := cpuTime()
	began := time.Now()
	for n := 0; b.Loop(); n++ {
		next := time.Now().Truncate(time.Second).Add(time.Second)
		if versions != 1 && n%every == 0 {
			// The catalog is at work from here on: over the instant, mostly.
			at := next.Add(-debounce - lead + time.Duration(rand.Int64N(int64(100*time.Millisecond))) - 50*time.Millisecond)
			wasm := []byte(nil)
			if versions == 0 {
				wasm = edition(b, g.wasm)
			} else {
				wasm = editions[n/every%versions]
			}
			sleepUntil(at)
			renamed := time.Now()
			put(b, dir, "go.wasm", wasm)
			ready = append(ready, awaitChange().Sub(renamed))
		}
		sleepUntil(next.Add(500 * time.Millisecond))
		seconds++
	}
	elapsed := time.Since(began)
	spent := cpuTime() - before
	h.watch(nil)
	if n := fired["job"]; n < seconds {
		b.Errorf("%d fires in %d seconds", n, seconds)
	}
	own.report(b, "own")
	other.report(b, "others")
	if len(ready) > 0 {
		b.ReportMetric(milliseconds(ready.at(0.5)), "ready-p50-ms")
		b.ReportMetric(milliseconds(ready.at(1)), "ready-max-ms")
	}
	b.ReportMetric(spent.Seconds()/elapsed.Seconds(), "cpu-s/s")
	b.ReportMetric(0, "ns/op")
}
