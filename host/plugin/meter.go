package plugin

import (
	"context"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/wasmjob/wasmjob/abi"
)

// A guest that computes must come back to Go now and then: to be stopped when
// its time is up, and to let Go's scheduler and collector in. wazero v1.12.0
// can do that by itself, but then every turn of every loop leaves the guest,
// which costs some 100 ns; and Go compiles nearly every function to a loop. So
// modules are metered instead: a global counts the turns down, and only when it
// is used up a host function is called, which looks at the context and says how
// many turns there are until the next time.
//
//	loop        (if (result i32) (i32.le_s (global.get $turns) (i32.const 0))
//	              (then (call $turn)) (else (global.get $turns)))
//	            (global.set $turns (i32.sub … (i32.const cost)))
//
// Functions can go on without a loop: two calls of itself in each, or many calls
// of the next one in each, and nobody lives to see the end. So what calls
// functions of the module, and what is not small, counts a turn when it begins.
//
// What costs much more than a turn uses up more: a turn costs its function's
// size in KiB, and the host is asked before 64 KiB or more are copied or filled,
// before each of the bulk instructions that are rare, and before a function of
// WASI is called, which may read or fill a whole memory.
const (
	turns       = 1000
	meterModule = "wasmjob" // no module may import from it: it is not offered
	meterImport = "turn"
	bulkShift   = 16
	costShift   = 10
	smallSize   = 256 // bytes of a body that is done before it could be counted
)

// registerMeter gives a wazero runtime the function that metered modules call.
func registerMeter(ctx context.Context, rt wazero.Runtime) error {
	_, err := rt.NewHostModuleBuilder(meterModule).NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, _ api.Module, stack []uint64) {
			in := current(ctx)
			if in == nil {
				panic(&fault{text: "the guest runs outside an invocation"})
			}
			in.stopIfEnded()
			stack[0] = turns
		}), nil, []api.ValueType{api.ValueTypeI32}).Export(meterImport).Instantiate(ctx)
	return err
}

// meter returns a module that does the same and comes back to the host. It must
// follow a scan without error. It returns false for what is better left to
// wazero: a module without code; one with an instruction that is not known
// here, or with the number of something that it does not have, which would mean
// something that is added here; or one with debugging information, whose places
// in the code would all be wrong.
func meter(wasm []byte) ([]byte, bool) {
	m := &metering{in: cursor{b: wasm, off: 8}}
	if !m.survey() {
		return nil, false
	}
	m.code = m.codeSection(m.sections[m.at[10]].body)
	out := make([]byte, 0, len(wasm)+len(m.code))
	out = append(out, wasm[:8]...)
	previous := 0
	for _, s := range m.sections {
		if s.id != 0 {
			order := sectionOrder(s.id)
			for _, missing := range []byte{2, 6} {
				if m.at[missing] < 0 && previous < sectionOrder(missing) && order > sectionOrder(missing) {
					out = appendSection(out, missing, m.section(missing, cursor{b: []byte{0}}))
				}
			}
			previous = order
		}
		body := m.section(s.id, s.body)
		if m.failed {
			return nil, false
		}
		out = appendSection(out, s.id, body)
	}
	return out, !m.failed
}

// metering rewrites one module.
type metering struct {
	in       cursor
	sections []section
	at       [14]int // by id: where in sections, -1 if it is not there

	types, imports, funcs, globals uint32 // how many the module has

	foreign []bool // by import: it does not ask by itself, as those of job_v1 do

	code   []byte // the new section
	bulk   bool   // the helpers for bulk instructions are needed
	calls  bool   // the body at hand calls functions of the module
	opens  bool   // it does so far nothing but what is always done, once
	turned bool   // it always comes to a loop before anything that takes long
	failed bool

	out  []byte // of the section or body at hand
	from int    // what is read from here on has not been copied to out
}

type section struct {
	id   byte
	body cursor
}

