package wasm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// ExportStartSection is the name under which a rewritten module exports its start
// function. The host calls it as it calls other exports, so that the same limits
// hold for it.
const ExportStartSection = "wasmjob:start"

// maxMetered is the limit of the metered code, in bytes: a loop of 3 bytes gets 30.
const maxMetered = 3 * abi.MaxModuleSize / 2

// bodyError says what is wrong with a function.
type bodyError struct {
	function int // imported functions have the first numbers
	err      error
}

func (e *bodyError) Error() string { return fmt.Sprintf("function %d: %v", e.function, e.err) }
func (e *bodyError) Unwrap() error { return e.err }

// numbers are how functions, types and globals are counted in the rewritten
// module: what is added comes after what the module has. Only functions
// move, by one, for one more is imported.
//
//	functions   imports of the module, turn, its own functions, wrappers, the start
//	            section's function, the helpers
//	types       its own, ()->(i32), (i32,i32,i32)->()
//	globals     its own, the counter, one for each function that ref.func names
type numbers struct {
	mapped                 []uint32 // by imported function: what stands for it
	own                    uint32   // functions that the module defines
	types, globals         uint32   // that the module defines
	turn, counter          uint32
	begin                  uint32 // calls what the start section names, if there is one
	copyHelper, fillHelper uint32
}

func (n *numbers) functions() uint32 { return uint32(len(n.mapped)) + n.own }

// function is the new number of a function.
func (n *numbers) function(f uint32) uint32 {
	if int64(f) < int64(len(n.mapped)) {
		return n.mapped[f]
	}
	return f + 1
}

// rewrite makes the module as wazero gets it: the same, metered, with every
// section decoded and encoded again. Tables are capped, data segments joined, and
// custom sections left out but for names. It must follow a scan that found no
// problem in sections and imports; the error says what cannot be metered.
func (s *scan) rewrite() ([]byte, error) {
	for _, im := range s.imports {
		if im.kind != kindFunc {
			return nil, fmt.Errorf("imports %s %s.%s: only functions may be imported", kindName(im.kind), im.module, im.name)
		}
	}
	n, wrapped := s.number()
	b := s.newBodies(n)
	if err := b.measure(s.code, s.wasm); err != nil {
		return nil, err
	}
	b.shape.moves = 0 // those of leaves were counted, and are once more
	f := &functions{types: slices.Clone(s.funcs[len(s.imports):])}
	if at := s.sections[10]; at.end > at.start {
		f.code = make([]byte, 0, (at.end-at.start)/4*5)
	}
	var err error
	for i, at := range s.code {
		if f.code, err = b.rewrite(f.code, i, at, s.wasm); err != nil {
			return nil, err
		}
		if len(f.code) > maxMetered {
			return nil, fmt.Errorf("the code is longer than %d bytes when it is metered: it has a loop every few bytes", maxMetered)
		}
	}
	s.addWrappers(f, b, wrapped)
	if at, ok := s.sections[8]; ok {
		if err := s.addStart(f, b, s.cursor(at).u32()); err != nil {
			return nil, err
		}
	}
	if b.copies || b.fills {
		f.add(n.types+1, b.copyBody())
		f.add(n.types+1, b.fillBody())
	}

	s.tableBytes = s.mostInTables(b.growsTables) + s.instanceBytes(int(n.globals)+1, len(b.references))

	e := &encoder{scan: s, numbers: n, out: append(make([]byte, 0, len(s.wasm)+len(f.code)/2), "\x00asm\x01\x00\x00\x00"...)}
	e.head(f.types)
	e.tables()
	e.globalSection(b.references)
	e.exportSection()
	e.elementSection()
	if at, ok := s.sections[12]; ok {
		e.section(12, appendU32(nil, s.cursor(at).u32()))
	}
	e.section(10, append(appendU32(nil, uint32(len(f.types))), f.code...))
	e.data()
	e.names(wrapped, b.copies || b.fills)
	if err := e.wrong.Err(); err != nil {
		return nil, err
	}
	return e.out, nil
}

func (s *scan) newBodies(n *numbers) *bodies {
	b := &bodies{numbers: n, set: newInstructionSet(), sigs: s.types, funcs: s.funcs, declared: make([]bool, len(s.funcs)), held: map[uint32]uint32{}}
	b.shape.maxMoves = freeMoves + len(s.wasm)
	copy(b.declared, s.declared)
	for _, e := range s.exports {
		if e.kind == kindFunc {
			b.declared[e.index] = true
		}
	}
	return b
}

