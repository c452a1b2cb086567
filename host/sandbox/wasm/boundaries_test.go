package wasm

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	w "github.com/wasmjob/wasmjob/test/wasm"
)

var (
	mutantTime = flag.Duration("mutants.time", 0, "how long mutants are compared with wazero")
	mutantSeed = flag.Uint64("mutants.seed", 0, "of the first mutant; 0: another one each time")
)

// oracle is a process that says where wazero sees instructions begin.
type oracle struct {
	cmd *exec.Cmd
	in  *bufio.Writer
	out *bufio.Reader
	end func() error
}

// reading is what wazero makes of a module.
type reading struct {
	taken  bool
	failed bool   // a panic
	text   string // why it is not taken, or how its own readers differ from each other
	// functions has, of each, where its instructions begin, from the first of
	// them on.
	functions [][]place
}

// place is where an instruction begins, and how many values are on the operand stack.
type place struct {
	at, height int
}

// traced are the places in wazero v1.12.0 where a reader of code turns to the next
// instruction, and what each package needs to say so.
var traced = []struct{ file, after, insert, extra string }{
	{"internal/wasm/func_validation.go", "	for pc := uint64(0); pc < uint64(len(body)); pc++ {\n		op := body[pc]\n",
		"		Trace(idx, pc, len(valueTypeStack.stack))\n", "package wasm\n\nvar Trace func(Index, uint64, int)\n"},
	{"internal/engine/wazevo/frontend/lower.go", "	op := c.wasmFunctionBody[c.loweringState.pc]\n",
		"	Trace(c.loweringState.pc)\n", "package frontend\n\nvar Trace func(int)\n"},
	{"internal/engine/interpreter/compiler.go", "	op := c.body[c.pc]\n	c.currentOpPC = c.pc\n",
		"	traced(c.next, c.pc)\n", `package interpreter

import (
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/internal/wasm"
)

var traced func(int, uint64)

func Trace(features api.CoreFeatures, m *wasm.Module, trace func(int, uint64)) error {
	traced = trace
	c, err := newCompiler(features, 0, m, false)
	for i := 0; err == nil && i < len(m.CodeSection); i++ {
		_, err = c.Next()
	}
	return err
}
`},
	// What the compiler needs to begin with the next function without the passes
	// that follow its front end.
	{"internal/engine/wazevo/ssa/builder.go", "	for v := ValueID(0); v < b.nextValueID; v++ {\n",
		"		if int(v) >= len(b.valuesInfo) {\n			break\n		}\n", "package ssa\n"},
}

// buildOracle makes a copy of wazero that reports what it reads, and builds
// testdata/boundaries in it.
func buildOracle(t *testing.T) string {
	t.Helper()
	list := func(format, module string) string {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", format, module).Output()
		if err != nil {
			t.Fatal(module, err)
		}
		return strings.TrimSpace(string(out))
	}
	const wazeroModule, sysModule = "github.com/tetratelabs/wazero", "golang.org/x/sys"
	from, to := list("{{.Dir}}", wazeroModule), t.TempDir()
	err := filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{"testdata", "integration_test", "examples", "site"}, d.Name()):
			return filepath.SkipDir
		case d.IsDir():
			rel, err := filepath.Rel(from, name)
			if err != nil {
				return err
			}
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		case strings.HasSuffix(name, "_test.go") || !slices.Contains([]string{".go", ".s"}, filepath.Ext(name)):
			return nil
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, p := range traced {
		text := read(filepath.Join(to, p.file))
		if strings.Count(text, p.after) != 1 {
			t.Fatalf("%s: wazero has changed: %q is there %d times", p.file, p.after, strings.Count(text, p.after))
		}
		write(p.file, strings.Replace(text, p.after, p.after+p.insert, 1))
		write(filepath.Join(filepath.Dir(p.file), "trace.go"), p.extra)
	}
	write("go.mod", fmt.Sprintf("module %s\n\ngo %s\n\nrequire %s %s\n", wazeroModule, list("{{.GoVersion}}", wazeroModule), sysModule, list("{{.Version}}", sysModule)))
	write("go.sum", read(filepath.FromSlash("../../../go.sum")))
	write("boundaries/main.go", read(filepath.FromSlash("testdata/boundaries/main.go")))
	program := filepath.Join(to, "boundaries", "boundaries")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./boundaries")
	build.Dir = to
	build.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=-mod=mod -trimpath")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the oracle: %v\n%s", err, text)
	}
	return program
}

