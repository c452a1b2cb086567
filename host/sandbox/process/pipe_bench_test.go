package process

import (
	"sync"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// BenchmarkPipelined has two guests run items as a fire of many does.
func BenchmarkPipelined(b *testing.B) {
	m := moduleOf(b, workers(b, "good", plugin.Options{}, Options{}), "c/guest")
	x := executorOf(b, m, plugin.Settings{Type: wasm.TypeSimple})
	var all []abi.Worker
	for range 2 {
		w := worked(b, x)
		execute(b, w)
		all = append(all, w)
	}
	left := make(chan struct{}, b.N)
	for range b.N {
		left <- struct{}{}
	}
	close(left)
	b.ResetTimer()
	var wg sync.WaitGroup
	for _, w := range all {
		for range Depth {
			wg.Go(func() {
				for range left {
					if r := w.Execute(b.Context(), item(newRecorder(), "ok")); r.Outcome != abi.OutcomeOK && !r.NotBegun {
						b.Errorf("%+v", r)
					}
				}
			})
		}
	}
	wg.Wait()
}
