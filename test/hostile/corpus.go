package hostile

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"

	"github.com/wasmjob/wasmjob/abi"
	w "github.com/wasmjob/wasmjob/test/wasm"
)

// Corpus is all hostile modules that are known, in groups. It is made anew by
// each call.
func Corpus() ([]Module, error) {
	found, err := foundByFuzzing()
	if err != nil {
		return nil, err
	}
	return slices.Concat(loops(), calls(), bulks(), memories(), wasi(), hostCalls(), capabilities(), entries(),
		sections(), encodings(), compileBombs(), foreign(), attacks(), found), nil
}

// loops never end.
func loops() []Module {
	div := []byte{0xa3} // f64.div
	deepest := forever()
	for range 500 {
		deepest = w.Loop(deepest)
	}
	return []Module{
		{Name: "loop/empty", Wasm: newJob(1).execute("", forever())},
		{Name: "loop/counted", Wasm: newJob(1).execute("l",
			w.I64Const(1<<62), w.Set(0),
			w.Loop(w.Get(0), w.I64Const(1), []byte{0x7d}, w.Tee(0), []byte{0x50}, w.Eqz(), w.BrIf(0)))},
		{Name: "loop/table of branches", Wasm: newJob(1).execute("", w.Loop(w.Block(w.I32Const(0), w.BrTable(1, 1, 0, 1))))},
		{Name: "loop/nested", Wasm: newJob(1).execute("", deepest)},
		{Name: "loop/two inside", Wasm: newJob(1).execute("i", forever(
			w.I32Const(100), w.Set(0), w.Loop(fewer(), w.Tee(0), w.BrIf(0)),
			w.I32Const(100), w.Set(0), w.Loop(fewer(), w.Tee(0), w.BrIf(0))))},
		{Name: "loop/with a result", Wasm: newJob(1).execute("", []byte{0x03, w.I32}, w.Br(0), []byte{0x0b}, w.Drop())},
		{Name: "loop/divisions", Wasm: newJob(1).execute("d", forever(
			w.Get(0), w.Times(2000, w.F64Const(1.000001), div), w.Set(0)))},
		{Name: "loop/long body", Wasm: newJob(1).execute("d", forever(
			w.Get(0), w.Times(100_000, w.F64Const(1.000001), div), w.Set(0)))},
		{Name: "loop/square roots of vectors", Wasm: newJob(1).execute("v", forever(w.Times(2000,
			w.Get(0), []byte{0xfd, 0xef, 0x01}, w.Set(0))))},
		{Name: "loop/far stores", Wasm: newJob(pages).execute("i", forever(
			w.Times(200, w.Get(0), w.I32Const(1_000_003), w.Mul(), w.I32Const(whole/4*4-4), []byte{0x71}, w.I32Const(1), w.Store(),
				w.Get(0), w.I32Const(page+64), w.Add(), w.Set(0))))},
		{Name: "loop/many locals", Wasm: newJob(1).execute(string(bytes.Repeat([]byte("l"), 2000)), forever())},
		{Name: "loop/no memory use", Wasm: newJob(0).execute("", forever(w.Times(3000, []byte{0x01})))},
	}
}

// manyRecursions is a module of which many guests recurse at once.
const manyRecursions = "recursion/in many items at once"