// mostInTables is what the tables of an instance may take, in bytes.
func (s *scan) mostInTables(grow bool) int64 {
	bytes := int64(0)
	for _, t := range s.tables {
		if grow {
			bytes += 2 * entryBytes * int64(t.max) // they grow like slices, with room ahead
		} else {
			bytes += entryBytes * int64(t.min)
		}
	}
	return bytes
}

// What wazero v1.12.0 keeps in bytes for each instance.
const (
	entryBytes          = 8  // of a table
	globalBytes         = 96 // the global, a pointer to it, and its place in the compiled code's context
	referenceBytes      = 48 // of a function that is named outside of code, and two pointers to it
	elementBytes        = 8
	elementSegmentBytes = 24
	dataSegmentBytes    = 24
	importBytes         = 40
)

// instanceBytes is what an instance takes beside its memory, tables and stack, in bytes.
// references are those globals that are added for ref.func.
func (s *scan) instanceBytes(globals, references int) int64 {
	return int64(globalBytes*(globals+references) + referenceBytes*(s.named+references) +
		elementBytes*s.elements + elementSegmentBytes*s.elementSegments +
		dataSegmentBytes*len(s.data) + importBytes*len(s.imports))
}

// functions are what follows turn: the module's own functions, and those that are added.
type functions struct {
	types []uint32
	code  []byte // the bodies, each with its length
}

func (f *functions) add(typ uint32, body []byte) {
	f.types = append(f.types, typ)
	f.code = append(appendU32(f.code, uint32(len(body))), body...)
}

// addWrappers adds functions that ask before they call an imported one.
func (s *scan) addWrappers(f *functions, b *bodies, wrapped []uint32) {
	wasi := wasiFunctions()
	for _, imported := range wrapped {
		im := s.imports[imported]
		var limits []limit
		files := false
		if im.module == abi.ModuleWASI {
			limits = wasi[im.name].limits
			files = strings.HasPrefix(im.name, "fd_") || strings.HasPrefix(im.name, "path_")
		}
		f.add(im.typ, b.wrapperBody(imported, len(s.types[im.typ].Params), limits, files))
	}
}

// addStart adds the function that calls what the start section names.
func (s *scan) addStart(f *functions, b *bodies, start uint32) error {
	typ := s.funcs[start]
	if t := s.types[typ]; len(t.Params)+len(t.Results) > 0 {
		return fmt.Errorf("malformed module: the start function is %s, expected () -> ()", t)
	}
	if s.has(ExportStartSection) {
		return fmt.Errorf("export %q: the name is the host's", ExportStartSection)
	}
	f.add(typ, b.wrapperBody(b.function(start), 0, nil, false))
	return nil
}

// number counts what the rewritten module has. wrapped are the imports that do
// not ask by themselves, as those of abi.Module do.
func (s *scan) number() (n *numbers, wrapped []uint32) {
	n = &numbers{own: uint32(len(s.code)), types: uint32(len(s.types)), turn: uint32(len(s.imports))}
	for i, im := range s.imports {
		n.mapped = append(n.mapped, uint32(i))
		if im.module != abi.Module {
			n.mapped[i] = n.turn + 1 + n.own + uint32(len(wrapped))
			wrapped = append(wrapped, uint32(i))
		}
	}
	n.begin = n.turn + 1 + n.own + uint32(len(wrapped))
	n.copyHelper = n.begin
	if _, ok := s.sections[8]; ok {
		n.copyHelper++
	}
	n.fillHelper = n.copyHelper + 1
	if at, ok := s.sections[6]; ok {
		n.globals = s.cursor(at).u32()
	}
	n.counter = n.globals
	return n, wrapped
}

// cursor reads a part of the file.
func (s *scan) cursor(at span) *cursor { return &cursor{b: s.wasm[:at.end], off: at.start} }

// encoder writes the sections of a rewritten module.
type encoder struct {
	*scan
	*numbers
	out   []byte
	wrong words.Problems
}

func (e *encoder) section(id byte, body []byte) { e.out = appendSection(e.out, id, body) }

// done takes note of what a section that is decoded once more has wrong.
func (e *encoder) done(c *cursor, id byte) {
	if c.err != nil {
		e.wrong.Addf("section %s: %w", sectionName(id), c.err)
	}
}

