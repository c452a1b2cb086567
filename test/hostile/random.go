package hostile

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	w "github.com/wasmjob/wasmjob/test/wasm"
)

// Random returns the random module of a seed: a SIMPLE job whose functions loop,
// call each other, themselves and the host, directly and by a table, hand on many
// values, branch far, and use all kinds of instructions. Most never end. It is
// valid, unless some bytes of it were changed: that is so of one in thirty.
func Random(seed uint64) Module {
	g := newGenerator(seed)
	m := Module{Name: fmt.Sprint("random/", seed), Wasm: g.module(), End: Ended}
	if g.bytes < whole {
		m.Memory, m.Runs = 1<<20, time.Second
	}
	if g.chance(3) {
		m.Wasm, m.Invalid = g.damaged(m.Wasm), true
	}
	return m
}

func newGenerator(seed uint64) *generator {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), job: newJob(pages), bytes: whole}
	if g.chance(25) {
		g.job, g.bytes = newJob(16), 15*page
	}
	return g
}

// generator writes one module.
type generator struct {
	*rand.Rand
	job

	bytes   int32      // of memory, but for what instructions point at
	funcs   []function // the imported ones first
	imports int
	datas   int // passive segments
	size    int // bytes of code that may still be written, about
	locals  string
	results string   // of the function at hand
	labels  []string // what a branch takes along, the innermost last
}

// function has a number and a type, in the letters of the assembler.
type function struct {
	number          uint32
	params, results string
}

const (
	tableSize = 20_000
	dataSize  = 256 << 10
	// kinds are all types of values.
	kinds = "ildfvr"
	// ownLocals are those of each function, besides its parameters.
	ownLocals = "iiiildfvr"
	// nesting is how deep statements and values are in each other.
	nesting = 7
)

// imported is a function of the host.
type imported struct {
	name string
	function
}

// wasi1 are all functions of WASI preview 1.
func wasi1() []imported {
	var list []imported
	for _, f := range strings.Fields(`
		args_get:ii args_sizes_get:ii clock_res_get:ii clock_time_get:ili environ_get:ii environ_sizes_get:ii fd_advise:illi fd_allocate:ill fd_close:i
		fd_datasync:i fd_fdstat_get:ii fd_fdstat_set_flags:ii fd_fdstat_set_rights:ill fd_filestat_get:ii fd_filestat_set_size:il fd_filestat_set_times:illi
		fd_pread:iiili fd_prestat_dir_name:iii fd_prestat_get:ii fd_pwrite:iiili fd_read:iiii fd_readdir:iiili fd_renumber:ii fd_seek:ilii fd_sync:i
		fd_tell:ii fd_write:iiii path_create_directory:iii path_filestat_get:iiiii path_filestat_set_times:iiiilli path_link:iiiiiii path_open:iiiiillii
		path_readlink:iiiiii path_remove_directory:iii path_rename:iiiiii path_symlink:iiiii path_unlink_file:iii poll_oneoff:iiii proc_exit:i proc_raise:i
		random_get:ii sched_yield: sock_accept:iii sock_recv:iiiiii sock_send:iiiii sock_shutdown:ii`) {
		name, params, _ := strings.Cut(f, ":")
		results := "i"
		if name == "proc_exit" {
			results = ""
		}
		list = append(list, imported{name, function{params: params, results: results}})
	}
	return list
}

// rule is a way to write something, and how often it is taken beside the others.
type rule struct {
	weight int
	write  func() []byte
}

// one follows one of the rules.
func (g *generator) one(rules ...rule) []byte {
	all := 0
	for _, r := range rules {
		all += r.weight
	}
	n := g.IntN(all)
	for _, r := range rules {
		if n -= r.weight; n < 0 {
			return r.write()
		}
	}
	return nil
}

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

// pick is one of several numbers.
func (g *generator) pick(of ...int32) int32 { return of[g.IntN(len(of))] }

