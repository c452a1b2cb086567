package wasm

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/wasmjob/wasmjob/abi"
	w "github.com/wasmjob/wasmjob/test/wasm"
)

// heap is how much the process' heap holds.
func heap() int64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// No instruction makes the engine keep more each time that it is executed. The test runs
// alone, for it measures the heap.
func TestNothingIsKeptByInstruction(t *testing.T) {
	for name, code := range map[string]func(m *w.Module, f uint32) []byte{
		"ref.func": func(_ *w.Module, f uint32) []byte { return w.Code(w.RefFunc(f), w.Drop()) },
		"ref.func of an import": func(*w.Module, uint32) []byte {
			return w.Code(w.RefFunc(0), w.Drop())
		},
		"ref.func that cannot be reached": func(_ *w.Module, f uint32) []byte {
			return w.Block(w.Br(0), w.RefFunc(f), w.Drop())
		},
		"table.set": func(_ *w.Module, f uint32) []byte { return w.Code(w.I32Const(0), w.RefFunc(f), []byte{0x26, 0}) },
		"table.get": func(*w.Module, uint32) []byte { return w.Code(w.I32Const(0), []byte{0x25, 0}, w.Drop()) },
		"table.fill": func(_ *w.Module, f uint32) []byte {
			return w.Code(w.I32Const(0), w.RefFunc(f), w.I32Const(9), w.TableFill())
		},
		"table.init": func(*w.Module, uint32) []byte {
			return w.Code(w.I32Const(0), w.I32Const(0), w.I32Const(9), w.TableInit(1))
		},
		"table.copy": func(*w.Module, uint32) []byte {
			return w.Code(w.I32Const(0), w.I32Const(1), w.I32Const(9), w.TableCopy())
		},
		"table.grow": func(_ *w.Module, f uint32) []byte {
			return w.Code(w.RefFunc(f), w.I32Const(1), w.TableGrow(), w.Drop())
		},
		"call_indirect": func(m *w.Module, _ uint32) []byte {
			return w.Code(w.I32Const(5), w.CallIndirect(m.Type("", "")))
		},
		"memory.init": func(*w.Module, uint32) []byte {
			return w.Code(w.I32Const(0), w.I32Const(0), w.I32Const(4), w.MemoryInit(0))
		},
		"memory.grow": func(*w.Module, uint32) []byte { return w.Code(w.I32Const(0), w.MemoryGrow(), w.Drop()) },
		"data.drop":   func(*w.Module, uint32) []byte { return []byte{0xfc, 9, 1} },
		"elem.drop":   func(*w.Module, uint32) []byte { return []byte{0xfc, 13, 2} },
		"a global":    func(*w.Module, uint32) []byte { return w.Code(w.GlobalGet(0), w.GlobalSet(0)) },
		"calls":       func(_ *w.Module, f uint32) []byte { return w.Call(f) },
		"an import":   func(*w.Module, uint32) []byte { return w.Code(w.I32Const(0), w.Call(0), w.Drop()) },
	} {
		t.Run(name, func(t *testing.T) {
			m := w.New()
			m.Import(abi.Module, "ctx_int", "i", "l")
			f := m.Func("", "", "")
			m.Export("callee", f)
			m.Table(10, 1000)
			m.Memory(1, 1)
			m.Global(0)
			m.Elem(5, f)
			m.PassiveElem(slices.Repeat([]uint32{f, 0}, 5)...)
			m.PassiveElem(f)
			m.PassiveData([]byte("data"))
			m.PassiveData([]byte("data"))
			body := code(m, f)
			m.Export("f", m.Func("i", "", "", w.Loop(body,
				w.Get(0), w.I32Const(1), w.Sub(), w.Tee(0), w.BrIf(0))))
			p := start(t, wazero.NewRuntimeConfig(), metered(t, m.Bytes()))
			p.fill = Quantum
			run := p.ExportedFunction("f")
			const turns = 200_000
			for range 2 { // the first time, what is made once is made
				if _, err := run.Call(t.Context(), turns); err != nil {
					t.Fatal(err)
				}
			}
			before := heap()
			if _, err := run.Call(t.Context(), turns); err != nil {
				t.Fatal(err)
			}
			kept := heap() - before
			runtime.KeepAlive(p)
			if kept > turns {
				t.Errorf("%d bytes are kept for each time that it is executed", kept/turns)
			}
		})
	}
}

