// Package hostile holds modules that attack the host which runs them, and
// makes random ones like them. Its tests run each of them beside an honest job.
package hostile

import (
	"time"

	"github.com/wasmjob/wasmjob/abi"
	w "github.com/wasmjob/wasmjob/test/wasm"
)

// End says how a module has to end.
type End int

// The ends.
const (
	// Stopped: it is loaded and runs, until it is stopped because its time is up.
	Stopped End = iota
	// Ended: it is refused, or it ends by itself in time, or it is stopped.
	Ended
	// Refused: it is not loaded.
	Refused
)

// Module is a hostile module.
type Module struct {
	// Name is the group and the attack, as in loop/empty.
	Name string
	Wasm []byte
	// Definition is what attacks, if there is no module: a definition file.
	Definition string
	// Type is that of the job, and Streaming its setting, if it is DATAFLOW.
	Type      string
	Streaming bool
	// Listener is the export that attacks; empty: what the job runs.
	Listener string
	// Granted modules may use all capabilities: a directory that is written to is /.
	Granted bool
	// Invalid modules are no WebAssembly; an engine may crash when it reads them.
	Invalid bool
	// Memory is the job's memoryLimit in bytes; 0: the default.
	Memory int64
	// Items is how many items run it at once; 0: one.
	Items int
	// Runs is how long it has to run until it has done harm; 0: a moment.
	Runs time.Duration
	End  End
}

const (
	page = 1 << 16
	// pages is the memory of the modules: the default limit.
	pages = abi.DefaultMemory / page
	// whole is all of it, but for what instructions point at.
	whole = abi.DefaultMemory - page
	// deep is a number that no guest counts down from.
	deep = 60
)

// job is a module of a job under construction. Its functions have the name of
// what they export.
type job struct{ *w.Module }

// newJob has a memory of that many pages from the beginning.
func newJob(least uint32) job {
	j := job{w.New()}
	j.Memory(least, pages)
	j.ExportMemory(abi.ExportMemory)
	return j
}

// imports adds functions before all others.
func (j job) wasi(name, params, results string) uint32 {
	return j.Import(abi.ModuleWASI, name, params, results)
}

func (j job) host(name, params, results string) uint32 {
	return j.Import(abi.Module, name, params, results)
}

// marker makes it a module of the job ABI.
func (j job) marker() { j.Export(abi.Marker, j.Func("", "", "")) }

// export adds an entry point, which returns OK.
func (j job) export(name, locals string, code ...[]byte) {
	j.Export(name, j.Func("", "i", locals, w.Code(code...), w.I32Const(0)))
}

// execute makes it a SIMPLE job and returns the module.
func (j job) execute(locals string, code ...[]byte) []byte {
	j.marker()
	j.export(abi.ExportExecute, locals, code...)
	return j.Bytes()
}

// forever does something again and again.
func forever(code ...[]byte) []byte { return w.Loop(w.Code(code...), w.Br(0)) }

// fewer is the parameter less one.
func fewer() []byte { return w.Code(w.Get(0), w.I32Const(1), w.Sub()) }

// untilZero returns if the parameter is 0.
func untilZero() []byte { return w.Code(w.Get(0), w.Eqz(), w.If(w.Return())) }

// bulk are operands and an instruction that touches all of the memory or table.
func bulk(instruction []byte, operands ...int32) []byte {
	var code []byte
	for _, n := range operands {
		code = append(code, w.I32Const(n)...)
	}
	return append(code, instruction...)
}