// extreme are numbers at the edges of what is meant.
func (g *generator) extreme() int32 {
	return g.pick(0, 0, 1, 2, 3, 4, 8, 64, 4096, page-1, page, 1<<20, g.bytes/2, g.bytes, g.bytes+page, 1<<30, math.MaxInt32, math.MinInt32, -1, -4, -page)
}

func (g *generator) extremeLong() int64 {
	return []int64{0, 1, -1, 1 << 20, 1 << 32, 1<<32 - 1, 1 << 62, math.MaxInt64, math.MinInt64}[g.IntN(9)]
}

// types are some types of values: few as a rule, and very many now and then.
func (g *generator) types(few int) string {
	n := g.IntN(few + 1)
	if g.chance(2) {
		n = int(g.pick(17, 100, 300, 1000))
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = kinds[g.IntN(len(kinds))]
	}
	return string(b)
}

func (g *generator) module() []byte {
	for _, f := range wasi1() {
		if g.chance(15) {
			f.number = g.wasi(f.name, f.params, f.results)
			g.funcs = append(g.funcs, f.function)
		}
	}
	for _, im := range abi.Imports() {
		if g.chance(20) {
			f := function{params: letters(im.Type.Params), results: letters(im.Type.Results)}
			f.number = g.host(im.Name, f.params, f.results)
			g.funcs = append(g.funcs, f)
		}
	}
	g.imports = len(g.funcs)
	for range 1 + g.IntN(12) {
		f := function{params: g.types(3), results: g.types(1)}
		if g.chance(60) { // counts down, see below
			f.params = "i" + f.params
			f.params = f.params[:min(len(f.params), 1000)]
		}
		f.number = g.Declare(f.params, f.results)
		g.funcs = append(g.funcs, f)
	}
	g.segments()
	for _, f := range g.funcs[g.imports:] {
		g.body(f)
	}

	g.begin(ownLocals, "i")
	g.size = 2000
	body := g.statements(1+g.IntN(3), 0)
	for range 1 + g.IntN(3) {
		body = append(body, g.call(g.own(), 0)...)
	}
	if g.chance(70) {
		g.labels = append(g.labels, "")
		body = forever(body, g.statement(0))
	}
	if g.chance(2) {
		g.begin(ownLocals, "")
		g.size = 100
		g.Start(g.Func("", "", g.locals, g.statements(2, 3)))
	}
	return g.execute(ownLocals, body)
}

// segments fill the table and the memory, and lie ready for bulk instructions.
func (g *generator) segments() {
	numbers := make([]uint32, len(g.funcs))
	for i, f := range g.funcs {
		numbers[i] = f.number
	}
	g.Table(tableSize, tableSize+uint32(g.pick(0, 10_000)))
	g.Elem(0, numbers...)
	g.PassiveElem(numbers...)
	g.DeclaredElem(numbers...)
	if g.chance(5) {
		g.PassiveElem(slices.Repeat(numbers, 10_000/len(numbers))...)
		for range g.pick(1, 100, 1000) {
			g.Elem(int32(len(numbers)), numbers[0])
		}
	}
	g.PassiveData(make([]byte, dataSize))
	g.datas = 1
	if g.chance(5) {
		for range g.pick(1, 100, 5000) {
			g.Data(g.pick(0, page, g.bytes), []byte("data"))
		}
		g.PassiveData(make([]byte, g.pick(1, page, 4<<20)))
	}
	for range 1 + g.IntN(3) {
		g.Global(g.extreme())
	}
}

// begin begins a function with these locals, its parameters among them.
func (g *generator) begin(locals, results string) {
	g.locals, g.results, g.labels = locals, results, []string{results}
}

