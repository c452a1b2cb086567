package wasm

import (
	"context"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/assemblyscript"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/wasmjob/wasmjob/abi"
)

// What a module may import besides the ABI is what wazero has.
func TestOfferedIsWhatWazeroHas(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rt := wazero.NewRuntime(ctx)
	defer rt.Close(ctx)
	wasi_snapshot_preview1.MustInstantiate(ctx, rt)
	if _, err := assemblyscript.Instantiate(ctx, rt); err != nil {
		t.Fatal(err)
	}
	if wasi_snapshot_preview1.ModuleName != abi.ModuleWASI {
		t.Error("wazero has other names for what we offer")
	}
	for module, funcs := range Offered() {
		if strings.HasPrefix(module, abi.Module) {
			continue // the host's own
		}
		defs := rt.Module(module).ExportedFunctionDefinitions()
		for name, want := range funcs {
			def := defs[name]
			if def == nil {
				t.Errorf("%s.%s is offered, and wazero does not have it", module, name)
				continue
			}
			if got := signatureOf(def); !got.Equal(want) {
				t.Errorf("%s.%s is offered as %s, wazero has %s", module, name, want, got)
			}
		}
		if module == ModuleEnv {
			continue // wazero has more for AssemblyScript than we offer
		}
		for name := range defs {
			if _, ok := funcs[name]; !ok {
				t.Errorf("wazero has %s.%s, which is not offered", module, name)
			}
		}
	}
}

func signatureOf(d api.FunctionDefinition) abi.Signature {
	var s abi.Signature
	for _, t := range d.ParamTypes() {
		s.Params = append(s.Params, abi.ValueType(t))
	}
	for _, t := range d.ResultTypes() {
		s.Results = append(s.Results, abi.ValueType(t))
	}
	return s
}
