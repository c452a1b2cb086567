package wasm

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/wasmjob/wasmjob/abi"
	w "github.com/wasmjob/wasmjob/test/wasm"
)

// engineStack reads the native stack of wazero's compiler: what calls use of it at the
// moment that a host function is called, and how large it is.
type engineStack struct{ function api.Function }

func (e engineStack) used() int {
	v := reflect.ValueOf(e.function).Elem()
	top := v.FieldByName("stackTop").Uint()
	pointer := v.FieldByName("execCtx").FieldByName("stackPointerBeforeGoCall").Pointer()
	return int(top) - int(pointer)
}

func (e engineStack) size() int {
	return reflect.ValueOf(e.function).Elem().FieldByName("stack").Len()
}

// deep is a module whose function f calls itself as often as its first parameter says, and
// asks the host at the bottom of it. build writes the body of f: what is before and after
// the call of itself, for which the parameter has been counted down.
type deep struct {
	name           string
	locals         string
	params         string // beside the first one
	results        string
	before, after  []byte
	more           func(m *w.Module) []byte // functions to call: code before
	arguments, end []byte
	trapped        bool // it traps after the call of itself, so that no code drops the results
}

// bottomName is an import that is called at the bottom.
const bottomName = "bottom"

// recursions are functions that take as much of the native stack as they can.
func recursions() []deep {
	repeat := func(n int, f func(i uint32) []byte) []byte {
		var code []byte
		for i := range uint32(n) {
			code = append(code, f(i)...)
		}
		return code
	}
	letters := func(letter string, n int) string {
		b := ""
		for range n {
			b += letter
		}
		return b
	}
	wide := func(results string, times int) func(m *w.Module) []byte {
		return func(m *w.Module) []byte {
			return w.Times(times, w.Call(m.Func("", results, "", w.Times(len(results), w.I64Const(0)))))
		}
	}
	extend := []byte{0xac}
	splat := []byte{0xfd, 0x0f}
	return []deep{
		{name: "nothing"},
		{name: "parameters", params: letters("l", 999), arguments: repeat(999, func(i uint32) []byte { return w.Get(1 + i) })},
		{name: "vectors as parameters", params: letters("v", 500), arguments: repeat(500, func(i uint32) []byte { return w.Get(1 + i) })},
		{name: "results", results: letters("l", 1000), end: repeat(1000, func(uint32) []byte { return w.I64Const(1) })},
		{name: "results that nothing takes", results: letters("l", 1000), trapped: true, end: w.Unreachable()},
		{name: "constants on the stack", before: repeat(3000, func(i uint32) []byte { return w.I64Const(int64(i) << 33) }), after: w.Times(2999, []byte{0x7c})},
		{name: "values on the stack", before: repeat(3000, func(i uint32) []byte { return w.Code(w.Get(0), extend) }), after: w.Times(2999, []byte{0x7c})},
		{name: "vectors on the stack", before: repeat(3000, func(i uint32) []byte { return w.Code(w.Get(0), splat) }), after: w.Times(2999, []byte{0xfd, 0x6e})},
		{name: "loads on the stack", before: repeat(3000, func(i uint32) []byte {
			return w.Code(w.Get(0), w.I32Const(255), []byte{0x71}, []byte{0x29, 3}, w.U32(8*i))
		}), after: w.Times(2999, []byte{0x7c})},
		{name: "loads of addresses that vary", before: repeat(3000, func(i uint32) []byte {
			return w.Code(w.Get(0), w.I32Const(255), []byte{0x71}, w.I32Const(int32(i)), w.Mul(), []byte{0x29, 3}, w.U32(8))
		}), after: w.Times(2999, []byte{0x7c})},
		{name: "stores to addresses that vary", before: repeat(3000, func(i uint32) []byte {
			return w.Code(w.Get(0), w.I32Const(255), []byte{0x71}, w.I32Const(int32(i)), w.Mul(), w.Tee(1), w.Get(0), w.Store())
		}), locals: "i"},
		{name: "locals", locals: letters("l", 500), before: repeat(500, func(i uint32) []byte { return w.Code(w.Get(0), extend, w.Set(1+i)) }),
			after: repeat(500, func(i uint32) []byte { return w.Code(w.I32Const(0), w.Get(1+i), []byte{0x37, 3, 0}) })},
		{name: "locals that are set again in blocks", locals: letters("l", 100), before: repeat(40, func(k uint32) []byte {
			return w.Code(w.Get(0), w.If(repeat(100, func(i uint32) []byte { return w.Code(w.Get(1+i), w.I64Const(int64(k)), []byte{0x7c}, w.Set(1+i)) })))
		}), after: repeat(100, func(i uint32) []byte { return w.Code(w.I32Const(0), w.Get(1+i), []byte{0x37, 3, 0}) })},
		{name: "locals in nested loops", locals: letters("l", 100), before: func() []byte {
			code := repeat(100, func(i uint32) []byte { return w.Code(w.Get(1+i), w.Get(0), extend, []byte{0x7c}, w.Set(1+i)) })
			for range 30 {
				code = w.Loop(code, w.Get(0), w.I32Const(-1), []byte{0x46}, w.BrIf(0))
			}
			return code
		}(), after: repeat(100, func(i uint32) []byte { return w.Code(w.I32Const(0), w.Get(1+i), []byte{0x37, 3, 0}) })},
		{name: "results of calls that are kept", more: wide(letters("l", 1000), 9), after: w.Times(8999, []byte{0x7c})},
		{name: "a loop that is not entered", more: func(m *w.Module) []byte {
			f := m.Func("", "l", "", w.I64Const(1))
			return w.Code(w.Get(0), w.I32Const(-1), []byte{0x46}, w.If(w.Loop(w.Times(3000, w.Call(f)), w.Times(2999, []byte{0x7c}), []byte{0xa7}, w.GlobalSet(0))))
		}},
		{name: "globals on the stack", before: w.Times(3000, w.GlobalGet(0)), after: w.Times(2999, w.Add())},
		{name: "calls on the stack", more: func(m *w.Module) []byte {
			f := m.Func("", "l", "", w.I64Const(1))
			return w.Times(3000, w.Call(f))
		}, after: w.Times(2999, []byte{0x7c})},
		{name: "indirect calls on the stack", more: func(m *w.Module) []byte {
			m.Table(1, 1)
			m.Elem(0, m.Func("", "l", "", w.I64Const(1)))
			return w.Times(3000, w.I32Const(0), w.CallIndirect(m.Type("", "l")))
		}, after: w.Times(2999, []byte{0x7c})},
		{name: "divisions on the stack", before: repeat(2000, func(i uint32) []byte { return w.Code(w.Get(0), w.I32Const(int32(i)+2), []byte{0x6d}) }), after: w.Times(1999, w.Add())},
		{name: "conversions on the stack", before: w.Times(2000, w.Get(0), []byte{0xb7, 0xaa}), after: w.Times(1999, w.Add())},
		{name: "selects on the stack", before: w.Times(2000, w.Get(0), w.Get(0), w.Get(0), []byte{0x1b}), after: w.Times(1999, w.Add())},
		{name: "tables on the stack", more: func(m *w.Module) []byte {
			m.Table(1, 1)
			return w.Times(2000, w.I32Const(0), []byte{0x25, 0, 0xd1})
		}, after: w.Times(1999, w.Add())},
		{name: "sizes on the stack", before: w.Times(2000, []byte{0x3f, 0}), after: w.Times(1999, w.Add())},
		{name: "memory.grow on the stack", before: w.Times(500, w.I32Const(0), w.MemoryGrow()), after: w.Times(499, w.Add())},
		{name: "shuffles on the stack", before: w.Times(2000, w.Get(0), splat, w.Get(0), splat, []byte{0xfd, 0x0d}, make([]byte, 16)), after: w.Times(1999, []byte{0xfd, 0x6e})},
		{name: "block results on the stack", more: func(m *w.Module) []byte {
			t := m.Type("", letters("l", 100))
			values := repeat(100, func(i uint32) []byte { return w.Code(w.Get(0), extend) })
			return w.Times(30, w.Get(0), []byte{0x04}, w.U32(t), values, []byte{0x05}, repeat(100, func(i uint32) []byte { return w.I64Const(int64(i)) }), []byte{0x0b})
		}, after: w.Times(2999, []byte{0x7c})},
	}
}

