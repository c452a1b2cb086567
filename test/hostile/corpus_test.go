package hostile

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
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
		if m.Invalid || strings.HasPrefix(m.Name, "compile/") || strings.HasPrefix(m.Name, "section/name") {
			continue // wazero itself would take all memory or time for some
		}
		if _, err := rt.CompileModule(ctx, m.Wasm); err != nil {
			if t.Logf("%s: %v", m.Name, err); !strings.HasPrefix(m.Name, "encoding/") {
				t.Errorf("%s: %v", m.Name, err)
			}
		}
	}
	t.Logf("%d modules", len(names))
}

// So is every random module.
func TestRandomIsValid(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer rt.Close(ctx)
	for seed := range uint64(300) {
		c, err := rt.CompileModule(ctx, Random(seed).Wasm)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := c.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