// calls take for ever without a loop.
func calls() []Module {
	// mutual are functions of a parameter that call the next one, and more.
	mutual := func(n int, also func(j job, f []uint32, i int) []byte) []byte {
		j := newJob(1)
		f := make([]uint32, n)
		for i := range f {
			f[i] = j.Declare("i", "")
		}
		j.Table(uint32(n), uint32(n))
		j.Elem(0, f...)
		for i := range f {
			j.Body(f[i], "", untilZero(), also(j, f, i))
		}
		return j.execute("", w.I32Const(deep), w.Call(f[0]))
	}
	again := func(j job, f []uint32, i int) []byte { // two calls of the next
		return w.Times(2, fewer(), w.Call(f[(i+1)%len(f)]))
	}
	endless := func(locals string, before ...[]byte) []byte {
		j := newJob(1)
		f := j.Declare("", "")
		j.Body(f, locals, w.Code(before...), w.Call(f))
		return j.execute("", w.Call(f))
	}
	tree := func(width, height int, leaf ...[]byte) []byte {
		j := newJob(1)
		f := j.Func("", "", "", leaf...)
		for range height {
			f = j.Func("", "", "", w.Times(width, w.Call(f)))
		}
		return j.execute("", w.Call(f))
	}
	typed := func(j job) uint32 { return j.Type("i", "") }
	returned := newJob(1)
	id := returned.Func("i", "i", "", w.Get(0))
	sum := returned.Declare("i", "i")
	returned.Body(sum, "", w.Get(0), w.Eqz(), w.If(w.I32Const(1), w.Return()),
		fewer(), w.Call(sum), w.Call(id), fewer(), w.Call(sum), w.Call(id), w.Add())

	return []Module{
		{Name: "calls/itself twice", Wasm: mutual(1, again)},
		{Name: "calls/in turns", Wasm: mutual(3, again)},
		{Name: "calls/by the table", Wasm: mutual(3, func(j job, f []uint32, i int) []byte {
			return w.Times(2, fewer(), w.I32Const(int32((i+1)%len(f))), w.CallIndirect(typed(j)))
		})},
		{Name: "calls/past a loop that is never reached", Wasm: mutual(1, func(_ job, f []uint32, _ int) []byte {
			return w.Code(w.I32Const(0), w.If(w.Loop()), w.Times(2, fewer(), w.Call(f[0])))
		})},
		{Name: "calls/past a loop that is left", Wasm: mutual(1, func(_ job, f []uint32, _ int) []byte {
			return w.Code(w.Block(w.Br(0), w.Loop()), w.Times(2, fewer(), w.Call(f[0])))
		})},
		{Name: "calls/with results", Wasm: returned.execute("", w.I32Const(deep), w.Call(sum), w.Drop())},
		{Name: "calls/tree", Wasm: tree(40, 8)},
		{Name: "calls/tree of leaves of divisions", Wasm: tree(100, 5, w.F64Const(1), w.Times(20, w.F64Const(3), []byte{0xa3}), w.Drop())},
		{Name: "calls/tree of leaves of roots", Wasm: tree(100, 5, w.F64Const(2), w.Times(240, []byte{0x9f}), w.Drop())},
		{Name: "calls/tree of long functions", Wasm: tree(100, 5, w.F64Const(1), w.Times(6000, w.F64Const(1.5), []byte{0xa3}), w.Drop())},
		// 1.3 KB that ran for 16.8 s past its limit: a leaf is not counted.
		{Name: "calls/leaves that fill", Wasm: tree(60, 4, w.Times(24, bulk(w.MemoryFill(), 0, 0, page-1)))},
		{Name: "calls/leaves that copy", Wasm: tree(60, 4, w.Times(20, bulk(w.MemoryCopy(), 1, 0, page-1)))},

		{Name: "recursion/endless", End: Ended, Wasm: endless("")},
		// All stacks together were more than a worker process may have, which ended it.
		{Name: manyRecursions, End: Ended, Items: 24, Wasm: endless("")},
		{Name: "recursion/with many locals", End: Ended, Wasm: endless(string(bytes.Repeat([]byte("l"), 1000)))},
		{Name: "recursion/again and again", Wasm: func() []byte { // overflows, which ends it: as deep as goes, then back, and again
			j := newJob(1)
			f := j.Declare("i", "")
			j.Body(f, "", untilZero(), fewer(), w.Call(f))
			return j.execute("", forever(w.I32Const(10_000), w.Call(f)))
		}()},
		// 100 MB of native stack: the calls did not pay for it.
		{Name: "recursion/with results that nothing takes", End: Ended, Wasm: func() []byte {
			j := newJob(1)
			f := j.Declare("", string(bytes.Repeat([]byte("l"), 1000)))
			j.Body(f, "", w.Call(f), w.Unreachable())
			return j.execute("", w.Call(f), w.Unreachable())
		}()},
		{Name: "recursion/past a loop that needs much", End: Ended, Wasm: func() []byte {
			j := newJob(1)
			value := j.Func("", "l", "", w.I64Const(1))
			sink := j.Func("l", "", "")
			f := j.Declare("i", "")
			j.Body(f, "", w.Get(0), w.Eqz(), w.If(w.Loop(w.Times(3000, w.Call(value)), w.Times(2999, []byte{0x7c}), w.Call(sink))), w.Get(0), w.Call(f))
			return j.execute("", w.I32Const(1), w.Call(f))
		}()},
		{Name: "recursion/deep with large frames", End: Ended, Wasm: func() []byte {
			j := newJob(1)
			f := j.Declare("i", "")
			locals := string(bytes.Repeat([]byte("l"), 200))
			var use []byte
			for i := range uint32(200) {
				use = append(use, w.Code(w.Get(0), []byte{0xac}, w.Set(1+i))...)
			}
			var after []byte
			for i := range uint32(200) {
				after = append(after, w.Code(w.Get(1+i), w.Drop())...)
			}
			j.Body(f, locals, untilZero(), use, fewer(), w.Call(f), after)
			return j.execute("", forever(w.I32Const(50_000), w.Call(f)))
		}()},
	}
}

// bulks have instructions that take long by themselves, in loops and without.
func bulks() []Module {
	const entries = 100_000
	var list []Module
	for _, b := range []struct {
		name string
		code []byte
	}{
		{"memory.fill", bulk(w.MemoryFill(), 0, 7, whole)},
		{"memory.copy", bulk(w.MemoryCopy(), 0, page, whole)},
		{"memory.init", bulk(w.MemoryInit(0), 0, 0, 4<<20)},
		{"small memory.fill", bulk(w.MemoryFill(), 0, 7, page-1)},
		{"small memory.copy", bulk(w.MemoryCopy(), 0, page, page-1)},
		{"small memory.init", bulk(w.MemoryInit(0), 0, 0, page-1)},
		{"table.fill", w.Code(w.I32Const(0), w.RefNull(), w.I32Const(entries), w.TableFill())},
		{"table.copy", bulk(w.TableCopy(), 0, 1, entries-1)},
		{"table.init", bulk(w.TableInit(0), 0, 0, 20_000)},
		{"table.grow", w.Code(w.RefNull(), w.I32Const(0), w.TableGrow(), w.Drop())},
		{"memory.grow", w.Code(w.I32Const(1), w.MemoryGrow(), w.Drop())},
		// 94 bytes that took 8 GB in 14 s: the engine kept a reference for each turn.
		{"ref.func", w.Code(w.RefFunc(0), w.Drop())},
	} {
		build := func(body func(j job) []byte) []byte {
			j := newJob(pages)
			j.Table(entries, entries)
			f := j.Func("", "", "")
			j.PassiveElem(slices.Repeat([]uint32{f}, 20_000)...)
			j.PassiveData(make([]byte, 4<<20))
			code := body(j)
			return j.execute("", code)
		}
		list = append(list,
			Module{Name: "bulk/" + b.name, Wasm: build(func(job) []byte { return forever(b.code) })},
			Module{Name: "bulk/" + b.name + ", flat", Wasm: build(func(j job) []byte {
				f := j.Func("", "", "", w.Times(20, b.code))
				for range 5 {
					f = j.Func("", "", "", w.Times(100, w.Call(f)))
				}
				return w.Call(f)
			})},
			Module{Name: "bulk/" + b.name + ", in one function", End: Ended, Wasm: build(func(job) []byte { return w.Times(2000, b.code) })},
		)
	}
	return list
}

