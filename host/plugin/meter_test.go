package plugin

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/wasmjob/wasmjob/abi"
)

// program is a module in a runtime of its own, whose turns are counted.
type program struct {
	api.Module
	asked int
}

func start(t testing.TB, config wazero.RuntimeConfig, wasm []byte) *program {
	t.Helper()
	ctx := context.Background()
	p := &program{}
	rt := wazero.NewRuntimeWithConfig(ctx, config)
	t.Cleanup(func() { rt.Close(ctx) })
	if _, err := rt.NewHostModuleBuilder(abi.Module).NewFunctionBuilder().
		WithFunc(func(field uint32) uint64 { return uint64(field) }).Export("ctx_int").Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := rt.NewHostModuleBuilder(meterModule).NewFunctionBuilder().
		WithFunc(func() uint32 { p.asked++; return turns }).Export(meterImport).Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	mod, err := rt.Instantiate(ctx, wasm)
	if err != nil {
		t.Fatal(err)
	}
	p.Module = mod
	return p
}

func (p *program) call(name string, params ...uint64) ([]uint64, error) {
	return p.ExportedFunction(name).Call(context.Background(), params...)
}

func metered(t *testing.T, wasm []byte) []byte {
	t.Helper()
	out, ok := meter(wasm)
	if !ok {
		t.Fatal("the module is not metered")
	}
	return out
}

// A metered module does what the module does, with every form of instruction,
// in both engines, and its stack has the same names.
func TestMeterKeepsTheMeaning(t *testing.T) {
	t.Parallel()
	wasm := guest(t, "wat/instructions")
	for name, config := range map[string]wazero.RuntimeConfig{"compiler": wazero.NewRuntimeConfig(), "interpreter": wazero.NewRuntimeConfigInterpreter()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, n := range []uint64{1, 7, 50, 5000} {
				want, err := start(t, config, wasm).call("run", n)
				if err != nil {
					t.Fatal(err)
				}
				got, err := start(t, config, metered(t, wasm)).call("run", n)
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("run(%d) is %v, expected %v (%v)", n, got, want, err)
				}
			}
			_, want := start(t, config, wasm).call("trap")
			_, got := start(t, config, metered(t, wasm)).call("trap")
			if want == nil || got == nil || got.Error() != want.Error() || !strings.Contains(got.Error(), "trap(") {
				t.Errorf("the trap is %v, expected %v", got, want)
			}
		})
	}
}

// The host is asked once for so many turns, and after every large fill.
func TestMeterAsks(t *testing.T) {
	t.Parallel()
	p := start(t, wazero.NewRuntimeConfig(), metered(t, guest(t, "wat/instructions")))
	asked := func(name string, params ...uint64) int {
		before := p.asked
		if _, err := p.call(name, params...); err != nil {
			t.Fatal(err)
		}
		return p.asked - before
	}
	if n := asked("loops", 100*turns); n < 100 || n > 101 {
		t.Errorf("100 times the turns: asked %d times", n)
	}
	if n := asked("fills", 50, 1<<bulkShift-1); n > 1 {
		t.Errorf("50 small fills: asked %d times", n)
	}
	if n := asked("fills", 50, 1<<bulkShift); n < 49 {
		t.Errorf("50 large fills: asked %d times", n)
	}
}

// All real guests are metered; what may not be is left alone.
func TestMeterTakes(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("testdata/*/*.wasm")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		name = strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(name), "testdata/"), ".wasm")
		wasm := guest(t, name)
		info, s := inspect(wasm)
		if len(info.Problems) > 0 {
			continue
		}
		if _, err := scanModule(metered(t, s.rewrite())); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	wasm := guest(t, "wat/instructions")
	if _, ok := meter(appendSection(slices.Clone(wasm), 0, append([]byte("\x0b.debug_info"), 1, 2, 3))); ok {
		t.Error("a module with debugging information is metered")
	}
	if _, ok := meter([]byte("\x00asm\x01\x00\x00\x00")); ok {
		t.Error("a module without code is metered")
	}
	tail := "\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x0a\x06\x01\x04\x00\x12\x00\x0b"
	if _, ok := meter([]byte(tail)); ok {
		t.Error("a module with a tail call is metered")
	}
}

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
	in := &instance{ctx: context.Background(), inv: &abi.Invocation{}}
	c := &callContext{ctx, in}
	mod, err := rt.Instantiate(c, p)
	if err != nil {
		t.Fatal(err)
	}
	in.ctx = ctx
	_, err = mod.ExportedFunction("fills").Call(c, 1<<32-1, 3*pageSize)
	if f, ok := errors.AsType[*fault](err); !ok || !f.ended {
		t.Errorf("the call ended with %v", err)
	}
}

// FuzzMeter: a metered module is one that wazero takes if and only if it takes
// the module itself.
func FuzzMeter(f *testing.F) {
	addGuests(f)
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithMemoryLimitPages(16))
	f.Cleanup(func() { rt.Close(ctx) })
	takes := func(wasm []byte) error {
		m, err := rt.CompileModule(ctx, wasm)
		if err == nil {
			err = m.Close(ctx)
		}
		return err
	}
	f.Fuzz(func(t *testing.T, wasm []byte) {
		if info, s := inspect(wasm); len(info.Problems) == 0 {
			wasm = s.rewrite()
		} else if _, err := scanModule(wasm); err != nil {
			return
		}
		out, ok := meter(wasm)
		if !ok {
			return
		}
		before, after := takes(wasm), takes(out)
		if (before == nil) != (after == nil) {
			t.Errorf("wazero says %v of the module, and %v when it is metered", before, after)
		}
	})
}
