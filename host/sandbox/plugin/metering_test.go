package plugin

import (
	"context"
	"encoding/base64"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
	"github.com/wasmjob/wasmjob/test/hostile"
)

// A guest that only fills memory ends soon after its time.
func TestMeterEndsFills(t *testing.T) {
	t.Parallel()
	p := metered(t, guest(t, "wat/instructions"))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	rt := wazero.NewRuntime(ctx)
	defer rt.Close(context.Background())
	if err := register(ctx, rt, map[string][]string{abi.Module: nil}); err != nil {
		t.Fatal(err)
	}
	if err := registerMeter(ctx, rt); err != nil {
		t.Fatal(err)
	}
	in := &instance{ctx: context.Background(), inv: &abi.Invocation{}, account: unlimited(), stack: nativeStack(nil)}
	c := &callContext{ctx, in}
	mod, err := rt.Instantiate(c, p)
	if err != nil {
		t.Fatal(err)
	}
	in.ctx = ctx
	_, err = mod.ExportedFunction("fills").Call(c, 1<<32-1, 3*wasm.PageSize)
	if f, ok := errors.AsType[*fault](err); !ok || !f.ended {
		t.Errorf("the call ended with %v", err)
	}
}

// A guest that calls itself and calls itself again ends with its time, wherever
// it does so, and the worker is as good as before.
func TestEndlessCalls(t *testing.T) {
	t.Parallel()
	bothEngines(t, func(t *testing.T, r *Runtime) {
		w := newWorker(t, load(t, r, nasty(hostile.Twice())), Settings{})
		for range 2 {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
			got := w.Execute(ctx, item(newRecorder(), ""))
			cancel()
			if got.Outcome != abi.OutcomeTimeout || !errors.Is(got.Err, context.DeadlineExceeded) {
				t.Fatalf("got %+v", got)
			}
		}
	})
}

// A module whose loop was hidden behind bytes that wazero reads in another way
// is refused, whoever looks at it.
func TestHiddenLoopIsRefused(t *testing.T) {
	t.Parallel()
	file, err := base64.StdEncoding.DecodeString("AGFzbQEAAAABCAJgAABgAAF/AwMCAAEFBAEBQEAHJQMGbWVtb3J5AgAKam9iX2FiaV92MQAAC2pvYl9leGVjdXRlAAEKNgICAAsxAAJAQQENAP0MAAAAAAAAAAAAAAAAAAAAAEEA/YwACwNADAALAQEBAQEBAQEBAUEACw==")
	if err != nil {
		t.Fatal(err)
	}
	const want = "function 1: at byte 102: instruction 0xfd 12 is not of WebAssembly 2.0, or not in its shortest form"
	if problems := wasm.Inspect(file).Problems; len(problems) != 1 || !strings.Contains(problems[0], want) {
		t.Errorf("inspected: %q, expected %q", problems, want)
	}
	if _, err := newRuntime(t, Options{}).Load(context.Background(), "x", file, time.Time{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("loaded: %v, expected %q", err, want)
	}
}

// stopped runs a job_execute that does not end, and requires that it ends with
// its time. What is not paid for takes seconds each time; a machine that has more to do is
// that slow once.
func stopped(t *testing.T, wasm []byte) {
	t.Helper()
	bothEngines(t, func(t *testing.T, r *Runtime) {
		guest := load(t, r, wasm)
		const limit = 100 * time.Millisecond
		var after []time.Duration
		for range 3 {
			w := newWorker(t, guest, Settings{})
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			began := time.Now()
			got := w.Execute(ctx, item(newRecorder(), ""))
			if got.Outcome != abi.OutcomeTimeout || !errors.Is(got.Err, context.DeadlineExceeded) {
				t.Errorf("got %+v", got)
			}
			after = append(after, time.Since(began)-limit)
			if after[len(after)-1] < time.Second {
				return
			}
		}
		t.Errorf("it was stopped %s after its limit", after)
	})
}

// Each of these did more between two looks at the clock than it paid for.
func TestCheapThingsArePaidFor(t *testing.T) {
	t.Parallel()
	call := func(f byte) []byte { return []byte{0x41, 0, 0x10, f} }
	fill := []byte{0x41, 0, 0x41, 0, 0x41, 0xff, 0xff, 3, 0xfc, 11, 0} // 65,535 bytes
	nest := func(leaf []byte) [][]byte {
		return [][]byte{
			body(times(300, call(3)...)), body(times(300, call(4)...)), body(times(300, call(5)...)),
			body(times(300, call(6)...)), body(times(300, call(7)...)), body(leaf),
		}
	}
	clears := func(code []byte) []byte { return append(append([]byte{1, 0x80, 0x80, 3, 0x7e}, code...), 0x0b) } // 49,152 locals
	for name, bodies := range map[string][][]byte{
		"leaf functions":             nest(times(80, 0x01)),
		"leaf functions that fill":   nest(bytesJoin(fill, fill, fill)),
		"leaf functions that divide": nest(times(25, 0x41, 1, 0x41, 1, 0x6d, 0x1a)),
		"locals that are cleared":    {clears(times(3000, call(3)...)), clears(times(3000, call(4)...)), clears(times(3000, call(5)...)), clears(nil)},
		"large fills":                {body([]byte{0x03, 0x40}, times(300, 0x41, 0, 0x41, 0, 0x41, 0x80, 0x80, 0x80, 2, 0xfc, 11, 0), []byte{0x0c, 0, 0x0b})},
		"memory.grow":                {body([]byte{0x03, 0x40}, times(300, 0x41, 0, 0x40, 0, 0x1a), []byte{0x0c, 0, 0x0b})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stopped(t, nasty(bodies...))
		})
	}
}

