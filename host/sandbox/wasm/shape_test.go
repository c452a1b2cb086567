package wasm

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"

	w "github.com/wasmjob/wasmjob/test/wasm"
)

const (
	// validationSize is the size of the modules whose validation is measured, and
	// validationMemory what it may allocate in all, in bytes.
	validationSize   = 2 << 20
	validationMemory = 256 << 20
)

// shaped is a module of functions of type ()->() with such bodies, and a type of so many
// results.
func shaped(results int, bodies ...[]byte) *w.Module {
	m := w.New()
	m.Type("", strings.Repeat("i", results)) // the first one
	m.Memory(1, 1)
	for _, b := range bodies {
		m.Func("", "", "", b)
	}
	return m
}

// many is a function that returns so many values, which is the first one.
func many(results int, bodies ...[]byte) *w.Module {
	m := w.New()
	m.Memory(1, 1)
	m.Func("", strings.Repeat("i", results), "", w.Unreachable())
	for _, b := range bodies {
		m.Func("", "", "", b)
	}
	return m
}

// block is a block of the first type.
func block(code ...[]byte) []byte { return w.Code([]byte{0x02, 0}, w.Code(code...), []byte{0x0b}) }

// nested is code within so many blocks.
func nested(n int, code []byte) []byte {
	return w.Code(w.Times(n, []byte{0x02, w.None}), code, w.Times(n, []byte{0x0b}))
}

// What makes wazero validate or compile with far more than the code's length is refused
// before wazero sees it.
func TestShapesAreRefused(t *testing.T) {
	t.Parallel()
	labels := func(n int) []byte { return w.Code([]byte{0x0e}, w.U32(uint32(n)), bytes.Repeat([]byte{0}, n+1)) }
	sets := func(blocks, locals int) *w.Module {
		m := w.New()
		var code []byte
		for l := range uint32(locals) {
			code = append(code, w.Code(w.I32Const(0), w.Set(l))...)
		}
		m.Func("", "", strings.Repeat("i", locals), nested(blocks, code))
		return m
	}
	types := func(n, values int) *w.Module {
		m := w.New()
		for i := range n {
			m.Type(strings.Repeat("i", values)+strings.Repeat("l", i), "")
		}
		return m
	}
	for _, c := range []struct {
		name        string
		under, over *w.Module
		want        string
	}{
		{"height", many(1000, w.Code(w.Times(10, w.Call(0)), w.Return())), many(1000, w.Code(w.Times(11, w.Call(0)), w.Return())), "11000 values on the operand stack, the limit is 10000"},
		{"nesting", shaped(0, nested(maxNesting-1, nil)), shaped(0, nested(maxNesting, nil)), "nested more than 50000 deep"},
		{"calls", many(1000, slicesOf(10, w.Times(100, w.Call(0), w.Unreachable()))...), many(1000, slicesOf(11, w.Times(100, w.Call(0), w.Unreachable()))...), "pass more than"},
		{"labels", shaped(1000, block(w.Unreachable(), labels(1000))), shaped(1000, block(w.Unreachable(), labels(2000))), "pass more than"},
		{"branches", shaped(1000, slicesOf(5, block(w.Unreachable(), w.Times(100, w.I32Const(1), w.BrIf(0), w.Unreachable())))...),
			shaped(1000, slicesOf(6, block(w.Unreachable(), w.Times(100, w.I32Const(1), w.BrIf(0), w.Unreachable())))...), "pass more than"},
		{"blocks", shaped(1000, slicesOf(5, w.Times(100, block(w.Unreachable()), w.Unreachable()))...), shaped(1000, slicesOf(6, w.Times(100, block(w.Unreachable()), w.Unreachable()))...), "pass more than"},
		{"returns", many(1000), func() *w.Module {
			m := many(0)
			m.Func("", strings.Repeat("i", 1000), "", w.Unreachable(), w.Times(1100, w.Return()))
			return m
		}(), "pass more than"},
		{"locals in blocks", sets(900, 2000), sets(1100, 2000), "set local variables more than 2000000 times"},
		{"frame", many(1, w.Times(80_000, w.Call(0), w.Drop())), many(1, w.Times(100_000, w.Call(0), w.Drop())), "bytes of native stack, the limit is 2097152"},
		{"types", types(20, 900), types(30, 900), "the sum of the squares is more than 20000000"},
		{"loops", shaped(0, w.Times(1_000, w.Loop())), shaped(0, slicesOf(42, w.Times(60_000, w.Loop()))...), "it has a loop every few bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := meter(c.under.Bytes()); err != nil {
				t.Errorf("below the limit: %v", err)
			}
			if _, err := meter(c.over.Bytes()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("above the limit: %v, expected %q", err, c.want)
			}
		})
	}
}

