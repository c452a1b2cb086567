package wasm

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/wasmjob/wasmjob/abi"
)

// fill is what the counter is filled with in these tests.
const fill = 1000

// program is a module in a runtime of its own that counts how often it is asked.
type program struct {
	api.Module
	asked int
	fill  uint32
}

func start(t testing.TB, config wazero.RuntimeConfig, wasm []byte) *program {
	t.Helper()
	ctx := context.Background()
	p := &program{fill: fill}
	rt := wazero.NewRuntimeWithConfig(ctx, config)
	t.Cleanup(func() { rt.Close(ctx) })
	if _, err := rt.NewHostModuleBuilder(abi.Module).NewFunctionBuilder().
		WithFunc(func(field uint32) uint64 { return uint64(field) }).Export("ctx_int").Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := rt.NewHostModuleBuilder(MeterModule).NewFunctionBuilder().
		WithFunc(func() uint32 { p.asked++; return p.fill }).Export(MeterImport).Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	mod, err := rt.Instantiate(ctx, wasm)
	if err != nil {
		t.Fatal(err)
	}
	p.Module = mod
	if begin := mod.ExportedFunction(ExportStartSection); begin != nil {
		if _, err := begin.Call(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p *program) call(name string, params ...uint64) ([]uint64, error) {
	return p.ExportedFunction(name).Call(context.Background(), params...)
}

// meter is what a module becomes; the error says why it is refused.
func meter(wasm []byte) ([]byte, error) {
	m, err := Read(wasm).Meter()
	if err != nil {
		return nil, err
	}
	return m.Bytes, nil
}

func metered(t testing.TB, wasm []byte) []byte {
	t.Helper()
	out, err := meter(wasm)
	if err != nil {
		t.Fatal(err)
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

// The host is asked in proportion to what is done: turns of a loop, bytes that
// are filled.
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
	if few, many := asked("loops", 100*fill), asked("loops", 200*fill); few < 100 || many < 2*few-2 || many > 2*few+2 {
		t.Errorf("asked %d times in a loop, and %d times in twice its turns", few, many)
	}
	if n := asked("fills", 50, 32); n > 5 {
		t.Errorf("50 small fills: asked %d times", n)
	}
	if n := asked("fills", 50, fill<<copyShift); n < 50 {
		t.Errorf("50 fills that cost as much as the counter has: asked %d times", n)
	}
}

// All real guests are metered; what may not be is left alone.
func TestMeterTakes(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("../plugin/testdata/*/*.wasm")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		name = strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(name), "../plugin/testdata/"), ".wasm")
		wasm := guest(t, name)
		m := Read(wasm)
		if len(m.Info.Problems) > 0 {
			continue
		}
		out, err := m.Meter()
		if err != nil {
			continue
		}
		if _, err := scanModule(out.Bytes); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	// Debugging information changes nothing.
	wasm := guest(t, "wat/instructions")
	debug := appendSection(slices.Clone(wasm), 0, append([]byte("\x0b.debug_info"), 1, 2, 3))
	if !bytes.Equal(metered(t, debug), metered(t, wasm)) {
		t.Error("a module with debugging information becomes another one")
	}
}

// FuzzMeter: a metered module is one that wazero takes only if it takes the
// module itself.
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
		out, err := meter(wasm)
		if err != nil {
			return
		}
		if before, after := takes(wasm), takes(out); before != nil && after == nil {
			t.Errorf("wazero says %v of the module, and takes it when it is metered", before)
		}
	})
}