func newOracle(t *testing.T, program string) *oracle {
	t.Helper()
	o := &oracle{cmd: exec.Command(program)}
	in, err := o.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := o.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	o.cmd.Stderr = os.Stderr
	o.in, o.out = bufio.NewWriterSize(in, 1<<20), bufio.NewReaderSize(out, 1<<20)
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	o.end = func() error { return errors.Join(in.Close(), o.cmd.Wait()) }
	return o
}

// ask has modules read.
func (o *oracle) ask(modules [][]byte) ([]reading, error) {
	number := func(n int) { o.in.Write(binary.AppendUvarint(nil, uint64(n))) } // its error sticks until Flush
	number(len(modules))
	for _, m := range modules {
		number(len(m))
		o.in.Write(m)
	}
	if err := o.in.Flush(); err != nil {
		return nil, err
	}
	var failed error
	next := func() int {
		n, err := binary.ReadUvarint(o.out)
		failed = errors.Join(failed, err)
		return int(n)
	}
	all := make([]reading, len(modules))
	for i := range all {
		r := &all[i]
		kind := next()
		text := make([]byte, next())
		_, err := io.ReadFull(o.out, text)
		if failed = errors.Join(failed, err); failed != nil {
			return nil, failed
		}
		r.taken, r.failed, r.text = kind == 1, kind == 2, string(text)
		if !r.taken {
			continue
		}
		r.functions = make([][]place, next())
		for f := range r.functions {
			r.functions[f] = make([]place, next())
			for k := range r.functions[f] {
				r.functions[f][k] = place{next(), next()}
			}
		}
	}
	return all, failed
}

// ourReading is where the meter sees instructions begin, as reading has it. The
// second byte of the number of a vector instruction is a nop to wazero.
func ourReading(wasm []byte) ([][]place, error) {
	s, err := scanModule(wasm)
	if err != nil {
		return nil, err
	}
	n, _ := s.number()
	b := s.newBodies(n)
	var functions [][]place
	for i, at := range s.code {
		c := s.cursor(at)
		for groups := c.u32(); groups > 0 && c.err == nil; groups-- {
			c.u32()
			c.byte()
		}
		begin := c.off
		list := []place{}
		b.body.charges = []charge{{}}
		b.shape.begin(&s.types[s.funcs[len(s.imports)+i]])
		for len(b.shape.frames) > 0 && c.err == nil {
			at := c.off
			list = append(list, place{at - begin, b.shape.height})
			b.instruction(c)
			if wasm[at] == 0xfd && wasm[at+1] >= 0x80 && c.err == nil {
				list = append(list, place{at + 2 - begin, b.shape.height})
			}
		}
		if c.err != nil || c.left() > 0 {
			return nil, fmt.Errorf("not read: %w", c.err)
		}
		functions = append(functions, list)
	}
	return functions, nil
}

// mutant is a module, and what the meter makes of it.
type mutant struct {
	seed    uint64
	wasm    []byte
	metered []byte
}

// judge compares our reading of a mutant with wazero's, before and after.
func (m *mutant) judge(before, after reading) error {
	switch {
	case before.taken && !after.taken:
		return fmt.Errorf("wazero takes the module, but not the metered one: %s", after.text)
	case !before.taken && after.taken:
		return fmt.Errorf("wazero refuses the module (%s), but takes the metered one", before.text)
	case !before.taken:
		return nil
	}
	for _, read := range []struct {
		what   string
		wasm   []byte
		wazero reading
	}{{"the module", m.wasm, before}, {"the metered module", m.metered, after}} {
		ours, err := ourReading(read.wasm)
		if err != nil {
			return fmt.Errorf("%s: %w", read.what, err)
		}
		for i := range ours {
			if !slices.Equal(ours[i], read.wazero.functions[i]) {
				return fmt.Errorf("%s: of function %d the meter reads\n%v, wazero\n%v", read.what, i, ours[i], read.wazero.functions[i])
			}
		}
	}
	if after.text != "" {
		return fmt.Errorf("the metered module: wazero's readers differ: %s", after.text)
	}
	return nil
}