func slicesOf(n int, code []byte) [][]byte {
	var all [][]byte
	for range n {
		all = append(all, code)
	}
	return all
}

// The worst modules that are taken are validated with little memory. The test runs alone,
// for it measures what the process allocates.
func TestValidationIsCheap(t *testing.T) {
	// fill makes so many functions of the code that the module has its size.
	fill := func(m *w.Module, code []byte) *w.Module {
		for n := 0; n+len(code) < validationSize; n += len(code) {
			m.Func("", "", "", code)
		}
		return m
	}
	for _, c := range []struct {
		name string
		wasm *w.Module
	}{
		{"height", fill(many(1000), w.Code(w.Times(9990, w.I32Const(0)), w.Unreachable()))},
		{"calls", fill(many(1000), w.Code(w.Times(3, w.Call(0)), w.Unreachable(), w.Times(2000, []byte{0x01})))},
		{"nesting", fill(shaped(0), nested(maxNesting-1, nil))},
		{"ifs", fill(shaped(0), w.Times(40_000, w.I32Const(1), w.If()))},
		{"loops", fill(shaped(0), w.Times(60_000, w.Loop()))},
		{"labels", fill(shaped(0), w.Code(w.I32Const(0), []byte{0x0e}, w.U32(700_000), make([]byte, 700_001)))},
		{"functions", func() *w.Module {
			m := shaped(0)
			for range 90_000 {
				m.Func("", "", "")
			}
			return m
		}()},
		{"locals", func() *w.Module {
			m := shaped(0)
			for range maxAllLocals / maxLocals {
				f := m.Declare("", "")
				m.Raw(f, w.Code([]byte{1}, w.U32(maxLocals), []byte{w.I64, 0x0b}))
			}
			return m
		}()},
		{"elements", func() *w.Module {
			m := shaped(0)
			f := m.Func("", "", "")
			for range 5 {
				m.PassiveElem(func() (list []uint32) {
					for range maxElements / 5 {
						list = append(list, f)
					}
					return list
				}()...)
			}
			return m
		}()},
		{"types", func() *w.Module {
			m := shaped(0)
			for i := range 20 {
				m.Type(strings.Repeat("r", 900)+strings.Repeat("l", i), "")
			}
			return m
		}()},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.wasm.Func("", "", "", w.Drop()) // it is not valid, so that nothing is compiled
			var s [3]runtime.MemStats
			runtime.ReadMemStats(&s[0])
			wasm := c.wasm.Bytes()
			runtime.ReadMemStats(&s[0])
			out, err := meter(wasm)
			runtime.ReadMemStats(&s[1])
			if err != nil {
				t.Fatal(err)
			}
			rt := wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigInterpreter())
			defer rt.Close(t.Context())
			begin := time.Now()
			_, err = rt.CompileModule(t.Context(), out)
			took := time.Since(begin)
			runtime.ReadMemStats(&s[2])
			if err == nil || !strings.Contains(err.Error(), "invalid drop") {
				t.Fatal(err)
			}
			scanned, validated := s[1].TotalAlloc-s[0].TotalAlloc, s[2].TotalAlloc-s[1].TotalAlloc
			t.Logf("%d bytes, metered %d: %d MiB to meter, %d MiB and %s to validate", len(wasm), len(out), scanned>>20, validated>>20, took)
			if validated > validationMemory || scanned > validationMemory {
				t.Errorf("%d MiB are allocated to meter it and %d to validate it, expected at most %d", scanned>>20, validated>>20, validationMemory>>20)
			}
		})
	}
}

// wazero puts the module's name before each function's, and compares each function with
// each export.
func TestNamesAreCheap(t *testing.T) {
	build := func(functions, exports int) *w.Module {
		m := shaped(0)
		for n := range functions {
			f := m.Func("", "", "")
			if n < exports {
				m.Export(fmt.Sprint("e", n), f)
			}
		}
		return m
	}
	m := build(20_000, 1)
	name := strings.Repeat("n", 60_000)
	m.Custom("name", w.Code([]byte{0}, w.U32(uint32(len(name)+3)), w.U32(uint32(len(name))), []byte(name), []byte{1, 1, 0}))
	rt := wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigInterpreter())
	defer rt.Close(t.Context())
	compiled, err := rt.CompileModule(t.Context(), metered(t, m.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	compiled.ExportedFunctions() // it makes what a stack trace needs
	if took := heap() - before; took > 16<<20 {
		t.Errorf("the names of functions take %d MiB", took>>20)
	}
	runtime.KeepAlive(compiled)

	if _, err := meter(build(20_000, 4_000).Bytes()); err != nil {
		t.Error(err)
	}
	if _, err := meter(build(20_000, 6_000).Bytes()); err == nil || !strings.Contains(err.Error(), "the limit of their product is 100000000") {
		t.Error(err)
	}
}
