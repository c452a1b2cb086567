package hostile

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/abi"
	w "github.com/wasmjob/wasmjob/test/wasm"
)

// Function is a function that a guest may import.
type Function struct {
	Module, Name string
	Type         abi.Signature
}

func (f Function) String() string { return f.Module + "." + f.Name }

// Memory of the modules that call imports. The first page has texts, lists and structures
// that functions take; the third page has keys, each another one; what follows is zero.
const (
	callPages  = 256 // 16 MiB
	callMemory = callPages * page

	atVector   = 64       // eight buffers for fd_read and the like, each of half of the memory
	atResult   = 512      // where results go
	atPath     = 1024     // a path, and a key
	atFile     = 1040     // the path of a file
	atRequest  = 2048     // the head of a request
	atTarget   = 2304     // the target of a connection
	atText     = page     // a long text of zeros, with its length before it, as AssemblyScript has it
	atKeys     = 2 * page // keys of keySize bytes, each another one
	atZeros    = 3 * page // nothing
	keySize    = 8        // bytes of a key
	keyCount   = page / 8 // keys
	longText   = callMemory / 2
	headText   = "GET\x00http://127.0.0.1:1/\x00"
	targetText = "tcp://127.0.0.1:1"
	fileText   = "file"
)

// fill writes what the constants above say into a module's memory.
func (j job) fill() {
	var vector []byte
	for range 8 {
		vector = binary.LittleEndian.AppendUint32(vector, atZeros)
		vector = binary.LittleEndian.AppendUint32(vector, longText)
	}
	j.Data(atVector, vector)
	j.Data(atPath, []byte("."))
	j.Data(atFile, []byte(fileText))
	j.Data(atRequest, []byte(headText))
	j.Data(atTarget, []byte(targetText))
	j.Data(atText-4, binary.LittleEndian.AppendUint32(nil, longText))
	var keys []byte
	for n := range keyCount {
		keys = append(keys, fmt.Sprintf("k%06d\x00", n)...)
	}
	j.Data(atKeys, keys)
}

// caller is a job that imports functions.
type caller struct {
	job
	numbers map[string]uint32 // of what is imported
	item    uint32            // says which item the job runs for
}

func newCaller(functions []Function) *caller {
	c := &caller{job: job{w.New()}, numbers: map[string]uint32{}}
	c.item = c.imported(abi.Module, "ctx_int", "i", "l")
	for _, f := range functions {
		c.imported(f.Module, f.Name, letters(f.Type.Params), letters(f.Type.Results))
		switch f.Module {
		case abi.ModuleWASI:
			c.imported(abi.ModuleWASI, "path_open", "iiiiillii", "i")
		case abi.ModuleIO, abi.ModuleHTTP:
			c.imported(abi.ModuleHTTP, "open", "ii", "i")
		}
	}
	c.Memory(callPages, callPages)
	c.ExportMemory(abi.ExportMemory)
	c.fill()
	return c
}

// imported imports a function once.
func (c *caller) imported(module, name, params, results string) uint32 {
	key := module + "." + name
	number, ok := c.numbers[key]
	if !ok {
		number = c.Import(module, name, params, results)
		c.numbers[key] = number
	}
	return number
}

// initialize opens what functions of WASI are called for, if there is one of them: the directories 4 and 5, and the
// file 6. More code may follow.
func (c *caller) initialize(locals string, more []byte) {
	var code []byte
	if open, ok := c.numbers[abi.ModuleWASI+".path_open"]; ok {
		i, l := w.I32Const, w.I64Const
		directory := w.Code(i(3), i(0), i(atPath), i(1), i(0), l(0), l(0), i(0), i(atResult), w.Call(open), w.Drop())
		const create, readAndWrite = 1, 1<<1 | 1<<6
		file := w.Code(i(3), i(0), i(atFile), i(int32(len(fileText))), i(create), l(readAndWrite), l(0), i(0), i(atResult), w.Call(open), w.Drop())
		code = w.Code(directory, directory, file)
	}
	c.Export(abi.ExportInitialize, c.Func("", "", locals, code, more))
}

