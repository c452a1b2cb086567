package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// BenchmarkItem and BenchmarkFire run an empty item here and in a worker process.
func BenchmarkItem(b *testing.B) {
	both(b, func(b *testing.B, x abi.Executor) {
		w := worked(b, x)
		execute(b, w)
		for b.Loop() {
			execute(b, w)
		}
	})
}

func BenchmarkFire(b *testing.B) {
	fire := func(b *testing.B, x abi.Executor) {
		w, err := x.NewWorker(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		execute(b, w)
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	}
	both(b, func(b *testing.B, x abi.Executor) {
		fire(b, x)
		for b.Loop() {
			fire(b, x)
		}
	})
	b.Run("a process for each", func(b *testing.B) {
		m := moduleOf(b, workers(b, "good", plugin.Options{}, Options{}), "c/guest")
		s := plugin.Settings{Type: wasm.TypeSimple}
		executorOf(b, m, s) // tries and compiles it
		for b.Loop() {
			x, err := m.Executor(b.Context(), s, "")
			if err != nil {
				b.Fatal(err)
			}
			fire(b, x)
			x.Release()
		}
	})
}

// BenchmarkCall measures a call of the host from a guest.
func BenchmarkCall(b *testing.B) {
	m := moduleOf(b, workers(b, "good", plugin.Options{}, Options{}), "c/guest")
	w := worked(b, executorOf(b, m, plugin.Settings{Type: wasm.TypeSimple}))
	execute(b, w)
	for b.Loop() {
		if r := w.Execute(b.Context(), item(newRecorder(), "flood:500")); r.Outcome != abi.OutcomeOK {
			b.Fatalf("%+v", r)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/500, "ns/call")
}

func both(b *testing.B, f func(*testing.B, abi.Executor)) {
	m := moduleOf(b, workers(b, "good", plugin.Options{}, Options{}), "c/guest")
	s := plugin.Settings{Type: wasm.TypeSimple}
	b.Run("in the host", func(b *testing.B) {
		x, err := m.m.Executor(s)
		if err != nil {
			b.Fatal(err)
		}
		defer x.Release()
		f(b, x)
	})
	b.Run("in a process", func(b *testing.B) { f(b, executorOf(b, m, s)) })
}

func execute(b *testing.B, w abi.Worker) {
	if r := w.Execute(b.Context(), item(newRecorder(), "ok")); r.Outcome != abi.OutcomeOK {
		b.Fatalf("%+v", r)
	}
}

// BenchmarkMemory reports what a process with so many guests has in memory. The program
// of the tests is smaller than the built one.
func BenchmarkMemory(b *testing.B) {
	for _, n := range []int{1, 16} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := moduleOf(b, workers(b, "good", plugin.Options{}, Options{}), "c/guest")
			x := executorOf(b, m, plugin.Settings{Type: wasm.TypeSimple})
			var pid int
			for b.Loop() {
				for range n {
					w := worked(b, x)
					execute(b, w)
					pid = w.(*worker).process.pid
				}
			}
			for _, field := range []string{"Rss", "Private_Dirty"} {
				text, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "smaps_rollup"))
				if err != nil {
					b.Skip(err)
				}
				_, rest, _ := strings.Cut(string(text), "\n"+field+":")
				var kb float64
				if _, err := fmt.Sscan(rest, &kb); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(kb/1024, field+"-MiB")
			}
		})
	}
}
