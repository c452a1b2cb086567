// Package wasm assembles WebAssembly modules for tests: modules that no
// compiler emits, written as Go code instead of opaque files.
//
// A body is a concatenation of instructions, each of them bytes:
//
//	m := wasm.New()
//	f := m.Func("i", "", "", wasm.Loop(wasm.Br(0)))
//	m.Export("run", f)
//	module := m.Bytes()
package wasm

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
)

// Value types and the empty block type, as the binary format numbers them.
const (
	I32     = 0x7f
	I64     = 0x7e
	F32     = 0x7d
	F64     = 0x7c
	V128    = 0x7b
	FuncRef = 0x70
	None    = 0x40
)

// Module is a module under construction. Nothing checks that it is valid.
type Module struct {
	types   [][]byte
	imports [][]byte
	funcs   []uint32 // types of the module's own functions
	bodies  [][]byte
	tables  [][]byte
	memory  []byte
	globals [][]byte
	exports [][]byte
	start   []byte
	elems   [][]byte
	data    [][]byte
	counted bool
	custom  []byte // whole sections, appended to the module
}

// New returns an empty module.
func New() *Module { return &Module{} }

// types of a signature: one letter each, i, l, f, d or v.
func values(letters string) []byte {
	list := U32(uint32(len(letters)))
	for _, l := range []byte(letters) {
		list = append(list, map[byte]byte{'i': I32, 'l': I64, 'f': F32, 'd': F64, 'v': V128, 'r': FuncRef}[l])
	}
	return list
}

// Type returns the number of a function type. Parameters and results are
// letters: i, l, f, d, v, r for i32, i64, f32, f64, v128, funcref.
func (m *Module) Type(params, results string) uint32 {
	t := Code([]byte{0x60}, values(params), values(results))
	for i, known := range m.types {
		if bytes.Equal(known, t) {
			return uint32(i)
		}
	}
	m.types = append(m.types, t)
	return uint32(len(m.types) - 1)
}

// Import returns the number of an imported function. All imports precede the
// first function of the module.
func (m *Module) Import(module, name, params, results string) uint32 {
	t := m.Type(params, results)
	m.imports = append(m.imports, Code(text(module), text(name), []byte{0}, U32(t)))
	return uint32(len(m.imports) - 1)
}

// Declare returns the number of a function whose body comes later.
func (m *Module) Declare(params, results string) uint32 {
	m.funcs = append(m.funcs, m.Type(params, results))
	m.bodies = append(m.bodies, nil)
	return uint32(len(m.imports) + len(m.funcs) - 1)
}

// Body sets the body of a declared function. Locals are letters as in Type;
// the end instruction is added.
func (m *Module) Body(f uint32, locals string, code ...[]byte) {
	groups := U32(uint32(len(locals)))
	for _, l := range []byte(locals) {
		groups = append(groups, values(string(l))...)
	}
	m.Raw(f, Code(groups, Code(code...), []byte{0x0b}))
}

// Raw sets the body of a declared function as it is, with its locals and its
// end instruction.
func (m *Module) Raw(f uint32, body []byte) { m.bodies[int(f)-len(m.imports)] = body }

// Func declares a function with its body.
func (m *Module) Func(params, results, locals string, code ...[]byte) uint32 {
	f := m.Declare(params, results)
	m.Body(f, locals, code...)
	return f
}

// Table adds a table of function references.
func (m *Module) Table(least, most uint32) {
	m.tables = append(m.tables, Code([]byte{FuncRef, 1}, U32(least), U32(most)))
}

// Memory sets the memory, in pages of 64 KiB. A most of 0 leaves it unbounded.
func (m *Module) Memory(least, most uint32) {
	m.memory = Code([]byte{0}, U32(least))
	if most > 0 {
		m.memory = Code([]byte{1}, U32(least), U32(most))
	}
}

// Global adds a mutable i32 and returns its number.
func (m *Module) Global(initial int32) uint32 {
	m.globals = append(m.globals, Code([]byte{I32, 1}, I32Const(initial), []byte{0x0b}))
	return uint32(len(m.globals) - 1)
}

// Export exports a function.
func (m *Module) Export(name string, f uint32) {
	m.exports = append(m.exports, Code(text(name), []byte{0}, U32(f)))
}

// ExportMemory exports the memory.
func (m *Module) ExportMemory(name string) {
	m.exports = append(m.exports, Code(text(name), []byte{2, 0}))
}

// Start sets the start function.
func (m *Module) Start(f uint32) { m.start = U32(f) }

