package wasm

import (
	"context"
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
		paths := f.paths
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
