package wasm

import (
	"bytes"
	"context"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// What takes long without a loop asks all the same.
func TestMeterAsksWithoutLoops(t *testing.T) {
	t.Parallel()
	bulk := func(operands, instruction []byte) []byte {
		return body(times(20, append(bytes.Clone(operands), instruction...)...))
	}
	page := []byte{0x41, 0, 0x41, 0, 0x41, 0x80, 0x80, 4} // 0, 0, 65536
	none := []byte{0x41, 0, 0x41, 0, 0x41, 0}
	for _, c := range []struct {
		name   string
		n      uint64
		least  int
		bodies [][]byte
	}{
		{"two calls of itself", 16, 1 << 17 / fill, [][]byte{twice}},
		{"two calls by way of the table", 16, 1 << 17 / fill, [][]byte{body(atZero,
			less, []byte{0x41, 0, 0x11, 2, 0}, less, []byte{0x41, 0, 0x11, 2, 0})}},
		{"past a loop that is never reached", 16, 1 << 17 / fill, [][]byte{body(atZero,
			[]byte{0x41, 0, 0x04, 0x40, 0x03, 0x40, 0x0b, 0x0b}, less, []byte{0x10, 2}, less, []byte{0x10, 2})}},
		{"past a loop that is jumped over", 16, 1 << 17 / fill, [][]byte{body(atZero,
			[]byte{0x02, 0x40, 0x0c, 0, 0x03, 0x40, 0x0b, 0x0b}, less, []byte{0x10, 2}, less, []byte{0x10, 2})}},
		{"many calls of the next", 0, 10, [][]byte{
			body(times(100, 0x41, 0, 0x10, 3)), body(times(100, 0x41, 0, 0x10, 4)), body(times(10, 0x41, 0, 0x10, 5)), body()}},
		{"many calls of what is long", 0, 10, [][]byte{
			body(times(5*fill, 0x41, 0, 0x10, 3)), body(times(2<<10, 0x01))}},
		{"memory.copy", 0, 20, [][]byte{bulk(page, []byte{0xfc, 10, 0, 0})}},
		{"memory.fill", 0, 20, [][]byte{bulk(page, []byte{0xfc, 11, 0})}},
		{"memory.init", 0, 20, [][]byte{bulk(none, []byte{0xfc, 8, 0, 0})}},
		{"table.init", 0, 20, [][]byte{bulk(none, []byte{0xfc, 12, 1, 0})}},
		{"table.copy", 0, 20, [][]byte{bulk(none, []byte{0xfc, 14, 0, 0})}},
		{"table.fill", 0, 20, [][]byte{bulk([]byte{0x41, 0, 0xd0, 0x70, 0x41, 0}, []byte{0xfc, 17, 0})}},
		{"table.grow", 0, 20, [][]byte{bulk([]byte{0xd0, 0x70, 0x41, 0}, []byte{0xfc, 15, 0, 0x1a})}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, config := range []wazero.RuntimeConfig{wazero.NewRuntimeConfig(), wazero.NewRuntimeConfigInterpreter()} {
				p := start(t, config, metered(t, nasty(c.bodies...)))
				if _, err := p.call("f", c.n); err != nil {
					t.Fatal(err)
				}
				if p.asked < c.least {
					t.Errorf("asked %d times, expected at least %d", p.asked, c.least)
				}
			}
		})
	}
}

// What counts a turn in its loop does not count another one to begin with, nor
// does what is done at once.
func TestMeterCountsOnce(t *testing.T) {
	t.Parallel()
	global := []byte{0x23, 0}
	for _, c := range []struct {
		name string
		body []byte
		want int // reads of the count: one a check
	}{
		{"a loop at the beginning", body(less, []byte{0x1a, 0x02, 0x40, 0x03, 0x40, 0x41, 0, 0x10, 2, 0x0b, 0x0b}), 1},
		{"nothing", body(), 0},
		{"a call before the loop", body([]byte{0x41, 0, 0x10, 2, 0x03, 0x40, 0x0b}), 2},
		{"calls", twice, 1},
	} {
		out := metered(t, nasty(c.body))
		if n := bytes.Count(out, append(bytes.Clone(global), 0x41, 0, 0x4c)) - 1; n != c.want { // job_execute has one
			t.Errorf("%s: %d checks, expected %d", c.name, n, c.want)
		}
	}
}

// A module that refers to what metering adds is not metered: to wazero, it is
// one that refers to what it does not have.
func TestMeterAddsNothingToUse(t *testing.T) {
	t.Parallel()
	rt := wazero.NewRuntime(context.Background())
	defer rt.Close(context.Background())
	for name, b := range map[string][]byte{
		"the count":             body([]byte{0x41, 0, 0x24, 0}),
		"reads the count":       body([]byte{0x23, 0, 0x1a}),
		"the helper":            body([]byte{0x41, 0, 0x41, 0, 0x41, 0, 0x10, 3}),
		"refers to the helper":  body([]byte{0xd2, 3, 0x1a}),
		"the type":              body([]byte{0x41, 0, 0x11, 3, 0, 0x1a}),
		"a block of the type":   body([]byte{0x02, 3, 0x41, 0, 0x0b, 0x1a}),
		"a longer number":       body([]byte{0x41, 0, 0x24, 0x80, 0x80, 0x80, 0x80, 0}),
		"a tail call":           body([]byte{0x41, 0, 0x12, 2}),
		"a catch":               body([]byte{0x06, 0x40, 0x19, 0x0b}),
		"an atomic instruction": body([]byte{0xfe, 0x03, 0}),
	} {
		wasm := nasty(b)
		if _, err := scanModule(wasm); err != nil {
			t.Fatal(name, err)
		}
		if _, err := meter(wasm); err == nil {
			t.Errorf("%s: it is metered", name)
		}
		if _, err := rt.CompileModule(context.Background(), wasm); err == nil {
			t.Errorf("%s: wazero takes it", name)
		}
	}
}

// A call of what is not of job_v1 asks, also where there is no loop.
func TestMeterAsksBeforeWASI(t *testing.T) {
	t.Parallel()
	wasm := []byte("\x00asm\x01\x00\x00\x00")
	wasm = appendSection(wasm, 1, []byte{2, 0x60, 2, 0x7f, 0x7f, 1, 0x7f, 0x60, 0, 0})
	wasm = appendSection(wasm, 2, []byte("\x01\x16wasi_snapshot_preview1\x0arandom_get\x00\x00"))
	wasm = appendSection(wasm, 3, []byte{1, 1})
	wasm = appendSection(wasm, 5, []byte{1, 0, 1})
	wasm = appendSection(wasm, 7, []byte("\x02\x06memory\x02\x00\x01f\x00\x01"))
	code := body(times(20, 0x41, 0, 0x41, 8, 0x10, 0, 0x1a))
	wasm = appendSection(wasm, 10, append(appendU32([]byte{1}, uint32(len(code))), code...))
	ctx := context.Background()
	rt := wazero.NewRuntime(ctx)
	defer rt.Close(ctx)
	wasi_snapshot_preview1.MustInstantiate(ctx, rt)
	asked := 0
	if _, err := rt.NewHostModuleBuilder(MeterModule).NewFunctionBuilder().
		WithFunc(func() uint32 { asked++; return fill }).Export(MeterImport).Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	mod, err := rt.Instantiate(ctx, metered(t, wasm))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mod.ExportedFunction("f").Call(ctx); err != nil || asked < 20 {
		t.Errorf("asked %d times, expected at least 20 (%v)", asked, err)
	}
}
