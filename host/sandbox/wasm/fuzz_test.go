package wasm

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// addGuests seeds a fuzz target with all committed guests.
func addGuests(f *testing.F) {
	for _, pattern := range []string{"../plugin/testdata/wat/*.wasm", "../plugin/testdata/c/*.wasm"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatal(pattern, err)
		}
		for _, name := range files {
			b, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
}

// FuzzScan: no input makes the scan panic, or allocate far more than it is
// long; what it accepts is rewritten into something that it accepts as it is
// and that says the same; and wazero decodes that without a panic.
func FuzzScan(f *testing.F) {
	addGuests(f)
	f.Add(withData(100, func(i int) (int32, []byte) { return int32(20 * i), []byte("0123456789") }))
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithMemoryLimitPages(16))
	f.Cleanup(func() { rt.Close(ctx) })
	f.Fuzz(func(t *testing.T, wasm []byte) {
		problems := Inspect(wasm).Problems
		if n := len(problems); n > words.MostProblems+1 || len(strings.Join(problems, "")) > 2*words.MaxReasons {
			t.Fatalf("%d problems, %d bytes", n, len(strings.Join(problems, "")))
		}
		s, err := scanModule(wasm)
		if err != nil {
			return
		}
		out, err := s.rewrite()
		if err != nil {
			return
		}
		again, err := scanModule(out)
		if err != nil {
			t.Fatalf("the rewritten module does not scan: %v", err)
		}
		for i, table := range again.tables {
			if table.capped || table.max > maxTableEntries || table.min != s.tables[i].min || table.element != s.tables[i].element {
				t.Fatalf("table %d was %+v and became %+v", i, s.tables[i], table)
			}
		}
		if !maps.Equal(laid(s), laid(again)) {
			t.Fatal("the data are not where they were")
		}
		if len(again.names) < len(s.names) || len(again.imports) != len(s.imports)+1 || len(again.code) < len(s.code) {
			t.Fatal("the rewritten module is another one")
		}
		defer func() {
			if p := recover(); p != nil {
				t.Fatalf("wazero panics on what the scan accepts: %v", p)
			}
		}()
		if c, err := rt.CompileModule(ctx, out); err == nil {
			_ = c.Close(ctx)
		}
	})
}

// laid is what the data segments put where, without the zeros.
func laid(s *scan) map[uint32]byte {
	m := map[uint32]byte{}
	for _, d := range s.data {
		for i, b := range s.wasm[d.bytes.start:d.bytes.end] {
			if at := d.offset + uint32(i); b != 0 {
				m[at] = b
			} else {
				delete(m, at)
			}
		}
	}
	return m
}
