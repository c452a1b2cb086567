package wasm

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/wasmjob/wasmjob/abi"
	w "github.com/wasmjob/wasmjob/test/wasm"
)

// A path that is too long is answered before wazero copies it.
func TestPathsAreOfLimitedLength(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rt := wazero.NewRuntime(ctx)
	defer rt.Close(ctx)
	wasi_snapshot_preview1.MustInstantiate(ctx, rt)
	if err := offerTurns(ctx, rt); err != nil {
		t.Fatal(err)
	}
	for name, f := range wasiFunctions() {
		var paths []byte
		for _, l := range f.limits {
			if l.kind == pathLength {
				paths = append(paths, l.param)
			}
		}
		if (len(paths) > 0) != strings.HasPrefix(name, "path_") {
			t.Errorf("%s: lengths of paths are its parameters %v", name, paths)
		}
		params := ""
		for _, p := range signature(f.signature).Params {
			params += map[abi.ValueType]string{abi.I32: "i", abi.I64: "l"}[p]
		}
		for _, long := range paths {
			for length, want := range map[int32]bool{maxPath: false, maxPath + 1: true, -1: true} {
				m := w.New()
				call := m.Import(abi.ModuleWASI, name, params, "i")
				m.Memory(1, 1)
				m.ExportMemory("memory")
				var args []byte
				for i, p := range params {
					switch {
					case p == 'l':
						args = append(args, w.I64Const(0)...)
					case byte(i) == long:
						args = append(args, w.I32Const(length)...)
					case slices.Contains(paths, byte(i)):
						args = append(args, w.I32Const(1)...)
					default:
						args = append(args, w.I32Const(3)...)
					}
				}
				m.Export(abi.Marker, m.Func("", "", ""))
				m.Export(abi.ExportExecute, m.Func("", "i", "", args, w.Call(call)))
				mod, err := rt.InstantiateWithConfig(ctx, metered(t, m.Bytes()), wazero.NewModuleConfig().WithName(""))
				if err != nil {
					t.Fatal(err)
				}
				got, err := mod.ExportedFunction(abi.ExportExecute).Call(ctx)
				if err != nil || (got[0] == errnoNameTooLong) != want {
					t.Errorf("%s with a path of %d bytes as parameter %d: %v, %v", name, uint32(length), long, got, err)
				}
			}
		}
	}
}

// A number that is beyond a limit is answered, or cut, before wazero sees it.
func TestParametersAreWithinLimits(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rt := wazero.NewRuntime(ctx)
	defer rt.Close(ctx)
	wasi_snapshot_preview1.MustInstantiate(ctx, rt)
	if err := offerTurns(ctx, rt); err != nil {
		t.Fatal(err)
	}
	const badDescriptor, success = 8, 0
	for _, c := range []struct {
		name, params string
		args         []int32
		want         uint64
	}{
		{"fd_renumber", "ii", []int32{3, maxDescriptors}, errnoBadDescriptor},
		{"fd_renumber", "ii", []int32{3, math.MaxInt32}, errnoBadDescriptor},
		{"fd_renumber", "ii", []int32{3, -1}, errnoBadDescriptor},
		{"fd_renumber", "ii", []int32{1, 1}, errnoInvalid},
		{"fd_renumber", "ii", []int32{3, maxDescriptors - 1}, badDescriptor}, // there is no 3
		{"poll_oneoff", "iiii", []int32{1 << 12, 1 << 18, maxSubscriptions, 8}, success},
		{"poll_oneoff", "iiii", []int32{1 << 12, 1 << 18, maxSubscriptions + 1, 8}, errnoInvalid},
		{"poll_oneoff", "iiii", []int32{1 << 12, 1 << 18, -1, 8}, errnoInvalid},
		{"fd_readdir", "iiili", []int32{1, 0, maxEntries + 1, 0, 8}, errnoInvalid},
		{"fd_readdir", "iiili", []int32{1, 0, maxEntries, 0, 8}, badDescriptor}, // it is no directory
		// More buffers than the limit would not be in memory.
		{"fd_write", "iiii", []int32{1, 1<<20 - 8*maxVectors, maxVectors + 1, 8}, success},
		{"fd_read", "iiii", []int32{0, 1<<20 - 8*maxVectors, -1, 8}, success},
	} {
		m := w.New()
		call := m.Import(abi.ModuleWASI, c.name, c.params, "i")
		m.Memory(16, 16)
		m.ExportMemory("memory")
		var code []byte
		for i, a := range c.args {
			if c.params[i] == 'l' {
				code = append(code, w.I64Const(int64(a))...)
			} else {
				code = append(code, w.I32Const(a)...)
			}
		}
		m.Export(abi.Marker, m.Func("", "", ""))
		m.Export(abi.ExportExecute, m.Func("", "i", "", code, w.Call(call)))
		mod, err := rt.InstantiateWithConfig(ctx, metered(t, m.Bytes()), wazero.NewModuleConfig().WithName(""))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := mod.ExportedFunction(abi.ExportExecute).Call(ctx); err != nil || got[0] != c.want {
			t.Errorf("%s of %v: %v, %v, expected %d", c.name, c.args, got, err, c.want)
		}
	}
}