// memories take memory.
func memories() []Module {
	touch := func() []byte {
		return bulk(w.MemoryFill(), 0, 1, whole)
	}
	grow := newJob(1)
	return []Module{
		{Name: "memory/all of it", Wasm: newJob(pages).execute("", touch(), forever())},
		{Name: "memory/grown page by page", Wasm: grow.execute("", forever(
			w.I32Const(1), w.MemoryGrow(), w.Drop(), w.I32Const(0), w.I32Const(1), w.Store()))},
		{Name: "memory/grown by too much", Wasm: newJob(1).execute("", forever(w.I32Const(page-1), w.MemoryGrow(), w.Drop()))},
		{Name: "memory/outside", End: Ended, Wasm: newJob(1).execute("", w.I32Const(-4), w.Load(), w.Drop())},
		{Name: "memory/large table", Wasm: func() []byte {
			j := newJob(1)
			j.Table(0, 1<<32-1)
			return j.execute("", forever(w.RefNull(), w.I32Const(1<<30), w.TableGrow(), w.Drop(), w.RefNull(), w.I32Const(1), w.TableGrow(), w.Drop()))
		}()},
		{Name: "memory/eight tables", End: Ended, Wasm: func() []byte {
			j := newJob(1)
			for range 8 {
				j.Table(100_000, 100_000)
			}
			return j.execute("", forever())
		}()},
	}
}

// wasi are calls of WASI that take long, return nothing, or ask for too much.
func wasi() []Module {
	type call struct {
		name, function, params string
		code                   []byte
		end                    End
	}
	i, l := w.I32Const, w.I64Const
	// 2,000,000 vectors of 120 MiB each, at address 16 and on: 16 MB of them.
	const vectors = 2_000_000
	iovecs := w.Code(i(16), i(vectors*8+64), w.Store(), i(20), i(whole-vectors*8-64), w.Store(),
		bulk(w.MemoryCopy(), 24, 16, 8), w.Loop( // doubles what is there
			w.Get(0), w.I32Const(16), w.Add(), i(16), w.Get(0), w.MemoryCopy(),
			w.Get(0), i(1), []byte{0x74}, w.Tee(0), i(vectors*8), []byte{0x49}, w.BrIf(0)))
	list := []call{
		{"random_get", "random_get", "ii", w.Code(i(0), i(whole)), Stopped},
		{"random_get of little", "random_get", "ii", w.Code(i(0), i(1)), Stopped},
		{"fd_write to nowhere", "fd_write", "iiii", w.Code(i(99), i(0), i(1), i(8)), Stopped},
		{"fd_write of much", "fd_write", "iiii", w.Code(i(0), i(page), w.Store(), i(4), i(whole-page), w.Store(), i(1), i(0), i(1), i(8)), Stopped},
		{"fd_write of many", "fd_write", "iiii", w.Code(iovecs, i(1), i(16), i(vectors), i(8)), Stopped},
		{"fd_write of many nothings", "fd_write", "iiii", w.Code(i(1), i(page), i(vectors), i(8)), Stopped},
		{"fd_write of more than there is", "fd_write", "iiii", w.Code(i(1), i(0), i(-1), i(8)), Stopped},
		{"fd_read of much", "fd_read", "iiii", w.Code(i(0), i(page), w.Store(), i(4), i(whole-page), w.Store(), i(0), i(0), i(1), i(8)), Stopped},
		{"fd_read of many", "fd_read", "iiii", w.Code(iovecs, i(0), i(16), i(vectors), i(8)), Stopped},
		{"poll_oneoff of an hour", "poll_oneoff", "iiii", w.Code(i(24), l(3600_000_000_000), []byte{0x37, 3, 0},
			i(0), i(page), i(1), i(8)), Stopped},
		{"poll_oneoff of none", "poll_oneoff", "iiii", w.Code(i(0), i(page), i(0), i(8)), Stopped},
		{"poll_oneoff of many", "poll_oneoff", "iiii", w.Code(i(0), i(64<<20), i(1_000_000), i(8)), Stopped},
		{"path_open", "path_open", "iiiiillii", w.Code(i(3), i(0), i(0), i(4096), i(0), l(-1), l(-1), i(0), i(8)), Stopped},
		{"path_open of much", "path_open", "iiiiillii", w.Code(i(3), i(0), i(0), i(whole), i(0), l(-1), l(-1), i(0), i(8)), Stopped},
		{"path_filestat_get", "path_filestat_get", "iiiii", w.Code(i(3), i(0), i(0), i(whole), i(8)), Stopped},
		{"path_create_directory", "path_create_directory", "iii", w.Code(i(3), i(0), i(whole)), Stopped},
		{"path_remove_directory", "path_remove_directory", "iii", w.Code(i(3), i(0), i(whole)), Stopped},
		{"path_unlink_file", "path_unlink_file", "iii", w.Code(i(3), i(0), i(whole)), Stopped},
		{"path_readlink", "path_readlink", "iiiiii", w.Code(i(3), i(0), i(whole), i(0), i(whole), i(8)), Stopped},
		{"path_rename", "path_rename", "iiiiii", w.Code(i(3), i(0), i(whole), i(3), i(0), i(whole)), Stopped},
		{"path_link", "path_link", "iiiiiii", w.Code(i(3), i(0), i(0), i(whole), i(3), i(0), i(whole)), Stopped},
		{"path_symlink", "path_symlink", "iiiii", w.Code(i(0), i(whole), i(3), i(0), i(whole)), Stopped},
		{"fd_readdir", "fd_readdir", "iiili", w.Code(i(3), i(0), i(whole), l(0), i(8)), Stopped},
		{"fd_prestat_dir_name", "fd_prestat_dir_name", "iii", w.Code(i(3), i(0), i(whole)), Stopped},
		{"fd_pread", "fd_pread", "iiili", w.Code(i(0), i(0), i(1), l(0), i(8)), Stopped},
		{"fd_renumber", "fd_renumber", "ii", w.Code(i(1), i(2)), Stopped},
		{"fd_close", "fd_close", "i", w.Code(i(1)), Stopped},
		{"clock_time_get", "clock_time_get", "ili", w.Code(i(0), l(0), i(8)), Stopped},
		{"sched_yield", "sched_yield", "", nil, Stopped},
		{"args_get", "args_get", "ii", w.Code(i(0), i(64)), Stopped},
		{"environ_get", "environ_get", "ii", w.Code(i(0), i(64)), Stopped},
		{"proc_exit", "proc_exit", "i", w.Code(i(1)), Ended},
	}
	var modules []Module
	for _, c := range list {
		results := "i"
		if c.function == "proc_exit" {
			results = ""
		}
		build := func(body func(j job, f uint32) []byte) []byte {
			j := newJob(pages)
			f := j.wasi(c.function, c.params, results)
			j.Table(1, 1)
			j.Elem(0, f)
			return j.execute("i", body(j, f))
		}
		zero := w.Code(i(24), w.Set(0))
		done := []byte{}
		if results != "" {
			done = w.Drop()
		}
		modules = append(modules,
			Module{Name: "wasi/" + c.name, End: c.end, Wasm: build(func(_ job, f uint32) []byte {
				return forever(zero, c.code, w.Call(f), done)
			})},
			Module{Name: "wasi/" + c.name + ", by the table, flat", End: c.end, Wasm: build(func(j job, f uint32) []byte {
				typ := j.Type(c.params, results)
				g := j.Func("", "", "i", w.Times(4, zero, c.code, i(0), w.CallIndirect(typ), done))
				for range 6 {
					g = j.Func("", "", "", w.Times(60, w.Call(g)))
				}
				return w.Call(g)
			})},
		)
	}
	return modules
}

