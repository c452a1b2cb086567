package hostile

import (
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	w "github.com/wasmjob/wasmjob/test/wasm"
)

// attacks are modules that took memory which nothing counted, or were held when
// they tried to. Each is small: what it costs the host is the matter.
func attacks() []Module {
	const (
		root = 64              // where "." lies
		long = 3 * time.Second // for what takes memory bit by bit
	)
	i, l := w.I32Const, w.I64Const
	wide := func(letter string) string { return strings.Repeat(letter, 1000) }
	// open opens the root directory; 32 is where its descriptor goes.
	open := func(j job) []byte {
		f := j.wasi("path_open", "iiiiillii", "i")
		return w.Code(i(3), i(0), i(root), i(1), i(2), l(0), l(0), i(0), i(32), w.Call(f), w.Drop())
	}
	list := []Module{
		{Name: "attack/ok", End: Ended, Wasm: newJob(1).execute("")},
		{Name: "attack/beat", End: Ended, Wasm: func() []byte {
			j := newJob(1)
			log := j.host("log", "iiiii", "")
			j.Data(root, []byte("b"))
			return j.execute("", i(0), i(root), i(1), i(0), i(0), w.Call(log))
		}()},

		// Each ref.func made the engine allocate: 94 bytes ended a host of 8 GB.
		{Name: "attack/ref-func", Runs: long, End: Ended, Wasm: func() []byte {
			j := newJob(1)
			j.marker()
			j.DeclaredElem(0)
			j.export(abi.ExportExecute, "", forever(w.RefFunc(0), w.Drop()))
			return j.Bytes()
		}()},
		{Name: "attack/ref-func to the table", Runs: long, End: Ended, Wasm: func() []byte {
			j := newJob(1)
			f := j.Func("", "", "")
			j.Table(1, 1)
			j.DeclaredElem(f)
			return j.execute("", forever(i(0), w.RefFunc(f), w.TableSet(), i(0), w.TableGet(), w.Drop()))
		}()},
		{Name: "attack/ref-func, flat", Runs: long, End: Ended, Wasm: func() []byte {
			j := newJob(1)
			f := j.Func("", "", "")
			j.DeclaredElem(f)
			tree := j.Func("", "", "", w.Times(1000, w.RefFunc(f), w.Drop()))
			for range 5 {
				tree = j.Func("", "", "", w.Times(100, w.Call(tree)))
			}
			return j.execute("", w.Call(tree))
		}()},

		// abort reads a text whose length lies before it in memory.
		{Name: "attack/abort-text", Runs: long, End: Ended, Wasm: func() []byte {
			const most = 2040 * page
			j := job{w.New()}
			j.Memory(2040, 2040)
			j.ExportMemory(abi.ExportMemory)
			abort := j.Import("env", "abort", "iiii", "")
			return j.execute("", i(4), i('A'), i(most-4), w.MemoryFill(), i(0), i(most-8), w.Store(),
				i(4), i(4), i(1), i(1), w.Call(abort))
		}()},

		// A descriptor's number was an index into a table of the host.
		{Name: "attack/renumber", Runs: long, End: Ended, Wasm: func() []byte {
			j := newJob(1)
			opened := open(j)
			renumber := j.wasi("fd_renumber", "ii", "i")
			j.Data(root, []byte("."))
			return j.execute("", opened, i(32), w.Load(), i(1<<31-1), w.Call(renumber), w.Drop(), forever())
		}()},
		{Name: "attack/renumber, doubling", Runs: long, End: Ended, Wasm: func() []byte {
			j := newJob(1)
			opened := open(j)
			renumber := j.wasi("fd_renumber", "ii", "i")
			j.Data(root, []byte("."))
			return j.execute("i", i(8), w.Set(0), forever(opened, i(32), w.Load(), w.Get(0), w.Call(renumber), w.Drop(),
				w.Get(0), i(1), []byte{0x74}, i(1<<30-1), []byte{0x71}, w.Set(0)))
		}()},
		{Name: "attack/open-forever", Runs: long, End: Ended, Wasm: func() []byte {
			j := newJob(1)
			opened := open(j)
			j.Data(root, []byte("."))
			return j.execute("", forever(opened))
		}()},
		{Name: "attack/poll-overflow", End: Ended, Wasm: func() []byte {
			j := newJob(2000)
			poll := j.wasi("poll_oneoff", "iiii", "i")
			return j.execute("", forever(i(0), i(50<<20), i(89478486), i(8), w.Call(poll), w.Drop()))
		}()},

		// 1000 results of 16 bytes each are no memory of the guest's.
		{Name: "attack/stack-of-results", End: Ended, Wasm: func() []byte {
			j := newJob(1)
			f := j.Declare("", wide("v"))
			j.Body(f, "", w.Call(f))
			return j.execute("", w.Call(f), w.Times(1000, w.Drop()))
		}()},
		{Name: "attack/stack-of-parameters", End: Ended, Wasm: func() []byte {
			j := newJob(1)
			f := j.Declare(wide("l"), "")
			var all []byte
			for n := range uint32(1000) {
				all = append(all, w.Get(n)...)
			}
			j.Body(f, "", all, w.Call(f))
			return j.execute("", w.Times(1000, l(1)), w.Call(f))
		}()},
		// A loop with 1000 parameters has 1000 values that each branch hands on.
		{Name: "attack/phi-storm", End: Ended, Wasm: func() []byte {
			j := newJob(1)
			typ := j.Type(wide("l"), "")
			return j.execute("", w.Times(1000, l(1)), w.LoopOf(typ, l(1), w.Br(0)))
		}()},
		{Name: "attack/nest of many values", End: Ended, Wasm: func() []byte {
			j := newJob(1)
			typ := j.Type(wide("l"), wide("l"))
			var code []byte
			for range 2000 {
				code = w.BlockOf(typ, code)
			}
			return j.execute("", w.Times(1000, l(1)), code, w.Times(1000, w.Drop()))
		}()},
		// What is on the stack of the validator: the results of all calls.
		{Name: "attack/validate-stack", End: Ended, Wasm: manyResults(100_000)},
		{Name: "attack/validate-stack of 2 MB", End: Ended, Wasm: manyResults(1_000_000)},
		{Name: "attack/validate-stack, many functions", End: Ended, Wasm: func() []byte {
			j := newJob(1)
			f := j.Func("", wide("i"), "", w.Unreachable())
			for range 500 {
				j.Func("", "", "", w.Times(5000, w.Call(f)), w.Return())
			}
			return j.execute("")
		}()},

		{Name: "attack/import-name-with-escapes", End: Refused, Wasm: func() []byte {
			j := newJob(1)
			j.Import("env\x1b]0;TITLE\a", "x\x1b[31m", "", "")
			j.Export("ex\x1b]0;TITLE\a", j.Func("", "", ""))
			return j.execute("")
		}()},
		{Name: "attack/import names without end", End: Refused, Wasm: func() []byte {
			j := newJob(1)
			for range 500 {
				j.Import(strings.Repeat("m", 60_000), "f", "", "")
			}
			return j.execute("")
		}()},
		{Name: "attack/listener", End: Stopped, Listener: abi.ExportAfter, Wasm: func() []byte {
			j := newJob(1)
			j.Export(abi.ExportAfter, j.Func("", "i", "", forever(), i(0)))
			return j.execute("")
		}()},
		{Name: "attack/start-random", End: Refused, Wasm: func() []byte {
			j := newJob(1)
			random := j.wasi("random_get", "ii", "i")
			j.Start(j.Func("", "", "", forever(i(0), i(60_000), w.Call(random), w.Drop())))
			return j.execute("")
		}()},
	}
	for _, start := range []struct {
		name string
		code func(j job) []byte
	}{
		{"ref-func", func(j job) []byte { f := j.Func("", "", ""); j.DeclaredElem(f); return forever(w.RefFunc(f), w.Drop()) }},
		{"open", func(j job) []byte { opened := open(j); j.Data(root, []byte(".")); return forever(opened) }},
		{"results", func(j job) []byte {
			f := j.Declare("", wide("v"))
			j.Body(f, "", w.Call(f))
			return w.Code(w.Call(f), w.Times(1000, w.Drop()))
		}},
	} {
		j := newJob(1)
		code := start.code(j)
		j.Start(j.Func("", "", "", code))
		list = append(list, Module{Name: "attack/start function: " + start.name, End: Refused, Wasm: j.execute("")})
	}
	for i := range list { // they have little memory, so that what they take of the host's is seen
		if name := list[i].Name; name != "attack/abort-text" && name != "attack/poll-overflow" {
			list[i].Memory = 1 << 20
		}
	}
	return list
}

