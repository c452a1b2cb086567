package plugin

import (
	"slices"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	w "github.com/wasmjob/wasmjob/test/wasm"
)

// A path that is too long is answered before wazero copies it.
func TestPathsAreOfLimitedLength(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	for name, signature := range hostFunctions()[abi.ModuleWASI] {
		paths := pathLengths[name]
		if (len(paths) > 0) != strings.HasPrefix(name, "path_") {
			t.Errorf("%s: lengths of paths are its parameters %v", name, paths)
		}
		params := ""
		for _, p := range signature.Params {
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
				got := newWorker(t, load(t, r, m.Bytes()), Settings{}).Execute(t.Context(), item(newRecorder(), ""))
				if (got.Status == errnoNameTooLong) != want {
					t.Errorf("%s with a path of %d bytes as parameter %d: %+v", name, uint32(length), long, got)
				}
			}
		}
	}
}