func (g *generator) body(f function) {
	own := ownLocals
	if g.chance(3) {
		own += strings.Repeat(string(kinds[g.IntN(len(kinds))]), int(g.pick(100, 2000, 20_000)))
	}
	g.begin(f.params+own, f.results)
	g.size = []int{50, 200, 600, 3000}[g.IntN(4)]
	var code []byte
	if strings.HasPrefix(f.params, "i") && g.chance(80) { // so that recursion does not only overflow
		code = w.Code(w.Get(0), w.Eqz(), w.If(g.values(f.results, nesting), w.Return()), fewer(), w.Set(0))
	}
	code = append(code, g.statements(1+g.IntN(6), 0)...)
	g.Body(f.number, own, code, g.values(f.results, nesting))
}

// own is a function of the module.
func (g *generator) own() function { return g.funcs[g.imports+g.IntN(len(g.funcs)-g.imports)] }

// statements leave the stack as it is. depth bounds how far they nest.
func (g *generator) statements(n, depth int) []byte {
	var code []byte
	for range n {
		code = append(code, g.statement(depth)...)
	}
	return code
}

// within are statements in a block to which branches take so much along.
func (g *generator) within(label string, depth int) []byte {
	g.labels = append(g.labels, label)
	defer func() { g.labels = g.labels[:len(g.labels)-1] }()
	return g.statements(g.IntN(4), depth+1)
}

func (g *generator) statement(depth int) []byte {
	if g.size < 0 || depth > nesting {
		return g.assign(nesting)
	}
	var code []byte
	value := func() []byte { return g.value('i', depth+1) }
	code = g.one(
		rule{12, func() []byte { return w.Block(g.within("", depth)) }},
		rule{12, func() []byte { // a loop that ends
			local := g.local('i')
			return w.Code(w.I32Const(g.pick(1, 10, 1000, 1<<30)), w.Set(local),
				w.Loop(g.within("", depth), w.Get(local), w.I32Const(1), w.Sub(), w.Tee(local), w.BrIf(0)))
		}},
		rule{12, func() []byte { return w.Loop(g.within("", depth), value(), w.BrIf(0)) }}, // one that may not
		rule{8, func() []byte { return w.Code(value(), w.If(g.within("", depth))) }},
		rule{8, func() []byte {
			return w.Code(value(), []byte{0x04, w.None}, g.within("", depth), []byte{0x05}, g.within("", depth), []byte{0x0b})
		}},
		rule{8, func() []byte { return g.typed(depth) }},
		rule{8, func() []byte { return g.branch(depth) }},
		rule{4, func() []byte { return g.branches() }},
		rule{1, func() []byte { return g.deep(depth) }},
		rule{15, func() []byte { return g.call(g.funcs[g.IntN(len(g.funcs))], depth) }},
		rule{10, func() []byte { return g.call(g.own(), depth) }},
		rule{1, func() []byte { return g.leave() }},
		rule{12, func() []byte { return g.bulk() }},
		rule{8, func() []byte { return g.table() }},
		rule{4, func() []byte {
			return w.Code(w.I32Const(g.pick(0, 1, 1, 100, -1)), w.MemoryGrow(), w.Drop())
		}},
		rule{6, func() []byte { // the same, many times
			n, one := int(g.pick(2, 10, 100, 1000)), g.statement(depth+4)
			if n*len(one) > 10_000 {
				n = 1
			}
			return w.Times(n, one)
		}},
		rule{4, func() []byte {
			return w.Code(w.F64Const(2), w.Times(int(g.pick(10, 20, 300)), w.F64Const(1.1), []byte{0xa3}, []byte{0x9f}), w.Drop())
		}},
		rule{8, func() []byte { return g.store(depth) }},
		rule{20, func() []byte { return g.assign(depth) }},
	)
	g.size -= len(code)
	return code
}

// local is a local of a type. There is one of each.
func (g *generator) local(kind byte) uint32 {
	at := g.IntN(len(g.locals))
	if n := strings.IndexByte(g.locals[at:], kind); n >= 0 {
		return uint32(at + n)
	}
	return uint32(strings.IndexByte(g.locals, kind))
}

