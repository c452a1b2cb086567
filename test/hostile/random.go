package hostile

import (
	"fmt"
	"math/rand/v2"

	"github.com/wasmjob/wasmjob/abi"
	w "github.com/wasmjob/wasmjob/test/wasm"
)

// Random returns the random module of a seed: a valid SIMPLE job whose functions
// loop, call each other, themselves and the host, directly and by a table, and
// use bulk instructions, with and without loops around them. Most never end.
func Random(seed uint64) Module {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), job: newJob(pages)}
	return Module{Name: fmt.Sprint("random/", seed), Wasm: g.module(), End: Ended}
}

// generator writes one module.
type generator struct {
	*rand.Rand
	job

	funcs   []function // the imported ones first
	imports int
	size    int // instructions that may still be written, about
	locals  int // i32 of the function at hand, its parameters among them
	labels  int // blocks around what is written
}

// function has i32 parameters only, unless it is imported.
type function struct {
	number          uint32
	params, results string
}

const (
	tableSize = 20_000
	dataSize  = 256 << 10
	ownLocals = 4 // of each function, besides its parameters
)

// importable are imports that take any arguments without harm to the test's own
// process, and whose time depends on them.
func importable() []function {
	return []function{
		{params: "ii", results: "i"},   // random_get
		{params: "iiii", results: "i"}, // fd_write
		{params: "iiii", results: "i"}, // fd_read
		{params: "iiii", results: "i"}, // poll_oneoff
		{params: "", results: "i"},     // sched_yield
		{params: "ili", results: "i"},  // clock_time_get
		{params: "iii", results: "i"},  // fd_prestat_dir_name
		{params: "iiiiillii", results: "i"},
		{params: "iiiii", results: "i"}, // path_filestat_get
		{params: "ii", results: "i"},    // args_get
	}
}

var importNames = [...]string{"random_get", "fd_write", "fd_read", "poll_oneoff", "sched_yield", "clock_time_get",
	"fd_prestat_dir_name", "path_open", "path_filestat_get", "args_get"}

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

// pick is one of several numbers.
func (g *generator) pick(of ...int32) int32 { return of[g.IntN(len(of))] }

