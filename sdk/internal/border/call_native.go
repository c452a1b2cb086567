//go:build !wasip1

package border

import (
	"sync"
	"sync/atomic"

	"github.com/wasmjob/wasmjob/abi"
)

// A guest serves one invocation at a time and finds its host without being
// handed one. A native build keeps both: the host is the process's, and
// running serialises those who want to be it.
var (
	running sync.Mutex
	current atomic.Pointer[Host]
)

// Enter makes h the host of the process until leave is called. It waits for
// the one before to leave. It must not be called between Enter and leave on
// the same goroutine.
func Enter(h Host) (leave func()) {
	running.Lock()
	current.Store(&h)
	return func() {
		current.Store(nil)
		running.Unlock()
	}
}

func host() Host {
	if h := current.Load(); h != nil {
		return *h
	}
	return nobody{}
}

// CtxStr is the import ctx_str: the length of the field or a negative code.
func CtxStr(field uint32, buf []byte) int32 { return host().CtxStr(field, buf) }

// CtxInt is the import ctx_int: the value or a negative code.
func CtxInt(field uint32) int64 { return host().CtxInt(field) }

// Log is the import log; kv is a key/value list.
func Log(level int32, msg string, kv []byte) { host().Log(level, msg, kv) }

// LogEnabled is the import log_enabled.
func LogEnabled(level int32) bool { return host().LogEnabled(level) }

// SetError is the import set_error.
func SetError(msg string) { host().SetError(msg) }

// Progress is the import progress.
func Progress(done, total int64) { host().Progress(done, total) }

// Metric is the import metric: a code.
func Metric(kind int32, name string, value int64) int32 { return host().Metric(kind, name, value) }

// OffsetGet is the import offset_get: the length or a negative code.
func OffsetGet(buf []byte) int32 { return host().OffsetGet(buf) }

// OffsetSet is the import offset_set: a code.
func OffsetSet(b []byte) int32 { return host().OffsetSet(b) }

// OffsetCommit is the import offset_commit: a code.
func OffsetCommit() int32 { return host().OffsetCommit() }

// Cancelled is the import cancelled.
func Cancelled() int32 { return host().Cancelled() }

// Trap ends the invocation: it panics with a [*Trapped].
func Trap(message string) { panic(&Trapped{Message: message}) }

// nobody is the host while none is installed: there is no invocation, as
// during _initialize.
type nobody struct{}

func (nobody) CtxStr(uint32, []byte) int32       { return int32(abi.ErrState) }
func (nobody) CtxInt(uint32) int64               { return int64(abi.ErrState) }
func (nobody) Log(int32, string, []byte)         {}
func (nobody) LogEnabled(int32) bool             { return false }
func (nobody) SetError(string)                   {}
func (nobody) Progress(int64, int64)             {}
func (nobody) Metric(int32, string, int64) int32 { return int32(abi.ErrState) }
func (nobody) OffsetGet([]byte) int32            { return int32(abi.ErrState) }
func (nobody) OffsetSet([]byte) int32            { return int32(abi.ErrState) }
func (nobody) OffsetCommit() int32               { return int32(abi.ErrState) }
func (nobody) Cancelled() int32                  { return int32(abi.CancelNone) }
