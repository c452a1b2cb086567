package wasm

import "github.com/wasmjob/wasmjob/abi"

// A guest that computes must come back to Go now and then: to be stopped when
// its time is up, and to let Go's scheduler and collector in. wazero v1.12.0
// can interrupt loops, and nothing else, at 100 ns a turn. So code is metered
// instead: each function and each turn of a loop takes its cost from a counter,
// a global, and when that is used up a host function is called, which checks the
// context and fills the counter.
//
//	(if (result i32) (i32.le_s (global.get $left) (i32.const 0))
//	  (then (call $turn)) (else (global.get $left)))
//	(global.set $left (i32.sub … (i32.const cost)))
//
// The cost of a piece of code is an upper bound, in units of one plain
// instruction. A function pays at its entry for all that is in no loop, and in
// each turn of a loop for all of its body that is in no inner loop. So what is
// executed between two payments has been paid for, whatever way it takes.
//
//   - A small function without loops and calls pays nothing itself: the function that calls
//     it pays for it.
//   - memory.copy and memory.fill pay by length, and are done in pieces.
//   - The host is asked before each of the rare instructions that can take long,
//     and before each call of a function of WASI, also through a table: those are
//     called by way of a function that asks, and refuses paths that are too long.
const (
	// Quantum is what the host fills the counter with. Its worst case, loads that
	// all miss the caches, takes some 40 ms.
	Quantum = 400_000
	// MeterModule and MeterImport name the function, of type ()->(i32), that a
	// metered module calls when its counter is used up. The result is the
	// counter's new value. No module may import it: it is not offered.
	MeterModule = "wasmjob"
	MeterImport = "turn"
	// maxCost bounds a single payment, so that the counter cannot wrap.
	maxCost = 1 << 28

	// leafSize and leafCost bound a function that its callers pay for: the
	// bytes of its body, and its cost.
	leafSize = 256
	leafCost = 160

	callCost     = 4
	indirectCost = 10
	importCost   = 20
	// copyShift: 32 bytes that are copied or filled cost one unit.
	copyShift = 5
	// copyPiece is the most that is copied or filled without asking the host.
	copyPiece = 1 << 20
)

// immediate says what follows an instruction's code.
type immediate uint8

const (
	immRefused immediate = iota // not of WebAssembly 2.0
	immNone
	immBlock
	immLabel
	immLabels
	immCall
	immIndirect
	immSelect
	immLocal
	immGlobal
	immTable
	immMemory   // alignment and offset
	immReserved // a zero byte
	immI32
	immI64
	immBytes4
	immBytes8
	immRefType
	immRefFunc
	immMisc     // after 0xfc
	immVector   // after 0xfd
	immBytes16  // a vector or its lanes
	immLane     // a byte
	immMemLane  // alignment, offset, lane
	immData     // number of a data segment
	immElem     // number of an element segment
	immInitMem  // data segment, zero byte
	immInitTab  // element segment, table
	immCopyTab  // two tables
	immCopyMem  // two zero bytes
	immFillMem  // a zero byte
	immAskTable // a table, after asking
)

// opcode is an instruction of the table: what follows it, what it costs, and how many
// values it takes from the operand stack and leaves there, unless that depends on types.
type opcode struct {
	imm       immediate
	cost      uint16
	pop, push uint8
}

// instructionSet is the closed table of WebAssembly 2.0: what is not in it is
// refused.
type instructionSet struct {
	plain  [256]opcode
	misc   [18]opcode  // after 0xfc
	vector [256]opcode // after 0xfd

	nothing abi.Signature
	single  [64]abi.Signature // of blocks that leave a value of a type
}

