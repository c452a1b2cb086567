// Package border is where Go meets the imports of Job ABI v1: one function
// for each import of package abi, with slices and strings in the place of
// pointers and lengths.
//
// In a guest (wasip1) each function calls its import directly, so that the
// linker drops the imports that a module never reaches. In a native build the
// functions ask the host that [Enter] installed, which is what package
// sdktest does.
package border

// Host plays the host in a native build. The methods are the imports. They
// may be called from several goroutines of one handler.
type Host interface {
	CtxStr(field uint32, buf []byte) int32
	CtxInt(field uint32) int64
	Log(level int32, msg string, kv []byte)
	LogEnabled(level int32) bool
	SetError(msg string)
	Progress(done, total int64)
	Metric(kind int32, name string, value int64) int32
	OffsetGet(buf []byte) int32
	OffsetSet(b []byte) int32
	OffsetCommit() int32
	Cancelled() int32
}

// Trapped is what [Trap] panics with in a native build.
type Trapped struct {
	// Message is what the guest has passed to SetError.
	Message string
}

// Error returns the message.
func (t *Trapped) Error() string { return t.Message }