// survey finds the sections and counts what is numbered.
func (m *metering) survey() bool {
	for i := range m.at {
		m.at[i] = -1
	}
	c := &m.in
	for c.left() > 0 {
		id := c.byte()
		size := c.u32()
		start := c.off
		c.skip(int(size))
		if c.err != nil || int(id) >= len(m.at) {
			return false
		}
		s := section{id, cursor{b: c.b[:c.off], off: start}}
		if id != 0 {
			m.at[id] = len(m.sections)
			body := s.body
			switch id {
			case 1:
				m.types = body.u32()
			case 2:
				m.imports = body.u32()
				for range m.imports {
					module := body.bytes(body.u32())
					m.foreign = append(m.foreign, string(module) != abi.Module)
					body.skip(int(body.u32()))
					if body.byte() != kindFunc { // which the host would refuse
						return false
					}
					body.u32()
				}
			case 3:
				m.funcs = body.u32()
			case 6:
				m.globals = body.u32()
			}
		} else if body := s.body; strings.HasPrefix(body.name("name"), ".debug_") {
			return false
		}
		m.sections = append(m.sections, s)
	}
	return c.err == nil && m.at[1] >= 0 && m.at[3] >= 0 && m.at[10] >= 0 && m.funcs > 0
}

func (m *metering) copyHelper() uint32 { return m.imports + 1 + m.funcs }
func (m *metering) fillHelper() uint32 { return m.imports + 1 + m.funcs + 1 }

// begin starts a copy of what c will read.
func (m *metering) begin(c *cursor) { m.out, m.from = nil, c.off }

// flush copies what was read up to here.
func (m *metering) flush(c *cursor, upTo int) {
	m.out = append(m.out, c.b[m.from:upTo]...)
	m.from = upTo
}

// function copies a function's number, moved, and returns the old one.
func (m *metering) function(c *cursor) uint32 {
	at := c.off
	f := c.u32()
	m.within(c, f, m.imports+m.funcs)
	if f >= m.imports { // one import has come before the module's own functions
		m.flush(c, at)
		m.out = appendU32(m.out, f+1)
		m.from = c.off
	}
	return f
}

// unknown gives up.
func (m *metering) unknown(c *cursor) {
	m.failed = true
	c.fail("not known here")
}

// within gives up if a number is not one of the module's own.
func (m *metering) within(c *cursor, number, count uint32) {
	if number >= count {
		m.unknown(c)
	}
}

// blockType skips the type of a block.
func (m *metering) blockType(c *cursor) {
	if c.left() > 0 && c.b[c.off]&0xc0 == 0x40 { // none, or a value type
		c.skip(1)
		return
	}
	m.within(c, c.u32(), m.types)
}

// count copies the length of a vector that gets more elements.
func (m *metering) count(c *cursor, more uint32) uint32 {
	n := c.u32()
	m.out = appendU32(m.out, n+more)
	m.from = c.off
	return n
}

// section returns the new body of a section.
func (m *metering) section(id byte, body cursor) []byte {
	c := &body
	m.begin(c)
	switch id {
	case 0:
		if name := c.name("name"); name == "name" {
			m.flush(c, c.off)
			m.names(c)
		}
	case 1:
		m.count(c, 2)
		m.flush(c, len(c.b))
		m.out = append(m.out, 0x60, 0, 1, 0x7f)             // ()->(i32)
		m.out = append(m.out, 0x60, 3, 0x7f, 0x7f, 0x7f, 0) // (i32,i32,i32)->()
		return m.out
	case 2:
		m.count(c, 1)
		m.flush(c, len(c.b))
		m.out = append(appendU32(m.out, uint32(len(meterModule))), meterModule...)
		m.out = append(appendU32(m.out, uint32(len(meterImport))), meterImport...)
		return appendU32(append(m.out, kindFunc), m.types)
	case 3:
		helpers := uint32(0)
		if m.bulk {
			helpers = 2
		}
		m.count(c, helpers)
		m.flush(c, len(c.b))
		for range helpers {
			m.out = appendU32(m.out, m.types+1)
		}
		return m.out
	case 6:
		for n := m.count(c, 1); n > 0 && c.err == nil; n-- {
			c.skip(2)
			m.constant(c)
		}
		m.flush(c, c.off)
		m.out = append(m.out, 0x7f, 1, 0x41, 0, 0x0b) // (mut i32) 0
	case 7:
		for n := c.u32(); n > 0 && c.err == nil; n-- {
			c.skip(int(c.u32()))
			switch c.byte() {
			case kindFunc:
				m.function(c)
			case kindGlobal:
				m.within(c, c.u32(), m.globals)
			default:
				c.u32()
			}
		}
	case 8:
		m.function(c)
	case 9:
		m.elements(c)
	case 10:
		return m.code
	case 11:
		for n := c.u32(); n > 0 && c.err == nil; n-- {
			flag := c.u32()
			if flag == 2 {
				c.u32()
			}
			if flag != 1 {
				m.constant(c)
			}
			c.skip(int(c.u32()))
		}
	default:
		c.off = len(c.b)
	}
	if id == 0 {
		c.off = len(c.b)
	}
	if c.err != nil || c.off != len(c.b) {
		m.failed = true
		return nil
	}
	m.flush(c, c.off)
	return m.out
}

