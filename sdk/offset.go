package sdk

import (
	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk/internal/border"
)

// Offset returns where the item got to: what this invocation has set, else
// what was committed last, by this host or another. It is false if nothing
// ever was, and in a listener, which has no item.
//
// The host answers from its memory; it has no reason to fail. If it does all
// the same, Offset panics rather than let the job begin again from nothing.
func Offset() ([]byte, bool) {
	b := make([]byte, 256)
	for {
		n := border.OffsetGet(b)
		switch {
		case n >= 0 && int(n) <= len(b):
			return b[:n], true
		case n >= 0:
			b = make([]byte, n)
		case abi.Code(n) == abi.ErrNotFound, abi.Code(n) == abi.ErrState:
			return nil, false
		default:
			panic(check("read offset", n))
		}
	}
}

// SetOffset notes where the item got to. It becomes durable only if the
// invocation (of a dataflow job: the batch) ends well, or by [CommitOffset].
// More than abi.MaxOffset bytes are ErrTooLarge.
func SetOffset(offset []byte) error {
	return check("set offset", border.OffsetSet(offset))
}

// CommitOffset makes the offset that was set durable now, for a long simple
// job that wants to keep what it did so far. ErrConflict and ErrCancelled mean
// that the item is, or may be, somebody else's by now: stop, and return the
// error. ErrUnavailable is worth another try later. A job that commits more often
// than the host lets it waits for its turn.
func CommitOffset() error {
	return check("commit offset", border.OffsetCommit())
}