// manyResults has a function that calls one with 1000 results so many times, and
// then returns: valid, and an operand stack of 1000 values for each call.
func manyResults(calls int) []byte {
	j := newJob(1)
	f := j.Func("", strings.Repeat("i", 1000), "", w.Unreachable())
	j.Func("", "", "", w.Times(calls, w.Call(f)), w.Return())
	return j.execute("")
}

// Definitions are files that attack whoever reads them: NAME.yaml without a
// module. Each is refused, and the reasons are short.
func Definitions() []Module {
	const most = 1 << 20 // what a definition may have
	head := "jobName: x\nshardingTotalCount: 1\n"
	fill := func(text string) string { return strings.Repeat(text, (most-len(head)-100)/len(text)) }
	aliases := "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
	for n := range 30 {
		before := "*a" + strconv.Itoa(n)
		after := strconv.Itoa(n + 1)
		aliases += "a" + after + ": &a" + after + " [" + strings.Repeat(before+",", 8) + before + "]\n"
	}
	var list []Module
	for _, d := range []struct{ name, text string }{
		{"needs of one letter", head + "needs: [" + strings.TrimSuffix(fill("a,"), ",") + "]\n"},
		{"args without end", head + "args: [" + strings.TrimSuffix(fill("[],"), ",") + "]\n"},
		{"unknown fields", head + fill("zzzz: 1\n")},
		{"unknown fields, all different", head + numbered(fill("z"), "f%: 1\n")},
		{"a field of 1 MB", head + fill("n") + ": 1\n"},
		{"a job name of 1 MB", "shardingTotalCount: 1\njobName: " + fill("n") + "\n"},
		{"a cron of 1 MB", head + "cron: \"" + fill("* ") + "\"\n"},
		{"nested lists", head + "args: " + fill("[")},
		{"nested maps", head + "args: " + fill("{a: ")},
		{"nested blocks", head + "args:\n" + blocks()},
		{"aliases of aliases", head + aliases},
		{"anchors", head + "args: [" + numbered(fill("z"), "&a% x,") + "]\n"},
		{"documents", fill("---\n")},
		{"tags", head + "args: [" + fill("!!binary x,") + "]\n"},
		{"merges", head + "m: &m {a: 1}\nargs:\n" + fill("  - {<<: *m}\n")},
		{"item parameters", head + "shardingItemParameters: " + fill("0=a,") + "\n"},
		{"no UTF-8", head + fill("\xff\xfe")},
		{"orders to a terminal", "jobName: \"\\e]0;TITLE\\a\"\n\"\\e[31m\": 1\nshardingTotalCount: 1\n"},
	} {
		list = append(list, Module{Name: "definition/" + d.name, Definition: d.text, End: Refused})
	}
	return list
}

// numbered is a text with a number in place of each %, about as long as the other one.
func numbered(as, text string) string {
	var b strings.Builder
	for n := 0; b.Len() < len(as)-20; n++ {
		b.WriteString(strings.ReplaceAll(text, "%", strconv.Itoa(n)))
	}
	return b.String()
}

// blocks are lists in lists, each a column further to the right.
func blocks() string {
	var b strings.Builder
	for n := 1; n < 1300; n++ {
		b.WriteString(strings.Repeat(" ", n) + "-\n")
	}
	return b.String()
}