// hostCalls flood the host by its own functions.
func hostCalls() []Module {
	i, l := w.I32Const, w.I64Const
	var modules []Module
	for _, c := range []struct {
		name, function string
		code           []byte
	}{
		{"log", "log", w.Code(i(abi.LevelInfo), i(0), i(abi.MaxLogMessage), i(0), i(0))},
		{"log of much", "log", w.Code(i(abi.LevelError), i(0), i(whole), i(0), i(whole))},
		{"log of pairs", "log", w.Code(i(abi.LevelError), i(0), i(1), i(0), i(abi.MaxLogMessage))},
		{"log_enabled", "log_enabled", i(0)},
		{"set_error", "set_error", w.Code(i(0), i(whole))},
		{"metric", "metric", w.Code(i(0), i(0), i(8), l(1))},
		{"metric of much", "metric", w.Code(i(0), i(0), i(whole), l(1))},
		{"progress", "progress", w.Code(l(1), l(2))},
		{"ctx_str", "ctx_str", w.Code(i(abi.CtxJobName), i(0), i(page))},
		{"ctx_int", "ctx_int", i(abi.CtxTotalCount)},
		{"offset_set", "offset_set", w.Code(i(0), i(abi.MaxOffset))},
		{"offset_get", "offset_get", w.Code(i(0), i(page))},
		{"offset_commit", "offset_commit", nil},
		{"cancelled", "cancelled", nil},
	} {
		j := newJob(pages)
		var f, set uint32
		for _, im := range abi.Imports() {
			if im.Name == c.function {
				f = j.host(im.Name, letters(im.Type.Params), letters(im.Type.Results))
			}
		}
		done := []byte{}
		for _, im := range abi.Imports() {
			if im.Name == c.function && len(im.Type.Results) > 0 {
				done = w.Drop()
			}
			if im.Name == "offset_set" && c.function == "offset_commit" {
				set = j.host(im.Name, letters(im.Type.Params), letters(im.Type.Results))
			}
		}
		before := []byte{}
		if set > 0 {
			before = w.Code(i(0), i(16), w.Call(set), w.Drop())
		}
		modules = append(modules, Module{Name: "host/" + c.name, Wasm: j.execute("",
			bulk(w.MemoryFill(), 0, 'a', whole), forever(before, c.code, w.Call(f), done))})
	}
	return modules
}