// Elem fills table 0 with functions from an offset on.
func (m *Module) Elem(offset int32, funcs ...uint32) {
	m.elems = append(m.elems, Code([]byte{0}, I32Const(offset), []byte{0x0b}, list(funcs)))
}

// PassiveElem adds a passive segment of functions and returns its number.
func (m *Module) PassiveElem(funcs ...uint32) uint32 {
	m.elems = append(m.elems, Code([]byte{1, 0}, list(funcs)))
	return uint32(len(m.elems) - 1)
}

// DeclaredElem adds a declarative segment: it lets bodies refer to the functions.
func (m *Module) DeclaredElem(funcs ...uint32) {
	m.elems = append(m.elems, Code([]byte{3, 0}, list(funcs)))
}

// Data copies bytes into the memory when an instance is made.
func (m *Module) Data(offset int32, b []byte) {
	m.data = append(m.data, Code([]byte{0}, I32Const(offset), []byte{0x0b}, U32(uint32(len(b))), b))
}

// PassiveData adds a passive segment and returns its number.
func (m *Module) PassiveData(b []byte) uint32 {
	m.counted = true
	m.data = append(m.data, Code([]byte{1}, U32(uint32(len(b))), b))
	return uint32(len(m.data) - 1)
}

// Custom appends a custom section.
func (m *Module) Custom(name string, body []byte) {
	m.custom = append(m.custom, section(0, Code(text(name), body))...)
}

// Bytes is the module in the binary format.
func (m *Module) Bytes() []byte {
	out := []byte("\x00asm\x01\x00\x00\x00")
	vector := func(id byte, elements [][]byte) {
		if len(elements) > 0 {
			out = append(out, section(id, Code(U32(uint32(len(elements))), Code(elements...)))...)
		}
	}
	vector(1, m.types)
	vector(2, m.imports)
	if len(m.funcs) > 0 {
		out = append(out, section(3, list(m.funcs))...)
	}
	vector(4, m.tables)
	if m.memory != nil {
		vector(5, [][]byte{m.memory})
	}
	vector(6, m.globals)
	vector(7, m.exports)
	if m.start != nil {
		out = append(out, section(8, m.start)...)
	}
	vector(9, m.elems)
	if m.counted {
		out = append(out, section(12, U32(uint32(len(m.data))))...)
	}
	bodies := make([][]byte, len(m.bodies))
	for i, b := range m.bodies {
		bodies[i] = Code(U32(uint32(len(b))), b)
	}
	vector(10, bodies)
	vector(11, m.data)
	return append(out, m.custom...)
}

func section(id byte, body []byte) []byte {
	return Code([]byte{id}, U32(uint32(len(body))), body)
}

func text(s string) []byte { return Code(U32(uint32(len(s))), []byte(s)) }

func list(numbers []uint32) []byte {
	b := U32(uint32(len(numbers)))
	for _, n := range numbers {
		b = append(b, U32(n)...)
	}
	return b
}

// U32 is an unsigned LEB128 number.
func U32(v uint32) []byte { return binary.AppendUvarint(nil, uint64(v)) }

// Signed is a signed LEB128 number.
func Signed(v int64) []byte {
	var b []byte
	for {
		d := byte(v & 0x7f)
		v >>= 7
		if (v == 0 && d&0x40 == 0) || (v == -1 && d&0x40 != 0) {
			return append(b, d)
		}
		b = append(b, d|0x80)
	}
}

// Code joins instructions.
func Code(parts ...[]byte) []byte { return slices.Concat(parts...) }

// Times repeats instructions.
func Times(n int, parts ...[]byte) []byte { return bytes.Repeat(Code(parts...), n) }

// Op is an instruction, or several, given by its bytes.
func Op(b ...byte) []byte { return b }

// I32Const pushes an i32.
func I32Const(v int32) []byte { return append([]byte{0x41}, Signed(int64(v))...) }

// I64Const pushes an i64.
func I64Const(v int64) []byte { return append([]byte{0x42}, Signed(v)...) }

// F64Const pushes an f64.
func F64Const(v float64) []byte {
	return binary.LittleEndian.AppendUint64([]byte{0x44}, math.Float64bits(v))
}

// Get pushes a local.
func Get(local uint32) []byte { return append([]byte{0x20}, U32(local)...) }

// Set pops a local.
func Set(local uint32) []byte { return append([]byte{0x21}, U32(local)...) }

// Tee sets a local and leaves its value on the stack.
func Tee(local uint32) []byte { return append([]byte{0x22}, U32(local)...) }