func (d *deep) wasm() []byte {
	m := w.New()
	m.Import(bottomName, bottomName, "", "")
	m.Memory(16, 16)
	m.Global(7)
	before := d.before
	if d.more != nil {
		before = w.Code(before, d.more(m))
	}
	f := m.Declare("i"+d.params, d.results)
	drops := w.Times(len(d.results), w.Drop())
	if d.trapped {
		drops = w.Unreachable()
	}
	end := d.end
	if d.results != "" && end == nil {
		end = w.Unreachable()
	}
	bottom := w.Code(w.Get(0), w.Eqz(), w.If(w.Call(0)))
	after := d.after
	switch {
	case bytes.HasSuffix(after, []byte{0x7c}):
		after = w.Code(after, []byte{0xa7}, w.GlobalSet(0))
	case bytes.HasSuffix(after, []byte{0xfd, 0x6e}):
		after = w.Code(after, []byte{0xfd, 0x1b, 0}, w.GlobalSet(0))
	case bytes.HasSuffix(after, w.Add()):
		after = w.Code(after, w.GlobalSet(0))
	}
	m.Body(f, d.locals, bottom, before, w.Get(0), w.If(w.Get(0), w.I32Const(1), w.Sub(), d.arguments, w.Call(f), drops), after, w.Unreachable(), end)
	var zeros []byte
	for _, p := range d.params {
		if p == 'v' {
			zeros = append(zeros, w.Code(w.I32Const(0), []byte{0xfd, 0x0f})...)
		} else {
			zeros = append(zeros, w.I64Const(0)...)
		}
	}
	m.Export("f", m.Func("i", "", "", w.Get(0), zeros, w.Call(f), w.Times(len(d.results), w.Drop())))
	return m.Bytes()
}