// capabilities do without end what they are granted: state, variables, requests, connections
// and files.
func capabilities() []Module {
	i, l := w.I32Const, w.I64Const
	const url, target, key = 0, 100, 200 // where the texts of data lie
	head, peer := "GET\x00http://127.0.0.1:1/\x00", "tcp://127.0.0.1:1"
	var modules []Module
	for _, c := range []struct {
		name, module, function string
		code                   []byte // its parameters
		again                  string // a function of job_v1_io that is called for each handle; empty: none
	}{
		{"wait", abi.ModuleIO, "wait", i(-1), ""},
		{"error", abi.ModuleIO, "error", w.Code(i(0), i(0), i(page)), ""},
		{"open", abi.ModuleHTTP, "open", w.Code(i(url), i(int32(len(head)))), ""},
		{"open and close", abi.ModuleHTTP, "open", w.Code(i(url), i(int32(len(head)))), "close"},
		{"open and finish", abi.ModuleHTTP, "open", w.Code(i(url), i(int32(len(head)))), "finish"},
		{"open of much", abi.ModuleHTTP, "open", w.Code(i(page), i(whole-page)), ""},
		{"status", abi.ModuleHTTP, "status", i(1), ""},
		{"dial", abi.ModuleNet, "dial", w.Code(i(target), i(int32(len(peer)))), ""},
		{"dial and close", abi.ModuleNet, "dial", w.Code(i(target), i(int32(len(peer)))), "close"},
		{"dial of much", abi.ModuleNet, "dial", w.Code(i(0), i(whole)), ""},
		{"kv get", abi.ModuleKV, "get", w.Code(i(key), i(1), i(0), i(whole)), ""},
		{"kv set", abi.ModuleKV, "set", w.Code(i(key), i(1), i(0), i(abi.MaxValue-10)), ""},
		{"kv set of much", abi.ModuleKV, "set", w.Code(i(key), i(1), i(0), i(whole)), ""},
		{"kv list", abi.ModuleKV, "list", w.Code(i(key), i(0), i(0), i(whole)), ""},
		{"kv increment", abi.ModuleKV, "increment", w.Code(i(key), i(1), l(1)), ""},
		{"env get", abi.ModuleEnv, "get", w.Code(i(key), i(1), i(0), i(page)), ""},
		{"env secret", abi.ModuleEnv, "secret", w.Code(i(key), i(1), i(0), i(page)), ""},
	} {
		j := newJob(pages)
		call := func(module, function string) uint32 {
			for _, im := range abi.CapabilityImports() {
				if im.Module == module && im.Name == function {
					return j.Import(module, function, letters(im.Type.Params), letters(im.Type.Results))
				}
			}
			return 0 // there is no such function: the module would not be a module
		}
		f, then := call(c.module, c.function), w.Drop()
		if c.again != "" {
			then = w.Code(w.Call(call(abi.ModuleIO, c.again)), w.Drop())
		}
		j.Data(url, []byte(head))
		j.Data(target, []byte(peer))
		j.Data(key, []byte("k"))
		end := Stopped
		if c.name == "wait" {
			end = Ended // there is nothing to wait for
		}
		modules = append(modules, Module{Name: "capability/" + c.name, Granted: true, End: end, Wasm: j.execute("", forever(c.code, w.Call(f), then))})
	}

	for _, c := range []struct {
		name, function, params string
		code                   []byte
	}{
		{"file open", "path_open", "iiiiillii", w.Code(i(3), i(0), i(key), i(1), i(1), l(-1), l(-1), i(0), i(300))},
		{"file write", "fd_write", "iiii", w.Code(i(5), i(400), i(1), i(300))},
		{"file read", "fd_read", "iiii", w.Code(i(5), i(400), i(1), i(300))},
		{"file cut", "fd_filestat_set_size", "il", w.Code(i(5), l(whole))},
		{"file sync", "fd_sync", "i", i(5)},
		{"directory list", "fd_readdir", "iiili", w.Code(i(3), i(page), i(whole-page), l(0), i(300))},
		{"directory make", "path_create_directory", "iii", w.Code(i(3), i(key+1), i(1))},
		{"file rename", "path_rename", "iiiiii", w.Code(i(3), i(key), i(1), i(3), i(key+1), i(1))},
		{"file remove", "path_unlink_file", "iii", w.Code(i(3), i(key+2), i(1))},
	} {
		j := newJob(pages)
		open := j.wasi("path_open", "iiiiillii", "i")
		f := open
		if c.function != "path_open" {
			f = j.wasi(c.function, c.params, "i")
		}
		j.Data(key, []byte("abc"))
		j.Data(400, []byte{0, 0, 1, 0, 0, 0, 0, 7}) // much, at a page
		modules = append(modules, Module{Name: "capability/" + c.name, Granted: true, Wasm: j.execute("",
			w.Code(i(3), i(0), i(key), i(1), i(1), l(-1), l(-1), i(0), i(300), w.Call(open), w.Drop()), forever(c.code, w.Call(f), w.Drop()))})
	}
	return modules
}

// letters names value types as the assembler does.
func letters(types []abi.ValueType) string {
	var s []byte
	for _, t := range types {
		s = append(s, map[abi.ValueType]byte{abi.I32: 'i', abi.I64: 'l'}[t])
	}
	return string(s)
}

