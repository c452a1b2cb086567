package hostile

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

func corpus(t *testing.T) []Module {
	t.Helper()
	modules, err := Corpus()
	if err != nil {
		t.Fatal(err)
	}
	return modules
}

// Every attack is one: an engine takes the module, so that a mistake in it is
// not what keeps it from doing harm.
func TestCorpusIsValid(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer rt.Close(ctx)
	var names []string
	for _, m := range corpus(t) {
		if slices.Contains(names, m.Name) {
			t.Errorf("%s is there twice", m.Name)
		}
		names = append(names, m.Name)
		if m.Invalid || strings.HasPrefix(m.Name, "compile/") || strings.HasPrefix(m.Name, "section/name") || strings.HasPrefix(m.Name, "attack/validate-") {
			continue // wazero itself would take all memory (5 GiB and more) or time for some
		}
		if _, err := rt.CompileModule(ctx, m.Wasm); err != nil {
			if t.Logf("%s: %v", m.Name, err); !strings.HasPrefix(m.Name, "encoding/") {
				t.Errorf("%s: %v", m.Name, err)
			}
		}
	}
	t.Logf("%d modules", len(names))
}

// So is every random module, but for those whose bytes were changed.
func TestRandomIsValid(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer rt.Close(ctx)
	changed := 0
	for seed := range uint64(300) {
		m := Random(seed)
		if !bytes.Equal(m.Wasm, Random(seed).Wasm) {
			t.Fatalf("seed %d makes different modules", seed)
		}
		if m.Invalid {
			changed++
			continue
		}
		c, err := rt.CompileModule(ctx, m.Wasm)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := c.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if changed == 0 || changed > 30 {
		t.Errorf("%d of 300 modules were changed", changed)
	}
}

// The generator knows all functions of WASI, and their types.
func TestRandomKnowsWASI(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer rt.Close(ctx)
	compiled, err := wasi_snapshot_preview1.NewBuilder(rt).Compile(ctx)
	if err != nil {
		t.Fatal(err)
	}
	there := compiled.ExportedFunctions()
	for _, f := range wasi1() {
		d := there[f.name]
		if d == nil {
			t.Errorf("there is no %s", f.name)
			continue
		}
		if params, results := lettersOf(d.ParamTypes()), lettersOf(d.ResultTypes()); params != f.params || results != f.results {
			t.Errorf("%s is (%s)->(%s), not (%s)->(%s)", f.name, params, results, f.params, f.results)
		}
		delete(there, f.name)
	}
	for name := range there {
		t.Errorf("%s is missing", name)
	}
}

// lettersOf are the types as the assembler has them; WASI has no others.
func lettersOf(types []api.ValueType) string {
	var s []byte
	for _, t := range types {
		s = append(s, map[api.ValueType]byte{api.ValueTypeI32: 'i', api.ValueTypeI64: 'l'}[t])
	}
	return string(s)
}