func newInstructionSet() *instructionSet {
	s := &instructionSet{}
	set := func(table []opcode, imm immediate, cost uint16, from, to int) {
		for i := from; i <= to; i++ {
			table[i].imm, table[i].cost = imm, cost
		}
	}
	arity := func(table []opcode, pop, push uint8, from, to int) {
		for i := from; i <= to; i++ {
			table[i].pop, table[i].push = pop, push
		}
	}

	p := s.plain[:]
	set(p, immNone, 1, 0x00, 0x01) // unreachable, nop
	set(p, immBlock, 1, 0x02, 0x04)
	set(p, immNone, 1, 0x05, 0x05) // else
	set(p, immNone, 0, 0x0b, 0x0b) // end
	set(p, immLabel, 1, 0x0c, 0x0d)
	set(p, immLabels, 3, 0x0e, 0x0e)
	set(p, immNone, 1, 0x0f, 0x0f) // return
	set(p, immCall, callCost, 0x10, 0x10)
	set(p, immIndirect, indirectCost, 0x11, 0x11)
	set(p, immNone, 1, 0x1a, 0x1b) // drop, select
	set(p, immSelect, 1, 0x1c, 0x1c)
	set(p, immLocal, 1, 0x20, 0x22)
	set(p, immGlobal, 1, 0x23, 0x24)
	set(p, immTable, 3, 0x25, 0x26)
	set(p, immMemory, 1, 0x28, 0x3e)
	set(p, immReserved, 1, 0x3f, 0x40) // memory.size, memory.grow
	set(p, immI32, 1, 0x41, 0x41)
	set(p, immI64, 1, 0x42, 0x42)
	set(p, immBytes4, 1, 0x43, 0x43)
	set(p, immBytes8, 1, 0x44, 0x44)
	set(p, immNone, 1, 0x45, 0xc4)
	set(p, immNone, 8, 0x6d, 0x70) // i32.div, i32.rem
	set(p, immNone, 8, 0x7f, 0x82) // i64.div, i64.rem
	set(p, immNone, 4, 0x8d, 0x91) // f32.ceil to f32.sqrt
	set(p, immNone, 4, 0x95, 0x95) // f32.div
	set(p, immNone, 4, 0x9b, 0x9f) // f64.ceil to f64.sqrt
	set(p, immNone, 4, 0xa3, 0xa3) // f64.div
	set(p, immNone, 3, 0xa8, 0xbf) // conversions
	set(p, immRefType, 1, 0xd0, 0xd0)
	set(p, immNone, 1, 0xd1, 0xd1)
	set(p, immRefFunc, 1, 0xd2, 0xd2)
	set(p, immMisc, 0, 0xfc, 0xfc)
	set(p, immVector, 0, 0xfd, 0xfd)

	arity(p, 1, 0, 0x1a, 0x1a)
	arity(p, 3, 1, 0x1b, 0x1c)
	arity(p, 0, 1, 0x20, 0x20)
	arity(p, 1, 0, 0x21, 0x21)
	arity(p, 1, 1, 0x22, 0x22)
	arity(p, 0, 1, 0x23, 0x23)
	arity(p, 1, 0, 0x24, 0x24)
	arity(p, 1, 1, 0x25, 0x25)
	arity(p, 2, 0, 0x26, 0x26)
	arity(p, 1, 1, 0x28, 0x35) // loads
	arity(p, 2, 0, 0x36, 0x3e)
	arity(p, 0, 1, 0x3f, 0x3f)
	arity(p, 1, 1, 0x40, 0x40)
	arity(p, 0, 1, 0x41, 0x44)
	arity(p, 2, 1, 0x45, 0xa6) // but for those with one operand
	for _, unary := range [][2]int{{0x45, 0x45}, {0x50, 0x50}, {0x67, 0x69}, {0x79, 0x7b}, {0x8b, 0x91}, {0x99, 0x9f}, {0xa7, 0xc4}} {
		arity(p, 1, 1, unary[0], unary[1])
	}
	arity(p, 0, 1, 0xd0, 0xd0)
	arity(p, 1, 1, 0xd1, 0xd1)
	arity(p, 0, 1, 0xd2, 0xd2)

	m := s.misc[:]
	set(m, immNone, 3, 0, 7) // saturating truncation
	set(m, immInitMem, 1, 8, 8)
	set(m, immData, 1, 9, 9)
	set(m, immCopyMem, callCost, 10, 10)
	set(m, immFillMem, callCost, 11, 11)
	set(m, immInitTab, 1, 12, 12)
	set(m, immElem, 1, 13, 13)
	set(m, immCopyTab, 1, 14, 14)
	set(m, immAskTable, 1, 15, 15) // table.grow
	set(m, immTable, 1, 16, 16)    // table.size
	set(m, immAskTable, 1, 17, 17) // table.fill
	arity(m, 1, 1, 0, 7)
	arity(m, 3, 0, 8, 8)
	arity(m, 3, 0, 10, 12)
	arity(m, 3, 0, 14, 14)
	arity(m, 2, 1, 15, 15)
	arity(m, 0, 1, 16, 16)
	arity(m, 3, 0, 17, 17)

	v := s.vector[:]
	set(v, immMemory, 1, 0x00, 0x0b)
	set(v, immBytes16, 2, 0x0c, 0x0d) // v128.const, i8x16.shuffle
	set(v, immNone, 2, 0x0e, 0x14)
	set(v, immLane, 2, 0x15, 0x22)
	set(v, immNone, 2, 0x23, 0x53)
	set(v, immMemLane, 2, 0x54, 0x5b)
	set(v, immMemory, 1, 0x5c, 0x5d)
	set(v, immNone, 3, 0x5e, 0xff)
	for _, hole := range []int{0x9a, 0xa2, 0xa5, 0xa6, 0xaf, 0xb0, 0xb2, 0xb3, 0xb4, 0xbb, 0xc2, 0xc5, 0xc6, 0xcf, 0xd0, 0xd2, 0xd3, 0xd4, 0xe2, 0xee} {
		v[hole] = opcode{}
	}
	for t := range byte(0x80) {
		if isValueType(t) {
			s.single[t&0x3f].Results = []abi.ValueType{abi.ValueType(t)}
		}
	}
	arity(v, 2, 1, 0x00, 0xff) // but for these
	arity(v, 1, 1, 0x00, 0x0a) // loads
	arity(v, 2, 0, 0x0b, 0x0b)
	arity(v, 0, 1, 0x0c, 0x0c)
	arity(v, 3, 1, 0x52, 0x52)
	arity(v, 2, 0, 0x58, 0x5b)
	for _, unary := range [][2]int{{0x0f, 0x16}, {0x18, 0x19}, {0x1b, 0x1b}, {0x1d, 0x1d}, {0x1f, 0x1f}, {0x21, 0x21}, {0x4d, 0x4d}, {0x53, 0x53},
		{0x5c, 0x64}, {0x67, 0x6a}, {0x74, 0x75}, {0x7a, 0x7a}, {0x7c, 0x81}, {0x83, 0x84}, {0x87, 0x8a}, {0x94, 0x94}, {0xa0, 0xa4}, {0xa7, 0xaa},
		{0xc0, 0xc4}, {0xc7, 0xca}, {0xe0, 0xe1}, {0xe3, 0xe3}, {0xec, 0xed}, {0xef, 0xef}, {0xf8, 0xff}} {
		arity(v, 1, 1, unary[0], unary[1])
	}
	return s
}

