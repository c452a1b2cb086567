package plugin

import (
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
	build "github.com/wasmjob/wasmjob/test/wasm"
)

// beyond is the first address that is not in 2 GiB, which an instruction has as a negative number.
const beyond = -1 << 31

// reaching is a job with a memory of at least and at most so many pages. It does what comes
// first, and then reads and writes at a constant address beyond 2 GiB before and after a call: wazero
// v1.12.0 takes the second address for one before the memory.
func reaching(least, most uint32, first ...[]byte) []byte {
	m := build.New()
	m.Memory(least, most)
	m.ExportMemory(abi.ExportMemory)
	m.Export(abi.Marker, m.Func("", "", ""))
	nothing := m.Func("", "", "", build.Loop())
	m.Export(abi.ExportExecute, m.Func("", "i", "", build.Code(first...),
		build.I32Const(beyond), build.I32Const(7), build.Store(),
		build.Call(nothing),
		build.I32Const(beyond), build.Load()))
	return m.Bytes()
}

// TestMostMemory: no guest has more than 2 GiB, whatever asks for it, so that no constant
// address of its code leads out of its memory.
func TestMostMemory(t *testing.T) {
	t.Parallel()
	needsCompiler(t)
	r := newRuntime(t, Options{})
	const most = wasm.MostPages * wasm.PageSize
	if most != 1<<31 {
		t.Fatalf("%d pages are not 2 GiB", wasm.MostPages)
	}
	for name, c := range map[string]struct {
		least uint32
		limit int64
		want  string
	}{
		"begins with more":               {wasm.MostPages + 1, most, "begins with"},
		"begins with all":                {wasm.MaxPages, most, "begins with"},
		"begins with more, by its limit": {wasm.MostPages + 1, most + wasm.PageSize, "expected at most 2 GiB"},
		"may have all":                   {1, wasm.MaxPages * wasm.PageSize, "expected at most 2 GiB"},
	} {
		m, err := r.Open("some/guest.wasm", reaching(c.least, wasm.MaxPages))
		if err == nil {
			var x abi.Executor
			x, err = m.Executor(Settings{MemoryLimit: c.limit})
			if err == nil {
				x.Release()
			}
			m.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: found %v, expected %q", name, err, c.want)
		}
	}

	// It declares all that it can address, takes what it gets, and then reaches beyond.
	grow := func(pages int32) []byte { return build.Code(build.I32Const(pages), build.MemoryGrow(), build.Drop()) }
	m := load(t, r, reaching(1, wasm.MaxPages, grow(wasm.MaxPages-1), grow(wasm.MostPages-1), grow(1)))
	w := newWorker(t, m, Settings{MemoryLimit: most})
	got := w.Execute(t.Context(), item(newRecorder(), ""))
	if got.Outcome != abi.OutcomeTrap || !strings.Contains(got.Message, "out of bounds memory access") {
		t.Errorf("%+v", got)
	}
	got = newWorker(t, load(t, r, grown(grow(wasm.MaxPages-1), grow(wasm.MostPages-1), grow(1))), Settings{MemoryLimit: most}).Execute(t.Context(), item(newRecorder(), ""))
	if got.Outcome != abi.OutcomeOK || got.Memory != most {
		t.Errorf("a guest that asks for all has %d bytes: %+v", got.Memory, got)
	}
}

// grown is a job that declares all memory and grows it.
func grown(grow ...[]byte) []byte {
	m := build.New()
	m.Memory(1, wasm.MaxPages)
	m.ExportMemory(abi.ExportMemory)
	m.Export(abi.Marker, m.Func("", "", ""))
	m.Export(abi.ExportExecute, m.Func("", "i", "", build.Code(grow...), build.I32Const(0)))
	return m.Bytes()
}