// entries attack from another entry point than job_execute.
func entries() []Module {
	listener := func(export string) Module {
		j := newJob(1)
		j.export(export, "", forever())
		return Module{Name: "entry/" + export, Listener: export, Wasm: j.execute("")}
	}
	dataflow := func(fetch, process []byte) []byte {
		j := newJob(1)
		j.marker()
		j.Export(abi.ExportFetch, j.Func("", "i", "", fetch))
		j.Export(abi.ExportProcess, j.Func("", "i", "", process))
		return j.Bytes()
	}
	begin := newJob(1)
	begin.Start(begin.Func("", "", "", forever()))
	initialize := newJob(1)
	initialize.Export(abi.ExportInitialize, initialize.Func("", "", "", forever()))
	calls := newJob(1)
	twice := calls.Declare("i", "")
	calls.Body(twice, "", untilZero(), w.Times(2, fewer(), w.Call(twice)))
	calls.Export(abi.ExportInitialize, calls.Func("", "", "", w.I32Const(deep), w.Call(twice)))
	script := newJob(1)
	script.Export(abi.ExportStart, script.Func("", "", "", forever()))
	exit := newJob(1)
	quit := exit.wasi("proc_exit", "i", "")
	exit.Export(abi.ExportStart, exit.Func("", "", "", w.I32Const(1), w.Call(quit)))

	return []Module{
		listener(abi.ExportBefore), listener(abi.ExportAfter),
		listener(abi.ExportBeforeOnce), listener(abi.ExportAfterOnce),
		{Name: "entry/job_fetch", Type: "DATAFLOW", Wasm: dataflow(w.Code(forever(), w.I32Const(0)), w.I32Const(0))},
		{Name: "entry/job_process", Type: "DATAFLOW", Wasm: dataflow(w.I32Const(1), w.Code(forever(), w.I32Const(0)))},
		{Name: "entry/endless stream", Type: "DATAFLOW", Streaming: true, Wasm: dataflow(w.I32Const(1), w.I32Const(0))},
		{Name: "entry/start section", End: Refused, Wasm: begin.execute("")},
		{Name: "entry/_initialize", End: Refused, Wasm: initialize.execute("")},
		{Name: "entry/_initialize that calls", End: Refused, Wasm: calls.execute("")},
		{Name: "entry/_start", Type: "SCRIPT", Wasm: script.Bytes()},
		{Name: "entry/exit", Type: "SCRIPT", End: Ended, Wasm: exit.Bytes()},
	}
}

// sections abuse what is not code.
func sections() []Module {
	// with is a job that calls for ever, and something besides.
	with := func(more func(j job)) []byte {
		j := newJob(1)
		f := j.Declare("i", "")
		j.Body(f, "", untilZero(), w.Times(2, fewer(), w.Call(f)))
		more(j)
		return j.execute("", w.I32Const(deep), w.Call(f))
	}
	names := func(id byte, body []byte) []byte { return w.Code([]byte{id}, w.U32(uint32(len(body))), body) }
	name := bytes.Repeat([]byte("n"), 60_000)
	var many []byte
	for n := range uint32(50_000) {
		many = append(many, w.Code(w.U32(n), w.U32(3), []byte("abc"))...)
	}
	return []Module{
		// Any section of debugging information turned metering off.
		{Name: "section/.debug_info", Wasm: with(func(j job) { j.Custom(".debug_info", []byte{1, 2, 3}) })},
		{Name: "section/.debug_line", Wasm: with(func(j job) { j.Custom(".debug_line", make([]byte, 1<<20)) })},
		{Name: "section/all of DWARF", Wasm: with(func(j job) {
			for _, n := range []string{"abbrev", "info", "line", "ranges", "str", "loc", "aranges"} {
				j.Custom(".debug_"+n, bytes.Repeat([]byte{0xff}, 1000))
			}
		})},
		{Name: "section/.debug_ and a loop", Wasm: func() []byte {
			j := newJob(1)
			j.Custom(".debug_x", []byte{0})
			return j.execute("", forever())
		}()},
		{Name: "section/name, too many", End: Ended, Wasm: with(func(j job) { j.Custom("name", names(1, w.Code(w.U32(50_000), many))) })},
		{Name: "section/name, too long", End: Ended, Wasm: with(func(j job) {
			j.Custom("name", names(1, w.Code(w.U32(1), w.U32(0), w.U32(60_000), name)))
		})},
		{Name: "section/name, lying", End: Ended, Wasm: with(func(j job) { j.Custom("name", names(1, w.U32(1<<32-1))) })},
		{Name: "section/name, twice", End: Ended, Wasm: with(func(j job) {
			j.Custom("name", names(1, w.U32(0)))
			j.Custom("name", names(1, w.U32(0)))
		})},
		{Name: "section/name, of locals", End: Ended, Wasm: with(func(j job) {
			j.Custom("name", names(2, w.Code(w.U32(1), w.U32(0), w.U32(50_000), many)))
		})},
		{Name: "section/thousand of custom", End: Ended, Wasm: with(func(j job) {
			for range 1000 {
				j.Custom("x", []byte{1})
			}
		})},
		{Name: "section/megabytes of custom", End: Ended, Wasm: with(func(j job) { j.Custom("x", make([]byte, 24<<20)) })},
		{Name: "section/data", End: Ended, Wasm: with(func(j job) {
			for range 20_000 {
				j.Data(0, []byte("abcdefgh"))
			}
		})},
		{Name: "section/megabytes of data", End: Ended, Wasm: func() []byte {
			j := newJob(pages)
			j.Data(0, make([]byte, 24<<20))
			return j.execute("", forever())
		}()},
		{Name: "section/elements", End: Ended, Wasm: with(func(j job) {
			f := j.Func("", "", "")
			j.Table(100_000, 100_000)
			for range 4 {
				j.Elem(0, slices.Repeat([]uint32{f}, 100_000)...)
			}
		})},
		{Name: "section/exports", End: Ended, Wasm: with(func(j job) {
			f := j.Func("", "", "")
			for n := range 9000 {
				j.Export(fmt.Sprint("e", n), f)
			}
		})},
		{Name: "section/types", End: Ended, Wasm: with(func(j job) {
			for n := range 900 {
				j.Type(string(bytes.Repeat([]byte("i"), n)), "")
			}
		})},
		{Name: "section/globals", End: Ended, Wasm: with(func(j job) {
			for range 9000 {
				j.Global(0)
			}
		})},
	}
}