// refusedName is what people call an instruction that the table lacks.
func refusedName(op byte) string {
	switch {
	case op >= 0x06 && op <= 0x0a, op == 0x18, op == 0x19, op == 0x1f:
		return "of exception handling"
	case op == 0x12, op == 0x13:
		return "a tail call"
	case op == 0x14, op == 0x15, op >= 0xd3 && op <= 0xd6:
		return "of typed references"
	case op == 0xfb:
		return "of garbage collection"
	case op == 0xfe:
		return "of threads"
	}
	return "unknown"
}

// charge is what is paid for code that is paid for in one place: a function outside of its
// loops, or a loop outside of its inner ones.
type charge struct {
	at   int // where in the body its payment is made
	cost int
}

// bodyCost is what is known of a body after its decoding.
type bodyCost struct {
	charges []charge // the function's own is the first
	opening int      // a loop that is always reached before anything else; 0 if none is
	calls   bool     // it calls, so what it costs is not known
}

// leaf reports whether the callers may pay, and how much.
func (m *bodyCost) leaf() (cost int, ok bool) {
	cost = m.charges[0].cost
	return cost, !m.calls && len(m.charges) == 1 && cost <= leafCost
}

// bodies rewrites the functions of a module. It decodes every instruction and
// encodes it again, in its shortest form: wazero is given nothing that was not
// read.
type bodies struct {
	*numbers
	set *instructionSet

	leaves  []int // by the module's own functions: what callers pay, -1 if nothing
	maxLeaf int
	copies  bool // a body needs the helper for memory.copy
	fills   bool
	// growsTables is set if a body has table.grow.
	growsTables bool
	// declared are the functions that a body may refer to. references are those that
	// one does refer to, each with a global after the counter, whose number is in held.
	declared   []bool
	references []uint32
	held       map[uint32]uint32

	sigs  []abi.Signature
	funcs []uint32 // types of functions, the imported ones first

	out   []byte
	body  bodyCost
	shape shape
	opens bool
}

