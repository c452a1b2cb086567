package program

import (
	"runtime"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"sync"
	"sync/atomic"
)

// collector has the garbage collector run the more often the larger the heap is: guests come and
// go beside a small one, which may grow to five times what is live; of thousands of jobs, many
// items or large modules nothing is gained by four times their size in garbage.
type collector struct{ modules atomic.Int64 } // bytes

// gcPercent returns GOGC for so many bytes of live heap.
func gcPercent(live int64) int {
	const small = 64 << 20
	return 100 + int(300*small/(small+live))
}

// paceCollector returns nil if the environment sets GOGC.
func paceCollector(p *program) *collector {
	if p.Getenv("GOGC") != "" {
		return nil
	}
	return &collector{}
}

// changed returns a func that counts the modules on the heap, which the last collection may not have seen.
func (c *collector) changed() func(modules int64) {
	if c == nil {
		return nil
	}
	return func(modules int64) {
		c.modules.Store(modules)
		c.pace()
	}
}

func (c *collector) pace() {
	sample := []runtimemetrics.Sample{{Name: "/gc/heap/live:bytes"}}
	runtimemetrics.Read(sample)
	live := c.modules.Load()
	if sample[0].Value.Kind() == runtimemetrics.KindUint64 {
		live = max(live, int64(sample[0].Value.Uint64()))
	}
	debug.SetGCPercent(gcPercent(live))
}

// run paces the collector until the returned end is called.
func (c *collector) run() (end func()) {
	if c == nil {
		return func() {}
	}
	before := debug.SetGCPercent(gcPercent(0))
	stop := afterCollections(c.pace)
	return func() {
		stop()
		debug.SetGCPercent(before)
	}
}

// afterCollections calls f after each collection, one call after the other, until stop is called,
// which waits for a call that has begun.
func afterCollections(f func()) (stop func()) {
	var mu sync.Mutex
	stopped := false
	var wait func(struct{})
	wait = func(struct{}) {
		mu.Lock()
		defer mu.Unlock()
		if stopped {
			return
		}
		runtime.AddCleanup(new([64]byte), wait, struct{}{}) // of what nothing refers to
		f()
	}
	wait(struct{}{})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
	}
}
