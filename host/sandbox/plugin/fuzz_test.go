package plugin

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/tetratelabs/wazero/experimental/wazerotest"

	"github.com/wasmjob/wasmjob/abi"
)

// FuzzImports calls every import with any arguments and memory: it may answer
// or stop the guest with a fault, and nothing else.
func FuzzImports(f *testing.F) {
	functions := abi.Imports()
	for i := range functions {
		f.Add(byte(i), byte(1), []byte("\x04\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\xff\xff\xff\xff"), []byte("some memory\x00with text\x00"))
		f.Add(byte(i), byte(0), bytes.Repeat([]byte{0xff}, 40), []byte{})
		f.Add(byte(i), byte(2), make([]byte, 40), bytes.Repeat([]byte("m"), 300))
	}
	f.Fuzz(func(t *testing.T, which, ph byte, args, content []byte) {
		fn := functions[int(which)%len(functions)]
		mem := wazerotest.NewFixedMemory(wazerotest.PageSize)
		copy(mem.Bytes, content)
		x := &executor{}
		in := &instance{x: x, account: &account{}}
		h := newRecorder()
		inv := item(h, "parameter")
		inv.Offset, inv.HasOffset = []byte("offset"), true
		in.begin(context.Background(), inv, []abi.Phase{abi.PhaseInit, abi.PhaseItem, abi.PhaseListener}[ph%3])
		stack := make([]uint64, max(len(fn.Type.Params), 1))
		for i := range fn.Type.Params {
			var word [8]byte
			if len(args) > 0 {
				n := copy(word[:], args)
				args = args[n:]
			}
			stack[i] = binary.LittleEndian.Uint64(word[:])
		}
		err := guard(func() error {
			invoke(&fn, implementations()[fn.Name], in, mem, stack)
			return nil
		})
		if err != nil {
			p, _ := errors.AsType[*enginePanic](err)
			if _, ok := p.value.(*fault); !ok {
				t.Fatalf("%s%v: %v", fn.Name, stack, err)
			}
			return
		}
		if len(mem.Bytes) != wazerotest.PageSize {
			t.Fatal("memory changed its size")
		}
		if len(fn.Type.Results) == 1 && fn.Type.Results[0] == abi.I32 {
			if v := int32(stack[0]); v < int32(abi.ErrInternal) || stack[0]>>32 != 0 {
				t.Fatalf("%s returned %#x", fn.Name, stack[0])
			}
			if code := abi.Code(int32(stack[0])); code < abi.OK && code != abi.ErrState && !slices.Contains(fn.Codes, code) {
				t.Fatalf("%s answered %d, which its row does not name", fn.Name, code)
			}
		}
		for _, l := range h.lines {
			n := len(l.msg)
			for _, s := range l.kv {
				n += len(s)
			}
			if !utf8.ValidString(l.msg) || n > 2*abi.MaxLogMessage || len(l.kv)%2 != 0 {
				t.Fatalf("logged %+v", l)
			}
		}
		if len(in.staged) > abi.MaxOffset || len(in.message) > abi.MaxError || !utf8.ValidString(in.message) {
			t.Fatal("more was taken than is allowed")
		}
	})
}

// FuzzContextJSON: what a script is told is JSON for whatever it is about.
func FuzzContextJSON(f *testing.F) {
	f.Add("job", "p", "a=b'\"\\\x00\u2028", true)
	f.Fuzz(func(t *testing.T, name, task, parameter string, has bool) {
		c := &abi.ShardingContext{JobName: name, TaskID: task, ShardingParameter: parameter, HasShardingParameter: has}
		var got struct {
			JobName, TaskID   string
			ShardingParameter *string
		}
		if err := json.Unmarshal(contextJSON(c), &got); err != nil {
			t.Fatal(err)
		}
		valid := func(s string) string { return string([]rune(s)) }
		if got.JobName != valid(name) || got.TaskID != valid(task) || (got.ShardingParameter != nil) != has || has && *got.ShardingParameter != valid(parameter) {
			t.Fatalf("%+v", got)
		}
	})
}