// payment is the code of a charge.
func (b *bodies) payment(cost int) []byte {
	cost = min(cost, maxCost)
	code := appendU32([]byte{0x23}, b.counter)
	code = append(code, 0x41, 0, 0x4c, 0x04, 0x7f, 0x10)
	code = append(appendU32(code, b.turn), 0x05, 0x23)
	code = append(appendU32(code, b.counter), 0x0b, 0x41)
	code = append(appendI32(code, int32(cost)), 0x6b, 0x24)
	return appendU32(code, b.counter)
}

// ask appends a call of the host that needs nothing on the stack.
func (b *bodies) ask(code []byte) []byte {
	return appendU32(append(appendU32(append(code, 0x10), b.turn), 0x24), b.counter)
}

// measure finds the functions that their callers pay for.
func (b *bodies) measure(code []span, wasm []byte) error {
	b.leaves = make([]int, len(code))
	for i, at := range code {
		b.leaves[i] = -1
		if at.end-at.start > leafSize {
			continue
		}
		if err := b.decode(i, &cursor{b: wasm[:at.end], off: at.start}); err != nil {
			return &bodyError{i + len(b.mapped), err}
		}
		if cost, ok := b.body.leaf(); ok {
			b.leaves[i] = cost
			b.maxLeaf = max(b.maxLeaf, cost)
		}
	}
	return nil
}

// rewrite appends the new form of a body, with its length, to code.
func (b *bodies) rewrite(code []byte, index int, at span, wasm []byte) ([]byte, error) {
	if err := b.decode(index, &cursor{b: wasm[:at.end], off: at.start}); err != nil {
		return nil, &bodyError{index + len(b.mapped), err}
	}
	charges := b.body.charges
	charges[0].cost = max(charges[0].cost, b.shape.native()>>frameShift)
	if b.leaves[index] >= 0 || !pays {
		charges = nil
	} else if first := b.body.opening; first > 0 && charges[0].cost <= leafCost+charges[first].cost/4 {
		// The loop is entered in any case, and pays for what is around it.
		charges[first].cost += charges[0].cost
		charges = charges[1:]
	}

	var payments [][]byte
	size := len(b.out)
	for _, r := range charges {
		p := b.payment(r.cost)
		payments = append(payments, p)
		size += len(p)
	}
	code = appendU32(code, uint32(size))
	from := 0
	for i, r := range charges { // in the order of the code
		code = append(append(code, b.out[from:r.at]...), payments[i]...)
		from = r.at
	}
	return append(code, b.out[from:]...), nil
}

// decode reads the body of one of the module's own functions, writes it to out and
// measures it.
func (b *bodies) decode(index int, c *cursor) error {
	b.out = b.out[:0]
	b.shape.begin(&b.sigs[b.funcs[len(b.mapped)+index]])
	cost := callCost
	groups := c.u32()
	b.out = appendU32(b.out, groups)
	for ; groups > 0 && c.err == nil; groups-- {
		n, t := c.u32(), valueType(c)
		b.out = append(appendU32(b.out, n), byte(t))
		cost = min(cost+int(n), maxCost) // they are cleared, and take room on the stack
		if t == typeV128 {
			cost = min(cost+int(n), maxCost)
		}
		for range min(n, maxLocals) { // the scan has refused more
			b.shape.local(t)
		}
	}
	b.body = bodyCost{charges: append(b.body.charges[:0], charge{at: len(b.out), cost: cost})}
	b.shape.bytes += payValues * valueBytes
	b.opens = true
	for len(b.shape.frames) > 0 && c.err == nil {
		start := c.off
		b.instruction(c)
		if c.err == nil && b.shape.exceeds() {
			c.off = start
			b.shape.refuse(c)
		}
	}
	if c.err == nil && c.off != len(c.b) {
		c.fail("%d bytes follow the end of the function", len(c.b)-c.off)
	}
	return c.err
}