// head writes types, imports and functions.
func (e *encoder) head(types []uint32) {
	body := appendU32(nil, uint32(len(e.scan.types)+2))
	values := func(list []abi.ValueType) {
		body = appendU32(body, uint32(len(list)))
		for _, t := range list {
			body = append(body, byte(t))
		}
	}
	for _, t := range e.scan.types {
		body = append(body, 0x60)
		values(t.Params)
		values(t.Results)
	}
	body = append(body, 0x60, 0, 1, 0x7f)             // ()->(i32)
	body = append(body, 0x60, 3, 0x7f, 0x7f, 0x7f, 0) // (i32,i32,i32)->()
	e.section(1, body)

	body = appendU32(nil, uint32(len(e.imports)+1))
	add := func(module, name string, typ uint32) {
		body = appendName(appendName(body, module), name)
		body = appendU32(append(body, kindFunc), typ)
	}
	for _, im := range e.imports {
		add(im.module, im.name, im.typ)
	}
	add(MeterModule, MeterImport, e.numbers.types)
	e.section(2, body)

	body = appendU32(nil, uint32(len(types)))
	for _, t := range types {
		body = appendU32(body, t)
	}
	e.section(3, body)
}

// tables writes tables and memory.
func (e *encoder) tables() {
	if len(e.scan.tables) > 0 {
		body := appendU32(nil, uint32(len(e.scan.tables)))
		for _, t := range e.scan.tables {
			body = appendU32(appendU32(append(body, t.element, 1), t.min), t.max)
		}
		e.section(4, body)
	}
	if e.memory {
		body := []byte{1, 0}
		if e.bounded {
			body[1] = 1
		}
		body = appendU32(body, e.minPages)
		if e.bounded {
			body = appendU32(body, e.scan.maxPages)
		}
		e.section(5, body)
	}
}

// globalSection writes the globals, the counter, and those that hold references.
func (e *encoder) globalSection(references []uint32) {
	body := appendU32(nil, e.globals+1+uint32(len(references)))
	if at, ok := e.sections[6]; ok {
		c := e.cursor(at)
		c.u32()
		for range e.globals {
			body = append(body, byte(valueType(c)), c.byte())
			body = e.constant(body, c)
		}
		e.done(c, 6)
	}
	body = append(body, 0x7f, 1, 0x41, 0, 0x0b) // (mut i32) 0
	for _, f := range references {
		body = append(appendU32(append(body, typeFuncRef, 0, 0xd2), e.function(f)), 0x0b)
	}
	e.section(6, body)
}

func (e *encoder) exportSection() {
	names := e.scan.names
	count := uint32(len(names))
	_, starts := e.sections[8]
	if starts {
		count++
	}
	body := appendU32(nil, count)
	for _, name := range names {
		x := e.exports[name]
		switch {
		case x.kind == kindFunc:
			x.index = e.function(x.index)
		case x.kind == kindGlobal && x.index >= e.globals:
			e.wrong.Addf("malformed module: export %q is global %d of %d", words.Clip(name), x.index, e.globals)
		}
		body = appendU32(append(appendName(body, name), x.kind), x.index)
	}
	if starts {
		body = appendU32(append(appendName(body, ExportStartSection), kindFunc), e.begin)
	}
	if count > 0 {
		e.section(7, body)
	}
}

// elementSection writes the element segments.
func (e *encoder) elementSection() {
	if at, ok := e.sections[9]; ok {
		c := e.cursor(at)
		function, global := e.renumber(c)
		body, _, _ := c.elements(nil, function, global)
		e.done(c, 9)
		e.section(9, body)
	}
}

// renumber returns what numbers that c reads become. One that is not the module's own is a
// mistake.
func (e *encoder) renumber(c *cursor) (function, global func(uint32) uint32) {
	return func(f uint32) uint32 { return e.function(e.within(c, "function", f, e.functions())) },
		func(g uint32) uint32 { return e.within(c, "global", g, e.globals) }
}

// constant copies a constant expression.
func (e *encoder) constant(body []byte, c *cursor) []byte {
	function, global := e.renumber(c)
	return c.constant(body, function, global)
}

// data writes the data segments.
func (e *encoder) data() {
	at, ok := e.sections[11]
	if !ok {
		return
	}
	if body := e.joinData(); body != nil {
		e.section(11, body)
		return
	}
	c := e.cursor(at)
	n := c.u32()
	body := appendU32(make([]byte, 0, at.end-at.start), n)
	for ; n > 0 && c.err == nil; n-- {
		form := c.u32()
		body = appendU32(body, form)
		if form == 2 {
			body = appendU32(body, c.u32())
		}
		if form != 1 {
			body = e.constant(body, c)
		}
		size := c.u32()
		body = append(appendU32(body, size), c.bytes(size)...)
	}
	e.done(c, 11)
	e.section(11, body)
}