// execute makes it a job that begins a request, which is handle 1, if it imports a function for handles.
func (c *caller) execute(locals string, code []byte) []byte {
	if open, ok := c.numbers[abi.ModuleHTTP+".open"]; ok {
		code = w.Code(w.I32Const(atRequest), w.I32Const(int32(len(headText))), w.Call(open), w.Drop(), code)
	}
	return c.job.execute(locals, code)
}

// edges are the values at which a number of 32 bits is tried, and edges64 those of 64.
func edges() []int64 {
	return []int64{0, 1, math.MaxInt32, math.MaxInt32 - 1, -1, -2, math.MinInt32, 1 << 28, 1 << 30,
		callMemory, callMemory - 1, callMemory - 4, callMemory - 8, callMemory - 64, callMemory / 2, callMemory / 8, callMemory / 32, callMemory / 48,
		atText, atZeros, 1000, 2000}
}

func edges64() []int64 {
	return []int64{0, 1, math.MaxInt64, math.MaxInt64 - 1, -1, -2, math.MinInt64, math.MaxInt32, 1 << 32, callMemory}
}

// known are arguments with which functions do what they are for. A function that is not
// here is tried with other numbers only.
func known() map[string][]int64 {
	return map[string][]int64{
		"fd_read":                 {0, atVector, 8, atResult},
		"fd_write":                {1, atVector, 8, atResult},
		"fd_pread":                {6, atVector, 8, 0, atResult},
		"fd_pwrite":               {6, atVector, 8, 0, atResult},
		"fd_allocate":             {6, 0, 1 << 20},
		"fd_filestat_set_size":    {6, 1 << 20},
		"fd_seek":                 {6, 0, 0, atResult},
		"fd_readdir":              {3, atZeros, callMemory / 2, 0, atResult},
		"fd_renumber":             {4, 5},
		"path_open":               {3, 0, atPath, 1, 0, 0, 0, 0, atResult},
		"path_filestat_get":       {3, 0, atPath, 1, atResult},
		"path_filestat_set_times": {3, 0, atPath, 1, 0, 0, 0},
		"path_create_directory":   {3, atKeys, keySize - 1},
		"path_remove_directory":   {3, atKeys, keySize - 1},
		"path_unlink_file":        {3, atKeys, keySize - 1},
		"path_rename":             {3, atKeys, keySize - 1, 3, atKeys + keySize, keySize - 1},
		"path_symlink":            {atKeys, keySize - 1, 3, atKeys + keySize, keySize - 1},
		"path_link":               {3, 0, atKeys, keySize - 1, 3, atKeys + keySize, keySize - 1},
		"poll_oneoff":             {atZeros, callMemory / 2, 1, atResult},
		"random_get":              {atZeros, callMemory - atZeros},
		"abort":                   {atText, atText, 1, 1},
		"open":                    {atRequest, int64(len(headText))},
		"dial":                    {atTarget, int64(len(targetText))},
		"log":                     {2, atKeys, page, atKeys, page},
		"set_error":               {atKeys, page},
		"metric":                  {0, atPath, 1, 1},
		"offset_set":              {atKeys, abi.MaxOffset},
		"get":                     {atKeys, keySize - 1, atZeros, callMemory / 2},
		"set":                     {atKeys, keySize - 1, atKeys, 64},
		"delete":                  {atKeys, keySize - 1},
		"list":                    {atKeys, 1, atZeros, callMemory / 2},
		"increment":               {atKeys, keySize - 1, 1},
		"read":                    {1, atZeros, callMemory / 2},
		"write":                   {1, atKeys, page},
		"wait":                    {0},
		"error":                   {0, atZeros, page},
		"status":                  {1},
		"headers":                 {1, atZeros, page},
		"secret":                  {atPath, 1, atZeros, page},
	}
}

