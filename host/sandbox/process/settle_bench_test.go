package process

import (
	"fmt"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
)

// BenchmarkSettle decides what of 10,000 jobs is in memory.
func BenchmarkSettle(b *testing.B) {
	w := workers(b, "good", plugin.Options{}, Options{})
	m := moduleOf(b, w, "c/guest")
	for n := range 10_000 {
		jobOf(b, m, fmt.Sprint("job", n)).Expect(time.Now().Add(time.Hour))
	}
	for b.Loop() {
		w.settle(time.Now())
	}
}