// pay adds to the cost of the code at hand.
func (b *bodies) pay(cost int) {
	r := &b.body.charges[b.shape.top().charge]
	r.cost = min(r.cost+cost, maxCost)
}

// instruction reads one instruction and writes it.
func (b *bodies) instruction(c *cursor) {
	start := c.off
	op := c.byte()
	known := b.set.plain[op]
	if c.err != nil {
		return
	}
	if known.imm == immRefused {
		c.off = start
		c.fail("instruction 0x%02x (%s) is not of WebAssembly 2.0", op, refusedName(op))
		return
	}
	b.pay(int(known.cost))
	switch known.imm {
	case immMisc:
		b.misc(c, start)
		return
	case immVector:
		b.vector(c, start)
		return
	case immBlock:
		b.block(c, op)
		return
	case immCall:
		b.call(c)
		return
	case immRefFunc:
		b.refFunc(c)
		b.shape.plain(known, valueBytes)
		return
	case immReserved:
		if op == 0x40 { // memory.grow: work of the host
			b.out = b.ask(b.out)
		}
	}
	if mayBranch(op) {
		b.opens = false
	}
	b.out = append(b.out, op)
	switch known.imm {
	case immLabel:
		b.branch(c, op)
		return
	case immLabels:
		b.branchTable(c)
		return
	case immLocal:
		local := c.u32()
		b.out = appendU32(b.out, local)
		if op != 0x20 { // local.set, local.tee
			b.shape.set(local)
		}
		b.shape.pop(int(known.pop))
		b.shape.push(int(known.push))
		return
	case immIndirect:
		b.callIndirect(c)
		return
	}
	b.operands(c, known.imm)
	switch op {
	case 0x00: // unreachable
		b.shape.unreachable()
	case 0x05: // else
		b.shape.otherwise()
	case 0x0b: // end
		b.shape.end()
	case 0x0f: // return
		b.shape.take(b.shape.frames[0].sig.Results)
		b.shape.unreachable()
	default:
		bytes := int(known.push) * valueBytes
		switch known.imm {
		case immMemory:
			bytes += addressValues * valueBytes
		case immGlobal, immSelect:
			bytes *= 2 // they may be vectors
		case immI32, immI64, immBytes4, immBytes8:
			bytes = 0
		}
		if op == 0x1b { // select without a type
			bytes *= 2
		}
		b.shape.plain(known, bytes)
	}
}

// mayBranch reports whether an instruction that is no block and no call of a known
// function may go on elsewhere: all of control, but nop, drop and select.
func mayBranch(op byte) bool {
	return op < 0x20 && op != 0x01 && (op < 0x1a || op > 0x1c)
}

// block reads the beginning of a block, a loop or an if.
func (b *bodies) block(c *cursor, op byte) {
	b.out = append(b.out, op)
	sig := b.blockType(c)
	at := b.shape.top().charge
	switch op {
	case 0x03:
		b.body.charges = append(b.body.charges, charge{at: len(b.out), cost: callCost})
		at = len(b.body.charges) - 1
		if b.opens && b.body.opening == 0 {
			b.body.opening = at
		}
		b.shape.bytes += payValues * valueBytes
	case 0x04:
		b.opens = false
		b.shape.pop(1)
	}
	b.shape.open(frame{charge: at, sig: sig, loop: op == 0x03, isIf: op == 0x04})
}

// blockType reads the type of a block.
func (b *bodies) blockType(c *cursor) *abi.Signature {
	if c.left() > 0 && c.b[c.off]&0xc0 == 0x40 {
		t := c.byte()
		b.out = append(b.out, t)
		if t == 0x40 {
			return &b.set.nothing
		}
		if !isValueType(t) {
			c.off--
			c.fail("block type 0x%02x is not of WebAssembly 2.0", t)
		}
		return &b.set.single[t&0x3f]
	}
	t := b.within(c, "type", c.u32(), b.types)
	b.out = appendI32(b.out, int32(t))
	return b.sig(c, t)
}

// sig is the type of that number, which was checked.
func (b *bodies) sig(c *cursor, t uint32) *abi.Signature {
	if c.err != nil {
		return &b.set.nothing
	}
	return &b.sigs[t]
}