// encodings are read one way by the host's own code and another way by an
// engine.
func encodings() []Module {
	// after is a job whose code begins with what is to be misread, and then
	// calls for ever.
	after := func(code ...[]byte) []byte {
		j := newJob(1)
		f := j.Declare("i", "")
		j.Body(f, "", w.Code(code...), untilZero(), w.Times(2, fewer(), w.Call(f)))
		j.Table(1, 1)
		return j.execute("", w.I32Const(deep), w.Call(f))
	}
	zeros := w.Code([]byte{0xfd, 12}, make([]byte, 16)) // v128.const
	modules := []Module{
		{Name: "encoding/blocktype 0x63", Wasm: after([]byte{0x02, 0x63, 0x0b})},
		{Name: "encoding/blocktype 0x64", Wasm: after([]byte{0x02, 0x64, 0x0b})},
		{Name: "encoding/blocktype 0x63 of a heap type", Wasm: after([]byte{0x02, 0x63, 0x70, 0xd0, 0x70, 0x0b, 0x1a})},
		{Name: "encoding/blocktype 0x64 of a type", Wasm: after([]byte{0x02, 0x64, 0x00, 0xd2, 0x00, 0x0b, 0x1a})},
		{Name: "encoding/blocktype too long", Wasm: after([]byte{0x02, 0xc0, 0x7f, 0x0b})},
		{Name: "encoding/select of two types", Wasm: after(w.Times(3, w.I32Const(1)), []byte{0x1c, 2, 0x7f, 0x7f, 0x1a})},
		{Name: "encoding/select of a long count", Wasm: after(w.Times(3, w.I32Const(1)), []byte{0x1c, 0x81, 0, 0x7f, 0x1a})},
		{Name: "encoding/select of a reference", Wasm: after(w.Times(2, w.RefNull()), w.I32Const(1), []byte{0x1c, 1, 0x63, 0x70, 0x1a})},
		{Name: "encoding/long memory.fill", Wasm: after(w.Times(3, w.I32Const(0)), []byte{0xfc, 0x8b, 0, 0})},
		{Name: "encoding/long memory.copy", Wasm: after(w.Times(3, w.I32Const(0)), []byte{0xfc, 0x8a, 0x80, 0, 0, 0})},
		{Name: "encoding/long memory.size", Wasm: after([]byte{0x3f, 0x80, 0, 0x1a})},
		{Name: "encoding/long local", Wasm: after([]byte{0x20, 0x80, 0x80, 0x80, 0x80, 0, 0x1a})},
		{Name: "encoding/long branch", Wasm: after([]byte{0x02, 0x40, 0x0c, 0x80, 0x80, 0, 0x0b})},
		{Name: "encoding/long constant", Wasm: after([]byte{0x41, 0x80, 0x80, 0x80, 0x80, 0x70, 0x1a})},
		{Name: "encoding/tail call", Wasm: after([]byte{0x41, 0, 0x12, 2})},
		{Name: "encoding/tail call by the table", Wasm: after([]byte{0x41, 0, 0x41, 0, 0x13, 0, 0})},
		{Name: "encoding/call by reference", Wasm: after([]byte{0x41, 0, 0xd2, 0, 0x14, 0})},
		{Name: "encoding/try table", Wasm: after([]byte{0x1f, 0x40, 0, 0x0b})},
		{Name: "encoding/throw", Wasm: after([]byte{0x08, 0})},
		{Name: "encoding/atomic", Wasm: after([]byte{0xfe, 3, 0})},
		{Name: "encoding/relaxed vectors", Wasm: after(zeros, zeros, []byte{0xfd, 0x80, 2, 0x1a})},
		{Name: "encoding/unknown instruction", Wasm: after([]byte{0xff})},
		{Name: "encoding/br_on_null", Wasm: after([]byte{0xd0, 0x70, 0xd5, 0, 0x1a})},
		{Name: "encoding/a global of the meter", Wasm: after([]byte{0x41, 0, 0x24, 0})},
		{Name: "encoding/a function of the meter", Wasm: after([]byte{0x41, 0, 0x41, 0, 0x41, 0, 0x10, 3})},
	}
	// The number of a vector instruction is one byte to wazero v1.12.0, which
	// reads 0x8c or 0x8d, an unreachable instruction, the end of the block, and a
	// loop; it is LEB128 to the specification, in which the loop is part of the 16
	// bytes of a v128.const or a shuffle.
	for _, op := range []byte{0x8c, 0x8d} {
		j := newJob(1)
		hidden := slices.Concat([]byte{0x0b}, forever(), bytes.Repeat([]byte{0x01}, 10))
		modules = append(modules, Module{Name: fmt.Sprintf("encoding/loop behind vector %#x", op), Wasm: j.execute("",
			[]byte{0x02, w.None}, w.I32Const(1), w.BrIf(0), zeros, w.I32Const(0), []byte{0xfd, op, 0}, hidden[:16])})
	}
	for i := range modules {
		modules[i].End = Ended
	}
	return modules
}

