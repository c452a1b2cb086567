package bench_test

import (
	"fmt"
	"io"
	"net/http/httptest"
	"runtime"
	"testing"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/observe/metrics"
)

// BenchmarkIdleJobs is the memory of a job of 4 items that has joined and does not run: what 1,000 of them
// add to the heap and to the stacks of a host that has one already, after a garbage collection and a scrape. The host and
// the registry are in one process, so that the nodes of the job count, too. It is run with metrics of all jobs
// and with metrics of none.
func BenchmarkIdleJobs(b *testing.B) {
	asTheProgram(b)
	g := cGuest(b)
	for _, jobs := range []metrics.Jobs{metrics.AllJobs, metrics.NoJobs} {
		b.Run("metrics="+jobs.String(), func(b *testing.B) {
			for b.Loop() {
				idle(b, g, jobs)
			}
		})
	}
}

// idle measures once.
func idle(b *testing.B, g noop, byJob metrics.Jobs) {
	const jobs = 1000
	const yearly = "0 0 0 1 1 ?" // which no run of the benchmark waits for
	name := func(n int) string { return fmt.Sprintf("job%05d", n) }
	dir := b.TempDir()
	define(b, dir, name(0), g, yearly, itemsPerJob)

	var h *house
	m := metrics.New(metrics.Options{Jobs: byJob, Status: func() engine.Status { return h.host.Status() }})
	h = openKeeping(b, memory, dir, 1, m.Observe)
	before, _ := h.held(m)

	joined, ready := make(map[string]bool), make(chan struct{})
	h.watch(func(e event.Event) {
		h.went(e)
		if e.Kind == event.Assigned && !joined[e.Job] {
			if joined[e.Job] = true; len(joined) == jobs {
				close(ready)
			}
		}
	})
	for n := range jobs {
		put(b, dir, name(n+1)+".yaml", definition(name(n+1), g, yearly, itemsPerJob))
	}
	<-ready
	h.watch(h.went)
	after, scrape := h.held(m)

	each := func(bytes uint64) float64 { return float64(bytes) / jobs / (1 << 10) }
	heap, stacks := each(after.HeapAlloc-before.HeapAlloc), each(after.StackInuse-before.StackInuse)
	b.ReportMetric(heap+stacks, "KiB/job")
	b.ReportMetric(heap, "heap-KiB/job")
	b.ReportMetric(stacks, "stacks-KiB/job")
	b.ReportMetric(each(uint64(scrape)), "scrape-KiB/job")
	b.ReportMetric(0, "ns/op") // nothing is timed
}

// held is what the process holds when what is not used has been collected, after a scrape, and how long that is.
func (h *house) held(m *metrics.Metrics) (stats runtime.MemStats, scrape int) {
	h.b.Helper()
	w := httptest.NewRecorder()
	m.Handler(zap.NewNop()).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	text, err := io.ReadAll(w.Result().Body)
	if err != nil {
		h.b.Fatal(err)
	}
	runtime.GC()
	runtime.GC() // the first one has emptied the pools, and this one what was in them
	runtime.ReadMemStats(&stats)
	return stats, len(text)
}