// branch reads what follows br or br_if.
func (b *bodies) branch(c *cursor, op byte) {
	label := c.u32()
	b.out = appendU32(b.out, label)
	conditional := op == 0x0d
	if conditional {
		b.shape.pop(1)
	}
	f := b.shape.branch(label)
	if f == nil {
		return // it is not valid
	}
	b.shape.take(f.label())
	if conditional {
		b.shape.leave(f.label())
		b.shape.made(f.label())
	} else {
		b.shape.unreachable()
	}
}

// branchTable reads what follows br_table.
func (b *bodies) branchTable(c *cursor) {
	n := c.u32()
	b.out = appendU32(b.out, n)
	b.shape.pop(1)
	for i := uint32(0); i <= n && c.err == nil; i++ {
		label := c.u32()
		b.out = appendU32(b.out, label)
		if f := b.shape.branch(label); f != nil {
			b.shape.moves += len(f.label())
		}
	}
	b.shape.unreachable()
}

// callIndirect reads and writes the operands of call_indirect.
func (b *bodies) callIndirect(c *cursor) {
	t := b.within(c, "type", c.u32(), b.types)
	b.out = appendU32(appendU32(b.out, t), c.u32())
	b.shape.pop(1)
	b.shape.call(b.sig(c, t))
	b.shape.bytes += callValues * valueBytes
	b.body.calls = true
	b.pay(b.maxLeaf)
}

func (b *bodies) call(c *cursor) {
	f := b.within(c, "function", c.u32(), b.functions())
	b.out = appendU32(append(b.out, 0x10), b.function(f))
	b.opens = false
	b.body.calls = true
	if c.err == nil {
		b.shape.call(&b.sigs[b.funcs[f]])
	}
	own := int(f) - len(b.mapped)
	if own < 0 {
		b.pay(importCost)
	} else if c.err == nil && own < len(b.leaves) && b.leaves[own] >= 0 {
		b.pay(b.leaves[own])
	}
}

// refFunc reads what follows ref.func. wazero v1.12.0 makes a reference of 32 bytes each
// time that it executes the instruction, and keeps it as long as the instance. So a
// global that is added holds the reference, which is made once for an instance.
func (b *bodies) refFunc(c *cursor) {
	start := c.off
	f := b.within(c, "function", c.u32(), b.functions())
	if c.err == nil && !b.declared[f] {
		c.off = start
		c.fail("ref.func %d: no export, global or element segment names the function", f)
	}
	if c.err != nil {
		return
	}
	g, ok := b.held[f]
	if !ok {
		g = b.counter + 1 + uint32(len(b.references))
		if g >= maxGlobals {
			c.off = start
			c.fail("ref.func %d: with a global for each function that is referred to there are more than %d globals", f, maxGlobals)
			return
		}
		b.held[f] = g
		b.references = append(b.references, f)
	}
	b.out = appendU32(append(b.out, 0x23), g)
}

// within refuses a number that is not one of the module's own: it might be one
// of those that are added here.
func (n *numbers) within(c *cursor, what string, number, count uint32) uint32 {
	if c.err == nil && number >= count {
		c.fail("%s %d of %d", what, number, count)
	}
	return number
}

// operands reads what follows an instruction's code, and writes it.
func (b *bodies) operands(c *cursor, imm immediate) {
	u32 := func() { b.out = appendU32(b.out, c.u32()) }
	raw := func(n int) { b.out = append(b.out, c.bytes(uint32(n))...) }
	zero := func() {
		if v := c.byte(); c.err == nil && v != 0 {
			c.off--
			c.fail("reserved byte 0x%02x, expected 00: memories are not numbered in WebAssembly 2.0", v)
		}
		b.out = append(b.out, 0)
	}
	switch imm {
	case immTable, immAskTable, immData, immElem:
		u32()
	case immSelect:
		if n := c.byte(); c.err == nil && n != 1 { // wazero reads one byte, too
			c.off--
			c.fail("select with 0x%02x types, expected 01", n)
		}
		b.out = append(b.out, 1, byte(valueType(c)))
	case immGlobal:
		b.out = appendU32(b.out, b.within(c, "global", c.u32(), b.globals))
	case immMemory:
		u32()
		u32()
	case immMemLane:
		u32()
		u32()
		raw(1)
	case immReserved, immFillMem:
		zero()
	case immCopyMem:
		zero()
		zero()
	case immI32:
		b.out = appendI32(b.out, int32(c.signed(32)))
	case immI64:
		b.out = appendI64(b.out, c.signed(64))
	case immLane:
		raw(1)
	case immBytes4:
		raw(4)
	case immBytes8:
		raw(8)
	case immBytes16:
		raw(16)
	case immRefType:
		b.out = append(b.out, refType(c))
	case immInitMem:
		u32()
		zero()
	case immInitTab, immCopyTab:
		u32()
		u32()
	}
}

