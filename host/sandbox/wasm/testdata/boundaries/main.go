// Command boundaries says where wazero sees instructions begin. The test
// TestBoundaries puts it into a copy of wazero whose readers of code report each
// instruction: the validator, the compiler's front end and the interpreter's
// compiler.
//
// It reads batches from standard input: a number of modules, and each module
// after its length. It answers each module by an answer of boundaries_test.go.
// All numbers are unsigned varints.
package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/internal/engine/interpreter"
	"github.com/tetratelabs/wazero/internal/engine/wazevo/frontend"
	"github.com/tetratelabs/wazero/internal/engine/wazevo/ssa"
	"github.com/tetratelabs/wazero/internal/engine/wazevo/wazevoapi"
	"github.com/tetratelabs/wazero/internal/wasm"
	wasmbinary "github.com/tetratelabs/wazero/internal/wasm/binary"
)

func main() {
	if err := serve(bufio.NewReaderSize(os.Stdin, 1<<20), bufio.NewWriterSize(os.Stdout, 1<<20)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(in *bufio.Reader, out *bufio.Writer) error {
	builder := ssa.NewBuilder()
	var modules [][]byte
	for {
		n, err := binary.ReadUvarint(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		modules = modules[:0]
		for range n {
			size, err := binary.ReadUvarint(in)
			if err != nil {
				return err
			}
			m := make([]byte, size)
			if _, err := io.ReadFull(in, m); err != nil {
				return err
			}
			modules = append(modules, m)
		}
		for _, m := range modules {
			answer(out, builder, m)
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
}

// Answers, see boundaries_test.go.
const (
	refused = iota
	taken
	failed
)

func answer(out *bufio.Writer, builder ssa.Builder, m []byte) {
	functions, heights, differ, err := trace(builder, m)
	number := func(n int) { out.Write(binary.AppendUvarint(nil, uint64(n))) }
	text := func(s string) {
		number(len(s))
		out.WriteString(s)
	}
	if err != nil {
		kind := refused
		if _, ok := err.(*panicked); ok {
			kind = failed
		}
		number(kind)
		text(err.Error())
		return
	}
	number(taken)
	text(differ)
	number(len(functions))
	for i, f := range functions {
		number(len(f))
		for k, pc := range f {
			number(int(pc))
			number(heights[i][k])
		}
	}
}

type panicked struct{ value any }

func (p *panicked) Error() string { return fmt.Sprint("panic: ", p.value) }

// trace tells where the instructions of each function begin, as the validator
// reads them, how many values are on the operand stack there, and how another reader
// differs from that.
func trace(builder ssa.Builder, m []byte) (functions [][]uint64, heights [][]int, differ string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicked{p}
		}
	}()
	const features = api.CoreFeaturesV2
	module, err := wasmbinary.DecodeModule(m, features, 1<<16, false, true, false)
	if err != nil {
		return nil, nil, "", err
	}
	functions = make([][]uint64, len(module.CodeSection))
	heights = make([][]int, len(module.CodeSection))
	wasm.Trace = func(function wasm.Index, pc uint64, height int) {
		functions[function] = append(functions[function], pc)
		heights[function] = append(heights[function], height)
	}
	if err := module.Validate(features); err != nil {
		return nil, nil, "", err
	}
	if len(module.CodeSection) == 0 {
		return functions, heights, "", nil
	}

	compare := func(reader string, i int, got []uint64) {
		if !slices.Equal(got, functions[i]) && differ == "" {
			differ = fmt.Sprintf("of function %d %s reads %v, the validator %v", i, reader, got, functions[i])
		}
	}
	module.AssignModuleID(m, nil, false)
	module.BuildMemoryDefinitions()
	offsets := wazevoapi.NewModuleContextOffsetData(module, false)
	fe := frontend.NewFrontendCompiler(module, builder, &offsets, false, false, false)
	for i := range module.CodeSection {
		var got []uint64
		frontend.Trace = func(pc int) { got = append(got, uint64(pc)) }
		code := &module.CodeSection[i]
		index := module.FunctionSection[i]
		if text := guard(func() error {
			fe.Init(wasm.Index(i), index, &module.TypeSection[index], code.LocalTypes, code.Body, false, code.BodyOffsetInCodeSection)
			fe.LowerToSSA()
			return nil
		}); text != "" {
			return nil, nil, "", &panicked{"the compiler: " + text}
		}
		compare("the compiler", i, got)
	}

	all := make([][]uint64, len(module.CodeSection))
	text := guard(func() error {
		return interpreter.Trace(features, module, func(i int, pc uint64) { all[i] = append(all[i], pc) })
	})
	for i := range all {
		if text != "" {
			if differ == "" {
				differ = "the interpreter: " + text
			}
			break
		}
		compare("the interpreter", i, all[i])
	}
	return functions, heights, differ, nil
}

// guard says how f failed, if it did.
func guard(f func() error) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint(p)
		}
	}()
	if err := f(); err != nil {
		return err.Error()
	}
	return ""
}
