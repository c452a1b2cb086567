package wasm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/wasmjob/wasmjob/abi"
)

// Limits of the scan. wazero decodes a module into memory before it looks at
// anything, trusting every count in it (v1.12.0: a 40-byte body may declare
// 2^32-1 locals at 8 bytes each, a table 2^27 entries), and it has no knob for
// tables. So these are checked before it sees a byte. They are several times
// what a 14 MB Go program with net/http needs.
const (
	maxName          = 64 << 10
	maxTypes         = 20_000
	maxTypeValues    = 1_000
	maxTypeSection   = 1 << 20
	maxImports       = 1_000
	maxFunctions     = 100_000
	maxTables        = 8
	maxTableEntries  = 100_000
	maxGlobals       = 10_000
	maxExports       = 10_000
	maxSegments      = 100_000
	maxElements      = 500_000
	maxBody          = 2 << 20 // without loops it runs to its end; see Quantum
	maxLocals        = 50_000
	maxAllLocals     = 4_000_000
	maxCustomSection = 1_000
	maxNames         = 1_000_000

	// maxTypeWork is the sum over all types of the square of what they take and return:
	// wazero writes the name of a type anew for each value in it.
	maxTypeWork = 20_000_000
	// maxExportWork is exports times functions: wazero compares each with each for the
	// stack trace of a trap.
	maxExportWork = 100_000_000
	// maxModuleName is the length in bytes of a module's name that stack traces have.
	maxModuleName = 256
)

// Units of linear memory.
const (
	// PageSize is a page of memory in bytes, MaxPages what 32 bits can address.
	PageSize = 1 << 16
	MaxPages = 1 << 16
	// MostPages is the most memory that a guest gets, 2 GiB. wazero v1.12.0 takes a
	// constant address from 2^31 on for a negative one where it knows that the address was
	// checked before: within 2 GiB such a check has always failed.
	MostPages = 1 << 15
)

// Types of WebAssembly functions and kinds of imports and exports, as the
// binary format numbers them.
const (
	kindFunc   = 0
	kindTable  = 1
	kindMemory = 2
	kindGlobal = 3
	kindTag    = 4
)

func kindName(k byte) string {
	names := [...]string{"function", "table", "memory", "global", "tag"}
	if int(k) < len(names) {
		return names[k]
	}
	return "kind " + strconv.Itoa(int(k))
}

type imported struct {
	module, name string
	kind         byte
	typ          uint32 // of a function
}

type exported struct {
	kind  byte
	index uint32
}

type table struct {
	element  byte
	min, max uint32
	capped   bool // the module's own maximum is absent or above the limit
}

// span is a range of bytes in the file.
type span struct{ start, end int }

// scan is what one pass over a module finds. Nothing of the module is run or
// compiled.
type scan struct {
	wasm []byte

	types    []abi.Signature
	imports  []imported
	funcs    []uint32 // type of every function, the imported ones first
	tables   []table
	memory   bool
	minPages uint32
	exports  map[string]exported
	names    []string // of exports, in the module's order
	// declared has the functions that globals and element segments name, by number.
	// Code may refer to these, and to exported ones.
	declared []bool
	// named counts how often they do. elements counts those of all element segments.
	named, elementSegments, elements int
	manifest                         []byte
	problems                         problems // that do not keep the rest from being read

	// sections are the bodies of the sections that there are, by id.
	sections map[byte]span
	// code are the bodies of the module's own functions.
	code []span
	// maxPages is the memory's own maximum, if it is bounded.
	maxPages uint32
	bounded  bool
	// names are the bodies of the first name section's parts, if it is in order.
	moduleName, functionNames span
	// data are the data segments. They may be joined unless dataFixed: if all
	// are copied to places known in advance, and no instruction can refer to
	// one by its number.
	data      []segment
	dataFixed bool

	// tableBytes is Metered.TableBytes, as of rewrite.
	tableBytes int64
}

// segment is bytes of the file that are copied into memory.
type segment struct {
	offset uint32
	bytes  span
}

