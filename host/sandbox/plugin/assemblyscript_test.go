package plugin

import (
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
	w "github.com/wasmjob/wasmjob/test/wasm"
)

// The texts of an abort are cut, however long the guest says that they are.
func TestAbort(t *testing.T) {
	t.Parallel()
	text := func(s string) []byte {
		var b []byte
		for _, c := range s {
			b = binary.LittleEndian.AppendUint16(b, uint16(c))
		}
		return b
	}
	abort := func(size uint32, at int32, message []byte) abi.Result {
		m := w.New()
		f := m.Import(wasm.ModuleEnv, "abort", "iiii", "")
		m.Memory(256, 256)
		m.ExportMemory(abi.ExportMemory)
		m.Data(60, binary.LittleEndian.AppendUint32(nil, size))
		m.Data(64, message)
		m.Data(1<<20-4, binary.LittleEndian.AppendUint32(nil, 10))
		m.Data(1<<20, text("a€.ts"))
		m.Export(abi.Marker, m.Func("", "", ""))
		m.Export(abi.ExportExecute, m.Func("", "i", "", w.I32Const(at), w.I32Const(1<<20), w.I32Const(7), w.I32Const(9), w.Call(f), w.I32Const(0)))
		r := newRuntime(t, Options{interpreter: raceEnabled})
		return newWorker(t, load(t, r, m.Bytes()), Settings{}).Execute(t.Context(), item(newRecorder(), ""))
	}
	const exits = "job_execute: guest exited with code 255"
	for _, c := range []struct {
		name string
		got  abi.Result
		want string
	}{
		{"a text", abort(10, 64, text("oops!")), exits + ": oops! at a€.ts:7:9"},
		{"a text outside", abort(1<<31, 64, nil), exits},
		{"an odd length", abort(9, 64, text("oops!")), exits},
		{"no text", abort(0, 3, nil), exits},
	} {
		if c.got.Outcome != abi.OutcomeExit || c.got.Message != c.want {
			t.Errorf("%s: %s %q, expected %q", c.name, c.got.Outcome, c.got.Message, c.want)
		}
	}
	long := abort(15<<20, 64, text(strings.Repeat("x", 1<<20))).Message
	if n := strings.Count(long, "x") - strings.Count(exits, "x"); n != maxAbortText/2 || !strings.HasSuffix(long, "x… at a€.ts:7:9") || !utf8.ValidString(long) {
		t.Errorf("a long text: %d letters, %.40q", n, long)
	}
}