// run makes an instance of the metered module of d, whose host is asked by turn.
func (d *deep) run(t *testing.T, turn func(e engineStack), bottom func(e engineStack)) (f api.Function, bound int) {
	t.Helper()
	ctx := t.Context()
	wasm := d.wasm()
	s, err := scanModule(wasm)
	if err != nil {
		t.Fatal(err)
	}
	n, _ := s.number()
	b := s.newBodies(n)
	if err := b.decode(len(s.code)-2, s.cursor(s.code[len(s.code)-2])); err != nil { // the last one calls it
		t.Fatal(err)
	}
	rt := wazero.NewRuntime(ctx)
	t.Cleanup(func() { rt.Close(context.Background()) })
	var e engineStack
	for module, host := range map[string]any{
		MeterModule: func() uint32 { turn(e); return Quantum },
		bottomName:  func() { bottom(e) },
	} {
		name := map[bool]string{true: MeterImport, false: bottomName}[module == MeterModule]
		if _, err := rt.NewHostModuleBuilder(module).NewFunctionBuilder().WithFunc(host).Export(name).Instantiate(ctx); err != nil {
			t.Fatal(err)
		}
	}
	mod, err := rt.Instantiate(ctx, metered(t, wasm))
	if err != nil {
		t.Fatal(err)
	}
	e.function = mod.ExportedFunction("f")
	return e.function, b.shape.native()
}

// A call takes no more of the native stack than it pays for, whatever makes it large.
func TestCallsPayForTheirStack(t *testing.T) {
	t.Parallel()
	for _, d := range recursions() {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			used := 0
			f, bound := d.run(t, func(engineStack) {}, func(e engineStack) { used = e.used() })
			measure := func(depth uint64) int {
				used = 0
				_, _ = f.Call(t.Context(), depth) // it traps on its way back
				if used == 0 {
					t.Fatal("it did not come to the bottom")
				}
				return used
			}
			few, many := measure(3), measure(13)
			frame := (many - few) / 10
			t.Logf("%d bytes, of at most %d", frame, bound)
			if frame <= 0 || frame > bound {
				t.Errorf("a call takes %d bytes of the native stack, and pays for %d", frame, bound)
			}
		})
	}
}

// The native stack has a limit, however fast it grows.
func TestStackIsBounded(t *testing.T) {
	for _, d := range recursions() {
		t.Run(d.name, func(t *testing.T) {
			f, _ := d.run(t, func(e engineStack) {
				if StackExceeds(int64(e.size())) {
					panic("stack overflow")
				}
			}, func(engineStack) {})
			if _, err := f.Call(t.Context(), 1<<31-1); err == nil || !strings.Contains(err.Error(), "stack overflow") {
				t.Fatalf("%.300s", fmt.Sprint(err))
			}
			size := engineStack{f}.size()
			t.Logf("%d KiB", size>>10)
			if size > 2*abi.MaxStack {
				t.Errorf("the native stack has %d MiB, expected at most %d", size>>20, 2*abi.MaxStack>>20)
			}
		})
	}
}