// elements copies the element section.
func (m *metering) elements(c *cursor) {
	for n := c.u32(); n > 0 && c.err == nil; n-- {
		flag := c.u32()
		if flag&1 == 0 {
			if flag&2 != 0 {
				c.u32()
			}
			m.constant(c)
		}
		if flag&3 != 0 {
			c.skip(1)
		}
		for k := c.u32(); k > 0 && c.err == nil; k-- {
			if flag&4 != 0 {
				m.constant(c)
			} else {
				m.function(c)
			}
		}
	}
}

// constant copies a constant expression.
func (m *metering) constant(c *cursor) {
	for c.err == nil && m.instruction(c, nil) != 0x0b {
	}
}

// names copies the names of the module and of functions; those of locals and
// labels have no use here.
func (m *metering) names(c *cursor) {
	for c.left() > 0 {
		id := c.byte()
		body := cursor{b: c.b, off: c.off}
		size := body.u32()
		c.off = body.off
		c.skip(int(size))
		if c.err != nil || id > 1 {
			break
		}
		sub := cursor{b: c.b[:c.off], off: body.off}
		inner := metering{imports: m.imports, funcs: m.funcs, from: sub.off}
		if id == 1 {
			for n := sub.u32(); n > 0 && sub.err == nil; n-- {
				inner.function(&sub)
				sub.skip(int(sub.u32()))
			}
		}
		if sub.err != nil {
			break
		}
		inner.flush(&sub, len(sub.b))
		m.out = appendSection(m.out, id, inner.out)
	}
	m.from = len(c.b)
}

// codeSection returns the new code section.
func (m *metering) codeSection(all cursor) []byte {
	c := &all
	n := c.u32()
	code := make([]byte, 5, 64+c.left()/4*5) // the count comes later
	var scratch []byte
	for range n {
		size := c.u32()
		if c.err != nil || int64(size) > int64(c.left()) {
			m.failed = true
			return nil
		}
		body := cursor{b: c.b[:c.off+int(size)], off: c.off}
		c.skip(int(size))
		m.out, m.from = scratch[:0], body.off
		for groups := body.u32(); groups > 0 && body.err == nil; groups-- {
			body.u32()
			body.skip(1)
		}
		m.flush(&body, body.off)
		begin := len(m.out)
		m.calls, m.opens, m.turned = false, true, false
		check := m.check(size)
		for body.left() > 0 {
			m.instruction(&body, check)
		}
		if body.err != nil || m.failed {
			m.failed = true
			return nil
		}
		m.flush(&body, body.off)
		if (m.calls || size >= smallSize) && !m.turned {
			m.out = slices.Insert(m.out, begin, check...)
		}
		scratch = m.out
		code = append(appendU32(code, uint32(len(m.out))), m.out...)
	}
	if m.bulk {
		n += 2
		for _, do := range [][]byte{{0xfc, 10, 0, 0}, {0xfc, 11, 0}} { // memory.copy, memory.fill
			body := []byte{0, 0x20, 2, 0x41, bulkShift, 0x76, 0x04, 0x40} // if n >> 16 != 0
			body = append(m.ask(body), 0x0b, 0x20, 0, 0x20, 1, 0x20, 2)
			body = append(append(body, do...), 0x0b)
			code = append(appendU32(code, uint32(len(body))), body...)
		}
	}
	count := appendU32(nil, n)
	start := 5 - len(count)
	copy(code[start:], count)
	return code[start:]
}

// ask appends a call of the host that needs nothing on the stack.
func (m *metering) ask(b []byte) []byte {
	return appendU32(append(appendU32(append(b, 0x10), m.imports), 0x24), m.globals)
}

// check is what counts a turn in a function of that size.
func (m *metering) check(size uint32) []byte {
	b := appendU32([]byte{0x23}, m.globals)
	b = append(b, 0x41, 0, 0x4c, 0x04, 0x7f, 0x10)
	b = append(appendU32(b, m.imports), 0x05, 0x23)
	b = append(appendU32(b, m.globals), 0x0b, 0x41)
	b = append(appendI32(b, int32(1+size>>costShift)), 0x6b, 0x24)
	return appendU32(b, m.globals)
}