// GlobalGet pushes a global.
func GlobalGet(g uint32) []byte { return append([]byte{0x23}, U32(g)...) }

// GlobalSet pops a global.
func GlobalSet(g uint32) []byte { return append([]byte{0x24}, U32(g)...) }

// Call calls a function.
func Call(f uint32) []byte { return append([]byte{0x10}, U32(f)...) }

// CallIndirect calls the function of table 0 whose number is on the stack.
func CallIndirect(typ uint32) []byte { return Code([]byte{0x11}, U32(typ), []byte{0}) }

// Block is a block without a result.
func Block(code ...[]byte) []byte { return Code([]byte{0x02, None}, Code(code...), []byte{0x0b}) }

// Loop is a loop without a result.
func Loop(code ...[]byte) []byte { return Code([]byte{0x03, None}, Code(code...), []byte{0x0b}) }

// If is a block without a result, whose condition is on the stack.
func If(code ...[]byte) []byte { return Code([]byte{0x04, None}, Code(code...), []byte{0x0b}) }

// BlockOf is a block of a function type: it takes the parameters from the stack
// and leaves the results there.
func BlockOf(typ uint32, code ...[]byte) []byte {
	return Code([]byte{0x02}, Signed(int64(typ)), Code(code...), []byte{0x0b})
}

// LoopOf is a loop of a function type. A branch to it takes the parameters.
func LoopOf(typ uint32, code ...[]byte) []byte {
	return Code([]byte{0x03}, Signed(int64(typ)), Code(code...), []byte{0x0b})
}

// Br branches to an enclosing block, 0 being the innermost.
func Br(label uint32) []byte { return append([]byte{0x0c}, U32(label)...) }

// BrIf branches if the number on the stack is not 0.
func BrIf(label uint32) []byte { return append([]byte{0x0d}, U32(label)...) }

// BrTable branches to the label that the stack chooses; the last is the default.
func BrTable(labels ...uint32) []byte {
	return Code([]byte{0x0e}, list(labels[:len(labels)-1]), U32(labels[len(labels)-1]))
}

// Return returns from the function.
func Return() []byte { return []byte{0x0f} }

// Drop drops a value.
func Drop() []byte { return []byte{0x1a} }

// Unreachable traps.
func Unreachable() []byte { return []byte{0x00} }

// Eqz tells whether an i32 is 0.
func Eqz() []byte { return []byte{0x45} }

// Add adds two i32.
func Add() []byte { return []byte{0x6a} }

// Sub subtracts an i32 from another.
func Sub() []byte { return []byte{0x6b} }

// Mul multiplies two i32.
func Mul() []byte { return []byte{0x6c} }

// Store stores an i32 at the address below it.
func Store() []byte { return []byte{0x36, 2, 0} }

// Load loads an i32.
func Load() []byte { return []byte{0x28, 2, 0} }

// MemoryGrow grows the memory by the pages on the stack.
func MemoryGrow() []byte { return []byte{0x40, 0} }

// MemoryCopy copies within the memory: to, from, length.
func MemoryCopy() []byte { return []byte{0xfc, 10, 0, 0} }

// MemoryFill fills memory: where, byte, length.
func MemoryFill() []byte { return []byte{0xfc, 11, 0} }

// MemoryInit copies from a passive segment into memory: to, from, length.
func MemoryInit(data uint32) []byte { return Code([]byte{0xfc, 8}, U32(data), []byte{0}) }

// TableInit copies from a passive segment into table 0: to, from, length.
func TableInit(elem uint32) []byte { return Code([]byte{0xfc, 12}, U32(elem), []byte{0}) }

// TableCopy copies within table 0: to, from, length.
func TableCopy() []byte { return []byte{0xfc, 14, 0, 0} }

// TableGet pushes the reference in table 0 whose number is on the stack.
func TableGet() []byte { return []byte{0x25, 0} }

// TableSet stores a reference in table 0: where, reference.
func TableSet() []byte { return []byte{0x26, 0} }

// TableSize pushes the size of table 0.
func TableSize() []byte { return []byte{0xfc, 16, 0} }

// TableGrow grows table 0: reference, by.
func TableGrow() []byte { return []byte{0xfc, 15, 0} }

// TableFill fills table 0: where, reference, length.
func TableFill() []byte { return []byte{0xfc, 17, 0} }

// RefNull pushes a null function reference.
func RefNull() []byte { return []byte{0xd0, FuncRef} }

// RefFunc pushes a reference of a function.
func RefFunc(f uint32) []byte { return append([]byte{0xd2}, U32(f)...) }