func (g *generator) assign(depth int) []byte {
	kind := kinds[g.IntN(len(kinds))]
	if !strings.Contains(g.locals, string(kind)) {
		return []byte{0x01}
	}
	if kind == 'i' && g.chance(20) {
		return w.Code(g.value('i', depth+1), w.GlobalSet(0))
	}
	return w.Code(g.value(kind, depth+1), w.Set(g.local(kind)))
}

// typed is a block or a loop with parameters and results.
func (g *generator) typed(depth int) []byte {
	params, results := g.types(3), g.types(3)
	begin, label, open := g.values(params, depth+1), results, w.BlockOf
	if g.chance(50) {
		label, open = params, w.LoopOf
	}
	inner := w.Code(drops(params), g.within(label, depth))
	return w.Code(begin, open(g.Type(params, results), inner, g.values(results, depth+1)), drops(results))
}

// branch leaves a block, or begins a loop again, if something is so.
func (g *generator) branch(depth int) []byte {
	at := uint32(g.IntN(len(g.labels)))
	label := g.labels[len(g.labels)-1-int(at)]
	along := g.values(label, depth+1)
	return g.one(
		rule{3, func() []byte { return w.Code(along, g.value('i', depth+1), w.BrIf(at), drops(label)) }},
		rule{1, func() []byte { return w.Code(g.value('i', depth+1), w.If(along, w.Br(at+1))) }},
		rule{1, func() []byte { return w.Code(g.value('i', depth+1), w.If(g.values(g.results, nesting), w.Return())) }},
	)
}

// branches is a table of branches, of many now and then.
func (g *generator) branches() []byte {
	label := g.labels[g.IntN(len(g.labels))]
	var same []uint32
	for i, l := range g.labels {
		if l == label {
			same = append(same, uint32(len(g.labels)-i)) // counted from within the if
		}
	}
	n := int(g.pick(1, 3, 10))
	if g.chance(5) {
		n = int(g.pick(100, 1000, 20_000))
	}
	list := make([]uint32, n)
	for i := range list {
		list[i] = same[g.IntN(len(same))]
	}
	return w.Code(g.value('i', nesting), w.If(g.values(label, nesting), g.value('i', nesting), w.BrTable(list...)))
}

// deep is a statement in very many blocks.
func (g *generator) deep(depth int) []byte {
	n, kind := int(g.pick(10, 100, 1000, 3000)), byte(g.pick(0x02, 0x03))
	for range n {
		g.labels = append(g.labels, "")
	}
	inner := g.statements(2, depth+3)
	g.labels = g.labels[:len(g.labels)-n]
	return w.Code(w.Times(n, []byte{kind, w.None}), inner, w.Times(n, []byte{0x0b}))
}

// leave returns with more on the stack than is returned.
func (g *generator) leave() []byte {
	f := g.own()
	return w.Code(w.I32Const(g.pick(0, 1)), w.If(
		w.Times(int(g.pick(1, 10, 100)), g.values(f.params, nesting), w.Call(f.number)), g.values(g.results, nesting), w.Return()))
}

// values push one of each type.
func (g *generator) values(types string, depth int) []byte {
	if len(types) > 10 {
		depth = nesting
	}
	var code []byte
	for _, t := range []byte(types) {
		code = append(code, g.value(t, depth)...)
	}
	return code
}

// drops drop one of each type.
func drops(types string) []byte { return w.Times(len(types), w.Drop()) }

