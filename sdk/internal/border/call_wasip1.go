package border

import "unsafe"

//go:wasmimport job_v1 ctx_str
//go:noescape
func ctxStr(field uint32, buf unsafe.Pointer, limit uint32) int32

//go:wasmimport job_v1 ctx_int
//go:noescape
func ctxInt(field uint32) int64

//go:wasmimport job_v1 log
//go:noescape
func hostLog(level int32, msg unsafe.Pointer, msgLen uint32, kv unsafe.Pointer, kvLen uint32)

//go:wasmimport job_v1 log_enabled
//go:noescape
func logEnabled(level int32) int32

//go:wasmimport job_v1 set_error
//go:noescape
func setError(msg unsafe.Pointer, msgLen uint32)

//go:wasmimport job_v1 progress
//go:noescape
func progress(done, total int64)

//go:wasmimport job_v1 metric
//go:noescape
func metric(kind int32, name unsafe.Pointer, nameLen uint32, value int64) int32

//go:wasmimport job_v1 offset_get
//go:noescape
func offsetGet(buf unsafe.Pointer, limit uint32) int32

//go:wasmimport job_v1 offset_set
//go:noescape
func offsetSet(p unsafe.Pointer, n uint32) int32

//go:wasmimport job_v1 offset_commit
//go:noescape
func offsetCommit() int32

//go:wasmimport job_v1 cancelled
//go:noescape
func cancelled() int32

// trap is the instruction "unreachable"; see trap_wasip1.s.
func trap()

// Enter changes nothing: the host of a guest is who runs it. It is here so that
// what uses it compiles for guests, too.
func Enter(Host) (leave func()) { return func() {} }

func bytes(b []byte) (unsafe.Pointer, uint32) {
	return unsafe.Pointer(unsafe.SliceData(b)), uint32(len(b))
}

func text(s string) (unsafe.Pointer, uint32) {
	return unsafe.Pointer(unsafe.StringData(s)), uint32(len(s))
}

// CtxStr is the import ctx_str: the length of the field or a negative code.
func CtxStr(field uint32, buf []byte) int32 {
	p, n := bytes(buf)
	return ctxStr(field, p, n)
}

// CtxInt is the import ctx_int: the value or a negative code.
func CtxInt(field uint32) int64 { return ctxInt(field) }

// Log is the import log; kv is a key/value list.
func Log(level int32, msg string, kv []byte) {
	m, mn := text(msg)
	k, kn := bytes(kv)
	hostLog(level, m, mn, k, kn)
}

// LogEnabled is the import log_enabled.
func LogEnabled(level int32) bool { return logEnabled(level) != 0 }

// SetError is the import set_error.
func SetError(msg string) {
	p, n := text(msg)
	setError(p, n)
}

// Progress is the import progress.
func Progress(done, total int64) { progress(done, total) }

// Metric is the import metric: a code.
func Metric(kind int32, name string, value int64) int32 {
	p, n := text(name)
	return metric(kind, p, n, value)
}

// OffsetGet is the import offset_get: the length or a negative code.
func OffsetGet(buf []byte) int32 {
	p, n := bytes(buf)
	return offsetGet(p, n)
}

// OffsetSet is the import offset_set: a code.
func OffsetSet(b []byte) int32 {
	p, n := bytes(b)
	return offsetSet(p, n)
}

// OffsetCommit is the import offset_commit: a code.
func OffsetCommit() int32 { return offsetCommit() }

// Cancelled is the import cancelled.
func Cancelled() int32 { return cancelled() }

// Trap ends the guest with a trap, which the host cannot mistake for anything
// else and after which it drops the instance. message is for native builds:
// in a guest SetError must have been called before.
func Trap(message string) { trap() }