// scanModule reads the whole module. The error names where it stops making
// sense; it is nil if every section can be decoded within the limits.
func scanModule(wasm []byte) (*scan, error) {
	s := &scan{wasm: wasm, exports: map[string]exported{}, sections: map[byte]span{}}
	if err := checkHeader(wasm); err != nil {
		return s, err
	}
	if err := s.readSections(&cursor{b: wasm, off: 8}); err != nil {
		return s, err
	}
	if len(s.sections) == 0 {
		return s, fmt.Errorf("truncated module: it has no section at all")
	}
	if declared := len(s.funcs) - s.importedFuncs(); declared != len(s.code) {
		return s, fmt.Errorf("truncated or malformed module: %d functions are declared, %d have code", declared, len(s.code))
	}
	if len(s.exports)*len(s.funcs) > maxExportWork {
		return s, fmt.Errorf("%d exports and %d functions: the limit of their product is %d", len(s.exports), len(s.funcs), maxExportWork)
	}
	for name, e := range s.exports {
		if e.kind == kindFunc && int64(e.index) >= int64(len(s.funcs)) {
			return s, fmt.Errorf("malformed module: export %q is function %d of %d", name, e.index, len(s.funcs))
		}
	}
	return s, nil
}

func (s *scan) readSections(c *cursor) error {
	previous := 0
	customs, nameSections := 0, 0
	for c.left() > 0 {
		start := c.off
		id := c.byte()
		size := c.u32()
		if c.err != nil {
			return fmt.Errorf("truncated or malformed module: %w", c.err)
		}
		if uint64(size) > uint64(c.left()) {
			return fmt.Errorf("truncated module: section %s at byte %d is %d bytes long, the file has %d more",
				sectionName(id), start, size, c.left())
		}
		body := &cursor{b: c.b[:c.off+int(size)], off: c.off}
		c.skip(int(size))
		if id == 0 {
			if customs++; customs > maxCustomSection {
				return fmt.Errorf("more than %d custom sections", maxCustomSection)
			}
			if err := s.custom(body, &nameSections); err != nil {
				return err
			}
			continue
		}

		order := sectionOrder(id)
		if err := checkOrder(id, start, order, previous); err != nil {
			return err
		}
		previous = order
		s.sections[id] = span{body.off, len(body.b)}
		s.section(id, body)
		if left := body.left(); left > 0 {
			body.fail("%d bytes too many", left)
		}
		if body.err != nil {
			return fmt.Errorf("section %s: %w", sectionName(id), body.err)
		}
	}
	return nil
}

// checkOrder refuses a section that may not occur, or not after the previous one.
func checkOrder(id byte, start, order, previous int) error {
	if order == 0 && id == 13 {
		return fmt.Errorf("section tag at byte %d: exception handling is not offered; the host runs WebAssembly 2.0", start)
	}
	if order == 0 {
		return fmt.Errorf("malformed module: unknown section %d at byte %d", id, start)
	}
	if order <= previous {
		return fmt.Errorf("malformed module: section %s at byte %d is out of order", sectionName(id), start)
	}
	return nil
}

// isNative reports whether a file begins as an ELF, PE or Mach-O file does.
func isNative(b []byte) bool {
	for _, magic := range []string{
		"\x7fELF", "MZ",
		"\xfe\xed\xfa\xce", "\xfe\xed\xfa\xcf", "\xce\xfa\xed\xfe", "\xcf\xfa\xed\xfe", // Mach-O, 32 and 64 bits, either byte order
		"\xca\xfe\xba\xbe", // Mach-O for several architectures
	} {
		if bytes.HasPrefix(b, []byte(magic)) {
			return true
		}
	}
	return false
}

// checkHeader distinguishes what people put into a file named .wasm.
func checkHeader(b []byte) error {
	const magic, core, component = "\x00asm", "\x01\x00\x00\x00", "\x0d\x00\x01\x00"
	if len(b) == 0 {
		return fmt.Errorf("not a WebAssembly module: the file is empty")
	}
	ended := len(b) < 8 && strings.HasPrefix(magic+core, string(b))
	if !ended && !bytes.HasPrefix(b, []byte(magic)) {
		return fmt.Errorf("not a WebAssembly module: the file %s", otherFile(b))
	}
	if len(b) < 8 {
		return fmt.Errorf("truncated module: the file ends after %d bytes, inside the header", len(b))
	}
	switch version := string(b[4:8]); version {
	case core:
		return nil
	case component:
		return fmt.Errorf("a WebAssembly component, expected a core module: build for wasip1 (wasm32-wasip1), without the component step")
	default:
		return fmt.Errorf("WebAssembly binary version % x, expected 01 00 00 00", version)
	}
}