// The memory budget is charged at least what the engine keeps for an instance.
func TestTableBytes(t *testing.T) {
	many := func(build func(m *w.Module, f uint32)) []byte {
		m := w.New()
		f := m.Func("", "", "")
		m.Export("f", f)
		m.Memory(1, 1)
		build(m, f)
		return m.Bytes()
	}
	for name, wasm := range map[string][]byte{
		"tables": many(func(m *w.Module, _ uint32) { m.Table(100_000, 100_000) }),
		"elements": many(func(m *w.Module, f uint32) {
			m.Table(100_000, 100_000)
			m.Elem(0, slices.Repeat([]uint32{f}, 100_000)...)
		}),
		"passive elements": many(func(m *w.Module, f uint32) { m.PassiveElem(slices.Repeat([]uint32{f}, 100_000)...) }),
		"element segments": many(func(m *w.Module, f uint32) {
			m.Table(1, 1)
			for range 20_000 {
				m.PassiveElem(f)
			}
		}),
		"data segments": many(func(m *w.Module, _ uint32) {
			for range 50_000 {
				m.PassiveData(nil)
			}
		}),
		"globals": many(func(m *w.Module, _ uint32) {
			for range 9_000 {
				m.Global(0)
			}
		}),
		"references": many(func(m *w.Module, _ uint32) {
			for range 9_000 {
				f := m.Func("", "", "")
				m.PassiveElem(f)
				m.Func("", "", "", w.RefFunc(f), w.Drop())
			}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			read, err := Read(wasm).Meter()
			if err != nil {
				t.Fatal(err)
			}
			ctx := t.Context()
			rt := wazero.NewRuntime(ctx)
			defer rt.Close(ctx)
			if err := offerTurns(ctx, rt); err != nil {
				t.Fatal(err)
			}
			compiled, err := rt.CompileModule(ctx, read.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			before := heap()
			instance, err := rt.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithName(""))
			if err != nil {
				t.Fatal(err)
			}
			took := heap() - before - int64(instance.Memory().Size())
			runtime.KeepAlive(instance)
			runtime.KeepAlive(wasm)
			t.Logf("%d bytes, charged %d", took, read.TableBytes)
			if spare := int64(64 << 10); took > read.TableBytes+spare { // what each instance is charged besides
				t.Errorf("an instance takes %d bytes, it is charged %d", took, read.TableBytes)
			}
			if read.TableBytes > 3*took {
				t.Errorf("an instance takes %d bytes, it is charged %d: far more", took, read.TableBytes)
			}
		})
	}
}

// ref.func may name what is declared, as the specification has it.
func TestUndeclaredReference(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		declare func(m *w.Module, f uint32)
		taken   bool
	}{
		"by an export":  {func(m *w.Module, f uint32) { m.Export("g", f) }, true},
		"by a segment":  {func(m *w.Module, f uint32) { m.PassiveElem(f) }, true},
		"by nothing":    {func(*w.Module, uint32) {}, false},
		"by its caller": {func(m *w.Module, f uint32) { m.Func("", "", "", w.Call(f)) }, false},
	} {
		m := w.New()
		f := m.Func("", "", "")
		m.Func("", "", "", w.RefFunc(f), w.Drop())
		c.declare(m, f)
		_, err := meter(m.Bytes())
		if (err == nil) != c.taken {
			t.Errorf("%s: %v", name, err)
		}
		rt := wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigInterpreter())
		if _, err := rt.CompileModule(t.Context(), m.Bytes()); (err == nil) != c.taken {
			t.Errorf("%s: wazero says %v", name, err)
		}
		rt.Close(t.Context())
	}
}

// Each function that code refers to takes a global, of which there is a limit.
func TestReferencesAreLimited(t *testing.T) {
	t.Parallel()
	m := w.New()
	var refer []byte
	var all []uint32
	for range maxGlobals {
		f := m.Func("", "", "")
		all = append(all, f)
		refer = append(refer, w.Code(w.RefFunc(f), w.Drop())...)
	}
	m.PassiveElem(all...)
	m.Func("", "", "", refer)
	if _, err := meter(m.Bytes()); err == nil || !strings.Contains(err.Error(), "more than 10000 globals") {
		t.Error(err)
	}
}