// misc reads the rest of an instruction that begins with 0xfc.
func (b *bodies) misc(c *cursor, start int) {
	op := c.u32()
	if c.err != nil {
		return
	}
	if op >= uint32(len(b.set.misc)) || c.off-start != 2 {
		c.off = start
		c.fail("instruction 0xfc %d is not of WebAssembly 2.0, or not in its shortest form", op)
		return
	}
	known := b.set.misc[op]
	b.pay(int(known.cost))
	b.opens = false
	b.growsTables = b.growsTables || op == 15
	switch known.imm {
	case immCopyMem, immFillMem: // the helper is called in its place
		b.operands(c, known.imm)
		b.out = b.out[:len(b.out)-int(12-op)]
		helper := b.copyHelper
		if known.imm == immCopyMem {
			b.copies = true
		} else {
			b.fills, helper = true, b.fillHelper
		}
		b.out = appendU32(append(b.out, 0x10), helper)
		b.shape.plain(known, valueBytes)
		return
	case immInitMem, immInitTab, immCopyTab, immAskTable:
		b.out = b.ask(b.out)
	}
	b.out = append(b.out, 0xfc, byte(op))
	b.operands(c, known.imm)
	b.shape.plain(known, valueBytes)
}

// vector reads the rest of an instruction that begins with 0xfd. wazero v1.12.0
// reads one byte of its number, and takes the second one of those from 128 on,
// which is 01 in the shortest form, for a nop. Hence no other form passes.
func (b *bodies) vector(c *cursor, start int) {
	op := c.u32()
	if c.err != nil {
		return
	}
	shortest := 2
	if op >= 0x80 {
		shortest = 3
	}
	if op > 0xff || b.set.vector[op].imm == immRefused || c.off-start != shortest {
		c.off = start
		c.fail("instruction 0xfd %d is not of WebAssembly 2.0, or not in its shortest form", op)
		return
	}
	known := b.set.vector[op]
	b.pay(int(known.cost))
	b.out = appendU32(append(b.out, 0xfd), op)
	b.operands(c, known.imm)
	b.shape.plain(known, vectorBytes+addressValues*valueBytes)
}

// copyBody is the helper for memory.copy, (to, from, length): it pays by length,
// and copies what is long in pieces, from the end if that is where it overlaps.
func (b *bodies) copyBody() []byte {
	a := &assembler{}
	a.op(0) // no locals
	a.get(2).i32(copyPiece).op(0x4b, 0x04, 0x40)
	a.op(0x02, 0x40)
	b.leaveIfOutside(a, 0)
	b.leaveIfOutside(a, 1)
	a.get(0).get(1).op(0x4d, 0x04, 0x40) // to <= from

	a.op(0x03, 0x40)
	a.raw(b.ask(nil))
	a.get(0).get(1).i32(copyPiece).op(0xfc, 10, 0, 0)
	a.get(0).i32(copyPiece).op(0x6a).set(0)
	a.get(1).i32(copyPiece).op(0x6a).set(1)
	a.get(2).i32(copyPiece).op(0x6b).set(2)
	a.get(2).i32(copyPiece).op(0x4b, 0x0d, 0, 0x0b)

	a.op(0x05)
	a.op(0x03, 0x40)
	a.raw(b.ask(nil))
	a.get(2).i32(copyPiece).op(0x6b).set(2)
	a.get(0).get(2).op(0x6a).get(1).get(2).op(0x6a).i32(copyPiece).op(0xfc, 10, 0, 0)
	a.get(2).i32(copyPiece).op(0x4b, 0x0d, 0, 0x0b)
	a.op(0x0b, 0x0b, 0x0b)

	b.payLength(a)
	return a.get(0).get(1).get(2).op(0xfc, 10, 0, 0, 0x0b).code
}