// otherFile says what a file is that is no module.
func otherFile(b []byte) string {
	text := bytes.TrimLeft(b[:min(len(b), 4096)], " \t\r\n\ufeff")
	for _, begin := range []string{"(module", ";;", "(component"} {
		if bytes.HasPrefix(text, []byte(begin)) {
			return "is WebAssembly text; assemble it first (wat2wasm)"
		}
	}
	if isText(b) {
		return "is text" // it is not quoted: whose it is, is not known
	}
	begins := fmt.Sprintf("begins with % x, expected 00 61 73 6d", b[:min(4, len(b))])
	if isNative(b) {
		begins += "; this is a native program; build with GOOS=wasip1 GOARCH=wasm"
	}
	return begins
}

func isText(b []byte) bool {
	b = b[:min(len(b), 512)]
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if (r == utf8.RuneError && n <= 1 && len(b) >= utf8.UTFMax) || (r < ' ' && !strings.ContainsRune("\t\r\n\f\v\x1b", r)) {
			return false
		}
		b = b[n:]
	}
	return true
}

// sectionOrder is a section's place in a module, 0 for one that may not occur.
// The data count section (12) stands between elements and code.
func sectionOrder(id byte) int {
	return bytes.IndexByte([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 10, 11}, id) + 1
}

func sectionName(id byte) string {
	names := [...]string{"custom", "type", "import", "function", "table", "memory",
		"global", "export", "start", "element", "code", "data", "data count", "tag"}
	if int(id) < len(names) {
		return names[id]
	}
	return strconv.Itoa(int(id))
}

func (s *scan) importedFuncs() int {
	n := 0
	for _, i := range s.imports {
		if i.kind == kindFunc {
			n++
		}
	}
	return n
}

func (s *scan) section(id byte, c *cursor) {
	switch id {
	case 1:
		s.typeSection(c)
	case 2:
		s.importSection(c)
	case 3:
		c.each("functions", maxFunctions, func() { s.funcs = append(s.funcs, s.typeIndex(c)) })
	case 4:
		c.each("tables", maxTables, func() { s.tables = append(s.tables, tableType(c)) })
	case 5:
		c.each("memories", 1, func() {
			s.minPages, s.maxPages, s.bounded = memoryType(c)
			s.memory = true
		})
	case 6:
		c.each("globals", maxGlobals, func() {
			globalType(c)
			var room [32]byte
			c.constant(room[:0], s.declare, same)
		})
	case 7:
		c.each("exports", maxExports, func() { s.exportOne(c) })
	case 8:
		if i := c.u32(); c.err == nil && int64(i) >= int64(len(s.funcs)) {
			c.fail("the start function is %d of %d", i, len(s.funcs))
		}
	case 9:
		_, s.elementSegments, s.elements = c.elements(nil, s.declare, same)
	case 10:
		s.codeSection(c)
	case 11:
		s.readData(c)
	case 12:
		c.u32()
		s.dataFixed = true // instructions may name segments
	}
}

// declare takes note that the module names a function outside of code.
func (s *scan) declare(f uint32) uint32 {
	s.named++
	if s.declared == nil {
		s.declared = make([]bool, len(s.funcs))
	}
	if int64(f) < int64(len(s.declared)) {
		s.declared[f] = true
	}
	return f
}

// Types that are not of the guest contract: of vectors, and of references to functions.
const (
	typeV128    abi.ValueType = 0x7b
	typeFuncRef byte          = 0x70
)

func isValueType(t byte) bool {
	return (t >= 0x7b && t <= 0x7f) || isRefType(t)
}

func isRefType(t byte) bool { return t == 0x70 || t == 0x6f }

func valueType(c *cursor) abi.ValueType {
	t := c.byte()
	if c.err == nil && !isValueType(t) {
		c.fail("value type 0x%02x is not of WebAssembly 2.0", t)
	}
	return abi.ValueType(t)
}

func refType(c *cursor) byte {
	t := c.byte()
	if c.err == nil && !isRefType(t) {
		c.fail("reference type 0x%02x is not of WebAssembly 2.0", t)
	}
	return t
}

func (s *scan) typeSection(c *cursor) {
	if n := c.left(); n > maxTypeSection {
		c.fail("%d bytes, the limit is %d", n, maxTypeSection)
		return
	}
	values := func() []abi.ValueType {
		var list []abi.ValueType
		c.each("values in a function type", maxTypeValues, func() { list = append(list, valueType(c)) })
		return list
	}
	work := 0
	c.each("types", maxTypes, func() {
		if form := c.byte(); c.err == nil && form != 0x60 {
			c.fail("type form 0x%02x is not of WebAssembly 2.0, expected a function type", form)
			return
		}
		params := values()
		results := values()
		n := len(params) + len(results)
		if work += n * n; work > maxTypeWork {
			c.fail("the types have too many values: the sum of the squares is more than %d", maxTypeWork)
		}
		s.types = append(s.types, abi.Signature{Params: params, Results: results})
	})
}