// What the meter takes for an instruction is one to wazero: the validator, the
// compiler and the interpreter. And the metered module is one that wazero takes
// if and only if it takes the module itself.
func TestBoundaries(t *testing.T) {
	if *mutantTime == 0 {
		t.Skip("make fuzz-sandbox runs it")
	}
	first := *mutantSeed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	program := buildOracle(t)
	compareSpecification(t, program)
	const batch = 1000
	var mu sync.Mutex
	next := first
	var compared, taken, refusedByUs, ownDifferences, differences int
	end := time.Now().Add(*mutantTime)
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		o := newOracle(t, program)
		workers.Go(func() {
			defer func() {
				if err := o.end(); err != nil {
					t.Error(err)
				}
			}()
			for time.Now().Before(end) {
				mu.Lock()
				from := next
				next += batch
				mu.Unlock()
				var mutants []*mutant
				var modules [][]byte
				refused := 0
				for seed := from; seed < from+batch; seed++ {
					m := &mutant{seed: seed, wasm: mutate(seed)}
					if _, err := scanModule(m.wasm); err != nil {
						continue
					}
					var err error
					if m.metered, err = meter(m.wasm); err != nil {
						refused++
						continue
					}
					mutants = append(mutants, m)
					modules = append(modules, m.wasm, m.metered)
				}
				readings, err := o.ask(modules)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				compared += len(mutants)
				refusedByUs += refused
				for i, m := range mutants {
					before, after := readings[2*i], readings[2*i+1]
					if before.taken {
						taken++
						if before.text != "" {
							ownDifferences++
						}
					}
					if err := m.judge(before, after); err != nil {
						if differences++; differences <= 20 {
							t.Errorf("seed %d: %v\n%s", m.seed, err, base64.StdEncoding.EncodeToString(m.wasm))
						}
					}
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	t.Logf("from seed %d on: %d mutants compared, of which wazero takes %d (and reads %d in two ways); %d refused by the meter; %d differences",
		first, compared, taken, ownDifferences, refusedByUs, differences)
	if taken == 0 {
		t.Error("wazero took none: nothing was compared")
	}
}

// compareSpecification compares the modules of the specification's tests, which have every
// instruction where it can be reached.
func compareSpecification(t *testing.T, program string) {
	t.Helper()
	_, cases := specCases(t)
	o := newOracle(t, program)
	defer func() {
		if err := o.end(); err != nil {
			t.Error(err)
		}
	}()
	var names []string
	for _, c := range cases {
		if dir := filepath.Dir(c); !slices.Contains(names, dir) {
			names = append(names, dir)
		}
	}
	taken := 0
	for _, dir := range names {
		files, err := filepath.Glob(filepath.Join(dir, "*.wasm"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			m := &mutant{}
			if m.wasm, err = os.ReadFile(name); err != nil {
				t.Fatal(err)
			}
			if m.metered, err = meter(m.wasm); err != nil {
				continue
			}
			readings, err := o.ask([][]byte{m.wasm, m.metered})
			if err != nil {
				t.Fatal(err)
			}
			if readings[0].taken {
				taken++
			}
			if err := m.judge(readings[0], readings[1]); err != nil {
				t.Errorf("%s: %.500v", filepath.Base(name), err)
			}
		}
	}
	t.Logf("%d modules of the specification compared", taken)
	if taken < 1000 {
		t.Error("too few were compared")
	}
}

// skeleton is a module with something of every kind, around the body of its first
// function: what precedes the code section, the other bodies, and what follows.
type skeleton struct{ before, bodies, after []byte }

const skeletonFunctions, skeletonTypes = 5, 5 // the imported ones included

var theSkeleton = sync.OnceValue(func() skeleton {
	m := w.New()
	m.Type("", "")
	m.Type("i", "i")
	m.Type("ii", "l")
	m.Type("v", "v")
	m.Type("", "ii")
	m.Import(abi.Module, "ctx_int", "i", "l")
	m.Import(abi.ModuleWASI, "random_get", "ii", "i")
	f := m.Declare("il", "i")
	m.Func("", "i", "", w.I32Const(0))
	m.Export(abi.Marker, m.Func("", "", ""))
	m.Table(4, 8)
	m.Table(2, 2)
	m.Memory(1, 2)
	m.ExportMemory(abi.ExportMemory)
	m.Global(1)
	m.Global(2)
	m.Export("f", f)
	m.Elem(0, f, f)
	m.PassiveElem(f)
	m.PassiveData([]byte("data"))
	mark := bytes.Repeat([]byte("mark"), 8)
	m.Raw(f, mark)
	all := m.Bytes()
	at := bytes.Index(all, mark) // after the section's number, its length, the count and the length, each of a byte
	end := at - 2 + int(all[at-3])
	return skeleton{all[:at-4], all[at+len(mark) : end], all[end:]}
})

// mutate makes the module of a seed: a function of random instructions, some of
// which are then changed byte by byte.
func mutate(seed uint64) []byte {
	g := &mutator{Rand: rand.New(rand.NewPCG(seed, 1))}
	var code []byte
	if g.IntN(2) == 0 {
		code = append(code, w.Block(w.I32Const(1), w.BrIf(0), w.Unreachable(), g.instructions(8))...)
	}
	code = append(code, g.instructions(12)...)
	if g.IntN(10) > 0 {
		code = append(code, w.Unreachable()...)
	}
	locals := []byte{4, 1, w.I32, 1, w.F32, 1, w.V128, 1, w.FuncRef}
	body := slices.Concat(locals, code, []byte{0x0b})
	if g.IntN(100) < 40 {
		for range 1 + g.IntN(3) {
			if len(body) > len(locals)+2 {
				body = g.change(body, len(locals), len(body)-1)
			}
		}
	}
	s := theSkeleton()
	section := slices.Concat([]byte{3}, w.U32(uint32(len(body))), body, s.bodies)
	return slices.Concat(s.before, []byte{10}, w.U32(uint32(len(section))), section, s.after)
}

// mutator writes random code.
type mutator struct {
	*rand.Rand
	depth int
}

// change changes bytes between from and to.
func (g *mutator) change(b []byte, from, to int) []byte {
	at := from + g.IntN(to-from)
	switch g.IntN(6) {
	case 0:
		b[at] ^= 1 << g.IntN(8)
	case 1:
		b[at] = byte(g.IntN(256))
	case 2: // a longer number
		return slices.Concat(b[:at], []byte{b[at] | 0x80, byte(g.IntN(2) * g.IntN(128))}, b[at+1:])
	case 3:
		return slices.Concat(b[:at], b[at+1:])
	case 4:
		return slices.Insert(slices.Clone(b), at, byte(g.IntN(256)))
	case 5:
		b[at] = interesting[g.IntN(len(interesting))]
	}
	return b
}

// interesting are bytes that mean something to a reader of code.
var interesting = []byte{0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15,
	0x18, 0x19, 0x1b, 0x1c, 0x1f, 0x23, 0x25, 0x3f, 0x40, 0x41, 0x44, 0x63, 0x64, 0x68, 0x69, 0x6a, 0x6b, 0x6e, 0x6f, 0x70, 0x7b, 0x7f, 0x80, 0x8c, 0x8d,
	0xc0, 0xd0, 0xd1, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xfb, 0xfc, 0xfd, 0xfe, 0xff}

func (g *mutator) instructions(most int) []byte {
	var code []byte
	for range g.IntN(most) {
		if g.IntN(100) < 70 { // after it the stack has whatever is popped
			code = append(code, w.Unreachable()...)
		}
		code = append(code, g.instruction()...)
	}
	return code
}

// u32 is a number, mostly below the limit, sometimes longer than it has to be.
func (g *mutator) u32(limit int) []byte {
	n := g.IntN(limit)
	if g.IntN(120) == 0 {
		n = []int{limit, limit + 1, 127, 128, 255, 1 << 14, 1<<32 - 1}[g.IntN(7)]
	}
	return g.longer(w.U32(uint32(n)))
}

// longer makes some numbers longer than they have to be.
func (g *mutator) longer(number []byte) []byte {
	if g.IntN(40) > 0 {
		return number
	}
	last := len(number) - 1
	fill := byte(0)
	if g.IntN(4) == 0 {
		fill = 0x7f
	}
	for range 1 + g.IntN(4) {
		number[last] |= 0x80
		number = append(number, fill|0x80)
		last++
	}
	number[last] &= 0x7f
	return number
}

func (g *mutator) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = interesting[g.IntN(len(interesting))]
	}
	return b
}

func (g *mutator) blockType() []byte {
	switch g.IntN(24) {
	default:
		return []byte{w.None}
	case 6, 7, 10, 11:
		return []byte{[]byte{w.I32, w.I64, w.F32, w.F64, w.V128, w.FuncRef, 0x6f}[g.IntN(7)]}
	case 8:
		return []byte{0x60 | byte(g.IntN(32))}
	case 9:
		return append([]byte{0x63 + byte(g.IntN(2))}, []byte{0x70, 0x6f, 0x00, 0x01}[g.IntN(4)])
	case 0, 1, 2, 3:
		return g.u32(skeletonTypes)
	}
}

// block is a block of any kind. What is in it cannot be reached, unless it says
// so, for it begins with the types that a block begins with.
func (g *mutator) block(op byte) []byte {
	if g.depth++; g.depth > 4 {
		g.depth--
		return []byte{0x01}
	}
	defer func() { g.depth-- }()
	inner := func() []byte {
		if g.IntN(3) == 0 {
			return w.Code(w.Unreachable(), g.instructions(4))
		}
		return w.Code(w.Unreachable(), g.instructions(4), w.Unreachable())
	}
	code := w.Code([]byte{op}, g.blockType(), inner())
	if op == 0x04 && g.IntN(2) == 0 {
		code = append(append(code, 0x05), inner()...)
	}
	return append(code, 0x0b)
}

func (g *mutator) instruction() []byte {
	memarg := func() []byte { return w.Code(g.u32(1), g.longer(w.U32(uint32(g.IntN(1<<g.IntN(31)))))) }
	switch g.IntN(26) {
	case 0:
		return g.block(0x02)
	case 1:
		return g.block(0x03)
	case 2:
		return g.block(0x04)
	case 3:
		return w.Code([]byte{0x0c + byte(g.IntN(2))}, g.u32(g.depth+1))
	case 4:
		labels := g.IntN(4)
		code := w.Code([]byte{0x0e}, g.longer(w.U32(uint32(labels))))
		for range labels + 1 {
			code = append(code, g.u32(g.depth+1)...)
		}
		return code
	case 5:
		return w.Code([]byte{[]byte{0x00, 0x01, 0x0f, 0x1a, 0x1b}[g.IntN(5)]})
	case 6:
		return w.Code([]byte{0x10}, g.u32(skeletonFunctions))
	case 7:
		return w.Code([]byte{0x11}, g.u32(skeletonTypes), g.u32(2))
	case 8:
		types := []byte{w.I32, w.I64, w.F32, w.F64, w.V128, w.FuncRef, 0x6f, w.I32, w.I64, w.F32, 0x63, 0x64}
		code := w.Code([]byte{0x1c}, g.longer(w.U32(uint32([]int{1, 1, 1, 1, 1, 1, 1, 1, 2, 0}[g.IntN(10)]))))
		for range 1 + g.IntN(12)/11 {
			code = append(code, types[g.IntN(len(types))])
		}
		return code
	case 9:
		return w.Code([]byte{0x20 + byte(g.IntN(3))}, g.u32(6))
	case 10:
		return w.Code([]byte{0x23 + byte(g.IntN(2))}, g.u32(2))
	case 11:
		return w.Code([]byte{0x25 + byte(g.IntN(2))}, g.u32(2))
	case 12, 13:
		return w.Code([]byte{0x28 + byte(g.IntN(23))}, memarg())
	case 14:
		return w.Code([]byte{0x3f + byte(g.IntN(2))}, g.u32(1))
	case 15:
		return w.Code([]byte{0x41}, g.longer(w.Signed(int64(int32(g.Uint32())>>g.IntN(32)))))
	case 16:
		return w.Code([]byte{0x42}, g.longer(w.Signed(int64(g.Uint64())>>g.IntN(64))))
	case 17:
		return w.Code([]byte{0x43}, g.bytes(4))
	case 18:
		return w.Code([]byte{0x44}, g.bytes(8))
	case 19, 20:
		return []byte{0x45 + byte(g.IntN(0xc5-0x45))}
	case 21:
		return [][]byte{{0xd0, 0x70}, {0xd0, 0x6f}, {0xd0, byte(g.IntN(128))}, {0xd1}, w.Code([]byte{0xd2}, g.u32(skeletonFunctions))}[g.IntN(5)]
	case 22:
		return g.prefixed(memarg)
	case 23, 24:
		return g.vector(memarg)
	}
	return []byte{byte(g.IntN(256))}
}

// prefixed is an instruction that begins with 0xfc.
func (g *mutator) prefixed(memarg func() []byte) []byte {
	op := g.IntN(20)
	code := w.Code([]byte{0xfc}, g.longer(w.U32(uint32(op))))
	switch op {
	case 8, 10:
		return w.Code(code, g.u32(1), g.u32(1))
	case 9, 11:
		return w.Code(code, g.u32(1))
	case 12:
		return w.Code(code, g.u32(2), g.u32(2))
	case 13, 15, 16, 17:
		return w.Code(code, g.u32(2))
	case 14:
		return w.Code(code, g.u32(2), g.u32(2))
	}
	return code
}

// vector is an instruction that begins with 0xfd.
func (g *mutator) vector(memarg func() []byte) []byte {
	op := g.IntN(0x100)
	if g.IntN(3) == 0 {
		op = []int{0, 11, 12, 13, 21, 34, 84, 91, 92, 93, 0x8c, 0x8d, 0x100, 0x113}[g.IntN(14)]
	}
	number := g.longer(w.U32(uint32(op)))
	if g.IntN(6) == 0 && op >= 0x80 && op < 0x100 { // as wazero reads it
		number = []byte{byte(op), byte(g.IntN(2) * g.IntN(256))}[:1+g.IntN(2)]
	}
	code := w.Code([]byte{0xfd}, number)
	switch {
	case op <= 11, op == 92, op == 93:
		return w.Code(code, memarg())
	case op == 12 || op == 13:
		return w.Code(code, g.bytes(16))
	case op >= 21 && op <= 34:
		return w.Code(code, g.bytes(1))
	case op >= 84 && op <= 91:
		return w.Code(code, memarg(), []byte{byte(g.IntN(4))})
	}
	return code
}

// Whatever wazero may say that differs is a difference.
func TestBoundariesBite(t *testing.T) {
	t.Parallel()
	wasm := nasty(body(times(3, 0x01)))
	m := &mutant{wasm: wasm, metered: metered(t, wasm)}
	ours, err := ourReading(wasm)
	if err != nil || !slices.Equal(ours[2], []place{{0, 0}, {1, 0}, {2, 0}, {3, 0}}) {
		t.Fatal(ours, err)
	}
	other := slices.Clone(ours)
	other[2] = []place{{0, 0}, {1, 0}, {2, 1}, {3, 0}}
	for _, c := range []struct {
		before, after reading
		want          string
	}{
		{reading{taken: true, functions: ours}, reading{}, "not the metered one"},
		{reading{}, reading{taken: true, functions: ours}, "takes the metered one"},
		{reading{taken: true, functions: other}, reading{taken: true, functions: ours}, "the module: of function 2 the meter reads"},
		{reading{taken: true, functions: ours}, reading{taken: true, functions: ours}, "the metered module: of function"},
	} {
		if err := m.judge(c.before, c.after); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, expected %s", err, c.want)
		}
	}
	if bytes.Equal(mutate(1), mutate(2)) || !bytes.Equal(mutate(1), mutate(1)) {
		t.Error("a seed is not one module")
	}
}
