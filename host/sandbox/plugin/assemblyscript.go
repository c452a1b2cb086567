package plugin

import (
	"context"
	"fmt"
	"unicode/utf16"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

const (
	// maxAbortText and maxAbortFile bound how much of an abort's texts is read, in bytes of UTF-16.
	maxAbortText = abi.MaxLogMessage
	maxAbortFile = 512
	// abortExit is the exit code that AssemblyScript expects of an abort.
	abortExit = 255
)

// registerAssemblyScript gives a wazero runtime AssemblyScript's import, abort. wazero's own reads the texts
// without a limit.
func registerAssemblyScript(ctx context.Context, rt wazero.Runtime) error {
	i32 := api.ValueTypeI32
	_, err := rt.NewHostModuleBuilder(wasm.ModuleEnv).NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, mod api.Module, stack []uint64) {
			in := current(ctx)
			if in == nil {
				panic(&fault{text: "abort: called outside an invocation"})
			}
			in.stopIfEnded()
			in.abort(ctx, mod, stack)
		}), []api.ValueType{i32, i32, i32, i32}, nil).Export("abort").Instantiate(ctx)
	return err
}

// abort writes the message and the place to stderr, and ends the guest.
func (in *instance) abort(ctx context.Context, mod api.Module, stack []uint64) {
	message, ok := utf16Text(mod.Memory(), stack[0], maxAbortText)
	file, ok2 := utf16Text(mod.Memory(), stack[1], maxAbortFile)
	if ok && ok2 {
		fmt.Fprintf(&in.err, "%s at %s:%d:%d\n", message, file, api.DecodeU32(stack[2]), api.DecodeU32(stack[3]))
	}
	_ = mod.CloseWithExitCode(ctx, abortExit) // it ends in any case
	panic(sys.NewExitError(abortExit))
}

// utf16Text reads a text as AssemblyScript has it, with its length in bytes before it; what is longer than most
// is cut.
func utf16Text(mem api.Memory, ptr uint64, most uint32) (string, bool) {
	at := api.DecodeU32(ptr)
	size, ok := mem.ReadUint32Le(at - 4)
	if !ok || size%2 != 0 {
		return "", false
	}
	b, ok := mem.Read(at, size) // a view
	if !ok {
		return "", false
	}
	b = b[:min(size, most)]
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = uint16(b[2*i]) | uint16(b[2*i+1])<<8
	}
	text := string(utf16.Decode(units))
	if size > most {
		text += "…"
	}
	return text, true
}