// fillBody is the helper for memory.fill, (to, value, length).
func (b *bodies) fillBody() []byte {
	a := &assembler{}
	a.op(0)
	a.get(2).i32(copyPiece).op(0x4b, 0x04, 0x40)
	a.op(0x02, 0x40)
	b.leaveIfOutside(a, 0)
	a.op(0x03, 0x40)
	a.raw(b.ask(nil))
	a.get(0).get(1).i32(copyPiece).op(0xfc, 11, 0)
	a.get(0).i32(copyPiece).op(0x6a).set(0)
	a.get(2).i32(copyPiece).op(0x6b).set(2)
	a.get(2).i32(copyPiece).op(0x4b, 0x0d, 0, 0x0b)
	a.op(0x0b, 0x0b)
	b.payLength(a)
	return a.get(0).get(1).get(2).op(0xfc, 11, 0, 0x0b).code
}

// leaveIfOutside ends the block if the region that begins at the parameter is
// not within memory: the whole instruction traps before it writes anything.
func (b *bodies) leaveIfOutside(a *assembler, param byte) {
	a.get(param).op(0xad).get(2).op(0xad, 0x7c)        // as 64 bits, their sum
	a.op(0x3f, 0, 0xad, 0x42, 16, 0x86, 0x56, 0x0d, 0) // more than memory.size << 16: br_if
}

// payLength pays for what the third parameter says, and asks if that was all.
func (b *bodies) payLength(a *assembler) {
	count := func(op byte) *assembler { return a.raw(appendU32([]byte{op}, b.counter)) }
	count(0x23).get(2).i32(copyShift).op(0x76, 0x6b)
	count(0x24)
	count(0x23).i32(0).op(0x4c, 0x04, 0x40)
	a.raw(b.ask(nil)).op(0x0b)
}

// wrapperBody calls an imported function of n parameters after it has asked, and after it has
// held the parameters to their limits. files says that the function is about files: one of its errors is another
// for the guest.
func (b *bodies) wrapperBody(f uint32, n int, limits []limit, files bool) []byte {
	a := &assembler{}
	a.op(0).raw(b.ask(nil))
	for _, l := range limits {
		a.hold(l)
	}
	for i := range n {
		a.get(byte(i))
	}
	a.raw(appendU32([]byte{0x10}, f))
	if files { // the first parameter is of no use any more
		a.op(0x22, 0).i32(ErrnoTooMany).op(0x46, 0x04, 0x7f) // local.tee, i32.eq, if (i32)
		a.i32(errnoTooManyOpen).op(0x05).get(0).op(0x0b)     // else, end
	}
	return a.op(0x0b).code
}

// hold holds a parameter to its limit.
func (a *assembler) hold(l limit) {
	above := func(most int32) *assembler { return a.get(l.param).i32(most).op(0x4b, 0x04, 0x40) } // i32.gt_u, if
	answer := func(errno int32) { a.i32(errno).op(0x0f, 0x0b) }                                   // return, end
	switch l.kind {
	case pathLength:
		above(maxPath)
		answer(errnoNameTooLong)
	case vectorCount:
		above(maxVectors).i32(maxVectors).set(l.param).op(0x0b)
	case subscriptionCount:
		above(maxSubscriptions)
		answer(errnoInvalid)
	case entriesLength:
		above(maxEntries)
		answer(errnoInvalid)
	case newDescriptor:
		above(maxDescriptors - 1)
		answer(errnoBadDescriptor)
	case otherDescriptor:
		a.get(l.param-1).get(l.param).op(0x46, 0x04, 0x40) // i32.eq, if
		answer(errnoInvalid)
	}
}

// assembler writes code.
type assembler struct{ code []byte }

func (a *assembler) raw(code []byte) *assembler { a.code = append(a.code, code...); return a }
func (a *assembler) op(code ...byte) *assembler { return a.raw(code) }
func (a *assembler) get(local byte) *assembler  { return a.op(0x20, local) }
func (a *assembler) set(local byte) *assembler  { return a.op(0x21, local) }
func (a *assembler) i32(v int32) *assembler     { return a.raw(appendI32([]byte{0x41}, v)) }
