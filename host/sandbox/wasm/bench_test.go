package wasm

import (
	"testing"

	"github.com/tetratelabs/wazero"
)

// BenchmarkLoop is a turn of a loop that does nothing else, in a guest that can
// be interrupted: by wazero itself, and metered.
func BenchmarkLoop(b *testing.B) {
	const n = 1_000_000
	wasm := guest(b, "wat/instructions")
	out := metered(b, wasm)
	for _, c := range []struct {
		name   string
		wasm   []byte
		config wazero.RuntimeConfig
	}{
		{"bare", wasm, wazero.NewRuntimeConfig().WithCloseOnContextDone(true)},
		{"metered", out, wazero.NewRuntimeConfig()},
		{"endless", wasm, wazero.NewRuntimeConfig()}, // cannot be interrupted
	} {
		b.Run(c.name, func(b *testing.B) {
			p := start(b, c.config, c.wasm)
			p.fill = Quantum
			for b.Loop() {
				if _, err := p.call("loops", n); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/turn")
		})
	}
}

// BenchmarkScan is the part of a load that precedes the compiler.
func BenchmarkScan(b *testing.B) {
	wasm := goGuest(b, "goguest")
	b.SetBytes(int64(len(wasm)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := inspected(wasm); err != nil {
			b.Fatal(err)
		}
	}
}
