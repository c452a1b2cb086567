//go:build !wasip1

package sdktest

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/wasmjob/wasmjob/abi"
)

// program is a module as bytes, and compiled once for all hosts of a test.
type program struct {
	module []byte
	cache  wazero.CompilationCache
}

// guests is where the guests for tests are.
const guests = "github.com/wasmjob/wasmjob/sdk/testdata/guests/"

// guest builds one of them.
func guest(t *testing.T, name string) program {
	t.Helper()
	p := program{build(t, guests+name, "-buildmode=c-shared"), wazero.NewCompilationCache()}
	t.Cleanup(func() {
		if err := p.cache.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	p.load(t, new(*Host)) // subtests that run at once would each compile it
	return p
}

// build compiles a package for wasip1 and returns the module.
func build(t *testing.T, pkg string, flags ...string) []byte {
	t.Helper()
	return buildIn(t, ".", pkg, flags...)
}

// clients is the folder of the module that requires client libraries.
const clients = "../net/testdata/clients"

// buildClients is build for that module. It requires ours, whose own requirements change
// without it: what it lacks of them is added to a copy of its go.mod.
func buildClients(t *testing.T, pkg string, flags ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(clients, name))
		if err != nil {
			t.Fatal(err)
		}
		ours, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "go.mod" {
			root, err := filepath.Abs("../..")
			if err != nil {
				t.Fatal(err)
			}
			b, ours = []byte(strings.NewReplacer("=> ../../../../abi", "=> "+filepath.Join(root, "abi"), "=> ../../..", "=> "+filepath.Join(root, "sdk")).Replace(string(b))), nil
		}
		if err := os.WriteFile(filepath.Join(dir, name), append(b, ours...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return buildIn(t, clients, pkg, append(flags, "-mod=mod", "-modfile="+filepath.Join(dir, "go.mod"))...)
}

// buildIn is build for the module that a folder is in.
func buildIn(t *testing.T, dir, pkg string, flags ...string) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "guest.wasm")
	cmd := exec.CommandContext(t.Context(), "go", append(append([]string{"build", "-trimpath", "-o", file}, flags...), pkg)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if dir == clients {
		cmd.Env = append(cmd.Env, "GOWORK=off") // no workspace takes -modfile
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sections reads the names of imports ("module.name") and exports from a
// module: the few rules of the binary format that it takes.
func sections(t *testing.T, module []byte) (imports, exports []string) {
	t.Helper()
	if len(module) < 8 || string(module[:8]) != "\x00asm\x01\x00\x00\x00" {
		t.Fatal("not a module")
	}
	b := module[8:]
	number := func() uint64 {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			t.Fatal("truncated number")
		}
		b = b[size:]
		return n
	}
	take := func(n uint64) []byte {
		if n > uint64(len(b)) {
			t.Fatal("truncated section")
		}
		taken := b[:n]
		b = b[n:]
		return taken
	}
	limits := func() {
		if number()&1 != 0 {
			number()
		}
		number()
	}
	for len(b) > 0 {
		id := take(1)[0]
		body := take(number())
		rest := b
		b = body
		switch id {
		case 2:
			for range number() {
				name := string(take(number())) + "." + string(take(number()))
				switch kind := take(1)[0]; kind {
				case 0:
					number()
				case 1:
					take(1)
					limits()
				case 2:
					limits()
				case 3:
					take(2)
				default:
					t.Fatalf("import %s is of kind %d", name, kind)
				}
				imports = append(imports, name)
			}
		case 7:
			for range number() {
				exports = append(exports, string(take(number())))
				take(1)
				number()
			}
		}
		b = rest
	}
	slices.Sort(imports)
	slices.Sort(exports)
	return imports, exports
}

// runtime runs guests on the imports of a Host.
type runtime struct {
	wazero.Runtime
	compiled wazero.CompiledModule
}

// load links the program to whichever host *h is at the time of a call. The interpreter is ready sooner
// than the compiler, and these guests do little.
func (p program) load(t *testing.T, h **Host) *runtime {
	t.Helper()
	r := wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigInterpreter().WithCompilationCache(p.cache))
	t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	wasi_snapshot_preview1.MustInstantiate(t.Context(), r)
	builders := make(map[string]wazero.HostModuleBuilder)
	for _, f := range slices.Concat(abi.Imports(), abi.CapabilityImports()) {
		if builders[f.Module] == nil {
			builders[f.Module] = r.NewHostModuleBuilder(f.Module)
		}
		builders[f.Module].NewFunctionBuilder().WithGoModuleFunction(implementation(t, h, f), types(f.Type.Params), types(f.Type.Results)).Export(f.Name)
	}
	for _, b := range builders {
		if _, err := b.Instantiate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	compiled, err := r.CompileModule(t.Context(), p.module)
	if err != nil {
		t.Fatal(err)
	}
	return &runtime{r, compiled}
}

func types(list []abi.ValueType) []api.ValueType {
	var out []api.ValueType
	for _, v := range list {
		out = append(out, api.ValueType(v))
	}
	return out
}

// implementation links one import to the method of the fake host, by way of
// its row in package abi.
func implementation(t *testing.T, h **Host, f abi.Import) api.GoModuleFunction {
	t.Helper()
	name := map[string]string{abi.ModuleIO: "IO", abi.ModuleHTTP: "HTTP", abi.ModuleNet: "Net", abi.ModuleKV: "KV", abi.ModuleEnv: "Env"}[f.Module]
	for part := range strings.SplitSeq(f.Name, "_") {
		name += strings.ToUpper(part[:1]) + part[1:]
	}
	if !reflect.ValueOf(imports{}).MethodByName(name).IsValid() {
		t.Fatalf("the contract has an import %s that the fake host has not", f.Name)
	}
	return api.GoModuleFunc(func(_ context.Context, mod api.Module, stack []uint64) {
		m, rest := memory{mod.Memory()}, stack
		var args []reflect.Value
		for _, p := range f.Params {
			switch p.Kind {
			case abi.KindInt32:
				args, rest = append(args, reflect.ValueOf(int32(rest[0]))), rest[1:]
			case abi.KindUint32:
				args, rest = append(args, reflect.ValueOf(uint32(rest[0]))), rest[1:]
			case abi.KindInt64:
				args, rest = append(args, reflect.ValueOf(int64(rest[0]))), rest[1:]
			case abi.KindText:
				args, rest = append(args, reflect.ValueOf(string(m.region(rest[0], rest[1])))), rest[2:]
			case abi.KindBytes:
				args, rest = append(args, reflect.ValueOf(slices.Clone(m.region(rest[0], rest[1])))), rest[2:]
			case abi.KindBuffer:
				args, rest = append(args, reflect.ValueOf(m.region(rest[0], rest[1]))), rest[2:]
			}
		}
		result := int64(abi.ErrState)
		if (*h).phase()&f.During != 0 {
			for _, v := range reflect.ValueOf(imports{*h}).MethodByName(name).Call(args) {
				if result = 0; v.CanInt() {
					result = v.Int()
				} else if v.Bool() {
					result = 1
				}
			}
		}
		switch f.Answer {
		case abi.NoAnswer:
		case abi.AnswerValue:
			stack[0] = api.EncodeI64(result)
		default:
			stack[0] = api.EncodeI32(int32(result))
		}
	})
}

type memory struct{ api.Memory }

// region is a part of the guest's memory; outside of it is a trap.
func (m memory) region(p, n uint64) []byte {
	if uint32(n) == 0 {
		return nil
	}
	b, ok := m.Read(uint32(p), uint32(n))
	if !ok {
		panic(fmt.Errorf("region %d+%d is outside of memory", uint32(p), uint32(n)))
	}
	return b
}

// instance makes a guest, with its standard error going to stderr.
func (r *runtime) instance(t *testing.T, stderr io.Writer) api.Module {
	t.Helper()
	return r.instanceWith(t, stderr, wazero.NewFSConfig())
}

// instanceWith makes one with files.
func (r *runtime) instanceWith(t *testing.T, stderr io.Writer, files wazero.FSConfig) api.Module {
	t.Helper()
	m, err := r.InstantiateModule(t.Context(), r.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize").
		WithFSConfig(files).WithStdout(t.Output()).WithStderr(stderr).WithSysWalltime().WithSysNanotime().WithSysNanosleep())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return m
}

// export is an exported function in the shape that Host runs: it panics with
// the error of a trap or an exit.
func export(t *testing.T, m api.Module, name string) func() int32 {
	t.Helper()
	f := m.ExportedFunction(name)
	if f == nil {
		t.Fatalf("no export %s", name)
	}
	return func() int32 {
		result, err := f.Call(t.Context())
		if err != nil {
			panic(err)
		}
		return api.DecodeI32(result[0])
	}
}