// value pushes a value of a type.
func (g *generator) value(kind byte, depth int) []byte {
	has := 0 // it has a local of the type
	if strings.IndexByte(g.locals, kind) >= 0 {
		has = 1
	}
	get := rule{4 * has, func() []byte { return w.Get(g.local(kind)) }}
	constant := rule{2, func() []byte { return g.constant(kind) }}
	if depth >= nesting || g.size < 0 {
		return g.one(get, constant)
	}
	sub := func(t byte) []byte { return g.value(t, depth+3) }
	choose := rule{1, func() []byte { // select
		if kind == 'r' {
			return w.Code(sub('r'), sub('r'), sub('i'), []byte{0x1c, 1, w.FuncRef})
		}
		return w.Code(sub(kind), sub(kind), sub('i'), []byte{0x1b})
	}}
	two := func(ops ...[]byte) rule {
		return rule{3, func() []byte { return w.Code(sub(kind), sub(kind), ops[g.IntN(len(ops))]) }}
	}
	from := func(t byte, op ...byte) rule {
		return rule{1, func() []byte { return w.Code(sub(t), op) }}
	}
	rules := []rule{get, constant, choose}
	switch kind {
	case 'i':
		rules = append(rules, two(w.Op(0x6a), w.Op(0x6b), w.Op(0x6c), w.Op(0x71), w.Op(0x73), w.Op(0x46), w.Op(0x48), w.Op(0x74), w.Op(0x77)),
			rule{2, func() []byte { return w.Code(g.address(), w.Load()) }},
			rule{1, func() []byte { return w.GlobalGet(0) }},
			rule{1, func() []byte { return []byte{0x3f, 0} }}, // memory.size
			rule{1, func() []byte { return w.TableSize() }},
			from('l', 0xa7), from('d', 0xfc, 3), from('r', 0xd1), from('v', 0xfd, 0x1b, 1), from('v', 0xfd, 0x53), from('v', 0xfd, 0x64))
	case 'l':
		rules = append(rules, two(w.Op(0x7c), w.Op(0x7d), w.Op(0x7e), w.Op(0x83), w.Op(0x85)),
			from('i', 0xac), from('d', 0xfc, 6), from('v', 0xfd, 0x1d, 1),
			rule{1, func() []byte { return w.Code(g.address(), []byte{0x29, 3, 0}) }})
	case 'f':
		rules = append(rules, two(w.Op(0x92), w.Op(0x94), w.Op(0x95)), from('f', 0x91), from('d', 0xb6), from('i', 0xb2))
	case 'd':
		rules = append(rules, two(w.Op(0xa0), w.Op(0xa2), w.Op(0xa3)), from('d', 0x9f), from('f', 0xbb), from('i', 0xb7),
			rule{1, func() []byte { return w.Code(g.address(), []byte{0x2b, 3, 0}) }})
	case 'v':
		rules = append(rules, two(w.Op(0xfd, 0x6e), w.Op(0xfd, 0xae, 1), w.Op(0xfd, 0xb5, 1), w.Op(0xfd, 0xce, 1), w.Op(0xfd, 0xf3, 1), w.Op(0xfd, 0x4e), w.Op(0xfd, 0x51), w.Op(0xfd, 0x0e), g.shuffle()),
			from('i', 0xfd, 0x11), from('l', 0xfd, 0x12), from('d', 0xfd, 0x14), from('v', 0xfd, 0xef, 1),
			rule{1, func() []byte { return w.Code(g.address(), []byte{0xfd, 0, 4, 0}) }})
	case 'r':
		rules = append(rules, rule{2, func() []byte { return w.Code(w.I32Const(g.pick(0, 1, tableSize-1)), w.TableGet()) }})
	}
	return g.one(rules...)
}

func (g *generator) shuffle() []byte {
	code := []byte{0xfd, 0x0d}
	for range 16 {
		code = append(code, byte(g.IntN(32)))
	}
	return code
}

func (g *generator) constant(kind byte) []byte {
	switch kind {
	case 'i':
		return w.I32Const(g.pick(0, 1, 1, 2, g.extreme()))
	case 'l':
		return w.I64Const(g.extremeLong())
	case 'f':
		return []byte{0x43, 0, 0, 0xc0, 0x3f}
	case 'd':
		return w.F64Const([]float64{0, 1.1, -1, math.Inf(1), math.NaN(), 1e300}[g.IntN(6)])
	case 'v':
		return w.Code([]byte{0xfd, 12}, w.Times(16, []byte{byte(g.IntN(256))}))
	}
	if g.chance(50) {
		return w.RefFunc(g.funcs[g.IntN(len(g.funcs))].number)
	}
	return w.RefNull()
}