// compileBombs are small, and take a compiler long.
func compileBombs() []Module {
	many := func(n int) string { return string(bytes.Repeat([]byte("l"), n)) }
	nest := func(n int, begin, end []byte) []byte {
		return w.Code(bytes.Repeat(begin, n), bytes.Repeat(end, n))
	}
	bomb := func(name string, locals string, code []byte) Module {
		return Module{Name: "compile/" + name, End: Ended, Wasm: newJob(1).execute(locals, code)}
	}
	// Each loop may change each local, so that each is a value of each loop.
	phis := func(locals, blocks int, kind byte) []byte {
		var code []byte
		for b := range blocks {
			code = append(code, w.Code([]byte{kind, w.None}, w.Get(uint32(b%locals)), w.I64Const(1), []byte{0x7c}, w.Set(uint32((b+1)%locals)),
				w.I32Const(0), w.BrIf(0), []byte{0x0b})...)
		}
		return code
	}
	nested := func(locals, blocks int, kind byte) []byte {
		var code []byte
		for b := range blocks {
			code = append(code, w.Code([]byte{kind, w.None}, w.Get(uint32(b%locals)), w.I64Const(1), []byte{0x7c}, w.Set(uint32((b+1)%locals)),
				w.I32Const(0), w.BrIf(0))...)
		}
		return append(code, bytes.Repeat([]byte{0x0b}, blocks)...)
	}
	labels := func(n int) []byte {
		return w.Block(w.I32Const(0), []byte{0x0e}, w.U32(uint32(n)), make([]byte, n), []byte{0})
	}
	functions := newJob(1)
	for range 90_000 {
		functions.Func("", "", "")
	}
	locals := newJob(1)
	for range 78 {
		locals.Func("", "", many(50_000)[:50_000])
	}
	return []Module{
		bomb("loops of locals", many(3000), phis(3000, 14_000, 0x03)),
		bomb("blocks of locals", many(3000), phis(3000, 14_000, 0x02)),
		bomb("nested loops of locals", many(3000), nested(3000, 14_000, 0x03)),
		bomb("nested blocks", "", nest(2_000_000, []byte{0x02, w.None}, []byte{0x0b})),
		bomb("nested loops", "", nest(100_000, []byte{0x03, w.None}, []byte{0x0b})),
		bomb("large table of branches", "", labels(4_000_000)),
		bomb("many tables of branches", "", w.Times(300, labels(1000))),
		bomb("one expression", "", w.Code(w.Times(200_000, w.I32Const(1)), w.Times(200_000, w.Drop()))),
		bomb("values that live long", many(10_000), func() []byte {
			var code []byte
			for i := range uint32(10_000) {
				code = append(code, w.Code(w.Get(i), w.I64Const(3), []byte{0x7e}, w.Set(i))...)
			}
			for i := range uint32(10_000) {
				code = append(code, w.Code(w.Get(i), w.Get((i*7919)%10_000), []byte{0x7c}, w.Set(i))...)
			}
			return code
		}()),
		{Name: "compile/many functions", End: Ended, Wasm: functions.execute("", forever())},
		{Name: "compile/many locals in many functions", End: Ended, Wasm: locals.execute("", forever())},
	}
}

// foreign are files that are no modules.
func foreign() []Module {
	good := newJob(1).execute("")
	var modules []Module
	for _, f := range []struct {
		name string
		file []byte
	}{
		{"nothing", nil},
		{"text", []byte("(module)")},
		{"zeros", make([]byte, 1000)},
		{"an ELF file", []byte("\x7fELF\x02\x01\x01\x00\x00\x00")},
		{"a component", []byte("\x00asm\x0d\x00\x01\x00\x07\x01\x00")},
		{"another version", []byte("\x00asm\x02\x00\x00\x00")},
		{"half a module", good[:len(good)/2]},
		{"a module and a half", slices.Concat(good, good[8:len(good)/2])},
		{"two modules", slices.Concat(good, good)},
		{"a lie about locals", func() []byte {
			j := newJob(1)
			f := j.Declare("", "")
			j.Raw(f, w.Code(w.U32(1), w.U32(1<<32-1), []byte{w.I32, 0x0b}))
			return j.execute("")
		}()},
		{"a lie about a section", append(bytes.Clone(good), 0, 0xff, 0xff, 0xff, 0x7f)},
	} {
		modules = append(modules, Module{Name: "foreign/" + f.name, Wasm: f.file, Invalid: true, End: Refused})
	}
	large := newJob(1)
	large.Memory(1<<16, 1<<16)
	return append(modules, Module{Name: "foreign/too much memory", End: Refused, Wasm: large.execute("")})
}

// foundByFuzzing are mutants, as they were found.
func foundByFuzzing() ([]Module, error) {
	var modules []Module
	for _, f := range []struct{ name, base64 string }{
		{"vector const, long number", "AGFzbQEAAAABCAJgAABgAAF/AwMCAAEFBAEBQEAHJQMGbWVtb3J5AgAKam9iX2FiaV92MQAAC2pvYl9leGVjdXRlAAEKNgICAAsxAAJAQQENAP0MAAAAAAAAAAAAAAAAAAAAAEEA/YwACwNADAALAQEBAQEBAQEBAUEACw=="},
	} {
		b, err := base64.StdEncoding.DecodeString(f.base64)
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", f.name, err)
		}
		modules = append(modules, Module{Name: "mutant/" + f.name, Wasm: b, End: Ended})
	}
	return modules, nil
}