func (g *generator) module() []byte {
	for i, f := range importable() {
		if g.chance(40) {
			f.number = g.wasi(importNames[i], f.params, f.results)
			g.funcs = append(g.funcs, f)
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
		f := function{params: []string{"", "i", "i", "ii"}[g.IntN(4)], results: []string{"", "", "i"}[g.IntN(3)]}
		f.number = g.Declare(f.params, f.results)
		g.funcs = append(g.funcs, f)
	}
	g.Table(tableSize, tableSize)
	numbers := make([]uint32, len(g.funcs))
	for i, f := range g.funcs {
		numbers[i] = f.number
	}
	g.Elem(0, numbers...)
	g.PassiveElem(numbers...)
	g.PassiveData(make([]byte, dataSize))
	g.Global(0)

	for _, f := range g.funcs[g.imports:] {
		g.size = []int{5, 20, 60, 200}[g.IntN(4)]
		g.locals = len(f.params) + ownLocals
		var code []byte
		if f.params != "" && g.chance(70) { // so that recursion does not only overflow
			code = w.Code(w.Get(0), w.Eqz(), w.If(g.result(f), w.Return()), fewer(), w.Set(0))
		}
		code = append(code, g.statements(1+g.IntN(6), 0)...)
		g.Body(f.number, "iiii", code, g.result(f))
	}

	g.size, g.locals = 50, ownLocals
	body := g.statements(1+g.IntN(3), 0)
	for range 1 + g.IntN(3) {
		body = append(body, g.call(g.funcs[g.imports+g.IntN(len(g.funcs)-g.imports)], 0)...)
	}
	if g.chance(60) {
		body = forever(body)
	}
	return g.execute("iiii", body)
}

// result is what a function returns.
func (g *generator) result(f function) []byte {
	if f.results == "" {
		return nil
	}
	return w.Get(uint32(g.IntN(g.locals)))
}

// statements leave the stack as it is. depth bounds how far they nest.
func (g *generator) statements(n, depth int) []byte {
	var code []byte
	for range n {
		code = append(code, g.statement(depth)...)
	}
	return code
}

// within are statements in so many blocks more.
func (g *generator) within(blocks, depth int) []byte {
	g.labels += blocks
	defer func() { g.labels -= blocks }()
	return g.statements(g.IntN(4), depth+1)
}

func (g *generator) statement(depth int) []byte {
	if g.size--; g.size < 0 || depth > 8 {
		return w.Code(g.number(depth), w.Set(uint32(g.IntN(g.locals))))
	}
	local := uint32(g.IntN(g.locals))
	inner := func() []byte { return g.within(1, depth) }
	switch g.IntN(16) {
	case 0:
		return w.Block(inner())
	case 1: // a loop that ends
		return w.Code(w.I32Const(g.pick(1, 10, 1000, 1<<30)), w.Set(local),
			w.Loop(inner(), w.Get(local), w.I32Const(1), w.Sub(), w.Tee(local), w.BrIf(0)))
	case 2: // one that may not
		return w.Loop(inner(), g.number(depth), w.BrIf(0))
	case 3:
		return w.Code(g.number(depth), w.If(inner()))
	case 4:
		return w.Code(g.number(depth), []byte{0x04, w.None}, inner(), []byte{0x05}, inner(), []byte{0x0b})
	case 5: // out of a block, or into a loop
		return w.Block(inner(), g.number(depth), w.BrIf(uint32(g.IntN(g.labels+1))))
	case 6:
		return w.Block(w.Loop(w.Block(g.number(depth), w.BrTable(0, 1, 2, 0)), g.within(2, depth), g.number(depth), w.BrIf(0)))
	case 7, 8:
		return g.call(g.funcs[g.IntN(len(g.funcs))], depth)
	case 9:
		return g.call(g.funcs[g.imports+g.IntN(len(g.funcs)-g.imports)], depth)
	case 10:
		return g.bulk()
	case 11:
		return w.Code(w.I32Const(g.pick(0, 1, 1, 100)), w.MemoryGrow(), w.Drop())
	case 12: // the same, many times
		n := int(g.pick(2, 10, 100, 1000))
		one := g.statement(depth + 4)
		if n*len(one) > 10_000 {
			n = 1
		}
		return w.Times(n, one)
	case 13:
		return w.Code(w.F64Const(2), w.Times(int(g.pick(10, 20, 300)), w.F64Const(1.1), []byte{0xa3}, []byte{0x9f}), w.Drop())
	case 14:
		return w.Code(g.address(), g.number(depth), w.Store())
	}
	return w.Code(g.number(depth), w.Set(local))
}

// number pushes an i32.
func (g *generator) number(depth int) []byte {
	if depth > 8 {
		return w.I32Const(g.pick(0, 1, -1))
	}
	switch g.IntN(7) {
	case 0:
		return w.I32Const(g.pick(0, 1, 2, -1, 1<<30))
	case 1:
		return w.Code(g.address(), w.Load())
	case 2:
		return w.Code(g.number(depth+3), g.number(depth+3), []byte{[]byte{0x6a, 0x6b, 0x6c, 0x71, 0x73, 0x46, 0x48}[g.IntN(7)]})
	case 3:
		return w.Code(g.number(depth+3), g.number(depth+3), g.number(depth+3), []byte{0x1b})
	case 4:
		return w.GlobalGet(0)
	}
	return w.Get(uint32(g.IntN(g.locals)))
}

// address pushes one of a word within the memory.
func (g *generator) address() []byte {
	return w.Code(w.Get(uint32(g.IntN(g.locals))), w.I32Const(whole-1), []byte{0x71}, w.I32Const(8), []byte{0x76})
}

// call calls a function, half of the time by the table.
func (g *generator) call(f function, depth int) []byte {
	var code []byte
	for _, p := range []byte(f.params) {
		switch {
		case p == 'l':
			code = append(code, w.I64Const(int64(g.pick(0, 1, -1, 1<<30)))...)
		case int(f.number) < g.imports:
			code = append(code, w.I32Const(g.pick(0, 0, 1, 3, 64, 4096, page, 1<<20, whole/2, whole/2, whole))...)
		default:
			code = append(code, g.number(depth+5)...)
		}
	}
	if g.chance(50) {
		code = append(code, w.Call(f.number)...)
	} else {
		at := int32(f.number) // Elem puts them in order
		code = append(code, w.Code(w.I32Const(at), w.CallIndirect(g.Type(f.params, f.results)))...)
	}
	if f.results != "" {
		code = append(code, w.Drop()...)
	}
	return code
}

// bulk is a bulk instruction within the bounds.
func (g *generator) bulk() []byte {
	n := g.pick(0, 1, 1000, page-1, page, 1<<20, whole/2)
	entries := g.pick(0, 1, 1000, tableSize/2)
	functions := int32(len(g.funcs))
	switch g.IntN(6) {
	case 0:
		return bulk(w.MemoryFill(), g.pick(0, 1), 0, n)
	case 1:
		return bulk(w.MemoryCopy(), g.pick(0, 1, whole/2), g.pick(0, 1, whole/2), n)
	case 2:
		return bulk(w.MemoryInit(0), 0, 0, min(n, dataSize))
	case 3: // behind the functions that are called
		return bulk(w.TableCopy(), functions, functions+g.pick(0, 1), min(entries, tableSize-functions-1))
	case 4:
		return w.Code(w.I32Const(functions), w.RefNull(), w.I32Const(min(entries, tableSize-functions)), w.TableFill())
	}
	return bulk(w.TableInit(0), functions, 0, g.pick(0, 1))
}
