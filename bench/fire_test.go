package bench_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// BenchmarkFire is one fire of a job that does nothing, on one host. The
// time of an operation is from the call of Trigger until the fire has ended,
// all completions written; ms/fire is the fire alone, from the moment that the
// job's loop begins it. Every fire makes its guest instances anew.
func BenchmarkFire(b *testing.B) {
	asTheProgram(b)
	for _, guest := range []func(*testing.B) noop{goGuest, cGuest} {
		g := guest(b)
		b.Run(g.name, func(b *testing.B) {
			for _, items := range []int{1, 10, 100, 1000} {
				b.Run(fmt.Sprintf("items=%d", items), func(b *testing.B) {
					for _, registry := range []string{memory, durable} {
						b.Run("registry="+registry, func(b *testing.B) { fires(b, g, items, registry) })
					}
				})
			}
		})
	}
}

func fires(b *testing.B, g noop, items int, registry string, change ...func(*engine.Config)) {
	dir := b.TempDir()
	define(b, dir, "job", g, "", items)
	h := open(b, registry, dir, 1, change...)
	ended := make(chan event.Event, 1)
	completed := 0
	h.watch(func(e event.Event) {
		h.went(e)
		switch e.Kind {
		case event.ItemCompleted:
			completed++
		case event.FireEnded:
			if completed != items || e.Outcome != abi.OutcomeOK {
				b.Errorf("%d items of %d were completed, the outcome is %s", completed, items, e.Outcome)
			}
			completed = 0
			ended <- e
		}
	})
	operator, err := h.server.Connect(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	fire := func() event.Event {
		if err := operate.TriggerJob(b.Context(), operator, tree.NewLayout("bench", "job")); err != nil {
			b.Fatal(err)
		}
		timer := time.NewTimer(time.Minute)
		defer timer.Stop()
		select {
		case e := <-ended:
			return e
		case <-timer.C:
			b.Fatal("the fire has not ended")
			return event.Event{}
		}
	}
	fire() // the first one makes the nodes of all items
	var sum time.Duration
	n := 0
	before := cpuTime()
	b.ReportAllocs()
	for b.Loop() {
		sum += fire().Duration
		n++
	}
	b.ReportMetric(milliseconds(sum)/float64(n), "ms/fire")
	b.ReportMetric(milliseconds(sum)*1000/float64(n)/float64(items), "µs/item")
	b.ReportMetric(milliseconds(cpuTime()-before)/float64(n), "cpu-ms/fire")
	h.watch(nil)
}