func (s *scan) typeIndex(c *cursor) uint32 {
	i := c.u32()
	if c.err == nil && int64(i) >= int64(len(s.types)) {
		c.fail("type %d of %d", i, len(s.types))
		return 0
	}
	return i
}

func (s *scan) importSection(c *cursor) {
	c.each("imports", maxImports, func() {
		im := imported{module: c.name("an import's module"), name: c.name("an import's name"), kind: c.byte()}
		switch im.kind {
		case kindFunc:
			im.typ = s.typeIndex(c)
			s.funcs = append(s.funcs, im.typ)
		case kindTable:
			tableType(c)
		case kindMemory:
			memoryType(c)
		case kindGlobal:
			globalType(c)
		case kindTag:
			c.byte()
			c.u32()
		default:
			if c.err == nil {
				c.fail("import %s.%s has kind %d", im.module, im.name, im.kind)
			}
		}
		if c.err == nil {
			s.imports = append(s.imports, im)
		}
	})
}

func limits(c *cursor, what string, most uint32) (low, high uint32, bounded bool) {
	flag := c.byte()
	if c.err == nil && flag > 1 {
		c.fail("%s has limits of form 0x%02x (shared or 64-bit), which is not of WebAssembly 2.0", what, flag)
		return 0, 0, false
	}
	low = c.u32()
	if flag == 1 {
		high = c.u32()
		if c.err == nil && high < low {
			c.fail("%s has a maximum of %d below its minimum of %d", what, high, low)
		}
	}
	if c.err == nil && low > most {
		c.fail("%s begins with %d, the limit is %d", what, low, most)
	}
	return low, high, flag == 1
}

func tableType(c *cursor) table {
	t := table{element: refType(c)}
	var bounded bool
	t.min, t.max, bounded = limits(c, "table", maxTableEntries)
	if !bounded || t.max > maxTableEntries {
		t.max, t.capped = maxTableEntries, true
	}
	return t
}

func memoryType(c *cursor) (low, high uint32, bounded bool) {
	low, high, bounded = limits(c, "memory", MaxPages)
	if c.err == nil && bounded && high > MaxPages {
		c.fail("memory has a maximum of %d pages, the limit is %d", high, MaxPages)
	}
	return low, high, bounded
}

func globalType(c *cursor) {
	valueType(c)
	if m := c.byte(); c.err == nil && m > 1 {
		c.fail("global of mutability %d", m)
	}
}

func (s *scan) exportOne(c *cursor) {
	name := c.name("an export's name")
	e := exported{kind: c.byte()}
	e.index = c.u32()
	if c.err != nil {
		return
	}
	if e.kind > kindGlobal {
		c.fail("export %q has kind %d", name, e.kind)
		return
	}
	if s.has(name) {
		c.fail("export %q occurs twice", name)
		return
	}
	s.exports[name] = e
	s.names = append(s.names, name)
}

// Bits of an element segment's form.
const (
	elemPassive     = 1 // or declarative
	elemExplicit    = 2 // it names its table; of a passive one: it is declarative
	elemExpressions = 4 // elements are expressions, not numbers
)

// elements reads the element segments and appends them to out, with what function and
// global make of the numbers in them. It counts the segments, and the elements of all.
func (c *cursor) elements(out []byte, function, global func(uint32) uint32) (code []byte, segments, total int) {
	number := func() uint32 {
		n := c.u32()
		out = appendU32(out, n)
		return n
	}
	segments = c.count("element segments", maxSegments)
	out = appendU32(out, uint32(segments))
	for i := 0; i < segments && c.err == nil; i++ {
		form := number()
		if c.err == nil && form > 7 {
			c.fail("element segment of form %d", form)
		}
		if form&elemPassive == 0 {
			if form&elemExplicit != 0 {
				number()
			}
			out = c.constant(out, function, global)
		}
		expressions := form&elemExpressions != 0
		if form&(elemPassive|elemExplicit) != 0 {
			kind := c.byte()
			if (expressions && !isRefType(kind)) || (!expressions && kind != 0) {
				c.fail("element segment of type 0x%02x", kind)
			}
			out = append(out, kind)
		}
		k := c.count("elements", maxElements-total)
		total += k
		out = appendU32(out, uint32(k))
		for ; k > 0 && c.err == nil; k-- {
			if expressions {
				out = c.constant(out, function, global)
			} else {
				out = appendU32(out, function(c.u32()))
			}
		}
	}
	return out, segments, total
}