// starts are the arguments from which each is moved to its edges.
func (f Function) starts() [][]int64 {
	n := len(f.Type.Params)
	list := [][]int64{slices.Repeat([]int64{3}, n), slices.Repeat([]int64{atResult}, n)}
	if n > 0 {
		list[1][0] = 1
	}
	random := rand.New(rand.NewPCG(uint64(len(f.Name)), uint64(n)))
	list = append(list, f.random(random))
	if args := known()[f.Name]; len(args) == n {
		list = append([][]int64{args}, list...)
	}
	return list
}

// random are any arguments.
func (f Function) random(r *rand.Rand) []int64 {
	args := make([]int64, len(f.Type.Params))
	for i, p := range f.Type.Params {
		pool := []int64{0, 1, 2, 3, 3, 4, 5, 8, 64, atVector, atResult, atPath, atText, atKeys, atZeros, page, longText}
		if r.IntN(4) == 0 {
			pool = edges()
		}
		if p == abi.I64 && r.IntN(2) == 0 {
			pool = edges64()
		}
		args[i] = pool[r.IntN(len(pool))]
	}
	return args
}

// Case is a call of a function.
type Case struct {
	Args []int64
	// Times is how often it is called, and Steps what each argument grows by from one
	// call to the next.
	Times int
	Steps []int64
}

func (c Case) String() string {
	text := strings.Trim(fmt.Sprint(c.Args), "[]")
	if c.Times > 1 {
		text += fmt.Sprintf(", %d times by %v", c.Times, c.Steps)
	}
	return text
}

// Cases are the calls of a function that are tried: once with each argument at each edge, and
// many times with each argument as it is, one more each time, and another key each time.
func (f Function) Cases(times int) []Case {
	var list []Case
	seen := map[string]bool{}
	add := func(args []int64, times int, steps ...int64) {
		c := Case{slices.Clone(args), times, steps}
		if text := c.String(); !seen[text] {
			seen[text] = true
			list = append(list, c)
		}
	}
	n := len(f.Type.Params)
	for _, start := range f.starts() {
		add(start, 1)
		for i, p := range f.Type.Params {
			values := edges()
			if p == abi.I64 {
				values = edges64()
			}
			for _, v := range values {
				args := slices.Clone(start)
				args[i] = v
				add(args, 1)
			}
			if i+1 < n && p == abi.I32 && f.Type.Params[i+1] == abi.I32 { // a pointer and a length
				args := slices.Clone(start)
				args[i], args[i+1] = atZeros, callMemory-atZeros
				add(args, 1)
				args[i], args[i+1] = atKeys, page
				add(args, 1)
			}
		}
		add(start, times, make([]int64, n)...)
		for i := range n {
			steps := make([]int64, n)
			steps[i] = 1
			add(start, times, steps...)
			steps[i] = keySize
			args := slices.Clone(start)
			args[i] = atKeys
			add(args, times, steps...)
		}
	}
	return list
}

// call pushes the arguments, each with what it has grown by in the local, and calls. The
// result is dropped, or goes into a local.
func call(number uint32, f Function, c Case, counter uint32, result int) []byte {
	var code []byte
	for i, p := range f.Type.Params {
		push := func(v int64) []byte {
			if p == abi.I64 {
				return w.I64Const(v)
			}
			return w.I32Const(int32(v))
		}
		code = append(code, push(c.Args[i])...)
		if i >= len(c.Steps) || c.Steps[i] == 0 {
			continue
		}
		code = append(code, w.Code(w.Get(counter), w.I32Const(int32(c.Steps[i])), w.Mul())...)
		if p == abi.I64 {
			code = append(code, 0xac, 0x7c) // i64.extend_i32_s, i64.add
		} else {
			code = append(code, w.Add()...)
		}
	}
	code = append(code, w.Call(number)...)
	switch {
	case len(f.Type.Results) == 0:
	case result >= 0 && f.Type.Results[0] == abi.I32:
		code = append(code, w.Set(uint32(result))...)
	default:
		code = append(code, w.Drop()...)
	}
	return code
}