// address pushes one of a word within the first 512 KiB.
func (g *generator) address() []byte {
	return w.Code(g.value('i', nesting), w.I32Const(whole-1), []byte{0x71}, w.I32Const(8), []byte{0x76})
}

func (g *generator) store(depth int) []byte {
	kind := "ildv"[g.IntN(4)]
	op := map[byte][]byte{'i': w.Store(), 'l': {0x37, 3, 0}, 'd': {0x39, 3, 0}, 'v': {0xfd, 0x0b, 4, 0}}[kind]
	return w.Code(g.address(), g.value(kind, depth+1), op)
}

// call calls a function, half of the time by the table. The host's are called with extreme
// numbers.
func (g *generator) call(f function, depth int) []byte {
	var code []byte
	if int(f.number) < g.imports {
		for _, p := range []byte(f.params) {
			switch {
			case g.chance(10):
				code = append(code, g.value(p, depth+3)...)
			case p == 'l':
				code = append(code, w.I64Const(g.extremeLong())...)
			default:
				code = append(code, w.I32Const(g.extreme())...)
			}
		}
	} else {
		code = g.values(f.params, depth+3)
	}
	if g.chance(50) {
		code = append(code, w.Call(f.number)...)
	} else { // Elem puts them in order
		code = append(code, w.Code(w.I32Const(int32(f.number)), w.CallIndirect(g.Type(f.params, f.results)))...)
	}
	return append(code, drops(f.results)...)
}

// bulk is a bulk instruction, within the bounds as a rule.
func (g *generator) bulk() []byte {
	n := min(g.pick(0, 1, 1000, page-1, page, 1<<20, whole/2), g.bytes/2)
	if g.chance(3) {
		n = g.extreme()
	}
	entries := g.pick(0, 1, 1000, tableSize/2)
	functions := int32(len(g.funcs))
	switch g.IntN(7) {
	case 0:
		return bulk(w.MemoryFill(), g.pick(0, 1), 0, n)
	case 1:
		return bulk(w.MemoryCopy(), g.pick(0, 1, g.bytes/2), g.pick(0, 1, g.bytes/2), n)
	case 2:
		return bulk(w.MemoryInit(0), 0, 0, min(n, dataSize))
	case 3: // behind the functions that are called
		return bulk(w.TableCopy(), functions, functions+g.pick(0, 1), min(entries, tableSize-functions-1))
	case 4:
		return w.Code(w.I32Const(functions), g.value('r', nesting), w.I32Const(min(entries, tableSize-functions)), w.TableFill())
	case 5: // data.drop, elem.drop: what is initialised from them then is nothing
		if g.chance(10) {
			return [][]byte{{0xfc, 9, 0}, {0xfc, 13, 1}}[g.IntN(2)]
		}
	}
	return bulk(w.TableInit(1), functions, 0, g.pick(0, 1))
}

// table is an instruction on one entry of the table, or on its size.
func (g *generator) table() []byte {
	at := int32(len(g.funcs)) + g.pick(0, 1, 1000)
	return g.one(
		rule{4, func() []byte { return w.Code(w.I32Const(at), g.value('r', nesting), w.TableSet()) }},
		rule{4, func() []byte { return w.Code(w.I32Const(at), w.TableGet(), w.Drop()) }},
		rule{4, func() []byte { return w.Code(w.RefFunc(g.funcs[g.IntN(len(g.funcs))].number), w.Drop()) }},
		rule{1, func() []byte {
			return w.Code(g.value('r', nesting), w.I32Const(g.pick(0, 1, 1000, -1)), w.TableGrow(), w.Drop())
		}},
	)
}

// damaged is the module with some bytes changed, before its large segment.
func (g *generator) damaged(module []byte) []byte {
	b := slices.Clone(module)
	for range 1 + g.IntN(3) {
		b[8+g.IntN(len(b)-8-dataSize)] ^= 1 << g.IntN(8)
	}
	return b
}