// instruction copies one instruction of WebAssembly 2.0 and returns its first
// byte. check follows the beginning of a loop.
func (m *metering) instruction(c *cursor, check []byte) byte {
	start := c.off
	op := c.byte()
	switch op {
	case 0x03:
		m.turned = m.turned || m.opens
	case 0x00, 0x04, 0x05, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0xfc: // may go elsewhere, or take long
		m.opens = false
	}
	switch {
	case op == 0x02 || op == 0x04: // block, if
		m.blockType(c)
		return op
	case op == 0x03: // loop
		m.blockType(c)
		if c.err == nil {
			m.flush(c, c.off)
			m.out = append(m.out, check...)
		}
		return op
	case op <= 0x01, op == 0x05, op == 0x0b, op == 0x0f, op == 0x1a, op == 0x1b, // no immediates
		op >= 0x45 && op <= 0xc4, op == 0xd1:
		return op
	case op == 0x23 || op == 0x24: // globals
		m.within(c, c.u32(), m.globals)
		return op
	case op == 0x0c || op == 0x0d || op >= 0x20 && op <= 0x26: // br, br_if, locals, tables
		c.u32()
		return op
	case op == 0x0e: // br_table
		for n := c.u32(); n > 0 && c.err == nil; n-- {
			c.u32()
		}
		c.u32()
		return op
	case op == 0x10 || op == 0xd2: // call, ref.func
		if called := *c; op == 0x10 {
			if f := called.u32(); f < m.imports && m.foreign[f] {
				m.askFirst(c, start)
			}
		}
		f := m.function(c)
		m.calls = m.calls || op == 0x10 && f >= m.imports
		return op
	case op == 0x11: // call_indirect
		m.calls = true
		m.within(c, c.u32(), m.types)
		c.u32()
		return op
	case op == 0x1c: // select with types
		c.skip(int(c.u32()))
		return op
	case op >= 0x28 && op <= 0x3e: // loads and stores
		c.u32()
		c.u32()
		return op
	case op == 0x3f || op == 0x40 || op == 0xd0: // memory.size, memory.grow, ref.null
		c.skip(1)
		return op
	case op == 0x41:
		c.signed(32)
		return op
	case op == 0x42:
		c.signed(64)
		return op
	case op == 0x43:
		c.skip(4)
		return op
	case op == 0x44:
		c.skip(8)
		return op
	case op == 0xfc:
		m.prefixed(c, start)
		return op
	case op == 0xfd:
		m.vector(c)
		return op
	}
	m.unknown(c)
	return 0
}

// prefixed copies the rest of an instruction that begins with 0xfc.
func (m *metering) prefixed(c *cursor, start int) {
	switch op := c.u32(); {
	case op <= 7: // saturating truncation
	case op == 10 || op == 11: // memory.copy, memory.fill
		c.skip(int(12 - op))
		if c.err == nil {
			m.bulk = true
			helper := m.copyHelper()
			if op == 11 {
				helper = m.fillHelper()
			}
			m.flush(c, start)
			m.out = appendU32(append(m.out, 0x10), helper)
			m.from = c.off
		}
	case op == 8 || op == 12 || op == 14: // memory.init, table.init, table.copy
		m.askFirst(c, start)
		c.u32()
		c.u32()
	case op == 15 || op == 17: // table.grow, table.fill
		m.askFirst(c, start)
		c.u32()
	case op == 9 || op == 13 || op == 16: // data.drop, elem.drop, table.size
		c.u32()
	default:
		m.unknown(c)
	}
}

// askFirst has the host asked before the instruction that begins at start.
func (m *metering) askFirst(c *cursor, start int) {
	if c.err == nil {
		m.flush(c, start)
		m.out = m.ask(m.out)
	}
}

// vector copies the rest of an instruction that begins with 0xfd.
func (m *metering) vector(c *cursor) {
	switch op := c.u32(); {
	case op <= 11, op == 92, op == 93: // loads and stores
		c.u32()
		c.u32()
	case op == 12 || op == 13: // v128.const, i8x16.shuffle
		c.skip(16)
	case op >= 21 && op <= 34: // lanes
		c.skip(1)
	case op >= 84 && op <= 91: // loads and stores of a lane
		c.u32()
		c.u32()
		c.skip(1)
	case op > 255:
		m.unknown(c)
	}
}