// repeat does something that many times; the local counts from 0.
func repeat(times int, counter uint32, code []byte) []byte {
	return w.Code(w.I32Const(0), w.Set(counter), w.Loop(code,
		w.Get(counter), w.I32Const(1), w.Add(), w.Tee(counter), w.I32Const(int32(times)), []byte{0x48}, w.BrIf(0))) // i32.lt_s
}

// Calls is a job that carries out the case of a function with the number of its item.
func Calls(f Function, cases []Case) []byte {
	c := newCaller([]Function{f})
	code := w.Code(w.I32Const(int32(abi.CtxItem)), w.Call(c.item), []byte{0xa7}, w.Set(0)) // i32.wrap_i64
	for n, one := range cases {
		do := call(c.numbers[f.String()], f, one, 1, -1)
		if one.Times > 1 {
			do = repeat(one.Times, 1, do)
		}
		code = append(code, w.Code(w.Get(0), w.I32Const(int32(n)), []byte{0x46}, w.If(do, w.I32Const(0), w.Return()))...) // i32.eq
	}
	c.initialize("", nil)
	return c.execute("ii", code)
}

// RandomCalls is the random job of a seed that calls some of the functions, in any order
// and again and again, with numbers that earlier calls gave among the arguments. It does so when it is
// initialised or when it is run.
func RandomCalls(seed uint64, functions []Function) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	chosen := make([]Function, 2+r.IntN(7))
	for i := range chosen {
		chosen[i] = functions[r.IntN(len(functions))]
		for chosen[i].Name == "proc_exit" || chosen[i].Name == "abort" || (chosen[i].Name == "poll_oneoff" && r.IntN(4) > 0) {
			chosen[i] = functions[r.IntN(len(functions))] // it would end, or wait
		}
	}
	j := newCaller(chosen)
	const counter, results = 0, 3
	var code []byte
	for range 1 + r.IntN(5) {
		var do []byte
		for range 1 + r.IntN(6) {
			n := r.IntN(len(chosen))
			f := chosen[n]
			c := Case{Args: f.random(r), Steps: make([]int64, len(f.Type.Params))}
			if args := known()[f.Name]; len(args) == len(c.Args) && r.IntN(3) > 0 {
				c.Args = slices.Clone(args)
			}
			if len(c.Args) > 0 && r.IntN(2) == 0 {
				i := r.IntN(len(c.Args))
				c.Steps[i] = []int64{1, 1, keySize, 64, page}[r.IntN(5)]
				if r.IntN(2) == 0 {
					c.Args[i] = []int64{0, 3, atKeys}[r.IntN(3)]
				}
			}
			into := -1
			if r.IntN(2) == 0 {
				into = 1 + r.IntN(results)
			}
			one := call(j.numbers[f.String()], f, c, counter, into)
			if len(f.Type.Params) > 0 && f.Type.Params[0] == abi.I32 && r.IntN(3) == 0 { // what an earlier call gave, a descriptor in memory for one
				rest := call(j.numbers[f.String()], f, c, counter, into)
				_, size := binary.Uvarint(rest[1:])
				if c.Steps[0] == 0 {
					from := w.Get(1 + uint32(r.IntN(results)))
					if r.IntN(2) == 0 {
						from = w.Code(w.I32Const(atResult), w.Load())
					}
					one = w.Code(from, rest[1+size:])
				}
			}
			do = append(do, one...)
		}
		code = append(code, repeat([]int{1, 10, 300, 5000, 1 << 30}[r.IntN(5)], counter, do)...)
	}
	if r.IntN(8) == 0 {
		j.initialize("iiii", code)
		return j.execute("", nil)
	}
	j.initialize("", nil)
	return j.execute("iiii", code)
}