func (s *scan) codeSection(c *cursor) {
	all := 0
	n := c.count("function bodies", maxFunctions)
	s.code = make([]span, 0, n)
	for i := 0; i < n && c.err == nil; i++ {
		size := c.u32()
		if c.err == nil && (size > maxBody || int64(size) > int64(c.left())) {
			c.fail("body %d is %d bytes long, the limit is %d and %d are left", i, size, maxBody, c.left())
			return
		}
		if c.err != nil {
			return
		}
		body := &cursor{b: c.b[:c.off+int(size)], off: c.off}
		s.code = append(s.code, span{c.off, c.off + int(size)})
		c.skip(int(size))
		groups := body.u32()
		locals := 0
		for g := uint32(0); g < groups && body.err == nil; g++ {
			k := body.u32()
			valueType(body)
			if body.err == nil && (k > maxLocals || locals+int(k) > maxLocals) {
				body.fail("function body %d declares more than %d locals", i, maxLocals)
			}
			locals += int(k)
		}
		if all += locals; body.err == nil && all > maxAllLocals {
			body.fail("more than %d locals in all", maxAllLocals)
		}
		if body.err != nil {
			c.err = body.err
		}
	}
}

func (s *scan) readData(c *cursor) {
	n := c.count("data segments", maxSegments)
	s.data = make([]segment, 0, n)
	for i := 0; i < n && c.err == nil; i++ {
		flag := c.u32()
		start := c.off
		switch flag {
		case 0:
			c.skipConstant()
		case 1:
		case 2:
			if m := c.u32(); c.err == nil && m != 0 {
				c.fail("data segment %d is for memory %d", i, m)
			}
			start = c.off
			c.skipConstant()
		default:
			c.fail("data segment of form %d", flag)
		}
		expression := c.b[start:c.off]
		size := c.u32()
		begin := c.off
		c.bytes(size)
		offset, ok := i32Const(expression)
		if !ok {
			s.dataFixed = true
		}
		s.data = append(s.data, segment{offset, span{begin, c.off}})
	}
}

// i32Const is the value of a constant expression that is one i32.const.
func i32Const(expression []byte) (uint32, bool) {
	if len(expression) == 0 || expression[0] != 0x41 {
		return 0, false
	}
	c := &cursor{b: expression, off: 1}
	v := c.signed(32)
	return uint32(v), c.byte() == 0x0b && c.err == nil && c.left() == 0
}

// custom looks at a custom section. Custom sections never make a module
// invalid. wazero sees the names of the module and its functions, if the section
// is in order, and nothing of the others: what debugging information says of
// places in the code is wrong once it is metered.
func (s *scan) custom(c *cursor, nameSections *int) error {
	name := c.name("a custom section's name")
	if c.err != nil {
		return fmt.Errorf("section custom: %w", c.err)
	}
	switch name {
	case "name":
		if *nameSections++; *nameSections == 1 && !s.readNames(c) {
			s.moduleName, s.functionNames = span{}, span{}
		}
	case abi.ManifestSection:
		switch body := c.b[c.off:]; {
		case s.manifest != nil:
			s.problems.add("section %s occurs twice", name)
		case len(body) > abi.MaxManifest:
			s.problems.add("section %s is %d bytes long, the limit is %d", name, len(body), abi.MaxManifest)
		case !json.Valid(body):
			s.problems.add("section %s is not valid JSON", name)
		default:
			s.manifest = body
		}
	}
	return nil
}

// readNames reports whether the body of a name section decodes with no more
// names than it has bytes.
func (s *scan) readNames(c *cursor) bool {
	total := 0
	for c.left() > 0 {
		id := c.byte()
		size := c.u32()
		if c.err != nil || int64(size) > int64(c.left()) {
			return false
		}
		sub := &cursor{b: c.b[:c.off+int(size)], off: c.off}
		at := span{sub.off, len(sub.b)}
		c.skip(int(size))
		switch id {
		case 0:
			sub.name("module name")
			s.moduleName = at
		case 1:
			nameMap(sub, &total)
			s.functionNames = at
		default: // of locals and labels, which have no use here
			continue
		}
		if sub.err != nil || sub.left() != 0 {
			return false
		}
	}
	return c.err == nil
}

func nameMap(c *cursor, total *int) {
	*total += c.each("names", maxNames-*total, func() {
		c.u32()
		b := c.bytes(c.u32())
		if !utf8.Valid(b) {
			c.fail("name is not UTF-8")
		}
	})
}
