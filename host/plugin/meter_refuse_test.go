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
)

// What is not in the table of instructions, or not in its shortest form, is
// refused by name and place.
func TestMeterRefuses(t *testing.T) {
	t.Parallel()
	vector := []byte{0xfd, 0x0c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	for _, c := range []struct {
		name string
		body []byte
		want string
	}{
		{"a vector instruction in a longer form", body(vector, []byte{0x41, 0, 0xfd, 0x8c, 0, 0x1a}), "instruction 0xfd 12 is not of WebAssembly 2.0, or not in its shortest form"},
		{"relaxed vectors", body(vector, vector, []byte{0xfd, 0x80, 0x02, 0x1a}), "instruction 0xfd 256"},
		{"a hole in the table of vectors", body(vector, []byte{0xfd, 0x9a, 0x01, 0x1a}), "instruction 0xfd 154"},
		{"misc in a longer form", body([]byte{0x43, 0, 0, 0, 0, 0xfc, 0x80, 0, 0x1a}), "instruction 0xfc 0"},
		{"misc that is not known", body([]byte{0xfc, 18}), "instruction 0xfc 18"},
		{"a block of typed references", body([]byte{0x02, 0x63, 0x70, 0x0b, 0x1a}), "block type 0x63"},
		{"a loop of typed references", body([]byte{0x03, 0x64, 0x70, 0x0b, 0x1a}), "block type 0x64"},
		{"select of two types", body([]byte{0x1c, 2, 0x7f, 0x7f}), "select with 0x02 types"},
		{"select with a longer number", body([]byte{0x1c, 0x81, 0, 0x7f}), "select with 0x81 types"},
		{"select of a typed reference", body([]byte{0x1c, 1, 0x63, 0x70}), "value type 0x63"},
		{"a tail call", body([]byte{0x12, 0}), "instruction 0x12 (a tail call)"},
		{"try", body([]byte{0x06, 0x40, 0x0b}), "instruction 0x06 (of exception handling)"},
		{"try_table", body([]byte{0x1f, 0x40, 0, 0x0b}), "instruction 0x1f (of exception handling)"},
		{"atomics", body([]byte{0xfe, 0x03, 0}), "instruction 0xfe (of threads)"},
		{"garbage collection", body([]byte{0xfb, 0, 0}), "instruction 0xfb (of garbage collection)"},
		{"a second memory", body([]byte{0x3f, 1, 0x1a}), "reserved byte 0x01"},
		{"code behind the end", append(body(), 0x01), "1 bytes follow the end of the function"},
		{"no end", []byte{0, 0x01}, "unexpected end"},
		{"an end too few", body([]byte{0x02, 0x40}), "unexpected end"},
	} {
		_, err := meter(nasty(c.body))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "function 2: at byte ") {
			t.Errorf("%s: %v, expected function 2 and %q", c.name, err, c.want)
		}
	}
}

// A module whose loop was hidden behind bytes that wazero reads in another way
// is refused, whoever looks at it.
func TestHiddenLoopIsRefused(t *testing.T) {
	t.Parallel()
	wasm, err := base64.StdEncoding.DecodeString("AGFzbQEAAAABCAJgAABgAAF/AwMCAAEFBAEBQEAHJQMGbWVtb3J5AgAKam9iX2FiaV92MQAAC2pvYl9leGVjdXRlAAEKNgICAAsxAAJAQQENAP0MAAAAAAAAAAAAAAAAAAAAAEEA/YwACwNADAALAQEBAQEBAQEBAUEACw==")
	if err != nil {
		t.Fatal(err)
	}
	const want = "function 1: at byte 102: instruction 0xfd 12 is not of WebAssembly 2.0, or not in its shortest form"
	if _, err := Inspect(wasm); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("inspected: %v, expected %q", err, want)
	}
	if _, err := newRuntime(t, Options{}).Load(context.Background(), "x", wasm, time.Time{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("loaded: %v, expected %q", err, want)
	}
}

// stopped runs a job_execute that does not end, and requires that it ends with
// its time.
func stopped(t *testing.T, wasm []byte) {
	t.Helper()
	bothEngines(t, func(t *testing.T, r *Runtime) {
		w := newWorker(t, load(t, r, wasm), Settings{})
		const limit = 100 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		began := time.Now()
		got := w.Execute(ctx, item(newRecorder(), ""))
		if got.Outcome != abi.OutcomeTimeout || !errors.Is(got.Err, context.DeadlineExceeded) {
			t.Errorf("got %+v", got)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it was stopped %s after its limit", took-limit)
		}
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

// Large copies are done in pieces, and leave what one copy leaves.
func TestCopiesInPieces(t *testing.T) {
	t.Parallel()
	const pages = 64
	i32 := func(v uint32) []byte { return appendI32([]byte{0x41}, int32(v)) }
	for _, c := range []struct{ to, from, n uint32 }{
		{0, 1 << 20, 3 << 20}, {1 << 20, 0, 3 << 20}, {100, 0, 4<<20 - 100}, {0, 100, 4<<20 - 100}, {7, 7, 2 << 20},
		{0, 0, copyPiece}, {5, 0, copyPiece + 1}, {0, 5, copyPiece + 1}, {0, 0, 0}, {4 << 20, 0, 0},
		{1, 0, 4 << 20}, {0, 1, 4 << 20}, {0, 0, 4<<20 + 1}, {4 << 20, 0, 1}, {1<<32 - 1, 0, 1<<32 - 1}, {0, 0, 1<<32 - 1},
	} {
		copies := body(i32(c.to), i32(c.from), i32(c.n), []byte{0xfc, 10, 0, 0})
		fills := body(i32(c.to), i32(c.from), i32(c.n), []byte{0xfc, 11, 0})
		wasm := nasty(copies, fills)
		for name, f := range map[string]string{"copy": "f", "fill": "g"} {
			run := func(wasm []byte) ([]byte, error) {
				p := start(t, wazero.NewRuntimeConfig(), wasm)
				m, _ := p.Memory().Read(0, pages*pageSize)
				for i := range m {
					m[i] = byte(i * 7 >> 3)
				}
				_, err := p.call(f, 0)
				return append([]byte(nil), m...), err
			}
			want, errWant := run(wasm)
			got, err := run(metered(t, wasm))
			if (err == nil) != (errWant == nil) || string(got) != string(want) {
				t.Errorf("%s %+v: memory is the same: %t; %v, expected %v", name, c, string(got) == string(want), err, errWant)
			}
		}
	}
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
	deep := body(times(100, 0x20, 0), less, []byte{0x10, 2}, times(100, 0x1a))
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