// names writes the names of the module and of its functions, for stack traces.
// What the scan has read before cannot fail.
func (e *encoder) names(wrapped []uint32, helpers bool) {
	if e.functionNames == (span{}) {
		return
	}
	body := appendName(nil, "name")
	// wazero v1.12.0 puts it before the name of each function, which it keeps.
	if at := e.moduleName; at.end-at.start > 0 && at.end-at.start <= maxModuleName {
		name := e.cursor(at).name("module name")
		body = appendSection(body, 0, appendName(nil, cutName(name)))
	}
	c := e.cursor(e.functionNames)
	n := c.u32()
	list := make([]byte, 0, c.left()+64)
	count := uint32(0)
	for ; n > 0; n-- {
		f, name := c.u32(), cutName(c.bytes(c.u32()))
		if f >= e.functions() {
			continue
		}
		if f >= uint32(len(e.mapped)) {
			f++
		}
		list = append(appendU32(appendU32(list, f), uint32(len(name))), name...)
		count++
	}
	for i, f := range wrapped {
		list = appendName(appendU32(list, e.turn+1+e.own+uint32(i)), e.imports[f].name)
		count++
	}
	if helpers {
		list = appendName(appendU32(list, e.copyHelper), "memory.copy")
		list = appendName(appendU32(list, e.fillHelper), "memory.fill")
		count += 2
	}
	body = appendSection(body, 1, append(appendU32(nil, count), list...))
	e.section(0, body)
}

// maxTraceName bounds a name of a module or a function, in bytes. wazero writes up to 30 of them when a guest traps.
const maxTraceName = 256

// cutName cuts a name, which is UTF-8, between two characters.
func cutName[T string | []byte](name T) T {
	if len(name) <= maxTraceName {
		return name
	}
	n := maxTraceName
	for !utf8.RuneStart(name[n]) {
		n--
	}
	return name[:n]
}

// Limits of joining. Go's linker cuts data into thousands of segments to save
// the zeros between them; wazero v1.12.0 spends more on each, every time that
// it makes an instance, than on copying as many zeros as joinGap.
const (
	joinFrom = 64
	joinGap  = 512
	maxZeros = 8 << 20
)

// joinData returns a data section in which segments that are close together are
// one, with the zeros between them, which is what a fresh memory has there. It
// is nil if there is little to gain.
func (s *scan) joinData() []byte {
	if s.dataFixed || len(s.data) < joinFrom {
		return nil
	}
	data := slices.Clone(s.data)
	slices.SortStableFunc(data, func(a, b segment) int { return cmp.Compare(a.offset, b.offset) })
	end := func(d segment) uint64 { return uint64(d.offset) + uint64(d.bytes.end-d.bytes.start) }
	apart := func(i int) bool { return i == 0 || uint64(data[i].offset)-end(data[i-1]) > joinGap }
	joined, zeros := 0, 0
	for i := range data {
		if i > 0 && end(data[i-1]) > uint64(data[i].offset) {
			return nil // the later one in the file wins
		}
		if apart(i) {
			joined++
		} else {
			zeros += int(uint64(data[i].offset) - end(data[i-1]))
		}
	}
	if joined > len(data)/2 || zeros > maxZeros {
		return nil
	}
	body := make([]byte, 0, s.sections[11].end-s.sections[11].start+zeros)
	body = appendU32(body, uint32(joined))
	for i := 0; i < len(data); {
		j := i + 1
		for j < len(data) && !apart(j) {
			j++
		}
		body = append(body, 0, 0x41)
		body = append(appendI32(body, int32(data[i].offset)), 0x0b)
		body = appendU32(body, uint32(end(data[j-1])-uint64(data[i].offset)))
		for k := i; k < j; k++ {
			if k > i {
				gap := uint64(data[k].offset) - end(data[k-1])
				body = append(body, make([]byte, gap)...)
			}
			body = append(body, s.wasm[data[k].bytes.start:data[k].bytes.end]...)
		}
		i = j
	}
	return body
}

func appendSection(b []byte, id byte, body []byte) []byte {
	return append(appendU32(append(b, id), uint32(len(body))), body...)
}

func appendName(b []byte, name string) []byte {
	return append(appendU32(b, uint32(len(name))), name...)
}

func appendI32(b []byte, v int32) []byte { return appendI64(b, int64(v)) }

func appendI64(b []byte, v int64) []byte {
	for {
		d := byte(v & 0x7f)
		v >>= 7
		if (v == 0 && d&0x40 == 0) || (v == -1 && d&0x40 != 0) {
			return append(b, d)
		}
		b = append(b, d|0x80)
	}
}

func appendU32(b []byte, v uint32) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}