func bytesJoin(parts ...[]byte) []byte {
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// WASI that is called by way of a table is asked for like any other.
func TestWASIThroughTableEnds(t *testing.T) {
	t.Parallel()
	wasm := []byte("\x00asm\x01\x00\x00\x00")
	wasm = appendSection(wasm, 1, []byte{3, 0x60, 2, 0x7f, 0x7f, 1, 0x7f, 0x60, 0, 0, 0x60, 0, 1, 0x7f})
	wasm = appendSection(wasm, 2, []byte("\x01\x16wasi_snapshot_preview1\x0arandom_get\x00\x00"))
	wasm = appendSection(wasm, 3, []byte{2, 1, 2})
	wasm = appendSection(wasm, 4, []byte{1, 0x70, 0, 1})
	wasm = appendSection(wasm, 5, []byte{1, 0, 0x80, 8}) // 64 MiB
	wasm = appendSection(wasm, 7, []byte("\x03\x06memory\x02\x00\x0ajob_abi_v1\x00\x01\x0bjob_execute\x00\x02"))
	wasm = appendSection(wasm, 9, []byte{1, 0, 0x41, 0, 0x0b, 1, 0})
	code := body(times(2000, 0x41, 0, 0x41, 0x80, 0x80, 0x80, 0x20, 0x41, 0, 0x11, 0, 0, 0x1a), []byte{0x41, 0})
	wasm = appendSection(wasm, 10, append(appendU32([]byte{2, 2, 0, 0x0b}, uint32(len(code))), code...))
	stopped(t, wasm)
}

// The native stack of a guest has a limit, also in a start function.
func TestStackLimit(t *testing.T) {
	t.Parallel()
	needsCompiler(t)
	// Each call keeps 100 values on the stack.
	deep := body(times(100, 0x20, 0), hostile.Less(), []byte{0x10, 2}, times(100, 0x1a))
	endless := append(append([]byte{1, 100, 0x7e}, bytesJoin([]byte{0x20, 0, 0x10, 2}, times(100, 0x42, 1, 0x21, 1))...), 0x0b)
	r := newRuntime(t, Options{})
	for name, wasm := range map[string][]byte{"deep": nasty(deep), "with locals": nasty(endless)} {
		w := newWorker(t, load(t, r, wasm), Settings{})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := w.Execute(t.Context(), item(newRecorder(), ""))
		runtime.ReadMemStats(&after)
		if got.Outcome != abi.OutcomeTrap || !strings.Contains(got.Message, "stack overflow") {
			t.Errorf("%s: got %+v", name, got)
		}
		// Each doubling leaves the stack before it to the collector.
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 6*abi.MaxStack {
			t.Errorf("%s: %d MiB were allocated", name, grown>>20)
		}
	}
}
